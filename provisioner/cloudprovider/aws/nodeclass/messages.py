"""Texts that `cloudprovider/aws/nodeclass` publishes: conditions and warnings of EC2NodeClasses, and logs.

docs/reference/messages.md is generated from here. A warning is published as an event NodeClassWarning. Where nothing
else is said, a function tells what is wrong with a field of an EC2NodeClass, or not known yet. Pure.
"""

from typing import Final

from provisioner.apis import ec2, names
from provisioner.values.message import ConditionMessage

# ------------------------------------------------------------------ conditions


def no_images(minor: int, sought: str) -> ConditionMessage:
    """`sought` is `looked_for`, or "" where nothing was looked for by ID."""
    return ConditionMessage(
        ec2.AMIS_READY,
        names.FALSE,
        ec2.AMI_NOT_FOUND,
        f"spec.amiSelectorTerms select no image that nodes of Kubernetes 1.{minor} can boot{sought}",
    )


def looked_for(absent: str) -> str:
    return f"; looked for {absent}"


def images_ready(failures: str) -> ConditionMessage:
    """`failures` are those of terms whose previous result is used."""
    return ConditionMessage(ec2.AMIS_READY, names.TRUE, "", failures)


def alias_not_supported(problem: str) -> ConditionMessage:
    """`problem` as `alias_has_ended` or `alias_begins_later` says it."""
    return ConditionMessage(
        ec2.AMIS_READY, names.FALSE, ec2.UNSUPPORTED_ALIAS, f"spec.amiSelectorTerms: {problem}; select another alias"
    )


def alias_has_ended(minor: int, last: int) -> str:
    """Of AL2."""
    return f"AWS publishes no AL2 images for Kubernetes 1.{minor}; the last minor is 1.{last}"


def alias_begins_later(minor: int, first: int) -> str:
    """Of Windows2025."""
    return f"AWS publishes no Windows2025 images for Kubernetes 1.{minor}; the first minor is 1.{first}"


SUBNETS_NOT_FOUND: Final = ConditionMessage(
    ec2.SUBNETS_READY,
    names.FALSE,
    ec2.SUBNETS_NOT_FOUND,
    "spec.subnetSelectorTerms select no subnet; check the IDs, the tags and the Region",
)
GROUPS_NOT_FOUND: Final = ConditionMessage(
    ec2.SECURITY_GROUPS_READY,
    names.FALSE,
    ec2.SECURITY_GROUPS_NOT_FOUND,
    "spec.securityGroupSelectorTerms select no security group; check the IDs, the names, the tags and the Region",
)
PLACEMENT_GROUP_NOT_FOUND: Final = ConditionMessage(
    ec2.PLACEMENT_GROUP_READY,
    names.FALSE,
    ec2.PLACEMENT_GROUP_NOT_FOUND,
    "spec.placementGroupSelector: the placement group does not exist in this Region; create it, or correct the selector",
)


def waiting_for(status: str, conditions: str) -> ConditionMessage:
    """Dry runs need what these conditions are about."""
    return ConditionMessage(ec2.VALIDATION_SUCCEEDED, status, ec2.DEPENDENCIES_NOT_READY, f"waiting for {conditions}")


def using_previous_result(condition: str, error: str) -> ConditionMessage:
    """A call failed, and the condition is True from before."""
    return ConditionMessage(condition, names.TRUE, "", f"using the previous result: {error}")


def cluster_not_known(condition: str, error: str) -> ConditionMessage:
    """A setting of the cluster that the condition depends on was not discovered yet."""
    return ConditionMessage(condition, names.UNKNOWN, "ClusterNotKnown", error)


def failed_call(condition: str, status: str, reason: str, error: str) -> ConditionMessage:
    """A call failed, and the condition is not True from before."""
    return ConditionMessage(condition, status, reason, error)


def profile_problem(reason: str, text: str) -> ConditionMessage:
    """`text` is one of the two that follow."""
    return ConditionMessage(ec2.INSTANCE_PROFILE_READY, names.FALSE, reason, text)


def profile_not_ours(profile: str) -> str:
    """With reason InstanceProfileNotOurs."""
    return (
        f"the instance profile {profile} for spec.role already exists and was not created for this EC2NodeClass; delete it, or set "
        "spec.instanceProfile"
    )


def role_not_found(role: str) -> str:
    """With reason RoleNotFound."""
    return f'spec.role: role "{role}" does not exist in this account; create it, or correct the name'


