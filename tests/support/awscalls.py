"""What the product asks AWS, as rows that any account can be asked: the emulator's and moto's answer the same, or one of them is wrong.

Every row runs code of the product over its own clients and returns what it understood, without ids that each account draws for itself. `CALLS` are judged by
both; `OURS` only the emulator can answer (see `OUR_OPERATIONS`).
"""

import base64
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from botocore.exceptions import ClientError

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass, NetworkInterface
from provisioner.ec2 import labels
from provisioner.ec2.access.client import RAW_OPERATIONS, AwsClients, CallPolicy
from provisioner.ec2.access.errors import classify_exception
from provisioner.ec2.access.permissions import Feature, PolicyNames
from provisioner.ec2.instances.instances import Ec2Instance, Instances
from provisioner.ec2.interruption import health
from provisioner.ec2.interruption.capacity_block_controller import read_reservations
from provisioner.ec2.interruption.health_controller import read_statuses
from provisioner.ec2.interruption.queue import InterruptionQueue, Received
from provisioner.ec2.interruption.zonal_shift import ZonalShifts
from provisioner.ec2.launch import fleet
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.orders import launch_tags
from provisioner.ec2.launch.templates import InstanceSpec, LaunchTemplate, TemplateUses, template
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.market import reads
from provisioner.ec2.market.unavailable_offerings import OfferingKey
from provisioner.ec2.nodeclass.cluster import EksCluster
from provisioner.ec2.nodeclass.discovery import Discovery, DiscoveryError
from provisioner.ec2.nodeclass.dry_run import Rehearsal
from provisioner.ec2.nodeclass.profiles import Naming, ProfileError, Profiles
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook
from provisioner.ec2.preflight.needs import AwsAccount, needs
from provisioner.ec2.preflight.simulator import simulate
from provisioner.ec2.preflight.survey import Surveyor
from provisioner.ec2.preflight.trials import Trials, TrialSample, sample
from provisioner.ec2.settings import AwsSettings
from provisioner.support.clock import SystemClock
from tests.support.ec2 import Ec2
from tests.support.eventually import eventually

CLOCK: Final = SystemClock()
CLUSTER: Final = "dovetail"
REGION: Final = "us-west-2"
MINOR: Final = 36
ROLE: Final = f"KarpenterNodeRole-{CLUSTER}"
NOBODY: Final = "nobody"
JOINED: Final = JoinedCluster(CLUSTER, "https://cluster.example", "Y2E=", MINOR, "10.100.0.0/16", "10.100.0.10")
CLUSTER_ARN: Final = f"arn:aws:eks:{REGION}:123456789012:cluster/{CLUSTER}"
DISCOVERY: Final = {"karpenter.sh/discovery": CLUSTER}
TYPES: Final = (
    *("m5.large", "c6g.large", "t3.nano", "m5d.large", "m5.metal"),
    *("g4dn.metal", "inf2.xlarge", "c6i.32xlarge", "a1.medium"),
)

OUR_OPERATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("ec2", "DescribeCapacityReservations"): "moto has no capacity reservations",
    ("ec2", "DescribePlacementGroups"): "moto has no placement groups",
    ("iam", "SimulatePrincipalPolicy"): "moto evaluates no policies for it",
    ("pricing", "GetProducts"): "moto has no Pricing",
    ("arc-zonal-shift", "GetManagedResource"): "moto has no zonal shift",
}
"""What the product calls and moto does not answer, and why: these are judged by botocore's model and the emulator alone."""


OF_THE_MARKET: Final = frozenset(("ec2", one) for one in RAW_OPERATIONS)
"""Each takes seconds; two rows read them anyway."""


@dataclass(frozen=True)
class Place:
    """An account to ask.

    Attributes:
        aws: our way to it.
        subnets: by zone; tagged for discovery.
        group: a security group, tagged likewise.
        image: of x86_64, whose name is `image_name`; the SSM parameter `parameter` has it.
        queue: name of an empty queue.
        send: puts a message into it.
    """

    aws: AwsClients
    subnets: Mapping[str, str]
    group: str
    image: str
    image_name: str
    parameter: str
    profile: str
    queue: str
    send: Callable[[str], object]

    @property
    def settings(self) -> AwsSettings:
        """Of controllers there."""
        return AwsSettings(cluster_name=CLUSTER, region=REGION, interruption_queue=self.queue)

    def discovery(self) -> Discovery:
        """As after a start of the process."""
        return Discovery(self.aws, CLOCK, SubnetBook(), ReservationBook())

    def instances(self) -> Instances:
        """The product's view of instances."""
        return Instances(self.aws, CLOCK, CLUSTER, idle=0.0, patience=0.0)

    def templates(self) -> LaunchTemplates:
        """The product's of launch templates."""
        return LaunchTemplates(self.aws, TemplateUses(), CLOCK, CLUSTER)


