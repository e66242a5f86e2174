"""Laws of the API types: hashes and keys do not depend on order, plans go there and back, Ready follows the rest."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import PodSpec
from provisioner.apis.hash import nodepool_hash
from provisioner.apis.karpenter import NodeClaimTemplate
from provisioner.apis.meta import condition
from provisioner.apis.plan import Plan, PlanEntry, decode_plan, encode_plan
from provisioner.apis.pods import decode_pod
from provisioner.apis.shapes import shape_of
from tests.support.pods import wire_bytes, wire_pod

WORDS = st.text("abcxyz019-", min_size=1, max_size=8)
LABELS = st.dictionaries(WORDS, WORDS, max_size=5)
TAINTS = st.lists(
    st.fixed_dictionaries({"key": WORDS, "effect": st.sampled_from(["NoSchedule", "NoExecute"]), "value": WORDS}),
    max_size=4,
    unique_by=str,
)
MILLIS = st.integers(0, 4000)
CREATED = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def hash_of(labels: dict[str, str], taints: list[dict[str, str]]) -> str:
    reference = {"group": "a", "kind": "b", "name": "c"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"taints": taints, "requirements": [], "nodeClassRef": reference},
    }
    return nodepool_hash(msgspec.convert(template, NodeClaimTemplate))


@given(labels=LABELS, taints=TAINTS, data=st.data())
def test_a_hash_does_not_depend_on_order(
    labels: dict[str, str], taints: list[dict[str, str]], data: st.DataObject
) -> None:
    other_labels = dict(data.draw(st.permutations(list(labels.items()))))
    other_taints = data.draw(st.permutations(taints))
    assert hash_of(other_labels, other_taints) == hash_of(labels, taints)


@given(labels=LABELS, key=WORDS, value=WORDS)
def test_one_more_label_changes_the_hash(labels: dict[str, str], key: str, value: str) -> None:
    changed = labels | {key: value}
    assert (hash_of(changed, []) == hash_of(labels, [])) == (changed == labels)


def shuffled(value: Any, dice: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], dice) for key in dice.sample(list(value), len(value))}
    return [shuffled(one, dice) for one in value] if isinstance(value, list) else value


@given(labels=LABELS, selector=LABELS, seed=st.integers(0, 9))
def test_a_class_does_not_depend_on_the_order_of_keys(
    labels: dict[str, str], selector: dict[str, str], seed: int
) -> None:
    pod = wire_pod(metadata__labels=labels, spec__nodeSelector=selector, metadata__managedFields=[])
    assert decode_pod(wire_bytes(pod)).shape is decode_pod(wire_bytes(shuffled(pod, random.Random(seed)))).shape


def container(name: str, millis: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": f"{millis}m"}}} | more


@given(main=st.lists(MILLIS, max_size=4), init=st.lists(st.tuples(MILLIS, st.booleans()), max_size=5))
def test_requests_are_the_most_that_any_moment_of_the_pod_needs(main: list[int], init: list[tuple[int, bool]]) -> None:
    spec = {
        "containers": [container(f"c{i}", millis) for i, millis in enumerate(main)],
        "initContainers": [
            container(f"i{i}", millis, **({"restartPolicy": "Always"} if sidecar else {}))
            for i, (millis, sidecar) in enumerate(init)
        ],
    }
    running, moments = 0, [0]
    for millis, sidecar in init:  # play the start of the pod, step by step
        moments.append(running + millis)
        running += millis if sidecar else 0
    moments.append(running + sum(main))
    shape = shape_of(msgspec.convert(spec, PodSpec), namespace="a", labels={})
    assert shape.requests.amount("cpu") == max(moments)


ENTRIES = st.builds(
    lambda owner, klass, uids, more: PlanEntry(owner=owner, klass=klass, count=len(uids) + more, uids=tuple(uids)),
    st.text(max_size=5),
    st.text(max_size=5),
    st.lists(st.text(max_size=5), max_size=3),
    st.integers(1, 3),
)


@given(entries=st.lists(ENTRIES, max_size=4), data=st.data())
def test_equal_plans_give_equal_text_and_come_back(entries: list[PlanEntry], data: st.DataObject) -> None:
    text = encode_plan(Plan(pods=tuple(entries)))
    assert encode_plan(Plan(pods=tuple(data.draw(st.permutations(entries))))) == text
    assert encode_plan(decode_plan(text)) == text
    assert decode_plan(text).total == sum(entry.count for entry in entries)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["Launched", "Registered", "Initialized", "Drifted", "Consolidatable"]),
        st.sampled_from(["True", "False", "Unknown"]),
        st.integers(0, 5),
    ),
    max_size=12,
)


@given(steps=STEPS)
def test_ready_follows_its_dependents_and_times_only_grow(steps: list[tuple[str, str, int]]) -> None:
    conditions = CLAIM_CONDITIONS.initialise((), generation=1, created=CREATED)
    now = CREATED
    for kind, status, seconds in steps:
        now += timedelta(seconds=seconds)
        conditions = CLAIM_CONDITIONS.set(conditions, kind, status, generation=1, now=now)
        by_type = {one.type: one for one in conditions}
        statuses = {by_type[dependent].status for dependent in ("Launched", "Registered", "Initialized")}
        want = "False" if "False" in statuses else "Unknown" if "Unknown" in statuses else "True"
        assert by_type["Ready"].status == want
        assert by_type[kind].status == status
        assert conditions[-1].type == "Ready"
        times = [one.last_transition_time or CREATED for one in conditions[:-1]]
        assert times == sorted(times)
        assert len(by_type) == len(conditions)
        again = CLAIM_CONDITIONS.set(conditions, kind, status, generation=1, now=now + timedelta(hours=1))
        assert again is conditions
        assert condition(again, kind) is by_type[kind]
