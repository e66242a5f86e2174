"""What becomes of a claim whose launch does not succeed at once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import (
    Awaited,
    CandidateRecord,
    CommandRecord,
    Replacement,
    TerminateFirst,
    encode_command,
)
from provisioner.apis.core import BriefMeta, CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec, Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.meta import Condition, OwnerReference, condition
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    LaunchUnderWayError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.types import CloudProvider, LaunchedInstance, RegistrationHook
from provisioner.lifecycle.controller import (
    BESIDE_SECONDS,
    ELSEWHERE_SECONDS,
    FINALIZE_REQUEUE_SECONDS,
    GATED_SECONDS,
    POSTPONED_SECONDS,
    REPLANNING_SECONDS,
    SET_SECONDS,
    Lifecycle,
    Timeouts,
    timeouts_of,
)
from provisioner.lifecycle.gang_decisions import SET_PATIENCE
from provisioner.lifecycle.gang_keeper import GangKeeper
from provisioner.lifecycle.launch_fallback import PATIENCE
from provisioner.options import Options
from provisioner.state.keys import NodeKey
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.termination.terminator import HELD_SECONDS, MIN_TAINTED_SECONDS
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node, pod
from tests.support.instances import FakeInstances, Lingering
from tests.support.problems import DRIVER, shape, storage_class, uses, volume_claim
from tests.support.worldserver import WorldServer

INSTANCE = LaunchedInstance("aws:///a/i-1", "m5.large", "a", "spot")
SHORT = InsufficientCapacityError("c", "all are sold out", 7.0)
OPEN = InsufficientCapacityError("c", "not all are sold out", 7.0, exhausted=False)
NEVER = InsufficientCapacityError("c", "there is no such type")
DENIED = CreateError("Unauthorized", "no")
LATER = CreateError("RequestLimitExceeded", "slower")
LATER.retry_after = 3.0


@dataclass
class Hook:
    """Waits for so long."""

    name: str
    seconds: float

    def wait(self, _: NodeClaim) -> float:
        return self.seconds


class Provider:
    """Answers every create alike."""

    name = "fake"

    def __init__(self, answer: CloudError | LaunchedInstance) -> None:
        self.answer, self.created = answer, 0
        self.ends: list[CloudError] = []
        self.hooks: list[Hook] = []

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        one = claim("c").spec.node_class_ref
        return frozenset({(one.group, one.kind)})

    def create(self, _: NodeClaim) -> LaunchedInstance:
        self.created += 1
        if isinstance(self.answer, CloudError):
            raise self.answer
        return self.answer

    def delete(self, _: NodeClaim) -> None:
        raise self.ends.pop(0)

    def registration_hooks(self) -> tuple[RegistrationHook, ...]:
        return tuple(self.hooks)


TIMEOUTS = Timeouts()


@dataclass
class Stage:
    """One claim under a lifecycle."""

    answer: CloudError | LaunchedInstance
    elsewhere: Callable[[str], bool] = lambda _: False
    age: timedelta = timedelta(seconds=1)
    mark: str = ""
    waits: bool = False
    deleted: bool = False
    stale: bool = False
    beside: str = ""
    paused: str = ""
    timeouts: Timeouts = TIMEOUTS

    def __post_init__(self) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.server = WorldServer(self.world)
        known = claim("c", annotations={names.LAUNCH_ANNOTATION: self.mark} if self.mark else {})
        if self.waits:
            told = Condition(
                type=names.LAUNCHED,
                status=names.UNKNOWN,
                reason=names.INSUFFICIENT_CAPACITY,
                message="",
                last_transition_time=NOON,
            )
            known = msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, conditions=(told,)))
        if self.deleted:
            meta = msgspec.structs.replace(known.metadata, deletion_timestamp=NOON)
            known = msgspec.structs.replace(known, metadata=meta)
        self.server.put(known)
        self.clock.advance(self.age.total_seconds())
        self.provider, self.registering = Provider(self.answer), list[str]()
        self.health: list[tuple[str, bool, str]] = []
        self.lifecycle = self.another()

    def another(self) -> Lifecycle:
        """The next leader's."""
        return Lifecycle(
            self.world.cluster,
            self.server.client,
            cast(CloudProvider, self.provider),
            self.server.terminator(self.provider),
            self.server.writer,
            self.server.recorder,
            self.clock,
            register=self.registering.append,
            health=lambda pool, good, why: self.health.append((pool, good, why)),
            nodes_are_stale=lambda: self.stale,
            elsewhere=self.elsewhere,
            beside=lambda: self.beside,
            paused=lambda _: self.paused,
            timeouts=self.timeouts,
            postponed=self.server.postponed,
        )

    def look(self) -> ReconcileResult:
        return self.lifecycle.reconcile("c")

    @property
    def gone(self) -> bool:
        """Whether the claim was deleted."""
        return not self.server.has("nodeclaims", "c")

    @property
    def reason(self) -> str:
        """Of Launched."""
        launched = condition(self.server.claim("c").status.conditions, names.LAUNCHED)
        return "" if launched is None else f"{launched.status}/{launched.reason}"

    @property
    def told(self) -> list[str]:
        """Reasons of events."""
        return [reason for _, _, _, reason in self.server.recorder.events]


