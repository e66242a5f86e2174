"""One wave of registrations: what is sent, and for whom nothing is sent."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node, TopologySpreadConstraint
from provisioner.apis.gangs import group_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod
from provisioner.lifecycle import registration
from provisioner.lifecycle.nominations import Nominations
from provisioner.lifecycle.registration import (
    BOUND_SECONDS,
    COMPANION_SECONDS,
    GANG_LONGEST_SECONDS,
    PATIENCE_SECONDS,
    RETRY_BASE_SECONDS,
    RETRY_CAP_SECONDS,
    WAVE_SECONDS,
    Registrar,
)
from provisioner.lifecycle.steering import Steering
from provisioner.scheduling.nomination import unaided
from provisioner.state.keys import NodeKey
from provisioner.state.misses import TOGETHER_SECONDS
from provisioner.support.workers import WorkerPool, pool
from tests.support.cluster import World, bound, claim, node, plan_text, pod
from tests.support.eventually import eventually
from tests.support.kube import Sent
from tests.support.problems import shape
from tests.support.worldserver import WorldServer

SPREAD = shape(
    topology_spread_constraints=(
        TopologySpreadConstraint(
            max_skew=1,
            topology_key=names.ZONE_LABEL,
            when_unsatisfiable="DoNotSchedule",
            label_selector=LabelSelector(),
        ),
    )
)
UNREGISTERED = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}


class Stage:
    """A registrar over a world and an API server that takes everything; called in this thread, wave by wave."""

    def __init__(
        self,
        workers: WorkerPool,
        *,
        nominate: str = "true",
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.api = self.server.api
        self.server.intercept = self._before
        self.again: list[str] = []
        self.healthy: list[tuple[str, bool]] = []
        self.hangs: dict[str, threading.Event] = {}
        self.ending: tuple[str, ...] = ()  # claims that are deleted while pods are nominated
        self.meanwhile: dict[str, Callable[[], None]] = {}  # what happens, once, when a request to a path is under way
        self.registrar = Registrar(
            self.world.cluster,
            self.server.client,
            self.server.writer,
            self.server.recorder,
            workers,
            self.world.clock,
            nominations=Nominations(
                self.world.cluster,
                self.server.client,
                workers,
                self.world.clock,
                pods=self.world.cluster.waiting,
                steering=Steering(nominate, self.world.clock),
            ),
            again=self.again.append,
            health=lambda name, good: self.healthy.append((name, good)),
            patience=patience,
        )

    def joined(
        self,
        name: str,
        *,
        ready: bool = True,
        spread: bool = False,
        plain: bool | None = None,
        tainted: bool = True,
        more: tuple[Pod, ...] = (),
        gang: str = "",
    ) -> None:
        """A launched node whose Node, still with our taint, is planned for a pod named after it, or for two of one spread, or for all three, and for `more`.

        The pod named after it may be of a gang for which this node and another one were launched.
        """
        spreads = [pod(f"{which}-pod-of-{name}", shape=SPREAD) for which in ("one", "other")]
        notes = {names.GANG: gang, names.GANG_MINIMUM: "2"} if gang else {}
        mine = [pod(f"pod-of-{name}", namespace="other" if spread or gang else "default", annotations=notes)]
        pods = [*(spreads if spread else ()), *(mine if plain or (plain is None and not spread) else ()), *more]
        self.server.add(*pods)
        made = claim(name, provider_id=f"kwok://{name}", true=(names.LAUNCHED,), pods=tuple(pods))
        sets = [LaunchSet(id=gang, group=group_of(mine[0]), nodes=2)] if gang else []
        made.metadata.annotations.update({names.LAUNCH_SET: encode_sets(sets)} if gang else {})
        self.server.put(made)
        self.server.put(node(name, taints=(UNREGISTERED,) if tainted else (), ready=ready))

    def ready(self, name: str) -> None:
        """Its Node, which has joined, becomes ready."""
        self.server.put(node(name, taints=(UNREGISTERED,)))

    def closed(self) -> list[str]:
        """Claims of plans that wait for nothing more, in order."""
        now = self.world.clock.monotonic()
        return sorted(
            name for plan in self.registrar._plans() if self.registrar._closes_at(plan) <= now for name in plan
        )

    def wave(self, *claims: str) -> list[str]:
        """What a wave of these claims sends, as "METHOD path"."""
        before = len(self.api.sent)
        self.registrar._do(list(claims))
        return [f"{sent.method} {sent.path}" for sent in self.api.sent[before:]]

    def _before(self, sent: Sent) -> None:
        if (may_go := self.hangs.get(sent.path.split("/")[-1])) is not None:
            assert may_go.wait(20)
        for name in self.ending if "/pods/" in sent.path else ():
            self.server.remove("nodeclaims", name)
        for path, happens in [*self.meanwhile.items()]:
            if sent.path.endswith(path):
                del self.meanwhile[path]
                happens()


def test_all_pods_are_nominated_before_the_first_taint_falls_and_all_taints_fall_before_a_claim_says_so(
    workers: WorkerPool,
) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.joined("b")
    assert stage.wave("a", "b") == [
        "PATCH /api/v1/namespaces/default/pods/pod-of-a/status",
        "PATCH /api/v1/namespaces/default/pods/pod-of-b/status",
        "PATCH /api/v1/nodes/a",
        "PATCH /api/v1/nodes/b",
        "PATCH /apis/karpenter.sh/v1/nodeclaims/a/status",
        "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status",
    ]
    assert stage.healthy == [("general", True), ("general", True)]


@pytest.mark.parametrize("tainted", [True, False])
def test_a_node_that_joined_without_our_taint_is_let_in_and_its_claim_says_so(
    workers: WorkerPool, tainted: bool
) -> None:
    stage = Stage(workers)
    stage.joined("a", tainted=tainted)
    stage.wave("a")
    told = [
        (kind, name) for kind, name, _, reason in stage.server.recorder.events if reason == "UnregisteredTaintMissing"
    ]
    assert told == ([] if tainted else [("NodeClaim", "a")])
    assert stage.healthy == [("general", True)]


def test_the_more_room_of_a_node_no_nomination_keeps_the_later_it_is_let_in(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.joined("a", spread=True)
    stage.joined("b", spread=True, plain=True)
    stage.joined("c")
    began = stage.world.clock.monotonic()
    assert [line for line in stage.wave("a", "b", "c") if "/nodes/" in line or "/pods/" in line] == [
        "PATCH /api/v1/namespaces/default/pods/pod-of-c/status",
        "PATCH /api/v1/nodes/c",
        "PATCH /api/v1/namespaces/other/pods/pod-of-b/status",
        "PATCH /api/v1/nodes/b",
        "PATCH /api/v1/nodes/a",
    ]
    waited = stage.world.clock.monotonic() - began
    assert waited >= 2 * BOUND_SECONDS[0], "pods of the first, which are not bound, might still take room on the next"


def test_nodes_of_a_gang_are_let_in_together_after_all_others_and_its_pods_are_nominated_last(
    workers: WorkerPool,
) -> None:
    stage = Stage(workers)
    stage.joined("a", gang="train", more=(pod("beside-a", namespace="other"),))
    stage.joined("b", spread=True)
    stage.joined("c", gang="train", spread=True, plain=True)
    stage.joined("d")
    assert [line for line in stage.wave("a", "b", "c", "d") if "/nodes/" in line or "/pods/" in line] == [
        "PATCH /api/v1/namespaces/default/pods/pod-of-d/status",
        "PATCH /api/v1/nodes/d",
        "PATCH /api/v1/nodes/b",
        "PATCH /api/v1/namespaces/other/pods/beside-a/status",
        "PATCH /api/v1/namespaces/other/pods/pod-of-a/status",
        "PATCH /api/v1/namespaces/other/pods/pod-of-c/status",
        "PATCH /api/v1/nodes/a",
        "PATCH /api/v1/nodes/c",
    ]


def test_of_nodes_that_open_together_the_one_with_the_most_nominated_pods_is_first(workers: WorkerPool) -> None:
    """The pods of the others take any room that is open and not kept."""
    stage = Stage(workers)
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        stage.joined(
            name, spread=True, more=tuple(pod(f"{number}-of-{name}", namespace="other") for number in range(count))
        )
    assert [line for line in stage.wave("a", "b", "c") if "/nodes/" in line] == [
        f"PATCH /api/v1/nodes/{name}" for name in "bca"
    ]


@pytest.mark.parametrize("why", ["not ready", "its Node's write fails", "stopping"])
def test_nobody_waits_for_pods_that_no_open_node_takes(workers: WorkerPool, why: str) -> None:
    """A node that is not ready, or has startup taints, is let in all the same; others would wait for its pods in vain."""
    stage = Stage(workers)
    stage.joined("a", spread=True)
    stage.joined("b", ready=why != "not ready")
    stage.server.refuse |= {"b": 403} if "fails" in why else {}
    if why == "stopping":
        stage.registrar.poller.stop()
    began = stage.world.clock.monotonic()
    assert [line for line in stage.wave("a", "b") if "/nodes/" in line] == [
        "PATCH /api/v1/nodes/b",
        "PATCH /api/v1/nodes/a",
    ]
    assert stage.world.clock.monotonic() - began < BOUND_SECONDS[0]


def test_pods_that_find_places_by_themselves_are_not_nominated_and_nothing_is_waited_for(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="auto")
    stage.joined("a")
    stage.joined("b")
    assert [line for line in stage.wave("a", "b") if "/nodes/" in line or "/pods/" in line] == [
        "PATCH /api/v1/nodes/a",
        "PATCH /api/v1/nodes/b",
    ]
    assert stage.world.clock.monotonic() < BOUND_SECONDS[0]


@pytest.mark.parametrize("late", [False, True])
def test_pods_that_find_no_place_where_nodes_open_one_by_one_are_nominated(
    workers: WorkerPool, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pods of one CPU fit on the first of the nodes, and leave no room there for one of two."""
    monkeypatch.setattr(unaided, "FEW", 0)
    stage = Stage(workers, nominate="auto")
    for name in ("a", "b"):
        stage.joined(name, ready=not late, more=(pod(f"z-large-of-{name}", cpu="2"),))
    assert any("/pods/" in line for line in stage.wave("a", "b")) == late


