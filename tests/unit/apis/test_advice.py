"""What is admitted and will surprise."""

import copy
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.advice import class_advice, fleet_advice, overlay_advice, pool_advice
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodePool
from provisioner.apis.overlay import NodeOverlay
from provisioner.ec2 import labels

KNOWN = names.WELL_KNOWN_LABELS | labels.WELL_KNOWN
BASE: dict[str, Any] = {
    "metadata": {"name": "general"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [],
            }
        },
        "disruption": {"consolidateAfter": "0s"},
    },
}


def need(key: str, operator: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values), **more}


def pool(
    *requirements: dict[str, Any],
    name: str = "general",
    labels: dict[str, str] | None = None,
    taints: Any = (),
    **spec: Any,
) -> NodePool:
    document = copy.deepcopy(BASE)
    document["metadata"]["name"] = name
    document["spec"] |= spec
    template = document["spec"]["template"]
    template["spec"] |= {"requirements": list(requirements), "taints": list(taints)}
    template["metadata"] = {"labels": labels or {}}
    return msgspec.convert(document, NodePool)


def budgets(*entries: dict[str, Any], after: str = "0s", policy: str = "WhenEmptyOrUnderutilized") -> NodePool:
    return pool(disruption={"consolidateAfter": after, "consolidationPolicy": policy, "budgets": list(entries)})


def window(schedule: str, duration: str, nodes: str = "0", **more: Any) -> dict[str, Any]:
    return {"nodes": nodes, "schedule": schedule, "duration": duration, **more}


ARCH, OS, CAPACITY = names.ARCH_LABEL, names.OS_LABEL, names.CAPACITY_TYPE_LABEL
SILENT = {
    "the least": pool(),
    "usual requirements": pool(
        need(ARCH, "In", "amd64"), need(OS, "In", "linux"), need(CAPACITY, "In", "spot", "on-demand")
    ),
    "an architecture that is left out": pool(need(ARCH, "NotIn", "arm64")),
    "a label of one's own": pool(need("example.com/team", "In", "a")),
    "a label of the provider that is kept off": pool(need("karpenter.k8s.aws/unknown", "DoesNotExist")),
    "minValues that can be met": pool(need(CAPACITY, "In", "spot", "on-demand", minValues=2)),
    "minValues of what is not known here": pool(need(labels.FAMILY, "Exists", minValues=5)),
    "limits of one node": pool(need(labels.CPU, "Gt", "3"), limits={"cpu": 4, "memory": "8Gi", "nodes": "1"}),
    "limits in the size of a type": pool(
        need(names.INSTANCE_TYPE_LABEL, "In", "m5.xlarge", "m5.24xlarge"), limits={"cpu": "4"}
    ),
    "a type whose name does not tell": pool(
        need(names.INSTANCE_TYPE_LABEL, "In", "hpc7a.48xlarge"), limits={"cpu": "96"}
    ),
    "the usual budget": budgets({"nodes": "10%"}),
    "no disruption in office hours": budgets({"nodes": "10%"}, window("0 9 * * mon-fri", "8h")),
    "a gap of a minute a day": budgets({"nodes": "10%"}, window("0 0 * * *", "23h59m")),
    "a gap of a day a year": budgets({"nodes": "10%"}, window("0 0 * 1-11 *", "24h"), window("0 0 1-30 12 *", "24h")),
    "a gap of a minute a week": budgets(
        {"nodes": "10%"}, window("0 0 * * mon-sat", "24h"), window("0 0 * * sun", "23h59m")
    ),
    "windows that allow some": budgets(window("0 0 * * *", "24h", nodes="1")),
    "consolidation is off, and so is the budget": budgets(
        {"nodes": "0", "reasons": ["Underutilized", "Empty"]}, {"nodes": "1", "reasons": ["Drifted"]}, after="Never"
    ),
    "only empty nodes go, and the budget is about others": budgets(
        {"nodes": "0", "reasons": ["Underutilized"]},
        {"nodes": "9%", "reasons": ["Empty", "Drifted"]},
        policy="WhenEmpty",
    ),
}


@pytest.mark.parametrize("one", SILENT.values(), ids=SILENT)
def test_nothing_is_said_of(one: NodePool) -> None:
    assert pool_advice(one, KNOWN) == []


