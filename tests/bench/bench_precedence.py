"""How much of the interpreter a batch has while a pass of consolidation runs, in CPU seconds of one process; `make bench` keeps results/precedence.json.

A thread makes passes over 500 nodes, another plans batches of pods that need new nodes, in turns as they go first and as they do not. Whoever has all of
the interpreter has used all of the CPU time that the process has used meanwhile; two that share it have half each.
"""

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from provisioner.apis.pods import Pod
from provisioner.disruption.methods import consolidation
from provisioner.lab.harness.results import Figure, at_least, write
from provisioner.scheduling.prepared import prepare
from provisioner.support.clock import SystemClock
from provisioner.support.garbage import collect_seldom
from provisioner.support.precedence import LongWork, Precedence
from tests.bench.bench_disruption import CASES, a_fleet
from tests.support import loads
from tests.support.fleets import Fleet

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
BATCHES = 20
REST_SECONDS = 0.2
"""Between two batches; the pass works meanwhile."""


class Passes:
    """Passes one after another, in a thread of its own, which give way between two questions."""

    def __init__(self, fleet: Fleet, precedence: Precedence) -> None:
        self._view, self._precedence = fleet.view(), precedence
        self._over = threading.Event()
        self.waited = self.worked = 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            work = self._precedence.long_work()
            consolidation.propose(replace(self._view, expired=partial(self._is_over, work)))
            self.waited, self.worked = self.waited + work.waited, self.worked + work.worked

    def _is_over(self, work: LongWork) -> bool:
        work.give_way()
        return self._over.is_set()


def share_of_batches(fleet: Fleet, batch: list[Pod], precedence: Precedence, *, first: bool) -> tuple[float, Passes]:
    """What part of the CPU time of the process batches have had while they were planned, and the passes beside them."""
    own = whole = 0.0
    other = Precedence(SystemClock())  # of which no pass knows
    with Passes(fleet, precedence) as passes:
        for _ in range(BATCHES):
            time.sleep(REST_SECONDS)
            with (precedence if first else other).short_work():
                mine, all_ = time.thread_time(), time.process_time()
                prepare(fleet.prepared().world).solve(batch)
                own += time.thread_time() - mine
                whole += time.process_time() - all_
    return own / whole, passes


def test_a_batch_beside_a_pass() -> None:
    collect_seldom()
    name = next(iter(CASES))
    fleet, batch = a_fleet(*CASES[name]), list(loads.deployments(40, 25))
    shares, waited = {}, 0.0
    for first in (False, True):
        shares[first], passes = share_of_batches(fleet, batch, Precedence(SystemClock()), first=first)
        waited = passes.waited / (passes.waited + passes.worked)
    figures = [
        Figure("share of the interpreter of a batch beside a pass, as it comes", shares[False], ""),
        Figure("share of the interpreter of a batch beside a pass, which gives way", shares[True], "", at_least(0.8)),
        Figure("of the time of such passes, spent waiting", waited, ""),
    ]
    for figure in figures:
        print(figure.line(), flush=True)
    write(RESULTS, "precedence", figures)
    missed = [figure.line() for figure in figures if figure.met is False]
    assert not missed, "\n".join(missed)
