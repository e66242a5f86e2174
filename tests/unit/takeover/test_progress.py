"""Which step of a takeover is next, and what is remembered of it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.karpenter import NodeClaim
from provisioner.state.pause import Activity, value_of
from provisioner.takeover.claim_drift import ClaimDrift, DriftVerdict
from provisioner.takeover.progress import (
    EVERYTHING,
    StepKind,
    TakeoverFacts,
    TakeoverPhase,
    TakeoverRecord,
    next_step,
    settings_after,
    standing_of,
)
from tests.support.clock import NOON
from tests.support.takeover import node_claim, node_class, node_pool

POOL, CLASS = node_pool(), node_class()
LEADING: dict[str, Any] = {"holder": "dovetail-1"}


def claim(name: str, provider: str = "") -> NodeClaim:
    wire = node_claim(name, POOL, CLASS)
    if provider:
        wire["status"]["providerID"] = provider
    return msgspec.convert(wire, NodeClaim, strict=False)


def at(phase: TakeoverPhase, former: str = "", **claims: str) -> TakeoverRecord:
    return TakeoverRecord(phase, "2026-01-01T00:00:00+00:00", former, claims)


ALL = {"paused": EVERYTHING}
ADOPTED = at(TakeoverPhase.ADOPTED)
CASES: dict[str, tuple[TakeoverFacts, StepKind, str]] = {
    "nothing was done": (TakeoverFacts(record=None, settings={}), StepKind.RECORD, ""),
    "given back before": (TakeoverFacts(record=at(TakeoverPhase.BACK), settings={}), StepKind.RECORD, ""),
    "written down": (TakeoverFacts(record=at(TakeoverPhase.BEGUN), settings={}), StepKind.PAUSE, "launch"),
    "a user's pause is not enough": (
        TakeoverFacts(record=at(TakeoverPhase.BEGUN), settings={"paused": "true"}),
        StepKind.PAUSE,
        "",
    ),
    "paused": (TakeoverFacts(record=at(TakeoverPhase.BEGUN), settings=ALL), StepKind.MARK_PAUSED, ""),
    "Karpenter leads": (
        TakeoverFacts(record=at(TakeoverPhase.PAUSED), settings=ALL, leads="kube-system", **LEADING),
        StepKind.AWAIT_STOP,
        'in namespace "kube-system"',
    ),
    "nobody leads": (TakeoverFacts(record=at(TakeoverPhase.PAUSED), settings=ALL), StepKind.AWAIT_LEADER, "leads"),
    "pools are not stamped": (
        TakeoverFacts(record=at(TakeoverPhase.PAUSED), settings=ALL, unstamped=('NodePool "a"',), **LEADING),
        StepKind.AWAIT_ADOPTION,
        'NodePool "a"',
    ),
    "all is taken over": (
        TakeoverFacts(record=at(TakeoverPhase.PAUSED), settings=ALL, **LEADING),
        StepKind.MARK_ADOPTED,
        "",
    ),
    "launches are first": (TakeoverFacts(record=ADOPTED, settings=ALL, **LEADING), StepKind.RELEASE, "launch"),
    "drift is last": (
        TakeoverFacts(record=ADOPTED, settings={"paused": "drift"}, **LEADING),
        StepKind.RELEASE,
        "drift",
    ),
    "Karpenter is back": (
        TakeoverFacts(record=ADOPTED, settings=ALL, leads="karpenter", **LEADING),
        StepKind.AWAIT_STOP,
        "",
    ),
    "drift that Karpenter does not know keeps drift held": (
        TakeoverFacts(
            record=ADOPTED,
            settings={"paused": "drift"},
            drift=DriftVerdict(2, (ClaimDrift("a", "NodePoolDrifted", also_karpenter=False),), ()),
            **LEADING,
        ),
        StepKind.REFUSE,
        "a (NodePoolDrifted)",
    ),
    "drift that Karpenter knows does not": (
        TakeoverFacts(
            record=ADOPTED,
            settings={"paused": "drift"},
            drift=DriftVerdict(2, (ClaimDrift("a", "AMIDrift", also_karpenter=True),), ()),
            **LEADING,
        ),
        StepKind.RELEASE,
        "drift",
    ),
    "what nobody can judge keeps drift held": (
        TakeoverFacts(
            record=ADOPTED, settings={"paused": "drift"}, drift=DriftVerdict(2, (), (("a", "no CA"),)), **LEADING
        ),
        StepKind.REFUSE,
        "no CA",
    ),
    "an instance of two claims": (
        TakeoverFacts(record=ADOPTED, settings=ALL, claims=(claim("a", "x"), claim("b", "x")), **LEADING),
        StepKind.REFUSE,
        "instance x",
    ),
    "nothing is held": (TakeoverFacts(record=ADOPTED, settings={}, **LEADING), StepKind.FINISH, ""),
    "what the user had paused is not held": (
        TakeoverFacts(record=at(TakeoverPhase.ADOPTED, "drift"), settings={"paused": "drift"}, **LEADING),
        StepKind.FINISH,
        "",
    ),
    "done": (TakeoverFacts(record=at(TakeoverPhase.DONE), settings={"paused": "true"}), StepKind.DONE, ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_steps(case: tuple[TakeoverFacts, StepKind, str]) -> None:
    facts, kind, text = case
    step = next_step(facts)
    assert step.kind is kind
    assert text in step.text


@given(st.lists(st.sampled_from(Activity), unique=True).map(",".join) | st.sampled_from(["", "true", "false", "what"]))
def test_each_release_gives_back_one_activity_and_in_the_end_the_users_pause(former: str) -> None:
    record = TakeoverRecord.begun([], {"paused": former}, NOON).at(TakeoverPhase.ADOPTED)
    facts, released = TakeoverFacts(record=record, settings=ALL, **LEADING), []
    while (step := next_step(facts)).kind is StepKind.RELEASE:
        before = value_of(facts.settings.get("paused", "")).activities
        after = settings_after(facts, step.activity)
        settings: Mapping[str, str] = {} if after is None else {"paused": after}
        facts = TakeoverFacts(record=record, settings=settings, **LEADING)
        assert before - value_of(after or "").activities == {step.activity}
        released.append(step.activity)
    assert step.kind is StepKind.FINISH
    assert released == [one for one in reversed(Activity) if one in released]
    whole = set(Activity) <= value_of(former).activities
    assert value_of(facts.settings.get("paused", "")).activities == (set() if whole else value_of(former).activities)
    assert "launch" in released or "launch" in former


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.sampled_from(["", "aws:///a/i-1", "kwok://x"])),
    st.sampled_from(TakeoverPhase),
    st.sampled_from(["", "true", "drift,launch"]),
)
def test_a_record_is_read_as_it_was_written(claims: dict[str, str], phase: TakeoverPhase, former: str) -> None:
    record = TakeoverRecord(phase, "2026-01-01T00:00:00+00:00", former, claims)
    assert TakeoverRecord.of(record.data()) == record


def test_a_record_that_cannot_be_read_holds_everything_again() -> None:
    assert TakeoverRecord.of({"phase": "what"}).phase is TakeoverPhase.BEGUN


def test_what_became_of_the_claims() -> None:
    recorded = {"a": "x", "b": "y", "c": "z"}
    ending = msgspec.structs.replace(
        claim("c"), metadata=msgspec.structs.replace(claim("c").metadata, deletion_timestamp=NOON)
    )
    found = standing_of(recorded, [claim("a", "x"), ending, claim("d", "x")])
    assert (found.gone, found.new, found.doubled) == (("b", "c"), ("d",), ("x",))
    assert found.summary() == "1 of 3 NodeClaims from the start still exists, 2 ended (b, c), 1 new, 1 doubled"
