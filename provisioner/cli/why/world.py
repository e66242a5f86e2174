"""The cluster as the provisioner would see it, made in this process from objects that were read once."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodePool
from provisioner.apis.node_class_providers import provider_of, why_never_looked_at
from provisioner.apis.pods import Pod
from provisioner.cli.why.gathering import WhyObjects
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.overlays import Overlays
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.candidates import REPLACES
from provisioner.disruption.controller import settings_of
from provisioner.disruption.forceful.repair import RepairDecision
from provisioner.disruption.loops import LoopHolds, Loops
from provisioner.disruption.view import VALIDATION, DisruptionView
from provisioner.ec2 import labels
from provisioner.kube import resources
from provisioner.kube.resources import Resource
from provisioner.operator.kwok import kwok_catalogue
from provisioner.options import Options
from provisioner.provisioning.provisioner import policies_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.world import world_of
from provisioner.state.cluster import Cluster
from provisioner.state.gang_places import GangStanding
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.pause import Activity, Pause, pause_of
from provisioner.state.snapshot import Snapshot
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.state.types_by_pool import TypesByPool
from provisioner.support.clock import Clock, SystemClock
from provisioner.values.errors import UserError
from provisioner.values.printable import listed
from provisioner.values.quantity import QuantityError
from provisioner.why.instant import NO_MEMORY, Memory
from provisioner.why.nodes import still_at

_MOST_NAMED = 5
_AROUND: Final[tuple[tuple[Resource[Any], Any], ...]] = (
    (resources.NAMESPACE_LABELS, SurroundingsKeeper.namespace_changed),
    (resources.STORAGECLASSES, SurroundingsKeeper.class_changed),
    (resources.PVS, SurroundingsKeeper.volume_changed),
    (resources.PVCS, SurroundingsKeeper.claim_changed),
)


class At(SystemClock):
    """A clock that shows one instant; durations are as they pass."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self._at = at

    def now(self) -> datetime:
        return self._at


