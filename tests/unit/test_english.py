"""User texts are written in plain English, as Kubernetes' documentation is: who does what, what is the case, what to do.

Each phrase of the list gives away a noun-heavy syntax that readers stumble over. What is quoted (code, output, commands, link targets, placeholders) is not read.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from provisioner.cli.main import dovetail

ROOT: Final = Path(__file__).parents[2]
EXCEPTIONS: Final = yaml.safe_load((ROOT / "tests" / "data" / "english-exceptions.yaml").read_text(encoding="utf-8"))
QUOTED: Final = re.compile(
    r"\{[^{}\n]*\}|^ *```.*?^ *```|(?:\A|(?<=\n\n)) {4,}(?![-*] |\d+\. ).*?(?=\n\s*\n|\Z)|<!--.*?-->|``.+?``|`[^`\n]+`|\]\([^)\s]+\)",
    re.MULTILINE | re.DOTALL,
)
ACCENT: Final[Mapping[str, str]] = {
    r"(?<!there )\b(?:is|are|was|were) no\b(?! (?:longer|more|later|less|fewer))": "is not a",
    r"\b(?:that|which|what) (?:is|are|it is|they are) for\b": "for, or name the purpose",
    r"\b(?:what|that) (?:is|are|was|were) left\b(?! (?:out|behind))": "remaining",
    r"\bis left to (?:you|try)\b|\bare left to you\b": "you must, or nothing remains to",
    r"\bof (?:its|their|your|our|an|one's) own\b": "its own X, or a separate X",
    r"\b(?:so|as) many (?!as\b)|\bby as much\b": "that number of, by the same amount",
    r"\bwho(?:m)?ever\b": "anyone who",
    r"\b(?:nobody|somebody|everybody)\b": "no one, someone, everyone, or name the actor",
    r"\bby (?:itself|themselves)\b": "automatically, on its own, alone",
    r"\bwhat (?:becomes|became) of\b": "what happens to",
    r"\bthat is so\b": "this also applies",
    r"\banew\b": "again",
    r"\bof which (?:no|one|every|each|all|the)\b": "whose, or a sentence for itself",
    r"\bdearer\b": "more expensive",
    r"(?<!take )(?<!taken )(?<!takes )\bover (?:zones|hosts|hostnames|nodes|pools|NodePools|all NodePools)\b": "across",
    r"\blikewise\b": "also, in the same way",
    r"\b(?:goes|go|going|went) on\b": "continues",
    r"\b(?:tells?|told) of\b": "reports, shows",
    r"\b(?:takes?|taken|took) (?:a|the) \w+ back\b": "cannot be undone",
    r"\bbeside\b": "next to, with, in addition to",
    r"\bnowhere\b": "cannot be placed",
    r"\blets? in\b": "allows traffic from, admits",
    r"(?:^|[.:] )(?:Compared|Kept|Meant|Named|Shown|Counted|Excluded) (?:is|are)\b": "X is kept",
    r"\b(?:is|are) (?:not )?over\b(?! \d)": "has passed, has expired",
    r"\b(?:comes?|came) to (?:its|their|an) end\b": "finishes",
    r"\b(?:is|are) to (?:go|stay|come)\b": "should",
    r"\bas it is\b(?! (?:sold|now))|\bas they are\b": "unchanged",
    r"\b(?:came|comes?) (?:or|and) (?:went|goes?)\b": "was added or removed",
    r"\bunder way\b": "in progress",
    r"\bcalled off\b": "canceled",
    r"\bfinds? no room\b": "does not fit",
    r"\bstands? (?:twice|for nothing)\b": "is repeated, is not defined",
    r"\b(?:is|are|was|were) none of\b": "is not one of",
    r"\bwhich is the limit\b": "exceeds the limit of",
    r"\bnames? no\b": "does not specify, has no",
    r"\b(?:that|which) (?:is|are) there\b": "existing",
    r"\b(?:is|are) meant for\b": "serves",
    r"\bas if there were none\b": "assumes that there are none",
    r"\ball the same\b": "anyway, nevertheless",
    r"\ba month more\b": "more per month",
}
"""Phrases that give the accent away, and what to write instead."""


def covered() -> list[str]:
    """The pages that users read, without those that the exceptions name."""
    found = [ROOT / "README.md", *(ROOT / "manifests").rglob("README.md"), ROOT / "docs" / "README.md"]
    found += [
        ROOT / "docs" / "known-flaws.md",
        ROOT / "docs" / "glossary.md",
        *(ROOT / "docs" / "guides").rglob("*.md"),
    ]
    found += (ROOT / "docs" / "reference").glob("*.md")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def prose(text: str) -> str:
    """A page without what it quotes, with the same number of lines."""
    return QUOTED.sub(lambda found: "`" + "\n" * found[0].count("\n"), text)


def accents(text: str) -> Iterator[str]:
    """Line, phrase and advice for each phrase of the list in a page."""
    for number, line in enumerate(prose(text).splitlines(), 1):
        for phrase, instead in ACCENT.items():
            for found in re.finditer(phrase, line, re.IGNORECASE):
                if not any(one in line for one in EXCEPTIONS["sentences"]):
                    yield f"line {number}: ...{line[max(0, found.start() - 30) : found.end() + 30]}...: write: {instead}"


@pytest.mark.parametrize("page", [one for one in covered() if one not in EXCEPTIONS["pages"]])
def test_pages_for_users_are_plain_english(page: str) -> None:
    assert list(accents((ROOT / page).read_text(encoding="utf-8"))) == []


def helped(command: click.Command, name: str = "dovetail") -> Iterator[tuple[str, str]]:
    """What `--help` says of a command and of those below it, by name; a paragraph is one line, as a phrase may be wrapped."""
    said = [command.help or "", command.short_help or ""]
    said += [getattr(one, "help", None) or "" for one in command.params]
    yield name, "\n".join(" ".join(part.split()) for text in said for part in text.split("\n\n"))
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield from helped(found, f"{name} {below}")


def test_help_is_plain_english() -> None:
    found = dict(helped(dovetail))
    assert {"dovetail lint", "dovetail why node", "dovetail takeover start", "dovetail provisioner"} <= found.keys()
    assert [f"{name}: {one}" for name, text in found.items() for one in accents(text)] == []


def test_a_page_is_left_out_only_while_it_has_something_to_mend() -> None:
    for page in EXCEPTIONS["pages"]:
        assert page in covered()
        assert list(accents((ROOT / page).read_text(encoding="utf-8"))), f"{page}: remove it from the exceptions"


def test_a_sentence_is_excepted_only_while_a_page_has_it() -> None:
    text = "\n".join(prose((ROOT / page).read_text(encoding="utf-8")) for page in covered())
    text += "\n".join(said for _, said in helped(dovetail))
    assert [one for one in EXCEPTIONS["sentences"] if one not in text] == []


def test_what_a_page_quotes_is_not_read() -> None:
    quoted = "```\nis no name\n```\n\nRun:\n\n    echo is no name\n\nsays `is no name`, see [here](is-no-name.md)\n"
    assert list(accents(quoted)) == []
    (found,) = accents(f"{quoted}This is no name.\n")
    assert found.startswith("line 10: ")
