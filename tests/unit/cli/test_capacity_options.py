"""Options of interruptions and shortages: what they mean, and what is said of those that are wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.cli.capacity_options import by_offering, ec2_manners, market_of, read_seconds
from provisioner.simulator.market import ByOffering
from provisioner.values.errors import UserError


def test_one_number_for_all_and_some_by_name() -> None:
    found = market_of("0.01, us-east-1a=0.05,m5.large=0.2", "spot=0.1", "600,1200.5")
    assert found.interruptions_per_hour == ByOffering(0.01, {"us-east-1a": 0.05, "m5.large": 0.2})
    assert found.shortage_share == ByOffering(0.0, {"spot": 0.1})
    assert found.shortage_seconds == (600.0, 1200.5)


@pytest.mark.parametrize("text", ["often", "-1", "61", "nan", "=0.1", "a b=0.1", "m5.large=", "", "0.1,"])
def test_a_wrong_number_is_told(text: str) -> None:
    with pytest.raises(UserError, match=r"--interruptions-per-hour .*: write numbers from 0 to 60"):
        by_offering("--interruptions-per-hour", text, 60.0)


@pytest.mark.parametrize("text", ["", "0", "soon", "10,,20", "3601"])
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