class LocalTypes:
    """Instance types of NodePools, as far as this machine knows them: kwok's, and EC2's where there are credentials.

    Attributes:
        why_not: why those of EC2 are not known; "" where nobody needs them, or they are.
    """

    def __init__(self, options: Options, objects: WhyObjects, clock: Clock) -> None:
        self._catalogue: Final = kwok_catalogue(options) or catalogue.generated()
        self.well_known_labels: frozenset[str] = names.WELL_KNOWN_LABELS | self._catalogue.well_known_labels
        self.reservation_label = ""
        self.why_not = ""
        self._ec2: Callable[[str], tuple[InstanceType, ...]] | None = None
        self._overlaid: Callable[[NodePool], tuple[InstanceType, ...]] = self._of
        if options.feature_gates.node_overlay:
            overlays = Overlays(lambda: objects.of(resources.NODEPOOLS), clock)
            for one in objects.of(resources.NODEOVERLAYS):
                overlays.changed(None, one)
            self._overlaid = overlays.over(self._of)
        if any(provider_of(one.node_class_ref) == "aws" for one in objects.of(resources.NODEPOOLS)):
            self.well_known_labels |= labels.WELL_KNOWN
            self.reservation_label = labels.RESERVATION_ID
            try:
                self._ec2 = _ec2_types(options, objects, clock)
            except UserError as error:
                self.why_not = str(error)

    def types_of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The instance types of one pool, under the NodeOverlays in force; none where they are not known."""
        return self._overlaid(pool)

    def _of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        if provider_of(pool.node_class_ref) == "aws":
            return self._ec2(pool.node_class_ref.name) if self._ec2 is not None else ()
        return self._catalogue.types if self.manages(pool) else ()

    def manages(self, pool: NodePool) -> bool:
        """Whether its instance types are known."""
        provider = provider_of(pool.node_class_ref)
        return provider == "kwok" or (provider == "aws" and self._ec2 is not None)

    def why_not_served(self, pool: NodePool) -> str:
        """Which provider runs is not known here: of a NodePool that none has looked at yet, which should have."""
        return "" if pool.status.conditions else why_never_looked_at(pool.node_class_ref)


def _ec2_types(options: Options, objects: WhyObjects, clock: Clock) -> Callable[[str], tuple[InstanceType, ...]]:
    """The instance types by name of an EC2NodeClass.

    Raises:
        UserError: they are not known here.
    """
    from provisioner.cli.why.ec2 import market_of  # noqa: PLC0415 - boto3 is big, kwok needs none of it

    classes: dict[str, EC2NodeClass] = {one.name: one for one in objects.of(resources.EC2NODECLASSES)}
    market = market_of(options, clock, objects.of(resources.NODECLAIMS))

    @functools.cache
    def types_of(name: str) -> tuple[InstanceType, ...]:
        try:
            return market.types(classes[name]) if name in classes else ()
        except (CloudError, QuantityError) as error:
            objects.missing.append(f"The instance types of EC2NodeClass {name} are not known: {error}")
            return ()

    return types_of


SECONDS: Final = 30.0
"""Longest time of the plan."""


@dataclass(frozen=True)
class Local:
    """One instant of a cluster, ready for questions; a `why.instant.Instant`.

    Attributes:
        cluster: the state that the snapshot is of.
        options: the provisioner's flags, as far as they were given.
    """

    objects: WhyObjects
    cluster: Cluster
    snapshot: Snapshot
    types: LocalTypes
    options: Options

    @functools.cached_property
    def prepared(self) -> Prepared:
        """The world of the instant. Cost: O(nodes + pods)."""
        gathered = world_of(
            self.snapshot,
            self.types.types_of,
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
    def pause(self) -> Pause:
        """What is paused."""
        mine = (
            one.data
            for one in self.objects.of(resources.CONFIGMAPS)
            if (one.metadata.namespace, one.metadata.name) == (self.options.system_namespace, names.SETTINGS_CONFIGMAP)
        )
        return pause_of((one.pool for one in self.snapshot.pools), next(mine, {}))

    @property
    def loops(self) -> LoopHolds:
        """Whose nodes are left alone for a loop, as far as NodeClaims tell."""
        loops, at = Loops(), self.snapshot.at
        for claim in self.objects.of(resources.NODECLAIMS):
            loops.saw(claim, at)
        return loops.holds(at)

    @property
    def memory(self) -> Memory:
        """None: nobody here remembers anything."""
        return NO_MEMORY

    @property
    def seconds(self) -> float:
        """Longest time of one plan."""
        return SECONDS

    def view(self, key: str) -> DisruptionView:
        """What the methods of disruption look at."""
        snapshot = self.snapshot
        ledger = self.budgets()
        commands = [one.record for one in snapshot.commands]
        replacing = dict.fromkeys((name for one in commands for name in one.replacement_names), REPLACES)
        still = ((one.key.name, still_at(one)) for one in snapshot.nodes)
        return DisruptionView(
            snapshot=snapshot,
            prepared=self.prepared,
            allowed=ledger.allowed,
            why_none=ledger.why_none,
            ceiling=ledger.ceiling(),
            empty_for={one.key.name: VALIDATION for one in snapshot.nodes},
            under_way=frozenset().union(*(one.candidate_names for one in commands)),
            spared=replacing,
            pause=self.pause,
            first=frozenset({key}),
            settings=settings_of(self.options),
            loops=self.loops,
            restless={name: until for name, until in still if until > snapshot.at},
            types_of=lambda pool: self.types.types_of(pool) if self.types.manages(pool) else (),
        )

    def budgets(self) -> AllowanceLedger:
        """What disruption budgets leave."""
        return AllowanceLedger(self.snapshot, most=self.options.max_disrupting_nodes)

    @property
    def repairs(self) -> RepairDecision:
        """Not known: repair policies are the provisioner's."""
        return RepairDecision()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """One pod."""
        found = (one for one in self.objects.of(resources.PODS) if isinstance(one, Pod))
        return next((one for one in found if (one.namespace, one.name) == (namespace, name)), None)

    def node(self, name: str) -> Node | None:
        """One Node."""
        return self._nodes.get(name)

    @functools.cached_property
    def _nodes(self) -> dict[str, Node]:
        return {one.metadata.name: one for one in self.objects.of(resources.NODES) if isinstance(one, Node)}

    def gang(self, key: str) -> GangStanding | None:
        """One gang."""
        return self.cluster.gang_standing(key)

    def attached(self, node: str) -> tuple[str, ...]:
        """Volumes that are attached to a Node."""
        mine = (one for one in self.objects.of(resources.VOLUMEATTACHMENTS) if one.spec.node_name == node)
        return tuple(sorted({one.spec.source.persistent_volume_name or one.metadata.name for one in mine}))

    def held_back(self, prices: Sequence[float]) -> Sequence[str]:
        """What pauses launches; of limits nobody knows here."""
        return [self.pause.why("", Activity.LAUNCH)] * len(prices)

    @property
    def usd_left(self) -> float:
        """Nobody knows here."""
        return math.inf

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read, or is not known here."""
        unknown = [one.pool for one in self.snapshot.pools if not self.types.manages(one.pool)]
        why = f" ({self.types.why_not})" if self.types.why_not else ""
        unread = dict.fromkeys((*self.objects.missing, *self.objects.absent))
        return (*unread, *((_unknown(unknown, why),) if unknown else ()))


def local(objects: WhyObjects, options: Options, at: datetime) -> Local:
    """The cluster at one instant, from its objects. Cost: O(objects)."""
    clock = At(at)
    types = LocalTypes(options, objects, clock)
    pools = {one.name: one for one in objects.of(resources.NODEPOOLS)}
    by_pool = TypesByPool(pools.get, types.types_of)

    # kind by kind, as in `plan.questions`, where Nodes, NodeClaims and pods are changed on the way
    cluster = Cluster(
        by_pool.of_claim,
        clock,
        hold_ttl=options.timeouts.hold,
        plan_ttl=options.timeouts.plan,
        driver_grace=timedelta(0),
    )
    for resource, take in _AROUND:
        for one in objects.of(resource):
            cluster.surrounding_changed(functools.partial(_told, take, one))
    for one in objects.of(resources.CSIDRIVERS):
        cluster.csi_driver_changed(None, one)
    for one in objects.of(resources.CSINODES):
        cluster.csi_node_changed(None, one)
    for resource in (resources.LIMITRANGES, resources.RUNTIMECLASSES, resources.PRIORITYCLASSES):
        for one in objects.of(resource):
            cluster.admission_changed(None, one)
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
    for source, kind in resources.GROUP_KINDS.items():
        cluster.pod_groups_known(objects.pod_groups[source], source)
        for one in objects.of(kind):
            cluster.pod_group_changed(None, one)
    for one in objects.of(resources.AUTOSCALERS):
        cluster.autoscaler_changed(None, one)
    for one in objects.of(resources.PODS):
        cluster.pod_changed(None, one)
    jobs = {(one.metadata.namespace, one.metadata.name): one for one in objects.of(resources.JOBS)}
    for gang in cluster.gang_jobs():
        found = jobs.get((gang.namespace, gang.name))
        if found is not None or (gang.namespace, gang.name) in objects.gone_jobs:
            cluster.gang_job_read(gang.key, gang.says(found))
    cluster.settle()
    cluster.predictions_known(KindKnowledge.READ if options.vpa_predictions else KindKnowledge.NOT_SERVED)
    return Local(objects, cluster, cluster.snapshot(), types, options)


def _told(take: Any, one: Any, keeper: SurroundingsKeeper) -> None:
    take(keeper, None, one)


def _unknown(pools: Sequence[NodePool], why: str) -> str:
    classes = sorted({f"{one.node_class_ref.kind} {one.node_class_ref.name}" for one in pools})
    names = listed((one.name for one in pools), _MOST_NAMED)
    return (
        f"The instance types of {listed(classes, _MOST_NAMED)} are not known here{why}, so the answer leaves out new nodes of "
        f"{'NodePool' if len(pools) == 1 else 'NodePools'} {names} and the prices of {'its' if len(pools) == 1 else 'their'} nodes; "
        "the event FailedScheduling of a pod says what the provisioner found"
    )
