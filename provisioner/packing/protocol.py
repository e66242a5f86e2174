"""What the provisioner and its planning process say to each other, as values and as bytes; loads no numpy.

The planning process keeps the world that it was told, and each question says what has become of it since. It is told no more than
planning looks at: nodes without their pods (but those that keep others away by anti-affinity), volumes of the pods in question only. So its
answer is a proposal; whoever asked judges it in the whole world. Questions are pickled and go one way, from the program that started
the process; answers are msgpack of plain numbers and texts, and nothing in them is trusted.
"""

import copyreg
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.constraints.volumes import claim_keys
from provisioner.scheduling.judging import DesignedNode
from provisioner.scheduling.prepared import Prepared, changes_between, prepare
from provisioner.scheduling.problem import Bin, Changes, Packing, SchedulingPool, Storage, World
from provisioner.scheduling.result import PlannedClaim, Result, Unplaced

FRAME_BYTES: Final = 4
"""Before every message: its length, little-endian."""
ROUNDS: Final = 100
"""Of ruin and recreate at most, for whoever has the time."""
SEED: Final = 0


class PackingProtocolError(Exception):
    """An answer that makes no sense."""


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """A question.

    Attributes:
        number: counts up from 1.
        deadline: `Clock.monotonic` of this machine at which the search ends, and the best fleet so far is the answer.
        rounds: most rounds of ruin and recreate.
        seed: of what is left to chance.
        fresh: a world without nodes and NodePools, where this is the first question or the world is quite another.
        tables: lists of instance types that are new, by number.
        stocked: by NodePool, the number of its list; empty where NodePools are as they were.
        changes: since the last question, instance types left out.
        pods: that scheduling placed, then those that it left; one of each class where prices are asked for.
        greedy: scheduling's answer for these pods; nothing where prices are asked for.
        counts: how many pods there are of each class, where no fleet is asked for, only what it costs and must cost; empty otherwise.
    """

    number: int
    deadline: float
    rounds: int
    seed: int
    fresh: World | None
    tables: Mapping[int, tuple[InstanceType, ...]]
    stocked: Mapping[str, int]
    changes: Changes
    pods: tuple[Pod, ...]
    greedy: Result
    counts: tuple[int, ...] = ()


class ProposedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node of an answer; `pods` are numbers of the question's pods, `charge` is as of `DesignedNode`."""

    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    pods: tuple[int, ...]
    charge: tuple[tuple[str, int], ...] = ()


class PackingReply(msgspec.Struct, frozen=True):
    """An answer.

    Attributes:
        number: of the question; 0 says that the process is ready.
        usd_at_least: no plan for these pods costs less, in USD per hour.
        stage: that found the fleet.
        kept: numbers of scheduling's claims that stay.
        nodes: instead of the others; None where nothing cheaper was found.
        error: why there is no answer; the process ends after it.
        usd_greedy: what scheduling's own fleet costs, where prices were asked for.
        placed: then, for how many pods both prices are.
        cpu_seconds: then, what this process has taken since its start.
    """

    number: int
    usd_at_least: float = 0.0
    stage: str = ""
    kept: tuple[int, ...] = ()
    nodes: tuple[ProposedNode, ...] | None = None
    error: str = ""
    usd_greedy: float = 0.0
    placed: int = 0
    cpu_seconds: float = 0.0


_ANSWERED: Final = msgspec.msgpack.Decoder(PackingReply)


def answer_bytes(answered: PackingReply) -> bytes:
    """An answer on the wire."""
    return msgspec.msgpack.encode(answered)


def read_answer(data: bytes) -> PackingReply:
    """The answer in these bytes.

    Raises:
        PackingProtocolError: there is none.
    """
    try:
        return _ANSWERED.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PackingProtocolError(f"its answer cannot be read: {error}") from None


