"""What one batch is asked: which pools, nodes and pods take part."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    CSIDriver,
    CSINode,
    LabelledNamespace,
    Node,
    NodeSelectorTerm,
    NodeSystemInfo,
    PersistentVolumeClaim,
    TopologySpreadConstraint,
)
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import opted_out
from provisioner.apis.shapes import FEATURES
from provisioner.cloudprovider.kwok import catalogue
from provisioner.options import Options
from provisioner.provisioning.provisioner import policies_of
from provisioner.scheduling import problem as asked
from provisioner.scheduling.problem import NODE_PENALTY, DevicePolicy, MinValuesPolicy, Packing, PreferencePolicy
from provisioner.scheduling.world import Gathered, Policies, without
from provisioner.scheduling.world import world_of as gathered_of
from provisioner.state.keys import NodeKey
from provisioner.state.lacking import ABSENT_SECONDS
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod, pool
from tests.support.problems import shape, term

TYPES = catalogue.generated().types
READY = {"type": "Ready", "status": "True", "lastTransitionTime": NOON.isoformat()}


DEFAULTS = Policies()


def gathered(world: World, *, ours: bool = True, policies: Policies = DEFAULTS) -> Gathered:
    snapshot = world.cluster.snapshot()
    return gathered_of(snapshot, lambda _: TYPES, frozenset(), lambda _: ours, policies)


def ask(world: World, **more: Any) -> asked.World:
    return gathered(world, **more).world


def world_of(*pools: NodePool) -> World:
    world = World()
    for one in pools:
        world.cluster.pool_changed(None, one)
    return world


LEFT_OUT: dict[str, dict[str, Any]] = {
    "is not ready": {"status": {"conditions": [READY | {"status": "False"}]}},
    "is not known to be ready": {"status": {}},
    "is static": {"replicas": 2},
    "has limits that cannot be read": {"limits": {"cpu": "many"}},
    "has a requirement that cannot be read": {
        "requirements": ({"key": "example.com/team", "operator": "Exists", "values": ["a"]},)
    },
}


@pytest.mark.parametrize("spec", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_pool_is_left_out_alone_that(spec: dict[str, Any]) -> None:
    found = gathered(world_of(pool("bad", **spec), pool("good")))
    assert [one.name for one in found.world.pools] == ["good"]
    assert {one.pool.name for one in found.unreadable} <= {"bad"}


def test_what_cannot_be_read_in_a_pool_comes_back_as_a_value() -> None:
    (one,) = gathered(world_of(pool("bad", limits={"cpu": "many"}))).unreadable
    assert (one.pool.name, one.left_out) == ("bad", True)
    assert "many" in one.error


@pytest.mark.parametrize(
    ("key", "text", "of_pool", "wanted", "told"),
    [
        (names.HOSTNAME_DOMAINS, "2", "hostname_domains", 2, 0),
        (names.HOSTNAME_DOMAINS, "0", "hostname_domains", 0, 0),
        (names.HOSTNAME_DOMAINS, "few", "hostname_domains", None, 1),
        (names.HOSTNAME_DOMAINS, "-1", "hostname_domains", None, 1),
        (names.PACKING, "greedy", "packing", Packing.GREEDY, 0),
        (names.PACKING, "cost", "packing", Packing.COST, 0),
        (names.PACKING, None, "packing", Packing.GREEDY, 0),
        (names.PACKING, "Cost", "packing", Packing.GREEDY, 1),
        (names.NODE_PENALTY, "0", "node_penalty", 0.0, 0),
        (names.NODE_PENALTY, "0.25", "node_penalty", 0.25, 0),
        (names.NODE_PENALTY, None, "node_penalty", NODE_PENALTY, 0),
        (names.NODE_PENALTY, "-1", "node_penalty", NODE_PENALTY, 1),
        (names.NODE_PENALTY, "1e9", "node_penalty", NODE_PENALTY, 1),
        (names.NODE_PENALTY, "nan", "node_penalty", NODE_PENALTY, 1),
    ],
)
def test_an_annotation_of_a_pool_says_how_its_nodes_are_chosen(
    key: str, text: str | None, of_pool: str, wanted: object, told: int
) -> None:
    annotated = pool("one")
    if text is not None:
        annotated.metadata.annotations[key] = text
    found = gathered(world_of(annotated), policies=policies_of(Options(packing="greedy")))
    assert [getattr(one, of_pool) for one in found.world.pools] == [wanted]
    assert [one.left_out for one in found.unreadable] == [False] * told


def test_a_pool_says_how_many_pods_of_one_owner_a_node_takes_even_where_it_makes_none() -> None:
    makes, static, odd = pool("one"), pool("static", replicas=2), pool("odd")
    makes.metadata.annotations[names.MAX_PODS_PER_WORKLOAD] = "3"
    static.metadata.annotations[names.MAX_PODS_PER_WORKLOAD] = "4"
    odd.metadata.annotations[names.MAX_PODS_PER_WORKLOAD] = "many"
    found = gathered(world_of(makes, static, odd))
    assert found.world.most_of_one == {"one": 3, "static": 4}
    assert [one.name for one in found.world.pools] == ["one"]
    assert [one.left_out for one in found.unreadable] == [True]


def test_a_pool_of_another_provider_takes_no_part() -> None:
    assert ask(world_of(pool("foreign")), ours=False).pools == ()


def test_a_pool_offers_what_remains_of_its_limits() -> None:
    world = world_of(pool(limits={"cpu": "10", "nodes": "3"}))
    world.existing_node("m")
    (one,) = ask(world).pools
    assert one.remaining is not None
    assert dict(one.remaining) == {"cpu": 6000, "nodes": 2}


def test_a_pool_without_limits_has_no_remainder() -> None:
    (one,) = ask(world_of(pool())).pools
    assert one.remaining is None


def test_a_pools_own_labels_are_requirements() -> None:
    (one,) = ask(world_of(pool(requirements=({"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]},)))).pools
    assert one.requirements.requirement(names.NODEPOOL_LABEL).single_value == "general"
    assert one.requirements.requirement("karpenter.kwok.sh/kwoknodeclass").single_value == "default"
    assert one.requirements.requirement(names.ARCH_LABEL).single_value == "arm64"


def test_nodes_take_pods_unless_they_leave() -> None:
    world = world_of(pool())
    for name in ("stays", "claim-goes", "node-goes", "disrupted"):
        world.existing_node(name)
    world.cluster.claim_changed(None, claim("coming"))
    world.cluster.claim_changed(
        None, claim("claim-goes", provider_id="kwok://claim-goes", deletionTimestamp=NOON.isoformat())
    )
    world.cluster.node_changed(None, node("node-goes", deletionTimestamp=NOON.isoformat()))
    taint = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
    world.cluster.node_changed(None, node("disrupted", taints=(taint,)))
    bins = ask(world).bins
    assert [one.name for one in bins if not one.leaving] == ["stays", "coming"]
    assert {one.name for one in bins if one.leaving} == {"claim-goes", "node-goes", "disrupted"}


def test_a_node_on_its_way_shows_that_it_will_be_ready_and_one_of_nobody_only_what_it_says() -> None:
    """Else a pod that selects ready nodes would have a new one though there is room on one that is coming."""
    world = world_of(pool())
    world.existing_node("ready")
    world.cluster.claim_changed(None, claim("coming"))
    world.cluster.claim_changed(
        None, claim("joins", provider_id="kwok://joins", true=(names.LAUNCHED, names.REGISTERED))
    )
    world.cluster.node_changed(None, node("joins"))
    world.cluster.node_changed(None, node("theirs", provider_id="other://theirs"))
    shown = {one.name: names.READY_LABELS.items() <= one.labels.items() for one in ask(world).bins}
    assert [name for name, ready in shown.items() if ready] == ["coming", "joins"]
    assert not any(names.READY_LABELS.items() <= one.labels.items() for one in world.cluster.snapshot().nodes)


def test_a_node_shows_its_room_less_what_is_kept() -> None:
    world = world_of(pool())
    world.add(pod("running", node="m", cpu="500m"), pod("waits", cpu="1"))
    world.existing_node("m", pods=(pod("waits"),))
    (one,) = ask(world).bins
    full = next(kind for kind in TYPES if kind.name == "c-4x-amd64-linux").allocatable["cpu"]
    assert one.room["cpu"] == full - 1500
    assert world.cluster.snapshot().pending == ()


def test_a_node_shows_its_pods_those_planned_on_it_and_its_volume_limits() -> None:
    world = world_of(pool())
    world.add(pod("here", node="m"), pod("planned"))
    world.existing_node("m", pods=(pod("planned"),))
    drivers = [{"name": "disk", "nodeID": "m", "allocatable": {"count": 3}}]
    world.cluster.csi_node_changed(
        None, msgspec.convert({"metadata": {"name": "m"}, "spec": {"drivers": drivers}}, CSINode)
    )
    (one,) = ask(world).bins
    assert [found.name for found in one.pods] == ["here", "planned"]
    assert dict(one.attach_limits) == {"disk": 3}


def csi_node(name: str, **counts: int) -> CSINode:
    drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": count}} for driver, count in counts.items()]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode)


def required(driver: str, *, there: bool = True) -> CSIDriver:
    spec = {"preventPodSchedulingIfMissing": there}
    return msgspec.convert({"metadata": {"name": driver}, "spec": spec}, CSIDriver)


def test_a_node_without_a_driver_that_must_be_there_takes_none_of_its_volumes() -> None:
    world = world_of(pool())
    world.existing_node("has")
    world.existing_node("lacks")
    world.cluster.claim_changed(None, claim("coming", provider_id="kwok://coming", true=(names.LAUNCHED,)))
    world.cluster.csi_node_changed(None, csi_node("has", disk=3))
    world.cluster.csi_node_changed(None, csi_node("lacks", other=2))
    before = {one.name: dict(one.attach_limits) for one in ask(world).bins}
    world.cluster.csi_driver_changed(None, required("disk"))
    assert {one.name: dict(one.attach_limits) for one in ask(world).bins} == before, "it may be starting"
    world.clock.advance(ABSENT_SECONDS)
    after = {one.name: dict(one.attach_limits) for one in ask(world).bins}
    assert before == {"has": {"disk": 3}, "lacks": {"other": 2}, "coming": {}}
    assert after == {"has": {"disk": 3}, "lacks": {"disk": 0, "other": 2}, "coming": {}}
    world.cluster.csi_driver_changed(required("disk"), required("disk", there=False))
    assert {one.name: dict(one.attach_limits) for one in ask(world).bins} == before


def test_what_a_node_lacks_is_not_learnt_of_its_type() -> None:
    world = world_of(pool())
    world.cluster.csi_driver_changed(None, required("disk"))
    kind = TYPES[0].name
    world.existing_node("m", labels={names.NODEPOOL_LABEL: "general", names.INSTANCE_TYPE_LABEL: kind})
    world.cluster.csi_node_changed(None, csi_node("m", other=2))
    assert ask(world).storage.attach_limits == {kind: {"other": 2}}


def test_new_nodes_of_kwok_never_have_a_driver_that_must_be_there() -> None:
    world = world_of(pool())
    world.cluster.csi_driver_changed(None, required("disk"))
    fake = policies_of(Options(provider="kwok"))
    assert ask(world, policies=policies_of(Options(provider="aws"))).storage.attach_limits == {}
    limits = ask(world, policies=fake).storage.attach_limits
    assert {dict(one) == {"disk": 0} for one in limits.values()} == {True}
    assert set(limits) == {kind.name for kind in TYPES}
    world.cluster.csi_driver_changed(required("disk"), None)
    assert ask(world, policies=fake).storage.attach_limits == {}


def test_a_node_shows_the_features_that_its_kubelet_declares_once_it_has_reported() -> None:
    world = world_of(pool())
    world.existing_node("m")
    world.cluster.claim_changed(None, claim("coming"))
    bare = node("m", labels={names.NODEPOOL_LABEL: "general"})

    def reported(*features: str) -> Node:
        info = NodeSystemInfo(kubelet_version="v1.37.2")
        status = msgspec.structs.replace(bare.status, node_info=info, declared_features=features)
        return msgspec.structs.replace(bare, status=status)

    first, second, *_ = FEATURES
    found = []
    for one in (bare, reported(), reported(first, second, "NoPodNeedsThis"), reported(first)):
        world.cluster.node_changed(None, one)
        found.append({each.name: each.features for each in ask(world).bins})
    declared: tuple[frozenset[str] | None, ...] = (None, frozenset(), frozenset({first, second}), frozenset({first}))
    assert found == [{"m": told, "coming": None} for told in declared]


def test_a_pod_that_moves_within_a_node_is_shown_once() -> None:
    world, one = world_of(pool()), pod("one", node="m")
    world.existing_node("m")
    world.add(one)
    world.cluster.assign(NodeKey("m"), (one,))
    (found,) = ask(world).bins
    assert [each.name for each in found.pods] == ["one"]


def test_a_node_is_the_same_object_until_something_of_it_changes() -> None:
    world = world_of(pool())
    world.existing_node("changes")
    world.existing_node("stays")
    before = {one.name: one for one in ask(world).bins}
    world.add(pod("new", node="changes"))
    after = {one.name: one for one in ask(world).bins}
    assert after["stays"] is before["stays"]
    assert after["changes"] is not before["changes"]
    assert [one.name for one in after["changes"].pods] == ["new"]


def test_volumes_and_namespaces_are_handed_over() -> None:
    world = world_of(pool())
    claim_of_pod = msgspec.convert({"metadata": {"name": "data", "namespace": "shop"}}, PersistentVolumeClaim)
    namespace = msgspec.convert({"metadata": {"name": "shop", "labels": {"team": "a"}}}, LabelledNamespace)
    world.cluster.surrounding_changed(lambda keeper: keeper.claim_changed(None, claim_of_pod))
    world.cluster.surrounding_changed(lambda keeper: keeper.namespace_changed(None, namespace))
    problem = ask(world)
    assert dict(problem.storage.claims) == {"shop/data": claim_of_pod}
    assert dict(problem.namespaces) == {"shop": {"team": "a"}}


def test_flags_become_policies() -> None:
    defaults = ask(world_of(pool()), policies=policies_of(Options()))
    assert (defaults.preferences, defaults.min_values, defaults.devices, defaults.spread_defaults.constraints) == (
        PreferencePolicy.RESPECT,
        MinValuesPolicy.STRICT,
        DevicePolicy.REFUSE,
        (),
    )
    spread = '{"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}'
    flags = [
        "--preference-policy=Ignore",
        "--min-values-policy=BestEffort",
        "--ignore-dra-requests=false",
        f'--scheduler-config={{"podTopologySpread": {{"defaultConstraints": [{spread}]}}}}',
    ]
    chosen = ask(world_of(pool()), policies=policies_of(Options.parse(flags, {})))
    assert (chosen.preferences, chosen.min_values, chosen.devices) == (
        PreferencePolicy.IGNORE,
        MinValuesPolicy.BEST_EFFORT,
        DevicePolicy.IGNORE,
    )
    assert chosen.spread_defaults.constraints == (
        TopologySpreadConstraint(
            max_skew=2,
            topology_key=names.ZONE_LABEL,
            when_unsatisfiable="DoNotSchedule",
            min_domains=3,
            node_affinity_policy="Ignore",
            node_taints_policy="Honor",
        ),
    )


@pytest.mark.parametrize(("gate", "may"), [("true", True), ("false", False)])
def test_reserved_capacity_is_left_alone_without_its_gate(gate: str, may: bool) -> None:
    policies = policies_of(Options.parse([f"--feature-gates=ReservedCapacity={gate}"], {}))
    (one,) = ask(world_of(pool()), policies=policies).pools
    capacity_type = one.requirements.requirement(names.CAPACITY_TYPE_LABEL)
    assert capacity_type.has(names.CAPACITY_RESERVED) is may
    assert capacity_type.has(names.CAPACITY_SPOT)


NO_POOL = term((names.NODEPOOL_LABEL, "DoesNotExist", []))
A_ZONE = term((names.ZONE_LABEL, "In", ["a"]))
OPTED: dict[str, tuple[list[NodeSelectorTerm], bool]] = {
    "asks for nothing": ([], False),
    "wants a node without a NodePool": ([NO_POOL], True),
    "would take another node as well": ([NO_POOL, A_ZONE], False),
    "wants a zone": ([A_ZONE], False),
}


@pytest.mark.parametrize(("terms", "out"), OPTED.values(), ids=OPTED.keys())
def test_a_pod_that(terms: list[NodeSelectorTerm], out: bool) -> None:
    one = shape(terms=terms) if terms else shape()
    assert opted_out(msgspec.structs.replace(pod("one"), shape=one)) is out


def test_without_a_claim_its_pods_wait_and_its_share_of_the_limits_is_free() -> None:
    world, one = world_of(pool(limits={"cpu": "10", "nodes": "3"})), pod("one")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    world.cluster.claim_changed(None, claim("waits-too"))
    world.existing_node("b")
    rest, pods = without(world.cluster.snapshot(), ["a"])
    assert pods == (one,)
    assert [str(view.key) for view in rest.nodes] == ["b"]
    (left,) = gathered_of(rest, lambda _: TYPES, frozenset(), lambda _: True).world.pools
    assert left.remaining is not None
    assert dict(left.remaining) == {"cpu": 2000, "nodes": 1}


def test_without_a_claim_that_is_gone_nothing_changes() -> None:
    world = world_of(pool())
    snapshot = world.cluster.snapshot()
    assert without(snapshot, ["a"]) == (snapshot, ())
