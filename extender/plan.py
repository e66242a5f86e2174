"""The plan table: which pods have a place on which node, and how much room that holds back.

Fed by watch events, asked by the verbs; no I/O and no clock: times are arguments, in seconds of one monotonic
clock. Not thread-safe: the owner serialises calls (`extender.board`).

A *site* is the plan annotation of one NodeClaim; a Node's annotations are not read, its kubelet may write them. A *family*
is what a plan counts: the pods of one owner and one class, which are interchangeable. Places are counted per family and
site, so that a recreated pod takes its brother's place, and room is held only for as many pods as are still waiting:

- a place is *open* until a pod of the family is bound to the site's node;
- a waiting pod that the plan lists by UID belongs to its own site, its *home*;
- waiting pods without a home, or whose home was filled by a brother, share the open places that nobody listed waits for;
- a pod that kube-scheduler was just told to bind to one node counts as bound there, until the watch tells what became of it;
- one that may be bound to any of several counts on each of those whose room is held, as long (`PlanTable.suppose`).

A site ends `holdSeconds` of its plan after its node became ready (or after the plan last changed), when its node or claim is being
deleted, and with the annotation.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import filterfalse, islice
from typing import ClassVar, Final, NamedTuple

import msgspec

from extender.protocol import MAX_SCORE, encode_score
from provisioner.apis.plan import Plan
from provisioner.apis.pods import PodShape
from provisioner.state.joining import Instances, Sharers
from provisioner.state.ledger import RoomLedger
from provisioner.state.promises import Family
from provisioner.values.resources import EMPTY, Resources

SETTLE_SECONDS: Final = 2.0
"""How long a node that just became schedulable still counts as coming: kube-scheduler sees it a little later or earlier."""

ASSUMED_SECONDS: Final = 30.0
"""How long a pod that was sent to a node counts as bound there before any watch says so: 20 ms, many seconds where the
control plane is slow. Whatever else becomes of the pod, kube-scheduler asks about it again, or it is gone."""

MAX_SUPPOSED: Final = 20_000
"""Pairs of a pod and a held node that it may be bound to, before the watch tells; beyond, the oldest pods are forgotten."""

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


class Member(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
        idle: being deleted, or gated; kube-scheduler does not bind it.
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
    idle: bool = False
    daemon: bool = False
    shape: PodShape | None = None

    @property
    def family(self) -> Family:
        """Its equals in plans."""
        return Family(self.owner, self.klass)

    @property
    def waiting(self) -> bool:
        """Whether kube-scheduler may still bind it."""
        return not self.node and not self.finished and not self.idle


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one node.

    Attributes:
        name: of the node.
        allocatable: what it offers to pods.
        provider_id: as the claim's status has it.
        claim_uid: UID of the NodeClaim that owns it, "" where no owner reference says so.
        schedulable: ready, and without taints that fall by themselves.
        ready_at: when it became ready; None while it is not.
        leaving: being deleted or disrupted; whatever is planned on it is void.
        avoided: kube-scheduler would rather have pods elsewhere (a PreferNoSchedule taint).
        problem: what of it could not be read and is left out, "" for nothing.
    """

    name: str
    allocatable: Resources = EMPTY
    provider_id: str = ""
    claim_uid: str = ""
    schedulable: bool = False
    ready_at: float | None = None
    leaving: bool = False
    avoided: bool = False
    problem: str = ""


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one NodeClaim.

    Attributes:
        name: of the claim.
        uid: of the claim.
        planned_at: when it was created, or pods were planned onto its node since, as it says.
        node: name of its node, "" while the claim does not say.
        provider_id: "" until launched.
        leaving: being deleted; its plan is void.
        disrupted: a disruption command has it as a candidate; its plan is void.
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


class Standing(NamedTuple):
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


NO_STANDING: Final = Standing()


class _Site:
    """The plan of one claim. `node` is "" until the claim's node is known."""

    __slots__ = (
        "born_at",
        "changed_at",
        "counts",
        "deadline",
        "leaving",
        "live",
        "name",
        "node",
        "plan",
        "requests",
    )

    def __init__(self, name: str, *, born_at: float) -> None:
        self.name = name
        self.node = ""
        self.born_at = born_at
        self.changed_at = born_at
        self.deadline: float | None = None
        self.live = True
        self.leaving = False
        self.plan = EMPTY_PLAN
        self.counts: dict[Family, int] = {}
        self.requests = EMPTY


