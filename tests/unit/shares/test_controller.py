"""Repair of shares on demand: what is read before a pod is evicted, what is written, and what keeps it from being done."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import Node, PodDisruptionBudget
from provisioner.apis.pods import Pod, decode_pod
from provisioner.apis.shares import Side
from provisioner.kube.client import Client
from provisioner.shares.controller import (
    AGAIN_SECONDS,
    LOOK_SECONDS,
    MOST_ADOPTED,
    MOST_READ,
    QUIET_SECONDS,
    ShareRepair,
)
from provisioner.shares.repair import MOST_ATTEMPTS, SETTLE_SECONDS
from provisioner.simulator.api_server import ApiServer, Asked, Wire, asked
from provisioner.state.pause import DISRUPTION, NOTHING, Activity, Pause, PauseValue
from provisioner.support.metrics import REGISTRY
from tests.support.clock import FakeClock
from tests.support.cluster import World, node, pod_budget
from tests.support.kube import FakeAnswer, FakeApi, Sent, refusal
from tests.support.pods import wire_pod
from tests.support.worldserver import WorldServer

ASKED = {names.STAMP_ON_DEMAND: "30%", names.ON_DEMAND_REPAIR: "evict"}
NODES: dict[str, Node] = {
    one: node(one, labels={names.CAPACITY_TYPE_LABEL: one, names.NODEPOOL_LABEL: f"pool-{one}"})
    for one in (names.CAPACITY_SPOT, names.CAPACITY_ON_DEMAND)
}
SPOT, OD = Side.SPOT, Side.ON_DEMAND


class Stage:
    """An API server with Deployments of one ReplicaSet each, their controller, a webhook, and the cache of a provisioner that leads.

    Attributes:
        webhook: whether it is there for new pods.
        sets, pods: as the server has them, by "namespace/name".
        deployment: what the status of Deployments says instead.
        listed: pods that were in answers.
        looked_up: names of nodes that were asked for in the cache.
        behind: the cache does not see what happens to pods.
        refuse: what is answered to requests of a method to a path that ends so, instead of doing them.
        lose_answers: nobody hears that an eviction was carried out.
        meanwhile: what happens while the server carries out an eviction.
        slow: seconds that each answer takes.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.webhook = True
        self.slow = 0.0
        self.lose_answers = False
        self.behind = False
        self.listed = 0
        self.looked_up: list[str] = []
        self.stale = ""
        self.pause = NOTHING
        self.budgets: dict[str, tuple[PodDisruptionBudget, ...]] = {}
        self.refuse: dict[tuple[str, str], FakeAnswer] = {}
        self.meanwhile: Callable[[], None] | None = None
        self.template = dict(ASKED)
        self.deployment: dict[str, int] = {}
        self.numbers = iter(range(10_000))
        self.server = ApiServer(self.clock)
        self.sets, self.pods = self.server.objects["replicasets"], self.server.objects["pods"]
        self.api = FakeApi(respond=self._answer, clock=self.clock)
        self._cache: tuple[Pod, ...] = ()
        self._known: dict[bytes, Pod] = {}
        self.nodes = dict(NODES)
        self.lead()

    def lead(self) -> None:
        """Another process leads."""
        self.recorder = WorldServer(World()).recorder
        self.repair = ShareRepair(
            self._cached,
            self._node,
            lambda: PodBudgets(self.budgets),
            Client(self.api, self.clock),
            self.recorder,
            self.clock,
            stale=lambda: self.stale,
            pause=lambda: self.pause,
        )

    def deploy(self, *sides: Side, name: str = "web", namespace: str = "shop", seated: bool = True) -> None:
        """A Deployment with a pod of each of these sides."""
        body = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{namespace}-{name}",
                "generation": 1,
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": name,
                        "uid": f"d-{name}",
                        "controller": True,
                    }
                ],
            },
            "spec": {"replicas": len(sides), "selector": {"matchLabels": {"app": name}}},
        }
        body["metadata"]["labels"] = {"app": name}
        self.server.store("replicasets", body)
        of = {"name": name, "namespace": namespace, "uid": f"d-{name}"}
        self.server.store("deployments", {"metadata": of, "spec": {"selector": {"matchLabels": {"app": name}}}})
        for side in sides:
            self.make(name, namespace, side, seated=seated)

    def make(self, name: str, namespace: str, side: Side, *, seated: bool) -> Wire:
        uid = f"{name}-{next(self.numbers):04}"
        wire = wire_pod(metadata__name=uid, metadata__uid=uid, metadata__namespace=namespace)
        meta = wire["metadata"]
        meta["ownerReferences"][0] |= {"name": name, "uid": f"{namespace}-{name}"}
        meta["creationTimestamp"] = self.server.stamp()
        meta["labels"] = {"app": name}
        meta["annotations"] = dict(self.template)
        if seated:
            meta["labels"][names.ON_DEMAND_SHARE_LABEL] = side.value
            meta["annotations"][names.ON_DEMAND_TICKET] = f"{namespace}-{name}.1.review"
        wire["spec"]["nodeName"] = side.value
        wire["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return self.server.store("pods", wire)

    def after(self, seconds: float) -> "Stage":
        """Looks until then."""
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.clock.advance(self.repair.poll())
        return self

    @property
    def evicted(self) -> int:
        return sum(one.path.endswith("/eviction") for one in self.api.sent)

    @property
    def asked(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.api.sent]

    @property
    def said(self) -> list[tuple[str, str, str]]:
        told = zip(self.recorder.events, self.recorder.messages, strict=True)
        return [(event[0], event[3], message) for event, message in told]

    def on_demand(self) -> int:
        return sum(one["spec"]["nodeName"] == OD.value for one in self.pods.values())

    def bearers(self) -> list[dict[str, Any]]:
        """The records on pods."""
        texts = (one["metadata"]["annotations"].get(names.ON_DEMAND_REPAIRED) for one in self.pods.values())
        return [json.loads(text) for text in texts if text]

    def _cached(self) -> tuple[Pod, ...]:
        if not self.behind:
            self._cache = tuple(self._decoded(msgspec.json.encode(one)) for one in self.pods.values())
        return self._cache

    def _decoded(self, text: bytes) -> Pod:
        """The very same as long as the pod does not change, as in a real cache."""
        if text not in self._known:
            self._known[text] = decode_pod(text)
        return self._known[text]

    def _node(self, name: str) -> Node | None:
        self.looked_up.append(name)
        return self.nodes.get(name)

    def _answer(self, sent: Sent) -> FakeAnswer:
        self.clock.advance(self.slow)
        if self.meanwhile is not None and sent.path.endswith("/eviction"):
            self.meanwhile()
        for (method, end), answer in tuple(self.refuse.items()):
            if sent.method == method and sent.path.endswith(end):
                return answer
        about = asked(sent.path)
        assert about is not None
        match sent.method, about.plural:
            case "PATCH", _:
                assert {"uid", "resourceVersion"} <= sent.body["metadata"].keys()
            case "POST", _:
                return self._evict(about, sent)
            case _, "replicasets" | "deployments":
                self._count(about.plural)
            case _, _:
                pass
        answer = self.server.answer(sent, self)
        self.listed += len(json.loads(answer.data)["items"]) if about.plural == "pods" and not about.name else 0
        return answer

    def _of(self, namespace: str, name: str) -> list[Wire]:
        return [
            one
            for key, one in self.pods.items()
            if key.startswith(f"{namespace}/") and one["metadata"]["labels"]["app"] == name
        ]

    def _count(self, plural: str) -> None:
        """What their controllers write."""
        for one in self.server.objects[plural].values():
            count = len(self._of(one["metadata"]["namespace"], one["metadata"]["name"]))
            status = {"observedGeneration": 1, "replicas": count}
            if plural == "deployments":
                one["status"] = {**status, "updatedReplicas": count, **self.deployment}
            else:
                one["status"] = {**status, "readyReplicas": count}
                one["spec"]["template"] = {"metadata": {"annotations": self.template}}

    def _evict(self, about: Asked, sent: Sent) -> FakeAnswer:
        """Its ReplicaSet makes another one at once."""
        gone = self.pods[f"{about.namespace}/{about.name}"]
        assert "uid" in sent.body["deleteOptions"]["preconditions"]
        answer = self.server.answer(sent, self)
        if answer.status < 300:
            self.server.drop("pods", about.name, about.namespace)
            owner = gone["metadata"]["labels"]["app"]
            labels = [
                one["metadata"]["labels"].get(names.ON_DEMAND_SHARE_LABEL) for one in self._of(about.namespace, owner)
            ]
            few = labels.count("on-demand") < -(-30 * (labels.count("on-demand") + labels.count("spot") + 1) // 100)
            side = Side(gone["spec"]["nodeName"]) if not self.webhook else OD if few else SPOT
            self.make(owner, about.namespace, side, seated=self.webhook)
        return refusal(504, "Timeout") if self.lose_answers else answer


@pytest.fixture
def stage() -> Stage:
    return Stage()


def counted(result: str) -> float:
    return REGISTRY.get_sample_value("dovetail_on_demand_repairs_total", {"result": result}) or 0.0


def test_one_pod_is_evicted_after_another_until_the_share_is_within_its_tolerance(stage: Stage) -> None:
    before = counted("evicted")
    stage.deploy(*[SPOT] * 20)
    assert stage.after(SETTLE_SECONDS).evicted == 0
    assert stage.asked == []  # the cache is enough to know that it is too soon
    stage.after(LOOK_SECONDS)
    assert (stage.evicted, stage.on_demand()) == (1, 1)
    assert stage.after(SETTLE_SECONDS).evicted == 1
    stage.after(1200)
    assert (stage.evicted, stage.on_demand()) == (4, 4)  # of six that are asked for, within two
    assert counted("evicted") == before + 4
    assert [one[:2] for one in stage.said] == [("Pod", "Evicted")] * 4
    assert stage.said[0][2].startswith(
        "Evicted pod: 0 pods of ReplicaSet shop/web run on demand, and dovetail.dev/on-demand requests 6"
    )


def test_too_many_on_demand_are_repaired_as_well(stage: Stage) -> None:
    stage.deploy(*[OD] * 10)
    stage.after(1200)
    assert stage.on_demand() == 5


def test_nothing_is_done_where_nobody_asks_and_nobody_is_asked(stage: Stage) -> None:
    stage.template = {names.STAMP_ON_DEMAND: "30%"}
    stage.deploy(*[SPOT] * 20)
    assert stage.after(1200).asked == []


def test_pods_alone_do_not_ask(stage: Stage) -> None:
    """Whoever may create a pod in a namespace may name any owner of it."""
    stage.deploy(*[SPOT] * 20)
    stage.template = {names.STAMP_ON_DEMAND: "30%"}
    stage.after(QUIET_SECONDS)
    assert stage.evicted == 0
    assert len([one for one in stage.asked if one.startswith("GET")]) <= 2  # and it is not asked about all the time


def test_the_same_uid_in_another_namespace_is_another_owner(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 6)
    foreign = stage.make("web", "evil", SPOT, seated=True)
    foreign["metadata"]["ownerReferences"][0]["uid"] = "shop-web"
    stage.after(1200)
    assert all("/namespaces/evil/" not in one or one.startswith("GET") for one in stage.asked)
    assert stage.evicted == 0  # two of six are asked for, and none is within the tolerance


def test_whoever_names_an_owner_of_another_namespace_does_not_keep_it_from_its_repair(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    foreign = stage.make("web", "evil", SPOT, seated=True)
    foreign["metadata"]["ownerReferences"][0]["uid"] = "shop-web"
    assert stage.after(600).evicted > 0


@pytest.mark.parametrize("namespace", ["evil", "shop"])
def test_a_pod_that_names_another_kind_of_owner_keeps_nobody_from_repair(stage: Stage, namespace: str) -> None:
    """Whoever may create pods may write what they like of their owner; the first pod of a UID told for all, and a look ended there."""
    if namespace == "evil":
        stage.deploy(*[SPOT] * 20, name="liar", namespace="evil")
    stage.deploy(*[SPOT] * 20)
    first = next(one for key, one in stage.pods.items() if key.startswith(namespace))
    first["metadata"]["ownerReferences"][0] |= {"apiVersion": "example.com/v1", "kind": "Website"}
    stage.after(600)
    assert sum(one.endswith("/eviction") and "/shop/" in one for one in stage.asked) > 0


def test_an_owner_of_the_name_with_another_uid_is_left_alone(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.sets["shop/web"]["metadata"]["uid"] = "another"
    assert stage.after(600).evicted == 0


def test_pods_that_came_without_the_webhook_are_labelled_first(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20, seated=False)
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert (stage.evicted, sum("PATCH" in one for one in stage.asked)) == (0, 20)
    assert {one["metadata"]["labels"][names.ON_DEMAND_SHARE_LABEL] for one in stage.pods.values()} == {"spot"}
    stage.after(1200)
    assert (stage.evicted, stage.on_demand()) == (4, 4)


def test_so_many_pods_are_labelled_at_a_time(stage: Stage) -> None:
    stage.deploy(*[SPOT] * (MOST_ADOPTED + 20), seated=False)
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert sum("PATCH" in one for one in stage.asked) == MOST_ADOPTED


def test_without_the_webhook_it_stops_and_says_so(stage: Stage) -> None:
    before = counted("stopped")
    stage.webhook = False
    stage.deploy(*[SPOT] * 20)
    stage.after(2400)
    assert stage.evicted == MOST_ATTEMPTS
    assert counted("stopped") == before + 1
    kind, reason, text = stage.said[-1]
    assert (kind, reason) == ("ReplicaSet", "OnDemandShareNotRepaired")
    assert "Check that the webhook runs with --on-demand-shares" in text


def test_a_new_leader_neither_hurries_nor_forgets(stage: Stage) -> None:
    stage.webhook = False
    stage.deploy(*[SPOT] * 20)
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    for _ in range(20):
        stage.lead()
        stage.after(SETTLE_SECONDS)
    assert stage.evicted == 1
    for _ in range(20):
        stage.lead()
        stage.after(SETTLE_SECONDS + 10 * LOOK_SECONDS)
    assert stage.evicted == MOST_ATTEMPTS


def test_what_is_tried_is_written_before_it_is(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.refuse["POST", "/eviction"] = refusal(500)
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert [one["attempts"] for one in stage.bearers()] == [1]
    writes = [one for one in stage.asked if not one.startswith("GET")]
    assert [one.split()[0] for one in writes] == ["PATCH", "POST"]


def test_evictions_that_an_ill_server_does_not_carry_out_do_not_count(stage: Stage) -> None:
    before = counted("stopped")
    stage.deploy(*[SPOT] * 20)
    stage.refuse["POST", "/eviction"] = refusal(503, "ServiceUnavailable")
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert stage.after(SETTLE_SECONDS - LOOK_SECONDS).evicted == 1  # what was asked for may still be done
    stage.after(1200)
    assert MOST_ATTEMPTS < stage.evicted <= 12
    stage.refuse.clear()
    assert stage.after(1800).on_demand() == 4
    assert counted("stopped") == before
    assert {one[1] for one in stage.said} == {"Evicted"}


def test_an_eviction_that_an_ill_server_carries_out_counts(stage: Stage) -> None:
    stage.webhook = False
    stage.deploy(*[SPOT] * 20)
    stage.lose_answers = True
    stage.after(3600)
    assert stage.evicted == MOST_ATTEMPTS


@pytest.mark.parametrize("answer", [refusal(403, "Forbidden"), refusal(422, "Invalid")], ids=["admission", "invalid"])
def test_an_eviction_that_is_denied_was_not_tried(stage: Stage, answer: FakeAnswer) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.refuse["POST", "/eviction"] = answer
    stage.after(2400)
    assert MOST_ATTEMPTS < stage.evicted <= 12
    assert stage.bearers() == []
    assert {one[:2] for one in stage.said} == {("ReplicaSet", "OnDemandShareNotRepaired")}
    assert "the API server denied the eviction of pod shop/web-" in stage.said[-1][2]
    stage.refuse.clear()
    assert stage.after(1800).on_demand() == 4


def test_a_leader_that_ends_between_record_and_eviction_has_tried_nothing(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    for _ in range(2 * MOST_ATTEMPTS):
        stage.lead()
        stage.refuse["POST", "/eviction"] = refusal(500)  # as if it was never sent
        stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert [one["attempts"] for one in stage.bearers()] == [1]
    stage.refuse.clear()
    assert stage.after(1800).on_demand() == 4


def test_a_refusal_whose_record_cannot_be_taken_back_is_told_and_does_not_count(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    stage.refuse["POST", "/eviction"] = refusal(429, "TooManyRequests", message)
    stage.meanwhile = lambda: stage.refuse.update({("PATCH", "/status"): refusal(403, "Forbidden")})
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert [one["attempts"] for one in stage.bearers()] == [1]
    assert [one[1] for one in stage.said] == ["OnDemandShareNotRepaired"]
    stage.meanwhile = None
    stage.refuse.clear()
    assert stage.after(1800).on_demand() == 4


def test_no_eviction_without_its_record(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.refuse["PATCH", "/status"] = refusal(403, "Forbidden")
    assert stage.after(1200).evicted == 0


def test_a_refused_eviction_was_not_tried_and_is_asked_for_ever_less_often(stage: Stage) -> None:
    before = counted("refused")
    stage.deploy(*[SPOT] * 20)
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    stage.refuse["POST", "/eviction"] = refusal(429, "TooManyRequests", message)
    stage.after(1200)
    assert 3 <= stage.evicted <= 12
    assert counted("refused") == before + stage.evicted
    assert stage.bearers() == []
    assert {one[1] for one in stage.said} == {"OnDemandShareNotRepaired"}
    stage.refuse.clear()
    stage.after(1200)
    assert stage.on_demand() == 4


def test_a_budget_that_is_known_is_not_asked(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    held = msgspec.structs.replace(pod_budget(allowed=0), metadata=pod_budget().metadata)
    stage.budgets = {"shop": (held,)}
    assert stage.after(1800).evicted == 0
    assert "no PodDisruptionBudget of the pods allows" in stage.said[-1][2]
    stage.budgets = {}
    assert stage.after(1800).evicted > 0


def test_a_pod_of_two_budgets_stays_whatever_they_allow(stage: Stage) -> None:
    """The API server evicts none of these."""
    stage.deploy(*[SPOT] * 20)
    stage.budgets = {"shop": (pod_budget(), pod_budget("second"))}
    assert stage.after(1800).evicted == 0
    stage.budgets = {"shop": (pod_budget(),)}
    assert stage.after(1800).evicted > 0


def test_a_pod_that_has_not_started_goes_whatever_its_budgets_say(stage: Stage) -> None:
    """The API server asks no budget for it."""
    stage.deploy(*[SPOT] * 20)
    for one in stage.pods.values():
        one["status"]["phase"] = "Pending"
    stage.budgets = {"shop": (pod_budget(allowed=0), pod_budget("second"))}
    assert stage.after(1800).evicted > 0


def test_what_was_tried_is_known_though_its_record_is_gone(stage: Stage) -> None:
    stage.webhook = False
    stage.deploy(*[SPOT] * 20)

    def lose() -> None:
        for one in stage.pods.values():
            one["metadata"]["annotations"].pop(names.ON_DEMAND_REPAIRED, None)

    stage.meanwhile = lose
    assert stage.after(3600).evicted == MOST_ATTEMPTS


def test_a_watch_that_is_behind_stops_everything_and_time_begins_anew(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.after(SETTLE_SECONDS - LOOK_SECONDS)
    stage.stale = "the watch of pods received nothing for 100 s"
    assert stage.after(600).asked == []
    stage.stale = ""
    assert stage.after(SETTLE_SECONDS - LOOK_SECONDS).asked == []
    assert stage.after(2 * LOOK_SECONDS).evicted == 1


def test_what_the_api_server_says_counts_whatever_the_cache_shows(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.after(SETTLE_SECONDS)
    stage.behind = True
    next(iter(stage.pods.values()))["status"]["conditions"] = []
    assert stage.after(600).evicted == 0


@pytest.mark.parametrize(
    "pause", [Pause(PauseValue(DISRUPTION)), Pause(pools={"pool-spot": PauseValue(DISRUPTION)})], ids=["all", "pool"]
)
def test_a_pause(stage: Stage, pause: Pause) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.pause = pause
    assert stage.after(1800).evicted == 0
    assert not (pause.covers_all(Activity.CONSOLIDATION) and stage.asked), "the API server is asked in vain"
    stage.pause = NOTHING
    assert stage.after(1800).evicted > 0


@pytest.mark.parametrize(
    "change",
    [{"pause": Pause(PauseValue(DISRUPTION))}, {"stale": "the watch of nodes received nothing for 100 s"}],
    ids=["paused", "stale"],
)
def test_what_begins_during_a_look_holds_for_the_owners_that_come_after(stage: Stage, change: dict[str, Any]) -> None:
    for i in range(5):
        stage.deploy(*[SPOT] * 10, name=f"web-{i}")
    stage.meanwhile = lambda: vars(stage).update(change)
    assert stage.after(1800).evicted == 1
    assert len(stage.bearers()) == 1  # nothing else was written either


def test_a_rollout(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.deployment = {"updatedReplicas": 19}
    assert stage.after(1800).evicted == 0
    stage.refuse["GET", "/deployments/web"] = refusal(404, "NotFound")
    assert stage.after(1800).evicted == 0


def test_a_deployment_of_the_name_with_another_uid_is_another(stage: Stage) -> None:
    """The one that the ReplicaSet is of is gone, and so it and its pods go."""
    stage.deploy(*[SPOT] * 20)
    stage.sets["shop/web"]["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert stage.after(1800).evicted == 0


def test_a_brother_with_pods_is_a_rollout(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.sets["shop/canary"] = stage.sets["shop/web"] | {"spec": {"replicas": 1}}
    stage.sets["shop/canary"] = json.loads(json.dumps(stage.sets["shop/canary"]))
    stage.sets["shop/canary"]["metadata"] |= {"name": "canary", "uid": "shop-canary"}
    assert stage.after(1800).evicted == 0
    del stage.sets["shop/canary"]
    assert stage.after(1800).on_demand() == 4


# --- what it costs ----------------------------------------------------------------------------------------------

HOUR = 3600.0


def test_only_the_pods_of_the_owner_are_read(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 10)
    stage.deploy(*[SPOT] * 200, name="neighbour")
    for one in stage._of("shop", "neighbour"):
        del one["metadata"]["annotations"][names.ON_DEMAND_REPAIR]
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    assert (stage.evicted, stage.listed) == (1, 10)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "is not ready": lambda one: one["status"].update(conditions=[{"type": "Ready", "status": "False"}]),
    "waits": lambda one: one["spec"].pop("nodeName"),
    "ends": lambda one: one["metadata"].update(deletionTimestamp="2026-11-21T12:00:00Z"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_owner_with_a_pod_that_does_not_settle_is_not_read(
    stage: Stage, change: Callable[[dict[str, Any]], object]
) -> None:
    stage.deploy(*[SPOT] * 20)
    change(next(iter(stage.pods.values())))
    assert stage.after(HOUR).asked == []


def test_an_owner_that_moves_is_read_ever_less_often_and_its_pods_are_not(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.deployment = {"updatedReplicas": 19}
    stage.after(HOUR)
    assert stage.listed == 0
    assert sum(one.endswith("/replicasets") for one in stage.asked) == 0
    assert sum(one.endswith("/replicasets/web") for one in stage.asked) <= 12


@pytest.mark.parametrize("why", ["unknown", "held", "leaving"])
def test_an_owner_that_cannot_be_repaired_is_read_ever_less_often(stage: Stage, why: str) -> None:
    stage.deploy(*[SPOT] * 20, seated=False)
    if why == "held":
        for one in stage.pods.values():
            one["metadata"]["annotations"][names.DO_NOT_DISRUPT] = "true"
            one["metadata"]["labels"][names.ON_DEMAND_SHARE_LABEL] = SPOT.value
    else:
        labels = {names.CAPACITY_TYPE_LABEL: "spot"} if why == "leaving" else {}
        taints = ({"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"},) if why == "leaving" else ()
        stage.nodes["spot"] = node("spot", labels=labels, taints=taints)
        if why == "unknown":
            for one in stage.pods.values():
                one["metadata"]["labels"][names.ON_DEMAND_SHARE_LABEL] = SPOT.value
    stage.after(HOUR)
    assert stage.evicted == 0
    assert 20 <= stage.listed <= 20 * 12


def test_pods_that_run_elsewhere_than_the_webhook_meant_are_read_once(stage: Stage) -> None:
    """No spot capacity was to be had: they count as what the webhook gave them, which the cache alone does not tell."""
    stage.deploy(*[OD] * 6, *[SPOT] * 14)
    for one in stage.pods.values():
        one["spec"]["nodeName"] = OD.value
    stage.after(6 * HOUR)
    assert stage.listed == 20
    one = next(iter(stage.pods.values()))
    one["status"]["conditions"] = []
    stage.after(100)
    one["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert stage.after(6 * HOUR).listed == 20
    for each in stage._of("shop", "web"):
        each["metadata"]["labels"][names.ON_DEMAND_SHARE_LABEL] = SPOT.value
    assert stage.after(HOUR).evicted == 4  # and what becomes wrong is seen


def test_a_look_at_pods_that_do_not_change_asks_for_no_node(stage: Stage) -> None:
    stage.deploy(*[OD] * 6, *[SPOT] * 14)
    stage.after(SETTLE_SECONDS + 2 * LOOK_SECONDS)
    stage.looked_up.clear()
    stage.after(QUIET_SECONDS - 2 * LOOK_SECONDS)
    assert stage.looked_up == []
    gone = next(one for one in stage._of("shop", "web") if one["spec"]["nodeName"] == OD.value)
    del stage.pods[f"shop/{gone['metadata']['name']}"]
    stage.make("web", "shop", SPOT, seated=True)
    stage.after(SETTLE_SECONDS + 2 * LOOK_SECONDS)
    assert stage.looked_up != []


def test_namespaces_take_turns(stage: Stage) -> None:
    for i in range(2 * MOST_READ):
        stage.deploy(*[SPOT] * 3, name=f"many-{i}", namespace="greedy")
    stage.deploy(*[SPOT] * 20)
    stage.template = {names.STAMP_ON_DEMAND: "3", names.ON_DEMAND_REPAIR: "evict"}
    for one in stage.pods.values():
        one["metadata"]["annotations"] |= stage.template
    stage.after(SETTLE_SECONDS + LOOK_SECONDS)
    read = [one for one in stage.asked if "/replicasets/" in one]
    assert len(read) == MOST_READ
    assert "GET /apis/apps/v1/namespaces/shop/replicasets/web" in read
    stage.after(3 * AGAIN_SECONDS)
    assert len({one for one in stage.asked if "/replicasets/" in one}) == 2 * MOST_READ + 1


def test_a_look_ends_in_time_however_slow_the_api_server_is(stage: Stage) -> None:
    for i in range(5):
        stage.deploy(*[SPOT] * 10, name=f"web-{i}")
    stage.slow = LOOK_SECONDS / 5  # an owner takes six answers
    stage.after(SETTLE_SECONDS).repair.poll()
    assert len({one for one in stage.asked if "/replicasets/" in one}) == 1
    stage.after(10 * LOOK_SECONDS)
    assert len({one for one in stage.asked if "/replicasets/" in one}) == 5


def test_memory_of_owners_that_are_gone_is_given_back(stage: Stage) -> None:
    stage.deploy(*[SPOT] * 20)
    stage.after(100)
    stage.pods.clear()
    stage.after(LOOK_SECONDS)
    assert stage.repair._owners == {}
