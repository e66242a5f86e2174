"""The pods of DaemonSets on nodes to come, by what other pods want of them: affinity, anti-affinity and spread, from either side."""

from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.result import Result
from provisioner.values.taints import Toleration
from tests.support import checker
from tests.support.problems import (
    ARM,
    LARGE,
    MEDIUM,
    apart,
    app,
    instance_type,
    near,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    shape,
    spread,
)
from tests.support.question import Problem, solve
from tests.support.rich import replace_running

HOST, ZONE = names.HOSTNAME_LABEL, names.ZONE_LABEL
EVERYWHERE = (Toleration(operator="Exists"),)
AGENT = of_app("agent", "100m", "0", tolerations=EVERYWHERE)
ON_ARM = of_app("agent", "100m", "0", selector={names.ARCH_LABEL: "arm64"})
POOL = pool(types=(MEDIUM, LARGE, ARM))
X86 = pool(types=(MEDIUM, LARGE))


def asked(
    of: Sequence[Pod], *daemons: PodShape, bins: Sequence[Any] = (), pools: Sequence[Any] = (POOL,)
) -> tuple[Problem, Result]:
    one = problem(of, *pools, daemons=daemons, bins=bins)
    found = solve(one)
    assert not [*checker.violations(one, found)]
    return one, found


def test_pods_that_want_to_be_with_a_daemon_get_nodes() -> None:
    _, found = asked(pods(10, of_app("near", affinity=near(HOST, app("agent")))), AGENT, pools=(X86,))
    assert not found.unplaced
    assert found.claims


def test_they_get_nodes_on_which_it_runs() -> None:
    _, found = asked(pods(4, of_app("near", affinity=near(HOST, app("agent")))), ON_ARM)
    assert not found.unplaced
    assert {name for claim in found.claims for name in claim.instance_types} == {"arm"}


def test_they_get_none_where_it_does_not() -> None:
    _, found = asked(pods(2, of_app("near", affinity=near(HOST, app("agent")))), ON_ARM, pools=(X86,))
    assert not found.claims
    assert len(found.unplaced) == 2


def test_they_go_where_it_is_still_to_come() -> None:
    _, found = asked(pods(3, of_app("near", affinity=near(HOST, app("agent")))), AGENT, bins=[node("n1")])
    assert not found.claims
    assert not found.unplaced


def test_it_is_counted_once_where_it_runs() -> None:
    running = Pod(
        name="agent-x",
        namespace="default",
        uid="agent-x",
        shape=of_app("agent", "100m", "0", labels={"controller-revision-hash": "1"}),
        labels={"app": "agent", "controller-revision-hash": "1"},
        node_name="n1",
    )
    constraint = spread(HOST, app("agent"), 1, min_domains=2)
    own = of_app("web", topology_spread_constraints=(constraint,))
    _, found = asked(pods(1, own), AGENT, bins=[node("n1", running=[running])])
    assert not found.claims  # one pod of the DaemonSet is as many as a node may have while there is only one


@pytest.mark.parametrize("key", [HOST, ZONE])
def test_pods_that_keep_away_from_it_get_no_node_in_vain(key: str) -> None:
    _, found = asked(pods(2, of_app("far", affinity=apart(key, app("agent")))), AGENT)
    assert not found.claims
    assert len(found.unplaced) == 2
    assert "DaemonSet" in " ".join(str(reason) for reason in found.unplaced[0].reasons)


def test_pods_that_keep_away_from_it_get_nodes_where_it_does_not_run() -> None:
    _, found = asked(pods(2, of_app("far", affinity=apart(HOST, app("agent")))), ON_ARM)
    assert not found.unplaced
    assert "arm" not in {name for claim in found.claims for name in claim.instance_types}


