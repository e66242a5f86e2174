"""A small cluster that disruption looks after, event by event, on one thread and a clock that stands still.

What decides is real: the state and its frozen snapshots, the orchestrator with every method, the one ledger of budgets, the queue of commands.
What happens around it is made here by other means: kube-scheduler is `kubescheduler.World`, and evictions, PodDisruptionBudgets, prices and budgets
of NodePools are counted once more from the objects.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.command import CommandPhase, awaited_by
from provisioner.apis.core import Node, PodDisruptionBudget, PodGroup
from provisioner.apis.hash import HASH_VERSION, nodepool_hash
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import OwnerReference, is_true
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import CloudProvider, InstanceType, RepairPolicy
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.commands.queue import CommandQueue
from provisioner.disruption.controller import CONSOLIDATIONS, METHODS, DisruptionController, Method
from provisioner.disruption.methods import static_drift
from provisioner.disruption.methods.moves import Consolidation
from provisioner.disruption.node_health import NodeHealth
from provisioner.disruption.pool_drift import pool_drift
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.rebuilding_planner import Rebuilding
from provisioner.disruption.simulation.turns import WAITS_FOR_TIED
from provisioner.disruption.view import DisruptionSettings, DisruptionView, MethodAnswer
from provisioner.lifecycle import launch_gate
from provisioner.lifecycle.launch_gate import LaunchGate
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.packing.planner import PackingOutcome, Planner, PlanOutcome
from provisioner.provisioning.provisioner import ProvisioningController
from provisioner.provisioning.worlds import Worlds
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.result import Result
from provisioner.scheduling.topology.ties import topology_keys
from provisioner.scheduling.world import Policies
from provisioner.state.cluster import Cluster
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.pause import Pause, pause_of
from provisioner.state.snapshot import Snapshot
from provisioner.support.workers import WorkerPool
from provisioner.termination.eviction_queue import deadline_of
from provisioner.values.resources import Resources
from tests.support import checker, cluster
from tests.support.batches import claim_creator, no_buffers, no_requests
from tests.support.clock import NOON
from tests.support.cluster import World
from tests.support.disrupting import command_queue
from tests.support.fleets import ABC, LARGE, LAUNCHED, MEDIUM, OLD, SMALL, TINY
from tests.support.instances import FakeInstances
from tests.support.kubescheduler import NodeInfo, needs
from tests.support.kubescheduler import World as Scheduler
from tests.support.problems import WELL_KNOWN, instance_type, of_app
from tests.support.question import Problem
from tests.support.worldserver import WorldServer

BARGAIN = instance_type("bargain", "8", "16Gi", 0.22, zones=ABC, capacity_types=("on-demand",))
KINDS: Final = (TINY, SMALL, MEDIUM, LARGE, BARGAIN)
BY_NAME: Final = {one.name: one for one in KINDS}
POLICY: Final = RepairPolicy("Broken", "True", timedelta(seconds=90), "", timedelta(seconds=60))
"""A condition that is tolerated for longer than it has to be seen, and bounds drains."""
NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
GRACE: Final = "1h"
STATIC: Final = "static"
FIXED: Final = TINY
"""The type of the static NodePool's nodes."""
RESERVED: Final = {"key": "reserved", "effect": "NoSchedule"}
#: After so long without any progress the drain of a node ends as its deadline wants, and a command times out.
LONG: Final = 700.0
WAITS: Final = "waiting until these are bound"
_SLACK: Final = 1e-9
_ELSEWHERE: Final = re.compile(
    r"claim-(?P<number>\d+)-of-\S+ may as well come to .*, and then (?P<pod>\S+) cannot be bound"
)
_MOST_FREE: Final = 3
"""Pods on nodes that go for which every place is tried."""
_OVERDUE: Final = 12
_STILL: Final = 30
_STILL_SECONDS: Final = 20.0
"""So often, and so long each time, nothing happens at a limit; by then no pod waits for time to pass."""
_PATIENCE: Final = 16
"""Looks in a row at which nothing happens; by then every deadline is over."""


class Content:
    """A planner that has nothing to add to scheduling's answer, so that nodes are built anew as that has them; a real one takes too long here."""

    @staticmethod
    def planned(_prepared: Prepared, result: Result, _seconds: float) -> PackingOutcome:
        return PackingOutcome(result, None, PlanOutcome.UNCHANGED)

    def expect(self, _pods: int) -> float:
        return 0.0

    def stop(self) -> None:
        pass


class Cloud(FakeInstances):
    """Five types at fixed prices for every pool.

    Attributes:
        kinds: they; none of others is left for new nodes.
    """

    kinds: tuple[InstanceType, ...] = KINDS

    well_known_labels = names.WELL_KNOWN_LABELS | WELL_KNOWN
    reservation_label = ""

    def instance_types(self, pool: object) -> tuple[InstanceType, ...]:
        return self.kinds


class AtOnce:
    """Runs every call where it is submitted."""

    def submit(self, call: Callable[[], None]) -> None:
        call()


class Told(CommandQueue):
    """Tells what begins, within the lock of the ledger that admits it."""

    told: Callable[[Proposal], None]

    def begin(self, proposal: Proposal, snapshot: Snapshot) -> bool:
        begun = super().begin(proposal, snapshot)
        if begun:
            self.told(proposal)
        return begun


class Money(GrowthLedger):
    """A ledger whose limit users change."""

    def limit(self, usd_per_hour: float) -> None:
        """0 limits nothing."""
        self._limits, self._known = GrowthLimits(usd_per_hour=usd_per_hour), None


def nothing() -> None:
    """What happens meanwhile, as a rule."""


