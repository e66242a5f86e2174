"""What a class demands, and in which order it gives its wishes up."""

import itertools

import pytest

from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.names import HOSTNAME_LABEL, ZONE_LABEL
from provisioner.scheduling.constraints.demands import (
    _MOST_STEPS,
    _MOST_WISHES,
    Demand,
    Ties,
    deduced_selector,
    facts_of,
)
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import label_set
from tests.support.problems import shape, term

WEB = LabelSelector(match_labels={"app": "web"})


def wish(weight: int, key: str) -> WeightedPodAffinityTerm:
    return WeightedPodAffinityTerm(
        weight=weight, pod_affinity_term=PodAffinityTerm(topology_key=key, label_selector=WEB)
    )


def wishful() -> Affinity:
    zones = tuple(
        PreferredSchedulingTerm(weight=weight, preference=term((ZONE_LABEL, "In", [zone])))
        for weight, zone in ((1, "a"), (5, "b"))
    )
    return Affinity(
        node_affinity=NodeAffinity(preferred=zones),
        pod_affinity=PodAffinity(preferred=(wish(1, ZONE_LABEL),)),
        pod_anti_affinity=PodAffinity(preferred=(wish(1, HOSTNAME_LABEL), wish(9, ZONE_LABEL))),
    )


def gist(demand: Demand) -> tuple[list[str], list[str], list[str], list[str], bool]:
    relations = demand.relations
    zones = [str(one.requirements.get(ZONE_LABEL)) for one in demand.filter.terms if one.requirements]
    return (
        [one.key for one in relations.together],
        [one.key for one in relations.apart],
        zones,
        [one.count.key for one in relations.spreads],
        demand.filter.soft_taints,
    )


def test_the_ladder_gives_up_the_heaviest_of_a_kind_first_and_taints_last() -> None:
    spread = TopologySpreadConstraint(topology_key="rack", when_unsatisfiable="ScheduleAnyway", label_selector=WEB)
    facts = facts_of(shape(labels={"app": "web"}, affinity=wishful(), topology_spread_constraints=(spread,)))
    zone_b, zone_a = [f"{ZONE_LABEL} In [b]"], [f"{ZONE_LABEL} In [a]"]
    assert [gist(one) for one in facts.ties.ladder_with_taints] == [
        ([ZONE_LABEL], [ZONE_LABEL, HOSTNAME_LABEL], zone_b, ["rack"], True),
        ([], [ZONE_LABEL, HOSTNAME_LABEL], zone_b, ["rack"], True),
        ([], [HOSTNAME_LABEL], zone_b, ["rack"], True),
        ([], [], zone_b, ["rack"], True),
        ([], [], zone_a, ["rack"], True),
        ([], [], [], ["rack"], True),
        ([], [], [], [], True),
        ([], [], [], [], False),
    ]
    assert gist(facts.ties.ladder[-1]) == gist(facts.required)


def test_preferred_anti_affinity_guards_nobody() -> None:
    assert facts_of(shape(affinity=wishful())).ties.ladder[0].relations.guards == ()


def test_shapes_of_other_sizes_share_what_they_ask() -> None:
    one, other = facts_of(shape("1", affinity=wishful())), facts_of(shape("2", affinity=wishful()))
    assert one.ties is other.ties
    assert one.requests != other.requests


def test_match_label_keys_take_the_pods_own_value() -> None:
    spread = TopologySpreadConstraint(topology_key=ZONE_LABEL, label_selector=WEB, match_label_keys=("rev", "none"))
    facts = facts_of(shape(labels={"app": "web", "rev": "2"}, topology_spread_constraints=(spread,)))
    (count,) = (one.count for one in facts.required.relations.spreads)
    assert count.include(label_set("default", {"app": "web", "rev": "2"}), {})
    assert not count.include(label_set("default", {"app": "web", "rev": "1"}), {})


