from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import ec2
from provisioner.ec2 import labels
from provisioner.ec2.access.errors import FailureKind
from provisioner.ec2.launch import fleet
from provisioner.ec2.launch.fleet import Launched, Override
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.market.unavailable_offerings import OfferingKey, OfferingStanding, Shortages
from provisioner.ec2.nodeclass.subnets import SubnetBook
from tests.support.clock import NOON
from tests.support.servicemodel import model

MARK = Mark("batch", 1, 0)
TAGS = {"karpenter.sh/nodepool": "default"}


def override(
    name: str = "m5.large",
    zone: str = "a",
    price: float = 0.1,
    template: str = "lt-1",
    subnet: str = "",
    kind: str = "spot",
    reservation: str = "",
) -> Override:
    return Override(template, OfferingKey(kind, name, zone), subnet or f"subnet-{zone}", "ami-1", price, reservation)


def request(*overrides: Override, **options: Any) -> dict[str, Any]:
    return fleet.request(
        options.pop("overrides", overrides) or (override(),),
        **{"capacity_type": "spot", "count": 3, "tags": TAGS, "mark": MARK, **options},
    )


def test_the_whole_request() -> None:
    assert request(override(price=0.2, zone="b"), override()) == {
        "Type": "instant",
        "ClientToken": MARK.token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "lt-1", "Version": "$Latest"},
                "Overrides": [
                    {
                        "InstanceType": "m5.large",
                        "SubnetId": "subnet-a",
                        "ImageId": "ami-1",
                        "AvailabilityZone": "a",
                        "Priority": 0.1,
                    },
                    {
                        "InstanceType": "m5.large",
                        "SubnetId": "subnet-b",
                        "ImageId": "ami-1",
                        "AvailabilityZone": "b",
                        "Priority": 0.2,
                    },
                ],
            }
        ],
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": "spot", "TotalTargetCapacity": 3},
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        "TagSpecifications": [
            {
                "ResourceType": kind,
                "Tags": [
                    {"Key": "dovetail.dev/launch", "Value": "batch/1"},
                    {"Key": "karpenter.sh/nodepool", "Value": "default"},
                ],
            }
            for kind in ("instance", "volume", "fleet")
        ],
    }


@dataclass(frozen=True)
class Kinds:
    options: dict[str, Any]
    target: str
    want: dict[str, Any]


KINDS = {
    "spot": Kinds({}, "spot", {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}),
    "spot at adjusted prices": Kinds(
        {"by_priority": True}, "spot", {"SpotOptions": {"AllocationStrategy": "capacity-optimized-prioritized"}}
    ),
    "on-demand": Kinds(
        {"capacity_type": "on-demand"}, "on-demand", {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
    ),
    "on-demand at adjusted prices": Kinds(
        {"capacity_type": "on-demand", "by_priority": True},
        "on-demand",
        {"OnDemandOptions": {"AllocationStrategy": "prioritized"}},
    ),
    "a reservation": Kinds(
        {"capacity_type": "reserved"}, "on-demand", {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
    ),
    "a capacity block": Kinds(
        {"capacity_type": "reserved", "reservation_type": labels.CAPACITY_BLOCK}, "capacity-block", {}
    ),
    "an interruptible reservation": Kinds(
        {"capacity_type": "reserved", "reservation_type": fleet.INTERRUPTIBLE},
        "reserved-capacity",
        {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}},
    ),
    "all or none in one zone": Kinds(
        {"capacity_type": "on-demand", "all_or_none": True, "overrides": (override(), override("c5.large"))},
        "on-demand",
        {
            "OnDemandOptions": {
                "AllocationStrategy": "lowest-price",
                "MinTargetCapacity": 3,
                "SingleAvailabilityZone": True,
            }
        },
    ),
    "all or none of spot": Kinds(
        {"all_or_none": True, "overrides": (override(), override("c5.large"))},
        "spot",
        {
            "SpotOptions": {
                "AllocationStrategy": "price-capacity-optimized",
                "MinTargetCapacity": 3,
                "SingleAvailabilityZone": True,
            }
        },
    ),
    "all or none of a reservation": Kinds(
        {"capacity_type": "reserved", "all_or_none": True},
        "on-demand",
        {
            "OnDemandOptions": {
                "AllocationStrategy": "lowest-price",
                "MinTargetCapacity": 3,
                "SingleAvailabilityZone": True,
            }
        },
    ),
    "a context": Kinds(
        {"context": "c-1"},
        "spot",
        {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}, "Context": "c-1"},
    ),
    "a dry run": Kinds(
        {"dry_run": True}, "spot", {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}, "DryRun": True}
    ),
}
ALWAYS = {"Type", "ClientToken", "LaunchTemplateConfigs", "TargetCapacitySpecification", "TagSpecifications"}