R, B = "spec.template.spec.requirements", "spec.disruption.budgets"
SAID = {
    "an architecture of other words": (
        pool(need(ARCH, "In", "x86_64")),
        R,
        "no pod can use this NodePool: kubernetes.io/arch In [x86_64], but nodes have amd64 or arm64; did you mean amd64?",
    ),
    "two words of others, one about another label": (
        pool(need(ARCH, "In", "ON_DEMAND", "aarch64")),
        R,
        "but nodes have amd64 or arm64; did you mean arm64?",
    ),
    "an operating system with a typo": (pool(need(OS, "In", "linx")), R, "did you mean linux?"),
    "every architecture is excluded": (pool(need(ARCH, "NotIn", "amd64", "arm64")), R, "no pod can use this NodePool"),
    "requirements that contradict each other": (
        pool(need("a", "In", "x"), need("a", "NotIn", "x")),
        R,
        "no pod can use this NodePool: its requirements for a contradict each other",
    ),
    "a label that contradicts a requirement": (
        pool(need("team", "In", "x"), labels={"team": "y"}),
        R,
        "its requirements and labels for team contradict each other",
    ),
    "bounds without a number between": (
        pool(need(labels.CPU, "Gt", "4"), need(labels.CPU, "Lt", "5")),
        R,
        "contradict",
    ),
    "a label that no type has": (
        pool(need("karpenter.k8s.aws/instance-categry", "In", "c")),
        f"{R}[0].key",
        "no known instance type has the label karpenter.k8s.aws/instance-categry; did you mean karpenter.k8s.aws/instance-category?",
    ),
    "minValues over what is left": (
        pool(need("a", "In", "x", "y", minValues=2), need("a", "NotIn", "y")),
        f"{R}[0].minValues",
        "requires 2 values of a, but the requirements allow only 1 (x)",
    ),
    "minValues over all that there are": (
        pool(need(CAPACITY, "Exists", minValues=4)),
        f"{R}[0].minValues",
        "allow only 3",
    ),
    "a limit of nothing": (
        pool(limits={"cpu": "0"}),
        "spec.limits.cpu",
        "no pod can use this NodePool: the limit of 0 is smaller",
    ),
    "a limit under the smallest node": (
        pool(need(labels.CPU, "Gt", "15"), limits={"cpu": "8"}),
        "spec.limits.cpu",
        "the limit of 8 is smaller than its smallest node (16 CPU)",
    ),
    "a limit under a list of sizes": (
        pool(need(labels.CPU, "In", "32", "8"), limits={"cpu": "4"}),
        "spec.limits.cpu",
        "(8 CPU)",
    ),
    "a limit under a type": (
        pool(need(names.INSTANCE_TYPE_LABEL, "In", "m5.4xlarge"), limits={"cpu": "8"}),
        "spec.limits.cpu",
        "(16 CPU)",
    ),
    "a limit of memory": (
        pool(need(labels.MEMORY, "Gte", "8192"), limits={"memory": "4Gi"}),
        "spec.limits.memory",
        "(8192Mi)",
    ),
    "a limit of memory that lacks its unit": (pool(limits={"memory": "1000"}), "spec.limits.memory", "(128Mi)"),
    "a limit of nodes": (pool(limits={"nodes": "0"}), "spec.limits.nodes", "(1 node)"),
    "no budget for a reason": (
        budgets({"nodes": "20%", "reasons": ["Empty", "Underutilized"]}),
        B,
        "no budget applies to Drifted at any time: all nodes of the NodePool may be disrupted at once then",
    ),
    "no budget for some hours of the week": (
        budgets({"nodes": "35%", "schedule": "0 1 * * mon", "duration": "4h"}, {"nodes": "35%", "reasons": ["Empty"]}),
        B,
        "no budget applies to Underutilized and Drifted at some times, such as Saturday, 00:00 UTC",
    ),
    "no budget on a day of the year": (
        budgets(window("0 0 * 1-11 *", "24h", "1"), window("0 0 1-30 12 *", "24h", "1")),
        B,
        "no budget applies to Underutilized and Empty and Drifted at some times, such as December 31, 00:00 UTC",
    ),
    "a window without time": (budgets({"nodes": "1"}, window("@daily", "0h")), f"{B}[1].duration", "never active"),
    "no reason at all": (budgets({"nodes": "1"}, {"nodes": "0", "reasons": []}), f"{B}[1].reasons", "has no effect"),
    "budgets of 0 and consolidation": (
        budgets({"nodes": "0"}),
        B,
        "consolidation is enabled (consolidateAfter 0s), but the budgets allow 0 nodes at all times for Underutilized and Empty",
    ),
    "a budget of 0 percent": (budgets({"nodes": "0%"}), B, "consolidation is enabled"),
    "windows that never close": (budgets({"nodes": "10%"}, window("0 0 * * *", "24h")), B, "consolidation is enabled"),
    "a window that opens every minute": (budgets(window("* * * * *", "1h")), B, "consolidation is enabled"),
    "a month after the other": (
        budgets(window("0 0 1 */2 *", "1488h"), window("0 0 1 2-12/2 *", "1488h")),
        B,
        "consolidation is enabled",
    ),
    "two windows that never close together": (
        budgets(window("0 0 * * *", "12h"), window("0 11 * * *", "13h")),
        B,
        "consolidation is enabled",
    ),
    "empty nodes that may not go": (
        budgets({"nodes": "0", "reasons": ["Empty"]}, policy="WhenEmpty"),
        B,
        "allow 0 nodes at all times for Empty;",
    ),
    "drift that never ends": (
        budgets({"nodes": "0", "reasons": ["Drifted"]}, after="Never"),
        B,
        "for Drifted: nodes are never replaced",
    ),
    "repair that never begins": (
        budgets({"nodes": "0", "reasons": ["Unhealthy"]}, {"nodes": "1"}),
        B,
        "for Unhealthy: node repair (feature gate NodeRepair) never replaces a broken node",
    ),
}


