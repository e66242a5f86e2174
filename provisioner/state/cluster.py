"""The cluster as the watches tell it: machines joined from Node and NodeClaim, their room, and the live plans.

One lock, no I/O: an event changes state and returns effects for the caller to carry out (see `Effect`).
Objects are the decoded Structs that the watch stores hold; nothing is copied. A machine's view is rebuilt only
when something about it changed, so a snapshot costs one tuple however large the cluster is.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from provisioner.apis import names
from provisioner.apis.core import Amounts, CSINode, DaemonSet, LimitRange, Node, PodDisruptionBudget
from provisioner.apis.karpenter import NodeClaim, NodePool, requirements_of
from provisioner.apis.meta import is_true
from provisioner.apis.plan import Plan, PlanError, decode_plan
from provisioner.apis.pods import Pod, PodShape, is_active, is_daemon, is_mirror, is_reschedulable
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.daemons import daemon_shape, runs_on
from provisioner.state.protection import Protection
from provisioner.state.snapshot import NodeView, PoolView, Snapshot
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import RequirementError, Requirements
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint

#: How long a promise outlives the readiness of its machine.
HOLD_TTL = timedelta(seconds=120)
#: A pod that found room on a machine of now keeps it this long for kube-scheduler to bind it.
EXISTING_TTL = timedelta(seconds=20)
#: How long a promise whose pod is gone waits for the pod's successor.
OPEN_SLOT_TTL = timedelta(seconds=30)

TypesOf = Callable[[str], Mapping[str, InstanceType]]
"""Instance types by name of one NodePool; empty where the pool or its types are unknown."""


@dataclass(frozen=True, slots=True)
class ClaimUnneeded:
    """Every pod of this claim's plan found another place before the claim was launched: it can go."""

    claim: str


@dataclass(frozen=True, slots=True)
class PodSettled:
    """A planned pod's promise ended.

    `outcome` is planned (it runs there), absorbed (it runs elsewhere), displaced (others took its room) or expired.
    """

    claim: str
    uid: str
    outcome: str


@dataclass(frozen=True, slots=True)
class NominationLost:
    """kube-scheduler cleared the nomination of a pod that still has its promise: nominate it again."""

    claim: str
    pod: Pod


Effect = ClaimUnneeded | PodSettled | NominationLost


@dataclass(slots=True)
class _Slot:
    """Room for one pod, promised by one claim.

    `uid` is "" while the pod that held it is gone and an equal one of the same owner may take it.
    """

    claim: str
    owner: str
    klass: str
    uid: str
    shape: PodShape | None
    opened_at: datetime | None = None
    until: datetime | None = None  # a promise on a machine that exists already ends by itself


@dataclass(slots=True)
class _Sample:
    """The newest pod that a DaemonSet has made, for what its pods really request."""

    uid: str
    created: datetime
    requests: Resources | None  # None: of a template that is not the DaemonSet's any more


@dataclass(slots=True)
class _Plan:
    slots: list[_Slot] = field(default_factory=list)
    text: str = ""
    had_slots: bool = False


