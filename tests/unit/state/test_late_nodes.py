"""A Node that still lacks what its planned pods need: a resource of a device plugin, or a CSI driver. kube-scheduler refuses them there meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import CSIDriver, CSINode, Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod, PodShape
from provisioner.state.effects import Effect, PodMissed, PodSettled
from provisioner.state.keys import NodeKey
from provisioner.state.lacking import Lacking
from provisioner.state.misses import UNANSWERED
from provisioner.values.taints import Taint
from tests.support.cluster import World, bound, claim, node, pod, refused
from tests.support.problems import DRIVER, shape, storage_class, uses, volume_claim

A, B = NodeKey("a"), NodeKey("b")
GPU = "nvidia.com/gpu"
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
BEFORE = "0/2 nodes are available: 2 Insufficient cpu."
LACKS = {
    GPU: "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 Insufficient cpu.",
    DRIVER: f"0/3 nodes are available: 1 {DRIVER} CSI driver is not installed on the node, 2 Insufficient cpu.",
}
PORTS = "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 2 Insufficient cpu."
TAINTED = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
SPREAD = "0/4 nodes are available: 2 node(s) didn't match pod topology spread constraints, 2 Insufficient cpu."


def joined(name: str, *, gpus: str | None = "1", taints: tuple[dict[str, str], ...] = ()) -> Node:
    made = node(name, taints=taints)
    more = {} if gpus is None else {GPU: gpus}
    status = msgspec.structs.replace(made.status, allocatable={**made.status.allocatable, **more})
    return msgspec.structs.replace(made, status=status)


@dataclass(frozen=True)
class Late:
    """Something that comes late to a Node: what a pod has that needs it, what kube-scheduler says meanwhile, how it comes and goes."""

    shape: PodShape
    said: str
    comes: Callable[[World, str], object]
    goes: Callable[[World, str], object]
    required: bool = True


def gpus(count: str | None) -> Callable[[World, str], object]:
    return lambda world, name: world.cluster.node_changed(world.cluster.node(name), joined(name, gpus=count))


def drivers(*drivers: str) -> Callable[[World, str], object]:
    spec = {"drivers": [{"name": driver, "nodeID": "n"} for driver in drivers]}
    return lambda world, name: world.cluster.csi_node_changed(
        None, msgspec.convert({"metadata": {"name": name}, "spec": spec}, CSINode)
    )


ON_A_GPU, ON_A_DISK = shape(more={GPU: "1"}), shape(volumes=uses("data"))
KINDS = {
    "a resource that no device plugin has registered": Late(ON_A_GPU, LACKS[GPU], gpus("1"), gpus(None)),
    "a resource of which there are 0": Late(ON_A_GPU, LACKS[GPU], gpus("1"), gpus("0")),
    "a CSI driver that must be there": Late(ON_A_DISK, LACKS[DRIVER], drivers(DRIVER), drivers()),
    "a CSI driver whose topology a volume asks for": Late(
        ON_A_DISK,
        "0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 2 Insufficient cpu.",
        drivers(DRIVER, "other.example.com"),
        drivers("other.example.com"),
        required=False,
    ),
}
of_each_kind = pytest.mark.parametrize("late", KINDS.values(), ids=KINDS)


def planned_claim(one: Pod, *true: str) -> NodeClaim:
    """The claim `a`, whose node is to have a GPU."""
    made = claim("a", pods=(one,), provider_id="kwok://a", true=true)
    amounts = {**made.status.allocatable, GPU: "1"}
    return msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, capacity=amounts, allocatable=amounts)
    )


def arranged(late: Late, *, true: tuple[str, ...] = (names.LAUNCHED, names.REGISTERED)) -> tuple[World, Pod]:
    """Two other nodes, and a pod planned for the claim `a`, whose Node is ready and open but for what comes late."""
    world, one = World(), refused(pod("one", shape=late.shape), BEFORE)
    body = {"metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": late.required}}
    world.cluster.csi_driver_changed(None, msgspec.convert(body, CSIDriver))
    world.cluster.surrounding_changed(lambda around: around.claim_changed(None, volume_claim("data")))
    world.cluster.surrounding_changed(lambda around: around.class_changed(None, storage_class()))
    for name in ("x", "y"):
        world.cluster.node_changed(None, node(name))
    world.add(one)
    world.cluster.claim_changed(None, planned_claim(one, names.LAUNCHED))
    world.cluster.node_changed(None, joined("a", gpus=None, taints=(UNREGISTERED,)))
    late.goes(world, "a")
    if (known := world.cluster.node("a")) is not None and known.spec.taints:
        world.cluster.node_changed(known, joined("a", gpus=None))
    world.cluster.claim_changed(world.cluster.claim("a"), planned_claim(one, *true))
    return world, one


def with_a_peer(late: Late) -> World:
    """As arranged, and beside it a node of the same batch, which is open and lacks nothing, for the pod `peer`."""
    world, _ = arranged(late)
    peer = refused(pod("peer", owner="r2"), BEFORE)
    world.add(peer)
    world.cluster.claim_changed(None, claim("b", pods=(peer,), provider_id="kwok://b", true=(names.LAUNCHED,)))
    world.cluster.node_changed(None, node("b", taints=(UNREGISTERED,)))
    world.cluster.node_changed(world.cluster.node("b"), node("b"))
    return world


def says(world: World, text: str, uid: str = "one") -> list[Effect]:
    """kube-scheduler refuses a pod with these words."""
    known = world.cluster.pod(uid)
    assert known is not None
    return world.cluster.pod_changed(known, refused(known, text))


def missed(effects: list[Effect]) -> list[str]:
    return [effect.cause for effect in effects if isinstance(effect, PodMissed)]


def waits(world: World, seconds: float) -> list[Effect]:
    """Time passes, and the state is asked every second."""
    found: list[Effect] = []
    for _ in range(int(seconds)):
        world.clock.advance(1)
        found += world.cluster.expire()
    return found


@of_each_kind
def test_a_pod_is_not_missed_on_a_node_that_still_lacks_what_it_needs(late: Late) -> None:
    world, _ = arranged(late)
    assert says(world, late.said) == []
    assert waits(world, 60) == []
    assert world.assigned("a") == ["one"]
    late.comes(world, "a")
    assert waits(world, 14) == []
    one = world.cluster.pod("one")
    assert one is not None
    assert world.cluster.pod_changed(one, bound(one, "a")) == [PodSettled(A, "one", "planned")]


@of_each_kind
def test_what_kube_scheduler_says_before_it_came_does_not_count_whenever_it_is_seen(late: Late) -> None:
    world, _ = arranged(late)
    says(world, TAINTED)
    world.clock.advance(10)
    known = world.cluster.pod("one")
    assert known is not None
    before = refused(known, late.said)
    late.comes(world, "a")
    assert missed(world.cluster.pod_changed(known, before)) == []
    assert missed(waits(world, 14)) == []


def test_where_the_watch_of_pods_lags_what_is_older_than_the_resource_does_not_count() -> None:
    late = KINDS["a resource that no device plugin has registered"]
    world, one = arranged(late)
    before = refused(one, late.said)
    late.comes(world, "a")
    world.clock.advance(5)
    assert missed(world.cluster.pod_changed(one, before)) == []
    assert missed(says(world, PORTS)) == ["host_ports"]


@of_each_kind
def test_a_pod_that_is_refused_after_it_came_is_missed(late: Late) -> None:
    world, _ = arranged(late)
    says(world, late.said)
    world.clock.advance(30)
    late.comes(world, "a")
    world.clock.advance(1.5)
    assert missed(says(world, PORTS)) == ["host_ports"]


@of_each_kind
def test_a_pod_that_gets_no_answer_after_it_came_is_missed_after_the_usual_patience(late: Late) -> None:
    world, _ = arranged(late)
    says(world, late.said)
    waits(world, 60)
    assert not world.cluster.is_unanswered("one")
    late.comes(world, "a")
    assert world.cluster.is_unanswered("one")
    world.clock.advance(1)
    other = refused(pod("other", owner="", cpu="999"), BEFORE)
    world.add(other)
    says(world, PORTS, "other")  # the scheduler lives
    assert missed(waits(world, 12)) == []
    assert missed(waits(world, 4)) == [UNANSWERED]


@of_each_kind
def test_what_never_comes_is_waited_for_as_long_as_the_plan_lasts(late: Late) -> None:
    world, _ = arranged(late)
    says(world, late.said)
    assert waits(world, 899) == []
    effects = waits(world, 2)
    assert [one.outcome for one in effects if isinstance(one, PodSettled)] == ["missed"]
    assert world.cluster.snapshot().avoided == {"one": frozenset({"a"})}, "it would be planned there again, for ever"


INITIALIZED = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


@of_each_kind
def test_what_an_initialized_node_lacks_may_never_come(late: Late) -> None:
    """A GPU that died, a driver that was removed. A new node is initialized without the drivers that need not be there."""
    world, _ = arranged(late, true=INITIALIZED)
    said = says(world, late.said)
    if late.shape is ON_A_DISK:
        assert missed(said + waits(world, 98)) == []
        assert world.assigned("a") == ["one"]
    assert len(missed(said + waits(world, 8))) == 1
    assert world.assigned("a") == []


def test_a_driver_that_restarts_is_waited_for_a_minute() -> None:
    late = KINDS["a CSI driver that must be there"]
    world, _ = arranged(late)
    late.comes(world, "a")
    world.cluster.claim_changed(world.cluster.claim("a"), planned_claim(pod("one", shape=late.shape), *INITIALIZED))
    world.cluster.snapshot()
    waits(world, 200)
    world.add(refused(pod("later", owner="r2", shape=late.shape), BEFORE))
    world.cluster.assign(A, (pod("later", owner="r2", shape=late.shape),))
    late.goes(world, "a")
    world.cluster.snapshot()
    waits(world, 2)
    assert missed(says(world, late.said, "later") + waits(world, 50)) == []
    assert world.assigned("a") == ["later"]
    assert len(missed(waits(world, 15))) == 1


@of_each_kind
def test_on_an_initialized_node_pod_after_pod_is_judged_at_once(late: Late) -> None:
    world, _ = arranged(late, true=INITIALIZED)
    world.cluster.pod_changed(world.cluster.pod("one"), None)
    world.cluster.snapshot()
    waits(world, 130)
    for name in ("later", "last"):
        world.add(refused(pod(name, shape=late.shape), BEFORE))
        world.cluster.assign(A, (pod(name, shape=late.shape),))
        waits(world, 2)
        says(world, late.said, name)
        waits(world, 8)
        assert world.assigned("a") == []


@of_each_kind
def test_pods_that_are_planned_later_wait_only_while_the_node_is_new(late: Late) -> None:
    """Others' pods, for which the node was not launched: they keep it neither from being initialized nor from being used."""
    world, _ = arranged(late)
    world.cluster.pod_changed(world.cluster.pod("one"), None)
    waits(world, 3)
    later = refused(pod("later", owner="r2", shape=late.shape), BEFORE)
    world.add(later)
    waits(world, 1)
    world.cluster.assign(A, (later,))
    waits(world, 2)
    says(world, late.said, "later")
    held = late.required
    assert any(lacking(world)) is held
    assert missed(waits(world, 90)) == []
    assert any(lacking(world)) is held
    assert len(missed(waits(world, 20))) == 1
    again = refused(pod("again", owner="r3", shape=late.shape), BEFORE)
    world.add(again)
    world.cluster.assign(A, (again,))
    assert not any(lacking(world))
    waits(world, 2)
    assert len(missed(says(world, late.said, "again") + waits(world, 8))) == 1


