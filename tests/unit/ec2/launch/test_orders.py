import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass, NetworkInterface
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.cloudprovider.errors import CreateError, InsufficientCapacityError, NodeClassNotReadyError
from provisioner.cloudprovider.overlays import Change, PriceChange, changed_type
from provisioner.cloudprovider.types import CapKind, InstanceType, Offering, StructuralCap
from provisioner.ec2 import labels
from provisioner.ec2.launch import fleet, orders
from provisioner.ec2.launch.orders import Made, Order, OrderContext
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.market.instance_types import EfaLaunch, PlacementGroup
from provisioner.ec2.market.unavailable_offerings import OfferingKey, OfferingStanding
from provisioner.values.requirement import Requirements
from provisioner.values.resources import PODS, Resources

CLUSTER = JoinedCluster("prod", "https://cluster.example", "Y2E=", 36, "10.100.0.0/16", "10.100.0.10")
ARM = "arm64"


def sold(kind: str, zone: str, price: float, *, available: bool = True, **more: str) -> Offering:
    keys = {"partition": labels.PLACEMENT_GROUP_PARTITION}
    place = {names.CAPACITY_TYPE_LABEL: kind, names.ZONE_LABEL: zone}
    if reservation := more.pop("reservation", ""):
        place |= {
            labels.RESERVATION_ID: reservation,
            labels.RESERVATION_TYPE: more.pop("block", "") or "default",
            labels.RESERVATION_INTERRUPTIBLE: more.pop("interruptible", "") or "false",
        }
    place |= {keys[key]: value for key, value in more.items()}
    return Offering(Requirements.from_labels(place), price, available, 5 if reservation else 0)


def kind(name: str, *offerings: Offering, arch: str = "amd64") -> InstanceType:
    own = {names.INSTANCE_TYPE_LABEL: name, names.ARCH_LABEL: arch, names.OS_LABEL: "linux", labels.CPU: "2"}
    return InstanceType(
        name,
        Requirements.from_labels(own),
        Resources.of({"cpu": 2000, "memory": 8 << 30, "pods": 29, labels.POD_ENI: 0}),
        offerings=offerings,
    )


M5 = kind("m5.large", sold("on-demand", "a", 0.1), sold("on-demand", "b", 0.11), sold("spot", "a", 0.04))
M6G = kind("m6g.large", sold("on-demand", "a", 0.08), sold("spot", "b", 0.03), arch=ARM)
TYPES = (M5, M6G)


def node_class(spec: Mapping[str, Any] | None = None, **metadata: Any) -> EC2NodeClass:
    ready = {"type": "Ready", "status": "True", "reason": "", "message": "", "observedGeneration": 1}
    return msgspec.convert(
        {
            "metadata": {"name": "default", "generation": 1, **metadata},
            "spec": {"amiFamily": "AL2023", **(spec or {})},
            "status": {
                "subnets": [{"id": f"subnet-{zone}", "zone": zone, "zoneID": f"id-{zone}"} for zone in "ab"],
                "securityGroups": [{"id": "sg-2"}, {"id": "sg-1"}],
                "amis": [
                    {
                        "id": f"ami-{arch}",
                        "requirements": [{"key": names.ARCH_LABEL, "operator": "In", "values": [arch]}],
                    }
                    for arch in ("amd64", ARM)
                ],
                "instanceProfile": "profile",
                "conditions": [{**ready, "lastTransitionTime": "2026-11-21T12:00:00Z"}],
            },
        },
        EC2NodeClass,
    )


def claim(
    wanted: Mapping[str, list[str]] | None = None,
    requests: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    name: str = "default-1",
) -> NodeClaim:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": {names.NODEPOOL_LABEL: "pool", "team": "a"},
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "nodeClassRef": {"group": ec2.GROUP, "kind": ec2.KIND, "name": "default"},
                "requirements": [
                    {"key": key, "operator": "In", "values": values} for key, values in (wanted or {}).items()
                ],
                "resources": {"requests": {"cpu": "1", **(requests or {})}},
                "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
            },
        },
        NodeClaim,
    )


def around(**changes: Any) -> OrderContext:
    given: dict[str, Any] = {
        "node_class": node_class(),
        "types": TYPES,
        "cluster": CLUSTER,
        "region": "us-east-1",
        "subnets": {"a": "subnet-a", "b": "subnet-b"},
        "max_pods": {"m5.large": 29, "m6g.large": 29}.__getitem__,
    }
    return OrderContext(**(given | changes))


