"""Why a pod got no place, as values: compare them in code, print them for people."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from provisioner.apis.gangs import told
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pool_limits import MICROS, USD
from provisioner.cloudprovider.types import NO_INSTANCES_PRICE
from provisioner.values.printable import listed
from provisioner.values.requirement import Requirement, RequirementConflict
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint


def limit_text(resource: str, amount: int) -> str:
    """An amount of what a NodePool limits, for people."""
    if resource == USD:
        return f"{amount / MICROS:.6g}"
    return _amount(resource, amount)


def _amount(resource: str, amount: int) -> str:
    return Resources.of({resource: amount}).to_wire()[resource]


@dataclass(frozen=True, slots=True)
class Untolerated:
    """A taint keeps the pod off."""

    taint: Taint

    def __str__(self) -> str:
        return f"taint {self.taint} is not tolerated"


@dataclass(frozen=True, slots=True)
class Incompatible:
    """The pool's own requirements and labels contradict the pod's selector or affinity."""

    conflict: RequirementConflict

    def __str__(self) -> str:
        return str(self.conflict)


@dataclass(frozen=True, slots=True)
class Contradictory:
    """The pod's own selector and affinity leave no value for a label."""

    key: str

    def __str__(self) -> str:
        return f"the pod's selector and affinity contradict each other on {self.key}"


@dataclass(frozen=True, slots=True)
class NodesOnly:
    """The pod's node selector or affinity names nodes (matchFields, hostnames), so no new node can match."""

    names: Requirement

    def __str__(self) -> str:
        return f"required node affinity names nodes by {self.names.key}: {', '.join(sorted(self.names.values))}"


@dataclass(frozen=True, slots=True)
class NoTerm:
    """The pod's required node affinity has no term with content; Kubernetes lets such an affinity match nothing."""

    def __str__(self) -> str:
        return "required node affinity has no term that can match a node"


@dataclass(frozen=True, slots=True)
class NoInstanceTypes:
    """The pool has no instance type that its own requirements admit and that can be had now.

    Attributes:
        offered: types that the provider has for the pool.
        requirement: the first of its requirements, by key, after which no type is left; None where types are left
            and only their offerings are missing.
        alone: whether no type meets that requirement even by itself.
        used_up: the reservations that are all that the pool allows, where no instance is left of them.
        problem: why it is not known what the provider has; "" where it is.
    """

    offered: int
    requirement: Requirement | None = None
    alone: bool = True
    used_up: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"its instance types are not known: {self.problem}"
        if not self.offered:
            return "the provider offers no instance types"
        if self.used_up:
            return f"the NodePool allows reserved capacity only, and {_used_up(self.used_up)}"
        if self.requirement is None:
            return f"none of {self.offered} instance types meets the requirements of the NodePool with an available offering"
        if self.requirement.is_contradiction:
            return f"the requirements and labels of the NodePool allow no value for {self.requirement.key}"
        together = "" if self.alone else " in combination with its other requirements"
        return f"none of {self.offered} instance types has {self.requirement}, which the NodePool requires{together}"


@dataclass(frozen=True, slots=True)
class LabelUndefined:
    """The pod demands a label that the nodes of this pool will not carry."""

    key: str

    def __str__(self) -> str:
        return f"no instance type of the NodePool has the label {self.key}"


@dataclass(frozen=True, slots=True)
class NoTypeMatches:
    """No instance type of the pool has what the pod's selector or affinity asks of `requirement.key`.

    With `alone` False every key can be had, but not all of them on one type; `requirement` is the first that fails.
    """

    requirement: Requirement
    alone: bool

    def __str__(self) -> str:
        together = "" if self.alone else " in combination with the other requirements of the pod"
        return f"no instance type has {self.requirement}{together}"


@dataclass(frozen=True, slots=True)
class NoOffering:
    """Types match, but none can be had now in the zones and capacity types that the pod allows.

    `used_up` are the reservations that are all that it allows, where no instance is left of them.
    """

    types: int
    used_up: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.used_up:
            return f"only reserved capacity is allowed, and {_used_up(self.used_up)}"
        return (
            f"no available offering of {self.types} matching instance types in the requested zones and capacity types"
        )


