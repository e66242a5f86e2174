"""`python -m tests.support.alone ARGUMENTS…`: pytest with these arguments, and once more, alone, the few integration tests that failed beside others.

A crowded machine makes tests of real programs miss their time. A run whose only failures are such tests, and in which they pass with the machine to
themselves, passes, and says which they were: on the terminal and in results/flaky.txt. A failure of any other test stands: nothing there depends on time.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOST: Final = 20
"""More than so many failures are no accident of time."""
FOLDER: Final = "tests/integration"
FLAKY: Final = Path("results/flaky.txt")
_FAILED: Final = 1  # pytest's exit status where tests failed and nothing else went wrong
_CACHE: Final = Path(".pytest_cache")


def is_tried_again(status: int, failed: Sequence[str]) -> bool:
    """Whether a run that ended with this status and these failed tests (node IDs) may be tried once more."""
    return status == _FAILED and 0 < len(failed) <= MOST and all(one.startswith(f"{FOLDER}/") for one in failed)


def main(arguments: Sequence[str]) -> int:
    """Run; the exit status of the whole."""
    FLAKY.unlink(missing_ok=True)
    shutil.rmtree(_CACHE, ignore_errors=True)  # it remembers failures of earlier runs
    status = _pytest(*arguments)
    failed = _last_failed()
    if not is_tried_again(status, failed):
        return status
    print(f"\nonce more, alone: {', '.join(failed)}", flush=True)
    again = _pytest("--lf", "--lfnf=none", "-n", "0", FOLDER)
    if again or _last_failed():  # a test that was not found again has not passed
        return again or _FAILED
    text = f"passed alone, failed beside others: {', '.join(failed)}"
    FLAKY.parent.mkdir(exist_ok=True)
    FLAKY.write_text("".join(f"{one}\n" for one in failed))
    print(f"\n{text}", flush=True)
    return 0


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _last_failed() -> list[str]:
    path = _CACHE / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
