"""Everything that may go wrong with every call of AWS, over a running provisioner: what a user sees, what is called, what is left in the end."""

import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import names
from provisioner.apis.ec2 import NODECLAIM_TAG
from provisioner.apis.meta import is_true
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.interruption.queue import InterruptionQueue
from provisioner.ec2.interruption.zonal_shift import ZonalShifts
from provisioner.ec2.market import reads
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.region_market import CATALOGUE, ON_DEMAND, SPOT, MarketContext, Reads, RegionMarket
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.nodeclass.cluster import EksFacts
from provisioner.ec2.settings import AwsSettings
from provisioner.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.awscluster import CLUSTER, PROVISIONER, AwsCluster, aws_cluster
from tests.support.awsfaults import (
    EARLY_ROWS,
    KINDS,
    LATE_ROWS,
    OWNERS,
    REGION,
    ROWS,
    WAIT,
    Life,
    Row,
    Seen,
    actions,
    elsewhere,
    mutating,
)
from tests.support.clock import FakeClock
from tests.support.ec2 import Fault

REPOSITORY: Final = Path(__file__).parents[2]

ALONE: Final = "--disable-leader-election"

pytestmark = [pytest.mark.plane, pytest.mark.timeout(600)]


def start(aws: AwsCluster) -> None:
    """The provisioner, which need not wait for the Lease of one that was killed."""
    aws.start(ALONE)


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsCluster]:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=10.0, data="small", rate_limits=False, lag=30.0) as one:
            start(one)
            yield one
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def seen(aws: AwsCluster) -> Seen:
    """One life in which every row of the table happens."""
    clock = SystemClock()
    began = clock.monotonic()
    found = Life(aws, ALONE).run()
    print(f"{len(ROWS)} faults in {clock.monotonic() - began:.0f} s")
    return found


def ids(rows: tuple[Row, ...]) -> list[str]:
    return [str(row) for row in rows]


def test_every_fault_of_every_action_is_a_row_or_is_told_why_not() -> None:
    ours = {(row.action, row.kind) for row in ROWS}
    assert len(ours) == len(ROWS)
    others = {(action, kind) for action in actions() for kind in KINDS if elsewhere(action, kind)}
    assert ours | others == {(action, kind) for action in actions() for kind in KINDS}
    assert not ours & others


def test_the_tests_that_cover_other_rows_are_there() -> None:
    told = {elsewhere(action, kind) for action in actions() for kind in KINDS}
    named = {found for text in told for found in re.findall(r"(tests/\S+\.py): (test_\w+)", text)}
    assert len(named) >= 8
    for path, test in named:
        assert f"def {test}(" in (REPOSITORY / path).read_text(encoding="utf-8"), test


# ------------------------------------------------------------------ what a user sees

CONDITIONS: Final = {
    "DescribeSubnets": "SubnetsReady",
    "DescribeSecurityGroups": "SecurityGroupsReady",
    "DescribeImages": "AMIsReady",
    "DescribeCapacityReservations": "CapacityReservationsReady",
    "DescribePlacementGroups": "PlacementGroupReady",
    "GetInstanceProfile": "InstanceProfileReady",
    "CreateInstanceProfile": "InstanceProfileReady",
    "AddRoleToInstanceProfile": "InstanceProfileReady",
    "CreateLaunchTemplate": "ValidationSucceeded",
    "RunInstances": "ValidationSucceeded",
}
LAUNCHED: Final = {
    "throttled": "RequestLimitExceeded",
    "500": "InternalError",
    "denied": "Unauthorized",
}
FIRST_RETRY: Final = 2.0
"""Seconds after which the market is asked again when it did not answer for the first time."""
UNSEEN: Final = {
    ("CreateInstanceProfile", "timeout-after-effect"): "what was done is looked up",
    ("AddRoleToInstanceProfile", "timeout-after-effect"): "what was done is looked up",
    ("CreateLaunchTemplate", "timeout-after-effect"): "the next attempt finds it made",
    ("RunInstances", "timeout-after-effect"): "a dry run has no effect after which an answer could be lost",
    ("DescribeCapacityReservations", "not-found"): "no reservation is none",
    ("GetInstanceProfile", "not-found"): "it is made",
    ("CreateFleet", "timeout-after-effect"): "what was launched is found by its tag",
    ("CreateFleet", "not-found"): "the template is made again",
    (
        "TerminateInstances",
        "timeout-after-effect",
    ): "who asks again while EC2 still describes it as running is answered",
    ("TerminateInstances", "not-found"): "EC2 may not know a young instance everywhere: it is asked again",
    ("RemoveRoleFromInstanceProfile", "not-found"): "it has no role then",
    ("RemoveRoleFromInstanceProfile", "timeout-after-effect"): "the next attempt finds it removed",
    ("DeleteInstanceProfile", "timeout-after-effect"): "the next attempt finds it gone",
    ("DeleteLaunchTemplate", "timeout-after-effect"): "the next attempt finds it gone",
}


