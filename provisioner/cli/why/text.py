"""Answers as sentences. What tenants wrote is in them, so every line is one that a terminal shows as it is."""

from collections.abc import Iterator
from typing import Final

from provisioner.apis import names
from provisioner.values.printable import counted, one_line
from provisioner.why.answers import NodeAnswer, PodAnswer, PoolAnswer, Told, WhyMethod, WhyPlace, time_text

_MOST: Final = 20
"""Lines of one list; -o json has all."""


def pod_text(answer: PodAnswer) -> str:
    """The answer about a pod."""
    lines = [answer.gang, answer.summary] if answer.gang else [answer.summary]
    if answer.scheduler:
        lines.append(f"kube-scheduler said: {answer.scheduler}")
    lines += [f"  {one.message}{_until(one.until)}" for one in answer.reasons if not one.node_pools]
    by_pool: dict[str, str] = {name: one.message for one in answer.reasons for name in one.node_pools}
    lines += _most([line for pool in answer.node_pools for line in _pool(pool, by_pool.get(pool.name, ""))])
    return "\n".join(map(one_line, [*lines, *_missing(answer)]))


def _pool(pool: PoolAnswer, reason: str) -> Iterator[str]:
    why = reason or pool.message
    yield f"NodePool {pool.name}: {why or 'could launch a node for it'}"
    total = len(pool.fitting) + sum(len(one.instance_types) for one in pool.refused)
    if not total:
        return
    yield f"  {len(pool.fitting)} of {counted(total, 'instance type')} can run the pod on its own"
    for one in sorted(pool.refused, key=lambda one: -len(one.instance_types)):
        yield f"  {counted(len(one.instance_types), 'type')}: {one.message}"


_STANDINGS: Final = {
    "Blocked": "blocked: ",
    "NotDue": "not due: ",
    "NotReached": "not reached: ",
    "UnderWay": "in progress: ",
}


def node_text(answer: NodeAnswer) -> str:
    """The answer about a node."""
    lines = [answer.summary, f"  {_about(answer)}"]
    lines += [
        f"  {one.message}{_until(one.until)}"
        for one in answer.reasons
        if one.until or one.message not in answer.summary
    ]
    lines += [f"  {_method(one, '; '.join(lines))}" for one in answer.methods]
    lines += [f"  {one}" for one in answer.predicted]
    if answer.drain is not None:
        drain = answer.drain
        if drain.since is not None:
            lines.append(f"  Terminating since {time_text(drain.since)}")
        lines += [f"  {one.message}" for one in drain.blockers if one.message not in answer.summary]
        if drain.volumes:
            lines.append(f"  Attached volumes: {', '.join(drain.volumes[:_MOST])}")
        lines += [f"  {_condition(one, blocked=bool(drain.blockers))}" for one in drain.conditions]
        if drain.finalizers:
            lines.append(f"  Finalizers of other controllers: {', '.join(drain.finalizers)}")
    return "\n".join(map(one_line, [*_most(lines), *_missing(answer)]))


def _about(answer: NodeAnswer) -> str:
    claim = f"NodeClaim {answer.node_claim}" if answer.node_claim else ""
    pool = f"NodePool {answer.node_pool}" if answer.node_pool else ""
    count = len(answer.pods) + answer.pods_elsewhere
    pods = f"{count} pod{'' if count == 1 else 's'} that would need another node"
    if answer.pods_elsewhere:
        pods += f" ({answer.pods_elsewhere} in other namespaces)"
    return ", ".join(part for part in (claim, pool, _place(answer.place), pods) if part)


def _place(place: WhyPlace) -> str:
    price = f"${place.usd_per_hour:.4f} per hour" if place.usd_per_hour is not None else ""
    return ", ".join(part for part in (place.instance_type, place.zone, place.capacity_type, price) if part)


def _condition(one: Told, *, blocked: bool) -> str:
    """A condition of the drain; what blocks it is told already, so it is not repeated."""
    since = f" since {time_text(one.since)}" if one.since is not None else ""
    message = "" if blocked and one.type == names.DRAINED else one.message
    return f"{one.type}={one.status}{since}: {message or one.reason}"


def _method(one: WhyMethod, told: str) -> str:
    """What a method makes of the node; what blocks it is said once, in `told` or here."""
    if one.disrupts:
        return f"{one.reason}: would be disrupted: {one.message}"
    standing = _STANDINGS.get(one.standing, "")
    if one.standing == "Blocked" and one.message in told:
        return f"{one.reason}: blocked for the reason above{_until(one.until)}"
    return f"{one.reason}: {standing}{one.message}{_until(one.until)}"


def _until(at: object) -> str:
    return f" (until {at:%Y-%m-%dT%H:%M:%SZ})" if at is not None else ""


def _most(lines: list[str]) -> list[str]:
    more = len(lines) - 2 * _MOST
    return lines if more <= 0 else [*lines[: 2 * _MOST], f"and {more} more lines (-o json shows all)"]


def _missing(answer: PodAnswer | NodeAnswer) -> list[str]:
    source = [f"Answered by {answer.source}."] if answer.source.startswith("the leader") else []
    if answer.source and not source:
        source = [f"Note: this was read with {answer.source}."]
    return [*(f"Note: {one}." for one in answer.missing), *source]
