"""In which zones pending pods may run: a count by zone shows that pods wait for a zone with an outage, or for the zone of their volume."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from provisioner.apis.attachments import VolumeError
from provisioner.apis.names import ZONE_LABEL
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.constraints.demands import facts_of
from provisioner.scheduling.constraints.filters import FilterError, NodeFilter
from provisioner.scheduling.constraints.volumes import volume_demand
from provisioner.scheduling.problem import World

FLEXIBLE: Final = "flexible"
NO_ZONE: Final = "none"


def pending_by_zone(world: World, pods: Iterable[Pod]) -> Mapping[str, int]:
    """How many pods can run in one zone only, by that zone; `FLEXIBLE` for several, `NO_ZONE` for none.

    A zone is one that some pool offers or some node is in. Cost: one look a shape, for pods with volumes one a pod.

    Source: Karpenter 1.14, `karpenter_scheduler_pending_pods_by_effective_zone_count`.
    Differs: node selectors, node affinity and volumes decide; spread and pod affinity do not, since what they leave depends
        on what the other pods get.
    """
    zones = sorted(
        {
            offering.zone
            for types in {id(pool.instance_types): pool.instance_types for pool in world.pools}.values()
            for one in types
            for offering in one.offerings
            if offering.launchable
        }
        | {one.labels.get(ZONE_LABEL, "") for one in world.bins if not one.leaving}
    )
    known = [zone for zone in zones if zone]
    found: Counter[str] = Counter()
    shapes: dict[PodShape, str] = {}
    for pod in pods:
        zone = shapes.get(pod.shape)
        if zone is None:
            try:
                asked = facts_of(pod.shape).filter
                if pod.shape.volumes:
                    asked = asked.narrowed(volume_demand(pod, world.storage).alternatives)
                zone = _effective(asked, known)
            except (FilterError, VolumeError):
                zone = NO_ZONE
            if not pod.shape.volumes:
                shapes[pod.shape] = zone
        found[zone] += 1
    return found


def _effective(asked: NodeFilter, zones: Iterable[str]) -> str:
    if asked.unconditional:
        return FLEXIBLE
    wanted = [term.requirements.requirement(ZONE_LABEL) for term in asked.terms]
    allowed = [zone for zone in zones if any(one.has(zone) for one in wanted)]
    if len(allowed) > 1:
        return FLEXIBLE
    return allowed[0] if allowed else NO_ZONE
