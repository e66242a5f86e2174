"""The verbs over a board with a clock that stands still."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from extender.answering import Answerer
from extender.app import create_app
from extender.board import MAX_OUTAGE_SECONDS, MAX_SILENCE_SECONDS, Board
from extender.plan import Member
from extender.protocol import MAX_BODY_BYTES
from provisioner.apis.core import Node
from provisioner.apis.reports import Reason, Report
from provisioner.support import metrics
from tests.support.clock import FakeClock
from tests.support.extender import World, entry, member


class Watch:
    """A reflector that is whatever the test says."""

    def __init__(self) -> None:
        self.synced = threading.Event()
        self.synced.set()
        self.error: Exception | None = None
        self.silence = 0.0

    def __repr__(self) -> str:
        return "the watch"

    def staleness(self) -> float:
        return self.silence


class Outbox:
    def __init__(self) -> None:
        self.reports: list[Report] = []

    def put(self, report: Report) -> None:
        self.reports.append(report)


class Bench:
    """An answerer whose table is a World's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.watch = Watch()
        self.board = Board(120.0, self.clock)
        self.board.depend_on([self.watch])
        self.world = World()
        self.world.now = self.clock.monotonic()
        self.world.table = self.board.table
        self.outbox = Outbox()
        self.answerer = Answerer(self.board, self.outbox)

    def filter(self, pod: Member, *names: str) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.answerer.filter(question(pod, *names)))
        assert reply["Error"] == ""
        assert reply["FailedNodes"] == {}
        return reply


@pytest.fixture
def bench() -> Bench:
    return Bench()


