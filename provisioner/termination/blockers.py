"""What holds a drain: which pods, of which owners, under which PodDisruptionBudgets, until when."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.eviction import forbids_for_ever, never_allows
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_waiting_for_eviction, read_do_not_disrupt
from provisioner.values.printable import listed

_MOST_PODS: Final = 3
_MOST_SENTENCES: Final = 5
_DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
"""The condition of a PodDisruptionBudget that is False while it allows no eviction."""


class Cause(enum.StrEnum):
    """Why a pod is still on a Node that is drained."""

    POD_BUDGET = "pod-budget"
    """Its PodDisruptionBudget allows no eviction now."""
    IMPOSSIBLE_POD_BUDGET = "impossible-pod-budget"
    """Its PodDisruptionBudget allows no eviction before somebody changes it, or the number of its pods."""
    SEVERAL_POD_BUDGETS = "several-pod-budgets"
    POD_PROTECTED = "pod-protected"
    """karpenter.sh/do-not-disrupt."""
    TERMINATING = "terminating"
    """It is ending already."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Pods of one owner that hold a drain for the same cause; `str` is a clause for people.

    Attributes:
        cause: for programs.
        pods: "namespace/name", sorted.
        owner: "ReplicaSet web-5d9"; "" for pods without.
        budgets: PodDisruptionBudgets by "namespace/name", where these are the cause.
        until: when the clock alone lifts it; None when it does not.
        outnumbered: more replicas would lift it: the budget requires as many healthy pods as there are.
        since: when it began to hold the drain, as the API's own times tell, so that every process says the same; None where they do not.
        detail: more about the budget, for people.
    """

    cause: Cause
    pods: tuple[str, ...] = ()
    owner: str = ""
    budgets: tuple[str, ...] = ()
    until: datetime | None = None
    detail: str = ""
    outnumbered: bool = False
    since: datetime | None = None

    def __str__(self) -> str:
        who = _pods(self.pods, self.owner)
        since = f", blocked since {self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since is not None else ""
        match self.cause:
            case Cause.POD_BUDGET:
                return f"PodDisruptionBudget {self.budgets[0]} allows no eviction now ({self.detail}) of {who}{since}"
            case Cause.IMPOSSIBLE_POD_BUDGET:
                return (
                    f"PodDisruptionBudget {self.budgets[0]} never allows an eviction ({self.detail}) of {who}{since}; "
                    f"change the budget{' or add replicas' if self.outnumbered else ''}"
                )
            case Cause.SEVERAL_POD_BUDGETS:
                verb = "is" if len(self.pods) == 1 else "are"
                several = ", ".join(self.budgets)
                return (
                    f"{who} {verb} selected by several PodDisruptionBudgets ({several}), which the Eviction API does not support"
                    f"{since}"
                )
            case Cause.POD_PROTECTED:
                end = f" until {self.until:%Y-%m-%dT%H:%M:%SZ}" if self.until is not None else ""
                verb = "has" if len(self.pods) == 1 else "have"
                return f"{who} {verb} the annotation {names.DO_NOT_DISRUPT}{end}{since}"
            case Cause.TERMINATING:
                end = f" and may take until {self.until:%Y-%m-%dT%H:%M:%SZ}" if self.until is not None else ""
                verb = "is" if len(self.pods) == 1 else "are"
                return f"{who} {verb} terminating{end}"


def blockers(
    pods: Iterable[Pod], budgets: PodBudgets, now: datetime, begun: datetime | None = None
) -> tuple[Blocker, ...]:
    """What holds the drain of a Node with these pods; nothing of pods that can be evicted now.

    Args:
        pods: on the Node.
        budgets: PodDisruptionBudgets.
        now: the instant.
        begun: when the drain began; None where it has not.

    Cost: O(pods), and O(budgets of their namespaces) once.
    """
    found: dict[Blocker, list[str]] = {}
    for pod in pods:
        why = _why(pod, budgets, now)
        if why is None:
            continue
        since = None
        if begun is not None and why.cause is not Cause.TERMINATING:
            since = max(begun, why.since or begun)
        found.setdefault(replace(why, since=since), []).append(pod.key)
    made = (replace(one, pods=tuple(sorted(keys))) for one, keys in found.items())
    return tuple(sorted(made, key=lambda one: (one.cause is Cause.TERMINATING, one.pods)))


def _why(pod: Pod, budgets: PodBudgets, now: datetime) -> Blocker | None:
    """What holds the pod, naming no pod, and since when it would hold any drain; None where nothing does."""
    if not is_waiting_for_eviction(pod, now):
        return None
    owner = f"{pod.owner.kind} {pod.owner.name}" if pod.owner is not None else ""
    if pod.deleted is not None:
        return Blocker(Cause.TERMINATING, owner=owner, until=pod.deleted)
    if (protection := read_do_not_disrupt(pod)).holds(now):
        return Blocker(Cause.POD_PROTECTED, owner=owner, until=protection.until)
    held = budgets.holding(pod)
    keys = tuple(one.metadata.key for one in held)
    if len(held) > 1:
        return Blocker(Cause.SEVERAL_POD_BUDGETS, owner=owner, budgets=keys)
    for one in held:
        cause = Cause.IMPOSSIBLE_POD_BUDGET if never_allows(one) else Cause.POD_BUDGET
        outnumbered = cause is Cause.IMPOSSIBLE_POD_BUDGET and not forbids_for_ever(one)
        told = condition(one.status.conditions, _DISRUPTION_ALLOWED)
        since = told.last_transition_time if told is not None and told.status == "False" else None
        detail = _numbers(one)
        return Blocker(cause, owner=owner, budgets=keys, detail=detail, outnumbered=outnumbered, since=since)
    return None


def sentence(those: Iterable[Blocker]) -> str:
    """All of them in words; the first few where there are many, "" for none."""
    return listed(those, _MOST_SENTENCES, "; ")


def _numbers(budget: PodDisruptionBudget) -> str:
    spec, status = budget.spec, budget.status
    rule = (
        f"maxUnavailable {spec.max_unavailable}"
        if spec.max_unavailable is not None
        else f"minAvailable {spec.min_available}"
    )
    return f"{rule}, {status.current_healthy} of {status.expected_pods} pods healthy, {status.desired_healthy} required"


def _pods(keys: tuple[str, ...], owner: str) -> str:
    return f"{'pod' if len(keys) == 1 else 'pods'} {listed(keys, _MOST_PODS)}{f' of {owner}' if owner else ''}"
