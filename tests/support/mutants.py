"""Objects as an API server sends them, and what becomes of them when something is wrong: for tests of decoders.

`mutant` changes a document in ways that keep it JSON (values of other types, absurd numbers and texts, missing and double keys, deep nesting) or
break it as text (cut, flipped and inserted bytes). The same generator gives the same mutants.
"""

import copy
import json
import random
from typing import Any, Final

from tests.support.kube import nested

_META: Final[dict[str, Any]] = {
    "name": "web-1",
    "namespace": "shop",
    "uid": "5b1f2c1e-0000-4000-8000-000000000001",
    "resourceVersion": "17",
    "generation": 2,
    "creationTimestamp": "2026-11-21T10:00:00Z",
    "deletionTimestamp": "2026-11-21T11:00:00Z",
    "labels": {"app": "web", "pod-template-hash": "abc", "topology.kubernetes.io/zone": "a"},
    "annotations": {
        "dovetail.dev/plan": '{"v":1,"pods":[{"class":"aa","count":1,"owner":"o","uids":["u"]}]}',
        "karpenter.sh/do-not-disrupt": "10m",
        "dovetail.dev/interruption": '{"reason":"spot_interrupted","begins":"2026-11-21T10:00:00Z"}',
    },
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": True}],
    "finalizers": ["karpenter.sh/termination"],
    "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
}
_CONDITIONS: Final = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-11-21T10:00:00Z",
        "observedGeneration": 1,
    },
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
]
_SELECTOR: Final = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
}
_POD_SPEC: Final[dict[str, Any]] = {
    "nodeName": "n1",
    "containers": [
        {
            "name": "c",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1, "example.com/gpu": "1"}},
            "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
        }
    ],
    "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1e2m"}}}],
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["5"]}]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": _SELECTOR, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    "tolerations": [{"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _SELECTOR,
            "minDomains": 2,
        }
    ],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    "priority": 100,
    "schedulerName": "default-scheduler",
    "overhead": {"cpu": "10m"},
    "terminationGracePeriodSeconds": 30,
    "schedulingGates": [{"name": "g"}],
}
_TEMPLATE: Final = {"metadata": {"labels": {"app": "web"}}, "spec": _POD_SPEC}
_REQUIREMENTS: Final = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"], "minValues": 1},
    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["4"]},
]
_TAINTS: Final = [{"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": "2026-11-21T10:00:00Z"}]
_CLAIM_SPEC: Final[dict[str, Any]] = {
    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    "requirements": _REQUIREMENTS,
    "resources": {"requests": {"cpu": "3", "memory": "1Gi", "pods": "10"}},
    "taints": _TAINTS,
    "startupTaints": _TAINTS,
    "expireAfter": "720h",
    "terminationGracePeriod": "1h30m",
}
_SIZES: Final = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "20Gi"}

DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "provisioners": {"spec": {"providerRef": {"name": "default"}, "ttlSecondsAfterEmpty": 30, "taints": _TAINTS}},
    "awsnodetemplates": {"spec": {"subnetSelector": {"karpenter.sh/discovery": "shop"}, "amiFamily": "AL2"}},
    "pods": {
        "spec": _POD_SPEC,
        "status": {
            "phase": "Running",
            "conditions": _CONDITIONS,
            "nominatedNodeName": "n2",
            "startTime": "2026-11-21T10:00:00Z",
            "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {}}}],
        },
    },
    "nodes": {
        "spec": {"providerID": "aws:///a/i-0123456789abcdef0", "taints": _TAINTS, "unschedulable": True},
        "status": {"capacity": _SIZES, "allocatable": _SIZES, "conditions": _CONDITIONS, "nodeInfo": {"osImage": "x"}},
    },
    "nodeclaims": {
        "spec": _CLAIM_SPEC,
        "status": {
            "providerID": "aws:///a/i-0123456789abcdef0",
            "nodeName": "n1",
            "imageID": "ami-1",
            "capacity": _SIZES,
            "allocatable": _SIZES,
            "conditions": _CONDITIONS,
            "lastPodEventTime": "2026-11-21T10:00:00Z",
        },
    },
    "nodepools": {
        "spec": {
            "template": {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}, "spec": _CLAIM_SPEC},
            "limits": {"cpu": "64", "memory": "1Ti"},
            "weight": 10,
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "30s",
                "budgets": [{"nodes": "10%", "schedule": "0 9 * * 1-5", "duration": "8h", "reasons": ["Empty"]}],
            },
        },
        "status": {"conditions": _CONDITIONS, "resources": _SIZES, "nodes": 3},
    },
    "ec2nodeclasses": {
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "x"}}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "role": "node",
            "userData": "#!/bin/sh",
            "tags": {"a": "b"},
            "kubelet": {"maxPods": 42, "evictionHard": {"memory.available": "10%"}},
            "blockDeviceMappings": [
                {"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "20Gi", "iops": 3000}}
            ],
            "metadataOptions": {"httpEndpoint": "enabled", "httpPutResponseHopLimit": 1},
        },
        "status": {
            "subnets": [{"id": "subnet-1", "zone": "a", "zoneID": "z"}],
            "amis": [{"id": "ami-1", "name": "x", "requirements": _REQUIREMENTS}],
            "conditions": _CONDITIONS,
        },
    },
    "kwoknodeclasses": {"spec": {"nodeRegistrationDelay": "5s"}, "status": {"conditions": _CONDITIONS}},
    "nodeoverlays": {"spec": {"requirements": _REQUIREMENTS, "priceAdjustment": "+10%", "weight": 1}},
    "podtemplates": {"template": _TEMPLATE},
    "capacitybuffers": {"spec": {"replicas": 3, "podTemplateRef": {"name": "x"}, "limits": {"cpu": "4"}}},
    "provisioningrequests": {
        "spec": {
            "provisioningClassName": "atomic.dovetail.dev",
            "podSets": [{"podTemplateRef": {"name": "x"}, "count": 3}],
            "parameters": {"ValidUntilSeconds": "60"},
        },
        "status": {"conditions": _CONDITIONS, "provisioningClassDetails": {"a": "b"}},
    },
    "daemonsets": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}, "status": {"desiredNumberScheduled": 3}},
    "deployments": {"spec": {"replicas": 3, "selector": _SELECTOR, "template": _TEMPLATE}},
    "replicasets": {"spec": {"replicas": 3, "selector": _SELECTOR, "template": _TEMPLATE}},
    "statefulsets": {"spec": {"replicas": 3, "selector": _SELECTOR, "template": _TEMPLATE}},
    "jobs": {"spec": {"parallelism": 3, "completions": 5}},
    "replicationcontrollers": {"spec": {"selector": {"app": "web"}}},
    "services": {"spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.10"}},
    "poddisruptionbudgets": {
        "spec": {"minAvailable": "50%", "selector": _SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        "status": {"disruptionsAllowed": 1, "observedGeneration": 1, "conditions": _CONDITIONS},
    },
    "persistentvolumes": {
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "volumeMode": "Filesystem",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
                }
            },
        },
        "status": {"phase": "Bound"},
    },
    "persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": "gp3",
            "volumeName": "pv",
        },
        "status": {"phase": "Bound"},
    },
    "storageclasses": {
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    },
    "csidrivers": {"spec": {"attachRequired": True, "preventPodSchedulingIfMissing": True}},
    "csinodes": {"spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i", "allocatable": {"count": 25}}]}},
    "podgroups": {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "priority": 7}},
    "verticalpodautoscalers": {
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": "Recreate"},
            "resourcePolicy": {
                "containerPolicies": [
                    {"containerName": "*", "minAllowed": {"cpu": "1"}, "controlledResources": ["cpu", "memory"]}
                ]
            },
        },
        "status": {
            "recommendation": {"containerRecommendations": [{"containerName": "web", "target": {"cpu": "900m"}}]}
        },
    },
    "volumeattachments": {"spec": {"attacher": "x", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}},
    "limitranges": {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}},
    "namespaces": {"status": {"phase": "Active"}},
    "configmaps": {"data": {"a": "b"}},
    "secrets": {"data": {"tls.crt": "YQ=="}, "type": "kubernetes.io/tls"},
    "leases": {
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-11-21T10:00:00.000000Z",
            "leaseTransitions": 3,
        }
    },
    "events": {"involvedObject": {"kind": "Pod", "name": "web-1"}, "reason": "x", "message": "y", "count": 3},
    "mutatingwebhookconfigurations": {
        "webhooks": [{"name": "a", "clientConfig": {"caBundle": "YQ=="}, "rules": [{"operations": ["CREATE"]}]}]
    },
    "validatingwebhookconfigurations": {"webhooks": [{"name": "a", "clientConfig": {"caBundle": "YQ=="}}]},
    "customresourcedefinitions": {"spec": {"group": "karpenter.sh", "versions": [{"name": "v1", "served": True}]}},
}
"""What a kind has beside its metadata, by plural name; `document` puts both together."""

