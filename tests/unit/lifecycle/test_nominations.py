"""What is written to pods: who is nominated, when that is taken back, and what others wrote that is left alone."""

import itertools
import threading
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.gangs import GroupSource, group_of
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod
from provisioner.lifecycle.nominations import (
    DEAR_FACTOR,
    MAX_WRITES,
    NO_NODES,
    QUIET_SECONDS,
    ROUNDS,
    SEEN_SECONDS,
    Nominations,
)
from provisioner.lifecycle.registration import PATIENCE_SECONDS
from provisioner.lifecycle.steering import MISLED, Steering
from provisioner.scheduling.nomination.nomination_rules import WITHDRAW_AFTER_SECONDS
from provisioner.scheduling.nomination.unaided import FEW
from provisioner.simulator.api_server import ServerChange
from provisioner.state.keys import NodeKey
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import WorkerPool, pool
from tests.support.cluster import World, bound, claim, node, pod
from tests.support.eventually import eventually
from tests.support.kube import Sent
from tests.support.podgroups import grouped
from tests.support.problems import shape
from tests.support.worldserver import WorldServer

PATH = "/status/nominatedNodeName"
SPREAD = TopologySpreadConstraint(
    max_skew=1,
    topology_key=names.ZONE_LABEL,
    when_unsatisfiable="DoNotSchedule",
    label_selector=LabelSelector(match_labels={"app": "web"}),
)

WISH = msgspec.structs.replace(SPREAD, when_unsatisfiable="ScheduleAnyway")
"""Whoever has one is nominated."""


class Stage:
    """Nominations over a world and its API server."""

    def __init__(self, workers: WorkerPool, *, mode: str = "true", world: World | None = None) -> None:
        self.world = world if world is not None else World()
        self.server = WorldServer(self.world)
        self.api = self.server.api
        self.steering = Steering(mode, self.world.clock)
        self.stopped = False
        self.clears = False  # whether kube-scheduler's cycle fails after each write
        self._heard, self.server.told = self.server.told, self._told
        self.scans = 0
        self._planned: dict[str, tuple[Pod, ...]] = {}
        self.nominations = self._made(workers)

    def _made(self, workers: WorkerPool) -> Nominations:
        return Nominations(
            self.world.cluster,
            self.server.client,
            workers,
            self.world.clock,
            pods=self._pods,
            steering=self.steering,
        )

    def restart(self, workers: WorkerPool) -> None:
        """Another process leads."""
        self.nominations = self._made(workers)
        self.nominations.begin()

    def existing_node(self, name: str, *pods: Pod, ready: bool = False, sets: tuple[LaunchSet, ...] = ()) -> None:
        """A node planned for these pods; unless `ready` it has joined but is not let in."""
        self.server.add(*(one for one in pods if self.world.cluster.pod(one.uid) is None))
        self._planned[name] = pods
        true = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED) if ready else (names.LAUNCHED,)
        made = claim(name, provider_id=f"kwok://{name}", true=true, pods=pods)
        made.metadata.annotations.update({names.LAUNCH_SET: encode_sets(sets)} if sets else {})
        self.world.cluster.claim_changed(None, made)
        closed = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}
        self.world.cluster.node_changed(None, node(name, taints=() if ready or not sets else (closed,)))

    def open(self, name: str) -> None:
        """Our taint falls; the claim does not say so yet."""
        self.world.cluster.node_changed(self.world.cluster.node(name), node(name))

    def let_in(self, name: str) -> None:
        known = self.world.cluster.claim(name)
        true = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
        changed = claim(name, provider_id=f"kwok://{name}", true=true, pods=self._planned[name])
        self.world.cluster.claim_changed(known, changed)

    def nominate(self, *nodes: str, patience: float = PATIENCE_SECONDS) -> None:
        pairs = []
        for name in nodes:
            known = self.world.cluster.claim(name)
            joined = self.world.cluster.node(name)
            assert known is not None
            assert joined is not None
            pairs.append((known, joined))
        kept = self.nominations.chosen(pairs, {claim.name for claim, _ in pairs})
        self.nominations.await_tried(pairs, kept, lambda: self.stopped)
        self.nominations.nominate(pairs, kept, patience)

    def review(self, seconds: float = 0.0) -> list[Sent]:
        """What is sent by a review so much later; all of it has been answered."""
        self.world.clock.advance(seconds)
        before = len(self.api.sent)
        self.nominations.review()
        settle(self.nominations)
        return self.api.sent[before:]

    @property
    def field(self) -> dict[str, str]:
        """Which pods the server has nominated, and to which Node."""
        pods = {one["metadata"]["name"]: one["status"].get("nominatedNodeName") for one in self.server.all("pods")}
        return {name: to for name, to in pods.items() if to}

    def write(self, name: str, value: str, *, told: bool = True) -> None:
        """Somebody else writes the field; the watch tells."""
        self.server.change("pods", name, {"status": {"nominatedNodeName": value or None}}, "default")
        if told:
            self.tell(name)

    def tell(self, name: str) -> None:
        """The watch tells what the API server has."""
        known, pod = self.world.cluster.pod(name), self.server.get("pods", name, "default")
        assert known is not None
        assert pod is not None
        to, version = pod["status"].get("nominatedNodeName", ""), pod["metadata"]["resourceVersion"]
        changed = msgspec.structs.replace(known, nominated_node_name=to, resource_version=version)
        for effect in self.world.cluster.pod_changed(known, changed):
            self.nominations.lost(effect.pod, effect.claim)  # type: ignore[union-attr]
        settle(self.nominations)

    def _told(self, change: ServerChange) -> None:
        self._heard(change)
        if self.clears and change.by is self.server:
            self.server.change("pods", change.name, {"status": {"nominatedNodeName": None}}, "default", self.server)

    def _pods(self) -> list[Pod]:
        self.scans += 1
        cluster = self.world.cluster
        return [*cluster.waiting(), *(one for view in cluster.snapshot().nodes for one in view.pods)]


