"""One batch from its templates to its answers: the steps that `launcher` names, and what EC2's answers teach."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.errors import CloudError, CreateError, InsufficientCapacityError
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2.access.batcher import batched
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
from provisioner.ec2.instances.endings import ended_at_launch, holds_back, told_failure
from provisioner.ec2.instances.instances import instance_id_of
from provisioner.ec2.launch import fleet, launch_marks, orders, recovery
from provisioner.ec2.launch.fleet import FleetAnswer
from provisioner.ec2.launch.launch_book import LaunchBook
from provisioner.ec2.launch.launch_marks import Mark, batch_of
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.mark_book import MarkBook
from provisioner.ec2.launch.mark_writer import Marked, Marker
from provisioner.ec2.launch.order_builder import OrderBuilder
from provisioner.ec2.launch.orders import LaunchWorld, Made, Order
from provisioner.ec2.launch.pace import LONGEST_WAIT, MAX_LANES, SHORT_WAIT, Pacing
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.ec2.nodeclass.reservations import ReservationBook
from provisioner.ec2.nodeclass.subnets import SubnetBook
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter
from provisioner.values.bounded import forget_oldest, put_newest
from provisioner.values.message import Said

MAX_BATCH: Final = 500
_MARKING_TRIES: Final = 3
_FAILURES = counter(
    "karpenter_cloudprovider_instance_launch_failures_total",
    "Launches that EC2 refused, and instances that it terminated at launch, by reason; the zone is empty if the whole call failed.",
    ("zone", "zone_id", "capacity_type", "reason"),
)
_log = logs.get_logger(__name__)
_LAUNCH_FAILED: Final = "Launch failed"


class NotToldError(Exception):
    """CreateFleet was answered, and the answer does not say what was launched."""


@dataclass(frozen=True, slots=True)
class _Before:
    """A lane when EC2 ended an instance of it at launch: the generation of its class, and the claims that had registered."""

    generation: int
    registered: frozenset[str]


class FleetLaunch:
    """Launches batches, in threads of their classes, and knows what holds a lane back."""

    def __init__(
        self,
        aws: Clients,
        templates: LaunchTemplates,
        world: LaunchWorld,
        book: LaunchBook,
        marks: MarkBook,
        builder: OrderBuilder,
        subnets: SubnetBook,
        reservations: ReservationBook,
        shortages: Shortages,
        clock: Clock,
    ) -> None:
        self._aws, self._templates, self._world, self._clock = aws, templates, world, clock
        self._book, self._marks, self._builder = book, marks, builder
        self._subnets, self._reservations, self._shortages = subnets, reservations, shortages
        self._marker = Marker(world.write, world.read, marks.is_spent)
        self._lock = threading.Lock()  # of the following three
        self._pacing = Pacing()
        self._before: dict[tuple[str, str], _Before] = {}
        self._recalled: dict[tuple[str, str], None] = {}  # lanes of which it was asked what an earlier leader saw

    def close(self) -> None:
        """Write no more marks."""
        self._marker.close()

    def turn(self, claim: NodeClaim) -> tuple[bool, float]:
        """Whether the lane of a claim is short, and seconds until its next fleet may be ordered."""
        lane, now = orders.lane_of(claim), self._clock.monotonic()
        with self._lock:
            return self._pacing.short(lane, now), self._pacing.wait(lane, now)

    def for_company(self, order: Order, claims: Collection[NodeClaim], count: int) -> Order:
        """As of `orders.for_company`, by what is left of subnets and reservations."""

        def may_hold(one: fleet.Override, instances: int) -> bool:
            left = self._reservations.available(one.reservation) if one.reservation else instances
            return left >= instances and self._subnets.may_hold(one.subnet, instances * order.addresses)

        return orders.for_company(order, claims, count, may_hold)

    def begin(self, order: Order, claims: Sequence[NodeClaim]) -> None:
        """Launch as many of the claims as may be now; the others get to know that they have to wait."""
        claims = sorted(claims, key=launch_marks.age)
        monotonic, now = self._clock.monotonic(), self._clock.now()
        self._recall(order.lane, claims[0])
        self._look_for_nodes(order.lane, claims[0])
        order = self.for_company(order, claims, len(claims))
        with self._lock:
            held = self._pacing.held(order.lane, monotonic)
            size = self._pacing.size(order.lane, len(claims), all_or_none=order.all_or_none)
        if held is not None:
            self._book.turn_away(claims, held[1], min(held[0], LONGEST_WAIT))
            return
        quota = (self._shortages.fleet_open_at(now) - now).total_seconds()
        if quota > 0:
            self._book.wait_their_turn(
                claims, Said("the EC2 Fleet quota of this Region is used up"), min(quota, LONGEST_WAIT)
            )
            return
        lent: dict[OfferingKey, int] = {}
        if order.doubted:
            asked = 1 if order.all_or_none else size  # all or none is one trial
            granted = {offer: self._shortages.grant(offer, asked, now) for offer in orders.shortlist(order)}
            lent = {offer: count for offer, count in granted.items() if count}
            if not lent:
                self._book.wait_their_turn(
                    claims,
                    Said(
                        "no recent capacity for its instance types; other launches test them first, retrying in "
                        f"{SHORT_WAIT:g} s"
                    ),
                    SHORT_WAIT,
                )
                return
            order = orders.narrowed(order, lent.keys())
            size = size if order.all_or_none else min(lent.values())
        most = fleet.MAX_MINIMUM if order.all_or_none else MAX_BATCH
        for start in range(0, size, most):
            some = claims[start : min(start + most, size)]
            with self._lock:
                self._pacing.sent(order.lane, monotonic)
            self._book.submit(some, lambda some=some: self._launch(order, some, lent))  # type: ignore[misc]
        with self._lock:
            held = self._pacing.held(order.lane, monotonic)  # for what becomes of this one
        if held is not None:
            self._book.turn_away(claims[size:], held[1], min(held[0], LONGEST_WAIT))
            return
        self._book.wait_their_turn(
            claims[size:],
            Said(
                "capacity for its instance types was short; a smaller batch is launched first, retrying in "
                f"{SHORT_WAIT:g} s"
            ),
            SHORT_WAIT,
        )

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
            order = self.for_company(order, marked.values(), len(marked))
            found = self._send(order, marked)
            if found is None:
                return
            gone = again and self.templates_are_gone(order, found)
            if gone:
                self._marks.spend(tag)
            else:
                self.take(order, marked, found, len(marked))
        finally:
            self._marks.let_go(tag)
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
            self._marks.hold(marks[0].tag)
            done = Marked({}, tuple(claims), ())
            try:
                done = self._marker.commit(dict(zip(marks, claims, strict=True)))
            finally:
                if not done.written:
                    self._marks.spend(marks[0].tag)  # it is never sent
                    self._marks.let_go(marks[0].tag)
            for claim, why in done.turned_away:
                message = Said(f"the launch could not be recorded on the NodeClaim: {why}")
                self._book.turn_away([claim], CreateError(names.LAUNCH_FAILED, message), SHORT_WAIT)
            if done.written:
                return done.written
            claims = done.left
        message = Said("the API server did not confirm that the launch was recorded on the NodeClaim")
        self._book.turn_away(claims, CreateError(names.LAUNCH_FAILED, message), SHORT_WAIT)
        return {}

    def _send(self, order: Order, marked: Mapping[Mark, NodeClaim]) -> FleetAnswer | None:
        """Call CreateFleet for marked claims; None when they got their answer instead."""
        count, mark = len(marked), next(iter(marked))
        subnets = sorted({one.subnet for one in order.overrides})
        for subnet in subnets:
            self._subnets.reserve(subnet, count * order.addresses)
        taken: Counter[str] = Counter()
        self._marks.sent(mark.tag, order, count)
        try:
            found = self.request_fleet(order, mark, count, first=True)
            taken.update(one.subnet for one in found.launched)
        except (ClientError, BotoCoreError) as error:
            failure = classify_exception(error)
            known = not failure.maybe_done and failure.kind is not FailureKind.MISMATCH
            if known:
                self._marks.spend(mark.tag)
                self._marker.take_off(marked.values())
            self._failed(order, marked.values(), failure, known=known)
            return None
        except NotToldError as error:
            _log.warning(
                "CreateFleet did not report what it launched; looking for instances by batch tag", batch=mark.tag
            )
            self._book.let_wait(marked.values(), names.LAUNCH_FAILED, str(error), self._marks.look)
            return None
        finally:
            for subnet in subnets:
                self._subnets.settle(
                    subnet, count * order.addresses, taken[subnet] * order.addresses, self._clock.now()
                )
        return found

    def request_fleet(self, order: Order, mark: Mark, count: int, *, first: bool) -> FleetAnswer:
        """What CreateFleet answered; a template that is missing is always said in it, however EC2 said it.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: as the call.
            NotToldError: it may be the answer to a repetition, and does not say what was launched.
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
            all_or_none=order.all_or_none,
        )
        batched("create_fleet", self._book.gathered, count)
        try:
            answer: Mapping[str, Any] = self._aws.client("ec2").create_fleet(**request)
        except ClientError as error:
            failure = classify_exception(error)
            if failure.reason != LAUNCH_TEMPLATE_NOT_FOUND or failure.maybe_done or not first:
                raise
            answer = {"Errors": [{"ErrorCode": failure.code, "ErrorMessage": failure.message}]}
        found = fleet.outcome(answer, order.overrides, order.capacity_type)
        if not recovery.tells(found, count, repeated=not first or may_repeat(answer)):
            raise NotToldError(
                f"EC2 answered a repeated CreateFleet with fleet {answer.get('FleetId', '')} but without its "
                "instances; looking for instances by batch tag"
            )
        return found

    def templates_are_gone(self, order: Order, found: FleetAnswer) -> bool:
        """Whether nothing came because templates are missing; they are made again then."""
        gone = any(one.failure.reason == LAUNCH_TEMPLATE_NOT_FOUND for one in found.refused)
        if gone:
            self._templates.forget(one.name for one in order.needed)
        return gone and not found.launched

    def take(
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
        owners = recovery.shares(named, by_id, self._book.held(self._world.claims()) if held is None else held)
        empty = [claim for mark, claim in marked.items() if mark not in owners]
        if empty:
            self._marker.take_off(empty)  # first: a process that is killed after it need not be continued for them
        for mark, instance in owners.items():
            launched = by_id[instance]
            self.give(marked[mark], Made.launched(launched, order), order.types.get(launched.instance_type))
        self._marks.spend(next(iter(marked)).tag)  # after all are given: who finds it spent launches anew
        with self._lock:
            self._pacing.answered(
                order.lane, wanted, len(found.launched), self._clock.monotonic(), all_or_none=order.all_or_none
            )
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
            self._book.turn_away([claim], error, SHORT_WAIT)

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
            _FAILURES.labels(zone, self._builder.zone_id(zone), order.capacity_type, one.failure.reason).inc()
            if one.failure.scope is FailureScope.SUBNET and one.subnet:
                self._subnets.exhausted(one.subnet, now)
        if not found.launched and not found.refused:  # EC2 does not say why: other offerings first
            for offer in orders.shortlist(order):
                self._shortages.failed(offer, now)

    def give(self, claim: NodeClaim, made: Made, instance_type: InstanceType | None) -> None:
        """A claim has an instance."""
        node_class = self._world.class_of(claim) or EC2NodeClass()
        try:
            bundle = self._world.cluster().ca_bundle
        except CloudError:
            bundle = ""  # the class is stamped as a rule
        self._book.answer(claim, orders.instance_of(made, claim, node_class, instance_type, bundle))

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
        with self._lock:
            wait = self._pacing.failed(order.lane, error, self._clock.monotonic())
        _log.warning(
            _LAUNCH_FAILED,
            nodeclass=order.lane[0],
            nodepool=order.lane[1],
            reason=failure.reason,
            error=str(failure),
        )
        if known:
            self._book.turn_away(claims, error, wait)
        else:
            self._book.let_wait(claims, failure.reason, str(failure), self._marks.look)

    def note_failure(self, claim: NodeClaim, provider_id: str, failure: Failure | None) -> None:
        """EC2 ended the instance of a claim at launch: another offering, its lane in growing pauses, or both. Once for each claim; not where its Node came."""
        if failure is None or is_true(claim.status.conditions, names.REGISTERED):
            return
        if not self._book.fails(claim):
            return
        if holds_back(failure):
            self._hold_back(
                claim, CreateError(failure.reason, ended_at_launch(instance_id_of(provider_id), str(failure)))
            )
        offer = orders.offer_of(claim)
        if failure.unfulfillable:
            self._shortages.failed(offer, self._clock.now(), failure.code, failure.scope)
        _FAILURES.labels(offer.zone, self._builder.zone_id(offer.zone), offer.capacity_type, failure.reason).inc()
        _log.warning(
            "EC2 terminated an instance at launch",
            nodeclaim=claim.metadata.name,
            provider_id=provider_id,
            reason=failure.reason,
            error=str(failure),
        )

    def _recall(self, lane: tuple[str, str], claim: NodeClaim) -> None:
        """Before the first order of a lane: what an earlier leader saw EC2 end at launch holds it back as if this one had."""
        with self._lock:
            known = lane in self._recalled
            self._recalled[lane] = None
            forget_oldest(self._recalled, MAX_LANES)
        why = "" if known else self._world.failing(claim)
        if (failure := told_failure(why)) is not None and holds_back(failure):
            self._hold_back(claim, CreateError(failure.reason, why))

    def _hold_back(self, claim: NodeClaim, error: CreateError) -> None:
        lane, node_class = orders.lane_of(claim), self._world.class_of(claim)
        registered = frozenset(one.metadata.uid for one in self._world.claims() if _has_come(one, lane))
        with self._lock:
            self._pacing.ended(lane, error, self._clock.monotonic())
            generation = 0 if node_class is None else node_class.metadata.generation
            put_newest(self._before, lane, _Before(generation, registered), MAX_LANES)

    def _look_for_nodes(self, lane: tuple[str, str], claim: NodeClaim) -> None:
        """End the pauses of a lane once a Node of it has registered since, or its class has changed."""
        with self._lock:
            before = self._before.get(lane)
        if before is None:
            return
        node_class = self._world.class_of(claim)
        changed = node_class is not None and node_class.metadata.generation != before.generation
        if changed or any(
            _has_come(one, lane) and one.metadata.uid not in before.registered for one in self._world.claims()
        ):
            with self._lock:
                self._before.pop(lane, None)
                self._pacing.came_up(lane)


def _has_come(claim: NodeClaim, lane: tuple[str, str]) -> bool:
    """Whether a claim is of the lane and its Node has registered."""
    return orders.lane_of(claim) == lane and is_true(claim.status.conditions, names.REGISTERED)
