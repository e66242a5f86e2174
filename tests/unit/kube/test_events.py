import threading

import msgspec
import pytest

from provisioner.apis.core import ObjectReference
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from tests.support.clock import FakeClock
from tests.support.kube import FakeApi, Script, Sent, ok, refusal

POD = ObjectReference(api_version="v1", kind="Pod", name="p", namespace="ns", uid="u1")
NODE = ObjectReference(api_version="v1", kind="Node", name="n", uid="u2")


class Server:
    """Takes events; `fail` is answered once instead, `gate` holds requests up."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.fail: Script | None = None
        self.asked = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def respond(self, sent: Sent) -> Script:
        self.asked.set()
        assert self.gate.wait(5)
        if self.fail is not None:
            failure, self.fail = self.fail, None
            return failure
        self.sent.append(sent)
        return ok({"metadata": {"name": "x"}}, 201)

    def said(self) -> list[tuple[str, str]]:
        return [(sent.method, str(sent.body.get("message") or sent.body.get("count"))) for sent in self.sent]


def recorder() -> tuple[Recorder, Server, FakeClock]:
    clock, server = FakeClock(), Server()
    return (
        Recorder(Client(FakeApi(respond=server.respond, clock=clock), clock), "karpenter", clock),
        server,
        clock,
    )


def test_an_event_is_written_as_the_api_has_it() -> None:
    events, server, _ = recorder()
    events.publish(POD, "Warning", "FailedScheduling", "no room")
    assert events.flush()
    sent = server.sent[0]
    assert (sent.method, sent.path) == ("POST", "/api/v1/namespaces/ns/events")
    name = sent.body["metadata"].pop("name")
    assert name.startswith("p.")
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "ns", "uid": "u1"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no room",
        "source": {"component": "karpenter"},
        "reportingComponent": "karpenter",
        "reportingInstance": "",
        "firstTimestamp": "2026-11-21T12:00:00Z",
        "lastTimestamp": "2026-11-21T12:00:00Z",
        "count": 1,
    }
    events.stop()


def test_an_event_about_a_cluster_wide_object_lives_in_default() -> None:
    events, server, _ = recorder()
    events.publish(NODE, "Normal", "DisruptionBlocked", "pdb")
    events.flush()
    assert server.sent[0].path == "/api/v1/namespaces/default/events"
    events.stop()


def test_the_same_is_not_said_twice_within_its_time() -> None:
    events, server, clock = recorder()
    for wait in (0, 119, 0.5, 1):
        clock.advance(wait)
        events.publish(POD, "Normal", "Evicted", "bye")
    events.flush()
    assert server.said() == [("POST", "bye"), ("PATCH", "2")]
    assert server.sent[1].body == {"count": 2, "lastTimestamp": "2026-11-21T12:02:00Z"}
    assert events.suppressed == 2
    events.stop()


@pytest.mark.parametrize("reason", ["DisruptionBlocked", "NodeRepairBlocked", "Unconsolidatable"])
def test_why_a_node_is_left_alone_is_said_once_in_a_quarter_of_an_hour(reason: str) -> None:
    events, server, clock = recorder()
    for wait in (0, 120, 779.5, 0.5):
        clock.advance(wait)
        events.publish(NODE, "Normal", reason, "pdb")
    events.flush()
    assert server.said() == [("POST", "pdb"), ("PATCH", "2")]
    assert events.suppressed == 2
    events.stop()


def test_what_counts_as_the_same() -> None:
    events, server, _ = recorder()
    events.publish(POD, "Normal", "A", "one")
    events.publish(POD, "Normal", "A", "two")
    events.publish(NODE, "Normal", "A", "one")
    events.publish(POD, "Normal", "B", "first", ("key",))
    events.publish(NODE, "Normal", "B", "second", ("key",))
    events.publish(POD, "Normal", "C", "always")
    events.publish(POD, "Normal", "C", "always", ttl=0)
    events.flush()
    assert server.said() == [
        ("POST", "one"),
        ("POST", "two"),
        ("POST", "one"),
        ("POST", "first"),
        ("POST", "always"),
        ("PATCH", "2"),
    ]
    events.stop()


def test_nominations_are_limited_to_ten_at_once_and_five_a_second() -> None:
    events, server, clock = recorder()
    for number in range(20):
        events.publish(POD, "Normal", "Nominated", f"{number}", (str(number),))
    clock.advance(1)
    for number in range(20, 40):
        events.publish(POD, "Normal", "Nominated", f"{number}", (str(number),))
    events.flush()
    assert [said for _, said in server.said()] == [*map(str, range(10)), *map(str, range(20, 25))]
    events.stop()


def test_ten_thousand_pods_that_wait_for_capacity_cost_five_events_a_second_and_none_of_those_of_nodeclaims() -> None:
    events, server, clock = recorder()
    pods = [msgspec.structs.replace(POD, name=f"p{number}", uid=f"u{number}") for number in range(10_000)]
    claim = ObjectReference(api_version="karpenter.sh/v1", kind="NodeClaim", name="c", uid="c")
    for _ in range(10):
        for pod in pods:
            events.publish(pod, "Warning", "InsufficientCapacityError", "none", (pod.uid,), ttl=300.0)
        clock.advance(1)
    events.publish(claim, "Warning", "InsufficientCapacityError", "claim")
    events.flush()
    assert [said for _, said in server.said()] == [*["none"] * (10 + 9 * 5), "claim"]
    events.stop()


def test_an_event_that_the_server_forgot_is_made_anew() -> None:
    events, server, clock = recorder()
    events.publish(POD, "Normal", "A", "one")
    events.flush()
    clock.advance(3600)
    server.fail = refusal(404)
    events.publish(POD, "Normal", "A", "one")
    events.flush()
    assert server.said() == [("POST", "one"), ("POST", "one")]
    events.stop()


def test_a_full_queue_drops_the_oldest_and_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.kube.events.QUEUE_SIZE", 3)
    events, server, _ = recorder()
    server.gate.clear()
    events.publish(POD, "Normal", "A", "under way")
    assert server.asked.wait(5)
    for number in range(5):
        events.publish(POD, "Normal", "A", f"{number}")
    server.gate.set()
    events.flush()
    assert [said for _, said in server.said()] == ["under way", "2", "3", "4"]
    assert events.dropped == 2
    events.stop()


def test_an_event_that_waits_for_the_server_tells_when_it_happened() -> None:
    events, server, clock = recorder()
    server.gate.clear()
    events.publish(POD, "Normal", "Evicted", "first")
    assert server.asked.wait(5)
    events.publish(NODE, "Normal", "DisruptionBlocked", "second")
    clock.advance(60)
    events.publish(POD, "Normal", "Evicted", "first", ttl=0)
    clock.advance(60)
    server.gate.set()
    events.flush()
    first, second, again = [sent.body for sent in server.sent]
    assert (first["firstTimestamp"], first["lastTimestamp"]) == ("2026-11-21T12:00:00Z",) * 2
    assert (second["firstTimestamp"], second["lastTimestamp"]) == ("2026-11-21T12:00:00Z",) * 2
    assert again == {"count": 2, "lastTimestamp": "2026-11-21T12:01:00Z"}
    events.stop()


def test_a_refused_event_is_counted_and_the_next_one_goes() -> None:
    events, server, _ = recorder()
    server.fail = refusal(403)
    events.publish(POD, "Normal", "A", "refused")
    events.flush()
    events.publish(POD, "Normal", "A", "fine")
    events.flush()
    assert (server.said(), events.dropped) == ([("POST", "fine")], 1)
    events.stop()


def test_stop_writes_what_waits_and_hears_nothing_more() -> None:
    events, server, _ = recorder()
    server.gate.clear()
    for number in range(3):
        events.publish(POD, "Normal", "A", f"{number}")
    server.gate.set()
    events.stop()
    events.publish(POD, "Normal", "A", "late")
    assert [said for _, said in server.said()] == ["0", "1", "2"]


def test_a_long_message_and_a_long_name_are_cut() -> None:
    events, server, _ = recorder()
    events.publish(ObjectReference(kind="Pod", name="x" * 253, namespace="ns"), "Normal", "A", "y" * 5000)
    events.flush()
    assert len(server.sent[0].body["message"]) == 1024
    assert len(server.sent[0].body["metadata"]["name"]) <= 253
    events.stop()
