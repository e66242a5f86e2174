"""Whatever an object looks like, it is a bad object at worst: 5,000 mutants in `fast`, 100,000 with HYPOTHESIS_PROFILE=thorough."""

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extender.answering import Answerer
from extender.board import Board
from extender.protocol import PreemptionQuestion, ProtocolError, Question
from extender.server import MEMBERS
from provisioner.apis.interruption import interruption_of
from provisioner.apis.names import INTERRUPTION_ANNOTATION
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.reports import Report, ReportsError, decode_reports
from provisioner.cloudprovider.aws.interruption.messages import MessageError
from provisioner.cloudprovider.aws.interruption.messages import parse as parse_message
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, DecodeError, error_from
from provisioner.kube.resources import Resource
from provisioner.kube.watch import Reflector
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, bookmark, event, page, refusal, watching
from tests.support.mutants import DOCUMENTS, document, mutant
from webhook.app import Admission
from webhook.review import ReviewError
from webhook.shares import Owner, Seat, Share, Side
from webhook.stamping import Facts, Images, ImagesAsked

MUTANTS = 100_000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 5_000
KINDS: dict[str, Resource[Any]] = {
    name: found
    for name, found in {**vars(resources), "MEMBERS": MEMBERS}.items()
    if isinstance(found, Resource) and name.isupper()
}
#: Of all mutants, so many hundredths go to each of the tests below.
SHARES = {"objects": 40, "watches": 25, "lists": 5, "reviews": 10, "questions": 10, "texts": 10}


def some(what: str) -> Iterator[random.Random]:
    """A generator for each mutant of one test."""
    for number in range(MUTANTS * SHARES[what] // 100):
        yield random.Random(f"{what}-{number}")


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
        wishes = {"dovetail.dev/arch": "arm64", "dovetail.dev/scheduler": "enabled", "dovetail.dev/on-demand": "30pct"}
        return Facts(namespace, wishes)

    def seat(self, owner: Owner, share: Share, review: str, *, keep: bool) -> Seat | None:
        del owner, review, keep
        return Seat(Side.SPOT, 1, share.of(1))

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images | None:
        del keep
        return Images({image: frozenset({("linux", "arm64")}) for image in asked.images})


def test_every_review_is_answered_unless_its_uid_cannot_be_read() -> None:
    request = {
        "uid": "u1",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "object": document("pods"),
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    admission = Admission(_Everywhere(), FakeClock())
    for draw in some("reviews"):
        body = mutant(draw, review)
        try:
            reply = admission.answer(body)
        except ReviewError as error:
            answered = not error.uid
        else:
            answered = json.loads(reply)["response"]["allowed"]
        assert answered is True, body


class _Silent:
    def put(self, report: Report) -> None: ...


def test_every_question_is_answered() -> None:
    pod = document("pods")
    asked = {"Pod": pod, "Nodes": None, "NodeNames": ["n1", "n2"]}
    whole = {"Pod": pod, "Nodes": {"items": [document("nodes", name="n1")]}, "NodeNames": None}
    victims = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    preemption = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    answerer = Answerer(Board(120.0, FakeClock()), _Silent())
    for draw in some("questions"):
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
