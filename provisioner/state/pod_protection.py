"""Which pods must not be evicted now, because of a PodDisruptionBudget or of their own annotation. Not thread-safe."""

from collections import defaultdict
from datetime import datetime

from provisioner.apis.budget_index import BudgetIndex, PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.eviction import asks_no_budget, forbids_for_ever, lets_unready_go
from provisioner.apis.pods import Pod, do_not_disrupt, is_evictable


class PodProtection:
    """The PodDisruptionBudgets of the cluster, asked pod by pod."""

    def __init__(self) -> None:
        self._budgets: defaultdict[str, dict[str, PodDisruptionBudget]] = defaultdict(dict)  # namespace -> name
        self._indexed: dict[str, BudgetIndex] = {}  # namespace -> its budgets, since they changed last
        self._frozen: PodBudgets | None = None

    def budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> bool:
        """A PodDisruptionBudget was added, changed or removed; whether `holds` may say something else now.

        What is counted for a budget changes with every eviction, and is of no matter unless it forbids them all.
        """
        one = new or old
        if one is None:
            return False
        self._frozen = None
        namespace = one.metadata.namespace
        mine = self._budgets[namespace]
        if new is not None:
            mine[one.metadata.name] = new
        else:
            mine.pop(one.metadata.name, None)
            if not mine:
                del self._budgets[namespace]
        if old is not None and new is not None and old.spec == new.spec and not forbids_for_ever(new):
            return False
        self._indexed.pop(namespace, None)
        return True

    def frozen(self) -> PodBudgets:
        """All of them; the same object until one changes. Cost: O(budgets) after a change."""
        if self._frozen is None:
            self._frozen = PodBudgets(
                {
                    namespace: tuple(of_name[name] for name in sorted(of_name))
                    for namespace, of_name in sorted(self._budgets.items())
                    if of_name
                }
            )
        return self._frozen

    def lets_go(self, pod: Pod, now: datetime) -> bool:
        """Whether an eviction of the pod would succeed now."""
        return is_evictable(pod, now) and not self.frozen().holding(pod)

    def holds(self, pod: Pod, now: datetime) -> bool:
        """Whether no eviction of this pod can succeed until somebody changes something, or its annotation's time is over.

        A budget whose pods are only too few at the moment does not hold: it lets them go one after another.
        Cost: as of `BudgetIndex`. Source: core spec 3.3, "currently reschedulable".
        """
        if do_not_disrupt(pod, now):
            return True
        if asks_no_budget(pod) or pod.namespace not in self._budgets:
            return False
        if (index := self._indexed.get(pod.namespace)) is None:
            index = self._indexed[pod.namespace] = BudgetIndex(self._budgets[pod.namespace].values())
        mine = index.of(pod)
        return len(mine) > 1 or any(forbids_for_ever(one) and not lets_unready_go(one, pod) for one in mine)
