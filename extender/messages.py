"""Texts that `extender` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# answering.py
PASSING_ALL_NODES_STALE: Final = "Passing all nodes because the state of the extender is out of date"
PASSING_ALL_NODES_FAILED: Final = "Passing all nodes because a request failed"
FAILED_TO_READ_REQUEST: Final = "Failed to read a request"
PASSING_ALL_NODES: Final = "Passing all nodes temporarily because filtering takes too long"
FILTERING_NODES_AGAIN: Final = "Filtering nodes again"

# board.py
IGNORED_UNREADABLE_PART: Final = "Ignored an unreadable part of an object"

# releasing.py
PLANS_ENDED: Final = "Plans ended"
FAILED_TO_ANNOTATE_NODE: Final = "Failed to annotate a Node; retrying"
RELEASED_HOLD: Final = "Released a hold"
RELEASING_HOLDS_FAILED: Final = "Releasing holds failed; retrying"

# reports.py
FAILED_TO_SEND_REPORTS: Final = "Failed to send reports; retrying"
LEADER_ADDRESS_NOT_USABLE: Final = "The leader's address for reports is not usable"
DISCOVERED_LEADER_ADDRESS: Final = "Discovered the leader's address for reports"

# server.py
READY: Final = "Ready"
REPORTS_DISABLED: Final = "Reports over HTTPS are disabled until the certificates exist"
