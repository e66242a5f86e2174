"""What a pod is expected to ask for when it is admitted again: never less than it asks for, and never less than VerticalPodAutoscaler gives it.

What that gives is written out here once more, container by container, in whole units.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.vpa import VerticalPodAutoscaler
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.predictions import NO_PREDICTIONS, AutoscalerKeeper
from tests.support.autoscalers import autoscaler, sized_pod
from tests.support.pods import Wire

CONTAINERS = ("app", "proxy", "log")
UNITS = {"cpu": "", "memory": "Mi"}
amounts = st.dictionaries(st.sampled_from(sorted(UNITS)), st.integers(0, 9), max_size=2)


def wire(values: dict[str, int]) -> Wire:
    return {name: f"{value}{UNITS[name]}" for name, value in values.items()}


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Wire]:
    found = {}
    for name in draw(st.lists(st.sampled_from((*CONTAINERS, "*")), unique=True)):
        one: Wire = {"containerName": name, "minAllowed": draw(amounts), "maxAllowed": draw(amounts)}
        if draw(st.booleans()):
            one["mode"] = draw(st.sampled_from(["Auto", "Off"]))
        if draw(st.booleans()):
            one["controlledResources"] = draw(st.lists(st.sampled_from(sorted(UNITS)), unique=True))
        if draw(st.booleans()):
            one["controlledValues"] = draw(st.sampled_from(["RequestsOnly", "RequestsAndLimits"]))
        found[name] = one
    return found


@st.composite
def containers(draw: st.DrawFn) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Requests and limits by name; as the API server has it, no limit is below its request."""
    found = {}
    for name in draw(st.lists(st.sampled_from(CONTAINERS), min_size=1, unique=True)):
        requests = draw(amounts)
        more = draw(amounts)
        found[name] = requests, {key: value + requests.get(key, 0) for key, value in more.items()}
    return found


modes = st.sampled_from([None, "Off", "Initial", "Recreate", "Auto", "InPlaceOrRecreate"])


def given_by_hand(
    name: str, resource: str, own: tuple[dict[str, int], dict[str, int]], rules: dict[str, Wire], target: dict[str, int]
) -> int:
    requests, limits = own
    rule = rules.get(name) or rules.get("*") or {}
    if rule.get("mode") == "Off" or resource not in rule.get("controlledResources", UNITS) or resource not in target:
        return requests.get(resource, 0)
    amount = target[resource]
    if low := rule.get("minAllowed", {}).get(resource):
        amount = max(amount, low)
    if high := rule.get("maxAllowed", {}).get(resource):
        amount = min(amount, high)
    if rule.get("controlledValues") == "RequestsOnly" and resource in limits:
        amount = min(amount, limits[resource])
    return amount


def bounded(rules: dict[str, Wire]) -> tuple[Wire, ...]:
    return tuple(
        {key: wire(value) if key in ("minAllowed", "maxAllowed") else value for key, value in one.items()}
        for one in rules.values()
    )


@given(containers(), policies(), st.dictionaries(st.sampled_from(CONTAINERS), amounts), modes)
def test_a_pod_will_ask_for_the_larger_of_what_it_asks_for_and_what_it_is_given(
    mine: dict[str, tuple[dict[str, int], dict[str, int]]],
    rules: dict[str, Wire],
    targets: dict[str, dict[str, int]],
    mode: str | None,
) -> None:
    asking: dict[str, Any] = {name: {"requests": wire(own[0]), "limits": wire(own[1])} for name, own in mine.items()}
    pod = sized_pod(**asking)
    said: dict[str, Any] = {name: wire(target) for name, target in targets.items()}
    one: VerticalPodAutoscaler = autoscaler(mode=mode, policies=bounded(rules), **said)
    keeper = AutoscalerKeeper()
    keeper.know(KindKnowledge.READ)
    keeper.changed(None, one)
    after = keeper.frozen().readmitted(pod)
    for resource in UNITS:
        scale = 1000 if resource == "cpu" else 2**20
        now = sum(own[0].get(resource, 0) for own in mine.values())
        then = sum(given_by_hand(name, resource, own, rules, targets.get(name, {})) for name, own in mine.items())
        want = max(now, then) if mode != "Off" else now
        assert after.shape.requests.amount(resource) == want * scale
    assert pod.shape.requests.fits(after.shape.requests)
    assert (after is pod) == (after.shape is pod.shape)
    assert NO_PREDICTIONS.readmitted(pod) is pod
    unsized = [key for key in type(pod.shape).__struct_fields__ if key not in ("key", "requests", "limits")]
    assert [getattr(after.shape, key) for key in unsized] == [getattr(pod.shape, key) for key in unsized]
