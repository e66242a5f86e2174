"""Every metric that the programs serve, with its kind and labels: those that are declared, and what a scrape of a small cluster has."""

import functools
import importlib
import pkgutil
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

import certs
import extender
import provisioner
import webhook
from provisioner.apis import names
from provisioner.apis.buffer import CapacityBuffer, CapacityBufferStatus
from provisioner.apis.ec2 import EC2NodeClass, EC2NodeClassStatus
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.apis.pods import Pod
from provisioner.ec2.access import wire
from provisioner.ec2.market.catalogue import Region
from provisioner.ec2.market.metrics import lines as market_lines
from provisioner.ec2.market.prices import PriceList
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.observability.collector import MetricsObserver
from provisioner.runtime.changes import PodChanged
from provisioner.support import metrics
from provisioner.values.resources import Resources
from tests.support import ec2pages
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import World, bound, pod, pool

_KINDS = {"running": "ReplicaSet", "daemon": "DaemonSet"}


class Family(NamedTuple):
    """What a family is."""

    kind: str
    labels: frozenset[str]


@functools.cache
def declared() -> dict[str, Family]:
    """Every metric that is declared, by name."""
    for package in (provisioner, webhook, extender, certs):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return {one.name: Family(one.kind, frozenset(one.labels)) for one in metrics.declared()}


@functools.cache
def scraped() -> dict[str, Family]:
    """Everything that a scrape of a small cluster on EC2 has, by name; a family without a series has no labels."""
    text = _text_of_a_small_cluster() + "".join(_market())
    return {
        family.name + "_total" * (family.type == "counter"): Family(
            family.type, frozenset(label for sample in family.samples for label in sample.labels)
        )
        for family in text_string_to_metric_families(text)
    }


def families() -> dict[str, Family]:
    """Both."""
    return {**scraped(), **declared()}


def _limited(one: Pod) -> Pod:
    return msgspec.structs.replace(one, shape=msgspec.structs.replace(one.shape, limits=Resources.of({"cpu": 2000})))


def _text_of_a_small_cluster() -> str:
    world, clock = World(), FakeClock()
    planned, undecided = pod("planned"), pod("undecided")
    running, daemon = (_limited(bound(pod(name, kind=kind), "a")) for name, kind in _KINDS.items())
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
    seen = Condition(type="Ready", status="False", reason="SubnetsNotFound", last_transition_time=NOON)
    blue = EC2NodeClass(
        metadata=ObjectMeta(name="blue", deletion_timestamp=NOON), status=EC2NodeClassStatus(conditions=(seen,))
    )
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
        classes=lambda: [blue],
    )
    observer.start()
    observer.heard(PodChanged(None, planned))
    observer.heard(PodChanged(None, undecided))
    observer.times.decided(["planned"], [])
    try:
        return b"".join(metrics.chunks()).decode()
    finally:
        observer.stop()


def _market() -> list[str]:
    infos = wire.instance_types(ec2pages.type_pages([ec2pages.described_types()["m5.large"]])[0])[0]
    region = Region.of(infos, [("m5.large", "a")])
    return [*market_lines(region, PriceList(estimates={"m5.large": 0.1}, estimated_from="x"), Shortages(), NOON)]
