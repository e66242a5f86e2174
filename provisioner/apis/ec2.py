"""EC2NodeClass, karpenter.k8s.aws/v1: how instances are made at EC2.

Absent and empty differ wherever the class's hash tells them apart (provisioner.apis.ec2_hash): absent is `UNSET` there.
Terms of the four selectors are kept as the user wrote them; what they resolve to stands in the status.

Source: spec/karpenter-aws.md 1.1, 1.2 and 1.4.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, UnsetType, field

from provisioner.apis import names
from provisioner.apis.conditions import ConditionSet
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.schema import CelRule, Schema
from provisioner.values.requirement import Requirement, Requirements

GROUP: Final = "karpenter.k8s.aws"
API_VERSION: Final = "karpenter.k8s.aws/v1"
KIND: Final = "EC2NodeClass"

# Names on objects.
NODECLASS_LABEL: Final = names.nodeclass_label(GROUP, KIND)
TERMINATION_FINALIZER: Final = "karpenter.k8s.aws/termination"
HASH_ANNOTATION: Final = "karpenter.k8s.aws/ec2nodeclass-hash"
CONSUMABLE_CAPACITY_ANNOTATION: Final = "karpenter.k8s.aws/nvidia-consumable-capacity"
HASH_VERSION_ANNOTATION: Final = "karpenter.k8s.aws/ec2nodeclass-hash-version"
INSTANCE_PROFILE_ANNOTATION: Final = "karpenter.k8s.aws/instance-profile-name"
TAGGED_ANNOTATION: Final = "karpenter.k8s.aws/tagged"
CLUSTER_NAME_TAGGED_ANNOTATION: Final = "compatibility.karpenter.k8s.aws/cluster-name-tagged"

# Tags on what is made at AWS.
CLUSTER_NAME_TAG: Final = "eks:eks-cluster-name"
CLUSTER_TAG_PREFIX: Final = "kubernetes.io/cluster/"
NODEPOOL_TAG: Final = names.NODEPOOL_LABEL
NODECLAIM_TAG: Final = "karpenter.sh/nodeclaim"
NODECLASS_TAG: Final = NODECLASS_LABEL
NAME_TAG: Final = "Name"

EFA_ONLY: Final = "efa-only"
"""Type of an interface without addresses; "efa" is one with them, of which a class cannot say that it wants it."""
EFA_TYPES: Final = frozenset({"efa", EFA_ONLY})

# AMI families.
AL2: Final = "AL2"
AL2023: Final = "AL2023"
BOTTLEROCKET: Final = "Bottlerocket"
CUSTOM: Final = "Custom"
WINDOWS_2019: Final = "Windows2019"
WINDOWS_2022: Final = "Windows2022"
WINDOWS_2025: Final = "Windows2025"
WINDOWS_FAMILIES: Final = (WINDOWS_2019, WINDOWS_2022, WINDOWS_2025)
FAMILIES: Final = (AL2, AL2023, BOTTLEROCKET, CUSTOM, *WINDOWS_FAMILIES)
_BY_ALIAS: Final = {family.lower(): family for family in FAMILIES if family != CUSTOM}

# Condition types.
AMIS_READY: Final = "AMIsReady"
SUBNETS_READY: Final = "SubnetsReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
INSTANCE_PROFILE_READY: Final = "InstanceProfileReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"
PLACEMENT_GROUP_READY: Final = "PlacementGroupReady"
VALIDATION_SUCCEEDED: Final = names.VALIDATION_SUCCEEDED

# Condition reasons.
UNSUPPORTED_ALIAS: Final = "UnsupportedAlias"
AMI_NOT_FOUND: Final = "AMINotFound"
SUBNETS_NOT_FOUND: Final = "SubnetsNotFound"
SECURITY_GROUPS_NOT_FOUND: Final = "SecurityGroupsNotFound"
PLACEMENT_GROUP_RESOLUTION_FAILED: Final = "PlacementGroupResolutionFailed"
PLACEMENT_GROUP_NOT_FOUND: Final = "PlacementGroupNotFound"
CLUSTER_CIDR_RESOLUTION_FAILED: Final = "ClusterCIDRResolutionFailed"
INVALID_KUBELET_CONFIGURATION: Final = "InvalidKubeletConfiguration"
KUBELET_EXPRESSIONS_DISABLED: Final = "KubeletExpressionsDisabled"
KUBELET_EXPRESSION_INVALID: Final = "KubeletExpressionInvalid"
KUBELET_EXPRESSION_EVALUATION_FAILED: Final = "KubeletExpressionEvaluationFailed"
NVIDIA_CONSUMABLE_CAPACITY_INVALID: Final = "NVIDIAConsumableCapacityInvalid"
DRA_DISABLED: Final = "DRADisabled"
UNSUPPORTED_KUBELET_CONFIGURATION: Final = "UnsupportedKubeletConfiguration"
TAG_VALIDATION_FAILED: Final = "TagValidationFailed"
CREATE_LAUNCH_TEMPLATE_AUTH_CHECK_FAILED: Final = "CreateLaunchTemplateAuthCheckFailed"
CREATE_FLEET_AUTH_CHECK_FAILED: Final = "CreateFleetAuthCheckFailed"
RUN_INSTANCES_AUTH_CHECK_FAILED: Final = "RunInstancesAuthCheckFailed"
INSTANCE_PROFILE_NOT_FOUND: Final = "InstanceProfileNotFound"
USER_DATA_SIZE_LIMIT_EXCEEDED: Final = "UserDataSizeLimitExceeded"

NODECLASS_CONDITIONS: Final = ConditionSet(
    root=names.READY,
    dependents=(
        AMIS_READY,
        CAPACITY_RESERVATIONS_READY,
        PLACEMENT_GROUP_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
    ),
)
"""With the gate ReservedCapacity on, which is the default."""

NODECLASS_CONDITIONS_WITHOUT_RESERVATIONS: Final = ConditionSet(
    root=names.READY,
    dependents=tuple(one for one in NODECLASS_CONDITIONS.dependents if one != CAPACITY_RESERVATIONS_READY),
)
"""With the gate ReservedCapacity off: a condition left over from before has no say."""

SUBNET_ID: Final = "subnet-[0-9a-z]+"
SECURITY_GROUP_ID: Final = "sg-[0-9a-z]+"
RESERVATION_ID: Final = "^cr-[0-9a-z]+$"
PLACEMENT_GROUP_ID: Final = "^pg-[0-9a-z]+$"
AMI_ID: Final = "ami-[0-9a-z]+"
ACCOUNT: Final = "^[0-9]{12}$"
VOLUME_SIZE: Final = (
    "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    "|([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$"
)
"""1-59000 Gi, 1-64000 G, 1-58 Ti or 1-64 T, as EBS admits."""

NOT_EMPTY: Final = CelRule("self != ''", "must not be empty")
_SELECTOR_TAGS: Final = Schema(
    "Tags that all must be there; the value * means any.",
    max_properties=20,
    rules=(CelRule("self.all(k, k != '' && self[k] != '')", "tags with an empty key or value are not supported"),),
)
_ENABLED: Final = ("enabled", "disabled")


class SubnetSelectorTerm(Object, frozen=True, kw_only=True):
    """Subnets by their tags, or one by its id."""

    schema: ClassVar[Schema] = Schema(
        rules=(CelRule("has(self.tags) || has(self.id)", "expected at least one of 'tags' and 'id'"),)
    )

    tags: Annotated[dict[str, str], _SELECTOR_TAGS] = field(default_factory=dict)
    id: Annotated[str, Schema("Id of the subnet.", pattern=SUBNET_ID)] = ""


class SecurityGroupSelectorTerm(Object, frozen=True, kw_only=True):
    """Security groups by their tags, or by id or name."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.tags) || has(self.id) || has(self.name)",
                "expected at least one of 'tags', 'id' and 'name'",
            ),
        )
    )

    tags: Annotated[dict[str, str], _SELECTOR_TAGS] = field(default_factory=dict)
    id: Annotated[str, Schema("Id of the security group.", pattern=SECURITY_GROUP_ID)] = ""
    name: Annotated[str, Schema("Name of the security group: its own, not its tag Name.")] = ""