def _used_up(reservations: tuple[str, ...]) -> str:
    if len(reservations) == 1:
        return f"capacity reservation {reservations[0]} is used up"
    return f"capacity reservations {listed(reservations, _SHOWN_POOLS)} are used up"


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Alone on the largest matching type, after its daemons, the pod lacks `resource`."""

    resource: str
    wanted: int
    largest: int

    def __str__(self) -> str:
        wanted, largest = _amount(self.resource, self.wanted), _amount(self.resource, max(0, self.largest))
        hint = ""
        if self.resource == "cpu" and self.wanted >= 1_000_000_000:
            hint = ' (is "M" meant to be "m"?)'
        return (
            f"{self.resource} {wanted} exceeds the {largest} that the largest matching instance type has for pods{hint}"
        )


@dataclass(frozen=True, slots=True)
class TooLargeTogether:
    """Each resource can be had, but no matching type has all of them at once."""

    resources: tuple[str, ...]

    def __str__(self) -> str:
        return f"no matching instance type has enough {' and '.join(self.resources)} at once"


@dataclass(frozen=True, slots=True)
class DaemonsFill:
    """What DaemonSets request is more than the node of any matching type has."""

    types: int

    def __str__(self) -> str:
        return (
            f"the pods of DaemonSets alone need more than any of the {self.types} matching instance types has for pods"
        )


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """What the system keeps for itself is more than the node of any matching type has."""

    resources: tuple[str, ...]

    def __str__(self) -> str:
        return f"no matching instance type has any {' or '.join(self.resources)} left for pods"


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The pool's limit on `resource` leaves too little for any type on which the pod fits."""

    resource: str
    remaining: int
    smallest: int

    def __str__(self) -> str:
        if self.resource == USD and self.smallest >= NO_INSTANCES_PRICE * MICROS:
            return f"limit on {self.resource}: no instance type that fits has a known price"
        return (
            f"limit on {self.resource}: {_signed(self.resource, self.remaining)} left, "
            f"the smallest instance type that fits needs {limit_text(self.resource, self.smallest)}"
        )


@dataclass(frozen=True, slots=True)
class LimitsReached:
    """No type on which the pod fits is within all of the pool's limits at once."""

    resources: tuple[str, ...]

    def __str__(self) -> str:
        return f"limits on {' and '.join(self.resources)} exclude every instance type that fits"


@dataclass(frozen=True, slots=True)
class MinValuesUnmet:
    """Too few instance types would be left for the pool's minValues."""

    key: str
    wanted: int
    found: int

    def __str__(self) -> str:
        return f"minValues: {self.found} values of {self.key} remain, {self.wanted} are required"


@dataclass(frozen=True, slots=True)
class Unspreadable:
    """A topology spread constraint leaves no domain that the pool can serve."""

    key: str
    max_skew: int
    domains: tuple[str, ...]

    def __str__(self) -> str:
        where = f"; only {', '.join(self.domains)} would satisfy it" if self.domains else ""
        return f"topology spread across {self.key} with maxSkew {self.max_skew}{where}"


@dataclass(frozen=True, slots=True)
class WouldUnsettle:
    """A node would bring a domain to be that is too empty for the spread of other pods."""

    key: str

    def __str__(self) -> str:
        return f"a new node would violate the topology spread of other pods across {self.key}"


@dataclass(frozen=True, slots=True)
class NotTogether:
    """Required pod affinity: the matching pods are in no domain that the pool can serve."""

    key: str
    domains: tuple[str, ...]

    def __str__(self) -> str:
        if not self.domains:
            return f"required pod affinity on {self.key}: no matching pod is running or planned"
        return f"required pod affinity on {self.key}: the matching pods are in {', '.join(self.domains)}"


@dataclass(frozen=True, slots=True)
class NotApart:
    """Anti-affinity: pods are in every domain that the pool can serve from which they must be kept apart.

    With `theirs`, it is the other pods that want it so.
    """

    key: str
    theirs: bool = False

    def __str__(self) -> str:
        whose = "anti-affinity of other pods" if self.theirs else "required pod anti-affinity"
        return f"{whose} on {self.key} leaves no domain"


@dataclass(frozen=True, slots=True)
class NotBesideDaemon:
    """Anti-affinity between the pod and the pods of a DaemonSet, which run on every node that it could have; theirs or its own."""

    daemon_set: str

    def __str__(self) -> str:
        return f"required pod anti-affinity between it and the pods of DaemonSet {self.daemon_set}, which run on every matching node"


@dataclass(frozen=True, slots=True)
class DaemonsKeptAway:
    """DaemonSets must be near the pod, or run on its node, where pods that have a place keep them away, or they these."""

    def __str__(self) -> str:
        return "a new node with the pod would need DaemonSet pods that required pod anti-affinity keeps away"


@dataclass(frozen=True, slots=True)
class PortsTaken:
    """Daemons of every matching type take a port of the node that the pod wants."""

    ports: tuple[int, ...]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.ports))
        if len(self.ports) == 1:
            return f"host port {numbers} is used by DaemonSet pods"
        return f"host ports {numbers} are used by DaemonSet pods"


@dataclass(frozen=True, slots=True)
class VolumesElsewhere:
    """The pod's volumes cannot be reached from any node of the pool."""

    constraint: "Constraint"

    def __str__(self) -> str:
        return f"the pod's volumes are not accessible: {self.constraint}"


