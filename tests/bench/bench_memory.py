"""What the programs beside the control plane need for a large cluster: the real programs, and an API server that only tells; keeps results/memory.json."""

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.facts import decode_member
from provisioner.apis.stamping import MAX_IMAGES
from provisioner.lab.harness.memory import pss_bytes, tree
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.support.clock import SystemClock
from tests.bench.bench_webhook import Caller, review
from tests.support.eventually import eventually
from tests.support.imagehosts import INDEX, Answer, Hosts, encoded, hosts, index
from tests.support.kube import event
from tests.support.listing import Lines, listing
from tests.support.pods import wire_pod
from tests.support.ports import free_port
from webhook.images.lookups import MAX_KNOWN

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
NODES, PODS, PLANS = 5_000, 50_000, 1_000
DEPLOYMENTS = 500
SHARED, OWNERS = 20_000, 20
NAMESPACE = "images"
GOAL_MB = 70.0
_figures: list[Figure] = []


@pytest.fixture(scope="module", autouse=True)
def results() -> Iterator[None]:
    yield
    for figure in _figures:
        print(figure.line())
    write(ROOT / "results", "memory", _figures)


# --- the objects ------------------------------------------------------------------------------------------------------


def node_name(number: int) -> str:
    return f"ip-10-{number // 250:03}-{number % 250:03}-17.eu-central-1.compute.internal"


def uid(kind: int, number: int) -> str:
    return f"0b1c2d3e-{kind:04d}-4000-8000-{number:012d}"


def node(number: int) -> dict[str, Any]:
    """As a kubelet keeps it, just ready: 20 labels, 50 images, 8 KB."""
    name, now = node_name(number), SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
    sizes = {"cpu": "15890m", "memory": "60Gi", "pods": "110", "ephemeral-storage": "18Gi"}
    conditions = [
        {"type": kind, "status": status, "reason": f"Kubelet{kind}", "lastTransitionTime": now}
        for kind, status in (
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        )
    ]
    labels = {"kubernetes.io/hostname": name, **{f"example.com/label-{i}": f"value {i}" for i in range(19)}}
    images = [
        {"names": [f"registry.example.com/team/service-{i}@sha256:{i:064d}"], "sizeBytes": 10**8} for i in range(50)
    ]
    status = {"capacity": sizes, "allocatable": sizes, "conditions": conditions, "images": images}
    metadata = {"name": name, "uid": uid(1, number), "resourceVersion": f"{number}", "labels": labels}
    metadata["creationTimestamp"] = "2026-11-21T10:00:00Z"
    return {"metadata": metadata, "spec": {"providerID": f"aws:///eu-central-1a/i-{number:017d}"}, "status": status}


def claim(number: int, classes: list[str]) -> dict[str, Any]:
    """A NodeClaim with a plan for ten pods that wait."""
    planned = [
        {"class": classes[pod % DEPLOYMENTS], "count": 1, "owner": uid(3, pod % DEPLOYMENTS), "uids": [uid(2, pod)]}
        for pod in range(number * 10, number * 10 + 10)
    ]
    metadata = {
        "name": f"general-{number:05d}",
        "uid": uid(4, number),
        "resourceVersion": f"{number}",
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": {"karpenter.sh/nodepool": "general"},
        "annotations": {"dovetail.dev/plan": json.dumps({"v": 1, "pods": planned}, separators=(",", ":"))},
    }
    types = [f"m{i}.{size}" for i in range(5, 9) for size in ("large", "xlarge", "2xlarge", "4xlarge")]
    spec = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}],
        "resources": {"requests": {"cpu": "15", "memory": "50Gi", "pods": "10"}},
    }
    status = {"nodeName": node_name(number), "providerID": f"aws:///eu-central-1a/i-{number:017d}"}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec, "status": status}


def pods(owners: int, **metadata: Any) -> list[dict[str, Any]]:
    """A pod of each of so many owners, each of a class of its own."""
    made = []
    for number in range(owners):
        pod = wire_pod(number, spec__nodeName="@NODE@")
        pod["metadata"]["labels"]["app"] = f"app-{number}"
        named = {"name": f"app-{number}-7d9c5b8f6d-@ID@", "uid": "@UID@", "resourceVersion": "1@ID@"}
        pod["metadata"] |= {**named, **metadata}
        pod["metadata"]["ownerReferences"][0] |= {"uid": uid(3, number), "name": f"app-{number}-7d9c5b8f6d"}
        made.append(pod)
    return made


