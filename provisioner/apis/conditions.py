"""How the conditions of one object change together; every function returns new conditions, sorted.

An object has a root condition (Ready) that follows from its dependent conditions, and independent ones that do not
touch it. Source: core spec 1.6.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.meta import Condition, condition

AWAITING_MESSAGE: Final = "object is awaiting reconciliation"
DEPENDENCIES_NOT_READY: Final = "DependenciesNotReady"
"""Reason of a condition that only waits for others of its object."""
_MESSAGE_LENGTH: Final = 32_768
"""The API server refuses a longer message, and with it whatever else was to be written."""
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ConditionChangedError(Exception):
    """Another writer changed the same condition in the meantime; decide anew from what it is now."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return f"condition {self.kind} was changed by another writer"


@dataclass(frozen=True, slots=True)
class LeafCause:
    """Why an object is not ready, where the trouble began.

    Attributes:
        reason: one CamelCase word, of the first condition in question.
        message: of all of them.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ConditionSet:
    """The condition types that decide whether one kind of object is ready; others have no say, and can be cleared.

    Attributes:
        root: True exactly when every dependent is True at the object's generation.
        dependents: in the order in which they are initialised.
    """

    root: str
    dependents: tuple[str, ...]

    def initialise(
        self, conditions: tuple[Condition, ...], *, generation: int, created: datetime
    ) -> tuple[Condition, ...]:
        """With every dependent and the root there; missing ones become Unknown since `created`.

        The time of a dependent's last transition is what timeouts of its first step are measured from.
        """
        missing = [kind for kind in self.dependents if condition(conditions, kind) is None]
        added = tuple(
            Condition(
                type=kind,
                status=names.UNKNOWN,
                reason=names.AWAITING_RECONCILIATION,
                message=AWAITING_MESSAGE,
                last_transition_time=created,
                observed_generation=generation,
            )
            for kind in missing
        )
        if not missing and condition(conditions, self.root) is not None:
            return conditions
        return self._with_root((*conditions, *added), generation, created)

    def set(
        self,
        conditions: tuple[Condition, ...],
        kind: str,
        status: str,
        reason: str = "",
        message: str = "",
        *,
        generation: int,
        now: datetime,
    ) -> tuple[Condition, ...]:
        """With condition `kind` set and the root recomputed.

        Args:
            conditions: of the object so far; not mutated.
            kind: the type; one that is not of this set counts as independent.
            status: "True", "False" or "Unknown".
            reason: one CamelCase word; when empty, the type's name.
            message: for people.
            generation: of the object that this was concluded from.
            now: becomes the transition time if the status changes, in whole seconds as the API keeps it.

        Returns:
            The same tuple when nothing changed, so that the caller can leave out the write.
        """
        changed = _replaced(conditions, kind, status, reason or kind, message, generation, now)
        if changed is conditions:
            return conditions
        return self._sorted(changed) if kind == self.root else self._with_root(changed, generation, now)

    def clear(self, conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
        """Without the independent condition `kind`; the same tuple when it is not there.

        Raises:
            ValueError: the root and its dependents are always there and cannot be cleared.
        """
        if kind == self.root or kind in self.dependents:
            raise ValueError(f"condition {kind} cannot be cleared, {self.root} depends on it")
        if condition(conditions, kind) is None:
            return conditions
        return tuple(one for one in conditions if one.type != kind)

    def rebased(
        self,
        base: tuple[Condition, ...],
        wanted: tuple[Condition, ...],
        current: tuple[Condition, ...],
        *,
        generation: int,
    ) -> tuple[Condition, ...]:
        """What was changed from `base` to `wanted`, changed in `current`; everything else there stays as it is.

        Args:
            base: the conditions that somebody decided from.
            wanted: what they should become; the root is worked out anew, whatever it says of it.
            current: the object's conditions now, which others may have changed meanwhile.
            generation: of the object.

        Returns:
            The same tuple as `current` when it says all of that already.

        Raises:
            ConditionChangedError: a condition that was changed is no longer as the decision found it.
        """
        changes: dict[str, Condition | None] = {}
        for kind in {one.type for one in (*base, *wanted)} - {self.root}:
            before, after, now = condition(base, kind), condition(wanted, kind), condition(current, kind)
            if after in (before, now):
                continue
            if now != before:
                raise ConditionChangedError(kind)
            changes[kind] = after
        if not changes:
            return current
        new = [one for one in changes.values() if one is not None]
        kept = tuple(one for one in current if one.type not in changes)
        at = max((one.last_transition_time or _NEVER for one in new), default=_NEVER)
        return self._with_root((*kept, *new), generation, at)

    def leaf(self, conditions: tuple[Condition, ...], generation: int) -> LeafCause | None:
        """Why an object is not ready, in the words of the conditions where the trouble is: those that are False, else those that are not known.

        Conditions that only wait for others of the object say nothing, nor do those that nobody has looked at yet. None where no other is left.
        """
        unhealthy = {one.type: one for one in self._unhealthy(conditions, generation)}
        found = [unhealthy[kind] for kind in self.dependents if kind in unhealthy]
        quiet = (names.AWAITING_RECONCILIATION, DEPENDENCIES_NOT_READY)
        telling = [one for one in found if one.status != names.TRUE and one.reason not in quiet and _told(one)]
        leaves = [one for one in telling if one.status == names.FALSE] or telling
        return LeafCause(leaves[0].reason, "; ".join(dict.fromkeys(map(_told, leaves)))) if leaves else None

    def _with_root(self, conditions: tuple[Condition, ...], generation: int, now: datetime) -> tuple[Condition, ...]:
        unhealthy = self._unhealthy(conditions, generation)
        message = ", ".join(f"{one.type}={one.status}" for one in unhealthy)
        leaf = self.leaf(conditions, generation)
        if leaf is not None:
            message = f"{message}: {leaf.message}"
        if not unhealthy:
            status, reason = names.TRUE, self.root
        elif any(one.status == names.FALSE and one.observed_generation == generation for one in unhealthy):
            status, reason = names.FALSE, names.UNHEALTHY_DEPENDENTS
        else:
            status, reason = names.UNKNOWN, names.RECONCILING_DEPENDENTS
        return self._sorted(_replaced(conditions, self.root, status, reason, message, generation, now))

    def _unhealthy(self, conditions: tuple[Condition, ...], generation: int) -> list[Condition]:
        """Dependents that are not True at `generation`, newest first; a missing one counts as Unknown, oldest."""
        found = [one for one in self._sorted(conditions) if one.type in self.dependents]
        present = {one.type for one in found}
        found += [
            Condition(type=kind, status=names.UNKNOWN, last_transition_time=None)
            for kind in self.dependents
            if kind not in present
        ]
        bad = [one for one in found if one.status != names.TRUE or one.observed_generation != generation]
        return sorted(bad, key=_time, reverse=True)

    def _sorted(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """By transition time, the root last; equal times keep their order."""
        return tuple(sorted(conditions, key=lambda one: (one.type == self.root, _time(one))))


def _told(one: Condition) -> str:
    return one.message or (one.reason if one.reason != one.type else "")


def _time(one: Condition) -> datetime:
    return one.last_transition_time or _NEVER


def _replaced(
    conditions: tuple[Condition, ...],
    kind: str,
    status: str,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    old = condition(conditions, kind)
    same = old is not None and old.status == status and old.last_transition_time is not None
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:_MESSAGE_LENGTH],
        last_transition_time=old.last_transition_time if old is not None and same else now.replace(microsecond=0),
        observed_generation=generation,
    )
    if new == old:
        return conditions
    return (*(one for one in conditions if one.type != kind), new)


CLAIM_CONDITIONS: Final = ConditionSet(
    root=names.READY,
    dependents=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED),
)
POOL_CONDITIONS: Final = ConditionSet(
    root=names.READY,
    dependents=(names.VALIDATION_SUCCEEDED, names.NODECLASS_READY),
)
OVERLAY_CONDITIONS: Final = ConditionSet(root=names.READY, dependents=(names.VALIDATION_SUCCEEDED,))


def set_alone(
    conditions: tuple[Condition, ...],
    kind: str,
    status: str,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """With condition `kind` set, of an object whose conditions do not depend on each other, by type; the same tuple when nothing changed."""
    changed = _replaced(conditions, kind, status, reason, message, generation, now)
    return conditions if changed is conditions else tuple(sorted(changed, key=lambda one: one.type))