@dataclass(frozen=True, slots=True)
class VolumeInUse:
    """A volume that only one pod at a time may use (ReadWriteOncePod) is in use."""

    claim: str

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {self.claim} is ReadWriteOncePod and in use by another pod"


@dataclass(frozen=True, slots=True)
class NoVolumeLeft:
    """Every volume that would do for a claim goes to another claim."""

    claim: str

    def __str__(self) -> str:
        return f"no free volume is left for PersistentVolumeClaim {self.claim}: the matching volumes are planned for other pods"


@dataclass(frozen=True, slots=True)
class NoMoreClaims:
    """As many new nodes were planned as were allowed for this question."""

    most: int

    def __str__(self) -> str:
        return f"at most {self.most} new nodes may be planned"


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The pool would take the pod and was not asked: a flaw of the solver, which tests look for."""

    def __str__(self) -> str:
        return "has room for the pod but was not used (please report this)"


Constraint = (
    Untolerated
    | Incompatible
    | Contradictory
    | NodesOnly
    | NoTerm
    | NoInstanceTypes
    | LabelUndefined
    | NoTypeMatches
    | NoOffering
    | TooLarge
    | TooLargeTogether
    | NothingLeft
    | DaemonsFill
    | LimitReached
    | LimitsReached
    | MinValuesUnmet
    | Unspreadable
    | WouldUnsettle
    | NotTogether
    | NotApart
    | NotBesideDaemon
    | DaemonsKeptAway
    | PortsTaken
    | VolumesElsewhere
    | NoMoreClaims
    | Unexplained
)
"""What binds in one NodePool."""


@dataclass(frozen=True, slots=True)
class PodInvalid:
    """The pod cannot be judged: something in it cannot be read."""

    error: str

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True)
class PodGated:
    """A scheduling gate holds the pod back."""

    def __str__(self) -> str:
        return "the pod has scheduling gates"


@dataclass(frozen=True, slots=True)
class UnsupportedConstraint:
    """The pod uses a constraint that is not judged (devices by resource claims); placing it blindly might be illegal."""

    field: str

    def __str__(self) -> str:
        return f"Unsupported constraint: {self.field}"


@dataclass(frozen=True, slots=True)
class NotTried:
    """The answer was due before the pod's turn came; it says nothing about whether there is a place."""

    def __str__(self) -> str:
        return "not planned before the solve deadline; retrying with the next batch"


@dataclass(frozen=True, slots=True)
class OnlyWhileLeaving:
    """Pods that stay on a node until it is gone count for the pod's spread or affinity: no place is legal before and after."""

    def __str__(self) -> str:
        return "no placement is valid both while the node drains and after it is removed"


NOT_TRIED = NotTried()
"""The one that there is."""


@dataclass(frozen=True, slots=True)
class NoPools:
    """No NodePool may make nodes; why, `world.closed` says of each."""

    def __str__(self) -> str:
        return "no NodePool can launch nodes"


@dataclass(frozen=True, slots=True)
class PoolRefuses:
    """A new node of this pool would not do; `constraint` is what binds last of all that were tried."""

    pool: str
    constraint: Constraint

    def __str__(self) -> str:
        return f'NodePool "{self.pool}": {self.constraint}'


@dataclass(frozen=True, slots=True)
class PoolsRefuse:
    """The same for many pools that are alike in all that matters, so that a pod does not have a reason for each of them."""

    pools: tuple[str, ...]
    constraint: Constraint

    def __str__(self) -> str:
        shown = listed((f'"{name}"' for name in self.pools), _SHOWN_POOLS)
        return f"{len(self.pools)} NodePools ({shown}): {self.constraint}"


_SHOWN_POOLS = 3
_SHOWN_TAINTS = 3


@dataclass(frozen=True, slots=True)
class BinsRefuse:
    """No existing node, and none planned, would do.

    Attributes:
        total: nodes looked at.
        untolerated: (taint, nodes on which it is the first that keeps the pod off), by taint.
        mismatched: nodes that the pod's selector or affinity rules out.
        lacking: (feature, nodes that do not declare it), by feature; one node may lack several.
        leaving: nodes that are going away.
        closed: nodes that take nothing now.
        short: (resource, matching nodes with too little of it), by resource; one node may lack several.
        topology: (words, nodes ruled out) by spread, affinity, ports and the like; again one node may count twice.
    """

    total: int
    untolerated: tuple[tuple[Taint, int], ...] = ()
    mismatched: int = 0
    short: tuple[tuple[str, int], ...] = ()
    leaving: int = 0
    topology: tuple[tuple[str, int], ...] = ()
    closed: int = 0
    lacking: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        parts = [*self._untolerated()]
        if self.mismatched:
            parts.append(f"{self.mismatched} didn't match the pod's node affinity/selector")
        parts.extend(f"{count} didn't declare the feature {feature}" for feature, count in self.lacking)
        if self.leaving:
            parts.append(f"{self.leaving} being removed")
        if self.closed:
            parts.append(f"{self.closed} not accepting new pods")
        parts.extend(f"{count} insufficient {resource}" for resource, count in self.short)
        parts.extend(f"{count} {words}" for words, count in self.topology)
        return f"0/{self.total} existing nodes: {', '.join(parts)}"

    def _untolerated(self) -> Iterator[str]:
        """The taints of most nodes; the others are counted, so that there is room in an event for what NodePools say."""
        by_nodes = sorted(self.untolerated, key=lambda one: -one[1])
        for taint, count in by_nodes[:_SHOWN_TAINTS]:
            yield f"{count} had untolerated taint {taint}"
        if others := sum(count for _, count in by_nodes[_SHOWN_TAINTS:]):
            yield f"{others} had other untolerated taints"


