"""What NodeOverlays make of instance types, and which of them are in force."""

from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.apis.overlay import NodeOverlay
from provisioner.cloudprovider.overlays import RECHECK_SECONDS, OverlayError, overlaid, read
from provisioner.cloudprovider.types import CloudProvider, LaunchedInstance, cheapest_first
from tests.support.cluster import claim
from tests.support.overlays import OverlayFleet, catalogue, kind, overlay

TYPE, ZONE, HOW = names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL
BIG = (TYPE, "In", ["big"])
PRICES: dict[str, tuple[dict[str, Any], float]] = {
    "an absolute price": ({"price": "0.25"}, 0.25),
    "nothing": ({"price": "0"}, 0.0),
    "more": ({"priceAdjustment": "+0.5"}, 2.5),
    "less": ({"priceAdjustment": "-0.5"}, 1.5),
    "less than nothing is nothing": ({"priceAdjustment": "-5"}, 0.0),
    "a tenth more": ({"priceAdjustment": "+10%"}, 2.2),
    "a tenth less": ({"priceAdjustment": "-10%"}, 1.8),
    "free": ({"priceAdjustment": "-100%"}, 0.0),
    "no point before it": ({"priceAdjustment": "+.5"}, 2.5),
}


@pytest.mark.parametrize(("spec", "want"), PRICES.values(), ids=PRICES)
def test_prices(spec: dict[str, Any], want: float) -> None:
    stage = OverlayFleet(overlay("one", BIG, **spec))
    assert stage.prices()["big/a/on-demand"] == pytest.approx(want)
    assert stage.prices()["small/a/on-demand"] == 1.0


def test_only_the_offerings_that_are_meant_change() -> None:
    stage = OverlayFleet(overlay("one", BIG, (ZONE, "In", ["b"]), (HOW, "In", ["spot"]), price="7"))
    changed = {name: price for name, price in stage.prices().items() if price == 7}
    assert changed == {"big/b/spot": 7}


SELECTED: dict[str, tuple[list[tuple[str, str, list[str]]], str, set[str]]] = {
    "everything": ([], "general", {"arm", "big", "small"}),
    "one pool": ([(names.NODEPOOL_LABEL, "In", ["team"])], "team", {"arm", "big", "small"}),
    "another pool": ([(names.NODEPOOL_LABEL, "In", ["team"])], "general", set()),
    "the labels of a pool's nodes": ([("team", "In", ["red"])], "team", {"arm", "big", "small"}),
    "a label that nothing has": ([("team", "In", ["red"])], "general", set()),
    "a label that nothing has and that may be absent": (
        [("team", "NotIn", ["red"])],
        "general",
        {"arm", "big", "small"},
    ),
    "a zone that no type has": ([(ZONE, "In", ["c"])], "general", set()),
    "all but one": ([(TYPE, "NotIn", ["big"])], "general", {"arm", "small"}),
    "two at once": ([(TYPE, "In", ["big", "arm"]), (names.ARCH_LABEL, "In", ["amd64"])], "general", {"big"}),
}


@pytest.mark.parametrize(("requirements", "pool", "want"), SELECTED.values(), ids=SELECTED)
def test_what_an_overlay_is_about(requirements: list[tuple[str, str, list[str]]], pool: str, want: set[str]) -> None:
    stage = OverlayFleet(overlay("one", *requirements, price="9", capacity={"example.com/device": "2"}))
    found = stage.of(pool)
    assert {one.name for one in found if one.capacity.amount("example.com/device") == 2} == want
    assert {one.name for one in found if all(offering.price == 9 for offering in one.offerings)} == want
    assert {one.name for one in found if one.overlaid} == want


def test_capacity_is_put_over_that_of_the_provider() -> None:
    stage = OverlayFleet(overlay("one", BIG, capacity={"example.com/device": "2", "nvidia.com/gpu": "8"}))
    stage.types = (kind("big", 1.0, **{"nvidia.com/gpu": "1"}),)
    (big,) = stage.of()
    assert big.capacity.to_wire() == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "8", "example.com/device": "2"}
    assert big.allocatable.amount("example.com/device") == 2


