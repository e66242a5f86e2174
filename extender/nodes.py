"""The Nodes and NodeClaims that watches told of: which of them belong together, and which Nodes stay. Not thread-safe."""

from collections.abc import Iterable, Iterator
from itertools import filterfalse
from typing import Final

from extender.facts import ClaimFacts, ExtenderNode, RequestRoom
from provisioner.state.joining import InstanceObjects, Sharers

SETTLE_SECONDS: Final = 2.0
"""How long a node that just became schedulable still counts as coming: kube-scheduler sees it a little later or earlier."""

DISRUPTED_SECONDS: Final = 30.0
"""How long a candidate of a disruption command is refused for the command's sake: its taint comes in the next write. Beyond that
the taint alone decides, which kube-scheduler's own filter knows."""

RESERVED_SECONDS: Final = 3600.0
"""How long room for pods of ProvisioningRequests is reserved at most since it was read."""


class JoinedNodes:
    """See the module. Times are seconds of one monotonic clock.

    Attributes:
        nodes, claims: by name; read only.
        planned_at: claim -> when its plan appeared, as far as was seen.
        initialized_at: claim -> when its node was.
        reserving: claim with reserved room -> when that ends.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, ExtenderNode] = {}
        self.claims: dict[str, ClaimFacts] = {}
        self.planned_at: dict[str, float] = {}
        self.initialized_at: dict[str, float] = {}
        self.reserving: dict[str, float] = {}
        self._schedulable_at: dict[str, float] = {}
        self._disrupted_at: dict[str, float] = {}  # claim -> when a command was first seen on it
        self._avoided: set[str] = set()  # nodes
        self._going: set[str] = set()  # nodes that do not stay
        self._instances = InstanceObjects()
        self._owned = Sharers()  # nodes by UID of the claim that owns them
        self._owners = Sharers()  # claims by UID
        self._namers = Sharers()  # claims by the node that they name

    def set_node(self, facts: ExtenderNode, now: float) -> list[str] | None:
        """A Node is there, or its facts changed: the claims that may belong to it, or might until now, by name; None where nothing is new."""
        old = self.nodes.get(facts.name)
        if old == facts:
            return None
        self.nodes[facts.name] = facts
        (self._avoided.add if facts.avoided else self._avoided.discard)(facts.name)
        if not facts.schedulable:
            self._schedulable_at.pop(facts.name, None)
        elif old is None or not old.schedulable:
            # One that is ready when first seen was so before: nothing to settle.
            self._schedulable_at[facts.name] = now if old is not None else now - SETTLE_SECONDS
        claims = self._claims_of(facts) | (self._claims_of(old) if old is not None else set())
        self._instances.nodes.put(facts.name, facts.provider_id)
        self._owned.put(facts.name, facts.claim_uid)
        return sorted(claims)

    def drop_node(self, name: str) -> list[str] | None:
        """A Node is gone: likewise; None where it was not known."""
        old = self.nodes.pop(name, None)
        if old is None:
            return None
        self._schedulable_at.pop(name, None)
        self._avoided.discard(name)
        claims = self._claims_of(old)
        self._instances.nodes.put(name, "")
        self._owned.put(name, "")
        return sorted(claims)

    def set_claim(self, facts: ClaimFacts, now: float) -> bool:
        """A NodeClaim is there, or its facts changed; whether anything is new."""
        old = self.claims.get(facts.name)
        if old == facts:
            return False
        if old is None:
            self.planned_at[facts.name] = min(facts.planned_at, now)
        elif not old.plan.pods:
            self.planned_at[facts.name] = now  # planned later than it was made
        self.claims[facts.name] = facts
        if old is None or old.reserved != facts.reserved or old.reserved_until != facts.reserved_until:
            self.reserving.pop(facts.name, None)
            if facts.reserved:  # a time of an object may be of the future
                self.reserving[facts.name] = min(facts.reserved_until, now + RESERVED_SECONDS)
        if facts.initialized_at is not None and facts.name not in self.initialized_at:
            # by our own clock where we saw it come: an object's time may be of the future
            self.initialized_at[facts.name] = now if old is not None else min(facts.initialized_at, now)
        if not facts.disrupted:
            self._disrupted_at.pop(facts.name, None)
        else:
            self._disrupted_at.setdefault(facts.name, now)
        self._say(facts.name, facts.provider_id, facts.uid, facts.node)
        return True

    def drop_claim(self, name: str) -> None:
        """A NodeClaim that is known is gone."""
        del self.claims[name], self.planned_at[name]
        self._say(name, "", "", "")
        self._disrupted_at.pop(name, None)
        self.initialized_at.pop(name, None)
        self.reserving.pop(name, None)

    def reserved_on(self, name: str) -> Iterator[RequestRoom]:
        """The room that is reserved on a Node for pods of ProvisioningRequests."""
        node = self.nodes.get(name) if self.reserving else None
        for claim in sorted(self._claims_of(node)) if node is not None else ():
            facts = self.claims[claim]
            if claim in self.reserving and not (facts.leaving or facts.disrupted) and self.node_of(facts) == name:
                yield from facts.reserved

    def judge(self, name: str) -> bool:
        """Does a Node stay? Whether that changed since it was last asked."""
        node = self.nodes.get(name)
        claims = map(self.claims.__getitem__, self._claims_of(node)) if node is not None else ()
        goes = node is not None and (
            node.leaving or node.disrupted or any(one.leaving or one.disrupted for one in claims)
        )
        if goes is (name in self._going):
            return False
        (self._going.add if goes else self._going.discard)(name)
        return True

    @property
    def avoided(self) -> bool:
        """Whether kube-scheduler would rather have pods on some nodes than on others, whatever they say."""
        return bool(self._avoided)

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, node: object) -> bool:
        return node in self.nodes

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that no watch told of yet."""
        return list(filterfalse(self.nodes.__contains__, names))

    def stays(self, node: str) -> bool:
        """Whether a Node is there, and stays."""
        return node in self.nodes and node not in self._going

    def schedulable_since(self, node: str) -> float | None:
        """Since when a node, which may be "", takes pods, as far as was seen; None while it does not."""
        return self._schedulable_at.get(node)

    def is_settling(self, node: str, now: float) -> bool:
        """Whether a node, which may be "", is not schedulable, or kube-scheduler may not know it yet."""
        since = self._schedulable_at.get(node)
        return since is None or now < since + SETTLE_SECONDS

    def disrupted(self, now: float = float("-inf")) -> frozenset[str]:
        """Nodes that a disruption command takes away, in the time in which their taint may not have been seen yet; all of them without `now`.

        O(candidates of commands); budgets keep them few.
        """
        return frozenset(
            node
            for claim, since in self._disrupted_at.items()
            if now < since + DISRUPTED_SECONDS and (node := self.node_of(self.claims[claim]))
        )

    def node_of(self, claim: ClaimFacts) -> str:
        """The node of a claim, "" while there is none: the claim's word first, a provider ID only where one Node has it.

        Names come again: a Node of another instance is not meant.
        """
        named = self.nodes.get(claim.node)
        if named is not None and (
            named.provider_id == claim.provider_id or not (named.provider_id and claim.provider_id)
        ):
            return claim.node
        owned = self._owned.of(claim.uid)
        if len(owned) == 1:
            return next(iter(owned))
        pair = self._instances.pair(claim.provider_id)
        return pair[1] if pair is not None and pair[0] == claim.name else ""

    def _claims_of(self, node: ExtenderNode) -> set[str]:
        """Names of the claims that may belong to a node."""
        owners, namers = self._owners.of(node.claim_uid), self._namers.of(node.name)
        return {*owners, *namers, *self._instances.claims.of(node.provider_id)}

    def _say(self, claim: str, provider_id: str, uid: str, node: str) -> None:
        """By what a claim finds its node."""
        self._instances.claims.put(claim, provider_id)
        self._owners.put(claim, uid)
        self._namers.put(claim, node)
