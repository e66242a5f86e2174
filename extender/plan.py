"""The plan table: which pods have a place on which node, and how much room that holds back.

Fed by watch events, asked by the verbs; no I/O and no clock: times are arguments, in seconds of one monotonic
clock. Not thread-safe: the owner serialises calls (`extender.board`).

A *site* is the plan annotation of one NodeClaim; a Node's annotations are not read, its kubelet may write them. A *family*
is what a plan counts: the pods of one owner and one class. Who has the places of a site, to whom they pass, and for how long they are kept is decided by the
core that the state has (`provisioner.state.promises`); above it are an index of the room that is held, and what is assumed. Room is held

- for a pod that the plan names (its site is the pod's *home*) until it has found a place that stays, so also while it runs on a node that goes;
- for the successor of one that is gone, for a while;
- for pods that no plan names where one counts more than it names, as long as they wait;
- where a pod was bound at its brother's place, for that brother in the place that it left.

A pod that kube-scheduler was just told to bind to one node counts as bound there, until the watch tells what became of it; one that may be bound
to any of several counts on each of those whose room is held, as long (`PlanTable.suppose`).
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import filterfalse, islice
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from extender.protocol import MAX_SCORE, encode_score
from provisioner.apis.plan import Plan
from provisioner.apis.pods import PodShape
from provisioner.state.joining import InstanceObjects, Sharers
from provisioner.state.keys import NodeKey
from provisioner.state.promises import UNTIMED, PodFamily, Promise, Promises, ends_at, taken
from provisioner.state.room_ledger import RoomLedger
from provisioner.values.bounded import forget_oldest
from provisioner.values.resources import EMPTY, Resources

SETTLE_SECONDS: Final = 2.0
"""How long a node that just became schedulable still counts as coming: kube-scheduler sees it a little later or earlier."""

ASSUMED_SECONDS: Final = 30.0
"""How long a pod that was sent to a node counts as bound there before any watch says so: 20 ms, many seconds where the
control plane is slow. Whatever else becomes of the pod, kube-scheduler asks about it again, or it is gone."""

MAX_SUPPOSED: Final = 20_000
"""Pairs of a pod and a held node that it may be bound to, before the watch tells; beyond, the oldest pods are forgotten."""

MAX_GONE: Final = 10_000
"""Pods that are gone of which it is known where they ran: plans may name them still."""

DISRUPTED_SECONDS: Final = 30.0
"""How long a candidate of a disruption command is refused for the command's sake: its taint comes in the next write. Beyond that
the taint alone decides, which kube-scheduler's own filter knows."""

MOST_BROTHERS: Final = 1000
"""Of a pod that asks to be scored: whoever makes pods may give any number of them one owner."""

EMPTY_PLAN: Final = Plan()


class Arrival(enum.Enum):
    """How far a planned node is."""

    NONE = enum.auto()
    """It may never come: no instance was launched yet."""
    LAUNCHED = enum.auto()
    JOINED = enum.auto()
    """Its Node is there."""


class FamilyMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one pod.

    Attributes:
        uid: of the pod.
        name: namespace and name of the pod, as the key of a store has them, so that both are one text.
        namespace: "", for it stands in `name`.
        resource_version: of the object that these facts are from.
        owner: UID of its controller, "" for none.
        klass: key of its class.
        requests: what it takes, `pods: 1` included.
        priority: of its priority class.
        node: where it is bound, "" while it is not.
        finished: Succeeded or Failed; takes no room.
        over: it needs no place itself any more (`promises.is_over`), or not yet: it is gated.
        daemon: the DaemonSet controller made it, for one node.
        shape: where `klass`, `requests` and `priority` come from; a class stays interned as long as somebody has it.
    """

    uid: str
    name: str = ""
    namespace: ClassVar[str] = ""
    resource_version: str = ""
    owner: str = ""
    klass: str
    requests: Resources = EMPTY
    priority: int = 0
    node: str = ""
    finished: bool = False
    over: bool = False
    daemon: bool = False
    shape: PodShape | None = None

    @property
    def family(self) -> PodFamily:
        """Its equals in plans."""
        return PodFamily(self.owner, self.klass)

    @property
    def waiting(self) -> bool:
        """Whether kube-scheduler may still bind it."""
        return not self.node and not self.over


class ExtenderNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one node.

    Attributes:
        name: of the node.
        allocatable: what it offers to pods.
        provider_id: as the claim's status has it.
        claim_uid: UID of the NodeClaim that owns it, "" where no owner reference says so.
        schedulable: ready, and without taints that fall by themselves.
        leaving: being deleted; whatever is planned on it is void.
        disrupted: closed by a disruption, which may take that back.
        avoided: kube-scheduler would rather have pods elsewhere (a PreferNoSchedule taint).
        problem: what of it could not be read and is left out, "" for nothing.
    """

    name: str
    allocatable: Resources = EMPTY
    provider_id: str = ""
    claim_uid: str = ""
    schedulable: bool = False
    leaving: bool = False
    disrupted: bool = False
    avoided: bool = False
    problem: str = ""


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one NodeClaim.

    Attributes:
        name: of the claim.
        uid: of the claim.
        planned_at: when it was created, or its plan was made anew since, as it says.
        node: name of its node, "" while the claim does not say.
        provider_id: "" until launched.
        leaving: being deleted; its plan is void.
        disrupted: a disruption command has it as a candidate; its plan is void.
        interrupted: its instance will be; its plan is void once its node is closed for that.
        initialized_at: when its node was initialized, as it says; None while it is not.
        requests: what it was made for, due daemons included.
        plan: the pods it was made for, or that were planned onto its node later.
        problem: what of it could not be read and is left out, "" for nothing.
    """

    name: str
    uid: str = ""
    planned_at: float = 0.0
    node: str = ""
    provider_id: str = ""
    leaving: bool = False
    disrupted: bool = False
    interrupted: bool = False
    initialized_at: float | None = None
    requests: Resources = EMPTY
    plan: Plan = EMPTY_PLAN
    problem: str = ""


class Hold:
    """Room of one node that is held back for planned pods. Immutable.

    Args:
        parts: (priority, requests of the waiting pods of that priority), each priority once.
        room: allocatable less bound pods and less daemons that are still due.
    """

    __slots__ = ("_levels", "parts", "room")

    def __init__(self, parts: Iterable[tuple[int, Resources]], room: Resources) -> None:
        self.parts = tuple(sorted(parts, key=lambda part: -part[0]))
        self.room = room
        # For each priority what is left beside the plans from there up, for the resources that they need.
        self._levels: list[tuple[int, Resources, dict[str, int]]] = []
        need = EMPTY
        for priority, requests in self.parts:
            need += requests
            spare = {name: room.amount(name) - amount for name, amount in need.items() if amount > 0}
            self._levels.append((priority, need, spare))

    def __repr__(self) -> str:
        return f"<Hold {self.needed(-(2**31))} of {self.room}>"

    def needed(self, priority: int) -> Resources:
        """What the planned pods need that a pod of `priority` does not outrank."""
        level = self._level(priority)
        return level[1] if level is not None else EMPTY

    def admits(
        self, requests: Mapping[str, int], priority: int, freed: Resources = EMPTY, beside: Resources = EMPTY
    ) -> bool:
        """Whether a stranger leaves the planned pods enough room; room that they do not need is not looked at.

        Args:
            requests: what it takes.
            priority: of it.
            freed: what pods take that would leave before it comes.
            beside: what pods take that may come before it.
        """
        level = self._level(priority)
        if level is None:
            return True
        for name, spare in level[2].items():
            asked = requests.get(name, 0)
            if asked > 0 and asked > spare + freed.amount(name) - beside.amount(name):
                return False
        return True

    def _level(self, priority: int) -> tuple[int, Resources, dict[str, int]] | None:
        for level in reversed(self._levels):
            if level[0] >= priority:
                return level
        return None


class Supposed(NamedTuple):
    """A pod that no plan steered and whose binding may be under way.

    Attributes:
        until: when it is forgotten.
        nodes: those with held room that it may be bound to.
        requests: what it takes.
    """

    until: float
    nodes: frozenset[str]
    requests: Resources


class NodeStanding(NamedTuple):
    """Where one pod may take a planned place.

    Attributes:
        home: node of the site that lists it, "" where there is none, or none yet, or its place is taken.
        others: nodes with an open place of its family, best first: those that nobody listed waits for, then those
            of brothers, with whom it may swap. None while its own place is coming.
        coming: name of the claim that it has a place on and whose node is still becoming ready, "" for none.
    """

    home: str = ""
    others: tuple[str, ...] = ()
    coming: str = ""


NO_STANDING: Final = NodeStanding()


class _Site:
    """The plan of one claim. `node` is "" until the claim's node is known; one that is `over` has no places before it is made anew."""

    __slots__ = ("deadline", "key", "live", "name", "node", "over", "plan", "planned_at", "rank", "rooms")

    def __init__(self, name: str, *, planned_at: float) -> None:
        self.name, self.key = name, NodeKey(name)
        self.node = ""
        self.planned_at = planned_at
        self.rank = (0, 0.0, name)  # of plans that name one pod the greatest counts
        self.deadline = 0.0
        self.live, self.over = True, False
        self.plan = EMPTY_PLAN
        self.rooms: dict[PodFamily, _Room] = {}