def pod_lines(count: int, owners: int, waiting: int = 0, **metadata: Any) -> Iterator[bytes]:
    """Pods of so many owners, ten on a node; the first `waiting` are on none."""
    templates = [event("ADDED", pod) for pod in pods(owners, **metadata)]
    for number in range(count):
        where = node_name(number // 10 % NODES) if number >= waiting else ""
        line = templates[number % owners].replace(b"@NODE@", where.encode())
        yield line.replace(b"@UID@", uid(2, number).encode()).replace(b"@ID@", b"%05d" % number)


# --- the programs -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def program(directory: Path, kinds: dict[str, Lines], *arguments: str) -> Iterator[tuple[int, int]]:
    """A program that was told of all of these kinds: its process, and the port that it serves."""
    port, metrics = free_port(), free_port()
    with listing(kinds) as server:
        flags = ["--kubeconfig", str(server.kubeconfig(directory)), "--bind", f"127.0.0.1:{port}"]
        flags += ["--metrics-bind", f"127.0.0.1:{metrics}", *arguments[1:]]
        with (directory / "log").open("wb") as log:
            command = [sys.executable, "-m", "provisioner.cli.main", arguments[0], *flags]
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            eventually(lambda: server.told >= kinds.keys(), "the program is told of everything", seconds=300)
            time.sleep(5)  # it takes in the last of it, and puts aside what the garbage collector need not look at
            yield process.pid, port
        finally:
            process.terminate()
            process.wait(30)


def worker_mb(pid: int) -> float:
    """Of the one worker, by its own share of what it has in common with its parent."""
    return max(pss_bytes(one) for one in tree(pid) if one != pid) / 1e6


def test_the_extender_beside_five_thousand_nodes(tmp_path: Path) -> None:
    classes = [decode_member(json.dumps(pod).encode()).klass for pod in pods(DEPLOYMENTS)]
    kinds: dict[str, Lines] = {
        "/api/v1/nodes": lambda: (event("ADDED", node(number)) for number in range(NODES)),
        "/api/v1/pods": lambda: pod_lines(PODS, DEPLOYMENTS, waiting=PLANS * 10),
        "/apis/karpenter.sh/v1/nodeclaims": lambda: (event("ADDED", claim(number, classes)) for number in range(PLANS)),
    }
    with program(tmp_path, kinds, "extender") as (pid, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            assert answer.status == 200
        assert f"{PLANS} plans, {PLANS} held" in (tmp_path / "log").read_text(encoding="utf-8")
        found = worker_mb(pid)
    _figures.append(
        Figure("extender, 5,000 nodes, 50,000 pods, 1,000 plans: worker (PSS)", found, "MB", at_most(GOAL_MB))
    )
    assert found < 2 * GOAL_MB  # the goal is printed; this is for a real regression


def _is_stamped(caller: Caller, request: bytes) -> bool:
    stamped = json.loads(caller.ask(request)[1])["response"].get("auditAnnotations", {}).get("stamped", "")
    return "image-arch" in stamped


def known_images(port: int, made: Hosts) -> int:
    """Ask about as many images as are remembered, some at a time, until pods with them are stamped; how many that were."""
    caller = Caller(f"127.0.0.1:{port}")
    names = [f"127.0.0.1:{made.port}/team-{number % 40}/service-{number}:v1.{number}.3" for number in range(MAX_KNOWN)]
    for at in range(0, len(names), MAX_IMAGES):
        asked = json.loads(review(NAMESPACE))
        container = asked["request"]["object"]["spec"]["containers"][0]
        asked["request"]["object"]["spec"]["containers"] = [
            {**container, "name": f"c{number}", "image": image}
            for number, image in enumerate(names[at : at + MAX_IMAGES])
        ]
        request = caller.request(json.dumps(asked).encode())
        eventually(partial(_is_stamped, caller, request), "the images are known", seconds=60)
    caller.close()
    return len(names)


def test_the_webhook_with_full_caches(tmp_path: Path) -> None:
    settings = {"dovetail.dev/image-arch": "stamp", "dovetail.dev/on-demand": "30pct"}
    namespace = {"metadata": {"name": NAMESPACE, "uid": uid(5, 1), "resourceVersion": "1", "labels": settings}}
    labels = {**wire_pod()["metadata"]["labels"], "dovetail.dev/on-demand-share": "spot"}
    annotations = {
        "dovetail.dev/on-demand-ticket": f"{uid(3, 1)}.17.@UID@",
        "dovetail.dev/stamped": "on-demand=spot (namespace: 30% on demand)",
    }
    kinds: dict[str, Lines] = {
        "/api/v1/namespaces": lambda: [event("ADDED", namespace)],
        "/api/v1/pods?dovetail.dev/on-demand-share": lambda: pod_lines(
            SHARED, OWNERS, labels=labels, annotations=annotations
        ),
    }
    answer = Answer(200, encoded(index(("linux", "arm64"), attestations=1)), {"content-type": INDEX})
    with hosts(lambda _: answer, tmp_path) as made:
        flags = ["--image-registries", f"127.0.0.1:{made.port}", "--image-registry-networks", "127.0.0.0/8"]
        flags += ["--image-registry-ca", str(made.ca), "--on-demand-shares", "--conversion", "--existing-secret"]
        with program(tmp_path, kinds, "webhook", *flags) as (pid, port):
            assert known_images(port, made) == MAX_KNOWN
            found = worker_mb(pid)
    _figures.append(
        Figure("webhook, 2,048 images, 20,000 pods of 20 owners: worker (PSS)", found, "MB", at_most(GOAL_MB))
    )
    assert found < 2 * GOAL_MB  # the goal is printed; this is for a real regression
