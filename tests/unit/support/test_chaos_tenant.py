"""How `make chaos` judges what a tenant costs the others."""

import json
import math

import pytest

from provisioner.apis.pods import decode_pod
from provisioner.cli.harness.session import EXTENDER, PROVISIONER
from tests.chaos.churn import NAMESPACE
from tests.chaos.tenant import Measured, judged, labels, ports, sidecars, spreads, waits
from tests.chaos.verdict import Life

EARLY = {PROVISIONER: 100e6, EXTENDER: 50e6}
CASES: dict[str, tuple[Measured, Measured, dict[str, float], str]] = {
    "all is well": (Measured(20, 4.0), Measured(20, 4.7), {PROVISIONER: 104e6, EXTENDER: 40e6}, ""),
    "pods wait for longer": (
        Measured(20, 4.0),
        Measured(20, 5.4),
        EARLY,
        "pods waited 5.4 s (p99 of 20) instead of 4.0 s",
    ),
    "few pods needed a node": (Measured(20, 4.0), Measured(2, math.nan), EARLY, "too few pods"),
    "one program grows": (Measured(20, 4.0), Measured(20, 4.0), EARLY | {EXTENDER: 53e6}, "takes 53 MB at the end"),
    "one program is gone": (Measured(20, 4.0), Measured(20, 4.0), EARLY | {EXTENDER: math.nan}, "at the end"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_tenant_may_cost_the_others(name: str) -> None:
    without, beside, late, wrong = CASES[name]
    found = judged(without, beside, EARLY, late)
    assert len(found) == bool(wrong)
    assert wrong in "".join(found)


def test_only_pods_of_the_churn_that_came_meanwhile_count() -> None:
    def life(seen: float, bound: float = 0.0, namespace: str = NAMESPACE, leaves: float = 0.0) -> Life:
        return Life("a", namespace, seen_at=seen, bound_at=bound, leaves_at=leaves)

    counted = [life(10, 12), life(11, 14), life(12)]
    others = [life(10, 10.5), life(1, 9), life(10, 19, "tenant"), life(10, leaves=11), life(20, 21)]
    assert waits([*counted, *others], 10, 20) == Measured(3, 8.0)


def test_of_no_pod_of_the_tenant_more_is_kept_than_of_any() -> None:
    made = [sidecars(), labels(1), spreads(2), ports(3)]
    assert all(decode_pod(json.dumps(one).encode()).shape.unjudged for one in made)
    assert max(len(json.dumps(one, separators=(",", ":"))) for one in made) < 1.5 * 2**20
