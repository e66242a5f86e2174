"""A provisioner, launches and the keeper of gangs, one after another on an API server in memory, that may be killed at any write."""

import random
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.launches import is_launched
from provisioner.apis.pods import Pod
from provisioner.lifecycle.gang_keeper import GangKeeper
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import with_conditions
from provisioner.state.claim_plans import Launch
from provisioner.state.effects import ClaimUnneeded, Effect
from provisioner.support.workers import WorkerPool
from provisioner.values.message import ConditionMessage
from tests.support.batches import KwokTypes, claim_creator, provisioner_of
from tests.support.cluster import World, node, pod, pool
from tests.support.worldserver import WorldServer

UNREGISTERED: Final = msgspec.to_builtins(names.UNREGISTERED_TAINT)
ONE_TYPE = ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]},)
GANG = {names.GANG: "train", names.GANG_MINIMUM: "4"}
MEMBERS = tuple(pod(name, owner="job", cpu="3", annotations=GANG) for name in "abcd")


class InTurn:
    """Does at once what a pool of threads would do some time."""

    def submit(self, act: Any) -> None:
        act()


class Process:
    """One that leads: batches, creations and launches, one after another; `before` had the same API server."""

    def __init__(self, *pods: Pod, before: "Process | None" = None) -> None:
        self.world = World(settled=False)
        self.server: WorldServer = WorldServer(self.world, before.server if before is not None else None)
        self.broken = list[str]()  # what was launched while others of its set were not there
        self.world.cluster.pool_changed(None, pool(requirements=ONE_TYPE))
        self.world.add(*pods)
        cluster, turns = self.world.cluster, cast(WorkerPool, InTurn())
        self.carry_out(cluster.settle())
        seed = 0 if before is None else 1
        creator = claim_creator(
            self.server.client,
            cluster,
            PlanWriter(cluster, self.server.writer, turns),
            effects=self.carry_out,
            created=lambda made: self.look(made.name),
            chance=random.Random(seed),
        )
        self.provider = KwokTypes()
        self.controller = provisioner_of(
            self.server, creator, turns, provider=self.provider, chance=random.Random(seed)
        )
        self.refuses: Callable[[NodeClaim], bool] = lambda _: False
        self.hangs: Callable[[NodeClaim], bool] = lambda _: False
        self.keeper = GangKeeper(
            cluster,
            self.server.writer,
            self.server.recorder,
            self.world.clock,
            elsewhere=self.controller.planning.fits_elsewhere,
        )

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ClaimUnneeded) and self.world.cluster.is_unneeded(effect.claim):
                self.server.writer.delete_unneeded(self.claims[effect.claim])

    @property
    def claims(self) -> dict[str, NodeClaim]:
        return {one.name: one for one in self.world.cluster.claims()}

    def go_on(self, seconds: int = 4, step: int = 1) -> None:
        """What happens in so many seconds, looked at in steps."""
        for _ in range(0, seconds, step):
            self.controller.run()
            for name in self.claims:
                self.look(name)
            self.keeper.poll()
            self.world.clock.advance(step)

    def look(self, name: str) -> None:
        """As the lifecycle of a NodeClaim looks at it."""
        one = self.claims[name]
        if one.metadata.deletion_timestamp is not None:
            self.server.writer.drop_finalizer(one)
        elif not is_launched(one) and one.metadata.uid:
            begins = self.world.cluster.launch_begins(name)
            if begins is Launch.UNNEEDED:
                self.server.writer.delete_unneeded(one)
            elif begins is Launch.BEGIN and self.refuses(one):
                self.world.cluster.launch_refused(name)
                self.keeper.short(name, ever=True)
            elif begins is Launch.BEGIN and not self.hangs(one):
                self.launch(one)

    def launch(self, one: NodeClaim) -> None:
        for mine in sets_of(one.metadata.annotations):
            mates = [each for each in self.there() if mine in sets_of(each.metadata.annotations)]
            if len(mates) < mine.nodes and not any(map(is_launched, mates)):
                self.broken.append(one.name)
        said = ConditionMessage(names.LAUNCHED, names.TRUE)
        conditions = with_conditions(one, said, now=self.world.clock.now())
        self.server.writer.status(one, conditions, providerID=f"kwok://{one.name}")
        self.keeper.launched(one.name)

    def joins(self, *claims: str) -> None:
        """Nodes of these have come, and are ready."""
        for name in claims:
            self.server.put(node(name, provider_id=f"kwok://{name}", taints=(UNREGISTERED,)))

    def there(self) -> list[NodeClaim]:
        """What the API server has, and does not delete."""
        every = map(self.server.claim, self.server.objects["nodeclaims"])
        return [one for one in every if one.metadata.deletion_timestamp is None]

    def assert_whole(self) -> None:
        assert not self.broken
        there = self.there()
        assert len(there) == len(self.server.objects["nodeclaims"]) == len(MEMBERS)
        assert all(map(is_launched, there))
        assert len({sets_of(one.metadata.annotations) for one in there}) == 1
        assert sorted(name for one in there for name in self.world.assigned(one.name)) == list("abcd")
