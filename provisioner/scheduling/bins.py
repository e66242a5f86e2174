"""Machines of now as one problem found them; nothing here changes while pods are placed."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.names import HOSTNAME_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.bits import mask_of
from provisioner.scheduling.demands import Eligibility, Relations, facts_of
from provisioner.scheduling.filters import FilterError, NodeFilter, Term, label_value
from provisioner.scheduling.ports import Port, ports_of
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.reasons import BinsRefuse
from provisioner.scheduling.selecting import LabelSet, label_set
from provisioner.scheduling.vectors import Dimensions, Need, Thresholds, Vector
from provisioner.values.taints import Taint, Toleration, first_untolerated

_Tolerance = tuple[tuple[Toleration, ...], bool]


@dataclass(frozen=True, slots=True)
class Tally:
    """The pods of one machine, as selectors see them.

    Attributes:
        uids: of all of them.
        pods: (labels, how many stay, how many are being deleted).
        guarding: (relations, how many) of those with required anti-affinity.
        ports: of the node, that they take.
    """

    uids: frozenset[str]
    pods: tuple[tuple[LabelSet, int, int], ...]
    guarding: tuple[tuple[Relations, int], ...]
    ports: tuple[Port, ...]


def tally_of(pods: Iterable[Pod], *, exact: bool = False) -> Tally:
    """Count pods; with `exact`, labels that differ between brothers are seen too."""
    staying: Counter[LabelSet] = Counter()
    dying: Counter[LabelSet] = Counter()
    guarding: Counter[Relations] = Counter()
    ports: set[Port] = set()
    uids = []
    for pod in pods:
        shape = pod.shape
        uids.append(pod.uid)
        try:
            facts = facts_of(shape)
            labels = facts.pod
            affinity = shape.affinity
            if affinity is not None and affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
                guarding[facts.required.relations] += 1
        except FilterError:
            labels = label_set(shape.namespace, shape.labels)
        if exact:
            labels = label_set(pod.namespace, pod.labels)
        ports.update(ports_of(shape.host_ports) if shape.host_ports else ())
        (staying if pod.deleted is None else dying)[labels] += 1
    return Tally(
        frozenset(uids),
        tuple((labels, staying[labels], dying[labels]) for labels in dict.fromkeys((*staying, *dying))),
        tuple(guarding.items()),
        tuple(sorted(ports)),
    )


class Bins:
    """A set of bins is one integer, bit i for the i-th in order of preference.

    Attributes:
        rooms: by bin and dimension.
        usable: bins that may take pods at all: not leaving, not using more than they have.
        staying: bins that are not leaving.
    """

    def __init__(self, bins: Sequence[Bin], dimensions: Dimensions) -> None:
        self.bins: Final = bins
        self.dimensions: Final = dimensions
        self.everything: Final = (1 << len(bins)) - 1
        vector = dimensions.room
        self.rooms: Final[list[Vector]] = [vector(one.room, one.attach_limits) for one in bins]
        overcommitted = []
        leaving = []
        by_taints: dict[tuple[Taint, ...], list[int]] = {}
        for i, one in enumerate(bins):
            if one.room.negative:
                overcommitted.append(i)
            if one.leaving:
                leaving.append(i)
            by_taints.setdefault(one.taints, []).append(i)
        self._overcommitted: Final = mask_of(overcommitted)
        self.leaving: Final = mask_of(leaving)
        self.staying: Final = self.everything & ~self.leaving
        self.usable: Final = self.staying & ~self._overcommitted
        self._by_taints: Final = {taints: mask_of(numbers) for taints, numbers in by_taints.items()}
        self._thresholds: Thresholds | None = None
        self._tolerated: dict[tuple[tuple[Toleration, ...], tuple[str, ...]], int] = {}
        self._matching: dict[tuple[Term, ...], int] = {}
        self._admitting: dict[NodeFilter, int] = {}
        self._by_label: dict[str, dict[str | None, int]] = {}

    def admitting(self, node_filter: NodeFilter) -> int:
        """Bins that a pod with this filter may use as far as taints, labels and names go."""
        answer = self._admitting.get(node_filter)
        if answer is None:
            answer = self._admitting[node_filter] = self.usable and self.usable & self._tolerating(
                node_filter.tolerations, node_filter.effects
            ) & self._match(node_filter.terms)
        return answer

    def roomy(self, need: Need) -> int:
        """Bins on which one such pod fits as they are now."""
        if self._thresholds is None:
            self._thresholds = Thresholds(self.rooms)
        return self._thresholds.holding(need)

    def eligible(self, eligibility: Eligibility) -> int:
        """Bins that count for a spread constraint."""
        answer = self.everything
        if eligibility.tolerations is not None:
            answer &= self._tolerating(eligibility.tolerations, NodeFilter().effects)
        if eligibility.terms is not None:
            answer &= self._match(eligibility.terms)
        for key in eligibility.keys:
            answer &= ~self.by_label(key).get(None, 0)
        return answer

    def by_label(self, key: str) -> Mapping[str | None, int]:
        """Bins by value of a label, None for those without it; a node without hostname label goes by its name."""
        found = self._by_label.get(key)
        if found is None:
            members: dict[str | None, list[int]] = {}
            for i, one in enumerate(self.bins):
                value = label_value(one.labels, key)
                if value is None and key == HOSTNAME_LABEL:
                    value = one.node_name or one.name
                members.setdefault(value, []).append(i)
            found = self._by_label[key] = {value: mask_of(numbers) for value, numbers in members.items()}
        return found

    def tallies(self, moving: Collection[str], *, exact: bool) -> list[Tally]:
        """By bin, its pods less those with a UID of `moving`; kept on the bin where none of its pods moves."""
        found = []
        moving = frozenset(moving)
        for one in self.bins:
            kept = one.__dict__
            tally = kept.get("_tally")
            if tally is None:
                tally = kept["_tally"] = tally_of(one.pods)
            if tally.uids and not tally.uids.isdisjoint(moving):
                tally = tally_of((pod for pod in one.pods if pod.uid not in moving), exact=exact)
            elif exact:
                tally = tally_of(one.pods, exact=True)
            found.append(tally)
        return found

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
        if not self.bins:
            return None
        untolerated: Counter[Taint] = Counter()
        for taints, holders in self._by_taints.items():
            taint = first_untolerated(node_filter.tolerations, taints, node_filter.effects)
            if taint is not None:
                untolerated[taint] += (holders & self.staying).bit_count()
        tolerating = self._tolerating(node_filter.tolerations, node_filter.effects) & self.staying
        matching = tolerating & self._match(node_filter.terms)
        admitting = matching & ~self._overcommitted
        if left is None:
            if self._thresholds is None:
                self._thresholds = Thresholds(self.rooms)
            left = self._thresholds
        short = []
        for d, wanted in need:
            count = (admitting & ~left.with_at_least(d, wanted)).bit_count()
            if count:
                short.append((self.dimensions.names[d], count))
        return BinsRefuse(
            total=len(self.bins),
            untolerated=tuple(sorted(((t, n) for t, n in untolerated.items() if n), key=lambda one: str(one[0]))),
            mismatched=(tolerating & ~matching).bit_count(),
            overcommitted=(matching & self._overcommitted).bit_count(),
            leaving=self.leaving.bit_count(),
            short=tuple(short),
            topology=topology,
        )

    def _tolerating(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> int:
        answer = self._tolerated.get((tolerations, effects))
        if answer is None:
            answer = 0
            for taints, holders in self._by_taints.items():
                if first_untolerated(tolerations, taints, effects) is None:
                    answer |= holders
            self._tolerated[tolerations, effects] = answer
        return answer

    def _match(self, terms: tuple[Term, ...]) -> int:
        """Bins whose labels and name match; those alike in every label that decides are judged once."""
        if any(term.trivial for term in terms):
            return self.everything
        answer = self._matching.get(terms)
        if answer is None:
            answer = self._matching[terms] = self._matched(terms)
        return answer

    def _matched(self, terms: tuple[Term, ...]) -> int:
        keys = tuple(sorted({key for term in terms for key in term.requirements}))
        named = any(term.names is not None for term in terms)
        hosts = HOSTNAME_LABEL in keys
        verdicts: dict[tuple[str | None, ...], bool] = {}
        matching = []
        for i, one in enumerate(self.bins):
            look = tuple(label_value(one.labels, key) for key in keys)
            if named:
                look = (*look, one.node_name)
            verdict = verdicts.get(look)
            if verdict is None:
                verdict = any(term.matches(one.labels, one.node_name) for term in terms)
                if not hosts and not named:
                    verdicts[look] = verdict
            if verdict:
                matching.append(i)
        return mask_of(matching)
