"""Carries out what the state wants done, in whichever thread caused it."""

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, assert_never

from provisioner.apis.core import ObjectReference
from provisioner.kube.errors import Conflict
from provisioner.kube.resources import DAEMONSETS, ObjectIdentity, Resource
from provisioner.lifecycle.nominations import Nominations
from provisioner.lifecycle.steering import Steering
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime import metrics
from provisioner.runtime.base import Base
from provisioner.state.effects import (
    ABSORBED,
    PLANNED,
    REPLANNED,
    ClaimUnneeded,
    DaemonSetUnreadable,
    Effect,
    LaunchSetTurned,
    NominationLost,
    PlanOutdated,
    PodMissed,
    PodSettled,
)
from provisioner.support import logs

_log = logs.get_logger(__name__)
DAEMONSET_IGNORED: Final = "DaemonSet cannot be read and is ignored until it is corrected"


class TermEffects:
    """What this term does about them."""

    def __init__(self, base: Base, writing: Writers, nominations: Nominations, steering: Steering) -> None:
        self._base, self._writers, self._nominations, self._steering = base, writing, nominations, steering

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do all of these; never waits for a call."""
        for effect in effects:
            match effect:
                case PodSettled():
                    self._settled(effect)
                case PlanOutdated(key=key):
                    self._writers.plans.changed(key)
                case PodMissed():
                    _missed(effect)
                case NominationLost(pod=pod, claim=claim):
                    self._nominations.lost(pod, claim)
                case ClaimUnneeded(claim=claim):
                    self._writers.creates.submit(partial(self._drop, claim))
                case LaunchSetTurned(claim=claim):
                    self._base.claim_again(claim)
                case DaemonSetUnreadable(daemon_set=one, problem=problem):
                    meta = one.metadata
                    _log.warning(DAEMONSET_IGNORED, daemonset=meta.key, problem=problem)
                    self.tell_unreadable(DAEMONSETS, meta, problem)
                case _:
                    assert_never(effect)

    def tell_unreadable(self, resource: Resource[Any], identity: ObjectIdentity, problem: str) -> None:
        """Say on the object itself that it is left out, where its name could be read."""
        if identity.name:
            self._base.recorder.publish(
                ObjectReference(
                    api_version=resource.api_version,
                    kind=resource.kind,
                    name=identity.name,
                    namespace=identity.namespace,
                    uid=identity.uid,
                ),
                "Warning",
                "UnreadableObject",
                f"This {resource.kind} cannot be read and is ignored until it is corrected: {problem}",
            )

    def _settled(self, effect: PodSettled) -> None:
        metrics.PLAN_PODS.labels(effect.outcome).inc()
        self._steering.settled(effect.uid, effect.outcome)
        if effect.outcome not in (PLANNED, ABSORBED, REPLANNED):
            self._writers.plans.changed(effect.key)
            self._base.plan_again(effect.uid)

    def _drop(self, name: str) -> None:
        claim = self._base.cluster.claim(name)
        if (
            claim is not None
            and claim.metadata.uid
            and not claim.status.provider_id
            and not self._base.caches.beside()
            and self._base.cluster.is_unneeded(name)
        ):
            with contextlib.suppress(Conflict):  # it has changed; the launch asks once more whether it is needed
                self._writers.claims.delete_unneeded(claim)


def _missed(effect: PodMissed) -> None:
    metrics.PLAN_MISSES.labels(effect.cause).inc()
    pod, stop = effect.pod, effect.stop
    said = pod.scheduled_message or "nothing"
    _log.info("Pod was not bound to its planned node", pod=pod.key, node=str(effect.key), cause=effect.cause, said=said)
    if stop is not None:
        _log.warning(
            "Paused launching nodes for pods that kube-scheduler repeatedly did not bind as planned",
            pod=pod.key,
            misses=stop.misses,
            seconds=stop.seconds,
            said=said,
        )