class Cluster:
    """See the module. Thread-safe; every method is short (no method waits)."""

    def __init__(self, types_of: TypesOf, now: Callable[[], datetime], *, hold_ttl: timedelta = HOLD_TTL) -> None:
        self._types_of = types_of
        self._now = now
        self._hold_ttl = hold_ttl
        self._lock = threading.RLock()
        self._settled = False
        self._nodes: dict[str, Node] = {}
        self._claims: dict[str, NodeClaim] = {}
        self._pools: dict[str, NodePool] = {}
        self._daemons: dict[str, PodShape] = {}
        self._daemon_sets: dict[str, DaemonSet] = {}
        self._daemon_samples: dict[str, _Sample] = {}
        self._ranges: defaultdict[str, dict[str, LimitRange]] = defaultdict(dict)  # namespace -> name -> LimitRange
        self._around = SurroundingsKeeper()
        self._protection = Protection()
        self._pods: dict[str, Pod] = {}  # by UID, every pod that is not finished
        self._bound: defaultdict[str, dict[str, Pod]] = defaultdict(dict)  # node name -> UID -> pod
        self._waiting: dict[str, Pod] = {}  # unbound, ungated, active, by UID
        self._claim_of_provider: dict[str, str] = {}
        self._node_of_provider: dict[str, str] = {}
        self._plans: dict[str, _Plan] = {}
        self._slot_of: dict[str, _Slot] = {}
        self._open: defaultdict[tuple[str, str], list[_Slot]] = defaultdict(list)
        self._pod_event_at: dict[str, datetime] = {}  # node name -> instant
        self._views: dict[str, NodeView] = {}
        self._dirty: set[str] = set()
        self._crowded: set[str] = set()  # machines whose room shrank since the promises were last looked at
        self._node_plans: dict[str, str] = {}  # Node name -> plan that was read or written last
        self._gone: set[str] = set()  # claims whose deletion was seen; a late own write must not revive them

    # ------------------------------------------------------------------ events

    def settle(self) -> list[Effect]:
        """The watches have told everything once: read the plans against it. Call once, before the first snapshot."""
        with self._lock:
            self._settled = True
            effects: list[Effect] = []
            for name in sorted(self._claims):
                effects += self._adopt_plan(self._claims[name])
            for name in sorted(self._nodes):
                self._adopt_node_plan(self._nodes[name])
            return effects

    def pod_changed(self, old: Pod | None, new: Pod | None) -> list[Effect]:
        """A pod was added, changed or removed (`new` is None)."""
        pod = new or old
        if pod is None:
            return []
        with self._lock:
            alive = new is not None and new.phase not in ("Succeeded", "Failed")
            known = self._pods.get(pod.uid)
            if known is not None and known.node_name:
                self._bound[known.node_name].pop(known.uid, None)
                self._touch_node(known.node_name)
            self._waiting.pop(pod.uid, None)
            if alive:
                self._pods[pod.uid] = pod
                if pod.node_name:
                    self._bound[pod.node_name][pod.uid] = pod
                    self._touch_node(pod.node_name)
                elif pod.deleted is None and not pod.gated:
                    self._waiting[pod.uid] = pod
            else:
                self._pods.pop(pod.uid, None)
            if alive and is_daemon(pod):
                self._sample(pod)
            self._note_pod_event(known, pod, alive=alive)
            return self._settle_pod(known, pod, alive=alive) if self._settled else []

    def node_changed(self, old: Node | None, new: Node | None) -> list[Effect]:
        """A Node was added, changed or removed."""
        node = new or old
        if node is None:
            return []
        with self._lock:
            name = node.metadata.name
            if new is None:
                self._nodes.pop(name, None)
                self._pod_event_at.pop(name, None)
                self._node_plans.pop(name, None)
                if self._node_of_provider.get(node.spec.provider_id) == name:
                    self._node_of_provider.pop(node.spec.provider_id)
                self._dirty.add(_node_key(name))
            else:
                self._nodes[name] = new
                if new.spec.provider_id:
                    self._node_of_provider[new.spec.provider_id] = name
            self._touch_node(name)
            if new is not None and old is None:
                self._learn_limits(name)
            claim = self._claim_of_provider.get(node.spec.provider_id)
            if claim is not None:
                self._dirty.add(claim)
            if new is None or not self._settled:
                return []
            self._adopt_node_plan(new)
            return self._review_plan(claim) if old is None and claim is not None else []

    def claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> list[Effect]:
        """A NodeClaim was added, changed or removed by somebody, or by a write of our own (see `claim_written`)."""
        claim = new or old
        if claim is None:
            return []
        with self._lock:
            if new is None:
                self._gone.add(claim.metadata.uid)
                return self._drop_claim(claim)
            return self._put_claim(new)

    def claim_written(self, claim: NodeClaim) -> list[Effect]:
        """The API server's answer to a write of ours: seen before the watch tells it."""
        with self._lock:
            if claim.metadata.uid in self._gone:
                return []
            return self._put_claim(claim)

    def claim_failed(self, name: str) -> list[Effect]:
        """A claim that was announced with `claim_written` before its create call never came to be."""
        with self._lock:
            claim = self._claims.get(name)
            return self._drop_claim(claim) if claim is not None and not claim.metadata.uid else []

    def node_plan_written(self, name: str, text: str) -> None:
        """The plan annotation that is being written on a Node: what it says is known already."""
        with self._lock:
            self._node_plans[name] = text

    def pool_changed(self, old: NodePool | None, new: NodePool | None) -> list[Effect]:
        """A NodePool was added, changed or removed."""
        with self._lock:
            if new is not None:
                self._pools[new.metadata.name] = new
            elif old is not None:
                self._pools.pop(old.metadata.name, None)
            return []

    def daemonset_changed(self, old: DaemonSet | None, new: DaemonSet | None) -> list[Effect]:
        """A DaemonSet was added, changed or removed: every machine's due daemons may change."""
        daemon = new or old
        if daemon is None:
            return []
        with self._lock:
            uid = daemon.metadata.uid
            if new is None:
                self._daemon_sets.pop(uid, None)
                self._daemon_samples.pop(uid, None)
                self._daemons.pop(uid, None)
                self._dirty.update(self._views)
                return []
            known = self._daemon_sets.get(uid)
            self._daemon_sets[uid] = new
            if known is None or known.spec.template != new.spec.template:
                sample = self._daemon_samples.get(uid)
                if known is not None and sample is not None:
                    sample.requests = None  # of the old template: wait for a pod of the new one
                self._reshape(uid)
            return []

    def limit_range_changed(self, old: LimitRange | None, new: LimitRange | None) -> bool:
        """A LimitRange was added, changed or removed; whether any DaemonSet's pods are others now."""
        one = new or old
        if one is None:
            return False
        with self._lock:
            namespace = one.metadata.namespace
            if new is not None:
                self._ranges[namespace][one.metadata.name] = new
            else:
                self._ranges[namespace].pop(one.metadata.name, None)
            mine = [uid for uid, found in self._daemon_sets.items() if found.metadata.namespace == namespace]
            changed = [uid for uid in mine if self._reshape(uid)]
            return bool(changed)

    def csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> bool:
        """A CSINode was added, changed or removed; whether its Node takes other numbers of volumes now."""
        one = new or old
        if one is None:
            return False
        with self._lock:
            changed = self._around.csi_node_changed(old, new)
            if changed:
                self._touch_node(one.metadata.name)
                self._learn_limits(one.metadata.name)
            return changed

    def budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """A PodDisruptionBudget was added, changed or removed."""
        with self._lock:
            self._protection.budget_changed(old, new)

    def surrounding_changed(self, take: Callable[[SurroundingsKeeper], None]) -> None:
        """Let `take` enter an event about volumes, namespaces or selectors; under the lock of this state."""
        with self._lock:
            take(self._around)

    def promise(self, key: str, pods: Iterable[Pod], ttl: timedelta | None) -> None:
        """Keep room for pods without a machine that stays on a machine of now, for `ttl` or (None) as long as the plan of its claim lives."""
        with self._lock:
            until = self._now() + ttl if ttl is not None else None
            plan = self._plans.setdefault(key, _Plan())
            for pod in pods:
                if pod.uid not in self._slot_of and pod.uid in self._pods:
                    owner = pod.owner.uid if pod.owner is not None else ""
                    slot = _Slot(key, owner, pod.shape.key, pod.uid, pod.shape, until=until)
                    plan.slots.append(slot)
                    self._slot_of[pod.uid] = slot
            self._dirty.add(key)

    def expire(self) -> list[Effect]:
        """End the promises whose time is over; call every second or so. Cost: the live promises."""
        with self._lock:
            now, effects = self._now(), list[Effect]()
            for name, plan in list(self._plans.items()):
                claim = self._claims.get(name)
                ready_at = _true_since(claim, names.INITIALIZED) if claim is not None else None
                over = ready_at is not None and now - ready_at > self._hold_ttl
                for slot in list(plan.slots):
                    emptied = slot.opened_at is not None and now - slot.opened_at > OPEN_SLOT_TTL
                    if over or emptied or (slot.until is not None and now > slot.until):
                        self._remove(slot)
                        effects += [PodSettled(name, slot.uid, "expired")] if slot.uid else []
                        effects += self._review_plan(name)
                if not plan.slots and claim is None:
                    del self._plans[name]
            return effects + self._displace()

    # ------------------------------------------------------------------ questions

    def claim(self, name: str) -> NodeClaim | None:
        """The newest known state of one claim, own writes included."""
        with self._lock:
            return self._claims.get(name)

    def claims(self) -> list[NodeClaim]:
        """Every known claim, by name."""
        with self._lock:
            return [self._claims[name] for name in sorted(self._claims)]

    def node(self, name: str) -> Node | None:
        """The newest known state of one Node."""
        with self._lock:
            return self._nodes.get(name)

    def node_of(self, claim: NodeClaim) -> Node | None:
        """The Node that this claim's machine joined as."""
        with self._lock:
            return self._nodes.get(self._node_name(claim))

    def claim_of(self, node: Node) -> NodeClaim | None:
        """The claim whose machine this Node is."""
        with self._lock:
            return self._claims.get(self._claim_of_provider.get(node.spec.provider_id, ""))

    def bound_to(self, node_name: str) -> tuple[Pod, ...]:
        """The unfinished pods on one Node, terminating ones included, by name."""
        with self._lock:
            return tuple(sorted(self._bound.get(node_name, {}).values(), key=lambda pod: pod.key))

    def waiting(self) -> list[Pod]:
        """Every unbound, ungated, living pod, planned or not."""
        with self._lock:
            return list(self._waiting.values())

    def pod(self, uid: str) -> Pod | None:
        """One unfinished pod."""
        with self._lock:
            return self._pods.get(uid)

    def is_planned(self, uid: str) -> bool:
        """Whether a live plan promises room to this pod."""
        with self._lock:
            return uid in self._slot_of

    def promised(self, claim: str) -> tuple[Pod, ...]:
        """The unbound pods that the live plan of this claim (or other `NodeView.key`) still waits for, by name."""
        with self._lock:
            return tuple(pod for pod in self._promised_pods(claim) if pod.uid in self._waiting)

    def finished_node_plans(self) -> list[str]:
        """Machines (`NodeView.key`) whose Node carries a plan that no promise is left of. Cost: the Nodes with a plan."""
        with self._lock:
            found = []
            for name, text in self._node_plans.items():
                node = self._nodes.get(name)
                if text and node is not None:
                    key = self._key_of(node)
                    if not self._slots(key):
                        found.append(key)
            return sorted(found)

    def last_pod_event(self, node_name: str) -> datetime | None:
        """The last bind or end of a pod that is no daemon, as this process saw it."""
        with self._lock:
            return self._pod_event_at.get(node_name)

    def snapshot(self) -> Snapshot:
        """One frozen instant. Cost: the changed machines, plus a pointer for each other one."""
        with self._lock:
            now = self._now()
            for key in self._dirty:
                view = self._view(key)
                if view is None:
                    self._views.pop(key, None)
                else:
                    self._views[key] = view
                    if any(amount < 0 for amount in view.room.values()):
                        self._crowded.add(key)
            self._dirty.clear()
            nodes = tuple(sorted(self._views.values(), key=lambda view: (not view.initialized, view.key)))
            return Snapshot(
                at=now,
                nodes=nodes,
                pools=tuple(self._pool_view(name, nodes) for name in sorted(self._pools)),
                daemons=tuple(sorted(self._daemons.values(), key=lambda shape: shape.key)),
                pending=tuple(
                    sorted(
                        (pod for uid, pod in self._waiting.items() if uid not in self._slot_of and not is_daemon(pod)),
                        key=lambda pod: (pod.created, pod.uid),
                    )
                ),
                leaving=self._leaving(nodes, now),
                around=self._around.frozen(),
            )

    # ------------------------------------------------------------------ machines

    def _put_claim(self, claim: NodeClaim) -> list[Effect]:
        name = claim.metadata.name
        known = self._claims.get(name)
        if known is not None and _version(known) > _version(claim) and known.metadata.uid == claim.metadata.uid:
            return []
        self._claims[name] = claim
        if claim.status.provider_id:
            self._claim_of_provider[claim.status.provider_id] = name
            node = self._node_of_provider.get(claim.status.provider_id)
            if node is not None:
                self._dirty.add(_node_key(node))
        self._dirty.add(name)
        return self._adopt_plan(claim) if self._settled else []

    def _drop_claim(self, claim: NodeClaim) -> list[Effect]:
        name = claim.metadata.name
        self._claims.pop(name, None)
        if self._claim_of_provider.get(claim.status.provider_id) == name:
            self._claim_of_provider.pop(claim.status.provider_id)
        plan = self._plans.pop(name, None)
        effects: list[Effect] = []
        for slot in plan.slots if plan else []:
            self._forget(slot)
            if slot.uid:
                effects.append(PodSettled(name, slot.uid, "expired"))
        node = self._node_of_provider.get(claim.status.provider_id)
        if node is not None:
            self._dirty.add(_node_key(node))
        self._dirty.add(name)
        return effects

    def _node_name(self, claim: NodeClaim) -> str:
        return self._node_of_provider.get(claim.status.provider_id, "") if claim.status.provider_id else ""

    def _touch_node(self, name: str) -> None:
        node = self._nodes.get(name)
        self._dirty.add(self._key_of(node) if node is not None else _node_key(name))

    def _key_of(self, node: Node) -> str:
        """`NodeView.key` of the machine: its claim's name, or the Node's where it has no claim."""
        return self._claim_of_provider.get(node.spec.provider_id) or _node_key(node.metadata.name)

    def _view(self, key: str) -> NodeView | None:
        if key.startswith("node/"):
            node = self._nodes.get(key[5:])
            if node is None or node.spec.provider_id in self._claim_of_provider:
                return None  # shown under its claim
            return self._join(key, node, None)
        claim = self._claims.get(key)
        return None if claim is None else self._join(key, self._nodes.get(self._node_name(claim)), claim)

    def _join(self, key: str, node: Node | None, claim: NodeClaim | None) -> NodeView:
        conditions = claim.status.conditions if claim is not None else ()
        registered = claim is None or is_true(conditions, names.REGISTERED)
        initialized = node is not None and (claim is None or is_true(conditions, names.INITIALIZED))
        labels, taints = _labels_and_taints(node, claim, registered=registered, initialized=initialized)
        capacity, allocatable = self._sizes(node, claim, initialized=initialized)
        bound = self._bound.get(node.metadata.name, {}) if node is not None else {}
        pods = tuple(sorted(bound.values(), key=lambda pod: pod.key))
        used = _sum(pod.shape.requests for pod in pods)
        planned = self._planned(key)
        due = self._daemons_due(labels, taints, pods)
        event = self._pod_event_at.get(node.metadata.name) if node is not None else None
        told = claim.status.last_pod_event_time if claim is not None else None
        going = [item.metadata.deletion_timestamp for item in (node, claim) if item is not None]
        annotations = [item.metadata.annotations for item in (node, claim) if item is not None]
        return NodeView(
            key=key,
            name=node.metadata.name if node is not None else "",
            claim=claim,
            pool=(claim.metadata.labels if claim is not None else labels).get(names.NODEPOOL_LABEL, ""),
            provider_id=node.spec.provider_id if node is not None else claim.status.provider_id if claim else "",
            labels=labels,
            taints=taints,
            capacity=capacity,
            allocatable=allocatable,
            used=used,
            planned=planned,
            room=allocatable - used - due - planned,
            pods=pods,
            registered=registered,
            initialized=initialized,
            ready=node is not None and is_true(node.status.conditions, "Ready"),
            deleting=any(going) or _is_disrupted(node),
            do_not_disrupt=any(found.get(names.DO_NOT_DISRUPT) == "true" for found in annotations),
            nominated=any(slot.uid or slot.opened_at for slot in self._slots(key)),
            last_pod_event=max((at for at in (event, told) if at is not None), default=None),
            promised=self._promised_pods(key),
            attach_limits=self._around.limits_of(node.metadata.name) if node is not None else {},
        )

    def _sizes(self, node: Node | None, claim: NodeClaim | None, *, initialized: bool) -> tuple[Resources, Resources]:
        """(capacity, allocatable): the claim's until initialised, then the Node's; the planned type's before launch."""
        if node is not None and (claim is None or initialized):
            capacity, allocatable = _amounts(node.status.capacity), _amounts(node.status.allocatable)
            if claim is None:
                return capacity, allocatable
            # a device plugin that restarts reports zero for a moment: the claim knows better
            known = _amounts(claim.status.allocatable)
            revived = {key: known[key] for key, amount in allocatable.items() if amount == 0 and known.get(key)}
            return capacity, Resources.of({**allocatable, **revived}) if revived else allocatable
        if claim is None:
            return EMPTY, EMPTY
        if claim.status.capacity:
            return _amounts(claim.status.capacity), _amounts(claim.status.allocatable)
        kind = self._types_of(claim.metadata.labels.get(names.NODEPOOL_LABEL, "")).get(_planned_type(claim))
        return (kind.capacity, kind.allocatable) if kind is not None else (EMPTY, EMPTY)

    def _daemons_due(self, labels: Mapping[str, str], taints: tuple[Taint, ...], pods: tuple[Pod, ...]) -> Resources:
        if not self._daemons:
            return EMPTY
        expected = _sum(shape.requests for shape in self._daemons.values() if runs_on(shape, labels, taints))
        present = _sum(pod.shape.requests for pod in pods if is_daemon(pod))
        return Resources.of({key: max(0, amount - present.get(key, 0)) for key, amount in expected.items()})

    def _sample(self, pod: Pod) -> None:
        """Remember what the newest pod of a DaemonSet requests; equal ones cost a comparison."""
        if pod.owner is None or pod.shape.error:
            return
        known = self._daemon_samples.get(pod.owner.uid)
        if (
            known is not None
            and pod.created <= known.created
            and (known.requests is None or (pod.created, pod.uid) < (known.created, known.uid))
        ):
            return
        self._daemon_samples[pod.owner.uid] = _Sample(pod.uid, pod.created, pod.shape.requests)
        if known is None or known.requests != pod.shape.requests:
            self._reshape(pod.owner.uid)

    def _reshape(self, uid: str) -> bool:
        """Work out anew what a DaemonSet's pods will be; whether that is something else."""
        daemon = self._daemon_sets.get(uid)
        if daemon is None:
            return False
        ranges = self._ranges.get(daemon.metadata.namespace, {})
        sample = self._daemon_samples.get(uid)
        shape = daemon_shape(daemon, ranges.values())
        if sample is not None and sample.requests is not None and sample.requests != shape.requests:
            shape = daemon_shape(daemon, ranges.values(), sample.requests)
        if self._daemons.get(uid) == shape:
            return False
        self._daemons[uid] = shape
        self._dirty.update(self._views)
        return True

    def _learn_limits(self, node_name: str) -> None:
        """What one machine takes, machines of its type will take."""
        node = self._nodes.get(node_name)
        limits = self._around.limits_of(node_name)
        kind = node.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "") if node is not None else ""
        if kind and limits:
            self._around.learn(kind, limits)

    def _pool_view(self, name: str, nodes: tuple[NodeView, ...]) -> PoolView:
        mine = [node for node in nodes if node.pool == name and node.claim is not None]
        used = _sum(node.capacity for node in mine)
        return PoolView(self._pools[name], used + Resources.of({names.NODES: len(mine)}))

    def _leaving(self, nodes: tuple[NodeView, ...], now: datetime) -> tuple[Pod, ...]:
        # a pod that cannot be evicted would leave the machine made for it empty; one that is interrupted ends all the same
        return tuple(
            pod
            for node in nodes
            if node.deleting and node.claim is not None
            for pod in node.pods
            if pod.uid not in self._slot_of and pod.deleted is None and is_reschedulable(pod)
            if names.INTERRUPTION_ANNOTATION in node.claim.metadata.annotations or not self._protection.holds(pod, now)
        )

    # ------------------------------------------------------------------ plans

    def _slots(self, key: str) -> list[_Slot]:
        plan = self._plans.get(key)
        return plan.slots if plan is not None else []

    def _promised_pods(self, key: str) -> tuple[Pod, ...]:
        """The pods behind the promises of one machine, less those whose successor is still to come."""
        pods = [pod for slot in self._slots(key) if slot.uid and (pod := self._pods.get(slot.uid)) is not None]
        return tuple(sorted(pods, key=lambda pod: pod.key))

    def _planned(self, key: str) -> Resources:
        return _sum(slot.shape.requests for slot in self._slots(key) if slot.shape is not None)

    def _adopt_plan(self, claim: NodeClaim) -> list[Effect]:
        """Read a claim's plan annotation, once for each text of it."""
        name = claim.metadata.name
        if claim.metadata.deletion_timestamp is not None:
            plan = self._plans.pop(name, None)
            for slot in plan.slots if plan else []:
                self._forget(slot)
            return []
        text = claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")
        known = self._plans.get(name)
        if not text or (known is not None and known.text == text):
            return []
        try:
            wanted = decode_plan(text)
        except PlanError:
            return []  # somebody else's text: the claim works without a plan
        plan = known or _Plan()
        plan.text = text
        self._plans[name] = plan
        held = {slot.uid for slot in plan.slots}
        for owner, klass, uid in _promises(wanted):
            if uid in held or uid in self._slot_of:
                continue
            pod = self._pods.get(uid)
            if pod is not None and self._found_place(pod):
                continue
            slot = _Slot(name, owner, klass, uid, pod.shape if pod is not None else None)
            plan.slots.append(slot)
            plan.had_slots = True
            if pod is None:
                self._open_slot(slot)
            else:
                self._slot_of[uid] = slot
        self._dirty.add(name)
        return []

    def _adopt_node_plan(self, node: Node) -> None:
        """Read the plan that another leader wrote on a machine of now: its pods keep their room for the usual time."""
        name = node.metadata.name
        text = node.metadata.annotations.get(names.PLAN_ANNOTATION, "")
        if text == self._node_plans.get(name, ""):
            return
        self._node_plans[name] = text
        if not text or _is_disrupted(node) or node.metadata.deletion_timestamp is not None:
            return
        try:
            wanted = decode_plan(text)
        except PlanError:
            return  # somebody else's text
        pods = [pod for _, _, uid in _promises(wanted) if (pod := self._waiting.get(uid)) is not None]
        self.promise(self._key_of(node), pods, EXISTING_TTL)

    def _found_place(self, pod: Pod) -> bool:
        """Bound to a machine that stays."""
        if not pod.node_name:
            return False
        node = self._nodes.get(pod.node_name)
        if node is None:
            return True
        claim = self._claims.get(self._claim_of_provider.get(node.spec.provider_id, ""))
        going = node.metadata.deletion_timestamp or (claim is not None and claim.metadata.deletion_timestamp)
        return not going and not _is_disrupted(node)

    def _settle_pod(self, known: Pod | None, pod: Pod, *, alive: bool) -> list[Effect]:
        slot = self._slot_of.get(pod.uid)
        if slot is None:
            if alive and pod.deleted is None and not pod.node_name and pod.owner is not None:
                self._take_open_slot(pod)
            return []
        # an evicted pod's successor comes at once, long before the old one is gone; a StatefulSet's only afterwards
        if not alive or (pod.deleted is not None and (not pod.node_name or not is_reschedulable(pod))):
            self._slot_of.pop(pod.uid, None)
            self._open_slot(slot)
            return []
        slot.shape = pod.shape
        self._dirty.add(slot.claim)
        if pod.node_name and self._found_place(pod):
            return self._close(slot, pod)
        if not pod.node_name and known is not None and known.nominated_node_name and not pod.nominated_node_name:
            return [NominationLost(slot.claim, pod)]
        return []

    def _close(self, slot: _Slot, pod: Pod) -> list[Effect]:
        """The pod of this promise runs somewhere: give the room back, or see it used."""
        claim = self._claims.get(slot.claim)
        here = pod.node_name == (self._node_name(claim) if claim is not None else slot.claim.removeprefix("node/"))
        self._remove(slot)
        effects: list[Effect] = [PodSettled(slot.claim, pod.uid, "planned" if here else "absorbed")]
        return effects + self._review_plan(slot.claim)

    def _review_plan(self, name: str) -> list[Effect]:
        """An unlaunched claim that lost all its pods is not needed any more."""
        claim, plan = self._claims.get(name), self._plans.get(name)
        if claim is None or plan is None or plan.slots or not plan.had_slots:
            return []
        if claim.status.provider_id or is_true(claim.status.conditions, names.LAUNCHED):
            return []
        return [ClaimUnneeded(name)]

    def _open_slot(self, slot: _Slot) -> None:
        slot.uid, slot.opened_at = "", self._now()
        self._open[slot.owner, slot.klass].append(slot)
        self._dirty.add(slot.claim)

    def _displace(self) -> list[Effect]:
        """End the promises of machines on which others have taken the room: their pods must be planned again."""
        effects: list[Effect] = []
        changed = self._dirty | self._crowded
        for key in sorted(key for key, plan in self._plans.items() if plan.slots and key in changed):
            view = self._view(key)
            self._crowded.discard(key)
            if view is None or not view.initialized:
                continue
            lacking = {resource: -amount for resource, amount in view.room.items() if amount < 0}
            for slot in sorted(self._slots(key), key=_giving_way):
                given = slot.shape.requests if slot.shape is not None else EMPTY
                if not any(given.get(resource, 0) > 0 for resource in lacking):
                    continue
                self._remove(slot)
                effects += [PodSettled(key, slot.uid, "displaced")] if slot.uid else []
                lacking = {
                    resource: amount - given.get(resource, 0)
                    for resource, amount in lacking.items()
                    if amount > given.get(resource, 0)
                }
        return effects

    def _take_open_slot(self, pod: Pod) -> None:
        """A recreated pod takes its brother's place."""
        if pod.owner is None:
            return
        waiting = self._open.get((pod.owner.uid, pod.shape.key))
        if not waiting:
            return
        slot = waiting.pop(0)
        slot.uid, slot.opened_at, slot.shape = pod.uid, None, pod.shape
        self._slot_of[pod.uid] = slot
        self._dirty.add(slot.claim)

    def _remove(self, slot: _Slot) -> None:
        plan = self._plans.get(slot.claim)
        if plan is not None and slot in plan.slots:
            plan.slots.remove(slot)
        self._forget(slot)
        self._dirty.add(slot.claim)

    def _forget(self, slot: _Slot) -> None:
        if slot.uid:
            self._slot_of.pop(slot.uid, None)
        waiting = self._open.get((slot.owner, slot.klass))
        if waiting and slot in waiting:
            waiting.remove(slot)

    def _note_pod_event(self, known: Pod | None, pod: Pod, *, alive: bool) -> None:
        """Remember when a pod that is no daemon was bound here or ended. Not what a first listing tells."""
        if not self._settled or not pod.node_name or is_daemon(pod) or is_mirror(pod):
            return
        bound = alive and pod.deleted is None and (known is None or not known.node_name)
        ended = known is not None and is_active(known) and (not alive or pod.deleted is not None)
        if bound or ended:
            self._pod_event_at[pod.node_name] = self._now()


