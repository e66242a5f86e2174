"""Texts that `webhook` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

from provisioner.values.message import EventMessage

# app.py
FAILED_TO_READ_ADMISSION_REVIEW: Final = "Failed to read an admission review; the object was admitted unchanged"
FAILED_TO_READ_POD: Final = "Failed to read a pod; it was admitted unchanged"
FAILED_TO_PROCESS_ADMISSION_REVIEW: Final = "Failed to process an admission review; the pod was admitted unchanged"


def too_many_values_in_pod(most: int) -> str:
    return f"the pod may have more than {most} fields and list items, too many to be decoded"


# app.py, once more

PATCH_TOO_LARGE: Final = "dovetail: the changes to the pod are too large. The pod was not changed; shorten its affinity, or the settings dovetail.dev/..."


def no_common_architecture() -> EventMessage:
    """An event on a pod whose images became known after its admission."""
    text = "The images of the pod have no architecture in common, so no node can run all of its containers"
    return EventMessage("Warning", "NoCommonArchitecture", text)


# images
FAILED_TO_LOOK_UP_IMAGE: Final = (
    "Failed to look up the architectures of an image; pods that use it are admitted without them"
)
FAILED_TO_READ_PULL_SECRET: Final = "Failed to read a pull secret; the registry is asked without it"
FAILED_TO_GET_ECR_TOKEN: Final = "Failed to get a token for Amazon ECR; the registry is asked without it"
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
    return f"expected a ConversionReview of {version} with a request that has a uid"


# registration.py


def not_the_webhooks_url(url: str) -> str:
    return f"the webhook's URL must look like https://HOST:PORT, got {url!r}"


def url_with_more_parts(url: str) -> str:
    return f"the webhook's URL must have no user, query or fragment: {url!r}"


def not_a_url(url: str, error: Exception) -> str:
    return f"{url!r} is not a URL: {error}"


# review.py


def other_admission_review(version: str, found: str) -> str:
    return f"expected an AdmissionReview of {version}, got {found}"


ADMISSION_REVIEW_WITHOUT_UID: Final = "the AdmissionReview has no request with a uid"


def not_an_admission_review(error: Exception) -> str:
    return f"not an AdmissionReview: {error}"


def not_a_pod(error: Exception) -> str:
    return f"not a pod: {error}"


# server.py


def cannot_use_cert_dir(path: object, error: object) -> str:
    """What `click.ClickException` says."""
    return f"cannot use --cert-dir {path}: {error}"


# images/credentials.py
NO_ANSWER_IN_TIME: Final = "no answer arrived in time"
