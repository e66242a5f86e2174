"""Texts that `cloudprovider/kwok` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# provider.py
DELETING_NODE_WITHOUT_NODECLAIM: Final = "Deleting the Node of a NodeClaim that no longer exists"
FAILED_TO_CREATE_NODE: Final = "Failed to create a Node; retrying"
FAILED_TO_RESUME_NODECLAIM: Final = "Failed to resume a NodeClaim"

# catalogue.py
NOT_A_LIST_OF_TYPES: Final = "must be a JSON list of instance types"
WITHOUT_SYSTEM: Final = "must be a list with at least one operating system, such as linux"
WITHOUT_OFFERING: Final = "must be a list with at least one offering"


def instance_types_file(path: str, problem: str) -> str:
    return f"instance types file {path}: {problem}"


def entry_ignored(path: str, entry: int, named: str, field: str, problem: str) -> str:
    return f"instance types file {path}: entry [{entry}]{named} is ignored: {field}{problem}"


def no_usable_type(entries: int, first: str) -> str:
    return f"has no usable instance type among {entries} entries{first}"


def unknown_capacity_type(key: str, known: str, capacity_type: str) -> str:
    return f"{key} must be one of {known}, is {capacity_type}"


def cannot_be_read(strerror: object) -> str:
    return f"cannot be read: {strerror}; check INSTANCE_TYPES_FILE_PATH"


def not_json(error: Exception) -> str:
    return f"is not JSON: {error}"


def no_quantity(amount: str) -> str:
    return f"must be a quantity like 4 or 16Gi, is {amount}"


def not_above_zero(value: str) -> str:
    return f"is {value}, must be more than 0"


def not_fixed_to_one_value(key: str) -> str:
    return f"must fix {key} to one value with operator In"


NAME_USED_TWICE: Final = "another entry has the same name; use a unique name for each instance type"

# provider.py


def requests_fit_no_type(fitting: int) -> str:
    """Why an entry is left out, or a Node not created."""
    return f"its resource requests fit none of the {fitting} instance types that its requirements allow"


def types_not_in_catalogue(types: int) -> str:
    """Why an entry is left out, or a Node not created."""
    return f"none of its instance types is among the {types} instance types of the catalogue"


def no_offering_allowed(types: int) -> str:
    """Why an entry is left out, or a Node not created."""
    return f"none of its {types} instance types has an available offering that its requirements allow"


def invalid_registration_delay(error: Exception) -> str:
    """Why an entry is left out, or a Node not created."""
    return f"spec.nodeRegistrationDelay: {error}"


def node_of_other_nodeclaim(node: str) -> str:
    return f"Node {node} exists already and belongs to another NodeClaim"


def node_class_status(status: str) -> str:
    """Why a KWOKNodeClass is not ready, where its condition gives no message."""
    return f"the status of its condition Ready is {status}"
