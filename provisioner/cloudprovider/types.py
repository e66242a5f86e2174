"""The seam to a cloud: instance types with their offerings and prices, instances, and what a provider must do. Pure."""

import enum
import functools
import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from provisioner.apis import names
from provisioner.apis.conditions import ConditionSet, LeafCause
from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool, requirements_of
from provisioner.apis.meta import Condition, ObjectMeta, condition
from provisioner.cloudprovider.errors import CreateError
from provisioner.values.message import ConditionMessage, Said
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import NONE, RequirementError, Requirements
from provisioner.values.resources import EMPTY, HUGEPAGES_PREFIX, MEMORY, Resources

MOST_USD_PER_HOUR: Final = 1e9
"""No price that anybody says may be higher: sums and micro-USD of higher ones are none any more."""
DEAREST_ALTERNATIVE: Final = 2.0
"""A launch that may take any of the cheapest hardly takes what costs more than so many times the cheapest; see `expected_price`."""
NO_INSTANCES_PRICE: Final = 10_000.0
"""Nothing costs as much an hour, in any currency: what providers say of an offering whose price nobody knows."""
_MICROS = 1_000_000
_CHEAPEST_KIND_FIRST = (names.CAPACITY_RESERVED, names.CAPACITY_SPOT, names.CAPACITY_ON_DEMAND)


class CapKind(enum.StrEnum):
    """What may be full so that nothing more can be launched until an instance under it ends."""

    RESERVATION = "reservation"
    PLACEMENT_GROUP = "placement-group"
    ADDRESSES = "addresses"
    NODE_LIMIT = "node-limit"
    """limits.nodes of a static NodePool; no provider says so."""


class StructuralCap(NamedTuple):
    """Something that is full, and stays so for as long as the instances under it run.

    Attributes:
        name: tells it from others of its kind, as users read it.
    """

    kind: CapKind
    name: str


@dataclass(frozen=True)
class Offering:
    """One way to buy an instance type.

    Attributes:
        requirements: the labels that this offering fixes: zone and capacity type, a reservation where it is one.
        price: USD per hour.
        available: nothing but the capacity of its reservation speaks against a launch; for one that may be tried now see `launchable`.
        reservation_capacity: how many instances are left of a reservation; 0 for every other capacity type.
        overlaid: whether a NodeOverlay says the price.
        alternatives: of how many instance types, cheapest first, a launch takes one of which nobody knows which; see `expected_price`.
        full: what admits no further instance, as its cloud or a count of our own instances says: never because a launch failed; None for nothing.
    """

    requirements: Requirements
    price: float
    available: bool = True
    reservation_capacity: int = 0
    overlaid: bool = False
    alternatives: int = 1
    full: StructuralCap | None = None

    @functools.cached_property
    def zone(self) -> str:
        """Its zone; "" where it has none or several."""
        return self.requirements.requirement(names.ZONE_LABEL).single_value or ""

    @functools.cached_property
    def capacity_type(self) -> str:
        """on-demand, spot or reserved; "" where it names none or several."""
        return self.requirements.requirement(names.CAPACITY_TYPE_LABEL).single_value or ""

    @functools.cached_property
    def launchable(self) -> bool:
        """Whether a launch may be tried now: it is available, nothing is full, and where it is a reservation, an instance is left."""
        has_room = self.capacity_type != names.CAPACITY_RESERVED or self.reservation_capacity > 0
        return self.available and self.full is None and has_room

    @functools.cached_property
    def sort_key(self) -> tuple[int, str, str]:
        """Orders the offerings of one type: micro-USD per hour, then zone, then capacity type."""
        return round(self.price * _MICROS), self.zone, self.capacity_type


