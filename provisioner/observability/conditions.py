"""Metrics of the conditions and the end of single objects, typed by kind and not. Source: core spec 8.1 ("operatorpkg")."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.ec2 import NODECLASS_LABEL
from provisioner.apis.meta import Condition
from provisioner.runtime.conditioned import Conditioned
from provisioner.support.exposition import header, labels_text, line
from provisioner.support.metrics import counter, histogram

KINDS: Final[Mapping[str, str]] = {
    "NodeClaim": "nodeclaim",
    "NodePool": "nodepool",
    "Node": "node",
    "CapacityBuffer": "capacitybuffer",
    "EC2NodeClass": "ec2nodeclass",
}
"""Kinds with families of their own, and how these are called."""

_OBJECT_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "NodeClaim": (NODECLASS_LABEL, names.NODEPOOL_LABEL),
    "Node": (NODECLASS_LABEL, names.NODEPOOL_LABEL, names.INITIALIZED_LABEL),
}
"""Labels of objects that the families of their kind have too. Differs: on kwok, Karpenter has the key of a KWOKNodeClass instead of EC2's."""

BUCKETS: Final = tuple(0.5 * 2**step for step in range(15))


def _more(kind: str) -> tuple[str, ...]:
    """Those labels as Prometheus writes them."""
    return tuple(re.sub(r"[./-]", "_", key) for key in _OBJECT_LABELS.get(kind, ()))


_NODE: Final = "Node"
_MOST_OF_NODES: Final = 2000
"""Combinations of type, reason and labels of conditions of Nodes that are counted apart: kubelets write them as they like, and a series stays for ever."""
_OTHER: Final = "other"
_STATUSES: Final = frozenset({names.TRUE, names.FALSE, names.UNKNOWN})
_of_nodes: Final = set[tuple[str, ...]]()


def _values(about: Conditioned) -> list[str]:
    return [about.metadata.labels.get(key, "") for key in _OBJECT_LABELS.get(about.kind, ())]


_TRANSITIONS: Final = {
    kind: counter(
        f"operator_{word}_status_condition_transitions_total",
        f"Transitions of the status of a condition of a {kind}.",
        ("type", "status", "reason", *_more(kind)),
    )
    for kind, word in KINDS.items()
}
_TRANSITION_SECONDS: Final = {
    kind: histogram(
        f"operator_{word}_status_condition_transition_seconds",
        f"Time that a condition of a {kind} had its previous status before a transition to to_status.",
        ("type", "status", "to_status", *_more(kind)),
        buckets=BUCKETS,
    )
    for kind, word in KINDS.items()
}
_ALL_TRANSITIONS: Final = counter(
    "operator_status_condition_transitions_total",
    "Transitions of the status of a condition.",
    ("group", "kind", "type", "status", "reason"),
)
_ALL_TRANSITION_SECONDS: Final = histogram(
    "operator_status_condition_transition_seconds",
    "Time that a condition had its previous status before a transition to to_status.",
    ("group", "kind", "type", "status", "to_status"),
    buckets=BUCKETS,
)
_TERMINATION_SECONDS: Final = {
    kind: histogram(
        f"operator_{word}_termination_duration_seconds",
        f"Time from the deletion of a {kind} until it no longer exists.",
        _more(kind),
        buckets=BUCKETS,
    )
    for kind, word in KINDS.items()
}
_ALL_TERMINATION_SECONDS: Final = histogram(
    "operator_termination_duration_seconds",
    "Time from the deletion of an object until it no longer exists.",
    ("group", "kind"),
    buckets=BUCKETS,
)


def note_transition(about: Conditioned, was: str, now: Condition, seconds: float | None) -> None:
    """A condition of an object left the status `was`, which it had for so many seconds (None: not known)."""
    group = _group(about)
    was, status = (one if one in _STATUSES else names.UNKNOWN for one in (was, now.status))
    kind, reason, more = now.type, now.reason, _values(about)
    if about.kind == _NODE and not _is_counted_apart((kind, reason, *more)):
        kind, reason, more = _OTHER, _OTHER, [""] * len(more)
    _ALL_TRANSITIONS.labels(group, about.kind, kind, status, reason).inc()
    if seconds is not None:
        _ALL_TRANSITION_SECONDS.labels(group, about.kind, kind, was, status).observe(seconds)
    if about.kind in KINDS:
        _TRANSITIONS[about.kind].labels(kind, status, reason, *more).inc()
        if seconds is not None:
            _TRANSITION_SECONDS[about.kind].labels(kind, was, status, *more).observe(seconds)


def _is_counted_apart(one: tuple[str, ...]) -> bool:
    if one not in _of_nodes and len(_of_nodes) < _MOST_OF_NODES:
        _of_nodes.add(one)
    return one in _of_nodes


def note_end(about: Conditioned, now: datetime) -> None:
    """An object is gone that was deleted at its deletionTimestamp; without one nothing is known."""
    asked = about.metadata.deletion_timestamp
    if asked is None:
        return
    seconds = max(0.0, (now - asked).total_seconds())
    _ALL_TERMINATION_SECONDS.labels(_group(about), about.kind).observe(seconds)
    if about.kind in KINDS:
        ended, more = _TERMINATION_SECONDS[about.kind], _values(about)
        (ended.labels(*more) if more else ended).observe(seconds)


def condition_lines(objects: Iterable[Conditioned], now: datetime) -> Iterator[str]:
    """The gauges of every condition of these objects, and of the ends that are under way, by kind and for all together."""
    by_kind: dict[str, list[Conditioned]] = {kind: [] for kind in KINDS}
    rest: list[Conditioned] = []
    for one in objects:
        by_kind.get(one.kind, rest).append(one)
    for kind, found in by_kind.items():
        yield from _families(f"operator_{KINDS[kind]}", f"of a {kind}", found, now, typed=True)
    yield from _families("operator", "of an object", [*rest, *(one for some in by_kind.values() for one in some)], now)


def _families(
    prefix: str, whose: str, objects: list[Conditioned], now: datetime, *, typed: bool = False
) -> Iterator[str]:
    count, current, ending = (
        f"{prefix}_status_condition_count",
        f"{prefix}_status_condition_current_status_seconds",
        f"{prefix}_termination_current_time_seconds",
    )
    yield header(count, "gauge", f"Current status of a condition {whose}; the value is always 1.")
    for one in objects:
        for found in one.status.conditions:
            yield line(count, _labels(one, found, typed=typed), 1.0)
    yield header(current, "gauge", f"Time that a condition {whose} has had its current status.")
    for one in objects:
        for found in one.status.conditions:
            if found.last_transition_time is not None:
                seconds = max(0.0, (now - found.last_transition_time).total_seconds())
                yield line(current, _labels(one, found, typed=typed), seconds)
    yield header(ending, "gauge", f"Time since the deletion {whose} that is still terminating.")
    for one in objects:
        asked = one.metadata.deletion_timestamp
        if asked is not None:
            yield line(ending, _labels(one, None, typed=typed), max(0.0, (now - asked).total_seconds()))


def _labels(one: Conditioned, found: Condition | None, *, typed: bool) -> str:
    labels = {} if typed else {"group": _group(one), "kind": one.kind}
    labels |= {"namespace": one.metadata.namespace, "name": one.metadata.name}
    if typed:
        labels |= dict(zip(_more(one.kind), _values(one), strict=True))
    if found is not None:
        labels |= {"type": found.type, "status": found.status, "reason": found.reason}
    return labels_text(labels)


def _group(one: Conditioned) -> str:
    group, slash, _ = one.api_version.partition("/")
    return group if slash else ""
