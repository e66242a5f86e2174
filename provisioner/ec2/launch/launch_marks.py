"""Which claims are launched by one call, and which instance is whose, so that a crash at any point can be continued. Pure.

Claims with equal requests form a batch. Before the call each is marked `<batch>/<attempt>/<ordinal>`; client token and tag of the fleet follow from
batch and attempt alone. Whoever comes later looks the tag up, or sends the same call again, and finds the same instances (`recovery`); their
ids, in order, belong to the ordinals, in order.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim

BATCH_TAG: Final = "dovetail.dev/launch"
_BATCH_LENGTH: Final = 20


class MarkError(ValueError):
    """An annotation that is no mark of a launch."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A claim's place in a launch: the annotation `dovetail.dev/launch`.

    Attributes:
        batch: names the claims that are launched together.
        attempt: counts from 1; another one is another request.
        ordinal: of the claim in its batch, from 0.
    """

    batch: str
    attempt: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.batch}/{self.attempt}/{self.ordinal}"

    @classmethod
    def parse(cls, text: str) -> "Mark":
        """Read the annotation.

        Raises:
            MarkError: it is none.
        """
        parts = text.split("/")
        if len(parts) != 3 or not parts[0] or not all(part.isascii() and part.isdigit() for part in parts[1:]):
            raise MarkError(f"{text!r} is not <batch>/<attempt>/<ordinal>")
        mark = cls(parts[0], int(parts[1]), int(parts[2]))
        if mark.attempt < 1:
            raise MarkError(f"{text!r}: the attempt must be 1 or more")
        return mark

    @property
    def tag(self) -> str:
        """The value of `BATCH_TAG` on the fleet and its instances."""
        return f"{self.batch}/{self.attempt}"

    @property
    def token(self) -> str:
        """The client token: the same for every claim of the attempt, 64 characters at most."""
        return "dovetail-" + hashlib.blake2b(self.tag.encode(), digest_size=20).hexdigest()


def batch_of(request: Mapping[str, Any], claims: Iterable[str]) -> str:
    """A name for the launch of these claims (uids) by this request; another time in the request is another name."""
    content = msgspec.json.encode([request, sorted(claims)], order="deterministic")
    return hashlib.blake2b(content, digest_size=_BATCH_LENGTH // 2).hexdigest()


def dealt(marks: Iterable[Mark], instances: Sequence[str]) -> dict[Mark, str]:
    """Whose instance is which: the n-th id, in order, is that of ordinal n. Ordinals beyond the instances get none.

    `instances` must be all that the attempt launched, those that are gone again too: a list that misses some deals wrongly. The answer of
    CreateFleet is such a list, also when it is repeated with the same token; a describing call right after a launch is not.

    Raises:
        ValueError: two claims have the same ordinal, or the marks are of several attempts.
    """
    ordered = sorted(set(instances))
    owners: dict[int, Mark] = {}
    for mark in marks:
        known = owners.setdefault(mark.ordinal, mark)
        if known is not mark:
            raise ValueError(f"two claims are marked {mark}")
        if mark.tag != next(iter(owners.values())).tag:
            raise ValueError(f"{mark} is of another attempt than {next(iter(owners.values()))}")
    return {mark: ordered[ordinal] for ordinal, mark in sorted(owners.items()) if ordinal < len(ordered)}


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
