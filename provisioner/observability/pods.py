"""Metrics of single pods: what state each is in, and how long its steps took. Source: core spec 8.1 ("Pods").

Durations from a pod's creation compare the API server's clock with ours and are never negative; those from our own
decision are measured with the monotonic clock. Pods that were bound before this process heard of them have no durations.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod, is_terminal
from provisioner.state.snapshot import NodeView
from provisioner.support.clock import Clock
from provisioner.support.exposition import family, labels_text
from provisioner.support.metrics import histogram, summary

_STATE: Final = "karpenter_pods_state"
_STARTUP: Final = summary("karpenter_pods_startup_duration_seconds", "Time from a pod's creation until it is ready.")
_DYNAMIC: Final = "dynamic_resources"
_BOUND: Final = histogram(
    "karpenter_pods_bound_duration_seconds",
    "Time from a pod's creation until it is bound; dynamic_resources is true for a pod with resource claims.",
    (_DYNAMIC,),
)
_PLANNED_BOUND: Final = histogram(
    "karpenter_pods_provisioning_bound_duration_seconds",
    "Time from the planning of a pod until it is bound; dynamic_resources is true for a pod with resource claims.",
    (_DYNAMIC,),
)
_PLANNED_STARTUP: Final = histogram(
    "karpenter_pods_provisioning_startup_duration_seconds", "Time from the planning of a pod until it is ready."
)
_DECISION: Final = histogram(
    "karpenter_pods_scheduling_decision_duration_seconds",
    "Time from the first observation of a pending pod until the first scheduling decision that included it.",
)
_UNBOUND: Final = "karpenter_pods_unbound_time_seconds"
_UNSTARTED: Final = "karpenter_pods_unstarted_time_seconds"
_PLANNED_UNBOUND: Final = "karpenter_pods_provisioning_unbound_time_seconds"
_PLANNED_UNSTARTED: Final = "karpenter_pods_provisioning_unstarted_time_seconds"
_UNDECIDED: Final = "karpenter_pods_provisioning_scheduling_undecided_time_seconds"
_ON_THEIR_WAY: Final = {
    _UNBOUND: "Time since the creation of a pod that is not bound.",
    _UNSTARTED: "Time since the creation of a pod that is not ready.",
    _PLANNED_UNBOUND: "Time since the planning of a pod that is not bound.",
    _PLANNED_UNSTARTED: "Time since the planning of a pod that is not ready.",
    _UNDECIDED: "Time since the first observation of a pending pod that no scheduling decision has included.",
}


@dataclass(slots=True)
class _Steps:
    """Monotonic seconds of what one pod that is not ready yet has come to; None for what is still to come."""

    seen: float
    tried: float | None = None
    planned: float | None = None
    bound: bool = False


class PodTimes:
    """Follows pods from their first sight until they are ready or gone. Thread-safe. Memory: one entry a pod on its way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._steps: dict[str, _Steps] = {}

    def heard(self, old: Pod | None, new: Pod | None) -> None:
        """One event of the pod watch."""
        if new is None or new.deleted is not None or is_terminal(new):
            gone = new or old
            if gone is not None:
                with self._lock:
                    self._steps.pop(gone.uid, None)
            return
        now = self._clock.monotonic()
        with self._lock:
            steps = self._steps.get(new.uid)
            if steps is None:
                if new.node_name or new.gated:
                    return
                steps = self._steps[new.uid] = _Steps(now)
            binds = bool(new.node_name) and not steps.bound
            steps.bound = steps.bound or binds
            if new.ready:
                del self._steps[new.uid]
        if not binds and not new.ready:
            return
        age = max(0.0, (self._clock.now() - new.created).total_seconds())
        if binds:
            dynamic = _has_claims(new)
            _BOUND.labels(dynamic).observe(age)
            if steps.planned is not None:
                _PLANNED_BOUND.labels(dynamic).observe(now - steps.planned)
        if new.ready:
            _STARTUP.observe(age)
            if steps.planned is not None:
                _PLANNED_STARTUP.observe(now - steps.planned)

    def decided(self, placed: Iterable[str], unplaced: Iterable[str]) -> None:
        """A batch has tried to place these pods, by UID; the first try of each counts, and the first that succeeded."""
        now = self._clock.monotonic()
        with self._lock:
            for uids, found in ((placed, True), (unplaced, False)):
                for uid in uids:
                    steps = self._steps.get(uid)
                    if steps is None:
                        continue
                    if steps.tried is None:
                        steps.tried = now
                        _DECISION.observe(now - steps.seen)
                    if found and steps.planned is None:
                        steps.planned = now

    def lines(self, pods: Iterable[Pod]) -> Iterator[str]:
        """The gauges of pods that are on their way; of `pods`, those that are followed."""
        now, today = self._clock.monotonic(), self._clock.now()
        with self._lock:
            steps_of = {uid: (one.tried, one.planned, one.bound, one.seen) for uid, one in self._steps.items()}
        samples: dict[str, list[tuple[str, float]]] = {name: [] for name in _ON_THEIR_WAY}
        for pod in pods:
            found = steps_of.get(pod.uid)
            if found is None:
                continue
            tried, planned, bound, seen = found
            own = {"name": pod.name, "namespace": pod.namespace}
            labels, more = labels_text(own), labels_text({**own, _DYNAMIC: _has_claims(pod)})
            age = max(0.0, (today - pod.created).total_seconds())
            samples[_UNSTARTED].append((labels, age))
            if not bound:
                samples[_UNBOUND].append((more, age))
            if planned is not None:
                samples[_PLANNED_UNSTARTED].append((labels, now - planned))
                if not bound:
                    samples[_PLANNED_UNBOUND].append((more, now - planned))
            if tried is None and not bound:
                samples[_UNDECIDED].append((labels, now - seen))
        for name, doc in _ON_THEIR_WAY.items():
            yield from family(name, "gauge", doc, samples[name])