def invalid(reason: str, text: str) -> ConditionMessage:
    """`text` is one of those that follow."""
    return ConditionMessage(ec2.VALIDATION_SUCCEEDED, names.FALSE, reason, text)


def valid_but(reason: str, text: str) -> ConditionMessage:
    """Of a class that was in use before `text`, for which a new one is not valid, was found."""
    return ConditionMessage(ec2.VALIDATION_SUCCEEDED, names.TRUE, reason, text)


NO_SERVICE_CIDR: Final = "AMI family AL2023 requires the service CIDR of the cluster, which could not be discovered"


def in_field(field: str, problem: str) -> str:
    """Also as a warning."""
    return f"{field}: {problem}"


def user_data_too_long(problem: str) -> str:
    """`problem` as `user_data_exceeds_limit` says it."""
    return f"spec.userData: {problem}; shorten it"


def user_data_exceeds_limit(size: int, limit: int) -> str:
    """EC2 takes none longer."""
    return f"user data of {size} bytes exceeds the EC2 limit of {limit} bytes"


TAG_KEY_EMPTY: Final = "spec.tags: a key is empty"


def tag_is_set_by_us(key: str) -> str:
    """Also one that names a cluster."""
    return f"spec.tags[{key}]: the provisioner sets this tag; use another key"


def tag_is_reserved(key: str) -> str:
    """EC2 refuses it."""
    return f"spec.tags[{key}]: keys that begin with aws: are reserved by AWS; use another key"


def tag_too_long(key: str, key_length: int, value_length: int) -> str:
    """EC2 refuses it."""
    return (
        f"spec.tags[{key}]: longer than AWS allows: at most {key_length} characters in the key, "
        f"{value_length} in the value"
    )


def action_failed(action: str, failure: str) -> str:
    """A dry run was refused."""
    return f"{action}: {failure}"


# ------------------------------------------------------------------ warnings


def image_deprecated(images: str) -> str:
    """AWS still boots it."""
    return f"spec.amiSelectorTerms: {images} is deprecated by its owner and may be removed; select a newer image"


PUBLIC_ADDRESS_WITH_SEVERAL_INTERFACES: Final = (
    "spec.associatePublicIPAddress: EC2 assigns public IP addresses only to instances with one network interface, so no instances are "
    "launched with the several ones of spec.networkInterfaces; remove one of the two fields"
)


def image_term_failed(failure: str) -> str:
    """One term could not be looked up."""
    return f"spec.amiSelectorTerms: {failure}; using the previous result"


def groups_of_other_vpc(networks: str, outside: str) -> str:
    """EC2 refuses launches in these subnets."""
    return (
        f"spec.securityGroupSelectorTerms select groups of {networks}, but {outside} belongs to another VPC; "
        "no instances can be launched there"
    )


def reservation_missing(place: int, reservation: str) -> str:
    """`place` counts from 0."""
    return f"spec.capacityReservationSelectorTerms[{place}]: capacity reservation {reservation} does not exist or is not active"


def subnet_term_combines(place: int) -> str:
    """`place` counts from 0."""
    return f"spec.subnetSelectorTerms[{place}]: id and tags are mutually exclusive; tags are ignored"


def group_term_has_id(place: int) -> str:
    """`place` counts from 0."""
    return f"spec.securityGroupSelectorTerms[{place}]: id cannot be combined with name or tags, which are ignored"


def group_term_combines(place: int) -> str:
    """`place` counts from 0."""
    return f"spec.securityGroupSelectorTerms[{place}]: name and tags are mutually exclusive; tags are ignored"


def reservation_term_combines(place: int) -> str:
    """`place` counts from 0."""
    return (
        f"spec.capacityReservationSelectorTerms[{place}]: id cannot be combined with tags, ownerID or instanceMatchCriteria, "
        "which are ignored"
    )


def image_term_combines(place: int) -> str:
    """`place` counts from 0."""
    return f"spec.amiSelectorTerms[{place}]: ssmParameter cannot be combined with another selector; use one of them"


def device_without_name(place: int) -> str:
    """`place` counts from 0."""
    return f"spec.blockDeviceMappings[{place}]: deviceName is missing; EC2 cannot launch instances without it"


def instance_store_policy_without_effect(family: str) -> str:
    """Custom and Windows families."""
    return f"spec.instanceStorePolicy: has no effect on images of family {family}"


def user_data_nearly_too_long(size: int, limit: int) -> str:
    """In bytes."""
    return f"user data uses {size} of the {limit} bytes that EC2 allows"


