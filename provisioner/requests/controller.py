"""Keeps ProvisioningRequests: reads what their pods are like, lends them to provisioning and consolidation, and writes their status.

Nothing is written but the status; a request that has been over for a week is deleted. What is known besides the status (its templates, that room was
found a moment ago) follows from the cluster again in the next term: places on nodes are taken before new nodes are.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import PodTemplateSpec
from provisioner.apis.gangs import of_request
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_terminal
from provisioner.apis.provisioning_request import ProvisioningRequest, beyond_bounds, request_named
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admission
from provisioner.buffers.controller import CapacityBuffers
from provisioner.buffers.virtual_pods import ResolutionError
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.resources import Resource
from provisioner.kube.store import Store
from provisioner.requests.bookings import (
    NOTHING_ASKED,
    RequestedUnits,
    RequestsAsked,
    RequestStanding,
    RoomsFound,
    ask,
    is_any_for,
    units_of,
)
from provisioner.requests.decisions import (
    RequestDecision,
    RequestFacts,
    RequestPhase,
    RoomFound,
    TemplateProblem,
    decide,
    phase_of,
    told_of,
)
from provisioner.requests.reserving import ReservationWriter
from provisioner.runtime import metrics
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeClaimChanged, NodePoolChanged, PodChanged, ProvisioningRequestChanged
from provisioner.runtime.controller import Controller
from provisioner.runtime.late_watch import LateWatch
from provisioner.runtime.object_reference import reference_of
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.values.message import EventMessage, Said
from provisioner.values.resources import Resources

RECHECK_SECONDS: Final = 10.0
"""Between two runs of provisioning for a request that keeps room."""
COMING_SECONDS: Final = 2.0
"""The same while its nodes are being launched."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 60.0, 600.0
"""Between two looks for a request without room, doubling."""
SOON_SECONDS: Final = 10.0
"""Until the next look where there was no time, and at least between two looks because something has changed."""
UNKNOWN_SECONDS: Final = 60.0
"""A new leader calls no node empty before provisioning has run once for the requests, or so long has passed."""
OVER_SECONDS: Final = 3600.0
_log = logs.get_logger(__name__)
_RequestStore = tuple[Store[ProvisioningRequest], Resource[ProvisioningRequest]]


@dataclass(frozen=True, slots=True)
class _Memory:
    """What is known of a request beside its status; `tries` in vain, `due` and the other times by the monotonic clock."""

    units: RequestedUnits | None = None
    problem: TemplateProblem | None = None
    explanation: str = ""
    found: RoomFound | None = None
    settled: bool = False
    tried: float = float("-inf")
    due: float = float("-inf")
    delay: float = RETRY_SECONDS
    tries: int = 0
    lost_at: float | None = None


_FRESH: Final = _Memory()


