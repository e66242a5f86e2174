"""A stamped pod is still one that the API server admits, says the same to provisioner and kube-scheduler, and the exempt are untouched."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.karpenter import LABEL_VALUE, QUALIFIED_NAME
from provisioner.apis.pods import decode_pod as decode_whole
from provisioner.apis.stamping import MAX_ANNOTATION_BYTES, StampDecision, StampFacts, StampOutcome, decide
from provisioner.simulator import json_patch
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.taints import Taint, first_untolerated
from webhook.review import decode_pod

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
KEYS: Final = [
    *("kubernetes.io/arch", "beta.kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/os"),
    *("karpenter.sh/capacity-type", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name", ZONE, OLD_ZONE, "team"),
]
VALUES: Final = ["amd64", "arm64", "linux", "windows", "spot", "on-demand", "gpu", "a"]
POOLS: Final = {
    "gpu": (Taint(key="gpu", effect="NoSchedule"), Taint(key="team", value="a", effect="NoExecute")),
    "team": (Taint(key="team", value="a", effect="NoExecute"), Taint(key="soft", effect="PreferNoSchedule")),
}

expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(KEYS),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
terms = st.builds(lambda found: {"matchExpressions": found}, st.lists(expressions, min_size=1, max_size=2))
affinities = st.builds(
    lambda found: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}, st.lists(terms, min_size=1, max_size=2)
)
tolerations = st.lists(
    st.sampled_from(
        [
            {"operator": "Exists"},
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute", "tolerationSeconds": 5},
            {"key": "x", "operator": "Equal", "value": "y"},
        ]
    ),
    max_size=2,
)
spreads = st.lists(
    st.builds(
        lambda key, when: {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}},
        st.sampled_from([ZONE, OLD_ZONE, "kubernetes.io/hostname"]),
        st.sampled_from(["ScheduleAnyway", "DoNotSchedule"]),
    ),
    max_size=3,
    unique_by=lambda one: (one["topologyKey"], one["whenUnsatisfiable"]),
)
settings = st.fixed_dictionaries(
    {},
    optional={
        "arch": st.sampled_from(["arm64", "amd64_arm64", "sparc", ""]),
        "os": st.sampled_from(["linux", "windows"]),
        "capacity-type": st.sampled_from(["spot", "spot_on-demand"]),
        "nodepool": st.sampled_from(["gpu", "gpu_team", "nobody"]),
        "scheduler": st.just("enabled"),
        "legacy-labels": st.sampled_from(["rewrite", "keep"]),
        "spread": st.sampled_from(["zone", "rack"]),
        "protect-jobs": st.just("enabled"),
    },
)
annotations = st.none() | st.dictionaries(
    st.sampled_from(
        [
            "a",
            "karpenter.sh/do-not-evict",
            "karpenter.sh/do-not-consolidate",
            "karpenter.sh/do-not-disrupt",
            "dovetail.dev/stamped",
        ]
    ),
    st.sampled_from(["true", "false", "arch=arm64 (pod)", "x" * 2000]),
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod that the API server admits."""
    spec: dict[str, Any] = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i"}]}
    metadata: dict[str, Any] = {"name": "p", "namespace": "shop", "uid": "u"}
    for name, strategy in (
        ("affinity", affinities),
        ("tolerations", tolerations),
        ("topologySpreadConstraints", spreads),
    ):
        if draw(st.booleans()):
            spec[name] = draw(strategy)
    if draw(st.booleans()):
        spec["nodeSelector"] = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2))
    if (found := draw(annotations)) is not None:
        metadata["annotations"] = found
    if draw(st.booleans()):
        metadata["labels"] = draw(
            st.dictionaries(st.sampled_from(["app", "pod-template-hash"]), st.sampled_from(["web", ""]))
        )
    if draw(st.booleans()):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "j", "controller": True}
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


facts = st.builds(
    lambda namespace, defaults, alive: StampFacts(
        namespace="shop",
        namespace_labels={f"dovetail.dev/{key}": value for key, value in namespace.items()},
        defaults=defaults,
        scheduler_alive=alive,
        taints_of=POOLS.get,
    ),
    settings,
    settings,
    st.booleans(),
)


def decided(document: dict[str, Any], known: StampFacts) -> StampDecision:
    return decide(decode_pod(msgspec.json.encode(document)), known)


def stamped(document: dict[str, Any], known: StampFacts) -> dict[str, Any]:
    result: dict[str, Any] = json_patch.apply(document, decided(document, known).operations)
    return result


