"""ProvisioningRequests end to end in process: room found, launched, kept and taken, lost and over; and nothing bought twice."""

import itertools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod
from provisioner.apis.provisioning_request import (
    ATOMIC,
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
    CLASSES,
    ProvisioningRequest,
)
from provisioner.apis.stamping import StampFacts
from provisioner.kube import resources
from provisioner.kube.store import Store
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.requests.controller import (
    COMING_SECONDS,
    LONGEST_RETRY_SECONDS,
    RECHECK_SECONDS,
    RETRY_SECONDS,
    UNKNOWN_SECONDS,
    ProvisioningRequests,
)
from provisioner.runtime.changes import PodChanged
from provisioner.simulator.api_server import ServerChange
from provisioner.state.claim_plans import Launch
from provisioner.state.keys import NodeKey
from provisioner.values.resources import Resources
from tests.support.batches import Batches
from tests.support.cluster import bound, claim, node, pod, pool
from tests.support.problems import shape

KEY = "default/r"
ONE_TYPE = ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]},)


class RequestStage(Batches):
    """A NodePool of nodes with 4 CPUs, and requests for pods of 3."""

    def __init__(self, *classes: str) -> None:
        super().__init__(requirements=ONE_TYPE)
        self.store: Store[ProvisioningRequest] = Store()
        self.seen = True
        self.reserved: Mapping[str, Mapping[tuple[str, int], int]] = {}
        self._heard, self.server.told = self.server.told, self._told
        self.template("t", "3")
        self.requests = ProvisioningRequests(
            self.server.client,
            self.server.recorder,
            self.world.clock,
            lambda: (self.store, resources.PROVISIONINGREQUESTS) if self.seen else None,
            classes or CLASSES,
            admission=self.world.cluster.admission,
            facts=lambda namespace: StampFacts(namespace, {}),
            plan_again=self.again.append,
            reserve=self._reserve,
        )

    def _reserve(self, rooms: Mapping[str, Mapping[tuple[str, int], Resources]]) -> None:
        self.reserved = {node: {key: one["cpu"] for key, one in some.items()} for node, some in rooms.items()}

    def template(self, name: str, cpu: str, **more: Any) -> None:
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}], **more}
        self.server.store(
            "podtemplates", {"metadata": {"name": name, "namespace": "default"}, "template": {"spec": spec}}
        )

    def ask(
        self,
        klass: str = CHECK_CAPACITY,
        *,
        name: str = "r",
        sets: tuple[tuple[str, int], ...] = (("t", 2),),
        **parameters: str,
    ) -> None:
        created = self.world.clock.now().isoformat()
        pod_sets = [{"podTemplateRef": {"name": template}, "count": count} for template, count in sets]
        self.server.store(
            "provisioningrequests",
            {
                "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}", "creationTimestamp": created},
                "spec": {"podSets": pod_sets, "provisioningClassName": klass, "parameters": parameters},
            },
        )
        self.turn()

    def _told(self, change: ServerChange) -> None:
        if change.plural == "provisioningrequests":
            key = f"default/{change.name}"
            if change.after is None:
                self.store.remove(key)
            else:
                self.store.put(key, msgspec.convert(change.after, ProvisioningRequest, strict=False))
        self._heard(change)

    def turn(self) -> None:
        """Every request is looked at, one run is made, and every request is looked at once more."""
        for key in sorted(self.store.keys()):
            self.requests.reconcile(key)
        self.run(requests=self.requests)
        for key in sorted(self.store.keys()):
            self.requests.reconcile(key)

    def launched(self, *true: str) -> None:
        """Every NodeClaim that is there has an instance."""
        for name in self.claims():
            made = claim(name, provider_id=f"kwok://{name}", true=(names.LAUNCHED, *true))
            wire = msgspec.json.decode(msgspec.json.encode(self.server.claim(name)))
            wire["status"] = msgspec.json.decode(msgspec.json.encode(made.status))
            wire["metadata"].pop("resourceVersion", None)
            self.server.store("nodeclaims", wire)

    def consumer(self, name: str, key: str = names.CONSUMES[0], request: str = "r", cpu: str = "3") -> Pod:
        one = pod(name, owner="job", cpu=cpu, annotations={key: request}, unschedulable=True)
        self.world.add(one)
        self.requests.pod_heard(PodChanged(None, one))
        return one

    def binds(self, one: Pod, to: str) -> None:
        after = bound(one, to)
        self.world.cluster.pod_changed(one, after)
        self.requests.pod_heard(PodChanged(one, after))

    def claims(self) -> list[str]:
        return sorted(self.server.objects["nodeclaims"])

    def says(self, kind: str, key: str = KEY) -> tuple[str, str]:
        known = self.store.get(key)
        assert known is not None
        found = condition(known.status.conditions, kind)
        return (found.status, found.reason) if found is not None else ("", "")

    def message(self, kind: str, key: str = KEY) -> str:
        known = self.store.get(key)
        found = condition(known.status.conditions, kind) if known is not None else None
        return found.message if found is not None else ""


