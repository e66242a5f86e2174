"""One batch of the provisioner on a state of its own, without queues: what it creates is answered by a fake API server."""

import random
from collections.abc import Callable, Iterable
from typing import Any, cast

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admission
from provisioner.buffers.controller import CapacityBuffers
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import CloudProvider
from provisioner.kube.client import Client
from provisioner.nodeclaims.creator import ClaimCreator
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.provisioning.provisioner import Batch, ProvisioningController
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool
from tests.support.cluster import World
from tests.support.kube import FakeAnswer, FakeApi, Sent
from tests.support.tinyserver import Told


def claim_creator(
    client: Client,
    cluster: Cluster,
    plans: PlanWriter,
    *,
    effects: Callable[[Iterable[Effect]], None] = lambda _: None,
    created: Callable[[NodeClaim], None] = lambda _: None,
    chance: random.Random | None = None,
    growth: GrowthLedger | None = None,
) -> ClaimCreator:
    """One that tells nobody unless told to, and always draws the same names."""
    return ClaimCreator(
        client,
        cluster,
        plans,
        effects=effects,
        created=created,
        chance=chance or random.Random(1),
        growth=growth or GrowthLedger(cluster, GrowthLimits(), lambda _: {}, cluster._clock),
    )


class KwokTypes:
    """A provider with the generated types of kwok, or others, for every pool; `meanwhile` runs whenever somebody asks for them."""

    name = "kwok"
    well_known_labels = names.WELL_KNOWN_LABELS
    reservation_label = ""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        self.types = catalogue.generated().types

    def instance_types(self, _: object) -> Any:
        self.meanwhile()
        return self.types

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", "KWOKNodeClass")})


class Batches:
    """Runs batches of `world`, whose requests to create are answered by `answer`.

    Attributes:
        again: why other batches were asked for.
        created: names of the claims that were.
        effects: what the state wanted done.
        told: keeps the events.
    """

    def __init__(self, world: World, answer: Callable[[Sent], FakeAnswer], *, seed: int = 1) -> None:
        self.world, self.answer, self.provider = world, answer, KwokTypes()
        self.again: list[str] = []
        self.created: list[str] = []
        self.effects: list[Effect] = []
        self.api = FakeApi(respond=lambda sent: self.answer(sent), clock=world.clock)
        self.client = Client(self.api, world.clock)
        self.told = Told(self.client, world.clock)
        self._seed = seed

    def run(self, **options: Any) -> Batch | None:
        """One batch, its creates included; `options` are `ProvisioningController`'s."""
        workers, cluster = WorkerPool(1), self.world.cluster
        plans = PlanWriter(cluster, ClaimWriter(self.client, cluster, self.effects.extend), workers)
        chance = random.Random(self._seed)
        creator = claim_creator(
            self.client,
            cluster,
            plans,
            effects=self.effects.extend,
            created=lambda made: self.created.append(made.name),
            chance=chance,
        )
        batch = ProvisioningController(
            cluster,
            creator,
            cast(CloudProvider, self.provider),
            self.told,
            workers,
            options.pop("clock", self.world.clock),
            retry=self.again.append,
            chance=chance,
            plans=plans,
            buffers=options.pop("buffers", no_buffers(self.client, self.world.clock)),
            **options,
        ).run()
        workers.close()
        return batch


def no_buffers(client: Client, clock: Clock) -> CapacityBuffers:
    """As where the feature gate CapacityBuffer is off."""
    return CapacityBuffers(
        client, clock, None, admission=Admission, facts=lambda name: StampFacts(name, {}), plan_again=lambda _: None
    )
