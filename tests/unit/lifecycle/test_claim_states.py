"""Every edge between the states of a NodeClaim, and the edges that must not be there: the real controllers over an API server in memory, in many orders."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError, InsufficientCapacityError
from provisioner.cloudprovider.types import CloudProvider, LaunchedInstance
from provisioner.kube import resources
from provisioner.kube.errors import ApiError
from provisioner.lifecycle.controller import Lifecycle
from provisioner.lifecycle.nominations import Nominations
from provisioner.lifecycle.registration import Registrar
from provisioner.lifecycle.steering import Steering
from provisioner.simulator.api_server import ServerChange
from provisioner.support.workers import WorkerPool, pool
from provisioner.termination.controller import Termination
from tests.interleaving.edges import CLAIM_EDGES, TERMINATING, TERMINATING_EDGES, Edge, claim_state
from tests.support.cluster import World, claim, node
from tests.support.instances import FakeInstances
from tests.support.worldserver import WorldServer

ID: Final = "kwok://n"
EDGES: Final = CLAIM_EDGES | TERMINATING_EDGES
STATES: Final = sorted({state for edge in EDGES for state in edge})
LOOKS, REGISTERS, ENDS = "the lifecycle looks", "it registers what has joined", "termination looks at the Node"
JOINS, IS_READY, VANISHES = "the Node joins, and is not ready", "the Node joins, and is ready", "the Node vanishes"
PASSES, OVERDUE = "a moment passes", "every timeout is over"
DELETES, SOON_DELETES = "a user deletes the claim", "a user deletes it just before its next write"
DELETES_IN_LAUNCH = "a user deletes it during its launch"
REFUSES, TAKES = "the API server refuses writes of the claim", "the API server takes them again"
LINGERS, GOES = "its instance takes a while to end", "its instance is gone"
REGISTERED: Final = (LOOKS, JOINS, LOOKS, PASSES, LOOKS, REGISTERS)
INITIALIZED: Final = (LOOKS, IS_READY, LOOKS, REGISTERS)
DRAINED: Final = (LOOKS, ENDS, PASSES, ENDS)
WAYS: Final[dict[Edge, tuple[str, ...]]] = {
    ("none", "created"): (),
    ("created", "launched"): (LOOKS,),
    ("launched", "registered"): REGISTERED,
    ("launched", "initialized"): INITIALIZED,
    ("registered", "initialized"): (*REGISTERED, IS_READY, LOOKS),
    ("created", "ending created"): (DELETES,),
    ("launched", "ending launched"): (LOOKS, OVERDUE, LOOKS),
    ("registered", "ending registered"): (*REGISTERED, DELETES),
    ("initialized", "ending initialized"): (*INITIALIZED, DELETES),
    ("ending created", "ending launched"): (DELETES_IN_LAUNCH, LOOKS),
    ("ending launched", "ending registered"): (*REGISTERED[:-1], SOON_DELETES, REGISTERS),
    ("ending launched", "ending initialized"): (*INITIALIZED[:-1], SOON_DELETES, REGISTERS),
    ("ending registered", "ending initialized"): (*REGISTERED, IS_READY, SOON_DELETES, LOOKS),
    ("ending created", "none"): (DELETES, LOOKS),
    ("ending launched", "none"): (LOOKS, DELETES, LOOKS),
    ("ending registered", "none"): (*REGISTERED, VANISHES, DELETES, LOOKS),
    ("ending initialized", "none"): (*INITIALIZED, VANISHES, DELETES, LOOKS),
    ("ending created", TERMINATING): (LINGERS, REFUSES, LOOKS, TAKES, DELETES, LOOKS),
    ("ending launched", TERMINATING): (LINGERS, LOOKS, DELETES, LOOKS),
    ("ending registered", TERMINATING): (LINGERS, *REGISTERED, DELETES, *DRAINED),
    ("ending initialized", TERMINATING): (LINGERS, *INITIALIZED, DELETES, *DRAINED),
    (TERMINATING, "none"): (LINGERS, LOOKS, DELETES, LOOKS, GOES, LOOKS),
}
"""How a claim comes to go along each edge; it is the last that it goes along."""
STEPS = 10
LIKELY: Final = (*[LOOKS] * 6, *[PASSES] * 4, *[ENDS] * 3, *[REGISTERS] * 2)
UNREGISTERED: Final = {"key": names.UNREGISTERED_TAINT.key, "effect": names.UNREGISTERED_TAINT.effect}


class Server(WorldServer):
    """Notes every edge of a claim in `seen`, in their order."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: list[Edge] = []

    def _heard(self, change: ServerChange) -> None:
        before, after = claim_state(change.before), claim_state(change.after)
        if change.plural == "nodeclaims" and before != after:
            self.seen.append((before, after))
        super()._heard(change)

    def user_deletes(self) -> None:
        """Somebody deletes the claim, where it is there and stays."""
        self.remove("nodeclaims", "c")


def nothing() -> None:
    """What happens as a rule."""


