"""EC2NodeClasses on a real API server, over the emulated EC2: status, conditions, events, hashes, and the end."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from provisioner.apis.ec2 import (
    HASH_ANNOTATION,
    HASH_VERSION_ANNOTATION,
    INSTANCE_PROFILE_ANNOTATION,
    TERMINATION_FINALIZER,
    EC2NodeClass,
)
from provisioner.apis.ec2_hash import FORMER_VERSION, HASH_VERSION, class_stamp, former_hash, nodeclass_hash
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.access.permissions import POLICIES, PolicyNames, document
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.nodeclass.cluster import NotKnownYet
from provisioner.ec2.nodeclass.controller import NodeClassContext, NodeClassController, ProfileCollector
from provisioner.ec2.nodeclass.discovery import Discovery
from provisioner.ec2.nodeclass.dry_run import Rehearsal
from provisioner.ec2.nodeclass.profiles import Naming, Profiles
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.resources import EC2NODECLASSES, EVENTS, NODECLAIMS, NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.state.cluster import Cluster as State
from provisioner.support.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.definitions import with_definitions
from tests.support.ec2 import Ec2, Fault
from tests.support.eventually import eventually

pytestmark = pytest.mark.plane

TAGS: Final = {"karpenter.sh/discovery": "dovetail"}
CA: Final = "Q0E="
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(plane: DevCluster) -> Client:
    return with_definitions(plane)


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with Ec2.start(data="small", rate_limits=False) as running:
        yield running


@pytest.fixture(scope="module")
def aws(ec2: Ec2) -> Iterator[AwsClients]:
    made = AwsClients(CallPolicy("us-west-2", attempts=1), FakeClock(), ec2.session())
    yield made
    made.close()


@pytest.fixture
def bench(client: Client, ec2: Ec2, aws: AwsClients) -> Iterator["Bench"]:
    ec2.reset_calls()
    made = Bench(client, ec2, aws)
    yield made
    ec2.script()
    made.close()


class Bench:
    """One class and its reconciler, which reads the server instead of caches; `clock` decides how old answers are."""

    def __init__(self, client: Client, ec2: Ec2, aws: AwsClients) -> None:
        self.client, self.ec2, self.aws = client, ec2, aws
        self.name = f"nodeclass-test-{next(_numbers)}"
        self.clock = FakeClock(SystemClock().now())
        self.known = True
        self._claims: list[str] = []
        self.recorder = Recorder(client, "karpenter", SystemClock())
        self.profiles = Profiles(aws, Naming("dovetail", "us-west-2"), self.clock.now)
        self.restart()

    def restart(self, *, dry_runs: bool = True, reserved: bool = True) -> None:
        """A reconciler that knows nothing yet."""
        book = SubnetBook()
        discovery = Discovery(self.aws, self.clock, book, ReservationBook())
        templates = LaunchTemplates(self.aws, TemplateUses(), self.clock, "dovetail")
        self.profiles = Profiles(self.aws, self.profiles.naming, self.clock.now)
        rehearsal = Rehearsal(
            self.aws,
            "us-west-2",
            lambda _: (),
            discovery.placement_group,
            templates,
            self.clock.now,
        )
        state = State(lambda _: {}, self.clock)
        self.controller = NodeClassController(
            self.client,
            NodeClassContext(
                self._get, lambda: self.client.list(NODECLAIMS), lambda: self.client.list(NODEPOOLS), self._cluster
            ),
            discovery,
            self.profiles,
            templates,
            rehearsal if dry_runs else None,
            ClaimWriter(self.client, state, lambda _: None),
            self.recorder,
            self.clock,
            reserved=reserved,
        )

    def create(self, **spec: Any) -> EC2NodeClass:
        base = {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": TAGS}],
            "securityGroupSelectorTerms": [{"tags": TAGS}],
            "role": "KarpenterNodeRole-dovetail",
        }
        body = {
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": self.name},
            "spec": {key: value for key, value in {**base, **spec}.items() if value is not None},
        }
        return self.client.create(EC2NODECLASSES, body)

    def change(self, **spec: Any) -> None:
        self.client.patch(EC2NODECLASSES, self.name, {"spec": spec})

    def look(self, seconds: float = 0.0) -> float | None:
        """Reconcile once; after `seconds`."""
        self.clock.advance(seconds)
        return self.controller.reconcile(self.name).requeue_after

    def get(self) -> EC2NodeClass:
        return self.client.get(EC2NODECLASSES, self.name)

    def told_of(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        found = condition(self.get().status.conditions, kind)
        assert found is not None
        return found.status, found.reason, found.message

    def unhappy(self) -> dict[str, tuple[str, str]]:
        """Conditions that are not True, without the root."""
        return {
            one.type: (one.status, one.reason)
            for one in self.get().status.conditions
            if one.status != "True" and one.type != "Ready"
        }

    def claim(self, annotations: dict[str, str], conditions: dict[str, str] | None = None) -> str:
        name = f"{self.name}-{len(self._claims)}"
        body = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": self.name},
                "requirements": [],
            },
        }
        self.client.create(NODECLAIMS, body)
        self._claims.append(name)
        listed = [
            {
                "type": kind,
                "status": status,
                "reason": kind,
                "message": "",
                "lastTransitionTime": "2026-11-21T00:00:00Z",
            }
            for kind, status in (conditions or {}).items()
        ]
        if listed:
            self.client.patch(NODECLAIMS, name, {"status": {"conditions": listed}}, subresource="status")
        return name

    def claim_now(self, name: str) -> NodeClaim:
        return self.client.get(NODECLAIMS, name)

    def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and message of what was said about the class."""
        found = self.client.list(EVENTS, field_selector=f"involvedObject.name={self.name}")
        return [(one.type, one.reason, one.message) for one in found]

    def said(self, reason: str, *words: str) -> None:
        """Wait for an event."""
        eventually(
            lambda: any(one[1] == reason and all(word in one[2] for word in words) for one in self.events()),
            lambda: f"an event {reason} about {self.name} with {words}; there are {self.events()}",
            10.0,
        )

    def delete_claims(self) -> None:
        for name in self._claims:
            self.client.delete(NODECLAIMS, name)
        self._claims.clear()

    def close(self) -> None:
        self.recorder.stop()
        self.delete_claims()
        try:
            self.client.patch(EC2NODECLASSES, self.name, {"metadata": {"finalizers": []}})
            self.client.delete(EC2NODECLASSES, self.name)
        except NotFound:
            return

    def writes(self) -> Counter[tuple[str, str]]:
        return Counter({what: count for what, count in self.client.writes.items() if what[1] != "events"})

    def _get(self, name: str) -> EC2NodeClass | None:
        try:
            return self.client.get(EC2NODECLASSES, name)
        except NotFound:
            return None

    def _cluster(self) -> JoinedCluster:
        if not self.known:
            raise NotKnownYet(("its version",))
        return JoinedCluster("dovetail", "https://api", CA, 36, "10.96.0.0/16", "10.96.0.10")


