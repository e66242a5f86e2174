"""What pauses disruption: annotations of NodePools and a key of a ConfigMap."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.state.pause import NOTHING, Pause, pause_of
from tests.support.cluster import pool

BY_KEY = 'Disruption is paused by the key "paused" of ConfigMap "dovetail-settings"'
BY_ANNOTATION = 'Disruption is paused by the annotation "dovetail.dev/paused" of NodePool "blue"'
VALUES = {
    "true": True,
    "True": True,
    " true\n": True,
    "yes": True,
    "1": True,
    "false": False,
    "False": False,
    "": False,
}


def annotated(name: str, value: str) -> NodePool:
    made = pool(name)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations={names.PAUSED: value})
    )


@pytest.mark.parametrize(("value", "paused"), VALUES.items())
def test_whatever_is_not_false_pauses(value: str, paused: bool) -> None:
    blue, green = annotated("blue", value), pool("green")
    found = pause_of([blue, green], {})
    assert (found.why("blue"), found.why("green")) == (BY_ANNOTATION if paused else "", "")
    everything = pause_of([green], {"paused": value})
    assert (everything.why("green"), everything.why("")) == (BY_KEY if paused else "", BY_KEY if paused else "")


def test_without_a_word_nothing_is_paused() -> None:
    assert pause_of([pool("blue")], {"other": "true"}) == NOTHING == Pause()


def test_settings_that_nobody_has_read_pause_everything() -> None:
    found = pause_of([pool("blue")], None)
    assert found.everything
    assert found.why("blue").startswith(
        'Disruption is suspended because the provisioner has not read ConfigMap "dovetail-settings"'
    )
