"""Messages of the interruption queue, as EventBridge writes them, and everything else that may stand in a queue."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.ec2.interruption.messages import MessageError, Notice, NoticeKind, is_over, iso_time, parse

INSTANCE, OTHER = "i-0b662ef9931388ba0", "i-0123456789abcdef0"
AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def message(source: str, detail_type: str, **detail: Any) -> str:
    """An event, with what every event has."""
    return json.dumps(
        {
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": detail_type,
            "source": source,
            "account": "123456789012",
            "time": "2026-11-21T12:00:00Z",
            "region": "us-east-2",
            "resources": [f"arn:aws:ec2:us-east-2a:instance/{INSTANCE}"],
            "detail": detail,
        }
    )


def ec2(detail_type: str, **detail: Any) -> str:
    return message("aws.ec2", detail_type, **{"instance-id": INSTANCE, **detail})


def health(**detail: Any) -> str:
    given_detail = {
        "eventArn": "arn:aws:health:us-east-1::event/EC2/x",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "startTime": "Mon, 23 Nov 2026 12:00:00 GMT",
        "eventDescription": [{"language": "en_US", "latestDescription": "EC2 has detected degradation"}],
        "affectedEntities": [{"entityValue": OTHER}, {"entityValue": INSTANCE, "status": "PENDING"}],
        **detail,
    }
    return message("aws.health", "AWS Health Event", **given_detail)


STARTS = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
ACTED_UPON: dict[str, tuple[str, Notice]] = {
    "a spot instance that is taken back": (
        ec2("EC2 Spot Instance Interruption Warning", **{"instance-action": "terminate"}),
        Notice(NoticeKind.SPOT_INTERRUPTED, (INSTANCE,), AT),
    ),
    "one that might be soon": (
        ec2("EC2 Instance Rebalance Recommendation"),
        Notice(NoticeKind.REBALANCE, (INSTANCE,), AT),
    ),
    "an instance of a reservation that its owner takes back": (
        ec2("EC2 Capacity Reservation Instance Interruption Warning", **{"instance-action": "terminate"}),
        Notice(NoticeKind.RESERVATION_INTERRUPTED, (INSTANCE,), AT),
    ),
    "an instance that stops": (
        ec2("EC2 Instance State-change Notification", state="stopping"),
        Notice(NoticeKind.STOPPED, (INSTANCE,), AT),
    ),
    "an instance that has stopped": (
        ec2("EC2 Instance State-change Notification", state="stopped"),
        Notice(NoticeKind.STOPPED, (INSTANCE,), AT),
    ),
    "an instance that ends": (
        ec2("EC2 Instance State-change Notification", state="shutting-down"),
        Notice(NoticeKind.TERMINATED, (INSTANCE,), AT),
    ),
    "an instance that has ended": (
        ec2("EC2 Instance State-change Notification", state="terminated"),
        Notice(NoticeKind.TERMINATED, (INSTANCE,), AT),
    ),
    "instances that AWS will work on": (health(), Notice(NoticeKind.SCHEDULED_CHANGE, (OTHER, INSTANCE), AT, STARTS)),
    "without saying when": (
        health(startTime="soon"),
        Notice(NoticeKind.SCHEDULED_CHANGE, (OTHER, INSTANCE), AT),
    ),
    "with the time in the other form": (
        health(startTime="2026-11-23T12:00:00Z"),
        Notice(NoticeKind.SCHEDULED_CHANGE, (OTHER, INSTANCE), AT, STARTS),
    ),
    "of which one is settled": (
        health(affectedEntities=[{"entityValue": OTHER, "status": "RESOLVED"}, {"entityValue": INSTANCE}]),
        Notice(NoticeKind.SCHEDULED_CHANGE, (INSTANCE,), AT, STARTS),
    ),
    "told by their ARN, twice": (
        health(affectedEntities=[{"entityValue": f"arn:aws:ec2:us-east-1:1:instance/{INSTANCE}"}] * 2),
        Notice(NoticeKind.SCHEDULED_CHANGE, (INSTANCE,), AT, STARTS),
    ),
}


@pytest.mark.parametrize(("body", "want"), ACTED_UPON.values(), ids=ACTED_UPON)
def test_messages_that_are_acted_upon(body: str, want: Notice) -> None:
    assert parse(body) == want


NOTHING: dict[str, tuple[str, str]] = {
    "nothing": ("", "empty"),
    "blanks": ("  \n", "empty"),
    "an instance that starts": (ec2("EC2 Instance State-change Notification", state="running"), "running"),
    "an instance that is pending": (ec2("EC2 Instance State-change Notification", state="pending"), "pending"),
    "a state without a name": (ec2("EC2 Instance State-change Notification"), "the instance state is missing"),
    "an event of EC2 that is new to us": (ec2("EC2 Fleet State Change"), "EC2 Fleet State Change"),
    "an event of another service": (message("aws.s3", "Object Created"), "aws.s3"),
    "another version of the envelope": (
        ec2("EC2 Instance Rebalance Recommendation").replace('"0"', '"1"'),
        "not handled",
    ),
    "somebody's JSON": ('{"hello": "world"}', "nobody"),
    "a change that is over": (health(statusCode="closed"), "has ended"),
    "a change that was cancelled": (
        health(eventDescription=[{"language": "en_US", "latestDescription": "[Canceled] EC2 has"}]),
        "has ended",
    ),
    "a change that was completed": (
        health(eventDescription=[{"language": "en_US", "latestDescription": " [Completed] EC2 has"}]),
        "has ended",
    ),
    "news of health": (health(eventTypeCategory="accountNotification"), "accountNotification"),
    "a change of another service": (health(service="RDS"), "RDS"),
    "a change of no instance": (
        health(affectedEntities=[{"entityValue": "vol-0123456789abcdef0"}]),
        "contains no instance ID",
    ),
    "a change that is settled": (
        health(affectedEntities=[{"entityValue": INSTANCE, "status": "UNIMPAIRED"}]),
        "contains no instance ID",
    ),
}


@pytest.mark.parametrize(("body", "why"), NOTHING.values(), ids=NOTHING)
def test_messages_that_say_nothing_to_us(body: str, why: str) -> None:
    notice = parse(body)
    assert notice.kind is NoticeKind.NO_OP
    assert why in notice.why


MALFORMED: dict[str, tuple[str, str]] = {
    "no JSON": ("interrupted!", "not an EventBridge event"),
    "half of it": (ec2("EC2 Instance Rebalance Recommendation")[:-20], "not an EventBridge event"),
    "a list": ("[]", "not an EventBridge event"),
    "a version that is a number": ('{"version": 0}', "not an EventBridge event"),
    "JSON that is nested too deeply": ('{"detail":' * 5000 + "1" + "}" * 5000, "not an EventBridge event"),
    "a detail that is a word": (
        ec2("EC2 Spot Instance Interruption Warning").replace('{"instance-id"', '"x", "y": {"instance-id"'),
        "cannot be read",
    ),
    "no instance": (message("aws.ec2", "EC2 Spot Instance Interruption Warning"), "cannot be read"),
    "an instance that is none": (
        ec2("EC2 Spot Instance Interruption Warning", **{"instance-id": "m5"}),
        "not an instance ID",
    ),
    "entities that are a word": (health(affectedEntities="all"), "cannot be read"),
}


@pytest.mark.parametrize(("body", "what"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_refused_with_the_reason(body: str, what: str) -> None:
    with pytest.raises(MessageError, match=what):
        parse(body)


@given(
    body=st.one_of(
        st.text(), st.recursive(st.none() | st.text(), lambda inner: st.dictionaries(st.text(), inner)).map(json.dumps)
    )
)
def test_no_message_breaks_the_reader(body: str) -> None:
    try:
        assert parse(body).kind is NoticeKind.NO_OP
    except MessageError:
        pass


def test_a_message_without_a_time_is_read_all_the_same() -> None:
    body = json.dumps({**json.loads(ec2("EC2 Spot Instance Interruption Warning")), "time": "yesterday"})
    assert parse(body) == Notice(NoticeKind.SPOT_INTERRUPTED, (INSTANCE,), None)


@pytest.mark.parametrize(
    "time",
    [
        "1 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 1 Jan 2024 00:00:00 +99999999999999",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:00",
    ],
)
def test_a_time_that_nobody_can_reckon_with_is_none(time: str) -> None:
    """The message would never be handled, and would come again until the queue forgets it."""
    body = json.dumps({**json.loads(ec2("EC2 Spot Instance Interruption Warning")), "time": time})
    assert parse(body) == Notice(NoticeKind.SPOT_INTERRUPTED, (INSTANCE,), None)


def test_times_have_a_zone() -> None:
    assert iso_time("2026-11-21T12:00:00") == AT
    assert iso_time("2026-11-21T13:00:00+01:00") == AT


@pytest.mark.parametrize("text", ["[Completed] x", "[CANCELED] x", "[Cancelled] x"])
def test_what_is_over_says_so_first(text: str) -> None:
    assert is_over(text)
    assert not is_over(f"The instance is x {text}")
