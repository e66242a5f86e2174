"""Which new nodes of an answer one gang needs together. Pure.

A gang that is needed whole gets a set, of one node as well: who steers its pods learns from it that they are a gang's. Pods that its gang could do
without are single pods, and so are those of a gang that has more nodes than fit, or that meets nodes of too many others: its set would be read
on some of its nodes and not on others. A node that a ProvisioningRequest shares with other pods is in no set of the request: these do not wait for its
other nodes, whatever becomes of them.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from provisioner.apis.gangs import of_request
from provisioner.apis.launch_sets import MAX_BYTES, MOST_NODES, MOST_SETS, LaunchSet, encode_sets
from provisioner.scheduling.gangs import GroupsAsked
from provisioner.scheduling.result import PlannedClaim

OVERDUE_SECONDS: Final = 300.0
"""A group that growth limits held back for so long comes before the successors of drained pods."""
_WITHOUT_SETS: Final = len(encode_sets(()))


def launch_sets(
    claims: Sequence[PlannedClaim], groups: GroupsAsked, decision: str
) -> tuple[tuple[LaunchSet, ...], ...]:
    """The sets of each of these claims, by id.

    Args:
        claims: of one answer.
        groups: of the question, those that lack one pod among them: what takes the place of a node is awaited by the others of its gang.
        decision: differs from answer to answer; the same one gives the same ids.

    Cost: O(pods of the claims).
    """
    on: dict[str, list[int]] = {}
    for number, claim in enumerate(claims):
        keys = dict.fromkeys([groups.of.get(pod.uid, "") for pod in claim.pods])
        for key in keys if len(keys) == 1 else [key for key in keys if not of_request(key)]:
            on.setdefault(key, []).append(number)
    on.pop("", None)
    found: list[list[LaunchSet]] = [[] for _ in claims]
    room = [MAX_BYTES - _WITHOUT_SETS] * len(claims)
    for key, numbers in sorted(on.items()):
        one = LaunchSet(id=_id(decision, key), group=key, nodes=len(numbers))
        size = len(encode_sets((one,)))
        if one.nodes <= MOST_NODES and all(room[n] >= size and len(found[n]) < MOST_SETS for n in numbers):
            for number in numbers:
                found[number].append(one)
                room[number] -= size
    return tuple([tuple(sorted(some, key=lambda one: one.id)) for some in found])


def together(
    sets: Sequence[Sequence[LaunchSet]],
    order: Iterable[int],
    first: Collection[str] = (),
    *,
    urgent: Collection[int] = (),
    overdue: Collection[str] = (),
) -> list[list[int]]:
    """Numbers of claims of which all come to be or none: those that have a set in common, directly or through others.

    Args:
        sets: of each claim.
        order: of the claims; one that has company comes where the first of them does.
        first: those with a set of these groups come before others.
        urgent: claims that come before those.
        overdue: those with a set of these groups come before all others.

    Cost: O(claims + sets).
    """
    leader: dict[str, int] = {}  # of a set: a claim that has it
    parent = list(range(len(sets)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    for number, mine in enumerate(sets):
        for one in mine:
            parent[root(number)] = root(leader.setdefault(one.id, number))
    found: dict[int, list[int]] = {}
    for number in order:
        found.setdefault(root(number), []).append(number)

    def rank(some: Iterable[int]) -> tuple[bool, bool, bool]:
        of = {one.group for number in some for one in sets[number]}
        return of.isdisjoint(overdue), not any(number in urgent for number in some), of.isdisjoint(first)

    return sorted(found.values(), key=rank)


class LaunchTurns:
    """Who comes first where a limit allows too little for all: groups that it held back, but single pods once after one of these had its turn.

    Attributes:
        first: the groups that come before other pods, but not before the successors of drained pods.
        overdue: those of them that were held back for so long that they come before these, too.
    """

    def __init__(self) -> None:
        self.first: frozenset[str] = frozenset()
        self.overdue: frozenset[str] = frozenset()
        self._single = False
        self._since: dict[str, float] = {}

    def note(self, made: Iterable[Sequence[LaunchSet]], held: Iterable[Sequence[LaunchSet]], now: float) -> None:
        """The sets of each NodeClaim that came to be, and of each that was held back; `now` in seconds."""
        created, waiting = set(made), set(held)
        if () not in waiting:
            self._single = False
        elif any(one.group in self.first for some in created for one in some):
            self._single = True
        elif () in created:
            self._single = False
        self._since = {one.group: self._since.get(one.group, now) for some in waiting for one in some}
        self.first = frozenset() if self._single else frozenset(self._since)
        self.overdue = frozenset([one for one in self.first if now - self._since[one] >= OVERDUE_SECONDS])


def _id(decision: str, group: str) -> str:
    return hashlib.blake2s(f"{decision}/{group}".encode(), digest_size=8).hexdigest()