@pytest.mark.parametrize("case", KINDS.values(), ids=KINDS)
def test_kinds_of_requests(case: Kinds) -> None:
    made = request(**case.options)
    assert made["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == case.target
    assert {key: value for key, value in made.items() if key not in ALWAYS} == case.want


@pytest.mark.parametrize("case", KINDS.values(), ids=KINDS)
def test_botocore_takes_every_kind(case: Kinds) -> None:
    shape = model("ec2").operation_model("CreateFleet").input_shape
    report = ParamValidator().validate(request(**case.options), shape)
    assert not report.has_errors(), report.generate_report()


OVERRIDES = st.lists(
    st.builds(override, st.sampled_from(["m5.large", "c5.large"]), st.sampled_from("ab"), st.floats(0.1, 9)),
    min_size=1,
    max_size=4,
)


@given(OVERRIDES, st.integers(1, 5), st.sampled_from(["spot", "on-demand", "reserved"]), st.booleans())
def test_what_can_be_asked_for_all_or_none_is_as_ec2_wants_it(
    some: list[Override], count: int, kind: str, by_block: bool
) -> None:
    reservation = labels.CAPACITY_BLOCK if kind == "reserved" and by_block else ""
    if not fleet.can_be_whole(some, count, kind, reservation):
        assert count == 1 or reservation or len({one.offer.zone for one in some}) > 1
        return
    made = request(*some, capacity_type=kind, count=count, reservation_type=reservation, all_or_none=True)
    assert made["Type"] == "instant"
    ((_, options),) = [item for item in made.items() if item[0] in {"OnDemandOptions", "SpotOptions"}]
    assert options["MinTargetCapacity"] == count
    assert options["SingleAvailabilityZone"]


def test_at_most_fifty_templates_those_with_the_cheapest() -> None:
    many = [override(f"m{number}.large", price=100 - number, template=f"lt-{number}") for number in range(60)]
    found = [
        config["LaunchTemplateSpecification"]["LaunchTemplateName"]
        for config in request(*many)["LaunchTemplateConfigs"]
    ]
    assert found == [f"lt-{number}" for number in range(59, 9, -1)]


def test_one_template_is_one_configuration() -> None:
    many = [override(f"m{number}.large", price=1 + number, template=f"lt-{number % 2}") for number in range(60)]
    assert [len(config["Overrides"]) for config in request(*many)["LaunchTemplateConfigs"]] == [30, 30]


def test_a_type_in_a_zone_is_there_once() -> None:
    made = request(override(subnet="subnet-2", price=0.2), override(subnet="subnet-1"))
    (config,) = made["LaunchTemplateConfigs"]
    assert [one["SubnetId"] for one in config["Overrides"]] == ["subnet-1"]


def test_the_order_given_does_not_matter() -> None:
    some = [override(name, zone) for name in ("m5.large", "c5.large") for zone in "ab"]
    assert request(*some) == request(*reversed(some))


def test_nothing_to_ask_for() -> None:
    with pytest.raises(ValueError, match="without overrides"):
        fleet.request((), capacity_type="spot", count=1, tags={}, mark=MARK)
    with pytest.raises(ValueError, match="fleet of 0"):
        request(count=0)


def echo(**fields: str) -> dict[str, Any]:
    return {"LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": {}, "Overrides": fields}}


