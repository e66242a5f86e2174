"""What the limits of NodePools leave once some nodes go and others come.

From the moment a command is written its candidates count for nobody, so a question about them is asked without them. Source: core spec 6.8.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from provisioner.apis.pool_limits import USD
from provisioner.scheduling.capacity.spending import spent
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Changes, SchedulingPool
from provisioner.scheduling.result import PlannedClaim
from provisioner.state.node_views import NODE
from provisioner.state.snapshot import NodeView
from provisioner.values.resources import EMPTY, Resources

_T = TypeVar("_T", NodeView, PlannedClaim)


def limits_after(
    pools: tuple[SchedulingPool, ...],
    gone: Iterable[NodeView] = (),
    new: Iterable[PlannedClaim] = (),
    *,
    planned: Iterable[PlannedClaim] = (),
) -> tuple[SchedulingPool, ...] | None:
    """The NodePools of a world with what their limits leave then; None where that is the same.

    Args:
        pools: as they are.
        gone: nodes that count no more; those that did not before change nothing.
        new: claims as they will be made; each counts as the largest instance type that it may become.
        planned: claims of a plan that is not finished; each counts as what it is planned to be, since instance types are named by what
            all of them leave.

    Cost: the nodes and claims, and the instance types of those NodePools of them that have limits.
    """
    limited = {pool.name for pool in pools if pool.remaining is not None}
    nodes = [one for one in gone if one.pool in limited and one.counts] if limited else []
    claims = [one for one in new if one.pool in limited] if limited else []
    parts = [one for one in planned if one.pool in limited] if limited else []
    touched = {one.pool for one in nodes}.union(one.pool for one in (*claims, *parts))
    if not touched:
        return None
    return tuple(
        _after(pool, _of(pool, nodes), _of(pool, claims), _of(pool, parts)) if pool.name in touched else pool
        for pool in pools
    )


def _of(pool: SchedulingPool, some: Iterable[_T]) -> list[_T]:
    return [one for one in some if one.pool == pool.name]


def without_charges(prepared: Prepared, gone: Iterable[NodeView]) -> Prepared:
    """The world in which these nodes count against no limit."""
    return prepared.updated(Changes(pools=limits_after(prepared.world.pools, gone)))


def _after(
    pool: SchedulingPool, gone: Collection[NodeView], new: Collection[PlannedClaim], planned: Collection[PlannedClaim]
) -> SchedulingPool:
    left = pool.remaining or EMPTY
    types = {one.name: one for one in pool.instance_types}
    back = Resources.total(one.charge for one in gone)
    change = {name: back.amount(name) for name in left}
    if USD in change:
        change[USD] = spent(gone, types)
    for claim in new:
        kinds = [types[name].capacity + NODE for name in claim.instance_types if name in types]
        for name in change:
            change[name] -= max((one.amount(name) for one in kinds), default=claim.charge.amount(name))
    return replace(pool, remaining=left + Resources.of(change) - Resources.total(one.charge for one in planned))