class CapacityReservationSelectorTerm(Object, frozen=True, kw_only=True):
    """Capacity reservations by tags, owner and match criteria, or one by its id."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.tags) || has(self.id) || has(self.instanceMatchCriteria)",
                "expected at least one of 'tags', 'id' and 'instanceMatchCriteria'",
            ),
        )
    )

    tags: Annotated[dict[str, str], _SELECTOR_TAGS] = field(default_factory=dict)
    id: Annotated[str, Schema("Id of the capacity reservation.", pattern=RESERVATION_ID)] = ""
    owner_id: Annotated[str, Schema("Account that owns the reservation.", pattern=ACCOUNT)] = field(
        default="", name="ownerID"
    )
    instance_match_criteria: Annotated[
        str,
        Schema(
            "Whether the reservation takes every matching instance, or only those that name it.",
            enum=("open", "targeted"),
        ),
    ] = ""


class PlacementGroupSelector(Object, frozen=True, kw_only=True):
    """One placement group."""

    schema: ClassVar[Schema] = Schema(
        rules=(CelRule("has(self.name) != has(self.id)", "expected exactly one of 'name' and 'id'"),)
    )

    name: Annotated[str | UnsetType, Schema("Name of the placement group.", min_length=1)] = UNSET
    id: Annotated[str | UnsetType, Schema("Id of the placement group.", pattern=PLACEMENT_GROUP_ID)] = UNSET


class AMISelectorTerm(Object, frozen=True, kw_only=True):
    """Images by alias, tags, name and owner, SSM parameter, or one by its id."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.tags) || has(self.id) || has(self.name) || has(self.alias) || has(self.ssmParameter)",
                "expected at least one of 'tags', 'id', 'name', 'alias' and 'ssmParameter'",
            ),
        )
    )

    alias: Annotated[
        str,
        Schema(
            "Images that AWS publishes for an AMI family: family@version or family@latest.",
            max_length=30,
            rules=(
                CelRule(
                    "self.matches('^[a-zA-Z0-9]+@.+$')", "'alias' must be of the form family@version or family@latest"
                ),
                CelRule(
                    f"self.split('@')[0] in [{', '.join(repr(alias) for alias in _BY_ALIAS)}]",
                    f"the family of 'alias' must be one of {', '.join(_BY_ALIAS)}",
                ),
                CelRule(
                    "!self.startsWith('windows') || self.split('@')[1] == 'latest'",
                    "windows families have no version but 'latest'",
                ),
            ),
        ),
    ] = ""
    tags: Annotated[dict[str, str], _SELECTOR_TAGS] = field(default_factory=dict)
    id: Annotated[str, Schema("Id of the image.", pattern=AMI_ID)] = ""
    name: Annotated[str, Schema("Name of the image; * and ? are wildcards.")] = ""
    owner: Annotated[str, Schema("Owner of the image: an account ID, self, amazon or aws-marketplace.")] = ""
    ssm_parameter: Annotated[str, Schema("Name or ARN of an SSM parameter that contains the image ID.")] = ""

    @property
    def alias_family(self) -> str:
        """The family that the alias names, e.g. "AL2023"; "" without alias, or for one of an unknown family."""
        return _BY_ALIAS.get(self.alias.partition("@")[0], "")

    @property
    def alias_version(self) -> str:
        """What stands behind the @ of the alias, e.g. "latest" or "v20260101"; "" without alias."""
        return self.alias.partition("@")[2]


