"""Decides when kube-scheduler has not followed a plan, why, and how often a class of pods is planned again.

Times are seconds of one monotonic clock. A pod is *missed* when its node has been open to it and it was not bound there,
or when its time is over and the node still lacks what it needs.
"""

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis.reports import WAITING_FOR_ROOM

PATIENCE_SECONDS: Final = 15.0
PATIENCE_PER_WAITING_POD: Final = 0.020
"""kube-scheduler binds 50 pods a second with its default client limits, and tries a pod again after at most 10 s."""
TURN_SECONDS: Final = 5.0
"""A pod that the pods planned beside it must precede, and whose room is held meanwhile, is given so long (and as much for each that waits),
and so long again after each of them that is bound or whose node opens."""
NOMINATED_SECONDS: Final = 15.0
"""A nomination that led nowhere is taken back ten seconds after its node is ready; nothing holds the room from then on, however many pods wait."""
LEAVING_SECONDS: Final = 60.0
"""A pod that moves is given so long, and again after each of them, where a node that drains is a topology domain until its Node is gone.
Where no pod may leave that node, as a PodDisruptionBudget keeps them until this one is bound, it is given `TURN_SECONDS`."""
TOGETHER_SECONDS: Final = 1.0
"""Plans of one batch are made within so long of one another."""
MARGIN_SECONDS: Final = 1.0
"""What is said so soon after a plan is made for a node that was there already may be about the time before."""

MISSES_UNTIL_STOP: Final = 3
STOP_SECONDS: Final = 30.0
LONGEST_STOP_SECONDS: Final = 1800.0
AVOID_SECONDS: Final = 600.0
"""A pod avoids a node for so long after it was missed there; kube-scheduler may bind it there all the same."""
_MOST_NODES: Final = 16  # avoided by one pod, or remembered of a class
_MOST_CLASSES: Final = 10_000
_MOST_STEPS: Final = 1_000

UNANSWERED: Final = "unanswered"
_TAINTS: Final = "taints"
_CAUSES: Final = (
    ("topology_spread", ("topology spread",)),
    ("pod_affinity", ("pod affinity", "anti-affinity")),
    ("volumes", ("volume", "PersistentVolume", "CSI driver")),
    ("host_ports", ("ports",)),
    ("resources", ("Insufficient", "Too many pods")),
    ("node_affinity", ("node affinity", "node selector")),
    ("features", ("required features",)),
    ("held", ("planned pods", "dovetail")),
    (_TAINTS, ("untolerated taint",)),
    ("cordoned", ("unschedulable",)),
)
_RELATIVE: Final = ("topology spread", "pod affinity")  # what depends on where other pods are
_BY_OTHERS: Final = ("topology_spread", "pod_affinity")
OTHER: Final = "other"
CAUSES: Final = (*(cause for cause, _ in _CAUSES), OTHER, UNANSWERED)
"""Every cause that `cause_of` and `verdict` tell."""
_NODES: Final = re.compile(r"^0/(\d+) nodes are available")
_PART: Final = re.compile(r"^(\d+) (.+)$", re.DOTALL)


def patience(waiting: int) -> float:
    """How long kube-scheduler is given to bind a planned pod after its node opened, if so many pods waited then."""
    return PATIENCE_SECONDS + PATIENCE_PER_WAITING_POD * waiting


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a planned pod whose node is open to it.

    Attributes:
        open_for: seconds since the node opened, as we saw it.
        said_then: what kube-scheduler said of the pod when the node opened, "" for nothing.
        said: what it says now.
        unschedulable: whether it says so of a cycle that found no node (not of an error of its own).
        least: Nodes that there were when the planned one joined, less those that went since; 0 where it was there before
            the plan.
        nodes: Nodes that there are.
        tainted: how many of them have a taint that the pod does not tolerate, cordoned ones left out.
        nodes_then: Nodes that there were when the planned one opened.
        tainted_then: how many of those had such a taint.
        waiting: pods that waited for a node when this one opened.
        quiet_for: seconds since the node opened, or since a pod planned with it or before was bound, or its node opened.
        coming: whether a node that was planned together with this one is still to open.
        older: whether the pod is, as it was seen last, from before the node opened: so is what is said of it.
        came_open: whether the pod was created after the node had opened: nothing that is said of it is older.
        leaving: whether a node that the pod leaves, or that the planned one replaces, is still there.
        held: whether the node that it leaves waits for pods none of which may go, by their PodDisruptionBudget not before this one is bound.
        nominated: whether the pod was nominated to the node: its room is kept there meanwhile, as that of others is on their nodes.
        grouped: whether it is of a group: kube-scheduler binds all of it or none, and says of one that fits that the group does not.
        alive: whether this pod's scheduler has bound or judged any pod since the node opened.
    """

    open_for: float
    said_then: str
    said: str
    unschedulable: bool
    least: int
    nodes: int
    tainted: int
    nodes_then: int
    tainted_then: int
    waiting: int
    quiet_for: float
    coming: bool
    older: bool
    came_open: bool
    leaving: bool
    held: bool
    nominated: bool
    grouped: bool
    alive: bool


class PlanProgress:
    """When something was last done for pods that were planned at some time or before: who waits behind them is not forgotten yet.

    Pods that are planned later do not count: a cluster in which pods come and go all the time would never be quiet.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[float, float]] = []  # (planned at, done at), both ascending

    def note(self, planned_at: float, now: float) -> None:
        """A pod that was planned then was bound, or its node opened."""
        while self._steps and self._steps[-1][0] >= planned_at:
            self._steps.pop()
        self._steps.append((planned_at, now))
        del self._steps[:-_MOST_STEPS]

    def forget_old(self, now: float) -> None:
        """Forget what nobody's quiet time can begin with any more."""
        self._steps = [step for step in self._steps if now - step[1] <= LEAVING_SECONDS]

    def last(self, planned_at: float) -> float:
        """The last such moment for pods that were planned then, with it or before; minus infinity where there is none."""
        found = bisect_right(self._steps, planned_at + TOGETHER_SECONDS, key=lambda step: step[0])
        return self._steps[found - 1][1] if found else float("-inf")


