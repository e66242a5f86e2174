"""Who has the places of which plan, and to whom they pass: the core of `provisioner.state.promises`, told what the watches tell. Not thread-safe."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from extender.facts import FamilyMember
from extender.families import Families
from extender.nodes import JoinedNodes
from extender.sites import FamilyRoom, House, PlannedPlace, Site
from provisioner.apis.plan import Plan
from provisioner.state.promises import UNTIMED, PodFamily, Promises, taken


class PlaceKeeper:
    """See the module.

    Args:
        families: the pods; what changes here is marked there.

    Attributes:
        promises: every place.
        sites: by claim.
        nodeless: claims of live sites without a node.
    """

    def __init__(self, families: Families, nodes: JoinedNodes) -> None:
        self.promises: Promises[PlannedPlace] = Promises()
        self.sites: dict[str, Site] = {}
        self.nodeless: set[str] = set()
        self._sites_of_node: dict[str, list[Site]] = {}
        self._families, self._nodes = families, nodes

    # --------------------------------------------------------------- questions

    def place_of(self, uid: str) -> PlannedPlace | None:
        """The place of a pod in a plan that is live."""
        place = self.promises.of_pod(uid)
        return place if place is not None and place.site.live else None

    def sites_on(self, node: str) -> Sequence[Site]:
        """Of a node, in the order in which that became known."""
        return self._sites_of_node.get(node, ())

    def room_on(self, house: House, node: str) -> FamilyRoom | None:
        """The room of a family on a node."""
        sites = self._sites_of_node.get(node, ())
        return next((house.rooms[site.name] for site in sites if site.live and site.name in house.rooms), None)

    def is_owed(self, place: PlannedPlace) -> bool:
        """Whether the pod of a place has found none that stays; one that waited and was bound has, whatever becomes of its node."""
        member = self._families.true(place.uid)
        if member is None or member.over or not member.node:
            return member is not None and not member.over
        found = self._nodes.stays(member.node) if place.found is None else place.found
        return member.node != place.site.node and not found

    def _found_unknown(self, uid: str) -> bool | None:
        """What became of a pod that a plan names: one that waited, and was bound to a node that stays, has found its place, and who planned it knew less."""
        member = self._families.true(uid)
        return (
            True if member is not None and self._families.has_come(member) and self._nodes.stays(member.node) else None
        )

    # -------------------------------------------------------------------- pods

    def mark_pod(self, member: FamilyMember) -> None:
        """A pod changed: so did the rooms where it has a place, which is of the class that it was planned as, and where it runs."""
        if (place := self.promises.of_pod(member.uid)) is not None:
            self._families.mark_place(place)
        house = self._families.houses[member.family]
        if house.rooms:
            self._families.mark(house, self.room_on(house, member.node))

    def _take(self, place: PlannedPlace, uid: str) -> None:
        """A place is a pod's from now on, who had none."""
        self.promises.take(place, uid)
        place.found = self._found_unknown(uid)
        self._families.mark_place(place)

    def leave(self, place: PlannedPlace, since: float | None = None) -> None:
        """The pod of a place has it no longer; without `since` nobody comes after it."""
        self.promises.take(place, "", since)
        place.found = None
        self._families.mark_place(place)

    def give_up(self, place: PlannedPlace) -> None:
        """Nobody is waited for at a place any longer."""
        if self.promises.of_pod(place.named) in (None, place):
            self._take(place, place.named)  # as it may come late
        else:
            self.leave(place)

    def vacate(self, member: FamilyMember) -> None:
        """A pod is gone: if it was owed a place, that waits for its successor."""
        place = self.promises.of_pod(member.uid)
        if place is not None:
            waits = bool(member.owner) and place.site.live and self.is_owed(place)
            self.leave(place, UNTIMED if waits else None)

    def leave_behind(self, node: str) -> None:
        """The claim of a node is gone: until pods that were to leave it are gone, too, their places are kept."""
        for uid in self._families.on.get(node, ()) if not self._nodes.stays(node) else ():
            place = self.place_of(uid)
            if place is not None and uid not in self._families.assumed and self.is_owed(place):
                place.found = False

    def welcome(self, member: FamilyMember) -> None:
        """A pod is there: it may be one that was missed, or the successor of one that was seen to go, whose place it has from now on."""
        place = self.promises.of_pod(member.uid)
        if place is not None and member.over:
            if member.node:
                self.leave(place)
        elif place is not None and place.vacant_since is not None:
            self._take(place, member.uid)
        elif place is None and member.waiting and self.promises.any_open:
            if (gone := self.promises.open_to(member.family)) is not None:
                self._take(gone, member.uid)
            elif (gone := self.promises.outgrown(member.owner)) is not None:
                self.give_up(gone)

    def bound(self, uid: str, node: str) -> bool:
        """A pod that waited is bound, whoever was told to bind it: it has the place that it was owed, or that of a brother, who gets its own instead.

        False where it is not seen for the first time that it is bound, or it was not seen to wait.
        """
        member = self._families.true(uid)
        if member is None or member.node:
            return False
        place = self.place_of(uid)
        house = self._families.houses[place.family if place is not None else member.family]
        if not house.rooms:
            return True
        if place is None:
            here = self.room_on(house, node)
            there = self.promises.on(here.site.key) if here is not None else ()
            vacant = (one for one in there if one.family is house.family and one.vacant_since is not None)
            place = next(vacant, None)
            if place is None:
                return True
            if (void := self.promises.of_pod(uid)) is not None:
                self.leave(void)
            self._take(place, uid)
        self._arrive(place, node)
        return True

    def stay(self, member: FamilyMember) -> None:
        """It was judged anew whether the node of a pod stays; where it does, the pod has found its place."""
        place = self.place_of(member.uid)
        if (
            place is not None
            and place.found is None
            and member.uid not in self._families.assumed
            and self._nodes.stays(member.node)
        ):
            self._arrive(place, member.node)

    def _arrive(self, place: PlannedPlace, node: str) -> None:
        """The pod of a place has found one that stays, on this node."""
        house = self._families.houses[place.family]
        here = self.room_on(house, node)
        place.found = True
        self._families.mark_place(place)
        if here is not None and here.site is not place.site:
            self.swap(place, house, here.site)

    def swap(self, place: PlannedPlace, house: House, site: Site) -> None:
        """The pod of a place runs where brothers have theirs: whoever is owed one there has the pod's own from now on."""
        mine = (one for one in self.promises.on(site.key) if one.family is house.family)
        other = taken(one for one in mine if one.vacant_since is not None or self.is_owed(one))
        if house.family.has_brothers and other is not None:
            place.found = True
            self.promises.swap(place, other)
            self._families.mark_place(place)
            self._families.mark_place(other)

    # ------------------------------------------------------------------- sites

    def enter(self, site: Site, plan: Plan) -> None:
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
            house = self._families.house(PodFamily(entry.owner, entry.klass))
            room = site.rooms[house.family] = house.rooms.setdefault(site.name, FamilyRoom(site))
            room.count += entry.count
            unnamed[house.family] = unnamed.get(house.family, 0) + entry.count - len(entry.uids)
            named.update(dict.fromkeys(entry.uids, house.family))
        site.plan = plan
        served = set[str]()
        for one in sorted(self.promises.on(site.key), key=lambda one: one.vacant_since is None):
            vacant, member = one.vacant_since is not None, self._families.true(one.uid)
            is_counted = member is not None and member.node == site.node and member.family == one.family
            if one.uid in named and not vacant:
                one.named = one.uid
                one.found = one.found if one.uid in before else self._found_unknown(one.uid)
            elif (
                one.uid not in named and unnamed[one.family] > 0 and (vacant or (member is not None and member.waiting))
            ):
                unnamed[one.family] -= 1
                one.named = ""
                if not vacant:  # its pod is gone, as the watch is still to tell
                    self.leave(one, UNTIMED)
            elif one.named not in named or not (one.named in before or vacant or self.is_owed(one) or is_counted):
                self.promises.end(one)
                continue
            served.add(one.named)
        added = {uid: family for uid, family in named.items() if uid not in before and uid not in served}
        for uid, family in added.items():
            self._name(site, family, uid)
        for family in dict.fromkeys(added.values()):
            self._seat(site, self._families.houses[family], named.keys())
        self._families.mark_site(site)

    def _name(self, site: Site, family: PodFamily, uid: str) -> None:
        """A plan names a pod: it has a place here, where no later plan names it; where it is not there yet, or gone, its successor has."""
        member, former = self._families.true(uid), self.promises.of_pod(uid)
        place = PlannedPlace(key=site.key, family=self._families.houses[family].family, uid="", site=site, named=uid)
        self._families.mark_place(self.promises.add(place))
        if former is not None:
            if (former.site.live, former.site.rank) > (site.live, site.rank):
                return
            if former.site.live and member is not None and member.node and member.node == site.node:
                return  # it is counted here, and has a place elsewhere as it is to leave
            brother = self._families.true(former.named) if former.found and former.site.live else None
            if brother is not None and brother.waiting and self.promises.of_pod(brother.uid) is None:
                self._take(place, brother.uid)  # whose place it has
                return
            self.leave(former)
        ran = member.node if member is not None else self._families.ran_on(uid)
        if ran and ran == site.node and (member is None or member.over):
            return  # it is counted as one that runs there, and was not to come
        if member is None or (member.over and not member.node):
            self.promises.take(place, uid, UNTIMED if family.has_brothers else None)
        elif not member.over:
            self._take(place, uid)

    def _seat(self, site: Site, house: House, named: AbstractSet[str]) -> None:
        """Pods were planned onto a node where brothers run that the plan does not count: they came unknown, and have places of those that it names."""
        came = {uid for uid, has in self._families.on.get(site.node, {}).items() if has and uid in house.members}
        for uid in sorted(came - named):
            place = self.place_of(uid)
            if place is not None and place.site is not site and uid not in self._families.assumed:
                self.swap(place, house, site)

    def move(self, site: Site, node: str) -> None:
        """The node of a site became known, or is gone."""
        if site.node == node:
            return
        self._families.mark_site(site)
        if site.node:
            there = [other for other in self._sites_of_node[site.node] if other is not site]
            if there:
                self._sites_of_node[site.node] = there
            else:
                del self._sites_of_node[site.node]
        site.node = node
        if node:
            self._sites_of_node.setdefault(node, []).append(site)
        self._families.mark_site(site)

    def set_live(self, site: Site, *, live: bool) -> None:
        """A plan counts, or does not any longer; call again once its node is another one."""
        if site.live != live:
            site.live = live
            for one in self.promises.on(site.key) if not live else ():
                if one.vacant_since is not None:
                    self.leave(one)  # nobody comes after it
            self._families.mark_site(site)
        (self.nodeless.add if live and not site.node else self.nodeless.discard)(site.name)

    def drop_site(self, name: str) -> None:
        """A plan is gone."""
        site = self.sites.pop(name, None)
        if site is not None:
            site.live = False
            self.clear(site)
            self.move(site, "")
            self.nodeless.discard(name)

    def clear(self, site: Site) -> None:
        """A plan has no places any longer."""
        for family in tuple(site.rooms):
            self._withdraw(site, family)

    def _withdraw(self, site: Site, family: PodFamily) -> None:
        house = self._families.houses[family]
        for one in self.promises.on(site.key):
            if one.family is house.family:
                self.promises.end(one)
        room = house.rooms.pop(site.name)
        del site.rooms[family]
        house.listed, house.kept, house.sorted = house.listed - room.listed, house.kept - room.kept, False
        house.ordered = ()
        self._families.withdrawn(house, room)