@pytest.mark.parametrize("row", EARLY_ROWS, ids=ids(EARLY_ROWS))
def test_trouble_at_the_beginning_is_seen(seen: Seen, row: Row) -> None:
    assert 1 <= seen.hits[row] <= row.times, "it happened"
    if row.kind == "stale" or (row.action, row.kind) in UNSEEN:
        return
    if row.action == "CreateFleet":
        said = seen.of("claim", row.claim)
        assert any(one[:3] == ("Launched", "Unknown", LAUNCHED[row.kind]) for one in said), said
        return
    said = seen.of("class", row.owner)
    if (row.action, row.kind) == ("DescribePlacementGroups", "not-found"):
        assert any(one[2] == "PlacementGroupNotFound" for one in said), said
    elif (row.action, row.kind) == ("RunInstances", "not-found"):
        assert any(one[0] == row.owner and row.action in one[2] for one in seen.events)
    else:
        status = "False" if row.kind == "denied" else "Unknown"
        told = [one for one in said if one[0] == CONDITIONS[row.action] and row.action in one[3]]
        assert status in {one[1] for one in told}, said


@pytest.mark.parametrize("row", LATE_ROWS, ids=ids(LATE_ROWS))
def test_trouble_at_the_end_is_seen(seen: Seen, row: Row) -> None:
    assert 1 <= seen.hits[row] <= row.times, "it happened"
    if row.kind == "stale" or (row.action, row.kind) in UNSEEN:
        return
    if row.action == "CreateTags":
        assert any("Failed to tag an instance" in line and row.claim in line for line in seen.log.splitlines())
        return
    if row.action in {"TerminateInstances", "DescribeInstances"}:
        assert any(one[:2] == (row.claim, "FailedTermination") for one in seen.events)
    else:
        told = [one[2] for one in seen.events if one[:2] == (row.owner, "CleanUpFailed")]
        assert any(row.action in text for text in told), told


MOST_MORE: Final = 12
"""Calls of one action for one class beyond those that a fault hit."""
MOST_LOOKS: Final = 24
"""Questions about one instance from its first end to its last: it is looked at every few seconds until it is gone."""


@pytest.mark.parametrize("row", [*EARLY_ROWS, *LATE_ROWS], ids=ids((*EARLY_ROWS, *LATE_ROWS)))
def test_nobody_is_asked_too_often(seen: Seen, row: Row) -> None:
    assert seen.calls[row] <= row.times + (MOST_LOOKS if row.action == "DescribeInstances" else MOST_MORE)


def test_in_the_end_there_are_as_many_instances_as_claims_and_nothing_is_left(seen: Seen) -> None:
    assert seen.instances == len(OWNERS)
    assert seen.strays == []
    assert seen.left == []


# ------------------------------------------------------------------ what the process reads for itself


READS: Final = {
    (action, kind): Fault(action, kind, times=1)
    for action in (*REGION, "DescribeCluster", "GetManagedResource", "GetQueueUrl")
    for kind in KINDS
    if "test_a_reader_of_the_process_goes_on" in elsewhere(action, kind)
}


@pytest.fixture(scope="module")
def clients(aws: AwsCluster, seen: Seen) -> Iterator[AwsClients]:
    """Of this process, after the provisioner's life; a call that fails is not tried again."""
    assert seen.instances
    made = AwsClients(CallPolicy(aws.ec2.region, attempts=1), SystemClock(), aws.ec2.session())
    yield made
    made.close()


