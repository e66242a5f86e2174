from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import kwok, names
from provisioner.apis.core import Node, NodeSpec
from provisioner.apis.karpenter import (
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    RequirementSpec,
    ResourceRequests,
)
from provisioner.apis.kwok import KWOKNodeClass, KWOKNodeClassSpec, KWOKNodeClassStatus
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.cloudprovider.errors import (
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.kwok.catalogue import KwokCatalogue, generated
from provisioner.cloudprovider.kwok.orphans import sort_out
from provisioner.cloudprovider.kwok.provider import KwokProvider, node_name_of
from provisioner.cloudprovider.types import CloudProvider, InstanceType, LaunchedInstance
from provisioner.kube.errors import ConnectionFailed, ServerError
from provisioner.kube.store import Store
from tests.support.clock import NOON, FakeClock
from tests.support.nodes import FakeNodes, ManualQueue

REFERENCE = NodeClassReference(group=kwok.GROUP, kind=kwok.KIND, name="default")
NODE_NAME = "kwok-general-abcde"
POOL = NodePool(
    spec=NodePoolSpec(template=NodeClaimTemplate(spec=NodeClaimTemplateSpec(requirements=(), node_class_ref=REFERENCE)))
)


@dataclass
class World:
    """One cluster, and the provider of the process that runs now."""

    delay: str | None = None
    catalogue: KwokCatalogue = field(default_factory=generated)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    classes: Store[KWOKNodeClass] = field(default_factory=Store)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.node_class()
        self.restart()

    def node_class(self, conditions: tuple[Condition, ...] = (), **metadata: Any) -> None:
        self.classes.put(
            "default",
            KWOKNodeClass(
                metadata=ObjectMeta(name="default", **metadata),
                spec=KWOKNodeClassSpec(node_registration_delay=self.delay),
                status=KWOKNodeClassStatus(conditions=conditions),
            ),
        )

    def restart(self) -> None:
        """A new process: nothing is remembered, and its caches are full."""
        self.nodes.sync()
        queues: list[ManualQueue] = []

        def queue_of(run: Any) -> ManualQueue:
            queues.append(ManualQueue(run))
            return queues[-1]

        self.provider = KwokProvider(
            self.nodes, self.nodes.store, self.classes, self.clock, self.catalogue, queue_of=queue_of
        )
        (self.queue,) = queues

    @property
    def node(self) -> Node:
        (node,) = self.nodes.server.values()
        return node

    def ids(self) -> list[str]:
        return [instance.provider_id for instance in self.provider.list()]


def claim_of(
    *requirements: tuple[str, str, tuple[str, ...]],
    name: str = "general-abcde",
    requests: dict[str, Any] | None = None,
    **labels: str,
) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name=name, uid=f"uid-of-{name}", labels={names.NODEPOOL_LABEL: "general", **labels}),
        spec=NodeClaimSpec(
            requirements=tuple(
                RequirementSpec(key=key, operator=op, values=values) for key, op, values in requirements
            ),
            resources=ResourceRequests(requests=requests if requests is not None else {"cpu": "3", "memory": "2Gi"}),
            node_class_ref=REFERENCE,
        ),
    )


def launched(
    claim: NodeClaim, instance: LaunchedInstance, *, registered: bool = False, seconds_ago: float = 0
) -> NodeClaim:
    """The claim as its controller leaves it after a launch."""
    since = NOON - timedelta(seconds=seconds_ago)
    conditions = [Condition(type=names.LAUNCHED, status="True", reason="Launched", last_transition_time=since)]
    if registered:
        conditions.append(Condition(type=names.REGISTERED, status="True", reason="Registered"))
    status = NodeClaimStatus(
        provider_id=instance.provider_id,
        node_name=instance.node_name if registered else "",
        capacity={**instance.capacity.to_wire()},
        allocatable={**instance.allocatable.to_wire()},
        conditions=tuple(conditions),
    )
    metadata = msgspec.structs.replace(claim.metadata, labels={**instance.labels, **claim.metadata.labels})
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


def assert_gone(world: World, claim: NodeClaim) -> None:
    with pytest.raises(InstanceNotFoundError):
        world.provider.delete(claim)


