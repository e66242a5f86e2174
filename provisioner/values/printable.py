"""What a terminal shows as it is: texts that others wrote may hold control characters that clear a screen, or turn a line around."""

from collections.abc import Iterable


def one_line(text: str) -> str:
    """The text with "?" for everything that is not printed as a character: line ends, escapes, marks of direction. As long as it was.

    Cost: O(its length).
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def counted(count: int, word: str) -> str:
    """A number with its noun: "1 pod", "1,000 pods"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def listed(texts: Iterable[object], most: int, apart: str = ", ") -> str:
    """The first few of them, and how many more there are: "a, b and 3 more"."""
    every = [str(one) for one in texts]
    more = f"{apart.rstrip(' ,')} and {len(every) - most} more" if len(every) > most else ""
    return apart.join(every[:most]) + more


def lines(text: str) -> str:
    """Likewise, but lines that end in a line feed stay lines: for a text that has several of its own."""
    return "\n".join(map(one_line, text.split("\n")))
