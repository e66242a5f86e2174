"""What the process lends to every room of a term."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.cloudprovider.metering import metered
from provisioner.cloudprovider.types import CloudProvider
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.options import Options
from provisioner.runtime.caches import Caches
from provisioner.runtime.controller import Manager
from provisioner.scheduling.world import Policies
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock
from provisioner.support.precedence import Precedence
from provisioner.support.workers import WorkerPool

#: Controllers that others hand work.
NODECLAIM: Final = "nodeclaim.lifecycle"
NODEPOOL: Final = "nodepool"
#: What changes about a NodePool's nodes is told together.
POOL_DELAY_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Base:
    """What every room makes its controllers of.

    Attributes:
        provider: with NodeOverlays applied.
        manager: of all controllers of the term.
        plan_again: plan what waits again; the word says why.
        precedence: of planning over long work.
        pool: makes a number of threads with a name.
        chance: makes what is left to chance.
    """

    caches: Caches
    client: Client
    provider: CloudProvider
    recorder: Recorder
    options: Options
    policies: Policies
    clock: Clock
    manager: Manager
    plan_again: Callable[[str], None]
    precedence: Precedence
    pool: Callable[[int, str], WorkerPool] = WorkerPool
    chance: Callable[[], random.Random] = random.Random

    @property
    def cluster(self) -> Cluster:
        """The state that the caches feed."""
        return self.caches.cluster

    def provider_for(self, controller: str) -> CloudProvider:
        """The provider, its calls counted under that controller's name."""
        return metered(self.provider, controller, self.clock)

    def claim_again(self, name: str) -> None:
        """Look at a NodeClaim again now."""
        self.manager.add(NODECLAIM, (name,))

    def pool_again(self, name: str) -> None:
        """Look at a NodePool again soon; "" is none."""
        if name:
            self.manager.add(NODEPOOL, ((name, POOL_DELAY_SECONDS),))
