"""New Nodes are let in, in waves: first their planned pods are nominated, then the taints fall together.

kube-scheduler looks at a nominated node first and keeps its room for the pod, but clears the nomination after a failed
cycle, and the fall of another node's taint is what starts such a cycle. So a wave's pods are all nominated before the
first of its taints falls. Measured: 95 % and more of those pods land as planned without any extender (design 3.7).
"""

import contextlib
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.gangs import of_request
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.meta import is_true
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS, given_up
from provisioner.lifecycle.nominations import KeptRoom, Nominations
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime import metrics
from provisioner.runtime.node_patch import appended, merged, patch_node
from provisioner.runtime.object_reference import reference_of
from provisioner.scheduling.nomination.unaided import looks_at_others
from provisioner.state.cluster import Cluster
from provisioner.state.gang_places import ComingGang
from provisioner.state.keys import NodeKey
from provisioner.state.lacking import NOTHING, Lacking, resources_of
from provisioner.state.misses import TOGETHER_SECONDS
from provisioner.support import logs
from provisioner.support.backoff import doubling
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter
from provisioner.support.poller import Poller
from provisioner.support.workers import StillRunningError, WorkerPool, run_parallel
from provisioner.values.message import ConditionMessage
from provisioner.values.taints import Taint

#: A wave is complete when nothing new came for the first time, or the second time after it began. Pods of a later wave
#: take what room the Nodes of an earlier one have beside their nominated pods.
WAVE_SECONDS = (0.5, 3.0)
#: So long a wave waits for a node to be ready, and from then on for the others of its plan to join and to be ready: what is initialised as well takes
#: one pair of writes. The second: where its pods look at where others are; until all are open, pods of a spread wait while others take their room, and
#: pods that should be apart have nowhere else to go.
COMPANION_SECONDS: Final = (3.0, 10.0)
#: An extender holds the room: nobody waits for anybody, and those that came together are let in together.
STEERED_SECONDS: Final = 0.05
RETRY_BASE_SECONDS = 0.2
RETRY_CAP_SECONDS = 30.0
#: One write that hangs holds up a wave no longer than this; it goes on by itself.
PATIENCE_SECONDS = 10.0
#: Claims whose Nodes are open are recorded after so long at most, whatever became of the others of their wave.
OPENING_SECONDS: Final = (2.0, 0.02)
"""At most, and for each Node: a wave of a thousand needs some seconds at the client's rate."""
BOUND_SECONDS: Final = (6.0, 0.02)
"""At most, and for each nominated pod: how long Nodes with room that no nomination keeps wait for the pods of those that were let in before."""
START_SECONDS: Final = 0.1
"""How long writes that let Nodes in wait for one another, each in a thread: on a busy machine, these begin to run 10 ms and more one after another."""
GANG_SECONDS: Final = 0.25
"""How often is looked whether the nodes of a gang are all ready, so that they are let in together."""
GANG_LONGEST_SECONDS: Final = 2 * HOLD_SECONDS + 30.0
"""By then those that did not come were replaced, or all was given up (`gang_keeper`); if not, nobody waits any longer."""
POLL_SECONDS: Final = 0.1
"""How often is looked whether what is waited for has come."""
_FAILURES = counter(
    "dovetail_registration_failures_total", "Registrations of NodeClaims that failed and are retried with backoff.", ()
)
_log = logs.get_logger(__name__)

_Joining = tuple[NodeClaim, Node]
_Opened = tuple[NodeClaim, Node, bool]  # and whether it is initialised with that
_Prepared = tuple[NodeClaim, Node, "NodePatch"]
_Starting = tuple[NodeClaim, Node, "NodePatch", threading.Barrier | None]  # that those meet at who begin together
_Item = TypeVar("_Item", _Joining, _Opened, _Starting)


class _Offer(NamedTuple):
    """A claim whose Node has joined: since when that is known, and when its pods were planned."""

    at: float
    planned: float


@dataclass(slots=True)
class _WaveProgress:
    """How far one wave is.

    Attributes:
        opened: the Nodes that were let in while it was waited for.
        told: of how many of these the state was told.
        over: nobody waits for the others.
    """

    opened: list[_Opened] = field(default_factory=list)
    told: int = 0
    over: bool = False


