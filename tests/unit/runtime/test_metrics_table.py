"""The provisioner's metrics against the table of Karpenter's: names, types and labels."""

import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import provisioner
from provisioner.apis import names
from provisioner.apis.buffer import CapacityBuffer, CapacityBufferStatus
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.apis.pods import Pod
from provisioner.lab.reference import metrics as reference
from provisioner.observability.collector import MetricsObserver, announce_build
from provisioner.observability.conditions import condition_lines
from provisioner.runtime.changes import PodChanged
from provisioner.support import metrics
from provisioner.values.resources import Resources
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import World, bound, claim, pod, pool

TABLE = json.loads((Path(__file__).parents[2] / "data" / "karpenter-metrics.json").read_text())["families"]
KARPENTERS = {row["name"]: row for row in TABLE}
KINDS = {"running": "ReplicaSet", "daemon": "DaemonSet"}


def declared() -> dict[str, tuple[str, frozenset[str]]]:
    """Kind and labels of every metric that is declared, by name."""
    for module in pkgutil.walk_packages(provisioner.__path__, "provisioner."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return {one.name: (one.kind, frozenset(one.labels)) for one in metrics.declared()}


def limited(one: Pod) -> Pod:
    """The same pod, with limits."""
    return msgspec.structs.replace(one, shape=msgspec.structs.replace(one.shape, limits=Resources.of({"cpu": 2000})))


@pytest.fixture
def scraped() -> dict[str, tuple[str, frozenset[str]]]:
    """Kind and labels of everything that a scrape of a small cluster has, by name."""
    world, clock = World(), FakeClock()
    planned, undecided = pod("planned"), pod("undecided")
    running, daemon = (limited(bound(pod(name, kind=kind), "a")) for name, kind in KINDS.items())
    world.add(planned, undecided, running, daemon)
    world.existing_node("a")
    ending = {"deletion_timestamp": NOON}
    cluster = world.cluster
    cluster.pool_changed(None, pool())
    node = cluster.node("a")
    assert node is not None
    nodes = [msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, **ending))]
    pools = [msgspec.structs.replace(pool(), metadata=msgspec.structs.replace(pool().metadata, **ending))]
    claims = [
        msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, **ending))
        for one in cluster.claims()
    ]
    full = Condition(type="Provisioning", status="True", reason="FitsOnNodes", last_transition_time=NOON)
    buffer = CapacityBuffer(
        metadata=ObjectMeta(name="room", namespace="shop", deletion_timestamp=NOON),
        status=CapacityBufferStatus(conditions=(full,)),
    )
    observer = MetricsObserver(
        cluster.snapshot,
        lambda: nodes,
        lambda: [planned, undecided, running, daemon],
        lambda: claims,
        lambda: pools,
        lambda _: {},
        names.WELL_KNOWN_LABELS,
        clock,
        buffers=lambda: [buffer],
    )
    observer.start()
    observer.heard(PodChanged(None, planned))
    observer.heard(PodChanged(None, undecided))
    observer.times.decided(["planned"], [])
    try:
        text = b"".join(metrics.chunks()).decode()
    finally:
        observer.stop()
    return {
        family.name: (family.type, frozenset(label for sample in family.samples for label in sample.labels))
        for family in text_string_to_metric_families(text)
    }


def test_every_family_of_the_table_is_there_with_its_kind_and_labels(
    scraped: Mapping[str, tuple[str, frozenset[str]]],
) -> None:
    known = declared()
    for name, row in KARPENTERS.items():
        kind, labels = known.get(name) or scraped[name]
        assert kind == row["type"], name
        if name in known or labels:
            assert labels == frozenset(row["labels"]), name


def test_every_series_of_a_cluster_is_scraped_with_its_labels(
    scraped: Mapping[str, tuple[str, frozenset[str]]],
) -> None:
    assert [name for name in KARPENTERS if name not in declared() and not scraped[name][1]] == []


def test_the_build_is_announced() -> None:
    announce_build("abc")
    (family,) = [
        one
        for one in text_string_to_metric_families(b"".join(metrics.chunks()).decode())
        if one.name == "karpenter_build_info"
    ]
    (sample,) = [one for one in family.samples if one.labels["commit"] == "abc"]
    assert sample.value == 1
    assert sample.labels["goversion"].startswith("python3.")


def test_a_condition_is_told_since_when() -> None:
    one = claim("a", true=("Ready",))
    lines = list(condition_lines([one], NOON.replace(minute=1)))
    wanted = 'namespace="",name="a",type="Ready",status="True",reason="Ready"} '
    assert f"operator_nodeclaim_status_condition_count{{{wanted}1.0\n" in lines
    assert f"operator_nodeclaim_status_condition_current_status_seconds{{{wanted}60.0\n" in lines
    group = 'operator_status_condition_count{group="karpenter.sh",kind="NodeClaim",'
    assert f"{group}{wanted}1.0\n" in lines


def test_the_reference_page_has_every_family_of_the_table() -> None:
    page = reference.text()
    assert [name for name in KARPENTERS if f"`{name}`" not in page] == []
