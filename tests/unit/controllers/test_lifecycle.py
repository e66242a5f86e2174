"""What becomes of a claim whose launch does not succeed at once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, condition
from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InsufficientCapacityError,
    LaunchUnderWayError,
    MachineNotFoundError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.types import CloudProvider, Machine
from provisioner.controllers.fallback import PATIENCE
from provisioner.controllers.lifecycle import ELSEWHERE_SECONDS, FAILED_TERMINATION, Lifecycle
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.store import ClaimWriter
from provisioner.kube.client import Client
from provisioner.kube.events import Recorder
from provisioner.state.cluster import Cluster
from provisioner.support.workers import DONE, Result
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import claim

MACHINE = Machine("aws:///a/i-1", "m5.large", "a", "spot")
SHORT = InsufficientCapacityError("c", "all are sold out", 7.0)
OPEN = InsufficientCapacityError("c", "not all are sold out", 7.0, exhausted=False)
NEVER = InsufficientCapacityError("c", "there is no such type")
DENIED = CreateError("Unauthorized", "no")
LATER = CreateError("RequestLimitExceeded", "slower")
LATER.retry_after = 3.0


class Provider:
    """Answers every create alike."""

    def __init__(self, answer: CloudError | Machine) -> None:
        self.answer, self.created = answer, 0
        self.ends: list[CloudError] = []

    def node_class_kinds(self) -> frozenset[tuple[str, str]]:
        one = claim("c").spec.node_class_ref
        return frozenset({(one.group, one.kind)})

    def create(self, _: NodeClaim) -> Machine:
        self.created += 1
        if isinstance(self.answer, CloudError):
            raise self.answer
        return self.answer

    def delete(self, _: NodeClaim) -> None:
        raise self.ends.pop(0)


class Api:
    """An API server with one claim."""

    def __init__(self, known: NodeClaim) -> None:
        self.claim, self.deleted, self.writes = known, False, 0

    def patch(self, _resource: object, _name: str, body: dict[str, Any], **_: object) -> NodeClaim:
        self.writes += 1
        for key, value in body.get("status", {}).items():
            wanted = tuple(msgspec.convert(one, Condition) for one in value) if key == "conditions" else value
            field = {"conditions": "conditions", "providerID": "provider_id"}.get(key)
            if field:
                status = msgspec.structs.replace(self.claim.status, **{field: wanted})
                self.claim = msgspec.structs.replace(self.claim, status=status)
        return self.claim

    def delete(self, *_: object, **__: object) -> None:
        self.deleted = True


class Events:
    """Takes every event."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def publish(self, _ref: object, _kind: str, reason: str, _message: str, **__: object) -> None:
        self.reasons.append(reason)


METRICS = Metrics()


@dataclass
class World:
    """One claim under a lifecycle."""

    answer: CloudError | Machine
    elsewhere: Callable[[str], bool] = lambda _: False
    age: timedelta = timedelta(seconds=1)
    mark: str = ""
    waits: bool = False
    deleted: bool = False

    def __post_init__(self) -> None:
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
        self.clock = FakeClock(NOON + self.age)
        self.provider, self.api, self.events = Provider(self.answer), Api(known), Events()
        cluster = Cluster(lambda _: {}, self.clock.now)
        cluster.claim_written(known)
        client = cast(Client, self.api)
        self.lifecycle = Lifecycle(
            cluster,
            client,
            cast(CloudProvider, self.provider),
            ClaimWriter(client, cluster, lambda _: None),
            cast(Recorder, self.events),
            METRICS,
            self.clock,
            register=lambda _: None,
            health=lambda _pool, _good: None,
            elsewhere=self.elsewhere,
        )

    def look(self) -> Result:
        return self.lifecycle.reconcile("c")

    @property
    def reason(self) -> str:
        """Of Launched."""
        launched = condition(self.api.claim.status.conditions, names.LAUNCHED)
        return "" if launched is None else f"{launched.status}/{launched.reason}"


@dataclass(frozen=True)
class Case:
    world: Callable[[], World]
    want: Result
    deleted: bool = False
    reason: str = ""


