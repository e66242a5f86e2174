"""Alibaba's trace of 2018: the tasks of its batch_task.csv. Pure.

Source of the schema: https://github.com/alibaba/clusterdata, cluster-trace-v2018/schema.txt; the file has no row of names.
"""

from collections.abc import Iterable
from typing import Final

from provisioner.simulator.workloads.errors import WorkloadError
from provisioner.simulator.workloads.templates import on_spot, pod_template
from provisioner.simulator.workloads.traces import (
    MOST_OF_ONE,
    LoadedTrace,
    RowError,
    TracePods,
    TraceReader,
    TraceRow,
    TraceWindow,
    object_name,
)

COLUMNS: Final = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
MACHINE_GIB: Final = 384.0
"""What a plan_mem of 100 may stand for: the schema calls it normalised and does not say by what."""
_MOST_CPU: Final = 100_000.0
_FULL: Final = 100.0


def load_batch_tasks(
    lines: Iterable[str], file: str, window: TraceWindow, *, machine_gib: float, spot: bool
) -> LoadedTrace:
    """Each row is a Job of as many pods as the task has instances, which all run from start_time to end_time.

    A task that has not ended (no end_time, or 0) runs until the day ends. What tasks wait for, which their names say, is in their start_time already.

    Args:
        lines: of the file.
        file: its name, for people.
        window: which part of it is the day; its times are seconds from 0 to about 691,200.
        machine_gib: what a plan_mem of 100 stands for, in GiB.
        spot: whether all ask for spot.

    Raises:
        WorkloadError: `machine_gib` is no amount.
    """
    if not 1.0 <= machine_gib <= 65_536.0:
        raise WorkloadError(f"machine_gib is {machine_gib:g}; use a number of GiB from 1 to 65536")
    read = TraceReader(file, window, COLUMNS, False, lambda row: _pods(row, machine_gib, spot=spot))
    return read.day(lines)


def _pods(row: TraceRow, machine_gib: float, *, spot: bool) -> TracePods:
    start, end = row.number("start_time"), row.maybe("end_time") or None
    if end is not None and end < start:
        raise RowError("end_time", f"{end:g} is before start_time; repair or delete the row")
    count = row.number("instance_num", least=1.0, most=MOST_OF_ONE)
    app = object_name("task", f"{row.text('job_name')}-{row.text('task_name')}")
    return TracePods(
        app,
        pod_template(
            app,
            cpu_millis=max(1, round(10 * row.number("plan_cpu", most=_MOST_CPU))),
            memory_mib=max(1, round(row.number("plan_mem", most=_FULL) / _FULL * machine_gib * 1024)),
            selector=on_spot() if spot else None,
        ),
        start,
        start,
        end,
        int(count),
    )
