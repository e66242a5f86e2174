"""What scheduling answers: nodes to make, places on existing nodes, and a reason for every pod without one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from provisioner.apis.pods import Pod
from provisioner.scheduling.reasons import NOT_TRIED, Reason
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources

T_co = TypeVar("T_co", covariant=True)

MAX_INSTANCE_TYPES = 600
"""Most instance types that one NodeClaim names. Source: core spec 3.7."""


class LaunchReason(msgspec.Struct, frozen=True, gc=False):
    """Why an offering was planned: it is the cheapest of the instance types that are left once each of the others is refused.

    Every instance type of the NodePool is either left or counted under the first of these that refuses it; claims that are
    alike share one value.

    Attributes:
        considered: instance types that the provider has for the NodePool.
        not_offered: do not meet the NodePool's own requirements, or have no available offering, or its daemons overflow them.
        incompatible: do not meet what the pods ask for (selectors, affinity, zones that are settled, ports, a reservation).
        too_small: cannot hold the pods together.
        over_limits: exceed the claim's share of what the NodePool's limits leave.
        min_values: (label, distinct values) that the list of types offers because the NodePool's minValues say so; where they were
            relaxed, what they were relaxed to.
    """

    considered: int
    not_offered: int
    incompatible: int
    too_small: int
    over_limits: int = 0
    min_values: tuple[tuple[str, int], ...] = ()

    @property
    def left(self) -> int:
        """How many instance types the planned offering is the cheapest of."""
        refused = self.not_offered + self.incompatible + self.too_small + self.over_limits
        return self.considered - refused

    def __str__(self) -> str:
        refused = [
            f"{count} {text}"
            for count, text in (
                (self.not_offered, "not offered by the NodePool"),
                (self.incompatible, "incompatible with the pods"),
                (self.too_small, "too small"),
                (self.over_limits, "over the limits of the NodePool"),
            )
            if count
        ]
        text = f"cheapest of {self.left} instance types"
        if self.min_values:
            text += " that keep minValues " + ", ".join(f"{key}: {count}" for key, count in self.min_values)
        return f"{text}; {self.considered - self.left} refused: {', '.join(refused)}" if refused else text


class PlannedClaim(msgspec.Struct, frozen=True, gc=False):
    """A node to make.

    Attributes:
        pool: the NodePool's name.
        template: the pool's, untouched.
        requirements: of the NodeClaim: the pool's, narrowed by the pods; at most 600 instance types by name, and the
            capacity types that can be had.
        labels: what the Node gets besides the labels of its type and offering, one value each; mostly custom labels.
        requests: the pods' and the least that the daemons of any named type need.
        pods: what it is made for, in the order they were placed.
        instance_types: every type that fits all pods and the claim's share of the pool's limits, cheapest first.
        planned_type, planned_zone, planned_capacity_type: the cheapest offering; ties by type, zone, capacity type.
        usd_per_hour: what its launch is expected to cost (`expected_price`): the price of that offering, at spot more.
        capacity: the planned type's.
        allocatable: the planned type's.
        charge: what the pool's limits were charged with, by limited resource: the planned type's capacity; where the
            pool has minValues, the most of the types that serve them. Empty without limits.
        min_values_relaxed: the pool's minValues could not be kept and `requirements` ask for less (BestEffort); goes into
            the annotation `names.MIN_VALUES_RELAXED`.
        reservations: the reservations held for it, sorted; then `requirements` allow reserved capacity only.
        prices: of each of `instance_types`, in their order, the cheapest offering under `requirements` in USD per hour: the prices
            that were compared. Claims that are alike share one tuple.
        reason: why that offering was planned; None for a claim that no solver planned.
    """

    pool: str
    template: object
    requirements: Requirements
    labels: Mapping[str, str]
    requests: Resources
    pods: tuple[Pod, ...]
    instance_types: tuple[str, ...]
    planned_type: str
    planned_zone: str
    planned_capacity_type: str
    usd_per_hour: float
    capacity: Resources
    allocatable: Resources
    charge: Resources
    min_values_relaxed: bool = False
    reservations: tuple[str, ...] = ()
    prices: tuple[float, ...] = ()
    reason: LaunchReason | None = None

    def without(self, uids: Collection[str]) -> "PlannedClaim | None":
        """The same for its other pods; None where it was for these alone."""
        rest = tuple([pod for pod in self.pods if pod.uid not in uids])
        if len(rest) == len(self.pods):
            return self
        return msgspec.structs.replace(self, pods=rest) if rest else None

    def __repr__(self) -> str:
        return (
            f"<claim of {self.pool}: {len(self.pods)} pods on {self.planned_type} in {self.planned_zone} "
            f"({self.planned_capacity_type}), {self.usd_per_hour:g} $/h, {len(self.instance_types)} types>"
        )


class Later(Generic[T_co]):
    """A value that is found when it is first asked for; whoever finds it is forgotten then."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], T_co]) -> None:
        self._find: Callable[[], T_co] | None = find

    @property
    def value(self) -> T_co:
        """Found at the first time."""
        if (find := self._find) is not None:
            self._found = find()
            self._find = None
        return self._found