def _in_stages(pairs: Iterable[_Joining], kept: KeptRoom) -> list[list[_Joining]]:
    """Nodes that could be let in together, in the order in which that is done; those of a stage wait until the nominated pods of earlier ones are bound.

    A pod whose own Node is not open yet goes to any that is, and takes room that was planned for pods that may not be nominated. So Nodes that keep
    all of their room come first, and those that keep none of it last; of a stage, those with the most nominated pods are first, for then the fewest wait
    for others. Pods of a group are bound when the last of their nodes is open, so those are let in together, after all others.
    """
    stages: list[list[_Joining]] = [[], [], [], []]
    for pair in sorted(pairs, key=lambda pair: -len(kept.nominated.get(pair[0].name, ()))):
        exposed, nominated = kept.withheld[pair[0].name], kept.nominated.get(pair[0].name)
        gangs = [one for one in sets_of(pair[0].metadata.annotations) if not of_request(one.group)]
        last = 3 if gangs else (1 if nominated else 2) if exposed else 0
        stages[last].append(pair)
    if not any(kept.nominated.values()):
        return [[pair for stage in stages for pair in stage]]
    return [stage for stage in stages if stage]


def missing(claim: NodeClaim, node: Node, lacking: Lacking = NOTHING) -> ConditionMessage | None:
    """Why this Node is not initialised yet; None when it is. `lacking`: what its planned pods wait for (`OpenNodes.lacking`). Source: core spec 5.

    Differs: Karpenter looks neither at CSI drivers, nor at resources of pods that were planned there after the claim was made.
    """
    if not is_true(node.status.conditions, names.READY):
        return ConditionMessage(names.INITIALIZED, names.UNKNOWN, names.NODE_NOT_READY, "Node status is NotReady")
    for startup in claim.spec.startup_taints or ():
        if any(
            (taint.key, taint.value, taint.effect) == (startup.key, startup.value, startup.effect)
            for taint in node.spec.taints
        ):
            return ConditionMessage(
                names.INITIALIZED, names.UNKNOWN, names.STARTUP_TAINTS_EXIST, f'StartupTaint "{startup}" still exists'
            )
    for taint in node.spec.taints:
        if names.is_ephemeral(taint):
            return ConditionMessage(
                names.INITIALIZED,
                names.UNKNOWN,
                names.EPHEMERAL_TAINTS_EXIST,
                f'KnownEphemeralTaint "{taint}" still exists',
            )
    requested = {name for name, amount in claim.spec.resources.requests.items() if str(amount) != "0"}
    resource = min({*lacking.resources, *(requested - resources_of(node))}, default="")
    if resource:
        return ConditionMessage(
            names.INITIALIZED,
            names.UNKNOWN,
            names.RESOURCE_NOT_REGISTERED,
            f'Resource "{resource}" was requested but not registered',
        )
    driver = min(lacking.drivers, default="")
    if driver:
        return ConditionMessage(
            names.INITIALIZED,
            names.UNKNOWN,
            names.CSI_DRIVER_NOT_REGISTERED,
            f'CSI driver "{driver}" is not registered, and a pod planned for this node needs it',
        )
    return None


def registered(node: Node) -> Node:
    """The Node as it will be once our own taint has fallen."""
    taints = tuple(taint for taint in node.spec.taints if taint.key != names.UNREGISTERED_TAINT.key)
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


@dataclass(frozen=True, slots=True)
class NodePatch:
    """A JSON patch that registers one Node, guarded by the taints it was decided from."""

    operations: list[dict[str, Any]]
    initialized: bool


