"""The alerts, one list, and the series that Karpenter's own dashboards ask for under names that Karpenter itself gave up.

Each alert has a test of promtool in tests/data/alerts.yaml and a section in docs/guides/runbooks.md. A counter's series begins with its
first event, of which `increase` says nothing, so new series count too (`_grew`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis.conditions import DEPENDENCIES_NOT_READY, POOL_CONDITIONS
from provisioner.apis.ec2 import NODECLASS_CONDITIONS

RUNBOOKS: Final = "docs/guides/runbooks.md"
"""Of this repository; whoever publishes it elsewhere puts the address of the place before it."""
CRITICAL, WARNING = "critical", "warning"


@dataclass(frozen=True)
class Alert:
    """One alert.

    Attributes:
        expr: it fires for each series that this gives.
        wait: for how long it must give that series before.
        summary: one line; $labels and $value as in Prometheus' templates.
        description: what it means and what is at stake.
    """

    name: str
    severity: str
    expr: str
    wait: str
    summary: str
    description: str

    def rule(self) -> Mapping[str, Any]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}#{self.name.lower()}",
            },
        }


def _grew(series: str, window: str) -> str:
    """Series of a counter that grew within the window, or began in it."""
    return f"(increase({series}[{window}]) > 0 or ({series} > 0 unless {series} offset {window}))"


_CONDITIONS: Final = 'operator_status_condition_count{kind=~"NodePool|EC2NodeClass|KWOKNodeClass", status!="True", '
_DECIDING: Final = "|".join(dict.fromkeys((*POOL_CONDITIONS.dependents, *NODECLASS_CONDITIONS.dependents)))
_ROOT: Final = f'{_CONDITIONS}type="{POOL_CONDITIONS.root}"}} == 1'
_LEAF: Final = f'{_CONDITIONS}type=~"{_DECIDING}", reason!="{DEPENDENCIES_NOT_READY}"}} == 1'
NOT_READY: Final = f"({_LEAF} and on (kind, name) {_ROOT}) or on (kind, name) {_ROOT}"
"""What is not Ready, by the conditions where the trouble is; by Ready itself where no other condition tells."""
_EXPIRES: Final = "dovetail_certificate_expiration_timestamp_seconds"
_TIMED_OUT: Final = 'karpenter_nodeclaims_disrupted_total{reason=~"registration_timeout|launch_timeout"}'
_BROKEN: Final = 'dovetail_extender_passed_total{reason="breaker"}'
_WEBHOOK_ERRORS: Final = (
    'dovetail_webhook_reviews_total{outcome=~"error|bad-review"}',
    'dovetail_webhook_validations_total{outcome=~"error|bad-review"}',
    'dovetail_webhook_conversions_total{outcome=~"error|failed|bad-review"}',
    'dovetail_http_requests_refused_total{server="webhook"}',
)

ALERTS: Final = (
    Alert(
        "DovetailNoLeader",
        CRITICAL,
        # Karpenter has this series too: only that of a program with a metric of ours counts
        "absent((leader_election_master_status == 1) and on (instance) dovetail_threads_died_total)",
        "2m",
        "No Dovetail provisioner leads",
        "No replica of the provisioner holds the leader election Lease, or Prometheus reaches none of them. No node is launched, "
        "drained or replaced until one does.",
    ),
    Alert(
        "DovetailCacheBehind",
        WARNING,
        "karpenter_cluster_state_synced == 0 or dovetail_extender_fresh == 0 or dovetail_watch_lag_seconds > 120",
        "5m",
        "{{ $labels.instance }} works with old data from the API server",
        "The caches are not synchronized, or the watch of {{ $labels.resource }} is behind. The provisioner decides late and disrupts "
        "nothing; the extender passes all nodes.",
    ),
    Alert(
        "DovetailNotReady",
        WARNING,
        NOT_READY,
        "10m",
        "{{ $labels.kind }} {{ $labels.name }} is not Ready ({{ $labels.type }}: {{ $labels.reason }})",
        "Nothing is launched for a NodePool that is not Ready, nor for the NodePools of a node class that is not.",
    ),
    Alert(
        "DovetailAWSCallsRefused",
        WARNING,
        'label_replace(sum by (service, action) (rate(dovetail_aws_throttles_total[10m])) > 0.1, "cause", "throttled", "", "") '
        f'or label_replace(max by (service, action) ({_grew("dovetail_aws_denials_total", "10m")}), "cause", "denied", "", "")',
        "10m",
        "AWS refuses {{ $labels.service }}:{{ $labels.action }} ({{ $labels.cause }})",
        "Calls are denied because the role lacks a permission, or throttled because the account makes too many.",
    ),
    Alert(
        "DovetailDrainBlocked",
        WARNING,
        "sum by (nodepool, cause) (dovetail_nodes_drain_blocked) > 0",
        "30m",
        "{{ $value }} nodes of NodePool {{ $labels.nodepool }} cannot be drained ({{ $labels.cause }})",
        "Pods on nodes that are to go cannot be evicted, so these nodes stay and cost money.",
    ),
    Alert(
        "DovetailSpendNearLimit",
        WARNING,
        'karpenter_nodepools_usage{resource_type="usd_per_hour"} / karpenter_nodepools_limit{resource_type="usd_per_hour"} > 0.9 '
        'or dovetail_nodeclaims_held_back{limit="max-usd-per-hour"} > 0',
        "15m",
        "NodePool {{ $labels.nodepool }} is near its spending limit, or held back by that of the cluster",
        "The NodePool has used more than 90 % of its limit in USD per hour, or its planned NodeClaims wait because of "
        "--max-usd-per-hour. Pods stay pending once the limit is reached.",
    ),
    Alert(
        "DovetailPodsUnschedulable",
        WARNING,
        "sum(karpenter_scheduler_unschedulable_pods_count) > 0 or count(karpenter_pods_provisioning_unbound_time_seconds > 900) > 0",
        "15m",
        "{{ $value }} pods have waited for a node for 15 minutes",
        "No existing or new node takes these pods, or the node that was planned for them does not come.",
    ),
    Alert(
        "DovetailRegistrationFailing",
        WARNING,
        f"max by (nodepool) ({_grew(_TIMED_OUT, '30m')}) "
        f"or max by (nodepool) ({_grew('dovetail_registration_failures_total', '30m')})",
        "0m",
        "Instances of NodePool {{ $labels.nodepool }} do not become nodes",
        "Instances were launched but did not register as Nodes in time, or their registration failed. They are replaced again and again, "
        "and cost money while they run.",
    ),
    Alert(
        "DovetailDisruptionLoop",
        WARNING,
        f"max by (nodepool) ({_grew('dovetail_disruption_loops_total', '1h')})",
        "0m",
        "Nodes of NodePool {{ $labels.nodepool }} are launched and removed in a loop",
        "Nodes for the same workload were launched and removed three times within an hour. Dovetail leaves them alone now.",
    ),
    Alert(
        "DovetailExtenderBreakerOpen",
        WARNING,
        f"dovetail_extender_breaker_open == 1 or {_grew(_BROKEN, '5m')}",
        "1m",
        "The extender {{ $labels.instance }} passes all nodes because it is too slow",
        "Requests of kube-scheduler took too long. Until they do not, pods are bound as without the extender, and plans are missed.",
    ),
    Alert(
        "DovetailWebhookErrors",
        WARNING,
        " or ".join(_grew(series, "10m") for series in _WEBHOOK_ERRORS),
        "5m",
        "The webhook {{ $labels.instance }} fails to answer ({{ $labels.outcome }}{{ $labels.reason }})",
        "Pods are admitted without their stamps and objects without validation; conversions that fail make old API versions unreadable.",
    ),
    Alert(
        "DovetailCertificateExpiring",
        CRITICAL,
        f"{_EXPIRES} - time() < 7 * 24 * 3600 or {_EXPIRES} != {_EXPIRES}",  # NaN, which differs from itself, is none
        "15m",
        "Certificate {{ $labels.certificate }} of {{ $labels.instance }} "
        "{{ if ne $value $value }}is missing{{ else }}expires in {{ $value | humanizeDuration }}{{ end }}",
        "Certificates that Dovetail issues are renewed a month before they expire, so the renewal fails; one that is missing could not be "
        "issued. Without a certificate, the webhook is not called, or the extender's reports are lost.",
    ),
)

RECORDED: Final[Mapping[str, str]] = {
    "karpenter_nodes_created": "karpenter_nodes_created_total",
    "karpenter_nodepool_usage": "karpenter_nodepools_usage",
    "karpenter_nodepool_limit": "karpenter_nodepools_limit",
    "karpenter_disruption_eligible_nodes": 'label_replace(karpenter_voluntary_disruption_eligible_nodes, "method", "$1", "reason", "(.*)")',
    "karpenter_disruption_decisions_total": (
        'label_replace(label_replace(karpenter_voluntary_disruption_decisions_total, "method", "$1", "reason", "(.*)"), '
        '"action", "$1", "decision", "(.*)")'
    ),
}
"""Series by which Karpenter's capacity dashboard asks although Karpenter renamed them in 1.0, by what they are now."""


def groups() -> list[Mapping[str, Any]]:
    """The groups of a file of rules."""
    return [
        {"name": "dovetail", "rules": [alert.rule() for alert in ALERTS]},
        {
            "name": "karpenter-dashboards",
            "rules": [{"record": name, "expr": expr} for name, expr in RECORDED.items()],
        },
    ]
