"""Microsoft's traces of virtual machines (2017 and 2019): the file vmtable.csv. Pure.

Source of the schema: https://github.com/Azure/AzurePublicDataset, AzurePublicDatasetV1.md and AzurePublicDatasetV2.md, which name the fields; their order
in vmtable.csv, which has no row of names, is that of the notebooks in its folder `analysis`, which also tell how the open buckets are read.
"""

from collections.abc import Iterable
from typing import Final

from provisioner.simulator.workloads.templates import on_spot, pod_template
from provisioner.simulator.workloads.traces import (
    LoadedTrace,
    RowError,
    TracePods,
    TraceReader,
    TraceRow,
    TraceWindow,
    object_name,
)

COLUMNS: Final = (
    "vmid",
    "subscriptionid",
    "deploymentid",
    "vmcreated",
    "vmdeleted",
    "maxcpu",
    "avgcpu",
    "p95maxcpu",
    "vmcategory",
    "vmcorecountbucket",
    "vmmemorybucket",
)
_OPEN: Final = {">24": 30.0, ">64": 70.0}
"""Cores and GB of the last bucket of each kind."""
_LEAST_SECONDS: Final = 300.0
"""The trace looks at machines every five minutes."""
_PATIENT: Final = "Delay-insensitive"
_MOST: Final = 4096.0


def load_azure(lines: Iterable[str], file: str, window: TraceWindow, *, spot: bool) -> LoadedTrace:
    """Each row is a Job of one pod that asks for all of its machine's cores and memory, from vmcreated to vmdeleted.

    Args:
        lines: of the file.
        file: its name, for people.
        window: which part of it is the day; its times are seconds from 0 to about 2,592,000.
        spot: whether machines of the category Delay-insensitive ask for spot.
    """
    return TraceReader(file, window, COLUMNS, False, lambda row: _pods(row, spot=spot)).day(lines)


def _pods(row: TraceRow, *, spot: bool) -> TracePods:
    created, deleted = row.number("vmcreated"), row.number("vmdeleted")
    if deleted < created:
        raise RowError("vmdeleted", f"{deleted:g} is before vmcreated; repair or delete the row")
    machine = row.text("vmid")
    if not machine:
        raise RowError("vmid", "is empty; give the machine a name or delete the row")
    app = object_name("vm", machine[:24])
    return TracePods(
        app,
        pod_template(
            app,
            cpu_millis=round(1000 * _bucket(row, "vmcorecountbucket")),
            memory_mib=round(1024 * _bucket(row, "vmmemorybucket")),
            selector=on_spot() if spot and row.text("vmcategory") == _PATIENT else None,
        ),
        created,
        created,
        max(deleted, created + _LEAST_SECONDS),
    )


def _bucket(row: TraceRow, column: str) -> float:
    found = _OPEN.get(row.text(column))
    return row.number(column, least=0.01, most=_MOST) if found is None else found
