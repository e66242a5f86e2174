"""The webhook's own share of a pod's creation, and its memory; `make bench` keeps results/webhook.json.

Reviews of 3 KB go to the real program over TLS, as an API server sends them: kept-alive connections, each waiting for its
answer. The client shares the machine's cores, so its own work is in the figures.
"""

import http.client
import json
import ssl
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.harness.memory import pss_bytes
from provisioner.cli.harness.results import Figure, at_most, write
from provisioner.devcluster.cluster import DevCluster
from tests.support.hook import PROGRAM, Hook
from webhook.review import decode_pod, decode_review, encode_reply
from webhook.stamping import Facts, decide

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
REVIEWS = 1500
WARM_UP = 100


@pytest.fixture(scope="module")
def hook(plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    hook = Hook(plane, tmp_path_factory.mktemp("certs"))
    hook.start()
    try:
        yield hook
    finally:
        hook.close()


def review(namespace: str) -> bytes:
    """A review of the size that real pods have."""
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.example.com/team/service:v1.2.3",
        "env": [{"name": f"VARIABLE_{index}", "value": "some value of usual length"} for index in range(25)],
        "resources": {"requests": {"cpu": "900m", "memory": "3100Mi"}},
    }
    pod = {
        "metadata": {
            "generateName": "web-6d4cf56db6-",
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6", "uid": "u"}],
        },
        "spec": {"containers": [container], "schedulerName": "default-scheduler"},
    }
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["a", "b"]},
        "object": pod,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def connected(hook: Hook) -> http.client.HTTPSConnection:
    host, _, port = hook.address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, int(port), context=context, timeout=10)


def ask(connection: http.client.HTTPSConnection, body: bytes) -> float:
    """One review; seconds until its answer was read."""
    started = time.perf_counter()
    connection.request("POST", "/mutate?timeout=2s", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    seconds = time.perf_counter() - started
    assert answer.status == 200
    assert b'"patch"' in data
    return seconds


def session(hook: Hook, body: bytes, count: int) -> list[float]:
    connection = connected(hook)
    try:
        return [ask(connection, body) for _ in range(count)]
    finally:
        connection.close()


def percentile(seconds: list[float], percent: int) -> float:
    """In milliseconds."""
    return statistics.quantiles(seconds, n=100)[percent - 1] * 1000


def test_reviews(hook: Hook) -> None:
    namespace = hook.namespace(arch="amd64_arm64", capacity_type="spot", scheduler="enabled")
    body = review(namespace)
    session(hook, body, WARM_UP)
    alone = session(hook, body, REVIEWS)
    started = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        crowd = [each for part in pool.map(lambda _: session(hook, body, REVIEWS // 8), range(8)) for each in part]
    rate = len(crowd) / (time.perf_counter() - started)
    fresh = [session(hook, body, 1)[0] for _ in range(200)]
    pid = next(entry.pid for entry in hook.plane.status() if entry.name == PROGRAM and entry.pid)
    figures = [
        Figure("review of 3 KB, one connection, p50", percentile(alone, 50), "ms", at_most(3)),
        Figure("review of 3 KB, one connection, p99", percentile(alone, 99), "ms", at_most(20)),
        Figure("review of 3 KB, eight connections, p50", percentile(crowd, 50), "ms"),
        Figure("review of 3 KB, eight connections, p99", percentile(crowd, 99), "ms", at_most(200)),
        Figure("reviews per second, eight connections", rate, "1/s"),
        Figure("review on a new connection, p50", percentile(fresh, 50), "ms", at_most(15)),
        Figure("decision alone, without HTTP", decision_microseconds(body, namespace), "us", at_most(200)),
        Figure("memory of the program (PSS)", pss_bytes(pid) / 1e6, "MB", at_most(80)),
    ]
    for figure in figures:
        print(figure.line())
    write(RESULTS, "webhook", figures)
    assert len(crowd) == REVIEWS // 8 * 8


def decision_microseconds(body: bytes, namespace: str) -> float:
    """CPU time of decode, decide and encode."""
    facts = Facts(namespace, {"dovetail.dev/arch": "amd64_arm64", "dovetail.dev/capacity-type": "spot"})
    started = time.process_time()
    for _ in range(2000):
        request = decode_review(body)
        encode_reply(request.uid, decide(decode_pod(request.object), facts).operations)
    return (time.process_time() - started) / 2000 * 1e6
