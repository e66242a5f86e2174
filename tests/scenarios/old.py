"""Rows about manifests of old Karpenter versions that are applied as they are, with the component that serves them."""

from collections.abc import Mapping
from typing import Any

from provisioner.apis import names
from provisioner.apis.conversion import alpha
from provisioner.apis.meta import is_true
from provisioner.lab.harness.aws import CLUSTER_NAME
from provisioner.lab.harness.workload import Document
from tests.scenarios.admitting import (
    DEFINITION,
    Fact,
    Wire,
    applied,
    at,
    guide_commands,
    has,
    no_bundle,
    refused,
    shows,
    workload,
)
from tests.scenarios.grounds import DEFINITIONS, OLDER, old_provisioner
from tests.scenarios.row import BESIDE, OLD, Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import Step, change_pool, change_template, event, labelled, remove, settled, together, wait
from tests.support.provisioner import TEAM

POOL = "/apis/karpenter.sh/v1/nodepools/{pool}"
POOL_BETA = "/apis/karpenter.sh/v1beta1/nodepools/{pool}"
CLASS = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/{pool}"
CLASS_BETA = "/apis/karpenter.k8s.aws/v1beta1/ec2nodeclasses/{pool}"
CLAIM = "/apis/karpenter.sh/v1/nodeclaims/{pool}"
PROVISIONER = "/apis/karpenter.sh/v1alpha5/provisioners/{pool}"
TEMPLATE = ("spec", "template", "spec")
BUDGETS = [{"nodes": "10%"}, {"nodes": "0", "reasons": ["Drifted"]}]
OF_TEAM: Mapping[str, Any] = {"nodeSelector": {TEAM: "{pool}"}, "terminationGracePeriodSeconds": 1}
"""As a pod's spec. They are a Deployment's: a busy kube-controller-manager deletes a pod that is bound before it has seen that the Node lost its taint
with NoExecute (decision 13), and a bare pod would be gone."""
OF_CLUSTER = {"karpenter.sh/discovery": CLUSTER_NAME}


OLD_STATUS: Document = {
    "resources": {"cpu": "4"},
    "lastScaleTime": "2023-07-01T00:00:00Z",
    "conditions": [
        {"type": "Active", "status": "True", "severity": "Info", "lastTransitionTime": "2023-07-01T00:00:00Z"}
    ],
}


def provisioner(**spec: Any) -> Document:
    """A Provisioner by this row's name, whose nodes are this row's."""
    return old_provisioner("{pool}", labels={TEAM: "{pool}"}, **spec)


def owning(name: str) -> Step:
    """What comes of a Provisioner of this name is deleted at the end, too."""

    def step(scene: Scene) -> None:
        scene.owns("EC2NodeClass.karpenter.k8s.aws", name)
        scene.owns("NodePool.karpenter.sh", name)

    return step


def provisioned(**spec: Any) -> Step:
    """It is applied, once old versions are served."""
    return together(trusted, owning("{pool}"), applied(provisioner(**spec)))


def translated(*words: str) -> Step:
    """The Provisioner's status says what became of it, and that these were decisions."""
    return shows(PROVISIONER, said("True", "Translated", *words))


def not_translated(reason: str, *words: str) -> Step:
    """The Provisioner's status says why nothing became of it, and an event does."""
    return together(
        shows(PROVISIONER, said("False", reason, *words)),
        event(reason, words[0] if words else "", kind="Provisioner", of="{pool}"),
    )


def said(status: str, reason: str, *words: str) -> Fact:
    """Its condition `Translated`."""

    def fact(found: Wire) -> str:
        told = [one for one in at(found, "status", "conditions") or () if one["type"] == "Translated"]
        if len(told) != 1 or (told[0]["status"], told[0]["reason"]) != (status, reason):
            return f"conditions: {told}"
        missing = [one for one in words if one not in told[0]["message"]]
        return f"{missing} not in {told[0]['message']!r}" if missing else ""

    return fact


