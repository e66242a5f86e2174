"""Reports of the extender to the provisioner: pods that it left without a node, on the wire.

The extender posts `{"reports": [{"uid", "node", "reason"}]}` to the address that the provisioner's leader writes
on its Lease. A report is a hint that arrives before the pod's Unschedulable condition; losing one costs time only.
"""

import enum
from collections.abc import Iterable
from typing import Final

import msgspec

from provisioner.values import jsontext

LEASE_NAME: Final = "karpenter-leader-election"
"""Lease of the provisioner's leader, in the system namespace."""

REPORTS_URL_ANNOTATION: Final = "dovetail.dev/reports-url"
"""Annotation of that Lease: where the leader takes reports, as https://HOST:PORT/reports."""

WAITING_FOR_ROOM: Final = "waiting for its own room on"
"""The extender's reason for refusing a node to a pod whose planned node was not among those that it was asked about; what follows is its name."""

PATH: Final = "/reports"
MAX_BYTES: Final = 1024 * 1024
MAX_REPORTS: Final = 5000
_MAX_TEXT: Final = 253


class ReportsError(ValueError):
    """The body holds no reports; says what is wrong with it."""


class ReportReason(enum.StrEnum):
    """Why a pod was left without a node."""

    HELD = "held"
    """Every feasible node is held for planned pods, or is being disrupted."""
    EMPTIED = "emptied"
    """It waits for the node that it is planned for; the others were taken off the list."""
    PREEMPTED = "preempted"
    """No node has room; kube-scheduler asked which pods to evict."""


class PodReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod left without a node; `node` is the one that came closest, "" where there is none."""

    uid: str
    node: str = ""
    reason: ReportReason


class _Reports(msgspec.Struct, frozen=True, gc=False):
    reports: tuple[PodReport, ...]


_decode = jsontext.decoder(_Reports)
_ENCODER = msgspec.json.Encoder()


def encode_reports(reports: Iterable[PodReport]) -> bytes:
    """The body of one POST; the order is kept."""
    return _ENCODER.encode(_Reports(tuple(reports)))


def decode_reports(body: bytes) -> tuple[PodReport, ...]:
    """The reports in `body`, in order.

    Raises:
        ReportsError: too large, not JSON of this shape, an unknown reason, or a uid that is empty or overlong.
    """
    if len(body) > MAX_BYTES:
        raise ReportsError(f"the body has {len(body)} bytes; the maximum is {MAX_BYTES}")
    try:
        reports = _decode(body).reports
    except msgspec.DecodeError as error:
        raise ReportsError(f"not reports: {error}") from error
    if len(reports) > MAX_REPORTS:
        raise ReportsError(f"the body has {len(reports)} reports; the maximum is {MAX_REPORTS}")
    for position, report in enumerate(reports):
        if not report.uid or len(report.uid) > _MAX_TEXT:
            raise ReportsError(
                f"reports[{position}].uid has {len(report.uid)} characters; it must have 1 to {_MAX_TEXT}"
            )
        if len(report.node) > _MAX_TEXT:
            raise ReportsError(
                f"reports[{position}].node has {len(report.node)} characters; the maximum is {_MAX_TEXT}"
            )
    return reports
