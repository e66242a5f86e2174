"""Pods as the API server sends them, of a usual size, for tests and benches."""

import copy
from typing import Any

import msgspec

Wire = dict[str, Any]
OWNER = "aaaaaaaa-0000-4000-8000-000000000001"


def wire_pod(number: int = 0, **changes: Any) -> Wire:
    """One pod of a Deployment, some 4.5 KB as JSON; `changes` are merged in by dotted path with `__` for the dot."""
    name = f"web-5d4f8c7b9-{number:05d}"
    token = f"kube-api-access-{number:05d}"
    environment = [{"name": f"SETTING_{i}", "value": f"the value of setting {i}"} for i in range(8)]
    managed: Wire = {f'k:{{"name":"SETTING_{i}"}}': {".": {}, "f:name": {}, "f:value": {}} for i in range(8)}
    pod: Wire = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": "web-5d4f8c7b9-",
            "namespace": "shop",
            "uid": f"0b1c2d3e-0000-4000-8000-{number:012d}",
            "resourceVersion": str(100000 + number),
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"app": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"prometheus.io/scrape": "true", "karpenter.sh/do-not-disrupt": "false"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-5d4f8c7b9",
                    "uid": OWNER,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-11-21T10:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:env": managed}}}},
                }
            ],
        },
        "spec": {
            "volumes": [
                {
                    "name": token,
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example.com/shop/web:1.2.3",
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "env": environment,
                    "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "512Mi"}},
                    "volumeMounts": [
                        {"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "nodeName": "",
            "securityContext": {},
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "podAffinityTerm": {
                                "labelSelector": {"matchLabels": {"app": "web"}},
                                "topologyKey": "kubernetes.io/hostname",
                            },
                        }
                    ]
                }
            },
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{state}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for state in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-11-21T10:00:01Z",
                }
            ],
            "qosClass": "Burstable",
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = pod
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = copy.deepcopy(value)
    return pod


def wire_bytes(pod: Wire) -> bytes:
    """As the server encodes it."""
    return msgspec.json.encode(pod)
