"""What every test may use; the fixtures themselves are in tests/support.

Hypothesis' profile is `fast` unless HYPOTHESIS_PROFILE says otherwise. How long an example takes to be drawn says how crowded the machine is, no more.
"""

import logging
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from provisioner.support import garbage
from tests.support import durations, skips, spreading
from tests.support.spreading import Spreading

pytest_plugins = ["tests.support.plane"]

settings.register_profile(
    "fast",
    max_examples=50,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(autouse=True)
def _levels_of_logs() -> Iterator[None]:
    """What `logs.configure` sets in one test silences no other."""
    loggers = (logging.getLogger(), logging.getLogger("dovetail"))
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


def pytest_configure(config: pytest.Config) -> None:
    """In CI a skip is a failure."""
    if os.environ.get("CI"):
        config.pluginmanager.register(skips.NoSkips())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What stays until the end is not looked through for garbage: that is half the time of collecting tests, and a sixth of running them."""
    with garbage.bulk_load():
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """All processes of a run sort by the same durations: a run beside this one may end meanwhile."""
    node.workerinput["durations"] = durations.known()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on a control plane begin first, the longest before the others; the order is random otherwise."""
    told = getattr(config, "workerinput", {}).get("durations")
    seconds = durations.known() if told is None else told
    items.sort(key=lambda item: spreading.rank_of(item.nodeid, seconds))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spreading | None:
    """How tests are dealt out to the processes of a run."""
    return spreading.scheduler(config, log)