HOUR = timedelta(hours=1)
CASES = {
    "under way: nothing is written": Case(lambda: World(LaunchUnderWayError("c", 2.0)), Result(requeue_after=2.0)),
    "a shortage: it waits in place and says so": Case(
        lambda: World(SHORT), Result(requeue_after=7.0), reason="Unknown/InsufficientCapacity"
    ),
    "what can never be launched is given up": Case(lambda: World(NEVER), Result(), deleted=True),
    "pods that fit elsewhere are not sent there at once": Case(
        lambda: World(SHORT, elsewhere=lambda _: True),
        Result(requeue_after=7.0),
        reason="Unknown/InsufficientCapacity",
    ),
    "pods that fit elsewhere, while something may still come": Case(
        lambda: World(OPEN, elsewhere=lambda _: True),
        Result(requeue_after=7.0),
        reason="Unknown/InsufficientCapacity",
    ),
    "a shortage has no end": Case(
        lambda: World(SHORT, age=HOUR, waits=True),
        Result(requeue_after=7.0),
        reason="Unknown/InsufficientCapacity",
    ),
    "an error is tried again with back-off": Case(
        lambda: World(DENIED), Result(failed=True), reason="Unknown/Unauthorized"
    ),
    "or when the provider says": Case(
        lambda: World(LATER), Result(requeue_after=3.0), reason="Unknown/RequestLimitExceeded"
    ),
    "a class that is not ready": Case(lambda: World(NodeClassNotReadyError("k", "n", "no")), Result(), deleted=True),
    "an old claim that was never asked for": Case(lambda: World(MACHINE, age=HOUR), Result(), deleted=True),
    "an old claim whose machine may have been launched": Case(
        lambda: World(LaunchUnderWayError("c"), age=HOUR, mark="b/1/0"), Result(requeue_after=1.0)
    ),
    "an old claim whose launch fails": Case(lambda: World(DENIED, age=HOUR, mark="b/1/0"), Result(), deleted=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_launch_that_does_not_succeed(case: Case) -> None:
    world = case.world()
    assert world.look() == case.want
    assert world.api.deleted == case.deleted
    if not case.deleted:
        assert world.reason == case.reason


def test_a_claim_that_waits_is_written_once() -> None:
    world = World(SHORT)
    world.look()
    writes = world.api.writes
    for _ in range(5):
        world.clock.advance(7)
        world.look()
    assert writes == 1
    assert world.api.writes == writes
    assert world.provider.created == 6
    assert set(world.events.reasons) == {"InsufficientCapacityError"}


def test_a_machine_in_the_end() -> None:
    world = World(SHORT)
    world.look()
    world.provider.answer = MACHINE
    world.look()
    assert world.api.claim.status.provider_id == MACHINE.provider_id
    assert world.reason == "True/Launched"


def test_an_end_that_fails_is_told_and_tried_again() -> None:
    world = World(MACHINE, deleted=True)
    world.provider.ends = [CloudError("UnauthorizedOperation"), MachineNotFoundError("i-1")]
    assert world.look() == Result(failed=True)
    assert world.events.reasons == [FAILED_TERMINATION]
    assert world.look() == DONE
    assert world.provider.ends == []


PLACES = {
    "pods that fit elsewhere are sent there in the end": (SHORT, True, True),
    "not where there is no place": (SHORT, False, False),
    "not while something may still come": (OPEN, True, False),
}


@pytest.mark.parametrize(("answer", "fits", "deleted"), PLACES.values(), ids=PLACES)
def test_a_claim_gives_way(answer: CloudError, fits: bool, deleted: bool) -> None:
    world = World(answer, elsewhere=lambda _: fits)
    world.look()
    world.clock.advance(PATIENCE)
    world.look()
    assert world.api.deleted is deleted


def test_other_places_are_looked_for_now_and_then_only() -> None:
    asked: list[str] = []

    def elsewhere(name: str) -> bool:
        asked.append(name)
        return False

    world = World(SHORT, elsewhere=elsewhere)
    world.look()
    world.clock.advance(PATIENCE)
    for _ in range(10):
        world.clock.advance(ELSEWHERE_SECONDS / 4)
        world.look()
    assert 2 <= len(asked) <= 4
