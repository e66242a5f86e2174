"""The scheduler extender's wire format, and what it becomes inside.

kube-scheduler's types have no JSON tags: names on the wire are Go's, capitalised, and nil is null. Replies here
carry every field in that exact case. Traps that the code below avoids (spec/extender-webhook.md §1.1): a filter
reply with neither Nodes nor NodeNames rejects every node; a name that was not asked about fails the whole pod; a
preempt reply may name no unknown victim and no node without victims.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse, islice
from typing import Final

import msgspec

from provisioner.apis.meta import version_number
from provisioner.values import jsontext

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""As for the API server's requests. 5,000 names of 45 bytes take 225 KB, of the longest, 253, 1.3 MB, and the largest pod that etcd takes has 1.5 MB. 500
victims take 25 KB, and 110 on each of the 500 nodes that kube-scheduler offers of 5,000 take 2.6 MB. Whole nodes (nodeCacheCapable: false) have 19 KB each."""

MAX_SCORE: Final = 10
REASONS: Final = 100
WINDOW_BYTES: Final = 48 * 1024
"""A thousand node names of 45 bytes."""
_NULL: Final = b"null"
_BETWEEN: Final = b'","'


class ExtenderProtocolError(ValueError):
    """The body is no message of the extender protocol; says what is wrong with it.

    Attributes:
        reply: what lets everything pass, where enough could be read for that; else empty.
    """

    def __init__(self, problem: str, reply: bytes = b"") -> None:
        super().__init__(problem)
        self.reply = reply


class _Args(msgspec.Struct, frozen=True, gc=False):
    pod: msgspec.Raw = msgspec.field(name="Pod")
    nodes: msgspec.Raw = msgspec.field(name="Nodes", default=msgspec.Raw(_NULL))
    node_names: msgspec.Raw = msgspec.field(name="NodeNames", default=msgspec.Raw(_NULL))


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""
    name: str = ""


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


class _NodeList(msgspec.Struct, frozen=True, gc=False):
    items: list[msgspec.Raw] | None = None


class _VersionedMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resource_version: str = ""


class _VersionedPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _VersionedMetadata = _VersionedMetadata()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    nominated_node_name: str = ""


class _Pod(_Object, frozen=True, gc=False):
    status: _PodStatus = _PodStatus()


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A pod that preemption would evict."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True, gc=False):
    """The pods that preemption would evict from one node."""

    pods: tuple[Victim, ...] | None = msgspec.field(name="Pods", default=None)
    pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _Victims(msgspec.Struct, frozen=True, gc=False):
    pods: tuple[_Object, ...] | None = msgspec.field(name="Pods", default=None)
    pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def meta(self) -> MetaVictims:
        return MetaVictims(tuple(Victim(pod.metadata.uid) for pod in self.pods or ()), self.pdb_violations)


class _PreemptionArgs(msgspec.Struct, frozen=True, gc=False):
    pod: msgspec.Raw = msgspec.field(name="Pod")
    victims: dict[str, _Victims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)


class PreemptionResult(msgspec.Struct, frozen=True, gc=False):
    """Nodes that preemption may still use; none at all is a veto."""

    meta_victims: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


class FilterResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """ExtenderFilterResult; for reading replies back, `None` is Go's nil."""

    nodes: msgspec.Raw | None = msgspec.field(name="Nodes", default=None)
    node_names: tuple[str, ...] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] | None = msgspec.field(name="FailedNodes", default_factory=dict)
    unresolvable: dict[str, str] | None = msgspec.field(name="FailedAndUnresolvableNodes", default_factory=dict)
    error: str = msgspec.field(name="Error", default="")


class HostPriority(msgspec.Struct, frozen=True, gc=False):
    """The score of one node, 0 to 10."""

    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


_ARGS = msgspec.json.Decoder(_Args)
_PREEMPTION_ARGS = msgspec.json.Decoder(_PreemptionArgs)
_POD = msgspec.json.Decoder(_Pod)
_VERSIONED_POD = msgspec.json.Decoder(_VersionedPod)
_NAMES = msgspec.json.Decoder(list[str])
_NODE_LIST = msgspec.json.Decoder(_NodeList)
_ITEM = msgspec.json.Decoder(_Object)
_ENCODER = msgspec.json.Encoder()


