"""What the schema of a NodePool cannot check."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.validation import pool_problems
from tests.support.cluster import pool

WELL_KNOWN = names.WELL_KNOWN_LABELS | {"karpenter.kwok.sh/instance-cpu"}
TAINT = {"key": "a", "effect": "NoSchedule"}


def requirement(key: str, operator: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"requirements": ({"key": key, "operator": operator, "values": list(values), **more},)}


def labelled(**labels: str) -> NodePool:
    body = msgspec.to_builtins(pool())
    body["spec"]["template"]["metadata"] = {"labels": {key.replace("__", "/"): value for key, value in labels.items()}}
    return msgspec.convert(body, NodePool, strict=False)


GOOD: dict[str, NodePool] = {
    "a pool that asks for nothing": pool(),
    "the longest name that a label takes": pool("n" * 63),
    "labels of its own": labelled(team="a", **{"example.com__tier": "gold"}),
    "a well-known label of the provider": pool(**requirement("karpenter.kwok.sh/instance-cpu", "Lt", "17")),
    "a capacity type": pool(**requirement(names.CAPACITY_TYPE_LABEL, "In", "spot", "on-demand", minValues=2)),
    "some capacity types unknown": pool(**requirement(names.CAPACITY_TYPE_LABEL, "In", "spot", "flash")),
    "one key with two effects": pool(template={"taints": [TAINT], "startupTaints": [TAINT | {"effect": "NoExecute"}]}),
    "durations": pool(
        template={"expireAfter": "Never", "terminationGracePeriod": "1h30m"}, disruption={"consolidateAfter": "0s"}
    ),
    "limits": pool(limits={"cpu": "1k", "memory": "1Ti", "nodes": 3}),
    "a budget with a window": pool(
        disruption={"budgets": [{"nodes": "0", "schedule": "@daily", "duration": "8h"}, {"nodes": "10%"}]}
    ),
}


@pytest.mark.parametrize("one", GOOD.values(), ids=GOOD.keys())
def test_a_good_pool_has_no_problem(one: NodePool) -> None:
    assert pool_problems(one, WELL_KNOWN) == ()


BAD: dict[str, tuple[NodePool, str, str]] = {
    "a name that its nodes' label cannot have": (pool("n" * 64), "metadata.name", "limited to 63 characters"),
    "a class whose name their label cannot have": (
        pool(template={"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c" * 64}}),
        "spec.template.spec.nodeClassRef.name",
        "karpenter.kwok.sh/kwoknodeclass",
    ),
    "a label of karpenter's": (
        labelled(**{"karpenter.sh__x": "a"}),
        "spec.template.metadata.labels[karpenter.sh/x]",
        "restricted",
    ),
    "the label of the pool itself": (
        labelled(**{"karpenter.sh__nodepool": "a"}),
        "spec.template.metadata.labels[karpenter.sh/nodepool]",
        "restricted",
    ),
    "the hostname": (
        labelled(**{"kubernetes.io__hostname": "a"}),
        "spec.template.metadata.labels[kubernetes.io/hostname]",
        "restricted",
    ),
    "a label key with a space": (labelled(**{"a b": "c"}), "spec.template.metadata.labels[a b]", "qualified name"),
    "a label value with a space": (labelled(a="b c"), "spec.template.metadata.labels[a]", "label value"),
    "a taint without key": (
        pool(template={"taints": [{"key": "", "effect": "NoSchedule"}]}),
        "spec.template.spec.taints[0].key",
        "qualified name",
    ),
    "a taint of an unknown effect": (
        pool(template={"startupTaints": [TAINT, {"key": "b", "effect": "Sometimes"}]}),
        "spec.template.spec.startupTaints[1].effect",
        "PreferNoSchedule",
    ),
    "a taint value with a space": (
        pool(template={"taints": [TAINT | {"value": "b c"}]}),
        "spec.template.spec.taints[0].value",
        "taint value",
    ),
    "one taint twice": (
        pool(template={"taints": [TAINT], "startupTaints": [TAINT | {"value": "x"}]}),
        "spec.template.spec",
        "a:NoSchedule is listed twice",
    ),
    "a requirement on karpenter's domain": (
        pool(**requirement("karpenter.sh/initialized", "Exists")),
        "spec.template.spec.requirements[0].key",
        "restricted",
    ),
    "Exists with values": (pool(**requirement("team", "Exists", "a")), "spec.template.spec.requirements[0]", "values"),
    "In without values": (pool(**requirement("team", "In")), "spec.template.spec.requirements[0]", "values"),
    "a bound that is not an integer": (
        pool(**requirement("team", "Gt", "many")),
        "spec.template.spec.requirements[0]",
        "many",
    ),
    "an unknown operator": (pool(**requirement("team", "Like", "a")), "spec.template.spec.requirements[0]", "Like"),
    "a value that is no label value": (
        pool(**requirement("team", "In", "a b")),
        "spec.template.spec.requirements[0].values",
        '"a b"',
    ),
    "more minValues than values": (
        pool(**requirement("team", "In", "a", "a", minValues=2)),
        "spec.template.spec.requirements[0].minValues",
        "2 required, but only 1",
    ),
    "no capacity type known": (
        pool(**requirement(names.CAPACITY_TYPE_LABEL, "In", "flash")),
        "spec.template.spec.requirements[0].values",
        "flash",
    ),
    "fewer known capacity types than minValues": (
        pool(**requirement(names.CAPACITY_TYPE_LABEL, "In", "spot", "flash", minValues=2)),
        "spec.template.spec.requirements[0].minValues",
        "1 known",
    ),
    "an expiry that is no duration": (pool(template={"expireAfter": "soon"}), "spec.template.spec.expireAfter", "soon"),
    "a consolidation delay that is no duration": (
        pool(disruption={"consolidateAfter": "5 minutes"}),
        "spec.disruption.consolidateAfter",
        "5 minutes",
    ),
    "a limit that is no quantity": (pool(limits={"cpu": "many"}), "spec.limits", "cpu"),
    "a schedule without duration": (
        pool(disruption={"budgets": [{"nodes": "1"}, {"nodes": "0", "schedule": "@daily"}]}),
        "spec.disruption.budgets[1]",
        "must be set together",
    ),
    "a schedule that is none": (
        pool(disruption={"budgets": [{"nodes": "0", "schedule": "61 * * * *", "duration": "1h"}]}),
        "spec.disruption.budgets[0].schedule",
        "61",
    ),
}


@pytest.mark.parametrize(("one", "path", "words"), BAD.values(), ids=BAD.keys())
def test_a_problem_names_its_field(one: NodePool, path: str, words: str) -> None:
    (problem,) = pool_problems(one, WELL_KNOWN)
    assert problem.startswith(f"{path}: ")
    assert words in problem


def test_all_problems_are_told_in_the_order_of_the_fields() -> None:
    one = pool(template={"taints": [TAINT, TAINT]}, limits={"cpu": "x"}, **requirement("team", "Exists", "a"))
    paths = [problem.split(":")[0] for problem in pool_problems(one, WELL_KNOWN)]
    assert paths == ["spec.template.spec", "spec.template.spec.requirements[0]", "spec.limits"]
