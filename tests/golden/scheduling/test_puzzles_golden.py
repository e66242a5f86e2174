"""Puzzles that no fixed order of classes and places solves: what a search over the solver's choices finds."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.pods import PodShape
from tests.support.golden import Row, check, row
from tests.support.problems import (
    app,
    instance_type,
    near,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
)

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
ABC = ("a", "b", "c")
TINY = instance_type("tiny", "1", "2Gi", 0.6, zones=ABC)
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ABC)
LARGE = instance_type("large", "8", "16Gi", 4.0, zones=ABC)
X = app("x")


def friend(**more: Any) -> PodShape:
    """Of a pod that wants to be on a machine with pods like it."""
    return of_app("x", affinity=near(HOST, X), **more)


ROWS: dict[str, Row] = {
    "friends of one machine go to the pool whose machines hold them all": row(
        problem(pods(2, friend(selector={ZONE: "a"}), "p"), pool("big", types=(SMALL,)), pool("first", types=(TINY,))),
        "1 machine", "nothing left"),
    "friends of one machine leave the machine of now that only holds some of them": row(
        problem([*pods(2, friend(cpu="2"), "p"), pod("q", friend())], pool(types=(SMALL, LARGE)), bins=[node("n", "4")]),
        "1 machine", "nothing left"),
    "a pod that may only be in one zone has its friend come there, with room for both": row(
        problem([pod("p", of_app("x", "1500m")), pod("q", of_app("y", affinity=near(HOST, X), selector={ZONE: "a"}))],
                pool(types=(SMALL, LARGE)), bins=[node("n", "2", labels={ZONE: "b"})]),
        "p q together", "p has zone=a"),
    "friends are shared out over those who need one each": row(
        problem([*pods(2, of_app("x"), "p"), *pods(2, of_app("y", affinity=near(HOST, X)), "q")], pool(types=(SMALL,))),
        "2 machines", "nothing left"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
