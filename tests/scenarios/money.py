"""Rows about what a fleet costs: consolidation, emptiness, and the budgets that slow both down."""

from typing import Any

from provisioner.apis import names
from provisioner.apis.meta import is_true
from provisioner.disruption.methods.moves import LAUNCHED_RECENTLY
from tests.scenarios.grounds import karpenter_ends, karpenter_leads
from tests.scenarios.row import BESIDE_LEADING, Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    ALL,
    EMPTY,
    HOLDS_SECONDS,
    NEVER,
    ON_DEMAND,
    SPOT,
    TIGHT,
    Step,
    alone,
    at_most_disrupted,
    bare_pod,
    becomes,
    begun,
    change_pool,
    change_template,
    check,
    claims_lack,
    claims_say,
    counted,
    daemons,
    daemons_run,
    deploy,
    disrupted_for,
    event,
    evicted,
    gone,
    guard,
    holds,
    labelled,
    none_evicted,
    none_evicted_since_the_pause,
    on_claims,
    on_nodes,
    over,
    pause_pool,
    paused_by,
    pdb,
    pods_run,
    pool,
    pool_says,
    relabel,
    remove,
    requirement,
    resume_pool,
    sample,
    scale,
    settled,
    sizes,
    together,
    wait,
)
from tests.support.provisioner import TEAM

BOUGHT = [ON_DEMAND]
"""Requirements of a pool of on-demand nodes: spot nodes are not replaced by spot nodes without a feature gate."""

EITHER = {**ON_DEMAND, "values": [names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT]}
PREFERS_ON_DEMAND = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": ["{pool}"]}]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 50, "preference": {"matchExpressions": [ON_DEMAND]}}
        ],
    }
}

OWN_TAINT = {"key": TEAM, "value": "{pool}", "effect": "NoSchedule"}


def tight(**more: Any) -> dict[str, Any]:
    """A NodePool that consolidates at once, with other settings beside."""
    return {**TIGHT, **more}


def emptied(*, nodes: int, disruption: dict[str, Any], **spec: Any) -> Step:
    """So many nodes of one pod each, all of which leave."""
    return together(pool(disruption=disruption, **spec), deploy("web", nodes), settled(nodes, nodes), scale("web", 0))


def bought_for_more(nodes: int) -> Step:
    """So many nodes of 4 CPUs, without pods by now, that may be replaced at once: what they were bought for has left."""
    return together(
        pool(requirements=BOUGHT, disruption=NEVER),
        deploy("first", nodes, cpu="3800m"),
        settled(nodes, nodes),
        scale("first", 0),
        wait("the first pods are gone", lambda scene: not scene.every_pod("first")),
    )


MID_DRAIN = together(
    pool("-draining", disruption=NEVER),
    deploy("web", 12, cpu="250m", pool="-draining"),
    wait("the pods run", lambda scene: scene.running("web") == 12 and len(scene.initialized()) == len(scene.claims())),
    lambda scene: scene.facts.claims.update({one.name: one for one in scene.claims()}),
    pdb("web", maxUnavailable=1),
    guard("web", 11),
    relabel(suffix="-draining"),
    wait("a drain is under way", lambda scene: len(scene.log.evictions(scene.name)) >= 2),
)
"""A node of 12 pods, of which one may be away at a time, has drifted, and two of them have left it."""


def pause_everything(scene: Scene) -> None:
    """kubectl create configmap dovetail-settings --from-literal=paused=true."""
    scene.client.raw(
        "PATCH",
        "/api/v1/namespaces/dovetail-system/configmaps/dovetail-settings",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "dovetail-settings"},
            "data": {"paused": "true"},
        },
        {"fieldManager": "dovetail-scenario", "force": "true"},
        content_type="application/apply-patch+yaml",
    )


def own_node(scene: Scene) -> None:
    """A node that somebody else runs, with room and the row's label and taint."""
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    scene.client.raw(
        "POST",
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{scene.name}-own",
                "labels": {
                    TEAM: scene.name,
                    names.HOSTNAME_LABEL: f"{scene.name}-own",
                    names.ARCH_LABEL: "amd64",
                    names.OS_LABEL: "linux",
                    "kwok.x-k8s.io/node": "fake",
                },
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [{"key": TEAM, "value": scene.name, "effect": "NoSchedule"}]},
            "status": {"capacity": room, "allocatable": room},
        },
        {},
    )