def requires(key: str, operator: str, *values: str) -> Fact:
    """The NodePool has exactly this requirement of a key."""

    def fact(found: Wire) -> str:
        there = [one for one in at(found, *TEMPLATE, "requirements") or () if one["key"] == key]
        wanted = [{"key": key, "operator": operator, "values": list(values)}]
        return "" if there == wanted else f"{key}: {there}, not {wanted}"

    return fact


def trusted(scene: Scene) -> None:
    """The API server can ask the webhook for every kind."""

    def look() -> bool:
        found = [scene.wire(f"{DEFINITION}/{name}") for name in DEFINITIONS]
        return all(at(one, "spec", "conversion", "webhook", "clientConfig", "caBundle") for one in found)

    scene.await_true(look, "the definitions have the CA bundle")


def karpenter_is_named(scene: Scene) -> None:
    """The guide's second command prints where Karpenter leads."""
    done = scene.kubectl(*guide_commands()[1])
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("kube-system ") for line in done.stdout.splitlines()), done.stdout


def beta_pool(template: Mapping[str, Any] | None = None, **spec: Any) -> Document:
    """A NodePool at v1beta1, as its tutorials write it: nodeClassRef without kind."""
    return {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "{pool}"},
        "spec": {
            "template": {
                "metadata": {"labels": {TEAM: "{pool}"}},
                "spec": {
                    "requirements": [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]}],
                    "nodeClassRef": {"name": "{pool}"},
                    **(template or {}),
                },
            },
            **spec,
        },
    }


BETA_CLASS: Document = {
    "apiVersion": "karpenter.k8s.aws/v1beta1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "{pool}"},
    "spec": {
        "amiFamily": "AL2023",
        "role": f"KarpenterNodeRole-{CLUSTER_NAME}",
        "subnetSelectorTerms": [{"tags": OF_CLUSTER}],
        "securityGroupSelectorTerms": [{"tags": OF_CLUSTER}],
    },
}


BETA_CLAIM: Document = {
    "apiVersion": "karpenter.sh/v1beta1",
    "kind": "NodeClaim",
    "metadata": {"name": "{pool}", "labels": {TEAM: "{pool}"}},
    "spec": {
        "nodeClassRef": {"name": "{pool}"},
        "requirements": [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["m5.large"]}],
    },
}


def is_ready(found: Wire) -> str:
    """The condition Ready."""
    told = at(found, "status", "conditions") or ()
    return "" if any((one["type"], one["status"]) == ("Ready", "True") for one in told) else f"conditions: {told}"


def initialized(scene: Scene) -> bool:
    """The row's NodeClaim has its node."""
    return [is_true(one.status.conditions, names.INITIALIZED) for one in scene.claims()] == [True]


def claim_at_v1beta1(scene: Scene) -> None:
    """`kubectl get` shows the NodeClaim at v1beta1 as that version had it: with its class, and without what v1 added."""
    (claim,) = scene.claims()
    found = scene.wire(f"/apis/karpenter.sh/v1beta1/nodeclaims/{claim.name}")
    assert at(found, "spec", "nodeClassRef", "name") == scene.name, found["spec"]
    assert at(found, "spec", "nodeClassRef", "group") is None, found["spec"]
    assert at(found, "spec", "expireAfter") is None, found["spec"]


def lacks_nothing(wanted: Mapping[str, Any], *path: str) -> Fact:
    """What stands at a path has all of these fields."""

    def fact(found: Wire) -> str:
        there = at(found, *path) or {}
        other = {key: there.get(key) for key, value in wanted.items() if there.get(key) != value}
        return f"{'.'.join(path)}: {other}" if other else ""

    return fact


