from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from provisioner.cloudprovider.errors import InstanceNotFoundError
from provisioner.ec2.instances.instances import (
    MOST_CALLS,
    Ec2Instance,
    InstanceError,
    Instances,
    InstanceUnseenError,
    instance_id_of,
    provider_id,
)
from provisioner.support.clock import Clock, SystemClock
from provisioner.support.workers import pool, run_parallel
from tests.support.clock import FakeClock

ROW: Mapping[str, Any] = {
    "InstanceId": "i-1",
    "State": {"Name": "running"},
    "InstanceType": "m5.large",
    "Placement": {"AvailabilityZone": "a", "AvailabilityZoneId": "az1", "Tenancy": "default"},
}
PLAIN = Ec2Instance("i-1", "running", "m5.large", "a", "on-demand", zone_id="az1")
RESERVED = {
    "CapacityReservationId": "cr-1",
    "CapacityReservationSpecification": {"CapacityReservationPreference": "capacity-reservations-only"},
}

CASES: dict[str, tuple[dict[str, Any], Ec2Instance]] = {
    "on demand": ({}, PLAIN),
    "spot": ({"SpotInstanceRequestId": "sir-1"}, replace(PLAIN, capacity_type="spot")),
    "in a reservation that it asked for": (
        RESERVED,
        replace(PLAIN, capacity_type="reserved", reservation_id="cr-1", reservation_type="default"),
    ),
    "in an open reservation by accident": (
        {
            "CapacityReservationId": "cr-1",
            "CapacityReservationSpecification": {"CapacityReservationPreference": "open"},
        },
        replace(PLAIN, reservation_id="cr-1"),
    ),
    "in a capacity block": (
        {**RESERVED, "InstanceLifecycle": "capacity-block"},
        replace(PLAIN, capacity_type="reserved", reservation_id="cr-1", reservation_type="capacity-block"),
    ),
    "in a reservation that its owner may take back": (
        {**RESERVED, "InstanceLifecycle": "interruptible-capacity-reservation"},
        replace(PLAIN, capacity_type="reserved", reservation_id="cr-1", reservation_type="default", interruptible=True),
    ),
    "with EFA interfaces": (
        {
            "NetworkInterfaces": [
                {"InterfaceType": "efa"},
                {"InterfaceType": "efa-only"},
                {"InterfaceType": "interface"},
            ]
        },
        replace(PLAIN, efas=2),
    ),
    "in a partition": (
        {"Placement": {"AvailabilityZone": "a", "Tenancy": "dedicated", "GroupId": "pg-1", "PartitionNumber": 3}},
        replace(PLAIN, zone_id="", tenancy="dedicated", group_id="pg-1", partition=3),
    ),
    "with tags": ({"Tags": [{"Key": "k", "Value": "v"}]}, replace(PLAIN, tags={"k": "v"})),
}


@pytest.mark.parametrize(("more", "want"), CASES.values(), ids=CASES)
def test_a_row_of_describe_instances(more: dict[str, Any], want: Ec2Instance) -> None:
    assert Ec2Instance.of({**ROW, **more}) == want


IDS = {
    "ours": ("aws:///us-east-1a/i-0abc", "i-0abc"),
    "with more slashes in front": ("aws:////us-east-1a/i-0abc", ""),
    "of kwok": ("kwok://node", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "want"), IDS.values(), ids=IDS)
def test_the_id_in_a_provider_id(text: str, want: str) -> None:
    assert instance_id_of(text) == want


def test_a_provider_id() -> None:
    assert provider_id("a", "i-1") == PLAIN.provider_id == "aws:///a/i-1"


@dataclass
class Cloud:
    """EC2 with instances in one state; calls for those that are gone, or refused, fail."""

    gone: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    state: str = "running"
    unseen: frozenset[str] = frozenset()
    code: str = "InvalidInstanceID.NotFound"

    def __post_init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def client(self, service: str, region: str = "") -> "Cloud":
        assert (service, region) == ("ec2", "")
        return self

    def describe_instances(self, Filters: list[dict[str, Any]], MaxResults: int) -> dict[str, Any]:  # noqa: N803
        assert MaxResults == 1000
        ids = next(one["Values"] for one in Filters if one["Name"] == "instance-id")
        self.calls.append(("describe", tuple(ids)))
        rows = [
            {**ROW, "InstanceId": one, "State": {"Name": self.state}}
            for one in ids
            if one not in self.gone | self.unseen
        ]
        return {"Reservations": [{"Instances": rows}]}

    def terminate_instances(self, InstanceIds: list[str]) -> dict[str, Any]:  # noqa: N803
        self._change("terminate", InstanceIds)
        return {"TerminatingInstances": [{"InstanceId": one} for one in InstanceIds]}

    def create_tags(self, Resources: list[str], Tags: list[dict[str, str]]) -> None:  # noqa: N803
        assert Tags == [{"Key": "k", "Value": "v"}]
        self._change("tag", Resources)

    def _change(self, what: str, ids: list[str]) -> None:
        self.calls.append((what, tuple(ids)))
        if (self.gone | self.refused) & set(ids):
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, what)


