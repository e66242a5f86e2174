"""Each NodeOverlay says whether it is in force."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.meta import condition
from provisioner.apis.overlay import NodeOverlay
from provisioner.kube.client import Client
from provisioner.kube.store import Store
from provisioner.nodepools.overlay_controller import RECHECK_SECONDS, OverlayStatus
from provisioner.runtime.changes import Change, NodeOverlayChanged, NodePoolChanged, PodChanged
from provisioner.support.workers import DONE, ReconcileResult
from tests.support.cluster import pod, pool
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal
from tests.support.overlays import OverlayFleet, overlay


class Objects:
    """The watch of NodeOverlays."""

    def __init__(self) -> None:
        self.store: Store[NodeOverlay] = Store()


class Stage:
    """A controller over overlays that are stored and judged; what it writes comes back by the watch."""

    def __init__(self, *overlays: NodeOverlay, gate: bool = True) -> None:
        self.judged, self.objects = OverlayFleet(*overlays), Objects()
        for one in overlays:
            self.objects.store.put(one.metadata.name, one)
        self.answer: FakeAnswer | None = None
        self.sent: list[Sent] = []
        client = Client(FakeApi(respond=self._respond, clock=self.judged.clock), self.judged.clock)
        self.status = OverlayStatus(
            client, self.judged.overlays, self.judged.clock, self.objects.store if gate else None
        )

    def _respond(self, sent: Sent) -> FakeAnswer:
        self.sent.append(sent)
        if self.answer is not None:
            return self.answer
        name = sent.path.split("/")[-2]
        known = msgspec.to_builtins(self.get(name))
        self.objects.store.put(
            name, msgspec.convert({**known, "status": sent.body["status"]}, NodeOverlay, strict=False)
        )
        return ok({**known, "status": sent.body["status"]})

    def get(self, name: str) -> NodeOverlay:
        found = self.objects.store.get(name)
        assert found is not None
        return found

    def told(self, name: str, kind: str) -> tuple[str, str]:
        found = condition(self.get(name).status.conditions, kind)
        assert found is not None
        return found.status, found.reason

    def wanted(self, change: Change) -> int:
        """How many overlays are to be looked at after it."""
        return len(list(self.status.heard(change)))


def test_one_in_force_is_ready_and_is_written_once() -> None:
    stage = Stage(overlay("a", price="1"))
    assert stage.status.reconcile("a") == ReconcileResult(requeue_after=RECHECK_SECONDS)
    assert stage.status.reconcile("a") == ReconcileResult(requeue_after=RECHECK_SECONDS)
    assert stage.told("a", names.VALIDATION_SUCCEEDED) == ("True", "ValidationSucceeded")
    assert stage.told("a", names.READY)[0] == "True"
    assert [sent.path for sent in stage.sent] == ["/apis/karpenter.sh/v1alpha1/nodeoverlays/a/status"]


BAD = {
    "in conflict": ((overlay("a", price="1"), overlay("b", price="2")), "Conflict", 'NodeOverlay "b"'),
    "unreadable": ((overlay("a", price="much"),), "RuntimeValidation", "spec.price"),
}


@pytest.mark.parametrize(("overlays", "reason", "text"), BAD.values(), ids=BAD)
def test_one_that_is_not_in_force_says_why(overlays: tuple[NodeOverlay, ...], reason: str, text: str) -> None:
    stage = Stage(*overlays)
    stage.status.reconcile("a")
    assert stage.told("a", names.VALIDATION_SUCCEEDED) == ("False", reason)
    assert stage.told("a", names.READY)[0] == "False"
    found = condition(stage.get("a").status.conditions, names.VALIDATION_SUCCEEDED)
    assert found is not None
    assert text in found.message


def test_one_whose_conflict_ends_is_ready_again() -> None:
    other = overlay("b", price="2")
    stage = Stage(overlay("a", price="1"), other)
    stage.status.reconcile("a")
    stage.judged.overlays.changed(other, None)
    stage.status.reconcile("a")
    assert stage.told("a", names.READY)[0] == "True"


ANSWERS: dict[str, tuple[FakeAnswer, ReconcileResult]] = {
    "gone": (refusal(404, "NotFound"), DONE),
    "refused": (refusal(403, "Forbidden"), ReconcileResult(failed=True)),
}


@pytest.mark.parametrize(("answer", "want"), ANSWERS.values(), ids=ANSWERS)
def test_a_status_that_cannot_be_written(answer: FakeAnswer, want: ReconcileResult) -> None:
    stage = Stage(overlay("a", price="1"))
    stage.answer = answer
    assert stage.status.reconcile("a") == want
    assert stage.status.reconcile("missing") == DONE


def test_events_bring_all_overlays_back() -> None:
    first, second = overlay("a", price="1"), overlay("b", price="2")
    stage = Stage(first, second)
    changes: dict[str, tuple[Change, int]] = {
        "a new overlay": (NodeOverlayChanged(None, first), 2),
        "another spec": (NodeOverlayChanged(first, overlay("a", price="3")), 2),
        "one that is gone": (NodeOverlayChanged(first, None), 2),
        "a status alone": (NodeOverlayChanged(first, first), 1),
        "a new pool": (NodePoolChanged(None, pool()), 2),
        "the same pool": (NodePoolChanged(pool(), pool()), 0),
        "another pool": (NodePoolChanged(pool(), pool(limits={"cpu": "1"})), 2),
        "a pod": (PodChanged(None, pod("p")), 0),
    }
    for what, (change, count) in changes.items():
        assert stage.wanted(change) == count, what


def test_without_the_gate_nothing_is_said() -> None:
    stage = Stage(overlay("a", price="1"), gate=False)
    assert stage.wanted(NodeOverlayChanged(None, stage.get("a"))) == 0
    assert stage.status.reconcile("a") == DONE
    assert stage.sent == []
