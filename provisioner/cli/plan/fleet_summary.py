"""A result as people ask about it: groups of equal nodes, what they cost, how full they are, and who got no place. Pure."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.reasons import as_told
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.resources import Resources

HOURS_A_MONTH: Final = 730
"""As in AWS' own price calculator."""
ANY_ZONE: Final = "any"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """New nodes of one NodePool that are bought alike.

    Attributes:
        zone: where they have to be, several with commas between; "any" where no pod and no NodePool says.
        count: how many nodes.
        usd_per_hour: of one.
        pods: on all of them.
        requested, allocatable: of all of them together; requests include those of DaemonSets.
        reason: why this instance type; of the first of them.
    """

    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    count: int
    usd_per_hour: float
    pods: int
    requested: Resources
    allocatable: Resources
    reason: str

    def share(self, resource: str) -> float:
        """How much of what the nodes have for pods is requested; 0 where they have nothing of it."""
        there = self.allocatable.get(resource, 0)
        return self.requested.get(resource, 0) / there if there > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """Pods without a place for the same reasons."""

    pods: tuple[Pod, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """What a result comes to.

    Attributes:
        groups: by what they cost together, dearest first.
        existing: by name of a node that is there, how many pods it takes.
        left: most pods first.
        usd_per_hour: of all new nodes.
    """

    groups: tuple[NodeGroup, ...]
    existing: tuple[tuple[str, int], ...]
    left: tuple[Left, ...]
    usd_per_hour: float

    @property
    def nodes(self) -> int:
        """New ones."""
        return sum(one.count for one in self.groups)

    @property
    def pods(self) -> int:
        """On new nodes."""
        return sum(one.pods for one in self.groups)


def fleet_of(result: Result) -> FleetSummary:
    """Summarise a result. Cost: O(claims + unplaced pods)."""
    alike: defaultdict[tuple[str, str, str, str, float], list[PlannedClaim]] = defaultdict(list)
    for claim in result.claims:
        key = claim.pool, claim.planned_type, zone_of(claim), claim.planned_capacity_type, claim.usd_per_hour
        alike[key].append(claim)
    groups = [_group(*key, claims) for key, claims in alike.items()]
    left: defaultdict[tuple[str, ...], list[Pod]] = defaultdict(list)
    texts: dict[int, tuple[str, ...]] = {}  # by identity: equal pods share their reasons
    for one in result.unplaced:
        reasons = one.reasons
        if id(reasons) not in texts:
            texts[id(reasons)] = tuple(map(str, as_told(reasons)))
        left[texts[id(reasons)]].append(one.pod)
    return FleetSummary(
        tuple(sorted(groups, key=lambda one: (-one.count * one.usd_per_hour, one.pool, one.instance_type, one.zone))),
        tuple(sorted((name, len(pods)) for name, pods in result.existing.items() if pods)),
        tuple(
            Left(tuple(sorted(pods, key=lambda pod: pod.key)), reasons)
            for reasons, pods in sorted(left.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        ),
        result.usd_per_hour,
    )


def zone_of(claim: PlannedClaim) -> str:
    """Where a node has to be, several zones with commas between; "any" where nothing says."""
    zones = claim.requirements.requirement(names.ZONE_LABEL)
    return ANY_ZONE if zones.complement else ",".join(sorted(zones.values)) or claim.planned_zone


def _group(
    pool: str, instance_type: str, zone: str, capacity_type: str, usd_per_hour: float, claims: list[PlannedClaim]
) -> NodeGroup:
    return NodeGroup(
        pool,
        instance_type,
        zone,
        capacity_type,
        len(claims),
        usd_per_hour,
        sum(len(one.pods) for one in claims),
        Resources.total(one.requests for one in claims),
        Resources.total(one.allocatable for one in claims),
        str(claims[0].reason) if claims[0].reason is not None else "",
    )
