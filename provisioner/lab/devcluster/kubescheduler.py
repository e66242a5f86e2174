"""The kube-scheduler configuration that Dovetail is made for; pure.

The dev cluster runs it and manifests/scheduler carries the same. Two profiles, `default-scheduler` and
`dovetail-scheduler`, share one extender (an extender always serves every profile of its process). Sampling of
nodes and OpportunisticBatching are off: both make kube-scheduler skip nodes that the extender should have seen.
"""

from collections.abc import Mapping
from typing import Final

DEFAULT_PROFILE: Final = "default-scheduler"
PROFILE: Final = "dovetail-scheduler"
FEATURE_GATES: Final = "OpportunisticBatching=false"
"""Value of `--feature-gates`; gates cannot be set in the configuration file."""


PRIORITIZE_WEIGHT: Final = 2
"""Planned pods are steered by `filter`; what `prioritize` says is for the others, and no more than a wish. At 2 it outweighs kube-scheduler's
own wish for empty nodes (LeastAllocated, 1), and its default spread over hosts (2) still counts as much: figures in tests/bench/bench_packing.py."""


def scheduler_configuration(
    *, extender: str, kubeconfig: str = "", lease_times: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The KubeSchedulerConfiguration document, ready for JSON or YAML.

    Args:
        extender: URL that the verbs are appended to; "" leaves the extender out.
        kubeconfig: path; "" for credentials of the pod it runs in.
        lease_times: `leaseDuration` and `renewDeadline`, as in the document; None leaves kube-scheduler its own, 15 s and 10 s.
    """
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": 1000, "burst": 2000, **({"kubeconfig": kubeconfig} if kubeconfig else {})},
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "kube-scheduler",  # the webhook checks this Lease
            "resourceNamespace": "kube-system",
            **(lease_times or {}),
        },
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": DEFAULT_PROFILE}, {"schedulerName": PROFILE}],
        **({"extenders": [_extender(extender)]} if extender else {}),
    }


def _extender(url: str) -> dict[str, object]:
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": PRIORITIZE_WEIGHT,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "1s",
    }
