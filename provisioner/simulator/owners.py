"""Who makes pods: Deployments and Jobs of the day, bare pods, and DaemonSets; each replaces what is taken away from it."""

import heapq
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import DaemonSet
from provisioner.apis.deletion_cost import read_int32
from provisioner.apis.pods import PodShape
from provisioner.kube.resources import DAEMONSETS, NODES
from provisioner.simulator.admission import PodAdmission, PodBody
from provisioner.simulator.api_server import ApiServer, ServerChange
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.simulator.workload import Arrival, End, OwnerKind, Scale
from provisioner.state.daemons import runs_on

_encode: Final = msgspec.json.Encoder().encode
_MOST_NOTES: Final = 20
_MICROSECOND: Final = timedelta(microseconds=1)
_OWNER_KINDS: Final = {"Deployment": ("ReplicaSet", "apps/v1"), "Job": ("Job", "batch/v1")}


@dataclass(eq=False)
class _Workload:
    """A workload that is there.

    Attributes:
        owner: the reference to it that its pods have; None for bare pods.
        slots: of each pod that it has, by name, the number that its lifetime goes by.
        free: numbers of pods that are to be made again, a heap: the lowest comes first, as with the webhook's shares.
        made: pods so far, which names are made of.
        done: pods of a Job that have run to their end.
    """

    arrival: Arrival
    owner: dict[str, Any] | None
    wanted: int
    slots: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    made: int = 0
    next_slot: int = 0
    done: int = 0
    asked: bool = False


