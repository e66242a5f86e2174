"""How long the tests of each unit of spreading took in the last run of `make test`, so that the longest begin first in the next one.

`-p tests.support.durations` makes a run keep what it took, in `$XDG_CACHE_HOME/dovetail/durations.json`; what is not there is looked up in
tests/durations.json, which is written by hand from that file. A unit is what `spreading.unit_of` says: a module, or a part of one that is split.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from provisioner.lab.devcluster import paths
from tests.support.spreading import unit_of

COMMITTED: Final = Path(__file__).parents[1] / "durations.json"
_ROOT: Final = Path(__file__).parents[2]
_taken: Final[defaultdict[str, float]] = defaultdict(float)


def known(env: Mapping[str, str] = os.environ) -> dict[str, float]:
    """Seconds of each unit: of the last run that was kept, else what is committed; fixtures included."""
    return _read(COMMITTED) | _read(_kept(env))


def keep(taken: Mapping[str, float], env: Mapping[str, str] = os.environ) -> None:
    """Write them, the longest first; what the run did not have stays as it was, and what is no module any more goes."""
    path = _kept(env)
    found = {unit: seconds for unit, seconds in _read(path).items() if (_ROOT / unit.partition("::")[0]).exists()}
    found |= {unit: round(seconds, 1) for unit, seconds in taken.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(dict(sorted(found.items(), key=lambda one: -one[1])), indent=1))
    partial.replace(path)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test's setup, call or end."""
    _taken[unit_of(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The process that gathers the reports of the others keeps them, if the run was whole."""
    whole = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldfail
    if whole and not hasattr(session.config, "workerinput"):
        keep(_taken)


def _kept(env: Mapping[str, str]) -> Path:
    return paths.cache_root(env) / "durations.json"


def _read(path: Path) -> dict[str, float]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {str(unit): float(seconds) for unit, seconds in found.items()}
