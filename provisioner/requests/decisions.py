"""What the status of a ProvisioningRequest says, from its templates, what the solver found, and the time. Pure.

Source: conditions and reasons of Cluster Autoscaler, `provisioningrequest/conditions` and `processors/provreq/processor.go`, as Kueue reads them
(kueue `pkg/controller/admissionchecks/provisioning/controller.go`): Failed and, before admission, BookingExpired make it create another request; the
message of Provisioned is shown on the Workload.

Differs: a booking whose room is lost ends at once with BookingExpired, so that Kueue tries again, or the pods that exist get nodes like any other;
Provisioned is True once instances are launched, not when sizes of groups are set. CapacityRevoked, which deactivates the Workload, is never set, since
capacity may come back; Cluster Autoscaler sets it neither (`provisioningrequest/conditions`, AddOrUpdateCondition).
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.conditions import set_alone
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.apis.provisioning_request import (
    ATOMIC,
    BOOK_PARTIAL,
    CHECK_CAPACITY,
    CHECK_ONLY,
    NO_RETRY,
    PARTIAL,
    ProvisioningRequest,
    beyond_bounds,
    valid_for,
)
from provisioner.values.message import ConditionMessage, Said

BOOKED_FOR: Final = timedelta(minutes=10)
"""From Provisioned=True on, room is kept."""
EXPIRES_AFTER: Final = timedelta(days=7)
"""From its creation on, an unanswered request fails; from its end on, a finished one is deleted."""
TEMPLATES_WITHIN: Final = timedelta(minutes=1)
"""From its creation on, PodTemplates may be missing: Kueue creates the request before them."""
LOST_AFTER: Final = timedelta(minutes=1)
"""A booking for which there has been no room for so long is over."""
SCHEDULABLE: Final = "schedulablePodSets"
"""Detail: the PodTemplates of the pod sets for which there is room, as JSON."""


class RequestPhase(enum.Enum):
    """Where a request stands, as its conditions say: somebody wants room, has it, or wants it no longer."""

    OPEN = enum.auto()
    BOOKED = enum.auto()
    OVER = enum.auto()


class TemplateProblem(enum.Enum):
    """Why no pods can be made of the templates: one is missing, or the API server would refuse the pods."""

    MISSING = enum.auto()
    INVALID = enum.auto()


@dataclass(frozen=True, slots=True)
class RoomFound:
    """What a run of provisioning has found for a request.

    Attributes:
        places: how many pods of each pod set have places, those included that real pods have taken.
        nodes: keys of the nodes that keep room for it.
        coming: how many nodes with its places have no instance yet.
        unready: how many of them are not ready.
        late: there was no time to look for all of its pods.
        limited: why it was not looked for now: a bound of ours; "" where it was.
        why: why the first pod without a place has none.
    """

    places: tuple[int, ...] = ()
    nodes: frozenset[str] = frozenset()
    coming: int = 0
    unready: int = 0
    late: bool = False
    limited: str = ""
    why: str = ""

    def full(self, counts: Sequence[int]) -> tuple[bool, ...]:
        """By pod set, whether all of its pods have places."""
        return tuple(n >= count for n, count in zip(self.places, counts, strict=True)) if self.places else ()


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a decision is made from, beside the request.

    Attributes:
        problem: of the templates; None where pods can be made of them.
        explanation: of the problem.
        found: by the last run of provisioning that looked; None before the first.
        bound: how many pods that name the request run.
        lost: for how long there has been no room for all that is booked; None where there is.
        retry_seconds: until there is another look where there is no room.
    """

    problem: TemplateProblem | None = None
    explanation: str = ""
    found: RoomFound | None = None
    bound: int = 0
    lost: timedelta | None = None
    retry_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class RequestDecision:
    """What becomes of a request.

    Attributes:
        conditions: all of them; the same object where none changes.
        details: provisioningClassDetails, likewise.
        delete: it has been over for long enough.
    """

    conditions: tuple[Condition, ...]
    details: Mapping[str, str] = field(default_factory=dict)
    delete: bool = False


def phase_of(request: ProvisioningRequest) -> RequestPhase:
    """Where a request stands."""
    conditions = request.status.conditions
    if any(is_true(conditions, one) for one in (names.FAILED, names.BOOKING_EXPIRED, names.CAPACITY_REVOKED)):
        return RequestPhase.OVER
    return RequestPhase.BOOKED if is_true(conditions, names.PROVISIONED) else RequestPhase.OPEN


