"""The controllers that only AWS has, for one term of the leader; each is a module `..._controller.py` beside what it asks."""

from functools import partial
from typing import TYPE_CHECKING, Final

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.ec2.access.errors import BOTOCORE_ERRORS
from provisioner.ec2.instances.label_controller import PartitionSync, Relabeller, sync_capacity_types
from provisioner.ec2.instances.orphans import sort_out
from provisioner.ec2.instances.tagging_controller import DELAY_SECONDS, TaggingController, is_due
from provisioner.ec2.interruption import capacity_block_controller, health_controller
from provisioner.ec2.interruption.queue import InterruptionQueue
from provisioner.ec2.interruption.queue_controller import QueueReader
from provisioner.ec2.interruption.zonal_shift_controller import ZonalShiftController
from provisioner.ec2.nodeclass.controller import NodeClassContext, NodeClassController, ProfileCollector
from provisioner.ec2.nodeclass.dry_run import Rehearsal
from provisioner.ec2.nodeclass.profiles import Naming, Profiles
from provisioner.ec2.nodeclass.validation import ClassGates
from provisioner.ec2.translation_controller import Translator
from provisioner.interruption.controller import Interruptions
from provisioner.lifecycle.garbage_collection import InstanceCollector
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.changes import Change, NodeClaimChanged, NodeClassChanged, NodePoolChanged
from provisioner.runtime.controller import Controller, Keys
from provisioner.support.workers import WorkerPool
from provisioner.termination.ends import Ends

if TYPE_CHECKING:
    from provisioner.ec2.cloud import AwsCloud

_TEMPLATES_SECONDS: Final = 3600.0
_CLASS_WORKERS: Final = 4
_INTERRUPTING: Final = 8
_READING: Final = 4


def controllers(
    cloud: "AwsCloud", base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger
) -> list[Controller]:
    """EC2NodeClasses, and what looks after instances once they are launched; `cloud` lives longer than the term."""
    cluster, settings = base.cluster, cloud.settings
    profiles = Profiles(cloud.aws, Naming(settings.cluster_name, settings.region), base.clock.now)
    classes = _node_classes(cloud, base, writing, profiles)
    # a pool each: a call that hangs must not hold up the others
    interrupting, reading = WorkerPool(_INTERRUPTING, "interruption"), WorkerPool(_READING, "interruption-queue")
    interruptions = Interruptions(
        cluster,
        ending.taints,
        writing.claims,
        base.recorder,
        interrupting,
        base.clock,
        ledger=ledger,
        plan=base.plan_again,
        postponed=ending.live.postponed,
    )
    tagging = TaggingController(
        cloud.inventory.find,
        cloud.instances.tag,
        cluster,
        writing.claims,
        settings.cluster_name,
        base.clock,
        shifted=cloud.shifts.zones if cloud.shifts is not None else frozenset,
    )

    def tagged(change: NodeClaimChanged) -> Keys:
        """A claim whose Node has joined."""
        return ((change.new.name, DELAY_SECONDS),) if change.new is not None and is_due(change.new) else ()

    def concerned(change: Change) -> Keys:
        return [name for name in classes_concerned(change) if cloud.node_class(name) is not None]

    rows = [
        Controller(runner=cloud.keeper.poller, initial=cloud.keeper.begin),
        Controller(
            name="nodeclass",
            reconcile=classes.reconcile,
            workers=_CLASS_WORKERS,
            watches=dict.fromkeys((NodeClassChanged, NodePoolChanged, NodeClaimChanged), concerned),
            initial=lambda: [one.name for one in cloud.classes()],
        ),
        Controller(runner=interruptions.poller, pools=(interrupting,)),
        Controller(
            name="nodeclaim.tagging",
            reconcile=tagging.reconcile,
            watches={NodeClaimChanged: tagged},
            initial=lambda: [claim.name for claim in cluster.claims() if is_due(claim)],
        ),
        *_polls(cloud, base, writing, ending, interruptions, profiles),
    ]
    if settings.interruption_queue:
        reader = QueueReader(
            InterruptionQueue(cloud.aws, settings.interruption_queue),
            interruptions,
            cluster,
            base.recorder,
            cloud.shortages,
            settings,
            reading,
            base.clock,
        )
        rows.append(Controller(runner=reader.poller, waited=False, pools=(reading,)))
    return rows


def _node_classes(cloud: "AwsCloud", base: Base, writing: Writers, profiles: Profiles) -> NodeClassController:
    settings = cloud.settings
    rehearsal = Rehearsal(
        cloud.aws,
        settings.region,
        cloud.market.types,
        cloud.discovery.placement_group,
        cloud.templates,
        base.clock.now,
        reserved=cloud.reserves,
    )
    return NodeClassController(
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
        gates=ClassGates(settings.gates.nodeclass_cel, settings.gates.dra_nvidia_gpu),
        formula_problem=cloud.market.formula_problem,
    )


def _polls(
    cloud: "AwsCloud", base: Base, writing: Writers, ending: Ends, interruptions: Interruptions, profiles: Profiles
) -> list[Controller]:
    settings, cluster, client = cloud.settings, base.cluster, base.client
    recorder, clock = base.recorder, base.clock
    relabeller = Relabeller(cluster, writing.claims)

    def clean_templates() -> float:
        cloud.templates.clean([one.name for one in cloud.classes()])
        return _TEMPLATES_SECONDS

    polls = {
        "launch-templates": clean_templates,
        "interruption.instancestatus": health_controller.HealthPoller(
            partial(health_controller.read_statuses, cloud.aws), interruptions, cluster, recorder, settings, clock
        ).poll,
        "instance.garbagecollection": InstanceCollector(
            cloud.inventory.refresh,
            sort_out,
            lambda provider_id: ending.terminator.end_orphan(provider_id, cloud.instances.terminate),
            cluster,
            client,
            writing.claims,
            clock,
            look_again=base.claim_again,
            orphan_after=settings.orphan_after,
            beside=base.caches.beside,
        ).poll,
        "placement-partition": PartitionSync(
            cluster.claims, cloud.instances.get_all, relabeller, cloud.partitions
        ).poll,
    }
    if cloud.reserves:
        polls["capacityreservation.capacitytype"] = partial(sync_capacity_types, relabeller, cloud.inventory.listed)
        read = partial(capacity_block_controller.read_reservations, cloud.aws)
        polls["capacityreservation.expiration"] = partial(
            capacity_block_controller.mark_expiring, read, interruptions, cluster, clock
        )
    if cloud.shifts is not None:
        polls["zonalshift"] = ZonalShiftController(
            cloud.shifts.refresh,
            cloud.zones,
            base.caches.pools.store.list,
            recorder,
            can_ask=cloud.shifts.can_ask,
            changed=lambda _: base.plan_again("zonal shift"),
        ).poll
    if settings.translate_provisioners:
        polls["provisioners"] = Translator(
            client, recorder, clock, settings.system_namespace, settings.cluster_name, base.caches.beside
        ).poll
    if not settings.isolated_vpc:
        polls["instanceprofile.garbagecollection"] = ProfileCollector(client, profiles).poll
    return [Controller(name=name, poll=poll, expected=BOTOCORE_ERRORS) for name, poll in polls.items()]


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