def is_evidence(look: Look) -> bool:
    """Whether what kube-scheduler says was said with the open node in sight: it refused the pod.

    Its texts come late (it writes them at a limited rate), so a text that changes after the taint fell may still be from
    before. "0/5 nodes are available: 2 node(s) had untolerated taint(s), ..." tells: it must count as many nodes as there
    were with the planned one, and not one more tainted node than there are of those now, nor than there were of them when
    it opened: where another node was tainted since, the number may be that of before.
    """
    if look.older or not look.unschedulable or look.said == look.said_then:
        return False
    counts = counted(look.said)
    if counts is None or not look.least:
        return look.came_open or look.open_for >= MARGIN_SECONDS
    nodes, tainted = counts
    joined_since = max(0, look.nodes - nodes)  # with a taint, as new Nodes are
    joined_before = max(0, nodes - look.nodes_then)
    then = tainted if look.came_open else look.tainted_then + joined_before
    return nodes >= look.least and tainted <= min(look.tainted - joined_since, then)


def verdict(look: Look) -> str | None:
    """Why the pod was missed, one of `CAUSES`; None while it may still be bound as planned.

    A scheduler that does nothing at all refuses nobody: its pods keep their nodes until the time of the plan is over. Nor does one that
    is merely slow: while it binds pods that were planned with this one or before, this one's turn comes.
    """
    if look.grouped and (look.coming or look.quiet_for <= patience(look.waiting)):
        return None
    if is_evidence(look):
        return None if _awaits_its_turn(look) else cause_of(look.said_then, look.said)
    if look.alive and look.open_for > patience(look.waiting) and look.quiet_for > PATIENCE_SECONDS:
        return UNANSWERED
    return None


def _awaits_its_turn(look: Look) -> bool:
    """Whether pods planned beside it may make its node legal for it: their nodes are coming, the extender or its nomination keeps its room and they are
    bound in a moment, or the nodes that they leave are still there.

    Nodes of one plan open one after the other, on a cloud many seconds apart: a pod of a hard spread is refused until the other
    domains have theirs. A node that drains is such a domain, too, with ever fewer pods, until its Node is gone.
    """
    if not is_relative(look.said):
        return False
    given = TURN_SECONDS + PATIENCE_PER_WAITING_POD * look.waiting
    served = look.open_for <= given or look.quiet_for <= TURN_SECONDS
    left = look.leaving and look.quiet_for <= (TURN_SECONDS if look.held else LEAVING_SECONDS)
    nominated = look.nominated and look.open_for <= NOMINATED_SECONDS
    kept = WAITING_FOR_ROOM in look.said or (nominated and _relatively_more(look.said_then, look.said))
    return look.coming or left or (kept and served)


def _relatively_more(before: str, after: str) -> bool:
    """Whether more nodes are refused for where others are: what the planned node has against the pod may be that, and pass."""
    return not _grown(before, after).keys().isdisjoint(_BY_OTHERS)


def is_relative(text: str) -> bool:
    """Whether kube-scheduler refused a pod for where others are, on some node at least."""
    return any(word in text for word in _RELATIVE)


def counted(text: str) -> tuple[int, int] | None:
    """(nodes, tainted nodes) that a text of kube-scheduler counts; None where it is not of that form."""
    match = _NODES.match(text)
    return (int(match[1]), _parts(text)[_TAINTS]) if match else None


def cause_of(before: str, after: str) -> str:
    """What kube-scheduler's text has against nodes now that it had not before: the node that opened is among them."""
    grown = _grown(before, after)
    order = {cause: number for number, cause in enumerate(CAUSES)}
    return min(grown, key=lambda cause: (-grown[cause], order[cause]), default=OTHER)


