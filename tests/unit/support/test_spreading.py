"""Which integration tests share a process, which begin first, and that every name in the tables is a module's."""

from pathlib import Path

import pytest

from tests.support import spreading
from tests.support.spreading import rank_of, unit_of

INTEGRATION = Path(__file__).parents[2] / "integration"
WAITING = "tests/integration/test_aws_launch_once.py"


def test_every_name_is_a_module() -> None:
    named = {*spreading.APART, *spreading.BY_FIRST_PARAMETER, *spreading.PIECES}
    assert named <= {path.stem for path in INTEGRATION.glob("test_*.py")}


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("tests/integration/test_crds.py::test_a[x-y]", "tests/integration/test_crds.py::test_b", True),
        ("tests/integration/test_crds.py::test_a", "tests/integration/test_certs.py::test_a", False),
        ("tests/integration/test_demo.py::test_a[x]", "tests/integration/test_demo.py::test_a[y]", False),
        (
            "tests/integration/test_nomination.py::test_a[all off-61 pods]",
            "tests/integration/test_nomination.py::test_a[all off-70 pods - of two]",
            True,
        ),
        (
            "tests/integration/test_nomination.py::test_a[all off-61 pods]",
            "tests/integration/test_nomination.py::test_a[everything on-61 pods]",
            False,
        ),
    ],
)
def test_who_shares_a_process(one: str, other: str, together: bool) -> None:
    assert (unit_of(one) == unit_of(other)) is together


def test_a_module_in_pieces_is_dealt_out_evenly_and_the_same_way_in_every_process() -> None:
    units = [unit_of(f"{WAITING}::test_a[{number}]") for number in range(400)]
    assert unit_of(f"{WAITING}::test_a[7]") == units[7]
    assert len(set(units)) == spreading.PIECES["test_aws_launch_once"]
    assert min(units.count(one) for one in set(units)) >= 60


def test_the_longest_begin_first_what_is_new_before_them_and_what_needs_no_control_plane_last() -> None:
    seconds = {"tests/integration/test_crds.py": 70.0, f"{WAITING}::0": 90.0, f"{WAITING}::1": 50.0}
    waiting = {unit_of(one): one for one in (f"{WAITING}::test_a[{number}]" for number in range(20))}
    order = [
        "tests/integration/test_new.py::test_a",
        waiting[f"{WAITING}::0"],
        "tests/integration/test_crds.py::test_a[x]",
        waiting[f"{WAITING}::1"],
        "tests/unit/test_demo.py::test_a",
    ]
    ranks = [rank_of(one, seconds) for one in order]
    assert ranks == sorted(set(ranks))
    assert rank_of("tests/integration/test_newer.py::test_b", seconds) == ranks[0]
    assert rank_of("tests/property/test_a.py::test_b", {"tests/property/test_a.py": 900.0}) == ranks[-1]