def job(name: str) -> Step:
    """A pod that has finished its work."""
    return together(
        bare_pod(name, cpu="100m", restartPolicy="Never"),
        wait("it runs", lambda scene: any(one.phase == "Running" for one in scene.pods(name))),
        lambda scene: scene.change("Pod", name, {"status": {"phase": "Succeeded"}}, "status"),
        wait("it is done", lambda scene: any(one.phase == "Succeeded" for one in scene.pods(name))),
    )


def bound_once_all_nodes_were_there(scene: Scene) -> bool:
    pods = scene.wire("/api/v1/namespaces/{ns}/pods")["items"]
    nodes = [scene.wire(f"/api/v1/nodes/{one.metadata.name}") for one in scene.nodes()]
    bound = [
        condition["lastTransitionTime"]
        for one in pods
        for condition in one["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    ]
    return bool(min(bound) >= max(one["metadata"]["creationTimestamp"] for one in nodes))


ROWS: tuple[Row, ...] = (
    # --- what is bought --------------------------------------------------------------------------------------------------
    row(
        "of two NodePools of equal weight, a few pods get nodes of the cheaper one, whatever it is called",
        pool("-a", requirements=[SPOT], disruption=NEVER),
        pool("-z", requirements=BOUGHT, disruption=NEVER),
        deploy("web", 2),
        settled(2, 2),
        check(lambda scene: len(scene.claims(f"{scene.name}-a")) == 2, "both nodes are of the NodePool of spot"),
        quick=True,
    ),
    # --- fewer ---------------------------------------------------------------------------------------------------------
    row(
        "two half-empty nodes become one",
        pool(disruption=TIGHT),
        deploy("large", 2),
        pods_run(2),
        deploy("small", 2, cpu="600m"),
        settled(2, 4),
        scale("large", 0),
        becomes(1, 2, new=False),
        event("DisruptionTerminating", "Disrupting Node: Underutilized"),
        evicted("small", count=1),
        quick=True,
    ),
    row(
        "six nodes become one, and one pod is away at a time",
        pool(disruption=TIGHT),
        deploy("large", 6),
        pods_run(6),
        deploy("small", 6, cpu="600m"),
        settled(6, 12),
        pdb("small", maxUnavailable=1),
        guard("small", 5),
        scale("large", 0),
        becomes(1, 6, new=False, seconds=240),
    ),
    row(
        "pods move to a node of somebody else that has room",
        pool(disruption=TIGHT),
        deploy("web", 1, cpu="1"),
        settled(1, 1),
        own_node,
        wait("the pod moves", lambda scene: [one.node_name for one in scene.pods("web")] == [f"{scene.name}-own"]),
        wait("the node is gone", lambda scene: not scene.claims()),
        lambda scene: scene.remove("Node", f"{scene.name}-own"),
        lambda scene: scene.scale("web", 0),
    ),
    # --- cheaper --------------------------------------------------------------------------------------------------------
    row(
        "a node that is too large is replaced by a cheaper one",
        pool(cpu=(2, 4, 8, 16), requirements=BOUGHT, disruption=TIGHT),
        deploy("large", 1, cpu="12"),
        pods_run(1),
        deploy("small", 1, cpu="1"),
        settled(1, 2),
        sizes(16),
        scale("large", 0),
        becomes(1, 1, new=True),
        sizes(2),
        event("DisruptionLaunching", "Launching NodeClaim: Underutilized"),
        counted(
            *begun("replace", "underutilized", "single"),
            disrupted_for("underutilized"),
            sample("karpenter_nodeclaims_created_total", reason="underutilized", nodepool="{pool}"),
            sample("karpenter_pods_drained_total", reason="Underutilized"),
        ),
        quick=True,
    ),
    row(
        "one node is replaced by two that are cheaper together",
        pool(cpu=(4, 16), requirements=BOUGHT, disruption=TIGHT),
        deploy("large", 1, cpu="8"),
        deploy("small", 2, cpu="3500m"),
        settled(1, 3),
        sizes(16),
        scale("large", 0),
        becomes(2, 2, new=True),
        sizes(4, 4),
    ),
    row(
        "three nodes are replaced by one, which no one or two of them could be",
        bought_for_more(3),
        deploy("web", 3, cpu="2500m"),
        settled(3, 3),
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "4", "8"),
        change_pool(disruption=TIGHT),
        becomes(1, 3, new=True),
        sizes(8),
        evicted("web", count=3),
    ),
    row(
        "four nodes go for one that is cheaper, one after another where the budget is one node",
        bought_for_more(4),
        deploy("web", 4, cpu="1960m"),
        settled(4, 4),
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "4", "8"),
        change_pool(disruption=tight(budgets=[{"nodes": "1"}])),
        becomes(1, 4, new=True, seconds=300),
        sizes(8),
        evicted("web", count=4),
        at_most_disrupted(1),
    ),
    row(
        "three nodes are replaced by two, which no one or two of them could be",
        bought_for_more(3),
        deploy("large", 1, cpu="3040m"),
        pods_run(1),
        deploy("db", 2, cpu="900m", affinity=alone("db")),
        pods_run(3),
        deploy("web", 2, cpu="1525m"),
        settled(3, 5),
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "2", "4", "8"),
        change_pool(disruption=TIGHT),
        becomes(2, 5, new=True),
        sizes(2, 8),
        evicted("db", "web", count=2),
        evicted("large", count=1),
    ),
    row(
        "an on-demand node becomes a spot node where its NodePool begins to allow it",
        pool(cpu=16, requirements=BOUGHT, disruption=TIGHT),
        deploy("large", 1, cpu="9"),
        pods_run(1),
        deploy("web", 1, cpu="6"),
        settled(1, 2),
        lambda scene: scene.change("NodePool", scene.name, {"spec": {"template": _without_on_demand(scene)}}),
        scale("large", 0),
        wait(
            "a spot node",
            lambda scene: (
                [one.metadata.labels[names.CAPACITY_TYPE_LABEL] for one in scene.initialized()] == ["spot"]
                and scene.running() == 1
            ),
            240,
        ),
        claims_lack(names.DRIFTED),
    ),
    row(
        "with --consolidation=karpenter any saving is enough",
        pool(cpu=(8, 16), requirements=BOUGHT, disruption=TIGHT),
        deploy("large", 1, cpu="8"),
        pods_run(1),
        deploy("small", 12, cpu="500m"),
        settled(1, 13),
        scale("large", 0),
        becomes(1, 12, new=True, seconds=240),
        sizes(8),
        group="karpenter",
    ),
    # --- nothing -----------------------------------------------------------------------------------------------------------
    row(
        "a node that nothing cheaper can replace stays and says so",
        pool(disruption=TIGHT, requirements=BOUGHT),
        deploy("large", 1, cpu="1500m"),
        pods_run(1),
        deploy("web", 1, cpu="2"),
        settled(1, 2),
        scale("large", 0),
        event("Unconsolidatable", kind="NodeClaim"),
        event("Unconsolidatable", kind="Node"),
        holds(),
        none_evicted,
    ),
    row(
        "a pod of a NodePool with a weight does not leave it for a cheaper NodePool",
        pool("-heavy", requirements=BOUGHT, disruption=TIGHT, weight=50),
        pool("-light", requirements=[SPOT], disruption=TIGHT),
        deploy("large", 1, cpu="1500m"),
        pods_run(1),
        deploy("web", 1, cpu="2"),
        settled(1, 2),
        scale("large", 0),
        holds(),
        none_evicted,
        check(
            lambda scene: len(scene.claims(f"{scene.name}-heavy")) == 1, "the node is of the NodePool with the weight"
        ),
    ),
    row(
        "a pod that prefers on-demand and runs there does not become a spot node's",
        pool(requirements=[EITHER], disruption=TIGHT),
        deploy("large", 1, cpu="1500m", affinity=PREFERS_ON_DEMAND),
        pods_run(1),
        deploy("web", 1, cpu="2", affinity=PREFERS_ON_DEMAND),
        settled(1, 2),
        scale("large", 0),
        holds(),
        none_evicted,
        labelled(names.CAPACITY_TYPE_LABEL, names.CAPACITY_ON_DEMAND),
    ),
    row(
        "a spot node is not replaced by a cheaper spot node without the feature gate",
        pool(cpu=(2, 16), requirements=[SPOT], disruption=TIGHT),
        deploy("large", 1, cpu="12"),
        pods_run(1),
        deploy("small", 1, cpu="1"),
        settled(1, 2),
        scale("large", 0),
        event("Unconsolidatable", "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"),
        holds(),
    ),
    row(
        "a node just bought for its pods is not replaced by a cheaper one, until it has fewer pods",
        pool(cpu=16, requirements=BOUGHT, disruption=TIGHT),
        deploy("web", 2, cpu="1"),
        settled(1, 2),
        # rows beside may be in the same batch, and a fleet far from its bound is not left alone
        on_claims({"metadata": {"annotations": {names.PLAN_GAP: None}}}),
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "4", "16"),
        event("Unconsolidatable", LAUNCHED_RECENTLY),
        holds(),
        none_evicted,
        scale("web", 1),
        becomes(1, 1, new=True),
        sizes(4),
    ),
    row(
        "two nodes that take no more pods are not replaced by one of their own type; one goes once the other takes pods",
        pool(requirements=BOUGHT, disruption=TIGHT),
        deploy("large", 2),
        pods_run(2),
        deploy("small", 2, cpu="600m"),
        settled(2, 4),
        on_nodes({"spec": {"taints": [OWN_TAINT, {"key": "example.com/full", "effect": "NoSchedule"}]}}),
        scale("large", 0),
        event("Unconsolidatable"),
        holds(),
        none_evicted,
        on_nodes({"spec": {"taints": [OWN_TAINT]}}, 1),
        becomes(1, 2, new=False),
    ),
    row(
        "WhenEmpty leaves nodes that are not empty",
        pool(disruption=EMPTY),
        deploy("large", 2),
        pods_run(2),
        deploy("small", 2, cpu="600m"),
        settled(2, 4),
        scale("large", 0),
        event("Unconsolidatable", 'NodePool "{pool}" has consolidation policy WhenEmpty, but node is not empty'),
        holds(),
    ),
    row(
        "consolidateAfter Never keeps even empty nodes",
        pool(disruption={**ALL, "consolidateAfter": "Never"}),
        deploy("web", 2),
        settled(2, 2),
        scale("web", 0),
        claims_lack(names.CONSOLIDATABLE),
        holds(),
    ),
    row(
        "consolidateAfter is counted from the last pod that came or went",
        pool(disruption={**EMPTY, "consolidateAfter": "25s"}),
        deploy("web", 1),
        settled(1, 1),
        scale("web", 0),
        wait("the pod is gone", lambda scene: not scene.every_pod("web")),
        claims_lack(names.CONSOLIDATABLE),
        holds(15),
        gone(),
    ),
    row(
        "a pool with the policy Balanced is consolidated where the score is good",
        pool(disruption={**TIGHT, "consolidationPolicy": "Balanced"}),
        deploy("large", 3),
        pods_run(3),
        deploy("small", 3, cpu="600m"),
        settled(3, 6),
        scale("large", 0),
        wait("fewer nodes", lambda scene: len(scene.claims()) < 3, 180),
        wait("it is at rest", lambda scene: len(scene.claims()) == len(scene.initialized())),
        pods_run(3),
    ),
    row(
        "a pool with the policy Balanced is not consolidated where the score is poor, and says so",
        pool(cpu=48, requirements=BOUGHT, disruption={**TIGHT, "consolidationPolicy": "Balanced"}),
        deploy("large", 1, cpu="25"),
        pods_run(1),
        deploy("web", 1, cpu="20"),
        settled(1, 2),
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "32", "48"),
        scale("large", 0),
        event("Unconsolidatable", 'NodePool "{pool}" balances savings with disruption: score'),
        holds(),
        none_evicted,
        counted(sample("karpenter_consolidation_moves_total", decision="rejected", nodepool="{pool}")),
    ),
    row(
        "pods of a DaemonSet do not keep a node",
        pool(disruption=EMPTY),
        daemons(),
        deploy("web", 1, cpu="1"),
        settled(1, 1),
        daemons_run(1),
        scale("web", 0),
        gone(),
    ),
    row(
        "finished pods do not keep a node",
        pool(disruption=EMPTY),
        deploy("web", 1, cpu="1"),
        settled(1, 1),
        job("done"),
        scale("web", 0),
        gone(),
    ),
    row(
        "an empty node is left alone that was launched for a workload whose nodes were launched and removed three times",
        pool(disruption=EMPTY),
        deploy("web", 1),
        settled(1, 1),
        *(together(scale("web", 2), settled(2, 2), scale("web", 1), becomes(1, 1)) for _ in range(3)),
        counted(sample("dovetail_disruption_loops_total", nodepool="{pool}")),
        scale("web", 2),
        settled(2, 2),
        scale("web", 1),
        event("DisruptionLoop", "Nodes for pods of ReplicaSet {ns}/web-"),
        holds(20),
    ),
    # --- emptiness ---------------------------------------------------------------------------------------------------------
    row(
        "an empty node goes and says that it was empty",
        pool(disruption=EMPTY),
        deploy("web", 1),
        settled(1, 1),
        scale("web", 0),
        event("DisruptionTerminating", "Disrupting Node: Empty"),
        event("DisruptionTerminating", "Disrupting Node: Empty", kind="Node"),
        gone(),
        counted(*begun("delete", "empty", "empty"), disrupted_for("empty")),
        quick=True,
    ),
    row(
        "five empty nodes go together where the budget allows it",
        emptied(nodes=5, disruption=EMPTY),  # type: ignore[arg-type]
        gone(),
        at_most_disrupted(5, least=2),
    ),
    # --- budgets ----------------------------------------------------------------------------------------------------------------
    row(
        "a budget of 0 keeps empty nodes, and its NodePool says so",
        emptied(nodes=2, disruption={**EMPTY, "budgets": [{"nodes": "0"}]}),
        event(
            "DisruptionBlocked",
            "No allowed disruptions for disruption reason Empty due to blocking budget",
            kind="NodePool",
        ),
        holds(),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        gone(),
    ),
    row(
        "a budget of 1 lets empty nodes go one by one",
        emptied(nodes=4, disruption={**EMPTY, "budgets": [{"nodes": "1"}]}),
        gone(seconds=240),
        at_most_disrupted(1),
    ),
    row(
        "a budget of 10 % of five nodes is one node",
        emptied(nodes=5, disruption={**EMPTY, "budgets": [{"nodes": "10%"}]}),
        gone(seconds=240),
        at_most_disrupted(1),
    ),
    row(
        "a budget of 1 lets drifted nodes go one by one",
        pool(disruption={**NEVER, "budgets": [{"nodes": "1"}]}),
        deploy("web", 4),
        settled(4, 4),
        relabel(),
        becomes(4, 4, new=True, seconds=300),
        at_most_disrupted(1),
    ),
    row(
        "the strictest of several budgets counts",
        emptied(nodes=4, disruption={**EMPTY, "budgets": [{"nodes": "50%"}, {"nodes": "1"}]}),
        gone(seconds=240),
        at_most_disrupted(1),
    ),
    row(
        "no budgets at all are 10 %",
        pool(disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}),
        deploy("web", 3),
        settled(3, 3),
        check(
            lambda scene: [one.nodes for one in scene.node_pool(scene.name).spec.disruption.budgets] == ["10%"],
            "the default is written",
        ),
        scale("web", 0),
        gone(seconds=240),
        at_most_disrupted(1),
    ),
    row(
        "a budget of 0 whose window is open keeps nodes",
        emptied(
            nodes=1,
            disruption={
                **EMPTY,
                "budgets": [{"nodes": "100%"}, {"nodes": "0", "schedule": "* * * * *", "duration": "1h0m"}],
            },
        ),
        holds(),
    ),
    row(
        "a budget of 0 whose window is closed does not matter",
        emptied(
            nodes=1,
            disruption={
                **EMPTY,
                "budgets": [{"nodes": "100%"}, {"nodes": "0", "schedule": "0 0 1 1 *", "duration": "1m"}],
            },
        ),
        gone(),
    ),
    row(
        "a budget that cannot be read allows nothing, and its NodePool says so",
        pool(disruption=EMPTY),
        deploy("web", 1),
        settled(1, 1),
        change_pool(
            disruption={"budgets": [{"nodes": "100%"}, {"nodes": "100%", "schedule": "99 99 * * *", "duration": "1h"}]}
        ),
        pool_says(names.VALIDATION_SUCCEEDED, "False", "NodePoolValidationFailed", "99 99 * * *"),
        scale("web", 0),
        wait("the pod is gone", lambda scene: not scene.every_pod("web")),
        holds(),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        gone(),
    ),
    row(
        "a budget for consolidation does not hold emptiness",
        pool(disruption=tight(budgets=[{"nodes": "0", "reasons": ["Underutilized"]}, {"nodes": "100%"}])),
        deploy("large", 3, affinity=alone("large")),
        pods_run(3),
        deploy("small", 2, cpu="600m", affinity=alone("small")),
        settled(3, 5),
        scale("large", 0),
        becomes(2, 2, new=False),
        event(
            "DisruptionBlocked",
            "No allowed disruptions for disruption reason Underutilized due to blocking budget",
            kind="NodePool",
        ),
        none_evicted,
    ),
    row(
        "a budget for drift holds drift and not emptiness",
        pool(disruption={**EMPTY, "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}),
        deploy("web", 2),
        settled(2, 2),
        relabel(),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        event(
            "DisruptionBlocked",
            "No allowed disruptions for disruption reason Drifted due to blocking budget",
            kind="NodePool",
        ),
        holds(8),
        counted(sample("karpenter_voluntary_disruption_eligible_nodes", reason="drifted")),
        scale("web", 1),
        becomes(1, 1, new=False),
    ),
    row(
        "a node that is not ready uses up the budget",
        pool(disruption={**EMPTY, "budgets": [{"nodes": "1"}]}),
        deploy("web", 2),
        settled(2, 2),
        lambda scene: scene.change(
            "Node", min(scene.facts.nodes), {"metadata": {"labels": {"kwok.dovetail.dev/not-ready": "true"}}}
        ),
        wait(
            "a node is not ready",
            lambda scene: not all(is_true(one.status.conditions, names.READY) for one in scene.nodes()),
        ),
        relabel(),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        holds(10),
        lambda scene: scene.change(
            "Node", min(scene.facts.nodes), {"metadata": {"labels": {"kwok.dovetail.dev/not-ready": None}}}
        ),
        becomes(2, 2, new=True, seconds=240),
    ),
    row(
        "--max-disrupting-nodes is a ceiling over all pools",
        pool("-a", disruption=NEVER),
        pool("-b", disruption=NEVER),
        deploy("a", 2, pool="-a"),
        deploy("b", 2, pool="-b"),
        settled(4, 4),
        relabel(suffix="-a"),
        relabel(suffix="-b"),
        event("DisruptionBlocked", "because --max-disrupting-nodes is 1, and 1 node is", kind="NodePool"),
        becomes(4, 4, new=True, seconds=300),
        at_most_disrupted(1, "-a", "-b"),
        group="capped",
    ),
    # --- pause -----------------------------------------------------------------------------------------------------------
    row(
        "a paused NodePool keeps its nodes until it is not paused",
        pool(disruption=TIGHT),
        deploy("web", 2),
        settled(2, 2),
        pause_pool(),
        relabel(),
        scale("web", 1),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        event("DisruptionBlocked", 'paused by the annotation "dovetail.dev/paused"', kind="NodePool"),
        holds(10),
        resume_pool(),
        becomes(1, 1, new=True),
    ),
    row(
        "a pause in the middle of a command keeps the replacement and evicts nobody",
        pool(disruption=NEVER, delay="4s"),
        deploy("web", 1),
        settled(1, 1),
        relabel(),
        wait("a replacement", lambda scene: len(scene.claims()) == 2),
        pause_pool(),
        wait("it is there", lambda scene: len(scene.initialized()) == 2),
        event("DisruptionBlocked", 'Disruption is paused by the annotation "dovetail.dev/paused" of NodePool "{pool}"'),
        lambda scene: scene.throughout(10, lambda: "" if len(scene.claims()) == 2 else "the command went on"),
        none_evicted,
        resume_pool(),
        becomes(1, 1, new=True),
        quick=True,
    ),
    row(
        "no pod of a soft spread over hosts is bound before the last node of its plan is there: it would have nowhere else to go",
        pool("-early", disruption=NEVER, weight=10, limits={"nodes": "1"}),
        pool("-late", disruption=NEVER, delay="5s"),
        deploy(
            "web",
            2,
            topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web", whenUnsatisfiable="ScheduleAnyway"),
        ),
        settled(2, 2),
        check(bound_once_all_nodes_were_there, "a pod was bound before the last node had joined"),
        extender=False,
        quick=True,
    ),
    row(
        "a pause holds the drain of a node that has expired, and not that of one which a user deletes",
        pool("-old", disruption=NEVER, template={"expireAfter": "60s"}),
        pool("-other", disruption=NEVER),
        deploy("web", 1, pool="-old"),
        deploy("other", 1, pool="-other"),
        settled(2, 2),
        pdb("web", maxUnavailable=0),
        pdb("other", maxUnavailable=0),
        wait(
            "it is being deleted",
            lambda scene: any(one.metadata.deletion_timestamp is not None for one in scene.claims(f"{scene.name}-old")),
        ),
        change_template("-old", expireAfter="Never"),
        lambda scene: scene.remove("NodeClaim", scene.claims(f"{scene.name}-other")[0].name),
        pause_pool("-old"),
        pause_pool("-other"),
        lambda scene: scene.throughout(2, lambda: ""),  # the pause is known by then
        remove("PodDisruptionBudget", "web"),
        remove("PodDisruptionBudget", "other"),
        wait("the other pod leaves", lambda scene: scene.log.evictions(scene.name)),
        event("DisruptionBlocked", 'paused by the annotation "dovetail.dev/paused"'),
        lambda scene: scene.throughout(
            10, lambda: "" if len(scene.log.evictions(scene.name)) == 1 else "it was drained"
        ),
        evicted("other", count=1),
        evicted("web", count=0),
        resume_pool("-old"),
        resume_pool("-other"),
        wait("both are gone", lambda scene: not set(scene.facts.claims) & {one.name for one in scene.claims()}),
        evicted("web", count=1),
    ),
    row(
        "a pause in the middle of a drain is heeded within a second",
        MID_DRAIN,
        pause_pool("-draining"),
        none_evicted_since_the_pause(10),
        check(lambda scene: scene.running("web") == 12, "every pod runs"),
        check(lambda scene: len(scene.log.evictions(scene.name)) < 12, "some pods stay"),
        resume_pool("-draining"),
        becomes(1, 12, new=True),
        evicted("web", count=12),
        quick=True,
    ),
    row(
        "while Karpenter leads nothing is launched or disrupted, and everything goes on when it has ended",
        pool(disruption=TIGHT),
        deploy("web", 1),
        settled(1, 1),
        lambda scene: karpenter_leads(scene.client),
        counted(("dovetail_other_autoscaler_running", {"autoscaler": "karpenter"})),
        relabel(),
        scale("web", 2),
        event(
            "DisruptionBlocked",
            "Disruption is suspended because Karpenter runs in namespace kube-system",
            kind="NodePool",
        ),
        event("FailedScheduling", "Karpenter runs in namespace kube-system", kind="Pod"),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        holds(),
        lambda scene: karpenter_ends(scene.client),
        becomes(2, 2, new=True),
        group=BESIDE_LEADING,
    ),
    row(
        "a pause of everything stops a drain within a second, and is heeded by every NodePool",
        pool("-other", disruption=TIGHT),
        deploy("other", 2, pool="-other"),
        settled(2, 2),
        MID_DRAIN,
        paused_by(pause_everything),
        relabel(suffix="-other"),
        scale("other", 1),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted", count=3),
        event(
            "DisruptionBlocked",
            'Disruption is paused by the key "paused" of ConfigMap "dovetail-settings"',
            kind="NodePool",
        ),
        none_evicted_since_the_pause(HOLDS_SECONDS),
        check(lambda scene: len(scene.log.evictions(scene.name)) < 12, "some pods stay"),
        lambda scene: scene.client.raw(
            "DELETE", "/api/v1/namespaces/dovetail-system/configmaps/dovetail-settings", None, {}
        ),
        becomes(2, 13, new=True),
        evicted("web", count=12),
        group="stopped",
    ),
)


def _without_on_demand(scene: Scene) -> dict[str, Any]:
    spec = scene.node_pool(scene.name).spec.template.spec
    kept = [
        {"key": one.key, "operator": str(one.operator), "values": list(one.values or ())}
        for one in spec.requirements
        if one.key != names.CAPACITY_TYPE_LABEL
    ]
    both = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand", "spot"]}
    return {"spec": {"requirements": [*kept, both]}}