def _has_claims(pod: Pod) -> str:
    return "true" if pod.shape.resource_claims else "false"


def state_lines(pods: Iterable[Pod], view_of: Callable[[str], NodeView | None]) -> Iterator[str]:
    """One series a pod: where it is and on what. Cost: a few microseconds a pod; nothing of a node is read twice."""
    of_node: dict[str, str] = {}

    def node_text(name: str) -> str:
        text = of_node.get(name)
        if text is None:
            view = view_of(name) if name else None
            labels: Mapping[str, str] = view.labels if view is not None else {}
            text = of_node[name] = labels_text(
                {
                    "node": name,
                    "nodepool": view.pool if view is not None else "",
                    "zone": labels.get(names.ZONE_LABEL, ""),
                    "arch": labels.get(names.ARCH_LABEL, ""),
                    "capacity_type": labels.get(names.CAPACITY_TYPE_LABEL, ""),
                    "instance_type": labels.get(names.INSTANCE_TYPE_LABEL, ""),
                    "managed": "true" if view is not None and view.claim is not None else "false",
                }
            )
        return text

    def samples() -> Iterator[tuple[str, float]]:
        for pod in pods:
            own = labels_text(
                {
                    "name": pod.name,
                    "namespace": pod.namespace,
                    "owner": _owner_path(pod.namespace, pod.owner),
                    "scheduled": "true" if pod.node_name else "false",
                    "phase": pod.phase,
                    "ready": "true" if pod.ready else "false",
                }
            )
            yield f"{own},{node_text(pod.node_name)}", 1.0

    return family(_STATE, "gauge", "State of a pod; the value is always 1.", samples())


def _owner_path(namespace: str, owner: OwnerReference | None) -> str:
    if owner is None:
        return ""
    return f"/apis/{owner.api_version}/namespaces/{namespace}/{owner.kind.lower()}s/{owner.name}"
