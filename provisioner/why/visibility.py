"""Removes from an answer what the user may not see: in other namespaces, pods, their owners and their budgets are only counted.

A name of an object in a namespace is always written as "namespace/name", and names of namespaces have no dots. So whatever looks like that is
taken for one, and a sentence that has one in it of a namespace that is not to be seen is replaced as a whole: what it says beside the name
is not to be seen either. What has been missed ends in an error, and not in an answer.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from provisioner.values.printable import listed
from provisioner.why.answers import (
    Drain,
    NodeAnswer,
    PodAnswer,
    PoolAnswer,
    Told,
    WhyAnswer,
    WhyBlocker,
    WhyMethod,
    WhyPlace,
    WhyReason,
    WhyRefused,
)
from provisioner.why.nodes import summary_of

Hidden = Callable[[str], bool]
"""Whether a namespace is not to be seen."""
A = TypeVar("A", WhyReason, WhyMethod, Told, WhyRefused, PoolAnswer)

ELSEWHERE: Final = "an object of another namespace, which you may not read, is the reason"
_MOST_PODS: Final = 3
_NAMED: Final = re.compile(r"(?<![a-z0-9.-])([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/(?=([a-z0-9][-a-z0-9.]*))")


class NotHiddenError(Exception):
    """A name was left in an answer that is not to be seen; the answer must not be given."""


def namespaces_in(text: str) -> frozenset[str]:
    """Whatever may be a namespace of an object that a text names; "0/3", as of nodes, is none."""
    return frozenset(
        match[1] for match in _NAMED.finditer(text) if not (match[1].isdigit() and match[2].rstrip(".").isdigit())
    )


def namespaces_of(answer: WhyAnswer) -> frozenset[str]:
    """Likewise of a whole answer, less what kube-scheduler said: that is written on the pod itself."""
    told = msgspec.to_builtins(replace(answer, scheduler="") if isinstance(answer, PodAnswer) else answer)
    return frozenset().union(*map(namespaces_in, _texts(told)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def pod_for(answer: PodAnswer, hidden: Hidden) -> PodAnswer:
    """The answer about a pod for somebody who may see it, and not the namespaces that are hidden.

    Raises:
        NotHiddenError: something was left.
    """
    place, at_fault = answer.place, _names_hidden(answer.summary, hidden)
    found = replace(
        answer,
        summary=f"Pod {answer.pod} is {answer.state}: {ELSEWHERE}." if at_fault else answer.summary,
        place=_place(place, hidden) if place is not None else None,
        gang="" if _names_hidden(answer.gang, hidden) else answer.gang,  # its label may look like an object
        reasons=tuple(_said(one, hidden) for one in answer.reasons),
        node_pools=tuple(_pool(one, hidden) for one in answer.node_pools),
        missing=_sentences(answer.missing, hidden),
    )
    _check(found, hidden)
    return found


def node_for(answer: NodeAnswer, hidden: Hidden) -> NodeAnswer:
    """The answer about a node for somebody who may see it, and not the namespaces that are hidden.

    Raises:
        NotHiddenError: something was left.
    """
    pods = tuple(one for one in answer.pods if not _names_hidden(one, hidden))
    found = replace(
        answer,
        place=_place(answer.place, hidden),
        pods=pods,
        pods_elsewhere=answer.pods_elsewhere + len(answer.pods) - len(pods),
        reasons=tuple(_said(one, hidden) for one in answer.reasons),
        methods=tuple(_said(one, hidden) for one in answer.methods),
        predicted=_sentences(answer.predicted, hidden),
        drain=_drain(answer.drain, hidden) if answer.drain is not None else None,
        missing=_sentences(answer.missing, hidden),
    )
    found = replace(found, summary=summary_of(found))
    _check(found, hidden)
    return found


def _names_hidden(text: str, hidden: Hidden) -> bool:
    return any(map(hidden, namespaces_in(text)))


def _check(answer: WhyAnswer, hidden: Hidden) -> None:
    if left := sorted(filter(hidden, namespaces_of(answer))):
        raise NotHiddenError(f"an answer would have named objects in {len(left)} namespaces that the user may not see")


def _said(one: A, hidden: Hidden) -> A:
    """Something that is said in a sentence, without the sentence where it names what is not to be seen."""
    return replace(one, message=ELSEWHERE) if _names_hidden(one.message, hidden) else one


def _sentences(those: tuple[str, ...], hidden: Hidden) -> tuple[str, ...]:
    return tuple(one for one in those if not _names_hidden(one, hidden))


def _place(place: WhyPlace, hidden: Hidden) -> WhyPlace:
    return replace(place, waits_for=tuple(_said(one, hidden) for one in place.waits_for))


def _pool(pool: PoolAnswer, hidden: Hidden) -> PoolAnswer:
    return replace(_said(pool, hidden), refused=tuple(_said(one, hidden) for one in pool.refused))


def _drain(drain: Drain, hidden: Hidden) -> Drain:
    waiting = tuple(one for one in drain.waiting if not _names_hidden(one, hidden))
    return replace(
        drain,
        waiting=waiting,
        waiting_elsewhere=drain.waiting_elsewhere + len(drain.waiting) - len(waiting),
        blockers=tuple(_blocker(one, hidden) for one in drain.blockers),
        conditions=tuple(_said(one, hidden) for one in drain.conditions),
        finalizers=tuple(one for one in drain.finalizers if not _names_hidden(one, hidden)),
    )


def _blocker(one: WhyBlocker, hidden: Hidden) -> WhyBlocker:
    """What holds the pods that may be seen; the others are counted, and their owner and budgets left out."""
    pods = tuple(pod for pod in one.pods if not _names_hidden(pod, hidden))
    gone = len(one.pods) - len(pods)
    budgets = tuple(name for name in one.budgets if not _names_hidden(name, hidden))
    if not gone and len(budgets) == len(one.budgets) and not _names_hidden(one.message, hidden):
        return one
    others = f"{gone} pod{'' if gone == 1 else 's'} in other namespaces"
    if not pods:
        text = f"{others} cannot be evicted now ({one.cause})"
        return WhyBlocker(cause=one.cause, message=text, pods_elsewhere=one.pods_elsewhere + gone, until=one.until)
    text = f"{listed(pods, _MOST_PODS)}{f' and {others}' if gone else ''} cannot be evicted now ({one.cause})"
    return replace(one, message=text, pods=pods, pods_elsewhere=one.pods_elsewhere + gone, budgets=budgets)
