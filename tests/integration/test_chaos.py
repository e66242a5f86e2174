"""Two minutes of chaos: the same as `make chaos`, shorter, with fewer pods and faults closer together."""

import pytest

from tests.chaos.run import run

pytestmark = pytest.mark.plane


@pytest.mark.parametrize(("cloud", "seed", "seconds"), [("kwok", 1, 70.0), ("aws", 2, 50.0)])
def test_every_promise_is_kept_while_things_break(cloud: str, seed: int, seconds: float) -> None:
    outcome = run(cloud, seed, seconds, pause=(2.0, 8.0), share=0.4)
    assert outcome.wrong == (), "\n".join([str(outcome), *outcome.faults, *outcome.wrong])
