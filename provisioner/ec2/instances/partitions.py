"""Partitions of placement groups that EC2 chooses at the launch: a Node is let in with the label. Source: spec/karpenter-aws.md 3.6.

Differs: one call of EC2 is about all instances that wait (`ec2.instances.label_controller`), and a Node waits no longer than `PATIENCE_SECONDS`: if EC2 does
not answer, it is let in, and gets its label later.
"""

import threading
from collections.abc import Iterable
from typing import Final

from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2 import labels
from provisioner.support.clock import Clock
from provisioner.values.bounded import forget_oldest

AGAIN_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 60.0
_MOST_WAITING: Final = 20_000


def lacks_partition(claim: NodeClaim) -> bool:
    """Whether the claim's instance is in a placement group, and nobody has said in which partition. Pure."""
    found = claim.metadata.labels
    return (
        bool(found.get(labels.PLACEMENT_GROUP_ID))
        and not found.get(labels.PLACEMENT_GROUP_PARTITION)
        and bool(claim.status.provider_id)
        and claim.metadata.deletion_timestamp is None
    )


class PartitionHook:
    """A `cloudprovider.types.RegistrationHook`: Nodes in a placement group wait until their partition is known. Thread-safe."""

    name = "placement-group-partition"

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._without: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}  # provider ID -> when its Node was first kept waiting

    def without(self, provider_ids: Iterable[str]) -> None:
        """These are all instances that are known to be in a group that has no partitions."""
        self._without = frozenset(provider_ids)

    def wait(self, claim: NodeClaim) -> float:
        """See `RegistrationHook.wait`."""
        provider_id = claim.status.provider_id
        with self._lock:
            if not lacks_partition(claim) or provider_id in self._without:
                self._since.pop(provider_id, None)
                return 0.0
            now = self._clock.monotonic()
            since = self._since.setdefault(provider_id, now)
            forget_oldest(self._since, _MOST_WAITING)
        return AGAIN_SECONDS if now - since < PATIENCE_SECONDS else 0.0
