"""A batch that takes too long: what was planned in time is made, the rest is planned next and is told so."""

from datetime import timedelta

import pytest

from tests.support.batches import Batches
from tests.support.clock import FakeClock
from tests.support.cluster import pod

PODS = 400


class HurryingClock(FakeClock):
    """A second passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


@pytest.mark.parametrize(("seconds", "in_time"), [(10, False), (10_000, True)])
def test_the_rest_of_a_batch_is_planned_next(seconds: int, in_time: bool) -> None:
    clock, batches = HurryingClock(), Batches(*(pod(f"p{number}", cpu=f"{100 + number}m") for number in range(PODS)))
    batches.server.refuse_creates = 503
    batch = batches.run(clock=clock, deadline=timedelta(seconds=seconds))
    assert batch is not None
    assert batch.claims > 0
    assert ("deadline" in batches.again) is not in_time
    assert (batch.unplaced == 0) is in_time
    assert any("solve deadline" in message for message in batches.told.messages) is not in_time
