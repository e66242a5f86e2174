"""What must hold after every write, and in the end. It reads the server's objects alone, never what the provisioner believes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.command import CommandRecord, command_on
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import offering_price
from tests.interleaving.place import NAMESPACE, POOL, Place
from tests.interleaving.process import TYPES, Process
from tests.interleaving.server import Change, Server, Wire, covers
from tests.interleaving.threads import STAGE

#: After the end of a term a write that was sent in time may still arrive; ours arrive at once.
_SLACK: Final = 1e-9


@dataclass
class Commanded:
    """A command whose record was written.

    Attributes:
        closed_at: by candidate, the number of the change after which its Node was closed without a break.
        evicted: the slots whose pods were evicted from its candidates.
    """

    record: CommandRecord
    closed_at: dict[str, int] = field(default_factory=dict)
    evicted: Counter[str] = field(default_factory=Counter)


class Oracle:
    """Judges every change.

    Attributes:
        wrong: every broken promise, in words.
        seen: what has happened, for whoever wants to know that a play was worth it.
    """

    def __init__(self, server: Server, place: Place, budgets: Iterable[tuple[frozenset[str], int]]) -> None:
        self._server, self._place, self._budgets = server, place, tuple(budgets)
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self.processes: list[Process] = []
        self._commands: dict[str, Commanded] = {}
        self._of: dict[str, Commanded] = {}  # candidate -> the last command of it
        self._since: dict[tuple[str, str], int] = {}  # (what, of which) -> version since which it holds
        self.users: set[str] = set()  # claims and Nodes that users delete
        server.told, server.evicted = self._changed, self._evicted

    def broken(self, text: str) -> None:
        """Note it, once."""
        if text not in self.wrong:
            self.wrong.append(text)

    # ------------------------------------------------------------------ after every change

    def _changed(self, change: Change) -> None:
        if isinstance(change.by, Process):
            self._may_write(change.by, change)
        match change.plural:
            case "nodeclaims":
                self._claim(change)
            case "nodes":
                self._node(change)
            case "pods":
                self._pod(change)
            case "poddisruptionbudgets":
                self._note(
                    "blocked", change.name, holds=change.after is not None and change.after["status"]["disruptionsAllowed"] < 1
                )

    def _may_write(self, process: Process, change: Change) -> None:
        if process.fence is None or process.fence.left() < -_SLACK or process.dead:
            self.broken(f"{process} wrote {change.plural} {change.name} although it does not lead")

    def _note(self, what: str, of: str, *, holds: bool) -> None:
        if not holds:
            self._since.pop((what, of), None)
        else:
            self._since.setdefault((what, of), self._server.version)

    def _pod(self, change: Change) -> None:
        pod, name = change.after, change.name
        on = pod is not None and bool(pod["spec"].get("nodeName"))
        protected = pod is not None and (pod["metadata"].get("annotations") or {}).get(names.DO_NOT_DISRUPT) == "true"
        going = pod is not None and "deletionTimestamp" in pod["metadata"]
        self._note("bound", name, holds=on and not going)
        self._note("protected", name, holds=on and protected and not going)
        if pod is not None and going and isinstance(change.by, Process):
            self.seen["deleted by us"] += 1

    def _node(self, change: Change) -> None:
        before, after = change.before, change.after
        node = after or before
        assert node is not None
        closed = after is not None and any(
            one["key"] == names.DISRUPTED_TAINT.key for one in after["spec"].get("taints") or ()
        )
        self._note("closed", change.name, holds=closed)
        if after is None:
            left = [one for one in self._on(change.name) if self._place.running(one) or one["status"]["phase"] == "Running"]
            for pod in left:
                self.broken(f"the instance of Node {change.name} ended under pod {pod['metadata']['name']}")
            self.seen["nodes ended"] += 1

    def _on(self, node: str) -> list[Wire]:
        return [one for one in self._server.objects["pods"].values() if one["spec"].get("nodeName") == node]

    def _evicted(self, by: object, pod: Wire) -> None:
        node = pod["spec"].get("nodeName", "")
        name = pod["metadata"]["name"]
        self.seen["evictions"] += 1
        claim = self._claim_of_node(node)
        known = self._server.get("nodes", node)
        leaving = known is not None and "deletionTimestamp" in known["metadata"]
        if not leaving and (claim is None or "deletionTimestamp" not in claim["metadata"]):
            self.broken(f"pod {name} was evicted from Node {node}, which stays")
        if (pod["metadata"].get("annotations") or {}).get(names.DO_NOT_DISRUPT) == "true":
            if self._server.version - self._since.get(("protected", name), self._server.version) > 60:  # noqa: PLR2004
                self.broken(f"pod {name} was evicted although it says do-not-disrupt")
        command = self._of.get(claim["metadata"]["name"]) if claim is not None else None
        if command is not None:
            labels = pod["metadata"]["labels"]
            slot = f"{labels['app']}-{labels['slot']}"
            command.evicted[slot] += 1
            if command.evicted[slot] > 1:
                self.broken(f"{slot} was evicted twice for command {command.record.id}")

    # ------------------------------------------------------------------ claims and commands

    def _claim(self, change: Change) -> None:
        before, after = change.before, change.after
        text = _command_of(after)
        if text and text != _command_of(before):
            record = command_on(_decoded(after))
            if record is not None:
                self._committed(record, change)
        if after is not None and "deletionTimestamp" in after["metadata"]:
            if before is None or "deletionTimestamp" not in before["metadata"]:
                self._deleted(change)
        if before is None:
            self.seen["claims"] += 1

    def _committed(self, record: CommandRecord, change: Change) -> None:
        if record.id in self._commands:
            self._commands[record.id].record = record
            return
        commanded = self._commands[record.id] = Commanded(record)
        self._of.update(dict.fromkeys(record.candidate_names, commanded))
        self.seen[f"commands {record.method}"] += 1
        self._within_budget(record)
        if record.reason == names.REASON_UNDERUTILIZED:
            self._pays(record)

    def _within_budget(self, record: CommandRecord) -> None:
        going = set()
        for claim in self._server.objects["nodeclaims"].values():
            if _command_of(claim) and (found := command_on(_decoded(claim))) is not None:
                going |= {name for name in found.candidate_names if name in self._server.objects["nodeclaims"]}
        for reasons, most in self._budgets:
            if (not reasons or record.reason in reasons) and len(going) > most:
                self.broken(f"{len(going)} nodes are disrupted at once for {record.reason}, the budget is {most}")

    def _pays(self, record: CommandRecord) -> None:
        now = sum(self._price(name) for name in record.candidate_names)
        then = 0.0
        for one in record.replacements:
            body = one.body or {}
            kind, zone, capacity = body["metadata"]["annotations"][names.PLANNED_OFFERING_ANNOTATION].split("/")
            then += offering_price(TYPES[kind], zone, capacity) or 0.0
        if then >= now:
            self.broken(f"consolidation {record.id} costs ${then:.4f}/h instead of ${now:.4f}/h")

    def _price(self, claim: str) -> float:
        labels = self._server.objects["nodeclaims"][claim]["metadata"]["labels"]
        kind = TYPES[labels[names.INSTANCE_TYPE_LABEL]]
        return offering_price(kind, labels[names.ZONE_LABEL], labels[names.CAPACITY_TYPE_LABEL]) or 0.0

    def _deleted(self, change: Change) -> None:
        """A claim begins to end: where that is for a command, nothing may have forbidden it since its Node was closed."""
        commanded = self._of.get(change.name)
        after = change.after
        assert after is not None
        if not isinstance(change.by, Process) or change.name in self.users:
            return
        node = after.get("status", {}).get("nodeName", "")
        if commanded is None or not _is_told(after):
            left = [one for one in self._on(node) if self._place.running(one)] if node else []
            if left and not self._may_expire(after):
                self.broken(f"NodeClaim {change.name} with pods was deleted for no command")
            return
        self.seen["deleted for commands"] += 1
        missing = [name for name in commanded.record.replacement_names if not self._initialized(name)]
        if missing and not self._place.calm and not commanded.record.phase == "Deleting":
            self.broken(f"NodeClaim {change.name} was deleted before its replacement {missing[0]} was initialized")
        known = self._server.get("nodes", node)
        closed = self._since.get(("closed", node))
        if known is None or "deletionTimestamp" in known["metadata"]:
            return
        if closed is None:
            self.broken(f"NodeClaim {change.name} was deleted while its Node took pods")
            return
        for pod in self._on(node):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                continue
            if self._since.get(("protected", name), closed + 1) <= closed:
                self.broken(f"NodeClaim {change.name} was deleted under pod {name}, which says do-not-disrupt")
            for budget in self._server.all("poddisruptionbudgets"):
                blocked = self._since.get(("blocked", budget["metadata"]["name"]), closed + 1) <= closed
                if blocked and covers(budget, pod) and self._since.get(("bound", name), closed + 1) <= closed:
                    self.broken(f"NodeClaim {change.name} was deleted under pod {name}, whose budget allows nothing")

    def _may_expire(self, claim: Wire) -> bool:
        return claim["spec"].get("expireAfter", "Never") != "Never"

    def _initialized(self, name: str) -> bool:
        claim = self._server.get("nodeclaims", name)
        return claim is not None and any(
            one["type"] == names.INITIALIZED and one["status"] == "True" for one in claim.get("status", {}).get("conditions", ())
        )

    def _claim_of_node(self, node: str) -> Wire | None:
        for claim in self._server.objects["nodeclaims"].values():
            if node and claim.get("status", {}).get("nodeName") == node:
                return claim
        return None

    # ------------------------------------------------------------------ in the end

    def judge_end(self) -> None:
        """Nothing is half done, everything runs."""
        claims, nodes = self._server.all("nodeclaims"), self._server.all("nodes")
        by_id = Counter(one["spec"].get("providerID", "") for one in nodes)
        for claim in claims:
            name, status = claim["metadata"]["name"], claim.get("status", {})
            marks = {names.COMMAND_ANNOTATION, names.COMMAND_MEMBER_ANNOTATION} & claim["metadata"].get("annotations", {}).keys()
            if "deletionTimestamp" in claim["metadata"]:
                self.broken(f"NodeClaim {name} does not end")
            elif not status.get("providerID") or by_id[status["providerID"]] != 1:
                self.broken(f"NodeClaim {name} has {by_id[status.get('providerID', '')]} instances")
            if marks:
                self.broken(f"NodeClaim {name} belongs to a command that does not end")
            if _is_told(claim):
                self.broken(f"NodeClaim {name} keeps its DisruptionReason")
        owned = {one.get("status", {}).get("providerID", "") for one in claims}
        for node in nodes:
            name = node["metadata"]["name"]
            if node["spec"].get("providerID", "") not in owned:
                self.broken(f"the instance of Node {name} has no NodeClaim")
            for taint in node["spec"].get("taints") or ():
                self.broken(f"Node {name} keeps the taint {taint['key']}")
        for pod in self._server.all("pods"):
            if not self._place.running(pod):
                self.broken(f"pod {pod['metadata']['name']} has no place")
        for workload in self._place.workloads.values():
            have = sum(one["metadata"]["labels"]["app"] == workload.name for one in self._server.all("pods"))
            if have != workload.replicas:
                self.broken(f"{workload.name} has {have} pods of {workload.replicas}")
        for one in STAGE.crashes:
            self.broken(one)


def _command_of(claim: Wire | None) -> str:
    if claim is None:
        return ""
    text: str = claim["metadata"].get("annotations", {}).get(names.COMMAND_ANNOTATION, "")
    return text


def _decoded(claim: Any) -> NodeClaim:
    found: NodeClaim = msgspec.convert(claim, NodeClaim, strict=False)
    return found


def _is_told(claim: Wire) -> bool:
    return any(one["type"] == names.DISRUPTION_REASON for one in claim.get("status", {}).get("conditions", ()))


__all__ = ["NAMESPACE", "POOL", "Oracle"]
