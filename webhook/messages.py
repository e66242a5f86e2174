"""Texts that `webhook` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

from provisioner.values.message import EventMessage

# app.py
FAILED_TO_READ_ADMISSION_REVIEW: Final = "Failed to read an admission review; the object was admitted unchanged"
FAILED_TO_READ_POD: Final = "Failed to read a pod; it was admitted unchanged"
FAILED_TO_PROCESS_ADMISSION_REVIEW: Final = "Failed to process an admission review; the pod was admitted unchanged"


def too_many_values_in_pod(most: int) -> str:
    """What `ReviewError` says."""
    return f"the pod may have more than {most} fields and list items, too many to be decoded"


# stamping.py
STAMPED_FOR_IMAGES: Final = "architectures of the images"
IMAGES_HAVE_NO_COMMON_ARCHITECTURE: Final = (
    "dovetail: the images of the pod have no architecture in common, so no node can run all of its containers. "
    "kubernetes.io/arch was not stamped"
)

ANNOTATIONS_TOO_LARGE: Final = (
    "dovetail: the annotations of the pod are too large for the record of the changes. The pod was not changed"
)
PATCH_TOO_LARGE: Final = "dovetail: the changes to the pod are too large. The pod was not changed; shorten its affinity, or the settings dovetail.dev/..."
PODS_ARE_NOT_COUNTED: Final = "the webhook is not counting pods (--on-demand-shares)"
NO_CONTROLLER_WITH_A_SHARE: Final = "no ReplicaSet, StatefulSet or Job controls the pod"
CAPACITY_TYPE_IS_SET: Final = "karpenter.sh/capacity-type is set for the pod already"


def switch_not_supported(setting: str, stamp: str) -> str:
    """A warning about a switch whose value is not known."""
    return f"dovetail: {setting} is not supported; use enabled or disabled. {stamp} was not set"


def list_too_long(count: int, what: str, most: int) -> str:
    """A warning about a pod that would not be planned anyway."""
    return f"dovetail: the pod has {count} {what}; pods with at most {most} are planned. The pod was not changed; remove some"


def too_many_values(place: str, count: int, limit: int, label: str) -> str:
    """A warning about a setting with a long list."""
    return f"dovetail: {place} holds {count} values, more than the limit of {limit}: {label} was not stamped"


def too_many_deprecated(limit: int) -> str:
    """A warning about a pod of which too much would be rewritten."""
    return f"dovetail: the pod uses deprecated labels in more than {limit} places. No label was rewritten; replace them in the pod"


def opt_out_not_supported(setting: str) -> str:
    """A warning about an opt-out whose value is not known."""
    return f"dovetail: {setting} is not supported; use enabled or disabled. The pod was not changed"


def values_not_supported(setting: str, held: str, expected: str, label: str) -> str:
    """A warning about values that a label cannot have."""
    return f"dovetail: {setting} holds {held}, want {expected}: {label} was not stamped"


def other_operating_system(setting: str, own_os: str, label: str) -> str:
    """A warning about a setting that no node of the pod's operating system fulfils."""
    return f"dovetail: {setting}, but the pod's own spec is for {own_os}: {label} was not stamped"


def share_not_applied(setting: str, problem: str) -> str:
    """A warning about a share of pods on demand."""
    return f"dovetail: {setting}: {problem}. The share was not applied"


def _repair(value: str) -> str:
    return f"annotation dovetail.dev/on-demand-repair of the pod: {value!r}"


def repair_not_supported(value: str, known: str) -> str:
    """A warning about a way of repairing a share that is not known."""
    return f"dovetail: {_repair(value)} is not supported; use {known}"


def repair_of_jobs(value: str) -> str:
    """A warning about the repair of a share of a Job's pods."""
    return f"dovetail: {_repair(value)} has no effect on pods of Jobs, which are never evicted for it"


def repair_without_share(value: str) -> str:
    """A warning about the repair of a share that the pod itself does not ask for."""
    return f"dovetail: {_repair(value)} requires the annotation dovetail.dev/on-demand of the pod as well"


def pool_does_not_exist(setting: str, pool: str) -> str:
    """A warning about a NodePool whose taints would be tolerated."""
    return f"dovetail: {setting}; NodePool {pool} does not exist, so no toleration was added for it"


def too_many_taints(setting: str, count: int, limit: int) -> str:
    """A warning about NodePools with more taints than a pod is given tolerations for."""
    return f"dovetail: {setting}: the NodePools have {count} taints, more than the limit of {limit}. No toleration was added"


def spread_not_supported(setting: str) -> str:
    """A warning about a spread that is not known."""
    return f"dovetail: {setting} is not supported; use zone. No topology spread constraint was added"


def spread_without_label(setting: str) -> str:
    """A warning about a spread of a pod without labels."""
    return f"dovetail: {setting} requires a label that the replicas of the pod share. No topology spread constraint was added"


def legacy_not_supported(setting: str) -> str:
    """A warning about a way to treat deprecated labels that is not known."""
    return f"dovetail: {setting} is not supported; use rewrite or keep. No label was rewritten"


def deprecated(old: str, new: str) -> str:
    """A warning about a label that was rewritten."""
    return f"dovetail: {old} is deprecated, use {new}"