def settle(nominations: Nominations) -> None:
    """Wait for what was submitted: the one worker has done it once it does this."""
    done: list[None] = []
    nominations._workers.submit(lambda: done.append(None))
    while not done:
        pass


def web(name: str, **more: Any) -> Pod:
    made = shape(labels={"app": "web"}, topology_spread_constraints=(SPREAD,))
    return pod(name, shape=made, labels=made.labels, **more)


def count(metric: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"dovetail_{metric}_total", labels) or 0.0


@pytest.fixture
def stage(workers: WorkerPool) -> Stage:
    return Stage(workers)


def gang(name: str) -> Pod:
    return pod(name, annotations={names.GANG: "train", names.GANG_MINIMUM: "2"})


PAIR = (LaunchSet(id="d1", group=group_of(gang("x")), nodes=2),)


@pytest.fixture
def pair(stage: Stage) -> Stage:
    """Two nodes of one gang have joined; on the first a single pod is planned, too."""
    stage.existing_node("a", gang("one"), pod("single"), sets=PAIR)
    stage.existing_node("b", gang("two"), sets=PAIR)
    return stage


# --- who is nominated ---


def test_pods_that_volcano_binds_are_not_nominated(stage: Stage) -> None:
    """Also if annotations of ours say their group; what it nominates itself is not taken back."""
    theirs = [grouped(pod(name), GroupSource.VOLCANO) for name in ("one", "two")]
    theirs[1] = grouped(theirs[1], GroupSource.ANNOTATIONS, minimum=1)
    stage.existing_node("a", *theirs, pod("single"))
    stage.nominate("a")
    assert stage.field == {"single": "a"}
    stage.write("one", "a")
    stage.restart(stage.nominations._workers)
    stage.let_in("a")
    assert [sent for sent in stage.review(600.0) if "/one/" in sent.path] == []


def test_pods_of_the_coscheduling_plugin_are_nominated_as_kube_scheduler_binds_them(stage: Stage) -> None:
    stage.existing_node("a", grouped(pod("one"), GroupSource.COSCHEDULING))
    stage.nominate("a")
    assert stage.field == {"one": "a"}