@pytest.mark.parametrize(
    "late", [one for one in KINDS.values() if one.shape is ON_A_DISK], ids=["required", "asked for"]
)
def test_what_was_said_before_a_driver_came_is_no_evidence_however_late_it_is_seen(late: Late) -> None:
    """The Node does not change with its CSINode."""
    world, _ = arranged(late)
    known = world.cluster.pod("one")
    assert known is not None
    early, later = refused(known, late.said), refused(known, "").resource_version
    waits(world, 10)
    named = {
        "metadata": {"name": "a", "resourceVersion": later},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": "n"}]},
    }
    world.cluster.csi_node_changed(None, msgspec.convert(named, CSINode))
    waits(world, 3)
    assert missed(world.cluster.pod_changed(known, early) + waits(world, 8)) == []
    assert missed(says(world, PORTS) + waits(world, 8)) == ["host_ports"]


def lacking(world: World) -> Lacking:
    known = world.cluster.node("a")
    assert known is not None
    return world.cluster.lacking(A, known)


@of_each_kind
def test_a_cordon_ends_the_wait(late: Late) -> None:
    world, _ = arranged(late)
    waits(world, 5)
    known = world.cluster.node("a")
    assert known is not None
    cordon = Taint(key=names.CORDONED_TAINT_KEY, effect="NoSchedule")
    version = str(int(known.metadata.resource_version) + 1000)
    effects = world.cluster.node_changed(
        known,
        msgspec.structs.replace(
            known,
            spec=msgspec.structs.replace(known.spec, taints=(cordon,)),
            metadata=msgspec.structs.replace(known.metadata, resource_version=version),
        ),
    )
    assert effects == [PodSettled(A, "one", "lost")]