def wire(pod: Member) -> dict[str, Any]:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet" if pod.daemon else "ReplicaSet",
        "name": "o",
        "controller": True,
    }
    return {
        "metadata": {
            "name": pod.uid,
            "namespace": "ns",
            "uid": pod.uid,
            "ownerReferences": [{**owner, "uid": pod.owner}],
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{pod.requests['cpu']}m"}}}]},
        "status": {"phase": "Pending"},
    }


def question(pod: Member, *names: str) -> bytes:
    return json.dumps({"Pod": wire(pod), "Nodes": None, "NodeNames": list(names)}).encode()


STRANGER = member("x", owner="other", klass="other")


def full_plan(bench: Bench) -> None:
    bench.world.pods(member("a"))
    bench.world.planned_node("n1", entry("a"), cores=1)


def test_a_planned_pod_is_steered(bench: Bench) -> None:
    full_plan(bench)
    assert bench.filter(member("a"), "n0", "n1")["NodeNames"] == ["n1"]


def test_a_pod_that_no_watch_told_of_is_read_from_the_message(bench: Bench) -> None:
    full_plan(bench)
    reply = bench.filter(STRANGER, "n1", "n2")
    assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == (["n2"], {})
    daemon = member("ds", owner="ds", daemon=True)
    assert bench.filter(daemon, "n1", "n2")["NodeNames"] == ["n1", "n2"]


def test_a_pod_left_with_nothing_is_told_why_remembered_and_reported(bench: Bench) -> None:
    full_plan(bench)
    reply = bench.filter(STRANGER, "n1")
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == {"n1": "held for planned pods"}
    assert bench.outbox.reports == [Report(uid="x", node="n1", reason=Reason.HELD)]
    assert len(bench.board.refusals) == 1


def test_a_pod_that_waits_for_its_own_node_is_reported_as_emptied(bench: Bench) -> None:
    full_plan(bench)
    bench.world.pods(member("b"))
    bench.world.claim("c2", entry("b"))
    reply = bench.filter(member("b"), "n1")
    assert reply["FailedAndUnresolvableNodes"] == {"n1": "waits for its own place on c2"}
    assert bench.outbox.reports == [Report(uid="b", node="n1", reason=Reason.EMPTIED)]


def test_the_same_question_twice_has_the_same_answer(bench: Bench) -> None:
    full_plan(bench)
    for pod in (STRANGER, member("a")):
        for names in (("n1",), ("n1", "n2"), ("n3",)):
            first = bench.answerer.filter(question(pod, *names))
            assert bench.answerer.filter(question(pod, *names)) == first
            scores = bench.answerer.prioritize(question(pod, *names))
            assert bench.answerer.prioritize(question(pod, *names)) == scores


def test_prioritize_scores_the_planned_node(bench: Bench) -> None:
    full_plan(bench)
    assert json.loads(bench.answerer.prioritize(question(member("a"), "n0", "n1"))) == [
        {"Host": "n0", "Score": 0},
        {"Host": "n1", "Score": 10},
    ]
    assert json.loads(bench.answerer.prioritize(question(STRANGER, "n0", "n1"))) == []


def preemption(pod: Member, **victims: int) -> bytes:
    meta = {
        node: {"Pods": [{"UID": f"v{i}"} for i in range(count)], "NumPDBViolations": 0}
        for node, count in victims.items()
    }
    return json.dumps({"Pod": wire(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}).encode()


def test_preempt_keeps_victims_off_planned_room_and_reports(bench: Bench) -> None:
    full_plan(bench)
    reply = json.loads(bench.answerer.preempt(preemption(STRANGER, n1=1, n2=1, n3=0)))
    assert list(reply["NodeNameToMetaVictims"]) == ["n2"]
    assert bench.outbox.reports == [Report(uid="x", node="n1", reason=Reason.PREEMPTED)]


STALE = {
    "not synced": lambda bench: bench.watch.synced.clear(),
    "silent for too long": lambda bench: setattr(bench.watch, "silence", MAX_SILENCE_SECONDS + 1),
    "no watches at all": lambda bench: bench.board.depend_on([]),
}


@pytest.mark.parametrize("how", STALE.values(), ids=STALE)
def test_stale_data_lets_everything_pass(bench: Bench, how: Any) -> None:
    full_plan(bench)
    how(bench)
    assert bench.board.complaint()
    assert bench.filter(STRANGER, "n1")["NodeNames"] == ["n1"]
    assert bench.filter(member("a"), "n0", "n1")["NodeNames"] == ["n0", "n1"]
    assert json.loads(bench.answerer.prioritize(question(member("a"), "n1"))) == []
    kept = json.loads(bench.answerer.preempt(preemption(STRANGER, n1=1)))
    assert list(kept["NodeNameToMetaVictims"]) == ["n1"]


def test_a_short_interruption_is_bridged_and_a_long_one_is_not(bench: Bench) -> None:
    full_plan(bench)
    bench.watch.error = ConnectionError("cut")
    assert bench.filter(STRANGER, "n1")["NodeNames"] == []
    bench.clock.advance(MAX_OUTAGE_SECONDS + 0.1)
    assert bench.filter(STRANGER, "n1")["NodeNames"] == ["n1"]
    bench.watch.error = None
    assert bench.filter(STRANGER, "n1")["NodeNames"] == []
    bench.watch.error = ConnectionError("cut again")
    assert bench.filter(STRANGER, "n1")["NodeNames"] == []


def passed(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("dovetail_extender_passed_total", {"reason": reason}) or 0.0


def test_whatever_fails_inside_lets_everything_pass_and_is_counted(bench: Bench) -> None:
    full_plan(bench)
    before = passed("error")
    del bench.board.table._tallies  # an invariant that is broken for good
    assert bench.filter(STRANGER, "n1")["NodeNames"] == ["n1"]
    assert bench.filter(member("a"), "n0", "n1")["NodeNames"] == ["n0", "n1"]
    assert json.loads(bench.answerer.prioritize(question(member("a"), "n1"))) == []
    assert list(json.loads(bench.answerer.preempt(preemption(STRANGER, n1=1)))["NodeNameToMetaVictims"]) == ["n1"]
    assert passed("error") >= before + 3


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"Pod":{}}'])
def test_a_message_that_cannot_be_read_gets_an_error_in_the_reply(bench: Bench, body: bytes) -> None:
    reply = json.loads(bench.answerer.filter(body))
    assert reply["Error"]
    assert reply["NodeNames"] is None
    assert json.loads(bench.answerer.prioritize(body)) == []
    assert json.loads(bench.answerer.preempt(body)) == {"NodeNameToMetaVictims": {}}


def node(name: str) -> Node:
    from provisioner.apis.core import NodeStatus
    from provisioner.apis.meta import ObjectMeta

    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable={"cpu": "1", "pods": "110"}))


