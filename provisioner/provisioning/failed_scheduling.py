"""Events about pods that wait and NodePools that cannot launch anything, made from the reasons that scheduling gives."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from provisioner.apis import names
from provisioner.apis.gangs import told
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import Pod
from provisioner.apis.pool_limits import USD
from provisioner.kube.events import MAX_MESSAGE
from provisioner.scheduling.reasons import (
    BinsRefuse,
    Constraint,
    Incompatible,
    LabelUndefined,
    LimitReached,
    LimitsReached,
    NoInstanceTypes,
    NoPools,
    PoolRefuses,
    PoolsRefuse,
    Reason,
    Untolerated,
    as_told,
)
from provisioner.scheduling.result import Unplaced
from provisioner.scheduling.world import PoolClosed, by_weight, closed, why_closed
from provisioner.state.misses import Stop
from provisioner.values.message import EventMessage, Said
from provisioner.values.printable import listed

_FOREIGN = (Untolerated, Incompatible, LabelUndefined, NoInstanceTypes)
"""What binds in pools that were most likely never meant for the pod."""
_MOST_OF_A_POOL = 300  # characters
_MOST_POOLS = 3
_AMOUNT = re.compile(r"\b[0-9][0-9A-Za-z.]*")


class Complaint(NamedTuple):
    """What a pod is told.

    Attributes:
        gist: what is new to a reader only where this is another one; None for the text itself.
    """

    pod: Pod
    text: str
    gist: object = None


class ToldPods:
    """Which pods were told lately why they wait, so that the same is said once in five minutes.

    However many pods wait, a run tells `AT_ONCE` of them at most: events share the request budget with the writes
    that get nodes going. The next run tells the next ones.
    """

    AT_ONCE = 250
    TTL_SECONDS = 300.0

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, float]] = {}

    def due(self, complaints: Iterable[Complaint], now: float) -> list[Complaint]:
        """Those of `complaints`, one a pod, that are to be said now; pods that are not among them are forgotten."""
        said: dict[str, tuple[object, float]] = {}
        due: list[Complaint] = []
        for one in complaints:
            uid, gist = one.pod.uid, one.text if one.gist is None else one.gist
            before = self._said.get(uid)
            if before is not None and before[0] == gist and now < before[1]:
                said[uid] = before
            elif len(due) < self.AT_ONCE:
                said[uid] = (gist, now + self.TTL_SECONDS)
                due.append(one)
            elif before is not None:
                said[uid] = before
        self._said = said
        return due


def _unschedulable(reasons: str, more: int = 0) -> str:
    """The reasons of a pod that fit into an event, joined, and how many do not."""
    return (
        Said(f"Failed to schedule pod, {reasons}; and {more} more")
        if more
        else Said(f"Failed to schedule pod, {reasons}")
    )


def every(_: NodePool) -> bool:
    """Whether a pool is one of all."""
    return True


def parts_of(
    reasons: Sequence[Reason],
    pools: Sequence[NodePool] = (),
    serves: Callable[[NodePool], bool] = every,
    meant: Callable[[NodePool], bool] = every,
) -> list[Reason | str]:
    """All that there is to say to one pod.

    Args:
        reasons: of a pod without a place.
        pools: all that there are; what is said of those that are not Ready is left out where pools were not the matter.
        serves: whether a pool is ours.
        meant: whether the pod might go to nodes of a pool, were it Ready; others are told last, or not at all.
    """
    parts: list[Reason | str] = [
        no_pool(pools, serves, meant) if isinstance(one, NoPools) else one for one in as_told(reasons, pools)
    ]
    if any(isinstance(one, PoolRefuses | PoolsRefuse) for one in reasons):
        parts += unready(one for one in pools if serves(one) and meant(one))
    return parts


def sentence(parts: Sequence[Reason | str]) -> str:
    """All parts as one event takes them.

    Where they are too long together, those of pools that came nearest to taking the pod stay, whole, and the others are
    counted.
    """
    whole = _unschedulable("; ".join(map(str, parts)))
    if len(whole) <= MAX_MESSAGE:
        return whole
    told = [str(one) for one in sorted(parts, key=_rank)]
    count = len(told)
    while count > 1 and len(_cut(told, count)) > MAX_MESSAGE:
        count -= 1
    return _cut(told, count)


def gist(parts: Iterable[Reason | str]) -> frozenset[object]:
    """What the parts say but for existing nodes, which come and go, and for amounts: what binds, by NodePool.

    Differs: Karpenter says nothing new to a pod for five minutes, whatever binds.
    """
    return frozenset(_kind(one) for one in parts if not isinstance(one, BinsRefuse))


def _kind(one: Reason | str) -> object:
    if isinstance(one, str):
        return one
    if isinstance(one, PoolRefuses | PoolsRefuse):
        if isinstance(one.constraint, Untolerated | Incompatible | LabelUndefined):
            return one
        return one.pools if isinstance(one, PoolsRefuse) else one.pool, _AMOUNT.sub("", str(one.constraint))
    return _AMOUNT.sub("", str(one))


def _rank(one: Reason | str) -> int:
    """What is about the pod or about NodePools that are not Ready first, pools that were most likely not meant for the pod last."""
    if isinstance(one, BinsRefuse):
        return 1
    if isinstance(one, PoolRefuses | PoolsRefuse):
        unknown = isinstance(one.constraint, NoInstanceTypes) and one.constraint.problem
        return 0 if unknown else 2 if isinstance(one.constraint, _FOREIGN) else 1
    return 0


def _cut(parts: list[str], count: int) -> str:
    return _unschedulable("; ".join(parts[:count]), len(parts) - count)


def stopped(stop: Stop) -> str:
    """What to say of a pod of a class that is not planned for a while."""
    said = Said(f'its message was: "{stop.said}"') if stop.said else Said("it gave no message")
    return Said(
        "Failed to schedule pod, kube-scheduler did not bind pods like this one to the nodes planned for them "
        f"{stop.misses} times in a row; no nodes are launched for them for {stop.seconds:.0f} s; {said}"
    )[:MAX_MESSAGE]


def resting(group: str, seconds: float) -> str:
    """What to say of a pod of a group whose nodes were given up."""
    return Said(
        f"Failed to schedule pod, not all nodes for {told(group)} could be launched; no nodes are launched for it for {seconds:.0f} s"
    )


def unready(pools: Iterable[NodePool]) -> list[str]:
    """What to say of those among the pools that would make nodes, were they Ready and their launches not paused; by weight."""
    return [
        Said(f'NodePool "{pool.name}": {cause}')[:_MOST_OF_A_POOL]
        for pool in by_weight(pools)
        if (cause := why_closed(pool))
    ]


def no_pool(
    pools: Sequence[NodePool],
    serves: Callable[[NodePool], bool] = every,
    meant: Callable[[NodePool], bool] = every,
    *,
    causes: bool = True,
) -> str:
    """Why no NodePool may make nodes for pods.

    Args:
        pools: all that there are.
        serves: whether a pool is ours.
        meant: whether the pod might go to nodes of a pool, were it Ready: these are told first.
        causes: whether the causes of those that are not Ready are named.

    Differs: Karpenter says "no dynamic nodepools found" whatever there is.
    """
    if not pools:
        return Said("no NodePool exists")
    by_cause: dict[PoolClosed | None, list[NodePool]] = {}
    for pool in sorted(by_weight(filter(serves, pools)), key=lambda one: not meant(one)):
        by_cause.setdefault(closed(pool), []).append(pool)
    if not by_cause:
        return Said("no NodePool refers to a NodeClass that this provisioner serves")
    if waiting := [*by_cause.get(PoolClosed.NOT_READY, ()), *by_cause.get(PoolClosed.PAUSED, ())]:
        named = (f"{pool.name}: {why_closed(pool, is_said=True)}"[:_MOST_OF_A_POOL] for pool in waiting)
        which = f": {listed(named, _MOST_POOLS, '; ')}" if causes else ""
        none = "may launch nodes" if PoolClosed.PAUSED in by_cause else "is Ready"
        return Said(f"no NodePool {none}{which}")
    if by_cause.keys() == {PoolClosed.STATIC}:
        return Said("all NodePools are static")
    return Said("all NodePools are static or being deleted") if None not in by_cause else str(NoPools())


def pools_out_of_money(unplaced: Iterable[Unplaced]) -> dict[str, EventMessage]:
    """The event of each NodePool of which the money limit keeps pods waiting."""
    texts: dict[str, str] = {}
    pods: Counter[str] = Counter()
    for one in unplaced:
        for reason in one.reasons:
            if isinstance(reason, PoolRefuses | PoolsRefuse) and _of_money(reason.constraint):
                for pool in reason.pools if isinstance(reason, PoolsRefuse) else (reason.pool,):
                    texts.setdefault(pool, str(reason.constraint))
                    pods[pool] += 1
    return {
        pool: EventMessage(
            "Warning",
            "GrowthLimited",
            f"{pods[pool]} {'pod waits' if pods[pool] == 1 else 'pods wait'} because of the annotation "
            f"{names.MAX_USD_PER_HOUR}: {text}; raise it, or remove workloads",
        )
        for pool, text in texts.items()
    }


def _of_money(constraint: Constraint) -> bool:
    if isinstance(constraint, LimitReached):
        return constraint.resource == USD
    return isinstance(constraint, LimitsReached) and USD in constraint.resources


def pools_without_types(reasons: Iterable[Reason]) -> dict[str, EventMessage]:
    """The event of each NodePool among the reasons that has no instance type to offer at all."""
    return {
        pool: EventMessage(
            "Warning",
            "NoCompatibleInstanceTypes",
            str(reason.constraint)
            if reason.constraint.problem
            else f"NodePool requirements filtered out all compatible available instance types: {reason.constraint}",
        )
        for reason in reasons
        if isinstance(reason, PoolRefuses | PoolsRefuse) and isinstance(reason.constraint, NoInstanceTypes)
        for pool in (reason.pools if isinstance(reason, PoolsRefuse) else (reason.pool,))
    }
