"""VerticalPodAutoscaler, autoscaling.k8s.io/v1: what a pod of its target asks for once it is admitted again. Pure.

Source: the admission controller of vertical-pod-autoscaler 1.5 (matching by the topmost controller, capping, proportional limits).
Differs: who owns a ReplicaSet or a Job is told by its name, see `targets_of`; LimitRanges of whole pods and CPU startup boosts are not looked at.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import field
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.core import Amounts, Container, LimitRange, LimitRangeItem, PodSpec, ResourceRequirements
from provisioner.apis.meta import Object
from provisioner.apis.pods import Pod
from provisioner.values.quantity import Quantity, QuantityError

MODES: Final = frozenset({"", "Initial", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})
"""Update modes in which a new pod is given the recommendation; "" is the default. Off gives none, and what others do is not known."""
CONTROLLED: Final = (names.CPU, names.MEMORY)
"""What is recommended at all."""
_OFF: Final = "Off"
_REQUESTS_ONLY: Final = "RequestsOnly"
_EVERY_OTHER: Final = "*"
_HASHES: Final = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))
_SCHEDULED: Final = re.compile(r"(.+)-[0-9]{8,10}", re.ASCII)
"""A Job of a CronJob, which is named after its minute."""


class TargetKey(NamedTuple):
    """Whose pods a VerticalPodAutoscaler means; the API group is not compared, as there."""

    namespace: str
    kind: str
    name: str


class AutoscalerMeta(Object, frozen=True, kw_only=True):
    """What is read of the metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None


class AutoscalerTarget(Object, frozen=True, kw_only=True):
    """The controller of the pods."""

    kind: str = ""
    name: str = ""


class AutoscalerUpdates(Object, frozen=True, kw_only=True):
    """When recommendations are applied."""

    update_mode: str = ""


class ContainerScaling(Object, frozen=True, kw_only=True):
    """What one container, or every other one ("*"), may be given.

    Attributes:
        controlled_resources: None for cpu and memory.
        controlled_values: RequestsAndLimits where it is not RequestsOnly.
    """

    container_name: str = ""
    mode: str = ""
    min_allowed: Amounts = field(default_factory=dict)
    max_allowed: Amounts = field(default_factory=dict)
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str = ""


class AutoscalerPolicy(Object, frozen=True, kw_only=True):
    """What containers may be given."""

    container_policies: tuple[ContainerScaling, ...] = ()


class AutoscalerSpec(Object, frozen=True, kw_only=True):
    """Whose pods are sized, when, and within which bounds."""

    target_ref: AutoscalerTarget | None = None
    update_policy: AutoscalerUpdates = AutoscalerUpdates()
    resource_policy: AutoscalerPolicy = AutoscalerPolicy()


class ContainerRecommendation(Object, frozen=True, kw_only=True):
    """What one container should request."""

    container_name: str = ""
    target: Amounts = field(default_factory=dict)


class AutoscalerRecommendation(Object, frozen=True, kw_only=True):
    """What the containers should request."""

    container_recommendations: tuple[ContainerRecommendation, ...] = ()


class AutoscalerStatus(Object, frozen=True, kw_only=True):
    """What the recommender says; nothing until it has seen the pods for a while."""

    recommendation: AutoscalerRecommendation = AutoscalerRecommendation()


class VerticalPodAutoscaler(Object, frozen=True, kw_only=True):
    """What is read of one."""

    metadata: AutoscalerMeta = AutoscalerMeta()
    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()

    @property
    def target(self) -> TargetKey | None:
        """Whose pods it sizes when they are admitted; None for nobody's."""
        one = self.spec.target_ref
        if one is None or self.spec.update_policy.update_mode not in MODES:
            return None
        return TargetKey(self.metadata.namespace, one.kind, one.name)

    @property
    def rank(self) -> tuple[float, str]:
        """Of two for one target the lesser one counts: the older one, then by name."""
        created = self.metadata.creation_timestamp
        return created.timestamp() if created is not None else 0.0, self.metadata.name


def targets_of(pod: Pod) -> tuple[TargetKey, ...]:
    """Which controllers a VerticalPodAutoscaler of this pod may name, the topmost one first; empty for a pod without an owner.

    The state knows no ReplicaSets and Jobs: those of a Deployment (a Rollout of Argo) and of a CronJob are told by their names and the pods' labels. A
    tenant who forges these changes what is expected of his own pods, in his own namespace.
    """
    owner = pod.owner
    if owner is None:
        return ()
    if owner.kind == "ReplicaSet":
        for label, kind in _HASHES:
            ending = f"-{pod.labels.get(label, '')}"
            if len(ending) > 1 and owner.name.endswith(ending):
                return (TargetKey(pod.namespace, kind, owner.name.removesuffix(ending)),)
    own = TargetKey(pod.namespace, owner.kind, owner.name)
    if owner.kind == "Job" and (scheduled := _SCHEDULED.fullmatch(owner.name)) is not None:
        return TargetKey(pod.namespace, "CronJob", scheduled[1]), own
    return (own,)


