from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec
import pytest
from botocore.exceptions import EndpointConnectionError

from provisioner.apis import ec2, names
from provisioner.apis.command import Awaited
from provisioner.apis.core import Node, NodeStatus
from provisioner.apis.ec2 import AMI, EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, SubnetStatus
from provisioner.apis.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassReference
from provisioner.apis.meta import ObjectMeta
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2.access import wire
from provisioner.ec2.access.wire import SpotRow
from provisioner.ec2.market import region_market
from provisioner.ec2.market.catalogue import Region
from provisioner.ec2.market.discovered_capacity import MemoryTable, Seen
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.market.region_market import (
    INSTANCE_TYPES_NOT_IN_TABLES,
    MARKET_SECONDS,
    MarketContext,
    Reads,
    RegionMarket,
)
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.ec2.settings import AwsSettings
from tests.support import ec2pages
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import claim as made
from tests.support.work import Lines

NAMES = ("c5.large", "m5.large")
SETTINGS = AwsSettings(cluster_name="blue", region="us-east-1")
GIB = 2**30
SPEC = NodeClaimSpec(node_class_ref=NodeClassReference(group=ec2.GROUP, kind=ec2.KIND, name="default"), requirements=())
ALL = (
    region_market.CATALOGUE,
    region_market.ON_DEMAND,
    region_market.SPOT,
    region_market.DISCOUNTS,
    region_market.PREFIXES,
)
A = TypeVar("A")


def region(*types: str) -> Region:
    infos = wire.instance_types(ec2pages.type_pages([ec2pages.described_types()[name] for name in types])[0])[0]
    return Region.of(infos, [(name, zone) for name in types for zone in ("a", "b")])


def node_class(*zones: str, family: str = "AL2023", image: str = "ami-1") -> EC2NodeClass:
    return EC2NodeClass(
        metadata=ObjectMeta(name="default"),
        spec=EC2NodeClassSpec(ami_family=family),
        status=EC2NodeClassStatus(
            subnets=tuple(
                SubnetStatus(id=f"subnet-{zone}", zone=zone, zone_id=f"id-{zone}") for zone in zones or ("a", "b")
            ),
            amis=(AMI(id=image),),
        ),
    )


class World:
    """AWS and the cluster as one test has them; what is an exception is raised."""

    def __init__(self) -> None:
        self.region: Region | Exception = region(*NAMES)
        self.spot: list[SpotRow] | Exception = [SpotRow(name, "a", 0.03, NOON) for name in NAMES]
        self.on_demand: list[dict[str, float]] | Exception = [{"m5.large": 0.1, "c5.large": 0.09}, {"m5.metal": 5.0}]
        self.discounts = ""
        self.prefixes = False
        self.ipv6 = False
        self.claims: list[NodeClaim] = []
        self.reserved: dict[str, int] = {}
        self.group: PlacementGroup | Exception | None = None
        self.asked: list[str] = []

    def market(
        self, clock: FakeClock, settings: AwsSettings = SETTINGS, changed: Callable[[], None] = lambda: None
    ) -> RegionMarket:
        reads = Reads(
            lambda: self._answer("region", self.region),
            lambda: self._answer("spot", self.spot),
            lambda: self._answer("on-demand", self.on_demand),
            lambda: self.discounts,
            lambda: self.prefixes,
        )
        around = MarketContext(
            reserved=lambda: self.reserved,
            claims=lambda: self.claims,
            group_of=lambda _: self._answer("group", self.group),
            ipv6=lambda _: self.ipv6,
        )
        return RegionMarket(settings, reads, around, Shortages(), MemoryTable(), clock, changed=changed)

    def _answer(self, what: str, value: A | Exception) -> A:
        self.asked.append(what)
        if isinstance(value, Exception):
            raise value
        return value


def filled(world: World, clock: FakeClock) -> RegionMarket:
    found = world.market(clock)
    for question in ALL:
        found.refresh(question)
    return found


def prices(types: tuple[InstanceType, ...], name: str, kind: str = names.CAPACITY_ON_DEMAND) -> set[float]:
    (found,) = [one for one in types if one.name == name]
    return {one.price for one in found.offerings if one.capacity_type == kind and one.available}


def test_before_the_region_is_read_there_is_nothing() -> None:
    found = World().market(FakeClock())
    assert (found.ready, found.types(node_class()), found.wait(0.0)) == (False, (), False)
    assert found.max_pods(node_class(), "m5.large") == 0


