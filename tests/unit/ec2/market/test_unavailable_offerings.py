import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.ec2.access.errors import FailureScope
from provisioner.ec2.market import unavailable_offerings
from provisioner.ec2.market.unavailable_offerings import CONFIG_KEY, OfferingKey, OfferingStanding, Shortages
from tests.support.clock import NOON

SPOT = OfferingKey("spot", "m5.large", "a")
CODE = "InsufficientInstanceCapacity"


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def short(*offers: OfferingKey, at: datetime = NOON) -> Shortages:
    table = Shortages()
    for offer in offers:
        table.failed(offer, at, CODE)
    return table


def closed_for(table: Shortages, offer: OfferingKey, now: datetime) -> float:
    """Seconds until it is no longer closed."""
    low, high = 0.0, 3600.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if table.standing(offer, now + timedelta(seconds=middle)) is OfferingStanding.CLOSED
            else (low, middle)
        )
    return high


@pytest.mark.parametrize(("failures", "seconds"), {1: 45, 2: 90, 3: 180, 4: 240, 5: 240, 1000: 240}.items())
def test_closed_longer_with_each_failure_up_to_four_minutes(failures: int, seconds: float) -> None:
    assert unavailable_offerings.delay(("offer", "spot", "m5.large", "a"), failures).total_seconds() == pytest.approx(
        seconds, rel=0.1
    )


def test_offerings_do_not_come_back_all_at_once() -> None:
    delays = {unavailable_offerings.delay(("offer", "spot", f"m5.{size}xlarge", "a"), 1) for size in range(50)}
    assert len(delays) == 50
    assert max(delays) - min(delays) > timedelta(seconds=5)


def test_failure_probe_failure_waits_longer() -> None:
    table = short(SPOT)
    first = closed_for(table, SPOT, NOON)
    then = after(first + 1)
    assert table.standing(SPOT, then) is OfferingStanding.DOUBTED
    assert table.grant(SPOT, 10, then) == 1
    table.failed(SPOT, then, CODE)
    assert closed_for(table, SPOT, then) > 1.7 * first


def test_answers_to_calls_that_were_under_way_count_once() -> None:
    once, often = short(SPOT), short(SPOT, SPOT, SPOT, SPOT)
    assert closed_for(once, SPOT, NOON) == closed_for(often, SPOT, NOON)


def test_one_probes_while_the_others_wait() -> None:
    table, then = short(SPOT), after(60)
    assert table.grant(SPOT, 100, then) == 1
    assert table.standing(SPOT, then) is OfferingStanding.PROBED
    assert not OfferingStanding.PROBED.available
    assert table.grant(SPOT, 100, then) == 0


def test_a_probe_that_nobody_answers_for_is_forgotten_after_a_minute() -> None:
    table = short(SPOT)
    table.grant(SPOT, 1, after(60))
    assert table.standing(SPOT, after(119)) is OfferingStanding.PROBED
    assert table.standing(SPOT, after(121)) is OfferingStanding.DOUBTED


def test_a_probe_that_said_nothing_is_given_back() -> None:
    table = short(SPOT)
    table.grant(SPOT, 1, after(60))
    table.release(SPOT, 1, after(61))
    assert table.grant(SPOT, 1, after(61)) == 1


def test_each_instance_admits_four_times_as_many_until_it_is_trusted() -> None:
    table, granted = short(SPOT), []
    for second in range(60, 65):
        granted.append(table.grant(SPOT, 1000, after(second)))
        table.succeeded(SPOT, after(second), granted[-1])
    assert granted == [1, 4, 16, 64, 1000]
    assert table.standing(SPOT, after(65)) is OfferingStanding.OPEN
    assert len(table) == 0


def test_a_success_opens_what_is_closed() -> None:
    table = short(SPOT)
    table.succeeded(SPOT, after(1))
    assert table.standing(SPOT, after(1)).available


TAKEN = 180.0


def test_what_was_taken_back_is_closed_for_three_minutes() -> None:
    table = Shortages()
    table.taken_back(SPOT, NOON, "SpotInterruption")
    assert closed_for(table, SPOT, NOON) == pytest.approx(TAKEN, abs=0.1)
    assert table.standing(SAME_FAMILY, NOON) is OfferingStanding.DOUBTED


def test_also_where_it_was_short_already() -> None:
    table = short(SPOT)
    table.taken_back(SPOT, after(10), "SpotInterruption")
    assert closed_for(table, SPOT, after(10)) == pytest.approx(TAKEN, abs=0.1)


def test_an_instance_that_was_ordered_before_does_not_open_what_was_taken_back() -> None:
    table = Shortages()
    table.taken_back(SPOT, NOON, "SpotInterruption")
    table.succeeded(SPOT, after(1), 500)
    assert closed_for(table, SPOT, NOON) == pytest.approx(TAKEN, abs=0.1)
    table.succeeded(SPOT, after(TAKEN + 1))
    assert table.standing(SPOT, after(TAKEN + 2)).available


