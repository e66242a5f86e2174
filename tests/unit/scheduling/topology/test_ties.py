"""Which of some pods have to do with each other."""

from typing import Final

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.topology import ties
from provisioner.scheduling.topology.ties import any_ties, kinds, tied_shapes
from tests.support.problems import apart, app, near, of_app, pod, pods, shape, spread

INDEX = "apps.kubernetes.io/pod-index"
HOST, ZONE = names.HOSTNAME_LABEL, names.ZONE_LABEL
WEB: Final = of_app("web")
SPREAD: Final = of_app("web", topology_spread_constraints=(spread(ZONE, app("web")),))
SOFT: Final = of_app(
    "web", topology_spread_constraints=(spread(ZONE, app("web"), when_unsatisfiable="ScheduleAnyway"),)
)
AWAY: Final = shape("1", affinity=apart(HOST, app("web")))
FRIEND: Final = shape("1", affinity=near(HOST, app("web")))
ELSEWHERE: Final = of_app("web", namespace="other")

CASES: dict[str, tuple[tuple[Pod, ...], set[str]]] = {
    "nobody": ((), set()),
    "plain pods": (pods(3, WEB), set()),
    "one pod that is spread": ((pod("a", SPREAD),), set()),
    "two that are spread": (pods(2, SPREAD), {SPREAD.key}),
    "two that would like to be spread": (pods(2, SOFT), set()),
    "one that keeps away from another": ((pod("a", AWAY), pod("b", WEB)), {AWAY.key, WEB.key}),
    "the other way round": ((pod("b", WEB), pod("a", FRIEND)), {FRIEND.key, WEB.key}),
    "one that nobody means": ((pod("a", AWAY), pod("b", WEB), pod("c", shape("2"))), {AWAY.key, WEB.key}),
    "one of a namespace that is not meant": ((pod("a", AWAY), pod("b", ELSEWHERE)), set()),
}


@pytest.mark.parametrize(("some", "want"), CASES.values(), ids=CASES)
def test_ties_among_pods(some: tuple[Pod, ...], want: set[str]) -> None:
    assert tied_shapes(some, {}) == want


def test_a_namespace_is_meant_by_its_labels_too() -> None:
    everywhere = shape("1", affinity=apart(HOST, app("web"), namespace_selector=app("shop")))
    both = (pod("a", everywhere), pod("b", ELSEWHERE))
    assert tied_shapes(both, {"other": {"app": "shop"}}) == {everywhere.key, ELSEWHERE.key}
    assert tied_shapes(both, {"other": {"app": "bank"}}) == set()


def indexed(count: int, of: PodShape) -> tuple[Pod, ...]:
    """Pods of a StatefulSet or an Indexed Job."""
    return tuple(
        msgspec.structs.replace(one, labels={**of.labels, INDEX: str(number)})
        for number, one in enumerate(pods(count, of))
    )


def test_pods_that_differ_in_a_label_that_nobody_reads_are_one_kind() -> None:
    some, others = kinds(indexed(500, SPREAD), indexed(500, WEB))
    assert (list(some.values()), list(others.values())) == ([500], [500])
    assert any_ties(some, others, {})


@pytest.mark.parametrize(("count", "tied"), [(3, False), (5, True)])
def test_pods_that_differ_in_a_label_that_is_read_are_told_apart(count: int, tied: bool) -> None:
    fourth = LabelSelector(match_labels={INDEX: "3"})
    some, lone = kinds(indexed(count, WEB), (pod("a", shape("1", affinity=apart(HOST, fourth))),))
    assert list(some.values()) == [1] * count
    assert any_ties(some, lone, {}) is tied


def test_where_there_are_too_many_pairs_to_ask_they_are_said_to_be_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    away, elsewhere = kinds((pod("a", AWAY),), (pod("b", ELSEWHERE),))
    one, other = kinds((pod("a", WEB),), (pod("b", WEB),))
    assert not any_ties(away, elsewhere, {})
    monkeypatch.setattr(ties, "MOST_PAIRS", 0)
    assert any_ties(away, elsewhere, {})
    assert not any_ties(one, other, {}), "plain pods are not asked about"


def test_long_selectors_count_for_each_of_their_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of 256 spreads of 17 expressions took a millisecond a pair."""
    monkeypatch.setattr(ties, "MOST_PAIRS", 200)
    long = LabelSelector(match_labels={f"key-{number}": "x" for number in range(60)})
    (short,), (lengthy,), (others,) = (
        kinds(some)
        for some in ((pod("a", AWAY),), (pod("a", shape("1", affinity=apart(HOST, long))),), pods(2, ELSEWHERE))
    )
    assert not any_ties(short, others, {})
    assert not any_ties(lengthy, list(others)[:1], {})
    several = kinds(*((pod("b", of_app("web", namespace=f"n{number}")),) for number in range(2)))
    assert any_ties(lengthy, [kind for one in several for kind in one], {}), "too much to compare"


def test_of_too_many_kinds_all_are_said_to_be_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    some = (pod("a", AWAY), pod("b", ELSEWHERE))
    assert tied_shapes(some, {}) == set()
    monkeypatch.setattr(ties, "MOST_PAIRS", 0)
    assert tied_shapes(some, {}) == {AWAY.key, ELSEWHERE.key}


def test_pods_that_the_cluster_spreads_by_default_may_be_tied_to_anybody() -> None:
    """Whom such a constraint means depends on Services and controllers."""
    both = pods(2, WEB)
    assert tied_shapes(both, {}) == set()
    assert tied_shapes(both, {}, by_default=True) == {WEB.key}
    one, other = kinds((pod("a", SOFT),), (pod("b", SOFT),), by_default=True)
    assert not any_ties(one, other, {}), "a constraint of their own, even a wish, is instead of the cluster's"
