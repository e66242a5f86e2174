"""What the state shows of the cluster: room, pods that wait, pods that leave, and what a snapshot costs."""

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.state.cluster import Cluster
from tests.support.clock import NOON
from tests.support.cluster import TYPES, World, bound, claim, node, pod, pool

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def test_a_claim_without_a_node_has_the_room_of_its_planned_type() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", planned="c-4x-amd64-linux"))
    assert world.view("a").room["cpu"] == 3900
    assert world.view("a").labels[names.INSTANCE_TYPE_LABEL] == "c-4x-amd64-linux"


def test_a_planned_pod_takes_room_before_it_is_bound_and_only_once_after() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    assert world.view("a").room["cpu"] == 2900
    world.cluster.pod_changed(one, bound(one, "a"))
    view = world.view("a")
    assert (view.room["cpu"], view.used["cpu"], dict(view.planned)) == (2900, 1000, {})


def test_a_planned_pod_is_not_pending() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    assert [found.name for found in world.cluster.snapshot().pending] == ["two"]


def test_the_pods_of_a_leaving_node_are_planned_until_a_plan_covers_them() -> None:
    world = World()
    here = pod("here", node="a")
    world.existing_node("a", deletionTimestamp=NOON.isoformat())
    world.add(here)
    assert [found.name for found in world.cluster.snapshot().leaving] == ["here"]
    world.cluster.claim_changed(None, claim("b", pods=(here,)))
    assert world.cluster.snapshot().leaving == ()
    # it is evicted, and its successor takes the place
    world.cluster.pod_changed(here, None)
    world.add(pod("there"))
    assert world.cluster.is_planned("there")


def test_an_uninitialised_node_shows_no_taint_that_will_fall() -> None:
    world = World()
    made = claim("a", provider_id="kwok://a", true=(names.LAUNCHED, names.REGISTERED))
    world.cluster.claim_changed(None, made)
    world.cluster.node_changed(
        None, node("a", taints=(UNREGISTERED, NOT_READY, {"key": "team", "effect": "NoSchedule"}))
    )
    assert [taint.key for taint in world.view("a").taints] == ["team"]


def test_the_first_listing_starts_no_consolidation_clock_and_later_binds_do() -> None:
    world = World()
    cluster = Cluster(lambda _: {}, world.clock)
    cluster.pod_changed(None, pod("old", node="a"))
    cluster.settle()
    assert cluster.last_pod_event("a") is None
    fresh = pod("fresh")
    cluster.pod_changed(None, fresh)
    cluster.pod_changed(fresh, bound(fresh, "a"))
    assert cluster.last_pod_event("a") == NOON


def newer(one: NodeClaim, **metadata: object) -> NodeClaim:
    """The claim one version later."""
    version = str(int(one.metadata.resource_version) + 1)
    return msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, resource_version=version, **metadata)
    )


# --- limits -----------------------------------------------------------------------------------------------------------


def flexible(name: str, *types: str) -> NodeClaim:
    """A claim that may become any of these types, planned as the first."""
    body = msgspec.to_builtins(claim(name, planned=types[0]))
    named = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": list(types)}
    body["spec"]["requirements"] = [*body["spec"]["requirements"], named]
    return msgspec.convert(body, NodeClaim, strict=False)


def charged(world: World, name: str = "general") -> dict[str, int]:
    used = next(view.used for view in world.cluster.snapshot().pools if view.pool.metadata.name == name)
    return {key: amount for key, amount in used.items() if key in (names.CPU, names.NODES)}


def test_limits_are_charged_with_the_most_that_a_claim_may_become_until_it_is_launched() -> None:
    world = World()
    world.cluster.pool_changed(None, pool(limits={"cpu": "64"}))
    asked = flexible("a", "c-4x-amd64-linux", "c-16x-amd64-linux")
    world.cluster.claim_changed(None, asked)
    assert charged(world) == {"cpu": 16_000, "nodes": 1}
    launched = claim("a", provider_id="kwok://a", true=(names.LAUNCHED,))
    world.cluster.claim_changed(asked, launched)
    assert charged(world) == {"cpu": 4_000, "nodes": 1}, "settled at launch"
    world.cluster.claim_changed(launched, None)
    assert charged(world) == {}


def test_a_claim_whose_pool_is_gone_has_neither_room_nor_charge_though_no_event_has_told() -> None:
    world = World()
    world.cluster.pool_changed(None, pool(limits={"cpu": "64"}))
    world.cluster.claim_changed(None, claim("a", planned="c-4x-amd64-linux"))
    assert world.cluster.snapshot().pools[0].used.amount("cpu") == 4000
    world.types = {}  # the store of NodePools drops one before its event is handed on
    view = world.view("a")
    assert (
        view.room.amount("cpu"),
        view.charge.amount("cpu"),
        world.cluster.snapshot().pools[0].used.amount("cpu"),
    ) == (0, 0, 0)


def test_a_claim_has_room_once_the_types_of_its_pool_are_known() -> None:
    world, known = World(), TYPES
    world.types = {}
    world.cluster.claim_changed(None, claim("a", planned="c-4x-amd64-linux"))
    assert world.view("a").room.amount("cpu") == 0
    world.types = known
    assert world.view("a").room.amount("cpu") == 3900


