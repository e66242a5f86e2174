"""Budgets are found by labels, as if each had been asked, and hardly any is."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from provisioner.apis.budget_index import BudgetIndex, PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.meta import selects
from tests.support.clock import NOON
from tests.support.cluster import pod, pod_budget


def budget(name: str, selector: Mapping[str, Any] | None) -> PodDisruptionBudget:
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"selector": selector}}, PodDisruptionBudget, strict=False
    )


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


SELECTORS: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "a", "tier": "x"}},
    {"matchLabels": {"tier": "y"}, **expression("app", "In", "a", "b")},
    expression("app", "In", "a", "a", "b"),
    expression("app", "In", *"abcdefghijk"),
    expression("app", "In"),
    expression("app", "NotIn", "a"),
    expression("app", "Exists"),
    expression("app", "DoesNotExist"),
    expression("app", "Unknown"),
)


def test_whom_the_index_finds_is_whom_the_selectors_select() -> None:
    budgets = tuple(budget(f"b{number:02}", one) for number, one in enumerate(SELECTORS))
    for app, tier in itertools.product(("", "a", "b", "z"), ("", "x", "y")):
        labels = {key: value for key, value in (("app", app), ("tier", tier)) if value}
        want = tuple(one for one in budgets if selects(one.spec.selector, labels))
        assert BudgetIndex(budgets).selecting(labels) == want
        assert BudgetIndex(reversed(budgets)).selecting(labels) == want, "they come by name"


def test_the_index_tells_every_label_key_that_a_budget_looks_at() -> None:
    one = budget("b", {"matchLabels": {"app": "a"}, **expression("tier", "DoesNotExist")})
    assert BudgetIndex((one, budget("none", None))).keys == {"app", "tier"}


class Counted(Mapping[str, str]):
    """Labels that count how often one of them is looked up."""

    def __init__(self, **labels: str) -> None:
        self.labels, self.asked = labels, 0

    def __getitem__(self, key: str) -> str:
        self.asked += 1
        return self.labels[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)


@pytest.mark.parametrize(
    "selector",
    [
        lambda name: {"matchLabels": {"component": "server", "instance": name}},
        lambda name: {"matchLabels": {"component": "server"}, **expression("instance", "In", name, f"{name}-canary")},
        lambda name: expression("instance", "In", name),
    ],
    ids=["labels", "a label and an expression", "an expression"],
)
def test_a_label_that_all_budgets_demand_costs_no_look_at_all_of_them(selector: Any) -> None:
    index = BudgetIndex(budget(f"b{number}", selector(f"r{number}")) for number in range(100))
    labels = Counted(component="server", instance="r7")
    assert [one.metadata.name for one in index.selecting(labels)] == ["b7"]
    assert labels.asked < 10


def of_all(name: str, allowed: int) -> PodDisruptionBudget:
    return pod_budget(name, allowed=allowed)


ALLOWS, REFUSES = of_all("allows", 1), of_all("refuses", 0)
HOLDING = {
    "no budget": ((), {}, 0),
    "one that allows it": ((ALLOWS,), {}, 0),
    "one that refuses it": ((REFUSES,), {}, 1),
    "several, whatever they allow": ((ALLOWS, of_all("too", 1)), {}, 2),
    "several, one of which refuses it": ((ALLOWS, REFUSES), {}, 2),
    "a pod that has not started": ((ALLOWS, REFUSES), {"phase": "Pending"}, 0),
    "a pod that is done": ((ALLOWS, REFUSES), {"phase": "Succeeded"}, 0),
    "a pod that ends": ((ALLOWS, REFUSES), {"deleted": NOON}, 0),
}


@pytest.mark.parametrize(("budgets", "changes", "count"), HOLDING.values(), ids=HOLDING)
def test_what_the_eviction_api_refuses_a_pod_for(
    budgets: tuple[PodDisruptionBudget, ...], changes: dict[str, Any], count: int
) -> None:
    """The one answer for drains, candidates, the last look, `why`, and the repair of shares."""
    asked, one = PodBudgets({"default": budgets}), pod("web", node="n", ready=True, **changes)
    assert len(asked.holding(one)) == count
    starting = changes.get("phase") == "Pending"
    assert len(asked.holding(one, soon=True)) == (len(budgets) if starting else count), "once it has started"
