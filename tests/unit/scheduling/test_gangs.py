"""What questions about groups with topology keys cost: nobody's groups keep those of others from being asked about, and nothing is asked for every pod."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.gangs import (
    _LOOK_STEPS,
    GroupAnswers,
    GroupsAsked,
    _DomainTurns,
    all_or_nothing,
    groups_asked,
)
from provisioner.scheduling.group_domains import Domain, DomainChoice, spanning
from provisioner.scheduling.judging import Design
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.reasons import NOT_TRIED
from provisioner.scheduling.result import Result, Unplaced
from tests.support.problems import instance_type, node, pod, pods, pool, problem, shape
from tests.support.work import Lines

RACK = "example.com/rack"
LOOKS = 20
"""Groups for which there is time to find domains."""


def members(count: int, namespace: str = "default", size: int = 1) -> list[Pod]:
    """Groups of which no two have equal pods."""
    return [
        msgspec.structs.replace(one, group=f"g{number:03}")
        for number in range(count)
        for one in pods(size, shape(f"{600 + number}m", namespace=namespace), f"{namespace}-{number}")
    ]


def asked(some: Sequence[Pod]) -> GroupsAsked:
    keys = {f"{one.namespace}/{one.group}" for one in some}
    return groups_asked(some, dict.fromkeys(keys, 1), {}, topology=dict.fromkeys(keys, RACK))


def placed(some: Sequence[Pod]) -> set[str]:
    """The groups that have places where a look for the domains of one takes a tenth of the steps that are done in one go, and there is time for a few."""
    looks = Counter[str]()

    def over() -> bool:
        return looks.total() > LOOKS

    def whole(these: Sequence[Pod], _: GroupsAsked) -> Result:
        if over():
            return Result((), {}, tuple([Unplaced(one, (NOT_TRIED,)) for one in these]))
        return Result((), {"n": tuple(these)}, ())

    def domains(key: str, _: Sequence[Pod]) -> DomainChoice:
        looks[key] += 1
        return DomainChoice(RACK, [Domain(RACK, "r")], made=True, steps=_LOOK_STEPS // 10)

    answers = GroupAnswers(whole, whole, domains, lambda _: (), lambda _: (), over)
    result = all_or_nothing(some, asked(some), answers)
    return {f"{one.namespace}/{one.group}" for one in result.placed}


def test_groups_get_places_although_there_is_no_time_to_find_the_domains_of_all() -> None:
    assert len(placed(members(3 * LOOKS))) >= LOOKS // 2


def test_the_groups_of_one_namespace_do_not_use_up_the_time_of_another() -> None:
    assert "other/g000" in placed([*members(3 * LOOKS), *members(1, "other", size=5)])


def test_a_gang_that_keeps_off_nodes_says_nothing_of_an_equal_one_that_does_not() -> None:
    kind = shape("1")
    some = [msgspec.structs.replace(one, group=name) for name in "ab" for one in pods(2, kind, name)]
    groups = groups_asked(some, dict.fromkeys(("default/a", "default/b"), 2), {})

    def whole(these: Sequence[Pod], _: GroupsAsked) -> Result:
        if {one.group for one in these} == {"b"}:
            return Result((), {"n": tuple(these)}, ())
        return Result((), {}, tuple([Unplaced(one, (NOT_TRIED,)) for one in these]))

    avoided = {one.uid: frozenset({"n"}) for one in some if one.group == "a"}
    answers = GroupAnswers(whole, whole, _new_node, lambda _: (), lambda _: (), over=lambda: False, avoided=avoided)
    assert {one.group for one in all_or_nothing(some, groups, answers).placed} == {"b"}


def test_domains_are_looked_up_once_for_a_node_and_a_group_not_for_each_of_their_pods() -> None:
    looked = Counter[object]()

    def value_on(spot: int | str, _: str) -> str:
        looked[spot] += 1
        return "r"

    def homes(key: str) -> tuple[str, ...]:
        looked[key] += 1
        return ("r",)

    some = pods(6)
    spots: list[tuple[int | str, Sequence[Pod]]] = [(0, some[:3]), ("n", some[3:])]
    assert not spanning(spots, {"g": RACK}, {one.uid: "g" for one in some}, value_on, homes)
    assert looked == {0: 1, "n": 1, "g": 1}


@pytest.mark.parametrize("label", [names.HOSTNAME_LABEL, names.ZONE_LABEL])
def test_to_judge_a_group_costs_as_much_as_it_has_pods(label: str) -> None:
    """Half of it runs, the other half is to join it."""
    lines = []
    for count in (40, 80):
        runs = [msgspec.structs.replace(pod(f"r{number}", shape("1m")), group="g") for number in range(count)]
        more = [msgspec.structs.replace(one, group="g") for one in pods(count, shape("1m"))]
        bins = [node("n", "99", "640Gi", labels={names.HOSTNAME_LABEL: "n", names.ZONE_LABEL: "a"}, running=runs)]
        question = replace(problem(more, bins=bins), groups={"default/g": 2}, topology={"default/g": label})
        prepared = prepare(question)
        design = Design(existing={"n": tuple(more)})
        assert prepared.judge(design).legal
        with Lines() as work:
            prepared.judge(design)
        lines.append(work.count)
    assert lines[1] < 2.5 * lines[0]


def test_to_see_which_groups_have_one_new_node_costs_as_much_as_these_have_pods() -> None:
    lines = []
    for count in (20, 40):
        some = members(count, size=2)
        groups = asked(some)
        answers = GroupAnswers(_nothing, _nothing, _new_node, lambda _: (), lambda _: (), lambda: False)
        turns = _DomainTurns(groups, answers)
        for key in groups.needed:
            turns.learn(key, (), key)
        claims = prepare(problem(some, pool("default", types=(TINY,)))).solve(some).claims
        assert len(claims) == len(some)
        with Lines() as work:
            assert len(turns.scattered(groups.needed, Result(claims, {}, ()))) == count
        lines.append(work.count)
    assert lines[1] < 2.5 * lines[0]


TINY = instance_type("tiny", "1", "64Gi", zones=("a",))


def _nothing(*_: object) -> Result:
    return Result((), {}, ())


def _new_node(*_: object) -> DomainChoice:
    return DomainChoice(names.HOSTNAME_LABEL, [Domain(names.HOSTNAME_LABEL, "")], made=True)
