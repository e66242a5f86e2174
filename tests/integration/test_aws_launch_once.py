"""Every claim gets one instance and every instance one claim, whatever is lost on the way: answers of the API server and of EC2, and the process itself."""

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.ec2 import NODECLAIM_TAG, EC2NodeClass
from provisioner.cloudprovider.errors import InstanceNotFoundError
from provisioner.ec2.instances.orphans import sort_out
from provisioner.ec2.market.unavailable_offerings import OfferingKey
from tests.support.ec2 import Ec2, Fault
from tests.support.eventually import PATIENCE as CROWDED
from tests.support.launching import (
    ATTEMPTS,
    CLOCK,
    PATIENCE,
    Answer,
    Claims,
    Ground,
    Kill,
    alive,
    kills,
    known_everywhere,
    node_class_of,
    rig,
)

pytest_plugins = ["tests.support.grounds"]

TYPE = names.INSTANCE_TYPE_LABEL
SMALL = ["m5.large", "m6g.large", "c5.large", "c6g.large"]
HIDDEN = PATIENCE / 2
"""Seconds for which EC2 describes nothing of what it has just launched."""


def settled(ec2: Ec2, claims: Claims, instances: int) -> None:
    """So many instances, each with one claim, each claim with one of them."""
    owned = claims.claims_by_instance()
    assert set(owned.values()) <= {1}
    assert set(owned) == set(alive(ec2))
    assert len(owned) == instances


def own_class(ground: Ground) -> list[EC2NodeClass]:
    """A class whose orders are like no other's."""
    return [node_class_of(ground, tags={"test": str(uuid.uuid4())})]


# ------------------------------------------------------------------ marks whose answers are lost


MARKS = {
    f"{answer.value}, {where}": (answer, number)
    for answer in Answer
    for where, number in {"the first": 1, "one in the middle": 2, "the last": 4}.items()
}


@pytest.mark.parametrize("slow", [False, True], ids=["a quick fleet", "a slow fleet"])
@pytest.mark.parametrize(("answer", "number"), MARKS.values(), ids=MARKS)
def test_a_mark_whose_answer_is_lost(ec2: Ec2, ground: Ground, answer: Answer, number: int, slow: bool) -> None:
    """The claim is tried again while the fleet of the others is under way, and must get nothing of theirs."""
    claims = Claims()
    claims.add(4, {TYPE: SMALL})
    claims.answers = {number: answer}
    if slow:
        ec2.script([Fault("CreateFleet", "hang", times=1, seconds=2.0)])
    with rig(ground, claims, own_class(ground)) as made:
        made.start()
        assert made.wait(20), (claims.errors, ec2.calls())
        for write in claims.late:
            write()
    settled(ec2, claims, 4)
    with rig(ground, claims, own_class(ground)) as made:
        made.start()
        CLOCK.sleep(0.5)
    settled(ec2, claims, 4)


# ------------------------------------------------------------------ answers of EC2 that are lost


LOST = Fault("CreateFleet", "timeout-after-effect", times=1)
IN_PROGRESS = Fault("CreateFleet", "replay", code="RequestInProgress", message="The request is in progress.", times=3)
ONLY_THE_FLEET = Fault("CreateFleet", "replay")
MISMATCH = Fault("CreateFleet", "replay", code="IdempotentParameterMismatch", message="inconsistent")
LATE = Fault("DescribeInstances", "stale", seconds=HIDDEN)

ATTEMPTS_OF_ONE_CALL = {
    "and then EC2 throttles": [LOST, Fault("CreateFleet", "throttled", times=ATTEMPTS - 1, after=1)],
    "and then EC2 fails": [LOST, Fault("CreateFleet", "500", times=ATTEMPTS - 1, after=1)],
    "and then EC2 denies": [LOST, Fault("CreateFleet", "denied", times=1, after=1)],
    "and then EC2 knows the template no more": [LOST, Fault("CreateFleet", "not-found", times=1, after=1)],
    "and then EC2 says something unheard of": [
        LOST,
        Fault("CreateFleet", "error", times=1, after=1, code="Unheard", message="of"),
    ],
    "and then EC2 names the fleet only": [LOST, ONLY_THE_FLEET],
    "and then EC2 says that it is in progress": [LOST, IN_PROGRESS],
    "and then EC2 finds the parameters inconsistent": [LOST, MISMATCH],
    "and EC2 names the fleet only, and describes late": [LOST, ONLY_THE_FLEET, LATE],
    "and then EC2 throttles, names the fleet only, and describes late": [
        LOST,
        Fault("CreateFleet", "throttled", times=ATTEMPTS - 1, after=1),
        ONLY_THE_FLEET,
        LATE,
    ],
    "every time": [Fault("CreateFleet", "timeout-after-effect", times=ATTEMPTS)],
    "every time, and EC2 describes late": [Fault("CreateFleet", "timeout-after-effect", times=ATTEMPTS), LATE],
}


