"""Launches over HTTP against the emulator: how many calls, what hangs for whom, what is left after a crash at any point."""

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.ec2 import NODECLASS_TAG, EC2NodeClass, SubnetStatus
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition
from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    LaunchUnderWayError,
)
from provisioner.cloudprovider.overlays import Change, PriceChange, changed_type
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2 import labels
from provisioner.ec2.instances.instances import InstanceUnseenError
from provisioner.ec2.launch.pace import FIRST_PAUSE
from provisioner.ec2.market.unavailable_offerings import OfferingKey, OfferingStanding
from provisioner.ec2.nodeclass.discovery import DiscoveryError
from provisioner.ec2.nodeclass.subnets import Subnet
from provisioner.lifecycle.garbage_collection import ClaimCollector
from provisioner.values.resources import Resources
from tests.support.cluster import World, node
from tests.support.cluster import claim as registered_claim
from tests.support.ec2 import Ec2, Fault
from tests.support.eventually import PATIENCE as CROWDED
from tests.support.eventually import eventually
from tests.support.launching import (
    ABSENT,
    ATTEMPTS,
    CLOCK,
    Claims,
    Ground,
    Kill,
    Rig,
    alive,
    known_everywhere,
    node_class_of,
    rig,
)
from tests.support.worldserver import WorldServer

pytest_plugins = ["tests.support.grounds"]

TYPE = names.INSTANCE_TYPE_LABEL
DEVICE = "example.com/device"
SMALL = ["m5.large", "m6g.large", "c5.large", "c6g.large"]


def settled(ec2: Ec2, claims: Claims) -> None:
    """Every claim has one instance, every instance one claim."""
    instances = claims.claims_by_instance()
    assert set(instances.values()) <= {1}
    assert set(instances) == set(alive(ec2))