def test_a_placement_group_that_is_not_known_stops_launches_and_nothing_else() -> None:
    world = World()
    found = filled(world, FakeClock())
    world.group = CloudError("not looked up yet")
    with pytest.raises(CloudError):
        found.types(node_class())
    assert [one.name for one in found.known_types(node_class())] == list(NAMES)
    world.group = PlacementGroup("pg-1", "cluster")
    (one, *_) = found.types(node_class())
    assert one.requirements.requirement("karpenter.k8s.aws/placement-group-id").single_value == "pg-1"


def test_types_are_those_of_the_class_and_the_same_tuple_while_nothing_changes() -> None:
    clock = FakeClock()
    found = filled(World(), clock)
    types = found.types(node_class("a"))
    assert [one.name for one in types] == list(NAMES)
    assert {one.zone for one in types[0].offerings if one.available} == {"a"}
    clock.advance(10)
    assert found.types(node_class("a")) is types
    assert found.types(node_class("a", "b")) is not types
    assert found.max_pods(node_class(), "m5.large") == 29


def test_with_ipv6_a_type_that_does_not_fit_is_no_longer_sold_and_stays_known() -> None:
    world = World()
    world.region = region("m5.large", "t2.large")
    found = filled(world, FakeClock())
    assert all(any(one.available for one in kind.offerings) for kind in found.types(node_class()))
    world.ipv6 = True
    sold = {kind.name: any(one.available for one in kind.offerings) for kind in found.types(node_class())}
    assert sold == {"m5.large": True, "t2.large": False}
    assert [one.name for one in found.known_types(node_class())] == ["m5.large", "t2.large"]


def test_a_shortage_is_seen_after_a_tenth_of_a_second() -> None:
    clock = FakeClock()
    found = filled(World(), clock)
    before = found.types(node_class())
    found.shortages.failed(OfferingKey(names.CAPACITY_ON_DEMAND, "m5.large", "a"), clock.now())
    clock.advance(0.05)
    assert found.types(node_class()) is before
    clock.advance(0.06)
    (short,) = [one for one in found.types(node_class()) if one.name == "m5.large"]
    assert [one.zone for one in short.offerings if one.available and one.capacity_type == "on-demand"] == ["b"]


def waiting(name: str) -> NodeClaim:
    """A claim that waits for an instance of a reservation."""
    return made(name, annotations={names.AWAITS_ANNOTATION: Awaited("old", "u", "reservation", "cr-1").to_text()})


def test_what_claims_wait_for_is_taken_off_what_reservations_leave_at_each_moment() -> None:
    world, clock = World(), FakeClock()
    found = filled(world, clock)

    def left(*claims: NodeClaim, **reserved: int) -> dict[str, int]:
        world.claims, world.reserved = list(claims), {name.replace("_", "-"): count for name, count in reserved.items()}
        clock.advance(2 * MARKET_SECONDS)
        return dict(found._market().market.reserved)

    assert left(cr_1=1, cr_2=1) == {"cr-1": 1, "cr-2": 1}
    assert left(waiting("a"), cr_1=1, cr_2=1) == {"cr-1": 0, "cr-2": 1}
    assert left(waiting("a"), cr_1=3, cr_2=0) == {"cr-1": 2, "cr-2": 0}
    assert left(waiting("a"), waiting("b"), cr_1=1) == {"cr-1": 0}
    assert left(made("a"), cr_1=1) == {"cr-1": 1}


def test_a_look_at_the_market_costs_nothing_for_claims_that_stay_as_they_are() -> None:
    """A market is made ten times a second."""

    def lines(count: int) -> int:
        world, clock = World(), FakeClock()
        world.claims = [made(f"c-{number}") for number in range(count)]
        found = filled(world, clock)
        found._market()
        clock.advance(2 * MARKET_SECONDS)
        with Lines() as counted:
            found._market()
        return counted.count

    assert lines(100) == lines(200)


def test_prices_are_the_paid_ones_and_the_list_keeps_its_own() -> None:
    world, clock = World(), FakeClock()
    world.discounts = "- {type: m5.large, usd_per_hour: 0.04, count: 1}"
    found = filled(world, clock)
    assert prices(found.types(node_class()), "m5.large") == {0.04}
    assert found.prices.price("m5.large", "a", names.CAPACITY_ON_DEMAND) == 0.1
    labels = {names.INSTANCE_TYPE_LABEL: "m5.large", names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "on-demand"}
    world.claims.append(
        NodeClaim(
            metadata=ObjectMeta(name="one", labels=labels),
            spec=SPEC,
            status=NodeClaimStatus(provider_id="aws:///a/i-1"),
        )
    )
    clock.advance(1)
    assert prices(found.types(node_class()), "m5.large") == {0.1}, "the discount is used up"


