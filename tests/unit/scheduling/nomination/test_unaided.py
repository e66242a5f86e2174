"""Which planned pods need a nomination."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, WeightedPodAffinityTerm
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.nomination import unaided
from provisioner.scheduling.nomination.unaided import OpenNode, Running, looks_at_others, needed, packed
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration
from tests.support.problems import app, meant, of_app, pods, spread, term

ZONE, HOSTNAME = names.ZONE_LABEL, names.HOSTNAME_LABEL
SMALL, LARGE = of_app("small", "1"), of_app("large", "4")
WISH = WeightedPodAffinityTerm(weight=1, pod_affinity_term=meant(HOSTNAME, app("apart")))
APART = of_app("apart", "1", affinity=Affinity(pod_anti_affinity=PodAffinity(preferred=(WISH,))))
BY_ZONE = of_app("zonal", "1", topology_spread_constraints=(spread(ZONE, app("zonal")),))
BY_HOST = of_app("even", "1", topology_spread_constraints=(spread(HOSTNAME, app("even")),))
TWO_KINDS = of_app("heavy", "1900m", "2Gi"), of_app("wide", "200m", "7Gi")
BY_ZONE_RUNS = pods(4, BY_ZONE, "runs")
PINNED = of_app("pinned", "4", selector={ZONE: "b"})


def world(*nodes: tuple[str, int, Mapping[PodShape, int]]) -> list[OpenNode]:
    """Nodes by zone, CPUs, and pods by class."""
    made = []
    for number, (zone, cpus, planned) in enumerate(nodes):
        room = Resources.of({"cpu": 1000 * cpus, "memory": cpus << 33, "pods": 110})
        mine = [one for of, count in planned.items() for one in pods(count, of, f"{of.labels['app']}-{number}")]
        made.append(OpenNode({ZONE: zone, HOSTNAME: f"node-{number}"}, room, room, tuple(mine)))
    return made


def asked(nodes: list[OpenNode], withheld: Any = (), others: tuple[Pod, ...] = (), running: Any = ()) -> str:
    """Whom `needed` names: nobody, everybody, or which pods."""
    found = needed(nodes, withheld, others, Running(running)).nominated
    may = {one.uid for node in nodes for one in node.planned} - set(withheld)
    assert found <= may
    if not found or found == may:
        return "everybody" if found else "nobody"
    return ", ".join(sorted({uid.removeprefix("uid-").rsplit("-", 2)[0] for uid in found}))


ROWS = {
    "no node": ([], "nobody"),
    "equal pods on equal nodes": (world(("a", 8, {SMALL: 8}), ("a", 8, {SMALL: 8})), "nobody"),
    "equal pods on unequal nodes": (world(("a", 16, {SMALL: 16}), ("a", 4, {SMALL: 4})), "nobody"),
    "large pods beside small ones that spread over both nodes": (
        world(("a", 5, {LARGE: 1, SMALL: 1}), ("a", 5, {SMALL: 5})),
        "large, small",
    ),
    "large pods beside small ones, and room to spare": (world(("a", 16, {LARGE: 2}), ("a", 16, {SMALL: 8})), "nobody"),
    "plain pods on the node of a zone that a spread must not miss": (
        world(("a", 16, {BY_ZONE: 4, SMALL: 12}), ("b", 4, {BY_ZONE: 4}), ("c", 4, {BY_ZONE: 4})),
        "everybody",
    ),
    "zones of equal size": (
        world(*((zone, 9, {BY_ZONE: 4, SMALL: 4}) for zone in "abc")),
        "nobody",
    ),
    "a spread over equal hosts": (world(*(("a", 9, {BY_HOST: 4, SMALL: 4}) for _ in range(3))), "nobody"),
    "a spread over hosts of which one is small": (
        world(("a", 20, {BY_HOST: 6, SMALL: 14}), ("a", 20, {BY_HOST: 6, SMALL: 14}), ("a", 6, {BY_HOST: 6})),
        "everybody",
    ),
    "a pod that only one node lets in": (world(("a", 8, {SMALL: 8}), ("b", 4, {PINNED: 1})), "pinned"),
    "pods that prefer to be apart, whatever the room": (
        world(("a", 16, {APART: 1, SMALL: 1}), ("a", 16, {APART: 1})),
        "apart",
    ),
}


@pytest.mark.parametrize(("nodes", "whom"), ROWS.values(), ids=ROWS)
def test_who_would_be_left_is_nominated_and_nobody_else(nodes: list[OpenNode], whom: str) -> None:
    asks = {one.uid for node in nodes for one in node.planned if one.shape.spread}
    assert asked(nodes, asks) == whom


@pytest.mark.parametrize(
    ("late", "whom"), [((), "nobody"), ((1,), "large, small"), ((0, 1), "large, small")], ids=["none", "one", "both"]
)
def test_nodes_that_open_late_are_filled_one_after_another(
    late: tuple[int, ...], whom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All small pods fit on the first of them, and take the room of a large one: those of one node keep theirs."""
    monkeypatch.setattr(unaided, "FEW", 0)
    nodes = world(("a", 6, {LARGE: 1, SMALL: 2}), ("a", 6, {LARGE: 1, SMALL: 2}))
    nodes = [replace(one, late=number in late) for number, one in enumerate(nodes)]
    assert asked(nodes) == whom


