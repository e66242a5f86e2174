"""Texts that `cloudprovider` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

from provisioner.apis import names
from provisioner.values.message import ConditionMessage


def nodeclass_not_found(kind: str, name: str) -> ConditionMessage:
    """On each NodePool that refers to it."""
    return ConditionMessage(
        names.NODECLASS_READY, names.FALSE, names.NODECLASS_NOT_FOUND, f"{kind} {name} does not exist; create it"
    )


def nodeclass_terminating(kind: str, name: str) -> ConditionMessage:
    """On each NodePool that refers to it."""
    return ConditionMessage(
        names.NODECLASS_READY, names.FALSE, names.NODECLASS_TERMINATING, f"{kind} {name} is being deleted"
    )


NODECLASS_READINESS_UNKNOWN: Final = ConditionMessage(
    names.NODECLASS_READY, names.UNKNOWN, names.NODECLASS_READINESS_UNKNOWN, "its readiness is not known yet"
)


# overlays.py
FAILED_TO_GET_INSTANCE_TYPES: Final = (
    "Failed to get the instance types of a NodePool; conflicts of NodeOverlays in it are not detected"
)

# overlays.py
PRICE_AND_ADJUSTMENT: Final = "cannot set both 'price' and 'priceAdjustment'"


def resource_of_the_provider(restricted: str) -> str:
    return f"{restricted} is set by the provider and cannot be changed"


def not_an_adjustment(adjustment: str) -> str:
    return f"{adjustment!r} is neither an amount with its sign (+0.5) nor a percentage (-10%), or more than a billion"


def not_a_price(price: str) -> str:
    return f"{price!r} is not an amount in USD per hour, such as 0.25, of at most a billion"


# types.py


def invalid_requirements(error: Exception) -> str:
    return f"spec.requirements: {error}"


def invalid_requests(error: Exception) -> str:
    return f"spec.resources.requests: {error}"


# errors.py


def launch_in_progress(claim_name: str) -> str:
    return f"the launch of NodeClaim {claim_name} is in progress"


def no_capacity(claim_name: str, problem: str) -> str:
    return f"no capacity for NodeClaim {claim_name}: {problem}"


def node_class_not_ready(kind: str, self: str, problem: str) -> str:
    return f"{kind} {self} is not ready: {problem}"
