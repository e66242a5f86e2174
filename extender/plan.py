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
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from extender.facts import ClaimFacts, ExtenderNode, FamilyMember
from extender.families import Families
from extender.groups import GroupPasses, GroupPhase, SteeredGroups
from extender.holds import Supposed
from extender.nodes import JoinedNodes
from extender.places import PlaceKeeper
from extender.room import HeldRoom
from extender.sites import Site
from provisioner.apis.plan import Plan
from provisioner.state.promises import ends_at
from provisioner.state.room_ledger import RoomLedger

ASSUMED_SECONDS: Final = 30.0
"""How long a pod that was sent to a node counts as bound there before any watch says so: 20 ms, many seconds where the
control plane is slow. Whatever else becomes of the pod, kube-scheduler asks about it again, or it is gone."""

MAX_SUPPOSED: Final = 20_000
"""Pairs of a pod and a held node that it may be bound to, before the watch tells; beyond, the oldest pods are forgotten."""


class NodeArrival(enum.Enum):
    """How far a planned node is."""

    NONE = enum.auto()
    """It may never come: no instance was launched yet."""
    LAUNCHED = enum.auto()
    JOINED = enum.auto()
    """Its Node is there."""


class NodeStanding(NamedTuple):
    """Where one pod may take a planned place.

    Attributes:
        home: node of the site that lists it, "" where there is none, or none yet, or its place is taken.
        others: nodes with an open place of its family, best first: those that nobody listed waits for, then those
            of brothers, with whom it may swap. None while its own place is coming.
        coming: name of the claim that it has a place on and whose node is still becoming ready, "" for none.
        alone: no other node than `home` may pass, and none where that is "".
    """

    home: str = ""
    others: tuple[str, ...] = ()
    coming: str = ""
    alone: bool = False


NO_STANDING: Final = NodeStanding()


