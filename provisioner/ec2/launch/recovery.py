"""What to do about a launch whose answer is not known: what was lost, what EC2 shows of it, and whose instance is which. Pure.

EC2 repeats the answer to a client token as a rule, but it promises no more than that nothing is done twice, and what it describes lags behind. So only
these end a search: as many instances as were ordered, a repeated answer that says what became of all of them, or that EC2 has shown nothing new for
minutes. "Nothing to be seen yet" is never "nothing was launched".

Source: Amazon EC2 Developer Guide, ec2-api-idempotency and eventual-consistency.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis import ec2
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.launch.fleet import FleetAnswer
from provisioner.ec2.launch.launch_marks import Mark, dealt

PATIENCE_SECONDS: Final = 180.0
"""So long EC2 must have described the same instances of a launch before they count as all of them."""

UNSENT_SECONDS: Final = 10.0
"""The same for a launch that was not committed, so that no call can have been sent for it."""

REPEAT_SECONDS: Final = 60.0
"""For so long after the first look the same call is sent again: later its token may have expired, and the instances are to be seen."""

TOKEN_SECONDS: Final = 600.0
"""EC2 keeps a client token for longer than this; a launch whose instances are older is not repeated."""

COMMIT: Final = 0
"""The ordinal whose mark is written last: a launch without it was never sent, or that claim is gone."""


class RecoveryStep(enum.Enum):
    """What comes next for a launch whose answer is not known."""

    DEAL = "deal"
    """What EC2 describes is all there is: claims without an instance of it are launched anew."""
    REPEAT = "repeat"
    """Send the same call again; it answers the same, or launches what was never launched."""
    WAIT = "wait"
    """Look again later."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a launch.

    Attributes:
        ordinals: of the claims that are still there.
        ordered: how many instances were ordered; 0 where no call of this process tells.
        seen: how many instances EC2 describes, those that are gone included.
        quiet_seconds: for how long it has described just these.
        searched_seconds: since the first look.
        youngest_seconds: the age of the youngest that is described; 0 where there is none.
        told: whether the repeated call was answered without saying what was launched.
    """

    ordinals: frozenset[int]
    ordered: int = 0
    seen: int = 0
    quiet_seconds: float = 0.0
    searched_seconds: float = 0.0
    youngest_seconds: float = 0.0
    told: bool = False

    @property
    def total(self) -> int:
        """How many instances there can be at most, as far as the marks tell."""
        return self.ordered or 1 + max(self.ordinals, default=-1)


def next_step(known: Evidence, patience: float = PATIENCE_SECONDS) -> RecoveryStep:
    """What to do now.

    Args:
        known: of one launch.
        patience: for launches that may have been sent; those that were not wait for `UNSENT_SECONDS` at most.
    """
    committed = bool(known.ordered) or COMMIT in known.ordinals
    if known.seen >= known.total:
        return RecoveryStep.DEAL
    if known.quiet_seconds >= (patience if committed or known.seen else min(patience, UNSENT_SECONDS)):
        return RecoveryStep.DEAL
    whole = bool(known.ordered) or len(known.ordinals) == known.total
    fresh = known.searched_seconds < REPEAT_SECONDS and known.youngest_seconds < TOKEN_SECONDS
    return RecoveryStep.REPEAT if committed and whole and fresh and not known.told else RecoveryStep.WAIT


def tells(found: FleetAnswer, wanted: int, *, repeated: bool) -> bool:
    """Whether an answer says what became of every instance that was ordered.

    The first answer to a call does. One that may be a repetition does where all instances are in it, or where it says why some are not.
    """
    return not repeated or len(found.launched) >= wanted or bool(found.refused)


def held_by(claims: Iterable[tuple[str, str]], instances: Iterable[Ec2Instance] = ()) -> dict[str, str]:
    """Which claim has which instance: names by instance id.

    Args:
        claims: names of claims with the id of the instance that each was given or has written down; "" is none. Of two the first counts.
        instances: those that carry a claim's name in a tag are that claim's, unless another has written them down.
    """
    held: dict[str, str] = {}
    for name, instance in claims:
        if instance:
            held.setdefault(instance, name)
    for one in instances:
        owner = one.tags.get(ec2.NODECLAIM_TAG, "")
        if owner:
            held.setdefault(one.id, owner)
    return held


def shares(marks: Mapping[Mark, str], instances: Collection[str], held: Mapping[str, str]) -> dict[Mark, str]:
    """Whose instance of a launch is which; an instance that any claim has is given to nobody else.

    Args:
        marks: of the claims of one attempt, with their names.
        instances: ids of all that the attempt launched.
        held: as `held_by` tells.

    Returns:
        The instance of each claim that has one: its own where it holds one, else that of its ordinal where nobody holds it.
    """
    own = {name: instance for instance, name in sorted(held.items(), reverse=True) if instance in instances}
    by_ordinal = dealt(marks, list(instances))
    found: dict[Mark, str] = {}
    for mark, name in marks.items():
        instance = own.get(name) or by_ordinal.get(mark, "")
        if instance and held.get(instance, name) == name:
            found[mark] = instance
    return found
