"""Label selectors, conditions and how objects go over the wire."""

from datetime import UTC, datetime

import msgspec
import pytest

from provisioner.apis.core import DaemonSet, Lease, LeaseSpec, Node, PodDisruptionBudget, Secret, Service, micro_time
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import (
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    condition,
    is_true,
    selector_text,
    selects,
)


def where(operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key="tier", operator=operator, values=values),))


SELECTORS: dict[str, tuple[LabelSelector | None, dict[str, str], bool]] = {
    "an absent selector selects nothing": (None, {}, False),
    "an empty selector selects everything": (LabelSelector(), {"a": "b"}, True),
    "a label that is there": (LabelSelector(match_labels={"a": "b"}), {"a": "b", "c": "d"}, True),
    "a label with another value": (LabelSelector(match_labels={"a": "b"}), {"a": "c"}, False),
    "a label that is missing": (LabelSelector(match_labels={"a": ""}), {}, False),
    "In with the value": (where("In", "web", "db"), {"tier": "db"}, True),
    "In without the label": (where("In", "web"), {}, False),
    "NotIn with the value": (where("NotIn", "web"), {"tier": "web"}, False),
    "NotIn with another value": (where("NotIn", "web"), {"tier": "db"}, True),
    "NotIn without the label": (where("NotIn", "web"), {}, True),
    "Exists with the label": (where("Exists"), {"tier": ""}, True),
    "Exists without the label": (where("Exists"), {}, False),
    "DoesNotExist with the label": (where("DoesNotExist"), {"tier": ""}, False),
    "DoesNotExist without the label": (where("DoesNotExist"), {}, True),
    "an unknown operator": (where("Near", "web"), {"tier": "web"}, False),
    "one of two expressions fails": (
        LabelSelector(match_labels={"a": "b"}, match_expressions=where("Exists").match_expressions),
        {"a": "b"},
        False,
    ),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_selects(name: str) -> None:
    selector, labels, want = SELECTORS[name]
    assert selects(selector, labels) is want


def test_conditions_are_found_by_type() -> None:
    conditions = (Condition(type="A", status="True"), Condition(type="B", status="Unknown"))
    assert condition(conditions, "B") is conditions[1]
    assert condition(conditions, "C") is None
    assert (is_true(conditions, "A"), is_true(conditions, "B"), is_true(conditions, "C")) == (True, False, False)


def test_a_condition_is_written_whole() -> None:
    wire = msgspec.to_builtins(Condition(type="A", status="True"))
    assert wire == {"type": "A", "status": "True", "reason": "", "message": ""}


def test_kind_and_version_are_always_written_and_defaults_never() -> None:
    lease = Lease(metadata=ObjectMeta(name="a"), spec=LeaseSpec(lease_duration_seconds=15))
    assert msgspec.to_builtins(lease) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": {"leaseDurationSeconds": 15},
    }


def test_times_of_leases_have_six_digits_even_when_they_are_zero() -> None:
    assert micro_time(datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)) == "2026-11-21T10:00:00.000000Z"


def test_names_in_capitals_are_read_and_written() -> None:
    node = msgspec.json.decode(
        b'{"spec":{"providerID":"kwok://a"},"status":{"nodeInfo":{"kubeletVersion":"x"}}}', type=Node
    )
    assert (node.spec.provider_id, node.status.node_info.kubelet_version) == ("kwok://a", "x")
    assert b'"providerID":"kwok://a"' in msgspec.json.encode(node)


def test_a_secret_does_not_show_its_values() -> None:
    secret = msgspec.json.decode(b'{"metadata":{"name":"a","namespace":"b"},"data":{"k":"aHVzaA=="}}', type=Secret)
    assert secret.data == {"k": b"hush"}
    assert repr(secret) == "Secret(b/a, keys=['k'])"


def test_a_service_without_selector_differs_from_one_with_an_empty_one() -> None:
    assert msgspec.json.decode(b'{"spec":{}}', type=Service).spec.selector is None
    assert msgspec.json.decode(b'{"spec":{"selector":{}}}', type=Service).spec.selector == {}


def test_a_budget_reads_numbers_and_percentages() -> None:
    budget = msgspec.json.decode(b'{"spec":{"minAvailable":1,"maxUnavailable":"50%"}}', type=PodDisruptionBudget)
    assert (budget.spec.min_available, budget.spec.max_unavailable) == (1, "50%")


def test_a_template_with_a_null_time_decodes() -> None:
    data = b'{"spec":{"template":{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"containers":[]}}}}'
    assert msgspec.json.decode(data, type=DaemonSet).spec.template.metadata.labels == {"a": "b"}


OLD = {
    "values that no rule admits": (
        b'{"metadata":{"name":"a"},"spec":{"weight":7000,"template":{"spec":{"expireAfter":"30d","requirements":'
        b'[{"key":"a b","operator":"Near","minValues":99}],"nodeClassRef":{}}}}}'
    ),
    "fields that nobody knows": (
        b'{"metadata":{"name":"a"},"spec":{"x":1,"template":{"spec":{"kubelet":{},"requirements":[],"nodeClassRef":'
        b'{"apiVersion":"v1","name":"b"}}}}}'
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_an_object_that_breaks_the_rules_still_decodes(name: str) -> None:
    assert msgspec.json.decode(OLD[name], type=NodePool).name == "a"


def test_a_pools_lists_are_the_same_whether_absent_or_empty() -> None:
    template = '"nodeClassRef":{"group":"a","kind":"b","name":"c"},"requirements":[]'
    absent = msgspec.json.decode(f'{{"spec":{{"template":{{"spec":{{{template}}}}}}}}}', type=NodePool)
    empty = msgspec.json.decode(
        f'{{"spec":{{"template":{{"metadata":{{"labels":{{}}}},"spec":{{"taints":[],{template}}}}}}}}}', type=NodePool
    )
    assert (absent.taints, absent.startup_taints, absent.labels, absent.annotations) == ((), (), {}, {})
    assert (empty.taints, empty.labels) == ((), {})
    assert b"taints" not in msgspec.json.encode(absent)
    assert b'"taints":[]' in msgspec.json.encode(empty)


def test_a_claims_pool_is_its_label() -> None:
    data = b'{"metadata":{"name":"a","labels":{"karpenter.sh/nodepool":"p"}},"spec":{"nodeClassRef":{}}}'
    claim = msgspec.json.decode(data, type=NodeClaim)
    assert (claim.name, claim.pool) == ("a", "p")
    assert b'"requirements":[]' in msgspec.json.encode(claim)  # demanded by the schema


TEXTS: dict[str, tuple[LabelSelector, str]] = {
    "labels": (LabelSelector(match_labels={"b": "", "a": "1"}), "a=1,b="),
    "expressions": (
        LabelSelector(
            match_labels={"a": "1"},
            match_expressions=(
                LabelSelectorRequirement(key="c", operator="In", values=("x", "y")),
                LabelSelectorRequirement(key="d", operator="NotIn", values=("z",)),
                LabelSelectorRequirement(key="e", operator="Exists"),
                LabelSelectorRequirement(key="f", operator="DoesNotExist"),
            ),
        ),
        "a=1,c in (x,y),d notin (z),e,!f",
    ),
    "an operator that nobody knows narrows nothing": (
        LabelSelector(match_expressions=(LabelSelectorRequirement(key="c", operator="Like", values=("x",)),)),
        "",
    ),
    "nothing": (LabelSelector(), ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_selector_as_the_api_server_reads_it(name: str) -> None:
    selector, text = TEXTS[name]
    assert selector_text(selector) == text
