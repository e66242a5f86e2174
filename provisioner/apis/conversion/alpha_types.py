"""Provisioner (karpenter.sh/v1alpha5) and AWSNodeTemplate (karpenter.k8s.aws/v1alpha1), as far as their schema goes.

They are never decoded into these types: the translation reads plain documents, and says what it does not know.
"""

from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, UnsetType, field

from provisioner.apis.core import Amounts
from provisioner.apis.crds import Column
from provisioner.apis.karpenter import TAINT
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.schema import CelRule, Schema
from provisioner.values.taints import Taint

COLUMNS: Final = (
    Column("Translated", '.status.conditions[?(@.type=="Translated")].status'),
    Column("Reason", '.status.conditions[?(@.type=="Translated")].reason'),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Message", '.status.conditions[?(@.type=="Translated")].message', wide=True),
)
TRANSLATED: Final = "Translated"
"""Type of the one condition."""
_OPEN: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class OldRequirement(Object, frozen=True, kw_only=True):
    """A requirement on the nodes' labels."""

    key: Annotated[str, Schema("The label that the requirement applies to.", required=True)] = ""
    operator: Annotated[
        str,
        Schema(
            "Relation between the value of the label and the given values.",
            required=True,
            enum=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        ),
    ] = ""
    values: Annotated[tuple[str, ...], Schema("The values that the operator compares with.")] = ()


class ProvisionerConsolidation(Object, frozen=True, kw_only=True):
    """Whether nodes are consolidated."""

    enabled: Annotated[bool, Schema("Whether nodes are consolidated.")] = False


class OldLimits(Object, frozen=True, kw_only=True):
    """The most that all nodes may have together."""

    resources: Annotated[Amounts, Schema("The most that all nodes may have together, by resource.")] = field(
        default_factory=dict
    )


class ProviderReference(Object, frozen=True, kw_only=True):
    """The AWSNodeTemplate of the nodes."""

    api_version: Annotated[str, Schema("API version of the template.")] = ""
    kind: Annotated[str, Schema("Kind of the template.")] = ""
    name: Annotated[str, Schema("Name of the AWSNodeTemplate.", required=True)] = ""


class ProvisionerSpec(Object, frozen=True, kw_only=True):
    """The nodes of a Provisioner."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.provider) != has(self.providerRef)", "expected exactly one of 'provider' and 'providerRef'"
            ),
            CelRule(
                "!has(self.ttlSecondsAfterEmpty) || !has(self.consolidation) || !has(self.consolidation.enabled)"
                " || !self.consolidation.enabled",
                "ttlSecondsAfterEmpty cannot be combined with consolidation.enabled",
            ),
        )
    )

    annotations: Annotated[dict[str, str], Schema("Annotations of the nodes.")] = field(default_factory=dict)
    labels: Annotated[dict[str, str], Schema("Labels of the nodes.")] = field(default_factory=dict)
    taints: Annotated[tuple[Taint, ...], Schema("Taints of the nodes.", items=TAINT.items)] = ()
    startup_taints: Annotated[
        tuple[Taint, ...],
        Schema("Taints that nodes start with and that another component removes.", items=TAINT.items),
    ] = ()
    requirements: Annotated[
        tuple[OldRequirement, ...], Schema("What the nodes' labels must be like.", max_items=100)
    ] = ()
    kubelet_configuration: Annotated[
        dict[str, Any], Schema(replace={**_OPEN, "description": "Settings of the nodes' kubelet."})
    ] = field(default_factory=dict)
    provider: Annotated[
        dict[str, Any],
        Schema(replace={**_OPEN, "description": "The fields of an AWSNodeTemplate; providerRef took its place."}),
    ] = field(default_factory=dict)
    provider_ref: Annotated[ProviderReference | UnsetType, Schema("The AWSNodeTemplate of the nodes.")] = UNSET
    ttl_seconds_after_empty: Annotated[
        int | None, Schema("Seconds after which an empty node is removed.", minimum=0, format="int64")
    ] = None
    ttl_seconds_until_expired: Annotated[
        int | None, Schema("Age in seconds at which a node is deleted.", minimum=0, format="int64")
    ] = None
    limits: Annotated[OldLimits | UnsetType, Schema("The most that all nodes may have together.")] = UNSET
    weight: Annotated[
        int, Schema("Provisioners with a higher weight are preferred.", minimum=1, maximum=100, format="int32")
    ] = 0
    consolidation: Annotated[ProvisionerConsolidation | UnsetType, Schema("Whether nodes are consolidated.")] = UNSET


class TranslationStatus(Object, frozen=True, kw_only=True):
    """What became of it."""

    conditions: Annotated[tuple[Condition, ...], Schema("Whether it is translated, and into what.")] = ()


class OldObject(Object, frozen=True, kw_only=True):
    """A Provisioner or AWSNodeTemplate as it is read: its spec as it stands there."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = field(default_factory=dict)
    status: TranslationStatus = TranslationStatus()