@dataclass(slots=True, eq=False, kw_only=True)
class _Place(Promise):
    """A place that a plan names a pod for; without a pod, and not vacant, where that pod is gone, or another plan has it.

    Attributes:
        site: whose it is; `key` is its claim.
        named: UID of the pod that the plan means.
        found: its pod waited and was bound (True), or its node is gone under it (False); None: where it runs says so.
    """

    site: _Site
    named: str
    found: bool | None = None

    def exchange(self, other: Self) -> None:
        """What became of a pod goes with it."""
        Promise.exchange(self, other)
        self.found, other.found = other.found, self.found


class _Room:
    """What one plan promises one family, in numbers."""

    __slots__ = ("count", "held", "here", "kept", "listed", "open", "owed", "site", "spare", "strays", "sure")

    def __init__(self, site: _Site) -> None:
        self.site = site
        self.count = 0
        self.held = 0
        self.strays: tuple[_House, ...] = ()  # of pods that wait and have a place here, as one of another family
        self.clear()

    def clear(self) -> None:
        self.here = 0  # pods of the family on the node
        self.listed = 0  # pods that wait and have a place here
        self.owed = 0  # places whose pods have found no place that stays
        self.kept = 0  # places that are vacant
        self.sure = 0  # both, less those that a pod is just being bound to
        self.spare = 0  # places without a name that nobody has
        self.open = 0  # all of them


class _House:
    """One family: its pods, and what plans promise it."""

    def __init__(self, family: PodFamily) -> None:
        self.family = family
        self.members: dict[str, FamilyMember] = {}
        self.waiting = 0  # of the pods
        self.rooms: dict[str, _Room] = {}  # by claim
        self.stale: set[_Room] = set()
        self.nameless: set[_Room] = set()  # rooms with places that are for whoever waits
        self.listed = self.kept = 0  # sums over rooms
        self.strays = 0  # pods that wait, and have a place of another family
        self.surplus = 0  # pods that wait, and that there is no place for
        self.known = False  # whether a pod of the family was seen, so that its requests are known
        self.requests = EMPTY
        self.priority = 0
        self.sorted = False  # whether the next three are up to date
        self.ordered: tuple[_Room, ...] = ()  # rooms, by claim
        self.free: tuple[_Room, ...] = ()  # those with a place that nobody listed waits for
        self.nodes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # see `PlanTable._open_nodes`


class _Fullness:
    """How full nodes are, 0 to 10, kept for each way of asking.

    Attributes:
        scores: of the nodes above 0, as `prioritize` says it.
        levels: names by figure; 0 stays empty.
    """

    def __init__(self) -> None:
        self.scores: dict[str, bytes] = {}
        self.levels: tuple[set[str], ...] = tuple(set() for _ in range(MAX_SCORE + 1))
        self._of: dict[str, int] = {}

    def set(self, name: str, full: int) -> None:
        """How full a node is now."""
        before = self._of.get(name, 0)
        if full == before:
            return
        self.levels[before].discard(name)
        if full:
            self._of[name] = full
            self.levels[full].add(name)
            self.scores[name] = encode_score(name, full)
        else:
            del self._of[name], self.scores[name]


