"""A made-up day."""

import statistics
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.simulator.workload import Arrival, Day, Scale
from provisioner.simulator.workloads.chance import Chance
from provisioner.simulator.workloads.errors import WorkloadError
from provisioner.simulator.workloads.generator import DaySettings, generate, settings_of

GPUS: dict[str, Any] = {"gpuJobs": {"perDay": 40}}


def made(seed: int = 1, **settings: Any) -> Day:
    return generate(settings_of(settings, "day.yaml"), seed)


def arrivals(day: Day, prefix: str) -> list[Arrival]:
    return [one for one in day.changes if isinstance(one, Arrival) and one.name.startswith(prefix)]


def lives(day: Day, prefix: str) -> list[float]:
    return [life for one in arrivals(day, prefix) for life in one.lifetimes or ()]


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second, other = (msgspec.json.encode(made(seed, **GPUS)) for seed in (7, 7, 8))
    assert first == second != other


def test_what_a_seed_gives_stays_the_same_from_version_to_version() -> None:
    """Else nobody could repeat what was published of a day."""
    chance = Chance(20261130, "jobs")
    assert [round(chance.share(), 12) for _ in range(3)] == [0.362830960266, 0.952808471068, 0.895689282756]


def test_services_follow_the_sun() -> None:
    day = made(services={"count": 1, "pods": 100, "night": 0.4, "peakHour": 14, "noise": 0}, bursts={"perDay": 0})
    counts = {
        one.at / 3600: one.count for one in day.changes if isinstance(one, Arrival | Scale) and "service" in one.name
    }
    peak = [at for at, count in counts.items() if count == 100]
    low = [at for at, count in counts.items() if count == 40]
    assert 13 < min(peak) < 14 < max(counts)
    assert max(counts.values()) == 100
    assert 1 < min(low) < 2
    assert min(counts.values()) == 40


def test_a_burst_has_many_times_the_pods() -> None:
    quiet: dict[str, Any] = {"services": {"count": 1, "pods": 20, "noise": 0, "night": 1}}
    calm, bursty = made(**quiet, bursts={"perDay": 0}), made(**quiet, bursts={"perDay": 8, "factor": 5})
    assert {one.count for one in calm.changes if isinstance(one, Scale) and "service" in one.name} == set()
    assert {one.count for one in bursty.changes if isinstance(one, Scale) and "service" in one.name} == {20, 100}


def test_lifetimes_are_heavy_tailed() -> None:
    """Half of them are about the median; the longest hundredth takes more time than it would by any bell curve."""
    found = sorted(lives(made(jobs={"perHour": 400, "medianMinutes": 4, "tail": 1.1, "mostHours": 12}), "job"))
    assert statistics.median(found) == pytest.approx(240, rel=0.1)
    assert sum(found[-len(found) // 100 :]) > 0.15 * sum(found)
    assert found[-1] <= 12 * 3600


def test_batch_comes_at_night() -> None:
    day = made(hours=48, nightBatch={"fromHour": 1, "hours": 3, "jobs": 10, "pods": 105})
    found = arrivals(day, "night")
    assert all(3600 <= one.at % 86_400 <= 4 * 3600 for one in found)
    assert sum(one.count for one in found) == 210


def test_gpu_jobs_ask_for_gpus_and_tolerate_their_taint() -> None:
    found = arrivals(made(**GPUS), "gpu")
    assert 20 < len(found) < 60
    for one in found:
        spec = one.template["spec"]
        assert int(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) in (1, 2, 4, 8)
        assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"


@pytest.mark.parametrize(("spot", "low", "high"), [(0.0, 0.0, 0.0), (0.5, 0.4, 0.6), (1.0, 1.0, 1.0)])
def test_a_share_of_jobs_asks_for_spot(spot: float, low: float, high: float) -> None:
    found = arrivals(made(spot=spot), "job")
    assert low <= sum("nodeSelector" in one.template["spec"] for one in found) / len(found) <= high


def test_more_jobs_leave_the_services_as_they_are() -> None:
    few, many = (
        [
            one
            for one in made(jobs={"perHour": count}).changes
            if isinstance(one, Arrival | Scale) and "service" in one.name
        ]
        for count in (1, 100)
    )
    assert few == many != []


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"services": {"pods": -1}}, "$.services.pods"),
        ({"jobs": {"tail": "fat"}}, "$.jobs.tail"),
        ({"servces": {}}, "servces"),
        ({"hours": 10_000}, "$.hours"),
        ({"gpuJobs": {"gpus": []}}, "$.gpuJobs.gpus"),
        ({"namespace": "Not A Name"}, "$.namespace"),
    ],
)
def test_a_bad_setting_names_file_and_field(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(WorkloadError) as error:
        settings_of(settings, "day.yaml")
    assert str(error.value).startswith("day.yaml: ")
    assert where in str(error.value)
    assert "docs/guides/workloads.md" in str(error.value)


def test_an_empty_file_has_the_defaults() -> None:
    assert settings_of(None, "day.yaml") == DaySettings()


def test_a_day_that_nobody_could_hold_is_refused() -> None:
    with pytest.raises(WorkloadError, match="fewer hours"):
        made(hours=744, jobs={"perHour": 100_000})
    with pytest.raises(WorkloadError, match="pods come in a day of these settings, of at most 500,000; use fewer"):
        made(hours=2, jobs={"perHour": 2_000, "pods": 1_000})


@given(
    seed=st.integers(0, 2**64),
    hours=st.sampled_from((0.5, 5.0, 30.0)),
    start=st.sampled_from((0.0, 13.5)),
    services=st.integers(0, 4),
    jobs=st.sampled_from((0.0, 3.0, 40.0)),
)
def test_a_day_is_in_order_within_its_hours_and_names_things_once(
    seed: int, hours: float, start: float, services: int, jobs: float
) -> None:
    day = made(
        seed, hours=hours, startsAtHour=start, services={"count": services, "pods": 20}, jobs={"perHour": jobs}, **GPUS
    )
    times = [one.at for one in day.changes]
    assert all(before <= after for before, after in pairwise(times))
    assert all(0 <= at < day.duration_seconds for at in times)
    names = [one.name for one in day.changes if isinstance(one, Arrival)]
    assert len(set(names)) == len(names)
    for one in day.changes:
        if isinstance(one, Arrival):
            assert one.lifetimes is None or len(one.lifetimes) == one.count
        elif isinstance(one, Scale):
            assert one.name in names
