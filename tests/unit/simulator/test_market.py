"""Which offerings are short, and which numbers count for an offering."""

import random

import pytest

from provisioner.simulator import market
from provisioner.simulator.market import ByOffering, Supply, _covers
from provisioner.simulator.workload import Shortage

NONE = ByOffering()
HALF_HOUR = (1800.0,)


def test_of_numbers_by_name_that_of_the_type_counts_first() -> None:
    rates = ByOffering(0.1, {"m5.large": 0.2, "zone-a": 0.3, "spot": 0.4})
    assert rates.of("m5.large", "zone-a", "spot") == 0.2
    assert rates.of("m5.xlarge", "zone-a", "spot") == 0.3
    assert rates.of("m5.xlarge", "zone-b", "spot") == 0.4
    assert rates.of("m5.xlarge", "zone-b", "on-demand") == 0.1
    assert not rates.none
    assert ByOffering(0.0, {"zone-a": 0.0}).none


@pytest.mark.parametrize(
    ("listed", "short"),
    [
        (Shortage(at=100, until=200), True),
        (Shortage(at=100, until=200, instance_types=("m5.large",), zones=("a",), capacity_types=("spot",)), True),
        (Shortage(at=100, until=200, zones=("b",)), False),
        (Shortage(at=100, until=150), False),
        (Shortage(at=151, until=200), False),
    ],
)
def test_listed_shortages_hold_for_what_they_name_and_until_their_end(listed: Shortage, short: bool) -> None:
    assert Supply(1, NONE, HALF_HOUR, [listed]).is_short("m5.large", "a", "spot", 150.0) is short


def test_of_many_listed_shortages_only_those_of_the_time_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    listed = [
        Shortage(at=at, until=at + chance.choice((0, 30, 90)), zones=(chance.choice("ab"),), instance_types=types)
        for at, types in (
            (10.0 * n, chance.choice(((), ("m5.large",), ("m5.large", "c5.large")))) for n in range(2_000)
        )
    ]
    chance.shuffle(listed)
    looked_at: list[Shortage] = []

    def covers(one: Shortage, *offering: str) -> bool:
        looked_at.append(one)
        return _covers(one, *offering)

    monkeypatch.setattr(market, "_covers", covers)
    supply = Supply(1, NONE, HALF_HOUR, listed)
    for at in range(0, 4_000, 7):
        for kind in ("m5.large", "c5.large"):
            now = [one for one in listed if one.at <= at < one.until and (one.instance_types or (kind,)).count(kind)]
            assert supply.is_short(kind, "a", "spot", at) is any("a" in one.zones for one in now)
            assert len(looked_at) <= len(now)
            looked_at.clear()


def spells(supply: Supply, zone: str, until: int = 1_000_000) -> list[int]:
    """Of every minute, whether it is short then."""
    return [int(supply.is_short("m5.large", zone, "spot", float(at))) for at in range(0, until, 60)]


def test_drawn_shortages_fill_their_share_and_last_as_long_as_they_may() -> None:
    minutes = spells(Supply(1, ByOffering(0.2), HALF_HOUR, ()), "a", 30_000_000)
    assert sum(minutes) / len(minutes) == pytest.approx(0.2, rel=0.1)
    text = "".join(map(str, minutes)).strip("1")
    lengths = [len(one) for one in text.split("0") if one]
    assert all(one % 30 == 0 for one in lengths), "minutes; two may follow each other"
    assert sum(one == 30 for one in lengths) > 0.9 * len(lengths)
    assert not any(spells(Supply(1, NONE, HALF_HOUR, ()), "a"))
    assert all(spells(Supply(1, ByOffering(1.0), HALF_HOUR, ()), "a"))


def test_a_shortage_may_have_begun_before_the_day() -> None:
    first = [Supply(seed, ByOffering(0.5), HALF_HOUR, ()).is_short("m5.large", "a", "spot", 0.0) for seed in range(200)]
    assert sum(first) == pytest.approx(100, abs=25)


def test_the_draws_of_an_offering_depend_on_the_seed_and_on_nothing_else() -> None:
    share = ByOffering(0.3)
    alone, beside = (Supply(7, share, HALF_HOUR, ()) for _ in range(2))
    spells(beside, "b")
    assert spells(alone, "a") == spells(beside, "a")
    assert spells(alone, "a") != spells(Supply(8, share, HALF_HOUR, ()), "a")
