"""What a history teaches of boots, interruptions and shortages."""

from typing import Any

import pytest

from provisioner.history.entries import (
    ClaimGone,
    ClaimSeen,
    EventTold,
    HistoryEntry,
    InstanceInterrupted,
    OfferingTurned,
)
from provisioner.history.segments import Segment
from provisioner.simulator.market import MOST_PER_HOUR, ByOffering
from provisioner.simulator.workloads.errors import WorkloadError
from provisioner.simulator.workloads.learned import MOST_BOOTS, LearnedMarket, MarketLesson
from provisioner.simulator.workloads.records import day_of_segments
from tests.unit.simulator.workloads.test_records import BEGAN, segment

AT = int(BEGAN)
SPOT = ("m5.large", "a", "spot")


def claim(name: str, launched: int = 0, initialized: int = 0, kind: str = "m5.large", sold: str = "spot") -> ClaimSeen:
    """A NodeClaim; times are seconds from the beginning."""
    ready = AT + initialized if initialized else 0
    return ClaimSeen(name, "general", kind, "a", sold, name, AT + launched, AT + launched, ready, ready)


def turned(*offering: str, available: bool = False) -> OfferingTurned:
    kind, zone, sold = offering or SPOT
    return OfferingTurned(kind, zone, sold, available)


def learned(*segments: Segment) -> LearnedMarket:
    found = MarketLesson(segments[0].head.began, segments[-1].head.ended)
    day_of_segments(segments, found.take)
    return found.learned()


def lesson(*entries: tuple[float, HistoryEntry], **more: Any) -> LearnedMarket:
    return learned(segment(*entries, **more))


def test_boots_are_from_launched_to_initialized_each_claim_once() -> None:
    found = lesson(
        (0.0, claim("a", 0)), (40.0, claim("a", 0, 40)), (50.0, claim("a", 0, 40)), (60.0, claim("b", 5, 35)),
        (70.0, claim("c", 50)), (80.0, claim("d", -7200, 10)),
    )  # fmt: skip
    assert found.boot_seconds == (30.0, 40.0), "one does not run yet, and one took hours"
    assert found.boot_note == "Boot times are those of the record: 2, from 30 to 40 s."


def test_a_record_of_too_many_claims_or_shortages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [(0.0, claim(f"c-{number}")) for number in range(3)]
    spells = [(float(at), turned(available=at % 2 == 1)) for at in range(6)]
    for entries in (claims, spells):
        lesson(*entries)
    monkeypatch.setattr("provisioner.simulator.workloads.learned._MOST_SEEN", 2)
    for entries in (claims, spells):
        with pytest.raises(WorkloadError, match="more than 2 NodeClaims or shortages"):
            lesson(*entries)


def test_of_many_boots_quantiles_are_kept() -> None:
    found = lesson(*((700.0, claim(f"c-{number}", 0, number)) for number in range(1, 1001))).boot_seconds
    assert len(found) == MOST_BOOTS
    assert sum(found) / len(found) == pytest.approx(500.5, rel=0.01)
    assert (found[0], found[-1]) == (3.0, 998.0)


def test_interruptions_are_counted_by_hours_of_spot() -> None:
    """Two instances for an hour, of which one was launched before the record, and one for half an hour."""
    found = lesson(
        (0.0, claim("a", -3600, -3500)), (0.0, claim("b", 0, 40)), (0.0, claim("c", 0, 40)), (0.0, claim("d", 0, 40, sold="on-demand")),
        (1700.0, InstanceInterrupted("c", *SPOT, "spot_interrupted")), (1700.0, EventTold("NodeClaim", "c", "SpotInterrupted", "")),
        (1750.0, InstanceInterrupted("a", *SPOT, "rebalance_recommendation")), (1800.0, ClaimGone("c")), (1900.0, ClaimGone("c")),
    )  # fmt: skip
    assert found.interruptions_per_hour == ByOffering(0.4, {})
    assert found.interruption_note == "Spot is interrupted as often as in the record: 1 times in 2 hours of instances."


