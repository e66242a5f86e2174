"""The client policy, against a server that speaks EC2's HTTP; sleeping costs no time."""

import io
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from provisioner.ec2.access import client, wire
from provisioner.ec2.access.client import AwsClients, CallPolicy, CallRate
from provisioner.ec2.access.errors import classify_exception, may_repeat
from provisioner.support import logs
from provisioner.support.metrics import REGISTRY
from tests.support import awshttp, ec2pages
from tests.support.clock import FakeClock

EMPTY = (200, b'<?xml version="1.0"?><R xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId></R>')
RATES = {client.MUTATING: CallRate(5, 3), client.DESCRIBING: CallRate(20, 10)}


@pytest.fixture
def quiet() -> Iterator[None]:
    """Puts loggers back as they were."""
    before = {name: logging.getLogger(name).level for name in ("botocore", "boto3", "urllib3", "s3transfer")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def clients(url: str, clock: FakeClock, **policy: Any) -> AwsClients:
    return AwsClients(CallPolicy("us-east-1", **{"rates": RATES, **policy}), clock, awshttp.session(url))


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_mutating_calls_wait_for_their_own_tokens() -> None:
    clock = FakeClock()
    with awshttp.serving(lambda action, form: EMPTY) as server:
        aws = clients(server.url, clock)
        for _ in range(5):
            aws.client("ec2").delete_launch_template(LaunchTemplateName="abc")
        assert clock.slept == pytest.approx([0.2, 0.2])
        aws.client("ec2").describe_subnets()
        assert len(clock.slept) == 2  # describing has tokens of its own
        aws.close()
    assert len(server.calls) == 6


def test_retries_take_tokens_too_and_throttles_are_counted() -> None:
    clock = FakeClock()
    before = metric("dovetail_aws_throttles_total", service="ec2", action="DescribeSubnets")
    attempts = metric("aws_sdk_go_request_attempt_total", service="EC2", action="DescribeSubnets", code="503")
    answers = iter([awshttp.error(503, "RequestLimitExceeded"), EMPTY])
    with awshttp.serving(lambda action, form: next(answers)) as server:
        aws = clients(server.url, clock, rates={client.DESCRIBING: CallRate(1, 1)})
        answer = aws.client("ec2").describe_subnets()
        aws.close()
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert clock.slept == pytest.approx([1.0])
    assert metric("dovetail_aws_throttles_total", service="ec2", action="DescribeSubnets") == before + 1
    assert (
        metric("aws_sdk_go_request_attempt_total", service="EC2", action="DescribeSubnets", code="503") == attempts + 1
    )


class NoLeaveError(Exception):
    pass


def test_a_mutating_call_asks_for_leave_before_every_attempt() -> None:
    leave = iter([True, True, False])

    def permit() -> None:
        if not next(leave):
            raise NoLeaveError

    with awshttp.serving(lambda action, form: awshttp.error(503, "RequestLimitExceeded")) as server:
        aws = AwsClients(CallPolicy("us-east-1"), FakeClock(), awshttp.session(server.url), permit=permit)
        with pytest.raises(NoLeaveError):
            aws.client("ec2").create_fleet(
                LaunchTemplateConfigs=[], TargetCapacitySpecification={"TotalTargetCapacity": 1}
            )
        aws.close()
    assert len(server.calls) == 2


def test_leave_is_asked_for_after_the_wait_for_a_token() -> None:
    clock = FakeClock()

    def permit() -> None:
        if clock.monotonic() > 10:
            raise NoLeaveError

    with awshttp.serving(lambda action, form: EMPTY) as server:
        rates = {client.MUTATING: CallRate(0.05, 1)}
        aws = AwsClients(CallPolicy("us-east-1", rates=rates), clock, awshttp.session(server.url), permit=permit)
        aws.client("ec2").delete_launch_template(LaunchTemplateName="abc")
        with pytest.raises(NoLeaveError):
            aws.client("ec2").delete_launch_template(LaunchTemplateName="abc")
        aws.close()
    assert len(server.calls) == 1


def test_reading_needs_no_leave() -> None:
    def permit() -> None:
        raise NoLeaveError

    with awshttp.serving(lambda action, form: EMPTY) as server:
        aws = AwsClients(CallPolicy("us-east-1"), FakeClock(), awshttp.session(server.url), permit=permit)
        aws.client("ec2").describe_subnets()
        aws.close()
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("operation", "want"),
    [
        ("CreateFleet", True),
        ("TerminateInstances", True),
        ("CreateTags", True),
        ("AddRoleToInstanceProfile", True),
        ("DeleteMessageBatch", True),
        ("ReceiveMessage", True),
        ("DescribeInstances", False),
        ("GetParameter", False),
        ("GetQueueUrl", False),
        ("SimulatePrincipalPolicy", False),
    ],
)
def test_what_changes_something(operation: str, want: bool) -> None:
    assert client.changes(operation) is want