@dataclass(frozen=True)
class Case:
    stage: Callable[[], Stage]
    want: ReconcileResult
    deleted: bool = False
    reason: str = ""


HOUR = timedelta(hours=1)

CASES = {
    "under way: nothing is written": Case(
        lambda: Stage(LaunchUnderWayError("c", 2.0)), ReconcileResult(requeue_after=2.0)
    ),
    "a shortage: it waits in place and says so": Case(
        lambda: Stage(SHORT), ReconcileResult(requeue_after=7.0), reason="Unknown/InsufficientCapacity"
    ),
    "what can never be launched is given up": Case(lambda: Stage(NEVER), ReconcileResult(), deleted=True),
    "pods that fit elsewhere are not sent there at once": Case(
        lambda: Stage(SHORT, elsewhere=lambda _: True),
        ReconcileResult(requeue_after=7.0),
        reason="Unknown/InsufficientCapacity",
    ),
    "pods that fit elsewhere, while something may still come": Case(
        lambda: Stage(OPEN, elsewhere=lambda _: True),
        ReconcileResult(requeue_after=7.0),
        reason="Unknown/InsufficientCapacity",
    ),
    "a shortage has no end": Case(
        lambda: Stage(SHORT, age=HOUR, waits=True),
        ReconcileResult(requeue_after=7.0),
        reason="Unknown/InsufficientCapacity",
    ),
    "an error is tried again with back-off": Case(
        lambda: Stage(DENIED), ReconcileResult(failed=True), reason="Unknown/Unauthorized"
    ),
    "or when the provider says": Case(
        lambda: Stage(LATER), ReconcileResult(requeue_after=3.0), reason="Unknown/RequestLimitExceeded"
    ),
    "a class that is not ready": Case(
        lambda: Stage(NodeClassNotReadyError("k", "n", "no")), ReconcileResult(), deleted=True
    ),
    "an old claim that nobody looked at is launched": Case(
        lambda: Stage(INSTANCE, age=HOUR), ReconcileResult(requeue_after=900.0), reason="True/Launched"
    ),
    "an old claim whose instance may have been launched": Case(
        lambda: Stage(LaunchUnderWayError("c"), age=HOUR, mark="b/1/0"), ReconcileResult(requeue_after=1.0)
    ),
    "an old claim whose launch fails is tried again, we have just come": Case(
        lambda: Stage(DENIED, age=HOUR, mark="b/1/0"), ReconcileResult(failed=True), reason="Unknown/Unauthorized"
    ),
    "under way, and something is wrong with it": Case(
        lambda: Stage(LaunchUnderWayError("c", 2.0, "InternalError", "no answer")),
        ReconcileResult(requeue_after=2.0),
        reason="Unknown/InternalError",
    ),
    "an old claim whose launch is not known is not given up": Case(
        lambda: Stage(LaunchUnderWayError("c", 2.0, "InternalError", "no answer"), age=HOUR, mark="b/1/0"),
        ReconcileResult(requeue_after=2.0),
        reason="Unknown/InternalError",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_launch_that_does_not_succeed(case: Case) -> None:
    stage = case.stage()
    assert stage.look() == case.want
    assert stage.gone == case.deleted
    if not case.deleted:
        assert stage.reason == case.reason


def test_what_is_not_launched_in_time_is_given_up_and_counted() -> None:
    before = disrupted("launch_timeout")
    stage = Stage(DENIED)
    stage.look()
    stage.clock.advance(TIMEOUTS.launch.total_seconds() + 1)
    stage.look()
    assert stage.gone
    assert disrupted("launch_timeout") == before + 1


def test_while_another_karpenter_leads_nothing_is_launched_or_given_up() -> None:
    stage = Stage(DENIED, beside="Karpenter runs")
    for _ in range(3):
        assert stage.look().requeue_after == BESIDE_SECONDS
        stage.clock.advance(TIMEOUTS.launch.total_seconds())
    assert (stage.provider.created, stage.gone, stage.reason) == (0, False, "")
    stage.beside = ""
    stage.look()
    assert (stage.provider.created, stage.gone) == (1, False), "the time of the other counts for nothing"


def test_while_launches_are_paused_nothing_is_launched_or_given_up_and_the_claim_says_so() -> None:
    stage = Stage(DENIED, paused="Launching nodes is paused by a user")
    for _ in range(3):
        assert stage.look().requeue_after == BESIDE_SECONDS
        stage.clock.advance(TIMEOUTS.launch.total_seconds())
    assert (stage.provider.created, stage.gone, stage.reason) == (0, False, "Unknown/LaunchPaused")
    stage.paused = ""
    stage.look()
    assert (stage.provider.created, stage.gone) == (1, False)


def test_a_launch_that_has_begun_is_finished_though_launches_are_paused() -> None:
    stage = Stage(INSTANCE, paused="Launching nodes is paused by a user", mark="b/0/0")
    stage.look()
    assert stage.provider.created == 1


def test_while_another_karpenter_leads_a_node_that_does_not_come_is_not_given_up() -> None:
    stage = Stage(INSTANCE, beside="Karpenter runs")
    launched(stage, age=HOUR, joined=False)
    stage.look()
    stage.clock.advance(TIMEOUTS.registration.total_seconds() + 1)
    stage.look()
    assert not stage.gone
    stage.beside = ""
    stage.look()
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    stage.look()
    assert stage.gone


def disrupted(reason: str) -> float:
    return sum(
        one.value
        for family in REGISTRY.collect()
        for one in family.samples
        if one.name == "karpenter_nodeclaims_disrupted_total" and one.labels["reason"] == reason
    )


def test_a_class_that_is_not_ready_is_told_of() -> None:
    stage = Stage(NodeClassNotReadyError("KWOKNodeClass", "default", "no images"))
    stage.look()
    assert stage.server.recorder.events == [("NodeClaim", "c", "Warning", "NodeClassNotReady")]


def test_a_claim_that_waits_is_written_once() -> None:
    stage = Stage(SHORT)
    stage.look()
    writes = len(stage.server.done)
    for _ in range(5):
        stage.clock.advance(7)
        stage.look()
    assert writes == 1
    assert len(stage.server.done) == writes
    assert stage.provider.created == 6
    assert set(stage.told) == {"InsufficientCapacityError"}


def planned(stage: Stage) -> tuple[Pod, ...]:
    """Pods of every kind for which the claim was made; the first two of them still wait for it."""
    waiting = pod("p0"), pod("p1")
    virtual = pod("buffer", annotations={names.BUFFER_FAKE_POD: "true"})
    others = virtual, pod("going", deleted=NOON), pod("done", phase="Succeeded"), pod("moving", node="elsewhere")
    stage.world.add(*waiting, *others)
    stage.world.cluster.assign(NodeKey("c"), (*waiting, *others))
    return waiting


def pod_events(stage: Stage) -> list[tuple[str, str, str]]:
    """About pods: the name, the type and the reason."""
    return [event[1:] for event in stage.server.recorder.events if event[0] == "Pod"]


def test_every_pod_that_waits_for_capacity_is_told_of_it_and_when_it_is_tried_again() -> None:
    stage = Stage(SHORT)
    waiting = planned(stage)
    stage.look()
    assert pod_events(stage) == [(one.name, "Warning", "InsufficientCapacityError") for one in waiting]
    assert set(stage.server.recorder.said("InsufficientCapacityError", "Pod")) == {
        "NodeClaim c nominated for this pod failed to launch: no capacity for NodeClaim c: all are sold out; the launch is retried in 7 s"
    }


@pytest.mark.parametrize(("answer", "elsewhere"), [(NEVER, False), (SHORT, True)])
def test_so_is_a_pod_whose_claim_gives_way(answer: InsufficientCapacityError, elsewhere: bool) -> None:
    stage = Stage(answer, elsewhere=lambda _: elsewhere)
    waiting = planned(stage)
    while not stage.gone:
        stage.look()
        stage.clock.advance(PATIENCE)
    assert pod_events(stage)[-2:] == [(one.name, "Warning", "InsufficientCapacityError") for one in waiting]
    assert stage.server.recorder.messages[-1].endswith("; the pod is planned again")


def test_an_event_about_capacity_is_the_same_for_a_pod_whatever_it_says() -> None:
    stage = Stage(SHORT)
    first, second = planned(stage)
    stage.look()
    assert stage.server.recorder.dedupes[-2:] == [(first.uid,), (second.uid,)]


def test_an_instance_in_the_end() -> None:
    stage = Stage(SHORT)
    stage.look()
    stage.provider.answer = INSTANCE
    stage.look()
    assert stage.server.claim("c").status.provider_id == INSTANCE.provider_id
    assert stage.reason == "True/Launched"


def test_an_end_that_fails_is_told_and_tried_again() -> None:
    stage = Stage(INSTANCE, deleted=True)
    stage.provider.ends = [CloudError("UnauthorizedOperation"), InstanceNotFoundError("i-1")]
    assert stage.look() == ReconcileResult(failed=True)
    assert stage.told == ["FailedTermination"]
    assert stage.look() == DONE
    assert stage.provider.ends == []


@pytest.mark.parametrize(
    ("true", "why", "counts"),
    [
        ((names.LAUNCHED,), "EC2 terminated it: no key", True),
        ((names.LAUNCHED,), "", False),
        ((names.LAUNCHED, names.REGISTERED), "EC2 terminated it: no key", False),
    ],
    ids=["its cloud ended it before its Node came", "somebody asked for its end", "its Node had come"],
)
def test_an_instance_that_its_cloud_ends_at_launch_is_a_failed_launch(
    true: tuple[str, ...], why: str, counts: bool
) -> None:
    """However the claim came to be deleted."""
    stage = Stage(INSTANCE)
    ours = [names.TERMINATION_FINALIZER, "example.com/other"]
    stage.server.put(claim("c", provider_id="fake://c", true=true, finalizers=ours, deletionTimestamp=NOON.isoformat()))
    stage.provider.ends = [InstanceNotFoundError("i-1", why)]
    assert stage.look() == DONE
    assert stage.health == ([("general", False, why)] if counts else [])
    assert stage.told == (["LaunchFailed"] if counts else [])
    registered = condition(stage.server.claim("c").status.conditions, names.REGISTERED)
    found = ("", "") if registered is None or registered.status != "False" else (registered.reason, registered.message)
    assert found == (("LaunchFailed", why) if counts else ("", ""))


PLACES = {
    "pods that fit elsewhere are sent there in the end": (SHORT, True, True),
    "not where there is no place": (SHORT, False, False),
    "not while something may still come": (OPEN, True, False),
}


@pytest.mark.parametrize(("answer", "fits", "deleted"), PLACES.values(), ids=PLACES)
def test_a_claim_gives_way(answer: CloudError, fits: bool, deleted: bool) -> None:
    stage = Stage(answer, elsewhere=lambda _: fits)
    stage.look()
    stage.clock.advance(PATIENCE)
    stage.look()
    assert stage.gone is deleted


def test_other_places_are_looked_for_now_and_then_only() -> None:
    asked: list[str] = []

    def elsewhere(name: str) -> bool:
        asked.append(name)
        return False

    stage = Stage(SHORT, elsewhere=elsewhere)
    stage.look()
    stage.clock.advance(PATIENCE)
    for _ in range(10):
        stage.clock.advance(ELSEWHERE_SECONDS / 4)
        stage.look()
    assert 2 <= len(asked) <= 4


# ------------------------------------------------------------------ timeouts


JOINED = (names.LAUNCHED,)
ID = "kwok://c"


def launched(stage: Stage, *, age: timedelta, joined: bool) -> None:
    """The claim was launched so long ago, by whoever led then."""
    stage.server.put(claim("c", provider_id=ID, true=JOINED, since=NOON - age))
    if joined:
        stage.server.put(node("n", provider_id=ID))


def test_a_node_that_joined_while_nobody_led_is_registered_and_not_deleted() -> None:
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=True)
    assert stage.look().requeue_after == TIMEOUTS.registration.total_seconds()
    assert stage.registering == ["c"]
    assert not stage.gone


# ------------------------------------------------------------------ hooks of the provider


def hooked(*hooks: Hook) -> Stage:
    """A claim whose Node has come, at a provider with these hooks."""
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=True)
    stage.provider.hooks += hooks
    return stage


