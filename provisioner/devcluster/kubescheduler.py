"""The kube-scheduler configuration that Dovetail is made for; pure.

The dev cluster runs it and manifests/scheduler carries the same. Two profiles, `default-scheduler` and
`dovetail-scheduler`, share one extender (an extender always serves every profile of its process). Sampling of
nodes and OpportunisticBatching are off: both make kube-scheduler skip nodes that the extender should have seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_PROFILE: Final = "default-scheduler"
PROFILE: Final = "dovetail-scheduler"
FEATURE_GATES: Final = "OpportunisticBatching=false"
"""Value of `--feature-gates`; gates cannot be set in the configuration file."""


PRIORITIZE_WEIGHT: Final = 2
"""Planned pods are steered by `filter`; what `prioritize` says is for the others, and no more than a wish. At 2 it outweighs kube-scheduler's
own wish for empty nodes (LeastAllocated, 1), and its default spread over hosts (2) still counts as much: figures in tests/bench/bench_packing.py."""


@dataclass(frozen=True)
class ExtenderEndpoint:
    """Where kube-scheduler finds the extender.

    Attributes:
        url: prefix that the verbs are appended to, as http://127.0.0.1:PORT or https://...
        ca_file: CA bundle to verify https with; without it kube-scheduler would verify nothing.
        cert_file: client certificate for mTLS, with `key_file`.
        key_file: its key.
        server_name: name to expect in the certificate, where it is not the URL's host.
    """

    url: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""


def scheduler_configuration(
    *,
    extender: ExtenderEndpoint | None,
    kubeconfig: str = "",
    lease_name: str = "kube-scheduler",
    lease_namespace: str = "kube-system",
    lease_times: Mapping[str, str] | None = None,
    profiles: tuple[str, ...] = (DEFAULT_PROFILE, PROFILE),
    qps: int = 1000,
    burst: int = 2000,
    initial_backoff_seconds: int = 1,
    max_backoff_seconds: int = 3,
) -> dict[str, object]:
    """The KubeSchedulerConfiguration document, ready for JSON or YAML.

    Args:
        extender: None leaves the extender out.
        kubeconfig: path; "" for credentials of the pod it runs in.
        lease_name: Lease that its replicas elect their leader with; the webhook checks it.
        lease_namespace: where that Lease is.
        lease_times: `leaseDuration` and `renewDeadline`, as in the document; None leaves kube-scheduler its own, 15 s and 10 s.
        profiles: scheduler names that it serves.
        qps: requests per second to the API server; binds and status patches share them.
        burst: how many may come at once.
        initial_backoff_seconds: wait before a pod that failed is tried again.
        max_backoff_seconds: where the doubling of that wait ends.

    Raises:
        ValueError: https without a CA, which kube-scheduler takes as "do not verify".
    """
    connection: dict[str, object] = {"qps": qps, "burst": burst}
    if kubeconfig:
        connection["kubeconfig"] = kubeconfig
    document: dict[str, object] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": {
            "leaderElect": True,
            "resourceName": lease_name,
            "resourceNamespace": lease_namespace,
            **(lease_times or {}),
        },
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": initial_backoff_seconds,
        "podMaxBackoffSeconds": max_backoff_seconds,
        "profiles": [{"schedulerName": name} for name in profiles],
    }
    if extender is not None:
        document["extenders"] = [_extender(extender)]
    return document


def _extender(endpoint: ExtenderEndpoint) -> dict[str, object]:
    entry: dict[str, object] = {
        "urlPrefix": endpoint.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": PRIORITIZE_WEIGHT,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "1s",
    }
    if endpoint.url.startswith("https://"):
        if not endpoint.ca_file:
            raise ValueError(f"extender {endpoint.url}: https needs ca_file")
        tls = {
            "caFile": endpoint.ca_file,
            "certFile": endpoint.cert_file,
            "keyFile": endpoint.key_file,
            "serverName": endpoint.server_name,
        }
        entry["enableHTTPS"] = True
        entry["tlsConfig"] = {key: value for key, value in tls.items() if value}
    return entry
