"""Marks on claims: who is in which launch, and which ordinals are left when some could not be written. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.aws.batches import Mark, MarkError


def mark_of(claim: NodeClaim) -> Mark | None:
    """The claim's mark; None without one that can be read."""
    text = claim.metadata.annotations.get(names.LAUNCH_ANNOTATION)
    if text is None:
        return None
    try:
        return Mark.parse(text)
    except MarkError:
        return None


def members(claims: Iterable[NodeClaim], tag: str) -> dict[Mark, NodeClaim]:
    """The claims of one attempt; of two that are marked alike (somebody copied one) the older."""
    found: dict[Mark, NodeClaim] = {}
    for claim in sorted(claims, key=age):
        mark = mark_of(claim)
        if mark is not None and mark.tag == tag:
            found.setdefault(mark, claim)
    return found


def age(claim: NodeClaim) -> tuple[float, str]:
    """Sorts claims: the oldest first, those of one second by name."""
    created = claim.metadata.creation_timestamp
    return created.timestamp() if created is not None else float("inf"), claim.metadata.name


def first_marks(claims: Sequence[NodeClaim], batch: str) -> list[Mark]:
    """Marks for claims that are launched together, in their order, of an attempt that none of them has seen."""
    attempt = 1 + max((mark.attempt for claim in claims if (mark := mark_of(claim)) is not None), default=0)
    return [Mark(batch, attempt, ordinal) for ordinal in range(len(claims))]


def moves(written: Mapping[int, NodeClaim], failed: Collection[int]) -> list[tuple[int, int]]:
    """How to close the gaps that failed writes left: (from, to) ordinals, so that those in use become 0, 1, 2 and so on.

    Nothing is launched yet, so a claim may change its ordinal.
    """
    gaps = [ordinal for ordinal in sorted(failed) if ordinal < len(written)]
    surplus = [ordinal for ordinal in sorted(written) if ordinal >= len(written)]
    return list(zip(surplus, gaps, strict=True))
