"""What must hold of repairs and reboots while things break: of their calls, of budgets and the breaker, and that nobody is forgotten.

Told by the same watches as the rest; the records on NodeClaims are read as JSON, and counts are made here.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis.names import (
    COMMAND_ANNOTATION,
    NODEPOOL_LABEL,
    REASON_UNHEALTHY,
    REBOOT_ANNOTATION,
    REBOOTING,
    REBOOTING_TAINT,
)
from provisioner.lab.harness.session import AWS

BUDGET: Final = 0.5
"""Of the nodes of each NodePool; `stage` says so to each."""
BREAKER: Final = 0.2
BLIND_SECONDS: Final = 40.0
"""The provisioner may be stopped, and its watches may be late, for so long together: it decides by what was true within them."""


@dataclass(frozen=True)
class NodeFault:
    """A condition that means a broken Node.

    Attributes:
        kind: type of the condition; likewise `status`, `reason`.
        well: the status of a Node that is well.
        reboots: a reboot is said to help.
    """

    kind: str
    status: str
    reason: str
    well: str
    reboots: bool = False


_GPU: Final = "AcceleratedHardwareReady"
FAULTS: Final[Mapping[str, tuple[NodeFault, ...]]] = {
    "kwok": (
        NodeFault("KWOKUnhealthy", "True", "Broken", "False"),
        NodeFault("KWOKRebootRequired", "True", "Broken", "False", reboots=True),
    ),
    AWS: (
        NodeFault(_GPU, "False", "NvidiaXID79Error", "True"),
        NodeFault(_GPU, "False", "NvidiaXID46Error", "True", reboots=True),
    ),
}
"""By cloud: one for which a node is replaced, and one for which it is rebooted."""
_UNWELL: Final = {(one.kind, one.status) for those in FAULTS.values() for one in those} | {
    ("Ready", "False"),
    ("Ready", "Unknown"),
}


@dataclass
class _Pool:
    """The Nodes of a NodePool, and whether each is broken; `past` has instants with the count of all and of broken ones."""

    nodes: dict[str, bool] = field(default_factory=dict)
    past: list[tuple[float, int, int]] = field(default_factory=list)

    def note(self, now: float) -> None:
        self.past = [one for one in self.past if one[0] > now - BLIND_SECONDS][-500:] + self.past[-1:]
        self.past.append((now, len(self.nodes), sum(self.nodes.values())))


class Repairs:
    """What was seen of repairs, from watch events; whoever calls has a lock.

    Attributes:
        wrong: every repair that should not have begun.
        begun: repairs and reboots that have begun.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.begun: set[tuple[str, str]] = set()
        self._intents: set[tuple[str, str, int]] = set()
        self._boots: defaultdict[str, set[str]] = defaultdict(set)
        self._pools: defaultdict[str, _Pool] = defaultdict(_Pool)
        self._going: defaultdict[str, set[str]] = defaultdict(set)
        self._ready_once: set[str] = set()

    @property
    def intents(self) -> int:
        """How many intents of a reboot were written."""
        return len(self._intents)

    @property
    def boots(self) -> int:
        """How often Nodes came back with another boot ID."""
        return sum(len(those) - 1 for those in self._boots.values())

    def take_node(self, kind: str, item: Mapping[str, Any], now: float) -> None:
        meta, status = item["metadata"], item.get("status", {})
        name, pool = meta["name"], self._pools[meta.get("labels", {}).get(NODEPOOL_LABEL, "")]
        if kind == "DELETED":
            pool.nodes.pop(name, None)
        else:
            told = {(one["type"], one["status"]) for one in status.get("conditions", ())}
            pool.nodes[name] = bool(told & _UNWELL)
            if boot := status.get("nodeInfo", {}).get("bootID"):
                self._boots[meta["uid"]].add(boot)
        pool.note(now)

    def take_claim(self, kind: str, item: Mapping[str, Any], now: float) -> None:
        meta, conditions = item["metadata"], item.get("status", {}).get("conditions", ())
        name, uid = meta["name"], meta["uid"]
        pool = meta.get("labels", {}).get(NODEPOOL_LABEL, "")
        if kind == "DELETED":
            self._going[pool].discard(uid)
            return
        if any((one["type"], one["status"]) == ("Initialized", "True") for one in conditions):
            self._ready_once.add(uid)
        annotations = meta.get("annotations", {})
        command = json.loads(annotations.get(COMMAND_ANNOTATION, "{}"))
        episode = json.loads(annotations.get(REBOOT_ANNOTATION, "{}")).get("episode") or {}
        if intent := episode.get("intent"):
            self._intents.add((uid, intent["at"], intent["attempt"]))
        under_way = [command["id"]] if command.get("reason") == REASON_UNHEALTHY else []
        under_way += [episode["requested"]] if episode and not episode.get("end") else []
        if not under_way and not meta.get("deletionTimestamp"):
            self._going[pool].discard(uid)
        for one in under_way:
            self._going[pool].add(uid)
            if (uid, one) not in self.begun:
                self.begun.add((uid, one))
                self.wrong += [f"the repair of {name} {text}" for text in self._broken(pool, uid, now)]

    def _broken(self, pool: str, uid: str, now: float) -> Iterator[str]:
        """What was promised of a repair when it begins."""
        if not pool:
            return
        seen = self._pools[pool]
        recent = [one for one in seen.past if one[0] > now - BLIND_SECONDS] or seen.past[-1:]
        if not recent:
            return
        nodes = max(total for _, total, _ in recent)
        going = len(self._going[pool] & self._ready_once)
        if uid in self._ready_once and going > math.ceil(BUDGET * nodes):
            yield f"is one of {going} of {nodes} nodes of {pool}, beyond the budget"
        if all(ill > math.ceil(BREAKER * total) for _, total, ill in recent):
            yield f"began while too many nodes of {pool} were broken: {recent[-1][1:]}"


def calls_without_an_intent(repairs: Repairs, calls: int | None) -> list[str]:
    """Whether the cloud was called, or Nodes booted again, more often than was written before.

    Args:
        repairs: what was seen.
        calls: of RebootInstances, by the count of EC2; None on kwok, where each call is a boot at most.
    """
    called = repairs.boots if calls is None else calls
    return [f"{called} reboots of {repairs.intents} intents"] if called > repairs.intents else []


def left_behind(nodes: Iterable[Any], claims: Iterable[Any]) -> list[str]:
    """Marks of reboots that are over, or should be: taints and conditions."""
    found = [f"Node {one.metadata.name} is tainted" for one in nodes if REBOOTING_TAINT in one.spec.taints]
    return found + [
        f"NodeClaim {one.metadata.name} is {told.type}, {told.reason}"
        for one in claims
        for told in one.status.conditions
        if told.type == REBOOTING and told.status == "True"
    ]


def wire_now() -> str:
    """As Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