Row = Callable[[Place], Any]


def clients_of(session: Any) -> AwsClients:
    """The product's clients, without waits and repetitions."""
    return AwsClients(CallPolicy(REGION, rates={}, attempts=1), CLOCK, session)


def of_emulator(ec2: Ec2) -> Place:
    """The emulator's account, as it comes."""
    raw = ec2.client("ec2")
    raw.create_placement_group(GroupName=CLUSTER, Strategy="partition", PartitionCount=3)
    ec2.add_reservation("m5.large", "us-west-2a", 2, tags=DISCOVERY)
    ec2.shift("us-west-2b")
    path = f"/aws/service/eks/optimized-ami/1.{MINOR}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    image = ec2.client("ssm").get_parameter(Name=path)["Parameter"]["Value"]
    name = raw.describe_images(ImageIds=[image])["Images"][0]["Name"]
    ec2.client("ssm").put_parameter(Name="/dovetail/image", Type="String", Value=image)
    return Place(
        clients_of(ec2.session()),
        ec2.vpc.subnets,
        ec2.vpc.groups[0],
        image,
        name,
        "/dovetail/image",
        ec2.vpc.profile,
        ec2.vpc.queue,
        ec2.send,
    )


def of_moto(session: Any) -> Place:
    """moto's account, furnished as the emulator's is."""
    raw, iam, sqs, ssm = (session.create_client(name) for name in ("ec2", "iam", "sqs", "ssm"))
    subnets = sorted(raw.describe_subnets()["Subnets"], key=lambda one: one["AvailabilityZone"])[:3]
    vpc = subnets[0]["VpcId"]
    group = raw.create_security_group(GroupName=f"{CLUSTER}-nodes", Description="nodes", VpcId=vpc)["GroupId"]
    tags = [{"Key": key, "Value": value} for key, value in DISCOVERY.items()]
    raw.create_tags(Resources=[group, *(one["SubnetId"] for one in subnets)], Tags=tags)
    named = [{"Name": "name", "Values": ["amazon-eks-node-linux"]}]
    image = raw.describe_images(Owners=["amazon"], Filters=named)["Images"][0]
    ssm.put_parameter(Name="/dovetail/image", Type="String", Value=image["ImageId"])
    trust = {"Version": "2012-10-17", "Statement": []}
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(trust))
    iam.create_instance_profile(InstanceProfileName=f"{CLUSTER}-node")
    iam.add_role_to_instance_profile(InstanceProfileName=f"{CLUSTER}-node", RoleName=ROLE)
    url = sqs.create_queue(QueueName=CLUSTER)["QueueUrl"]
    session.create_client("eks").create_cluster(
        name=CLUSTER,
        version=f"1.{MINOR}",
        roleArn="arn:aws:iam::123456789012:role/cluster",
        resourcesVpcConfig={"subnetIds": [one["SubnetId"] for one in subnets]},
        kubernetesNetworkConfig={"serviceIpv4Cidr": "10.96.0.0/16"},
    )
    return Place(
        clients_of(session),
        {one["AvailabilityZone"]: one["SubnetId"] for one in subnets},
        group,
        image["ImageId"],
        image["Name"],
        "/dovetail/image",
        f"{CLUSTER}-node",
        CLUSTER,
        lambda body: sqs.send_message(QueueUrl=url, MessageBody=body),
    )


# ------------------------------------------------------------------ what both judge


def survey(place: Place) -> Any:
    """Account, cluster and queue, and names that none of them has."""

    def told(**settings: Any) -> Any:
        found = Surveyor(place.aws, dataclasses.replace(place.settings, **settings), CLOCK).cluster()
        return [(one.what, str(one.verdict)) for one in found.findings], bool(found.account), bool(found.caller)

    return {"as they are": told(), "others": told(cluster_name=NOBODY, interruption_queue=NOBODY)}


