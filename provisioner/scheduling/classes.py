"""From pods to classes: equal pods are judged once, in an order that does not depend on the order of input."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.filters import FilterError, NodeFilter, node_filter
from provisioner.scheduling.reasons import PodGated, PodInvalid, Reason, UnsupportedConstraint
from provisioner.values.resources import CPU, MEMORY, Resources


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """Equal pods, in the order in which they get places: by age, then UID."""

    shape: PodShape
    filter: NodeFilter
    pods: tuple[Pod, ...]

    @property
    def requests(self) -> Resources:
        """Of one pod."""
        return self.shape.requests


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """Equal pods that are not tried, and why."""

    shape: PodShape
    pods: tuple[Pod, ...]
    reason: Reason


def sort_key(shape: PodShape) -> tuple[int, int, int, str]:
    """Order of classes: priority, then cpu, then memory, each descending; then the class key."""
    return -shape.priority, -shape.requests.amount(CPU), -shape.requests.amount(MEMORY), shape.key


def classify(pods: Iterable[Pod]) -> tuple[list[PodClass], list[LeftOut]]:
    """Group pods by class, in order of `sort_key`; apart, those that cannot be tried.

    Cost: O(pods) hashing of interned class keys, O(classes log classes).
    """
    by_shape: dict[tuple[str, bool], list[Pod]] = {}
    for pod in pods:
        by_shape.setdefault((pod.shape.key, pod.gated), []).append(pod)
    classes: list[PodClass] = []
    left_out: list[LeftOut] = []
    for (_, gated), members in by_shape.items():
        shape = members[0].shape
        members.sort(key=_age)
        judged = PodGated() if gated else _judge(shape)
        if isinstance(judged, NodeFilter):
            classes.append(PodClass(shape, judged, tuple(members)))
        else:
            left_out.append(LeftOut(shape, tuple(members), judged))
    classes.sort(key=lambda one: sort_key(one.shape))
    left_out.sort(key=lambda one: (sort_key(one.shape), str(one.reason)))
    return classes, left_out


def unsupported(shape: PodShape) -> str:
    """The first field of a pod that asks for something this package does not judge; "" where there is none.

    Preferences never count: a pod may be placed against them.
    """
    affinity = shape.affinity
    if affinity is not None:
        together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
        if together is not None and together.required:
            return "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        if apart is not None and apart.required:
            return "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if any(spread.when_unsatisfiable != "ScheduleAnyway" for spread in shape.spread):
        return "spec.topologySpreadConstraints[whenUnsatisfiable: DoNotSchedule]"
    if shape.host_ports:
        return f"spec.containers.ports[hostPort: {shape.host_ports[0].host_port}]"
    for volume in shape.volumes:
        kind = "ephemeral" if volume.persistent_volume_claim is None else "persistentVolumeClaim"
        return f"spec.volumes[{volume.name}].{kind}"
    for claim in shape.resource_claims:
        return f"spec.resourceClaims[{claim.name}]"
    return ""


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.created, pod.uid


def _judge(shape: PodShape) -> NodeFilter | Reason:
    if shape.error:
        return PodInvalid(shape.error)
    field = unsupported(shape)
    if field:
        return UnsupportedConstraint(field)
    if any(amount < 0 for amount in shape.requests.values()):
        return PodInvalid("spec.containers.resources.requests: negative amount")
    try:
        return node_filter(shape)
    except FilterError as error:
        return PodInvalid(str(error))
