"""A drain: which pods leave a Node next, and `Evictions`, which asks them to. Source: core spec 7.2-7.4."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.command import is_marked
from provisioner.apis.core import ObjectReference, PodDisruptionBudget
from provisioner.apis.gangs import group_of
from provisioner.apis.interruption import has_begun, interruption_of
from provisioner.apis.karpenter import NodeClaim, grace_of
from provisioner.apis.meta import condition, version_number
from provisioner.apis.pods import Pod, is_active, is_critical, is_daemon, is_drainable, is_evictable, is_terminal
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound, ServerError, TooManyRequests
from provisioner.kube.events import Recorder
from provisioner.runtime import metrics
from provisioner.runtime.object_reference import node_reference, pod_reference, reference_of
from provisioner.scheduling.drainability import eviction_order
from provisioner.state.cluster import Cluster
from provisioner.state.pause import NOTHING, Pause, activities_behind
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.termination.one_node import stays_together
from provisioner.values.bounded import forget_oldest, put_newest
from provisioner.values.message import EventMessage, Said

#: A pod that the API server has agreed to end is not asked again for so long: longer than it takes to notice a watch that was cut.
LEAVING_SECONDS: Final = 120.0
#: A pod is asked for so long after `add`: who adds has compared its Node with the API server. Then its drain has to look, and add, again.
GIVEN_SECONDS: Final = 5.0
#: Nor is it asked for a pod that a budget refused, for as long, while the caches show the same: budgets that allow nothing
#: keep thousands of pods, and asking for each with back-off would leave nobody else anything of the client's rate.
HELD_SECONDS: Final = LEAVING_SECONDS
_MOST_LEAVING: Final = 10_000
_SHORTEST_GRACE: Final = timedelta(seconds=1)
_MULTIPLE_BUDGETS: Final = "more than one PodDisruptionBudget"
_log = logs.get_logger(__name__)
_EVICTION_FAILED: Final = "Eviction failed; retrying"


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What draining wants now.

    Attributes:
        evict: pods of the first tier that still has any; only these are asked to leave.
        waiting: pods of all tiers that still hold the drain.
        force: pods that are deleted without asking, so that their grace period ends with the Node's.
    """

    evict: tuple[Pod, ...]
    waiting: int
    force: tuple[Pod, ...] = ()


def drain_step(pods: Iterable[Pod], now: datetime, deadline: datetime | None = None) -> DrainStep:
    """The next step of a drain; pure.

    Tiers, one after another: ordinary pods, ordinary daemons, critical pods, critical daemons. Source: core spec 7.3.
    A pod that is protected by karpenter.sh/do-not-disrupt holds the drain and is not asked, until `deadline`: when the
    Node ends whatever runs on it; None for a Node that waits for its pods. Those of a tier are asked in `eviction_order`.
    """
    holding = [pod for pod in pods if is_drainable(pod, now) and pod.phase not in ("Succeeded", "Failed")]
    if not holding:
        return DrainStep((), 0)
    tier = min(_tier(pod) for pod in holding)
    force = {pod.uid for pod in holding if deadline is not None and _must_go(pod, now, deadline)}
    evict = (pod for pod in holding if _tier(pod) == tier and is_active(pod) and is_evictable(pod, now))
    return DrainStep(
        tuple(sorted((pod for pod in evict if pod.uid not in force), key=eviction_order)),
        len(holding),
        tuple(sorted((pod for pod in holding if pod.uid in force), key=eviction_order)),
    )


def _must_go(pod: Pod, now: datetime, deadline: datetime) -> bool:
    """Whether the pod's grace period would outlast the Node."""
    if pod.deleted is not None:
        return pod.deleted > max(deadline, now + _SHORTEST_GRACE)  # it has been told the shortest time otherwise
    # seconds against seconds: a tenant may ask for a grace period that no date can hold
    return pod.grace_seconds is not None and (deadline - now).total_seconds() < pod.grace_seconds


def newer(known: Pod, other: Pod | None) -> Pod:
    """The later state of a pod; `known` where nobody can tell. Resource versions of one object may be compared as numbers."""
    if other is None:
        return known
    return other if version_number(other.resource_version) > version_number(known.resource_version) > 0 else known


def deadline_of(claim: NodeClaim) -> datetime | None:
    """When the claim's Node is terminated whatever runs on it; None where nothing says so, or what says so cannot be read.

    The annotation counts; where it is missing or cannot be read, the terminationGracePeriod of a claim that is being deleted does.
    """
    try:
        found = datetime.fromisoformat(claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP, ""))
    except ValueError:
        return grace_end(claim, None)
    return found if found.tzinfo is not None else grace_end(claim, None)


