"""Whatever an object looks like, it is a bad object at worst: 5,000 mutants in `fast`, 100,000 with HYPOTHESIS_PROFILE=thorough.

What the API server, kube-scheduler and registries send to programs over HTTP gets as many again, of each form: 500, or 100,000.
"""

import gc
import json
import os
import random
import ssl
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import h11
import msgspec
import pytest

from extender.answering import Answerer
from extender.board import Board
from extender.protocol import PreemptionQuestion, ProtocolError, Question
from extender.server import MEMBERS
from provisioner.apis.conversion.beta import convert
from provisioner.apis.interruption import interruption_of
from provisioner.apis.names import INTERRUPTION_ANNOTATION
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.reports import Report, ReportsError, decode_reports
from provisioner.apis.shares import Share, Side
from provisioner.cloudprovider.aws.interruption.messages import MessageError
from provisioner.cloudprovider.aws.interruption.messages import parse as parse_message
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, DecodeError, error_from
from provisioner.kube.resources import Resource
from provisioner.kube.watch import Reflector
from provisioner.support import metrics
from provisioner.values import jsontext
from tests.support.clock import FakeClock
from tests.support.imagehosts import encoded, index, manifest
from tests.support.kube import FakeAnswer, FakeApi, bookmark, event, page, refusal, watching
from tests.support.mutants import DOCUMENTS, document, mutant
from webhook.app import Admission
from webhook.conversion import Conversion
from webhook.images.documents import MAX_BYTES, DocumentError, Login, Platform, login_in, platforms_in
from webhook.images.references import Host, parse
from webhook.images.registry import Found, LookupFailedError, Registry
from webhook.images.transport import Reply, Transport, TransportError
from webhook.images.trust import Trust, parse_registries
from webhook.review import ReviewError
from webhook.shares import Owner, Seat
from webhook.stamping import Facts, Images, ImagesAsked

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
MUTANTS = 100_000 if THOROUGH else 5_000
BODIES = 100_000 if THOROUGH else 500
if THOROUGH:
    pytestmark = pytest.mark.timeout(4 * 3600)  # a law takes some minutes alone, and as long as it takes beside others
