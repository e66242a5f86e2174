"""Puts together what looks after EC2 instances once they are launched; one `Term` for the leader.

Interruptions, health, garbage, tags, reservations and zonal shifts; each is a module of its own beside this one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from provisioner.apis.karpenter import NodePool
from provisioner.cloudprovider.aws.access.client import Clients
from provisioner.cloudprovider.aws.access.errors import BOTOCORE_ERRORS
from provisioner.cloudprovider.aws.instances.instances import Instances
from provisioner.cloudprovider.aws.instances.inventory import Inventory
from provisioner.cloudprovider.aws.instances.orphans import sort_out
from provisioner.cloudprovider.aws.instances.partitions import PartitionHook
from provisioner.cloudprovider.aws.interruption.queue import InterruptionQueue
from provisioner.cloudprovider.aws.interruption.zonal_shift import ZonalShifts
from provisioner.cloudprovider.aws.market.unavailable_offerings import Shortages
from provisioner.cloudprovider.aws.nodeclass.reservations import ReservationBook
from provisioner.cloudprovider.aws.settings import AwsSettings
from provisioner.controllers.changes import Change
from provisioner.controllers.clouds import Parts
from provisioner.controllers.core.garbage import InstanceCollector
from provisioner.controllers.core.interruption import Interruptions
from provisioner.controllers.ec2 import health, reservations
from provisioner.controllers.ec2.interruption_queue import QueueReader
from provisioner.controllers.ec2.label_sync import PartitionSync, Relabeller, sync_capacity_types
from provisioner.controllers.ec2.tagging import TaggingController
from provisioner.controllers.ec2.zonal_shift import ZonalShiftController
from provisioner.controllers.poller import Poller
from provisioner.support.ending import stop_all
from provisioner.support.workers import Pool

_INTERRUPTING = 8
_READING = 4
STOP_SECONDS, POOLS_STOP_SECONDS = 3.0, 1.0  # within that of all controllers of EC2


@dataclass(frozen=True)
class Ec2:
    """What of EC2 day two works with; shared with those who launch.

    Attributes:
        inventory: one for all of the program, over `instances`.
        partitions: keeps Nodes waiting for their partition.
        shifts: None unless zonal shifts are followed.
        zones: names of zones by id.
        reserved: whether the feature gate ReservedCapacity is on.
    """

    aws: Clients
    settings: AwsSettings
    instances: Instances
    inventory: Inventory
    shortages: Shortages
    reservations: ReservationBook
    partitions: PartitionHook
    shifts: ZonalShifts | None = None
    zones: Callable[[], Mapping[str, str]] = dict
    reserved: bool = True


class DayTwo:
    """The controllers of one term.

    Args:
        changed: called when zonal shifts change, so that offerings are worked out anew.
    """

    def __init__(
        self,
        ec2: Ec2,
        parts: Parts,
        *,
        pools: Callable[[], Sequence[NodePool]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        cluster, writer, clock = parts.cluster, parts.writer, parts.clock
        # a pool each: a call that hangs must not hold up the others
        self._pools = (Pool(_INTERRUPTING, "interruption"), Pool(_READING, "interruption-queue"))
        self.interruptions = Interruptions(
            cluster,
            parts.taints,
            writer,
            parts.recorder,
            self._pools[0],
            clock,
            ledger=parts.ledger,
            plan=parts.plan_again,
            postponed=parts.postponed,
        )
        self._reader = (
            QueueReader(
                InterruptionQueue(ec2.aws, ec2.settings.interruption_queue),
                self.interruptions,
                cluster,
                parts.recorder,
                ec2.shortages,
                ec2.reservations,
                ec2.settings,
                self._pools[1],
                clock,
            )
            if ec2.settings.interruption_queue
            else None
        )
        self._tagging = TaggingController(
            ec2.inventory.find,
            ec2.instances.tag,
            cluster,
            writer,
            ec2.settings.cluster_name,
            clock,
            shifted=_shifted(ec2),
        )
        polls = self._polls(ec2, parts, pools, changed)
        self._pollers = [Poller(name, poll, expected=BOTOCORE_ERRORS) for name, poll in polls.items()]

    def _polls(
        self,
        ec2: Ec2,
        parts: Parts,
        pools: Callable[[], Sequence[NodePool]],
        changed: Callable[[], None],
    ) -> dict[str, Callable[[], float]]:
        cluster, client, writer, clock = parts.cluster, parts.client, parts.writer, parts.clock
        relabeller = Relabeller(cluster, client, writer)
        polls: dict[str, Callable[[], float]] = {
            "instance-health": health.HealthPoller(
                partial(health.read_statuses, ec2.aws),
                self.interruptions,
                cluster,
                parts.recorder,
                ec2.settings,
                clock,
            ).poll,
            "instance-garbage": InstanceCollector(
                ec2.inventory.refresh,
                sort_out,
                lambda provider_id: parts.terminator.end_orphan(provider_id, ec2.instances.terminate),
                cluster,
                client,
                clock,
                look_again=parts.claim_again,
                orphan_after=ec2.settings.orphan_after,
                beside=parts.beside,
            ).poll,
            "placement-partition": PartitionSync(
                cluster.claims, ec2.instances.get_all, relabeller, ec2.partitions
            ).poll,
        }
        if ec2.reserved:
            polls["capacity-type"] = partial(sync_capacity_types, relabeller, ec2.inventory.listed)
            read = partial(reservations.read_reservations, ec2.aws)
            polls["capacity-blocks"] = partial(reservations.mark_expiring, read, self.interruptions, cluster, clock)
        if ec2.shifts is not None:
            polls["zonal-shift"] = ZonalShiftController(
                ec2.shifts.refresh,
                ec2.zones,
                pools,
                parts.recorder,
                can_ask=ec2.shifts.can_ask,
                changed=lambda _: changed(),
            ).poll
        return polls

    def start(self) -> None:
        self.interruptions.start()
        for one in (self._tagging, *self._pollers, self._reader):
            if one is not None:
                one.start()

    def stop(self) -> None:
        parts = (self._reader, *self._pollers, self._tagging, self.interruptions)
        stop_all((one.stop for one in parts if one is not None), STOP_SECONDS)
        stop_all((pool.close for pool in self._pools), POOLS_STOP_SECONDS)

    def heard(self, change: Change) -> None:
        self._tagging.heard(change)


def _shifted(ec2: Ec2) -> Callable[[], frozenset[str]]:
    return ec2.shifts.zones if ec2.shifts is not None else frozenset