class _Place:
    """The places of one family on one site."""

    __slots__ = ("count", "held", "listed", "site", "taken")

    def __init__(self, site: _Site, count: int) -> None:
        self.site = site
        self.count = count
        self.taken = 0  # bound to the site's node
        self.listed = 0  # waiting, and listed by this site
        self.held = 0  # waiting pods that a place is kept for

    @property
    def open(self) -> int:
        return max(0, self.count - self.taken)

    @property
    def displaced(self) -> int:
        return max(0, self.listed - self.open)


class _Tally:
    """The places of one family on all its sites, and who is waiting for them."""

    __slots__ = (
        "changed",
        "displaced",
        "free",
        "homes",
        "known",
        "live",
        "places",
        "priority",
        "recount",
        "requests",
        "sorted",
        "surplus",
        "swaps",
        "unlisted",
    )

    def __init__(self) -> None:
        self.places: dict[str, _Place] = {}  # by claim
        self.live: tuple[_Place, ...] = ()  # those of live sites, by claim
        self.homes: dict[str, _Place] = {}  # pod UID -> the live place that lists it
        self.unlisted = 0  # waiting pods that no live plan lists
        self.displaced = 0  # waiting pods whose home has fewer open places than pods it lists
        self.known = False  # whether a pod of the family was seen, so that its requests are known
        self.requests = EMPTY
        self.priority = 0
        self.changed: set[_Place] | None = None  # places to look at anew; None for all
        self.surplus = 0  # waiting pods that there is no place for
        self.sorted = False  # whether the next two are up to date
        self.free: tuple[_Place, ...] = ()  # open places that nobody listed waits for
        self.swaps: tuple[_Place, ...] = ()  # the other open places
        self.recount = True  # sites changed: counts have to be made anew


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
    """See the module."""

    def __init__(self) -> None:
        self.ledger = RoomLedger()
        self._members: dict[str, Member] = {}  # by UID
        self._assumed: dict[str, tuple[float, Member]] = {}  # by UID: until when, and what the watch told; oldest first
        self._supposed: dict[str, Supposed] = {}  # by UID; oldest first
        self._families: dict[Family, dict[str, Member]] = {}
        self._nodes: dict[str, NodeFacts] = {}
        self._schedulable_at: dict[str, float] = {}
        self._claims: dict[str, ClaimFacts] = {}
        self._planned_at: dict[str, float] = {}  # claim -> when its plan appeared, as far as was seen
        self._disrupted_at: dict[str, float] = {}  # claim -> when a command was first seen on it
        self._instances = Instances()
        self._owned = Sharers()  # nodes by UID of the claim that owns them
        self._owners = Sharers()  # claims by UID
        self._namers = Sharers()  # claims by the node that they name
        self._sites: dict[str, _Site] = {}  # by claim
        self._sites_of_node: dict[str, list[_Site]] = {}
        self._nodeless: set[str] = set()  # claims of live sites without a node
        self._tallies: dict[Family, _Tally] = {}
        self._stale_tallies: set[Family] = set()
        self._stale_holds: set[str] = set()
        self._holds: dict[str, Hold] = {}
        self._avoided: set[str] = set()  # nodes
        self._fullness = _Fullness()

    def __repr__(self) -> str:
        return f"<PlanTable: {len(self._nodes)} nodes, {len(self._members)} pods, {len(self._sites)} plans, {len(self.holds)} held>"

    # ------------------------------------------------------------------ events

    def set_pod(self, member: Member) -> None:
        """A pod is there, or its facts changed. That it still waits does not end what is assumed of it: watches lag."""
        assumed = self._assumed.get(member.uid)
        if assumed is not None and member.waiting:
            self._assumed[member.uid] = (assumed[0], member)
            self._enter_pod(msgspec.structs.replace(member, node=self._members[member.uid].node))
        else:
            self._assumed.pop(member.uid, None)
            self._enter_pod(member)
        if not member.waiting:
            self._supposed.pop(member.uid, None)

    def _enter_pod(self, member: Member) -> None:
        old = self._members.get(member.uid)
        if old is None or not _same(old, member):
            if old is not None:
                self._forget(old)
            if member.node and not member.finished:
                self.ledger.bind(member.uid, member.node, member.requests, daemon=member.daemon)
                self._stale_holds.add(member.node)
            self._weigh(member, 1)
        self._members[member.uid] = member
        self._families.setdefault(member.family, {})[member.uid] = member

    def assume(self, uid: str, node: str, now: float) -> None:
        """kube-scheduler may bind the pod to this node alone: until the watch tells, nobody else gets its place.

        Without this a brother's place is given twice: kube-scheduler asks about the next pod long before the binding shows.
        """
        member = self._members.get(uid)
        if member is not None and member.waiting:
            self._enter_pod(msgspec.structs.replace(member, node=node))
            self._assumed[uid] = (now + ASSUMED_SECONDS, member)

    def suppose(self, member: Member, nodes: frozenset[str], now: float) -> None:
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
        self._assumed.pop(uid, None)
        self._supposed.pop(uid, None)
        old = self._members.pop(uid, None)
        if old is not None:
            self._forget(old)

    def set_node(self, facts: NodeFacts, now: float) -> None:
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
        if not facts.disrupted:
            self._disrupted_at.pop(facts.name, None)
        else:
            self._disrupted_at.setdefault(facts.name, now)
        self._say(facts.name, facts.provider_id, facts.uid, facts.node)
        self._refresh_claim(facts.name, now)

    def drop_claim(self, name: str) -> None:
        """A NodeClaim is gone, and its plan with it."""
        old = self._claims.pop(name, None)
        if old is not None:
            self._say(name, "", "", "")
            del self._planned_at[name]
            self._disrupted_at.pop(name, None)
            self._drop_site(name)

    def expire(self, now: float) -> list[str]:
        """End the plans whose time is over; the names of their claims."""
        ended = [
            site for site in self._sites.values() if site.live and site.deadline is not None and now >= site.deadline
        ]
        for site in ended:
            self._judge_life(site, now)
        return [site.name for site in ended]

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

    def company(self, pod: Member) -> frozenset[str]:
        """Nodes with pods of its owner and class, of a thousand the newest. Cost: O(its family, up to that)."""
        if not pod.owner:
            return frozenset()
        family = islice(reversed(self._families.get(pod.family, {}).values()), MOST_BROTHERS)
        return frozenset(one.node for one in family if one.node and not one.finished)

    @property
    def planned(self) -> int:
        """Waiting pods that a place is kept for."""
        self._settle()
        return sum(place.held for tally in self._tallies.values() for place in tally.places.values())

    @property
    def plans(self) -> int:
        """Plans that are live."""
        return sum(site.live for site in self._sites.values())

    def member(self, uid: str) -> Member | None:
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

    def standing(self, member: Member, now: float) -> Standing:
        """Where `member` may take a planned place at `now`.

        O(sites of its family); the pod need not have been seen before, as long as its family has places.
        """
        tally = self._tallies.get(member.family)
        if tally is None or member.node:
            return NO_STANDING
        self._settle()
        home = tally.homes.get(member.uid)
        if home is not None and home.open > 0:
            coming = home.site.name if self._coming(home.site, now) else ""
            # Not to a brother's place while its own is coming: places taken by pods that are just being bound do not
            # show here yet, so a crowd would follow into the first node that opens.
            others = () if coming else self._others(tally, home)
            return Standing(home.site.node, others, coming)
        coming = ""
        self._sort(tally)
        if not tally.surplus:
            coming = next((place.site.name for place in tally.free if self._coming(place.site, now)), "")
        return Standing("", self._others(tally, home), coming)

    def _others(self, tally: _Tally, home: _Place | None) -> tuple[str, ...]:
        """Nodes with an open place that is not at `home`; brothers' places only for pods that have one to give."""
        self._sort(tally)
        places = (*tally.free, *tally.swaps) if home is not None else tally.free
        return tuple(place.site.node for place in places if place.site.node and place is not home)

    # -------------------------------------------------------------------- pods

    def _forget(self, old: Member) -> None:
        """Take out what an earlier state of a pod counted for."""
        self._weigh(old, -1)
        family = self._families[old.family]
        family.pop(old.uid, None)
        if not family:
            del self._families[old.family]
        self.ledger.release(old.uid)
        if old.node:
            self._stale_holds.add(old.node)

    def _weigh(self, member: Member, sign: int) -> None:
        """Add a pod to the counts of its family, or take it off; a count that is due anyway is left to `_count`."""
        tally = self._tallies.get(member.family)
        if tally is None:
            return
        self._stale_tallies.add(member.family)
        if tally.recount:
            return
        tally.known, tally.requests, tally.priority = True, member.requests, member.priority
        home = tally.homes.get(member.uid)
        if member.waiting:
            if home is None:
                tally.unlisted += sign
            else:
                self._change(tally, home, listed=sign)
        elif member.node and not member.finished:
            place = self._place_taken(tally, home, member.node)
            if place is not None:
                self._change(tally, place, taken=sign)

    @staticmethod
    def _change(tally: _Tally, place: _Place, *, listed: int = 0, taken: int = 0) -> None:
        before = place.displaced
        place.listed += listed
        place.taken += taken
        if place.site.live:
            tally.displaced += place.displaced - before
        if tally.changed is not None:
            tally.changed.add(place)

    def _place_taken(self, tally: _Tally, home: _Place | None, node: str) -> _Place | None:
        """The place that a bound pod fills: its own, else one of its family on the node."""
        if home is not None and home.site.node == node:
            return home
        sites = self._sites_of_node.get(node, ())
        return next((tally.places[site.name] for site in sites if site.name in tally.places), None)

    # ------------------------------------------------------------------- sites

    def _claims_of(self, node: NodeFacts) -> set[str]:
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
        node = self._nodes.get(where)
        leaving = claim.leaving or claim.disrupted or (node is not None and node.leaving)
        site = self._site(name, plan=claim.plan, leaving=leaving, born_at=self._planned_at[name], now=now)
        if site is not None:
            site.requests = claim.requests
            self._move(site, where)
            self._judge_life(site, now)

    def _node_of(self, claim: ClaimFacts) -> str:
        """The node of a claim, "" while there is none: the claim's word first, a provider ID only where one Node has it."""
        if claim.node in self._nodes:
            return claim.node
        owned = self._owned.of(claim.uid)
        if len(owned) == 1:
            return next(iter(owned))
        pair = self._instances.pair(claim.provider_id)
        return pair[1] if pair is not None and pair[0] == claim.name else ""

    def _site(self, name: str, *, plan: Plan, leaving: bool, born_at: float, now: float) -> _Site | None:
        if not plan.pods:
            self._drop_site(name)
            return None
        site = self._sites.get(name)
        if site is None:
            site = self._sites[name] = _Site(name, born_at=born_at)
            self._enter(site, plan)
        elif site.plan != plan:
            if _grew(site.plan, plan):  # its time begins anew; pods taken off it do not prolong it
                site.changed_at, site.deadline = now, None
            self._enter(site, plan)
        site.leaving = leaving
        self._judge_life(site, now)
        return site

    def _enter(self, site: _Site, plan: Plan) -> None:
        counts: dict[Family, int] = {}
        for entry in plan.pods:
            family = Family(entry.owner, entry.klass)
            counts[family] = counts.get(family, 0) + entry.count
        for family in site.counts.keys() - counts.keys():
            self._withdraw(site, family)
        site.plan, site.counts = plan, counts
        for family, count in counts.items():
            tally = self._tallies.setdefault(family, _Tally())
            tally.places.setdefault(site.name, _Place(site, count)).count = count
        self._mark_site(site)

    def _withdraw(self, site: _Site, family: Family) -> None:
        tally = self._tallies[family]
        del tally.places[site.name]
        if tally.places:
            tally.recount = True
            self._stale_tallies.add(family)
        else:
            del self._tallies[family]
            self._stale_tallies.discard(family)

    def _drop_site(self, name: str) -> None:
        site = self._sites.pop(name, None)
        if site is not None:
            for family in site.counts:
                self._withdraw(site, family)
            self._move(site, "")
            self._nodeless.discard(name)

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
        """Fix the end of a plan once its node is ready (a node that flaps does not put it off); is it over?"""
        node = self._nodes.get(site.node)
        if site.deadline is None and node is not None and node.ready_at is not None:
            ready_at = min(node.ready_at, now)  # what a kubelet says of itself may lie in the future
            site.deadline = max(ready_at, site.changed_at) + site.plan.hold_seconds
        live = not site.leaving and (site.deadline is None or now < site.deadline)
        if site.live != live:
            site.live = live
            self._mark_site(site)
        if live and not site.node:
            self._nodeless.add(site.name)
        else:
            self._nodeless.discard(site.name)

    def _mark_site(self, site: _Site) -> None:
        """The site changed: count its families anew, and what its node holds."""
        for family in site.counts:
            tally = self._tallies.get(family)
            if tally is not None:
                tally.recount = True
                self._stale_tallies.add(family)
        if site.node:
            self._stale_holds.add(site.node)

    def _coming(self, site: _Site, now: float) -> bool:
        """Whether it is worth waiting for the site's node: soon there, and not for longer than a plan holds."""
        if now >= max(site.born_at, site.changed_at) + site.plan.hold_seconds:
            return False
        since = self._schedulable_at.get(site.node)
        return since is None or now < since + SETTLE_SECONDS

    # ------------------------------------------------------------------ counts

    def _settle(self) -> None:
        """Bring counts and holds up to date with the events since the last question."""
        while self._stale_tallies:
            family = self._stale_tallies.pop()
            tally = self._tallies[family]
            if tally.recount:
                self._count(family, tally)
            self._share(tally)
        stale, self._stale_holds = self._stale_holds, set()  # to pop from a set that was large once is slow
        for name in stale:
            hold = self._hold(name)
            if hold is None:
                self._holds.pop(name, None)
            else:
                self._holds[name] = hold
            self._fullness.set(name, self._full(name))

    def _count(self, family: Family, tally: _Tally) -> None:
        """Count anew who is bound and who waits, in one pass over the family."""
        tally.recount = False
        tally.live = tuple(place for _, place in sorted(tally.places.items()) if place.site.live)
        tally.homes = {
            uid: place
            for place in sorted(tally.live, key=lambda place: place.site.changed_at)  # the latest plan of a pod counts
            for entry in place.site.plan.pods
            if entry.owner == family.owner and entry.klass == family.klass
            for uid in entry.uids
        }
        for place in tally.places.values():
            place.taken = place.listed = 0
            if place.held and not place.site.live:
                place.held = 0
        tally.unlisted = tally.displaced = 0
        tally.changed = None
        for member in self._families.get(family, {}).values():
            self._weigh(member, 1)
        self._stale_tallies.discard(family)

    def _share(self, tally: _Tally) -> None:
        """Keep one place for every waiting pod: its own first, then what is left, in order of name.

        O(changed places) while every waiting pod has its own, else O(sites of the family).
        """
        seekers = tally.unlisted + tally.displaced
        if tally.changed is not None and not seekers:
            for place in tally.changed:
                if place.site.live:
                    self._keep(place, place.listed)
            tally.surplus = 0
        else:
            for place in tally.live:
                kept = min(place.open, place.listed)
                extra = min(seekers, place.open - kept)
                seekers -= extra
                self._keep(place, kept + extra)
            tally.surplus = seekers
        tally.sorted = False
        # Places that got more than their own pods have to be looked at again when nobody seeks any longer.
        tally.changed = set() if not (tally.unlisted + tally.displaced) else None

    @staticmethod
    def _sort(tally: _Tally) -> None:
        """Which places are open, and whether somebody listed waits for them."""
        if not tally.sorted:
            tally.sorted = True
            tally.free = tuple(place for place in tally.live if place.open > place.listed)
            tally.swaps = tuple(place for place in tally.live if 0 < place.open <= place.listed)

    def _keep(self, place: _Place, held: int) -> None:
        if place.held != held:
            place.held = held
            if place.site.node:
                self._stale_holds.add(place.site.node)

    def _hold(self, name: str) -> Hold | None:
        """What is held on one node; None where nothing is, or the node is not known."""
        if name not in self._nodes:
            return None
        by_priority: dict[int, Resources] = {}
        due = EMPTY
        for site in self._sites_of_node.get(name, ()):
            if not site.live:
                continue
            for family in site.counts:
                tally = self._tallies[family]
                held = tally.places[site.name].held
                if held:
                    by_priority[tally.priority] = by_priority.get(tally.priority, EMPTY) + tally.requests.scaled(held)
            due = due.maximum(self._due(site))
        if not by_priority:
            return None
        return Hold(by_priority.items(), self.ledger.room(name) - due)

    def _full(self, name: str) -> int:
        """How full a node is, 0 where it could be removed without moving anybody, is leaving, or is not known."""
        node = self._nodes.get(name)
        if node is None or node.leaving:
            return 0
        return fullness(node.allocatable, self.ledger.used(name), self.ledger.daemons(name))

    def _due(self, site: _Site) -> Resources:
        """What a claim was made for beyond its planned pods, less the daemons that are there: daemons still to come.

        Nothing while the requests of a planned class are not known.
        """
        left = site.requests - self.ledger.daemons(site.node)
        for family, count in site.counts.items():
            tally = self._tallies[family]
            if not tally.known:
                return EMPTY
            left -= tally.requests.scaled(count)
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


def _same(old: Member, new: Member) -> bool:
    """Whether two states of a pod differ in nothing but their version."""
    return (
        old.node == new.node
        and old.finished == new.finished
        and old.idle == new.idle
        and old.klass == new.klass
        and old.owner == new.owner
        and old.requests == new.requests
        and old.priority == new.priority
        and old.daemon == new.daemon
    )


def _grew(old: Plan, new: Plan) -> bool:
    """Whether a plan has pods that it did not have."""
    had = {(entry.owner, entry.klass): entry for entry in old.pods}
    for entry in new.pods:
        before = had.get((entry.owner, entry.klass))
        if before is None or entry.count > before.count or not set(entry.uids) <= set(before.uids):
            return True
    return False
