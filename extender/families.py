"""The pods that a watch told of, by family, and which counts of families, rooms and nodes they have made stale. Not thread-safe."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from extender.facts import FamilyMember
from extender.sites import FamilyRoom, House, PlannedPlace, Site
from provisioner.state.promises import PodFamily
from provisioner.state.room_ledger import RoomLedger
from provisioner.values.bounded import forget_oldest

MAX_GONE: Final = 10_000
"""Pods that are gone of which it is known where they ran: plans may name them still."""

MOST_BROTHERS: Final = 1000
"""Of a pod that asks to be scored: whoever makes pods may give any number of them one owner."""


class Families:
    """See the module.

    Attributes:
        members: by UID.
        houses: by family; one is forgotten with its last pod and place.
        assumed: pods that are taken to be bound, by UID: until when, and what the watch told; oldest first.
        on: node -> UIDs of the pods there, and whether they were seen to wait, and then to be bound; of finished ones there may be any number.
    """

    def __init__(self, ledger: RoomLedger) -> None:
        self.members: dict[str, FamilyMember] = {}
        self.houses: dict[PodFamily, House] = {}
        self.assumed: dict[str, tuple[float, FamilyMember]] = {}
        self.on: dict[str, dict[str, bool]] = {}
        self._ledger = ledger
        # what is to be counted anew before it is asked for
        self._stale_houses: dict[PodFamily, None] = {}
        self._stale_nodes: set[str] = set()
        self._ran: dict[str, str] = {}  # by UID: where pods ran that are gone; oldest first

    def enter(self, member: FamilyMember, *, came: bool) -> None:
        """A pod counts as these facts say; what it counted for before was taken out."""
        house = self.house(member.family)
        if not house.known:  # room is held for it already
            self._stale_nodes.update(room.site.node for room in house.rooms.values() if room.site.node)
        house.known, house.requests, house.priority = True, member.requests, member.priority
        house.members[member.uid] = self.members[member.uid] = member
        house.waiting += member.waiting
        if member.node and not member.finished:
            self.on.setdefault(member.node, {})[member.uid] = came
            self._ledger.bind(member.uid, member.node, member.requests, daemon=member.daemon)
            self._stale_nodes.add(member.node)

    def renew(self, member: FamilyMember, *, came: bool) -> None:
        """The same facts, of a newer version of the pod, or as was assumed."""
        if came:
            self.on[member.node][member.uid] = True
        self.houses[member.family].members[member.uid] = self.members[member.uid] = member

    def take_out(self, old: FamilyMember) -> None:
        """Nothing counts any more for what an earlier state of a pod said."""
        house = self.houses[old.family]
        house.members.pop(old.uid, None)
        house.waiting -= old.waiting
        self._ledger.release(old.uid)
        if old.node and not old.finished:
            self._stale_nodes.add(old.node)
            there = self.on[old.node]
            there.pop(old.uid, None)
            if not there:
                del self.on[old.node]
        self.leave_house(house)

    def forget(self, old: FamilyMember) -> None:
        """A pod that was taken out is gone."""
        del self.members[old.uid]
        self._ran[old.uid] = old.node
        forget_oldest(self._ran, MAX_GONE)

    def house(self, family: PodFamily) -> House:
        """Of a family, new where nothing is known of it."""
        house = self.houses.get(family)
        if house is None:
            house = self.houses[family] = House(family)
        return house

    def leave_house(self, house: House) -> None:
        """A family is forgotten with its last pod and place."""
        if not house.members and not house.rooms:
            del self.houses[house.family]

    def company(self, pod: FamilyMember) -> frozenset[str]:
        """Nodes with pods of its owner and class, of a thousand the newest. Cost: O(its family, up to that)."""
        house = self.houses.get(pod.family) if pod.owner else None
        family = islice(reversed(house.members.values()), MOST_BROTHERS) if house is not None else ()
        return frozenset(one.node for one in family if one.node and not one.finished)

    def true(self, uid: str) -> FamilyMember | None:
        """What the watch told of a pod, whatever is assumed of it."""
        return self.assumed[uid][1] if uid in self.assumed else self.members.get(uid)

    def has_come(self, member: FamilyMember) -> bool:
        """Whether a pod was seen to wait, and then to be bound."""
        return self.on.get(member.node, {}).get(member.uid, False)

    def pods_on(self, node: str) -> list[FamilyMember]:
        """The pods that are bound to a node, or are assumed to be."""
        return [self.members[uid] for uid in self.on.get(node, ())]

    def ran_on(self, uid: str) -> str:
        """Where a pod ran that is gone; "" where that is not known."""
        return self._ran.get(uid, "")

    def __len__(self) -> int:
        """Pods."""
        return len(self.members)

    def mark_site(self, site: Site) -> None:
        """The site changed: count its rooms anew, and what its node holds."""
        for family, room in site.rooms.items():
            self.houses[family].sorted = False
            self.mark(self.houses[family], room)
        self.mark_node(site.node)

    def mark_place(self, place: PlannedPlace) -> None:
        """A place changed: likewise the room that it is in."""
        house = self.houses[place.family]
        self.mark(house, house.rooms.get(place.site.name))

    def mark(self, house: House, room: FamilyRoom | None) -> None:
        """Something that counts for a family changed, in one room or in none."""
        self._stale_houses[house.family] = None
        if room is not None:
            house.stale.add(room)

    def mark_node(self, name: str) -> None:
        """What a node holds changed, or how full it is; "" is none."""
        if name:
            self._stale_nodes.add(name)

    def withdrawn(self, house: House, room: FamilyRoom) -> None:
        """A plan promises this family nothing any more: its room was taken out of the house."""
        self.stray(room, ())
        house.stale.discard(room)
        house.nameless.discard(room)
        if house.rooms:
            self.mark(house, None)
        else:
            self._stale_houses.pop(house.family, None)
        self.mark_node(room.site.node)
        self.leave_house(house)

    def stale_houses(self) -> Iterator[House]:
        """The families to count anew, until there is none; each is forgotten as it is given."""
        while self._stale_houses:
            house = self.houses.get(self._stale_houses.popitem()[0])
            if house is not None:
                yield house

    def take_stale_nodes(self) -> set[str]:
        """The nodes to count anew, once."""
        stale, self._stale_nodes = self._stale_nodes, set()  # to pop from a set that was large once is slow
        return stale

    def stray(self, room: FamilyRoom, houses: Iterable[House]) -> None:
        """Of these families are the pods that wait and have a place in the room of another one, each as often as it has such."""
        before, room.strays = room.strays, tuple(houses)
        for sign, some in ((-1, before), (1, room.strays)):
            for house in some:
                house.strays += sign
                if house.rooms:
                    self.mark(house, None)