def test_estimates_and_missing_prices_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world, clock = World(), FakeClock()
    known = region("m5.large", "c5.large")
    own = msgspec.structs.replace(known.infos[0], name="q1.large")
    world.region = Region((*known.infos, own), {**known.zones, "q1.large": ("a",)})
    found = world.market(clock, replace(SETTINGS, region="eusc-de-east-1"))
    world.on_demand = [{"m5.large": 0.1}, {"m5.metal": 5.0}]
    with caplog.at_level("WARNING"):
        for _ in range(2):
            for question in ALL:
                found.refresh(question)
            clock.advance(13 * 3600)
    told = [(one.levelname, one.getMessage()) for one in caplog.records if "price" in one.getMessage()]
    assert len(told) == 2
    assert {level for level, _ in told} == {"WARNING"}
    assert [found.prices.is_estimated(info.name) for info in found.region.infos] == [True, False, False]


def test_a_ledger_that_is_taken_away_discounts_no_more() -> None:
    world, clock = World(), FakeClock()
    world.discounts = "- {family: m5, usd_per_hour: 0.04}"
    found = filled(world, clock)
    world.discounts = ""
    found.refresh(region_market.DISCOUNTS)
    assert prices(found.types(node_class()), "m5.large") == {0.1}


FAILURES = {
    "the region": (region_market.CATALOGUE, "region"),
    "the price list": (region_market.ON_DEMAND, "on_demand"),
    "the spot market": (region_market.SPOT, "spot"),
}


@pytest.mark.parametrize(("question", "field"), FAILURES.values(), ids=FAILURES)
def test_what_cannot_be_read_stays_as_it_was(question: str, field: str) -> None:
    world, clock = World(), FakeClock()
    found = filled(world, clock)
    before = found.types(node_class())
    setattr(world, field, EndpointConnectionError(endpoint_url="https://ec2"))
    clock.advance(86400)
    found.refresh(question)
    assert found.types(node_class()) is before


def test_what_failed_is_asked_again_soon_then_later() -> None:
    world = World()
    found = world.market(FakeClock())
    good, world.region = world.region, EndpointConnectionError(endpoint_url="https://ec2")
    assert [found.refresh(region_market.CATALOGUE) for _ in range(8)] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert found.problem == str(world.region)
    world.region = good
    assert found.refresh(region_market.CATALOGUE) == 12 * 3600
    assert found.problem == ""
    world.region = EndpointConnectionError(endpoint_url="https://ec2")
    assert found.refresh(region_market.CATALOGUE) == 2


def test_a_region_without_types_is_no_answer() -> None:
    world, clock = World(), FakeClock()
    found = filled(world, clock)
    world.region = Region()
    found.refresh(region_market.CATALOGUE)
    assert len(found.types(node_class())) == 2


def test_a_type_that_no_shipped_table_knows_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world, clock = World(), FakeClock()
    found = filled(world, clock)

    def with_types(*new: str) -> list[str]:
        known = region(*NAMES)
        more = tuple(msgspec.structs.replace(known.infos[0], name=name) for name in new)
        world.region = Region.of((*known.infos, *more), [(one.name, "a") for one in (*known.infos, *more)])
        caplog.clear()
        with caplog.at_level("WARNING"):
            found.refresh(region_market.CATALOGUE)
        return [vars(one)["fields"]["types"] for one in caplog.records if one.message == INSTANCE_TYPES_NOT_IN_TABLES]

    assert with_types() == []
    assert with_types("q2.large", "q1.large") == ["q1.large, q2.large"]
    assert with_types("q3.large", "q1.large") == ["q3.large"]
    assert with_types("q2.large") == []


def test_prices_are_asked_for_once_in_their_interval_and_soon_where_none_came() -> None:
    world, clock = World(), FakeClock()
    found = world.market(clock)
    world.spot, world.on_demand = [], [{"m5.large": 0.1}, {}]
    assert (found.refresh(region_market.SPOT), found.refresh(region_market.ON_DEMAND)) == (60, 60)
    assert not found.prices.spot_known
    world.spot, world.on_demand = [SpotRow("m5.large", "a", 0.03, NOON)], [{"m5.large": 0.1}, {"m5.metal": 5.0}]
    assert (found.refresh(region_market.SPOT), found.refresh(region_market.ON_DEMAND)) == (540, 12 * 3600)
    assert found.prices.spot_known


