"""One pass of consolidation after 1 % of the pods have ended, in questions to scheduling and calls of Python functions; `make bench` keeps results/incremental.json.

1,000 nodes on which consolidation has found nothing more. The pass is made by who made the earlier ones, and by who knows nothing of them: both decide
alike, and the ratio of their calls says what is kept. Seconds are those of the latter, for calls are counted while the others run. `NODES=5000` for other
sizes.
"""

import cProfile
import os
import pstats
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.disruption.methods import consolidation
from provisioner.disruption.simulation.foresight import Play
from provisioner.disruption.simulation.simulator import Simulation, SimulationAnswer
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.world import bin_of
from provisioner.support.garbage import collect_seldom
from provisioner.values.resources import Resources
from tests.bench.bench_disruption import a_fleet

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
NODES = int(os.environ.get("NODES", "1000"))
SHARE = 0.01
PASSES = 8
MOST_ASKED = 0.9
"""Questions for each node; 2.1 where sizes alone prove that a node need not be asked about."""
MOST_CALLS = 8_000
"""Calls for each node, of 6,800; 13,700 where each Deployment's spread is asked about by itself, and each question counts anew who runs where."""


def ended(play: Play, share: float) -> None:
    """So many pods have ended."""
    snapshot, chance = play.view.snapshot, random.Random(5)
    pods = [pod.uid for node in snapshot.nodes for pod in node.pods]
    gone, nodes, changes = set(chance.sample(pods, int(share * len(pods)))), [], {}
    for node in snapshot.nodes:
        stay = tuple(pod for pod in node.pods if pod.uid not in gone)
        if len(stay) < len(node.pods):
            used = Resources.total(pod.shape.requests for pod in stay)
            node = replace(node, pods=stay, used=used, room=node.allocatable - used)  # noqa: PLW2901
            changes[str(node.key)] = bin_of(node)
        nodes.append(node)
    play.prepared = play.prepared.updated(Changes(bins=changes))
    play.view = replace(play.view, snapshot=replace(snapshot, nodes=tuple(nodes)), prepared=play.prepared)


def afresh(view: DisruptionView) -> DisruptionView:
    """The same as somebody sees it who has kept nothing."""
    assert view.prepared is not None
    nodes = tuple(replace(one) for one in view.snapshot.nodes)
    bins = tuple(replace(one) for one in view.prepared.world.bins)
    prepared = prepare(replace(view.prepared.world, bins=bins))
    return replace(view, snapshot=replace(view.snapshot, nodes=nodes), prepared=prepared)


def calls_of(profile: cProfile.Profile) -> int:
    """Of Python functions."""
    return sum(calls for calls, *_ in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]


def test_a_pass_after_a_small_change(monkeypatch: pytest.MonkeyPatch) -> None:
    collect_seldom()
    asked = 0
    ask = Simulation.ask

    def counted(*args: object, **more: object) -> SimulationAnswer:
        nonlocal asked
        asked += 1
        return ask(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Simulation, "ask", counted)

    def made(view: DisruptionView) -> tuple[MethodAnswer, int, int]:
        before, profile = asked, cProfile.Profile(builtins=False)
        answer = profile.runcall(consolidation.propose, view)
        return answer, asked - before, calls_of(profile)

    def timed(view: DisruptionView) -> float:
        started = time.process_time()
        consolidation.propose(view)
        return time.process_time() - started

    view = a_fleet(NODES // 200, 5).view()
    assert view.prepared is not None
    play = Play(view, view.prepared)
    for _ in range(PASSES):
        if not (proposals := consolidation.propose(play.view).proposals):
            break
        play.carry_out(proposals)
    settled = made(play.view)
    ended(play, SHARE)
    fresh, another = afresh(play.view), afresh(play.view)
    kept, new = made(play.view), made(fresh)
    assert kept[0].proposals == new[0].proposals
    nodes = len(play.view.snapshot.nodes)
    figures = [
        Figure("nodes", nodes, "nodes"),
        Figure("settled: questions", settled[1], "questions"),
        Figure("settled: calls", settled[2], "calls"),
        Figure("1 % ended: moves", len(kept[0].proposals), "moves"),
        Figure("1 % ended: questions", kept[1], "questions", at_most(MOST_ASKED * nodes)),
        Figure("1 % ended: calls", kept[2], "calls", at_most(MOST_CALLS * nodes)),
        Figure("1 % ended: calls by those of a pass that knows nothing", kept[2] / new[2], "", at_most(1.0)),
        Figure("1 % ended: pass that knows nothing", timed(another), "s"),
    ]
    for one in figures:
        print(one.line(), flush=True)
    write(RESULTS, "incremental", figures)
    missed = [one.line() for one in figures if one.met is False]
    assert not missed, "\n".join(missed)