def made_by(pod: Pod) -> TargetKey:
    """What a user made that the pod comes from, as far as `targets_of` knows: the topmost owner, or the pod itself."""
    return next(iter(targets_of(pod)), TargetKey(pod.namespace, "Pod", pod.name))


def bounds_of(ranges: Iterable[LimitRange]) -> tuple[LimitRangeItem, ...]:
    """What LimitRanges say of how much a container may request and be limited to."""
    return tuple(
        item for one in ranges for item in one.spec.limits if item.type == "Container" and (item.min or item.max)
    )


def recommended(spec: PodSpec, one: VerticalPodAutoscaler, bounds: tuple[LimitRangeItem, ...] = ()) -> PodSpec:
    """The amounts of a pod's containers as its VerticalPodAutoscaler writes them at admission, larger or smaller.

    What it says that cannot be read counts as not said. Init containers, and what a pod asks for as a whole, stay.

    Args:
        spec: of the pod; only its amounts are read.
        one: which sizes it.
        bounds: those of its namespace.

    Cost: O(containers * (recommendations + bounds)).
    """
    return replace(spec, containers=tuple(_given(container, one, bounds) for container in spec.containers))


def _given(container: Container, one: VerticalPodAutoscaler, bounds: tuple[LimitRangeItem, ...]) -> Container:
    said = one.status.recommendation.container_recommendations
    target = next((each.target for each in said if each.container_name == container.name), None)
    policy = _policy_of(container.name, one.spec.resource_policy.container_policies)
    if not target or policy.mode == _OFF:
        return container
    requests, limits = dict(container.resources.requests), dict(container.resources.limits)
    for resource, asked in _targets(target, policy):
        limit = _read(limits, resource)
        amount = _within_policy(_within_ranges(asked, resource, container, bounds), resource, policy)
        given = amount
        if policy.controlled_values == _REQUESTS_ONLY:
            given = min(amount, limit) if limit is not None else amount
        elif limit is not None and limit.nanos > 0:
            limits[resource] = str(_proportional(resource, limit, _read(requests, resource), amount))
        requests[resource] = str(given)
    return replace(container, resources=ResourceRequirements(requests=requests, limits=limits))


def _policy_of(name: str, policies: tuple[ContainerScaling, ...]) -> ContainerScaling:
    """The container's own policy, or that of every other one."""
    by_name = {one.container_name: one for one in policies}
    return by_name.get(name) or by_name.get(_EVERY_OTHER) or ContainerScaling()


def _targets(target: Amounts, policy: ContainerScaling) -> Iterator[tuple[str, Quantity]]:
    """What is recommended and controlled."""
    controlled = CONTROLLED if policy.controlled_resources is None else policy.controlled_resources
    for resource in CONTROLLED:
        amount = _read(target, resource) if resource in controlled else None
        if amount is not None:
            yield resource, amount


def _within_ranges(
    amount: Quantity, resource: str, container: Container, bounds: tuple[LimitRangeItem, ...]
) -> Quantity:
    """So much that neither it nor the limit that grows with it leaves the bounds of LimitRanges; without a limit there is no upper one."""
    request, limit = _read(container.resources.requests, resource), _read(container.resources.limits, resource)
    for item in bounds:
        if (low := _read(item.min, resource)) is not None:
            amount = max(amount, low, _request_for(low, resource, request, limit) or low)
    for item in bounds:
        if (high := _read(item.max, resource)) is not None and high.nanos > 0:
            amount = min(amount, _request_for(high, resource, request, limit) or amount)
    return amount


def _request_for(bound: Quantity, resource: str, request: Quantity | None, limit: Quantity | None) -> Quantity | None:
    """The request with which the limit is at a bound; None without a limit."""
    if limit is None or limit.nanos == 0:
        return None
    return _scaled(resource, request, limit, bound) if request is not None and request.nanos > 0 else bound


def _within_policy(amount: Quantity, resource: str, policy: ContainerScaling) -> Quantity:
    """The upper bound wins."""
    low, high = _read(policy.min_allowed, resource), _read(policy.max_allowed, resource)
    if low is not None and low.nanos > 0:
        amount = max(amount, low)
    return min(amount, high) if high is not None and high.nanos > 0 else amount


def _read(amounts: Mapping[str, str | int | float], resource: str) -> Quantity | None:
    try:
        found = Quantity.parse(amounts[resource]) if resource in amounts else None
    except QuantityError:
        return None
    return found if found is not None and found.nanos >= 0 else None


def _proportional(resource: str, limit: Quantity, request: Quantity | None, target: Quantity) -> Quantity:
    """The limit that is to the target as the limit was to the request; without a request both were the same."""
    if request is None or request.nanos == 0 or request == limit:
        return target
    return _scaled(resource, limit, request, target)


def _scaled(resource: str, amount: Quantity, base: Quantity, result: Quantity) -> Quantity:
    """So much as is to `result` as `amount` is to `base`, in whole millicores or bytes, rounded down."""
    unit = 10**6 if resource == names.CPU else 10**9
    of_amount, of_base, of_result = (-(-one.nanos // unit) for one in (amount, base, result))
    return Quantity(of_amount * of_result // of_base * unit, amount.format)
