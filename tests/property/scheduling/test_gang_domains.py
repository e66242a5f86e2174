"""Laws of the topology key of a group: all its pods run in one domain of a node label, and there is one wherever there could be.

The oracle counts by itself: pods of one size, nodes by the room that they have, and a NodePool that makes nodes of one size.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.judging import Design, DesignedNode, design_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.reasons import NoDomainHolds, NoPoolMakesLabel
from provisioner.scheduling.result import PlannedClaim, Result
from tests.property.scheduling.test_gang_laws import PROBLEMS, halves, in_groups, key_of, without
from tests.support.problems import Expression, instance_type, node, offering, pod, pods, pool, problem, shape
from tests.support.question import Problem, solve
from tests.support.telling import told
from tests.support.work import Lines

RACK = "example.com/rack"
LABELS = (names.ZONE_LABEL, RACK, names.HOSTNAME_LABEL)
ZONES, RACKS = ("a", "b", "c"), ("r1", "r2")
KEY = "default/g"
NOWHERE = "a node without the label"


def member(of: Pod, name: str = "g") -> Pod:
    return msgspec.structs.replace(of, group=name)


@dataclass(frozen=True)
class Small:
    """A world in which a pod of the group takes one CPU.

    Attributes:
        label: the topology key.
        rooms: zone, rack and CPUs of existing nodes.
        zones: in which the NodePool makes nodes.
        racks: which it lets its nodes have; "" for none.
        size: CPUs of its nodes; 0 where there is no NodePool.
        members, minimum: of the group.
        home: on which of the existing nodes a member runs already; -1 for none.
        singles: pods of two CPUs each.
    """

    label: str
    rooms: tuple[tuple[str, str, int], ...]
    zones: tuple[str, ...]
    racks: tuple[str, ...]
    size: int
    members: int
    minimum: int
    home: int
    singles: int

    @property
    def running(self) -> int | None:
        return self.home if 0 <= self.home < len(self.rooms) else None

    def problem(self) -> Problem:
        bins = []
        for number, (zone, rack, cpu) in enumerate(self.rooms):
            name = f"n{number}"
            labels = {names.ZONE_LABEL: zone, names.HOSTNAME_LABEL: name} | ({RACK: rack} if rack else {})
            running = [member(pod("runs", shape("1")))] if number == self.running else []
            bins.append(node(name, str(cpu), "64Gi", labels=labels, running=running))
        wanted: list[Expression] = [(names.ZONE_LABEL, "In", self.zones)]
        wanted += [(RACK, "In", self.racks)] if self.racks else []
        types = (instance_type("one", str(self.size), "64Gi", zones=self.zones),) if self.size else ()
        asked = [*map(member, pods(self.members, shape("1"))), *pods(self.singles, shape("2"), "single")]
        return replace(
            problem(asked, *([pool("default", *wanted, types=types)] if types else []), bins=bins),
            groups={KEY: self.minimum} if self.minimum > 1 else {},
            topology={KEY: self.label},
        )

    def value(self, number: int) -> str:
        zone, rack, _ = self.rooms[number]
        return {names.ZONE_LABEL: zone, RACK: rack, names.HOSTNAME_LABEL: f"n{number}"}[self.label]

    def holds(self) -> bool:
        """Whether as many as are needed fit in one domain, the single pods aside."""
        needed = max(1, self.minimum - (self.running is not None))
        room: dict[str, float] = defaultdict(float)
        for number, (_, _, cpu) in enumerate(self.rooms):
            if value := self.value(number):
                room[value] += cpu
        if self.size:
            if self.label == names.HOSTNAME_LABEL:
                room["new"] = self.size
            for value in self.zones if self.label == names.ZONE_LABEL else self.racks if self.label == RACK else ():
                room[value] = float("inf")
        if self.running is not None:
            room = {value: cpu for value, cpu in room.items() if value == self.value(self.running)}
        return needed <= self.members and any(cpu >= needed for cpu in room.values())


smalls = st.builds(
    Small,
    label=st.sampled_from(LABELS),
    rooms=st.lists(st.tuples(st.sampled_from(ZONES), st.sampled_from(("", *RACKS)), st.integers(0, 4)), max_size=6).map(
        tuple
    ),
    zones=st.sampled_from((("a",), ("b", "c"), ZONES)),
    racks=st.sampled_from(((), ("r1",), RACKS)),
    size=st.sampled_from((0, 2, 3, 8)),
    members=st.integers(1, 7),
    minimum=st.integers(1, 6),
    home=st.integers(-6, 5),
    singles=st.sampled_from((0, 0, 1, 3)),
)


def of_claim(claim: PlannedClaim, number: int, label: str) -> str:
    """The value that a node to make will have, read from the claim."""
    if label == names.HOSTNAME_LABEL:
        assert label not in claim.requirements
        return f"new {number}"
    one = claim.requirements.get(label)
    value = claim.labels.get(label) or (one.single_value if one is not None else None)
    assert value, f"{claim} leaves {label} open"
    return value


def in_domains(asked: Problem, result: Result, *, designed: bool = False) -> dict[str, set[str]]:
    """By group with a topology key of which the answer places a pod, the domains in which its pods are then.

    `designed`: new nodes are in the zones that are planned, whatever their claims say.
    """
    found: dict[str, set[str]] = defaultdict(set)
    moving = {one.uid for one in asked.pods}

    def note(some: Iterable[Pod], value: str, label: str) -> None:
        for one in some:
            if asked.topology.get(key_of(one)) == label:
                found[key_of(one)].add(value)

    for label in set(asked.topology.values()):
        for one in asked.bins:
            value = one.labels.get(label, one.node_name if label == names.HOSTNAME_LABEL else "")
            here = result.existing.get(one.name, ())
            note([*(each for each in one.pods if each.uid not in moving), *here], value or NOWHERE, label)
        for number, claim in enumerate(result.claims):
            if any(asked.topology.get(key_of(one)) == label for one in claim.pods):
                value = claim.planned_zone if designed else of_claim(claim, number, label)
                note(claim.pods, value or NOWHERE, label)
    placed = {key_of(one) for one in result.placed}
    return {key: some for key, some in found.items() if key in placed}


@given(smalls)
def test_a_group_has_places_in_one_domain_wherever_there_is_one(small: Small) -> None:
    asked = replace(small, singles=0).problem()
    result = solve(asked)
    assert bool(result.placed) == small.holds(), (small, result)
    assert all(len(some) == 1 and NOWHERE not in some for some in in_domains(asked, result).values()), (small, result)
    assert not halves(asked, result)


@given(smalls)
def test_no_group_spans_two_domains_and_none_costs_a_single_pod_its_place(small: Small) -> None:
    asked = small.problem()
    result = solve(asked)
    assert all(len(some) == 1 and NOWHERE not in some for some in in_domains(asked, result).values()), (small, result)
    assert not halves(asked, result)
    alone = solve(without(asked, {KEY}))
    assert {one.uid for one in alone.placed} <= {one.uid for one in result.placed}
    assert prepare(asked).judge(design_of(result)).legal
    assert len(result.placed) + len(result.unplaced) == len(asked.pods)


@given(PROBLEMS, st.sampled_from((names.ZONE_LABEL, names.HOSTNAME_LABEL)), st.one_of(st.none(), st.integers(0, 200)))
def test_in_any_world_no_group_spans_two_domains(asked: Problem, label: str, budget: int | None) -> None:
    asked = replace(asked, topology=dict.fromkeys(asked.groups, label))
    prepared = prepare(asked)
    result = prepared.solve(asked.pods, budget=budget)
    wrong = {key: some for key, some in in_domains(asked, result).items() if len(some) > 1 or NOWHERE in some}
    assert not wrong, told(asked, result)
    assert not halves(asked, result), told(asked, result)
    plain = prepare(replace(asked, topology={}))
    assert prepared.judge(design_of(result)) == plain.judge(design_of(result)), told(asked, result)


@given(PROBLEMS)
def test_a_design_is_legal_only_if_its_groups_have_one_domain(asked: Problem) -> None:
    plain = solve(replace(asked, groups={}))
    keyed = replace(asked, groups={}, topology=dict.fromkeys(asked.groups, names.ZONE_LABEL))
    spans = any(len(some) > 1 or NOWHERE in some for some in in_domains(keyed, plain, designed=True).values())
    without_keys = prepare(replace(keyed, topology={})).judge(design_of(plain))
    assert (prepare(keyed).judge(design_of(plain)) == without_keys) == (not spans)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5).filter(lambda one: sum(one) <= 8), max_size=8),
    st.integers(0, 5),
)
def test_each_group_that_fits_on_one_new_node_has_one(sizes: list[list[int]], singles: int) -> None:
    asked = on_hosts(sizes, singles, 8)
    result = solve(asked)
    assert not result.unplaced, told(asked, result)
    assert all(len(some) == 1 for some in in_domains(asked, result).values()), told(asked, result)
    assert len(result.claims) <= len(sizes) + singles
    assert prepare(asked).judge(design_of(result)).legal


def on_hosts(sizes: Iterable[Iterable[int]], singles: int, cpu: int) -> Problem:
    """Groups with pods of so many CPUs that run on one node each, single pods of one CPU, and nodes to come."""
    some = [
        member(pod(f"{number}-{index}", shape(str(size))), f"g{number:03}")
        for number, one in enumerate(sizes)
        for index, size in enumerate(one)
    ]
    counts = Counter(map(key_of, some))
    return replace(
        problem(
            [*some, *pods(singles, shape("1"), "single")],
            pool(types=(instance_type("t", str(cpu), "99Gi", zones=("a",)),)),
        ),
        groups={key: count for key, count in counts.items() if count > 1},
        topology=dict.fromkeys(counts, names.HOSTNAME_LABEL),
    )


@pytest.mark.parametrize(("groups", "nodes"), [(2, 1), (30, 16), (200, 101)])
def test_groups_share_new_nodes_as_far_as_they_leave_each_other_room(groups: int, nodes: int) -> None:
    result = solve(on_hosts([[1, 1]] * groups, 0, 5))
    assert not result.unplaced
    assert len(result.claims) <= nodes


def test_of_very_many_groups_on_new_nodes_some_are_left_for_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new node that groups have for themselves is another kind of node to every pod, so there is an end to them."""
    monkeypatch.setattr("provisioner.scheduling.gangs._MOST_SEATS", 6)
    for cpu, least in ((4, 6), (16, 24)):
        asked = on_hosts([[1, 1, 1]] * 40, 0, cpu)
        result = solve(asked)
        assert len(in_domains(asked, result)) >= least
        assert not halves(asked, result)


