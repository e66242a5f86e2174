"""Who may be nominated, and for how long."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement, OwnerReference
from provisioner.apis.pods import Pod
from provisioner.scheduling.nomination.nomination_rules import (
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


def brother(one: Pod) -> Pod:
    """Another pod that differs in nothing but its name."""
    return msgspec.structs.replace(one, name=f"{one.name}-brother", uid=f"{one.uid}-brother")


def withheld(policy: NominationPolicy, one: Pod, *beside: Pod) -> Withheld | None:
    """What becomes of a pod that is planned on a node with a brother, or with these."""
    return policy.withheld((one, *(beside or (brother(one),)))).get(one.uid)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_who_is_withheld_beside_a_brother(case: Case) -> None:
    policy = NominationPolicy((case.asked, *case.others), case.defaults)
    assert withheld(policy, case.asked) == case.want
    assert withheld(policy, case.asked) == case.want, "asked again"
    assert policy.is_tied(case.asked) is (case.want is not None)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nobody_is_withheld_who_is_alone_on_a_node(case: Case) -> None:
    """kube-scheduler leaves the pod that it looks at out of those that are nominated to a node."""
    policy = NominationPolicy((case.asked, *case.others), case.defaults)
    assert policy.withheld([case.asked, pod("other", {"app": "unrelated"}, namespace="elsewhere")]) == {}


OVER_ZONES, OVER_NODES = spread(labelled(app="web")), spread(labelled(app="web"), key=HOSTNAME)
BESIDE = {
    "two of one spread over zones": (pod("a", WEB, OVER_ZONES), pod("b", WEB, OVER_ZONES), {"a": CARRIES, "b": CARRIES}),
    "two of one spread over nodes": (pod("a", WEB, OVER_NODES), pod("b", WEB, OVER_NODES), {"a": CARRIES, "b": CARRIES}),
    "one that has it and one that it counts": (pod("a", WEB, OVER_ZONES), pod("b", WEB), {"a": CARRIES, "b": COUNTED}),
    "one that has it and counts the other, not itself": (
        pod("a", {"app": "watcher"}, OVER_ZONES), pod("b", WEB), {"a": CARRIES, "b": COUNTED},
    ),
    "two that the spread of a third counts": (pod("a", WEB), pod("b", WEB), {"a": COUNTED, "b": COUNTED}),
    "two of different spreads": (
        pod("a", WEB, OVER_ZONES), pod("b", {"app": "db"}, spread(labelled(app="db"))), {},
    ),
    "two of different namespaces": (pod("a", WEB, OVER_ZONES), pod("b", WEB, OVER_ZONES, namespace="here"), {}),
    "two revisions": (
        pod("a", {**WEB, "rev": "one"}, spread(labelled(app="web"), match_label_keys=("rev",))),
        pod("b", {**WEB, "rev": "two"}, spread(labelled(app="web"), match_label_keys=("rev",))),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "want"), BESIDE.values(), ids=BESIDE)
def test_who_is_withheld_of_two_on_a_node(one: Pod, other: Pod, want: dict[str, Withheld]) -> None:
    third = pod("third", {"app": "third"}, OVER_ZONES) if want.get("a") is COUNTED else pod("third")
    assert NominationPolicy([one, other, third]).withheld([one, other]) == want


def test_a_constraint_counts_whether_its_pod_waits_or_runs() -> None:
    running = msgspec.structs.replace(carrier(labelled(app="web")), node_name="n", phase="Running")
    assert withheld(NominationPolicy([running]), pod(labels=WEB)) is COUNTED


def test_brothers_of_different_owners_are_told_apart_where_the_default_is_for_one() -> None:
    defaults = SpreadDefaults(HARD, controllers={"rs": labelled(app="web")})
    policy = NominationPolicy([pod("a", {}, owner="rs"), pod("b", {}, owner="crd")], defaults)
    assert withheld(policy, pod("a", {}, owner="rs")) is CARRIES
    assert withheld(policy, pod("b", {}, owner="crd")) is None


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
        for number in range(MAX_TESTS // 4 + 1)
    ]
    victim = pod(labels={"app": "x", "impossible": "no"}, namespace="hostile")
    few, many = NominationPolicy(hostile[: MAX_TESTS // 4]), NominationPolicy(hostile)
    assert few.withheld([victim]) == {}
    assert many.withheld([victim]) == {victim.uid: COUNTED}, "alone too: it is not known what counts it"
    assert withheld(many, pod(labels=WEB)) is None, "other namespaces do not suffer"


def test_pods_that_differ_in_a_label_that_no_selector_reads_are_judged_once() -> None:
    """Each pod of a StatefulSet has its number among its labels."""
    counting = [pod(f"c{number}", {}, spread(labelled(team="shop"))) for number in range(50)]
    same = [
        pod(f"s{number}", {"team": "shop"}, own={"apps.kubernetes.io/pod-index": str(number)}) for number in range(20)
    ]
    policy = NominationPolicy([*counting, *same])
    assert len(policy.withheld(same)) == 20
    assert len(policy._known) == 1


def test_ten_thousand_selectors_that_cannot_match_are_no_reason() -> None:
    others = [pod(f"c{number}", {}, spread(labelled(team="shop", app=f"app-{number}"))) for number in range(10_000)]
    policy = NominationPolicy(others)
    assert withheld(policy, pod(labels={"team": "shop", "app": "web"})) is None
    assert withheld(policy, pod(labels={"team": "shop", "app": "app-77"})) is COUNTED


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
