"""Whether a pod's Deployment starts its successor before the pod is evicted, and what comes next of that.

A Deployment of one replica that asks for it is restarted, as `kubectl rollout restart` does: its rolling update starts the new pod first, and
deletes the old one when the new one is available. The old pod's node takes no pods by then, so the new one runs elsewhere.
Differs: Karpenter evicts, and the Deployment is down until its pod runs again.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.core import Deployment
from provisioner.apis.pods import Pod

LONGEST: Final = timedelta(minutes=5)
"""So long the new pod may take to become available; then the old one is evicted."""
_LONGEST_GRACE_SECONDS: Final = 10**8
"""A tenant may ask for more than a date can hold."""
_RFC3339: Final = "%Y-%m-%dT%H:%M:%SZ"


class SurgeStep(enum.Enum):
    """What to do with a pod that is to be evicted."""

    EVICT = "evict"
    """Evict it."""
    RESTART = "restart"
    """Restart its Deployment."""
    WAIT = "wait"
    """Wait for its Deployment to delete it."""


class SurgeRefusal(enum.StrEnum):
    """Why a Deployment that asks for it is not restarted."""

    REPLICAS = "replicas"
    RECREATE = "recreate"
    MAX_SURGE = "max-surge"
    PAUSED = "paused"
    OWNER = "owner"
    FORBIDDEN = "forbidden"
    INVALID = "invalid"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class SurgeDecision:
    """A step, and why the pod is evicted though its Deployment asks for more; None where it does not ask."""

    step: SurgeStep
    refusal: SurgeRefusal | None = None


EVICT: Final = SurgeDecision(SurgeStep.EVICT)
WAIT: Final = SurgeDecision(SurgeStep.WAIT)


def asks(annotations: Mapping[str, str]) -> bool:
    """Whether an object asks for it."""
    return annotations.get(names.SURGE) == "true"


def decide(pod: Pod, deployment: Deployment, now: datetime, until: datetime, *, restarted: bool) -> SurgeDecision:
    """What comes next.

    Args:
        pod: runs on a node that is drained.
        deployment: its own.
        now: UTC.
        until: when it is evicted whatever becomes of its successor.
        restarted: this process has restarted the Deployment for the pod, whatever is written.
    """
    spec, meta = deployment.spec, deployment.metadata
    if not asks(meta.annotations) or meta.deletion_timestamp is not None or spec.replicas == 0:
        return EVICT
    if not pod.ready:
        return EVICT  # nobody is served by it
    told = surged_for(meta.annotations)
    if told is not None and told[0] == pod.uid:
        restarted, until = True, min(until - LONGEST, told[1]) + LONGEST
    if (spec.replicas or 1) != 1:
        return SurgeDecision(SurgeStep.EVICT, SurgeRefusal.REPLICAS)
    if spec.strategy.type == "Recreate":
        return SurgeDecision(SurgeStep.EVICT, SurgeRefusal.RECREATE)
    if surge_of(deployment) < 1:
        return SurgeDecision(SurgeStep.EVICT, SurgeRefusal.MAX_SURGE)
    if spec.paused:
        return SurgeDecision(SurgeStep.EVICT, SurgeRefusal.PAUSED)
    if now >= until:
        return SurgeDecision(SurgeStep.EVICT, SurgeRefusal.LATE)
    return WAIT if restarted or is_rolling(deployment) else SurgeDecision(SurgeStep.RESTART)


def surge_of(deployment: Deployment) -> int:
    """How many pods more than one a rolling update may start; a percentage is rounded up, as Kubernetes does."""
    update = deployment.spec.strategy.rolling_update
    value = update.max_surge if update is not None and update.max_surge is not None else "25%"
    if isinstance(value, int):
        return value
    try:
        return math.ceil(int(value.removesuffix("%")) / 100)
    except ValueError:
        return 0


def is_rolling(deployment: Deployment) -> bool:
    """Whether an update is under way: it starts the new pod by itself."""
    status = deployment.status
    return (
        status.observed_generation < deployment.metadata.generation
        or status.updated_replicas < 1
        or status.replicas > status.updated_replicas
    )


def restart(pod: Pod, deployment: Deployment, now: datetime) -> dict[str, Any]:
    """The merge patch that restarts a Deployment, and says for whom in the same write; refused where the Deployment has changed."""
    stamp = now.strftime(_RFC3339)
    return {
        "metadata": {
            "uid": deployment.metadata.uid,
            "resourceVersion": deployment.metadata.resource_version,
            "annotations": {names.SURGED_FOR: f"{pod.uid} {stamp}"},
        },
        "spec": {"template": {"metadata": {"annotations": {names.RESTARTED_AT: stamp}}}},
    }


def surged_for(annotations: Mapping[str, str]) -> tuple[str, datetime] | None:
    """UID of the pod for which a Deployment was restarted last, and when; None where it was not, or nobody can read it."""
    uid, _, stamp = annotations.get(names.SURGED_FOR, "").partition(" ")
    try:
        return uid, datetime.strptime(stamp, _RFC3339).replace(tzinfo=UTC)
    except ValueError:
        return None


def evicted_by(
    pod: Pod, now: datetime, deadline: datetime | None, evicts: datetime | None, ends: datetime | None
) -> datetime:
    """When a pod is evicted whatever becomes of its successor.

    Args:
        pod: whose grace period has to be over by the end.
        now: when it is asked for first.
        deadline: of the NodeClaim's terminationGracePeriod; None for none.
        evicts: from here on evictions wait for nothing, since the node is interrupted; None where nothing says so.
        ends: when the interrupted node ends; None where nobody knows.
    """
    grace = timedelta(seconds=min(pod.grace_seconds or 0, _LONGEST_GRACE_SECONDS))
    limits = [now + LONGEST, *(one - grace for one in (deadline, ends) if one is not None)]
    return min([*limits, evicts] if evicts is not None else limits)