def selectors_contradict(old: str, old_value: str, new: str, new_value: str) -> str:
    """A warning about a deprecated label and its successor with other values."""
    return (
        f"dovetail: nodeSelector asks for {old}={old_value} and {new}={new_value}: "
        f"the values contradict each other, so {old} was not changed"
    )


def spread_has_both(old: str, new: str) -> str:
    """A warning about spread constraints over a deprecated label and its successor."""
    return f"dovetail: topologySpreadConstraints contains both {old} and {new}, so {old} was not changed"


def no_common_architecture() -> EventMessage:
    """An event on a pod whose images became known after its admission."""
    text = "The images of the pod have no architecture in common, so no node can run all of its containers"
    return EventMessage("Warning", "NoCommonArchitecture", text)


def image_arch_not_supported(setting: str) -> str:
    """A warning about a value that is not known."""
    return f"dovetail: {setting} is not supported; use stamp, gate or disabled. kubernetes.io/arch was not stamped"


def images_are_not_looked_up(setting: str) -> str:
    """A warning about a setting that needs a flag."""
    return f"dovetail: {setting}: the webhook is not looking up images (--image-registries). kubernetes.io/arch was not stamped"


# images
FAILED_TO_LOOK_UP_IMAGE: Final = (
    "Failed to look up the architectures of an image; pods that use it are admitted without them"
)
FAILED_TO_READ_PULL_SECRET: Final = "Failed to read a pull secret; the registry is asked without it"
FAILED_TO_GET_ECR_TOKEN: Final = "Failed to get a token for Amazon ECR; the registry is asked without it"
FAILED_TO_SURVEY_RUNNING_IMAGES: Final = (
    "Failed to list Nodes or pods; the architectures of running images are not learned"
)
FAILED_TO_RELEASE_POD: Final = "Failed to write the architectures of a pod's images to the pod; retrying"
PODS_ARE_NOT_HELD: Final = (
    "Pods are not held until the architectures of their images are known, because the permission to patch pods is missing "
    "or the API server cannot be reached"
)

# validation.py
FAILED_TO_READ_VALIDATING_REVIEW: Final = (
    "Failed to read an admission review; the object was admitted without validation"
)
FAILED_TO_READ_OBJECT: Final = "Failed to read an object; it was admitted without validation"
FAILED_TO_VALIDATE_OBJECT: Final = "Failed to validate an object; it was admitted"
NODE_CLASS_DOES_NOT_EXIST: Final = "does not exist; no nodes are launched until it is created"

# conversion.py
FAILED_TO_CONVERT_OBJECTS: Final = "Failed to convert objects"
OBJECT_NESTED_TOO_DEEPLY: Final = "a field of an object is nested too deeply to be converted; remove it"
CONVERSION_FAILED: Final = "the objects could not be converted; see the logs of the webhook"
TOO_MANY_CONVERSIONS: Final = "too many conversions at a time; try again"
TOO_MANY_VALUES_TO_CONVERT: Final = (
    "the objects have too many fields and list items to be converted together; list them in pages"
)


def not_a_conversion_review(problem: str) -> str:
    """The answer to a body that cannot be decoded."""
    return f"not a ConversionReview: {problem}"


def still_invalid(problem: str) -> str:
    """A warning about an error that an update leaves as it was."""
    return f"still invalid: {problem}"


def more_errors(count: str) -> str:
    """The end of a list of errors that is too long."""
    return f"and {count} more errors"


def more_warnings(count: str) -> str:
    """The end of a list of warnings that is too long."""
    return f"and {count} more warnings"


# conversion.py
OBJECT_IS_NO_OBJECT: Final = "request.objects has an item that is not an object"
REVIEW_WITHOUT_UID: Final = "the ConversionReview has no request with a uid"


def not_a_review_with_uid(version: str) -> str:
    """What `ReviewError` says."""
    return f"expected a ConversionReview of {version} with a request that has a uid"


# registration.py


def not_the_webhooks_url(url: str) -> str:
    """What `RegistrationError` says."""
    return f"the webhook's URL must look like https://HOST:PORT, got {url!r}"


def url_with_more_parts(url: str) -> str:
    """What `RegistrationError` says."""
    return f"the webhook's URL must have no user, query or fragment: {url!r}"


def not_a_url(url: str, error: Exception) -> str:
    """What `RegistrationError` says."""
    return f"{url!r} is not a URL: {error}"


# review.py


def other_admission_review(version: str, found: str) -> str:
    """What `ReviewError` says."""
    return f"expected an AdmissionReview of {version}, got {found}"


ADMISSION_REVIEW_WITHOUT_UID: Final = "the AdmissionReview has no request with a uid"


def not_an_admission_review(error: Exception) -> str:
    """What `ReviewError` says."""
    return f"not an AdmissionReview: {error}"


def not_a_pod(error: Exception) -> str:
    """What `ReviewError` says."""
    return f"not a pod: {error}"


# server.py


def cannot_use_cert_dir(path: object, error: object) -> str:
    """What `click.ClickException` says."""
    return f"cannot use --cert-dir {path}: {error}"


# images/credentials.py
NO_ANSWER_IN_TIME: Final = "no answer arrived in time"