KINDS: dict[str, Resource[Any]] = {
    name: found
    for name, found in {**vars(resources), "MEMBERS": MEMBERS}.items()
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
        caplog.clear()
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


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def test_every_mutant_has_its_test() -> None:
    assert sum(SHARES.values()) == 100
    assert {kind.plural for kind in KINDS.values()} == set(DOCUMENTS) | {"serviceaccounts", "priorityclasses"}


def sound(resource: Resource[Any], **metadata: Any) -> dict[str, Any]:
    plural = resource.plural if resource.plural in DOCUMENTS else "configmaps"
    return document(plural, **metadata)


@pytest.mark.parametrize("name", KINDS)
def test_a_sound_object_can_be_read(name: str) -> None:
    resource = KINDS[name]
    assert resource.identity(resource.decode(json.dumps(sound(resource)).encode())).name == "web-1"


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
    def of(self, namespace: str) -> Facts | None:
        wishes = {
            "dovetail.dev/image-arch": "gate",
            "dovetail.dev/scheduler": "enabled",
            "dovetail.dev/on-demand": "30pct",
        }
        return Facts(namespace, wishes)

    def seat(self, owner: Owner, share: Share, review: str, *, keep: bool) -> Seat | None:
        del owner, review, keep
        return Seat(Side.SPOT, 1, share.of(1))

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images | None:
        del keep
        return Images({image: frozenset({("linux", "arm64")}) for image in asked.images})


def test_every_review_is_answered_unless_its_uid_cannot_be_read(
    bodies: Callable[[str], Iterator[random.Random]],
) -> None:
    request = {
        "uid": "u1",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "object": document("pods"),
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    admission = Admission(_Everywhere(), FakeClock())
    failed = counted("dovetail_webhook_reviews_total", outcome="error")
    for draw in bodies("reviews"):
        body = mutant(draw, review)
        try:
            reply = admission.answer(body)
        except ReviewError as error:
            answered = not error.uid
        else:
            answered = json.loads(reply)["response"]["allowed"]
        assert answered is True, body
        assert counted("dovetail_webhook_reviews_total", outcome="error") == failed, body


def test_every_conversion_is_answered_unless_its_uid_cannot_be_read(
    bodies: Callable[[str], Iterator[random.Random]],
) -> None:
    conversion = Conversion(FakeClock())
    failed = counted("dovetail_webhook_conversions_total", outcome="error")
    good = 0
    for draw in bodies("conversions"):
        kind, plural = draw.choice((("NodePool", "nodepools"), ("NodeClaim", "nodeclaims")))
        new = {**document(plural), "apiVersion": "karpenter.sh/v1", "kind": kind}
        old = convert(new, "karpenter.sh/v1beta1")
        given, to = draw.choice(((new, "karpenter.sh/v1beta1"), (old, "karpenter.sh/v1")))
        request = {"uid": "u1", "desiredAPIVersion": to, "objects": [given]}
        review = {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request}
        body = mutant(draw, review)
        try:
            reply = conversion.answer(body)
        except ReviewError:
            continue
        whole: Any = jsontext.decode_trimmed(msgspec.json.decode, reply)[
            0
        ]  # what is deep comes back as deep as it went in
        response = whole["response"]
        good += response["result"]["status"] == "Success"
        assert response["result"]["status"] == "Success" or response["result"]["message"], body
        assert counted("dovetail_webhook_conversions_total", outcome="error") == failed, body
    assert good > BODIES // 20, "most of the mutants do so much harm that they show nothing"


class _Wires(Transport):
    """Registries whose documents, tokens and headers are mutants, and whose HTTP is too."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(TRUST, TLS, lambda: 0.0)
        self._draw = draw
        self._config = encoded({"os": "linux", "architecture": "arm64", "config": {"Env": ["A=b"]}})
        self._index = index(("linux", "amd64"), ("linux", "arm64"), attestations=1)

    def ask(
        self, method: str, host: Host, target: str, headers: Mapping[str, str], most: int, deadline: float
    ) -> Reply:
        draw = self._draw
        if "/blobs/" in target:
            body: object = json.loads(self._config)
        elif target.startswith("/token"):
            body = {"token": "abc", "expires_in": 300}
        else:
            body = draw.choice((self._index, manifest(self._config)))
        if "Authorization" not in headers and not target.startswith("/token") and draw.random() < 0.3:
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
        request = h11.Request(method=method, target=target, headers=[("Host", str(host)), *headers.items()])
        try:
            return self._answer(cast(ssl.SSLSocket, _Socket(wire)), request, most, 1.0)
        except (h11.ProtocolError, UnicodeError) as error:
            raise TransportError(str(error)) from error


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
    known = Found(frozenset(), "sha256:1") if draw.random() < 0.2 else None
    registry = Registry(_Wires(draw), TRUST, lambda: 0.0)
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
            _only(DocumentError, platforms_in, body)
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
        except DocumentError:
            continue
    assert found > BODIES // 20


class _Silent:
    def put(self, report: Report) -> None: ...


def test_every_question_is_answered(bodies: Callable[[str], Iterator[random.Random]]) -> None:
    pod = document("pods")
    asked = {"Pod": pod, "Nodes": None, "NodeNames": ["n1", "n2"]}
    whole = {"Pod": pod, "Nodes": {"items": [document("nodes", name="n1")]}, "NodeNames": None}
    victims = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    preemption = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    answerer = Answerer(Board(120.0, FakeClock()), _Silent())
    for draw in bodies("questions"):
        body = mutant(draw, draw.choice((asked, whole)))
        reply = json.loads(answerer.filter(body).decode(errors="replace"))  # an echo is as good as the question
        assert reply["Error"] or reply["NodeNames"] is not None or reply["Nodes"] is not None
        assert json.loads(answerer.prioritize(body)) == []
        _only(ProtocolError, Question, body)
        body = mutant(draw, preemption)
        try:
            kept = answerer.preempt(body)
        except ProtocolError:
            continue  # HTTP 400: kube-scheduler goes on without us
        assert json.loads(kept)["NodeNameToMetaVictims"] or not _has_victims(body), body


def _has_victims(body: bytes) -> bool:
    """Whether anybody would have to be evicted, so that an empty answer forbids something."""
    try:
        return any(meta.pods for meta in PreemptionQuestion(body).candidates.values())
    except ProtocolError:
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