def test_a_limit_that_comes_later_is_charged_too() -> None:
    world = World()
    world.cluster.pool_changed(None, pool())
    world.cluster.claim_changed(None, flexible("a", "c-4x-amd64-linux", "c-16x-amd64-linux"))
    assert charged(world) == {"cpu": 4_000, "nodes": 1}
    world.cluster.pool_changed(pool(), pool(limits={"cpu": "64"}))
    assert charged(world) == {"cpu": 16_000, "nodes": 1}


# --- own writes ---------------------------------------------------------------------------------------------------------


def test_a_taint_that_we_wrote_counts_before_the_watch_tells_it_and_an_older_event_does_not_undo_it() -> None:
    world = World()
    world.existing_node("a")
    before = world.cluster.node("a")
    assert before is not None
    taint = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
    stale = node("a", labels={names.NODEPOOL_LABEL: "general"})
    written = node("a", taints=(taint,), labels={names.NODEPOOL_LABEL: "general"})
    world.cluster.node_written(written)
    assert world.view("a").deleting
    world.cluster.node_changed(before, stale)
    assert world.view("a").deleting
    after = node("a", labels={names.NODEPOOL_LABEL: "general"})
    world.cluster.node_changed(stale, after)
    assert not world.view("a").deleting


def test_a_claim_that_we_deleted_is_going_before_the_watch_tells_it() -> None:
    world, made = World(), claim("a")
    world.cluster.claim_changed(None, made)
    world.cluster.claim_deleted(made)
    assert world.view("a").deleting
    world.cluster.claim_changed(made, made)  # told before the server took our request
    assert world.view("a").deleting


def test_a_node_that_we_deleted_is_going_before_the_watch_tells_it() -> None:
    world = World()
    world.existing_node("a")
    found = world.cluster.node("a")
    assert found is not None
    world.cluster.node_deleted(found)
    assert world.view("a").deleting


def test_the_watch_is_believed_again_a_while_after_an_own_write() -> None:
    # a control plane that was restored from a backup tells lower versions for ever
    world, made = World(), claim("a", version=1000)
    world.cluster.claim_changed(None, made)
    world.cluster.claim_written(claim("a", version=1001, labels={"team": "new"}))
    world.clock.advance(61)
    world.cluster.claim_changed(made, claim("a", version=5, labels={"team": "old"}))
    found = world.cluster.claim("a")
    assert found is not None
    assert found.metadata.labels == {"team": "old"}


# --- what a snapshot costs ----------------------------------------------------------------------------------------------


def test_a_snapshot_shares_everything_that_did_not_change_with_the_one_before() -> None:
    world = World()
    world.cluster.pool_changed(None, pool())
    for name in ("a", "b"):
        world.existing_node(name)
    world.add(pod("waits"))
    before = world.cluster.snapshot()
    after = world.cluster.snapshot()
    for part in ("nodes", "pools", "daemons", "pending", "leaving", "around"):
        assert getattr(after, part) is getattr(before, part), part
    world.add(pod("one", node="a"))
    changed = world.cluster.snapshot()
    assert changed.pools is before.pools
    assert changed.pending is before.pending
    assert [view.key.name for view in changed.nodes] == ["a", "b"]
    assert changed.nodes[0] is not before.nodes[0]
    assert changed.nodes[1] is before.nodes[1]


def test_a_heartbeat_changes_no_view() -> None:
    world = World()
    world.existing_node("a")
    before = world.view("a")
    beat: Node | None = world.cluster.node("a")
    assert beat is not None
    again = msgspec.structs.replace(beat, metadata=msgspec.structs.replace(beat.metadata, resource_version="99999"))
    world.cluster.node_changed(beat, again)
    assert world.view("a") is before


def test_nodes_are_in_order_initialised_ones_first() -> None:
    world = World()
    for name in ("d", "b"):
        world.existing_node(name)
    for name in ("c", "a"):
        world.cluster.claim_changed(None, claim(name))
    world.cluster.node_changed(None, node("e"))
    assert [str(view.key) for view in world.cluster.snapshot().nodes] == ["b", "d", "node/e", "a", "c"]


def test_nothing_is_kept_of_what_is_gone() -> None:
    world = World()
    for number in range(200):
        one, made = pod(f"p{number}", node=f"n{number}"), claim(f"c{number}", pods=(pod(f"w{number}"),))
        waits, fake = pod(f"w{number}"), pod(f"f{number}", owner=f"ds{number}", kind="DaemonSet", node=f"n{number}")
        world.add(one, waits, fake)
        world.cluster.claim_changed(None, made)
        world.cluster.snapshot()
        world.cluster.node_changed(None, node(f"n{number}"))
        for gone in (one, waits, fake):
            world.cluster.pod_changed(gone, None)
        world.cluster.claim_changed(made, None)
        world.cluster.node_changed(node(f"n{number}"), None)
    world.clock.advance(3600)
    world.cluster.expire()
    world.cluster.snapshot()
    assert sizes(world.cluster) == {}


def sizes(thing: object, path: str = "", depth: int = 4) -> dict[str, int]:
    """Every container of our own objects below `thing` that is not empty."""
    found: dict[str, int] = {}
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in [*getattr(thing, "__dict__", {}), *slots]:
        value = getattr(thing, name, None)
        if isinstance(value, dict | set | list | tuple):
            if value and not isinstance(value, tuple):
                found[f"{path}{name}"] = len(value)
        elif depth and type(value).__module__.startswith("provisioner.state"):
            found |= sizes(value, f"{path}{name}.", depth - 1)
    return found
