"""No instance ends with a live pod on it, whatever the caches say; and nobody else ends instances."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeClaimMeta
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import CloudProvider, CloudProviderView
from provisioner.kube.errors import ApiError
from provisioner.termination.terminator import (
    HELD_SECONDS,
    MIN_TAINTED_SECONDS,
    UNREADABLE_SECONDS,
    EndState,
    InstanceEnding,
    Terminator,
)
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.instances import FakeInstances, Lingering
from tests.support.kube import FakeAnswer, Sent
from tests.support.rooms import controllers
from tests.support.worldserver import WorldServer

ID = "kwok://n"
REGISTERED = (names.LAUNCHED, names.REGISTERED)
DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}
EVERYTHING = [{"operator": "Exists"}]
UNREADABLE = {"spec__containers": 7}
TOO_DEEP = {"metadata__managedFields": [msgspec.Raw(b'{"a":' * 2000 + b"1" + b"}" * 2000)]}


def mine(**metadata: Any) -> NodeClaim:
    """The claim that is ended; the test puts its Node where it wants."""
    return claim("c", provider_id=ID, true=REGISTERED, deletionTimestamp=NOON.isoformat(), **metadata)


class Stage:
    """A terminator over an API server of which the caches know nothing."""

    def __init__(self) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.server.tell = False
        self.cloud = FakeInstances(ID)
        self.terminator: Terminator = self.server.terminator(self.cloud)

    def end(self, one: NodeClaim | None = None, *, minutes: float | None = None) -> InstanceEnding:
        one = one or mine()
        if minutes is not None:
            deadline = (self.world.clock.now() + timedelta(minutes=minutes)).isoformat()
            annotations = {**one.metadata.annotations, names.TERMINATION_TIMESTAMP: deadline}
            one = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=annotations))
        return self.terminator.end(one, by="test")

    def closed(self, *, for_seconds: float = MIN_TAINTED_SECONDS) -> None:
        """The Node has been tainted by us for so long."""
        self.server.taints.close(self.server.node("n"))
        self.world.clock.advance(for_seconds)

    @property
    def messages(self) -> str:
        return "\n".join(self.server.recorder.messages)


@dataclass(frozen=True)
class Case:
    put: Callable[[Stage], None]
    says: str
    seconds: float = HELD_SECONDS


def a_node(stage: Stage, **changes: Any) -> None:
    stage.server.put(node("n", provider_id=ID, **changes))


def with_pod(**changes: Any) -> Callable[[Stage], None]:
    def put(stage: Stage) -> None:
        a_node(stage)
        stage.server.bind("web", "n", **changes)

    return put


def under_two_names(stage: Stage) -> None:
    a_node(stage)
    stage.server.put(node("renamed", provider_id=ID))
    stage.server.bind("web", "renamed")


def without_provider_id(stage: Stage) -> None:
    joined = node("n", labels={names.NODEPOOL_LABEL: "general"})
    stage.server.put(joined)
    stage.server.objects["nodes"]["n"]["spec"]["providerID"] = ""
    stage.server.bind("web", "n")


def unreadable_node(stage: Stage) -> None:
    a_node(stage)
    stage.server.objects["nodes"]["n"]["metadata"]["labels"] = 7


def unreadable_status(stage: Stage) -> None:
    a_node(stage)
    stage.server.objects["nodes"]["n"]["status"]["conditions"] = 7
    stage.server.bind("web", "n")


def of_another_claim_too(stage: Stage) -> None:
    stage.world.cluster.claim_changed(None, claim("other", provider_id=ID, true=REGISTERED))


HELD = {
    "a live pod": Case(with_pod(), "1 pods are waiting to be evicted: default/web"),
    "a pod that ends": Case(
        with_pod(metadata__deletionTimestamp=(NOON + timedelta(seconds=30)).isoformat()), "default/web"
    ),
    "a pod that may not be disrupted": Case(
        with_pod(metadata__annotations={names.DO_NOT_DISRUPT: "true"}), "default/web"
    ),
    "a pod that cannot be decoded": Case(with_pod(**UNREADABLE), "default/web", UNREADABLE_SECONDS),
    "a pod with fields nested too deeply to be read, like any other": Case(with_pod(**TOO_DEEP), "default/web"),
    "a live pod under another name of the same instance": Case(under_two_names, "default/web"),
    "a Node that cannot be decoded": Case(unreadable_node, "Node n", UNREADABLE_SECONDS),
    "another claim has the instance": Case(of_another_claim_too, "NodeClaim other", UNREADABLE_SECONDS),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_what_holds_the_end_of_an_instance(case: Case) -> None:
    stage = Stage()
    case.put(stage)
    stage.world.clock.advance(60)
    for _ in range(2):
        stage.end()
        stage.world.clock.advance(10)
    ending = stage.end()
    assert (ending.state, ending.requeue_after) == (EndState.HELD, case.seconds)
    assert stage.cloud.ended == []
    assert case.says in stage.messages


def test_a_kubelet_that_writes_nonsense_into_its_status_keeps_nobody_from_draining_its_node() -> None:
    stage = Stage()
    unreadable_status(stage)
    assert stage.end().state is EndState.HELD
    stage.server.work_off()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.end().state is EndState.GONE


def nothing(_: Stage) -> None:
    pass


def a_pod_on_another_node_of_that_name(stage: Stage) -> None:
    """An address, and with it a name, that EC2 gave to a newer instance."""
    stage.server.put(node("n", provider_id="kwok://newer"))
    stage.server.bind("web", "n")


def of_a_node_that_says_whose_it_is(stage: Stage) -> None:
    stage.server.put(node("m", provider_id="kwok://m", labels={names.NODEPOOL_LABEL: "general"}))
    stage.server.bind("web", "m")


FREE = {
    "an instance that never joined": nothing,
    "a Node without pods": a_node,
    "a pod that tolerates everything": with_pod(spec__tolerations=EVERYTHING),
    "a mirror pod": with_pod(metadata__annotations={names.CONFIG_MIRROR: "x"}),
    "a pod that is done": with_pod(status={"phase": "Succeeded"}),
    "a pod on another node of the same name": a_pod_on_another_node_of_that_name,
    "a pod on a node of the pool that is another's": of_a_node_that_says_whose_it_is,
}


@pytest.mark.parametrize("skew", [timedelta(0), timedelta(hours=-1), timedelta(hours=1)], ids=str)
def test_a_pod_is_stuck_a_minute_after_its_grace_period_by_our_clock_whatever_the_api_servers_says(
    skew: timedelta,
) -> None:
    """A leader whose clock is a minute fast would end the node of each pod that is ending."""
    stage = Stage()
    ends = (stage.world.clock.now() + timedelta(seconds=30) + skew).isoformat()
    with_pod(metadata__deletionTimestamp=ends, metadata__deletionGracePeriodSeconds=30)(stage)
    assert stage.end().state is EndState.HELD
    stage.world.clock.advance(90)
    assert stage.end().state is EndState.HELD
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.end().state is not EndState.HELD


@pytest.mark.parametrize("put", FREE.values(), ids=FREE)
def test_what_does_not_hold_it(put: Callable[[Stage], None]) -> None:
    stage = Stage()
    put(stage)
    ending = stage.end()
    if ending.state is EndState.HELD:
        assert ending.requeue_after == pytest.approx(MIN_TAINTED_SECONDS)
        stage.world.clock.advance(MIN_TAINTED_SECONDS)
        ending = stage.end()
    assert ending.state is EndState.GONE
    assert stage.cloud.ended == [ID]


# ------------------------------------------------------------------ nodes that do not say whose they are


def never_registered(**changes: Any) -> NodeClaim:
    return claim("c", provider_id=ID, true=(names.LAUNCHED,), deletionTimestamp=NOON.isoformat(), **changes)


def test_a_live_pod_on_a_node_that_has_no_provider_id_yet_holds_the_end_and_is_left_alone() -> None:
    stage = Stage()
    without_provider_id(stage)
    ending = stage.end(never_registered())
    assert (ending.state, ending.requeue_after) == (EndState.HELD, UNREADABLE_SECONDS)
    assert "pod default/web on node n" in stage.messages
    stage.server.work_off()
    assert stage.server.has("pods", "web"), "it may be another's"
    assert stage.end(never_registered(), minutes=-1).state is EndState.GONE


UNREGISTERED = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}


def tainted(stage: Stage) -> None:
    without_provider_id(stage)
    stage.server.objects["nodes"]["n"]["spec"]["taints"] = [UNREGISTERED]


def labelled(**labels: str) -> Callable[[Stage], None]:
    def put(stage: Stage) -> None:
        without_provider_id(stage)
        stage.server.objects["nodes"]["n"]["metadata"]["labels"] |= {
            key.replace("_", "/", 1).replace("karpenter", "karpenter.sh"): value for key, value in labels.items()
        }

    return put


def owned(stage: Stage) -> None:
    without_provider_id(stage)
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "other", "uid": "other"}
    stage.server.objects["nodes"]["n"]["metadata"]["ownerReferences"] = [owner]


def older(stage: Stage) -> None:
    without_provider_id(stage)
    long_ago = (NOON - timedelta(hours=1)).isoformat()
    stage.server.objects["nodes"]["n"]["metadata"]["creationTimestamp"] = long_ago


STRANGERS = {
    "one on which nothing can run": tainted,
    "one of another pool": labelled(karpenter_nodepool="other"),
    "one that has registered": labelled(karpenter_registered="true"),
    "one that another claim owns": owned,
    "one that is older than the claim": older,
}


@pytest.mark.parametrize("put", STRANGERS.values(), ids=STRANGERS)
def test_nodes_that_cannot_be_its_own_hold_nothing(put: Callable[[Stage], None]) -> None:
    stage = Stage()
    put(stage)
    assert stage.end(never_registered()).state is EndState.GONE


def test_a_registered_claim_asks_no_stranger() -> None:
    stage = Stage()
    without_provider_id(stage)
    assert stage.end(mine()).state is EndState.GONE


def test_very_many_strangers_are_not_looked_at_one_by_one() -> None:
    stage = Stage()
    for number in range(60):
        name = f"n{number}"
        stage.server.put(node(name, labels={names.NODEPOOL_LABEL: "general"}))
        stage.server.objects["nodes"][name]["spec"]["providerID"] = ""
    assert stage.end(never_registered()).state is EndState.HELD
    assert len(stage.server.api.sent) < 5


def test_a_node_that_names_an_instance_in_an_annotation_does_not_hold_it() -> None:
    stage = Stage()
    stage.server.put(node("liar", provider_id="kwok://liar", annotations={"x": f'"providerID":"{ID}"'}))
    stage.server.objects["nodes"]["liar"]["metadata"]["labels"] = 7
    assert stage.end().state is EndState.GONE


def test_the_node_of_a_claim_that_stays_is_not_touched() -> None:
    stage = Stage()
    a_node(stage)
    of_another_claim_too(stage)
    stage.end()
    assert stage.server.done == []


def test_pods_of_a_node_that_came_under_the_same_name_while_we_looked_are_left_alone() -> None:
    stage = Stage()
    a_node(stage)
    stage.server.bind("web", "n")

    def respond(sent: Sent) -> FakeAnswer | None:
        if sent.path != "/api/v1/nodes":
            return None
        found = stage.server.answer(sent, None)
        stage.server.put(node("n", provider_id="kwok://newer"))
        return found

    stage.server.intercept = respond
    assert stage.end().state is EndState.GONE
    stage.server.work_off()
    assert (stage.server.done, stage.server.has("pods", "web")) == ([], True)


def test_an_instance_that_is_gone_needs_no_word_of_strangers() -> None:
    stage = Stage()
    without_provider_id(stage)
    stage.cloud.there.clear()
    assert stage.end(never_registered()).state is EndState.GONE


def test_live_pods_are_asked_to_leave_although_no_cache_knows_them() -> None:
    stage = Stage()
    with_pod()(stage)
    stage.end()
    stage.server.work_off()
    assert "POST evictions/web" in stage.server.done
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.end().state is EndState.GONE


def test_a_node_is_closed_before_its_pods_are_listed() -> None:
    stage = Stage()
    a_node(stage)
    stage.end()
    paths = [sent.path for sent in stage.server.api.sent]
    tainted = paths.index("/api/v1/nodes/n", paths.index("/api/v1/nodes/n") + 1)
    assert stage.server.api.sent[tainted].method == "PATCH"
    assert paths.index("/api/v1/pods") > tainted


@pytest.mark.parametrize("seconds", [0.0, 1.9])
def test_two_seconds_lie_between_the_taint_and_the_end(seconds: float) -> None:
    stage = Stage()
    a_node(stage)
    stage.closed(for_seconds=seconds)
    ending = stage.end()
    assert ending.state is EndState.HELD
    assert ending.requeue_after == pytest.approx(MIN_TAINTED_SECONDS - seconds)
    stage.world.clock.advance(ending.requeue_after)
    assert stage.end().state is EndState.GONE


def test_the_time_of_a_taint_that_was_taken_back_counts_for_nothing() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed(for_seconds=600)
    stage.server.taints.reopen(stage.server.node("n"))
    assert stage.end().requeue_after == pytest.approx(MIN_TAINTED_SECONDS)


def test_neither_does_that_of_a_taint_that_somebody_else_took_back() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed(for_seconds=600)
    del stage.server.objects["nodes"]["n"]["spec"]["taints"]
    assert stage.end().requeue_after == pytest.approx(MIN_TAINTED_SECONDS)


def test_a_taint_of_an_earlier_process_counts_from_when_we_first_saw_it() -> None:
    stage = Stage()
    a_node(stage, taints=(DISRUPTED,))
    assert stage.end().requeue_after == pytest.approx(MIN_TAINTED_SECONDS)
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.end().state is EndState.GONE


@pytest.mark.parametrize("what", ["pods", "nodes", "n"])
def test_a_list_that_fails_means_wait(what: str) -> None:
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.server.refuse[what] = 403
    if what == "n":  # the Node cannot be closed
        del stage.server.objects["nodes"]["n"]["spec"]["taints"]
    with pytest.raises(ApiError):
        stage.end(minutes=-5)
    assert stage.cloud.ended == []


def with_node_name(one: NodeClaim, name: str) -> NodeClaim:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, node_name=name))


def test_pods_of_a_node_that_somebody_deleted_from_under_them_leave_first() -> None:
    stage = Stage()
    stage.server.bind("web", "n")
    named = with_node_name(mine(), "n")
    assert stage.end(named).state is EndState.HELD
    stage.server.work_off()
    assert stage.end(named).state is EndState.GONE


def test_pods_of_a_node_that_took_over_the_name_do_not() -> None:
    stage = Stage()
    a_pod_on_another_node_of_that_name(stage)
    assert stage.end(with_node_name(mine(), "n")).state is EndState.GONE
    stage.server.work_off()
    assert stage.server.has("pods", "web")


GONE: dict[str, tuple[bool, CloudError | None, EndState]] = {
    "its Node is not ready, and there is no such instance": (False, None, EndState.GONE),
    "its kubelet lives, whatever the cloud says": (True, None, EndState.HELD),
    "the cloud does not say": (False, CloudError("throttled"), EndState.HELD),
}


@pytest.mark.parametrize(("ready", "error", "state"), GONE.values(), ids=GONE)
def test_pods_of_an_instance_that_is_gone_are_dead(ready: bool, error: CloudError | None, state: EndState) -> None:
    stage = Stage()
    stage.cloud.there.clear()
    stage.cloud.broken = error
    a_node(stage, ready=ready)
    stage.server.bind("web", "n")
    assert stage.end().state is state


def test_until_the_deadline_nothing_is_forced() -> None:
    stage = Stage()
    with_pod(metadata__annotations={names.DO_NOT_DISRUPT: "true"})(stage)
    stage.end(minutes=10)
    stage.server.work_off()
    assert stage.server.has("pods", "web")


def test_pods_that_need_longer_than_the_deadline_are_deleted_and_waited_for() -> None:
    stage = Stage()
    with_pod(metadata__annotations={names.DO_NOT_DISRUPT: "true"})(stage)
    assert stage.end(minutes=0.1).state is EndState.HELD
    stage.server.work_off()
    assert "DELETE pods/web" in stage.server.done
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.end(minutes=0.1).state is EndState.GONE


@pytest.mark.parametrize("put", [with_pod(**UNREADABLE), unreadable_node])
def test_what_cannot_be_read_holds_until_the_deadline_and_no_longer(put: Callable[[Stage], None]) -> None:
    stage = Stage()
    put(stage)
    stage.world.clock.advance(60)
    assert stage.end(minutes=1).state is EndState.HELD
    stage.world.clock.advance(10)
    assert stage.end(minutes=-1).state is EndState.GONE


def test_an_instance_whose_end_has_begun_is_asked_for_without_another_list() -> None:
    stage = Stage()
    lingering = Lingering(ID)
    stage.terminator = stage.server.terminator(lingering)
    assert stage.end().state is EndState.UNDER_WAY
    asked = len(stage.server.api.sent)
    lingering.lingers = False
    assert stage.end().state is EndState.GONE
    assert len(stage.server.api.sent) == asked


def test_an_instance_that_is_gone_is_not_looked_for_twice() -> None:
    stage = Stage()
    assert stage.end().state is EndState.GONE
    asked = len(stage.server.api.sent)
    assert stage.end().state is EndState.GONE
    assert len(stage.server.api.sent) == asked
    stage.terminator.forget(mine())
    stage.end()
    assert len(stage.server.api.sent) > asked


def test_an_end_that_the_cloud_refused_is_looked_into_again() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.cloud.broken = CloudError("OperationNotPermitted")
    with pytest.raises(CloudError):
        stage.end()
    stage.cloud.broken = None
    stage.server.bind("web", "n")
    assert stage.end().state is EndState.HELD


def test_the_node_of_nobody_may_go_when_it_is_empty() -> None:
    stage = Stage()
    with_pod()(stage)
    joined = stage.server.node("n")
    assert stage.terminator.drained(joined).state is EndState.HELD
    stage.server.work_off()
    stage.world.clock.advance(MIN_TAINTED_SECONDS)
    assert stage.terminator.drained(stage.server.node("n")).state is EndState.GONE


def test_looking_closes_nothing_and_ends_nothing() -> None:
    stage = Stage()
    with_pod()(stage)
    sight = stage.terminator.look(mine())
    assert [pod.name for pod in sight.pods] == ["web"]
    assert stage.server.done == []


# ------------------------------------------------------------------ nobody else

ENDING = {"terminator.py"}
LENDING = {("controllers.py", "terminate")}  # handed to the Terminator, not called


def calls_that_end() -> list[str]:
    """Where controllers name the methods by which a provider ends an instance."""
    found = []
    for path in controllers():
        for one in ast.walk(ast.parse(path.read_text())):
            if not isinstance(one, ast.Attribute) or path.name in ENDING or (path.name, one.attr) in LENDING:
                continue
            owner = ast.unparse(one.value)
            if one.attr in {"terminate", "terminate_instances"} or (
                one.attr == "delete"
                and owner.rpartition(".")[2].strip("_") in {"provider", "launcher", "instances", "cloud"}
            ):
                found.append(f"{path}:{one.lineno}: {ast.unparse(one)}")
    return found


def test_nobody_but_the_terminator_ends_instances() -> None:
    assert calls_that_end() == []


def test_controllers_are_given_a_provider_that_cannot_end_instances() -> None:
    assert not hasattr(CloudProviderView, "delete")
    assert hasattr(CloudProvider, "delete")


# ------------------------------------------------------------------ volumes


def attached(volume: str = "pv-1", node_name: str = "n") -> dict[str, Any]:
    return {
        "metadata": {"name": f"csi-{volume}", "uid": volume},
        "spec": {"attacher": "ebs", "nodeName": node_name, "source": {"persistentVolumeName": volume}},
        "status": 7,  # which nobody reads
    }


def test_the_instance_waits_for_its_volumes_after_its_pods() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.server.only("volumeattachments", attached(), attached("pv-2", "elsewhere"))
    held = stage.end()
    assert (held.state, held.volumes, stage.cloud.ended) == (EndState.HELD, ("pv-1",), [])
    assert stage.messages == "Waiting for 1 volume to detach: pv-1"
    stage.server.only("volumeattachments", attached("pv-2", "elsewhere"))
    assert stage.end().state is EndState.GONE


def test_while_pods_are_there_nobody_asks_for_volumes() -> None:
    stage = Stage()
    with_pod()(stage)
    stage.closed()
    stage.server.only("volumeattachments", attached())
    assert (stage.end().volumes, stage.end().state) == ((), EndState.HELD)


def test_volumes_do_not_hold_an_instance_beyond_its_deadline() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.server.only("volumeattachments", attached())
    assert stage.end(minutes=1).state is EndState.HELD
    stage.world.clock.advance(60)
    assert stage.end(minutes=0).state is EndState.GONE


def test_what_stays_attached_is_looked_at_less_and_less_often_but_at_the_deadline() -> None:
    """Every look lists all Nodes, and what a driver that is gone has left behind stays attached for ever."""
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.server.only("volumeattachments", attached())
    waits = []
    for _ in range(4):
        waits.append(stage.end().requeue_after)
        stage.world.clock.advance(40)
    assert waits == [2.0, 10.0, 20.0, 30.0]
    assert stage.end(minutes=0.25).requeue_after == 15.0


def test_volumes_of_pods_that_are_not_drained_are_not_awaited() -> None:
    stage = Stage()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}]
    with_pod(spec__tolerations=EVERYTHING, spec__volumes=volumes)(stage)
    stage.world.cluster.surrounding_changed(
        lambda keeper: keeper.claim_changed(
            None,
            PersistentVolumeClaim(
                metadata=VolumeClaimMeta(name="data-0", namespace="default"),
                spec=PersistentVolumeClaimSpec(volume_name="pv-1"),
            ),
        )
    )
    stage.closed()
    stage.server.only("volumeattachments", attached())
    assert stage.end().state is EndState.GONE


def test_volumes_of_an_instance_that_is_gone_are_not_awaited() -> None:
    stage = Stage()
    a_node(stage, ready=False)
    stage.closed()
    stage.cloud.there.clear()
    stage.server.only("volumeattachments", attached())
    assert stage.end().state is EndState.GONE


def test_a_right_that_is_missing_keeps_no_instance_running() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.server.refuse["volumeattachments"] = 403
    assert stage.end().state is EndState.GONE


def test_volumes_that_cannot_be_listed_are_awaited() -> None:
    stage = Stage()
    a_node(stage)
    stage.closed()
    stage.server.refuse["volumeattachments"] = 500
    with pytest.raises(ApiError):
        stage.end()
    assert stage.cloud.ended == []
