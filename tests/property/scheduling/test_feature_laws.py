"""Pods that need something of a kubelet: no existing node that does not declare it takes them, and every node to come does."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.shapes import altered_shape
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Bin, Changes
from tests.support import checker
from tests.support.agreement import EFFORT, gist
from tests.support.problems import MEDIUM, node, pod, pool, problem, shape
from tests.support.question import Problem

FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions")
SOME = st.frozensets(st.sampled_from(FEATURES))
NODES = st.lists(st.none() | SOME, max_size=4).map(
    lambda declared: tuple(bin_of(number, features) for number, features in enumerate(declared))
)
PODS = st.lists(SOME, min_size=1, max_size=5).map(
    lambda needed: tuple(
        pod(f"p-{number}", altered_shape(shape("1"), features=tuple(sorted(features))))
        for number, features in enumerate(needed)
    )
)


def bin_of(number: int, features: frozenset[str] | None) -> Bin:
    return replace(node(f"node-{number}", "2"), features=features)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    pools = (pool(types=(MEDIUM,)),) if draw(st.booleans()) else ()
    return problem(draw(PODS), *pools, bins=draw(NODES))


@given(problems())
def test_pods_run_where_their_features_are(asked: Problem) -> None:
    result = prepare(asked).solve(asked.pods, effort=EFFORT)
    wrong = checker.violations(asked, result)
    assert not wrong, "\n".join(wrong)
    if asked.pools:
        assert not result.unplaced, "a new node has whatever a pod needs"


@given(problems(), st.dictionaries(st.integers(0, 3), st.none() | SOME, max_size=3))
def test_a_kubelet_that_declares_something_else_is_noticed(
    asked: Problem, after: dict[int, frozenset[str] | None]
) -> None:
    prepared = prepare(asked)
    prepared.solve(asked.pods, effort=EFFORT)
    changed = {f"node-{number}": bin_of(number, features) for number, features in after.items()}
    known = {one.name for one in asked.bins}
    prepared = prepared.updated(Changes(bins={name: one for name, one in changed.items() if name in known}))
    fresh = prepare(prepared.world)
    assert gist(prepared.solve(asked.pods, effort=EFFORT)) == gist(fresh.solve(asked.pods, effort=EFFORT))


def test_the_reason_names_the_feature() -> None:
    nodes = [bin_of(0, frozenset()), bin_of(1, frozenset(FEATURES[:1])), replace(bin_of(2, None), closed=True)]
    needs = altered_shape(shape("1"), features=FEATURES[:2])
    asked = problem([pod("p", needs)], bins=nodes)
    (one,) = prepare(asked).solve(asked.pods, effort=EFFORT).unplaced
    assert str(one.reasons[0]) == (
        "0/3 existing nodes: 1 didn't declare the feature RestartAllContainersOnContainerExits, "
        "2 didn't declare the feature UserNamespacesHostNetworkSupport, 1 not accepting new pods"
    )