class PlanTable:
    """See the module. Here events enter, and plans begin and end; whoever asks about one part asks that.

    Attributes:
        ledger: who takes room.
        nodes: Nodes and NodeClaims.
        families: pods.
        places: who has which place.
        room: what is held, and how full nodes are.
        groups: which groups of pods get their nodes together.
        caught_up: whether what comes now is new.
    """

    def __init__(self) -> None:
        self.ledger, self.caught_up = RoomLedger(), False
        self.nodes, self.families = JoinedNodes(), Families(self.ledger)
        self.places = PlaceKeeper(self.families, self.nodes)
        self.room = HeldRoom(self.families, self.places, self.nodes, self.ledger)
        self.groups, self._passes = SteeredGroups(self.nodes, self.places), GroupPasses()
        self._seen = 0  # plans
        self._supposed: dict[str, Supposed] = {}  # by UID; oldest first

    def __repr__(self) -> str:
        sizes = f"{len(self.nodes)} nodes, {len(self.families)} pods, {len(self.places.sites)} plans"
        return f"<PlanTable: {sizes}, {len(self.room.holds)} held>"

    # -------------------------------------------------------------------- pods

    def set_pod(self, member: FamilyMember) -> None:
        """A pod is there, or its facts changed. That it still waits does not end what is assumed of it: watches lag."""
        if member.refused:
            self._recall_all(self._passes.failed(member.group, member.resource_version))
        known, assumed, came = self.families.members.get(member.uid), self.families.assumed, False
        if member.waiting and known is not None and member.uid in assumed:
            assumed[member.uid] = (assumed[member.uid][0], member)
            self._enter_pod(msgspec.structs.replace(member, node=known.node))
            return
        if member.over and known is not None and not known.over:  # not one that is gated still
            self._vacate(member.uid)
        elif member.node:
            came = self.places.bound(member.uid, member.node)
        if assumed.pop(member.uid, None) is not None and known is not None:
            self.places.mark_pod(known)
        self._enter_pod(member, came=came)
        if not member.waiting:
            self._supposed.pop(member.uid, None)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._supposed.pop(uid, None)
        old = self._vacate(uid)
        if old is not None:
            self._take_out(old)
            self.families.forget(old)

    def assume(self, uid: str, node: str, now: float, version: int = 0) -> None:
        """kube-scheduler may bind the pod to this node alone: until the watch tells, nobody else gets its place.

        Without this a brother's place is given twice: kube-scheduler asks about the next pod long before the binding shows.

        Args:
            uid: of the pod.
            node: where it may be bound.
            now: of the monotonic clock.
            version: of the pod as kube-scheduler knows it; of a single one nobody asks.
        """
        member = self.families.members.get(uid)
        if member is not None and member.waiting:
            self.families.assumed[uid] = (self._until(member, now, version), member)
            self._enter_pod(msgspec.structs.replace(member, node=node))

    def suppose(self, member: FamilyMember, nodes: frozenset[str], now: float, version: int = 0) -> None:
        """kube-scheduler may bind the pod, which no plan steers, to one of these nodes with held room, or to another one.

        It knows nothing of holds: until the watch tells where the pod went, the next one would be let into the same spare room, and
        both together take what is held. Arguments as of `assume`.
        """
        if nodes:
            self._supposed[member.uid] = Supposed(self._until(member, now, version), nodes, member.requests)
            while sum(len(one.nodes) for one in self._supposed.values()) > MAX_SUPPOSED:
                del self._supposed[next(iter(self._supposed))]

    def _until(self, member: FamilyMember, now: float, version: int) -> float:
        return self._passes.add(member, now, version) if member.group else now + ASSUMED_SECONDS

    @property
    def supposed(self) -> tuple[Supposed, ...]:
        """Pods that may be bound in this moment to one of several nodes with held room."""
        return tuple(self._supposed.values())

    def recall(self, uid: str, now: float) -> None:
        """kube-scheduler asks about this pod again, so it was not bound; the same holds of what was assumed too long ago."""
        self._supposed.pop(uid, None)
        for other in [other for other, one in self._supposed.items() if now >= one.until]:
            del self._supposed[other]
        over = [uid, *self._passes.overdue(now)]
        for other, (until, _) in self.families.assumed.items():
            if now < until:
                break
            over.append(other)
        self._recall_all(over)

    def _recall_all(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._passes.drop(uid)
            self._supposed.pop(uid, None)
            if uid in self.families.assumed:
                self._enter_pod(self.families.assumed.pop(uid)[1])

    def _enter_pod(self, member: FamilyMember, *, came: bool = False) -> None:
        old = self.families.members.get(member.uid)
        came = came or (old is not None and self.families.has_come(old))
        if old is None or old != msgspec.structs.replace(member, resource_version=old.resource_version):
            if old is not None:
                self._take_out(old)
            self.families.enter(member, came=came)
            self.places.mark_pod(member)
        else:
            self.families.renew(member, came=came)
        self.places.welcome(member)

    def _take_out(self, old: FamilyMember) -> None:
        self.places.mark_pod(old)
        self.families.take_out(old)

    def _vacate(self, uid: str) -> FamilyMember | None:
        """A pod is gone, or is over: nothing is assumed of it any longer, and its place is left; what was known of it."""
        if uid in self.families.assumed:
            self._enter_pod(self.families.assumed.pop(uid)[1])
        member = self.families.members.get(uid)
        if member is not None:
            self.places.vacate(member)
        return member

    # ------------------------------------------------------------------- nodes

    def set_node(self, facts: ExtenderNode, now: float) -> None:
        """A node is there, or its facts changed."""
        is_new = facts.name not in self.nodes
        claims = self.nodes.set_node(facts, now)
        if claims is not None:
            self.ledger.set_node(facts.name, facts.allocatable)
            self._node_changed(facts.name, claims, now, came_or_went=is_new)

    def drop_node(self, name: str, now: float) -> None:
        """A node is gone."""
        claims = self.nodes.drop_node(name)
        if claims is not None:
            self.ledger.drop_node(name)
            self._node_changed(name, claims, now, came_or_went=True)

    def set_claim(self, facts: ClaimFacts, now: float) -> None:
        """A NodeClaim is there, or its facts changed."""
        before = self.nodes.claims.get(facts.name)
        if self.nodes.set_claim(facts, now):
            self.groups.set_claim(facts, now if self.caught_up else min(facts.planned_at, now))
            self._refresh_claim(facts.name, now)
            for one in (before, facts):
                if one is not None and one.reserved:
                    self.families.mark_node(self.nodes.node_of(one))

    def drop_claim(self, name: str) -> None:
        """A NodeClaim is gone, and its plan with it."""
        old = self.nodes.claims.get(name)
        if old is not None:
            where = self.nodes.node_of(old)
            self.places.leave_behind(where)
            self.families.mark_node(where if old.reserved else "")
            self.nodes.drop_claim(name)
            self.groups.drop_claim(name)
            self.places.drop_site(name)
            self._judge_node(self.nodes.node_of(old))

    def _node_changed(self, name: str, claims: list[str], now: float, *, came_or_went: bool) -> None:
        self.families.mark_node(name)
        for claim in claims:
            self._refresh_claim(claim, now)
        for pod in self.families.pods_on(name) if came_or_went else ():
            self.places.mark_pod(pod)
        self._judge_node(name)

    def _judge_node(self, name: str) -> None:
        """Where it changed whether a node stays, pods that are bound there need other places, or do not any more."""
        if self.nodes.judge(name):
            for pod in sorted(self.families.pods_on(name), key=lambda pod: pod.uid):
                self.places.mark_pod(pod)
                self.places.stay(pod)

    # ------------------------------------------------------------------- plans

    def _refresh_claim(self, name: str, now: float) -> None:
        """Bring the site of a claim up to date with the claim and with its node."""
        claim = self.nodes.claims[name]
        where = self.nodes.node_of(claim)
        if not claim.plan.pods:
            self.places.drop_site(name)
        else:
            site = self.places.sites.get(name)
            if site is None:
                site = self.places.sites[name] = Site(name, planned_at=self.nodes.planned_at[name])
                self._stated(site, min(claim.planned_at, now))
            elif site.plan != claim.plan and (claim.plan.at != site.plan.at or _grew(site.plan, claim.plan)):
                site.planned_at = now  # its time begins anew; pods taken off it do not prolong it
                self._stated(site, now)
            self.places.move(site, where)
            self._judge_life(site, now)
            if site.plan != claim.plan and not site.over:
                self.places.enter(site, claim.plan)
                self._judge_life(site, now)
            site.plan = claim.plan
        self._judge_node(where)

    def _stated(self, site: Site, stated_at: float) -> None:
        """Pods were planned. What we see counts in that order: a claim may come to be after its pods are planned elsewhere; before us goes what plans say."""
        self._seen += self.caught_up
        site.over = False
        site.rank = self._seen, stated_at, site.name

    def _judge_life(self, site: Site, now: float) -> None:
        """When does a plan end, and is it over?"""
        claim, node = self.nodes.claims[site.name], self.nodes.nodes.get(site.node)
        site.deadline = ends_at(site.planned_at, self.nodes.initialized_at.get(site.name), claim.plan.hold_seconds)
        void = (
            claim.leaving
            or claim.disrupted
            or (node is not None and (node.leaving or (node.disrupted and claim.interrupted)))
        )
        live = not void and (now < site.deadline or (not site.over and self._is_kept(site)))
        self.places.set_live(site, live=live)
        self.groups.changed(site.name)

    def _is_kept(self, site: Site) -> bool:
        """Whether a pod that the plan names runs on a candidate of a command, which may wait long for a budget, or its successor is to come.

        O(its pods + candidates).
        """
        if any(one.vacant_since is not None for one in self.places.promises.on(site.key)):
            return True
        candidates = self.nodes.disrupted()
        members = (
            (self.families.members.get(uid) for entry in site.plan.pods for uid in entry.uids) if candidates else ()
        )
        return any(one is not None and not one.over and one.node in candidates for one in members)

    def expire(self, now: float) -> list[str]:
        """End the plans and reservations whose time is over, and places whose pods have no successor; the names of the claims of the plans."""
        for name in [name for name, until in self.nodes.reserving.items() if now >= until]:
            del self.nodes.reserving[name]
            self.families.mark_node(self.nodes.node_of(self.nodes.claims[name]))
        for place in self.places.promises.overdue(now):
            self.places.give_up(place)
        due = [(site, site.live) for site in self.places.sites.values() if not site.over and now >= site.deadline]
        for site, _ in due:
            self._judge_life(site, now)
            if not site.live:  # the plan is read as long as the claim is there, and its places are forgotten
                site.over = True
                self.places.clear(site)
        return [site.name for site, was_live in due if was_live and site.over]

    # --------------------------------------------------------------- questions

    @property
    def live_plans(self) -> frozenset[str]:
        """Names of the claims with a live plan."""
        return frozenset(site.name for site in self.places.sites.values() if site.live)

    @property
    def expects_nodes(self) -> bool:
        """Whether a live plan has no node yet, so that a name not known might be it."""
        return bool(self.places.nodeless)

    def arrival(self, plan: str) -> NodeArrival:
        """How far the node of this claim is."""
        site = self.places.sites.get(plan)
        if site is not None and site.node:
            return NodeArrival.JOINED
        claim = self.nodes.claims.get(plan)
        return NodeArrival.LAUNCHED if claim is not None and claim.provider_id else NodeArrival.NONE

    def standing(self, member: FamilyMember, now: float) -> NodeStanding:
        """Where `member` may take a planned place at `now`.

        O(sites of its family) after one of them opened or closed; the pod need not have been seen before, as long as its family has places.
        """
        place = self.places.place_of(member.uid)
        house = self.families.houses.get(place.family if place is not None else member.family)
        if member.group and not (member.node or member.daemon):
            phase = self.groups.phase(member.group, now)
            if phase is GroupPhase.WAITS:
                return NodeStanding(coming=place.site.name if place is not None else "", alone=True)
            if phase is GroupPhase.OPEN and place is not None:
                return NodeStanding(place.site.node, alone=True)
        if house is None or not house.rooms or member.node:
            return NO_STANDING
        self.room.settle()
        place = self.places.place_of(member.uid)  # counting may have let pods change places
        home = house.rooms.get(place.site.name) if place is not None else None
        if home is not None and (home.open > 0 or self._is_let_go(member)):
            coming = home.site.name if self._coming(home.site, now) else ""
            # Not to a brother's place while its own is coming: places taken by pods that are just being bound do not
            # show here yet, so a crowd would follow into the first node that opens.
            return NodeStanding(
                home.site.node, () if coming or not member.owner else self.room.open_nodes(house)[1], coming
            )
        free, everywhere = self.room.open_nodes(house)
        coming = ""
        if not house.surplus:
            coming = next((room.site.name for room in house.free if self._coming(room.site, now)), "")
        return NodeStanding(
            "", free if home is None else everywhere, coming
        )  # only who has a place to give gets a brother's

    def _coming(self, site: Site, now: float) -> bool:
        """Whether it is worth waiting for the site's node: soon there, and not for longer than a plan holds."""
        if now >= site.planned_at + site.plan.hold_seconds:
            return False
        return self.nodes.is_settling(site.node, now)

    def _is_let_go(self, member: FamilyMember) -> bool:
        """Whether a pod that is gated, as far as its watch has told, is not any more: kube-scheduler asks about no gated pod."""
        known = self.families.members.get(member.uid)
        return known is not None and known.over and not known.node


def _grew(old: Plan, new: Plan) -> bool:
    """Whether a plan has pods that it did not have."""
    had = {(entry.owner, entry.klass): entry for entry in old.pods}
    for entry in new.pods:
        before = had.get((entry.owner, entry.klass))
        if before is None or entry.count > before.count or not set(entry.uids) <= set(before.uids):
            return True
    return False
