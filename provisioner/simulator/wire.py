"""What goes over the wire between a client and the API server in memory: requests as they were made, and answers."""

import json
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """One answer; `pieces` are what a stream yields, one by one."""

    status: int = 200
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes | Exception] = ()
    closed: bool = False

    def read(self, amt: int | None = None) -> bytes:
        return self.data[:amt]

    def stream(self, amt: int | None = None) -> Iterator[bytes]:  # noqa: ARG002 - the seam has it
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def shutdown(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class Sent:
    """One request as it was made."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    content_type: str
    at: float


def request(method: str, path: str, body: bytes | None, content_type: str, at: float) -> Sent:
    """A request as it goes over the wire, read."""
    url = urllib.parse.urlsplit(path)
    query = dict(urllib.parse.parse_qsl(url.query))
    return Sent(method, url.path, query, json.loads(body) if body is not None else None, content_type, at)


def refusal(
    status: int,
    reason: str = "",
    message: str = "no",
    retry_after: int | None = None,
    causes: Iterable[tuple[str, str]] = (),
) -> Answer:
    """An answer with a Status body, and the header when `retry_after` is given."""
    body: dict[str, Any] = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    if causes:
        body["details"] = {"causes": [{"field": name, "message": text} for name, text in causes]}
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Answer(status, json.dumps(body).encode(), headers)