def named(order: Order) -> list[tuple[str, str, str]]:
    return [(one.offer.capacity_type, one.offer.instance_type, one.offer.zone) for one in order.overrides]


ON_DEMAND = {names.CAPACITY_TYPE_LABEL: ["on-demand"]}


def test_the_whole_of_a_plain_order() -> None:
    order = orders.order_of(claim(ON_DEMAND), around())
    assert named(order) == [
        ("on-demand", "m6g.large", "a"),
        ("on-demand", "m5.large", "a"),
        ("on-demand", "m5.large", "b"),
    ]
    assert [(one.subnet, one.image, one.price) for one in order.overrides] == [
        ("subnet-a", "ami-arm64", 0.08),
        ("subnet-a", "ami-amd64", 0.1),
        ("subnet-b", "ami-amd64", 0.11),
    ]
    assert order.lane == ("default", "pool")
    assert order.tags == {
        "kubernetes.io/cluster/prod": "owned",
        "eks:eks-cluster-name": "prod",
        "karpenter.sh/nodepool": "pool",
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }
    assert len(order.needed) == 2  # one for each image
    assert {one.template for one in order.overrides} == {one.name for one in order.needed}
    assert not order.doubted
    data = order.needed[0].data
    assert data["NetworkInterfaces"][0]["Groups"] == ["sg-1", "sg-2"]
    assert data["IamInstanceProfile"] == {"Name": "profile"}
    text = base64.b64decode(data["UserData"]).decode()
    for part in (
        "maxPods: 29",
        "team=a",
        "karpenter.sh/unregistered",
        "dedicated",
        "karpenter.sh/capacity-type=on-demand",
    ):
        assert part in text
    assert "default-1" not in text


def test_types_of_other_pod_numbers_need_other_templates() -> None:
    order = orders.order_of(
        claim(ON_DEMAND | {names.ARCH_LABEL: ["amd64"]}),
        around(types=(M5, replace(M5, name="m5.xlarge")), max_pods={"m5.large": 29, "m5.xlarge": 58}.__getitem__),
    )
    assert len(order.needed) == 2


def test_what_expressions_reserve_is_in_the_user_data_of_each_type() -> None:
    spec = {"kubelet": {"kubeReserved": {"cpu": "vcpus * 10", "pid": "1000"}, "evictionMaxPodGracePeriod": 5}}
    kept = {"m5.large": "20m", "m5.xlarge": "40m"}
    order = orders.order_of(
        claim(ON_DEMAND | {names.ARCH_LABEL: ["amd64"]}),
        around(
            node_class=node_class(spec),
            types=(M5, replace(M5, name="m5.xlarge")),
            max_pods=lambda _: 29,
            kept=lambda name: (("kubeReserved", (("cpu", kept[name]), ("pid", "1000"))), ("systemReserved", ())),
        ),
    )
    texts = {base64.b64decode(one.data["UserData"]).decode() for one in order.needed}
    assert len(texts) == 2
    for amount in kept.values():
        (text,) = (one for one in texts if re.search(rf"cpu: .?{amount}\b", one))
        assert "1000" in text
        assert "systemReserved" not in text
        assert "vcpus" not in text
    assert all("evictionMaxPodGracePeriod: 5" in one for one in texts)


@dataclass(frozen=True)
class Case:
    """What of an order matters."""

    want: list[tuple[str, str, str]]
    wanted: Mapping[str, list[str]] = field(default_factory=dict)
    around: Mapping[str, Any] = field(default_factory=dict)


def standing(**of: OfferingStanding) -> Callable[[OfferingKey], OfferingStanding]:
    """By zone."""
    return lambda offer: of.get(offer.zone, OfferingStanding.OPEN)