def ready(stage: RequestStage, *nodes: str) -> None:
    for name in nodes:
        stage.world.existing_node(name, age=3600)


def test_room_on_nodes_is_found_and_nothing_is_launched() -> None:
    stage = RequestStage()
    ready(stage, "a", "b")
    stage.ask()
    assert stage.says("Accepted") == ("True", "Accepted")
    assert stage.says("Provisioned") == ("True", "CapacityIsFound")
    assert stage.claims() == []
    stage.turn()
    assert stage.requests.keeps(str(NodeKey("a")))
    assert stage.requests.keeps(str(NodeKey("b")))
    assert len(stage.requests.pods()) == 2
    assert [one for one in stage.server.recorder.events if one[3] == "FailedScheduling"] == []


def test_a_check_without_room_is_repeated_ever_more_seldom() -> None:
    stage = RequestStage()
    ready(stage, "a")
    stage.ask()
    assert stage.says("Provisioned") == ("False", "CapacityIsNotFound")
    assert "room for 0 of 2 pods" in stage.message("Provisioned")
    assert stage.claims() == []
    ready(stage, "b")
    stage.turn()
    assert stage.says("Provisioned") == ("False", "CapacityIsNotFound"), "it is not looked for again yet"
    stage.world.clock.advance(RETRY_SECONDS)
    stage.turn()
    assert stage.says("Provisioned") == ("True", "CapacityIsFound")


def test_the_delay_doubles_up_to_ten_minutes() -> None:
    stage = RequestStage()
    stage.ask()
    looked = [stage.world.clock.monotonic()]
    for _ in range(45):
        stage.world.clock.advance(60.0)
        known = stage.requests._memory[KEY].tries
        stage.turn()
        if stage.requests._memory[KEY].tries != known:
            looked.append(stage.world.clock.monotonic())
    waits = [later - before for before, later in itertools.pairwise(looked)]
    assert waits[:4] == [60.0, 120.0, 240.0, 480.0]
    assert set(waits[4:]) == {LONGEST_RETRY_SECONDS}


def test_no_retry_fails_at_once() -> None:
    stage = RequestStage()
    stage.ask(noRetry="true")
    assert stage.says("Failed") == ("True", "CapacityIsNotFound")
    stage.turn()
    assert stage.requests.pods() == ()
    assert ("ProvisioningRequest", "r", "Warning", "CapacityIsNotFound") in stage.server.recorder.events


@pytest.mark.parametrize(("mode", "status", "kept"), [("bookPartial", "True", 1), ("checkOnly", "False", 0)])
def test_room_for_a_part(mode: str, status: str, kept: int) -> None:
    stage = RequestStage()
    ready(stage, "a")
    stage.ask(sets=(("t", 1), ("t2", 3)), partialCapacityCheck=mode)
    assert stage.says("Provisioned") == ("", ""), "a template is missing"
    stage.template("t2", "3")
    stage.turn()
    assert stage.says("Provisioned") == (status, "PartialCapacityIsFound")
    known = stage.store.get(KEY)
    assert known is not None
    assert known.status.provisioning_class_details == {"schedulablePodSets": '["t"]'}
    stage.turn()
    assert len(stage.requests.pods()) == kept
    assert stage.claims() == []


@pytest.mark.parametrize(("klass", "initialized"), [(BEST_EFFORT_ATOMIC, False), (ATOMIC, True)])
def test_nodes_are_launched_once_for_all_pods(klass: str, initialized: bool) -> None:
    stage = RequestStage()
    stage.ask(klass)
    made = stage.claims()
    assert len(made) == 2
    assert stage.says("Provisioned") == ("False", "CapacityIsComing")
    for name in made:
        assert names.PLAN_ANNOTATION not in stage.server.claim(name).metadata.annotations
        assert stage.requests.keeps(str(NodeKey(name)))
    stage.turn()
    assert stage.claims() == made, "room that is on its way is bought again"
    assert stage.requests.reconcile(KEY).requeue_after == COMING_SECONDS
    stage.launched()
    stage.turn()
    assert stage.says("Provisioned")[0] == ("False" if initialized else "True")
    stage.launched(names.REGISTERED, names.INITIALIZED)
    for name in made:
        stage.world.cluster.node_changed(None, node(name, labels={names.NODEPOOL_LABEL: "general"}))
    stage.turn()
    assert stage.says("Provisioned") == ("True", "CapacityIsProvisioned")
    assert stage.claims() == made