def test_longer_where_it_failed_often() -> None:
    table = short(SPOT)
    for second in (60, 200, 500):
        table.failed(SPOT, after(second), CODE)
    table.taken_back(SPOT, after(510), "SpotInterruption")
    assert closed_for(table, SPOT, after(510)) > TAKEN


SAME_FAMILY = OfferingKey("spot", "m5.xlarge", "a")
UNTOUCHED = {
    "same type, other capacity type": OfferingKey("on-demand", "m5.large", "a"),
    "same type, other zone": OfferingKey("spot", "m5.large", "b"),
    "same family, other zone": OfferingKey("spot", "m5.xlarge", "b"),
    "same family, other capacity type": OfferingKey("on-demand", "m5.xlarge", "a"),
    "a family whose name begins alike": OfferingKey("spot", "m5d.large", "a"),
}


@pytest.mark.parametrize("other", UNTOUCHED.values(), ids=UNTOUCHED)
def test_nothing_is_inferred_about(other: OfferingKey) -> None:
    table = short(SPOT)
    assert table.standing(other, NOON) is OfferingStanding.OPEN
    assert table.grant(other, 500, NOON) == 500


def test_the_same_family_in_the_same_zone_is_doubted_for_three_minutes() -> None:
    table = short(SPOT)
    assert table.standing(SAME_FAMILY, NOON) is OfferingStanding.DOUBTED
    assert table.standing(SAME_FAMILY, NOON).available
    assert table.standing(SAME_FAMILY, after(181)) is OfferingStanding.OPEN


def test_what_is_doubted_is_probed_not_rushed() -> None:
    table = short(SPOT)
    assert table.grant(SAME_FAMILY, 500, NOON) == 1
    assert table.standing(SAME_FAMILY, NOON) is OfferingStanding.PROBED
    table.succeeded(SAME_FAMILY, after(1))
    assert table.standing(SAME_FAMILY, after(2)) is OfferingStanding.OPEN
    assert table.grant(SAME_FAMILY, 500, after(2)) == 500


def test_doubt_comes_back_with_the_next_failure_of_the_family() -> None:
    table = short(SPOT)
    table.succeeded(SAME_FAMILY, after(1))
    table.failed(OfferingKey("spot", "m5.2xlarge", "a"), after(2), CODE)
    assert table.standing(SAME_FAMILY, after(3)) is OfferingStanding.DOUBTED


def test_a_vcpu_quota_closes_what_it_counts_and_nothing_else() -> None:
    table = Shortages()
    table.failed(OfferingKey("on-demand", "m5.large", "a"), NOON, "VcpuLimitExceeded", FailureScope.VCPU_QUOTA)
    assert table.standing(OfferingKey("on-demand", "c7g.large", "b"), NOON) is OfferingStanding.CLOSED
    assert table.standing(OfferingKey("on-demand", "p5.48xlarge", "a"), NOON) is OfferingStanding.OPEN
    assert table.standing(OfferingKey("spot", "m5.large", "a"), NOON) is OfferingStanding.OPEN


def test_a_missing_spot_role_closes_spot() -> None:
    table = Shortages()
    table.failed(SPOT, NOON, "x", FailureScope.CAPACITY_TYPE)
    assert table.standing(OfferingKey("spot", "p5.48xlarge", "c"), NOON) is OfferingStanding.CLOSED
    assert table.standing(OfferingKey("on-demand", "m5.large", "a"), NOON) is OfferingStanding.OPEN


def test_a_fleet_quota_holds_launches_back_without_blaming_an_offering() -> None:
    table = Shortages()
    assert table.fleet_open_at(NOON) == NOON
    table.failed(SPOT, NOON, "MaxFleetCountExceeded", FailureScope.FLEET_QUOTA)
    assert table.standing(SPOT, NOON) is OfferingStanding.OPEN
    assert timedelta(seconds=40) < table.fleet_open_at(NOON) - NOON < timedelta(seconds=50)
    table.succeeded(SPOT, after(60))
    assert table.fleet_open_at(after(60)) == after(60)


def test_a_placement_group_has_shortages_of_its_own() -> None:
    inside = OfferingKey("spot", "m5.large", "a", "pg-1", "1")
    table = short(inside)
    assert table.standing(inside, NOON) is OfferingStanding.CLOSED
    assert table.standing(SPOT, NOON) is OfferingStanding.OPEN
    assert table.standing(OfferingKey("spot", "m5.large", "a", "pg-1", "2"), NOON) is OfferingStanding.DOUBTED


def test_a_general_shortage_holds_inside_placement_groups_too() -> None:
    assert short(SPOT).standing(OfferingKey("spot", "m5.large", "a", "pg-1", "1"), NOON) is OfferingStanding.CLOSED


