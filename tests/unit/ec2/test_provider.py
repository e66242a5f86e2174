import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import cast

import msgspec
import pytest

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass, EC2NodeClassStatus
from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.cloudprovider.errors import InstanceNotFoundError
from provisioner.cloudprovider.types import LaunchedInstance, RepairAction
from provisioner.disruption.repair_policies import RepairPolicySet
from provisioner.ec2 import labels
from provisioner.ec2.access.wire import instance_types
from provisioner.ec2.market.catalogue import Region
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.region_market import CATALOGUE, MarketContext, Reads, RegionMarket
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.provider import FIRST_READ_SECONDS, AwsProvider, CatalogueNotReadError
from provisioner.ec2.settings import AwsSettings
from tests.support import ec2pages
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import claim

INSTANCE = LaunchedInstance("aws:///a/i-1", "m5.large", "a", "spot")
REFERENCE = NodeClassReference(group=ec2.GROUP, kind=ec2.KIND, name="default")


class Instances:
    """Launches nothing; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        self.asked.append(f"create {claim.name}")
        return INSTANCE

    def listen(self, answered: Callable[[str], None]) -> None:
        answered("heard")

    def delete(self, claim: NodeClaim) -> None:
        raise InstanceNotFoundError(claim.status.provider_id)

    def reboot(self, claim: NodeClaim) -> None:
        self.asked.append(f"reboot {claim.name}")

    def get(self, provider_id: str) -> LaunchedInstance:
        assert provider_id == INSTANCE.provider_id
        return INSTANCE

    def list(self) -> Sequence[LaunchedInstance]:
        return (INSTANCE,)

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        self.asked.extend(f"resume {claim.name}" for claim in claims)


def ready(status: str, reason: str = "", message: str = "") -> Condition:
    return Condition(type=names.READY, status=status, reason=reason, message=message, last_transition_time=NOON)


def node_class(*conditions: Condition, deleted: datetime | None = None) -> EC2NodeClass:
    return EC2NodeClass(
        metadata=ObjectMeta(name="default", deletion_timestamp=deleted),
        status=EC2NodeClassStatus(
            subnets=(ec2.SubnetStatus(id="subnet-a", zone="a", zone_id="id-a"),), conditions=conditions
        ),
    )


def region() -> Region:
    page = ec2pages.type_pages([ec2pages.described_types()["m5.large"]])[0]
    return Region.of(instance_types(page)[0], [("m5.large", "a")])


def provider(
    found: EC2NodeClass | None, clock: FakeClock, *, read: bool = True, drifted: str = ""
) -> tuple[AwsProvider, Instances]:
    market = RegionMarket(
        AwsSettings(cluster_name="blue", region="us-east-1"),
        Reads(region, lambda: ()),
        MarketContext(),
        Shortages(),
        MemoryTable(),
        clock,
    )
    if read:
        market.refresh(CATALOGUE)
    instances = Instances()
    classes = {} if found is None else {found.name: found}
    return AwsProvider(instances, market, classes.get, lambda _: drifted, clock), instances


def aws_pool(group: str = ec2.GROUP, kind: str = ec2.KIND) -> NodePool:
    template = {"spec": {"nodeClassRef": {"group": group, "kind": kind, "name": "default"}, "requirements": []}}
    return msgspec.convert({"metadata": {"name": "general"}, "spec": {"template": template}}, NodePool)


READINESS = {
    "is ready": (node_class(ready("True", "Ready")), (names.TRUE, names.READY, "")),
    "is not": (
        node_class(ready("False", "SubnetsNotFound", "none")),
        (names.FALSE, "SubnetsNotFound", "EC2NodeClass default: none"),
    ),
    "is not, for a cause that its other conditions tell": (
        node_class(
            ready("False", "UnhealthyDependents", "SubnetsReady=False, ValidationSucceeded=False"),
            Condition(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="no subnet"),
            Condition(type="ValidationSucceeded", status="False", reason="DependenciesNotReady", message="waiting"),
        ),
        (names.FALSE, "SubnetsNotFound", "EC2NodeClass default: no subnet"),
    ),
    "is not, without a reason": (
        node_class(ready("False")),
        (
            names.FALSE,
            names.NODECLASS_READINESS_UNKNOWN,
            "EC2NodeClass default: the status of its condition Ready is False",
        ),
    ),
    "was not looked at": (
        node_class(),
        (names.UNKNOWN, names.NODECLASS_READINESS_UNKNOWN, "its readiness is not known yet"),
    ),
    "is going": (
        node_class(ready("True"), deleted=NOON),
        (names.FALSE, names.NODECLASS_TERMINATING, "EC2NodeClass default is being deleted"),
    ),
    "is missing": (None, (names.FALSE, names.NODECLASS_NOT_FOUND, "EC2NodeClass default does not exist; create it")),
}


@pytest.mark.parametrize(("found", "want"), READINESS.values(), ids=READINESS)
def test_a_class_that(found: EC2NodeClass | None, want: tuple[str, str, str]) -> None:
    made, _ = provider(found, FakeClock())
    assert made.node_class_ready(REFERENCE) == want


def test_a_class_of_another_kind_is_none_of_ours() -> None:
    made, _ = provider(node_class(ready("True")), FakeClock())
    other = NodeClassReference(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")
    assert made.node_class_ready(other)[1] == names.NODECLASS_NOT_FOUND
    assert made.node_class_kinds() == {("karpenter.k8s.aws", "EC2NodeClass")}


def test_types_are_those_of_the_pools_class() -> None:
    made, _ = provider(node_class(), FakeClock())
    types = made.instance_types(aws_pool())
    assert [one.name for one in types] == ["m5.large"]
    assert made.instance_types(aws_pool()) is types
    assert made.known_types(aws_pool()) is types


def test_types_hold_as_many_pods_as_the_kubelet_that_conversion_kept_on_the_pool() -> None:
    made, _ = provider(node_class(), FakeClock())
    annotations = {names.KUBELET_ANNOTATION: '{"maxPods":7}'}
    kept = msgspec.structs.replace(aws_pool(), metadata=ObjectMeta(name="kept", annotations=annotations))
    found = [
        read(pool)[0].capacity["pods"]
        for pool in (aws_pool(), kept)
        for read in (made.instance_types, made.known_types)
    ]
    assert found == [29, 29, 7, 7]


def test_a_pool_without_a_class_has_no_types() -> None:
    made, _ = provider(None, FakeClock())
    assert (made.instance_types(aws_pool()), made.known_types(aws_pool())) == ((), ())
    made, _ = provider(node_class(), FakeClock())
    assert made.instance_types(aws_pool("karpenter.kwok.sh", "KWOKNodeClass")) == ()


def test_before_the_first_answer_of_ec2_a_plan_gets_an_error_and_no_empty_list() -> None:
    clock = FakeClock()
    made, _ = provider(node_class(), clock, read=False)
    clock.advance(FIRST_READ_SECONDS + 1)
    with pytest.raises(CatalogueNotReadError, match="the list of EC2 instance types has not been read yet"):
        made.instance_types(aws_pool())
    assert made.known_types(aws_pool()) == (), "nobody who must not wait is refused"


def test_a_launch_under_way_is_resumed_once_instance_types_are_known_and_others_wait_for_nothing() -> None:
    made, instances = provider(node_class(), FakeClock(), read=False)
    made.resume([claim("b")])
    assert instances.asked == ["resume b"]
    marked = claim("a", annotations={names.LAUNCH_ANNOTATION: "batch/1/0"})
    resuming = threading.Thread(target=made.resume, args=([marked],), daemon=True)
    resuming.start()
    resuming.join(0.2)
    assert instances.asked == ["resume b"]
    made._market.refresh(CATALOGUE)
    resuming.join(30)
    assert instances.asked == ["resume b", "resume a"]


def test_instances_are_left_to_those_who_launch() -> None:
    made, instances = provider(node_class(), FakeClock(), drifted="AMIDrift")
    heard: list[str] = []
    made.listen(heard.append)
    made.resume([claim("a")])
    assert made.create(claim("b")) is made.get(INSTANCE.provider_id) is made.list()[0]
    assert (instances.asked, heard) == (["resume a", "create b"], ["heard"])
    with pytest.raises(InstanceNotFoundError):
        made.delete(claim("b"))
    assert made.is_drifted(claim("b")) == "AMIDrift"


def test_conditions_that_mean_a_broken_instance() -> None:
    made, _ = provider(None, FakeClock())
    found = {
        (one.condition_type, one.condition_status): one.toleration.total_seconds() / 60
        for one in made.repair_policies(legacy=True)
    }
    assert found.keys() == {(one.condition_type, one.condition_status) for one in made.repair_policies()}
    assert found == {
        ("Ready", "False"): 30,
        ("Ready", "Unknown"): 30,
        ("AcceleratedHardwareReady", "False"): 10,
        ("StorageReady", "False"): 30,
        ("NetworkingReady", "False"): 30,
        ("KernelReady", "False"): 30,
        ("ContainerRuntimeReady", "False"): 30,
    }


def test_labels_that_a_node_of_ec2_has_by_itself() -> None:
    made, _ = provider(None, FakeClock())
    assert {labels.CATEGORY, labels.ZONE_ID, names.ZONE_LABEL, names.INSTANCE_TYPE_LABEL} <= made.well_known_labels


@pytest.mark.parametrize("reboots", [True, False])
def test_gpu_errors_that_a_reboot_fixes_are_rebooted_where_the_gate_is_on(*, reboots: bool) -> None:
    """Source: Karpenter's AWS provider 1.15; the fallback and fatal errors never are."""
    provider = AwsProvider(
        Instances(), cast(RegionMarket, None), lambda _: None, lambda _: "", FakeClock(), reboots=reboots
    )
    policies = RepairPolicySet(provider.repair_policies())
    actions = {}
    for reason in ("NvidiaXID46Error", "NvidiaXID158Error", "NvidiaXID79Error", "NvidiaDoubleBitError"):
        told = Condition(type="AcceleratedHardwareReady", status=names.FALSE, reason=reason, last_transition_time=NOON)
        found = policies.illness([(told, NOON)], None)
        assert found is not None
        actions[reason] = found.matches[0].policy.action
    healing = RepairAction.REBOOT if reboots else RepairAction.REPLACE
    assert list(actions.values()) == [healing, healing, RepairAction.REPLACE, RepairAction.REPLACE]
    assert all(one.action is RepairAction.REPLACE for one in provider.repair_policies(legacy=True))