@pytest.mark.parametrize("klass", [ATOMIC, BEST_EFFORT_ATOMIC])
def test_the_nodes_of_a_request_are_created_all_or_none(klass: str) -> None:
    stage = RequestStage()
    stage.growth = GrowthLedger(stage.world.cluster, GrowthLimits(2), lambda _: {}, stage.world.clock)
    stage.world.add(pod("single", cpu="3"))
    stage.run()
    stage.ask(klass)
    single = stage.claims()
    assert len(single) == 1, "the limit leaves too little for both nodes, and none waits for the other"
    stage.world.clock.advance(61.0)
    stage.turn()
    made = [name for name in stage.claims() if name not in single]
    sets = [sets_of(stage.server.claim(name).metadata.annotations) for name in made]
    assert [[one.nodes for one in some] for some in sets] == [[2], [2]]
    assert sets[0] == sets[1]


def test_nobody_gives_up_nodes_that_come_for_a_request() -> None:
    """No pod of it exists yet, so none of the rules for gangs can be asked: a node that is short is waited for."""
    stage = RequestStage()
    stage.ask(ATOMIC)
    assert stage.world.cluster.gangs_coming() == ()
    assert [stage.world.cluster.groups_awaiting(name) for name in stage.claims()] == [(), ()]


def test_a_request_of_which_a_node_cannot_be_written_launches_none() -> None:
    stage = RequestStage()
    posts = itertools.count()

    def refuse(sent: Any) -> Any:
        stage.server.refuse_creates = (
            422 if "nodeclaims" in sent.path and sent.method == "POST" and next(posts) == 0 else 0
        )

    stage.server.intercept = refuse
    stage.ask(ATOMIC)
    assert Launch.BEGIN not in [stage.world.cluster.launch_begins(name) for name in stage.claims()]


def one_refused() -> RequestStage:
    """A request for a node of each of two NodePools, of which one gets none for ever."""
    stage = RequestStage()
    stage.world.cluster.pool_changed(None, pool("refused", requirements=ONE_TYPE))
    for name in ("general", "refused"):
        stage.template(name, "2", nodeSelector={names.NODEPOOL_LABEL: name})

    def refuse(sent: Any) -> Any:
        creates = sent.method == "POST" and "nodeclaims" in sent.path
        stage.server.refuse_creates = 422 if creates and "refused-" in str(sent.body) else 0

    stage.server.intercept = refuse
    return stage


def test_a_request_of_which_a_node_is_refused_for_ever_costs_other_pods_nothing() -> None:
    """One of them shared a node with it, which was given up with the others of its set each time."""
    stage = one_refused()
    stage.world.add(pod("alone", shape=shape(cpu="1", selector={names.NODEPOOL_LABEL: "general"})))
    stage.ask(BEST_EFFORT_ATOMIC, sets=(("general", 1), ("refused", 1)))
    stage.turn()
    assert [stage.world.assigned(name) for name in stage.claims()] == [["alone"]]


def test_a_request_of_which_a_node_is_refused_is_asked_about_again_after_a_while() -> None:
    """Each time the other nodes are created, and deleted again."""
    stage = one_refused()
    stage.ask(BEST_EFFORT_ATOMIC, sets=(("general", 1), ("refused", 1)))
    assert stage.says("Provisioned") == ("False", "CapacityIsNotFound")
    assert "could not create a NodeClaim" in stage.message("Provisioned")

    def created() -> int:
        return sum("refused-" in str(sent.body) for sent in stage.api.sent if sent.method == "POST")

    for _ in range(int(RETRY_SECONDS - 1)):
        stage.world.clock.advance(1.0)
        stage.turn()
    assert created() == 1
    stage.world.clock.advance(2.0)
    stage.turn()
    assert created() == 2


def test_a_request_gets_nothing_where_limits_leave_too_little_for_all() -> None:
    stage = RequestStage()
    limited = msgspec.structs.replace(stage.pool, spec=msgspec.structs.replace(stage.pool.spec, limits={"cpu": "4"}))
    stage.world.cluster.pool_changed(stage.pool, limited)
    stage.ask(BEST_EFFORT_ATOMIC)
    assert stage.claims() == []
    assert stage.says("Provisioned") == ("False", "CapacityIsNotFound")
    said = condition(stage.store.list()[0].status.conditions, names.PROVISIONED)
    assert said is not None
    assert "2 pods of the ProvisioningRequest need nodes" in said.message
    stage.world.add(pod("single", cpu="3"))
    stage.turn()
    assert len(stage.claims()) == 1, "others get what it cannot use"


