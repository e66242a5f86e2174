"""What must hold after every write, and in the end. It reads the server's objects alone, never what the provisioner believes."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.command import CommandPhase, CommandRecord, command_on
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import offering_price
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire, covers
from tests.interleaving.edges import CLAIM_EDGES, COMMAND_EDGES, TERMINATING, claim_state, command_state
from tests.interleaving.gangs import GangLaw
from tests.interleaving.place import Place
from tests.interleaving.process import TYPES, Process
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

    def __init__(self, server: ApiServer, place: Place, budgets: Iterable[tuple[frozenset[str], int]]) -> None:
        self._server, self._place, self._budgets = server, place, tuple(budgets)
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self.processes: list[Process] = []
        self._commands: dict[str, Commanded] = {}
        self._of: dict[str, Commanded] = {}  # candidate -> the last command of it
        self._since: dict[tuple[str, str], int] = {}  # (what, of which) -> version since which it holds
        self._asked: set[str] = set()  # pods whose eviction the server has agreed to
        self._ended: set[str] = set()  # NodeClaims that were deleted for a command
        self.edges: Counter[tuple[str, str, str]] = Counter()
        self.undisturbed = True  # nobody was made to be late
        self.users: set[str] = set()  # claims and Nodes that users delete
        self.say: Callable[[str], None] = lambda _: None
        self.gangs = GangLaw(server, self.broken, self.seen)
        server.told, server.evicted = self._changed, self._evicted

    def broken(self, text: str) -> None:
        """Note it, once."""
        if text not in self.wrong:
            self.wrong.append(text)

    # ------------------------------------------------------------------ after every change

    def _changed(self, change: ServerChange) -> None:
        if isinstance(change.by, Process):
            self._may_write(change.by, change)
        self.say(f"{STAGE.seconds:8.2f}   {_in_words(change)}")
        self.gangs.changed(change)
        match change.plural:
            case "nodeclaims":
                self._claim(change)
            case "nodes":
                self._node(change)
            case "pods":
                self._pod(change)
            case "poddisruptionbudgets":
                self._note(
                    "blocked",
                    change.name,
                    holds=change.after is not None and change.after["status"]["disruptionsAllowed"] < 1,
                )
            case _:
                pass

    def _may_write(self, process: Process, change: ServerChange) -> None:
        if process.fence is None or process.fence.left() < -_SLACK or process.dead:
            self.broken(f"{process} wrote {change.plural} {change.name} although it does not lead")

    def _note(self, what: str, of: str, *, holds: bool) -> None:
        if not holds:
            self._since.pop((what, of), None)
        else:
            self._since.setdefault((what, of), self._server.version)

    def _pod(self, change: ServerChange) -> None:
        pod, name = change.after, change.name
        on = pod is not None and bool(pod["spec"].get("nodeName"))
        protected = pod is not None and (pod["metadata"].get("annotations") or {}).get(names.DO_NOT_DISRUPT) == "true"
        going = pod is not None and "deletionTimestamp" in pod["metadata"]
        self._note("bound", name, holds=on and not going)
        self._note("protected", name, holds=on and protected and not going)
        before = change.before
        if (
            isinstance(change.by, Process)
            and going
            and before is not None
            and "deletionTimestamp" not in before["metadata"]
            and name not in self._asked
        ):
            self.broken(f"pod {name} was deleted, and nobody asked its budget")

    def _node(self, change: ServerChange) -> None:
        before, after = change.before, change.after
        node = after or before
        assert node is not None
        closed = after is not None and any(
            one["key"] == names.DISRUPTED_TAINT.key for one in after["spec"].get("taints") or ()
        )
        self._note("closed", change.name, holds=closed)
        if after is None:
            left = [
                one for one in self._on(change.name) if self._place.running(one) or one["status"]["phase"] == "Running"
            ]
            for pod in left:
                self.broken(f"the instance of Node {change.name} ended under pod {pod['metadata']['name']}")
            self.seen["nodes ended"] += 1

    def _on(self, node: str) -> list[Wire]:
        return [one for one in self._server.objects["pods"].values() if one["spec"].get("nodeName") == node]

    def _evicted(self, by: object, pod: Wire) -> None:
        node = pod["spec"].get("nodeName", "")
        name = pod["metadata"]["name"]
        self._asked.add(name)
        self.seen["evictions"] += 1
        claim = self._claim_of_node(node)
        known = self._server.get("nodes", node)
        leaving = known is not None and "deletionTimestamp" in known["metadata"]
        if not leaving and (claim is None or "deletionTimestamp" not in claim["metadata"]):
            self.broken(f"pod {name} was evicted from Node {node}, which stays")
        closed = self._since.get(("closed", node), 0)
        if self._since.get(("protected", name), closed) < closed and not self._user_ends(claim):
            self.broken(f"pod {name} was evicted although it says do-not-disrupt")
        command = self._of.get(claim["metadata"]["name"]) if claim is not None else None
        if command is not None:
            labels = pod["metadata"]["labels"]
            slot = f"{labels['app']}-{labels['slot']}"
            command.evicted[slot] += 1
            if command.evicted[slot] > 1:
                self.broken(f"{slot} was evicted twice for command {command.record.id}")

    # ------------------------------------------------------------------ claims and commands

    def _claim(self, change: ServerChange) -> None:
        before, after = change.before, change.after
        self._edge(change)
        text = _command_of(after)
        if text and text != _command_of(before):
            record = command_on(_decoded(after))
            if record is not None:
                self._committed(record, change)
        elif before is not None and after is not None and _command_of(before) and not text:
            self._called_off(change)
        if _is_going(after) and not _is_going(before):
            self._deleted(change)
        if before is None:
            self.seen["claims"] += 1

    def _edge(self, change: ServerChange) -> None:
        """Every change of state is in its table."""
        found = [("NodeClaim", claim_state(change.before), claim_state(change.after), CLAIM_EDGES)]
        found.append(("command", _record_state(change.before), _record_state(change.after), COMMAND_EDGES))
        for what, old, new, table in found:
            if old == new:
                continue
            self.edges[what, old, new] += 1
            if (old, new) not in table:
                self.broken(f"the {what} of {change.name} went from {old} to {new}")

    def _committed(self, record: CommandRecord, change: ServerChange) -> None:
        if record.id in self._commands:
            self._commands[record.id].record = record
            return
        for name in record.candidate_names:
            other = self._of.get(name)
            holder = self._server.get("nodeclaims", other.record.holder) if other is not None else None
            if other is not None and holder is not None and other.record.id in _command_of(holder):
                self.broken(f"NodeClaim {name} is a candidate of two commands")
        commanded = self._commands[record.id] = Commanded(record)
        self._of.update(dict.fromkeys(record.candidate_names, commanded))
        self.seen[f"commands {record.method}"] += 1
        self._within_budget(record)
        if not record.replacements:
            self._has_places(record)
        if record.reason == names.REASON_UNDERUTILIZED:
            self._pays(record)

    def _within_budget(self, record: CommandRecord) -> None:
        going: dict[str, str] = {}
        for claim in self._server.objects["nodeclaims"].values():
            if _command_of(claim) and (found := command_on(_decoded(claim))) is not None:
                going.update((name, found.reason) for name in found.candidate_names if self._has_node(name))
        for reasons, most in self._budgets:
            # what another reason took later counts for the budget of all, and not against who was first
            counted = sum(not reasons or reason in reasons for reason in going.values())
            if counted > most:
                self.broken(f"{counted} nodes are disrupted at once for {record.reason}, the budget is {most}")

    def _has_places(self, record: CommandRecord) -> None:
        """Where everything runs and nothing is late, each pod of a node that goes without a replacement has room elsewhere."""
        if not self.undisturbed or not all(map(self._place.running, self._server.objects["pods"].values())):
            return
        nodes = {
            self._server.objects["nodeclaims"][name].get("status", {}).get("nodeName", "")
            for name in record.candidate_names
        }
        for node in nodes:
            for pod in self._on(node):
                if not self._place.fitting(pod, without=frozenset(nodes)):
                    self.broken(
                        f"{record.method} command {record.id} leaves pod {pod['metadata']['name']} without a place"
                    )

    def _called_off(self, change: ServerChange) -> None:
        """The record was taken back, which is too late once a candidate has gone for it."""
        assert change.before is not None
        record = command_on(_decoded(change.before))
        gone = self._ended.intersection(record.candidate_names) if record is not None else set()
        self.seen["commands called off"] += 1
        for name in sorted(gone - {change.name}):
            if record is not None and self._commands.get(record.id) is self._of.get(name):
                self.broken(f"command {record.id} was called off after {name} was deleted for it")

    def _has_node(self, claim: str) -> bool:
        """A budget is about instances: one that has ended does not count while its NodeClaim still says goodbye."""
        found = self._server.get("nodeclaims", claim)
        joined = found is not None and found.get("status", {}).get("nodeName", "") in self._server.objects["nodes"]
        return joined and claim_state(found) != TERMINATING

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

    def _deleted(self, change: ServerChange) -> None:
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
        self._ended.add(change.name)
        missing = [name for name in commanded.record.replacement_names if not self._initialized(name)]
        if missing and not self._place.calm and commanded.record.phase is not CommandPhase.DELETING:
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
        after: str = claim["spec"].get("expireAfter", "Never")
        return after != "Never"

    def _initialized(self, name: str) -> bool:
        claim = self._server.get("nodeclaims", name)
        return claim is not None and any(
            one["type"] == names.INITIALIZED and one["status"] == "True"
            for one in claim.get("status", {}).get("conditions", ())
        )

    def _user_ends(self, claim: Wire | None) -> bool:
        """Whoever deletes a NodeClaim by hand waits for no look at the API server: its drain begins from the caches, as Karpenter's."""
        return claim is None or claim["metadata"]["name"] in self.users

    def _claim_of_node(self, node: str) -> Wire | None:
        known = self._server.get("nodes", node) if node else None
        wanted = known["spec"].get("providerID") if known is not None else None
        for claim in self._server.objects["nodeclaims"].values():
            status = claim.get("status", {})
            if node and (status.get("nodeName") == node or (wanted and status.get("providerID") == wanted)):
                return claim
        return None

    # ------------------------------------------------------------------ in the end

    def judge_end(self) -> None:
        """Nothing is half done, everything runs."""
        claims, nodes = self._server.all("nodeclaims"), self._server.all("nodes")
        by_id = Counter(one["spec"].get("providerID", "") for one in nodes)
        for claim in claims:
            name, status = claim["metadata"]["name"], claim.get("status", {})
            marks = {names.COMMAND_ANNOTATION, names.COMMAND_MEMBER_ANNOTATION} & claim["metadata"].get(
                "annotations", {}
            ).keys()
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