def eks_cluster(place: Place) -> Any:
    """What EKS says that nodes need."""
    found = EksCluster.of(place.aws.client("eks").describe_cluster(name=CLUSTER))
    return {
        "endpoint": found.endpoint.startswith("https://"),
        "authority": bool(found.ca_bundle),
        "ARN": found.arn.endswith(f":cluster/{CLUSTER}"),
        "version": found.minor,
        "Services": found.cidr,
    }


def queue(place: Place) -> Any:
    """Messages come with a time, are deleted once, and the queue is empty then; one that does not exist says so."""
    reader = InterruptionQueue(place.aws, place.queue, wait_seconds=0)
    for number in range(3):
        place.send(json.dumps({"number": number}))
    received = [one for _ in range(3) for one in reader.receive()]
    bodies = sorted(one.body for one in received)
    timed = all(one.sent is not None and abs(one.sent - datetime.now(UTC)) < timedelta(minutes=5) for one in received)
    deleted = reader.delete(received)
    again = reader.receive()
    strange = reader.delete([Received("", "no-receipt")])
    return {
        "bodies": bodies,
        "times": timed,
        "deleted": deleted,
        "left": again,
        "deleted without a receipt": strange,
        "no queue": code_of(InterruptionQueue(place.aws, NOBODY).receive),
    }


def profiles(place: Place) -> Any:
    """An instance profile is made, found again, given another role, and deleted with its class; a role that is not there is told from a profile that is not."""
    iam = place.aws.client("iam")
    ours = Profiles(place.aws, Naming(CLUSTER, REGION), CLOCK.now)
    again = Profiles(place.aws, Naming(CLUSTER, REGION), CLOCK.now)
    one = class_of("profiles", role=ROLE)
    name = ours.ensure(one)
    found = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    roles = [role["RoleName"] for role in found["Roles"]]
    same = again.ensure(one) == name
    tags = {tag["Key"]: tag["Value"] for tag in found["Tags"]} == ours.naming.tags(one)
    try:
        refused = ours.ensure(class_of("roleless", role=NOBODY))
    except ProfileError as error:
        refused = error.reason
    ours.delete_all(one)
    return {
        "roles": roles,
        "found again": same,
        "tags": tags,
        "no role": refused,
        "deleted": code_of(lambda: iam.get_instance_profile(InstanceProfileName=name)),
    }


def instance_profile_errors(place: Place) -> Any:
    """The codes that the product tells apart."""
    iam = place.aws.client("iam")
    name = "dovetail-errors"
    iam.create_instance_profile(InstanceProfileName=name, Path="/karpenter/")
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=ROLE)
    told = {
        "made twice": code_of(lambda: iam.create_instance_profile(InstanceProfileName=name)),
        "two roles": code_of(lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=ROLE)),
        "no role": code_of(lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=NOBODY)),
        "no profile": code_of(lambda: iam.delete_instance_profile(InstanceProfileName=NOBODY)),
        "in use": code_of(lambda: iam.delete_instance_profile(InstanceProfileName=name)),
        "role": iam.get_role(RoleName=ROLE)["Role"]["Arn"].rpartition("/")[2],
        "role that is not there": code_of(lambda: iam.get_role(RoleName=NOBODY)),
        "other role": code_of(lambda: iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=NOBODY)),
    }
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=ROLE)
    iam.delete_instance_profile(InstanceProfileName=name)
    return told


def discovery(place: Place) -> Any:
    """Subnets and groups by tag, wildcard and id, images by id, name, owner and parameter; what is not there."""
    every = place.discovery()
    first = next(iter(place.subnets.values()))

    def found(*terms: Mapping[str, Any]) -> Any:
        return [
            (one.zone, bool(one.zone_id), one.free_ips > 200)
            for one in every.subnets(class_of(subnetSelectorTerms=terms))
        ]

    def groups(*terms: Mapping[str, Any]) -> Any:
        return [one.id == place.group for one in every.security_groups(class_of(securityGroupSelectorTerms=terms))]

    def images(*terms: Mapping[str, Any]) -> Any:
        got = every.images(class_of(amiFamily="AL2023", amiSelectorTerms=terms), MINOR)
        return [(one.id == place.image, one.name == place.image_name) for one in got.amis], got.absent

    return {
        "subnets by tag": sorted(found({"tags": DISCOVERY})),
        "subnets by key": sorted(found({"tags": {"karpenter.sh/discovery": "*"}})),
        "subnets by part": sorted(found({"tags": {"karpenter.sh/discovery": "dove*"}})),
        "subnets by id": found({"id": first}),
        "no subnet": found({"tags": {"no": "tag"}}),
        "no subnet id": told(lambda: found({"id": "subnet-0123456789abcdef0"})),
        "groups by tag": groups({"tags": DISCOVERY}),
        "groups by id": groups({"id": place.group}),
        "no group id": told(lambda: groups({"id": "sg-0123456789abcdef0"})),
        "images by id": images({"id": place.image}),
        "images by name": images({"name": place.image_name}),
        "images by parameter": images({"ssmParameter": place.parameter}),
        "no image": images({"name": NOBODY, "owner": "self"}),
        "no image id": told(lambda: images({"id": "ami-0123456789abcdef0"})),
        "no parameter": images({"ssmParameter": "/dovetail/nothing"}),
        "an alias that is not there": images({"alias": "al2023@v20200101"})[0],
    }


