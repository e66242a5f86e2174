"""Grafana dashboards. Plain dictionaries: of Grafana's schema, six kinds of keys are used, which no library makes shorter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from provisioner.lab.monitoring.rules import NOT_READY

_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 24
_SCHEMA: Final = 39
"""Grafana 10.4 and newer read it."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WINDOW: Final = "$__rate_interval"


@dataclass(frozen=True)
class Panel:
    """One picture over time.

    Attributes:
        unit: of Grafana: short, s, percentunit, currencyUSD, reqps.
        queries: (expression, legend).
        about: what to look at.
    """

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    about: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard; its file and its uid are called `name`."""

    name: str
    title: str
    panels: Sequence[Panel]

    def document(self) -> dict[str, Any]:
        """As Grafana imports it."""
        return {
            "uid": self.name,
            "title": self.title,
            "tags": ["dovetail"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "1m",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [_variable()]},
            "panels": [_panel(index, panel) for index, panel in enumerate(self.panels)],
        }


def _variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}


def _panel(index: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {
            "x": index * _WIDTH % _COLUMNS,
            "y": index * _WIDTH // _COLUMNS * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _rate(series: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({series}[{_WINDOW}]))"


def _grown(series: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (increase({series}[{_WINDOW}]))"


def _p99(histogram: str, *by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({', '.join(('le', *by))}) (rate({histogram}_bucket[{_WINDOW}])))"


def _legend(*labels: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


_OVERVIEW: Final = Dashboard(
    "dovetail-overview",
    "Dovetail / Overview",
    (
        Panel(
            "Leader", "short", [("leader_election_master_status", _legend("instance"))], "Exactly one replica is at 1."
        ),
        Panel(
            "Nodes",
            "short",
            [('count by (nodepool) (karpenter_nodes_allocatable{resource_type="cpu"})', _legend("nodepool"))],
        ),
        Panel(
            "Pods that wait",
            "short",
            [
                ("sum(karpenter_scheduler_unschedulable_pods_count)", "cannot be placed"),
                ("count(karpenter_pods_provisioning_unbound_time_seconds)", "planned, not bound"),
                ("sum(karpenter_scheduler_ignored_pods_count)", "ignored"),
            ],
        ),
        Panel(
            "Time from a pod's creation until it is bound",
            "s",
            [(_p99("karpenter_pods_bound_duration_seconds"), "99 %")],
        ),
        Panel("Utilization", "percent", [("karpenter_cluster_utilization_percent", _legend("resource_type"))]),
        Panel(
            "Not Ready",
            "short",
            [
                (
                    f"count by (kind, name, type, reason) ({NOT_READY})",
                    _legend("kind", "name", "type", "reason"),
                )
            ],
        ),
        Panel("Watch lag", "s", [("max by (resource) (dovetail_watch_lag_seconds)", _legend("resource"))]),
        Panel(
            "Errors of controllers",
            "reqps",
            [(_rate("controller_runtime_reconcile_errors_total", "controller"), _legend("controller"))],
        ),
        Panel(
            "Memory",
            "bytes",
            [("process_resident_memory_bytes and on (instance) dovetail_threads_died_total", _legend("instance"))],
        ),
        Panel(
            "Certificates expire in",
            "s",
            [("dovetail_certificate_expiration_timestamp_seconds - time()", _legend("certificate", "instance"))],
        ),
    ),
)
_COST: Final = Dashboard(
    "dovetail-cost",
    "Dovetail / Cost",
    (
        Panel("Price of all nodes per hour", "currencyUSD", [("karpenter_nodepools_cost_total", _legend("nodepool"))]),
        Panel(
            "What consolidation could still save per hour",
            "currencyUSD",
            [("dovetail_consolidation_potential_usd_per_hour", "at most")],
            "The price of all nodes minus a proved lower bound of what their pods cost.",
        ),
        Panel(
            "The most recent plan: price and lower bound per hour",
            "currencyUSD",
            [("dovetail_plan_cost", "price"), ("dovetail_plan_lower_bound", "lower bound")],
            "No plan for the same pods can cost less than the bound.",
        ),
        Panel("The most recent plan: gap", "percentunit", [("dovetail_plan_gap", "price above the bound")]),
        Panel("Plans by outcome", "short", [(_grown("dovetail_plans_total", "outcome"), _legend("outcome"))]),
        Panel(
            "Share of the spending limit",
            "percentunit",
            [
                (
                    'karpenter_nodepools_usage{resource_type="usd_per_hour"} / karpenter_nodepools_limit{resource_type="usd_per_hour"}',
                    _legend("nodepool"),
                )
            ],
        ),
        Panel(
            "Launched nodes that wait for others of a group of pods: price per hour",
            "currencyUSD",
            [("dovetail_gang_usd_waiting", "price")],
            "Nothing runs there yet. If a node of the group cannot be launched, all of them are given up after a while.",
        ),
        Panel(
            "NodeClaims held back by limits", "short", [("dovetail_nodeclaims_held_back", _legend("nodepool", "limit"))]
        ),
        Panel(
            "Nodes by capacity type",
            "short",
            [('count by (capacity_type) (karpenter_nodes_allocatable{resource_type="cpu"})', _legend("capacity_type"))],
        ),
    ),
)
_PLACEMENT: Final = Dashboard(
    "dovetail-placement",
    "Dovetail / Placement",
    (
        Panel(
            "Planned pods by outcome", "short", [(_grown("dovetail_plan_pods_total", "outcome"), _legend("outcome"))]
        ),
        Panel(
            "Groups of pods by state",
            "short",
            [("sum by (state) (dovetail_gangs)", _legend("state"))],
            "Groups that are planned as a whole: PodGroups, and groups that annotations form.",
        ),
        Panel("Missed plans by cause", "short", [(_grown("dovetail_plan_misses_total", "cause"), _legend("cause"))]),
        Panel(
            "Scheduling decisions",
            "s",
            [(_p99("karpenter_scheduler_scheduling_duration_seconds", "controller"), "99 % {{controller}}")],
        ),
        Panel("Nominations", "short", [(_grown("dovetail_nominations_total", "outcome"), _legend("outcome"))]),
        Panel(
            "Requests to the extender",
            "reqps",
            [(_rate("dovetail_extender_requests_total", "verb", "answer"), _legend("verb", "answer"))],
        ),
        Panel(
            "Time of the extender", "s", [(_p99("dovetail_extender_request_duration_seconds", "verb"), "99 % {{verb}}")]
        ),
        Panel(
            "The extender passes all nodes",
            "reqps",
            [(_rate("dovetail_extender_passed_total", "reason"), _legend("reason"))],
        ),
        Panel(
            "Room that is held",
            "short",
            [
                ("dovetail_extender_held_nodes", "nodes {{instance}}"),
                ("dovetail_extender_planned_pods", "pods {{instance}}"),
            ],
        ),
    ),
)
_DISRUPTION: Final = Dashboard(
    "dovetail-disruption",
    "Dovetail / Disruption",
    (
        Panel(
            "Disrupted NodeClaims",
            "short",
            [(_grown("karpenter_nodeclaims_disrupted_total", "nodepool", "reason"), _legend("nodepool", "reason"))],
        ),
        Panel(
            "Nodes created and terminated",
            "short",
            [
                (_grown("karpenter_nodes_created_total", "nodepool"), "created {{nodepool}}"),
                (_grown("karpenter_nodes_terminated_total", "nodepool"), "terminated {{nodepool}}"),
            ],
        ),
        Panel(
            "Nodes that a method could disrupt",
            "short",
            [("karpenter_voluntary_disruption_eligible_nodes", _legend("reason"))],
        ),
        Panel(
            "What budgets still allow",
            "short",
            [
                (
                    "karpenter_nodepools_allowed_disruptions - karpenter_nodepools_nodes_consuming_budgets",
                    _legend("nodepool", "reason"),
                )
            ],
        ),
        Panel(
            "Blocked drains",
            "short",
            [("sum by (nodepool, cause) (dovetail_nodes_drain_blocked)", _legend("nodepool", "cause"))],
        ),
        Panel(
            "Evictions by status code",
            "reqps",
            [(_rate("karpenter_pods_eviction_requests_total", "code"), _legend("code"))],
        ),
        Panel(
            "Time to terminate a NodeClaim",
            "s",
            [(_p99("karpenter_nodeclaims_termination_duration_seconds", "nodepool"), "99 % {{nodepool}}")],
        ),
        Panel(
            "Searches of consolidation",
            "short",
            [(_grown("dovetail_consolidation_plans_total", "outcome"), _legend("outcome"))],
        ),
        Panel(
            "Interruptions",
            "short",
            [(_grown("karpenter_interruption_received_messages_total", "message_type"), _legend("message_type"))],
        ),
        Panel("Loops", "short", [(_grown("dovetail_disruption_loops_total", "nodepool"), _legend("nodepool"))]),
    ),
)
_AWS: Final = Dashboard(
    "dovetail-aws",
    "Dovetail / AWS",
    (
        Panel(
            "Calls by action",
            "reqps",
            [(_rate("aws_sdk_go_request_total", "service", "action"), _legend("service", "action"))],
        ),
        Panel(
            "Calls by status code",
            "reqps",
            [(_rate("aws_sdk_go_request_attempt_total", "service", "code"), _legend("service", "code"))],
        ),
        Panel(
            "Duration of calls",
            "s",
            [
                (
                    _p99("aws_sdk_go_request_duration_seconds", "service", "action"),
                    "99 % " + _legend("service", "action"),
                )
            ],
        ),
        Panel(
            "Refused calls",
            "short",
            [
                (_grown("dovetail_aws_denials_total", "service", "action"), "denied " + _legend("service", "action")),
                (
                    _grown("dovetail_aws_throttles_total", "service", "action"),
                    "throttled " + _legend("service", "action"),
                ),
            ],
        ),
        Panel(
            "Launches that failed",
            "short",
            [
                (
                    _grown("karpenter_cloudprovider_instance_launch_failures_total", "zone", "capacity_type", "reason"),
                    _legend("zone", "capacity_type", "reason"),
                )
            ],
        ),
        Panel(
            "Errors of the cloud provider",
            "short",
            [(_grown("karpenter_cloudprovider_errors_total", "method", "error"), _legend("method", "error"))],
        ),
        Panel(
            "Offerings without capacity",
            "short",
            [
                (
                    "count by (capacity_type, zone) (karpenter_cloudprovider_instance_type_offering_available == 0)",
                    _legend("capacity_type", "zone"),
                )
            ],
        ),
        Panel(
            "Instances in a batch",
            "short",
            [(_p99("karpenter_cloudprovider_batcher_batch_size", "batcher"), "99 % {{batcher}}")],
        ),
        Panel("Launch templates of the account", "short", [("max(dovetail_aws_launch_templates)", "launch templates")]),
        Panel(
            "Wait for the rate limiter",
            "s",
            [(_p99("dovetail_aws_token_wait_seconds", "service", "class"), "99 % " + _legend("service", "class"))],
        ),
    ),
)
_ADMISSION: Final = Dashboard(
    "dovetail-admission",
    "Dovetail / Admission",
    (
        Panel(
            "Reviews by outcome", "reqps", [(_rate("dovetail_webhook_reviews_total", "outcome"), _legend("outcome"))]
        ),
        Panel("Time of a review", "s", [(_p99("dovetail_webhook_review_duration_seconds"), "99 %")]),
        Panel("Stamps", "reqps", [(_rate("dovetail_webhook_stamps_total", "stamp"), _legend("stamp"))]),
        Panel(
            "Validations by outcome",
            "reqps",
            [(_rate("dovetail_webhook_validations_total", "outcome"), _legend("outcome"))],
        ),
        Panel(
            "Conversions by outcome",
            "reqps",
            [(_rate("dovetail_webhook_conversions_total", "outcome"), _legend("outcome"))],
        ),
        Panel(
            "Refused requests",
            "reqps",
            [(_rate('dovetail_http_requests_refused_total{server="webhook"}', "reason"), _legend("reason"))],
        ),
        Panel(
            "Lookups of images",
            "reqps",
            [(_rate("dovetail_webhook_image_lookups_total", "outcome"), _legend("outcome"))],
        ),
        Panel("Connections", "short", [('dovetail_http_connections{server="webhook"}', _legend("instance"))]),
    ),
)

DASHBOARDS: Final = (_OVERVIEW, _COST, _PLACEMENT, _DISRUPTION, _AWS, _ADMISSION)


def documents() -> Mapping[str, dict[str, Any]]:
    """Every dashboard by the name of its file, without the ending."""
    return {one.name: one.document() for one in DASHBOARDS}