class BlockDevice(Object, frozen=True, kw_only=True):
    """One EBS volume."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule("has(self.snapshotID) || has(self.volumeSize)", "snapshotID or volumeSize must be defined"),
            CelRule(
                "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
                "snapshotID must be set when volumeInitializationRate is",
            ),
        )
    )

    delete_on_termination: Annotated[
        bool | UnsetType, Schema("Whether the volume is deleted when the instance is terminated.")
    ] = UNSET
    encrypted: Annotated[bool | UnsetType, Schema("Whether the volume is encrypted.")] = UNSET
    iops: Annotated[int | UnsetType, Schema("Provisioned IOPS, for gp3, io1 and io2.", format="int64")] = UNSET
    kms_key_id: Annotated[str | UnsetType, Schema("ID, alias or ARN of the KMS key for encryption.")] = field(
        default=UNSET, name="kmsKeyID"
    )
    snapshot_id: Annotated[str | UnsetType, Schema("Snapshot that the volume is created from.")] = field(
        default=UNSET, name="snapshotID"
    )
    throughput: Annotated[int | UnsetType, Schema("Throughput of a gp3 volume in MiB/s.", format="int64")] = UNSET
    volume_initialization_rate: Annotated[
        int | UnsetType,
        Schema("Rate in MiB/s at which the snapshot is loaded.", minimum=100, maximum=300, format="int32"),
    ] = UNSET
    volume_size: Annotated[
        str | UnsetType, Schema("Size of the volume, with a unit: Gi, G, Ti or T.", pattern=VOLUME_SIZE)
    ] = UNSET
    volume_type: Annotated[
        str | UnsetType,
        Schema("Type of the volume.", enum=("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")),
    ] = UNSET


class BlockDeviceMapping(Object, frozen=True, kw_only=True):
    """One volume and the device name that the instance sees it by."""

    device_name: Annotated[str | UnsetType, Schema("Device name, e.g. /dev/xvda.")] = UNSET
    ebs: Annotated[BlockDevice | UnsetType, Schema("The volume.")] = UNSET
    root_volume: Annotated[bool, Schema("Whether the node's ephemeral storage is this volume; at most one is.")] = False


class NetworkInterface(Object, frozen=True, kw_only=True):
    """One network interface that instances are launched with."""

    network_card_index: Annotated[
        int, Schema("Network card that the interface belongs to.", required=True, minimum=0, format="int32")
    ] = field(default_factory=lambda: 0)
    device_index: Annotated[
        int, Schema("Place of the interface on the instance.", required=True, minimum=0, format="int32")
    ] = field(default_factory=lambda: 0)
    interface_type: Annotated[str, Schema("Kind of the interface.", required=True, enum=("interface", EFA_ONLY))] = (
        field(default_factory=lambda: "")
    )


class MetadataOptions(Object, frozen=True, kw_only=True):
    """How instances reach their metadata service."""

    http_endpoint: Annotated[
        str | UnsetType, Schema("Whether the metadata service is enabled.", default="enabled", enum=_ENABLED)
    ] = field(default=UNSET, name="httpEndpoint")
    http_protocol_ipv6: Annotated[
        str | UnsetType,
        Schema("Whether the metadata service is available over IPv6.", default="disabled", enum=_ENABLED),
    ] = field(default=UNSET, name="httpProtocolIPv6")
    http_put_response_hop_limit: Annotated[
        int | UnsetType,
        Schema(
            "Hops that an answer may take; with 1, pods without host network do not reach the service.",
            default=1,
            minimum=1,
            maximum=64,
            format="int64",
        ),
    ] = UNSET
    http_tokens: Annotated[
        str | UnsetType,
        Schema("Whether a session token (IMDSv2) is required.", default="required", enum=("required", "optional")),
    ] = UNSET


class ConnectionTracking(Object, frozen=True, kw_only=True):
    """How long idle connections are tracked, in seconds; Nitro instances only."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
                "at least one timeout must be set",
            ),
        )
    )

    tcp_established_timeout: Annotated[
        int | UnsetType,
        Schema("Of established TCP connections.", minimum=60, maximum=432000, format="int32"),
    ] = UNSET
    udp_stream_timeout: Annotated[
        int | UnsetType,
        Schema("Of UDP flows with more than one request and answer.", minimum=60, maximum=180, format="int32"),
    ] = UNSET
    udp_timeout: Annotated[
        int | UnsetType,
        Schema("Of UDP flows with one request, or one direction.", minimum=30, maximum=60, format="int32"),
    ] = UNSET