def test_few_pods_find_places_whichever_node_opens_first() -> None:
    """None of these is late, but under load four pods are bound before the second is open."""
    assert asked(world(("a", 6, {LARGE: 1, SMALL: 2}), ("a", 6, {LARGE: 1, SMALL: 2}))) == "large, small"
    assert asked(world(("a", 8, {LARGE: 1, SMALL: 4}), ("a", 8, {LARGE: 1, SMALL: 4}))) == "nobody"


@given(uids=st.permutations("abcdefghij"))
def test_ten_pods_that_need_nodes_of_two_kinds_are_nominated_whatever_their_order(uids: list[str]) -> None:
    nodes = []
    for cpus, gib, counts in ((7_900, 15, (4, 1)), (3_900, 31, (1, 4))):
        room = Resources.of({"cpu": cpus, "memory": gib << 30, "pods": 110})
        mine = [one for of, count in zip(TWO_KINDS, counts, strict=True) for one in pods(count, of)]
        named = tuple(msgspec.structs.replace(one, uid=uids.pop()) for one in mine)
        nodes.append(OpenNode({ZONE: "a", HOSTNAME: f"node-{cpus}"}, room, room, named))
    assert needed(nodes, ()).nominated


def test_equal_pods_need_no_nomination_whenever_their_nodes_open() -> None:
    nodes = world(("a", 8, {SMALL: 8}), ("a", 4, {SMALL: 4}))
    assert asked([replace(one, late=True) for one in nodes]) == "nobody"


def test_pods_without_a_place_there_take_room_too() -> None:
    nodes = world(("a", 8, {SMALL: 8}), ("a", 8, {SMALL: 8}))
    assert asked(nodes, others=pods(4, SMALL, "stranger")) == "everybody"


def test_a_pod_without_a_place_there_whose_affinity_cannot_be_read_takes_no_room() -> None:
    """The API server admits such a value, and kube-scheduler binds no such pod: it keeps no node shut."""
    unread = of_app(
        "unread",
        "4",
        terms=(term(("cpus", "Gt", ["many"])),),
        topology_spread_constraints=(spread(ZONE, app("unread")),),
    )
    nodes = world(("a", 8, {SMALL: 4, BY_ZONE: 4}), ("a", 8, {SMALL: 8}))
    withheld = [one.uid for one in nodes[0].planned if one.shape is BY_ZONE]
    assert asked(nodes, withheld, others=pods(4, unread, "stranger")) == "nobody"


