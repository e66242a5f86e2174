"""A disruption from its decision to its end: what spares a node, what calls it off, and that no call holds up another."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import Pod
from provisioner.disruption.commands.book import SPARED_SECONDS
from provisioner.disruption.commands.queue import GIVE_UP_AFTER
from provisioner.disruption.controller import METHODS, PAUSE_MOST_SECONDS
from provisioner.disruption.view import VALIDATION
from provisioner.state.keys import NodeKey
from provisioner.support.metrics import REGISTRY
from tests.support.clock import NOON
from tests.support.cluster import pod
from tests.support.disrupting import DisruptedNodes, Make
from tests.support.eventually import eventually
from tests.support.kube import Sent

PROTECTED = {names.DO_NOT_DISRUPT: "true"}
DRIFT = tuple(one for one in METHODS if one.name == "drift")


def test_an_empty_node_goes_after_a_look_at_the_api_server(stages: Make) -> None:
    stage = stages()
    stage.run()
    assert stage.goes()
    lists = [sent.path for sent in stage.server.api.sent if sent.method == "GET"]
    claim = "/apis/karpenter.sh/v1/nodeclaims/a"
    assert lists == [claim, "/api/v1/nodes", "/api/v1/nodes/a", "/api/v1/pods"]
    order = [f"{sent.method} {sent.path.rpartition('/')[0]}" for sent in stage.server.api.sent]
    assert order.index("PATCH /api/v1/nodes") < order.index("GET /api/v1")


def test_whoever_asks_why_sees_what_the_next_pass_sees_and_changes_nothing(stages: Make) -> None:
    stage = stages()
    stage.disruption.run_once()
    stage.settle()  # what the pass tells the node is no doing of who asks
    done = list(stage.server.done)
    stage.world.clock.advance(2)
    snapshot = stage.world.cluster.snapshot()
    view = stage.disruption.view(snapshot, first=frozenset({"a"}), expired=lambda: True)
    assert (dict(view.empty_for), set(view.restless)) == ({"a": timedelta(seconds=2)}, {"a"})
    assert view.first == frozenset({"a"})
    assert view.expired()
    assert view.prepared is stage.disruption.worlds.at(snapshot), "no second world is kept"
    assert stage.server.done == done


def test_a_pass_that_fails_is_not_repeated_at_once(stages: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails late would take all of a core; a fault of ours does not heal within a second."""
    stage = stages()
    monkeypatch.setattr(stage.world.cluster, "snapshot", lambda: 1 / 0)
    assert stage.disruption.pollers[0].once() == PAUSE_MOST_SECONDS


def bind(**changes: Any) -> Callable[[DisruptedNodes], None]:
    return lambda stage: stage.server.bind("web", "a", **changes)


def daemon(**changes: Any) -> Callable[[DisruptedNodes], None]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    return bind(metadata__ownerReferences=[owner], **changes)


def refuse(what: str, status: int) -> Callable[[DisruptedNodes], None]:
    def put(stage: DisruptedNodes) -> None:
        stage.server.refuse[what] = status

    return put


def protect_unseen(stage: DisruptedNodes) -> None:
    stage.server.objects["nodes"]["a"]["metadata"]["annotations"] = dict(PROTECTED)


SPARED: dict[str, Callable[[DisruptedNodes], None]] = {
    "a pod that the caches do not know": bind(),
    "a pod that cannot be decoded": bind(spec__containers=7),
    "a daemon that may not be disrupted": daemon(metadata__annotations=PROTECTED),
    "a daemon that may not be disrupted for an hour": daemon(
        metadata__annotations={names.DO_NOT_DISRUPT: "1h"}, status={"phase": "Running", "startTime": NOON.isoformat()}
    ),
    "a Node that was protected meanwhile": protect_unseen,
}


@pytest.mark.parametrize("put", SPARED.values(), ids=SPARED)
def test_a_node_that_is_not_empty_after_all_is_spared_and_opened_again(
    stages: Make, put: Callable[[DisruptedNodes], None]
) -> None:
    stage = stages()
    put(stage)
    stage.run()
    assert not stage.goes()
    stage.disruption.run_once()
    stage.settle()
    assert stage.taints() == []
    assert condition(stage.server.claim("a").status.conditions, names.DISRUPTION_REASON) is None
    tried = stage.server.done.count("PATCH nodes/a")
    stage.run(SPARED_SECONDS / 3)
    assert stage.server.done.count("PATCH nodes/a") == tried, "it is tried again and again on the same old caches"


