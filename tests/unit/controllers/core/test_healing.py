"""A disruption that nobody carries out is taken back; one that somebody carries out is not."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.controllers.core.disruption import Disruption
from provisioner.controllers.metrics import Metrics
from provisioner.support.workers import Pool, pool
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.tinyserver import TinyServer

DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
SPOT = Interruption("spot_interrupted", replaced=True, ends=NOON + timedelta(seconds=120))
LATER = Interruption("scheduled_change", begins=NOON + timedelta(hours=1), budgeted=True, replaced=True)


@pytest.fixture
def workers() -> Iterator[Pool]:
    with pool(1) as threads:
        yield threads


CASES: dict[str, tuple[Interruption | None, bool]] = {
    "a command of a former leader": (None, True),
    "an interruption": (SPOT, False),
    "a command of a former leader, on a machine that is interrupted tomorrow": (LATER, True),
}


@pytest.mark.parametrize(("mark", "healed"), CASES.values(), ids=CASES)
def test_healing(workers: Pool, mark: Interruption | None, healed: bool) -> None:
    world = World()
    server = TinyServer(world)
    annotations = {names.INTERRUPTION_ANNOTATION: str(mark)} if mark is not None else {}
    server.put(
        claim("a", provider_id="kwok://a", true=ALL_TRUE, annotations=annotations),
        node("a", taints=(DISRUPTED,), labels={names.NODEPOOL_LABEL: "general"}),
    )
    disruption = Disruption(
        world.cluster,
        server.writer,
        server.recorder,
        Metrics(),
        server.taints,
        server.terminator(),
        world.clock,
        stale=lambda: "",
    )
    disruption.run_once()
    disruption._heal("a")
    assert (server.node("a").spec.taints == ()) is healed