# --- becoming ready


def test_a_class_becomes_ready_and_stays_untouched(bench: Bench) -> None:
    bench.create()
    assert bench.look() == pytest.approx(60)
    made = bench.get()
    assert bench.unhappy() == {}
    assert bench.told_of("Ready")[:2] == ("True", "Ready")
    assert len(made.status.amis) == 5
    assert {one.id for one in made.status.subnets} == set(bench.ec2.vpc.subnets.values())
    assert [one.id for one in made.status.security_groups] == list(bench.ec2.vpc.groups)
    assert made.status.instance_profile.startswith("dovetail_")
    assert made.metadata.finalizers == (TERMINATION_FINALIZER,)
    assert made.metadata.annotations == class_stamp(made.spec, CA)
    before, calls = bench.writes(), bench.ec2.calls()
    bench.look()
    assert bench.writes() == before
    assert bench.ec2.calls() == calls
    bench.look(61)
    assert bench.writes() == before


def test_the_permissions_of_karpenter_are_enough_from_the_beginning_to_the_end(client: Client) -> None:
    documents = [
        document(one, PolicyNames.of("aws", "us-west-2", "123456789012", "dovetail"))
        for one in POLICIES
        if not one.optional
    ]
    with Ec2.start(data="small", policies=documents) as strict:
        aws = AwsClients(CallPolicy("us-west-2"), SystemClock(), strict.session())
        bench = Bench(client, strict, aws)
        try:
            bench.create(
                capacityReservationSelectorTerms=[{"tags": {"none": "such"}}],
                tags={"team": "a"},
            )
            bench.look()
            assert bench.unhappy() == {}
            bench.clock.advance(7200)
            ProfileCollector(bench.client, bench.profiles).poll()
            bench.client.delete(EC2NODECLASSES, bench.name)
            assert bench.look() is None
            with pytest.raises(NotFound):
                bench.get()
            assert {one.code for one in strict.log()} == {"", "DryRunOperation"}
        finally:
            bench.close()
            aws.close()


