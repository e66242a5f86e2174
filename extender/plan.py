"""The plan table: which pods have a place on which node, and how much room that holds back.

Fed by watch events, asked by the verbs; no I/O and no clock: times are arguments, in seconds of one monotonic
clock. Not thread-safe: the owner serialises calls (`extender.board`).

A *site* is the plan annotation of one NodeClaim; a Node's annotations are not read, its kubelet may write them. A *family*
is what a plan counts: the pods of one owner and one class. To whom a site owes room, and for how long, is decided by the rules that the
state has (`provisioner.state.promises`). Places are counted per family and site, and room is held

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
from itertools import filterfalse, islice
from typing import ClassVar, Final, NamedTuple

import msgspec

from extender.protocol import MAX_SCORE, encode_score
from provisioner.apis.plan import Plan
from provisioner.apis.pods import PodShape
from provisioner.state.ledger import RoomLedger
from provisioner.state.promises import VACANT_SECONDS, Family, Fate, ends_at, fate_of, first_seen
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
    def family(self) -> Family:
        """Its equals in plans."""
        return Family(self.owner, self.klass)

    @property
    def waiting(self) -> bool:
        """Whether kube-scheduler may still bind it."""
        return not self.node and not self.over


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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

    __slots__ = ("counts", "deadline", "live", "name", "node", "plan", "planned_at", "requests", "stated_at")

    def __init__(self, name: str, *, planned_at: float) -> None:
        self.name = name
        self.node = ""
        self.planned_at = planned_at
        self.stated_at = 0.0
        self.deadline = 0.0
        self.live = True
        self.plan = EMPTY_PLAN
        self.counts: dict[Family, int] = {}
        self.requests = EMPTY


class _Place:
    """The places of one family on one site: the pods that it names, by what became of them, and brothers that are bound there."""

    __slots__ = (
        "alive",
        "assumed",
        "away",
        "count",
        "guests",
        "held",
        "owed",
        "site",
        "swapped",
        "taken",
        "unnamed",
        "vacant",
        "visitors",
    )

    def __init__(self, site: _Site) -> None:
        self.site = site
        self.count = 0
        self.unnamed = 0  # of these, those without a name
        self.held = 0
        self.vacant = 0  # named, gone, and their successors are waited for
        self.clear()

    def clear(self) -> None:
        self.alive = 0  # named, wherever they are
        self.owed = 0  # named, and have found no place that stays
        self.away = 0  # named, and bound at the place of a brother
        self.visitors = 0  # bound here, and named elsewhere
        self.guests = 0  # bound here, and named nowhere
        self.assumed = 0  # those of them that no watch has told of
        self.taken = 0  # places that visitors have
        self.swapped = 0  # places of those that are away, for brothers whose own were taken

    @property
    def spare(self) -> int:
        """Places that are no named pod's."""
        unnamed = max(0, self.unnamed - self.guests + self.assumed)
        return max(0, min(unnamed + self.vacant, self.count - self.alive) - self.assumed)

    @property
    def kept(self) -> int:
        """Those of them that are kept for successors."""
        return min(self.vacant, self.spare)

    @property
    def open(self) -> int:
        return self.owed + self.spare + self.swapped - self.taken


_NOWHERE: Final = _Place(_Site("", planned_at=0.0))
"""The place of a pod that gave its own away, and has lost what it got."""
_NOWHERE.site.live = False