def test_groups_with_a_key_cost_a_question_about_others_nothing() -> None:
    of_some = pods(300, shape("1"))
    plain = problem(of_some, pool(), bins=[node("n", running=pods(50, shape("1"), "old"))])
    lines = []
    for topology in ({}, {f"default/{number}": names.ZONE_LABEL for number in range(300)}):
        prepared = prepare(replace(plain, topology=topology))
        with Lines() as work:
            prepared.solve(of_some)
        lines.append(work.count)
    assert lines[1] - lines[0] <= 8 * len(plain.pods)


# ------------------------------------------------------------------ cases


CHEAP = instance_type("cheap", "2", "64Gi", 1.0, zones=("a", "b"))


def gang(count: int, cpu: str = "1") -> list[Pod]:
    return [*map(member, pods(count, shape(cpu)))]


def keyed(asked: Problem, label: str, minimum: int) -> Problem:
    return replace(asked, groups={KEY: minimum}, topology={KEY: label})


def test_all_nodes_are_in_one_zone_also_when_the_cheapest_are_in_two() -> None:

    prices = {"small": (("a", 1.0), ("b", 9.0)), "large": (("a", 9.0), ("b", 1.0))}
    types = tuple(
        instance_type(name, cpu, "64Gi", offerings=[offering(zone, usd) for zone, usd in prices[name]])
        for name, cpu in (("small", "2"), ("large", "9"))
    )
    some = [member(pod("x", shape("1"))), member(pod("y", shape("8500m")))]
    result = solve(keyed(problem(some, pool(types=types)), names.ZONE_LABEL, 2))
    assert len(result.placed) == 2
    assert len({claim.planned_zone for claim in result.claims}) == 1


