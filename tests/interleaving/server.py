"""What a process of interleavings has of the API server in memory: requests that may be lost, and watches that may be late."""

import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import urllib3

from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.limits import TokenBucket
from provisioner.simulator.api_server import ApiServer, asked
from tests.interleaving.threads import STAGE, Clock, Event
from tests.support.kube import FakeAnswer, refusal, request

_encode = msgspec.json.Encoder().encode
READS: Final = "GET"
BOOKMARK_SECONDS: Final = 60.0


class Stream:
    """A watch that is open. What it tells comes as late as `late_until` says."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(
        self, server: ApiServer, plural: str, namespace: str, selector: str, version: str, timeout: float
    ) -> None:
        self._server, self.plural, self._timeout = server, plural, timeout
        self._namespace, self._selector, self._version = namespace, selector, version
        self.arrived = Event()
        self.late_until = 0.0
        self.cut = self._ended = False
        server.streams.append(self)

    def read(self, amt: int | None = None) -> bytes:
        return b""

    def stream(self, amt: int | None = None) -> Iterator[bytes]:
        if not self._version:
            found = self._server.all(self.plural) if not self._selector else []
            version = self._server.version
            for one in found:
                yield b'{"type":"ADDED","object":%s}\n' % _encode(one)
            mark = {"metadata": {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}}
            yield b'{"type":"BOOKMARK","object":%s}\n' % _encode(mark)
        else:
            version = int(self._version)
        number, silent_at = self._server.after(self.plural, version), STAGE.seconds + self._timeout
        mark_at = STAGE.seconds + BOOKMARK_SECONDS
        while not self._ended:
            if self.cut:
                raise urllib3.exceptions.ProtocolError("connection broken")
            if STAGE.seconds < self.late_until:
                STAGE.stand(until=min(self.late_until, silent_at))
            elif not self._selector and (line := self._server.line(self.plural, number)) is not None:
                number, silent_at = number + 1, STAGE.seconds + self._timeout
                yield line
                continue
            elif STAGE.seconds >= mark_at:
                mark_at, silent_at = STAGE.seconds + BOOKMARK_SECONDS, STAGE.seconds + self._timeout
                yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % self._server.version
                continue
            else:
                self.arrived.clear()
                self.arrived.wait(min(silent_at, mark_at) - STAGE.seconds)
            if STAGE.seconds >= silent_at:
                raise urllib3.exceptions.ReadTimeoutError(None, "", "silent")  # type: ignore[arg-type]

    def shutdown(self) -> None:
        self._ended = True
        self.arrived.set()

    def close(self) -> None:
        self._ended = True
        if self in self._server.streams:
            self._server.streams.remove(self)


class Link:
    """What one process has of the server: `provisioner.kube.config.Api`.

    Attributes:
        trouble: chance that a request fails before its effect, or that its answer is lost.
        kill_at: writes until the process is killed, before or after its effect; None never.
    """

    host = "https://memory"

    def __init__(self, server: ApiServer, owner: Any, chance: Callable[[], float]) -> None:
        self._server, self._owner, self._chance = server, owner, chance
        self.limiter = TokenBucket(0, 1, Clock())
        self.trouble = 0.0
        self.kill_at: int | None = None
        self.kill_before = False

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Any = None,
        read_timeout: float = 0,
        total_timeout: float = 0,
        urgent: bool = False,
        permit: Any = None,
    ) -> FakeAnswer:
        STAGE.maybe_stand(STAGE.at_requests)
        if permit is not None:
            permit.check()
        writes = method != READS
        failing = self.trouble and self._chance() < self.trouble
        if failing and self._chance() < 0.5:
            if self._chance() < 0.3:
                return refusal(503, "ServiceUnavailable", "come again")
            raise ConnectionFailed("no route", f"{method} {path}", maybe_applied=writes)
        if writes and self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0 and self.kill_before:
                self._owner.die()
        sent = request(method, path, body, (headers or {}).get("content-type", ""), STAGE.seconds)
        answer = self._server.answer(sent, self._owner)
        if writes and self.kill_at is not None and self.kill_at < 0:
            self._owner.die()
        STAGE.maybe_stand(STAGE.at_requests)
        if failing:
            raise ConnectionFailed("the answer was lost", f"{method} {path}", maybe_applied=True)
        return answer

    def stream(self, path: str, *, read_timeout: float) -> Stream:
        STAGE.maybe_stand(STAGE.at_requests)
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query))
        about = asked(url.path)
        assert about is not None, path
        selector, version = query.get("fieldSelector", ""), query.get("resourceVersion", "")
        stream = Stream(self._server, about.plural, about.namespace, selector, version, read_timeout)
        self._owner.streams.append(stream)
        return stream

    def refresh(self) -> bool:
        return True
