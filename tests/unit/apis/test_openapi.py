"""What is said about an object offline is what a real API server says: its table of rows is the judge (tests/integration/test_crds*.py)."""

from typing import Any

import pytest

from provisioner.apis import openapi
from provisioner.apis.openapi import defaulted, definition_of, did_you_mean, violations
from tests.integration import test_crds, test_crds_ec2
from tests.support.definitions import Body, changed

ROWS: dict[str, tuple[Body, tuple[str, ...]]] = {
    **{name: (changed(test_crds.BASES[row.path], row.changes), row.words) for name, row in test_crds.ROWS.items()},
    **{
        f"ec2: {name}": (changed(test_crds_ec2.BASE, changes), words)
        for name, (changes, words) in test_crds_ec2.ROWS.items()
    },
}


def said(body: Body) -> list[str]:
    """Every violation as a line."""
    definition = definition_of(body["apiVersion"], body["kind"])
    assert definition is not None
    return [str(one) for one in violations(definition, defaulted(definition, body))]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_api_server(name: str) -> None:
    body, words = ROWS[name]
    found = said(body)
    if not words:
        assert found == []
        return
    paths = [word for word in words if word.startswith("spec")]
    assert found
    assert all(any(path in line for line in found) for path in paths)


@pytest.mark.parametrize("name", ROWS)
def test_unknown_fields_alone_are_those_among_all_violations(name: str) -> None:
    body, _ = ROWS[name]
    definition = definition_of(body["apiVersion"], body["kind"])
    assert definition is not None
    every = [
        one for one in violations(definition, body) if one.path.startswith("spec") and "unknown field" in one.message
    ]
    assert openapi.unknown_fields(definition, body) == every


def test_a_body_that_is_no_object_has_no_unknown_fields() -> None:
    definition = definition_of("karpenter.sh/v1", "NodePool")
    assert definition is not None
    specs: tuple[Any, ...] = (None, [], "text", {})
    assert [openapi.unknown_fields(definition, {"spec": spec}) for spec in specs] == [[]] * 4


def pool(changes: dict[str, Any]) -> list[str]:
    return said(changed(test_crds.BASES[test_crds.POOLS], changes))


SENTENCES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown field with a close name": (
        {"spec.disruption": {"consolidationPolicy": "WhenEmpty", "consolidateafter": "0s"}},
        ["spec.disruption.consolidateafter: unknown field; did you mean consolidateAfter?"],
    ),
    "a field that belongs elsewhere": (
        {"spec.requirements": []},
        ["spec.requirements: unknown field; did you mean spec.template.spec.requirements?"],
    ),
    "a field that nobody knows": ({"spec.colour": "red"}, ["spec.colour: unknown field"]),
    "a wrong enum": (
        {"spec.disruption": {"consolidationPolicy": "WhenUnderutilized"}},
        [
            (
                'spec.disruption.consolidationPolicy: "WhenUnderutilized" is not supported; use one of WhenEmpty, '
                "WhenEmptyOrUnderutilized, Balanced; did you mean WhenEmptyOrUnderutilized?"
            )
        ],
    ),
    "a number where a string is wanted": (
        {"spec.disruption": {"budgets": [{"nodes": 5}]}},
        ['spec.disruption.budgets[0].nodes: must be a string, not an integer; write "5" in quotes'],
    ),
    "a pattern in words": (
        {"spec.limits": {"cpu": "many"}},
        ['spec.limits.cpu: "many" is not a quantity such as 500m, 2 or 4Gi'],
    ),
    "an integer with a decimal point": ({"spec.limits": {"cpu": 1000.0}}, []),
    "a list that is too long is not looked into": (
        {"spec.disruption": {"budgets": [{"nodes": "5", "reasons": ["Drifted"] * 51}]}},
        ["spec.disruption.budgets[0].reasons: has 51 entries; the maximum is 50"],
    ),
    "a name": (
        {"metadata.name": "General_Pool"},
        [
            (
                "metadata.name: \"General_Pool\" is not a name; use at most 253 lower case letters, digits, '-' and '.', "
                "beginning and ending with a letter or digit"
            )
        ],
    ),
    "metadata": ({"metadata.lables": {}}, ["metadata.lables: unknown field; did you mean labels?"]),
    "a label that is a number": (
        {"metadata.labels": {"team": 7}},
        ['metadata.labels[team]: must be a string, not an integer; write "7" in quotes'],
    ),
    "null is absence": ({"spec.weight": None, "spec.disruption": None}, []),
    "the status is not looked at": ({"status": {"nodes": "many"}}, []),
    "all at once": (
        {
            "spec.weight": 200,
            "spec.template.spec.expireAfter": "soon",
            "spec.template.spec.nodeClassRef": {"group": "g", "kind": "K", "name": ""},
            "spec.template.spec.requirements": [
                {"key": "karpenter.sh/nodepool", "operator": "in", "values": ["a"]},
                {"key": "a", "operator": "Gt", "values": ["x"]},
            ],
        },
        [
            "spec.template.spec.nodeClassRef.name: must not be empty",
            'spec.template.spec.requirements[0].key: label "karpenter.sh/nodepool" is restricted',
            (
                'spec.template.spec.requirements[0].operator: "in" is not supported; use one of In, NotIn, Exists, DoesNotExist, Gt, '
                "Lt, Gte, Lte; did you mean In?"
            ),
            "spec.template.spec.requirements: requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
            'spec.template.spec.expireAfter: "soon" is not a duration such as 30s, 10m or 1h30m, or Never',
            "spec.weight: 200 is more than the maximum 100",
        ],
    ),
}


@pytest.mark.parametrize(("changes", "want"), SENTENCES.values(), ids=SENTENCES)
def test_what_is_said(changes: dict[str, Any], want: list[str]) -> None:
    assert pool(changes) == want


def test_defaults_are_filled_in_before_the_rules_look() -> None:
    definition = definition_of("karpenter.sh/v1", "NodePool")
    assert definition is not None
    before = changed(test_crds.BASES[test_crds.POOLS], {"spec.disruption": {"consolidationPolicy": None}})
    filled = defaulted(definition, before)
    assert filled["spec"]["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert "budgets" not in before["spec"]["disruption"]


def test_a_question_names_the_nearest_word_or_nothing() -> None:
    assert did_you_mean("SPOT", ["spot", "on-demand"]) == "; did you mean spot?"
    assert did_you_mean("zebra", ["spot", "on-demand"]) == ""


def test_few_of_many_unknown_fields_are_compared_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def hint(text: str, _: object) -> str:
        asked.append(text)
        return ""

    monkeypatch.setattr(openapi, "did_you_mean", hint)
    many = {f"field{at}": 1 for at in range(1000)}
    definition = definition_of("karpenter.sh/v1", "NodePool")
    assert definition is not None
    found = violations(definition, {"metadata": {"name": "a", **many}, "spec": many})
    assert sum("unknown field" in one.message for one in found) == 2000
    assert len(asked) == 200