def test_existing_nodes_that_hold_all_come_before_cheaper_new_ones_and_mixed_ones() -> None:
    bins = [
        node(f"n{number}", "2", "64Gi", labels={names.ZONE_LABEL: zone})
        for number, zone in enumerate(("c", "c", "b", "a"))
    ]
    result = solve(keyed(problem(gang(4), pool(types=(CHEAP,)), bins=bins), names.ZONE_LABEL, 4))
    assert sorted(result.existing) == ["n0", "n1"]
    mixed = solve(keyed(problem(gang(4), pool(types=(CHEAP,)), bins=bins[1:]), names.ZONE_LABEL, 4))
    assert len(mixed.existing) == len(mixed.claims) == 1


def test_a_group_of_which_nobody_makes_the_label_is_told_so() -> None:
    result = solve(keyed(problem(gang(3), pool()), RACK, 3))
    assert NoPoolMakesLabel(RACK) in result.unplaced[0].reasons
    result = solve(keyed(problem(gang(3, "100"), pool()), names.ZONE_LABEL, 3))
    assert any(isinstance(one, NoDomainHolds) for one in result.unplaced[0].reasons)


def test_equal_groups_that_fit_in_no_domain_together_have_a_domain_each() -> None:
    bins = [
        node(f"n{zone}{number}", "2", "64Gi", labels={names.ZONE_LABEL: zone}) for zone in ZONES for number in range(2)
    ]
    some = [member(one, name) for name in "xyz" for one in pods(4, shape("1"), name)]
    asked = replace(
        problem(some, bins=bins),
        groups={f"default/{name}": 4 for name in "xyz"},
        topology={f"default/{name}": names.ZONE_LABEL for name in "xyz"},
    )
    result = solve(asked)
    assert len(result.placed) == 12
    assert {key: len(some) for key, some in in_domains(asked, result).items()} == dict.fromkeys(asked.groups, 1)