def test_five_hundred_equal_claims(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    claims.add(500)
    with rig(ground, claims, [node_class_of(ground)]) as made:
        ec2.reset_calls()
        made.start()
        assert made.wait(20), f"{len(claims.without_instance())} claims have no instance"
        calls = ec2.calls()
        print(f"500 claims in {max(made.launched_after.values()):.1f} s with {dict(calls)}")
    assert calls["CreateFleet"] <= 25
    assert calls.total() <= 150
    settled(ec2, claims)


def test_what_a_claim_is_told(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    (name,) = claims.add(1, {TYPE: ["m5.large"], names.CAPACITY_TYPE_LABEL: ["on-demand"]})
    with rig(ground, claims, [node_class_of(ground, tags={"team": "a"})]) as made:
        made.start()
        assert made.wait(15)
        instance = made.launcher.create(claims.get(name))
        assert made.wait(15, lambda: instance.provider_id in {one.provider_id for one in made.launcher.list()})
        found = made.instances.get(instance.provider_id)
        assert made.launcher.get(instance.provider_id).instance_type == "m5.large"
    assert instance.provider_id == claims.get(name).status.provider_id == found.provider_id
    assert instance.labels[TYPE] == instance.instance_type == "m5.large"
    assert instance.labels[names.ZONE_LABEL] == instance.zone == found.zone
    assert instance.labels[labels.ZONE_ID].startswith("usw2-az")
    assert instance.labels[names.CAPACITY_TYPE_LABEL] == "on-demand"
    assert instance.labels[labels.TENANCY] == "default"
    assert instance.labels[labels.CPU] == "2"
    assert instance.image_id == found.image_id
    assert instance.capacity["cpu"] == 2000
    assert instance.annotations["karpenter.k8s.aws/ec2nodeclass-hash-version"] == "v6"
    assert instance.annotations["karpenter.k8s.aws/instance-profile-name"] == ec2.vpc.profile
    assert found.profile_arn.endswith(ec2.vpc.profile)
    assert found.tags["team"] == "a"
    assert found.tags["karpenter.sh/nodepool"] == "default"
    assert found.tags["kubernetes.io/cluster/dovetail"] == "owned"
    assert found.tags["dovetail.dev/launch"].endswith("/1")


def test_claims_that_differ_in_nothing_that_ec2_sees_share_a_fleet(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    claims.add(3, {TYPE: ["m5.large"]})
    claims.add(3, {TYPE: ["m5.large"], names.OS_LABEL: ["linux"]})
    claims.add(2, {TYPE: ["c5.large"]})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
    assert ec2.calls()["CreateFleet"] == 2
    settled(ec2, claims)


def test_overlays_of_one_pool_decide_for_its_claims_alone(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    wanted = {TYPE: ["m5.large", "c6g.large"], names.CAPACITY_TYPE_LABEL: ["on-demand"]}
    (plain,), (other,) = claims.add(1, wanted), claims.add(1, wanted, pool="overlaid")

    def overlaid(pool: str, types: Sequence[InstanceType]) -> Sequence[InstanceType]:
        cheap = [Change((PriceChange(0.0, 0.0001),) * len(one.offerings), Resources.of({DEVICE: 2})) for one in types]
        meant = [pool == "overlaid" and one.name == "m5.large" for one in types]
        return tuple(changed_type(one, cheap[i] if meant[i] else Change()) for i, one in enumerate(types))

    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.overlaid = overlaid
        made.start()
        assert made.wait(20), claims.errors
        instances = [made.launcher.create(claims.get(name)) for name in (plain, other)]
    assert [(one.instance_type, one.capacity.amount(DEVICE)) for one in instances] == [
        ("c6g.large", 0),
        ("m5.large", 2),
    ]


def test_each_architecture_gets_its_own_image(ec2: Ec2, ground: Ground) -> None:
    """Two claims of one order each, and one order that allows both."""
    claims = Claims()
    claims.add(2, {TYPE: ["m6g.large"]})
    claims.add(2, {TYPE: ["m5.large"]})
    claims.add(2, {TYPE: ["c6g.large", "c5.large"]})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15), claims.errors
        found = alive(ec2)
        images: dict[str, str] = {}

        def all_described() -> bool:
            images.update({one.id: one.image_id for one in made.instances.list()})
            return found.keys() <= images.keys()

        assert made.wait(15, all_described), (found.keys(), images.keys())
    assert {one["arch"] for one in found.values()} == {"x86_64", "arm64"}
    words = {"x86_64": "amd64", "arm64": "arm64"}
    assert {one: images[one] for one in found} == {one: ground.images[words[row["arch"]]] for one, row in found.items()}
    settled(ec2, claims)


def test_a_class_that_has_no_image_for_one_of_the_types(ec2: Ec2, ground: Ground) -> None:
    """It has images for one architecture; the claim allows types of both, and the cheapest is of the other."""
    claims = Claims()
    claims.add(2, {TYPE: ["m6g.large", "m5.large"], names.ARCH_LABEL: ["amd64", "arm64"]})
    node_class = node_class_of(ground, images={"amd64": ground.images["amd64"]})
    with rig(ground, claims, [node_class]) as made:
        assert {"m6g.large", "m5.large"} <= {one.name for one in made.market.types(node_class)}
        made.start()
        assert made.wait(15), claims.errors
    assert {one["type"] for one in alive(ec2).values()} == {"m5.large"}
    settled(ec2, claims)


def test_a_class_whose_template_hangs_delays_no_other(ec2: Ec2, ground: Ground) -> None:
    classes = [node_class_of(ground, "good"), node_class_of(ground, "bad")]
    with_good, with_both = Claims(), Claims()
    with_good.add(20, {TYPE: ["m5.large"]}, pool="good", node_class="good")
    with rig(ground, with_good, classes) as alone:
        alone.start()
        assert alone.wait(15)
        normal = max(alone.launched_after.values())
    good = set(with_both.add(20, {TYPE: ["m5.xlarge"]}, pool="good", node_class="good"))
    for number in range(20):  # of many pools, so that they cannot share a template
        with_both.add(1, {TYPE: ["m5.large"]}, pool=f"bad{number}", node_class="bad")
    ec2.script([Fault("CreateLaunchTemplate", "hang", seconds=30, match={"contains": '"bad"'})])
    with rig(ground, with_both, classes) as made:
        made.start()
        assert made.wait(10, lambda: not good & set(with_both.without_instance()))
        took = max(made.launched_after[name] for name in good)
        print(f"normal {normal:.2f} s, beside a class that hangs {took:.2f} s")
        assert took <= normal + 1.0 * CROWDED, "not for the 30 s that the other hangs"
        assert len(with_both.without_instance()) == 20


def test_templates_that_somebody_deleted_are_made_again(ec2: Ec2, ground: Ground) -> None:
    claims, client = Claims(), ground.aws.client("ec2")
    claims.add(2, {TYPE: ["m5.large"]})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        for one in client.describe_launch_templates()["LaunchTemplates"]:
            client.delete_launch_template(LaunchTemplateName=one["LaunchTemplateName"])
        for name in claims.add(2, {TYPE: ["m5.large"]}):
            made.launcher.listen(made.reconcile_now)
            made.reconcile_now(name)
        assert made.wait(15)
    settled(ec2, claims)


def test_templates_go_with_their_class(ec2: Ec2, ground: Ground) -> None:
    """Those of other classes, and those that others made, stay; what was just made is told of late."""
    claims, client = Claims(), ground.aws.client("ec2")
    claims.add(1, {TYPE: ["m5.large"]}, node_class="leaving")
    foreign = "karpenter.k8s.aws/1234"
    tags = [{"Key": "eks:eks-cluster-name", "Value": "dovetail"}]
    client.create_launch_template(
        LaunchTemplateName=foreign,
        LaunchTemplateData={"ImageId": "ami-1"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )

    def listed() -> dict[str, str]:
        """The class of every template that EC2 tells of; "" where it has none."""
        found = client.describe_launch_templates()["LaunchTemplates"]
        return {
            one["LaunchTemplateName"]: {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}.get(NODECLASS_TAG, "")
            for one in found
        }

    try:
        with rig(ground, claims, [node_class_of(ground, "leaving")]) as made:
            made.start()
            assert made.wait(15)
            eventually(lambda: {"", "leaving"} <= set(listed().values()), "EC2 tells of both templates", 60)
            others = {"default", *listed().values()} - {"leaving"}
            made.templates.clean({*others, "leaving"})
            assert "leaving" in listed().values()
            assert made.templates.clean(others) >= 1
        assert "leaving" not in listed().values()
        assert foreign in listed()
    finally:
        client.delete_launch_template(LaunchTemplateName=foreign)


def test_a_partial_fleet(ec2: Ec2, fresh_ground: Ground) -> None:
    """Three of ten come at once; the others wait in place and come when there is capacity."""
    claims = Claims()
    claims.add(10, {TYPE: ["m5.large"], names.ZONE_LABEL: ["us-west-2a"], names.CAPACITY_TYPE_LABEL: ["on-demand"]})
    ec2.script([Fault("", "shortage", match={"instance-type": "m5.large"}, available=3)])
    with rig(fresh_ground, claims, [node_class_of(fresh_ground)]) as made:
        made.start()
        assert made.wait(10, lambda: len(claims.claims_by_instance()) == 3)
        assert made.wait(5, lambda: len(claims.errors) >= 7)
        waiting = [claims.errors[name] for name in claims.without_instance()]
        assert all(
            isinstance(error, InsufficientCapacityError) and error.retry_after is not None for error in waiting
        ), waiting
    settled(ec2, claims)


def test_prefixes_go_to_the_subnet_that_has_contiguous_addresses(ec2: Ec2, fresh_ground: Ground) -> None:
    """The one that has more free addresses has no 16 of them in a row: it is left alone, and no launch is given up."""
    scattered, whole = (ec2.add_subnet("us-west-2a", cidr, {}) for cidr in ("10.0.210.0/24", "10.0.211.0/25"))
    ec2.scatter_addresses(scattered)
    node_class = node_class_of(fresh_ground, ipPrefixCount=1)
    both = tuple(SubnetStatus(id=one, zone="us-west-2a") for one in (scattered, whole))
    node_class = msgspec.structs.replace(node_class, status=msgspec.structs.replace(node_class.status, subnets=both))
    claims = Claims()
    claims.add(2, {TYPE: ["m5.large"], names.CAPACITY_TYPE_LABEL: ["on-demand"]})
    with rig(fresh_ground, claims, [node_class]) as made:
        rows = ec2.client("ec2").describe_subnets(SubnetIds=[scattered, whole])["Subnets"]
        made.subnets.note(map(Subnet.of, rows), CLOCK.now())
        made.start()
        assert made.wait(10), claims.errors
        assert not made.shortages.subnet_open(scattered, CLOCK.now(), prefixes=True)
        assert all(isinstance(one, InsufficientCapacityError | LaunchUnderWayError) for one in made.told), made.told
    assert {one["subnet"] for one in ec2.alive()} == {whole}
    settled(ec2, claims)


def test_what_can_never_be_launched_says_so(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    (name,) = claims.add(1, {TYPE: ["m5.large"], names.ZONE_LABEL: ["us-west-2z"]})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(5, lambda: isinstance(claims.errors.get(name), InsufficientCapacityError))
        assert claims.errors[name].retry_after is None
    assert not ec2.calls()["CreateFleet"]


@dataclass(frozen=True)
class Trouble:
    """A fault that goes away, and what a claim is told meanwhile."""

    fault: Fault
    reason: str = ""


TROUBLES = {
    "CreateFleet is throttled": Trouble(Fault("CreateFleet", "throttled", times=ATTEMPTS), "RequestLimitExceeded"),
    "CreateFleet fails": Trouble(Fault("CreateFleet", "500", times=ATTEMPTS), "InternalError"),
    "CreateFleet is denied": Trouble(Fault("CreateFleet", "denied", times=1), "Unauthorized"),
    "CreateFleet works and nobody hears": Trouble(
        Fault("CreateFleet", "timeout-after-effect", times=ATTEMPTS), "LaunchFailed"
    ),
    "CreateLaunchTemplate is throttled": Trouble(
        Fault("CreateLaunchTemplate", "throttled", times=2 * ATTEMPTS), "RequestLimitExceeded"
    ),
    "CreateLaunchTemplate fails": Trouble(Fault("CreateLaunchTemplate", "500", times=2 * ATTEMPTS), "InternalError"),
    "CreateLaunchTemplate is denied": Trouble(Fault("CreateLaunchTemplate", "denied", times=1), "Unauthorized"),
    "CreateLaunchTemplate works and nobody hears": Trouble(
        Fault("CreateLaunchTemplate", "timeout-after-effect", times=1)
    ),
    "the template is not found": Trouble(
        Fault("CreateFleet", "error", times=1, code="InvalidLaunchTemplateId.NotFound", message="no")
    ),
    "the account is not verified": Trouble(
        Fault("CreateFleet", "error", times=1, code="PendingVerification", message="wait"), "AccountPendingVerification"
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_trouble_that_passes(ec2: Ec2, ground: Ground, trouble: Trouble) -> None:
    claims = Claims()
    claims.add(3, {TYPE: SMALL})
    ec2.script([trouble.fault])
    with rig(ground, claims, [node_class_of(ground, tags={"test": str(uuid.uuid4())})]) as made:
        made.start()
        assert made.wait(40), (claims.errors, ec2.calls())
        reasons = {error.reason for error in made.told if isinstance(error, CreateError | LaunchUnderWayError)} - {""}
        assert reasons == ({trouble.reason} if trouble.reason else set())
    settled(ec2, claims)


def test_the_quota_of_fleets_holds_everybody(ec2: Ec2, fresh_ground: Ground) -> None:
    claims = Claims()
    claims.add(3, {TYPE: ["m5.large"]})
    ec2.script([Fault("CreateFleet", "error", times=1, code="MaxFleetCountExceeded", message="full")])
    with rig(fresh_ground, claims, [node_class_of(fresh_ground)]) as made:
        made.start()
        assert made.wait(10, lambda: any("quota" in str(error) for error in claims.errors.values()))
        claims.add(3, {TYPE: ["c5.large"]}, pool="other")
        for claim in claims.all():
            made.reconcile_now(claim.metadata.name)
        CLOCK.sleep(1.5)
        assert ec2.calls()["CreateFleet"] == 1
        fresh_ground.market.shortages.succeeded(OfferingKey("spot", "m5.large", "us-west-2a"), CLOCK.now(), 1)
        for claim in claims.all():
            made.reconcile_now(claim.metadata.name)
        assert made.wait(20)
    settled(ec2, claims)


CRASHES = {
    "before any template is made": Kill("create_launch_template", effect=False),
    "after the first template was made": Kill("create_launch_template"),
    "before the first mark": Kill("mark", effect=False),
    "after the first mark": Kill("mark"),
    "in the middle of the marks": Kill("mark", after=4),
    "after the last mark": Kill("mark", after=8),
    "before CreateFleet": Kill("create_fleet", effect=False),
    "after CreateFleet": Kill("create_fleet"),
}


MEANWHILE = {
    "all as before": (False, False),
    "other offerings meanwhile": (True, False),
    "other offerings, and EC2 describes late": (True, True),
}
SECOND_LOOKS = {"after CreateFleet", "before CreateFleet"}
LIVES = {
    f"{when}, {what}": (kill, *meanwhile)
    for when, kill in CRASHES.items()
    for what, meanwhile in MEANWHILE.items()
    if when in SECOND_LOOKS or meanwhile == (False, False)
}


@pytest.mark.parametrize(("kill", "changed", "stale"), LIVES.values(), ids=LIVES)
def test_a_crash(ec2: Ec2, ground: Ground, kill: Kill, changed: bool, stale: bool) -> None:
    claims, node_class = Claims(), node_class_of(ground, tags={"crash": str(uuid.uuid4())})
    claims.add(8, {TYPE: SMALL})
    with rig(ground, claims, [node_class], kill=kill) as first:
        first.start()
        assert first.wait(15, first.mortal.dead.is_set)
        assert first.wait(5, lambda: not first.launcher_busy())
    # none, unless the machine was so slow that claims were ordered in two batches
    assert len(claims.claims_by_instance()) < 8
    dear = [offer(one) for one in SMALL[2:]] if changed else []
    for one in dear:
        ground.market.shortages.failed(one, CLOCK.now())
    if stale:
        ec2.script([Fault("DescribeInstances", "stale", times=2, seconds=30)])
    try:
        with rig(ground, claims, [node_class]) as second:
            second.start()
            assert second.wait(40), (claims.errors, ec2.calls())
    finally:
        for one in dear * 4:
            ground.market.shortages.succeeded(one, CLOCK.now(), 1)
    assert len(claims.claims_by_instance()) == 8
    settled(ec2, claims)


def offer(instance_type: str) -> OfferingKey:
    return OfferingKey("spot", instance_type, "us-west-2a")


def test_a_claim_that_goes_before_its_instance_is_known(ec2: Ec2, ground: Ground) -> None:
    """The process dies after CreateFleet, then one of the claims is deleted: its instance goes, the others are dealt."""
    claims, node_class = Claims(), node_class_of(ground)
    chosen, *_ = claims.add(3, {TYPE: SMALL})
    with rig(ground, claims, [node_class], kill=Kill("create_fleet")) as first:
        first.start()
        assert first.wait(15, first.mortal.dead.is_set)
    assert len(alive(ec2)) == 3
    with rig(ground, claims, [node_class]) as second:
        claims.deleted.add(chosen)

        def gone() -> bool:
            second.launcher.delete(claims.get(chosen))
            return len(alive(ec2)) == 2

        assert second.wait(15, gone)
        second.start()
        assert second.wait(20, lambda: len(claims.claims_by_instance()) == 2)
    settled(ec2, claims)


ENDS = {
    "TerminateInstances is throttled": Fault("TerminateInstances", "throttled", times=ATTEMPTS),
    "TerminateInstances fails": Fault("TerminateInstances", "500", times=ATTEMPTS),
    "TerminateInstances is denied": Fault("TerminateInstances", "denied", times=1),
    "TerminateInstances works and nobody hears": Fault("TerminateInstances", "timeout-after-effect", times=ATTEMPTS),
    "TerminateInstances knows nothing yet": Fault("TerminateInstances", "not-found", times=1),
    "DescribeInstances is throttled": Fault("DescribeInstances", "throttled", times=ATTEMPTS),
    "DescribeInstances fails": Fault("DescribeInstances", "500", times=ATTEMPTS),
    "DescribeInstances is denied": Fault("DescribeInstances", "denied", times=1),
    "DescribeInstances is late": Fault("DescribeInstances", "stale", times=2, seconds=60),
}


@pytest.mark.parametrize("fault", ENDS.values(), ids=ENDS)
def test_an_instance_ends_in_spite_of_trouble(ec2: Ec2, ground: Ground, fault: Fault) -> None:
    claims = Claims()
    (name,) = claims.add(1, {TYPE: SMALL})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        known_everywhere(ec2)
        ec2.script([fault])
        for _ in range(20):  # as the lifecycle does until it is told that the instance is gone
            try:
                made.launcher.delete(claims.get(name))
            except InstanceNotFoundError:
                break
            except CloudError:
                continue
            if not alive(ec2):
                break
            CLOCK.sleep(0.1)
    assert not alive(ec2)


AFTER_A_CRASH = {
    "DescribeInstances is throttled": (True, Fault("DescribeInstances", "throttled", times=ATTEMPTS)),
    "DescribeInstances fails": (True, Fault("DescribeInstances", "500", times=ATTEMPTS)),
    "DescribeInstances is denied": (True, Fault("DescribeInstances", "denied", times=1)),
    "CreateFleet is throttled": (False, Fault("CreateFleet", "throttled", times=ATTEMPTS)),
    "CreateFleet fails": (False, Fault("CreateFleet", "500", times=ATTEMPTS)),
    "CreateFleet is denied": (False, Fault("CreateFleet", "denied", times=1)),
    "CreateFleet works and nobody hears": (False, Fault("CreateFleet", "timeout-after-effect", times=ATTEMPTS)),
}


@pytest.mark.parametrize(("effect", "fault"), AFTER_A_CRASH.values(), ids=AFTER_A_CRASH)
def test_trouble_after_a_crash(ec2: Ec2, ground: Ground, effect: bool, fault: Fault) -> None:
    claims, node_class = Claims(), node_class_of(ground)
    claims.add(4, {TYPE: SMALL})
    with rig(ground, claims, [node_class], kill=Kill("create_fleet", effect=effect)) as first:
        first.start()
        assert first.wait(15, first.mortal.dead.is_set)
        assert first.wait(5, lambda: not first.launcher_busy())
    ec2.script([fault])
    with rig(ground, claims, [node_class]) as second:
        second.start()
        assert second.wait(40), (claims.errors, ec2.calls())
    settled(ec2, claims)


TEMPLATE_ENDS = {
    "DeleteLaunchTemplate is denied": Fault("DeleteLaunchTemplate", "denied", times=1),
    "DeleteLaunchTemplate fails": Fault("DeleteLaunchTemplate", "500", times=ATTEMPTS),
    "DeleteLaunchTemplate works and nobody hears": Fault("DeleteLaunchTemplate", "timeout-after-effect", times=1),
    "DeleteLaunchTemplate finds nothing": Fault("DeleteLaunchTemplate", "not-found", times=1),
}


@pytest.mark.parametrize("fault", TEMPLATE_ENDS.values(), ids=TEMPLATE_ENDS)
def test_a_template_goes_in_spite_of_trouble(ec2: Ec2, ground: Ground, fault: Fault) -> None:
    claims, client = Claims(), ground.aws.client("ec2")
    claims.add(1, {TYPE: ["m5.large"]}, node_class="going")
    with rig(ground, claims, [node_class_of(ground, "going")]) as made:
        made.start()
        assert made.wait(15)
        known_everywhere(ec2)  # "not found" of what no list shows yet is left to `clean`
        ec2.script([fault])
        with contextlib.suppress(DiscoveryError):
            made.templates.drop("going")
        made.templates.drop("going")
    tag = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": ["going"]}]
    assert not client.describe_launch_templates(Filters=tag)["LaunchTemplates"]


def test_a_template_goes_that_no_list_shows_yet(ec2: Ec2, ground: Ground) -> None:
    claims, client = Claims(), ground.aws.client("ec2")
    claims.add(1, {TYPE: ["m5.large"]}, node_class="hidden")
    with rig(ground, claims, [node_class_of(ground, "hidden")]) as made:
        made.start()
        assert made.wait(15)
        ec2.script([Fault("DescribeLaunchTemplates", "stale", times=1, seconds=1e6)])
        assert made.templates.drop("hidden") == 1
    assert ec2.hits()[0][1] == 1
    tag = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": ["hidden"]}]
    assert not client.describe_launch_templates(Filters=tag)["LaunchTemplates"]


def registered(claim: NodeClaim) -> NodeClaim:
    """The claim once its Node has joined."""
    joined = Condition(type=names.REGISTERED, status="True", last_transition_time=CLOCK.now())
    status = msgspec.structs.replace(claim.status, conditions=(*claim.status.conditions, joined))
    return msgspec.structs.replace(claim, status=status)


def test_the_end_of_an_instance(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    claims.add(5, {TYPE: SMALL})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        ec2.reset_calls()
        every = claims.all()
        known_everywhere(ec2)
        made.in_parallel(made.launcher.delete, every)
        assert made.wait(5, lambda: not alive(ec2))
        assert ec2.calls() == {"DescribeInstances": 1, "TerminateInstances": 1}
        ec2.skip(60)
        for claim in every:  # EC2 shows it as terminated
            assert made.wait(10, lambda claim=claim: ended(made, claim))  # type: ignore[misc]
        ec2.skip(7200)
        with pytest.raises(InstanceUnseenError):  # EC2 has forgotten it: "not found" may still mean "not yet"
            made.launcher.delete(every[0])
        began = CLOCK.monotonic()
        assert made.wait(10 * ABSENT, lambda: ended(made, every[0]))
        assert CLOCK.monotonic() - began >= ABSENT - 0.5


def ended(made: Rig, claim: NodeClaim) -> bool:
    """Whether the instance of a claim is told to be gone."""
    try:
        made.launcher.delete(claim)
    except InstanceNotFoundError:
        return True
    except CloudError:
        return False
    return False


@dataclass(frozen=True)
class Ended:
    """What follows from an instance that ends at launch: whether its lane pauses, whether its offering is closed."""

    pauses: bool = False
    closes: bool = False


ENDED = {
    "Client.InternalError": Ended(pauses=True),
    "Server.InternalError": Ended(pauses=True, closes=True),
    "Server.InsufficientInstanceCapacity": Ended(closes=True),
    "Client.UserInitiatedShutdown": Ended(),
}


@pytest.mark.parametrize("code", ENDED)
def test_an_instance_that_ends_at_launch(ec2: Ec2, fresh_ground: Ground, code: str) -> None:
    want, claims = ENDED[code], Claims()
    bought = {TYPE: ["m5.large"], names.ZONE_LABEL: ["us-west-2a"], names.CAPACITY_TYPE_LABEL: ["on-demand"]}
    (name,) = claims.add(1, bought)
    ec2.script([Fault("", "ends-at-launch", code=code, times=1)])
    node_class = node_class_of(fresh_ground)
    with rig(fresh_ground, claims, [node_class]) as made:
        made.start()
        assert made.wait(15)
        gone = claims.change(
            name, labels={**claims.get(name).metadata.labels, **{key: one for key, (one,) in bought.items()}}
        )

        def has_ended() -> bool:
            ec2.skip(20)
            return ended(made, gone)

        assert made.wait(10, has_ended)
        offer = OfferingKey("on-demand", "m5.large", "us-west-2a")
        assert (made.shortages.standing(offer, CLOCK.now()) is OfferingStanding.CLOSED) is want.closes
        claims.deleted.add(name)
        (second,) = claims.add(1, {TYPE: ["c5.large"]})
        made.reconcile_now(second)
        if not want.pauses:
            assert made.wait(10, lambda: second not in claims.without_instance())
            return
        assert made.wait(5, lambda: isinstance(claims.errors.get(second), CreateError))
        error = cast(CreateError, claims.errors[second])
        assert "EC2 terminated instance" in error.message
        assert code in error.message
        assert ("KMS key" in error.message) == (code == "Client.InternalError")
        assert 5 < cast(float, error.retry_after) <= FIRST_PAUSE
        assert ec2.calls()["CreateFleet"] == 1
        mend_class(made, node_class)
        (third,) = claims.add(1, {TYPE: ["c5.large"]})
        made.reconcile_now(third)
        assert made.wait(10, lambda: third not in claims.without_instance()), "its class was mended"


def test_a_new_leader_orders_no_full_batch_where_the_pool_says_that_instances_end_at_launch(
    ec2: Ec2, fresh_ground: Ground
) -> None:
    claims, node_class = Claims(), node_class_of(fresh_ground)
    names_of = claims.add(3, {TYPE: SMALL})
    with rig(fresh_ground, claims, [node_class]) as made:
        made.failing = "EC2 terminated instance i-1 at launch: Client.InternalError"
        made.start()
        assert made.wait(15, lambda: all(isinstance(claims.errors.get(name), CreateError) for name in names_of))
        for name in names_of:
            error = cast(CreateError, claims.errors[name])
            assert error.message == made.failing
            assert 5 < cast(float, error.retry_after) <= FIRST_PAUSE
        assert ec2.calls()["CreateFleet"] == 0
        mend_class(made, node_class)
        made.failing = ""
        for name in names_of:
            made.reconcile_now(name)
        assert made.wait(10), "its class was mended"


def mend_class(made: Rig, node_class: EC2NodeClass) -> None:
    """It has another generation from now on, and is Ready."""
    newer = msgspec.structs.replace(node_class.metadata, generation=2)
    judged = [msgspec.structs.replace(one, observed_generation=2) for one in node_class.status.conditions]
    status = msgspec.structs.replace(node_class.status, conditions=tuple(judged))
    made.classes["default"] = msgspec.structs.replace(node_class, metadata=newer, status=status)


def test_a_registered_instance_that_ec2_does_not_describe_for_a_while_is_not_gone(ec2: Ec2, ground: Ground) -> None:
    """Every answer lacks it for as long as reads may be behind, in each of three processes; then all is as before."""
    claims = Claims()
    (name,) = claims.add(1, {TYPE: SMALL})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
    known_everywhere(ec2)
    claim = registered(claims.get(name))
    for _ in range(3):
        ec2.script([Fault("", "unseen")])
        with rig(ground, claims, [node_class_of(ground)]) as made:
            until = CLOCK.monotonic() + 0.9 * ABSENT
            while CLOCK.monotonic() < until:
                with pytest.raises(InstanceUnseenError):
                    made.launcher.get(claim.status.provider_id)
                CLOCK.sleep(0.1)
            ec2.script()
            assert made.launcher.get(claim.status.provider_id).provider_id == claim.status.provider_id
            ec2.script([Fault("", "unseen")])
            CLOCK.sleep(0.2 * ABSENT)
            with pytest.raises(InstanceUnseenError):  # from the beginning
                made.launcher.get(claim.status.provider_id)
    assert len(alive(ec2)) == 1


class Provider:
    """What the collector of claims asks, for claims that say they are kwok's."""

    name = "aws"

    def __init__(self, rig: Rig) -> None:
        self.list, self.get = rig.launcher.list, rig.launcher.get

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset({("karpenter.kwok.sh", "KWOKNodeClass")})


def test_a_claim_is_collected_when_its_instance_is_gone_and_not_when_ec2_hides_it(ec2: Ec2, ground: Ground) -> None:
    claims, server = Claims(), WorldServer(World())
    (name,) = claims.add(1, {TYPE: SMALL})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        known_everywhere(ec2)
        there = claims.get(name).status.provider_id
        server.put(registered_claim("a", provider_id=there, true=(names.LAUNCHED, names.REGISTERED)))
        server.put(node("a", provider_id=there, ready=False))
        collector = ClaimCollector(
            server.world.cluster, cast(Any, Provider(made)), server.writer, uncertain=lambda _: False
        )
        ec2.script([Fault("", "unseen")])
        until = CLOCK.monotonic() + 0.9 * ABSENT
        while CLOCK.monotonic() < until:
            collector.poll()
            CLOCK.sleep(0.2)
        assert server.has("nodeclaims", "a")
        ec2.script()
        collector.poll()
        assert server.has("nodeclaims", "a")
        ground.aws.client("ec2").terminate_instances(InstanceIds=list(alive(ec2)))
        ec2.skip(60)

        def collected() -> bool:
            collector.poll()
            return not server.has("nodeclaims", "a")

        assert made.wait(10, collected), "EC2 shows it as terminated"


def test_an_instance_that_ec2_does_not_describe_is_ended_all_the_same(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    (name,) = claims.add(1, {TYPE: SMALL})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        known_everywhere(ec2)
        ec2.script([Fault("", "unseen")])
        made.launcher.delete(claims.get(name))
        assert not alive(ec2)


def test_a_claim_that_was_never_launched_has_no_instance(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    (name,) = claims.add(1)
    with rig(ground, claims, [node_class_of(ground)]) as made, pytest.raises(InstanceNotFoundError):
        made.launcher.delete(claims.get(name))
    assert not ec2.calls()["TerminateInstances"]


def test_tags_are_gathered(ec2: Ec2, ground: Ground) -> None:
    claims = Claims()
    claims.add(4, {TYPE: SMALL})
    with rig(ground, claims, [node_class_of(ground)]) as made:
        made.start()
        assert made.wait(15)
        known_everywhere(ec2)
        ec2.reset_calls()
        made.in_parallel(
            lambda name: made.instances.tag(name, {"eks:eks-cluster-name": "dovetail"}), sorted(alive(ec2))
        )
        assert ec2.calls() == {"CreateTags": 1}


def test_a_pool_that_gets_nothing_slows_no_other(ec2: Ec2, fresh_ground: Ground) -> None:
    claims = Claims()
    short = {*claims.add(5, {TYPE: ["c5.large"]}, pool="short")}
    ec2.script([Fault("", "shortage", match={"instance-type": "c5.large"})])
    with rig(fresh_ground, claims, [node_class_of(fresh_ground)]) as made:
        made.start()
        assert made.wait(10, lambda: any(isinstance(error, InsufficientCapacityError) for error in made.told))
        for number in range(60):  # of many pools, so that each is a fleet of its own
            claims.add(1, {TYPE: ["m5.large"]}, pool=f"healthy{number}")
        for claim in claims.all():
            made.reconcile_now(claim.metadata.name)
        assert made.wait(20, lambda: {*claims.without_instance()} == short), len(claims.without_instance())
    settled(ec2, claims)


def test_scarcity_by_the_launcher(ec2: Ec2, fresh_ground: Ground) -> None:
    """Nine of ten offerings have nothing: no claim is given up, EC2 is asked little, and not often."""
    claims = Claims()
    wanted = [one.name for one in fresh_ground.market.types(node_class_of(fresh_ground)) if one.capacity["cpu"] >= 4000]
    for pool in ("a", "b", "c"):
        claims.add(40, {TYPE: wanted}, pool=pool)
    ec2.script([Fault("", "shortage", match={"cheapest": 0.9})])
    with rig(fresh_ground, claims, [node_class_of(fresh_ground)]) as made:
        made.start()
        assert made.wait(120), made.launcher
        took = max(made.launched_after.values())
    sent = [call.at for call in ec2.log() if call.action == "CreateFleet"]
    busiest = max(sum(start <= other < start + 10 for other in sent) for start in sent)
    print(f"120 instances in {took:.0f} s with {len(sent)} calls, at most {busiest} in ten seconds")
    assert len(sent) <= 1.5 * 120
    assert busiest <= 20
    assert not [error for error in made.told if error.retry_after is None]
    settled(ec2, claims)
