"""Every scenario between pods through the real programs (processes), all of its pods created at once, in three modes.

Whoever can be placed is bound within 15 s of the plan, whoever cannot stays. Only `make judge` runs this; a selection of larger scenes is in
`test_nomination`, for `make test` too.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.session import Session, Setup, session
from tests.support.at_once import AtOnce, Landing, complaint, has_relations, write_types
from tests.support.eventually import PATIENCE
from tests.support.pace import Pace
from tests.support.scenarios import SCENARIOS

pytestmark = [pytest.mark.plane, pytest.mark.judge]

BOUND_SECONDS = 15.0
RUN_SECONDS = 60.0
SIDE_BY_SIDE = 4
RELATED = {name: one for name, one in SCENARIOS.items() if has_relations(one)}
NUMBERS = {name: number for number, name in enumerate(SCENARIOS)}


class Landings:
    """Runs scenarios in the background; what came of each is waited for by its own test."""

    def __init__(self, run: Session, wanted: list[str]) -> None:
        self.run = run
        self._at_once = AtOnce(run)
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE)
        self._found: dict[str, Future[Landing]] = {
            name: self._pool.submit(self._at_once.land, f"r{NUMBERS[name]:02d}", RELATED[name], RUN_SECONDS)
            for name in wanted
        }

    def of(self, name: str) -> Landing:
        return self._found[name].result(timeout=600 * PATIENCE)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._at_once.close()


@pytest.fixture(scope="module", params=list(Mode), ids=[mode.words for mode in Mode])
def landings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Landings]:
    mode: Mode = request.param
    place = tmp_path_factory.mktemp(mode.value)
    types = place / "types.json"
    write_types(types, RELATED.values())
    flags = (*mode.flags, "--instance-types-file-path", str(types))
    asked = [
        str(one.callspec.params["name"])
        for one in request.session.items
        if isinstance(one, pytest.Function) and one.path == request.path and one.callspec.params["landings"] is mode
    ]
    with session(Setup(f"at-once-{mode}", mode.programs, flags, logs=place / "logs"), print) as run:
        found = Landings(run, asked)
        try:
            yield found
        finally:
            found.close()


@pytest.mark.parametrize("name", RELATED)
def test_whoever_can_be_placed_is_bound_in_time(landings: Landings, name: str) -> None:
    run, pace = landings.run, Pace(landings.run)
    landing = landings.of(name)
    assert complaint(RELATED[name], landing, extender=run.setup.steered) == ""
    bound = pace.stretched(BOUND_SECONDS, max(landing.seconds.values(), default=0.0))
    late = {pod: round(seconds, 1) for pod, seconds in landing.seconds.items() if seconds > bound}
    assert late == {}, f"not bound within {bound:.1f} s of their plan"