@pytest.mark.parametrize("racks", [2, 20])
@pytest.mark.parametrize("different", [False, True])
def test_many_gangs_have_places_at_once_in_as_many_domains_as_they_need(racks: int, *, different: bool) -> None:
    """Each has room for three of them."""
    bins = [node(f"n{number}", "7", "64Gi", labels={RACK: f"r{number}"}) for number in range(racks)]
    names_ = [f"g{number:02}" for number in range(3 * racks)]
    some = [
        member(one, name)
        for number, name in enumerate(names_)
        for one in pods(2, shape(f"{1000 + (number if different else 0)}m"), name)
    ]
    keys = [f"default/{name}" for name in names_]
    asked = replace(problem(some, bins=bins), groups=dict.fromkeys(keys, 2), topology=dict.fromkeys(keys, RACK))
    result = solve(asked)
    assert len(result.placed) == len(some)
    assert not halves(asked, result)
    assert prepare(asked).judge(design_of(result)).legal


@pytest.mark.parametrize("zones", [("a", "b"), ("a", "a")])
def test_a_design_over_two_domains_is_refused(zones: tuple[str, str]) -> None:
    asked = keyed(problem(gang(2), pool(types=(CHEAP,))), names.ZONE_LABEL, 2)
    nodes = [
        DesignedNode("default", "cheap", zone, "on-demand", (one,)) for zone, one in zip(zones, asked.pods, strict=True)
    ]
    prepared, design = prepare(asked), Design(tuple(nodes))
    legal = len(set(zones)) == 1
    assert prepared.judge(design).legal is legal
    assert prepared.settle(design)[0].legal is legal
    assert bool(prepared.settle(design)[1]) is legal


def test_the_members_that_run_say_where_and_those_in_two_domains_keep_others_from_any() -> None:
    runs = [member(pod(f"r{number}", shape("1"))) for number in range(2)]
    for zones, placed in ((("b", "b"), 2), (("a", "b"), 0)):
        bins = [
            node(f"n{number}", "2", "64Gi", labels={names.ZONE_LABEL: zone}, running=[one])
            for number, (zone, one) in enumerate(zip(zones, runs, strict=True))
        ]
        asked = keyed(problem(gang(2), pool(types=(CHEAP,)), bins=bins), names.ZONE_LABEL, 2)
        result = solve(asked)
        assert len(result.placed) == placed
        assert placed == 0 or in_domains(asked, result)[KEY] == {"b"}


