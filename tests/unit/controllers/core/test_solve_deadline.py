"""A batch that takes too long: what was planned in time is made, the rest is planned next and is told so."""

import random
from datetime import timedelta
from typing import cast

import pytest

from provisioner.cloudprovider.types import CloudProvider
from provisioner.controllers.core.claim_creator import ClaimCreator
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.controllers.core.plans import PlanWriter
from provisioner.controllers.core.provisioning import Provisioner
from provisioner.controllers.metrics import Metrics
from provisioner.kube.client import Client
from provisioner.support.workers import Pool
from tests.support.clock import FakeClock
from tests.support.cluster import World, pod, pool
from tests.support.kube import FakeAnswer, FakeApi
from tests.support.tinyserver import Told
from tests.unit.controllers.core.test_refused_claims import Provider

METRICS = Metrics()
PODS = 400


class HurryingClock(FakeClock):
    """A second passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


@pytest.mark.parametrize(("seconds", "in_time"), [(10, False), (10_000, True)])
def test_the_rest_of_a_batch_is_planned_next(seconds: int, in_time: bool) -> None:
    world, again, workers, clock = World(), list[str](), Pool(1), HurryingClock()
    world.cluster.pool_changed(None, pool())
    for number in range(PODS):
        world.add(pod(f"p{number}", cpu=f"{100 + number}m"))
    client = Client(FakeApi(respond=lambda _: FakeAnswer(503), clock=world.clock), world.clock)
    told = Told(client, world.clock)
    plans = PlanWriter(world.cluster, ClaimWriter(client, world.cluster, lambda _: None), workers)
    chance = random.Random(1)
    creator = ClaimCreator(
        client,
        world.cluster,
        METRICS,
        plans,
        effects=lambda _: None,
        created=lambda _: None,
        chance=chance,
    )
    batch = Provisioner(
        world.cluster,
        creator,
        cast(CloudProvider, Provider()),
        told,
        METRICS,
        workers,
        clock,
        counts=lambda _: True,
        retry=again.append,
        chance=chance,
        plans=plans,
        deadline=timedelta(seconds=seconds),
    ).run()
    workers.close()
    assert batch is not None
    assert batch.claims > 0
    assert ("deadline" in again) is not in_time
    assert (batch.unplaced == 0) is in_time
    assert any("solve deadline" in message for message in told.messages) is not in_time
