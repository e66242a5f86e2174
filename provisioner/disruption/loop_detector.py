"""Records launches and removals for `disruption.loops`, and publishes an event for each workload whose nodes are launched and removed again and again."""

import threading
from collections.abc import Iterable, Mapping

from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod
from provisioner.disruption.loops import LoopHolds, Loops, loop_text
from provisioner.disruption.proposal import DISRUPTION_LOOP
from provisioner.kube.events import Recorder
from provisioner.runtime import metrics
from provisioner.runtime.object_reference import pod_reference, reference_of
from provisioner.support import logs
from provisioner.support.clock import Clock

#: Pods of a workload in a loop that are told; its other pods wait for the same.
PODS_TOLD = 10
_log = logs.get_logger(__name__)


class LoopDetector:
    """Thread-safe; makes no call."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder, self._clock = recorder, clock
        self._lock = threading.Lock()
        self._loops = Loops()

    def saw(self, claim: NodeClaim) -> None:
        with self._lock:
            self._loops.saw(claim, self._clock.now())

    def decided(self, claims: Iterable[str]) -> None:
        """The voluntary disruption of these NodeClaims begins."""
        with self._lock:
            self._loops.decided(claims, self._clock.now())

    def removed(self, claim: NodeClaim, pods: Iterable[Pod]) -> None:
        """A NodeClaim with these pods is deleted by voluntary disruption."""
        with self._lock:
            loops = self._loops.removed(claim.name, self._clock.now())
        for uid in loops:
            mine = [pod for pod in pods if pod.owner is not None and pod.owner.uid == uid]
            owner = mine[0].owner if mine else None
            shown = (
                f"{owner.kind} {mine[0].namespace}/{owner.name}" if owner is not None else f"the owner with UID {uid}"
            )
            _log.warning(
                "Nodes for a workload were launched and removed three times within an hour; not disrupting its nodes",
                owner=shown,
                nodepool=claim.pool,
                nodeclaim=claim.name,
            )
            metrics.DISRUPTION_LOOPS.labels(claim.pool).inc()
            for reference in (reference_of(claim), *map(pod_reference, mine[:PODS_TOLD])):
                self._recorder.publish(reference, "Warning", DISRUPTION_LOOP, loop_text(shown))

    def holds(self) -> LoopHolds:
        """Whose nodes are left alone now."""
        with self._lock:
            return self._loops.holds(self._clock.now())

    def marks(self, pods: Iterable[Pod]) -> Mapping[str, str]:
        """Annotations for a NodeClaim that is made for these pods."""
        with self._lock:
            return self._loops.marks(pods)
