"""Which pods of an owner run on demand: counted over watches, replicas, refusals and retries."""

import random
from datetime import UTC, datetime
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.meta import ObjectMeta, OwnerReference
from provisioner.apis.shares import Seat, Share, ShareOwner, Side, parse
from provisioner.kube.resources import Bare
from tests.support.clock import FakeClock
from webhook.shares import ADMITTED_SECONDS, LONGEST_UID, MAX_ADMITTED, SharedPod, ShareLedger, decode_shared

WEB: Final = ShareOwner("shop", "web")
THIRD: Final = Share(percent=30)

SHARES = {
    "30%": Share(percent=30),
    "30pct": Share(percent=30),
    "0%": Share(percent=0),
    "100%": Share(percent=100),
    "3": Share(count=3),
    "0": Share(count=0),
}


@pytest.mark.parametrize(("text", "share"), SHARES.items(), ids=SHARES)
def test_shares(text: str, share: Share) -> None:
    assert parse(text) == share


@pytest.mark.parametrize("text", ["", "101%", "-1", "1.5", "30 %", "%", "9999999999", "٣"])
def test_no_shares(text: str) -> None:
    with pytest.raises(ValueError, match="neither a percentage"):
        parse(text)


def pod(name: str, seat: Seat, owner: ShareOwner = WEB, *, ending: bool = False) -> SharedPod:
    """A stamped pod as the watch shows it; its name is the review."""
    reference = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid=owner.uid, controller=True)
    metadata = ObjectMeta(
        name=name,
        namespace=owner.namespace,
        labels={"dovetail.dev/on-demand-share": seat.side.value},
        annotations={"dovetail.dev/on-demand-ticket": owner.ticket(seat, name)},
        owner_references=(reference,),
        deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if ending else None,
    )
    return decode_shared(msgspec.json.encode(Bare(metadata=metadata)))


def sides(ledger: ShareLedger, count: int, share: Share = THIRD, prefix: str = "a") -> list[Side]:
    """What the next pods are for."""
    return [ledger.seat(WEB, share, f"{prefix}{at}").side for at in range(count)]


