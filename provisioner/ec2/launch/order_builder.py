"""The order of a claim, from what its class, its catalogue and recent shortages say now."""

from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, CreateError, InsufficientCapacityError, NodeClassNotReadyError
from provisioner.cloudprovider.types import wishes_of
from provisioner.ec2.launch import orders
from provisioner.ec2.launch.orders import LaunchWorld, Order, OrderContext, later
from provisioner.ec2.launch.pace import LONGEST_WAIT, SHORT_WAIT
from provisioner.ec2.launch.userdata.inputs import has_ipv6
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.nodeclass.kept_kubelet import with_kept_kubelet
from provisioner.ec2.nodeclass.subnets import SubnetBook, addresses_of
from provisioner.ec2.settings import AwsSettings
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.message import Said

FLEXIBLE: Final = 5
"""Instance types from which on a launch counts as flexible."""

INSTANCE_TYPES_NOT_READ: Final = Said("the list of EC2 instance types has not been read yet")
_NOT_KNOWN_WAIT: Final = 2.0
_NO_TYPES: Final = "InstanceTypeResolutionFailed"
_log = logs.get_logger(__name__)


class OrderBuilder:
    """Thread-safe, and never waits; `reserved` and `best_effort` are those of `OrderContext`."""

    def __init__(
        self,
        world: LaunchWorld,
        subnets: SubnetBook,
        shortages: Shortages,
        clock: Clock,
        settings: AwsSettings,
        reserved: bool,
        best_effort: bool,
    ) -> None:
        self._world, self._subnets, self._shortages = world, subnets, shortages
        self._clock, self._settings, self._reserved, self._best_effort = clock, settings, reserved, best_effort
        self._zone_ids: dict[str, str] = {}

    def zone_id(self, zone: str) -> str:
        """The ID of a zone that a class has subnets in; "" for others."""
        return self._zone_ids.get(zone, "")

    def order_or_error(
        self, claim: NodeClaim, arounds: dict[tuple[str, str], OrderContext | CloudError]
    ) -> Order | CloudError:
        """The order of a claim, or what to tell it; `arounds` keeps what claims of one class and pool have in common."""
        key = claim.spec.node_class_ref.name, claim.pool
        if key not in arounds:
            arounds[key] = self._around(claim)
        around = arounds[key]
        if isinstance(around, CloudError):
            return around
        try:
            order = orders.order_of(claim, around)
            self._warn_of_few(claim, order)
        except InsufficientCapacityError as short:
            return self._when_short(claim, around, short)
        except CreateError as wrong:
            return later(wrong, LONGEST_WAIT)
        except Exception as defect:  # noqa: BLE001 - one claim or order that fails stops no other
            _log.exception("Failed to resolve the launch request of a NodeClaim", nodeclaim=claim.metadata.name)
            return later(CreateError(names.LAUNCH_FAILED, repr(defect)), LONGEST_WAIT)
        return order

    def _warn_of_few(self, claim: NodeClaim, order: Order) -> None:
        """Spot was wanted and on-demand is bought from few types: more would find spot. Source: spec/karpenter-aws.md 5.3."""
        wanted = wishes_of(claim)[0].requirement(names.CAPACITY_TYPE_LABEL)
        few = len(order.types) < FLEXIBLE
        if few and order.capacity_type == names.CAPACITY_ON_DEMAND and wanted.has(names.CAPACITY_SPOT):
            _log.error(
                "Launching on-demand capacity although spot is allowed; allow at least five instance types to make "
                "spot available",
                nodepool=claim.pool,
                instance_types=len(order.types),
            )

    def _around(self, claim: NodeClaim) -> OrderContext | CloudError:
        """What orders of the claim's class are made from, or why there can be none now."""
        try:
            return self._gather(claim)
        except NodeClassNotReadyError as error:
            return error
        except CreateError as error:
            return later(error, _NOT_KNOWN_WAIT)
        except Exception as error:  # noqa: BLE001 - one claim or order that fails stops no other
            if not isinstance(error, CloudError):
                _log.exception(
                    "Failed to prepare an EC2NodeClass for launches", nodeclass=claim.spec.node_class_ref.name
                )
            return later(CreateError(names.LAUNCH_FAILED, str(error)), _NOT_KNOWN_WAIT)

    def _gather(self, claim: NodeClaim) -> OrderContext:
        world, now = self._world, self._clock.now()
        node_class = with_kept_kubelet(orders.ready(claim, world.class_of(claim)), claim.metadata.annotations)
        types = world.types_for(claim, node_class)
        if not types:
            raise CreateError(_NO_TYPES, INSTANCE_TYPES_NOT_READ)
        cluster = world.cluster()
        self._zone_ids.update({one.zone: one.zone_id for one in node_class.status.subnets})
        addresses = addresses_of(node_class, ipv6=has_ipv6(node_class.kubelet, cluster))
        return OrderContext(
            node_class=node_class,
            types=types,
            cluster=cluster,
            region=self._settings.region,
            subnets={zone: chosen.id for zone, chosen in self._subnets.by_zone(node_class, now, addresses).items()},
            addresses=addresses,
            max_pods=lambda instance_type: world.max_pods(node_class, instance_type),
            kept=lambda instance_type: world.reserved(node_class, instance_type),
            efa=lambda instance_type: world.efa_launch(node_class, instance_type),
            standing=lambda offer: self._shortages.standing(offer, now),
            group=world.group_of(node_class),
            reserved=self._reserved,
            best_effort=self._best_effort,
            adjusted=world.adjusted,
        )

    def _when_short(
        self, claim: NodeClaim, around: OrderContext, short: InsufficientCapacityError
    ) -> InsufficientCapacityError:
        """The same, saying when it is worth another try: never, when no shortage stands in the way."""
        now = self._clock.now()
        offers = orders.reopening(claim, around, lambda offer: self._shortages.standing(offer, now).available)
        if not offers:
            return short
        turn = self._shortages.opens_at(offers, now)
        wait = LONGEST_WAIT if turn is None else (turn - now).total_seconds()
        return InsufficientCapacityError(
            claim.metadata.name,
            orders.why_short(offers, around),
            min(max(SHORT_WAIT, wait), LONGEST_WAIT),
            exhausted=True,
        )
