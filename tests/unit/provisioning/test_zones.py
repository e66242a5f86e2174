"""Pending pods by the zone that they can run in."""

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.provisioning.zones import pending_by_zone
from tests.support.problems import (
    instance_type,
    node,
    pod,
    pods,
    pool,
    problem,
    shape,
    storage,
    term,
    uses,
    volume,
    volume_claim,
)

ZONE = names.ZONE_LABEL
MEDIUM = instance_type("m", "4", "8Gi", zones=("a", "b"), unavailable=[("b", "spot"), ("b", "on-demand")])
TWO_ZONES = instance_type("n", "4", "8Gi", zones=("a", "b"))
KEPT = storage(volume("v", "b"), volume_claim("data", volume="v"))

WAITS: dict[str, tuple[Pod, str]] = {
    "anywhere": (pod("p"), "flexible"),
    "for anything but its size": (pod("p", shape("900")), "flexible"),
    "for one zone": (pod("p", shape(selector={ZONE: "a"})), "a"),
    "for a zone by its legacy name": (pod("p", shape(selector={"failure-domain.beta.kubernetes.io/zone": "b"})), "b"),
    "for a zone that only a node is in": (pod("p", shape(selector={ZONE: "c"})), "c"),
    "for a zone that nobody has": (pod("p", shape(selector={ZONE: "mars"})), "none"),
    "for either of two zones": (
        pod("p", shape(terms=[term((ZONE, "In", ["a"])), term((ZONE, "In", ["b"]))])),
        "flexible",
    ),
    "for any zone but two": (pod("p", shape(terms=[term((ZONE, "NotIn", ["a", "c"]))])), "b"),
    "for its volume": (pod("p", shape(volumes=uses("data"))), "b"),
    "for another zone than its volume's": (pod("p", shape(volumes=uses("data"), selector={ZONE: "a"})), "none"),
    "for a volume that nobody knows": (pod("p", shape(volumes=uses("lost"))), "none"),
}


@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS.keys())
def test_a_pod_that_waits(case: tuple[Pod, str]) -> None:
    waiting, zone = case
    asked = problem([waiting], pool(types=(TWO_ZONES,)), bins=[node("old", "1", labels={ZONE: "c"})], storage=KEPT)
    assert pending_by_zone(asked, asked.pods) == {zone: 1}


def test_a_zone_where_nothing_can_be_bought_is_none() -> None:
    wanting_b = pods(2, shape(selector={ZONE: "b"}))
    assert pending_by_zone(problem((), pool(types=(MEDIUM,))), wanting_b) == {"none": 2}


def test_every_pod_counts_once() -> None:
    mixed = [*pods(3), *pods(2, shape(selector={ZONE: "a"}), "in-a")]
    assert pending_by_zone(problem((), pool(types=(TWO_ZONES,))), mixed) == {"flexible": 3, "a": 2}
