"""Pods that were admitted before their images were known: what is written on them, and when a held one goes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from provisioner.apis.stamping import ImagesAsked, StampFacts
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.kube.resources import PartialIdentity
from provisioner.simulator import json_patch
from tests.support.clock import FakeClock
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, bookmark, event, ok, refusal, watching
from webhook.images import marked as module
from webhook.images.documents import Login, Platform
from webhook.images.lookups import Lookups
from webhook.images.marked import MarkedPods
from webhook.images.references import Reference
from webhook.images.registry import FoundImage, LookupFailedError

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")
GATE = {"name": "dovetail.dev/image-arch"}
MARK = "dovetail.dev/image-arch-pending"
IDENTITY = PartialIdentity("web-1", "shop", "u", "7")


def pod(*images: str, gated: bool = True, **spec: Any) -> dict[str, Any]:
    gates = {"schedulingGates": [GATE]} if gated else {}
    return {
        "metadata": {
            "name": "web-1",
            "namespace": "shop",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {MARK: "true"},
        },
        "spec": {"containers": [{"name": f"c{at}", "image": one} for at, one in enumerate(images)], **gates, **spec},
    }


class Told(Recorder):
    """Keeps events instead of sending them."""

    def __init__(self, client: Client, clock: FakeClock) -> None:
        super().__init__(client, "test", clock)
        self.said: list[tuple[str, str]] = []

    def publish(self, ref: Any, type: Any, reason: str, message: str, dedupe: Any = (), ttl: Any = None) -> None:  # noqa: A002
        self.said.append((ref.name, reason))


class Bench:
    """One marked pod on a server, registries that know some images, and what is done about it."""

    def __init__(self, pod: dict[str, Any] | None, **known: Platform) -> None:
        self.pod, self.known, self.clock = pod, known, FakeClock()
        self.refuse: FakeAnswer | None = None
        self.allowed = True
        self.patches: list[Any] = []
        self.api = FakeApi(respond=self._respond, clock=self.clock)
        client = Client(self.api, self.clock)
        self.lookups = Lookups(self._look, lambda _: True, lambda _: None, lambda *_: frozenset(), self.clock)
        self.settings = {"dovetail.dev/image-arch": "gate"}
        self.recorder = Told(client, self.clock)
        self.pods = MarkedPods(self.api, client, self.of, self.lookups, self.recorder, self.clock)

    def of(self, namespace: str) -> StampFacts | None:
        return StampFacts(namespace, self.settings)

    def _look(self, reference: Reference, login: Callable[[], Login | None], known: FoundImage | None) -> FoundImage:
        name = reference.repository.removeprefix("library/")
        if name not in self.known:
            raise LookupFailedError("no", ours=True)
        return FoundImage(frozenset({self.known[name]}), "sha256:1")

    def _respond(self, sent: Sent) -> FakeAnswer:
        if sent.path.endswith("selfsubjectaccessreviews"):
            assert sent.body["spec"]["resourceAttributes"] == {"verb": "patch", "resource": "pods"}
            return ok({"status": {"allowed": self.allowed}})
        if self.pod is None:
            return refusal(404, "NotFound")
        if sent.method == "GET":
            return ok(self.pod)
        if self.refuse is not None:
            return self.refuse
        try:
            self.pod = json_patch.apply(self.pod, sent.body)
        except json_patch.PatchError:
            return refusal(422, "Invalid")
        self.patches.append(sent.body)
        return ok(self.pod)

    def seen(self) -> "Bench":
        """The watch shows the pod."""
        self.pods.changed(None, IDENTITY)
        return self

    def look_up(self, *images: str) -> None:
        """What the threads of the lookups would do."""
        self.lookups.images(ImagesAsked("shop", images, ()), keep=True)
        while (key := self.lookups._next()) is not None:
            self.lookups._look_up(key)

    def reconcile(self) -> float | None:
        return self.pods.reconcile("shop/web-1").requeue_after

    @property
    def gates(self) -> Any:
        assert self.pod is not None
        return self.pod["spec"].get("schedulingGates")

    @property
    def labels(self) -> Any:
        assert self.pod is not None
        return self.pod["metadata"]["labels"]


def test_a_held_pod_waits_until_its_image_is_known_and_is_looked_at_at_once_then() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    assert at.reconcile() == module.GATE_SECONDS
    assert at.patches == []
    at.pods.queue._schedule.clear()
    at.look_up("web")
    assert len(at.pods.queue) == 1, "the lookup woke it"
    assert at.reconcile() is None
    assert (at.gates, at.labels) == ([], {})
    assert at.pod is not None
    assert "amd64" in json.dumps(at.pod["spec"]["affinity"])
    assert at.patches[0][:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
    ]
    assert at.pods._wait_for == {}


def test_a_held_pod_goes_at_its_deadline_and_is_told_later() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.reconcile()
    at.clock.advance(module.GATE_SECONDS)
    assert at.reconcile() == module.LOOK_AGAIN_SECONDS
    assert (at.gates, at.labels) == ([], {MARK: "true"})
    at.look_up("web")
    at.reconcile()
    assert at.pod is not None
    assert at.pod["metadata"]["annotations"] == {"dovetail.dev/image-architectures": "amd64"}
    assert at.labels == {}


def test_a_held_pod_goes_at_once_when_nothing_will_be_known() -> None:
    at = Bench(pod("web")).seen()
    at.look_up("web")
    assert at.reconcile() is None
    assert (at.gates, at.labels) == ([], {})


def test_a_pod_that_runs_is_told_too_so_that_its_successor_is_simulated_right() -> None:
    at = Bench(pod("web", gated=False, nodeName="n1"), web=AMD64).seen()
    at.look_up("web")
    at.reconcile()
    assert at.pod is not None
    assert at.pod["metadata"]["annotations"] == {"dovetail.dev/image-architectures": "amd64"}


def test_a_namespace_with_thousands_of_marked_pods_leaves_turns_to_others() -> None:
    at = Bench(None)
    for number in range(2000):
        at.pods.changed(None, PartialIdentity(f"flood-{number}", "flood", f"u{number}", "7"))
    at.seen()
    due = list(iter(lambda: at.pods.queue._schedule.pop(at.clock.monotonic()), None))
    assert due[-1] == "shop/web-1"
    assert len(due) == module.AHEAD_SECONDS / module.TURN_SECONDS + 1
    at.clock.advance(2000 * module.TURN_SECONDS)
    late = list(iter(lambda: at.pods.queue._schedule.pop(at.clock.monotonic()), None))
    assert len({*due, *late}) == 2001


def test_nothing_in_common_is_an_event() -> None:
    at = Bench(pod("web", "log"), web=AMD64, log=ARM64).seen()
    at.look_up("web", "log")
    at.reconcile()
    assert at.recorder.said == [("web-1", "NoCommonArchitecture")]
    assert (at.gates, at.labels) == ([], {})


def test_what_the_other_replica_wrote_first_is_read_again() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.look_up("web")
    for answer in (refusal(409, "Conflict"), refusal(422, "Invalid")):
        at.refuse = answer
        assert at.reconcile() == 0.1
    at.refuse = None
    assert at.reconcile() is None
    assert at.gates == []
    assert at.reconcile() is None
    assert len(at.patches) == 1, "there is nothing left to write"


def test_a_write_that_is_always_invalid_is_not_repeated_without_a_break_and_not_for_ever() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.look_up("web")
    at.refuse = refusal(422, "Invalid")
    for _ in range(module.QUICK_TRIES):
        assert at.reconcile() == module.AGAIN_SECONDS
    assert at.pods.reconcile("shop/web-1").failed, "the queue waits longer and longer"
    assert any("affinity" in one["path"] for one in at.api.sent[-1].body)
    at.clock.advance(module.GATE_SECONDS)
    assert at.pods.reconcile("shop/web-1").failed
    assert not any("affinity" in one["path"] for one in at.api.sent[-1].body), "only what holds the pod is taken away"
    at.refuse = None
    at.reconcile()
    assert (at.gates, at.labels) == ([], {})
    assert at.pods._refused == {}


def test_a_conflict_is_tried_again_at_once_however_often() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.look_up("web")
    at.refuse = refusal(409, "Conflict")
    for _ in range(3 * module.QUICK_TRIES):
        assert at.pods.reconcile("shop/web-1").requeue_after == module.AGAIN_SECONDS


def test_nothing_is_remembered_of_a_refused_pod_that_is_gone() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.look_up("web")
    at.refuse = refusal(422, "Invalid")
    at.reconcile()
    at.pods.changed(IDENTITY, None)
    assert at.pods._refused == {}


@pytest.mark.parametrize("answer", [refusal(403, "Forbidden"), refusal(500)])
def test_a_write_that_is_refused_is_tried_again(answer: FakeAnswer) -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.look_up("web")
    at.refuse = answer
    assert at.pods.reconcile("shop/web-1").failed


def test_a_pod_that_is_gone_or_no_pod_is_let_be() -> None:
    assert Bench(None).seen().reconcile() is None
    assert Bench({"spec": 3, "metadata": {}}).seen().reconcile() is None
    at = Bench(pod("web"), web=AMD64).seen()
    at.pods.changed(IDENTITY, None)
    assert at.reconcile() is None
    assert at.api.sent == []


def test_the_mark_goes_where_the_setting_went() -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.settings = {}
    at.reconcile()
    assert (at.gates, at.labels) == ([], {})


def test_pods_are_held_only_while_somebody_can_let_them_go() -> None:
    at = Bench(pod("web"))
    at.pods._watch.synced.set()
    assert not at.pods.may_gate("shop"), "nobody has asked for the right yet"
    assert at.pods.reconcile("rights").requeue_after == module.RIGHTS_SECONDS
    assert at.pods.may_gate("shop")
    at.allowed = False
    at.pods.reconcile("rights")
    assert not at.pods.may_gate("shop")
    at.allowed = True
    at.pods.reconcile("rights")
    at.pods._watch.synced.clear()
    assert not at.pods.may_gate("shop"), "nobody would see them"


@pytest.mark.parametrize("status", [400, 403, 500], ids=["bad request", "denied", "no answer of its webhook"])
def test_no_more_pods_are_held_in_a_namespace_whose_policies_let_none_go(status: int) -> None:
    at = Bench(pod("web"), web=AMD64).seen()
    at.pods._watch.synced.set()
    at.pods.reconcile("rights")
    at.look_up("web")
    at.refuse = refusal(status, "Forbidden")
    at.pods.reconcile("shop/web-1")
    assert not at.pods.may_gate("shop")
    assert at.pods.may_gate("other")
    at.clock.advance(module.REFUSED_SECONDS)
    assert at.pods.may_gate("shop"), "perhaps it was mended"


def test_namespaces_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLOSED", 3)
    at = Bench(pod("web"), web=AMD64)
    at.refuse = refusal(403, "Forbidden")
    for number in range(6):
        at.pods.changed(None, PartialIdentity("web-1", f"n{number}", "u", "7"))
        at.pods.reconcile(f"n{number}/web-1")
        at.look_up("web")
        at.pods.reconcile(f"n{number}/web-1")
    assert list(at.pods._closed) == ["n3", "n4", "n5"]


def test_only_marked_pods_are_watched_and_nothing_but_their_names_is_kept() -> None:
    huge = pod("web")
    huge["metadata"]["annotations"] = {"a": "x" * 200_000}
    clock = FakeClock()
    api = FakeApi(
        respond=lambda sent: (
            watching(event("ADDED", huge), bookmark(9, end=True)) if "watch" in sent.query else refusal(500)
        ),
        clock=clock,
    )
    at = Bench(pod("web"))
    pods = MarkedPods(api, Client(api, clock), at.of, at.lookups, at.recorder, clock)
    pods._watch.step()
    assert api.sent[0].query["labelSelector"] == MARK
    assert list(pods._watch.store.list()) == [IDENTITY]
    eventually(lambda: len(pods.queue) == 1, "it is to be looked at")
