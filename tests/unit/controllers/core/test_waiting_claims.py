"""NodeClaims that are not being launched yet are planned again with the next batch, where that costs less, and never more than that."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.state.effects import ClaimUnneeded, PodSettled
from provisioner.state.keys import NodeKey
from provisioner.state.launches import MOST_TIMES, Launch
from tests.support.batches import Batches
from tests.support.cluster import World, claim, pod, pool
from tests.support.kube import FakeAnswer, Sent, ok

WIDE = "1200m"  # one of them takes the smallest node of 2 CPUs, three of them one of 4


class Stage(Batches):
    """A pool; claims that are created are not launched."""

    def __init__(self, **pool_spec: Any) -> None:
        super().__init__(World(), self.succeed)
        self.world.cluster.pool_changed(None, pool(**pool_spec))

    def succeed(self, sent: Sent) -> FakeAnswer:
        if sent.method == "PATCH":  # pods were added to a plan
            return ok(msgspec.to_builtins(self.world.cluster.claim(sent.path.rpartition("/")[2])))
        body = dict(sent.body)
        body["metadata"] = {**body["metadata"], "uid": f"uid-{body['metadata']['name']}", "resourceVersion": "1"}
        return ok(body, 201)

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


@pytest.mark.parametrize("what", ["mark", "machine", "deletion", "another leader's"])
def test_a_claim_is_left_alone_of_which_there_may_be_something(what: str) -> None:
    stage = Stage()
    (first,) = stage.batch(*wide(1))
    cluster = stage.world.cluster
    known = cluster.claim(first)
    assert known is not None
    match what:
        case "mark":
            known.metadata.annotations[names.LAUNCH_ANNOTATION] = "batch/1/0"
        case "machine":
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
        assert PodSettled(NodeKey(f"c{number}"), "moves", "replanned") in (world.cluster.replan([f"c{number}"]) or [])
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
    assert cluster.replan([first]) is None


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