@dataclass(frozen=True)
class InstanceType:
    """A kind of instance; equal by value, hashed by name.

    Attributes:
        name: unique in one catalogue.
        requirements: the labels that its nodes can have: instance type, arch, os, zones, capacity types, the provider's own.
        capacity: what the instance has.
        overhead: what the system keeps of it (kubelet, operating system, eviction threshold).
        offerings: every way to buy it, launchable or not.
        overlaid: whether a NodeOverlay says part of the capacity.
        partial: resources of which it has parts of a device, each of which counts as one.
        attach_limits: by CSI driver, how many volumes its nodes take, as far as the cloud says; CSINodes know better.
    """

    name: str
    requirements: Requirements
    capacity: Resources
    overhead: Resources = EMPTY
    offerings: tuple[Offering, ...] = ()
    overlaid: bool = False
    partial: frozenset[str] = frozenset()
    attach_limits: Mapping[str, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)

    @functools.cached_property
    def lowest_price(self) -> float:
        """The lowest price of any offering, whether it is available or not."""
        return min([one.price for one in self.offerings], default=math.inf)

    @functools.cached_property
    def allocatable(self) -> Resources:
        """What pods may use: capacity less overhead; huge pages are taken off the memory, which is never less than 0.

        Other resources may be negative, and then nothing fits.
        """
        rest = self.capacity - self.overhead
        pages = sum(amount for name, amount in self.capacity.items() if name.startswith(HUGEPAGES_PREFIX))
        if MEMORY not in rest:
            return rest
        return Resources.of({**rest, MEMORY: max(0, rest[MEMORY] - pages)})


@dataclass(frozen=True, slots=True)
class LaunchedInstance:
    """An instance as the cloud knows it: what create, get and list return.

    Attributes:
        provider_id: as in the Node's spec, e.g. "aws:///zone/i-..." or "kwok://name".
        labels: what the instance's Node is known to have; the claim's own labels win over them.
        node_name: the name that its Node has or will have; "" where only the Node itself knows.
        claim_name: the NodeClaim it was launched for; "" where unknown.
    """

    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Resources = EMPTY
    allocatable: Resources = EMPTY
    node_name: str = ""
    claim_name: str = ""


InstanceT = TypeVar("InstanceT")


@dataclass(frozen=True, slots=True)
class SortedOut(Generic[InstanceT]):
    """Instances that no claim has by its provider ID, as a provider describes them.

    Attributes:
        awaited: names of the claims that wait for an instance which is there, sorted.
        orphans: instances of no claim, in order of id; those that end already are left out.
    """

    awaited: tuple[str, ...] = ()
    orphans: tuple[InstanceT, ...] = ()


class RepairAction(enum.StrEnum):
    """What is done about a broken node; the first beats the second where a node asks for both."""

    REPLACE = "ReplaceNode"
    REBOOT = "RebootNode"


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """A node condition that means a broken instance once it has lasted for `toleration`. Source: Karpenter 1.15, RepairPolicy.

    Attributes:
        condition_type, condition_status: of the condition.
        toleration: how long it must have lasted.
        reason_regex: what is searched for in the condition's reason; "" makes the policy the fallback of its set, for reasons that no other finds.
        termination_grace_period: the longest time that the drain of the node may take; None leaves it to the NodeClaim, 0 ends it at once.
        priority: 0 to 100; the higher goes first.
        action: what is done.
    """

    condition_type: str
    condition_status: str
    toleration: timedelta
    reason_regex: str = ".*"
    termination_grace_period: timedelta | None = None
    priority: int = 0
    action: RepairAction = RepairAction.REPLACE


class RegistrationHook(Protocol):
    """Something of the provider's that a Node waits for before it is let in; until then its taint keeps pods away.

    Source: core spec 5, 8.4. Differs: hooks are asked one after another, as none of them waits for a call.
    """

    @property
    def name(self) -> str:
        """What the NodeClaim's condition Registered calls it."""
        ...

    def wait(self, claim: NodeClaim) -> float:
        """Seconds until it should be asked again about a claim whose Node has come; 0 where it has nothing to wait for. Any thread."""
        ...