def test_of_pods_that_volcano_binds_nothing_is_learnt_about_the_extender(workers: WorkerPool) -> None:
    stage = Stage(workers, mode="auto")
    stage.steering.heard()
    stage.existing_node("a", grouped(pod("one"), GroupSource.VOLCANO), pod("single"))
    stage.nominate("a")
    assert stage.steering._watched == {"single": "default-scheduler"}


def test_pods_of_a_gang_are_not_nominated_while_a_node_of_it_is_missing(pair: Stage) -> None:
    pair.nominate("a")
    assert pair.field == {"single": "a"}
    pair.nominate("a", "b")
    assert pair.field == {"single": "a", "one": "a", "two": "b"}


def test_nodes_of_a_gang_that_were_let_in_before_are_not_missing(pair: Stage) -> None:
    pair.open("a")
    pair.nominate("b")
    assert pair.field == {"two": "b"}


def test_a_nomination_is_not_given_back_when_a_node_of_the_gang_has_gone(pair: Stage) -> None:
    pair.nominate("a", "b")
    pair.open("a")
    pair.open("b")
    pair.write("one", "")  # a cycle failed
    assert pair.field["one"] == "a"
    pair.world.cluster.claim_changed(pair.world.cluster.claim("b"), None)
    pair.write("one", "")
    assert "one" not in pair.field


def test_a_planned_pod_is_nominated_where_the_field_is_empty(stage: Stage) -> None:
    stage.existing_node("a", pod("one"))
    stage.nominate("a")
    assert [sent.body for sent in stage.api.sent] == [
        [
            {"op": "test", "path": "/metadata/uid", "value": "one"},
            {"op": "test", "path": "/spec/nodeName", "value": None},
            {"op": "test", "path": PATH, "value": None},
            {"op": "add", "path": PATH, "value": "a"},
        ]
    ]


def test_a_pod_with_a_hard_spread_and_one_that_it_counts_go_without(stage: Stage) -> None:
    counted = shape(labels={"app": "web"})
    before = (
        count("nominations_withheld", reason="carries_spread"),
        count("nominations_withheld", reason="counted_by_spread"),
    )
    stage.existing_node("a", pod("plain"), pod("counted", shape=counted, labels=counted.labels), web("spread"))
    stage.nominate("a")
    assert stage.field == {"plain": "a"}
    after = (
        count("nominations_withheld", reason="carries_spread"),
        count("nominations_withheld", reason="counted_by_spread"),
    )
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


def test_a_spread_of_a_pod_that_runs_counts_too(stage: Stage) -> None:
    counted = shape(labels={"app": "web"})
    stage.existing_node("old", ready=True)
    stage.world.add(bound(web("running"), "old"))
    stage.existing_node("a", *(pod(name, shape=counted, labels=counted.labels) for name in ("one", "two")))
    stage.nominate("a")
    assert stage.api.sent == []


def test_the_only_pod_of_a_hard_spread_on_its_node_is_nominated_until_another_is_nominated_beside_it(
    stage: Stage,
) -> None:
    nominated(stage, web("one"), pod("plain"))
    assert stage.field == {"one": "a", "plain": "a"}
    stage.write("one", "")  # a cycle failed
    assert stage.field["one"] == "a", "given back"
    late = web("late")
    stage.server.add(late)
    assert stage.review(1) == []
    stage.world.cluster.assign(NodeKey("a"), [late])
    assert stage.review(1) == [], "kube-scheduler does not know that it is planned there"
    stage.write("late", "a")  # by somebody else
    assert len(stage.review(1)) == 1
    assert stage.field == {"plain": "a", "late": "a"}


def test_a_nomination_that_a_failed_cycle_cleared_is_given_again_before_the_taint_falls(stage: Stage) -> None:
    stage.clears = True
    stage.existing_node("a", pod("one"))
    stage.nominate("a")
    assert len(stage.api.sent) == ROUNDS