class Unplaced(msgspec.Struct, frozen=True, gc=False):
    """A pod that got no place.

    Attributes:
        why: its reasons, or who finds them.
    """

    pod: Pod
    why: Later[tuple[Reason, ...]] | tuple[Reason, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every constraint that binds: one for all existing nodes, one for each pool. Equal pods share one tuple."""
        why = self.why
        return why if isinstance(why, tuple) else why.value

    @property
    def is_tried(self) -> bool:
        """Whether there was time for it. Finds no reasons."""
        return not isinstance(self.why, tuple) or NOT_TRIED not in self.why

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons))


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one problem; every pod of the problem is in exactly one of the three.

    Legal means: there is an order in which kube-scheduler would bind every pod where it is put, and once all are
    bound each pod's own required terms (spread, affinity, anti-affinity) still hold, nodes to come included. The one
    exception: a pod may still raise the count of a domain above another pod's maxSkew where it has no other place.
    A claim whose zone matters to any of its pods says that zone in its requirements.

    Attributes:
        claims: nodes to make, in the order they were opened.
        existing: pods by name of the bin that takes them, in the bins' order; bins that take none are absent.
        unplaced: by priority, size and class, as they were tried.
        bound: what is known of the least price, or who finds it; see `usd_at_least`.
    """

    claims: tuple[PlannedClaim, ...]
    existing: Mapping[str, tuple[Pod, ...]]
    unplaced: tuple[Unplaced, ...]
    bound: Later[float | None] | float | None = field(default=None, compare=False, repr=False)

    @property
    def usd_at_least(self) -> float | None:
        """Proved: every legal answer that places the pods that this one places pays at least so much for new nodes; None where
        not known. USD per hour. Cost: some milliseconds the first time, see `lower_bound.usd_at_least`.
        """
        bound = self.bound
        return bound.value if isinstance(bound, Later) else bound

    @property
    def usd_per_hour(self) -> float:
        """Price of all planned nodes together."""
        return sum(claim.usd_per_hour for claim in self.claims)

    def gap(self, usd_at_least: float | None) -> float | None:
        """How much dearer than a bound, as a fraction of it; None without a bound above 0."""
        return max(0.0, self.usd_per_hour / usd_at_least - 1) if usd_at_least else None

    @property
    def placed(self) -> tuple[Pod, ...]:
        """The pods that have a place: those of the claims, then those on existing nodes."""
        groups = (*(claim.pods for claim in self.claims), *self.existing.values())
        return tuple([pod for some in groups for pod in some])

    def in_order(self, first: Collection[str]) -> list[tuple[int, PlannedClaim]]:
        """Its new nodes as they are created, those for pods of `first` before others, each with its place in `claims`."""
        return sorted(enumerate(self.claims), key=lambda one: all(pod.uid not in first for pod in one[1].pods))

    @property
    def is_late(self) -> bool:
        """Whether there was no time for some of the pods."""
        return not all(one.is_tried for one in self.unplaced)

    def joined(self, later: "Result") -> "Result":
        """Both; pods that a later plan has a place for are there and nowhere else."""
        placed = {pod.uid for pod in later.placed}
        known = {pod.uid for pod in (*self.placed, *(one.pod for one in self.unplaced))}
        more = tuple([one for one in later.unplaced if one.pod.uid not in known])
        if not placed and not more:
            return self
        existing = dict(self.existing)
        for name, pods in later.existing.items():
            existing[name] = (*existing.get(name, ()), *pods)
        rest = (one.without(placed) for one in self.claims)
        left = (one for one in self.unplaced if one.pod.uid not in placed)
        return Result((*(one for one in rest if one is not None), *later.claims), existing, (*left, *more))

    def __repr__(self) -> str:
        placed = sum(map(len, self.existing.values()))
        return f"<{len(self.claims)} claims, {placed} pods on existing nodes, {len(self.unplaced)} unplaced>"