def test_a_node_is_let_in_once_no_hook_of_the_provider_waits() -> None:
    stage = hooked(Hook("b", 5.0), Hook("never-waits", 0.0), Hook("a", 2.0))
    assert stage.look() == ReconcileResult(requeue_after=2.0)
    assert stage.registering == []
    told = condition(stage.server.claim("c").status.conditions, names.REGISTERED)
    assert told is not None
    assert (told.status, told.reason) == (names.UNKNOWN, "RegistrationHookPending")
    assert told.message == "Waiting for registration hooks: a, b"
    stage.provider.hooks = [Hook("b", 0.0)]
    stage.look()
    assert stage.registering == ["c"]


def test_hooks_do_not_postpone_the_registration_timeout() -> None:
    stage = hooked(Hook("a", 3600.0))
    assert stage.look().requeue_after == TIMEOUTS.registration.total_seconds()
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    assert stage.look() == DONE
    assert stage.gone
    assert stage.registering == []


def test_no_hook_is_asked_about_a_node_that_was_let_in() -> None:
    """The write to the Node is there, that of the status was lost."""
    stage = hooked(Hook("a", 1.0))
    stage.server.put(let_in())
    stage.look()
    assert stage.registering == ["c"]


def let_in() -> Node:
    """The claim's Node after its registration."""
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "uid-c"}
    joined = node("n", provider_id=ID, labels={names.REGISTERED_LABEL: "true"})
    owners = (msgspec.convert(owner, OwnerReference),)
    return msgspec.structs.replace(joined, metadata=msgspec.structs.replace(joined.metadata, owner_references=owners))