# --- what is launched -------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[NodeClaim, tuple[str, str, str]]] = {
    "the cheapest that fits, ties by name, zone and capacity type": (
        claim_of(),
        ("c-4x-amd64-linux", "test-zone-a", "spot"),
    ),
    "among the types it names": (
        claim_of((names.INSTANCE_TYPE_LABEL, "In", ("s-8x-arm64-linux", "m-4x-arm64-linux"))),
        ("m-4x-arm64-linux", "test-zone-a", "spot"),
    ),
    "in the zone it names": (
        claim_of((names.ZONE_LABEL, "In", ("test-zone-c",))),
        ("c-4x-amd64-linux", "test-zone-c", "spot"),
    ),
    "outside the zone it excludes": (
        claim_of((names.ZONE_LABEL, "NotIn", ("test-zone-a",))),
        ("c-4x-amd64-linux", "test-zone-b", "spot"),
    ),
    "of the capacity type it names": (
        claim_of((names.CAPACITY_TYPE_LABEL, "In", ("on-demand",))),
        ("c-4x-amd64-linux", "test-zone-a", "on-demand"),
    ),
    "of the architecture and system it names": (
        claim_of((names.ARCH_LABEL, "In", ("arm64",)), (names.OS_LABEL, "In", ("windows",))),
        ("c-4x-arm64-windows", "test-zone-a", "spot"),
    ),
    "within bounds of a number": (
        claim_of((names.KWOK_INSTANCE_CPU_LABEL, "Gt", ("30",))),
        ("c-32x-amd64-linux", "test-zone-a", "spot"),
    ),
    "large enough after the overhead": (claim_of(requests={"cpu": "4"}), ("c-8x-amd64-linux", "test-zone-a", "spot")),
    "with enough pods": (claim_of(requests={"pods": "200"}), ("c-16x-amd64-linux", "test-zone-a", "spot")),
    "whatever its own labels are": (
        claim_of(("team", "In", ("a",)), team="a"),
        ("c-4x-amd64-linux", "test-zone-a", "spot"),
    ),
}


@pytest.mark.parametrize(("claim", "want"), CHOICES.values(), ids=CHOICES)
def test_create_chooses(claim: NodeClaim, want: tuple[str, str, str]) -> None:
    instance = World().provider.create(claim)
    assert (instance.instance_type, instance.zone, instance.capacity_type) == want


def test_the_node_is_that_of_its_type() -> None:
    world = World()
    claim = claim_of(("team", "In", ("a",)), ("size", "In", ("1", "2")), example="b")
    instance = world.provider.create(claim)
    labels = {
        names.NODEPOOL_LABEL: "general",
        "team": "a",
        "example": "b",
        names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
        names.ZONE_LABEL: "test-zone-a",
        names.CAPACITY_TYPE_LABEL: "spot",
        names.KWOK_INSTANCE_CPU_LABEL: "4",
        names.KWOK_INSTANCE_SIZE_LABEL: "4",
        names.KWOK_INSTANCE_FAMILY_LABEL: "c",
        names.KWOK_INSTANCE_MEMORY_LABEL: "8Gi",
        "eks-node-viewer/instance-price": "0.076013",
        "kwok.x-k8s.io/node": "fake",
        "kwok-partition": "a",
    }
    node = world.node
    assert node.metadata.labels == {**labels, names.HOSTNAME_LABEL: NODE_NAME}
    assert node.metadata.annotations["kwok.x-k8s.io/node"] == "fake"
    assert node.spec == NodeSpec(provider_id=f"kwok://{NODE_NAME}", taints=(names.UNREGISTERED_NO_SCHEDULE_TAINT,))
    assert node.status.capacity == {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "64"}
    assert node.status.allocatable == {"cpu": "3900m", "memory": "8182Mi", "ephemeral-storage": "20Gi", "pods": "64"}
    assert node.status.conditions == ()
    assert instance == LaunchedInstance(
        provider_id=f"kwok://{NODE_NAME}",
        instance_type="c-4x-amd64-linux",
        zone="test-zone-a",
        capacity_type="spot",
        labels=labels,
        capacity=next(one for one in generated().types if one.name == "c-4x-amd64-linux").capacity,
        allocatable=next(one for one in generated().types if one.name == "c-4x-amd64-linux").allocatable,
        node_name=NODE_NAME,
        claim_name="general-abcde",
    )


def test_a_launch_costs_one_request() -> None:
    world = World()
    world.provider.create(claim_of())
    assert world.nodes.requests == {"create": 1}


