"""One call for many things, where one of them may be why it is refused. Pure but for the call itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from provisioner.ec2.access.errors import Failure, FailureKind

V = TypeVar("V")

_PROBES: Final = 3
FOR_ALL: Final = frozenset(
    {FailureKind.THROTTLED, FailureKind.SERVER, FailureKind.CONNECTION, FailureKind.CREDENTIALS, FailureKind.QUOTA}
)
"""Failures that say nothing of what the call is about."""


def each_its_own(
    ids: Sequence[str],
    call: Callable[[Sequence[str]], Mapping[str, V] | Failure],
    *,
    most_calls: int,
    turn: int = 0,
) -> dict[str, V | Failure]:
    """An answer for every id; where the call for many is refused, those that it is refused for are looked for by halves.

    A denial may be by a condition on the tags of one, or for all: a few are asked for alone first, and where each of them is denied, nothing more
    is asked. A failure that says nothing of what the call is about ends it too.

    Args:
        ids: each once, at least one.
        call: one call; its answers, or why it was refused.
        most_calls: at most so many; who is left then has the failure of the last call that he was in.
        turn: another number asks for others alone first.
    """
    said: dict[str, V | Failure] = {}
    left = most_calls

    def ask(some: Sequence[str]) -> Failure | None:
        nonlocal left
        left -= 1
        answer = call(some)
        if not isinstance(answer, Failure):
            said.update(answer)
            return None
        if answer.kind in FOR_ALL:
            left = 0
        if len(some) == 1:
            said[some[0]] = answer
        return answer

    failure = ask(ids)
    groups = [] if failure is None else [(ids, failure)]
    if failure is not None and failure.kind is FailureKind.DENIED and len(ids) > _PROBES:
        alone = [ids[(turn + number * len(ids) // _PROBES) % len(ids)] for number in range(_PROBES)]
        denied = [ask([one]) is not None for one in alone]
        rest = [one for one in ids if one not in alone]
        groups = [(rest, failure)]
        if all(denied):
            left = 0
        elif left > 0:
            refused = ask(rest)
            groups = [] if refused is None else [(rest, refused)]
    while groups:
        some, failure = groups.pop()  # the smallest first: the calls that are left come to an end somewhere
        if len(some) == 1 or left <= 0:
            said.update({one: failure for one in some if one not in said})
            continue
        middle = (len(some) + 1) // 2
        for half in (some[:middle], some[middle:]):
            refused = ask(half) if left > 0 else failure
            if refused is not None:
                groups.append((half, refused))
    return said
