"""Texts that `cloudprovider` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# overlays.py
FAILED_TO_GET_INSTANCE_TYPES: Final = (
    "Failed to get the instance types of a NodePool; conflicts of NodeOverlays in it are not detected"
)
