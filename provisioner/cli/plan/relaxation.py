"""Plans the same pods without one kind of constraint, to show which constraints make a plan expensive. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from provisioner.apis.core import Affinity
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.shapes import altered_shape
from provisioner.scheduling.problem import World

_Relax = Callable[[PodShape], PodShape]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A kind of constraint that can be left out.

    Attributes:
        name: for people; plural.
        relaxed: the world and the pods without it; None where nothing asks for it.
    """

    name: str
    relaxed: Callable[[World, Sequence[Pod]], tuple[World, tuple[Pod, ...]] | None]


@dataclass(frozen=True, slots=True)
class PricedConstraint:
    """What a constraint is known to cost.

    Attributes:
        name: of the constraint.
        usd_per_hour: of a plan without it; None where there was no time to look.
        more_pods: how many more pods have a place in that plan.
    """

    name: str
    usd_per_hour: float | None
    more_pods: int = 0


def _of_pods(relax: _Relax) -> Callable[[World, Sequence[Pod]], tuple[World, tuple[Pod, ...]] | None]:
    def relaxed(world: World, pods: Sequence[Pod]) -> tuple[World, tuple[Pod, ...]] | None:
        shapes = {pod.shape: pod.shape for pod in pods}
        for shape in shapes:
            shapes[shape] = relax(shape)
        if all(one is other for one, other in shapes.items()):
            return None
        return world, tuple([msgspec.structs.replace(pod, shape=shapes[pod.shape]) for pod in pods])

    return relaxed


def _unspread(shape: PodShape) -> PodShape:
    return altered_shape(shape, spread=()) if shape.spread else shape


def _unrelated(shape: PodShape) -> PodShape:
    affinity = shape.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return shape
    return altered_shape(shape, affinity=Affinity(node_affinity=affinity.node_affinity))


def _anywhere(shape: PodShape) -> PodShape:
    affinity = shape.affinity
    if affinity is not None and affinity.node_affinity is not None:
        affinity = msgspec.structs.replace(affinity, node_affinity=None)
    elif not shape.node_selector:
        return shape
    return altered_shape(shape, affinity=affinity, node_selector={})


def _without_daemons(world: World, pods: Sequence[Pod]) -> tuple[World, tuple[Pod, ...]] | None:
    return (replace(world, daemons=()), tuple(pods)) if world.daemons else None


def _of_one_weight(world: World, pods: Sequence[Pod]) -> tuple[World, tuple[Pod, ...]] | None:
    if len({pool.weight for pool in world.pools}) < 2:
        return None
    return replace(world, pools=tuple(replace(pool, weight=0) for pool in world.pools)), tuple(pods)


CONSTRAINTS: Final = (
    Constraint("topology spread constraints of pods", _of_pods(_unspread)),
    Constraint("affinity and anti-affinity between pods", _of_pods(_unrelated)),
    Constraint("node selectors and node affinity of pods", _of_pods(_anywhere)),
    Constraint("pods of DaemonSets", _without_daemons),
    Constraint("weights of NodePools", _of_one_weight),
)
"""In the order in which they are looked at."""
