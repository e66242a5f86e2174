"""What a pod asks of a node, read from its spec."""

import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.pods import PodShape
from provisioner.apis.selections import MOST_ELEMENTS, MOST_EXPRESSIONS, MOST_VALUES
from provisioner.apis.shapes import shape_of
from provisioner.scheduling.constraints.demands import facts_of
from provisioner.scheduling.constraints.filters import ANYWHERE, FilterError, NodeFilter, check_counts, node_filter
from provisioner.values.taints import Toleration
from tests.support.problems import app, pod, pool, problem, requirements, shape, term
from tests.support.question import solve

ZONE = names.ZONE_LABEL


def test_a_pod_that_asks_for_nothing_shares_one_filter() -> None:
    assert node_filter(shape()) is ANYWHERE
    assert ANYWHERE.unconditional


def test_tolerations_make_another_filter() -> None:
    anything = Toleration(operator="Exists")
    read = node_filter(shape(tolerations=[anything]))
    assert read == NodeFilter(tolerations=(anything,))
    assert read.unconditional


def test_the_selector_is_part_of_every_term() -> None:
    read = node_filter(shape(selector={"disk": "ssd"}, terms=[term((ZONE, "In", ["a"])), term((ZONE, "In", ["b"]))]))
    assert [one.requirements for one in read.terms] == [
        requirements(("disk", "In", ["ssd"]), (ZONE, "In", ["a"])),
        requirements(("disk", "In", ["ssd"]), (ZONE, "In", ["b"])),
    ]
    assert not read.unconditional


def test_equal_terms_count_once() -> None:
    read = node_filter(shape(terms=[term((ZONE, "In", ["a", "b"])), term((ZONE, "In", ["b", "a"]))]))
    assert len(read.terms) == 1


def test_legacy_keys_are_read_as_stable_ones() -> None:
    read = node_filter(shape(terms=[term(("failure-domain.beta.kubernetes.io/zone", "In", ["a"]))]))
    assert [*read.terms[0].requirements] == [ZONE]


def test_match_fields_are_kept_apart_from_labels() -> None:
    read = node_filter(
        shape(terms=[term(fields=[("metadata.name", "In", ["n1", "n2"]), ("metadata.name", "NotIn", ["n2"])])])
    )
    (one,) = read.terms
    assert not one.requirements
    assert one.matches({}, "n1")
    assert not one.matches({}, "n2")
    assert not one.new_nodes


@pytest.mark.parametrize(
    ("labels", "want"),
    [({}, False), ({"disk": "ssd"}, True), ({"disk": "hdd"}, False), ({"disk": "ssd", "more": "x"}, True)],
)
def test_a_term_matches_labels(labels: dict[str, str], want: bool) -> None:
    (one,) = node_filter(shape(selector={"disk": "ssd"})).terms
    assert one.matches(labels, "n1") is want


BAD = {
    "a bound that is no number": (term((ZONE, "Gt", ["x"])), "matchExpressions[0].values"),
    "In without values": (term((ZONE, "In", [])), "matchExpressions[0].values"),
    "an empty key": (term((ZONE, "In", ["a"]), ("", "In", ["a"])), "matchExpressions[1].key"),
    "a field that is no name": (term(fields=[("spec.unschedulable", "In", ["true"])]), "matchFields[0].key"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_named(case: tuple[object, str]) -> None:
    bad, field = case
    with pytest.raises(FilterError) as caught:
        node_filter(shape(terms=[term((ZONE, "In", ["a"])), bad]))  # type: ignore[list-item]
    assert f"nodeSelectorTerms[1].{field}" in str(caught.value)


def long_lists(count: int) -> dict[str, PodShape]:
    numbers = range(count)
    peers = tuple(PodAffinityTerm(topology_key=f"key-{number}", label_selector=app("web")) for number in numbers)
    spreads = tuple(TopologySpreadConstraint(max_skew=1, topology_key=f"key-{number}") for number in numbers)
    return {
        "nodeSelectorTerms": shape(terms=[term((ZONE, "NotIn", [f"zone-{number}"])) for number in numbers]),
        "tolerations": shape(tolerations=[Toleration(key=f"k{number}") for number in numbers]),
        "podAffinity": shape(affinity=Affinity(pod_affinity=PodAffinity(required=peers))),
        "podAntiAffinity": shape(affinity=Affinity(pod_anti_affinity=PodAffinity(required=peers))),
        "topologySpreadConstraints": shape(topology_spread_constraints=spreads),
        "hostPort": listening(count),
    }


def listening(count: int) -> PodShape:
    """A pod of two containers that take so many ports of the node together."""
    ports = [ContainerPort(host_port=1 + number) for number in range(count)]
    containers = (Container(name="one", ports=tuple(ports[::2])), Container(name="two", ports=tuple(ports[1::2])))
    return shape_of(PodSpec(containers=containers), namespace="default", labels={})


@pytest.mark.parametrize("kind", long_lists(0))
def test_a_list_that_would_keep_everybody_waiting_is_refused(kind: str) -> None:
    check_counts(long_lists(MOST_ELEMENTS)[kind])
    with pytest.raises(FilterError, match=rf"{kind}.*: has 257 elements; only pods with at most 256 are planned"):
        check_counts(long_lists(MOST_ELEMENTS + 1)[kind])


@pytest.mark.parametrize("kind", long_lists(0))
def test_a_pod_with_a_list_that_is_too_long_is_not_planned_and_a_running_one_counts(kind: str) -> None:
    long = long_lists(MOST_ELEMENTS + 1)[kind]
    (left,) = solve(problem((pod("long", long),), pool())).unplaced
    assert f"{kind}" in str(left.reasons[0])
    assert "has 257 elements" in str(left.reasons[0])
    facts_of(long)  # as a running pod it is what it is


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def by_expressions(count: int) -> dict[str, PodShape]:
    """Shapes whose selectors have so many expressions, each in another place."""
    keys = [f"key-{number}" for number in range(count)]
    labels = LabelSelector(match_labels=dict.fromkeys(keys[1:], "x"))  # one more is beside it
    spread = TopologySpreadConstraint(topology_key="k", label_selector=labels, match_label_keys=("app",))
    peers = PodAffinityTerm(topology_key="k", label_selector=labels, namespaces=("one",))
    others = PodAffinityTerm(topology_key="k", namespace_selector=labels, mismatch_label_keys=("app",))
    absent = term(*[(key, "DoesNotExist", []) for key in keys])
    wish = PreferredSchedulingTerm(weight=1, preference=absent)
    weighted = WeightedPodAffinityTerm(weight=1, pod_affinity_term=peers)
    return {
        "spec.nodeSelector": shape(selector=dict.fromkeys(keys, "x")),
        "spec.topologySpreadConstraints": shape(topology_spread_constraints=(spread,)),
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms": shape(terms=[absent]),
        f"spec.affinity.nodeAffinity.{PREFERRED}": near_nodes(wish),
        f"spec.affinity.podAffinity.{REQUIRED}": shape(affinity=Affinity(pod_affinity=PodAffinity(required=(peers,)))),
        f"spec.affinity.podAntiAffinity.{REQUIRED}": far_from(PodAffinity(required=(others,))),
        f"spec.affinity.podAntiAffinity.{PREFERRED}": far_from(PodAffinity(preferred=(weighted,))),
    }


def by_values(count: int) -> dict[str, PodShape]:
    """The same of values."""
    values = [f"value-{number}" for number in range(count)]
    labels = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="In", values=tuple(values)),))
    spread = TopologySpreadConstraint(topology_key="k", label_selector=labels)
    peers = PodAffinityTerm(topology_key="k", label_selector=labels)
    return {
        "spec.topologySpreadConstraints": shape(topology_spread_constraints=(spread,)),
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms": shape(terms=[term((ZONE, "NotIn", values))]),
        f"spec.affinity.podAntiAffinity.{REQUIRED}": far_from(PodAffinity(required=(peers,))),
    }