def test_dry_runs_can_be_turned_off(bench: Bench) -> None:
    bench.create()
    bench.restart(dry_runs=False)
    bench.look()
    assert bench.told_of("Ready")[0] == "True"
    assert not {"CreateLaunchTemplate", "CreateFleet", "RunInstances"} & set(bench.ec2.calls())


def test_without_the_gate_there_are_no_reservations(bench: Bench) -> None:
    reservation = bench.ec2.add_reservation("m5.large", "us-west-2a", 1)
    bench.create(capacityReservationSelectorTerms=[{"id": reservation}])
    bench.look()
    assert [one.id for one in bench.get().status.capacity_reservations] == [reservation]
    bench.restart(reserved=False)
    bench.look()
    assert bench.get().status.capacity_reservations == ()
    assert bench.told_of("Ready")[0] == "True"


def test_a_cluster_that_is_not_known_yet_is_waited_for(bench: Bench) -> None:
    bench.create()
    bench.known = False
    assert bench.look() == pytest.approx(10)
    assert bench.told_of("AMIsReady") == ("Unknown", "ClusterNotKnown", "not yet known about the cluster: its version")
    assert HASH_ANNOTATION not in bench.get().metadata.annotations
    bench.known = True
    bench.look(10)
    assert bench.told_of("Ready")[0] == "True"


def test_a_change_of_the_spec_is_seen_at_once(bench: Bench) -> None:
    bench.create()
    bench.look()
    first = bench.get().metadata.annotations[HASH_ANNOTATION]
    bench.change(subnetSelectorTerms=[{"id": bench.ec2.vpc.subnets["us-west-2b"]}], userData="#!/bin/sh\n")
    bench.look()
    made = bench.get()
    assert [one.zone for one in made.status.subnets] == ["us-west-2b"]
    assert made.metadata.annotations[HASH_ANNOTATION] != first
    assert {one.observed_generation for one in made.status.conditions} == {made.metadata.generation}


NOT_READY: Final[dict[str, tuple[dict[str, Any], str, tuple[str, str], str]]] = {
    "no subnet": (
        {"subnetSelectorTerms": [{"tags": {"no": "such"}}]},
        "SubnetsReady",
        ("False", "SubnetsNotFound"),
        "spec.subnetSelectorTerms",
    ),
    "no group": (
        {"securityGroupSelectorTerms": [{"name": "none"}]},
        "SecurityGroupsReady",
        ("False", "SecurityGroupsNotFound"),
        "spec.securityGroupSelectorTerms",
    ),
    "no image": (
        {"amiSelectorTerms": [{"alias": "al2023@v20010101"}]},
        "AMIsReady",
        ("False", "AMINotFound"),
        "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023",
    ),
    "an alias without images for this version": (
        {"amiSelectorTerms": [{"alias": "al2@latest"}]},
        "AMIsReady",
        ("False", "UnsupportedAlias"),
        "no AL2 images for Kubernetes 1.36",
    ),
    "no placement group": (
        {"placementGroupSelector": {"name": "none"}},
        "PlacementGroupReady",
        ("False", "PlacementGroupNotFound"),
        "spec.placementGroupSelector",
    ),
    "no role": (
        {"role": "nobody"},
        "InstanceProfileReady",
        ("False", "RoleNotFound"),
        'spec.role: role "nobody" does not exist',
    ),
    "a kubelet field that is none": (
        {"kubelet": {"x": 1}},
        "ValidationSucceeded",
        ("False", "InvalidKubeletConfiguration"),
        "spec.kubelet: x",
    ),
    "an expression": (
        {"kubelet": {"maxPods": "max_pods - 1"}},
        "ValidationSucceeded",
        ("False", "KubeletExpressionsDisabled"),
        "NodeClassCEL",
    ),
    "user data with which no node joins": (
        {"userData": "#cloud-config\npackages: [jq]\n"},
        "ValidationSucceeded",
        ("False", "InvalidUserData"),
        "must be a NodeConfig",
    ),
    "too much user data": (
        {"userData": "#!/bin/sh\n# " + "x" * 16384},
        "ValidationSucceeded",
        ("False", "UserDataSizeLimitExceeded"),
        "16384",
    ),
    "a profile that is not there": (
        {"role": None, "instanceProfile": "missing"},
        "ValidationSucceeded",
        ("False", "InstanceProfileNotFound"),
        "check that the instance profile exists",
    ),
}


