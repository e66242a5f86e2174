"""One batch of the provisioner on a state of its own, without queues."""

import random
from collections.abc import Callable, Iterable
from typing import Any, cast

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
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
from provisioner.provisioning.outcomes import Batch
from provisioner.provisioning.provisioner import ProvisioningController
from provisioner.requests.controller import ProvisioningRequests
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool
from tests.support.cluster import World, pool
from tests.support.worldserver import WorldServer


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
    """Runs batches of `world`.

    Attributes:
        again: why other batches were asked for.
        created: names of the claims that were.
        effects: what the state wanted done.
        told: keeps the events.
    """

    def __init__(self, *pods: Pod, seed: int = 1, **pool_spec: Any) -> None:
        """A pool and pods that wait."""
        self.world, self.provider = World(), KwokTypes()
        self.server = WorldServer(self.world)
        self.api, self.told = self.server.api, self.server.recorder
        self.again: list[str] = []
        self.created: list[str] = []
        self.effects: list[Effect] = []
        self._seed = seed
        self.pool = pool(**pool_spec)
        self.world.cluster.pool_changed(None, self.pool)
        self.growth = GrowthLedger(self.world.cluster, GrowthLimits(), lambda _: {}, self.world.clock)
        self.world.add(*pods)

    def creator(self, workers: WorkerPool) -> ClaimCreator:
        """One that draws the same names as any other of these batches."""
        server, cluster = self.server, self.world.cluster
        plans = PlanWriter(cluster, ClaimWriter(server.client, cluster, self.effects.extend), workers)
        return claim_creator(
            server.client,
            cluster,
            plans,
            effects=self.effects.extend,
            created=lambda made: self.created.append(made.name),
            chance=random.Random(self._seed),
            growth=self.growth,
        )

    def provisioner(self, workers: WorkerPool, **options: Any) -> ProvisioningController:
        """`options` are as of `ProvisioningController`."""
        server, creator = self.server, self.creator(workers)
        return provisioner_of(
            server, creator, workers, **{"provider": self.provider, "retry": self.again.append, **options}
        )

    def run(self, **options: Any) -> Batch | None:
        """One batch, its creates included; `options` are as of `ProvisioningController`."""
        workers = WorkerPool(1)
        batch = self.provisioner(workers, **options).run()
        workers.close()
        return batch


def provisioner_of(
    server: WorldServer, creator: ClaimCreator, workers: WorkerPool, **options: Any
) -> ProvisioningController:
    """Provisioning over kwok's instance types; `options` are as of `ProvisioningController`."""
    cluster = server.world.cluster
    return ProvisioningController(
        cluster,
        creator,
        cast(CloudProvider, options.pop("provider", None) or KwokTypes()),
        server.recorder,
        workers,
        options.pop("clock", server.world.clock),
        retry=options.pop("retry", lambda _: None),
        chance=options.pop("chance", None) or random.Random(1),
        plans=PlanWriter(cluster, server.writer, workers),
        buffers=options.pop("buffers", no_buffers(server.client, server.world.clock)),
        requests=options.pop("requests", no_requests(server.client, server.recorder, server.world.clock)),
        **options,
    )


def no_requests(client: Client, recorder: Any, clock: Clock) -> ProvisioningRequests:
    """As where --provisioning-classes names none."""
    return ProvisioningRequests(
        client,
        recorder,
        clock,
        lambda: None,
        (),
        admission=Admission,
        facts=lambda name: StampFacts(name, {}),
        plan_again=lambda _: None,
    )


def no_buffers(client: Client, clock: Clock) -> CapacityBuffers:
    """As where the feature gate CapacityBuffer is off."""
    return CapacityBuffers(
        client, clock, None, admission=Admission, facts=lambda name: StampFacts(name, {}), plan_again=lambda _: None
    )
