"""The wire format: golden messages of kube-scheduler, and the traps."""

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.protocol import (
    MAX_BODY_BYTES,
    WINDOW_BYTES,
    ExtenderProtocolError,
    ExtenderQuestion,
    FilterResult,
    MetaVictims,
    NodeNames,
    PreemptionQuestion,
    Victim,
    encode_failure,
    encode_preemption,
    encode_score,
    encode_scores,
)

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
    "spec": {"containers": []},
    "status": {"nominatedNodeName": "n2"},
}
NODES: dict[str, Any] = {
    "metadata": {},
    "items": [{"metadata": {"name": "n1", "labels": {"a": "b"}}, "spec": {}}, {"metadata": {"name": "n2"}}],
}
CACHED = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}
WHOLE = {"Pod": POD, "Nodes": NODES, "NodeNames": None}


def body(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def test_names_only_question() -> None:
    question = ExtenderQuestion(body(CACHED))
    assert (question.pod.uid, question.pod.nominated) == ("u1", "n2")
    assert question.names.all() == ["n1", "n2"]
    assert json.loads(question.pod.raw) == POD


def test_question_with_whole_nodes() -> None:
    assert ExtenderQuestion(body(WHOLE)).names.all() == ["n1", "n2"]


def test_the_echo_repeats_the_names_byte_by_byte() -> None:
    spaced = b'{"Pod":' + body(POD) + b',"Nodes":null,"NodeNames":[ "n1" , "n2" ]}'
    assert ExtenderQuestion(spaced).echo() == (
        b'{"Nodes":null,"NodeNames":[ "n1" , "n2" ],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    )


def test_the_echo_of_whole_nodes_repeats_them() -> None:
    assert json.loads(ExtenderQuestion(body(WHOLE)).echo()) == {
        "Nodes": NODES,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_a_steered_reply_is_golden() -> None:
    assert ExtenderQuestion(body(CACHED)).only("n1") == (
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    )


def test_a_refusing_reply_is_golden() -> None:
    assert ExtenderQuestion(body(CACHED)).without({"n1": "held", "n2": 'so "be" it'}) == (
        b'{"Nodes":null,"NodeNames":[],"FailedNodes":{},'
        b'"FailedAndUnresolvableNodes":{"n1":"held","n2":"so \\"be\\" it"},"Error":""}'
    )


def test_narrowed_whole_nodes_keep_all_they_had() -> None:
    reply = json.loads(ExtenderQuestion(body(WHOLE)).without({"n2": "held"}))
    assert reply["Nodes"] == {"metadata": {}, "items": [NODES["items"][0]]}
    assert reply["NodeNames"] is None


def test_a_name_that_was_not_asked_about_never_leaves() -> None:
    with pytest.raises(ValueError, match="other"):
        ExtenderQuestion(body(CACHED)).only("other")
    reply = json.loads(ExtenderQuestion(body(CACHED)).without({"n1": "held", "other": "held"}))
    assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == (["n2"], {})


def test_every_row_of_the_protocol_is_encoded_as_go_expects_it() -> None:
    """ExtenderFilterResult, HostPriorityList, ExtenderPreemptionResult with every field, in Go's case."""
    assert encode_failure("why") == (
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":"why"}'
    )
    one, two, three = encode_score("n1", 10), encode_score("n2", 0), encode_score("n3", 4)
    assert encode_scores([]) == b"[]"
    assert encode_scores([one]) == b'[{"Host":"n1","Score":10}]'
    assert encode_scores([one, two]) == b'[{"Host":"n1","Score":10},{"Host":"n2","Score":0}]'
    assert encode_scores([one, two, three]) == (
        b'[{"Host":"n1","Score":10},{"Host":"n2","Score":0},{"Host":"n3","Score":4}]'
    )
    assert encode_preemption({"n1": MetaVictims((Victim("v"),), 0)}) == (
        b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v"}],"NumPDBViolations":0}}}'
    )
    assert encode_preemption({}) == b'{"NodeNameToMetaVictims":{}}'


def test_a_failure_names_the_problem() -> None:
    reply = msgspec.json.decode(encode_failure("what was wrong"), type=FilterResult)
    assert (reply.error, reply.node_names, reply.nodes) == ("what was wrong", None, None)


META = {"n1": {"Pods": [{"UID": "v1"}, {"UID": "v2"}], "NumPDBViolations": 1}, "n2": {"Pods": None}}


def test_preemption_with_meta_victims() -> None:
    question = PreemptionQuestion(body({"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": META}))
    assert question.candidates["n1"] == MetaVictims((Victim("v1"), Victim("v2")), 1)
    assert json.loads(question.kept(["n1", "n2", "n3"])) == {"NodeNameToMetaVictims": {"n1": META["n1"]}}


def test_preemption_with_whole_victims_is_answered_in_the_meta_form() -> None:
    victims = {"n1": {"Pods": [{"metadata": {"uid": "v1", "name": "x"}}], "NumPDBViolations": 2}}
    question = PreemptionQuestion(body({"Pod": POD, "NodeNameToVictims": victims, "NodeNameToMetaVictims": None}))
    want = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 2}}}
    assert json.loads(question.kept(["n1"])) == want


