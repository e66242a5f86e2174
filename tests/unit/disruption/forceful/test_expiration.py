"""Expiration: core spec 5, row 86."""

from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.disruption.forceful.expiration import decide_expirations
from tests.support.clock import NOON
from tests.support.fleets import Fleet, several

DAY = timedelta(days=1)
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "over": ("24h", {}, True),
    "over since long": ("1h", {}, True),
    "not yet": ("24h1m", {}, False),
    "never": ("Never", {}, False),
    "unreadable": ("long", {}, False),
    "no time at all is no time": ("0s", {}, False),
    "protected, which does not matter": ("24h", {"do_not_disrupt": True}, True),
    "not initialized": ("24h", {"initialized": False}, True),
}


@pytest.mark.parametrize(("life", "more", "goes"), CASES.values(), ids=CASES)
def test_who_has_lived_long_enough(life: str, more: dict[str, Any], goes: bool) -> None:
    fleet = Fleet()
    fleet.node("a", several(1, "w"), created=NOON - DAY, claim_spec={"expireAfter": life}, **more)
    assert decide_expirations(fleet.snapshot()) == (("a",) if goes else ())


def test_the_longest_over_goes_first() -> None:
    fleet = Fleet()
    for name, hours in (("a", 20), ("b", 30), ("c", 10)):
        fleet.node(name, created=NOON - DAY, claim_spec={"expireAfter": f"{hours}h"})
    assert decide_expirations(fleet.snapshot()) == ("c", "a")


def test_a_protected_pod_does_not_keep_its_node() -> None:
    fleet = Fleet()
    protected = several(1, "w", annotations={names.DO_NOT_DISRUPT: "true"})
    fleet.node("a", protected, claim_spec={"expireAfter": "1h"})
    assert decide_expirations(fleet.snapshot()) == ("a",)
