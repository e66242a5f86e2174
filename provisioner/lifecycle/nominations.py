"""Planned pods are nominated to the nodes that are about to be let in, and nominations that led nowhere are taken back.

A nomination (`status.nominatedNodeName`) is a hint that kube-scheduler, preemption and binding write too. So every write
here tests what it replaces, and each of ours ends: by the binding, by kube-scheduler after a cycle that failed, or by us.
What a predecessor left is found by its plans. Who may be nominated is decided in `scheduling.nomination.nomination_rules`.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.core import Node, TopologySpreadConstraint
from provisioner.apis.gangs import bound_by_volcano, group_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true, version_number
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.pods import Pod, is_terminal
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound
from provisioner.lifecycle.steering import Steering
from provisioner.runtime import metrics
from provisioner.scheduling.nomination.nomination_rules import (
    WITHDRAW_AFTER_SECONDS,
    NominationPolicy,
    Withdrawal,
    Withheld,
    withdrawal,
)
from provisioner.scheduling.nomination.unaided import FEW, OpenNode, Running, needed
from provisioner.scheduling.problem import SpreadDefaults
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from provisioner.state.promises import PodFamily
from provisioner.state.snapshot import Surroundings
from provisioner.support import logs
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool, run_parallel
from provisioner.values.message import Said

#: Measured without an extender: 92 % of the pods land as planned after one round, 98 % and more after three; further ones are for watches that lag.
ROUNDS: Final = 5
SEEN_SECONDS: Final = 0.1
"""How long the watch may take to tell what became of nominations."""
QUIET_SECONDS: Final = (0.2, 2.0)
"""kube-scheduler has tried few pods (`unaided.FEW`) when it has said nothing new of any of them for so long; the second: nobody waits longer for that."""
NO_NODES: Final = "no nodes available to schedule pods"
"""What kube-scheduler says of a pod that it tried while there was no Node at all. It takes that for a failure of its own: no Node that joins makes
it try the pod again, but its clock does, at a whole second. Source: kube-scheduler 1.35 to 1.37, `ErrNoNodesAvailable`, `entityErrorBackoffQ`."""
MAX_WRITES: Final = 8
"""How often one pod is nominated to one node: a pod that fails there again and again is kube-scheduler's to place."""
POLICY_SECONDS: Final = 1.0
"""How old the policy may be by which a lost nomination is given back."""
DEAR_SECONDS: Final = 0.1
DEAR_FACTOR: Final = 20
_RETRY_SECONDS: Final = 1.0
_RETRY_CAP_SECONDS: Final = 32.0
_NAMED: Final = 5
_NOMINATIONS_NOT_BOUND: Final = Said(
    f"Withdrawing the nominations of pods that were not bound within {WITHDRAW_AFTER_SECONDS:g} s"
    " of their Node becoming ready; kube-scheduler places them on its own"
)
_NOMINATIONS_COUNTED_BY_SPREAD: Final = Said(
    "Withdrawing the nominations of pods that a topology spread constraint with DoNotSchedule now counts"
    " together with other pods planned for that Node"
)
_WITHDRAWN: Final = {
    Withdrawal.NOT_BOUND: _NOMINATIONS_NOT_BOUND,
    Withdrawal.NOT_PLANNED: Said("Withdrawing the nominations of pods that are no longer planned for that Node"),
    Withdrawal.COUNTED_BY_SPREAD: _NOMINATIONS_COUNTED_BY_SPREAD,
}
_Joining = tuple[NodeClaim, Node]
_log = logs.get_logger(__name__)


@dataclass(slots=True)
class _Nomination:
    """What was written for one pod."""

    pod: Pod
    claim: str
    node: str
    writes: int = 0
    version: int = 0  # of the pod that our last write made: what is known of an older one says nothing of that write
    over: bool = False  # taken back: not to be written again
    busy: bool = False  # a withdrawal is under way
    writing: int = 0  # writes that are under way
    failures: int = 0
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """Whose room is kept on nodes that are let in.

    Attributes:
        withheld: by claim, how many of its pods may not be nominated: their room is not kept.
        nominated: by claim, UIDs of those that are.
    """

    withheld: Counter[str]
    nominated: dict[str, frozenset[str]]