def test_a_constraint_that_cannot_be_read_says_where() -> None:
    bad = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="Like"),))
    spread = TopologySpreadConstraint(topology_key=ZONE_LABEL, label_selector=bad)
    with pytest.raises(FilterError, match=r"topologySpreadConstraints\[0\]\.labelSelector"):
        _ = facts_of(shape(topology_spread_constraints=(spread,))).required


def test_the_deduced_selector_is_that_of_services_and_controller() -> None:
    pod = label_set("default", {"app": "web", "rev": "1"})
    services: tuple[dict[str, str], ...] = ({"app": "web"}, {"app": "db"}, {})
    controller = LabelSelector(match_labels={"rev": "1"})
    assert deduced_selector(pod, services, controller) == LabelSelector(match_labels={"app": "web", "rev": "1"})
    assert deduced_selector(pod, ({"app": "db"},), None) is None


def of_wishes(together: int, spreads: int = 0, nodes: int = 0) -> Ties:
    wishes = tuple(wish(1 + number // 10, f"key-{number}") for number in range(together))
    zones = tuple(
        PreferredSchedulingTerm(weight=100 - number, preference=term((ZONE_LABEL, "In", [f"zone-{number}"])))
        for number in range(nodes)
    )
    soft = tuple(
        TopologySpreadConstraint(topology_key=f"soft-{number}", when_unsatisfiable="ScheduleAnyway", label_selector=WEB)
        for number in range(spreads)
    )
    affinity = Affinity(pod_affinity=PodAffinity(preferred=wishes), node_affinity=NodeAffinity(preferred=zones))
    wants = affinity if together or nodes else None
    return facts_of(shape(labels={"app": "web"}, affinity=wants, topology_spread_constraints=soft)).ties


def test_of_many_wishes_the_heaviest_are_tried() -> None:
    ladder = of_wishes(_MOST_WISHES * 2).ladder
    tried = {one.key for one in ladder[0].relations.together}
    assert len(tried) == _MOST_WISHES
    assert f"key-{_MOST_WISHES * 2 - 1}" in tried
    assert "key-0" not in tried


@pytest.mark.parametrize("affine", [0, 1])
def test_of_many_soft_spreads_the_first_are_tried_with_affinity_or_without(affine: int) -> None:
    (first, *_), last = of_wishes(affine, spreads=_MOST_WISHES * 2).ladder, of_wishes(affine).required
    assert [one.count.key for one in first.relations.spreads] == [f"soft-{number}" for number in range(_MOST_WISHES)]
    assert not last.relations.spreads


def test_wishes_of_an_ordinary_pod_are_given_up_one_by_one() -> None:
    ladder = of_wishes(_MOST_STEPS // 2, spreads=_MOST_STEPS // 2).ladder
    left = [len(one.relations.together) + len(one.relations.spreads) for one in ladder]
    assert left == [*range(_MOST_STEPS, -1, -1)]


@pytest.mark.parametrize(("together", "spreads"), [(17, 0), (0, 17), (40, 3), (_MOST_WISHES, _MOST_WISHES)])
def test_many_wishes_are_given_up_several_at_once_in_the_same_order(together: int, spreads: int) -> None:
    ladder = of_wishes(together, spreads).ladder
    assert len(ladder) == _MOST_STEPS + 1
    orders = [
        [*(one.key for one in step.relations.together), *(one.count.key for one in step.relations.spreads)]
        for step in ladder
    ]
    for before, after in itertools.pairwise(orders):
        assert before[len(before) - len(after) :] == after
        assert 0 < len(before) - len(after) <= -(-(together + spreads) // _MOST_STEPS)
    assert not orders[-1]


def test_each_of_many_node_preferences_is_one_that_some_step_admits() -> None:
    ladder = of_wishes(0, nodes=_MOST_WISHES).ladder
    admitted = [str(one.requirements) for step in ladder[:-1] for one in step.filter.terms]
    assert admitted == [f"{ZONE_LABEL} In [zone-{number}]" for number in range(_MOST_WISHES)]
