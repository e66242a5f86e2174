"""Small days, simulated whole: the real controllers, in virtual time."""

import gc
from pathlib import Path

import pytest

from provisioner.simulator.errors import SimulationError
from provisioner.simulator.simulation import _Run, simulated
from provisioner.simulator.workload import Apply, Arrival, Change, End, Scale
from provisioner.support import metrics
from tests.unit.simulator.days import budget, pool, setting, template


def test_pods_get_nodes_that_go_when_their_pods_have_ended() -> None:
    day = setting(Arrival(at=5, name="web", template=template("web"), count=6), End(at=300, name="web"), seconds=480)
    found = simulated(day, 1)
    assert (found.pods, found.unbound) == (6, 0)
    assert 40 < found.wait_p50 <= found.wait_p99 < 50, "a boot of 40 s, a batch window, and registration"
    assert found.launches == found.most_nodes > 0
    assert found.samples[60].nodes > 0, "at 305 s at the latest they begin to go"
    assert found.samples[-1].nodes == 0
    assert found.samples[-1].usd_per_hour == 0
    assert sum(found.by_pool.values()) == pytest.approx(found.usd)
    means = sum(one.usd_per_hour for one in found.samples) / len(found.samples)
    assert found.usd == pytest.approx(means * 480 / 3600, abs=1e-3)
    assert not found.evictions


def test_nothing_of_a_day_is_left_among_the_metrics() -> None:
    before = sum(piece.count(b"karpenter_pods_state{") for piece in metrics.chunks())
    simulated(setting(Arrival(at=5, name="web", template=template("web"), count=6), seconds=120), 1)
    assert sum(piece.count(b"karpenter_pods_state{") for piece in metrics.chunks()) == before


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_pipes_of_planning_processes_are_closed() -> None:
    web = Arrival(at=5, name="web", template=template("web", "900m", "1500Mi"), count=12)
    cache = Arrival(at=5, name="cache", template=template("cache", "300m", "3Gi"), count=8)
    day, before = setting(web, cache, seconds=60, packing="cost"), open_files()
    run = _Run(day, 1)
    try:
        assert run.figures().searches > 0
    finally:
        run.stop()
    assert open_files() == before, "though the run is still there"


def test_jobs_run_for_their_lifetimes_and_are_not_made_again() -> None:
    job = Arrival(at=5, name="job", kind="Job", template=template("job"), count=3, lifetimes=(20.0, 60.0))
    found = simulated(setting(job, seconds=300), 1)
    assert (found.pods, found.unbound, found.samples[-1].nodes) == (3, 0, 0)


def test_a_changed_template_replaces_nodes_and_budgets_hold() -> None:
    """One pod at a time may go, so that of four on a drifted node each is evicted once its brother runs."""
    day = setting(
        Arrival(at=5, name="web", template=template("web"), count=4),
        Apply(at=120, object=pool(labels={"revision": "two"})),
        seconds=600,
        objects=(pool(), budget("web", maxUnavailable=1)),
    )
    found = simulated(day, 1)
    assert found.evictions == {"Drifted": 4}
    assert (found.unbound, found.pods) == (0, 8)
    assert found.launches == 2 * found.samples[40].nodes


def test_scaling_down_consolidates() -> None:
    day = setting(
        Arrival(at=5, name="web", template=template("web", cpu="1500m"), count=8),
        Scale(at=200, name="web", count=2),
        seconds=900,
    )
    found = simulated(day, 1)
    assert found.samples[-1].usd_per_hour < found.samples[20].usd_per_hour / 2
    assert found.unbound == 0


def test_pods_that_fit_nowhere_wait_until_the_end_and_count_with_that_time() -> None:
    found = simulated(setting(Arrival(at=10, name="big", template=template("big", cpu="900")), seconds=60), 1)
    assert (found.unbound, found.launches, found.usd) == (1, 0, 0)
    assert found.wait_p99 == 50


def test_a_longer_pass_interval_looks_less_often() -> None:
    changes = Arrival(at=5, name="web", template=template("web"), count=2), End(at=100, name="web")
    often, seldom = (simulated(setting(*changes, seconds=300, pass_interval=one), 1) for one in (0.0, 60.0))
    assert seldom.passes < often.passes
    assert seldom.node_hours >= often.node_hours


@pytest.mark.parametrize(
    ("changes", "less"),
    [
        pytest.param((End(at=190, name="web"),), 0.01, id="the node is empty"),
        pytest.param((Scale(at=190, name="web", count=1),), 0.6, id="its pod needs a smaller node"),
    ],
)
def test_a_long_pass_interval_is_waited_once_for_what_a_node_needs_to_be_still(
    changes: tuple[Change, ...], less: float
) -> None:
    """Looks at 301 s see the change of 190 s; the node goes 15 s later, and not with the next look at 602 s or after."""
    arrival = Arrival(at=5, name="web", template=template("web"), count=6)
    found = simulated(setting(arrival, *changes, seconds=600, pass_interval=300.0), 1)
    before, after = found.samples[50].usd_per_hour, found.samples[-1].usd_per_hour
    assert before > 0
    assert after <= less * before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Scale(at=5, name="web", count=2), "default/web changes at 5 s, but is not there; let it arrive before"),
        (
            Apply(at=5, object={"apiVersion": "v1", "kind": "Robot", "metadata": {"name": "r"}}),
            "Robot of v1 cannot be simulated; leave it out",
        ),
    ],
)
def test_what_cannot_happen_is_told(change: Scale | Apply, problem: str) -> None:
    with pytest.raises(SimulationError, match=problem):
        simulated(setting(change, seconds=10), 1)