def _giving_way(slot: _Slot) -> tuple[int, int, str]:
    """Lowest priority first, then the largest."""
    shape = slot.shape
    return (shape.priority, -shape.requests.get(names.CPU, 0), slot.uid) if shape is not None else (0, 0, slot.uid)


def _promises(plan: Plan) -> list[tuple[str, str, str]]:
    return [(entry.owner, entry.klass, uid) for entry in plan.pods for uid in entry.uids]


def _labels_and_taints(
    node: Node | None, claim: NodeClaim | None, *, registered: bool, initialized: bool
) -> tuple[Mapping[str, str], tuple[Taint, ...]]:
    if claim is None:
        return (node.metadata.labels, node.spec.taints) if node is not None else ({}, ())
    if node is None or not registered:
        return claim_labels(claim), claim.spec.taints or ()
    if initialized:
        return node.metadata.labels, node.spec.taints
    startup = claim.spec.startup_taints or ()
    stays = tuple(
        taint
        for taint in node.spec.taints
        if not names.is_ephemeral(taint) and not any(_same(taint, other) for other in startup)
    )
    return node.metadata.labels, stays


def claim_labels(claim: NodeClaim) -> Mapping[str, str]:
    """Labels that the claim's Node will carry, as far as they are decided."""
    single = {
        key: value
        for key, requirement in claim_requirements(claim).items()
        if (value := requirement.is_single) is not None
    }
    planned = claim.metadata.annotations.get(names.PLANNED_OFFERING_ANNOTATION, "")
    if planned.count("/") == 2 and not claim.status.provider_id:
        kind, zone, capacity_type = planned.split("/")
        single |= {
            names.INSTANCE_TYPE_LABEL: kind,
            names.ZONE_LABEL: zone,
            names.CAPACITY_TYPE_LABEL: capacity_type,
        }
    return {**single, **claim.metadata.labels}