def test_the_registration_timeout_counts_from_when_we_could_have_seen_the_node() -> None:
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=False)
    wait = stage.look().requeue_after
    assert wait == TIMEOUTS.registration.total_seconds()
    stage.clock.advance(wait - 1)
    assert stage.look().requeue_after == pytest.approx(1)
    assert not stage.gone
    stage.clock.advance(1)
    stage.look()
    assert stage.gone


def test_a_claim_that_the_caches_do_not_show_as_it_is_is_not_given_up_yet() -> None:
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=False)
    stage.look()
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    stage.server.postpone = "the cache does not have the current version of NodeClaim c yet"
    assert stage.look().requeue_after == POSTPONED_SECONDS
    assert not stage.gone
    stage.server.postpone = ""
    stage.server.tell = False  # what else is written to it, the caches do not know
    newer = stage.server.claim("c")
    stage.server.put(newer)
    stage.look()
    assert not stage.gone, "it is deleted at the version that was decided from"
    stage.server.tell = True
    stage.server.put(newer)
    stage.look()
    assert stage.gone


def test_a_claim_whose_node_is_open_is_not_given_up_before_it_says_so() -> None:
    """The write of its status may hang when the timeout comes; pods run there by then."""
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=False)
    stage.look()
    stage.server.put(let_in())
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    assert stage.look().requeue_after
    assert not stage.gone


