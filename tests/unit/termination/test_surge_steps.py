"""When a Deployment is restarted before its pod is evicted, how long that is waited for, and why not."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Deployment
from provisioner.termination.surge_steps import (
    LONGEST,
    SurgeDecision,
    SurgeRefusal,
    SurgeStep,
    decide,
    evicted_by,
    restart,
    surged_for,
)
from tests.support.clock import NOON
from tests.support.cluster import pod

WEB = pod("web-1", node="n", ready=True)
UNTIL = NOON + LONGEST


def deployment(
    *, annotations: dict[str, str] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> Deployment:
    body = {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "uid-web",
            "resourceVersion": "7",
            "generation": 1,
            "annotations": {names.SURGE: "true"} if annotations is None else annotations,
        },
        "spec": {"replicas": 1, **spec},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, **(status or {})},
    }
    return msgspec.convert(body, Deployment)


def rolling(max_surge: int | str) -> dict[str, Any]:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": max_surge}}}


def for_pod(uid: str, age: timedelta) -> dict[str, str]:
    return {names.SURGE: "true", names.SURGED_FOR: f"{uid} {(NOON - age).strftime('%Y-%m-%dT%H:%M:%SZ')}"}


RESTART, WAIT, EVICT = SurgeDecision(SurgeStep.RESTART), SurgeDecision(SurgeStep.WAIT), SurgeDecision(SurgeStep.EVICT)
CASES: dict[str, tuple[Deployment, SurgeDecision]] = {
    "one that asks": (deployment(), RESTART),
    "of as many replicas as nobody says": (deployment(replicas=None), RESTART),
    "one that does not ask": (deployment(annotations={}), EVICT),
    "or says no": (deployment(annotations={names.SURGE: "false"}), EVICT),
    "scaled to none": (deployment(replicas=0), EVICT),
    "of two replicas": (deployment(replicas=2), SurgeDecision(SurgeStep.EVICT, SurgeRefusal.REPLICAS)),
    "that ends its pod first": (
        deployment(strategy={"type": "Recreate"}),
        SurgeDecision(SurgeStep.EVICT, SurgeRefusal.RECREATE),
    ),
    "that may start none more": (deployment(**rolling(0)), SurgeDecision(SurgeStep.EVICT, SurgeRefusal.MAX_SURGE)),
    "or none in percent": (deployment(**rolling("0%")), SurgeDecision(SurgeStep.EVICT, SurgeRefusal.MAX_SURGE)),
    "a percentage is rounded up": (deployment(**rolling("1%")), RESTART),
    "no number": (deployment(**rolling("many")), SurgeDecision(SurgeStep.EVICT, SurgeRefusal.MAX_SURGE)),
    "whose rollout is paused": (deployment(paused=True), SurgeDecision(SurgeStep.EVICT, SurgeRefusal.PAUSED)),
    "that a user updates at this moment": (deployment(status={"observedGeneration": 0}), WAIT),
    "whose new pod has been started": (deployment(status={"replicas": 2}), WAIT),
    "restarted for the pod": (deployment(annotations=for_pod(WEB.uid, timedelta(minutes=4))), WAIT),
    "restarted for it too long ago": (
        deployment(annotations=for_pod(WEB.uid, LONGEST)),
        SurgeDecision(SurgeStep.EVICT, SurgeRefusal.LATE),
    ),
    "restarted for it tomorrow": (deployment(annotations=for_pod(WEB.uid, -timedelta(days=1))), WAIT),
    "restarted for it at the end of time": (
        deployment(annotations={names.SURGE: "true", names.SURGED_FOR: f"{WEB.uid} 9999-12-31T23:59:59Z"}),
        WAIT,
    ),
    "restarted for another pod": (deployment(annotations=for_pod("other", timedelta(minutes=1))), RESTART),
    "restarted for whom nobody can read": (
        deployment(annotations={names.SURGE: "true", names.SURGED_FOR: f"{WEB.uid} soon"}),
        RESTART,
    ),
}


@pytest.mark.parametrize(("one", "want"), CASES.values(), ids=CASES)
def test_what_comes_next(one: Deployment, want: SurgeDecision) -> None:
    assert decide(WEB, one, NOON, UNTIL, restarted=False) == want


def test_a_pod_that_serves_nobody_is_evicted() -> None:
    assert decide(pod("web-1", node="n"), deployment(), NOON, UNTIL, restarted=False) == EVICT


def test_nobody_restarts_twice_though_the_mark_was_taken_off() -> None:
    assert decide(WEB, deployment(), NOON, UNTIL, restarted=True) == WAIT


def test_when_time_is_up_nothing_is_restarted() -> None:
    late = SurgeDecision(SurgeStep.EVICT, SurgeRefusal.LATE)
    assert decide(WEB, deployment(), UNTIL, UNTIL, restarted=False) == late
    tomorrow = deployment(annotations=for_pod(WEB.uid, -timedelta(days=1)))
    assert decide(WEB, tomorrow, UNTIL, UNTIL, restarted=False) == late


def test_a_restart_is_guarded_and_says_for_whom() -> None:
    one = deployment()
    patch = restart(WEB, one, NOON)
    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("uid-web", "7")
    assert surged_for(patch["metadata"]["annotations"]) == (WEB.uid, NOON)
    assert [*patch["spec"]["template"]["metadata"]["annotations"]] == ["kubectl.kubernetes.io/restartedAt"]


MINUTE = timedelta(minutes=1)
LIMITS: dict[str, tuple[int | None, datetime | None, datetime | None, datetime | None, datetime]] = {
    "minutes where nothing presses": (30, None, None, None, NOON + LONGEST),
    "until the grace period ends with the node's": (30, NOON + MINUTE, None, None, NOON + MINUTE / 2),
    "until an interrupted node ends": (30, None, None, NOON + 2 * MINUTE, NOON + 1.5 * MINUTE),
    "until evictions wait for nothing": (
        30,
        NOON + 2 * MINUTE,
        NOON + MINUTE / 2,
        NOON + 2 * MINUTE,
        NOON + MINUTE / 2,
    ),
    "not at all where the pod needs longer to end": (90, NOON + MINUTE, None, None, NOON - MINUTE / 2),
}


@pytest.mark.parametrize(("grace", "deadline", "evicts", "ends", "want"), LIMITS.values(), ids=LIMITS)
def test_how_long_it_is_waited_for(
    grace: int, deadline: datetime | None, evicts: datetime | None, ends: datetime | None, want: datetime
) -> None:
    assert evicted_by(pod("web-1", grace_seconds=grace), NOON, deadline, evicts, ends) == want


def test_a_grace_period_that_no_date_can_hold() -> None:
    assert evicted_by(pod("web-1", grace_seconds=2**62), NOON, NOON + MINUTE, None, None) < NOON
