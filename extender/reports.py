"""Reports to the provisioner's leader: pods that were left without a node, sent by a thread of their own.

A report only saves time, so nothing here is exact: the queue drops its oldest entry when it is full, a batch that
cannot be sent is not kept, and without a leader reports are counted and forgotten. The pod's next try reports again.
After several failures in a row nothing is sent for a while, longer each time, until one batch gets through or the address changes.
"""

import threading
import urllib.parse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import urllib3

from extender import metrics
from provisioner.apis.core import Lease
from provisioner.apis.reports import MAX_REPORTS, REPORTS_URL_ANNOTATION, PodReport, encode_reports
from provisioner.support import heartbeat, logs
from provisioner.support.addresses import is_loopback
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock

BATCH_SECONDS: Final = 0.1
HEARTBEAT_SECONDS: Final = 3.0
"""How often the leader hears of us, so that it leaves the way of planned pods to us (`provisioner.lifecycle.steering`)."""
CAPACITY: Final = 1000
TIMEOUT_SECONDS: Final = 3.0
FAILURES_IN_A_ROW: Final = 3
PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 10.0
"""The leader takes us for gone in the meantime, and nominates planned pods itself (`provisioner.lifecycle.steering`)."""
_LOG_EVERY_SECONDS: Final = 60.0

_log = logs.get_logger(__name__)


class AddressError(ValueError):
    """Reports may not be sent to this address; says why."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """How https is done: files in PEM form, "" for none.

    Attributes:
        ca_file: whom to trust.
        cert_file: our client certificate.
        key_file: its key.
        server_name: name to expect in the server's certificate; "" is the host of the address.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""

    @property
    def is_absent(self) -> bool:
        """Whether files are named, their directories are there, and none of them is: an optional Secret not made yet."""
        paths = [Path(path) for path in (self.ca_file, self.cert_file, self.key_file) if path]
        return bool(paths) and all(path.parent.is_dir() and not path.exists() for path in paths)

    def version(self) -> tuple[int, ...]:
        """Changes when one of the files does, so that rotated certificates are picked up."""
        return tuple(Path(path).stat().st_mtime_ns for path in (self.ca_file, self.cert_file, self.key_file) if path)


