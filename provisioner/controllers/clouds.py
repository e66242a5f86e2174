"""What a cloud brings into the program beside its `CloudProvider`: background work of every replica, and controllers that only it has."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.kwok.orphans import sort_out
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.cloudprovider.types import CloudProvider, InstanceType, manages
from provisioner.controllers.changes import Change
from provisioner.controllers.core.budget_ledger import BudgetLedger
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.controllers.core.disrupted_taint import DisruptedTaints
from provisioner.controllers.core.garbage import InstanceCollector
from provisioner.controllers.core.live_reads import Postponed
from provisioner.controllers.core.terminator import Terminator
from provisioner.controllers.poller import Poller
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.options import Options
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock

ORPHAN_AFTER: Final = timedelta(minutes=5)
"""A Node of kwok whose claim is gone is left for so long, as an instance of EC2 is."""
_log = logs.get_logger(__name__)


@dataclass(frozen=True)
class Parts:
    """What the leader lends to controllers of a cloud.

    Attributes:
        claim_again: look at a claim again now, by name.
        plan_again: plan what waits again; the word says why.
        taints: closes Nodes to new pods.
        terminator: the only one who ends instances.
        ledger: of disruption budgets, for whatever keeps them.
        postponed: whether an end has to wait until the caches have caught up; see `core.live_reads`.
        beside: that another Karpenter leads, as a sentence; "" where none does.
    """

    cluster: Cluster
    client: Client
    writer: ClaimWriter
    recorder: Recorder
    clock: Clock
    claim_again: Callable[[str], None]
    plan_again: Callable[[str], None]
    taints: DisruptedTaints
    terminator: Terminator
    ledger: BudgetLedger
    postponed: Postponed
    beside: Callable[[], str]


class Term(Protocol):
    """The controllers that only one cloud has, for as long as this process leads."""

    def start(self) -> None:
        """Begin to act."""
        ...

    def stop(self) -> None:
        """Finish what is under way and act no more."""
        ...

    def heard(self, change: Change) -> None:
        """One event of a watch, after the state has taken it in; see `program.Caches.listen`."""
        ...


class Cloud(Protocol):
    """A provider with everything that belongs to it."""

    @property
    def provider(self) -> CloudProvider:
        """The provider itself."""
        ...

    def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The pool's instance types with what instances of them have; prices may be old. Never waits."""
        ...

    def start(self) -> None:
        """Begin what every replica does; the caches are full."""
        ...

    def is_uncertain(self, claim: NodeClaim) -> bool:
        """Whether nobody can say now if the claim's instance is there, so that nothing may be concluded from not finding it."""
        ...

    def lead(self, parts: Parts) -> Term:
        """The controllers of a term, not started yet."""
        ...

    def stop(self) -> None:
        """End everything."""
        ...


class KwokTerm:
    """What only kwok has: who looks for Nodes of no claim."""

    def __init__(self, provider: KwokProvider, parts: Parts) -> None:
        collector = InstanceCollector(
            provider.instances,
            sort_out,
            lambda provider_id: parts.terminator.end_orphan(provider_id, provider.end),
            parts.cluster,
            parts.client,
            parts.clock,
            look_again=parts.claim_again,
            orphan_after=ORPHAN_AFTER,
            beside=parts.beside,
        )
        self.garbage = Poller("instance-garbage", collector.poll)

    def start(self) -> None:
        self.garbage.start()

    def stop(self) -> None:
        self.garbage.stop()

    def heard(self, change: Change) -> None:
        """Nothing to do."""


class KwokCloud:
    """kwok: its provider, and who collects its orphans."""

    def __init__(self, provider: KwokProvider) -> None:
        self.provider = provider

    def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The catalogue; nothing of a pool that is another provider's."""
        return self.provider.instance_types(pool) if manages(self.provider, pool.node_class_ref) else ()

    def start(self) -> None:
        """Nothing to do."""

    def is_uncertain(self, claim: NodeClaim) -> bool:  # noqa: ARG002 - the seam has it
        """Never: an instance is its Node."""
        return False

    def lead(self, parts: Parts) -> Term:
        return KwokTerm(self.provider, parts)

    def stop(self) -> None:
        """Make no more Nodes."""
        self.provider.stop()


def kwok_catalogue(options: Options) -> catalogue.KwokCatalogue | None:
    """The catalogue that the options name; None for the built-in one.

    Raises:
        CatalogueError: the file cannot be used.
    """
    if not options.instance_types_file_path:
        return None
    found = catalogue.load(options.instance_types_file_path)
    for bad in found.left_out:
        _log.warning(str(bad))
    return found