def test_nothing_is_planned_onto_a_node_from_the_moment_at_which_a_command_marks_it(stages: Make) -> None:
    stage, one, hangs = stages(), pod("late"), threading.Event()
    stage.world.add(one)
    hang_at(stage, "/apis/karpenter.sh/v1/nodeclaims/a", hangs)  # the record is not written yet
    stage.disruption.run_once()
    stage.world.clock.advance(VALIDATION.total_seconds())
    stage.disruption.run_once()
    assert stage.world.cluster.assign(NodeKey("a"), (one,)) == [one]
    hangs.set()
    stage.settle()
    assert stage.goes()


def test_a_daemon_without_protection_spares_nothing(stages: Make) -> None:
    stage = stages()
    daemon()(stage)
    stage.run()
    assert stage.goes()


def test_a_list_that_fails_is_asked_for_again_and_then_given_up(stages: Make) -> None:
    stage = stages()
    stage.server.refuse["pods"] = 403
    stage.run()
    assert stage.taints() == [names.DISRUPTED_TAINT.key]
    for _ in range(1, GIVE_UP_AFTER):
        assert stage.commands.reconcile("a").failed
        stage.commands.queue._failures["a"] = stage.commands.queue.failures("a") + 1
    assert not stage.commands.reconcile("a").failed
    stage.settle()
    assert (stage.goes(), stage.taints()) == (False, [])


def test_nothing_is_disrupted_nor_healed_while_a_watch_is_behind(stages: Make) -> None:
    stage = stages("a", "b")
    stage.server.taints.close(stage.server.node("b"))
    stage.behind = "the watch of pods received nothing for 80 s"
    stage.run(60)
    assert stage.server.done == ["PATCH nodes/b"]
    stage.behind = ""
    stage.disruption.run_once()
    stage.settle()
    assert stage.taints("b") == []
    assert not stage.goes(), "what happened meanwhile was not seen: it must be seen empty anew"
    stage.run()
    assert stage.goes()


def test_a_command_that_was_decided_before_the_watch_fell_behind_is_called_off(stages: Make) -> None:
    stage = stages()
    stage.commands.queue.stop()  # its thread would be as quick as this test
    stage.run()
    assert stage.world.cluster.command_held_by("a")
    before = list(stage.server.done)
    stage.behind = "the watch of pods received nothing for 80 s"
    assert stage.commands.reconcile("a").failed is False
    stage.settle()
    assert stage.server.done == before, "it writes nothing"
    assert not stage.world.cluster.command_held_by("a")


def test_a_command_that_no_snapshot_shows_yet_counts_against_the_budget(stages: Make) -> None:
    stage = stages("a", "b", "c", budget="1")
    stage.server.tell = False  # the watch lags
    stage.run()
    for _ in range(5):
        stage.disruption.run_once()
    stage.settle()
    assert sorted(name for name in "abc" if stage.goes(name)) == ["a"]


def hang_at(stage: DisruptedNodes, path: str, may_go: threading.Event) -> threading.Event:
    """Requests for this path get no answer until the test allows it; set once one hangs."""
    hangs = threading.Event()

    def hang(sent: Sent) -> None:
        if sent.path == path and sent.method == "PATCH":
            hangs.set()
            assert may_go.wait(20)

    stage.server.intercept = hang
    return hangs


def test_one_call_that_hangs_holds_up_no_other_node(stages: Make) -> None:
    stage, may_go = stages("a", "b"), threading.Event()
    hangs = hang_at(stage, "/api/v1/nodes/a", may_go)
    stage.disruption.run_once()
    stage.world.clock.advance(VALIDATION.total_seconds())
    stage.disruption.run_once()
    assert hangs.wait(10)
    eventually(lambda: stage.goes("b"), "the other node goes", 10.0, 0.01)
    stage.disruption.run_once()
    may_go.set()
    eventually(stage.goes, "and in the end this one too", 10.0, 0.01)


def failures(queue: str) -> float:
    return REGISTRY.get_sample_value("controller_runtime_reconcile_errors_total", {"controller": queue}) or 0.0