class Cloud(FakeInstances):
    """One instance.

    Attributes:
        refusal: of a launch; None launches.
        lingers: it takes a while to end, as one of EC2 does; one of kwok is gone at once.
        meanwhile: happens while a launch is under way.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refusal: CloudError | None = None
        self.lingers = False
        self.meanwhile: Callable[[], None] = nothing

    def create(self, _: NodeClaim) -> LaunchedInstance:
        if self.refusal is not None:
            raise self.refusal
        self.there.add(ID)
        self.meanwhile()
        return LaunchedInstance(ID, "c-4x-amd64-linux", "test-zone-a", "spot")

    def delete(self, claim: NodeClaim) -> None:
        """Also of a claim that has not heard of its instance."""
        self.end(ID)

    def end(self, provider_id: str) -> None:
        self.get(provider_id)
        if not self.lingers:
            super().end(provider_id)
            raise InstanceNotFoundError(provider_id)

    def registration_hooks(self) -> tuple[()]:
        return ()


class Play:
    """One claim, its instance and its Node, under everything that leads it from state to state."""

    def __init__(self, workers: WorkerPool) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.server = Server(self.world)
        self.cloud = Cloud()
        provider = cast(CloudProvider, self.cloud)
        cluster, server, terminator = self.world.cluster, self.server, self.server.terminator(self.cloud)
        self.registering: list[str] = []
        self.lifecycle = Lifecycle(
            cluster, server.client, provider, terminator, server.writer, server.recorder, self.clock,
            register=self.registering.append,
            health=lambda _pool, _good, _why: None,
            nodes_are_stale=lambda: False,
        )  # fmt: skip
        self.registrar = Registrar(
            cluster, server.client, server.writer, server.recorder, workers, self.clock,
            nominations=Nominations(
                cluster, server.client, workers, self.clock,
                pods=cluster.waiting,
                steering=Steering("false", self.clock),
            ),
            again=lambda _: None,
            health=lambda _pool, _good: None,
        )  # fmt: skip
        self.termination = Termination(
            cluster, server.client, provider, server.writer, server.evictions, server.taints, terminator, server.recorder,
            self.clock,
            pods_are_stale=lambda: False,
        )  # fmt: skip
        server.client.create(resources.NODECLAIMS, server_side(claim("c")))

    def moves(self) -> dict[str, Callable[[], object]]:
        """Everything that may happen to it, by name."""
        server, cloud = self.server, self.cloud
        return {
            LOOKS: self.look,
            REGISTERS: self.register,
            ENDS: lambda: self.termination.reconcile("n"),
            JOINS: lambda: self.join(ready=False),
            IS_READY: lambda: self.join(ready=True),
            VANISHES: self.vanish,
            PASSES: lambda: self.clock.advance(3.0),
            OVERDUE: lambda: self.clock.advance(1000.0),
            "the cloud has nothing": lambda: setattr(cloud, "refusal", InsufficientCapacityError("c", "sold out")),
            "the cloud fails": lambda: setattr(cloud, "refusal", CloudError("broken")),
            "the cloud has what is asked for": lambda: setattr(cloud, "refusal", None),
            LINGERS: lambda: setattr(cloud, "lingers", True),
            GOES: lambda: cloud.there.discard(ID),
            DELETES: server.user_deletes,
            SOON_DELETES: lambda: server.meanwhile.update(c=server.user_deletes),
            DELETES_IN_LAUNCH: lambda: setattr(cloud, "meanwhile", server.user_deletes),
            REFUSES: lambda: server.refuse.update(c=500),
            TAKES: lambda: server.refuse.pop("c", None),
        }

    def go(self, moves: Iterable[str]) -> list[Edge]:
        """What happens, one after another; the edges that the claim goes along."""
        known = self.moves()
        for move in moves:
            known[move]()
        return self.server.seen

    def look(self) -> None:
        with suppress(ApiError):  # whoever calls it tries again
            self.lifecycle.reconcile("c")

    def register(self) -> None:
        names_of, self.registering = self.registering, []
        self.registrar._do(names_of)

    def join(self, *, ready: bool) -> None:
        if ID not in self.cloud.there:
            return
        if "n" not in self.server.objects["nodes"]:
            self.server.put(
                node("n", provider_id=ID, ready=ready, taints=(UNREGISTERED,), finalizers=[names.TERMINATION_FINALIZER])
            )
        else:
            wire = self.server.objects["nodes"]["n"]
            conditions = [{**one, "status": "True" if ready else "False"} for one in wire["status"]["conditions"]]
            self.server.store("nodes", {**wire, "status": {**wire["status"], "conditions": conditions}})

    def vanish(self) -> None:
        if self.server.get("nodes", "n") is not None:
            self.server.drop("nodes", "n")


def server_side(made: NodeClaim) -> dict[str, Any]:
    """What is sent to create it."""
    meta = made.metadata
    return {
        "apiVersion": resources.NODECLAIMS.api_version,
        "kind": "NodeClaim",
        "metadata": {
            "name": meta.name,
            "labels": meta.labels,
            "annotations": meta.annotations,
            "finalizers": meta.finalizers,
        },
        "spec": made.spec,
    }


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with pool(2) as made:
        yield made


@pytest.fixture(scope="module")
def seen(workers: WorkerPool) -> set[Edge]:
    """Every edge that claims went along: on all of the ways, then by each move, and then wherever it went on from there."""
    found: set[Edge] = set()
    chance = random.Random(0)
    moves = list(Play(workers).moves())
    for way, move in itertools.product(WAYS.values(), moves):
        found.update(Play(workers).go((*way, move, LOOKS, *chance.choices((*moves, *LIKELY), k=STEPS))))
    return found


@pytest.mark.parametrize("edge", EDGES, ids=" -> ".join)
def test_there_is_a_way_along_every_edge(edge: Edge, workers: WorkerPool) -> None:
    assert Play(workers).go(WAYS[edge])[-1] == edge


@pytest.mark.parametrize(
    "edge", [one for one in itertools.permutations(STATES, 2) if one not in EDGES], ids=" -> ".join
)
def test_there_is_no_way_along_any_other(edge: Edge, seen: set[Edge]) -> None:
    assert edge not in seen
