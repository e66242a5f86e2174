"""Publishes events and metrics when a condition changes, for every object of Karpenter's API that has conditions. Source: core spec 8.1, 8.2."""

from collections.abc import Iterator
from dataclasses import dataclass

from provisioner.apis import names
from provisioner.apis.meta import Condition, condition
from provisioner.kube.events import Recorder
from provisioner.observability.conditions import note_end, note_transition
from provisioner.runtime.changes import (
    CapacityBufferChanged,
    Change,
    Changed,
    NodeChanged,
    NodeClaimChanged,
    NodeClassChanged,
    NodePoolChanged,
)
from provisioner.runtime.conditioned import Conditioned
from provisioner.runtime.object_reference import reference_of
from provisioner.support.clock import Clock
from provisioner.values.message import EventMessage, Said


def _transition(type: str, before: str, after: str, reason: str, message: str = "") -> str:  # noqa: A002 - the API's word for it
    """The status of a condition changed; `message` is the condition's."""
    if not message:
        return Said(f"Status condition transitioned, Type: {type}, Status: {before} -> {after}, Reason: {reason}")
    return Said(
        f"Status condition transitioned, Type: {type}, Status: {before} -> {after}, Reason: {reason}, Message: "
        f"{message}"
    )


@dataclass(frozen=True, slots=True)
class Transition:
    """One condition's step.

    Attributes:
        was: its status before; Unknown for a condition that is new.
        now: the condition.
        seconds: for how long it had the status before; None where that is not known.
    """

    was: str
    now: Condition
    seconds: float | None = None

    def __str__(self) -> str:
        now = self.now
        more = "" if now.message == now.reason else now.message
        return _transition(now.type, self.was, now.status, now.reason, more)


def transitions(old: tuple[Condition, ...], new: tuple[Condition, ...]) -> Iterator[Transition]:
    """The conditions whose status changed, in their order."""
    for one in new:
        before = condition(old, one.type)
        was = names.UNKNOWN if before is None else before.status
        if was == one.status:
            continue
        since, until = before.last_transition_time if before is not None else None, one.last_transition_time
        yield Transition(was, one, (until - since).total_seconds() if since is not None and until is not None else None)


class Transitions:
    """Hears of every change; what it did not see change, as at the start, it does not tell."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder, self._clock = recorder, clock

    def heard(self, change: Change) -> None:
        """One change of an object; those without conditions are none of ours. Nodes are counted, their kubelets tell of them."""
        match change:
            case NodeClaimChanged() | NodePoolChanged() | NodeClassChanged() | CapacityBufferChanged():
                self._note(change, tell=True)
            case NodeChanged():
                self._note(change, tell=False)
            case _:
                return

    def _note(self, change: Changed[Conditioned], *, tell: bool) -> None:
        old, new = change.old, change.new
        if old is None:
            return
        if new is None:
            note_end(old, self._clock.now())
            if tell and old.metadata.finalizers:
                self._publish(
                    old, EventMessage("Normal", "Finalized", f"Finalized {', '.join(old.metadata.finalizers)}")
                )
            return
        if old.status.conditions == new.status.conditions:
            return
        for one in transitions(old.status.conditions, new.status.conditions):
            note_transition(new, one.was, one.now, one.seconds)
            if tell:
                self._publish(new, EventMessage("Normal", one.now.type, str(one)))

    def _publish(self, about: Conditioned, message: EventMessage) -> None:
        self._recorder.publish(reference_of(about), *message, ttl=0)
