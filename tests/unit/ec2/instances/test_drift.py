"""Why an instance is no longer what its class asks for, in the order of the reasons; and what the judge asks EC2 for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.ec2_hash import NODE_CLASS
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2 import labels
from provisioner.ec2.instances import drift
from provisioner.ec2.instances.drift import DriftJudge
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.instances.inventory import Inventory
from provisioner.values.requirement import Requirements
from provisioner.values.resources import EMPTY
from tests.support.clock import FakeClock
from tests.support.cluster import claim

HASHED = {ec2.HASH_ANNOTATION: "1", ec2.HASH_VERSION_ANNOTATION: "v6"}
AMD = {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}
ARM = {"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]}
KIND = InstanceType(
    "m5.large", Requirements.from_labels({names.INSTANCE_TYPE_LABEL: "m5.large", names.ARCH_LABEL: "amd64"}), EMPTY
)
INSTANCE = Ec2Instance(
    "i-00000000000000001",
    "running",
    "m5.large",
    "us-east-1a",
    "spot",
    subnet_id="subnet-1",
    security_group_ids=("sg-1", "sg-2"),
)


def a_class(annotations: dict[str, str] = HASHED, **status: Any) -> EC2NodeClass:
    found = {
        "subnets": [{"id": "subnet-1", "zone": "us-east-1a"}],
        "securityGroups": [{"id": "sg-2"}, {"id": "sg-1"}],
        "amis": [{"id": "ami-1", "requirements": [AMD]}, {"id": "ami-2", "requirements": [ARM]}],
        **status,
    }
    return msgspec.convert(
        {"metadata": {"name": "default", "annotations": annotations}, "status": found}, EC2NodeClass, strict=False
    )


def a_claim(image: str = "ami-1", *, group: str = "") -> NodeClaim:
    given = {names.NODEPOOL_LABEL: "general", names.INSTANCE_TYPE_LABEL: "m5.large"}
    given |= {labels.PLACEMENT_GROUP_ID: group} if group else {}
    one = claim("a", provider_id=INSTANCE.provider_id, annotations=HASHED, labels=given)
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, image_id=image))


def newer(one: EC2NodeClass) -> EC2NodeClass:
    """The same, with a field that this version does not know."""
    known = {name: getattr(one, name) for name in EC2NodeClass.__struct_fields__}
    return ec2.NewerEC2NodeClass(**known, unread=("spec.newOptions",))


OTHER_HASH = {**HASHED, ec2.HASH_ANNOTATION: "2"}
RESERVATION = {
    "id": "cr-0123456789abcdef0",
    "availabilityZone": "us-east-1a",
    "instanceMatchCriteria": "targeted",
    "instanceType": "m5.large",
    "ownerID": "123456789012",
}
CASES: dict[str, tuple[NodeClaim, EC2NodeClass, Ec2Instance, str, str]] = {
    "as its class says": (a_claim(), a_class(), INSTANCE, "", ""),
    "of another spec": (a_claim(), a_class(OTHER_HASH), INSTANCE, "", NODE_CLASS),
    "of another spec, of a class with unknown fields": (a_claim(), newer(a_class(OTHER_HASH)), INSTANCE, "", ""),
    "of a hash of another version": (
        a_claim(),
        a_class({**OTHER_HASH, ec2.HASH_VERSION_ANNOTATION: "v7"}),
        INSTANCE,
        "",
        "",
    ),
    "of an image that is not there any more": (a_claim("ami-0"), a_class(), INSTANCE, "", drift.AMI),
    "of an image for other processors": (a_claim("ami-2"), a_class(), INSTANCE, "", drift.AMI),
    "of one of two images": (
        a_claim(),
        a_class(amis=[{"id": "ami-3", "requirements": [AMD]}, {"id": "ami-1", "requirements": [AMD]}]),
        INSTANCE,
        "",
        "",
    ),
    "in one group fewer": (a_claim(), a_class(securityGroups=[{"id": "sg-1"}]), INSTANCE, "", drift.SECURITY_GROUP),
    "in one group more": (
        a_claim(),
        a_class(),
        replace(INSTANCE, security_group_ids=("sg-1",)),
        "",
        drift.SECURITY_GROUP,
    ),
    "in another subnet": (a_claim(), a_class(), replace(INSTANCE, subnet_id="subnet-2"), "", drift.SUBNET),
    "in a reservation of the class": (
        a_claim(),
        a_class(capacityReservations=[RESERVATION]),
        replace(INSTANCE, capacity_type="reserved", reservation_id="cr-0123456789abcdef0"),
        "",
        "",
    ),
    "in another reservation": (
        a_claim(),
        a_class(capacityReservations=[RESERVATION]),
        replace(INSTANCE, capacity_type="reserved", reservation_id="cr-1"),
        "",
        drift.RESERVATION,
    ),
    "on demand, and EC2 counts it to an open reservation": (
        a_claim(),
        a_class(),
        replace(INSTANCE, capacity_type="on-demand", reservation_id="cr-1"),
        "",
        "",
    ),
    "in its placement group": (a_claim(group="pg-1"), a_class(), INSTANCE, "pg-1", ""),
    "in no placement group": (a_claim(), a_class(), INSTANCE, "pg-1", drift.PLACEMENT_GROUP),
    "in one that the class has left": (
        a_claim(group="pg-1"),
        a_class(),
        INSTANCE,
        "",
        drift.PLACEMENT_GROUP,
    ),
    "in many ways": (
        a_claim("ami-0"),
        a_class(OTHER_HASH, securityGroups=[]),
        replace(INSTANCE, subnet_id=""),
        "pg-1",
        NODE_CLASS,
    ),
    "in many ways but the hash": (
        a_claim("ami-0"),
        a_class(securityGroups=[]),
        replace(INSTANCE, subnet_id=""),
        "pg-1",
        drift.AMI,
    ),
}


@pytest.mark.parametrize(("one", "of", "instance", "group", "want"), CASES.values(), ids=CASES)
def test_drift(one: NodeClaim, of: EC2NodeClass, instance: Ec2Instance, group: str, want: str) -> None:
    assert drift.drifted(one, of, instance, KIND, group) == want


UNKNOWN: dict[str, tuple[NodeClaim, EC2NodeClass, InstanceType | None, str]] = {
    "a claim without an image": (a_claim(""), a_class(), KIND, "its image"),
    "a class without images": (a_claim(), a_class(amis=[]), KIND, "the images of its class"),
    "a type that nobody knows": (a_claim(), a_class(), None, "its type"),
    "a class without security groups": (
        a_claim(),
        a_class(securityGroups=[]),
        KIND,
        "the security groups of its class",
    ),
    "a class without subnets": (a_claim(), a_class(subnets=[]), KIND, "the subnets of its class"),
}


@pytest.mark.parametrize(("one", "of", "kind", "what"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_not_judged(
    one: NodeClaim, of: EC2NodeClass, kind: InstanceType | None, what: str
) -> None:
    with pytest.raises(drift.NotJudgedError, match=what):
        drift.drifted(one, of, INSTANCE, kind)


HIDDEN = {
    "groups": (replace(INSTANCE, security_group_ids=()), "its security groups"),
    "subnet": (replace(INSTANCE, subnet_id=""), "its subnet"),
}


@pytest.mark.parametrize(("instance", "what"), HIDDEN.values(), ids=HIDDEN)
def test_what_ec2_does_not_describe_of_an_instance_is_not_judged(instance: Ec2Instance, what: str) -> None:
    with pytest.raises(drift.NotJudgedError, match=what):
        drift.drifted(a_claim(), a_class(), instance, KIND)


class Source:
    """EC2, as far as the inventory asks it."""

    def __init__(self, *instances: Ec2Instance) -> None:
        self.instances = {one.id: one for one in instances}
        self.asked = 0
        self.error: CloudError | None = None

    def list(self) -> Sequence[Ec2Instance]:
        return list(self.instances.values())

    def get(self, provider_id: str) -> Ec2Instance:
        self.asked += 1
        if self.error is not None:
            raise self.error
        found = self.instances.get(provider_id.rpartition("/")[2])
        if found is None:
            raise InstanceNotFoundError(provider_id)
        return found


def judged(source: Source, one: NodeClaim, of: EC2NodeClass | None, *, listed: bool = True) -> str:
    inventory = Inventory(source, FakeClock())
    there = source.instances
    if not listed:
        source.instances = {}
    inventory.refresh()
    source.instances = {name: replace(one, reservation_id="") for name, one in there.items()} if listed else there
    return DriftJudge(inventory, lambda _: of, lambda _: (KIND,), lambda _: "")(one)


def test_the_judge_asks_ec2_only_for_instances_that_were_not_listed() -> None:
    source = Source(INSTANCE)
    other = a_class(securityGroups=[{"id": "sg-3"}])
    assert judged(source, a_claim(), other) == drift.SECURITY_GROUP
    assert source.asked == 0
    assert judged(source, a_claim(), other, listed=False) == drift.SECURITY_GROUP
    assert source.asked == 1


def test_the_first_question_has_all_instances_listed() -> None:
    source = Source(INSTANCE)
    inventory = Inventory(source, FakeClock())
    assert inventory.find(INSTANCE.provider_id) == INSTANCE
    assert inventory.listed() == (INSTANCE,)
    assert source.asked == 0


def test_a_reservation_is_left_only_on_ec2s_newest_word() -> None:
    source = Source(replace(INSTANCE, capacity_type="reserved", reservation_id="cr-1"))
    assert judged(source, a_claim(), a_class()) == "", "it has left the reservation since the list"
    assert source.asked == 1
    source = Source(replace(INSTANCE, capacity_type="reserved", reservation_id="cr-1"))
    assert judged(source, a_claim(), a_class(), listed=False) == drift.RESERVATION


def test_the_hash_is_judged_without_ec2() -> None:
    source = Source()
    source.error = CloudError("throttled")
    assert judged(source, a_claim(), a_class(OTHER_HASH), listed=False) == NODE_CLASS
    assert source.asked == 0


def test_an_instance_that_is_gone_has_not_drifted() -> None:
    assert judged(Source(), a_claim(), a_class(), listed=False) == ""


def test_what_ec2_does_not_say_is_not_judged() -> None:
    """And what was judged before stays."""
    source = Source()
    source.error = CloudError("throttled")
    with pytest.raises(CloudError, match="throttled"):
        judged(source, a_claim(), a_class(), listed=False)


def test_what_a_class_does_not_know_yet_is_not_judged() -> None:
    with pytest.raises(CloudError, match="the subnets of its class"):
        judged(Source(INSTANCE), a_claim(), a_class(subnets=[]))


def test_without_a_class_or_a_pool_nothing_drifts() -> None:
    source = Source(INSTANCE)
    assert judged(source, a_claim(), None) == ""
    orphan = msgspec.structs.replace(a_claim(), metadata=msgspec.structs.replace(a_claim().metadata, labels={}))
    assert judged(source, orphan, a_class(OTHER_HASH)) == ""
