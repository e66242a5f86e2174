from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.ec2.market import discounts
from provisioner.ec2.market.discounts import Bought, Discount, DiscountTable
from tests.support.clock import NOON

LIST = 0.096
REGION = "us-east-1"


@dataclass(frozen=True)
class Case:
    rows: tuple[Discount, ...]
    want: float
    running: int = 0
    type: str = "m5.large"
    zone: str = "us-east-1a"
    kind: str = "on-demand"


CASES = {
    "no row": Case((), LIST),
    "by type": Case((Discount(0.05, type="m5.large"),), 0.05),
    "by family": Case((Discount(0.05, family="m5"),), 0.05),
    "of another family": Case((Discount(0.05, family="m5d"),), LIST),
    "of another type": Case((Discount(0.05, type="m5.xlarge"),), LIST),
    "in the region": Case((Discount(0.05, family="m5", region=REGION),), 0.05),
    "in another region": Case((Discount(0.05, family="m5", region="eu-west-1"),), LIST),
    "in the zone": Case((Discount(0.05, family="m5", zone="us-east-1a"),), 0.05),
    "in another zone": Case((Discount(0.05, family="m5", zone="us-east-1b"),), LIST),
    "for another system": Case((Discount(0.05, family="m5", os="windows"),), LIST),
    "the first that matches": Case((Discount(0.07, family="m5"), Discount(0.05, type="m5.large")), 0.07),
    "one left": Case((Discount(0.05, family="m5", count=3),), 0.05, running=2),
    "used up": Case((Discount(0.05, family="m5", count=3),), LIST, running=3),
    "more running than bought": Case((Discount(0.05, family="m5", count=3),), LIST, running=9),
    "used up is the list price, not the next row": Case(
        (Discount(0.05, type="m5.large", count=1), Discount(0.06, family="m5")), LIST, running=1
    ),
    "a commitment that pays for one more": Case(
        (Discount(0.05, family="m5", hourly_commitment=0.15),), 0.05, running=2
    ),
    "a commitment that is used up": Case((Discount(0.05, family="m5", hourly_commitment=0.15),), LIST, running=3),
    "a commitment too small for one": Case((Discount(0.05, family="m5", hourly_commitment=0.04),), LIST),
    "spot instances use nothing up": Case((Discount(0.05, family="m5", count=1),), 0.05, running=5, kind="spot"),
    "not over yet": Case((Discount(0.05, family="m5", until=NOON + timedelta(seconds=1)),), 0.05),
    "over": Case((Discount(0.05, family="m5", until=NOON),), LIST),
    "over is the list price, not the next row": Case(
        (Discount(0.05, family="m5", until=NOON), Discount(0.06, family="m5")), LIST
    ),
    "dearer than the list is paid all the same": Case((Discount(0.5, family="m5"),), 0.5),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_price_of_one_more_instance(case: Case) -> None:
    ledger = DiscountTable(case.rows)
    instance = Bought("m5.large", "us-east-1a", case.kind)
    used = ledger.used([instance] * case.running, REGION)
    prices = discounts.LedgerPrices(ledger, used, REGION, NOON)
    assert prices.adjusted(case.type, case.zone, "on-demand", LIST) == case.want


def test_spot_is_not_discounted() -> None:
    prices = discounts.LedgerPrices(DiscountTable((Discount(0.05, family="m5"),)), (0,), REGION, NOON)
    assert prices.adjusted("m5.large", "us-east-1a", "spot", 0.03) == 0.03
    assert prices.adjusted("m5.large", "us-east-1a", "on-demand", LIST) == 0.05


def test_versions_change_with_prices_only() -> None:
    ledger = DiscountTable((Discount(0.05, family="m5", count=3, until=NOON + timedelta(days=1)),))

    def version(used: int, now: datetime = NOON) -> object:
        return discounts.LedgerPrices(ledger, (used,), REGION, now).version

    assert version(0) == version(2) == version(1, NOON + timedelta(hours=1))
    assert version(0) != version(3)
    assert version(3) == version(9) == version(0, NOON + timedelta(days=1))
    assert discounts.LedgerPrices(ledger, (), REGION, NOON).version == version(0)


FULL = """
- {family: m5, region: us-east-1, usd_per_hour: 0.061, count: 20, until: 2027-03-31}
- {type: c5.large, zone: us-east-1a, os: windows, usd_per_hour: 1, hourly_commitment: 12.5, until: "2027-03-31T12:00:00+02:00"}
- {type: c6.large, usd_per_hour: 0}
"""


def test_parse() -> None:
    ledger, problems = discounts.parse(FULL)
    assert problems == ()
    assert ledger.rows == (
        Discount(0.061, family="m5", region="us-east-1", count=20, until=datetime(2027, 4, 1, tzinfo=UTC)),
        Discount(
            1.0,
            type="c5.large",
            zone="us-east-1a",
            os="windows",
            hourly_commitment=12.5,
            until=datetime(2027, 3, 31, 10, tzinfo=UTC),
        ),
        Discount(0.0, type="c6.large"),
    )


@pytest.mark.parametrize("day", ["9999-12-31", '"9999-12-31"', '"9999-12-31T23:59:59Z"'])
def test_a_discount_for_ever(day: str) -> None:
    """There is no day after: the whole ledger was given up."""
    ledger, problems = discounts.parse(f"- {{family: m5, usd_per_hour: 1, until: {day}}}")
    assert problems == ()
    assert [one.stale(NOON) for one in ledger.rows] == [False]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]"])
