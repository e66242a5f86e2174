"""What a pod asks of a node, read from its spec."""

import pytest

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from provisioner.apis.pods import PodShape
from provisioner.scheduling.demands import facts_of
from provisioner.scheduling.filters import ANYWHERE, MOST_ELEMENTS, FilterError, NodeFilter, check_counts, node_filter
from provisioner.scheduling.solver import solve
from provisioner.values.taints import Toleration
from tests.support.problems import app, pod, pool, problem, requirements, shape, term

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
    assert read.keys == ("disk", ZONE)
    assert not read.unconditional


def test_equal_terms_count_once() -> None:
    read = node_filter(shape(terms=[term((ZONE, "In", ["a", "b"])), term((ZONE, "In", ["b", "a"]))]))
    assert len(read.terms) == 1


def test_legacy_keys_are_read_as_stable_ones() -> None:
    read = node_filter(shape(terms=[term(("failure-domain.beta.kubernetes.io/zone", "In", ["a"]))]))
    assert read.keys == (ZONE,)


def test_match_fields_are_kept_apart_from_labels() -> None:
    read = node_filter(
        shape(terms=[term(fields=[("metadata.name", "In", ["n1", "n2"]), ("metadata.name", "NotIn", ["n2"])])])
    )
    (one,) = read.terms
    assert not one.requirements
    assert one.matches({}, "n1")
    assert not one.matches({}, "n2")
    assert not one.new_nodes
    assert read.named


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
    }


@pytest.mark.parametrize("kind", long_lists(0))
def test_a_list_that_would_keep_everybody_waiting_is_refused(kind: str) -> None:
    check_counts(long_lists(MOST_ELEMENTS)[kind])
    with pytest.raises(FilterError, match=rf"{kind}.*: has 257 elements; pods with at most 256 are planned"):
        check_counts(long_lists(MOST_ELEMENTS + 1)[kind])


@pytest.mark.parametrize("kind", long_lists(0))
def test_a_pod_with_a_list_that_is_too_long_is_not_planned_and_a_daemon_with_one_counts(kind: str) -> None:
    long = long_lists(MOST_ELEMENTS + 1)[kind]
    (left,) = solve(problem((pod("long", long),), pool())).unplaced
    assert f"{kind}" in str(left.reasons[0])
    assert "has 257 elements" in str(left.reasons[0])
    facts_of(long)  # as a DaemonSet or a running pod it is what it is
