"""CapacityBuffer, autoscaling.x-k8s.io/v1beta1: room that is kept free for pods to come."""

from typing import Annotated, ClassVar, Final

from msgspec import field

from provisioner.apis.core import Amounts
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.schema import CelRule, Schema

API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"
ACTIVE_CAPACITY: Final = "buffer.x-k8s.io/active-capacity"


class PodTemplateReference(Object, frozen=True, kw_only=True):
    """An object of the buffer's own namespace."""

    name: Annotated[str, Schema("Name of the object.", required=True, min_length=1)] = field(default_factory=lambda: "")


class ScalableReference(Object, frozen=True, kw_only=True):
    """A workload of the buffer's own namespace."""

    api_group: Annotated[str, Schema("API group of the workload; empty means apps.")] = ""
    kind: Annotated[str, Schema("Deployment, StatefulSet or ReplicaSet.", required=True, min_length=1)] = field(
        default_factory=lambda: ""
    )
    name: Annotated[str, Schema("Name of the workload.", required=True, min_length=1)] = field(
        default_factory=lambda: ""
    )


class CapacityBufferSpec(Object, frozen=True, kw_only=True):
    """What pods there must always be room for, and how many."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
                "with 'podTemplateRef', 'replicas' or 'limits' must be set",
            ),
            CelRule(
                "!has(self.podTemplateRef) || !has(self.scalableRef)",
                "'podTemplateRef' and 'scalableRef' exclude each other",
            ),
        )
    )

    provisioning_strategy: Annotated[str | None, Schema("How the room is kept.", default=ACTIVE_CAPACITY)] = None
    pod_template_ref: Annotated[
        PodTemplateReference | None, Schema("The PodTemplate that one unit of the buffer is shaped like.")
    ] = None
    scalable_ref: Annotated[
        ScalableReference | None, Schema("The workload that one unit of the buffer is shaped like.")
    ] = None
    replicas: Annotated[int | None, Schema("How many units to keep.", minimum=0, format="int32")] = None
    percentage: Annotated[
        int | None,
        Schema("How many units to keep, in percent of the workload's replicas, rounded up.", minimum=0, format="int32"),
    ] = None
    limits: Annotated[Amounts, Schema("The most that all units may ask for together, by resource.")] = field(
        default_factory=dict
    )


class CapacityBufferStatus(Object, frozen=True, kw_only=True):
    """What the buffer was resolved to."""

    pod_template_ref: Annotated[PodTemplateReference | None, Schema("The PodTemplate in use.")] = None
    replicas: Annotated[int | None, Schema("How many units are kept now.", format="int32")] = None
    pod_template_generation: Annotated[
        int | None, Schema("The generation of the PodTemplate in use.", format="int64")
    ] = None
    provisioning_strategy: Annotated[str | None, Schema("The strategy in use.")] = None
    conditions: Annotated[
        tuple[Condition, ...],
        Schema("Whether the room is there, and why not.", list_type="map", list_map_keys=("type",)),
    ] = ()


class CapacityBuffer(Object, frozen=True, kw_only=True):
    """autoscaling.x-k8s.io/v1beta1 CapacityBuffer."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: "CapacityBuffer")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CapacityBufferSpec, Schema("Which room is kept free.", required=True)] = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
