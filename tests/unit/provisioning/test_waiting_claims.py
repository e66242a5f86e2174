"""NodeClaims that are not being launched yet are planned again with the next batch, where that costs less, and never more than that."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import ContainerPort
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType, launch_price
from provisioner.provisioning import replanning
from provisioner.state.claim_plans import MOST_TIMES, Launch
from provisioner.state.effects import ClaimUnneeded, PodSettled
from provisioner.state.keys import NodeKey
from provisioner.values.requirement import Requirements
from tests.support.batches import Batches
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, pod
from tests.support.problems import shape

WIDE = "1200m"  # one of them takes the smallest node of 2 CPUs, three of them one of 4


class Stage(Batches):
    """Claims that are created are not launched."""

    def batch(self, *pods: Pod, **options: Any) -> list[str]:
        """Plan these beside what there is; the claims that were created."""
        self.world.add(*pods)
        known = len(self.created)
        self.effects.clear()
        self.run(taken_back=self.effects.extend, **options)
        return self.created[known:]

    def unneeded(self) -> list[str]:
        return [one.claim for one in self.effects if isinstance(one, ClaimUnneeded)]

    def pods_of(self, name: str) -> list[str]:
        return self.world.assigned(name)


def wide(*numbers: int) -> list[Pod]:
    return [pod(f"p{number}", cpu=WIDE) for number in numbers]


def test_pods_that_are_cheaper_on_one_node_are_planned_together() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    (second,) = stage.batch(*wide(2, 3))
    assert stage.pods_of(second) == ["p1", "p2", "p3"]
    assert stage.world.cluster.is_unneeded(first)
    assert stage.unneeded() == [first]
    assert PodSettled(NodeKey(first), "p1", "replanned") in stage.effects
    assert stage.world.cluster.launch_begins(first) is Launch.UNNEEDED
    assert stage.world.cluster.launch_begins(second) is Launch.BEGIN


def test_they_stay_where_they_are_without_growth_to_spare() -> None:
    """With growth limits nobody says what becomes of the effects, and nothing is planned again."""
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    stage.world.add(*wide(2, 3))
    stage.run()
    assert stage.pods_of(first) == ["p1"]


def test_a_claim_that_is_being_launched_keeps_its_pods() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    assert stage.world.cluster.launch_begins(first) is Launch.BEGIN
    stage.batch(*wide(2, 3))
    assert stage.pods_of(first) == ["p1"]
    assert not stage.unneeded()


def test_a_claim_whose_launch_begins_while_the_others_are_planned_keeps_its_pods() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    answers: list[Launch] = []
    looks = iter([stage.world.cluster.launch_begins])  # before it is held
    stage.provider.meanwhile = lambda: answers.extend(begins(first) for begins in looks)
    stage.batch(*wide(2, 3))
    assert answers == [Launch.BEGIN]
    assert stage.pods_of(first) == ["p1"]


def test_while_a_claim_is_planned_again_nobody_launches_it() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    answers: list[Launch] = []
    looks: list[str] = []

    def meanwhile() -> None:
        if looks:  # the first is before it is held
            answers.append(stage.world.cluster.launch_begins(first))
        looks.append(first)

    stage.provider.meanwhile = meanwhile
    (second,) = stage.batch(*wide(2, 3))
    assert set(answers) == {Launch.HELD}
    assert stage.pods_of(second) == ["p1", "p2", "p3"]


def gone(world: World, one: Pod) -> None:
    """Its claim has a vacant place for a moment."""
    world.cluster.pod_changed(one, None)


def replaced(world: World, one: Pod) -> None:
    """Its successor has its place at once."""
    world.cluster.pod_changed(one, msgspec.structs.replace(one, deleted=NOON))
    world.add(pod(f"{one.uid}-again", cpu=WIDE))


def bound_elsewhere(world: World, one: Pod) -> None:
    world.cluster.pod_changed(one, bound(one, "elsewhere"))


@pytest.mark.parametrize("what", [gone, replaced, bound_elsewhere])
def test_a_claim_whose_pods_are_others_when_they_are_planned_again_is_kept(what: Callable[[World, Pod], None]) -> None:
    """The successor of a pod lost its place, nobody planned it for ten seconds, and a node was made for the pod that was gone."""
    stage, pods = Stage(), [*wide(1), pod("small", cpu="100m")]
    (first,) = stage.batch(*pods)
    looks: list[str] = []

    def meanwhile() -> None:
        looks.append(first)
        if len(looks) == 2:  # the first is before it is held
            assert stage.world.cluster.launch_begins(first) is Launch.HELD
            what(stage.world, pods[0])

    stage.provider.meanwhile = meanwhile
    stage.batch(*wide(2, 3))
    assert len(looks) > 1
    assert "small" in stage.pods_of(first)
    assert not stage.unneeded()


def test_claims_that_are_left_alone_are_launched_while_the_others_are_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replanning, "MOST_CLAIMS", 1)
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    (second,) = stage.batch(pod("full", cpu="1800m"))
    held, left = sorted((first, second))
    answers: list[tuple[Launch, Launch]] = []
    looks: list[str] = []

    def meanwhile() -> None:
        looks.append(first)
        if len(looks) == 2:  # the first is before they are held
            begins = stage.world.cluster.launch_begins
            answers.append((begins(held), begins(left)))

    stage.provider.meanwhile = meanwhile
    stage.batch(*wide(2, 3))
    assert answers == [(Launch.HELD, Launch.BEGIN)]


def test_a_claim_that_is_cheapest_where_it_is_may_be_launched_afterwards() -> None:
    stage = Stage()
    (first,) = stage.batch(pod("full", cpu="1800m"))
    stage.batch(pod("other", cpu="1800m"))
    assert stage.pods_of(first) == ["full"]
    assert stage.world.cluster.launch_begins(first) is Launch.BEGIN


def test_a_claim_that_its_provider_refused_is_planned_again() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    stage.world.cluster.launch_begins(first)
    stage.world.cluster.launch_refused(first)
    (second,) = stage.batch(*wide(2, 3))
    assert stage.pods_of(second) == ["p1", "p2", "p3"]


@pytest.mark.parametrize("what", ["mark", "instance", "deletion", "another leader's"])
def test_a_claim_is_left_alone_of_which_there_may_be_something(what: str) -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    cluster = stage.world.cluster
    known = cluster.claim(first)
    assert known is not None
    match what:
        case "mark":
            known.metadata.annotations[names.LAUNCH_ANNOTATION] = "batch/1/0"
        case "instance":
            status = msgspec.structs.replace(known.status, provider_id="kwok://here")
            cluster.claim_written(msgspec.structs.replace(known, status=status))
        case "deletion":
            cluster.claim_deleted(known)
        case _:
            cluster.claim_changed(known, None)
            cluster.claim_changed(None, known)
            cluster.launch_refused(first)
    assert cluster.hold_launches(1.0) == ()


def test_pods_are_planned_again_so_often_and_no_more() -> None:
    world, one = World(), pod("moves")
    world.add(one)
    for number in range(MOST_TIMES):
        assert world.cluster.announce(unwritten(f"c{number}", one), (one,))
        assert world.cluster.hold_launches(5.0) == (f"c{number}",)
        assert PodSettled(NodeKey(f"c{number}"), "moves", "replanned") in (
            world.cluster.replan({f"c{number}": ["moves"]}) or []
        )
        world.cluster.claim_failed(f"c{number}")
    assert world.cluster.announce(unwritten("last", one), (one,))
    assert world.cluster.hold_launches(5.0) == ()
    world.cluster.pod_changed(one, None)
    world.add(pod("moves"))  # its successor, of the same UID here: what is gone is forgotten
    assert world.cluster.hold_launches(5.0) == ("last",)


def unwritten(name: str, *pods: Pod) -> NodeClaim:
    made = claim(name, pods=pods)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))


def test_a_hold_ends_by_itself() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    cluster = stage.world.cluster
    assert cluster.hold_launches(5.0) == (first,)
    assert cluster.launch_begins(first) is Launch.HELD
    stage.world.clock.advance(6)
    assert cluster.launch_begins(first) is Launch.BEGIN
    assert cluster.replan({first: ["p1"]}) is None


def test_what_is_taken_back_leaves_the_limits_of_its_pool_to_those_for_whom_there_was_no_place() -> None:
    stage = Stage(limits={"cpu": "4"})
    (first,) = stage.batch(*wide(1))
    (second,) = stage.batch(*wide(2, 3))
    assert stage.pods_of(second) == ["p1", "p2", "p3"]
    assert stage.world.cluster.is_unneeded(first)


def test_pods_stay_where_they_are_if_nothing_can_be_had_for_their_claim_now() -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    known = stage.world.cluster.claim(first)
    assert known is not None
    nothing = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["gone"]}
    spec = msgspec.structs.replace(
        known.spec, requirements=(msgspec.convert(nothing, type(known.spec.requirements[0])),)
    )
    stage.world.cluster.claim_written(msgspec.structs.replace(known, spec=spec))
    stage.batch(*wide(2, 3))
    assert stage.pods_of(first) == ["p1"]


def apart(*numbers: int) -> list[Pod]:
    """No two of them share a node."""
    port = msgspec.structs.replace(shape(cpu=WIDE), host_ports=(ContainerPort(host_port=80),))
    return [pod(f"p{number}", shape=port) for number in numbers]


def spot_of_many_types(short: str = "") -> tuple[InstanceType, ...]:
    """kwok's types, whose launches as spot take one of the 3 cheapest; there is no spot of the type that is short."""
    return tuple(
        replace(
            kind,
            offerings=tuple(
                replace(way, alternatives=3, available=kind.name != short) if way.capacity_type == "spot" else way
                for way in kind.offerings
            ),
        )
        for kind in catalogue.generated().types
    )


def test_a_spot_node_costs_what_the_others_cost_that_may_come_of_it_where_its_planned_type_is_short() -> None:
    stage = Stage()
    stage.provider.types = spot_of_many_types()
    (first,) = stage.batch(*apart(1))
    known = stage.world.cluster.claim(first)
    assert known is not None
    planned, _, capacity_type = known.metadata.annotations[names.PLANNED_OFFERING_ANNOTATION].split("/")
    assert capacity_type == "spot"
    stage.provider.types = spot_of_many_types(planned)
    stage.batch(*apart(2))
    assert stage.pods_of(first) == ["p1"], (
        "nothing is saved: on demand it would have cost more, but it is launched as spot"
    )


def test_claims_that_ask_for_the_same_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, looks = Stage(), list[object]()
    stage.provider.types = spot_of_many_types()
    assert len(stage.batch(*apart(1, 2, 3, 4))) == 4

    def counted(types: Iterable[InstanceType], wanted: Requirements) -> float | None:
        looks.append(wanted)
        return launch_price(types, wanted)

    monkeypatch.setattr(replanning, "launch_price", counted)
    stage.batch(pod("more"))
    assert len(looks) == 1
