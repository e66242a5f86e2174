"""Follows zonal shifts, and tells the NodePools that they concern. Source: spec/karpenter-aws.md 3.8."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool, requirements_of
from provisioner.ec2 import labels
from provisioner.kube.events import Recorder
from provisioner.runtime.object_reference import reference_of
from provisioner.support import logs
from provisioner.values.message import EventMessage
from provisioner.values.requirement import RequirementError, Requirements

POLL_SECONDS = 30.0
#: The cluster is known a moment after the start, and nothing should be launched in a shifted zone meanwhile.
UNKNOWN_SECONDS = 1.0
_log = logs.get_logger(__name__)


def may_use(pool: NodePool, zone: str, zone_id: str) -> bool:
    """Whether the pool's requirements allow instances in a zone; "" for a zone's name where it is unknown. Pure."""
    try:
        wanted = requirements_of(pool.spec.template.spec.requirements).merged(Requirements.from_labels(pool.labels))
    except RequirementError:
        return False
    return (not zone or wanted.requirement(names.ZONE_LABEL).has(zone)) and wanted.requirement(labels.ZONE_ID).has(
        zone_id
    )


def _zonal_shift_active(zone: str, zone_id: str) -> EventMessage:
    return EventMessage(
        "Warning",
        "ZonalShiftActive",
        f"{zone} ({zone_id}): no instances are launched in this zone until the zonal shift ends",
    )


def _zonal_shift_cleared(zone: str, zone_id: str) -> EventMessage:
    return EventMessage(
        "Normal",
        "ZonalShiftCleared",
        f"{zone} ({zone_id}): the zonal shift has ended; instances are launched in this zone again",
    )


class ZonalShiftController:
    """Asks ARC every half minute.

    Args:
        refresh: asks, and says which zone ids are shifted now.
        zones: names of zones by id.
        can_ask: whether it is known which cluster to ask about; it is looked at every second until then.
        changed: called with the zones that are shifted now, when they are others than before.
    """

    def __init__(
        self,
        refresh: Callable[[], Iterable[str]],
        zones: Callable[[], Mapping[str, str]],
        pools: Callable[[], Sequence[NodePool]],
        recorder: Recorder,
        *,
        can_ask: Callable[[], bool] = lambda: True,
        changed: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        self._can_ask = can_ask
        self._refresh, self._zones, self._pools = refresh, zones, pools
        self._recorder, self._changed = recorder, changed
        self._shifted: frozenset[str] = frozenset()

    def poll(self) -> float:
        """Ask once; seconds until the next time.

        Raises:
            Exception: ARC did not answer; what it said last goes on.
        """
        if not self._can_ask():
            return UNKNOWN_SECONDS
        shifted = frozenset(self._refresh())
        begun, ended = shifted - self._shifted, self._shifted - shifted
        self._shifted = shifted
        for zone in sorted(begun):
            self._publish(zone, _zonal_shift_active)
        for zone in sorted(ended):
            self._publish(zone, _zonal_shift_cleared)
        if begun or ended:
            _log.info("Zonal shifts changed", shifted=sorted(shifted))
            self._changed(shifted)
        return POLL_SECONDS

    def _publish(self, zone_id: str, message: Callable[[str, str], EventMessage]) -> None:
        zone = self._zones().get(zone_id, "")
        for pool in self._pools():
            if may_use(pool, zone, zone_id):
                self._recorder.publish(reference_of(pool), *message(zone or "Zone", zone_id))
