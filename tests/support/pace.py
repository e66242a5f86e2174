"""How much slower than on a quiet machine programs are: the ratio by which a bound in seconds is stretched, measured in the run that was late.

What kube-scheduler needs for a yardstick is measured afterwards, when others may have ended that were in the way; how long programs waited for a CPU is
counted all along, but says too much where they also wait for each other, so it counts up to a limit.
"""

import contextlib
import itertools
import math
from pathlib import Path
from typing import Final

from provisioner.kube.resources import DEPLOYMENTS, NODES
from provisioner.lab.devcluster.cluster import FIRST
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


MOST_WAITED: Final = 2.0


class Pace:
    """Of the programs of a session, since this was made."""

    def __init__(self, run: Session) -> None:
        self._run, self._before = run, _computed(run)

    def stretched(self, seconds: float, longest: float) -> float:
        """The bound for waits of which one was so long: `seconds`, times the slowness where that was too long and has an end."""
        if not seconds < longest < math.inf:
            return seconds
        return seconds * max(min(MOST_WAITED, self._waiting()), slowness(self._run))

    def _waiting(self) -> float:
        """What the programs computed and waited for a CPU by what they computed."""
        now = _computed(self._run)
        spent = [(now[pid][0] - ran, now[pid][1] - waited) for pid, (ran, waited) in self._before.items() if pid in now]
        ran, waited = (sum(each) for each in zip(*spent, strict=True)) if spent else (0, 0)
        return (ran + waited) / ran if ran > 0 else 1.0


def _computed(run: Session) -> dict[int, tuple[int, int]]:
    """How long each program ran on a CPU and waited for one, in nanoseconds, by its ID; those that go before all others wait for none, and say nothing of them."""
    found = {}
    for pid in filter(None, (entry.pid for entry in run.cluster.status() if entry.name not in FIRST)):
        ran = waited = 0
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # it has ended
                one = thread.read_text(encoding="ascii").split()
                ran, waited = ran + int(one[0]), waited + int(one[1])
        found[pid] = ran, waited
    return found


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
