"""ProvisioningRequest, autoscaling.x-k8s.io/v1 and v1beta1: room that is asked for before its pods exist, as Kueue does. The API is Cluster Autoscaler's.

Source: kubernetes/autoscaler `cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go` at 3a1ecdc136; v1beta1 has the same fields.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

from msgspec import field

from provisioner.apis import names
from provisioner.apis.gangs import MOST_MEMBERS
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.pods import Pod
from provisioner.apis.schema import CelRule, Schema

API_VERSION: Final = "autoscaling.x-k8s.io/v1"
OLD_VERSION: Final = "v1beta1"
CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
BEST_EFFORT_ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
ATOMIC: Final = "atomic.dovetail.dev"
CLASSES: Final = (CHECK_CAPACITY, BEST_EFFORT_ATOMIC, ATOMIC)
"""The provisioning classes that Dovetail can serve."""
MOST_PODS: Final = MOST_MEMBERS
"""Of one request."""
MOST_POD_SETS: Final = 32
MOST_PARAMETERS, PARAMETER_LENGTH = 100, 255
NO_RETRY: Final = "noRetry"
PARTIAL: Final = "partialCapacityCheck"
BOOK_PARTIAL, CHECK_ONLY = "bookPartial", "checkOnly"
VALID_UNTIL: Final = "ValidUntilSeconds"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_SAME: Final = (CelRule("self == oldSelf", "Value is immutable"),)
_SOME: Final = CelRule("size(self) >= 1", "at least one is required")
_MOST_DIGITS: Final = 9


class RequestedTemplate(Object, frozen=True, kw_only=True):
    """A PodTemplate of the request's own namespace."""

    name: Annotated[str, Schema("Name of the PodTemplate.", required=True, pattern=_SUBDOMAIN, max_length=253)] = field(
        default_factory=lambda: ""
    )


class RequestedPods(Object, frozen=True, kw_only=True):
    """Pods of one template."""

    pod_template_ref: Annotated[
        RequestedTemplate, Schema("The PodTemplate that the pods are shaped like.", required=True)
    ] = RequestedTemplate()
    count: Annotated[int, Schema("How many pods.", required=True, minimum=1, format="int32")] = field(
        default_factory=lambda: 0
    )


class ProvisioningRequestSpec(Object, frozen=True, kw_only=True):
    """Which pods there is to be room for; it never changes."""

    pod_sets: Annotated[
        tuple[RequestedPods, ...],
        Schema("The pods, by template.", required=True, max_items=MOST_POD_SETS, rules=(*_SAME, _SOME)),
    ] = field(default_factory=tuple)
    provisioning_class_name: Annotated[
        str,
        Schema("What is done for them, and by whom.", required=True, pattern=_SUBDOMAIN, max_length=253, rules=_SAME),
    ] = field(default_factory=lambda: "")
    parameters: Annotated[
        dict[str, str],
        Schema(
            "Further wishes, which the class defines.",
            max_properties=MOST_PARAMETERS,
            items=Schema(max_length=PARAMETER_LENGTH),
            rules=_SAME,
        ),
    ] = field(default_factory=dict)


class ProvisioningRequestStatus(Object, frozen=True, kw_only=True):
    """What has become of it."""

    conditions: Annotated[
        tuple[Condition, ...],
        Schema("Whether the room is there, and why not.", list_type="map", list_map_keys=("type",)),
    ] = ()
    provisioning_class_details: Annotated[
        dict[str, str],
        Schema("What the class tells besides.", max_properties=64, items=Schema(max_length=32768)),
    ] = field(default_factory=dict)


class ProvisioningRequest(Object, frozen=True, kw_only=True):
    """autoscaling.x-k8s.io/v1 ProvisioningRequest."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: "ProvisioningRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ProvisioningRequestSpec, Schema("Which pods there is to be room for.", required=True)] = (
        ProvisioningRequestSpec()
    )
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()

    @property
    def pods(self) -> int:
        """How many pods it is for."""
        return sum(one.count for one in self.spec.pod_sets)


def beyond_bounds(request: ProvisioningRequest) -> str:
    """Why a request is not looked at, whatever its templates say; "" where nothing is wrong. The definition may be another's, and check less."""
    spec = request.spec
    if not 1 <= len(spec.pod_sets) <= MOST_POD_SETS:
        return f"spec.podSets has {len(spec.pod_sets)} entries; create a request with 1 to {MOST_POD_SETS}"
    for position, one in enumerate(spec.pod_sets):
        if one.count < 1 or not one.pod_template_ref.name:
            return f"spec.podSets[{position}] needs the name of a PodTemplate and a count of 1 or more"
    if request.pods > MOST_PODS:
        return f"spec.podSets asks for {request.pods} pods; the maximum is {MOST_PODS}"
    texts = (text for pair in spec.parameters.items() for text in pair)
    if len(spec.parameters) > MOST_PARAMETERS or any(len(text) > PARAMETER_LENGTH for text in texts):
        return (
            f"spec.parameters has more than {MOST_PARAMETERS} entries, or one of more than {PARAMETER_LENGTH} "
            "characters; create a request with fewer or shorter ones"
        )
    return ""


def valid_for(parameters: Mapping[str, str]) -> timedelta | None:
    """How long after its creation a request still wants the room (`ValidUntilSeconds`); None where it says nothing that can be read."""
    text = parameters.get(VALID_UNTIL, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    return timedelta(seconds=int(text))


def request_named(pod: Pod) -> str:
    """The key of the ProvisioningRequest that a pod names, "namespace/name"; "" for none. O(1)."""
    notes = pod.annotations
    for key in names.CONSUMES if notes else ():
        if name := notes.get(key):
            return f"{pod.namespace}/{name}"
    return ""
