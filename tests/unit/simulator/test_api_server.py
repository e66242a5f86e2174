"""What the simulated API server goes by when it judges a request."""

from typing import Any

import pytest

from provisioner.simulator.api_server import covers
from tests.unit.simulator.days import budget


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "gold"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({}, True),
        (None, False),
    ],
)
def test_whom_a_budget_covers(selector: dict[str, Any] | None, covered: bool) -> None:
    one = budget("web")
    one["spec"]["selector"] = selector
    meta = {"name": "web-0", "namespace": "default", "labels": {"app": "web"}}
    assert covers(one, {"metadata": meta}) is covered
    assert not covers(one, {"metadata": {**meta, "namespace": "shop"}})


def test_a_budget_without_a_selector_covers_nobody() -> None:
    one = budget("web")
    pod = {"metadata": {"name": "web-0", "namespace": "default"}}
    for spec in ({"maxUnavailable": 1}, None):
        assert not covers({**one, "spec": spec}, pod)
    assert not covers({"metadata": one["metadata"]}, pod)
