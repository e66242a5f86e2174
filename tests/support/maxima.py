"""Pods as large as a tenant may post them: of each list of a pod's spec that looks at nodes or other pods, so many elements, all unlike."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement, OwnerReference
from provisioner.apis.pods import Pod
from provisioner.apis.shapes import shape_of
from provisioner.scheduling.constraints.volumes import claim_keys
from provisioner.values.taints import Toleration
from tests.support.problems import DRIVER, node, pod, pool, storage, term, uses, volume_claim
from tests.support.question import Problem

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
LABELS = (ZONE, HOST, names.CAPACITY_TYPE_LABEL)
"""Labels over whose values pods are spread, in turn."""
Lists = dict[str, Any]
"""What a pod's spec lists, by kind: of affinities their terms, else the list of the spec."""


_AFFINITIES = frozenset({"terms", "node_preferred", "required", "together", "forbidden", "apart"})


_numbers = itertools.count()
"""Of pods: no two are alike, or what is known of one from a question before would be left out of another."""


def _key(number: int) -> str:
    return LABELS[number % len(LABELS)]


def everyone(text: str) -> LabelSelector:
    """Every pod, in words of its own: none has this label."""
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=text, operator="DoesNotExist"),))


def _spreads(
    number: int, count: int, when: str, key: Callable[[int], str] = _key
) -> tuple[TopologySpreadConstraint, ...]:
    return tuple(
        TopologySpreadConstraint(
            topology_key=key(one), when_unsatisfiable=when, label_selector=everyone(f"a{number}-{one}")
        )
        for one in range(count)
    )


def _peers(number: int, one: int, name: str = "web") -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=_key(one), label_selector=everyone(f"{name}-{number}-{one}"))


def _weighted(number: int, count: int, name: str) -> tuple[WeightedPodAffinityTerm, ...]:
    return tuple(
        WeightedPodAffinityTerm(weight=1 + one % 100, pod_affinity_term=_peers(number, one, name))
        for one in range(count)
    )


KINDS: Mapping[str, Callable[[int, int], Lists]] = {
    "soft spreads": lambda number, count: {"spreads": _spreads(number, count, "ScheduleAnyway")},
    "hard spreads": lambda number, count: {"spreads": _spreads(number, count, "DoNotSchedule")},
    "soft spreads over labels of their own": lambda number, count: {
        "spreads": _spreads(number, count, "ScheduleAnyway", lambda one: f"k{one}")
    },
    "hard spreads over labels of their own": lambda number, count: {
        "spreads": _spreads(number, count, "DoNotSchedule", lambda one: f"k{one}")
    },
    "preferred affinity terms": lambda number, count: {
        "node_preferred": tuple(
            PreferredSchedulingTerm(weight=1 + one % 100, preference=term((f"w{number}-{one}", "In", ["x"])))
            for one in range(count)
        )
    },
    "preferred pod affinities": lambda number, count: {"together": _weighted(number, count, "near")},
    "preferred pod anti-affinities": lambda number, count: {"apart": _weighted(number, count, "far")},
    "required pod affinities": lambda number, count: {
        "required": tuple(_peers(number, one, "web") for one in range(count))
    },
    "required pod anti-affinities": lambda number, count: {
        "forbidden": tuple(_peers(number, one, "bad") for one in range(count))
    },
    "tolerations": lambda number, count: {
        "tolerations": tuple(Toleration(key=f"t{number}-{one}", operator="Exists") for one in range(count))
    },
    "host ports": lambda number, count: {
        "ports": tuple(ContainerPort(host_port=1 + (number * 7 + one) % 65_000) for one in range(count))
    },
    "node selector terms": lambda number, count: {
        "terms": tuple(term((ZONE, "NotIn", [f"z{number}-{one}"])) for one in range(count))
    },
    "node selector": lambda number, count: {"selector": {f"s{number}-{one}": "x" for one in range(count)}},
    "volumes": lambda number, count: {"volumes": uses(*[f"claim-{number}-{one}" for one in range(count)])},
    "containers": lambda number, count: {"containers": count},
}

TOGETHER: Sequence[str] = [
    kind for kind in KINDS if kind not in ("node selector", "hard spreads over labels of their own", "soft spreads")
]
"""Lists that one pod may have at once, with 512 expressions: the node selector is part of each node selector term."""


def large(number: int, lists: Lists, owner: str = "", cpu: str = "1m") -> Pod:
    """A pod with these lists."""
    containers = tuple(
        Container(
            name=f"c{one}",
            resources=ResourceRequirements(requests={"cpu": cpu if not one else "1m", "memory": "1Mi"}),
            ports=lists.get("ports", ()) if not one else (),
        )
        for one in range(lists.get("containers", 1))
    )
    affinity = Affinity(
        node_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=lists["terms"]) if "terms" in lists else None,
            preferred=lists.get("node_preferred", ()),
        ),
        pod_affinity=PodAffinity(required=lists.get("required", ()), preferred=lists.get("together", ())),
        pod_anti_affinity=PodAffinity(required=lists.get("forbidden", ()), preferred=lists.get("apart", ())),
    )
    spec = PodSpec(
        containers=containers,
        node_selector=lists.get("selector", {}),
        affinity=affinity if lists.keys() & _AFFINITIES else None,
        tolerations=lists.get("tolerations", ()),
        topology_spread_constraints=lists.get("spreads", ()),
        volumes=lists.get("volumes", ()),
    )
    made = pod(f"large-{number}", shape_of(spec, namespace="default", labels={"app": "web", "own": str(number)}))
    if owner:
        reference = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=owner, uid=owner, controller=True)
        return structs.replace(made, owner=reference)
    return made


def asked(kinds: Iterable[str], count: int, pods: int = 5, nodes: int = 20, cpu: str = "1m") -> Problem:
    """So many pods, each with so many elements of these kinds, and nodes that have room for them."""
    of = list(kinds)
    made = []
    for number in itertools.islice(_numbers, pods):
        lists: Lists = {}
        for kind in of:
            if kind != "owners":
                more = KINDS[kind](number, count)
                lists |= {name: (*lists[name], *some) if name in lists else some for name, some in more.items()}
        made.append(large(number, lists, f"owner-{number}" if "owners" in of else "", cpu))
    claims = {key.partition("/")[2] for one in made for key in claim_keys(one)}
    return Problem(
        pods=tuple(made),
        pools=(pool(), pool("second")),
        bins=tuple(
            node(f"node-{number}", labels={ZONE: "ab"[number % 2]}, attach={DRIVER: 300}) for number in range(nodes)
        ),
        storage=storage(*[volume_claim(name) for name in sorted(claims)]),
        most_of_one={"default": 1} if "owners" in of else {},
    )