@pytest.mark.parametrize("fault", READS.values(), ids=map(": ".join, READS))
def test_a_reader_of_the_process_goes_on(aws: AwsCluster, clients: AwsClients, fault: Fault) -> None:
    clock, region = SystemClock(), aws.ec2.region
    later = FakeClock(clock.now())
    settings = AwsSettings(cluster_name=CLUSTER, region=region, eks_control_plane=True)
    aws.ec2.script()
    facts = EksFacts(clients, aws.client, settings)
    assert facts.refresh()
    known, eks = facts.cluster(), facts.eks
    assert eks is not None
    sources = Reads(
        region=lambda: reads.read_region(clients),
        spot=lambda: reads.read_spot(clients, clock),
        on_demand=lambda: reads.read_on_demand(clients, region),
    )
    market = RegionMarket(settings, sources, MarketContext(), Shortages(), MemoryTable(), later)
    shifts = ZonalShifts(clients, lambda: eks.arn, clock)
    queue = InterruptionQueue(clients, aws.ec2.vpc.queue, wait_seconds=0)
    asks: dict[str, Callable[[], object]] = {
        "DescribeCluster": facts.refresh,
        "GetManagedResource": shifts.refresh,
        "GetQueueUrl": queue.receive,
        "GetProducts": lambda: market.refresh(ON_DEMAND),
        "DescribeSpotPriceHistory": lambda: market.refresh(SPOT),
    }
    ask = asks.get(fault.action, lambda: market.refresh(CATALOGUE))
    aws.ec2.script([fault])
    if fault.action in {"GetManagedResource", "GetQueueUrl"}:
        with pytest.raises((ClientError, BotoCoreError)):
            ask()
    elif fault.action == "DescribeCluster":
        assert ask(), "what was known stays"
        assert facts.cluster() == known
    else:
        assert ask() == FIRST_RETRY
        assert not market.ready
    assert aws.ec2.hits() == [(1, 1)]
    later.advance(300)
    assert ask() != FIRST_RETRY
    assert aws.ec2.hits()[0][0] >= 2, "it is asked again"
    assert market.ready == (fault.action in {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"})


# ------------------------------------------------------------------ kill -9


@dataclass(frozen=True)
class Step:
    """The provisioner is killed when a call has had its effect and before it hears so; `begin` makes it come to that call."""

    action: str
    begin: Callable[[], object]
    match: Mapping[str, str] = field(default_factory=dict)


def kill_at_each(aws: AwsCluster, steps: Sequence[Step]) -> None:
    """Kill and start again at each of the steps; the next call is held before the process that makes it starts."""

    def hold(following: Sequence[Step]) -> None:
        aws.ec2.reset_calls()
        held = [Fault(one.action, "timeout-after-effect", 1, seconds=WAIT, match=one.match) for one in following[:1]]
        aws.ec2.script(held)

    def is_held(action: str) -> bool:
        waiting = any(one.action == action and one.code is None for one in aws.ec2.log())
        return waiting and aws.ec2.hits()[0][1] == 1

    hold(steps)
    for number, step in enumerate(steps, 1):
        step.begin()
        aws.eventually(partial(is_held, step.action), f"{step.action} is called")
        SystemClock().sleep(0.2)  # the effect comes a moment after the call
        aws.cluster.signal(PROVISIONER, signal.SIGKILL)
        hold(steps[number:])
        start(aws)


def test_a_process_that_is_killed_after_any_call_leaves_nothing_twice(aws: AwsCluster, seen: Seen) -> None:
    assert seen.instances, "the provisioner runs"

    def goes_on() -> None:
        """It comes to the next call by itself."""

    def equal(instances: int) -> None:
        """So many claims, each with an instance of its own, and no other instance."""
        aws.eventually(lambda: len(aws.initialized()) == instances, f"{instances} claims are initialised", WAIT)
        claims = aws.claims()
        owners = sorted(one.status.provider_id.rpartition("/")[2] for one in claims)
        ended = [(one["id"], one["ended"], one["terminated_by"]) for one in aws.ec2.instances() if one["ended"]]
        going = {one.metadata.name: one.status.provider_id for one in claims if one.metadata.deletion_timestamp}
        told = "\n".join(line for line in aws.log().splitlines() if any(name in line for name in going))
        assert owners == sorted(one["id"] for one in aws.ec2.alive()), (
            f"claims that go: {going}, ended: {ended}\n{told}"
        )

    def is_ready() -> bool:
        """Whether the pool is; its class is looked at again, since a new process need not know the cluster at its first look."""
        for one in aws.client.list(EC2NODECLASSES):
            if not is_true(one.status.conditions, names.READY):
                aws.nudge(one)
                SystemClock().sleep(1.0)
        return is_true(aws.client.get(NODEPOOLS, "mortal").status.conditions, names.READY)

    def launch() -> None:
        aws.pool("mortal", node_class="mortal", ready=False, disruption={"consolidateAfter": "Never"})
        aws.eventually(is_ready, "the pool is Ready")
        aws.create_claims(aws.claim("mortal"), 3)

    def tag() -> None:
        equal(3)
        aws.cluster.signal(PROVISIONER, signal.SIGKILL)
        start(aws)  # a new process begins with those that may lack tags

    def end_one() -> None:
        equal(3)
        aws.eventually(lambda: all(NODECLAIM_TAG in one["tags"] for one in aws.ec2.alive()), "every instance is tagged")
        aws.client.delete(NODECLAIMS, aws.claims()[0].name)

    def end_all() -> None:
        aws.eventually(lambda: len(aws.claims()) == 2, "the claim is gone")
        equal(2)
        for one in aws.claims():
            aws.client.delete(NODECLAIMS, one.name)
        aws.await_empty()
        aws.client.delete(NODEPOOLS, "mortal")
        aws.client.delete(EC2NODECLASSES, "mortal")

    steps = [
        Step("CreateInstanceProfile", lambda: aws.node_class("mortal")),
        Step("AddRoleToInstanceProfile", goes_on),
        Step("CreateLaunchTemplate", goes_on),
        Step("CreateFleet", launch, {"DryRun": ""}),
        Step("CreateTags", tag),
        Step("TerminateInstances", end_one),
        Step("RemoveRoleFromInstanceProfile", end_all),
        Step("DeleteInstanceProfile", goes_on),
        Step("DeleteLaunchTemplate", goes_on),
    ]
    assert {one.action for one in steps} == mutating() - {"RebootInstances"}, (
        "tests/integration/test_aws_reboots.py kills around that"
    )
    kill_at_each(aws, steps)
    aws.eventually(lambda: not aws.client.list(EC2NODECLASSES), "the class is gone", WAIT)
    left = aws.ec2.left()
    assert left["templates"] == {}
    assert list(left["profiles"]) == [aws.ec2.vpc.profile]