def test_the_heaviest_counts_for_each_price_and_each_resource_by_itself() -> None:
    stage = OverlayFleet(
        overlay("light", price="1", weight=1, capacity={"example.com/a": "1", "example.com/b": "1"}),
        overlay("heavy", BIG, (ZONE, "In", ["a"]), price="5", weight=5, capacity={"example.com/a": "5"}),
    )
    prices, (_, big, _) = stage.prices(), stage.of()
    assert (prices["big/a/spot"], prices["big/b/spot"], prices["small/a/spot"]) == (5, 1, 1)
    assert (big.capacity.amount("example.com/a"), big.capacity.amount("example.com/b")) == (5, 1)
    assert stage.overlays.problem("light") is None


def test_of_two_equals_that_contradict_each_other_one_counts_nowhere_and_says_which_is_the_other() -> None:
    stage = OverlayFleet(
        overlay("a", BIG, price="5"),
        overlay("b", (ZONE, "In", ["a"]), price="6"),  # all types, so BIG in zone a is said twice
    )
    problem = stage.overlays.problem("a")
    assert problem is not None
    assert (problem.reason, 'NodeOverlay "b"' in problem.message) == ("Conflict", True)
    assert stage.overlays.problem("b") is None
    assert 5 not in stage.prices().values()


def test_overlays_of_one_weight_that_say_different_things_do_not_conflict() -> None:
    stage = OverlayFleet(
        overlay("price", BIG, price="5"),
        overlay("resource", BIG, capacity={"example.com/a": "1"}),
        overlay("other", BIG, capacity={"example.com/b": "1"}),
        overlay("elsewhere", (TYPE, "In", ["small"]), price="6"),
    )
    assert [stage.overlays.problem(name) for name in ("price", "resource", "other", "elsewhere")] == [None] * 4


def test_a_conflict_in_one_pool_is_a_conflict_in_all() -> None:
    stage = OverlayFleet(overlay("a", ("team", "In", ["red"]), price="5"), overlay("b", price="6"))
    assert stage.overlays.problem("a") is not None
    stage.pools.pop()
    stage.overlays.pool_changed(stage.pools[0], None)
    assert stage.overlays.problem("a") is None


def test_a_type_that_appears_later_brings_its_conflict() -> None:
    stage = OverlayFleet(overlay("a", (TYPE, "In", ["new"]), price="5"), overlay("b", price="6"))
    assert stage.overlays.problem("a") is None
    stage.types = (*stage.types, kind("new", 1.0))
    stage.clock.advance(RECHECK_SECONDS)
    assert stage.overlays.problem("a") is not None


def test_a_conflict_ends_with_the_other_overlay() -> None:
    other = overlay("b", price="6")
    stage = OverlayFleet(overlay("a", price="5"), other)
    assert set(stage.prices().values()) == {6}
    stage.overlays.changed(other, None)
    assert stage.overlays.problem("a") is None
    assert set(stage.prices().values()) == {5}


UNREADABLE: dict[str, tuple[NodeOverlay, str]] = {
    "an operator": (overlay("x", (TYPE, "Near", ["big"]), price="1"), "spec.requirements"),
    "no values": (overlay("x", (TYPE, "In", [])), "spec.requirements"),
    "a price": (overlay("x", price="cheap"), "spec.price: 'cheap'"),
    "an infinite price": (overlay("x", price="inf"), "spec.price: 'inf'"),
    "a price of which no sum is a number": (overlay("x", price="9" * 304), "spec.price: '999"),
    "a price of too many digits": (overlay("x", price="9" * 400), "spec.price: '999"),
    "an amount of too many digits": (overlay("x", priceAdjustment="+" + "9" * 400), "spec.priceAdjustment: '+999"),
    "a percentage of too many digits": (overlay("x", priceAdjustment=f"+{'9' * 400}%"), "spec.priceAdjustment: '+999"),
    "an adjustment without a sign": (overlay("x", priceAdjustment="5"), "spec.priceAdjustment: '5'"),
    "two prices": (overlay("x", price="1", priceAdjustment="+5"), "cannot set both"),
    "an amount": (overlay("x", capacity={"example.com/a": "many"}), "spec.capacity"),
    "what the provider knows": (overlay("x", capacity={"cpu": "1"}), "spec.capacity: cpu"),
}