@pytest.mark.parametrize("faults", ATTEMPTS_OF_ONE_CALL.values(), ids=ATTEMPTS_OF_ONE_CALL)
def test_a_fleet_whose_answer_is_lost(ec2: Ec2, ground: Ground, faults: list[Fault]) -> None:
    claims = Claims()
    claims.add(3, {TYPE: SMALL})
    ec2.script(faults)
    with rig(ground, claims, own_class(ground)) as made:
        made.start()
        assert made.wait(40), (claims.errors, ec2.calls())
    settled(ec2, claims, 3)


# ------------------------------------------------------------------ the process is killed

ORDERED = 6


@dataclass(frozen=True)
class Meanwhile:
    """What the next process meets.

    Attributes:
        faults: of EC2.
        others: whether other offerings are short by then, so that the same claims make another order.
    """

    faults: tuple[Fault, ...] = ()
    others: bool = False


MEANWHILES = {
    "all as before": Meanwhile(),
    "EC2 describes late": Meanwhile((LATE,)),
    "EC2 names the fleet only, and describes late": Meanwhile((ONLY_THE_FLEET, LATE)),
    "another order, and EC2 describes late": Meanwhile((LATE,), others=True),
}
CALLED = {
    "before CreateFleet",
    "before the answer of CreateFleet",
    "before the first status",
    "in the middle of the statuses",
}
LIVES = {
    f"{when}, {what}": (kill, meanwhile)
    for when, kill in kills(ORDERED).items()
    for what, meanwhile in MEANWHILES.items()
    if when in CALLED or what == "all as before"
}


def live(ground: Ground, claims: Claims, classes: list[EC2NodeClass], kill: Kill) -> None:
    """One process, until it is killed."""
    with rig(ground, claims, classes, kill=kill) as made:
        made.start()
        assert made.wait(20, made.mortal.dead.is_set), (claims.errors, made.launcher)
        assert made.wait(5, lambda: not made.launcher_busy())


@contextmanager
def other_offerings(ground: Ground, really: bool) -> Iterator[None]:
    """Half of what is ordered is short."""
    short = [OfferingKey("spot", one, zone) for one in SMALL[2:] for zone in ground.ec2.vpc.zones] if really else []
    for one in short:
        ground.market.shortages.failed(one, CLOCK.now())
    try:
        yield
    finally:
        for one in short * 4:
            ground.market.shortages.succeeded(one, CLOCK.now(), 1)


@pytest.mark.parametrize(("kill", "meanwhile"), LIVES.values(), ids=LIVES)
def test_a_process_that_is_killed(ec2: Ec2, ground: Ground, kill: Kill, meanwhile: Meanwhile) -> None:
    claims, classes = Claims(), own_class(ground)
    claims.add(ORDERED, {TYPE: SMALL})
    live(ground, claims, classes, kill)
    ec2.script(meanwhile.faults)
    with other_offerings(ground, meanwhile.others), rig(ground, claims, classes) as made:
        made.start()
        assert made.wait(30), (claims.errors, ec2.calls())
    ec2.script()
    settled(ec2, claims, ORDERED)


def test_a_process_that_is_killed_after_a_part_of_a_fleet(ec2: Ec2, fresh_ground: Ground) -> None:
    """Two of six came; the others are known to have none, so the next process need not search for theirs."""
    claims, classes = Claims(), own_class(fresh_ground)
    claims.add(
        ORDERED, {TYPE: ["m5.large"], names.ZONE_LABEL: ["us-west-2a"], names.CAPACITY_TYPE_LABEL: ["on-demand"]}
    )
    ec2.script([Fault("", "shortage", match={"instance-type": "m5.large"}, available=2)])
    live(fresh_ground, claims, classes, Kill("status", after=2, effect=False))
    ec2.script()
    with rig(fresh_ground, claims, classes) as made:
        made.start()
        assert made.wait(PATIENCE / CROWDED, lambda: len(claims.claims_by_instance()) >= 2), (
            "nobody waits for what EC2 describes"
        )
        assert made.wait(60), (claims.errors, ec2.calls())
    settled(ec2, claims, ORDERED)


def test_an_instance_that_shows_itself_too_late_is_an_orphan(ec2: Ec2, ground: Ground) -> None:
    """EC2 hides it for longer than anybody searches: its claim is launched anew, and the instance is nobody's, so it is collected."""
    claims, classes = Claims(), own_class(ground)
    claims.add(2, {TYPE: SMALL})
    live(ground, claims, classes, Kill("create_fleet"))
    lost = set(alive(ec2))
    ec2.script([ONLY_THE_FLEET, Fault("DescribeInstances", "stale", seconds=1e6)])
    with rig(ground, claims, classes) as made:
        made.start()
        ec2.script([Fault("CreateFleet", "replay", times=1), Fault("DescribeInstances", "stale", seconds=1e6)])
        assert made.wait(30), (claims.errors, ec2.calls())
        ec2.script()
        known_everywhere(ec2)
        orphans = {one.id for one in sort_out(made.instances.list(), claims.all()).orphans}
    assert set(claims.claims_by_instance().values()) == {1}
    assert orphans == lost == set(alive(ec2)) - set(claims.claims_by_instance())