@pytest.mark.parametrize(("one", "path", "text"), SAID.values(), ids=SAID)
def test_what_is_said_of(one: NodePool, path: str, text: str) -> None:
    found = pool_advice(one, KNOWN)
    assert [violation.path for violation in found if text in violation.message] == [path]


TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}
SOFT = {"key": "a", "value": "b", "effect": "PreferNoSchedule"}
AMD, LINUX = need(ARCH, "In", "amd64"), need(OS, "In", "linux")
SHADOWS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the same": ({}, {}, True),
    "wider requirements": ({"requirements": [LINUX]}, {"requirements": [LINUX, AMD]}, True),
    "a wider bound": (
        {"requirements": [need(labels.CPU, "Lt", "33")]},
        {"requirements": [need(labels.CPU, "Lt", "17")]},
        True,
    ),
    "narrower requirements": ({"requirements": [AMD]}, {}, False),
    "other requirements": (
        {"requirements": [need(CAPACITY, "In", "spot")]},
        {"requirements": [need(CAPACITY, "In", "on-demand")]},
        False,
    ),
    "a limit: the lower one is what comes next": ({"limits": {"cpu": "100"}}, {}, False),
    "a taint": ({"taints": [TAINT]}, {}, False),
    "the same taint": ({"taints": [TAINT]}, {"taints": [TAINT]}, True),
    "a taint that keeps nobody off": ({"taints": [SOFT]}, {}, True),
    "the lower one has a taint": ({}, {"taints": [TAINT]}, True),
    "the lower one has a label that pods may select": ({}, {"labels": {"team": "a"}}, False),
    "equal weight": ({"weight": 1}, {}, False),
}


@pytest.mark.parametrize(("high", "low", "want"), SHADOWS.values(), ids=SHADOWS)
def test_a_pool_is_shadowed_by_one_of_higher_weight(high: dict[str, Any], low: dict[str, Any], want: bool) -> None:
    def made(name: str, spec: dict[str, Any], weight: int) -> NodePool:
        return pool(
            *spec.get("requirements", ()),
            name=name,
            **{"weight": weight} | {k: v for k, v in spec.items() if k != "requirements"},
        )

    found = fleet_advice([made("low", low, 1), made("high", high, 50)], KNOWN)
    assert list(found) == (["low"] if want else [])
    for violation in found.get("low", ()):
        assert (violation.path, "NodePool high (weight 50)" in violation.message) == ("spec.weight", True)


def test_a_pool_of_another_class_is_not_shadowed() -> None:
    other = msgspec.structs.replace
    low = pool(name="low", weight=1)
    reference = other(low.node_class_ref, name="other")
    spec = other(
        low.spec, template=other(low.spec.template, spec=other(low.spec.template.spec, node_class_ref=reference))
    )
    assert fleet_advice([other(low, spec=spec), pool(name="high", weight=50)], KNOWN) == {}


@pytest.mark.parametrize(("value", "warned"), [("memory", True), ("2", True), ("disabled", False), ("", False)])
def test_gpus_that_would_be_shared(value: str, warned: bool) -> None:
    key = "karpenter.k8s.aws/nvidia-consumable-capacity"
    found = class_advice(msgspec.convert({"metadata": {"annotations": {key: value}}, "spec": {}}, EC2NodeClass))
    assert [one.path for one in found] == [f"metadata.annotations[{key}]"] * warned


@pytest.mark.parametrize(
    ("alias", "want"),
    [("al2023@latest", ["spec.amiSelectorTerms[0].alias"]), ("al2023@v20250715", []), ("windows2022@latest", [])],
)
def test_the_latest_image(alias: str, want: list[str]) -> None:
    found = class_advice(msgspec.convert({"spec": {"amiSelectorTerms": [{"alias": alias}]}}, EC2NodeClass))
    assert [one.path for one in found] == want


@pytest.mark.parametrize(
    ("spec", "count"), [({}, 1), ({"price": "1"}, 0), ({"capacity": {"a/b": 1}}, 0), ({"priceAdjustment": "-1%"}, 0)]
)
def test_an_overlay_that_changes_nothing(spec: dict[str, Any], count: int) -> None:
    assert len(overlay_advice(msgspec.convert({"spec": {"requirements": [], **spec}}, NodeOverlay))) == count


def test_terms_that_select_by_nothing() -> None:
    spec = {
        "amiSelectorTerms": [{"owner": "self", "tags": {}}, {"alias": "al2023@v20250715"}],
        "subnetSelectorTerms": [{"tags": {}}, {"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}, {"name": ""}],
        "capacityReservationSelectorTerms": [{"ownerID": "1", "tags": {}}, {"instanceMatchCriteria": "open"}],
    }
    found = class_advice(msgspec.convert({"spec": spec}, EC2NodeClass))
    assert [one.path for one in found] == [
        "spec.amiSelectorTerms[0]",
        "spec.subnetSelectorTerms[0]",
        "spec.securityGroupSelectorTerms[1]",
        "spec.capacityReservationSelectorTerms[0]",
    ]
    assert all("of this term" in one.message and "is empty" in one.message for one in found)
