"""Whether Dovetail's own scheduler is alive, judged by what happens to the pods that name it.

`spec.schedulerName` cannot be changed: a pod that was given to a scheduler that is gone waits in silence, without a condition
and without an event. A scheduler that lives writes one or the other for some pod; where it wrote nothing for a minute while pods
waited all that time, they are counted and told. Only what is seen here counts, by our own clock: no Lease, no other machine's time.

What waits is a pod that no scheduler has looked at, or whose node came and opened after it was refused: a scheduler that lives binds it then, or
gives another reason. Once a scheduler is silent, all its other pods wait for it too.

Pods that opt in (`dovetail.dev/recreate-unscheduled: "true"`) are deleted, if they have a controller that makes them again: the webhook
gives the new ones to no scheduler that is not alive. A deletion demands the very pod that was seen here, at its version, so one that is
bound in the meantime stays. A pod that came after the first deletion stays too, until there is a sign of life: its template names the scheduler, or
the scheduler renews its Lease and does nothing else, so it would be deleted once a minute for ever.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.resources import PODS
from provisioner.provisioning.failed_scheduling import Complaint, ToldPods
from provisioner.runtime.changes import Change, PodChanged
from provisioner.runtime.object_reference import pod_reference
from provisioner.support import logs, metrics
from provisioner.support.clock import Clock
from provisioner.values.message import EventMessage

SILENCE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 5.0
MAX_DELETIONS: Final = 20
"""Pods that are deleted in one look, so that a mistake is slow."""

_NOT_OF_A_SCHEDULER: Final = ("", names.SCHEDULING_GATED)
"""Reasons of the condition PodScheduled that stand there before a scheduler has seen the pod; the API server writes the second one of a gated pod,
and it stays there once the gates are removed."""

WITHOUT_SCHEDULER = metrics.gauge(
    "dovetail_pods_without_scheduler",
    "Pods that have waited for a scheduler that has processed no pod for a minute.",
    ("scheduler",),
)

RECREATED = metrics.counter(
    "dovetail_pods_recreated_total",
    "Pods deleted because their scheduler has processed no pod for a minute, so that their controller creates them again.",
    ("scheduler",),
)

_log = logs.get_logger(__name__)


class SchedulerLiveness:
    """See the module.

    Args:
        waiting: every unbound, ungated, living pod.
        client: deletes pods that opted in.
        is_unanswered: whether the node of a pod, by UID, has come and opened, and its scheduler has said nothing since.
    """

    def __init__(
        self,
        waiting: Callable[[], Iterable[Pod]],
        recorder: Recorder,
        clock: Clock,
        client: Client,
        is_unanswered: Callable[[str], bool],
    ) -> None:
        self._waiting, self._recorder, self._clock = waiting, recorder, clock
        self._client, self._is_unanswered = client, is_unanswered
        self._sign_at = clock.monotonic()
        self._since: dict[str, float] = {}
        self._told = ToldPods()
        self._silent = False
        # of the pods that there were at the first deletion since the last sign of life
        self._newest: datetime | None = None
        self._look_at = 0.0

    def heard(self, change: Change) -> None:
        """A pod changed: bound or judged by its scheduler is a sign of life."""
        match change:
            case PodChanged(old=Pod() as old, new=Pod() as new) if new.shape.scheduler_name == names.SCHEDULER_NAME:
                if _seen_to(old) != _seen_to(new):
                    self._sign_at, self._newest = self._clock.monotonic(), None
            case _:
                return

    def look(self) -> None:
        """Count, and publish events about, the pods that nobody looks at. May be called as often as one likes."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        theirs = [pod for pod in self._waiting() if pod.shape.scheduler_name == names.SCHEDULER_NAME]
        before = self._since
        self._since = {pod.uid: before.get(pod.uid, now) for pod in theirs if self._waits(pod, before)}
        silent = now - self._sign_at >= SILENCE_SECONDS
        long = {uid for uid, since in self._since.items() if silent and now - since >= SILENCE_SECONDS}
        left = [pod for pod in theirs if pod.uid in long or pod.uid not in self._since] if long else []
        WITHOUT_SCHEDULER.labels(names.SCHEDULER_NAME).set(len(left))
        if bool(left) != self._silent:
            self._silent = bool(left)
            if left:
                _log.warning(
                    "A scheduler has processed no pod for a minute while pods wait for it; check that it runs",
                    scheduler=names.SCHEDULER_NAME,
                    pods=len(left),
                )
            else:
                _log.info("No pods wait for the silent scheduler anymore", scheduler=names.SCHEDULER_NAME)
        if left and self._newest is None:
            self._newest = max(pod.created for pod in theirs)
        self._recreate(pod for pod in left if self._newest is not None and pod.created <= self._newest)
        message = EventMessage(
            "Warning",
            "SchedulerNotRunning",
            f'Scheduler "{names.SCHEDULER_NAME}" of the pod has processed no pod for {SILENCE_SECONDS:.0f} s. Check '
            "that the scheduler runs, or recreate the pod without this schedulerName",
        )
        for due in self._told.due((Complaint(pod, message.text) for pod in left), now):
            self._recorder.publish(pod_reference(due.pod), *message, ttl=0)

    def _recreate(self, left: Iterable[Pod]) -> None:
        last = float("inf")
        wanted = sorted(filter(_may_be_recreated, left), key=lambda pod: self._since.get(pod.uid, last))
        for pod in wanted[:MAX_DELETIONS]:
            if self._clock.monotonic() >= self._look_at:
                return  # an API server that is slow holds nobody up for longer than until the next look
            try:
                self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid, resource_version=pod.resource_version)
            except (NotFound, Conflict):
                continue  # gone, or something was written: it is looked at again
            except ApiError as error:
                _log.warning(
                    "Failed to delete a pod whose scheduler is silent; retrying", pod=pod.key, error=str(error)
                )
                return
            RECREATED.labels(names.SCHEDULER_NAME).inc()
            self._recorder.publish(
                pod_reference(pod),
                "Warning",
                "RecreatedUnscheduled",
                f'Deleted the pod: scheduler "{names.SCHEDULER_NAME}" has processed no pod for {SILENCE_SECONDS:.0f} '
                "s, and the controller of the pod creates it again",
                ttl=0,
            )

    def _waits(self, pod: Pod, before: Mapping[str, float]) -> bool:
        """Whether it is the scheduler's turn; of a pod that it refused also once the time of its plan is over, until there is a sign of life."""
        if not _is_looked_at(pod):
            # kube-scheduler says nothing of a pod whose ResourceClaims are not there, or whose PodGroup is not complete
            return not pod.shape.resource_claims and not pod.group
        return before.get(pod.uid, float("-inf")) >= self._sign_at or self._is_unanswered(pod.uid)


def _is_looked_at(pod: Pod) -> bool:
    return pod.scheduled or pod.scheduled_reason not in _NOT_OF_A_SCHEDULER


def _may_be_recreated(pod: Pod) -> bool:
    """Whether the pod opted in, is bound nowhere, and somebody makes it again."""
    return (
        pod.annotations.get(names.RECREATE_UNSCHEDULED) == "true"
        and pod.owner is not None
        and pod.owner.kind != "Node"
        and not pod.node_name
        and pod.deleted is None
    )


def _seen_to(pod: Pod) -> tuple[object, ...]:
    """What the scheduler of a pod writes about it."""
    return pod.node_name, pod.scheduled_reason, pod.scheduled, pod.scheduled_message
