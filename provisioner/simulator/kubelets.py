"""What kubelets and the controller of PodDisruptionBudgets write: pods start some time after they are bound, and end some time after they are told to."""

import math
from collections.abc import Callable, Collection
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
_Key = tuple[str, str]
"""Namespace and name."""


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
    """Keeps the status of PodDisruptionBudgets. `wanted`: how many pods the owner of a UID wants.

    Cost: of a change of a pod O(budgets of its namespace), and then O(pods) of each budget that counts it, however many others there are.
    """

    def __init__(self, server: ApiServer, agenda: Agenda, wanted: Callable[[str], int | None]) -> None:
        self._server, self._agenda, self._wanted = server, agenda, wanted
        self._counted: dict[_Key, dict[_Key, Wire]] = {}  # by budget: the pods that it covers, as they are
        self._due: dict[_Key, None] = {}

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        before, after = change.before, change.after
        if change.plural == "poddisruptionbudgets" and change.by is not self:
            self._budget_changed(before, after)
        elif change.plural == "pods":
            self._pod_changed(before, after)

    def _budget_changed(self, before: Wire | None, after: Wire | None) -> None:
        key = _key_of(after or before or {})
        if after is None:
            self._counted.pop(key, None)
            return
        if before is None or before.get("spec") != after.get("spec"):
            pods = self._server.objects["pods"].values()
            self._counted[key] = {_key_of(one): one for one in pods if covers(after, one)}
        self._review_soon(key)

    def _pod_changed(self, before: Wire | None, after: Wire | None) -> None:
        if not self._counted:
            return
        pod = _key_of(after or before or {})
        alike = before is not None and after is not None and _labels_of(before) == _labels_of(after)
        for key, counted in self._counted.items():
            if key[0] != pod[0]:
                continue
            was = pod in counted
            budget = self._server.get("poddisruptionbudgets", key[1], key[0])
            now = after is not None and budget is not None and (was if alike else covers(budget, after))
            if now and after is not None:
                counted[pod] = after
            elif was:
                del counted[pod]
            if was or now:
                self._review_soon(key)

    def _review_soon(self, key: _Key) -> None:
        if not self._due:
            self._agenda.after(0.0, self._review)
        self._due[key] = None

    def _review(self) -> None:
        due, self._due = sorted(self._due), {}
        for namespace, name in due:
            wire = self._server.get("poddisruptionbudgets", name, namespace)
            if wire is None:
                continue
            status = self._status(wire, self._counted[namespace, name].values())
            if status != wire.get("status"):
                meta = dict(wire["metadata"])
                self._server.store("poddisruptionbudgets", {**wire, "metadata": meta, "status": status}, self)

    def _status(self, wire: Wire, pods: Collection[Wire]) -> Wire:
        """What a budget allows now. Source: kubernetes `pkg/controller/disruption`: percentages are rounded up."""
        budget = PDBS.decode(_encode(wire))
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


def _key_of(wire: Wire) -> _Key:
    return wire["metadata"]["namespace"], wire["metadata"]["name"]


def _labels_of(wire: Wire) -> dict[str, str]:
    return wire["metadata"].get("labels") or {}


def _is_ready(pod: Wire) -> bool:
    running = pod["status"].get("phase") == "Running"
    return running and "deletionTimestamp" not in pod["metadata"]


def _amount(number: int | str, of: int) -> int:
    return math.ceil(int(number[:-1]) * of / 100) if isinstance(number, str) and number.endswith("%") else int(number)
