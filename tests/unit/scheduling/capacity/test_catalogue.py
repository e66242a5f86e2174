"""The index over instance types answers as a loop over them would."""

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import by_price
from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.scheduling.constraints.bitsets import members
from provisioner.values.requirement import Requirement, Requirements
from tests.support.problems import (
    ARM,
    GPU,
    LARGE,
    MEDIUM,
    SMALL,
    TYPES,
    Expression,
    instance_type,
    offering,
    requirements,
)

CATALOGUE = Catalogue(TYPES)
SOLD_OUT = instance_type(
    "sold-out", "4", "8Gi", unavailable=[(zone, kind) for zone in "ab" for kind in ("spot", "on-demand")]
)


def named(mask: int, catalogue: Catalogue = CATALOGUE) -> list[str]:
    return [catalogue.types[row].name for row in members(mask)]


MATCHES: dict[str, tuple[Expression, list[str]]] = {
    "In keeps types with one of the values": ((names.ARCH_LABEL, "In", ["arm64"]), ["arm"]),
    "NotIn drops them": ((names.ARCH_LABEL, "NotIn", ["amd64"]), ["arm"]),
    "a bound is a number": (("provider.example/cpu", "Gt", ["4"]), ["gpu", "large"]),
    "Exists needs the label": (("provider.example/gpu", "Exists", []), ["gpu"]),
    "DoesNotExist needs its absence": (
        ("provider.example/gpu", "DoesNotExist", []),
        ["arm", "fat", "large", "medium", "small"],
    ),
    "NotIn is met by absence": (("provider.example/gpu", "NotIn", ["t4"]), ["arm", "fat", "large", "medium", "small"]),
    "a key nobody has matches no demand": (("unheard", "In", ["x"]), []),
    "a key nobody has meets NotIn": (("unheard", "NotIn", ["x"]), ["arm", "fat", "gpu", "large", "medium", "small"]),
}


@pytest.mark.parametrize("case", MATCHES.values(), ids=MATCHES)
def test_matching(case: tuple[Expression, list[str]]) -> None:
    (key, operator, values), want = case
    assert named(CATALOGUE.matching(Requirement.of(key, operator, values), defined=False)) == want


def test_a_key_that_the_template_defines_rules_no_type_out() -> None:
    mask = CATALOGUE.matching(Requirement.of("team", "In", ["x"]), defined=True)
    assert mask == CATALOGUE.everything


def test_types_are_in_order_of_name_whatever_the_input() -> None:
    assert [one.name for one in Catalogue(TYPES[::-1]).types] == sorted(one.name for one in TYPES)


def test_what_is_sold_out_is_not_available() -> None:
    catalogue = Catalogue((SMALL, SOLD_OUT))
    assert named(catalogue.available(Requirements.of([])), catalogue) == ["small"]
    assert [one.row for one in catalogue.priced(Requirements.of([]))] == [0]


def test_zone_and_capacity_type_must_be_had_together() -> None:
    half = instance_type("half", "2", "4Gi", unavailable=[("a", "spot"), ("b", "on-demand")])
    catalogue = Catalogue((half,))
    spot_in_a = requirements((names.ZONE_LABEL, "In", ["a"]), (names.CAPACITY_TYPE_LABEL, "In", ["spot"]))
    spot_in_b = requirements((names.ZONE_LABEL, "In", ["b"]), (names.CAPACITY_TYPE_LABEL, "In", ["spot"]))
    assert catalogue.available(spot_in_a) == 0
    assert catalogue.available(spot_in_b) == 1


def test_a_label_that_only_offerings_have_restricts_to_these() -> None:
    reserved = offering("a", 0.1, "reserved")
    reserved = type(reserved)(
        reserved.requirements.merged(Requirements.from_labels({"reservation": "r1"})), 0.1, reservation_capacity=1
    )
    catalogue = Catalogue((instance_type("one", "2", "4Gi", offerings=[offering("a", 1.0), reserved]),))
    asks = requirements(("reservation", "In", ["r1"]))
    assert [one.offering.price for one in catalogue.priced(asks)] == [0.1]
    assert catalogue.available(requirements(("reservation", "In", ["r2"]))) == 0
    assert catalogue.matching(asks["reservation"], defined=False) == 1


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_prices_agree_with_the_seam(kind: str) -> None:
    asked = requirements((names.CAPACITY_TYPE_LABEL, "In", [kind]), (names.ZONE_LABEL, "In", ["b"]))
    mine = [(CATALOGUE.types[one.row].name, one.offering.price) for one in CATALOGUE.priced(asked)]
    cheapest: dict[str, float] = {}
    for instance_type_, offered in by_price(TYPES, asked):
        cheapest.setdefault(instance_type_.name, offered.price)
    assert mine == list(cheapest.items())


def test_distinct_values_count_only_allowed_ones() -> None:
    rows = CATALOGUE.everything
    assert CATALOGUE.distinct_values(Requirement.of(names.ARCH_LABEL, "Exists"), rows) == 2
    assert CATALOGUE.distinct_values(Requirement.of(names.ARCH_LABEL, "In", ["arm64", "riscv"]), rows) == 1
    assert CATALOGUE.distinct_values(Requirement.of("unheard", "Exists"), rows) == 0


def test_capacity_types_are_those_of_the_rows() -> None:
    catalogue = Catalogue((instance_type("a", "2", "4Gi", capacity_types=("spot",)), MEDIUM))
    nothing = Requirements.of([])
    assert catalogue.capacity_types(nothing, 1) == ("spot",)
    assert catalogue.capacity_types(nothing, 3) == ("on-demand", "spot")


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    fresh, used = Catalogue((ARM, GPU, LARGE)), Catalogue((ARM, GPU, LARGE))
    one, two = Requirement.of(names.ARCH_LABEL, "In", ["arm64"]), Requirement.of(names.ARCH_LABEL, "NotIn", ["arm64"])
    used.matching(two, defined=True)
    used.matching(one, defined=True)
    assert fresh.matching(one, defined=False) == used.matching(one, defined=False)
