"""The world of one pass of a method, as it becomes with each thing that is proposed. Source: core spec 6.8."""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as changed

from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.buffers.virtual_pods import is_virtual
from provisioner.disruption.candidates import Candidate, CandidateTypes
from provisioner.disruption.simulation.wishes import as_judged, given_up, kept
from provisioner.disruption.view import DisruptionView, Improved
from provisioner.scheduling.becoming import filled, with_pods, without
from provisioner.scheduling.drainability import (
    StuckEviction,
    drained,
    follows,
    name_of,
    staying,
)
from provisioner.scheduling.improvement.limits_after import limits_after, without_charges
from provisioner.scheduling.improvement.partitions import cheapest
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import Prepared, prepare, without_place
from provisioner.scheduling.problem import Bin, Changes, SchedulingPool
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.topology.ties import topology_keys
from provisioner.state.snapshot import NodeView
from provisioner.values.message import Said
from provisioner.values.resources import EMPTY

STEPS: Final = 50_000
"""Of the solver for one question."""
_EFFORTS: Final = 40
"""Questions of one pass for which lots may be drawn; a false no is asked again in the next pass."""
_TURNS: Final = 2
"""Different pods of one question that are asked about once more because they go one after another."""
_MOST_TOLD: Final = 5
NOT_ALL_PODS_FIT: Final = Said("not all pods would schedule, ")
NOT_JUDGED_IN_TIME: Final = Said(
    "The search for other places for its pods did not finish within one pass; the next pass tries again"
)
_AFFINITY_TO_OTHERS: Final = Said(
    "Its pods have affinity to pods on other nodes that are being disrupted; waiting for these nodes"
)


@dataclass(frozen=True, slots=True)
class SimulationAnswer:
    """What becomes of the pods of some nodes.

    Attributes:
        result: where they go; None where they cannot.
        refusal: why not, as users read it; "" with a result.
        spoilt: pods for which it was refused: without their nodes the answer may be another.
        late: pods find their places only when the node is gone: until then it remains a topology domain.
    """

    result: Result | None
    refusal: str = ""
    late: bool = False
    spoilt: tuple[Pod, ...] = ()


def _reservation_held_by_other(reservation: str) -> str:
    return Said(f"capacity reservation {reservation} is held for another replacement")


def _exceeds_limits(pool: str) -> str:
    return Said(f"its replacement would exceed limits of NodePool {pool}")


def _expects_pods(pod: str, more: int) -> str:
    """What is said of a node on which pods that wait are expected."""
    others = f" and {more} other pod{'s' if more > 1 else ''}" if more else ""
    return Said(f'Pod "{pod}"{others} can be bound to the node, and no other place is considered')