@of_each_kind
def test_a_node_that_loses_it_again_is_closed_again(late: Late) -> None:
    world, _ = arranged(late)
    late.comes(world, "a")
    waits(world, 5)
    late.goes(world, "a")
    assert missed(says(world, late.said)) == []
    assert missed(waits(world, 30)) == []
    late.comes(world, "a")
    world.clock.advance(2)
    assert missed(says(world, PORTS)) == ["host_ports"]


@of_each_kind
def test_pods_that_do_not_need_it_are_judged_as_ever(late: Late) -> None:
    world, _ = arranged(late)
    world.add(refused(pod("plain"), BEFORE))
    world.cluster.assign(A, [pod("plain")])
    waits(world, 2)
    assert missed(says(world, PORTS, "plain")) == ["host_ports"]
    world.add(refused(pod("silent", owner="r2"), BEFORE))
    world.cluster.assign(A, [pod("silent")])
    says(world, late.said)
    world.add(refused(pod("other", owner="", cpu="999"), BEFORE))
    world.clock.advance(1)
    says(world, PORTS, "other")
    assert missed(waits(world, 17)) == [UNANSWERED]
    assert world.assigned("a") == ["one"]


@of_each_kind
def test_a_node_that_lacks_it_is_still_coming_for_the_pods_of_a_spread(late: Late) -> None:
    world = with_a_peer(late)
    assert missed(says(world, SPREAD, "peer")) == []
    assert missed(waits(world, 60)) == []
    late.comes(world, "a")
    assert missed(waits(world, 1)) == ["topology_spread"]


