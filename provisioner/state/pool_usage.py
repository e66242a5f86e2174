"""What the limits of each NodePool are charged with, kept as its nodes come, change and go. Not thread-safe."""

from collections import Counter

from provisioner.apis import names
from provisioner.apis.command import is_gated
from provisioner.apis.karpenter import NodePool
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, PoolView
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources


class PoolUsage:
    """Sums by pool; every change is O(resources), `frozen` costs the pools that changed."""

    def __init__(self) -> None:
        self._pools: dict[str, NodePool] = {}
        self._of: dict[NodeKey, tuple[str, Resources, int]] = {}
        self._sums: dict[str, dict[str, int]] = {}
        self._nodes = Counter[str]()
        self._views: dict[str, PoolView] = {}
        self._frozen: tuple[PoolView, ...] | None = ()

    def pool(self, name: str) -> NodePool | None:
        return self._pools.get(name)

    def is_limited_in_money(self, pool: str) -> bool:
        """Whether a NodePool says what its nodes may cost."""
        known = self._pools.get(pool)
        return known is not None and names.MAX_USD_PER_HOUR in known.metadata.annotations

    def pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        """A NodePool was added, changed or removed."""
        if new is not None:
            self._pools[new.metadata.name] = new
            self._renew(new.metadata.name)
        elif old is not None:
            self._pools.pop(old.metadata.name, None)
            self._renew(old.metadata.name)

    def node_changed(self, key: NodeKey, view: NodeView | None) -> None:
        """A node is seen so now; None where it is gone."""
        claim = view.claim if view is not None else None
        # one that waits for the place of another one is no node yet
        new = (view.pool, view.charge, 0 if is_gated(claim) else 1) if view is not None and claim is not None else None
        old = self._of.get(key)
        if new == old:
            return
        if old is not None:
            del self._of[key]
            self._add(*old, sign=-1)
        if new is not None:
            self._of[key] = new
            self._add(*new, sign=1)

    def view(self, name: str) -> PoolView:
        """A pool that is known."""
        found = self._views.get(name)
        if found is None:
            used = Resources.of(self._sums.get(name, {}))
            found = self._views[name] = PoolView(self._pools[name], used, self._nodes[name])
        return found

    def frozen(self) -> tuple[PoolView, ...]:
        """Every pool, by name; the same tuple while nothing changes."""
        if self._frozen is None:
            self._frozen = tuple(self.view(name) for name in sorted(self._pools))
        return self._frozen

    def _add(self, pool: str, charge: Resources, nodes: int, *, sign: int) -> None:
        self._nodes[pool] += sign * nodes
        if not self._nodes[pool]:
            del self._nodes[pool]
        sums = self._sums.setdefault(pool, {})
        for name, amount in charge.items():
            left = sums.get(name, 0) + sign * amount
            if left:
                sums[name] = left
            else:
                sums.pop(name, None)
        if not sums:
            del self._sums[pool]
        self._renew(pool)

    def _renew(self, pool: str) -> None:
        self._views.pop(pool, None)
        self._frozen = None


def room_of(pool: NodePool, nodes: int) -> int | None:
    """How many more nodes the limit of a static NodePool admits that has so many; None without one, 0 where nobody can read it."""
    try:
        left = PoolView(pool, EMPTY, nodes).left
    except QuantityError:
        return 0
    return max(0, left.amount(names.NODES)) if left is not None and names.NODES in left else None
