"""How much slower than on a quiet machine kube-scheduler is now: the ratio by which a bound in seconds is stretched, measured in the run that was late."""

import itertools
import math
from typing import Final

from provisioner.kube.resources import DEPLOYMENTS, NODES
from provisioner.lab.harness import applying
from provisioner.lab.harness.session import Session
from provisioner.lab.harness.workload import deployment
from tests.support.eventually import eventually
from tests.support.judge import node
from tests.support.pod_waits import pod_waits

PODS: Final = 60
QUIET_SECONDS: Final = 1.5
"""From the Deployment of so many pods until all are bound to a Node that is ready, where nothing else runs on two cores."""
_NAMESPACE: Final = "default"
_NAMES: Final = (f"yardstick-{number}" for number in itertools.count())


def stretched(run: Session, seconds: float, longest: float) -> float:
    """The bound for waits of which one was so long: `seconds`, times the slowness where that was too long and has an end."""
    return seconds * slowness(run) if seconds < longest < math.inf else seconds


def slowness(run: Session) -> float:
    """At least 1; what kube-scheduler needs for pods that have nothing but to be bound, against what it needs on a quiet machine."""
    name = next(_NAMES)
    run.client.create(NODES, node(name, "64", labels={name: "true"}))
    eventually(lambda: _is_ready(run, name), "the yardstick's Node is ready", 60.0)
    document = deployment(name, _NAMESPACE, PODS, {"cpu": "10m", "memory": "1Mi"})
    document["spec"]["template"]["spec"]["nodeSelector"] = {name: "true"}
    began = run.clock.monotonic()
    applying.apply(run.client, [document])
    try:
        eventually(lambda: _bound(run, name) == PODS, "the yardstick's pods are bound", 120.0)
        return max(1.0, (run.clock.monotonic() - began) / QUIET_SECONDS)
    finally:
        run.client.delete(DEPLOYMENTS, name, _NAMESPACE)
        run.client.delete(NODES, name)


def _is_ready(run: Session, name: str) -> bool:
    found = run.client.get(NODES, name)
    return not found.spec.taints and any(
        one.type == "Ready" and one.status == "True" for one in found.status.conditions
    )


def _bound(run: Session, name: str) -> int:
    waits = pod_waits(run.observer, {_NAMESPACE})
    return sum(one.bound is not None and one.node == name for one in waits.values())
