"""What holds a drain, pod by pod and in words."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.eviction import impossible, never_allows
from provisioner.apis.meta import Condition
from provisioner.apis.pods import Pod
from provisioner.termination.blockers import Blocker, Cause, blockers, sentence
from provisioner.values.taints import Toleration
from tests.support.clock import NOON
from tests.support.cluster import pod, pod_budget
from tests.support.problems import shape

GUARD = pod_budget(allowed=0)
ENOUGH = pod_budget(healthy=2, required=2, allowed=0, minAvailable=2)
CHANGED = msgspec.structs.replace(pod_budget(), metadata=msgspec.structs.replace(pod_budget().metadata, generation=2))
IMPOSSIBLE = pod_budget(healthy=1, required=1, allowed=0)
SECOND = pod_budget("second", allowed=5)
PROTECTED = {names.DO_NOT_DISRUPT: "true"}


def held(*pods: Pod, budgets: tuple[PodDisruptionBudget, ...] = ()) -> tuple[Blocker, ...]:
    return blockers(pods, PodBudgets({"default": budgets} if budgets else {}), NOON)


CAUSES = {
    "a pod that can be evicted": (pod("a", node="n"), (pod_budget(allowed=1),), None),
    "a budget that allows nothing now": (pod("a", node="n", ready=True), (GUARD,), Cause.POD_BUDGET),
    "a budget that asks for all of its pods": (
        pod("a", node="n", ready=True),
        (IMPOSSIBLE,),
        Cause.IMPOSSIBLE_POD_BUDGET,
    ),
    "two budgets, though both allow it": (pod("a", node="n"), (SECOND, pod_budget()), Cause.SEVERAL_POD_BUDGETS),
    "an annotation, before any budget": (pod("a", node="n", annotations=PROTECTED), (GUARD,), Cause.POD_PROTECTED),
    "a pod that ends": (pod("a", node="n", deleted=NOON + timedelta(seconds=30)), (GUARD,), Cause.TERMINATING),
    "a pod that should have been gone for long": (
        pod("a", node="n", deleted=NOON - timedelta(hours=1)),
        (GUARD,),
        None,
    ),
    "a pod that is done": (pod("a", node="n", phase="Succeeded"), (GUARD,), None),
    "a pod that has not started, of which no budget is asked": (
        pod("a", node="n", phase="Pending"),
        (GUARD, SECOND),
        None,
    ),
    "a pod that is not Ready, while as many others are as are demanded": (pod("a", node="n"), (ENOUGH,), None),
    "a Ready pod of the same budget": (pod("a", node="n", ready=True), (ENOUGH,), Cause.IMPOSSIBLE_POD_BUDGET),
    "a budget that was changed and not counted anew": (pod("a", node="n", ready=True), (CHANGED,), Cause.POD_BUDGET),
    "a pod that stays": (pod("a", node="n", shape=shape(tolerations=(Toleration(operator="Exists"),))), (GUARD,), None),
}


@pytest.mark.parametrize(("one", "budgets", "want"), CAUSES.values(), ids=CAUSES)
def test_why_a_pod_is_still_there(one: Pod, budgets: tuple[PodDisruptionBudget, ...], want: Cause | None) -> None:
    assert [each.cause for each in held(one, budgets=budgets)] == ([] if want is None else [want])


def test_a_pod_that_is_not_ready_may_go_where_its_budget_says_so() -> None:
    lenient = pod_budget(allowed=0, minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert held(pod("a", node="n"), budgets=(lenient,)) == ()
    assert held(pod("a", node="n", ready=True), budgets=(lenient,)) != ()


def refusing(status: str, since: datetime) -> PodDisruptionBudget:
    """A budget with the condition that the disruption controller of Kubernetes writes."""
    told = Condition(type="DisruptionAllowed", status=status, reason="InsufficientPods", last_transition_time=since)
    return msgspec.structs.replace(GUARD, status=msgspec.structs.replace(GUARD.status, conditions=(told,)))


HOUR = timedelta(hours=1)
WEB = pod("a", node="n", ready=True)
# a pod, the budget, when the drain began, since when it is blocked
SINCE: dict[str, tuple[Pod, PodDisruptionBudget, datetime | None, datetime | None]] = {
    "a budget that allowed nothing before": (WEB, refusing("False", NOON - 2 * HOUR), NOON - HOUR, NOON - HOUR),
    "a budget that was spent later": (WEB, refusing("False", NOON - HOUR), NOON - 2 * HOUR, NOON - HOUR),
    "a budget whose condition is behind": (WEB, refusing("True", NOON), NOON - HOUR, NOON - HOUR),
    "a budget without a condition": (WEB, GUARD, NOON - HOUR, NOON - HOUR),
    "an annotation": (pod("a", node="n", annotations=PROTECTED), GUARD, NOON - HOUR, NOON - HOUR),
    "a pod that ends": (pod("a", node="n", deleted=NOON + HOUR), GUARD, NOON - HOUR, None),
    "no drain": (WEB, refusing("False", NOON - HOUR), None, None),
}


@pytest.mark.parametrize(("one", "budget", "begun", "since"), SINCE.values(), ids=SINCE)
def test_since_when_it_holds_the_drain(
    one: Pod, budget: PodDisruptionBudget, begun: datetime | None, since: datetime | None
) -> None:
    (found,) = blockers((one,), PodBudgets({"default": (budget,)}), NOON, begun)
    assert found.since == since
    assert ("blocked since" in str(found)) is (since is not None)


@pytest.mark.parametrize("budgets", [(GUARD,), (IMPOSSIBLE,), (GUARD, SECOND)], ids=["now", "never", "several"])
def test_every_text_says_since_when(budgets: tuple[PodDisruptionBudget, ...]) -> None:
    (found,) = blockers((WEB,), PodBudgets({"default": budgets}), NOON, NOON - HOUR)
    assert ", blocked since 2026-11-21T11:00:00Z" in str(found)


NEVER = {
    "as many required as there are": (pod_budget(healthy=1, required=1, allowed=0), True),
    "one too few healthy for now": (pod_budget(healthy=3, required=2, allowed=0), False),
    "maxUnavailable 0": (pod_budget(healthy=3, required=3, allowed=0, maxUnavailable=0), True),
    "maxUnavailable 0%": (pod_budget(healthy=3, required=3, allowed=0, maxUnavailable="0%"), True),
    "minAvailable 100%": (pod_budget(healthy=3, required=3, allowed=0, minAvailable="100%"), True),
    "no pods": (pod_budget(healthy=0, required=0, allowed=0, maxUnavailable=0), False),
    "one that allows some": (pod_budget(healthy=1, required=1, allowed=1), False),
}


@pytest.mark.parametrize(("budget", "want"), NEVER.values(), ids=NEVER)
def test_a_budget_that_can_never_allow_an_eviction(budget: PodDisruptionBudget, want: bool) -> None:
    assert never_allows(budget) is want
    assert impossible({"default": (budget,)}) == ((("default", "guard"),) if want else ())


def test_a_count_of_an_older_budget_says_nothing() -> None:
    newer = msgspec.structs.replace(IMPOSSIBLE, metadata=msgspec.structs.replace(IMPOSSIBLE.metadata, generation=2))
    assert not never_allows(newer)


def test_pods_of_one_owner_are_one_clause_and_many_are_counted() -> None:
    pods = [pod(f"web-{number}", node="n", owner="web", ready=True) for number in range(5)]
    (one,) = held(*pods, budgets=(GUARD,))
    assert str(one) == (
        "PodDisruptionBudget default/guard allows no eviction now (minAvailable 2, 3 of 3 pods healthy, 2 required) of pods "
        "default/web-0, default/web-1, default/web-2 and 2 more of ReplicaSet web"
    )


def test_many_owners_are_counted_and_what_ends_already_comes_last() -> None:
    ending = pod("a", node="n", owner="aa", deleted=NOON + timedelta(seconds=30))
    pods = [pod(f"p{number}", node="n", owner=f"o{number}", annotations=PROTECTED) for number in range(6)]
    text = sentence(held(ending, *pods))
    assert text.startswith("pod default/p0 of ReplicaSet o0 has the annotation karpenter.sh/do-not-disrupt; ")
    assert text.endswith("; and 2 more")
    assert (
        sentence(held(ending))
        == "pod default/a of ReplicaSet aa is terminating and may take until 2026-11-21T12:00:30Z"
    )
    assert sentence(()) == ""


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ({"minAvailable": 1}, "; change the budget or add replicas"),
        ({"maxUnavailable": 0}, "; change the budget"),
        ({"maxUnavailable": "0%"}, "; change the budget"),
        ({"minAvailable": "100%"}, "; change the budget"),
    ],
)
def test_more_replicas_are_advised_only_where_they_help(spec: dict[str, Any], remedy: str) -> None:
    (one,) = held(WEB, budgets=(pod_budget(healthy=1, required=1, allowed=0, **spec),))
    assert one.cause is Cause.IMPOSSIBLE_POD_BUDGET
    assert str(one).endswith(remedy)