def test_a_spread_group_that_is_full_in_a_zone_closes_the_zone_for_it() -> None:
    table = Shortages()
    table.failed(OfferingKey("spot", "m5.large", "a", "pg-1"), NOON, CODE, FailureScope.ZONE_OF_GROUP)
    assert table.standing(OfferingKey("on-demand", "c5.large", "a", "pg-1"), NOON) is OfferingStanding.CLOSED
    assert table.standing(OfferingKey("on-demand", "c5.large", "b", "pg-1"), NOON) is OfferingStanding.OPEN
    assert table.standing(OfferingKey("on-demand", "c5.large", "a"), NOON) is OfferingStanding.OPEN


def test_subnets() -> None:
    table = Shortages()
    table.subnet_failed("subnet-1", NOON, "InsufficientFreeAddressesInSubnet")
    assert not table.subnet_open("subnet-1", NOON)
    assert table.subnet_open("subnet-2", NOON)
    assert table.subnet_open("subnet-1", after(60))


def test_failures_of_other_scopes_change_nothing_here() -> None:
    table = Shortages()
    for scope in (FailureScope.SUBNET, FailureScope.RESERVATION, FailureScope.NOTHING):
        table.failed(SPOT, NOON, "x", scope)
    assert len(table) == 0


def test_after_half_an_hour_all_is_forgotten() -> None:
    table = short(SPOT)
    assert table.standing(SPOT, after(1801)) is OfferingStanding.OPEN
    assert len(table) == 0


def test_versions_tell_of_every_change_even_of_those_that_time_makes() -> None:
    table = Shortages()
    before = table.version(NOON)
    assert table.version(after(1)) == before
    table.failed(SPOT, after(2), CODE)
    closed = table.version(after(2))
    assert closed != before
    assert table.version(after(3)) == closed
    opened = table.version(after(60))
    assert opened != closed
    assert table.version(after(61)) == opened
    table.grant(SPOT, 1, after(62))
    probed = table.version(after(62))
    assert probed != opened
    assert table.version(after(123)) != probed


def test_the_config_map_says_of_what_is_closed_alone_why_and_until_when() -> None:
    ((key, failures, failed, until, code),) = json.loads(short(SPOT).to_config(NOON)[CONFIG_KEY])["rows"]
    assert (key, failures, failed, code) == (["offer", "spot", "m5.large", "a"], 1, NOON.timestamp(), CODE)
    assert 0 < until - failed < 60


def test_a_full_table_gives_up_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable_offerings, "MAX_ENTRIES", 32)
    table = Shortages()
    offers = [OfferingKey("spot", f"t{number}.large", "a") for number in range(40)]
    for second, offer in enumerate(offers):
        table.failed(offer, after(second * 0.1), CODE)
    assert len(table) <= 32
    assert table.standing(offers[0], after(4)) is OfferingStanding.OPEN
    assert table.standing(offers[-1], after(4)) is OfferingStanding.CLOSED


def test_it_comes_back_from_its_config_map() -> None:
    table = short(SPOT, OfferingKey("spot", "c5.large", "b", "pg-1", "2"))
    table.failed(OfferingKey("on-demand", "m5.large", "a"), NOON, "VcpuLimitExceeded", FailureScope.VCPU_QUOTA)
    again = Shortages()
    assert again.restore(table.to_config(after(1)), after(2)) == 0
    assert repr(again) == repr(table)
    assert again.standing(SPOT, after(2)) is OfferingStanding.CLOSED
    assert again.standing(SAME_FAMILY, after(2)) is OfferingStanding.DOUBTED
    assert again.to_config(after(2)) == table.to_config(after(2))


def kept(*rows: object, v: object = 1) -> dict[str, str]:
    return {CONFIG_KEY: json.dumps({"v": v, "rows": rows})}


EPOCH = int(NOON.timestamp())
GOOD = [["offer", "spot", "m5.large", "a"], 1, EPOCH, EPOCH + 30, CODE]
BAD = {
    "nothing kept": ({}, 0, 0),
    "no JSON": ({CONFIG_KEY: "{"}, 1, 0),
    "another kind of document": ({CONFIG_KEY: "[]"}, 1, 0),
    "another version": (kept(GOOD, v=2), 1, 0),
    "one row of nonsense beside a good one": (kept(GOOD, ["x"], 7), 2, 1),
    "no failures": (kept([GOOD[0], 0, EPOCH, EPOCH, ""]), 1, 0),
    "no key": (kept([[], 1, EPOCH, EPOCH, ""]), 1, 0),
    "a time beyond all calendars": (kept([GOOD[0], 1, 10**18, EPOCH, ""]), 1, 0),
    "long ago": (kept([GOOD[0], 1, EPOCH - 1801, EPOCH + 30, ""]), 0, 0),
}


