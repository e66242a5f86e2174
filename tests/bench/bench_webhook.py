"""The webhook's own share of a pod's creation, and its memory; `make bench` keeps results/webhook.json.

Reviews of 3 KB go to the real program over TLS, as an API server sends them: kept-alive connections, each waiting for its
answer. Everything that the webhook can stamp is asked for. The client shares the machine's cores, so its own work is in the figures; it is a bare
socket, because Python's HTTP client costs more than the server. Goals in time are meant for a machine whose calibration loop takes 0.069 s, and
scale with it.
"""

import json
import os
import socket
import ssl
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis.conversion.definitions import BETA, CONVERT_PATH
from provisioner.apis.openapi import defaulted
from provisioner.apis.shares import Seat, Side
from provisioner.apis.stamping import STAMPS as STAMPED
from provisioner.apis.stamping import Images, StampFacts, decide
from provisioner.kube.resources import NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.memory import cpu_seconds, pss_bytes, tree
from provisioner.lab.harness.results import Figure, at_least, at_most, write
from provisioner.values.taints import Taint
from tests.support.definitions import with_definitions
from tests.support.eventually import eventually
from tests.support.hook import PROGRAM, Hook
from tests.support.imagehosts import INDEX, Answer, Hosts, encoded, hosts, index
from webhook.review import decode_pod, decode_review, encode_reply

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
REVIEWS = 1500
WARM_UP = 100


OWNERS = 20
OBJECTS = 1000


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Where every image is one for arm64."""
    document = encoded(index(("linux", "arm64"), attestations=1))
    answer = Answer(200, document, {"content-type": INDEX})
    with hosts(lambda _: answer, tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def hook(plane: DevCluster, registry: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    flags = ["--image-registries", f"127.0.0.1:{registry.port}", "--image-registry-networks", "127.0.0.0/8"]
    flags += ["--image-registry-ca", str(registry.ca), "--on-demand-shares", "--conversion"]
    hook = Hook(plane, tmp_path_factory.mktemp("certs"), *flags)
    with_definitions(plane)
    hook.client.create(NODEPOOLS, pool())
    hook.start()
    try:
        yield hook
    finally:
        hook.client.delete(NODEPOOLS, POOL)
        hook.close()


POOL = "bench-webhook"


def pool() -> dict[str, Any]:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    taint = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
    template = {"spec": {"nodeClassRef": reference, "requirements": [], "taints": [taint]}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {"template": template},
    }


EVERYTHING = {
    "image_arch": "stamp",
    "os": "linux",
    "nodepool": POOL,
    "spread": "zone",
    "protect_jobs": "enabled",
    "legacy_labels": "rewrite",
    "on_demand": "30pct",
    "scheduler": "enabled",
}
STAMPS = STAMPED - {"arch", "capacity-type"}
"""What has to be in the record of every pod: a feature that is off costs nothing. Who asks for these two gets no image-arch and no on-demand."""


def review(namespace: str, owner: str = "u", image: str = "registry.example.com/team/service:v1.2.3") -> bytes:
    """A review of the size that real pods have; of a Job's, which can get every stamp."""
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "env": [{"name": f"VARIABLE_{index}", "value": "some value of usual length"} for index in range(25)],
        "resources": {"requests": {"cpu": "900m", "memory": "3100Mi"}},
    }
    pod = {
        "metadata": {
            "generateName": "nightly-29384120-",
            "labels": {"app": "nightly", "batch.kubernetes.io/job-name": "nightly-29384120"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly-29384120", "uid": owner, "controller": True}
            ],
        },
        "spec": {
            "containers": [container],
            "schedulerName": "default-scheduler",
            "nodeSelector": {"beta.kubernetes.io/instance-type": "m5.large"},
        },
    }
    request = {
        "uid": UID,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:job-controller", "groups": ["a", "b"]},
        "object": pod,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # once: it takes longer than a review
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE


class Caller:
    """One kept-alive connection of an API server's."""

    def __init__(self, address: str, path: str = "/mutate?timeout=2s") -> None:
        host, _, port = address.rpartition(":")
        raw = socket.create_connection((host, int(port)), timeout=30)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = _CONTEXT.wrap_socket(raw)
        self._path = path

    def request(self, body: bytes) -> bytes:
        """The bytes of one request."""
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: dovetail-webhook.dovetail-system.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n"
            f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
            "Accept-Encoding: gzip\r\n\r\n"
        )
        return head.encode() + body

    def ask(self, request: bytes) -> tuple[float, bytes]:
        """Seconds until the answer was read, and its body."""
        started = time.perf_counter()
        self._sock.sendall(request)
        got = self._sock.recv(65536)
        while b"\r\n\r\n" not in got:
            got += self._more()
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        parts = [body]
        left = length - len(body)
        while left > 0:
            parts.append(self._more())
            left -= len(parts[-1])
        return time.perf_counter() - started, b"".join(parts)

    def _more(self) -> bytes:
        got = self._sock.recv(1 << 20)
        assert got, "the server closed the connection"
        return got

    def close(self) -> None:
        self._sock.close()


UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def session(hook: Hook, bodies: Sequence[bytes], count: int) -> list[float]:
    caller = Caller(hook.address)
    requests = [caller.request(body) for body in bodies]
    stamps = [stamp.encode() for stamp in STAMPS]
    found = []
    try:
        for number in range(count):
            one = requests[number % len(requests)].replace(UID.encode(), str(uuid.uuid4()).encode())
            seconds, reply = caller.ask(one)
            assert all(stamp in reply for stamp in stamps)
            found.append(seconds)
    finally:
        caller.close()
    return found