def refusal(code: str, message: str = "", **fields: str) -> dict[str, Any]:
    return {"ErrorCode": code, "ErrorMessage": message, "Lifecycle": "spot", **echo(**fields)}


ASKED = (override(), override(zone="b"), override("c5.large"))
FULL = {"InstanceType": "m5.large", "SubnetId": "subnet-a", "AvailabilityZone": "a", "ImageId": "ami-9"}


def test_instances_by_id() -> None:
    answer = {
        "FleetId": "f",
        "Instances": [{"InstanceIds": ["i-2", "i-1"], "InstanceType": "m5.large", "Lifecycle": "spot", **echo(**FULL)}],
    }
    found = fleet.outcome(answer, ASKED, "spot")
    assert found.launched == (
        Launched("i-1", "m5.large", "a", "subnet-a", "ami-9", "spot"),
        Launched("i-2", "m5.large", "a", "subnet-a", "ami-9", "spot"),
    )
    assert found.refused == ()


def test_what_the_echo_leaves_out_is_known_from_the_request() -> None:
    answer = {
        "Instances": [
            {"InstanceIds": ["i-1"], "InstanceType": "m5.large", **echo(InstanceType="m5.large", SubnetId="subnet-b")}
        ]
    }
    assert fleet.outcome(answer, ASKED, "spot").launched == (
        Launched("i-1", "m5.large", "b", "subnet-b", "ami-1", "spot"),
    )


def test_each_refusal_once() -> None:
    error = refusal(
        "InsufficientInstanceCapacity", "none", InstanceType="m5.large", SubnetId="subnet-a", AvailabilityZone="a"
    )
    found = fleet.outcome({"Errors": [error, error]}, ASKED, "spot")
    (refused,) = found.refused
    assert (refused.failure.kind, refused.offer, refused.subnet) == (FailureKind.SHORTAGE, ASKED[0].offer, "subnet-a")


SEE_OTHERS = "Failed to fulfill capacity. Please review errors in the response."


def test_an_error_that_points_at_others_says_nothing_of_its_offering() -> None:
    table, _ = noted(
        refusal("InsufficientInstanceCapacity", InstanceType="m5.large", AvailabilityZone="a"),
        refusal("UnfulfillableCapacity", SEE_OTHERS, InstanceType="c5.large", AvailabilityZone="a"),
    )
    assert table.standing(ASKED[0].offer, NOON) is OfferingStanding.CLOSED
    assert table.standing(ASKED[2].offer, NOON) is OfferingStanding.OPEN
    alone = {"Errors": [refusal("UnfulfillableCapacity", SEE_OTHERS, InstanceType="m5.large", AvailabilityZone="a")]}
    assert [one.offer for one in fleet.outcome(alone, ASKED, "spot").refused] == [ASKED[0].offer], "there is no other"


TOO_FEW = "Unable to fulfill request due to MinTargetCapacity constraints. Please adjust your request."


def test_a_minimum_that_is_not_reached_closes_what_ec2_names_where_that_is_all_it_says() -> None:
    table, _ = noted(refusal("UnfulfillableCapacity", TOO_FEW, InstanceType="m5.large", AvailabilityZone="a"))
    standings = [table.standing(one.offer, NOON) for one in ASKED]
    assert standings[0] is OfferingStanding.CLOSED
    assert standings[2] is OfferingStanding.OPEN


def test_a_minimum_that_is_not_reached_since_others_are_short_closes_these_alone() -> None:
    """All together were too few: what had some, and would have given them, is there for a single pod, and for the next order."""
    table, _ = noted(
        refusal("UnfulfillableCapacity", TOO_FEW, InstanceType="m5.large", AvailabilityZone="a"),
        refusal("InsufficientInstanceCapacity", InstanceType="c5.large", AvailabilityZone="a"),
    )
    standings = [table.standing(one.offer, NOON) for one in ASKED]
    assert standings[0] is OfferingStanding.OPEN
    assert standings[2] is OfferingStanding.CLOSED


