"""The cluster as the provisioner would see it, made in this process from objects that were read once."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from provisioner.apis import kwok, names
from provisioner.apis.karpenter import NodePool
from provisioner.cli.why.gathering import Objects
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType
from provisioner.controllers.clouds import TypesByPool, kwok_catalogue
from provisioner.controllers.core.provisioning import policies_of
from provisioner.kube import resources
from provisioner.kube.resources import Resource
from provisioner.options import Options
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.world import world_of
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.support.clock import SystemClock

_AROUND: Final[tuple[tuple[Resource[Any], Any], ...]] = (
    (resources.NAMESPACE_LABELS, SurroundingsKeeper.namespace_changed),
    (resources.STORAGECLASSES, SurroundingsKeeper.class_changed),
    (resources.PVS, SurroundingsKeeper.volume_changed),
    (resources.PVCS, SurroundingsKeeper.claim_changed),
)
_KWOK: Final = (kwok.GROUP, kwok.KIND)


class At:
    """A clock that shows one instant; durations are as they pass."""

    def __init__(self, at: datetime) -> None:
        self._at, self._real = at, SystemClock()

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return self._real.monotonic()

    def sleep(self, seconds: float) -> None:
        self._real.sleep(seconds)


class Types:
    """Instance types of NodePools, as far as this machine knows them: those of kwok."""

    reservation_label = ""

    def __init__(self, options: Options) -> None:
        self._catalogue: Final = kwok_catalogue(options) or catalogue.generated()
        self.well_known_labels: Final = names.WELL_KNOWN_LABELS | self._catalogue.well_known_labels

    def of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The instance types of one pool; none where they are not known."""
        return self._catalogue.types if self.manages(pool) else ()

    def manages(self, pool: NodePool) -> bool:
        """Whether its instance types are known."""
        reference = pool.node_class_ref
        return (reference.group, reference.kind) == _KWOK


@dataclass(frozen=True)
class Local:
    """One instant of a cluster, ready for questions.

    Attributes:
        objects: it was made from these.
        snapshot: the instant.
        types: of its NodePools.
        options: the provisioner's flags, as far as they were given.
    """

    objects: Objects
    snapshot: Snapshot
    types: Types
    options: Options

    @functools.cached_property
    def prepared(self) -> Prepared:
        """The world of the instant. Cost: O(nodes + pods)."""
        gathered = world_of(
            self.snapshot,
            self.types.of,
            self.types.well_known_labels,
            self.types.manages,
            policies_of(self.options),
            reservation_label=self.types.reservation_label,
        )
        self.objects.missing.extend(
            f"NodePool {one.pool.name} cannot be read: {one.error}" for one in gathered.unreadable
        )
        return prepare(gathered.world)

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read, or is not known here."""
        unknown = [one.pool for one in self.snapshot.pools if not self.types.manages(one.pool)]
        return (*self.objects.missing, *map(_unknown, unknown))


def local(objects: Objects, options: Options, at: datetime) -> Local:
    """The cluster at one instant, from its objects. Cost: O(objects)."""
    types = Types(options)
    pools = {one.name: one for one in objects.of(resources.NODEPOOLS)}
    by_pool = TypesByPool(pools.get, types.of)

    def types_of(pool: str) -> Mapping[str, InstanceType]:
        return by_pool(pool)

    cluster = Cluster(types_of, At(at), hold_ttl=options.hold_ttl, plan_ttl=options.plan_ttl)
    for resource, take in _AROUND:
        for one in objects.of(resource):
            cluster.surrounding_changed(functools.partial(_told, take, one))
    for one in objects.of(resources.CSINODES):
        cluster.csi_node_changed(None, one)
    for one in objects.of(resources.LIMITRANGES):
        cluster.limit_range_changed(None, one)
    for one in objects.of(resources.PDBS):
        cluster.budget_changed(None, one)
    for one in pools.values():
        cluster.pool_changed(None, one)
    for one in objects.of(resources.NODES):
        cluster.node_changed(None, one)
    for one in objects.of(resources.NODECLAIMS):
        cluster.claim_changed(None, one)
    for one in objects.of(resources.DAEMONSETS):
        cluster.daemonset_changed(None, one)
    for one in objects.of(resources.PODS):
        cluster.pod_changed(None, one)
    cluster.settle()
    return Local(objects, cluster.snapshot(), types, options)


def _told(take: Any, one: Any, keeper: SurroundingsKeeper) -> None:
    take(keeper, None, one)


def _unknown(pool: NodePool) -> str:
    reference = pool.node_class_ref
    return (
        f"The instance types of {reference.kind} {reference.name} are not known here, so the answer leaves out new nodes of NodePool "
        f"{pool.name} and the prices of its nodes; the event FailedScheduling of a pod says what the provisioner found"
    )