class ProvisioningRequests:
    """One key is a request's "namespace/name". Thread-safe.

    Args:
        watched: the requests as their watch tells them, and the version in which they are served; None where they are not, or none of our classes is.
        classes: those that are ours.
        facts: what the webhook goes by in a namespace; with the cluster's defaults.
        plan_again: asks provisioning for a run; the word says why.
        reserve: told, by key of a node, what is reserved there from now on; nodes without are left out.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        watched: Callable[[], _RequestStore | None],
        classes: Collection[str],
        *,
        admission: Callable[[], Admission],
        facts: Callable[[str], StampFacts],
        plan_again: Callable[[str], None],
        reserve: Callable[[Mapping[str, Mapping[tuple[str, int], Resources]]], None] = lambda _: None,
    ) -> None:
        self._reserve = reserve
        self._client, self._recorder, self._clock, self._watched = client, recorder, clock, watched
        self._classes = frozenset(classes)
        self._admission, self._facts, self._plan_again = admission, facts, plan_again
        self._lock = threading.Lock()
        self._memory: dict[str, _Memory] = {}
        self._consumers: dict[str, dict[str, Pod]] = {}
        self._virtual: tuple[Pod, ...] = ()
        self._nodes: frozenset[str] = frozenset()
        self._unanswered = True
        self._held: frozenset[str] = frozenset()
        self._began = clock.monotonic()
        self._seen_at = float("-inf")
        self.queue = KeyedQueue("provisioningrequest", self.reconcile, clock)

    # ------------------------------------------------------------------ for provisioning and disruption

    def pods(self) -> tuple[Pod, ...]:
        """The virtual pods that have a place now; the same object while nothing changed."""
        with self._lock:
            return self._virtual

    def keeps(self, node: str) -> bool:
        """Whether a node, by its key, keeps room for a request; yes while nobody knows."""
        if not self._classes:
            return False
        with self._lock:
            return node in self._nodes or (self._unanswered and self._clock.monotonic() - self._began < UNKNOWN_SECONDS)

    def bought(self, node: str) -> None:
        """A node, by its key, is being bought for some of them; until the next run has found it, nobody else knows what it is for."""
        with self._lock:
            self._nodes |= {node}

    def refused(self, groups: Iterable[str], why: str) -> None:
        """A NodeClaim that these groups need could not be created, and would not be at once: requests among them are asked about again after a while."""
        gangs = tuple(filter(of_request, groups))
        found = RoomFound(why=Said(f"could not create a NodeClaim: {why}"))
        some = {one.metadata.key for one in (self._ours() if gangs else ()) if is_any_for(one, gangs)}
        now = self._clock.monotonic()
        with self._lock:
            again = {key: _told(self._memory[key], found, now, settled=False) for key in some & self._memory.keys()}
            self._memory.update(again)
        for key in again:
            self.queue.add(key)

    def asked(self, waiting: Callable[[], Collection[str]], assigned: Callable[[], Collection[str]]) -> RequestsAsked:
        """What a run of provisioning is asked about; see `bookings.ask`. O(1) where no class is ours."""
        if not self._classes or self._is_blind():
            return NOTHING_ASKED
        ours = self._ours()
        count = Counter((one.spec.provisioning_class_name, told_of(one)) for one in ours)
        metrics.PROVISIONING_REQUESTS.replace("all", count.items())
        live = [one for one in ours if phase_of(one) is not RequestPhase.OVER]
        if not live:
            with self._lock:
                self._virtual, self._nodes, self._unanswered = (), frozenset(), False
                self._held = frozenset()
            self._reserve({})
            return NOTHING_ASKED
        now = self._clock.monotonic()
        standings = []
        with self._lock:
            for one in live:
                known = self._memory.get(one.metadata.key, _FRESH)
                if known.units is not None:
                    consumers = tuple(self._consumers.get(one.metadata.key, {}).values())
                    due = known.due <= now
                    standings.append(RequestStanding(one, known.units, consumers, known.settled, due, known.tried))
        asked = ask(standings, waiting(), assigned)
        with self._lock:
            self._held = asked.held
        return asked

    def answered(self, rooms: RoomsFound) -> None:
        """What the run has found."""
        now = self._clock.monotonic()
        with self._lock:
            self._unanswered = False
            if rooms.virtual != self._virtual:
                self._virtual = rooms.virtual
            nodes = [one.nodes for key, one in rooms.found.items() if key in rooms.settled or self._is_kept(key)]
            self._nodes = frozenset().union(*nodes)
            for key, room in rooms.found.items():
                known = self._memory.get(key)
                if known is not None:
                    self._memory[key] = _told(known, room, now, settled=key in rooms.settled)
        self._reserve(rooms.reserved)
        for key in rooms.found:
            self.queue.add(key)

    def _is_blind(self) -> bool:
        """Whether the requests cannot be seen, and were seen a moment ago: what was found for them then holds on."""
        now = self._clock.monotonic()
        with self._lock:
            if self._watched() is not None:
                self._seen_at = now
            return self._watched() is None and now - self._seen_at < UNKNOWN_SECONDS

    def _is_kept(self, key: str) -> bool:
        watched = self._watched()
        found = watched[0].get(key) if watched is not None else None
        return found is not None and phase_of(found) is RequestPhase.BOOKED

    def _ours(self) -> list[ProvisioningRequest]:
        watched = self._watched()
        return [] if watched is None else [one for one in watched[0].list() if self._is_ours(one)]

    def _is_ours(self, request: ProvisioningRequest) -> bool:
        return request.spec.provisioning_class_name in self._classes and request.metadata.deletion_timestamp is None

    def held(self) -> Mapping[str, tuple[str, str]]:
        """By UID of each pod for which nothing is launched since it takes the room of a request: its key, and what it says of the room."""
        with self._lock:
            held = {uid: key for key, some in self._consumers.items() for uid in some.keys() & self._held}
        said: dict[str, str] = {}
        for one in self._ours():
            found = condition(one.status.conditions, names.PROVISIONED)
            said[one.metadata.key] = found.message if found is not None else ""
        return {uid: (key, said.get(key, "")) for uid, key in held.items()}

    # ------------------------------------------------------------------ what changes

    def pod_heard(self, change: PodChanged) -> None:
        """A pod may name a request."""
        old, new = change.old, change.new
        before = request_named(old) if old is not None else ""
        after = request_named(new) if new is not None and not is_terminal(new) else ""
        if not before and not after:
            return
        with self._lock:
            if old is not None and before and before != after and before in self._consumers:
                self._consumers[before].pop(old.uid, None)
                if not self._consumers[before]:
                    del self._consumers[before]
            if new is not None and after:
                self._consumers.setdefault(after, {})[new.uid] = new

    def retry(self) -> None:
        """Something has changed: look again for those without room, unless they were just looked for."""
        now = self._clock.monotonic()
        with self._lock:
            again = [
                key
                for key, one in self._memory.items()
                if one.units is not None and not one.settled and one.due > now and now - one.tried >= SOON_SECONDS
            ]
            self._memory.update({key: replace(self._memory[key], due=now) for key in again})
        if again:
            self._plan_again("requests")

    # ------------------------------------------------------------------ one request

    def reconcile(self, key: str) -> ReconcileResult:
        """Look at one request: what its pods are like, and what its status says."""
        watched = self._watched()
        if watched is None:
            return ReconcileResult(requeue_after=RECHECK_SECONDS)
        request = watched[0].get(key)
        if request is None or not self._is_ours(request):
            with self._lock:
                known = self._memory.pop(key, None)
            if known is not None:
                self._plan_again(f"request/{key}")
            return DONE
        resource = watched[1]
        try:
            known = self._known(request)
            decision = decide(request, self._facts_of(request, known), self._clock.now())
            if decision.delete:
                self._client.delete(
                    resource, request.metadata.name, request.metadata.namespace, uid=request.metadata.uid
                )
                return DONE
            self._write(resource, request, decision)
        except (NotFound, Conflict):
            return DONE  # it is another one, or gone: its watch tells
        except ApiError as error:
            _log.warning("Failed to handle a ProvisioningRequest; retrying", provisioningrequest=key, error=str(error))
            return ReconcileResult(failed=True)
        return self._next(request)

    def _known(self, request: ProvisioningRequest) -> _Memory:
        """What is known of a request, its templates among it: they are read until they are there, then no more."""
        key = request.metadata.key
        with self._lock:
            known = self._memory.setdefault(key, _FRESH)
        if known.units is not None or phase_of(request) is RequestPhase.OVER or beyond_bounds(request):
            return known
        namespace = request.metadata.namespace
        templates: list[PodTemplateSpec] = []
        problem, explanation, units = None, "", None
        for one in request.spec.pod_sets:
            found = self._client.find(resources.PODTEMPLATES, one.pod_template_ref.name, namespace)
            if found is None:
                problem = TemplateProblem.MISSING
                explanation = (
                    f'PodTemplate "{one.pod_template_ref.name}" does not exist in the namespace of the request'
                )
                break
            templates.append(found.template)
        else:
            try:
                units = units_of(request, templates, self._admission(), self._facts(namespace))
            except ResolutionError as error:
                problem, explanation = TemplateProblem.INVALID, str(error)
        with self._lock:
            known = replace(self._memory.get(key, _FRESH), units=units, problem=problem, explanation=explanation)
            self._memory[key] = known
        if units is not None:
            self._plan_again(f"request/{key}")
        return known

    def _facts_of(self, request: ProvisioningRequest, known: _Memory) -> RequestFacts:
        with self._lock:
            bound = sum(bool(pod.node_name) for pod in self._consumers.get(request.metadata.key, {}).values())
        lost = None if known.lost_at is None else timedelta(seconds=self._clock.monotonic() - known.lost_at)
        return RequestFacts(known.problem, known.explanation, known.found, bound, lost, known.delay)

    def _next(self, request: ProvisioningRequest) -> ReconcileResult:
        """When it is looked at again; a run is asked for where the last one was long enough ago, else its answer would ask for the next one at once."""
        key, now = request.metadata.key, self._clock.monotonic()
        with self._lock:
            over = phase_of(request) is RequestPhase.OVER
            known = self._memory.pop(key, _FRESH) if over else self._memory.get(key, _FRESH)
        if over:
            if known.units is not None:
                self._plan_again(f"request/{key}")  # its room is others' now
            return ReconcileResult(requeue_after=OVER_SECONDS)
        if phase_of(request) is RequestPhase.BOOKED or known.settled:
            coming = known.found is not None and bool(known.found.coming or known.found.unready)
            due = known.tried + (COMING_SECONDS if coming else RECHECK_SECONDS)
        else:
            due = known.due if known.units is not None else now + RECHECK_SECONDS
        if due <= now:
            self._plan_again(f"request/{key}")
        return ReconcileResult(requeue_after=min(due - now, RECHECK_SECONDS) if due > now else RECHECK_SECONDS)

    def _write(
        self, resource: Resource[ProvisioningRequest], request: ProvisioningRequest, decision: RequestDecision
    ) -> None:
        meta, status = request.metadata, request.status
        if decision.conditions == status.conditions and decision.details == status.provisioning_class_details:
            return
        gone = {key: None for key in status.provisioning_class_details if key not in decision.details}
        body: dict[str, Any] = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {
                "conditions": msgspec.to_builtins(decision.conditions),
                "provisioningClassDetails": {**decision.details, **gone},
            },
        }
        self._client.patch(resource, meta.name, body, meta.namespace, subresource="status")
        for one in decision.conditions:
            before = condition(status.conditions, one.type)
            if (
                one.type != names.ACCEPTED
                and one.status == names.TRUE
                and (before is None or before.status != names.TRUE)
            ):
                kind: Any = "Warning" if one.type == names.FAILED else "Normal"
                self._recorder.publish(reference_of(request), *EventMessage(kind, one.reason, one.message))


def _told(known: _Memory, room: RoomFound, now: float, *, settled: bool) -> _Memory:
    """What is known of a request once a run has looked at it."""
    if settled:
        return replace(known, found=room, settled=True, tried=now, due=now, delay=RETRY_SECONDS, tries=0, lost_at=None)
    if room.late or room.limited:
        return replace(known, found=room, tried=now, due=now + SOON_SECONDS)
    lost = now if known.lost_at is None else known.lost_at
    delay = min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2.0 ** min(known.tries, 10))
    return replace(
        known,
        found=room,
        settled=False,
        tried=now,
        due=now + delay,
        delay=delay,
        tries=known.tries + 1,
        lost_at=lost,
    )


class VirtualPods:
    """All that keeps room for pods that do not exist: CapacityBuffers and ProvisioningRequests."""

    def __init__(self, buffers: CapacityBuffers, requests: ProvisioningRequests) -> None:
        self._buffers, self._requests = buffers, requests
        self._last: tuple[tuple[Pod, ...], tuple[Pod, ...], tuple[Pod, ...]] = (), (), ()

    def pods(self) -> tuple[Pod, ...]:
        """The virtual pods that need room; the same object while nothing changed."""
        mine, others, _ = known = self._last
        buffers, requests = self._buffers.pods(), self._requests.pods()
        if mine is not buffers or others is not requests:
            known = self._last = buffers, requests, (*buffers, *requests) if requests else buffers
        return known[2]

    def keeps(self, node: str) -> bool:
        """Whether a node, by its key, keeps room for some; yes while nobody knows."""
        return self._buffers.keeps(node) or self._requests.keeps(node)


def controllers(
    base: Base, requests: ProvisioningRequests, reservations: ReservationWriter, watch: LateWatch[ProvisioningRequest]
) -> list[Controller]:
    """Who keeps ProvisioningRequests; nobody where none of their classes is ours."""
    if not base.options.provisioning_classes:
        return []

    def request_heard(change: ProvisioningRequestChanged) -> Iterable[str]:
        return (change.latest.metadata.key,)

    def pool_heard(change: NodePoolChanged) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            requests.retry()

    def claim_heard(change: NodeClaimChanged) -> None:
        if change.new is None:
            requests.retry()

    def begin() -> Iterable[str]:
        for pod in base.caches.pods.store.list():
            requests.pod_heard(PodChanged(None, pod))
        return ()

    return [
        Controller(
            runner=requests.queue,
            watches={
                ProvisioningRequestChanged: request_heard,
                PodChanged: requests.pod_heard,
                NodePoolChanged: pool_heard,
                NodeClaimChanged: claim_heard,
            },
            initial=begin,
        ),
        Controller(runner=reservations.queue, initial=reservations.initial),
        Controller(runner=watch.poller),
    ]
