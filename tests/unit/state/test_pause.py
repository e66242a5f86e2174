"""What pauses disruption and launches: annotations of NodePools and a key of a ConfigMap."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.state.pause import (
    DISRUPTION,
    NOTHING,
    Activity,
    Pause,
    PauseValue,
    activity_of,
    pause_of,
    value_of,
    why_not_launched,
)
from tests.support.cluster import pool

BY_KEY = 'Disruption is paused by the key "paused" of ConfigMap "dovetail-settings"'
BY_ANNOTATION = 'Disruption is paused by the annotation "dovetail.dev/paused" of NodePool "blue"'
VALUES = {
    "true": DISRUPTION,
    "True": DISRUPTION,
    " true\n": DISRUPTION,
    "false": frozenset(),
    "False": frozenset(),
    "": frozenset(),
    " , ": frozenset(),
    "drift": {Activity.DRIFT},
    "Drift, REPAIR": {Activity.DRIFT, Activity.REPAIR},
    "launch": {Activity.LAUNCH},
    "true,launch": set(Activity),
    "drift,consolidation,expiration,repair,launch": set(Activity),
    "false,expiration": {Activity.EXPIRATION},
}
UNKNOWN = {"yes": DISRUPTION, "1": DISRUPTION, "drfit": DISRUPTION, "launch,drfit": set(Activity)}


def annotated(name: str, value: str) -> NodePool:
    made = pool(name)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations={names.PAUSED: value})
    )


@pytest.mark.parametrize(("value", "paused"), (VALUES | UNKNOWN).items())
def test_what_a_value_pauses(value: str, paused: set[Activity]) -> None:
    blue, green = annotated("blue", value), pool("green")
    own, everywhere = pause_of([blue, green], {}), pause_of([green], {"paused": value})
    for one in Activity:
        assert bool(own.why("blue", one)) == bool(everywhere.why("green", one)) == (one in paused)
        assert bool(everywhere.why("", one)) == everywhere.covers_all(one) == (one in paused)
        assert own.why("green", one) == ""
    assert bool(why_not_launched(blue)) == (Activity.LAUNCH in paused)


@pytest.mark.parametrize("value", UNKNOWN)
def test_a_word_that_nobody_understands_is_told(value: str) -> None:
    word = value.rsplit(",", 1)[-1]
    told = (
        f' (the value contains "{word}", which is not known and pauses everything except launching nodes; use true, or a list of '
        "drift, consolidation, expiration, repair, launch)"
    )
    found = pause_of([annotated("blue", value)], {})
    assert found.why("blue", Activity.DRIFT) == BY_ANNOTATION + told
    assert found.summary("blue").endswith(told)


def test_what_users_read() -> None:
    one = pause_of([annotated("blue", "true")], {"paused": "true"})
    assert (one.why("green", Activity.DRIFT), one.why("blue", Activity.DRIFT)) == (BY_KEY, BY_KEY)
    assert one.summary("blue") == f"{BY_KEY}; {BY_ANNOTATION}"
    by = 'paused by the annotation "dovetail.dev/paused" of NodePool "blue"'
    for value, summary in {
        "launch": f"Launching nodes is {by}",
        "true,launch": f"Disruption and launching nodes are {by}",
        "repair,drift": f"Drift and node repair are {by}",
        "drift,repair,launch": f"Drift, node repair and launching nodes are {by}",
    }.items():
        assert pause_of([annotated("blue", value)], {}).summary("blue") == summary
    assert pause_of([annotated("blue", "repair")], {}).why("blue", Activity.REPAIR) == f"Node repair is {by}"


def test_without_a_word_nothing_is_paused() -> None:
    assert pause_of([pool("blue")], {"other": "true"}) == NOTHING == Pause()
    assert pause_of([annotated("blue", "false")], {"paused": "false"}) == NOTHING


def test_settings_that_nobody_has_read_pause_all_disruption_and_no_launch() -> None:
    found = pause_of([pool("blue")], None)
    assert all(map(found.covers_all, DISRUPTION))
    assert found.why("blue", Activity.DRIFT) == found.summary("blue")
    assert found.summary("blue").startswith(
        'Disruption is suspended because the provisioner has not read ConfigMap "dovetail-settings"'
    )
    assert found.why("blue", Activity.LAUNCH) == ""


@given(st.text(max_size=40), st.text(max_size=40))
def test_one_more_word_never_pauses_less(one: str, other: str) -> None:
    assert value_of(f"{one},{other}").activities == value_of(one).activities | value_of(other).activities
    assert PauseValue() == value_of(" ")


def test_repair_is_what_disrupts_unhealthy_nodes() -> None:
    want = {"Drifted": Activity.DRIFT, "Unhealthy": Activity.REPAIR}
    assert {one: activity_of(one) for one in names.BUDGET_REASONS} == dict.fromkeys(
        names.BUDGET_REASONS, Activity.CONSOLIDATION
    ) | want
