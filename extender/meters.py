"""The metrics of the extender."""

from provisioner.support.metrics import counter, gauge, histogram

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)

REQUESTS = counter(
    "dovetail_extender_requests_total",
    "Questions of kube-scheduler by what was answered: echoed, steered, narrowed, refused, scored, vetoed, kept, failed.",
    ("verb", "answer"),
)
SECONDS = histogram(
    "dovetail_extender_request_duration_seconds", "Time to an answer, without HTTP.", ("verb",), buckets=_FAST
)
PASSED = counter(
    "dovetail_extender_passed_total",
    "Questions that were answered with every node because we could not judge: stale data, an internal error, or the breaker.",
    ("reason",),
)
BREAKER_OPEN = gauge(
    "dovetail_extender_breaker_open", "1 while every node passes unjudged, because judgements took too long."
)
UNKNOWN_NODES = counter(
    "dovetail_extender_unknown_nodes_total",
    "Questions that waited for a node name that no watch had told of, by outcome: known, passed.",
    ("outcome",),
)
HELD_NODES = gauge("dovetail_extender_held_nodes", "Nodes with room held for planned pods.")
PLANNED_PODS = gauge("dovetail_extender_planned_pods", "Waiting pods that a place is kept for.")
PLANS = gauge("dovetail_extender_plans", "Live plans, of NodeClaims and of Nodes.")
FRESH = gauge("dovetail_extender_fresh", "1 while the watches are up to date; at 0 every node passes.")
RELEASES = counter("dovetail_extender_releases_total", "Nodes touched to wake refused pods, by outcome.", ("outcome",))
EXPIRED = counter("dovetail_extender_expired_plans_total", "Plans that ended with room still held.")
BAD_OBJECTS = counter("dovetail_extender_bad_objects_total", "Objects with a part that could not be read.", ("kind",))
REPORTS = counter(
    "dovetail_extender_reports_total",
    "Reports to the provisioner by outcome: sent, failed, dropped, unaddressed.",
    ("outcome",),
)
