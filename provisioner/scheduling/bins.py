"""Machines of now while they are being filled."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from provisioner.scheduling.bits import members
from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.filters import NodeFilter, label_value
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.reasons import BinsRefuse
from provisioner.scheduling.vectors import Dimensions, Need, most
from provisioner.values.taints import Taint, Toleration, first_untolerated


class Bins:
    """Room left on every machine of now, and which class was found not to fit where.

    A set of bins is one integer, bit i for the i-th in order of preference. Room only shrinks, so a bin on which a
    need once did not fit is never asked again for it.
    """

    def __init__(self, bins: Sequence[Bin], dimensions: Dimensions) -> None:
        self.bins: Final = bins
        self.dimensions: Final = dimensions
        self.everything: Final = (1 << len(bins)) - 1
        self.room: Final = [list(dimensions.vector(one.room)) for one in bins]
        self.placed: Final[list[list[tuple[PodClass, int, int]]]] = [[] for _ in bins]
        self._overcommitted = 0
        self._by_taints: dict[tuple[Taint, ...], int] = {}
        for i, one in enumerate(bins):
            if min(one.room.values(), default=0) < 0:
                self._overcommitted |= 1 << i
            self._by_taints[one.taints] = self._by_taints.get(one.taints, 0) | 1 << i
        self._tolerated: dict[tuple[Toleration, ...], int] = {}
        self._matching: dict[NodeFilter, int] = {}
        self._admitting: dict[NodeFilter, int] = {}
        self._full: dict[tuple[NodeFilter, Need], int] = {}
        self._sorted_room: dict[tuple[NodeFilter, int], list[int]] = {}

    def admitting(self, node_filter: NodeFilter) -> int:
        """Bins that a pod with this filter may use as far as taints, labels and names go, less the overcommitted."""
        answer = self._admitting.get(node_filter)
        if answer is None:
            answer = self._admitting[node_filter] = (
                self._tolerating(node_filter.tolerations) & self._match(node_filter) & ~self._overcommitted
            )
        return answer

    def fill(self, pods: PodClass, need: Need, start: int) -> int:
        """Place pods of one class, from number `start` on, on the first bins that take them; the number reached.

        Cost: O(bins that admit the class and were not found full for its need before).
        """
        if not self.bins:
            return start
        key = (pods.filter, need)
        full = self._full.get(key, 0)
        candidates = self.admitting(pods.filter) & ~full
        left = len(pods.pods) - start
        while candidates and left:
            low = candidates & -candidates
            candidates ^= low
            i = low.bit_length() - 1
            room = self.room[i]
            count = most(room, need, left)
            if count:
                for d, amount in need:
                    room[d] -= amount * count
                self.placed[i].append((pods, start, start + count))
                start += count
                left -= count
            if left:
                full |= low
        self._full[key] = full
        return start

    def refusal(self, node_filter: NodeFilter, need: Need) -> BinsRefuse | None:
        """Why no bin takes one more such pod; None where there are no bins."""
        if not self.bins:
            return None
        untolerated: Counter[Taint] = Counter()
        for taints, holders in self._by_taints.items():
            taint = first_untolerated(node_filter.tolerations, taints)
            if taint is not None:
                untolerated[taint] += holders.bit_count()
        tolerating = self._tolerating(node_filter.tolerations)
        matching = tolerating & self._match(node_filter)
        short = []
        for d, wanted in need:
            count = self._shorter(node_filter, d, wanted)
            if count:
                short.append((self.dimensions.names[d], count))
        return BinsRefuse(
            total=len(self.bins),
            untolerated=tuple(sorted(untolerated.items(), key=lambda one: str(one[0]))),
            mismatched=(tolerating & ~matching).bit_count(),
            overcommitted=(matching & self._overcommitted).bit_count(),
            short=tuple(short),
        )

    def _shorter(self, node_filter: NodeFilter, d: int, wanted: int) -> int:
        """Admitting bins with less than `wanted` of one dimension; ask only when nothing is placed any more."""
        key = (node_filter, d)
        rooms = self._sorted_room.get(key)
        if rooms is None:
            rooms = self._sorted_room[key] = sorted(self.room[i][d] for i in members(self.admitting(node_filter)))
        return bisect_left(rooms, wanted)

    def _tolerating(self, tolerations: tuple[Toleration, ...]) -> int:
        answer = self._tolerated.get(tolerations)
        if answer is None:
            answer = 0
            for taints, holders in self._by_taints.items():
                if first_untolerated(tolerations, taints) is None:
                    answer |= holders
            self._tolerated[tolerations] = answer
        return answer

    def _match(self, node_filter: NodeFilter) -> int:
        """Bins whose labels and name match; those alike in every label that decides are judged once."""
        if node_filter.unconditional:
            return self.everything
        answer = self._matching.get(node_filter)
        if answer is not None:
            return answer
        answer = 0
        keys, named = node_filter.keys, node_filter.named
        verdicts: dict[tuple[str | None, ...], bool] = {}
        for i, one in enumerate(self.bins):
            look = tuple(label_value(one.labels, key) for key in keys)
            if named:
                look = (*look, one.node_name)
            verdict = verdicts.get(look)
            if verdict is None:
                verdict = verdicts[look] = any(term.matches(one.labels, one.node_name) for term in node_filter.terms)
            if verdict:
                answer |= 1 << i
        self._matching[node_filter] = answer
        return answer
