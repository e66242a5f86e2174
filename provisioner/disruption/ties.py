"""Which pods have to do with each other: a hard spread or affinity of the one means the other. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.apis.pods import Pod
from provisioner.scheduling.demands import Count, facts_of
from provisioner.scheduling.filters import FilterError
from provisioner.scheduling.selecting import LabelSet, label_set


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods that ties cannot tell apart.

    Attributes:
        labels: what selectors see of them.
        shape: the key of their shape.
        counts: what they look at; None where that cannot be read.
    """

    labels: LabelSet
    shape: str
    counts: tuple[Count, ...] | None


def kinds(pods: Iterable[Pod]) -> Counter[Kind]:
    """How many pods there are of each kind, in the order in which they are first met."""
    first: dict[tuple[LabelSet, str], Pod] = {}
    amounts: Counter[tuple[LabelSet, str]] = Counter()
    for pod in pods:
        key = label_set(pod.namespace, pod.labels), pod.shape.key
        first.setdefault(key, pod)
        amounts[key] += 1
    return Counter({Kind(*key, _counts(pod)): amounts[key] for key, pod in first.items()})


def ties(one: Kind, other: Kind, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether `one` and `other` have to do with each other. What `one` asks for and cannot be read ties it to everybody, what `other` does to nobody.

    Args:
        one: a kind of pods.
        other: another, or the same.
        namespaces: labels by name.
    """
    if one.counts is None:
        return True
    return any(count.include(other.labels, namespaces) for count in one.counts) or any(
        count.include(one.labels, namespaces) for count in other.counts or ()
    )


def tied_shapes(pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """Keys of the shapes whose pods have to do with others among `pods`. Cost: kinds that look at any, times kinds."""
    amounts = kinds(pods)
    tied: set[str] = set()
    for one in amounts:
        if one.counts == ():
            continue
        for other in amounts:
            if (one is not other or amounts[one] > 1) and ties(one, other, namespaces):
                tied |= {one.shape, other.shape}
    return frozenset(tied)


def _counts(pod: Pod) -> tuple[Count, ...] | None:
    try:
        facts = facts_of(pod.shape)
        return () if facts.plain else facts.required.relations.counts
    except FilterError:
        return None