@pytest.mark.parametrize("side", ["pod", "daemon"])
def test_a_node_that_is_in_no_domain_of_theirs_takes_pods_that_keep_away_from_it(side: str) -> None:
    """kube-scheduler counts anti-affinity by the label's value: a node without the label has nothing to count."""
    web = of_app("web", affinity=apart("team", app("agent"))) if side == "pod" else of_app("web")
    agent = of_app(
        "agent", "100m", "0", tolerations=EVERYWHERE, affinity=apart("team", app("web")) if side == "daemon" else None
    )
    red = pool("red", types=(MEDIUM,), labels={"team": "red"})
    plain = pool("plain", types=(LARGE,))
    _, found = asked(pods(2, web), agent, pools=(red, plain))
    assert not found.unplaced
    assert {claim.pool for claim in found.claims} == {"plain"}
    _, found = asked(pods(2, web), agent, pools=(red,))
    assert len(found.unplaced) == 2


def test_pods_that_it_keeps_away_get_no_node_in_vain() -> None:
    shy = of_app("agent", "100m", "0", tolerations=EVERYWHERE, affinity=apart(HOST, app("web")))
    _, found = asked((*pods(2, of_app("web")), *pods(1, of_app("other"), "other")), shy)
    assert {left.pod.shape.labels["app"] for left in found.unplaced} == {"web"}
    assert "DaemonSet" in " ".join(str(reason) for reason in found.unplaced[0].reasons)


def test_pods_that_want_its_zone_get_nodes() -> None:
    _, found = asked(pods(3, of_app("near", affinity=near(ZONE, app("agent")))), AGENT)
    assert not found.unplaced


FOLLOWING = of_app("agent", "100m", "0", tolerations=EVERYWHERE, affinity=near(HOST, app("web")))
"""Its pods must be near those of "web"."""


def test_pods_that_want_to_be_with_a_daemon_that_wants_others_get_their_node() -> None:
    both = (*pods(1, of_app("web")), *pods(1, of_app("near", affinity=near(HOST, app("agent"))), "near"))
    _, found = asked(both, FOLLOWING, pools=(X86,))
    assert not found.unplaced
    assert len(found.claims) == 1


def test_they_get_no_node_to_which_it_does_not_come() -> None:
    _, found = asked(pods(2, of_app("near", affinity=near(HOST, app("agent")))), FOLLOWING, pools=(X86,))
    assert not found.claims
    assert len(found.unplaced) == 2


def test_who_wants_the_daemon_that_wants_it_waits_for_ever() -> None:
    _, found = asked(pods(1, of_app("web", affinity=near(HOST, app("agent")))), FOLLOWING, pools=(X86,))
    assert not found.claims


def test_pods_that_keep_away_from_a_daemon_that_wants_others_get_nodes_without_these() -> None:
    both = (*pods(2, of_app("web")), *pods(2, of_app("far", affinity=apart(HOST, app("agent"))), "far"))
    _, found = asked(both, FOLLOWING, pools=(X86,))
    assert not found.unplaced
    assert all(len({pod.labels["app"] for pod in claim.pods}) == 1 for claim in found.claims)


def test_they_are_not_planned_where_it_is_to_come() -> None:
    running = Pod(
        name="web-x",
        namespace="default",
        uid="web-x",
        shape=of_app("web"),
        labels={"app": "web"},
        node_name="n1",
    )
    far = pods(1, of_app("far", affinity=apart(HOST, app("agent"))))
    _, found = asked(far, FOLLOWING, bins=[node("n1", running=[running])], pools=(X86,))
    assert not found.existing
    assert len(found.claims) == 1


def test_those_that_keep_it_off_their_node_are_joined_there_by_others_like_them() -> None:
    """It would follow them to other nodes of the zone, but not to theirs."""
    part = LabelSelector(match_labels={"part": "x"})
    jobs: dict[str, Any] = {"labels": {"app": "job", "part": "x"}, "selector": {names.ARCH_LABEL: "arm64"}}
    even = shape("500m", "1Gi", **jobs, topology_spread_constraints=(spread(ZONE, part),))
    off = apart(HOST, app("agent"))
    away = shape("500m", "1Gi", **jobs, affinity=off, topology_spread_constraints=(spread(HOST, part, 2),))
    agent = of_app("agent", "100m", "0", affinity=near(ZONE, app("job")), tolerations=EVERYWHERE)
    _, found = asked([pod("even", even), pod("off-1", away), pod("off-2", away)], agent)
    assert not found.unplaced


