"""What pods will ask for when they are admitted again, as VerticalPodAutoscalers tell: a pod that is evicted comes back with other requests than it has.

Whoever looks for another place for a pod that runs asks here how large it will be; one that is planned as it is now gets a node that is too small for its
successor. Nothing is predicted but where `--vpa-predictions` is given, and the API server serves the kind (`disruption.autoscaler_discovery`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from provisioner.apis.core import LimitRange, LimitRangeItem
from provisioner.apis.pods import Pod, PodAmounts
from provisioner.apis.shapes import PodShape, grown_shape
from provisioner.apis.vpa import TargetKey, VerticalPodAutoscaler, bounds_of, recommended, targets_of
from provisioner.state.admission import Admitting
from provisioner.state.knowledge import KindKnowledge

MOST_OF_NAMESPACE: Final = 1_000
"""VerticalPodAutoscalers of one namespace that count at the same time; of others nothing is predicted. Tenants may make any number, each in his own."""
_MOST_SIZES: Final = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class PodPredictions:
    """What pods are predicted from. Any thread may ask.

    Attributes:
        by_target: the VerticalPodAutoscalers that count.
        bounds: of containers, by namespace; see `vpa.bounds_of`.
    """

    by_target: Mapping[TargetKey, VerticalPodAutoscaler]
    bounds: Mapping[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    _sizes: dict[tuple[TargetKey, PodAmounts, str], PodShape] = field(
        default_factory=dict, repr=False
    )  # what was asked before

    def autoscaler_of(self, pod: Pod) -> VerticalPodAutoscaler | None:
        """The one that sizes the pod when it is admitted; None for none. Cost: O(1)."""
        if not self.by_target:
            return None
        return next((found for one in targets_of(pod) if (found := self.by_target.get(one)) is not None), None)

    def readmitted(self, pod: Pod) -> Pod:
        """The pod as it will be: with the larger of what it asks for and what is recommended. The same object where that is no more.

        Cost: 3 us, and about 100 us for the first of each class and target.
        """
        one = self.autoscaler_of(pod)
        if one is None or one.target is None or pod.amounts is None:
            return pod
        key = one.target, pod.amounts, pod.shape.key
        shape = self._sizes.get(key)
        if shape is None:
            if len(self._sizes) >= _MOST_SIZES:
                self._sizes.clear()
            shape = self._sizes[key] = self._grown(pod, pod.amounts, one)
        return pod if shape == pod.shape else replace(pod, shape=shape)

    def _grown(self, pod: Pod, amounts: PodAmounts, one: VerticalPodAutoscaler) -> PodShape:
        return grown_shape(pod.shape, recommended(amounts.spec, one, self.bounds.get(pod.namespace, ())))


NO_PREDICTIONS: Final = PodPredictions(MappingProxyType({}))


class AutoscalerKeeper:
    """VerticalPodAutoscalers, as the watch tells them. Not thread-safe. An event is O(those of its target), a snapshot after one O(targets)."""

    def __init__(self) -> None:
        self.known = KindKnowledge.NOT_YET
        self._objects: dict[str, dict[str, VerticalPodAutoscaler]] = {}  # namespace -> name -> one that has a target
        self._of: dict[TargetKey, dict[str, VerticalPodAutoscaler]] = {}
        self._best: dict[TargetKey, VerticalPodAutoscaler] = {}
        self._ranges: dict[str, dict[str, LimitRange]] = {}  # namespace -> name -> one that bounds containers
        self._frozen: PodPredictions | None = None
        self._leaving: tuple[tuple[Pod, ...], PodPredictions, tuple[Pod, ...]] = (), NO_PREDICTIONS, ()

    def know(self, known: KindKnowledge) -> None:
        """What is known of them; nothing is predicted but where they are read."""
        if known is not self.known:
            self.known, self._frozen = known, None

    def knowledge(self) -> KindKnowledge:
        """What is known of them."""
        return self.known

    def changed(self, old: VerticalPodAutoscaler | None, new: VerticalPodAutoscaler | None) -> None:
        """One was added, changed or removed."""
        one = new or old
        if one is None:
            return
        name = one.metadata.name
        mine = self._objects.setdefault(one.metadata.namespace, {})
        known = mine.get(name)
        if known is not None and new is not None and _said(known) == _said(new):
            return
        if known is not None and known.target is not None:
            del mine[name], self._of[known.target][name]
            self._chosen(known.target)
        if new is not None and new.target is not None and len(mine) < MOST_OF_NAMESPACE:
            mine[name] = self._of.setdefault(new.target, {})[name] = new
            self._chosen(new.target)
        if not mine:
            del self._objects[one.metadata.namespace]

    def admission_changed(self, old: Admitting | None, new: Admitting | None) -> None:
        """A LimitRange was added, changed or removed; nothing else is of interest. Cost: O(those of its namespace)."""
        one = new or old
        if not isinstance(one, LimitRange):
            return
        mine = self._ranges.setdefault(one.metadata.namespace, {})
        known = mine.pop(one.metadata.name, None)
        if new is not None and bounds_of((one,)):
            mine[one.metadata.name] = one
        if not mine:
            del self._ranges[one.metadata.namespace]
        if known is not None or mine:
            self._frozen = None

    def _chosen(self, target: TargetKey) -> None:
        """Which of those of a target counts."""
        mine = self._of[target]
        best = min(mine.values(), key=lambda one: one.rank, default=None)
        if best is self._best.get(target):
            return
        self._frozen = None
        if best is None:
            del self._of[target], self._best[target]
        else:
            self._best[target] = best

    def frozen(self) -> PodPredictions:
        """What is predicted; the same object while nothing changes."""
        if self._frozen is None:
            usable = self.known is KindKnowledge.READ and bool(self._best)
            bounds = {namespace: bounds_of(mine.values()) for namespace, mine in self._ranges.items()} if usable else {}
            self._frozen = PodPredictions(MappingProxyType(dict(self._best)), bounds) if usable else NO_PREDICTIONS
        return self._frozen

    def readmitted(self, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """The pods as they will be; the same tuple while nothing changes."""
        predictions = self.frozen()
        if self._leaving[0] is not pods or self._leaving[1] is not predictions:
            after = pods if predictions is NO_PREDICTIONS else tuple(map(predictions.readmitted, pods))
            self._leaving = pods, predictions, after
        return self._leaving[2]


def _said(one: VerticalPodAutoscaler) -> tuple[object, ...]:
    """All that matters of one; what else its recommender writes changes nothing."""
    return one.metadata.uid, one.spec, one.status