@pytest.mark.parametrize("other", ["comes", "is not ready"])
@pytest.mark.parametrize(
    ("spread", "seconds"), [(False, COMPANION_SECONDS[0]), (True, COMPANION_SECONDS[1])], ids=["plain", "spread"]
)
def test_a_wave_waits_for_nodes_of_its_plan_but_not_for_ever(
    workers: WorkerPool, spread: bool, seconds: float, other: str
) -> None:
    stage = Stage(workers)
    for name in ("a", "b"):
        stage.joined(name, spread=spread, ready=name == "a" or other == "comes")
    if other == "comes":
        stage.world.cluster.node_changed(stage.world.cluster.node("b"), None)
    began = stage.world.clock.monotonic()
    for name in ("a", "b")[: 1 if other == "comes" else 2]:
        stage.registrar.offer(name)
    while not stage.closed():
        stage.world.clock.advance(0.25)
    assert seconds <= stage.world.clock.monotonic() - began <= seconds + 2 * WAVE_SECONDS[0]


def test_the_time_for_which_others_are_waited_for_begins_with_the_first_node_that_is_ready(workers: WorkerPool) -> None:
    stage = Stage(workers)
    for name in ("a", "b"):
        stage.joined(name, spread=True, ready=False)
        stage.registrar.offer(name)

    def waits(seconds: float) -> bool:
        """Whether nothing is let in for so long."""
        for _ in range(int(4 * seconds)):
            stage.world.clock.advance(0.25)
            if stage.closed():
                return False
        return True

    assert waits(COMPANION_SECONDS[1] - 1)
    stage.ready("a")
    assert waits(COMPANION_SECONDS[1] - 1)
    stage.ready("b")
    assert stage.closed() == ["a", "b"]