class CloudProviderView(Protocol):
    """What every controller may ask of a cloud: all but to end an instance, which is the Terminator's alone.

    Every method may be called from several threads at once.
    """

    name: str
    well_known_labels: frozenset[str]
    """Labels that the provider sets by itself, besides `names.WELL_KNOWN_LABELS`."""
    reservation_label: str
    """The label of reserved offerings that says which reservation they draw from; "" where each is one of its own."""

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """Launch one instance for `claim`, or return the one that an earlier call launched for it; never two.

        Raises:
            LaunchUnderWayError: it takes time; ask again later, or when `listen`'s callable is called with the claim's name.
            InsufficientCapacityError: nothing that the claim allows can be had now, or ever.
            NodeClassNotReadyError: its NodeClass is missing or not ready.
            CreateError: it failed for a reason worth a condition.

        After an `InsufficientCapacityError` or a `CreateError` there is no instance, and none comes of this call; what is not known is a
        `LaunchUnderWayError`.
        """
        ...

    def listen(self, answered: Callable[[str], None]) -> None:
        """Call `answered` with a claim's name whenever a launch that was under way has an answer; of several callables the last counts."""
        ...

    def get(self, provider_id: str) -> LaunchedInstance:
        """The instance of that ID.

        Raises:
            InstanceNotFoundError: there is none.
        """
        ...

    def list(self) -> Sequence[LaunchedInstance]:
        """Every instance of this cluster, in order of provider ID."""
        ...

    def reboot(self, claim: NodeClaim, operation: str) -> None:
        """Reboot the claim's instance, by one call to the cloud at most: nothing is sent again, whatever becomes of it.

        Args:
            claim: whose Node will have another boot ID.
            operation: tells this reboot from others.

        Raises:
            RebootRefusedError: it was not done.
            InstanceNotFoundError: there is no such instance.
            CloudError: nobody knows whether it was done.
        """
        ...

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        """Finish what an earlier process began for these claims; called once by a new leader, with all claims."""
        ...

    def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """What `pool` may launch, in order of name; the same tuple object for as long as nothing changed."""
        ...

    def is_drifted(self, claim: NodeClaim) -> str:
        """Why the instance is no longer what its NodeClass asks for, one CamelCase word; "" where it is."""
        ...

    def repair_policies(self, *, legacy: bool = False) -> tuple[RepairPolicy, ...]:
        """Which node conditions mean a broken instance; those of Karpenter 1.14 where it is `legacy`. Static, and always a whole `RepairPolicySet`."""
        ...

    def registration_hooks(self) -> tuple[RegistrationHook, ...]:
        """What a Node waits for before it is let in."""
        ...

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        """(API group, kind) of the NodeClasses that this provider serves."""
        ...

    def node_class_ready(self, reference: NodeClassReference) -> tuple[str, str, str]:
        """The Ready condition of a NodeClass: status "True", "False" or "Unknown", reason, message."""
        ...


class CloudProvider(CloudProviderView, Protocol):
    """What a cloud must do."""

    def delete(self, claim: NodeClaim) -> None:
        """Start to terminate the claim's instance; call again until it is gone.

        Raises:
            InstanceNotFoundError: it is gone (or never was): the good end.
        """
        ...


def wishes_of(claim: NodeClaim) -> tuple[Requirements, Resources]:
    """The claim's requirements and requests.

    Raises:
        CreateError: they cannot be read.
    """
    try:
        requirements = requirements_of(claim.spec.requirements)
    except RequirementError as error:
        raise CreateError(names.LAUNCH_FAILED, f"spec.requirements: {error}") from error
    try:
        return requirements, Resources.parse(claim.spec.resources.requests)
    except QuantityError as error:
        raise CreateError(names.LAUNCH_FAILED, f"spec.resources.requests: {error}") from error


def readiness_of(
    reference: NodeClassReference, found: tuple[ObjectMeta, tuple[Condition, ...]] | None, silent: tuple[str, str, str]
) -> tuple[str, str, str]:
    """What `CloudProvider.node_class_ready` answers for a NodeClass with these conditions: where it is not Ready, the cause behind its Ready condition.

    Differs: Karpenter repeats reason and message of Ready, which only name other conditions.

    Args:
        reference: to it.
        found: None where it is missing.
        silent: the answer where its Ready condition is missing.
    """
    if found is None:
        return ConditionMessage(
            names.NODECLASS_READY,
            names.FALSE,
            names.NODECLASS_NOT_FOUND,
            f"{reference.kind} {reference.name} does not exist; create it",
        )[1:]
    metadata, conditions = found
    if metadata.deletion_timestamp is not None:
        return ConditionMessage(
            names.NODECLASS_READY,
            names.FALSE,
            names.NODECLASS_TERMINATING,
            f"{reference.kind} {reference.name} is being deleted",
        )[1:]
    ready = condition(conditions, names.READY)
    if ready is None:
        return silent
    if ready.status == names.TRUE:
        return names.TRUE, names.READY, ""
    others = ConditionSet(names.READY, tuple(one.type for one in conditions if one.type != names.READY))
    leaf = others.leaf(conditions, metadata.generation) or LeafCause(
        ready.reason or names.NODECLASS_READINESS_UNKNOWN,
        ready.message or Said(f"the status of its condition Ready is {ready.status}"),
    )
    return ConditionMessage(
        names.NODECLASS_READY, ready.status, leaf.reason, f"{reference.kind} {reference.name}: {leaf.message}"
    )[1:]