def instances(cloud: Cloud, clock: Clock | None = None) -> Instances:
    return Instances(cloud, clock or SystemClock(), "prod", idle=0.0)


def is_gone(asking: Instances) -> bool:
    try:
        asking.get("aws:///a/i-1")
    except InstanceNotFoundError:
        return True
    except InstanceUnseenError:
        return False
    return False


def test_an_instance_that_ec2_shows_as_terminated_is_gone() -> None:
    assert is_gone(instances(Cloud(state="terminated")))


def test_an_instance_that_is_missing_from_every_answer_for_five_minutes_is_gone() -> None:
    clock = FakeClock()
    asking = instances(Cloud(gone=frozenset({"i-1"})), clock)
    for _ in range(10):
        assert not is_gone(asking)
        clock.advance(30.0)
    assert is_gone(asking)


def test_two_answers_are_not_enough_however_far_they_are_apart() -> None:
    clock = FakeClock()
    asking = instances(Cloud(gone=frozenset({"i-1"})), clock)
    assert not is_gone(asking)
    clock.advance(3600.0)
    for _ in range(5):
        assert not is_gone(asking), "answers that follow each other at once are one"
    clock.advance(60.0)
    assert is_gone(asking)


def test_an_instance_that_is_seen_again_was_never_missing() -> None:
    clock, cloud = FakeClock(), Cloud(gone=frozenset({"i-1"}))
    asking = instances(cloud, clock)
    for _ in range(4):
        for _ in range(9):
            assert not is_gone(asking)
            clock.advance(30.0)
        cloud.gone = frozenset()
        asking.get_all(["aws:///a/i-1"])
        cloud.gone = frozenset({"i-1"})


def test_answers_that_fail_do_not_count() -> None:
    clock, cloud = FakeClock(), Cloud(gone=frozenset({"i-1"}))
    asking = instances(cloud, clock)
    cloud.code = "InternalError"
    broken = cloud.describe_instances
    cloud.describe_instances = lambda **_: cloud._change("describe", ["i-1"])  # type: ignore[method-assign,assignment]
    for _ in range(20):
        with pytest.raises(InstanceError):
            asking.get("aws:///a/i-1")
        clock.advance(60.0)
    cloud.describe_instances = broken  # type: ignore[method-assign]
    assert not is_gone(asking)


def test_an_instance_that_ec2_does_not_describe_is_ended_all_the_same() -> None:
    cloud = Cloud(unseen=frozenset({"i-1"}))
    instances(cloud).terminate("aws:///a/i-1")
    assert cloud.calls == [("describe", ("i-1",)), ("terminate", ("i-1",))]


def test_those_that_ec2_does_not_describe_hold_up_no_other() -> None:
    """Each would fail the call for all where EC2 really has none."""
    many = [f"i-{number}" for number in range(20)]
    cloud = Cloud(gone=frozenset(many[:10]))
    asking = Instances(cloud, SystemClock(), "prod", idle=0.2)
    with pool(20, "ends") as threads:
        outcomes = list(run_parallel(threads, lambda one: asking.terminate(f"aws:///a/{one}"), many))
    assert {one.item for one in outcomes if one.error is None} == {*many[10:]}
    assert all(isinstance(one.error, InstanceError) for one in outcomes if one.error is not None)
    asked = [ids for what, ids in cloud.calls if what == "terminate"]
    assert all(len(ids) == 1 or not cloud.gone & {*ids} for ids in asked)


def test_that_nothing_finds_an_instance_is_no_proof_that_it_is_gone() -> None:
    with pytest.raises(InstanceUnseenError):
        instances(Cloud(gone=frozenset({"i-1"}))).terminate("aws:///a/i-1")


def test_an_instance_that_ec2_does_not_describe_may_be_in_a_zone_that_is_shifted_away_from() -> None:
    cloud = Cloud(unseen=frozenset({"i-1"}))
    asking = Instances(cloud, SystemClock(), "prod", idle=0.0, shifted=lambda: frozenset({"az1"}))
    with pytest.raises(InstanceUnseenError):
        asking.terminate("aws:///a/i-1")
    assert cloud.calls == [("describe", ("i-1",))]