class EnclaveOptions(Object, frozen=True, kw_only=True):
    """AWS Nitro Enclaves of the instances."""

    enabled: Annotated[
        bool,
        Schema(
            "Whether enclaves are enabled; if so, only instance types that support Nitro Enclaves are used.",
            required=True,
        ),
    ] = field(default_factory=lambda: False)


class CPUOptions(Object, frozen=True, kw_only=True):
    """Options of the processor."""

    nested_virtualization: Annotated[
        str | UnsetType,
        Schema(
            "Whether nested virtualization is enabled; if so, only instance types that support it are used.",
            enum=_ENABLED,
        ),
    ] = UNSET


def _forbidden(expression: str, what: str) -> CelRule:
    return CelRule(f"self.all(k, {expression})", f"tag {what} is restricted")


_FORBIDDEN_TAGS: Final = (CLUSTER_NAME_TAG, NODEPOOL_TAG, NODECLAIM_TAG, NODECLASS_TAG)


class EC2NodeClassSpec(Object, frozen=True, kw_only=True):
    """What instances are made of."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.role) != has(self.instanceProfile)", "expected exactly one of 'role' and 'instanceProfile'"
            ),
            CelRule(
                "has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",
                "'amiFamily' must be set unless an 'alias' names the family",
            ),
            CelRule(
                "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(t, !has(t.alias)"
                " || t.alias.split('@')[0] == self.amiFamily.lowerAscii())",
                "'amiFamily' must be the family of the 'alias', or Custom",
            ),
        )
    )

    subnet_selector_terms: Annotated[
        tuple[SubnetSelectorTerm, ...],
        Schema(
            "Subnets that instances are launched in; a subnet that any term selects.",
            required=True,
            max_items=30,
            rules=(
                CelRule("self.size() != 0", "subnetSelectorTerms must not be empty"),
                CelRule("!self.all(t, has(t.id) && has(t.tags))", "'id' cannot be combined with 'tags'"),
            ),
        ),
    ] = ()
    security_group_selector_terms: Annotated[
        tuple[SecurityGroupSelectorTerm, ...],
        Schema(
            "Security groups that instances get; all that any term selects.",
            required=True,
            max_items=30,
            rules=(
                CelRule("self.size() != 0", "securityGroupSelectorTerms must not be empty"),
                CelRule(
                    "!self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",
                    "'id' cannot be combined with 'tags' or 'name'",
                ),
                CelRule(
                    "!self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",
                    "'name' cannot be combined with 'tags' or 'id'",
                ),
            ),
        ),
    ] = ()
    capacity_reservation_selector_terms: Annotated[
        tuple[CapacityReservationSelectorTerm, ...],
        Schema(
            "Capacity reservations that instances may be launched into.",
            max_items=30,
            rules=(
                CelRule(
                    "!self.all(t, has(t.id) && (has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",
                    "'id' cannot be combined with 'tags', 'ownerID' or 'instanceMatchCriteria'",
                ),
            ),
        ),
    ] = ()
    placement_group_selector: Annotated[
        PlacementGroupSelector | UnsetType, Schema("Placement group that instances are launched in.")
    ] = UNSET
    associate_public_ip_address: Annotated[
        bool | UnsetType,
        Schema("Whether instances get a public IP address; if absent, the setting of the subnet applies."),
    ] = field(default=UNSET, name="associatePublicIPAddress")
    ip_prefix_count: Annotated[
        int | None,
        Schema("Address prefixes that the network interface starts with.", minimum=0, format="int32"),
    ] = None
    ami_selector_terms: Annotated[
        tuple[AMISelectorTerm, ...],
        Schema(
            "Images that instances run; of those that fit an instance type the newest.",
            required=True,
            max_items=30,
            rules=(
                CelRule("self.size() != 0", "amiSelectorTerms must not be empty"),
                CelRule(
                    "!self.exists(t, has(t.id) && (has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
                    "'id' cannot be combined with 'alias', 'tags', 'name' or 'owner'",
                ),
                CelRule(
                    "!self.exists(t, has(t.alias) && (has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
                    "'alias' cannot be combined with 'id', 'tags', 'name' or 'owner'",
                ),
                CelRule(
                    "!(self.exists(t, has(t.alias)) && self.size() != 1)", "a term with 'alias' must be the only term"
                ),
            ),
        ),
    ] = ()
    ami_family: Annotated[
        str | UnsetType,
        Schema(
            "AMI family that determines the format of the user data; if absent, the family of the alias.", enum=FAMILIES
        ),
    ] = UNSET
    user_data: Annotated[
        str | UnsetType,
        Schema(
            "Your own user data, in a format of the AMI family; the data that nodes need to join the cluster is merged into it."
        ),
    ] = UNSET
    role: Annotated[
        str | UnsetType,
        Schema("IAM role of the nodes; an instance profile is created for it.", rules=(NOT_EMPTY,)),
    ] = UNSET
    instance_profile: Annotated[
        str | UnsetType, Schema("Existing instance profile of the nodes.", rules=(NOT_EMPTY,))
    ] = UNSET
    tags: Annotated[
        dict[str, str] | UnsetType,
        Schema(
            "Tags that are set on all AWS resources that are created for this class.",
            rules=(
                CelRule("self.all(k, k != '')", "tags with an empty key are not supported"),
                _forbidden(f"k != '{CLUSTER_NAME_TAG}'", CLUSTER_NAME_TAG),
                _forbidden("!k.startsWith('kubernetes.io/cluster')", "kubernetes.io/cluster*"),
                *(_forbidden(f"k != '{tag}'", tag) for tag in _FORBIDDEN_TAGS[1:]),
            ),
        ),
    ] = UNSET
    kubelet: Annotated[
        dict[str, Any] | UnsetType,
        Schema(
            replace={
                "type": "object",
                "description": "Fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that the nodes' kubelet "
                "gets; AL2023 and Custom take every field, the other families those that their start script knows.",
                "x-kubernetes-preserve-unknown-fields": True,
            }
        ),
    ] = UNSET
    block_device_mappings: Annotated[
        tuple[BlockDeviceMapping, ...] | UnsetType,
        Schema(
            "Volumes of the instances, instead of the family's.",
            max_items=50,
            rules=(
                CelRule(
                    "self.filter(m, has(m.rootVolume) && m.rootVolume == true).size() <= 1",
                    "at most one blockDeviceMappings may have rootVolume",
                ),
            ),
        ),
    ] = UNSET
    instance_store_policy: Annotated[
        str | UnsetType,
        Schema("Use of local NVMe disks: RAID0 combines them into the ephemeral storage of the node.", enum=("RAID0",)),
    ] = UNSET
    network_interfaces: Annotated[
        tuple[NetworkInterface, ...] | UnsetType,
        Schema(
            "Network interfaces of the instances; if absent, one interface, or one for each requested EFA.",
            max_items=150,
            rules=(
                CelRule(
                    "self.size() == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0"
                    " && i.interfaceType == 'interface')",
                    "the primary interface (networkCardIndex 0, deviceIndex 0, interfaceType 'interface') is missing",
                ),
                CelRule(
                    "self.all(i, self.exists_one(o, o.networkCardIndex == i.networkCardIndex"
                    " && o.deviceIndex == i.deviceIndex))",
                    "no two interfaces may have the same networkCardIndex and deviceIndex",
                ),
                CelRule(
                    "self.filter(i, i.interfaceType == 'efa-only').all(i, self.exists_one(o,"
                    " o.interfaceType == 'efa-only' && o.networkCardIndex == i.networkCardIndex))",
                    "a network card may have at most one interface of type 'efa-only'",
                ),
            ),
        ),
    ] = UNSET
    detailed_monitoring: Annotated[
        bool | UnsetType, Schema("Whether detailed monitoring (metrics every minute) is enabled in CloudWatch.")
    ] = UNSET
    metadata_options: Annotated[
        MetadataOptions | UnsetType,
        Schema(
            "How instances reach their metadata service.",
            default={
                "httpEndpoint": "enabled",
                "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1,
                "httpTokens": "required",
            },
        ),
    ] = UNSET
    enclave_options: Annotated[
        EnclaveOptions | UnsetType, Schema("AWS Nitro Enclaves; they are disabled if absent.")
    ] = UNSET
    connection_tracking: Annotated[
        ConnectionTracking | UnsetType, Schema("How long idle connections are tracked; Nitro instances only.")
    ] = UNSET
    context: Annotated[str | UnsetType, Schema("Context of the fleet request; reserved by EC2.")] = UNSET
    cpu_options: Annotated[CPUOptions | UnsetType, Schema("Options of the processor.")] = UNSET

    @property
    def family(self) -> str:
        """The AMI family: as written, else that of the alias, else Custom."""
        if isinstance(self.ami_family, str):
            return self.ami_family
        return next((term.alias_family for term in self.ami_selector_terms if term.alias_family), CUSTOM)


class SubnetStatus(Object, frozen=True, kw_only=True):
    """One subnet that was found."""

    id: Annotated[str, Schema("Id of the subnet.", required=True)] = field(default_factory=lambda: "")
    zone: Annotated[str, Schema("Its zone, e.g. us-east-1a.", required=True)] = field(default_factory=lambda: "")
    zone_id: Annotated[str, Schema("The id of the zone, e.g. use1-az1.")] = field(default="", name="zoneID")


class SecurityGroup(Object, frozen=True, kw_only=True):
    """One security group that was found."""

    id: Annotated[str, Schema("Id of the security group.", required=True)] = field(default_factory=lambda: "")
    name: Annotated[str, Schema("Its name.")] = ""


class AMIRequirement(Object, frozen=True, kw_only=True):
    """One requirement that an instance type has to meet for an image."""

    key: Annotated[str, Schema("The label that the requirement is about.", required=True)] = field(
        default_factory=lambda: ""
    )
    operator: Annotated[str, Schema("How the label's value relates to the given ones.", required=True)] = field(
        default_factory=lambda: ""
    )
    values: Annotated[tuple[str, ...], Schema("The values that the operator compares with.", list_type="atomic")] = ()


class AMI(Object, frozen=True, kw_only=True):
    """One image that was found."""

    id: Annotated[str, Schema("Id of the image.", required=True)] = field(default_factory=lambda: "")
    name: Annotated[str, Schema("Its name.")] = ""
    deprecated: Annotated[bool, Schema("Whether the owner has deprecated the image.")] = False
    requirements: Annotated[
        tuple[AMIRequirement, ...],
        Schema("Requirements that instance types must meet to run the image.", required=True),
    ] = field(default_factory=lambda: ())

    def compatible(self) -> Requirements:
        """The requirements as a value.

        Raises:
            RequirementError: one of them is malformed; ours never are.
        """
        return Requirements.of(Requirement.of(one.key, one.operator, one.values) for one in self.requirements)


class CapacityReservation(Object, frozen=True, kw_only=True):
    """One capacity reservation that was found."""

    id: Annotated[str, Schema("Id of the reservation.", required=True, pattern=RESERVATION_ID)] = field(
        default_factory=lambda: ""
    )
    availability_zone: Annotated[str, Schema("Its zone.", required=True)] = field(default_factory=lambda: "")
    end_time: Annotated[
        datetime | None, Schema("Time at which the reservation ends; absent if it lasts until it is canceled.")
    ] = None
    instance_match_criteria: Annotated[
        str,
        Schema(
            "Whether it takes every matching instance, or only those that name it.",
            required=True,
            enum=("open", "targeted"),
        ),
    ] = field(default_factory=lambda: "")
    instance_type: Annotated[str, Schema("The instance type that is reserved.", required=True)] = field(
        default_factory=lambda: ""
    )
    interruptible: Annotated[bool, Schema("Whether the owner can reclaim the instances.")] = False
    owner_id: Annotated[str, Schema("Account that owns it.", required=True, pattern=ACCOUNT)] = field(
        default_factory=lambda: "", name="ownerID"
    )
    reservation_type: Annotated[
        str, Schema("Of demand, or a capacity block.", default="default", enum=("default", "capacity-block"))
    ] = field(default_factory=lambda: "default")
    state: Annotated[
        str, Schema("Whether it can be used, or ends soon.", default="active", enum=("active", "expiring"))
    ] = field(default_factory=lambda: "active")


class EC2NodeClassStatus(Object, frozen=True, kw_only=True):
    """What the class's selectors found, and whether instances can be made."""

    subnets: Annotated[tuple[SubnetStatus, ...], Schema("Subnets, those with most free addresses first.")] = ()
    security_groups: Annotated[tuple[SecurityGroup, ...], Schema("Security groups, by id.")] = ()
    capacity_reservations: Annotated[tuple[CapacityReservation, ...], Schema("Capacity reservations, by id.")] = ()
    amis: Annotated[tuple[AMI, ...], Schema("Images, newest first.")] = ()
    instance_profile: Annotated[str, Schema("Instance profile of the nodes.")] = ""
    conditions: Annotated[
        tuple[Condition, ...], Schema("Whether instances can be launched, and the reason if they cannot.")
    ] = ()