def handshakes(hook: Hook, body: bytes, count: int) -> list[float]:
    """Seconds of a review with the connection that is made for it."""
    found = []
    for _ in range(count):
        started = time.perf_counter()
        caller = Caller(hook.address)
        caller.ask(caller.request(body))
        found.append(time.perf_counter() - started)
        caller.close()
    return found


def percentile(seconds: list[float], percent: int) -> float:
    """In milliseconds."""
    return statistics.quantiles(seconds, n=100)[percent - 1] * 1000


def everything_is_stamped(hook: Hook, namespace: str, body: bytes) -> bool:
    caller = Caller(hook.address)
    try:
        reply = json.loads(caller.ask(caller.request(body))[1])["response"]
    finally:
        caller.close()
    return set(reply.get("auditAnnotations", {}).get("stamped", "").split(",")) == STAMPS


def test_reviews(hook: Hook, registry: Hosts) -> None:
    namespace = hook.namespace(**EVERYTHING)
    image = f"127.0.0.1:{registry.port}/team/service:v1.2.3"
    bodies = [review(namespace, f"owner-{number}", image) for number in range(OWNERS)]
    eventually(lambda: everything_is_stamped(hook, namespace, bodies[0]), "everything is stamped", seconds=40)
    session(hook, bodies, WARM_UP)
    load, loop = os.getloadavg()[0], calibration()
    slow = slowness(loop)
    pid = next(entry.pid for entry in hook.plane.status() if entry.name == PROGRAM and entry.pid)
    used = cpu_seconds(pid)
    alone = session(hook, bodies, REVIEWS)
    used = cpu_seconds(pid) - used
    started = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        crowd = [each for part in pool.map(lambda _: session(hook, bodies, REVIEWS // 4), range(8)) for each in part]
    rate = len(crowd) / (time.perf_counter() - started)
    fresh = handshakes(hook, bodies[0], 200)
    converted = conversions(hook, 5)
    worker = max((pss_bytes(one) for one in tree(pid) if one != pid), default=0.0)
    figures = [
        Figure("review of 3 KB, every feature, one connection, p50", percentile(alone, 50), "ms", at_most(0.6 * slow)),
        Figure("review of 3 KB, every feature, one connection, p99", percentile(alone, 99), "ms", at_most(1.5 * slow)),
        Figure("CPU time of the program for a review, every feature", used / REVIEWS * 1000, "ms"),
        Figure("review of 3 KB, every feature, eight connections, p50", percentile(crowd, 50), "ms"),
        Figure("review of 3 KB, every feature, eight connections, p99", percentile(crowd, 99), "ms", at_most(200)),
        Figure("reviews per second, every feature, eight connections", rate, "1/s", at_least(2000 / slow)),
        Figure("review on a new connection, p50", percentile(fresh, 50), "ms", at_most(15)),
        Figure("decision alone, without HTTP", decision_microseconds(bodies[0], namespace, image), "us", at_most(200)),
        Figure(f"conversion of {OBJECTS} NodePools in one review", converted, "s", at_most(1)),
        Figure("memory of the worker (PSS)", worker / 1e6, "MB", at_most(70)),
        Figure("memory of the program (PSS)", pss_bytes(pid) / 1e6, "MB"),
        Figure("load of the machine before", load, ""),
        Figure("calibration", loop, "s"),
    ]
    for figure in figures:
        print(figure.line())
    write(RESULTS, "webhook", figures)
    assert len(crowd) == REVIEWS // 4 * 8


def conversions(hook: Hook, count: int) -> float:
    """Seconds of the median review with a thousand NodePools at v1beta1, of which each has a kubelet block and an annotation of ours."""
    template = {
        "spec": {
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "nodeClassRef": {"name": "default", "kind": "EC2NodeClass", "apiVersion": "karpenter.k8s.aws/v1beta1"},
            "kubelet": {"maxPods": 20, "systemReserved": {"cpu": "100m", "memory": "100Mi"}},
        }
    }
    objects = [
        defaulted(
            BETA["NodePool"],
            {
                "apiVersion": "karpenter.sh/v1beta1",
                "kind": "NodePool",
                "metadata": {"name": f"pool-{number}", "uid": f"u{number}"},
                "spec": {"template": template, "limits": {"cpu": "1000"}},
            },
        )
        for number in range(OBJECTS)
    ]
    request = {"uid": "r", "desiredAPIVersion": "karpenter.sh/v1", "objects": objects}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    caller = Caller(hook.address, CONVERT_PATH)
    body = caller.request(json.dumps(whole).encode())
    seconds = []
    for _ in range(count):
        took, reply = caller.ask(body)
        assert len(json.loads(reply)["response"]["convertedObjects"]) == OBJECTS
        seconds.append(took)
    caller.close()
    return statistics.median(seconds)


def decision_microseconds(body: bytes, namespace: str, image: str) -> float:
    """CPU time of decode, decide and encode."""
    labels = {f"dovetail.dev/{key.replace('_', '-')}": value for key, value in EVERYTHING.items()}
    taint = Taint(key="example.com/gpu", value="yes", effect="NoSchedule")
    seat = Seat(Side.SPOT, 4, 1)
    images = Images({image: frozenset({("linux", "arm64")})})
    facts = StampFacts(
        namespace, labels, scheduler_alive=True, taints_of=lambda _: [taint], seat=seat, images=images, review=UID
    )
    request = decode_review(body)
    assert set(decide(decode_pod(request.object), facts).stamped) == STAMPS
    started = time.process_time()
    for _ in range(2000):
        request = decode_review(body)
        encode_reply(request.uid, decide(decode_pod(request.object), facts).operations)
    return (time.process_time() - started) / 2000 * 1e6
