"""Whom kube-scheduler preempts, of those whose end would make room. Pure.

Source: kube-scheduler 1.36, `pkg/scheduler/framework/preemption` (pickOneNodeForPreemption) and `pkg/scheduler/util` (MoreImportantPod).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

_OFFSET: Final = 1 << 31
"""Makes every priority positive, so that fewer victims of low priority are not more than many."""


class Preemptible(Protocol):
    """A pod that may be preempted. `since`: when it began to run."""

    @property
    def since(self) -> float: ...

    @property
    def priority(self) -> int: ...


V = TypeVar("V", bound=Preemptible)


@dataclass(frozen=True, slots=True)
class PreemptionCandidate(Generic[V]):
    """A node on which the pod can run once these pods are gone, at least one.

    Attributes:
        violations: victims whose PodDisruptionBudget does not allow it.
    """

    node: str
    victims: tuple[V, ...]
    violations: int


def importance(pod: Preemptible) -> tuple[int, float]:
    """Sorts the most important pod first: by priority, then the one that has run longest."""
    return -pod.priority, pod.since


def preferred(candidates: Sequence[PreemptionCandidate[V]]) -> PreemptionCandidate[V]:
    """The node that hurts least, of equal ones the first: fewest budgets broken, lowest highest priority, lowest sum of priorities, fewest victims, and
    the latest begin of the most important victim.
    """
    return min(candidates, key=_hurt)


def _hurt(one: PreemptionCandidate[V]) -> tuple[int, int, int, int, float]:
    highest = max(victim.priority for victim in one.victims)
    begun = min(victim.since for victim in one.victims if victim.priority == highest)
    total = sum(victim.priority + _OFFSET for victim in one.victims)
    return one.violations, highest, total, len(one.victims), -begun
