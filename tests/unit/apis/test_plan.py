"""The plan annotation goes there and back, says the same for equal plans, and refuses what it cannot read."""

from datetime import UTC, datetime

import msgspec
import pytest

from provisioner.apis.plan import (
    HOLD_SECONDS,
    MAX_BYTES,
    Plan,
    PlanEntry,
    PlanError,
    decode_plan,
    encode_plan,
)

WEB = PlanEntry(owner="o1", klass="00ff", count=2, uids=("u2", "u1"))
LONE = PlanEntry(klass="aa11", count=1, uids=("u3",))


def test_the_text_is_what_the_extender_reads() -> None:
    assert (
        encode_plan(Plan(pods=(WEB,))) == '{"v":1,"pods":[{"class":"00ff","count":2,"owner":"o1","uids":["u1","u2"]}]}'
    )


def test_there_and_back() -> None:
    plan = decode_plan(encode_plan(Plan(pods=(WEB, LONE))))
    assert encode_plan(plan) == encode_plan(Plan(pods=(WEB, LONE)))
    assert plan.total == 3


def test_the_order_of_entries_does_not_matter() -> None:
    assert encode_plan(Plan(pods=(WEB, LONE))) == encode_plan(Plan(pods=(LONE, WEB)))


UNREADABLE = {
    "no JSON": ("plan", "not a plan"),
    "a list": ("[]", "not a plan"),
    "a count that is text": ('{"v":1,"pods":[{"class":"a","count":"2"}]}', "pods"),
    "another version": ('{"v":2,"pods":[]}', "the plan has version 2"),
    "a count of none": ('{"v":1,"pods":[{"class":"a","count":0}]}', r"pods\[0\]: count 0"),
    "more pods than counted": ('{"v":1,"pods":[{"class":"a","count":1,"uids":["b","c"]}]}', "with 2 uids"),
    "no class": ('{"v":1,"pods":[{"count":1}]}', "class"),
    "half a character": ("\ud800", "not a plan"),
    "too long": (" " * (MAX_BYTES + 1), "the maximum is"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_text_that_is_no_plan(name: str) -> None:
    text, words = UNREADABLE[name]
    with pytest.raises(PlanError, match=words):
        decode_plan(text)


class _Former(msgspec.Struct):
    """A plan as versions read it that knew neither `holdSeconds` nor `plannedAt`."""

    v: int
    pods: tuple[PlanEntry, ...]


AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("at", [msgspec.UNSET, AT], ids=["planned once", "planned again"])
@pytest.mark.parametrize("hold", [HOLD_SECONDS, 300.0])
def test_a_former_version_reads_a_plan_as_if_its_new_fields_were_not_there(
    hold: float, at: datetime | msgspec.UnsetType
) -> None:
    text = encode_plan(Plan.of((LONE,), hold, at))
    assert msgspec.json.decode(text, type=_Former) == _Former(v=1, pods=(LONE,))
    assert (decode_plan(text).hold_seconds, decode_plan(text).at) == (hold, at)
    old = decode_plan(msgspec.json.encode(_Former(v=1, pods=(LONE,))).decode())
    assert (old.hold_seconds, old.at) == (HOLD_SECONDS, msgspec.UNSET), "and this one a plan of a former version"


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("2026-11-21T12:00:00", "without a time zone"),
        ("9999-12-31T23:59:59.999999Z", "too late: no plan could be made after it"),
        ("9999-12-31T23:59:59-14:00", "too late: no plan could be made after it"),
    ],
)
def test_a_time_that_no_plan_can_be_of(at: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_plan(f'{{"v":1,"pods":[],"plannedAt":"{at}"}}')
