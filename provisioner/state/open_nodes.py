"""Since when nodes take the pods that are planned there, and what kube-scheduler says of those from then on. Not thread-safe.

Times are monotonic seconds.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.gangs import group_of
from provisioner.apis.meta import version_number
from provisioner.apis.pods import Pod
from provisioner.state.assignments import Assignment, Assignments
from provisioner.state.claim_plans import ClaimPlans
from provisioner.state.disruption_commands import Commands
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.lacking import NOTHING, AbsentDrivers, Lacking, resources_of
from provisioner.state.misses import TOGETHER_SECONDS, Look, PlanProgress, is_evidence, is_relative, verdict
from provisioner.state.node_views import falling_taints, is_initialized
from provisioner.state.pod_index import PodIndex
from provisioner.state.staying import StayingNodes
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.values.bounded import put_newest
from provisioner.values.taints import first_untolerated

LATE_SECONDS: Final = 100.0
"""For so long after it opened, a Node is expected to get what it lacks for pods that were planned there since, and pods of its batch wait for it."""
_MOST_SCHEDULERS: Final = 64


@dataclass(slots=True)
class _Openness:
    """Whether a node takes its planned pods.

    Attributes:
        open_since: since when; None while taints that will fall are on it, or no Node has come.
        version: of its Node when it was first seen open.
        lacks: some of its pods wait for something that it lacks.
        late: so do others of their batch.
        joined: (Nodes with it, Nodes removed until then) when its Node came; None where that was before the first plan.
        empty: no Node has come.
    """

    open_since: float | None = None
    version: int = 0
    lacks: bool = False
    late: bool = False
    joined: tuple[int, int] | None = None
    empty: bool = False


class OpenNodes:
    """See the module.

    Args:
        absent: which CSI drivers initialized nodes are not expected to get.
        is_held: whether a Node that goes waits for pods of which none may leave.

    Attributes:
        progress: when something was last done for pods that were planned at some time.
    """

    def __init__(
        self,
        joining: Joining,
        pods: PodIndex,
        commands: Commands,
        assignments: Assignments,
        claims: ClaimPlans,
        staying: StayingNodes,
        around: SurroundingsKeeper,
        absent: AbsentDrivers,
        is_held: Callable[[NodeKey], bool],
    ) -> None:
        self._joining, self._pods, self._commands, self._assignments = joining, pods, commands, assignments
        self._claims, self._staying, self._around, self._is_held = claims, staying, around, is_held
        self._absent = absent
        self._openness: dict[NodeKey, _Openness] = {}  # of nodes that have assignments
        # since when nodes are open, also those whose assignments have ended; for ever, where they were initialized when we first looked
        self._opened: dict[NodeKey, float] = {}
        # when the plans of pods were made whose nodes are not open to them, ascending; None: to be counted
        self._coming: list[float] | None = None
        self.progress = PlanProgress()
        self._acted_at: dict[str, float] = {}  # scheduler name -> when it last bound or judged a pod

    def note(self, key: NodeKey, now: float, version: int = 0) -> None:
        """A node with assignments is another one, or has other assignments; `version`: of what has changed about it beside its Node."""
        node, claim = self._joining.pair(key) or (None, None)
        if (openness := self._openness.get(key)) is None:
            openness = self._openness[key] = _Openness(empty=node is None)
            self._coming = None
        if node is not None and openness.empty:
            openness.joined, openness.empty = (len(self._joining.nodes), self._joining.nodes_removed), False
        if node is None or falling_taints(node, claim):
            self._coming = None if openness.open_since is not None else self._coming
            openness.open_since, openness.lacks, openness.late, openness.empty = None, False, False, node is None
            self._opened.pop(key, None)
            for one in self._assignments.on(key):
                one.open_since, one.lacks, one.complete = None, False, 0
            return
        if openness.open_since is None:
            openness.open_since, self._coming = now, None
            openness.version = version_number(node.metadata.resource_version)
            for one in self._assignments.on(key):
                self.progress.note(one.made_at, now)
        there, initialized = resources_of(node), is_initialized(node, claim)
        opened = self._opened.setdefault(key, now if not initialized else float("-inf"))
        within, seen = now < opened + LATE_SECONDS, max(1, version, version_number(node.metadata.resource_version))
        for one in self._assignments.on(key):
            lacking = self._lacking(one, node, there)
            if initialized:  # a new node is so without the drivers that need not be there
                lacks = bool(lacking.drivers) and (within or self._is_restarting(key, node, lacking.drivers, now))
            else:
                lacks = lacking is not NOTHING and (within or one.made_at <= opened)
            waited = one.lacks
            self._note_lacks(one, lacks, seen if lacking is NOTHING else 0, now)
            if one.open_since is None and not one.lacks:
                in_vain = waited and not one.complete  # what was said meanwhile counts
                self._open(one, max(opened, one.made_at) if in_vain else now, now)
        openness.lacks = any(one.lacks for one in self._assignments.on(key))
        if openness.late != (openness.lacks and within):
            openness.late, self._coming = not openness.late, None

    def look_again(self, keys: Iterable[NodeKey], now: float, version: int = 0) -> None:
        """What these nodes lack is another, or is not expected there any more; `version`: as of `note`."""
        for key in keys:
            if self._assignments.has(key):
                self.note(key, now, version)

    def end_waits(self, now: float) -> None:
        """What nodes lack that opened too long ago, others wait for no longer. O(nodes with assignments)."""
        late = [key for key, one in self._openness.items() if one.late]
        self.look_again([key for key in late if now >= self._opened.get(key, now) + LATE_SECONDS], now)

    def drivers_changed(self, now: float, node_name: str = "", version: int = 0) -> None:
        """Other CSI drivers are on a Node, as its CSINode of that version says, or, without a name, are known. O(assignments there)."""
        keys = [self._joining.key_of_name(node_name)] if node_name else self._assignments.keys
        self.look_again(keys, now, version)

    def is_open(self, key: NodeKey) -> bool:
        """Whether no taint that will fall keeps the pods off that are planned on a node."""
        openness = self._openness.get(key)
        return openness is not None and openness.open_since is not None

    def lacking(self, key: NodeKey, node: Node) -> Lacking:
        """What this Node of the key lacks of what the pods need that it keeps room for, also of those that still run on a node that they leave.

        Of CSI drivers only those count that must be there, of pods that were planned there after it opened only those that wait.
        Cost: O(assignments of the node, and their volumes).
        """
        there = resources_of(node)
        opened = self._opened.get(key)
        mine = (one for one in self._assignments.on(key) if opened is None or one.lacks or one.made_at <= opened)
        found = [self._lacking(one, node, there) for one in mine]
        resources = {name for one in found for name in one.resources}
        awaited = {driver for one in found for driver in one.drivers}
        drivers = awaited & self._around.drivers_missing(node.metadata.name)
        return Lacking(tuple(sorted(resources)), tuple(sorted(drivers)))

    def recount(self) -> None:
        """Assignments of some node were made, or the last ones of a batch ended."""
        self._coming = None

    def forget(self, key: NodeKey) -> None:
        """A node has no assignments."""
        openness = self._openness.pop(key, None)
        if openness is not None and (openness.open_since is None or openness.late):
            self._coming = None
        if self._joining.pair(key) is None:
            self._opened.pop(key, None)

    def acted(self, scheduler: str, now: float) -> None:
        """A scheduler has bound or judged a pod."""
        put_newest(self._acted_at, scheduler, now, _MOST_SCHEDULERS)

    def took_over(self, one: Assignment, pod: Pod, now: float, *, is_new: bool) -> None:
        """A pod, seen for the first time (`is_new`) or before, has the place of another one: what was said of that one says nothing of it."""
        one.open_since = None
        self.note(one.key, now)
        # where the pods' watch lags, a pod that is seen for the first time may have been judged before the node opened
        seen_open = is_new and one.open_since is not None and not pod.unschedulable
        one.came_open = seen_open and not self._is_older(pod, one)

    def shut_out(self, key: NodeKey) -> list[Assignment]:
        """What is planned onto a Node that somebody cordons before it is open to it; of an open one kube-scheduler says so at once."""
        node, _ = self._joining.pair(key) or (None, None)
        openness = self._openness.get(key)
        if node is None or openness is None or not (openness.open_since is None or openness.lacks):
            return []
        cordon = [taint for taint in node.spec.taints if taint.key == names.CORDONED_TAINT_KEY]
        return [
            one
            for one in (self._assignments.on(key) if cordon else ())
            if one.open_since is None
            and (one.shape is None or first_untolerated(one.shape.tolerations, cordon) is not None)
        ]

    def missed(self, one: Assignment, pod: Pod, now: float, *, hear: bool = False) -> str | None:
        """Why a pod that waits was missed on a node that is open to it; None while it may still be bound. What is said too early to tell is heard."""
        look = self._look(one, pod, now)
        cause = verdict(look)
        if cause is None and hear and pod.scheduled_message != one.said and not is_evidence(look):
            one.said = pod.scheduled_message  # what is said from now on counts
        return cause

    def is_unanswered(self, now: float, uid: str) -> bool:
        """Whether the Node that came for this pod is open to it, and its scheduler has neither bound it nor refused it there since.

        Of a node that was open before it was planned there, a scheduler may have nothing new to say.
        """
        one, pod = self._assignments.of_pod(uid), self._pods.get(uid)
        openness = self._openness.get(one.key) if one is not None else None
        if one is None or pod is None or pod.node_name or openness is None or openness.joined is None:
            return False
        came = openness.open_since is not None and (openness.open_since == one.open_since or one.complete > 0)
        return came and one.open_since is not None and not is_evidence(self._look(one, pod, now))

    def companions_coming(self, claims: Collection[str]) -> bool:
        """Whether a claim that was planned together with these, and is none of them, is still to be let in. O(nodes that are not open).

        One whose launch takes long counts, until its provider says that there is no instance.
        """
        times = [at for name in claims for at in self._assignments.made_at(NodeKey(name))]
        if not times:
            return False
        first, last = min(times) - TOGETHER_SECONDS, max(times) + TOGETHER_SECONDS
        return any(
            openness.open_since is None
            and key.name not in claims
            and any(first <= at <= last for at in self._assignments.made_at(key))
            and self._is_to_be_let_in(key)
            for key, openness in self._openness.items()
        )

    def _lacking(self, one: Assignment, node: Node, there: frozenset[str]) -> Lacking:
        """What a Node, which has these resources, lacks of what one pod needs."""
        shape = one.shape
        if shape is None or (not shape.volumes and there.issuperset(shape.requests.wanted)):
            return NOTHING
        resources = tuple(sorted({*shape.requests.wanted} - there))
        pod = self._pods.get(one.uid) if shape.volumes else None
        drivers = tuple(sorted(self._around.drivers_awaited(node.metadata.name, pod))) if pod is not None else ()
        return Lacking(resources, drivers) if resources or drivers else NOTHING

    def _is_restarting(self, key: NodeKey, node: Node, drivers: Iterable[str], now: float) -> bool:
        """Whether one of these drivers, which a node lacks, must be there and is expected back."""
        required = self._around.drivers_missing(node.metadata.name).intersection(drivers)
        return any(self._absent.is_expected(key, driver, now) for driver in required)

    def _note_lacks(self, one: Assignment, lacks: bool, version: int, now: float) -> None:
        """Of an open node, whether this pod waits for what it lacks, and the version with which it lacks nothing, else 0."""
        if lacks:
            one.open_since = None
        if lacks != one.lacks:
            one.lacks, self._coming = lacks, None
            if not lacks:
                one.complete = version
                self.progress.note(one.made_at, now)

    def _open(self, one: Assignment, since: float, now: float) -> None:
        """The node takes this pod since then."""
        one.open_since, one.waiting, one.said, one.came_open = since, self._pods.waiting_count, "", False
        pod = self._pods.get(one.uid)
        if pod is None:
            return
        one.nodes, one.tainted = len(self._joining.nodes), self._joining.tainted_for(pod.shape.tolerations)
        # kube-scheduler may have been quicker than our watch of Nodes: then its verdict is there already
        one.said = "" if is_evidence(self._look(one, pod, now)) else pod.scheduled_message

    def _look(self, one: Assignment, pod: Pod, now: float) -> Look:
        openness = self._openness.get(one.key)
        since = one.open_since if one.open_since is not None else now
        opened = openness.open_since if openness is not None else None
        told = one.came_open or (opened is not None and opened >= one.made_at and not one.complete)
        joined = openness.joined if openness is not None and told else None
        leaving, is_relatively, grouped = self._is_left(one), is_relative(pod.scheduled_message), bool(group_of(pod))
        return Look(
            open_for=now - since,
            said_then=one.said,
            said=pod.scheduled_message,
            unschedulable=pod.unschedulable,
            least=max(1, joined[0] + joined[1] - self._joining.nodes_removed) if joined is not None else 0,
            nodes=len(self._joining.nodes),
            tainted=self._joining.tainted_for(pod.shape.tolerations),
            nodes_then=one.nodes,
            tainted_then=one.tainted,
            waiting=one.waiting,
            quiet_for=now - max(since, self.progress.last(one.made_at)),
            coming=(is_relatively or grouped) and self._is_coming(one.made_at),
            older=self._is_older(pod, one),
            came_open=one.came_open,
            leaving=leaving,
            held=leaving and is_relatively and self._is_held(self._joining.key_of_name(one.leaves)),
            nominated=one.nominated[0] == pod.uid and self._joining.key_of_name(one.nominated[1]) == one.key,
            grouped=grouped,
            alive=self._acted_at.get(pod.shape.scheduler_name, float("-inf")) > since,
        )

    def _is_older(self, pod: Pod, one: Assignment) -> bool:
        """Whether the pod, as it is known, is from before the node opened to it."""
        openness = self._openness.get(one.key)
        return openness is not None and version_number(pod.resource_version) < max(openness.version, one.complete)

    def _is_left(self, one: Assignment) -> bool:
        """Whether a Node that goes, and that the pod leaves or its node replaces, is still there."""
        return self._staying.goes(one.leaves) or (
            one.key.of_claim and self._commands.for_which(one.key.name) is not None
        )

    def _is_coming(self, made_at: float) -> bool:
        """Whether a node for which pods were planned then is still to open to them. O(log nodes), and O(nodes) after one of them opened or closed."""
        if self._coming is None:
            closed = (key for key, openness in self._openness.items() if openness.open_since is None or openness.late)
            ones = (one for key in closed for one in self._assignments.on(key))
            self._coming = sorted({one.made_at for one in ones if one.open_since is None})
        at = bisect_left(self._coming, made_at - TOGETHER_SECONDS)
        return at < len(self._coming) and self._coming[at] <= made_at + TOGETHER_SECONDS

    def _is_to_be_let_in(self, key: NodeKey) -> bool:
        node, claim = self._joining.pair(key) or (None, None)
        joins = node is None or any(taint.key == names.UNREGISTERED_TAINT.key for taint in node.spec.taints)
        return joins and claim is not None and not self._claims.is_refused(key.name)
