"""The kwok provider on a real API server with a real kwok beside it."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pytest

from provisioner.apis import kwok, names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import (
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClassReference,
    RequirementSpec,
    ResourceRequests,
)
from provisioner.apis.kwok import KWOKNodeClass, KWOKNodeClassSpec
from provisioner.apis.meta import Condition, ObjectMeta, is_true
from provisioner.cloudprovider.errors import InstanceNotFoundError
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.cloudprovider.types import LaunchedInstance
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection, connect
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import NODES
from provisioner.kube.store import Store
from provisioner.kube.watch import Reflector
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.eventually import PATIENCE, eventually

pytestmark = pytest.mark.plane


@dataclass
class Process:
    """What one provisioner process has: a client, a watch, a provider."""

    client: Client
    nodes: Reflector[Node]
    provider: KwokProvider

    def seen(self, instance: LaunchedInstance) -> Node | None:
        return self.nodes.store.get(instance.node_name)

    def stop(self) -> None:
        self.provider.stop()
        self.nodes.stop()


@dataclass
class Plant:
    """Starts processes on one control plane, and knows which Nodes are to be removed at the end."""

    connection: ApiConnection
    classes: Store[KWOKNodeClass] = field(default_factory=Store)
    running: list[Process] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def start(self) -> Process:
        client, clock = Client(self.connection, SystemClock()), SystemClock()
        nodes = Reflector(self.connection, NODES)
        nodes.start()
        assert nodes.synced.wait(20 * PATIENCE), "the watch did not sync"
        process = Process(client, nodes, KwokProvider(client, nodes.store, self.classes, clock))
        self.running.append(process)
        return process

    def claim(self, delay: str | None = None) -> NodeClaim:
        """A claim of a name of its own, of a NodeClass with this registration delay."""
        name = f"kwok-test-{uuid.uuid4().hex[:8]}"
        spec = KWOKNodeClassSpec(node_registration_delay=delay)
        self.classes.put(name, KWOKNodeClass(metadata=ObjectMeta(name=name), spec=spec))
        self.made.append(f"kwok-{name}")
        return NodeClaim(
            metadata=ObjectMeta(name=name, uid=str(uuid.uuid4()), labels={names.NODEPOOL_LABEL: "kwok-test"}),
            spec=NodeClaimSpec(
                requirements=(RequirementSpec(key=names.ZONE_LABEL, operator="In", values=("test-zone-b",)),),
                resources=ResourceRequests(requests={"cpu": "7"}),
                node_class_ref=NodeClassReference(group=kwok.GROUP, kind=kwok.KIND, name=name),
            ),
        )


@pytest.fixture
def plant(plane: DevCluster) -> Iterator[Plant]:
    found = Plant(connect(str(plane.kubeconfig)))
    yield found
    for process in found.running:
        process.stop()
    client = Client(found.connection, SystemClock())
    for name in found.made:
        with suppress(NotFound):
            client.patch(NODES, name, {"metadata": {"finalizers": None}})
            client.delete(NODES, name)


def launched(claim: NodeClaim, instance: LaunchedInstance) -> NodeClaim:
    status = NodeClaimStatus(
        provider_id=instance.provider_id,
        capacity={**instance.capacity.to_wire()},
        allocatable={**instance.allocatable.to_wire()},
        conditions=(
            Condition(type=names.LAUNCHED, status="True", reason="Launched", last_transition_time=SystemClock().now()),
        ),
    )
    metadata = msgspec.structs.replace(claim.metadata, labels={**instance.labels, **claim.metadata.labels})
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


def is_gone(act: Callable[[], object]) -> bool:
    try:
        act()
    except InstanceNotFoundError:
        return True
    return False


def test_an_instance_joins_becomes_ready_and_keeps_its_type_s_capacity(plant: Plant) -> None:
    process = plant.start()
    instance = process.provider.create(plant.claim())
    assert (instance.instance_type, instance.zone, instance.capacity_type) == (
        "c-8x-amd64-linux",
        "test-zone-b",
        "spot",
    )

    def ready() -> Node | None:
        node = process.seen(instance)
        return node if node is not None and is_true(node.status.conditions, names.READY) else None

    node = eventually(ready, "kwok makes the Node Ready")
    assert node is not None
    assert node.status.capacity == {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "20Gi", "pods": "128"}
    assert node.status.allocatable == {"cpu": "7900m", "memory": "16374Mi", "ephemeral-storage": "20Gi", "pods": "128"}
    assert names.UNREGISTERED_NO_SCHEDULE_TAINT in node.spec.taints
    assert process.provider.get(instance.provider_id).node_name == instance.node_name
    assert process.client.writes == {("create", "nodes"): 1}


def test_a_delayed_node_joins_after_its_delay_while_create_returns_at_once(plant: Plant) -> None:
    process = plant.start()
    began = time.monotonic()
    instance = process.provider.create(plant.claim(delay=f"{2 * PATIENCE}s"))
    assert time.monotonic() - began < PATIENCE
    assert instance.provider_id in [one.provider_id for one in process.provider.list()]
    assert process.seen(instance) is None
    eventually(lambda: process.seen(instance), "the Node joins")
    assert time.monotonic() - began >= 2 * PATIENCE


def test_a_node_promised_by_a_process_that_died_is_made_by_the_next_one_and_only_once(plant: Plant) -> None:
    first = plant.start()
    claim = plant.claim(delay=f"{3 * PATIENCE}s")
    instance = first.provider.create(claim)
    first.stop()
    second = plant.start()
    promised = launched(claim, instance)
    second.provider.resume([promised])
    second.provider.resume([promised])
    node = eventually(lambda: second.seen(instance), "the Node joins")
    assert node is not None
    assert node.metadata.labels.items() >= instance.labels.items()
    assert second.provider.create(claim).provider_id == instance.provider_id
    assert second.client.writes == {("create", "nodes"): 1}


def test_a_create_whose_answer_was_lost_adopts_its_node(plant: Plant) -> None:
    first, blind = plant.start(), plant.start()
    blind.nodes.stop()  # its cache will not show what the first one makes
    claim = plant.claim()
    instance = first.provider.create(claim)
    assert blind.provider.create(claim) == instance


def test_a_deleting_node_s_instance_is_gone_while_its_finalizer_still_holds_it(plant: Plant) -> None:
    process = plant.start()
    claim = plant.claim()
    instance = process.provider.create(claim)
    process.client.patch(NODES, instance.node_name, {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}})
    process.client.delete(NODES, instance.node_name)

    def deleting() -> bool:
        node = process.seen(instance)
        return node is not None and node.metadata.deletion_timestamp is not None

    eventually(deleting, "the watch shows the deletion")
    writes = dict(process.client.writes)
    assert is_gone(lambda: process.provider.delete(launched(claim, instance)))
    assert dict(process.client.writes) == writes


def test_an_instance_that_never_registered_ends_with_its_node(plant: Plant) -> None:
    process = plant.start()
    claim = plant.claim()
    instance = process.provider.create(claim)
    assert is_gone(lambda: process.provider.delete(launched(claim, instance)))
    with pytest.raises(NotFound):
        process.client.get(NODES, instance.node_name)
    assert is_gone(lambda: process.provider.delete(launched(claim, instance)))
    eventually(lambda: is_gone(lambda: process.provider.get(instance.provider_id)), "the watch shows the end")