def compatible_offerings(instance_type: InstanceType, requirements: Requirements) -> tuple[Offering, ...]:
    """The launchable offerings on which `requirements` and the offering do not conflict, cheapest first.

    Looks at the offerings only; whether the type itself goes with `requirements` is the caller's question.
    """
    matching = (
        offering
        for offering in instance_type.offerings
        if offering.launchable and requirements.conflict(offering.requirements) is None
    )
    return tuple(sorted(matching, key=lambda offering: offering.sort_key))


def cheapest_offering(instance_type: InstanceType, requirements: Requirements = NONE) -> Offering | None:
    """The first of `compatible_offerings`; None where there is none."""
    return next(iter(compatible_offerings(instance_type, requirements)), None)


def by_price(types: Iterable[InstanceType], requirements: Requirements = NONE) -> list[tuple[InstanceType, Offering]]:
    """Every way to launch one instance now that goes with `requirements`, cheapest first.

    Args:
        types: the catalogue, any order; not mutated.
        requirements: what the instance's labels must agree with; labels that a type does not define count as free.

    Returns:
        (type, offering) pairs by (micro-USD per hour, type name, zone, capacity type).
        Ties never depend on input order. Empty when nothing is launchable.

    Cost: O(n log n) in offerings; each price is read once.
    Source: karpenter `pkg/cloudprovider/types.go` OrderByPrice at 226646810.
    Differs: that one sorts types in place with no tie-break, so equal prices may swap; types that cannot be bought come last
        there and are left out here.
    """
    pairs = [
        (instance_type, offering)
        for instance_type in types
        if instance_type.requirements.conflict(requirements) is None
        for offering in compatible_offerings(instance_type, requirements)
    ]
    return sorted(pairs, key=_order)


def _order(pair: tuple[InstanceType, Offering]) -> tuple[int, str, str, str]:
    instance_type, offering = pair
    micros, zone, capacity_type = offering.sort_key
    return micros, instance_type.name, zone, capacity_type


def cheapest_first(types: Iterable[InstanceType], requirements: Requirements = NONE) -> tuple[InstanceType, ...]:
    """The types that can be bought under `requirements`, each once, by the price of their cheapest such offering."""
    return tuple(dict.fromkeys(instance_type for instance_type, _ in by_price(types, requirements)))


def other_owner(claim: NodeClaim, provider_id: str, claims: Iterable[NodeClaim]) -> NodeClaim | None:
    """Another claim, which stays, that has this instance; None where there is none."""
    return next(
        (
            one
            for one in claims
            if one.status.provider_id == provider_id
            and one.metadata.uid != claim.metadata.uid
            and one.metadata.deletion_timestamp is None
        ),
        None,
    )


def manages(provider: CloudProviderView, reference: NodeClassReference) -> bool:
    """Whether who refers to this node class is the provider's."""
    return (reference.group, reference.kind) in provider.node_class_kinds()


def offering_price(instance_type: InstanceType, zone: str, capacity_type: str) -> float | None:
    """USD per hour of an instance in that zone and of that capacity type, available or not; None where nobody knows.

    One whose price has vanished (the spot market lists its type no more) is taken to cost what the type costs on demand, which is about
    the most that spot comes to.
    """
    price = _listed(instance_type, zone, capacity_type)
    if price is not None and price >= NO_INSTANCES_PRICE:
        price = _listed(instance_type, zone, names.CAPACITY_ON_DEMAND)
    return None if price is None or price >= NO_INSTANCES_PRICE else price


def _listed(instance_type: InstanceType, zone: str, capacity_type: str) -> float | None:
    for offering in instance_type.offerings:
        if offering.zone == zone and offering.capacity_type == capacity_type:
            return offering.price
    return None


