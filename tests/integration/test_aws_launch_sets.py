"""NodeClaims of launch sets over HTTP against the emulator: EC2 launches all of them or none."""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.ec2 import SubnetStatus
from provisioner.apis.launch_sets import LaunchSet
from provisioner.cloudprovider.errors import InsufficientCapacityError
from provisioner.ec2.launch.launcher import MATES_SECONDS
from provisioner.ec2.market.unavailable_offerings import OfferingKey
from provisioner.ec2.nodeclass.subnets import Subnet
from tests.support.ec2 import Ec2, Fault
from tests.support.launching import CLOCK, Claims, Ground, Kill, Rig, alive, kills, node_class_of, rig

pytest_plugins = ["tests.support.grounds"]

ONE_ZONE = {
    names.INSTANCE_TYPE_LABEL: ["m5.large", "c5.large"],
    names.ZONE_LABEL: ["us-west-2a"],
    names.CAPACITY_TYPE_LABEL: ["on-demand"],
}
ONE_TYPE = {names.INSTANCE_TYPE_LABEL: ["m5.large"], names.CAPACITY_TYPE_LABEL: ["on-demand"]}
ANY = {names.INSTANCE_TYPE_LABEL: ["m5.large", "c5.large"], names.CAPACITY_TYPE_LABEL: ["on-demand"]}


def company(nodes: int, name: str = "x") -> list[LaunchSet]:
    return [LaunchSet(id=name, group=f"gang/{name}", nodes=nodes)]


def short(available: int, **match: str) -> Fault:
    return Fault(
        "", "shortage", match={key.replace("_", "-"): value for key, value in match.items()}, available=available
    )


def fleets(made: Rig) -> list[tuple[int, int]]:
    """Of each CreateFleet how many instances, and how many at least."""
    options: list[Mapping[str, Any]] = [
        one.get("SpotOptions") or one.get("OnDemandOptions") or {} for one in made.mortal.fleets
    ]
    wanted = [one["TargetCapacitySpecification"]["TotalTargetCapacity"] for one in made.mortal.fleets]
    return [(count, one.get("MinTargetCapacity", 0)) for count, one in zip(wanted, options, strict=True)]


def settled(ec2: Ec2, claims: Claims) -> None:
    """Every claim has one instance, every instance one claim."""
    assert not claims.without_instance()
    assert claims.claims_by_instance() == dict.fromkeys(alive(ec2), 1)


ASKED = {
    "in one zone": (ONE_ZONE, [(3, 0), (4, 4)]),
    "of one type": (ONE_TYPE, [(7, 0)]),
    "of spot": ({**ONE_ZONE, names.CAPACITY_TYPE_LABEL: ["spot"]}, [(3, 0), (4, 4)]),
    "of any": (ANY, [(7, 0)]),
}


@pytest.mark.parametrize(("wanted", "want"), ASKED.values(), ids=ASKED)
def test_a_set_has_a_fleet_of_its_own(
    ec2: Ec2, ground: Ground, wanted: dict[str, list[str]], want: list[tuple[int, int]]
) -> None:
    claims = Claims()
    claims.add(4, wanted, sets=company(4))
    claims.add(2, wanted)
    claims.add(1, wanted, sets=company(1, "alone"))
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        assert sorted(fleets(made)) == want
    settled(ec2, claims)


def test_a_set_that_is_short_by_one_gets_nothing_and_a_stranger_gets_its_instance(
    ec2: Ec2, fresh_ground: Ground
) -> None:
    claims = Claims()
    mine = {*claims.add(4, ONE_TYPE | {names.ZONE_LABEL: ["us-west-2a"]}, sets=company(4))}
    ec2.script([short(3, instance_type="m5.large", zone="us-west-2a")])
    with rig(fresh_ground, claims, [node_class_of(fresh_ground)]) as made:
        made.start()
        assert made.wait(15, lambda: sum(isinstance(one, InsufficientCapacityError) for one in made.told) >= 4)
        assert not alive(ec2)
        told = [one for one in made.told if isinstance(one, InsufficientCapacityError)][:4]
        assert {one.claim_name for one in told} == mine
        assert len({str(one).replace(one.claim_name, "") for one in told}) == 1
        assert set(fleets(made)) == {(4, 4)}
        (stranger,) = claims.add(1, {**ONE_TYPE, names.ZONE_LABEL: ["us-west-2b"]})
        made.reconcile_now(stranger)
        assert made.wait(5, lambda: bool(claims.get(stranger).status.provider_id)), "its zone is not said to be short"
        assert len(alive(ec2)) == 1
        ec2.script()
        for _ in range(4):
            fresh_ground.market.shortages.succeeded(OfferingKey("on-demand", "m5.large", "us-west-2a"), CLOCK.now())
        assert made.wait(20), claims.errors
        assert {least for count, least in fleets(made) if count > 1} == {4}, "never a part of them"
    settled(ec2, claims)


