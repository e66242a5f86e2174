"""What a misspelt word was probably meant to be."""

from collections.abc import Iterable


def closest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """The known word that is most like `word`; "" where none is at least `alike`, which is 1 for equal words.

    Cost: O(known words, times the length of the word).
    """
    import difflib  # noqa: PLC0415 - half a megabyte that programs without a misspelt word never need

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=alike)), "")


def meant(word: str) -> str:
    """The question about a word that was probably meant, to be put behind what is wrong; "" for none."""
    return f' (did you mean "{word}"?)' if word else ""