def _view(known: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(known)


copyreg.pickle(MappingProxyType, lambda view: (_view, (dict(view),)))  # snapshots give out views of their dicts


# --- who asks ---


class Sender:
    """Writes questions, and knows what one planning process was told. Not thread-safe."""

    def __init__(self) -> None:
        self._told: World | None = None
        self._lean: dict[str, tuple[Bin, Bin]] = {}
        self._tables: dict[int, tuple[tuple[InstanceType, ...], int]] = {}
        self._tables_made = 0
        self._number = 0

    def asked(
        self, world: World, result: Result, *, deadline: float, rounds: int, seed: int
    ) -> tuple[int, bytes, tuple[Pod, ...]]:
        """The next question about an answer of scheduling's: its number, its bytes and its pods.

        Cost: O(pods placed), and what has changed in the world; the whole of it the first time.
        """
        pods = result.placed
        left = tuple([Unplaced(one.pod, ()) for one in result.unplaced])
        claims = tuple([msgspec.structs.replace(one, template=None) for one in result.claims])
        asked = (*pods, *[one.pod for one in left])
        greedy = Result(claims, result.existing, left)
        number, said = self._question(world, pods, asked, greedy, (), deadline=deadline, rounds=rounds, seed=seed)
        return number, said, asked

    def priced(
        self, world: World, pods: tuple[Pod, ...], counts: tuple[int, ...], *, deadline: float
    ) -> tuple[int, bytes]:
        """The next question, about what new nodes cost for so many pods of each of some classes: its number and its bytes. Cost: O(classes)."""
        return self._question(world, pods, pods, Result((), {}, ()), counts, deadline=deadline, rounds=0, seed=SEED)

    def _question(
        self,
        world: World,
        placed: Sequence[Pod],
        asked: tuple[Pod, ...],
        greedy: Result,
        counts: tuple[int, ...],
        *,
        deadline: float,
        rounds: int,
        seed: int,
    ) -> tuple[int, bytes]:
        lean = self._lean_world(world, placed)
        changes = None if self._told is None else changes_between(self._told, lean)
        fresh = None
        if changes is None:
            fresh = replace(lean, bins=(), pools=())
            changes = Changes(bins={one.name: one for one in lean.bins}, pools=lean.pools)
        tables, stocked = self._stocked(changes.pools)
        if changes.pools is not None:
            bare = tuple([replace(one, instance_types=()) for one in changes.pools])
            changes = replace(changes, pools=bare)
        self._told = lean
        self._number += 1
        said = PackingRequest(
            self._number, deadline, rounds, seed, fresh, tables, stocked, changes, asked, greedy, counts
        )
        return self._number, pickle.dumps(said, protocol=pickle.HIGHEST_PROTOCOL)

    def _stocked(
        self, pools: Sequence[SchedulingPool] | None
    ) -> tuple[dict[int, tuple[InstanceType, ...]], dict[str, int]]:
        """The lists of instance types that are new, and which NodePool has which."""
        tables: dict[int, tuple[InstanceType, ...]] = {}
        stocked: dict[str, int] = {}
        if pools is None:
            return tables, stocked
        known, self._tables = self._tables, {}
        for pool in pools:
            types = pool.instance_types
            entry = known.get(id(types)) or self._tables.get(id(types))
            if entry is None:
                self._tables_made += 1
                entry = types, self._tables_made  # held, so that its identity stays its own
                tables[self._tables_made] = types
            self._tables[id(types)] = entry
            stocked[pool.name] = entry[1]
        return tables, stocked

    def _lean_world(self, world: World, pods: Sequence[Pod]) -> World:
        """The world without what planning does not look at; what stays equal stays the same object."""
        known, self._lean = self._lean, {}
        for one in world.bins:
            entry = known.get(one.name)
            self._lean[one.name] = entry if entry is not None and entry[0] is one else (one, _lean_bin(one))
        told = self._told
        storage, defaults = _storage_for(world.storage, pods), world.spread_defaults
        if told is not None:
            storage = told.storage if told.storage == storage else storage
            defaults = told.spread_defaults if told.spread_defaults == defaults else defaults
        return replace(
            world,
            pools=tuple([replace(one, template=None) for one in world.pools]),
            bins=tuple([lean for _, lean in self._lean.values()]),
            storage=storage,
            spread_defaults=defaults,
            groups={},
            topology={},
        )


def _lean_bin(one: Bin) -> Bin:
    pods = tuple([pod for pod in one.pods if _keeps_away(pod)])
    return replace(one, pods=pods, attach_limits={})


def _keeps_away(pod: Pod) -> bool:
    affinity = pod.shape.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None


def _storage_for(storage: Storage, pods: Sequence[Pod]) -> Storage:
    """The volumes of these pods, and what is known of every kind of node."""
    keys = {key for pod in pods if pod.shape.volumes for key in claim_keys(pod)}
    claims = {key: storage.claims[key] for key in sorted(keys) if key in storage.claims}
    bound = {claim.spec.volume_name for claim in claims.values()}
    volumes = {name: storage.volumes[name] for name in sorted(bound) if name in storage.volumes}
    return replace(storage, claims=claims, volumes=volumes)


def proposed(
    answered: PackingReply, pods: Sequence[Pod], result: Result, pools: Sequence[SchedulingPool]
) -> tuple[tuple[PlannedClaim, ...], tuple[DesignedNode, ...]]:
    """The claims of scheduling's answer that stay, and the nodes instead of the others.

    Raises:
        PackingProtocolError: it does not speak of each pod of the other claims once, or moves a pod to a NodePool of another weight, or to or from
            one that is packed greedily: what NodePools say is not the judge's matter.
    """
    nodes = answered.nodes or ()
    claims, count = result.claims, len(result.claims)
    kept = set(answered.kept)
    if len(kept) != len(answered.kept) or any(not 0 <= number < count for number in kept):
        raise PackingProtocolError("its plan keeps NodeClaims that do not exist")
    numbers = [number for node in nodes for number in node.pods]
    if any(not 0 <= number < len(pods) for number in numbers):
        raise PackingProtocolError("its plan names pods that do not exist")
    moved = {pod.uid for number, claim in enumerate(claims) if number not in kept for pod in claim.pods}
    uids = [pods[number].uid for number in numbers]
    if len(uids) != len(moved) or set(uids) != moved:
        raise PackingProtocolError("its plan does not contain every pod exactly once")
    weights = {pool.name: pool.weight for pool in pools if pool.packing is not Packing.GREEDY}
    own: dict[str, int | None] = {}
    for number, claim in enumerate(claims):
        if number not in kept:
            own |= dict.fromkeys([pod.uid for pod in claim.pods], weights.get(claim.pool))
    made = []
    for node in nodes:
        some = tuple([pods[n] for n in node.pods])
        weight = weights.get(node.pool)
        if weight is None or any(own[pod.uid] != weight for pod in some):
            raise PackingProtocolError(f"its plan moves pods to NodePool {node.pool[:64]!r}")
        made.append(DesignedNode(node.pool, node.instance_type, node.zone, node.capacity_type, some, node.charge))
    return tuple([claims[number] for number in answered.kept]), tuple(made)


# --- who answers ---


class Receiver:
    """Reads questions, and keeps the world that they are about."""

    def __init__(self) -> None:
        self._prepared: Prepared | None = None
        self._tables: dict[int, tuple[InstanceType, ...]] = {}

    def question(self, data: bytes) -> tuple[PackingRequest, Prepared]:
        """The question in these bytes, which a process of this program wrote, and the world that it is about."""
        asked: PackingRequest = pickle.loads(data)  # noqa: S301 - written by a process of this program
        changes = asked.changes
        if changes.pools is not None:
            known = {**self._tables, **asked.tables}
            self._tables = {number: known[number] for number in asked.stocked.values()}
            stocked = [replace(one, instance_types=known[asked.stocked[one.name]]) for one in changes.pools]
            changes = replace(changes, pools=tuple(stocked))
        before = self._prepared
        if asked.fresh is not None:
            before = prepare(asked.fresh)
        if before is None:
            raise PackingProtocolError("the question refers to a world that was not sent")
        self._prepared = before.updated(changes)
        return asked, self._prepared


def answer_of(
    asked: PackingRequest,
    usd_at_least: float,
    stage: str,
    kept: Sequence[PlannedClaim],
    nodes: Sequence[DesignedNode] | None,
) -> PackingReply:
    """A proposal as an answer; `kept` are claims of the question's own result."""
    if nodes is None:
        return PackingReply(asked.number, usd_at_least)
    claims = {id(one): number for number, one in enumerate(asked.greedy.claims)}
    pods = {pod.uid: number for number, pod in enumerate(asked.pods)}
    made = [
        ProposedNode(
            one.pool,
            one.instance_type,
            one.zone,
            one.capacity_type,
            tuple([pods[pod.uid] for pod in one.pods]),
            one.charge,
        )
        for one in nodes
    ]
    return PackingReply(asked.number, usd_at_least, stage, tuple([claims[id(one)] for one in kept]), tuple(made))
