"""The webhook configuration and its address."""

from typing import Any

import pytest

from provisioner.apis.cel import compiled
from webhook.registration import (
    VALIDATE_PATH,
    RegistrationError,
    url_client,
    validating_configuration,
    webhook_configuration,
)


def behind_a_service(path: str) -> dict[str, Any]:
    return {"service": {"name": "dovetail-webhook", "namespace": "dv", "path": path, "port": 443}}


def test_a_url_gets_the_path() -> None:
    assert url_client("https://127.0.0.1:8443") == {"url": "https://127.0.0.1:8443/mutate"}
    assert url_client("https://[::1]:8443/") == {"url": "https://[::1]:8443/mutate"}
    assert url_client("https://host/other") == {"url": "https://host/other"}


def test_the_validating_webhook_stands_beside_the_other() -> None:
    for url in ("https://h:1", "https://h:1/", "https://h:1/mutate", "https://h:1/mutate/"):
        assert url_client(url, VALIDATE_PATH) == {"url": "https://h:1/validate"}
    assert url_client("https://h:1/under/mutate", VALIDATE_PATH) == {"url": "https://h:1/under/validate"}


def test_validation_fails_open_and_leaves_status_deletions_and_claims_of_pools_alone() -> None:
    document = validating_configuration(behind_a_service(VALIDATE_PATH))
    (hook,) = document["webhooks"]
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 2, "None")
    assert {one for rule in hook["rules"] for one in rule["operations"]} == {"CREATE", "UPDATE"}
    assert [one for rule in hook["rules"] for one in rule["resources"]] == [
        "nodepools",
        "nodeclaims",
        "nodeoverlays",
        "ec2nodeclasses",
    ]
    assert [one["name"] for one in hook["matchConditions"]] == [
        "changes-the-spec",
        "not-being-deleted",
        "not-of-a-nodepool",
    ]


LIMIT = "dovetail.dev/max-usd-per-hour"
UPDATES = {
    "a label": ({"labels": {"a": "b"}}, False),
    "another annotation": ({"annotations": {"a": "b"}}, False),
    "a new spending limit": ({"annotations": {LIMIT: "cheap"}}, True),
    "a new number of pods": ({"annotations": {LIMIT: "12.5", "dovetail.dev/max-pods-per-workload": "some"}}, True),
}


@pytest.mark.parametrize(("metadata", "judged"), UPDATES.values(), ids=UPDATES)
def test_an_update_of_what_is_judged_is_asked_for(metadata: dict[str, Any], *, judged: bool) -> None:
    (hook,) = validating_configuration(behind_a_service("/mutate"))["webhooks"]
    asks = compiled(hook["matchConditions"][0]["expression"])
    spec = {"weight": 1}
    for before, expected in (({}, judged), (metadata, False), ({"annotations": {LIMIT: "12.5"}}, judged)):
        scope = {
            "request": {"operation": "UPDATE"},
            "object": {"metadata": metadata, "spec": spec},
            "oldObject": {"metadata": before, "spec": spec},
        }
        assert asks(scope) is expected


BAD = {
    "plain http": "http://127.0.0.1:8443",
    "no scheme": "127.0.0.1:8443",
    "no host": "https://",
    "a query": "https://h:1/mutate?x=1",
    "a user": "https://a@h:1",
    "a port that is no number": "https://h:port",
    "a broken address": "https://[::1",
}


@pytest.mark.parametrize("url", BAD.values(), ids=BAD)
def test_a_bad_url_is_refused(url: str) -> None:
    with pytest.raises(RegistrationError, match="URL"):
        url_client(url)


def test_the_configuration_fails_open_and_spares_the_system() -> None:
    document = webhook_configuration(behind_a_service("/mutate"), "dv")
    (hook,) = document["webhooks"]
    assert document["metadata"]["name"] == "dovetail-webhook"
    assert hook["clientConfig"]["service"]["path"] == "/mutate"
    assert "caBundle" not in hook["clientConfig"]
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 2, "None")
    assert hook["reinvocationPolicy"] == "IfNeeded"
    assert hook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]
    by_name, by_label = hook["namespaceSelector"]["matchExpressions"]
    assert by_name["values"] == ["kube-system", "kube-node-lease", "dv"]
    assert (by_label["operator"], by_label["values"]) == ("NotIn", ["disabled"])
    assert len({condition["name"] for condition in hook["matchConditions"]}) == 5
