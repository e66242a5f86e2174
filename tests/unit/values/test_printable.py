"""Texts that others wrote, as a terminal may show them."""

import pytest

from provisioner.values.printable import counted, lines, one_line

TEXTS = {
    "letters of every alphabet": ("zone=größe 大", "zone=größe 大"),
    "an escape": ("a\x1b[2Jb", "a?[2Jb"),
    "an escape of eight bits": ("a\x9b2Jb", "a?2Jb"),
    "another line": ("a\nNodePool b: fits\r", "a?NodePool b: fits?"),
    "a mark of direction": ("a\u202egpj.exe", "a?gpj.exe"),
    "half a character": ("\ud800", "?"),
}


@pytest.mark.parametrize(("text", "shown"), TEXTS.values(), ids=TEXTS)
def test_a_line_is_one_that_a_terminal_shows_as_it_is(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_lines_stay_lines() -> None:
    assert lines("a\n\x07b\r\n") == "a\n?b?\n"


@pytest.mark.parametrize(("count", "shown"), [(0, "0 pods"), (1, "1 pod"), (1000, "1,000 pods")])
def test_a_noun_follows_its_number(count: int, shown: str) -> None:
    assert counted(count, "pod") == shown