BAD = {
    "no JSON": b"{",
    "no UTF-8": b'{"Pod":{"metadata":{"uid":"\xff"}},"NodeNames":[]}',
    "a list": b"[]",
    "no pod": b'{"NodeNames":["n"]}',
    "a pod that is null": b'{"Pod":null,"NodeNames":["n"]}',
    "a pod without a UID": b'{"Pod":{"metadata":{}},"NodeNames":["n"]}',
    "neither nodes nor names": b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":null,"NodeNames":null}',
    "names that are a text": b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":"n"}',
    "nodes that are a text": b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":"n"}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_message_that_cannot_be_read_is_an_error_of_ours(text: bytes) -> None:
    with pytest.raises(ExtenderProtocolError):
        ExtenderQuestion(text)


def test_names_that_are_no_texts_are_found_out_when_they_are_wanted() -> None:
    question = ExtenderQuestion(b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":[1]}')
    with pytest.raises(ExtenderProtocolError, match="NodeNames"):
        question.names.all()


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"Pod":{}}'])
def test_a_preemption_that_cannot_be_read_is_an_error_of_ours(text: bytes) -> None:
    with pytest.raises(ExtenderProtocolError):
        PreemptionQuestion(text)


node_name = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.lists(node_name, max_size=8, unique=True), node_name)
def test_looking_in_the_bytes_finds_what_decoding_finds(listed: list[str], name: str) -> None:
    assert (name in NodeNames(body(listed))) == (name in listed)


@given(st.lists(node_name, max_size=8, unique=True))
def test_the_empty_name_and_other_things_are_in_no_list(listed: list[str]) -> None:
    names = NodeNames(body(listed))
    assert "" not in names
    assert 1 not in names


def compact(listed: list[str]) -> bytes:
    return json.dumps(listed, separators=(",", ":")).encode()


@given(st.integers(0, 3000), st.integers(0, 10**7), st.randoms())
def test_a_window_has_names_in_a_row_and_enough_of_them(count: int, start: int, random: Random) -> None:
    listed = [f"n{number}" + "x" * random.randrange(50) for number in range(count)]
    raw = compact(listed)
    window = NodeNames(raw).window(start)
    if len(raw) < 2 * WINDOW_BYTES:
        assert window is None
        return
    assert window is not None
    found = window.all()
    first = listed.index(found[0])
    assert found == [*listed[first:], *listed[:first]][: len(found)]
    assert WINDOW_BYTES <= len(compact(found)) < WINDOW_BYTES + 200


def test_every_name_is_in_a_window() -> None:
    listed = [f"node-{number:05}" for number in range(10_000)]
    names = NodeNames(compact(listed))
    assert {name for start in range(0, 130_000, 40_000) for name in (names.window(start) or names).all()} == set(listed)


@pytest.mark.parametrize("odd", ['x","y', "x\\", "\u00e9", "]", ""])
def test_a_window_has_no_name_that_was_not_asked_about(odd: str) -> None:
    listed = [odd + "x" * 50 for _ in range(3000)]
    for raw in (compact(listed), body(listed)):
        for start in range(100):
            window = NodeNames(raw).window(start)
            assert window is None or set(window.all()) == set(listed)


def test_there_is_no_window_in_what_is_no_list_of_names() -> None:
    assert NodeNames(compact([["x" * 10]] * 10_000)).window(1) is None  # type: ignore[list-item]


def test_the_largest_legal_questions_of_five_thousand_nodes_are_not_too_long() -> None:
    """Names and pods as long as the API server takes them; victims of a tenth of the nodes, as many as a node's usual pods."""
    names = [f"n{number:04}".ljust(253, "x") for number in range(5000)]
    largest = {**POD, "data": "x" * 1_500_000}
    asked = body({"Pod": largest, "Nodes": None, "NodeNames": names})
    assert len(asked) <= MAX_BODY_BYTES
    assert len(ExtenderQuestion(asked).names.all()) == 5000
    victims = [{"UID": "5b1f2c1e-0000-4000-8000-000000000001"}] * 110
    candidates = {name: {"Pods": victims, "NumPDBViolations": 0} for name in names[:500]}
    asked = body({"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": candidates})
    assert len(asked) <= MAX_BODY_BYTES
    assert len(PreemptionQuestion(asked).candidates) == 500