def test_pods_that_run_count_in_a_hard_spread() -> None:
    """Four pods have to go to the zone that has none yet, wherever else there is room."""
    nodes = world(("a", 8, {BY_ZONE: 4, SMALL: 4}), ("b", 8, {SMALL: 8}))
    withheld = [one.uid for one in nodes[0].planned if one.shape is BY_ZONE]
    assert asked(nodes, withheld) == "nobody"
    ended = msgspec.structs.replace(BY_ZONE_RUNS[0], deleted=BY_ZONE_RUNS[0].created)
    for running, whom in (
        ([({ZONE: "b"}, BY_ZONE_RUNS[:4])], "everybody"),
        ([({ZONE: "b"}, [ended] * 4)], "nobody"),
        ([({"other": "b"}, BY_ZONE_RUNS[:4])], "nobody"),
    ):
        assert asked(nodes, withheld, running=running) == whom, running


class _Read(list[Pod]):
    """Pods, and how often they were read."""

    times = 0

    def __iter__(self) -> Iterator[Pod]:
        self.times += 1
        return super().__iter__()


def test_pods_that_run_are_counted_once_however_many_nodes_are_compared() -> None:
    there = _Read(BY_ZONE_RUNS)
    running = Running([({ZONE: "b"}, there)])
    for cpus in (8, 9, 10):
        nodes = world(("a", cpus, {BY_ZONE: 4, SMALL: 4}), ("b", cpus, {SMALL: 8}))
        assert packed(nodes, running)
        assert needed(nodes, (), running=running).nominated
    assert there.times == 1


def test_where_no_node_is_there_nothing_is_kept_for_the_next_question() -> None:
    """The default is one object for as long as the process lives."""
    nodes = world(("a", 8, {BY_ZONE: 4, SMALL: 4}), ("b", 8, {SMALL: 8}))
    assert needed(nodes, ()).nominated
    assert not unaided._NOTHING._known


KINDS = (SMALL, LARGE, BY_ZONE, BY_HOST, *TWO_KINDS, PINNED)


@given(sizes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=4), data=st.data())
def test_a_plan_is_given_up_at_the_first_pod_that_is_left_and_not_before(
    sizes: list[tuple[str, int]], data: st.DataObject
) -> None:
    counts = {one: count for one in KINDS if (count := data.draw(st.integers(0, 4)))}
    nodes = world(*[(zone, cpus, {} if number else counts) for number, (zone, cpus) in enumerate(sizes)])
    tried = unaided._World(nodes, (), Running())
    orders = (tried.hardest_first, tried.spread_first, *tried.orders)
    ends = [tried.bound(order, ()) for order in orders]
    assert packed(nodes) == next((one for one in ends if len(one) == sum(counts.values())), None)


def test_a_plan_is_not_given_up_while_a_node_is_to_open() -> None:
    """The large pod waits for it; the small ones are bound by then."""
    first, second = world(("a", 2, {LARGE: 1, SMALL: 2}), ("a", 16, {}))
    assert packed([first]) is None
    found = packed([first, replace(second, late=True)])
    assert found is not None
    assert sorted(found.values()) == [0, 0, 1]


@pytest.mark.parametrize(("cpus", "bound"), [(4, 3), (0, 0)])
def test_a_plan_is_not_given_up_while_a_spread_may_be_met_yet(cpus: int, bound: int) -> None:
    """Two pods run in zone a, and a third may come there once there are as many in zone b; without any room, never."""
    follows = of_app("follows", "1", selector={ZONE: "a"}, topology_spread_constraints=(spread(ZONE, app("small")),))
    nodes = world(("a", cpus, {follows: 1}), ("b", 4, {of_app("small", "1", selector={ZONE: "b"}): 2}))
    running = Running([({ZONE: "a"}, pods(2, SMALL, "runs"))])
    tried = unaided._World(nodes, (), running)
    assert len(tried.bound((*nodes[0].planned, *nodes[1].planned), (), whole=True)) == bound


def test_nobody_is_nominated_where_that_leaves_no_pod_less() -> None:
    """A spread waits for a zone in which no node opens."""
    nodes = world(("a", 8, {BY_ZONE: 4, SMALL: 4}), ("b", 8, {SMALL: 8}))
    withheld = [one.uid for one in nodes[0].planned if one.shape is BY_ZONE]
    found = needed(nodes, withheld, running=Running([({ZONE: "a"}, ()), ({ZONE: "c"}, ())]))
    assert found == (frozenset(), 2)


