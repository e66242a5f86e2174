"""What the simulated API server goes by when it judges a request."""

import json
from typing import Any

import pytest

from provisioner.simulator.api_server import ApiServer, covers
from provisioner.simulator.virtual_time import VirtualClock
from provisioner.simulator.wire import request
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


def test_the_pods_of_a_node_are_found_without_a_look_at_others() -> None:
    """Drains ask for them again and again, however many pods there are."""
    server = ApiServer(VirtualClock())

    class Others(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("everybody was looked at")

        values = items

    server.objects["pods"] = Others()
    for number in range(6):
        meta = {"name": f"web-{number}", "namespace": "default"}
        server.store("pods", {"metadata": meta, "spec": {"nodeName": "one"} if number < 3 else {}, "status": {}})
    server.change("pods", "web-5", {"spec": {"nodeName": "one"}}, "default")
    server.change("pods", "web-0", {"status": {"phase": "Running"}}, "default")
    server.drop("pods", "web-1", "default")
    assert [one["metadata"]["name"] for one in server.pods_on("one")] == ["web-0", "web-2", "web-5"]
    sent = request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done", None, "", 0.0)
    listed = json.loads(server.answer(sent, None).data)["items"]
    assert [one["metadata"]["name"] for one in listed] == ["web-0", "web-2", "web-5"]
    for name in ("web-0", "web-2", "web-5"):
        server.drop("pods", name, "default")
    assert server.pods_on("one") == []
