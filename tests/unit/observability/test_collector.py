"""The series of single objects, as they are written at a scrape."""

import tracemalloc

import msgspec

from provisioner.apis import names
from provisioner.observability.collector import MetricsObserver
from provisioner.support import metrics
from tests.support.clock import FakeClock
from tests.support.cluster import World, bound, pod

PODS = 20_000
OURS = [
    tracemalloc.Filter(inclusive=True, filename_pattern=f"*/provisioner/{path}")
    for path in ("observability/*", "support/exposition.py", "support/metrics.py", "state/*")
]
"""Where what is written is made: threads and metrics that other tests left behind take memory, too."""


def kept() -> int:
    """Bytes in which something is that was made for a scrape."""
    return sum(one.size for one in tracemalloc.take_snapshot().filter_traces(OURS).statistics("filename"))


def test_pods_are_written_one_by_one_and_nothing_of_them_is_kept() -> None:
    """With 100,000 pods all lines together are some tens of megabytes, which is what the whole program may take."""
    world = World()
    world.existing_node("a")
    one = bound(pod("web"), "a")
    pods = [msgspec.structs.replace(one, name=f"web-{number}", uid=f"uid-{number}") for number in range(PODS)]
    cluster = world.cluster
    observer = MetricsObserver(
        cluster.snapshot, list, lambda: pods, cluster.claims, list, lambda _: {}, names.WELL_KNOWN_LABELS, FakeClock()
    )
    observer.start()
    written = series = most = 0
    try:
        tracemalloc.start()
        for piece in metrics.chunks():
            of_pods = piece.count(b"karpenter_pods_state{")
            series += of_pods
            written += len(piece) if of_pods else 0
            most = max(most, kept())
        del piece
        left = kept()
    finally:
        tracemalloc.stop()
        observer.stop()
    assert series == PODS
    assert most < written / 5, f"{most} of {written} bytes"
    assert left < written / 20
