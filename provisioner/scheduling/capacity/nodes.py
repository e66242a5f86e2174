"""Existing nodes: what they are, what room they have, and which of them one question may use. Nothing here changes.

A set of nodes is one integer, bit i for the i-th in order of preference. A node that is no more leaves its number vacant.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.scheduling.capacity.attach_limits import AttachLimits
from provisioner.scheduling.capacity.catalogue import kept
from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.demands import Eligibility
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter, label_value, value_on
from provisioner.scheduling.constraints.vectors import Dimensions, Need, Thresholds, Vector
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.reasons import BinsRefuse
from provisioner.values.requirement import Requirement
from provisioner.values.resources import EMPTY
from provisioner.values.taints import Taint, Toleration, first_untolerated

_Look = tuple[Mapping[str, str], tuple[Taint, ...], str, str, frozenset[str] | None]
VACANT: Final = Bin(name="", labels={}, room=EMPTY, leaving=True)
"""Stands where a node was."""


class Ground:
    """What nodes are: names, labels, taints. Answers are kept, so it is shared as long as these stay.

    Args:
        bins: all nodes.
        before: of the same without the last ones, so that only these are looked at.
    """

    def __init__(self, bins: Sequence[Bin], before: "Ground | None" = None) -> None:
        known: tuple[_Look, ...] = before._bins if before is not None else ()  # noqa: SLF001 - another of its class
        new = bins[len(known) :] if known else bins
        self._bins: Final[tuple[_Look, ...]] = known + tuple(
            [(one.labels, one.taints, one.node_name, one.name, one.features) for one in new]
        )
        by_taints: dict[tuple[Taint, ...], list[int]] = {}
        for number, one in enumerate(new, len(known)):
            if one is not VACANT:
                by_taints.setdefault(one.taints, []).append(number)
        found = dict(before.by_taints) if before is not None else {}
        for taints, numbers in by_taints.items():
            found[taints] = found.get(taints, 0) | mask_of(numbers)
        self.by_taints: Final[dict[tuple[Taint, ...], int]] = found
        everything = 0
        for holders in found.values():
            everything |= holders
        self.everything: Final = everything
        self._any: Final[dict[str, str]] = {} if before is None else dict(before._any)  # noqa: SLF001 - another of its class
        """Every label that some node has, with the value on one of them."""
        for one in new:
            self._any.update(one.labels)
        self._tolerated: Final[dict[tuple[tuple[Toleration, ...], tuple[str, ...]], int]] = {}
        self._matching: Final[dict[tuple[FilterTerm, ...], int]] = {}
        self._by_label: Final[dict[str, dict[str | None, int]]] = {}
        self._lacking: Final[dict[str, int]] = {}

    def by_label(self, key: str) -> Mapping[str | None, int]:
        """Nodes by value of a label, None for those without it; a node without hostname label goes by its name."""
        found = self._by_label.get(key)
        if found is None and key != HOSTNAME_LABEL and label_value(self._any, key) is None:
            return {None: self.everything} if self.everything else {}
        if found is None:
            numbers: dict[str | None, list[int]] = {}
            for i, (labels, _, node_name, name, _) in enumerate(self._bins):
                if not self.everything >> i & 1:
                    continue
                value = label_value(labels, key)
                if value is None and key == HOSTNAME_LABEL:
                    value = node_name or name
                numbers.setdefault(value, []).append(i)
            found = {value: mask_of(some) for value, some in numbers.items()}
            kept(self._by_label, key, found)
        return found

    def tolerating(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> int:
        """Nodes all of whose taints of these effects are tolerated."""
        answer = self._tolerated.get((tolerations, effects))
        if answer is None:
            answer = 0
            for taints, holders in self.by_taints.items():
                if first_untolerated(tolerations, taints, effects) is None:
                    answer |= holders
            kept(self._tolerated, (tolerations, effects), answer)
        return answer

    def matching(self, terms: tuple[FilterTerm, ...]) -> int:
        """Nodes whose labels and name match."""
        if any(term.trivial for term in terms):
            return self.everything
        answer = self._matching.get(terms)
        if answer is None:
            answer = kept(self._matching, terms, self._matched(terms))
        return answer

    def _matched(self, terms: tuple[FilterTerm, ...]) -> int:
        """Cost: O(requirements and values of their labels); O(nodes) only for hostnames and names, and for a label that is new."""
        answer = 0
        for term in terms:
            left = self.everything
            for key, requirement in term.requirements.items():
                if not left:
                    break
                if key == HOSTNAME_LABEL:
                    hosts = ((i, *self._bins[i]) for i in members(left))
                    left = mask_of(
                        [i for i, labels, _, name, *_ in hosts if requirement.admits(value_on(labels, key, name))]
                    )
                else:
                    left &= self._holding(key, requirement)
            if term.names is not None:
                left = mask_of([i for i in members(left) if term.names.has(self._bins[i][2])])
            for feature in term.features:
                left &= ~self.lacking(feature)
            answer |= left
        return answer

    def lacking(self, feature: str) -> int:
        """Nodes whose kubelet does not declare a feature. Cost: O(nodes) for the first question."""
        answer = self._lacking.get(feature)
        if answer is None:
            listed = enumerate(self._bins)
            answer = mask_of([i for i, (*_, declared) in listed if declared is not None and feature not in declared])
            kept(self._lacking, feature, answer)
        return answer

    def _holding(self, key: str, requirement: Requirement) -> int:
        answer = 0
        for value, holders in self.by_label(key).items():
            if requirement.admits(value):
                answer |= holders
        return answer


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """What room nodes have, in the resources that some pods ask for."""

    dimensions: Dimensions
    limits: AttachLimits
    rooms: list[Vector]
    thresholds: Thresholds

    @classmethod
    def of(cls, bins: Sequence[Bin], dimensions: Dimensions, limits: AttachLimits) -> "Rooms":
        """Of all nodes."""
        rooms = [_room(one, dimensions, limits) for one in bins]
        return cls(dimensions, limits, rooms, Thresholds(rooms))

    def changed(self, bins: Mapping[int, Bin]) -> "Rooms":
        """The next ones: some nodes changed, or came after all others."""
        vectors = {i: _room(one, self.dimensions, self.limits) for i, one in sorted(bins.items())}
        rooms = self.rooms.copy()
        for i, vector in vectors.items():
            if i < len(rooms):
                rooms[i] = vector
            else:
                rooms.append(vector)
        return Rooms(self.dimensions, self.limits, rooms, self.thresholds.changed(vectors))


def _room(one: Bin, dimensions: Dimensions, limits: AttachLimits) -> Vector:
    drivers = dimensions.drivers
    return dimensions.room(one.room, limits.of_node(one, drivers)) if drivers else dimensions.vector(one.room)


class Bins:
    """Nodes as one question finds them.

    Attributes:
        bins: by number.
        rooms: by number and dimension.
        everything: all that are there.
        leaving: those that are going away.
        staying: those that are not.
        usable: those that may take pods at all: not leaving, not closed.
    """

    def __init__(
        self,
        bins: Sequence[Bin],
        ground: Ground,
        table: Rooms,
        *,
        leaving: int,
        closed: int,
        gone: int = 0,
    ) -> None:
        self.bins: Final = bins
        self.ground: Final = ground
        self.dimensions: Final = table.dimensions
        self.rooms: Final = table.rooms
        self.thresholds: Final = table.thresholds
        self.everything: Final = ground.everything & ~gone
        self.leaving: Final = leaving & self.everything
        self.staying: Final = self.everything & ~leaving
        self._closed: Final = closed
        self.usable: Final = self.staying & ~closed
        self._admitting: Final[dict[NodeFilter, int]] = {}

    def admitting(self, node_filter: NodeFilter) -> int:
        """Bins that a pod with this filter may use as far as taints, labels and names go."""
        answer = self._admitting.get(node_filter)
        if answer is None:
            answer = self._admitting[node_filter] = self.usable and self.usable & self.ground.tolerating(
                node_filter.tolerations, node_filter.effects
            ) & self.ground.matching(node_filter.terms)
        return answer

    def roomy(self, need: Need) -> int:
        """Bins on which one such pod fits as they are now."""
        return self.thresholds.holding(need)

    def eligible(self, eligibility: Eligibility) -> int:
        """Bins that count for a spread constraint."""
        answer = self.everything
        if eligibility.tolerations is not None:
            answer &= self.ground.tolerating(eligibility.tolerations, NodeFilter().effects)
        if eligibility.terms is not None:
            answer &= self.ground.matching(eligibility.terms)
        for key in eligibility.keys:
            answer &= ~self.ground.by_label(key).get(None, 0)
        return answer

    def by_label(self, key: str) -> Mapping[str | None, int]:
        """Bins by value of a label, None for those without it; a node without hostname label goes by its name."""
        found = self.ground.by_label(key)
        if self.everything == self.ground.everything:
            return found
        left = {value: places & self.everything for value, places in found.items()}
        return {value: places for value, places in left.items() if places}

    def refusal(
        self, node_filter: NodeFilter, need: Need, left: "Thresholds | None", topology: tuple[tuple[str, int], ...] = ()
    ) -> BinsRefuse | None:
        """Why no bin takes one more such pod; None where there are no bins.

        Args:
            node_filter: of the pod.
            need: of the pod.
            left: what room is left now that everything is placed; None where nothing was placed on any bin.
            topology: (words, bins that are ruled out by it) of whatever else keeps the pod off.
        """
        if not self.everything:
            return None
        ground, open_ones = self.ground, self.staying & ~self._closed
        untolerated: Counter[Taint] = Counter()
        for taints, holders in ground.by_taints.items():
            taint = first_untolerated(node_filter.tolerations, taints, node_filter.effects)
            if taint is not None:
                untolerated[taint] += (holders & open_ones).bit_count()
        tolerating = ground.tolerating(node_filter.tolerations, node_filter.effects) & open_ones
        matching = tolerating & ground.matching(node_filter.terms)
        if left is None:
            left = self.thresholds
        lacking = [
            (feature, tolerating & ground.lacking(feature))
            for feature in sorted({feature for term in node_filter.terms for feature in term.features})
        ]
        other = tolerating & ~matching
        for _, nodes in lacking:
            other &= ~nodes
        short = []
        for d, wanted in need:
            count = (matching & ~left.with_at_least(d, wanted)).bit_count()
            if count:
                short.append((self.dimensions.names[d], count))
        return BinsRefuse(
            total=self.everything.bit_count(),
            untolerated=tuple(sorted(((t, n) for t, n in untolerated.items() if n), key=lambda one: str(one[0]))),
            mismatched=other.bit_count(),
            lacking=tuple([(feature, nodes.bit_count()) for feature, nodes in lacking if nodes]),
            leaving=self.leaving.bit_count(),
            closed=(self.staying & self._closed).bit_count(),
            short=tuple(short),
            topology=topology,
        )