def test_what_karpenter_says_of_a_claim_is_an_interruption_too() -> None:
    told = [(9.0, EventTold(kind, "a", "SpotInterrupted", "")) for kind in ("Node", "NodeClaim")]
    found = lesson((0.0, claim("a", 0, 40)), *told)
    assert found.interruptions_per_hour == ByOffering(1.0, {})


def test_a_type_with_many_interruptions_has_its_own_rate() -> None:
    calm = [(0.0, claim(f"calm-{number}", 0, 40)) for number in range(10)]
    busy = [(0.0, claim(f"busy-{number}", 0, 40, "c5.large")) for number in range(10)]
    notices = [
        (9.0, InstanceInterrupted(f"busy-{number}", "c5.large", "a", "spot", "spot_interrupted")) for number in range(5)
    ]
    found = lesson(*calm, *busy, *notices)
    assert found.interruptions_per_hour == ByOffering(0.25, {"c5.large": 0.5})
    fewer = lesson(*calm, *busy, *notices[1:])
    assert fewer.interruptions_per_hour == ByOffering(0.2, {})


def test_without_spot_or_boots_nothing_is_known() -> None:
    found = lesson((0.0, claim("d", 0, sold="on-demand")))
    assert found == LearnedMarket((), None, ())


def times(found: LearnedMarket) -> list[tuple[float, float]]:
    assert all((*one.instance_types, *one.zones, *one.capacity_types) == SPOT for one in found.shortages)
    return [(one.at, one.until) for one in found.shortages]


def test_shortages_that_follow_each_other_soon_are_one() -> None:
    found = lesson(
        (100.0, turned()), (145.0, turned(available=True)), (150.0, turned()), (400.0, turned(available=True)),
        (1001.0, turned()), (1100.0, turned(available=True)), (3000.0, turned(available=True)), (3500.0, turned()),
    )  # fmt: skip
    assert times(found) == [(100.0, 400.0), (1001.0, 1100.0), (3500.0, 3600.0)]
    assert found.shortage_note == "Shortages are those of the record: 3."


def test_a_shortage_goes_on_over_segments_and_from_before_the_record() -> None:
    first = segment((200.0, turned(available=True)), (3500.0, turned()), opening=[turned()])
    second = segment((60.0, turned(available=True)), opening=[turned()], began=BEGAN + 3600.0, follows="s", id="t")
    assert times(learned(first, second)) == [(0.0, 200.0), (3500.0, 3660.0)]


def test_an_offering_that_was_taken_back_is_not_short() -> None:
    noticed = InstanceInterrupted("a", *SPOT, "spot_interrupted")
    start = (0.0, claim("a", 0, 40)), (100.0, noticed)
    assert times(lesson(*start, (101.0, turned()), (281.0, turned(available=True)))) == []
    assert times(lesson(*start, (110.0, turned()), (281.0, turned(available=True)))) == [(110.0, 281.0)]


def test_a_record_says_no_more_interruptions_than_an_option_may() -> None:
    notices = [(0.0, claim(f"c-{number}", 0, 40)) for number in range(5)]
    gone = [(1.0, InstanceInterrupted(f"c-{number}", *SPOT, "spot_interrupted")) for number in range(5)]
    found = lesson(*notices, *gone, *((1.0, ClaimGone(f"c-{number}")) for number in range(5)))
    assert found.interruptions_per_hour == ByOffering(MOST_PER_HOUR, {"m5.large": MOST_PER_HOUR})


def test_of_many_notices_the_one_before_counts() -> None:
    """Offerings that closed right after any notice are not short; the search is not over all of them."""
    told: list[tuple[float, HistoryEntry]] = [(0.0, claim(f"c-{number}", 0, 40)) for number in range(3)]
    told += [(1000.0 + 1000 * each, InstanceInterrupted(f"c-{each}", *SPOT, "spot_interrupted")) for each in range(3)]
    for at in (999.0, 1001.0, 2005.5, 3004.0):
        told += [(at, turned()), (at + 0.5, turned(available=True))]
    found = lesson(*sorted(told, key=lambda one: one[0]))
    assert [one.at for one in found.shortages] == [999.0, 2005.5]