class EC2NodeClass(Object, frozen=True, kw_only=True):
    """karpenter.k8s.aws/v1 EC2NodeClass."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: KIND)
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[EC2NodeClassSpec, Schema("How instances are launched.")] = EC2NodeClassSpec()
    status: Annotated[EC2NodeClassStatus, Schema("What was discovered, and whether instances can be launched.")] = (
        EC2NodeClassStatus()
    )

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Paths of the fields of its spec that this version does not know, see `NewerEC2NodeClass`."""
        return ()

    @property
    def name(self) -> str:
        """Its name; classes have no namespace."""
        return self.metadata.name

    @property
    def family(self) -> str:
        """The AMI family, see `EC2NodeClassSpec.family`."""
        return self.spec.family

    @property
    def kubelet(self) -> dict[str, Any]:
        """The kubelet's fields; not to be changed."""
        return {} if isinstance(self.spec.kubelet, UnsetType) else self.spec.kubelet

    @property
    def gpu_sharing(self) -> str:
        """What the annotation says of sharing GPUs by dynamic resource allocation; "" where they are not shared."""
        value = self.metadata.annotations.get(CONSUMABLE_CAPACITY_ANNOTATION, "")
        return "" if value == "disabled" else value

    @property
    def enclaves(self) -> bool:
        """Whether instances have AWS Nitro Enclaves."""
        return isinstance(self.spec.enclave_options, EnclaveOptions) and self.spec.enclave_options.enabled

    @property
    def tags(self) -> dict[str, str]:
        """Tags that the user wants; not to be changed."""
        return {} if isinstance(self.spec.tags, UnsetType) else self.spec.tags

    @property
    def block_device_mappings(self) -> tuple[BlockDeviceMapping, ...]:
        """Volumes that the user wants; none means those of the family."""
        return () if isinstance(self.spec.block_device_mappings, UnsetType) else self.spec.block_device_mappings

    @property
    def network_interfaces(self) -> tuple[NetworkInterface, ...]:
        """Interfaces that the user wants; none means the usual ones."""
        return () if isinstance(self.spec.network_interfaces, UnsetType) else self.spec.network_interfaces


class NewerEC2NodeClass(EC2NodeClass, frozen=True, kw_only=True):
    """An EC2NodeClass with fields that this version does not know, such as those of a newer Karpenter: no hash proves drift, see `NewerNodePool`.

    Attributes:
        unread: their paths, sorted.
    """

    unread: tuple[str, ...] = ()

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """See `EC2NodeClass`."""
        return self.unread
