"""A made-up day: services that follow the sun, bursts, jobs of heavy-tailed lifetimes, batch at night, GPU jobs, and pods on spot. Pure."""

import math
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from provisioner.simulator.workload import MOST_PODS_OF_DAY, Arrival, Change, Day, Scale, pods_in
from provisioner.simulator.workloads.chance import Chance
from provisioner.simulator.workloads.errors import WorkloadError
from provisioner.simulator.workloads.templates import on_spot, pod_template

HOUR: Final = 3600.0
_DAY: Final = 24.0
_CPUS: Final = (50, 100, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 4000)
"""Thousandths of a CPU that people ask for."""
_LEAST_SECONDS: Final = 1.0
_MOST_CHANGES: Final = 500_000

_Count: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
_Pods: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]
_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
_Hours: TypeAlias = Annotated[float, Meta(gt=0, le=744)]
_OfDay: TypeAlias = Annotated[float, Meta(ge=0, lt=24)]
_Minutes: TypeAlias = Annotated[float, Meta(gt=0, le=44_640)]


class _Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class ServiceSettings(_Settings, frozen=True):
    """Deployments that are there all day.

    Attributes:
        count: how many.
        pods: of all of them together, at the peak.
        night: share of these at the other end of the day.
        peak_hour: of each day.
        step_minutes: how often they are scaled.
        noise: by which share a service departs from the curve, up and down.
        zonal: share of the services that are spread over zones.
    """

    count: _Count = 30
    pods: _Pods = 400
    night: _Share = 0.4
    peak_hour: _OfDay = 14.0
    step_minutes: _Minutes = 10.0
    noise: _Share = 0.05
    zonal: _Share = 0.2


class BurstSettings(_Settings, frozen=True):
    """Times at which one service has many times its pods.

    Attributes:
        per_day: on average.
        factor: so many times.
        minutes: on average.
    """

    per_day: Annotated[float, Meta(ge=0, le=1_000)] = 6.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 3.0
    minutes: _Minutes = 20.0


class JobSettings(_Settings, frozen=True):
    """Jobs that come at any time, more of them by day.

    Attributes:
        per_hour: on average.
        pods: of a job, on average; at least one.
        median_minutes: half of all pods run for longer.
        tail: of their lifetimes: at 2 and less a few of them take most of the time, the smaller the more.
        most_hours: none runs for longer.
    """

    per_hour: Annotated[float, Meta(ge=0, le=100_000)] = 40.0
    pods: Annotated[float, Meta(ge=1, le=1_000)] = 3.0
    median_minutes: _Minutes = 4.0
    tail: Annotated[float, Meta(ge=0.5, le=10)] = 1.3
    most_hours: _Hours = 12.0


class NightBatchSettings(_Settings, frozen=True):
    """Batch that comes each night.

    Attributes:
        from_hour: of each day.
        hours: within which it comes.
        jobs: how many.
        pods: of all of them together.
        median_minutes: as of jobs.
        tail: as of jobs.
    """

    from_hour: _OfDay = 1.0
    hours: Annotated[float, Meta(gt=0, le=24)] = 3.0
    jobs: _Count = 20
    pods: _Pods = 300
    median_minutes: _Minutes = 25.0
    tail: Annotated[float, Meta(ge=0.5, le=10)] = 1.6


class GpuJobSettings(_Settings, frozen=True):
    """Jobs of pods with GPUs.

    Attributes:
        per_day: on average.
        gpus: of a pod; each entry is as likely.
        median_minutes: as of jobs.
        tail: as of jobs.
    """

    per_day: Annotated[float, Meta(ge=0, le=100_000)] = 0.0
    gpus: Annotated[tuple[Annotated[int, Meta(ge=1, le=16)], ...], Meta(min_length=1, max_length=64)] = (
        1,
        1,
        1,
        2,
        4,
        8,
    )
    median_minutes: _Minutes = 60.0
    tail: Annotated[float, Meta(ge=0.5, le=10)] = 1.4