def booked(stage: RequestStage) -> list[str]:
    """Two nodes, launched and ready for the request."""
    stage.ask(BEST_EFFORT_ATOMIC)
    made = stage.claims()
    stage.launched(names.REGISTERED, names.INITIALIZED)
    for name in made:
        stage.world.cluster.node_changed(None, node(name, labels={names.NODEPOOL_LABEL: "general"}))
    stage.turn()
    assert stage.says("Provisioned")[0] == "True"
    return made


@pytest.mark.parametrize("key", names.CONSUMES)
def test_pods_that_name_the_request_take_its_places(key: str) -> None:
    stage = RequestStage()
    made = booked(stage)
    assert stage.reserved == {name: {(KEY, 0): 3000} for name in made}
    first = stage.consumer("p0", key)
    stage.turn()
    assert len(stage.reserved) == 1, "the other is planned there by now"
    pods = [first, stage.consumer("p1", key)]
    stage.turn()
    assert stage.reserved == {}
    assert stage.claims() == made, "nothing is bought twice"
    assert sorted(stage.world.assigned(made[0]) + stage.world.assigned(made[1])) == ["p0", "p1"]
    assert stage.requests.pods() == ()
    for one in pods:
        stage.binds(one, next(name for name in made if one.name in stage.world.assigned(name)))
    stage.turn()
    assert stage.says("BookingExpired") == ("True", "CapacityBookingConsumed")
    assert stage.claims() == made


def test_nothing_is_launched_for_a_pod_that_comes_before_the_room() -> None:
    stage = RequestStage()
    early = stage.consumer("early")
    stage.ask(BEST_EFFORT_ATOMIC)
    made = stage.claims()
    assert len(made) == 2
    stage.turn()
    assert stage.claims() == made
    assert stage.requests.held() == {"early": (KEY, "0 of 2 nodes for the request are launched")}
    stage.launched()
    stage.turn()
    stage.turn()
    assert stage.claims() == made
    assert [one for name in made for one in stage.world.assigned(name)] == [early.name]


def test_pods_beyond_those_that_a_request_is_for_are_like_any_other() -> None:
    stage = RequestStage()
    made = booked(stage)
    for n in range(3):
        stage.consumer(f"p{n}")
    stage.turn()
    assert len(stage.claims()) == len(made) + 1


def test_strangers_are_planned_elsewhere_while_room_is_kept() -> None:
    stage = RequestStage()
    made = booked(stage)
    stage.world.add(pod("stranger", cpu="3"))
    stage.turn()
    assert len(stage.claims()) == len(made) + 1
    assert len(stage.requests.pods()) == 2


def test_a_booking_ends_after_ten_minutes_and_its_pods_get_nodes_like_any_other() -> None:
    stage = RequestStage()
    ready(stage, "a", "b")
    stage.ask()
    stage.turn()
    stage.world.clock.advance(600.0)
    stage.requests.reconcile(KEY)
    assert stage.says("BookingExpired") == ("True", "CapacityReservationTimeExpired")
    stage.again.clear()
    stage.requests.reconcile(KEY)
    assert stage.again == [f"request/{KEY}"], "else its nodes keep room until somebody else asks for a run"
    stage.requests.reconcile(KEY)
    assert len(stage.again) == 1
    stage.turn()
    assert not stage.requests.keeps(str(NodeKey("a")))
    for n in range(3):
        stage.consumer(f"p{n}")
    stage.turn()
    assert len(stage.claims()) == 1


def test_room_that_is_lost_ends_the_booking() -> None:
    stage = RequestStage()
    made = booked(stage)
    stage.consumer("p0")
    stage.turn()
    for name in made:
        stage.world.cluster.node_changed(node(name, labels={names.NODEPOOL_LABEL: "general"}), None)
        stage.server.drop("nodeclaims", name)
    stage.turn()
    assert stage.says("BookingExpired") == ("", "")
    assert stage.claims() == []
    stage.world.clock.advance(60.0)
    stage.turn()
    assert stage.says("BookingExpired") == ("True", "CapacityReservationTimeExpired")
    stage.turn()
    assert len(stage.claims()) == 1, "the pod gets a node of its own"