def launch_templates(place: Place) -> Any:
    """Every template of the product is kept as it was sent, found by its tags, made once, and deleted; a dry run makes none."""
    ec2, ours = place.aws.client("ec2"), place.templates()
    wanted = list(templates_of(place))
    ours.ensure(wanted)
    place.templates().ensure(wanted)  # a process that knows none of them
    kept = {}
    for sort, one in zip(SORTS, wanted, strict=True):
        rows = ec2.describe_launch_template_versions(LaunchTemplateName=one.name, Versions=["$Latest"])
        data = rows["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        kept[sort] = [key for key, value in one.data.items() if not within(value, data.get(key))]
    twice = code_of(lambda: ec2.create_launch_template(**wanted[0].request()))
    new = {**wanted[0].request(), "LaunchTemplateName": "dovetail.dev/dry"}
    dry = code_of(lambda: ec2.create_launch_template(DryRun=True, **new))
    dropped = ours.drop("default")
    gone = code_of(lambda: ec2.delete_launch_template(LaunchTemplateName=wanted[0].name))
    ours.ensure(wanted[:1])
    return {
        "not kept": kept,
        "made twice": twice,
        "dry run": dry,
        "dropped": dropped,
        "deleted twice": gone,
        "cleaned": ours.clean([]),
    }


def launches(place: Place) -> Any:
    """Fleets of both kinds: what was launched, where, and how the instances are described, tagged, found and ended."""
    view = place.instances()
    said: dict[str, Any] = {}
    ids: list[str] = []
    for kind in (names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT):
        made = next(templates_of(place, capacity_type=kind))
        place.templates().ensure([made])
        mark = Mark(f"batch-{kind}", 2, 0)
        overrides = [override(place, made, "m5.large")]
        request = fleet.request(overrides, capacity_type=kind, count=2, tags=tags_of(), mark=mark)
        dry = code_of(functools.partial(place.aws.client("ec2").create_fleet, **request, DryRun=True))
        found = fleet.outcome(place.aws.client("ec2").create_fleet(**request), overrides, kind)
        batch = eventually(functools.partial(_both, view, mark.tag), "both instances are described")
        said[kind] = {
            "dry run": dry,
            "launched": [(one.instance_type, one.zone, one.subnet == overrides[0].subnet) for one in found.launched],
            "refused": found.refused,
            "found by batch": sorted(one.id for one in batch) == sorted(one.instance for one in found.launched),
            "described": described(batch, place),
        }
        ids += [one.id for one in batch]
    all_of_us = view.list()
    first = all_of_us[0]
    view.tag(first.id, {"Name": "first"})
    said["listed"] = [one.id for one in all_of_us] == sorted(ids)
    said["tagged"] = view.get(first.provider_id).tags["Name"]
    said["many"] = len(view.get_all([one.provider_id for one in all_of_us]))
    for one in all_of_us:
        view.terminate(one.provider_id)
    said["ended"] = sorted({one.ending for one in view.by_batch(Mark("batch-spot", 2, 0).tag)})
    said["healthy"] = health.judge(read_statuses(place.aws), CLOCK.now())
    return said


def missing(place: Place) -> Any:
    """The codes by which the product knows that something is not there (any more)."""
    ec2 = place.aws.client("ec2")
    made = dataclasses.replace(next(templates_of(place)), name="dovetail.dev/none")
    request = fleet.request(
        [override(place, made, "m5.large")],
        capacity_type=names.CAPACITY_ON_DEMAND,
        count=1,
        tags=tags_of(),
        mark=Mark("missing", 1, 0),
    )
    nobody = "i-0123456789abcdef0"
    return {
        "end an instance": code_of(lambda: ec2.terminate_instances(InstanceIds=[nobody])),
        "describe an instance": code_of(lambda: ec2.describe_instances(InstanceIds=[nobody])),
        "filter for an instance": place.instances().get_all([f"aws:///us-west-2a/{nobody}"]),
        "a template by name": code_of(lambda: ec2.delete_launch_template(LaunchTemplateName="dovetail.dev/none")),
        "a fleet without its template": code_of(lambda: ec2.create_fleet(**request)),
    }


def dry_runs(place: Place) -> Any:
    """The rehearsal of a class, and the trials of `dovetail aws check` where there is something to try."""
    node_class = ready_class(place)
    rehearsal = Rehearsal(place.aws, REGION, lambda _: (), lambda _: None, place.templates(), CLOCK.now)
    rehearsed = rehearsal.run(node_class, [], JOINED)
    asks_for = sample(node_class, node_class.status, JOINED, REGION)
    made = next(templates_of(place))
    place.templates().ensure([made])
    overrides, mark = [override(place, made, "m5.large")], Mark("trial", 1, 0)
    place.aws.client("ec2").create_fleet(
        **fleet.request(overrides, capacity_type=names.CAPACITY_ON_DEMAND, count=1, tags=tags_of(), mark=mark)
    )
    eventually(lambda: place.instances().by_batch(mark.tag), "the instance is described")
    trials = Trials(place.aws, place.settings, asks_for, CLUSTER_ARN)
    asked = [
        one for one in needs_of(place) if tuple(one.row.action.split(":")) not in {*OUR_OPERATIONS, *OF_THE_MARKET}
    ]
    verdicts = {
        f"{one.row.action} {one.row.scope.sid}": sorted({str(answer.verdict) for answer in trials.answers(one)})
        for one in asked
    }
    for one in place.instances().list():
        place.instances().terminate(one.provider_id)
    place.templates().drop("default")
    return {"rehearsal": rehearsed, "trials": verdicts}


def market(place: Place) -> Any:
    """Types as the pages tell them, and where they are offered."""
    region = reads.read_region(place.aws)
    infos = {one.name: one for one in region.infos}
    return {name: (infos[name], sorted(region.zones[name])) for name in TYPES}


def spot_prices(place: Place) -> Any:
    """The history's rows are read."""
    rows = reads.read_spot(place.aws, CLOCK)
    return {(one.instance_type, one.zone) for one in rows if one.instance_type in TYPES[:3]}, all(
        0 < one.usd_per_hour < 1000 for one in rows
    )


CALLS: Final[Mapping[str, Row]] = {
    "account, cluster and queue are found": survey,
    "EKS tells what nodes need": eks_cluster,
    "messages are received and deleted": queue,
    "an instance profile is made and deleted": profiles,
    "IAM refuses by the same codes": instance_profile_errors,
    "selectors find the same": discovery,
    "launch templates are kept as they were sent": launch_templates,
    "fleets launch instances that are described, tagged and ended": launches,
    "what is missing is refused by the same codes": missing,
    "dry runs say the same": dry_runs,
    "instance types and offerings are read alike": market,
    "spot prices are read alike": spot_prices,
}


# ------------------------------------------------------------------ what only the emulator answers


def reservations(place: Place) -> Any:
    """Reservations by tag and by id, and those of a list of ids of which one is not there."""
    terms = [{"tags": DISCOVERY}, {"id": "cr-0123456789abcdef0"}]
    found = place.discovery().capacity_reservations(class_of(capacityReservationSelectorTerms=terms))
    ids = [one.id for one in found.reservations]
    return list(found.left.values()), len(read_reservations(place.aws, [*ids, "cr-0123456789abcdef0"])), found.strange


def placement_groups(place: Place) -> Any:
    """By name; and none."""
    found = [
        place.discovery().find_placement_group(class_of(placementGroupSelector={"name": name}))
        for name in (CLUSTER, NOBODY)
    ]
    return [None if one is None else (one.strategy, one.partitions) for one in found]


def simulated(place: Place) -> Any:
    """The simulator's verdicts of a role without any policy."""
    role = f"arn:aws:iam::123456789012:role/{ROLE}"
    said = simulate(place.aws.client("iam"), role, needs_of(place))
    return {str(answer.verdict) for answers in said.values() for answer in answers}


def tried(place: Place) -> Any:
    """Trials of calls that only the emulator answers."""
    trials = Trials(place.aws, place.settings, TrialSample({}, "nothing is there"), CLUSTER_ARN)
    asked = [one for one in needs_of(place) if tuple(one.row.action.split(":")) in OUR_OPERATIONS]
    return {one.row.action: {str(answer.verdict) for answer in trials.answers(one)} for one in asked}


def fleets_for_reservations(place: Place) -> Any:
    """The words of CreateFleet for each sort of reservation, and for prices that are adjusted."""
    made = next(templates_of(place))
    place.templates().ensure([made])
    overrides = [override(place, made, "m5.large")]
    said = {}
    for kind, sort in (
        (names.CAPACITY_RESERVED, ""),
        (names.CAPACITY_RESERVED, labels.CAPACITY_BLOCK),
        (names.CAPACITY_RESERVED, fleet.INTERRUPTIBLE),
        (names.CAPACITY_SPOT, ""),
    ):
        request = fleet.request(
            overrides,
            capacity_type=kind,
            count=1,
            tags=tags_of(),
            mark=Mark("reserved", 1, 0),
            reservation_type=sort,
            by_priority=True,
            context="context",
            dry_run=True,
        )
        call = functools.partial(place.aws.client("ec2").create_fleet, **request)
        said[f"{kind} {sort}".strip()] = code_of(call)
    place.templates().drop("default")
    return said


def prices(place: Place) -> Any:
    """On-demand prices of virtual machines and of bare metal."""
    virtual, metal = reads.read_on_demand(place.aws, REGION)
    return "m5.large" in virtual, "m5.metal" in metal


def shifts(place: Place) -> Any:
    """Zones that traffic is shifted away from."""
    return len(ZonalShifts(place.aws, lambda: CLUSTER_ARN, CLOCK).refresh())


OURS: Final[Mapping[str, tuple[Row, Any]]] = {
    "capacity reservations": (reservations, ([2], 1, ())),
    "placement groups": (placement_groups, [("partition", 3), None]),
    "policy simulation": (simulated, {"missing"}),
    "trials": (
        tried,
        {
            "arc-zonal-shift:GetManagedResource": {"ok"},
            "ec2:DescribeCapacityReservations": {"ok"},
            "ec2:DescribePlacementGroups": {"ok"},
            "iam:SimulatePrincipalPolicy": {"unknown"},
            "pricing:GetProducts": {"ok"},
        },
    ),
    "fleets for reservations": (
        fleets_for_reservations,
        dict.fromkeys(
            ("reserved", "reserved capacity-block", "reserved interruptible", "spot"), "DryRunOperation: dry run"
        ),
    ),
    "on-demand prices": (prices, (True, True)),
    "zonal shifts": (shifts, 1),
}
"""With what they return."""


# ------------------------------------------------------------------ what rows are made of


def class_of(name: str = "default", **spec: Any) -> EC2NodeClass:
    """A class."""
    return msgspec.convert(
        {"metadata": {"name": name, "uid": f"uid-{name}", "generation": 1}, "spec": spec}, EC2NodeClass
    )


def ready_class(place: Place) -> EC2NodeClass:
    """One whose status is complete."""
    status = {
        "subnets": [{"id": one, "zone": zone} for zone, one in place.subnets.items()],
        "securityGroups": [{"id": place.group}],
        "amis": [
            {
                "id": place.image,
                "name": place.image_name,
                "requirements": [{"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}],
            }
        ],
        "instanceProfile": place.profile,
    }
    given = {"metadata": {"name": "default", "uid": "uid-default", "generation": 1}, "status": status}
    return msgspec.convert({**given, "spec": {"amiFamily": "AL2023", "role": ROLE}}, EC2NodeClass)


def tags_of() -> dict[str, str]:
    """Of everything that a launch makes."""
    return launch_tags(class_of(), "default", CLUSTER)


def override(place: Place, made: LaunchTemplate, instance_type: str) -> fleet.Override:
    """One offering, in the first subnet."""
    zone, subnet = next(iter(place.subnets.items()))
    offer = OfferingKey(names.CAPACITY_ON_DEMAND, instance_type, zone)
    return fleet.Override(made.name, offer, subnet, place.image, 1.0)


SORTS: Final = (
    *("plain", "everything that a class may say", "EFA interfaces", "IPv6"),
    *("a capacity block", "an interruptible reservation", "a partition"),
)


def templates_of(place: Place, capacity_type: str = names.CAPACITY_ON_DEMAND) -> Iterator[LaunchTemplate]:
    """A template of each sort."""
    full: dict[str, Any] = {
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeSize": "100Gi",
                    "volumeType": "gp3",
                    "iops": 4000,
                    "throughput": 250,
                    "encrypted": True,
                    "kmsKeyID": "arn:aws:kms:us-west-2:123456789012:key/0123",
                    "deleteOnTermination": True,
                },
            }
        ],
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2, "httpEndpoint": "enabled"},
        "detailedMonitoring": True,
        "associatePublicIPAddress": False,
        "ipPrefixCount": 2,
        "cpuOptions": {"nestedVirtualization": "enabled"},
        "enclaveOptions": {"enabled": True},
        "connectionTracking": {"tcpEstablishedTimeout": 600, "udpStreamTimeout": 100, "udpTimeout": 45},
    }
    base = InstanceSpec(
        image=place.image,
        user_data=base64.b64encode(b"#!/bin/sh\necho hello & <goodbye>\n").decode(),
        profile=place.profile,
        security_groups=(place.group,),
        capacity_type=capacity_type,
    )
    for spec, instance in (
        ({}, base),
        (full, dataclasses.replace(base, tenancy="dedicated")),
        (
            {},
            dataclasses.replace(
                base,
                interfaces=(
                    NetworkInterface(interface_type="interface"),
                    *(NetworkInterface(network_card_index=card, interface_type="efa-only") for card in range(1, 4)),
                ),
            ),
        ),
        ({}, dataclasses.replace(base, ipv6=True)),
        ({}, dataclasses.replace(base, reservation="cr-0123456789abcdef0", block=True)),
        ({}, dataclasses.replace(base, reservation="cr-0123456789abcdef0", interruptible=True)),
        ({}, dataclasses.replace(base, group="pg-0123456789abcdef0", partition=2)),
    ):
        yield template(class_of(amiFamily="AL2023", **spec), instance, tags_of(), REGION)


