"""One provisioner as the program puts it together, without its HTTP servers: caches, controllers of a term, and its right to lead."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from provisioner.cloudprovider.kwok.catalogue import KwokCatalogue, generated
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.controller import DisruptionController
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.kube.lease import Fence, LeaseTerm
from provisioner.operator.kwok import KwokCloud
from provisioner.operator.term import Term
from provisioner.options import Options, TimeLimits
from provisioner.runtime.caches import Caches
from provisioner.simulator.api_server import ApiServer
from tests.interleaving.gangs import Market
from tests.interleaving.server import Link, Stream
from tests.interleaving.threads import STAGE, Clock, Dead, Event, Lock

_fresh, _ask = BudgetLedger._fresh, DisruptionController._ask


def _interrupted(self: BudgetLedger) -> Any:
    """Between the look at the budgets and what is begun by it another thread may go on; where it must not, a lock forbids it."""
    found = _fresh(self)
    STAGE.maybe_stand(STAGE.at_requests)
    return found


def _slowly(self: DisruptionController, method: Any, view: Any) -> Any:
    """A method may take a while to answer: on a large cluster it does."""
    answer = _ask(self, method, view)
    if answer.proposals and STAGE.chance.random() < SLOW:
        STAGE.stand(until=STAGE.seconds + STAGE.chance.choice((0.0, 1.0, 3.0)))
    return answer


SLOW: Final = 0.3
if vars(threading)["Lock"] is Lock:  # installed: a process that plays, not one whose tests look at the oracle
    BudgetLedger._fresh = _interrupted  # type: ignore[method-assign]
    DisruptionController._ask = _slowly  # type: ignore[method-assign]

SIZES: Final = ("c-2x-amd64-linux", "c-4x-amd64-linux", "c-8x-amd64-linux")
CATALOGUE: Final = KwokCatalogue(tuple(one for one in generated().types if one.name in SIZES))
TYPES: Final = {one.name: one for one in CATALOGUE.types}
RENEW_SECONDS: Final = 10.0
"""A term ends so long after its last renewal."""
TAKE_SECONDS: Final = 15.0
"""After so long without one another process leads."""

REGISTRATION: Final = timedelta(seconds=40), timedelta(minutes=15)
"""For so long a Node may take to join; beside gangs it is longer than its gang waits for it, as it is by default."""


class Few(Options):
    """As many threads as can get into each other's way."""

    def workers(self, low: int, high: int) -> int:
        return 3


@dataclass
class Told:
    """Keeps what is said."""

    events: list[tuple[str, str, str]] = field(default_factory=list)


class Silent(Recorder):
    """Writes no events."""

    def __init__(self, client: Client, told: Told) -> None:
        super().__init__(client, "test", Clock())
        self._told = told

    def publish(self, ref: Any, type: Any, reason: str, message: str, dedupe: Any = (), ttl: Any = None) -> None:  # noqa: A002
        self._told.events.append((ref.name, reason, message))


class Process:
    """A process of ours.

    Attributes:
        dead: it was killed, or ended itself.
        leads: it has begun to act.
    """

    def __init__(
        self, name: str, server: ApiServer, chance: Callable[[], float], market: Market | None = None, **options: Any
    ) -> None:
        self.name, self.dead, self.leads = name, False, False
        self.streams: list[Stream] = []
        self.link = Link(server, self, chance)
        self.told = Told()
        self.fence: Fence | None = None
        self.controllers: Term | None = None
        self.problem = ""
        self._term, self._market = LeaseTerm(), market
        self._lead = Event()
        self._options = Few(
            packing="greedy",  # the planning process is another program, in which nobody orders the threads
            disable_cluster_state_observability=True,
            batch_idle_duration=timedelta(seconds=1),
            batch_max_duration=timedelta(seconds=5),
            timeouts=TimeLimits(
                command=timedelta(seconds=60),
                registration=REGISTRATION[market is not None],
                launch=timedelta(seconds=30),
            ),
            **options,
        )
        STAGE.spawn(f"{name} main", self._main, self)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def lead(self) -> None:
        """It holds the Lease from now on."""
        self.fence = Fence(Clock(), STAGE.seconds + RENEW_SECONDS)
        self._lead.set()

    def renew(self) -> None:
        """The Lease was renewed."""
        if self.fence is not None:
            self.fence.extend(STAGE.seconds + RENEW_SECONDS)

    def die(self) -> None:
        """kill -9, by whoever asks."""
        self.dead = True
        if STAGE.current is not None and STAGE.current.owner is self:
            raise Dead

    def _main(self) -> None:
        clock = Clock()
        client = Client(self.link, clock, self._term)
        caches = Caches(self.link, self._options, clock)  # type: ignore[arg-type]
        provider = KwokProvider(
            client, caches.nodes.store, caches.classes.store, clock, CATALOGUE, overlaid=caches.overlays.applied
        )
        cloud = KwokCloud(provider if self._market is None else self._market.around(provider))
        caches.use_types(cloud.types)
        self.caches = caches
        if not caches.start(Event()):  # type: ignore[arg-type]
            return
        self._lead.wait()
        assert self.fence is not None
        self._term.begin(self.fence)
        self.controllers = Term(caches, client, cloud, Silent(client, self.told), self._options, clock)
        self.leads = True
        self.controllers.start()
