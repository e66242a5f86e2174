"""Launches: NodeClaims in, instances out.

`Launcher.create` never waits. It collects claims for a moment (35 ms after the last, a second at most), puts those with equal orders into one
CreateFleet, and tells `listen`'s callable when a claim has its answer. The way of a batch, each step on the next one's shoulders:

1. its launch templates exist;
2. each of its claims carries its mark `<batch>/<attempt>/<ordinal>`, that of ordinal 0 last;
3. CreateFleet with client token and tag of batch and attempt;
4. the instance ids, in order, are dealt to the ordinals, and the claims are told;
5. the marks of claims that got none are taken off.

An attempt is *spent* when what became of it is known. One that is not, because an answer was lost or the process died, is searched for: `create` of a
claim with its mark looks for the batch's instances, or sends the same call again, until `recovery` says that this is all there is. Whoever reads
a mark that is not spent must take it that there may be an instance; nothing is launched for its claim meanwhile. An attempt is in one pair of hands
at a time (`_busy`), an ordinal is dealt once, and an instance that any claim has is given to no other. Nothing but the marks has to survive. Classes
have threads of their own, so what hangs for one delays no other. Source: spec/karpenter-aws.md 5 and 6.1.
"""

import copy
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    LaunchUnderWayError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.types import InstanceType, LaunchedInstance, other_owner, wishes_of
from provisioner.ec2 import labels
from provisioner.ec2.access.batcher import Gatherer, batched
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import (
    LAUNCH_TEMPLATE_NOT_FOUND,
    Failure,
    FailureKind,
    FailureScope,
    classify_exception,
    launch_error,
    may_repeat,
)
from provisioner.ec2.instances.endings import (
    EndedAtLaunchError,
    ended_at_launch,
    holds_back,
    told_failure,
)
from provisioner.ec2.instances.instances import Ec2Instance, InstanceError, Instances, instance_id_of
from provisioner.ec2.launch import fleet, launch_marks, orders, recovery
from provisioner.ec2.launch.fleet import FleetAnswer
from provisioner.ec2.launch.launch_marks import Mark, batch_of
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.mark_writer import Marked, Marker
from provisioner.ec2.launch.orders import Made, Order, OrderContext
from provisioner.ec2.launch.pace import Pacing
from provisioner.ec2.launch.recovery import Evidence, RecoveryStep
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, has_ipv6
from provisioner.ec2.market.instance_types import EfaLaunch, PlacementGroup
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.ec2.nodeclass.kept_kubelet import with_kept_kubelet
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook, addresses_of
from provisioner.ec2.settings import AwsSettings
from provisioner.kube.errors import ApiError, NotFound
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter
from provisioner.support.workers import WorkerPool
from provisioner.values.bounded import forget_oldest, put_newest
from provisioner.values.message import Said

MAX_BATCH: Final = 500

LOOK_SECONDS: Final = 2.0
"""So long after a look at a launch that was interrupted comes the next one."""

FLEXIBLE: Final = 5
"""Instance types from which on a launch counts as flexible."""

_SHORT_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 15.0
_MARKING_TRIES: Final = 3
_LIST_IDLE: Final = 0.05
_OFTEN_SECONDS, _RARELY = 20.0, 3.0
_NOT_KNOWN_WAIT: Final = 2.0
_AT_ONCE: Final = 8
_MAX_KEPT: Final = 4096
_NO_TYPES: Final = "InstanceTypeResolutionFailed"

_FAILURES = counter(
    "karpenter_cloudprovider_instance_launch_failures_total",
    "Launches that EC2 refused, and instances that it terminated at launch, by reason; the zone is empty if the whole call failed.",
    ("zone", "zone_id", "capacity_type", "reason"),
)
_log = logs.get_logger(__name__)
_LAUNCH_FAILED: Final = "Launch failed"
INSTANCE_TYPES_NOT_READ: Final = Said("the list of EC2 instance types has not been read yet")


