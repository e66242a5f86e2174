"""Makes the `World` that scheduling is asked about from a snapshot and the provider's instance types, and logs what it had to leave out."""

from provisioner.apis.karpenter import NodePool
from provisioner.apis.node_class_providers import why_not_served
from provisioner.apis.shapes import PodShape
from provisioner.cloudprovider.types import CloudProvider, InstanceType, manages
from provisioner.scheduling.capacity.spending import PricedTypes, lowest, within
from provisioner.scheduling.problem import SpreadDefaults, World
from provisioner.scheduling.world import (
    DEFAULTS,
    Gathered,
    Policies,
    TypesUnknownError,
    refused_by_itself,
    world_of,
)
from provisioner.state.snapshot import Snapshot
from provisioner.support import logs
from provisioner.values.message import Said

_log = logs.get_logger(__name__)


class Worlds:
    """Makes the worlds of one controller; any thread."""

    def __init__(self, provider: CloudProvider, policies: Policies = DEFAULTS) -> None:
        self._provider, self._policies = provider, policies
        self._priced, self._lowest = PricedTypes(), PricedTypes(lowest)

    def of(self, snapshot: Snapshot) -> Gathered:
        """The world at this instant."""
        gathered = world_of(
            snapshot,
            self._asked,
            self._provider.well_known_labels,
            self.manages,
            self._policies,
            self._provider.reservation_label,
            self._priced,
        )
        for one in gathered.unreadable:
            text = (
                Said("Ignoring a NodePool that cannot be read")
                if one.left_out
                else Said("Ignoring an unreadable field of a NodePool")
            )
            _log.warning(text, nodepool=one.pool.metadata.name, error=one.error)
        return gathered

    def within(self, world: World, usd: float) -> World:
        """A world in which new nodes of each NodePool cost so many USD per hour at most."""
        return within(world, usd, self._lowest)

    @property
    def default_keys(self) -> frozenset[str]:
        """Labels over whose values the cluster spreads pods without constraints of their own by hard ones."""
        return SpreadDefaults(self._policies.spread).hard_keys

    @property
    def well_known_labels(self) -> frozenset[str]:
        """The provider's."""
        return self._provider.well_known_labels

    def manages(self, pool: NodePool) -> bool:
        """Whether a NodePool's node class is one of the provider's."""
        return manages(self._provider, pool.node_class_ref)

    def why_not_served(self, pool: NodePool) -> str:
        """What to say of a NodePool that is not the provider's; "" for every other."""
        return "" if self.manages(pool) else why_not_served(pool.node_class_ref, self._provider.name)

    def might_take(self, shape: PodShape, pool: NodePool) -> bool:
        """Whether a NodePool does not refuse such pods whatever its instance types are."""
        return not refused_by_itself(pool, shape, self._provider.well_known_labels)

    def types_of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The provider's instance types of a NodePool; none where it cannot tell them."""
        try:
            return self._asked(pool)
        except TypesUnknownError:
            return ()

    def _asked(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return self._provider.instance_types(pool)
        except Exception as error:
            _log.warning(
                "Ignoring a NodePool because its instance types are unknown",
                nodepool=pool.metadata.name,
                error=str(error),
            )
            raise TypesUnknownError(str(error)) from error
