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
INSTANCE_TYPES_WITHOUT_PRICE: Final = (
    "Instance types without a known price are offered last, and not at all where the price of nodes is limited"
)
ESTIMATED_PRICES: Final = "On-demand prices that no price list of the Region has are estimated from another Region's"
INSTANCE_TYPES_NOT_IN_TABLES: Final = (
    "This version of Dovetail does not know some instance types: their nodes are planned without vpc.amazonaws.com/pod-eni, addresses for Windows "
    "pods or the network bandwidth label; upgrade Dovetail"
)

# discounts.py


def ledger_without_key(where: str, key: str, keys: str) -> str:
    return f"discount ledger: {where} has no key {key}, only {keys}"


FAMILY_OR_TYPE: Final = "needs exactly one of family and type"
REGION_OR_ZONE: Final = "takes only one of region and zone"
COUNT_OR_COMMITMENT: Final = "takes only one of count and hourly_commitment"
COMMITMENT_NEEDS_PRICE: Final = "hourly_commitment needs a usd_per_hour above 0"


LEDGER_IS_NO_LIST: Final = "discount ledger: must be a list of rows"


def ledger_cannot_be_read(error: Exception) -> str:
    return f"discount ledger: {error}"


def ledger_row_ignored(row: int, error: Exception) -> str:
    """What is wrong with the discount ledger."""
    return f"discount ledger: row {row} is ignored: {error}"


def not_a_time(value: object) -> str:
    return f"until must be a date or a time such as 2027-03-31 or 2027-03-31T12:00:00Z, not {value!r}"


# region_market.py
NO_INSTANCE_TYPES_LISTED: Final = "EC2 listed no instance types, or no zones that offer them"