def untried(name: str) -> Pod:
    """A pod that kube-scheduler has tried while there was no Node."""
    return msgspec.structs.replace(pod(name), scheduled_message=NO_NODES)


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [([pod("one")], QUIET_SECONDS[0]), ([untried("one")], QUIET_SECONDS[1]), ([untried(f"pod-{number}") for number in range(FEW + 1)], 0.0)],
    ids=["nothing has come of it for a moment", "it was not tried since a Node is there", "many"],
)  # fmt: skip
def test_nobody_is_nominated_before_kube_scheduler_has_tried_the_pods_but_for_many_and_not_for_ever(
    stage: Stage, pods: list[Pod], seconds: float
) -> None:
    stage.existing_node("a", *pods)
    began = stage.world.clock.monotonic()
    stage.nominate("a")
    assert {one.name for one in pods} == set(stage.field)
    assert stage.api.sent[0].at - began == pytest.approx(seconds, abs=1.5 * SEEN_SECONDS)


def test_whoever_is_stopped_does_not_wait_for_kube_scheduler(stage: Stage) -> None:
    stage.existing_node("a", untried("one"))
    stage.stopped = True
    began = stage.world.clock.monotonic()
    stage.nominate("a")
    assert stage.api.sent[0].at == began


def test_what_others_write_on_pods_is_not_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may write annotations again and again."""
    stage.existing_node("a", pod("one"))
    wait, versions = stage.world.clock.sleep, itertools.count()

    def sleep(seconds: float) -> None:
        wait(seconds)
        known = stage.world.cluster.pod("one")
        if known is not None:
            other = msgspec.structs.replace(known, annotations={"example.com/number": str(next(versions))})
            stage.world.cluster.pod_changed(known, other)

    monkeypatch.setattr(stage.world.clock, "sleep", sleep)
    began = stage.world.clock.monotonic()
    stage.nominate("a")
    assert stage.api.sent[0].at - began == pytest.approx(QUIET_SECONDS[0], abs=1.5 * SEEN_SECONDS)


def test_nobody_is_nominated_while_kube_scheduler_still_writes_to_the_pods(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.existing_node("a", pod("one"), untried("two"))
    rest, wait = [f"0/{nodes} nodes are available" for nodes in (1, 2, 3)], stage.world.clock.sleep

    def sleep(seconds: float) -> None:
        wait(seconds)
        known = stage.world.cluster.pod("two")
        if rest and known is not None:
            said = msgspec.structs.replace(known, scheduled_message=rest.pop(0))
            stage.world.cluster.pod_changed(known, said)

    monkeypatch.setattr(stage.world.clock, "sleep", sleep)
    began = stage.world.clock.monotonic()
    stage.nominate("a")
    assert stage.field == {"one": "a", "two": "a"}
    assert stage.api.sent[0].at - began >= 3 * SEEN_SECONDS + QUIET_SECONDS[0]
    assert stage.api.sent[0].at - began < QUIET_SECONDS[1], "as soon as they have been tried"


def test_a_nomination_that_the_watch_has_not_told_of_yet_is_not_written_again(stage: Stage) -> None:
    stage.server.tell = False
    stage.existing_node("a", pod("one"))
    stage.nominate("a")
    assert len(stage.api.sent) == 1


def test_a_nomination_of_preemption_stays(stage: Stage) -> None:
    stage.existing_node("a", pod("one"))
    stage.write("one", "elsewhere")
    stage.nominate("a")
    assert stage.api.sent == []


def test_preemption_that_was_first_is_not_overwritten_nor_taken_for_ours(stage: Stage) -> None:
    stage.existing_node("a", pod("one"), ready=True)
    stage.write("one", "elsewhere", told=False)
    stage.nominate("a")
    assert stage.field == {"one": "elsewhere"}
    stage.write("one", "a")
    assert stage.review() == stage.review(WITHDRAW_AFTER_SECONDS) == []


def test_a_pod_that_was_bound_before_the_watch_tells_is_not_nominated(stage: Stage) -> None:
    """API servers before 1.35 would take it, and the pod would keep it."""
    stage.existing_node("a", pod("one"))
    stage.server.change("pods", "one", {"spec": {"nodeName": "elsewhere"}}, "default")
    stage.nominate("a")
    assert stage.api.sent
    assert stage.field == {}
    assert stage.nominations._written == {}


def test_a_write_that_hangs_is_not_repeated_nor_forgotten_meanwhile() -> None:
    """Each round would wait for another one, and what arrives later would be nobody's."""
    may_go = threading.Event()

    def hang(_: Sent) -> None:
        assert may_go.wait(20)

    with pool(2) as workers:
        stage = Stage(workers)
        stage.server.intercept = hang
        stage.existing_node("a", pod("one"))
        stage.nominate("a", patience=0.1)
        stage.world.cluster.claim_changed(stage.world.cluster.claim("a"), None)
        assert len(stage.api.sent) == 1
        assert stage.review() == []
        may_go.set()
        eventually(lambda: stage.field, "it arrives")
    assert stage.nominations._written.keys() == {"one"}


