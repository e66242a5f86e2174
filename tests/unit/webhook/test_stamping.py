"""What is stamped, where it comes from, and what is left alone."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.selections import MOST_ELEMENTS
from provisioner.apis.shares import Seat, Share, ShareOwner, Side
from provisioner.apis.stamping import (
    MAX_ANNOTATION_BYTES,
    MAX_IMAGES,
    MAX_OPERATIONS,
    MAX_TOLERATIONS,
    MAX_VALUES,
    SHARE_STAMP,
    Images,
    ImagesAsked,
    StampDecision,
    StampFacts,
    StampOutcome,
    decide,
    images_of,
    settle,
    share_of,
)
from provisioner.simulator import json_patch
from provisioner.values.taints import Taint
from tests.support.stamping_cases import (
    ARCH,
    ARCH_KEY,
    DAEMONSET,
    EXEMPT,
    FIELD,
    HANDS_OFF,
    INTO,
    OLD_ARCH,
    PINNED,
    PREFERENCE,
    PREFERRED,
    REQUIRED,
    SOURCES,
    STAMP_KEY,
    WINDOWS_PODS,
    ZONE,
    Into,
    Source,
    expressions,
    pod,
    required,
)
from webhook.review import decode_pod

FACTS = StampFacts(namespace="shop", namespace_labels={}, scheduler_alive=True)


def arm64(**spec: Any) -> dict[str, Any]:
    return pod({"dovetail.dev/arch": "arm64"}, **spec)


def decision_for(document: dict[str, Any], facts: StampFacts = FACTS) -> StampDecision:
    return decide(decode_pod(msgspec.json.encode(document)), facts)


def stamped(document: dict[str, Any], facts: StampFacts = FACTS) -> dict[str, Any]:
    """The pod after the patch."""
    result: dict[str, Any] = json_patch.apply(document, decision_for(document, facts).operations)
    return result


def record_of(document: dict[str, Any]) -> str | None:
    """What the annotation says was stamped."""
    found: str | None = (document["metadata"].get("annotations") or {}).get("dovetail.dev/stamped")
    return found


def terms_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = document["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


@pytest.mark.parametrize("case", SOURCES.values(), ids=SOURCES)
def test_where_settings_come_from(case: Source) -> None:
    facts = replace(FACTS, namespace_labels=case.namespace, defaults=case.defaults)
    document = stamped(pod(case.annotations or None, case.labels or None), facts)
    if case.want is None:
        assert "affinity" not in document["spec"]
        assert document == pod(case.annotations or None, case.labels or None)
    else:
        assert terms_of(document) == [expressions({**ARCH, "values": case.want})]
        level = "pod" if ARCH_KEY in case.annotations else "namespace" if ARCH_KEY in case.namespace else "cluster"
        assert record_of(document) == f"arch={','.join(case.want)} ({level})"


SETTINGS = {
    "arch": ("dovetail.dev/arch", "amd64", "kubernetes.io/arch"),
    "os": ("dovetail.dev/os", "windows", "kubernetes.io/os"),
    "capacity type": ("dovetail.dev/capacity-type", "reserved", "karpenter.sh/capacity-type"),
    "pool": ("dovetail.dev/nodepool", "team-a.example", "karpenter.sh/nodepool"),
}


@pytest.mark.parametrize(("key", "value", "label"), SETTINGS.values(), ids=SETTINGS)
def test_each_setting_becomes_its_label(key: str, value: str, label: str) -> None:
    assert terms_of(stamped(pod({key: value}))) == [expressions({"key": label, "operator": "In", "values": [value]})]


def test_several_settings_share_one_term_in_a_fixed_order() -> None:
    document = stamped(pod({key: value for key, value, _ in reversed(SETTINGS.values())}))
    (term,) = terms_of(document)
    assert [expression["key"] for expression in term["matchExpressions"]] == [
        label for _, _, label in SETTINGS.values()
    ]
    assert record_of(document) == (
        "arch=amd64 (pod); capacity-type=reserved (pod); nodepool=team-a.example (pod); os=windows (pod)"
    )


BAD = {
    "an architecture that nobody has": ("dovetail.dev/arch", "sparc", "'sparc', want one of amd64, arm64"),
    "an unknown system": ("dovetail.dev/os", "plan9", "'plan9', want one of linux, windows"),
    "a capacity type in the words of EKS": (
        "dovetail.dev/capacity-type",
        "SPOT",
        "want one of on-demand, reserved, spot",
    ),
    "a pool with capital letters": ("dovetail.dev/nodepool", "General", "'General', want the name of a NodePool"),
    "a pool that is too long": ("dovetail.dev/nodepool", "a" * 64, "want the name of a NodePool"),
    "only separators": ("dovetail.dev/arch", ",", "holds no value"),
    "a scheduler that is neither on nor off": ("dovetail.dev/scheduler", "yes", "use enabled or disabled"),
    "a rewriting mode that is unknown": ("dovetail.dev/legacy-labels", "on", "use rewrite or keep"),
    "an opt-out that is misspelt": ("dovetail.dev/stamp", "off", "use enabled or disabled"),
}


@pytest.mark.parametrize(("key", "value", "text"), BAD.values(), ids=BAD)
def test_a_bad_value_warns_and_stamps_nothing(key: str, value: str, text: str) -> None:
    decision = decision_for(pod({key: value}))
    assert decision.operations == ()
    (warning,) = decision.warnings
    assert text in warning
    assert f"annotation {key} of the pod" in warning


def test_a_warning_names_the_namespace_or_the_configmap() -> None:
    of_namespace = decision_for(pod(), replace(FACTS, namespace_labels={ARCH_KEY: "sparc"}))
    assert "label dovetail.dev/arch of namespace shop: 'sparc'" in of_namespace.warnings[0]
    of_cluster = decision_for(pod(), replace(FACTS, defaults={"arch": "sparc"}))
    assert "key arch of ConfigMap dovetail-defaults: 'sparc'" in of_cluster.warnings[0]


@pytest.mark.parametrize("spec", HANDS_OFF.values(), ids=HANDS_OFF)
def test_what_the_pod_says_itself_wins(spec: dict[str, Any]) -> None:
    decision = decision_for(arm64(**spec))
    assert (decision.operations, decision.outcome) == ((), StampOutcome.UNCHANGED)


@pytest.mark.parametrize("case", INTO.values(), ids=INTO)
def test_the_requirement_is_added_to(case: Into) -> None:
    document = stamped(arm64(affinity=case.affinity))
    assert terms_of(document) == case.want
    for key, value in case.affinity.items():
        if key != "nodeAffinity":
            assert document["spec"]["affinity"][key] == value
    before = (case.affinity.get("nodeAffinity") or {}).get(PREFERRED)
    assert document["spec"]["affinity"]["nodeAffinity"].get(PREFERRED) == before


@pytest.mark.parametrize(("document", "namespace"), EXEMPT.values(), ids=EXEMPT)
def test_never_stamped(document: dict[str, Any], namespace: str) -> None:
    facts = replace(FACTS, namespace=namespace, defaults={"arch": "arm64", "scheduler": "enabled"})
    assert decision_for(document, facts) == StampDecision(StampOutcome.EXEMPT)


FAKES = {
    "pinned to no node": ({}, {}),
    "pinned in one of two terms": ({}, {"affinity": required({"matchFields": [FIELD]}, expressions(ZONE))}),
    "of another group": ({"apiVersion": "apps.kruise.io/v1alpha1"}, {"affinity": PINNED}),
    "not controlled by it": ({"controller": False}, {"affinity": PINNED}),
    "of another name": ({"name": "other"}, {"affinity": PINNED}),
}


@pytest.mark.parametrize(("owner", "spec"), FAKES.values(), ids=FAKES)
def test_a_pod_that_only_names_a_daemonset_is_like_any_other(owner: dict[str, Any], spec: dict[str, Any]) -> None:
    document = pod(**spec)
    document["metadata"]["ownerReferences"] = [{**DAEMONSET, **owner}]
    facts = replace(FACTS, defaults={"scheduler": "enabled"})
    assert stamped(document, facts)["spec"]["schedulerName"] == "dovetail-scheduler"


@pytest.mark.parametrize("spec", WINDOWS_PODS.values(), ids=WINDOWS_PODS)
def test_a_windows_pod_is_not_stamped_against_its_own_spec(spec: dict[str, Any]) -> None:
    facts = replace(FACTS, defaults={"os": "linux", "arch": "arm64", "capacity-type": "spot"})
    decision = decision_for(pod(**spec), facts)
    assert decision.stamped == ("capacity-type",)
    assert decision.warnings == tuple(
        f"dovetail: key {key} of ConfigMap dovetail-defaults: '{value}', but the pod's own spec is for windows: "
        f"kubernetes.io/{key} was not stamped"
        for key, value in (("arch", "arm64"), ("os", "linux"))
    )


@pytest.mark.parametrize("spec", WINDOWS_PODS.values(), ids=WINDOWS_PODS)
def test_of_a_list_a_windows_pod_gets_what_fits(spec: dict[str, Any]) -> None:
    facts = replace(FACTS, defaults={"os": "linux,windows", "arch": "amd64,arm64"})
    (term,) = terms_of(stamped(pod(**spec), facts))
    values = {expression["key"]: expression["values"] for expression in term["matchExpressions"]}
    assert values == {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["windows"]}


def test_a_linux_pod_is_not_stamped_for_windows() -> None:
    decision = decision_for(pod({"dovetail.dev/os": "windows"}, os={"name": "linux"}))
    assert decision.operations == ()
    assert "the pod's own spec is for linux" in decision.warnings[0]


def test_a_windows_pod_by_its_selector_gets_no_architecture_that_windows_has_not() -> None:
    decision = decision_for(arm64(nodeSelector={"kubernetes.io/os": "windows"}))
    assert decision.operations == ()
    assert "kubernetes.io/arch was not stamped" in decision.warnings[0]


@dataclass(frozen=True)
class Scheduling:
    """A wish for our scheduler, and the name that the pod must end with."""

    want: str
    wish: str = "enabled"
    name: str = "default-scheduler"
    alive: bool = True


SCHEDULING = {
    "ours over the default": Scheduling("dovetail-scheduler"),
    "ours over no name at all": Scheduling("dovetail-scheduler", name=""),
    "never over another scheduler": Scheduling("volcano", name="volcano"),
    "never while ours is not alive": Scheduling("default-scheduler", alive=False),
    "not without the wish": Scheduling("default-scheduler", wish="disabled"),
    "already ours": Scheduling("dovetail-scheduler", name="dovetail-scheduler"),
}


@pytest.mark.parametrize("case", SCHEDULING.values(), ids=SCHEDULING)
def test_scheduler_name(case: Scheduling) -> None:
    facts = replace(FACTS, scheduler_alive=case.alive, namespace_labels={"dovetail.dev/scheduler": case.wish})
    before = pod(schedulerName=case.name)
    document = stamped(before, facts)
    assert document["spec"]["schedulerName"] == case.want
    changed = case.want != case.name
    assert record_of(document) == ("schedulerName=dovetail-scheduler (namespace)" if changed else None)
    held_back = not case.alive and case.wish == "enabled"
    assert decision_for(before, facts).scheduler_held_back is held_back


def test_the_pod_may_refuse_the_scheduler_of_its_namespace() -> None:
    facts = replace(FACTS, namespace_labels={"dovetail.dev/scheduler": "enabled"})
    assert decision_for(pod({"dovetail.dev/scheduler": "disabled"}), facts).outcome is StampOutcome.UNCHANGED


# --- deprecated labels


REWRITE = replace(FACTS, namespace_labels={"dovetail.dev/legacy-labels": "rewrite"})


def test_deprecated_labels_are_kept_without_opt_in() -> None:
    assert decision_for(pod(nodeSelector={"beta.kubernetes.io/arch": "amd64"})).operations == ()


SELECTORS = {
    "a renamed label": ({"beta.kubernetes.io/arch": "amd64"}, {"kubernetes.io/arch": "amd64"}),
    "a zone": ({"failure-domain.beta.kubernetes.io/zone": "a"}, {"topology.kubernetes.io/zone": "a"}),
    "a provisioner": ({"karpenter.sh/provisioner-name": "p"}, {"karpenter.sh/nodepool": "p"}),
    "a capacity type of EKS": (
        {"eks.amazonaws.com/capacityType": "ON_DEMAND"},
        {"karpenter.sh/capacity-type": "on-demand"},
    ),
    "both names with one value": (
        {"beta.kubernetes.io/os": "linux", "kubernetes.io/os": "linux"},
        {"kubernetes.io/os": "linux"},
    ),
    "both names with two values stay": (
        {"beta.kubernetes.io/os": "linux", "kubernetes.io/os": "windows"},
        {"beta.kubernetes.io/os": "linux", "kubernetes.io/os": "windows"},
    ),
    "labels of the user stay": ({"team": "a"}, {"team": "a"}),
}


@pytest.mark.parametrize(("before", "after"), SELECTORS.values(), ids=SELECTORS)
def test_node_selector_rewriting(before: dict[str, str], after: dict[str, str]) -> None:
    document = stamped(pod(nodeSelector=before), REWRITE)
    assert document["spec"]["nodeSelector"] == after
    why = ", ".join(sorted(before.keys() - after.keys()))
    assert record_of(document) == (None if before == after else f"legacy-labels=rewrite (namespace: {why})")


def test_a_contradiction_is_told() -> None:
    selector = {"beta.kubernetes.io/os": "linux", "kubernetes.io/os": "windows"}
    (warning,) = decision_for(pod(nodeSelector=selector), REWRITE).warnings
    assert "contradict each other" in warning


def test_terms_are_rewritten_in_place() -> None:
    old = {"key": "eks.amazonaws.com/capacityType", "operator": "In", "values": ["SPOT", "other"]}
    new = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "other"]}
    affinity = required(expressions(ZONE, old))
    affinity["nodeAffinity"][PREFERRED] = [{"weight": 5, "preference": expressions(OLD_ARCH)}]
    node_affinity = stamped(pod(affinity=affinity), REWRITE)["spec"]["affinity"]["nodeAffinity"]
    assert node_affinity[REQUIRED]["nodeSelectorTerms"] == [expressions(ZONE, new)]
    assert node_affinity[PREFERRED][0]["preference"] == expressions({**OLD_ARCH, "key": "kubernetes.io/arch"})


DISRUPTION = {
    "do-not-evict": ({"karpenter.sh/do-not-evict": "true"}, "true"),
    "do-not-consolidate": ({"karpenter.sh/do-not-consolidate": "true"}, "true"),
    "do-not-consolidate false means nothing": ({"karpenter.sh/do-not-consolidate": "false"}, None),
    "safe-to-evict false": ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, "true"),
    "safe-to-evict true means nothing": ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, None),
    "what the pod says itself stays": (
        {"karpenter.sh/do-not-evict": "true", "karpenter.sh/do-not-disrupt": "false"},
        "false",
    ),
}


@pytest.mark.parametrize(("annotations", "want"), DISRUPTION.values(), ids=DISRUPTION)
def test_old_annotations_become_do_not_disrupt(annotations: dict[str, str], want: str | None) -> None:
    after = stamped(pod(annotations), REWRITE)["metadata"]["annotations"]
    assert after.get("karpenter.sh/do-not-disrupt") == want
    assert annotations.items() <= after.items()


# --- the record


def test_the_record_is_kept_and_grows() -> None:
    before = pod({"dovetail.dev/stamped": "arch=arm64 (namespace)", ARCH_KEY: "arm64", "dovetail.dev/os": "linux"})
    before["spec"]["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
    assert record_of(stamped(before)) == "arch=arm64 (namespace); os=linux (pod)"


@pytest.mark.parametrize(
    "words", ["nonsense", "arch", "x=y (pod)", "os=linux (moon)", "os=(pod)", "os=a (pod: (b))", "x" * 9000]
)
def test_foreign_words_in_the_record_are_dropped(words: str) -> None:
    before = pod({"dovetail.dev/stamped": words, ARCH_KEY: "arm64"})
    assert record_of(stamped(before)) == "arch=arm64 (pod)"


def test_a_pod_without_room_for_the_record_is_not_stamped() -> None:
    full = {"a": "x" * (MAX_ANNOTATION_BYTES - 40), ARCH_KEY: "arm64"}
    decision = decision_for(pod(full))
    assert (decision.operations, decision.stamped) == ((), ())
    assert "are too large" in decision.warnings[0]
    assert decision_for(pod({**full, "a": "x" * (MAX_ANNOTATION_BYTES - 200)})).stamped == ("arch",)


# --- tolerations of pools


POOLS = {
    "gpu": (Taint(key="gpu", effect="NoSchedule"), Taint(key="team", value="a", effect="NoExecute")),
    "soft": (Taint(key="soft", effect="PreferNoSchedule"),),
    "team": (Taint(key="team", value="a", effect="NoExecute"),),
    "wide": tuple(Taint(key=f"k{i}", effect="NoSchedule") for i in range(MAX_TOLERATIONS + 1)),
}
KNOWS_POOLS = replace(FACTS, taints_of=POOLS.get)
GPU = {"key": "gpu", "operator": "Equal", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"}
TOLERATIONS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]] | None]] = {
    "the taints of the pool": ("gpu", {}, [GPU, TEAM]),
    "behind those of the pod": (
        "team",
        {"tolerations": [{"key": "x", "operator": "Exists"}]},
        [{"key": "x", "operator": "Exists"}, TEAM],
    ),
    "into an empty list": ("team", {"tolerations": []}, [TEAM]),
    "each taint once": ("gpu,team", {}, [GPU, TEAM]),
    "not what the pod tolerates": ("gpu", {"tolerations": [{"operator": "Exists"}]}, [{"operator": "Exists"}]),
    "not what keeps nobody off": ("soft", {}, None),
    "no more than is bounded": ("wide", {}, None),
    "nothing for a pool that is not there": ("other", {}, None),
    "nothing where the pod says itself which pool": ("gpu", {"nodeSelector": {"karpenter.sh/nodepool": "gpu"}}, None),
}


@pytest.mark.parametrize(("value", "spec", "want"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_tolerations(value: str, spec: dict[str, Any], want: list[dict[str, Any]] | None) -> None:
    document = stamped(pod({"dovetail.dev/nodepool": value}, **spec), KNOWS_POOLS)
    assert document["spec"].get("tolerations") == want


def test_tolerations_are_recorded_with_their_pool() -> None:
    facts = replace(KNOWS_POOLS, namespace_labels={"dovetail.dev/nodepool": "gpu"})
    assert record_of(stamped(pod(), facts)) == (
        "nodepool=gpu (namespace); tolerations=gpu:NoSchedule,team=a:NoExecute (namespace: taints of NodePool gpu)"
    )


def test_a_pod_that_the_admission_policy_stamped_for_a_pool_tolerates_its_taints() -> None:
    """The policy comes first and knows no NodePools; both together must do what the webhook does alone."""
    wish = pod({"dovetail.dev/nodepool": "gpu"})
    both = stamped(stamped(wish, FACTS), KNOWS_POOLS)
    assert both == stamped(wish, KNOWS_POOLS)
    assert both["spec"]["tolerations"] == [GPU, TEAM]
    assert decision_for(both, KNOWS_POOLS).operations == ()


def test_a_requirement_of_the_pod_is_no_stamp() -> None:
    own = expressions({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["gpu"]})
    other = {"dovetail.dev/nodepool": "gpu", "dovetail.dev/stamped": "nodepool=team (pod)"}
    for annotations in ({"dovetail.dev/nodepool": "gpu"}, other):
        assert decision_for(pod(annotations, affinity=required(own)), KNOWS_POOLS).operations == ()


def test_a_pool_that_is_not_there_is_told_only_where_pools_can_be_read() -> None:
    wish = pod({"dovetail.dev/nodepool": "other"})
    assert decision_for(wish, KNOWS_POOLS).warnings == (
        "dovetail: annotation dovetail.dev/nodepool of the pod: 'other'; NodePool other does not exist, so no toleration was added for it",
    )
    assert decision_for(wish).warnings == ()
    assert decision_for(wish).stamped == ("nodepool",)


# --- spread over zones


SPREAD = replace(FACTS, namespace_labels={"dovetail.dev/spread": "zone"})
LABELS = {"app": "web", "pod-template-hash": "5d", "statefulset.kubernetes.io/pod-name": "web-0"}
SOFT_ZONE = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web", "pod-template-hash": "5d"}},
}
HOSTS = {**SOFT_ZONE, "topologyKey": "kubernetes.io/hostname"}


def test_a_soft_spread_over_zones_of_the_pods_equals() -> None:
    side = {
        "dovetail.dev/on-demand-share": "spot"
    }  # copied into a template, or given before another webhook changed the pod
    document = stamped(pod(labels=LABELS | side), SPREAD)
    assert document["spec"]["topologySpreadConstraints"] == [SOFT_ZONE]
    assert record_of(document) == "spread=zone (namespace)"


def test_a_spread_over_hosts_is_kept() -> None:
    document = stamped(pod(labels=LABELS, topologySpreadConstraints=[HOSTS]), SPREAD)
    assert document["spec"]["topologySpreadConstraints"] == [HOSTS, SOFT_ZONE]


NO_SPREAD = {
    "a spread over zones of its own": pod(labels=LABELS, topologySpreadConstraints=[{**SOFT_ZONE, "maxSkew": 5}]),
    "one by the deprecated name": pod(
        labels=LABELS,
        topologySpreadConstraints=[{**SOFT_ZONE, "topologyKey": "failure-domain.beta.kubernetes.io/zone"}],
    ),
    "its own wish": pod({"dovetail.dev/spread": ""}, LABELS),
    "a wish that is not known": pod({"dovetail.dev/spread": "rack"}, LABELS),
    "no label that tells its equals": pod(labels={"statefulset.kubernetes.io/pod-name": "web-0"}),
}


@pytest.mark.parametrize("document", NO_SPREAD.values(), ids=NO_SPREAD)
def test_no_spread_over(document: dict[str, Any]) -> None:
    assert decision_for(document, SPREAD).operations == ()


# --- Jobs


PROTECT = replace(FACTS, defaults={"protect-jobs": "enabled"})
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "u", "controller": True}


def of(owner: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    document = pod(annotations)
    document["metadata"]["ownerReferences"] = [owner]
    return document


@pytest.mark.parametrize("annotations", [None, {}, {"a": "b"}])
def test_a_pod_of_a_job_is_not_disrupted(annotations: dict[str, str] | None) -> None:
    after = stamped(of(JOB, annotations), PROTECT)["metadata"]["annotations"]
    record = "do-not-disrupt=true (cluster: pod of Job nightly)"
    assert after == {**(annotations or {}), "karpenter.sh/do-not-disrupt": "true", "dovetail.dev/stamped": record}


NOT_PROTECTED = {
    "a pod of something else": of({**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}),
    "a Job of another group": of({**JOB, "apiVersion": "batch.volcano.sh/v1alpha1"}),
    "a Job that does not control it": of({**JOB, "controller": False}),
    "what the pod says itself": of(JOB, {"karpenter.sh/do-not-disrupt": "1h"}),
    "the pod's own wish": of(JOB, {"dovetail.dev/protect-jobs": "disabled"}),
    "a wish that is not known": of(JOB, {"dovetail.dev/protect-jobs": "yes"}),
}


@pytest.mark.parametrize("document", NOT_PROTECTED.values(), ids=NOT_PROTECTED)
def test_no_protection_for(document: dict[str, Any]) -> None:
    assert decision_for(document, PROTECT).operations == ()


def test_a_job_with_words_of_its_own_gets_no_say_in_the_record() -> None:
    record = record_of(stamped(of({**JOB, "name": "a); os=linux (pod"}), PROTECT))
    assert record == "do-not-disrupt=true (cluster: pod of Job a__ os=linux _pod)"


# --- the share on demand


REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": True}
SHARED = replace(FACTS, namespace_labels={"dovetail.dev/on-demand": "30pct"}, review="t1")
ON_DEMAND, SPOT = (replace(SHARED, seat=Seat(side, 2, 4)) for side in (Side.ON_DEMAND, Side.SPOT))
PREFERS_SPOT = {
    "weight": 100,
    "preference": expressions({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}),
}
NOT_INTERRUPTED = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "reserved"]}


def owned(
    annotations: dict[str, str] | None = None, owner: dict[str, Any] = REPLICA_SET, **spec: Any
) -> dict[str, Any]:
    document = pod(annotations, **spec)
    document["metadata"]["ownerReferences"] = [owner]
    return document


def test_a_pod_that_runs_on_demand_requires_it() -> None:
    after = stamped(owned(), ON_DEMAND)
    assert terms_of(after) == [expressions(NOT_INTERRUPTED)]
    assert after["metadata"]["labels"] == {"dovetail.dev/on-demand-share": "on-demand"}
    assert after["metadata"]["annotations"] == {
        "dovetail.dev/on-demand-ticket": "r.2.t1",
        "controller.kubernetes.io/pod-deletion-cost": "-4",
        "dovetail.dev/stamped": "on-demand=on-demand (namespace: 30% on demand)",
    }


INTO_PREFERENCES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no affinity": ({}, {}),
    "an empty affinity": ({"affinity": {}}, {}),
    "an affinity between pods": ({"affinity": {"podAffinity": {"x": 1}}}, {}),
    "an empty node affinity": ({"affinity": {"nodeAffinity": {}}}, {}),
    "a requirement": ({"affinity": required(expressions(ZONE))}, {}),
    "another stamp's requirement": ({}, {ARCH_KEY: "arm64"}),
    "a requirement, and another stamp's": ({"affinity": required(expressions(ZONE))}, {ARCH_KEY: "arm64"}),
}


@pytest.mark.parametrize(("spec", "annotations"), INTO_PREFERENCES.values(), ids=INTO_PREFERENCES)
def test_the_others_prefer_spot_beside(spec: dict[str, Any], annotations: dict[str, str]) -> None:
    after = stamped(owned(annotations, **spec), SPOT)
    assert after["spec"]["affinity"]["nodeAffinity"][PREFERRED] == [PREFERS_SPOT]
    assert after["metadata"]["labels"] == {"dovetail.dev/on-demand-share": "spot"}


def test_a_preference_of_the_pod_is_kept() -> None:
    before = owned(affinity={"nodeAffinity": {PREFERRED: PREFERENCE}})
    assert stamped(before, SPOT)["spec"]["affinity"]["nodeAffinity"][PREFERRED] == [*PREFERENCE, PREFERS_SPOT]


def test_a_second_look_at_the_same_admission_changes_and_counts_nothing() -> None:
    for facts in (ON_DEMAND, SPOT):
        once = stamped(owned(), facts)
        again = replace(facts, seat=None, review="t2")  # the API server's second review has another uid
        assert decision_for(once, again).operations == ()
        assert decision_for(once, again).warnings == ()
        assert share_of(decode_pod(msgspec.json.encode(once)), again) is None


def test_what_was_copied_from_a_pod_into_a_template_is_decided_anew() -> None:
    copied = stamped(owned(), SPOT)
    copied["metadata"]["ownerReferences"] = [{**REPLICA_SET, "uid": "other"}]
    assert share_of(decode_pod(msgspec.json.encode(copied)), SHARED) == (ShareOwner("shop", "other"), Share(percent=30))
    after = stamped(copied, ON_DEMAND)
    assert after["metadata"]["labels"] == {"dovetail.dev/on-demand-share": "on-demand"}
    assert after["metadata"]["annotations"]["dovetail.dev/on-demand-ticket"] == "other.2.t1"


def test_a_deletion_cost_of_the_pod_is_kept_and_only_replica_sets_read_one() -> None:
    mine = {"controller.kubernetes.io/pod-deletion-cost": "9"}
    assert stamped(owned(mine), SPOT)["metadata"]["annotations"].items() >= mine.items()
    after = stamped(owned(owner={**REPLICA_SET, "kind": "StatefulSet"}), SPOT)
    assert "controller.kubernetes.io/pod-deletion-cost" not in after["metadata"]["annotations"]


UNSHARED = {
    "the pod chose": (owned(nodeSelector={"karpenter.sh/capacity-type": "spot"}), SPOT, "is set for the pod already"),
    "every term chose": (owned(affinity=required(expressions(NOT_INTERRUPTED))), SPOT, "is set for the pod already"),
    "a stamp for all pods": (owned({"dovetail.dev/capacity-type": "spot"}), SPOT, "is set for the pod already"),
    "no controller": (pod(), SPOT, "no ReplicaSet, StatefulSet or Job controls the pod"),
    "a controller of another kind": (owned(owner={**REPLICA_SET, "kind": "Other"}), SPOT, "controls the pod"),
    "no share": (owned({"dovetail.dev/on-demand": "most"}), SPOT, "'most' is neither a percentage"),
    "nobody counts": (owned(), SHARED, "--on-demand-shares"),
}


@pytest.mark.parametrize(("document", "facts", "text"), UNSHARED.values(), ids=UNSHARED)
def test_a_share_is_not_applied(document: dict[str, Any], facts: StampFacts, text: str) -> None:
    decision = decision_for(document, facts)
    assert SHARE_STAMP not in decision.stamped
    assert [text in one for one in decision.warnings] == [True]
    if "--on-demand-shares" not in text:
        assert share_of(decode_pod(msgspec.json.encode(document)), facts) is None


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "r", "controller": True}
ASKED = {"dovetail.dev/on-demand": "30%"}
REPAIRS: dict[str, tuple[dict[str, Any], str]] = {
    "asked for": (owned({**ASKED, "dovetail.dev/on-demand-repair": "evict"}), ""),
    "in another word": (
        owned({**ASKED, "dovetail.dev/on-demand-repair": "true"}),
        "'true' is not supported; use evict",
    ),
    "by a Job": (owned({**ASKED, "dovetail.dev/on-demand-repair": "evict"}, owner=JOB), "no effect on pods of Jobs"),
    "without a share of its own": (
        owned({"dovetail.dev/on-demand-repair": "evict"}),
        "requires the annotation dovetail.dev/on-demand",
    ),
}


@pytest.mark.parametrize(("document", "text"), REPAIRS.values(), ids=REPAIRS)
def test_whoever_asks_for_a_repair_that_will_not_be_is_told(document: dict[str, Any], text: str) -> None:
    decision = decision_for(document, SPOT)
    assert SHARE_STAMP in decision.stamped
    assert [text in one for one in decision.warnings] == [True] * bool(text)


GANGS: dict[str, tuple[dict[str, str], str]] = {
    "no gang": ({}, ""),
    "a gang": ({"gang": "train", "gang-minimum": "8"}, ""),
    "a gang by a label": ({"gang-label": "leaderworkerset.sigs.k8s.io/group-key", "gang-minimum": "8"}, ""),
    "without a minimum": ({"gang": "train"}, "dovetail.dev/gang-minimum is required"),
    "a minimum of nothing": ({"gang-minimum": "8"}, "dovetail.dev/gang-minimum has no effect without"),
    "a minimum in words": ({"gang": "train", "gang-minimum": "all"}, "'all' is not a whole number from 1 to 10000"),
    "a minimum of too many": ({"gang": "train", "gang-minimum": "10001"}, "'10001' is not a whole number"),
    "of two kinds": ({"gang": "a", "gang-label": "b", "gang-minimum": "2"}, "exclude each other"),
    "a name of ours": ({"gang": "provisioning-request.x", "gang-minimum": "2"}, "reserved for ProvisioningRequests"),
    "a name with a slash": ({"gang": "a/b", "gang-minimum": "2"}, "'a/b' is not a name of 1 to 63 letters"),
}


@pytest.mark.parametrize(("notes", "text"), GANGS.values(), ids=GANGS)
def test_whoever_writes_a_gang_that_has_no_effect_is_told(notes: dict[str, str], text: str) -> None:
    decision = decision_for(owned({f"dovetail.dev/{key}": value for key, value in notes.items()}), FACTS)
    assert [text in one for one in decision.warnings] == [True] * bool(text)
    assert not decision.operations


def test_a_job_says_how_many_pods_its_gang_needs_and_nobody_else_does() -> None:
    pod = owned({"dovetail.dev/gang": "train"}, {**REPLICA_SET, "apiVersion": "batch/v1", "kind": "Job"})
    assert decision_for(pod, FACTS).warnings == ()
    pod["metadata"]["annotations"] = {"dovetail.dev/gang-label": "app"}
    assert "dovetail.dev/gang-minimum is required" in "".join(decision_for(pod, FACTS).warnings)


def test_whose_pods_are_counted() -> None:
    wanted = share_of(decode_pod(msgspec.json.encode(owned({"dovetail.dev/on-demand": "2"}))), FACTS)
    assert wanted == (ShareOwner("shop", "r"), Share(count=2))
    assert share_of(decode_pod(msgspec.json.encode(owned())), FACTS) is None
    assert share_of(decode_pod(msgspec.json.encode(owned({STAMP_KEY: "disabled"}))), SHARED) is None


# --- topology keys


OLD_ZONE, NEW_ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"


def test_topology_keys_are_rewritten() -> None:
    term, new = {"topologyKey": OLD_ZONE, "labelSelector": {}}, {"topologyKey": NEW_ZONE, "labelSelector": {}}
    groups = {REQUIRED: [term], PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}
    spread = {**SOFT_ZONE, "topologyKey": OLD_ZONE}
    before = pod(topologySpreadConstraints=[spread], affinity={"podAffinity": groups, "podAntiAffinity": groups})
    spec = stamped(before, REWRITE)["spec"]
    assert spec["topologySpreadConstraints"] == [SOFT_ZONE]
    rewritten = {REQUIRED: [new], PREFERRED: [{"weight": 1, "podAffinityTerm": new}]}
    assert spec["affinity"] == {"podAffinity": rewritten, "podAntiAffinity": rewritten}


def test_a_topology_key_that_stands_there_already_is_not_made_twice() -> None:
    before = pod(topologySpreadConstraints=[{**SOFT_ZONE, "topologyKey": OLD_ZONE}, SOFT_ZONE])
    decision = decision_for(before, REWRITE)
    assert decision.operations == ()
    assert "contains both" in decision.warnings[0]


# --- laws


NODE_LABELS = [
    "kubernetes.io/arch",
    "beta.kubernetes.io/arch",
    "kubernetes.io/os",
    "karpenter.sh/capacity-type",
    "a/b~c",
    "",
]
expression_lists = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(NODE_LABELS), "operator": st.just("Exists")}), max_size=3
)
terms = st.fixed_dictionaries({}, optional={"matchExpressions": expression_lists, "matchFields": st.just([FIELD])})
node_affinities = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, max_size=3)}),
        PREFERRED: st.lists(st.fixed_dictionaries({"weight": st.just(1), "preference": terms}), max_size=2),
    },
)
settings_maps = st.dictionaries(
    st.sampled_from(
        [
            "arch",
            "os",
            "capacity-type",
            "nodepool",
            "scheduler",
            "legacy-labels",
            "stamp",
            "other",
            "spread",
            "protect-jobs",
        ]
    ),
    st.sampled_from(
        ["arm64", "linux", "spot,on-demand", "gpu", "gpu,team", "zone", "enabled", "rewrite", "disabled", "", "?"]
    ),
)
pods = st.builds(
    pod,
    st.none() | settings_maps.map(lambda found: {f"dovetail.dev/{key}": value for key, value in found.items()}),
    st.none() | st.dictionaries(st.sampled_from(["app", STAMP_KEY]), st.sampled_from(["x", "enabled"])),
    nodeSelector=st.dictionaries(st.sampled_from(NODE_LABELS), st.sampled_from(["amd64", "linux"])),
    affinity=st.none() | st.fixed_dictionaries({}, optional={"nodeAffinity": st.none() | node_affinities}),
)
all_facts = st.builds(
    lambda labels, defaults, alive: replace(
        FACTS,
        namespace_labels={f"dovetail.dev/{key}": value for key, value in labels.items()},
        defaults=defaults,
        scheduler_alive=alive,
        taints_of=POOLS.get if alive else None,
    ),
    settings_maps,
    settings_maps,
    st.booleans(),
)


@given(document=pods, facts=all_facts)
def test_deciding_twice_changes_nothing_more(document: dict[str, Any], facts: StampFacts) -> None:
    once = stamped(document, facts)
    assert decision_for(once, facts).operations == ()


@given(document=pods, facts=all_facts)
def test_nothing_of_the_user_is_lost_without_rewriting(document: dict[str, Any], facts: StampFacts) -> None:
    after = stamped(document, replace(facts, defaults={**facts.defaults, "legacy-labels": "keep"}))
    if decision_for(document, facts).stamped and "legacy-labels" in decision_for(document, facts).stamped:
        return
    _assert_contains(after, document, path="")


def _assert_contains(after: Any, before: Any, path: str) -> None:
    match before:
        case dict():
            for key, value in before.items():
                if key not in ("schedulerName", "dovetail.dev/stamped"):
                    _assert_contains(after[key], value, f"{path}/{key}")
        case list():
            assert len(after) >= len(before), path
            for index, value in enumerate(before):
                _assert_contains(after[index], value, f"{path}/{index}")
        case None:
            pass  # a null parent may be filled
        case _:
            assert after == before, path


@given(document=pods)
def test_without_any_opt_in_the_patch_is_empty(document: dict[str, Any]) -> None:
    document["metadata"].pop("annotations", None)
    assert decision_for(document).operations == ()


# --- architectures of images ----------------------------------------------------------------------------------------

LINUX = {one: ("linux", one) for one in ("386", "amd64", "arm", "arm64", "s390x")}
STAMP, GATE = {"dovetail.dev/image-arch": "stamp"}, {"dovetail.dev/image-arch": "gate"}
PENDING = "dovetail.dev/image-arch-pending"


def images(*pending: str, may_gate: bool = True, **found: tuple[tuple[str, str], ...]) -> Images:
    """What is known, by image."""
    return Images({name: frozenset(platforms) for name, platforms in found.items()}, frozenset(pending), may_gate)


def built(known: Images | None, labels: dict[str, str] = STAMP) -> StampFacts:
    return StampFacts("shop", labels, images=known)


def running(*names: str, init: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{at}", "image": name} for at, name in enumerate(names)]
    if init:
        spec["initContainers"] = [{"name": f"i{at}", "image": name} for at, name in enumerate(init)]
    return pod(containers=containers, **spec)


AMD = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
BOTH = (LINUX["amd64"], LINUX["arm64"])
KNOWN: dict[str, tuple[dict[str, Any], Images, list[str] | None]] = {
    "one architecture": (running("web"), images(web=(LINUX["amd64"],)), ["amd64"]),
    "all that nodes have": (running("web"), images(web=BOTH), None),
    "more than nodes have": (running("web"), images(web=(*BOTH, LINUX["s390x"])), None),
    "one of two and another": (running("web"), images(web=(LINUX["amd64"], LINUX["s390x"])), ["amd64", "s390x"]),
    "32-bit x86 alone, which amd64 runs": (running("web"), images(web=(LINUX["386"],)), ["386", "amd64"]),
    "32-bit x86 beside amd64": (running("web", "log"), images(web=(LINUX["386"],), log=BOTH), ["amd64"]),
    "32-bit ARM, which not every arm64 runs": (running("web"), images(web=(LINUX["amd64"], LINUX["arm"])), ["amd64", "arm"]),
    "what containers have in common": (running("web", "log"), images(web=BOTH, log=(LINUX["arm64"],)), ["arm64"]),
    "init containers count": (running("web", init=("set",)), images(web=BOTH, set=(LINUX["amd64"],)), ["amd64"]),
    "one image is unknown": (running("web", "log"), images(web=(LINUX["amd64"],)), None),
    "for Windows alone, in a pod of Linux": (running("web"), images(web=(("windows", "amd64"),)), None),
    "for Windows, in a pod of Windows": (running("web", os={"name": "windows"}), images(web=(("windows", "amd64"), *BOTH)), ["amd64"]),
    "the pod chose": (running("web", nodeSelector={"kubernetes.io/arch": "arm64"}), images(web=(LINUX["amd64"],)), None),
    "the pod chose by the old name": (running("web", nodeSelector={"beta.kubernetes.io/arch": "x"}), images(web=(LINUX["amd64"],)), None),
}  # fmt: skip


@pytest.mark.parametrize(("document", "known", "wanted"), KNOWN.values(), ids=KNOWN)
def test_a_pod_is_stamped_with_what_its_images_were_built_for(
    document: dict[str, Any], known: Images, wanted: list[str] | None
) -> None:
    after = stamped(document, built(known))
    assert decision_for(document, built(known)).warnings == ()
    if wanted is None:
        assert after == document
    else:
        assert terms_of(after) == [expressions({**AMD, "values": wanted})]
        assert record_of(after) == f"image-arch={','.join(wanted)} (namespace: architectures of the images)"
    assert stamped(after, built(known)) == after


def test_terms_that_chose_an_architecture_are_left_alone_and_others_get_it() -> None:
    document = running("web", affinity=required(expressions(ARCH), expressions({"key": "a", "operator": "Exists"})))
    after = stamped(document, built(images(web=(LINUX["amd64"],))))
    assert terms_of(after) == [expressions(ARCH), expressions({"key": "a", "operator": "Exists"}, AMD)]
    everywhere = running("web", affinity=required(expressions(ARCH)))
    assert stamped(everywhere, built(images(web=(LINUX["amd64"],)))) == everywhere


def test_images_with_nothing_in_common_are_admitted_with_a_warning() -> None:
    known = images(web=(LINUX["amd64"],), log=(LINUX["arm64"],))
    decision = decision_for(running("web", "log"), built(known))
    assert decision.operations == ()
    assert [("no architecture in common" in one) for one in decision.warnings] == [True]


def test_the_setting_for_the_architecture_itself_wins() -> None:
    facts = built(images(web=(LINUX["amd64"],)), STAMP | {"dovetail.dev/arch": "arm64"})
    assert terms_of(stamped(running("web"), facts)) == [expressions(ARCH)]
    assert images_of(decode_pod(msgspec.json.encode(running("web"))), facts) is None


@pytest.mark.parametrize(
    ("labels", "known", "text"),
    [
        (STAMP, None, "--image-registries"),
        ({"dovetail.dev/image-arch": "yes"}, images(web=BOTH), "use stamp, gate or disabled"),
    ],
)
def test_a_setting_without_effect_is_a_warning(labels: dict[str, str], known: Images | None, text: str) -> None:
    decision = decision_for(running("web"), built(known, labels))
    assert (decision.operations, [text in one for one in decision.warnings]) == ((), [True])


@pytest.mark.parametrize(
    "document",
    [
        running("web", nodeSelector={"kubernetes.io/arch": "arm64"}),
        running("web", affinity=required(expressions(ARCH))),
        running(*(f"i{number}" for number in range(MAX_IMAGES + 1))),
    ],
    ids=["it chose by its selector", "it chose in every term", "it has too many images"],
)
def test_a_pod_whose_images_do_not_matter_is_not_told_that_nobody_looks_them_up(document: dict[str, Any]) -> None:
    assert decision_for(document, built(None)).warnings == ()


@pytest.mark.parametrize("labels", [{}, {"dovetail.dev/image-arch": "disabled"}, {"dovetail.dev/image-arch": ""}])
def test_without_the_setting_nothing_is_asked(labels: dict[str, str]) -> None:
    assert images_of(decode_pod(msgspec.json.encode(running("web"))), built(None, labels)) is None


def test_what_is_asked() -> None:
    document = running("web", "web", "log", init=("set",), imagePullSecrets=[{"name": f"s{at}"} for at in range(9)])
    asked = images_of(decode_pod(msgspec.json.encode(document)), built(None))
    assert asked == ImagesAsked("shop", ("set", "web", "log"), ("s0", "s1", "s2", "s3"))
    many = running(*(f"i{number}" for number in range(MAX_IMAGES + 1)))
    assert images_of(decode_pod(msgspec.json.encode(many)), built(None)) is None
    opted_out = {**STAMP, "dovetail.dev/stamp": "disabled"}
    assert images_of(decode_pod(msgspec.json.encode(document)), built(None, opted_out)) is None


def test_a_pod_with_an_image_that_is_being_looked_up_is_marked_and_nothing_more() -> None:
    known = images("web", log=(LINUX["amd64"],))
    after = stamped(running("web", "log"), built(known))
    assert after["metadata"]["labels"] == {PENDING: "true"}
    assert after["spec"] == running("web", "log")["spec"]
    assert stamped(after, built(known)) == after
    labelled = pod(labels={"app": "web"}, containers=[{"name": "c", "image": "web"}])
    assert stamped(labelled, built(images("web")))["metadata"]["labels"] == {"app": "web", PENDING: "true"}


def test_a_pod_is_held_where_it_asks_for_that_and_somebody_can_let_it_go() -> None:
    gate = [{"name": "dovetail.dev/image-arch"}]
    after = stamped(running("web"), built(images("web"), GATE))
    assert after["spec"]["schedulingGates"] == gate
    assert stamped(after, built(images("web"), GATE)) == after
    other = running("web", schedulingGates=[{"name": "theirs"}])
    assert stamped(other, built(images("web"), GATE))["spec"]["schedulingGates"] == [{"name": "theirs"}, *gate]
    assert "schedulingGates" not in stamped(running("web"), built(images("web", may_gate=False), GATE))["spec"]
    assert "schedulingGates" not in stamped(running("web"), built(images("web"), STAMP))["spec"]
    assert stamped(running("web"), built(images(), GATE)) == running("web"), "nobody will know it"


def test_a_pod_without_labels_that_is_held_and_shared_keeps_its_mark() -> None:
    """Without it nobody would find the pod again, and its gate would stay."""
    document = running("web")
    document["metadata"]["ownerReferences"] = [REPLICA_SET]
    facts = replace(SPOT, namespace_labels={**SPOT.namespace_labels, **GATE}, images=images("web"))
    after = stamped(document, facts)
    assert after["spec"]["schedulingGates"] == [{"name": "dovetail.dev/image-arch"}]
    assert after["metadata"]["labels"] == {PENDING: "true", "dovetail.dev/on-demand-share": "spot"}


def settled(document: dict[str, Any], facts: StampFacts, *, late: bool = False) -> dict[str, Any] | None:
    """The marked pod after what is found out was written; None while it waits."""
    decision = settle(decode_pod(msgspec.json.encode(document)), facts, late=late)
    if decision is None:
        return None
    result: dict[str, Any] = json_patch.apply(document, decision.operations)
    return result


MARKED = stamped(running("web"), built(images("web")))
HELD = stamped(
    running("web", affinity=required(expressions({"key": "a", "operator": "Exists"}))), built(images("web"), GATE)
)


def test_a_pod_that_was_not_held_is_told_by_an_annotation() -> None:
    after = settled(MARKED, built(images(web=(LINUX["amd64"],))))
    assert after is not None
    assert after["metadata"]["annotations"] == {"dovetail.dev/image-architectures": "amd64"}
    assert PENDING not in after["metadata"]["labels"]
    assert after["spec"] == MARKED["spec"]


@pytest.mark.parametrize("gated", [False, True])
def test_annotations_that_have_no_room_left_keep_neither_mark_nor_gate(gated: bool) -> None:
    full = {"a": "x" * (MAX_ANNOTATION_BYTES - 10)}
    document = HELD if gated else MARKED
    document = {**document, "metadata": {**document["metadata"], "annotations": full}}
    after = settled(document, built(images(web=(LINUX["amd64"],)), GATE))
    assert after is not None
    assert after["metadata"]["annotations"] == full, "the API server would refuse one more"
    assert PENDING not in after["metadata"]["labels"]
    assert not after["spec"].get("schedulingGates")


def test_a_pod_that_was_held_gets_the_requirement_and_goes() -> None:
    after = settled(HELD, built(images(web=(LINUX["amd64"],)), GATE))
    assert after is not None
    assert terms_of(after) == [expressions({"key": "a", "operator": "Exists"}, AMD)], (
        "only added to: the API server demands it"
    )
    assert after["spec"]["schedulingGates"] == []
    assert record_of(after) == "image-arch=amd64 (namespace: architectures of the images)"
    assert PENDING not in after["metadata"]["labels"]


FREED = {
    "all architectures": built(images(web=BOTH), GATE),
    "nothing will be known": built(images(), GATE),
    "nothing in common with Linux": built(images(web=(("windows", "amd64"),)), GATE),
    "switched off since": built(images("web"), {}),
    "opted out since": built(images("web"), GATE | {"dovetail.dev/stamp": "disabled"}),
}


@pytest.mark.parametrize("facts", FREED.values(), ids=FREED)
def test_a_pod_that_was_held_goes_as_it_is(facts: StampFacts) -> None:
    after = settled(HELD, facts)
    assert after is not None
    assert after["spec"] == {**HELD["spec"], "schedulingGates": []}
    assert after["metadata"] == {**HELD["metadata"], "labels": {}}


def test_a_pod_waits_while_its_images_are_looked_up_and_goes_when_that_takes_too_long() -> None:
    known = built(images("web"), GATE)
    assert settled(HELD, known) is None
    after = settled(HELD, known, late=True)
    assert after is not None
    assert after["spec"]["schedulingGates"] == []
    assert after["metadata"] == HELD["metadata"], "what is found later is annotated"
    assert settled(after, known, late=True) is None
    told = settled(after, built(images(web=(LINUX["amd64"],)), GATE))
    assert told is not None
    assert told["metadata"]["annotations"]["dovetail.dev/image-architectures"] == "amd64"


def test_nothing_in_common_is_told_when_it_is_found_out() -> None:
    document = running("web", "log")
    marked = stamped(document, built(images("web", "log")))
    known = built(images(web=(LINUX["amd64"],), log=(LINUX["arm64"],)))
    decision = settle(decode_pod(msgspec.json.encode(marked)), known, late=False)
    assert decision is not None
    assert len(decision.warnings) == 1
    assert [one.path for one in decision.operations] == ["/metadata/labels/dovetail.dev~1image-arch-pending"]


# --- pods that are too large ----------------------------------------------------------------------------------------

NODE_TERM = expressions({"key": "disk", "operator": "Exists"})
PEERS = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
ZONES = {"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["a"]}


def long_lists(count: int) -> dict[str, dict[str, Any]]:
    constraints = [
        {"topologyKey": f"key-{number}", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"} for number in range(count)
    ]
    return {
        "required node selector terms": {"affinity": required(*[NODE_TERM] * count)},
        "tolerations": {"tolerations": [{"key": f"key-{number}"} for number in range(count)]},
        "topology spread constraints": {"topologySpreadConstraints": constraints},
        "required terms of podAffinity": {"affinity": {"podAffinity": {REQUIRED: [PEERS] * count}}},
        "required terms of podAntiAffinity": {"affinity": {"podAntiAffinity": {REQUIRED: [PEERS] * count}}},
        "host ports": {
            "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 1 + n} for n in range(count)]}]
        },
    }


@pytest.mark.parametrize("what", long_lists(0))
def test_a_pod_with_a_list_that_is_too_long_to_be_planned_is_not_changed(what: str) -> None:
    """Mutation comes before validation: 55,000 terms of a tenant took 276 MB, and the container of the webhook has 256."""
    assert "arch" in decision_for(arm64(**long_lists(MOST_ELEMENTS)[what])).stamped
    decision = decision_for(arm64(**long_lists(MOST_ELEMENTS + 1)[what]))
    assert (decision.outcome, decision.operations, decision.stamped) == (StampOutcome.UNCHANGED, (), ())
    (warning,) = decision.warnings
    assert warning.startswith(f"dovetail: the pod has 257 {what}; only pods with at most 256 are planned.")
    assert decision_for(pod({"dovetail.dev/legacy-labels": "keep"}, **long_lists(300)[what])).warnings == ()


def test_a_pod_that_is_too_large_is_neither_counted_nor_are_its_images_asked_for() -> None:
    facts = replace(FACTS, namespace_labels={"dovetail.dev/on-demand": "30pct", "dovetail.dev/image-arch": "stamp"})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    for count, asked in ((MOST_ELEMENTS, True), (MOST_ELEMENTS + 1, False)):
        document = pod(affinity=required(*[NODE_TERM] * count), containers=[{"name": "c", "image": "web"}])
        document["metadata"]["ownerReferences"] = [owner]
        found = decode_pod(msgspec.json.encode(document))
        assert (share_of(found, facts) is not None) is asked
        assert (images_of(found, facts) is not None) is asked


def test_a_setting_with_too_many_values_stamps_nothing() -> None:
    pools = [f"pool-{number}" for number in range(MAX_VALUES + 1)]
    assert "nodepool" in decision_for(pod({"dovetail.dev/nodepool": ",".join(pools[1:])})).stamped
    decision = decision_for(pod({"dovetail.dev/nodepool": ",".join(pools)}))
    assert decision.operations == ()
    (warning,) = decision.warnings
    assert "dovetail.dev/nodepool of the pod holds 65 values, more than the limit of 64" in warning


def test_deprecated_labels_in_too_many_places_are_not_rewritten() -> None:
    annotations = {"dovetail.dev/legacy-labels": "rewrite", "dovetail.dev/arch": "arm64"}
    decision = decision_for(pod(annotations, affinity=required(expressions(*[ZONES] * MAX_OPERATIONS))))
    assert decision.stamped == ("arch", "legacy-labels")
    decision = decision_for(pod(annotations, affinity=required(expressions(*[ZONES] * (MAX_OPERATIONS + 1)))))
    assert decision.stamped == ("arch",)
    assert "deprecated labels in more than 4096 places" in decision.warnings[0]
