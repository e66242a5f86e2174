"""Planned placement: counted per class and node."""

import math
from collections import Counter

import pytest

from provisioner.apis.plan import Plan, PlanEntry
from provisioner.lab.harness.placement import LatestPlans, Placement


def plan(**pods: str) -> Plan:
    """A plan of the given pods: uid=class."""
    entries = [PlanEntry(owner="rs", klass=klass, count=1, uids=(uid,)) for uid, klass in sorted(pods.items())]
    return Plan(pods=tuple(entries))


def pods(**nodes: str) -> Counter[tuple[str, str]]:
    """Pods of class x on the given nodes: uid=node."""
    return Counter((node, "x") for node in nodes.values() if node)


NODES = {"claim/1": "n1", "claim/2": "n2"}
CASES = {
    "every pod on its node": (
        [("claim/1", plan(a="x")), ("claim/2", plan(b="x"))],
        pods(a="n1", b="n2"),
        Placement(planned=2, on_plan=2, absorbed=0, unbound=0),
    ),
    "brothers that swapped their nodes are on plan": (
        [("claim/1", plan(a="x")), ("claim/2", plan(b="x"))],
        pods(a="n2", b="n1"),
        Placement(2, 2, 0, 0),
    ),
    "pods of different classes that swapped are not": (
        [("claim/1", plan(a="x")), ("claim/2", plan(b="y"))],
        Counter([("n2", "x"), ("n1", "y")]),
        Placement(2, 0, 2, 0),
    ),
    "two on a node that was planned for one": (
        [("claim/1", plan(a="x")), ("claim/2", plan(b="x"))],
        pods(a="n1", b="n1"),
        Placement(2, 1, 1, 0),
    ),
    "a recreated pod takes its brother's place": (
        [("claim/1", plan(a="x"))],
        pods(c="n1"),
        Placement(1, 1, 0, 0),
    ),
    "a pod without plan neither helps nor harms": (
        [("claim/1", plan(a="x"))],
        Counter([("n1", "x"), ("n2", "z")]),
        Placement(1, 1, 0, 0),
    ),
    "an unbound pod is not on plan": ([("claim/1", plan(a="x"))], pods(a=""), Placement(1, 0, 0, 1)),
    "a claim that never got a node brings nobody home": (
        [("claim/9", plan(a="x"))],
        pods(a="n1"),
        Placement(1, 0, 1, 0),
    ),
    "planned again on another claim counts once, there": (
        [("claim/9", plan(a="x")), ("claim/2", plan(a="x"))],
        pods(a="n2"),
        Placement(1, 1, 0, 0),
    ),
    "taking a pod off a plan does not take it out of the figure": (
        [("claim/1", plan(a="x", b="x")), ("claim/1", plan(a="x"))],
        pods(a="n1", b="n2"),
        Placement(2, 1, 1, 0),
    ),
    "a count beyond the uids counts": (
        [("claim/1", Plan(pods=(PlanEntry(owner="rs", klass="x", count=3, uids=("a",)),)))],
        pods(a="n1", b="n1", c="n2"),
        Placement(3, 2, 1, 0),
    ),
    "nothing planned": ([], pods(a="n1"), Placement(0, 0, 0, 0)),
}


@pytest.mark.parametrize(("plans", "placed", "want"), CASES.values(), ids=CASES)
def test_judge(plans: list[tuple[str, Plan]], placed: Counter[tuple[str, str]], want: Placement) -> None:
    table = LatestPlans()
    for source, entry in plans:
        table.add(source, entry)
    assert table.judge(placed, NODES) == want


def test_a_plan_told_twice_counts_once() -> None:
    table = LatestPlans()
    anonymous = Plan(pods=(PlanEntry(owner="rs", klass="x", count=2, uids=()),))
    for _ in range(2):
        table.add("claim/1", anonymous)
        table.add("claim/1", plan(a="y"))
    assert table.judge(Counter(), NODES).planned == 3


def test_percent_is_of_the_planned_pods() -> None:
    assert Placement(planned=4, on_plan=3, absorbed=1, unbound=0).percent == 75


def test_without_a_plan_there_is_no_percentage() -> None:
    assert math.isnan(Placement(0, 0, 0, 0).percent)