def test_a_nomination_of_ours_to_where_the_pod_was_planned_before_is_replaced(stage: Stage) -> None:
    one = pod("one")
    stage.existing_node("a", one)
    stage.nominate("a")
    stage.world.cluster.claim_changed(stage.world.cluster.claim("a"), None)
    stage.existing_node("b", one)
    stage.nominate("b")
    assert stage.field == {"one": "b"}


def test_a_lost_nomination_is_given_back_and_not_for_ever(stage: Stage) -> None:
    stage.existing_node("a", pod("one"), ready=True)
    stage.nominate("a")
    for _ in range(2 * MAX_WRITES):
        stage.write("one", "")  # a cycle failed
    assert len(stage.api.sent) == MAX_WRITES


def test_a_nomination_that_is_lost_while_its_wave_is_let_in_is_given_back(stage: Stage) -> None:
    """The claim does not say yet that its Node is registered."""
    stage.existing_node("a", pod("one"))
    joined = stage.world.cluster.node("a")
    assert joined is not None
    tainted = node("a", taints=(msgspec.to_builtins(names.UNREGISTERED_TAINT),))
    stage.world.cluster.node_changed(joined, tainted)
    stage.nominate("a")
    stage.write("one", "")
    assert stage.field == {}, "kube-scheduler would only clear it again"
    stage.write("one", "a")
    stage.world.cluster.node_changed(tainted, joined)
    stage.write("one", "")
    assert stage.field["one"] == "a"


def test_a_lost_nomination_is_not_given_back_to_a_pod_that_is_planned_elsewhere_by_then(stage: Stage) -> None:
    stage.existing_node("a", pod("one"), ready=True)
    stage.nominate("a")
    one = stage.world.cluster.pod("one")
    assert one is not None
    sent = len(stage.api.sent)
    stage.world.cluster.claim_changed(stage.world.cluster.claim("a"), None)
    stage.nominations._give_back(one, "a", "a")
    assert len(stage.api.sent) == sent


def test_a_pod_that_was_not_nominated_by_us_is_not_nominated_when_preemption_is_over(stage: Stage) -> None:
    stage.existing_node("a", pod("one"), ready=True)
    stage.write("one", "elsewhere")
    stage.write("one", "")
    assert stage.api.sent == []


def test_where_the_api_server_fails_the_pod_goes_without(stage: Stage) -> None:
    stage.existing_node("a", pod("one"))
    stage.server.refuse["one"] = 500
    before = count("nominations", outcome="failed")
    stage.nominate("a")
    assert count("nominations", outcome="failed") > before


def test_nobody_is_nominated_where_that_is_turned_off_and_nothing_is_looked_at(workers: WorkerPool) -> None:
    stage = Stage(workers, mode="false")
    stage.existing_node("a", pod("one"))
    stage.nominate("a")
    assert (stage.api.sent, stage.scans) == ([], 0)


