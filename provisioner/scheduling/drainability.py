"""Whether a node can be drained eviction by eviction.

kube-scheduler counts a tainted Node as a topology domain until its Node object is gone (nodeTaintsPolicy is Ignore by default), and the pods that are still
on it count too. Where a PodDisruptionBudget lets pods go one after another, the next goes only when the successor of the one before runs:
if that one has no legal place, the drain never ends. So each single eviction must leave its successor one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as changed

from provisioner.apis.gangs import group_of
from provisioner.apis.meta import selects
from provisioner.apis.pods import Pod, is_critical
from provisioner.scheduling.becoming import opened, with_pods, without
from provisioner.scheduling.constraints.classes import sort_key
from provisioner.scheduling.judging import Design, design_of, part_of
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.result import Result
from provisioner.scheduling.topology.ties import tied_shapes
from provisioner.values.message import Said

_STEPS: Final = 20_000
"""Of the solver for one pod."""
_MOST_ASKED: Final = 16
"""Different pods that `too_early` looks at, each by itself."""


@dataclass(frozen=True, slots=True)
class StuckEviction:
    """An eviction after which the drain would stand still; `str` is the reason as users read it.

    Attributes:
        pod: whose successor has no legal place.
        reason: what keeps it out.
    """

    pod: Pod
    reason: str

    def __str__(self) -> str:
        return Said(
            f'Evicting pod {self.pod.key} from Node "{self.pod.node_name}" would leave its replacement without a node '
            f"while the Node drains, because a draining node remains a topology domain: {self.reason}"
        )


def eviction_order(pod: Pod) -> tuple[object, ...]:
    """How the pods of a drain are sorted, besides daemons: critical ones last, else as they are planned: by priority, the largest first, then by name.

    kube-scheduler binds their successors as they are created, and without a nomination a small one may take the only room that is left for a large one.
    """
    return is_critical(pod), *sort_key(pod.shape), pod.key, pod.uid


def drained(
    prepared: Prepared, result: Result, leaving: Iterable[str], *, in_waves: bool = False
) -> StuckEviction | Mapping[str, Sequence[Pod]]:
    """The first eviction that leaves its successor no legal place; else, by bin, whose successors it takes that are planned elsewhere.

    These have a place there as long as nobody else takes its room.

    Args:
        prepared: the world before the first eviction, without the planned claims.
        result: where the pods are to be, once all of them are moved; legal.
        leaving: names of all nodes that leave.
        in_waves: PodDisruptionBudgets do not let all go at once: of a group with a topology key (`World.topology`), whoever is evicted comes back in the
            domain in which the others still run.

    Only pods that some other of them has to do with are looked at: the others are as well off alone as together.
    Every class is tried as the first to go, then all of them in one order, each where it is planned if that is legal by then.

    Cost: nothing where no two pods are tied; else a question for each pod.
    """
    goals = _goals(result)
    moving = [pod for pod, _ in goals]
    tied = tied_shapes(moving, prepared.world.namespaces, by_default=bool(prepared.world.spread_defaults.hard_keys))
    if in_waves:
        tied |= {pod.shape.key for pod in moving if group_of(pod) in prepared.world.topology}
    if not tied:
        return {}
    gone = tuple(leaving)
    new = {name_of(number): opened(claim, name_of(number)) for number, claim in enumerate(result.claims)}
    world = prepared.updated(Changes(bins=new)) if new else prepared
    bins = {one.name: one for one in world.world.bins}
    where = {one.node_name: one.name for one in bins.values() if one.node_name}
    order = sorted((pair for pair in goals if pair[0].shape.key in tied), key=lambda pair: eviction_order(pair[0]))
    firsts = {pod.shape.key: (pod, goal) for pod, goal in reversed(order)}
    detours: dict[str, list[Pod]] = {}
    for pod, goal in firsts.values():
        if isinstance(found := _place(world, pod, goal, gone), StuckEviction):
            return found
    for pod, goal in order:
        found = _place(world, pod, goal, gone)
        if isinstance(found, StuckEviction):
            return found
        if found != goal:
            detours.setdefault(found, []).append(pod)
        changes = {found: with_pods(bins[found], (pod,))}
        home = where.get(pod.node_name)
        if home is not None and home != found:
            changes[home] = without(bins[home], (pod,))
        bins |= changes
        world = world.updated(Changes(bins=changes))
    return detours


def too_early(prepared: Prepared, result: Result, pods: Iterable[Pod]) -> set[str]:
    """Shapes of these pods that could not be bound where they are planned while the others run where they do; of equal ones of a place one is asked.

    What is bought for them would stand empty, whether or not the drain ends on other nodes, which `drained` asks of every pod in turn.

    Cost: a judgement for each of a few pods; `drained` takes some hundred times as long for a hundred pods.
    """
    groups = (*(one.pods for one in result.claims), *result.existing.values())
    places = {pod.uid: number for number, some in enumerate(groups) for pod in some}
    asked = {(pod.shape.key, places[pod.uid]): pod for pod in pods if pod.uid in places}
    design = design_of(result)
    some = list(asked.values())[:_MOST_ASKED]
    return {pod.shape.key for pod in some if not prepared.judge(part_of(design, {pod.uid})).legal}


def staying(prepared: Prepared, pods: Iterable[Pod]) -> Prepared:
    """The world in which these pods run on where they are, whatever becomes of those that a question is about: places in it are legal before any has left.

    Room is theirs already, since they are counted there.
    """
    stay: dict[str, list[Pod]] = {}
    for pod in pods:
        stay.setdefault(pod.node_name, []).append(changed(pod, uid=f"{pod.uid}/stays"))
    bins = [one for one in prepared.world.bins if one.node_name in stay]
    return prepared.updated(
        Changes(bins={one.name: replace(one, pods=(*one.pods, *stay[one.node_name])) for one in bins})
    )


def _place(world: Prepared, pod: Pod, goal: str, leaving: Sequence[str]) -> str | StuckEviction:
    """The name of the bin that takes the pod by now."""
    if world.judge(Design(existing={goal: (pod,)}), leaving=leaving, afterwards=False).legal:
        return goal
    result = world.solve([pod], leaving=leaving, afterwards=False, max_new=0, effort=0, budget=_STEPS)
    return next(iter(result.existing)) if result.existing else StuckEviction(pod, str(result.unplaced[0]))


def _goals(result: Result) -> list[tuple[Pod, str]]:
    goals = [(pod, name) for name, pods in result.existing.items() for pod in pods]
    return goals + [(pod, name_of(number)) for number, claim in enumerate(result.claims) for pod in claim.pods]


def follows(pods: Iterable[Pod], moved: Mapping[str, Pod]) -> bool:
    """Whether some of `pods` must be near some of the others, or the other way round, by a required pod affinity.

    Who leads must be settled before anybody follows: evicted at once, both would have to follow whoever stays.

    Args:
        pods: of a node.
        moved: one of each shape of the pods that move already.

    Namespaces are not looked at, so some may be named that need not.
    """
    mine = {pod.shape.key: pod for pod in pods}
    return any(_near(mine.values(), moved.values())) or any(_near(moved.values(), mine.values()))


def _near(some: Iterable[Pod], others: Iterable[Pod]) -> Iterable[bool]:
    for pod in some:
        affinity = pod.shape.affinity
        if affinity is not None and affinity.pod_affinity is not None:
            for term in affinity.pod_affinity.required:
                spaces = (pod.namespace, *term.namespaces)
                yield any(
                    selects(term.label_selector, other.labels) or (other.shape.unjudged and other.namespace in spaces)
                    for other in others
                )


def name_of(number: int) -> str:
    """The bin of a claim that is not made yet; no NodeClaim can be called so."""
    return Said(f"planned claim {number}")
