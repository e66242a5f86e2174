"""What a plan says and what is counted of it: by NodeClaim (a site), by pod (a place) and by family (a room, and a house of all rooms)."""

from dataclasses import dataclass
from typing import Self

from extender.facts import EMPTY_PLAN, FamilyMember
from provisioner.state.keys import NodeKey
from provisioner.state.promises import PodFamily, Promise
from provisioner.values.resources import EMPTY


class Site:
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
        self.rooms: dict[PodFamily, FamilyRoom] = {}


@dataclass(slots=True, eq=False, kw_only=True)
class PlannedPlace(Promise):
    """A place that a plan names a pod for; without a pod, and not vacant, where that pod is gone, or another plan has it.

    Attributes:
        site: whose it is; `key` is its claim.
        named: UID of the pod that the plan means.
        found: its pod waited and was bound (True), or its node is gone under it (False); None: where it runs says so.
    """

    site: Site
    named: str
    found: bool | None = None

    def exchange(self, other: Self) -> None:
        """What became of a pod goes with it."""
        Promise.exchange(self, other)
        self.found, other.found = other.found, self.found


class FamilyRoom:
    """What one plan promises one family, in numbers."""

    __slots__ = ("count", "held", "here", "kept", "listed", "open", "owed", "site", "spare", "strays", "sure")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.count = 0
        self.held = 0
        self.strays: tuple[House, ...] = ()  # of pods that wait and have a place here, as one of another family
        self.clear()

    def clear(self) -> None:
        self.here = 0  # pods of the family on the node
        self.listed = 0  # pods that wait and have a place here
        self.owed = 0  # places whose pods have found no place that stays
        self.kept = 0  # places that are vacant
        self.sure = 0  # both, less those that a pod is just being bound to
        self.spare = 0  # places without a name that nobody has
        self.open = 0  # all of them


class House:
    """One family: its pods, and what plans promise it."""

    def __init__(self, family: PodFamily) -> None:
        self.family = family
        self.members: dict[str, FamilyMember] = {}
        self.waiting = 0  # of the pods
        self.rooms: dict[str, FamilyRoom] = {}  # by claim
        self.stale: set[FamilyRoom] = set()
        self.nameless: set[FamilyRoom] = set()  # rooms with places that are for whoever waits
        self.listed = self.kept = 0  # sums over rooms
        self.strays = 0  # pods that wait, and have a place of another family
        self.surplus = 0  # pods that wait, and that there is no place for
        self.known = False  # whether a pod of the family was seen, so that its requests are known
        self.requests = EMPTY
        self.priority = 0
        self.sorted = False  # whether the next three are up to date
        self.ordered: tuple[FamilyRoom, ...] = ()  # rooms, by claim
        self.free: tuple[FamilyRoom, ...] = ()  # those with a place that nobody listed waits for
        self.nodes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # see `HeldRoom.open_nodes`
