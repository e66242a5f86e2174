"""Workloads for which nodes are launched and removed again and again: their nodes are left alone for a while.

A cycle is a node that was launched for pods of an owner and disrupted within the hour, unless it was there when the last cycle's
disruption was decided: so ten nodes that a scaled-down workload gives up are one cycle, and the replacement of a replacement is the next.

Differs: Karpenter has nothing like it; demand D2 lists what came of that.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.pods import Pod
from provisioner.state.snapshot import NodeView
from provisioner.values import jsontext
from provisioner.values.message import Said

CYCLES: Final = 3
"""So many within `WINDOW` are a loop."""
WINDOW: Final = timedelta(hours=1)
MOST_CLAIMS, MOST_OWNERS, MOST_OWNERS_OF_A_CLAIM = 20_000, 4096, 32
"""What is remembered at most; the oldest goes first."""

_SKEW: Final = timedelta(minutes=1)
_decode: Final = jsontext.decoder(dict[str, list[int]])


@dataclass(frozen=True, slots=True)
class LoopHolds:
    """Whose nodes are left alone at one instant.

    Attributes:
        owners: until when, by UID.
        claims: the owner that a NodeClaim was made for and that is one of them, by name.
    """

    owners: Mapping[str, datetime] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, node: NodeView) -> tuple[str, datetime] | None:
        """Why the node is left alone, as users read it, and until when; None where it is not. Cost: O(its pods) while anybody is held."""
        if not self.owners:
            return None
        for pod in node.pods:
            if pod.owner is not None and (until := self.owners.get(pod.owner.uid)) is not None:
                owner = f"{pod.owner.kind} {pod.namespace}/{pod.owner.name}"
                return loop_text(owner), until
        bought_for = self.claims.get(node.key.name, "")
        until = self.owners.get(bought_for)
        return None if until is None else (loop_text(Said(f"the owner with UID {bought_for}")), until)


NO_HOLDS: Final = LoopHolds()


def loop_text(owner: str) -> str:
    """What is said of a node that is left alone for a loop."""
    return Said(
        f"Nodes for pods of {owner} were launched and removed {CYCLES} times within an hour; the node is not "
        "disrupted until an hour after the first time"
    )


@dataclass(slots=True)
class _Bought:
    """A NodeClaim: for whom, when, and when its disruption was decided; nobody once it was counted."""

    owners: frozenset[str]
    at: datetime
    decided: datetime | None = None


@dataclass(slots=True)
class _Owner:
    """When the latest cycles of an owner ended, in whole seconds, and when the disruption of the last one was decided."""

    cycles: list[datetime] = field(default_factory=list)
    decided: datetime | None = None


class Loops:
    """What was launched and removed for whom in the last hour. Not thread-safe.

    Memory is bounded. What is needed after a restart stands on the NodeClaims: their plans, and `marks`.
    """

    def __init__(self) -> None:
        self._bought: Final[OrderedDict[str, _Bought]] = OrderedDict()
        self._owners: Final[OrderedDict[str, _Owner]] = OrderedDict()

    def saw(self, claim: NodeClaim, now: datetime) -> None:
        """A NodeClaim is there; what is known of it already is not changed."""
        meta = claim.metadata
        if meta.name in self._bought or meta.deletion_timestamp is not None or not meta.uid:
            return
        created = meta.creation_timestamp
        at = created if created is not None and now - created > _SKEW else now  # the API server's clock is another
        owners = _planned_owners(claim) if now - at < WINDOW else frozenset()
        if not owners:
            return
        self._bought[meta.name] = _Bought(owners, at)
        while len(self._bought) > MOST_CLAIMS or now - next(iter(self._bought.values())).at >= WINDOW:
            self._bought.popitem(last=False)
        for owner, cycles in _marked(claim).items():
            known = self._owner(owner)
            known.cycles = sorted({*known.cycles, *(one for one in cycles if one <= now)})[-CYCLES:]

    def decided(self, claims: Iterable[str], now: datetime) -> None:
        """The voluntary disruption of these NodeClaims begins; it may be called off."""
        for name in claims:
            if (known := self._bought.get(name)) is not None:
                known.decided = now

    def removed(self, claim: str, now: datetime) -> tuple[str, ...]:
        """A NodeClaim is deleted by voluntary disruption; the UIDs of owners that are in a loop from now on."""
        known = self._bought.get(claim)
        if known is None:
            return ()
        owners, known.owners = known.owners, frozenset()
        if now - known.at >= WINDOW:
            return ()
        found = []
        for uid in sorted(owners):
            owner = self._owner(uid)
            if owner.decided is not None and known.at < owner.decided:
                continue  # it was there when the last cycle ended
            before = _is_loop(owner, now)
            told = now.replace(microsecond=0)  # as `marks` tells it: else it counts twice
            owner.cycles = [*owner.cycles, told][-CYCLES:]
            owner.decided = known.decided or now
            if not before and _is_loop(owner, now):
                found.append(uid)
        return tuple(found)

    def holds(self, now: datetime) -> LoopHolds:
        """Who is in a loop. Cost: O(owners with a cycle), and O(NodeClaims of the hour) while anybody is."""
        for uid in [uid for uid, one in self._owners.items() if not one.cycles or now - one.cycles[-1] >= WINDOW]:
            del self._owners[uid]
        held = {uid: one.cycles[0] + WINDOW for uid, one in self._owners.items() if _is_loop(one, now)}
        if not held:
            return NO_HOLDS
        claims = ((name, min(one.owners & held.keys(), default="")) for name, one in self._bought.items())
        return LoopHolds(held, {name: owner for name, owner in claims if owner})

    def marks(self, pods: Iterable[Pod]) -> Mapping[str, str]:
        """Annotations for a NodeClaim for these pods: what their owners' cycles were, for whoever leads next; none as a rule."""
        if not self._owners:
            return {}
        owners = sorted({pod.owner.uid for pod in pods if pod.owner is not None} & self._owners.keys())
        told = {uid: [int(one.timestamp()) for one in self._owners[uid].cycles] for uid in owners}
        told = {uid: cycles for uid, cycles in list(told.items())[:MOST_OWNERS_OF_A_CLAIM] if cycles}
        return {names.REMOVALS_ANNOTATION: msgspec.json.encode(told).decode()} if told else {}

    def _owner(self, uid: str) -> _Owner:
        known = self._owners.setdefault(uid, _Owner())
        self._owners.move_to_end(uid)
        while len(self._owners) > MOST_OWNERS:
            self._owners.popitem(last=False)
        return known


def _is_loop(owner: _Owner, now: datetime) -> bool:
    return len(owner.cycles) >= CYCLES and now - owner.cycles[-CYCLES] < WINDOW


def _planned_owners(claim: NodeClaim) -> frozenset[str]:
    try:
        plan = decode_plan(claim.metadata.annotations.get(names.PLAN_ANNOTATION, "") or "{}")
    except PlanError:
        return frozenset()
    return frozenset(sorted({one.owner for one in plan.pods if one.owner})[:MOST_OWNERS_OF_A_CLAIM])


def _marked(claim: NodeClaim) -> Mapping[str, list[datetime]]:
    """What `marks` wrote, or anybody else may have; nothing where it cannot be read."""
    text = claim.metadata.annotations.get(names.REMOVALS_ANNOTATION)
    if text is None:
        return {}
    try:
        told = _decode(text)
        return {
            uid: [datetime.fromtimestamp(second, UTC) for second in seconds[-CYCLES:]]
            for uid, seconds in list(told.items())[:MOST_OWNERS_OF_A_CLAIM]
        }
    except (msgspec.DecodeError, OverflowError, ValueError, OSError):
        return {}
