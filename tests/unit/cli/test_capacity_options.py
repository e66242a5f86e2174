"""Options of interruptions and shortages: what they mean, and what is said of those that are wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.cli.capacity_options import CapacityChoice, by_offering, capacity_of, ec2_manners, read_seconds
from provisioner.simulator.market import ByOffering
from provisioner.simulator.workload import Shortage
from provisioner.simulator.workloads.learned import LearnedMarket
from provisioner.values.errors import UserError

OPTIONS = ("boot_seconds", "interruptions_per_hour", "shortage_share", "shortage_seconds")
LEARNED = LearnedMarket(
    (50.0, 70.0), ByOffering(0.3), (Shortage(at=1, until=2),), "boots", "interruptions", "shortages"
)


def said(learned: LearnedMarket | None = None, **options: str) -> CapacityChoice:
    return capacity_of(learned, **{name: options.get(name) for name in OPTIONS})


def test_one_number_for_all_and_some_by_name() -> None:
    found = said(
        interruptions_per_hour="0.01, us-east-1a=0.05,m5.large=0.2",
        shortage_share="spot=0.1",
        shortage_seconds="600,1200.5",
    ).market
    assert found.interruptions_per_hour == ByOffering(0.01, {"us-east-1a": 0.05, "m5.large": 0.2})
    assert found.shortage_share == ByOffering(0.0, {"spot": 0.1})
    assert found.shortage_seconds == (600.0, 1200.5)


def test_what_no_option_says_is_learned_from_the_record() -> None:
    found = said(LEARNED)
    assert (found.boot_seconds, found.market.interruptions_per_hour) == ((50.0, 70.0), ByOffering(0.3))
    assert (found.shortages, found.notes) == (LEARNED.shortages, ("boots", "interruptions", "shortages"))
    set_all = said(LEARNED, boot_seconds="40", interruptions_per_hour="0", shortage_share="0")
    assert (set_all.boot_seconds, set_all.market.interruptions_per_hour) == ((40.0,), ByOffering())
    assert (set_all.shortages, set_all.notes) == ((), ())


@pytest.mark.parametrize("learned", [None, LearnedMarket((), None, ())])
def test_without_either_nothing_goes_wrong_and_nodes_boot_in_less_than_a_minute(learned: LearnedMarket | None) -> None:
    found = said(learned)
    assert found.boot_seconds == (30.0, 35.0, 40.0, 45.0, 60.0)
    assert found.market.interruptions_per_hour.none
    assert found.market.shortage_share.none
    assert (found.shortages, found.notes) == ((), ())


@pytest.mark.parametrize("text", ["often", "-1", "61", "nan", "=0.1", "a b=0.1", "m5.large=", "", "0.1,"])
def test_a_wrong_number_is_told(text: str) -> None:
    with pytest.raises(UserError, match=r"--interruptions-per-hour .*: write numbers from 0 to 60"):
        by_offering("--interruptions-per-hour", text, 60.0)


@pytest.mark.parametrize(
    ("text", "twice"), [("0.1,0.2", "the number for all"), ("0.1,m5.large=0.2,m5.large=0.2", "m5.large")]
)
def test_a_number_that_is_there_twice_is_told(text: str, twice: str) -> None:
    with pytest.raises(UserError, match=rf"--shortage-share '.*0.2': {twice} is there twice; leave one out"):
        by_offering("--shortage-share", text, 1.0)


@pytest.mark.parametrize("text", ["", "0", "1e-300", "0.5", "nan", "soon", "10,,20", "3601"])
def test_wrong_seconds_are_told(text: str) -> None:
    with pytest.raises(UserError, match=r"--boot-seconds .*: write seconds from 1 to 3600"):
        read_seconds("--boot-seconds", text, 3600)


def test_a_notice_is_that_of_ec2() -> None:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    manners = ec2_manners()
    found = manners.notice(at)
    assert found is not None
    assert found.reason == "spot_interrupted"
    assert found.ends == at + timedelta(seconds=manners.notice_seconds) == at + timedelta(minutes=2)
    assert found.replaced