def test_whoever_listens_hears_of_changes_only() -> None:
    world, clock, heard = World(), FakeClock(), []
    found = world.market(clock, changed=lambda: heard.append(1))
    for question in ALL:
        found.refresh(question)
    assert len(heard) == 3, "region, price list and spot market differ from nothing"
    clock.advance(13 * 3600)
    for question in ALL:
        found.refresh(question)
    assert len(heard) == 3


def test_prefix_delegation_is_asked_for() -> None:
    world, clock = World(), FakeClock()
    world.prefixes = True
    found = world.market(clock)
    found.refresh(region_market.CATALOGUE)
    assert found.max_pods(node_class(), "m5.large") == 29
    found.refresh(region_market.PREFIXES)
    assert found.max_pods(node_class(), "m5.large") == 110


DAEMON_SETS = {
    "on": (
        b'{"spec":{"template":{"spec":{"containers":[{"name":"aws-node","env":[{"name":"ENABLE_PREFIX_DELEGATION","value":"true"}]}]}}}}',
        True,
    ),
    "without the variable": (b'{"spec":{"template":{"spec":{"containers":[{"name":"aws-node"}]}}}}', False),
    "no DaemonSet": (b"[]", False),
}


@pytest.mark.parametrize(("body", "want"), DAEMON_SETS.values(), ids=DAEMON_SETS)
def test_prefix_delegation_of_a_daemon_set(body: bytes, want: bool) -> None:
    assert region_market.prefix_delegation_of(body) is want


def node(memory: str = "8Gi", *, registered: bool = True) -> Node:
    labels = {names.REGISTERED_LABEL: "true"} if registered else {}
    return Node(metadata=ObjectMeta(name="ip-1", labels=labels), status=NodeStatus(capacity={"memory": memory}))


def claim(image: str = "ami-1", instance_type: str = "m5.large") -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name="one", labels={names.INSTANCE_TYPE_LABEL: instance_type}),
        spec=SPEC,
        status=NodeClaimStatus(provider_id="aws:///a/i-1", image_id=image),
    )


SEEN: dict[str, tuple[Node, NodeClaim, Seen | None]] = {
    "a registered node": (node(), claim(), Seen("m5.large", "ami-1", ec2.AL2023, "", 8 * GIB, int(NOON.timestamp()))),
    "one that is not registered": (node(registered=False), claim(), None),
    "one without memory": (node("0"), claim(), None),
    "one whose memory is no quantity": (node("much"), claim(), None),
    "one of an unknown image": (node(), claim(image=""), None),
    "one of an unknown type": (node(), claim(instance_type=""), None),
}


@pytest.mark.parametrize(("shown", "of", "want"), SEEN.values(), ids=SEEN)
def test_what_a_node_shows(shown: Node, of: NodeClaim, want: Seen | None) -> None:
    assert region_market.seen_on(shown, of, node_class(), NOON) == want


@pytest.mark.parametrize("said", ["1", "3Gi", "9Gi", "1Ei"])
def test_memory_that_no_node_of_the_type_can_have_is_not_learned(said: str) -> None:
    """A kubelet may write any capacity; what is learned of one counts for every instance of its type."""
    found = filled(World(), FakeClock())
    before = found.types(node_class())
    assert not found.learn(node(said), claim(), node_class())
    assert found.types(node_class()) == before
    assert len(found.memory) == 0


def test_learned_memory_is_used_for_its_image() -> None:
    clock = FakeClock()
    found = filled(World(), clock)
    assert found.learn(node("7Gi"), claim(), node_class())
    (learned,) = [one for one in found.types(node_class()) if one.name == "m5.large"]
    assert learned.capacity["memory"] == 7 * GIB
    assert not found.learn(node("7Gi"), claim(), node_class()), "known already"


def test_what_expressions_of_the_kubelet_come_to() -> None:
    found = filled(World(), FakeClock())
    formulas = msgspec.structs.replace(
        node_class(), spec=msgspec.structs.replace(node_class().spec, kubelet={"kubeReserved": {"cpu": "vcpus * 30"}})
    )
    wrong = msgspec.structs.replace(
        formulas, spec=msgspec.structs.replace(formulas.spec, kubelet={"maxPods": "1 / (vcpus - 2)"})
    )
    assert found.reserved(node_class(), "m5.large") == ()
    assert found.reserved(formulas, "m5.large") == (("kubeReserved", (("cpu", "60m"),)), ("systemReserved", ()))
    assert found.formula_problem(node_class()) == found.formula_problem(formulas) == ""
    assert "cannot be evaluated for c5.large: division by zero" in found.formula_problem(wrong)
    assert found.max_pods(wrong, "m5.large") == 29, "as without it"
