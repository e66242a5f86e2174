"""Laws of the conversion between v1beta1 and v1, over everything that the definitions admit."""

import copy
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provisioner.apis import ec2_hash
from provisioner.apis.conversion.beta import KEPT_BETA, KEPT_V1, to_beta, to_v1
from provisioner.apis.conversion.definitions import BETA, V1
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.hash import nodepool_hash
from provisioner.apis.karpenter import NodePool
from provisioner.apis.openapi import defaulted, violations
from tests.support.schemas import objects

KINDS = pytest.mark.parametrize("kind", sorted(BETA))
SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
KEPT = "metadata.annotations[dovetail.dev/v1"


def drawn(data: st.DataObject, kind: str, *, beta: bool) -> dict[str, Any]:
    return data.draw(objects((BETA if beta else V1)[kind]))


@KINDS
@SLOW
@given(data=st.data())
def test_what_goes_up_comes_down_as_it_was(kind: str, data: st.DataObject) -> None:
    one = drawn(data, kind, beta=True)
    before = copy.deepcopy(one)
    assert to_beta(defaulted(V1[kind], to_v1(one))) == before
    assert one == before  # the argument is not changed


@KINDS
@SLOW
@given(data=st.data())
def test_what_goes_down_comes_up_as_it_was(kind: str, data: st.DataObject) -> None:
    one = drawn(data, kind, beta=False)
    before = copy.deepcopy(one)
    assert to_v1(defaulted(BETA[kind], to_beta(one))) == before
    assert one == before


@KINDS
@SLOW
@given(data=st.data())
def test_what_one_version_admits_becomes_what_the_other_admits(kind: str, data: st.DataObject) -> None:
    up = to_v1(drawn(data, kind, beta=True))
    assert violations(V1[kind], up) == []
    assert defaulted(V1[kind], up) == up  # the API server stores it as it is
    down = to_beta(drawn(data, kind, beta=False))
    assert violations(BETA[kind], down) == []


@KINDS
@SLOW
@given(data=st.data())
def test_a_field_edited_at_v1beta1_wins(kind: str, data: st.DataObject) -> None:
    """Whatever was kept of v1, an edited object reads at v1beta1 as it was written."""
    kept, edited = to_beta(drawn(data, kind, beta=False)), drawn(data, kind, beta=True)
    annotation = kept["metadata"].get("annotations", {}).get(KEPT_V1)
    if annotation is None or "replicas" in annotation:  # a static pool may not get what only dynamic ones have
        return
    edited["metadata"] = {**edited["metadata"], "annotations": {KEPT_V1: annotation}}
    back = to_beta(to_v1(edited))
    assert back["spec"] == edited["spec"]


@KINDS
@SLOW
@given(data=st.data())
def test_a_field_edited_at_v1_wins(kind: str, data: st.DataObject) -> None:
    kept, edited = to_v1(drawn(data, kind, beta=True)), drawn(data, kind, beta=False)
    annotation = kept["metadata"].get("annotations", {}).get(KEPT_BETA)
    if annotation is None:
        return
    edited["metadata"] = {**edited["metadata"], "annotations": {KEPT_BETA: annotation}}
    assert to_v1(to_beta(edited))["spec"] == edited["spec"]


@SLOW
@given(data=st.data())
def test_conversion_alone_drifts_no_node(data: st.DataObject) -> None:
    pool = drawn(data, "NodePool", beta=False)
    there = to_v1(defaulted(BETA["NodePool"], to_beta(pool)))
    assert hash_of_pool(there) == hash_of_pool(pool)
    node_class = drawn(data, "EC2NodeClass", beta=False)
    again = to_v1(defaulted(BETA["EC2NodeClass"], to_beta(node_class)))
    assert hash_of_class(again) == hash_of_class(node_class)


def hash_of_pool(document: dict[str, Any]) -> str:
    return nodepool_hash(msgspec.convert(document, NodePool, strict=False).spec.template)


def hash_of_class(document: dict[str, Any]) -> str:
    return ec2_hash.nodeclass_hash(msgspec.convert(document, EC2NodeClass, strict=False).spec)


def fragment(value: Any, dice: random.Random) -> Any:
    if not isinstance(value, dict):
        return value
    found = {key: fragment(one, dice) for key, one in value.items() if dice.random() < 0.5}
    # nobody owns a struct of which he owns nothing, unless he wrote an empty one
    return {key: one for key, one in found.items() if one != {} or value[key] == {}}


@KINDS
@SLOW
@given(data=st.data(), beta=st.booleans(), seed=st.integers(0, 999))
def test_fragments_convert_too(kind: str, data: st.DataObject, beta: bool, seed: int) -> None:
    """Server-side apply converts what one manager owns."""
    one = drawn(data, kind, beta=beta)
    part = {
        "apiVersion": one["apiVersion"],
        "kind": kind,
        "metadata": one["metadata"],
        "spec": fragment(one["spec"], random.Random(seed)),
    }
    there, back = (to_v1, to_beta) if beta else (to_beta, to_v1)
    assert without_empty(back(there(part))) == without_empty(part)


def without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {key: without_empty(one) for key, one in value.items()}
    return {key: one for key, one in found.items() if one != {}}