def test_nothing_is_given_up_for_a_node_that_the_caches_could_not_show() -> None:
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=False)
    stage.look()
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    stage.stale = True
    assert stage.look().requeue_after == TIMEOUTS.registration.total_seconds()
    assert not stage.gone
    stage.stale = False
    stage.look()
    assert not stage.gone, "its instance could not join either"
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    stage.look()
    assert stage.gone


@pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["an hour behind", "an hour ahead"])
def test_no_timeout_depends_on_the_clock_of_another_machine(skew: timedelta) -> None:
    stage = Stage(INSTANCE, age=timedelta(0))
    launched(stage, age=skew, joined=False)
    assert stage.look().requeue_after == TIMEOUTS.registration.total_seconds()
    other = Stage(DENIED, age=timedelta(0))
    meta = msgspec.structs.replace(other.server.claim("c").metadata, creation_timestamp=NOON - skew)
    other.server.put(msgspec.structs.replace(other.server.claim("c"), metadata=meta))
    assert other.look() == ReconcileResult(failed=True)
    other.clock.advance(TIMEOUTS.launch.total_seconds())
    assert other.look() == ReconcileResult(failed=True)
    other.clock.advance(1)
    other.look()
    assert other.gone


def test_a_claim_of_the_same_name_waits_anew() -> None:
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=False)
    stage.look()
    stage.clock.advance(TIMEOUTS.registration.total_seconds())
    again = stage.server.claim("c")
    stage.server.put(
        msgspec.structs.replace(again, metadata=msgspec.structs.replace(again.metadata, uid="another")),
    )
    assert stage.look().requeue_after == TIMEOUTS.registration.total_seconds()
    assert not stage.gone


def test_the_next_leader_waits_a_whole_timeout() -> None:
    stage = Stage(INSTANCE)
    launched(stage, age=HOUR, joined=False)
    stage.look()
    stage.clock.advance(TIMEOUTS.registration.total_seconds() - 1)
    stage.lifecycle = stage.another()
    assert stage.look().requeue_after == TIMEOUTS.registration.total_seconds()


# ------------------------------------------------------------------ the end


ALL = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


class Ending:
    """A registered claim that is being deleted, with an instance that is there."""

    def __init__(self, cloud: FakeInstances | None = None) -> None:
        self.stage = Stage(INSTANCE)
        self.cloud = cloud or FakeInstances(ID)
        self.stage.provider = self.cloud  # type: ignore[assignment]  # from here on only its end matters
        self.stale = False
        self.stage.server.put(claim("c", provider_id=ID, true=ALL, deletionTimestamp=NOON.isoformat()))
        stage = self.stage
        self.lifecycle = Lifecycle(
            stage.world.cluster,
            stage.server.client,
            cast(CloudProvider, self.cloud),
            stage.server.terminator(self.cloud),
            stage.server.writer,
            stage.server.recorder,
            stage.clock,
            register=lambda _: None,
            health=lambda _pool, _good, _why: None,
            nodes_are_stale=lambda: self.stale,
        )

    def look(self) -> ReconcileResult:
        return self.lifecycle.reconcile("c")

    def joined(self, *, known: bool) -> None:
        self.stage.server.tell = known
        self.stage.server.put(node("n", provider_id=ID, finalizers=[names.TERMINATION_FINALIZER]))


def test_the_end_of_a_claim_is_counted_and_measured_with_that_of_its_instance() -> None:
    """The one from the deletion of the claim, the other from the first request to end the instance."""

    def told() -> list[float]:
        ended = {"nodepool": "general", "capacity_type": "", "zone": ""}
        durations = ("karpenter_nodeclaims_termination", "karpenter_nodeclaims_instance_termination")
        return [
            REGISTRY.get_sample_value("karpenter_nodeclaims_terminated_total", ended) or 0.0,
            *(
                REGISTRY.get_sample_value(f"{one}_duration_seconds_sum", {"nodepool": "general"}) or 0.0
                for one in durations
            ),
        ]

    cloud = Lingering(ID)
    ending = Ending(cloud)
    ending.stage.server.put(claim("c", provider_id=ID, true=(names.LAUNCHED,), deletionTimestamp=NOON.isoformat()))
    before = told()
    ending.stage.clock.advance(4 - (ending.stage.clock.now() - NOON).total_seconds())
    assert ending.look() == ReconcileResult(requeue_after=FINALIZE_REQUEUE_SECONDS)
    ending.stage.clock.advance(7)
    cloud.lingers = False
    assert ending.look() == DONE
    assert [after - one for after, one in zip(told(), before, strict=True)] == pytest.approx([1.0, 11.0, 7.0])


def test_an_instance_that_ends_at_the_first_request_is_measured_too() -> None:
    """As those of kwok do, of which no condition InstanceTerminating is written."""

    def told() -> tuple[float, ...]:
        name = "karpenter_nodeclaims_instance_termination_duration_seconds"
        return tuple(
            REGISTRY.get_sample_value(f"{name}_{part}", {"nodepool": "general"}) or 0.0 for part in ("count", "sum")
        )

    cloud = Lingering(ID)
    cloud.lingers = False
    ending = Ending(cloud)
    ending.stage.server.put(claim("c", provider_id=ID, true=(names.LAUNCHED,), deletionTimestamp=NOON.isoformat()))
    before = told()
    assert ending.look() == DONE
    assert [after - one for after, one in zip(told(), before, strict=True)] == [1.0, 0.0]