def leave_tainted(stage: DisruptedNodes) -> None:
    stage.server.taints.close(stage.server.node("a"))


FAILING: dict[str, tuple[str, Callable[[DisruptedNodes], None]]] = {
    "healing": ("disruption-heal", leave_tainted),
    "telling": ("disruption-status", lambda _: None),
}


@pytest.mark.parametrize(("queue", "put"), FAILING.values(), ids=FAILING)
def test_what_fails_is_counted_and_tried_again_with_back_off(
    stages: Make, queue: str, put: Callable[[DisruptedNodes], None], caplog: pytest.LogCaptureFixture
) -> None:
    stage = stages()
    put(stage)
    stage.server.refuse["a"] = 403
    before = failures(queue)
    for _ in range(20):
        stage.disruption.run_once()
    stage.settle()
    assert 1 <= failures(queue) - before < 5, "it is tried at every one of the 20 passes"
    assert [record.levelname for record in caplog.records if record.message.startswith("Failed to ")] != []
    del stage.server.refuse["a"]
    stage.world.clock.advance(10)
    eventually(lambda: stage.server.done != [], "it is tried again", 10.0, 0.01)


def test_a_node_whose_pods_fit_nowhere_is_told_so_once_however_many_other_nodes_come(stages: Make) -> None:
    stage = stages("b", after="Never", methods=DRIFT)
    stage.drifted("a", pod("web", cpu="9000", ready=True))
    for name in ("c", "d"):
        stage.run(60.0)
        stage.put(name)
    told = zip(stage.server.recorder.events, stage.server.recorder.messages, stage.server.recorder.dedupes, strict=True)
    of_node = [
        (message, same) for event, message, same in told if event[0] == "Node" and "not all pods would" in message
    ]
    texts, sames = ({one[number] for one in of_node} for number in (0, 1))
    assert len(texts) > 1, "its text counts nodes"
    assert len(sames) == 1
    assert sames != {()}


def test_a_time_of_a_clock_that_was_fast_is_put_right(stages: Make) -> None:
    stage, one = stages(), pod("web", node="a")
    wire = stage.server.objects["nodeclaims"]["a"]
    wire["status"]["lastPodEventTime"] = (NOON + timedelta(hours=1)).isoformat()
    stage.server.put(stage.server.claim("a"))
    bound: Pod = one
    stage.world.add(bound)
    stage.world.clock.advance(6)
    stage.disruption.run_once()
    stage.settle()
    assert stage.server.claim("a").status.last_pod_event_time == NOON


def test_consolidatable_is_told_and_taken_back(stages: Make) -> None:
    stage = stages()
    stage.disruption.run_once()
    stage.settle()
    assert is_true(stage.server.claim("a").status.conditions, names.CONSOLIDATABLE)


def test_a_limit_over_all_pools_that_leaves_none_is_named_and_no_budget_is_blamed(stages: Make) -> None:
    stage = stages("a", "b", most=1)
    stage.ledger.seize("b")  # it is going
    stage.run()
    (text,) = set(stage.server.recorder.said("DisruptionBlocked"))
    assert text == (
        "No allowed disruptions for disruption reason Empty because --max-disrupting-nodes is 1, "
        "and 1 node is being disrupted or not Ready"
    )
    assert not stage.goes("a")


def test_gauges_have_the_values_and_labels_of_karpenter(stages: Make) -> None:
    """What a budget allows at once, of which dashboards subtract what consumes it; reasons of eligible nodes are in lower case."""
    stage = stages("a", "b", "c", budget="2", methods=METHODS)
    stage.put("d", annotations={names.DO_NOT_DISRUPT: "true"})
    stage.ledger.seize("b")
    stage.run()
    labels = {"nodepool": "general", "reason": "empty"}
    allowed = REGISTRY.get_sample_value("karpenter_nodepools_allowed_disruptions", labels)
    consuming = REGISTRY.get_sample_value("karpenter_nodepools_nodes_consuming_budgets", labels)
    assert (allowed, consuming) == (2, 1)
    eligible = "karpenter_voluntary_disruption_eligible_nodes"
    assert REGISTRY.get_sample_value(eligible, {"reason": "empty"}) == 3
    assert REGISTRY.get_sample_value(eligible, {"reason": "drifted"}) == 0
    assert REGISTRY.get_sample_value(eligible, {"reason": "Empty"}) is None
