"""An API server in memory: objects with versions, preconditions and finalizers, evictions, and what a watch tells. Every change is told to whoever judges."""

import bisect
import re
import urllib.parse
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis.meta import LabelSelector, selects
from provisioner.kube import resources
from provisioner.kube.resources import Resource
from provisioner.simulator import json_patch
from provisioner.simulator.wire import Answer, Sent, refusal
from provisioner.support.clock import Clock

Wire = dict[str, Any]
PATH: Final = re.compile(
    r"/(?:api|apis)/(?P<version>v1|[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[a-z0-9]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
SERVED: Final = {(one.api_version, one.plural) for one in vars(resources).values() if isinstance(one, Resource)}
CUSTOM: Final = (
    "nodepools",
    "nodeclaims",
    "nodeoverlays",
    "capacitybuffers",
    "provisioningrequests",
    "kwoknodeclasses",
    "ec2nodeclasses",
)
"""Kinds of CustomResourceDefinitions, which take nothing but the status at `status`, and it nowhere else."""
_DONE: Final = b'{"kind":"Status","status":"Success"}'
_GUARDS: Final = ("uid", "resourceVersion")
_encode = msgspec.json.Encoder().encode


@dataclass
class ServerChange:
    """One change of an object.

    Attributes:
        by: who asked for it; None for what is around us.
        before: None for one that is new.
        after: None for one that is gone.
    """

    by: object
    plural: str
    name: str
    before: Wire | None
    after: Wire | None


@dataclass(frozen=True)
class Asked:
    """What a request is about: "" where it does not say."""

    version: str
    namespace: str
    plural: str
    name: str
    sub: str


def asked(path: str) -> Asked | None:
    """The object or collection at a path without its query; None where nobody serves that."""
    found = PATH.fullmatch(path)
    if found is None or (found["version"], found["plural"]) not in SERVED:
        return None
    return Asked(**{key: urllib.parse.unquote(value or "") for key, value in found.groupdict().items()})


@dataclass
class _Log:
    """What happened to one kind; `dropped` of it is forgotten."""

    versions: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    dropped: int = 0


class ApiServer:
    """The API server.

    Attributes:
        objects: what is there, by plural, and then by name or "namespace/name"; not to be changed by programs.
        told: is called with every change before anybody else hears of it.
        evicted: is called with every pod that an eviction begins to end, and who asked.
        meanwhile: NodeClaims to which something happens just before a program's next write of them.
    """

    def __init__(self, clock: Clock) -> None:
        self.objects: defaultdict[str, dict[str, Wire]] = defaultdict(dict)
        self.version = 100
        self.told: Callable[[ServerChange], object] = lambda _: None
        self.evicted: Callable[[object, Wire], None] = lambda *_: None
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.streams: list[Any] = []
        self._clock = clock
        self._logs: defaultdict[str, _Log] = defaultdict(_Log)
        self._uids = 0
        self._by_node: defaultdict[str, dict[str, None]] = defaultdict(
            dict
        )  # keys of pods that are or were bound there
        # by plural, key and field manager: annotations as applied
        self._owned: dict[tuple[str, str, str], dict[str, str]] = {}

    # ------------------------------------------------------------------ what is around us

    def get(self, plural: str, name: str, namespace: str = "") -> Wire | None:
        """An object as it is; not to be changed."""
        return self.objects[plural].get(_key(namespace, name))

    def all(self, plural: str) -> list[Wire]:
        """Every object of a kind, by name."""
        return [one for _, one in sorted(self.objects[plural].items())]

    def pods_on(self, node_name: str) -> list[Wire]:
        """The pods that are bound to a Node, by name. Cost: O(these, with a sort), however many others there are."""
        pods, keys = self.objects["pods"], self._by_node.get(node_name, {})
        found = [(key, pods[key]) for key in sorted(keys) if key in pods]
        return [one for _, one in found if one["spec"].get("nodeName") == node_name]

    def store(self, plural: str, wire: Wire, by: object = None) -> Wire:
        """Create or replace an object."""
        meta = dict(wire["metadata"])
        wire = {**wire, "metadata": meta}
        key = _key(meta.get("namespace", ""), meta["name"])
        known = self.objects[plural].get(key)
        if known is None:
            meta.setdefault("uid", self.uid_of(meta["name"]))
            meta.setdefault("generation", 1)
            meta.setdefault("creationTimestamp", self.stamp())
        elif known == wire:
            return known
        elif known.get("spec") != wire.get("spec"):
            meta["generation"] = known["metadata"].get("generation", 1) + 1
        if "deletionTimestamp" in meta and not meta.get("finalizers") and plural != "pods":
            if known is not None:
                self._tell(plural, key, known, None, by)
            return wire
        return self._tell(plural, key, known, wire, by)

    def uid_of(self, _name: str) -> str:
        """For one that is new."""
        self._uids += 1
        return f"uid-{self._uids:05d}"

    def change(self, plural: str, name: str, patch: Wire, namespace: str = "", by: object = None) -> Wire:
        """A merge patch."""
        return self.store(plural, merged(self.objects[plural][_key(namespace, name)], patch), by)

    def remove(self, plural: str, name: str, namespace: str = "", by: object = None) -> None:
        """Delete: finalizers hold it; a pod is asked to end."""
        known = self.objects[plural].get(_key(namespace, name))
        if known is None or "deletionTimestamp" in known["metadata"]:
            return
        if known["metadata"].get("finalizers") or plural == "pods":
            self.change(plural, name, {"metadata": {"deletionTimestamp": self.stamp()}}, namespace, by)
        else:
            self._tell(plural, _key(namespace, name), known, None, by)

    def drop(self, plural: str, name: str, namespace: str = "") -> None:
        """It is gone."""
        key = _key(namespace, name)
        self._tell(plural, key, self.objects[plural][key], None, None)

    def stamp(self) -> str:
        """The time as objects have it."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _tell(self, plural: str, key: str, known: Wire | None, wire: Wire | None, by: object) -> Wire:
        self.version += 1
        shown = wire if wire is not None else known or {}
        shown = {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(self.version)}}
        if plural == "pods":
            self._bound(key, known, wire)
        if wire is None:
            del self.objects[plural][key]
        else:
            self.objects[plural][key] = shown
        kind = "DELETED" if wire is None else "ADDED" if known is None else "MODIFIED"
        log = self._logs[plural]
        log.versions.append(self.version)
        log.lines.append(b'{"type":"%s","object":%s}\n' % (kind.encode(), _encode(shown)))
        self.told(ServerChange(by, plural, key.rpartition("/")[2], known, None if wire is None else shown))
        for stream in self.streams:
            if stream.plural == plural:
                stream.arrived.set()
        return shown

    def _bound(self, key: str, known: Wire | None, wire: Wire | None) -> None:
        """Keep the index of `pods_on`."""
        before, after = ("" if one is None else one["spec"].get("nodeName", "") for one in (known, wire))
        if before and before != after:
            there = self._by_node[before]
            there.pop(key, None)
            if not there:
                del self._by_node[before]
        if after:
            self._by_node[after][key] = None

    def after(self, plural: str, version: int) -> int:
        """The number of the first change that is later."""
        log = self._logs[plural]
        return log.dropped + bisect.bisect_right(log.versions, version)

    def line(self, plural: str, number: int) -> bytes | None:
        """One change as a watch tells it."""
        log = self._logs[plural]
        place = number - log.dropped
        return log.lines[place] if place < len(log.lines) else None

    def forget(self, plural: str) -> None:
        """Every watch of the kind has been told what happened to it."""
        log = self._logs[plural]
        log.dropped += len(log.lines)
        log.versions.clear()
        log.lines.clear()

    # ------------------------------------------------------------------ requests

    def answer(self, sent: Sent, by: object) -> Answer:
        """Do it now, at once."""
        about = asked(sent.path)
        if about is None:
            return refusal(404, "NotFound", f"nobody serves {sent.path}")
        if not about.name:
            return self._create(about, sent, by) if sent.method == "POST" else self._list(about, sent.query)
        if about.plural == "nodeclaims" and sent.method != "GET":
            self.meanwhile.pop(about.name, lambda: None)()
        known = self.get(about.plural, about.name, about.namespace)
        if about.sub == "eviction":
            return self._evict(known, sent.body, by)
        if known is None and "apply-patch" in sent.content_type and not about.sub:
            return self._create(about, sent, by)
        if known is None:
            return refusal(404, "NotFound", f"{about.plural} {about.name} is not there")
        match sent.method:
            case "GET":
                return Answer(data=_encode(known))
            case "DELETE":
                return self._delete(about.plural, known, sent.body or {}, by)
            case "PATCH":
                return self._patch(about, known, sent, by)
            case _:
                return refusal(405, "MethodNotAllowed", sent.method)

    def _create(self, about: Asked, sent: Sent, by: object) -> Answer:
        wire: Wire = sent.body
        meta = wire["metadata"]
        if self.get(about.plural, meta["name"], about.namespace) is not None:
            return refusal(409, "AlreadyExists", f"{about.plural} {meta['name']} exists")
        meta |= {"creationTimestamp": self.stamp()} | ({"namespace": about.namespace} if about.namespace else {})
        if about.plural in CUSTOM:
            wire.pop("status", None)
        if sent.query.get("dryRun"):
            return Answer(201, _encode(wire))
        return Answer(201, _encode(self.store(about.plural, wire, by)))

    def _list(self, about: Asked, query: Any) -> Answer:
        selector = query.get("fieldSelector", "")
        of_node = selector.startswith("spec.nodeName=")
        wanted, _, unfinished = selector.removeprefix("spec.nodeName=").partition(",")
        every = self.pods_on(wanted) if of_node and wanted else self.all(about.plural)
        items = [one for one in every if not about.namespace or one["metadata"].get("namespace") == about.namespace]
        if of_node:
            items = [one for one in items if one["spec"].get("nodeName", "") == wanted]
            if unfinished:
                items = [one for one in items if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        elif selector.startswith("spec.schedulerName="):
            wanted = selector.removeprefix("spec.schedulerName=")
            items = [one for one in items if one["spec"].get("schedulerName") == wanted]
        elif selector:
            items = [one for one in items if one["metadata"]["name"] == selector.removeprefix("metadata.name=")]
        for part in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = part.partition("=")
            items = [one for one in items if one["metadata"].get("labels", {}).get(key) == value]
        return Answer(data=_encode({"metadata": {"resourceVersion": str(self.version)}, "items": items}))

    def _delete(self, plural: str, known: Wire, sent: Wire, by: object) -> Answer:
        meta = known["metadata"]
        if _differs(meta, sent.get("preconditions", {})):
            return refusal(409, "Conflict", "another one")
        self.remove(plural, meta["name"], meta.get("namespace", ""), by)
        return Answer(data=_DONE)

    def _patch(self, about: Asked, known: Wire, sent: Sent, by: object) -> Answer:
        if "apply-patch" in sent.content_type and sent.query.get("force") == "false":
            if _differs(known["metadata"], sent.body.get("metadata", {})):
                return refusal(409, "Conflict", "another one")
            applied = self._applied(about, known, sent)
            if applied is None:
                return refusal(409, "Conflict", "another manager owns an annotation")
            changed = applied
        elif "json-patch" in sent.content_type:
            try:
                changed = json_patch.apply(known, sent.body)
            except json_patch.PatchError as error:
                return refusal(422, "Invalid", str(error))
        else:
            if _differs(known["metadata"], sent.body.get("metadata", {})):
                return refusal(409, "Conflict", "it has changed")
            changed = merged(known, sent.body)
        if about.sub == "status":
            meta = known["metadata"] if about.plural in CUSTOM else changed["metadata"]
            changed = {**known, "metadata": meta, "status": changed.get("status", {})}
        elif "status" in known:
            changed["status"] = known["status"]
        changed["metadata"] = {**changed["metadata"], "resourceVersion": known["metadata"]["resourceVersion"]}
        return Answer(data=_encode(self.store(about.plural, changed, by)))

    def _applied(self, about: Asked, known: Wire, sent: Sent) -> Wire | None:
        """Server-side apply of annotations without force; None where one is somebody else's: what its manager did not apply last, or what has changed since."""
        whose = about.plural, _key(about.namespace, about.name), sent.query["fieldManager"]
        there = dict(known["metadata"].get("annotations", {}))
        wanted = sent.body["metadata"].get("annotations", {})
        own = {key: value for key, value in self._owned.get(whose, {}).items() if there.get(key) == value}
        if any(there.get(key, value) != value and key not in own for key, value in wanted.items()):
            return None
        self._owned[whose] = dict(wanted)
        kept = {key: value for key, value in there.items() if key not in own or key in wanted}
        return {**known, "metadata": {**known["metadata"], "annotations": {**kept, **wanted}}}

    def _evict(self, pod: Wire | None, sent: Wire, by: object) -> Answer:
        """policy/v1, as far as one budget covers a pod."""
        if pod is None:
            return refusal(404, "NotFound", "no such pod")
        meta = pod["metadata"]
        if _differs(meta, sent.get("deleteOptions", {}).get("preconditions", {})):
            return refusal(409, "Conflict", "another pod")
        if "deletionTimestamp" in meta:
            return Answer(201, _DONE)
        for budget in self.all("poddisruptionbudgets"):
            if not covers(budget, pod):
                continue
            status = budget["status"]
            if status["disruptionsAllowed"] < 1:
                return refusal(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
                )
            taken = {
                "disruptionsAllowed": status["disruptionsAllowed"] - 1,
                "disruptedPods": {meta["name"]: self.stamp()},
            }
            self.change(
                "poddisruptionbudgets", budget["metadata"]["name"], {"status": taken}, budget["metadata"]["namespace"]
            )
        self.evicted(by, pod)
        self.remove("pods", meta["name"], meta["namespace"], by)
        return Answer(201, _DONE)


def covers(budget: Wire, pod: Wire) -> bool:
    """Whether a PodDisruptionBudget counts a pod. Cost: O(its selector)."""
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    selector = msgspec.convert((budget.get("spec") or {}).get("selector"), LabelSelector | None)
    return selects(selector, pod["metadata"].get("labels") or {})


def merged(known: Any, patch: Any) -> Any:
    """RFC 7396; what is known stays as it is."""
    if not isinstance(patch, dict):
        return patch
    result = dict(known) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _differs(meta: Wire, guards: Wire) -> bool:
    return any(meta[key] != guards[key] for key in _GUARDS if key in guards)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
