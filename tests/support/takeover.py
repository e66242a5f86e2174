"""Clusters that Karpenter or Cluster Autoscaler runs, as the API server shows them."""

import base64
import gzip
import json
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.ec2_hash import FORMER_VERSION, former_hash
from provisioner.apis.hash import nodepool_hash
from provisioner.apis.karpenter import NodePool
from provisioner.takeover.gathering import InputBuilder, take_document
from provisioner.takeover.takeover_input import TakeoverInput
from tests.support.clock import NOON

Wire = dict[str, Any]
CA = "Q0E="
LAUNCHED = [
    {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": NOON.isoformat()}
    for kind in ("Launched", "Registered", "Initialized", "Ready")
]


def deployment(name: str = "karpenter", namespace: str = "kube-system", **changes: Any) -> Wire:
    """Karpenter's Deployment; `annotations`, `labels`, `env` (a dict), `args`, `replicas` and `image`."""
    env = {"CLUSTER_NAME": "prod", "INTERRUPTION_QUEUE": "prod", "KUBERNETES_MIN_VERSION": "1.19.0-0"}
    container = {
        "name": "controller",
        "image": changes.pop("image", "public.ecr.aws/karpenter/controller:1.14.0@sha256:abc"),
        "args": changes.pop("args", []),
        "env": [{"name": key, "value": value} for key, value in {**env, **changes.pop("env", {})}.items()],
    }
    spec = {"replicas": changes.pop("replicas", 2), "template": {"spec": {"containers": [container]}}}
    metadata = {"name": name, "namespace": namespace, **changes}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def lease(
    holder: str, namespace: str = "kube-system", name: str = "karpenter-leader-election", renewed: str = "1"
) -> Wire:
    """A Lease that `holder` holds."""
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def definition(name: str = "nodepools.karpenter.sh", *, release: str = "karpenter-crd", keep: bool = False) -> Wire:
    """A CustomResourceDefinition as a chart made it; of no chart where `release` is ""."""
    annotations = {"helm.sh/resource-policy": "keep"} if keep else {}
    labels = {}
    if release:
        annotations |= {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "kube-system"}
        labels = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": name, "annotations": annotations, "labels": labels}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {},
    }


def release_secret(
    definitions: Iterable[Wire], *, version: int = 1, status: str = "deployed", name: str = "karpenter-crd"
) -> Wire:
    """What Helm keeps of a release."""
    manifest = "".join(f"---\n# Source: karpenter-crd/templates/x.yaml\n{yaml.safe_dump(one)}" for one in definitions)
    release = {
        "name": name,
        "namespace": "kube-system",
        "version": version,
        "info": {"status": status},
        "manifest": manifest,
        "config": {"password": "secret"},
    }
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": f"sh.helm.release.v1.{name}.v{version}",
            "namespace": "kube-system",
            "labels": {"owner": "helm", "name": name, "status": status, "version": str(version)},
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }


def node_pool(name: str = "default", *, hashed: str = "v3", **template: Any) -> Wire:
    """A NodePool that Karpenter has hashed in this version; in others than v3 with a hash of its own."""
    spec = {"nodeClassRef": {"group": ec2.GROUP, "kind": ec2.KIND, "name": "default"}, "requirements": [], **template}
    wire: Wire = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"template": {"spec": spec}},
    }
    made = msgspec.convert(wire, NodePool)
    value = nodepool_hash(made.spec.template) if hashed == "v3" else "1234"
    wire["metadata"]["annotations"] = {names.NODEPOOL_HASH: value, names.NODEPOOL_HASH_VERSION: hashed}
    return wire


def node_class(name: str = "default", **spec: Any) -> Wire:
    """An EC2NodeClass as Karpenter 1.14 has hashed it."""
    wire: Wire = {
        "apiVersion": ec2.API_VERSION,
        "kind": ec2.KIND,
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "role": "KarpenterNodeRole-prod",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            **spec,
        },
        "status": {"amis": [{"id": "ami-1", "requirements": []}]},
    }
    made = msgspec.convert(wire, EC2NodeClass)
    wire["metadata"]["annotations"] = {
        ec2.HASH_ANNOTATION: former_hash(made.spec, CA),
        ec2.HASH_VERSION_ANNOTATION: FORMER_VERSION,
    }
    return wire


def node_claim(name: str, pool: Wire, its_class: Wire, **annotations: str) -> Wire:
    """A NodeClaim that Karpenter launched from both as they are."""
    stamped = {**pool["metadata"]["annotations"], **its_class["metadata"]["annotations"], **annotations}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": NOON.isoformat(),
            "labels": {names.NODEPOOL_LABEL: pool["metadata"]["name"]},
            "annotations": stamped,
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {"nodeClassRef": {"group": ec2.GROUP, "kind": ec2.KIND, "name": its_class["metadata"]["name"]}},
        "status": {
            "providerID": f"aws:///us-east-1a/i-{name}",
            "imageID": "ami-1",
            "nodeName": f"node-{name}",
            "conditions": LAUNCHED,
        },
    }


def pod(name: str, node: str = "n1", **labels: str) -> Wire:
    """A pod of ReplicaSet web that runs."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": NOON.isoformat(),
            "labels": {"app": "web", **labels},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
            ],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }


def budget(app: str, allowed: int = 1) -> Wire:
    """A PodDisruptionBudget of the pods of an app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": allowed},
    }


def given(*documents: object, authority: str | None = CA, other: str = "") -> TakeoverInput:
    """These documents as the input of the check."""
    builder = InputBuilder("files", names.OWN_NAMESPACE, other)
    for one in documents:
        take_document(builder, one)
    builder.authority = authority
    return builder.built(0.0)
