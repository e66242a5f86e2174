"""Leader election on a coordination.k8s.io Lease: one replica works, and knows for certain when it may not any more.

Whatever goes wrong with a request or its answer, also an answer that is no Lease, is a renewal that failed: a term ends when its fence falls,
and never because a thread has died.

Time is measured with the monotonic clock only: another holder's lease counts from when we saw it change, not from what its
clock wrote. Our own right to work, the `Fence`, ends `renew_deadline` seconds after the last renewal was *sent*; another replica waits
`lease_duration` seconds after it saw that renewal, which is later, so the fence falls first whatever the network does.
"""

import enum
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Final

import msgspec

from provisioner.apis.core import Lease, LeaseSpec
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, DecodeError, Forbidden, NotFound
from provisioner.kube.resources import LEASES
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.values import jsontext
from provisioner.values.message import Said

REQUEST_TIMEOUT_SECONDS = 3.0  # for the whole answer: three tries fit into a term that is not renewed
PATIENCE_SECONDS = 60.0
"""A candidate that has not asked for its Lease for so long hangs."""

_log = logs.get_logger(__name__)
_decode_lease = msgspec.json.Decoder(Lease).decode
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MAX_MANAGER = 128
_FAILED_TO_RENEW_LEASE: Final = "Failed to renew the Lease; retrying"


class LostLease(Exception):  # noqa: N818  (what happened, as in errors)
    """The right to act has ended; stop what you are doing and write nothing more."""


class Fence:
    """The right of one term as leader; thread-safe, free to ask.

    Every writer asks it right before it writes. It cannot become valid again: the next term has a fence of its own.
    """

    def __init__(self, clock: Clock, valid_until: float) -> None:
        self._clock = clock
        self._valid_until = valid_until  # monotonic seconds; only ever replaced whole
        self._down = False

    def __repr__(self) -> str:
        left = self.left()
        return f"<Fence {f'valid for {left:.1f} s' if left > 0 else 'fallen'}>"

    @property
    def valid(self) -> bool:
        """Whether this process is the leader now, without asking anybody."""
        return self.left() > 0

    def left(self) -> float:
        """Seconds until it falls, unless it is moved; 0 or less when it has fallen, infinite where there is no election."""
        return self._valid_until - self._clock.monotonic()

    def check(self) -> None:
        """Do nothing while valid.

        Raises:
            LostLease: the term is over.
        """
        if not self.valid:
            raise LostLease(Said("this process is no longer the leader"))

    def extend(self, until: float) -> None:
        """Move the end of the term; a fence that has fallen stays down."""
        if self.valid and not self._down:
            self._valid_until = until
            if self._down:  # it was brought down by another thread in this very moment
                self._valid_until = float("-inf")

    def fall(self) -> None:
        """End the term now."""
        self._down = True
        self._valid_until = float("-inf")


class LeaseTerm:
    """The right of this process to write: none before it leads, none afterwards. A `sending.Permit`; thread-safe."""

    def __init__(self) -> None:
        self._fence: Fence | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Term {self._fence!r}{' closed' if self._closed else ''}>"

    def begin(self, fence: Fence) -> None:
        """Lead until this fence falls."""
        self._closed = False
        self._fence = fence

    def close(self) -> None:
        """Begin no more writes; those under way may still be answered until `end`."""
        self._closed = True

    def end(self) -> None:
        """Lead no more; nobody waits for the answers to writes under way."""
        self._fence = None

    def check(self) -> None:
        """Do nothing while this process leads.

        Raises:
            LostLease: it does not, or the term was closed.
        """
        fence = self._fence
        if fence is None or self._closed:
            raise LostLease(Said("this process is not the leader"))
        fence.check()

    def left(self) -> float:
        """Seconds until the term ends, unless it is renewed; 0 or less when there is none."""
        fence = self._fence
        return fence.left() if fence is not None else 0.0


class TermEnding(enum.Enum):
    """Why a term, or the wait for one, is over."""

    STOPPED = "stopped"
    """`stop` was called."""
    LOST = "lost"
    """The Lease could not be kept."""
    FAILED = "failed"
    """The leader's work could not be begun."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A lease as it was when it last changed."""

    spec: LeaseSpec
    at: float  # monotonic seconds