@pytest.mark.parametrize("seed", range(4))
def test_processes_that_are_killed_again_and_again(ec2: Ec2, ground: Ground, seed: int) -> None:
    """Three processes die anywhere, answers of both servers are lost, and the fourth finds everything."""
    chance = random.Random(seed)
    claims, classes = Claims(), own_class(ground)
    claims.add(ORDERED, {TYPE: SMALL})
    for _ in range(3):
        claims.answers = {claims.writes + chance.randint(1, 9): chance.choice(list(Answer)) for _ in range(2)}
        ec2.script(chance.choice(list(ATTEMPTS_OF_ONE_CALL.values())))
        kill = Kill(
            chance.choice(["mark", "create_fleet", "status", "unmark"]), chance.randint(1, 4), chance.random() < 0.5
        )
        with rig(ground, claims, classes, kill=kill) as made:
            made.start()
            made.wait(6, lambda made=made: made.mortal.dead.is_set() or not claims.without_instance())  # type: ignore[misc]
            made.mortal.dead.set()
            made.wait(5, lambda made=made: not made.launcher_busy())  # type: ignore[misc]
        for write in claims.late:
            write()
    ec2.script()
    with rig(ground, claims, classes) as made:
        made.start()
        assert made.wait(30), (claims.errors, ec2.calls())
    settled(ec2, claims, ORDERED)


# ------------------------------------------------------------------ claims that come back without their status


def test_claims_that_lost_their_status_get_the_instances_that_carry_their_names(ec2: Ec2, ground: Ground) -> None:
    """As after a restored backup. One instance ended long ago and EC2 has forgotten it, so the order of the others tells nothing any more."""
    claims, classes = Claims(), own_class(ground)
    made = claims.add(3, {TYPE: SMALL})
    with rig(ground, claims, classes) as first:
        first.start()
        assert first.wait(20)
        owners = {claims.get(name).status.provider_id.rpartition("/")[2]: name for name in made}
        known_everywhere(ec2)
        for instance, name in owners.items():
            first.instances.tag(instance, {NODECLAIM_TAG: name})
    gone, *kept = sorted(owners)
    ground.aws.client("ec2").terminate_instances(InstanceIds=[gone])
    for seconds in (60, 2 * 3600):  # until it has ended, and until EC2 has forgotten it
        ec2.skip(seconds)
        CLOCK.sleep(0.2)
    for name in made:
        claims.forget_status(name)
    ec2.script([ONLY_THE_FLEET])
    with rig(ground, claims, classes) as second:
        second.start()
        assert second.wait(30), (claims.errors, ec2.calls())
    settled(ec2, claims, 3)
    assert [claims.get(owners[one]).status.provider_id.rpartition("/")[2] for one in kept] == kept


def test_what_another_claim_has_is_not_given_to_one_that_was_copied(ec2: Ec2, ground: Ground) -> None:
    """Somebody applied a claim again under another name, its mark with it."""
    claims, classes = Claims(), own_class(ground)
    (name,) = claims.add(1, {TYPE: SMALL})
    with rig(ground, claims, classes) as first:
        first.start()
        assert first.wait(20)
    (copy,) = claims.add(1, {TYPE: SMALL})
    claims.change(copy, annotations=claims.get(name).metadata.annotations)
    with rig(ground, claims, classes) as second:
        second.start()
        assert second.wait(30), (claims.errors, ec2.calls())
    settled(ec2, claims, 2)


def test_the_end_of_one_of_two_claims_with_one_instance_leaves_it_to_the_other(ec2: Ec2, ground: Ground) -> None:
    claims, classes = Claims(), own_class(ground)
    (name,) = claims.add(1, {TYPE: SMALL})
    with rig(ground, claims, classes) as made:
        made.start()
        assert made.wait(20)
        known_everywhere(ec2)
        (twin,) = claims.add(1, {TYPE: SMALL})
        claims.put(msgspec.structs.replace(claims.get(twin), status=claims.get(name).status))
        for one, other in ((twin, name), (name, twin)):
            going = claims.change(one, deletion_timestamp=CLOCK.now())
            with pytest.raises(InstanceNotFoundError):
                made.launcher.delete(going)
            assert len(alive(ec2)) == 1, "it is the other's"
            claims.change(one, deletion_timestamp=None)
            assert claims.get(other).status.provider_id
        for one in (twin, name):
            claims.change(one, deletion_timestamp=CLOCK.now())
        made.launcher.delete(claims.get(name))
        assert not alive(ec2), "nobody stays"
