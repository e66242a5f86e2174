"""The controllers that only AWS has, put together for one term of the leader; each is a module `..._controller.py` beside what it asks."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.clouds import Base, Calls, Ends, Writers
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.ec2.access.errors import BOTOCORE_ERRORS
from provisioner.ec2.instances.label_controller import PartitionSync, Relabeller, sync_capacity_types
from provisioner.ec2.instances.orphans import sort_out
from provisioner.ec2.instances.tagging_controller import TaggingController
from provisioner.ec2.interruption import capacity_block_controller, health_controller
from provisioner.ec2.interruption.queue import InterruptionQueue
from provisioner.ec2.interruption.queue_controller import QueueReader
from provisioner.ec2.interruption.zonal_shift_controller import ZonalShiftController
from provisioner.ec2.nodeclass.controller import NodeClassContext, NodeClassController, ProfileCollector
from provisioner.ec2.nodeclass.dry_run import Rehearsal
from provisioner.ec2.nodeclass.profiles import Naming, Profiles
from provisioner.ec2.translation_controller import Translator
from provisioner.interruption.controller import Interruptions
from provisioner.lifecycle.garbage_collection import InstanceCollector
from provisioner.runtime.changes import Change, NodeClaimChanged, NodeClassChanged, NodePoolChanged
from provisioner.runtime.poller import ApiPoller
from provisioner.support.ending import stop_all
from provisioner.support.workers import KeyedQueue, WorkerPool

if TYPE_CHECKING:
    from provisioner.ec2.cloud import AwsCloud

TEMPLATES_SECONDS, LEAST_TEMPLATES_SECONDS = 3600.0, 60.0
STOP_SECONDS, POOLS_STOP_SECONDS = 3.0, 1.0  # within that of all controllers
_CLASS_WORKERS: Final = 4
_INTERRUPTING: Final = 8
_READING: Final = 4


class AwsTerm:
    """The controllers of AWS for one term: EC2NodeClasses, and what looks after instances once they are launched.

    Args:
        cloud: what lives longer than the term.
    """

    def __init__(
        self, cloud: "AwsCloud", base: Base, calls: Calls, writing: Writers, ending: Ends, ledger: BudgetLedger
    ) -> None:
        self._cloud = cloud
        cluster, writer, clock, settings = base.cluster, writing.claims, base.clock, cloud.settings
        # a pool each: a call that hangs must not hold up the others
        self._pools = (WorkerPool(_INTERRUPTING, "interruption"), WorkerPool(_READING, "interruption-queue"))
        self._interruptions = Interruptions(
            cluster,
            ending.taints,
            writer,
            base.recorder,
            self._pools[0],
            clock,
            ledger=ledger,
            plan=calls.plan_again,
            postponed=ending.live.postponed,
        )
        self._reader = (
            QueueReader(
                InterruptionQueue(cloud.aws, settings.interruption_queue),
                self._interruptions,
                cluster,
                base.recorder,
                cloud.shortages,
                cloud.reservations,
                settings,
                self._pools[1],
                clock,
            )
            if settings.interruption_queue
            else None
        )
        self._tagging = TaggingController(
            cloud.inventory.find,
            cloud.instances.tag,
            cluster,
            writer,
            settings.cluster_name,
            clock,
            shifted=cloud.shifts.zones if cloud.shifts is not None else frozenset,
        )
        profiles = Profiles(cloud.aws, Naming(settings.cluster_name, settings.region), clock.now)
        self._classes = self._node_classes(base, writing, profiles)
        polls = self._polls(base, calls, writing, ending, profiles)
        self._pollers = [ApiPoller(name, poll, expected=BOTOCORE_ERRORS) for name, poll in polls.items()]

    def _node_classes(self, base: Base, writing: Writers, profiles: Profiles) -> KeyedQueue:
        cloud, settings = self._cloud, self._cloud.settings
        rehearsal = Rehearsal(
            cloud.aws,
            settings.region,
            cloud.market.types,
            cloud.discovery.placement_group,
            cloud.templates,
            base.clock.now,
            reserved=cloud.reserves,
        )
        controller = NodeClassController(
            base.client,
            NodeClassContext(
                node_class=cloud.node_class,
                claims=base.cluster.claims,
                pools=base.caches.pools.store.list,
                cluster=cloud.facts.cluster,
            ),
            cloud.discovery,
            profiles,
            cloud.templates,
            rehearsal if settings.dry_run_validation else None,
            writing.claims,
            base.recorder,
            base.clock,
            subnet_refresh=settings.subnet_refresh.total_seconds(),
            isolated_vpc=settings.isolated_vpc,
            reserved=cloud.reserves,
        )
        return KeyedQueue("nodeclass", controller.reconcile, base.clock, workers=_CLASS_WORKERS)

    def _polls(
        self, base: Base, calls: Calls, writing: Writers, ending: Ends, profiles: Profiles
    ) -> dict[str, Callable[[], float]]:
        cloud, settings = self._cloud, self._cloud.settings
        cluster, client, recorder, clock = base.cluster, base.client, base.recorder, base.clock
        relabeller = Relabeller(cluster, writing.claims)
        polls: dict[str, Callable[[], float]] = {
            "launch-templates": self._clean_templates,
            "instance-health": health_controller.HealthPoller(
                partial(health_controller.read_statuses, cloud.aws),
                self._interruptions,
                cluster,
                recorder,
                settings,
                clock,
            ).poll,
            "instance-garbage": InstanceCollector(
                cloud.inventory.refresh,
                sort_out,
                lambda provider_id: ending.terminator.end_orphan(provider_id, cloud.instances.terminate),
                cluster,
                client,
                writing.claims,
                clock,
                look_again=calls.claim_again,
                orphan_after=settings.orphan_after,
                beside=base.caches.beside,
            ).poll,
            "placement-partition": PartitionSync(
                cluster.claims, cloud.instances.get_all, relabeller, cloud.partitions
            ).poll,
        }
        if cloud.reserves:
            polls["capacity-type"] = partial(sync_capacity_types, relabeller, cloud.inventory.listed)
            read = partial(capacity_block_controller.read_reservations, cloud.aws)
            polls["capacity-blocks"] = partial(
                capacity_block_controller.mark_expiring, read, self._interruptions, cluster, clock
            )
        if cloud.shifts is not None:
            polls["zonal-shift"] = ZonalShiftController(
                cloud.shifts.refresh,
                cloud.zones,
                base.caches.pools.store.list,
                recorder,
                can_ask=cloud.shifts.can_ask,
                changed=lambda _: calls.plan_again("zonal shift"),
            ).poll
        if settings.translate_provisioners:
            polls["provisioners"] = Translator(
                client, recorder, clock, settings.system_namespace, settings.cluster_name, base.caches.beside
            ).poll
        if not settings.isolated_vpc:
            polls["profile-garbage"] = ProfileCollector(client, profiles).poll
        return polls

    def start(self) -> None:
        """Begin with every class."""
        self._classes.start()
        self._classes.add_all(one.name for one in self._cloud.classes())
        for one in (self._interruptions, self._tagging, *self._pollers, self._reader):
            if one is not None:
                one.start()

    def stop(self) -> None:
        """Finish what is under way."""
        parts = (self._reader, *self._pollers, self._tagging, self._interruptions, self._classes)
        stop_all((one.stop for one in parts if one is not None), STOP_SECONDS)
        stop_all((pool.close for pool in self._pools), POOLS_STOP_SECONDS)

    def heard(self, change: Change) -> None:
        self._tagging.heard(change)
        for name in classes_concerned(change):
            if self._cloud.node_class(name) is not None:
                self._classes.add(name)

    def _clean_templates(self) -> float:
        self._cloud.templates.clean([one.name for one in self._cloud.classes()])
        retention = self._cloud.settings.template_retention.total_seconds()
        return min(TEMPLATES_SECONDS, max(LEAST_TEMPLATES_SECONDS, retention / 4))


def classes_concerned(change: Change) -> tuple[str, ...]:
    """The classes to look at again after an event: its own; that of a pool that changed; that of a claim that is gone."""
    match change:
        case NodeClassChanged(new=EC2NodeClass(metadata=meta)):
            return (meta.name,)
        case NodePoolChanged(old=NodePool(metadata=before), new=NodePool(metadata=after)) if (
            before.generation == after.generation
        ):
            return ()
        case NodePoolChanged(latest=pool):
            return (pool.node_class_ref.name,)
        case NodeClaimChanged(old=NodeClaim() as claim, new=None):
            return (claim.spec.node_class_ref.name,)
        case _:
            return ()
