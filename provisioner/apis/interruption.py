"""What a cloud will do to a node, written on its NodeClaim: the annotation `dovetail.dev/interruption`. Pure.

It is written before anything is done, so that the next leader goes on where one has ended; taking it off calls the
whole thing off.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.values import jsontext

INSTANCE_TERMINATED: Final = "instance_terminated"
"""The reason of an instance whose end has begun already."""


class Interruption(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a node must be left, and when.

    Attributes:
        reason: for metrics and events, in snake_case: "spot_interrupted".
        begins: nothing happens before; None is at once.
        budgeted: until `evicts`, it waits for a disruption budget of its pool.
        replaced: evictions wait until every pod has a place on a node that is ready; otherwise nothing is waited for.
        evicts: from here on evictions do not wait for anything; None never comes.
        ends: whatever is still on the node then is deleted without asking; None never comes.
    """

    reason: str
    begins: datetime | None = None
    budgeted: bool = False
    replaced: bool = False
    evicts: datetime | None = None
    ends: datetime | None = None

    def has_begun(self, now: datetime) -> bool:
        """Whether anything may be done about it yet."""
        return self.begins is None or self.begins <= now

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


_decode = jsontext.decoder(Interruption)


def interruption_of(annotations: Mapping[str, str]) -> Interruption | None:
    """The interruption that a claim's annotations tell; None without one, or with one that is not ours to read."""
    text = annotations.get(names.INTERRUPTION_ANNOTATION, "")
    if not text:
        return None
    try:
        found = _decode(text)
    except msgspec.DecodeError:
        return None
    times = [time for time in (found.begins, found.evicts, found.ends) if time is not None]
    return found if all(time.tzinfo is not None for time in times) else None


def has_begun(annotations: Mapping[str, str], now: datetime) -> bool:
    """Whether a claim's annotations tell an interruption that has begun; one that cannot be read counts as begun."""
    if names.INTERRUPTION_ANNOTATION not in annotations:
        return False
    found = interruption_of(annotations)
    return found is None or found.has_begun(now)


def merged(known: Interruption | None, new: Interruption) -> Interruption:
    """Both at once: of every time the earlier, and no waiting that one of the two does not allow.

    The reason is that of the more pressing one. Told twice, nothing changes: merged(x, x) == x.
    """
    if known is None:
        return new
    pressing = known if _pressure(known) <= _pressure(new) else new
    return Interruption(
        reason=pressing.reason,
        begins=None if known.begins is None or new.begins is None else min(known.begins, new.begins),
        budgeted=known.budgeted and new.budgeted,
        replaced=known.replaced and new.replaced,
        evicts=_earlier(known.evicts, new.evicts),
        ends=_earlier(known.ends, new.ends),
    )


def _pressure(one: Interruption) -> tuple[bool, bool, float]:
    return one.replaced, one.budgeted, one.evicts.timestamp() if one.evicts is not None else float("inf")


def _earlier(left: datetime | None, right: datetime | None) -> datetime | None:
    return min((time for time in (left, right) if time is not None), default=None)