def test_those_that_keep_it_off_their_node_and_bring_it_to_the_zone_get_no_second_node_there() -> None:
    """The first that is bound brings it to every other node of the zone, where no other of them can follow it."""
    agent = of_app("agent", "100m", "0", affinity=near(ZONE, app("job")), tolerations=EVERYWHERE)
    job = of_app("job", "1", affinity=apart(HOST, app("agent")))
    _, found = asked(pods(8, job), agent, pools=(pool(types=(instance_type("tiny", "2200m", "4Gi"),)),))
    assert [len(claim.pods) for claim in found.claims] == [2, 2]
    assert len(found.unplaced) == 4


@pytest.mark.parametrize("zones", [("a",), ("a", "b")])
def test_those_that_bring_it_get_no_node_in_a_zone_with_a_node_that_keeps_it_off(zones: Sequence[str]) -> None:
    agent = of_app("agent", "100m", "0", affinity=near(ZONE, app("job")), tolerations=EVERYWHERE)
    off: dict[str, Any] = {"affinity": apart(HOST, app("agent")), "priority": 10}
    webs = [pod(zone, of_app("web", "1", selector={names.ARCH_LABEL: "arm64", ZONE: zone}, **off)) for zone in zones]
    job = of_app("job", affinity=apart(HOST, app("agent")), selector={names.ARCH_LABEL: "amd64"})
    _, found = asked([*webs, *pods(1, job, "job")], agent)
    assert {claim.planned_zone for claim in found.claims} == {"a", "b"}
    if len(zones) > 1:
        assert "DaemonSet pods that required pod anti-affinity keeps away" in str(found.unplaced[0])


SPREADS: dict[str, tuple[str, int]] = {
    "over hosts": (HOST, 1),
    "over hosts, two more": (HOST, 2),
    "over zones": (ZONE, 1),
}


@pytest.mark.parametrize(("key", "skew"), SPREADS.values(), ids=SPREADS)
def test_a_spread_that_counts_it_is_kept(key: str, skew: int) -> None:
    agent = shape("100m", "0", labels={"app": "agent", "part": "x"}, tolerations=EVERYWHERE)
    constraint = spread(key, LabelSelector(match_labels={"part": "x"}), skew)
    own = shape(labels={"app": "web", "part": "x"}, topology_spread_constraints=(constraint,))
    _, found = asked(pods(6, own), agent)
    assert not found.unplaced


def test_a_spread_that_counts_it_is_kept_where_the_other_domain_takes_no_more() -> None:
    """The new node's domain has the DaemonSet's pod; nobody can come to the other, so one more pod is too many."""
    others = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="NotIn", values=("old",)),))
    own = of_app("web", topology_spread_constraints=(spread("team", others),))
    old = replace_running(pod("old", of_app("old")), "full")
    full = node("full", "0", labels={"team": "blue"}, running=[old])
    red = pool(types=(LARGE,), labels={"team": "red"})
    _, found = asked(pods(1, own), shape("100m", "0"), bins=[full], pools=(red,))
    assert len(found.unplaced) == 1
    roomy = node("roomy", labels={"team": "blue"}, running=[old])
    _, found = asked(pods(2, own), shape("100m", "0"), bins=[roomy], pools=(red,))
    assert not found.unplaced


@pytest.mark.parametrize(("limit", "placed"), [("2", 2), ("3", 4)])
def test_a_spread_over_fewer_nodes_than_its_min_domains_counts_it(limit: str, placed: int) -> None:
    """While there are too few nodes, a node may have maxSkew pods, the DaemonSet's among them."""
    constraint = spread(HOST, LabelSelector(match_labels={"part": "x"}), 2, min_domains=3)
    own = of_app("web", labels={"part": "x"}, topology_spread_constraints=(constraint,))
    agent = of_app("agent", "100m", "0", labels={"part": "x"}, tolerations=EVERYWHERE)
    _, found = asked(pods(4, own), agent, pools=(pool(types=(LARGE,), limits={"nodes": limit}),))
    assert 4 - len(found.unplaced) == placed