def registration_patch(claim: NodeClaim, node: Node, lacking: Lacking = NOTHING) -> NodePatch:
    """What turns a joined Node into a registered one; pure. `lacking`: as of `missing`.

    Labels, annotations and taints of the claim, our finalizer and the owner reference are added and the unregistered taint
    is taken off, in one write. Where nothing else is missing the Node is initialised by the same write.

    Differs: of two taints of one key and effect, Karpenter 1.14 keeps the Node's, with its value (`Taints.Merge`). Here the claim's
    counts: its kubelet writes the Node, and would join a dedicated pool as a Node of another value.
    """
    sync = claim.metadata.labels.get(names.DO_NOT_SYNC_TAINTS_LABEL) != "true"
    wanted = (*(claim.spec.taints or ()), *(claim.spec.startup_taints or ())) if sync else ()
    # a startup taint that has fallen before we looked does not come back: only a Node never registered gets them
    if was_registered(claim, node):
        wanted = ()
    ours = {(taint.key, taint.effect): taint for taint in reversed(wanted)}
    kept = [
        taint if (own := ours.get((taint.key, taint.effect))) is None or own.value == taint.value else own
        for taint in node.spec.taints
        if taint.key != names.UNREGISTERED_TAINT.key
    ]
    present = {(taint.key, taint.effect) for taint in kept}
    taints = (*kept, *(taint for taint in wanted if (taint.key, taint.effect) not in present))
    after = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=tuple(taints)))
    initialized = missing(claim, after, lacking) is None
    labels = {**claim.metadata.labels, names.REGISTERED_LABEL: "true"}
    if initialized:
        labels[names.INITIALIZED_LABEL] = "true"
    annotations = {
        key: value
        for key, value in claim.metadata.annotations.items()
        if key not in (names.PLAN_ANNOTATION, names.PLANNED_OFFERING_ANNOTATION, names.LAUNCH_SET)
    }
    operations: list[dict[str, Any]] = []
    if node.spec.taints:
        operations.append({"op": "test", "path": "/spec/taints", "value": _wire(node.spec.taints)})
    if taints != node.spec.taints:
        operations.append({"op": "add", "path": "/spec/taints", "value": _wire(taints)})
    operations += merged("/metadata/labels", node.metadata.labels, labels)
    operations += merged("/metadata/annotations", node.metadata.annotations, annotations)
    operations += appended(
        "/metadata/finalizers", node.metadata.finalizers, names.TERMINATION_FINALIZER, names.TERMINATION_FINALIZER
    )
    owner = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "blockOwnerDeletion": True,
    }
    operations += appended(
        "/metadata/ownerReferences",
        [reference.uid for reference in node.metadata.owner_references],
        claim.metadata.uid,
        owner,
    )
    return NodePatch(operations, initialized)


def was_registered(claim: NodeClaim, node: Node) -> bool:
    """Whether we registered this Node for this claim.

    The label alone is no proof: its kubelet may set it, and would join without the taints of its pool. The owner reference that
    the same write adds has the UID of the claim, which no kubelet can read before.
    """
    return node.registered and any(owner.uid == claim.metadata.uid for owner in node.metadata.owner_references)


