"""What an observer has seen so far, as counters and moments; fed with watch events, does no I/O of its own."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.apis.plan import Plan, PlanError, decode_plan
from provisioner.apis.pods import Pod, is_daemon
from provisioner.lab.harness.placement import LatestPlans, Placement
from provisioner.values.resources import Resources

PRICE_LABEL = "eks-node-viewer/instance-price"
PriceOf = Callable[[Mapping[str, str]], float]


@dataclass(frozen=True, slots=True)
class RunCounts:
    """One line of the live table."""

    pods: int = 0
    pending: int = 0
    planned: int = 0
    claims: int = 0
    nodes: int = 0
    running: int = 0
    stamped: int = 0
    usd_per_hour: float = 0.0


@dataclass(slots=True)
class SeenPod:
    """What is kept of a pod; moments are on the observer's monotonic clock.

    Attributes:
        nominated: the node that it was nominated to last.
        planned: when a plan first named it.
    """

    key: str
    klass: str
    daemon: bool
    added: float
    node: str = ""
    nominated: str = ""
    planned: float | None = None
    bound: float | None = None
    running: float | None = None
    stamped: bool = False
    gone: bool = False
    requests: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SeenNode:
    """What is kept of a node; `kind` is its instance type and capacity type, `ready` when it was first seen Ready."""

    usd_per_hour: float
    allocatable: Mapping[str, int]
    kind: tuple[str, str] = ("", "")
    ready: float | None = None


@dataclass(slots=True)
class SeenClaim:
    """What is kept of a NodeClaim."""

    added: float
    node: str = ""
    gone: bool = False


class Scoreboard:
    """Thread-safe. Moments are on whatever monotonic clock the caller passes, in seconds.

    Pods owned by a DaemonSet are left out of all counts: how many there are depends on the nodes.

    Args:
        price_of: USD per hour of a node, by its labels; by default what kwok nodes say of themselves.

    Attributes:
        undecodable: objects and plans that could not be read.
    """

    def __init__(self, price_of: PriceOf | None = None) -> None:
        self._price_of = price_of if price_of is not None else _labelled_price
        self._lock = threading.Lock()
        self._pods: dict[str, SeenPod] = {}
        self._nodes: dict[str, SeenNode] = {}
        self._claims: dict[str, SeenClaim] = {}
        self._plans = LatestPlans()
        self._texts: dict[str, str] = {}  # the last plan read of each source
        self._claimed: dict[str, float] = {}  # pod uid -> when the first claim that plans it appeared
        self._planned: dict[str, float] = {}  # pod uid -> when a plan first named it
        self.undecodable = 0

    def pod(self, pod: Pod, now: float, *, deleted: bool = False) -> None:
        """A pod as it is at a moment; `deleted` when this is its last state."""
        with self._lock:
            seen = self._pods.get(pod.uid)
            if seen is None:
                if deleted:
                    return
                daemon = is_daemon(pod)
                seen = SeenPod(pod.key, pod.shape.key, daemon, now, requests=pod.shape.requests)
                seen.planned = self._planned.get(pod.uid)
                self._pods[pod.uid] = seen
            if deleted:
                seen.gone = True
                return
            seen.stamped = names.STAMPED_ANNOTATION in pod.annotations
            if pod.nominated_node_name and not pod.node_name:
                seen.nominated = pod.nominated_node_name
            if pod.node_name and seen.bound is None:
                seen.node, seen.bound = pod.node_name, now
            if pod.phase == "Running" and seen.running is None:
                seen.running = now

    def node(self, node: Node, now: float = 0.0, *, deleted: bool = False) -> None:
        """A node as it is at a moment."""
        with self._lock:
            name = node.metadata.name
            if deleted:
                self._nodes.pop(name, None)
                return
            labels, before = node.metadata.labels, self._nodes.get(name)
            since = before.ready if before is not None else None
            self._nodes[name] = SeenNode(
                ready=since if since is not None or not is_true(node.status.conditions, names.READY) else now,
                usd_per_hour=self._price_of(labels),
                kind=(labels.get(names.INSTANCE_TYPE_LABEL, ""), labels.get(names.CAPACITY_TYPE_LABEL, "")),
                allocatable=_amounts(node),
            )

    def claim(self, claim: NodeClaim, now: float, *, deleted: bool = False) -> None:
        """A NodeClaim as it is at a moment."""
        with self._lock:
            name = claim.metadata.name
            seen = self._claims.setdefault(name, SeenClaim(now))
            if deleted:
                seen.gone = True
                return
            seen.gone = False
            seen.node = claim.status.node_name or seen.node
            for uid in self._read_plan(name, claim.metadata.annotations, now):
                self._claimed.setdefault(uid, seen.added)

    def counts(self) -> RunCounts:
        """The state of this moment. Cost: linear in pods and nodes."""
        with self._lock:
            pods = {uid: pod for uid, pod in self._pods.items() if not (pod.daemon or pod.gone)}
            return RunCounts(
                pods=len(pods),
                pending=sum(not pod.node for pod in pods.values()),
                planned=sum(uid in self._plans for uid in pods),
                claims=sum(not claim.gone for claim in self._claims.values()),
                nodes=len(self._nodes),
                running=sum(pod.running is not None for pod in pods.values()),
                stamped=sum(pod.stamped for pod in pods.values()),
                usd_per_hour=sum(node.usd_per_hour for node in self._nodes.values()),
            )

    def kinds(self) -> dict[tuple[str, str], int]:
        """How many nodes there are of each (instance type, capacity type), most first."""
        with self._lock:
            found = Counter(node.kind for node in self._nodes.values())
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def running_moments(self) -> list[float]:
        """When each pod of the workload was first seen running, ascending."""
        with self._lock:
            return sorted(pod.running for pod in self._workload() if pod.running is not None)

    def bound_moments(self) -> list[float]:
        """When each pod of the workload was first seen on a node, ascending."""
        with self._lock:
            return sorted(pod.bound for pod in self._workload() if pod.bound is not None)

    def added_moments(self) -> dict[str, float]:
        """When each pod of the workload appeared, by uid."""
        with self._lock:
            return {uid: pod.added for uid, pod in self._pods.items() if not pod.daemon}

    def claim_moments(self) -> list[float]:
        """When each claim appeared, ascending; deleted ones included."""
        with self._lock:
            return sorted(claim.added for claim in self._claims.values())

    def ready_moments(self) -> list[float]:
        """When each node that is there was first seen Ready, ascending."""
        with self._lock:
            return sorted(node.ready for node in self._nodes.values() if node.ready is not None)

    def claimed_moments(self) -> dict[str, float]:
        """When the claim that a pod was first planned for appeared, by pod uid."""
        with self._lock:
            return dict(self._claimed)

    def placement(self) -> Placement:
        """How much of the plan has come true by now."""
        with self._lock:
            bound = Counter((pod.node, pod.klass) for pod in self._workload() if pod.node)
            return self._plans.judge(bound, {name: claim.node for name, claim in self._claims.items()})

    def nominations(self) -> Placement:
        """What became of the pods that were nominated, each compared with the node that it was nominated to last.

        Pods of one class are interchangeable. One that preemption nominated counts too.
        """
        with self._lock:
            nominated = [pod for pod in self._workload() if pod.nominated]
            wanted = Counter((pod.nominated, pod.klass) for pod in nominated)
            bound = Counter((pod.node, pod.klass) for pod in nominated if pod.node)
        on_plan = sum(min(count, bound[place]) for place, count in wanted.items())
        landed = bound.total()
        return Placement(len(nominated), on_plan, landed - on_plan, len(nominated) - landed)

    def utilisation(self, resource: str) -> float:
        """Mean over nodes of what their pods (daemons included) request of what is allocatable, 0-1; 0 without nodes."""
        with self._lock:
            used = dict.fromkeys(self._nodes, 0)
            for pod in self._pods.values():
                if pod.node in used and not pod.gone:
                    used[pod.node] += pod.requests.get(resource, 0)
            shares = [
                used[name] / node.allocatable[resource]
                for name, node in self._nodes.items()
                if node.allocatable.get(resource)
            ]
        return sum(shares) / len(shares) if shares else 0.0

    def _workload(self) -> list[SeenPod]:
        return [pod for pod in self._pods.values() if not (pod.daemon or pod.gone)]

    def _read_plan(self, claim: str, annotations: Mapping[str, str], now: float) -> tuple[str, ...]:
        text = annotations.get(names.PLAN_ANNOTATION)
        if text is None or self._texts.get(claim) == text:
            return ()  # an unchanged plan is not news: the pod may have been planned elsewhere since
        try:
            plan = decode_plan(text)
        except PlanError:
            self.undecodable += 1
            return ()
        plan = self._of_pods_to_come(plan)
        self._plans.add(claim, plan)
        self._texts[claim] = text
        uids = tuple(uid for entry in plan.pods for uid in entry.uids)
        for uid in uids:
            moment = self._planned.setdefault(uid, now)
            if (seen := self._pods.get(uid)) is not None and seen.planned is None:
                seen.planned = moment
        return uids

    def _of_pods_to_come(self, plan: Plan) -> Plan:
        """Without the pods that are bound already: a plan that pods are added to counts their brothers on the node too."""
        entries = []
        for entry in plan.pods:
            bound = {uid for uid in entry.uids if (seen := self._pods.get(uid)) is not None and seen.node}
            if len(bound) < entry.count:
                left = tuple(uid for uid in entry.uids if uid not in bound)
                entries.append(msgspec.structs.replace(entry, count=entry.count - len(bound), uids=left))
        return msgspec.structs.replace(plan, pods=tuple(entries))


def _labelled_price(labels: Mapping[str, str]) -> float:
    try:
        return float(labels.get(PRICE_LABEL, ""))
    except ValueError:
        return 0.0


def _amounts(node: Node) -> Mapping[str, int]:
    return Resources.parse(node.status.allocatable)
