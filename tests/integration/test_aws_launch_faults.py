"""Every write of a launch at which the process may be killed, times every trouble that EC2 and the API server may make meanwhile.

In the end there are as many instances as claims, each claim has one, none is on two, and none was ended. `make test` takes a part of the product in which every
write and every trouble comes several times; all of it is marked `bench` (`make chaos` runs it). The lives of one trouble are lived at the same time.
"""

import contextlib
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError
from provisioner.kube.resources import NODECLAIMS
from provisioner.kube.resources import PODS as PODS_OF
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.workers import pool, run_parallel
from tests.support.apiproxy import Rule, api_proxy
from tests.support.awscluster import NAMESPACE, PROVISIONER, AwsCluster, aws_cluster
from tests.support.ec2 import Ec2, Fault, in_turn
from tests.support.launching import CLOCK, LAG, PATIENCE, Answer, Claims, Ground, Kill, alive, kills, node_class_of, rig

pytest_plugins = ["tests.support.grounds"]

ORDERED = 4
TYPES = ["m5.large", "m6g.large", "c5.large", "c6g.large"]
PODS = 6
ATTEMPTS = 3
WAIT = 60.0
AT_ONCE = 5
"""Lives; each has some twenty threads."""

KILLS: Mapping[str, Kill | None] = {"nobody is killed": None, **kills(ORDERED)}


@dataclass(frozen=True)
class Trouble:
    """What goes wrong.

    Attributes:
        calls: of EC2, of the calls of one life.
        everywhere: of EC2, whoever calls; each is met by all lives.
        writes: of marks, by their number in one life.
    """

    calls: tuple[Fault, ...] = ()
    everywhere: tuple[Fault, ...] = ()
    writes: Mapping[int, Answer] | None = None

    def script(self, lives: Mapping[str, str]) -> list[Fault]:
        """For lives by the text that is in all their fleets."""
        made = [replace(one, match={**one.match, "contains": text}) for text in lives.values() for one in self.calls]
        return [*made, *self.everywhere]


LOST = Fault("CreateFleet", "timeout-after-effect", times=1)
UNAVAILABLE = Fault("CreateFleet", "error", times=1, after=2, code="Unavailable", message="come back", status=503)
NOT_IN_THIS_ZONE = "Your requested instance type (m5.large) is not supported in your requested Availability Zone."
HALF = {"instance-type": TYPES[:2]}

TROUBLES: Mapping[str, Trouble] = {
    "nothing else": Trouble(),
    "a lost answer, and then the replays are in progress": Trouble(
        (LOST, Fault("CreateFleet", "replay", code="RequestInProgress", message="in progress", times=3))
    ),
    "a lost answer, and then the replays name the fleet only": Trouble((LOST, Fault("CreateFleet", "replay"))),
    "a lost answer, and then the parameters do not match": Trouble(
        (LOST, Fault("CreateFleet", "replay", code="IdempotentParameterMismatch", message="inconsistent"))
    ),
    "a lost answer, a throttled call, an unavailable service, and then an answer": Trouble(
        (*in_turn("CreateFleet", "timeout-after-effect", "throttled"), UNAVAILABLE)
    ),
    "throttled, lost, denied, lost, and then an answer": Trouble(
        tuple(in_turn("CreateFleet", "throttled", "timeout-after-effect", "denied", "timeout-after-effect"))
    ),
    "a lost answer, and EC2 describes nothing for long": Trouble(
        (LOST, Fault("CreateFleet", "replay")),
        (Fault("DescribeInstances", "stale", seconds=PATIENCE / 2, times=40),),
    ),
    "a call that fails with a code that nobody has heard of": Trouble(
        (Fault("CreateFleet", "error", times=1, code="InvalidFleetConfiguration", message="The fleet is not valid."),)
    ),
    "some offerings are refused with codes that nobody has heard of": Trouble(
        everywhere=(
            Fault("", "shortage", match=HALF, code="InvalidFleetConfiguration", message=NOT_IN_THIS_ZONE),
            Fault("", "shortage", match={"instance-type": TYPES[2]}, available=2, code="NeverHeardOf", message="of it"),
        )
    ),
    "for a second all offerings are refused with a code that nobody has heard of": Trouble(
        everywhere=(Fault("", "shortage", code="NeverHeardOf", message="of it", seconds=1.0),)
    ),
    "marks whose answers are lost": Trouble(writes={2: Answer.LOST, 3: Answer.NEVER}),
    "marks that come late": Trouble(writes={1: Answer.LATE, ORDERED: Answer.LOST}),
    "marks that are refused, and a lost answer": Trouble((LOST,), writes={2: Answer.REFUSED, ORDERED: Answer.REFUSED}),
}
OF_OFFERINGS = frozenset(name for name, one in TROUBLES.items() if any(x.kind == "shortage" for x in one.everywhere))


