"""Stopping a cluster: the order, what survives, and who may come in at a time."""

import os
import sys
import threading
from pathlib import Path

import pytest

from provisioner.lab.devcluster import reaper, teardown
from provisioner.lab.devcluster.components import COMPONENTS
from provisioner.lab.devcluster.processes import MARK, Record, marked, read_record, spawn, write_record
from provisioner.support.clock import SystemClock

CLOCK = SystemClock()
TELLS = """
import pathlib, signal, sys
name, log = sys.argv[1], sys.argv[2]
def end(*_):
    with open(log, "a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(log + "." + name).touch()
while True:
    signal.pause()
"""


def start(directory: Path, name: str) -> Record:
    """A program in the place of a component, which writes its name down when it is told to stop."""
    (directory / "pids").mkdir(exist_ok=True)
    log = directory / "order"
    argv = [sys.executable, "-I", "-c", TELLS, name, str(log)]
    record = spawn(argv, directory / "log", {**os.environ, MARK: str(directory)})
    write_record(directory / "pids" / f"{name}.json", record)
    while not Path(f"{log}.{name}").exists():
        assert record.is_alive(), (directory / "log").read_text()
        CLOCK.sleep(0.01)
    return record


def is_anything_alive(directory: Path) -> bool:
    """Whether any process of the cluster still runs."""
    return any(record.is_alive() for record in teardown.records(directory).values())


def test_our_own_programs_end_first_and_etcd_last(tmp_path: Path) -> None:
    for name in (*COMPONENTS, "webhook"):
        start(tmp_path, name)
    assert is_anything_alive(tmp_path)
    teardown.stop_everything(tmp_path, CLOCK)
    order = (tmp_path / "order").read_text().split()
    assert order[0] == "webhook"
    assert set(order[1:4]) == {"kwok", "kube-controller-manager", "kube-scheduler"}
    assert order[4:] == ["kube-apiserver", "etcd"]
    assert not is_anything_alive(tmp_path)
    assert teardown.records(tmp_path) == {}


def test_a_program_whose_pid_file_is_lost_is_stopped_all_the_same(tmp_path: Path) -> None:
    start(tmp_path, "etcd")
    (tmp_path / "pids" / "etcd.json").unlink()
    teardown.stop_everything(tmp_path, CLOCK)
    assert marked(tmp_path) == []


def test_a_stale_pid_file_harms_nobody(tmp_path: Path) -> None:
    mine = Record.of(os.getpid())
    assert mine is not None
    (tmp_path / "pids").mkdir()
    write_record(tmp_path / "pids" / "etcd.json", Record(mine.pid, mine.started - 1, mine.boot))
    teardown.stop_everything(tmp_path, CLOCK)  # or this test would not come to its end
    assert read_record(tmp_path / "pids" / "etcd.json") is None


def test_nothing_to_stop_is_fine(tmp_path: Path) -> None:
    teardown.stop_everything(tmp_path / "nowhere", CLOCK)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []

    def visit() -> None:
        with teardown.locked(tmp_path / "deep" / "lock"):
            inside.append(1)
            assert len(inside) == 1
            CLOCK.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == []


@pytest.mark.parametrize("gone", [True, False])
def test_the_reaper_waits_for_the_end_of_exactly_its_owner(tmp_path: Path, gone: bool) -> None:
    (tmp_path / "pids").mkdir()
    record = spawn([sys.executable, "-I", "-c", "import time; time.sleep(0.3)"], tmp_path / "log", {})
    owner = Record(record.pid, record.started - 1, record.boot) if gone else record
    reaper.wait_for_end(owner, CLOCK)
    assert record.is_alive() is gone
    reaper.wait_for_end(record, CLOCK)
    assert not record.is_alive()
