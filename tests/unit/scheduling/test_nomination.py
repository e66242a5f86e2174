"""Who may be nominated, and for how long."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement, OwnerReference
from provisioner.apis.pods import Pod
from provisioner.scheduling.nomination import (
    MAX_TESTS,
    WITHDRAW_AFTER_SECONDS,
    NominationPolicy,
    Withdrawal,
    Withheld,
    withdrawal,
)
from provisioner.scheduling.problem import SpreadDefaults
from tests.support.problems import shape

CARRIES, COUNTED = Withheld.CARRIES_SPREAD, Withheld.COUNTED_BY_SPREAD
ZONE, HOSTNAME = names.ZONE_LABEL, names.HOSTNAME_LABEL
WEB = {"app": "web"}


def spread(
    selector: LabelSelector | None, *, key: str = ZONE, when: str = "DoNotSchedule", **more: Any
) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=1, topology_key=key, when_unsatisfiable=when, label_selector=selector, **more
    )


def labelled(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels)


def expressed(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


def pod(
    name: str = "p",
    labels: dict[str, str] | None = None,
    *constraints: TopologySpreadConstraint,
    namespace: str = "default",
    owner: str = "",
    own: dict[str, str] | None = None,
) -> Pod:
    """A pod; `own` are labels that its shape does not have."""
    made = shape(labels=labels or {}, namespace=namespace, topology_spread_constraints=constraints)
    reference = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=owner, uid=owner, controller=True)
    return Pod(
        name=name,
        namespace=namespace,
        uid=name,
        shape=made,
        labels={**made.labels, **own} if own else made.labels,
        owner=reference if owner else None,
    )


@dataclass(frozen=True)
class Case:
    """One pod, the others, and the answer."""

    asked: Pod
    others: tuple[Pod, ...] = ()
    want: Withheld | None = None
    defaults: SpreadDefaults = field(default_factory=SpreadDefaults)


def carrier(selector: LabelSelector | None, **more: Any) -> Pod:
    """A pod of another app whose hard spread counts those that `selector` selects."""
    return pod("carrier", {"app": "other"}, spread(selector, **more))


HARD = (TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule"),)
SOFT = (TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),)
SERVICE = {"default": ({"app": "web"},)}

CASES = {
    "a pod that nothing ties to others": Case(pod(labels=WEB)),
    "a hard spread over zones": Case(pod("p", WEB, spread(labelled(app="web"))), want=CARRIES),
    "a hard spread over nodes": Case(pod("p", WEB, spread(labelled(app="web"), key=HOSTNAME)), want=CARRIES),
    "a hard spread that does not count the pod itself": Case(pod("p", WEB, spread(labelled(app="db"))), want=CARRIES),
    "a spread without a word on what to do is hard": Case(
        pod("p", WEB, spread(labelled(app="web"), when="")), want=CARRIES
    ),
    "a spread that only wishes": Case(pod("p", WEB, spread(labelled(app="web"), when="ScheduleAnyway"))),
    "counted by another's": Case(pod(labels=WEB), (carrier(labelled(app="web")),), COUNTED),
    "not counted by a wish of another": Case(pod(labels=WEB), (carrier(labelled(app="web"), when="ScheduleAnyway"),)),
    "not counted from another namespace": Case(pod(labels=WEB, namespace="here"), (carrier(labelled(app="web")),)),
    "another's that selects others": Case(pod(labels=WEB), (carrier(labelled(app="db")),)),
    "all labels of a selector must match": Case(pod(labels=WEB), (carrier(labelled(app="web", tier="front")),)),
    "all labels of a selector match": Case(
        pod(labels={"app": "web", "tier": "front"}), (carrier(labelled(app="web", tier="front")),), COUNTED
    ),
    "an empty selector counts everything": Case(pod(), (carrier(LabelSelector()),), COUNTED),
    "an absent selector counts nothing": Case(pod(labels=WEB), (carrier(None),)),
    "one of several values": Case(pod(labels=WEB), (carrier(expressed("app", "In", "api", "web")),), COUNTED),
    "none of several values": Case(pod(labels=WEB), (carrier(expressed("app", "In", "api", "db")),)),
    "a label that exists": Case(pod(labels=WEB), (carrier(expressed("app", "Exists")),), COUNTED),
    "a label that does not": Case(pod(labels=WEB), (carrier(expressed("tier", "Exists")),)),
    "not one of several values": Case(pod(labels=WEB), (carrier(expressed("app", "NotIn", "api")),), COUNTED),
    "a label that must not exist": Case(pod(labels=WEB), (carrier(expressed("tier", "DoesNotExist")),), COUNTED),
    "an operator that nobody knows may count anything": Case(
        pod(labels=WEB), (carrier(expressed("app", "Near", "x")),), COUNTED
    ),
    "of its revision": Case(
        pod(labels={**WEB, "rev": "two"}),
        (pod("c", {**WEB, "rev": "two"}, spread(labelled(app="web"), match_label_keys=("rev",))),),
        COUNTED,
    ),
    "of another revision": Case(
        pod(labels={**WEB, "rev": "two"}),
        (pod("c", {**WEB, "rev": "one"}, spread(labelled(app="web"), match_label_keys=("rev",))),),
    ),
    "a key that the carrier does not have": Case(
        pod(labels=WEB), (carrier(labelled(app="web"), match_label_keys=("rev",)),), COUNTED
    ),
    "by a label that its brothers do not have": Case(
        pod(labels=WEB, own={"statefulset.kubernetes.io/pod-name": "db-0"}),
        (carrier(labelled(**{"statefulset.kubernetes.io/pod-name": "db-0"})),),
        COUNTED,
    ),
    "the brother of such a pod": Case(
        pod(labels=WEB, own={"statefulset.kubernetes.io/pod-name": "db-1"}),
        (carrier(labelled(**{"statefulset.kubernetes.io/pod-name": "db-0"})),),
    ),
    "one of two constraints is enough": Case(
        pod(labels=WEB),
        (pod("c", {}, spread(labelled(app="db")), spread(labelled(app="web"), key=HOSTNAME)),),
        COUNTED,
    ),
    "the cluster's default, by a Service": Case(
        pod(labels=WEB), want=CARRIES, defaults=SpreadDefaults(HARD, services=SERVICE)
    ),
    "the cluster's default, by its ReplicaSet": Case(
        pod(labels=WEB, owner="rs"),
        want=CARRIES,
        defaults=SpreadDefaults(HARD, controllers={"rs": labelled(app="web")}),
    ),
    "the cluster's default is not for pods of their own": Case(pod(labels=WEB), defaults=SpreadDefaults(HARD)),
    "a default that only wishes": Case(pod(labels=WEB), defaults=SpreadDefaults(SOFT, services=SERVICE)),
    "the default is not for pods with constraints, but may count them": Case(
        pod("p", WEB, spread(labelled(app="web"), when="ScheduleAnyway")),
        (pod("c", WEB, owner="rs"),),
        COUNTED,
        SpreadDefaults(HARD, controllers={"rs": labelled(app="web")}),
    ),
    "the default of another's Service does not count it": Case(
        pod("p", {"app": "db"}, spread(labelled(app="db"), when="ScheduleAnyway")),
        (pod("c", WEB),),
        defaults=SpreadDefaults(HARD, services=SERVICE),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_who_is_withheld(case: Case) -> None:
    policy = NominationPolicy((case.asked, *case.others), case.defaults)
    assert policy.withheld(case.asked) == case.want
    assert policy.withheld(case.asked) == case.want, "asked again"


def test_a_constraint_counts_whether_its_pod_waits_or_runs() -> None:
    running = msgspec.structs.replace(carrier(labelled(app="web")), node_name="n", phase="Running")
    assert NominationPolicy([running]).withheld(pod(labels=WEB)) is COUNTED


def test_brothers_of_different_owners_are_told_apart_where_the_default_is_for_one() -> None:
    defaults = SpreadDefaults(HARD, controllers={"rs": labelled(app="web")})
    policy = NominationPolicy([pod("a", {}, owner="rs"), pod("b", {}, owner="crd")], defaults)
    assert policy.withheld(pod("a", {}, owner="rs")) is CARRIES
    assert policy.withheld(pod("b", {}, owner="crd")) is None


@pytest.mark.parametrize("operator", ["NotIn", "In", "Exists"])
def test_more_selectors_than_are_worth_trying_withhold_the_pod(operator: str) -> None:
    """A tenant may make as many as he likes; it is his own pods that go without a nomination."""
    several = ("x", "y")
    hostile = [
        pod(
            f"c{number}",
            {},
            spread(
                LabelSelector(
                    match_expressions=(
                        LabelSelectorRequirement(
                            key="app", operator=operator, values=several if operator != "Exists" else ()
                        ),
                        LabelSelectorRequirement(key=f"k{number}", operator="DoesNotExist"),
                        LabelSelectorRequirement(key=f"never{number}", operator="NotIn", values=("z",)),
                        LabelSelectorRequirement(key="impossible", operator="In", values=(f"{number}", "w")),
                    )
                )
            ),
            namespace="hostile",
        )
        for number in range(MAX_TESTS + 1)
    ]
    victim = pod(labels={"app": "x", "impossible": "no"}, namespace="hostile")
    few, many = NominationPolicy(hostile[:MAX_TESTS]), NominationPolicy(hostile)
    assert few.withheld(victim) is None
    assert many.withheld(victim) is COUNTED
    assert many.withheld(pod(labels=WEB)) is None, "other namespaces do not suffer"


def test_ten_thousand_selectors_that_cannot_match_are_no_reason() -> None:
    others = [pod(f"c{number}", {}, spread(labelled(team="shop", app=f"app-{number}"))) for number in range(10_000)]
    policy = NominationPolicy(others)
    assert policy.withheld(pod(labels={"team": "shop", "app": "web"})) is None
    assert policy.withheld(pod(labels={"team": "shop", "app": "app-77"})) is COUNTED


WITHDRAWALS = {
    "it stands while the node is not ready": (True, None, None, None),
    "it stands for ten seconds": (True, WITHDRAW_AFTER_SECONDS - 0.1, None, None),
    "then kube-scheduler has not followed": (True, WITHDRAW_AFTER_SECONDS, None, Withdrawal.NOT_BOUND),
    "the pod is planned elsewhere": (False, None, None, Withdrawal.NOT_PLANNED),
    "a constraint that counts it came later": (True, 1.0, COUNTED, Withdrawal.COUNTED_BY_SPREAD),
}


@pytest.mark.parametrize(("planned", "ready", "withheld", "want"), WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_when_a_nomination_is_taken_back(
    planned: bool, ready: float | None, withheld: Withheld | None, want: Withdrawal | None
) -> None:
    assert withdrawal(planned=planned, ready_seconds=ready, withheld=withheld) is want