def test_pods_that_an_extender_places_are_evidence_but_for_those_with_a_hard_spread(workers: WorkerPool) -> None:
    stage = Stage(workers, mode="auto")
    stage.steering.heard()
    stage.existing_node("a", pod("plain"), web("spread"))
    stage.nominate("a")
    assert stage.api.sent == []
    assert stage.steering._watched.keys() == {"plain"}


def test_of_two_schedulers_the_pods_of_the_one_without_the_extender_are_nominated(workers: WorkerPool) -> None:
    stage = Stage(workers, mode="auto")
    stage.steering.heard()
    theirs = pod("theirs", shape=shape(topology_spread_constraints=(WISH,)))
    ours = msgspec.structs.replace(
        theirs, name="ours", uid="ours", shape=msgspec.structs.replace(theirs.shape, scheduler_name="ours")
    )
    for number in range(MISLED):
        stage.steering.left(theirs.shape.scheduler_name, [str(number)])
        stage.steering.settled(str(number), "absorbed")
    stage.existing_node("a", ours, theirs)
    stage.nominate("a")
    assert stage.field == {"theirs": "a"}
    assert stage.steering._watched == {"ours": "ours"}


# --- when it is taken back ---


def nominated(stage: Stage, *pods: Pod) -> None:
    stage.existing_node("a", *pods)
    stage.nominate("a")
    stage.let_in("a")
    assert stage.review() == []


def test_it_is_taken_back_ten_seconds_after_the_node_is_ready(stage: Stage) -> None:
    before = count("nominations_withdrawn", reason="not_bound")
    nominated(stage, pod("one"))
    assert stage.review(WITHDRAW_AFTER_SECONDS - 0.1) == []
    (sent,) = stage.review(0.1)
    assert sent.body == [
        {"op": "test", "path": "/metadata/uid", "value": "one"},
        {"op": "test", "path": "/spec/nodeName", "value": None},
        {"op": "test", "path": PATH, "value": "a"},
        {"op": "remove", "path": PATH},
    ]
    assert stage.field == {}
    assert count("nominations_withdrawn", reason="not_bound") == before + 1
    assert stage.review(WITHDRAW_AFTER_SECONDS) == []


def test_it_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    nominated(stage, pod("one"), pod("two"))
    with caplog.at_level("WARNING"):
        stage.review(WITHDRAW_AFTER_SECONDS)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "Withdrawing the nominations of pods that were not bound within 10 s of their Node becoming ready"
    )


def test_what_was_taken_back_is_not_written_again(stage: Stage) -> None:
    nominated(stage, pod("one"))
    stage.review(WITHDRAW_AFTER_SECONDS)
    stage.tell("one")
    stage.nominate("a")
    assert stage.field == {}


def test_a_node_that_is_not_ready_is_waited_for(stage: Stage) -> None:
    stage.existing_node("a", pod("one"))
    stage.nominate("a")
    assert stage.review(600) == []


def test_what_preemption_wrote_meanwhile_stays(stage: Stage) -> None:
    nominated(stage, pod("one"))
    stage.write("one", "elsewhere", told=False)
    before = count("nominations_withdrawn", reason="not_bound")
    (sent,) = stage.review(WITHDRAW_AFTER_SECONDS)
    assert sent.body[2] == {"op": "test", "path": PATH, "value": "a"}
    assert stage.field == {"one": "elsewhere"}
    assert count("nominations_withdrawn", reason="not_bound") == before
    assert stage.review(1) == [], "it is somebody else's"


def test_it_is_taken_back_once_however_late_the_watch_tells(stage: Stage) -> None:
    nominated(stage, pod("one"))
    stage.server.tell = False
    assert len(stage.review(WITHDRAW_AFTER_SECONDS)) == 1
    assert stage.review(1) == stage.review(1) == []