def test_a_registered_claim_is_not_ended_undrained_because_the_caches_lack_its_node() -> None:
    ending = Ending()
    ending.joined(known=False)
    ending.stage.server.bind("web", "n")
    assert ending.look() == ReconcileResult(requeue_after=HELD_SECONDS)
    assert ending.cloud.ended == []
    assert not ending.stage.server.has("nodes", "n"), "its drain was not begun"
    ending.stage.server.work_off()
    ending.stage.clock.advance(MIN_TAINTED_SECONDS)
    assert ending.look() == DONE
    assert ending.cloud.ended == [ID]


def test_a_claim_whose_node_is_known_leaves_its_end_to_the_node() -> None:
    ending = Ending()
    ending.joined(known=True)
    assert ending.look() == ReconcileResult(requeue_after=FINALIZE_REQUEUE_SECONDS)
    assert ending.stage.server.done == ["DELETE nodes/n"]
    ending.stage.clock.advance(60)
    ending.look()
    assert ending.cloud.ended == []


def test_while_the_watch_of_nodes_is_behind_nobody_waits_for_what_it_would_show() -> None:
    ending = Ending()
    ending.joined(known=True)
    del ending.stage.server.objects["nodes"]["n"]
    ending.stale = True
    assert ending.look() == DONE
    assert ending.cloud.ended == [ID]


@pytest.mark.parametrize("what", ["pods", "nodes"])
def test_a_list_that_fails_means_that_a_claim_waits(what: str) -> None:
    ending = Ending()
    ending.joined(known=False)
    ending.stage.server.refuse[what] = 403
    assert ending.look() == ReconcileResult(failed=True)
    assert ending.cloud.ended == []


# ------------------------------------------------------------------ claims that nobody needs, and instances of two claims


def test_a_claim_whose_pods_found_other_nodes_is_not_launched() -> None:
    stage, one = Stage(INSTANCE), pod("one")
    stage.world.add(one)
    stage.server.put(claim("c", pods=(one,)))
    stage.world.cluster.pod_changed(one, bound(one, "elsewhere"))
    assert stage.look() == DONE
    assert stage.gone
    assert stage.provider.created == 0


@pytest.mark.parametrize(
    ("answer", "created", "gone"),
    [(INSTANCE, 1, False), (SHORT, 1, True), (LaunchUnderWayError("c", 2.0), 2, False)],
    ids=["with an instance", "without one", "which takes long"],
)
def test_a_launch_that_was_begun_comes_to_its_end_though_the_pods_found_other_nodes(
    answer: CloudError | LaunchedInstance, created: int, gone: bool
) -> None:
    stage, one = Stage(answer), pod("one")
    stage.world.add(one)
    planned = claim("c", pods=(one,))
    marked = {**planned.metadata.annotations, names.LAUNCH_ANNOTATION: "batch/1/0"}
    stage.server.put(claim("c", annotations=marked))
    stage.world.cluster.pod_changed(one, bound(one, "elsewhere"))
    stage.look()
    stage.look()
    assert (stage.provider.created, stage.gone) == (created, gone)


@pytest.mark.parametrize(
    ("answer", "idle"),
    [(SHORT, True), (LATER, True), (LaunchUnderWayError("c"), False), (CloudError("who knows"), False)],
    ids=["short", "throttled", "under way", "of unknown outcome"],
)
def test_a_claim_may_be_planned_again_after_its_provider_said_that_there_is_no_instance(
    answer: CloudError, *, idle: bool
) -> None:
    stage, one = Stage(answer), pod("one")
    stage.world.add(one)
    made = claim("d", pods=(one,))
    unwritten = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))
    assert stage.world.cluster.announce(unwritten, (one,))
    stage.server.put(made)
    stage.lifecycle.reconcile("d")
    assert stage.world.cluster.hold_launches(1.0) == (("d",) if idle else ())


def test_a_claim_whose_pods_are_being_planned_again_is_not_launched_meanwhile() -> None:
    stage, one = Stage(SHORT), pod("one")
    stage.world.add(one)
    made = claim("d", pods=(one,))
    unwritten = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))
    assert stage.world.cluster.announce(unwritten, (one,))
    stage.server.put(made)
    stage.world.cluster.hold_launches(10.0)
    assert stage.lifecycle.reconcile("d") == ReconcileResult(requeue_after=REPLANNING_SECONDS)
    assert stage.provider.created == 0
    stage.world.cluster.release_launches(["d"])
    stage.lifecycle.reconcile("d")
    assert stage.provider.created == 1


def sharing(true: tuple[str, ...], *, deleted: str = "") -> Stage:
    """The claims `b` and `c` have one instance, which has joined."""
    stage = Stage(INSTANCE)
    for name in "bc":
        gone = {"deletionTimestamp": NOON.isoformat()} if name in deleted else {}
        stage.server.put(claim(name, provider_id=ID, true=true, **gone))  # type: ignore[arg-type]
    stage.server.put(node("n", provider_id=ID))
    return stage