@pytest.mark.parametrize("case", NOT_READY.values(), ids=NOT_READY)
def test_what_keeps_a_class_from_being_ready(
    bench: Bench, case: tuple[dict[str, Any], str, tuple[str, str], str], caplog: pytest.LogCaptureFixture
) -> None:
    spec, kind, want, words = case
    bench.create(**spec)
    bench.look()
    status, reason, message = bench.told_of(kind)
    assert (status, reason) == want
    assert words in message
    assert bench.told_of("Ready")[:2] == ("False", "UnhealthyDependents")
    assert words in bench.told_of("Ready")[2]
    told = [vars(record)["fields"] for record in caplog.records if record.levelname == "WARNING"]
    assert any(one.get("reason") == reason and words in one["error"] for one in told)
    assert set(bench.unhappy()) <= {kind, "ValidationSucceeded"}
    bench.said(reason, words)


def test_a_class_that_an_earlier_version_found_valid_stays_ready_until_its_user_data_changes(bench: Bench) -> None:
    made = bench.create(userData="#cloud-config\npackages: [jq]\n", amiFamily="Custom")
    bench.look()
    assert bench.told_of("Ready")[0] == "True"
    bench.change(amiFamily=None)
    # as the earlier version left it: every condition True of this spec
    made = bench.get()
    found = [
        {**msgspec.to_builtins(one), "observedGeneration": made.metadata.generation} for one in made.status.conditions
    ]
    bench.client.patch(EC2NODECLASSES, bench.name, {"status": {"conditions": found}}, subresource="status")
    bench.look()
    status, reason, message = bench.told_of("ValidationSucceeded")
    assert (status, reason) == ("True", "InvalidUserData")
    assert "must be a NodeConfig" in message
    assert bench.told_of("Ready")[0] == "True"
    bench.said("NodeClassWarning", "must be a NodeConfig")
    bench.restart()
    bench.change(subnetSelectorTerms=[{"tags": {"no": "such"}}])  # what its validation waits for is missing for a while
    bench.look()
    assert bench.told_of("ValidationSucceeded")[0] == "False"
    bench.change(subnetSelectorTerms=[{"tags": TAGS}])
    bench.look()
    assert bench.told_of("ValidationSucceeded")[:2] == ("True", "InvalidUserData")
    assert bench.told_of("Ready")[0] == "True"
    bench.change(userData="#cloud-config\npackages: [curl]\n")
    bench.look()
    assert bench.told_of("ValidationSucceeded")[:2] == ("False", "InvalidUserData")


def test_what_was_mended_is_found(bench: Bench) -> None:
    bench.create(securityGroupSelectorTerms=[{"name": f"late-{bench.name}"}])
    assert bench.look() == pytest.approx(60)
    assert bench.told_of("Ready")[0] == "False"
    bench.ec2.add_group(f"sg-{next(_numbers):017x}", f"late-{bench.name}", {})
    bench.look(60)
    assert bench.told_of("Ready")[0] == "True"


def test_what_is_odd_is_said_once(bench: Bench) -> None:
    bench.create(
        subnetSelectorTerms=[{"id": bench.ec2.vpc.subnets["us-west-2a"], "tags": TAGS}, {"tags": TAGS}],
        capacityReservationSelectorTerms=[{"id": "cr-0123"}],
        userData="apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {cluster: {name: other}}\n",
    )
    for _ in range(3):
        bench.look(61)
    assert bench.told_of("Ready")[0] == "True"
    bench.said("NodeClassWarning", "spec.subnetSelectorTerms[0]")
    bench.said("NodeClassWarning", "spec.capacityReservationSelectorTerms[0]", "cr-0123")
    bench.said("NodeClassWarning", 'the cluster name "other"')
    texts = [one[2] for one in bench.events()]
    assert len(texts) == len(set(texts))


# --- failures of AWS

