"""Which claims wait for a launch, which are under way, and what each was answered."""

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InsufficientCapacityError,
    LaunchUnderWayError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.types import LaunchedInstance
from provisioner.ec2.instances.instances import Ec2Instance, instance_id_of
from provisioner.ec2.launch import recovery
from provisioner.ec2.launch.orders import later
from provisioner.ec2.settings import AwsSettings
from provisioner.support import heartbeat
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool
from provisioner.values.bounded import put_newest

_AT_ONCE: Final = 8
_MAX_KEPT: Final = 4096


class LaunchBook:
    """Claims by their UIDs; thread-safe. Each class has threads of its own here.

    Args:
        claims: all NodeClaims that there are, from a cache; asked under the lock.

    Attributes:
        answered: hears the name of a claim that has its answer.
        closed: no window is opened any more.
        gathered: seconds for which the last window was open.
    """

    def __init__(self, claims: Callable[[], Sequence[NodeClaim]], clock: Clock, settings: AwsSettings) -> None:
        self._claims, self._clock, self._settings = claims, clock, settings
        self.answered: Callable[[str], None] = lambda _: None
        self.closed, self.gathered = False, 0.0
        self._changed = threading.Condition()
        self._waiting: dict[str, NodeClaim] = {}
        self._under_way: dict[str, bool] = {}  # whether a lane has it
        self._answers: dict[str, LaunchedInstance | CloudError] = {}
        self._gone: dict[str, None] = {}
        self._failures: dict[str, None] = {}  # whose instance EC2 ended at launch
        self._lanes: dict[str, WorkerPool] = {}

    def __str__(self) -> str:
        with self._changed:
            return f"{len(self._waiting)} waiting, {len(self._under_way)} under way"

    # ------------------------------------------------------------------ who waits

    def offer(self, claim: NodeClaim) -> LaunchedInstance | CloudError | None:
        """The answer of a claim, an error once; None for one that is under way or waits for the next window, perhaps from now on."""
        uid = claim.metadata.uid
        with self._changed:
            answer = self._answers.get(uid)
            if isinstance(answer, LaunchedInstance):
                return answer
            if answer is not None:
                del self._answers[uid]
                return answer
            if uid not in self._waiting and uid not in self._under_way:
                self._waiting[uid] = claim
                self._changed.notify_all()
        return None

    def offer_all(self, claims: Iterable[NodeClaim]) -> bool:
        """All of them wait, from one moment on; whether anybody waits."""
        with self._changed:
            for claim in claims:
                self._waiting.setdefault(claim.metadata.uid, claim)
            if self._waiting:
                self._changed.notify_all()
            return bool(self._waiting)

    def withdraw(self, claim: NodeClaim) -> tuple[bool, LaunchedInstance | CloudError | None]:
        """A claim waits no more; whether it is under way, and its answer."""
        uid = claim.metadata.uid
        with self._changed:
            self._waiting.pop(uid, None)
            return uid in self._under_way, self._answers.get(uid)

    def close(self) -> Sequence[WorkerPool]:
        """Open no more windows; whose threads still work."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
            return list(self._lanes.values())

    def next_window(self, pulse: heartbeat.Pulse, pause: Callable[[NodeClaim], float]) -> tuple[NodeClaim, ...]:
        """The claims of the next window, which count as under way from here on; none at the end.

        Args:
            pulse: of the thread that waits.
            pause: seconds until something may be done for a claim; asked under the lock.
        """
        with self._changed:
            due: tuple[str, ...] = ()
            opened = 0.0
            while not due:
                pulse.rest()
                self._changed.wait_for(lambda: self._waiting or self.closed)
                pulse.beat()
                opened = self._gather_some()
                if self.closed:
                    return ()
                pauses = {uid: pause(claim) for uid, claim in self._waiting.items()}
                due = tuple(uid for uid, wait in pauses.items() if wait <= 0)
                if not due:
                    pulse.rest()
                    self._changed.wait(min(pauses.values(), default=None))
            # who came first: those that are tried again go behind the others
            claims = tuple(self._waiting.pop(uid) for uid in due)
            self._under_way |= dict.fromkeys(due, False)
            self._prune()
            self.gathered = self._clock.monotonic() - opened
        return claims

    def _gather_some(self) -> float:
        """Wait until nobody joins any more; when that began. Under the lock."""
        idle, longest = self._settings.fleet_idle.total_seconds(), self._settings.fleet_longest.total_seconds()
        opened, known = self._clock.monotonic(), 0
        while not self.closed and known < len(self._waiting) and self._clock.monotonic() < opened + longest:
            known = len(self._waiting)
            self._changed.wait(idle)
        return opened

    def _prune(self) -> None:
        """Forget answers that nobody will ask for; under the lock."""
        if len(self._answers) > _MAX_KEPT:
            live = {claim.metadata.uid for claim in self._claims() if not claim.status.provider_id}
            self._answers = {uid: answer for uid, answer in self._answers.items() if uid in live}

    # ------------------------------------------------------------------ who is under way

    def submit(self, claims: Sequence[NodeClaim], call: Callable[[], None]) -> None:
        """Run a call for these claims in a thread of their class."""
        node_class = claims[0].spec.node_class_ref.name
        with self._changed:
            lane = self._lanes.get(node_class)
            if lane is None:
                lane = self._lanes[node_class] = WorkerPool(_AT_ONCE, f"launch-{node_class}")
            self._under_way |= dict.fromkeys((claim.metadata.uid for claim in claims), True)
        lane.submit(call)

    def take_over(self, claims: Iterable[NodeClaim]) -> None:
        """All claims of a batch are answered together, also those that nobody asked for yet."""
        with self._changed:
            for claim in claims:
                self._waiting.pop(claim.metadata.uid, None)
                self._under_way[claim.metadata.uid] = True

    def under_way(self, claims: Iterable[NodeClaim], *, in_lane: bool) -> Sequence[NodeClaim]:
        """Those without an answer, of which a lane has, or no lane."""
        with self._changed:
            return [claim for claim in claims if self._under_way.get(claim.metadata.uid) is in_lane]

    def not_asked(self, claims: Iterable[NodeClaim]) -> bool:
        """Whether one of these is not in a window, nor has an instance."""
        with self._changed:
            return any(
                one.metadata.uid not in self._under_way
                and not isinstance(self._answers.get(one.metadata.uid), LaunchedInstance)
                for one in claims
            )

    def put_back(self, claims: Iterable[NodeClaim]) -> None:
        """Claims that shall have another try in the next window."""
        with self._changed:
            for claim in claims:
                self._under_way.pop(claim.metadata.uid, None)
                if claim.metadata.deletion_timestamp is None:
                    self._waiting[claim.metadata.uid] = claim
            self._changed.notify_all()

    # ------------------------------------------------------------------ answers

    def answer(self, claim: NodeClaim, answer: LaunchedInstance | CloudError) -> None:
        """Tell a claim; that it has an instance is never dropped."""
        with self._changed:
            waited = self._under_way.pop(claim.metadata.uid, None) is not None
            known = self._answers.get(claim.metadata.uid)
            if not waited and (known is not None or not isinstance(answer, LaunchedInstance)):
                return  # it has its answer
            if not isinstance(known, LaunchedInstance):
                self._answers[claim.metadata.uid] = answer
        self.answered(claim.metadata.name)

    def turn_away(self, claims: Iterable[NodeClaim], error: CloudError, seconds: float | None) -> None:
        """Tell claims why they have no instance, each with an error of its own, and when the same is worth another try."""
        for claim in claims:
            self.answer(claim, later(_fresh(error, claim), seconds))

    def let_wait(self, claims: Iterable[NodeClaim], reason: str, problem: str, seconds: float) -> None:
        """Tell claims that may have an instance that nobody knows yet, and why."""
        self.turn_away(claims, LaunchUnderWayError("", seconds, reason, problem), seconds)

    def wait_their_turn(self, claims: Iterable[NodeClaim], why: str, seconds: float) -> None:
        """Tell claims that capacity is short for now."""
        for claim in claims:
            self.answer(claim, InsufficientCapacityError(claim.metadata.name, why, seconds, exhausted=False))

    def has_instance(self, claim: NodeClaim) -> bool:
        """Whether the claim got an instance while it waited for another try; whoever asked is told."""
        with self._changed:
            answer = self._answers.get(claim.metadata.uid)
        if not isinstance(answer, LaunchedInstance):
            return False
        self.answer(claim, answer)
        return True

    def held(self, claims: Iterable[NodeClaim], instances: Iterable[Ec2Instance] = ()) -> dict[str, str]:
        """Which claim has which instance: by its status, by what this process gave it, by the instance's tag."""
        written = [(claim.metadata.name, instance_id_of(claim.status.provider_id)) for claim in claims]
        with self._changed:
            given = [
                (answer.claim_name, instance_id_of(answer.provider_id))
                for answer in self._answers.values()
                if isinstance(answer, LaunchedInstance)
            ]
        return recovery.held_by([*written, *given], instances)

    def forget(self, claim: NodeClaim) -> bool:
        """The instance of a claim is gone; whether that is news."""
        with self._changed:
            self._answers.pop(claim.metadata.uid, None)
            first = claim.metadata.uid not in self._gone
            put_newest(self._gone, claim.metadata.uid, None, _MAX_KEPT)
            return first

    def fails(self, claim: NodeClaim) -> bool:
        """EC2 ended the instance of a claim at launch; whether that is news."""
        with self._changed:
            if claim.metadata.uid in self._failures:
                return False
            put_newest(self._failures, claim.metadata.uid, None, _MAX_KEPT)
            return True


def _fresh(error: CloudError, claim: NodeClaim) -> CloudError:
    """The same error for one claim: raised errors collect tracebacks, so no two claims share one."""
    if not isinstance(error, InsufficientCapacityError | LaunchUnderWayError | NodeClassNotReadyError | CreateError):
        return later(CreateError(names.LAUNCH_FAILED, str(error)), error.retry_after)
    made = copy.copy(error)
    if isinstance(made, InsufficientCapacityError | LaunchUnderWayError):
        made.claim_name = claim.metadata.name
    return made
