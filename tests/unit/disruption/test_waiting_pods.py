"""Pods that wait and disruption: whoever waits for a node of ours comes first, and nobody else holds a node."""

from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.core import PersistentVolumeClaimSource, Volume
from provisioner.apis.pods import Pod
from provisioner.disruption.refusals import NONE, PATIENCE
from tests.support.cluster import claim, node, pod, pool, refused
from tests.support.disrupting import ALL_TRUE, LONG_AGO, DisruptedNodes, Make
from tests.support.problems import shape

KIND = "c-16x-amd64-linux"
SMALL = shape(cpu="1")


def one_large_node(stages: Make, *, drifted: bool) -> DisruptedNodes:
    """A large node with one small pod: drifted, or one that a smaller one would replace."""
    stage = stages("other")
    stage.server.objects.clear()
    stage.world.cluster.node_changed(stage.world.cluster.node("other"), None)
    stage.world.cluster.claim_changed(stage.world.cluster.claim("other"), None)
    stage.cloud.there.add("kwok://a")
    on_demand = ({"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]},)
    after = "Never" if drifted else "0s"
    wanted = pool(
        disruption={"consolidateAfter": after, "budgets": [{"nodes": "100%"}]},
        requirements=on_demand,
    )
    stage.world.cluster.pool_changed(stage._pool, wanted)
    stage.server.put(
        claim(
            "a",
            provider_id="kwok://a",
            true=(*ALL_TRUE, names.DRIFTED) if drifted else ALL_TRUE,
            since=LONG_AGO,
            planned=KIND,
            creationTimestamp=(LONG_AGO - timedelta(hours=9)).isoformat(),
            annotations={names.PLANNED_OFFERING_ANNOTATION: f"{KIND}/test-zone-a/on-demand"},
        ),
        node(
            "a",
            kind=KIND,
            labels={
                names.NODEPOOL_LABEL: "general",
                names.HOSTNAME_LABEL: "a",
                names.INSTANCE_TYPE_LABEL: KIND,
                names.ZONE_LABEL: "test-zone-a",
                names.CAPACITY_TYPE_LABEL: "on-demand",
                names.ARCH_LABEL: "amd64",
                names.OS_LABEL: "linux",
            },
        ),
    )
    stage.bind(pod("web", ready=True, labels={"app": "web"}, shape=shape(cpu="3")), "a")
    return stage


def passes(stage: DisruptedNodes, count: int, seconds: float = 30.0) -> None:
    for _ in range(count):
        stage.disruption.run_once()
        stage.disruption.consolidate_once()
        stage.settle()
        stage.world.clock.advance(seconds)


MISSING = (Volume(name="v", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="missing")),)
NOBODYS: dict[str, Pod] = {
    "a pod of another scheduler that has not looked at it": pod(
        "queued", shape=shape(cpu="1", scheduler_name="volcano")
    ),
    "a gated pod": pod("gated", shape=SMALL, gated=True),
    "a daemon": pod("agent", kind="DaemonSet", shape=SMALL),
    "a pod without its PersistentVolumeClaim": refused(
        pod("stuck", shape=shape(cpu="1", volumes=MISSING)), 'persistentvolumeclaim "missing" not found'
    ),
}


@pytest.mark.parametrize("drifted", [True, False], ids=["drift", "consolidation"])
@pytest.mark.parametrize("one", NOBODYS.values(), ids=NOBODYS)
def test_whoever_does_not_wait_for_a_node_holds_none(stages: Make, one: Pod, drifted: bool) -> None:
    stage = one_large_node(stages, drifted=drifted)
    stage.world.add(one)
    passes(
        stage, 1, 0.0 if drifted else 20.0
    )  # consolidation leaves a node alone on which something happened a moment ago
    passes(stage, 1)
    assert stage.replacements()


WAITING: dict[str, Pod] = {
    "of kube-scheduler": pod("waits", shape=SMALL),
    "that another scheduler has refused": refused(pod("waits", shape=shape(cpu="1", scheduler_name="volcano")), "no"),
}


@pytest.mark.parametrize("one", WAITING.values(), ids=WAITING)
def test_room_that_a_waiting_pod_takes_is_nobody_elses(stages: Make, one: Pod) -> None:
    stage = one_large_node(stages, drifted=True)
    stage.world.add(one)
    passes(stage, 2, 10.0)
    assert not stage.replacements()
    assert {text for text, _ in of_blocked(stage)} == {
        'Pod "default/waits" can be bound to the node, and no other place is considered'
    }


def of_blocked(stage: DisruptedNodes) -> list[tuple[str, tuple[str, ...]]]:
    """Events DisruptionBlocked: text, and what makes them the same."""
    told = stage.server.recorder
    every = zip(told.events, told.messages, told.dedupes, strict=True)
    return [(text, same) for event, text, same in every if event[3] == "DisruptionBlocked"]


def test_why_a_node_stays_is_told_of_claim_and_node_each_with_one_event(stages: Make) -> None:
    stage = one_large_node(stages, drifted=True)
    stage.world.add(pod("waits", shape=SMALL))
    passes(stage, 4, 60.0)
    told = of_blocked(stage)
    assert len({same for _, same in told}) == 2 < len(told)


@pytest.mark.parametrize("drifted", [True, False], ids=["drift", "consolidation"])
def test_a_pod_that_is_refused_for_a_minute_where_it_fits_holds_no_node_any_more(stages: Make, drifted: bool) -> None:
    text = "0/1 nodes are available: 1 node(s) did not have enough free storage."
    stage = one_large_node(stages, drifted=drifted)
    stage.world.add(refused(pod("stuck", shape=SMALL), text))
    passes(stage, 4, PATIENCE.total_seconds() / 4 - 0.1)
    assert (stage.replacements(), stage.disruption.worlds.refused()) == ([], ())
    passes(stage, 2 if drifted else 4, 15.0)
    assert stage.replacements()
    assert [(one.name, key) for one, key in stage.disruption.worlds.refused()] == [("stuck", "a")]


def test_a_pod_that_has_no_place_for_a_while_begins_anew() -> None:
    minute = PATIENCE.total_seconds()
    known = NONE.noted({"one": "a", "two": "a"}, {"one", "two"}, 0.0).noted(
        {"one": "", "two": "b"}, {"one", "two"}, 30.0
    )
    assert known.over(minute) == {"two": "a"}
    assert known.next_over(20.0) == timedelta(seconds=minute - 20.0)
    assert known.noted({}, {"two"}, 2 * minute).over(2 * minute) == {"two": "a"}, "it takes no room, so nobody asks"
    assert known.noted({}, (), minute).over(minute) == {}, "it is bound"
