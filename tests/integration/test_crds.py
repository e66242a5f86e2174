"""The generated definitions on a real API server: one row a rule, what it admits and what it refuses, and with what words.

Rows are dry-run requests, so nothing is left behind and a row takes a few milliseconds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from provisioner.cli.documents import InputFile
from provisioner.cli.lint import LintItem, items_of, report_on
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.definitions import GONE, Body, changed, send, with_definitions

pytestmark = pytest.mark.plane

NODECLASS: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
TAINT: Final = {"key": "dedicated", "effect": "NoSchedule", "value": "gpu"}

POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
OVERLAYS: Final = "/apis/karpenter.sh/v1alpha1/nodeoverlays"
BUFFERS: Final = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"

BASES: Final[dict[str, Body]] = {
    POOLS: {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "crd-test"},
        "spec": {"template": {"spec": {"nodeClassRef": NODECLASS, "requirements": []}}},
    },
    CLAIMS: {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "crd-test"},
        "spec": {"nodeClassRef": NODECLASS, "requirements": []},
    },
    OVERLAYS: {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "crd-test"},
        "spec": {"requirements": []},
    },
    BUFFERS: {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "crd-test", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "a"}, "replicas": 1},
    },
    CLASSES: {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "crd-test"},
        "spec": {},
    },
}

T: Final = "spec.template.spec"
M: Final = "spec.template.metadata"
R: Final = f"{T}.requirements"


def requirement(key: str = "example.com/tier", operator: str = "In", *values: str, **more: Any) -> Body:
    body: Body = {"key": key, "operator": operator, **more}
    return body | {"values": list(values)} if values else body


class Row(NamedTuple):
    """One object: the base with `changes` (dotted path -> value); refused when there are `words`."""

    path: str
    changes: dict[str, Any]
    words: tuple[str, ...] = ()


def pool(changes: dict[str, Any], *words: str) -> Row:
    return Row(POOLS, changes, words)


def claim(changes: dict[str, Any], *words: str) -> Row:
    return Row(CLAIMS, changes, words)


def overlay(changes: dict[str, Any], *words: str) -> Row:
    return Row(OVERLAYS, changes, words)


def room(changes: dict[str, Any], *words: str) -> Row:
    return Row(BUFFERS, changes, words)


def kwok(changes: dict[str, Any], *words: str) -> Row:
    return Row(CLASSES, changes, words)


def budgets(*entries: Body) -> dict[str, Any]:
    return {"spec.disruption": {"consolidateAfter": "0s", "budgets": list(entries)}}


RESTRICTED: Final = 'label domain "karpenter.sh" is restricted'

ROWS: Final[dict[str, Row]] = {
    # --- NodePool: shape
    "pool: the least that is needed": pool({}),
    "pool: a template is required": pool({"spec.template": GONE}, "spec.template", "Required"),
    "pool: the template's spec is required": pool({"spec.template": {}}, "spec.template.spec", "Required"),
    "pool: requirements are required": pool({R: GONE}, R, "Required"),
    "pool: nodeClassRef is required": pool({f"{T}.nodeClassRef": GONE}, f"{T}.nodeClassRef", "Required"),
    # --- NodePool: disruption
    "pool: consolidateAfter Never": pool({"spec.disruption": {"consolidateAfter": "Never"}}),
    "pool: consolidateAfter of several units": pool({"spec.disruption": {"consolidateAfter": "1h30m"}}),
    "pool: consolidateAfter without unit": pool(
        {"spec.disruption": {"consolidateAfter": "30"}}, "spec.disruption.consolidateAfter"
    ),
    "pool: consolidateAfter negative": pool(
        {"spec.disruption": {"consolidateAfter": "-1s"}}, "spec.disruption.consolidateAfter"
    ),
    "pool: consolidateAfter with text behind Never": pool(
        {"spec.disruption": {"consolidateAfter": "Nevermore"}}, "spec.disruption.consolidateAfter"
    ),
    "pool: no consolidateAfter": pool({"spec.disruption": {"budgets": [{"nodes": "1"}]}}),
    "pool: no consolidateAfter of a static pool": pool({"spec.replicas": 1, "spec.disruption": {}}),
    "pool: consolidationPolicy WhenEmpty": pool({"spec.disruption": {"consolidationPolicy": "WhenEmpty"}}),
    "pool: consolidationPolicy Balanced": pool({"spec.disruption": {"consolidationPolicy": "Balanced"}}),
    "pool: consolidationPolicy of v1beta1": pool(
        {"spec.disruption": {"consolidationPolicy": "WhenUnderutilized"}}, "spec.disruption.consolidationPolicy"
    ),
    "pool: a budget in percent": pool(budgets({"nodes": "20%"})),
    "pool: a budget of all nodes": pool(budgets({"nodes": "100%"})),
    "pool: a budget as a number": pool(budgets({"nodes": "7"})),
    "pool: a budget above 100 percent": pool(budgets({"nodes": "101%"}), "budgets[0].nodes"),
    "pool: a negative budget": pool(budgets({"nodes": "-1"}), "budgets[0].nodes"),
    "pool: a budget as an integer": pool(budgets({"nodes": 7}), "budgets[0].nodes", "string"),
    "pool: fifty budgets": pool(budgets(*[{"nodes": "1"}] * 50)),
    "pool: more than fifty budgets": pool(budgets(*[{"nodes": "1"}] * 51), "spec.disruption.budgets", "50"),
    "pool: reasons of a budget": pool(
        budgets({"nodes": "1", "reasons": ["Underutilized", "Empty", "Drifted", "Unhealthy"]})
    ),
    "pool: no reason at all": pool(budgets({"nodes": "1", "reasons": []})),
    "pool: an unknown reason": pool(budgets({"nodes": "1", "reasons": ["Expired"]}), "budgets[0].reasons[0]"),
    "pool: a reason twice": pool(
        budgets({"nodes": "1", "reasons": ["Empty", "Empty"]}), "budgets[0].reasons[1]", "Duplicate"
    ),
    "pool: a window": pool(budgets({"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"})),
    "pool: a window by macro": pool(budgets({"nodes": "0", "schedule": "@daily", "duration": "1h30m"})),
    "pool: a window's duration as Go prints it": pool(
        budgets({"nodes": "0", "schedule": "@daily", "duration": "1h30m0s"})
    ),
    "pool: a schedule without duration": pool(
        budgets({"nodes": "0", "schedule": "@daily"}),
        "spec.disruption.budgets",
        "'schedule' must be set with 'duration'",
    ),
    "pool: a duration without schedule": pool(
        budgets({"nodes": "0", "duration": "1h"}), "spec.disruption.budgets", "'schedule' must be set with 'duration'"
    ),
    "pool: a schedule of four fields": pool(
        budgets({"nodes": "0", "schedule": "0 9 * *", "duration": "1h"}), "budgets[0].schedule"
    ),
    "pool: an unknown macro": pool(
        budgets({"nodes": "0", "schedule": "@sometimes", "duration": "1h"}), "budgets[0].schedule"
    ),
    "pool: a window in seconds": pool(
        budgets({"nodes": "0", "schedule": "@daily", "duration": "30s"}), "budgets[0].duration"
    ),
    # --- NodePool: limits, weight, replicas
    "pool: limits of any resource": pool({"spec.limits": {"cpu": "1k", "memory": "4Ti", "nodes": 5, "a.com/b": "1"}}),
    "pool: a limit that is no quantity": pool({"spec.limits": {"cpu": "many"}}, "spec.limits.cpu"),
    "pool: weight 1": pool({"spec.weight": 1}),
    "pool: weight 100": pool({"spec.weight": 100}),
    "pool: weight 0": pool({"spec.weight": 0}, "spec.weight"),
    "pool: weight 101": pool({"spec.weight": 101}, "spec.weight"),
    "pool: static without nodes": pool({"spec.replicas": 0}),
    "pool: static with a limit of nodes": pool({"spec.replicas": 3, "spec.limits": {"nodes": "10"}}),
    "pool: static with empty limits": pool({"spec.replicas": 3, "spec.limits": {}}),
    "pool: negative replicas": pool({"spec.replicas": -1}, "spec.replicas"),
    "pool: static with a limit of cpu": pool(
        {"spec.replicas": 3, "spec.limits": {"cpu": "10"}}, "spec", "only 'limits.nodes' is supported"
    ),
    "pool: static with limits of nodes and cpu": pool(
        {"spec.replicas": 3, "spec.limits": {"nodes": "1", "cpu": "10"}}, "spec", "only 'limits.nodes' is supported"
    ),
    "pool: static with a weight": pool({"spec.replicas": 3, "spec.weight": 5}, "spec", "'weight' is not supported"),
    # --- NodePool: template metadata
    "pool: a label": pool({M: {"labels": {"team": "a", "example.com/tier": ""}}}),
    "pool: a label for the capacity type": pool({M: {"labels": {"karpenter.sh/capacity-type": "spot"}}}),
    "pool: a label of Kubernetes": pool({M: {"labels": {"node-role.kubernetes.io/worker": "true"}}}),
    "pool: a label of the provider": pool({M: {"labels": {"karpenter.kwok.sh/instance-family": "c"}}}),
    "pool: a label in the domain karpenter.sh": pool(
        {M: {"labels": {"karpenter.sh/initialized": "true"}}}, f"{M}.labels", RESTRICTED
    ),
    "pool: a label below karpenter.sh": pool({M: {"labels": {"x.karpenter.sh/a": "b"}}}, f"{M}.labels", RESTRICTED),
    "pool: the label of the pool": pool(
        {M: {"labels": {"karpenter.sh/nodepool": "a"}}}, f"{M}.labels", '"karpenter.sh/nodepool" is restricted'
    ),
    "pool: the label of the host": pool(
        {M: {"labels": {"kubernetes.io/hostname": "a"}}}, f"{M}.labels", '"kubernetes.io/hostname" is restricted'
    ),
    "pool: a label's value of 63 characters": pool({M: {"labels": {"a": "x" * 63}}}),
    "pool: a label's value of 64 characters": pool({M: {"labels": {"a": "x" * 64}}}, f"{M}.labels.a"),
    "pool: a label's value that is none": pool({M: {"labels": {"a": "b c"}}}, f"{M}.labels.a"),
    "pool: a hundred labels": pool({M: {"labels": {f"l{i}": "" for i in range(100)}}}),
    "pool: more than a hundred labels": pool({M: {"labels": {f"l{i}": "" for i in range(101)}}}, f"{M}.labels", "100"),
    "pool: annotations of any kind": pool({M: {"annotations": {"karpenter.sh/do-not-disrupt": "true", "a": "b c"}}}),
    # --- NodePool: requirements
    "pool: In": pool({R: [requirement("a", "In", "b")]}),
    "pool: NotIn": pool({R: [requirement("a", "NotIn", "b")]}),
    "pool: NotIn without values": pool({R: [requirement("a", "NotIn")]}),
    "pool: Exists": pool({R: [requirement("a", "Exists")]}),
    "pool: DoesNotExist": pool({R: [requirement("a", "DoesNotExist")]}),
    "pool: Gt": pool({R: [requirement("a", "Gt", "0")]}),
    "pool: Lt": pool({R: [requirement("a", "Lt", "8")]}),
    "pool: Gte and Lte": pool({R: [requirement("a", "Gte", "2"), requirement("a", "Lte", "8")]}),
    "pool: an unknown operator": pool({R: [requirement("a", "Near", "b")]}, f"{R}[0].operator"),
    "pool: no operator": pool({R: [{"key": "a"}]}, f"{R}[0].operator", "Required"),
    "pool: no key": pool({R: [{"operator": "Exists"}]}, f"{R}[0].key", "Required"),
    "pool: In without values": pool({R: [requirement("a", "In")]}, R, "operator 'In' must have a value"),
    "pool: In with an empty list": pool({R: [requirement("a", "In", values=[])]}, R, "operator 'In' must have a value"),
    "pool: Gt without value": pool({R: [requirement("a", "Gt")]}, R, "must have a single positive integer"),
    "pool: Lt with two values": pool({R: [requirement("a", "Lt", "1", "2")]}, R, "single positive integer"),
    "pool: Gte with a word": pool({R: [requirement("a", "Gte", "many")]}, R, "single positive integer"),
    "pool: Lte with a negative number": pool({R: [requirement("a", "Lte", "-1")]}, f"{R}[0].values[0]"),
    "pool: Gt with a fraction": pool({R: [requirement("a", "Gt", "1.5")]}, R, "single positive integer"),
    "pool: minValues": pool({R: [requirement("a", "In", "b", "c", minValues=2)]}),
    "pool: minValues with Exists": pool({R: [requirement("a", "Exists", minValues=50)]}),
    "pool: minValues above the values": pool(
        {R: [requirement("a", "In", "b", "c", minValues=3)]}, R, "'minValues' must have at least that many values"
    ),
    "pool: minValues 0": pool({R: [requirement("a", "Exists", minValues=0)]}, f"{R}[0].minValues"),
    "pool: minValues 51": pool({R: [requirement("a", "Exists", minValues=51)]}, f"{R}[0].minValues"),
    "pool: the requirement of a capacity type": pool({R: [requirement("karpenter.sh/capacity-type", "In", "spot")]}),
    "pool: a requirement in karpenter.sh": pool(
        {R: [requirement("karpenter.sh/registered", "Exists")]}, f"{R}[0].key", RESTRICTED
    ),
    "pool: a requirement below karpenter.sh": pool(
        {R: [requirement("x.karpenter.sh/a", "Exists")]}, f"{R}[0].key", RESTRICTED
    ),
    "pool: a requirement on the pool": pool(
        {R: [requirement("karpenter.sh/nodepool", "In", "a")]}, f"{R}[0].key", '"karpenter.sh/nodepool" is restricted'
    ),
    "pool: a requirement on the host": pool(
        {R: [requirement("kubernetes.io/hostname", "Exists")]}, f"{R}[0].key", '"kubernetes.io/hostname" is restricted'
    ),
    "pool: a key that is no label": pool({R: [requirement("a b", "Exists")]}, f"{R}[0].key"),
    "pool: a key of 316 characters": pool({R: [requirement("a" * 252 + "/" + "b" * 63, "Exists")]}),
    "pool: a key of 317 characters": pool({R: [requirement("a" * 253 + "/" + "b" * 63, "Exists")]}, f"{R}[0].key"),
    "pool: an empty value": pool({R: [requirement("a", "In", "")]}),
    "pool: a value of 64 characters": pool({R: [requirement("a", "In", "x" * 64)]}, f"{R}[0].values[0]"),
    "pool: a value that is no label value": pool({R: [requirement("a", "In", "b/c")]}, f"{R}[0].values[0]"),
    "pool: a hundred requirements": pool({R: [requirement(f"a{i}", "Exists") for i in range(100)]}),
    "pool: more than a hundred requirements": pool({R: [requirement(f"a{i}", "Exists") for i in range(101)]}, R, "100"),
    # --- NodePool: node class, taints, durations
    "pool: a node class without name": pool({f"{T}.nodeClassRef": NODECLASS | {"name": ""}}, f"{T}.nodeClassRef.name"),
    "pool: a node class without kind": pool({f"{T}.nodeClassRef": NODECLASS | {"kind": ""}}, f"{T}.nodeClassRef.kind"),
    "pool: a node class without group": pool(
        {f"{T}.nodeClassRef": NODECLASS | {"group": ""}}, f"{T}.nodeClassRef.group"
    ),
    "pool: a node class with its version": pool(
        {f"{T}.nodeClassRef": NODECLASS | {"group": "a.b/v1"}}, f"{T}.nodeClassRef.group"
    ),
    "pool: the node class reference of v1beta1": pool(
        {f"{T}.nodeClassRef": {"name": "default"}}, f"{T}.nodeClassRef", "Required"
    ),
    "pool: taints": pool({f"{T}.taints": [TAINT, {"key": "a.b/c", "effect": "NoExecute"}]}),
    "pool: a taint that is only a preference": pool({f"{T}.startupTaints": [TAINT | {"effect": "PreferNoSchedule"}]}),
    "pool: a taint of unknown effect": pool({f"{T}.taints": [TAINT | {"effect": "Never"}]}, f"{T}.taints[0].effect"),
    "pool: a taint without effect": pool({f"{T}.taints": [{"key": "a"}]}, f"{T}.taints[0].effect", "Required"),
    "pool: a taint without key": pool(
        {f"{T}.startupTaints": [{"effect": "NoSchedule"}]}, f"{T}.startupTaints[0].key", "Required"
    ),
    "pool: a taint with an empty key": pool({f"{T}.taints": [TAINT | {"key": ""}]}, f"{T}.taints[0].key"),
    "pool: a taint whose key is no name": pool({f"{T}.taints": [TAINT | {"key": "a b"}]}, f"{T}.taints[0].key"),
    "pool: a taint whose value is no name": pool({f"{T}.taints": [TAINT | {"value": "a b"}]}, f"{T}.taints[0].value"),
    "pool: a taint with a time": pool({f"{T}.taints": [TAINT | {"timeAdded": "2026-01-02T03:04:05Z"}]}),
    "pool: a taint with a time that is none": pool(
        {f"{T}.taints": [TAINT | {"timeAdded": "yesterday"}]}, f"{T}.taints[0].timeAdded"
    ),
    "pool: expireAfter Never": pool({f"{T}.expireAfter": "Never"}),
    "pool: expireAfter in three units": pool({f"{T}.expireAfter": "1h2m3s"}),
    "pool: expireAfter in days": pool({f"{T}.expireAfter": "30d"}, f"{T}.expireAfter"),
    "pool: terminationGracePeriod": pool({f"{T}.terminationGracePeriod": "48h"}),
    "pool: terminationGracePeriod Never": pool({f"{T}.terminationGracePeriod": "Never"}, "terminationGracePeriod"),
    # --- NodeClaim
    "claim: the least that is needed": claim({}),
    "claim: nodeClassRef is required": claim({"spec.nodeClassRef": GONE}, "spec.nodeClassRef", "Required"),
    "claim: requirements are required": claim({"spec.requirements": GONE}, "spec.requirements", "Required"),
    "claim: a requirement on the pool": claim({"spec.requirements": [requirement("karpenter.sh/nodepool", "In", "a")]}),
    "claim: a requirement in karpenter.sh": claim(
        {"spec.requirements": [requirement("karpenter.sh/registered", "Exists")]},
        "spec.requirements[0].key",
        RESTRICTED,
    ),
    "claim: a requirement on the host": claim(
        {"spec.requirements": [requirement("kubernetes.io/hostname", "Exists")]},
        "spec.requirements[0].key",
        "restricted",
    ),
    "claim: In without values": claim({"spec.requirements": [requirement("a", "In")]}, "spec.requirements", "'In'"),
    "claim: Gt with a word": claim(
        {"spec.requirements": [requirement("a", "Gt", "x")]}, "spec.requirements", "single positive integer"
    ),
    "claim: minValues above the values": claim(
        {"spec.requirements": [requirement("a", "In", "b", minValues=2)]}, "spec.requirements", "'minValues'"
    ),
    "claim: requests": claim({"spec.resources": {"requests": {"cpu": "1500m", "memory": 1024}}}),
    "claim: a request that is no quantity": claim(
        {"spec.resources": {"requests": {"cpu": "x"}}}, "spec.resources.requests.cpu"
    ),
    "claim: a taint of unknown effect": claim({"spec.taints": [TAINT | {"effect": "x"}]}, "spec.taints[0].effect"),
    "claim: expireAfter in days": claim({"spec.expireAfter": "1d"}, "spec.expireAfter"),
    "claim: terminationGracePeriod Never": claim(
        {"spec.terminationGracePeriod": "Never"}, "spec.terminationGracePeriod"
    ),
    "claim: a node class with its version": claim(
        {"spec.nodeClassRef": NODECLASS | {"group": "a/v1"}}, "spec.nodeClassRef.group"
    ),
    # --- NodeOverlay
    "overlay: the least that is needed": overlay({}),
    "overlay: requirements are required": overlay({"spec.requirements": GONE}, "spec.requirements", "Required"),
    "overlay: a requirement on the pool": overlay(
        {"spec.requirements": [requirement("karpenter.sh/nodepool", "In", "a")]}
    ),
    "overlay: a requirement on the host": overlay(
        {"spec.requirements": [requirement("kubernetes.io/hostname", "Exists")]},
        "spec.requirements[0].key",
        "restricted",
    ),
    "overlay: a requirement in karpenter.sh": overlay(
        {"spec.requirements": [requirement("karpenter.sh/registered", "Exists")]},
        "spec.requirements[0].key",
        RESTRICTED,
    ),
    "overlay: In without values": overlay({"spec.requirements": [requirement("a", "In")]}, "spec.requirements", "'In'"),
    "overlay: NotIn without values": overlay(
        {"spec.requirements": [requirement("a", "NotIn")]}, "spec.requirements", "'NotIn'"
    ),
    "overlay: Lte with a word": overlay(
        {"spec.requirements": [requirement("a", "Lte", "x")]}, "spec.requirements", "single positive integer"
    ),
    "overlay: more than a hundred requirements": overlay(
        {"spec.requirements": [requirement(f"a{i}", "Exists") for i in range(101)]}, "spec.requirements", "100"
    ),
    "overlay: a price": overlay({"spec.price": "0.125"}),
    "overlay: a price with a currency": overlay({"spec.price": "$1"}, "spec.price"),
    "overlay: a negative price": overlay({"spec.price": "-1"}, "spec.price"),
    "overlay: an added amount": overlay({"spec.priceAdjustment": "+0.5"}),
    "overlay: a subtracted amount": overlay({"spec.priceAdjustment": "-0.5"}),
    "overlay: ten percent less": overlay({"spec.priceAdjustment": "-10%"}),
    "overlay: free of charge": overlay({"spec.priceAdjustment": "-100%"}),
    "overlay: twice the price and more": overlay({"spec.priceAdjustment": "+150%"}),
    "overlay: more than all of it": overlay({"spec.priceAdjustment": "-101%"}, "spec.priceAdjustment"),
    "overlay: an adjustment without sign": overlay({"spec.priceAdjustment": "10%"}, "spec.priceAdjustment"),
    "overlay: price and adjustment": overlay(
        {"spec.price": "1", "spec.priceAdjustment": "+1"}, "spec", "cannot set both 'price' and 'priceAdjustment'"
    ),
    "overlay: an extended resource": overlay({"spec.capacity": {"smarter-devices/fuse": 1}}),
    "overlay: capacity of cpu": overlay({"spec.capacity": {"cpu": 1}}, "spec.capacity", "restricted: cpu"),
    "overlay: capacity of memory": overlay({"spec.capacity": {"memory": 1}}, "spec.capacity", "restricted: memory"),
    "overlay: capacity of ephemeral storage": overlay(
        {"spec.capacity": {"ephemeral-storage": 1}}, "spec.capacity", "restricted: ephemeral-storage"
    ),
    "overlay: capacity of pods": overlay({"spec.capacity": {"pods": 1}}, "spec.capacity", "restricted: pods"),
    "overlay: weight 10000": overlay({"spec.weight": 10000}),
    "overlay: weight 10001": overlay({"spec.weight": 10001}, "spec.weight"),
    "overlay: weight 0": overlay({"spec.weight": 0}, "spec.weight"),
    # --- CapacityBuffer
    "buffer: of a template, with replicas": room({}),
    "buffer: of a template, with limits": room({"spec.replicas": GONE, "spec.limits": {"cpu": "4"}}),
    "buffer: of a workload, in percent": room(
        {"spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "a"}, "percentage": 20}}
    ),
    "buffer: of another strategy": room({"spec.provisioningStrategy": "example.com/other"}),
    "buffer: spec is required": room({"spec": GONE}, "spec", "Required"),
    "buffer: of a template, without size": room({"spec.replicas": GONE}, "spec", "'replicas' or 'limits' must be set"),
    "buffer: of both": room({"spec.scalableRef": {"kind": "Deployment", "name": "a"}}, "spec", "exclude each other"),
    "buffer: negative replicas": room({"spec.replicas": -1}, "spec.replicas"),
    "buffer: negative percentage": room({"spec.percentage": -1}, "spec.percentage"),
    "buffer: a template without name": room({"spec.podTemplateRef": {}}, "spec.podTemplateRef.name", "Required"),
    "buffer: a workload without kind": room(
        {"spec": {"scalableRef": {"name": "a"}, "percentage": 20}}, "spec.scalableRef.kind", "Required"
    ),
    "buffer: a limit that is no quantity": room({"spec.limits": {"cpu": "x"}}, "spec.limits.cpu"),
    # --- KWOKNodeClass
    "kwok: without anything": kwok({"spec": GONE}),
    "kwok: a delay": kwok({"spec.nodeRegistrationDelay": "1m30s"}),
    "kwok: a delay that is none": kwok({"spec.nodeRegistrationDelay": "soon"}, "spec.nodeRegistrationDelay"),
}


@pytest.fixture(scope="module")
def client(plane: DevCluster) -> Client:
    """Of a cluster that has the definitions."""
    return with_definitions(plane)


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_rule(client: Client, row: Row) -> None:
    """`dovetail lint` says the same of these rows, see tests/unit/apis/test_openapi.py."""
    body = changed(BASES[row.path], row.changes)
    if not row.words:
        send(client, "POST", row.path, body)
        return
    with pytest.raises(ApiError) as refused:
        send(client, "POST", row.path, body)
    for word in row.words:
        assert word in refused.value.message


@pytest.fixture
def kept(client: Client) -> Iterator[dict[str, Body]]:
    """One object of each kind that is really there, by path."""
    created = {}
    try:
        for path, base in BASES.items():
            body = changed(base, {"metadata.generateName": "crd-test-", "metadata.name": GONE})
            created[path] = send(client, "POST", path, body, dry=False)
        yield created
    finally:
        for path, body in created.items():
            client.raw("DELETE", f"{path}/{body['metadata']['name']}")


def at(path: str, body: Body) -> str:
    return f"{path}/{body['metadata']['name']}"


def test_defaults(kept: dict[str, Body]) -> None:
    spec = kept[POOLS]["spec"]
    assert spec["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert spec["template"]["spec"]["expireAfter"] == "720h"
    assert kept[CLAIMS]["spec"]["expireAfter"] == "720h"
    assert kept[BUFFERS]["spec"]["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"


def test_defaults_fill_what_a_given_disruption_leaves_out(client: Client) -> None:
    body = changed(BASES[POOLS], {"spec.disruption": {"budgets": [{"schedule": "@daily", "duration": "1h"}]}})
    disruption = send(client, "POST", POOLS, body)["spec"]["disruption"]
    assert disruption["consolidateAfter"] == "0s"
    assert disruption["budgets"] == [{"nodes": "10%", "schedule": "@daily", "duration": "1h"}]


def test_durations_keep_their_text(client: Client) -> None:
    body = changed(BASES[POOLS], {f"{T}.expireAfter": "90m", "spec.disruption": {"consolidateAfter": "120s"}})
    spec = send(client, "POST", POOLS, body)["spec"]
    assert (spec["template"]["spec"]["expireAfter"], spec["disruption"]["consolidateAfter"]) == ("90m", "120s")


def test_absent_and_empty_lists_come_back_as_they_were(client: Client) -> None:
    answer = send(client, "POST", POOLS, changed(BASES[POOLS], {f"{T}.taints": []}))["spec"]["template"]["spec"]
    assert answer["taints"] == []
    assert "startupTaints" not in answer


def test_a_kwok_class_is_ready_by_itself(client: Client, kept: dict[str, Body]) -> None:
    read = msgspec.json.decode(client.raw("GET", at(CLASSES, kept[CLASSES])))
    assert [(one["type"], one["status"]) for one in read["status"]["conditions"]] == [("Ready", "True")]


CHANGES: Final[dict[str, tuple[str, Body, str]]] = {
    "a pool's class may get another name": (POOLS, {"template": {"spec": {"nodeClassRef": {"name": "b"}}}}, ""),
    "a pool's class keeps its group": (
        POOLS,
        {"template": {"spec": {"nodeClassRef": {"group": "other.example.com"}}}},
        "nodeClassRef.group is immutable",
    ),
    "a pool's class keeps its kind": (
        POOLS,
        {"template": {"spec": {"nodeClassRef": {"kind": "Other"}}}},
        "nodeClassRef.kind is immutable",
    ),
    "a dynamic pool stays dynamic": (POOLS, {"replicas": 1}, "cannot transition a NodePool between static"),
    "a pool's weight may change": (POOLS, {"weight": 7}, ""),
    "a claim's spec never changes": (CLAIMS, {"expireAfter": "1h"}, "spec is immutable"),
    "a claim's spec may be sent again": (CLAIMS, {"expireAfter": "720h"}, ""),
    "an overlay may change": (OVERLAYS, {"weight": 7}, ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change(client: Client, kept: dict[str, Body], name: str) -> None:
    path, spec, words = CHANGES[name]
    if not words:
        send(client, "PATCH", at(path, kept[path]), {"spec": spec})
        return
    with pytest.raises(ApiError) as refused:
        send(client, "PATCH", at(path, kept[path]), {"spec": spec})
    assert words in refused.value.message
    assert "spec" in refused.value.message


CONDITION: Final = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
FULL: Final = CONDITION | {"reason": "Ready", "message": ""}
STATUSES: Final[dict[str, tuple[str, Body, str]]] = {
    "a pool's whole condition": (POOLS, {"conditions": [FULL], "nodes": 3, "resources": {"cpu": "4"}}, ""),
    "a pool's condition needs a reason": (POOLS, {"conditions": [CONDITION | {"message": ""}]}, "conditions[0].reason"),
    "a pool's condition needs a message": (
        POOLS,
        {"conditions": [CONDITION | {"reason": "A"}]},
        "conditions[0].message",
    ),
    "a pool's condition has one of three states": (
        POOLS,
        {"conditions": [FULL | {"status": "Maybe"}]},
        "conditions[0].status",
    ),
    "a claim's condition may be short": (CLAIMS, {"conditions": [CONDITION]}, ""),
    "a claim's condition may have an empty reason": (CLAIMS, {"conditions": [CONDITION | {"reason": ""}]}, ""),
    "a claim's condition needs a time": (
        CLAIMS,
        {"conditions": [{"type": "Ready", "status": "True"}]},
        "conditions[0].lastTransitionTime",
    ),
    "a claim's room": (CLAIMS, {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m"}, "providerID": "a://b"}, ""),
    "a claim's room that is no quantity": (CLAIMS, {"capacity": {"cpu": "x"}}, "status.capacity.cpu"),
    "a buffer's conditions are one of a type": (BUFFERS, {"conditions": [FULL, FULL]}, "conditions[1]"),
}


@pytest.mark.parametrize("name", STATUSES)
def test_a_status(client: Client, kept: dict[str, Body], name: str) -> None:
    path, status, words = STATUSES[name]
    url = f"{at(path, kept[path])}/status"
    if not words:
        answer = send(client, "PATCH", url, {"status": status})
        assert status.items() <= answer["status"].items()
        return
    with pytest.raises(ApiError) as refused:
        send(client, "PATCH", url, {"status": status})
    assert words in refused.value.message


def test_a_status_is_not_written_with_the_object(client: Client, kept: dict[str, Body]) -> None:
    answer = send(client, "PATCH", at(CLAIMS, kept[CLAIMS]), {"status": {"nodeName": "a"}})
    assert "nodeName" not in answer.get("status", {})


COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "nodepools": ("NAME NODECLASS NODES READY AGE", "WEIGHT CPU MEMORY"),
    "nodeclaims": ("NAME TYPE CAPACITY ZONE NODE READY AGE", "IMAGEID ID NODEPOOL NODECLASS DRIFTED"),
    "overlays": ("NAME READY AGE", "WEIGHT"),
    "cb": ("NAME STRATEGY PODTEMPLATE REPLICAS CONDITIONSTYPE CONDITIONSSTATUS CONDITIONSREASON AGE", ""),
    "kwoknodeclasses": ("NAME READY AGE", ""),
}


@pytest.mark.parametrize("resource", COLUMNS)
def test_the_columns_of_kubectl(plane: DevCluster, kept: dict[str, Body], resource: str) -> None:
    assert kept
    usual, wide = COLUMNS[resource]
    assert plane.kubectl("get", resource, "-n", "default").splitlines()[0].split() == usual.split()
    assert plane.kubectl("get", resource, "-n", "default", "-o", "wide").splitlines()[0].split() == [
        *usual.split(),
        *wide.split(),
    ]


def test_the_values_in_the_columns(plane: DevCluster, client: Client, kept: dict[str, Body]) -> None:
    url = at(CLAIMS, kept[CLAIMS])
    labels = {
        "node.kubernetes.io/instance-type": "c-4x-amd64-linux",
        "karpenter.sh/capacity-type": "spot",
        "topology.kubernetes.io/zone": "test-zone-a",
        "karpenter.sh/nodepool": "general",
    }
    send(client, "PATCH", url, {"metadata": {"labels": labels}}, dry=False)
    status = {"nodeName": "n1", "providerID": "kwok://n1", "imageID": "img", "conditions": [FULL]}
    send(client, "PATCH", f"{url}/status", {"status": status}, dry=False)
    line = plane.kubectl("get", "nodeclaim", kept[CLAIMS]["metadata"]["name"], "-o", "wide", "--no-headers").split()
    assert line[1:6] == ["c-4x-amd64-linux", "spot", "test-zone-a", "n1", "True"]
    assert line[7:11] == ["img", "kwok://n1", "general", "default"]


def test_kinds_are_in_their_category(plane: DevCluster, kept: dict[str, Body], tmp_path: Path) -> None:
    # kubectl remembers the categories of a server for hours, also those of a time before the CRDs
    cache = "--cache-dir", str(tmp_path)
    listed = plane.kubectl("get", "karpenter", "-o", "name", *cache)
    for path in (POOLS, CLAIMS, OVERLAYS, CLASSES):
        assert kept[path]["metadata"]["name"] in listed
    buffers = plane.kubectl("get", "autoscaling", "-n", "default", "-o", "name", *cache)
    assert kept[BUFFERS]["metadata"]["name"] in buffers


def test_a_static_pool_is_scaled(plane: DevCluster, client: Client) -> None:
    body = changed(BASES[POOLS], {"metadata.generateName": "crd-static-", "metadata.name": GONE, "spec.replicas": 1})
    created = send(client, "POST", POOLS, body, dry=False)
    url = at(POOLS, created)
    try:
        send(client, "PATCH", f"{url}/status", {"status": {"nodes": 2}}, dry=False)
        plane.kubectl("scale", "nodepool", created["metadata"]["name"], "--replicas=5")
        scale = msgspec.json.decode(client.raw("GET", f"{url}/scale"))
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (5, 2)
        with pytest.raises(ApiError) as refused:
            send(client, "PATCH", url, {"spec": {"replicas": None}})
        assert "cannot transition a NodePool between static" in refused.value.message
    finally:
        client.raw("DELETE", url)


EXAMPLES: Final = Path(__file__).parents[2] / "manifests" / "examples"
STRICT_ROWS: Final = {
    "a field with a typo": {"spec.template.spec.requirments": []},
    "a field in another place": {"spec.requirements": []},
    "metadata with a typo": {"metadata.lables": {"a": "b"}},
    "a label that is a number": {"metadata.labels": {"a": 1}},
    "a name that is none": {"metadata.name": "General_Pool"},
    "no name": {"metadata.name": GONE},
    "a null": {"spec.weight": None, "spec.disruption": {"consolidateAfter": None}},
    "a null in a list": {"spec.template.spec.requirements": [None]},
    "a float that is an integer": {"spec.weight": 5.0},
    "a float that is none": {"spec.weight": 5.5},
    "nothing": {},
}


@pytest.mark.parametrize("changes", STRICT_ROWS.values(), ids=list(STRICT_ROWS))
def test_lint_and_a_strict_api_server_agree(client: Client, changes: dict[str, Any]) -> None:
    body = changed(BASES[POOLS], changes)
    try:
        client.raw("POST", POOLS, body, {"dryRun": "All", "fieldValidation": "Strict"})
        admitted = True
    except ApiError:
        admitted = False
    assert (report_on([LintItem("f", body, {})]).count("error") == 0) is admitted


@pytest.mark.usefixtures("client")
def test_the_examples_pass_both(plane: DevCluster, tmp_path: Path) -> None:
    ours = [
        item.document
        for path in sorted(EXAMPLES.rglob("*.yaml"))
        for item in items_of(InputFile(path))
        if item.document["apiVersion"].partition("/")[0].startswith("karpenter")
    ]
    assert len(ours) >= 14
    manifest = tmp_path / "examples.json"
    manifest.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": ours}))
    answer = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(manifest), "-o", "name")
    assert len(answer.split()) == len(ours)
    assert report_on([LintItem("f", document, {}) for document in ours]).count("error") == 0