def near_nodes(wish: PreferredSchedulingTerm) -> PodShape:
    return shape(affinity=Affinity(node_affinity=NodeAffinity(preferred=(wish,))))


def far_from(peers: PodAffinity) -> PodShape:
    return shape(affinity=Affinity(pod_anti_affinity=peers))


def refusal(one: PodShape) -> str:
    with pytest.raises(FilterError) as refused:
        check_counts(one)
    return str(refused.value)


@pytest.mark.parametrize("where", by_expressions(1))
def test_selectors_of_so_many_expressions_that_everybody_would_wait_are_refused(where: str) -> None:
    check_counts(by_expressions(MOST_EXPRESSIONS)[where])
    assert refusal(by_expressions(MOST_EXPRESSIONS + 1)[where]) == (
        f"{where}: has 513 of the 513 expressions in the pod's selectors; only pods with at most 512 are planned"
    )


@pytest.mark.parametrize("where", by_values(1))
def test_selectors_of_so_many_values_that_everybody_would_wait_are_refused(where: str) -> None:
    check_counts(by_values(MOST_VALUES)[where])
    assert refusal(by_values(MOST_VALUES + 1)[where]) == (
        f"{where}: has 2049 of the 2049 values in the pod's selectors; only pods with at most 2048 are planned"
    )


def test_the_node_selector_counts_once_for_each_node_selector_term() -> None:
    selector = {f"key-{number}": "x" for number in range(16)}
    check_counts(shape(selector=selector, terms=[term((ZONE, "Exists", []))] * 30))  # 480 and 30
    assert "spec.nodeSelector: has 496 of the 527 expressions" in refusal(
        shape(selector=selector, terms=[term((ZONE, "Exists", []))] * 31)
    )


def test_selectors_count_together_and_the_longest_is_named() -> None:
    listed = [f"zone-{number}" for number in range(1024)]
    terms = [term((ZONE, "NotIn", listed)), term((ZONE, "NotIn", [*listed, "one more"]))]
    assert "nodeSelectorTerms: has 2049 of the 2049 values" in refusal(shape(terms=terms))
    both = shape(selector={"disk": "ssd"}, terms=[term(*[(f"k{n}", "Exists", []) for n in range(MOST_EXPRESSIONS)])])
    assert "nodeSelectorTerms: has 512 of the 513 expressions" in refusal(both)


def test_a_pod_with_endless_selectors_does_not_keep_others_waiting() -> None:
    endless = shape(terms=[term(*[(f"k{n}", "DoesNotExist", []) for n in range(10_000)], ("z", "In", ["q"]))])
    result = solve(problem((pod("endless", endless), pod("other")), pool()))
    (left,) = result.unplaced
    assert left.pod.name == "endless"
    assert "has 10001 of the 10001 expressions" in str(left.reasons[0])


def test_a_long_list_of_instance_types_is_planned() -> None:
    types = [f"c{number}.large" for number in range(1000)]
    listing = shape(terms=[term((names.INSTANCE_TYPE_LABEL, "In", types), (ZONE, "In", ["a"]))])
    check_counts(listing)
    assert len(node_filter(listing).terms) == 1
