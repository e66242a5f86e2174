"""Rows about pods at their admission: what the webhook stamps, what it leaves alone, what becomes of stamped pods, and what the extender does for
planned ones; and about what authors of NodePools are told."""

from collections.abc import Mapping
from typing import Any

from provisioner.apis import names
from provisioner.kube.resources import PODS
from provisioner.lab.harness.workload import Document, manifests
from tests.scenarios.admitting import (
    DEFINITION,
    PREFERRED,
    REQUIRED,
    Wire,
    annotated,
    as_admitted,
    at,
    guide_commands,
    has,
    image,
    landed,
    later,
    marked,
    no_bundle,
    on_team,
    planned,
    pod,
    pods_of,
    recorded,
    required,
    reviewed,
    sides,
    stored,
    untouched,
    workload,
)
from tests.scenarios.grounds import DEFAULT_OS, DEFINITIONS
from tests.scenarios.row import ADMISSION, ALONE, DEFAULTS, POLICY, SILENT, Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    NEVER,
    ON_DEMAND,
    TIGHT,
    Step,
    bare_pod,
    becomes,
    change_pool,
    daemons,
    deploy,
    event,
    labelled,
    may_force,
    no_event,
    pod_stays,
    pods_run,
    pool,
    put,
    relabel,
    remove,
    renewed,
    scale,
    settled,
    wait,
)
from tests.support.provisioner import TEAM

ARM64 = {names.STAMP_ARCH: "arm64"}


def _to_agent(kind: str) -> dict[str, Any]:
    """Required affinity or anti-affinity over hosts to the pods of the DaemonSet `agent`."""
    term = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "agent"}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


BOTH = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand", "spot"]}
ARM_NODES: Mapping[str, Any] = {
    "requirements": [
        {"key": names.KWOK_INSTANCE_CPU_LABEL, "operator": "In", "values": ["4"]},
        {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64", "arm64"]},
        {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
    ]
}
"""A template for nodes of both architectures; arm64 is not cheaper."""
IMPORTANT = "system-cluster-critical"
"""A PriorityClass that every cluster has."""
PATIENT: Document = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "{pool}"},
    "value": 1000,
    "preemptionPolicy": "Never",
}
"""Its pods come first in kube-scheduler's queue and evict nobody."""
ARM_RECORD = recorded("arch=arm64 (pod)")
IS_ARM64 = required(names.ARCH_LABEL, "arm64")
NO_NODE_WANTED: Mapping[str, Any] = {"nodeSelector": {"example.com/nowhere": "yes"}}
"""As a pod's spec: rows about stamps alone need no nodes."""
FREE = has(None, "spec", "schedulingGates")
UNMARKED = has(None, "metadata", "labels", names.IMAGE_ARCH_PENDING)
ZONES = {"labelSelector": {"matchLabels": {"app": "web"}}, "maxSkew": 1, "topologyKey": names.ZONE_LABEL}
SOFT_ZONES = {**ZONES, "whenUnsatisfiable": "ScheduleAnyway"}
SPREAD = ("spec", "topologySpreadConstraints", 0)
SPOT_PREFERRED = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]}]},
}


def setting(name: str, value: str) -> dict[str, str]:
    """A setting as an annotation of a pod or a label of a namespace."""
    return {f"dovetail.dev/{name}": value}


def expression(key: str, *values: str) -> dict[str, Any]:
    """In."""
    return {"key": key, "operator": "In", "values": list(values)}


def terms(*some: dict[str, Any]) -> dict[str, Any]:
    """Required terms as a pod's affinity."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(some)}}}


def node_pool(*requirements: dict[str, Any], **spec: Any) -> Document:
    """A NodePool beside the row's own, of the same class, with the same label and taint."""
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "{pool}"}
    template: Document = {
        "metadata": {"labels": {TEAM: "{pool}"}},
        "spec": {
            "nodeClassRef": node_class,
            "requirements": list(requirements),
            "taints": [{"key": TEAM, "value": "{pool}", "effect": "NoSchedule"}],
        },
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "{pool}-other"},
        "spec": {"template": template, **spec},
    }


def bad(name: str, value: str, tells: str) -> Row:
    """A value that nobody knows: the pod is admitted as it is, and its author is told."""
    return row(
        f"a pod with dovetail.dev/{name}: {value} is admitted as it is with a warning",
        pod(annotations=setting(name, value), tells=tells),
        stored(untouched),
        group=ADMISSION,
    )


def of_kind(kind: str, *, quick: bool = False) -> Row:
    """Pods of every controller are stamped by the annotation of their template."""
    return row(
        f"pods of a {kind} are stamped",
        workload(kind, annotations=ARM64, replicas=2, **NO_NODE_WANTED),
        stored(ARM_RECORD, IS_ARM64, count=2),
        group=ADMISSION,
        quick=quick,
    )


def template_is_untouched(scene: Scene) -> bool:
    """Whether the Deployment's template has no affinity."""
    found = scene.wire("/apis/apps/v1/namespaces/{ns}/deployments/web")
    return bool(found) and at(found, "spec", "template", "spec", "affinity") is None