REFUSED: dict[str, tuple[NodeClaim, str]] = {
    "types that are not in the catalogue": (
        claim_of((names.INSTANCE_TYPE_LABEL, "In", ("m5.large",))),
        "none of its instance types is among the 144 instance types of the catalogue",
    ),
    "a zone that nothing is in": (
        claim_of((names.ZONE_LABEL, "In", ("nowhere",))),
        "none of its 144 instance types has an available offering that its requirements allow",
    ),
    "requests that nothing has room for": (
        claim_of((names.KWOK_INSTANCE_CPU_LABEL, "Lt", ("3",))),
        "its resource requests fit none of the 24 instance types that its requirements allow",
    ),
}


@pytest.mark.parametrize(("claim", "problem"), REFUSED.values(), ids=REFUSED)
def test_no_capacity_says_what_is_in_the_way(claim: NodeClaim, problem: str) -> None:
    with pytest.raises(InsufficientCapacityError) as caught:
        World().provider.create(claim)
    assert str(caught.value) == f"no capacity for NodeClaim general-abcde: {problem}"


def test_what_is_sold_out_is_no_capacity() -> None:
    def sold_out(one: InstanceType) -> InstanceType:
        return replace(one, offerings=tuple(replace(offering, available=False) for offering in one.offerings))

    world = World(catalogue=KwokCatalogue(tuple(map(sold_out, generated().types))))
    with pytest.raises(InsufficientCapacityError, match="available offering"):
        world.provider.create(claim_of())


UNREADABLE = {
    "a requirement": (claim_of(("team", "In", ())), "spec.requirements: requirement 'team': values"),
    "a request": (claim_of(requests={"cpu": "some"}), "spec.resources.requests: 'some' is not a quantity"),
}