class DaySettings(_Settings, frozen=True):
    """What a made-up day is like.

    Attributes:
        hours: how long it is; may be a week.
        starts_at_hour: of the first day.
        services: Deployments.
        bursts: of these.
        jobs: at any time.
        night_batch: each night.
        gpu_jobs: by day and by night.
        spot: share of the jobs, of every kind, whose pods ask for spot.
        namespace: of all workloads.
    """

    hours: _Hours = 24.0
    starts_at_hour: _OfDay = 0.0
    services: ServiceSettings = ServiceSettings()
    bursts: BurstSettings = BurstSettings()
    jobs: JobSettings = JobSettings()
    night_batch: NightBatchSettings = NightBatchSettings()
    gpu_jobs: GpuJobSettings = GpuJobSettings()
    spot: _Share = 0.5
    namespace: Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"

    @property
    def seconds(self) -> float:
        return self.hours * HOUR


def settings_of(document: object, name: str) -> DaySettings:
    """Settings as a file has them; what it does not say has its default.

    Args:
        document: the file's only document; None for an empty one.
        name: of the file.

    Raises:
        WorkloadError: they are none; names the field.
    """
    try:
        return msgspec.convert({} if document is None else document, DaySettings, strict=True)
    except msgspec.ValidationError as error:
        raise WorkloadError(
            f"{name}: {error}; see docs/guides/workloads.md for the settings of a day and their defaults"
        ) from None


def generate(settings: DaySettings, seed: int) -> Day:
    """A day that follows from settings and seed alone: services, jobs, batch and GPU jobs have chances of their own, so a change of one leaves the others.

    Raises:
        WorkloadError: it would have too many changes or pods.

    Cost: O(changes).
    """
    if _estimated(settings) > _MOST_CHANGES:
        raise WorkloadError(
            f"a day of these settings has more than {_MOST_CHANGES:,} changes; use fewer hours, services, or jobs per hour, or "
            "a longer services.stepMinutes"
        )
    changes = [
        *_services(settings, Chance(seed, "services"), Chance(seed, "bursts")),
        *_jobs(settings, Chance(seed, "jobs")),
        *_night_batch(settings, Chance(seed, "night")),
        *_gpu_jobs(settings, Chance(seed, "gpu")),
    ]
    changes.sort(key=lambda one: one.at)  # of one moment in the order in which they were made
    if (pods := pods_in(changes)) > MOST_PODS_OF_DAY:
        raise WorkloadError(
            f"{pods:,} pods come in a day of these settings, of at most {MOST_PODS_OF_DAY:,}; use fewer hours, or fewer pods of services or jobs"
        )
    return Day(duration_seconds=settings.seconds, changes=tuple(changes))


def _estimated(settings: DaySettings) -> float:
    services, hours = settings.services, settings.hours
    steps = services.count * hours * 60.0 / services.step_minutes
    days = hours / _DAY + 1
    jobs = settings.jobs.per_hour * hours + settings.gpu_jobs.per_day * days + settings.night_batch.jobs * days
    return steps + jobs


def _sun(settings: DaySettings, at: float) -> float:
    """From `night` to 1, as a cosine has it."""
    hour = settings.starts_at_hour + at / HOUR
    height = (1.0 + math.cos(2.0 * math.pi * (hour - settings.services.peak_hour) / _DAY)) / 2.0
    return settings.services.night + (1.0 - settings.services.night) * height


def _services(settings: DaySettings, chance: Chance, bursty: Chance) -> list[Change]:
    own = settings.services
    weights = [chance.heavy(1.0, 1.5) for _ in range(own.count)]
    whole = sum(weights)
    bursts = _bursts(settings, bursty)
    found: list[Change] = []
    for number, weight in enumerate(weights):
        name = f"service-{number:03d}"
        cpu, memory = _size(chance, 250.0)
        template = pod_template(name, cpu_millis=cpu, memory_mib=memory, zonal=chance.share() < own.zonal)
        peak, now = own.pods * weight / whole, -1
        for step in range(math.ceil(settings.seconds / (own.step_minutes * 60.0))):
            at = step * own.step_minutes * 60.0
            factor = max(
                (settings.bursts.factor for begin, end in bursts.get(number, ()) if begin <= at < end), default=1.0
            )
            noise = 1.0 + own.noise * chance.within(-1.0, 1.0)
            wanted = max(1, round(peak * _sun(settings, at) * factor * noise)) if own.pods else 0
            if step == 0:
                found.append(Arrival(at=at, name=name, namespace=settings.namespace, template=template, count=wanted))
            elif wanted != now:
                found.append(Scale(at=at, name=name, namespace=settings.namespace, count=wanted))
            now = wanted
    return found


