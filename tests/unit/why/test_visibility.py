"""What is left of an answer for somebody who may not see every namespace."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.why.answers import Drain, NodeAnswer, PodAnswer, Told, WhyBlocker, WhyPlace, WhyReason
from provisioner.why.nodes import why_node
from provisioner.why.visibility import (
    ELSEWHERE,
    NotHiddenError,
    namespaces_in,
    namespaces_of,
    node_for,
    pod_for,
)
from tests.support.clock import NOON
from tests.support.cluster import pod_budget
from tests.support.dumps import dumped, existing_node, wire_pod

TEXTS = {
    "a pod": ("Pod has an annotation (Pod=team-a/web-1)", {"team-a"}),
    "a budget at the end of a sentence": ("Pdb prevents pod evictions (PodDisruptionBudget=a/guard).", {"a"}),
    "two": ("a/b => it is kept off by c/d", {"a", "c"}),
    "an owner": ("Nodes for pods of ReplicaSet shop/web were launched", {"shop"}),
    "behind a colon or a bracket": ("pods:[x/y]", {"x"}),
    "a namespace of digits": ("pod 7/web", {"7"}),
    "a pod of digits": ("pod shop/7", {"shop"}),
    "a key of Kubernetes": (f'the "{names.DO_NOT_DISRUPT}" annotation', set()),
    "a count of nodes": ("0/12 existing nodes: 3 insufficient cpu, 0/3.", set()),
    "a price": ("$0.1/h, 4 $/h", set()),
    "a provider ID": ("kwok://node-1", set()),
}


@pytest.mark.parametrize(("text", "found"), TEXTS.values(), ids=TEXTS)
def test_namespaces_are_found_in_sentences(text: str, found: set[str]) -> None:
    assert namespaces_in(text) == found


LABEL = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\Z")
NAME = st.from_regex(r"\A[a-z]([-a-z0-9]{0,9}[a-z0-9])?(\.[a-z0-9]{1,5})?\Z")


@given(LABEL, NAME, st.sampled_from([" ", "=", "(", '"', "'", ",", ":", "[", "\n", "=>", "/"]), st.text(max_size=9))
def test_no_name_of_an_object_is_overlooked(space: str, name: str, before: str, behind: str) -> None:
    assert space in namespaces_in(f"x{before}{space}/{name}{behind}")


def elsewhere(name: str, on: str = "n", **changes: Any) -> dict[str, Any]:
    return wire_pod(name, on=on, metadata__namespace="theirs", metadata__labels={"app": "secret"}, **changes)


def theirs(space: str) -> bool:
    return space == "theirs"


def test_pods_elsewhere_are_counted_and_their_budget_is_not_named() -> None:
    budget = pod_budget(allowed=0)
    moved = msgspec.structs.replace(
        budget, metadata=msgspec.structs.replace(budget.metadata, namespace="theirs", name="guard")
    )
    moved = msgspec.convert(
        {
            **msgspec.to_builtins(moved),
            "spec": {**msgspec.to_builtins(moved.spec), "selector": {"matchLabels": {"app": "secret"}}},
        },
        type(budget),
    )
    whole = why_node(
        dumped(*existing_node("n"), wire_pod("web", on="n"), elsewhere("spy"), elsewhere("spy2"), moved), "n"
    )
    assert "theirs/guard" in whole.summary
    assert namespaces_of(whole) == {"default", "theirs"}
    found = node_for(whole, theirs)
    assert (found.pods, found.pods_elsewhere) == (("default/web",), 2)
    assert found.reasons[0] == WhyReason(type="PodBudget", message=ELSEWHERE)
    assert found.summary == f"Node n is not disrupted: {ELSEWHERE}."
    text = msgspec.json.encode(found).decode()
    assert "theirs" not in text
    assert "spy" not in text
    assert "guard" not in text
    assert node_for(whole, lambda _: False) == whole


def test_what_blocks_a_drain_is_told_of_the_pods_that_may_be_seen() -> None:
    going = existing_node("n", deletionTimestamp=(NOON + timedelta(minutes=30)).isoformat())
    kept = {names.DO_NOT_DISRUPT: "true"}
    mine = wire_pod("web", on="n", metadata__annotations=kept)
    spy = elsewhere("spy", metadata__annotations=kept)
    whole = why_node(dumped(*going, mine, spy), "n")
    assert whole.drain is not None
    assert [one.pods for one in whole.drain.blockers] == [("default/web", "theirs/spy")]
    found = node_for(whole, theirs)
    assert found.drain is not None
    (blocker,) = found.drain.blockers
    assert (blocker.pods, blocker.pods_elsewhere, blocker.owner) == (("default/web",), 1, "ReplicaSet web")
    assert (found.drain.waiting, found.drain.waiting_elsewhere) == (("default/web",), 1)
    assert "default/web and 1 pod in other namespaces cannot be evicted now (pod-protected)" in found.summary
    (blocker,) = (node_for(whole, lambda _: True).drain or Drain()).blockers
    assert blocker == WhyBlocker(
        cause="pod-protected",
        message="2 pods in other namespaces cannot be evicted now (pod-protected)",
        pods_elsewhere=2,
    )


def answer(**changes: Any) -> NodeAnswer:
    plain: dict[str, Any] = {
        "node": "n",
        "node_claim": "c",
        "node_pool": "general",
        "at": NOON,
        "state": "UnderWay",
        "summary": "Node n is being disrupted.",
        "place": WhyPlace(node="n"),
    }
    return NodeAnswer(**{**plain, **changes})


def test_predicted_sizes_of_pods_elsewhere_are_left_out() -> None:
    sizes = ("room elsewhere is planned for pod mine/a", "room elsewhere is planned for pod theirs/spy")
    assert node_for(answer(predicted=sizes), theirs).predicted == sizes[:1]


HIDDEN = {
    "a condition of the NodeClaim": answer(
        place=WhyPlace(waits_for=(Told(type="Initialized", status="False", message="pod theirs/spy is not Ready"),))
    ),
    "a condition of a drain": answer(
        drain=Drain(conditions=(Told(type="Drained", status="False", message="theirs/spy of ReplicaSet spy"),))
    ),
    "a finalizer that looks like it": answer(drain=Drain(finalizers=("theirs/spy", "example.com/hold"))),
    "a budget of a pod that may be seen": answer(
        drain=Drain(
            blockers=(WhyBlocker(cause="pod-budget", message="m", pods=("default/a",), budgets=("theirs/spy",)),)
        )
    ),
    "what is missing": answer(missing=("Pod theirs/spy cannot be read",)),
}


@pytest.mark.parametrize("one", HIDDEN.values(), ids=HIDDEN)
def test_no_part_of_an_answer_names_what_is_not_to_be_seen(one: NodeAnswer) -> None:
    assert "spy" in msgspec.json.encode(one).decode()
    assert "spy" not in msgspec.json.encode(node_for(one, theirs)).decode()


def test_what_was_overlooked_is_not_given() -> None:
    with pytest.raises(NotHiddenError, match="1 namespaces"):
        node_for(answer(summary="Node n waits for theirs/spy."), theirs)


def test_a_pod_hears_nothing_of_others_and_keeps_what_its_scheduler_said() -> None:
    one = PodAnswer(
        pod="default/web",
        at=NOON,
        state="Planned",
        summary="Pod default/web is planned onto NodeClaim c, which is not Launched yet (waits for theirs/spy).",
        scheduler="0/1 nodes are available: 1 node(s) had untolerated taint {theirs/spy: }",
        gang="gang default/theirs/set=s: 2 pods, 2 needed, 0 have places",  # of a label whose prefix is no namespace
        reasons=(WhyReason(type="NotApart", message="theirs/spy keeps it off"),),
    )
    found = pod_for(one, theirs)
    assert found.gang == ""
    assert found.summary == f"Pod default/web is Planned: {ELSEWHERE}."
    assert (found.reasons[0].message, found.scheduler) == (ELSEWHERE, one.scheduler)