class Registrar:
    """Gathers claims whose Node may be let in and does a wave at a time, in the thread of `poller`."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        recorder: Recorder,
        workers: WorkerPool,
        clock: Clock,
        *,
        nominations: Nominations,
        again: Callable[[str], None],
        health: Callable[[str, bool], None],
        chance: random.Random | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._cluster, self._client, self._writer, self._recorder = cluster, client, writer, recorder
        self._patience = patience
        self._workers, self._clock = workers, clock
        self._nominations, self._again, self._health = nominations, again, health
        self._lock = threading.Lock()
        self._waiting: dict[str, _Offer] = {}
        self._ready: dict[str, float] = {}  # of those, when they were first seen ready
        self._delayed: dict[str, float] = {}  # claims whose registration failed, and when it may be tried again
        self._failures: dict[str, int] = {}  # of those, how often in a row
        self._gangs: tuple[ComingGang, ...] = ()  # that nodes come for
        self._busy: set[str] = set()  # claims that are being let in
        self._chance = chance if chance is not None else random.Random()
        self.poller = Poller("registration", self._poll)

    def offer(self, name: str) -> None:
        """A claim whose Node has joined; taken with the next wave, or when it has waited for its next try."""
        with self._lock:
            if name not in self._delayed:
                first = not self._waiting
                self._await(name)
                if first:  # the others only make a wave longer, or are looked at soon
                    self.poller.wake()

    def _await(self, name: str) -> None:
        if name not in self._waiting:
            self._waiting[name] = _Offer(self._clock.monotonic(), self._cluster.planned_at(name))

    def _poll(self) -> float | None:
        wave, wait = self._gather()
        if not wave:
            return wait
        try:
            self._do(wave)
        except Exception as error:  # noqa: BLE001 - the thread outlives a pass that fails
            _log.exception("Registering a batch of NodeClaims failed; retrying", claims=len(wave))
            for name in wave:
                self._retry(name, error)
        return 0.0

    def _gather(self) -> tuple[list[str], float | None]:
        """Names of the next wave, if one is complete as nothing new came for a moment; else seconds until one may be, None while nobody waits."""
        with self._lock:
            now = self._clock.monotonic()
            for name in [name for name, at in self._delayed.items() if at <= now]:
                del self._delayed[name]
                self._await(name)
            if not self._waiting:
                return [], min(self._delayed.values()) - now if self._delayed else None
            closing = {plan: self._closes_at(plan) for plan in self._plans()}
            wave = sorted(name for plan, at in closing.items() if at <= now for name in plan)
            for name in wave:
                del self._waiting[name]
                self._ready.pop(name, None)
            return wave, min(closing.values()) - now

    def _plans(self) -> list[tuple[str, ...]]:
        """The claims that wait, those together that a gang needs or whose pods were planned together; with an extender the others each by themselves."""
        self._gangs = self._cluster.gangs_coming()
        found: list[tuple[str, ...]] = []
        for gang in self._gangs:
            mine = {one.claim.name for one in gang.nodes if one.claim.name in self._waiting}
            linked = mine.union(*[plan for plan in found if not mine.isdisjoint(plan)])
            found = [plan for plan in found if mine.isdisjoint(plan)]
            if linked:
                found.append(tuple(sorted(linked)))
        return found + self._by_time({name for plan in found for name in plan})

    def _awaits_gang(self, plan: Sequence[str], now: float) -> bool:
        """Whether a gang that needs one of these claims needs others that are not there, or has given one of these up."""
        return any(
            not gang.is_bound
            and any(one.claim.name in plan for one in gang.nodes)
            and now - min(self._waiting[one.claim.name].at for one in gang.nodes if one.claim.name in self._waiting)
            <= GANG_LONGEST_SECONDS
            and self._is_in_part(gang, plan)
            for gang in self._gangs
        )

    def _is_in_part(self, gang: ComingGang, plan: Sequence[str]) -> bool:
        """Whether letting these in now might bind a part of a gang; of one that was given up, what is not deleted yet stays shut."""
        if gang.rests:
            return not set(plan).isdisjoint(given_up(gang))
        return not gang.has_places or not all(
            one.claim.name in self._waiting and self._is_ready(one.claim.name) for one in gang.nodes
        )

    def _by_time(self, less: Collection[str]) -> list[tuple[str, ...]]:
        found: list[list[str]] = []
        last = -math.inf
        for name, offer in sorted(self._waiting.items(), key=lambda item: item[1].planned):
            if name in less:
                continue
            if self._nominations.wanted and offer.planned <= last + TOGETHER_SECONDS:
                found[-1].append(name)
            else:
                found.append([name])
            last = offer.planned
        return [tuple(names) for names in found]

    def _closes_at(self, plan: Sequence[str]) -> float:
        """When the wave of claims that were planned together is complete, if nothing new comes."""
        now, wanted = self._clock.monotonic(), self._nominations.wanted
        if self._awaits_gang(plan, now):
            return now + GANG_SECONDS
        offered = [self._waiting[name].at for name in plan]
        idle, longest = WAVE_SECONDS if wanted else (STEERED_SECONDS, STEERED_SECONDS)
        closes = min(max(offered) + idle, min(offered) + longest)
        if closes > now:
            return closes
        ready = [name for name in plan if self._is_ready(name)]
        for name in ready:
            self._ready.setdefault(name, now)
        coming = wanted and self._cluster.companions_coming(plan)
        if not coming and all(map(self._is_complete, plan)):
            return closes
        least, most = COMPANION_SECONDS
        long = wanted and (coming or 1 < len(plan) > len(ready)) and any(map(self._looks_at_others, plan))
        until = min((self._ready[name] for name in ready), default=min(offered)) + (most if long else least)
        return min(now + POLL_SECONDS, until) if until > now else closes

    def _do(self, wave: list[str]) -> None:
        pairs = [
            (claim, node)
            for name in wave
            if (claim := self._cluster.claim(name)) is not None
            and claim.metadata.deletion_timestamp is None
            and not is_true(claim.status.conditions, names.REGISTERED)  # offered again while its wave was under way
            and (node := self._cluster.node_of(claim)) is not None
        ]
        for name in set(wave) - {claim.metadata.name for claim, _ in pairs}:
            self._failures.pop(name, None)  # nothing is left to be done for it
        # All are opened before the first is recorded: whoever is nominated to the last would go to free room on the first.
        # Where nobody is nominated there is nothing to gain, and each is recorded at once.
        progress = _WaveProgress(over=not self._nominations.wanted)
        least, each = OPENING_SECONDS
        patience = self._patience if progress.over else min(self._patience, least + each * len(pairs))
        kept = self._chosen(pairs)
        self._nominations.await_tried(pairs, kept, lambda: self.poller.stopped)
        for stage in _in_stages(pairs, kept):
            self._await_bound(progress, kept)
            self._nominations.nominate(stage, kept, self._patience)
            self._open_together(stage, progress, patience)
            self._nominations.renew(stage, kept)
        with self._lock:
            progress.over = True
        self._tell_of(progress)
        self._each(lambda opened: self._record(*opened), progress.opened, self._patience)

    def _chosen(self, pairs: Sequence[_Joining]) -> KeptRoom:
        """Whose room is kept; nobody's where that cannot be told: what is only a hint keeps no Node shut."""
        try:
            return self._nominations.chosen(pairs, {pair[0].name for pair in pairs if self._patch(*pair).initialized})
        except Exception:  # noqa: BLE001 - one pod that nobody can judge keeps no Node out
            _log.exception("Failed to choose pods to nominate; continuing without nominations", claims=len(pairs))
            return KeptRoom(Counter(), {})

    def _await_bound(self, progress: _WaveProgress, kept: KeptRoom) -> None:
        """Until the nominated pods of the Nodes that are open are bound, or for a while: then none of them takes what the others keep for no one.

        A Node that is let in before it is ready, or with startup taints, takes no pod for longer than anybody waits here.
        """
        with self._lock:
            claims = [claim.metadata.name for claim, _, initialized in progress.opened if initialized]
        uids = [uid for name in claims for uid in kept.nominated.get(name, ())]
        least, each = BOUND_SECONDS
        end = self._clock.monotonic() + min(self._patience, least + each * len(uids))
        while not self.poller.stopped and self._clock.monotonic() < end and any(map(self._waits, uids)):
            self._clock.sleep(POLL_SECONDS)

    def _waits(self, uid: str) -> bool:
        pod = self._cluster.pod(uid)
        return pod is not None and not pod.node_name

    def _is_ready(self, name: str) -> bool:
        """Whether the claim's Node takes pods once our own taint has fallen, startup taints apart; also where there is none any more."""
        joining = self._joining(name)
        return joining is None or (
            is_true(joining[1].status.conditions, names.READY)
            and not any(map(names.is_ephemeral, registered(joining[1]).spec.taints))
        )

    def _is_complete(self, name: str) -> bool:
        """Whether the claim's Node is initialised as soon as it is let in; also where there is none any more."""
        joining = self._joining(name)
        return joining is None or self._lacks(joining[0], registered(joining[1])) is None

    def _lacks(self, claim: NodeClaim, node: Node) -> ConditionMessage | None:
        return missing(claim, node, self._cluster.lacking(NodeKey(claim.name), node))

    def _patch(self, claim: NodeClaim, node: Node) -> NodePatch:
        return registration_patch(claim, node, self._cluster.lacking(NodeKey(claim.name), node))

    def _joining(self, name: str) -> _Joining | None:
        claim = self._cluster.claim(name)
        node = self._cluster.node_of(claim) if claim is not None else None
        return (claim, node) if claim is not None and node is not None else None

    def _looks_at_others(self, claim: str) -> bool:
        return any(looks_at_others(pod.shape) for pod in self._cluster.assigned(NodeKey(claim)))

    def _each(self, act: Callable[[_Item], None], items: Sequence[_Item], patience: float) -> None:
        """Do something for every claim at once; one for which it fails is taken again later."""
        for outcome in run_parallel(
            self._workers, lambda item: self._try(item[0].metadata.name, act, item), items, patience=patience
        ):
            if outcome.error is not None:
                self._retry(outcome.item[0].metadata.name, outcome.error)

    def _try(self, name: str, act: Callable[[_Item], None], item: _Item) -> None:
        """Unless an earlier try still has no answer."""
        with self._lock:
            if name in self._busy:
                raise StillRunningError(self._patience)
            self._busy.add(name)
        try:
            act(item)
        finally:
            with self._lock:
                self._busy.discard(name)

    def _open_together(self, stage: Sequence[_Joining], progress: _WaveProgress, patience: float) -> None:
        """Let Nodes in, within moments: kube-scheduler tries all pods when the first is open, and a nominated pod whose Node is not open yet loses its room.

        So whatever can be done before or after the writes is not done between them.
        """
        prepared: list[_Prepared] = []
        for claim, node in stage:
            try:
                if (one := self._prepared(claim, node)) is not None:
                    prepared.append(one)
            except Exception as error:  # noqa: BLE001 - one that fails keeps no other one out
                self._retry(claim.metadata.name, error)
        together = 0 if progress.over else min(len(prepared), self._workers.workers)
        start = threading.Barrier(max(1, together))
        starting = [(*one, start if number < together else None) for number, one in enumerate(prepared)]
        self._each(lambda one: self._open(*one, progress), starting, patience)
        self._tell_of(progress)

    def _tell_of(self, progress: _WaveProgress) -> None:
        """What follows of the Nodes that were let in since this was called last, their claims apart."""
        with self._lock:
            untold = progress.opened[progress.told :]
            progress.told = len(progress.opened)
        for claim, written, _ in untold:
            try:
                self._writer.node_written(written)
            except Exception as error:  # noqa: BLE001 - likewise
                self._retry(claim.metadata.name, error)

    def _prepared(self, claim: NodeClaim, node: Node) -> _Prepared | None:
        """What lets a Node in; None where its claim goes."""
        name = claim.metadata.name
        known = self._stays(name)  # nominating takes a while
        if known is None:
            return None
        node = self._cluster.node_of(known) or node  # another version would cost a second write, while others open
        if not any(taint.key == names.UNREGISTERED_TAINT.key for taint in node.spec.taints) and not was_registered(
            known, node
        ):
            self._recorder.publish(
                reference_of(known),
                "Warning",
                "UnregisteredTaintMissing",
                f'Missing required NoExecute taint "{names.UNREGISTERED_TAINT}" which is required for proper '
                "registration",
            )
        return known, node, self._patch(known, node)

    def _stays(self, name: str) -> NodeClaim | None:
        """The claim; None where its instance is being ended: pods would be let in there to die."""
        known = self._cluster.claim(name)
        if known is not None and known.metadata.deletion_timestamp is None:
            return known
        with self._lock:
            self._failures.pop(name, None)
        return None

    def _open(
        self, claim: NodeClaim, node: Node, patch: NodePatch, start: threading.Barrier | None, progress: _WaveProgress
    ) -> None:
        """Let one Node in; its claim says so with the others of the wave, or at once where nobody waits for it any more."""
        together = False
        if start is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                start.wait(START_SECONDS)
                together = True
        # the state is asked again by those that begin late: others may hold its lock for longer than it takes to open all
        if not together and not self._stays(claim.metadata.name):
            return
        opened = self._let_in(claim, node, patch)
        with self._lock:
            if not progress.over:
                progress.opened.append(opened)
                return
        self._writer.node_written(opened[1])
        self._record(*opened)

    def _retry(self, name: str, error: Exception) -> None:
        """Take the claim again after a while, longer after every failure."""
        _FAILURES.inc()
        with self._lock:
            count = self._failures[name] = self._failures.get(name, 0) + 1
            wait = doubling(count, base=RETRY_BASE_SECONDS, cap=RETRY_CAP_SECONDS, chance=self._chance)
            self._delayed[name] = self._clock.monotonic() + wait
        self.poller.wake()
        _log.warning("Registration failed; retrying", nodeclaim=name, error=str(error), seconds=round(wait, 1))

    def _let_in(self, claim: NodeClaim, node: Node, patch: NodePatch) -> _Opened:
        """Take our taint off a Node: its claim, the Node as it is then, and whether it is initialised with that."""
        decided = [patch]

        def patch_of(current: Node) -> list[dict[str, Any]]:
            if current is not node:  # it has changed meanwhile
                decided.append(self._patch(claim, current))
            return decided[-1].operations

        return claim, patch_node(self._client, node, patch_of), decided[-1].initialized

    def _record(self, claim: NodeClaim, written: Node, initialized: bool) -> None:
        """Say on the claim that its Node was let in."""
        name = claim.metadata.name
        claim = self._cluster.claim(name) or claim
        kinds = (names.REGISTERED, names.INITIALIZED) if initialized else (names.REGISTERED,)
        said = [ConditionMessage(kind, names.TRUE, kind) for kind in kinds]
        conditions = with_conditions(claim, *said, now=self._clock.now())
        self._writer.status(claim, conditions, nodeName=written.metadata.name)
        metrics.NODES_CREATED.labels(claim.pool, claim.metadata.labels.get(names.ZONE_LABEL, "")).inc()
        self._health(claim.metadata.labels.get(names.NODEPOOL_LABEL, ""), True)
        self._again(claim.metadata.name)
        with self._lock:
            self._failures.pop(name, None)


def _wire(taints: Iterable[Taint]) -> list[Any]:
    return [msgspec.to_builtins(taint) for taint in taints]
