"""Texts that `cloudprovider/aws/nodeclass` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# cluster.py
DISCOVERED_CLUSTER: Final = "Discovered the cluster"
FAILED_TO_REFRESH_CLUSTER_SETTINGS: Final = (
    "Failed to refresh the discovered cluster settings; keeping the previous ones"
)
FAILED_TO_DISCOVER_CLUSTER: Final = "Failed to discover the cluster; retrying"

# profiles.py
FAILED_TO_RESTORE_ROLE: Final = "Failed to restore the role of an instance profile"
