"""The series of single objects, as they are written at a scrape."""

import tracemalloc

import msgspec

from provisioner.apis import names
from provisioner.controllers.observability.collector import Observer
from provisioner.support import metrics
from tests.support.clock import FakeClock
from tests.support.cluster import World, bound, pod

PODS = 20_000


def test_pods_are_written_one_by_one_and_nothing_of_them_is_kept() -> None:
    """With 100,000 pods all lines together are some tens of megabytes, which is what the whole program may take."""
    world = World()
    world.existing_node("a")
    one = bound(pod("web"), "a")
    pods = [msgspec.structs.replace(one, name=f"web-{number}", uid=f"uid-{number}") for number in range(PODS)]
    cluster = world.cluster
    observer = Observer(
        cluster.snapshot, list, lambda: pods, cluster.claims, list, lambda _: {}, names.WELL_KNOWN_LABELS, FakeClock()
    )
    observer.start()
    written = series = 0
    try:
        tracemalloc.start()
        for piece in metrics.chunks():
            written += len(piece)
            series += piece.count(b"karpenter_pods_state{")
        left, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        observer.stop()
    assert series == PODS
    assert most < written / 5, f"{most} of {written} bytes"
    assert left < written / 20