def described(batch: Iterable[Ec2Instance], place: Place) -> Any:
    """What is the same of all of these, in every account; False where they differ."""
    said = [
        {
            "type": one.instance_type,
            "zone": one.zone,
            "zone id": bool(one.zone_id),
            "alive": not one.ending,
            "image": one.image_id == place.image,
            "subnet": one.subnet_id in place.subnets.values(),
            "security groups": one.security_group_ids == (place.group,),
            "instance profile": bool(one.profile_arn),
            "capacity type": one.capacity_type,
            "launched": one.launched is not None,
            "tags": tags_of().items() <= one.tags.items(),
        }
        for one in batch
    ]
    return said[0] if all(one == said[0] for one in said) else False


def _both(view: Instances, tag: str) -> tuple[Ec2Instance, ...]:
    found = view.by_batch(tag)
    return found if len(found) == 2 else ()


def needs_of(place: Place) -> list[Any]:
    """Every permission."""
    where = PolicyNames.of("aws", REGION, "123456789012", CLUSTER, queue=place.queue)
    return list(needs(frozenset(Feature), AwsAccount(where)))


def within(sent: Any, kept: Any) -> bool:
    """Whether everything that was sent is there."""
    if isinstance(sent, dict):
        return isinstance(kept, dict) and all(within(value, kept.get(key)) for key, value in sent.items())
    if isinstance(sent, list):
        return isinstance(kept, list) and len(sent) == len(kept) and all(map(within, sent, kept))
    return bool(sent == kept)


def code_of(call: Callable[[], object]) -> str:
    """The code that a call is refused with, and what the product takes it for; "" where it is carried out."""
    try:
        call()
    except ClientError as error:
        return f"{error.response['Error']['Code']}: {classify_exception(error).kind.value}"
    return ""


def told(call: Callable[[], object]) -> Any:
    """What a question of the product's is answered, or how it failed."""
    try:
        return call()
    except DiscoveryError as error:
        return f"{error.action}: {error.failure.code}: {error.failure.kind.value}"