def test_the_share_holds_at_every_number_of_pods() -> None:
    found = sides(ShareLedger(FakeClock()), 100)
    for pods in range(1, 101):
        assert found[:pods].count(Side.ON_DEMAND) == -(-pods * 30 // 100)


def test_a_number_of_pods_comes_first() -> None:
    assert sides(ShareLedger(FakeClock()), 5, Share(count=2)) == [Side.ON_DEMAND] * 2 + [Side.SPOT] * 3


def test_the_pod_of_an_admission_is_not_counted_again() -> None:
    ledger = ShareLedger(FakeClock())
    for at in range(10):
        ledger.changed(None, pod(f"a{at}", ledger.seat(WEB, THIRD, f"a{at}")))
    assert sides(ledger, 10, prefix="b").count(Side.ON_DEMAND) == 3


def test_a_refused_pod_is_forgotten() -> None:
    clock = FakeClock()
    ledger = ShareLedger(clock)
    assert sides(ledger, 1, Share(count=1)) == [Side.ON_DEMAND]
    assert sides(ledger, 1, Share(count=1), "b") == [Side.SPOT]
    clock.advance(ADMITTED_SECONDS)
    assert sides(ledger, 1, Share(count=1), "c") == [Side.ON_DEMAND]


def test_what_will_not_be_made_is_not_remembered() -> None:
    ledger = ShareLedger(FakeClock())
    assert ledger.seat(WEB, Share(count=1), "a", keep=False).side is Side.ON_DEMAND
    assert ledger.seat(WEB, Share(count=1), "b").side is Side.ON_DEMAND


def test_one_uid_asked_twice_counts_once() -> None:
    clock = FakeClock()
    ledger = ShareLedger(clock)
    for at in range(100):
        ledger.seat(ShareOwner("shop", str(at)), THIRD, "same")
    assert len(ledger) == 1
    clock.advance(ADMITTED_SECONDS)
    ledger.seat(WEB, THIRD, "b", keep=False)
    assert len(ledger) == 0


def test_an_owner_with_a_uid_of_any_length_is_not_remembered() -> None:
    ledger = ShareLedger(FakeClock())
    long = "u" * (LONGEST_UID + 1)
    seat = ledger.seat(ShareOwner("shop", long), THIRD, "a")
    ledger.seat(WEB, THIRD, long)
    ledger.changed(None, pod("a", seat, ShareOwner("shop", long)))
    assert len(ledger) == 0


def test_a_review_is_kept_with_a_pod_up_to_the_length_that_is_remembered() -> None:
    seat = ShareLedger(FakeClock()).seat(WEB, THIRD, "a")
    assert [pod("r" * length, seat).review for length in (LONGEST_UID, LONGEST_UID + 1)] == ["r" * LONGEST_UID, ""]


def test_the_successor_of_a_pod_that_ends_takes_its_place() -> None:
    ledger = ShareLedger(FakeClock())
    seats = [ledger.seat(WEB, THIRD, f"a{at}") for at in range(10)]
    made = [pod(f"a{at}", seat) for at, seat in enumerate(seats)]
    for one in made:
        ledger.changed(None, one)
    for at, one in enumerate(made):
        ending = pod(one.name, seats[at], ending=True)
        ledger.changed(one, ending)
        successor = ledger.seat(WEB, THIRD, f"b{at}")
        assert successor == seats[at]
        ledger.changed(None, pod(f"b{at}", successor))
        ledger.changed(ending, None)


def test_owners_are_counted_apart_and_a_name_in_another_namespace_is_another() -> None:
    ledger = ShareLedger(FakeClock())
    for owner in (WEB, ShareOwner("shop", "other"), ShareOwner("else", "web")):
        assert ledger.seat(owner, Share(count=1), f"{owner}").side is Side.ON_DEMAND


def test_the_last_pods_to_come_are_the_first_to_go_and_the_share_holds_on_the_way_down() -> None:
    ledger = ShareLedger(FakeClock())
    seats = sorted((ledger.seat(WEB, THIRD, f"a{at}") for at in range(100)), key=lambda one: one.rank)
    for pods in range(1, 101):
        left = [seat.side for seat in seats[:pods]]
        assert abs(left.count(Side.ON_DEMAND) - pods * 0.3) <= 2


def test_nothing_is_kept_of_owners_without_pods() -> None:
    clock = FakeClock()
    ledger = ShareLedger(clock)
    one = pod("a", ledger.seat(WEB, THIRD, "a"))
    ledger.changed(None, one)
    ledger.changed(one, None)
    assert len(ledger) == 0
    for at in range(MAX_ADMITTED + 100):
        ledger.seat(ShareOwner("shop", str(at)), THIRD, str(at))
    assert len(ledger) == MAX_ADMITTED
    clock.advance(ADMITTED_SECONDS)
    ledger.seat(WEB, THIRD, "b", keep=False)
    assert len(ledger) == 0


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 100))
def test_replicas_that_decide_at_once_are_wrong_by_a_few_pods_and_make_up_for_it(
    seed: int, replicas: int, percent: int
) -> None:
    draw = random.Random(seed)
    share = Share(percent=percent)
    ledgers = [ShareLedger(FakeClock()) for _ in range(replicas)]
    late: list[list[SharedPod]] = [[] for _ in ledgers]  # what each watch has not shown yet
    found: list[Side] = []
    for at in range(200):
        ledger = draw.choice(ledgers)
        seat = ledger.seat(WEB, share, f"a{at}")
        found.append(seat.side)
        for queue in late:
            queue.append(pod(f"a{at}", seat))
        for one, queue in zip(ledgers, late, strict=True):
            while queue and draw.random() < 0.3:
                one.changed(None, queue.pop(0))
    assert abs(found.count(Side.ON_DEMAND) - share.of(200)) <= max(2, 200 * 0.05)
