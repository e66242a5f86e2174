"""What the solver decides, one sentence a row; every row is also judged by the independent checker."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.shapes import shape_of
from provisioner.scheduling.problem import SchedulingPool
from provisioner.scheduling.result import Result
from provisioner.values.taints import Taint, Toleration
from tests.support import checker
from tests.support.problems import (
    ARM,
    FAT,
    LARGE,
    MEDIUM,
    SMALL,
    TYPES,
    instance_type,
    node,
    pod,
    pods,
    pool,
    problem,
    shape,
    term,
)
from tests.support.question import Problem, solve

ZONE, ARCH, TYPE, CAPACITY = names.ZONE_LABEL, names.ARCH_LABEL, names.INSTANCE_TYPE_LABEL, names.CAPACITY_TYPE_LABEL
CPU_LABEL, GPU_LABEL, POOL = "provider.example/cpu", "provider.example/gpu", names.NODEPOOL_LABEL
DEDICATED = Taint(key="dedicated", effect="NoSchedule", value="batch")
EVICTING = Taint(key="evicting", effect="NoExecute")
PREFERRED = Taint(key="rather-not", effect="PreferNoSchedule")
TOLERATES = Toleration(key="dedicated", operator="Equal", value="batch", effect="NoSchedule")
ALL = Toleration(operator="Exists")


@dataclass(frozen=True)
class Row:
    """A problem, and what becomes of it: one line for each claim, each existing node in use, each pod without a place."""

    problem: Problem
    want: tuple[str, ...]


def row(asked: Problem, *want: str) -> Row:
    return Row(asked, want)


def lines(result: Result) -> Iterable[str]:
    for claim in result.claims:
        yield f"{claim.pool}/{claim.planned_type}: {' '.join(pod.name for pod in claim.pods)}"
    for name, placed in result.existing.items():
        yield f"{name}: {' '.join(pod.name for pod in placed)}"
    for one in result.unplaced:
        yield f"{one.pod.name}: {one}"


def one(of: PodShape, name: str = "p") -> tuple[Pod, ...]:
    return (pod(name, of),)


def sized(**sizes: str) -> tuple[Pod, ...]:
    """Pods by name, each "cpu memory"."""
    return tuple(pod(name, shape(*size.split())) for name, size in sizes.items())


def host_port(number: int) -> PodShape:
    container = Container(name="main", ports=(ContainerPort(container_port=number, host_port=number),))
    return shape_of(PodSpec(containers=(container,)), namespace="default", labels={})


def mixed_types(of: SchedulingPool, chance: random.Random) -> SchedulingPool:
    return replace(of, instance_types=tuple(chance.sample(of.instance_types, len(of.instance_types))))


def anti(key: str = names.HOSTNAME_LABEL) -> Affinity:
    return Affinity(
        pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key=key, label_selector=LabelSelector()),))
    )


NO_LARGE = tuple(one for one in TYPES if one.name in {"small", "medium"})
DEAR_ZONE_B = instance_type("uneven", "2", "4Gi", zones=("a", "b"), unavailable=[("a", "spot")])
EMPTY_REQUIRED = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(NodeSelectorTerm(),))))
NO_TERMS = Affinity(node_affinity=NodeAffinity(required=NodeSelector()))
PREFERS_MARS = Affinity(
    node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(weight=1, preference=term((ZONE, "In", ["mars"]))),)),
    pod_anti_affinity=PodAffinity(
        preferred=(WeightedPodAffinityTerm(weight=1, pod_affinity_term=PodAffinityTerm(topology_key=ZONE)),)
    ),
)
TINY_PODS = instance_type("crowded", "8", "16Gi", max_pods=2)
WITH_SYSTEM = instance_type("honest", "4", "8Gi", overhead={"cpu": "500m"})
NO_DISK = instance_type(
    "diskless", "4", "8Gi", 0.1, more={"ephemeral-storage": "1Gi"}, overhead={"ephemeral-storage": "1100Mi"}
)

ROWS = {
    # --- size and price ---
    "one pod gets the cheapest type that fits": row(problem(sized(p="1 1Gi"), pool()), "default/small: p"),
    "a pod too large for the cheapest type gets the next": row(problem(sized(p="3 1Gi"), pool()), "default/arm: p"),
    "memory decides as well as cpu": row(problem(sized(p="1 20Gi"), pool()), "default/fat: p"),
    "pods share a node up to the largest type": row(problem(pods(8, shape("1", "1Gi"), "p"), pool(types=NO_LARGE)),
        "default/medium: p-00000 p-00001 p-00002 p-00003", "default/medium: p-00004 p-00005 p-00006 p-00007"),
    "the last node is as small as what is left for it": row(problem(pods(5, shape("1", "1Gi"), "p"), pool(types=NO_LARGE)),
        "default/medium: p-00000 p-00001 p-00002 p-00003", "default/small: p-00004"),
    "larger pods come first and small ones fill what they leave": row(
        problem(sized(a="1 1Gi", b="3 1Gi", c="1 1Gi", d="3 1Gi"), pool(types=NO_LARGE)),
        "default/medium: b a", "default/medium: d c"),
    "of equal cpu the larger memory comes first": row(
        problem(sized(a="1 1Gi", b="1 7Gi"), pool(types=(MEDIUM,))), "default/medium: b a"),
    "equal pods are placed by age": row(
        problem([pod("young", shape("3"), age=1), pod("old", shape("3"), age=9)], pool(types=NO_LARGE)),
        "default/medium: old", "default/medium: young"),
    "the system's own share is not for pods": row(
        problem(sized(p="4 1Gi"), pool(types=(WITH_SYSTEM,))),
        'p: NodePool "default": cpu 4 exceeds the 3500m that the largest matching instance type has for pods'),
    "a node whose system takes more of something than there is takes no pod, whatever it asks for": row(
        problem(sized(p="1 1Gi"), pool(types=(NO_DISK, *NO_LARGE))), "default/small: p"),
    "where all nodes are so it is said of what": row(
        problem(sized(p="1 1Gi"), pool(types=(NO_DISK,))),
        'p: NodePool "default": no matching instance type has any ephemeral-storage left for pods'),
    "the number of pods is a resource": row(
        problem(pods(3, shape("1m", "1Mi"), "p"), pool(types=(TINY_PODS,))),
        "default/crowded: p-00000 p-00001", "default/crowded: p-00002"),
    "an extended resource needs a type that has it": row(
        problem(one(shape(more={"example.com/gpu": "1"})), pool()), "default/gpu: p"),
    "an extended resource that nothing has is named": row(
        problem(one(shape(more={"example.com/tpu": "1"})), pool()),
        'p: NodePool "default": example.com/tpu 1 exceeds the 0 that the largest matching instance type has for pods'),
    "cpu written with M instead of m gets a hint": row(
        problem(one(shape(cpu="500M")), pool()),
        'p: NodePool "default": cpu 500M exceeds the 8 that the largest matching instance type has for pods (is "M" meant to be "m"?)'),
    "resources that exist only on different types are told together": row(
        problem(sized(p="8 20Gi"), pool(types=(FAT, LARGE))),
        'p: NodePool "default": no matching instance type has enough cpu and memory at once'),
    "a pod without requests still needs a node": row(problem(one(shape("0", "0")), pool()), "default/small: p"),
    "spot is planned where it is cheaper": row(
        problem(sized(p="1 1Gi"), pool("default", (CAPACITY, "In", ["on-demand", "spot"]), types=(SMALL,))), "default/small: p"),
    "an offering that cannot be had does not count": row(
        problem(one(shape(selector={ZONE: "a", CAPACITY: "spot"})), pool(types=(DEAR_ZONE_B,))),
        'p: NodePool "default": no available offering of 1 matching instance types in the requested zones and capacity types'),
    "no pods is no work": row(problem((), pool())),
    "without pools everything is unplaced": row(problem(sized(p="1 1Gi")), "p: no NodePool can launch nodes"),
    "a pool whose provider has no types says so": row(
        problem(sized(p="1 1Gi"), pool(types=())), 'p: NodePool "default": the provider offers no instance types'),
    "a pool that rules all its types out says so": row(
        problem(sized(p="1 1Gi"), pool("default", (ARCH, "In", ["riscv"]))),
        'p: NodePool "default": none of 6 instance types has kubernetes.io/arch In [riscv], which the NodePool requires'),
    "a pool whose requirements contradict each other says so": row(
        problem(sized(p="1 1Gi"), pool("default", (ARCH, "In", ["amd64"]), (ARCH, "In", ["arm64"]))),
        'p: NodePool "default": the requirements and labels of the NodePool allow no value for kubernetes.io/arch'),
    "a pool of which nothing is left to buy says so": row(
        problem(sized(p="1 1Gi"), pool(types=(instance_type("sold-out", "4", "8Gi", zones=("a",), unavailable=[("a", "on-demand"), ("a", "spot")]),))),
        'p: NodePool "default": none of 1 instance types meets the requirements of the NodePool with an available offering'),
    # --- selectors and affinity ---
    "a node selector narrows the types": row(problem(one(shape(selector={ARCH: "arm64"})), pool()), "default/arm: p"),
    "a legacy label means the stable one": row(
        problem(one(shape(selector={"beta.kubernetes.io/arch": "arm64"})), pool()), "default/arm: p"),
    "pods of different architectures do not share a node": row(
        problem([pod("a", shape("2", selector={ARCH: "amd64"})), pod("b", shape("1", selector={ARCH: "arm64"}))], pool()),
        "default/small: a", "default/arm: b"),
    "a pod that does not care joins one that does": row(
        problem([pod("a", shape("2", selector={ARCH: "arm64"})), pod("b", shape("1"))], pool()), "default/arm: a b"),
    "pods of different zones do not share a node": row(
        problem([pod("a", shape("2", selector={ZONE: "a"})), pod("b", shape("1", selector={ZONE: "b"}))], pool(types=(MEDIUM,))),
        "default/medium: a", "default/medium: b"),
    "a zone that no type has is refused": row(
        problem(one(shape(selector={ZONE: "mars"})), pool()),
        'p: NodePool "default": no instance type has topology.kubernetes.io/zone In [mars]'),
    "In chooses among types": row(
        problem(one(shape(terms=[term((TYPE, "In", ["large", "gpu"]))])), pool()), "default/large: p"),
    "NotIn rules types out": row(problem(one(shape(terms=[term((TYPE, "NotIn", ["small"]))])), pool()), "default/arm: p"),
    "Gt is a number": row(problem(one(shape(terms=[term((CPU_LABEL, "Gt", ["4"]))])), pool()), "default/large: p"),
    "Lt is a number": row(problem(one(shape(terms=[term((CPU_LABEL, "Lt", ["5"]), (TYPE, "NotIn", ["small"]))])), pool()), "default/arm: p"),
    "Exists asks for the label whatever its value": row(
        problem(one(shape(terms=[term((GPU_LABEL, "Exists", []))])), pool()), "default/gpu: p"),
    "DoesNotExist asks for its absence": row(
        problem(one(shape("8", terms=[term((GPU_LABEL, "DoesNotExist", []))])), pool()), "default/large: p"),
    "expressions of one term hold together": row(
        problem(one(shape(terms=[term((CPU_LABEL, "Gt", ["2"]), (CPU_LABEL, "Lt", ["8"]), (ARCH, "NotIn", ["arm64"]))])), pool()),
        "default/medium: p"),
    "keys that can be had but not on one type are told together": row(
        problem(one(shape(selector={ARCH: "arm64", TYPE: "large"})), pool()),
        'p: NodePool "default": no instance type has node.kubernetes.io/instance-type In [large] in combination with the other requirements of the pod'),
    "terms are tried in their order on new nodes": row(
        problem(one(shape(terms=[term((TYPE, "In", ["large"])), term((TYPE, "In", ["small"]))])), pool()), "default/large: p"),
    "a later term is taken when the first cannot be met": row(
        problem(one(shape(terms=[term((ZONE, "In", ["mars"])), term((TYPE, "In", ["medium"]))])), pool()), "default/medium: p"),
    "any term will do on an existing node": row(
        problem(one(shape(terms=[term((TYPE, "In", ["large"])), term((ZONE, "In", ["b"]))])), pool(),
                bins=[node("n1", labels={ZONE: "b"})]), "n1: p"),
    "selector and affinity hold together": row(
        problem(one(shape(selector={ZONE: "a"}, terms=[term((ZONE, "In", ["b"]))])), pool()),
        'p: NodePool "default": the pod\'s selector and affinity contradict each other on topology.kubernetes.io/zone'),
    "an empty term matches nothing": row(
        problem(one(shape(affinity=EMPTY_REQUIRED)), pool(), bins=[node("n1")]),
        "p: 0/1 existing nodes: 1 didn't match the pod's node affinity/selector; "
        'NodePool "default": required node affinity has no term that can match a node'),
    "an affinity without terms matches nothing": row(
        problem(one(shape(affinity=NO_TERMS)), pool()),
        'p: NodePool "default": required node affinity has no term that can match a node'),
    "an empty term beside a good one is passed over": row(
        problem(one(shape(terms=[term(), term((TYPE, "In", ["medium"]))])), pool()), "default/medium: p"),
    "matchFields finds a node of now by name": row(
        problem(one(shape(terms=[term(fields=[("metadata.name", "In", ["n2"])])])), pool(), bins=[node("n1"), node("n2")]), "n2: p"),
    "matchFields with a name refuses new nodes": row(
        problem(one(shape("8", terms=[term(fields=[("metadata.name", "In", ["n1"])])])), pool(), bins=[node("n1")]),
        "p: 0/1 existing nodes: 1 insufficient cpu; "
        'NodePool "default": required node affinity names nodes by metadata.name: n1'),
    "matchFields with NotIn allows new nodes": row(
        problem(one(shape(terms=[term(fields=[("metadata.name", "NotIn", ["n1"])])])), pool(), bins=[node("n1")]),
        "default/small: p"),
    "an unknown field of matchFields leaves only that pod out": row(
        problem([pod("bad", shape(terms=[term(fields=[("metadata.uid", "In", ["x"])])])), pod("good")], pool()),
        "default/small: good",
        "bad: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: "
        "'metadata.uid' is not supported, only metadata.name"),
    "an unknown operator leaves only that pod out": row(
        problem([pod("bad", shape(terms=[term((ZONE, "Like", ["a"]))])), pod("good")], pool()),
        "default/small: good",
        "bad: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: "
        "'Like' is unknown; use one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte"),
    "preferences never keep a pod from a place": row(problem(one(shape(affinity=PREFERS_MARS)), pool()), "default/small: p"),
    # --- custom labels ---
    "a custom label must be the pool's": row(
        problem(one(shape(selector={"team": "x"})), pool()), 'p: NodePool "default": the NodePool does not set the label "team"'),
    "a custom label of the pool matches": row(
        problem(one(shape(selector={"team": "x"})), pool(labels={"team": "x"})), "default/small: p"),
    "a custom label of the pool with another value does not": row(
        problem(one(shape(selector={"team": "y"})), pool(labels={"team": "x"})),
        'p: NodePool "default": team In [x] conflicts with team In [y]'),
    "a misspelt label gets a hint": row(
        problem(one(shape(selector={"karpenter.sh/capacity-typ": "spot"})), pool()),
        'p: NodePool "default": the NodePool does not set the label "karpenter.sh/capacity-typ" (did you mean "karpenter.sh/capacity-type"?)'),
    "NotIn of a label that nobody defines is met": row(
        problem(one(shape(terms=[term(("team", "NotIn", ["x"]))])), pool()), "default/small: p"),
    "pods that choose different values of a pool's label do not share a node": row(
        problem([pod("x", shape("1", selector={"team": "x"})), pod("y", shape("2", selector={"team": "y"}))],
                pool("default", ("team", "In", ["x", "y"]), types=(MEDIUM,))),
        "default/medium: y", "default/medium: x"),
    "the hostname of a node to come is unknown": row(
        problem(one(shape(selector={names.HOSTNAME_LABEL: "n1"})), pool()),
        'p: NodePool "default": required node affinity names nodes by kubernetes.io/hostname: n1'),
    "a node to come has a hostname, whatever it will be": row(
        problem(one(shape(terms=[term((names.HOSTNAME_LABEL, "Exists", []))])), pool(types=(SMALL,))), "default/small: p"),
    "a node on its way has a hostname too": row(
        problem(one(shape(terms=[term((names.HOSTNAME_LABEL, "Exists", []))])), bins=[replace(node("n1"), labels={names.OS_LABEL: "linux"}, node_name="")]), "n1: p"),
    "a node on its way is never without a hostname": row(
        problem(one(shape(terms=[term((names.HOSTNAME_LABEL, "DoesNotExist", []))])), bins=[replace(node("n1"), labels={names.OS_LABEL: "linux"}, node_name="")]),
        "p: 0/1 existing nodes: 1 didn't match the pod's node affinity/selector; no NodePool can launch nodes"),
    "a node to come is not one that is named as unwanted": row(
        problem(one(shape(terms=[term((names.HOSTNAME_LABEL, "NotIn", ["n1"]))])), pool(types=(SMALL,)), bins=[node("n1")]), "default/small: p"),
    "a node to come is never without a hostname": row(
        problem(one(shape(terms=[term((names.HOSTNAME_LABEL, "DoesNotExist", []))])), pool(types=(SMALL,))),
        'p: NodePool "default": kubernetes.io/hostname In [not known yet] conflicts with kubernetes.io/hostname DoesNotExist'),
    "a daemon that avoids one hostname runs on nodes to come": row(
        problem(one(shape("2")), pool(types=(SMALL, MEDIUM)), daemons=[shape("100m", "1Mi", terms=[term((names.HOSTNAME_LABEL, "NotIn", ["n1"]))])]),
        "default/medium: p"),
    "a well-known label that no type has is not promised": row(
        problem(one(shape(selector={names.REGION_LABEL: "moon"})), pool()),
        'p: NodePool "default": no instance type of the NodePool has the label topology.kubernetes.io/region'),
    "a label of types that no provider vouches for is not promised": row(
        problem(one(shape(selector={"private": "x"})), pool(types=(instance_type("odd", "2", "4Gi", labels={"private": "x"}),))),
        'p: NodePool "default": the NodePool does not set the label "private"'),
    "a well-known label that the pool only excludes values of is not promised": row(
        problem(one(shape(terms=[term((names.REGION_LABEL, "Exists", []))])), pool("default", (names.REGION_LABEL, "NotIn", ["moon"]))),
        'p: NodePool "default": no instance type of the NodePool has the label topology.kubernetes.io/region'),
    "a well-known label that the pool fixes and no type has is given to its nodes": row(
        problem(one(shape(selector={names.REGION_LABEL: "moon"})), pool("default", (names.REGION_LABEL, "In", ["moon"]))), "default/small: p"),
    "a well-known label that the pool demands without fixing it rules out types without it": row(
        problem(sized(p="1 1Gi"), pool("default", (names.REGION_LABEL, "In", ["moon", "mars"]))),
        'p: NodePool "default": none of 6 instance types has topology.kubernetes.io/region In [mars moon], which the NodePool requires'),
    "a pod may ask for a pool by name": row(
        problem(one(shape(selector={POOL: "other"})), pool(weight=10), pool("other")), "other/small: p"),
    "pods may ask for ready nodes": row(problem(one(shape(selector={names.INITIALIZED_LABEL: "true"})), pool()), "default/small: p"),
    # --- taints ---
    "a taint of the template keeps pods off": row(
        problem(sized(p="1 1Gi"), pool(taints=[DEDICATED])),
        'p: NodePool "default": taint dedicated=batch:NoSchedule is not tolerated'),
    "a toleration opens a tainted pool": row(
        problem(one(shape(tolerations=[TOLERATES])), pool(taints=[DEDICATED])), "default/small: p"),
    "a toleration of everything opens every pool": row(
        problem(one(shape(tolerations=[ALL])), pool(taints=[DEDICATED, EVICTING])), "default/small: p"),
    "NoExecute keeps pods off too": row(
        problem(one(shape(tolerations=[TOLERATES])), pool(taints=[DEDICATED, EVICTING])),
        'p: NodePool "default": taint evicting:NoExecute is not tolerated'),
    "PreferNoSchedule keeps nobody off": row(problem(sized(p="1 1Gi"), pool(taints=[PREFERRED])), "default/small: p"),
    "pods go to the pool whose taint they tolerate": row(
        problem([pod("a", shape("2")), pod("b", shape("1", tolerations=[TOLERATES]))], pool("tainted", taints=[DEDICATED], weight=9), pool(types=(SMALL,))),
        "default/small: a", "tainted/small: b"),
    "a taint on an existing node keeps pods off it": row(
        problem(sized(p="1 1Gi"), pool(), bins=[node("n1", taints=[DEDICATED])]), "default/small: p"),
    # --- pools ---
    "the heavier pool is first": row(
        problem(sized(p="1 1Gi"), pool("a", weight=1), pool("b", weight=50), pool("c")), "b/small: p"),
    "of equal weight the later name is first, as with Karpenter": row(
        problem(sized(p="1 1Gi"), pool("a"), pool("b")), "b/small: p"),
    "a pool that cannot is passed over for a lighter one": row(
        problem(sized(p="8 1Gi"), pool("heavy", types=(SMALL,), weight=9), pool("light")), "light/large: p"),
    "an open claim of a lighter pool comes before a new one of a heavier": row(
        problem([pod("a", shape("4", selector={POOL: "light"})), pod("b", shape("1"))], pool("heavy", weight=9), pool("light", types=(LARGE,))),
        "light/large: a b"),
    "every pool gives its own reason": row(
        problem(sized(p="9 1Gi"), pool("a", taints=[DEDICATED]), pool("b", types=NO_LARGE)),
        'p: NodePool "b": cpu 9 exceeds the 4 that the largest matching instance type has for pods; '
        'NodePool "a": taint dedicated=batch:NoSchedule is not tolerated'),
    "pools that the pod is not meant for are told the later the more of their taints and labels are others": row(
        problem(one(shape(selector={ARCH: "arm64", "team": "x"}, tolerations=[TOLERATES])),
                pool("own", (ARCH, "In", ["amd64"]), labels={"team": "x"}, taints=[DEDICATED]),
                pool("other", (ARCH, "In", ["amd64"]), labels={"team": "y"}, weight=1),
                pool("third", (ARCH, "In", ["amd64"]), labels={"team": "y"}, weight=2, taints=[EVICTING]),
                pool("tainted", (ARCH, "In", ["arm64"]), labels={"team": "x"}, weight=-1, taints=[EVICTING])),
        'p: NodePool "own": kubernetes.io/arch In [amd64] conflicts with kubernetes.io/arch In [arm64]; '
        'NodePool "tainted": taint evicting:NoExecute is not tolerated; '
        'NodePool "other": kubernetes.io/arch In [amd64] conflicts with kubernetes.io/arch In [arm64]; '
        'NodePool "third": taint evicting:NoExecute is not tolerated'),
    # --- limits ---
    "a limit stops new nodes": row(
        problem(pods(3, shape("2", "1Gi"), "p"), pool(types=(SMALL,), limits={"cpu": "4"})),
        "default/small: p-00000", "default/small: p-00001",
        'p-00002: NodePool "default": limit on cpu: 0 left, the smallest instance type that fits needs 2'),
    "a limit strikes the types that are too large for it": row(
        problem(pods(4, shape("1", "1Gi"), "p"), pool(types=(SMALL, MEDIUM, LARGE), limits={"cpu": "6"})),
        "default/medium: p-00000 p-00001 p-00002 p-00003"),
    "what is left of a limit is used by a smaller node": row(
        problem(pods(6, shape("1", "1Gi"), "p"), pool(types=(SMALL, MEDIUM, LARGE), limits={"cpu": "6"})),
        "default/medium: p-00000 p-00001 p-00002 p-00003", "default/small: p-00004 p-00005"),
    "a limit on nodes counts nodes": row(
        problem(pods(3, shape("8", "1Gi"), "p"), pool(types=(LARGE,), limits={"nodes": "2"})),
        "default/large: p-00000", "default/large: p-00001",
        'p-00002: NodePool "default": limit on nodes: 0 left, the smallest instance type that fits needs 1'),
    "a limit that is used up falls through to the next pool": row(
        problem(pods(2, shape("8", "1Gi"), "p"), pool("a", types=(LARGE,), limits={"cpu": "8"}, weight=9), pool("b", types=(LARGE,))),
        "a/large: p-00000", "b/large: p-00001"),
    "a limit that is exceeded already leaves nothing": row(
        problem(sized(p="1 1Gi"), replace(pool(limits={"cpu": "0"}), remaining=pool(limits={"cpu": "-3"}).remaining)),
        'p: NodePool "default": limit on cpu: -3 left, the smallest instance type that fits needs 2'),
    "a limit on a resource that no type has is harmless": row(
        problem(sized(p="1 1Gi"), pool(types=(SMALL,), limits={"example.com/gpu": "0"})), "default/small: p"),
    "a limit is charged by the planned type, not by the largest possible": row(
        problem([pod("a", shape("2", selector={ZONE: "a"})), pod("b", shape("1", selector={ZONE: "b"}))],
                pool(types=(SMALL, MEDIUM), limits={"cpu": "4"})),
        "default/small: a", "default/small: b"),
    "two limits that only together bind are told together": row(
        problem(sized(p="1 1Gi"), pool(types=(instance_type("x", "2", "64Gi"), instance_type("y", "16", "4Gi")), limits={"cpu": "8", "memory": "8Gi"})),
        'p: NodePool "default": limits on cpu and memory exclude every instance type that fits'),
    # --- minValues ---
    "minValues keeps enough types on a claim": row(
        problem(pods(5, shape("1", "1Gi"), "p"), pool(types=(SMALL, MEDIUM, LARGE), min_values={TYPE: 2})),
        "default/medium: p-00000 p-00001 p-00002 p-00003", "default/small: p-00004"),
    "minValues that cannot be met leaves the pod out": row(
        problem(sized(p="5 1Gi"), pool(types=(SMALL, MEDIUM, LARGE), min_values={TYPE: 2})),
        'p: NodePool "default": minValues: 1 values of node.kubernetes.io/instance-type remain, 2 are required'),
    # --- existing nodes ---
    "an existing node comes before a new one": row(problem(sized(p="1 1Gi"), pool(), bins=[node("n1")]), "n1: p"),
    "existing nodes are filled in their order": row(
        problem(pods(6, shape("1", "1Gi"), "p"), pool(types=(SMALL,)), bins=[node("n2"), node("n1", "1")]),
        "default/small: p-00005", "n2: p-00000 p-00001 p-00002 p-00003", "n1: p-00004"),
    "a label that a node of now lacks is not promised": row(
        problem(one(shape(selector={ZONE: "a"})), bins=[node("n1")]),
        "p: 0/1 existing nodes: 1 didn't match the pod's node affinity/selector; no NodePool can launch nodes"),
    "NotIn is met by a node of now without the label": row(
        problem(one(shape(terms=[term((ZONE, "NotIn", ["a"]))])), bins=[node("n1")]), "n1: p"),
    "Exists and NotIn of one key need the label to be there": row(
        problem(one(shape(terms=[term((ZONE, "Exists", []), (ZONE, "NotIn", ["a"]))])), bins=[node("n1"), node("n2", labels={ZONE: "b"})]),
        "n2: p"),
    "a node of now with only the legacy label matches the stable one": row(
        problem(one(shape(selector={ARCH: "arm64"})), bins=[node("n1", labels={"beta.kubernetes.io/arch": "arm64"})]), "n1: p"),
    "the reasons of existing nodes are counted": row(
        problem(one(shape("3", selector={ZONE: "a"})),
                bins=[node("n1", taints=[DEDICATED]), node("n2", "2", labels={ZONE: "a"}), node("n3", labels={ZONE: "b"}),
                      node("n4", "1", "1Mi", labels={ZONE: "a"})]),
        "p: 0/4 existing nodes: 1 had untolerated taint dedicated=batch:NoSchedule, "
        "1 didn't match the pod's node affinity/selector, 2 insufficient cpu, 1 insufficient memory; no NodePool can launch nodes"),
    "a node that lacks cpu already takes a pod that needs none": row(
        problem(one(shape("0", "1Gi")), bins=[node("n1", "-1")]), "n1: p"),
    "a node that lacks cpu already takes no pod that needs some": row(
        problem(one(shape("1m", "0")), bins=[node("n1", "-1")]), "p: 0/1 existing nodes: 1 insufficient cpu; no NodePool can launch nodes"),
    "an existing node without room for one more pod takes none": row(
        problem(one(shape("0", "0")), bins=[node("n1", max_pods=0)]), "p: 0/1 existing nodes: 1 insufficient pods; no NodePool can launch nodes"),
    # --- daemons ---
    "daemons take their share of a new node": row(
        problem(sized(p="2 1Gi"), pool(types=NO_LARGE), daemons=[shape("100m", "0")]), "default/medium: p"),
    "a daemon that does not tolerate the pool's taint takes nothing": row(
        problem(one(shape("2", tolerations=[ALL])), pool(types=NO_LARGE, taints=[DEDICATED]), daemons=[shape("100m", "0")]), "default/small: p"),
    "a daemon for one architecture takes nothing of the others": row(
        problem(sized(p="4 1Gi"), pool(types=(MEDIUM, ARM)), daemons=[shape("1", "0", selector={ARCH: "arm64"})]), "default/medium: p"),
    "a daemon for a label of the pool counts": row(
        problem(sized(p="2 1Gi"), pool(types=NO_LARGE, labels={"team": "x"}), daemons=[shape("100m", "0", selector={"team": "x"})]), "default/medium: p"),
    "a daemon counts when any of its terms does": row(
        problem(sized(p="2 1Gi"), pool(types=NO_LARGE),
                daemons=[shape("100m", "0", terms=[term((ARCH, "In", ["arm64"])), term((ARCH, "In", ["amd64"]))])]), "default/medium: p"),
    "a type that its daemons alone overflow is out": row(
        problem(sized(p="1 1Gi"), pool(types=NO_LARGE), daemons=[shape("3", "0")]), "default/medium: p"),
    "daemons that overflow every type are seen in the reason": row(
        problem(sized(p="1 1Gi"), pool(types=NO_LARGE), daemons=[shape("5", "0")]),
        'p: NodePool "default": the pods of DaemonSets alone need more than any of the 2 matching instance types has for pods'),
    "daemons do not count again on existing nodes": row(
        problem(sized(p="4 1Gi"), bins=[node("n1")], daemons=[shape("1", "0")]), "n1: p"),
    "a daemon that cannot be read takes nothing": row(
        problem(sized(p="2 1Gi"), pool(types=NO_LARGE), daemons=[shape("one", "0")]), "default/small: p"),
    # --- priority ---
    "the higher priority gets the room": row(
        problem([pod("low", shape("4")), pod("high", shape("1", priority=7))], bins=[node("n1")]),
        "n1: high",
        "low: 0/1 existing nodes: 1 insufficient cpu; no NodePool can launch nodes"),
    "the higher priority gets what is left of a limit": row(
        problem([pod("low", shape("2")), pod("high", shape("1", priority=7))], pool(types=(SMALL,), limits={"nodes": "1"})),
        "default/small: high",
        'low: NodePool "default": limit on nodes: 0 left, the smallest instance type that fits needs 1'),
    # --- left out ---
    "a gated pod waits": row(problem([pod("p", gated=True)], pool()), "p: the pod has scheduling gates"),
    "a pod that cannot be read is left out alone": row(
        problem([pod("bad", shape(cpu="much")), pod("good")], pool()),
        "default/small: good", "bad: {error}"),
    "a soft spread is a preference": row(
        problem(one(shape(topology_spread_constraints=(TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),))), pool()),
        "default/small: p"),
}  # fmt: skip


def test_enough_rows() -> None:
    assert len(ROWS) >= 100


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    result = solve(case.problem)
    errors = {one.name: one.shape.error for one in case.problem.pods if one.shape.error}
    want = [text.replace("{error}", errors.get(text.partition(":")[0], "")) for text in case.want]
    assert list(lines(result)) == want
    assert checker.violations(case.problem, result) == []


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row_in_another_order(case: Row) -> None:
    asked = case.problem
    shuffled = random.Random(len(asked.pods))
    mixed = replace(
        asked,
        pods=tuple(shuffled.sample(asked.pods, len(asked.pods))),
        pools=tuple(shuffled.sample([mixed_types(one, shuffled) for one in asked.pools], len(asked.pools))),
        daemons=tuple(shuffled.sample(asked.daemons, len(asked.daemons))),
    )
    assert list(lines(solve(mixed))) == list(lines(solve(asked)))