@pytest.mark.parametrize(("claim", "problem"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_claim_that_cannot_be_read_names_the_field(claim: NodeClaim, problem: str) -> None:
    with pytest.raises(CreateError) as caught:
        World().provider.create(claim)
    assert caught.value.reason == "LaunchFailed"
    assert caught.value.message.startswith(problem)


# --- the NodeClass ----------------------------------------------------------------------------------------------


def test_a_missing_node_class_is_not_ready() -> None:
    world = World()
    world.classes.remove("default")
    assert world.provider.node_class_ready(REFERENCE) == (
        "False",
        "NodeClassNotFound",
        "KWOKNodeClass default does not exist; create it",
    )
    with pytest.raises(NodeClassNotReadyError, match="KWOKNodeClass default does not exist"):
        world.provider.create(claim_of())
    assert world.nodes.requests == {}


def test_a_node_class_of_another_provider_is_not_found() -> None:
    other = NodeClassReference(group="karpenter.k8s.aws", kind="EC2NodeClass", name="default")
    assert World().provider.node_class_ready(other)[:2] == ("False", "NodeClassNotFound")


def test_a_node_class_that_is_being_deleted_is_not_ready() -> None:
    world = World()
    world.node_class(deletion_timestamp=NOON)
    assert world.provider.node_class_ready(REFERENCE)[:2] == ("False", "NodeClassTerminating")


READY: dict[str, tuple[tuple[Condition, ...], tuple[str, str, str]]] = {
    "without conditions": ((), ("True", "Ready", "")),
    "when it says so": ((Condition(type="Ready", status="True", reason="Fine"),), ("True", "Ready", "")),
    "not when it says no": (
        (Condition(type="Ready", status="False", reason="Broken", message="why"),),
        ("False", "Broken", "KWOKNodeClass default: why"),
    ),
    "nor when it does not know": (
        (Condition(type="Ready", status="Unknown"),),
        ("Unknown", "NodeClassReadinessUnknown", "KWOKNodeClass default: the status of its condition Ready is Unknown"),
    ),
}


@pytest.mark.parametrize(("conditions", "want"), READY.values(), ids=READY)
def test_a_node_class_is_ready(conditions: tuple[Condition, ...], want: tuple[str, str, str]) -> None:
    world = World()
    world.node_class(conditions)
    assert world.provider.node_class_ready(REFERENCE) == want


def test_a_registration_delay_that_cannot_be_read_names_the_field() -> None:
    world = World(delay="soon")
    with pytest.raises(NodeClassNotReadyError, match=r"spec.nodeRegistrationDelay: 'soon' is not a duration"):
        world.provider.create(claim_of())


# --- once and only once -----------------------------------------------------------------------------------------


def test_create_again_is_the_same_instance() -> None:
    world = World()
    first = world.provider.create(claim_of())
    assert world.provider.create(claim_of()) == first
    assert world.nodes.requests == {"create": 1}


def test_create_again_after_a_crash_finds_the_node_in_the_cache() -> None:
    world = World()
    first = world.provider.create(claim_of())
    world.restart()
    assert world.provider.create(claim_of()) == first
    assert world.nodes.requests == {"create": 1}


def test_create_again_after_a_crash_adopts_a_node_that_the_cache_lacks() -> None:
    world = World()
    world.restart()
    other = KwokProvider(world.nodes, Store(), world.classes, world.clock)
    first = other.create(claim_of())
    # The second process would choose otherwise; the instance that runs decides.
    assert world.provider.create(claim_of((names.ZONE_LABEL, "In", ("test-zone-d",)))) == first
    assert world.nodes.requests == {"create": 2, "get": 1}
    assert len(world.nodes.server) == 1


def test_labels_that_others_write_on_the_node_while_it_joins_are_not_the_instance_s() -> None:
    world = World()
    instance = world.provider.create(claim_of())
    more = {"beta.kubernetes.io/arch": "amd64", names.REGISTERED_LABEL: "true", names.INITIALIZED_LABEL: "true"}
    world.nodes.change(NODE_NAME, labels={**world.node.metadata.labels, **more})
    world.restart()
    assert world.provider.create(claim_of()) == instance


def test_a_node_of_another_claim_is_not_adopted() -> None:
    world = World()
    world.provider.create(claim_of())
    reborn = claim_of()
    reborn = msgspec.structs.replace(reborn, metadata=msgspec.structs.replace(reborn.metadata, uid="another"))
    with pytest.raises(CreateError, match=f"Node {NODE_NAME} exists already and belongs to another NodeClaim"):
        world.provider.create(reborn)


def test_a_refused_create_can_be_tried_again() -> None:
    world = World()
    world.nodes.failing.append(ServerError(500, "InternalError", "etcd is away"))
    with pytest.raises(ServerError):
        world.provider.create(claim_of())
    assert world.ids() == []
    world.provider.create(claim_of())
    assert world.ids() == [f"kwok://{NODE_NAME}"]


NAMES = {
    "a short name gets a prefix": ("general-abcde", "kwok-general-abcde"),
    "58 characters just fit": ("a" * 58, "kwok-" + "a" * 58),
    "59 do not": ("a" * 59, f"kwok-{'a' * 47}-6c2ac02ec9"),
}


@pytest.mark.parametrize(("claim_name", "want"), NAMES.values(), ids=NAMES)
def test_the_name_of_a_node(claim_name: str, want: str) -> None:
    assert node_name_of(claim_name) == want
    assert len(want) <= 63


def test_long_names_that_begin_alike_differ() -> None:
    assert node_name_of("a" * 70 + "x") != node_name_of("a" * 70 + "y")


# --- the registration delay -------------------------------------------------------------------------------------


def test_a_delayed_node_comes_after_the_delay_and_its_instance_at_once() -> None:
    world = World(delay="1m30s")
    instance = world.provider.create(claim_of())
    assert instance.provider_id == f"kwok://{NODE_NAME}"
    assert world.queue.waiting == {NODE_NAME: 90.0}
    assert world.nodes.server == {}
    assert world.provider.get(instance.provider_id) == instance
    assert world.ids() == [instance.provider_id]
    world.queue.run(NODE_NAME)
    assert world.node.metadata.name == NODE_NAME
    assert world.ids() == [instance.provider_id]
    assert world.nodes.requests == {"create": 1}


def test_create_again_during_the_delay_changes_nothing() -> None:
    world = World(delay="30s")
    assert world.provider.create(claim_of()) == world.provider.create(claim_of())
    world.queue.run(NODE_NAME)
    assert world.nodes.requests == {"create": 1}


def test_a_delayed_node_that_is_refused_is_tried_again() -> None:
    world = World(delay="30s")
    world.provider.create(claim_of())
    world.nodes.failing.append(ConnectionFailed("reset"))
    world.queue.run(NODE_NAME)
    assert world.queue.waiting == {NODE_NAME: 0.1}
    world.queue.run(NODE_NAME)
    assert world.queue.waiting == {}
    assert len(world.nodes.server) == 1


def test_a_delayed_node_whose_answer_got_lost_is_not_made_twice() -> None:
    world = World(delay="30s")
    world.provider.create(claim_of())

    def lose() -> None:
        world.nodes.meanwhile = lambda: None
        raise ConnectionFailed("reset", maybe_applied=True)

    world.nodes.meanwhile = lose
    world.queue.run(NODE_NAME)
    world.queue.run(NODE_NAME)
    assert world.queue.waiting == {}
    assert len(world.nodes.server) == 1


def test_a_claim_that_ends_during_the_delay_gets_no_node_and_costs_nothing() -> None:
    world = World(delay="30s")
    claim = launched(claim_of(), world.provider.create(claim_of()))
    assert_gone(world, claim)
    world.queue.run(NODE_NAME)
    assert world.nodes.server == {}
    assert world.nodes.requests == {}
    assert world.ids() == []


def test_a_claim_that_ends_while_its_node_is_being_made_leaves_none() -> None:
    world = World(delay="30s")
    claim = launched(claim_of(), world.provider.create(claim_of()))
    world.nodes.failing = []

    def end() -> None:
        world.nodes.meanwhile = lambda: None
        world.nodes.server, hidden = {}, world.nodes.server  # not committed yet when the deletion looks
        assert_gone(world, claim)
        world.nodes.server = hidden

    world.nodes.meanwhile = end
    world.queue.run(NODE_NAME)
    assert world.nodes.server == {}


# --- after a restart --------------------------------------------------------------------------------------------


def test_a_launched_claim_whose_node_was_never_made_gets_it_after_a_restart() -> None:
    world = World(delay="60s")
    instance = world.provider.create(claim_of(example="b"))
    promised = launched(claim_of(example="b"), instance, seconds_ago=20)
    world.restart()
    with pytest.raises(InstanceNotFoundError):
        world.provider.get(instance.provider_id)
    world.provider.resume([promised])
    assert world.queue.waiting == {NODE_NAME: 40.0}
    assert world.provider.get(instance.provider_id) == instance
    world.queue.run(NODE_NAME)
    assert world.node.metadata.labels == {**instance.labels, names.HOSTNAME_LABEL: NODE_NAME}
    assert world.node.status.capacity == instance.capacity.to_wire()
    assert world.node.status.allocatable == instance.allocatable.to_wire()


def test_a_delay_that_is_over_at_the_restart_is_not_waited_for_again() -> None:
    world = World(delay="60s")
    promised = launched(claim_of(), world.provider.create(claim_of()), seconds_ago=300)
    world.restart()
    world.provider.resume([promised])
    assert world.queue.waiting == {NODE_NAME: 0.0}


def test_a_node_that_was_promised_comes_though_its_class_is_gone() -> None:
    world = World(delay="60s")
    promised = launched(claim_of(), world.provider.create(claim_of()))
    world.restart()
    world.classes.remove("default")
    world.provider.resume([promised])
    assert world.queue.waiting == {NODE_NAME: 0.0}


def test_resume_leaves_alone_what_needs_nothing() -> None:
    world = World()
    instance = world.provider.create(claim_of())
    other = claim_of(name="other")
    there = launched(claim_of(), instance)
    was_there = launched(other, replace(instance, provider_id="kwok://kwok-other"), registered=True)
    deleting = launched(claim_of(name="ends"), replace(instance, provider_id="kwok://kwok-ends"))
    metadata = msgspec.structs.replace(deleting.metadata, deletion_timestamp=NOON)
    deleting = msgspec.structs.replace(deleting, metadata=metadata)
    not_launched = claim_of(name="new")
    world.restart()
    world.nodes.requests.clear()
    world.provider.resume([there, was_there, deleting, not_launched])
    assert world.queue.waiting == {}
    assert world.nodes.requests == {}


def test_a_claim_whose_status_cannot_be_read_does_not_stop_the_others() -> None:
    world = World(delay="60s")
    good = launched(claim_of(), world.provider.create(claim_of()))
    broken = launched(claim_of(name="broken"), world.provider.create(claim_of(name="broken")))
    broken = msgspec.structs.replace(broken, status=msgspec.structs.replace(broken.status, capacity={"cpu": "?"}))
    world.restart()
    world.provider.resume([broken, good])
    assert list(world.queue.waiting) == [NODE_NAME]


def test_a_node_whose_claim_is_gone_is_deleted_at_the_restart_and_no_other() -> None:
    world = World()
    world.provider.create(claim_of())
    kept = claim_of(name="kept")
    world.provider.create(kept)
    world.nodes.server["stranger"] = Node(metadata=ObjectMeta(name="stranger", uid="7"))
    world.restart()
    world.provider.resume([kept])
    assert sorted(world.nodes.server) == ["kwok-kept", "stranger"]


def test_a_node_that_goes_while_those_without_a_claim_are_deleted_stops_nothing() -> None:
    world = World()
    for name in "abc":
        world.provider.create(claim_of(name=name))
    world.restart()

    def another_goes() -> None:
        world.nodes.server.pop("kwok-b", None)
        world.nodes.sync()

    world.nodes.meanwhile = another_goes
    world.provider.resume([])
    assert world.nodes.server == {}


def test_an_instance_of_no_claim_is_an_orphan_until_its_node_is_being_deleted() -> None:
    world = World()
    instance = world.provider.create(claim_of())
    world.nodes.change(NODE_NAME, finalizers=(names.TERMINATION_FINALIZER,))
    world.restart()
    assert sort_out(world.provider.instances(), [claim_of()]).orphans == ()
    assert [one.id for one in sort_out(world.provider.instances(), [claim_of(name="other")]).orphans] == [NODE_NAME]
    world.provider.end(instance.provider_id)
    world.nodes.sync()
    assert sort_out(world.provider.instances(), ()).orphans == ()
    with pytest.raises(InstanceNotFoundError):
        world.provider.end("kwok://kwok-other")


# --- the end of an instance ---------------------------------------------------------------------------------------


def test_an_instance_whose_node_is_being_deleted_is_gone_without_a_request() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()), registered=True)
    world.nodes.change(NODE_NAME, finalizers=(names.TERMINATION_FINALIZER,), deletion_timestamp=NOON)
    world.restart()
    world.nodes.requests.clear()
    assert_gone(world, claim)
    assert_gone(world, claim)
    assert world.nodes.requests == {}


