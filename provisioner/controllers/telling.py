"""What is said to pods that wait, and to NodePools that are of no use: reasons become events. Pure."""

from collections.abc import Iterable, Sequence

from provisioner.apis import names
from provisioner.apis.conditions import POOL_CONDITIONS
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod
from provisioner.kube.events import MAX_MESSAGE
from provisioner.scheduling.reasons import (
    Incompatible,
    LabelUndefined,
    NoInstanceTypes,
    NoPools,
    PoolRefuses,
    Reason,
    Untolerated,
)

_START = "Failed to schedule pod, "
_FOREIGN = (Untolerated, Incompatible, LabelUndefined, NoInstanceTypes)
"""What binds in pools that were most likely never meant for the pod."""
_MOST_OF_A_POOL = 300  # characters


class Told:
    """Which pods were told lately why they wait, so that each sentence is said once in five minutes.

    However many pods wait, a run tells `AT_ONCE` of them at most: events share the request budget with the writes
    that get machines going. The next run tells the next ones.
    """

    AT_ONCE = 250
    TTL_SECONDS = 300.0

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def due(self, complaints: Iterable[tuple[Pod, str]], now: float) -> list[tuple[Pod, str]]:
        """Those of `complaints`, one a pod, that are to be said now; pods that are not among them are forgotten."""
        said: dict[str, tuple[str, float]] = {}
        due: list[tuple[Pod, str]] = []
        for pod, text in complaints:
            before = self._said.get(pod.uid)
            if before is not None and before[0] == text and now < before[1]:
                said[pod.uid] = before
            elif len(due) < self.AT_ONCE:
                said[pod.uid] = (text, now + self.TTL_SECONDS)
                due.append((pod, text))
            elif before is not None:
                said[pod.uid] = before
        self._said = said
        return due


def not_ready(pools: Iterable[NodePool]) -> tuple[str, ...]:
    """Of pools that make no machines now, why each does not, in order of name; those that are being deleted are left out."""
    told = []
    for pool in sorted(pools, key=lambda one: one.name):
        if pool.metadata.deletion_timestamp is not None or pool.spec.replicas is not None:
            continue
        found = [condition(pool.status.conditions, kind) for kind in POOL_CONDITIONS.dependents]
        why = next((one for one in found if one is not None and one.status != names.TRUE), None)
        text = "" if why is None else f": {why.reason}, {why.message}"
        told.append(f'NodePool "{pool.name}" is not Ready{text}'[:_MOST_OF_A_POOL])
    return tuple(told)


def sentence(reasons: Sequence[Reason], not_asked: Sequence[str] = ()) -> str:
    """All reasons of one pod as one event takes them.

    Where they are too long together, those of pools that came nearest to taking the pod stay, whole, and the others are
    counted.

    Args:
        reasons: of a pod without a place.
        not_asked: what `not_ready` tells of pools that could not be asked; left out where no pool was.
    """
    if not any(isinstance(one, PoolRefuses | NoPools) for one in reasons):
        not_asked = ()
    parts = [*(str(reason) for reason in reasons), *not_asked]
    whole = _START + "; ".join(parts)
    if len(whole) <= MAX_MESSAGE:
        return whole
    foreign = [isinstance(one, PoolRefuses) and isinstance(one.constraint, _FOREIGN) for one in reasons]
    foreign += [False] * len(not_asked)
    parts = [part for _, part in sorted(zip(foreign, parts, strict=True), key=lambda one: one[0])]
    count = len(parts)
    while count > 1 and len(_cut(parts, count)) > MAX_MESSAGE:
        count -= 1
    return _cut(parts, count)


def _cut(parts: list[str], count: int) -> str:
    return f"{_START}{'; '.join(parts[:count])}; and {len(parts) - count} more"


def pools_without_types(reasons: Iterable[Reason]) -> dict[str, str]:
    """What to tell each NodePool among the reasons that has no instance type to offer at all."""
    return {
        reason.pool: f"NodePool requirements filtered out all compatible available instance types: {reason.constraint}"
        for reason in reasons
        if isinstance(reason, PoolRefuses) and isinstance(reason.constraint, NoInstanceTypes)
    }