def test_a_pod_that_is_bound_or_gone_is_forgotten(stage: Stage) -> None:
    one, two = pod("one"), pod("two")
    nominated(stage, one, two)
    cluster = stage.world.cluster
    cluster.pod_changed(cluster.pod("one"), bound(one, "a"))
    cluster.pod_changed(cluster.pod("two"), None)
    assert stage.review(WITHDRAW_AFTER_SECONDS) == []
    assert stage.nominations._written == {}


def test_a_pod_that_is_planned_elsewhere_gets_its_room_there_at_once(stage: Stage) -> None:
    nominated(stage, pod("one"))
    before = count("nominations_withdrawn", reason="not_planned")
    stage.world.cluster.claim_changed(stage.world.cluster.claim("a"), None)
    assert len(stage.review(1)) == 1
    assert count("nominations_withdrawn", reason="not_planned") == before + 1
    stage.review(1)
    assert stage.nominations._written == {}


def test_a_pod_with_a_hard_spread_that_comes_later_frees_those_that_it_counts(stage: Stage) -> None:
    counted = shape(labels={"app": "web"})
    nominated(stage, *(pod(name, shape=counted, labels=counted.labels) for name in ("one", "two")))
    assert stage.field == {"one": "a", "two": "a"}
    stage.server.add(web("late"))
    assert len(stage.review(1)) == 2
    assert stage.field == {}


def test_an_api_server_that_fails_is_asked_again_ever_more_rarely(stage: Stage) -> None:
    nominated(stage, pod("one"))
    stage.server.refuse["one"] = 403
    assert len(stage.review(WITHDRAW_AFTER_SECONDS)) == 1
    assert sum(len(stage.review(1)) for _ in range(60)) == 5  # after 1, 2, 4, 8, 16 and 32 seconds
    stage.server.refuse.clear()
    sent = [one for _ in range(33) for one in stage.review(1)]
    assert len(sent) == 1
    assert stage.field == {}


# --- another leader ---


def test_a_new_leader_takes_back_what_the_last_one_left(stage: Stage, workers: WorkerPool) -> None:
    nominated(stage, pod("one"))
    stage.world.clock.advance(3600)
    stage.restart(workers)
    assert stage.review() == []
    assert len(stage.review(WITHDRAW_AFTER_SECONDS)) == 1
    assert stage.field == {}


def test_a_new_leader_that_does_not_nominate_does_so_too(stage: Stage, workers: WorkerPool) -> None:
    nominated(stage, pod("one"))
    stage.steering = Steering("false", stage.world.clock)
    stage.restart(workers)
    stage.review()
    assert len(stage.review(WITHDRAW_AFTER_SECONDS)) == 1


def test_a_new_leader_leaves_what_no_plan_of_ours_names(stage: Stage, workers: WorkerPool) -> None:
    """Preemption and binding nominate to our Nodes too."""
    stage.existing_node("a", pod("planned"), ready=True)
    stage.server.add(pod("stranger", owner="other"))
    stage.write("stranger", "a")
    stage.restart(workers)
    stage.review()
    assert stage.review(WITHDRAW_AFTER_SECONDS) == []


def test_a_new_leader_leaves_nominations_to_nodes_of_others(stage: Stage, workers: WorkerPool) -> None:
    stage.world.cluster.node_changed(None, node("theirs", provider_id="other://theirs"))
    stage.server.add(pod("one"))
    stage.write("one", "theirs")
    stage.restart(workers)
    stage.review()
    assert stage.review(WITHDRAW_AFTER_SECONDS) == []


# --- what it costs ---


def test_without_nominations_a_review_looks_at_nothing(stage: Stage) -> None:
    stage.review(1)
    assert stage.scans == 0


def test_a_policy_that_took_long_is_kept_for_longer(stage: Stage) -> None:
    nominated(stage, pod("one"))
    scanned = stage.nominations._pods

    def slowly() -> Any:
        stage.world.clock.advance(0.5)
        return scanned()

    stage.nominations._pods = slowly
    stage.review(1)
    before = stage.scans
    stage.review(1)
    stage.review(1)
    assert stage.scans == before
    stage.review(DEAR_FACTOR * 0.5)
    assert stage.scans == before + 1
