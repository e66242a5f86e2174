"""Rows about nodes that change: drift, expiration, repair, static NodePools, overlays, claims of their own, and launches that fail."""

import json
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.meta import condition, is_true
from provisioner.kube import resources
from provisioner.values.resources import Resources
from tests.scenarios.row import Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    EMPTY,
    GENERATION,
    NEVER,
    ON_DEMAND,
    TIGHT,
    Step,
    at_most_disrupted,
    bare_pod,
    becomes,
    change,
    change_pool,
    change_template,
    check,
    claims_lack,
    claims_say,
    counted,
    deploy,
    disrupted_for,
    event,
    evicted,
    first_gone,
    gone,
    guard,
    holds,
    is_ready,
    labelled,
    may_force,
    may_orphan,
    none_evicted,
    not_ready,
    own_claim,
    pdb,
    pods_run,
    pool,
    pool_says,
    put,
    relabel,
    remove,
    remove_claims,
    requirement,
    sample,
    scale,
    settled,
    sizes,
    stays,
    together,
    wait,
)
from tests.support.provisioner import TEAM

KEEP = {"key": TEAM, "value": "{pool}", "effect": "NoSchedule"}
ONE = together(deploy("web", 1), settled(1, 1))


def drifted(name: str, act: Step, *seen: Step, reason: str = "NodePoolDrifted") -> Row:
    """A change of a NodePool that makes its node drift, and is on the new one."""
    return row(
        f"drift: {name}",
        pool(disruption={**NEVER, "budgets": [{"nodes": "0"}]}),
        ONE,
        act,
        claims_say(names.DRIFTED, "True", reason),
        holds(4),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        becomes(1, 1, new=True),
        *seen,
        event("DisruptionTerminating", "Disrupting Node: Drifted"),
    )


def not_drifted(name: str, act: Step) -> Row:
    """A change of a NodePool that is none of its nodes' business."""
    return row(
        f"no drift: {name}",
        pool(disruption=NEVER),
        ONE,
        act,
        lambda scene: scene.throughout(
            12,
            lambda: (
                "it drifted" if any(condition(one.status.conditions, names.DRIFTED) for one in scene.claims()) else ""
            ),
        ),
        holds(1),
    )


def has_taint(key: str) -> Step:
    """Every node has it."""
    return check(
        lambda scene: all(any(taint.key == key for taint in one.spec.taints) for one in scene.nodes()),
        f"the nodes have the taint {key}",
    )


def static_pool_beside(replicas: int) -> Step:
    """A static NodePool whose nodes come late and take the pods of this row's other pool; until it has its claims."""

    def step(scene: Scene) -> None:
        name = scene.pool("-static", replicas=replicas, labels={TEAM: scene.name}, delay="6s", **STATIC)
        scene.await_true(lambda: len(scene.claims(name)) == replicas, "it has its claims")

    return step


def node_class(name: str, **spec: Any) -> Step:
    """A KWOKNodeClass."""
    return put(
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def new_node(scene: Scene) -> Node | None:
    """The Node of an initialized claim that was not there at `settled`."""
    ready = (one for one in scene.claims() if is_true(one.status.conditions, names.INITIALIZED))
    return next((scene.node_of(one) for one in ready if one.name not in scene.facts.claims), None)


def label_new_node(value: str | None) -> Step:
    """It is not ready any more with "true", and is again with None."""

    def step(scene: Scene) -> None:
        found = new_node(scene)
        assert found is not None
        scene.change("Node", found.metadata.name, {"metadata": {"labels": {"kwok.dovetail.dev/not-ready": value}}})

    return step


def overlay(name: str, *, values: tuple[str, ...] = ("4",), **spec: Any) -> Step:
    """A NodeOverlay of this row's pool, for nodes of so many CPUs."""
    return put(
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": f"{{ns}}-{name}"},
            "spec": {
                "requirements": [
                    {"key": names.NODEPOOL_LABEL, "operator": "In", "values": ["{pool}"]},
                    {"key": names.KWOK_INSTANCE_CPU_LABEL, "operator": "In", "values": list(values)},
                ],
                **spec,
            },
        }
    )


def overlay_says(name: str, status: str, reason: str = "") -> Step:
    """Until the overlay's Ready is so."""

    def so(scene: Scene) -> bool:
        found = json.loads(scene.client.raw("GET", f"/apis/karpenter.sh/v1alpha1/nodeoverlays/{scene.name}-{name}"))
        conditions = found.get("status", {}).get("conditions", [])
        ready: dict[str, str] = next((one for one in conditions if one["type"] == "Ready"), {})
        why: dict[str, str] = next((one for one in conditions if one["type"] == names.VALIDATION_SUCCEEDED), {})
        return ready.get("status") == status and (not reason or why.get("reason") == reason)

    return wait(f"overlay {name} is Ready={status} {reason}", so)


