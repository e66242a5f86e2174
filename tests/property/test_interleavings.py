"""Interleavings of the real controllers (`tests.interleaving`): every promise is kept in each of them, and every mutant breaks one.

`make interleavings` plays ten thousand, and all mutants.
"""

import subprocess
import sys

import pytest

SOME = 40
THIN, MOST = 60, 400
"""Interleavings that a mutant is given."""

QUICK = (
    "budgets ignored",
    "commit record not written",
    "taint check removed",
    "drain removed",
    "pods deleted instead of evicted",
    "nodes with pods count as empty",
)
"""Mutants that are caught within seconds."""


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for it has threads of its own kind."""
    command = [sys.executable, "-m", "tests.interleaving", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_promise_is_broken_in_some_interleavings() -> None:
    found = play("--seeds", f"0:{SOME}")
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-4000:]
    assert f"{SOME} interleavings, 0 broken" in found.stdout
    for what in ("commands drift", "commands empty", "commands single", "commands called off", "processes ended"):
        assert f"{what} " in found.stdout, f"no {what}: the interleavings prove nothing about them"


@pytest.mark.parametrize("mutant", QUICK)
def test_a_mutant_is_caught(mutant: str) -> None:
    found = play("--seeds", f"0:{SOME}", "--mutant", mutant)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]


def test_an_interleaving_is_the_same_when_it_is_played_again() -> None:
    first, second = (play("--seeds", "0:3", "--say").stdout for _ in range(2))
    assert first == second
    assert "leads" in first


def names() -> tuple[str, ...]:
    """Every mutant, as the program itself lists them."""
    listed = play("--help").stdout
    found = " ".join(listed.split()).partition("--mutant {")[2].partition("}")[0]
    return tuple(found.split(","))


def is_caught(mutant: str) -> bool:
    """By some fleet, or by one whose nodes go together only."""
    looks = (("--seeds", f"0:{THIN}", "--thin"), ("--seeds", f"0:{MOST}"))
    return any(play(*look, "--mutant", mutant).returncode == 0 for look in looks)


@pytest.mark.bench
@pytest.mark.timeout(7200)
def test_every_mutant_is_caught() -> None:
    mutants = names()
    assert len(mutants) >= 20
    assert [one for one in mutants if not is_caught(one)] == []