def test_two_claims_of_one_instance_are_reported_and_left_alone() -> None:
    stage = sharing(JOINED)
    for _ in range(200):
        assert stage.look() == ReconcileResult(requeue_after=10.0)
        stage.clock.advance(10.0)
    told = condition(stage.server.claim("c").status.conditions, names.REGISTERED)
    assert told is not None
    assert (told.status, told.reason) == ("False", names.MULTIPLE_NODES_FOUND)
    assert "NodeClaims b, c; Nodes n" in told.message
    assert not stage.gone
    assert len(stage.server.done) == 1


def test_a_claim_that_is_registered_stays_so_when_another_turns_up_with_its_instance() -> None:
    stage = sharing(ALL)
    assert stage.look() == ReconcileResult(requeue_after=10.0)
    assert stage.server.done == []


@pytest.mark.parametrize(("deleted", "goes"), [("c", True), ("bc", False)], ids=["the other stays", "both go"])
def test_of_two_claims_with_one_instance_the_first_that_goes_does_not_end_it(deleted: str, goes: bool) -> None:
    stage = sharing(ALL, deleted=deleted)
    stage.look()
    assert (stage.server.get("nodeclaims", "c") is None) is goes
    assert stage.provider.ends == [], "nobody asked for its end"


# ------------------------------------------------------------------ terminationGracePeriod


def ends(stage: Stage) -> str | None:
    return stage.server.claim("c").metadata.annotations.get(names.TERMINATION_TIMESTAMP)


def going(grace: str | None, *, drain: timedelta | None = None, **metadata: Any) -> Stage:
    """A claim that is being deleted since NOON."""
    stage = Stage(INSTANCE, timeouts=Timeouts(drain=drain))
    made = claim("c", deletionTimestamp=NOON.isoformat(), **metadata)
    spec = msgspec.structs.replace(made.spec, termination_grace_period=grace)
    stage.server.put(msgspec.structs.replace(made, spec=spec))
    stage.provider.ends = [LATER, LATER]
    return stage


def test_the_end_of_a_termination_grace_period_is_written_on_the_claim_once() -> None:
    stage = going("5m")
    stage.look()
    stage.look()
    assert ends(stage) == "2026-11-21T12:05:00Z"
    assert stage.server.done.count("PATCH nodeclaims/c") == 1
    assert stage.server.recorder.messages[0] == "All pods will be deleted by 2026-11-21T12:05:00Z"


def test_a_claim_without_one_gets_that_of_the_drain_timeout() -> None:
    stage = going(None, drain=timedelta(hours=1))
    stage.look()
    assert ends(stage) == "2026-11-21T13:00:00Z"


def test_a_claim_without_any_waits_for_its_pods_for_ever() -> None:
    stage = going(None)
    stage.look()
    assert ends(stage) is None


def test_an_end_that_somebody_wrote_before_counts() -> None:
    sooner = "2026-11-21T12:02:00Z"
    stage = going("5m", annotations={names.TERMINATION_TIMESTAMP: sooner})
    stage.look()
    assert ends(stage) == sooner


def test_flags_become_timeouts() -> None:
    flags = ["--timeouts=launch=1s,registration=2s", "--drain-timeout=3s"]
    want = Timeouts(timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=3))
    assert timeouts_of(Options.parse(flags, {})) == want
    assert timeouts_of(Options()) == Timeouts()


def test_a_claim_is_given_up_after_the_registration_timeout_that_was_asked_for() -> None:
    stage = Stage(INSTANCE, timeouts=Timeouts(registration=timedelta(seconds=3)))
    stage.look()
    assert stage.look().requeue_after == 3.0
    stage.clock.advance(3)
    stage.look()
    assert stage.gone


# ------------------------------------------------------------------ CSI drivers that must be there


def with_volume(*, required: bool = True) -> Stage:
    """A claim whose Node is let in; a pod with a volume is planned for it, and the volume's driver is not there yet."""
    stage = Stage(INSTANCE)
    world, one = stage.world, pod("p", shape=shape(volumes=uses("data")))
    stage.server.put(
        claim("c", provider_id=ID, pods=(one,), true=(names.LAUNCHED, names.REGISTERED), since=NOON), let_in()
    )
    world.add(one)
    world.cluster.assign(NodeKey("c"), (one,))
    world.cluster.surrounding_changed(lambda around: around.claim_changed(None, volume_claim("data")))
    world.cluster.surrounding_changed(lambda around: around.class_changed(None, storage_class()))
    world.cluster.csi_driver_changed(
        None, CSIDriver(metadata=BriefMeta(name=DRIVER), spec=CSIDriverSpec(prevent_pod_scheduling_if_missing=required))
    )
    return stage


def driver_comes(stage: Stage) -> None:
    spec = CSINodeSpec(drivers=(CSINodeDriver(name=DRIVER),))
    stage.world.cluster.csi_node_changed(None, CSINode(metadata=BriefMeta(name="n"), spec=spec))


