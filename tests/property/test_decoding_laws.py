"""Whatever an object looks like, it is a bad object at worst: 5,000 mutants in `fast`, 100,000 with HYPOTHESIS_PROFILE=thorough.

What the API server, kube-scheduler and registries send to programs over HTTP gets as many again, of each form: 500, or 100,000. Of these, each is
answered in bounded CPU time, what is longer than 3 MiB is refused, nothing of it stays, and one in a hundred goes through the application itself.
"""

import gc
import json
import logging
import os
import random
import ssl
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

import h11
import msgspec
import pytest
from flask import Flask
from prometheus_client.samples import Sample

from extender.answering import Answerer
from extender.app import create_app as extender_app
from extender.board import Board
from extender.facts import Timeline, claim_facts, decode_member, node_facts
from extender.nodes import DISRUPTED_SECONDS
from extender.protocol import MAX_BODY_BYTES, ExtenderProtocolError, ExtenderQuestion, PreemptionQuestion
from extender.refusals import Refusals
from extender.server import MEMBERS, known
from provisioner.apis.conversion.beta import convert
from provisioner.apis.interruption import interruption_of
from provisioner.apis.karpenter import NodePool
from provisioner.apis.names import INTERRUPTION_ANNOTATION
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.reports import PodReport, ReportReason, ReportsError, decode_reports
from provisioner.apis.shares import Seat, Share, ShareOwner
from provisioner.apis.stamping import STAMPS, Images, ImagesAsked, StampFacts
from provisioner.ec2.interruption.messages import MessageError
from provisioner.ec2.interruption.messages import parse as parse_message
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, DecodeError, error_from
from provisioner.kube.resources import Resource
from provisioner.kube.watch import Reflector
from provisioner.support import metrics
from provisioner.values import jsontext
from provisioner.values.taints import Taint
from tests.support.clock import NOON, FakeClock
from tests.support.extender import Watch, World, entry, member
from tests.support.imagehosts import encoded, index, manifest
from tests.support.kube import FakeAnswer, FakeApi, bookmark, event, page, refusal, watching
from tests.support.mutants import DOCUMENTS, document, mutant, odd
from tests.support.verdict_cases import CASES, CLASS, pool
from webhook import review
from webhook.app import AdmissionHandler
from webhook.app import create_app as webhook_app
from webhook.conversion import Conversion
from webhook.images.documents import MAX_BYTES, ImageDocumentError, Login, Platform, login_in, platforms_in
from webhook.images.references import Host, parse
from webhook.images.registry import FoundImage, LookupFailedError, Registry
from webhook.images.transport import RegistryReply, Transport, TransportError
from webhook.images.trust import Trust, parse_registries
from webhook.review import ReviewError
from webhook.shares import ShareLedger, decode_shared
from webhook.validation import Validation, ValidationContext

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
MUTANTS = 100_000 if THOROUGH else 5_000
BODIES = 100_000 if THOROUGH else 500
AT = Timeline(NOON, 0.0)
FACTS: dict[str, Resource[Any]] = {
    "MEMBERS": MEMBERS,
    "KNOWN_NODES": known(resources.NODES, node_facts),
    "KNOWN_NODECLAIMS": known(resources.NODECLAIMS, lambda one: claim_facts(one, AT)),
    "SHARED_PODS": Resource("", "v1", "pods", "Pod", True, decode_shared, identity=resources.itself),
}
"""Kinds of which a program keeps some facts alone."""
KINDS: dict[str, Resource[Any]] = {
    name: found
    for name, found in {**vars(resources), **FACTS}.items()
    if isinstance(found, Resource) and name.isupper()
}
#: Of all mutants, so many hundredths go to each of the tests of objects.
SHARES = {"objects": 50, "watches": 30, "lists": 5, "texts": 15}


def some(what: str) -> Iterator[random.Random]:
    """A generator for each mutant of one test."""
    for number in range(MUTANTS * SHARES[what] // 100 if what in SHARES else BODIES):
        yield random.Random(f"{what}-{number}")


KEPT_BLOCKS = 2_000
"""Blocks of memory that may be left of half of the bodies: of thousands there are as many of each."""


@pytest.fixture
def bodies(caplog: pytest.LogCaptureFixture) -> Callable[[str], Iterator[random.Random]]:
    """As `some`; and whoever answered the first half knows no more after the second."""

    def blocks() -> int:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, type(caplog.handler)):  # one for the test, one for what is reported of it
                handler.reset()
        gc.collect()
        return sys.getallocatedblocks()

    def made(what: str) -> Iterator[random.Random]:
        before = 0
        for number, draw in enumerate(some(what)):
            if number == BODIES // 2:
                before = blocks()
            yield draw
        assert blocks() - before < KEPT_BLOCKS, f"{what}: {blocks() - before} blocks are kept somewhere"

    return made