@of_each_kind
def test_for_the_pods_of_a_spread_it_is_coming_only_while_it_is_new(late: Late) -> None:
    world = with_a_peer(late)
    assert missed(says(world, SPREAD, "peer") + waits(world, 95)) == []
    assert missed(waits(world, 10)) == ["topology_spread"]
    assert world.assigned("a") == ["one"]


@of_each_kind
def test_a_successor_waits_like_the_pod_whose_place_it_takes(late: Late) -> None:
    world, one = arranged(late)
    world.cluster.pod_changed(world.cluster.pod("one"), None)
    later = refused(pod("two", shape=late.shape), late.said)
    world.add(later)
    assert world.assigned("a") == ["two"]
    assert missed(waits(world, 60)) == []
    assert one.shape.key == later.shape.key


def test_a_provisioner_that_is_no_csi_driver_is_waited_for_by_nobody() -> None:
    """Nothing says that it will ever be in a CSINode."""
    late = Late(ON_A_DISK, LACKS[DRIVER], drivers(DRIVER), drivers(), required=False)
    world, _ = arranged(late)
    body = {"metadata": {"name": DRIVER}}
    world.cluster.csi_driver_changed(msgspec.convert(body, CSIDriver), None)
    world.clock.advance(2)
    assert missed(says(world, PORTS)) == ["host_ports"]


def test_a_node_joins_open_where_everything_is_there_already() -> None:
    late = KINDS["a resource that no device plugin has registered"]
    world, one = World(), refused(pod("one", shape=late.shape), BEFORE)
    for name in ("x", "y"):
        world.cluster.node_changed(None, node(name))
    world.add(one)
    world.cluster.claim_changed(None, planned_claim(one, names.LAUNCHED))
    world.cluster.node_changed(None, joined("a", taints=(UNREGISTERED,)))
    world.cluster.node_changed(world.cluster.node("a"), joined("a"))
    assert missed(says(world, PORTS)) == ["host_ports"], (
        "it counts the Node, and no taint: said of the open node, at once"
    )


def test_what_a_claims_plan_needs_counts_whether_its_pods_wait_or_still_run_elsewhere() -> None:
    """The pods of a node that is replaced run until their successors' node is there: it is to have all that they need before they are evicted."""
    late = KINDS["a CSI driver that must be there"]
    world, one = arranged(late)
    known = world.cluster.node("a")
    assert known is not None
    assert world.cluster.lacking(A, known).drivers == (DRIVER,)
    moving = pod("moving", owner="r2", shape=shape(more={GPU: "1"}), node="x")
    world.add(moving)
    world.cluster.node_changed(
        world.cluster.node("x"), node("x", taints=({"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"},))
    )
    world.cluster.assign(A, [moving])
    assert world.cluster.lacking(A, known).resources == (GPU,)
    late.comes(world, "a")
    assert world.cluster.lacking(A, known).drivers == ()
    assert world.cluster.lacking(A, joined("a")).resources == ()
    assert one.uid in {each.uid for each in world.view("a").assigned}
