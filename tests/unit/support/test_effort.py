"""What is said at the end of `make test`, of real commands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import LIMITS

REPOSITORY = Path(__file__).parents[3]
BUSY = "import time\nwhile time.process_time() < 0.5: pass"
#: Its parent has ended when it begins to be busy.
ORPHAN = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}], start_new_session=True); sys.exit(3)"
)
SAID = re.compile(
    r"(\d+\.\d) minutes, (\d+\.\d) CPU seconds; the machine's reference loop took (\d+) ms before and (\d+) ms after \((.*)\)"
)


@pytest.mark.parametrize(
    ("command", "status", "least"),
    [
        ([sys.executable, "-c", BUSY], 0, 0.5),
        ([sys.executable, "-c", ORPHAN], 3, 0.5),
        (["sh", "-c", "kill -TERM $$"], 128 + 15, 0.0),
    ],
    ids=["its own time", "that of an orphan", "killed"],
)
def test_what_a_command_took_with_all_that_it_started(command: list[str], status: int, least: float) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.effort", *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stderr
    said = SAID.fullmatch(done.stdout.strip())
    assert said is not None, done.stdout
    assert float(said[2]) >= least
    assert int(said[3]) > 0 < int(said[4])
    assert said[5] == LIMITS