LOOKS: Final = {
    "DescribeSubnets": "SubnetsReady",
    "DescribeSecurityGroups": "SecurityGroupsReady",
    "DescribeImages": "AMIsReady",
    "GetParameter": "AMIsReady",
    "DescribeCapacityReservations": "CapacityReservationsReady",
    "DescribePlacementGroups": "PlacementGroupReady",
    "GetInstanceProfile": "InstanceProfileReady",
    "CreateInstanceProfile": "InstanceProfileReady",
    "AddRoleToInstanceProfile": "InstanceProfileReady",
    "CreateLaunchTemplate": "ValidationSucceeded",
    "CreateFleet": "ValidationSucceeded",
    "RunInstances": "ValidationSucceeded",
}
FIRST: Final = {
    "throttled": "Unknown",
    "500": "Unknown",
    "timeout-after-effect": "Unknown",
    "denied": "False",
}
UNHARMED: Final = {"CreateInstanceProfile", "AddRoleToInstanceProfile", "CreateFleet", "RunInstances"}
"""What was done is looked up; a dry run has no effect that a timeout could come after."""


def with_everything(bench: Bench) -> None:
    group = f"group-{bench.name}"
    bench.aws.client("ec2").create_placement_group(GroupName=group, Strategy="cluster")
    bench.create(
        capacityReservationSelectorTerms=[{"tags": {"none": "such"}}],
        placementGroupSelector={"name": group},
    )


@pytest.mark.parametrize("kind", FIRST)
@pytest.mark.parametrize("action", LOOKS)
def test_a_new_class_waits_for_a_call_that_fails_and_says_so(bench: Bench, action: str, kind: str) -> None:
    with_everything(bench)
    bench.ec2.script([Fault(action, kind)])
    bench.look()
    status, _, message = bench.told_of(LOOKS[action])
    if kind == "timeout-after-effect" and action in UNHARMED:
        assert status == "True"
        return
    assert status == FIRST[kind]
    assert action in message
    assert bench.told_of("Ready")[0] in {status, "False"}
    bench.ec2.script()
    bench.look(61)
    assert bench.unhappy() == {}


READS: Final = [action for action in LOOKS if not action.startswith(("Add", "Create", "Run"))]


@pytest.mark.parametrize("kind", ["throttled", "500", "denied", "not-found"])
def test_a_class_that_is_ready_stays_so_while_every_call_fails(bench: Bench, kind: str) -> None:
    with_everything(bench)
    bench.look()
    before = bench.get().status
    answers = {"DescribePlacementGroups"} if kind == "not-found" else set()  # that one means what it says
    bench.ec2.script([Fault(action, kind) for action in READS if action not in answers])
    bench.restart(dry_runs=False)
    bench.look(26 * 3600)
    after = bench.get().status
    assert bench.told_of("Ready")[0] == "True"
    assert (after.amis, after.subnets, after.security_groups) == (before.amis, before.subnets, before.security_groups)
    assert after.instance_profile == before.instance_profile
    assert "using the previous result" in bench.told_of("SubnetsReady")[2]
    bench.said("NodeClassWarning", "ec2:DescribeSubnets")
    bench.ec2.script()
    bench.look(61)
    assert bench.told_of("SubnetsReady")[2] == ""


def die_at(bench: Bench, call: int) -> None:
    """The process gets no answer to this call, nor to any after it, and another takes its place."""
    bench.ec2.reset_calls()
    bench.ec2.script([Fault("*", "timeout-after-effect", times=1, after=call), Fault("*", "500", after=call + 1)])
    bench.look()
    bench.ec2.script()
    bench.restart()


def profiles_under(bench: Bench, uid: str) -> list[str]:
    rows = bench.aws.client("iam").list_instance_profiles()["InstanceProfiles"]
    return [row["InstanceProfileName"] for row in rows if row["Path"].endswith(f"/{uid}/")]


def templates_of(bench: Bench) -> list[str]:
    named = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": [bench.name]}]
    rows = bench.aws.client("ec2").describe_launch_templates(Filters=named)["LaunchTemplates"]
    return [row["LaunchTemplateName"] for row in rows]


CALLS_OF_A_NEW_CLASS: Final = 14
CALLS_OF_AN_END: Final = 8