class Upkeep:
    """The cluster, its disruption, and what has been promised about it.

    Args:
        shapes: of the pods of each app.
        pools: NodePools by name, with what they say of disruption.
        most: the flag `--max-disrupting-nodes`.
        settings: of disruption.
        static: nodes of a static NodePool besides, which no pod tolerates.
        gangs: apps whose pods are of a PodGroup each, with its minCount and its disruption mode.
        broken: Nodes may be broken and are repaired, and the static NodePool may have no more nodes than it has, so that they go first.

    Attributes:
        wrong: every broken promise, in words.
        pods: those that are there, by name.
        going: proposals of commands under way, by candidate.
        seen: what has happened, for whoever wants to know that it was worth it.
        meanwhile: runs once when a method of consolidation has answered and nothing of the answer has begun.
        usd: that all nodes may cost in an hour; 0 limits nothing.
        strangers: pods that nobody places, whatever room there is; nobody has promised them anything.
        ill: since when Nodes are broken that are, by name.
    """

    def __init__(
        self,
        shapes: Mapping[str, PodShape],
        pools: Mapping[str, Mapping[str, Any]],
        *,
        most: int = 0,
        settings: DisruptionSettings = DisruptionSettings(),  # noqa: B008  (frozen)
        static: int = 0,
        broken: bool = False,
        gangs: Mapping[str, tuple[int, str]] = {},
    ) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.cluster = self.world.cluster = cast(Any, Cluster(lambda _: BY_NAME, self.clock))
        self.cluster.settle()
        self.gangs: dict[str, PodGroup] = {}
        self.cluster.pod_groups_known(KindKnowledge.READ)
        for name, (minimum, mode) in gangs.items():
            self.need(name, minimum, mode)
        self.server, self.cloud = WorldServer(self.world), Cloud()
        self.shapes, self.pods, self.going = dict(shapes), dict[str, Pod](), dict[str, Proposal]()
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self.meanwhile: Callable[[], object] = nothing
        self._most, self._begun, self._answered = most, list[Proposal](), tuple[Proposal, ...]()
        self._proposed: list[Proposal] = []
        self._touched: dict[str, datetime] = {}
        self._refused: set[str] = set()
        self.strangers: list[Pod] = []
        self.ill: dict[str, datetime] = {}
        self.health = NodeHealth(self.cluster, self.clock, (POLICY,) if broken else ())
        self._most_static = static if broken else 0
        if broken:
            settings = replace(settings, first_for=frozenset({names.REASON_DRIFTED, names.REASON_UNHEALTHY}))
        self.usd = 0.0
        self._numbers = itertools.count()
        self._guards: dict[str, int] = {}
        self.pools: dict[str, NodePool] = {}
        for name, disruption in pools.items():
            self.set_pool(name, cluster.pool(name, disruption=dict(disruption)))
        if static:
            only = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [FIXED.name]}
            self.set_pool(
                STATIC,
                cluster.pool(
                    STATIC,
                    requirements=(only,),
                    template={"taints": [RESERVED]},
                    replicas=static,
                    limits={names.NODES: str(static)} if broken else {},
                    disruption={"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"},
                ),
            )
        for _ in range(static):
            self.add_node(STATIC, FIXED.name, "a", old=True)
        self._money = Money(self.cluster, GrowthLimits(), lambda _: BY_NAME, self.clock)
        self.commands = command_queue(
            self.server,
            self.cloud,
            pause=self.pause,
            growth=self._money,
            workers=cast(WorkerPool, AtOnce()),
            kind=Told,
            is_broken=self.health.is_broken,
        )
        assert isinstance(self.commands, Told)
        self.commands.told = self._begins
        self.ledger = BudgetLedger(self.cluster, most=most)
        self.worlds = Worlds(cast(CloudProvider, self.cloud), Policies(hostname_domains=1))
        consolidations = tuple(self._interrupted(one) for one in CONSOLIDATIONS)
        methods = tuple(self._noted(one) for one in METHODS)
        self.disruption = self._disruption(methods, consolidations, settings)
        writer = PlanWriter(self.cluster, self.server.writer, cast(WorkerPool, AtOnce()))
        self.provisioner = ProvisioningController(
            self.cluster,
            claim_creator(self.server.client, self.cluster, writer, chance=random.Random(3), growth=self._money),
            cast(CloudProvider, self.cloud),
            self.server.recorder,
            cast(WorkerPool, AtOnce()),
            self.clock,
            retry=lambda _: None,
            chance=random.Random(1),
            plans=writer,
            buffers=no_buffers(self.server.client, self.clock),
            requests=no_requests(self.server.client, self.server.recorder, self.clock),
            policies=Policies(hostname_domains=1),
        )
        self.alone = {one.name: self._disruption((one,), (), settings) for one in methods}

    def _disruption(
        self, methods: tuple[Method, ...], more: tuple[Method, ...], settings: DisruptionSettings
    ) -> DisruptionController:
        return DisruptionController(
            self.cluster,
            self.server.writer,
            self.server.recorder,
            self.commands,
            self.ledger,
            self.clock,
            stale=lambda: "",
            worlds=self.worlds,
            buffers=no_buffers(self.server.client, self.clock),
            pause=self.pause,
            methods=methods,
            consolidations=more,
            settings=settings,
            ill=self.health.at,
            rebuilding=Rebuilding(cast(Planner, Content()), self.clock),
        )

    def _noted(self, method: Method) -> Method:
        """The same, and it is noted which nodes stay."""

        def ask(view: DisruptionView) -> MethodAnswer:
            answer = method.ask(view)
            self._refused.update(one.key for one in answer.blocked)
            self._proposed += answer.proposals
            return answer

        return Method(method.name, method.reason, ask, method.buys, method.concerns)

    def _interrupted(self, method: Method) -> Method:
        """The same, and something happens while its answer is on its way to the ledger, as other threads do it."""

        def ask(view: DisruptionView) -> MethodAnswer:
            answer = method.ask(view)
            self._answered = answer.proposals
            meanwhile, self.meanwhile = self.meanwhile, nothing
            meanwhile()
            return answer

        return Method(method.name, method.reason, ask, method.buys, method.concerns)

    @property
    def refused(self) -> frozenset[str]:
        """The nodes of which methods have said why they stay, since the last pass began."""
        return frozenset(self._refused)

    # ------------------------------------------------------------------ what is there

    def claims(self) -> list[NodeClaim]:
        """Those on the server, by name."""
        return [self.server.claim(name) for name in sorted(self.server.objects["nodeclaims"])]

    def nodes(self) -> dict[str, Node]:
        """Those on the server, by name of the claim; a Node is named like it."""
        return {name: self.server.node(name) for name in sorted(self.server.objects["nodes"])}

    def on(self, node: str) -> list[Pod]:
        """The pods on a node, by name."""
        return [one for _, one in sorted(self.pods.items()) if one.node_name == node]

    def waiting(self) -> list[Pod]:
        """Pods without a node."""
        return self.on("")

    def pause(self) -> Pause:
        """What the NodePools say."""
        return pause_of(self.pools.values(), {})

    def price(self) -> float:
        """What all nodes cost, USD per hour."""
        return sum(price_of(one.metadata.labels[names.INSTANCE_TYPE_LABEL]) for one in self.nodes().values())

    def limit(self, pool: str) -> int | None:
        """How many CPUs the nodes of a NodePool may have; None where nothing limits them."""
        text = self.pools[pool].spec.limits.get(names.CPU)
        return None if text is None else int(text)

    def cpus(self, pool: str, without: Collection[str] = ()) -> int:
        """What nodes of a NodePool may have, those to come included, whatever they become; those that go count for nobody.

        Args:
            pool: its name.
            without: NodeClaims that have just begun to go.
        """
        found = 0
        for claim in self._counting(without):
            if claim.pool == pool:
                types = [claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")]
                if not claim.status.provider_id:
                    listed = (one.values for one in claim.spec.requirements if one.key == names.INSTANCE_TYPE_LABEL)
                    types = [kind for values in listed for kind in values]
                found += max(cpus_of(kind) for kind in types)
        return found

    def _counting(self, without: Collection[str]) -> Iterator[NodeClaim]:
        """NodeClaims, those to come included, that do not go."""
        claims = {one.name: one for one in self.claims()}
        for command in self.cluster.commands():
            if command.record.phase is CommandPhase.COMMITTED:
                made = [one for one in command.record.replacements if one.name not in claims]
                claims |= {one.name: msgspec.convert(one.body, NodeClaim, strict=False) for one in made}
        for name, claim in claims.items():
            goes = claim.metadata.deletion_timestamp is not None or name in self.going or name in without
            if not goes and not self.cluster.is_unneeded(name):
                yield claim

    def money(self, without: Collection[str] = ()) -> float:
        """What nodes cost that count, in USD per hour, those to come as they are planned; `without` as of `cpus`."""
        return sum(usd_per_hour(claim, BY_NAME) for claim in self._counting(without))

    def limit_money(self, usd_per_hour: float) -> None:
        """`--max-usd-per-hour` is another one; 0 limits nothing."""
        self.usd = usd_per_hour
        self._money.limit(usd_per_hour)

    def allows(self, pool: str, kind: InstanceType) -> bool:
        """Whether the limits leave room for a node."""
        limit = self.limit(pool)
        if self.usd and self.money() + price_of(kind.name) > self.usd + _SLACK:
            return False
        return limit is None or self.cpus(pool) + cpus_of(kind.name) <= limit

    def is_protected(self, pod: Pod) -> bool:
        """Whether its annotation forbids to disrupt it now: "true", or a number of hours since it started."""
        value = pod.annotations.get(names.DO_NOT_DISRUPT, "")
        if pod.deleted is not None or not value:
            return False
        return value == "true" or self.clock.now() < (pod.start_time or NOON) + timedelta(hours=int(value[:-1]))

    def left(self, app: str) -> int | None:
        """How many pods of an app may be evicted now; None where nothing limits it."""
        if app not in self._guards:
            return None
        mine = [one for one in self.pods.values() if one.labels["app"] == app]
        healthy = sum(bool(one.node_name) and one.deleted is None for one in mine)
        return max(0, healthy - max(0, len(mine) - self._guards[app]))

    # ------------------------------------------------------------------ what users do

    def set_pool(self, name: str, now: NodePool) -> None:
        """A NodePool is made or changed; its hash is written, and claims that drift are told so."""
        marks = {names.NODEPOOL_HASH: nodepool_hash(now.spec.template), names.NODEPOOL_HASH_VERSION: HASH_VERSION}
        metadata = changed(now.metadata, annotations={**now.metadata.annotations, **marks})
        old, now = self.pools.get(name), changed(now, metadata=metadata)
        if now == old:
            return  # no watch tells what did not change
        self.pools[name] = now
        self.cluster.pool_changed(old, self.pools[name])
        self.tell_drift()

    def edit_pool(
        self,
        name: str,
        *,
        paused: bool | None = None,
        label: str = "",
        disruption: Mapping[str, Any] | None = None,
        cpus: int | None = None,
    ) -> None:
        """A NodePool is paused or not, labels its nodes otherwise, says something else of disruption, or may have so many CPUs (0: any number)."""
        wire = msgspec.to_builtins(self.pools[name])
        if cpus is not None:
            wire["spec"]["limits"] = {names.CPU: str(cpus)} if cpus else {}
        if paused is not None:
            wire["metadata"].setdefault("annotations", {})[names.PAUSED] = "true" if paused else "false"
        if label:
            wire["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})["version"] = label
        wire["spec"].setdefault("disruption", {}).update(disruption or {})
        self.set_pool(name, msgspec.convert(wire, NodePool, strict=False))

    def tell_drift(self) -> None:
        """What `disruption.drift_controller` writes: the condition Drifted."""
        for claim in self.claims():
            why = pool_drift(claim, self.pools[claim.pool])
            if bool(why) == is_true(claim.status.conditions, names.DRIFTED):
                continue
            wire = self.server.objects["nodeclaims"][claim.metadata.name]
            conditions = [one for one in wire["status"]["conditions"] if one["type"] != names.DRIFTED]
            wire["status"]["conditions"] = [*conditions, *([self._true(names.DRIFTED, why)] if why else [])]
            self.server.put(msgspec.convert(wire, NodeClaim, strict=False))

    def _true(self, kind: str, why: str = "") -> dict[str, str]:
        return {"type": kind, "status": "True", "reason": why, "lastTransitionTime": self.clock.now().isoformat()}

    def need(self, app: str, minimum: int, mode: str = "single", key: str = "", *, allows: bool | None = None) -> None:
        """How many pods of an app need each other, and the label of which all their nodes must have one value.

        Whether it `allows` consolidation to move all of them at once is as before where it is None.
        """
        policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "disruptionMode": {mode: {}}, "priority": 0}
        known = self.gangs.get(app)
        allows = allows if allows is not None or known is None else known.consolidated
        notes = {names.GANG_CONSOLIDATION: names.ALLOW if allows else "deny"}
        body = {
            "metadata": {"name": app, "namespace": "default", "annotations": notes},
            "spec": {**policy, **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {})},
        }
        old, self.gangs[app] = self.gangs.get(app), msgspec.convert(body, PodGroup)
        self.cluster.pod_group_changed(old, self.gangs[app])

    def members(self, app: str) -> list[Pod]:
        """The pods of an app, those that terminate among them."""
        return [one for _, one in sorted(self.pods.items()) if one.labels["app"] == app]

    def create(self, app: str) -> None:
        """A pod more."""
        name = f"{app}-{next(self._numbers)}"
        shape = self.shapes[app]
        owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=app, uid=f"rs-{app}", controller=True)
        self._put(
            Pod(
                name=name,
                namespace="default",
                uid=name,
                resource_version=self.server.next_version(),
                shape=shape,
                labels=shape.labels,
                created=self.clock.now(),
                owner=owner,
                group=app if app in self.gangs else "",
            )
        )

    def wait_in_vain(self, *, refused: bool) -> None:
        """A pod that is never bound: another scheduler holds it back, or kube-scheduler refuses it for something that nobody models."""
        name = f"stranger-{next(self._numbers)}"
        mine = of_app("stranger", "250m", "64Mi", scheduler_name=names.DEFAULT_SCHEDULER_NAME if refused else "volcano")
        pod = Pod(name=name, namespace="default", uid=name, shape=mine, labels=mine.labels, created=self.clock.now())
        self.strangers.append(cluster.refused(pod, "not enough free storage") if refused else pod)
        self.cluster.pod_changed(None, self.strangers[-1])

    def nobody_waits_in_vain(self) -> None:
        """All of these are gone."""
        for pod in self.strangers:
            self.cluster.pod_changed(pod, None)
        self.strangers = []

    def _put(self, pod: Pod) -> None:
        old, self.pods[pod.name] = self.pods.get(pod.name), pod
        if pod.node_name:
            ready = [{"type": "Ready", "status": "True"}]
            more: dict[str, Any] = {"metadata__deletionTimestamp": pod.deleted.isoformat()} if pod.deleted else {}
            if pod.group:
                more["spec__schedulingGroup"] = {"podGroupName": pod.group}
            self.server.bind(
                pod.name,
                pod.node_name,
                metadata__labels=dict(pod.labels),
                metadata__annotations=dict(pod.annotations),
                metadata__ownerReferences=msgspec.to_builtins([pod.owner]),
                status__conditions=ready,
                status__startTime=(pod.start_time or NOON).isoformat(),
                **more,
            )
            if old is None or not old.node_name:
                self._touched[pod.node_name] = self.clock.now()
        self.cluster.pod_changed(old, pod)
        self._count_guards()

    def remove(self, pod: Pod, *, again: bool = False) -> None:
        """A pod is gone; its ReplicaSet made another one if `again`, as soon as it was to go."""
        if again and pod.deleted is None:
            pod = self.terminate(pod)
        del self.pods[pod.name]
        self.server.objects["pods"].pop(f"default/{pod.name}", None)
        if pod.deleted is None:
            self._touched[pod.node_name] = self.clock.now()
        self.cluster.pod_changed(pod, None)
        self._count_guards()

    def annotate(self, pod: Pod, value: str) -> None:
        """What a pod says of do-not-disrupt; "" for nothing."""
        self._put(changed(pod, annotations={names.DO_NOT_DISRUPT: value} if value else {}))

    def terminate(self, pod: Pod) -> Pod:
        """A pod is being deleted, and its ReplicaSet makes another one; the pod as it is then."""
        if pod.deleted is None:
            pod = changed(pod, deleted=self.clock.now() + timedelta(seconds=30))
            self._put(pod)
            self._touched[pod.node_name] = self.clock.now()  # what is to go counts as gone
            assert pod.owner is not None
            self.create(pod.owner.name)
        return pod

    def guard(self, app: str, unavailable: int | None) -> None:
        """A PodDisruptionBudget of an app: how many of its pods may be gone; None for no such object."""
        if unavailable is not None:
            self._guards[app] = unavailable
        elif self._guards.pop(app, None) is not None:
            gone = next(one for one in self.cluster.pod_budgets()["default"] if one.metadata.name == f"pdb-{app}")
            self.cluster.budget_changed(gone, None)
        self._count_guards()

    def _count_guards(self) -> None:
        known = {one.metadata.name: one for one in self.cluster.pod_budgets().get("default", ())}
        self.server.only("poddisruptionbudgets")
        for app, unavailable in sorted(self._guards.items()):
            mine = [one for one in self.pods.values() if one.labels["app"] == app]
            healthy = sum(bool(one.node_name) and one.deleted is None for one in mine)
            body = {
                "metadata": {"name": f"pdb-{app}", "namespace": "default", "uid": f"pdb-{app}", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": unavailable},
                "status": {
                    "observedGeneration": 1,
                    "disruptionsAllowed": self.left(app),
                    "currentHealthy": healthy,
                    "desiredHealthy": max(0, len(mine) - unavailable),
                    "expectedPods": len(mine),
                },
            }
            self.server.store("poddisruptionbudgets", body)
            old, new = known.get(f"pdb-{app}"), msgspec.convert(body, PodDisruptionBudget)
            if old != new:
                self.cluster.budget_changed(old, new)

    def add_node(self, pool: str, kind: str, zone: str, *, old: bool = False, grace: bool = False) -> str:
        """A node of a pool, initialized; long ago if `old`, with a terminationGracePeriod if `grace`."""
        name = f"n{next(self._numbers)}"
        created = OLD if old else self.clock.now()
        body: dict[str, Any] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "generation": 1,
                "creationTimestamp": created.isoformat(),
                "finalizers": [names.TERMINATION_FINALIZER],
                "labels": dict(self.pools[pool].labels),
                "annotations": {
                    key: self.pools[pool].metadata.annotations[key]
                    for key in (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION)
                },
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [],
                "taints": [RESERVED] if pool == STATIC else [],
                **({"terminationGracePeriod": GRACE} if grace else {}),
            },
        }
        self._join(body, pool, BY_NAME[kind], zone)
        self._touched[name] = created
        return name

    def _join(self, body: dict[str, Any], pool: str, kind: InstanceType, zone: str) -> None:
        """A NodeClaim is launched, registered and initialized at once."""
        name = body["metadata"]["name"]
        others = sum(one.metadata.labels.get(names.NODEPOOL_LABEL) == STATIC for one in self.nodes().values())
        if self._most_static and pool == STATIC and others >= self._most_static:
            self.wrong.append(f"{name} is launched beside {others} nodes of {STATIC}, which may have no more")
        labels = {
            **body["metadata"].get("labels", {}),
            names.NODEPOOL_LABEL: pool,
            names.INSTANCE_TYPE_LABEL: kind.name,
            names.ZONE_LABEL: zone,
            names.CAPACITY_TYPE_LABEL: "on-demand",
            names.ARCH_LABEL: "amd64",
            names.OS_LABEL: "linux",
            "provider.example/cpu": kind.requirements.requirement("provider.example/cpu").single_value or "",
            "karpenter.kwok.sh/kwoknodeclass": "default",
        }
        body["metadata"]["labels"] = labels
        body["status"] = {
            "conditions": [{**self._true(one), "reason": one} for one in LAUNCHED],
            "providerID": f"kwok://{name}",
            "nodeName": name,
            "capacity": kind.capacity.to_wire(),
            "allocatable": kind.allocatable.to_wire(),
        }
        self.cloud.there.add(f"kwok://{name}")
        node = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "creationTimestamp": self.clock.now().isoformat(),
                "labels": {**labels, **names.READY_LABELS, names.HOSTNAME_LABEL: name},
            },
            "spec": {"providerID": f"kwok://{name}", "taints": list(body["spec"].get("taints", ()))},
            "status": {
                "capacity": kind.capacity.to_wire(),
                "allocatable": kind.allocatable.to_wire(),
                "conditions": [self._true("Ready")],
            },
        }
        self._touched[name] = self.clock.now()
        self.server.put(msgspec.convert(body, NodeClaim, strict=False), msgspec.convert(node, Node, strict=False))

    def set_ready(self, name: str, *, ready: bool) -> None:
        """A Node is Ready, or not; it is tainted then."""
        wire = self.server.objects["nodes"][name]
        kept = [one for one in wire["status"]["conditions"] if one["type"] != "Ready"]
        wire["status"]["conditions"] = [{**self._true("Ready"), "status": "True" if ready else "False"}, *kept]
        others = [one for one in wire["spec"].get("taints", ()) if one["key"] != NOT_READY["key"]]
        wire["spec"]["taints"] = others if ready else [*others, NOT_READY]
        self.server.put(msgspec.convert(wire, Node, strict=False))

    def set_ill(self, name: str, *, ill: bool) -> None:
        """A Node says that it is broken, or not; it is Ready all the same."""
        wire = self.server.objects["nodes"][name]
        kept = [one for one in wire["status"]["conditions"] if one["type"] != POLICY.condition_type]
        if ill and name not in self.ill:
            self.ill[name] = self.clock.now()
        elif not ill:
            self.ill.pop(name, None)
        since = self.ill.get(name, self.clock.now()).isoformat()
        told = {"type": POLICY.condition_type, "status": "True" if ill else "False", "lastTransitionTime": since}
        wire["status"]["conditions"] = [*kept, told]
        self.server.put(msgspec.convert(wire, Node, strict=False))

    def protect(self, name: str, *, protected: bool) -> None:
        """A Node says do-not-disrupt, or does not."""
        wire = self.server.objects["nodes"][name]
        wire["metadata"]["annotations"] = {names.DO_NOT_DISRUPT: "true"} if protected else {}
        self.server.put(msgspec.convert(wire, Node, strict=False))

    def delete_claim(self, name: str) -> None:
        """A user deletes a NodeClaim."""
        self.server.remove("nodeclaims", name)
        self._end(name)
        self._tidy()

    # ------------------------------------------------------------------ what the cluster does

    def scheduler(self) -> Scheduler:
        """What kube-scheduler sees now."""
        found = []
        for name, node in self.nodes().items():
            here = self.on(name)
            taken = needs(one.shape for one in here)
            size = BY_NAME[node.metadata.labels[names.INSTANCE_TYPE_LABEL]].allocatable
            room = {key: amount - taken.get(key, 0) for key, amount in size.items()}
            labels, taints = dict(node.metadata.labels), tuple(node.spec.taints)
            nameless = names.HOSTNAME_LABEL not in labels
            found.append(NodeInfo(name, labels, room, taints, name, pods=tuple(here), nameless=nameless))
        return Scheduler(found)

    def planned(self) -> dict[str, str]:
        """Where pods are planned: claim by pod."""
        return {pod.name: node.key.name for node in self.cluster.snapshot().nodes for pod in node.assigned}

    def schedule(self, *, packed: bool = True) -> bool:
        """Bind what waits: where it is planned if kube-scheduler lets it, else wherever that does; whether anything was bound.

        Args:
            packed: to the fullest node of those; else to the one with the fewest pods.
        """
        bound = False
        for app in self.gangs:
            bound = self._cycle(app, packed=packed) or bound
        while True:
            for pod in self.waiting():
                if not pod.group and (node := self._node_for(pod, packed=packed)):
                    self._bind(pod, node)
                    bound = True
                    break
            else:
                return bound

    def _node_for(self, pod: Pod, *, packed: bool, within: Collection[str] | None = None) -> str:
        """Where kube-scheduler binds a pod now, among these nodes; "" for nowhere."""
        world, planned = self.scheduler(), self.planned()
        those = [one for one in world.nodes if (within is None or one.name in within) and not world.refusal(pod, one)]
        those = [one for one in those if one.name == planned.get(pod.name)] or those
        if not those:
            return ""
        fullest = min(those, key=lambda one: (one.room["cpu"], one.name))
        return (fullest if packed else min(those, key=lambda one: len(one.pods))).name

    def lacks(self, app: str) -> bool:
        """Whether kube-scheduler does not try the pods of a PodGroup."""
        return app in self.gangs and len(self.members(app)) < self.gangs[app].minimum

    def _cycle(self, app: str, *, packed: bool) -> bool:
        """What kube-scheduler does with a PodGroup: as many as fit are bound, if enough are bound then; whether any was."""
        return any(self._placement(app, within, packed=packed) for within in self._placements(app))

    def _placements(self, app: str) -> list[Collection[str] | None]:
        """The nodes of each domain of a PodGroup: of the one in which its pods run, if any do. None for all nodes."""
        if not (key := self.gangs[app].topology_key):
            return [None]
        values = {name: node.metadata.labels.get(key, "") for name, node in self.nodes().items()}
        homes = {values[one.node_name] for one in self.members(app) if one.node_name}
        domains = homes if len(homes) == 1 else () if homes else {*values.values()}
        return [[name for name, value in values.items() if value == one] for one in sorted(domains) if one]

    def _placement(self, app: str, within: Collection[str] | None, *, packed: bool) -> bool:
        waiting = [one for one in self.members(app) if not one.node_name]
        if not waiting or self.lacks(app):
            return False
        chosen: dict[str, str] = {}
        for pod in waiting:
            if node := self._node_for(pod, packed=packed, within=within):
                chosen[pod.name] = node
                self.pods[pod.name] = changed(pod, node_name=node)  # assumed
        self.pods.update((one.name, one) for one in waiting)
        scheduled = sum(bool(one.node_name) for one in self.members(app))
        if scheduled + len(chosen) < self.gangs[app].minimum:
            return False
        for pod in waiting:
            if pod.name in chosen:
                self._bind(pod, chosen[pod.name])
        return bool(chosen)

    def _bind(self, pod: Pod, node: str) -> None:
        now = self.clock.now()
        self._put(changed(pod, node_name=node, phase="Running", scheduled=True, ready=True, start_time=now))

    def provide(self, *, old: bool = False) -> None:
        """Whatever waits without a plan gets a node, or goes where no node could help."""
        self.schedule()
        for pod in self.waiting():
            if pod.name not in self.pods or pod.name in self.planned() or self.pods[pod.name].node_name:
                continue
            if self.lacks(pod.labels["app"]):
                self.remove(pod)
                continue
            for kind, zone in itertools.product(KINDS, ABC):
                pool = next((name for name in self._open_pools() if self.allows(name, kind)), "")
                if not pool:
                    continue
                if not all(amount <= kind.allocatable.get(key, 0) for key, amount in pod.shape.requests.items()):
                    continue
                name = self.add_node(pool, kind.name, zone, old=old)
                world = self.scheduler()
                if not world.refusal(pod, world.node(name)):
                    self._bind(pod, name)
                    break
                self._gone(name)
            else:
                self.remove(pod)
                continue
            if not self.pods[pod.name].node_name:
                self.remove(pod)
        self.schedule()

    def _open_pools(self) -> list[str]:
        return [name for name in self.pools if name != STATIC and not self.pause().summary(name)]

    def drain_at_the_limit(self) -> None:
        """Provisioning and drains go on, and nobody gives in: a drain ends as soon as there is a place for each pod that goes."""
        idle = 0
        for turn in range(2000):
            did = self.provisioner.run() is not None and self.ready_next()
            did = self.ready_next() or did
            did = self.drain_next(first=idle, node=turn) or did
            did = self.schedule() or did
            self._refuse()
            self.cluster.expire()
            did = self.go_on() or did
            idle = 0 if did else idle + 1
            if idle > _STILL:
                break
            self.clock.advance(1.0 if did else _STILL_SECONDS)
        self.wrong += self._held_for_no_reason()
        self.seen["drains at a limit"] += 1

    def _refuse(self) -> None:
        """kube-scheduler says of what waits why no node takes it."""
        world = self.scheduler()
        for pod in self.waiting():
            told = Counter(_in_words(world.misfit(pod, one)) for one in world.nodes)
            parts = ", ".join(f"{count} {words}" for words, count in sorted(told.items()))
            text = f"0/{len(world.nodes)} nodes are available: {parts}."
            if text != pod.scheduled_message and pod.name in self.pods:
                self._put(changed(cluster.refused(pod, text), resource_version=self.server.next_version()))

    def _held_for_no_reason(self) -> Iterator[str]:
        """Drains that stand still for want of a place, though there is one."""
        for claim in self.claims():
            name = claim.metadata.name
            held = [one for one in self.on(name) if not self.is_protected(one) and self.left(one.labels["app"]) == 0]
            if claim.metadata.deletion_timestamp is None or self.pause().summary(claim.pool):
                continue
            for app in sorted({one.labels["app"] for one in held if self._guards[one.labels["app"]]}):
                mine = [one for one in self.waiting() if one.labels["app"] == app]
                for pod in mine:
                    yield from (
                        f"the drain of {name} stands still, though {one} takes {pod.name}" for one in self._places(pod)
                    )

    def _places(self, pod: Pod) -> Iterator[str]:
        """New nodes that would take a pod, as things are."""
        for pool, kind, zone in itertools.product(self._open_pools(), self.cloud.kinds, ABC):
            if self.allows(pool, kind) and all(
                amount <= kind.allocatable.get(key, 0) for key, amount in pod.shape.requests.items()
            ):
                name = self.add_node(pool, kind.name, zone)
                world = self.scheduler()
                refused = world.refusal(pod, world.node(name))
                self._gone(name)
                if not refused:
                    yield f"{kind.name} of {pool} in {zone}"

    def ready_next(self) -> bool:
        """The first NodeClaim without a Node gets the one that was planned; whether there was one."""
        there = self.nodes()
        for claim in self.claims():
            name = claim.metadata.name
            if name in there or claim.metadata.deletion_timestamp is not None:
                continue
            match self._gate(claim):
                case LaunchGate.HELD:
                    continue
                case LaunchGate.FREED:
                    self.seen["places taken"] += 1
                    self.server.writer.metadata(claim, annotations={names.AWAITS_ANNOTATION: None})
                    return True
                case LaunchGate.RELEASED:
                    self.seen["places given up"] += 1
                    self._gone(name)
                    return True
                case LaunchGate.OPEN:
                    pass
            kind, zone, _ = claim.metadata.annotations[names.PLANNED_OFFERING_ANNOTATION].split("/")
            self._join(msgspec.json.decode(msgspec.json.encode(claim)), claim.pool, BY_NAME[kind], zone)
            self.seen["replacements"] += 1
            return True
        return False

    def _gate(self, claim: NodeClaim) -> LaunchGate:
        """What lifecycle does with a claim that may have to wait until another one is gone."""
        awaited = awaited_by(claim)
        other = awaited.claim if awaited is not None else ""
        there = self.server.claim(other) if other in self.server.objects["nodeclaims"] else None
        return launch_gate.gate_of(claim, there, self.cluster.command_waiting_for(claim.metadata.name))

    def fail_next(self) -> bool:
        """The first NodeClaim without a Node is given up; whether there was one."""
        there = self.nodes()
        for claim in self.claims():
            if claim.metadata.name not in there:
                self._gone(claim.metadata.name)
                self.seen["failed"] += 1
                return True
        return False

    def _end(self, name: str) -> None:
        """What termination does first with a claim that is being deleted."""
        if name in self.server.objects["nodes"]:
            self.server.taints.close(self.server.node(name), ending=True)

    def drain_next(self, *, force: bool = False, late: bool = False, first: int = 0, node: int = 0) -> bool:
        """Evict one pod that may go from a node that is being deleted, or end that node where none is left; whether anything was done.

        Args:
            force: no budget and no annotation is asked: users gave in.
            late: likewise, for nodes with a terminationGracePeriod: it is over.
            first: of which pod, by number, to look first.
            node: at which of the nodes that are being deleted, by number, to look first: they drain at the same time.
        """
        going = [one for one in self.claims() if one.metadata.deletion_timestamp is not None]
        node %= len(going) or 1
        for claim in (*going[node:], *going[:node]):
            name = claim.metadata.name
            if self.pause().summary(claim.pool):
                continue
            self._end(name)
            here = self.on(name)
            if not here:
                self._gone(name)
                return True
            first %= len(here)
            for pod in (*here[first:], *here[:first]):
                if pod.deleted is not None:
                    self.remove(pod, again=True)
                    return True
                free = self.left(pod.labels["app"])
                ends = deadline_of(claim)
                over = (late and bool(claim.spec.termination_grace_period)) or (
                    ends is not None and self.clock.now() >= ends
                )
                if force or over or (not self.is_protected(pod) and (free is None or free > 0)):
                    self.seen["evictions"] += 1
                    self.remove(pod, again=True)
                    return True
        return False

    def _gone(self, name: str) -> None:
        self.ill.pop(name, None)
        for kind in ("nodes", "nodeclaims"):
            if name in self.server.objects[kind]:
                self.server.drop(kind, name)
        for pod in self.on(name):
            self.remove(pod, again=True)
        self.cloud.there.discard(f"kwok://{name}")
        self._tidy()

    def go_on(self, number: int | None = None) -> bool:
        """Take the steps of one command, by number, or of all; whether anything was written."""
        holders = [one.record.holder for one in self.cluster.commands()]
        if number is not None and holders:
            holders = [holders[number % len(holders)]]
        before = len(self.server.done)
        for holder in holders:
            since = len(self.server.done)
            own = self.going.get(holder)
            self.commands.reconcile(holder)
            for what in self.server.done[since:]:
                self._did(own, what)
        for claim in self.claims():
            self.commands.heal(claim.metadata.name)
        self.cluster.expire()
        self._tidy()
        return len(self.server.done) > before

    def _tidy(self) -> None:
        """Forget what is no candidate any more."""
        for name in list(self.going):
            there = name in self.server.objects["nodeclaims"]
            if there and (self.cluster.command_of(name) is not None or not self.server.has("nodeclaims", name)):
                continue
            self.seen["ended" if not there else "called off"] += 1
            del self.going[name]

    def come_to_rest(self, *, alone: bool = False) -> None:
        """Everything that has begun comes to its end; what nothing brings on waits for deadlines.

        Args:
            alone: nobody else has done anything since all was at rest, so that no user need give in.
        """
        idle, going = 0, list[NodeClaim]()
        for turn in range(2000):
            did = self.go_on()
            did = self.ready_next() or did
            did = self.drain_next(first=idle, node=turn) or did
            did = self.schedule() or did
            if did:
                idle = 0
                continue
            going = [one for one in self.claims() if one.metadata.deletion_timestamp is not None]
            if not self.cluster.commands() and not going:
                return
            idle += 1
            if idle > _PATIENCE and any(map(self.pause().summary, self.pools)):
                return  # what is paused waits for its user
            self.clock.advance(1.0 if idle < 10 else LONG)
            if idle > _OVERDUE:
                self.drain_next(force=not alone, late=True)
            if idle > 2 * _PATIENCE:
                break
        self.wrong.append(f"it never ends: {self.cluster.commands()}, {going}")

    # ------------------------------------------------------------------ passes

    def look(self, method: str = "") -> list[Proposal]:
        """A pass of the orchestrator, or of one method alone; what has begun.

        One more right after must find nothing, but for nodes that had to wait, or stayed for a reason that what has begun may have ended: nobody is
        asked about twice in a pass.
        """
        those = self.alone[method] if method else self.disruption
        told = self.server.recorder
        since, self._refused, self._proposed = len(told.events), set(), []
        begun = self._passed(those.run_once)
        waited = self._waited(since)
        self._nobody_waits_at_the_cost_of_others(self._proposed, waited)
        self.seen["took turns"] += sum(message.endswith(WAITS) for message in told.messages[since:])
        self.seen["waited for tied"] += sum(message == WAITS_FOR_TIED for message in told.messages[since:])
        waited |= self._refused if begun else set()
        more = self._passed(those.run_once)
        if any(waited.isdisjoint(one.candidates) for one in more):
            self.wrong.append(f"a second pass right after the first begins {more}")
        return begun + more

    def _waited(self, since: int) -> set[str]:
        """The nodes that were said to wait for others since an event."""
        told = self.server.recorder
        every = zip(told.events[since:], told.messages[since:], strict=True)
        return {event[1] for event, message in every if message == WAITS_FOR_TIED or message.endswith(WAITS)}

    def _nobody_waits_at_the_cost_of_others(self, proposed: Iterable[Proposal], waited: set[str]) -> None:
        """What was proposed and waits has used up what budgets leave."""
        self.wrong += [f"{one} was proposed, and waits" for one in proposed if not waited.isdisjoint(one.candidates)]

    def consolidate(self) -> list[Proposal]:
        """A pass of consolidation, once nodes have been still for long enough; what has begun.

        The same question right after must find nothing, if nothing else happened, but for what `is_late` names. What could not begin, since it waits
        for nodes that go, holds no room: a move that has to do with its nodes may come in its place. Nor is a node counted that was kept for pods
        that wait, or whose node is being drained: they may be expected elsewhere once others have gone.
        """
        undisturbed, self._answered = self.meanwhile is nothing, tuple[Proposal, ...]()
        kept, since = self._kept(), len(self.server.recorder.events)
        begun = self._passed(self.disruption.consolidate_once)
        if undisturbed:
            self._nobody_waits_at_the_cost_of_others(self._answered, self._waited(since))
        if begun and undisturbed:
            self.seen["asked again"] += 1
            waits = {name for one in self._answered if one not in begun for name in _nodes_of(one)}
            quiet = self.disruption.answers()[names.REASON_UNDERUTILIZED].quiet
            waits |= {key for key, one in quiet.items() if one.message == "Node waits until other nodes are drained"}
            view = self.disruption.view(self.cluster.snapshot(), first=frozenset(), expired=lambda: False)
            more = [one for method in CONSOLIDATIONS for one in method.ask(view).proposals]
            more = [one for one in more if waits.isdisjoint(_nodes_of(one)) and not is_late(one)]
            more = [one for one in more if kept.isdisjoint(one.candidates)]
            if more:
                self.wrong.append(f"consolidation proposes {more} right after {begun}")
        return begun

    def _kept(self) -> set[str]:
        """The NodeClaims that consolidation leaves alone since pods that wait are expected on their nodes."""
        view = self.disruption.view(self.cluster.snapshot(), first=frozenset(), expired=lambda: False)
        if view.prepared is None:
            return set()
        work = Consolidation(view, view.prepared)
        return {one.key for one in work.order if not work.free(one)}

    def may_compete(self, begun: Iterable[Proposal]) -> bool:
        """Whether pods leave at once whose successors may take each other's places, by what has begun and is still to be drained.

        So do those of a late command. And those of two commands, where a spread or an affinity over zones ties pods of one app and any of them changes
        its zone, if no PodDisruptionBudget lets them go one after another: neither command waits for the other then.
        """
        zones = {name: node.metadata.labels[names.ZONE_LABEL] for name, node in self.nodes().items()}
        moves: dict[str, list[tuple[int, bool]]] = {}  # of each app: by which command, and whether to another zone
        for number, one in enumerate(begun):
            if one.late:
                return True
            goals = [(pod, zones.get(name)) for name, pods in one.placements.items() for pod in pods]
            goals += [(pod, new.planned_zone) for new in one.replacements for pod in new.pods]
            for pod, goal in goals:
                mine = pod.labels["app"]
                if mine not in self._guards and names.ZONE_LABEL in topology_keys((pod,)):
                    moves.setdefault(mine, []).append((number, zones[pod.node_name] != goal))
        return any(
            len({number for number, _ in those}) > 1 and any(crosses for _, crosses in those)
            for those in moves.values()
        )

    def _passed(self, run: Callable[[], object]) -> list[Proposal]:
        before, self._begun = self.cluster.snapshot(), []
        run()
        begun, self._begun = self._begun, []
        if begun:
            known = {one.key for one in before.nodes}
            now = self.cluster.snapshot()
            come = [one for one in now.nodes if one.name and one.key not in known]  # while it looked
            empty = [replace(one, room=one.room + one.planned, assigned=()) for one in come]
            before = replace(before, nodes=(*before.nodes, *empty))
            self.wrong += [f"{text} (by {begun})" for text in self._misplaced(before, begun)]
        return begun

    def _misplaced(self, before: Snapshot, begun: list[Proposal]) -> list[str]:
        """What kube-scheduler would not do of what was decided in one pass, once all that go are gone.

        Pods without a PodDisruptionBudget leave a node that is being deleted at once, and those that are pending are bound, wherever to, or get a node:
        it is enough that they may go somewhere. A command does not know to what other zones the nodes of another one may come.
        """
        going = {name for one in begun for name in one.candidates}
        world = self.worlds.of(_uncharged(before, going)).world
        static = {one.key.name for one in before.nodes if one.pool == STATIC}
        begun = [one for one in begun if static.isdisjoint(one.candidates)]  # no pod is on its nodes
        planned = {pod.uid for node in before.nodes for pod in node.assigned}
        free = [pod for pod in before.waiting if pod.uid not in planned and pod.name in self.pods] + [
            pod
            for node in before.nodes
            for pod in node.pods
            if node.deleting
            and pod.uid not in planned
            and pod.labels["app"] not in self._guards
            and not self.is_protected(pod)
        ]
        leave = planned.union(pod.uid for pod in free)
        gone = {node.key.name for node in before.nodes if node.deleting and all(p.uid in leave for p in node.pods)}
        existing: dict[str, tuple[Pod, ...]] = {}
        for one in begun:
            for name, some in one.placements.items():
                existing[name] = (*existing.get(name, ()), *some)
        bins = tuple(one for one in world.bins if one.name not in going | gone)
        lost = [f"{name} takes pods and goes" for name in existing if name in going | gone]
        if lost:
            return lost
        equals = {claim.pool: claim.template for one in begun for claim in one.replacements}
        moving = [pod for node in before.nodes if node.key.name in going for pod in node.pods if pod.deleted is None]

        apps = {pod.labels["app"] for pod in moving}
        free.sort(key=lambda pod: (pod.labels["app"] not in apps, not (pod.shape.spread or pod.shape.affinity)))
        asked = [pod for pod in free if pod.deleted is None][:_MOST_FREE]
        fresh = {one.name: one for pod in asked for one in _new_nodes(pod)}

        def violations(others: tuple[tuple[Pod, str], ...]) -> list[str]:
            """With some of the others on nodes that are there, and the rest nowhere."""
            places = dict(existing)
            for pod, name in others:
                places[name] = (*places.get(name, ()), pod)
            problem = Problem(
                pools=tuple(  # a NodePool that is again as it was is another object
                    replace(one, template=equals[one.name]) if equals.get(one.name) == one.template else one
                    for one in world.pools
                ),
                bins=(*bins, *(one for name, one in fresh.items() if name in places)),
                well_known=world.well_known,
                pods=(*moving, *(pod for pod, _ in others)),
                hostname_domains=world.hostname_domains,
            )
            ordered = {one.name: places[one.name] for one in problem.bins if one.name in places}
            result = Result(tuple(claim for one in begun for claim in one.replacements), ordered, ())
            return [text for text in checker.violations(problem, result) if not of_two(text, begun)]

        first = violations(())
        choices: list[list[tuple[Pod, str] | None]] = [
            [None, *((pod, one.name) for one in (*bins, *_new_nodes(pod)))] for pod in asked
        ]
        ways = itertools.product(*choices) if first else ()
        return first if all(violations(tuple(one for one in way if one is not None)) for way in ways) else []

    # ------------------------------------------------------------------ promises

    def _begins(self, proposal: Proposal) -> None:
        self.seen[f"{proposal.method} begun"] += 1
        self._begun.append(proposal)
        self.wrong += [f"{proposal.method} of {proposal.candidates}: {text}" for text in self._broken(proposal)]
        self.going.update(dict.fromkeys(proposal.candidates, proposal))

    def _broken(self, proposal: Proposal) -> Iterator[str]:
        """What was promised of a command when it begins."""
        there = self.nodes()
        if len(set(proposal.candidates)) != len(proposal.candidates):
            yield "a node is named twice"
        for name in proposal.candidates:
            if name in self.going:
                yield f"{name} is a candidate of {self.going[name]} already"
            if name not in there or not self.server.has("nodeclaims", name):
                yield f"{name} is not there, or going"
                continue
            claim, node = self.server.claim(name), there[name]
            repaired = proposal.reason == names.REASON_UNHEALTHY
            if not repaired and (claim.pool == STATIC) is not (proposal.method == static_drift.METHOD):
                yield f"{name} is of NodePool {claim.pool}"
            if why := self.pause().summary(claim.pool):
                yield why
            if repaired:
                yield from self._well(name, claim.pool)
                continue
            if node.metadata.annotations.get(names.DO_NOT_DISRUPT) == "true":
                yield f"{name} says do-not-disrupt"
            if not self._is_forceful(proposal, claim):
                yield from self._held(self.on(name))
            if proposal.reason != names.REASON_DRIFTED:
                yield from self._early(name, claim)
        if proposal.reason == names.REASON_EMPTY:
            yield from (f"{pod.name} runs there" for name in proposal.candidates for pod in self._moving(name))
        if proposal.reason == names.REASON_UNDERUTILIZED:
            before, then = (
                sum(price_of(there[name].metadata.labels[names.INSTANCE_TYPE_LABEL]) for name in some if name in there)
                for some in (proposal.candidates, proposal.then)
            )
            after = sum(price_of(claim.planned_type) for claim in proposal.replacements)
            if after >= before + then - _SLACK:
                yield f"it costs {after} after {before + then}"
            if after - before > before + then - after + _SLACK:
                yield f"it costs {after} after {before}, more than it saves once {proposal.then} have followed"
        yield from self._cuts(proposal)
        yield from self._over_budget(proposal)
        for pool in {claim.pool for claim in proposal.replacements}:
            limit, cpus = self.limit(pool), self.cpus(pool, proposal.candidates)
            if limit is not None and cpus > limit:
                yield f"nodes of {pool} may come to have {cpus} CPUs, where {limit} may be"
        if self.usd and proposal.replacements and (usd := self.money(proposal.candidates)) > self.usd + _SLACK:
            yield f"all nodes come to cost {usd:g} USD per hour, where {self.usd:g} may be"

    def _cuts(self, proposal: Proposal) -> Iterator[str]:
        """PodGroups that lose pods that they need, or some of the pods that go at once."""
        if proposal.reason == names.REASON_UNHEALTHY:
            return
        for app, group in self.gangs.items():
            bound = [one for one in self.members(app) if one.node_name and one.deleted is None]
            mine = [one for one in bound if one.node_name in proposal.candidates]
            if not mine:
                continue
            left = [one for one in bound if one not in mine]
            if group.moves_together:
                self.seen["moved at once"] += len(proposal.candidates) > 1
                yield from (f"{one.name} of {app} stays, whose pods go at once" for one in left)
                if proposal.reason == names.REASON_UNDERUTILIZED:
                    self.seen["moved at once for money"] += 1
                    if not group.consolidated:
                        yield f"pods of {app} are moved for money"
            forced = all(self._is_forceful(proposal, self.server.claim(one.node_name)) for one in mine)
            if self.lacks(app):
                if not forced:
                    yield f"pods of {app} go, and would not be scheduled"
                continue
            going = {claim.name for claim in self.claims() if claim.metadata.deletion_timestamp is not None}
            going |= self.going.keys() - set(proposal.candidates)
            stay = [one for one in left if one.node_name not in going]
            moved = set(self.planned()) & {one.name for one in self.members(app) if not one.node_name}
            needs = group.minimum if group.minimum > 1 else 0  # one that needs no other is kept by PodDisruptionBudgets
            if (len(stay) < len(left) or moved) and len(stay) < needs:
                yield f"{len(stay)} pods of {app} would run, of which {group.minimum} are needed, while {moved} are moved"

    def _moving(self, name: str) -> list[Pod]:
        return [pod for pod in self.on(name) if pod.deleted is None]

    def _well(self, name: str, pool: str) -> Iterator[str]:
        """Why a node is not to be repaired."""
        if name not in self.ill or self.clock.now() < self.ill[name] + POLICY.toleration:
            yield f"{name} is not broken, or not for long"
        mine = [one for one, node in self.nodes().items() if node.metadata.labels[names.NODEPOOL_LABEL] == pool]
        broken = sum(one in self.ill for one in mine)
        if broken > -(-len(mine) // 5):
            yield f"{broken} of {len(mine)} nodes of {pool} are broken, which are too many"

    def _is_forceful(self, proposal: Proposal, claim: NodeClaim) -> bool:
        if proposal.reason == names.REASON_UNHEALTHY:
            return True
        return proposal.reason == names.REASON_DRIFTED and bool(claim.spec.termination_grace_period)

    def _held(self, pods: Iterable[Pod]) -> Iterator[str]:
        for pod in pods:
            if self.is_protected(pod):
                yield f"{pod.name} says do-not-disrupt"
            elif pod.deleted is None and self.left(pod.labels["app"]) == 0:
                yield f"the PodDisruptionBudget of {pod.name} allows nothing"

    def _early(self, name: str, claim: NodeClaim) -> Iterator[str]:
        pool = self.pools[claim.pool].spec.disruption
        if pool.consolidate_after == "Never":
            yield "it is never consolidated"
        elif self.clock.now() < self._touched[name] + timedelta(seconds=int(pool.consolidate_after[:-1])):
            yield f"{name} is consolidated {self.clock.now() - self._touched[name]} after a pod came or went"

    def _over_budget(self, proposal: Proposal) -> Iterator[str]:
        """Every node that is away or going counts, for whatever reason; all commands and threads spend from the same."""
        nodes: Counter[str] = Counter()
        away: Counter[str] = Counter()
        for name, node in self.nodes().items():
            claim = self.server.claim(name)
            nodes[claim.pool] += 1
            ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
            ready = ready or proposal.reason == names.REASON_UNHEALTHY  # whose budget they do not use up
            deleted = claim.metadata.deletion_timestamp is not None
            away[claim.pool] += not ready or deleted or name in self.going or name in proposal.candidates
        for pool in {self.server.claim(name).pool for name in proposal.candidates}:
            for budget in self.pools[pool].spec.disruption.budgets:
                if isinstance(budget.reasons, tuple) and proposal.reason not in budget.reasons:
                    continue
                share = budget.nodes.endswith("%")
                most = -(-nodes[pool] * int(budget.nodes[:-1]) // 100) if share else int(budget.nodes)
                if away[pool] > most:
                    yield f"{away[pool]} of {nodes[pool]} nodes of {pool} are away, where {budget.nodes} may be"
        if self._most and away.total() > self._most:
            yield f"{away.total()} nodes are away, where {self._most} may be"

    def _did(self, proposal: Proposal | None, what: str) -> None:
        """What was promised of a write that a command makes."""
        verb, _, of = what.partition(" ")
        kind, _, name = of.partition("/")
        if kind != "nodeclaims" or verb not in ("DELETE", "POST"):
            return
        claim = self.server.claim(name)
        own = [one for one in proposal.candidates if one in self.server.objects["nodeclaims"]] if proposal else []
        for one in own:  # that a NodePool is paused keeps its nodes, not new ones out of it
            if why := self.pause().summary(self.server.claim(one).pool):
                self.wrong.append(f"{what}: {why}")
        if verb == "DELETE":
            if proposal is None or name not in proposal.candidates:
                self.wrong.append(f"{what}: of no command")
            elif not self._is_forceful(proposal, claim):
                self.wrong += [f"{what} for {proposal.method}: {text}" for text in self._held(self.on(name))]
            if proposal is not None and proposal.reason == names.REASON_EMPTY and self._moving(name):
                self.wrong.append(f"{what}: pods run there")
            command = self.cluster.command_of(name)
            if command is not None and command.record.phase is not CommandPhase.DELETING:
                there = self.server.objects["nodeclaims"] if command.record.first is not None else self.nodes()
                missing = sorted({*command.record.replacement_names} - there.keys())
                self.wrong += [f"{what}: its replacement {one} is not there" for one in missing]
            repaired = proposal is not None and proposal.reason == names.REASON_UNHEALTHY
            if not repaired and self.server.node(name).metadata.annotations.get(names.DO_NOT_DISRUPT) == "true":
                self.wrong.append(f"{what}: its Node says do-not-disrupt")


def is_late(one: Proposal) -> bool:
    """Whether a pass of consolidation may come to a move only after it has begun others.

    Of sets only the most promising are asked about, and what is promising changes with what goes. And each node is asked about once in a pass: a place
    which the hard spread or affinity of a pod refuses may become legal by a later move, of another pod or of a node that is a domain.
    """
    constrained = any(pod.shape.spread or pod.shape.affinity is not None for pod in one.pods)
    return len(one.candidates) > 1 or constrained


def _in_words(misfit: str) -> str:
    """What kube-scheduler says of nodes that a pod does not fit for this, or, where it is "", for pods elsewhere."""
    if not misfit:
        return "node(s) didn't match pod topology spread constraints"
    return "node(s) had untolerated taint(s)" if misfit.startswith("taint") else "Insufficient cpu"


def of_two(text: str, begun: Iterable[Proposal]) -> bool:
    """Whether the checker means that a node of one command may come elsewhere, and that a pod of another one has no place then."""
    found = _ELSEWHERE.match(text)
    if found is None:
        return False
    owners = [one for one in begun for _ in one.replacements]
    return found["pod"] not in {pod.name for pod in owners[int(found["number"])].pods}


def _new_nodes(pod: Pod) -> list[Bin]:
    """What a pod may get for itself, in each zone."""
    return [
        Bin(
            f"new-{pod.name}-{zone}",
            {names.INSTANCE_TYPE_LABEL: LARGE.name, names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: "on-demand"},
            LARGE.allocatable,
        )
        for zone in ABC
    ]


def _nodes_of(one: Proposal) -> set[str]:
    """Who goes, and who takes pods."""
    return {*one.candidates, *one.placements}


def _uncharged(snapshot: Snapshot, going: Collection[str]) -> Snapshot:
    """The instant, where nodes that go are charged to nobody."""
    charges = [(node.pool, node.charge) for node in snapshot.nodes if node.key.name in going]
    pools = [
        replace(one, used=one.used - Resources.total(charge for pool, charge in charges if pool == one.pool.name))
        for one in snapshot.pools
    ]
    return replace(snapshot, pools=tuple(pools))


def cpus_of(kind: str) -> int:
    """Of a type."""
    return BY_NAME[kind].capacity[names.CPU] // 1000


def price_of(kind: str) -> float:
    """USD per hour."""
    return BY_NAME[kind].offerings[0].price
