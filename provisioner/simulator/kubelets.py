"""What kubelets and the controller of PodDisruptionBudgets write: pods start some time after they are bound, and end some time after they are told to."""

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

from provisioner.kube.resources import PDBS
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire, covers
from provisioner.simulator.virtual_time import Agenda, VirtualClock

START_SECONDS: Final = 2.0
"""From the binding of a pod to Ready, its images and probes included."""
END_SECONDS: Final = 2.0
"""From the request to end until a pod is gone, where its grace period is not shorter."""
_encode: Final = msgspec.json.Encoder().encode


class Kubelets:
    """Starts and ends pods.

    Args:
        lifetime: for how many seconds a pod runs that starts now.
        finished: is called with name, namespace and UID of a pod whose lifetime is over.
    """

    def __init__(
        self,
        server: ApiServer,
        clock: VirtualClock,
        agenda: Agenda,
        lifetime: Callable[[dict[str, Any]], float | None],
        finished: Callable[[str, str, str], None],
    ) -> None:
        self._server, self._clock, self._agenda = server, clock, agenda
        self._lifetime, self._finished = lifetime, finished

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        after, before = change.after, change.before
        if change.plural != "pods" or after is None:
            return
        meta = after["metadata"]
        name, namespace, uid = meta["name"], meta["namespace"], meta["uid"]
        if "deletionTimestamp" in meta:
            if before is None or "deletionTimestamp" not in before["metadata"]:
                grace = float(after["spec"].get("terminationGracePeriodSeconds", END_SECONDS))
                runs = bool(after["spec"].get("nodeName"))
                self._agenda.after(min(grace, END_SECONDS) if runs else 0.0, lambda: self._gone(name, namespace, uid))
        elif after["spec"].get("nodeName") and not (before or {}).get("spec", {}).get("nodeName"):
            self._agenda.after(START_SECONDS, lambda: self._start(name, namespace, uid))

    def _pod(self, name: str, namespace: str, uid: str) -> Wire | None:
        pod = self._server.get("pods", name, namespace)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _gone(self, name: str, namespace: str, uid: str) -> None:
        if self._pod(name, namespace, uid) is not None:
            self._server.drop("pods", name, namespace)

    def _start(self, name: str, namespace: str, uid: str) -> None:
        pod = self._pod(name, namespace, uid)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        now = self._clock.stamp()
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        conditions = [*pod["status"].get("conditions", ()), ready]
        patch = {"status": {"phase": "Running", "startTime": now, "conditions": conditions}}
        self._server.change("pods", name, patch, namespace)
        if (seconds := self._lifetime(pod)) is not None:
            self._agenda.after(seconds, lambda: self._finished(name, namespace, uid))


class Budgets:
    """Keeps the status of PodDisruptionBudgets. `wanted`: how many pods the owner of a UID wants."""

    def __init__(self, server: ApiServer, agenda: Agenda, wanted: Callable[[str], int | None]) -> None:
        self._server, self._agenda, self._wanted = server, agenda, wanted
        self._asked = False

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        ours = change.plural == "poddisruptionbudgets" and change.by is not self
        if (ours or change.plural == "pods") and self._server.objects["poddisruptionbudgets"] and not self._asked:
            self._asked = True
            self._agenda.after(0.0, self._review)

    def _review(self) -> None:
        self._asked = False
        for wire in self._server.all("poddisruptionbudgets"):
            status = self.status(wire)
            if status != wire.get("status"):
                meta = dict(wire["metadata"])
                self._server.store("poddisruptionbudgets", {**wire, "metadata": meta, "status": status}, self)

    def status(self, wire: Wire) -> Wire:
        """What a budget allows now. Source: kubernetes `pkg/controller/disruption`: percentages are rounded up."""
        budget = PDBS.decode(_encode(wire))
        pods = [one for one in self._server.objects["pods"].values() if covers(wire, one)]
        owners = {
            owner["uid"]: self._wanted(owner["uid"])
            for one in pods
            for owner in one["metadata"].get("ownerReferences") or ()
        }
        expected = sum(one for one in owners.values() if one is not None)
        expected += sum(not one["metadata"].get("ownerReferences") for one in pods)
        healthy = sum(_is_ready(one) for one in pods)
        least, most = budget.spec.min_available, budget.spec.max_unavailable
        desired = _amount(least, expected) if least is not None else max(0, expected - _amount(most or 0, expected))
        return {
            "observedGeneration": wire["metadata"].get("generation", 1),
            "expectedPods": expected,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired),
            "disruptedPods": {},
        }


def _is_ready(pod: Wire) -> bool:
    running = pod["status"].get("phase") == "Running"
    return running and "deletionTimestamp" not in pod["metadata"]


def _amount(number: int | str, of: int) -> int:
    return math.ceil(int(number[:-1]) * of / 100) if isinstance(number, str) and number.endswith("%") else int(number)
