"""The plan table behind its lock: reflectors feed it, the verbs read it, and it says when it may be out of date."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from extender import metrics
from extender.facts import ClaimFacts, ExtenderNode, FamilyMember, Timeline
from extender.plan import NodeArrival, PlanTable
from extender.refusals import Refusals
from extender.vetoes import Vetoes
from provisioner.kube.lag import BEHIND_SECONDS
from provisioner.support import logs
from provisioner.support.clock import Clock

MAX_OUTAGE_SECONDS: Final = 5.0
MAX_SILENCE_SECONDS: Final = 120.0
"""Servers send a bookmark about once a minute, and a reflector opens its watch anew after 70 s without one."""

UNKNOWN_NODE_SECONDS: Final = 0.020
LOCK_SECONDS: Final = 0.25
"""How long a question waits for the table; whoever has it needs a millisecond."""
_MAX_AWAITED: Final = 10_000

_log = logs.get_logger(__name__)


class TableBusyError(Exception):
    """The table could not be had in time; nothing is known then."""


class PlanSource(Protocol):
    """What freshness is judged by; a Reflector."""

    @property
    def synced(self) -> threading.Event: ...

    @property
    def error(self) -> Exception | None: ...

    def staleness(self) -> float: ...

    def lag(self) -> float: ...


class Board:
    """See the module.

    Args:
        clock: for deadlines and outages.

    Attributes:
        lock: guards `table`, `refusals` and `vetoes`; also notified whenever a node becomes known.
        table: the plan table.
        refusals: what was refused, until it is released.
        vetoes: preemptions that were put off.
        timeline: what instants of objects are on this clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.Condition()
        self.table = PlanTable()
        self.refusals = Refusals()
        self.vetoes = Vetoes()
        self.clock = clock
        self.timeline = Timeline(clock.now(), clock.monotonic())
        self._sources: tuple[PlanSource, ...] = ()
        self._down_since: dict[int, float] = {}
        self._awaited: set[str] = set()
        self._problems: dict[tuple[str, str], str] = {}

    # ---------------------------------------------------------------- freshness

    def depend_on(self, sources: Iterable[PlanSource]) -> None:
        """From now on what these reflectors have is what we know."""
        self._sources = tuple(sources)

    def problem(self) -> str:
        """Why what we know may be out of date, "" while it is not; then and only then may a node be refused."""
        if not self._sources:
            return "the watches have not been started"
        now = self.clock.monotonic()
        for position, source in enumerate(self._sources):
            if not source.synced.is_set():
                return f"{source!r} has not synced"
            if source.error is None:
                self._down_since.pop(position, None)
            elif now - self._down_since.setdefault(position, now) > MAX_OUTAGE_SECONDS:
                return f"{source!r} is interrupted"
            if source.staleness() > MAX_SILENCE_SECONDS:
                return f"{source!r} receives nothing"
            if source.lag() > BEHIND_SECONDS:
                return f"{source!r} is behind the API server"
        return ""

    # ------------------------------------------------------------------- events

    def pod_changed(self, old: FamilyMember | None, new: FamilyMember | None) -> None:
        """A pod was added, changed or removed."""
        with self.lock:
            if new is not None:
                self.table.set_pod(new)
            elif old is not None:
                self.table.drop_pod(old.uid)

    def node_changed(self, old: ExtenderNode | None, new: ExtenderNode | None) -> None:
        """A node was added, changed or removed."""
        now = self.clock.monotonic()
        if new is not None:
            self._note("Node", new.name, new.problem)
            with self.lock:
                known = new.name in self.table.nodes
                self.table.set_node(new, now)
                if not known:
                    self.lock.notify_all()
        elif old is not None:
            self._note("Node", old.name, "")
            with self.lock:
                self.table.drop_node(old.name, now)
                self._awaited.discard(old.name)

    def claim_changed(self, old: ClaimFacts | None, new: ClaimFacts | None) -> None:
        """A NodeClaim was added, changed or removed."""
        if new is not None:
            self._note("NodeClaim", new.name, new.problem)
            with self.lock:
                self.table.set_claim(new, self.clock.monotonic())
        elif old is not None:
            self._note("NodeClaim", old.name, "")
            with self.lock:
                self.table.drop_claim(old.name)

    def _note(self, kind: str, name: str, problem: str) -> None:
        """Tell of a new problem of an object once. Called by one thread for each kind."""
        if self._problems.get((kind, name), "") == problem:
            return
        if problem:
            self._problems[kind, name] = problem
            metrics.BAD_OBJECTS.labels(kind).inc()
            _log.warning("Ignored an unreadable part of an object", kind=kind, object=name, problem=problem)
        else:
            self._problems.pop((kind, name), None)

    # ---------------------------------------------------------------- questions

    @contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Have the table, for a short while.

        Raises:
            TableBusyError: somebody else had it for `seconds`.
        """
        if not self.lock.acquire(timeout=seconds):
            raise TableBusyError(f"the plan table was locked for {seconds:g} s")
        try:
            yield
        finally:
            self.lock.release()

    def await_nodes(self, names: Iterable[str]) -> None:
        """Wait a moment for nodes that kube-scheduler knows and we do not; not twice for the same name.

        kube-scheduler's watch may be milliseconds ahead of ours, and a node to come may have a plan. At most
        `UNKNOWN_NODE_SECONDS`.
        """
        with self.lock:
            unknown = self.awaitable(names)
            if not unknown:
                return
            known = self.lock.wait_for(lambda: not self.table.nodes.unknown(unknown), UNKNOWN_NODE_SECONDS)
            if not known:
                if len(self._awaited) > _MAX_AWAITED:
                    self._awaited.clear()
                self._awaited.update(self.table.nodes.unknown(unknown))
        metrics.UNKNOWN_NODES.labels("known" if known else "passed").inc()

    def awaitable(self, names: Iterable[str]) -> list[str]:
        """The names that `await_nodes` would wait for. `lock` is held."""
        return [name for name in self.table.nodes.unknown(names) if name not in self._awaited]

    def await_node(self, plan: str) -> None:
        """Wait a moment for the Node of this plan; kube-scheduler's watch may be ahead of ours. `lock` is held."""
        self.lock.wait_for(lambda: self.table.arrival(plan) is not NodeArrival.LAUNCHED, UNKNOWN_NODE_SECONDS)