def on_arm64(app: str) -> Step:
    """The app's pods run on nodes with arm64."""

    def look(scene: Scene) -> bool:
        nodes = {one.metadata.name: one.metadata.labels[names.ARCH_LABEL] for one in scene.nodes()}
        homes = [one.node_name for one in scene.pods(app)]
        return bool(homes) and all(nodes.get(one) == "arm64" for one in homes)

    return wait(f"{app} runs on arm64", look)


def in_system_namespace(scene: Scene) -> None:
    """A pod of kube-system is not stamped."""
    scene.await_true(lambda: as_admitted(scene, ARM64, "kube-system"), "kube-system has its service account")
    assert b"nodeAffinity" not in as_admitted(scene, ARM64, "kube-system")


def of_an_alleged_daemonset(scene: Scene) -> None:
    """A pod whose author names a DaemonSet as its controller is stamped; it is not stored, since the garbage collector would delete it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}
    owners = [{**owner, "uid": "0c1d2e3f-0000-4000-8000-000000000000"}]
    scene.await_true(lambda: as_admitted(scene), "the namespace has its service account")
    assert b"arch=arm64 (pod)" in as_admitted(scene, ARM64, owners=owners)


def replaced(app: str) -> Step:
    """The pods that were remembered at `settled` are gone, and others are there."""

    def look(scene: Scene) -> bool:
        old = {one.uid for one in scene.facts.pods.values() if one.labels.get("app") == app}
        found = {one.uid for one in scene.pods(app)}
        return bool(found) and not found & old

    return wait(f"the pods of {app} are others", look, 150.0)


def remember(scene: Scene) -> None:
    """The pods that are there, for `replaced` and events about them."""
    scene.await_true(scene.pods, "there are pods")
    scene.facts.pods = {one.uid: one for one in scene.pods()}


def refused(app: str) -> Step:
    """The app's pods have the condition that their scheduler wrote before it died."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
    }
    body = {"status": {"conditions": [condition]}}

    def step(scene: Scene) -> None:
        for one in scene.pods(app):
            path = f"{PODS.path(one.namespace, one.name)}/status"
            scene.client.raw("PATCH", path, body, content_type="application/strategic-merge-patch+json")

    return step


def same_pods(scene: Scene) -> None:
    """The pods are those that were remembered."""
    assert {one.uid for one in scene.pods()} == scene.facts.pods.keys()


def replace_on_demand(scene: Scene) -> None:
    """kubectl delete pod, of the one that is marked on demand; until another one runs."""
    (old,) = (
        one["metadata"]["name"]
        for one in pods_of(scene, "web")
        if one["metadata"]["labels"][names.ON_DEMAND_SHARE_LABEL] == "on-demand"
    )
    before = {one.name for one in scene.pods("web")} - {old}
    scene.remove("Pod", old)

    def look() -> bool:
        found = {one.name for one in scene.pods("web") if one.ready}
        return old not in found and found > before

    scene.await_true(look, f"another pod than {old} runs")


def kept_definitions(scene: Scene) -> None:
    """Server-side apply of the component's definition is refused while another manager has another one, and nothing is written."""
    path = f"{DEFINITION}/nodepools.karpenter.sh"
    before = scene.wire(path)["metadata"]["resourceVersion"]
    file = manifests() / "components" / "conversion" / "karpenter.sh_nodepools.yaml"
    done = scene.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(file))
    assert done.returncode != 0, "it would have been overwritten"
    assert "conflict" in done.stderr, done.stderr
    assert ".spec.versions" in done.stderr, done.stderr
    assert scene.wire(path)["metadata"]["resourceVersion"] == before


def v1beta1_fails(scene: Scene) -> None:
    """v1beta1 cannot be read, and kubectl says what failed."""
    done = scene.kubectl("get", "nodepools.v1beta1.karpenter.sh")
    assert done.returncode != 0
    assert "conversion webhook" in done.stderr, done.stderr


def managers_are_named(scene: Scene) -> None:
    """The guide's first command prints a line for each definition, with its managers; one of them is Helm."""
    scene.runtime.cluster.kubectl(
        "label", "crd", "nodepools.karpenter.sh", "example.com/chart=x", "--field-manager=helm"
    )
    done = scene.kubectl(*guide_commands()[0])
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ") for line in done.stdout.splitlines())
    assert sorted(lines) == sorted(DEFINITIONS)
    assert "helm" in lines["nodepools.karpenter.sh"].split()
    assert "helm" not in lines["nodeclaims.karpenter.sh"].split()


def admitted_again(scene: Scene) -> None:
    """kubectl label namespace dovetail.dev/stamp-: from now on pods are stamped."""
    scene.kubectl("label", "namespace", scene.name, f"{names.STAMP_SWITCH}-")


def one_on_demand(scene: Scene) -> bool:
    """One pod of ten was stamped for on-demand nodes: that is within the tolerance."""
    found = [one["metadata"]["labels"].get(names.ON_DEMAND_SHARE_LABEL) for one in pods_of(scene, "web")]
    return len(found) == 10 and found.count("on-demand") == 1


def default_is_known(scene: Scene) -> None:
    """The webhook has seen the ConfigMap of defaults."""
    scene.await_true(lambda: b"nodeAffinity" in as_admitted(scene), "the default is stamped", 60.0)