def told_of(request: ProvisioningRequest) -> str:
    """The condition that says most of a request; "" of one that nobody has looked at."""
    told = (names.FAILED, names.CAPACITY_REVOKED, names.BOOKING_EXPIRED, names.PROVISIONED, names.ACCEPTED)
    return next((one for one in told if is_true(request.status.conditions, one)), "")


def ended_at(request: ProvisioningRequest) -> datetime | None:
    """When a request ended; None of one that has not, or does not say."""
    over = (names.FAILED, names.BOOKING_EXPIRED, names.CAPACITY_REVOKED)
    found = [condition(request.status.conditions, one) for one in over]
    times = [one.last_transition_time for one in found if one is not None and one.status == names.TRUE]
    return min([one for one in times if one is not None], default=None)


def counts_of(request: ProvisioningRequest) -> tuple[int, ...]:
    """How many pods of each pod set room is wanted for: of a request that is booked in part, none of the sets that have none."""
    counts = tuple(one.count for one in request.spec.pod_sets)
    conditions = request.status.conditions
    found = condition(conditions, names.PROVISIONED)
    if phase_of(request) is not RequestPhase.BOOKED or found is None or found.reason != "PartialCapacityIsFound":
        return counts
    try:
        told = msgspec.json.decode(request.status.provisioning_class_details.get(SCHEDULABLE, ""), type=list[str])
    except msgspec.DecodeError:
        return counts
    return tuple(one.count if one.pod_template_ref.name in told else 0 for one in request.spec.pod_sets)


def mode_of(request: ProvisioningRequest) -> str:
    """How a request for room on nodes that exist wants an answer about single pod sets; "" for one about all together."""
    mode = request.spec.parameters.get(PARTIAL, "")
    checks = request.spec.provisioning_class_name == CHECK_CAPACITY
    return mode if checks and mode in {BOOK_PARTIAL, CHECK_ONLY} else ""


def decide(request: ProvisioningRequest, facts: RequestFacts, now: datetime) -> RequestDecision:
    """What becomes of a request that is of one of our classes. O(pod sets)."""
    status = request.status
    phase = phase_of(request)
    if phase is RequestPhase.OVER:
        ended = ended_at(request)
        over = ended is not None and now - ended >= EXPIRES_AFTER
        return RequestDecision(status.conditions, status.provisioning_class_details, delete=over)
    details: Mapping[str, str] = status.provisioning_class_details
    messages = [_accepted()]
    if phase is RequestPhase.BOOKED:
        if (ending := _ending(request, facts, now)) is not None:
            messages.append(ending)
    else:
        message, details = _answer(request, facts, now)
        if message is not None:
            messages.append(message)
    conditions = status.conditions
    for one in messages:
        conditions = set_alone(conditions, *one, generation=request.metadata.generation, now=now)
    return RequestDecision(conditions, details)


def _accepted() -> ConditionMessage:
    return ConditionMessage(names.ACCEPTED, names.TRUE, "Accepted", Said("Dovetail looks for room for the request"))


def _failed(reason: str, message: str) -> ConditionMessage:
    return ConditionMessage(names.FAILED, names.TRUE, reason, message)


def _ending(request: ProvisioningRequest, facts: RequestFacts, now: datetime) -> ConditionMessage | None:
    """Why the booking is over; None while it is not."""
    wanted = sum(counts_of(request))
    if facts.bound >= wanted:
        text = Said("All pods of the request are scheduled")
        return ConditionMessage(names.BOOKING_EXPIRED, names.TRUE, "CapacityBookingConsumed", text)
    found = condition(request.status.conditions, names.PROVISIONED)
    since = found.last_transition_time if found is not None else None
    if since is None or now - since >= BOOKED_FOR:
        text = Said(f"The room was reserved for {_minutes(BOOKED_FOR)} minutes; {facts.bound} of {wanted} pods use it")
        return ConditionMessage(names.BOOKING_EXPIRED, names.TRUE, "CapacityReservationTimeExpired", text)
    if facts.problem is not None:
        return _failed("FailedToBookCapacity", Said(f"The room cannot be reserved any longer: {facts.explanation}"))
    if facts.lost is not None and facts.lost >= LOST_AFTER:
        text = Said("Nodes with reserved room were removed, or other pods use the room")
        return ConditionMessage(names.BOOKING_EXPIRED, names.TRUE, "CapacityReservationTimeExpired", text)
    return None