CASES = {
    "spot before on-demand": Case([("spot", "m6g.large", "b"), ("spot", "m5.large", "a")]),
    "zones without a subnet are left out": Case(
        [("on-demand", "m6g.large", "a"), ("on-demand", "m5.large", "a")], ON_DEMAND, {"subnets": {"a": "subnet-a"}}
    ),
    "what is doubted is left to probes": Case(
        [("on-demand", "m5.large", "b")], ON_DEMAND, {"standing": standing(a=OfferingStanding.DOUBTED)}
    ),
    "unless there is nothing else": Case(
        [("on-demand", "m6g.large", "a"), ("on-demand", "m5.large", "a"), ("on-demand", "m5.large", "b")],
        ON_DEMAND,
        {"standing": standing(a=OfferingStanding.DOUBTED, b=OfferingStanding.DOUBTED)},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_ordered(case: Case) -> None:
    assert named(orders.order_of(claim(case.wanted), around(**case.around))) == case.want


def test_an_order_of_nothing_but_doubted_says_so() -> None:
    order = orders.order_of(claim(ON_DEMAND), around(standing=lambda _: OfferingStanding.DOUBTED))
    assert order.doubted
    fewer = orders.narrowed(order, {OfferingKey("on-demand", "m5.large", "b")})
    assert named(fewer) == [("on-demand", "m5.large", "b")]
    assert [one.name for one in fewer.needed] == [fewer.overrides[0].template]
    assert fewer.key != order.key


RESERVED = kind("m5.large", sold("reserved", "a", 0.0, reservation="cr-1"), sold("on-demand", "b", 0.1))
BLOCK = kind("p5.48xlarge", sold("reserved", "a", 0.0, reservation="cr-2", block="capacity-block"))
LENT = kind("m5.large", sold("reserved", "a", 0.0, reservation="cr-3", interruptible="true"))


@pytest.mark.parametrize(
    ("one", "reservation", "reservation_type", "market"),
    [
        pytest.param(RESERVED, "cr-1", "", None, id="of demand"),
        pytest.param(BLOCK, "cr-2", labels.CAPACITY_BLOCK, "capacity-block", id="a capacity block"),
        pytest.param(LENT, "cr-3", fleet.INTERRUPTIBLE, "interruptible-capacity-reservation", id="interruptible"),
    ],
)
def test_reservations(one: InstanceType, reservation: str, reservation_type: str, market: str | None) -> None:
    order = orders.order_of(claim(), around(types=(one,), max_pods=lambda _: 29))
    assert (order.capacity_type, order.reservation_type) == ("reserved", reservation_type)
    assert [override.reservation for override in order.overrides] == [reservation]
    (made,) = order.needed
    target = made.data["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target == {"CapacityReservationId": reservation}
    assert made.data.get("InstanceMarketOptions", {}).get("MarketType") == market
    instance = orders.instance_of(
        Made.launched(fleet.Launched("i-1", one.name, "a", "subnet-a", "ami", "reserved"), order),
        claim(),
        node_class(),
        one,
        "",
    )
    assert instance.labels[labels.RESERVATION_ID] == reservation
    assert instance.labels[labels.RESERVATION_TYPE] == ("capacity-block" if market == "capacity-block" else "default")
    assert instance.labels[labels.RESERVATION_INTERRUPTIBLE] == ("true" if reservation == "cr-3" else "false")


GROUPED = kind("m5.large", *(sold("on-demand", "a", 0.1, partition=str(number)) for number in range(1, 12)))
GROUP = PlacementGroup("pg-1", "partition", 11)
PARTITIONS: dict[str, tuple[dict[str, list[str]], str]] = {
    "left to EC2": ({}, ""),
    "the one that is wanted": ({labels.PLACEMENT_GROUP_PARTITION: ["7"]}, "7"),
    "the first by number": ({labels.PLACEMENT_GROUP_PARTITION: ["10", "2"]}, "2"),
}


@pytest.mark.parametrize(("wanted", "partition"), PARTITIONS.values(), ids=PARTITIONS)
def test_partitions_of_a_placement_group(wanted: dict[str, list[str]], partition: str) -> None:
    order = orders.order_of(claim(wanted), around(types=(GROUPED,), group=GROUP))
    assert [one.offer for one in order.overrides] == [OfferingKey("on-demand", "m5.large", "a", "pg-1", partition)]
    placement = order.needed[0].data["Placement"]
    assert placement["GroupId"] == "pg-1"
    assert str(placement.get("PartitionNumber", "")) == partition
    made = Made.launched(fleet.Launched("i-1", "m5.large", "a", "subnet-a", "ami", "on-demand"), order)
    told = orders.instance_of(made, claim(), node_class(), GROUPED, "")
    assert told.labels[labels.PLACEMENT_GROUP_ID] == "pg-1"
    assert told.labels.get(labels.PLACEMENT_GROUP_PARTITION, "") == partition


EFA_TYPE = replace(M5, capacity=M5.capacity + Resources.of({labels.EFA: 2}))
EFA = EfaLaunch(
    (
        NetworkInterface(interface_type="interface"),
        NetworkInterface(device_index=1, interface_type="efa-only"),
        NetworkInterface(network_card_index=1, interface_type="efa-only"),
    ),
    max_pods=20,
)


@pytest.mark.parametrize(("requests", "want"), [({}, 0), ({labels.EFA: "1"}, 2)], ids=["nobody asks", "a pod asks"])
def test_efa_interfaces(requests: dict[str, str], want: int) -> None:
    """One on the first card is none for pods, and kubelet and NodeClaim say so alike."""
    order = orders.order_of(claim(requests=requests), around(types=(EFA_TYPE,), efa=lambda _: EFA))
    interfaces = order.needed[0].data["NetworkInterfaces"]
    assert sum(one.get("InterfaceType") == "efa-only" for one in interfaces) == want
    made = Made.launched(fleet.Launched("i-1", "m5.large", "a", "subnet-a", "ami", "on-demand"), order)
    instance = orders.instance_of(made, claim(), node_class(), order.types["m5.large"], "")
    assert instance.capacity.amount(labels.EFA) == want
    pods = 20 if want else EFA_TYPE.capacity.amount(PODS)
    assert instance.capacity.amount(PODS) == pods
    told = base64.b64decode(order.needed[0].data["UserData"]).decode()
    assert f"maxPods: {20 if want else 29}" in told
    assert labels.POD_ENI not in instance.capacity


TENANCIES: dict[str, tuple[dict[str, list[str]], str]] = {
    "default where nobody cares": ({}, "default"),
    "default where both would do": ({labels.TENANCY: ["dedicated", "default"]}, "default"),
    "dedicated where it is wanted": ({labels.TENANCY: ["dedicated"]}, "dedicated"),
}


@pytest.mark.parametrize(("wanted", "want"), TENANCIES.values(), ids=TENANCIES)
def test_tenancy(wanted: dict[str, list[str]], want: str) -> None:
    order = orders.order_of(claim(wanted), around(types=(M5,)))
    assert order.needed[0].data["Placement"]["Tenancy"] == want


CONTEXTS: dict[str, tuple[dict[str, str], str, bool]] = {
    "of the class": ({}, "ctx", False),
    "not where minValues were relaxed": ({names.MIN_VALUES_RELAXED: "true"}, "", False),
    "prices of an overlay are given to EC2": ({names.PRICE_OVERLAY_APPLIED: "true"}, "ctx", True),
}


@pytest.mark.parametrize(("annotations", "context", "by_priority"), CONTEXTS.values(), ids=CONTEXTS)
def test_context_and_priorities(annotations: dict[str, str], context: str, by_priority: bool) -> None:
    order = orders.order_of(claim(annotations=annotations), around(node_class=node_class({"context": "ctx"})))
    assert (order.context, order.by_priority) == (context, by_priority)


def test_prices_of_an_overlay_decide_and_are_given_to_ec2() -> None:
    """A static NodePool's claim carries no annotation: its types tell."""
    dear = max(TYPES, key=lambda one: max(offering.price for offering in one.offerings))
    cheap = PriceChange(0.0, 0.0001)
    overlaid = changed_type(dear, Change((cheap,) * len(dear.offerings)))
    order = orders.order_of(claim(), around(types=tuple(overlaid if one is dear else one for one in TYPES)))
    assert order.overrides[0].offer.instance_type == dear.name
    assert order.by_priority
    assert not orders.order_of(claim(), around()).by_priority


PRICES: dict[str, tuple[dict[str, list[str]], tuple[str, str, str], bool]] = {
    "of what is ordered": (ON_DEMAND, ("m5.large", "b", "on-demand"), True),
    "of another capacity type": ({}, ("m5.large", "b", "on-demand"), False),
    "of another instance type": (ON_DEMAND, ("c5.large", "b", "on-demand"), False),
}


@pytest.mark.parametrize(("wanted", "ours", "by_priority"), PRICES.values(), ids=PRICES)
def test_prices_that_are_not_ec2_s_are_given_to_it(
    wanted: dict[str, list[str]], ours: tuple[str, str, str], by_priority: bool
) -> None:
    order = orders.order_of(claim(wanted), around(adjusted=lambda *offering: offering == ours))
    assert order.by_priority is by_priority


def test_a_type_that_no_image_boots_is_left_out() -> None:
    riscv = kind("r5v.large", sold("on-demand", "a", 0.01), arch="riscv")
    assert named(orders.order_of(claim(ON_DEMAND), around(types=(*TYPES, riscv)))) == named(
        orders.order_of(claim(ON_DEMAND), around())
    )


def test_equal_claims_have_equal_orders() -> None:
    first, second = claim(name="default-1"), claim(name="default-2")
    assert orders.ask_key(first) == orders.ask_key(second)
    assert orders.order_of(first, around()).key == orders.order_of(second, around()).key
    bigger = claim(requests={"memory": "1Gi"})
    assert orders.ask_key(bigger) != orders.ask_key(first)
    assert orders.order_of(bigger, around()).key == orders.order_of(first, around()).key
    assert orders.order_of(claim(ON_DEMAND), around()).key != orders.order_of(first, around()).key


ERRORS: dict[str, tuple[NodeClaim, Mapping[str, Any], type[Exception], str]] = {
    "nothing fits": (claim(requests={"cpu": "64"}), {}, InsufficientCapacityError, "compatible-launchable-filter"),
    "no subnet": (claim(), {"subnets": {}}, InsufficientCapacityError, "no subnet"),
    "no image": (
        claim(),
        {"types": (kind("m5.large", sold("spot", "a", 0.1), arch="riscv"),)},
        CreateError,
        "no image of the EC2NodeClass runs on m5.large",
    ),
    "requests that are no quantities": (claim(requests={"memory": "much"}), {}, CreateError, "resources.requests"),
    "a cluster without the CIDR that AL2023 needs": (
        claim(),
        {"cluster": replace(CLUSTER, cidr="")},
        CreateError,
        "service CIDR",
    ),
}


@pytest.mark.parametrize(("given", "changes", "error", "text"), ERRORS.values(), ids=ERRORS)
def test_no_order(given: NodeClaim, changes: Mapping[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        orders.order_of(given, around(**changes))


SHUT = kind("m5.large", sold("spot", "a", 0.04, available=False), sold("spot", "z", 0.04))
FULL = kind("m5.large", replace(sold("spot", "a", 0.04), full=StructuralCap(CapKind.ADDRESSES, "subnet-a")))
REOPENING: dict[str, tuple[dict[str, list[str]], bool, list[OfferingKey]]] = {
    "what is short opens again": ({}, False, [OfferingKey("spot", "m5.large", "a")]),
    "what is not sold at all does not": ({}, True, []),
    "nor what the claim does not want": ({names.ZONE_LABEL: ["b"]}, False, []),
}


@pytest.mark.parametrize(("wanted", "open_", "want"), REOPENING.values(), ids=REOPENING)
def test_what_opens_again(wanted: dict[str, list[str]], open_: bool, want: list[OfferingKey]) -> None:
    found = orders.reopening(claim(wanted), around(types=(SHUT,)), lambda _: open_)
    assert list(found) == want


def test_what_is_full_opens_again_though_nothing_is_short() -> None:
    assert orders.reopening(claim(), around(types=(FULL,)), lambda _: True) == (OfferingKey("spot", "m5.large", "a"),)


SCARCE, OTHER = OfferingKey("spot", "m5.large", "a"), OfferingKey("spot", "m5.large", "b")
CAUSES: dict[str, tuple[dict[str, str], str]] = {
    "EC2 is short": (
        {"a": "subnet-a", "b": "subnet-b"},
        "EC2 has had insufficient capacity lately for all 2 offerings that it allows, such as m5.large spot in a",
    ),
    "no subnet has addresses": (
        {},
        "no subnet of EC2NodeClass default in a, b has the free IP addresses that an instance needs (17); add subnets with free IP addresses",
    ),
    "both, each in its zone": (
        {"a": "subnet-a"},
        (
            "EC2 has had insufficient capacity lately for 1 offering that it allows, such as m5.large spot in a; "
            "no subnet of EC2NodeClass default in b has the free IP addresses that an instance needs (17); add subnets with free IP addresses"
        ),
    ),
}


@pytest.mark.parametrize(("subnets", "text"), CAUSES.values(), ids=CAUSES)
def test_full_subnets_are_not_told_as_a_shortage_of_ec2(subnets: dict[str, str], text: str) -> None:
    assert orders.why_short((SCARCE, OTHER), around(subnets=subnets, addresses=17)) == text


CLASSES: dict[str, tuple[EC2NodeClass | None, type[Exception] | None]] = {
    "ready": (node_class(), None),
    "missing": (None, NodeClassNotReadyError),
    "being deleted": (node_class(deletionTimestamp="2026-11-21T12:00:00Z"), NodeClassNotReadyError),
    "judged before it was changed": (node_class(generation=2), CreateError),
    "not judged": (msgspec.structs.replace(node_class(), status=ec2.EC2NodeClassStatus()), CreateError),
}


@pytest.mark.parametrize(("found", "error"), CLASSES.values(), ids=CLASSES)
def test_classes_that_can_be_launched_from(found: EC2NodeClass | None, error: type[Exception] | None) -> None:
    if error is None:
        assert orders.ready(claim(), found) is found
        return
    with pytest.raises(error):
        orders.ready(claim(), found)


def test_a_class_that_is_not_ready_says_why() -> None:
    status = ec2.EC2NodeClassStatus(
        conditions=(
            msgspec.structs.replace(node_class().status.conditions[0], status="False", message="SubnetsReady=False"),
        )
    )
    with pytest.raises(NodeClassNotReadyError, match="SubnetsReady=False"):
        orders.ready(claim(), msgspec.structs.replace(node_class(), status=status))


def test_what_a_claim_is_told() -> None:
    order = orders.order_of(claim(ON_DEMAND), around())
    made = Made.launched(fleet.Launched("i-1", "m5.large", "b", "subnet-b", "ami-amd64", "on-demand"), order)
    stamped = {ec2.HASH_ANNOTATION: "1", ec2.HASH_VERSION_ANNOTATION: "v6"}
    instance = orders.instance_of(made, claim(), node_class(annotations=stamped), M5, "")
    assert instance.provider_id == "aws:///b/i-1"
    assert instance.labels == {
        names.INSTANCE_TYPE_LABEL: "m5.large",
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
        labels.CPU: "2",
        names.ZONE_LABEL: "b",
        labels.ZONE_ID: "id-b",
        names.CAPACITY_TYPE_LABEL: "on-demand",
        labels.TENANCY: "default",
        names.NODEPOOL_LABEL: "pool",
    }
    assert instance.annotations == {**stamped, ec2.INSTANCE_PROFILE_ANNOTATION: "profile"}
    assert dict(instance.capacity) == {"cpu": 2000, "memory": 8 << 30, "pods": 29}


def test_a_class_without_a_stamp_is_hashed() -> None:
    instance = orders.instance_of(Made("i-1", "m5.large", "a", "spot"), claim(), node_class(), None, "Y2E=")
    assert instance.annotations[ec2.HASH_VERSION_ANNOTATION] == "v6"
    assert instance.annotations[ec2.HASH_ANNOTATION].isdigit()
    assert dict(instance.capacity) == {}


SETS = {
    "a set of two": (("x:2", "x:2"), {"one zone": True, "one type": False, "several of both": False}),
    "of two sets both": (("x:2,y:3", "x:2,y:3"), {"one zone": True, "one type": False, "several of both": False}),
    "of a set alone": (("x:1", "x:1"), {}),
    "beside one of no set": (("x:2", "x:2", ""), {}),
    "beside one of another set": (("x:2", "y:2"), {}),
    "one that is of another set, too": (("x:2", "x:2,y:2"), {}),
    "one claim": (("x:2",), {}),
    "of no set": (("", ""), {}),
}
PLACES = {
    "one zone": {names.ZONE_LABEL: ["a"]},
    "one type": {names.ARCH_LABEL: ["amd64"]},
    "several of both": {},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("texts", "want"), SETS.values(), ids=SETS)
def test_who_is_launched_all_or_none(texts: tuple[str, ...], want: Mapping[str, bool], place: str) -> None:
    def member(text: str, number: int) -> NodeClaim:
        pairs = [one.split(":") for one in text.split(",") if one]
        sets = [LaunchSet(id=one, group=f"gang/{one}", nodes=int(nodes)) for one, nodes in pairs]
        return claim(ON_DEMAND | PLACES[place], annotations={names.LAUNCH_SET: encode_sets(sets)}, name=f"c{number}")

    claims = [member(text, number) for number, text in enumerate(texts)]
    order = orders.order_of(claims[0], around())
    found = orders.for_company(order, claims, len(claims))
    assert found.all_or_none is want.get(place, False)
    assert found.key == order.key
    assert not orders.for_company(found, claims[:1], 1).all_or_none
    assert not orders.for_company(found, claims, len(claims), lambda _, count: count < len(claims)).all_or_none
