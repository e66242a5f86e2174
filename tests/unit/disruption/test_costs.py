"""What it costs to disrupt a node: core spec 6.3."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.disruption import costs
from tests.support.clock import NOON
from tests.support.cluster import claim, pod
from tests.support.fleets import MEDIUM, running
from tests.support.problems import shape

EVICTIONS: dict[str, tuple[dict[str, str], int, float]] = {
    "a pod that says nothing": ({}, 0, 1.0),
    "a disruption cost": ({names.DISRUPTION_COST: "134217728"}, 0, 2.0),
    "a negative one": ({names.DISRUPTION_COST: "-134217728"}, 0, 0.0),
    "with a sign": ({names.DISRUPTION_COST: "+134217728"}, 0, 2.0),
    "the most": ({names.DISRUPTION_COST: "2147483647"}, 0, 10.0),
    "more than an int32": ({names.DISRUPTION_COST: "2147483648"}, 0, 1.0),
    "never less than minus ten": ({names.DISRUPTION_COST: "-2147483648"}, 0, -10.0),
    "a deletion cost": ({names.POD_DELETION_COST: "134217728"}, 0, 2.0),
    "a fraction": ({names.POD_DELETION_COST: "134217728.5"}, 0, 1.0),
    "the newer one counts": ({names.DISRUPTION_COST: "0", names.POD_DELETION_COST: "134217728"}, 0, 1.0),
    "even if it cannot be read": ({names.DISRUPTION_COST: "dear", names.POD_DELETION_COST: "134217728"}, 0, 1.0),
    "a deletion cost of ours": ({names.POD_DELETION_COST: "-8192", names.OWN_DELETION_COST: "-8192"}, 0, 1.0),
    "one that a user wrote over it": (
        {names.POD_DELETION_COST: "134217728", names.OWN_DELETION_COST: "-8192"},
        0,
        2.0,
    ),
    "a priority": ({}, 2**25, 2.0),
    "a pause pod": ({}, -(2**25), 0.0),
    "no number": ({names.DISRUPTION_COST: "dear"}, 0, 1.0),
    "digits of another script": ({names.DISRUPTION_COST: "١٣٤٢١٧٧٢٨"}, 0, 1.0),
    "not a number": ({names.DISRUPTION_COST: "nan"}, 0, 1.0),
    "spaces": ({names.DISRUPTION_COST: " 134217728"}, 0, 1.0),
}


@pytest.mark.parametrize(("annotations", "priority", "want"), EVICTIONS.values(), ids=EVICTIONS)
def test_what_an_eviction_costs(annotations: dict[str, str], priority: int, want: float) -> None:
    one = running("w", shape(priority=priority), annotations=annotations)
    assert costs.eviction_cost(one) == pytest.approx(want)


def test_a_node_costs_one_and_its_pods_none_less_than_nothing() -> None:
    cheap = running("cheap", annotations={names.DISRUPTION_COST: "-2147483648"})
    assert costs.reschedule_cost([running("a"), cheap, pod("d", kind="DaemonSet")]) == 2.0


LIVES: dict[str, tuple[str, timedelta, float]] = {
    "new": ("10h", timedelta(0), 1.0),
    "half": ("10h", timedelta(hours=5), 0.5),
    "over": ("10h", timedelta(hours=11), 0.0),
    "never": ("Never", timedelta(days=1000), 1.0),
    "unreadable": ("long", timedelta(days=1), 1.0),
}


@pytest.mark.parametrize(("life", "age", "want"), LIVES.values(), ids=LIVES)
def test_the_life_before_a_node(life: str, age: timedelta, want: float) -> None:
    one = claim("a", creationTimestamp=(NOON - age).isoformat())
    one = replace(one, spec=replace(one.spec, expire_after=life))
    assert costs.lifetime_remaining(one, NOON) == pytest.approx(want)
    assert costs.disruption_cost(one, [running("a"), running("b")], NOON) == pytest.approx(2 * want)


def test_the_price_of_a_node_is_that_of_its_offering() -> None:
    labels = {names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "on-demand"}
    assert costs.price_of(labels, MEDIUM) == 0.2
    assert costs.price_of({**labels, names.ZONE_LABEL: "mars"}, MEDIUM) == 0.0
    assert costs.price_of(labels, None) == 0.0
