"""What EC2's status checks and scheduled events are taken for."""

from datetime import timedelta
from typing import Any

import pytest

from provisioner.ec2.interruption.health import Category, HealthFinding, InstanceHealth, judge
from tests.support.clock import NOON

TOMORROW, LATER = NOON + timedelta(days=1), NOON + timedelta(days=2)


def row(instance: str = "i-1", **fields: Any) -> dict[str, Any]:
    """One instance; healthy unless told otherwise."""
    fine = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    return {"InstanceId": instance, "InstanceStatus": fine, "SystemStatus": fine, "Events": [], **fields}


def impaired(seconds: float = 120, status: str = "failed") -> dict[str, Any]:
    since = NOON - timedelta(seconds=seconds)
    return {"Status": "impaired", "Details": [{"Name": "reachability", "Status": status, "ImpairedSince": since}]}


def event(
    code: str = "instance-stop", description: str = "The instance is on bad hardware", **fields: Any
) -> dict[str, Any]:
    return {"Code": code, "Description": description, "NotBefore": TOMORROW, **fields}


CASES: dict[str, tuple[list[dict[str, Any]], InstanceHealth]] = {
    "nobody": ([], InstanceHealth()),
    "a healthy instance": ([row()], InstanceHealth()),
    "an instance that does not answer": (
        [row(InstanceStatus=impaired())],
        InstanceHealth((HealthFinding("i-1", Category.INSTANCE),)),
    ),
    "for a moment only": ([row(InstanceStatus=impaired(119))], InstanceHealth()),
    "a host that does not answer": (
        [row(SystemStatus=impaired())],
        InstanceHealth((HealthFinding("i-1", Category.SYSTEM),)),
    ),
    "both": (
        [row(InstanceStatus=impaired(), SystemStatus=impaired())],
        InstanceHealth((HealthFinding("i-1", Category.INSTANCE), HealthFinding("i-1", Category.SYSTEM))),
    ),
    "a check without enough data": ([row(InstanceStatus=impaired(status="insufficient-data"))], InstanceHealth()),
    "a failed check of unknown age": (
        [row(InstanceStatus={"Details": [{"Name": "reachability", "Status": "failed"}]})],
        InstanceHealth(),
    ),
    "disks that do not answer": ([row(AttachedEbsStatus=impaired())], InstanceHealth()),
    "an event to come": ([row(Events=[event()])], InstanceHealth((HealthFinding("i-1", Category.EVENT, TOMORROW),))),
    "the earliest of several": (
        [row(Events=[event(NotBefore=LATER), event("system-reboot"), event(NotBefore=LATER)])],
        InstanceHealth((HealthFinding("i-1", Category.EVENT, TOMORROW),)),
    ),
    "an event of unknown time": (
        [row(Events=[{"Code": "instance-reboot"}])],
        InstanceHealth((HealthFinding("i-1", Category.EVENT),)),
    ),
    "an event that is completed": (
        [row(Events=[event(description="[Completed] The")])],
        InstanceHealth(cleared=("i-1",)),
    ),
    "an event that is cancelled": (
        [row(Events=[event(description="[Canceled] The")])],
        InstanceHealth(cleared=("i-1",)),
    ),
    "one completed and one to come": (
        [row(Events=[event(description="[Completed] The"), event(NotBefore=LATER)])],
        InstanceHealth((HealthFinding("i-1", Category.EVENT, LATER),)),
    ),
    "told in two answers, of which one is old": (
        [row(Events=[event(description="[Canceled] The")]), row(Events=[event()])],
        InstanceHealth((HealthFinding("i-1", Category.EVENT, TOMORROW),)),
    ),
    "an event that is no interruption": ([row(Events=[event("power-saving")])], InstanceHealth(cleared=("i-1",))),
    "told three times": (
        [row(SystemStatus=impaired())] * 3,
        InstanceHealth((HealthFinding("i-1", Category.SYSTEM),)),
    ),
    "in order of instance": (
        [row("i-2", SystemStatus=impaired()), row("i-1", SystemStatus=impaired())],
        InstanceHealth((HealthFinding("i-1", Category.SYSTEM), HealthFinding("i-2", Category.SYSTEM))),
    ),
    "a row that names no instance": ([{"SystemStatus": impaired()}], InstanceHealth()),
    "a row that says nothing": ([{"InstanceId": "i-1"}], InstanceHealth()),
}


@pytest.mark.parametrize(("rows", "want"), CASES.values(), ids=CASES)
def test_what_rows_mean(rows: list[dict[str, Any]], want: InstanceHealth) -> None:
    assert judge(rows, NOON) == want
