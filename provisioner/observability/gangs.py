"""Says of gangs (`apis.gangs`) how many are how far, what those cost that wait, and which wait for pods that do not come."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from provisioner.apis.gangs import told
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.gangs import what_lacks
from provisioner.kube.events import Recorder
from provisioner.runtime import metrics
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.runtime.object_reference import tell_gang
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from provisioner.state.cluster import Cluster
from provisioner.state.gang_places import ComingGang, GangStanding, GangState
from provisioner.support.clock import Clock
from provisioner.values.message import EventMessage

POLL_SECONDS: Final = 5.0
INCOMPLETE_SECONDS: Final = 300.0
"""For so long a gang lacks something before that is told in an event."""
MOST_TOLD: Final = 5
"""Gangs that lack something and are told in one look: as many as the limit of their events (`kube.events`) allows for good, two of each."""
_TOLD: Final = float("inf")
_LACKING: Final = frozenset({GangState.UNKNOWN, GangState.INCOMPLETE, GangState.GATED, GangState.CONTRADICTION})


def counts(standings: Iterable[GangStanding]) -> Counter[tuple[str, str]]:
    """How many gangs of a source (first) are in a state (second). Pure."""
    return Counter([(one.source.value, one.state.value) for one in standings])


def usd_waiting(
    coming: Iterable[ComingGang],
    standings: Iterable[GangStanding],
    types_of: Callable[[str], Mapping[str, InstanceType]],
) -> float:
    """What the instances cost, in USD per hour, that wait for other nodes of a gang that does not run. Each counts once. Pure.

    Args:
        coming: gangs that nodes come for.
        standings: of all gangs.
        types_of: of a NodePool, by name.
    """
    running = {one.group.key for one in standings if one.state is GangState.RUNNING}
    nodes = [one for gang in coming if gang.group not in running for one in gang.nodes]
    paid = {one.claim.name: one.claim for one in nodes if one.launched}
    return sum([usd_per_hour(claim, types_of(claim.pool)) for claim in paid.values()])


def in_turn(due: Mapping[str, float], told_in: Mapping[str, float]) -> list[str]:
    """The gang of each namespace that was due first, then the second of each, and so on; namespaces in which one was told come last. Pure.

    Args:
        due: by key, since when it is to be told.
        told_in: by namespace, when one was told last.
    """
    turns, ranked = Counter[str](), []
    for at, key in sorted([(at, key) for key, at in due.items()]):
        space = _namespace(key)
        turns[space] += 1
        ranked.append((turns[space], told_in.get(space, float("-inf")), at, key))
    return [key for *_, key in sorted(ranked)]


def _namespace(key: str) -> str:
    return key.partition("/")[0]


class GangObserver:
    """Looks at all gangs every few seconds. One thread.

    What is told of a gang that lacks something is told once. Whoever leads next knows nothing of that, so of what it finds when it begins to look
    only gangs are told whose first pod is younger than that.
    """

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        clock: Clock,
        types_of: Callable[[str], Mapping[str, InstanceType]],
    ) -> None:
        self._cluster, self._recorder, self._clock, self._types_of = cluster, recorder, clock, types_of
        self._lacking: dict[str, float] = {}  # key -> when it is told; infinite where it was
        self._told_in: dict[
            str, float
        ] = {}  # by namespace, when a gang was last told; of those in which others are due
        self._unread: frozenset[str] | None = None  # keys of which nobody knew in the last look; None before the first

    def begin(self) -> None:
        """What came to be before this term was measured by others."""
        self._cluster.gangs_scheduled()

    def poll(self) -> float:
        """Look once; seconds until the next look."""
        coming, standings = self._cluster.gangs_coming(), self._cluster.gang_standings()
        metrics.gangs(counts(standings), usd_waiting(coming, standings, self._types_of))
        for seconds in self._cluster.gangs_scheduled():
            metrics.GANG_READY.observe(seconds)
        self._tell_lacking([one for one in standings if one.state in _LACKING])
        self._unread = frozenset([one.group.key for one in standings if one.state is GangState.UNREAD])
        return POLL_SECONDS

    def _tell_lacking(self, standings: Iterable[GangStanding]) -> None:
        now, before = self._clock.monotonic(), self._lacking
        self._lacking = {}
        groups = {one.group.key: one.group for one in standings}
        for key in groups:
            if (due := before.get(key)) is None:
                found = self._unread is None or key in self._unread
                due = self._first_due(key, now) if found else now + INCOMPLETE_SECONDS
            self._lacking[key] = due
        overdue = {key: due for key, due in self._lacking.items() if due <= now}
        spaces = {*map(_namespace, overdue)}
        self._told_in = {space: at for space, at in self._told_in.items() if space in spaces}
        for key in in_turn(overdue, self._told_in)[:MOST_TOLD]:
            tell_gang(
                self._recorder,
                self._cluster,
                key,
                EventMessage(
                    "Normal",
                    "GangIncomplete",
                    f"No node is launched for the pods of {told(key)}, because it {what_lacks(groups[key])}",
                ),
            )
            self._lacking[key], self._told_in[_namespace(key)] = _TOLD, now

    def _first_due(self, key: str, now: float) -> float:
        """When a gang is told that another process may have told of."""
        _, pod = self._cluster.gang_told_of(key)
        age = (self._clock.now() - pod.created).total_seconds() if pod is not None else 0.0
        return now + INCOMPLETE_SECONDS - age if age < INCOMPLETE_SECONDS else _TOLD


def controllers(base: Base) -> list[Controller]:
    """Who looks at gangs."""
    observer = GangObserver(base.cluster, base.recorder, base.clock, base.caches.types_of)
    return [Controller(name="gangs", poll=observer.poll, initial=observer.begin)]