class _Tally:
    """The places of one family on all its sites, and who is waiting for them."""

    def __init__(self) -> None:
        self.places: dict[str, _Place] = {}  # by claim
        self.live: tuple[_Place, ...] = ()  # those of live sites, by claim
        self.homes: dict[str, _Place] = {}  # pod UID -> the live place that lists it
        # UID of a pod that is gone -> its place, and until when; oldest first
        self.vacant: dict[str, tuple[_Place, float | None]] = {}
        self.seen: set[str] = set()  # of these, those that were there once
        # UID of a pod -> the place that it has, and the UID of the pod in whose stead
        self.heirs: dict[str, tuple[_Place, str]] = {}
        # UID of a listed pod -> it waited and was bound (True), or its node is gone under it (False)
        self.settled: dict[str, bool] = {}
        self.unlisted = 0  # waiting pods that no live plan lists
        self.unnamed = False  # whether a live plan counts more pods than it names
        self.visitors = 0  # pods at places of brothers
        self.known = False  # whether a pod of the family was seen, so that its requests are known
        self.requests = EMPTY
        self.priority = 0
        self.changed: set[_Place] | None = None  # places to look at anew; None for all
        self.surplus = 0  # waiting pods that there is no place for
        self.sorted = False  # whether the next two are up to date
        self.free: tuple[_Place, ...] = ()  # open places that nobody listed waits for
        self.swaps: tuple[_Place, ...] = ()  # the other open places
        self.recount = True  # sites changed: counts have to be made anew

    @property
    def mixed(self) -> bool:
        """Whether a place may be another pod's than the one that it is listed for."""
        return bool(self.unlisted or self.visitors or self.vacant)


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
        self._initialized_at: dict[str, float] = {}  # claim -> when its node was
        self._going: set[str] = set()  # nodes that do not stay
        self._elsewhere: dict[str, set[Family]] = {}  # node -> families of which listed pods were bound there
        self._nodes_of_provider: dict[str, set[str]] = {}
        self._node_of_uid: dict[str, str] = {}  # by UID of the claim that owns it
        self._claim_of_provider: dict[str, str] = {}
        self._claim_of_uid: dict[str, str] = {}
        self._claim_of_node: dict[str, str] = {}  # as claims say it
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
            if member.over:
                self._vacate(member.uid)
            elif member.node:
                self._bound(member.uid, member.node)
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
        if not member.over and (tally := self._tallies.get(member.family)) is not None and tally.vacant:
            self._take_over(tally, member)

    def assume(self, uid: str, node: str, now: float) -> None:
        """kube-scheduler may bind the pod to this node alone: until the watch tells, nobody else gets its place.

        Without this a brother's place is given twice: kube-scheduler asks about the next pod long before the binding shows.
        """
        member = self._members.get(uid)
        if member is not None and member.waiting:
            self._assumed[uid] = (now + ASSUMED_SECONDS, member)
            self._enter_pod(msgspec.structs.replace(member, node=node))

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
            self._enter_pod(self._assumed[each][1])
            del self._assumed[each]

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._supposed.pop(uid, None)
        self._vacate(uid)
        old = self._members.pop(uid, None)
        if old is not None:
            self._forget(old)
            if (tally := self._tallies.get(old.family)) is not None:
                tally.heirs.pop(uid, None)
                tally.settled.pop(uid, None)

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
        if old is not None:
            self._unmap_node(old)
        if facts.provider_id:
            self._nodes_of_provider.setdefault(facts.provider_id, set()).add(facts.name)
        if facts.claim_uid:
            self._node_of_uid[facts.claim_uid] = facts.name
        for claim in sorted(claims):
            self._refresh_claim(claim, now)
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
        self._unmap_node(old)
        for claim in sorted(claims):
            self._refresh_claim(claim, now)
        self._leave_behind(name)
        self._judge_node(name)
        self._elsewhere.pop(name, None)
        self._stale_holds.add(name)

    def set_claim(self, facts: ClaimFacts, now: float) -> None:
        """A NodeClaim is there, or its facts changed."""
        old = self._claims.get(facts.name)
        if old == facts:
            return
        if old is None:
            self._planned_at[facts.name] = min(facts.planned_at, now)
        else:
            self._unmap_claim(old)
            if not old.plan.pods:
                self._planned_at[facts.name] = now  # planned later than it was made
        self._claims[facts.name] = facts
        if facts.initialized_at is not None and facts.name not in self._initialized_at:
            self._initialized_at[facts.name] = first_seen(old is not None, facts.initialized_at, now)
        if not facts.disrupted:
            self._disrupted_at.pop(facts.name, None)
        else:
            self._disrupted_at.setdefault(facts.name, now)
        if facts.provider_id:
            self._claim_of_provider[facts.provider_id] = facts.name
        if facts.uid:
            self._claim_of_uid[facts.uid] = facts.name
        if facts.node:
            self._claim_of_node[facts.node] = facts.name
        self._refresh_claim(facts.name, now)

    def drop_claim(self, name: str) -> None:
        """A NodeClaim is gone, and its plan with it."""
        old = self._claims.get(name)
        if old is not None:
            self._leave_behind(self._node_of(old))
            del self._claims[name]
            self._unmap_claim(old)
            del self._planned_at[name]
            self._disrupted_at.pop(name, None)
            self._initialized_at.pop(name, None)
            self._drop_site(name)
            self._judge_node(self._node_of(old))

    def expire(self, now: float) -> list[str]:
        """End the plans whose time is over, and places whose pods have no successor; the names of the claims of the plans."""
        for family, tally in self._tallies.items():
            for uid, (place, until) in list(tally.vacant.items()):
                if until is None:  # whoever told that it is gone had no clock
                    tally.vacant[uid] = place, now + VACANT_SECONDS
                elif now >= until:
                    self._occupy(tally, uid)
                    self._stale_tallies.add(family)
                    if tally.unlisted and (heir := self._seeker(family, tally)):
                        tally.heirs[heir] = place, uid
                        tally.recount = True
        due = [site for site in self._sites.values() if site.live and now >= site.deadline]
        for site in due:
            self._judge_life(site, now)
        return [site.name for site in due if not site.live]

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
            others = () if coming or not member.owner else self._others(tally, home)
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
        home, node = tally.homes.get(member.uid), member.node
        if member.over:
            return
        if home is None:
            here = self._place_on(tally, node)
            if not node:
                tally.unlisted += sign
            elif here is not None:
                here.guests += sign
                here.assumed += sign * (member.uid in self._assumed)
                tally.changed = None
            return
        home.alive += sign
        if tally.changed is not None:
            tally.changed.add(home)
        if not node:
            home.owed += sign
        elif node != home.site.node:
            self._elsewhere.setdefault(node, set()).add(member.family)
            if self._is_owed(tally, member, home):
                home.owed += sign
            elif member.owner and (here := self._place_on(tally, node)) is not None:
                home.away += sign
                here.visitors += sign
                tally.visitors += sign

    def _stays(self, node: str) -> bool:
        return node not in self._going

    def _place_on(self, tally: _Tally, node: str) -> _Place | None:
        """The place of a family on a node."""
        sites = self._sites_of_node.get(node, ())
        return next((tally.places[site.name] for site in sites if site.live and site.name in tally.places), None)

    def _vacate(self, uid: str) -> None:
        """A pod is gone: if it was owed a place, that waits for its successor; so does one that it had from another."""
        if uid in self._assumed:
            self._enter_pod(self._assumed[uid][1])
            del self._assumed[uid]
        member = self._members.get(uid)
        tally = self._tallies.get(member.family) if member is not None else None
        if member is None or tally is None or not member.owner:
            return
        if tally.recount:
            self._count(member.family, tally)
        home = tally.homes.get(uid)
        fate = fate_of(member.node, self._stays, over=member.over)
        if home is None and fate is Fate.WAITS and tally.vacant:
            before = next(iter(tally.vacant))
            tally.vacant[before] = tally.vacant.pop(before)[0], None
        elif home is not None and self._is_owed(tally, member, home):
            tally.seen.add(uid)
            tally.vacant[uid] = home, None
            home.vacant += 1

    def _leave_behind(self, node: str) -> None:
        """A node is gone, or its claim is: until pods that were to leave it are gone, too, their places are kept."""
        if node not in self._going:
            return
        self._settle()
        for family in self._elsewhere.get(node, ()):
            tally = self._tallies.get(family)
            if tally is None:
                continue
            for uid, home in tally.homes.items():
                member = self._members.get(uid)
                if member is not None and member.node == node and self._is_owed(tally, member, home):
                    tally.settled[uid] = False

    def _take_over(self, tally: _Tally, member: Member) -> None:
        """A pod is there: it may be one that was missed, or the successor of one that was seen to go, whose place it has from now on."""
        if member.uid in tally.vacant:
            self._occupy(tally, member.uid)
        elif member.waiting and member.uid not in self._assumed:
            if tally.recount:
                self._count(member.family, tally)
            gone = next((uid for uid in tally.vacant if uid in tally.seen), "") if member.uid not in tally.homes else ""
            if gone:
                tally.heirs[member.uid] = tally.vacant[gone][0], gone
                self._occupy(tally, gone)
                tally.recount = True
                self._stale_tallies.add(member.family)

    def _seeker(self, family: Family, tally: _Tally) -> str:
        """UID of a pod that waits and has no place, "" for none. O(pods of the family)."""
        if tally.recount:
            self._count(family, tally)
        waiting = (uid for uid, one in self._families.get(family, {}).items() if one.waiting and uid not in tally.homes)
        return min(waiting, default="")

    def _bound(self, uid: str, node: str) -> None:
        """A pod that waited is bound, whoever was told to bind it: it has the place that it was owed, or that of a brother, who gets its own instead."""
        member = self._assumed[uid][1] if uid in self._assumed else self._members.get(uid)
        tally = self._tallies.get(member.family) if member is not None else None
        if member is None or tally is None or not member.waiting:
            return
        if tally.recount:
            self._count(member.family, tally)
        here, home = self._place_on(tally, node), tally.homes.get(uid)
        if home is None:
            heir_of = next(
                (gone for gone, (place, _) in tally.vacant.items() if place is here), next(iter(tally.vacant), "")
            )
            if heir_of:
                home = tally.vacant[heir_of][0]
                tally.heirs[uid] = home, heir_of
                self._occupy(tally, heir_of)
            tally.recount = True  # it is assumed no longer
            self._stale_tallies.add(member.family)
        if home is not None:
            tally.settled[uid] = True
            if here is not None and here is not home and member.owner:
                self._swap(tally, uid, home, here)
                tally.recount = True

    def _swap(self, tally: _Tally, uid: str, home: _Place, here: _Place) -> None:
        """A pod took a place here: whoever was owed it has the pod's own from now on."""
        for other, place in tally.homes.items():
            member = self._members.get(other)
            if place is here and other != uid and member is not None and self._is_owed(tally, member, here):
                tally.heirs |= {uid: (here, other), other: (home, uid)}
                return
        for other, (place, until) in tally.vacant.items():
            if place is here:
                tally.heirs[uid], tally.vacant[other] = (here, other), (home, until)
                return

    def _is_owed(self, tally: _Tally, member: Member, home: _Place) -> bool:
        """Whether a pod that is listed has found no place that stays; one that waited and was bound has, whatever becomes of its node."""
        fate = fate_of(member.node, self._stays, over=member.over)
        if fate in (Fate.FOUND, Fate.LEAVES):
            return member.node != home.site.node and not tally.settled.get(member.uid, fate is Fate.FOUND)
        return fate is Fate.WAITS

    @staticmethod
    def _occupy(tally: _Tally, uid: str) -> None:
        """A place does not wait for a successor any longer."""
        tally.seen.discard(uid)
        place, _ = tally.vacant.pop(uid, (None, None))
        if place is not None:
            place.vacant -= 1
            tally.changed = None

    # ------------------------------------------------------------------- sites

    def _claims_of(self, node: NodeFacts) -> set[str]:
        """Names of the claims that may belong to a node."""
        found = {
            self._claim_of_uid.get(node.claim_uid, ""),
            self._claim_of_provider.get(node.provider_id, ""),
            self._claim_of_node.get(node.name, ""),
        }
        return found & self._claims.keys()

    def _unmap_node(self, node: NodeFacts) -> None:
        _unmap(self._node_of_uid, node.claim_uid, node.name)
        there = self._nodes_of_provider.get(node.provider_id, set())
        there.discard(node.name)
        if not there:
            self._nodes_of_provider.pop(node.provider_id, None)

    def _unmap_claim(self, claim: ClaimFacts) -> None:
        _unmap(self._claim_of_provider, claim.provider_id, claim.name)
        _unmap(self._claim_of_uid, claim.uid, claim.name)
        _unmap(self._claim_of_node, claim.node, claim.name)

    def _refresh_claim(self, name: str, now: float) -> None:
        """Bring the site of a claim up to date with the claim and with its node."""
        claim = self._claims[name]
        where = self._node_of(claim)
        site = self._site(name, claim.plan, now)
        if site is not None:
            site.requests, site.stated_at = claim.requests, claim.planned_at
            self._move(site, where)
            self._judge_life(site, now)
        self._judge_node(where)

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
        for family in self._elsewhere.pop(name, ()):
            if (tally := self._tallies.get(family)) is not None:
                tally.recount = True
                self._stale_tallies.add(family)

    def _node_of(self, claim: ClaimFacts) -> str:
        """The node of a claim, "" while there is none: the claim's word first, a provider ID only where one Node has it.

        Names come again: a Node of another instance is not meant.
        """
        named = self._nodes.get(claim.node)
        if named is not None and (
            named.provider_id == claim.provider_id or not (named.provider_id and claim.provider_id)
        ):
            return claim.node
        owned = self._node_of_uid.get(claim.uid)
        if owned:
            return owned
        same = self._nodes_of_provider.get(claim.provider_id, ())
        return next(iter(same)) if len(same) == 1 else ""

    def _site(self, name: str, plan: Plan, now: float) -> _Site | None:
        site = self._sites.get(name)
        if not plan.pods:
            for family in site.counts if site is not None else ():
                self._forget_former(self._tallies[family], self._tallies[family].places[name], frozenset())
            self._drop_site(name)
            return None
        if site is None:
            site = self._sites[name] = _Site(name, planned_at=self._planned_at[name])
            self._enter(site, plan)
        elif site.plan != plan:
            # its time begins anew; pods taken off it do not prolong it
            if plan.at != site.plan.at or _grew(site.plan, plan):
                site.planned_at = now
            self._enter(site, plan)
        return site

    def _enter(self, site: _Site, plan: Plan) -> None:
        counts: dict[Family, int] = {}
        unnamed: dict[Family, int] = {}
        before = {uid for entry in site.plan.pods for uid in entry.uids} if plan.at == site.plan.at else set()
        for entry in plan.pods:
            family = Family(entry.owner, entry.klass)
            counts[family] = counts.get(family, 0) + entry.count
            unnamed[family] = unnamed.get(family, 0) + entry.count - len(entry.uids)
        for family in site.counts.keys() - counts.keys():
            self._withdraw(site, family)
        named = {uid for entry in plan.pods for uid in entry.uids}
        for family, count in counts.items():
            tally = self._tallies.setdefault(family, _Tally())
            place = tally.places.setdefault(site.name, _Place(site))
            place.count, place.unnamed = count, unnamed[family]
            self._forget_former(tally, place, named)
        site.plan, site.counts = plan, counts
        for entry in plan.pods:
            tally = self._tallies[Family(entry.owner, entry.klass)]
            for uid in entry.uids:
                member = self._members.get(uid)
                if uid in before:
                    continue
                tally.settled.pop(uid, None)
                tally.heirs.pop(uid, None)
                # not there yet, or gone: then its successor is waited for
                if entry.owner and (member is None or (member.over and not member.node)):
                    tally.vacant[uid] = tally.places[site.name], None
        self._mark_site(site)

    def _forget_former(self, tally: _Tally, place: _Place, named: AbstractSet[str]) -> None:
        """The plan of a place is another one: what it says no more of pods that are gone, and of others in their stead, is over."""
        stale = {uid for entry in place.site.plan.pods for uid in entry.uids} - named
        tally.heirs = {
            uid: one if one[0] is not place or one[1] in named else (_NOWHERE, one[1])
            for uid, one in tally.heirs.items()
            if uid not in stale
        }
        former = [uid for uid, (kept, _) in tally.vacant.items() if kept is place and uid not in named]
        for uid in former[place.unnamed :]:
            self._occupy(tally, uid)

    def _withdraw(self, site: _Site, family: Family) -> None:
        tally = self._tallies[family]
        gone = tally.places.pop(site.name)
        tally.vacant = {uid: one for uid, one in tally.vacant.items() if one[0] is not gone}
        tally.seen &= tally.vacant.keys()
        if tally.places:
            tally.recount = True
            self._stale_tallies.add(family)
        else:
            del self._tallies[family]
            self._stale_tallies.discard(family)

    def _drop_site(self, name: str) -> None:
        site = self._sites.pop(name, None)
        if site is not None:
            site.live = False
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
        """When does a plan end, and is it over?"""
        claim, node = self._claims[site.name], self._nodes.get(site.node)
        site.deadline = ends_at(site.planned_at, self._initialized_at.get(site.name), site.plan.hold_seconds)
        void = (
            claim.leaving
            or claim.disrupted
            or (node is not None and (node.leaving or (node.disrupted and claim.interrupted)))
        )
        live = not void and (now < site.deadline or self._is_kept(site))
        if site.live != live:
            site.live = live
            self._mark_site(site)
        if live and not site.node:
            self._nodeless.add(site.name)
        else:
            self._nodeless.discard(site.name)

    def _is_kept(self, site: _Site) -> bool:
        """Whether a pod that the plan names runs on a candidate of a command, which may wait long for a budget, or its successor is to come.

        O(its pods + candidates + places that are vacant).
        """
        if any(place.site is site for family in site.counts for place, _ in self._tallies[family].vacant.values()):
            return True
        candidates = {self._node_of(self._claims[claim]) for claim in self._disrupted_at} - {""}
        members = (self._members.get(uid) for entry in site.plan.pods for uid in entry.uids) if candidates else ()
        return any(one is not None and not one.over and one.node in candidates for one in members)

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
        if now >= site.planned_at + site.plan.hold_seconds:
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
                self._stale_tallies.discard(family)
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
        homes: dict[str, _Place] = {}
        for place in sorted(tally.live, key=lambda place: place.site.stated_at):  # the latest plan of a pod counts
            for entry in place.site.plan.pods:
                if entry.owner == family.owner and entry.klass == family.klass:
                    homes.update(dict.fromkeys(entry.uids, place))
        for uid, (place, _) in tally.heirs.items():
            if place.site.live:
                homes[uid] = place
            else:
                homes.pop(uid, None)
        tally.homes = homes
        for place in tally.places.values():
            place.clear()
            place.vacant = 0
            if place.held and not place.site.live:
                place.held = 0
        for place, _ in tally.vacant.values():
            place.vacant += 1
        tally.unlisted = tally.visitors = 0
        tally.unnamed = any(place.unnamed for place in tally.live)
        tally.changed = None
        for member in self._families.get(family, {}).values():
            self._weigh(member, 1)

    def _share(self, tally: _Tally) -> None:
        """Who is owed a place by each site: the pods that it lists, but for brothers' exchanges, then others in order of name.

        O(changed places) while every pod has its own, else O(sites of the family).
        """
        if tally.changed is not None and not tally.mixed:
            for place in tally.changed:
                if place.site.live:
                    self._keep(place, place.owed)
            tally.surplus = 0
        else:
            swaps, seekers = 0, tally.unlisted
            for place in tally.live:
                place.taken = min(place.visitors, place.owed + place.kept)
                swaps += place.taken
                seekers -= place.kept
            seekers = max(0, seekers)
            for place in tally.live:
                place.swapped = min(place.away, swaps)
                swaps -= place.swapped
                extra = min(seekers, place.spare - place.kept)
                seekers -= extra
                self._keep(place, place.owed + place.kept - place.taken + place.swapped + extra)
            tally.surplus = seekers
        tally.sorted = False
        # Places that got more than their own pods have to be looked at again when nobody else's place is anybody's any longer.
        tally.changed = None if tally.mixed else set()

    @staticmethod
    def _sort(tally: _Tally) -> None:
        """Which places are open, and whether somebody listed waits for them."""
        if not tally.sorted:
            tally.sorted = True
            if not tally.mixed and not tally.unnamed:
                tally.free, tally.swaps = (), tuple(place for place in tally.live if place.owed)
                return
            tally.free = tuple(place for place in tally.live if place.open > place.owed)
            tally.swaps = tuple(place for place in tally.live if 0 < place.open <= place.owed)

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
        if node is None or node.leaving or node.disrupted:
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
        and old.over == new.over
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


def _unmap(table: dict[str, str], key: str, name: str) -> None:
    if key and table.get(key) == name:
        del table[key]