class _LostError(Exception):
    """The connection ends."""


THROTTLED = awshttp.error(503, "RequestLimitExceeded")
ATTEMPTS = {
    "a throttle alone": ([THROTTLED, THROTTLED], False),
    "a lost answer, then a throttle": ([None, THROTTLED], True),
    "a failure, then a throttle": ([awshttp.error(500, "InternalError"), THROTTLED], True),
    "a throttle, then a lost answer": ([THROTTLED, None], True),
    "a lost answer, then a denial": ([None, awshttp.error(403, "UnauthorizedOperation")], True),
    "a denial alone": ([awshttp.error(403, "UnauthorizedOperation")], False),
}


@pytest.mark.parametrize(("script", "maybe_done"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_failure_tells_of_every_attempt(script: list[awshttp.Answer | None], maybe_done: bool) -> None:
    answers = iter(script)
    with awshttp.serving(lambda action, form: _or_lost(next(answers))) as server:
        aws = clients(server.url, FakeClock(), attempts=2)
        with pytest.raises((ClientError, BotoCoreError)) as raised:
            aws.client("ec2").delete_launch_template(LaunchTemplateName="abc")
        aws.close()
    assert classify_exception(raised.value).maybe_done is maybe_done


@pytest.mark.parametrize(("first", "repeated"), [(None, True), (THROTTLED, False)], ids=["lost", "throttled"])
def test_an_answer_tells_whether_it_may_be_a_repetition(first: awshttp.Answer | None, repeated: bool) -> None:
    answers = iter([first, EMPTY])
    with awshttp.serving(lambda action, form: _or_lost(next(answers))) as server:
        aws = clients(server.url, FakeClock(), attempts=2)
        answer = aws.client("ec2").delete_launch_template(LaunchTemplateName="abc")
        aws.close()
    assert may_repeat(answer) is repeated


def _or_lost(answer: awshttp.Answer | None) -> awshttp.Answer:
    if answer is None:
        raise _LostError
    return answer


def test_a_call_that_fails_is_counted_once() -> None:
    labels = {"service": "EC2", "action": "DescribeImages", "code": "403"}
    before = metric("aws_sdk_go_request_total", **labels)
    denied = metric("dovetail_aws_denials_total", service="ec2", action="DescribeImages")
    with awshttp.serving(lambda action, form: awshttp.error(403, "UnauthorizedOperation")) as server:
        aws = clients(server.url, FakeClock())
        with pytest.raises(ClientError):
            aws.client("ec2").describe_images()
        aws.close()
    assert metric("aws_sdk_go_request_total", **labels) == before + 1
    assert metric("dovetail_aws_denials_total", service="ec2", action="DescribeImages") == denied + 1


def test_a_call_without_an_answer_is_counted_too() -> None:
    labels = {"service": "EC2", "action": "DescribeVpcs", "code": "0"}
    before = metric("aws_sdk_go_request_total", **labels)
    release = threading.Event()

    def hang(action: str, form: Mapping[str, str]) -> awshttp.Answer:
        release.wait(5)
        return EMPTY

    with awshttp.serving(hang) as server:
        aws = clients(server.url, FakeClock(), read_timeout=0.2, attempts=1)
        with pytest.raises(ReadTimeoutError):
            aws.client("ec2").describe_vpcs()
        release.set()
        aws.close()
    assert metric("aws_sdk_go_request_total", **labels) == before + 1


def test_clients_are_made_once_with_the_policy() -> None:
    aws = clients("http://127.0.0.1:9", FakeClock(), concurrency=7, connect_timeout=1.5, read_timeout=33, attempts=3)
    ec2 = aws.client("ec2")
    assert aws.client("ec2") is ec2
    assert aws.client("ec2", "eu-west-1") is not ec2
    config = ec2.meta.config
    assert (config.max_pool_connections, config.connect_timeout, config.read_timeout) == (7, 1.5, 33)
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}
    assert ec2.meta.region_name == "us-east-1"


def test_sts_is_regional() -> None:
    aws = AwsClients(CallPolicy("ap-southeast-2"), FakeClock())
    assert aws.client("sts").meta.endpoint_url == "https://sts.ap-southeast-2.amazonaws.com"


@pytest.mark.parametrize(
    ("service", "operation", "want"),
    [
        ("ec2", "CreateFleet", client.MUTATING),
        ("ec2", "RunInstances", client.MUTATING),
        ("ec2", "TerminateInstances", client.MUTATING),
        ("ec2", "CreateTags", client.MUTATING),
        ("ec2", "DescribeInstances", client.DESCRIBING),
        ("ssm", "GetParameter", client.DESCRIBING),
        ("iam", "ListInstanceProfiles", client.DESCRIBING),
        ("iam", "SimulatePrincipalPolicy", client.DESCRIBING),
        ("iam", "AddRoleToInstanceProfile", client.MUTATING),
        ("pricing", "GetProducts", client.DESCRIBING),
        ("sqs", "DeleteMessage", client.QUEUE),
        ("sqs", "ReceiveMessage", client.QUEUE),
    ],
)
def test_api_class(service: str, operation: str, want: str) -> None:
    assert client.api_class(service, operation) == want


def test_raw_pages_follow_their_tokens() -> None:
    types = [{"InstanceType": f"m5.{size}xlarge"} for size in range(5)]
    pages = ec2pages.type_pages(types, size=2)

    def respond(action: str, form: Mapping[str, str]) -> awshttp.Answer:
        return 200, pages[int(form.get("NextToken", "0")) // 2]

    with awshttp.serving(respond) as server:
        aws = clients(server.url, FakeClock())
        read = list(aws.rows("ec2", "DescribeInstanceTypes", wire.instance_types, MaxResults=100))
        aws.close()
    assert [info.name for info in read] == [f"m5.{number}xlarge" for number in range(5)]
    assert [call.get("NextToken") for call in server.calls] == [None, "2", "4"]
    assert {call["MaxResults"] for call in server.calls} == {"100"}
    assert all("Authorization" in headers for headers in server.headers)


def test_an_error_of_a_raw_call_is_an_error() -> None:
    with awshttp.serving(lambda action, form: awshttp.error(412, "DryRunOperation")) as server:
        aws = clients(server.url, FakeClock())
        with pytest.raises(ClientError, match="DryRunOperation"):
            list(aws.rows("ec2", "DescribeInstanceTypes", wire.instance_types, DryRun=True))
        aws.close()


def test_pages_in_a_circle_end() -> None:
    page = ec2pages.page("DescribeInstanceTypes", {"InstanceTypes": [], "NextToken": "again"})
    with awshttp.serving(lambda action, form: (200, page)) as server:
        aws = clients(server.url, FakeClock())
        with pytest.raises(ValueError, match="same page token twice"):
            list(aws.rows("ec2", "DescribeInstanceTypes", wire.instance_types))
        aws.close()
    assert len(server.calls) == 2


def test_only_some_operations_have_raw_pages() -> None:
    aws = clients("http://127.0.0.1:9", FakeClock())
    with pytest.raises(ValueError, match="DescribeInstances has no raw pages"):
        next(aws.rows("ec2", "DescribeInstances", wire.instance_types))


USER_DATA = "IyEvYmluL2Jhc2gKZWNobyBzZWNyZXQtdXNlci1kYXRhCg=="
SECRETS = (USER_DATA, "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI", "FwoGZXIvYXdzEXAMPLETOKEN")


@pytest.mark.usefixtures("quiet")
def test_no_secret_is_logged_at_any_level() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)  # as LOG_LEVEL=debug of a careless program would
    try:
        with awshttp.serving(lambda action, form: EMPTY) as server:
            aws = clients(server.url, FakeClock())
            aws.client("ec2").create_launch_template(
                LaunchTemplateName="abc", LaunchTemplateData={"UserData": USER_DATA, "ImageId": "ami-1"}
            )
            aws.close()
        sent = str(server.calls) + str(server.headers)
        assert USER_DATA in sent
        assert "AKIAIOSFODNN7EXAMPLE" in sent
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert not [secret for secret in SECRETS if secret in stream.getvalue()]
    assert "DEBUG" not in stream.getvalue()


@pytest.mark.usefixtures("quiet")
def test_libraries_are_never_below_info() -> None:
    for name in ("botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger("boto3").setLevel(logging.ERROR)
    client.quiet_libraries()
    assert logging.getLogger("botocore.endpoint").getEffectiveLevel() == logging.INFO
    assert logging.getLogger("urllib3.connectionpool").getEffectiveLevel() == logging.INFO
    assert logging.getLogger("boto3").level == logging.ERROR


TEXTS = {
    "a request in words": f"sending {{'UserData': '{USER_DATA}', 'ImageId': 'ami-1'}}",
    "a form": f"Action=CreateLaunchTemplate&LaunchTemplateData.UserData={USER_DATA}",
    "an answer": f"<userData>{USER_DATA}</userData>",
    "a signed address": "https://sts/?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F&X-Amz-Security-Token=FwoGZXIvYXdzEXAMPLETOKEN&X=1",
    "a profile": "aws_secret_access_key = wJalrXUtnFEMI",
    "an answer of STS": '{"SessionToken": "FwoGZXIvYXdzEXAMPLETOKEN", "AccessKeyId": "AKIAIOSFODNN7EXAMPLE"}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_our_own_messages_hold_no_secret(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in logs.redact(text)]


def test_a_sentence_about_user_data_stays_readable() -> None:
    text = "UserDataSizeLimitExceeded: User data is limited to 16384 bytes"
    assert logs.redact(text) == text