BETA: tuple[Row, ...] = (
    row(
        "a NodePool and an EC2NodeClass at v1beta1 get a node",
        trusted,
        applied(BETA_CLASS),
        applied(beta_pool()),
        workload("Deployment", **OF_TEAM),
        settled(1, 1),
        labelled(names.CAPACITY_TYPE_LABEL, "spot"),
        shows(POOL, has("karpenter.k8s.aws", *TEMPLATE, "nodeClassRef", "group")),
        claim_at_v1beta1,
        group=OLD,
    ),
    row(
        "a NodeClaim at v1beta1 gets its node",
        trusted,
        applied(BETA_CLASS),
        shows(CLASS, is_ready),  # before that a NodeClaim is deleted, as Karpenter does
        applied(BETA_CLAIM),
        wait("it is initialized", initialized),
        shows(CLAIM, has("EC2NodeClass", "spec", "nodeClassRef", "kind"), has("Never", "spec", "expireAfter")),
        group=OLD,
    ),
    row(
        "an object that was applied at v1beta1 is stored at v1 and read at both",
        trusted,
        applied(
            beta_pool({"resources": {}}, disruption={"consolidationPolicy": "WhenUnderutilized", "expireAfter": "168h"})
        ),
        shows(
            POOL,
            has("WhenEmptyOrUnderutilized", "spec", "disruption", "consolidationPolicy"),
            has("0s", "spec", "disruption", "consolidateAfter"),
            has("168h", *TEMPLATE, "expireAfter"),
            has("EC2NodeClass", *TEMPLATE, "nodeClassRef", "kind"),
        ),
        shows(
            POOL_BETA,
            lacks_nothing({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "168h"}, "spec", "disruption"),
            has(None, *TEMPLATE, "expireAfter"),
            has({}, *TEMPLATE, "resources"),
        ),
        shows(f"{DEFINITION}/nodepools.karpenter.sh", has(["v1"], "status", "storedVersions")),
        group=OLD,
    ),
    row(
        "an edit at v1beta1 wins, and what v1beta1 lacks stays",
        trusted,
        applied(beta_pool(weight=3)),
        change_template(terminationGracePeriod="5m"),
        applied(beta_pool(weight=4)),
        shows(POOL, has(4, "spec", "weight"), has("5m", *TEMPLATE, "terminationGracePeriod")),
        group=OLD,
    ),
    row(
        "the kubelet of a NodePool at v1beta1 is kept",
        trusted,
        applied(beta_pool({"kubelet": {"maxPods": 20}})),
        shows(POOL_BETA, has({"maxPods": 20}, *TEMPLATE, "kubelet")),
        shows(POOL, has('{"maxPods":20}', "metadata", "annotations", names.KUBELET_ANNOTATION)),
        group=OLD,
    ),
    row(
        "a NodePool at v1beta1 that v1 would not admit is refused with its field",
        trusted,
        refused(
            beta_pool(disruption={"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "30s"}),
            "consolidateAfter",
        ),
        refused(beta_pool(disruption={"consolidationPolicy": "WhenUnused"}), "spec.disruption.consolidationPolicy"),
        group=OLD,
    ),
    row(
        "an EC2NodeClass at v1beta1 says its images at v1 as an alias",
        trusted,
        applied(BETA_CLASS),
        shows(CLASS, has([{"alias": "al2023@latest"}], "spec", "amiSelectorTerms")),
        shows(CLASS_BETA, has("AL2023", "spec", "amiFamily"), has(None, "spec", "amiSelectorTerms")),
        group=OLD,
    ),
)

ALPHA: tuple[Row, ...] = (
    row(
        "a Provisioner gets nodes that have its name",
        provisioned(),
        translated("became NodePool", "EC2NodeClass"),
        workload("Deployment", **OF_TEAM),
        settled(1, 1),
        labelled(names.PROVISIONER_NAME, "{pool}"),
        labelled(names.CAPACITY_TYPE_LABEL, "on-demand"),
        labelled(names.ARCH_LABEL, "amd64"),
        group=OLD,
    ),
    row(
        "a Provisioner as it was read from a cluster with Karpenter can be applied",
        trusted,
        owning("{pool}"),
        applied({**provisioner(), "status": OLD_STATUS}),
        translated("became NodePool"),
        group=OLD,
    ),
    row(
        "the defaults of a Provisioner are written out",
        provisioned(),
        shows(
            POOL,
            requires(names.OS_LABEL, "In", "linux"),
            requires(names.ARCH_LABEL, "In", "amd64"),
            requires(names.CAPACITY_TYPE_LABEL, "In", "on-demand"),
            requires(alpha.CATEGORY, "In", "c", "m", "r"),
            requires(alpha.GENERATION, "Gt", "2"),
            has("Never", *TEMPLATE, "expireAfter"),
            has("WhenEmpty", "spec", "disruption", "consolidationPolicy"),
            has("Never", "spec", "disruption", "consolidateAfter"),
            has(BUDGETS, "spec", "disruption", "budgets"),
        ),
        group=OLD,
    ),
    row(
        "requirements of a Provisioner replace its defaults",
        provisioned(
            requirements=[
                {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]},
                {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["t3.large"]},
            ]
        ),
        shows(
            POOL,
            requires(names.CAPACITY_TYPE_LABEL, "In", "spot"),
            requires(names.INSTANCE_TYPE_LABEL, "In", "t3.large"),
            lambda found: "families" if alpha.CATEGORY in str(found["spec"]["template"]) else "",
        ),
        group=OLD,
    ),
    row(
        "ttlSecondsAfterEmpty and ttlSecondsUntilExpired become consolidateAfter and expireAfter",
        provisioned(ttlSecondsAfterEmpty=30, ttlSecondsUntilExpired=900),
        translated("ttlSecondsAfterEmpty", "ttlSecondsUntilExpired"),
        shows(
            POOL,
            has("WhenEmpty", "spec", "disruption", "consolidationPolicy"),
            has("30s", "spec", "disruption", "consolidateAfter"),
            has("900s", *TEMPLATE, "expireAfter"),
        ),
        group=OLD,
    ),
    row(
        "consolidation.enabled becomes WhenEmptyOrUnderutilized at once",
        provisioned(consolidation={"enabled": True}),
        shows(
            POOL,
            has("WhenEmptyOrUnderutilized", "spec", "disruption", "consolidationPolicy"),
            has("0s", "spec", "disruption", "consolidateAfter"),
        ),
        group=OLD,
    ),
    row(
        "a Provisioner with both a ttl and consolidation is refused",
        refused(
            provisioner(ttlSecondsAfterEmpty=30, consolidation={"enabled": True}),
            "ttlSecondsAfterEmpty cannot be combined with consolidation.enabled",
        ),
        group=OLD,
    ),
    row(
        "a taint without effect is refused with its field",
        refused(provisioner(taints=[{"key": "team"}]), "spec.taints[0].effect: Required value"),
        group=OLD,
    ),
    row(
        "taints, weight and limits of a Provisioner are those of its NodePool",
        provisioned(
            taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}],
            weight=12,
            limits={"resources": {"cpu": "10"}},
        ),
        translated("limits"),
        shows(
            POOL,
            has([{"key": "team", "value": "a", "effect": "NoSchedule"}], *TEMPLATE, "taints"),
            has(12, "spec", "weight"),
            has({"cpu": "10"}, "spec", "limits"),
        ),
        group=OLD,
    ),
    row(
        "the kubelet of a Provisioner makes it a class of its own",
        provisioned(kubeletConfiguration={"maxPods": 11}),
        shows(CLASS, has(11, "spec", "kubelet", "maxPods")),
        group=OLD,
    ),
    row(
        "selectors and image family of a Provisioner are those of its class",
        provisioned(),
        shows(
            CLASS,
            has([{"tags": OF_CLUSTER}], "spec", "subnetSelectorTerms"),
            has([{"tags": OF_CLUSTER}], "spec", "securityGroupSelectorTerms"),
            has([{"alias": "bottlerocket@latest"}], "spec", "amiSelectorTerms"),
            has(f"{CLUSTER_NAME}-node", "spec", "instanceProfile"),
        ),
        group=OLD,
    ),
    row(
        "a Provisioner that names an AWSNodeTemplate uses the class that became of it",
        trusted,
        owning("{pool}"),
        applied(
            {
                "apiVersion": "karpenter.k8s.aws/v1alpha1",
                "kind": "AWSNodeTemplate",
                "metadata": {"name": "{pool}"},
                "spec": old_provisioner("x")["spec"]["provider"],
            }
        ),
        applied(
            {
                "apiVersion": "karpenter.sh/v1alpha5",
                "kind": "Provisioner",
                "metadata": {"name": "{pool}"},
                "spec": {"providerRef": {"name": "{pool}"}},
            }
        ),
        translated("became NodePool"),
        shows(CLASS, has([{"alias": "bottlerocket@latest"}], "spec", "amiSelectorTerms")),
        shows(
            POOL,
            lambda found: (
                "" if found["metadata"]["name"] == at(found, *TEMPLATE, "nodeClassRef", "name") else "the class"
            ),
        ),
        group=OLD,
    ),
    row(
        "what has no equivalent is named, and nothing is made",
        applied(provisioner(kubeletConfiguration={"containerRuntime": "dockerd"})),
        not_translated("Unsupported", "spec.kubeletConfiguration.containerRuntime"),
        wait("nothing was made", lambda scene: not scene.wire(POOL) and not scene.wire(CLASS)),
        group=OLD,
    ),
    row(
        "a NodePool that is there already is never adopted",
        trusted,
        applied(beta_pool(weight=3)),
        lambda scene: scene.owns("EC2NodeClass.karpenter.k8s.aws", "{pool}"),
        applied(provisioner(weight=12)),
        not_translated("NodePoolExists", "was not made from this object"),
        shows(POOL, has(3, "spec", "weight")),
        group=OLD,
    ),
    row(
        "a change of a Provisioner reaches its NodePool",
        provisioned(weight=12),
        shows(POOL, has(12, "spec", "weight")),
        applied(provisioner(weight=13)),
        shows(POOL, has(13, "spec", "weight")),
        group=OLD,
    ),
    row(
        "a NodePool that was edited follows its Provisioner no longer",
        provisioned(weight=12),
        shows(POOL, has(12, "spec", "weight")),
        change_pool(weight=50),
        applied(provisioner(weight=13)),
        not_translated("NodePoolEdited", "was edited and no longer follows this object"),
        shows(POOL, has(50, "spec", "weight")),
        group=OLD,
    ),
    row(
        "the NodePool of a Provisioner that is deleted stays",
        provisioned(),
        translated("which stay if this object is deleted"),
        lambda scene: scene.kubectl("delete", "provisioner", "{pool}"),
        wait("the Provisioner is gone", lambda scene: not scene.wire(PROVISIONER)),
        shows(POOL, has(BUDGETS, "spec", "disruption", "budgets")),
        group=OLD,
    ),
    row(
        "a Provisioner that is older than the component waits for its annotation",
        trusted,
        shows(
            f"/apis/karpenter.sh/v1alpha5/provisioners/{OLDER}", said("False", "WaitingForAnnotation", names.TRANSLATE)
        ),
        owning(OLDER),
        lambda scene: scene.owns("Provisioner.karpenter.sh", OLDER),
        lambda scene: scene.kubectl("annotate", "provisioner", OLDER, f"{names.TRANSLATE}=true"),
        shows(f"/apis/karpenter.sh/v1alpha5/provisioners/{OLDER}", said("True", "Translated")),
        group=OLD,
    ),
)

REFUSED: tuple[Row, ...] = (
    row(
        "beside a Karpenter that leads no definition gets a CA bundle, and the log says why",
        no_bundle("Karpenter runs in namespace kube-system; scale its Deployment to 0"),
        karpenter_is_named,
        group=BESIDE,
    ),
    row(
        "beside a Karpenter that leads a Provisioner is not translated, and is told why",
        applied(provisioner()),
        not_translated("KarpenterRuns", "Karpenter runs in namespace kube-system; scale its Deployment to 0"),
        wait("there is no NodePool", lambda scene: not scene.wire(POOL)),
        group=BESIDE,
    ),
    row(
        "beside a Karpenter that leads v1 works",
        applied(
            {
                **beta_pool(),
                "apiVersion": "karpenter.sh/v1",
                "spec": {
                    "template": {
                        "spec": {
                            "requirements": [],
                            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "{pool}"},
                        }
                    }
                },
            }
        ),
        change_pool(weight=8),
        shows(POOL, has(8, "spec", "weight")),
        remove("NodePool", "{pool}"),
        wait("it is gone", lambda scene: not scene.wire(POOL)),
        group=BESIDE,
    ),
)

ROWS: tuple[Row, ...] = (*BETA, *ALPHA, *REFUSED)