class Simulation:
    """Asked what becomes of nodes' pods; what is accepted is there for the questions after it.

    Pods that wait for a node, and those on nodes that leave already, come first: room that they will take is nobody else's. Whether they
    have a place blocks nothing.

    Args:
        closed: names of nodes that take no pod of a candidate; nodes that are not initialized are closed besides.
        last: names of nodes in the order in which they would rather go: the first of them takes pods after all other nodes.

    Attributes:
        destinations: names of the nodes that are to take pods: of accepted questions, and those that wait.
        judged: as of `MethodAnswer`.
    """

    def __init__(
        self,
        view: DisruptionView,
        prepared: Prepared,
        closed: Collection[str] = (),
        last: Sequence[str] = (),
    ) -> None:
        self._budgets: Final = view.snapshot.pod_budgets
        self._prepared = _reordered(prepared, last) if last else prepared
        self._bins = {one.name: one for one in prepared.world.bins}
        self._where: Final = {one.node_name: one.name for one in prepared.world.bins if one.node_name}
        self._leaving: Final[set[str]] = set()
        self._made = 0
        self._held: Final[set[str]] = set()
        self._detours: Final[dict[frozenset[str], Mapping[str, Sequence[Pod]]]] = {}  # by nodes that were asked about
        self._moved: Final[dict[str, Pod]] = {}  # one of each shape
        self.destinations: Final[set[str]] = set()
        self.judged: Mapping[str, str] = {}
        self._expected: Mapping[str, tuple[Pod, ...]] = {}
        self._efforts = _EFFORTS
        self._lost = ""  # what `given_up` said of the last answer
        self._begin(view, set(closed))

    def _begin(self, view: DisruptionView, closed: set[str]) -> None:
        planned = {pod.uid for node in view.snapshot.nodes for pod in node.assigned}
        waiting = list(view.snapshot.waiting)
        begun: list[NodeView] = []
        for node in view.snapshot.nodes:
            going = node.key.of_claim and node.key.name in view.under_way
            if node.deleting or going:
                self._leaving.add(str(node.key))
                self._moved.update((pod.shape.key, pod) for pod in node.pods if is_reschedulable(pod))
            if going and not node.deleting:
                begun.append(node)
                going_on = [pod for pod in node.pods if pod.uid not in planned and is_reschedulable(pod)]
                waiting += map(view.snapshot.predictions.readmitted, going_on)
            if node.claim is not None and not node.initialized:
                closed.add(str(node.key))
        waiting += view.snapshot.leaving
        new = tuple(claim for one in view.begun for claim in one.replacements)
        if new or begun:
            self._apply((), Result(new, {}, ()), begun)
        if waiting:
            first = self._prepared.solve(
                waiting,
                avoided=view.snapshot.avoided,
                leaving=self._leaving,
                effort=0,
                explain=False,
                budget=STEPS,
            )
            self._apply(waiting, first)
            self._expected = first.existing
            open_ = {str(node.key) for node in view.snapshot.nodes if node.initialized}
            there = {pod.uid: name for name, pods in first.existing.items() if name in open_ for pod in pods}
            self.judged = {pod.uid: there.get(pod.uid, "") for pod in view.snapshot.waiting if pod.unschedulable}
        changes = {name: replace(self._bins[name], closed=True) for name in sorted(closed) if name in self._bins}
        if changes:
            self._update(changes)

    def expects(self, node: NodeView) -> str:
        """Which pods that wait will take room on a node, as users read it; "" for none. Virtual pods are none."""
        pods = [pod for pod in self._expected.get(str(node.key), ()) if not is_virtual(pod)]
        return _expects_pods(pods[0].key, len(pods) - 1) if pods else ""

    @property
    def prepared(self) -> Prepared:
        """The world as it is by now."""
        return self._prepared

    def ask(
        self,
        some: Sequence[Candidate],
        *,
        effort: int = 0,
        late: bool = False,
        thorough: bool = False,
        for_money: bool = False,
        max_new: int | None = None,
        pays: Callable[[Result], str] | None = None,
        hopeless: Callable[[Result], str] | None = None,
    ) -> SimulationAnswer:
        """What becomes of the pods of `some` if these nodes leave together: what provisioning would make of them, whatever it costs.

        Args:
            some: of which none was accepted.
            effort: as of `Prepared.solve`; a question that is refused without any may be worth another with `EFFORT`.
            thorough: every pod is tried, so that the refusal says of each why it has no place.
            late: it is enough that pods find their places once the nodes are gone, where no PodDisruptionBudget waits for it. Of pods that must all be in
                one domain (`World.topology`) it is enough also where one does, if the drain has an end.
            for_money: pods wish no more than what they have where they run; see `wishes.kept`. Where pods are uneven, and `pays` found by
                `given_up` that they would be more so, it is asked for places that make them no more uneven.
            max_new: most new nodes in a cheaper partition of few pods, see `partitions`; scheduling's own answer may have more.
            pays: why an answer does not pay, "" where it does; asked before what takes longer: whether the drain could end.
            hopeless: why an answer does not pay, however its new nodes are shared among the same pods; "" where one may. Asked first of all.
        """
        pods = [pod for one in some for pod in one.pods]
        if effort:
            effort = effort if self._efforts > 0 else 0
            self._efforts -= 1
        if not pods:
            return SimulationAnswer(Result((), {}, ()))
        if follows(pods, self._moved):
            return SimulationAnswer(None, _AFFINITY_TO_OTHERS)
        answer = SimulationAnswer(None)
        for asked in kept(self._prepared, self._bins, some) if for_money else ({},):
            self._lost = ""
            answer = self._asked(
                some,
                asked,
                effort=effort,
                late=late,
                thorough=thorough,
                max_new=max_new,
                pays=pays,
                hopeless=hopeless,
            )
            if answer.result is not None or not self._lost:
                break
        return answer

    def _asked(
        self,
        some: Sequence[Candidate],
        asked: Mapping[str, Pod],
        *,
        effort: int,
        late: bool,
        thorough: bool,
        max_new: int | None,
        pays: Callable[[Result], str] | None,
        hopeless: Callable[[Result], str] | None,
    ) -> SimulationAnswer:
        """`ask`, of pods with these wishes, by UID; the others have their own."""
        names = {str(one.node.key) for one in some}
        pods = [pod for one in some for pod in one.pods]
        leaving = self._leaving | names
        prepared = without_charges(self._prepared, [one.node for one in some])
        stuck: StuckEviction | None = None
        world, stay = prepared, set[str]()
        while True:
            result = world.solve(
                [asked.get(pod.uid, pod) for pod in pods],
                leaving=leaving,
                stop_at_first_unplaced=not thorough,
                effort=effort,
                explain=False,
                budget=STEPS,
            )
            if result.unplaced:
                break
            if hopeless is not None and (why := hopeless(result)):
                return SimulationAnswer(None, why)
            result = cheapest(world, result, leaving=leaving, max_new=max_new)
            result = _with(result, {pod.uid: pod for pod in pods}) if asked else result
            if pays is not None and (why := pays(result)):
                return SimulationAnswer(None, why)
            taken = self._taken(result)
            if taken:
                return SimulationAnswer(None, _reservation_held_by_other(taken))
            found = self._drained(result, names, ends=late and all(map(_has_end, some)))
            if found is None and (not stay or prepared.judge(design_of(result), leaving=leaving).legal):
                return SimulationAnswer(result)
            stuck = stuck or found
            if found is None or found.pod.shape.key in stay or len(stay) == _TURNS:
                break
            # together they may go where none of them may go alone: places that are legal while the others still run
            stay.add(found.pod.shape.key)
            world = staying(prepared, [pod for pod in pods if pod.shape.key in stay])
        if late and self._at_once(pods):
            after = prepared.solve(
                pods,
                leaving=self._leaving,
                gone=names,
                effort=effort,
                stop_at_first_unplaced=True,
                explain=False,
                budget=STEPS,
            )
            if not after.unplaced and not self._taken(after):
                return SimulationAnswer(after, late=True)
        return SimulationAnswer(None, str(stuck) if stuck is not None else told(result))

    def rebuild(self, some: Sequence[Candidate], improved: Improved, pays: Callable[[Result], str]) -> SimulationAnswer:
        """What becomes of the pods of `some` if these nodes leave together, on the cheapest nodes that `improved` finds for those that need new ones.

        Any number of new nodes may come; what they cost is for whoever asks to judge. Pods that are tied to others over zones stay in theirs: until
        the nodes are gone, an eviction would leave the successor no legal place elsewhere. Likewise over other labels, but for the hostname.

        Args:
            some: of which none was accepted.
            improved: as of `DisruptionView`; what it answers is judged like anybody's plan.
            pays: why an answer does not pay, "" where it does; asked first.

        Cost: two questions, whatever the search takes, and where it pays, a question for each pod that is tied to others.
        """
        names = {str(one.node.key) for one in some}
        pods = [pod for one in some for pod in one.pods]
        leaving = self._leaving | names
        if follows(pods, self._moved):
            return SimulationAnswer(None, _AFFINITY_TO_OTHERS)
        bins = {name: replace(self._bins[name], closed=True) for name in sorted(leaving) if name in self._bins}
        for one in some:
            name = str(one.node.key)
            bins[name] = without(bins[name], one.pods)
        counting = without_charges(self._prepared, [one.node for one in some])
        emptied = counting.updated(Changes(bins=bins))
        own = {pod.uid: pod for pod in pods}
        asked = [_kept(pod, one.node.labels) for one in some for pod in one.pods]
        greedy = emptied.solve(asked, effort=0, explain=False, budget=STEPS)
        if greedy.unplaced:
            return SimulationAnswer(None, told(greedy), spoilt=tuple(one.pod for one in greedy.unplaced))
        result = improved(emptied, greedy)
        if why := pays(result):
            return SimulationAnswer(None, why)
        if sorted(pod.uid for pod in result.placed) != sorted(own):
            return SimulationAnswer(None, NOT_ALL_PODS_FIT)
        result = _with(result, own)
        taken = self._taken(result)
        if taken:
            return SimulationAnswer(None, _reservation_held_by_other(taken))
        verdict = counting.judge(design_of(result), leaving=leaving)
        if not verdict.legal:  # a node that is closed is not quite one that leaves
            text = NOT_ALL_PODS_FIT + "; ".join(map(str, verdict.faults[:_MOST_TOLD]))
            return SimulationAnswer(None, text, spoilt=tuple(one.pod for one in verdict.faults))
        stuck = self._drained(result, names)
        return SimulationAnswer(result) if stuck is None else SimulationAnswer(None, str(stuck), spoilt=(stuck.pod,))

    def goes_first(self, one: Candidate, result: Result) -> str:
        """Why a node cannot leave so by itself, as users read it; "" where it can. `result`: its share of what was answered about it and others."""
        name, pools = {str(one.node.key)}, self._prepared.world.pools
        for pool in limits_after(pools, [one.node], result.claims) or ():
            if (
                any(pool.name == new.pool for new in result.claims)
                and min((pool.remaining or EMPTY).values(), default=0) < 0
            ):
                return _exceeds_limits(pool.name)
        world = without_charges(self._prepared, [one.node])
        verdict = world.judge(design_of(result), leaving=self._leaving | name)
        if not verdict.legal:
            return NOT_ALL_PODS_FIT + "; ".join(map(str, verdict.faults[:_MOST_TOLD]))
        return str(self._drained(result, name) or "")

    def given_up(self, some: Sequence[Candidate], result: Result, types: CandidateTypes) -> str:
        """What a move of these nodes would give up; see `wishes.given_up`."""
        self._lost = given_up(self._prepared, self._bins, some, result, types)
        return self._lost

    def as_judged(self, claims: Iterable[PlannedClaim]) -> tuple[PlannedClaim, ...]:
        """Claims that come where `given_up` judges them; see `wishes.as_judged`."""
        return as_judged(self._prepared, claims)

    def needs_new_node(self, some: Sequence[Candidate]) -> list[Pod]:
        """The pods of these nodes that no other node takes, wherever others come to: a move gives them new nodes, or is none. See `prepared.without_place`."""
        names = {str(one.node.key) for one in some}
        return without_place(self._prepared, [pod for one in some for pod in one.pods], self._leaving | names)

    def prefer(self, last: Sequence[str]) -> None:
        """From now on nodes take pods in another order; `last` as of the class."""
        self._prepared = _reordered(self._prepared, last)

    def reopened(self, closed: Collection[str]) -> "Simulation":
        """The same world by now, where nodes that were closed for this pass take pods again, as far as they stay."""
        other = copy.copy(self)
        other._bins = dict(self._bins)  # noqa: SLF001 - its own copy
        other._update(  # noqa: SLF001 - likewise
            {
                name: replace(self._bins[name], closed=False)
                for name in sorted(closed)
                if name in self._bins and name not in self._leaving
            }
        )
        return other

    def offered(self, pools: tuple[SchedulingPool, ...]) -> "Simulation":
        """The same world by now with other instance types in its NodePools."""
        other = copy.copy(self)
        other._bins = dict(self._bins)  # noqa: SLF001 - its own copy
        other._prepared = self._prepared.updated(Changes(pools=pools))  # noqa: SLF001 - likewise
        return other

    def accept(self, some: Iterable[Candidate], result: Result) -> None:
        """From now on these nodes leave, and their pods are where `result` has them. New claims take no other pod: a command depends on no other.

        Room through which pods go while others of them still run is kept, too.
        """
        listed = list(some)
        self._moved.update((pod.shape.key, pod) for one in listed for pod in one.pods)
        self._leaving.update(str(one.node.key) for one in listed)
        self._apply([pod for one in listed for pod in one.pods], result, [one.node for one in listed])
        taken = self._detours.get(frozenset([str(one.node.key) for one in listed]), {})
        held = {name: sum((pod.shape.requests for pod in pods), EMPTY) for name, pods in taken.items()}
        self._update({name: replace(one, room=one.room - held[name]) for name in held if (one := self._bins.get(name))})

    def _drained(self, result: Result, names: set[str], *, ends: bool = False) -> StuckEviction | None:
        """What stands in the way of a drain of these nodes; where nothing does, the detours of their pods are remembered."""
        in_waves = bool(self._prepared.world.topology) and not ends and not self._at_once(result.placed)
        found = drained(self._prepared, result, self._leaving | names, in_waves=in_waves)
        if isinstance(found, StuckEviction):
            return found
        self._detours[frozenset(names)] = found
        return None

    def _apply(self, pods: Iterable[Pod], result: Result, gone: Sequence[NodeView] = ()) -> None:
        placed = {pod.uid for pod in result.placed}
        homes: dict[str, list[Pod]] = {}
        for pod in pods:
            home = self._where.get(pod.node_name) if pod.node_name else None
            if home is not None and pod.uid in placed:
                homes.setdefault(home, []).append(pod)
        changes = {name: without(self._bins[name], some) for name, some in homes.items()}
        for name, some in result.existing.items():
            changes[name] = with_pods(changes.get(name, self._bins[name]), some)
            self.destinations.add(name)
        for claim in result.claims:
            self._made += 1
            one = filled(claim, name_of(-self._made))  # counted down: `drained` counts up
            changes[one.name] = one
            self._held.update(claim.reservations)
        self._update(changes, limits_after(self._prepared.world.pools, gone, result.claims))

    def _update(self, changes: dict[str, Bin], pools: tuple[SchedulingPool, ...] | None = None) -> None:
        self._bins.update(changes)
        self._prepared = self._prepared.updated(Changes(bins=changes, pools=pools))

    def _taken(self, result: Result) -> str:
        return next((one for claim in result.claims for one in claim.reservations if one in self._held), "")

    def _at_once(self, pods: Iterable[Pod]) -> bool:
        """Whether nothing keeps these pods from being evicted all at once."""
        return self._budgets.waves(pods) <= 1


