"""The room that is held for planned pods, and how full nodes are, counted anew where something changed. Not thread-safe."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from extender.families import Families
from extender.holds import Hold, NodeFullness, fullness
from extender.nodes import JoinedNodes
from extender.places import PlaceKeeper
from extender.sites import FamilyRoom, House, PlannedPlace, Site
from provisioner.state.room_ledger import RoomLedger
from provisioner.values.resources import EMPTY, Resources


class HeldRoom:
    """See the module."""

    def __init__(self, families: Families, places: PlaceKeeper, nodes: JoinedNodes, ledger: RoomLedger) -> None:
        self._families, self._places, self._nodes, self._ledger = families, places, nodes, ledger
        self._holds: dict[str, Hold] = {}
        self._fullness = NodeFullness()

    @property
    def holds(self) -> Mapping[str, Hold]:
        """Every node that room is held on, with what is held. Read it at once; the next event changes it."""
        self.settle()
        return self._holds

    @property
    def scores(self) -> Mapping[str, bytes]:
        """How full each node is that has pods of its own, 1 to 10, as `prioritize` says it. Read it at once; the next event changes it.

        It is written out here because one event changes one node, and one answer may tell of 5,000.
        """
        self.settle()
        return self._fullness.scores

    @property
    def levels(self) -> Sequence[Collection[str]]:
        """The nodes that have pods of their own, by how full they are, 0 to 10. Read it at once; the next event changes it."""
        self.settle()
        return self._fullness.levels

    @property
    def planned(self) -> int:
        """Waiting pods that a place is kept for."""
        self.settle()
        return sum(room.held for house in self._families.houses.values() for room in house.rooms.values())

    def settle(self) -> None:
        """Bring numbers and holds up to date with the events since the last question."""
        for house in self._families.stale_houses():
            changed = set[FamilyRoom]()
            while house.stale:
                room = house.stale.pop()
                self._count(house, room)
                changed.add(room)
            self._share(house, changed)
        for name in self._families.take_stale_nodes():
            hold = self._hold(name)
            if hold is None:
                self._holds.pop(name, None)
            else:
                self._holds[name] = hold
            self._fullness.set(name, self._full(name))

    def _count(self, house: House, room: FamilyRoom) -> None:
        """What one plan owes a family. O(its places + pods on its node)."""
        families, keeper = self._families, self._places
        site, before = room.site, (room.listed, room.kept, room.open > room.owed, room.open > 0)
        room.clear()
        strays: list[House] = []
        if site.live:
            places, own, strangers, guests, visitors = 0, 0, 0, 0, list[PlannedPlace]()
            for one in keeper.promises.on(site.key):
                if one.family is not house.family:
                    continue
                places += 1
                room.kept += one.vacant_since is not None
                room.owed += bool(one.uid) and keeper.is_owed(one)
                pod = families.members.get(one.uid)
                if pod is not None and pod.waiting and one.uid in house.members:
                    room.listed += 1
                elif pod is not None and pod.waiting:
                    strays.append(families.houses[pod.family])
            for uid in house.members.keys() & families.on.get(site.node, {}).keys():
                member = house.members[uid]
                room.here += 1
                if member.over:
                    continue
                place = keeper.place_of(uid)
                if uid in families.assumed:
                    own += place is not None
                    strangers += place is None
                elif place is None:
                    guests += 1
                elif house.family.has_brothers and place.site is not site and place.found is None:
                    visitors.append(place)
            if visitors and room.owed + room.kept and self._nodes.stays(site.node):  # where they run was seen first
                for place in sorted(visitors, key=lambda one: one.uid):
                    keeper.swap(place, house, site)
                house.stale.add(room)  # once more for each of them at most: they are none any longer
            unnamed = max(0, room.count - places - guests)
            room.sure = max(0, room.owed + room.kept - own - max(0, strangers - unnamed))
            room.spare = max(0, unnamed - strangers)
            room.kept = min(room.kept, room.sure)
            room.open = room.sure + room.spare
        families.stray(room, strays)
        (house.nameless.add if room.spare else house.nameless.discard)(room)
        house.listed += room.listed - before[0]
        house.kept += room.kept - before[1]
        if before[2:] != (room.open > room.owed, room.open > 0):
            house.sorted = False

    def _share(self, house: House, changed: Iterable[FamilyRoom]) -> None:
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
    def open_nodes(house: House) -> tuple[tuple[str, ...], tuple[str, ...]]:
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

    def _keep(self, room: FamilyRoom, held: int) -> None:
        if room.held != held:
            room.held = held
            self._families.mark_node(room.site.node)

    def _hold(self, name: str) -> Hold | None:
        """What is held on one node; None where nothing is, or the node is not known."""
        if name not in self._nodes.nodes:
            return None
        by_priority: dict[int, Resources] = {}
        due = EMPTY
        for site in self._places.sites_on(name):
            if not site.live:
                continue
            for family, room in site.rooms.items():
                if room.held:
                    house = self._families.houses[family]
                    more = house.requests.scaled(room.held)
                    by_priority[house.priority] = by_priority.get(house.priority, EMPTY) + more
            due = due.maximum(self._due(site))
        own: dict[str, Resources] = {}
        for one in self._nodes.reserved_on(name):
            by_priority[one.priority] = by_priority.get(one.priority, EMPTY) + one.requests
            own[one.request] = own.get(one.request, EMPTY) + one.requests
        if not by_priority:
            return None
        return Hold(by_priority.items(), self._ledger.room(name) - due, own)

    def _full(self, name: str) -> int:
        """How full a node is, 0 where it could be removed without moving anybody, is leaving, or is not known."""
        node = self._nodes.nodes.get(name)
        if node is None or node.leaving or node.disrupted:
            return 0
        return fullness(node.allocatable, self._ledger.used(name), self._ledger.daemons(name))

    def _due(self, site: Site) -> Resources:
        """What a claim was made for beyond the pods that are there and those that are still to come: daemons to come.

        Nothing while the requests of a planned class are not known.
        """
        requests = self._nodes.claims[site.name].requests
        left = requests - self._ledger.used(site.node) if requests else EMPTY
        if not any(amount > 0 for amount in left.values()):
            return EMPTY
        for family, room in site.rooms.items():
            house = self._families.houses[family]
            if not house.known:
                return EMPTY
            left -= house.requests.scaled(max(0, room.count - room.here))
        return Resources.of({name: amount for name, amount in left.items() if amount > 0})
