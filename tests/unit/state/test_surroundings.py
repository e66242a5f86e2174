"""Volumes, namespaces and selectors: what events leave behind, and that what was handed out never changes."""

from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from provisioner.apis import names
from provisioner.apis.core import (
    ANY_NUMBER,
    CSIDriver,
    CSINode,
    LabelledNamespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodLabelling,
    PodSelecting,
    StorageClass,
)
from provisioner.apis.meta import LabelSelector
from provisioner.state.surroundings import TEACHERS, SurroundingsKeeper
from tests.support.clock import FakeClock

T = TypeVar("T")
KEYS = {"node": names.SELECTED_NODE, "bound": names.BIND_COMPLETED}


def made(kind: type[T], name: str, namespace: str = "", **body: Any) -> T:
    """One object as it is on the wire."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **body.pop("metadata", {})}
    return msgspec.convert({"metadata": meta, **body}, kind)


def csi_node(name: str, **limits: int | None) -> CSINode:
    """A CSINode with these drivers; None is a driver without a limit."""
    drivers = [
        {"name": driver, "nodeID": name, **({"allocatable": {"count": count}} if count is not None else {})}
        for driver, count in limits.items()
    ]
    return made(CSINode, name, spec={"drivers": drivers})


def service(name: str, selector: dict[str, str] | None, namespace: str = "shop") -> PodLabelling:
    return made(PodLabelling, name, namespace, spec={} if selector is None else {"selector": selector})


def test_objects_are_found_by_their_names_until_they_go() -> None:
    keeper = SurroundingsKeeper()
    claim = made(PersistentVolumeClaim, "data", "shop")
    volume, kind = made(PersistentVolume, "v"), made(StorageClass, "fast")
    keeper.claim_changed(None, claim)
    keeper.volume_changed(None, volume)
    keeper.class_changed(None, kind)
    keeper.namespace_changed(None, made(LabelledNamespace, "shop", metadata={"labels": {"team": "a"}}))
    around = keeper.frozen()
    assert dict(around.claims) == {"shop/data": claim}
    assert dict(around.volumes) == {"v": volume}
    assert dict(around.classes) == {"fast": kind}
    assert dict(around.namespaces) == {"shop": {"team": "a"}}

    keeper.claim_changed(claim, None)
    keeper.volume_changed(volume, None)
    keeper.class_changed(kind, None)
    keeper.namespace_changed(made(LabelledNamespace, "shop"), None)
    left = keeper.frozen()
    assert [dict(one) for one in (left.claims, left.volumes, left.classes, left.namespaces)] == [{}, {}, {}, {}]


def test_it_knows_since_when_an_unbound_claim_names_its_node() -> None:
    def claim(uid: str = "u", **annotations: str) -> PersistentVolumeClaim:
        named = {KEYS[key]: value for key, value in annotations.items()}
        return made(PersistentVolumeClaim, "data", "shop", metadata={"annotations": named, "uid": uid})

    clock = FakeClock()
    keeper = SurroundingsKeeper(clock.now)
    steps = [
        (claim(), None),
        (claim(node="n1"), 1),
        (claim(node="n1"), 1),
        (claim(node="n2"), 3),
        (claim(node="n2", bound="yes"), None),
        (claim(node="n2"), 5),
        (claim(node="n2", uid="another"), 6),
        (None, None),
    ]
    began, before = clock.now(), None
    for step, (one, since) in enumerate(steps):
        keeper.claim_changed(before, one)
        wanted = {} if since is None else {"shop/data": began + timedelta(minutes=since)}
        assert dict(keeper.frozen().selected) == wanted, step
        before = one
        clock.advance(60)


def test_what_was_handed_out_stays_as_it_was() -> None:
    keeper = SurroundingsKeeper()
    keeper.volume_changed(None, made(PersistentVolume, "old"))
    before = keeper.frozen()
    keeper.volume_changed(None, made(PersistentVolume, "new"))
    assert set(before.volumes) == {"old"}
    assert set(keeper.frozen().volumes) == {"old", "new"}


def test_what_did_not_change_is_not_copied_again() -> None:
    keeper = SurroundingsKeeper()
    keeper.volume_changed(None, made(PersistentVolume, "v"))
    before = keeper.frozen()
    keeper.claim_changed(None, made(PersistentVolumeClaim, "data", "shop"))
    after = keeper.frozen()
    assert after.volumes is before.volumes
    assert after.claims is not before.claims


def test_the_selectors_of_services_are_kept_by_namespace_those_without_are_left_out() -> None:
    keeper = SurroundingsKeeper()
    keeper.service_changed(None, service("b", {"app": "b"}))
    keeper.service_changed(None, service("a", {"app": "a"}))
    keeper.service_changed(None, service("headless", None))
    keeper.service_changed(None, service("a", {"app": "c"}, namespace="other"))
    assert keeper.frozen().services == {"shop": ({"app": "a"}, {"app": "b"}), "other": ({"app": "c"},)}
    keeper.service_changed(service("b", {"app": "b"}), service("b", None))
    keeper.service_changed(service("a", {"app": "a"}), None)
    keeper.service_changed(service("headless", None), None)
    assert dict(keeper.frozen().services) == {"other": ({"app": "c"},)}


def test_controllers_are_found_by_uid_whatever_their_kind_of_selector() -> None:
    keeper = SurroundingsKeeper()
    replicas = made(PodSelecting, "web", "shop", spec={"selector": {"matchLabels": {"app": "web"}}})
    old = made(PodLabelling, "old", "shop", spec={"selector": {"app": "old"}})
    keeper.controller_changed(None, replicas)
    keeper.replication_controller_changed(None, old)
    assert keeper.frozen().controllers == {
        "uid-web": LabelSelector(match_labels={"app": "web"}),
        "uid-old": LabelSelector(match_labels={"app": "old"}),
    }
    keeper.controller_changed(replicas, None)
    keeper.replication_controller_changed(old, None)
    assert not keeper.frozen().controllers


def test_a_driver_without_a_limit_takes_any_number_of_volumes() -> None:
    keeper = SurroundingsKeeper()
    assert keeper.csi_node_changed(None, csi_node("n", disk=3, files=None))
    assert dict(keeper.limits_of("n")) == {"disk": 3, "files": ANY_NUMBER}
    assert dict(keeper.limits_of("unknown")) == {}


def test_a_change_of_limits_is_told_and_nothing_else_of_a_csi_node() -> None:
    keeper = SurroundingsKeeper()
    assert keeper.csi_node_changed(None, csi_node("n", disk=3))
    assert not keeper.csi_node_changed(csi_node("n", disk=3), csi_node("n", disk=3))
    assert keeper.csi_node_changed(csi_node("n", disk=3), csi_node("n", disk=3, files=None))
    assert keeper.csi_node_changed(csi_node("n", disk=3, files=None), csi_node("n", disk=4))
    assert keeper.csi_node_changed(csi_node("n", disk=4), None)
    assert dict(keeper.limits_of("n")) == {}


def test_of_nodes_of_one_type_that_differ_the_median_is_learnt() -> None:
    keeper = SurroundingsKeeper()
    keeper.learn("m5.large", "a", {"disk": 25})
    keeper.learn("m5.large", "b", {"disk": 27, "files": 5})
    keeper.learn("m5.large", "c", {"disk": 24})
    keeper.learn("c5.large", "d", {"disk": 9})
    assert keeper.frozen().attach_limits == {"m5.large": {"disk": 25, "files": 5}, "c5.large": {"disk": 9}}


def test_one_kubelet_turns_no_volume_away_from_its_type() -> None:
    keeper = SurroundingsKeeper()
    keeper.learn("m5.large", "honest", {"disk": 25})
    for count in range(100, -1, -1):
        keeper.learn("m5.large", "liar", {"disk": count})
    assert keeper.frozen().attach_limits == {"m5.large": {"disk": 25}}


def test_the_memory_of_who_taught_what_is_bounded() -> None:
    keeper = SurroundingsKeeper()
    for number in range(10 * TEACHERS):
        keeper.learn("m5.large", f"node-{number}", {"disk": number})
    assert len(keeper._said["m5.large"]) == TEACHERS
    assert keeper.frozen().attach_limits["m5.large"]["disk"] >= 9 * TEACHERS


def csi_driver(name: str, required: bool | None) -> CSIDriver:
    return made(CSIDriver, name, spec={} if required is None else {"preventPodSchedulingIfMissing": required})


def test_a_driver_is_missing_where_it_must_be_there_and_is_not_listed() -> None:
    keeper = SurroundingsKeeper()
    assert not keeper.csi_driver_changed(None, csi_driver("disk", required=False))
    assert not keeper.csi_driver_changed(None, csi_driver("files", required=None))
    assert keeper.drivers_missing("n") == frozenset()
    assert keeper.csi_driver_changed(csi_driver("disk", required=False), csi_driver("disk", required=True))
    assert keeper.drivers_missing("n") == {"disk"}
    assert keeper.frozen().required_drivers == {"disk"}
    assert keeper.csi_node_changed(None, csi_node("n", disk=None))
    assert keeper.drivers_missing("n") == frozenset()
    assert keeper.drivers_missing("other") == {"disk"}
    assert keeper.csi_node_changed(csi_node("n", disk=None), csi_node("n"))
    assert keeper.drivers_missing("n") == {"disk"}
    assert keeper.csi_driver_changed(csi_driver("disk", required=True), None)
    assert keeper.drivers_missing("n") == frozenset()
    assert keeper.frozen().required_drivers == frozenset()


def test_a_driver_that_says_the_same_again_changes_nothing() -> None:
    keeper = SurroundingsKeeper()
    keeper.csi_driver_changed(None, csi_driver("disk", required=True))
    before = keeper.frozen()
    assert not keeper.csi_driver_changed(csi_driver("disk", required=True), csi_driver("disk", required=True))
    assert not keeper.csi_node_changed(csi_node("n"), csi_node("n"))
    assert keeper.frozen() is before


def test_a_driver_that_is_not_listed_for_a_while_takes_what_it_took() -> None:
    keeper = SurroundingsKeeper()
    keeper.csi_driver_changed(None, csi_driver("disk", required=True))
    keeper.csi_node_changed(None, csi_node("n", disk=3, files=5))
    assert keeper.csi_node_changed(csi_node("n", disk=3, files=5), csi_node("n"))
    assert dict(keeper.limits_of("n")) == {"disk": 3}, "of files nothing says that it is a CSI driver"
    assert keeper.drivers_missing("n") == {"disk"}
    assert keeper.csi_node_changed(csi_node("n"), csi_node("n", disk=4))
    assert dict(keeper.limits_of("n")) == {"disk": 4}
    assert keeper.drivers_missing("n") == frozenset()
    keeper.csi_node_changed(csi_node("n", disk=4), csi_node("n"))
    assert not keeper.csi_node_changed(csi_node("n"), None)
    assert (dict(keeper.limits_of("n")), keeper._lost) == ({}, {})
