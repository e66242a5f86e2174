"""What the Eviction API makes of a pod's PodDisruptionBudgets. Pure.

Source: Kubernetes 1.36 `pkg/registry/core/pod/storage/eviction.go`. Differs: Karpenter knows AlwaysAllow only.
"""

from collections.abc import Iterable, Mapping

from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.pods import Pod


def asks_no_budget(pod: Pod, *, soon: bool = False) -> bool:
    """Whether the pod is evicted whatever budgets select it, and however many: it has not started, is done, or ends already.

    `soon`: it is to be evicted later, and what is starting will have started.
    """
    return pod.deleted is not None or pod.phase in ("Succeeded", "Failed") or (pod.phase == "Pending" and not soon)


def refuses(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether the budget that selects the pod forbids its eviction now.

    A pod that is not Ready may go where the policy is AlwaysAllow, or the others are as many as are demanded. Of a budget that changed
    nothing is allowed before its controller has counted anew.
    """
    status = budget.status
    if lets_unready_go(budget, pod):
        return False
    return status.observed_generation < budget.metadata.generation or status.disruptions_allowed <= 0


def lets_unready_go(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether the pod may go because it is not Ready, whatever the budget allows otherwise."""
    if pod.ready:
        return False
    status = budget.status
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or (
        status.current_healthy >= status.desired_healthy > 0
    )


def forbids_for_ever(budget: PodDisruptionBudget) -> bool:
    """Whether the budget, by what it says, never allows the eviction of a pod that is Ready."""
    return budget.spec.max_unavailable in (0, "0%") or budget.spec.min_available == "100%"


def never_allows(budget: PodDisruptionBudget) -> bool:
    """Whether no eviction can succeed under the budget until somebody changes it or the number of its pods.

    By what it says (maxUnavailable 0 or 0%, minAvailable 100%), or by what was counted for it as it is: it requires as many healthy
    pods as there are. A budget of no pods does not count.
    """
    status = budget.status
    if status.disruptions_allowed > 0 or status.expected_pods == 0:
        return False
    if forbids_for_ever(budget):
        return True
    return status.observed_generation >= budget.metadata.generation and status.desired_healthy >= status.expected_pods


def impossible(budgets: Mapping[str, Iterable[PodDisruptionBudget]]) -> tuple[tuple[str, str], ...]:
    """(namespace, name) of every budget that never allows an eviction of the pods that it has. Cost: O(budgets)."""
    return tuple((space, one.metadata.name) for space, those in budgets.items() for one in those if never_allows(one))
