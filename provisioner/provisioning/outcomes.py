"""What became of a run's plan: what is launched, what limits hold back, and which pods got nothing. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import msgspec

from provisioner.apis.gangs import group_of
from provisioner.apis.launch_sets import LaunchSet
from provisioner.buffers.virtual_pods import is_virtual
from provisioner.nodeclaims.growth_limits import GrowthLimit, HeldBackError
from provisioner.scheduling.reasons import GroupHeldBack
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.message import Said


@dataclass(frozen=True, slots=True)
class Batch:
    """What one run did, for logs, metrics and tests."""

    pods: int
    claims: int
    existing: int
    unplaced: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class ClaimHeldBack:
    """A planned NodeClaim that a growth limit does not allow now, and the sets that it is of."""

    planned: PlannedClaim
    error: HeldBackError
    sets: tuple[LaunchSet, ...]

    @property
    def is_dear(self) -> bool:
        """A cheaper one would be allowed, if there is one."""
        return self.error.held.limit is GrowthLimit.USD and not self.error.held.unpriced

    @property
    def why(self) -> str:
        """Why its pods get no node from it."""
        text = Said(f'Failed to schedule pod, NodePool "{self.planned.pool}": {self.error}')
        if not self.sets or self.error.held.nodes == 1:
            return text
        one = max(self.sets, key=lambda one: one.nodes)
        return f"{text}; {GroupHeldBack(one.group, one.nodes)}"

    def without(self, uids: Collection[str]) -> "ClaimHeldBack | None":
        """The same for its other pods; None where it was for these alone."""
        rest = self.planned.without(uids)
        return None if rest is None else replace(self, planned=rest)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of the answers of a run.

    Attributes:
        result: of all questions; each pod is where it was placed last.
        held: what of it is not launched now.
        is_late: there was no time for some of the pods.
    """

    result: Result
    held: tuple[ClaimHeldBack, ...] = ()
    is_late: bool = False

    def then(self, more: "BatchOutcome | None") -> "BatchOutcome":
        """Both; pods for which the later one, if there is one, has a place are held back no longer."""
        if more is None:
            return self
        placed = {pod.uid for pod in more.result.placed}
        held = [rest for one in self.held if (rest := one.without(placed)) is not None]
        return BatchOutcome(self.result.joined(more.result), (*held, *more.held), self.is_late or more.is_late)

    @property
    def dear_pods(self) -> frozenset[str]:
        """UIDs of the pods whose nodes cost too much."""
        return frozenset([pod.uid for one in self.held if one.is_dear for pod in one.planned.pods])

    @property
    def unserved(self) -> frozenset[str]:
        """UIDs of the pods that got nothing: without a place, or held back, or with room for which their group does not come whole."""
        uids = {one.pod.uid for one in self.result.unplaced}
        uids.update([pod.uid for one in self.held for pod in one.planned.pods])
        if cut := {one.group for each in self.held for one in each.sets}:
            uids.update([pod.uid for pods in self.result.existing.values() for pod in pods if group_of(pod) in cut])
        return frozenset(uids)

    def batch(self, pods: int) -> Batch:
        """In figures, for so many pods."""
        result = self.result
        placed = sum(map(len, result.existing.values()))
        return Batch(pods, len(result.claims), placed, len(result.unplaced), result.usd_per_hour)


def of_real_pods(result: Result) -> tuple[Result, frozenset[int]]:
    """A result without virtual pods, and the numbers of the claims that had some.

    Claims for virtual pods alone stay, planned for no pod by name; virtual pods without a place are not told.
    """
    claims = tuple(
        msgspec.structs.replace(one, pods=tuple(pod for pod in one.pods if not is_virtual(pod)))
        for one in result.claims
    )
    for_virtual = frozenset(
        number for number, one in enumerate(claims) if len(one.pods) < len(result.claims[number].pods)
    )
    existing = {
        name: real for name, pods in result.existing.items() if (real := tuple(p for p in pods if not is_virtual(p)))
    }
    unplaced = tuple(one for one in result.unplaced if not is_virtual(one.pod))
    return replace(result, claims=claims, existing=existing, unplaced=unplaced), for_virtual
