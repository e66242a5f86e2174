"""An API server in memory: objects with versions, preconditions and finalizers, watches, evictions. Every change is told to whoever judges."""

import bisect
import copy
import re
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import urllib3

from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.limits import TokenBucket
from tests.interleaving.threads import STAGE, Clock, Event
from tests.support import jsonpatch
from tests.support.kube import FakeAnswer, refusal

Wire = dict[str, Any]
_PATH: Final = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[a-z0-9]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
READS: Final = "GET"
BOOKMARK_SECONDS: Final = 60.0


@dataclass
class Change:
    """One change of an object.

    Attributes:
        by: the process that asked for it; None for what is around us.
        before: None for one that is new.
        after: None for one that is gone.
    """

    by: object
    plural: str
    name: str
    before: Wire | None
    after: Wire | None


@dataclass
class _Log:
    """What happened to one kind."""

    versions: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)


class Server:
    """The API server.

    Attributes:
        told: is called with every change before anybody else hears of it.
        evicted: is called with every pod that an eviction begins to end, and who asked.
        meanwhile: NodeClaims to which something happens just before a program's next write of them.
    """

    def __init__(self) -> None:
        self.objects: defaultdict[str, dict[str, Wire]] = defaultdict(dict)  # plural -> "namespace/name"
        self.version = 100
        self._logs: defaultdict[str, _Log] = defaultdict(_Log)
        self.told: Callable[[Change], None] = lambda _: None
        self.evicted: Callable[[object, Wire], None] = lambda *_: None
        self.meanwhile: dict[str, Callable[[], None]] = {}
        self.arrived = Event()
        self.streams: list[Stream] = []
        self._uids = 0

    # ------------------------------------------------------------------ what is around us

    def get(self, plural: str, name: str, namespace: str = "") -> Wire | None:
        """An object as it is; not to be changed."""
        return self.objects[plural].get(_key(namespace, name))

    def all(self, plural: str) -> list[Wire]:
        """Every object of a kind, by name."""
        return [one for _, one in sorted(self.objects[plural].items())]

    def put(self, plural: str, wire: Wire, by: object = None) -> Wire:
        """Create or replace an object."""
        meta = wire["metadata"]
        key = _key(meta.get("namespace", ""), meta["name"])
        known = self.objects[plural].get(key)
        if known is None:
            self._uids += 1
            meta.setdefault("uid", f"uid-{self._uids:05d}")
            meta.setdefault("generation", 1)
            meta["creationTimestamp"] = stamp()
        elif known == wire:
            return known
        elif known.get("spec") != wire.get("spec"):
            meta["generation"] = known["metadata"].get("generation", 1) + 1
        if "deletionTimestamp" in meta and not meta.get("finalizers") and plural != "pods":
            self._tell(plural, key, known, None, by)
            return wire
        self._tell(plural, key, known, wire, by)
        return wire

    def change(self, plural: str, name: str, patch: Wire, namespace: str = "", by: object = None) -> Wire:
        """A merge patch."""
        known = self.objects[plural][_key(namespace, name)]
        return self.put(plural, merged(copy.deepcopy(known), patch), by)

    def remove(self, plural: str, name: str, namespace: str = "", by: object = None) -> None:
        """Delete: finalizers hold it; a pod is asked to end."""
        known = self.objects[plural].get(_key(namespace, name))
        if known is None or "deletionTimestamp" in known["metadata"]:
            return
        if known["metadata"].get("finalizers") or plural == "pods":
            self.change(plural, name, {"metadata": {"deletionTimestamp": stamp()}}, namespace, by)
        else:
            self._tell(plural, _key(namespace, name), known, None, by)

    def drop(self, plural: str, name: str, namespace: str = "") -> None:
        """It is gone."""
        key = _key(namespace, name)
        self._tell(plural, key, self.objects[plural][key], None, None)

    def _tell(self, plural: str, key: str, known: Wire | None, wire: Wire | None, by: object) -> None:
        self.version += 1
        if wire is None:
            del self.objects[plural][key]
            gone = copy.deepcopy(known)
            assert gone is not None
            gone["metadata"]["resourceVersion"] = str(self.version)
            kind, shown = "DELETED", gone
        else:
            wire["metadata"]["resourceVersion"] = str(self.version)
            self.objects[plural][key] = wire
            kind, shown = ("ADDED" if known is None else "MODIFIED"), wire
        log = self._logs[plural]
        log.versions.append(self.version)
        log.lines.append(b'{"type":"%s","object":%s}\n' % (kind.encode(), _encode(shown)))
        self.told(Change(by, plural, key.rpartition("/")[2], known, wire))
        for stream in self.streams:
            if stream.plural == plural:
                stream.arrived.set()

    def after(self, plural: str, version: int) -> int:
        """The number of the first change that is later."""
        return bisect.bisect_right(self._logs[plural].versions, version)

    def line(self, plural: str, number: int) -> bytes | None:
        """One change as a watch tells it."""
        lines = self._logs[plural].lines
        return lines[number] if number < len(lines) else None

    # ------------------------------------------------------------------ requests

    def answer(self, method: str, path: str, body: bytes | None, content_type: str, by: object) -> FakeAnswer:
        """Do it now, at once."""
        url = urllib.parse.urlsplit(path)
        found = _PATH.fullmatch(url.path)
        if found is None:
            return refusal(404, "NotFound", f"nobody serves {url.path}")
        namespace, plural, name, sub = (found[key] or "" for key in ("namespace", "plural", "name", "sub"))
        query = dict(urllib.parse.parse_qsl(url.query))
        sent = _decode(body) if body else {}
        if not name:
            if method == "POST":
                return self._create(plural, namespace, sent, by)
            return self._list(plural, namespace, query)
        if plural == "nodeclaims" and method != "GET":
            self.meanwhile.pop(name, lambda: None)()
        known = self.get(plural, name, namespace)
        if sub == "eviction":
            return self._evict(known, sent, by)
        if known is None:
            return refusal(404, "NotFound", f"{plural} {name} is not there")
        match method:
            case "GET":
                return FakeAnswer(data=_encode(known))
            case "DELETE":
                return self._delete(plural, known, sent, by)
            case "PATCH":
                return self._patch(plural, known, sent, sub, content_type, by)
            case _:
                return refusal(405, "MethodNotAllowed", method)

    def _create(self, plural: str, namespace: str, sent: Wire, by: object) -> FakeAnswer:
        name = sent["metadata"]["name"]
        if self.get(plural, name, namespace) is not None:
            return refusal(409, "AlreadyExists", f"{plural} {name} exists")
        if namespace:
            sent["metadata"]["namespace"] = namespace
        return FakeAnswer(201, _encode(self.put(plural, sent, by)))

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> FakeAnswer:
        items = [one for one in self.all(plural) if not namespace or one["metadata"].get("namespace") == namespace]
        selector = query.get("fieldSelector", "")
        if selector.startswith("spec.nodeName="):
            wanted, _, unfinished = selector.removeprefix("spec.nodeName=").partition(",")
            items = [one for one in items if one["spec"].get("nodeName", "") == wanted]
            if unfinished:
                items = [one for one in items if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        elif selector:
            assert selector.startswith("metadata.name="), selector
            items = [one for one in items if one["metadata"]["name"] == selector.removeprefix("metadata.name=")]
        return FakeAnswer(data=_encode({"metadata": {"resourceVersion": str(self.version)}, "items": items}))

    def _delete(self, plural: str, known: Wire, sent: Wire, by: object) -> FakeAnswer:
        meta, wanted = known["metadata"], sent.get("preconditions", {})
        if any(meta[key] != wanted[key] for key in ("uid", "resourceVersion") if key in wanted):
            return refusal(409, "Conflict", "another one")
        self.remove(plural, meta["name"], meta.get("namespace", ""), by)
        return FakeAnswer(data=b'{"kind":"Status","status":"Success"}')

    def _patch(self, plural: str, known: Wire, sent: Any, sub: str, content_type: str, by: object) -> FakeAnswer:
        if "json-patch" in content_type:
            try:
                changed = jsonpatch.apply(known, sent)
            except jsonpatch.PatchError as error:
                return refusal(422, "Invalid", str(error))
        else:
            guards = sent.get("metadata", {})
            if any(known["metadata"][key] != guards[key] for key in ("uid", "resourceVersion") if key in guards):
                return refusal(409, "Conflict", "it has changed")
            changed = merged(copy.deepcopy(known), sent)
        if sub == "status":
            changed = {**known, "metadata": copy.deepcopy(known["metadata"]), "status": changed.get("status", {})}
        elif "status" in known:
            changed["status"] = known["status"]
        changed["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
        return FakeAnswer(data=_encode(self.put(plural, changed, by)))

    def _evict(self, pod: Wire | None, sent: Wire, by: object) -> FakeAnswer:
        """policy/v1, as far as one budget covers a pod."""
        if pod is None:
            return refusal(404, "NotFound", "no such pod")
        wanted = sent.get("deleteOptions", {}).get("preconditions", {}).get("uid", pod["metadata"]["uid"])
        if wanted != pod["metadata"]["uid"]:
            return refusal(409, "Conflict", "another pod")
        if "deletionTimestamp" in pod["metadata"]:
            return FakeAnswer(201, b'{"kind":"Status","status":"Success"}')
        for budget in self.all("poddisruptionbudgets"):
            if not covers(budget, pod):
                continue
            status = copy.deepcopy(budget["status"])
            if status["disruptionsAllowed"] < 1:
                return refusal(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
                )
            status["disruptionsAllowed"] -= 1
            status.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = stamp()
            meta = budget["metadata"]
            self.change("poddisruptionbudgets", meta["name"], {"status": status}, meta["namespace"])
        self.evicted(by, pod)
        self.remove("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], by)
        return FakeAnswer(201, b'{"kind":"Status","status":"Success"}')


class Stream:
    """A watch that is open. What it tells comes as late as `late_until` says."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(
        self, server: Server, plural: str, namespace: str, selector: str, version: str, timeout: float
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

    def __init__(self, server: Server, owner: Any, chance: Callable[[], float]) -> None:
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
        answer = self._server.answer(method, path, body, (headers or {}).get("content-type", ""), self._owner)
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
        found = _PATH.fullmatch(url.path)
        assert found is not None, path
        stream = Stream(
            self._server,
            found["plural"],
            found["namespace"] or "",
            query.get("fieldSelector", ""),
            query.get("resourceVersion", ""),
            read_timeout,
        )
        self._owner.streams.append(stream)
        return stream

    def refresh(self) -> bool:
        return True


def covers(budget: Wire, pod: Wire) -> bool:
    """Whether a PodDisruptionBudget counts a pod."""
    wanted: Wire = budget["spec"]["selector"]["matchLabels"]
    labels: Wire = pod["metadata"].get("labels", {})
    same: bool = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and wanted.items() <= labels.items()


def merged(known: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = known if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def stamp() -> str:
    """The time as objects have it."""
    return Clock().now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
