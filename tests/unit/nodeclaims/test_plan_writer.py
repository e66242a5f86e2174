"""Plans as they are written on NodeClaims, and as they are taken off Nodes."""

from provisioner.apis import names
from provisioner.apis.plan import MAX_BYTES, decode_plan
from provisioner.nodeclaims.plan_writer import REMOVE_AGAIN_SECONDS, NodePlanRemover, PlanWriter, plan_patch
from provisioner.state.keys import NodeKey
from provisioner.support.workers import KeyedQueue, pool
from tests.support.cluster import World, bound, claim, node, plan_text, pod
from tests.support.eventually import eventually
from tests.support.keys import hand_over
from tests.support.problems import shape
from tests.support.worldserver import WorldServer

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
A = NodeKey("a")


class Stage:
    """A ready node `a` of ours, and a writer of plans."""

    def __init__(self, **changes: object) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.server.put(claim("a", provider_id="kwok://a", true=ALL_TRUE, **changes), node("a"))  # type: ignore[arg-type]

    def write(self, key: NodeKey = A) -> None:
        with pool(1) as workers:
            PlanWriter(self.world.cluster, self.server.writer, workers).changed(key)

    @property
    def text(self) -> str | None:
        """The plan on the claim, as the server has it."""
        return self.server.claim("a").metadata.annotations.get(names.PLAN_ANNOTATION)

    @property
    def planned(self) -> set[str]:
        return {uid for entry in decode_plan(self.text or "").pods for uid in entry.uids}


def test_pods_that_are_planned_onto_a_node_that_exists_stand_on_its_claim_and_not_on_the_node() -> None:
    stage, one = Stage(), pod("one")
    stage.world.add(one)
    stage.world.cluster.assign(A, (one,))
    stage.write()
    assert stage.planned == {"one"}
    assert stage.server.done == ["PATCH nodeclaims/a"]
    stage.write()
    assert stage.server.done == ["PATCH nodeclaims/a"], "what stands there already is not written again"
    assert stage.world.assigned("a") == ["one"]


def test_later_pods_are_added_in_place_and_those_that_came_stay_counted() -> None:
    one, two = pod("one"), pod("two")
    stage = Stage(pods=(one,))
    stage.world.add(bound(one, "a"), two)
    stage.world.cluster.assign(A, (two,))
    stage.write()
    (entry,) = decode_plan(stage.text or "").pods
    assert (entry.count, entry.uids) == (2, ("one", "two"))


def test_a_pod_that_was_missed_is_taken_off() -> None:
    one, two = pod("one"), pod("two", cpu="2")
    stage = Stage()
    stage.world.add(one, two)
    stage.world.cluster.assign(A, (one, two))
    stage.write()
    stage.world.cluster.pod_changed(two, None)
    stage.world.clock.advance(31)
    stage.world.cluster.expire()
    stage.write()
    assert stage.planned == {"one"}


def test_a_plan_of_which_nothing_is_left_is_removed() -> None:
    stage, one = Stage(pods=(pod("one"),)), pod("one")
    stage.world.add(one)
    stage.world.clock.advance(1000)
    stage.world.cluster.expire()
    stage.write()
    assert stage.text is None


def test_a_node_without_a_claim_gets_no_plan() -> None:
    stage, one, key = Stage(), pod("one"), NodeKey.of_node("n")
    stage.server.put(node("n"))
    stage.world.add(one)
    assert stage.world.cluster.assign(key, (one,)) == []
    stage.write(key)
    assert stage.server.done == []
    assert stage.world.cluster.is_planned("one"), "its room is kept in memory all the same"


def test_a_claim_that_goes_or_is_not_created_yet_is_not_written() -> None:
    stage, one = Stage(), pod("one")
    stage.world.add(one)
    stage.world.cluster.assign(A, (one,))
    stage.world.cluster.claim_deleted(stage.server.claim("a"))
    stage.write()
    stage.write(NodeKey("never"))
    assert stage.server.done == []


