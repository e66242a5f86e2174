"""Alibaba's GPU trace of 2023: the pods of its openb_pod_list_*.csv. Pure.

Source of the schema: https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/README.md; the files begin with the names of their columns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

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
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
_MOST_GPUS: Final = 16
_MOST_CPU: Final = 1_000_000
_MOST_MEMORY: Final = 32 * 2**20
_MOST_MODELS: Final = 20
_BEST_EFFORT: Final = "BE"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbOptions:
    """How rows become pods.

    Attributes:
        gpu_label: the node label whose values are the models of `gpu_spec`; "" to leave the models out.
        gpu_models: by model of the trace, values of that label; a model that is absent stands for itself.
        spot: whether pods of the class BE ask for spot.
    """

    gpu_label: str = ""
    gpu_models: Mapping[str, tuple[str, ...]] | None = None
    spot: bool = False


def load_openb(lines: Iterable[str], file: str, window: TraceWindow, options: OpenbOptions) -> LoadedTrace:
    """Each row is a Job of one pod, which runs from scheduled_time to deletion_time; one that was never scheduled waits until its deletion_time.

    A pod that shares a GPU (gpu_milli below 1000) asks for a whole one: Kubernetes gives no parts of `nvidia.com/gpu`. What the trace says of the
    end of a pod (pod_phase) is not looked at, as some that are told as Running have a deletion_time.

    Args:
        lines: of the file.
        file: its name, for people.
        window: which part of it is the day; its times are seconds from 0 to about 12,900,000.
        options: how rows become pods.

    Raises:
        WorkloadError: the file does not begin with these columns.
    """
    return TraceReader(file, window, COLUMNS, True, lambda row: _pods(row, options)).day(lines)


def _pods(row: TraceRow, options: OpenbOptions) -> TracePods:
    created, ended = row.number("creation_time"), row.maybe("deletion_time")
    started = row.maybe("scheduled_time")
    if ended is not None and ended < max(created, started or 0.0):
        raise RowError("deletion_time", f"{ended:g} is before the pod began; repair or delete the row")
    name = row.text("name")
    if not name:
        raise RowError("name", "is empty; give the pod a name or delete the row")
    gpus = row.number("num_gpu", most=_MOST_GPUS)
    if gpus != int(gpus):
        raise RowError("num_gpu", f"{gpus:g} is not a whole number; repair or delete the row")
    app = object_name("openb", name.removeprefix("openb-"))
    return TracePods(
        app,
        pod_template(
            app,
            cpu_millis=round(row.number("cpu_milli", most=_MOST_CPU)),
            memory_mib=round(row.number("memory_mib", most=_MOST_MEMORY)),
            gpus=int(gpus),
            selector=on_spot() if options.spot and row.text("qos") == _BEST_EFFORT else None,
            affinity=_affinity(row.text("gpu_spec"), options),
        ),
        created,
        started,
        ended,
    )


def _affinity(spec: str, options: OpenbOptions) -> dict[str, Any] | None:
    """Of the models that a pod is content with."""
    models = [one for one in spec.split("|") if one and one.lower() != "nan"][:_MOST_MODELS]
    if not models or not options.gpu_label:
        return None
    known = options.gpu_models or {}
    values = sorted({value for one in models for value in known.get(one, (one,))})
    terms = [{"matchExpressions": [{"key": options.gpu_label, "operator": "In", "values": values}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
