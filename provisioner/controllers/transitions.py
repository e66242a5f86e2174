"""What conditions become, told as events and metrics, for every object of Karpenter's API that has them. Source: core spec 8.1, 8.2."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, cast

from provisioner.apis import names
from provisioner.apis.meta import Condition, condition
from provisioner.controllers.references import Named, reference_of
from provisioner.kube.events import Recorder
from provisioner.support.metrics import counter, histogram

_KINDS: Final = frozenset({"claim", "pool", "class"})
_BUCKETS: Final = tuple(0.5 * 2**step for step in range(15))
_TOTAL: Final = counter(
    "operator_status_condition_transitions_total",
    "Changes of a condition's status.",
    ("group", "kind", "type", "status", "reason"),
)
_SECONDS: Final = histogram(
    "operator_status_condition_transition_seconds",
    "How long a condition had the status that it lost.",
    ("group", "kind", "type", "status"),
    buckets=_BUCKETS,
)


class _Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


class Conditioned(Named, Protocol):
    """An object with conditions."""

    @property
    def status(self) -> _Status: ...


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
        text = (
            f"Status condition transitioned, Type: {now.type}, Status: {self.was} -> {now.status}, Reason: {now.reason}"
        )
        return text if now.message in {"", now.reason} else f"{text}, Message: {now.message}"


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

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def heard(self, what: str, before: object, after: object) -> None:
        """One change of an object; those without conditions are none of ours."""
        if what not in _KINDS or before is None:
            return
        old, new = cast(Conditioned, before), cast(Conditioned | None, after)
        if new is None:
            if old.metadata.finalizers:
                self._tell(old, "Finalized", f"Finalized {', '.join(old.metadata.finalizers)}")
            return
        if old.status.conditions == new.status.conditions:
            return
        group = new.api_version.partition("/")[0]
        for one in transitions(old.status.conditions, new.status.conditions):
            _TOTAL.labels(group, new.kind, one.now.type, one.now.status, one.now.reason).inc()
            if one.seconds is not None:
                _SECONDS.labels(group, new.kind, one.now.type, one.was).observe(one.seconds)
            self._tell(new, one.now.type, str(one))

    def _tell(self, about: Conditioned, reason: str, message: str) -> None:
        self._recorder.publish(reference_of(about), "Normal", reason, message, ttl=0)
