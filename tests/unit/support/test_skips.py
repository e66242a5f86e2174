"""In CI a skip is a failure that gives its reason; elsewhere it is a skip, and named."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from provisioner.lab.devcluster.errors import BuildError
from tests.support import charts, promtool, skips

ROOT = Path(__file__).parents[3]
FILES = {
    "body": "def test_it():\n    pytest.skip('no network here')\n",
    "mark": "@pytest.mark.skip(reason='no network here')\ndef test_it():\n    assert True\n",
    "module": "pytest.skip('no network here', allow_module_level=True)\n",
    "machine": "def test_it():\n    pytest.skip('this machine has no IPv6')\n",
    "expected": "@pytest.mark.xfail(strict=True)\ndef test_it():\n    assert False\n",
}


@pytest.mark.parametrize(
    ("ci", "status", "ends"),
    [("", 0, "4 skipped, 1 xfailed in "), ("true", 1, "1 failed, 1 skipped, 1 xfailed, 2 errors in ")],
)
def test_a_skip_is_named_and_in_ci_it_fails(ci: str, status: int, ends: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = plane: real\n")
    for name, text in FILES.items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n\n{text}")
    options = ("-p", "tests.conftest", "-p", "no:randomly", "--continue-on-collection-errors", "-rs", "-q", "-n", "0")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert done.stdout.splitlines()[-1].startswith(ends), done.stdout
    assert done.stdout.count("no network here") >= len(FILES) - 2


def test_tools_that_cannot_be_built_skip_every_test_that_needs_them_and_are_tried_once() -> None:
    tries: list[int] = []

    def unreachable() -> Mapping[str, Path]:
        tries.append(1)
        raise BuildError("the Go module proxy cannot be reached", "Check the network")

    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="cannot be built: the Go module proxy cannot be reached"):
            skips.built(unreachable)
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("where", "builds", "ask"), [(charts, "chart_tools", charts.tools), (promtool, "find", promtool.promtool)]
)
def test_charts_and_alerts_are_judged_by_tools_that_are_built(
    where: ModuleType, builds: str, ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise BuildError("the Go module proxy cannot be reached", "Check the network")

    monkeypatch.setattr(where, builds, unreachable)
    skips._tried.cache_clear()
    try:
        with pytest.raises(pytest.skip.Exception, match="cannot be built"):
            ask()
    finally:
        skips._tried.cache_clear()


def test_what_ci_calls_says_that_it_is_ci() -> None:
    assert 'export CI="${CI:-true}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