@pytest.mark.parametrize("call", range(CALLS_OF_A_NEW_CLASS))
def test_a_process_that_dies_at_any_call_leaves_nothing_twice(bench: Bench, call: int) -> None:
    made = bench.create()
    die_at(bench, call)
    assert len(bench.ec2.log()) > call
    bench.look(61)
    assert bench.unhappy() == {}
    assert profiles_under(bench, made.metadata.uid) == [bench.get().status.instance_profile]
    assert len(templates_of(bench)) == 1
    bench.client.delete(EC2NODECLASSES, bench.name)
    bench.look()
    assert (profiles_under(bench, made.metadata.uid), templates_of(bench)) == ([], [])


def test_how_many_calls_a_class_makes(bench: Bench) -> None:
    bench.create()
    bench.look()
    assert len(bench.ec2.log()) == CALLS_OF_A_NEW_CLASS
    bench.client.delete(EC2NODECLASSES, bench.name)
    bench.ec2.reset_calls()
    bench.look()
    assert len(bench.ec2.log()) == CALLS_OF_AN_END


@pytest.mark.parametrize("call", range(CALLS_OF_AN_END))
def test_a_process_that_dies_while_it_cleans_up_leaves_nothing(bench: Bench, call: int) -> None:
    made = bench.create()
    bench.look()
    bench.client.delete(EC2NODECLASSES, bench.name)
    die_at(bench, call)
    bench.look()
    with pytest.raises(NotFound):
        bench.get()
    assert profiles_under(bench, made.metadata.uid) == []
    assert templates_of(bench) == []


# --- hashes


def stamps(version: str, digest: str) -> dict[str, str]:
    return {HASH_VERSION_ANNOTATION: version, HASH_ANNOTATION: digest}


def test_claims_of_karpenter_are_taken_over(bench: Bench) -> None:
    made = bench.create(kubelet={"maxPods": 20})
    former = former_hash(made.spec, CA)
    assert former is not None
    bench.client.patch(EC2NODECLASSES, bench.name, {"metadata": {"annotations": stamps(FORMER_VERSION, former)}})
    launched = {"Launched": "True", "Registered": "True"}
    same = bench.claim(stamps(FORMER_VERSION, former), launched)
    other = bench.claim(stamps(FORMER_VERSION, "123"), launched)
    new = bench.claim(stamps(HASH_VERSION, "456"), {**launched, "Drifted": "True"})
    bare = bench.claim({}, launched)
    bench.look()
    digest = nodeclass_hash(made.spec, CA)

    def annotations(name: str) -> tuple[str | None, str | None]:
        found = bench.claim_now(name).metadata.annotations
        return found.get(HASH_VERSION_ANNOTATION), found.get(HASH_ANNOTATION)

    assert annotations(same) == (HASH_VERSION, digest)
    assert annotations(other) == (HASH_VERSION, "123")
    assert annotations(new) == (HASH_VERSION, "456")
    assert annotations(bare) == (None, None)
    assert bench.get().metadata.annotations == stamps(HASH_VERSION, digest)
    drifted = condition(bench.claim_now(other).status.conditions, "Drifted")
    assert drifted is not None
    assert (drifted.status, drifted.reason) == ("True", "NodeClassDrift")
    assert bench.name in drifted.message
    for name in (same, bare):
        assert condition(bench.claim_now(name).status.conditions, "Drifted") is None
    before = bench.writes()
    bench.look()
    assert bench.writes() == before
    stamped_by_karpenter(bench, [same, other, new, bare], former)  # somebody goes back to 1.14
    assert [annotations(name) for name in (same, other, new)] == [
        (FORMER_VERSION, former),
        (FORMER_VERSION, "123"),
        (FORMER_VERSION, "456"),
    ]
    bench.look()  # and comes again
    assert [annotations(name) for name in (same, other, new, bare)] == [
        (HASH_VERSION, digest),
        (HASH_VERSION, "123"),
        (HASH_VERSION, "456"),
        (HASH_VERSION, digest),
    ]
    drifted_now = [condition(bench.claim_now(name).status.conditions, "Drifted") for name in (same, other, new)]
    assert [one is not None for one in drifted_now] == [False, True, True]


