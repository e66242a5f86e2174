"""`dovetail plan` on manifests: pods are planned as the API server, its admission and its controllers would make them."""

import pytest

from provisioner.apis import names
from provisioner.cli.plan.catalogues import chosen
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.questions import PlanQuestion, pods_in, question_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock
from tests.support.manifests import plan_objects

POOLS = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: plain}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["4"]}, {key: kubernetes.io/os, operator: In, values: [linux]}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: kata}
spec:
  template:
    metadata: {labels: {sandbox: kata}}
    spec:
      taints: [{key: sandbox, value: kata, effect: NoSchedule}]
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["4"]}, {key: kubernetes.io/os, operator: In, values: [linux]}]
"""
KATA = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {cpu: 500m}}
scheduling:
  nodeSelector: {sandbox: kata}
  tolerations: [{key: sandbox, operator: Equal, value: kata, effect: NoSchedule}]
"""
BOXED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: boxed}
spec:
  replicas: 4
  template: {spec: {runtimeClassName: kata, containers: [{name: c, resources: {requests: {cpu: 900m}}}]}}
"""
RANGE = """
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, default: {cpu: "2"}}]}
"""
BARE = """
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec: {containers: [{name: c}]}
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk, labels: {topology.kubernetes.io/zone: test-zone-b}}
spec: {capacity: {storage: 10Gi}, accessModes: [ReadWriteOnce], storageClassName: "", csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 10Gi}}%s}
"""
USER = """
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
"""
REFUSING = """
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}]}}}
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
"""


def asked(*texts: str) -> tuple[PlanQuestion, PlanObjects]:
    objects = plan_objects("---\n".join((POOLS, *texts)))
    table = chosen("kwok", objects)
    return question_of(objects, pods_in(objects), objects.pools, table, SystemClock(), anew=False), objects


def solved(*texts: str) -> Result:
    question, objects = asked(*texts)
    assert not objects.problems
    return prepare(question.world).solve(question.pods)


def test_a_runtime_class_takes_overhead_and_leads_to_its_nodes() -> None:
    found = solved(KATA, BOXED)
    assert [(claim.pool, len(claim.pods)) for claim in found.claims] == [("kata", 2), ("kata", 2)]


def test_a_class_that_the_input_lacks_is_said() -> None:
    _, objects = asked(BOXED)
    assert objects.notes == ["The input has no RuntimeClass kata; its additions to pods are not included."]


def test_a_pod_that_the_api_server_refuses_is_said_and_not_planned() -> None:
    question, objects = asked(
        KATA, BOXED.replace("runtimeClassName: kata", "runtimeClassName: kata, nodeSelector: {sandbox: other}")
    )
    assert not question.pods
    (problem,) = objects.problems
    assert "the API server refuses its pods: RuntimeClass kata selects nodes with sandbox=kata" in str(problem)


def test_a_limit_range_counts_for_its_namespace() -> None:
    (pod,) = asked(RANGE, BARE)[0].pods
    assert pod.shape.requests["cpu"] == 2000
    (other,) = asked(RANGE, BARE.replace("{name: bare}", "{name: bare, namespace: other}"))[0].pods
    assert "cpu" not in other.shape.requests


@pytest.mark.parametrize("more", ["", ", volumeName: disk"])
def test_a_claim_is_bound_to_the_volume_that_is_there(more: str) -> None:
    (claim,) = solved(VOLUME, CLAIM % more, USER).claims
    assert claim.requirements[names.ZONE_LABEL].values == {"test-zone-b"}


def test_one_volume_is_bound_once() -> None:
    other = (CLAIM % "").replace("{name: disk}", "{name: other}")
    found = solved(
        VOLUME,
        CLAIM % ", volumeName: disk",
        other,
        USER,
        USER.replace("name: user", "name: late").replace("claimName: disk", "claimName: other"),
    )
    assert [pod.name for claim in found.claims for pod in claim.pods] == ["user"]
    assert [left.pod.name for left in found.unplaced] == ["late"]


def test_a_pod_that_refuses_node_pools_is_counted_and_named() -> None:
    question, _ = asked(REFUSING, BARE)
    assert (len(question.pods), question.refusing) == (1, 1)
    assert any("default/elsewhere" in note for note in question.notes)


SPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {dovetail.dev/%s}}\n"
DEFAULTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: dovetail-defaults, namespace: dovetail-system}
data: {arch: arm64}
"""


@pytest.mark.parametrize("asking", [SPACE % "arch: arm64", DEFAULTS], ids=["a namespace", "the cluster"])
def test_pods_are_stamped_as_the_webhook_does(asking: str) -> None:
    (claim,) = solved(asking, BARE).claims
    assert claim.requirements[names.ARCH_LABEL].values == {"arm64"}


def test_a_pod_that_asks_for_a_node_pool_tolerates_its_taints() -> None:
    (claim,) = solved(BARE.replace("{name: bare}", '{name: bare, annotations: {dovetail.dev/nodepool: "kata"}}')).claims
    assert claim.pool == "kata"


def test_a_share_on_demand_is_planned() -> None:
    shared = BOXED.replace(
        "{spec: {runtimeClassName: kata, ", "{metadata: {annotations: {dovetail.dev/on-demand: 30%}}, spec: {"
    )
    pods = asked(shared)[0].pods
    assert sorted(pod.labels[names.ON_DEMAND_SHARE_LABEL] for pod in pods) == [*["on-demand"] * 2, *["spot"] * 2]
    assert len({pod.name for pod in pods}) == 4


def test_who_asks_for_what_images_were_built_for_is_named() -> None:
    marked = BARE.replace("{name: bare}", "{name: bare, annotations: {dovetail.dev/image-arch: stamp}}")
    question, _ = asked(SPACE % "image-arch: stamp", marked)
    said = "The plan does not look up the architectures of images; Namespace default, Pod default/bare request it."
    assert said in question.notes
