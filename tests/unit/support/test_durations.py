"""What a run keeps of how long it took, with a pytest of its own, and what the next one makes of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import durations

REPOSITORY = Path(__file__).parents[3]
HERE = "tests/unit/support/test_durations.py"
SLOW = """
import time
import pytest

@pytest.fixture(scope="module")
def slow():
    time.sleep(0.3)

def test_a(slow):
    assert True

def test_b(slow):
    time.sleep(0.3)
    assert {passes}
"""


def kept(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "dovetail/durations.json").read_text())
    return found


def test_what_is_kept_is_known_before_what_is_committed(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    committed = durations.known(env)
    assert committed
    unit, seconds = next(iter(committed.items()))
    durations.keep({unit: seconds + 1, HERE: 2.04}, env)
    assert durations.known(env) == committed | {unit: seconds + 1, HERE: 2.0}


def test_what_is_committed_is_of_modules_that_there_are() -> None:
    units = json.loads(durations.COMMITTED.read_text())
    assert [unit for unit in units if not (REPOSITORY / unit.partition("::")[0]).is_file()] == []


def test_a_file_that_is_damaged_counts_for_nothing(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    durations.keep({HERE: 2.0}, env)
    path = tmp_path / "dovetail/durations.json"
    path.write_text(path.read_text()[:-5])
    assert HERE not in durations.known(env)


def test_the_longest_stands_first_and_a_module_that_is_gone_goes(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    durations.keep({"tests/integration/test_gone.py": 1.0, HERE: 2.0}, env)
    durations.keep({"tests/conftest.py": 3.0}, env)
    assert list(kept(tmp_path).items()) == [("tests/conftest.py", 3.0), (HERE, 2.0)]


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(("arguments", "whole"), [((), True), (("--maxfail=1",), False)])
def test_a_run_keeps_what_its_modules_took_with_their_fixtures_unless_it_was_cut_short(
    tmp_path: Path, processes: str, arguments: tuple[str, ...], whole: bool
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in ("x", "y"):
        (tmp_path / f"test_{name}.py").write_text(SLOW.format(passes=name == "x"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", processes, "-p", "tests.support.durations", *arguments, "."],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PATH": "/usr/bin:/bin",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half the time to start
            "PYTEST_PLUGINS": "xdist.plugin",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (1, 2), done.stdout + done.stderr
    if whole:
        assert {unit: 0.6 <= seconds < 60 for unit, seconds in kept(tmp_path / "cache").items()} == {
            "test_x.py": True,
            "test_y.py": True,
        }
    else:
        assert not (tmp_path / "cache").exists()