def claim_requirements(claim: NodeClaim) -> Requirements:
    """spec.requirements as values; none where they cannot be read: one bad claim must not hide all machines."""
    try:
        return requirements_of(claim.spec.requirements)
    except RequirementError:
        return Requirements.of(())


def _planned_type(claim: NodeClaim) -> str:
    return claim_labels(claim).get(names.INSTANCE_TYPE_LABEL, "")


def _is_disrupted(node: Node | None) -> bool:
    return node is not None and any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints)


def _same(left: Taint, right: Taint) -> bool:
    return (left.key, left.value, left.effect) == (right.key, right.value, right.effect)


def _true_since(claim: NodeClaim, kind: str) -> datetime | None:
    found = next((item for item in claim.status.conditions if item.type == kind and item.status == "True"), None)
    return found.last_transition_time if found is not None else None


def _version(claim: NodeClaim) -> int:
    """Resource versions of one object may be compared as numbers (documented since Kubernetes 1.35)."""
    text = claim.metadata.resource_version
    return int(text) if text.isdigit() else 0


def _node_key(name: str) -> str:
    return f"node/{name}"


def _amounts(wire: Amounts) -> Resources:
    """What a status says; nothing where it cannot be read, so that nothing is planned there."""
    try:
        return Resources.parse(wire)
    except QuantityError:
        return EMPTY


def _sum(vectors: Iterable[Resources]) -> Resources:
    total: dict[str, int] = {}
    for vector in vectors:
        for key, amount in vector.items():
            total[key] = total.get(key, 0) + amount
    return Resources.of(total)
