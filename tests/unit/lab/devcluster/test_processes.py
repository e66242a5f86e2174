"""Processes that are found again: by record, by mark, and never mistaken for another."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.lab.devcluster.processes import (
    MARK,
    Record,
    command_of,
    marked,
    memory_bytes,
    read_record,
    send,
    spawn,
    stop,
    write_record,
)
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually

CLOCK = SystemClock()
DEAF = (
    "import signal,sys,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)
Start = Callable[[str], Record]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Python programs that carry the mark of tmp_path, and ends them."""
    started: list[Record] = []

    def run(code: str) -> Record:
        env = {**os.environ, MARK: str(tmp_path)}
        started.append(spawn([sys.executable, "-I", "-c", code], tmp_path / "log", env))
        return started[-1]

    yield run
    for record in started:
        stop([record], CLOCK, term_seconds=0.0)


def wait_for(condition: Callable[[], bool]) -> None:
    eventually(condition, "what the program was to do", pause=0.01)


def test_a_started_program_leads_a_group_of_its_own_and_logs_both_outputs(start: Start, tmp_path: Path) -> None:
    record = start("import os,sys; print(os.getpgrp()); print(os.getsid(0), file=sys.stderr)")
    wait_for(lambda: not record.is_alive())
    assert sorted((tmp_path / "log").read_text().split()) == [str(record.pid)] * 2


def test_a_program_that_obeys_is_stopped_by_sigterm(start: Start) -> None:
    record = start("import time; time.sleep(60)")
    assert record.is_alive()
    assert not stop([record], CLOCK)
    assert not record.is_alive()


def test_a_program_that_does_not_is_killed_after_a_bounded_wait(start: Start, tmp_path: Path) -> None:
    record = start(DEAF)
    wait_for(lambda: "deaf" in (tmp_path / "log").read_text())
    assert not stop([record], CLOCK, term_seconds=0.1)
    assert not record.is_alive()


def test_a_suspended_program_is_stopped_too(start: Start) -> None:
    record = start("import time; time.sleep(60)")
    send(record, signal.SIGSTOP)
    assert not stop([record], CLOCK, term_seconds=10)
    assert not record.is_alive()


def test_the_whole_group_is_signalled(start: Start, tmp_path: Path) -> None:
    record = start("import subprocess,sys; subprocess.run([sys.executable, '-I', '-c', 'import time; time.sleep(60)'])")
    wait_for(lambda: len(marked(tmp_path)) == 2)
    assert not stop([record], CLOCK)
    wait_for(lambda: not marked(tmp_path))


def test_a_reused_pid_is_not_taken_for_the_process_that_was_recorded(start: Start) -> None:
    record = start("import time; time.sleep(60)")
    for other in (replace(record, started=record.started - 1), replace(record, boot="another boot")):
        assert not other.is_alive()
        assert not send(other, signal.SIGKILL)
    assert record.is_alive()


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = Record.of(os.getpid())
    assert record is not None
    write_record(tmp_path / "r.json", record)
    assert read_record(tmp_path / "r.json") == record


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": "x", "started": 1, "boot": ""}', "{"])
def test_a_damaged_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    assert read_record(tmp_path / "r.json") is None


def test_a_process_whose_record_was_never_written_is_found_by_its_mark(start: Start, tmp_path: Path) -> None:
    record = start("import time; time.sleep(60)")
    wait_for(lambda: marked(tmp_path) == [record])  # the kernel shows its environment once the program has begun
    assert marked(tmp_path / "other") == []


def test_what_is_said_about_a_process_that_is_gone(start: Start) -> None:
    record = start("pass")
    wait_for(lambda: not record.is_alive())
    assert Record.of(record.pid) is None
    assert (command_of(record.pid), memory_bytes(record.pid)) == ("", 0)


def test_a_program_that_cannot_be_executed_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        spawn([str(tmp_path / "nothing")], tmp_path / "log", {})


def test_a_child_gets_no_descriptor_that_this_process_was_started_with(start: Start) -> None:
    """`dovetail dev up 3>&1 | cat` waited for the cluster to end, as ssh did."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    start("import time; time.sleep(60)")
    os.close(writer)
    os.set_blocking(reader, False)
    assert os.read(reader, 1) == b""  # the end: nobody else can write
    os.close(reader)
