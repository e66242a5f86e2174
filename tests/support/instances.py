"""A provider whose instances are there until they are ended, for tests of what must happen before."""

from collections.abc import Callable

from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.cloudprovider.types import LaunchedInstance


class FakeInstances:
    """Instances by provider ID.

    Attributes:
        there: those that run.
        ended: those that were ended, in order; each is gone when it is asked for the next time.
        broken: raised by every call instead of an answer.
        reboots: operations for which a reboot was asked for, in order.
        rebooting: called with each claim and operation once that is counted; what it raises is the answer.
    """

    name = "fake"

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.ended: list[str] = []
        self.broken: CloudError | None = None
        self.reboots: list[str] = []
        self.rebooting: Callable[[NodeClaim, str], object] = lambda *_: None

    def delete(self, claim: NodeClaim) -> None:
        self.end(claim.status.provider_id)

    def end(self, provider_id: str) -> None:
        """End one by its provider ID."""
        self.get(provider_id)
        self.there.discard(provider_id)
        self.ended.append(provider_id)

    def reboot(self, claim: NodeClaim, operation: str) -> None:
        self.reboots.append(operation)
        self.rebooting(claim, operation)

    def get(self, provider_id: str) -> LaunchedInstance:
        if self.broken is not None:
            raise self.broken
        if provider_id not in self.there:
            raise InstanceNotFoundError(provider_id)
        return LaunchedInstance(provider_id, "m5.large", "a", "spot")

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", "KWOKNodeClass")})


class Lingering(FakeInstances):
    """Instances that take a while to end."""

    lingers = True

    def end(self, provider_id: str) -> None:
        if not self.lingers:
            super().end(provider_id)
            super().end(provider_id)
