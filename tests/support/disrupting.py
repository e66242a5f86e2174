"""Nodes on an API server in memory, and the disruption of them with its queues running."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import CloudProvider, InstanceType, RepairPolicy
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.commands.queue import CommandQueue
from provisioner.disruption.controller import CONSOLIDATIONS, METHODS, DisruptionController, Method
from provisioner.disruption.node_health import NodeHealth
from provisioner.disruption.reboots.controller import Reboots
from provisioner.disruption.view import VALIDATION, DisruptionSettings
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime.controller import Controller, Manager
from provisioner.state.pause import NOTHING, Pause
from provisioner.support.clock import Clock
from provisioner.support.precedence import Precedence
from provisioner.support.workers import WorkerPool
from provisioner.termination.rebooting_taint import RebootingTaints
from tests.support.batches import claim_creator, no_buffers
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pool
from tests.support.eventually import eventually
from tests.support.instances import FakeInstances
from tests.support.worldserver import WorldServer

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
LONG_AGO = NOON - timedelta(hours=1)


def command_queue(
    server: WorldServer,
    provider: object = None,
    *,
    stale: Any = lambda: "",
    pause: Callable[[], Pause] = lambda: NOTHING,
    growth: GrowthLimits | GrowthLedger = GrowthLimits(),  # noqa: B008  (frozen)
    workers: WorkerPool | None = None,
    kind: type[CommandQueue] = CommandQueue,
    is_broken: Callable[[Node], bool] = lambda _: True,
) -> CommandQueue:
    """A queue on the server's state; its threads are not started. Plans are written by `workers`."""
    world = server.world
    writer = PlanWriter(world.cluster, server.writer, workers or WorkerPool(1, "plans"))
    if isinstance(growth, GrowthLimits):
        growth = GrowthLedger(world.cluster, growth, lambda _: world.types, world.clock)
    creator = claim_creator(server.client, world.cluster, writer, growth=growth)
    return kind(
        world.cluster,
        server.client,
        server.writer,
        creator,
        writer,
        server.recorder,
        server.taints,
        server.terminator(provider),
        world.clock,
        stale=stale,
        pause=pause,
        postponed=server.postponed,
        is_broken=is_broken,
    )


class FakeCloud(FakeInstances):
    """The same, with kwok's instance types for every pool.

    Attributes:
        kinds: other types, where not None.
    """

    kinds: tuple[InstanceType, ...] | None = None
    well_known_labels = names.WELL_KNOWN_LABELS | catalogue.generated().well_known_labels
    reservation_label = ""

    def instance_types(self, pool: object) -> tuple[InstanceType, ...]:
        return catalogue.generated().types if self.kinds is None else self.kinds