MOST_SECONDS = 2.0
"""CPU time of one answer: some ten times what the slowest of 100,000 took."""


@contextmanager
def bounded(what: object, apart: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """What is done here takes no long time of this thread, whatever else the machine does; `apart` are seconds that the test took itself."""
    began = time.thread_time()
    yield
    took = time.thread_time() - began - apart()
    assert took < MOST_SECONDS, f"{took:.2f} s for {str(what)[:1000]}"


class Posted:
    """Some of the bodies, sent to an application as its server hands them on: one in a hundred, and those that are too long."""

    def __init__(self, app: Flask, longest: int) -> None:
        self._client, self._longest, self._number = app.test_client(), longest, count()

    def __call__(self, path: str, body: bytes) -> bool:
        """Whether the body is short enough to be read."""
        is_short = len(body) <= self._longest
        if next(self._number) % 100 == 0 or not is_short:
            status = self._client.post(path, data=body).status_code
            assert status < 500, body
            assert is_short or path in ("/filter", "/prioritize") or status in (400, 413), "it was read"
        return is_short


def webhook(**given: Any) -> Posted:
    """The application over these parts, and others that know nothing."""
    clock = FakeClock()
    parts = {
        "admission": AdmissionHandler(_Everywhere(clock), clock),
        "validation": Validation(_Beside().surroundings, clock),
        "conversion": Conversion(clock),
        **given,
    }
    return Posted(webhook_app(**parts, problem=lambda: ""), review.MAX_BODY_BYTES)


def samples(name: str) -> Iterator[Sample]:
    """A counter's; the other metrics are not looked at, for that takes ten times as long as an answer."""
    families = metrics.REGISTRY.restricted_registry([name]).collect()
    return (sample for family in families for sample in family.samples)


def counted(name: str, **labels: str) -> float:
    """A counter's value."""
    return next((sample.value for sample in samples(name) if sample.labels == labels), 0.0)


def all_counted(name: str, label: str) -> Counter[str]:
    """A counter's values by one of its labels."""
    found: Counter[str] = Counter()
    for sample in samples(name):
        found[sample.labels[label]] += int(sample.value)
    return found


def test_every_mutant_has_its_test() -> None:
    assert sum(SHARES.values()) == 100
    assert {kind.plural for kind in KINDS.values()} == set(DOCUMENTS) | {
        "serviceaccounts",
        "priorityclasses",
        "runtimeclasses",
    }


def sound(resource: Resource[Any], **metadata: Any) -> dict[str, Any]:
    plural = resource.plural if resource.plural in DOCUMENTS else "configmaps"
    return document(plural, **metadata)


@pytest.mark.parametrize("name", KINDS)
def test_a_sound_object_can_be_read(name: str) -> None:
    resource = KINDS[name]
    assert resource.key(resource.decode(json.dumps(sound(resource)).encode())) == "shop/web-1"


def test_an_object_is_read_or_is_a_bad_one() -> None:
    kinds = list(KINDS.values())
    bad = 0
    for draw in some("objects"):
        resource = draw.choice(kinds)
        client = Client(FakeApi(FakeAnswer(data=mutant(draw, sound(resource)))), FakeClock())
        try:
            client.get(resource, "web-1", "shop")
        except DecodeError:
            bad += 1
    assert bad > MUTANTS * SHARES["objects"] // 1000, "most of the mutants do no harm, so they show nothing"


def test_a_watch_goes_on_past_every_object_and_asks_for_nothing_twice() -> None:
    kinds = list(KINDS.values())
    for draw in some("watches"):
        resource = draw.choice(kinds)
        line = mutant(draw, {"type": draw.choice(("ADDED", "MODIFIED", "DELETED")), "object": sound(resource)})
        after = sound(resource, name="after", uid="after", resourceVersion="20")
        lines = (line.replace(b"\n", b" ") + b"\n", event("ADDED", after))
        streams = [watching(event("ADDED", sound(resource)), bookmark(10, end=True)), watching(*lines)]
        clock = FakeClock()
        api = FakeApi(*streams, watching(*lines), watching(), clock=clock)
        reflector = Reflector(api, resource, clock=clock, rng=draw)
        key = "shop/after"
        for _ in range(3):
            if key in reflector.store:
                break
            reflector.step()
        assert key in reflector.store, (resource, line)
        assert reflector.relists == 1, (resource, line)
        assert reflector.step() == 0


def test_one_object_of_a_list_costs_itself_and_makes_nobody_think_that_others_are_gone() -> None:
    kinds = list(KINDS.values())
    for draw in some("lists"):
        resource = draw.choice(kinds)
        known, other = sound(resource, name="known", uid="known"), sound(resource, name="other", uid="other")
        bad, new = mutant(draw, sound(resource)), sound(resource, name="new", uid="new")
        answer = page(10, known, {"here": 0}, other, new)
        answer.data = answer.data.replace(b'{"here": 0}', bad)
        gone = watching(event("ERROR", {"code": 410, "reason": "Expired"}))
        api = FakeApi(refusal(400), page(5, known, other), gone, answer, clock=FakeClock())
        reflector = Reflector(api, resource, clock=FakeClock(), rng=draw)
        steps = [reflector.step() for _ in range(4)]
        keys = set(reflector.store.keys())
        assert {"shop/known", "shop/other"} <= keys, (resource, bad)
        if _is_json(bad):
            assert steps[3] == 0, (resource, bad)
            assert "shop/new" in keys, (resource, bad)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


class _Everywhere:
    """A namespace where everything is asked for, so far as it goes together, and all facts are at hand."""

    def __init__(self, clock: FakeClock) -> None:
        self._shares = ShareLedger(clock)

    def of(self, namespace: str) -> StampFacts | None:
        wishes = {
            "dovetail.dev/image-arch": "gate",
            "dovetail.dev/os": "linux",
            "dovetail.dev/nodepool": "gpu",
            "dovetail.dev/scheduler": "enabled",
            "dovetail.dev/on-demand": "30pct",
            "dovetail.dev/spread": "zone",
            "dovetail.dev/protect-jobs": "enabled",
            "dovetail.dev/legacy-labels": "rewrite",
        }
        taint = Taint(key="example.com/gpu", value="yes", effect="NoSchedule")
        return StampFacts(namespace, wishes, scheduler_alive=True, taints_of=lambda _: (taint,))

    def seat(self, owner: ShareOwner, share: Share, review: str, *, keep: bool) -> Seat | None:
        return self._shares.seat(owner, share, review, keep=keep)

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images | None:
        found = {image: frozenset({("linux", "arm64")}) for image in asked.images if not image.startswith("pending")}
        return Images(found, frozenset(asked.images) - found.keys(), may_gate=keep)


def _pods() -> Iterator[dict[str, Any]]:
    """Pods with something for every setting: those of ReplicaSets and Jobs, with affinities and without, with images that are known and not."""
    for owner, image, is_plain in (
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet"}, "known:1", False),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "known:1", True),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "pending:1", False),
    ):
        pod = document("pods", ownerReferences=[{**owner, "name": "web", "uid": "o", "controller": True}])
        spec = pod["spec"]
        del spec["nodeName"], spec["topologySpreadConstraints"], pod["metadata"]["annotations"]
        spec["nodeSelector"] = {"beta.kubernetes.io/instance-type": "m5.large"}
        if is_plain:
            del spec["affinity"], spec["schedulingGates"]
        for container in (*spec["containers"], *spec["initContainers"]):
            container["image"] = image
        yield pod


PODS = tuple(_pods())


def test_every_review_is_answered_unless_its_uid_cannot_be_read(
    bodies: Callable[[str], Iterator[random.Random]],
) -> None:
    clock = FakeClock()
    admission = AdmissionHandler(_Everywhere(clock), clock)
    posted = webhook(admission=admission)
    failed = counted("dovetail_webhook_reviews_total", outcome="error")
    outcomes = all_counted("dovetail_webhook_reviews_total", "outcome")
    stamps = all_counted("dovetail_webhook_stamps_total", "stamp")
    for draw in bodies("reviews"):
        clock.advance(1.0)
        request = {
            "uid": "u1",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "object": draw.choice(PODS),
        }
        body = mutant(draw, {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
        if not posted("/mutate", body):
            continue
        with bounded(body):
            try:
                reply = admission.answer(body)
            except ReviewError as error:
                answered = not error.uid
            else:
                answered = json.loads(reply)["response"]["allowed"]
        assert answered is True, body
        assert counted("dovetail_webhook_reviews_total", outcome="error") == failed, body
    outcomes = all_counted("dovetail_webhook_reviews_total", "outcome") - outcomes
    assert outcomes["stamped"] > BODIES // 3, "most of the mutants do so much harm that they show nothing"
    stamps = all_counted("dovetail_webhook_stamps_total", "stamp") - stamps
    rare = {stamp for stamp in STAMPS - {"arch", "capacity-type"} if stamps[stamp] < BODIES // 20}
    assert not rare, "these stamps were hardly ever made"


class _Beside:
    """What validated objects stand beside."""

    def surroundings(self) -> ValidationContext:
        high = msgspec.convert(pool(name="high", weight=50), NodePool)
        return ValidationContext((high,), {("karpenter.k8s.aws", "EC2NodeClass"): {"default"}})


VALIDATED = {
    "NodePool": "nodepools",
    "NodeClaim": "nodeclaims",
    "NodeOverlay": "nodeoverlays",
    "EC2NodeClass": "ec2nodeclasses",
}
"""What is validated, with its plural."""


def test_every_object_is_admitted_or_denied_with_a_reason(bodies: Callable[[str], Iterator[random.Random]]) -> None:
    validation = Validation(_Beside().surroundings, FakeClock())
    posted = webhook(validation=validation)
    seeds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in VALIDATED}
    for one in (CLASS, *(case.document for case in CASES.values())):
        seeds[one["kind"]].append(one)
    outcomes = all_counted("dovetail_webhook_validations_total", "outcome")
    failed = counted("dovetail_webhook_validations_total", outcome="error")
    for draw in bodies("validations"):
        kind = draw.choice(list(VALIDATED))
        new, old = draw.choice(seeds[kind]), draw.choice(seeds[kind])
        group, _, version = new["apiVersion"].partition("/")
        request = {
            "uid": "u1",
            "resource": {"group": group, "version": version, "resource": VALIDATED[kind]},
            **draw.choice(({"operation": "CREATE"}, {"operation": "UPDATE", "oldObject": old})),
            "object": odd(draw, new),
        }
        asked = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        body = draw.choice((mutant(draw, asked), encoded(asked)))
        if not posted("/validate", body):
            continue
        with bounded(body):
            try:
                reply: bytes | None = validation.answer(body)
            except ReviewError as error:
                reply = b"" if error.uid else None
        if reply is None:
            continue
        assert reply, "a review with a uid is answered"
        response = json.loads(reply)["response"]
        assert response["allowed"] or response["status"]["message"], body
        warnings = response.get("warnings", ())
        assert all(len(one.encode()) <= review.MAX_WARNING_BYTES for one in warnings), body
        assert counted("dovetail_webhook_validations_total", outcome="error") == failed, body
    outcomes = all_counted("dovetail_webhook_validations_total", "outcome") - outcomes
    judged = outcomes["admitted"] + outcomes["warned"] + outcomes["denied"]
    assert judged > BODIES // 5, "most of the mutants do so much harm that they show nothing"
    assert min(outcomes[one] for one in ("admitted", "warned", "denied")) > BODIES // 50


def test_every_conversion_is_answered_unless_its_uid_cannot_be_read(
    bodies: Callable[[str], Iterator[random.Random]],
) -> None:
    conversion = Conversion(FakeClock())
    posted = webhook(conversion=conversion)
    failed = counted("dovetail_webhook_conversions_total", outcome="error")
    good: Counter[str] = Counter()
    for draw in bodies("conversions"):
        kind = draw.choice(("NodePool", "NodeClaim", "EC2NodeClass"))
        group = "karpenter.k8s.aws" if kind == "EC2NodeClass" else "karpenter.sh"
        new = {**document(VALIDATED[kind]), "apiVersion": f"{group}/v1", "kind": kind}
        old = convert(new, f"{group}/v1beta1")
        given, to = draw.choice(((new, f"{group}/v1beta1"), (old, f"{group}/v1")))
        request = {"uid": "u1", "desiredAPIVersion": to, "objects": [given]}
        asked = {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request}
        body = mutant(draw, asked)
        if not posted("/convert", body):
            continue
        with bounded(body):
            try:
                reply = conversion.answer(body)
            except ReviewError:
                continue
        # what is deep comes back as deep as it went in
        whole: Any = jsontext.decode_trimmed(msgspec.json.decode, reply)[0]
        response = whole["response"]
        good[kind] += response["result"]["status"] == "Success"
        assert response["result"]["status"] == "Success" or response["result"]["message"], body
        assert counted("dovetail_webhook_conversions_total", outcome="error") == failed, body
    assert min(good.values()) > BODIES // 20, "most of the mutants do so much harm that they show nothing"


class _Wires(Transport):
    """Registries whose documents, tokens and headers are mutants, and whose HTTP is too; `making` is the CPU time that those took."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(TRUST, TLS, lambda: 0.0)
        self._draw = draw
        self.making = 0.0
        self._config = encoded({"os": "linux", "architecture": "arm64", "config": {"Env": ["A=b"]}})
        self._index = index(("linux", "amd64"), ("linux", "arm64"), attestations=1)

    def ask(
        self, method: str, host: Host, target: str, headers: Mapping[str, str], most: int, deadline: float
    ) -> RegistryReply:
        began = time.thread_time()
        wire = self._wire(target, is_known="Authorization" in headers)
        self.making += time.thread_time() - began
        request = h11.Request(method=method, target=target, headers=[("Host", str(host)), *headers.items()])
        try:
            return self._answer(cast(ssl.SSLSocket, _Socket(wire)), request, most, 1.0)
        except (h11.ProtocolError, UnicodeError) as error:
            raise TransportError(str(error)) from error

    def _wire(self, target: str, *, is_known: bool) -> bytes:
        draw = self._draw
        if "/blobs/" in target:
            body: object = json.loads(self._config)
        elif target.startswith("/token"):
            body = {"token": "abc", "expires_in": 300}
        else:
            body = draw.choice((self._index, manifest(self._config)))
        if not is_known and not target.startswith("/token") and draw.random() < 0.3:
            challenge = 'Bearer realm="https://registry.test/token",service="s",scope="repository:a:pull"'
            text = (
                mutant(draw, [challenge])
                .decode("latin-1")
                .strip('[]"')
                .replace('\\"', '"')
                .replace("\n", " ")
                .replace("\r", " ")
            )
            head, rest = f"HTTP/1.1 401 X\r\nwww-authenticate: {text}\r\n", b""
        else:
            rest = mutant(draw, body) if draw.random() < 0.8 else encoded(body)
            head = "HTTP/1.1 200 OK\r\n"
        wire = f"{head}content-length: {len(rest)}\r\n\r\n".encode("latin-1") + rest
        if draw.random() < 0.1:
            at = draw.randrange(len(wire))
            wire = wire[:at] + bytes([draw.randrange(256)]) + wire[at + draw.randrange(3) :]
        return wire


class _Socket:
    """The other side of a connection, in memory."""

    def __init__(self, data: bytes) -> None:
        self._pieces = [data[at : at + 4096] for at in range(0, len(data), 4096)]

    def settimeout(self, seconds: float) -> None: ...

    def sendall(self, data: bytes) -> None: ...

    def recv(self, most: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


TRUST = Trust(parse_registries("registry.test"))
TLS = ssl.create_default_context()


def _look(draw: random.Random) -> frozenset[Platform]:
    known = FoundImage(frozenset(), "sha256:1") if draw.random() < 0.2 else None
    wires = _Wires(draw)
    registry = Registry(wires, TRUST, lambda: 0.0)
    with bounded("an image", apart=lambda: wires.making):
        try:
            found = registry.look(parse("registry.test/a:1"), lambda: Login("u", "p"), known)
        except LookupFailedError:
            return frozenset()
    return found.platforms


def test_every_answer_of_a_registry_is_read_or_fails_and_nothing_of_it_stays() -> None:
    found = 0
    sizes: list[int] = []
    tracemalloc.start()
    try:
        for number, draw in enumerate(some("images")):
            platforms = _look(draw)
            assert all(one.os in ("linux", "windows") and one.architecture.isalnum() for one in platforms)
            found += bool(platforms)
            if number in (BODIES // 2, BODIES - 1):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert BODIES // 20 < found < BODIES, "most of the mutants do harm, and not too much of it"
    assert sizes[1] - sizes[0] < 512 * 1024, "what was refused is kept somewhere"


@pytest.mark.parametrize(
    "unit", [b"[", b'{"manifests":[', b'"', b'{"platform":{"os":"linux","architecture":"amd64"}},', b"\\", b" "]
)
def test_the_largest_document_costs_in_proportion_to_its_length(unit: bytes) -> None:
    def seconds(length: int) -> float:
        body = b'{"manifests":[' + unit * (length // len(unit))
        best = float("inf")
        for _ in range(3):
            begun = time.process_time()
            _only(ImageDocumentError, platforms_in, body)
            best = min(best, time.process_time() - begun)
        return best

    assert seconds(MAX_BYTES) < 32 * max(seconds(MAX_BYTES // 8), 0.002)


def test_every_pull_secret_is_read_or_refused(bodies: Callable[[str], Iterator[random.Random]]) -> None:
    config = {"auths": {"https://registry.test/v1/": {"auth": "dTpw"}, "*.test": {"username": "u", "password": "p"}}}
    found = 0
    for draw in bodies("secrets"):
        key = draw.choice((".dockerconfigjson", ".dockercfg"))
        given = mutant(draw, config if key == ".dockerconfigjson" else config["auths"])
        try:
            found += login_in({key: given}, parse("registry.test/a")) == Login("u", "p")
        except ImageDocumentError:
            continue
    assert found > BODIES // 20


class _Reports:
    """Counts what is told of pods that are left without a node."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()

    def put(self, report: PodReport) -> None:
        self.told[report.reason] += 1


COMING = tuple(f"coming-{number}" for number in range(20))
STRANGERS = tuple(f"stranger-{number}" for number in range(200))
"""The preemption of each is put off once, so there are some of them."""


def _known(clock: FakeClock) -> Board:
    """A board whose watches are live: n1 holds room for two planned pods, n2 has a pod, n3 is being taken away, a node for others is coming."""
    board = Board(clock)
    board.depend_on([Watch()])
    board.vetoes.begin(())
    world = World()
    world.table, world.now = board.table, clock.monotonic()
    world.pods(member("a"), member("b"), *(member(one, owner="other") for one in COMING))
    world.planned_node("n1", entry("a", "b"), cores=2)
    world.node("n2")
    world.pods(member("settled", owner="third", node="n2"))
    world.claim("c-n3", node="n3", disrupted=True)
    world.node("n3")
    world.claim("c-n4", entry(*COMING, owner="other"), provider_id="i-4")
    return board


def _waiting(uid: str, *, priority: int) -> dict[str, Any]:
    """A pod that kube-scheduler asks about; room is held against one of priority 0, as the planned pods have it."""
    pod = document("pods", uid=uid)
    del pod["metadata"]["deletionTimestamp"], pod["spec"]["nodeName"], pod["spec"]["schedulingGates"]
    del pod["spec"]["initContainers"]  # their requests cannot be read
    pod["spec"]["priority"] = priority
    pod["status"] = {"phase": "Pending", "nominatedNodeName": "n2"}
    return pod


def test_every_question_is_answered(bodies: Callable[[str], Iterator[random.Random]]) -> None:
    victims = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    clock = FakeClock()
    board = _known(clock)
    reports = _Reports()
    answerer = Answerer(board, reports)
    posted = Posted(extender_app(answerer, board.problem), MAX_BODY_BYTES)
    passed = "dovetail_extender_passed_total"
    unjudged = {reason: counted(passed, reason=reason) for reason in ("stale", "breaker")}
    before = all_counted("dovetail_extender_requests_total", "answer")
    judged: Counter[str] = Counter()
    for number, draw in enumerate(bodies("questions"), 1):
        pod = _waiting(draw.choice((*STRANGERS, *COMING, *("a",) * 20)), priority=draw.choice((0, 100)))
        nodes = {"items": [document("nodes", name=name) for name in ("n1", "n2", "n3")]}
        few = {"Pod": pod, "Nodes": None, "NodeNames": draw.choice((["n1", "n2", "n3"], ["n1", "n3"]))}
        asked = draw.choice((few, {"Pod": pod, "Nodes": nodes, "NodeNames": None}))
        for verb, body in (
            ("filter", mutant(draw, asked)),
            ("prioritize", mutant(draw, asked)),
            ("preempt", mutant(draw, {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})),
        ):
            if not posted(f"/{verb}", body):
                continue
            errors = counted(passed, reason="error")
            with bounded(body):
                is_read = _ANSWERED[verb](answerer, body)
            if counted(passed, reason="error") != errors:
                assert not _decodes(verb, body), body
                is_read = False
            judged[verb] += is_read
        clock.advance(DISRUPTED_SECONDS / 2 / BODIES)
        if number % (BODIES // 2) == 0:
            board.refusals = Refusals()  # up to 2,000 kinds of pods stay there until room is released, and here none is
    assert unjudged == {reason: counted(passed, reason=reason) for reason in unjudged}
    assert min(judged[verb] for verb in _ANSWERED) > BODIES // 2, "most of the mutants are not judged"
    answers = all_counted("dovetail_extender_requests_total", "answer") - before
    for answer in ("narrowed", "refused", "steered", "echoed", "scored", "kept", "failed"):
        assert answers[answer] > BODIES // 100, answer
    assert answers["vetoed"] > len(STRANGERS) // 10, "each of few"
    for reason in (ReportReason.HELD, ReportReason.EMPTIED, ReportReason.PREEMPTED):
        assert reports.told[reason] > BODIES // 500, reason


def _filtered(answerer: Answerer, body: bytes) -> bool:
    reply = json.loads(answerer.filter(body).decode(errors="replace"))  # an echo is as good as the question
    if reply["Error"]:
        return False
    assert reply["NodeNames"] is not None or reply["Nodes"] is not None, body
    return True


def _prioritized(answerer: Answerer, body: bytes) -> bool:
    scores = json.loads(answerer.prioritize(body))
    try:
        asked = ExtenderQuestion(body).names.as_set()
    except ExtenderProtocolError:
        assert scores == [], body
        return False
    assert all(one["Host"] in asked and 0 <= one["Score"] <= 10 for one in scores), body
    return True


def _preempted(answerer: Answerer, body: bytes) -> bool:
    """An empty answer forbids to evict anybody: that is said once."""
    try:
        kept = [json.loads(answerer.preempt(body))["NodeNameToMetaVictims"] for _ in range(2)]
    except ExtenderProtocolError:
        return False  # HTTP 400: kube-scheduler goes on without us
    assert any(kept) or not _has_victims(body), body
    return True


_ANSWERED: dict[str, Callable[[Answerer, bytes], bool]] = {
    "filter": _filtered,
    "prioritize": _prioritized,
    "preempt": _preempted,
}
"""Asks, looks whether the answer is one that kube-scheduler can live with, and says whether the question could be read."""


def _decodes(verb: str, body: bytes) -> bool:
    """Whether a question can be read to its end, the pod and the names."""
    try:
        if verb == "preempt":
            pod = PreemptionQuestion(body).pod
        else:
            question = ExtenderQuestion(body)
            question.names.all()
            pod = question.pod
        jsontext.decode_trimmed(decode_member, pod.raw)
    except (RecursionError, ValueError):
        return False
    return True


def _has_victims(body: bytes) -> bool:
    """Whether anybody would have to be evicted, so that an empty answer forbids something."""
    try:
        return any(meta.pods for meta in PreemptionQuestion(body).candidates.values())
    except ExtenderProtocolError:
        return True


def test_every_text_in_an_annotation_a_message_or_a_report_is_read_or_refused() -> None:
    plan = json.loads(document("pods")["metadata"]["annotations"]["dovetail.dev/plan"])
    mark = json.loads(document("pods")["metadata"]["annotations"]["dovetail.dev/interruption"])
    reports = {"reports": [{"uid": "u", "node": "n", "reason": "held"}]}
    detail = {"instance-id": "i-0123456789abcdef0", "state": "stopped"}
    message = {
        "version": "0",
        "source": "aws.ec2",
        "detail-type": "EC2 Instance State-change Notification",
        "time": "2026-11-21T10:00:00Z",
        "detail": detail,
    }
    status = {"kind": "Status", "code": 409, "reason": "Conflict", "details": {"causes": [{"field": "a"}]}}
    for draw in some("texts"):
        match draw.randrange(5):
            case 0:
                _only(PlanError, decode_plan, _text(mutant(draw, plan)))
            case 1:
                interruption_of({INTERRUPTION_ANNOTATION: _text(mutant(draw, mark))})
            case 2:
                _only(ReportsError, decode_reports, mutant(draw, reports))
            case 3:
                _only(MessageError, parse_message, _text(mutant(draw, message)))
            case _:
                assert isinstance(error_from(409, mutant(draw, status)), ApiError)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _only(kind: type[Exception], call: Callable[[Any], object], given: object) -> None:
    try:
        call(given)
    except kind:
        pass
