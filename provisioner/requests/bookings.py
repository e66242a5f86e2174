"""Which pods a run of provisioning is asked about for ProvisioningRequests, and what its answer says of them. Pure.

A request is asked about in one of three ways. Room that it has already is given to it before anybody else gets any, on nodes that run or come:
`RequestTurn.KEPT`. A request for nodes is one group in the question that all pods are in, so it gets nothing or all: `LAUNCH`. A request for room on
nodes that are there comes when everybody else has been placed: `CHECK`.

A pod that names a request takes the place of one of its virtual pods. It is placed with what is kept, never with what is launched, so nothing is bought
for it a second time.
"""

import enum
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.apis import names
from provisioner.apis.core import PodTemplateSpec
from provisioner.apis.gangs import REQUEST_PREFIX, group_of
from provisioner.apis.meta import key_of
from provisioner.apis.pods import Pod
from provisioner.apis.provisioning_request import CHECK_CAPACITY, ProvisioningRequest
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admission
from provisioner.buffers.virtual_pods import copies, named, unit_of
from provisioner.requests.decisions import RequestPhase, RoomFound, counts_of, mode_of, phase_of
from provisioner.scheduling.becoming import with_pods
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.result import Result, Unplaced
from provisioner.values.message import Said
from provisioner.values.resources import EMPTY, Resources

MOST_A_RUN: Final = 20
"""Requests without room that one run looks at. Source: Cluster Autoscaler `processors/provreq/processor.go`, defaultMaxUpdated."""
MOST_PODS_A_RUN: Final = 10_000
"""Pods of these requests together; the first may have more."""
MOST_KEPT: Final = 20_000
"""Pods for which room is kept, of all requests; and of those of one namespace, half as many."""
_MOST_WHY: Final = 400


class RequestTurn(enum.Enum):
    """How a request is asked about; see the module."""

    KEPT = enum.auto()
    LAUNCH = enum.auto()
    CHECK = enum.auto()


@dataclass(frozen=True, slots=True)
class RequestedUnits:
    """What the pods of a request are like: for each pod set so many of each kind, without names."""

    sets: tuple[tuple[tuple[int, Pod], ...], ...]


def units_of(
    request: ProvisioningRequest, templates: Sequence[PodTemplateSpec], admission: Admission, facts: StampFacts
) -> RequestedUnits:
    """What the pods of a request are like.

    Args:
        request: within its bounds.
        templates: of its pod sets, in their order.
        admission: what the cluster makes of them.
        facts: what the webhook goes by.

    Raises:
        ResolutionError: a template cannot be read, or the API server would refuse its pods.
    """
    sets = []
    for one, template in zip(request.spec.pod_sets, templates, strict=True):
        unit_of(template, facts.namespace, admission)
        sets.append(tuple(copies(template, admission, facts, one.count)))
    return RequestedUnits(tuple(sets))


@dataclass(frozen=True, slots=True)
class RequestStanding:
    """A request that still wants room, or has it.

    Attributes:
        units: what its pods are like.
        consumers: pods that name it and have not finished, any order.
        settled: a former run has found room for it, of which its status does not tell yet.
        due: whether it may be asked about now, where it has no room.
        tried: when it was asked about last, in seconds of one clock; minus infinity for never.
    """

    request: ProvisioningRequest
    units: RequestedUnits
    consumers: tuple[Pod, ...] = ()
    settled: bool = False
    due: bool = True
    tried: float = float("-inf")

    @property
    def key(self) -> str:
        """As of stores."""
        return key_of(self.request.metadata)

    @property
    def keeps(self) -> bool:
        """Whether room is kept for it."""
        return self.settled or phase_of(self.request) is RequestPhase.BOOKED


