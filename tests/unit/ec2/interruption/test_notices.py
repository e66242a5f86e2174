"""What each notice means for an instance."""

from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.apis.interruption import Interruption
from provisioner.ec2.interruption import notices
from provisioner.ec2.interruption.messages import Notice, NoticeKind
from provisioner.ec2.settings import AwsSettings
from tests.support.clock import NOON

SETTINGS = AwsSettings(cluster_name="c", region="us-east-1")
LATER = NOON + timedelta(seconds=10)
MEANINGS: dict[str, tuple[Notice, Interruption | None]] = {
    "two minutes of notice count from when EC2 gave it": (
        Notice(NoticeKind.SPOT_INTERRUPTED, at=NOON),
        Interruption(
            "spot_interrupted", replaced=True, evicts=NOON + timedelta(seconds=45), ends=NOON + timedelta(seconds=120)
        ),
    ),
    "or from now": (
        Notice(NoticeKind.SPOT_INTERRUPTED),
        Interruption(
            "spot_interrupted", replaced=True, evicts=LATER + timedelta(seconds=45), ends=LATER + timedelta(seconds=120)
        ),
    ),
    "a reservation that is taken back leaves as much": (
        Notice(NoticeKind.RESERVATION_INTERRUPTED, at=NOON),
        Interruption(
            "capacity_reservation_interrupted",
            replaced=True,
            evicts=NOON + timedelta(seconds=45),
            ends=NOON + timedelta(seconds=120),
        ),
    ),
    "a recommendation is ignored": (Notice(NoticeKind.REBALANCE, at=NOON), None),
    "an instance that stops is drained at once": (
        Notice(NoticeKind.STOPPED, at=NOON),
        Interruption("instance_stopped"),
    ),
    "an instance that ends too": (Notice(NoticeKind.TERMINATED, at=NOON), Interruption("instance_terminated")),
    "a change in two days begins in one": (
        Notice(NoticeKind.SCHEDULED_CHANGE, at=NOON, starts=LATER + timedelta(hours=48)),
        Interruption(
            "scheduled_change",
            begins=LATER + timedelta(hours=24),
            budgeted=True,
            replaced=True,
            evicts=LATER + timedelta(hours=46),
            ends=LATER + timedelta(hours=46, minutes=2),
        ),
    ),
    "a change in an hour is forced, with a moment for pods to end": (
        Notice(NoticeKind.SCHEDULED_CHANGE, at=NOON, starts=LATER + timedelta(hours=1)),
        Interruption(
            "scheduled_change",
            begins=LATER - timedelta(hours=23),
            budgeted=True,
            replaced=True,
            evicts=LATER - timedelta(hours=1),
            ends=LATER + timedelta(minutes=2),
        ),
    ),
    "a change of unknown time may begin now": (
        Notice(NoticeKind.SCHEDULED_CHANGE, at=NOON),
        Interruption(
            "scheduled_change",
            begins=LATER,
            budgeted=True,
            replaced=True,
            evicts=LATER + timedelta(hours=22),
            ends=LATER + timedelta(hours=22, minutes=2),
        ),
    ),
    "nothing means nothing": (Notice(NoticeKind.NO_OP), None),
}


@pytest.mark.parametrize(("notice", "want"), MEANINGS.values(), ids=MEANINGS)
def test_what_a_notice_means(notice: Notice, want: Interruption | None) -> None:
    assert notices.interruption(notice, SETTINGS, LATER) == want


def test_a_recommendation_does_what_the_setting_says() -> None:
    told = Notice(NoticeKind.REBALANCE, at=NOON)
    assert notices.interruption(told, replace(SETTINGS, rebalance="replace"), NOON) == Interruption(
        "rebalance_recommendation", replaced=True
    )
    assert notices.interruption(told, replace(SETTINGS, rebalance="drain"), NOON) == Interruption(
        "rebalance_recommendation"
    )


def test_the_times_are_settings() -> None:
    settings = replace(
        SETTINGS,
        spot_lead=timedelta(seconds=100),
        scheduled_drain=timedelta(hours=4),
        scheduled_force=timedelta(hours=3),
    )
    spot = notices.interruption(Notice(NoticeKind.SPOT_INTERRUPTED, at=NOON), settings, NOON)
    change = notices.scheduled("x", NOON + timedelta(hours=8), settings, NOON)
    assert spot is not None
    assert spot.evicts == NOON + timedelta(seconds=20)
    assert (change.begins, change.evicts) == (NOON + timedelta(hours=4), NOON + timedelta(hours=5))


def test_every_kind_of_message_has_an_event() -> None:
    assert set(notices.EVENTS) == set(NoticeKind) - {NoticeKind.NO_OP}


def test_a_capacity_block_is_left_before_ec2_takes_it_back() -> None:
    mark = notices.block_ends(NOON + timedelta(minutes=40))
    assert (mark.evicts, mark.ends, mark.replaced) == (
        NOON + timedelta(minutes=5),
        NOON + timedelta(minutes=10),
        True,
    )