def _in_words(change: ServerChange) -> str:
    """A change for a reader: who, what, and which marks it has then."""
    what = "created" if change.before is None else "gone" if change.after is None else "changed"
    after = change.after or {"metadata": {}}
    marks = ["deleting"] if "deletionTimestamp" in after["metadata"] else []
    marks += [one for one in after["metadata"].get("annotations", {}) if one.startswith("dovetail.dev/command")]
    marks += [one["key"] for one in after.get("spec", {}).get("taints") or ()]
    true = [one["type"] for one in after.get("status", {}).get("conditions", ()) if one["status"] == "True"]
    where = after.get("spec", {}).get("nodeName", "")
    return f"{change.by or 'around'}: {change.plural} {change.name} {what} {where} {marks} {true}"


def _command_of(claim: Wire | None) -> str:
    if claim is None:
        return ""
    text: str = claim["metadata"].get("annotations", {}).get(names.COMMAND_ANNOTATION, "")
    return text


def _is_going(thing: Wire | None) -> bool:
    return thing is not None and "deletionTimestamp" in thing["metadata"]


def _record_state(claim: Wire | None) -> str:
    record = command_on(_decoded(claim)) if _command_of(claim) else None
    return command_state(record.id, record.phase, claim) if record is not None else "none"


def _decoded(claim: Any) -> NodeClaim:
    found: NodeClaim = msgspec.convert(claim, NodeClaim, strict=False)
    return found


def _is_told(claim: Wire) -> bool:
    return any(one["type"] == names.DISRUPTION_REASON for one in claim.get("status", {}).get("conditions", ()))
