"""Published traces: what their rows become, and what is said of rows that cannot be used. The files are made up."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.simulator.workload import Arrival, Day, End
from provisioner.simulator.workloads import azure, batch_tasks, openb, traces
from provisioner.simulator.workloads.azure import load_azure
from provisioner.simulator.workloads.batch_tasks import MACHINE_GIB, load_batch_tasks
from provisioner.simulator.workloads.errors import WorkloadError
from provisioner.simulator.workloads.openb import OpenbOptions, load_openb
from provisioner.simulator.workloads.traces import LoadedTrace, TraceWindow

MADE_UP = Path(__file__).parents[3] / "data" / "traces"
Loader = Callable[..., LoadedTrace]
FILES: dict[str, tuple[Loader, tuple[str, ...]]] = {
    "openb.csv": (partial(load_openb, options=OpenbOptions()), openb.COLUMNS),
    "vmtable.csv": (partial(load_azure, spot=False), azure.COLUMNS),
    "batch_task.csv": (partial(load_batch_tasks, machine_gib=MACHINE_GIB, spot=False), batch_tasks.COLUMNS),
}
HEAD = ",".join(openb.COLUMNS)
ROW = "made-up,4000,8192,0,0,,LS,Running,100,700,160"


def loaded(file: str, **window: Any) -> LoadedTrace:
    with (MADE_UP / file).open() as lines:
        return FILES[file][0](lines, file, TraceWindow(**window))


def of_openb(*rows: str, options: OpenbOptions = OpenbOptions(), **window: Any) -> LoadedTrace:  # noqa: B008 - frozen
    return load_openb([HEAD, *rows], "pods.csv", TraceWindow(**window), options)


def arrivals(day: Day) -> list[Arrival]:
    return [one for one in day.changes if isinstance(one, Arrival)]


def requests(one: Arrival) -> dict[str, str]:
    found: dict[str, str] = one.template["spec"]["containers"][0]["resources"]["requests"]
    return found


@pytest.mark.parametrize("file", FILES)
def test_every_row_of_a_file_is_a_workload(file: str) -> None:
    found = loaded(file)
    assert (len(arrivals(found.day)), found.problems, found.outside) == (20, (), 0)
    assert found.day.duration_seconds == 86_400
    assert [one.at for one in found.day.changes] == sorted(one.at for one in found.day.changes)
    assert len({one.name for one in arrivals(found.day)}) == 20


@pytest.mark.parametrize("file", FILES)
def test_a_row_that_cannot_be_read_is_told_and_stops_no_other(file: str) -> None:
    """Whichever of its fields is spoilt: the row is used, or the column is named."""
    loader, columns = FILES[file]
    lines = (MADE_UP / file).read_text().splitlines()
    rows = lines[1:] if file == "openb.csv" else lines
    head = lines[:1] if file == "openb.csv" else []
    told = set()
    for number, column in enumerate(columns):
        cells = rows[3].split(",")
        cells[number] = "-7"
        found = loader([*head, *rows[:3], ",".join(cells), *rows[4:]], file, TraceWindow())
        assert len(arrivals(found.day)) + found.left_out + found.outside == 20
        for problem in found.problems:
            told.add(problem.column)
            assert (problem.file, problem.line, problem.column) == (file, len(head) + 4, column)
            assert str(problem).startswith(f"{file}: line {len(head) + 4}: {column}: ")
            assert "row" in problem.problem
    assert len(told) >= 4


def test_a_pod_runs_from_its_scheduling_to_its_deletion() -> None:
    (one,) = arrivals(of_openb(ROW).day)
    assert (one.at, one.kind, one.count, one.lifetimes) == (100, "Job", 1, (540,))
    assert requests(one) == {"cpu": "4000m", "memory": "8192Mi"}


def test_a_pod_that_was_never_scheduled_waits_until_it_is_deleted() -> None:
    arrival, end = of_openb("p,1000,1024,0,0,,LS,Pending,100,700,").day.changes
    assert isinstance(arrival, Arrival)
    assert arrival.lifetimes is None
    assert isinstance(end, End)
    assert (end.at, end.name) == (700, arrival.name)


def test_a_share_of_a_gpu_is_a_whole_one() -> None:
    (one,) = arrivals(of_openb("p,1000,1024,1,250,,LS,Running,1,9,1").day)
    assert requests(one)["nvidia.com/gpu"] == "1"


def test_models_are_node_labels_where_a_label_is_named() -> None:
    row = "p,1000,1024,1,1000,V100M16|T4,BE,Running,1,9,1"
    assert "affinity" not in arrivals(of_openb(row).day)[0].template["spec"]
    options = OpenbOptions(gpu_label="example.com/gpu", gpu_models={"V100M16": ("v100",)}, spot=True)
    spec = arrivals(of_openb(row, options=options).day)[0].template["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "example.com/gpu", "operator": "In", "values": ["T4", "v100"]}]}]
    assert spec["nodeSelector"] == {names.CAPACITY_TYPE_LABEL: "spot"}


@pytest.mark.parametrize(
    ("window", "found"),
    [
        ({}, [(100, 540)]),
        ({"start": 200}, [(0, 500)]),
        ({"start": 200, "standing": False}, []),
        ({"start": 700}, []),
        ({"seconds": 100}, []),
        ({"speed": 10.0}, [(10, 54)]),
    ],
    ids=["all of it", "still running", "not those", "over", "not yet", "faster"],
)
def test_a_window_is_cut_out(window: dict[str, Any], found: list[tuple[float, float]]) -> None:
    day = of_openb(ROW, **window)
    assert [(one.at, (one.lifetimes or (0,))[0]) for one in arrivals(day.day)] == found
    assert day.outside == (not found)


def test_machines_of_the_open_bucket_are_read_as_their_publisher_reads_them() -> None:
    rows = ["v/1,s,d,0,900,1,1,1,Delay-insensitive,>24,>64", "v/1,s,d,0,10,1,1,1,Unknown,2,4"]
    first, second = arrivals(load_azure(rows, "vmtable.csv", TraceWindow(), spot=True).day)
    assert requests(first) == {"cpu": "30000m", "memory": "71680Mi"}
    assert (second.name, second.lifetimes) == ("vm-v-1-2", (300,))
    assert ("nodeSelector" in first.template["spec"], "nodeSelector" in second.template["spec"]) == (True, False)


def test_a_task_has_as_many_pods_as_instances() -> None:
    rows = ["M1,7,j_1,1,Terminated,50,80,150.0,0.5", "M2,1,j_1,1,Running,60,0,100.0,0.5"]
    found = load_batch_tasks(rows, "batch_task.csv", TraceWindow(), machine_gib=100, spot=False)
    first, second = arrivals(found.day)
    assert (first.count, first.lifetimes, requests(first)) == (7, (30,), {"cpu": "1500m", "memory": "512Mi"})
    assert second.lifetimes is None


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("x" * 5000, "characters"),
        ('"open,1', "no CSV"),
        ("a,b", "2 fields instead of 11"),
        ("p,1e99,1024,0,0,,LS,Running,1,9,1", "cpu_milli"),
        ("p,nan,1024,0,0,,LS,Running,1,9,1", "cpu_milli"),
        ("p,1,1024,1.5,0,,LS,Running,1,9,1", "num_gpu"),
        ("p,1,1024,0,0,,LS,Running,9,1,9", "deletion_time"),
        (",1,1024,0,0,,LS,Running,1,9,1", "name"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(row: str, problem: str) -> None:
    found = of_openb(ROW, row)
    assert (len(arrivals(found.day)), found.left_out) == (1, 1)
    assert problem in str(found.problems[0])
    assert str(found.problems[0]).startswith("pods.csv: line 3: ")


def test_work_and_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = of_openb(*["a,b"] * 300)
    assert (len(many.problems), many.left_out) == (traces.MOST_PROBLEMS, 300)
    monkeypatch.setattr(traces, "MOST_ROWS", 5)
    assert len(arrivals(of_openb(*[ROW] * 9).day)) == 4
    monkeypatch.setattr(traces, "MOST_ROWS", 100)
    monkeypatch.setattr(traces, "MOST_PODS_OF_DAY", 3)
    assert len(arrivals(of_openb(*[ROW] * 9).day)) == 3


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"pods.csv: line 1: the columns are not name,cpu_milli"):
        load_openb(["a,b,c"], "pods.csv", TraceWindow(), OpenbOptions())


@pytest.mark.parametrize("window", [{"seconds": 0.0}, {"speed": -1.0}, {"seconds": 1e9}, {"start": float("nan")}])
def test_a_window_that_is_none_is_refused(window: dict[str, float]) -> None:
    with pytest.raises(WorkloadError, match="trace"):
        TraceWindow(**window)  # type: ignore[arg-type]