def test_a_wave_whose_nodes_are_all_there_waits_no_longer(workers: WorkerPool) -> None:
    stage = Stage(workers)
    for name in ("a", "b"):
        stage.joined(name, spread=True)
        stage.registrar.offer(name)
    assert not stage.closed()
    stage.world.clock.advance(WAVE_SECONDS[0])
    assert stage.closed() == ["a", "b"]


def test_nodes_of_another_plan_are_not_waited_for(workers: WorkerPool) -> None:
    stage = Stage(workers)
    for name, ready in (("a", True), ("late", False), ("b", True)):
        stage.joined(name, spread=True, ready=ready)
        stage.registrar.offer(name)
        stage.world.clock.advance(0 if name == "a" else 2 * TOGETHER_SECONDS)
    assert stage.closed() == ["b"]
    stage.ready("late")
    assert stage.closed() == ["a", "b", "late"]


@pytest.mark.parametrize("nominate", ["auto", "false"])
def test_a_node_that_is_alone_has_a_moment_to_be_ready(workers: WorkerPool, nominate: str) -> None:
    """Registration and initialisation are one pair of writes then."""
    stage = Stage(workers, nominate=nominate)
    stage.joined("a", ready=False)
    stage.registrar.offer("a")
    stage.world.clock.advance(COMPANION_SECONDS[0] - 0.1)
    assert not stage.closed()
    stage.world.clock.advance(0.1)
    assert stage.closed() == ["a"]