class AskedPod:
    """The pod of a message: its identity at once, the whole of it as bytes for whoever does not know it yet."""

    __slots__ = ("nominated", "raw", "uid")

    def __init__(self, raw: bytes) -> None:
        try:
            pod = _POD.decode(raw)
        except (RecursionError, ValueError) as error:  # msgspec's own are ValueErrors
            raise ExtenderProtocolError(f"Pod: {error}") from error
        if not pod.metadata.uid:
            raise ExtenderProtocolError("Pod: metadata.uid is empty")
        self.raw = raw
        self.uid = pod.metadata.uid
        self.nominated = pod.status.nominated_node_name

    def version(self) -> int:
        """The version of the pod that kube-scheduler knows, 0 where it is no number; only members of groups are asked for it."""
        return version_number(_VERSIONED_POD.decode(self.raw).metadata.resource_version)


class NodeNames:
    """The node names of a message, decoded only when somebody wants them all.

    A node's name has no character that JSON escapes, so one name is looked for in the bytes: 225 KB take some 10 us,
    decoding them 200, and a set of them 400 more.
    """

    __slots__ = ("_names", "_set", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._names: list[str] | None = None
        self._set: frozenset[str] | None = None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(name) and f'"{name}"'.encode() in self.raw

    def all(self) -> list[str]:
        """Every name, in the order of the message.

        Raises:
            ExtenderProtocolError: they are no list of strings.
        """
        if self._names is None:
            try:
                self._names = _NAMES.decode(self.raw)
            except (RecursionError, ValueError) as error:
                raise ExtenderProtocolError(f"NodeNames: {error}") from error
        return self._names

    def as_set(self) -> frozenset[str]:
        """Every name; made once.

        Raises:
            ExtenderProtocolError: they are no list of strings.
        """
        if self._set is None:
            self._set = frozenset(self.all())
        return self._set

    def window(self, start: int) -> "NodeNames | None":
        """Some of the names, in a row that goes on at the beginning: `WINDOW_BYTES` of text and little more. None where that would be half of all.

        Args:
            start: where in the text it begins; goes round.

        Cost: O(bytes) for what JSON might escape, 10 us for 225 KB.
        """
        raw = self.raw
        if len(raw) < 2 * WINDOW_BYTES or b"\\" in raw:  # an escaped quote could be taken for one that ends a name
            return None
        begin = raw.find(_BETWEEN, start % len(raw)) + 2  # a quote, or 1: behind the bracket
        parts = [raw[begin : self._end(begin + WINDOW_BYTES)]]
        missing = WINDOW_BYTES - len(parts[0])
        if missing > 0:
            parts.append(raw[1 : self._end(missing)])
        window = NodeNames(b"[%b]" % b",".join(parts))
        try:
            window.all()
        except ExtenderProtocolError:
            return None
        return window

    def _end(self, near: int) -> int:
        """Where the first name ends that ends behind this place, at the latest the last."""
        end = self.raw.find(_BETWEEN, near)
        return end + 1 if end >= 0 else len(self.raw) - 1


class ExtenderQuestion:
    """ExtenderArgs: which of these nodes suit this pod? Also builds the replies, which repeat parts of it.

    Fields of the pod or of nodes that are nested too deeply to be read are left out.

    Raises:
        ExtenderProtocolError: it cannot be read; with a reply where only the pod cannot.
    """

    __slots__ = ("_items", "_nodes", "names", "pod")

    def __init__(self, body: bytes) -> None:
        try:
            args, _ = jsontext.decode_trimmed(_ARGS.decode, body)
        except (RecursionError, ValueError) as error:
            raise ExtenderProtocolError(f"not ExtenderArgs: {error}") from error
        self._nodes = bytes(args.nodes)
        self._items: dict[str, msgspec.Raw] | None = None
        raw_names = bytes(args.node_names)
        if raw_names == _NULL and self._nodes != _NULL:  # nodeCacheCapable: false
            self._items = _items(self._nodes)
            raw_names = _ENCODER.encode(list(self._items))
        elif not raw_names.startswith(b"["):
            raise ExtenderProtocolError("neither Nodes nor NodeNames is a list")
        self.names = NodeNames(raw_names)
        try:
            self.pod = AskedPod(bytes(args.pod))
        except ExtenderProtocolError as error:
            self.names.all()  # the echo shall be a list of names
            raise ExtenderProtocolError(str(error), self.echo()) from error

    def echo(self) -> bytes:
        """The reply that lets every node pass, from the bytes of the question."""
        if self._items is not None:
            return _filter_bytes(self._nodes, _NULL)
        return _filter_bytes(_NULL, self.names.raw)

    def only(self, name: str) -> bytes:
        """The reply that lets one of the nodes asked about pass.

        Raises:
            ValueError: it was not asked about; such a reply would fail the pod.
        """
        if name not in self.names:
            raise ValueError(f"{name!r} is not one of the nodes in the request")
        return self._reply([name])

    def those(self, names: list[str]) -> bytes:
        """The reply that lets these of the nodes asked about pass, at least one, and says nothing of the others."""
        return self._reply(names)

    def none(self, refused: Mapping[str, str]) -> bytes:
        """The reply that lets no node pass, which each failed cycle of a group asks for; the reasons are given for `REASONS` nodes at most."""
        return self._reply([], dict(islice(refused.items(), REASONS)))

    def without(self, refused: Mapping[str, str]) -> bytes:
        """The reply that lets all nodes but `refused` pass; when none is left it gives the reasons, by node."""
        left = list(filterfalse(refused.__contains__, self.names.all()))
        return self._reply(left, {} if left else refused)

    def _reply(self, names: list[str], unresolvable: Mapping[str, str] | None = None) -> bytes:
        reasons = _ENCODER.encode(unresolvable or {})
        if self._items is not None:
            kept = [self._items[name] for name in names]
            return _filter_bytes(_ENCODER.encode({"metadata": {}, "items": kept}), _NULL, reasons)
        return _filter_bytes(_NULL, _ENCODER.encode(names), reasons)


class PreemptionQuestion:
    """ExtenderPreemptionArgs: may these pods be evicted for this one?

    Raises:
        ExtenderProtocolError: it cannot be read; with a reply where only the pod cannot.
    """

    __slots__ = ("candidates", "pod")

    def __init__(self, body: bytes) -> None:
        try:
            args, _ = jsontext.decode_trimmed(_PREEMPTION_ARGS.decode, body)
        except (RecursionError, ValueError) as error:
            raise ExtenderProtocolError(f"not ExtenderPreemptionArgs: {error}") from error
        self.candidates: dict[str, MetaVictims] = args.meta_victims or {
            node: victims.meta() for node, victims in (args.victims or {}).items()
        }
        try:
            self.pod = AskedPod(bytes(args.pod))
        except ExtenderProtocolError as error:
            usable = any(meta.pods for meta in self.candidates.values())
            raise ExtenderProtocolError(str(error), self.kept(self.candidates) if usable else b"") from error

    def kept(self, nodes: Iterable[str]) -> bytes:
        """The reply that keeps these candidates; nodes without victims are left out, they are an error."""
        return encode_preemption(
            {node: self.candidates[node] for node in nodes if node in self.candidates and self.candidates[node].pods}
        )


def encode_preemption(victims: dict[str, MetaVictims]) -> bytes:
    """ExtenderPreemptionResult; an empty one vetoes."""
    return _ENCODER.encode(PreemptionResult(victims))


def encode_failure(problem: str) -> bytes:
    """The reply to a question that cannot be read: kube-scheduler skips an ignorable extender that answers so."""
    return _ENCODER.encode(FilterResult(error=problem))


def encode_score(node: str, score: int) -> bytes:
    """One entry of a HostPriorityList."""
    return _ENCODER.encode(HostPriority(node, score))


def encode_scores(entries: Sequence[bytes]) -> bytes:
    """HostPriorityList, a bare array of what `encode_score` made; hosts that are missing score 0."""
    if len(entries) < 2:
        return b"[%b]" % b"".join(entries)
    first, *others, last = entries
    return b",".join((b"[" + first, *others, last + b"]"))  # the whole is copied once: it may have 300 KB


def _filter_bytes(nodes: bytes, names: bytes, unresolvable: bytes = b"{}") -> bytes:
    return b"".join(
        (
            b'{"Nodes":',
            nodes,
            b',"NodeNames":',
            names,
            b',"FailedNodes":{},"FailedAndUnresolvableNodes":',
            unresolvable,
            b',"Error":""}',
        )
    )


def _items(raw: bytes) -> dict[str, msgspec.Raw]:
    try:
        return {_ITEM.decode(item).metadata.name: item for item in _NODE_LIST.decode(raw).items or ()}
    except (RecursionError, ValueError) as error:
        raise ExtenderProtocolError(f"Nodes: {error}") from error
