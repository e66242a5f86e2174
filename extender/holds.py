"""What is held on one node for planned pods, and who may be bound beside that; how full nodes are."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from extender.protocol import MAX_SCORE, encode_score
from provisioner.values.resources import EMPTY, Resources


class Hold:
    """Room of one node that is held back for planned pods. Immutable.

    Args:
        parts: (priority, requests of the waiting pods of that priority), each priority once.
        room: allocatable less bound pods and less daemons that are still due.
        reserved: what of `parts` is for pods that name a ProvisioningRequest, by its key.
    """

    __slots__ = ("_levels", "_reserved", "parts", "room")

    def __init__(
        self, parts: Iterable[tuple[int, Resources]], room: Resources, reserved: Mapping[str, Resources] | None = None
    ) -> None:
        self._reserved = reserved
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

    def reserved_for(self, request: str) -> Resources:
        """What is held for the pods of a ProvisioningRequest; "" is none."""
        return self._reserved.get(request, EMPTY) if self._reserved and request else EMPTY

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


class NodeFullness:
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


def beside(nodes: AbstractSet[str], supposed: Iterable[Supposed]) -> Mapping[str, Sequence[Resources]]:
    """What each pod takes that may be bound to one of these nodes in this moment, by node; O(nodes of all supposed)."""
    found: dict[str, list[Resources]] = {}
    for one in supposed:
        for node in one.nodes & nodes:
            found.setdefault(node, []).append(one.requests)
    return found


def fullness(allocatable: Resources, used: Resources, daemons: Resources) -> int:
    """How full a node is, by the scarcer of CPU and memory: 1 to 10, and 0 where there is nobody but daemons."""
    if used == daemons:
        return 0
    shares = [used.amount(name) / offered for name in ("cpu", "memory") if (offered := allocatable.amount(name)) > 0]
    return 1 + min(9, int(9 * max(0.0, *shares, 0.0)))