def test_pods_of_the_smallest_nodes_are_nominated_first() -> None:
    """They fill their nodes; all others are alike."""
    nodes = world(*(("a", 16, {SMALL: 16}) for _ in range(6)), ("a", 4, {LARGE: 1}), ("a", 4, {LARGE: 1}))
    assert asked(nodes) == "large"


def test_a_pod_takes_no_room_behind_a_taint_that_it_does_not_tolerate() -> None:
    """Pods that may run on either node take half of the one that is open to all."""
    anywhere = of_app("anywhere", "1", tolerations=(Toleration(key="own", operator="Exists"),))
    open_one, own = world(("a", 8, {SMALL: 8}), ("a", 8, {anywhere: 8}))
    assert asked([open_one, own]) == "nobody"
    assert asked([open_one, replace(own, taints=(Taint("own", "NoSchedule"),))]) != "nobody"


def test_nominations_keep_no_room_from_pods_of_higher_priority() -> None:
    first = of_app("first", "1", priority=1)
    nodes = world(*(("a", 16, {first: 16}) for _ in range(6)), ("a", 4, {LARGE: 1}), ("a", 4, {LARGE: 1}))
    assert asked(nodes) == "first, large", "those alone would fill the small nodes"


def test_an_answer_that_takes_long_is_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaided, "MOST_LOOKS", 20)
    assert asked(world(("a", 8, {SMALL: 8}), ("a", 8, {SMALL: 8}), ("a", 8, {LARGE: 2}))) == "everybody"


def test_equal_pods_need_no_nomination_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaided, "MOST_LOOKS", 20)
    other = of_app("other", "1")
    for some in (SMALL, other):
        nodes = world(("a", 8, {SMALL: 8}), ("a", 8, {some: 8}), ("a", 16, {some: 16}))
        assert asked(nodes) == "nobody"
        assert asked(nodes, others=pods(4, SMALL, "stranger")) == "everybody"
    for some in (APART, BY_HOST, PINNED, of_app("tolerant", "1", tolerations=(Toleration(key="own"),))):
        assert asked(world(("a", 8, {SMALL: 8}), ("a", 32, {some: 8}))) == "everybody"
        assert asked(world(("a", 32, {some: 8}), ("a", 32, {some: 8}))) == (
            "nobody" if some is PINNED or some.tolerations else "everybody"
        )