def test_an_unknown_name_is_waited_for_once_while_nodes_are_expected(bench: Bench) -> None:
    bench.world.pods(member("a"))
    bench.world.claim("c", entry("a"))
    outcome = "dovetail_extender_unknown_nodes_total"
    before = metrics.REGISTRY.get_sample_value(outcome, {"outcome": "passed"}) or 0.0
    for _ in range(3):
        assert bench.filter(STRANGER, "unknown")["NodeNames"] == ["unknown"]
    assert metrics.REGISTRY.get_sample_value(outcome, {"outcome": "passed"}) == before + 1


def test_a_node_that_appears_while_it_is_waited_for_ends_the_wait(bench: Bench) -> None:
    outcome = "dovetail_extender_unknown_nodes_total"
    before = metrics.REGISTRY.get_sample_value(outcome, {"outcome": "known"}) or 0.0
    board = bench.board
    with board.lock:  # the other thread gets in when we begin to wait
        arrival = threading.Thread(target=board.node_changed, args=(None, node("n9")))
        arrival.start()
        board.await_nodes(["n9"])
    arrival.join(5)
    assert metrics.REGISTRY.get_sample_value(outcome, {"outcome": "known"}) == before + 1


def test_a_plan_that_cannot_be_read_is_left_out_and_the_node_is_kept(bench: Bench) -> None:
    from provisioner.apis import names
    from provisioner.apis.meta import ObjectMeta

    before = metrics.REGISTRY.get_sample_value("dovetail_extender_bad_objects_total", {"kind": "Node"}) or 0.0
    bad = Node(metadata=ObjectMeta(name="n1", annotations={names.PLAN_ANNOTATION: "{"}))
    bench.board.node_changed(None, bad)
    bench.board.node_changed(bad, bad)
    assert bench.board.table.knows("n1")
    assert metrics.REGISTRY.get_sample_value("dovetail_extender_bad_objects_total", {"kind": "Node"}) == before + 1
    bench.board.node_changed(bad, None)
    assert not bench.board.table.knows("n1")


# --- over HTTP, without a socket ------------------------------------------------------------------------------------


@pytest.fixture
def http(bench: Bench) -> Iterator[Any]:
    with create_app(bench.answerer, bench.board.complaint, "/scheduler").test_client() as client:
        yield client


def test_the_routes_stand_under_the_prefix(bench: Bench, http: Any) -> None:
    full_plan(bench)
    answer = http.post("/scheduler/filter", data=question(member("a"), "n1", "n2"), content_type="application/json")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert json.loads(answer.data)["NodeNames"] == ["n1"]
    assert answer.headers["content-length"] == str(len(answer.data))
    assert json.loads(http.post("/scheduler/prioritize", data=question(STRANGER, "n1")).data) == []
    assert http.post("/scheduler/preempt", data=preemption(STRANGER, n2=1)).status_code == 200
    assert http.post("/filter", data=b"").status_code == 404
    assert http.get("/scheduler/filter").status_code == 405


def test_a_body_that_is_too_long_is_no_http_error(http: Any) -> None:
    answer = http.post("/scheduler/filter", data=b" " * (MAX_BODY_BYTES + 1))
    assert answer.status_code == 200
    assert "longer than" in json.loads(answer.data)["Error"]
    assert answer.headers["connection"] == "close"
    assert http.post("/scheduler/prioritize", data=b" " * (MAX_BODY_BYTES + 1)).data == b"[]"
    assert http.post("/scheduler/preempt", data=b" " * (MAX_BODY_BYTES + 1)).data == b'{"NodeNameToMetaVictims":{}}'


def test_health_and_readiness(bench: Bench, http: Any) -> None:
    assert http.get("/healthz").data == b"ok\n"
    assert http.get("/readyz").status_code == 200
    bench.watch.synced.clear()
    answer = http.get("/readyz")
    assert (answer.status_code, answer.data) == (503, b"the watch has not synced\n")
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize("prefix", ["scheduler", "/scheduler/", "/"])
def test_a_bad_prefix_is_refused(bench: Bench, prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        create_app(bench.answerer, bench.board.complaint, prefix)
