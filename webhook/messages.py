"""Texts that `webhook` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# app.py
FAILED_TO_READ_ADMISSION_REVIEW: Final = "Failed to read an admission review; the object was admitted unchanged"
FAILED_TO_READ_POD: Final = "Failed to read a pod; it was admitted unchanged"
FAILED_TO_PROCESS_ADMISSION_REVIEW: Final = "Failed to process an admission review; the pod was admitted unchanged"

# validation.py
FAILED_TO_READ_VALIDATING_REVIEW: Final = (
    "Failed to read an admission review; the object was admitted without validation"
)
FAILED_TO_READ_OBJECT: Final = "Failed to read an object; it was admitted without validation"
FAILED_TO_VALIDATE_OBJECT: Final = "Failed to validate an object; it was admitted"
NODE_CLASS_DOES_NOT_EXIST: Final = "does not exist; no nodes are launched until it is created"

# conversion.py
FAILED_TO_CONVERT_OBJECTS: Final = "Failed to convert objects"
CONVERSION_FAILED: Final = "the objects could not be converted; see the logs of the webhook"
TOO_MANY_CONVERSIONS: Final = "too many conversions at a time; try again"


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