def why_paused(claim: NodeClaim | None, pause: Pause, now: datetime) -> str:
    """What pauses the drain of a node that we chose, "" where nothing does; that of others goes on.

    No pod of a paused drain is asked to leave, and no deadline counts.
    """
    if claim is None or has_begun(claim.metadata.annotations, now):
        return ""
    ours = is_marked(claim) or names.ENDED_FOR in claim.metadata.annotations
    return pause.why_drains(claim.pool, activities_behind(claim)) if ours else ""


def counting_deadline(claim: NodeClaim | None, pause: Pause, now: datetime) -> datetime | None:
    """When the claim's Node is terminated whatever runs on it; None where nothing says so, and while its drain is paused."""
    return deadline_of(claim) if claim is not None and not why_paused(claim, pause, now) else None


def grace_end(claim: NodeClaim, longest: timedelta | None) -> datetime | None:
    """When the terminationGracePeriod of a claim that is being deleted is over; None for one that stays, or has none. Arguments as of `grace_of`."""
    deleted, grace = claim.metadata.deletion_timestamp, grace_of(claim, longest)
    if deleted is None or grace is None:
        return None
    try:
        return deleted + grace
    except OverflowError:
        return None


def earlier_end(claim: NodeClaim, end: datetime) -> dict[str, str]:
    """The annotation that has the drain of a claim's Node end then; nothing where it ends no later already. Whole seconds, rounded down."""
    known = deadline_of(claim)
    if known is not None and known <= end:
        return {}
    return {names.TERMINATION_TIMESTAMP: end.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _tier(pod: Pod) -> tuple[bool, bool]:
    return is_critical(pod), is_daemon(pod)


class Departures:
    """When pods that are being deleted should be gone, by our clock: their grace period counts from when this process first saw them deleted.

    By the API server's time, a leader whose clock is a minute fast would take each of them for stuck, and end its node under it. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[datetime, datetime]] = {}  # by UID: by the API server's clock, and by ours

    def saw(self, pod: Pod) -> Pod:
        """The pod as it is, with `deleted` by our clock; one whose grace period was shortened counts anew."""
        if pod.deleted is None:
            return pod
        with self._lock:
            known = self._seen.get(pod.uid)
            if known is None or known[0] != pod.deleted:
                try:
                    ends = self._clock.now() + timedelta(seconds=pod.ends_in)
                except OverflowError:
                    return pod  # no date: it ends never, by any clock
                known = self._seen[pod.uid] = pod.deleted, ends
                forget_oldest(self._seen, _MOST_LEAVING)
        return msgspec.structs.replace(pod, deleted=known[1])


def failed_draining(why: str) -> EventMessage:
    """`why` is one of the texts that follow, or what blocks the drain as `termination.blockers` says it."""
    return EventMessage("Warning", "FailedDraining", f"Failed to drain node, {why}")


class Evictions:
    """Asks for evictions, one queue for all Nodes; a refused one is tried again with back-off, or when its budget allows more.

    Works on the pods that it is given where the caches do not have them, or not as new: they may be behind. What the API server has agreed to is remembered
    for the same reason: it says yes once more for a pod that ends already, and the pod would count as drained twice.

    Args:
        pause: which NodePools are paused: pods of nodes that we chose are not asked then. The drain offers them again.
        holds: whether a pod waits for its successor; asked last. The drain offers it again.

    Attributes:
        departures: of the pods that are being deleted.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        *,
        workers: int,
        pause: Callable[[], Pause] = lambda: NOTHING,
        holds: Callable[[Pod, NodeClaim | None, datetime | None], bool] = lambda *_: False,
    ) -> None:
        self._pause, self._holds = pause, holds
        self._cluster, self._client, self._recorder, self._clock = cluster, client, recorder, clock
        self.departures = Departures(clock)
        self._given: dict[str, Pod] = {}  # by UID, as long as they are wanted away
        self._given_at: dict[str, float] = {}
        self._deadlines: dict[str, datetime] = {}  # by UID, of pods that are not asked any more
        self._lock = threading.Lock()
        self._leaving: dict[str, tuple[float, datetime | None]] = {}  # by UID: until when it counts, the deadline told
        # by UID, of pods that were refused for their budgets: until when the caches are believed
        self._held: dict[str, float] = {}
        self._budgets = PodBudgets()
        # by namespace and name: how many it still lets be hastened
        self._openings: dict[str, tuple[PodDisruptionBudget, int]] = {}
        self.queue = KeyedQueue("eviction-queue", self._reconcile, clock, workers=workers)

    def due(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Those of the pods for which an eviction would be asked now: budgets do not refuse them, and they have not been told to leave."""
        return tuple(pod for pod in pods if not self._is_held(pod) and not self._leaves(pod.uid, None))

    def add(self, pods: Iterable[Pod]) -> None:
        """Want these pods evicted; asking twice changes nothing.

        One that failed comes again by itself, later. Of those that a budget refused as many are asked at once as it allows when it has changed: else a
        drain under a budget would take the time of their back-off, ten seconds for each few pods.
        """
        for pod in pods:
            self._given[pod.uid] = pod
            self._given_at[pod.uid] = self._clock.monotonic()
            if self._may_go_now(pod):
                self.queue.add(pod.uid)
            else:
                self.queue.offer(pod.uid)

    def _may_go_now(self, pod: Pod) -> bool:
        """Whether the budget that refused the pod has changed since and allows its eviction; each change is spent once for all Nodes."""
        with self._lock:
            if pod.uid not in self._held:
                return False
            mine = self._current_budgets().of(pod)
            if len(mine) != 1 or self._current_budgets().holding(pod):
                return False
            budget = mine[0]
            key = budget.metadata.key
            left = self._openings[key][1] if key in self._openings else budget.status.disruptions_allowed
            self._openings[key] = budget, left - 1
            if left <= 0:
                return False
            del self._held[pod.uid]
            return True

    def _current_budgets(self) -> PodBudgets:
        """Those in the caches; with the lock."""
        current = self._cluster.pod_budgets()
        if self._budgets is not current:
            self._budgets = current
            self._openings = {
                key: one
                for key, one in self._openings.items()
                if any(one[0] is each for each in current.get(one[0].metadata.namespace, ()))
            }
        return current

    def _is_held(self, pod: Pod) -> bool:
        """Whether a budget refused the pod a while ago, and the caches show that it would again."""
        with self._lock:
            known = self._clock.monotonic() < self._held.get(pod.uid, float("-inf"))
            return known and bool(self._current_budgets().holding(pod))

    def _hold(self, uid: str) -> None:
        with self._lock:
            self._held[uid] = self._clock.monotonic() + HELD_SECONDS

    def force(self, pods: Iterable[Pod], deadline: datetime) -> None:
        """Delete these pods so that they are gone by `deadline`; budgets and do-not-disrupt count no more."""
        for pod in pods:
            self._given[pod.uid] = pod
            self._deadlines[pod.uid] = deadline
            self.queue.add(pod.uid)

    def _reconcile(self, uid: str) -> ReconcileResult:
        given = self._given.get(uid)
        known = self._cluster.pod(uid)
        result = self._evict(uid, newer(known, given) if known is not None else given)
        if not result.failed:
            with self._lock:
                self._held.pop(uid, None)
            if self._given.get(uid) is given:
                self._given.pop(uid, None)
                self._given_at.pop(uid, None)
        return result

    def _evict(self, uid: str, pod: Pod | None) -> ReconcileResult:
        deadline = self._deadlines.pop(uid, None)
        if self._leaves(uid, deadline):
            return DONE
        if pod is None or not pod.node_name:
            return DONE
        now = self._clock.now()
        by = deadline if deadline is not None and _must_go(pod, now, deadline) else None
        if by is None and not (is_active(pod) and is_evictable(pod, now)):
            return DONE  # the drain asks again when that changes
        node = self._cluster.node(pod.node_name)
        claim = self._cluster.claim_of(node) if node is not None else None
        if self.held_by_pause(claim, pod.node_name):
            return DONE
        if by is not None:
            return self._delete(pod, by)
        if self._is_held(pod):
            return ReconcileResult(failed=True)
        if (since := self._clock.monotonic() - self._given_at.get(uid, float("-inf"))) > GIVEN_SECONDS:
            return ReconcileResult(
                failed=since < LEAVING_SECONDS
            )  # longer than any pause of a drain: none wants it any more
        if self._holds(pod, claim, deadline_of(claim) if claim is not None else None):
            return DONE
        if why := self._stays_together(pod, claim):
            self._recorder.publish(_node_of(pod), *failed_draining(why), dedupe=(group_of(pod),))
            return DONE
        try:
            self._client.evict(pod.name, pod.namespace, pod.uid)
        except ApiError as error:
            metrics.EVICTIONS.labels(str(error.status)).inc()
            return self._refused(pod, error) if not isinstance(error, NotFound | Conflict) else DONE
        self._agreed(uid, None)
        metrics.EVICTIONS.labels("200").inc()
        reason = self._reason(pod)
        metrics.PODS_DRAINED.labels(reason).inc()
        self._recorder.publish(pod_reference(pod), "Normal", "Evicted", f"Evicted pod: {reason}")
        return DONE

    def _stays_together(self, pod: Pod, claim: NodeClaim | None) -> str:
        """As of `one_node`, where the drain has an end that no cloud sets. The drain offers the pod again."""
        key = group_of(pod)
        if not key or claim is None or self.deadline(claim) is None or interruption_of(claim.metadata.annotations):
            return ""
        standing, (told_by, _) = self._cluster.gang_standing(key), self._cluster.gang_told_of(key)
        if standing is None:
            return ""
        here = [one for one in self._cluster.bound_to(pod.node_name) if group_of(one) == key and not is_terminal(one)]
        with self._lock:
            budgets = self._current_budgets()
        return stays_together(standing.group, told_by, here, budgets, self._clock.now())

    def deadline(self, claim: NodeClaim | None) -> datetime | None:
        """As `counting_deadline`, now."""
        return counting_deadline(claim, self._pause(), self._clock.now())

    def paused(self, claim: NodeClaim | None) -> str:
        """What pauses the drain of this claim's Node now; "" where nothing does."""
        return why_paused(claim, self._pause(), self._clock.now())

    def held_by_pause(self, claim: NodeClaim | None, node_name: str) -> bool:
        """Whether a pause holds the drain of this Node now; events of Node and NodeClaim say which."""
        paused = self.paused(claim)
        node = self._cluster.node(node_name) if paused else None
        for one in (
            reference_of(claim) if claim is not None else None,
            node_reference(node) if node is not None else None,
        ):
            if paused and one is not None:
                self._recorder.publish(one, "Normal", "DisruptionBlocked", paused)
        return bool(paused)

    def _delete(self, pod: Pod, deadline: datetime) -> ReconcileResult:
        left = max(1, int((deadline - self._clock.now()).total_seconds()))
        try:
            self._client.delete(resources.PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=left)
        except (NotFound, Conflict):
            return DONE
        except ApiError as error:
            _log.info("Failed to delete a pod; retrying", pod=pod.key, error=str(error))
            self._deadlines[pod.uid] = deadline
            return ReconcileResult(failed=True)
        self._agreed(pod.uid, deadline)
        metrics.PODS_DRAINED.labels(self._reason(pod)).inc()
        self._recorder.publish(
            pod_reference(pod),
            "Normal",
            "Disrupted",
            f"Deleted the pod with a grace period of {left} s because its node is terminated at "
            f"{deadline:%Y-%m-%dT%H:%M:%SZ}",
        )
        return DONE

    def _agreed(self, uid: str, deadline: datetime | None) -> None:
        with self._lock:
            put_newest(self._leaving, uid, (self._clock.monotonic() + LEAVING_SECONDS, deadline), _MOST_LEAVING)

    def _leaves(self, uid: str, deadline: datetime | None) -> bool:
        """Whether the API server has agreed to what is wanted, whatever the caches show of the pod."""
        with self._lock:
            until, told = self._leaving.get(uid, (0.0, None))
        return self._clock.monotonic() < until and (deadline is None or (told is not None and told <= deadline))

    def _refused(self, pod: Pod, error: ApiError) -> ReconcileResult:
        why = Said(f"evicting pod {pod.key} failed: {error.message}")  # busy, or a policy says so: hastened by nothing
        if isinstance(error, TooManyRequests) and error.by_budget:
            why = Said(f"evicting pod violates a PDB (Pod={pod.key})")
            self._hold(pod.uid)
        elif isinstance(error, ServerError) and _MULTIPLE_BUDGETS in error.message:
            why = Said(f"eviction does not support multiple PDBs (Pod={pod.key})")
            self._hold(pod.uid)
        if isinstance(error, TooManyRequests | ServerError):
            _log.debug(_EVICTION_FAILED, pod=pod.key, error=str(error))
        else:
            _log.info(_EVICTION_FAILED, pod=pod.key, error=str(error))
        self._recorder.publish(_node_of(pod), *failed_draining(why), dedupe=(pod.key,))
        return ReconcileResult(failed=True)

    def _reason(self, pod: Pod) -> str:
        for claim in self._cluster.claims():
            if claim.status.node_name == pod.node_name:
                found = condition(claim.status.conditions, names.DISRUPTION_REASON)
                return found.reason if found is not None else "Forceful Termination"
        return ""


def _node_of(pod: Pod) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Node", name=pod.node_name, uid=pod.node_name)
