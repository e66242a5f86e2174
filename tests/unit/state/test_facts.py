"""What the state tells scheduling of nodes beside their room: pods, attach limits, and what daemons will take."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    CSIDriver,
    CSINode,
    DaemonSet,
    LimitRange,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.state.effects import DaemonSetUnreadable
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node, pod
from tests.support.problems import shape


def csi_node(name: str, **limits: int) -> CSINode:
    drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": count}} for driver, count in limits.items()]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode)


def daemon_set(cpu: str = "", *, image: str = "agent:1") -> DaemonSet:
    requests = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    body = {
        "metadata": {"name": "agent", "namespace": "agents", "uid": "agent"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image, **requests}]}}},
    }
    return msgspec.convert(body, DaemonSet)


def limit_range(cpu: str) -> LimitRange:
    item: dict[str, Any] = {"type": "Container", "defaultRequest": {"cpu": cpu}}
    return msgspec.convert(
        {"metadata": {"name": "defaults", "namespace": "agents"}, "spec": {"limits": [item]}}, LimitRange
    )


def daemon_pod(name: str, cpu: str, *, age: float = 0.0, node: str = "a") -> Pod:
    made = NOON - timedelta(seconds=age)
    one = pod(name, owner="agent", kind="DaemonSet", namespace="agents", node=node, cpu=cpu)
    return msgspec.structs.replace(one, created=made)


# --- pods -----------------------------------------------------------------------------------------------------------


def test_a_node_shows_the_pods_that_are_planned_on_it_and_those_that_are_there() -> None:
    world, planned, here = World(), pod("planned"), pod("here", node="a")
    world.add(planned, here)
    world.existing_node("a", pods=(planned,))
    view = world.view("a")
    assert [one.name for one in view.pods] == ["here"]
    assert [one.name for one in view.assigned] == ["planned"]
    world.cluster.pod_changed(planned, bound(planned, "a"))
    view = world.view("a")
    assert ([one.name for one in view.pods], view.assigned) == (["here", "planned"], ())


def test_a_claim_without_a_node_shows_its_planned_pods_as_they_are_now() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    assert world.view("a").assigned == (one,)
    changed = msgspec.structs.replace(one, labels={"app": "new"})
    world.cluster.pod_changed(one, changed)
    assert world.view("a").assigned == (changed,)


def test_a_place_that_waits_for_a_successor_shows_no_pod() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.cluster.pod_changed(one, None)
    assert world.view("a").assigned == ()
    assert world.view("a").room["cpu"] == 2900


# --- attach limits --------------------------------------------------------------------------------------------------


def test_a_node_takes_the_volumes_that_its_csi_node_says_whichever_came_first() -> None:
    world = World()
    assert world.cluster.csi_node_changed(None, csi_node("early", disk=3))
    world.existing_node("early")
    world.existing_node("late")
    assert dict(world.view("late").attach_limits) == {}
    assert world.cluster.csi_node_changed(None, csi_node("late", disk=4))
    assert dict(world.view("early").attach_limits) == {"disk": 3}
    assert dict(world.view("late").attach_limits) == {"disk": 4}
    world.cluster.csi_node_changed(csi_node("late", disk=4), None)
    assert dict(world.view("late").attach_limits) == {}


def test_nodes_to_come_take_what_one_of_their_type_takes() -> None:
    world = World()
    labels = {names.NODEPOOL_LABEL: "general", names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux"}
    world.cluster.csi_node_changed(None, csi_node("first", disk=3))
    world.existing_node("first", labels=labels)
    world.existing_node("second", labels=labels)
    world.cluster.csi_node_changed(None, csi_node("second", disk=2))
    assert world.cluster.snapshot().around.attach_limits == {"c-4x-amd64-linux": {"disk": 3}}


def test_a_node_teaches_the_type_of_its_nodeclaim_and_of_no_other() -> None:
    world = World()
    claimed = {names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux"}
    world.cluster.claim_changed(
        None, claim("a", provider_id="kwok://a", labels={names.NODEPOOL_LABEL: "general", **claimed})
    )
    world.cluster.node_changed(None, node("a", labels={names.INSTANCE_TYPE_LABEL: "m-8x-amd64-linux"}))
    world.cluster.node_changed(None, node("nobodys", labels=claimed))
    for name in ("a", "nobodys"):
        world.cluster.csi_node_changed(None, csi_node(name, disk=int(name == "a")))
    assert world.cluster.snapshot().around.attach_limits == {"c-4x-amd64-linux": {"disk": 1}}


# --- daemons --------------------------------------------------------------------------------------------------------


def expected(world: World) -> int:
    """CPU that the DaemonSet is expected to take of a node without pods."""
    (one,) = world.cluster.snapshot().daemons
    assert world.view("empty").room["cpu"] == 3900 - one.requests["cpu"]
    return one.requests["cpu"]


def test_a_limit_range_changes_what_daemons_are_expected_to_take() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set())
    assert world.view("empty").room["cpu"] == 3900
    world.cluster.admission_changed(None, limit_range("500m"))
    assert expected(world) == 500
    world.cluster.admission_changed(limit_range("500m"), limit_range("700m"))
    assert expected(world) == 700
    world.cluster.admission_changed(limit_range("700m"), limit_range("700m"))
    world.cluster.admission_changed(limit_range("700m"), None)
    assert world.view("empty").room["cpu"] == 3900


def test_a_limit_range_that_came_before_the_daemon_set_counts() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.admission_changed(None, limit_range("500m"))
    world.cluster.daemonset_changed(None, daemon_set())
    assert expected(world) == 500


def test_the_newest_real_pod_says_what_daemons_take() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    world.add(daemon_pod("new", "300m"), daemon_pod("old", "900m", age=60))
    assert expected(world) == 300
    world.cluster.pod_changed(daemon_pod("new", "300m"), None)
    assert expected(world) == 300


def test_a_pod_that_came_before_its_daemon_set_counts() -> None:
    world = World()
    world.existing_node("empty")
    world.add(daemon_pod("new", "300m"))
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    assert expected(world) == 300


def test_a_new_template_counts_until_a_pod_was_made_from_it() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    old = daemon_pod("old", "300m", age=60)
    world.add(old)
    world.cluster.daemonset_changed(daemon_set("100m"), daemon_set("200m", image="agent:2"))
    assert expected(world) == 200
    world.cluster.pod_changed(old, msgspec.structs.replace(old, resource_version="2"))
    assert expected(world) == 200
    world.add(daemon_pod("new", "400m"))
    assert expected(world) == 400


def test_a_pod_that_is_resized_in_place_counts_as_it_is_now() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    one = daemon_pod("one", "300m")
    world.add(one)
    world.cluster.pod_changed(one, msgspec.structs.replace(one, shape=shape(cpu="350m")))
    assert expected(world) == 350


def test_a_daemon_set_that_is_gone_takes_nothing() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    world.cluster.daemonset_changed(daemon_set("100m"), None)
    assert world.cluster.snapshot().daemons == ()
    assert world.view("empty").room["cpu"] == 3900


FAKES: dict[str, dict[str, Any]] = {
    "is in another namespace": {"namespace": "tenant"},
    "names another DaemonSet": {"owner_name": "other"},
    "names a DaemonSet of another API group": {"group": "apps.kruise.io/v1alpha1"},
    "names another object of its name": {"owner_uid": "another"},
    "is not bound": {"node": ""},
}


@pytest.mark.parametrize("fake", FAKES.values(), ids=FAKES.keys())
def test_a_pod_says_nothing_about_a_daemon_set_that(fake: dict[str, Any]) -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    one = daemon_pod("one", "3", node=fake.get("node", "other"))
    owner = OwnerReference(
        api_version=fake.get("group", "apps/v1"),
        kind="DaemonSet",
        name=fake.get("owner_name", "agent"),
        uid=fake.get("owner_uid", "agent"),
        controller=True,
    )
    world.add(msgspec.structs.replace(one, owner=owner, namespace=fake.get("namespace", "agents")))
    assert expected(world) == 100


def test_a_pod_that_only_names_a_daemon_set_does_not_stand_in_for_one_that_is_due() -> None:
    world = World()
    world.existing_node("empty")
    world.cluster.daemonset_changed(None, daemon_set("100m"))
    fake = msgspec.structs.replace(daemon_pod("fake", "1", node="empty"), namespace="tenant")
    world.add(fake)
    assert world.view("empty").room["cpu"] == 3900 - 1000 - 100
    world.add(daemon_pod("real", "100m", node="empty"))
    assert world.view("empty").room["cpu"] == 3900 - 1000 - 100


ONLY: dict[str, tuple[str, str, bool]] = {
    "the architecture that is planned": (names.ARCH_LABEL, "amd64", True),
    "another architecture": (names.ARCH_LABEL, "arm64", False),
    "the operating system that is planned": (names.OS_LABEL, "linux", True),
    "another operating system": (names.OS_LABEL, "windows", False),
    "nodes that are registered": (names.REGISTERED_LABEL, "true", True),
    "nodes that are ready": (names.INITIALIZED_LABEL, "true", True),
}


@pytest.mark.parametrize(("key", "value", "counts"), ONLY.values(), ids=ONLY.keys())
def test_a_claim_of_a_pool_of_several_kinds_counts_daemons_that_want(key: str, value: str, counts: bool) -> None:
    world = World()
    wanted = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}}
    body = msgspec.to_builtins(daemon_set("100m"))
    body["spec"]["template"]["spec"]["affinity"] = affinity
    world.cluster.daemonset_changed(None, msgspec.convert(body, DaemonSet))
    several = claim("a", planned="c-4x-amd64-linux")
    several = msgspec.structs.replace(several, spec=msgspec.structs.replace(several.spec, requirements=()))
    world.cluster.claim_changed(None, several)
    assert world.view("a").room["cpu"] == (3800 if counts else 3900)
    assert key not in world.view("a").labels, "pods may not count on it: another type may be launched"


def test_a_daemon_that_is_still_due_takes_room_and_once_there_only_its_own() -> None:
    world = World()
    world.existing_node("a")
    world.cluster.daemonset_changed(None, daemon_set("500m"))
    assert world.view("a").room["cpu"] == 3400
    world.add(daemon_pod("agent-1", "500m", node="a"))
    assert world.view("a").room["cpu"] == 3400


def selecting(expressions: int, cpu: str = "100m") -> DaemonSet:
    """A DaemonSet whose pods require this many labels to be absent."""
    listed = tuple(NodeSelectorRequirement(key=f"k{n}", operator="DoesNotExist") for n in range(expressions))
    required = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=listed),))
    one = daemon_set(cpu)
    template = one.spec.template
    spec = msgspec.structs.replace(template.spec, affinity=Affinity(node_affinity=NodeAffinity(required=required)))
    template = msgspec.structs.replace(template, spec=spec)
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, template=template))


def test_a_daemon_set_that_selects_by_too_much_counts_for_no_node_and_is_told_once() -> None:
    world = World()
    world.existing_node("empty")
    short, long, longer = selecting(1), selecting(600), selecting(700)
    assert world.cluster.daemonset_changed(None, short) == []
    assert world.view("empty").room["cpu"] == 3800
    (told,) = world.cluster.daemonset_changed(short, long)
    assert isinstance(told, DaemonSetUnreadable)
    assert told.daemon_set is long
    assert told.problem.startswith("spec.template.spec.affinity.nodeAffinity.")
    assert "has 600 of the 600 expressions" in told.problem
    assert world.view("empty").room["cpu"] == 3900
    assert world.cluster.unreadable_daemon_sets() == [told]
    assert world.cluster.daemonset_changed(long, longer) == []
    assert world.cluster.daemonset_changed(longer, short) == []
    assert world.view("empty").room["cpu"] == 3800
    assert world.cluster.unreadable_daemon_sets() == []


def test_a_daemon_set_whose_requests_cannot_be_read_is_told() -> None:
    world = World()
    (told,) = world.cluster.daemonset_changed(None, daemon_set("much"))
    assert isinstance(told, DaemonSetUnreadable)
    assert told.problem.startswith("spec.template.spec.containers[0].resources.requests[cpu]")


# --- CSI drivers that must be there ---------------------------------------------------------------------------------

Step = str
DRIVER_STEPS: dict[str, tuple[list[Step | float], dict[str, int]]] = {
    "a driver that is there": (["comes", 90.0], {"disk": 3}),
    "a driver whose pod restarts": (["comes", 90.0, "goes", 30.0], {"disk": 3}),
    "a driver that is back": (["comes", "goes", 59.0, "comes", "goes", 59.0], {"disk": 3}),
    "a driver that went a minute ago": (["comes", 90.0, "goes", 60.0], {"disk": 0}),
    "a driver that is seconds away on a new node": ([59.0], {}),
    "a driver that does not come": ([60.0], {"disk": 0}),
    "a driver that comes after all": ([90.0, "comes"], {"disk": 3}),
    "a driver that need not be there any more": ([90.0, "not required"], {}),
    "a driver of a node that was not initialized until now": (["not initialized", 90.0, "initialized", 59.0], {}),
    "the same a minute later": (["not initialized", 90.0, "initialized", 60.0], {"disk": 0}),
}


@pytest.mark.parametrize(("steps", "want"), DRIVER_STEPS.values(), ids=DRIVER_STEPS)
def test_volumes_that_an_initialized_node_takes_of(steps: list[Step | float], want: dict[str, int]) -> None:
    """kube-scheduler refuses the pods while a driver is missing, and tries them again once it is back: no node is to be made for seconds."""
    world = World()

    def driver(required: bool) -> CSIDriver:
        body = {"metadata": {"name": "disk"}, "spec": {"preventPodSchedulingIfMissing": required}}
        return msgspec.convert(body, CSIDriver)

    def is_initialized(yes: bool) -> None:
        true = (names.LAUNCHED, names.REGISTERED, *([names.INITIALIZED] if yes else []))
        world.cluster.claim_changed(world.cluster.claim("a"), claim("a", provider_id="kwok://a", true=true))

    world.existing_node("a")
    world.cluster.csi_driver_changed(None, driver(True))
    world.cluster.expire()
    for step in steps:
        match step:
            case "comes":
                world.cluster.csi_node_changed(None, csi_node("a", disk=3))
            case "goes":
                world.cluster.csi_node_changed(csi_node("a", disk=3), csi_node("a"))
            case "not required":
                world.cluster.csi_driver_changed(driver(True), driver(False))
            case "initialized" | "not initialized":
                is_initialized(step == "initialized")
            case str():
                raise AssertionError(step)
            case seconds:
                world.clock.advance(seconds)
        world.cluster.expire()
    assert dict(world.view("a").attach_limits) == want