def _bursts(settings: DaySettings, chance: Chance) -> dict[int, list[tuple[float, float]]]:
    own, services = settings.bursts, settings.services.count
    found: dict[int, list[tuple[float, float]]] = {}
    if not own.per_day or not services:
        return found
    at = chance.gap(_DAY * HOUR / own.per_day)
    while at < settings.seconds:
        end = at + max(settings.services.step_minutes * 60.0, chance.gap(own.minutes * 60.0))
        found.setdefault(int(chance.share() * services), []).append((at, end))
        at += chance.gap(_DAY * HOUR / own.per_day)
    return found


def _jobs(settings: DaySettings, chance: Chance) -> list[Change]:
    """Those that the sun does not let come are drawn all the same, so that the others stay."""
    own, found, at, number = settings.jobs, list[Change](), 0.0, 0
    while own.per_hour:
        at += chance.gap(HOUR / own.per_hour)
        if at >= settings.seconds:
            break
        pods = min(1_000, 1 + int(chance.gap(own.pods - 1.0))) if own.pods > 1 else 1
        job = _job(
            settings, chance, f"job-{number:05d}", at, pods, (own.median_minutes, own.tail, own.most_hours), 500.0
        )
        if chance.share() < _sun(settings, at):
            found.append(job)
        number += 1
    return found


def _night_batch(settings: DaySettings, chance: Chance) -> list[Change]:
    own, found, number = settings.night_batch, list[Change](), 0
    first = (own.from_hour - settings.starts_at_hour) % _DAY * HOUR
    while own.jobs and first < settings.seconds:
        for turn in range(own.jobs):
            at = first + chance.within(0.0, own.hours * HOUR)
            pods = own.pods // own.jobs + (turn < own.pods % own.jobs)
            job = _job(settings, chance, f"night-{number:05d}", at, pods, (own.median_minutes, own.tail, _DAY), 1000.0)
            if at < settings.seconds and pods:
                found.append(job)
            number += 1
        first += _DAY * HOUR
    return found


def _gpu_jobs(settings: DaySettings, chance: Chance) -> list[Change]:
    own, found, at, number = settings.gpu_jobs, list[Change](), 0.0, 0
    while own.per_day:
        at += chance.gap(_DAY * HOUR / own.per_day)
        if at >= settings.seconds:
            break
        gpus = chance.one_of(own.gpus)
        found.append(
            _job(settings, chance, f"gpu-{number:05d}", at, 1, (own.median_minutes, own.tail, 7 * _DAY), 4000.0, gpus)
        )
        number += 1
    return found


def _job(
    settings: DaySettings,
    chance: Chance,
    name: str,
    at: float,
    pods: int,
    lives: tuple[float, float, float],
    cpu_median: float,
    gpus: int = 0,
) -> Arrival:
    """A job; `lives` are median minutes, tail, and the most hours."""
    median, tail, most = lives
    cpu, memory = _size(chance, cpu_median * max(1, gpus))
    spot = on_spot() if chance.share() < settings.spot else None
    lifetimes = [min(most * HOUR, max(_LEAST_SECONDS, chance.heavy(median * 60.0, tail))) for _ in range(pods)]
    return Arrival(
        at=round(at, 1),
        name=name,
        namespace=settings.namespace,
        kind="Job",
        template=pod_template(name, cpu_millis=cpu, memory_mib=memory, gpus=gpus, selector=spot),
        count=pods,
        lifetimes=tuple([round(one, 1) for one in lifetimes]),
    )


def _size(chance: Chance, cpu_median: float) -> tuple[int, int]:
    """CPU in thousandths, and MiB; round, as people ask for them."""
    cpu = chance.around(cpu_median, 0.8)
    scale = max(1.0, cpu_median / 500.0)
    nearest = min(_CPUS, key=lambda one: (abs(math.log(one * scale / cpu)), one))
    memory = nearest * scale / 1000.0 * 1024.0 * chance.one_of((1.0, 2.0, 2.0, 4.0, 4.0, 8.0))
    return round(nearest * scale), max(64, round(memory / 64.0) * 64)
