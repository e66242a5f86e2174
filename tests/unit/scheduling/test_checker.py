"""The checker itself: a good result passes, each kind of damage is seen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from provisioner.apis import names
from provisioner.scheduling.reasons import NoPools
from provisioner.scheduling.result import Result, Unplaced
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint
from tests.support import checker
from tests.support.problems import LARGE, MEDIUM, SMALL, node, pod, pods, pool, problem, requirements, shape
from tests.support.question import Problem, solve

ASKED = problem(
    [*pods(5, shape("1", "1Gi", selector={names.ZONE_LABEL: "a"})), pod("big", shape("64"))],
    pool(types=(SMALL, MEDIUM, LARGE), limits={"cpu": "12"}, min_values={names.ARCH_LABEL: 1}),
    bins=[node("n1", "1", labels={names.ZONE_LABEL: "a"}), node("n2", "8", labels={names.ZONE_LABEL: "b"})],
)
GOOD = solve(ASKED)


def with_claim(**changes: Any) -> Result:
    return replace(GOOD, claims=(structs.replace(GOOD.claims[0], **changes), *GOOD.claims[1:]))


CLAIM = GOOD.claims[0]
DAMAGE: dict[str, tuple[Callable[[], Problem], Callable[[], Result], str]] = {
    "a pod that vanished": (lambda: ASKED, lambda: with_claim(pods=CLAIM.pods[:-1]), "not in exactly one place"),
    "a pod in two places": (
        lambda: ASKED,
        lambda: replace(GOOD, existing={**GOOD.existing, "n2": CLAIM.pods[:1]}),
        "not in exactly one place",
    ),
    "a pod on a node that it does not match": (
        lambda: ASKED,
        lambda: replace(GOOD, existing={**GOOD.existing, "n2": CLAIM.pods[:1]}),
        "is not admitted on n2",
    ),
    "an existing node that is too small": (
        lambda: ASKED,
        lambda: replace(GOOD, existing={"n1": CLAIM.pods}),
        "n1 is too small",
    ),
    "a taint on an existing node": (
        lambda: replace(
            ASKED, bins=tuple(replace(one, taints=(Taint(key="t", effect="NoExecute"),)) for one in ASKED.bins)
        ),
        lambda: GOOD,
        "is not admitted on n1",
    ),
    "a type that is too small for the pods": (
        lambda: ASKED,
        lambda: with_claim(
            requirements=without_types(CLAIM.requirements, "small", "medium", "large"),
            instance_types=("small", "medium", "large"),
        ),
        "does not hold its pods on small",
    ),
    "a taint of the template": (
        lambda: replace(ASKED, pools=(replace(ASKED.pools[0], taints=(Taint(key="t", effect="NoSchedule"),)),)),
        lambda: GOOD,
        "does not hold its pods",
    ),
    "a daemon that was forgotten": (
        lambda: replace(ASKED, daemons=(shape("4100m", "0"),)),
        lambda: GOOD,
        "does not hold its pods",
    ),
    "a zone that the pods do not allow": (
        lambda: ASKED,
        lambda: with_claim(
            requirements=Requirements.of(one for key, one in CLAIM.requirements.items() if key != names.ZONE_LABEL)
        ),
        "does not hold its pods",
    ),
    "the dearest type first": (
        lambda: ASKED,
        lambda: with_claim(instance_types=CLAIM.instance_types[::-1]),
        "does not list the cheapest first",
    ),
    "a wrong price": (lambda: ASKED, lambda: with_claim(usd_per_hour=0.01), "not planned as the cheapest"),
    "a limit that is exceeded": (
        lambda: replace(ASKED, pools=(replace(ASKED.pools[0], remaining=Resources.of({"cpu": 1000})),)),
        lambda: GOOD,
        "exceeds its limit on cpu by",
    ),
    "a charge that is too small": (
        lambda: ASKED,
        lambda: with_claim(charge=Resources.of({"cpu": 0})),
        "is charged with",
    ),
    "minValues that are not kept": (
        lambda: replace(
            ASKED, pools=(replace(ASKED.pools[0], requirements=pool(min_values={names.ARCH_LABEL: 2}).requirements),)
        ),
        lambda: GOOD,
        "breaks minValues",
    ),
    "a pod that was overlooked": (
        lambda: ASKED,
        lambda: replace(
            GOOD,
            claims=GOOD.claims[1:],
            unplaced=(*(Unplaced(one, (NoPools(),)) for one in CLAIM.pods), *GOOD.unplaced),
        ),
        "would fit on a new",
    ),
    "requests that are too small": (
        lambda: ASKED,
        lambda: with_claim(requests=Resources.of({"cpu": 1})),
        "requests less than its pods",
    ),
    "a label that is only simulated": (
        lambda: ASKED,
        lambda: with_claim(
            requirements=CLAIM.requirements.merged(requirements((names.REGISTERED_LABEL, "In", ["true"])))
        ),
        "only simulated",
    ),
}


def without_types(given: Requirements, *types: str) -> Requirements:
    """The requirements with other instance types."""
    rest = Requirements.of(one for key, one in given.items() if key != names.INSTANCE_TYPE_LABEL)
    return rest.merged(requirements((names.INSTANCE_TYPE_LABEL, "In", types)))


def test_a_good_result_passes() -> None:
    assert checker.violations(ASKED, GOOD) == []
    assert (len(GOOD.claims), len(GOOD.existing), len(GOOD.unplaced)) == (1, 1, 1)


@pytest.mark.parametrize("case", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_seen(case: tuple[Callable[[], Problem], Callable[[], Result], str]) -> None:
    asked, damaged, want = case
    assert any(want in text for text in checker.violations(asked(), damaged()))