class Owners:
    """The workloads of a day."""

    def __init__(self, server: ApiServer, clock: VirtualClock, agenda: Agenda) -> None:
        self._server, self._clock, self._agenda = server, clock, agenda
        self._workloads: dict[tuple[str, str], _Workload] = {}
        self._by_owner: dict[str, _Workload] = {}
        self._daemons: dict[str, DaemonSet] = {}
        self._of_daemons: dict[str, tuple[PodShape, PodBody]] = {}
        self._admission = PodAdmission()
        self._refused: list[_Workload] = []
        self._notes: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of pods that were refused, or lack what classes would add, as sentences."""
        return tuple(self._notes.values())

    def wanted(self, uid: str) -> int | None:
        """How many pods the owner of this UID wants; None where there is none."""
        found = self._by_owner.get(uid)
        return found.wanted if found is not None else None

    # ------------------------------------------------------------------ what the day says

    def arrive(self, one: Arrival) -> None:
        """A workload is created.

        Raises:
            SimulationError: there is one of its name.
        """
        key = one.namespace, one.name
        if key in self._workloads:
            raise SimulationError(
                f"{one.kind} {one.namespace}/{one.name} arrives at {one.at:g} s, but is there already; end that one before, or use another name"
            )
        self._workloads[key] = workload = _Workload(one, self._store_owner(one, one.count), one.count)
        if workload.owner is not None:
            self._by_owner[workload.owner["uid"]] = workload
        self._fill(workload)

    def scale(self, one: Scale) -> None:
        """A Deployment wants another number.

        Raises:
            SimulationError: there is none.
        """
        workload = self._found(one.namespace, one.name, one.at)
        workload.wanted = one.count
        if workload.owner is not None:
            self._store_owner(workload.arrival, one.count)
        for name in self._first_to_go(workload, len(workload.slots) - one.count):
            self._server.remove("pods", name, one.namespace)
        self._fill(workload)

    def _first_to_go(self, workload: _Workload, count: int) -> list[str]:
        """So many of its pods, as a ReplicaSet that shrinks picks them: without a node, not running, of least deletion cost, beside most others, youngest.

        Ages count by powers of two of nanoseconds, and among equals UIDs decide, which are random in a cluster. Source: Kubernetes' pkg/controller,
        ActivePodsWithRanks with LogarithmicScaleDown, which is on by default. Cost: O(its pods) where any goes.
        """
        if count <= 0:
            return []
        named = (self._server.get("pods", name, workload.arrival.namespace) for name in workload.slots)
        pods = [pod for pod in named if pod is not None]
        together = Counter(pod["spec"].get("nodeName") for pod in pods)
        now = self._clock.now()

        def order(pod: dict[str, Any]) -> tuple[object, ...]:
            meta, node, status = pod["metadata"], pod["spec"].get("nodeName"), pod["status"]
            since = status.get("startTime") or meta["creationTimestamp"]
            nanoseconds = max(0, (now - msgspec.convert(since, datetime)) // _MICROSECOND * 1000)
            cost = read_int32(meta.get("annotations", {}).get(names.POD_DELETION_COST, "")) or 0
            running = status.get("phase") == "Running"
            age, uid = nanoseconds.bit_length(), meta["uid"]
            return bool(node), running, cost, -together[node], age, zlib.crc32(uid.encode()), uid

        return [pod["metadata"]["name"] for pod in heapq.nsmallest(count, pods, key=order)]

    def end(self, one: End) -> None:
        """A workload is deleted.

        Raises:
            SimulationError: there is none.
        """
        workload = self._found(one.namespace, one.name, one.at)
        self._end(workload)

    def _found(self, namespace: str, name: str, at: float) -> _Workload:
        if (found := self._workloads.get((namespace, name))) is None:
            raise SimulationError(f"{namespace}/{name} changes at {at:g} s, but is not there; let it arrive before")
        return found

    def _end(self, workload: _Workload) -> None:
        one = workload.arrival
        workload.wanted = 0
        del self._workloads[one.namespace, one.name]
        for name in list(workload.slots):
            self._server.remove("pods", name, one.namespace)
        if workload.owner is not None:
            self._by_owner.pop(workload.owner["uid"])
            for plural in _plurals(one.kind):
                self._server.remove(plural, one.name, one.namespace)

    def _store_owner(self, one: Arrival, count: int) -> dict[str, Any] | None:
        """The objects that say how many pods there should be, as those have them that look."""
        if one.kind not in _OWNER_KINDS:
            return None
        kind, version = _OWNER_KINDS[one.kind]
        labels = one.template.get("metadata", {}).get("labels", {})
        number = {"parallelism": count, "completions": count} if kind == "Job" else {"replicas": count}
        spec = {**number, "selector": {"matchLabels": labels}, "template": one.template}
        found: dict[str, Any] = {}
        for plural in _plurals(one.kind):
            known = self._server.get(plural, one.name, one.namespace)
            meta = known["metadata"] if known else {"name": one.name, "namespace": one.namespace}
            if found:  # a ReplicaSet names its Deployment
                above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": one.name, "controller": True}
                meta = {**meta, "ownerReferences": [{**above, "uid": found["metadata"]["uid"]}]}
            found = self._server.store(plural, {"metadata": meta, "spec": spec, "status": number})
            seen = {"status": {"observedGeneration": found["metadata"]["generation"]}}  # its controller is never behind
            found = self._server.change(plural, one.name, seen, one.namespace)
        return {
            "apiVersion": version,
            "kind": kind,
            "name": one.name,
            "uid": found["metadata"]["uid"],
            "controller": True,
        }

    # ------------------------------------------------------------------ what becomes of pods

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        if self._admission.changed(change.plural, change.before, change.after):
            self._of_daemons.clear()
            self._agenda.after(0.0, self._try_again)
        match change.plural:
            case "pods" if change.before is not None:
                self._pod_changed(change.before, change.after)
            case "nodes" if change.before is None and change.after is not None:
                node = change.after
                self._agenda.after(0.0, lambda: self._daemons_on(node["metadata"]["name"]))
            case "nodes" if change.after is None:
                self._agenda.after(0.0, lambda: self._collect(change.name))
            case "daemonsets" if change.after is not None:
                uid = change.after["metadata"]["uid"]
                self._daemons[uid] = DAEMONSETS.decode(_encode(change.after))
                self._of_daemons.pop(uid, None)

    def finished(self, name: str, namespace: str, uid: str) -> None:
        """The lifetime of a pod is over, if it is still there."""
        pod = self._server.get("pods", name, namespace)
        if pod is None or pod["metadata"]["uid"] != uid or "deletionTimestamp" in pod["metadata"]:
            return
        workload = self._workload_of(pod)
        if workload is not None and workload.arrival.kind != "Deployment":
            workload.slots.pop(name, None)
            workload.done += 1
            self._server.drop("pods", name, namespace)
            if workload.done == workload.arrival.count:
                self._end(workload)
        else:
            self._server.remove("pods", name, namespace)

    def lifetime(self, pod: dict[str, Any]) -> float | None:
        """For how many seconds a pod runs that starts now; None until it is told to end."""
        workload = self._workload_of(pod)
        if workload is None or not workload.arrival.lifetimes:
            return None
        lifetimes = workload.arrival.lifetimes
        return lifetimes[workload.slots.get(pod["metadata"]["name"], 0) % len(lifetimes)]

    def place_of(self, pod: dict[str, Any]) -> tuple[str, str, int] | None:
        """What a pod and the one that replaces it have in common; None for pods that are not replaced, or not any more."""
        workload = self._workload_of(pod)
        slot = workload.slots.get(pod["metadata"]["name"]) if workload is not None else None
        if workload is None or slot is None or workload.arrival.kind == "Pod":
            return None
        return workload.arrival.namespace, workload.arrival.name, slot

    def misses(self, place: tuple[str, str, int]) -> bool:
        """Whether a workload wants a pod in the place of one that has ended, or is about to."""
        namespace, name, slot = place
        workload = self._workloads.get((namespace, name))
        if workload is None:
            return False
        awaited = slot in workload.free and len(workload.slots) < workload.wanted - workload.done
        return awaited or slot in workload.slots.values()

    def _workload_of(self, pod: dict[str, Any]) -> _Workload | None:
        meta = pod["metadata"]
        owner = next((one["uid"] for one in meta.get("ownerReferences") or ()), None)
        if owner is not None:
            return self._by_owner.get(owner)
        found = self._workloads.get((meta["namespace"], meta["name"].rpartition("-")[0]))
        return found if found is not None and found.owner is None else None

    def _pod_changed(self, before: dict[str, Any], after: dict[str, Any] | None) -> None:
        """Whoever ends, or is gone, is replaced where somebody wants it."""
        if after is not None and "deletionTimestamp" not in after["metadata"]:
            return
        workload = self._workload_of(before)
        slot = workload.slots.pop(before["metadata"]["name"], None) if workload is not None else None
        if workload is None or slot is None or workload.arrival.kind == "Pod":
            return
        heapq.heappush(workload.free, slot)
        if not workload.asked:
            workload.asked = True
            self._agenda.after(0.0, lambda: self._fill(workload))

    def _fill(self, workload: _Workload) -> None:
        workload.asked = False
        one = workload.arrival
        if self._workloads.get((one.namespace, one.name)) is not workload:
            return
        missing = workload.wanted - workload.done - len(workload.slots)
        kind = one.kind if workload.owner is not None else ""
        if missing <= 0:
            return
        body = self._admission.body(one.template, one.namespace, kind)
        if not self._creates(body, f"{one.kind} {one.namespace}/{one.name}"):
            self._refused.append(workload)
            return
        owners = {"ownerReferences": [workload.owner]} if workload.owner is not None else {}
        for _ in range(missing):
            if workload.free:
                slot = heapq.heappop(workload.free)
            else:
                slot, workload.next_slot = workload.next_slot, workload.next_slot + 1
            name = f"{one.name}-{workload.made}"
            workload.made += 1
            workload.slots[name] = slot
            body = self._admission.body(one.template, one.namespace, kind, slot)
            self._server.store("pods", body.pod(name, one.namespace, owners))

    def _try_again(self) -> None:
        """Controllers whose pods were refused, now that others may be admitted."""
        refused, self._refused = self._refused, []
        for workload in dict.fromkeys(refused):
            self._fill(workload)

    def _creates(self, body: PodBody, of: str) -> bool:
        """Whether the API server creates such pods; what is to be said of them is noted."""
        for one in body.unknown:
            self._note(one, f"The day has no {one}; its additions to pods are not included.")
        if body.refusal:
            since = f"from {self._clock.seconds:g} s on"
            self._note(f"{of}: {body.refusal}", f"The API server refuses pods of {of} {since}: {body.refusal}.")
        return not body.refusal

    def _note(self, about: str, text: str) -> None:
        """Once, however often it happens."""
        if len(self._notes) < _MOST_NOTES:
            self._notes.setdefault(about, text)

    # ------------------------------------------------------------------ Nodes

    def _daemons_on(self, node_name: str) -> None:
        """The pods of DaemonSets that run on a Node, bound at once: their controller lets them pass the taints of a Node that joins."""
        wire = self._server.get("nodes", node_name)
        if wire is None:
            return
        node = NODES.decode(_encode(wire))
        taints = [one for one in node.spec.taints if one.key != names.UNREGISTERED_NO_SCHEDULE_TAINT.key]
        for uid, daemon in self._daemons.items():
            meta = daemon.metadata
            shape, body = self._of_daemon(uid)
            if runs_on(shape, node.metadata.labels, taints) and self._creates(body, f"DaemonSet {meta.key}"):
                owner = {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": meta.name,
                    "uid": uid,
                    "controller": True,
                }
                name = f"{meta.name}-{node_name}"
                pod = body.pod(name, meta.namespace, {"ownerReferences": [owner]}, nodeName=node_name)
                self._server.store("pods", pod)

    def _of_daemon(self, uid: str) -> tuple[PodShape, PodBody]:
        """The pods of a DaemonSet."""
        found = self._of_daemons.get(uid)
        if found is None:
            found = self._of_daemons[uid] = self._admission.daemon_pods(self._daemons[uid])
        return found

    def _collect(self, node_name: str) -> None:
        """The Node is gone, and with it whatever was bound to it."""
        for pod in self._server.pods_on(node_name):
            self._server.drop("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])


def _plurals(kind: OwnerKind) -> tuple[str, ...]:
    return ("jobs",) if kind == "Job" else ("deployments", "replicasets")