def test_a_registered_instance_whose_node_was_seen_to_go_is_gone_without_a_request() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()), registered=True)
    world.nodes.server.clear()
    world.restart()
    world.nodes.requests.clear()
    assert_gone(world, claim)
    assert world.nodes.requests == {}


def test_an_instance_whose_node_lives_is_terminated_by_one_delete() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()), registered=True)
    world.restart()
    world.nodes.requests.clear()
    assert_gone(world, claim)
    assert world.nodes.server == {}
    world.nodes.sync()
    assert_gone(world, claim)
    assert world.nodes.requests == {"delete": 1}
    assert world.ids() == []


def test_a_node_with_finalizers_is_deleted_once() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()), registered=True)
    world.nodes.change(NODE_NAME, finalizers=("a/b",))
    world.restart()
    assert_gone(world, claim)
    world.nodes.sync()
    assert_gone(world, claim)
    assert world.nodes.requests["delete"] == 1
    assert world.node.metadata.deletion_timestamp is not None


def test_a_node_that_the_cache_lacks_is_looked_up_before_its_claim_goes() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()))
    assert_gone(world, claim)  # the watch has not shown it yet
    assert world.nodes.server == {}
    assert world.nodes.requests == {"create": 1, "get": 1, "delete": 1}


def test_a_claim_that_never_had_an_instance_is_looked_up_once() -> None:
    world = World()
    assert_gone(world, claim_of())
    assert world.nodes.requests == {"get": 1}


