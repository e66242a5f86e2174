"""Which of some pods have to do with each other."""

from typing import Final

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.disruption.ties import tied_shapes
from tests.support.problems import apart, app, near, of_app, pod, pods, shape, spread

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
