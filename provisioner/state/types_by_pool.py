"""Where the instance types are looked up that the claims of a pool, or a claim without one, may become. The caller decides what providers say."""

from collections.abc import Callable, Mapping

from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool, pool_of_class
from provisioner.cloudprovider.types import InstanceType


class TypesByPool:
    """Instance types by pool and name, and by NodeClass for claims without a pool; those with the same types share one table.

    Args:
        pool: the NodePool of that name.
        types: of a pool, the same tuple while nothing changed.
    """

    def __init__(
        self, pool: Callable[[str], NodePool | None], types: Callable[[NodePool], tuple[InstanceType, ...]]
    ) -> None:
        self._pool, self._types = pool, types
        self._known: dict[str | NodeClassReference, tuple[tuple[InstanceType, ...], Mapping[str, InstanceType]]] = {}

    def __call__(self, name: str) -> Mapping[str, InstanceType]:
        """The types of one pool; empty for a pool that is gone."""
        return self._table(name, self._pool(name))

    def of_claim(self, claim: NodeClaim) -> Mapping[str, InstanceType]:
        """The types that a claim may become as far as its pool decides, or its NodeClass where it has none."""
        reference = claim.spec.node_class_ref
        return self(claim.pool) if claim.pool else self._table(reference, pool_of_class(reference))

    def _table(self, origin: str | NodeClassReference, pool: NodePool | None) -> Mapping[str, InstanceType]:
        types = self._types(pool) if pool is not None else ()
        if not types:
            self._known.pop(origin, None)
            return {}
        known = self._known.get(origin)
        if known is None or known[0] is not types:
            shared = next((one for one in list(self._known.values()) if one[0] is types), None)
            known = self._known[origin] = shared or (types, {one.name: one for one in types})
        return known[1]
