"""Where the pods of a run go: one question about all of them, then what its answer leaves open. Nothing is launched here."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from provisioner.apis.gangs import group_of
from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.apis.pods import Pod
from provisioner.packing.planner import PackingOutcome, as_scheduled
from provisioner.provisioning.questions import BatchQuestion
from provisioner.provisioning.replanning import Replanning
from provisioner.provisioning.worlds import Worlds
from provisioner.requests.bookings import KeptPlaces, keep
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from provisioner.scheduling.drainability import staying, too_early
from provisioner.scheduling.improvement.acceptance import EPSILON_USD
from provisioner.scheduling.judging import design_of, part_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.result import Result
from provisioner.scheduling.topology.ties import topology_keys
from provisioner.scheduling.world import Gathered, as_they_run, successors, without
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.support.clock import Clock

Solve: TypeAlias = Callable[[Prepared, Sequence[Pod], Mapping[str, frozenset[str]]], Result]
"""Where pods go in a world; by UID of a pod, names of nodes that it keeps off."""
MOST_DEARER: Final = 1.25
"""So many times what was planned the nodes of a gang may cost, if part of them cannot be had."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a run decides before anything is launched.

    Attributes:
        gathered: the world, and what nobody understands of it.
        prepared: the same, with the places that ProvisioningRequests keep.
        kept: these; None without requests.
        virtual: all pods of the question that do not exist.
        greedy: scheduling's own answer.
        planned: what is to be launched.
        postponed: UIDs of the pods that are planned once those that wait have their places; they still run.
    """

    question: BatchQuestion
    gathered: Gathered
    prepared: Prepared
    kept: KeptPlaces | None
    virtual: tuple[Pod, ...]
    greedy: Result
    planned: PackingOutcome
    postponed: frozenset[str] = frozenset()


class RepeatedAnswer(NamedTuple):
    """What some pods of a run are given in a question of their own, in a later instant."""

    snapshot: Snapshot
    prepared: Prepared
    planned: PackingOutcome


class BatchPlanning:
    """Plans one run after another, in one thread; `fits_elsewhere` may be asked in any.

    Args:
        improve: finds a cheaper answer.
        replanning: takes back NodeClaims that are not being launched yet; None: they stay.
        deadline: of one question, in seconds.
        solve: answers for all pods of a run in place of scheduling, without second thoughts.
    """

    def __init__(
        self,
        cluster: Cluster,
        worlds: Worlds,
        clock: Clock,
        *,
        improve: Callable[[Prepared, Result], PackingOutcome],
        replanning: Replanning | None,
        deadline: float,
        solve: Solve | None = None,
    ) -> None:
        self._cluster, self._worlds, self._clock, self._deadline = cluster, worlds, clock, deadline
        self._improve, self._replanning, self._solve_instead = improve, replanning, solve
        self._prepared: Prepared | None = None

    def expired(self) -> Callable[[], bool]:
        """Says when the time of a question that begins now is up."""
        end = self._clock.monotonic() + self._deadline
        return lambda: self._clock.monotonic() >= end

    def plan(self, question: BatchQuestion) -> BatchPlan:
        """Where the pods of a run go; those that are postponed or spoilt are asked about with `again`."""
        snapshot = question.snapshot
        gathered = self._worlds.of(snapshot)
        prepared = self._prepared = prepare(gathered.world, self._prepared)
        kept = self._kept_places(question, prepared)
        if kept is not None:
            prepared = kept.prepared
        virtual = (*question.buffers, *(kept.pods if kept is not None else ()))
        pods = (*question.together, *virtual)
        if self._solve_instead is not None:
            result = self._solve_instead(prepared, pods, snapshot.avoided)
            return BatchPlan(question, gathered, prepared, kept, virtual, result, as_scheduled(prepared, result))
        greedy = self._solve(question, prepared, pods)
        planned = self._improve(prepared, greedy)
        plan = BatchPlan(question, gathered, prepared, kept, virtual, greedy, planned)
        if (before := self._before_others_left(plan)) is not None:
            greedy = self._solve(question, before, (*question.waiting, *virtual))
            return replace(plan, greedy=greedy, planned=self._improve(before, greedy), postponed=question.running)
        if (other := self._one_after_another(question, snapshot, prepared, planned.result, self.expired())) is not None:
            return replace(plan, planned=other)
        if self._replanning is not None and question.pods and kept is None:
            better = self._replanning.planned(snapshot, pods, prepared, planned, self.expired, question.last)
            return replace(plan, planned=better)
        return plan

    def again(
        self, plan: BatchPlan, uids: Collection[str], expired: Callable[[], bool], *, runs: bool, usd: float | None
    ) -> RepeatedAnswer | None:
        """Plan those of these pods that still run on nodes that go, or wait, and have no place yet; for so many USD per hour.

        None where there are none, or no money.
        """
        snapshot = self._cluster.snapshot()
        pods = tuple(one for one in (snapshot.leaving if runs else snapshot.waiting) if one.uid in uids)
        if not pods or (usd is not None and usd <= 0):
            return None
        world = self._worlds.of(snapshot if runs else as_they_run(snapshot)).world
        prepared = prepare(world if usd is None else self._worlds.within(world, usd), self._prepared)
        if plan.kept is not None:
            prepared = plan.kept.into(prepared)
        first, last = plan.question.first, plan.question.last
        result = prepared.solve(
            pods, avoided=snapshot.avoided, first=first, last=last, expired=expired, explain=usd is None
        )
        planned = self._one_after_another(plan.question, snapshot, prepared, result, expired) if runs else None
        return RepeatedAnswer(snapshot, prepared, planned or as_scheduled(prepared, result))

    def fits_elsewhere(self, claims: Collection[str], of: Collection[str] = ()) -> bool:
        """Whether every pod that waits for these claims would find another place now, on nodes of today or others that can be had.

        `of`: claims that these are among, if any: all together may then cost at most `MOST_DEARER` times what they cost as they are planned.
        """
        now = self._cluster.snapshot()
        snapshot, pods = without(now, claims)
        if not pods:
            return False
        world = replace(self._worlds.of(snapshot).world, groups={})  # what others of a group wait for is no matter here
        result = prepare(world, self._prepared).solve(pods, expired=self.expired(), explain=False)
        if result.unplaced or not of:
            return not result.unplaced
        types = {pool.name: {kind.name: kind for kind in pool.instance_types} for pool in world.pools}
        prices = {
            view.claim.name: usd_per_hour(view.claim, types.get(view.pool, {}))
            for view in now.nodes
            if view.claim is not None and view.claim.name in of
        }
        kept = sum(price for name, price in prices.items() if name not in claims)
        return kept + result.usd_per_hour <= MOST_DEARER * sum(prices.values()) + EPSILON_USD

    def _kept_places(self, question: BatchQuestion, prepared: Prepared) -> KeptPlaces | None:
        """The places that ProvisioningRequests get before anybody else."""
        requests = question.requests
        if not requests.asked and not requests.limited:
            return None
        return keep(requests, prepared, question.snapshot.avoided, self.expired())

    def _solve(self, question: BatchQuestion, prepared: Prepared, pods: tuple[Pod, ...]) -> Result:
        avoided = question.snapshot.avoided
        return prepared.solve(pods, avoided=avoided, first=question.first, last=question.last, expired=self.expired())

    def _before_others_left(self, plan: BatchPlan) -> Prepared | None:
        """The world in which pods that are to leave count where they run, if what waits could not be bound there; else None.

        A PodDisruptionBudget may let no other go before it is bound.
        """
        snapshot = plan.question.snapshot
        now = as_they_run(snapshot)
        if (now is snapshot and not snapshot.leaving) or not _tied(snapshot.waiting, snapshot):
            return None
        before = plan.prepared
        if now is not snapshot:
            before = prepare(self._worlds.of(now).world, before)
            before = before if plan.kept is None else plan.kept.into(before)
        waiting = part_of(design_of(plan.planned.result), {pod.uid for pod in snapshot.waiting})
        return None if before.judge(waiting).legal else before

    def _one_after_another(
        self,
        question: BatchQuestion,
        snapshot: Snapshot,
        prepared: Prepared,
        result: Result,
        expired: Callable[[], bool],
    ) -> PackingOutcome | None:
        """A plan in which pods that still run, and that PodDisruptionBudgets let go one after another, have places that are legal before the others have left.

        None where those of `result` are, or none is found. What leaves counts as if it stayed as well, and the answer is judged without that.
        """
        tied = _tied(snapshot.leaving, snapshot)
        if not tied or snapshot.pod_budgets.waves(tied) <= 1:
            return None
        early = too_early(prepared, result, tied)
        if not early:
            return None
        before = staying(prepared, [pod for pod in tied if pod.shape.key in early])
        pods = (*result.placed, *(one.pod for one in result.unplaced))
        first = successors(snapshot)
        again = before.solve(pods, avoided=snapshot.avoided, first=first, last=question.last, expired=expired)
        planned = self._improve(before, again)
        found = planned.result
        legal = prepared.judge(design_of(found)).legal and not too_early(prepared, found, tied)
        return planned if legal and len(found.unplaced) <= len(result.unplaced) else None


def _tied(pods: Iterable[Pod], snapshot: Snapshot) -> list[Pod]:
    """Those that are tied to others by themselves or by their PodGroup, over any label but the hostname."""
    keys = snapshot.topology
    return [pod for pod in pods if topology_keys((pod,)) or keys.get(group_of(pod), HOSTNAME_LABEL) != HOSTNAME_LABEL]
