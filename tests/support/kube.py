"""A connection that answers from a script, for tests of clients, reflectors, leases and events without a server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from provisioner.kube.config import READ_TIMEOUT_SECONDS, TOTAL_TIMEOUT_SECONDS
from provisioner.kube.limits import TokenBucket
from provisioner.kube.sending import Permit
from provisioner.simulator.wire import Answer as FakeAnswer
from provisioner.simulator.wire import Sent, refusal, request
from provisioner.support.clock import Clock
from tests.support.clock import FakeClock

__all__ = ["FakeAnswer", "Sent", "refusal", "request"]
Script = FakeAnswer | Exception
Responder = Callable[[Sent], Script]


class FakeApi:
    """Answers with what the test queued, in order, or with what its `respond` says; records what was asked."""

    def __init__(self, *answers: Script, respond: Responder | None = None, clock: Clock | None = None) -> None:
        self.host = "https://fake"
        self.clock: Clock = clock if clock is not None else FakeClock()
        self.limiter = TokenBucket(0, 1, self.clock)
        self.answers = list(answers)
        self.respond = respond
        self.sent: list[Sent] = []
        self.refreshed = 0
        self.refresh_works = True

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
        total_timeout: float = TOTAL_TIMEOUT_SECONDS,
        urgent: bool = False,
        permit: Permit | None = None,
    ) -> FakeAnswer:
        if permit is not None:
            permit.check()
        return self._answer(method, path, body, (headers or {}).get("content-type", ""))

    def stream(self, path: str, *, read_timeout: float) -> FakeAnswer:
        return self._answer("GET", path, None, "")

    def refresh(self) -> bool:
        self.refreshed += 1
        return self.refresh_works

    def _answer(self, method: str, path: str, body: bytes | None, content_type: str) -> FakeAnswer:
        sent = request(method, path, body, content_type, self.clock.monotonic())
        self.sent.append(sent)
        if self.respond is not None:
            answer = self.respond(sent)
        else:
            assert self.answers, f"nothing was scripted for {method} {path}"
            answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ok(body: object, status: int = 200) -> FakeAnswer:
    """An answer with a JSON body."""
    return FakeAnswer(status, json.dumps(body).encode())


def thing(
    name: str, version: int | str = 1, *, namespace: str = "", uid: str = "", **metadata: object
) -> dict[str, Any]:
    """A small object on the wire: metadata and nothing else."""
    meta: dict[str, Any] = {"name": name, "resourceVersion": str(version), "uid": uid or f"uid-{name}", **metadata}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def event(kind: str, obj: Mapping[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int | str, *, end: bool = False) -> bytes:
    """A bookmark; with `end`, the one that ends the initial events."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "ConfigMap", "metadata": metadata})


def watching(*pieces: bytes | Exception) -> FakeAnswer:
    """A stream that yields these pieces and then ends."""
    return FakeAnswer(pieces=pieces)


def page(version: int | str, *objects: Mapping[str, Any], token: str = "") -> FakeAnswer:
    """One page of a list."""
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return ok({"kind": "List", "metadata": metadata, "items": list(objects)})


def nested(levels: int) -> bytes:
    """The text of an object that holds an object that holds ..., as `managedFields` may be."""
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def deep(text: bytes, levels: int = 1000) -> bytes:
    """The same text, in which the object called "evil" has managed fields nested so deeply."""
    mark = b'"name": "evil", '
    assert mark in text
    return text.replace(mark, mark + b'"managedFields": [{"fieldsV1": ' + nested(levels) + b"}], ")


def kubeconfig(directory: Path, port: int) -> Path:
    """A file for a program that is to find a server on this port of the loopback."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path