def required_terms(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    found = document["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    return None if found is None else found["nodeSelectorTerms"]


def problems(document: dict[str, Any]) -> list[str]:
    """What the API server would refuse of the fields that stamping touches."""
    spec, metadata = document["spec"], document["metadata"]
    found: list[str] = []

    def labelled(place: str, entries: Iterable[tuple[str, str]]) -> None:
        for key, value in entries:
            if not re.search(QUALIFIED_NAME, key) or not re.search(LABEL_VALUE, value) or len(value) > 63:
                found.append(f"{place}: {key}={value}")

    labelled("nodeSelector", spec.get("nodeSelector", {}).items())
    for term in required_terms(document) or ():
        for one in term["matchExpressions"]:
            labelled("affinity", [(one["key"], value) for value in one.get("values", ())] or [(one["key"], "")])
            if bool(one.get("values")) != (one["operator"] in ("In", "NotIn")):
                found.append(f"affinity: {one}")
    for one in spec.get("tolerations", ()):
        if (one["operator"] == "Exists" and one.get("value")) or (one["operator"] == "Equal" and not one.get("key")):
            found.append(f"toleration: {one}")
        if one.get("effect", "") not in ("", "NoSchedule", "NoExecute", "PreferNoSchedule"):
            found.append(f"toleration: {one}")
    pairs = [(one["topologyKey"], one["whenUnsatisfiable"]) for one in spec.get("topologySpreadConstraints", ())]
    if len(set(pairs)) != len(pairs):
        found.append(f"spread: {pairs}")
    for one in spec.get("topologySpreadConstraints", ()):
        labelled("spread", one["labelSelector"].get("matchLabels", {}).items())
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        size += len(key.encode()) + len(value.encode())
        if not re.search(QUALIFIED_NAME, key):
            found.append(f"annotation: {key}")
    if size > MAX_ANNOTATION_BYTES or not spec["schedulerName"]:
        found.append("annotations or scheduler")
    return found


@given(document=pods(), known=facts)
def test_a_stamped_pod_is_still_valid(document: dict[str, Any], known: StampFacts) -> None:
    assert problems(document) == []
    assert problems(stamped(document, known)) == []


@given(document=pods(), known=facts)
def test_a_second_pass_changes_nothing(document: dict[str, Any], known: StampFacts) -> None:
    again = decided(stamped(document, known), known)
    assert (again.operations, again.stamped) == ((), ())


EXEMPT: Final = {
    "nodeName": lambda document: document["spec"].update(nodeName="n1"),
    "mirror": lambda document: (
        document["metadata"].setdefault("annotations", {}).update({"kubernetes.io/config.mirror": "x"})
    ),
    "scheduler": lambda document: document["spec"].update(schedulerName="volcano"),
}


@given(
    document=pods(), known=facts, how=st.sampled_from([*EXEMPT, "kube-system", "kube-node-lease", "dovetail-system"])
)
def test_the_exempt_are_untouched(document: dict[str, Any], known: StampFacts, how: str) -> None:
    if how in EXEMPT:
        EXEMPT[how](document)
    else:
        known = replace(known, namespace=how)
    assert decided(document, known) == StampDecision(StampOutcome.EXEMPT)


@given(document=pods(), known=facts)
def test_a_patch_is_bounded(document: dict[str, Any], known: StampFacts) -> None:
    decision = decided(document, known)
    assert len(decision.operations) <= 60
    assert len(msgspec.json.encode(decision.operations)) <= 16 * 1024
    assert len(decision.warnings) <= 20


def admits(document: dict[str, Any], labels: dict[str, str]) -> bool:
    """kube-scheduler's NodeAffinity, in its own words: the node selector, and one of the terms."""

    def matches(one: dict[str, Any]) -> bool:
        there = one["key"] in labels
        match one["operator"]:
            case "In":
                return there and labels[one["key"]] in one["values"]
            case "NotIn":
                return not there or labels[one["key"]] not in one["values"]
            case "Exists":
                return there
            case _:
                return not there

    chosen = required_terms(document)
    return all(labels.get(key) == value for key, value in document["spec"].get("nodeSelector", {}).items()) and (
        chosen is None or any(all(map(matches, term["matchExpressions"])) for term in chosen)
    )


def provisioner_admits(document: dict[str, Any], labels: dict[str, str]) -> bool:
    """The same question in the provisioner's algebra, over the pod as it decodes it."""
    shape = decode_whole(msgspec.json.encode(document)).shape
    assert shape.error == ""
    node = Requirements.from_labels(labels)
    selector = Requirements.from_labels(shape.node_selector)
    chosen = shape.affinity.node_affinity.required if shape.affinity and shape.affinity.node_affinity else None
    alternatives = [
        Requirements.of(Requirement.of(one.key, one.operator, one.values or ()) for one in term.match_expressions)
        for term in (chosen.node_selector_terms if chosen else ())
    ]
    return any(node.incompatibility(selector.merged(one)) is None for one in alternatives or [Requirements.of()])


nodes = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=6)


@given(document=pods(), known=facts, labels=nodes)
def test_provisioner_and_scheduler_understand_a_stamped_pod_alike(
    document: dict[str, Any], known: StampFacts, labels: dict[str, str]
) -> None:
    after = stamped(document, known)
    assert provisioner_admits(after, labels) is admits(after, labels)


@given(document=pods(), known=facts, labels=nodes)
def test_stamping_never_opens_a_node_that_the_pod_did_not_want(
    document: dict[str, Any], known: StampFacts, labels: dict[str, str]
) -> None:
    kept = replace(known, namespace_labels={**known.namespace_labels, "dovetail.dev/legacy-labels": "keep"})
    if admits(stamped(document, kept), labels):
        assert admits(document, labels)


@given(document=pods(), known=facts)
def test_a_pod_that_is_stamped_for_pools_tolerates_their_taints(document: dict[str, Any], known: StampFacts) -> None:
    decision = decided(document, known)
    if "nodepool" not in decision.stamped:
        return
    wanted = known.namespace_labels.get("dovetail.dev/nodepool", known.defaults.get("nodepool", ""))
    shape = decode_whole(msgspec.json.encode(stamped(document, known))).shape
    for pool in wanted.split("_"):
        assert first_untolerated(shape.tolerations, POOLS.get(pool, ())) is None