def test_pods_that_ask_for_much_are_nominated_and_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node selector of 33 labels is held against no node; 300 spreads of 300 pods are not compared with one another."""
    long = of_app("long", "1", selector={f"label-{number}": "x" for number in range(33)})
    assert asked(world(("a", 8, {SMALL: 4, long: 1}), ("a", 8, {SMALL: 4}))) == "long"
    each = {
        of_app(f"own{number}", "1m", topology_spread_constraints=(spread(ZONE, app(f"own{number}")),)): 1
        for number in range(300)
    }
    compared = itertools.count()
    monkeypatch.setattr(unaided, "MOST_LOOKS", 2_000)
    monkeypatch.setattr(unaided, "holds", lambda *_: next(compared) < 0)
    nodes = world(("a", 8, {SMALL: 4}), ("a", 8, each))
    assert asked(nodes, [one.uid for one in nodes[1].planned]) == "everybody"
    assert next(compared) <= 2_000


def test_what_pods_ask_of_each_node_counts_as_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = tuple(term((f"label-{number}", "In", ["x"])) for number in range(16))
    each = {of_app(f"own{number}", "1m", terms=terms): 1 for number in range(300)}
    held = itertools.count()
    monkeypatch.setattr(unaided, "MOST_LOOKS", 5_000)
    monkeypatch.setattr(unaided, "first_untolerated", lambda *_: next(held) < 0 or None)
    assert asked(world(("a", 8, each), *(("a", 8, {SMALL: 1}) for _ in range(7)))) == "everybody"
    assert next(held) <= 5_000 / 16 + 8, "each look of these at a node is sixteen"


@pytest.mark.parametrize(("of", "looks"), [(SMALL, False), (APART, True), (BY_ZONE, True), (PINNED, False)])
def test_who_looks_at_others(of: PodShape, looks: bool) -> None:
    assert looks_at_others(of) is looks


def absent(nodes: list[OpenNode], running: Any = ()) -> tuple[list[str], int]:
    """The workloads of the pods that are left if nobody is nominated, and how many pods are taken to be where they are planned."""
    found = unaided.unaided(nodes, Running(running))
    assert found is not None
    every = [one.uid for node in nodes for one in node.planned]
    left = [uid.removeprefix("uid-").rsplit("-", 2)[0] for uid in every if uid not in found.bound]
    rooms = {one.labels[HOSTNAME]: one.room for one in nodes}
    for node in nodes:
        for one in node.planned:
            if one.uid in found.bound:
                rooms[found.bound[one.uid]] -= one.shape.requests
    assert all(room.amount("cpu") >= 0 for room in rooms.values())
    return left, found.assumed


GROUPED = tuple(msgspec.structs.replace(one, group="job") for one in pods(2, LARGE, "large"))
LEFT = {
    "no node": ([], [], 0),
    "equal pods": (world(("a", 8, {SMALL: 8}), ("a", 4, {SMALL: 4})), [], 0),
    "small pods take the room of a large one": (
        world(("a", 5, {LARGE: 1, SMALL: 1}), ("a", 5, {SMALL: 5})),
        ["large"],
        0,
    ),
    "few, of nodes that open one after another": (
        world(("a", 6, {LARGE: 1, SMALL: 2}), ("a", 6, {LARGE: 1, SMALL: 2})),
        ["large"],
        0,
    ),
    "room to spare": (world(("a", 16, {LARGE: 2}), ("a", 16, {SMALL: 8})), [], 0),
    "a spread that plain pods spoil": (
        world(("a", 16, {BY_ZONE: 4, SMALL: 12}), ("b", 4, {BY_ZONE: 4}), ("c", 4, {BY_ZONE: 4})),
        ["zonal"] * 11,
        0,
    ),
    "what is not modelled is where it is planned": (
        world(("a", 5, {APART: 1, SMALL: 4}), ("a", 5, {APART: 1, SMALL: 4})),
        [],
        2,
    ),
    "so are members of groups": (
        [
            replace(one, planned=(*one.planned, pod))
            for one, pod in zip(world(*((("a", 5, {SMALL: 1}),) * 2)), GROUPED, strict=True)
        ],
        [],
        2,
    ),
}


@pytest.mark.parametrize(("nodes", "left", "assumed"), LEFT.values(), ids=LEFT)
def test_who_is_left_where_nobody_is_nominated(nodes: list[OpenNode], left: list[str], assumed: int) -> None:
    assert absent(nodes) == (left, assumed)


def test_who_is_left_depends_on_who_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaided, "FEW", 0)
    nodes = world(("a", 8, {BY_ZONE: 4, SMALL: 4}), ("b", 8, {SMALL: 8}))
    assert absent(nodes) == ([], 0)
    left, _ = absent(nodes, [({ZONE: "b"}, BY_ZONE_RUNS)])
    assert left


def test_who_is_left_of_too_many_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = world(("a", 8, {SMALL: 8}), ("a", 8, {SMALL: 8}), ("a", 8, {LARGE: 2}))
    assert unaided.unaided(nodes, Running()) is not None
    monkeypatch.setattr(unaided, "MOST_LOOKS", 300)
    assert unaided.unaided(nodes, Running()) is None
    monkeypatch.setattr("provisioner.scheduling.nomination.unaided._World.bound", None)  # nobody is bound in vain
    monkeypatch.setattr(unaided, "MOST_LOOKS", 100)
    assert unaided.unaided(nodes, Running()) is None
    monkeypatch.setattr(unaided, "_World", None)
    monkeypatch.setattr(unaided, "MOST_LOOKS", 20)
    assert unaided.unaided(nodes, Running()) is None
    assert absent(world(("a", 8, {SMALL: 8}), ("a", 32, {SMALL: 16}))) == ([], 0), "equal pods are no question"
