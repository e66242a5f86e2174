"""Prometheus metrics of this process: declared where they are used, listed by `/metrics`.

    LAUNCHES = counter("karpenter_nodeclaims_created_total", "NodeClaims created.", ("reason", "nodepool"))
    LAUNCHES.labels("provisioned", "general").inc()

Names and labels are Karpenter's wherever it has the metric; ours begin with `dovetail_`.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from provisioner.support.exposition import header, labels_text, line

DURATION_BUCKETS: tuple[float, ...] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0),
)
"""Seconds. Source: karpenter `pkg/metrics/constants.go` DurationBuckets."""

CONTENT_TYPE = CONTENT_TYPE_LATEST

SUMMARY_SECONDS = 600.0
"""How far back quantiles look. Source: Prometheus' Go client, DefMaxAge."""
SUMMARY_SAMPLES = 1000
CHUNK_BYTES = 65536

REGISTRY = CollectorRegistry(auto_describe=True)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that nobody asked for
ProcessCollector(registry=REGISTRY)

M = TypeVar("M", bound=MetricWrapperBase)

_declared: dict[str, MetricWrapperBase] = {}
_summaries: dict[str, "Summary"] = {}
_writers: list[Callable[[], Iterable[str]]] = []
_lock = threading.Lock()


def counter(name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
    """A number that only grows; `name` ends in `_total`.

    Raises:
        ValueError: the name has another ending, or is taken by a metric of another kind or with other labels.
    """
    if not name.endswith("_total"):
        raise ValueError(f"counter {name!r} must end in _total")
    return _declare(Counter, name, doc, labels)


def gauge(name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
    """A number that goes up and down.

    Raises:
        ValueError: the name is taken by a metric of another kind or with other labels.
    """
    return _declare(Gauge, name, doc, labels)


def histogram(
    name: str, doc: str, labels: Sequence[str] = (), buckets: Sequence[float] = DURATION_BUCKETS
) -> Histogram:
    """A distribution; of seconds unless `buckets` say otherwise.

    Raises:
        ValueError: the name is taken by a metric of another kind or with other labels.
    """
    return _declare(Histogram, name, doc, labels, buckets=tuple(buckets))


def summary(name: str, doc: str, labels: Sequence[str] = ()) -> "Summary":
    """Quantiles 0, 0.5, 0.9, 0.99 and 1 of what was observed in the last ten minutes, and sum and count of everything.

    Raises:
        ValueError: the name is taken.
    """
    with _lock:
        known = _summaries.get(name)
        if known is None:
            if name in _declared:
                raise ValueError(f"metric {name!r} is declared as another kind already")
            known = _summaries[name] = Summary(name, doc, tuple(labels))
            _writers.append(known.lines)
        if known.labels_of != tuple(labels):
            raise ValueError(f"metric {name!r} is declared with the labels {known.labels_of} already")
        return known


class Summary:
    """What Go's client calls a summary; `summary` makes one. The Python client's has no quantiles.

    Memory: at most `SUMMARY_SAMPLES` numbers for each combination of label values; older ones give way.
    """

    def __init__(self, name: str, doc: str, labels: tuple[str, ...]) -> None:
        self._name, self.doc, self.labels_of = name, doc, labels
        self._guard = threading.Lock()
        self._series: dict[tuple[str, ...], _Observed] = {}

    def observe(self, value: float, *labels: str) -> None:
        """One observation; `labels` are the values in the order of the declaration."""
        if len(labels) != len(self.labels_of):
            raise ValueError(f"metric {self._name!r} has the labels {self.labels_of}")
        with self._guard:
            series = self._series.setdefault(labels, _Observed())
            series.count, series.total = series.count + 1, series.total + value
            series.recent.append((monotonic(), value))

    def lines(self) -> Iterator[str]:
        """The family in Prometheus' text format; NaN for a quantile of which nothing was seen lately."""
        with self._guard:
            oldest = monotonic() - SUMMARY_SECONDS
            shot = [
                (labels, one.count, one.total, sorted(value for at, value in one.recent if at >= oldest))
                for labels, one in sorted(self._series.items())
            ]
        yield header(self._name, "summary", self.doc)
        for labels, count, total, values in shot:
            own = dict(zip(self.labels_of, labels, strict=True))
            for quantile in (0.0, 0.5, 0.9, 0.99, 1.0):
                value = values[min(len(values) - 1, int(quantile * len(values)))] if values else math.nan
                yield line(self._name, labels_text({**own, "quantile": f"{quantile:g}"}), value)
            yield line(f"{self._name}_sum", labels_text(own), total)
            yield line(f"{self._name}_count", labels_text(own), count)


class _Observed:
    __slots__ = ("count", "recent", "total")

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.recent: deque[tuple[float, float]] = deque(maxlen=SUMMARY_SAMPLES)


class MetricFamily(NamedTuple):
    """A metric that was declared: what the reference says of it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str


def declared() -> list[MetricFamily]:
    """Every metric declared so far, summaries included; lines of `written_by` are not among them."""
    with _lock:
        plain = [
            MetricFamily(name, type(one).__name__.lower(), tuple(one._labelnames), one._documentation)  # noqa: SLF001 - the library tells it nowhere else
            for name, one in _declared.items()
        ]
        return [*plain, *(MetricFamily(name, "summary", one.labels_of, one.doc) for name, one in _summaries.items())]


def chunks() -> Iterator[bytes]:
    """Everything that was declared, and the written lines, in Prometheus' text format, piece by piece.

    A piece is some 64 KB: with 100,000 pods the whole would be tens of megabytes.
    """
    yield generate_latest(REGISTRY)
    with _lock:
        writers = tuple(_writers)
    lines: list[str] = []
    size = 0
    for write in writers:
        for text in write():
            lines.append(text)
            size += len(text)
            if size >= CHUNK_BYTES:
                yield "".join(lines).encode()
                lines, size = [], 0
    yield "".join(lines).encode()


def written_by(write: Callable[[], Iterable[str]]) -> Callable[[], None]:
    """Add lines that are made anew whenever somebody asks: for tens of thousands of series that nobody should keep.

    Args:
        write: gives lines in Prometheus' text format, each with its end; HELP and TYPE included.

    Returns:
        What takes the lines away again.
    """
    with _lock:
        _writers.append(write)

    def remove() -> None:
        with _lock:
            if write in _writers:
                _writers.remove(write)

    return remove


class GaugeSeries:
    """The series of a gauge that describe objects which come and go: what an object no longer has, disappears.

    Args:
        metric: the gauge; nobody else may set it.
    """

    def __init__(self, metric: Gauge) -> None:
        self._metric = metric
        self._lock = threading.Lock()
        self._owned: dict[str, set[tuple[str, ...]]] = {}

    def replace(self, owner: str, series: Iterable[tuple[Sequence[str], float]]) -> None:
        """Set all series of one object, by label values in the gauge's order; those that it had before and not now are removed."""
        with self._lock:
            before = self._owned.get(owner, set())
            now: set[tuple[str, ...]] = set()
            for labels, value in series:
                key = tuple(labels)
                now.add(key)
                self._metric.labels(*key).set(value)
            for key in before - now:
                self._metric.remove(*key)
            if now:
                self._owned[owner] = now
            else:
                self._owned.pop(owner, None)


def _declare(kind: type[M], name: str, doc: str, labels: Sequence[str], **options: object) -> M:
    with _lock:
        known = _declared.get(name)
        if known is None:
            known = _declared[name] = kind(name, doc, tuple(labels), registry=REGISTRY, **options)  # type: ignore[arg-type]
        if type(known) is not kind or tuple(known._labelnames) != tuple(labels):  # noqa: SLF001 - likewise
            raise ValueError(
                f"metric {name!r} is declared as {type(known).__name__} of {tuple(known._labelnames)} already"  # noqa: SLF001 - likewise
            )
        return known