def part(trouble: str, every: int) -> dict[str, Kill | None]:
    """Every n-th kill, from another one on for each trouble."""
    start = list(TROUBLES).index(trouble)
    return {name: kill for number, (name, kill) in enumerate(KILLS.items()) if (number + start) % every == 0}


@pytest.fixture(scope="module")
def shared(emulator: Ec2) -> Iterator[Ground]:
    with Ground.of(emulator, attempts=ATTEMPTS) as made:
        yield made


@pytest.fixture
def ground(emulator: Ec2, shared: Ground, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """One of its own for what teaches the table of shortages something."""
    emulator.script()
    if request.node.callspec.params["trouble"] in OF_OFFERINGS:
        with Ground.of(emulator, attempts=ATTEMPTS) as made:
            yield made
    else:
        yield shared
    emulator.script()


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_part_of_the_product(ground: Ground, trouble: str) -> None:
    live_all(ground, TROUBLES[trouble], part(trouble, 6))


@pytest.mark.bench
@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_product(ground: Ground, trouble: str) -> None:
    live_all(ground, TROUBLES[trouble], KILLS)


def live_all(ground: Ground, trouble: Trouble, kills: Mapping[str, Kill | None]) -> None:
    """All lives that are killed so, with this trouble; nothing of them may be left over or be lost."""
    texts = {name: str(uuid.uuid4()) for name in kills}
    ground.ec2.script(trouble.script(texts))
    before = len(ground.ec2.instances("shutting-down", "terminated"))
    with pool(min(AT_ONCE, len(kills)), "lives") as threads:
        problems = [
            found
            for outcome in run_parallel(
                threads, lambda name: live(ground, trouble, texts[name], kills[name], name), list(kills)
            )
            for found in outcome.unwrap()
        ]
    assert not problems
    assert len(ground.ec2.instances("shutting-down", "terminated")) == before, "none was ended"


def live(ground: Ground, trouble: Trouble, text: str, kill: Kill | None, name: str) -> list[str]:
    """One process until it is killed, the next one until all claims have instances; what is wrong then."""
    claims, classes = Claims(), [node_class_of(ground, tags={"test": text})]
    claims.answers = dict(trouble.writes or {})
    claims.add(ORDERED, {names.INSTANCE_TYPE_LABEL: TYPES})
    if kill is not None:
        with rig(ground, claims, classes, kill=kill) as first:
            first.start()
            done: Callable[[], bool] = lambda: first.mortal.dead.is_set() or not claims.without_instance()  # noqa: E731
            first.wait(WAIT, done)
            first.mortal.dead.set()
            first.wait(5, lambda: not first.launcher_busy())
        for write in claims.late:
            write()
    with rig(ground, claims, classes) as second:
        second.start()
        if not second.wait(WAIT):
            return [f"{name}: {len(claims.without_instance())} claims have no instance: {claims.errors}"]
    for write in claims.late:
        write()
    with rig(ground, claims, classes) as third:  # which finds nothing to do
        third.start()
        CLOCK.sleep(2 * third.look)
    return [f"{name}: {problem}" for problem in judged(ground.ec2, claims, text)]


def judged(ec2: Ec2, claims: Claims, text: str) -> Iterator[str]:
    """What is not as it must be."""
    owned = claims.claims_by_instance()
    there = {one for one, instance in alive(ec2).items() if instance["tags"].get("test") == text}
    if len(owned) != ORDERED or set(owned.values()) != {1}:
        yield f"claims have {dict(owned)}"
    if there - owned.keys():
        yield f"instances of nobody: {sorted(there - owned.keys())}"
    if owned.keys() - there:
        yield f"claims of instances that are not there: {sorted(owned.keys() - there)}"


# ---------------------------------------------------------------------- the end


def test_a_protected_instance_holds_up_no_other(emulator: Ec2, shared: Ground) -> None:
    """EC2 ends those of other zones and says that the call failed; those of its zone are asked for again without it."""
    emulator.script()
    claims, zones = Claims(), sorted(emulator.vpc.zones)
    for zone in zones:
        wanted = {names.INSTANCE_TYPE_LABEL: ["m5.large"], names.CAPACITY_TYPE_LABEL: ["on-demand"]}
        claims.add(3, {**wanted, names.ZONE_LABEL: [zone]})
    text = str(uuid.uuid4())
    with rig(shared, claims, [node_class_of(shared, tags={"test": text})]) as made:
        made.start()
        assert made.wait(WAIT), claims.errors
        emulator.skip(2 * max(1.0, LAG))
        ours = {one: instance for one, instance in alive(emulator).items() if instance["tags"].get("test") == text}
        guarded = next(one for one, instance in sorted(ours.items()) if instance["zone"] == zones[1])
        emulator.protect(guarded)

        def delete(claim: NodeClaim) -> None:
            with contextlib.suppress(CloudError):  # as the lifecycle does: it is tried again
                made.launcher.delete(claim)

        def end(keep: frozenset[str]) -> bool:
            made.in_parallel(delete, claims.all())
            return {one for one in alive(emulator) if one in ours} == keep

        assert made.wait(20, lambda: end(frozenset({guarded})))
        emulator.protect(guarded, really=False)
        assert made.wait(20, lambda: end(frozenset()))


# ---------------------------------------------------------------------- the real program


@pytest.mark.plane
def test_the_real_program_is_killed_while_both_servers_lose_answers(fresh_plane: DevCluster) -> None:
    """Answers to marks and to CreateFleet are lost, then it is killed; later EC2 hides every instance, and nobody's pods are lost for it."""
    with (
        aws_cluster(fresh_plane, clock_factor=8.0, data="small", rate_limits=False, lag=30.0) as aws,
        api_proxy(fresh_plane) as proxy,
    ):
        marks = proxy.add(Rule("after-effect", "PATCH", r"/apis/karpenter\.sh/v1/nodeclaims/[^/?]+(\?.*)?", times=4))
        aws.ec2.script(in_turn("CreateFleet", "timeout-after-effect", "throttled", "500", DryRun=""))
        aws.start("--disable-leader-election", kubeconfig=proxy.kubeconfig())
        aws.node_class()
        aws.pool(disruption={"consolidateAfter": "Never"})
        aws.deploy("web", PODS, {"cpu": "3", "memory": "1Gi"})
        aws.eventually(lambda: marks.hits and aws.ec2.hits()[0][1], "an answer of each server is lost")
        fresh_plane.signal(PROVISIONER, signal.SIGKILL)
        aws.start("--disable-leader-election", kubeconfig=proxy.kubeconfig())
        aws.await_running(PODS)
        aws.eventually(lambda: len(aws.initialized()) == len(aws.claims()), "all claims are initialised")
        before = living(aws)

        aws.ec2.script([Fault("", "unseen")])
        fresh_plane.signal(PROVISIONER, signal.SIGKILL)
        aws.ec2.reset_calls()
        aws.start("--disable-leader-election", kubeconfig=proxy.kubeconfig())
        aws.eventually(lambda: aws.calls()["DescribeInstances"] >= 2, "EC2 is asked and shows nothing")
        gone = aws.claims()[0]
        aws.client.delete(NODECLAIMS, gone.name)  # its end is asked for all the same, behind the drain
        instance = gone.status.provider_id.rpartition("/")[2]
        aws.eventually(lambda: instance not in {one["id"] for one in aws.ec2.alive()}, "it ends")
        aws.await_running(PODS)
        after = living(aws)
        assert {*before} - {*after} == {instance}, "no other"
        kept = {one: pods for one, pods in before.items() if one in after}
        assert all(pods <= after[one] for one, pods in kept.items()), "their pods are the same"

        aws.ec2.script()
        aws.eventually(lambda: gone.name not in {one.name for one in aws.claims()}, "EC2 shows that it has ended")
        owners = sorted(one.status.provider_id.rpartition("/")[2] for one in aws.claims())
        assert owners == sorted(one["id"] for one in aws.ec2.alive())


def living(aws: AwsCluster) -> dict[str, frozenset[str]]:
    """UIDs of the pods on each instance that is paid for."""
    nodes = {one["node"]: one["id"] for one in aws.ec2.alive()}
    pods = [one for one in aws.client.list(PODS_OF, NAMESPACE) if one.phase == "Running" and one.deleted is None]
    return {instance: frozenset(one.uid for one in pods if one.node_name == name) for name, instance in nodes.items()}
