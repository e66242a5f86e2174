"""Room that is reserved for pods of ProvisioningRequests: others are kept out of it, and those that name the request are let in."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from extender.facts import ClaimFacts, RequestRoom, Timeline, claim_facts, decode_member
from extender.nodes import RESERVED_SECONDS
from extender.placement import Victims, preemptible
from extender.plan import NO_STANDING
from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.reservations import ReservedRoom, encode_reservations
from provisioner.values.resources import Resources
from tests.support.extender import World, cpus, entry, member

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
OWN = msgspec.structs.replace(member("p", owner="job", klass="big", cores=3), request="a/r")
OTHERS = msgspec.structs.replace(OWN, uid="o", request="a/other")
STRANGER = member("x", owner="web", klass="web", cores=2)
SMALL = member("s", owner="web", klass="web", cores=1)


def reserved(world: World, cores: float = 3, *, until: float = 600.0, priority: int = 0, **changes: object) -> None:
    """Of the 4 cores of n so many are reserved for a/r, in so many seconds no longer."""
    room = RequestRoom(request="a/r", requests=cpus(cores), priority=priority)
    facts = ClaimFacts(name="c-n", node="n", reserved=(room,) if cores else (), reserved_until=world.now + until)
    world.table.set_claim(msgspec.structs.replace(facts, **changes), world.now)


def test_others_are_kept_out_and_the_pods_of_the_request_are_let_in() -> None:
    world = World()
    world.node("n")
    reserved(world)
    world.pods(OWN, OTHERS, STRANGER, SMALL)
    assert world.passing(STRANGER, "n") == []
    assert world.passing(OTHERS, "n") == []
    assert world.passing(SMALL, "n") == ["n"], "there is a core beside it"
    assert world.passing(OWN, "n") == ["n"]


@pytest.mark.parametrize("claim_first", [True, False])
def test_whichever_is_told_first(claim_first: bool) -> None:
    world = World()
    for step in (reserved, lambda one: one.node("n")) if claim_first else (lambda one: one.node("n"), reserved):
        step(world)
    assert world.passing(STRANGER, "n") == []


def test_who_outranks_them_is_let_in() -> None:
    world = World()
    world.node("n")
    reserved(world, priority=5)
    assert world.passing(STRANGER, "n") == []
    assert world.passing(msgspec.structs.replace(STRANGER, priority=6), "n") == ["n"]


@pytest.mark.parametrize("how", ["time", "annotation", "claim", "leaving"])
def test_it_ends_with_its_time_its_annotation_and_its_claim(how: str) -> None:
    world = World()
    world.node("n")
    reserved(world)
    if how == "time":
        world.pass_time(600.0)
    elif how == "annotation":
        reserved(world, 0)
    elif how == "claim":
        world.table.drop_claim("c-n")
    else:
        reserved(world, leaving=True)
    assert world.passing(STRANGER, "n") == ["n"]


def test_no_time_of_an_object_makes_it_last() -> None:
    world = World()
    world.node("n")
    reserved(world, until=1e9)
    world.pass_time(RESERVED_SECONDS - 1)
    assert world.passing(STRANGER, "n") == []
    world.pass_time(1.0)
    assert world.passing(STRANGER, "n") == ["n"]


def test_it_is_held_beside_what_is_planned() -> None:
    world = World()
    one = member("a")
    world.pods(one)
    world.node("n")
    world.table.set_claim(
        ClaimFacts(
            name="c-n",
            node="n",
            initialized_at=world.now,
            planned_at=world.now,
            plan=msgspec.structs.replace(ClaimFacts(name="x").plan, pods=(entry("a"),)),
            reserved=(RequestRoom(request="a/r", requests=cpus(3), priority=0),),
            reserved_until=world.now + 600,
        ),
        world.now,
    )
    assert world.passing(SMALL, "n") == []
    assert world.passing(OWN, "n") == ["n"]
    assert world.ask(one, "n").steered == "n"


def test_preemption_makes_no_room_of_it() -> None:
    world = World()
    world.node("n")
    reserved(world)
    victims = {"n": Victims(1, Resources.of({"cpu": 500}))}
    holds = world.table.room.holds
    assert preemptible(STRANGER, NO_STANDING, holds, victims) == []
    assert preemptible(OWN, NO_STANDING, holds, victims) == ["n"]


def claim(text: str) -> NodeClaim:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"}
    spec = {"nodeClassRef": reference, "requirements": []}
    body = {"metadata": {"name": "c", "annotations": {names.RESERVED: text}}, "spec": spec}
    return msgspec.convert(body, NodeClaim, strict=False)


def test_the_annotation_is_read() -> None:
    text = encode_reservations(
        [ReservedRoom(request="a/r", requests={"cpu": "3", "pods": "1"}, priority=7)], NOON + timedelta(seconds=90)
    )
    facts = claim_facts(claim(text), Timeline(NOON, 10.0))
    assert facts.reserved == (RequestRoom(request="a/r", requests=cpus(3), priority=7),)
    assert (facts.reserved_until, facts.problem) == (100.0, "")


@pytest.mark.parametrize("text", ["{", "{}", json.dumps({"v": 2, "until": "2026-11-29T12:00:00Z"}), "[]", "x" * 70_000])
def test_one_that_cannot_be_read_reserves_nothing_and_is_told(text: str) -> None:
    facts = claim_facts(claim(text), Timeline(NOON, 10.0))
    assert facts.reserved == ()
    assert names.RESERVED in facts.problem


def test_a_pod_says_which_request_it_names() -> None:
    body = {"metadata": {"name": "p", "namespace": "a", "annotations": {names.CONSUMES[0]: "r"}}, "spec": {}}
    assert decode_member(json.dumps(body).encode()).request == "a/r"
    del body["metadata"]["annotations"]
    assert decode_member(json.dumps(body).encode()).request == ""