def _grown(before: str, after: str) -> dict[str, int]:
    """By cause, how many nodes more are refused."""
    old, new = _parts(before), _parts(after)
    return {cause: new[cause] - old[cause] for cause in new if new[cause] > old[cause]}


def _parts(text: str) -> Counter[str]:
    """Nodes by cause, from "0/5 nodes are available: 1 Insufficient cpu, 4 node(s) had ... . preemption: ..."."""
    found: Counter[str] = Counter()
    _, _, told = text.partition("preemption:")[0].partition("available: ")
    for part in told.split(", "):
        if match := _PART.match(part.strip(" .")):
            what = match[2]
            if WAITING_FOR_ROOM in what:
                continue  # of other nodes than the planned one
            cause = next((cause for cause, words in _CAUSES if any(word in what for word in words)), OTHER)
            found[cause] += int(match[1])
    return found


# --- planning again, within bounds -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """No new nodes for a class of pods.

    Attributes:
        misses: plans of it, one after another, that kube-scheduler did not follow.
        seconds: for so long.
        said: what kube-scheduler said of the pod that was missed last, "" for nothing.
    """

    misses: int
    seconds: float
    said: str


@dataclass(slots=True)
class _Class:
    misses: int = 0
    counted_at: float = float("-inf")
    stops: int = 0
    until: float = float("-inf")
    stop: Stop | None = None
    nodes: dict[str, float] = field(default_factory=dict)  # name -> when a pod was missed there last


@dataclass(slots=True)
class Misses:
    """Which nodes a pod avoids, and for which classes no node is made for a while. Not thread-safe.

    Bounded: a pod's entry goes with the pod or after `AVOID_SECONDS`, a class's with a success or after the longest stop.
    """

    _avoided: dict[str, dict[str, float]] = field(default_factory=dict)  # pod UID -> node name -> until
    _classes: dict[str, _Class] = field(default_factory=dict)

    def missed(self, uid: str, klass: str, node: str, said: str, planned_at: float, now: float) -> Stop | None:
        """A pod was not bound where it was planned, and kube-scheduler said this.

        Pods of one plan that are missed together count once: the class's count grows when a plan made after the last
        miss fails too. At the third in a row, and at each one after the stop is over, new nodes stop, for twice as long
        each time.
        """
        one = self._classes.pop(klass) if klass in self._classes else _Class()
        self._classes[klass] = one  # the latest last
        if node:
            for nodes, at in ((self._avoided.setdefault(uid, {}), now + AVOID_SECONDS), (one.nodes, now)):
                nodes[node] = at
                while len(nodes) > _MOST_NODES:
                    del nodes[min(nodes, key=nodes.__getitem__)]
        if planned_at < one.counted_at:
            return None
        one.misses += 1
        one.counted_at = now
        self._trim()
        if one.misses < MISSES_UNTIL_STOP:
            return None
        seconds: float = min(LONGEST_STOP_SECONDS, STOP_SECONDS * 2**one.stops)
        one.stops = min(one.stops + 1, 16)
        one.until = now + seconds
        one.stop = Stop(one.misses, seconds, said)
        return one.stop

    def counts(self, klass: str) -> bool:
        """Whether a plan of the class failed lately."""
        return klass in self._classes

    def just_missed(self, klass: str, node: str, now: float) -> bool:
        """Whether a pod of the class was missed on this node so lately that one seen to be bound there now may have been on its way already."""
        one = self._classes.get(klass)
        return one is not None and now - one.nodes.get(node, float("-inf")) <= TURN_SECONDS

    def landed(self, klass: str) -> None:
        """A pod of the class was bound as planned, or where an equal one was: its plans work."""
        self._classes.pop(klass, None)

    def gone(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._avoided.pop(uid, None)

    def avoided(self, now: float) -> dict[str, frozenset[str]]:
        """By UID, names of the nodes that a pod avoids; pods that avoid none are left out."""
        return {
            uid: mine
            for uid, nodes in self._avoided.items()
            if (mine := frozenset(name for name, until in nodes.items() if until > now))
        }

    def stopped(self, now: float) -> dict[str, Stop]:
        """The classes for which no node is made now."""
        return {klass: one.stop for klass, one in self._classes.items() if one.stop is not None and one.until > now}

    def forget_old(self, now: float) -> None:
        """Drop what is over; call once in a while."""
        self._avoided = {
            uid: nodes for uid, nodes in self._avoided.items() if any(until > now for until in nodes.values())
        }
        self._classes = {
            klass: one
            for klass, one in self._classes.items()
            if now < max(one.until, one.counted_at) + LONGEST_STOP_SECONDS
        }

    def _trim(self) -> None:
        while len(self._classes) > _MOST_CLASSES:
            del self._classes[next(iter(self._classes))]
