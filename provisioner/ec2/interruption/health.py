"""What EC2's status checks and scheduled events say of instances. Pure, and the questions that are asked for it.

Source: spec/karpenter-aws.md 6.6.
Differs: completed and cancelled events count as none, and an event counts from the time that it is planned for.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.ec2.interruption.messages import is_over

IMPAIRED_FOR: Final = timedelta(seconds=120)
EVENT_CODES: Final = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
FILTERS: Final[tuple[Mapping[str, Any], ...]] = (
    {"Name": "instance-status.status", "Values": ["impaired"]},
    {"Name": "system-status.status", "Values": ["impaired"]},
    {"Name": "event.code", "Values": list(EVENT_CODES)},
)
"""One question each: EC2 wants all filters of one question to hold."""


class Category(enum.StrEnum):
    """What is wrong; the values are those of Karpenter's metric label."""

    INSTANCE = "instance_status"
    SYSTEM = "system_status"
    EVENT = "event_status"


@dataclass(frozen=True, slots=True, order=True)
class HealthFinding:
    """One thing that is wrong with one instance; `starts` is when an event is planned for, None where unknown."""

    instance: str
    category: Category
    starts: datetime | None = None


@dataclass(frozen=True, slots=True)
class InstanceHealth:
    """What some answers mean together.

    Attributes:
        findings: each once, in order of instance and category.
        cleared: instances all of whose events are completed or cancelled, sorted.
    """

    findings: tuple[HealthFinding, ...] = ()
    cleared: tuple[str, ...] = ()


def judge(rows: Iterable[Mapping[str, Any]], now: datetime) -> InstanceHealth:
    """Read rows of DescribeInstanceStatus; what they say is checked, whatever was filtered for."""
    findings: dict[tuple[str, Category], HealthFinding] = {}
    quiet: set[str] = set()
    for row in rows:
        instance_id = row.get("InstanceId", "")
        for found in _findings(instance_id, row, now):
            known = findings.get((instance_id, found.category))
            if known is None or _start(found) < _start(known):
                findings[instance_id, found.category] = found
        if row.get("Events") and not any(_is_live(event) for event in row["Events"]):
            quiet.add(instance_id)
    events = {instance_id for instance_id, category in findings if category is Category.EVENT}
    return InstanceHealth(tuple(findings[key] for key in sorted(findings)), tuple(sorted(quiet - events)))


def _findings(instance_id: str, row: Mapping[str, Any], now: datetime) -> Iterator[HealthFinding]:
    if not instance_id:
        return
    for field, category in (("InstanceStatus", Category.INSTANCE), ("SystemStatus", Category.SYSTEM)):
        if any(_has_failed(detail, now) for detail in (row.get(field) or {}).get("Details", ())):
            yield HealthFinding(instance_id, category)
    for event in row.get("Events", ()):
        if _is_live(event):
            yield HealthFinding(instance_id, Category.EVENT, event.get("NotBefore"))


def _has_failed(detail: Mapping[str, Any], now: datetime) -> bool:
    since = detail.get("ImpairedSince")
    return detail.get("Status") == "failed" and since is not None and now - since >= IMPAIRED_FOR


def _is_live(event: Mapping[str, Any]) -> bool:
    return event.get("Code") in EVENT_CODES and not is_over(event.get("Description", ""))


def _start(finding: HealthFinding) -> float:
    return finding.starts.timestamp() if finding.starts is not None else float("inf")
