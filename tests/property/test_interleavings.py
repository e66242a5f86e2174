"""Interleavings of the real controllers (`tests.interleaving`): every promise is kept in each of them, and every mutant breaks one.

`make interleavings` plays ten thousand, and all mutants.
"""

import itertools
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.apis import names as api
from provisioner.apis.command import CandidateRecord, CommandPhase, CommandRecord, encode_command
from provisioner.simulator.api_server import ServerChange, Wire
from tests.interleaving import jobs
from tests.interleaving.edges import CLAIM_EDGES, COMMAND_EDGES, SELDOM, TERMINATING
from tests.interleaving.oracle import Oracle

SOME = 40
GANGS = 15
"""Of gangs, which take longer: what is launched waits for minutes."""
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
QUICK_OF_GANGS = (
    "a part of a launch set is launched",
    "the scarcest of a launch set not awaited",
    "the scarcest of a launch set last",
    "gangs without launch sets",
    "nodes of a gang let in one by one",
)
"""Likewise by interleavings of gangs."""


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


def test_no_gang_has_a_half_of_its_nodes_in_some_interleavings() -> None:
    found = play("--seeds", f"0:{GANGS}", "--gangs")
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-4000:]
    for what in ("launch sets", "nodes of gangs let in", "launched after scarcer ones", "starve", "kill"):
        assert f"{what} " in found.stdout, f"no {what}: the interleavings prove nothing about them"


@pytest.mark.parametrize("mutant", QUICK_OF_GANGS)
def test_a_mutant_of_gangs_is_caught(mutant: str) -> None:
    found = play("--seeds", f"0:{GANGS}", "--gangs", "--mutant", mutant)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]


@pytest.mark.parametrize("mutant", QUICK)
def test_a_mutant_is_caught(mutant: str) -> None:
    found = play("--seeds", f"0:{SOME}", "--mutant", mutant)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]


@pytest.mark.parametrize("kind", [(), ("--gangs",)])
def test_an_interleaving_is_the_same_when_it_is_played_again(kind: tuple[str, ...]) -> None:
    cpu = r'\d+ s of CPU|"cpu": \d+'
    first, second = (re.sub(cpu, "", play("--seeds", "0:4", "--say", *kind).stdout) for _ in range(2))
    assert first == second
    assert "leads" in first


WAY = {"created": (), "launched": (api.LAUNCHED,), "registered": (api.LAUNCHED, api.REGISTERED)}
WAY["initialized"] = (*WAY["registered"], api.INITIALIZED)


def claim(*true: str, going: bool = False, phase: CommandPhase | None = None) -> Wire:
    """A NodeClaim with these conditions; with the record of a command of that phase."""
    metadata: dict[str, Any] = {"name": "c", "uid": "u", "annotations": {}}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if phase is not None:
        record = CommandRecord(
            id="id", reason="Drifted", method="drift", candidates=(CandidateRecord("c", "u"),), phase=phase
        )
        metadata["annotations"][api.COMMAND_ANNOTATION] = encode_command(record)
    spec = {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"conditions": [{"type": one, "status": "True"} for one in true]},
    }


CLAIMS: dict[str, Wire | None] = {
    "none": None,
    **{state: claim(*true) for state, true in WAY.items()},
    **{f"ending {state}": claim(*true, going=True) for state, true in WAY.items()},
    TERMINATING: claim(*WAY["initialized"], api.INSTANCE_TERMINATING, going=True),
}
COMMANDS: dict[str, Wire | None] = {
    "none": None,
    **{phase.lower(): claim(phase=phase) for phase in CommandPhase},
    **{f"{phase.lower()}, going": claim(phase=phase, going=True) for phase in CommandPhase},
}


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(CLAIMS, 2)))
def test_what_is_no_edge_of_a_nodeclaim_is_a_broken_promise(old: str, new: str) -> None:
    assert broken("NodeClaim", CLAIMS[old], CLAIMS[new]) is ((old, new) not in CLAIM_EDGES)


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(COMMANDS, 2)))
def test_what_is_no_edge_of_a_command_is_a_broken_promise(old: str, new: str) -> None:
    assert broken("command", COMMANDS[old], COMMANDS[new]) is ((old, new) not in COMMAND_EDGES)


def broken(what: str, before: Wire | None, after: Wire | None) -> bool:
    """Whether the oracle complains of that way of a NodeClaim, or of the command whose record it holds."""
    oracle = Oracle(SimpleNamespace(), SimpleNamespace(), ())  # type: ignore[arg-type]
    oracle._edge(ServerChange(None, "nodeclaims", "c", before, after))
    return any(one.startswith(f"the {what} of c went") for one in oracle.wrong)


def test_every_edge_is_of_states_that_there_are() -> None:
    assert {state for edge in CLAIM_EDGES for state in edge} <= CLAIMS.keys()
    assert {state for edge in COMMAND_EDGES for state in edge} <= COMMANDS.keys()


def test_an_edge_that_no_interleaving_goes_along_is_a_failure_where_many_are_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Counter({" | ".join(("edge", what, *edge)): 1 for what, table in jobs.TABLES.items() for edge in table})
    counts["played"] = jobs.MANY

    def rc() -> int:
        monkeypatch.setattr(jobs, "_shared", lambda *_: (counts, 0))
        return jobs.main(["--jobs", "1"])

    for old, new in SELDOM:
        counts.update(
            {f"edge | {what} | {old} | {new}": -1 for what, table in jobs.TABLES.items() if (old, new) in table}
        )
    assert rc() == 0
    del counts["edge | NodeClaim | created | launched"]
    assert rc() == 1
    assert "no interleaving went along the edge of the NodeClaim: created -> launched" in capsys.readouterr().out
    counts["played"] -= 1
    assert rc() == 0, "too few to tell"


def names() -> tuple[str, ...]:
    """Every mutant, as the program itself lists them."""
    listed = play("--help").stdout
    found = " ".join(listed.split()).partition("--mutant {")[2].partition("}")[0]
    return tuple(found.split(","))


def is_caught(mutant: str) -> bool:
    """By some fleet, or by one whose nodes go together only, or that has gangs."""
    looks = (("--seeds", f"0:{THIN}", "--thin"), ("--seeds", f"0:{THIN}", "--gangs"), ("--seeds", f"0:{MOST}"))
    return any(play(*look, "--mutant", mutant).returncode == 0 for look in looks)


def test_every_mutant_changes_something_that_is_there() -> None:
    """In a process of its own, for it breaks what it touches."""
    every = "from tests.interleaving.mutants import MUTANTS\nfor mutate in MUTANTS.values(): mutate()"
    made = subprocess.run([sys.executable, "-c", every], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


@pytest.mark.bench
@pytest.mark.timeout(7200)
def test_every_mutant_is_caught() -> None:
    mutants = names()
    assert len(mutants) >= 20
    assert [one for one in mutants if not is_caught(one)] == []
