"""A disruption that nobody carries out is taken back; one that somebody carries out is not."""

from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.disrupting import command_queue
from tests.support.worldserver import WorldServer

DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
SPOT = Interruption("spot_interrupted", replaced=True, ends=NOON + timedelta(seconds=120))
LATER = Interruption("scheduled_change", begins=NOON + timedelta(hours=1), budgeted=True, replaced=True)


CASES: dict[str, tuple[Interruption | None, bool]] = {
    "a command of a former leader": (None, True),
    "an interruption": (SPOT, False),
    "a command of a former leader, on a node that is interrupted tomorrow": (LATER, True),
}


@pytest.mark.parametrize(("mark", "healed"), CASES.values(), ids=CASES)
def test_healing(mark: Interruption | None, healed: bool) -> None:
    world = World()
    server = WorldServer(world)
    annotations = {names.INTERRUPTION_ANNOTATION: str(mark)} if mark is not None else {}
    server.put(
        claim("a", provider_id="kwok://a", true=ALL_TRUE, annotations=annotations),
        node("a", taints=(DISRUPTED,), labels={names.NODEPOOL_LABEL: "general"}),
    )
    commands = command_queue(server)
    commands.review(world.cluster.snapshot())
    commands.heal("a")
    assert (server.node("a").spec.taints == ()) is healed
