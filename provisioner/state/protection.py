"""Which pods must not be evicted now, because of a PodDisruptionBudget or of their own annotation. Not thread-safe."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.eviction import asks_no_budget, forbids_for_ever, lets_unready_go
from provisioner.apis.meta import selects
from provisioner.apis.pods import Pod, do_not_disrupt


class Protection:
    """The PodDisruptionBudgets of the cluster, asked pod by pod."""

    def __init__(self) -> None:
        self._budgets: defaultdict[str, dict[str, PodDisruptionBudget]] = defaultdict(dict)  # namespace -> name
        self._frozen: Mapping[str, tuple[PodDisruptionBudget, ...]] | None = None

    def budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """A PodDisruptionBudget was added, changed or removed."""
        one = new or old
        if one is None:
            return
        self._frozen = None
        mine = self._budgets[one.metadata.namespace]
        if new is not None:
            mine[one.metadata.name] = new
        else:
            mine.pop(one.metadata.name, None)
            if not mine:
                del self._budgets[one.metadata.namespace]

    def frozen(self) -> Mapping[str, tuple[PodDisruptionBudget, ...]]:
        """All of them by namespace, each namespace's by name; the same object until one changes. Cost: O(budgets) after a change."""
        if self._frozen is None:
            self._frozen = MappingProxyType(
                {
                    namespace: tuple(of_name[name] for name in sorted(of_name))
                    for namespace, of_name in sorted(self._budgets.items())
                    if of_name
                }
            )
        return self._frozen

    def holds(self, pod: Pod, now: datetime) -> bool:
        """Whether no eviction of this pod can succeed until somebody changes something, or its annotation's time is over.

        A budget whose pods are only too few at the moment does not hold: it lets them go one after another.
        Cost: the budgets of the pod's namespace. Source: core spec 3.3, "currently reschedulable".
        """
        if do_not_disrupt(pod, now):
            return True
        if asks_no_budget(pod):
            return False
        budgets = self._budgets.get(pod.namespace, {}).values()
        mine = [one for one in budgets if selects(one.spec.selector, pod.labels)]
        return len(mine) > 1 or any(forbids_for_ever(one) and not lets_unready_go(one, pod) for one in mine)
