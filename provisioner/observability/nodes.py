"""Metrics of single Nodes and of what their NodePools cost. Source: core spec 8.1 ("Nodes", "NodePools")."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.pods import is_daemon
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.costs import known_price
from provisioner.state.snapshot import NodeView
from provisioner.support.exposition import family, labels_text
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import Resources

_NODE_LABELS: Final = ("node_name", "phase", "managed")


class _Family(NamedTuple):
    name: str
    doc: str


_ALLOCATABLE: Final = _Family("karpenter_nodes_allocatable", "Allocatable resources of a node.")
_POD_REQUESTS: Final = _Family(
    "karpenter_nodes_total_pod_requests", "Resources requested by the pods bound to a node, excluding DaemonSet pods."
)
_POD_LIMITS: Final = _Family(
    "karpenter_nodes_total_pod_limits", "Resource limits of the pods bound to a node, excluding DaemonSet pods."
)
_DAEMON_REQUESTS: Final = _Family(
    "karpenter_nodes_total_daemon_requests", "Resources requested by the DaemonSet pods bound to a node."
)
_DAEMON_LIMITS: Final = _Family(
    "karpenter_nodes_total_daemon_limits", "Resource limits of the DaemonSet pods bound to a node."
)
_OVERHEAD: Final = _Family(
    "karpenter_nodes_system_overhead",
    "Resources of a node that are reserved for the system: capacity minus allocatable.",
)
_LIFETIME: Final = _Family("karpenter_nodes_current_lifetime_seconds", "Age of a node.")
_UTILIZATION: Final = _Family(
    "karpenter_cluster_utilization_percent", "Share of the allocatable resources of all nodes that pods request."
)
_COST: Final = _Family(
    "karpenter_nodepools_cost_total", "Price of the nodes of a NodePool at current prices, in USD per hour."
)


def metric_labels(well_known: Iterable[str]) -> dict[str, str]:
    """Label key to metric label, for the well-known labels of a provider, sorted by metric label.

    The part behind the slash in snake_case; where two keys would collide, the one that sorts first has the name.
    Source: core spec 8.1.
    """
    found: dict[str, str] = {}
    for key in sorted(well_known):
        name = "".join(letter if letter.isalnum() else "_" for letter in key.rpartition("/")[2]).lower()
        if name not in found and name not in (*_NODE_LABELS, "resource_type"):
            found[name] = key
    return {found[name]: name for name in sorted(found)}


def node_lines(
    views: Iterable[NodeView], node_of: Callable[[str], Node | None], well_known: Iterable[str], now: datetime
) -> Iterator[str]:
    """Every family of single nodes, as lines. Cost: the bound pods and, per node, its resources."""
    keys = metric_labels(well_known)
    samples: dict[_Family, list[tuple[str, float]]] = {
        one: []
        for one in (_ALLOCATABLE, _POD_REQUESTS, _POD_LIMITS, _DAEMON_REQUESTS, _DAEMON_LIMITS, _OVERHEAD, _LIFETIME)
    }
    allocatable: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for view in views:
        node = node_of(view.name) if view.name else None
        if node is None:
            continue
        labels = {"node_name": view.name, "phase": "", "managed": "true" if view.claim is not None else "false"}
        labels |= {name: node.metadata.labels.get(key, "") for key, name in keys.items()}
        text = labels_text(labels)
        has, capacity = _read(node.status.allocatable), _read(node.status.capacity)
        sums = _Sums(view)
        for kind, amounts in (
            (_ALLOCATABLE, has),
            (_POD_REQUESTS, sums.pod_requests),
            (_POD_LIMITS, sums.pod_limits),
            (_DAEMON_REQUESTS, sums.daemon_requests),
            (_DAEMON_LIMITS, sums.daemon_limits),
            (_OVERHEAD, {key: amount - has.get(key, 0) for key, amount in capacity.items()}),
        ):
            samples[kind] += [(f'{text},resource_type="{key}"', _base(key, amount)) for key, amount in amounts.items()]
        if node.metadata.creation_timestamp is not None:
            age = max(0.0, (now - node.metadata.creation_timestamp).total_seconds())
            samples[_LIFETIME].append((text, age))
        allocatable.update(has)
        requested.update(sums.pod_requests)
        requested.update(sums.daemon_requests)
    for one, found in samples.items():
        yield from family(one.name, "gauge", one.doc, found)
    shares = [
        (f'resource_type="{key}"', 100.0 * requested.get(key, 0) / amount)
        for key, amount in sorted(allocatable.items())
        if amount > 0
    ]
    yield from family(_UTILIZATION.name, "gauge", _UTILIZATION.doc, shares)


class _Sums:
    """What the pods of one node ask for, summed up."""

    def __init__(self, view: NodeView) -> None:
        self.pod_requests: Counter[str] = Counter()
        self.pod_limits: Counter[str] = Counter()
        self.daemon_requests: Counter[str] = Counter()
        self.daemon_limits: Counter[str] = Counter()
        for pod in view.pods:
            daemon = is_daemon(pod)
            (self.daemon_requests if daemon else self.pod_requests).update(pod.shape.requests)
            (self.daemon_limits if daemon else self.pod_limits).update(pod.shape.limits)


def cost_lines(
    views: Iterable[NodeView], pools: Iterable[str], types_of: Callable[[str], Mapping[str, InstanceType]]
) -> tuple[list[str], frozenset[tuple[str, str]]]:
    """What each NodePool's nodes cost, as lines, and the nodes whose price is not known (they count nothing), as (NodePool, key)."""
    costs = dict.fromkeys(pools, 0.0)
    unknown: set[tuple[str, str]] = set()
    for view in views:
        if view.claim is None or view.pool not in costs or not view.provider_id:
            continue
        price = known_price(view.labels, types_of(view.pool).get(view.labels.get(names.INSTANCE_TYPE_LABEL, "")))
        if price is None:
            unknown.add((view.pool, str(view.key)))
        else:
            costs[view.pool] += price
    samples = [(labels_text({"nodepool": pool}), round(cost, 6)) for pool, cost in sorted(costs.items())]
    return list(family(_COST.name, "gauge", _COST.doc, samples)), frozenset(unknown)


def _read(amounts: Mapping[str, str | int | float]) -> Mapping[str, int]:
    try:
        return Resources.parse(amounts)
    except QuantityError:
        return {}  # a Node that says nonsense has no figures


def _base(resource: str, amount: int) -> float:
    """Cores and bytes, as dashboards expect them."""
    return amount / 1000 if resource == names.CPU else float(amount)
