"""PSS and CPU of a process tree, from a /proc of files."""

import math
import os
from pathlib import Path

import pytest

from provisioner.lab.harness.memory import cpu_seconds, pss_bytes, tree


def process(proc: Path, pid: int, parent: int, *, pss_kib: int = 0, ticks: int = 0, name: str = "python") -> None:
    """A process with `ticks` of user time."""
    (proc / str(pid)).mkdir()
    fields = ["S", str(parent), *["0"] * 9, str(ticks), *["0"] * 20]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (proc / str(pid) / "smaps_rollup").write_text(f"head\nRss: 999 kB\nPss: {pss_kib} kB\nPss_Dirty: 7 kB\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, 10, 1, pss_kib=100, ticks=100)
    process(tmp_path, 11, 10, pss_kib=20, ticks=50, name="gunicorn: worker (a) b")
    process(tmp_path, 12, 11, pss_kib=3)
    process(tmp_path, 99, 1, pss_kib=5000, ticks=5000)
    (tmp_path / "self").mkdir()
    return tmp_path


def test_a_tree_is_the_process_and_all_below_it(proc: Path) -> None:
    assert tree(10, proc) == (10, 11, 12)


def test_pss_is_summed_over_the_tree(proc: Path) -> None:
    assert pss_bytes(10, proc) == 123 * 1024


def test_cpu_is_summed_over_the_tree(proc: Path) -> None:
    assert cpu_seconds(10, proc) == 150 / os.sysconf("SC_CLK_TCK")


def test_cpu_of_a_process_alone_leaves_its_children_out(proc: Path) -> None:
    assert cpu_seconds(10, proc, children=False) == 100 / os.sysconf("SC_CLK_TCK")


def test_a_process_that_is_gone_has_no_memory(proc: Path) -> None:
    assert tree(7, proc) == ()
    assert math.isnan(pss_bytes(7, proc))
    assert math.isnan(cpu_seconds(7, proc))


def test_a_machine_without_proc_measures_nothing(tmp_path: Path) -> None:
    assert math.isnan(pss_bytes(10, tmp_path / "none"))


def test_this_process_has_memory() -> None:
    assert pss_bytes(os.getpid()) > 1_000_000
