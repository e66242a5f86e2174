"""Rows in which a workload could be harmed: PodDisruptionBudgets, do-not-disrupt, spread, volumes, drains."""

from typing import Any

from provisioner.apis import names
from tests.scenarios.row import Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    EMPTY,
    LIVED,
    NEVER,
    ON_DEMAND,
    TIGHT,
    Step,
    alone,
    apart,
    bare_pod,
    becomes,
    begun,
    change,
    change_template,
    check,
    claims_say,
    counted,
    daemons,
    daemons_run,
    deploy,
    disrupted_for,
    event,
    evicted,
    first_gone,
    gone,
    guard,
    holds,
    labelled,
    may_force,
    may_orphan,
    no_event,
    none_evicted,
    on_nodes,
    on_pods,
    over,
    pdb,
    pod_stays,
    pods_run,
    pool,
    put,
    relabel,
    remove,
    remove_claims,
    remove_node,
    renewed,
    sample,
    scale,
    settled,
    spread,
    stays,
    surging,
    together,
    unguarded,
    wait,
)

PROTECTED: dict[str, Any] = {"annotations": {names.DO_NOT_DISRUPT: "true"}}
TWO_SMALL = together(deploy("large", 2, cpu="3"), pods_run(2), deploy("small", 2, cpu="600m"), settled(2, 4))
"""Two nodes of 4 CPUs with a large and a small pod each: without the large ones, one node is too much."""


def in_zones(*zones: str) -> dict[str, object]:
    """A requirement of a pool."""
    return {"key": names.ZONE_LABEL, "operator": "In", "values": [f"test-zone-{one}" for one in zones]}


def has_deadline(scene: Scene) -> bool:
    """Whether the first claim says until when it may drain."""
    claim = scene.watching.claims.get(min(scene.facts.claims))
    return claim is not None and names.TERMINATION_TIMESTAMP in claim.metadata.annotations


def daemons_of_the_first_node(scene: Scene) -> list[str]:
    """Names of those that are not ending."""
    return [one.name for one in scene.pods("agent") if one.node_name == min(scene.facts.nodes)]


