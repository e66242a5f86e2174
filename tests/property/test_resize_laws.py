"""What a pod takes of its node while it is resized: never less than kube-scheduler 1.36 or 1.37 counts.

The two formulas are written out here once more, straight from k8s.io/component-helpers/resource v0.36.2 and v0.37.2, each
resource by itself and over plain dicts.
"""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.pods import decode_pod
from tests.support.pods import Wire

CPU, GPU, PAGES = "cpu", "example.com/gpu", "hugepages-2Mi"
NAMES = (CPU, GPU, PAGES)
Amounts = dict[str, int]

amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5), max_size=3)


@st.composite
def resized_pods(draw: st.DrawFn) -> Wire:
    """A pod on a node: up to three containers and three init containers, and what its kubelet tells of some of them."""
    containers = [{"name": f"c{i}", "resources": {"requests": draw(amounts)}} for i in range(draw(st.integers(1, 3)))]
    inits = [
        {"name": f"i{i}", "resources": {"requests": draw(amounts)}}
        | ({"restartPolicy": "Always"} if draw(st.booleans()) else {})
        for i in range(draw(st.integers(0, 3)))
    ]
    spec: Wire = {"nodeName": "n", "containers": containers, "initContainers": inits}
    if draw(st.booleans()):
        spec["overhead"] = draw(amounts)
    if draw(st.booleans()):
        spec["resources"] = {"requests": draw(amounts)}
    status: Wire = {
        "containerStatuses": [draw(statuses(str(one["name"]))) for one in containers if draw(st.booleans())],
        "initContainerStatuses": [draw(statuses(str(one["name"]))) for one in inits if draw(st.booleans())],
    } | {key: value for key, value in draw(statuses("")).items() if key != "name"}
    if draw(st.booleans()):
        status["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": draw(st.sampled_from(["Infeasible", "Deferred"]))}
        ]
    return {"metadata": {"name": "p", "namespace": "d"}, "spec": spec, "status": status}


@st.composite
def statuses(draw: st.DrawFn, name: str) -> Wire:
    """As the API server writes one: what is empty is left out."""
    told: Wire = {"name": name}
    if allocated := draw(amounts):
        told["allocatedResources"] = allocated
    if draw(st.booleans()):
        in_use = draw(amounts)
        told["resources"] = {"requests": in_use} if in_use else {}
    return told


def total(spec: Wire, resource: str, amount_of: Any) -> int:
    """Of containers and sidecars together, or of the init container that needs most beside the sidecars before it."""
    running: int = sum(amount_of(one).get(resource, 0) for one in spec["containers"])
    sidecars = most = 0
    for one in spec["initContainers"]:
        amount: int = amount_of(one).get(resource, 0)
        if one.get("restartPolicy") == "Always":
            sidecars += amount
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + amount)
    return max(running + sidecars, most)


def told(pod: Wire, name: str) -> Wire:
    every = [*pod["status"]["containerStatuses"], *pod["status"]["initContainerStatuses"]]
    return next((one for one in every if one["name"] == name), {})


def is_infeasible(pod: Wire) -> bool:
    return any(one["reason"] == "Infeasible" for one in pod["status"].get("conditions", []))


def largest(lists: list[Amounts]) -> Amounts:
    return {name: max(one.get(name, 0) for one in lists) for name in {name for one in lists for name in one}}


def may_be_of_pod(name: str) -> bool:
    return name != GPU


def in_1_36(pod: Wire) -> Amounts:
    spec, status = pod["spec"], pod["status"]

    def effective(own: Amounts, known: Wire) -> Amounts:
        actual = [known["resources"].get("requests", {}), known.get("allocatedResources", {})]
        return largest(actual if is_infeasible(pod) else [own, *actual])

    def of_container(one: Wire) -> Amounts:
        own, known = one["resources"]["requests"], told(pod, one["name"])
        is_plain_init = one in spec["initContainers"] and "restartPolicy" not in one
        return own if is_plain_init or "resources" not in known else effective(own, known)

    found = {name: total(spec, name, of_container) for name in NAMES}
    own = spec.get("resources", {}).get("requests", {})
    whole = effective(own, status) if "resources" in status else own
    found |= {name: whole.get(name, 0) for name in own if may_be_of_pod(name)}
    return {name: amount + spec.get("overhead", {}).get(name, 0) for name, amount in found.items()}


def in_1_37(pod: Wire) -> Amounts:
    spec, status, infeasible = pod["spec"], pod["status"], is_infeasible(pod)

    def asked(one: Wire) -> Amounts:
        return one["resources"]["requests"]  # type: ignore[no-any-return]

    def allocated(one: Wire) -> Amounts:
        return told(pod, one["name"]).get("allocatedResources") or ({} if infeasible else asked(one))

    def actuated(one: Wire) -> Amounts:
        return told(pod, one["name"]).get("resources", {}).get("requests") or allocated(one)

    def sums(amount_of: Any) -> Amounts:
        return {name: total(spec, name, amount_of) for name in NAMES}

    whole, in_use = status.get("allocatedResources"), status.get("resources", {}).get("requests")
    kubelet = [whole, in_use] if whole and in_use else [sums(allocated), sums(actuated)]
    found = dict.fromkeys(NAMES, 0) | largest([*kubelet, *([] if infeasible else [sums(asked)])])
    own = spec.get("resources", {}).get("requests", {})
    if any(may_be_of_pod(name) for name in own):
        over = own
        if "resources" in status:
            over = largest([{} if infeasible else own, in_use or {}, whole or {}])
        found |= {name: amount for name, amount in over.items() if may_be_of_pod(name)}
    return {name: amount + spec.get("overhead", {}).get(name, 0) for name, amount in found.items()}


def counted(pod: Wire) -> Amounts:
    requests = dict(decode_pod(msgspec.json.encode(pod)).shape.requests)
    return {name: requests.get(name, 0) // (1000 if name == CPU else 1) for name in NAMES}


@given(resized_pods())
def test_the_larger_of_both_formulas_counts(pod: Wire) -> None:
    assert counted(pod) == largest([in_1_36(pod), in_1_37(pod)])


@given(resized_pods())
def test_without_a_word_of_the_kubelet_both_are_what_the_spec_asks_for(pod: Wire) -> None:
    pod["status"] = {"containerStatuses": [], "initContainerStatuses": []}
    assert in_1_36(pod) == in_1_37(pod) == counted(pod)


@given(resized_pods())
def test_only_an_init_container_a_kubelet_of_1_37_or_pod_level_amounts_make_1_37_count_more(pod: Wire) -> None:
    """What a cluster of 1.36 pays for not asking its version: nothing but this."""
    pod["spec"]["initContainers"] = [one for one in pod["spec"]["initContainers"] if "restartPolicy" in one]
    for key in ("allocatedResources", "resources"):
        pod["status"].pop(key, None)
    for one in (*pod["status"]["containerStatuses"], *pod["status"]["initContainerStatuses"]):
        one.setdefault("resources", {})
    older, newer = in_1_36(pod), in_1_37(pod)
    assert all(newer[name] <= older[name] for name in NAMES)
