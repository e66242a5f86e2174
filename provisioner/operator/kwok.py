"""kwok in the program: its provider, the controller that only it has, and the instance types that the options name."""

from datetime import timedelta
from typing import Final

from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.kwok.orphans import sort_out
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.cloudprovider.types import InstanceType, manages
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.lifecycle.garbage_collection import InstanceCollector
from provisioner.nodeclaims.controllers import Writers
from provisioner.options import Options
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.support import logs
from provisioner.termination.controllers import Ends

ORPHAN_AFTER: Final = timedelta(minutes=5)
"""A Node of kwok whose claim is gone is left for so long, as an instance of EC2 is."""


_log = logs.get_logger(__name__)


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

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> list[Controller]:  # noqa: ARG002 - the seam has it
        """Who looks for Nodes of no claim."""
        collector = InstanceCollector(
            self.provider.instances,
            sort_out,
            lambda provider_id: ending.terminator.end_orphan(provider_id, self.provider.end),
            base.cluster,
            base.client,
            writing.claims,
            base.clock,
            look_again=base.claim_again,
            orphan_after=ORPHAN_AFTER,
            beside=base.caches.beside,
        )
        return [Controller(name="instance.garbagecollection", poll=collector.poll)]

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
