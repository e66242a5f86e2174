"""The metrics of the extender."""

from provisioner.support.metrics import counter, gauge, histogram

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)

REQUESTS = counter(
    "dovetail_extender_requests_total",
    "Requests from kube-scheduler, by answer: echoed, steered, narrowed, sampled, refused, scored, vetoed, kept, failed.",
    ("verb", "answer"),
)
SECONDS = histogram(
    "dovetail_extender_request_duration_seconds", "Time to answer a request, excluding HTTP.", ("verb",), buckets=_FAST
)
PASSED = counter(
    "dovetail_extender_passed_total",
    "Requests that were answered with all nodes because of stale data, an internal error or the circuit breaker.",
    ("reason",),
)
BREAKER_OPEN = gauge(
    "dovetail_extender_breaker_open", "1 while all nodes pass unfiltered because requests took too long, otherwise 0."
)
UNKNOWN_NODES = counter(
    "dovetail_extender_unknown_nodes_total",
    "Requests that waited for a node that the watches had not delivered yet, by outcome: known, passed.",
    ("outcome",),
)
HELD_NODES = gauge("dovetail_extender_held_nodes", "Nodes on which room is held for planned pods.")
PLANNED_PODS = gauge("dovetail_extender_planned_pods", "Pending pods for which room is held.")
PLANS = gauge("dovetail_extender_plans", "Plans of NodeClaims and Nodes that are in effect.")
FRESH = gauge("dovetail_extender_fresh", "1 while the watches are up to date, otherwise 0; at 0 all nodes pass.")
RELEASES = counter(
    "dovetail_extender_releases_total",
    "Nodes annotated so that kube-scheduler retries refused pods, by outcome.",
    ("outcome",),
)
FORGOTTEN = counter(
    "dovetail_extender_forgotten_refusals_total",
    "Kinds of refused pods that were forgotten because too many are remembered; kube-scheduler retries their pods at other events.",
)
EXPIRED = counter("dovetail_extender_expired_plans_total", "Plans that expired while room was still held.")
BAD_OBJECTS = counter(
    "dovetail_extender_bad_objects_total", "Objects of which a part could not be read, by kind.", ("kind",)
)
REPORTS = counter(
    "dovetail_extender_reports_total",
    "Reports to the provisioner, by outcome: sent, failed, dropped, unaddressed, paused (after several failures).",
    ("outcome",),
)
