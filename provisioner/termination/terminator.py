"""Ends instances, never one with a live pod on it. `Terminator` is the only caller of `CloudProvider.delete`.

A cache may be minutes old without knowing it, so the caches are not asked. Before every end the Nodes of the instance are
looked up at the API server by their provider ID, closed to new pods, and their pods are listed there. Pods that are still
alive are asked to leave and hold the end. What cannot be read counts as a live pod, and a list that fails means: wait.
"""

import enum
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import BriefMeta, Node, VolumeAttachmentSpec
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Object, is_true
from provisioner.apis.pods import Pod, is_drainable
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.cloudprovider.metering import metered
from provisioner.cloudprovider.types import CloudProvider, CloudProviderView, other_owner
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import DecodeError, Forbidden, NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.survey import Shared, Unreadable, survey
from provisioner.runtime.object_reference import node_reference, reference_of
from provisioner.scheduling.constraints.volumes import claim_keys
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter
from provisioner.termination.disrupted_taint import DisruptedTaints, TaintFacts, decode_facts, read_node
from provisioner.termination.eviction_queue import DrainStep, Evictions, drain_step, failed_draining
from provisioner.values.bounded import forget_oldest, put_newest
from provisioner.values.message import EventMessage, Said
from provisioner.values.printable import listed

#: From the taint to the end of the instance: in this time kube-scheduler sees the taint, and what it bound before is listed.
MIN_TAINTED_SECONDS: Final = 2.0
HELD_SECONDS: Final = 2.0
#: Every look at what is attached is a list of all Nodes and one of all VolumeAttachments, shared by those who look at once; so
#: what has been attached for long, perhaps for ever since its driver is gone, is looked at less often: after a quarter of that time.
VOLUMES_SECONDS, VOLUMES_MOST_SECONDS, _VOLUMES_SHARE = 2.0, 30.0, 0.25
#: Nothing that we do makes an object readable, so it is looked at less often.
UNREADABLE_SECONDS: Final = 10.0
_MOST_NAMED: Final = 5
_MOST_TOLD: Final = 20_000
_MOST_STRANGERS: Final = 50
_log = logs.get_logger(__name__)
_HELD = counter(
    "dovetail_instance_terminations_held_total",
    "Times that the termination of an instance was postponed, by cause.",
    ("cause",),
)


class _Attachment(Object, frozen=True, kw_only=True):
    """A VolumeAttachment without its status, which its driver may fill as it likes."""

    metadata: BriefMeta = BriefMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


_decode_attachment = msgspec.json.Decoder(_Attachment).decode


class EndState(enum.Enum):
    """How far the end of an instance has come."""

    HELD = "held"
    """It runs on, and nothing was asked of the provider."""
    UNDER_WAY = "under way"
    """The provider was told; ask again until it is gone."""
    GONE = "gone"
    """There is no instance any more."""


@dataclass(frozen=True, slots=True)
class InstanceEnding:
    """What became of a wish to end an instance.

    Attributes:
        nodes: its Nodes as the API server has them; empty where nobody looked.
        requeue_after: seconds until another try makes sense, where it is held.
        why: what holds it, in a sentence for an event; "" where nothing but time does.
        volumes: that are attached to its Nodes after their pods have gone: they hold it, or did until its deadline.
        failed_launch: of one that is gone: why its cloud ended it unasked; "" where somebody asked, or nobody knows.
    """

    state: EndState
    nodes: tuple[Node, ...] = ()
    requeue_after: float = 0.0
    why: str = ""
    volumes: tuple[str, ...] = ()
    failed_launch: str = ""


