"""Discovery against the emulated EC2, over HTTP: what is found, what is asked, and what a failure leaves alone."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.access.errors import FailureKind
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.nodeclass import groups, subnets
from provisioner.ec2.nodeclass.cluster import NotKnownYet
from provisioner.ec2.nodeclass.discovery import Discovery, DiscoveryError
from provisioner.ec2.nodeclass.dry_run import Rehearsal, Rehearsed
from provisioner.ec2.nodeclass.profiles import Naming, ProfileError, Profiles
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook
from tests.support.clock import FakeClock
from tests.support.ec2 import Ec2, Fault
from tests.support.eventually import eventually

MINOR: Final = 36
CLUSTER: Final = JoinedCluster("dovetail", "https://api", "Q0E=", MINOR, "10.96.0.0/16", "10.96.0.10")
TAGS: Final = {"karpenter.sh/discovery": "dovetail"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with Ec2.start(data="small", rate_limits=False) as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))  # EC2 deprecates images by its own clock


@pytest.fixture(scope="module")
def clients(ec2: Ec2) -> Iterator[AwsClients]:
    made = AwsClients(CallPolicy("us-west-2", attempts=1), FakeClock(), ec2.session())
    yield made
    made.close()


@pytest.fixture
def aws(ec2: Ec2, clients: AwsClients) -> Iterator[AwsClients]:
    ec2.reset_calls()
    yield clients
    ec2.script()


@pytest.fixture
def discovery(aws: AwsClients, clock: FakeClock) -> Discovery:
    return fresh(aws, clock)


def fresh(aws: AwsClients, clock: FakeClock) -> Discovery:
    """As after a start of the process."""
    return Discovery(aws, clock, SubnetBook(), ReservationBook())


def class_of(**spec: Any) -> EC2NodeClass:
    """A class of its own; `status` is its status."""
    number = next(_numbers)
    base = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": TAGS}],
        "securityGroupSelectorTerms": [{"tags": TAGS}],
        "role": "KarpenterNodeRole-dovetail",
    }
    status = spec.pop("status", {})
    metadata = {"name": f"class-{number}", "uid": f"uid-{number}", "generation": 1}
    written = {key: value for key, value in {**base, **spec}.items() if value is not None}
    return msgspec.convert({"metadata": metadata, "spec": written, "status": status}, EC2NodeClass)


# --- subnets, groups, reservations, placement groups


def test_subnets_and_their_addresses(ec2: Ec2, discovery: Discovery, clock: FakeClock) -> None:
    small = ec2.add_subnet("us-west-2a", "10.0.100.0/24", {"only": "here"})
    ec2.leave_addresses(small, 7)
    (found,) = discovery.subnets(class_of(subnetSelectorTerms=[{"tags": {"only": "*"}}]))
    assert (found.id, found.zone, found.free_ips) == (small, "us-west-2a", 7)
    assert found.zone_id.startswith("usw2-az")
    assert discovery.book.free(small) == 7
    ec2.leave_addresses(small, 5)
    clock.advance(1)
    both = class_of(subnetSelectorTerms=[{"tags": TAGS}, {"id": small}])
    assert [one.id for one in discovery.subnets(both)][-1] == small
    assert {one.id for one in discovery.subnets(both)} == {*ec2.vpc.subnets.values(), small}
    assert discovery.book.free(small) == 5


def test_security_groups_by_tags_name_and_id(ec2: Ec2, discovery: Discovery) -> None:
    ec2.add_group("sg-0000000000000000a", "by-name", {"a": "b"})
    ec2.add_group("sg-0000000000000000b", "by-id", {})
    terms = [{"tags": {"a": "b"}}, {"name": "by-name"}, {"id": "sg-0000000000000000b"}]
    found = discovery.security_groups(class_of(securityGroupSelectorTerms=terms))
    assert [(one.id, one.name) for one in found] == [
        ("sg-0000000000000000a", "by-name"),
        ("sg-0000000000000000b", "by-id"),
    ]


def test_equal_questions_of_two_classes_are_one_call_a_minute(ec2: Ec2, discovery: Discovery, clock: FakeClock) -> None:
    first, second = class_of(), class_of()
    for node_class in (first, second, first):
        discovery.subnets(node_class)
        discovery.security_groups(node_class)
    assert ec2.calls() == {"DescribeSubnets": 1, "DescribeSecurityGroups": 1}
    clock.advance(60)
    discovery.subnets(first)
    assert ec2.calls()["DescribeSubnets"] == 2


def test_reservations_and_what_is_left_of_them(ec2: Ec2, discovery: Discovery, clock: FakeClock) -> None:
    wanted = ec2.add_reservation("m5.large", "us-west-2a", 3, tags={"r": "x"})
    ends = ec2.add_reservation("m5.large", "us-west-2b", 2, kind="capacity-block", seconds=1800, tags={"r": "x"})
    node_class = class_of(capacityReservationSelectorTerms=[{"tags": {"r": "x"}}, {"id": "cr-00000000000000000"}])
    found = discovery.capacity_reservations(node_class)
    assert {one.id: one.state for one in found.reservations} == {wanted: "active", ends: "expiring"}
    assert (discovery.reserved.available(wanted), discovery.reserved.available(ends)) == (3, 2)


def test_a_placement_group_is_looked_up_and_then_known(ec2: Ec2, discovery: Discovery, aws: AwsClients) -> None:
    aws.client("ec2").create_placement_group(GroupName="rack", Strategy="partition", PartitionCount=3)
    node_class = class_of(placementGroupSelector={"name": "rack"})
    with pytest.raises(NotKnownYet):
        discovery.placement_group(node_class)
    found = discovery.find_placement_group(node_class)
    assert found is not None
    assert (found.strategy, found.partitions) == ("partition", 3)
    assert discovery.placement_group(node_class) == found
    by_id = class_of(placementGroupSelector={"id": found.id})
    assert discovery.find_placement_group(by_id) == found


def test_a_placement_group_that_is_not_there(discovery: Discovery) -> None:
    node_class = class_of(placementGroupSelector={"name": "nowhere"})
    assert discovery.find_placement_group(node_class) is None
    with pytest.raises(NotKnownYet):
        discovery.placement_group(node_class)


def test_no_placement_group_is_wanted(ec2: Ec2, discovery: Discovery) -> None:
    assert discovery.find_placement_group(class_of()) is None
    assert discovery.placement_group(class_of()) is None
    assert not ec2.calls()


# --- images

ALL_OF_AL2023: Final = 5


def ids(discovery: Discovery, node_class: EC2NodeClass) -> list[str]:
    return [one.id for one in discovery.images(node_class, MINOR).amis]


def with_amis(discovery: Discovery, node_class: EC2NodeClass) -> EC2NodeClass:
    """The class as it stands after its images were found."""
    amis = msgspec.to_builtins(discovery.images(node_class, MINOR).amis)
    conditions = [{"type": "AMIsReady", "status": "True", "observedGeneration": 1}]
    status = msgspec.convert({"amis": amis, "conditions": conditions}, type(node_class.status))
    return msgspec.structs.replace(node_class, status=status)


@pytest.mark.parametrize(
    ("alias", "count"), [("al2023@latest", ALL_OF_AL2023), ("bottlerocket@latest", 5), ("windows2022@latest", 1)]
)
def test_images_of_an_alias(discovery: Discovery, alias: str, count: int) -> None:
    found = discovery.images(class_of(amiSelectorTerms=[{"alias": alias}]), MINOR)
    assert (len(found.amis), found.absent, found.failures) == (count, (), ())


def test_an_alias_of_a_version_that_is_not_there(discovery: Discovery) -> None:
    found = discovery.images(class_of(amiSelectorTerms=[{"alias": "al2023@v20010101"}]), MINOR)
    assert (found.amis, len(found.absent)) == ((), ALL_OF_AL2023)


KINDS: Final = ("throttled", "500", "denied", "not-found")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("restarted", [False, True], ids=["in the same process", "after a restart"])
@pytest.mark.parametrize("which", range(ALL_OF_AL2023))
def test_one_failed_reading_never_shrinks_the_list(
    ec2: Ec2, aws: AwsClients, clock: FakeClock, discovery: Discovery, kind: str, restarted: bool, which: int
) -> None:
    node_class = with_amis(discovery, class_of())
    before = ids(discovery, node_class)
    clock.advance(25 * 3600)
    ec2.script([Fault("GetParameter", kind, times=1, after=which)])
    assert ids(fresh(aws, clock) if restarted else discovery, node_class) == before
    assert len(before) == ALL_OF_AL2023
    assert ec2.calls()["GetParameter"] == 2 * ALL_OF_AL2023


def test_a_class_that_was_never_good_has_what_could_be_read_and_gets_the_rest_later(
    ec2: Ec2, discovery: Discovery, clock: FakeClock
) -> None:
    ec2.script([Fault("GetParameter", "throttled", times=1, after=2)])
    node_class = class_of()
    first = discovery.images(node_class, MINOR)
    assert (len(first.amis), len(first.failures)) == (ALL_OF_AL2023 - 1, 1)
    clock.advance(60)
    assert len(discovery.images(node_class, MINOR).amis) == ALL_OF_AL2023


def test_nothing_can_be_read(ec2: Ec2, discovery: Discovery) -> None:
    ec2.script([Fault("GetParameter", "denied")])
    with pytest.raises(DiscoveryError, match=r"ssm:GetParameter.*dovetail aws check"):
        discovery.images(class_of(), MINOR)


def test_images_that_were_published_are_taken_when_the_old_ones_are_deprecated(
    ec2: Ec2, discovery: Discovery, clock: FakeClock
) -> None:
    node_class = class_of()
    before = ids(discovery, node_class)
    ec2.release_images()
    clock.advance(3600)
    assert ids(discovery, node_class) == before  # a day is soon enough for a new one
    for image in before:
        ec2.deprecate_image(image)
    ec2.skip(1)
    clock.advance(60)
    assert set(ids(discovery, node_class)) == set(before)  # in doubt from now on
    clock.advance(1800)
    assert not set(ids(discovery, node_class)) & set(before)


def test_images_by_name_tags_parameter_and_id(ec2: Ec2, discovery: Discovery, aws: AwsClients) -> None:
    ec2.add_image("ami-0000000000000000a", "own-1", created="2026-01-01T00:00:00.000Z", team="a")
    ec2.add_image("ami-0000000000000000b", "own-2", created="2026-02-01T00:00:00.000Z", team="a")
    ec2.add_image("ami-0000000000000000c", "own-arm", arch="arm64", created="2026-01-15T00:00:00.000Z", team="b")
    aws.client("ssm").put_parameter(Name="/own/image", Value="ami-0000000000000000a", Type="String")
    aws.client("ssm").put_parameter(Name="/own/nothing", Value="hello", Type="String")
    cases: list[tuple[list[dict[str, Any]], list[str]]] = [
        ([{"name": "own-*"}], ["b", "c"]),
        ([{"tags": {"team": "a"}}], ["b"]),
        ([{"tags": {"team": "*"}}, {"id": "ami-0000000000000000a"}], ["b", "c"]),
        ([{"ssmParameter": "/own/image"}], ["a"]),
        ([{"id": "ami-0000000000000000a"}, {"id": "ami-0000000000000000c"}], ["c", "a"]),
        ([{"name": "own-*", "owner": "999999999999"}], []),
    ]
    for terms, want in cases:
        node_class = class_of(amiFamily="Custom", amiSelectorTerms=terms)
        assert [one[-1] for one in ids(discovery, node_class)] == want, terms
    found = discovery.images(class_of(amiFamily="Custom", amiSelectorTerms=[{"ssmParameter": "/own/nothing"}]), MINOR)
    assert found.absent == ("SSM parameter /own/nothing contains 'hello', which is not an image ID",)
    found = discovery.images(class_of(amiFamily="Custom", amiSelectorTerms=[{"ssmParameter": "/own/missing"}]), MINOR)
    assert found.absent == ("/own/missing",)


# --- calls that fail

CALLS: Final[dict[str, Callable[[Discovery, EC2NodeClass], Any]]] = {
    "DescribeSubnets": Discovery.subnets,
    "DescribeSecurityGroups": Discovery.security_groups,
    "DescribeImages": lambda discovery, node_class: discovery.images(node_class, MINOR),
    "DescribeCapacityReservations": Discovery.capacity_reservations,
    "DescribePlacementGroups": Discovery.find_placement_group,
}


@pytest.mark.parametrize("action", CALLS)
@pytest.mark.parametrize(
    ("kind", "sort"),
    [("throttled", FailureKind.THROTTLED), ("500", FailureKind.SERVER), ("denied", FailureKind.DENIED)],
)
def test_a_failed_call_says_which_and_why_and_is_not_remembered(
    ec2: Ec2, discovery: Discovery, action: str, kind: str, sort: FailureKind
) -> None:
    terms = [{"tags": {"none": "such"}}]
    node_class = class_of(capacityReservationSelectorTerms=terms, placementGroupSelector={"name": "none"})
    ec2.script([Fault(action, kind, times=1)])
    with pytest.raises(DiscoveryError) as caught:
        CALLS[action](discovery, node_class)
    assert (caught.value.action, caught.value.failure.kind) == (f"ec2:{action}", sort)
    CALLS[action](discovery, node_class)


# --- instance profiles


@pytest.fixture
def profiles(aws: AwsClients, clock: FakeClock) -> Profiles:
    return profiles_of(aws, clock)


def profiles_of(aws: AwsClients, clock: FakeClock) -> Profiles:
    return Profiles(aws, Naming("dovetail", "us-west-2"), clock.now)


def described(aws: AwsClients, name: str) -> tuple[str, list[str]]:
    found = aws.client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    return found["Path"], [role["RoleName"] for role in found["Roles"]]


def names_of(aws: AwsClients, path: str = "/") -> set[str]:
    rows = aws.client("iam").list_instance_profiles()["InstanceProfiles"]
    return {row["InstanceProfileName"] for row in rows if row["Path"].startswith(path)}


def test_a_profile_is_made_once(ec2: Ec2, aws: AwsClients, profiles: Profiles, clock: FakeClock) -> None:
    node_class = class_of(tags={"team": "a"})
    name = profiles.ensure(node_class)
    assert profiles.ensure(node_class) == name
    assert described(aws, name) == (
        f"/karpenter/us-west-2/dovetail/{node_class.metadata.uid}/",
        ["KarpenterNodeRole-dovetail"],
    )
    tags = aws.client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Tags"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == profiles.naming.tags(node_class)
    assert ec2.calls()["CreateInstanceProfile"] == 1
    assert profiles_of(aws, clock).ensure(node_class) == name  # a restart before the name was written down
    assert ec2.calls()["AddRoleToInstanceProfile"] == 1


@pytest.mark.parametrize("action", ["CreateInstanceProfile", "AddRoleToInstanceProfile"])
@pytest.mark.parametrize("kind", ["throttled", "500", "timeout-after-effect"])
def test_a_failure_in_between_is_continued(
    ec2: Ec2, aws: AwsClients, profiles: Profiles, action: str, kind: str
) -> None:
    node_class = class_of()
    ec2.script([Fault(action, kind, times=1)])
    try:
        name = profiles.ensure(node_class)
    except DiscoveryError:
        name = profiles.ensure(node_class)
    assert described(aws, name)[1] == ["KarpenterNodeRole-dovetail"]
    assert names_of(aws, profiles.naming.path(node_class)) == {name}


def test_another_role_is_another_profile_and_the_old_one_goes_when_nothing_uses_it(
    ec2: Ec2, aws: AwsClients, profiles: Profiles, clock: FakeClock
) -> None:
    ec2.add_role("second", "/team/")
    first = class_of()
    old = profiles.ensure(first)
    spec = msgspec.structs.replace(first.spec, role="/team/second")
    status = msgspec.structs.replace(first.status, instance_profile=old)
    second = msgspec.structs.replace(first, spec=spec, status=status)
    new = profiles.ensure(second)
    assert new != old
    assert described(aws, new)[1] == ["second"]
    assert profiles.ensure(msgspec.structs.replace(second, status=type(status)(instance_profile=new))) == new
    assert profiles.collect({new}) == ()  # instances may be starting with it
    clock.advance(2 * 3600)
    assert old in profiles.collect({new})
    assert old not in names_of(aws)
    assert new in names_of(aws)


def states(client: Any) -> set[str]:
    """Of all instances, as they are told."""
    return {row["State"]["Name"] for one in client.describe_instances()["Reservations"] for row in one["Instances"]}


def test_a_profile_stays_while_an_instance_gets_its_credentials_by_it(
    ec2: Ec2, aws: AwsClients, profiles: Profiles, clock: FakeClock
) -> None:
    """No class and no claim tells of nodes that were kept when their cluster was left."""
    node_class = class_of()
    name = profiles.ensure(node_class)
    client = aws.client("ec2")
    image, subnet = ec2.add_image("ami-0123456789abcdef0", "profiled"), next(iter(ec2.vpc.subnets.values()))
    ran = client.run_instances(
        ImageId=image,
        InstanceType="m5.large",
        SubnetId=subnet,
        MinCount=1,
        MaxCount=1,
        IamInstanceProfile={"Name": name},
    )
    eventually(lambda: states(client) == {"running"}, "it is seen")
    clock.advance(2 * 3600)
    assert name not in profiles.collect(())
    profiles.delete_all(node_class)
    assert described(aws, name)[1] == ["KarpenterNodeRole-dovetail"]
    client.terminate_instances(InstanceIds=[ran["Instances"][0]["InstanceId"]])
    eventually(lambda: states(client) <= {"shutting-down", "terminated"}, "it ends")
    assert name in profiles.collect(())


def test_a_profile_of_the_users_own_is_used_as_it_is(ec2: Ec2, profiles: Profiles) -> None:
    node_class = class_of(instanceProfile="dovetail-node", role=None)
    assert profiles.ensure(node_class) == "dovetail-node"
    assert not ec2.calls()


def test_a_profile_that_karpenter_made_is_kept(aws: AwsClients, profiles: Profiles) -> None:
    node_class = class_of(status={"instanceProfile": "dovetail_1234"})
    iam = aws.client("iam")
    iam.create_instance_profile(InstanceProfileName="dovetail_1234", Path=profiles.naming.path(node_class))
    iam.add_role_to_instance_profile(InstanceProfileName="dovetail_1234", RoleName="KarpenterNodeRole-dovetail")
    assert profiles.ensure(node_class) == "dovetail_1234"


def test_somebody_elses_profile_is_neither_used_nor_changed_nor_deleted(aws: AwsClients, profiles: Profiles) -> None:
    node_class = class_of()
    name = profiles.naming.name(node_class, "KarpenterNodeRole-dovetail")
    former = profiles.naming.former_name(node_class)
    for one in (name, former):
        aws.client("iam").create_instance_profile(InstanceProfileName=one)
    with pytest.raises(ProfileError, match=r"spec\.instanceProfile") as caught:
        profiles.ensure(node_class)
    assert caught.value.reason == "InstanceProfileNotOurs"
    profiles.delete_all(node_class)
    assert {name, former} <= names_of(aws)


def test_a_role_that_is_not_there_is_asked_for_once_a_minute(
    ec2: Ec2, aws: AwsClients, profiles: Profiles, clock: FakeClock
) -> None:
    node_class = class_of(role="nobody")
    for _ in range(3):
        with pytest.raises(ProfileError, match='role "nobody" does not exist') as caught:
            profiles.ensure(node_class)
        assert caught.value.reason == "RoleNotFound"
    assert ec2.calls()["AddRoleToInstanceProfile"] == 1
    assert names_of(aws, profiles.naming.path(node_class)) == set()
    clock.advance(60)
    ec2.add_role("nobody")
    assert described(aws, profiles.ensure(node_class))[1] == ["nobody"]


@pytest.mark.parametrize("former", ["", "KarpenterNodeRole-dovetail"], ids=["without a role", "with another role"])
def test_a_profile_that_was_there_outlives_a_role_that_is_not(aws: AwsClients, profiles: Profiles, former: str) -> None:
    """Instances may be running with it."""
    node_class = class_of(role="never-made")
    name, iam = profiles.naming.name(node_class, "never-made"), aws.client("iam")
    iam.create_instance_profile(InstanceProfileName=name, Path=profiles.naming.path(node_class))
    if former:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=former)
    with pytest.raises(ProfileError, match='role "never-made" does not exist'):
        profiles.ensure(node_class)
    assert described(aws, name)[1] == ([former] if former else [])


def test_everything_of_a_class_is_deleted_with_it_and_nothing_else(aws: AwsClients, profiles: Profiles) -> None:
    gone, stays = class_of(), class_of()
    kept = profiles.ensure(stays)
    profiles.ensure(gone)
    former = profiles.naming.former_name(gone)
    tags = [{"Key": key, "Value": value} for key, value in profiles.naming.tags(gone).items()]
    aws.client("iam").create_instance_profile(InstanceProfileName=former, Tags=tags)
    profiles.delete_all(gone)
    profiles.delete_all(gone)  # again, after a crash
    assert names_of(aws, profiles.naming.path(gone)) == set()
    left = names_of(aws)
    assert former not in left
    assert {kept, "dovetail-node"} <= left


# --- dry runs


def rehearsal_of(aws: AwsClients, clock: FakeClock, group: PlacementGroup | None = None) -> Rehearsal:
    templates = LaunchTemplates(aws, TemplateUses(), clock, "dovetail")
    return Rehearsal(aws, "us-west-2", lambda _: (), lambda _: group, templates, clock.now)


def resolved(ec2: Ec2, discovery: Discovery, **spec: Any) -> EC2NodeClass:
    node_class = with_amis(discovery, class_of(**spec))
    status = msgspec.structs.replace(
        node_class.status,
        subnets=subnets.to_status(discovery.subnets(node_class)),
        security_groups=groups.to_status(discovery.security_groups(node_class)),
        instance_profile=ec2.vpc.profile,
    )
    return msgspec.structs.replace(node_class, status=status)


def test_a_rehearsal_launches_nothing_and_is_not_repeated(
    ec2: Ec2, aws: AwsClients, discovery: Discovery, clock: FakeClock
) -> None:
    node_class, rehearsal = resolved(ec2, discovery), rehearsal_of(aws, clock)
    ec2.reset_calls()
    for _ in range(2):
        assert rehearsal.run(node_class, [], CLUSTER) == Rehearsed()
    assert ec2.calls() == {"CreateLaunchTemplate": 1, "CreateFleet": 1, "RunInstances": 1}
    assert not ec2.alive()
    clock.advance(1801)
    rehearsal.run(node_class, [], CLUSTER)
    assert ec2.calls() == {"CreateLaunchTemplate": 1, "CreateFleet": 2, "RunInstances": 2}


REFUSED: Final = {
    "CreateLaunchTemplate": "CreateLaunchTemplateAuthCheckFailed",
    "CreateFleet": "CreateFleetAuthCheckFailed",
    "RunInstances": "RunInstancesAuthCheckFailed",
}


@pytest.mark.parametrize("action", REFUSED)
def test_what_is_not_permitted_is_found_out_before_a_launch(
    ec2: Ec2, aws: AwsClients, discovery: Discovery, clock: FakeClock, action: str
) -> None:
    node_class, rehearsal = resolved(ec2, discovery), rehearsal_of(aws, clock)
    ec2.script([Fault(action, "denied")])
    result = rehearsal.run(node_class, [], CLUSTER)
    assert result.reason == REFUSED[action]
    assert f"ec2:{action}" in result.message
    assert "dovetail aws check" in result.message
    ec2.script()
    assert rehearsal.run(node_class, [], CLUSTER) == result  # for a minute
    clock.advance(61)
    assert rehearsal.run(node_class, [], CLUSTER) == Rehearsed()


@pytest.mark.parametrize("action", REFUSED)
@pytest.mark.parametrize("kind", ["throttled", "500"])
def test_a_dry_run_that_aws_could_not_answer_says_nothing(
    ec2: Ec2, aws: AwsClients, discovery: Discovery, clock: FakeClock, action: str, kind: str
) -> None:
    node_class, rehearsal = resolved(ec2, discovery), rehearsal_of(aws, clock)
    ec2.script([Fault(action, kind, times=1)])
    with pytest.raises(DiscoveryError, match=f"ec2:{action}"):
        rehearsal.run(node_class, [], CLUSTER)
    assert rehearsal.run(node_class, [], CLUSTER) == Rehearsed()


def test_a_template_that_vanished_is_made_again(
    ec2: Ec2, aws: AwsClients, discovery: Discovery, clock: FakeClock
) -> None:
    node_class, rehearsal = resolved(ec2, discovery), rehearsal_of(aws, clock)
    rehearsal.run(node_class, [], CLUSTER)
    for row in aws.client("ec2").describe_launch_templates()["LaunchTemplates"]:
        aws.client("ec2").delete_launch_template(LaunchTemplateName=row["LaunchTemplateName"])
    clock.advance(1801)
    with pytest.raises(DiscoveryError, match="ec2:CreateFleet"):
        rehearsal.run(node_class, [], CLUSTER)
    assert rehearsal.run(node_class, [], CLUSTER) == Rehearsed()


def test_a_profile_that_is_not_there(ec2: Ec2, aws: AwsClients, discovery: Discovery, clock: FakeClock) -> None:
    node_class = resolved(ec2, discovery)
    status = msgspec.structs.replace(node_class.status, instance_profile="missing")
    node_class = msgspec.structs.replace(node_class, status=status)
    result = rehearsal_of(aws, clock).run(node_class, [], CLUSTER)
    assert result.reason == "InstanceProfileNotFound"