class Nominations:
    """Every nomination of this term, until its pod is bound, gone, or planned elsewhere. Thread-safe.

    Args:
        pods: every pod that is known, finished ones included.
        defaults: the cluster's default topology spread constraints.
        steering: whether to nominate at all.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        workers: WorkerPool,
        clock: Clock,
        *,
        pods: Callable[[], Iterable[Pod]],
        steering: Steering,
        defaults: tuple[TopologySpreadConstraint, ...] = (),
    ) -> None:
        self._cluster, self._client = cluster, client
        self._workers, self._clock = workers, clock
        self._pods, self._steering, self._defaults = pods, steering, defaults
        self._lock = threading.Lock()
        self._written: dict[str, _Nomination] = {}  # by UID of the pod
        self._ready_at: dict[str, float] = {}  # when a claim with nominations was first seen initialised
        self._made: NominationPolicy | None = None
        self._made_at = self._made_seconds = 0.0

    @property
    def wanted(self) -> bool:
        """Whether pods are nominated now."""
        return self._steering.nominates_any()

    def begin(self) -> None:
        """Take over what an earlier leader wrote: nominations to Nodes of our claims, of pods that their plans name."""
        planned: dict[str, _Listed] = {}
        found = 0
        for pod in self._cluster.waiting():
            ours = pod.nominated_node_name and not bound_by_volcano(pod)  # which nominates its pods itself
            node = self._cluster.node(pod.nominated_node_name) if ours else None
            claim = self._cluster.claim_of(node) if node is not None else None
            if claim is None or node is None:
                continue
            if claim.name not in planned:
                planned[claim.name] = _Listed(claim)
            if pod in planned[claim.name]:
                self._note(pod, claim.name, node.metadata.name)
                found += 1
        if found:
            _log.info("Adopted nominations of a previous leader", pods=found)

    def chosen(self, joining: Iterable[_Joining], opening: Collection[str]) -> KeptRoom:
        """Whose room is to be kept on nodes that are about to be let in together. Those that the extender steers do not count.

        Args:
            joining: NodeClaims and Nodes that are let in.
            opening: of those, the names of the claims whose Nodes take pods from then on. The others open one by one, later.
        """
        joining = list(joining)
        kept = KeptRoom(Counter(), {})
        if not (self.wanted or self._steering.learns):
            return kept
        policy = self._policy()
        by_scheduler: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in (pod for claim, _ in joining for pod in self._led_to(claim)):
            by_scheduler[pod.shape.scheduler_name].append(pod)
        steered = {name for name in by_scheduler if not self._steering.nominates(name)}
        for name in steered:
            self._steering.left(name, (pod.uid for pod in by_scheduler[name] if not policy.is_tied(pod)))
        if steered == by_scheduler.keys():
            return kept
        planned = {
            claim.name: [pod for pod in assigned if pod.shape.scheduler_name not in steered]
            for claim, _ in joining
            if (assigned := self._led_to(claim))
        }
        withheld = {uid: why for pods in planned.values() for uid, why in policy.withheld(pods).items()}
        lacking = self._lacking(joining, opening, planned, withheld)
        for name, pods in planned.items():
            kept.withheld[name] = sum(pod.uid in withheld for pod in pods)
            kept.nominated[name] = frozenset(pod.uid for pod in pods if pod.uid not in withheld) & lacking
            for pod in pods:
                if pod.uid not in kept.nominated[name]:
                    metrics.NOMINATIONS_WITHHELD.labels(withheld.get(pod.uid, Withheld.NOT_NEEDED)).inc()
        return kept

    def _led_to(self, claim: NodeClaim) -> list[Pod]:
        """The pods planned for a node that a nomination or the extender may lead there; the others of them are bound by Volcano, which does as it likes."""
        return [pod for pod in self._cluster.assigned(NodeKey(claim.name)) if not bound_by_volcano(pod)]

    def nominate(self, joining: Iterable[_Joining], kept: KeptRoom, patience: float) -> None:
        """Nominate the pods that were chosen for these nodes and are still planned there; before the first is let in.

        More than once: a cycle that began before a nomination may fail after it, and clears it. Members of groups last, as a cycle of a group that
        fails for one of them clears the nominations of all others that it found a node for; and only once the last of their nodes is let in.

        Args:
            joining: NodeClaims and Nodes that are about to be let in.
            kept: who was chosen.
            patience: seconds that one round of writes is waited for; what hangs goes on by itself and is not written again meanwhile.
        """
        pairs = list(joining)
        self._nominate(pairs, kept, patience, lambda pod: not group_of(pod))
        waiting = {"", *self._groups_waiting({claim.name for claim, _ in pairs})}
        self._nominate(pairs, kept, patience, lambda pod: group_of(pod) not in waiting)

    def renew(self, joined: Iterable[_Joining], kept: KeptRoom) -> None:
        """Nominate again who lost that while these Nodes were let in: until it is known that they are open, nobody gets a nomination back (`lost`)."""
        for pod, claim, _ in self._chosen_of(joined, kept):
            if not pod.nominated_node_name:
                self.lost(pod, claim.name)

    def await_tried(self, joining: Iterable[_Joining], kept: KeptRoom, stopped: Callable[[], bool]) -> None:
        """Wait until kube-scheduler has tried the chosen pods: a cycle that fails later clears the nomination, and the room is anybody's.

        Once for all Nodes that are let in together, and only where they are planned for few pods.

        Args:
            joining: NodeClaims and Nodes that are about to be let in.
            kept: who was chosen.
            stopped: nobody waits any more.
        """
        pairs = list(joining)
        planned = sum(len(self._cluster.assigned(NodeKey(claim.name))) for claim, _ in pairs)
        if planned > FEW or not any(kept.nominated.get(claim.name) for claim, _ in pairs):
            return
        least, most = QUIET_SECONDS
        now = changed = self._clock.monotonic()
        end = now + most
        known = self._tried(pairs, kept)
        while (
            not stopped()
            and now < end
            and (now < changed + least or any(pod.scheduled_message == NO_NODES for pod in known))
        ):
            self._clock.sleep(SEEN_SECONDS)
            now, before, known = self._clock.monotonic(), known, self._tried(pairs, kept)
            if _said(known) != _said(before):
                changed = now

    def _tried(self, pairs: Iterable[_Joining], kept: KeptRoom) -> list[Pod]:
        """The chosen pods, members of groups apart, who are nominated later."""
        return [pod for pod, *_ in self._chosen_of(pairs, kept) if not group_of(pod)]

    def _chosen_of(self, pairs: Iterable[_Joining], kept: KeptRoom) -> Iterator[tuple[Pod, NodeClaim, Node]]:
        """The pods that were chosen for these nodes and are still planned there."""
        for claim, node in pairs:
            chosen = kept.nominated.get(claim.name)
            for pod in self._cluster.assigned(NodeKey(claim.name)) if chosen else ():
                if chosen and pod.uid in chosen:
                    yield pod, claim, node

    def _nominate(self, pairs: Iterable[_Joining], kept: KeptRoom, patience: float, may: Callable[[Pod], bool]) -> None:
        for _ in range(ROUNDS):
            wanted: list[tuple[Pod, str, str]] = []
            behind = False
            for pod, claim, node in self._chosen_of(pairs, kept):
                if not may(pod):
                    continue
                if pod.nominated_node_name == node.metadata.name:
                    self._note(pod, claim.name, node.metadata.name)
                elif self._is_behind(pod) or self._is_writing(pod):
                    behind = True
                elif self._may_write(pod):
                    wanted.append((pod, claim.name, node.metadata.name))
            if not wanted and not behind:
                break
            run_parallel(self._workers, lambda item: self._write(*item), wanted, patience=patience)
            self._clock.sleep(SEEN_SECONDS)

    def _groups_waiting(self, opening: Collection[str] = ()) -> frozenset[str]:
        """The groups that need a node which is neither let in nor one of these NodeClaims, or is not planned."""
        return frozenset(
            gang.group
            for gang in self._cluster.gangs_coming()
            if not gang.has_places
            or not all(one.claim.name in opening or self._is_let_in(one.claim) for one in gang.nodes)
        )

    def _is_let_in(self, claim: NodeClaim) -> bool:
        """While a wave is let in its claims do not say so yet."""
        node = self._cluster.node_of(claim)
        return node is not None and all(taint.key != names.UNREGISTERED_TAINT.key for taint in node.spec.taints)

    def _lacking(
        self,
        joining: Iterable[_Joining],
        opening: Collection[str],
        planned: Mapping[str, list[Pod]],
        withheld: Collection[str],
    ) -> frozenset[str]:
        """UIDs of the planned pods that kube-scheduler would not place without a nomination, or not surely; all, where that is asked for."""
        here = {pod.uid for pods in planned.values() for pod in pods}
        if not self._steering.learns:
            return frozenset(here)
        others = [pod for pod in self._cluster.waiting() if pod.uid not in here and not pod.gated]
        views = {view.key: view for view in self._cluster.snapshot().nodes if view.name}
        nodes = [
            OpenNode(
                {**claim.metadata.labels, **node.metadata.labels},
                view.allocatable,
                view.room + view.planned,
                tuple(planned[claim.name]),
                view.taints,
                claim.name not in opening,
            )
            for claim, node in joining
            if claim.name in planned and (view := views.get(NodeKey(claim.name))) is not None
        ]
        return needed(nodes, withheld, others, Running((view.labels, view.pods) for view in views.values())).nominated

    def lost(self, pod: Pod, claim_name: str) -> None:
        """The nomination of a pod whose node is let in was cleared: give it back, a few times, where it was ours."""
        with self._lock:
            entry = self._written.get(pod.uid)
        if entry is None or entry.claim != claim_name or entry.over:
            return
        claim = self._cluster.claim(claim_name)
        node = self._cluster.node_of(claim) if claim is not None else None
        if (
            self._steering.nominates(pod.shape.scheduler_name)
            and claim is not None
            and node is not None
            and self._is_let_in(claim)  # before, kube-scheduler would only clear it again
        ):
            self._workers.submit(lambda: self._give_back(pod, claim_name, node.metadata.name))

    def review(self) -> None:
        """Take back what is due; call every second or so. Cost: the nominations that stand.

        Returns before the API server has answered; what fails is tried again by a later call.
        """
        with self._lock:
            standing = dict(self._written)
        if not standing:
            return
        now = self._clock.monotonic()
        policy = self._policy()
        by_claim: defaultdict[str, list[_Nomination]] = defaultdict(list)
        for one in standing.values():
            by_claim[one.claim].append(one)
        due: defaultdict[Withdrawal, list[_Nomination]] = defaultdict(list)
        for name, nominations in by_claim.items():
            assigned = self._cluster.assigned(NodeKey(name))
            # kube-scheduler counts the pods that are nominated there, not those that are only planned
            planned, withheld = {pod.uid for pod in assigned}, policy.withheld(filter(_is_nominated, assigned))
            ready = self._ready_seconds(name, now)
            for one in nominations:
                pod = self._cluster.pod(one.pod.uid)
                if pod is None or pod.node_name:
                    self._forget(one)
                    continue
                why = withdrawal(planned=pod.uid in planned, ready_seconds=ready, withheld=withheld.get(pod.uid))
                if why is None:
                    continue
                one.over = True
                if version_number(pod.resource_version) < one.version:
                    continue  # the watch has yet to tell what came of our write
                if pod.nominated_node_name == one.node:
                    if not one.busy and now >= one.retry_at:
                        one.busy = True
                        due[why].append(one)
                elif why is Withdrawal.NOT_PLANNED and not one.busy and not one.writing:
                    self._forget(one)
        with self._lock:
            for name in self._ready_at.keys() - by_claim.keys():
                del self._ready_at[name]
        for why, nominations in due.items():
            self._say(why, nominations)
            for one in nominations:
                self._workers.submit(lambda one=one, why=why: self._withdraw(one, why))  # type: ignore[misc]

    def _ready_seconds(self, claim_name: str, now: float) -> float | None:
        """For how long this process has seen the claim's node ready: clocks of other machines are not asked."""
        claim = self._cluster.claim(claim_name)
        if claim is None or not is_true(claim.status.conditions, names.INITIALIZED):
            self._ready_at.pop(claim_name, None)
            return None
        return now - self._ready_at.setdefault(claim_name, now)

    def _note(self, pod: Pod, claim: str, node: str) -> _Nomination:
        """The entry of this pod on this node, made where there is none."""
        with self._lock:
            known = self._written.get(pod.uid)
            if known is None or (known.claim, known.node) != (claim, node):
                known = self._written[pod.uid] = _Nomination(pod, claim, node)
            return known

    def _may_write(self, pod: Pod) -> bool:
        """Whether the pod has no nomination, or one of ours from an earlier plan: not one of preemption's."""
        with self._lock:
            known = self._written.get(pod.uid)
        return pod.nominated_node_name in ("", known.node if known is not None else "")

    def _is_behind(self, pod: Pod) -> bool:
        """Whether this is the pod as it was before our last write."""
        with self._lock:
            known = self._written.get(pod.uid)
        return known is not None and version_number(pod.resource_version) < known.version

    def _is_writing(self, pod: Pod) -> bool:
        """Whether a write to this pod has no answer yet."""
        with self._lock:
            known = self._written.get(pod.uid)
        return known is not None and known.writing > 0

    def _forget(self, one: _Nomination) -> None:
        with self._lock:
            if self._written.get(one.pod.uid) is one:
                del self._written[one.pod.uid]

    # ------------------------------------------------------------------ writes

    def _write(self, pod: Pod, claim: str, node: str) -> None:
        current = self._cluster.pod(pod.uid)
        if current is None or current.node_name or current.nominated_node_name == node:
            return
        if not self._may_write(current) or self._is_behind(current):
            return
        entry = self._note(pod, claim, node)
        with self._lock:
            if entry.over or entry.writes >= MAX_WRITES:
                return
            entry.writes += 1  # before: whatever arrives is ours
            entry.writing += 1
        outcome = "failed"
        try:
            operation = {"op": "add", "path": _PATH, "value": node}
            entry.version = self._patch(pod, current.nominated_node_name or None, [operation])
            outcome = "written"
        except (NotFound, Conflict, Invalid):
            outcome = "refused"  # gone, another pod has its name, bound a moment ago, or preemption was first
            entry.writes -= 1
            if not entry.writes:
                self._forget(entry)
        except ApiError as error:
            _log.info(
                "Failed to nominate a pod; continuing without a nomination", pod=pod.key, node=node, error=str(error)
            )
        finally:
            with self._lock:
                entry.writing -= 1
        metrics.NOMINATIONS.labels(outcome).inc()

    def _give_back(self, pod: Pod, claim: str, node: str) -> None:
        if (group := group_of(pod)) and group in self._groups_waiting():
            return
        beside = [one for one in self._cluster.assigned(NodeKey(claim)) if one.uid == pod.uid or _is_nominated(one)]
        planned = any(one.uid == pod.uid for one in beside)
        if planned and pod.uid not in self._policy(POLICY_SECONDS).withheld(beside):
            self._write(pod, claim, node)

    def _withdraw(self, one: _Nomination, why: Withdrawal) -> None:
        try:
            one.version = self._patch(one.pod, one.node, [{"op": "remove", "path": _PATH}])
        except (NotFound, Conflict, Invalid):
            self._forget(one)  # gone, bound or cleared a moment ago, or somebody else's by now
        except ApiError as error:
            one.failures += 1
            delay = doubled(one.failures, base=_RETRY_SECONDS, cap=_RETRY_CAP_SECONDS)
            one.retry_at = self._clock.monotonic() + delay
            _log.warning(
                "Failed to withdraw a nomination; retrying",
                pod=one.pod.key, node=one.node, seconds=delay, error=str(error),
            )  # fmt: skip
        else:
            metrics.NOMINATIONS_WITHDRAWN.labels(why).inc()
        finally:
            one.busy = False

    def _patch(self, pod: Pod, now: str | None, operations: list[dict[str, Any]]) -> int:
        """Change the field where it still is `now` (None: absent), and the pod is the one that we know and still waits; the pod's version then.

        Since 1.35 the API server clears the field when it binds a pod and refuses it afterwards; before, it would stay for as long as the pod lives.
        """
        guards = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": "/spec/nodeName", "value": None},
            {"op": "test", "path": _PATH, "value": now},
        ]
        written = self._client.patch(
            resources.PODS, pod.name, [*guards, *operations], pod.namespace, subresource="status", kind="json"
        )
        return version_number(written.resource_version)

    @staticmethod
    def _say(why: Withdrawal, nominations: list[_Nomination]) -> None:
        first = sorted(nominations, key=lambda one: one.pod.key)[:_NAMED]
        _log.warning(
            _WITHDRAWN[why],
            count=len(nominations),
            pods=", ".join(one.pod.key for one in first),
            nodes=", ".join(sorted({one.node for one in first})),
        )

    # ------------------------------------------------------------------ policy

    def _policy(self, max_age: float = 0.0) -> NominationPolicy:
        """The policy of now, or of at most `max_age` seconds ago.

        One that took long is kept for longer, so that a cluster of 100,000 selectors costs a twentieth of a core; what was
        nominated by an old one is taken back by the next.
        """
        if self._made_seconds > DEAR_SECONDS:
            max_age = max(max_age, DEAR_FACTOR * self._made_seconds)
        made, began = self._made, self._clock.monotonic()
        if made is not None and began - self._made_at <= max_age:
            return made
        around = self._cluster.snapshot().around if self._defaults else Surroundings()
        made = NominationPolicy(
            (pod for pod in self._pods() if not is_terminal(pod)),
            SpreadDefaults(self._defaults, around.services, around.controllers),
        )
        self._made, self._made_at, self._made_seconds = made, began, self._clock.monotonic() - began
        return made


_PATH: Final = "/status/nominatedNodeName"


def _said(pods: Iterable[Pod]) -> list[tuple[str, str, str]]:
    return [(pod.uid, pod.scheduled_message, pod.nominated_node_name) for pod in pods]


def _is_nominated(pod: Pod) -> bool:
    return bool(pod.nominated_node_name)


class _Listed:
    """The pods that a claim's plan names: by UID, or by owner and class where it holds more than it names."""

    def __init__(self, claim: NodeClaim) -> None:
        try:
            entries = decode_plan(claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")).pods
        except PlanError:
            entries = ()
        self._uids: Final = {uid for entry in entries for uid in entry.uids}
        self._families: Final = {
            PodFamily(entry.owner, entry.klass) for entry in entries if entry.count > len(entry.uids)
        }

    def __contains__(self, pod: Pod) -> bool:
        return pod.uid in self._uids or PodFamily.of(pod) in self._families
