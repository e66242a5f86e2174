"""Texts that `cloudprovider/kwok` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# provider.py
DELETING_NODE_WITHOUT_NODECLAIM: Final = "Deleting the Node of a NodeClaim that no longer exists"
FAILED_TO_CREATE_NODE: Final = "Failed to create a Node; retrying"
FAILED_TO_RESUME_NODECLAIM: Final = "Failed to resume a NodeClaim"