def initialized(stage: Stage) -> tuple[str, str]:
    found = [one for one in stage.server.claim("c").status.conditions if one.type == names.INITIALIZED]
    return (found[0].status, found[0].message) if found else ("", "")


def test_a_node_waits_for_the_driver_of_a_planned_pod_that_must_be_there() -> None:
    stage = with_volume()
    assert stage.look().requeue_after
    status, text = initialized(stage)
    assert status == names.UNKNOWN
    assert f'"{DRIVER}"' in text
    driver_comes(stage)
    stage.look()
    assert initialized(stage)[0] == names.TRUE


def test_a_node_does_not_wait_for_a_driver_that_need_not_be_there() -> None:
    stage = with_volume(required=False)
    stage.look()
    assert initialized(stage)[0] == names.TRUE


def test_a_node_waits_for_no_driver_once_its_pod_is_elsewhere() -> None:
    stage = with_volume()
    stage.look()
    before = pod("p", shape=shape(volumes=uses("data")))
    stage.world.cluster.pod_changed(before, bound(before, "elsewhere"))
    stage.look()
    assert initialized(stage)[0] == names.TRUE


def test_a_claim_that_takes_the_place_of_another_one_is_launched_when_that_is_gone() -> None:
    stage = Stage(INSTANCE)
    waits = {
        names.AWAITS_ANNOTATION: Awaited("a", "uid-a", "reservation", "cr-1").to_text(),
        names.REPLACES_ANNOTATION: "c-1",
    }
    record = CommandRecord(
        id="c-1",
        reason="Drifted",
        method="drift",
        candidates=(CandidateRecord("a", "uid-a"),),
        replacements=(Replacement("c"),),
        first=TerminateFirst("reservation", "cr-1"),
    )
    old = claim("a", uid="uid-a", annotations={names.COMMAND_ANNOTATION: encode_command(record)})
    stage.server.put(old, claim("c", annotations=waits))
    for _ in range(3):
        assert stage.look().requeue_after == GATED_SECONDS
        stage.clock.advance(TIMEOUTS.launch.total_seconds())
    assert (stage.provider.created, stage.gone, stage.reason) == (0, False, "Unknown/AwaitsTermination")
    stage.world.cluster.claim_changed(stage.world.cluster.claim("a"), None)
    stage.look()
    assert names.AWAITS_ANNOTATION not in stage.server.claim("c").metadata.annotations, "nothing else is waited for"
    stage.look()
    assert (stage.provider.created, stage.gone) == (1, False)


def test_a_claim_whose_place_does_not_become_free_is_deleted() -> None:
    stage = Stage(INSTANCE)
    waits = {names.AWAITS_ANNOTATION: Awaited("a", "uid-a").to_text(), names.REPLACES_ANNOTATION: "c-1"}
    stage.server.put(claim("a", uid="uid-a"), claim("c", annotations=waits))
    stage.look()
    assert (stage.provider.created, stage.gone) == (0, True)


@pytest.mark.parametrize("answer", [SHORT, NEVER], ids=["now", "ever"])
def test_a_claim_of_a_launch_set_without_capacity_waits_for_what_is_decided_about_the_set(answer: CloudError) -> None:
    stage = Stage(answer)
    text = encode_sets([LaunchSet(id="a", group="default/g", nodes=2)])
    stage.server.put(*(claim(name, annotations={names.LAUNCH_SET: text}) for name in "cd"))
    keeper = GangKeeper(
        stage.world.cluster, stage.server.writer, stage.server.recorder, stage.clock, elsewhere=lambda *_: False
    )
    stage.lifecycle._gangs = keeper
    assert stage.look() == ReconcileResult(requeue_after=SET_SECONDS)
    keeper.poll()
    assert not stage.gone or answer is NEVER
    stage.clock.advance(SET_PATIENCE)
    keeper.poll()
    assert stage.gone


def test_a_claim_held_for_the_scarcest_of_its_set_has_all_its_time_once_it_is_sent() -> None:
    """It is held here; its NodePool is as healthy as before."""
    stage = Stage(DENIED)
    sets = {names.LAUNCH_SET: encode_sets([LaunchSet(id="a", group="default/g", nodes=2)])}
    scarce = claim("d", annotations=sets)
    spec = msgspec.to_builtins(scarce.spec, str_keys=True) | {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    scarce = msgspec.structs.replace(scarce, spec=msgspec.convert(spec, type(scarce.spec), strict=False))
    stage.server.put(claim("c", annotations=sets), scarce)
    stage.world.cluster.launch_begins("d")
    stage.world.cluster.launch_refused("d")
    limit = TIMEOUTS.launch.total_seconds()
    for _ in range(3):
        stage.look()
        stage.clock.advance(limit + 1)
    assert (stage.provider.created, stage.gone, stage.health) == (0, False, [])
    stage.server.put(
        msgspec.structs.replace(scarce, status=msgspec.structs.replace(scarce.status, provider_id="x://d"))
    )
    stage.look()
    stage.clock.advance(limit - 1)
    stage.look()
    assert (stage.provider.created, stage.gone) == (2, False)
    stage.clock.advance(2)
    stage.look()
    assert (stage.gone, stage.health) == (True, [("general", False, "")])