def test_a_keyed_group_in_groups_of_any_world() -> None:
    """The maker of worlds is the one of the other laws."""
    asked = in_groups(problem(gang(4), pool()), ["g"], {"g": 4})
    assert len(solve(replace(asked, topology={KEY: names.HOSTNAME_LABEL})).claims) == 1


@given(smalls)
def test_a_question_that_ends_with_the_first_pod_without_a_place_has_an_answer_where_the_whole_one_has(
    small: Small,
) -> None:
    """And maybe where it leaves a pod that is not needed, because those that are have room on a node that exists."""
    asked = small.problem()
    whole, hasty = solve(asked), prepare(asked).solve(asked.pods, stop_at_first_unplaced=True)
    assert all(len(some) == 1 and NOWHERE not in some for some in in_domains(asked, hasty).values()), (small, hasty)
    assert not halves(asked, hasty)
    assert whole.unplaced or not hasty.unplaced
    assert hasty.unplaced or prepare(asked).judge(design_of(hasty)).legal


@pytest.mark.parametrize("zone", ["a", "b"])
def test_a_member_that_moves_stays_where_the_others_are(zone: str) -> None:
    """As consolidation and drift ask: the only room left is in the zone, or is not."""
    runs = [member(msgspec.structs.replace(pod(f"r{number}", shape("1")), node_name=f"n{number}")) for number in (0, 1)]
    bins = [
        node(f"n{number}", "0", "64Gi", labels={names.ZONE_LABEL: "a"}, running=[runs[number]]) for number in (0, 1)
    ]
    bins.append(node("free", "4", "64Gi", labels={names.ZONE_LABEL: zone}))
    asked = keyed(problem([], bins=bins), names.ZONE_LABEL, 2)
    result = prepare(asked).solve([runs[0]], leaving=["n0"])
    assert bool(result.placed) == (zone == "a")
    both = prepare(asked).solve(runs, leaving=["n0", "n1"])
    assert {*both.existing} == {"free"}


def test_claims_made_of_a_design_keep_the_domain_that_its_types_have() -> None:
    """The types of a claim may differ in the label, though the designed one has one value."""
    kinds = (instance_type("x86", "2", "64Gi"), instance_type("arm", "2", "64Gi", 2.0, arch="arm64"))
    for types in (kinds, kinds[:1]):
        asked = keyed(problem(gang(2), pool(types=types)), names.ARCH_LABEL, 2)
        prepared = prepare(asked)
        result = prepared.solve(asked.pods)
        assert {of_claim(one, 0, names.ARCH_LABEL) for one in result.claims} == {"amd64"}
        design = design_of(result)
        assert prepared.judge(design).legal
        verdict, claims = prepared.settle(design)
        assert verdict.legal == bool(claims) == (len(types) == 1)


def test_a_topology_key_takes_no_time_from_gangs_without_one() -> None:
    """Where each of its domains is compared first, little would be left for them."""
    fine = [member(one, f"g{number // 2}") for number, one in enumerate(pods(6, shape("3")))]
    alone = problem(fine, pool(), groups={f"default/g{number}": 2 for number in range(3)})
    wide = [member(pod(f"wide-{number}", shape(f"{1000 + number}m", namespace="evil"))) for number in range(20)]
    asked = replace(
        alone,
        pods=(*fine, *wide),
        groups={**alone.groups, "evil/g": 20},
        topology={"evil/g": names.ZONE_LABEL},
    )
    for budget in range(0, 60, 2):
        without_it, with_it = (prepare(one).solve(one.pods, budget=budget) for one in (alone, asked))
        assert {one.uid for one in without_it.placed} <= {one.uid for one in with_it.placed}, budget


def test_a_gang_whose_domains_take_long_to_compare_has_places_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [member(pod(f"wide-{number}", shape(f"{1000 + number}m"))) for number in range(20)]
    asked = replace(problem(some, pool(), groups={KEY: 20}), topology={KEY: names.ZONE_LABEL})
    compared = solve(asked)
    assert len(compared.placed) == 20
    monkeypatch.setattr("provisioner.scheduling.prepared._TRIAL_STEPS", 5)
    assert len(solve(asked).placed) == 20
