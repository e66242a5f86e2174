"""Rows about nodes whose pods take their time to end: Karpenter's specs of budgets, termination and expiration, with the same counts in the same order.

There a finalizer holds each Node, or a preStop hook its pods; here a stage of kwok delays the end of the pods. Times are a third or less of those there.

Differs: pods of a node that drifted go to new nodes here, not to others that have drifted, so that a budget in percent grows with the replacements; that row's
is a number. A node whose instance ends already counts against no budget here, whatever holds its Node; there its Node counts until it is gone.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.apis import names
from tests.scenarios.row import Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    EMPTY,
    GENERATION,
    NEVER,
    Step,
    alone,
    apart,
    at_most_disrupted,
    bare_pod,
    change_pool,
    change_template,
    claims_say,
    daemons,
    daemons_run,
    deploy,
    event,
    evicted,
    first_gone,
    gone,
    guard,
    holds,
    may_force,
    none_evicted,
    on_pods,
    over,
    pdb,
    pods_run,
    pool,
    remove,
    remove_claims,
    renewed,
    scale,
    settled,
    stays,
    together,
    wait,
)

EXPIRED = event("DisruptionTerminating", "Disrupting Node: Expired")
KEEP: Any = {names.DO_NOT_DISRUPT: "true"}


def slowly(seconds: int, **annotations: str) -> dict[str, Any]:
    """Pods that take so long to end."""
    delay = {"kwok.dovetail.dev/delete-delay": f"{seconds}s", **annotations}
    return {"terminationGracePeriodSeconds": seconds, "annotations": delay}


def no_pods(app: str) -> Step:
    """Until the app has none, ending ones included."""
    return wait(f"the pods of {app} are gone", lambda scene: not scene.every_pod(app))


def drifted(count: int) -> Step:
    """An annotation of the template changes; so many nodes say that they have drifted."""
    annotated = change_pool(template={"metadata": {"annotations": {GENERATION: "two"}}})
    return together(annotated, claims_say(names.DRIFTED, "True", count=count))


def one_on_each(app: str) -> Step:
    """Have each node keep one pod of an app: others are deleted while nodes that have one are closed."""

    def close(scene: Scene, *those: str) -> None:
        for name in scene.facts.nodes:
            scene.change("Node", name, {"spec": {"unschedulable": True if name in those else None}})

    def step(scene: Scene) -> None:
        homes = [one.node_name for one in scene.pods(app)]
        crowded = [one for one in scene.pods(app) if homes.count(one.node_name) > 1]
        if not crowded:
            close(scene)
            return
        close(scene, *homes)
        scene.remove("Pod", crowded[0].name, grace=0)
        scene.await_true(
            lambda: scene.running() == len(homes) and all(one.uid != crowded[0].uid for one in scene.every_pod(app)),
            "the pod is elsewhere",
        )
        step(scene)

    return together(step, apart(app))


def closed_now(scene: Scene) -> None:
    """A NodePool whose budget of 0 holds every day for half an hour, a quarter of which is over."""
    began = datetime.now(tz=UTC) - timedelta(minutes=15)
    window = {"nodes": "0", "schedule": f"{began.minute} {began.hour} * * *", "duration": "30m"}
    pool(disruption={**NEVER, "budgets": [window]})(scene)


def one_group_after_the_other(*groups: Iterable[str]) -> Step:
    """All pods of the apps of a group were gone before one of the next began to end."""

    def step(scene: Scene) -> None:
        uids = [[uid for uid, one in scene.facts.pods.items() if one.labels["app"] in group] for group in groups]
        assert all(uids), f"a group has no pods: {uids}"
        for these, those, group in zip(uids, uids[1:], groups[1:], strict=False):
            last, soonest = max(map(scene.watching.gone_at, these)), min(map(scene.watching.left_at, those))
            assert last <= soonest, f"{group} began to end {last - soonest:.1f} s before all pods before it were gone"

    return step


ROWS: tuple[Row, ...] = (
    # --- budgets of drift ---------------------------------------------------------------------------------------------
    row(
        "drift: three empty nodes go within a budget of 50 %, two at a time",
        pool(disruption={**NEVER, "budgets": [{"nodes": "50%"}]}),
        daemons(**slowly(8)),
        deploy("web", 3, cpu="1", affinity=alone("web"), annotations=KEEP),
        settled(3, 3),
        daemons_run(3),
        remove("Deployment", "web"),
        no_pods("web"),
        change_pool(template={"metadata": {"annotations": {GENERATION: "two"}}}),
        gone(),
        at_most_disrupted(2, least=2),
        quick=True,
    ),
    row(
        "drift: three nodes that share a few pods go within a budget of 2",
        pool(disruption={**NEVER, "budgets": [{"nodes": "2"}]}, cpu=8),
        deploy(
            "web", 9, cpu="2100m", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web", 3), **slowly(6, **KEEP)
        ),
        settled(3, 9),
        scale("web", 3),
        wait("three pods are left", lambda scene: len(scene.every_pod("web")) == 3),
        one_on_each("web"),
        drifted(3),
        holds(8),
        on_pods("web", {"metadata": {"annotations": {names.DO_NOT_DISRUPT: None}}}),
        renewed(3),
        at_most_disrupted(2),
    ),
    row(
        "drift: five nodes are replaced within a budget of 3",
        pool(disruption={**NEVER, "budgets": [{"nodes": "3"}]}),
        deploy("web", 5, cpu="1", affinity=alone("web"), **slowly(6)),
        settled(5, 5),
        drifted(5),
        renewed(5),
        at_most_disrupted(3, least=2),
        wait("there are five nodes", lambda scene: len(scene.claims()) == len(scene.nodes()) == 5),
    ),
    row(
        "drift: a budget of 0 whose window began a quarter of an hour ago holds a drifted node",
        closed_now,
        deploy("web", 1),
        settled(1, 1),
        drifted(1),
        holds(20),
        none_evicted,
    ),
    # --- termination ----------------------------------------------------------------------------------------------------
    row(
        "termination: an empty node waits for consolidateAfter, and goes when it becomes 0",
        pool(disruption={**EMPTY, "consolidateAfter": "1h"}),
        deploy("web", 1, **slowly(3)),
        settled(1, 1),
        scale("web", 0),
        no_pods("web"),
        stays(10),
        change_pool(disruption={"consolidateAfter": "0s"}),
        gone(),
    ),
    row(
        "termination: a pod with do-not-disrupt is deleted when its own grace period begins to eat into the node's",
        pool(disruption=NEVER, template={"terminationGracePeriod": "40s"}),
        bare_pod("web", terminationGracePeriodSeconds=10, annotations=KEEP),
        settled(1, 1),
        may_force,
        remove_claims(),
        wait(
            "the node is closed",
            lambda scene: any(names.DISRUPTED_TAINT in one.spec.taints for one in scene.nodes()),
        ),
        lambda scene: scene.throughout(15, lambda: "" if len(scene.pods("web")) == 1 else "it left"),
        first_gone(),
        no_pods("web"),
        none_evicted,
    ),
    row(
        "termination: a pod that takes its time to end is evicted at once, and its node waits for it",
        pool(disruption=NEVER, template={"terminationGracePeriod": "1h"}),
        bare_pod("web", **slowly(12)),
        settled(1, 1),
        remove_claims(),
        wait("the pod is ending", lambda scene: scene.every_pod("web") and not scene.pods("web")),
        lambda scene: scene.throughout(8, lambda: "" if scene.every_pod("web") and scene.nodes() else "it is gone"),
        first_gone(),
        no_pods("web"),
        evicted("web", count=1),
    ),
    row(
        "termination: the pods of a node leave group by group, each gone before the next begins",
        pool(disruption=NEVER),
        daemons("agent", **slowly(4)),
        daemons("node-agent", priorityClassName="system-node-critical", **slowly(2)),
        daemons("cluster-agent", priorityClassName="system-cluster-critical", **slowly(2)),
        deploy("web", 1, cpu="500m", **slowly(4)),
        deploy("node-dns", 1, cpu="500m", priorityClassName="system-node-critical", **slowly(4)),
        deploy("cluster-dns", 1, cpu="500m", priorityClassName="system-cluster-critical", **slowly(4)),
        settled(1, 3),
        daemons_run(3),
        settled(1, 3),
        remove_claims(),
        first_gone(),
        pods_run(3),
        one_group_after_the_other(("web",), ("agent",), ("node-dns", "cluster-dns"), ("node-agent", "cluster-agent")),
        quick=True,
    ),
    # --- expiration -----------------------------------------------------------------------------------------------------
    row(
        "expiration: a node goes once its time is over, and its pod has another one",
        pool(
            disruption={**NEVER, "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}, template={"expireAfter": "45s"}
        ),
        deploy("web", 1, **slowly(5)),
        wait("a claim", lambda scene: len(scene.claims()) == 1),
        change_template(expireAfter="Never"),
        settled(1, 1),
        EXPIRED,
        first_gone(),
        renewed(1),
        evicted("web", count=1),
    ),
    row(
        "expiration: five pods of which one at a time may be away get one node together",
        pool(
            disruption={**NEVER, "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}, template={"expireAfter": "45s"}
        ),
        pdb("web", minAvailable=4),
        deploy("web", 5, cpu="600m", **slowly(3)),
        wait("a claim", lambda scene: len(scene.claims()) == 1),
        change_template(expireAfter="Never"),
        settled(1, 5),
        guard("web", 4),
        EXPIRED,
        first_gone(),
        renewed(5),
        wait("one node takes them all", lambda scene: len(scene.claims()) == 1),
        evicted("web", count=5),
    ),
)