def test_a_set_that_no_subnet_of_its_zone_can_hold_is_launched_into_several(ec2: Ec2, fresh_ground: Ground) -> None:
    """All or none of one subnet is none, and the subnet would count as full for everybody."""
    small = [ec2.add_subnet("us-west-2a", cidr, {}) for cidr in ("10.0.220.0/24", "10.0.221.0/24")]
    for one in small:
        ec2.leave_addresses(one, 3)
    node_class = node_class_of(fresh_ground)
    both = tuple(SubnetStatus(id=one, zone="us-west-2a") for one in small)
    node_class = msgspec.structs.replace(node_class, status=msgspec.structs.replace(node_class.status, subnets=both))
    claims = Claims()
    claims.add(4, ONE_ZONE, sets=company(4))
    with rig(fresh_ground, claims, [node_class]) as made:
        rows = ec2.client("ec2").describe_subnets(SubnetIds=small)["Subnets"]
        made.subnets.note(map(Subnet.of, rows), CLOCK.now())
        made.start()
        assert made.wait(20), claims.errors
        assert fleets(made)[0] == (4, 0)
    settled(ec2, claims)


def test_what_is_left_of_a_set_is_asked_for(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    one, two, *_ = claims.add(4, ONE_ZONE, sets=company(4))
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        assert fleets(made) == [(4, 4)]
    for name in (one, two):  # as if others had been made in their place
        claims.forget_status(name)
        claims.change(name, annotations={names.LAUNCH_SET: claims.get(name).metadata.annotations[names.LAUNCH_SET]})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        assert fleets(made) == [(2, 2)], "those of it that have instances are not asked for again"


def test_members_that_are_asked_for_later_are_waited_for(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    everybody = claims.add(4, ONE_ZONE, sets=company(4))
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.launcher.listen(lambda _: None)
        for name in everybody[:2]:
            made._reconcile(name)
        CLOCK.sleep(MATES_SECONDS / 2)
        assert not fleets(made)
        for name in everybody[2:]:
            made._reconcile(name)
        assert made.wait(10, lambda: bool(fleets(made)))
        assert fleets(made) == [(4, 4)]
        assert made.wait(10, lambda: len(alive(ec2)) == 4)


def test_a_member_that_is_not_asked_for_is_not_waited_for_long(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    everybody = claims.add(4, ONE_ZONE, sets=company(4))
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.launcher.listen(lambda _: None)
        for name in everybody[:3]:
            made._reconcile(name)
        assert made.wait(10, lambda: bool(fleets(made)))
        assert fleets(made) == [(3, 3)]
        assert made.wait(10, lambda: len(alive(ec2)) == 3)


@pytest.mark.parametrize("kill", kills(4).values(), ids=kills(4))
def test_a_crash_launches_no_set_twice(ec2: Ec2, ground: Ground, kill: Kill) -> None:
    claims, node_class = Claims(), node_class_of(ground, tags={"crash": str(uuid.uuid4())})
    claims.add(4, ONE_ZONE, sets=company(4))
    with rig(ground, claims, [node_class], kill=kill) as first:
        first.start()
        assert first.wait(15, first.mortal.dead.is_set)
        assert first.wait(5, lambda: not first.launcher_busy())
        sent = {one["ClientToken"]: one for one in first.mortal.fleets}
    with rig(ground, claims, [node_class]) as second:
        second.start()
        assert second.wait(40), (claims.errors, ec2.calls())
        for one in second.mortal.fleets:
            assert sent.get(one["ClientToken"], one) == one, "a call with the same token is the same call"
    settled(ec2, claims)