def test_no_rows(text: str) -> None:
    assert discounts.parse(text) == (DiscountTable(), ())


PROBLEMS = {
    "no list": ("family: m5", "must be a list"),
    "not valid YAML": ("- {family: [", "is not valid YAML"),
    "no such day": (
        "- {family: m5, usd_per_hour: 1, until: 2027-02-31}",
        "row 1 is ignored: until must be a date or a time",
    ),
    "a row of text": ("- m5", "row 1 is ignored: must be an object, not a string"),
    "a field that is not known": ("- {famly: m5, usd_per_hour: 1}", "famly: unknown field; did you mean family?"),
    "a number for a field": ("- {5: 1, family: m5, usd_per_hour: 1}", "5: unknown field"),
    "no instance": ("- {usd_per_hour: 1}", "exactly one of family and type"),
    "two instances": ("- {family: m5, type: m5.large, usd_per_hour: 1}", "exactly one of family and type"),
    "two places": ("- {family: m5, region: a, zone: b, usd_per_hour: 1}", "only one of region and zone"),
    "two limits": ("- {family: m5, count: 1, hourly_commitment: 1, usd_per_hour: 1}", "only one of count and"),
    "no price": ("- {family: m5}", "usd_per_hour: is required"),
    "a negative price": ("- {family: m5, usd_per_hour: -1}", "usd_per_hour: -1 is less than the minimum 0"),
    "a price in words": ("- {family: m5, usd_per_hour: cheap}", "usd_per_hour: must be a number, not a string"),
    "no number for a price": ("- {family: m5, usd_per_hour: .nan}", "usd_per_hour: "),
    "an endless price": ("- {family: m5, usd_per_hour: .inf}", "usd_per_hour: "),
    "half an instance": ("- {family: m5, usd_per_hour: 1, count: 0.5}", "count: must be an integer"),
    "a truth for a count": ("- {family: m5, usd_per_hour: 1, count: true}", "count: must be an integer"),
    "a commitment to nothing": ("- {family: m5, usd_per_hour: 0, hourly_commitment: 1}", "usd_per_hour above 0"),
    "a number for a family": ("- {family: 5, usd_per_hour: 1}", "family: must be a string"),
    "a time in words": ("- {family: m5, usd_per_hour: 1, until: soon}", "until must be a date or a time"),
    "a time that is in no year": (
        "- {family: m5, usd_per_hour: 1, until: 0001-01-01T00:00:00+01:00}",
        "until must be a date or a time",
    ),
    "a number for a time": ("- {family: m5, usd_per_hour: 1, until: 5}", "until must be a date or a time"),
}


@pytest.mark.parametrize(("text", "want"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_bad_row_is_named_and_left_out(text: str, want: str) -> None:
    ledger, (problem,) = discounts.parse(text)
    assert ledger == DiscountTable()
    assert want in problem


def test_a_bad_row_does_not_stop_the_others() -> None:
    ledger, problems = discounts.parse("- {family: m5, usd_per_hour: 1}\n- 7\n- {family: c5, usd_per_hour: 2}")
    assert [row.family for row in ledger.rows] == ["m5", "c5"]
    assert len(problems) == 1


def test_a_config_map_holds_the_ledger_under_one_key() -> None:
    assert discounts.text_of({}, "configmap/mine") == ""
    assert discounts.text_of({"discounts.yaml": "- {}", "notes": "x"}, "configmap/mine") == "- {}"
    with pytest.raises(ValueError, match=r"configmap/mine has no key discounts.yaml, only discounts.yml"):
        discounts.text_of({"discounts.yml": "- {}"}, "configmap/mine")
