"""Fleets of nodes as disruption sees them: NodePools, nodes of some type with pods on them, and the view of a method."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.pods import Pod, PodShape, is_reschedulable
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.candidates import CALLED_OFF
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.repair_policies import Illness
from provisioner.disruption.view import DisruptionSettings, DisruptionView, MethodAnswer
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.result import PlannedClaim
from provisioner.scheduling.world import Policies, world_of
from provisioner.state.groups import Group
from provisioner.state.keys import NodeKey
from provisioner.state.predictions import NO_PREDICTIONS, PodPredictions
from provisioner.state.snapshot import NodeView, PoolView, Snapshot, Surroundings
from provisioner.values.requirement import Requirements
from provisioner.values.resources import EMPTY, Resources
from tests.support import cluster, problems
from tests.support.clock import NOON
from tests.support.problems import WELL_KNOWN

ABC = ("a", "b", "c")
TINY = problems.instance_type("tiny", "1", "2Gi", 0.06, zones=ABC, capacity_types=("on-demand",))
SMALL = problems.instance_type("small", "2", "4Gi", 0.1, zones=ABC, capacity_types=("on-demand",))
MEDIUM = problems.instance_type("medium", "4", "8Gi", 0.2, zones=ABC, capacity_types=("on-demand",))
LARGE = problems.instance_type("large", "8", "16Gi", 0.4, zones=ABC, capacity_types=("on-demand",))
TYPES = (SMALL, MEDIUM, LARGE)
OLD = NOON - timedelta(days=1)
ALL = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}
LAUNCHED = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


def running(name: str, of: PodShape | None = None, **more: Any) -> Pod:
    """A pod of a ReplicaSet that runs; the node is filled in by `Fleet.node`."""
    own = of or problems.shape()
    return Pod(
        **{
            "name": name,
            "namespace": own.namespace,
            "uid": f"uid-{name}",
            "shape": own,
            "labels": own.labels,
            "created": OLD,
            "phase": "Running",
            "scheduled": True,
            "ready": True,
            "start_time": OLD,
            **more,
        }
    )


def several(count: int, prefix: str, of: PodShape | None = None, **more: Any) -> tuple[Pod, ...]:
    return tuple(running(f"{prefix}-{number}", of, **more) for number in range(count))


def budget(name: str, app: str, allowed: int, **more: Any) -> PodDisruptionBudget:
    """A PodDisruptionBudget over the pods of an app; `more` are fields of its spec by wire name."""
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **more},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, PodDisruptionBudget)


def pool(name: str = "general", *, disruption: Mapping[str, Any] | None = None, **spec: Any) -> NodePool:
    """A NodePool whose budgets allow everything and that waits for nothing, unless told otherwise."""
    return cluster.pool(name, disruption={**ALL, **(disruption or {})}, **spec)


@dataclass(repr=False)
class Fleet:
    """What a cluster consists of; `view` is what a method is asked about."""

    pools: list[NodePool] = field(default_factory=lambda: [pool()])
    types: tuple[InstanceType, ...] = TYPES
    nodes: list[NodeView] = field(default_factory=list)
    budgets: list[PodDisruptionBudget] = field(default_factory=list)
    pending: list[Pod] = field(default_factory=list)
    around: Surroundings = field(default_factory=Surroundings)
    settings: DisruptionSettings = field(default_factory=DisruptionSettings)
    policies: Policies = field(default_factory=lambda: Policies(hostname_domains=1))
    at: datetime = NOON
    daemons: tuple[PodShape, ...] = ()
    ill: dict[str, Illness] = field(default_factory=dict)
    predictions: PodPredictions = NO_PREDICTIONS
    groups: dict[str, Group] = field(default_factory=dict)
    minima: dict[str, int] = field(default_factory=dict)
    topology: dict[str, str] = field(default_factory=dict)
    together: frozenset[str] = frozenset()
    consolidated: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        nodes = [
            f"{one.name} {one.labels[names.INSTANCE_TYPE_LABEL]} in {one.labels[names.ZONE_LABEL]}: "
            + ", ".join(f"{pod.name} {dict(pod.shape.requests)} {pod.annotations or ''}" for pod in one.pods)
            for one in self.nodes
        ]
        terms = {
            pod.labels["app"]: (pod.shape.spread, pod.shape.affinity)
            for one in self.nodes
            for pod in one.pods
            if pod.labels
        }
        budgets = [(one.metadata.name, one.status.disruptions_allowed) for one in self.budgets]
        return "\n".join(["a fleet", *nodes, *map(str, terms.items()), str(budgets), str(self.settings)])

    def node(
        self,
        name: str,
        pods: Iterable[Pod] = (),
        /,
        *,
        kind: InstanceType = MEDIUM,
        zone: str = "a",
        capacity_type: str = "on-demand",
        of: str = "general",
        drifted: datetime | None = None,
        created: datetime = OLD,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        claim_spec: Mapping[str, Any] | None = None,
        conditions: Iterable[Mapping[str, Any]] = (),
        **more: Any,
    ) -> NodeView:
        """An initialized node; `more` are fields of the view."""
        own = {
            names.NODEPOOL_LABEL: of,
            names.INSTANCE_TYPE_LABEL: kind.name,
            names.ZONE_LABEL: zone,
            names.CAPACITY_TYPE_LABEL: capacity_type,
            names.ARCH_LABEL: "amd64",
            names.OS_LABEL: "linux",
            names.HOSTNAME_LABEL: f"node-{name}",
            "provider.example/cpu": kind.requirements.requirement("provider.example/cpu").single_value or "",
            "karpenter.kwok.sh/kwoknodeclass": "default",
            **(labels or {}),
        }
        listed = tuple(changed(one, node_name=f"node-{name}") for one in pods)
        used = EMPTY
        for one in listed:
            used += one.shape.requests
        true = [{"type": one, "status": "True", "lastTransitionTime": created.isoformat()} for one in LAUNCHED]
        if drifted is not None:
            true.append({"type": names.DRIFTED, "status": "True", "lastTransitionTime": drifted.isoformat()})
        body = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": created.isoformat(),
                "labels": own,
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
                **(claim_spec or {}),
            },
            "status": {"conditions": [*true, *conditions], "providerID": f"kwok://{name}"},
        }
        made = NodeView(
            **{
                "key": NodeKey(name),
                "name": f"node-{name}",
                "claim": msgspec.convert(body, NodeClaim, strict=False),
                "pool": of,
                "provider_id": f"kwok://{name}",
                "labels": own,
                "taints": (),
                "capacity": kind.capacity,
                "allocatable": kind.allocatable,
                "used": used,
                "planned": EMPTY,
                "room": kind.allocatable - used,
                "pods": listed,
                "initialized": True,
                "ready": True,
                "deleting": False,
                "do_not_disrupt": False,
                "nominated": False,
                "last_pod_event": None,
                "charge": EMPTY if more.get("deleting") else Resources.of({**kind.capacity, names.NODES: 1}),
                **more,
            }
        )
        self.nodes.append(made)
        return made

    def snapshot(self) -> Snapshot:
        by_namespace: dict[str, tuple[PodDisruptionBudget, ...]] = {}
        for one in sorted(self.budgets, key=lambda one: one.metadata.name):
            by_namespace[one.metadata.namespace] = (*by_namespace.get(one.metadata.namespace, ()), one)
        return Snapshot(
            at=self.at,
            nodes=tuple(sorted(self.nodes, key=lambda one: (not one.initialized, one.key))),
            pools=tuple(PoolView(one, self._used(one.metadata.name)) for one in sorted(self.pools, key=_name)),
            daemons=self.daemons,
            pending=tuple(self.pending),
            waiting=tuple(self.pending),
            leaving=(),
            around=self.around,
            pod_budgets=PodBudgets(by_namespace),
            predictions=self.predictions,
            groups=self.groups,
            minima=self.minima,
            topology=self.topology,
            together=self.together,
            consolidated=self.consolidated,
        )

    def _used(self, name: str) -> Resources:
        used = EMPTY
        for one in self.nodes:
            if one.pool == name:
                used += one.charge
        return used

    def prepared(self, snapshot: Snapshot | None = None) -> Prepared:
        gathered = world_of(
            snapshot or self.snapshot(), lambda _: self.types, WELL_KNOWN, lambda _: True, self.policies
        )
        return prepare(gathered.world)

    def view(
        self,
        *,
        under_way: Iterable[str] = (),
        spared: Iterable[str] = (),
        first: Iterable[str] = (),
        allowed: Callable[[str, str], int] | None = None,
        most: int = 0,
        expired: Callable[[], bool] = lambda: False,
    ) -> DisruptionView:
        """What a method is asked; budgets are those of the pools unless `allowed` says otherwise. `most` as of `AllowanceLedger`."""
        snapshot = self.snapshot()
        going = frozenset(under_way)
        ledger = AllowanceLedger(snapshot, going, most=most)
        return DisruptionView(
            snapshot=snapshot,
            prepared=self.prepared(snapshot),
            allowed=allowed or ledger.allowed,
            why_none=ledger.why_none,
            ceiling=ledger.ceiling(),
            under_way=going,
            spared=dict.fromkeys(spared, CALLED_OFF),
            first=frozenset(first),
            expired=expired,
            settings=self.settings,
            ill=self.ill,
            types_of=lambda _: self.types,
        )


def _name(one: NodePool) -> str:
    return one.metadata.name


def gone(answer: MethodAnswer) -> list[tuple[str, ...]]:
    """The candidates of each proposal."""
    return [one.candidates for one in answer.proposals]


def gist(one: Proposal) -> tuple[tuple[str, ...], list[str], dict[str, int]]:
    """Who goes, which types come, and how many pods each existing node takes."""
    return (
        one.candidates,
        sorted(claim.planned_type for claim in one.replacements),
        {name: len(pods) for name, pods in sorted(one.placements.items())},
    )


def told(answer: MethodAnswer) -> dict[str, str]:
    """What is said of each node, and with "" of a pool."""
    return {one.key: one.message for one in answer.blocked}


def moved(node: NodeView) -> tuple[Pod, ...]:
    """The pods of a node that need another place."""
    return tuple(one for one in node.pods if is_reschedulable(one))


def planned(pods: tuple[Pod, ...], zone: str = "a") -> PlannedClaim:
    """A node that is bought for these."""
    return PlannedClaim(
        pool="general",
        template=None,
        requirements=Requirements.of([]),
        labels={},
        requests=EMPTY,
        pods=pods,
        instance_types=("small",),
        planned_type="small",
        planned_zone=zone,
        planned_capacity_type="on-demand",
        usd_per_hour=0.1,
        capacity=EMPTY,
        allocatable=EMPTY,
        charge=EMPTY,
    )
