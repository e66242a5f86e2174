"""Which Nodes of kwok are for a NodeClaim that no longer exists. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from provisioner.apis.karpenter import NodeClaim


@dataclass(frozen=True, slots=True)
class Instance:
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


@dataclass(frozen=True, slots=True)
class SortedOut:
    """Instances of no claim.

    Attributes:
        orphans: in order of id; those that end already are left out.
        awaited: none: a claim that waits for its Node finds it by name.
    """

    orphans: tuple[Instance, ...] = ()
    awaited: tuple[str, ...] = ()


def sort_out(instances: Iterable[Instance], claims: Iterable[NodeClaim]) -> SortedOut:
    """Deal instances to claims. Cost: O(instances + claims)."""
    there = {claim.metadata.uid for claim in claims}
    orphans = (one for one in instances if not one.ending and one.owner not in there)
    return SortedOut(tuple(sorted(orphans, key=lambda one: one.id)))