@dataclass(frozen=True, slots=True)
class RequestAsked:
    """One request, as a run is asked about it.

    Attributes:
        launches: nodes may be made for it.
        counts: pods of each pod set for which room is wanted.
        taken: how many of them are real pods that run, or have a place on a node.
        consumers: the real pods that wait for a place, with the pod set that each is of.
        virtual: the others, by pod set.
        is_open: its status does not tell of room yet.
        each: each pod set is all or nothing by itself.
    """

    key: str
    turn: RequestTurn
    launches: bool
    counts: tuple[int, ...]
    taken: tuple[int, ...]
    consumers: tuple[tuple[int, Pod], ...]
    virtual: tuple[tuple[Pod, ...], ...]
    is_open: bool = True
    each: bool = False

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All that a place is asked for."""
        return (*(pod for _, pod in self.consumers), *itertools.chain.from_iterable(self.virtual))

    @property
    def minima(self) -> Mapping[str, int]:
        """By key of the groups of its virtual pods, how many must have places."""
        return Counter(group_of(pod) for pod in itertools.chain.from_iterable(self.virtual))


@dataclass(frozen=True, slots=True)
class RequestsAsked:
    """All requests that a run is asked about.

    Attributes:
        asked: they.
        held: UIDs of real pods for which nothing is launched: they name a request that is not over.
        limited: by key, why a request is not asked about though it is due.
    """

    asked: tuple[RequestAsked, ...] = ()
    held: frozenset[str] = frozenset()
    limited: Mapping[str, str] = field(default_factory=dict)


NOTHING_ASKED: Final = RequestsAsked()


def ask(
    standings: Iterable[RequestStanding], waiting: Collection[str], assigned: Callable[[], Collection[str]]
) -> RequestsAsked:
    """What a run is asked about.

    Args:
        standings: the requests that are not over.
        waiting: UIDs of the pods that wait for a node.
        assigned: finds the UIDs of pods that have a place and are not bound.

    Cost: O(requests + pods that they name + pods of those that are asked about).
    """
    listed = sorted(standings, key=lambda one: (one.request.metadata.creation_timestamp is None, _age(one), one.key))
    if not listed:
        return NOTHING_ASKED
    planned = assigned()
    counted = {one.key: _counted(one) for one in listed}
    held = {pod.uid for one in counted.values() for pod in one if not pod.node_name and pod.uid not in planned}
    asked: list[RequestAsked] = []
    kept: Counter[str] = Counter()
    for one in listed:
        if one.keeps:
            asked.append(_asked(one, RequestTurn.KEPT, counted[one.key], waiting, planned))
            kept[one.request.metadata.namespace] += sum(counts_of(one.request))
    chosen, limited = _chosen([one for one in listed if one.due and not one.keeps], kept)
    for one in chosen:
        checks = one.request.spec.provisioning_class_name == CHECK_CAPACITY
        turn = RequestTurn.CHECK if checks else RequestTurn.LAUNCH
        asked.append(_asked(one, turn, counted[one.key], (), planned))
    return RequestsAsked(tuple(asked), frozenset(held), limited)


def _age(one: RequestStanding) -> float:
    created = one.request.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def _counted(one: RequestStanding) -> list[Pod]:
    """The pods that take places of a request: the oldest, as many as it is for."""
    ordered = sorted(one.consumers, key=lambda pod: (pod.created, pod.uid))
    return ordered[: sum(counts_of(one.request))]


def _chosen(due: Iterable[RequestStanding], kept: Counter[str]) -> tuple[list[RequestStanding], dict[str, str]]:
    """Those that are asked about now: of each namespace in turn, those first that wait longest for their turn."""
    ranks: Counter[str] = Counter()
    ordered: list[tuple[int, float, int, RequestStanding]] = []
    for one in sorted(due, key=lambda found: found.tried):
        namespace = one.request.metadata.namespace
        ordered.append((ranks[namespace], one.tried, len(ordered), one))
        ranks[namespace] += 1
    chosen: list[RequestStanding] = []
    limited: dict[str, str] = {}
    pods, own = 0, Counter(kept)
    for *_, one in sorted(ordered, key=lambda found: found[:3]):
        count, namespace = one.request.pods, one.request.metadata.namespace
        if own[namespace] + count > MOST_KEPT // 2 or own.total() + count > MOST_KEPT:
            limited[one.key] = Said(
                f"Room is reserved for {own[namespace]} pods of namespace {namespace} and for {own.total()} pods of all namespaces; the maximum is "
                f"{MOST_KEPT // 2} and {MOST_KEPT}. The request waits until other reservations end"
            )
        elif len(chosen) < MOST_A_RUN and (not chosen or pods + count <= MOST_PODS_A_RUN):
            chosen.append(one)
            pods += count
            own[namespace] += count
    return chosen, limited


def _asked(
    one: RequestStanding,
    turn: RequestTurn,
    consumers: Iterable[Pod],
    waiting: Collection[str],
    planned: Collection[str],
) -> RequestAsked:
    counts = counts_of(one.request)
    left = _Left(one.units, counts)
    there, to_come = [], []
    for pod in consumers:
        if pod.node_name or pod.uid in planned:
            there.append(pod)
        elif pod.uid in waiting:
            to_come.append(pod)
    taken = Counter(left.take(pod) for pod in there)
    placed = tuple((left.take(pod), pod) for pod in to_come)
    each = bool(mode_of(one.request)) and turn is RequestTurn.CHECK
    return RequestAsked(
        one.key,
        turn,
        one.request.spec.provisioning_class_name != CHECK_CAPACITY,
        counts,
        tuple(taken[number] for number in range(len(counts))),
        placed,
        tuple(_virtual(one, number, each=each, left=some) for number, some in enumerate(left.sets)),
        phase_of(one.request) is RequestPhase.OPEN,
        each,
    )


@dataclass(slots=True)
class _Kind:
    """Places that are still free for pods of one kind."""

    free: int
    unit: Pod


class _Left:
    """The places of a request that no real pod has taken."""

    def __init__(self, units: RequestedUnits, counts: Sequence[int]) -> None:
        self.sets = [
            [_Kind(some, unit) for some, unit in kinds] if count else []
            for kinds, count in zip(units.sets, counts, strict=True)
        ]

    def take(self, pod: Pod) -> int:
        """Take the place that is most like a pod; the number of its set. As many pods as there are places may."""
        places = [(number, kind) for number, kinds in enumerate(self.sets) for kind in kinds if kind.free]
        alike = [at for at in places if at[1].unit.shape.key == pod.shape.key]
        sized = [at for at in places if at[1].unit.shape.requests == pod.shape.requests]
        number, kind = (alike or sized or places)[0]
        kind.free -= 1
        return number


def is_any_for(request: ProvisioningRequest, groups: Iterable[str]) -> bool:
    """Whether one of these groups is of virtual pods of a request."""
    own = f"{request.metadata.namespace}/gang/{REQUEST_PREFIX}{request.metadata.uid}"
    return any(group.startswith((f"{own}/", f"{own}.")) for group in groups)


def _virtual(one: RequestStanding, number: int, *, each: bool, left: Iterable[_Kind]) -> tuple[Pod, ...]:
    """The virtual pods of a pod set; all of a request are one group, unless each set is for itself."""
    meta = one.request.metadata
    gang = f"{REQUEST_PREFIX}{meta.uid}"
    marks = {
        names.BUFFER_FAKE_POD: "true",
        names.GANG: f"{gang}.{number}" if each else gang,
        names.GANG_MINIMUM: str(one.request.pods),
    }
    found: list[Pod] = []
    for kind in left:
        begin = len(found)
        for place in range(begin, begin + kind.free):
            name = f"provisioning-request-{meta.name}-{number}-{place}"
            found.append(named(kind.unit, name, f"{meta.uid}-{number}-{place}", marks))
    return tuple(found)


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """Where what is kept has its places in one run, before anybody else gets any.

    Attributes:
        prepared: the world, with them.
        existing: all of them, by node.
        real: those of them that exist, by node.
        groups: by key, how many pods of each group that nodes are made for must have places.
        launch: requests that a group is launched for: new ones, and those that have lost a node before it was there.
        check: requests that are asked about at the end.
        asked: everything that this is about.
        late: there was no time for all that is kept.
    """

    prepared: Prepared
    existing: Mapping[str, tuple[Pod, ...]]
    real: Mapping[str, tuple[Pod, ...]]
    groups: Mapping[str, int]
    launch: tuple[RequestAsked, ...]
    check: tuple[RequestAsked, ...]
    asked: RequestsAsked
    late: bool = False

    @property
    def pods(self) -> tuple[Pod, ...]:
        """What is asked about together with all pods that wait."""
        return tuple(pod for one in self.launch for pod in itertools.chain.from_iterable(one.virtual))

    def into(self, prepared: Prepared) -> Prepared:
        """Another world of the same instant, with these places and groups."""
        return _with_groups(filled_with(prepared, self.existing), self.groups)


def keep(
    asked: RequestsAsked,
    prepared: Prepared,
    avoided: Mapping[str, frozenset[str]],
    expired: Callable[[], bool],
) -> KeptPlaces:
    """Give what is kept its places on nodes that run or come. One question, of the pods that are kept.

    Open requests that have lost theirs are asked about like new ones.

    Args:
        asked: what the run is asked about.
        prepared: its world.
        avoided: by UID of a pod, names of nodes that it keeps off.
        expired: whether time is up.
    """
    kept = [one for one in asked.asked if one.turn is RequestTurn.KEPT]
    new = [one for one in asked.asked if one.turn is not RequestTurn.KEPT]
    existing: Mapping[str, tuple[Pod, ...]] = {}
    late = False
    if pods := [pod for one in kept for pod in one.pods]:
        bare = prepared.updated(Changes(pools=()))
        result = bare.solve(pods, avoided=avoided, expired=expired, explain=False)
        existing, late = result.existing, result.is_late
    placed = {pod.uid for some in existing.values() for pod in some}
    lost = [one for one in kept if any(pod.uid not in placed for pod in one.pods)]
    again = [one for one in lost if one.is_open and not late]
    given_up = {pod.uid for one in again for pod in itertools.chain.from_iterable(one.virtual)}
    if given_up:
        existing = _only(existing, lambda pod: pod.uid not in given_up)
    real_uids = {pod.uid for one in kept for _, pod in one.consumers}
    launch = tuple(one for one in (*again, *new) if one.launches)
    groups = _groups(launch)
    return KeptPlaces(
        _with_groups(filled_with(prepared, existing), groups),
        existing,
        _only(existing, lambda pod: pod.uid in real_uids),
        groups,
        launch,
        tuple(one for one in (*again, *new) if not one.launches),
        asked,
        late,
    )


def _groups(some: Iterable[RequestAsked]) -> Mapping[str, int]:
    return {key: least for one in some for key, least in one.minima.items()}


def _with_groups(prepared: Prepared, groups: Mapping[str, int]) -> Prepared:
    return prepared.updated(Changes(groups={**prepared.world.groups, **groups})) if groups else prepared


def _only(existing: Mapping[str, tuple[Pod, ...]], which: Callable[[Pod], bool]) -> dict[str, tuple[Pod, ...]]:
    some = ((name, tuple(pod for pod in pods if which(pod))) for name, pods in existing.items())
    return {name: pods for name, pods in some if pods}


def filled_with(prepared: Prepared, existing: Mapping[str, tuple[Pod, ...]]) -> Prepared:
    """A world in which these pods have their places. O(nodes) where there are any."""
    if not existing:
        return prepared
    bins = {one.name: one for one in prepared.world.bins if one.name in existing}
    return prepared.updated(Changes(bins={name: with_pods(bins[name], existing[name]) for name in bins}))


@dataclass(frozen=True, slots=True)
class RoomsFound:
    """What a run has found.

    Attributes:
        found: by key of each request that was asked about.
        virtual: the virtual pods that have a place, where disruption is to leave them room.
        reserved: by node, what the virtual pods of each request that have their places there take, by its key and their priority.
        settled: keys of requests without a word of room in their status, all of whose pods have places.
    """

    found: Mapping[str, RoomFound] = field(default_factory=dict)
    virtual: tuple[Pod, ...] = ()
    reserved: Mapping[str, Mapping[tuple[str, int], Resources]] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()


def checked(places: KeptPlaces, result: Result, expired: Callable[[], bool]) -> Result:
    """Where what asks for room on nodes that are there would have it, when everybody else has been placed."""
    pods = [pod for one in places.check for pod in itertools.chain.from_iterable(one.virtual)]
    if not pods:
        return Result((), {}, ())
    world = _with_groups(filled_with(places.prepared, result.existing), _groups(places.check))
    return world.updated(Changes(pools=())).solve(pods, expired=expired)


def rooms_found(
    places: KeptPlaces,
    launched: Result,
    checks: Result,
    has_instance: Callable[[str], bool],
    is_ready: Callable[[str], bool],
    said: Callable[[Unplaced], str],
) -> RoomsFound:
    """What a run says of every request that it was asked about.

    Args:
        places: of what is kept.
        launched: the answer about all pods that wait.
        checks: the answer of `checked`.
        has_instance: whether a node, by its key, has been launched.
        is_ready: whether it is initialized.
        said: why a pod has no place, for people.

    Cost: O(pods of the requests and of the answers).
    """
    where: dict[str, str] = {}
    for existing in (places.existing, launched.existing, checks.existing):
        where.update((pod.uid, name) for name, pods in existing.items() for pod in pods)
    new = {pod.uid: number for number, claim in enumerate(launched.claims) for pod in claim.pods}
    left = {one.pod.uid: one for one in (*launched.unplaced, *checks.unplaced)}
    found: dict[str, RoomFound] = {key: RoomFound(limited=text) for key, text in places.asked.limited.items()}
    virtual: list[Pod] = []
    reserved: defaultdict[str, dict[tuple[str, int], Resources]] = defaultdict(dict)
    settled: set[str] = set()
    for one in places.asked.asked:
        room = _room_of(one, where, new, left, has_instance, is_ready, said)
        if places.late and one.turn is RequestTurn.KEPT and not all(room.full(one.counts)):
            room = replace(room, late=True)
        found[one.key] = room
        full = all(room.full(one.counts))
        if one.turn is RequestTurn.KEPT or full:
            mine = [pod for some in one.virtual for pod in some if pod.uid in where]
            virtual += mine
            for pod in mine:
                there, whose = reserved[where[pod.uid]], (one.key, pod.shape.priority)
                there[whose] = there.get(whose, EMPTY) + pod.shape.requests
        if full:
            settled.add(one.key)
    return RoomsFound(found, tuple(virtual), reserved, frozenset(settled))


def _room_of(
    one: RequestAsked,
    where: Mapping[str, str],
    new: Mapping[str, int],
    left: Mapping[str, Unplaced],
    has_instance: Callable[[str], bool],
    is_ready: Callable[[str], bool],
    said: Callable[[Unplaced], str],
) -> RoomFound:
    placed: defaultdict[int, int] = defaultdict(int, enumerate(one.taken))
    nodes: set[str] = set()
    claims: set[int] = set()
    short: Unplaced | None = None
    late = False
    numbered = (*one.consumers, *((number, pod) for number, some in enumerate(one.virtual) for pod in some))
    for number, pod in numbered:
        if (node := where.get(pod.uid)) is not None:
            nodes.add(node)
        elif (claim := new.get(pod.uid)) is not None:
            claims.add(claim)
        else:
            failed = left.get(pod.uid)
            late = late or (failed is not None and not failed.is_tried)
            short = short or failed
            continue
        placed[number] += 1
    return RoomFound(
        places=tuple(placed[number] for number in range(len(one.counts))),
        nodes=frozenset((*nodes, *(f"new/{number}" for number in claims))),
        coming=len(claims) + sum(not has_instance(node) for node in nodes),
        unready=len(claims) + sum(not is_ready(node) for node in nodes),
        late=late,
        why=said(short)[:_MOST_WHY] if short is not None and not late else "",
    )