def test_nobody_is_nominated_where_that_is_turned_off(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    assert [line for line in stage.wave("a") if "pods" in line] == []


def test_a_claim_that_is_offered_twice_is_let_in_once(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    assert stage.wave("a") != []
    assert stage.wave("a") == []


def test_a_claim_that_is_deleted_while_its_pods_are_nominated_is_not_let_in(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.joined("b")
    stage.ending = ("a",)
    assert [line for line in stage.wave("a", "b") if "pods" not in line] == [
        "PATCH /api/v1/nodes/b",
        "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status",
    ]


def test_a_node_that_changes_while_pods_are_nominated_is_let_in_by_one_write(workers: WorkerPool) -> None:
    """A second one would let it in later than the others: whoever is nominated there would go to one that is open."""
    stage = Stage(workers)
    stage.joined("a")
    other = {"key": "example.com/agent", "effect": "NoSchedule"}
    stage.meanwhile["/pods/pod-of-a/status"] = lambda: stage.server.put(node("a", taints=(UNREGISTERED, other)))
    assert [line for line in stage.wave("a") if "/nodes/" in line] == ["PATCH /api/v1/nodes/a"]


def test_whoever_loses_the_nomination_while_nodes_are_let_in_gets_it_back_when_they_are(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.joined("b")

    def cleared() -> None:
        stage.server.change("pods", "pod-of-b", {"status": {"nominatedNodeName": None}}, "default")
        known, there = stage.world.cluster.pod("pod-of-b"), stage.server.get("pods", "pod-of-b", "default")
        assert known is not None
        assert there is not None
        version = there["metadata"]["resourceVersion"]
        stage.world.cluster.pod_changed(
            known, msgspec.structs.replace(known, nominated_node_name="", resource_version=version)
        )

    stage.meanwhile["/nodes/a"] = cleared
    sent = stage.wave("a", "b")
    last = max(sent.index(f"PATCH /api/v1/nodes/{name}") for name in ("a", "b"))
    assert "PATCH /api/v1/namespaces/default/pods/pod-of-b/status" in sent[last:]


def test_a_claim_that_is_deleted_while_other_nodes_are_let_in_is_not_let_in() -> None:
    with pool(1) as one_after_another:
        stage = Stage(one_after_another)
        stage.joined("a")
        stage.joined("b")
        stage.meanwhile["/nodes/a"] = lambda: stage.server.remove("nodeclaims", "b")
        assert [line for line in stage.wave("a", "b") if "/nodes/" in line] == ["PATCH /api/v1/nodes/a"]


@pytest.mark.parametrize("busy", [False, True])
def test_who_is_let_in_with_the_others_asks_the_state_nothing_meanwhile_and_who_begins_late_asks_again(
    monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """Another thread may hold its lock for longer than it takes to open all; whose claim is gone by then is not let in."""
    monkeypatch.setattr(registration, "START_SECONDS", 0.01 if busy else 20.0)
    stays, asked, done = Registrar._stays, list[str](), threading.Event()

    def asking(self: Registrar, name: str) -> NodeClaim | None:
        asked.append(name)
        return stays(self, name)

    monkeypatch.setattr(Registrar, "_stays", asking)

    def hold() -> None:
        done.wait()

    with pool(2) as two:
        stage = Stage(two)
        for name in ("a", "b"):
            stage.joined(name)
        if busy:
            two.submit(hold)
        stage.wave("a", "b")
        done.set()
    assert stage.healthy == [("general", True)] * 2
    assert sorted(asked) == (["a", "a", "b", "b"] if busy else ["a", "b"])


def test_a_node_that_nobody_can_make_a_patch_for_keeps_no_other_one_out(
    workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(workers)
    stage.joined("a")
    stage.joined("b")
    prepared = Registrar._prepared

    def failing(self: Registrar, claim: NodeClaim, node: Node) -> Any:
        if claim.metadata.name == "a":
            raise ValueError("one bad object")
        return prepared(self, claim, node)

    monkeypatch.setattr(Registrar, "_prepared", failing)
    assert [line for line in stage.wave("a", "b") if "/nodes/" in line] == ["PATCH /api/v1/nodes/b"]
    assert "a" in stage.registrar._delayed


def test_where_nobody_can_say_whom_to_nominate_nodes_are_let_in_all_the_same(
    workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(workers)
    stage.joined("a")

    def failing(*_: Any) -> Any:
        raise ValueError("one bad pod")

    monkeypatch.setattr(Nominations, "chosen", failing)
    assert "PATCH /api/v1/nodes/a" in stage.wave("a")
    assert stage.again == ["a"]


def test_a_claim_or_node_that_is_gone_costs_nothing(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.world.cluster.claim_changed(None, claim("alone", provider_id="kwok://alone", true=(names.LAUNCHED,)))
    assert stage.wave("alone", "unknown") == []


def test_one_that_fails_holds_up_no_other(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    stage.joined("b")
    stage.server.refuse["a"] = 403
    assert "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status" in stage.wave("a", "b")
    assert stage.again == ["b"]
    assert stage.healthy == [("general", True)]


@pytest.mark.parametrize(("ready", "kinds"), [(True, {"Registered", "Initialized"}), (False, {"Registered"})])
def test_the_status_says_how_far_the_node_has_come(workers: WorkerPool, ready: bool, kinds: set[str]) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a", ready=ready)
    stage.wave("a")
    status = stage.api.sent[-1].body["status"]
    told = {one["type"] for one in status["conditions"] if one["status"] == "True"}
    assert told & {"Registered", "Initialized"} == kinds
    assert status["nodeName"] == "a"


def test_a_claim_that_fails_again_and_again_is_tried_less_and_less_often(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    stage.server.refuse["a"] = 403
    waits: list[float] = []
    for _ in range(12):
        stage.wave("a")
        due = stage.registrar._delayed.pop("a")
        waits.append(due - stage.world.clock.monotonic())
    assert all(later >= earlier for earlier, later in itertools.pairwise(waits[:7]))
    assert waits[0] <= RETRY_BASE_SECONDS
    assert RETRY_CAP_SECONDS * 0.8 <= waits[-1] <= RETRY_CAP_SECONDS


def test_offering_a_claim_that_failed_does_not_hasten_its_next_try(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    stage.server.refuse["a"] = 403
    stage.wave("a")
    for _ in range(100):
        stage.registrar.offer("a")
    assert stage.registrar._waiting == {}
    assert stage.again == []


def test_a_success_ends_the_back_off(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    stage.server.refuse["a"] = 403
    for _ in range(5):
        stage.wave("a")
        stage.registrar._delayed.clear()
    stage.server.refuse.clear()
    stage.wave("a")
    assert stage.registrar._failures == {}


def test_a_claim_that_goes_while_it_waits_for_its_next_try_is_forgotten(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    stage.server.refuse["a"] = 403
    stage.wave("a")
    stage.server.remove("nodeclaims", "a")
    assert stage.wave("a") == []
    assert stage.registrar._failures == {}


def test_the_thread_takes_a_claim_that_failed_when_its_time_has_come(workers: WorkerPool) -> None:
    stage = Stage(workers, nominate="false")
    stage.joined("a")
    stage.server.refuse["a"] = 403
    stage.wave("a")
    stage.server.refuse.clear()
    stage.world.clock.advance(RETRY_CAP_SECONDS)
    stage.registrar.poller.start()
    eventually(lambda: stage.registrar._waiting, "it waits for the next wave")
    stage.world.clock.advance(1.0)
    stage.registrar.offer("a")
    eventually(lambda: stage.again == ["a"], "it is let in", 10.0)
    stage.registrar.poller.stop()


@pytest.mark.parametrize("nominate", ["false", "true"])
def test_a_node_that_hangs_does_not_keep_the_others_of_its_wave_from_being_recorded(
    monkeypatch: pytest.MonkeyPatch, nominate: str
) -> None:
    """For two seconds at most where pods are nominated, and not at all elsewhere."""
    monkeypatch.setattr(registration, "OPENING_SECONDS", (0.2, 0.0))
    may_go = threading.Event()
    with pool(4) as workers:
        stage = Stage(workers, nominate=nominate, patience=60.0)
        for name in ("a", "b"):
            stage.joined(name)
        stage.hangs = {"a": may_go}
        thread = threading.Thread(target=stage.wave, args=("a", "b"))
        thread.start()
        eventually(lambda: "b" in stage.again, "the other is recorded", seconds=10)
        assert "a" not in stage.again
        may_go.set()
        eventually(lambda: "a" in stage.again, "it is recorded once it is open")
        thread.join(10)


def test_a_write_that_hangs_holds_up_no_later_wave() -> None:
    may_go = threading.Event()
    with pool(4) as workers:
        stage = Stage(workers, nominate="false", patience=0.2)
        stage.joined("a")
        stage.joined("b")
        stage.hangs = {"a": may_go}
        stage.wave("a")
        assert stage.wave("b") == ["PATCH /api/v1/nodes/b", "PATCH /apis/karpenter.sh/v1/nodeclaims/b/status"]
        stage.registrar._delayed.clear()
        assert stage.wave("a") == [], "it is written twice at once"
        may_go.set()
        eventually(lambda: not stage.registrar._busy, "the write ends by itself")
    assert sorted(stage.again) == ["a", "b"]


def after_a_while(stage: Stage) -> list[str]:
    """`closed` when nobody waits any longer for the others of a batch."""
    for _ in range(3):
        stage.closed()
        stage.world.clock.advance(20.0)
    return stage.closed()


def gang_of(stage: Stage, *names_: str, minimum: int = 0, **joined: bool) -> None:
    """Nodes that a gang needs together, each for a member; those that `joined` names have come, and are ready where it says so."""
    notes = {names.GANG: "train", names.GANG_MINIMUM: str(minimum or len(names_))}
    text = encode_sets([LaunchSet(id="a", group=f"default/gang/train/rs/{minimum or len(names_)}", nodes=len(names_))])
    for name in names_:
        member = pod(f"member-{name}", annotations=notes)
        stage.server.add(member)
        one = claim(
            name,
            provider_id=f"kwok://{name}" if name in joined else "",
            true=(names.LAUNCHED,) if name in joined else (),
        )
        marks = {names.PLAN_ANNOTATION: plan_text((member,)), names.LAUNCH_SET: text}
        meta = msgspec.structs.replace(one.metadata, annotations={**one.metadata.annotations, **marks})
        stage.server.put(msgspec.structs.replace(one, metadata=meta))
    for name, ready in joined.items():
        stage.server.put(node(name, taints=(UNREGISTERED,), ready=ready))
        stage.registrar.offer(name)


@pytest.mark.parametrize("nominate", ["true", "false"])
def test_nodes_of_a_gang_are_let_in_together_when_all_are_ready(workers: WorkerPool, nominate: str) -> None:
    stage = Stage(workers, nominate=nominate)
    gang_of(stage, "a", "b", "c", a=True, b=False)
    stage.joined("alone")
    stage.registrar.offer("alone")
    assert after_a_while(stage) == ["alone"]
    stage.ready("b")
    assert after_a_while(stage) == ["alone"]  # c has no instance
    stage.server.put(claim_of(stage, "c"))
    stage.server.put(node("c", taints=(UNREGISTERED,)))
    assert after_a_while(stage) == ["alone"]  # it was not offered
    stage.registrar.offer("c")
    assert after_a_while(stage) == ["a", "alone", "b", "c"]
    assert {"a", "b", "c"} in [set(plan) - {"alone"} for plan in stage.registrar._plans()]


def claim_of(stage: Stage, name: str) -> NodeClaim:
    known = stage.server.claim(name)
    return msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, provider_id=f"kwok://{name}"))


def test_nodes_of_a_gang_do_not_wait_for_ever(workers: WorkerPool) -> None:
    stage = Stage(workers)
    gang_of(stage, "a", "b", a=True)
    stage.world.clock.advance(GANG_LONGEST_SECONDS - 1.0)
    assert stage.closed() == []
    stage.world.clock.advance(2.0)
    assert after_a_while(stage) == ["a"]


@pytest.mark.parametrize("shared", [True, False])
def test_what_others_use_of_a_gang_that_was_given_up_is_let_in_and_the_rest_is_not(
    workers: WorkerPool, shared: bool
) -> None:
    stage = Stage(workers)
    gang_of(stage, "a", "b", a=True)
    if shared:
        stranger = pod("stranger", cpu="100m")
        stage.server.add(stranger)
        stage.world.cluster.assign(NodeKey("a"), [stranger])
    for _ in range(3):  # for longer from time to time
        stage.world.cluster.group_rests("default/gang/train/rs/2")
    assert after_a_while(stage) == ["a"] * shared


def test_a_gang_that_has_what_it_needs_waits_for_no_node(workers: WorkerPool) -> None:
    stage = Stage(workers)
    gang_of(stage, "a", "b", minimum=2, a=True)
    for name in "ab":
        known = stage.world.cluster.pod(f"member-{name}")
        assert known is not None
        stage.world.cluster.pod_changed(known, bound(known, "elsewhere"))
    assert after_a_while(stage) == ["a"]