def expected_price(offerings: Sequence[Offering], on_demand: float = math.inf) -> float:
    """USD per hour that a launch is expected to cost which may take any of these: the one that planner, provisioning and consolidation go by.

    Where the cloud takes the cheapest, its price. Spot is launched by price and spare capacity, so any of the cheapest instance types
    may come of it: the mean of so many as `Offering.alternatives` of the cheapest says, or of all where there are fewer. What costs over
    twice as much does not count: where only other sizes are left, the lowest price decides. Nor does spot that is dearer than on-demand, where
    a launch may be both. Bounds go by the least price all the same: they hold whatever is launched.

    Args:
        offerings: the cheapest of each instance type, cheapest first; at least one.
        on_demand: the least price of the launch if it came to be on-demand; infinite where it may not, or asks for minValues: these take dear spot, too.
    """
    first = offerings[0]
    if first.alternatives <= 1:
        return first.price
    most = min(max(first.price, 0.0) * DEAREST_ALTERNATIVE, on_demand)
    of_its_kind = (one.price for one in offerings if one.capacity_type == first.capacity_type and one.price <= most)
    prices = list(itertools.islice(of_its_kind, first.alternatives))
    return sum(prices) / len(prices) if prices else first.price


def launch_price(types: Iterable[InstanceType], requirements: Requirements) -> float | None:
    """The `expected_price` of a launch under these requirements; None where none is possible. Cost: O(n log n) in offerings."""
    ways = by_price(types, requirements)
    return price_of_ways(ways, requirements) if ways else None


def price_of_ways(ways: Sequence[tuple[InstanceType, Offering]], requirements: Requirements) -> float:
    """The `expected_price` of a launch, of what `by_price` returns under these requirements; at least one."""
    flexible = not any(one.min_values for one in requirements.values())
    on_demand = (one.price for _, one in ways if flexible and one.capacity_type == names.CAPACITY_ON_DEMAND)
    return expected_price(_first_of_each(ways), next(on_demand, math.inf))


def _first_of_each(ways: Iterable[tuple[InstanceType, Offering]]) -> list[Offering]:
    """The cheapest offering of each instance type, cheapest first, of what `by_price` returns."""
    found: dict[str, Offering] = {}
    for instance_type, offering in ways:
        found.setdefault(instance_type.name, offering)
    return list(found.values())


def worst_launch_price(offerings: Iterable[Offering], requirements: Requirements = NONE) -> float:
    """The most that a launch under `requirements` can cost, in USD per hour; infinity where none is possible.

    A launch takes a reservation where there is one, else spot, else on-demand, so only the first of these that is
    launchable and compatible counts.

    Source: karpenter `pkg/cloudprovider/types.go` WorstLaunchPrice.
    """
    open_to_us = [one for one in offerings if one.launchable and requirements.conflict(one.requirements) is None]
    kind = capacity_type_bought({one.capacity_type for one in open_to_us})
    return max((one.price for one in open_to_us if kind and one.capacity_type == kind), default=math.inf)


def capacity_type_bought(there: Container[str]) -> str:
    """That of a launch: reserved where any is to be had, else spot, else on-demand; "" where none of these is."""
    return next((kind for kind in _CHEAPEST_KIND_FIRST if kind in there), "")


@dataclass(frozen=True, slots=True)
class MinValuesVerdict:
    """How far a list of types serves the `min_values` of some requirements.

    Attributes:
        needed: the length of the shortest prefix that serves all of them; 0 where none is asked for or not all can be served.
        missing: key to the number of distinct values the whole list offers, for each key that is not served.
    """

    needed: int
    missing: Mapping[str, int]


def min_values_served(types: Iterable[InstanceType], requirements: Requirements) -> MinValuesVerdict:
    """Walk `types` in their order until every `min_values` of `requirements` has enough distinct allowed values.

    Source: karpenter `pkg/cloudprovider/types.go` SatisfiesMinValues.
    Differs: only values that the requirement itself allows are counted.
    """
    wanted = {requirement.key: requirement for requirement in requirements.values() if requirement.min_values}
    seen: dict[str, set[str]] = {key: set() for key in wanted}
    short = set(wanted)
    if not short:
        return MinValuesVerdict(0, {})
    for length, instance_type in enumerate(types, start=1):
        for key in sorted(short):
            offered = instance_type.requirements.get(key)
            if offered is not None and not offered.complement:
                seen[key] |= {value for value in offered.values if wanted[key].has(value)}
            if len(seen[key]) >= (wanted[key].min_values or 0):
                short.discard(key)
        if not short:
            return MinValuesVerdict(length, {})
    return MinValuesVerdict(0, {key: len(seen[key]) for key in sorted(short)})
