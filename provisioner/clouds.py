"""What a cloud brings into the program beside its `CloudProvider`: background work of every replica, and controllers that only it has."""

from typing import Protocol

from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.types import CloudProvider, InstanceType
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.termination.ends import Ends


class Cloud(Protocol):
    """A provider with everything that belongs to it."""

    @property
    def provider(self) -> CloudProvider: ...

    def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """The pool's instance types with what instances of them have; prices may be old. Never waits."""
        ...

    def start(self) -> None:
        """Begin what every replica does; the caches are full."""
        ...

    def is_uncertain(self, claim: NodeClaim) -> bool:
        """Whether nobody can say now if the claim's instance is there, so that nothing may be concluded from not finding it."""
        ...

    def controllers(self, base: Base, writing: Writers, ending: Ends, ledger: BudgetLedger) -> list[Controller]:
        """The controllers that only this cloud has, for a term that begins now; none is started yet."""
        ...

    def stop(self) -> None:
        """End everything."""
        ...