def stamped_by_karpenter(bench: Bench, claims: list[str], former: str) -> None:
    """What the hash controller of 1.14 does with a class of another hash version."""
    for name in claims:
        claim = bench.claim_now(name)
        if claim.metadata.annotations.get(HASH_VERSION_ANNOTATION) == FORMER_VERSION:
            continue
        drifted = condition(claim.status.conditions, "Drifted") is not None
        wanted = {HASH_VERSION_ANNOTATION: FORMER_VERSION} if drifted else stamps(FORMER_VERSION, former)
        bench.client.patch(NODECLAIMS, name, {"metadata": {"annotations": wanted}})
    bench.client.patch(EC2NODECLASSES, bench.name, {"metadata": {"annotations": stamps(FORMER_VERSION, former)}})


# --- the end


def test_a_class_waits_for_its_claims_and_leaves_nothing_behind(bench: Bench) -> None:
    bench.create()
    claim = bench.claim({})
    bench.look()
    iam = bench.aws.client("iam")
    profile = bench.get().status.instance_profile
    path = iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Path"]
    iam.create_instance_profile(InstanceProfileName=f"second-{bench.name}", Path=path)
    iam.create_instance_profile(InstanceProfileName=f"foreign-{bench.name}", Path="/")
    ec2 = bench.aws.client("ec2")
    tags = [
        {"Key": "eks:eks-cluster-name", "Value": "dovetail"},
        {"Key": "karpenter.k8s.aws/ec2nodeclass", "Value": bench.name},
    ]
    ec2.create_launch_template(
        LaunchTemplateName=f"karpenter.k8s.aws/{bench.name}",
        LaunchTemplateData={"ImageId": "ami-1"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )
    bench.client.delete(EC2NODECLASSES, bench.name)
    assert bench.look() == pytest.approx(600)
    bench.said("WaitingOnNodeClaimTermination", claim)
    assert bench.get().metadata.finalizers == (TERMINATION_FINALIZER,)
    bench.delete_claims()
    bench.ec2.reset_calls()
    assert bench.look() is None
    with pytest.raises(NotFound):
        bench.get()
    left = {row["InstanceProfileName"] for row in iam.list_instance_profiles()["InstanceProfiles"]}
    assert not {profile, f"second-{bench.name}"} & left
    assert f"foreign-{bench.name}" in left
    found = ec2.describe_launch_templates(Filters=[{"Name": f"tag:{tags[1]['Key']}", "Values": [bench.name]}])
    assert [row["LaunchTemplateName"] for row in found["LaunchTemplates"]] == [f"karpenter.k8s.aws/{bench.name}"]
    order = [one.action for one in bench.ec2.log() if one.action.startswith("Delete")]
    assert order == ["DeleteInstanceProfile", "DeleteInstanceProfile", "DeleteLaunchTemplate"]
    assert bench.look() is None


@pytest.mark.parametrize("action", ["ListInstanceProfiles", "DeleteInstanceProfile", "DescribeLaunchTemplates"])
@pytest.mark.parametrize("kind", ["throttled", "denied", "timeout-after-effect"])
def test_a_clean_up_that_fails_is_tried_again(bench: Bench, action: str, kind: str) -> None:
    bench.create()
    bench.look()
    bench.client.delete(EC2NODECLASSES, bench.name)
    bench.ec2.script([Fault(action, kind, times=1)])
    assert bench.look() == pytest.approx(10)
    bench.said("CleanUpFailed", action)
    assert bench.get().metadata.finalizers == (TERMINATION_FINALIZER,)
    assert bench.look(10) is None
    with pytest.raises(NotFound):
        bench.get()


def test_profiles_of_former_roles_are_collected_when_no_claim_has_them(bench: Bench) -> None:
    bench.create()
    bench.look()
    first = bench.get().status.instance_profile
    claim = bench.claim({INSTANCE_PROFILE_ANNOTATION: first})
    bench.ec2.add_role(f"role-{bench.name}")
    bench.change(role=f"role-{bench.name}")
    bench.look()
    second = bench.get().status.instance_profile
    assert second != first
    collector = ProfileCollector(bench.client, bench.profiles)

    def exists(name: str) -> bool:
        rows = bench.aws.client("iam").list_instance_profiles()["InstanceProfiles"]
        return name in {row["InstanceProfileName"] for row in rows}

    bench.clock.advance(7200)
    collector.poll()
    assert exists(first)
    bench.client.delete(NODECLAIMS, claim)
    bench._claims.clear()
    collector.poll()
    assert not exists(first)
    assert exists(second)