def _has_end(one: Candidate) -> bool:
    """Whether no PodDisruptionBudget holds the drain of a node for ever."""
    return bool(one.claim.spec.termination_grace_period)


def _reordered(prepared: Prepared, last: Sequence[str]) -> Prepared:
    """The same world with another order of preference."""
    places = {name: -number for number, name in enumerate(last, start=-len(last))}
    bins = sorted(prepared.world.bins, key=lambda one: places.get(one.name, 0))
    return prepare(replace(prepared.world, bins=tuple(bins)), prepared)


def _kept(pod: Pod, labels: Mapping[str, str]) -> Pod:
    """The pod, which stays in the domains of its node over which it is tied to others."""
    shape = pod.shape
    own = {key: labels[key] for key in sorted(topology_keys((pod,))) if key in labels}
    if not own:
        return pod
    selector = {**shape.node_selector, **own}
    return changed(pod, shape=changed(shape, key=f"{shape.key} in {own}", node_selector=selector))


def _with(result: Result, pods: Mapping[str, Pod]) -> Result:
    """The same with the pods as they are."""
    claims = tuple(changed(one, pods=tuple(pods[pod.uid] for pod in one.pods)) for one in result.claims)
    existing = {name: tuple(pods[pod.uid] for pod in some) for name, some in result.existing.items()}
    return replace(result, claims=claims, existing=existing)


def told(result: Result) -> str:
    """Why pods have no place, as users read it."""
    left = [one for one in result.unplaced if one.is_tried]
    if not left:
        return NOT_JUDGED_IN_TIME
    reasons = [f"{one.pod.key} => {one}" for one in left[:_MOST_TOLD]]
    more = Said(f" and {len(left) - _MOST_TOLD} more pods") if len(left) > _MOST_TOLD else ""
    return NOT_ALL_PODS_FIT + "; ".join(reasons) + more
