"""Texts that `cloudprovider/aws/market` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# persistence.py
FAILED_TO_READ_PERSISTED_TABLE: Final = "Failed to read a persisted table; starting without it"
DROPPED_UNREADABLE_ENTRIES: Final = "Dropped unreadable entries of a persisted table"
FAILED_TO_PERSIST_TABLE: Final = "Failed to persist a table; retrying"

# region_market.py
FAILED_TO_REFRESH_MARKET: Final = "Failed to refresh instance types and prices; keeping the previous ones"
IGNORED_IMPLAUSIBLE_MEMORY_CAPACITY: Final = "Ignored the memory capacity that a Node reports because it is implausible"
REFRESHED_INSTANCE_TYPES: Final = "Refreshed instance types"
DISCOVERED_PREFIX_DELEGATION: Final = "Discovered the prefix delegation setting of aws-node"
INSTANCE_TYPES_WITHOUT_PRICE: Final = "Instance types without a known price are offered last"