def _answer(
    request: ProvisioningRequest, facts: RequestFacts, now: datetime
) -> tuple[ConditionMessage | None, Mapping[str, str]]:
    """What is said of a request that has no room yet, and its details; None where there is nothing to say yet."""
    details, created = request.status.provisioning_class_details, request.metadata.creation_timestamp or now
    if wrong := beyond_bounds(request):
        return _failed("FailedToCreatePods", wrong), details
    if facts.problem is TemplateProblem.INVALID or (
        facts.problem is TemplateProblem.MISSING and now - created >= TEMPLATES_WITHIN
    ):
        return _failed("FailedToCreatePods", facts.explanation), details
    if (expired := _expired(request, now - created)) is not None:
        return expired, details
    found = facts.found
    if facts.problem is not None or found is None:
        return None, details
    if found.limited or found.late:
        text = found.limited or Said("There was no time to look for room for all pods; the next run tries again")
        return ConditionMessage(names.PROVISIONED, names.FALSE, "FailedToCheckCapacity", text), details
    if request.spec.provisioning_class_name == CHECK_CAPACITY:
        return _checked(request, found, facts)
    return _launched(request, found, facts), details


def _expired(request: ProvisioningRequest, age: timedelta) -> ConditionMessage | None:
    checks = request.spec.provisioning_class_name == CHECK_CAPACITY
    own = None if checks else valid_for(request.spec.parameters)
    if own is not None and age >= own:
        text = Said(f"There was no room within {own.total_seconds():.0f} seconds (ValidUntilSeconds)")
        return _failed("Expired", text)
    if age >= EXPIRES_AFTER:
        return _failed("Expired", Said(f"There was no room within {EXPIRES_AFTER.days} days"))
    return None


def _checked(
    request: ProvisioningRequest, found: RoomFound, facts: RequestFacts
) -> tuple[ConditionMessage, Mapping[str, str]]:
    """The answer about room on nodes that exist."""
    counts = counts_of(request)
    full = found.full(counts)
    sets = [one.pod_template_ref.name for one, fits in zip(request.spec.pod_sets, full, strict=bool(full)) if fits]
    others = {key: text for key, text in request.status.provisioning_class_details.items() if key != SCHEDULABLE}
    details = {**others, SCHEDULABLE: msgspec.json.encode(sets).decode()}
    if full and all(full):
        text = Said(f"There is room for {sum(counts)} pods on existing nodes")
        return ConditionMessage(names.PROVISIONED, names.TRUE, "CapacityIsFound", text), details
    mode = mode_of(request)
    if mode and sets:
        text = Said(f"There is room for {len(sets)} of {len(counts)} pod sets on existing nodes: {', '.join(sets)}")
        status = names.TRUE if mode == BOOK_PARTIAL else names.FALSE
        return ConditionMessage(names.PROVISIONED, status, "PartialCapacityIsFound", text), details
    if request.spec.parameters.get(NO_RETRY) == "true":
        return _failed("CapacityIsNotFound", _no_room(found, counts, None)), others
    return _not_found(found, counts, facts), others


def _launched(request: ProvisioningRequest, found: RoomFound, facts: RequestFacts) -> ConditionMessage:
    """The answer about nodes that are made for it."""
    counts = counts_of(request)
    if not all(found.full(counts)) or not found.places:
        return _not_found(found, counts, facts)
    nodes = len(found.nodes)
    missing, what = (
        (found.unready, "ready") if request.spec.provisioning_class_name == ATOMIC else (found.coming, "launched")
    )
    if missing:
        text = Said(f"{nodes - missing} of {nodes} nodes for the request are {what}")
        return ConditionMessage(names.PROVISIONED, names.FALSE, "CapacityIsComing", text)
    text = Said(f"There is room for {sum(counts)} pods on {nodes} nodes, all of which are {what}")
    return ConditionMessage(names.PROVISIONED, names.TRUE, "CapacityIsProvisioned", text)


def _not_found(found: RoomFound, counts: Sequence[int], facts: RequestFacts) -> ConditionMessage:
    text = _no_room(found, counts, facts.retry_seconds)
    return ConditionMessage(names.PROVISIONED, names.FALSE, "CapacityIsNotFound", text)


def _no_room(found: RoomFound, counts: Sequence[int], retry_seconds: float | None) -> str:
    text = f"There is room for {sum(found.places)} of {sum(counts)} pods"
    text = f"{text}: {found.why}" if found.why else text
    return text if retry_seconds is None else f"{text}; the next look is in {max(1, round(retry_seconds / 60))} min"


def _minutes(span: timedelta) -> int:
    return int(span.total_seconds() // 60)