@pytest.mark.parametrize(("bad", "text"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_said_and_left_out(bad: NodeOverlay, text: str) -> None:
    with pytest.raises(OverlayError) as error:
        read(bad)
    assert text in str(error.value)
    stage = OverlayFleet(bad, overlay("good", price="3"))
    problem = stage.overlays.problem("x")
    assert problem is not None
    assert (problem.reason, problem.message) == ("RuntimeValidation", str(error.value))
    assert set(stage.prices().values()) == {3}


def test_without_overlays_the_types_are_the_providers() -> None:
    stage = OverlayFleet()
    assert stage.of() is stage.types


def test_types_and_tuples_stay_the_same_objects() -> None:
    stage = OverlayFleet(overlay("one", BIG, price="5"))
    first = stage.of()
    assert stage.of() is first
    assert (first[0], first[2]) == (stage.types[0], stage.types[2])
    assert first[0] is stage.types[0]
    stage.overlays.pool_changed(None, stage.pools[0])  # judged anew, with the same result
    assert stage.of() is first
    stage.types = catalogue()  # equal, and not the same
    assert stage.of() is first
    stage.types = (*catalogue()[:2], kind("small", 1.5))
    third = stage.of()
    assert (third[0], third[1]) == (first[0], first[1])
    assert third[1] is first[1]
    assert third[2] is stage.types[2]


def test_pools_share_the_types_unless_an_overlay_tells_them_apart() -> None:
    stage = OverlayFleet(overlay("one", BIG, price="5"))
    assert stage.of("general") is stage.of("team")
    stage.overlays.changed(None, overlay("two", ("team", "In", ["red"]), (TYPE, "In", ["small"]), price="6"))
    assert stage.prices("general") != stage.prices("team")


def test_two_callers_with_old_and_new_types_do_not_make_them_anew_for_each_other() -> None:
    stage = OverlayFleet(overlay("one", BIG, price="5"))
    old, new = stage.types, (*stage.types[:2], kind("small", 1.5))
    seen = {id(stage.overlays.applied("general", types)) for _ in range(3) for types in (old, new)}
    assert len(seen) == 2


def test_a_provider_that_fails_for_one_pool_is_asked_for_the_others() -> None:
    stage = OverlayFleet(overlay("a", price="5"), overlay("b", price="6"))
    types = stage.types

    def failing(pool: Any) -> Any:
        if pool.name == "general":
            raise RuntimeError("no class")
        return types

    stage.overlays.over(failing)
    assert stage.overlays.problem("a") is not None


class Base:
    """A provider that launches the cheapest of what overlays say."""

    name = "base"

    def __init__(self, stage: OverlayFleet) -> None:
        self.stage = stage

    def instance_types(self, pool: object) -> Any:
        return self.stage.types

    def create(self, one: Any) -> LaunchedInstance:
        chosen = cheapest_first(self.stage.overlays.applied(one.pool, self.stage.types))[0]
        return LaunchedInstance(f"base://{one.name}", chosen.name, "a", "spot", annotations={"own": "1"})


def test_the_wrapped_provider_sells_at_overlaid_prices_and_says_so_on_the_instance() -> None:
    stage = OverlayFleet(overlay("one", BIG, price="0.01", capacity={"example.com/device": "1"}))
    provider = overlaid(cast(CloudProvider, Base(stage)), stage.overlays)
    assert provider.name == "base"
    assert provider.instance_types(stage.pools[0]) is stage.of()
    instance = provider.create(claim("c"))
    assert instance.instance_type == "big"
    assert instance.annotations == {
        "own": "1",
        names.PRICE_OVERLAY_APPLIED: "true",
        names.CAPACITY_OVERLAY_APPLIED: "true",
    }
    assert provider.create(claim("c", pool="unknown")).annotations == {"own": "1"}


def test_an_instance_whose_offering_is_not_meant_says_nothing() -> None:
    stage = OverlayFleet(overlay("one", BIG, (ZONE, "In", ["b"]), price="0.01"))
    instance = overlaid(cast(CloudProvider, Base(stage)), stage.overlays).create(claim("c"))
    assert (instance.instance_type, instance.zone, instance.annotations) == ("big", "a", {"own": "1"})
