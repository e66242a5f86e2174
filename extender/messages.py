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

# reports.py
FAILED_TO_SEND_REPORTS: Final = "Failed to send reports; retrying"
LEADER_ADDRESS_NOT_USABLE: Final = "The leader's address for reports is not usable"
DISCOVERED_LEADER_ADDRESS: Final = "Discovered the leader's address for reports"

# server.py
READY: Final = "Ready"
REPORTS_DISABLED: Final = "Reports over HTTPS are disabled until the certificates exist"

# app.py


def invalid_prefix(prefix: str) -> str:
    return f"prefix {prefix!r} must be empty, or begin with / and not end with /"


# board.py


def table_is_locked(seconds: float) -> str:
    return f"the plan table was locked for {seconds:g} s"


# protocol.py
POD_WITHOUT_UID: Final = "Pod: metadata.uid is empty"


def not_a_node_of_the_request(name: str) -> str:
    return f"{name!r} is not one of the nodes in the request"


def not_extender_args(error: Exception) -> str:
    return f"not ExtenderArgs: {error}"


NO_NODES: Final = "neither Nodes nor NodeNames is a list"


def not_preemption_args(error: Exception) -> str:
    return f"not ExtenderPreemptionArgs: {error}"


def unreadable_node_names(error: Exception) -> str:
    return f"NodeNames: {error}"


# reports.py


def not_an_http_url(url: str) -> str:
    return f"{url!r} is not an http or https URL with a host"


URL_WITH_CREDENTIALS: Final = "the URL contains credentials"


def plain_http_to_other_host(url: str) -> str:
    return f"{url!r} is plain http to another host; configure the provisioner to serve reports over https"


def https_needs_certificates(url: str) -> str:
    return f"{url!r} requires --reports-ca, --reports-cert and --reports-key"


def not_a_url(url: str, error: Exception) -> str:
    return f"{url!r} is not a URL: {error}"


# server.py
CERTIFICATE_WITHOUT_KEY: Final = "--tls-cert and --tls-key must be set together"
CLIENT_CA_WITHOUT_CERTIFICATE: Final = "--tls-client-ca requires --tls-cert and --tls-key"


def bind_is_not_loopback(address: str) -> str:
    return (
        f"--bind {address} is not loopback, so any client could read the plans and delay kube-scheduler; bind "
        "to 127.0.0.1, or set --tls-cert, --tls-key and --tls-client-ca"
    )


REPORTS_CERTIFICATE_WITHOUT_KEY: Final = "--reports-cert and --reports-key must be set together"


def invalid_prefix_flag(prefix: str) -> str:
    return f"--prefix {prefix!r} must begin with / and must not end with /"


HOLD_TTL_IS_IGNORED: Final = (
    "--hold-ttl is deprecated and ignored, because plans say for how long room is held; "
    "set --hold-ttl of the provisioner, and leave this flag out"
)
