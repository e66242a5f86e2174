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


def overlay_conflict(other: str) -> str:
    """Why a NodeOverlay is not applied."""
    return f'NodeOverlay "{other}" of the same weight changes the same instance types; give one of them another weight'


# overlays.py
FAILED_TO_GET_INSTANCE_TYPES: Final = (
    "Failed to get the instance types of a NodePool; conflicts of NodeOverlays in it are not detected"
)
