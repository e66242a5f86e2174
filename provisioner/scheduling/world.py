"""From a snapshot of the cluster to the world that scheduling is asked about; what only depends on the instant is decided here."""

import contextlib
import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Final, cast

from provisioner.apis import names
from provisioner.apis.conditions import POOL_CONDITIONS
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod
from provisioner.apis.pool_limits import USD, PoolLimitError, most_of_one, spending_limit
from provisioner.apis.shapes import PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.capacity.spending import PricedTypes, spent
from provisioner.scheduling.constraints.filters import FilterError, node_filter
from provisioner.scheduling.node_claims import template_requirements
from provisioner.scheduling.problem import (
    NODE_PENALTY,
    Bin,
    DevicePolicy,
    MinValuesPolicy,
    Packing,
    PreferencePolicy,
    SchedulingPool,
    SpreadDefaults,
    Storage,
    World,
)
from provisioner.scheduling.reasons import Untolerated
from provisioner.state.pause import why_not_launched
from provisioner.state.snapshot import NodeView, PoolView, Snapshot, Surroundings
from provisioner.values.message import Said
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import Operator, Requirement, RequirementError, Requirements
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import first_untolerated

HOSTNAME_DOMAINS: Final = 3
"""Nodes over which a hard hostname spread is planned where nobody says how many."""
_MOST_DIGITS: Final = 6
_DECIMAL: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?", re.ASCII)
_PACKINGS: Final = tuple([one.value for one in Packing])
_NOT_RESERVED: Final = Requirements.of(
    [Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.NOT_IN, [names.CAPACITY_RESERVED])]
)


@dataclass(frozen=True, slots=True)
class Policies:
    """How pods are judged, as the flags say.

    Attributes:
        spread: cluster default spread constraints, without selectors.
        reserves: whether reserved capacity may be used.
        hostname_domains: as of `World.hostname_domains`.
        packing: of NodePools that do not say.
        fake_nodes: nothing runs on nodes (kwok), so no CSI driver ever registers there.
    """

    preferences: PreferencePolicy = PreferencePolicy.RESPECT
    min_values: MinValuesPolicy = MinValuesPolicy.STRICT
    devices: DevicePolicy = DevicePolicy.REFUSE
    spread: tuple[TopologySpreadConstraint, ...] = ()
    reserves: bool = True
    hostname_domains: int = HOSTNAME_DOMAINS
    packing: Packing = Packing.COST
    fake_nodes: bool = False


DEFAULTS: Final = Policies()


class TypesUnknownError(Exception):
    """The provider cannot say now which instance types a NodePool may have; the message says why."""


class PoolClosed(enum.Enum):
    """Why no new nodes for pods may come from a NodePool."""

    DELETING = enum.auto()
    STATIC = enum.auto()
    NOT_READY = enum.auto()
    PAUSED = enum.auto()


