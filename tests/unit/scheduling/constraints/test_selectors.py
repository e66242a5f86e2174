"""Which pods a term means."""

import pytest

from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import SelectedPeers, holds, label_set, read_selector


def expression(operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator=operator, values=values),))


CASES: dict[str, tuple[LabelSelector | None, dict[str, str], bool]] = {
    "an absent selector means nothing": (None, {"app": "a"}, False),
    "an empty selector means everything": (LabelSelector(), {}, True),
    "labels must be equal": (LabelSelector(match_labels={"app": "a"}), {"app": "b"}, False),
    "In wants one of the values": (expression("In", "a", "b"), {"app": "b"}, True),
    "In wants the label": (expression("In", "a"), {}, False),
    "NotIn is content without the label": (expression("NotIn", "a"), {}, True),
    "NotIn refuses the value": (expression("NotIn", "a"), {"app": "a"}, False),
    "Exists wants the label": (expression("Exists"), {"app": ""}, True),
    "DoesNotExist refuses it": (expression("DoesNotExist"), {"app": ""}, False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_selectors(case: tuple[LabelSelector | None, dict[str, str], bool]) -> None:
    selector, labels, want = case
    assert holds(read_selector(selector, "here"), labels) is want


@pytest.mark.parametrize("selector", [expression("Gt", "1"), expression("In"), expression("Exists", "a")])
def test_what_cannot_be_read_says_where(selector: LabelSelector) -> None:
    with pytest.raises(FilterError, match=r"^here\.matchExpressions\[0\]"):
        read_selector(selector, "here")


def test_equal_selectors_are_equal_however_they_are_written() -> None:
    written = LabelSelector(match_labels={"app": "a"})
    assert read_selector(written, "") == read_selector(expression("In", "a"), "")


def test_namespaces_by_name_and_by_label() -> None:
    spaces = {"prod": {"tier": "prod"}, "dev": {}}
    by_label = read_selector(LabelSelector(match_labels={"tier": "prod"}), "")
    peers = SelectedPeers(frozenset({"dev"}), (), by_label)
    assert [peers.include(label_set(one, {}), spaces) for one in ("prod", "dev", "other")] == [True, True, False]


def test_equal_label_sets_are_one_object() -> None:
    assert label_set("a", {"x": "1", "y": "2"}) is label_set("a", {"y": "2", "x": "1"})
    assert label_set("a", {}) is not label_set("b", {})


def test_labels_that_differ_between_brothers_are_told() -> None:
    selector = read_selector(LabelSelector(match_labels={"statefulset.kubernetes.io/pod-name": "db-0", "app": "a"}), "")
    assert SelectedPeers(frozenset(), selector).per_pod_labels == {"statefulset.kubernetes.io/pod-name"}
