"""Nodes on a small API server, and the disruption of them with its queues running."""

import random
from datetime import timedelta
from typing import Any, cast

from provisioner.apis import names
from provisioner.controllers.budget_ledger import BudgetLedger
from provisioner.controllers.claim_creator import ClaimCreator
from provisioner.controllers.commands import CommandQueue
from provisioner.controllers.disruption import METHODS, Disruption, Method
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.plans import PlanWriter
from provisioner.disruption.view import VALIDATION
from provisioner.support.workers import Pool
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pool
from tests.support.eventually import eventually
from tests.support.instances import FakeInstances
from tests.support.tinyserver import TinyServer

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
LONG_AGO = NOON - timedelta(hours=1)
METRICS = Metrics()


def command_queue(server: TinyServer, provider: object = None, *, stale: Any = lambda: "") -> CommandQueue:
    """A queue on the server's state; its threads are not started."""
    world, plans = server.world, Pool(1, "plans")
    writer = PlanWriter(world.cluster, server.writer, plans)
    creator = ClaimCreator(
        server.client,
        world.cluster,
        METRICS,
        writer,
        effects=lambda _: None,
        created=lambda _: None,
        chance=random.Random(1),
    )
    return CommandQueue(
        world.cluster,
        server.client,
        server.writer,
        creator,
        writer,
        server.recorder,
        METRICS,
        server.taints,
        server.terminator(provider),
        world.clock,
        stale=stale,
    )


class Stage:
    """Initialized nodes without pods, long since there, and their disruption.

    Attributes:
        behind: which watch is behind, in words.
    """

    def __init__(self, *machines: str, budget: str = "100%", methods: tuple[Method, ...] = METHODS) -> None:
        self.world = World()
        self.server = TinyServer(self.world)
        self.behind = ""
        disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": budget}]}
        self.world.cluster.pool_changed(None, pool(disruption=disruption))
        for name in machines or ("a",):
            self.put(name)
        self.cloud = FakeInstances(*(f"kwok://{name}" for name in machines or ("a",)))
        self.commands = command_queue(self.server, self.cloud, stale=lambda: self.behind)
        self.ledger = BudgetLedger(self.world.cluster)
        self.disruption = Disruption(
            self.world.cluster,
            self.server.writer,
            self.server.recorder,
            METRICS,
            self.commands,
            self.ledger,
            self.world.clock,
            stale=lambda: self.behind,
            methods=methods,
        )
        for queue in self.queues:
            queue.start()

    @property
    def queues(self) -> tuple[Any, ...]:
        return self.commands.heals, self.commands.queue, self.disruption._tells

    def put(self, name: str, *, true: tuple[str, ...] = ALL_TRUE, **metadata: Any) -> None:
        """A node with its NodeClaim."""
        self.server.put(
            claim(name, provider_id=f"kwok://{name}", true=true, since=LONG_AGO, **metadata),
            node(name, labels={names.NODEPOOL_LABEL: "general"}),
        )

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
        self.disruption.stop()


def bodies(server: TinyServer) -> dict[str, Any]:
    """Every NodeClaim that the server has, by name."""
    return {name: cast(Any, thing) for (kind, name), thing in server.objects.items() if kind == "nodeclaims"}