def buffer(name: str, *, cpu: str = "3", given: str = "requests", **spec: Any) -> Step:
    """A CapacityBuffer of units of so many CPUs, for this row's nodes; they are given as requests or limits."""
    container = {"name": "main", "image": "none.invalid/none", "resources": {given: {"cpu": cpu}}}
    pod = {
        "containers": [container],
        "nodeSelector": {TEAM: "{pool}"},
        "tolerations": [{"key": TEAM, "operator": "Exists"}],
    }
    return together(
        put({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": {"spec": pod}}),
        buffer_of(name, podTemplateRef={"name": name}, **spec),
    )


def buffer_of(name: str, **spec: Any) -> Step:
    """A CapacityBuffer whose pod is that of something else."""
    return put(
        {
            "apiVersion": resources.CAPACITYBUFFERS.api_version,
            "kind": "CapacityBuffer",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def buffer_says(name: str, kind: str, status: str, reason: str, *, units: int) -> Step:
    """Until a condition of the buffer is as told, and it counts so many units."""

    def so(scene: Scene) -> bool:
        told = scene.client.get(resources.CAPACITYBUFFERS, name, scene.name).status
        found = condition(told.conditions, kind)
        return found is not None and (found.status, found.reason) == (status, reason) and told.replicas == units

    return wait(f"CapacityBuffer {name} {kind}={status} {reason} of {units}", so)


def nobody_is_told_of(name: str) -> Step:
    """No event is about a pod that does not exist."""
    return check(
        lambda scene: (
            not [
                one
                for one in scene.watching.all_events()
                if one.involved_object.name.startswith(f"capacity-buffer-{name}")
            ]
        ),
        f"no event is about units of {name}",
    )


def status_counts(nodes: int) -> Step:
    """Until `kubectl get nodepool` counts so many nodes."""
    return wait(f"status.nodes is {nodes}", lambda scene: (scene.node_pool(scene.name).status.nodes or 0) == nodes)


def first_named(scene: Scene) -> str:
    """The first Node by name."""
    return min(scene.facts.nodes)


def vanish(scene: Scene) -> None:
    """The instance is gone and its Node with it, as if somebody had ended it by hand and cleaned up."""
    name = first_named(scene)
    scene.change("Node", name, {"metadata": {"finalizers": None}})
    scene.remove("Node", name, 0)


def started(scene: Scene) -> None:
    """Whoever has to take the startup taint off the new nodes does so."""
    for one in scene.nodes():
        if one.metadata.name not in scene.facts.nodes:
            left = [taint for taint in one.spec.taints if taint.key != "example.com/starting"]
            body = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in left]
            scene.change("Node", one.metadata.name, {"spec": {"taints": body}})


def kept_old(count: int) -> Step:
    """So many of the nodes that `settled` saw are left."""
    return check(
        lambda scene: sum(one.name in scene.facts.claims for one in scene.claims()) == count,
        f"{count} of the old nodes are left",
    )


def pods_stay_where(app: str) -> Step:
    """The app's pods are on the nodes on which `settled` saw them."""
    return check(
        lambda scene: (
            {one.uid: one.node_name for one in scene.pods(app)}
            == {one.uid: one.node_name for one in scene.facts.pods.values() if one.labels.get("app") == app}
        ),
        f"the pods of {app} stay",
    )


def within_limit(cpus: int, seconds: float) -> Step:
    """For so long the nodes that do not go have no more CPUs."""

    def exceeded(scene: Scene) -> str:
        staying = [
            one
            for one in scene.claims()
            if one.metadata.deletion_timestamp is None and names.COMMAND_ANNOTATION not in one.metadata.annotations
        ]
        have = sum(int(Resources.parse(one.status.capacity).amount(names.CPU)) for one in staying) // 1000
        return f"they have {have}" if have > cpus else ""

    return lambda scene: scene.throughout(seconds, lambda: exceeded(scene))


GUARDED = together(deploy("db", 3, cpu="1"), pdb("db", minAvailable=2), settled(1, 3))
STATIC: dict[str, Any] = {"disruption": {"budgets": [{"nodes": "100%"}]}}

ROWS: tuple[Row, ...] = (
    # --- drift -----------------------------------------------------------------------------------------------------------
    drifted("a label of the template", relabel(), labelled(GENERATION, "two")),
    drifted(
        "an annotation of the template",
        change_template(metadata={"annotations": {"dovetail.example/note": "two"}}),
        check(
            lambda scene: all(one.metadata.annotations.get("dovetail.example/note") == "two" for one in scene.nodes()),
            "the nodes have the annotation",
        ),
    ),
    drifted(
        "a taint of the template",
        change_template(taints=[KEEP, {"key": f"{TEAM}-more", "effect": "PreferNoSchedule"}]),
        has_taint(f"{TEAM}-more"),
    ),
    row(
        "drift: a startup taint of the template; the old node stays until somebody removes the taint",
        pool(disruption=NEVER),
        ONE,
        change_template(startupTaints=[{"key": "example.com/starting", "effect": "NoSchedule"}]),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted", count=1),
        wait("a replacement", lambda scene: len(scene.claims()) == 2),
        claims_say(names.INITIALIZED, "Unknown", names.STARTUP_TAINTS_EXIST, "example.com/starting", count=1),
        lambda scene: scene.throughout(8, lambda: "" if scene.running("web") == 1 else "the pod left"),
        none_evicted,
        started,
        becomes(1, 1, new=True),
    ),
    drifted("expireAfter of the template", change_template(expireAfter="700h")),
    drifted("terminationGracePeriod of the template", change_template(terminationGracePeriod="10m")),
    row(
        "drift: another NodeClass",
        pool(disruption=NEVER),
        ONE,
        node_class("{ns}-two"),
        change_template(nodeClassRef={"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "{ns}-two"}),
        becomes(1, 1, new=True),
        check(
            lambda scene: [one.spec.node_class_ref.name for one in scene.claims()] == [f"{scene.name}-two"],
            "the new claim is of the new class",
        ),
    ),
    drifted(
        "a requirement that the node does not meet",
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "8"),
        sizes(8),
        reason="RequirementsDrifted",
    ),
    drifted(
        "a zone that is no longer allowed",
        requirement(names.ZONE_LABEL, "test-zone-d"),
        labelled(names.ZONE_LABEL, "test-zone-d"),
        reason="RequirementsDrifted",
    ),
    not_drifted("a requirement that the node meets", requirement(names.KWOK_INSTANCE_CPU_LABEL, "4", "8")),
    not_drifted("weight", change_pool(weight=7)),
    not_drifted("limits", change_pool(limits={"cpu": "1"})),
    not_drifted("disruption", change_pool(disruption={"consolidateAfter": "9m"})),
    row(
        "a pod that another scheduler holds back holds no drifted node, though there is room for it",
        pool(disruption={**NEVER, "budgets": [{"nodes": "0"}]}),
        ONE,
        bare_pod("queued", cpu="500m", schedulerName="volcano"),
        relabel(),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        becomes(1, 1, new=True),
        quick=True,
    ),
    row(
        "drift that is taken back is forgotten",
        pool(disruption={**NEVER, "budgets": [{"nodes": "0"}]}),
        ONE,
        relabel(),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        change_template(metadata={"labels": {GENERATION: None}}),
        claims_lack(names.DRIFTED),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        holds(10),
    ),
    row(
        "drift that is taken back while its replacement comes moves no pod",
        pool(disruption=NEVER, delay="10s"),
        ONE,
        relabel(),
        claims_say(names.DISRUPTION_REASON, "True", "Drifted", count=1),
        wait("the replacement is there", lambda scene: len(scene.claims()) == 2),
        change_template(metadata={"labels": {GENERATION: None}}),
        event("DisruptionBlocked", "no longer differs from its NodePool and NodeClass"),
        becomes(1, 1, new=False),
        none_evicted,
        counted(sample("karpenter_voluntary_disruption_failed_validations_total", consolidation_type="")),
    ),
    row(
        "pods of a drifted node stay while their new node is not ready",
        pool(disruption=NEVER, delay="10s"),
        deploy("web", 2, cpu="1"),
        pdb("web", minAvailable=1),
        settled(1, 2),
        relabel(),
        claims_say(names.DISRUPTION_REASON, "True", "Drifted", count=1),
        change("PodDisruptionBudget", "web", {"spec": {"minAvailable": 2}}),
        wait("the replacement is initialized", lambda scene: new_node(scene) is not None),
        event("DisruptionBlocked", "Pdb prevents pod evictions"),
        label_new_node("true"),
        wait("it is not ready", lambda scene: not is_ready(new_node(scene))),
        change("PodDisruptionBudget", "web", {"spec": {"minAvailable": 1}}),
        event("DisruptionBlocked", "is not ready"),
        none_evicted,
        label_new_node(None),
        becomes(1, 2, new=True),
    ),
    row(
        "an empty node that drifted goes without a replacement",
        pool(disruption=NEVER),
        ONE,
        scale("web", 0),
        wait("the pod is gone", lambda scene: not scene.every_pod("web")),
        relabel(),
        gone(),
        check(
            lambda scene: (
                not [
                    one
                    for one in scene.watching.all_events()
                    if one.involved_object.name.startswith(scene.name) and one.reason == "DisruptionLaunching"
                ]
            ),
            "no replacement was launched",
        ),
    ),
    row(
        "a drifted node at the limit of its NodePool is replaced there: a node that goes does not count",
        pool(disruption=NEVER, limits={"cpu": "4"}),
        ONE,
        relabel(),
        becomes(1, 1, new=True),
        event("DisruptionTerminating", "Disrupting Node: Drifted"),
    ),
    row(
        "a drifted node whose pod has no other place stays and says so",
        pool(disruption=NEVER, limits={"cpu": "4"}),
        ONE,
        change_pool(limits={"cpu": "3"}),
        relabel(),
        event("DisruptionBlocked", "limit"),
        claims_say(names.DRIFTED, "True"),
        holds(8),
        none_evicted,
        change_pool(limits={"cpu": "4"}),
        becomes(1, 1, new=True),
    ),
    row(
        "drift fills nodes that have room before it buys",
        pool(disruption={**NEVER, "budgets": [{"nodes": "0"}]}, cpu=8),
        deploy("small", 1, cpu="2"),
        settled(1, 1),
        relabel(),
        claims_say(names.DRIFTED, "True"),
        deploy("web", 1, cpu="5", nodeSelector={GENERATION: "two"}),
        becomes(2, 2),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        becomes(1, 2, new=True),
    ),
    # --- replacements that fail ------------------------------------------------------------------------------------------
    row(
        "a replacement that never registers is given up, and the node takes pods again",
        pool(disruption=NEVER),
        ONE,
        change("KWOKNodeClass", "{pool}", {"spec": {"nodeRegistrationDelay": "1h"}}),
        relabel(),
        wait("a replacement", lambda scene: len(scene.claims()) == 2),
        event("DisruptionBlocked", "the node accepts pods again"),
        wait(
            "the taint is gone",
            lambda scene: all(
                names.DISRUPTED_TAINT not in one.spec.taints
                for one in scene.nodes()
                if one.metadata.name in scene.facts.nodes
            ),
        ),
        none_evicted,
        counted(
            sample(
                "karpenter_voluntary_disruption_queue_failures_total",
                decision="replace",
                reason="drifted",
                consolidation_type="",
            )
        ),
        group="impatient",
    ),
    row(
        "a replacement that is never initialized is given up, and the node takes pods again",
        pool(disruption=NEVER),
        ONE,
        change_template(startupTaints=[{"key": "example.com/never", "effect": "NoSchedule"}]),
        wait("a replacement", lambda scene: len(scene.claims()) == 2),
        event("DisruptionBlocked", "the node accepts pods again"),
        wait(
            "the old node is free",
            lambda scene: all(
                names.DISRUPTED_TAINT not in one.spec.taints
                for one in scene.nodes()
                if one.metadata.name in scene.facts.nodes
            ),
        ),
        none_evicted,
        pods_stay_where("web"),
        group="impatient",
    ),
    row(
        "a node that never registers is given up, and its pod gets another",
        pool(disruption=EMPTY, delay="1h"),
        deploy("web", 1),
        wait("a claim", lambda scene: len(scene.claims()) == 1),
        claims_say(names.REGISTERED, "Unknown", names.NODE_NOT_FOUND),
        lambda scene: scene.facts.claims.update({one.name: one for one in scene.claims()}),
        change("KWOKNodeClass", "{pool}", {"spec": {"nodeRegistrationDelay": None}}),
        becomes(1, 1, new=True),
        counted(disrupted_for("registration_timeout")),
        group="impatient",
    ),
    row(
        "--drain-timeout ends drains of claims without a terminationGracePeriod",
        pool(disruption=NEVER),
        deploy("web", 1, terminationGracePeriodSeconds=2),
        settled(1, 1),
        pdb("web", maxUnavailable=0),
        may_force,
        remove_claims(),
        stays(6),
        first_gone(),
        none_evicted,
        pods_run(1),
        group="impatient",
    ),
    # --- expiration -------------------------------------------------------------------------------------------------------
    row(
        "an expired node goes and says so, whatever the budget",
        pool(disruption={**NEVER, "budgets": [{"nodes": "0"}]}, template={"expireAfter": "60s"}),
        ONE,
        event("DisruptionTerminating", "Disrupting Node: Expired"),
        change_template(expireAfter="Never"),
        first_gone(),
        pods_run(1),
        evicted("web", count=1),
        counted(sample("karpenter_pods_drained_total", reason="Forceful Termination")),
    ),
    row(
        "an expired node respects the PodDisruptionBudget of its pods",
        pool(disruption=NEVER, template={"expireAfter": "60s"}),
        ONE,
        pdb("web", maxUnavailable=0),
        guard("web", 1),
        wait(
            "the claim is being deleted",
            lambda scene: any(one.metadata.deletion_timestamp is not None for one in scene.claims()),
        ),
        change_template(expireAfter="Never"),
        event("FailedDraining", "{ns}/web", kind="Node"),
        stays(10),
        none_evicted,
        lambda scene: scene.facts.guards.clear(),
        remove("PodDisruptionBudget", "web"),
        first_gone(),
        pods_run(1),
    ),
    row(
        "an expired node waits for a pod with do-not-disrupt, as long as its terminationGracePeriod lasts",
        pool(disruption=NEVER, template={"expireAfter": "45s", "terminationGracePeriod": "30s"}),
        deploy("web", 1, annotations={names.DO_NOT_DISRUPT: "true"}, terminationGracePeriodSeconds=2),
        settled(1, 1),
        may_force,
        wait(
            "the claim is being deleted",
            lambda scene: any(one.metadata.deletion_timestamp is not None for one in scene.claims()),
        ),
        stays(10),
        first_gone(),
        none_evicted,
    ),
    # --- repair --------------------------------------------------------------------------------------------------------------
    row(
        "with --legacy-node-repair a node that has not been ready for long is replaced past every protection",
        pool(disruption={**NEVER, "budgets": [{"nodes": "0"}]}),
        deploy("web", 1, annotations={names.DO_NOT_DISRUPT: "true"}),
        settled(1, 1),
        pdb("web", maxUnavailable=0),
        may_force,
        may_orphan,
        not_ready(),
        event("DisruptionTerminating", "Disrupting Node: Unhealthy"),
        first_gone(),
        pods_run(1),
        group="legacy-repair",
    ),
    row(
        "a node that has not been ready for a short while is left alone",
        pool(disruption=NEVER),
        ONE,
        lambda scene: scene.change(
            "Node", first_named(scene), {"metadata": {"labels": {"kwok.dovetail.dev/not-ready": "true"}}}
        ),
        lambda scene: scene.throughout(
            15, lambda: "" if set(scene.facts.claims) == {one.name for one in scene.claims()} else "it was replaced"
        ),
        lambda scene: scene.change(
            "Node", first_named(scene), {"metadata": {"labels": {"kwok.dovetail.dev/not-ready": None}}}
        ),
        may_orphan,
    ),
    row(
        "without the feature gate NodeRepair broken nodes stay",
        pool(disruption=NEVER),
        ONE,
        not_ready(),
        may_orphan,
        lambda scene: scene.throughout(
            12, lambda: "" if set(scene.facts.claims) == {one.name for one in scene.claims()} else "it was replaced"
        ),
        group="gates-off",
    ),
    # --- static NodePools -----------------------------------------------------------------------------------------------------
    row(
        "a static NodePool has its nodes without pods",
        pool(replicas=2, **STATIC),
        settled(2, 0),
        status_counts(2),
        claims_lack(names.CONSOLIDATABLE),
        holds(15),
        quick=True,
    ),
    row(
        "kubectl scale brings a static NodePool up and down",
        pool(replicas=1, **STATIC),
        settled(1, 0),
        change("NodePool", "{pool}", {"spec": {"replicas": 3}}, "scale"),
        becomes(3, 0),
        status_counts(3),
        change("NodePool", "{pool}", {"spec": {"replicas": 0}}, "scale"),
        gone(),
        counted(disrupted_for("scaled_down")),
        status_counts(0),
    ),
    row(
        "empty nodes of a static NodePool go first",
        pool(replicas=3, **STATIC),
        settled(3, 0),
        deploy("web", 1),
        settled(3, 1),
        change_pool(replicas=1),
        becomes(1, 1, new=False),
        pods_stay_where("web"),
        none_evicted,
    ),
    row(
        "a node with do-not-disrupt goes last of a static NodePool",
        pool(replicas=3, **STATIC),
        settled(3, 0),
        deploy("kept", 1, annotations={names.DO_NOT_DISRUPT: "true"}),
        pods_run(1),
        deploy("web", 2),
        settled(3, 3),
        scale("web", 0),
        wait("only the kept one is left", lambda scene: not scene.every_pod("web")),
        change_pool(replicas=1),
        becomes(1, 1, new=False),
        pods_stay_where("kept"),
    ),
    row(
        "pods of a static node that goes keep their PodDisruptionBudget",
        pool(replicas=2, cpu=8, **STATIC),
        settled(2, 0),
        deploy("web", 2, cpu="3", topologySpreadConstraints=[]),
        settled(2, 2),
        pdb("web", maxUnavailable=1),
        guard("web", 1),
        change_pool(replicas=1),
        becomes(1, 2, new=False),
    ),
    row(
        "nodes of a static NodePool that drifted are replaced within the budget",
        pool(replicas=3, disruption={"budgets": [{"nodes": "1"}]}),
        settled(3, 0),
        relabel(),
        becomes(3, 0, new=True, seconds=240),
        at_most_disrupted(1),
    ),
    row(
        "a static NodePool is no larger than limits.nodes, and says so",
        pool(replicas=3, limits={"nodes": "2"}, **STATIC),
        settled(2, 0),
        event("NodeLimitReached", kind="NodePool"),
        holds(8),
        change_pool(limits={"nodes": "3"}),
        becomes(3, 0),
    ),
    row(
        "a static node that a user deletes is made anew",
        pool(replicas=2, **STATIC),
        settled(2, 0),
        remove_claims(),
        first_gone(),
        becomes(2, 0),
        kept_old(1),
    ),
    row(
        "pods that wait use static nodes that have room",
        pool(replicas=1, **STATIC),
        settled(1, 0),
        deploy("web", 1),
        becomes(1, 1, new=False),
    ),
    row(
        "without the feature gate StaticCapacity a static NodePool says that it has no effect",
        pool(replicas=2, **STATIC),
        event("StaticCapacityDisabled", kind="NodePool"),
        check(lambda scene: not scene.claims(), "there are no nodes"),
        group="gates-off",
    ),
    row(
        "pods that are created together with a static NodePool wait for its nodes",
        pool(disruption=NEVER),
        static_pool_beside(2),
        deploy("web", 2),
        becomes(2, 2),
        settled(2, 2),
        holds(4),
        check(lambda scene: not scene.claims(scene.name), "no node was bought for them"),
    ),
    # --- NodeOverlays ------------------------------------------------------------------------------------------------------------
    row(
        "a NodeOverlay that makes a type cheap decides which is bought",
        pool(cpu=(4, 8), requirements=[ON_DEMAND], disruption=NEVER),
        overlay("cheap", values=("8",), price="0.001"),
        overlay_says("cheap", "True"),
        ONE,
        sizes(8),
        check(
            lambda scene: all(
                one.metadata.annotations.get("karpenter.sh/price-overlay-applied") == "true" for one in scene.claims()
            ),
            "the claim says that an overlay decided",
        ),
    ),
    row(
        "a NodeOverlay that makes a type dear moves nodes off it",
        pool(cpu=(4, 8), requirements=[ON_DEMAND], disruption=TIGHT),
        deploy("large", 1, cpu="5"),
        pods_run(1),
        deploy("web", 1, cpu="2"),
        settled(1, 2),
        sizes(8),
        overlay("dear", values=("8",), priceAdjustment="+300%"),
        overlay_says("dear", "True"),
        scale("large", 0),
        becomes(1, 1, new=True, seconds=240),
        sizes(4),
    ),
    row(
        "three nodes just bought become one of a type that became cheaper than the three since",
        pool(cpu=4, requirements=[ON_DEMAND], disruption=TIGHT),
        overlay("dear", values=("8",), priceAdjustment="+300%"),
        overlay_says("dear", "True"),
        deploy("web", 3, cpu="2500m"),
        settled(3, 3),
        requirement(names.KWOK_INSTANCE_CPU_LABEL, "4", "8"),
        holds(),
        remove("NodeOverlay", "{ns}-dear"),
        becomes(1, 3, new=True, seconds=240),
        sizes(8),
    ),
    row(
        "a NodeOverlay gives nodes a resource that pods ask for",
        pool(disruption=NEVER),
        overlay("devices", capacity={"example.com/device": "2"}),
        overlay_says("devices", "True"),
        bare_pod(
            "plain",
            containers=[
                {
                    "name": "main",
                    "image": "none.invalid/none",
                    "resources": {"requests": {"cpu": "1"}, "limits": {"example.com/device": "2"}},
                }
            ],
        ),
        settled(1, 1),
        check(
            lambda scene: all(one.status.capacity.get("example.com/device") == "2" for one in scene.claims()),
            "the claim has the resource",
        ),
    ),
    row(
        "of two NodeOverlays of one weight that say different things one is in conflict and changes nothing",
        pool(cpu=(4, 8), requirements=[ON_DEMAND], disruption=NEVER),
        overlay("one", values=("8",), price="0.001", weight=5),
        overlay("two", values=("8",), price="9.0", weight=5),
        overlay_says("one", "False", names.CONFLICT),
        overlay_says("two", "True"),
        ONE,
        sizes(4),
        remove("NodeOverlay", "{ns}-two"),
        overlay_says("one", "True"),
        scale("web", 2),
        becomes(2, 2),
        sizes(4, 8),
    ),
    row(
        "without the feature gate NodeOverlay a NodeOverlay changes nothing",
        pool(cpu=(4, 8), requirements=[ON_DEMAND], disruption=NEVER),
        overlay("cheap", values=("8",), price="0.001"),
        ONE,
        sizes(4),
        group="gates-off",
    ),
    # --- CapacityBuffers ---------------------------------------------------------------------------------------------------------
    row(
        "a CapacityBuffer keeps empty nodes for pods to come, says so, and they go with it",
        pool(disruption=EMPTY),
        buffer("spare", replicas=2),
        settled(2, 0),
        buffer_says("spare", "ReadyForProvisioning", "True", "Resolved", units=2),
        buffer_says("spare", "Provisioning", "True", "FitsExistingCapacity", units=2),
        holds(),
        nobody_is_told_of("spare"),
        remove("CapacityBuffer", "spare"),
        gone(),
    ),
    row(
        "pods take the room of a CapacityBuffer at once, and it is launched again",
        pool(disruption=EMPTY),
        buffer("spare", replicas=1),
        settled(1, 0),
        deploy("web", 1),
        becomes(2, 1),
        kept_old(1),
        check(
            lambda scene: {one.node_name for one in scene.pods("web")} == set(scene.facts.nodes),
            "the pod runs where the room was",
        ),
        none_evicted,
    ),
    row(
        "a CapacityBuffer keeps no more than its limits",
        pool(disruption=EMPTY),
        buffer("spare", replicas=5, limits={"cpu": "7"}),
        settled(2, 0),
        buffer_says("spare", "Provisioning", "True", "FitsExistingCapacity", units=2),
        holds(10),
    ),
    row(
        "a CapacityBuffer whose template has limits only keeps room for them",
        pool(disruption=EMPTY),
        buffer("spare", replicas=2, given="limits"),
        settled(2, 0),
        buffer_says("spare", "Provisioning", "True", "FitsExistingCapacity", units=2),
        holds(10),
    ),
    row(
        "a CapacityBuffer of a share of a Deployment follows its replicas",
        pool(disruption=EMPTY),
        deploy("web", 4),
        settled(4, 4),
        buffer_of("spare", scalableRef={"apiGroup": "apps", "kind": "Deployment", "name": "web"}, percentage=50),
        settled(6, 4),
        buffer_says("spare", "Provisioning", "True", "FitsExistingCapacity", units=2),
        scale("web", 2),
        buffer_says("spare", "Provisioning", "True", "FitsExistingCapacity", units=1),
        becomes(3, 2, new=False),
    ),
    row(
        "without the feature gate CapacityBuffer a buffer keeps nothing",
        pool(disruption=EMPTY),
        buffer("spare", replicas=2),
        lambda scene: scene.throughout(12, lambda: "a node was launched" if scene.claims() else ""),
        group="gates-off",
    ),
    # --- growth limits ---------------------------------------------------------------------------------------------------------
    row(
        "--max-claims-per-minute holds back what a batch wants more, and it is launched in the next minute",
        pool(disruption=NEVER),
        deploy("web", 3),
        wait("two nodes", lambda scene: len(scene.claims()) == 2),
        counted(sample("dovetail_nodeclaims_held_back", nodepool="{pool}", limit="max-claims-per-minute")),
        lambda scene: scene.throughout(15, lambda: "" if len(scene.claims()) == 2 else "not two nodes"),
        becomes(3, 3),
        group="slow",
    ),
    # --- claims of their own -----------------------------------------------------------------------------------------------------
    row(
        "a NodeClaim without a NodePool is launched, takes pods, and is drained when it is deleted",
        node_class("{ns}"),
        own_claim(),
        settled(1, 0),
        bare_pod("web"),
        lambda scene: scene.facts.pods.update({one.uid: one for one in scene.pods()}),
        pods_run(1),
        remove_claims(),
        first_gone(),
    ),
    row(
        "a pod that is created together with a NodeClaim without a NodePool waits for its node",
        pool(disruption=NEVER, delay="6s"),
        own_claim(),
        deploy("web", 1),
        becomes(1, 1),
        settled(1, 1),
        holds(4),
        check(
            lambda scene: [one.name for one in scene.claims()] == [f"{scene.name}-standalone"],
            "no node was bought for it",
        ),
    ),
    row(
        "a NodeClaim without a NodePool expires",
        node_class("{ns}"),
        own_claim(expireAfter="30s"),
        settled(1, 0),
        gone(),
    ),
    row(
        "a NodeClaim without a NodePool that is broken is repaired",
        node_class("{ns}"),
        own_claim(),
        settled(1, 0),
        not_ready(),
        gone(),
        group="repair",
    ),
    # --- nodes that vanish --------------------------------------------------------------------------------------------------------
    row(
        "a claim whose instance and Node vanished is removed",
        pool(disruption=NEVER),
        ONE,
        may_orphan,
        vanish,
        wait(
            "the claim is gone", lambda scene: not set(scene.facts.claims) & {one.name for one in scene.claims()}, 240
        ),
        pods_run(1),
        counted(disrupted_for("garbage_collected")),
    ),
    # --- drains at a limit ----------------------------------------------------------------------------------------------------------
    row(
        "a drain under a PodDisruptionBudget ends though its NodePool is at its limit",
        pool(disruption=NEVER, limits={"cpu": "4"}),
        GUARDED,
        remove_claims(),
        first_gone(),
        becomes(1, 3, new=True),
        status_counts(1),
    ),
    row(
        "a drain under a PodDisruptionBudget ends though its NodePool may have no more nodes",
        pool(disruption=NEVER, limits={"nodes": "1"}),
        GUARDED,
        remove_claims(),
        first_gone(),
        becomes(1, 3, new=True),
    ),
    row(
        "a drain under a PodDisruptionBudget ends though the nodes of its NodePool may cost no more",
        pool(disruption=NEVER),
        change("NodePool", "{pool}", {"metadata": {"annotations": {names.MAX_USD_PER_HOUR: "0.2"}}}),
        GUARDED,
        remove_claims(),
        first_gone(),
        becomes(1, 3, new=True),
    ),
    row(
        "a drain that finds no place waits, is told of, and ends as soon as the limit of its NodePool allows it",
        pool(disruption=NEVER, limits={"cpu": "4"}),
        GUARDED,
        change_pool(limits={"cpu": "3"}),
        remove_claims(),
        event("FailedScheduling", "limit on cpu: 3 left", kind="Pod"),
        stays(30),
        change_pool(limits={"cpu": "4"}),
        first_gone(),
        becomes(1, 3, new=True),
    ),
    row(
        "pods of a node that goes get what a limit leaves before pods that wait for longer",
        pool(disruption=NEVER, limits={"cpu": "4"}),
        GUARDED,
        deploy("stranger", 1, cpu="3"),
        event("FailedScheduling", "limit on cpu: 0 left", kind="Pod"),
        remove_claims(),
        first_gone(),
        pods_run(3, "db"),
        check(lambda scene: not scene.running("stranger"), "the stranger waits"),
        change_pool(limits={"cpu": "8"}),
        becomes(2, 4),
    ),
    row(
        "a node that drifts and a pod that comes at the same time exceed no limit together",
        pool(disruption=NEVER, limits={"cpu": "8"}),
        ONE,
        relabel(),
        deploy("more", 2),
        within_limit(8, 25),
        event("FailedScheduling", "limit", kind="Pod"),
        change_pool(limits={"cpu": "12"}),
        becomes(3, 3),
    ),
    # --- NodePools that cannot launch -----------------------------------------------------------------------------------------------
    row(
        "limits of a NodePool keep pods waiting, and they are told",
        pool(disruption=NEVER, limits={"cpu": "4"}),
        deploy("web", 2),
        wait("one pod runs", lambda scene: scene.running() == 1),
        event("FailedScheduling", "limit", kind="Pod"),
        counted(sample("karpenter_scheduler_unschedulable_pods_count", controller="provisioner")),
        change_pool(limits={"cpu": "8"}),
        becomes(2, 2),
    ),
    row(
        "a NodePool whose NodeClass is missing is not ready, and its pods wait for it",
        pool(disruption=NEVER, node_class=False, ready=False),
        pool_says(names.NODECLASS_READY, "False", names.NODECLASS_NOT_FOUND),
        pool_says(names.READY, "False"),
        deploy("web", 1),
        event("FailedScheduling", "not Ready", kind="Pod"),
        node_class("{ns}"),
        pool_says(names.READY, "True"),
        becomes(1, 1),
    ),
    row(
        "of two NodePools the heavier is used",
        pool("-light", disruption=NEVER),
        pool("-heavy", disruption=NEVER, weight=50),
        deploy("web", 1),
        settled(1, 1),
        check(lambda scene: [one.pool for one in scene.claims()] == [f"{scene.name}-heavy"], "the heavier is used"),
    ),
    row(
        "a NodePool counts its nodes and their resources",
        pool(disruption=NEVER),
        deploy("web", 2),
        settled(2, 2),
        status_counts(2),
        wait(
            "status.resources",
            lambda scene: (
                scene.node_pool(scene.name).status.resources.get("cpu") == "8"
                and scene.node_pool(scene.name).status.resources.get("nodes") == "2"
            ),
        ),
        pool_says(names.NODE_REGISTRATION_HEALTHY, "True"),
    ),
)