_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    10**30,
    1e308,
    -0.5,
    "",
    "x",
    "\u0000",
    "\ufffd" * 3,
    "9" * 400,
    "-5",
    "1e99999",
    "99999999999999999999h",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "2026-13-45T99:99:99Z",
    "a" * 5000,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"name": {"name": {}}},
    ["", 0, None, {}],
)
_SNIPPETS: Final = (
    b"",
    b",",
    b"}",
    b"]",
    b"{",
    b'"',
    b"\\",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"1e400",
    b"NaN",
    b"-",
    b"\\ud800",
    b"\n",
)


def document(plural: str, **metadata: Any) -> dict[str, Any]:
    """A sound object of one kind, a copy of its own."""
    return {"kind": plural, "apiVersion": "v1", "metadata": {**copy.deepcopy(_META), **metadata}} | copy.deepcopy(
        DOCUMENTS[plural]
    )


def odd(draw: random.Random, sound: Any) -> Any:
    """A copy of a JSON document with up to three values that are out of place."""
    changed = copy.deepcopy(sound)
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        _change(draw, changed)
    return changed


def mutant(draw: random.Random, sound: Any) -> bytes:
    """The text of a JSON document with one to three things wrong with it."""
    changed = odd(draw, sound)
    text = json.dumps(changed, separators=(",", ":"), ensure_ascii=draw.random() < 0.5).encode(errors="surrogatepass")
    match draw.randrange(8):
        case 0:
            return text[: draw.randrange(len(text))]
        case 1:
            at = draw.randrange(len(text))
            return text[:at] + draw.choice(_SNIPPETS) + text[at + draw.randrange(3) :]
        case 2:
            at = draw.randrange(len(text))
            return text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]
        case 3:
            return _deepened(draw, text)
        case _:
            return text


def _change(draw: random.Random, root: Any) -> None:
    """Put something odd in the place of one value, or take it away, or copy it elsewhere."""
    spots: list[tuple[Any, Any]] = []
    stack = [root]
    while stack:
        one = stack.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            spots.append((one, key))
            if isinstance(one[key], dict | list):
                stack.append(one[key])
    if not spots:
        return
    holder, key = draw.choice(spots)
    match draw.randrange(6):
        case 0:
            del holder[key]
        case 1:
            other, its = draw.choice(spots)
            holder[key] = copy.deepcopy(other[its])
        case 2 if isinstance(holder, dict):
            holder[draw.choice(("name", "metadata", "spec", "items", "", "x" * 300))] = holder[key]
        case 3 if isinstance(holder, list):
            holder.extend([holder[key]] * draw.choice((1, 2000)))
        case _:
            holder[key] = copy.deepcopy(draw.choice(_ODD))


def _deepened(draw: random.Random, text: bytes) -> bytes:
    """One value replaced by one that is nested deeply, or one such field more."""
    levels = draw.choice((50, 200, 900, 990, 1000, 1500, 10_000))
    deep = nested(levels) if draw.random() < 0.7 else b"[" * levels + b"]" * levels
    ends = [at for at, byte in enumerate(text) if byte == ord("{")]
    if not ends:
        return text
    at = draw.choice(ends) + 1
    return text[:at] + b'"f:deep":' + deep + (b"" if text[at : at + 1] == b"}" else b",") + text[at:]