WINDOWS_WITHOUT_IPV6: Final = (
    "no instance is launched for this class because Windows nodes do not support IPv6, which this cluster uses"
)
NO_COMPATIBLE_TYPE: Final = "no instance type is compatible with the images that spec.amiSelectorTerms selects"


def dry_run_failed(action: str, failure: str) -> str:
    """For a reason that says nothing about permissions."""
    return f"a dry run of {action} failed: {failure}"


# ------------------------------------------------------------------ logs

# cluster.py
DISCOVERED_CLUSTER: Final = "Discovered the cluster"
FAILED_TO_DISCOVER_CLUSTER: Final = "Failed to discover the cluster; retrying"

# profiles.py
FAILED_TO_RESTORE_ROLE: Final = "Failed to restore the role of an instance profile"

# cluster.py


def not_yet_known(facts: str) -> str:
    return f"not yet known about the cluster: {facts}"


ENDPOINT_NOT_KNOWN: Final = "its endpoint (set CLUSTER_ENDPOINT, or allow eks:DescribeCluster)"
AUTHORITY_NOT_KNOWN: Final = "its certificate authority (set CLUSTER_CA_BUNDLE)"
VERSION_NOT_KNOWN: Final = "its version"
FAMILY_NOT_KNOWN: Final = (
    "whether its pods have IPv4 or IPv6 addresses (allow eks:DescribeCluster, or reading Service kube-system/kube-dns)"
)

# discovery.py


def parameter_without_image(name: str, value: str) -> str:
    return f"SSM parameter {name} contains {value!r}, which is not an image ID"


# kubelet.py


def threshold_not_a_percentage(text: str) -> str:
    return f"{text} is not a percentage from 0% to 100%"


def taints_cannot_be_set(field: str) -> str:
    return f"{field}: cannot be set because the provisioner sets the taints of nodes from their NodePool"


def threshold_without_grace_period(signal: str) -> str:
    return f"evictionSoft[{signal}]: evictionSoftGracePeriod has no grace period for this signal"


def grace_period_without_threshold(signal: str) -> str:
    return f"evictionSoftGracePeriod[{signal}]: evictionSoft has no threshold for this signal"


def unknown_eviction_signal(field: str, signal: str, known: str) -> str:
    return f"{field}[{signal}]: the signal must be one of {known}"


def threshold_negative(text: str) -> str:
    return f"{text} is negative"


def high_not_above_low(higher: str, high: str, lower: str, low: str) -> str:
    return f"{higher}: {high} must be greater than {lower}, {low}"


def not_supported_by_family(field: str, family: str) -> str:
    return f"{field}: not supported with AMI family {family}; use AL2023, or userData"


def pods_per_core_not_supported(family: str) -> str:
    return f"podsPerCore: not supported with AMI family {family}; use maxPods"


def one_cluster_dns_only(family: str) -> str:
    return f"clusterDNS: AMI family {family} supports only one address"


def expression_not_supported(path: str, text: str) -> str:
    return f'{path}: "{text}" is an expression, which is not supported; use a value'


def kubelet_field_available_since(path: str, minor: int, since: int) -> str:
    return f"{path}: unknown to the kubelet of Kubernetes 1.{minor} (available since 1.{since})"


def kubelet_field_unknown(path: str, minor: int) -> str:
    return f"{path}: unknown to the kubelet of Kubernetes 1.{minor}"


def grace_period_problem(signal: str, problem: str) -> str:
    return f"evictionSoftGracePeriod[{signal}]: {problem}"


def not_between_0_and_100(field: str, value: str) -> str:
    return f"{field}: {value} is not between 0 and 100"


def value_negative(field: str, value: int) -> str:
    return f"{field}: {value} is negative"


def grace_period_negative(signal: str, text: str) -> str:
    return f"evictionSoftGracePeriod[{signal}]: {text} is negative"


def resource_cannot_be_reserved(field: str, resource: str, known: str) -> str:
    return f"{field}[{resource}]: only {known} can be reserved"


def reserved_amount_negative(field: str, resource: str, amount: str) -> str:
    return f"{field}[{resource}]: {amount} is negative"


# reservations.py


def reservation_not_supported(name: str, kind: str, criteria: str) -> str:
    return f"{name} is of type {kind!r} with match criteria {criteria!r}, which is not supported"


def placement_group_not_read(node_class: str) -> str:
    """What is not yet known of the cluster."""
    return f"the placement group of EC2NodeClass {node_class}"