@dataclass(frozen=True)
class LaunchWorld:
    """What launches are made from; each is asked at every launch and must not wait for anything.

    Attributes:
        class_of: the class that a claim refers to.
        types_of: the catalogue of a class; () while EC2 has not listed it.
        cluster: that instances join; raises a `CloudError` while it is not known.
        max_pods: what the kubelet of an instance type is told, for a class.
        efa_launch: how a type is launched for pods that ask for EFA, for a class.
        claims: all NodeClaims that there are, from a cache.
        claims_now: the same, asked of the API server now; raises `ApiError`.
        read: one of them by name, likewise.
        write: puts a mark on a claim, or takes it off, and returns what the claim is then; refused with `Conflict` where the claim has changed since it
            was read; raises `ApiError`.
        adjusted: whether the price of (type, zone, capacity type) is not EC2's own.
        overlaid: the catalogue as NodeOverlays change it for the NodePool of that name.
        failing: why EC2 ended instances of a claim's NodePool at launch, as the NodePool says; "" where it says nothing of it.
    """

    class_of: Callable[[NodeClaim], EC2NodeClass | None]
    types_of: Callable[[EC2NodeClass], Sequence[InstanceType]]
    cluster: Callable[[], JoinedCluster]
    max_pods: Callable[[EC2NodeClass, str], int]
    claims: Callable[[], Sequence[NodeClaim]]
    claims_now: Callable[[], Sequence[NodeClaim]]
    read: Callable[[str], NodeClaim]
    write: Callable[[NodeClaim, Mark | None], NodeClaim]
    efa_launch: Callable[[EC2NodeClass, str], EfaLaunch] = lambda _class, _type: EfaLaunch()
    group_of: Callable[[EC2NodeClass], PlacementGroup | None] = lambda _: None
    adjusted: Callable[[str, str, str], bool] = lambda name, zone, kind: False  # noqa: ARG005 - the seam has it
    overlaid: Callable[[str, Sequence[InstanceType]], Sequence[InstanceType]] = lambda _, types: types
    failing: Callable[[NodeClaim], str] = lambda _: ""

    def types_for(self, claim: NodeClaim, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        """What a claim of the class may become."""
        types = self.types_of(node_class)
        return self.overlaid(claim.pool, types) if claim.pool else types


@dataclass(frozen=True, slots=True)
class _Sent:
    """A call whose answer did not come, or did not tell."""

    order: Order
    count: int


@dataclass(slots=True)
class _Search:
    """The search for the instances of an attempt.

    Attributes:
        began: when it was first looked for.
        ids: what EC2 describes, and since when the same.
        told: whether the same call was sent again, and its answer did not tell.
    """

    began: float
    ids: tuple[str, ...]
    since: float
    told: bool = False


@dataclass(frozen=True, slots=True)
class _Before:
    """A lane when EC2 ended an instance of it at launch: the generation of its class, and the claims that had registered."""

    generation: int
    registered: frozenset[str]


class _NotToldError(Exception):
    """CreateFleet was answered, and the answer does not say what was launched."""


class Launcher:
    """Launches and ends instances; thread-safe, and only `delete`, `get` and `list` wait for EC2.

    Args:
        reserved: whether the feature gate ReservedCapacity is on.
        best_effort: whether minValues may be missed.
        look: seconds between two looks at a launch that was interrupted.
        patience: seconds for which it is looked for, see `recovery.PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        aws: Clients,
        instances: Instances,
        templates: LaunchTemplates,
        world: LaunchWorld,
        *,
        subnets: SubnetBook,
        reservations: ReservationBook,
        shortages: Shortages,
        clock: Clock,
        settings: AwsSettings,
        reserved: bool = True,
        best_effort: bool = False,
        look: float = LOOK_SECONDS,
        patience: float = recovery.PATIENCE_SECONDS,
    ) -> None:
        self._aws, self._instances, self._templates, self._world = aws, instances, templates, world
        self._subnets, self._reservations, self._shortages = subnets, reservations, shortages
        self._clock, self._settings = clock, settings
        self._reserved, self._best_effort, self._look, self._patience = reserved, best_effort, look, patience
        self._answered: Callable[[str], None] = lambda _: None
        self._changed = threading.Condition()
        self._waiting: dict[str, NodeClaim] = {}
        self._under_way: dict[str, bool] = {}  # whether a lane has it
        self._answers: dict[str, LaunchedInstance | CloudError] = {}
        self._spent: dict[str, None] = {}  # tags of attempts, the following three too
        self._busy: set[str] = set()  # somebody works on it
        self._sent: dict[str, _Sent] = {}
        self._searches: dict[str, _Search] = {}
        self._gone: dict[str, None] = {}
        self._failures: dict[str, None] = {}  # UIDs of claims whose instance EC2 ended at launch
        self._before: dict[tuple[str, str], _Before] = {}
        self._recalled: dict[tuple[str, str], None] = {}  # lanes of which it was asked what an earlier leader saw
        self._pacing = Pacing()
        self._zone_ids: dict[str, str] = {}
        self._gathered = 0.0
        self._lanes: dict[str, WorkerPool] = {}
        self._marker = Marker(world.write, world.read, self._is_spent)
        self._claims_now: Gatherer[None, Sequence[NodeClaim]] = Gatherer(
            clock, lambda _: {None: world.claims_now()}, idle=_LIST_IDLE, batcher="list_nodeclaims"
        )
        self._stopping = False
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        with self._changed:
            return f"<Launcher: {len(self._waiting)} waiting, {len(self._under_way)} under way>"

    # ------------------------------------------------------------------ what controllers ask

    def listen(self, answered: Callable[[str], None]) -> None:
        """Call `answered` with a claim's name when `create` has an answer for it."""
        self._answered = answered

    def create(self, claim: NodeClaim) -> LaunchedInstance:
        """The instance of a claim, launched if there is none yet; see `CloudProvider.create`. Never waits."""
        uid = claim.metadata.uid
        with self._changed:
            answer = self._answers.get(uid)
            if isinstance(answer, LaunchedInstance):
                return answer
            if answer is not None:
                del self._answers[uid]
                raise answer
            if uid not in self._waiting and uid not in self._under_way:
                self._waiting[uid] = claim
                self._start()
                self._changed.notify_all()
        raise LaunchUnderWayError(claim.metadata.name)

    def resume(self, claims: Iterable[NodeClaim]) -> None:
        """Go on with what an earlier process began; at once, so that the claims of a batch are together."""
        with self._changed:
            for claim in claims:
                if (
                    claim.metadata.deletion_timestamp is None
                    and not claim.status.provider_id
                    and launch_marks.mark_of(claim) is not None
                ):
                    self._waiting.setdefault(claim.metadata.uid, claim)
            if self._waiting:
                self._start()
                self._changed.notify_all()

    def delete(self, claim: NodeClaim) -> None:
        """Begin the end of the claim's instance, also of one that nobody has written down yet; see `CloudProvider.delete`."""
        uid = claim.metadata.uid
        with self._changed:
            self._waiting.pop(uid, None)
            if uid in self._under_way:
                return  # its instance is about to be known
            answer = self._answers.get(uid)
        known = claim.status.provider_id or (answer.provider_id if isinstance(answer, LaunchedInstance) else "")
        try:
            if not known:
                known = self._lost_instance(claim)
            if known:
                self._must_be_its_own(claim, known)
                self._note_failure(claim, known, self._instances.terminate(known))
        except InstanceNotFoundError as gone:
            if isinstance(gone, EndedAtLaunchError):
                self._note_failure(claim, known, gone.failure)
            self._ended(claim)
            raise

    def _must_be_its_own(self, claim: NodeClaim, provider_id: str) -> None:
        """Raises `InstanceNotFoundError` where another claim, which stays, has the same instance: then this one has none of its own."""
        other = other_owner(claim, provider_id, self._world.claims())
        if other is not None:
            _log.error(
                "Two NodeClaims refer to one instance; the NodeClaim that is not being deleted keeps it",
                nodeclaim=claim.metadata.name,
                other=other.metadata.name,
                provider_id=provider_id,
            )
            raise InstanceNotFoundError("")

    def get(self, provider_id: str) -> LaunchedInstance:
        """The instance of that ID; see `CloudProvider.get`."""
        return _instance(self._instances.get(provider_id))

    def list(self) -> Sequence[LaunchedInstance]:
        """Every instance of this cluster, in order of provider ID."""
        return sorted(map(_instance, self._instances.list()), key=lambda one: one.provider_id)

    def stop(self) -> None:
        """Begin nothing more. What was begun or waited is continued by `resume` of the next process."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            lanes = list(self._lanes.values())
        if self._thread is not None:
            self._thread.join(1.0)
        for lane in lanes:
            lane.close(0.2)
        self._marker.close()

    # ------------------------------------------------------------------ from claims to orders

    def _start(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="launcher", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pulse = heartbeat.pulse("launcher")
        while claims := self._next_window(pulse):
            try:
                self._release(claims)
            except Exception:  # noqa: BLE001 - one claim or order that fails stops no other
                _log.exception("Failed to launch NodeClaims; retrying")
                stuck = [claim for claim in claims if self._under_way.get(claim.metadata.uid) is False]
                self._turn_away(
                    stuck,
                    CreateError(names.LAUNCH_FAILED, "internal error; the log of the provisioner has the details"),
                    _LONGEST_WAIT,
                )

    def _next_window(self, pulse: heartbeat.Pulse) -> tuple[NodeClaim, ...]:
        """The claims of the next window, which count as under way from here on; none at the end."""
        pulse.beat()
        with self._changed:
            due: tuple[str, ...] = ()
            opened = 0.0
            while not due:
                pulse.rest()
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                pulse.beat()
                opened = self._gather_some()
                if self._stopping:
                    return ()
                now = self._clock.monotonic()
                pauses = {uid: self._pause(claim, now) for uid, claim in self._waiting.items()}
                due = tuple(uid for uid, pause in pauses.items() if pause <= 0)
                if not due:
                    pulse.rest()
                    self._changed.wait(min(pauses.values(), default=None))
            # who came first: those that are tried again go behind the others
            claims = tuple(self._waiting.pop(uid) for uid in due)
            self._under_way |= dict.fromkeys(due, False)
            self._prune()
            self._gathered = self._clock.monotonic() - opened
        return claims

    def _gather_some(self) -> float:
        """Wait until nobody joins any more; when that began. Under the lock."""
        idle, longest = self._settings.fleet_idle.total_seconds(), self._settings.fleet_longest.total_seconds()
        opened, known = self._clock.monotonic(), 0
        while not self._stopping and known < len(self._waiting) and self._clock.monotonic() < opened + longest:
            known = len(self._waiting)
            self._changed.wait(idle)
        return opened

    def _pause(self, claim: NodeClaim, now: float) -> float:
        """Seconds until something may be done for a claim; to look for what was launched for it, nobody has to wait. Under the lock."""
        mark = launch_marks.mark_of(claim)
        if mark is not None and mark.tag not in self._spent:
            return 0.0
        return self._pacing.wait(_lane_of(claim), now)

    def _release(self, claims: Sequence[NodeClaim]) -> None:
        """Begin whatever may begin now; the rest waits for the next window."""
        interrupted: dict[str, list[NodeClaim]] = {}
        asks: dict[bytes, list[NodeClaim]] = {}
        for claim in claims:
            if self._has_instance(claim):
                continue
            mark = launch_marks.mark_of(claim)
            if mark is not None and not self._is_spent(mark.tag):
                interrupted.setdefault(mark.tag, []).append(claim)
            else:
                asks.setdefault(orders.ask_key(claim), []).append(claim)
        for tag, some in interrupted.items():
            self._submit(some, lambda tag=tag, some=some: self._resume(tag, some))  # type: ignore[misc]
        arounds: dict[tuple[str, str], OrderContext | CloudError] = {}
        groups: dict[str, tuple[Order, list[NodeClaim]]] = {}
        for alike in asks.values():
            lane = _lane_of(alike[0])
            with self._changed:
                now = self._clock.monotonic()
                short, pause = self._pacing.short(lane, now), self._pacing.wait(lane, now)
            if pause > 0:
                self._put_back(alike)
                continue
            order = self._order(alike, arounds)
            if order is None:
                continue
            if short:  # one at a time: what its answer teaches may change the next order
                self._begin(order, alike)
            else:
                groups.setdefault(order.key, (order, []))[1].extend(alike)
        for order, some in groups.values():
            self._begin(order, some)

    def _has_instance(self, claim: NodeClaim) -> bool:
        """Whether the claim got an instance while it waited for another try; whoever asked is told."""
        with self._changed:
            answer = self._answers.get(claim.metadata.uid)
        if not isinstance(answer, LaunchedInstance):
            return False
        self._answer(claim, answer)
        return True

    def _order(
        self, alike: Sequence[NodeClaim], arounds: dict[tuple[str, str], OrderContext | CloudError]
    ) -> Order | None:
        """The order of equal claims; None when they got their answer instead."""
        found = self._order_or_error(alike[0], arounds)
        if isinstance(found, Order):
            return found
        for one in alike:
            self._answer(one, _fresh(found, one))
        return None

    def _order_or_error(
        self, claim: NodeClaim, arounds: dict[tuple[str, str], OrderContext | CloudError]
    ) -> Order | CloudError:
        key = claim.spec.node_class_ref.name, claim.pool
        if key not in arounds:
            arounds[key] = self._around(claim)
        around = arounds[key]
        if isinstance(around, CloudError):
            return around
        try:
            order = orders.order_of(claim, around)
            self._warn_of_few(claim, order)
        except InsufficientCapacityError as short:
            return self._when_short(claim, around, short)
        except CreateError as wrong:
            return _later(wrong, _LONGEST_WAIT)
        except Exception as defect:  # noqa: BLE001 - one claim or order that fails stops no other
            _log.exception("Failed to resolve the launch request of a NodeClaim", nodeclaim=claim.metadata.name)
            return _later(CreateError(names.LAUNCH_FAILED, repr(defect)), _LONGEST_WAIT)
        return order

    def _warn_of_few(self, claim: NodeClaim, order: Order) -> None:
        """Spot was wanted and on-demand is bought from few types: more would find spot. Source: spec/karpenter-aws.md 5.3."""
        wanted = wishes_of(claim)[0].requirement(names.CAPACITY_TYPE_LABEL)
        few = len(order.types) < FLEXIBLE
        if few and order.capacity_type == names.CAPACITY_ON_DEMAND and wanted.has(names.CAPACITY_SPOT):
            _log.error(
                "Launching on-demand capacity although spot is allowed; allow at least five instance types to make "
                "spot available",
                nodepool=claim.pool,
                instance_types=len(order.types),
            )

    def _around(self, claim: NodeClaim) -> OrderContext | CloudError:
        """What orders of the claim's class are made from, or why there can be none now."""
        try:
            return self._gather(claim)
        except NodeClassNotReadyError as error:
            return error
        except CreateError as error:
            return _later(error, _NOT_KNOWN_WAIT)
        except Exception as error:  # noqa: BLE001 - one claim or order that fails stops no other
            if not isinstance(error, CloudError):
                _log.exception(
                    "Failed to prepare an EC2NodeClass for launches", nodeclass=claim.spec.node_class_ref.name
                )
            return _later(CreateError(names.LAUNCH_FAILED, str(error)), _NOT_KNOWN_WAIT)

    def _gather(self, claim: NodeClaim) -> OrderContext:
        world, now = self._world, self._clock.now()
        node_class = with_kept_kubelet(orders.ready(claim, world.class_of(claim)), claim.metadata.annotations)
        types = world.types_for(claim, node_class)
        if not types:
            raise CreateError(_NO_TYPES, INSTANCE_TYPES_NOT_READ)
        cluster = world.cluster()
        self._zone_ids.update({one.zone: one.zone_id for one in node_class.status.subnets})
        addresses = addresses_of(node_class, ipv6=has_ipv6(node_class.kubelet, cluster))
        return OrderContext(
            node_class=node_class,
            types=types,
            cluster=cluster,
            region=self._settings.region,
            subnets={zone: chosen.id for zone, chosen in self._subnets.by_zone(node_class, now, addresses).items()},
            addresses=addresses,
            max_pods=lambda instance_type: world.max_pods(node_class, instance_type),
            efa=lambda instance_type: world.efa_launch(node_class, instance_type),
            standing=lambda offer: self._shortages.standing(offer, now),
            group=world.group_of(node_class),
            reserved=self._reserved,
            best_effort=self._best_effort,
            adjusted=world.adjusted,
        )

    def _when_short(
        self, claim: NodeClaim, around: OrderContext, short: InsufficientCapacityError
    ) -> InsufficientCapacityError:
        """The same, saying when it is worth another try: never, when no shortage stands in the way."""
        now = self._clock.now()
        offers = orders.reopening(claim, around, lambda offer: self._shortages.standing(offer, now).available)
        if not offers:
            return short
        turn = self._shortages.opens_at(offers, now)
        wait = _LONGEST_WAIT if turn is None else (turn - now).total_seconds()
        return InsufficientCapacityError(
            claim.metadata.name, short.problem, min(max(_SHORT_WAIT, wait), _LONGEST_WAIT), exhausted=True
        )

    def _begin(self, order: Order, claims: Sequence[NodeClaim]) -> None:
        """Launch as many of the claims as may be now; the others get to know that they have to wait."""
        claims = sorted(claims, key=launch_marks.age)
        monotonic, now = self._clock.monotonic(), self._clock.now()
        self._recall(order.lane, claims[0])
        self._look_for_nodes(order.lane, claims[0])
        with self._changed:
            held = self._pacing.held(order.lane, monotonic)
            size = self._pacing.size(order.lane, len(claims))
        if held is not None:
            self._turn_away(claims, held[1], min(held[0], _LONGEST_WAIT))
            return
        quota = (self._shortages.fleet_open_at(now) - now).total_seconds()
        if quota > 0:
            self._wait_their_turn(
                claims, Said("the EC2 Fleet quota of this Region is used up"), min(quota, _LONGEST_WAIT)
            )
            return
        lent: dict[OfferingKey, int] = {}
        if order.doubted:
            granted = {offer: self._shortages.grant(offer, size, now) for offer in orders.shortlist(order)}
            lent = {offer: count for offer, count in granted.items() if count}
            if not lent:
                self._wait_their_turn(
                    claims,
                    Said(
                        "no recent capacity for its instance types; other launches test them first, retrying in "
                        f"{_SHORT_WAIT:g} s"
                    ),
                    _SHORT_WAIT,
                )
                return
            order = orders.narrowed(order, lent.keys())
            size = min(lent.values())
        for start in range(0, size, MAX_BATCH):
            some = claims[start : min(start + MAX_BATCH, size)]
            with self._changed:
                self._pacing.sent(order.lane, monotonic)
            self._submit(some, lambda some=some: self._launch(order, some, lent))  # type: ignore[misc]
        with self._changed:
            held = self._pacing.held(order.lane, monotonic)  # for what becomes of this one
        if held is not None:
            self._turn_away(claims[size:], held[1], min(held[0], _LONGEST_WAIT))
            return
        self._wait_their_turn(
            claims[size:],
            Said(
                "capacity for its instance types was short; a smaller batch is launched first, retrying in "
                f"{_SHORT_WAIT:g} s"
            ),
            _SHORT_WAIT,
        )

    # ------------------------------------------------------------------ one batch

    def _launch(self, order: Order, claims: Sequence[NodeClaim], lent: Mapping[OfferingKey, int]) -> None:
        """One batch from its templates to its answers; in a thread of its class."""
        try:
            self._try_launch(order, claims, again=True)
        except (ClientError, BotoCoreError) as error:
            self._failed(order, claims, classify_exception(error))
        except Exception as error:  # noqa: BLE001 - one claim or order that fails stops no other
            _log.exception(_LAUNCH_FAILED)
            self._failed(order, claims, classify_exception(error), known=False)
        finally:
            now = self._clock.now()
            for offer, count in lent.items():
                self._shortages.release(offer, count, now)

    def _try_launch(self, order: Order, claims: Sequence[NodeClaim], *, again: bool) -> None:
        self._templates.ensure(order.needed)
        marked = self._mark(order, claims)
        if not marked:
            return
        tag = next(iter(marked)).tag
        try:
            found = self._send(order, marked)
            if found is None:
                return
            gone = again and self._templates_are_gone(order, found)
            if gone:
                self._spend(tag)
            else:
                self._take(order, marked, found, len(marked))
        finally:
            self._let_go(tag)
        if gone:
            self._try_launch(order, list(marked.values()), again=False)

    def _mark(self, order: Order, claims: Sequence[NodeClaim]) -> Mapping[Mark, NodeClaim]:
        """Write the marks of a new attempt, without gaps, so that nobody else works on it; claims that cannot be marked are told so and left out.

        Where it is not known whether a mark was written, its ordinal must never be dealt: the attempt is given up, and the others get another one.
        """
        for _ in range(_MARKING_TRIES):
            if not claims:
                break
            batch = batch_of(
                {"order": order.key, "at": self._clock.now().isoformat()}, [claim.metadata.uid for claim in claims]
            )
            marks = launch_marks.first_marks(claims, batch)
            self._hold(marks[0].tag)
            done = Marked({}, tuple(claims), ())
            try:
                done = self._marker.commit(dict(zip(marks, claims, strict=True)))
            finally:
                if not done.written:
                    self._spend(marks[0].tag)  # it is never sent
                    self._let_go(marks[0].tag)
            for claim, why in done.turned_away:
                message = Said(f"the launch could not be recorded on the NodeClaim: {why}")
                self._answer(claim, _later(CreateError(names.LAUNCH_FAILED, message), _SHORT_WAIT))
            if done.written:
                return done.written
            claims = done.left
        message = Said("the API server did not confirm that the launch was recorded on the NodeClaim")
        self._turn_away(claims, CreateError(names.LAUNCH_FAILED, message), _SHORT_WAIT)
        return {}

    def _send(self, order: Order, marked: Mapping[Mark, NodeClaim]) -> FleetAnswer | None:
        """Call CreateFleet for marked claims; None when they got their answer instead."""
        count, mark = len(marked), next(iter(marked))
        subnets = sorted({one.subnet for one in order.overrides})
        for subnet in subnets:
            self._subnets.reserve(subnet, count * order.addresses)
        taken: Counter[str] = Counter()
        with self._changed:
            put_newest(self._sent, mark.tag, _Sent(order, count), _MAX_KEPT)
        try:
            found = self._create_fleet(order, mark, count, first=True)
            taken.update(one.subnet for one in found.launched)
        except (ClientError, BotoCoreError) as error:
            failure = classify_exception(error)
            known = not failure.maybe_done and failure.kind is not FailureKind.MISMATCH
            if known:
                self._spend(mark.tag)
                self._marker.take_off(marked.values())
            self._failed(order, marked.values(), failure, known=known)
            return None
        except _NotToldError as error:
            _log.warning(
                "CreateFleet did not report what it launched; looking for instances by batch tag", batch=mark.tag
            )
            self._let_wait(marked.values(), names.LAUNCH_FAILED, str(error), self._look)
            return None
        finally:
            for subnet in subnets:
                self._subnets.settle(
                    subnet, count * order.addresses, taken[subnet] * order.addresses, self._clock.now()
                )
        return found

    def _create_fleet(self, order: Order, mark: Mark, count: int, *, first: bool) -> FleetAnswer:
        """What CreateFleet answered; a template that is missing is always said in it, however EC2 said it.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: as the call.
            _NotToldError: it may be the answer to a repetition, and does not say what was launched.
        """
        request = fleet.request(
            order.overrides,
            capacity_type=order.capacity_type,
            count=count,
            tags=order.tags,
            mark=mark,
            reservation_type=order.reservation_type,
            by_priority=order.by_priority,
            context=order.context,
        )
        batched("create_fleet", self._gathered, count)
        try:
            answer: Mapping[str, Any] = self._aws.client("ec2").create_fleet(**request)
        except ClientError as error:
            failure = classify_exception(error)
            if failure.reason != LAUNCH_TEMPLATE_NOT_FOUND or failure.maybe_done or not first:
                raise
            answer = {"Errors": [{"ErrorCode": failure.code, "ErrorMessage": failure.message}]}
        found = fleet.outcome(answer, order.overrides, order.capacity_type)
        if not recovery.tells(found, count, repeated=not first or may_repeat(answer)):
            raise _NotToldError(
                f"EC2 answered a repeated CreateFleet with fleet {answer.get('FleetId', '')} but without its "
                "instances; looking for instances by batch tag"
            )
        return found

    def _templates_are_gone(self, order: Order, found: FleetAnswer) -> bool:
        """Whether nothing came because templates are missing; they are made again then."""
        gone = any(one.failure.reason == LAUNCH_TEMPLATE_NOT_FOUND for one in found.refused)
        if gone:
            self._templates.forget(one.name for one in order.needed)
        return gone and not found.launched

    def _take(
        self,
        order: Order,
        marked: Mapping[Mark, NodeClaim],
        found: FleetAnswer,
        wanted: int,
        held: Mapping[str, str] | None = None,
    ) -> None:
        """Learn from an answer, deal its instances, and tell the claims.

        Args:
            order: that it answers.
            marked: the claims that wait for it.
            found: the answer.
            wanted: how many were ordered.
            held: who has which instance; by default what the cache says, which is enough for instances that were not there before.
        """
        self._note(order, found, self._clock.now())
        by_id = {launched.instance: launched for launched in found.launched}
        named = {mark: claim.metadata.name for mark, claim in marked.items()}
        owners = recovery.shares(named, by_id, self._held(self._world.claims()) if held is None else held)
        empty = [claim for mark, claim in marked.items() if mark not in owners]
        if empty:
            self._marker.take_off(empty)  # first: a process that is killed after it need not be continued for them
        for mark, instance in owners.items():
            launched = by_id[instance]
            self._give(marked[mark], Made.launched(launched, order), order.types.get(launched.instance_type))
        self._spend(next(iter(marked)).tag)  # after all are given: who finds it spent launches anew
        with self._changed:
            self._pacing.answered(order.lane, wanted, len(found.launched), self._clock.monotonic())
        _log.info(
            "Launched a fleet",
            nodeclass=order.lane[0],
            nodepool=order.lane[1],
            wanted=wanted,
            launched=len(found.launched),
            refused=len(found.refused),
            capacity_type=order.capacity_type,
        )
        failures = [one.failure for one in found.refused]
        telling = next((failure for failure in failures if not failure.unfulfillable), None)
        if empty and not found.launched and telling is not None:
            self._failed(order, empty, telling)
            return
        for claim in empty:
            error = launch_error(claim.metadata.name, failures)
            if isinstance(error, InsufficientCapacityError):
                error.exhausted = False  # other offerings may do; the next order tells
            self._answer(claim, _later(error, _SHORT_WAIT))

    def _note(self, order: Order, found: FleetAnswer, now: datetime) -> None:
        """What the answer says about capacity, reservations and subnets."""
        for reservation in fleet.note(found, order.overrides, self._shortages, now):
            self._reservations.exhausted(reservation, now)
        for launched in found.launched:
            override = order.override(launched.instance_type, launched.zone)
            if override is not None and override.reservation:
                self._reservations.launched(override.reservation, 1, now)
        for one in found.refused:
            zone = one.offer.zone
            _FAILURES.labels(zone, self._zone_ids.get(zone, ""), order.capacity_type, one.failure.reason).inc()
            if one.failure.scope is FailureScope.SUBNET and one.subnet:
                self._subnets.exhausted(one.subnet, now)
        if not found.launched and not found.refused:  # EC2 does not say why: other offerings first
            for offer in orders.shortlist(order):
                self._shortages.failed(offer, now)

    def _give(self, claim: NodeClaim, made: Made, instance_type: InstanceType | None) -> None:
        node_class = self._world.class_of(claim) or EC2NodeClass()
        try:
            bundle = self._world.cluster().ca_bundle
        except CloudError:
            bundle = ""  # the class is stamped as a rule
        self._answer(claim, orders.instance_of(made, claim, node_class, instance_type, bundle))

    def _failed(self, order: Order, claims: Collection[NodeClaim], failure: Failure, *, known: bool = True) -> None:
        """No launch, for a reason that is no shortage as a rule: tell the claims, and hold the lane back.

        Args:
            order: that failed.
            claims: that it was for.
            failure: what to tell them.
            known: whether nothing was launched; else it is looked for.
        """
        _FAILURES.labels("", "", order.capacity_type, failure.reason).inc()
        for offer in orders.shortlist(order):
            self._shortages.failed(offer, self._clock.now(), failure.code, failure.scope)
        error = launch_error("", [failure])
        if isinstance(error, InsufficientCapacityError):
            error.exhausted = False
        with self._changed:
            wait = self._pacing.failed(order.lane, error, self._clock.monotonic())
        _log.warning(
            _LAUNCH_FAILED,
            nodeclass=order.lane[0],
            nodepool=order.lane[1],
            reason=failure.reason,
            error=str(failure),
        )
        if known:
            self._turn_away(claims, error, wait)
        else:
            self._let_wait(claims, failure.reason, str(failure), self._look)

    def _note_failure(self, claim: NodeClaim, provider_id: str, failure: Failure | None) -> None:
        """EC2 ended the instance of a claim at launch: another offering, its lane in growing pauses, or both. Once for each claim; not where its Node came."""
        if failure is None or is_true(claim.status.conditions, names.REGISTERED):
            return
        with self._changed:
            if claim.metadata.uid in self._failures:
                return
            put_newest(self._failures, claim.metadata.uid, None, _MAX_KEPT)
        if holds_back(failure):
            self._hold_back(
                claim, CreateError(failure.reason, ended_at_launch(instance_id_of(provider_id), str(failure)))
            )
        offer = orders.offer_of(claim)
        if failure.unfulfillable:
            self._shortages.failed(offer, self._clock.now(), failure.code, failure.scope)
        _FAILURES.labels(offer.zone, self._zone_ids.get(offer.zone, ""), offer.capacity_type, failure.reason).inc()
        _log.warning(
            "EC2 terminated an instance at launch",
            nodeclaim=claim.metadata.name,
            provider_id=provider_id,
            reason=failure.reason,
            error=str(failure),
        )

    def _recall(self, lane: tuple[str, str], claim: NodeClaim) -> None:
        """Before the first order of a lane: what an earlier leader saw EC2 end at launch holds it back as if this one had."""
        with self._changed:
            known = lane in self._recalled
            self._recalled[lane] = None
            forget_oldest(self._recalled, _MAX_KEPT)
        why = "" if known else self._world.failing(claim)
        if (failure := told_failure(why)) is not None and holds_back(failure):
            self._hold_back(claim, CreateError(failure.reason, why))

    def _hold_back(self, claim: NodeClaim, error: CreateError) -> None:
        lane, node_class = _lane_of(claim), self._world.class_of(claim)
        registered = frozenset(one.metadata.uid for one in self._world.claims() if _has_come(one, lane))
        with self._changed:
            self._pacing.ended(lane, error, self._clock.monotonic())
            generation = 0 if node_class is None else node_class.metadata.generation
            put_newest(self._before, lane, _Before(generation, registered), _MAX_KEPT)

    def _look_for_nodes(self, lane: tuple[str, str], claim: NodeClaim) -> None:
        """End the pauses of a lane once a Node of it has registered since, or its class has changed."""
        with self._changed:
            before = self._before.get(lane)
        if before is None:
            return
        node_class = self._world.class_of(claim)
        changed = node_class is not None and node_class.metadata.generation != before.generation
        if changed or any(
            _has_come(one, lane) and one.metadata.uid not in before.registered for one in self._world.claims()
        ):
            with self._changed:
                self._before.pop(lane, None)
                self._pacing.came_up(lane)

    # ------------------------------------------------------------------ what was interrupted

    def _resume(self, tag: str, claims: Sequence[NodeClaim]) -> None:
        """Go on with an attempt whose answer is not known, for all of its claims; in a thread of their class."""
        if not self._hold(tag):  # its answer is on its way, or somebody looks already
            self._turn_away(claims, LaunchUnderWayError(""), self._look)
            return
        everyone, look = list(claims), self._look
        try:
            every = self._claims_now.ask(None)
            everyone += (one for one in launch_marks.members(every, tag).values() if not one.status.provider_id)
            self._take_over(everyone)
            look = self._continue(tag, every)
        except (ClientError, BotoCoreError, InstanceError, ApiError) as error:
            known = isinstance(error, InstanceError | ApiError)
            message = str(error if known else classify_exception(error))
            self._let_wait(everyone, names.LAUNCH_FAILED, message, self._look)
        except Exception as error:  # noqa: BLE001 - one claim or order that fails stops no other
            _log.exception("Failed to resume a launch; retrying", batch=tag)
            self._let_wait(everyone, names.LAUNCH_FAILED, repr(error), _LONGEST_WAIT)
        finally:
            self._let_go(tag)
        with self._changed:  # whose mark is another one by now, or a copy of another's
            left = [claim for claim in everyone if self._under_way.get(claim.metadata.uid)]
        self._turn_away(left, LaunchUnderWayError(""), look)

    def _continue(self, tag: str, every: Sequence[NodeClaim]) -> float:
        """One look; seconds until the next one, if there has to be one.

        Args:
            tag: of the attempt.
            every: all claims, as the API server has them now.
        """
        everybody = launch_marks.members(every, tag)
        mine = {mark: claim for mark, claim in everybody.items() if not claim.status.provider_id}
        seen = self._instances.by_batch(tag)
        step, sent, look = self._next_step(tag, everybody, seen)
        if step is RecoveryStep.DEAL:
            self._deal_seen(tag, everybody, seen, every)
            return look
        if step is not RecoveryStep.REPEAT or all(claim.metadata.deletion_timestamp for claim in mine.values()):
            return look  # who has no answer yet is told to wait; for those that go nothing is launched
        order = sent.order if sent is not None else self._order_or_error(next(iter(mine.values())), {})
        if not isinstance(order, Order):
            return look
        count = sent.count if sent is not None else 1 + max(mark.ordinal for mark in everybody)
        self._templates.ensure(order.needed)
        try:
            found = self._create_fleet(order, next(iter(mine)), count, first=False)
        except (ClientError, BotoCoreError) as error:
            failure = classify_exception(error)  # of this call: it says nothing of the one before
            if failure.kind is FailureKind.MISMATCH:
                self._has_told(tag)
            if failure.reason == LAUNCH_TEMPLATE_NOT_FOUND:
                self._templates.forget(one.name for one in order.needed)
            _log.info("A launch cannot be replayed; looking for instances by batch tag", batch=tag, error=str(failure))
            self._let_wait(mine.values(), failure.reason, str(failure), look)
            return look
        except _NotToldError as error:
            self._has_told(tag)
            self._let_wait(mine.values(), names.LAUNCH_FAILED, str(error), look)
            return look
        if self._templates_are_gone(order, found):
            self._spend(tag)
            self._put_back(mine.values())
            return look
        _log.info("Resumed a launch by replaying CreateFleet", batch=tag, nodeclaims=len(mine))
        ended = {one.id: "" for one in seen if one.ending}  # an answer may be older than the end of its instances
        self._take(order, mine, found, count, self._held(every, seen) | ended)
        return look

    def _next_step(
        self, tag: str, everybody: Mapping[Mark, NodeClaim], seen: Sequence[Ec2Instance]
    ) -> tuple[RecoveryStep, _Sent | None, float]:
        """What to do about an attempt, the call of this process that it is about, and how soon to look again."""
        ids, now = tuple(one.id for one in seen), self._clock.monotonic()
        launched = [one.launched for one in seen if one.launched is not None]
        with self._changed:
            search = self._searches.get(tag)
            if search is None:
                search = self._searches[tag] = _Search(now, ids, now)
                forget_oldest(self._searches, _MAX_KEPT)
            elif search.ids != ids:
                search.ids, search.since = ids, now
            sent = self._sent.get(tag)
            known = Evidence(
                frozenset(mark.ordinal for mark in everybody),
                0 if sent is None else sent.count,
                len(seen),
                now - search.since,
                now - search.began,
                (self._clock.now() - max(launched)).total_seconds() if launched else 0.0,
                search.told,
            )
        soon = known.searched_seconds < _OFTEN_SECONDS
        return recovery.next_step(known, self._patience), sent, self._look if soon else _RARELY * self._look

    def _has_told(self, tag: str) -> None:
        """The same call was sent again, and need not be sent once more."""
        with self._changed:
            search = self._searches.get(tag)
            if search is not None:
                search.told = True

    def _take_over(self, claims: Iterable[NodeClaim]) -> None:
        """All claims of a batch are answered together, also those that nobody asked for yet."""
        with self._changed:
            for claim in claims:
                self._waiting.pop(claim.metadata.uid, None)
                self._under_way[claim.metadata.uid] = True

    def _held(self, claims: Iterable[NodeClaim], instances: Iterable[Ec2Instance] = ()) -> dict[str, str]:
        """Which claim has which instance: by its status, by what this process gave it, by the instance's tag."""
        written = [(claim.metadata.name, instance_id_of(claim.status.provider_id)) for claim in claims]
        with self._changed:
            given = [
                (answer.claim_name, instance_id_of(answer.provider_id))
                for answer in self._answers.values()
                if isinstance(answer, LaunchedInstance)
            ]
        return recovery.held_by([*written, *given], instances)

    def _deal_seen(
        self,
        tag: str,
        everybody: Mapping[Mark, NodeClaim],
        seen: Sequence[Ec2Instance],
        every: Sequence[NodeClaim],
    ) -> None:
        """Deal what EC2 describes; claims without an instance, or whose instance is gone again, are launched anew."""
        by_id = {one.id: one for one in seen}
        owners = self._shares(everybody, seen, every)
        mine = {mark: claim for mark, claim in everybody.items() if not claim.status.provider_id}
        again = []
        for mark, claim in mine.items():
            instance = by_id.get(owners.get(mark, ""))
            if instance is None or instance.ending:
                if instance is not None:
                    self._note_failure(claim, instance.provider_id, instance.failure)
                again.append(claim)
                continue
            node_class = self._world.class_of(claim)
            fitted = None if node_class is None else with_kept_kubelet(node_class, claim.metadata.annotations)
            types = () if fitted is None else self._world.types_for(claim, fitted)
            found = next((one for one in types if one.name == instance.instance_type), None)
            self._give(claim, Made.described(instance), found)
        self._spend(tag)
        _log.info("Resumed a launch from its batch tag", batch=tag, nodeclaims=len(mine), instances=len(seen))
        self._put_back(again)

    def _shares(
        self, everybody: Mapping[Mark, NodeClaim], seen: Sequence[Ec2Instance], every: Sequence[NodeClaim]
    ) -> dict[Mark, str]:
        """Whose instance is which, of those that EC2 describes for an attempt; what claims outside of it have counts too."""
        named = {mark: claim.metadata.name for mark, claim in everybody.items()}
        return recovery.shares(named, [one.id for one in seen], self._held(every, seen))

    def _lost_instance(self, claim: NodeClaim) -> str:
        """The provider ID of an instance that a claim may have without anybody knowing; "" while EC2 may still be hiding it.

        Raises:
            InstanceNotFoundError: it has none.
            InstanceError: EC2 or the API server did not answer.
        """
        try:
            mark = launch_marks.mark_of(self._world.read(claim.metadata.name))
            if mark is None or self._is_spent(mark.tag):
                raise InstanceNotFoundError("")
            if not self._hold(mark.tag):
                return ""
            try:
                every = self._claims_now.ask(None)
                everybody = launch_marks.members(every, mark.tag)
                seen = self._instances.by_batch(mark.tag)
                if self._next_step(mark.tag, everybody, seen)[0] is not RecoveryStep.DEAL:
                    return ""
                found = self._shares(everybody, seen, every).get(mark)
            finally:
                self._let_go(mark.tag)
        except NotFound as gone:
            raise InstanceNotFoundError("") from gone
        except ApiError as error:
            raise InstanceError(
                f"could not determine which instance was launched for the NodeClaim: {error}"
            ) from error
        if found is None or everybody[mark].metadata.uid != claim.metadata.uid:
            raise InstanceNotFoundError("")
        return next(one.provider_id for one in seen if one.id == found)

    # ------------------------------------------------------------------ bookkeeping

    def _submit(self, claims: Sequence[NodeClaim], call: Callable[[], None]) -> None:
        """Run a call for these claims in a thread of their class."""
        node_class = claims[0].spec.node_class_ref.name
        with self._changed:
            lane = self._lanes.get(node_class)
            if lane is None:
                lane = self._lanes[node_class] = WorkerPool(_AT_ONCE, f"launch-{node_class}")
            self._under_way |= dict.fromkeys((claim.metadata.uid for claim in claims), True)
        lane.submit(call)

    def _put_back(self, claims: Iterable[NodeClaim]) -> None:
        """Claims that shall have another try in the next window."""
        with self._changed:
            for claim in claims:
                self._under_way.pop(claim.metadata.uid, None)
                if claim.metadata.deletion_timestamp is None:
                    self._waiting[claim.metadata.uid] = claim
            self._changed.notify_all()

    def _answer(self, claim: NodeClaim, answer: LaunchedInstance | CloudError) -> None:
        with self._changed:
            waited = self._under_way.pop(claim.metadata.uid, None) is not None
            known = self._answers.get(claim.metadata.uid)
            if not waited and (known is not None or not isinstance(answer, LaunchedInstance)):
                return  # it has its answer
            if not isinstance(known, LaunchedInstance):  # that it has one is never dropped
                self._answers[claim.metadata.uid] = answer
        self._answered(claim.metadata.name)

    def _turn_away(self, claims: Iterable[NodeClaim], error: CloudError, seconds: float) -> None:
        for claim in claims:
            self._answer(claim, _later(_fresh(error, claim), seconds))

    def _let_wait(self, claims: Iterable[NodeClaim], reason: str, problem: str, seconds: float) -> None:
        """Tell claims that may have an instance that nobody knows yet, and why."""
        self._turn_away(claims, LaunchUnderWayError("", seconds, reason, problem), seconds)

    def _wait_their_turn(self, claims: Iterable[NodeClaim], why: str, seconds: float) -> None:
        for claim in claims:
            self._answer(claim, InsufficientCapacityError(claim.metadata.name, why, seconds, exhausted=False))

    def _hold(self, tag: str) -> bool:
        """Take an attempt into one's hands; False where somebody else has it."""
        with self._changed:
            if tag in self._busy:
                return False
            self._busy.add(tag)
            return True

    def _let_go(self, tag: str) -> None:
        with self._changed:
            self._busy.discard(tag)

    def _is_spent(self, tag: str) -> bool:
        with self._changed:
            return tag in self._spent

    def _spend(self, tag: str) -> None:
        """What became of this attempt is known: nobody has to ask for it again."""
        with self._changed:
            put_newest(self._spent, tag, None, _MAX_KEPT)
            self._sent.pop(tag, None)
            self._searches.pop(tag, None)

    def _ended(self, claim: NodeClaim) -> None:
        with self._changed:
            self._answers.pop(claim.metadata.uid, None)
            first = claim.metadata.uid not in self._gone
            put_newest(self._gone, claim.metadata.uid, None, _MAX_KEPT)
        reservation = claim.metadata.labels.get(labels.RESERVATION_ID, "")
        if reservation and first:
            self._reservations.terminated(reservation, self._clock.now())

    def _prune(self) -> None:
        """Forget answers that nobody will ask for; under the lock."""
        if len(self._answers) > _MAX_KEPT:
            live = {claim.metadata.uid for claim in self._world.claims() if not claim.status.provider_id}
            self._answers = {uid: answer for uid, answer in self._answers.items() if uid in live}


def _lane_of(claim: NodeClaim) -> tuple[str, str]:
    """The lane of the claim's orders, before there is one."""
    return claim.spec.node_class_ref.name, claim.pool


def _has_come(claim: NodeClaim, lane: tuple[str, str]) -> bool:
    """Whether a claim is of the lane and its Node has registered."""
    return _lane_of(claim) == lane and is_true(claim.status.conditions, names.REGISTERED)


def _later(error: CloudError, seconds: float | None) -> CloudError:
    error.retry_after = seconds
    return error


def _fresh(error: CloudError, claim: NodeClaim) -> CloudError:
    """The same error for one claim: raised errors collect tracebacks, so no two claims share one."""
    if not isinstance(error, InsufficientCapacityError | LaunchUnderWayError | NodeClassNotReadyError | CreateError):
        return _later(CreateError(names.LAUNCH_FAILED, str(error)), error.retry_after)
    made = copy.copy(error)
    if isinstance(made, InsufficientCapacityError | LaunchUnderWayError):
        made.claim_name = claim.metadata.name
    return made


def _instance(instance: Ec2Instance) -> LaunchedInstance:
    """An instance as everybody knows instances; what its claim says of it is not repeated."""
    return LaunchedInstance(
        provider_id=instance.provider_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        image_id=instance.image_id,
        claim_name=instance.tags.get(ec2.NODECLAIM_TAG, ""),
    )