def test_a_minimum_that_is_not_reached_says_more_than_an_error_that_points_at_others() -> None:
    table, _ = noted(
        refusal("UnfulfillableCapacity", SEE_OTHERS, InstanceType="c5.large", AvailabilityZone="a"),
        refusal("UnfulfillableCapacity", TOO_FEW, InstanceType="m5.large", AvailabilityZone="a"),
    )
    standings = [table.standing(one.offer, NOON) for one in ASKED]
    assert standings[0] is OfferingStanding.CLOSED
    assert standings[2] is OfferingStanding.OPEN


def test_an_answer_of_nothing() -> None:
    assert fleet.outcome({}, ASKED, "spot") == fleet.FleetAnswer((), ())
    (refused,) = fleet.outcome({"Errors": [{"ErrorCode": "UnauthorizedOperation"}]}, ASKED, "spot").refused
    assert refused.failure.kind is FailureKind.DENIED


def noted(
    *errors: dict[str, Any], launched: int = 0, asked: tuple[Override, ...] = ASKED
) -> tuple[Shortages, tuple[str, ...]]:
    table = Shortages()
    instances = (
        [{"InstanceIds": [f"i-{n}" for n in range(launched)], "InstanceType": "m5.large", **echo(**FULL)}]
        if launched
        else []
    )
    found = fleet.outcome({"Errors": list(errors), "Instances": instances}, asked, asked[0].offer.capacity_type)
    return table, fleet.note(found, asked, table, NOON)


def test_a_shortage_closes_its_offering() -> None:
    table, empty = noted(refusal("InsufficientInstanceCapacity", InstanceType="m5.large", AvailabilityZone="a"))
    assert table.standing(ASKED[0].offer, NOON) is OfferingStanding.CLOSED
    assert table.standing(ASKED[1].offer, NOON) is OfferingStanding.OPEN
    assert empty == ()


def test_a_pool_that_gave_some_and_refused_the_rest_is_closed() -> None:
    table, _ = noted(refusal("InsufficientInstanceCapacity", InstanceType="m5.large", AvailabilityZone="a"), launched=2)
    assert table.standing(ASKED[0].offer, NOON) is OfferingStanding.CLOSED


def test_a_pool_that_gave_is_trusted_again() -> None:
    table = Shortages()
    table.failed(ASKED[0].offer, NOON)
    found = fleet.outcome(
        {"Instances": [{"InstanceIds": ["i"], "InstanceType": "m5.large", **echo(**FULL)}]}, ASKED, "spot"
    )
    fleet.note(found, ASKED, table, NOON)
    assert table.standing(ASKED[0].offer, NOON).available


def test_a_full_subnet_closes_itself_not_its_types() -> None:
    table, _ = noted(
        refusal("InsufficientFreeAddressesInSubnet", InstanceType="m5.large", SubnetId="subnet-a", AvailabilityZone="a")
    )
    assert not table.subnet_open("subnet-a", NOON)
    assert table.standing(ASKED[0].offer, NOON) is OfferingStanding.OPEN


def test_a_subnet_without_contiguous_addresses_is_closed_for_prefixes_only() -> None:
    table, _ = noted(
        refusal("InsufficientCidrBlocks", InstanceType="m5.large", SubnetId="subnet-a", AvailabilityZone="a")
    )
    book = SubnetBook(table.subnet_open)
    for prefixes, zones in ((None, {"a"}), (1, set[str]())):
        spec, status = (
            ec2.EC2NodeClassSpec(ip_prefix_count=prefixes),
            ec2.EC2NodeClassStatus(subnets=(ec2.SubnetStatus(id="subnet-a", zone="a"),)),
        )
        assert book.by_zone(ec2.EC2NodeClass(spec=spec, status=status), NOON).keys() == zones


def test_a_used_up_reservation_is_named_and_closes_no_offering() -> None:
    asked = (replace(ASKED[0], reservation="cr-1", offer=replace(ASKED[0].offer, capacity_type="reserved")),)
    table, empty = noted(
        refusal("ReservationCapacityExceeded", InstanceType="m5.large", AvailabilityZone="a"), asked=asked
    )
    assert empty == ("cr-1",)
    assert len(table) == 0


