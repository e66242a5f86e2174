"""A selection of the scenarios (`make scenarios` plays all of them, with the extender and without)."""

from collections.abc import Iterator, Mapping

import pytest

from tests.scenarios.row import Row
from tests.scenarios.stage import RowResult, played
from tests.scenarios.tables import ROWS

pytestmark = pytest.mark.plane

QUICK = [one for one in ROWS if one.quick]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, RowResult]]:
    """The whole selection, side by side, without the extender."""
    with played(QUICK, extender=False) as found:
        yield found


@pytest.mark.parametrize("row", QUICK, ids=lambda row: row.name)
def test_a_row(row: Row, outcomes: Mapping[str, RowResult]) -> None:
    assert not outcomes[row.name].wrong, outcomes[row.name].wrong


def test_names_of_rows_are_different_and_no_broken_row_is_in_the_selection() -> None:
    assert len({one.name for one in ROWS}) == len(ROWS)
    assert not [one.name for one in QUICK if one.broken]
    assert {one.group for one in QUICK} == {"default", "repair", "spread", "admission"}
    assert not [one.name for one in QUICK if one.extender]