def test_a_node_that_fails_before_it_is_launched_is_bought_again() -> None:
    stage = RequestStage()
    stage.ask(BEST_EFFORT_ATOMIC)
    first = stage.claims()
    stage.server.drop("nodeclaims", first[0])
    stage.turn()
    assert len(stage.claims()) == 2
    assert first[1] in stage.claims()


def test_a_new_leader_keeps_what_there_is() -> None:
    stage = RequestStage()
    stage.ask(BEST_EFFORT_ATOMIC)
    made = stage.claims()
    stage.requests = ProvisioningRequests(
        stage.server.client,
        stage.server.recorder,
        stage.world.clock,
        lambda: (stage.store, resources.PROVISIONINGREQUESTS),
        CLASSES,
        admission=stage.world.cluster.admission,
        facts=lambda namespace: StampFacts(namespace, {}),
        plan_again=stage.again.append,
    )
    assert stage.requests.keeps("anything")
    stage.turn()
    assert stage.claims() == made
    assert not stage.requests.keeps("anything")


def test_an_answer_does_not_ask_for_the_next_run_at_once() -> None:
    stage = RequestStage()
    ready(stage, "a", "b")
    stage.ask()
    stage.turn()
    stage.again.clear()
    stage.turn()
    assert stage.requests.reconcile(KEY).requeue_after == RECHECK_SECONDS
    assert stage.again == []
    stage.world.clock.advance(RECHECK_SECONDS)
    stage.requests.reconcile(KEY)
    assert stage.again == [f"request/{KEY}"]


def test_room_is_kept_while_the_requests_cannot_be_seen_for_a_moment() -> None:
    stage = RequestStage()
    ready(stage, "a", "b")
    stage.ask()
    stage.turn()
    stage.seen = False
    stage.turn()
    assert stage.requests.keeps(str(NodeKey("a")))
    stage.world.clock.advance(UNKNOWN_SECONDS)
    stage.turn()
    assert not stage.requests.keeps(str(NodeKey("a")))
    stage.seen = True
    stage.turn()
    assert stage.requests.keeps(str(NodeKey("a")))


def test_whether_a_node_keeps_room_is_unknown_for_a_minute() -> None:
    stage = RequestStage()
    assert stage.requests.keeps("x")
    stage.world.clock.advance(UNKNOWN_SECONDS)
    assert not stage.requests.keeps("x")


def test_other_classes_are_left_alone() -> None:
    stage = RequestStage(ATOMIC)
    ready(stage, "a", "b")
    stage.ask(CHECK_CAPACITY)
    assert stage.says("Accepted") == ("", "")
    stage.ask("queued-provisioning.gke.io", name="x")
    assert stage.says("Accepted", "default/x") == ("", "")


def test_a_template_that_never_comes_fails_the_request() -> None:
    stage = RequestStage()
    stage.ask(sets=(("none", 1),))
    assert stage.says("Failed") == ("", "")
    stage.world.clock.advance(60.0)
    stage.turn()
    assert stage.says("Failed") == ("True", "FailedToCreatePods")
    assert '"none"' in stage.message("Failed")


def test_what_is_over_is_deleted_after_a_week() -> None:
    stage = RequestStage()
    stage.ask(noRetry="true")
    stage.world.clock.advance(timedelta(days=7).total_seconds() - 1)
    stage.turn()
    assert stage.store.get(KEY) is not None
    stage.world.clock.advance(1.0)
    stage.turn()
    assert stage.store.get(KEY) is None


def test_a_status_that_is_written_meanwhile_is_not_written_over() -> None:
    stage = RequestStage()
    stage.ask()
    known = stage.store.get(KEY)
    assert known is not None
    wire: Any = msgspec.json.decode(msgspec.json.encode(known))
    wire["metadata"].pop("resourceVersion")
    wire["status"]["conditions"] = [{"type": "Failed", "status": "True", "reason": "x", "message": "x"}]
    stage.server.store("provisioningrequests", wire)
    stage.store.put(KEY, known)  # our watch is behind
    ready(stage, "a", "b")
    stage.world.clock.advance(RETRY_SECONDS)
    stage.turn()
    told = stage.server.objects["provisioningrequests"]
    assert [one["type"] for one in next(iter(told.values()))["status"]["conditions"]] == ["Failed"]


def test_it_is_for_pods_of_its_own_namespace_alone() -> None:
    stage = RequestStage()
    made = booked(stage)
    other = pod("thief", cpu="3", namespace="other", annotations={names.CONSUMES[0]: "r"}, unschedulable=True)
    stage.world.add(other)
    stage.requests.pod_heard(PodChanged(None, other))
    stage.turn()
    assert len(stage.requests.pods()) == 2
    assert len(stage.claims()) == len(made) + 1