def check_address(url: str, identity: ClientIdentity) -> None:
    """Refuse what may not be used: reports name pods, and whoever can write the Lease chooses the address.

    Raises:
        AddressError: no http(s) URL with a host; http to another machine; https without CA, certificate and key.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise AddressError(f"{url!r} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise AddressError(f"{url!r} is not an http or https URL with a host")
    if parts.username or parts.password:
        raise AddressError("the URL contains credentials")
    if parts.scheme == "http" and not is_loopback(host):
        raise AddressError(
            f"{url!r} is plain http to another host; configure the provisioner to serve reports over https"
        )
    if parts.scheme == "https" and not (identity.ca_file and identity.cert_file and identity.key_file):
        raise AddressError(f"{url!r} requires --reports-ca, --reports-cert and --reports-key")


class Reporter:
    """Collects reports and sends them in batches.

    Args:
        identity: for https.
        clock: for the log.
        steers: whether questions are answered from fresh data now; only then does the leader hear of us.
    """

    def __init__(self, identity: ClientIdentity, clock: Clock, steers: Callable[[], bool] = lambda: False) -> None:
        self._steers = steers
        self._identity = identity
        self._clock = clock
        self._queue: deque[PodReport] = deque()
        self._something = threading.Condition()
        self._stopping = False
        self._url = ""
        self._greets = False  # a new leader hears of us at once
        self._pool: tuple[object, urllib3.PoolManager] | None = None
        self._logged_at = -_LOG_EVERY_SECONDS
        self._failures = 0
        self._paused_until = 0.0
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def start(self) -> None:
        """Start the thread; once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is queued is dropped."""
        with self._something:
            self._stopping = True
            self._something.notify_all()
        self._thread.join(TIMEOUT_SECONDS + 1.0)

    def put(self, report: PodReport) -> None:
        """Queue a report; never blocks, drops the oldest when `CAPACITY` are waiting."""
        with self._something:
            if len(self._queue) >= CAPACITY:
                self._queue.popleft()
                metrics.REPORTS.labels("dropped").inc()
            self._queue.append(report)
            self._something.notify_all()

    @property
    def url(self) -> str:
        """Where reports go, "" while nobody wants them."""
        return self._url

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:  # noqa: ARG002 - the seam has it
        """The leader's Lease was added, changed or removed: it names the address."""
        url = new.metadata.annotations.get(REPORTS_URL_ANNOTATION, "") if new is not None else ""
        if url == self._url:
            return
        if url:
            try:
                check_address(url, self._identity)
            except AddressError as error:
                _log.warning("The leader's address for reports is not usable", problem=str(error))
                url = ""
        with self._something:
            self._url, self._greets = url, bool(url)
            self._failures, self._paused_until = 0, 0.0
            self._something.notify_all()
        _log.info("Discovered the leader's address for reports", url=url or "none")

    def _run(self) -> None:
        pulse = heartbeat.pulse("reports")
        while True:
            pulse.beat()
            with self._something:
                self._something.wait_for(lambda: self._queue or self._stopping or self._greets, HEARTBEAT_SECONDS)
                self._greets = False
                if self._queue and not self._stopping:
                    self._something.wait_for(lambda: self._stopping, BATCH_SECONDS)  # gather what comes meanwhile
                if self._stopping:
                    return
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_REPORTS))]
            if self._clock.monotonic() < self._paused_until:
                metrics.REPORTS.labels("paused").inc(len(batch))
                continue
            url = self._url
            try:
                if batch or (url and self._steers()):
                    self._send(batch)
                    self._sent(url, failed=False)
            except Exception as error:  # noqa: BLE001 - the thread outlives whatever a peer does
                self._sent(url, failed=True)
                metrics.REPORTS.labels("failed").inc(len(batch))
                self._log("Failed to send reports; retrying", error)

    def _sent(self, url: str, *, failed: bool) -> None:
        with self._something:
            if url != self._url:
                return  # that was the former leader
            self._failures = self._failures + 1 if failed else 0
            pause = doubled(self._failures - FAILURES_IN_A_ROW + 1, base=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS)
            self._paused_until = self._clock.monotonic() + pause

    def _send(self, batch: list[PodReport]) -> None:
        url = self._url
        if not url:
            metrics.REPORTS.labels("unaddressed").inc(len(batch))
            return
        answer = self._connection(url).request(
            "POST", url, body=encode_reports(batch), headers={"Content-Type": "application/json"}, redirect=False
        )
        if answer.status >= 300:
            raise AddressError(f"{url} answered {answer.status}")
        metrics.REPORTS.labels("sent").inc(len(batch))

    def _connection(self, url: str) -> urllib3.PoolManager:
        """A pool for this address, made anew when the address or one of the files changes."""
        secure = url.startswith("https:")
        key = (url, self._identity.version() if secure else ())
        if self._pool is None or self._pool[0] != key:
            if self._pool is not None:
                self._pool[1].clear()
            options: dict[str, object] = {}
            if secure:
                options = {
                    "cert_reqs": "CERT_REQUIRED",
                    "ca_certs": self._identity.ca_file,
                    "cert_file": self._identity.cert_file,
                    "key_file": self._identity.key_file,
                }
                if self._identity.server_name:
                    options["assert_hostname"] = options["server_hostname"] = self._identity.server_name
            pool = urllib3.PoolManager(num_pools=1, maxsize=1, retries=False, timeout=TIMEOUT_SECONDS, **options)  # type: ignore[arg-type]
            self._pool = (key, pool)
        return self._pool[1]

    def _log(self, text: str, error: Exception) -> None:
        now = self._clock.monotonic()
        if now - self._logged_at >= _LOG_EVERY_SECONDS:
            self._logged_at = now
            _log.warning(text, error=str(error))