def test_what_is_no_instance_is_not_asked_for() -> None:
    cloud = Cloud()
    with pytest.raises(InstanceNotFoundError):
        instances(cloud).get("kwok://node")
    assert cloud.calls == []


def test_more_ids_than_a_filter_takes_are_asked_for_in_turns() -> None:
    cloud = Cloud(gone=frozenset({"i-7"}))
    asked = [f"aws:///a/i-{number}" for number in range(450)]
    found = instances(cloud).get_all([*asked, "kwok://node"])
    assert [len(ids) for _, ids in cloud.calls] == [200, 200, 50]
    assert found.keys() == {*asked} - {"aws:///a/i-7"}


def test_one_that_is_gone_does_not_keep_the_others_alive() -> None:
    cloud = Cloud(gone=frozenset({"i-2"}))
    said = instances(cloud)._terminate(["i-1", "i-2", "i-3"])
    assert said["i-1"] == said["i-3"] == "shutting-down"
    assert isinstance(said["i-2"], InstanceUnseenError)


ONES_OWN = [
    "OperationNotPermitted",
    "UnauthorizedOperation",
    "UnsupportedOperation",
    "IncorrectInstanceState",
    "Unheard",
]
TEN = [f"i-{number}" for number in range(10)]


@pytest.mark.parametrize("code", ONES_OWN)
@pytest.mark.parametrize("which", TEN)
def test_one_that_may_not_be_ended_does_not_keep_the_others_alive(code: str, which: str) -> None:
    cloud = Cloud(refused=frozenset({which}), code=code)
    said = instances(cloud)._terminate(TEN)
    assert {one for one, answer in said.items() if answer == "shutting-down"} == {*TEN} - {which}
    assert isinstance(said[which], InstanceError)
    assert len(cloud.calls) <= 12


def test_one_that_was_refused_is_asked_for_alone_the_next_time() -> None:
    cloud = Cloud(refused=frozenset({"i-3"}), code="OperationNotPermitted")
    asking = instances(cloud)
    asking._terminate(TEN)
    cloud.calls.clear()
    asking._terminate(["i-3", "i-20", "i-21"])
    assert cloud.calls == [("terminate", ("i-20", "i-21")), ("terminate", ("i-3",))]


FOR_ALL = {"RequestLimitExceeded": 1, "InternalError": 1, "ExpiredToken": 1, "UnauthorizedOperation": 4}


@pytest.mark.parametrize(("code", "most"), FOR_ALL.items(), ids=FOR_ALL)
def test_what_is_refused_to_all_is_not_asked_for_one_by_one(code: str, most: int) -> None:
    cloud = Cloud(refused=frozenset(TEN), code=code)
    said = instances(cloud)._terminate(TEN)
    assert all(isinstance(answer, InstanceError) for answer in said.values())
    assert len(cloud.calls) <= most


def test_many_that_are_refused_cost_a_bounded_number_of_calls() -> None:
    many = [f"i-{number}" for number in range(400)]
    cloud = Cloud(refused=frozenset(many[::2]), code="OperationNotPermitted")
    asking = instances(cloud)
    left, rounds = list(many), 0
    while {*left} - cloud.refused:
        rounds += 1
        cloud.calls.clear()
        said = asking._terminate(left)
        assert said.keys() == {*left}
        assert len(cloud.calls) <= MOST_CALLS
        left = [one for one in left if said[one] != "shutting-down"]
        assert rounds < 60


def test_one_that_is_gone_does_not_keep_the_others_untagged() -> None:
    cloud = Cloud(gone=frozenset({"i-2"}))
    said = instances(cloud)._create_tags([("i-1", (("k", "v"),)), ("i-2", (("k", "v"),))])
    assert said["i-1", (("k", "v"),)] is None
    assert isinstance(said["i-2", (("k", "v"),)], InstanceUnseenError)


def test_an_instance_is_looked_at_and_then_ended() -> None:
    cloud = Cloud()
    instances(cloud).terminate("aws:///a/i-1")
    assert cloud.calls == [("describe", ("i-1",)), ("terminate", ("i-1",))]


def test_a_termination_that_is_denied_is_tried_again_later() -> None:
    cloud = Cloud(refused=frozenset({"i-1"}), code="UnauthorizedOperation")
    with pytest.raises(InstanceError, match="UnauthorizedOperation"):
        instances(cloud).terminate("aws:///a/i-1")


def test_one_that_ends_already_is_left_alone() -> None:
    cloud = Cloud(state="shutting-down")
    instances(cloud).terminate("aws:///a/i-1")
    assert cloud.calls == [("describe", ("i-1",))]