def one_of_two_terms(found: Wire) -> str:
    """The term that spoke of the architecture stays, the other got the requirement."""
    there = at(found, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    wanted = [
        {"matchExpressions": [expression("team", "a"), expression(names.ARCH_LABEL, "arm64")]},
        {"matchExpressions": [expression(names.ARCH_LABEL, "amd64")]},
    ]
    return "" if there == wanted else str(there)


def taints_are_known(scene: Scene) -> None:
    """The webhook has seen the row's NodePool."""
    asked = setting("nodepool", scene.name)
    scene.await_true(lambda: TEAM.encode() in as_admitted(scene, asked), "the taints of the NodePool are known", 60.0)


def stamped_for_own_pool(scene: Scene) -> None:
    """The pod requires this row's NodePool and tolerates its taint; the record says both."""
    (found,) = pods_of(scene, "web")
    name = scene.name
    facts = (
        required(names.NODEPOOL_LABEL, name),
        recorded(f"nodepool={name} (pod)", f"tolerations={TEAM}={name}:NoSchedule (pod: taints of NodePool {name})"),
    )
    wrong = [text for fact in facts if (text := fact(found))]
    assert not wrong, wrong
    toleration = {"key": TEAM, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    assert toleration in found["spec"]["tolerations"], found["spec"]["tolerations"]


def one_requirement(found: Wire) -> str:
    """Nothing was stamped twice."""
    (term,) = at(found, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    keys = [one["key"] for one in term["matchExpressions"]]
    return "" if len(keys) == len(set(keys)) else f"required twice: {keys}"


def scheduler_is_silent(scene: Scene) -> None:
    """The Lease of the scheduler is over."""
    asked = setting("scheduler", "enabled")
    scene.await_true(
        lambda: b'"schedulerName":"default-scheduler"' in as_admitted(scene, asked),
        "pods are given to the default scheduler",
        90.0,
    )


KINDS: tuple[Row, ...] = (
    row(
        "pods of a Deployment are stamped, and its template is not",
        workload("Deployment", annotations=ARM64, replicas=2, **NO_NODE_WANTED),
        stored(ARM_RECORD, IS_ARM64, count=2),
        wait("the template is untouched", template_is_untouched),
        group=ADMISSION,
        quick=True,
    ),
    of_kind("StatefulSet"),
    of_kind("ReplicaSet"),
    of_kind("Job"),
    of_kind("CronJob", quick=True),
    row("a bare pod is stamped", pod(annotations=ARM64), stored(ARM_RECORD, IS_ARM64), group=ADMISSION),
    row(
        "pods of a DaemonSet are left alone in a namespace that stamps all others",
        pool(),
        workload("DaemonSet", "agent", cpu="10m", **on_team()),
        bare_pod("web"),
        settled(1, 1),
        stored(annotated(names.STAMPED_ANNOTATION, None), required(names.OS_LABEL, "linux", terms=0), app="agent"),
        stored(required(names.OS_LABEL, "linux")),
        group=ADMISSION,
        namespace=setting("os", "linux"),
    ),
    row(
        "a pod that only names a DaemonSet as its owner is stamped",
        of_an_alleged_daemonset,
        group=ADMISSION,
    ),
    row(
        "a mirror pod is left alone",
        pod(annotations={**ARM64, names.CONFIG_MIRROR: "0123456789abcdef"}, nodeName="nowhere"),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "a pod that is created with a node is left alone",
        pod(annotations=ARM64, nodeName="nowhere"),
        stored(untouched),
        group=ADMISSION,
    ),
    row("a pod of kube-system is left alone", in_system_namespace, group=ADMISSION),
    row(
        "a pod of another scheduler is left alone",
        pod(annotations=ARM64, schedulerName="volcano"),
        stored(untouched, has("volcano", "spec", "schedulerName")),
        group=ADMISSION,
    ),
    row("a pod that asks for nothing is left alone", pod(), stored(untouched), group=ADMISSION),
)

LEVELS: tuple[Row, ...] = (
    row(
        "a label of the namespace stamps its first pod",
        pod(),
        stored(recorded("arch=arm64 (namespace)"), IS_ARM64),
        group=ADMISSION,
        namespace=ARM64,
    ),
    row(
        "an annotation of the pod wins over the label of its namespace",
        pod(annotations=setting("arch", "amd64")),
        stored(recorded("arch=amd64 (pod)"), required(names.ARCH_LABEL, "amd64")),
        group=ADMISSION,
        namespace=ARM64,
        quick=True,
    ),
    row(
        "an empty annotation of the pod switches off the label of its namespace",
        pod(annotations=setting("arch", "")),
        stored(untouched),
        group=ADMISSION,
        namespace=ARM64,
    ),
    row(
        "settings of both levels are stamped together",
        pod(annotations=setting("arch", "arm64,amd64")),
        stored(
            recorded("arch=amd64,arm64 (pod)", "capacity-type=on-demand,spot (namespace)", "os=linux (namespace)"),
            required(names.ARCH_LABEL, "amd64", "arm64"),
            required(names.CAPACITY_TYPE_LABEL, "on-demand", "spot"),
            required(names.OS_LABEL, "linux"),
        ),
        group=ADMISSION,
        namespace={**setting("capacity-type", "spot_on-demand"), **setting("os", "linux"), **ARM64},
    ),
    row(
        "a label of the pod opts it out",
        pod(annotations=ARM64, labels=setting("stamp", "disabled")),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "an annotation of the pod opts it out",
        pod(annotations={**ARM64, **setting("stamp", "disabled")}),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "a namespace that opts out stamps no pod that asks for it",
        pod(annotations={**ARM64, **setting("stamp", "enabled")}),
        stored(untouched),
        group=ADMISSION,
        namespace=setting("stamp", "disabled"),
    ),
    row(
        "a default of the cluster stamps a pod of any namespace",
        default_is_known,
        pod(),
        stored(recorded(f"os={DEFAULT_OS} (cluster)"), required(names.OS_LABEL, DEFAULT_OS)),
        group=DEFAULTS,
    ),
    row(
        "a label of the namespace wins over the default of the cluster",
        default_is_known,
        pod(),
        stored(recorded("os=linux,windows (namespace)"), required(names.OS_LABEL, "linux", "windows")),
        group=DEFAULTS,
        namespace=setting("os", "windows_linux"),
    ),
    row(
        "an empty annotation of the pod switches off the default of the cluster",
        default_is_known,
        pod(annotations=setting("os", "")),
        stored(untouched),
        group=DEFAULTS,
    ),
    row(
        "a pod for Windows does not get the default of the cluster",
        default_is_known,
        pod(os={"name": "windows"}, tells="the pod's own spec is for windows"),
        stored(untouched),
        group=DEFAULTS,
    ),
)

KEYS: tuple[Row, ...] = (
    row(
        "a pod with a capacity type gets a node of it",
        pool(requirements=[BOTH]),
        pod(annotations=setting("capacity-type", "on-demand"), **on_team()),
        settled(1, 1),
        stored(required(names.CAPACITY_TYPE_LABEL, "on-demand")),
        labelled(names.CAPACITY_TYPE_LABEL, "on-demand"),
        group=ADMISSION,
    ),
    row(
        "a pod that requires spot is told where there is none, and gets no node",
        pool(requirements=[ON_DEMAND]),
        pod(annotations=setting("capacity-type", "spot"), **on_team()),
        stored(required(names.CAPACITY_TYPE_LABEL, "spot")),
        event("FailedScheduling", names.CAPACITY_TYPE_LABEL, kind="Pod"),
        settled(0, 0),
        group=ADMISSION,
    ),
    row(
        "a pod with an architecture gets a node of it",
        pool(template=ARM_NODES),
        pod(annotations=ARM64, **on_team()),
        settled(1, 1),
        labelled(names.ARCH_LABEL, "arm64"),
        group=ADMISSION,
        quick=True,
    ),
    row(
        "a pod with a NodePool tolerates its taints and gets its node",
        pool(),
        taints_are_known,
        pod(annotations=setting("nodepool", "{pool}"), terminationGracePeriodSeconds=1),
        settled(1, 1),
        stamped_for_own_pool,
        group=ADMISSION,
        quick=True,
    ),
    row(
        "a pod with a NodePool that does not exist is told",
        pod(annotations=setting("nodepool", "no-such-pool"), tells="NodePool no-such-pool does not exist"),
        stored(required(names.NODEPOOL_LABEL, "no-such-pool")),
        group=ADMISSION,
    ),
    row(
        "a spread over zones is added to replicas",
        pool(),
        workload("Deployment", replicas=4, cpu="600m", annotations=setting("spread", "zone"), **on_team()),
        pods_run(4),
        stored(
            recorded("spread=zone (pod)"),
            has("ScheduleAnyway", *SPREAD, "whenUnsatisfiable"),
            has(names.ZONE_LABEL, *SPREAD, "topologyKey"),
            count=4,
        ),
        group=ADMISSION,
    ),
    row(
        "a spread over zones of the pod's own stays as it is",
        pod(
            annotations=setting("spread", "zone"),
            topologySpreadConstraints=[{**ZONES, "whenUnsatisfiable": "DoNotSchedule"}],
        ),
        stored(
            annotated(names.STAMPED_ANNOTATION, None),
            has([{**ZONES, "whenUnsatisfiable": "DoNotSchedule"}], "spec", "topologySpreadConstraints"),
        ),
        group=ADMISSION,
    ),
    row(
        "pods of Jobs are protected where the namespace asks for it, and others are not",
        workload("Job", "nightly", **NO_NODE_WANTED),
        workload("Deployment", "web", **NO_NODE_WANTED),
        stored(
            annotated(names.DO_NOT_DISRUPT, "true"),
            recorded("do-not-disrupt=true (namespace: pod of Job nightly)"),
            app="nightly",
        ),
        stored(untouched),
        group=ADMISSION,
        namespace=setting("protect-jobs", "enabled"),
    ),
    row(
        "what a Job's pod says of its disruption itself stays",
        workload(
            "Job", annotations={**setting("protect-jobs", "enabled"), names.DO_NOT_DISRUPT: "30m"}, **NO_NODE_WANTED
        ),
        stored(annotated(names.DO_NOT_DISRUPT, "30m"), annotated(names.STAMPED_ANNOTATION, None)),
        group=ADMISSION,
    ),
    *(
        row(
            f"{key} becomes do-not-disrupt where old names are rewritten",
            pod(annotations={**setting("legacy-labels", "rewrite"), key: value}, tells=f"{key} is deprecated"),
            stored(annotated(names.DO_NOT_DISRUPT, "true"), annotated(key, value)),
            group=ADMISSION,
        )
        for key, value in (
            ("karpenter.sh/do-not-evict", "true"),
            ("karpenter.sh/do-not-consolidate", "true"),
            ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        )
    ),
    row(
        "an old annotation stays as it is where nobody asks for new names",
        pod(annotations={"karpenter.sh/do-not-evict": "true"}),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "old labels in a node selector are rewritten",
        pod(
            annotations=setting("legacy-labels", "rewrite"),
            nodeSelector={"beta.kubernetes.io/arch": "amd64", "failure-domain.beta.kubernetes.io/zone": "test-zone-a"},
            tells="beta.kubernetes.io/arch is deprecated, use kubernetes.io/arch",
        ),
        stored(has({names.ARCH_LABEL: "amd64", names.ZONE_LABEL: "test-zone-a"}, "spec", "nodeSelector")),
        group=ADMISSION,
    ),
    row(
        "an old label in a required term is rewritten",
        pod(
            annotations=setting("legacy-labels", "rewrite"),
            affinity=terms({"matchExpressions": [expression("beta.kubernetes.io/os", "linux")]}),
            tells="beta.kubernetes.io/os is deprecated",
        ),
        stored(required(names.OS_LABEL, "linux")),
        group=ADMISSION,
    ),
    row(
        "an old label that contradicts its successor stays, with a warning",
        pod(
            annotations=setting("legacy-labels", "rewrite"),
            nodeSelector={"beta.kubernetes.io/arch": "amd64", names.ARCH_LABEL: "arm64"},
            tells="the values contradict each other",
        ),
        stored(has({"beta.kubernetes.io/arch": "amd64", names.ARCH_LABEL: "arm64"}, "spec", "nodeSelector")),
        group=ADMISSION,
    ),
    row(
        "a pod that is given to our scheduler gets a node",
        pool(),
        pod(annotations=setting("scheduler", "enabled"), **on_team()),
        settled(1, 1),
        stored(has(names.SCHEDULER_NAME, "spec", "schedulerName"), recorded("schedulerName=dovetail-scheduler (pod)")),
        group=ADMISSION,
        quick=True,
    ),
)

# pods on demand fill their nodes here: pods that only prefer spot may use what room is left there
SHARES: tuple[Row, ...] = (
    row(
        "of ten pods with a share of 30 % three run on demand and the others on spot",
        pool(requirements=[BOTH]),
        deploy("web", 10, cpu="1200m", annotations=setting("on-demand", "30%")),
        sides("web", on_demand=3, spot=7),
        group=ADMISSION,
        quick=True,
    ),
    row(
        "pods that prefer spot run on demand where there is no spot",
        pool(requirements=[ON_DEMAND]),
        deploy("web", 4, cpu="300m", annotations=setting("on-demand", "25%")),
        sides("web", on_demand=1, spot=3, fallback=True),
        group=ADMISSION,
        quick=True,
    ),
    row(
        "pods of a StatefulSet with a number on demand come to as many",
        pool(requirements=[BOTH]),
        workload("StatefulSet", replicas=4, cpu="1900m", annotations=setting("on-demand", "2"), **on_team()),
        sides("web", on_demand=2, spot=2),
        group=ADMISSION,
    ),
    row(
        "pods of a Job are shared, too",
        workload("Job", replicas=4, annotations=setting("on-demand", "50%"), **NO_NODE_WANTED),
        marked("web", on_demand=2, spot=2),
        group=ADMISSION,
    ),
    row(
        "a label of the namespace shares the pods of its Deployments",
        workload("Deployment", replicas=5, **NO_NODE_WANTED),
        marked("web", on_demand=1, spot=4),
        group=ADMISSION,
        namespace=setting("on-demand", "20pct"),
    ),
    row(
        "a share of everything requires all pods on demand",
        workload("Deployment", replicas=3, annotations=setting("on-demand", "100%"), **NO_NODE_WANTED),
        stored(required(names.CAPACITY_TYPE_LABEL, "on-demand", "reserved"), count=3),
        marked("web", on_demand=3, spot=0),
        group=ADMISSION,
    ),
    row(
        "a share of nothing prefers spot for all pods and requires nothing",
        workload("Deployment", replicas=3, annotations=setting("on-demand", "0"), **NO_NODE_WANTED),
        stored(has({"nodeAffinity": {PREFERRED: [SPOT_PREFERRED]}}, "spec", "affinity"), count=3),
        marked("web", on_demand=0, spot=3),
        group=ADMISSION,
    ),
    row(
        "the successor of a pod on demand runs on demand",
        pool(requirements=[BOTH]),
        deploy("web", 5, annotations=setting("on-demand", "20%")),
        sides("web", on_demand=1, spot=4),
        replace_on_demand,
        sides("web", on_demand=1, spot=4),
        group=ADMISSION,
    ),
    row(
        "a scale-down keeps the share",
        workload("Deployment", replicas=10, annotations=setting("on-demand", "30%"), **NO_NODE_WANTED),
        marked("web", on_demand=3, spot=7),
        scale("web", 4),
        wait("four pods are left", lambda scene: len(scene.pods("web")) == 4),
        marked("web", on_demand=2, spot=2),
        group=ADMISSION,
    ),
    row(
        "the share is kept while all nodes are renewed",
        pool(requirements=[BOTH], disruption=NEVER),
        deploy("web", 4, annotations=setting("on-demand", "50%")),
        sides("web", on_demand=2, spot=2),
        settled(4, 4),
        relabel(),
        renewed(4),
        sides("web", on_demand=2, spot=2, slack=1),
        group=ADMISSION,
    ),
    row(
        "the share is kept while nodes are consolidated",
        pool(requirements=[BOTH], disruption=TIGHT),
        deploy("web", 8, cpu="1500m", annotations=setting("on-demand", "50%")),
        sides("web", on_demand=4, spot=4),
        settled(4, 8),
        scale("web", 4),
        becomes(2, 4),
        sides("web", on_demand=2, spot=2),
        group=ADMISSION,
    ),
    row(
        "pods that came unstamped are evicted until the share is right where they ask for it",
        pool(cpu=8, requirements=[BOTH]),
        deploy(
            "web", 10, cpu="500m", annotations={**setting("on-demand", "30%"), **setting("on-demand-repair", "evict")}
        ),
        pods_run(10),
        remember,
        admitted_again,
        wait("one pod requires on-demand nodes", one_on_demand, 150.0),
        pods_run(10),
        event("Evicted", "asks for 3", kind="Pod"),
        group=ADMISSION,
        namespace=setting("stamp", "disabled"),
    ),
    row(
        "a share of a bare pod is not applied, with a warning",
        pod(annotations=setting("on-demand", "30%"), tells="no ReplicaSet, StatefulSet or Job controls the pod"),
        stored(untouched, has(None, "metadata", "labels", names.ON_DEMAND_SHARE_LABEL)),
        group=ADMISSION,
    ),
    row(
        "a share is not applied to pods that choose their capacity type themselves",
        workload(
            "Deployment",
            annotations=setting("on-demand", "30%"),
            nodeSelector={names.CAPACITY_TYPE_LABEL: "spot"},
        ),
        stored(untouched, has(None, "metadata", "labels", names.ON_DEMAND_SHARE_LABEL)),
        group=ADMISSION,
    ),
)

IMAGES: tuple[Row, ...] = (
    row(
        "the first pod of an image is told its architecture later, and the next is stamped at once",
        image("first", "arm64"),
        pod("web", image="{registry}/{ns}/first:1"),
        later(UNMARKED, annotated(names.IMAGE_ARCHITECTURES, "arm64")),
        pod("next", image="{registry}/{ns}/first:1"),
        stored(recorded("image-arch=arm64 (namespace: architectures of the images)"), IS_ARM64, app="next"),
        group=ADMISSION,
        namespace=setting("image-arch", "stamp"),
    ),
    row(
        "a held pod goes where its image runs",
        pool(template=ARM_NODES),
        image("held", "arm64"),
        pod(image="{registry}/{ns}/held:1", annotations=setting("image-arch", "gate"), **on_team()),
        later(FREE, UNMARKED, IS_ARM64),
        settled(1, 1),
        labelled(names.ARCH_LABEL, "arm64"),
        group=ADMISSION,
    ),
    row(
        "a pod whose image nobody has is not held for long",
        pod(image="{registry}/{ns}/nothing:1", annotations=setting("image-arch", "gate")),
        later(FREE, UNMARKED),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "an image for all architectures needs no stamp",
        image("both", "amd64", "arm64"),
        pod("web", image="{registry}/{ns}/both:1"),
        later(UNMARKED),
        pod("next", image="{registry}/{ns}/both:1"),
        stored(untouched, app="next"),
        group=ADMISSION,
        namespace=setting("image-arch", "stamp"),
    ),
    row(
        "images with no architecture in common are an event",
        image("a", "amd64"),
        image("b", "arm64"),
        pod(image=("{registry}/{ns}/a:1", "{registry}/{ns}/b:1"), annotations=setting("image-arch", "stamp")),
        later(UNMARKED),
        event("NoCommonArchitecture", "no architecture in common", kind="Pod"),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "a registry that is not listed is not asked, and its pods are not held",
        pod(image="registry.example.com/web:1", annotations=setting("image-arch", "gate")),
        stored(untouched, FREE, UNMARKED),
        group=ADMISSION,
    ),
    row(
        "a pod that names its architecture is not held for its image",
        image("own", "arm64"),
        pod(
            image="{registry}/{ns}/own:1",
            annotations=setting("image-arch", "gate"),
            nodeSelector={names.ARCH_LABEL: "amd64"},
        ),
        stored(untouched, FREE, UNMARKED),
        group=ADMISSION,
    ),
)

HANDS_OFF: tuple[Row, ...] = (
    row(
        "a node selector of the pod's own wins",
        pod(annotations=ARM64, nodeSelector={names.ARCH_LABEL: "amd64"}),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "a node selector by an old name wins, too",
        pod(annotations=ARM64, nodeSelector={"beta.kubernetes.io/arch": "amd64"}),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "of two required terms only the one without the key gets the requirement",
        pod(
            annotations=ARM64,
            affinity=terms(
                {"matchExpressions": [expression("team", "a")]},
                {"matchExpressions": [expression(names.ARCH_LABEL, "amd64")]},
            ),
        ),
        stored(one_of_two_terms),
        group=ADMISSION,
    ),
    row(
        "a pod that names its node in every term is left alone",
        pod(
            annotations=ARM64,
            affinity=terms({"matchFields": [expression("metadata.name", "nowhere")]}),
        ),
        stored(annotated(names.STAMPED_ANNOTATION, None)),
        group=ADMISSION,
    ),
    row(
        "preferences of the pod's own stay beside the stamp",
        pod(
            annotations=ARM64,
            affinity={"nodeAffinity": {PREFERRED: [{**SPOT_PREFERRED, "weight": 7}]}},
        ),
        stored(IS_ARM64, has([{**SPOT_PREFERRED, "weight": 7}], "spec", "affinity", "nodeAffinity", PREFERRED)),
        group=ADMISSION,
    ),
    row(
        "a pod for Windows gets no architecture that Windows nodes lack",
        pod(annotations=ARM64, os={"name": "windows"}, tells="the pod's own spec is for windows"),
        stored(untouched),
        group=ADMISSION,
    ),
)

BAD: tuple[Row, ...] = (
    bad("arch", "sparc", "holds 'sparc', want one of amd64, arm64"),
    bad("os", "plan9", "holds 'plan9', want one of linux, windows"),
    bad("capacity-type", "SPOT", "holds 'SPOT'"),
    bad("nodepool", "General", "the name of a NodePool"),
    bad("spread", "host", "use zone"),
    bad("protect-jobs", "always", "use enabled or disabled"),
    bad("scheduler", "yes", "use enabled or disabled"),
    bad("legacy-labels", "replace", "use rewrite or keep"),
    bad("image-arch", "guess", "use stamp, gate or disabled"),
    bad("on-demand", "130%", "The share was not applied"),
    row(
        "an opt-out that nobody knows is one, with a warning",
        pod(annotations={**ARM64, **setting("stamp", "off")}, tells="is not supported; use enabled or disabled"),
        stored(untouched),
        group=ADMISSION,
    ),
    row(
        "of a good value and a bad one the good one is stamped",
        pod(annotations={**ARM64, **setting("os", "plan9")}, tells="holds 'plan9'"),
        stored(ARM_RECORD, IS_ARM64),
        group=ADMISSION,
    ),
)

BESIDE_POLICY: tuple[Row, ...] = (
    row(
        "policy and webhook together stamp what one of them does",
        pod(annotations=ARM64),
        stored(ARM_RECORD, IS_ARM64, one_requirement),
        group=POLICY,
    ),
    row(
        "policy and webhook together add one spread",
        pod(annotations=setting("spread", "zone")),
        stored(recorded("spread=zone (pod)"), has([SOFT_ZONES], "spec", "topologySpreadConstraints")),
        group=POLICY,
    ),
    row(
        "the webhook adds the scheduler to what the policy stamps",
        pod(annotations={**ARM64, **setting("scheduler", "enabled")}),
        stored(
            recorded("arch=arm64 (pod)", "schedulerName=dovetail-scheduler (pod)"),
            has(names.SCHEDULER_NAME, "spec", "schedulerName"),
            one_requirement,
        ),
        group=POLICY,
    ),
    row(
        "the webhook adds the share on demand to what the policy stamps",
        workload("Deployment", annotations={**ARM64, **setting("on-demand", "1")}, **NO_NODE_WANTED),
        stored(
            IS_ARM64,
            required(names.CAPACITY_TYPE_LABEL, "on-demand", "reserved"),
            recorded("arch=arm64 (pod)", "on-demand=on-demand (pod: 1 on demand)"),
        ),
        group=POLICY,
    ),
    row(
        "policy and webhook together leave alone what opts out",
        pod(annotations={**ARM64, **setting("stamp", "disabled")}),
        stored(untouched),
        group=POLICY,
    ),
)

REVIEWED: tuple[Row, ...] = (
    row(
        "a NodePool with a capacity type that nobody has is denied with its field",
        reviewed(
            node_pool({"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["SPOT"]}),
            "spec.template.spec.requirements[0]",
            '"SPOT" is not a capacity type',
            denied=True,
        ),
        group=ADMISSION,
    ),
    row(
        "a NodePool whose node class does not exist is admitted with a warning",
        reviewed(node_pool(), 'KWOKNodeClass "{pool}" does not exist'),
        group=ADMISSION,
    ),
    row(
        "a NodePool whose budgets never open is admitted with a warning",
        reviewed(
            node_pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}),
            "consolidation is enabled (consolidateAfter 0s), but the budgets allow 0 nodes at all times",
        ),
        group=ADMISSION,
    ),
    row(
        "a NodePool that another one keeps from its pods is admitted with a warning",
        pool(weight=9),
        reviewed(
            node_pool(
                ON_DEMAND,
                expression(names.KWOK_INSTANCE_CPU_LABEL, "4"),
                expression(names.ARCH_LABEL, "amd64"),
                expression(names.OS_LABEL, "linux"),
                weight=2,
            ),
            "NodePool {pool} (weight 9) is tried first and accepts every pod that this one accepts",
        ),
        group=ADMISSION,
    ),
)

EXTENDER: tuple[Row, ...] = (
    row(
        "every pod of a rollout runs where it was planned",
        pool(cpu=(4, 8), delay="15s"),
        deploy("web", 6, cpu="1500m"),
        deploy("small", 6, cpu="400m"),
        planned("web", 6),
        planned("small", 6),
        pods_run(12),
        landed,
        group=ADMISSION,
        extender=True,
    ),
    row(
        "pods that want to be with the pods of a DaemonSet get nodes",
        pool(),
        daemons(),
        deploy("near", 3, affinity=_to_agent("podAffinity")),
        pods_run(3, "near"),
    ),
    row(
        "pods that keep away from the pods of a DaemonSet get no node in vain, and an event names it",
        pool(),
        daemons(),
        deploy("far", 2, affinity=_to_agent("podAntiAffinity")),
        event("FailedScheduling", "the pods of DaemonSet {ns}/agent", kind="Pod"),
        lambda scene: scene.throughout(12, lambda: "a node was launched" if scene.claims() else ""),
    ),
    row(
        "pods of priority that come later leave planned pods their room",
        pool(delay="15s"),
        put(PATIENT),
        deploy("web", 2),
        planned("web", 2),
        deploy("vip", 2, priorityClassName="{pool}"),
        planned("vip", 2),
        pods_run(4),
        landed,
        group=ADMISSION,
        extender=True,
    ),
    row(
        "a pod of priority waits for its node and takes no other pod's place",
        pool("-late", weight=10, delay="25s"),
        pool("-soon"),
        deploy("vip", 1, priorityClassName=IMPORTANT),
        planned("vip", 1),
        deploy("web", 1, pool="-soon"),
        deploy("small", 1, cpu="500m", pool="-soon"),
        pods_run(1, "web"),
        pods_run(1, "small"),
        remember,
        scale("small", 0),
        pods_run(1, "vip"),
        landed,
        pod_stays("web"),
        group=ALONE,
        extender=True,
    ),
)

NEVER_HANG: tuple[Row, ...] = (
    row(
        "a pod whose scheduler is silent is told, and stays",
        workload("Deployment", "patient", schedulerName=names.SCHEDULER_NAME, **NO_NODE_WANTED),
        remember,
        event("SchedulerNotRunning", "has processed no pod for", kind="Pod"),
        no_event("RecreatedUnscheduled", kind="Pod"),
        same_pods,
        group=SILENT,
    ),
    row(
        "a pod that asks for it is created again while its scheduler is silent",
        may_force,
        workload(
            "Deployment",
            annotations={names.RECREATE_UNSCHEDULED: "true"},
            schedulerName=names.SCHEDULER_NAME,
            **NO_NODE_WANTED,
        ),
        remember,
        replaced("web"),
        event("RecreatedUnscheduled", "the controller of the pod creates it again", kind="Pod"),
        group=SILENT,
    ),
    row(
        "a pod that its scheduler refused is created again once its node is there and the scheduler is silent",
        may_force,
        pool(),
        deploy("web", 1, annotations={names.RECREATE_UNSCHEDULED: "true"}, schedulerName=names.SCHEDULER_NAME),
        remember,
        refused("web"),
        replaced("web"),
        event("RecreatedUnscheduled", "the controller of the pod creates it again", kind="Pod"),
        group=SILENT,
    ),
    row(
        "a bare pod that asks to be created again is not deleted, as nobody would create it",
        pod(
            "alone",
            annotations={names.RECREATE_UNSCHEDULED: "true"},
            schedulerName=names.SCHEDULER_NAME,
            **NO_NODE_WANTED,
        ),
        remember,
        event("SchedulerNotRunning", kind="Pod"),
        same_pods,
        group=SILENT,
    ),
    row(
        "a pod that asks for our scheduler is given to the default one while ours is silent",
        scheduler_is_silent,
        pod(annotations=setting("scheduler", "enabled")),
        stored(has("default-scheduler", "spec", "schedulerName"), annotated(names.STAMPED_ANNOTATION, None)),
        group=SILENT,
    ),
)

KEPT: tuple[Row, ...] = (
    row(
        "the guide's commands name who manages a definition, and server-side apply leaves it as it is",
        managers_are_named,
        kept_definitions,
        group=ADMISSION,
    ),
    row(
        "definitions that others keep get no CA bundle, the log says why, and v1 works",
        no_bundle(
            "CustomResourceDefinition nodepools.karpenter.sh is managed by Helm (app.kubernetes.io/managed-by)",
            "CustomResourceDefinition nodeclaims.karpenter.sh is managed by Argo CD (argocd.argoproj.io/instance)",
            "ec2nodeclasses.karpenter.k8s.aws is managed by Flux (kustomize.toolkit.fluxcd.io/name)",
        ),
        pool(weight=7),
        v1beta1_fails,
        wait("v1 can be read", lambda scene: scene.node_pool(scene.name).spec.weight == 7),
        change_pool(weight=8),
        wait("v1 can be changed", lambda scene: scene.node_pool(scene.name).spec.weight == 8),
        remove("NodePool", "{pool}"),
        group=SILENT,
    ),
)

ROWS: tuple[Row, ...] = (
    *SHARES,  # first, as they take longest
    *KINDS,
    *LEVELS,
    *KEYS,
    *IMAGES,
    *HANDS_OFF,
    *BAD,
    *BESIDE_POLICY,
    *REVIEWED,
    *EXTENDER,
    *NEVER_HANG,
    *KEPT,
)