def test_a_node_that_goes_at_the_same_time_is_gone() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()))
    world.nodes.sync()
    world.nodes.server.clear()
    assert_gone(world, claim)


def test_the_node_of_another_claim_is_not_deleted() -> None:
    world = World()
    world.provider.create(claim_of())
    world.nodes.change(NODE_NAME, annotations={"karpenter.kwok.sh/nodeclaim-uid": "another"})
    world.nodes.sync()
    assert_gone(world, claim_of())
    assert len(world.nodes.server) == 1


def test_a_node_that_karpenter_made_is_deleted_by_its_provider_id() -> None:
    world = World()
    world.nodes.server["wise-owl-7"] = Node(
        metadata=ObjectMeta(name="wise-owl-7", uid="7"), spec=NodeSpec(provider_id="kwok://wise-owl-7")
    )
    world.restart()
    instance = world.provider.get("kwok://wise-owl-7")
    assert_gone(world, launched(claim_of(), instance, registered=True))
    assert world.nodes.server == {}


def test_a_failed_delete_is_the_caller_s_to_try_again() -> None:
    world = World()
    claim = launched(claim_of(), world.provider.create(claim_of()))
    world.nodes.sync()
    world.nodes.failing.append(ServerError(503, "Unavailable", "later"))
    with pytest.raises(ServerError):
        world.provider.delete(claim)
    assert_gone(world, claim)
    assert world.nodes.server == {}