class DisruptedNodes:
    """Initialized nodes without pods, long since there, and their disruption.

    Attributes:
        behind: which watch is behind, in words.
        pause: what is paused.
    """

    def __init__(
        self,
        *nodes: str,
        budget: str = "100%",
        after: str = "0s",
        methods: tuple[Method, ...] = METHODS,
        consolidations: tuple[Method, ...] = CONSOLIDATIONS,
        growth: GrowthLimits = GrowthLimits(),  # noqa: B008  (frozen)
        most: int = 0,
        policies: Sequence[RepairPolicy] = (),
        settings: DisruptionSettings = DisruptionSettings(),  # noqa: B008  (frozen)
        precedence: Callable[[Clock], Precedence] = Precedence,
        **disruption: Any,
    ) -> None:
        self.world = World()
        self._precedence = precedence
        self.policies, self._settings = policies, settings
        self.server = WorldServer(self.world)
        self.pause, self.growth, self._most = NOTHING, growth, most
        self.behind, self._methods, self._consolidations = "", methods, consolidations
        self._pool = pool(disruption={"consolidateAfter": after, "budgets": [{"nodes": budget}], **disruption})
        self._pods: dict[str, Pod] = {}
        self.cloud = FakeCloud(*(f"kwok://{name}" for name in nodes or ("a",)))
        self.world.cluster.pool_changed(None, self._pool)
        for name in nodes or ("a",):
            self.put(name)
        self._begin()

    def _begin(self) -> None:
        self.health = NodeHealth(self.world.cluster, self.world.clock, self.policies)
        self.commands = command_queue(
            self.server,
            self.cloud,
            stale=lambda: self.behind,
            pause=lambda: self.pause,
            growth=self.growth,
            is_broken=self.health.is_broken,
        )
        self.ledger = BudgetLedger(self.world.cluster, most=self._most)
        self.reboots = Reboots(
            self.world.cluster,
            cast(CloudProvider, self.cloud),
            self.server.writer,
            RebootingTaints(self.server.client, told=self.server.writer.node_written),
            self.server.evictions,
            self.ledger,
            self.server.recorder,
            self.world.clock,
            is_broken=self.health.is_broken,
            stale=lambda: self.behind,
            pause=lambda: self.pause,
            postponed=self.server.postponed,
        )
        self.disruption = DisruptionController(
            self.world.cluster,
            self.server.writer,
            self.server.recorder,
            self.commands,
            self.ledger,
            self.world.clock,
            stale=lambda: self.behind,
            worlds=Worlds(cast(CloudProvider, self.cloud)),
            buffers=no_buffers(self.server.client, self.world.clock),
            pause=lambda: self.pause,
            methods=self._methods,
            consolidations=self._consolidations,
            ill=self.health.at,
            settings=self._settings,
            reboots=self.reboots,
            precedence=self._precedence(self.world.clock),
        )
        self.manager = Manager(self.world.clock)
        self.manager.take(
            [
                Controller(runner=self.disruption.tells, closing=self.disruption.close),
                Controller(runner=self.commands.queue, initial=self.commands.written),
                Controller(runner=self.commands.heals),
                Controller(runner=self.reboots.queue, initial=self.reboots.initial),
            ]
        )
        self.manager.start()

    @property
    def queues(self) -> tuple[Any, ...]:
        return self.commands.heals, self.commands.queue, self.disruption.tells, self.reboots.queue

    def put(self, name: str, *, true: tuple[str, ...] = ALL_TRUE, **metadata: Any) -> None:
        """A node with its NodeClaim."""
        self.server.put(
            claim(name, provider_id=f"kwok://{name}", true=true, since=LONG_AGO, **metadata),
            node(name, labels={names.NODEPOOL_LABEL: "general"}),
        )

    def drifted(self, name: str, *pods: Pod, **metadata: Any) -> None:
        """A drifted node with pods that the caches and the server know."""
        self.put(name, true=(*ALL_TRUE, names.DRIFTED), **metadata)
        for one in pods:
            self.bind(one, name)

    def bind(self, one: Pod, name: str) -> None:
        """A pod runs on a node, as the caches and the server know it."""
        self.server.bind(one.name, name, metadata__labels=dict(one.labels), metadata__annotations=dict(one.annotations))
        self._pods[one.uid] = msgspec.structs.replace(one, node_name=name)
        self.world.add(self._pods[one.uid])

    def replacements(self) -> list[str]:
        """NodeClaims on the server that replace others."""
        return sorted(
            name
            for name, thing in self.server.objects["nodeclaims"].items()
            if names.REPLACES_ANNOTATION in thing["metadata"].get("annotations", {})
        )

    def initialize(self, name: str, *, ready: bool = True) -> None:
        """A replacement comes up; its Node may have ceased to be ready since."""
        made = self.server.objects["nodeclaims"][name]
        like = claim(name, provider_id=f"kwok://{name}", true=ALL_TRUE)
        made["status"] = msgspec.to_builtins(like.status)
        self.server.put(msgspec.convert(made, NodeClaim, strict=False))
        self.server.put(node(name, ready=ready, labels={names.NODEPOOL_LABEL: "general"}))
        self.cloud.there.add(f"kwok://{name}")
        self.commands.heard(self.server.claim(name))

    def restart(self) -> None:
        """Another process leads, and goes on with what is written."""
        self.stop()
        self.world = World(settled=False)
        self.world.cluster.pool_changed(None, self._pool)
        self.world.add(*self._pods.values())
        self.server = WorldServer(self.world, self.server)
        self.world.cluster.settle()
        self._begin()

    def run(self, seconds: float = VALIDATION.total_seconds()) -> None:
        """A pass, so much time, and another pass that is carried out."""
        self.disruption.run_once()
        self.world.clock.advance(seconds)
        self.disruption.run_once()
        self.settle()

    def settle(self) -> None:
        eventually(lambda: all(queue.idle() for queue in self.queues), "what was decided is done", 10.0, 0.005)

    def taints(self, name: str = "a") -> list[str]:
        return [taint.key for taint in self.server.node(name).spec.taints]

    def goes(self, name: str = "a") -> bool:
        return not self.server.has("nodeclaims", name)

    def is_open(self, name: str = "a") -> bool:
        """Whether nothing of a disruption is on a node any more."""
        found = self.server.claim(name)
        marks = {names.COMMAND_ANNOTATION, names.COMMAND_MEMBER_ANNOTATION} & found.metadata.annotations.keys()
        told = [one for one in found.status.conditions if one.type == names.DISRUPTION_REASON]
        return not self.taints(name) and not marks and not told

    def stop(self) -> None:
        self.manager.stop(10.0, 0.0)


Make = Callable[..., DisruptedNodes]


@contextmanager
def staged() -> Iterator[Make]:
    """What makes stages, which all end with it."""
    made: list[DisruptedNodes] = []

    def make(*nodes: str, **options: Any) -> DisruptedNodes:
        made.append(DisruptedNodes(*nodes, **options))
        return made[-1]

    yield make
    for stage in made:
        stage.stop()
