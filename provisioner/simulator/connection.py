"""The connection of clients and watches to the API server in memory. A watch tells what has happened and ends: whoever runs it opens it again."""

import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from provisioner.kube.config import READ_TIMEOUT_SECONDS, TOTAL_TIMEOUT_SECONDS
from provisioner.kube.limits import TokenBucket
from provisioner.kube.sending import Permit
from provisioner.simulator.api_server import ApiServer, asked
from provisioner.simulator.wire import Answer, refusal, request
from provisioner.support.clock import Clock

_encode = msgspec.json.Encoder().encode


class MemoryConnection:
    """`provisioner.kube.config.Api` of one program.

    Args:
        owner: who asks, as the server tells it of changes.
    """

    host = "https://memory"

    def __init__(self, server: ApiServer, clock: Clock, owner: object) -> None:
        self._server, self._clock, self._owner = server, clock, owner
        self.limiter = TokenBucket(0, 1, clock)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,  # noqa: ARG002 - the seam has it
        total_timeout: float = TOTAL_TIMEOUT_SECONDS,  # noqa: ARG002 - likewise
        urgent: bool = False,  # noqa: ARG002 - likewise
        permit: Permit | None = None,
    ) -> Answer:
        """Answered at once."""
        if permit is not None:
            permit.check()
        sent = request(method, path, body, (headers or {}).get("content-type", ""), self._clock.monotonic())
        return self._server.answer(sent, self._owner)

    def stream(self, path: str, *, read_timeout: float) -> Answer:  # noqa: ARG002 - likewise
        """Everything that is there, or that has changed since a version, and then a bookmark."""
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query))
        about = asked(url.path)
        if about is None:
            return refusal(404, "NotFound", f"nobody serves {url.path}")
        version, selector = query.get("resourceVersion", ""), query.get("fieldSelector", "")
        if not version:
            return Answer(pieces=self._initial(about.plural, about.namespace, selector))
        return Answer(pieces=self._since(about.plural, int(version), selected=bool(selector)))

    def refresh(self) -> bool:
        """There are no credentials that could be old."""
        return True

    def _initial(self, plural: str, namespace: str, selector: str) -> Iterator[bytes]:
        name = selector.removeprefix("metadata.name=")
        for one in self._server.all(plural):
            meta = one["metadata"]
            if (not namespace or meta.get("namespace") == namespace) and (not selector or meta["name"] == name):
                yield b'{"type":"ADDED","object":%s}\n' % _encode(one)
        mark: dict[str, Any] = {"resourceVersion": str(self._server.version)}
        yield _bookmark({**mark, "annotations": {"k8s.io/initial-events-end": "true"}})

    def _since(self, plural: str, version: int, *, selected: bool) -> Iterator[bytes]:
        """`selected`: of one object, which nobody changes in a day."""
        number = self._server.after(plural, version)
        while not selected and (line := self._server.line(plural, number)) is not None:
            number += 1
            yield line
        yield _bookmark({"resourceVersion": str(self._server.version)})


def _bookmark(metadata: dict[str, Any]) -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":%s}}\n' % _encode(metadata)
