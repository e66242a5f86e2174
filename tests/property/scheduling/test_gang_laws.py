"""Laws of groups in the solver: all that are needed have places, or none has; and whoever fails takes nothing from the others."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, PodAffinityTerm
from provisioner.apis.launch_sets import decode_sets, encode_sets
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.launch_sets import launch_sets
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.result import Result
from tests.support import checker
from tests.support.problems import instance_type, node, pod, pods, pool, problem, shape
from tests.support.question import Problem, solve
from tests.support.rich import Stock
from tests.support.telling import told
from tests.support.work import Lines

NAMES = ("g", "h", "i")


def in_groups(asked: Problem, which: list[str], minima: Mapping[str, int]) -> Problem:
    """The same with pods in groups, `which` over and over, running ones too."""
    turns = iter(range(1 << 20))

    def member(pod: Pod) -> Pod:
        return msgspec.structs.replace(pod, group=which[next(turns) % len(which)])

    pods = tuple(map(member, asked.pods))
    bins = tuple(replace(one, pods=tuple(map(member, one.pods))) for one in asked.bins)
    spaces = {pod.namespace for pod in (*pods, *(pod for one in bins for pod in one.pods))}
    return replace(
        asked, pods=pods, bins=bins, groups={f"{space}/{name}": n for name, n in minima.items() for space in spaces}
    )


def grouped(stock: Stock) -> st.SearchStrategy[Problem]:
    return st.builds(
        in_groups,
        stock.problems(copies=(1, 2, 4, 6)),
        st.lists(st.sampled_from(("", *NAMES)), min_size=1, max_size=7),
        st.fixed_dictionaries({name: st.integers(1, 6) for name in NAMES}),
    )


def key_of(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.group}" if pod.group else ""


def there(asked: Problem) -> Counter[str]:
    """How many members have places already and keep them."""
    moving = {pod.uid for pod in asked.pods}
    return Counter(key_of(pod) for one in asked.bins for pod in one.pods if pod.uid not in moving)


def halves(asked: Problem, result: Result) -> dict[str, str]:
    """Groups of which some pods have places, and fewer than are needed, by the letter of the rule."""
    before, placed = there(asked), Counter(map(key_of, result.placed))
    return {
        key: f"{n} more than {before[key]} of {asked.groups[key]}"
        for key, n in placed.items()
        if key in asked.groups and before[key] + n < asked.groups[key]
    }


def dropped(asked: Problem, result: Result) -> set[str]:
    """The groups that need several pods and have none."""
    before, placed = there(asked), set(map(key_of, result.placed))
    return {key for key, least in asked.groups.items() if least - before[key] > 1 and key not in placed}


def without(asked: Problem, keys: set[str]) -> Problem:
    return replace(asked, pods=tuple(pod for pod in asked.pods if key_of(pod) not in keys))


def without_dropped(asked: Problem, result: Result) -> Problem:
    return without(asked, dropped(asked, result))


def near(label: str) -> Affinity:
    """In one zone with a pod of this label."""
    term = PodAffinityTerm(topology_key=names.ZONE_LABEL, label_selector=LabelSelector(match_labels={"chain": label}))
    return Affinity(pod_affinity=PodAffinity(required=(term,)))


def beside_a_chain(asked: Problem, links: int) -> Problem:
    """The same, and gangs of two in a namespace of their own: the first can never be, and each other one has a pod that wants to be with one of the gang before."""
    chain = []
    for link in range(links):
        free = shape("100m", namespace="evil", labels={"chain": str(link)})
        tied = (
            shape("100m", namespace="evil", affinity=near(str(link - 1))) if link else shape("5000", namespace="evil")
        )
        for name, of in (("free", free), ("tied", tied)):
            chain.append(msgspec.structs.replace(pod(f"{name}-{link}", of), group=str(link)))
    return replace(
        asked,
        pods=(*asked.pods, *chain),
        groups={**asked.groups, **{f"evil/{link}": 2 for link in range(links)}},
    )


PROBLEMS = st.one_of(
    grouped(Stock(20261129)), grouped(Stock(20261130, gentle=True)), grouped(Stock(20261131, own=True))
)

HOSTILE = st.one_of(PROBLEMS, st.builds(beside_a_chain, PROBLEMS, st.integers(1, 12)))


@given(HOSTILE)
def test_no_group_is_cut(asked: Problem) -> None:
    result = solve(asked)
    assert not halves(asked, result), told(asked, result)
    assert not result.is_late
    assert prepare(asked).judge(design_of(result)).legal


@given(PROBLEMS)
def test_what_is_left_of_the_question_is_answered_as_if_nobody_had_asked_more(asked: Problem) -> None:
    result = solve(asked)
    rest = without_dropped(asked, result)
    alone = solve(rest)
    assert (result.claims, result.existing) == (alone.claims, alone.existing), told(asked, result)
    kept = {pod.uid for pod in rest.pods}
    left = tuple(one for one in result.unplaced if one.pod.uid in kept)
    wrong = checker.violations(rest, replace(result, unplaced=left))
    assert not wrong, "\n".join([*wrong, told(asked, result), str(asked.groups)])


@given(HOSTILE, st.integers(0, 60))
def test_a_group_is_dropped_and_not_cut_when_time_is_up(asked: Problem, budget: int) -> None:
    prepared = prepare(asked)
    result = prepared.solve(asked.pods, budget=budget)
    assert not halves(asked, result), told(asked, result)
    assert prepared.judge(design_of(result)).legal, told(asked, result)
    assert Counter(pod.uid for pod in (*result.placed, *(one.pod for one in result.unplaced))) == Counter(
        pod.uid for pod in asked.pods
    )


@given(HOSTILE, st.one_of(st.none(), st.integers(0, 120)))
def test_a_group_costs_no_pod_of_its_priority_its_place(asked: Problem, budget: int | None) -> None:
    """Also where it fails, and however little may be done."""
    before = there(asked)
    singles = without(asked, {key for key, least in asked.groups.items() if least - before[key] > 1})
    alone = prepare(singles).solve(singles.pods, budget=budget)
    result = prepare(asked).solve(asked.pods, budget=budget)
    placed = {pod.uid for pod in result.placed}
    single = {pod.uid for pod in singles.pods}
    above = max((pod.shape.priority for pod in result.placed if pod.uid not in single), default=-(1 << 40))
    lost = [pod for pod in alone.placed if pod.uid not in placed and pod.shape.priority >= above]
    assert not lost, told(asked, result)


@given(PROBLEMS)
def test_a_group_without_places_has_none_beside_what_others_have(asked: Problem) -> None:
    result = solve(asked)
    for key in (keys := dropped(asked, result)):
        again = solve(without(asked, keys - {key}))
        fits = {pod.uid for pod in result.placed} < {pod.uid for pod in again.placed}
        assert not fits or key not in map(key_of, again.placed), (key, told(asked, result))


@pytest.mark.parametrize("bad", [1, 2, 4])
@pytest.mark.parametrize("never", ["5000", "8"])
def test_gangs_that_can_never_be_keep_no_other_from_nodes(bad: int, never: str) -> None:
    some = [msgspec.structs.replace(one, group="fine") for one in pods(2, shape("3"), "fine")]
    for number in range(bad):
        for name, cpu in (("fits", f"{3000 - number}m"), ("never", never)):
            one = pod(f"{name}-{number}", shape(cpu, namespace="evil"))
            some.append(msgspec.structs.replace(one, group=str(number)))
    groups = {"default/fine": 2, **{f"evil/{number}": 2 for number in range(bad)}}
    types = (instance_type("four", "4", "16Gi"), instance_type("eight", "8500m", "32Gi"))
    result = solve(problem(some, pool(limits={"cpu": "9"}, types=types), groups=groups))
    assert sorted(pod.group for pod in result.placed) == ["fine", "fine"]


@pytest.mark.parametrize("links", [1, 6])
def test_groups_that_failed_before_take_no_time_from_others(links: int) -> None:
    some = [msgspec.structs.replace(one, group=f"g{number // 2}") for number, one in enumerate(pods(6, shape("3")))]
    fine = problem(some, pool(), groups={f"default/g{number}": 2 for number in range(3)})
    asked = beside_a_chain(fine, links)
    for budget in range(60):
        alone = prepare(fine).solve(fine.pods, budget=budget)
        result = prepare(asked).solve(asked.pods, last=[f"evil/{number}" for number in range(links)], budget=budget)
        assert {pod.uid for pod in alone.placed} <= {pod.uid for pod in result.placed}


def test_one_gang_among_many_that_can_never_be_has_nodes_at_once() -> None:
    some = [msgspec.structs.replace(one, group="fine") for one in pods(2, shape("3"), "fine")]
    for number in range(40):
        for name, cpu in (("fits", f"{3000 - number}m"), ("never", "7")):
            one = pod(f"{name}-{number}", shape(cpu, namespace="as-evil"))
            some.append(msgspec.structs.replace(one, group=str(number)))
    groups = {"default/fine": 2, **{f"as-evil/{number}": 2 for number in range(40)}}
    types = (instance_type("four", "4", "16Gi"), instance_type("eight", "8", "32Gi"))
    result = solve(problem(some, pool(limits={"cpu": "8"}, types=types), groups=groups))
    assert sorted(pod.group for pod in result.placed) == ["fine", "fine"]


@given(PROBLEMS)
def test_groups_that_need_one_pod_are_no_groups(asked: Problem) -> None:
    ones = replace(asked, groups=dict.fromkeys(asked.groups, 1))
    found, plain = solve(ones), solve(replace(asked, groups={}))
    assert (found.claims, found.existing) == (plain.claims, plain.existing)


@given(PROBLEMS)
def test_a_design_that_cuts_a_group_is_not_legal(asked: Problem) -> None:
    """Whatever the judge says of the same pods without groups: it is stricter than the solver about the order in which they come."""
    singles = replace(asked, groups={})
    plain = solve(singles)
    verdict, of_singles = (prepare(one).judge(design_of(plain)) for one in (asked, singles))
    assert (verdict == of_singles) == (not halves(asked, plain)), verdict


def test_groups_of_others_cost_a_question_nothing_but_a_look_at_each_pod() -> None:
    plain = problem(of_some := pods(500, shape("1")), pool(), bins=[node("n", running=pods(50, shape("1"), "old"))])
    lines = []
    for groups in ({}, {f"default/{number}": 8 for number in range(500)}):
        prepared = prepare(replace(plain, groups=groups))
        with Lines() as work:
            prepared.solve(of_some)
        lines.append(work.count)
    assert lines[1] - lines[0] <= 8 * len(plain.pods)


@pytest.mark.parametrize("least", [2, 15, 50])
@pytest.mark.parametrize("alike", [True, False])
def test_twice_as_many_pods_in_groups_take_at_most_two_and_a_half_times_the_work(least: int, *, alike: bool) -> None:
    """Also where every group fails, for want of pods or of room, and each in its own way."""
    lines = []
    for count in (200, 400):
        some = [
            msgspec.structs.replace(one, group=f"g{number // 10}")
            for kind in (1000, 500_000)
            for number, one in enumerate(
                pod(f"{kind}-{number}", shape(f"{kind + (0 if alike else number // 10)}m")) for number in range(count)
            )
        ]
        asked = problem(some, pool(), groups={f"default/g{number}": least for number in range(count // 10)})
        with Lines() as work:
            prepare(asked).solve(asked.pods)
        lines.append(work.count)
    assert lines[1] <= 2.5 * lines[0]


def test_a_gang_that_needs_fewer_than_it_has_may_have_a_pod_that_fits_nowhere() -> None:
    """It fails at first for want of room, and has places once another gang has none."""
    some = [pod("nowhere", shape("1", selector={"a": "b"})), *pods(4, shape("3"), "some")]
    some = [msgspec.structs.replace(one, group="g") for one in some]
    never = [
        msgspec.structs.replace(one, group="h") for one in (pod("none", shape("5000")), *pods(3, shape("4"), "other"))
    ]
    result = solve(problem([*some, *never], pool(limits={"cpu": "16"}), groups={"default/g": 4, "default/h": 4}))
    assert sorted(one.name for one in result.placed) == [one.name for one in pods(4, shape("3"), "some")]


NEVER = {
    "no node is large enough": (shape("100m"), shape("5000"), 8),
    "limits are too low for each": (shape("3"), shape("3"), 8),
}


@pytest.mark.parametrize("case", NEVER.values(), ids=NEVER)
def test_equal_gangs_that_fail_for_one_cause_take_the_work_of_a_few(case: tuple[PodShape, PodShape, int]) -> None:
    """The cause is looked for once, however many they are."""
    others, last, size = case
    lines = []
    for count in (2, 60):
        some = [pod(f"fine-{number}", shape("1", namespace="fine")) for number in range(10)]
        for number in range(count):
            some += [pod(f"{number}-{n}", last if n == size - 1 else others) for n in range(size)]
        some = [msgspec.structs.replace(one, group=one.name.partition("-")[0]) for one in some]
        groups = {"fine/fine": 10, **{f"default/{number}": size for number in range(count)}}
        asked = problem(some, pool(limits={"cpu": "20"}), groups=groups)
        with Lines() as work:
            result = prepare(asked).solve(asked.pods)
        assert [one.namespace for one in result.placed] == ["fine"] * 10
        lines.append(work.count)
    assert lines[1] <= 6 * lines[0]


@given(PROBLEMS)
def test_the_sets_of_an_answer_are_all_new_nodes_of_each_gang(asked: Problem) -> None:
    result = solve(asked)
    prepared = prepare(asked)
    groups = prepared.groups(asked.pods, at_least=1)
    sets = launch_sets(result.claims, groups, "decision")
    before = there(asked)
    whole = {key for key, least in asked.groups.items() if least > before[key]}
    wanted = {
        key: {number for number, claim in enumerate(result.claims) if key in map(key_of, claim.pods)} for key in whole
    }
    found: dict[str, set[int]] = {key: set() for key in whole}
    ids: dict[str, str] = {}
    for number, mine in enumerate(sets):
        assert list(mine) == list(decode_sets(encode_sets(mine)))
        for one in mine:
            found[one.group].add(number)
            assert one.nodes == len(wanted[one.group])
            assert ids.setdefault(one.id, one.group) == one.group
    assert found == wanted
    others = {one.id for mine in launch_sets(result.claims, groups, "another") for one in mine}
    assert not others & ids.keys()
