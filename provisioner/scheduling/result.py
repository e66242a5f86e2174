"""What scheduling answers: machines to make, places on machines of now, and a reason for every pod without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from provisioner.apis.pods import Pod
from provisioner.scheduling.reasons import Reason
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources

MAX_INSTANCE_TYPES = 600
"""Most instance types that one NodeClaim names. Source: core spec 3.7."""


class PlannedClaim(msgspec.Struct, frozen=True, gc=False):
    """A machine to make.

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
        usd_per_hour: its price.
        capacity: the planned type's.
        allocatable: the planned type's.
        charge: what the pool's limits were charged with, by limited resource: the planned type's capacity; where the
            pool has minValues, the most of the types that serve them. Empty without limits.
        min_values_relaxed: the pool's minValues could not be kept and `requirements` ask for less (BestEffort); goes into
            the annotation `names.MIN_VALUES_RELAXED`.
        reservations: the reservations held for it, sorted; then `requirements` allow reserved capacity only.
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

    def __repr__(self) -> str:
        return (
            f"<claim of {self.pool}: {len(self.pods)} pods on {self.planned_type} in {self.planned_zone} "
            f"({self.planned_capacity_type}), {self.usd_per_hour:g} $/h, {len(self.instance_types)} types>"
        )


class Explains(Protocol):
    """Knows why pods were left."""

    def reasons(self, one: Any, /) -> tuple[Reason, ...]:
        """Every constraint that keeps one more pod of a class out."""


class Why:
    """Why equal pods got no place, found when it is first asked for."""

    __slots__ = ("_about", "_explainer", "_found")

    def __init__(self, explainer: Explains, about: object) -> None:
        self._explainer: Final = explainer
        self._about: Final = about
        self._found: tuple[Reason, ...] | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every constraint that binds."""
        if self._found is None:
            self._found = self._explainer.reasons(self._about)
        return self._found

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (self.reasons,)


class Unplaced(msgspec.Struct, frozen=True, gc=False):
    """A pod that got no place.

    Attributes:
        pod: it.
        why: its reasons, or who finds them.
    """

    pod: Pod
    why: Why | tuple[Reason, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every constraint that binds: one for all machines of now, one for each pool. Equal pods share one tuple."""
        why = self.why
        return why if isinstance(why, tuple) else why.reasons

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons))


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one problem; every pod of the problem is in exactly one of the three.

    Legal means: there is an order in which kube-scheduler 1.36 would bind every pod where it is put, and once all are
    bound each pod's own required terms (spread, affinity, anti-affinity) still hold, machines to come included. The one
    exception: a pod may still raise the count of a domain above another pod's maxSkew where it has no other place.
    A claim whose zone matters to any of its pods says that zone in its requirements.

    Attributes:
        claims: machines to make, in the order they were opened.
        existing: pods by name of the bin that takes them, in the bins' order; bins that take none are absent.
        unplaced: by priority, size and class, as they were tried.
    """

    claims: tuple[PlannedClaim, ...]
    existing: Mapping[str, tuple[Pod, ...]]
    unplaced: tuple[Unplaced, ...]

    @property
    def usd_per_hour(self) -> float:
        """Price of all planned machines together."""
        return sum(claim.usd_per_hour for claim in self.claims)

    def __repr__(self) -> str:
        placed = sum(map(len, self.existing.values()))
        return f"<{len(self.claims)} claims, {placed} pods on machines of now, {len(self.unplaced)} unplaced>"
