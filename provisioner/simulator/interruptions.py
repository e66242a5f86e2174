"""Spot instances that their cloud takes back, handled by `interruption` as in a cluster: only the message is simulated, and the end after it."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.interruption import INSTANCE_TERMINATED, Interruption
from provisioner.cloudprovider.types import LaunchedInstance
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.interruption.controller import Interruptions
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.simulator.api_server import ApiServer, ServerChange
from provisioner.simulator.ledger import Ledger
from provisioner.simulator.market import ByOffering, CloudManners
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.simulator.workloads.chance import Chance
from provisioner.state.cluster import Cluster
from provisioner.termination.ends import Ends

_HOUR: Final = 3600.0
_WORKERS: Final = 8


@dataclass(eq=False, slots=True)
class _Notice:
    """An instance that is about to be taken back: how many pods it had that somebody makes again, and how many of them run again."""

    pods: int = 0
    again: int = 0


@dataclass(slots=True)
class _Interrupted:
    """A pod of an instance that is about to be taken back."""

    uid: str
    notice: _Notice


@dataclass(frozen=True, slots=True)
class Replacing:
    """Who makes pods again.

    Attributes:
        place_of: what a pod and its replacement have in common; None for pods that nobody makes again.
        misses: whether a pod of that place is wanted and does not run.
    """

    place_of: Callable[[dict[str, Any]], Hashable | None]
    misses: Callable[[Any], bool]


@dataclass
class SpotInterruptions:
    """Draws interruptions, and sends the messages that the queue of a cloud would send.

    Attributes:
        rates: per hour.
    """

    server: ApiServer
    clock: VirtualClock
    agenda: Agenda
    ledger: Ledger
    manners: CloudManners
    rates: ByOffering
    chance: Chance
    replacing: Replacing
    _notices: dict[str, _Notice] = field(default_factory=dict)  # by name of the Node
    _interrupted: dict[Hashable, _Interrupted] = field(default_factory=dict)
    _controller: Interruptions | None = None
    _cluster: Cluster | None = None

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> list[Controller]:
        """The controller that answers them; none where no instance is ever interrupted."""
        if self.rates.none:
            return []
        pool = base.pool(_WORKERS, "interruption")
        self._cluster = base.cluster
        self._controller = Interruptions(
            base.cluster,
            ending.taints,
            writing.claims,
            base.recorder,
            pool,
            base.clock,
            ledger=ledger,
            plan=base.plan_again,
            postponed=ending.live.postponed,
        )
        return [Controller(runner=self._controller.poller, pools=(pool,))]

    def launched(
        self, instance: LaunchedInstance, runs: Callable[[], bool], taken: Callable[[], object], end: Callable[[], None]
    ) -> None:
        """An instance was launched; spot instances may be interrupted.

        Args:
            instance: that one.
            runs: whether it has not been terminated yet.
            taken: is told when its notice comes.
            end: ends it.
        """
        rate = self.rates.of(instance.instance_type, instance.zone, instance.capacity_type)
        if instance.capacity_type != names.CAPACITY_SPOT or rate <= 0:
            return

        def notice() -> None:
            if runs():
                taken()
                self._notice(instance, runs, end)

        self.agenda.after(self.chance.gap(_HOUR / rate), notice)

    def _notice(self, instance: LaunchedInstance, runs: Callable[[], bool], end: Callable[[], None]) -> None:
        notice = self._notices[instance.node_name] = _Notice()
        for pod in self.server.pods_on(instance.node_name):
            self._follow(pod)
        self._mark(instance, self.manners.notice(self.clock.now()))

        def over() -> None:
            del self._notices[instance.node_name]
            for place in [place for place, one in self._interrupted.items() if one.notice is notice]:
                del self._interrupted[place]
                notice.pods -= not self.replacing.misses(place)  # it has ended, or is not wanted any more
            self.ledger.interrupted(notice.pods, notice.again)
            if runs():
                end()
                self._lost(instance)

        self.agenda.after(self.manners.notice_seconds, over)

    def _lost(self, instance: LaunchedInstance) -> None:
        """It ended with its Node still there: what ran on it is gone, and the cloud tells so."""
        for pod in self.server.pods_on(instance.node_name):
            self.server.drop("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
        self._mark(instance, Interruption(INSTANCE_TERMINATED))

    def _mark(self, instance: LaunchedInstance, interruption: Interruption | None) -> None:
        claim = self._cluster.claim(instance.claim_name) if self._cluster is not None else None
        if claim is not None and self._controller is not None and interruption is not None:
            self._controller.mark(claim, interruption)

    # ------------------------------------------------------------------ what becomes of pods

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        if self._notices and change.plural == "pods" and change.after is not None:
            self._follow(change.after)

    def _follow(self, pod: dict[str, Any]) -> None:
        notice = self._notices.get(pod["spec"].get("nodeName", ""))
        if notice is None and not self._interrupted:
            return
        place, uid = self.replacing.place_of(pod), pod["metadata"]["uid"]
        if place is None:
            return
        known = self._interrupted.get(place)
        if known is not None and known.uid != uid and pod["status"].get("phase") == "Running":
            known.notice.again += 1
            del self._interrupted[place]
            known = None
        if known is None and notice is not None and "deletionTimestamp" not in pod["metadata"]:
            notice.pods += 1
            self._interrupted[place] = _Interrupted(uid, notice)
