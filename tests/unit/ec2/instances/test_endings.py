"""What each documented StateReason says of a launch, read from rows as the emulator writes them."""

import pytest

from provisioner.ec2.access.errors import FailureScope
from provisioner.ec2.instances.endings import ended_at_launch, holds_back, launch_failure, told_failure
from provisioner.ec2.instances.instances import Ec2Instance
from tests.support.ec2.instances import STATE_REASONS

FAILED = {
    "Client.InternalError": ("LaunchFailed", FailureScope.NOTHING, "KMS key", True),
    "Client.InvalidSnapshot.NotFound": ("LaunchFailed", FailureScope.NOTHING, "snapshot", True),
    "Client.VolumeLimitExceeded": ("VolumeLimitExceeded", FailureScope.NOTHING, "EBS quotas", True),
    "Client.InstanceInitiatedShutdown": ("LaunchFailed", FailureScope.NOTHING, "spec.userData", True),
    "Server.InternalError": ("InternalError", FailureScope.OFFERING, "", True),
    "Server.InsufficientInstanceCapacity": ("LaunchFailed", FailureScope.OFFERING, "", False),
}
"""Reason, what is closed, the remedy, and whether launches pause; every other documented ending was asked for, or EC2 took the instance back."""


def described(code: str, state: str = "terminated") -> Ec2Instance:
    said = {"Code": code, "Message": f"{code}: {STATE_REASONS.get(code, 'something')}"}
    return Ec2Instance.of({"InstanceId": "i-0", "State": {"Name": state}, "StateReason": said})


@pytest.mark.parametrize("code", STATE_REASONS)
def test_each_documented_ending(code: str) -> None:
    failure = described(code).failure
    if code not in FAILED:
        assert failure is None
        return
    assert failure is not None
    reason, scope, remedy, pauses = FAILED[code]
    assert holds_back(failure) is pauses
    assert (failure.reason, failure.scope) == (reason, scope)
    assert remedy in failure.advice
    assert bool(remedy) == bool(failure.advice)
    assert str(failure).startswith(f"{code}: {STATE_REASONS[code]}")
    told = told_failure(ended_at_launch("i-0", str(failure)))
    assert told is not None
    assert (told.code, told.kind, told.reason) == (failure.code, failure.kind, failure.reason)


def test_an_ending_that_is_in_no_list_counts_as_a_failed_launch() -> None:
    failure = described("Client.BrandNewReason").failure
    assert failure is not None
    assert failure.scope is FailureScope.NOTHING


@pytest.mark.parametrize("state", ["pending", "running", "stopped"])
def test_an_instance_that_is_not_ending_has_not_failed(state: str) -> None:
    assert described("Client.InternalError", state).failure is None


def test_an_ending_without_a_reason_says_nothing() -> None:
    assert launch_failure("", "") is None
    assert told_failure("") is None
    assert told_failure("Failed to register node: no key") is None
    assert Ec2Instance.of({"InstanceId": "i-0", "State": {"Name": "terminated"}}).failure is None