@dataclass(frozen=True, slots=True)
class UnreadablePool:
    """Something in a NodePool that cannot be read.

    Attributes:
        error: the field's path, and what is wrong with it.
        left_out: the pool takes no part; else it does as if the field were not there. The others always do.
    """

    pool: NodePool
    error: str
    left_out: bool = True


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a snapshot says to scheduling.

    Attributes:
        unreadable: what pools say that nobody understands.
    """

    world: World
    unreadable: tuple[UnreadablePool, ...] = ()


def bin_of(node: NodeView) -> Bin:
    """The node as scheduling sees it, with the pods on it, and those that are planned there: one object in every world, kept with the view."""
    made = node.derived.get("bin")
    if made is None:  # two threads that make it at once make the same
        made = node.derived.setdefault("bin", _made(node))
    return cast("Bin", made)


def _made(node: NodeView) -> Bin:
    here = {pod.uid for pod in node.pods}
    return Bin(
        name=str(node.key),
        labels=node.labels if node.initialized or node.claim is None else {**names.READY_LABELS, **node.labels},
        room=node.room,
        taints=node.taints,
        node_name=node.name,
        pool=node.pool,
        pods=node.pods + tuple(pod for pod in node.assigned if pod.uid not in here),
        attach_limits=node.attach_limits,
        features=node.features,
        leaving=node.deleting,
    )


def world_of(
    snapshot: Snapshot,
    types_of: Callable[[NodePool], tuple[InstanceType, ...]],
    well_known: frozenset[str],
    manages: Callable[[NodePool], bool],
    policies: Policies = DEFAULTS,
    reservation_label: str = "",
    priced: PricedTypes | None = None,
) -> Gathered:
    """The world at this instant.

    A pool takes part when it is ours, Ready, dynamic, not being deleted, readable, and does not pause launches: a malformed one says so itself
    (ValidationSucceeded) and must not stop the others. A node that leaves takes no pods; those on it still count.

    Args:
        snapshot: the instant.
        types_of: what the provider has for a pool; may raise `TypesUnknownError`.
        well_known: labels that the provider sets by itself.
        manages: whether a pool is ours.
        policies: what the flags say.
        reservation_label: the provider's.
        priced: keeps lists of instance types of NodePools with a money limit from one instant to the next.
    """
    pools: list[SchedulingPool] = []
    unreadable: list[UnreadablePool] = []
    priced = priced or PricedTypes()
    for view in snapshot.pools:
        if manages(view.pool) and is_usable(view.pool):
            try:
                types, problem = types_of(view.pool), ""
            except TypesUnknownError as error:
                types, problem = (), str(error)
            made = _pool(view, types, policies, unreadable, snapshot.nodes, priced)
            pools += [replace(one, types_problem=problem) for one in made] if problem else made
    around = snapshot.around
    world = World(
        pools=tuple(pools),
        bins=tuple([bin_of(node) for node in snapshot.nodes]),
        daemons=snapshot.daemons,
        well_known=well_known,
        namespaces=around.namespaces,
        storage=replace(storage_of(around), attach_limits=_limits_of_no_driver(pools, around))
        if policies.fake_nodes and around.required_drivers
        else storage_of(around),
        spread_defaults=SpreadDefaults(
            constraints=policies.spread, services=around.services, controllers=around.controllers
        ),
        preferences=policies.preferences,
        min_values=policies.min_values,
        devices=policies.devices,
        reservation_label=reservation_label,
        hostname_domains=policies.hostname_domains,
        most_of_one=_most_of_one(snapshot),
        groups=snapshot.minima,
        topology=snapshot.topology,
    )
    return Gathered(world, tuple(unreadable))


def storage_of(around: Surroundings) -> Storage:
    """What is known of volumes."""
    return Storage(
        claims=around.claims, volumes=around.volumes, classes=around.classes, attach_limits=around.attach_limits
    )


def _limits_of_no_driver(pools: Iterable[SchedulingPool], around: Surroundings) -> dict[str, Mapping[str, int]]:
    """Of new nodes on which no driver will ever run: none takes a volume of those that must be there. Cost: O(types)."""
    none = dict.fromkeys(around.required_drivers, 0)
    kinds = {kind.name for pool in pools for kind in pool.instance_types}
    return {kind: {**around.attach_limits.get(kind, {}), **none} for kind in sorted(kinds)}


def _most_of_one(snapshot: Snapshot) -> dict[str, int]:
    found = {}
    for view in snapshot.pools:
        with contextlib.suppress(PoolLimitError):
            most = most_of_one(view.pool)
            if most is not None:
                found[view.pool.metadata.name] = most
    return found


def without(snapshot: Snapshot, claims: Collection[str]) -> tuple[Snapshot, tuple[Pod, ...]]:
    """The instant as if these claims had never been made, and the pods that wait for them; none where none has a node to come.

    Other claims that have no node yet are no place to go either: they may wait for the same.
    """
    rest, pods = taken_back(snapshot, claims)
    there = tuple(view for view in rest.nodes if view.claim is None or view.claim.status.provider_id)
    return replace(rest, nodes=there), pods


def taken_back(snapshot: Snapshot, claims: Collection[str]) -> tuple[Snapshot, tuple[Pod, ...]]:
    """The instant as if these claims had never been made, and the pods that wait for them, by age."""
    gone = [view for view in snapshot.nodes if view.claim is not None and view.claim.name in claims]
    keys = {view.key for view in gone}
    charges: dict[str, Resources] = {}
    for view in gone:
        charges[view.pool] = charges.get(view.pool, EMPTY) + view.charge
    rest = replace(
        snapshot,
        nodes=tuple(view for view in snapshot.nodes if view.key not in keys),
        pools=tuple(
            replace(view, used=view.used - charges[view.pool.metadata.name])
            if view.pool.metadata.name in charges
            else view
            for view in snapshot.pools
        ),
    )
    return rest, tuple(sorted((pod for view in gone for pod in view.assigned), key=lambda pod: (pod.created, pod.uid)))


def as_they_run(snapshot: Snapshot) -> Snapshot:
    """The instant in which pods that have a place elsewhere, and still run, count where they run alone; their room is kept all the same.

    The same where there are none. Cost: O(nodes + planned pods).
    """
    nodes = tuple(
        replace(view, assigned=tuple([pod for pod in view.assigned if not pod.node_name]))
        if any(pod.node_name for pod in view.assigned)
        else view
        for view in snapshot.nodes
    )
    return snapshot if all(map(is_, nodes, snapshot.nodes)) else replace(snapshot, nodes=nodes)


def successors(snapshot: Snapshot) -> frozenset[str]:
    """UIDs of the pods that take the place of others whose node goes: as long as they have none, a PodDisruptionBudget may hold its drain.

    Those that are planned before they are evicted, and those that wait whose owner has pods on such a node. Cost: O(nodes + waiting pods).
    """
    owners = {pod.owner.uid for node in snapshot.nodes if node.deleting for pod in node.pods if pod.owner is not None}
    waiting = (pod for pod in snapshot.waiting if pod.owner is not None and pod.owner.uid in owners)
    return frozenset([pod.uid for pod in (*waiting, *snapshot.leaving)])


def is_usable(pool: NodePool) -> bool:
    """Whether new nodes may come from this pool."""
    return closed(pool) is None


def closed(pool: NodePool) -> PoolClosed | None:
    """Why no new nodes for pods may come from this pool; None where they may."""
    if pool.metadata.deletion_timestamp is not None:
        return PoolClosed.DELETING
    if pool.spec.replicas is not None:
        return PoolClosed.STATIC
    if not is_true(pool.status.conditions, names.READY):
        return PoolClosed.NOT_READY
    return PoolClosed.PAUSED if why_not_launched(pool) else None


def why_closed(pool: NodePool, *, is_said: bool = False, cause: str = "") -> str:
    """Why a pool that should make nodes for pods makes none: why it is not Ready, or who pauses its launches; "" for every other.

    Args:
        pool: any.
        is_said: whether the words "not Ready" need not be said again.
        cause: why it is not Ready, where that is known better than from its conditions.
    """
    match closed(pool):
        case PoolClosed.NOT_READY:
            cause = cause or _not_ready(pool)
            return cause if is_said else Said(f"not Ready: {cause}")
        case PoolClosed.PAUSED:
            return why_not_launched(pool)
        case _:
            return ""


def _not_ready(pool: NodePool) -> str:
    """The cause itself, not the conditions that follow from it."""
    leaf = POOL_CONDITIONS.leaf(pool.status.conditions, pool.metadata.generation)
    return leaf.message if leaf is not None else Said("its conditions are not set yet")


def refused_by_itself(pool: NodePool, shape: PodShape, well_known: frozenset[str]) -> str:
    """Why a pool refuses a pod whatever its instance types are; "" where that is not so."""
    try:
        asked, template = node_filter(shape), template_requirements(pool)
    except (FilterError, RequirementError) as error:
        return str(error)
    taint = first_untolerated(asked.tolerations, pool.taints, asked.effects)
    if taint is not None:
        return str(Untolerated(taint))
    conflicts = [template.incompatibility(term.requirements, well_known) for term in asked.terms]
    first = next((one for one in conflicts if one is not None), None)
    return str(first) if conflicts and first is not None and all(one is not None for one in conflicts) else ""


def by_weight(pools: Iterable[NodePool]) -> list[NodePool]:
    """As people are told of them: those that are preferred first, else by name."""
    return sorted(pools, key=lambda one: (-one.spec.weight, one.name))


def ignored_annotations(pool: NodePool) -> dict[str, str]:
    """By annotation of a NodePool that nobody can read, and that is taken for absent, what is wrong with it."""
    annotations, found = pool.metadata.annotations, dict[str, str]()
    domains = annotations.get(names.HOSTNAME_DOMAINS)
    if domains is not None and not (domains.isascii() and domains.isdecimal() and len(domains) <= _MOST_DIGITS):
        found[names.HOSTNAME_DOMAINS] = Said(
            f"metadata.annotations[{names.HOSTNAME_DOMAINS}]: {domains[:64]!r} is not a whole number of 0 or more"
        )
    packing = annotations.get(names.PACKING)
    if packing is not None and packing not in _PACKINGS:
        found[names.PACKING] = Said(
            f"metadata.annotations[{names.PACKING}]: {packing[:64]!r} is neither {' nor '.join(map(repr, _PACKINGS))}"
        )
    penalty = annotations.get(names.NODE_PENALTY)
    if penalty is not None and not _DECIMAL.fullmatch(penalty):
        found[names.NODE_PENALTY] = Said(
            f"metadata.annotations[{names.NODE_PENALTY}]: {penalty[:64]!r} is not a decimal number from 0 to 9999, "
            "such as 0.01"
        )
    return found


def _pool(
    view: PoolView,
    types: tuple[InstanceType, ...],
    policies: Policies,
    unreadable: list[UnreadablePool],
    nodes: Sequence[NodeView],
    priced: PricedTypes,
) -> list[SchedulingPool]:
    try:
        most = spending_limit(view.pool)
        most_of_one(view.pool)
        requirements = template_requirements(view.pool)
        remaining = view.left
    except (RequirementError, QuantityError, PoolLimitError) as error:
        unreadable.append(UnreadablePool(view.pool, str(error)))
        return []
    odd = ignored_annotations(view.pool)
    unreadable.extend(UnreadablePool(view.pool, text, left_out=False) for text in odd.values())
    given = {key: value for key, value in view.pool.metadata.annotations.items() if key not in odd}
    domains, packing, penalty = map(given.get, (names.HOSTNAME_DOMAINS, names.PACKING, names.NODE_PENALTY))
    if not policies.reserves:
        requirements = requirements.merged(_NOT_RESERVED)
    if most is not None:
        own = [one for one in nodes if one.pool == view.pool.metadata.name]
        usd = {USD: most - spent(own, {one.name: one for one in types})}
        remaining = Resources.of(usd) if remaining is None else remaining + Resources.of(usd)
        types = priced.of(view.pool.metadata.name, types, requirements)
    made = SchedulingPool(
        name=view.pool.metadata.name,
        weight=view.pool.spec.weight,
        requirements=requirements,
        taints=view.pool.taints,
        instance_types=types,
        remaining=remaining,
        template=view.pool,
        hostname_domains=None if domains is None else int(domains),
        packing=policies.packing if packing is None else Packing(packing),
        node_penalty=NODE_PENALTY if penalty is None else float(penalty),
    )
    return [made]