@dataclass(frozen=True, slots=True)
class GroupTooLarge:
    """Too few pods of a group would have places, so that none of them gets one.

    Attributes:
        group: its key.
        placed: that would have.
        needed: at once.
        asked: that need one.
    """

    group: str
    placed: int
    needed: int
    asked: int

    def __str__(self) -> str:
        what = f"{self.needed} pods of {told(self.group)} need nodes at the same time"
        if self.asked < self.needed:
            return f"{what}, but only {self.asked} of them can be planned now"
        if self.placed >= self.needed:
            return f"{what}, but there is not enough room for them and the other pods"
        return f"{what}, but there is room for only {self.placed} of them"


@dataclass(frozen=True, slots=True)
class NoDomainHolds:
    """No domain of the topology key of a PodGroup has room for as many of its pods as are needed.

    Attributes:
        key: the node label.
        domain: the value that has room for most of them, among those that were tried; "" for a new node of its own, or where none was tried.
        placed: so many of them.
    """

    key: str
    domain: str
    placed: int

    def __str__(self) -> str:
        what = f"all pods of the PodGroup must run on nodes with the same value for label {self.key}, but there is not enough room for them"
        return f"{what}; where the value is {self.domain}, {self.placed} of them fit" if self.domain else what


@dataclass(frozen=True, slots=True)
class NoPoolMakesLabel:
    """The nodes that have the topology key of a PodGroup have too little room, and no new node would have it.

    Attributes:
        key: the node label.
    """

    key: str

    def __str__(self) -> str:
        return (
            f"all pods of the PodGroup must run on nodes with the same value for label {self.key}, but no existing nodes with "
            "one value have enough room for them, and no NodePool sets that label"
        )


@dataclass(frozen=True, slots=True)
class GroupHeldBack:
    """A limit does not allow all nodes of a group now, so that none is created: what the limit says goes before it."""

    group: str
    nodes: int

    def __str__(self) -> str:
        return f"the {self.nodes} nodes for {told(self.group)} are created at the same time or not at all"


Reason = (
    PodInvalid
    | GroupTooLarge
    | NoDomainHolds
    | NoPoolMakesLabel
    | PodGated
    | NotTried
    | OnlyWhileLeaving
    | UnsupportedConstraint
    | VolumeInUse
    | NoVolumeLeft
    | NoPools
    | PoolRefuses
    | PoolsRefuse
    | BinsRefuse
)
"""Why a pod is unplaced."""


def unset_by_all(reasons: Iterable[Reason], pools: Iterable[NodePool] = ()) -> RequirementConflict | None:
    """The label that the pod needs, where each NodePool among its reasons refuses because it does not set that label, and none of `pools` does."""
    refusals = {one.constraint for one in reasons if isinstance(one, PoolRefuses | PoolsRefuse)}
    only = next(iter(refusals)) if len(refusals) == 1 else None
    if not isinstance(only, Incompatible) or not only.conflict.undefined:
        return None
    return None if any(_sets(pool, only.conflict.key) for pool in pools) else only.conflict


def _sets(pool: NodePool, key: str) -> bool:
    template = pool.spec.template
    return key in (template.metadata.labels or ()) or any(one.key == key for one in template.spec.requirements)


def as_told(reasons: Sequence[Reason], pools: Iterable[NodePool] = ()) -> tuple[Reason | str, ...]:
    """Reasons for people: a label that no NodePool sets, none of `pools` either, is one of them, not one for each NodePool."""
    unset = unset_by_all(reasons, pools)
    if unset is None:
        return tuple(reasons)
    return (*(one for one in reasons if not isinstance(one, PoolRefuses | PoolsRefuse)), unset.of_all)


def _signed(resource: str, amount: int) -> str:
    return limit_text(resource, amount) if amount >= 0 else f"-{limit_text(resource, -amount)}"