class PlanTable:
    """See the module.

    Attributes:
        ledger: who takes room.
        caught_up: whether what comes now is new.
    """

    def __init__(self) -> None:
        self.ledger, self.caught_up = RoomLedger(), False
        self._seen = 0  # plans
        self._members: dict[str, FamilyMember] = {}  # by UID
        self._assumed: dict[
            str, tuple[float, FamilyMember]
        ] = {}  # by UID: until when, and what the watch told; oldest first
        self._supposed: dict[str, Supposed] = {}  # by UID; oldest first
        self._ran: dict[str, str] = {}  # by UID: where pods ran that are gone; oldest first
        # node -> UIDs of the pods there, and whether they were seen to wait, and then to be bound; of finished ones there may be any number
        self._on: dict[str, dict[str, bool]] = {}
        self._houses: dict[PodFamily, _House] = {}
        self._nodes: dict[str, ExtenderNode] = {}
        self._schedulable_at: dict[str, float] = {}
        self._claims: dict[str, ClaimFacts] = {}
        self._planned_at: dict[str, float] = {}  # claim -> when its plan appeared, as far as was seen
        self._disrupted_at: dict[str, float] = {}  # claim -> when a command was first seen on it
        self._initialized_at: dict[str, float] = {}  # claim -> when its node was
        self._going: set[str] = set()  # nodes that do not stay
        self._instances = InstanceObjects()
        self._owned = Sharers()  # nodes by UID of the claim that owns them
        self._owners = Sharers()  # claims by UID
        self._namers = Sharers()  # claims by the node that they name
        self._sites: dict[str, _Site] = {}  # by claim
        self._sites_of_node: dict[str, list[_Site]] = {}
        self._nodeless: set[str] = set()  # claims of live sites without a node
        self._places: Promises[_Place] = Promises()
        self._stale_houses: dict[PodFamily, None] = {}
        self._stale_holds: set[str] = set()
        self._holds: dict[str, Hold] = {}
        self._avoided: set[str] = set()  # nodes
        self._fullness = _Fullness()

    def __repr__(self) -> str:
        return f"<PlanTable: {len(self._nodes)} nodes, {len(self._members)} pods, {len(self._sites)} plans, {len(self.holds)} held>"

    # ------------------------------------------------------------------ events

    def set_pod(self, member: FamilyMember) -> None:
        """A pod is there, or its facts changed. That it still waits does not end what is assumed of it: watches lag."""
        assumed = self._assumed.get(member.uid)
        if assumed is not None and member.waiting:
            self._assumed[member.uid] = (assumed[0], member)
            self._enter_pod(msgspec.structs.replace(member, node=self._members[member.uid].node))
        else:
            known, came = self._members.get(member.uid), False
            if member.over and known is not None and not known.over:  # not one that is gated still
                self._vacate(member.uid)
            elif member.node:
                came = self._bound(member.uid, member.node)
            if self._assumed.pop(member.uid, None) is not None:
                self._mark_pod(self._members[member.uid])
            self._enter_pod(member, came=came)
        if not member.waiting:
            self._supposed.pop(member.uid, None)

    def _enter_pod(self, member: FamilyMember, *, came: bool = False) -> None:
        old = self._members.get(member.uid)
        came = came or (old is not None and self._has_come(old))
        if old is None or old != msgspec.structs.replace(member, resource_version=old.resource_version):
            if old is not None:
                self._forget(old)
            house = self._house(member.family)
            if not house.known:  # room is held for it already
                self._stale_holds.update(room.site.node for room in house.rooms.values() if room.site.node)
            house.known, house.requests, house.priority = True, member.requests, member.priority
            house.members[member.uid] = self._members[member.uid] = member
            house.waiting += member.waiting
            if member.node and not member.finished:
                self._on.setdefault(member.node, {})[member.uid] = came
                self.ledger.bind(member.uid, member.node, member.requests, daemon=member.daemon)
                self._stale_holds.add(member.node)
            self._mark_pod(member)
        elif came:
            self._on[member.node][member.uid] = True  # as was assumed
        house = self._houses[member.family]
        house.members[member.uid] = self._members[member.uid] = member
        self._welcome(house, member)

    def assume(self, uid: str, node: str, now: float) -> None:
        """kube-scheduler may bind the pod to this node alone: until the watch tells, nobody else gets its place.

        Without this a brother's place is given twice: kube-scheduler asks about the next pod long before the binding shows.
        """
        member = self._members.get(uid)
        if member is not None and member.waiting:
            self._assumed[uid] = (now + ASSUMED_SECONDS, member)
            self._enter_pod(msgspec.structs.replace(member, node=node))

    def suppose(self, member: FamilyMember, nodes: frozenset[str], now: float) -> None:
        """kube-scheduler may bind the pod, which no plan steers, to one of these nodes with held room, or to another one.

        It knows nothing of holds: until the watch tells where the pod went, the next one would be let into the same spare room, and
        both together take what is held.
        """
        if nodes:
            self._supposed[member.uid] = Supposed(now + ASSUMED_SECONDS, nodes, member.requests)
            while sum(len(one.nodes) for one in self._supposed.values()) > MAX_SUPPOSED:
                del self._supposed[next(iter(self._supposed))]

    @property
    def supposed(self) -> tuple[Supposed, ...]:
        """Pods that may be bound in this moment to one of several nodes with held room."""
        return tuple(self._supposed.values())

    def recall(self, uid: str, now: float) -> None:
        """kube-scheduler asks about this pod again, so it was not bound; the same holds of what was assumed too long ago."""
        self._supposed.pop(uid, None)
        for other in [other for other, one in self._supposed.items() if now >= one.until]:
            del self._supposed[other]
        over = [uid] if uid in self._assumed else []
        for other, (until, _) in self._assumed.items():
            if now < until:
                break
            over.append(other)
        for each in dict.fromkeys(over):
            self._enter_pod(self._assumed.pop(each)[1])

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._supposed.pop(uid, None)
        self._vacate(uid)
        old = self._members.pop(uid, None)
        if old is not None:
            self._forget(old)
            self._ran[uid] = old.node
            forget_oldest(self._ran, MAX_GONE)

    def set_node(self, facts: ExtenderNode, now: float) -> None:
        """A node is there, or its facts changed."""
        old = self._nodes.get(facts.name)
        if old == facts:
            return
        self._nodes[facts.name] = facts
        (self._avoided.add if facts.avoided else self._avoided.discard)(facts.name)
        if not facts.schedulable:
            self._schedulable_at.pop(facts.name, None)
        elif old is None or not old.schedulable:
            # One that is ready when first seen was so before: nothing to settle.
            self._schedulable_at[facts.name] = now if old is not None else now - SETTLE_SECONDS
        self.ledger.set_node(facts.name, facts.allocatable)
        self._stale_holds.add(facts.name)
        claims = self._claims_of(facts) | (self._claims_of(old) if old is not None else set())
        self._instances.nodes.put(facts.name, facts.provider_id)
        self._owned.put(facts.name, facts.claim_uid)
        for claim in sorted(claims):
            self._refresh_claim(claim, now)
        for uid in self._on.get(facts.name, ()) if old is None else ():
            self._mark_pod(self._members[uid])
        self._judge_node(facts.name)

    def drop_node(self, name: str, now: float) -> None:
        """A node is gone."""
        old = self._nodes.pop(name, None)
        if old is None:
            return
        self._schedulable_at.pop(name, None)
        self._avoided.discard(name)
        self.ledger.drop_node(name)
        claims = self._claims_of(old)
        self._instances.nodes.put(name, "")
        self._owned.put(name, "")
        for claim in sorted(claims):
            self._refresh_claim(claim, now)
        for uid in self._on.get(name, ()):
            self._mark_pod(self._members[uid])
        self._judge_node(name)
        self._stale_holds.add(name)

    def set_claim(self, facts: ClaimFacts, now: float) -> None:
        """A NodeClaim is there, or its facts changed."""
        old = self._claims.get(facts.name)
        if old == facts:
            return
        if old is None:
            self._planned_at[facts.name] = min(facts.planned_at, now)
        elif not old.plan.pods:
            self._planned_at[facts.name] = now  # planned later than it was made
        self._claims[facts.name] = facts
        if facts.initialized_at is not None and facts.name not in self._initialized_at:
            # by our own clock where we saw it come: an object's time may be of the future
            self._initialized_at[facts.name] = now if old is not None else min(facts.initialized_at, now)
        if not facts.disrupted:
            self._disrupted_at.pop(facts.name, None)
        else:
            self._disrupted_at.setdefault(facts.name, now)
        self._say(facts.name, facts.provider_id, facts.uid, facts.node)
        self._refresh_claim(facts.name, now)

    def drop_claim(self, name: str) -> None:
        """A NodeClaim is gone, and its plan with it."""
        old = self._claims.get(name)
        if old is not None:
            self._leave_behind(self._node_of(old))
            del self._claims[name]
            self._say(name, "", "", "")
            del self._planned_at[name]
            self._disrupted_at.pop(name, None)
            self._initialized_at.pop(name, None)
            self._drop_site(name)
            self._judge_node(self._node_of(old))

    def expire(self, now: float) -> list[str]:
        """End the plans whose time is over, and places whose pods have no successor; the names of the claims of the plans."""
        for place in self._places.overdue(now):
            self._give_up(place)
        due = [(site, site.live) for site in self._sites.values() if not site.over and now >= site.deadline]
        for site, _ in due:
            self._judge_life(site, now)
            if not site.live:  # the plan is read as long as the claim is there, and its places are forgotten
                site.over = True
                self._clear(site)
        return [site.name for site, was_live in due if was_live and site.over]

    # --------------------------------------------------------------- questions

    @property
    def holds(self) -> Mapping[str, Hold]:
        """Every node that room is held on, with what is held. Read it at once; the next event changes it."""
        self._settle()
        return self._holds

    @property
    def scores(self) -> Mapping[str, bytes]:
        """How full each node is that has pods of its own, 1 to 10, as `prioritize` says it. Read it at once; the next event changes it.

        It is written out here because one event changes one node, and one answer may tell of 5,000.
        """
        self._settle()
        return self._fullness.scores

    @property
    def levels(self) -> Sequence[Collection[str]]:
        """The nodes that have pods of their own, by how full they are, 0 to 10. Read it at once; the next event changes it."""
        self._settle()
        return self._fullness.levels

    def company(self, pod: FamilyMember) -> frozenset[str]:
        """Nodes with pods of its owner and class, of a thousand the newest. Cost: O(its family, up to that)."""
        house = self._houses.get(pod.family) if pod.owner else None
        family = islice(reversed(house.members.values()), MOST_BROTHERS) if house is not None else ()
        return frozenset(one.node for one in family if one.node and not one.finished)

    @property
    def planned(self) -> int:
        """Waiting pods that a place is kept for."""
        self._settle()
        return sum(room.held for house in self._houses.values() for room in house.rooms.values())

    @property
    def plans(self) -> int:
        """Plans that are live."""
        return sum(site.live for site in self._sites.values())

    def member(self, uid: str) -> FamilyMember | None:
        """The facts about a pod, None while no watch told of it."""
        return self._members.get(uid)

    @property
    def avoided(self) -> bool:
        """Whether kube-scheduler would rather have pods on some nodes than on others, whatever they say."""
        return bool(self._avoided)

    @property
    def node_count(self) -> int:
        """Nodes that a watch told of."""
        return len(self._nodes)

    def knows(self, node: str) -> bool:
        """Whether a watch told of this node."""
        return node in self._nodes

    def some_node(self) -> str:
        """The first node by name; "" where there is none."""
        return min(self._nodes, default="")

    def disrupted(self, now: float) -> frozenset[str]:
        """Nodes that a disruption command takes away, in the time in which their taint may not have been seen yet.

        O(candidates of commands); budgets keep them few.
        """
        return frozenset(
            node
            for claim, since in self._disrupted_at.items()
            if now < since + DISRUPTED_SECONDS and (node := self._node_of(self._claims[claim]))
        )

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that no watch told of yet."""
        return list(filterfalse(self._nodes.__contains__, names))

    def arrival(self, plan: str) -> Arrival:
        """How far the node of this claim is."""
        site = self._sites.get(plan)
        if site is not None and site.node:
            return Arrival.JOINED
        claim = self._claims.get(plan)
        return Arrival.LAUNCHED if claim is not None and claim.provider_id else Arrival.NONE

    @property
    def live_plans(self) -> frozenset[str]:
        """Names of the claims with a live plan."""
        return frozenset(site.name for site in self._sites.values() if site.live)

    @property
    def expects_nodes(self) -> bool:
        """Whether a live plan has no node yet, so that a name not known might be it."""
        return bool(self._nodeless)

    def standing(self, member: FamilyMember, now: float) -> NodeStanding:
        """Where `member` may take a planned place at `now`.

        O(sites of its family) after one of them opened or closed; the pod need not have been seen before, as long as its family has places.
        """
        place = self._place_of(member.uid)
        house = self._houses.get(place.family if place is not None else member.family)
        if house is None or not house.rooms or member.node:
            return NO_STANDING
        self._settle()
        place = self._place_of(member.uid)  # counting may have let pods change places
        home = house.rooms.get(place.site.name) if place is not None else None
        if home is not None and (home.open > 0 or self._is_let_go(member)):
            coming = home.site.name if self._coming(home.site, now) else ""
            # Not to a brother's place while its own is coming: places taken by pods that are just being bound do not
            # show here yet, so a crowd would follow into the first node that opens.
            return NodeStanding(
                home.site.node, () if coming or not member.owner else self._open_nodes(house)[1], coming
            )
        free, everywhere = self._open_nodes(house)
        coming = ""
        if not house.surplus:
            coming = next((room.site.name for room in house.free if self._coming(room.site, now)), "")
        return NodeStanding(
            "", free if home is None else everywhere, coming
        )  # only who has a place to give gets a brother's

    # -------------------------------------------------------------------- pods

    def _is_let_go(self, member: FamilyMember) -> bool:
        """Whether a pod that is gated, as far as its watch has told, is not any more: kube-scheduler asks about no gated pod."""
        known = self._members.get(member.uid)
        return known is not None and known.over and not known.node

    def _house(self, family: PodFamily) -> _House:
        house = self._houses.get(family)
        if house is None:
            house = self._houses[family] = _House(family)
        return house

    def _leave_house(self, house: _House) -> None:
        """A family is forgotten with its last pod and place."""
        if not house.members and not house.rooms:
            del self._houses[house.family]

    def _forget(self, old: FamilyMember) -> None:
        """Take out what an earlier state of a pod counted for."""
        house = self._houses[old.family]
        house.members.pop(old.uid, None)
        house.waiting -= old.waiting
        self.ledger.release(old.uid)
        if old.node and not old.finished:
            self._stale_holds.add(old.node)
            there = self._on[old.node]
            there.pop(old.uid, None)
            if not there:
                del self._on[old.node]
        self._mark_pod(old)
        self._leave_house(house)

    def _place_of(self, uid: str) -> _Place | None:
        """The place of a pod in a plan that is live."""
        place = self._places.of_pod(uid)
        return place if place is not None and place.site.live else None

    def _true(self, uid: str) -> FamilyMember | None:
        """What the watch told of a pod, whatever is assumed of it."""
        return self._assumed[uid][1] if uid in self._assumed else self._members.get(uid)

    def _stays(self, node: str) -> bool:
        return node in self._nodes and node not in self._going

    def _room_on(self, house: _House, node: str) -> _Room | None:
        """The room of a family on a node."""
        sites = self._sites_of_node.get(node, ())
        return next((house.rooms[site.name] for site in sites if site.live and site.name in house.rooms), None)

    def _is_owed(self, place: _Place) -> bool:
        """Whether the pod of a place has found none that stays; one that waited and was bound has, whatever becomes of its node."""
        member = self._true(place.uid)
        if member is None or member.over or not member.node:
            return member is not None and not member.over
        found = self._stays(member.node) if place.found is None else place.found
        return member.node != place.site.node and not found

    @staticmethod
    def _is_counted(place: _Place, member: FamilyMember | None) -> bool:
        """Whether the pod of a place is one of those that run there."""
        return member is not None and member.node == place.site.node and member.family == place.family

    def _take(self, place: _Place, uid: str) -> None:
        """A place is a pod's from now on, who had none."""
        self._places.take(place, uid)
        place.found = self._found_unknown(uid)
        self._mark_place(place)

    def _leave(self, place: _Place, since: float | None = None) -> None:
        """The pod of a place has it no longer; without `since` nobody comes after it."""
        self._places.take(place, "", since)
        place.found = None
        self._mark_place(place)

    def _give_up(self, place: _Place) -> None:
        """Nobody is waited for at a place any longer."""
        if self._places.of_pod(place.named) in (None, place):
            self._take(place, place.named)  # as it may come late
        else:
            self._leave(place)

    def _vacate(self, uid: str) -> None:
        """A pod is gone: if it was owed a place, that waits for its successor."""
        if uid in self._assumed:
            self._enter_pod(self._assumed.pop(uid)[1])
        member, place = self._members.get(uid), self._places.of_pod(uid)
        if member is not None and place is not None:
            waits = bool(member.owner) and place.site.live and self._is_owed(place)
            self._leave(place, UNTIMED if waits else None)

    def _leave_behind(self, node: str) -> None:
        """The claim of a node is gone: until pods that were to leave it are gone, too, their places are kept."""
        for uid in self._on.get(node, ()) if node in self._going else ():
            place = self._place_of(uid)
            if place is not None and uid not in self._assumed and self._is_owed(place):
                place.found = False

    def _welcome(self, house: _House, member: FamilyMember) -> None:
        """A pod is there: it may be one that was missed, or the successor of one that was seen to go, whose place it has from now on."""
        place = self._places.of_pod(member.uid)
        if place is not None and member.over:
            if member.node:
                self._leave(place)
        elif place is not None and place.vacant_since is not None:
            self._take(place, member.uid)
        elif place is None and member.waiting:
            if (gone := self._places.open_to(house.family)) is not None:
                self._take(gone, member.uid)
            elif (gone := self._places.outgrown(member.owner)) is not None:
                self._give_up(gone)

    def _bound(self, uid: str, node: str) -> bool:
        """A pod that waited is bound, whoever was told to bind it: it has the place that it was owed, or that of a brother, who gets its own instead.

        False where it is not seen for the first time that it is bound, or it was not seen to wait.
        """
        member = self._true(uid)
        if member is None or member.node:
            return False
        place = self._place_of(uid)
        house = self._houses[place.family if place is not None else member.family]
        if not house.rooms:
            return True
        if place is None:
            here = self._room_on(house, node)
            there = self._places.on(here.site.key) if here is not None else ()
            vacant = (one for one in there if one.family is house.family and one.vacant_since is not None)
            place = next(vacant, None)
            if place is None:
                return True
            if (void := self._places.of_pod(uid)) is not None:
                self._leave(void)
            self._take(place, uid)
        self._arrive(place, node)
        return True

    def _has_come(self, member: FamilyMember) -> bool:
        """Whether a pod was seen to wait, and then to be bound."""
        return self._on.get(member.node, {}).get(member.uid, False)

    def _arrive(self, place: _Place, node: str) -> None:
        """The pod of a place has found one that stays, on this node."""
        house = self._houses[place.family]
        here = self._room_on(house, node)
        place.found = True
        self._mark_place(place)
        if here is not None and here.site is not place.site:
            self._swap(place, house, here.site)

    def _swap(self, place: _Place, house: _House, site: _Site) -> None:
        """The pod of a place runs where brothers have theirs: whoever is owed one there has the pod's own from now on."""
        mine = (one for one in self._places.on(site.key) if one.family is house.family)
        other = taken(one for one in mine if one.vacant_since is not None or self._is_owed(one))
        if house.family.has_brothers and other is not None:
            place.found = True
            self._places.swap(place, other)
            self._mark_place(place)
            self._mark_place(other)

    # ------------------------------------------------------------------- sites

    def _claims_of(self, node: ExtenderNode) -> set[str]:
        """Names of the claims that may belong to a node."""
        owners, namers = self._owners.of(node.claim_uid), self._namers.of(node.name)
        return {*owners, *namers, *self._instances.claims.of(node.provider_id)}

    def _say(self, claim: str, provider_id: str, uid: str, node: str) -> None:
        """By what a claim finds its node."""
        self._instances.claims.put(claim, provider_id)
        self._owners.put(claim, uid)
        self._namers.put(claim, node)

    def _refresh_claim(self, name: str, now: float) -> None:
        """Bring the site of a claim up to date with the claim and with its node."""
        claim = self._claims[name]
        where = self._node_of(claim)
        if not claim.plan.pods:
            self._drop_site(name)
        else:
            site = self._sites.get(name)
            if site is None:
                site = self._sites[name] = _Site(name, planned_at=self._planned_at[name])
                self._stated(site, min(claim.planned_at, now))
            elif site.plan != claim.plan and (claim.plan.at != site.plan.at or _grew(site.plan, claim.plan)):
                site.planned_at = now  # its time begins anew; pods taken off it do not prolong it
                self._stated(site, now)
            self._move(site, where)
            self._judge_life(site, now)
            if site.plan != claim.plan and not site.over:
                self._enter(site, claim.plan)
                self._judge_life(site, now)
            site.plan = claim.plan
        self._judge_node(where)

    def _stated(self, site: _Site, stated_at: float) -> None:
        """Pods were planned. What we see counts in that order: a claim may come to be after its pods are planned elsewhere; before us goes what plans say."""
        self._seen += self.caught_up
        site.over = False
        site.rank = self._seen, stated_at, site.name

    def _judge_node(self, name: str) -> None:
        """Does a node stay? Where that changed, pods that are bound there need other places, or do not any more."""
        node = self._nodes.get(name)
        claims = map(self._claims.__getitem__, self._claims_of(node)) if node is not None else ()
        goes = node is not None and (
            node.leaving or node.disrupted or any(one.leaving or one.disrupted for one in claims)
        )
        if goes is (name in self._going):
            return
        (self._going.add if goes else self._going.discard)(name)
        for uid in sorted(self._on.get(name, ())):
            member, place = self._members[uid], self._place_of(uid)
            self._mark_pod(member)
            if node is not None and not goes and uid not in self._assumed and place is not None and place.found is None:
                self._arrive(place, name)

    def _node_of(self, claim: ClaimFacts) -> str:
        """The node of a claim, "" while there is none: the claim's word first, a provider ID only where one Node has it.

        Names come again: a Node of another instance is not meant.
        """
        named = self._nodes.get(claim.node)
        if named is not None and (
            named.provider_id == claim.provider_id or not (named.provider_id and claim.provider_id)
        ):
            return claim.node
        owned = self._owned.of(claim.uid)
        if len(owned) == 1:
            return next(iter(owned))
        pair = self._instances.pair(claim.provider_id)
        return pair[1] if pair is not None and pair[0] == claim.name else ""

    def _enter(self, site: _Site, plan: Plan) -> None:
        """What the plan of a site says now: places that it has already stay as they are, but where pods were planned anew."""
        known = site.plan.pods if plan.at == site.plan.at and site.rooms else ()
        before = {uid for entry in known for uid in entry.uids}
        unnamed: dict[PodFamily, int] = {}
        named: dict[str, PodFamily] = {}
        for family in site.rooms.keys() - {PodFamily(entry.owner, entry.klass) for entry in plan.pods}:
            self._withdraw(site, family)
        for room in site.rooms.values():
            room.count = 0
        for entry in plan.pods:
            house = self._house(PodFamily(entry.owner, entry.klass))
            room = site.rooms[house.family] = house.rooms.setdefault(site.name, _Room(site))
            room.count += entry.count
            unnamed[house.family] = unnamed.get(house.family, 0) + entry.count - len(entry.uids)
            named.update(dict.fromkeys(entry.uids, house.family))
        site.plan = plan
        served = set[str]()
        for one in sorted(self._places.on(site.key), key=lambda one: one.vacant_since is None):
            vacant, member = one.vacant_since is not None, self._true(one.uid)
            if one.uid in named and not vacant:
                one.named = one.uid
                one.found = one.found if one.uid in before else self._found_unknown(one.uid)
            elif (
                one.uid not in named and unnamed[one.family] > 0 and (vacant or (member is not None and member.waiting))
            ):
                unnamed[one.family] -= 1
                one.named = ""
                if not vacant:  # its pod is gone, as the watch is still to tell
                    self._leave(one, UNTIMED)
            elif one.named not in named or not (
                one.named in before or vacant or self._is_owed(one) or self._is_counted(one, member)
            ):
                self._places.end(one)
                continue
            served.add(one.named)
        added = {uid: family for uid, family in named.items() if uid not in before and uid not in served}
        for uid, family in added.items():
            self._name(site, family, uid)
        for family in dict.fromkeys(added.values()):
            self._seat(site, self._houses[family], named.keys())
        self._mark_site(site)

    def _name(self, site: _Site, family: PodFamily, uid: str) -> None:
        """A plan names a pod: it has a place here, where no later plan names it; where it is not there yet, or gone, its successor has."""
        member, former = self._true(uid), self._places.of_pod(uid)
        place = _Place(key=site.key, family=self._houses[family].family, uid="", site=site, named=uid)
        self._mark_place(self._places.add(place))
        if former is not None:
            if (former.site.live, former.site.rank) > (site.live, site.rank):
                return
            if former.site.live and member is not None and member.node and member.node == site.node:
                return  # it is counted here, and has a place elsewhere as it is to leave
            brother = self._true(former.named) if former.found and former.site.live else None
            if brother is not None and brother.waiting and self._places.of_pod(brother.uid) is None:
                self._take(place, brother.uid)  # whose place it has
                return
            self._leave(former)
        ran = member.node if member is not None else self._ran.get(uid, "")
        if ran and ran == site.node and (member is None or member.over):
            return  # it is counted as one that runs there, and was not to come
        if member is None or (member.over and not member.node):
            self._places.take(place, uid, UNTIMED if family.has_brothers else None)
        elif not member.over:
            self._take(place, uid)

    def _found_unknown(self, uid: str) -> bool | None:
        """What became of a pod that a plan names: one that waited, and was bound to a node that stays, has found its place, and who planned it knew less."""
        member = self._true(uid)
        return True if member is not None and self._has_come(member) and self._stays(member.node) else None

    def _seat(self, site: _Site, house: _House, named: AbstractSet[str]) -> None:
        """Pods were planned onto a node where brothers run that the plan does not count: they came unknown, and have places of those that it names."""
        came = {uid for uid, has in self._on.get(site.node, {}).items() if has and uid in house.members}
        for uid in sorted(came - named):
            place = self._place_of(uid)
            if place is not None and place.site is not site and uid not in self._assumed:
                self._swap(place, house, site)

    def _withdraw(self, site: _Site, family: PodFamily) -> None:
        house = self._houses[family]
        for one in self._places.on(site.key):
            if one.family is house.family:
                self._places.end(one)
        room = house.rooms.pop(site.name)
        del site.rooms[family]
        house.listed, house.kept, house.sorted = house.listed - room.listed, house.kept - room.kept, False
        house.ordered = ()
        self._stray(room, ())
        house.stale.discard(room)
        house.nameless.discard(room)
        if house.rooms:
            self._stale_houses[family] = None
        else:
            self._stale_houses.pop(family, None)
        if site.node:
            self._stale_holds.add(site.node)
        self._leave_house(house)

    def _drop_site(self, name: str) -> None:
        site = self._sites.pop(name, None)
        if site is not None:
            site.live = False
            self._clear(site)
            self._move(site, "")
            self._nodeless.discard(name)

    def _clear(self, site: _Site) -> None:
        for family in tuple(site.rooms):
            self._withdraw(site, family)

    def _move(self, site: _Site, node: str) -> None:
        """The node of a site became known, or is gone."""
        if site.node == node:
            return
        self._mark_site(site)
        if site.node:
            there = [other for other in self._sites_of_node[site.node] if other is not site]
            if there:
                self._sites_of_node[site.node] = there
            else:
                del self._sites_of_node[site.node]
        site.node = node
        if node:
            self._sites_of_node.setdefault(node, []).append(site)
        self._mark_site(site)

    def _judge_life(self, site: _Site, now: float) -> None:
        """When does a plan end, and is it over?"""
        claim, node = self._claims[site.name], self._nodes.get(site.node)
        site.deadline = ends_at(site.planned_at, self._initialized_at.get(site.name), claim.plan.hold_seconds)
        void = (
            claim.leaving
            or claim.disrupted
            or (node is not None and (node.leaving or (node.disrupted and claim.interrupted)))
        )
        live = not void and (now < site.deadline or (not site.over and self._is_kept(site)))
        if site.live != live:
            site.live = live
            for one in self._places.on(site.key) if not live else ():
                if one.vacant_since is not None:
                    self._leave(one)  # nobody comes after it
            self._mark_site(site)
        if live and not site.node:
            self._nodeless.add(site.name)
        else:
            self._nodeless.discard(site.name)

    def _is_kept(self, site: _Site) -> bool:
        """Whether a pod that the plan names runs on a candidate of a command, which may wait long for a budget, or its successor is to come.

        O(its pods + candidates).
        """
        if any(one.vacant_since is not None for one in self._places.on(site.key)):
            return True
        candidates = {self._node_of(self._claims[claim]) for claim in self._disrupted_at} - {""}
        members = (self._members.get(uid) for entry in site.plan.pods for uid in entry.uids) if candidates else ()
        return any(one is not None and not one.over and one.node in candidates for one in members)

    def _coming(self, site: _Site, now: float) -> bool:
        """Whether it is worth waiting for the site's node: soon there, and not for longer than a plan holds."""
        if now >= site.planned_at + site.plan.hold_seconds:
            return False
        since = self._schedulable_at.get(site.node)
        return since is None or now < since + SETTLE_SECONDS

    # ------------------------------------------------------------------- index

    def _mark_site(self, site: _Site) -> None:
        """The site changed: count its rooms anew, and what its node holds."""
        for family, room in site.rooms.items():
            self._houses[family].sorted = False
            self._mark(self._houses[family], room)
        if site.node:
            self._stale_holds.add(site.node)

    def _mark_place(self, place: _Place) -> None:
        house = self._houses[place.family]
        self._mark(house, house.rooms.get(place.site.name))

    def _mark_pod(self, member: FamilyMember) -> None:
        """A pod changed: so did the rooms where it has a place, which is of the class that it was planned as, and where it runs."""
        if (place := self._places.of_pod(member.uid)) is not None:
            self._mark_place(place)
        house = self._houses[member.family]
        if house.rooms:
            self._mark(house, self._room_on(house, member.node))

    def _mark(self, house: _House, room: _Room | None) -> None:
        self._stale_houses[house.family] = None
        if room is not None:
            house.stale.add(room)

    def _settle(self) -> None:
        """Bring numbers and holds up to date with the events since the last question."""
        while self._stale_houses:
            house = self._houses.get(self._stale_houses.popitem()[0])
            if house is not None:
                changed = set[_Room]()
                while house.stale:
                    room = house.stale.pop()
                    self._count(house, room)
                    changed.add(room)
                self._share(house, changed)
        stale, self._stale_holds = self._stale_holds, set()  # to pop from a set that was large once is slow
        for name in stale:
            hold = self._hold(name)
            if hold is None:
                self._holds.pop(name, None)
            else:
                self._holds[name] = hold
            self._fullness.set(name, self._full(name))

    def _count(self, house: _House, room: _Room) -> None:
        """What one plan owes a family. O(its places + pods on its node)."""
        site, before = room.site, (room.listed, room.kept, room.open > room.owed, room.open > 0)
        room.clear()
        strays: list[_House] = []
        if site.live:
            places, own, strangers, guests, visitors = 0, 0, 0, 0, list[_Place]()
            for one in self._places.on(site.key):
                if one.family is not house.family:
                    continue
                places += 1
                room.kept += one.vacant_since is not None
                room.owed += bool(one.uid) and self._is_owed(one)
                pod = self._members.get(one.uid)
                if pod is not None and pod.waiting and one.uid in house.members:
                    room.listed += 1
                elif pod is not None and pod.waiting:
                    strays.append(self._houses[pod.family])
            for uid in house.members.keys() & self._on.get(site.node, {}).keys():
                member = house.members[uid]
                room.here += 1
                if member.over:
                    continue
                place = self._place_of(uid)
                if uid in self._assumed:
                    own += place is not None
                    strangers += place is None
                elif place is None:
                    guests += 1
                elif house.family.has_brothers and place.site is not site and place.found is None:
                    visitors.append(place)
            if visitors and room.owed + room.kept and self._stays(site.node):  # where they run was seen first
                for place in sorted(visitors, key=lambda one: one.uid):
                    self._swap(place, house, site)
                house.stale.add(room)  # once more for each of them at most: they are none any longer
            unnamed = max(0, room.count - places - guests)
            room.sure = max(0, room.owed + room.kept - own - max(0, strangers - unnamed))
            room.spare = max(0, unnamed - strangers)
            room.kept = min(room.kept, room.sure)
            room.open = room.sure + room.spare
        self._stray(room, strays)
        (house.nameless.add if room.spare else house.nameless.discard)(room)
        house.listed += room.listed - before[0]
        house.kept += room.kept - before[1]
        if before[2:] != (room.open > room.owed, room.open > 0):
            house.sorted = False

    def _stray(self, room: _Room, houses: Iterable[_House]) -> None:
        """Of these families are the pods that wait and have a place in the room of another one, each as often as it has such."""
        before, room.strays = room.strays, tuple(houses)
        for sign, some in ((-1, before), (1, room.strays)):
            for house in some:
                house.strays += sign
                if house.rooms:
                    self._mark(house, None)

    def _share(self, house: _House, changed: Iterable[_Room]) -> None:
        """Rooms hold what is owed for certain; places without a name are held for pods that wait, in order of name. O(rooms that changed or have such)."""
        seekers = max(0, house.waiting - house.strays - house.listed - house.kept)
        for room in changed:
            if room not in house.nameless:
                self._keep(room, room.sure)
        for room in sorted(house.nameless, key=lambda room: room.site.name):
            extra = min(seekers, room.spare)
            seekers -= extra
            self._keep(room, room.sure + extra)
        house.surplus = seekers

    @staticmethod
    def _open_nodes(house: _House) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Nodes with an open place that nobody listed waits for, and all with an open place, those first."""
        if not house.sorted:
            house.sorted = True
            if len(house.ordered) != len(house.rooms):
                house.ordered = tuple(room for _, room in sorted(house.rooms.items()))
            some = house.kept or house.nameless
            house.free = tuple([room for room in house.ordered if room.open > room.owed]) if some else ()
            free = (*filter(None, [room.site.node for room in house.free]),)
            others = [room.site.node for room in house.ordered if 0 < room.open <= room.owed]
            house.nodes = free, (*free, *filter(None, others))
        return house.nodes

    def _keep(self, room: _Room, held: int) -> None:
        if room.held != held:
            room.held = held
            if room.site.node:
                self._stale_holds.add(room.site.node)

    def _hold(self, name: str) -> Hold | None:
        """What is held on one node; None where nothing is, or the node is not known."""
        if name not in self._nodes:
            return None
        by_priority: dict[int, Resources] = {}
        due = EMPTY
        for site in self._sites_of_node.get(name, ()):
            if not site.live:
                continue
            for family, room in site.rooms.items():
                if room.held:
                    house = self._houses[family]
                    more = house.requests.scaled(room.held)
                    by_priority[house.priority] = by_priority.get(house.priority, EMPTY) + more
            due = due.maximum(self._due(site))
        if not by_priority:
            return None
        return Hold(by_priority.items(), self.ledger.room(name) - due)

    def _full(self, name: str) -> int:
        """How full a node is, 0 where it could be removed without moving anybody, is leaving, or is not known."""
        node = self._nodes.get(name)
        if node is None or node.leaving or node.disrupted:
            return 0
        return fullness(node.allocatable, self.ledger.used(name), self.ledger.daemons(name))

    def _due(self, site: _Site) -> Resources:
        """What a claim was made for beyond the pods that are there and those that are still to come: daemons to come.

        Nothing while the requests of a planned class are not known.
        """
        requests = self._claims[site.name].requests
        left = requests - self.ledger.used(site.node) if requests else EMPTY
        if not any(amount > 0 for amount in left.values()):
            return EMPTY
        for family, room in site.rooms.items():
            house = self._houses[family]
            if not house.known:
                return EMPTY
            left -= house.requests.scaled(max(0, room.count - room.here))
        return Resources.of({name: amount for name, amount in left.items() if amount > 0})


def fullness(allocatable: Resources, used: Resources, daemons: Resources) -> int:
    """How full a node is, by the scarcer of CPU and memory: 1 to 10, and 0 where there is nobody but daemons."""
    if used == daemons:
        return 0
    shares = [used.amount(name) / offered for name in ("cpu", "memory") if (offered := allocatable.amount(name)) > 0]
    return 1 + min(9, int(9 * max(0.0, *shares, 0.0)))


def beside(nodes: AbstractSet[str], supposed: Iterable[Supposed]) -> Mapping[str, Sequence[Resources]]:
    """What each pod takes that may be bound to one of these nodes in this moment, by node; O(nodes of all supposed)."""
    found: dict[str, list[Resources]] = {}
    for one in supposed:
        for node in one.nodes & nodes:
            found.setdefault(node, []).append(one.requests)
    return found


def _grew(old: Plan, new: Plan) -> bool:
    """Whether a plan has pods that it did not have."""
    had = {(entry.owner, entry.klass): entry for entry in old.pods}
    for entry in new.pods:
        before = had.get((entry.owner, entry.klass))
        if before is None or entry.count > before.count or not set(entry.uids) <= set(before.uids):
            return True
    return False
