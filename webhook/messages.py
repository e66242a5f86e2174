"""What the webhook tells users and writes into its log about the objects that it validates."""

from typing import Final

from provisioner.apis.openapi import Violation

CLASS_DOES_NOT_EXIST: Final = "does not exist; no nodes are launched until it is created"
UNREADABLE_REVIEW: Final = "Failed to read an admission review; the object was admitted without validation"
UNREADABLE_OBJECT: Final = "Failed to read an object; it was admitted without validation"
VALIDATION_FAILED: Final = "Failed to validate an object; it was admitted"


def still_invalid(one: Violation) -> str:
    """A warning about an error that an update leaves as it was."""
    return f"still invalid: {one}"


def and_more_errors(count: int) -> str:
    """The end of a list of errors that is too long."""
    return f"and {count} more error{'' if count == 1 else 's'}"
