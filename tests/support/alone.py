"""`python -m tests.support.alone ARGUMENTS…`: pytest with these arguments, and once more, alone, the few integration tests that failed beside others.

A crowded machine makes tests of real programs miss their time. Such a test that passes with the machine to itself is named on the terminal and in
results/flaky.txt, and fails the run all the same, unless tests/flaky.toml knows it. A failure of any other test stands: nothing there depends on time.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

MOST: Final = 20
"""More than so many failures are no accident of time."""
FOLDER: Final = "tests/integration"
FLAKY: Final = Path("results/flaky.txt")
KNOWN: Final = Path("tests/flaky.toml")
MOST_KNOWN: Final = 5
HOLDS: Final = timedelta(days=14)
_FAILED: Final = 1  # pytest's exit status where tests failed and nothing else went wrong
_CACHE: Final = Path(".pytest_cache")


class FlakyTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test that may fail beside others for now. Written by hand.

    Attributes:
        id: as pytest names it, parameters included.
        cause: why it fails beside others.
        since: when that was written.
    """

    id: str
    cause: str
    since: date


class FlakyTests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What tests/flaky.toml says."""

    test: tuple[FlakyTest, ...] = ()

    def faults(self, today: date) -> list[str]:
        """What is wrong with it, but for tests that do not exist."""
        found = [] if len(self.test) <= MOST_KNOWN else [f"{len(self.test)} tests are listed, {MOST_KNOWN} may be"]
        for one in self.test:
            if not one.cause.strip():
                found.append(f"{one.id} has no cause")
            if one.since > today:
                found.append(f"{one.id} is listed since {one.since}, which is yet to come")
            if one.since + HOLDS < today:
                found.append(f"{one.id} is listed since {one.since}, and an entry holds for {HOLDS.days} days")
        return found


def is_tried_again(status: int, failed: Sequence[str]) -> bool:
    """Whether a run that ended with this status and these failed tests (node IDs) may be tried once more."""
    return status == _FAILED and 0 < len(failed) <= MOST and all(one.startswith(f"{FOLDER}/") for one in failed)


def main(arguments: Sequence[str]) -> int:
    """Run; the exit status of the whole."""
    known = _known()
    if known is None:
        return _FAILED
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
    FLAKY.parent.mkdir(exist_ok=True)
    FLAKY.write_text("".join(f"{one}\n" for one in failed))
    print(f"\npassed alone, failed beside others: {', '.join(failed)}", flush=True)
    unknown = [one for one in failed if one not in known]
    if unknown:
        print(f"mend them, or name them in {KNOWN} with their cause: {', '.join(unknown)}", flush=True)
        return _FAILED
    return 0


def _known() -> frozenset[str] | None:
    """The tests in tests/flaky.toml; None, with what is wrong on the terminal, where that list may not stand."""
    try:
        found = msgspec.toml.decode(KNOWN.read_bytes(), type=FlakyTests) if KNOWN.exists() else FlakyTests()
    except msgspec.MsgspecError as error:
        print(f"{KNOWN}: {error}", flush=True)
        return None
    ids = [one.id for one in found.test]
    faults = found.faults(datetime.now(UTC).date())
    if ids and not faults and _pytest("--collect-only", "-qq", "-n", "0", "-p", "no:cacheprovider", *ids):
        faults = ["it names a test that does not exist"]
    for one in faults:
        print(f"{KNOWN}: {one}", flush=True)
    return None if faults else frozenset(ids)


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _last_failed() -> list[str]:
    path = _CACHE / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
