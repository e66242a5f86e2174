"""Which Nodes of kwok are for a NodeClaim that no longer exists. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import SortedOut


@dataclass(frozen=True, slots=True)
class KwokInstance:
    """What the collector of orphans needs of a Node.

    Attributes:
        id: the Node's name.
        provider_id: of the Node.
        launched: when the Node was created.
        owner: UID of the claim that it was made for.
        ending: the Node is being deleted.
    """

    id: str
    provider_id: str
    launched: datetime | None
    owner: str
    ending: bool


def sort_out(instances: Iterable[KwokInstance], claims: Iterable[NodeClaim]) -> SortedOut[KwokInstance]:
    """Deal instances to claims; a claim that waits for its Node finds it by name. Cost: O(instances + claims)."""
    there = {claim.metadata.uid for claim in claims}
    orphans = (one for one in instances if not one.ending and one.owner not in there)
    return SortedOut(orphans=tuple(sorted(orphans, key=lambda one: one.id)))