class LeaderElector:
    """Takes, keeps and gives back one Lease.

    Args:
        client: to the API server; renewals go ahead of its rate limit.
        identity: of this process, unique: host name and a random part.
        lease_duration: seconds after which others may take a lease that is not renewed.
        renew_deadline: seconds without a renewal after which this process gives up; less than `lease_duration`.
        retry_period: seconds between two tries.
        stopping: set by `stop`; all waiting is done on it.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        *,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        stopping: threading.Event | None = None,
    ) -> None:
        if not 0 < retry_period < renew_deadline < lease_duration:
            raise ValueError(
                f"need 0 < retry period {retry_period} < renew deadline {renew_deadline} < lease duration {lease_duration}"
            )
        self._client, self._clock = client, clock
        self.name, self.namespace, self.identity = name, namespace, identity
        self.lease_duration, self.renew_deadline, self.retry_period = lease_duration, renew_deadline, retry_period
        self._annotations: Mapping[str, str] = {}  # on the Lease while we hold it
        self._written: Mapping[str, str] = self._annotations  # those of them that are there by now
        self._stopping = stopping or threading.Event()
        self._releases = True
        self._seen: _Seen | None = None
        self._lease: Lease | None = None  # as we last wrote it
        self.holder = ""  # who leads, as far as we know

    def __repr__(self) -> str:
        return f"<LeaderElector {self.namespace}/{self.name}, {self.identity}, led by {self.holder or 'nobody'}>"

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Put more on the Lease, e.g. the address for reports: with the next renewal where we hold it, else with it. Taken off when it is given back."""
        self._annotations = {**self._annotations, **annotations}

    def run(self, on_started: Callable[[Fence], None]) -> TermEnding:
        """Wait for the lease, lead, and come back when the term is over; call again to stand again.

        Args:
            on_started: called in a thread of its own when we lead; it may return or work for the whole term. Where it raises, the
                term ends and the lease is given back.
        """
        pulse = heartbeat.pulse(f"election {self._key()}", PATIENCE_SECONDS)
        fence = self._acquire(pulse)
        if fence is None:
            return TermEnding.STOPPED
        _log.info("Became the leader", lease=self._key(), identity=self.identity)
        failed = threading.Event()
        threading.Thread(
            target=self._started, args=(on_started, fence, failed), name=f"lead-{self.name}", daemon=True
        ).start()
        self._keep(fence, pulse)
        fence.fall()
        if self._stopping.is_set() or failed.is_set():
            self._release()
            return TermEnding.STOPPED if self._stopping.is_set() else TermEnding.FAILED
        _log.error("Lost the leader election Lease", lease=self._key(), identity=self.identity, holder=self.holder)
        return TermEnding.LOST

    def stop(self, *, release: bool = True) -> None:
        """Let `run` return; returns at once. The fence falls first.

        Args:
            release: give the Lease back, so that the next leader need not wait for its end. Not while a write of ours may still be under way.
        """
        self._releases = release
        self._stopping.set()

    def _started(self, on_started: Callable[[Fence], None], fence: Fence, failed: threading.Event) -> None:
        try:
            on_started(fence)
        except LostLease as error:
            _log.info("Stopped leading", lease=self._key(), reason=str(error))
        except Exception:  # noqa: BLE001 - a candidate goes on whatever the API server answers
            _log.exception("Failed to start leading; releasing the Lease", lease=self._key())
            failed.set()
            fence.fall()

    def _acquire(self, pulse: heartbeat.Pulse) -> Fence | None:
        """Try until we hold the lease; None when stopped before."""
        while not self._stopping.is_set():
            pulse.beat()
            sent = self._clock.monotonic()
            try:
                if self._try_acquire():
                    return Fence(self._clock, sent + self.renew_deadline)
            except ApiError as error:
                _log.warning("Failed to read the Lease; retrying", lease=self._key(), error=str(error))
            except Exception:  # noqa: BLE001 - a candidate goes on whatever the API server answers
                _log.exception("Failed to acquire the Lease; retrying", lease=self._key())
            self._stopping.wait(self.retry_period)
        return None

    def _try_acquire(self) -> bool:
        try:
            lease = self._read()
        except NotFound:
            return self._time_left() <= 0 and self._create()
        holder = lease.spec.holder_identity or ""
        if holder != self.holder:
            _log.info("The holder of the Lease changed", lease=self._key(), holder=holder)
        self.holder = holder
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen = _Seen(lease.spec, self._clock.monotonic())
        if self._time_left() > 0:
            return False
        spec = self._held((lease.spec.lease_transitions or 0) + (holder != self.identity))
        try:
            self._lease = self._patch(spec, self._annotations, lease.metadata.resource_version)
        except Conflict:
            return False  # another was faster
        self.holder = self.identity
        return True

    def _time_left(self) -> float:
        """Seconds for which the holder that was seen last may still lead, also where its Lease was deleted meanwhile."""
        if self._seen is None or self._seen.spec.holder_identity in (None, "", self.identity):
            return 0.0
        duration = self._seen.spec.lease_duration_seconds or self.lease_duration
        return self._seen.at + duration - self._clock.monotonic()

    def _create(self) -> bool:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": self._annotations},
            "spec": self._held(transitions=0),
        }
        try:
            self._lease = self._make(body)
        except Conflict:
            return False
        self.holder = self.identity
        return True

    def _held(self, transitions: int) -> dict[str, object]:
        """The spec with which we begin to hold it."""
        now = self._now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, math.ceil(self.lease_duration)),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _make(self, body: object) -> Lease:
        """Make the Lease; of two that find none the second is refused.

        A right to POST Leases cannot be limited to a name. Who has none applies it by its name: the manager is this process
        alone and nothing is forced, so whoever was faster keeps it.
        """
        try:
            return self._send("POST", LEASES.path(self.namespace), body)
        except Forbidden:
            query = {"fieldManager": self.identity[-_MAX_MANAGER:], "force": "false"}
            return self._send("PATCH", LEASES.path(self.namespace, self.name), body, _APPLY, query)

    def _keep(self, fence: Fence, pulse: heartbeat.Pulse) -> None:
        """Renew until the term is over or we shall stop."""
        while not self._stopping.wait(self.retry_period):
            pulse.beat()
            sent = self._clock.monotonic()
            if not fence.valid:
                return
            try:
                if not self._renew():
                    return
            except ApiError as error:
                _log.warning(_FAILED_TO_RENEW_LEASE, lease=self._key(), error=str(error), fence=repr(fence))
                continue
            except Exception:  # noqa: BLE001 - a candidate goes on whatever the API server answers
                _log.exception(_FAILED_TO_RENEW_LEASE, lease=self._key(), fence=repr(fence))
                continue
            fence.extend(sent + self.renew_deadline)

    def _renew(self) -> bool:
        """Write a new renewTime; False when another holds the lease."""
        version = self._lease.metadata.resource_version if self._lease is not None else ""
        annotations = self._annotations
        try:
            added = {} if annotations is self._written else annotations
            self._lease = self._patch({"renewTime": self._now()}, added, version)
            self._written = annotations
        except Conflict:
            # Somebody touched it, perhaps only an annotation, or our last renewal arrived though we never heard of it.
            lease = self._read()
            self.holder = lease.spec.holder_identity or ""
            self._lease = lease
            if self.holder != self.identity:
                return False
            self._lease = self._patch({"renewTime": self._now()}, self._annotations, lease.metadata.resource_version)
        except NotFound:
            self.holder = ""
            return False  # whoever deleted it may have made another the leader
        return True

    def _release(self) -> None:
        """Free the lease at once, so that the next leader need not wait for its end."""
        if self._lease is None or self.holder != self.identity or not self._releases:
            return
        changes = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            self._patch(changes, dict.fromkeys(self._annotations), self._lease.metadata.resource_version)
        except Exception as error:  # noqa: BLE001 - a candidate goes on whatever the API server answers
            _log.warning("Failed to release the Lease", lease=self._key(), error=str(error))
        else:
            self.holder = ""
            _log.info("Released the Lease", lease=self._key())

    def _read(self) -> Lease:
        return self._send("GET", LEASES.path(self.namespace, self.name))

    def _patch(self, spec: Mapping[str, object], annotations: Mapping[str, str | None], version: str) -> Lease:
        """A guarded patch: it touches nothing that others wrote, and fails if they were faster."""
        metadata: dict[str, object] = {"resourceVersion": version}
        if annotations:
            metadata["annotations"] = annotations
        body = {"metadata": metadata, "spec": spec}
        return self._send("PATCH", LEASES.path(self.namespace, self.name), body, _MERGE)

    def _send(
        self,
        method: str,
        path: str,
        body: object | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Lease:
        """One request on a connection of its own, tried once."""
        answer = self._client.raw(
            method,
            path,
            body,
            query,
            content_type=content_type,
            read_timeout=REQUEST_TIMEOUT_SECONDS,
            total_timeout=REQUEST_TIMEOUT_SECONDS,
            tries=1,
            urgent=True,
        )
        try:
            return jsontext.decode_trimmed(_decode_lease, answer)[0]
        except (RecursionError, ValueError) as error:
            raise DecodeError(200, "BadObject", f"not a Lease: {error}", None, f"{method} {path}") from error

    def _now(self) -> str:
        return self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _key(self) -> str:
        return f"{self.namespace}/{self.name}"
