"""Nodes and NodeClaims, joined by provider ID. Not thread-safe: the owner serialises calls.

A pair is joined only where one claim and one Node have the provider ID. Where several claim one instance, or one instance
joined as several Nodes, nobody can tell which belongs to which: each is shown by itself and `rivals` says so.
"""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import version_number
from provisioner.state.keys import NodeKey
from provisioner.state.launch_sets import LaunchSets
from provisioner.values.taints import Taint, Toleration, first_untolerated

ECHO_SECONDS: Final = 60.0
"""How long the watch is expected to bring an own write at most; after that it is believed whatever version it tells, so
that a control plane restored from a backup is not ignored for ever."""

NOBODY: Final[frozenset[str]] = frozenset()

T = TypeVar("T", Node, NodeClaim)


@dataclass(frozen=True, slots=True)
class Rivals:
    """Why a provider ID joins nothing: more than one claim or more than one Node has it. Names, sorted."""

    claims: tuple[str, ...]
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"NodeClaims {', '.join(self.claims) or 'none'}; Nodes {', '.join(self.nodes) or 'none'}"


class Sharers:
    """Names of objects by a value that several may have; one without it has ""."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._names: dict[str, str | set[str]] = {}  # one alone is no set, which would take 200 bytes more

    def put(self, name: str, value: str) -> None:
        """An object has another value now; "" where it is gone."""
        before = self._values.pop(name, "")
        if before:
            known = self._names[before]
            if isinstance(known, set):
                known.discard(name)
            if known in (name, set()):
                del self._names[before]
        if value:
            self._values[name] = value
            known = self._names.setdefault(value, name)
            if isinstance(known, set):
                known.add(name)
            elif known != name:
                self._names[value] = {known, name}

    def of(self, value: str) -> AbstractSet[str]:
        """Who has the value."""
        known = self._names.get(value, NOBODY)
        return {known} if isinstance(known, str) else known


class InstanceObjects:
    """Which claims and which Nodes say that they are of one instance.

    Attributes:
        claims, nodes: by provider ID.
    """

    def __init__(self) -> None:
        self.claims, self.nodes = Sharers(), Sharers()

    def pair(self, provider_id: str) -> tuple[str, str] | None:
        """The one claim and the one Node of an instance; None where there is none, or nobody can tell which."""
        claims, nodes = self.claims.of(provider_id), self.nodes.of(provider_id)
        return (next(iter(claims)), next(iter(nodes))) if len(claims) == len(nodes) == 1 else None


class _Objects(Generic[T]):
    """Objects of one kind by name and by provider ID, the newest known of each."""

    def __init__(self, sharers: Sharers) -> None:
        self.by_name: dict[str, T] = {}
        self._sharers = sharers
        self._own: dict[str, tuple[str, int, float]] = {}  # name -> (UID, version of an own write, when)

    def is_late(self, one: T, now: float) -> bool:
        """Whether the watch tells a state from before an own write."""
        own = self._own.get(one.metadata.name)
        if own is None:
            return False
        uid, version, at = own
        told = version_number(one.metadata.resource_version)
        if uid == one.metadata.uid and told < version and now - at < ECHO_SECONDS:
            return True
        del self._own[one.metadata.name]
        return False

    def own(self, one: T, version: int, now: float) -> None:
        self._own[one.metadata.name] = (one.metadata.uid, version, now)

    def put(self, one: T) -> T | None:
        name = one.metadata.name
        known = self.by_name.get(name)
        self.by_name[name] = one
        self._sharers.put(name, _provider_id(one))
        return known

    def drop(self, name: str) -> T | None:
        self._own.pop(name, None)
        self._sharers.put(name, "")
        return self.by_name.pop(name, None)


class Joining:
    """See the module. Every call is O(objects of one provider ID).

    Attributes:
        nodes_removed: how many Nodes went so far.
        sets: the NodeClaims that are needed together.
    """

    def __init__(self) -> None:
        self._instances = InstanceObjects()
        self._nodes: _Objects[Node] = _Objects(self._instances.nodes)
        self._claims: _Objects[NodeClaim] = _Objects(self._instances.claims)
        self._tainted: Counter[tuple[Taint, ...]] = Counter()  # Nodes by their taints, those without left out
        self.nodes_removed = 0
        self.sets = LaunchSets()

    # ------------------------------------------------------------------ events

    def put_node(self, node: Node, now: float, *, own: bool = False) -> frozenset[NodeKey] | None:
        """A Node as the watch tells it, or (`own`) as a write of ours was answered.

        Args:
            node: the Node.
            now: monotonic seconds.
            own: an answer; only one about a known Node counts.

        Returns:
            The keys whose node is another one now; None where something newer is known and nothing changes.
        """
        if not self._accepts(self._nodes, node, now, own=own):
            return None
        old = self._nodes.put(node)
        self._note_taints(old, node)
        return self._touched(NodeKey.of_node(node.metadata.name), old, node)

    def put_claim(self, claim: NodeClaim, now: float, *, own: bool = False) -> frozenset[NodeKey] | None:
        """A NodeClaim, likewise. One that is announced (without UID) may be answered under its name."""
        if not self._accepts(self._claims, claim, now, own=own):
            return None
        old = self._claims.put(claim)
        self.sets.put(claim)
        return self._touched(NodeKey(claim.metadata.name), old, claim)

    def drop_node(self, name: str) -> frozenset[NodeKey]:
        """A Node is gone."""
        old = self._nodes.drop(name)
        self._note_taints(old, None)
        self.nodes_removed += old is not None
        return self._touched(NodeKey.of_node(name), old, None)

    def drop_claim(self, name: str) -> frozenset[NodeKey]:
        """A NodeClaim is gone."""
        old = self._claims.drop(name)
        self.sets.drop(name)
        return self._touched(NodeKey(name), old, None)

    def delete_node(self, name: str, uid: str, at: datetime, now: float) -> frozenset[NodeKey]:
        """The API server took our request to delete a Node: it is going from now on."""
        found = self._going(self._nodes, name, uid, at, now)
        return self._touched(NodeKey.of_node(name), found, found)

    def delete_claim(self, name: str, uid: str, at: datetime, now: float) -> frozenset[NodeKey]:
        """Likewise a NodeClaim."""
        found = self._going(self._claims, name, uid, at, now)
        if found is not None:
            self.sets.put(found)
        return self._touched(NodeKey(name), found, found)

    # ------------------------------------------------------------------ questions

    @property
    def nodes(self) -> dict[str, Node]:
        """Every Node by name; read only."""
        return self._nodes.by_name

    @property
    def claims(self) -> dict[str, NodeClaim]:
        """Every NodeClaim by name; read only."""
        return self._claims.by_name

    def claim(self, name: str) -> NodeClaim | None:
        """The newest known state of one claim, own writes included."""
        return self.claims.get(name)

    def all_claims(self) -> list[NodeClaim]:
        """Every known claim, by name."""
        return [claim for _, claim in sorted(self.claims.items())]

    def ending_nodes(self) -> list[Node]:
        """The Nodes that are being deleted, by name. O(Nodes)."""
        found = [one for one in self.nodes.values() if one.metadata.deletion_timestamp is not None]
        return sorted(found, key=lambda one: one.metadata.name)

    def node(self, name: str) -> Node | None:
        """The newest known state of one Node."""
        return self.nodes.get(name)

    def node_of(self, claim: NodeClaim) -> Node | None:
        """The one Node that the claim's instance joined as."""
        names = self._instances.pair(claim.status.provider_id)
        return self.nodes[names[1]] if names is not None and names[0] == claim.metadata.name else None

    def claim_of(self, node: Node) -> NodeClaim | None:
        """The one claim whose instance the Node is."""
        names = self._instances.pair(node.spec.provider_id)
        return self.claims[names[0]] if names is not None and names[1] == node.metadata.name else None

    def claims_with(self, provider_id: str) -> list[NodeClaim]:
        """The claims that have the provider ID, by name; none for ""."""
        return [self.claims[name] for name in sorted(self._instances.claims.of(provider_id))]

    def key_of(self, node: Node) -> NodeKey:
        """The key of the node that is shown: its claim's, or its own."""
        claim = self.claim_of(node)
        return NodeKey(claim.metadata.name) if claim is not None else NodeKey.of_node(node.metadata.name)

    def key_of_name(self, node_name: str) -> NodeKey:
        """The same by the Node's name; of a Node that is not known too."""
        node = self.nodes.get(node_name)
        return self.key_of(node) if node is not None else NodeKey.of_node(node_name)

    def pair(self, key: NodeKey) -> tuple[Node | None, NodeClaim | None] | None:
        """What stands behind a key; None where nothing does, or where the Node is shown under its claim."""
        if key.of_claim:
            claim = self.claims.get(key.name)
            return (self.node_of(claim), claim) if claim is not None else None
        node = self.nodes.get(key.name)
        return (node, None) if node is not None and self.claim_of(node) is None else None

    def rivals(self, provider_id: str) -> Rivals | None:
        """Who else has this provider ID; None where it joins at most one claim with at most one Node."""
        claims, nodes = self._instances.claims.of(provider_id), self._instances.nodes.of(provider_id)
        if len(claims) <= 1 and (len(nodes) <= 1 or not claims):
            return None
        return Rivals(tuple(sorted(claims)), tuple(sorted(nodes)))

    def rivals_of(self, claim: NodeClaim) -> Rivals | None:
        """Who else has the claim's provider ID; None where the claim and its Node are alone. Nothing may be done to rivals."""
        return self.rivals(claim.status.provider_id)

    def tainted_for(self, tolerations: tuple[Toleration, ...]) -> int:
        """How many Nodes have a taint that keeps pods off which tolerate no more; cordoned ones left out. O(sets of taints)."""
        return sum(
            count for taints, count in self._tainted.items() if first_untolerated(tolerations, taints) is not None
        )

    # ------------------------------------------------------------------ helpers

    def _note_taints(self, old: Node | None, new: Node | None) -> None:
        before, after = _plain_taints(old), _plain_taints(new)
        if before == after:
            return
        if before:
            self._tainted[before] -= 1
            if not self._tainted[before]:
                del self._tainted[before]
        if after:
            self._tainted[after] += 1

    def _accepts(self, objects: _Objects[T], one: T, now: float, *, own: bool) -> bool:
        if not own:
            return not objects.is_late(one, now)
        known = objects.by_name.get(one.metadata.name)
        if known is None or known.metadata.uid not in ("", one.metadata.uid):
            return False  # gone meanwhile: a late answer must not bring it back
        version = version_number(one.metadata.resource_version)
        if known.metadata.uid and version_number(known.metadata.resource_version) > version:
            return False
        objects.own(one, version, now)
        return True

    def _going(self, objects: _Objects[T], name: str, uid: str, at: datetime, now: float) -> T | None:
        known = objects.by_name.get(name)
        if known is None or known.metadata.uid != uid or known.metadata.deletion_timestamp is not None:
            return None
        meta = msgspec.structs.replace(known.metadata, deletion_timestamp=at)
        gone: T = msgspec.structs.replace(known, metadata=meta)
        objects.put(gone)
        # what the watch told until now is older than the request
        objects.own(gone, version_number(meta.resource_version) + 1, now)
        return gone

    def _touched(self, own: NodeKey, *changed: Node | NodeClaim | None) -> frozenset[NodeKey]:
        found = {own}
        for provider_id in {_provider_id(one) for one in changed if one is not None}:
            found.update(self._around(provider_id))
        return frozenset(found)

    def _around(self, provider_id: str) -> Iterator[NodeKey]:
        yield from (NodeKey(name) for name in self._instances.claims.of(provider_id))
        yield from (NodeKey.of_node(name) for name in self._instances.nodes.of(provider_id))


def _provider_id(one: Node | NodeClaim) -> str:
    return one.spec.provider_id if isinstance(one, Node) else one.status.provider_id


def _plain_taints(node: Node | None) -> tuple[Taint, ...]:
    """A Node's taints without when they were added; none of a Node that is cordoned, which is refused for that."""
    if node is None or not node.spec.taints or any(taint.key == names.CORDONED_TAINT_KEY for taint in node.spec.taints):
        return ()
    return tuple(sorted({msgspec.structs.replace(taint, time_added=None) for taint in node.spec.taints}, key=str))