@dataclass(frozen=True, slots=True)
class InstanceSight:
    """An instance's Nodes and their pods, listed at the API server; the pods after the Nodes, where these were closed.

    Attributes:
        nodes: the Nodes with its provider ID.
        pods: all pods on them, and on the Node that its claim names though it is gone; by name.
        unreadable: Nodes and pods of it that cannot be decoded, each in words.
        strangers: live pods on Nodes that may be its own although they do not say so yet, as "pod on node".
        closed_seconds: for how long its Nodes have been closed; infinite where it has none.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    unreadable: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    closed_seconds: float = float("inf")


@dataclass(slots=True)
class _Nodes:
    """Every Node of the cluster at one instant."""

    of: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # provider ID -> names
    provider_of: dict[str, str] = field(default_factory=dict)
    unregistered: list[TaintFacts] = field(default_factory=list)
    unreadable: tuple[Unreadable, ...] = ()


def pods_waiting(waiting: int, which: str) -> str:
    """`which` names them, or says what blocks them."""
    return Said(f"{waiting} pods are waiting to be evicted: {which}")


def _unreadable_node(node: object, error: str) -> str:
    return Said(f"Node {node}, which cannot be read ({error})")


class Terminator:
    """The only one who calls `CloudProvider.delete`, or ends an instance otherwise. Thread-safe.

    Args:
        provider: of which everybody else sees all but `delete`.
        evictions: asks live pods to leave.
        volume_of: name of the PersistentVolume of a PersistentVolumeClaim, by "namespace/name"; "" where unknown.
    """

    def __init__(
        self,
        provider: CloudProvider,
        client: Client,
        claims: Callable[[], Iterable[NodeClaim]],
        evictions: Evictions,
        taints: DisruptedTaints,
        recorder: Recorder,
        clock: Clock,
        *,
        volume_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._volume_of = volume_of
        self._provider, self._client, self._claims = provider, client, claims
        self._evictions, self._taints, self._recorder, self._clock = evictions, taints, recorder, clock
        self._nodes = Shared(self._list_nodes)
        self._attachments = Shared(self._list_attachments)
        self._lock = threading.Lock()
        self._metered: dict[str, CloudProvider] = {}
        self._awaits_volumes: dict[str, float] = {}  # claim UID -> since when (monotonic)
        self._told: dict[str, str] = {}  # claim UID -> provider ID of the instance whose end has begun

    # ------------------------------------------------------------------ ending

    def end(self, claim: NodeClaim, *, by: str) -> InstanceEnding:
        """End the claim's instance once no live pod is left on it and no volume of those that left; call again until it is gone.

        After the claim's deadline live pods are deleted whatever forbids it, and what cannot be read holds no longer.

        Args:
            claim: that is being deleted.
            by: the controller that asks, for metrics.

        Raises:
            ApiError: pods or Nodes could not be listed, so nothing was ended.
            CloudError: the provider did not do it; try again.

        Cost: one list of all Nodes, shared with whoever asks at the same time, and one of the pods of each Node found.
        """
        provider_id, uid, deadline = claim.status.provider_id, claim.metadata.uid, self._evictions.deadline(claim)
        owner = other_owner(claim, provider_id, self._claims()) if provider_id else None
        if owner is not None:  # before anything of it is touched
            why = Said(f"NodeClaim {owner.name} has the same provider ID {provider_id}")
            return self._hold(claim, InstanceSight(), "shared", UNREADABLE_SECONDS, why)
        if not provider_id or self._told.get(uid) != provider_id:
            sight = self._look(provider_id, claim, close=True)
            if (held := self._held(claim, sight, deadline)) is not None:
                return held
            volumes = self._volumes(sight, provider_id)
            if volumes and (deadline is None or self._clock.now() < deadline):
                return self._await_volumes(uid, sight, volumes, deadline)
        else:
            sight, volumes = InstanceSight(), ()
        provider = self._as(by)
        try:
            provider.delete(claim)
            self._note(uid, provider_id)
            provider.delete(claim)  # a provider that is done at once says so now
        except InstanceNotFoundError as gone:
            self._note(uid, provider_id)
            return InstanceEnding(EndState.GONE, sight.nodes, volumes=volumes, failed_launch=gone.failed_launch)
        return InstanceEnding(EndState.UNDER_WAY, sight.nodes, volumes=volumes)

    def evict(self, claim: NodeClaim) -> int:
        """Ask the pods of a claim that stays to leave, as its drain would; how many there are that would hold it, objects that cannot be read included.

        None is forced: one that budgets or annotations keep stays.

        Raises:
            ApiError: as `look`.
        """
        sight = self.look(claim)
        drain = drain_step(map(self._evictions.departures.saw, sight.pods), self._clock.now())
        self._evictions.add(self._evictions.due(drain.evict))
        return drain.waiting + len(sight.unreadable) + len(sight.strangers)

    def forget(self, claim: NodeClaim) -> None:
        """The claim is gone, or about to be."""
        with self._lock:
            self._told.pop(claim.metadata.uid, None)
            self._awaits_volumes.pop(claim.metadata.uid, None)

    def end_orphan(self, provider_id: str, terminate: Callable[[str], object]) -> InstanceEnding:
        """End an instance that no claim has, once no live pod is left on it; call again until it is gone.

        Args:
            provider_id: of the instance.
            terminate: begins its end; raises CloudError.

        Raises:
            ApiError, CloudError: as `end`.
        """
        sight = self._look(provider_id, None, close=True)
        if (held := self._held(None, sight, None, provider_id)) is not None:
            return held
        try:
            terminate(provider_id)
        except InstanceNotFoundError:
            return InstanceEnding(EndState.GONE, sight.nodes)
        return InstanceEnding(EndState.UNDER_WAY, sight.nodes)

    def drained(self, node: Node) -> InstanceEnding:
        """Whether a Node without a claim may go: HELD while live pods are on it, GONE when none is.

        Raises:
            ApiError: its pods could not be listed.
        """
        closed = self._taints.close(node)
        pods, unreadable = self._pods([node.metadata.name])
        sight = InstanceSight((closed,), pods, unreadable, (), self._taints.seconds(closed))
        return self._held(None, sight, None, node.spec.provider_id) or InstanceEnding(EndState.GONE, (closed,))

    def _note(self, uid: str, provider_id: str) -> None:
        if provider_id:
            with self._lock:
                put_newest(self._told, uid, provider_id, _MOST_TOLD)

    def _as(self, controller: str) -> CloudProvider:
        with self._lock:
            if controller not in self._metered:
                self._metered[controller] = metered(self._provider, controller, self._clock)
            return self._metered[controller]

    # ------------------------------------------------------------------ looking

    def look(self, claim: NodeClaim) -> InstanceSight:
        """The Nodes of the claim's instance and their pods, listed at the API server now; what is not closed stays open.

        Raises:
            ApiError: it is not known; there may be live pods.
        """
        return self._look(claim.status.provider_id, claim, close=False)

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """The pods of one Node as the API server has them now, by name; those that cannot be decoded are left out.

        Raises:
            ApiError: they could not be listed.
        """
        return self._pods([node_name])[0]

    def _look(self, provider_id: str, claim: NodeClaim | None, *, close: bool) -> InstanceSight:
        every = self._nodes.get()
        known = every.of.get(provider_id, ()) if provider_id else ()
        mark = re.compile(rb'"providerID":\s*"' + re.escape(provider_id.encode()) + rb'"')
        unreadable = [
            _unreadable_node(one, one.error) for one in every.unreadable if provider_id and mark.search(one.raw)
        ]
        nodes: list[Node] = []
        wanted: list[str] = []  # Nodes whose pods run on the instance
        for name in known:
            try:
                node = read_node(self._client, name)
            except NotFound:
                wanted.append(name)  # gone a moment ago, its pods are not
                continue
            except DecodeError as error:
                unreadable.append(_unreadable_node(name, error.message))
                continue
            if node.spec.provider_id == provider_id:
                nodes.append(self._taints.close(node) if close else node)
                wanted.append(name)
        last = claim.status.node_name if claim is not None else ""
        if last and last not in known and every.provider_of.get(last, "") in ("", provider_id):
            wanted.append(last)  # its Node is gone, the pods on it may run on; a Node of another instance has its own
        pods, bad = self._pods(wanted)
        return InstanceSight(
            nodes=tuple(nodes),
            pods=pods,
            unreadable=(*unreadable, *bad),
            strangers=self._strangers(every, claim) if claim is not None and not nodes else (),
            closed_seconds=min((self._taints.seconds(node) for node in nodes), default=float("inf")),
        )

    def _pods(self, node_names: Iterable[str]) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
        pods: list[Pod] = []
        unreadable: list[str] = []
        for name in node_names:
            found = survey(
                self._client, resources.PODS, decode=resources.PODS.decode, field_selector=f"spec.nodeName={name}"
            )
            pods += map(self._evictions.departures.saw, found.objects)
            unreadable += (
                Said(f"pod {one} on node {name}, which cannot be read ({one.error})") for one in found.unreadable
            )
        return tuple(sorted(pods, key=lambda pod: pod.key)), tuple(unreadable)

    def _volumes(self, sight: InstanceSight, provider_id: str) -> tuple[str, ...]:
        """Volumes that are still attached to the instance's Nodes, less those of pods that are not drained; by name.

        Each is the name of its PersistentVolume, or of its VolumeAttachment where it has none. Source: core spec 7.1.
        """
        nodes = [node.metadata.name for node in sight.nodes]
        if not nodes:
            return ()  # nobody detaches from a Node that is gone
        attached = self._attachments.get()
        found = {name for node in nodes for name in attached.get(node, ())}
        if not found:
            return ()
        now = self._clock.now()
        staying = [pod for pod in sight.pods if not is_drainable(pod, now)]
        found -= {self._volume_of(key) for pod in staying for key in claim_keys(pod)}
        return () if found and self._is_gone(provider_id, sight) else tuple(sorted(found))

    def _list_attachments(self) -> dict[str, list[str]]:
        """Volumes by the Node that they are attached to, or being attached to or detached from."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        try:
            every = survey(self._client, resources.VOLUMEATTACHMENTS, decode=_decode_attachment).objects
        except Forbidden as error:  # manifests of an older version: no instance may run for ever for that
            _log.warning(
                "Not waiting for volumes to detach, because listing VolumeAttachments is forbidden; apply the current "
                "RBAC manifests",
                error=str(error),
            )
            return found
        for one in every:
            found[one.spec.node_name].append(one.spec.source.persistent_volume_name or one.metadata.name)
        return found

    def _list_nodes(self) -> _Nodes:
        found = survey(self._client, resources.NODES, decode=decode_facts)
        every = _Nodes(unreadable=found.unreadable)
        for one in found.objects:
            name, provider_id = one.metadata.name, one.spec.provider_id
            every.provider_of[name] = provider_id
            if provider_id:
                every.of[provider_id].append(name)
            if one.metadata.labels.get(names.REGISTERED_LABEL) != "true":
                every.unregistered.append(one)
        return every

    def _strangers(self, every: _Nodes, claim: NodeClaim) -> tuple[str, ...]:
        """Live pods on Nodes of the claim's pool that have not said yet whose they are: the instance may be behind one.

        Only for a claim that never registered: a Node that has registered is known by its provider ID.
        """
        if is_true(claim.status.conditions, names.REGISTERED) or not every.unregistered:
            return ()
        ids = {one.status.provider_id for one in self._claims()}
        candidates = [one.metadata.name for one in every.unregistered if _may_be_its(one, claim, ids)]
        if len(candidates) > _MOST_STRANGERS:
            return (Said(f"pods of {len(candidates)} nodes, among them {candidates[0]}"),)
        found: list[str] = []
        for name in candidates:
            pods, unreadable = self._pods([name])
            found += [Said(f"pod {pod.key} on node {name}") for pod in _living(pods, self._clock.now())]
            found += unreadable
        return tuple(found)

    # ------------------------------------------------------------------ holding

    def _held(
        self, claim: NodeClaim | None, sight: InstanceSight, deadline: datetime | None, provider_id: str = ""
    ) -> InstanceEnding | None:
        """Why the instance must not end yet, told to those who ask for it; None where nothing is in the way."""
        now = self._clock.now()
        provider_id = claim.status.provider_id if claim is not None else provider_id
        step = drain_step(sight.pods, now, deadline)
        if (step.waiting or sight.unreadable or sight.strangers) and self._is_gone(provider_id, sight):
            return None  # what the API server shows of its pods is what was left
        if step.waiting:
            self._evict(step, deadline)
            named = listed([pod.key for pod in _living(sight.pods, now)], _MOST_NAMED)
            why = pods_waiting(step.waiting, named)
            return self._hold(claim, sight, "pods", HELD_SECONDS, why)
        if deadline is None or now < deadline:
            if sight.unreadable:
                return self._hold(
                    claim,
                    sight,
                    "unreadable",
                    UNREADABLE_SECONDS,
                    Said(f"objects that cannot be read may have running pods: {listed(sight.unreadable, _MOST_NAMED)}"),
                )
            if sight.strangers:
                why = Said(
                    "the instance may belong to a Node without spec.providerID or with an unknown NodeClaim, which "
                    f"has running pods: {listed(sight.strangers, _MOST_NAMED)}"
                )
                return self._hold(claim, sight, "strangers", UNREADABLE_SECONDS, why)
        if sight.closed_seconds < MIN_TAINTED_SECONDS:
            _HELD.labels("taint").inc()
            return InstanceEnding(EndState.HELD, sight.nodes, MIN_TAINTED_SECONDS - sight.closed_seconds)
        return None

    def _hold(
        self, claim: NodeClaim | None, sight: InstanceSight, cause: str, seconds: float, why: str
    ) -> InstanceEnding:
        _HELD.labels(cause).inc()
        for node in sight.nodes:
            message = failed_draining(why)
            self._recorder.publish(node_reference(node), *message, dedupe=(node.metadata.uid, cause))
        if claim is not None:
            message = EventMessage(
                "Warning", "FailedDraining", f"The instance of NodeClaim {claim.name} is not terminated yet: {why}"
            )
            self._recorder.publish(reference_of(claim), *message, dedupe=(claim.metadata.uid, cause))
        return InstanceEnding(EndState.HELD, sight.nodes, seconds, why)

    def _await_volumes(
        self, uid: str, sight: InstanceSight, volumes: tuple[str, ...], deadline: datetime | None
    ) -> InstanceEnding:
        _HELD.labels("volumes").inc()
        why = Said(
            f"Waiting for {len(volumes)} volume{'s' if len(volumes) > 1 else ''} to detach: "
            f"{listed(volumes, _MOST_NAMED)}"
        )
        message = EventMessage("Normal", names.AWAITING_VOLUME_DETACHMENT, why)
        for node in sight.nodes:
            self._recorder.publish(node_reference(node), *message, dedupe=(node.metadata.uid,))
        now = self._clock.monotonic()
        with self._lock:
            waited = now - self._awaits_volumes.setdefault(uid, now)
            forget_oldest(self._awaits_volumes, _MOST_TOLD)
        seconds = min(VOLUMES_MOST_SECONDS, waited * _VOLUMES_SHARE)
        if deadline is not None:
            seconds = min(seconds, (deadline - self._clock.now()).total_seconds())
        return InstanceEnding(EndState.HELD, sight.nodes, max(VOLUMES_SECONDS, seconds), why, volumes)

    def _evict(self, step: DrainStep, deadline: datetime | None) -> None:
        self._evictions.add(step.evict)
        if deadline is not None:
            self._evictions.force(step.force, deadline)

    def _is_gone(self, provider_id: str, sight: InstanceSight) -> bool:
        """Whether the provider has no such instance; never where a Node says that its kubelet lives, or where nobody knows."""
        if not provider_id or any(is_true(node.status.conditions, names.READY) for node in sight.nodes):
            return False
        return instance_is_gone(self._provider, provider_id)