class Provisioner(Object, frozen=True, kw_only=True):
    """karpenter.sh/v1alpha5 Provisioner."""

    api_version: str = field(default_factory=lambda: "karpenter.sh/v1alpha5")
    kind: str = field(default_factory=lambda: "Provisioner")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ProvisionerSpec, Schema("The nodes that can be created.", required=True)] = ProvisionerSpec()
    status: TranslationStatus = TranslationStatus()


class OldVolume(Object, frozen=True, kw_only=True):
    """One EBS volume."""

    delete_on_termination: Annotated[bool | UnsetType, Schema("Whether the volume goes with its instance.")] = UNSET
    encrypted: Annotated[bool | UnsetType, Schema("Whether the volume is encrypted.")] = UNSET
    iops: Annotated[int | UnsetType, Schema("Provisioned IOPS.", format="int64")] = UNSET
    kms_key_id: Annotated[str | UnsetType, Schema("The KMS key for encryption.")] = field(
        default=UNSET, name="kmsKeyID"
    )
    snapshot_id: Annotated[str | UnsetType, Schema("Snapshot of the volume.")] = field(default=UNSET, name="snapshotID")
    throughput: Annotated[int | UnsetType, Schema("Throughput in MiB/s.", format="int64")] = UNSET
    volume_size: Annotated[str | int | float | UnsetType, Schema("Size of the volume.")] = UNSET
    volume_type: Annotated[str | UnsetType, Schema("Type of the volume.")] = UNSET


class OldMapping(Object, frozen=True, kw_only=True):
    """One volume and its device name."""

    device_name: Annotated[str | UnsetType, Schema("Device name.", required=True)] = UNSET
    ebs: Annotated[OldVolume | UnsetType, Schema("The volume.")] = UNSET


class OldMetadataOptions(Object, frozen=True, kw_only=True):
    """How instances reach their metadata service."""

    http_endpoint: Annotated[str | UnsetType, Schema("Whether it is enabled.", enum=("enabled", "disabled"))] = field(
        default=UNSET, name="httpEndpoint"
    )
    http_protocol_ipv6: Annotated[
        str | UnsetType, Schema("Whether it is available over IPv6.", enum=("enabled", "disabled"))
    ] = field(default=UNSET, name="httpProtocolIPv6")
    http_put_response_hop_limit: Annotated[
        int | UnsetType, Schema("Hops that an answer may take.", minimum=1, maximum=64, format="int64")
    ] = UNSET
    http_tokens: Annotated[
        str | UnsetType, Schema("Whether session tokens are required.", enum=("required", "optional"))
    ] = UNSET


class AWSNodeTemplateSpec(Object, frozen=True, kw_only=True):
    """What instances are made of; also the fields of `provider` of a Provisioner."""

    ami_family: Annotated[str | UnsetType, Schema("AMI family; AL2 if absent.")] = UNSET
    ami_selector: Annotated[dict[str, str], Schema("Tags of images, or aws::ids, aws::name and aws::owners.")] = field(
        default_factory=dict
    )
    context: Annotated[str | UnsetType, Schema("Context of the fleet request.")] = UNSET
    instance_profile: Annotated[str | UnsetType, Schema("Instance profile of the nodes.")] = UNSET
    subnet_selector: Annotated[dict[str, str], Schema("Tags of subnets, or aws-ids.")] = field(default_factory=dict)
    security_group_selector: Annotated[dict[str, str], Schema("Tags of security groups, or aws-ids.")] = field(
        default_factory=dict
    )
    tags: Annotated[dict[str, str], Schema("Tags on what is created.")] = field(default_factory=dict)
    launch_template: Annotated[str | UnsetType, Schema("Your own launch template; it has no equivalent.")] = UNSET
    metadata_options: Annotated[
        OldMetadataOptions | UnsetType, Schema("How instances reach their metadata service.")
    ] = UNSET
    block_device_mappings: Annotated[tuple[OldMapping, ...], Schema("Volumes of the instances.", max_items=50)] = ()
    user_data: Annotated[str | UnsetType, Schema("Your own user data.")] = UNSET
    detailed_monitoring: Annotated[bool | UnsetType, Schema("Whether detailed monitoring is enabled.")] = UNSET


class AWSNodeTemplate(Object, frozen=True, kw_only=True):
    """karpenter.k8s.aws/v1alpha1 AWSNodeTemplate."""

    api_version: str = field(default_factory=lambda: "karpenter.k8s.aws/v1alpha1")
    kind: str = field(default_factory=lambda: "AWSNodeTemplate")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[AWSNodeTemplateSpec, Schema("How instances are launched.", required=True)] = AWSNodeTemplateSpec()
    status: TranslationStatus = TranslationStatus()