def test_a_plan_that_another_leader_wrote_meanwhile_is_read_before_it_is_replaced() -> None:
    stage, ours, theirs = Stage(), pod("ours"), pod("theirs")
    stage.world.add(ours, theirs)
    stage.world.cluster.assign(A, (ours,))
    stage.server.tell = False  # our watch is late
    stage.server.put(
        claim("a", provider_id="kwok://a", true=ALL_TRUE, annotations={names.PLAN_ANNOTATION: plan_text((theirs,))})
    )
    stage.write()
    assert stage.planned == {"ours", "theirs"}


def test_a_plan_that_somebody_writes_all_the_time_is_given_up_for_now() -> None:
    stage, one = Stage(), pod("one")
    stage.world.add(one)
    stage.world.cluster.assign(A, (one,))
    stage.server.refuse["a"] = 422
    stage.write()
    assert stage.text is None


def test_a_plan_is_never_longer_than_an_annotation_may_be() -> None:
    stage = Stage()
    many = [pod(f"p{number:05d}", uid="u" * 200 + str(number)) for number in range(400)]
    stage.world.add(*many)
    stage.world.cluster.assign(A, many)
    stage.write()
    text = stage.text or ""
    assert len(text) <= MAX_BYTES
    (entry,) = decode_plan(text).pods
    assert (entry.count, entry.uids) == (400, ()), "counted, not named"


def test_a_plan_that_is_too_large_even_so_leaves_the_one_that_is_there() -> None:
    stage = Stage(annotations={names.PLAN_ANNOTATION: plan_text((pod("old"),))})
    many = [
        pod(f"p{number}", owner=f"{number}-" + "o" * 200, shape=shape(labels={"n": str(number)}))
        for number in range(400)
    ]
    stage.world.add(*many)
    stage.world.cluster.assign(A, many)
    stage.write()
    assert stage.planned == {"old"}


def test_a_patch_is_guarded_by_what_it_was_decided_from() -> None:
    bare = claim("a")
    bare.metadata.annotations.clear()
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": bare.metadata.resource_version}
    uid = {"op": "test", "path": "/metadata/uid", "value": "uid-a"}
    add = {"op": "add", "path": "/metadata/annotations", "value": {names.PLAN_ANNOTATION: "new"}}
    assert plan_patch(bare, "new") == [uid, version, add]
    known = claim("a", annotations={names.PLAN_ANNOTATION: "old"})
    was = {"op": "test", "path": "/metadata/annotations/dovetail.dev~1plan", "value": "old"}
    assert plan_patch(known, "new")[:2] == [uid, was]
    assert plan_patch(known, "")[-1] == {"op": "remove", "path": "/metadata/annotations/dovetail.dev~1plan"}
    assert plan_patch(bare, "") == []


# --- plans of earlier versions on Nodes ---------------------------------------------------------------------------------------


def test_old_plans_are_taken_off_nodes_and_a_kubelet_that_writes_them_again_is_not_chased() -> None:
    world = World()
    server = WorldServer(world)
    old = node("n", annotations={names.PLAN_ANNOTATION: plan_text((pod("one"),)), "team": "a"})
    plain = node("plain")
    server.put(old, plain)
    remover = NodePlanRemover(server.client, world.clock)
    queue = KeyedQueue("node-plan", remover.reconcile, world.clock)
    queue.start()
    try:
        for existing_node in (old, plain):
            hand_over(queue, remover.seen(existing_node))
        eventually(lambda: server.done == ["PATCH nodes/n"], "the plan is taken off")
        assert server.node("n").metadata.annotations == {"team": "a"}
        for _ in range(100):
            hand_over(queue, remover.seen(old))
        assert len(queue) == 0
        world.clock.advance(REMOVE_AGAIN_SECONDS)
        hand_over(queue, remover.seen(old))
        eventually(lambda: server.done == ["PATCH nodes/n"] * 2, "an hour later it is taken off again")
    finally:
        queue.stop()