def volume(name: str, zone: str) -> dict[str, object]:
    """A disk of one zone."""
    term = {"key": names.ZONE_LABEL, "operator": "In", "values": [f"test-zone-{zone}"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{{ns}}-{name}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disk.example", "volumeHandle": f"{{ns}}-{name}"},
            "storageClassName": "",
            "claimRef": {"namespace": "{ns}", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def volume_claim(name: str) -> dict[str, object]:
    """A claim of that disk."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": f"{{ns}}-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def mounted(name: str) -> list[dict[str, object]]:
    """Volumes of a pod."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def disk(name: str, zone: str) -> Step:
    """A disk of one zone and the claim of it, of one name."""
    return together(put(volume(name, zone)), put(volume_claim(name)))


SMALL_WITH_DISKS = together(*(deploy(one, 1, cpu="600m", volumes=mounted(one)) for one in ("one", "two")))


def attach(scene: Scene) -> None:
    """The disk hangs on the row's node, as the attach-detach controller and a CSI driver would have it."""
    scene.put(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": f"{scene.name}-data"},
            "spec": {
                "attacher": "disk.example",
                "nodeName": min(scene.facts.nodes),
                "source": {"persistentVolumeName": f"{scene.name}-data"},
            },
        }
    )


def is_excluded(scene: Scene) -> bool:
    """Whether the first Node is there and says to load balancers that it leaves."""
    node = scene.watching.nodes.get(min(scene.facts.nodes))
    return node is not None and node.metadata.labels.get(names.EXCLUDE_BALANCERS_LABEL) == names.EXCLUDE_BALANCERS_VALUE


def detach(scene: Scene) -> None:
    """The disk hangs nowhere any more."""
    scene.remove("VolumeAttachment", f"{scene.name}-data")


def to_two_nodes_of_six(name: str, of: Step, *, quick: bool = False, **more: Any) -> Row:
    """Twelve pods that are spread by hostname over three nodes of a pool; `more` is of their constraint."""
    return row(
        name,
        of,
        deploy("ballast", 3, cpu="9", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "ballast")),
        pods_run(3),
        deploy("web", 12, cpu="1", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web", **more)),
        settled(3, 15),
        spread("web", names.HOSTNAME_LABEL, 1, domains=3),
        pdb("web", maxUnavailable=1),
        guard("web", 11),
        scale("ballast", 0),
        becomes(2, 12, new=False),
        evicted("web", count=4),
        spread("web", names.HOSTNAME_LABEL, 1, domains=2),
        quick=quick,
    )


ROWS: tuple[Row, ...] = (
    # --- PodDisruptionBudgets -------------------------------------------------------------------------------------
    row(
        "a PodDisruptionBudget of none holds consolidation until it is released",
        pool(disruption=TIGHT),
        TWO_SMALL,
        pdb("small", maxUnavailable=0),
        guard("small", 2),
        scale("large", 0),
        event("DisruptionBlocked", "Pdb prevents pod evictions (PodDisruptionBudget={ns}/small)"),
        event("DisruptionBlocked", "Pdb prevents pod evictions (PodDisruptionBudget={ns}/small)", kind="Node"),
        counted(
            sample("dovetail_pod_disruption_budgets_never_allowing", namespace="{ns}", poddisruptionbudget="small")
        ),
        holds(),
        none_evicted,
        change("PodDisruptionBudget", "small", {"spec": {"maxUnavailable": 1}}),
        unguarded,
        becomes(1, 2, new=False),
    ),
    row(
        "a PodDisruptionBudget of none holds drift until it is released",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        pdb("web", minAvailable=1),
        relabel(),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        event("DisruptionBlocked", "Pdb prevents pod evictions (PodDisruptionBudget={ns}/web)"),
        holds(10),
        remove("PodDisruptionBudget", "web"),
        becomes(1, 1, new=True),
        evicted("web", count=1),
    ),
    row(
        "two PodDisruptionBudgets of one pod hold its node",
        pool(disruption=NEVER),
        deploy("web", 2),
        settled(2, 2),
        pdb("web", maxUnavailable=1),
        pdb("web", maxUnavailable=2, name="other"),
        relabel(),
        event("DisruptionBlocked", "Eviction does not support multiple PDBs"),
        holds(10),
        remove("PodDisruptionBudget", "other"),
        becomes(2, 2, new=True),
    ),
    row(
        "a PodDisruptionBudget with an empty selector is of every pod of its namespace",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        put(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "all"},
                "spec": {"selector": {}, "maxUnavailable": 0},
            }
        ),
        relabel(),
        event("DisruptionBlocked", "Pdb prevents pod evictions (PodDisruptionBudget={ns}/all)"),
        holds(8),
    ),
    row(
        "a pod that is not ready goes where its PodDisruptionBudget says AlwaysAllow",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        pdb("web", minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow"),
        on_pods("web", {"metadata": {"labels": {"kwok.dovetail.dev/unhealthy": "true"}}}),
        wait("the pod is not ready", lambda scene: not any(one.ready for one in scene.pods("web"))),
        relabel(),
        becomes(1, 1, new=True),
    ),
    row(
        "drift of three nodes keeps seven of eight pods",
        pool(disruption=NEVER),
        deploy("web", 8, cpu="1"),
        settled(3, 8),
        pdb("web", minAvailable=7),
        guard("web", 7),
        relabel(),
        becomes(3, 8, new=True, seconds=240),
        evicted("web", count=8),
        quick=True,
    ),
    row(
        "a Deployment of one replica that asks for a surge is never without a ready pod while its node drifts",
        pool(disruption=NEVER),
        deploy("web", 1),
        surging("web"),
        settled(1, 1),
        guard("web", 1),
        relabel(),
        becomes(1, 1, new=True),
        evicted("web", count=0),
        event("SurgeStarted", "Restarted Deployment {ns}/web", kind="Pod"),
        quick=True,
    ),
    row(
        "a Deployment of one replica that asks for a surge has another pod before a node that a user deletes is drained",
        pool(disruption=NEVER),
        deploy("web", 1),
        surging("web"),
        settled(1, 1),
        guard("web", 1),
        remove_claims(),
        first_gone(),
        becomes(1, 1, new=True),
        evicted("web", count=0),
    ),
    row(
        "a Deployment that asks for a surge and may start none more is evicted, and its pod says why",
        pool(disruption=NEVER),
        deploy("web", 1),
        surging("web", maxSurge=0, maxUnavailable=1),
        settled(1, 1),
        relabel(),
        becomes(1, 1, new=True),
        evicted("web", count=1),
        event("SurgeNotPossible", "maxSurge of the Deployment is 0", kind="Pod"),
    ),
    row(
        "pods of a Deployment of two replicas that asks for a surge are evicted, and say why",
        pool(disruption=NEVER),
        deploy("web", 2, cpu="1"),
        surging("web"),
        settled(1, 2),
        relabel(),
        becomes(1, 2, new=True),
        evicted("web", count=2),
        event("SurgeNotPossible", "exactly one replica", kind="Pod"),
    ),
    row(
        "a user's deletion of a claim drains one pod after another under its PodDisruptionBudget",
        pool(disruption=NEVER),
        deploy("web", 3, cpu="1"),
        settled(1, 3),
        pdb("web", maxUnavailable=1),
        guard("web", 2),
        remove_claims(),
        first_gone(),
        becomes(1, 3, new=True),
        evicted("web", count=3),
    ),
    row(
        "a drain that a PodDisruptionBudget holds says so, and goes on when it is released",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        pdb("web", maxUnavailable=0),
        guard("web", 1),
        remove_claims(),
        event("FailedDraining", "{ns}/web", kind="Node"),
        claims_say(names.DRAINED, "Unknown", names.DRAINING, "{ns}/web", count=1),
        stays(8),
        none_evicted,
        unguarded,
        remove("PodDisruptionBudget", "web"),
        first_gone(),
        pods_run(1),
    ),
    # --- spread ------------------------------------------------------------------------------------------------------
    to_two_nodes_of_six(
        "12 pods over three nodes with maxSkew 1 and one at a time become two nodes of six",
        pool(cpu=16, disruption=TIGHT),
        quick=True,
        minDomains=2,
    ),
    to_two_nodes_of_six(
        "12 pods over three nodes with maxSkew 1 and no minDomains become two nodes of six where their NodePool asks for one",
        pool(cpu=16, disruption=TIGHT, annotations={names.HOSTNAME_DOMAINS: "1"}),
    ),
    row(
        "12 pods over three nodes with maxSkew 1 and one at a time survive drift of all three",
        pool(cpu=(2, 4, 8), disruption=NEVER, requirements=[ON_DEMAND]),
        deploy("ballast", 3, cpu="4", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "ballast")),
        deploy("web", 12, cpu="900m", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web")),
        settled(3, 15),
        scale("ballast", 0),
        pods_run(12),
        pdb("web", maxUnavailable=1),
        guard("web", 11),
        relabel(),
        renewed(pods=12, seconds=300),
        spread("web", names.HOSTNAME_LABEL, 1),
    ),
    row(
        "12 pods over three nodes of the one size that there is with maxSkew 1 and one at a time survive drift of all three",
        pool(cpu=8, disruption=NEVER),
        deploy("web", 12, cpu="1", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web")),
        settled(3, 12),
        pdb("web", maxUnavailable=1),
        guard("web", 11),
        relabel(),
        renewed(pods=12, seconds=300),  # three nodes; nominations alone may cost a fourth
        evicted("web", count=12),
        spread("web", names.HOSTNAME_LABEL, 1),
    ),
    row(
        "six pods over three nodes with maxSkew 1 and one at a time survive drift of all three",
        pool(cpu=4, disruption=NEVER),
        deploy("web", 6, cpu="1", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web")),
        settled(3, 6),
        pdb("web", maxUnavailable=1),
        guard("web", 5),
        relabel(),
        renewed(pods=6, seconds=300),
        spread("web", names.HOSTNAME_LABEL, 1),
    ),
    row(
        "six pods over three nodes that do not count nodes with taints survive drift of all three, one at a time",
        pool(cpu=4, disruption=NEVER),
        deploy(
            "web",
            6,
            cpu="1",
            topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web", nodeTaintsPolicy="Honor"),
        ),
        settled(3, 6),
        pdb("web", maxUnavailable=1),
        guard("web", 5),
        relabel(),
        renewed(pods=6, seconds=300),
        evicted("web", count=6),
        spread("web", names.HOSTNAME_LABEL, 1),
    ),
    row(
        "six pods spread over six half-empty nodes become three nodes of two",
        pool(disruption=TIGHT),
        deploy("large", 6),
        pods_run(6),
        deploy("web", 6, cpu="600m", topologySpreadConstraints=over(names.HOSTNAME_LABEL, "web")),
        settled(6, 12),
        spread("web", names.HOSTNAME_LABEL, 1, domains=6),
        scale("large", 0),
        pdb("web", maxUnavailable=1),
        guard("web", 5),
        becomes(3, 6, new=False),
        evicted("web", count=3),
        spread("web", names.HOSTNAME_LABEL, 1, domains=3),
        settled(3, 6),
        holds(10),
    ),
    row(
        "12 pods over three zones with maxSkew 1 and one at a time survive drift of all three nodes",
        pool(cpu=8, disruption=NEVER, requirements=[in_zones("a", "b", "c")]),
        deploy("web", 12, cpu="1", topologySpreadConstraints=over(names.ZONE_LABEL, "web")),
        settled(3, 12),
        pdb("web", maxUnavailable=1),
        guard("web", 11),
        relabel(),
        becomes(3, 12, new=True, seconds=300),
        spread("web", names.ZONE_LABEL, 1, domains=3),
    ),
    row(
        "12 pods over three zones with maxSkew 1 and one at a time survive that all three nodes go at once, unasked",
        pool(cpu=8, disruption=NEVER, requirements=[in_zones("a", "b", "c")]),
        deploy("web", 12, cpu="1", topologySpreadConstraints=over(names.ZONE_LABEL, "web")),
        settled(3, 12),
        pdb("web", maxUnavailable=1),
        guard("web", 11),
        remove_claims(3),
        renewed(12, seconds=300),
        spread("web", names.ZONE_LABEL, 1, domains=3),
    ),
    row(
        "consolidation leaves a pod in each zone",
        pool(cpu=(2, 4), disruption=TIGHT, requirements=[in_zones("a", "b", "c"), ON_DEMAND]),
        deploy("large", 3, cpu="3", topologySpreadConstraints=over(names.ZONE_LABEL, "large")),
        pods_run(3),
        deploy("web", 3, cpu="600m", topologySpreadConstraints=over(names.ZONE_LABEL, "web")),
        settled(3, 6),
        pdb("web", maxUnavailable=1),
        guard("web", 2),
        scale("large", 0),
        wait(
            "smaller nodes",
            lambda scene: {one.metadata.labels.get(names.KWOK_INSTANCE_CPU_LABEL) for one in scene.claims()} == {"2"},
            240,
        ),
        becomes(3, 3, new=True),
        spread("web", names.ZONE_LABEL, 1, domains=3),
    ),
    row(
        "pods that must be apart stay apart through drift",
        pool(disruption=NEVER),
        deploy("web", 3, cpu="600m", affinity=alone("web")),
        settled(3, 3),
        pdb("web", maxUnavailable=1),
        guard("web", 2),
        relabel(),
        becomes(3, 3, new=True, seconds=240),
        apart("web"),
    ),
    row(
        "pods that must be apart are not consolidated onto one node",
        pool(disruption=TIGHT),
        deploy("web", 2, cpu="600m", affinity=alone("web")),
        settled(2, 2),
        holds(),
        apart("web"),
    ),
    row(
        "pods that must be together stay together through drift",
        pool(disruption=NEVER),
        deploy("leader", 1, cpu="1"),
        settled(1, 1),
        deploy(
            "follower",
            2,
            cpu="1",
            affinity={
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"app": "leader"}}, "topologyKey": names.HOSTNAME_LABEL}
                    ]
                }
            },
        ),
        settled(1, 3),
        relabel(),
        becomes(1, 3, new=True, seconds=240),
    ),
    # --- volumes -----------------------------------------------------------------------------------------------------
    row(
        "a pod with a disk keeps its zone through drift, and its node waits until the disk is detached",
        pool(disruption=NEVER),
        disk("data", "b"),
        deploy("db", 1, volumes=mounted("data")),
        settled(1, 1),
        attach,
        relabel(),
        event("AwaitingVolumeDetachment", kind="Node", seconds=180),
        stays(6),
        detach,
        becomes(1, 1, new=True),
        check(
            lambda scene: [one.metadata.labels[names.ZONE_LABEL] for one in scene.nodes()] == ["test-zone-b"],
            "the new node is in the zone of the disk",
        ),
    ),
    row(
        "pods with disks in two zones are not consolidated onto one node, though it has room for both",
        pool(disruption=TIGHT),
        disk("one", "a"),
        disk("two", "c"),
        SMALL_WITH_DISKS,
        settled(2, 2),
        deploy("large", 2),
        settled(2, 4),
        scale("large", 0),
        event("Unconsolidatable"),
        holds(),
        none_evicted,
    ),
    row(
        "pods with disks in one zone are consolidated onto one node of that zone",
        pool(disruption=TIGHT, requirements=[in_zones("a", "b")]),
        disk("one", "b"),
        disk("two", "b"),
        deploy("large", 2, nodeSelector={names.ZONE_LABEL: "test-zone-b"}),
        pods_run(2),
        SMALL_WITH_DISKS,
        settled(2, 4),
        scale("large", 0),
        becomes(1, 2, new=False),
        labelled(names.ZONE_LABEL, "test-zone-b"),
        check(lambda scene: len(scene.log.evictions(scene.name)) == 1, "one pod moved"),
    ),
    # --- do-not-disrupt --------------------------------------------------------------------------------------------------
    row(
        "a pod with do-not-disrupt holds consolidation and drift",
        pool(disruption=TIGHT),
        deploy("large", 2, cpu="3"),
        pods_run(2),
        deploy("small", 2, cpu="600m", **PROTECTED),
        settled(2, 4),
        scale("large", 0),
        relabel(),
        claims_say(names.DRIFTED, "True", "NodePoolDrifted"),
        event("DisruptionBlocked", 'Pod has "karpenter.sh/do-not-disrupt" annotation'),
        holds(),
        pod_stays("small"),
    ),
    row(
        "a pod with do-not-disrupt of a duration holds its node for that long",
        pool(disruption=NEVER),
        deploy("web", 1, annotations={names.DO_NOT_DISRUPT: "75s"}),
        settled(1, 1),
        relabel(),
        claims_say(names.DRIFTED, "True"),
        holds(8),
        event("DoNotDisruptUntil", "is blocked until", kind="Pod"),
        becomes(1, 1, new=True),
        evicted("web", count=1),
    ),
    row(
        "a value of do-not-disrupt that means nothing is named and ignored",
        pool(disruption=NEVER),
        deploy("web", 1, annotations={names.DO_NOT_DISRUPT: "yes"}),
        settled(1, 1),
        relabel(),
        event("InvalidDoNotDisruptAnnotation", kind="Pod"),
        becomes(1, 1, new=True),
    ),
    row(
        "a node with do-not-disrupt is left alone until the annotation goes",
        pool(disruption=TIGHT),
        deploy("web", 1),
        settled(1, 1),
        on_nodes({"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}}),
        relabel(),
        event("DisruptionBlocked", 'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation'),
        holds(10),
        on_nodes({"metadata": {"annotations": {names.DO_NOT_DISRUPT: None}}}),
        becomes(1, 1, new=True),
    ),
    row(
        "do-not-disrupt in the template of a NodePool reaches its nodes",
        pool(
            disruption=EMPTY,
            template={"terminationGracePeriod": "30s"},
        ),
        change_template(metadata={"annotations": {names.DO_NOT_DISRUPT: "true"}}),
        deploy("web", 1),
        settled(1, 1),
        scale("web", 0),
        wait("no pod is left", lambda scene: not scene.every_pod("web")),
        event("DisruptionBlocked", "annotation"),
        holds(10),
    ),
    row(
        "a pod without an owner with do-not-disrupt holds drift",
        pool(disruption=NEVER),
        deploy("web", 1, cpu="1"),
        settled(1, 1),
        bare_pod("kept", **PROTECTED),
        settled(1, 2),
        relabel(),
        event("DisruptionBlocked", 'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod={ns}/kept)'),
        holds(8),
        remove("Pod", "kept"),
        becomes(1, 1, new=True),
    ),
    row(
        "a daemon with do-not-disrupt holds drift",
        pool(disruption=NEVER),
        daemons(**PROTECTED),
        deploy("web", 1, cpu="1"),
        settled(1, 1),
        daemons_run(1),
        relabel(),
        event("DisruptionBlocked", 'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod={ns}/agent-'),
        holds(8),
        remove("DaemonSet", "agent"),
        becomes(1, 1, new=True),
    ),
    # --- terminationGracePeriod ---------------------------------------------------------------------------------------------
    row(
        "with a terminationGracePeriod drift goes on past a PodDisruptionBudget, and pods leave at the deadline",
        pool(disruption=NEVER, template={"terminationGracePeriod": "25s"}),
        deploy("web", 1, terminationGracePeriodSeconds=5),
        settled(1, 1),
        pdb("web", maxUnavailable=0),
        may_force,
        relabel(),
        wait("the claim has its deadline", has_deadline),
        stays(8),
        event("TerminationGracePeriodExpiring", "All pods will be deleted by", kind="NodeClaim"),
        event("TerminationGracePeriodExpiring", "All pods will be deleted by", kind="Node"),
        event("Disrupted", kind="Pod"),
        becomes(1, 1, new=True),
        none_evicted,
    ),
    row(
        "with a terminationGracePeriod drift goes on past do-not-disrupt, and consolidation does not",
        pool("", disruption=TIGHT, template={"terminationGracePeriod": "20s"}),
        deploy("large", 2, cpu="3"),
        pods_run(2),
        deploy("small", 2, cpu="600m", terminationGracePeriodSeconds=2, **PROTECTED),
        settled(2, 4),
        may_force,
        scale("large", 0),
        wait("the large pods are gone", lambda scene: not scene.every_pod("large")),
        holds(),
        relabel(),
        wait(
            "all claims are new",
            lambda scene: all(one.name not in scene.facts.claims for one in scene.claims()) and scene.running() == 2,
        ),
        event("Disrupted", kind="Pod"),
        none_evicted,
    ),
    row(
        "a terminationGracePeriod that is over ends the drain that a stuck pod holds",
        pool(disruption=NEVER, template={"terminationGracePeriod": "15s"}),
        deploy("web", 1, terminationGracePeriodSeconds=3600, annotations={"kwok.dovetail.dev/delete-delay": "3600s"}),
        settled(1, 1),
        may_force,
        may_orphan,
        remove_claims(),
        wait("the claim has its deadline", has_deadline),
        first_gone(),
        pods_run(1),
    ),
    # --- drains ------------------------------------------------------------------------------------------------------------------
    row(
        "a pod that tolerates the disruption taint is not evicted and holds nothing",
        pool(disruption=NEVER),
        deploy("web", 1, cpu="1"),
        settled(1, 1),
        bare_pod("tolerant", tolerations=[{"operator": "Exists"}]),
        settled(1, 2),
        may_orphan,
        remove_claims(),
        first_gone(),
        evicted("tolerant", count=0),
        pods_run(1),
    ),
    row(
        "daemons do not come back while their node drains",
        pool(disruption=NEVER),
        daemons(),
        deploy(
            "dns",
            1,
            cpu="1",
            priorityClassName="system-cluster-critical",
            terminationGracePeriodSeconds=30,
            annotations={"kwok.dovetail.dev/delete-delay": "10s"},
        ),
        settled(1, 1),
        daemons_run(1),
        remove_claims(),
        wait("the daemon left", lambda scene: not daemons_of_the_first_node(scene)),
        lambda scene: scene.throughout(5, lambda: "it came back" if daemons_of_the_first_node(scene) else ""),
        check(lambda scene: scene.watching.nodes.get(min(scene.facts.nodes)) is not None, "the node still drains"),
        first_gone(),
        becomes(1, 1, new=True),
        daemons_run(1),
    ),
    row(
        "a pod without an owner is evicted like others",
        pool(disruption=NEVER),
        bare_pod("lonely"),
        settled(1, 1),
        remove_claims(),
        first_gone(),
        evicted("lonely", count=1),
        gone(),
    ),
    row(
        "a pod that never ends stops holding its drain a minute after its time",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        on_pods("web", {"metadata": {"finalizers": ["example.com/never"]}}),
        remove_claims(),
        stays(20),
        first_gone(seconds=180),
        pods_run(1),
        may_orphan,
    ),
    row(
        "nodes that have ended hold no budget, though a foreign finalizer holds their Nodes",
        pool(disruption={**NEVER, "budgets": [{"nodes": "50%"}]}),
        deploy("web", 3),
        settled(3, 3),
        on_nodes({"metadata": {"finalizers": [names.TERMINATION_FINALIZER, "example.com/mine"]}}),
        scale("web", 0),
        wait("the pods are gone", lambda scene: not scene.every_pod("web")),
        relabel(),
        wait(
            "our finalizer is off all three",
            lambda scene: [list(one.metadata.finalizers) for one in scene.nodes()] == [["example.com/mine"]] * 3,
        ),
        claims_say(names.INSTANCE_TERMINATING, "True", count=3),
        on_nodes({"metadata": {"finalizers": None}}),
        gone(),
    ),
    row(
        "a foreign finalizer holds the Node object and nothing else",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        on_nodes({"metadata": {"finalizers": [names.TERMINATION_FINALIZER, "example.com/mine"]}}),
        remove_claims(),
        wait(
            "our finalizer is off the node",
            lambda scene: all(
                one.metadata.finalizers == ("example.com/mine",)
                or list(one.metadata.finalizers) == ["example.com/mine"]
                for one in scene.nodes()
                if one.metadata.name in scene.facts.nodes
            ),
        ),
        pods_run(1),
        on_nodes({"metadata": {"finalizers": None}}),
        first_gone(),
    ),
    row(
        "a node that a user deletes is drained first, and its pods have a place before they go",
        pool(disruption=NEVER, delay="3s"),
        deploy("web", 2, cpu="1"),
        settled(1, 2),
        pdb("web", maxUnavailable=1),
        guard("web", 1),
        remove_node(),
        wait("the node is out of the load balancers", is_excluded),
        first_gone(),
        becomes(1, 2, new=True),
        evicted("web", count=2),
    ),
    row(
        "a NodePool that a user deletes takes its nodes along, drained",
        pool(disruption=NEVER),
        pool("-other", disruption=NEVER, weight=1),
        deploy("web", 2),
        settled(2, 2),
        pdb("web", maxUnavailable=1),
        guard("web", 1),
        lambda scene: scene.remove("NodePool", scene.facts.claims[min(scene.facts.claims)].pool),
        becomes(2, 2, new=None),
        wait(
            "the pods run in the other pool",
            lambda scene: len({one.pool for one in scene.claims()}) == 1 and scene.running() == 2,
        ),
    ),
    row(
        "a kubelet that relabels its Node changes nothing: the labels of its NodeClaim are put back",
        pool(disruption=NEVER),
        deploy("web", 1),
        settled(1, 1),
        on_nodes({"metadata": {"labels": {names.NODEPOOL_LABEL: "privileged", names.CAPACITY_TYPE_LABEL: "reserved"}}}),
        event("NodeLabelsRestored", f"{names.CAPACITY_TYPE_LABEL}, {names.NODEPOOL_LABEL}", kind="Node"),
        labelled(names.NODEPOOL_LABEL, "{pool}"),
        check(
            lambda scene: (
                {one.metadata.labels[names.CAPACITY_TYPE_LABEL] for one in scene.nodes()}
                == {one.metadata.labels[names.CAPACITY_TYPE_LABEL] for one in scene.claims()}
            ),
            "Node and NodeClaim have the same capacity type",
        ),
        holds(5),
    ),
    row(
        "drift brings the replacement first: the pod leaves after the new node is there",
        pool(disruption=NEVER, delay="4s"),
        deploy("web", 1),
        settled(1, 1),
        relabel(),
        wait("two claims", lambda scene: len(scene.claims()) == 2),
        event("DisruptionLaunching", "Launching NodeClaim: Drifted"),
        event("DisruptionWaitingReadiness", "Waiting on readiness to continue disruption"),
        becomes(1, 1, new=True),
        event("DisruptionTerminating", "Disrupting Node: Drifted"),
        event("DisruptionTerminating", "Disrupting Node: Drifted", kind="Node"),
        event("Evicted", "Evicted pod: Drifted", kind="Pod"),
        counted(
            *LIVED,
            *begun("replace", "drifted"),
            disrupted_for("drifted"),
            sample("karpenter_nodeclaims_created_total", reason="drifted", nodepool="{pool}"),
            sample("karpenter_pods_drained_total", reason="Drifted"),
        ),
        no_event("FailedDraining", kind="Node"),
        quick=True,
    ),
)
