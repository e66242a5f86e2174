"""In CI a skip is a failure that gives its reason; elsewhere it is a skip, and named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = {
    "body": "def test_it():\n    pytest.skip('no network here')\n",
    "mark": "@pytest.mark.skip(reason='no network here')\ndef test_it():\n    assert True\n",
    "module": "pytest.skip('no network here', allow_module_level=True)\n",
    "expected": "@pytest.mark.xfail(strict=True)\ndef test_it():\n    assert False\n",
}


@pytest.mark.parametrize(
    ("ci", "status", "ends"),
    [("", 0, "3 skipped, 1 xfailed in "), ("true", 1, "1 failed, 1 xfailed, 2 errors in ")],
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
    assert done.stdout.count("no network here") >= len(FILES) - 1


def test_what_ci_calls_says_that_it_is_ci() -> None:
    assert 'export CI="${CI:-true}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