# --- what there is ----------------------------------------------------------------------------------------------


def test_list_has_kwok_instances_only_in_order_of_id() -> None:
    world = World()
    for name in ("b", "a"):
        world.provider.create(claim_of(name=name))
    world.nodes.server["ec2"] = Node(metadata=ObjectMeta(name="ec2"), spec=NodeSpec(provider_id="aws:///a/i-1"))
    world.nodes.sync()
    world.provider.create(claim_of(name="c"))
    assert world.ids() == ["kwok://kwok-a", "kwok://kwok-b", "kwok://kwok-c"]
    assert [instance.claim_name for instance in world.provider.list()] == ["a", "b", "c"]


@pytest.mark.parametrize("provider_id", ["", "kwok://", "kwok://none", "aws:///a/i-1"])
def test_get_of_what_is_not_there(provider_id: str) -> None:
    with pytest.raises(InstanceNotFoundError):
        World().provider.get(provider_id)


def test_a_node_that_somebody_else_deletes_is_no_instance_any_more() -> None:
    world = World()
    instance = world.provider.create(claim_of())
    world.nodes.server.clear()
    world.clock.advance(29)
    assert world.ids() == [instance.provider_id]  # the watch may lag
    world.clock.advance(2)
    assert world.ids() == []
    with pytest.raises(InstanceNotFoundError):
        world.provider.get(instance.provider_id)


def test_the_provider_serves_one_catalogue_and_never_drifts() -> None:
    world = World()
    provider: CloudProvider = world.provider
    assert provider.instance_types(POOL) is generated().types
    assert provider.is_drifted(claim_of()) == ""
    assert provider.node_class_kinds() == {("karpenter.kwok.sh", "KWOKNodeClass")}
    assert provider.well_known_labels > names.WELL_KNOWN_LABELS
    assert names.KWOK_INSTANCE_CPU_LABEL in provider.well_known_labels
    ready = [("Ready", "False", timedelta(minutes=10)), ("Ready", "Unknown", timedelta(minutes=10))]
    asked = [(one, "True", timedelta(seconds=30)) for one in ("KWOKUnhealthy", "KWOKRebootRequired")]
    for legacy, more in ((True, []), (False, asked)):
        policies = provider.repair_policies(legacy=legacy)
        assert [(one.condition_type, one.condition_status, one.toleration) for one in policies] == ready + more


def test_stop_ends_the_queue() -> None:
    world = World(delay="30s")
    world.provider.create(claim_of())
    world.provider.stop()
    assert not world.queue.started


def test_a_reboot_gives_the_node_another_boot_id_after_its_delay() -> None:
    world = World(delay="30s")
    claim = claim_of()
    instance = world.provider.create(claim)
    world.queue.run(instance.node_name)
    world.nodes.sync()
    claim = launched(claim, instance, registered=True)
    before = world.node.status.node_info.boot_id
    assert before
    world.provider.reboot(claim, "operation")
    assert world.queue.waiting == {instance.node_name: 30.0}
    assert world.node.status.node_info.boot_id == before
    world.nodes.failing = [ServerError(500, "InternalError", "no")]
    world.queue.run(instance.node_name)
    world.queue.run(instance.node_name)
    assert world.node.status.node_info.boot_id == "kwok-operation"
    assert world.queue.waiting == {}


def test_nothing_is_rebooted_that_is_not_there() -> None:
    world = World()
    with pytest.raises(InstanceNotFoundError):
        world.provider.reboot(launched(claim_of(), LaunchedInstance("kwok://kwok-x", "c", "a", "spot")), "operation")
