"""Which new nodes of an answer one gang needs together."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.gangs import REQUEST_PREFIX
from provisioner.apis.launch_sets import MAX_BYTES, MOST_SETS, LaunchSet, encode_sets
from provisioner.scheduling.gangs import GroupsAsked
from provisioner.scheduling.launch_sets import OVERDUE_SECONDS, LaunchTurns, launch_sets, together
from provisioner.scheduling.result import PlannedClaim
from tests.support.problems import instance_type, pod, pool, problem
from tests.support.question import solve


def planned(*nodes: str) -> tuple[PlannedClaim, ...]:
    """Nodes for pods by their first letters; that of a pod tells its group, and "-" that it has none."""
    one = solve(problem((pod("any"),), pool("p", types=(instance_type("one", "4", "8Gi"),)))).claims[0]
    pods = [[pod(f"{letter}{number}{place}") for place, letter in enumerate(text)] for number, text in enumerate(nodes)]
    return tuple(msgspec.structs.replace(one, pods=tuple(some)) for some in pods)


def groups(claims: tuple[PlannedClaim, ...], prefix: str = "n/") -> GroupsAsked:
    uids = [one.uid for claim in claims for one in claim.pods]
    of = {uid: prefix + uid[4] for uid in uids if uid[4] != "-"}
    return GroupsAsked(of, dict.fromkeys(of.values(), 2))


def told(sets: tuple[LaunchSet, ...]) -> dict[str, int]:
    return {one.group: one.nodes for one in sets}


def test_a_gang_has_a_set_of_the_nodes_that_have_pods_of_it() -> None:
    claims = planned("aab", "a-", "--", "cc")
    assert [told(one) for one in launch_sets(claims, groups(claims), "d")] == [
        {"n/a": 2, "n/b": 1},
        {"n/a": 2},
        {},
        {"n/c": 1},
    ]


def test_a_node_that_a_request_shares_is_in_no_set_of_it() -> None:
    """A node of the request that can never be created, or launched, would cost others theirs."""
    claims = planned("rr", "r", "r-", "rs", "rg", "g")
    own = groups(claims, f"n/gang/{REQUEST_PREFIX}")
    gang = {uid: "n/gang/g/2" if key.endswith("g") else f"{key}/2" for uid, key in own.of.items()}
    sets = launch_sets(claims, GroupsAsked(gang, dict.fromkeys(gang.values(), 2)), "d")
    request = {f"n/gang/{REQUEST_PREFIX}r/2": 2}
    assert [told(one) for one in sets] == [request, request, {}, {}, {"n/gang/g/2": 2}, {"n/gang/g/2": 2}]


def test_a_set_that_does_not_fit_on_one_of_its_nodes_is_on_none() -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + MOST_SETS)))
    claims = planned(letters + "z", "z")
    sets = launch_sets(claims, groups(claims), "d")
    assert len(sets[0]) == MOST_SETS
    assert "n/z" in told(sets[1])  # it comes before the others
    assert f"n/{letters[-1]}" not in told(sets[0])


def test_the_text_of_a_node_can_be_read_however_long_the_names_are() -> None:
    claims = planned("abcdefghijklmnopqrstuvwxyz", "z")
    sets = launch_sets(claims, groups(claims, "n" * (MAX_BYTES // 10)), "d")
    assert 0 < len(sets[0]) < len(claims[0].pods)
    assert len(encode_sets(sets[0])) <= MAX_BYTES
    assert sets[1] == ()


@given(st.lists(st.text("abcde", max_size=3), max_size=8), st.randoms())
def test_what_comes_to_be_together_is_what_sets_link(nodes: list[str], chance: random.Random) -> None:
    claims = planned(*nodes)
    sets = launch_sets(claims, groups(claims), "d")
    order = [*range(len(nodes))]
    chance.shuffle(order)
    found = together(sets, order, {"n/a"})
    assert sorted(number for some in found for number in some) == sorted(order)
    where = {number: place for place, some in enumerate(found) for number in some}
    for one in order:
        for other in order:
            if set(nodes[one]) & set(nodes[other]):
                assert where[one] == where[other]
    for some in found:  # and nothing else: what is taken out of a linked part leaves a link between the rest and it
        letters = [set(nodes[number]) for number in some]
        assert len(some) == 1 or all(
            any(mine & other for other in [*letters[:n], *letters[n + 1 :]]) for n, mine in enumerate(letters)
        )
    first = ["a" in "".join(nodes[number] for number in some) for some in found]
    assert first == sorted(first, reverse=True)
    for kind in (True, False):
        leaders = [order.index(some[0]) for some, is_first in zip(found, first, strict=True) if is_first is kind]
        assert leaders == sorted(leaders)


def test_groups_that_were_held_back_come_first_and_single_pods_once_after_one_had_its_turn() -> None:
    turns, one, other = (
        LaunchTurns(),
        (LaunchSet(id="a", group="g", nodes=2),),
        (LaunchSet(id="b", group="h", nodes=2),),
    )
    first = []
    for made, held in (
        ([()], [one, other, ()]),
        ([one], [other, ()]),
        ([], [other, ()]),
        ([()], [other, ()]),
        ([], [other]),
        ([other], []),
    ):
        turns.note(made, held, 0.0)
        first.append(sorted(turns.first))
    assert first == [["g", "h"], [], [], ["h"], ["h"], []]


def test_urgent_claims_come_before_groups_that_were_held_back_unless_these_are_overdue() -> None:
    claims = planned("a", "b", "", "")
    sets = launch_sets(claims, groups(claims), "d")
    first, order = {"n/a", "n/b"}, [3, 2, 1, 0]
    assert together(sets, order, first, urgent={2}) == [[2], [1], [0], [3]]
    assert together(sets, order, first, urgent={2}, overdue={"n/a"}) == [[0], [2], [1], [3]]


def test_a_group_is_overdue_after_five_minutes_of_being_held_back() -> None:
    turns, one = LaunchTurns(), (LaunchSet(id="a", group="g", nodes=2),)
    overdue = []
    for made, held, now in (
        ([], [one], 0.0),
        ([()], [one], OVERDUE_SECONDS - 1),
        ([()], [one], OVERDUE_SECONDS),
        ([one], [], OVERDUE_SECONDS + 1),
        ([], [one], OVERDUE_SECONDS + 2),
    ):
        turns.note(made, held, now)
        overdue.append(sorted(turns.overdue))
    assert overdue == [[], [], ["g"], [], []]
