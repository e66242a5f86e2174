"""What the API server and its admission make of a template; tests/integration/test_templates.py asks a real one about the same rows."""

import pytest

from provisioner.apis.templates import Admission, admitted
from provisioner.values.taints import Toleration
from tests.support.admissions import NAMESPACE, ROWS, Row

NAMES = {"runtime": "kata", "priority": "important"}
KATA = Toleration(key="sandbox", value="kata", effect="NoSchedule")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_template_asks_for_what_its_pod_will(row: Row) -> None:
    made = admitted(row.template(NAMES), NAMESPACE, row.admission(NAMES))
    assert (made.refusal, made.unknown) == ("", ())
    assert dict(made.shape(NAMESPACE).requests) == row.want


def test_a_runtime_class_selects_nodes() -> None:
    row = ROWS["a RuntimeClass with overhead, selector and tolerations"]
    shape = admitted(row.template(NAMES), NAMESPACE, row.admission(NAMES)).shape(NAMESPACE)
    assert shape.node_selector == {"tier": "gold", "sandbox": "kata"}
    assert KATA in shape.tolerations


def test_a_priority_class_gives_its_value_and_policy() -> None:
    row = ROWS["a PriorityClass"]
    shape = admitted(row.template(NAMES), NAMESPACE, row.admission(NAMES)).shape(NAMESPACE)
    assert (shape.priority, shape.preemption_policy) == (1000, "Never")


UNKNOWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "a RuntimeClass": ("a RuntimeClass with overhead, selector and tolerations", ("RuntimeClass kata",)),
    "a PriorityClass": ("a PriorityClass", ("PriorityClass important",)),
    "both": ("all at once", ("PriorityClass important", "RuntimeClass kata")),
}


@pytest.mark.parametrize(("row", "unknown"), UNKNOWN.values(), ids=UNKNOWN)
def test_classes_that_nobody_knows_are_named_and_the_rest_counts(row: str, unknown: tuple[str, ...]) -> None:
    made = admitted(ROWS[row].template(NAMES), NAMESPACE, Admission())
    assert made.unknown == unknown
    assert made.shape(NAMESPACE).requests["cpu"] > 0


REFUSED: dict[str, tuple[Row, str]] = {
    "another overhead than the RuntimeClass's": (
        Row(
            {"containers": [], "runtimeClassName": "{runtime}", "overhead": {"cpu": "1"}},
            {},
            runtime={"overhead": {"podFixed": {"cpu": "2"}}},
        ),
        "spec.overhead differs from that of RuntimeClass kata",
    ),
    "another selector than the RuntimeClass's": (
        Row(
            {"containers": [], "runtimeClassName": "{runtime}", "nodeSelector": {"a": "b"}},
            {},
            runtime={"scheduling": {"nodeSelector": {"a": "c"}}},
        ),
        "RuntimeClass kata selects nodes with a=c, but spec.nodeSelector has a=b",
    ),
}


@pytest.mark.parametrize(("row", "why"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_server_refuses_is_said(row: Row, why: str) -> None:
    assert why in admitted(row.template(NAMES), NAMESPACE, row.admission(NAMES)).refusal


def test_the_same_overhead_in_other_words_is_no_other() -> None:
    spec = {"containers": [], "runtimeClassName": "{runtime}", "overhead": {"cpu": "1000m"}}
    row = Row(spec, {}, runtime={"overhead": {"podFixed": {"cpu": "1"}}})
    assert not admitted(row.template(NAMES), NAMESPACE, row.admission(NAMES)).refusal