OF_A_RESERVATION = ("InsufficientInstanceCapacity", "InvalidCapacityReservationState.PendingActivation")


@pytest.mark.parametrize("code", OF_A_RESERVATION)
def test_a_reservation_that_gives_nothing_is_short_by_itself_and_not_full(code: str) -> None:
    asked = (replace(ASKED[0], reservation="cr-1", offer=replace(ASKED[0].offer, capacity_type="reserved")),)
    table, empty = noted(refusal(code, InstanceType="m5.large", AvailabilityZone="a"), asked=asked)
    assert empty == ()
    assert not table.reservation_open("cr-1", NOON)
    assert table.reservation_open("cr-2", NOON)
    assert table.reservation_open("cr-1", NOON + timedelta(minutes=1))
    assert all(table.standing(one.offer, NOON) is OfferingStanding.OPEN for one in (*asked, ASKED[0]))


def test_the_fleet_quota_closes_launches_only() -> None:
    table, _ = noted(refusal("MaxFleetCountExceeded"))
    assert table.fleet_open_at(NOON) > NOON
    assert table.standing(ASKED[0].offer, NOON) is OfferingStanding.OPEN


def test_a_missing_spot_role_closes_spot() -> None:
    table, _ = noted(refusal("AuthFailure.ServiceLinkedRoleCreationNotPermitted"))
    assert table.standing(OfferingKey("spot", "x1.large", "z"), NOON) is OfferingStanding.CLOSED


def test_a_missing_permission_closes_nothing() -> None:
    table, _ = noted(refusal("UnauthorizedOperation", InstanceType="m5.large", AvailabilityZone="a"))
    assert len(table) == 0


NOT_IN_THIS_ZONE = "Your requested instance type (m5.large) is not supported in your requested Availability Zone (a)."
OF_ONE_OFFERING = {
    "InvalidFleetConfiguration": "The fleet is not valid.",
    "InvalidParameterCombination": "The instance type m5.large does not support the boot mode uefi of the specified AMI.",
    "NeverHeardOf": "of this",
}


def test_a_fleet_configuration_that_a_zone_does_not_have_closes_its_offering() -> None:
    table, _ = noted(
        refusal("InvalidFleetConfiguration", NOT_IN_THIS_ZONE, InstanceType="m5.large", AvailabilityZone="a")
    )
    assert table.standing(ASKED[0].offer, NOON) is OfferingStanding.CLOSED
    assert table.standing(ASKED[1].offer, NOON) is OfferingStanding.OPEN


@pytest.mark.parametrize("code", OF_ONE_OFFERING)
def test_what_only_some_offerings_are_refused_for_closes_them(code: str) -> None:
    said = OF_ONE_OFFERING[code]
    refused = refusal(code, said, InstanceType="m5.large", AvailabilityZone="b")
    table, _ = noted(refused, launched=1)
    assert table.standing(ASKED[1].offer, NOON) is OfferingStanding.CLOSED
    short = refusal("InsufficientInstanceCapacity", InstanceType="c5.large", AvailabilityZone="a")
    table, _ = noted(refused, short)
    assert table.standing(ASKED[1].offer, NOON) is OfferingStanding.CLOSED


@pytest.mark.parametrize("code", OF_ONE_OFFERING)
def test_what_all_offerings_are_refused_for_closes_none(code: str) -> None:
    said = OF_ONE_OFFERING[code]
    table, _ = noted(*(refusal(code, said, InstanceType="m5.large", AvailabilityZone=zone) for zone in "ab"))
    assert len(table) == 0


def test_overrides_are_where_there_are_subnets() -> None:
    offers = [(OfferingKey("spot", "m5.large", zone), 0.1, "") for zone in "abc"]
    made = fleet.overrides_of(
        offers, {"a": "subnet-a", "c": "subnet-c"}, lambda offer, reservation: (f"lt-{offer.zone}", "ami-1")
    )
    assert [(one.subnet, one.template) for one in made] == [("subnet-a", "lt-a"), ("subnet-c", "lt-c")]
