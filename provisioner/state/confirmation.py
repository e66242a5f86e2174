"""Which deletions wait for a word of the user, since they look like an accident: older than the installation, or a large part of the fleet at once.

Differs: Karpenter carries out every deletion that it finds.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import ObjectMeta
from provisioner.values.message import Said

WINDOW: Final = timedelta(minutes=1)
"""In which many deletions are one."""
_CONFIRMED: Final = "true"


class DeletionGuard(enum.StrEnum):
    """Why a deletion waits; the value of the annotation."""

    INSTALLATION = "installation"
    CASCADE = "mass-deletion"


@dataclass(frozen=True, slots=True)
class Installation:
    """Since when Dovetail is installed, by the clock of the API server.

    Attributes:
        since: None where that is not known.
        before: UIDs of what was being deleted when this leader began, which counts then: it may be older.
        confirmed: whether everything that waits may go.
    """

    since: datetime | None = None
    before: frozenset[str] = frozenset()
    confirmed: bool = False


def is_confirmed(meta: ObjectMeta) -> bool:
    """Whether the user has said that a deletion is meant."""
    return meta.annotations.get(names.CONFIRM_DELETION, "").strip().lower() == _CONFIRMED


def guard_of(one: NodeClaim | Node) -> DeletionGuard | None:
    """What is written on a NodeClaim or Node that is being deleted and waits for its user; None for every other.

    `termination/deletion_guards.py` writes it, on a Node where its NodeClaim does not wait.
    """
    if one.metadata.deletion_timestamp is None or is_confirmed(one.metadata):
        return None
    written = one.metadata.annotations.get(names.AWAITS_CONFIRMATION, "")
    return DeletionGuard(written) if written in tuple(DeletionGuard) else None


def is_older(meta: ObjectMeta, installation: Installation) -> bool:
    """Whether an object was deleted before Dovetail was installed, or may have been where nobody knows when that was."""
    deleted = meta.deletion_timestamp
    if deleted is None:
        return False
    return meta.uid in installation.before if installation.since is None else deleted <= installation.since


def guard_due(claim: NodeClaim, installation: Installation, *, cascade: bool = False) -> DeletionGuard | None:
    """What should be written on a NodeClaim; None where nothing holds it.

    A mass deletion waits until it is confirmed. What was held because nobody knew since when Dovetail is installed goes once that is known to be earlier.

    Args:
        claim: with what is written on it.
        installation: as it is known now.
        cascade: whether it is part of a mass deletion.
    """
    if claim.metadata.deletion_timestamp is None or is_confirmed(claim.metadata):
        return None
    written = guard_of(claim)
    if cascade or written is DeletionGuard.CASCADE:
        return DeletionGuard.CASCADE
    still_unknown = written is not None and installation.since is None
    return DeletionGuard.INSTALLATION if still_unknown or is_older(claim.metadata, installation) else None


def node_guard_due(node: Node, claim: NodeClaim | None, installation: Installation) -> DeletionGuard | None:
    """What should be written on a Node that was deleted by itself; None where nothing holds it, or its NodeClaim waits and says so."""
    if not is_older(node.metadata, installation) or is_confirmed(node.metadata):
        return None
    confirmed = claim is not None and is_confirmed(claim.metadata)
    told = claim is not None and guard_due(claim, installation) is not None
    return None if confirmed or told else DeletionGuard.INSTALLATION


def why_waits(guard: DeletionGuard, kind: str = "NodeClaim") -> str:
    """Why a deletion waits, as users read it; `kind` is that of the object that waits."""
    if guard is DeletionGuard.INSTALLATION:
        return Said(
            f'it was deleted before Dovetail was installed in this cluster (ConfigMap "{names.INSTALLATION_CONFIGMAP}"), or that is not known. To '
            f"have it terminated, annotate the {kind} or the ConfigMap with {names.CONFIRM_DELETION}=true"
        )
    return Said(
        "it was deleted by a cascade together with a large part of the nodes (--mass-deletion-guard). To have it terminated, annotate the "
        f'{kind} or ConfigMap "{names.INSTALLATION_CONFIGMAP}" with {names.CONFIRM_DELETION}=true'
    )


def mass_deleted(deleted: Mapping[str, datetime], *, share: float, nodes: int) -> frozenset[str]:
    """Those of some deletions that lie in a minute with more than this share of the nodes; all, whatever order they are given in.

    Args:
        deleted: when each began, by name.
        share: of the nodes; 0 is no limit.
        nodes: how many there are, these included.

    Cost: O(n log n).
    """
    if not share:
        return frozenset()
    order = sorted((at, name) for name, at in deleted.items())
    found: set[str] = set()
    first = taken = 0
    for last, (at, _) in enumerate(order):
        while at - order[first][0] > WINDOW:
            first += 1
        if last - first + 1 > share * nodes:
            found.update(name for _, name in order[max(first, taken) : last + 1])
            taken = last + 1
    return frozenset(found)


def is_cascade(claim: NodeClaim, pools: Mapping[str, ObjectMeta], *, definition_ends: bool) -> bool:
    """Whether a NodeClaim was deleted because something above it was: its NodePool, or the definition of all NodeClaims.

    Args:
        claim: that is being deleted.
        pools: NodePools by name.
        definition_ends: whether the definition of NodeClaims is being deleted.
    """
    owners = [one for one in claim.metadata.owner_references if one.kind == "NodePool"]
    return definition_ends or any(
        (pool := pools.get(one.name)) is None or pool.uid != one.uid or pool.deletion_timestamp is not None
        for one in owners
    )


def unexplained(claims: Iterable[NodeClaim], ours: Collection[str]) -> tuple[NodeClaim, ...]:
    """NodeClaims that are being deleted, unconfirmed, and not by us."""
    return tuple(
        one
        for one in claims
        if one.metadata.deletion_timestamp is not None and not is_confirmed(one.metadata) and one.name not in ours
    )
