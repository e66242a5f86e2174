"""Which failures are tried again alone and which of them pass the run, with a pytest of their own in a folder of its own."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.alone import MOST, FlakyTest, FlakyTests, is_tried_again

REPOSITORY = Path(__file__).parents[2]
TODAY = datetime.now(UTC).date()
INTEGRATION, UNIT = "tests/integration/test_x.py", "tests/unit/test_y.py"
BESIDE_OTHERS = """
import pytest

@pytest.mark.parametrize("n", [0, 1])
def test_time(n, request):
    assert n or not hasattr(request.config, "workerinput"), "this machine is crowded"
"""
ALWAYS = "def test_wrong():\n    assert False\n"
FINE = "def test_fine():\n    pass\n"
#: A defect that only the first run meets; whoever runs it twice hides it.
ONCE = """
from pathlib import Path

def test_once():
    mark = Path(__file__).with_name("mark")
    seen = mark.exists()
    mark.touch()
    assert seen
"""


@pytest.mark.parametrize(
    ("status", "failed", "want"),
    [
        (1, [INTEGRATION], True),
        (1, [f"{INTEGRATION}::test_{n}" for n in range(MOST)], True),
        (1, [f"{INTEGRATION}::test_{n}" for n in range(MOST + 1)], False),
        (1, [INTEGRATION, UNIT], False),
        (1, ["tests/integration_of_others/test_z.py"], False),
        (1, [], False),
        (0, [], False),
        (2, [INTEGRATION], False),
    ],
)
def test_only_a_few_failures_of_integration_are_tried_again(status: int, failed: list[str], want: bool) -> None:
    assert is_tried_again(status, failed) is want


def run(folder: Path, known: str = "", **files: str) -> tuple[int, str]:
    """Status and output of a run of these files; `unit__y` is tests/unit/test_y.py, `known` is tests/flaky.toml."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        path = folder / "tests" / name.replace("__", "/test_")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    (folder / "tests/flaky.toml").write_text(known)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.alone", "-n", "1", "tests"],
        cwd=folder,
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PATH": "/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half the time to start
            "PYTEST_PLUGINS": "xdist.plugin",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def entry(name: str, since: date = TODAY, cause: str = "it waits for a crowded machine") -> str:
    return f"[[test]]\nid = '{name}'\ncause = '{cause}'\nsince = {since}\n"


def test_what_passes_alone_is_named_and_fails_the_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, integration__x=BESIDE_OTHERS, unit__y=FINE)
    assert status == 1, output
    assert output.splitlines()[-2:] == [
        f"passed alone, failed beside others: {INTEGRATION}::test_time[0]",
        f"mend them, or name them in tests/flaky.toml with their cause: {INTEGRATION}::test_time[0]",
    ]
    assert (tmp_path / "results/flaky.txt").read_text() == f"{INTEGRATION}::test_time[0]\n"


def test_what_passes_alone_and_is_known_is_named_and_the_run_passes(tmp_path: Path) -> None:
    status, output = run(tmp_path, entry(f"{INTEGRATION}::test_time[0]"), integration__x=BESIDE_OTHERS, unit__y=FINE)
    assert status == 0, output
    assert output.splitlines()[-1] == f"passed alone, failed beside others: {INTEGRATION}::test_time[0]"
    assert (tmp_path / "results/flaky.txt").read_text() == f"{INTEGRATION}::test_time[0]\n"


def test_another_test_in_the_list_excuses_nothing(tmp_path: Path) -> None:
    status, output = run(tmp_path, entry(f"{INTEGRATION}::test_time[1]"), integration__x=BESIDE_OTHERS)
    assert status == 1, output
    assert "once more, alone" in output


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (entry(f"{INTEGRATION}::test_gone"), "it names a test that does not exist"),
        (entry(f"{INTEGRATION}::test_time[2]"), "it names a test that does not exist"),
        (entry(f"{INTEGRATION}::test_time[0]", date(2026, 1, 1)), "and an entry holds for 14 days"),
        ("".join(entry(f"{INTEGRATION}::test_time[{n % 2}]") for n in range(6)), "6 tests are listed, 5 may be"),
        ("[[test]]\nid = 'x'\n", "Object missing required field `cause`"),
        ("[[test", "Expected"),
    ],
    ids=["unknown", "unknown parameter", "expired", "the sixth", "no cause", "no list"],
)
def test_a_list_that_may_not_stand_fails_the_run_before_it_begins(tmp_path: Path, known: str, said: str) -> None:
    status, output = run(tmp_path, known, integration__x=FINE + BESIDE_OTHERS)
    assert status == 1, output
    (line,) = [one for one in output.splitlines() if one.startswith("tests/flaky.toml: ")]
    assert said in line
    assert "passed" not in output


@pytest.mark.parametrize(
    ("one", "wrong"),
    [
        (FlakyTest("a", "slow", TODAY - timedelta(days=14)), []),
        (
            FlakyTest("a", "slow", TODAY - timedelta(days=15)),
            [f"a is listed since {TODAY - timedelta(days=15)}, and an entry holds for 14 days"],
        ),
        (
            FlakyTest("a", "slow", TODAY + timedelta(days=1)),
            [f"a is listed since {TODAY + timedelta(days=1)}, which is yet to come"],
        ),
        (FlakyTest("a", " ", TODAY), ["a has no cause"]),
    ],
)
def test_what_an_entry_must_be(one: FlakyTest, wrong: list[str]) -> None:
    assert FlakyTests((one,)).faults(TODAY) == wrong


def test_five_entries_may_stand_and_a_sixth_may_not() -> None:
    entries = tuple(FlakyTest(f"{n}", "slow", TODAY) for n in range(6))
    assert FlakyTests(entries[:5]).faults(TODAY) == []
    assert FlakyTests(entries).faults(TODAY) == ["6 tests are listed, 5 may be"]


def test_what_fails_alone_too_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/flaky.txt").write_text("of an earlier run")
    status, output = run(tmp_path, integration__x=BESIDE_OTHERS, integration__z=ALWAYS)
    assert status == 1, output
    assert "passed alone" not in output
    assert not (tmp_path / "results/flaky.txt").exists()


def test_a_unit_test_is_never_run_again(tmp_path: Path) -> None:
    status, output = run(tmp_path, integration__x=BESIDE_OTHERS, unit__y=ONCE)
    assert status == 1, output
    assert "once more" not in output