def instance_is_gone(provider: CloudProviderView, provider_id: str) -> bool:
    """Whether a provider has no such instance; not where it cannot tell."""
    try:
        provider.get(provider_id)
    except InstanceNotFoundError:
        return True
    except CloudError:
        return False
    return False


def _living(pods: Iterable[Pod], now: datetime) -> list[Pod]:
    """The pods that hold a drain."""
    return [pod for pod in pods if drain_step((pod,), now).waiting]


def _may_be_its(one: TaintFacts, claim: NodeClaim, ids: set[str]) -> bool:
    """Whether an unregistered Node may be the claim's instance, as far as the Node says; pure."""
    meta, provider_id = one.metadata, one.spec.provider_id
    if names.UNREGISTERED_TAINT in one.spec.taints:
        return False  # nothing runs there that does not tolerate everything
    if not claim.pool or meta.labels.get(names.NODEPOOL_LABEL) != claim.pool:
        return False
    if provider_id and (claim.status.provider_id or provider_id in ids):
        return False  # it says whose it is
    if any(owner.kind == "NodeClaim" and owner.uid != claim.metadata.uid for owner in meta.owner_references):
        return False
    made, joined = claim.metadata.creation_timestamp, meta.creation_timestamp
    return made is None or joined is None or joined >= made
