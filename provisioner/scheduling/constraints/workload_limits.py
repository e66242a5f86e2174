"""How many pods of one owner a node takes, where its NodePool says so (`dovetail.dev/max-pods-per-workload`).

An owner is the controller that a pod names: a ReplicaSet, StatefulSet or Job; a pod without one is not counted. Where no NodePool
has the annotation nothing here is asked: pods of several owners stay one class, and no run has a crowd.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis.pods import Pod

_ANY: Final = 1 << 30


def owner_of(pod: Pod) -> str:
    """UID of the controller; "" for none."""
    return "" if pod.owner is None else pod.owner.uid


def owners_of(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Pods by owner; those without one and those that are being deleted left out."""
    return Counter(pod.owner.uid for pod in pods if pod.owner is not None and pod.deleted is None)


@dataclass(frozen=True, slots=True, eq=False)
class Crowding:
    """What one question starts from.

    Attributes:
        by_pool: the most pods of one owner on a node, by NodePool that says so.
        by_place: the same by existing node, by its number.
        spots: pods of each owner by existing node.
        counted_anew: by owner, on nodes that pods of the question leave.
    """

    by_pool: Mapping[str, int]
    by_place: Mapping[int, int]
    spots: Mapping[str, Mapping[int, int]]
    counted_anew: Mapping[int, Mapping[str, int]]

    def running(self, owner: str) -> dict[int, int]:
        """Pods of an owner that stay, by existing node."""
        anew = self.counted_anew
        found = {place: pods for place, pods in self.spots.get(owner, {}).items() if place not in anew}
        return found | {place: some[owner] for place, some in anew.items() if owner in some}


class Crowd:
    """The pods of one owner in one attempt.

    Attributes:
        full: the places that take no more of them.
    """

    __slots__ = ("_counts", "_tops", "full")

    def __init__(self, tops: Mapping[int, int], running: dict[int, int]) -> None:
        """`tops`: the most on each place; grows with the places."""
        self._tops: Final = tops
        self._counts: Final = running
        self.full = 0
        for place in running:
            self._look(place)

    def rest(self, place: int) -> int:
        """How many more a place takes."""
        top = self._tops.get(place)
        return _ANY if top is None else top - self._counts.get(place, 0)

    def add(self, place: int, pods: int) -> None:
        """So many more on a place."""
        self._counts[place] = self._counts.get(place, 0) + pods
        self._look(place)

    def _look(self, place: int) -> None:
        if self.rest(place) <= 0:
            self.full |= 1 << place


class Crowds:
    """Every owner that was asked about in one attempt."""

    def __init__(self, crowding: Crowding) -> None:
        self._crowding: Final = crowding
        self._tops: Final = dict(crowding.by_place)
        self._known: Final[dict[str, Crowd]] = {}

    def of(self, owner: str) -> Crowd:
        found = self._known.get(owner)
        if found is None:
            found = self._known[owner] = Crowd(self._tops, self._crowding.running(owner))
        return found

    def top(self, pool: str) -> int:
        """The most pods of one owner on a new node of a NodePool."""
        return self._crowding.by_pool.get(pool, _ANY)

    def enter(self, pool: str, places: Iterable[int]) -> None:
        """New nodes of a NodePool."""
        top = self._crowding.by_pool.get(pool)
        if top is not None:
            self._tops.update(dict.fromkeys(places, top))
