"""How `make chaos` judges what a tenant costs the others."""

import json
import math

import pytest

from provisioner.apis.pods import decode_pod
from provisioner.lab.harness.session import EXTENDER, PROVISIONER
from tests.chaos.stage import PROBES
from tests.chaos.tenant import Measured, judged, labels, ports, sidecars, spreads, waits
from tests.chaos.verdict import Life

EARLY = {PROVISIONER: 100e6, EXTENDER: 50e6}
QUICK = Measured(24, 4.0, 4.1, 4.2)
CASES: dict[str, tuple[Measured, Measured, dict[str, float], str]] = {
    "all is well": (QUICK, Measured(24, 4.7, 4.8, 4.9), {PROVISIONER: 104e6, EXTENDER: 40e6}, ""),
    "the API server and kube-scheduler are late": (QUICK, Measured(24, 4.7, 9.0, 40.0), EARLY, ""),
    "pods wait for longer": (
        QUICK,
        Measured(24, 5.4, 5.5, 5.6),
        EARLY,
        "pods waited 5.4 s for a NodeClaim (p99 of 24) instead of 4.0 s",
    ),
    "few pods needed a node": (QUICK, Measured(2, 1.0, 1.0, 1.0), EARLY, "too few pods"),
    "one program grows": (QUICK, QUICK, EARLY | {EXTENDER: 53e6}, "takes 53 MB at the end"),
    "one program is gone": (QUICK, QUICK, EARLY | {EXTENDER: math.nan}, "at the end"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_tenant_may_cost_the_others(name: str) -> None:
    without, beside, late, wrong = CASES[name]
    found = judged(without, beside, EARLY, late)
    assert len(found) == bool(wrong)
    assert wrong in "".join(found)


def test_a_probe_waits_until_it_has_a_claim_and_one_without_until_now() -> None:
    def life(seen: float, planned: float = 0.0, bound: float = 0.0, node: str = "", namespace: str = PROBES) -> Life:
        return Life("a", namespace, node=node, seen_at=seen, planned_at=planned, bound_at=bound)

    nodes = [Life("one", open_at=11.5), Life("two", open_at=13)]
    counted = [life(10, 11, 12, "one"), life(11, 12.5, 14, "two"), life(16)]
    others = [life(1, 2, 9, "one"), life(10, 19, namespace="tenant"), life(20, 21, 21, "two"), life(12, 0, 13, "one")]
    assert waits(counted[:2], nodes, 10, 20) == Measured(2, 1.5, 2.0, 3.0)
    assert waits([*counted, *others], nodes, 10, 20) == Measured(3, 4.0, 4.0, 4.0)


def test_of_no_pod_of_the_tenant_more_is_kept_than_of_any() -> None:
    made = [sidecars(), labels(1), spreads(2), ports(3)]
    assert all(decode_pod(json.dumps(one).encode()).shape.unjudged for one in made)
    assert max(len(json.dumps(one, separators=(",", ":"))) for one in made) < 1.5 * 2**20