def test_a_new_node_is_a_domain_where_one_that_leaves_was_the_only_one() -> None:
    agent = of_app("agent", "100m", "0", tolerations=EVERYWHERE)
    there = Pod(name="a", namespace="default", uid="a", shape=agent, labels=agent.labels, node_name="old")
    old = node("old", labels={ZONE: "b"}, running=[there], leaving=True)
    own = of_app("web", "1", topology_spread_constraints=(spread(ZONE, app("agent"), min_domains=2),))
    types = (
        instance_type("tiny", "1200m", "4Gi", 0.6, zones=("a", "b")),
        instance_type("big", "2300m", "8Gi", zones=("b",)),
    )
    _, found = asked(pods(5, own), agent, bins=[old], pools=(pool(types=types),))
    assert not found.unplaced


def test_a_pod_that_waits_for_a_spread_that_counts_it_is_told_so_where_it_runs_on_some_nodes_alone() -> None:
    agent = of_app("agent", "100m", "0", selector={ZONE: "a"}, tolerations=EVERYWHERE)
    first = of_app("first", "1", priority=10, topology_spread_constraints=(spread(ZONE, app("agent")),))
    tiny = instance_type("tiny", "1200m", "4Gi", zones=("a",))
    full = node("full", "0", labels={ZONE: "b"})
    _, found = asked(
        [pod("first", first), pod("other", of_app("other", "1"))], agent, bins=[full], pools=(pool(types=(tiny,)),)
    )
    (left,) = found.unplaced
    assert left.pod.name == "other"
    assert f"a new node would violate the topology spread of other pods across {ZONE}" in str(left)


def test_a_pod_that_it_keeps_away_from_every_node_is_told_that_and_not_that_it_waits() -> None:
    part = {"part": "x"}
    agents = [shape("100m", "0", labels={"app": name, **part}, tolerations=EVERYWHERE) for name in ("agent", "mesh")]
    constraint = spread(ZONE, LabelSelector(match_labels=part))
    even = shape("1", labels={"app": "web", **part}, topology_spread_constraints=(constraint,), priority=10)
    away = shape("1", labels={"app": "job", **part}, affinity=apart(HOST, app("agent")))
    medium = pool(types=(MEDIUM,))
    bins = [node("there", labels={ZONE: "b"})]
    _, found = asked([*pods(2, even), pod("away", away)], *agents, bins=bins, pools=(medium,))
    (left,) = found.unplaced
    assert left.pod.name == "away"
    assert "required pod anti-affinity between it and the pods of DaemonSet" in str(left)


def test_a_pod_that_waits_for_one_spread_in_this_zone_and_for_another_in_that_is_told_so() -> None:
    agent = of_app("agent", "100m", "0", tolerations=EVERYWHERE)
    in_b = of_app(
        "in-b",
        "1",
        priority=10,
        selector={ZONE: "b"},
        topology_spread_constraints=(spread(ZONE, app("agent"), min_domains=2),),
    )
    in_a = of_app(
        "in-a",
        "1",
        priority=10,
        selector={ZONE: "a"},
        topology_spread_constraints=(spread(ZONE, app("agent"), min_domains=2),),
    )
    tiny = instance_type("tiny", "1200m", "4Gi", zones=("a", "b"))
    waiting = [
        pod("in-b", in_b),
        pod("in-a", in_a),
        pod("other", of_app("other", "1")),
        pod("another", of_app("other", "1")),
    ]
    _, found = asked(waiting, agent, pools=(pool(types=(tiny,)),))
    assert [one.pod.name for one in found.unplaced] == ["another", "other"]
    assert all(
        f"a new node would violate the topology spread of other pods across {ZONE}" in str(one)
        for one in found.unplaced
    )