@pytest.mark.parametrize(("data", "bad", "entries"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_costs_itself_only(data: dict[str, str], bad: int, entries: int) -> None:
    table = Shortages()
    assert table.restore(data, NOON) == bad
    assert len(table) == entries


def test_a_clock_that_was_ahead_closes_nothing_for_longer_than_a_failure_now_would() -> None:
    table = Shortages()
    table.restore(kept([GOOD[0], 3, EPOCH + 86400, EPOCH + 90000, CODE]), NOON)
    assert table.standing(SPOT, NOON) is OfferingStanding.CLOSED
    assert table.standing(SPOT, after(265)).available
    assert table.standing(SPOT, after(1801)) is OfferingStanding.OPEN


def test_restoring_does_not_open_what_is_known_to_be_closed() -> None:
    old = short(SPOT).to_config(NOON)
    table = short(SPOT, at=after(40))
    table.restore(old, after(41))
    assert table.standing(SPOT, after(60)) is OfferingStanding.CLOSED


def test_at_most_900_kib_are_kept_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable_offerings, "MAX_ENTRIES", 20_000)
    table = Shortages()
    for number in range(12_000):
        table.failed(
            OfferingKey("on-demand", f"family-{number:05}.metal-48xl", "ap-southeast-1a"), after(number / 100), CODE * 2
        )
    data = table.to_config(after(120))
    assert len(data[CONFIG_KEY].encode()) <= 900 * 1024
    again = Shortages()
    again.restore(data, after(120))
    assert 5_000 < len(again) < 12_000
    newest = OfferingKey("on-demand", "family-11999.metal-48xl", "ap-southeast-1a")
    assert again.standing(newest, after(120)) is OfferingStanding.CLOSED


@given(
    st.lists(
        st.tuples(st.sampled_from(["fail", "win", "grant", "release"]), st.integers(0, 3), st.integers(0, 90)),
        max_size=60,
    )
)
def test_never_more_than_is_admitted_and_never_closed_for_longer_than_the_longest(
    steps: list[tuple[str, int, int]],
) -> None:
    offers = [OfferingKey("spot", f"m{number % 2}.s{number}", "a") for number in range(4)]
    table, now = Shortages(), NOON
    for action, which, seconds in steps:
        now += timedelta(seconds=seconds)
        offer = offers[which]
        if action == "fail":
            table.failed(offer, now, CODE)
            assert not table.standing(offer, now).available
        elif action == "win":
            table.succeeded(offer, now)
            assert table.standing(offer, now) is not OfferingStanding.CLOSED
        elif action == "grant":
            standing = table.standing(offer, now)
            granted = table.grant(offer, 1000, now)
            assert (granted > 0) == standing.available
            assert granted == 1000 or granted <= 64
        else:
            table.release(offer, 1, now)
    end = now + timedelta(minutes=4.5)
    assert all(table.standing(offer, end).available for offer in offers)


def test_an_instance_for_everybody_soon_after_capacity_is_back() -> None:
    """One probe a wait finds the capacity again within the longest wait, and 300 instances follow in five calls."""
    table, now, calls = short(SPOT), NOON, 0
    back = after(30 * 60)
    while now < back:  # half an hour of shortage
        if table.grant(SPOT, 300, now):
            calls += 1
            table.failed(SPOT, now, CODE)
        now += timedelta(seconds=5)
    assert calls <= 12  # 45 s, 90 s, 180 s, then every four minutes
    wanted = 300
    while wanted:
        granted = table.grant(SPOT, wanted, now)
        if granted:
            table.succeeded(SPOT, now, granted)
            wanted -= granted
        now += timedelta(seconds=5)
    assert now - back < timedelta(minutes=5)


def test_when_the_first_of_several_opens() -> None:
    other = OfferingKey("spot", "c5.large", "b")
    table = short(SPOT)
    table.failed(other, after(30), CODE)
    assert table.opens_at([], NOON) is None
    assert table.opens_at([SPOT, OfferingKey("spot", "r5.large", "c")], NOON) == NOON + unavailable_offerings.delay(
        ("offer", "spot", "m5.large", "a"), 1
    )
    turn = table.opens_at([other, SPOT], after(30))
    assert turn is not None
    assert table.standing(SPOT, turn).available
    assert not table.standing(SPOT, turn - timedelta(seconds=0.1)).available
    assert table.opens_at([SPOT], turn) is None


def test_what_is_probed_opens_when_the_probe_is_forgotten() -> None:
    table = short(SPOT)
    now = NOON + unavailable_offerings.delay(("offer", "spot", "m5.large", "a"), 1)
    assert table.grant(SPOT, 1, now) == 1
    assert table.opens_at([SPOT], now) == now + unavailable_offerings.PROBE_LEASE
