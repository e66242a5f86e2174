"""What a simulated day came to: instances with their price and time, pods with their waiting, evictions with their reason."""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

SAMPLES: Final = 96
"""Points of the curve of a day, whatever its length."""
_HOUR: Final = 3600.0


@dataclass
class InstanceTime:
    """One instance. `end`: when it was terminated; None while it runs."""

    instance_type: str
    zone: str
    capacity_type: str
    pool: str
    usd_per_hour: float
    begin: float
    end: float | None = None

    def seconds(self, since: float, until: float) -> float:
        """For how long it ran between two instants."""
        return max(0.0, min(until, self.end if self.end is not None else until) - max(since, self.begin))


@dataclass(frozen=True, slots=True)
class Sample:
    """Between two instants, of which `at` is the later: means, but for `waiting`, which is at that instant."""

    at: float
    usd_per_hour: float
    nodes: float
    waiting: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What is told of one run.

    Attributes:
        pods: that were created, replacements included.
        unbound: that had no node when the day ended, which count with the time that they have waited.
        wait_p50, wait_p99: seconds from the creation of a pod to its binding; 0 without pods.
        evictions: by the reason for which their node went; what ends by itself is none.
        interruptions: of instances, whose notice has ended.
        interrupted_pods: that were on them and somebody makes again, those left out that ended or were not wanted any more.
        again_in_time: of those, such as ran elsewhere before the notice ended.
        refused: offerings that a launch asked for in vain.
        launched: instances by type.
        by_pool: USD by NodePool.
        passes: rounds of periodic controllers that were made.
        requests: of the controllers that changed something.
        searches: of the planning processes for cheaper nodes.
        notes: what to know of the run, as sentences.
    """

    seed: int
    usd: float
    node_hours: float
    most_nodes: int
    launches: int
    pods: int
    unbound: int
    wait_p50: float
    wait_p99: float
    evictions: dict[str, int]
    interruptions: int
    interrupted_pods: int
    again_in_time: int
    refused: int
    launched: dict[str, int]
    by_pool: dict[str, float]
    passes: int
    requests: int
    searches: int
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()

    @property
    def share_in_time(self) -> float:
        """Of the pods on interrupted instances, how many ran again before the notice ended; 1 of none."""
        return round(self.again_in_time / self.interrupted_pods, 4) if self.interrupted_pods else 1.0


def _seconds() -> "array[float]":
    return array("d")


@dataclass
class Ledger:
    """Is told of everything as it happens; instants are seconds since the day's start."""

    instances: dict[str, InstanceTime] = field(default_factory=dict)
    evictions: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    _interrupted: list[tuple[int, int]] = field(
        default_factory=list
    )  # of each instance: pods, and those that ran again in time
    _created: dict[str, float] = field(default_factory=dict)  # pods that wait, by UID
    _waits: "array[float]" = field(default_factory=_seconds)  # of every pod: 8 bytes each, where objects take a hundred
    _steps: "array[float]" = field(default_factory=_seconds)  # instants at which another number waits,
    _waiting: "array[float]" = field(default_factory=_seconds)  # and that number
    _pods: int = 0

    def pod_created(self, uid: str, at: float) -> None:
        """A pod wants a node."""
        self._pods += 1
        self._created[uid] = at
        self._step(at)

    def pod_bound(self, uid: str, at: float) -> None:
        """It has one."""
        if (since := self._created.pop(uid, None)) is not None:
            self._waits.append(at - since)
            self._step(at)

    def pod_gone(self, uid: str, at: float) -> None:
        """It was deleted; where it still waited, nobody does any more."""
        if self._created.pop(uid, None) is not None:
            self._step(at)

    def _step(self, at: float) -> None:
        self._steps.append(at)
        self._waiting.append(len(self._created))

    def interrupted(self, pods: int, again: int) -> None:
        """The notice of an instance has ended: it had so many pods, of which so many run again."""
        self._interrupted.append((pods, again))

    def figures(self, seed: int, end: float, passes: int, requests: int, searches: int) -> Figures:
        """Count up, at the end of the day."""
        every = sorted(self.instances.items())
        hours = {key: one.seconds(0.0, end) / _HOUR for key, one in every}
        by_pool: dict[str, float] = {}
        for key, one in every:
            by_pool[one.pool] = by_pool.get(one.pool, 0.0) + hours[key] * one.usd_per_hour
        waits = sorted([*self._waits, *(end - since for since in self._created.values())])
        return Figures(
            seed=seed,
            usd=round(sum(by_pool.values()), 4),
            node_hours=round(sum(hours.values()), 4),
            most_nodes=self._most_nodes(),
            launches=len(every),
            pods=self._pods,
            unbound=len(self._created),
            wait_p50=round(_percentile(waits, 0.5), 3),
            wait_p99=round(_percentile(waits, 0.99), 3),
            evictions=dict(sorted(self.evictions.items())),
            interruptions=len(self._interrupted),
            interrupted_pods=sum(pods for pods, _ in self._interrupted),
            again_in_time=sum(again for _, again in self._interrupted),
            refused=self.refused,
            launched=dict(sorted(Counter(one.instance_type for _, one in every).items())),
            by_pool={pool: round(usd, 4) for pool, usd in sorted(by_pool.items())},
            passes=passes,
            requests=requests,
            searches=searches,
            samples=self._samples([one for _, one in every], end),
        )

    def _most_nodes(self) -> int:
        steps = [(one.begin, 1) for one in self.instances.values()]
        steps += [(one.end, -1) for one in self.instances.values() if one.end is not None]
        most = now = 0
        for _, step in sorted(steps):
            now += step
            most = max(most, now)
        return most

    def _samples(self, instances: list[InstanceTime], end: float) -> tuple[Sample, ...]:
        width, found, number = end / SAMPLES, [], 0
        waiting = 0
        for sample in range(SAMPLES):
            since, until = sample * width, (sample + 1) * width
            shares = [(one.seconds(since, until) / width, one.usd_per_hour) for one in instances if one.begin < until]
            while number < len(self._steps) and self._steps[number] <= until:
                waiting, number = int(self._waiting[number]), number + 1
            usd, nodes = sum(share * usd for share, usd in shares), sum(share for share, _ in shares)
            found.append(Sample(round(until, 3), round(usd, 4), round(nodes, 3), waiting))
        return tuple(found)


def _percentile(ordered: list[float], share: float) -> float:
    """The least of these that so many are not above; 0 of none."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0
