"""The views of nodes, made anew where something changed, and what limits are charged with for them. Not thread-safe."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import is_gated
from provisioner.apis.core import CSIDriver, CSINode
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import is_true, version_number
from provisioner.apis.pods import Pod, is_active, is_daemon, is_mirror
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.daemon_sets import DaemonSets
from provisioner.state.disruption_commands import Commands
from provisioner.state.effects import Effect
from provisioner.state.expected_node import Expected, expected_of, is_planned
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.lacking import AbsentDrivers
from provisioner.state.leaving import Leaving
from provisioner.state.node_views import Inputs, charge_of, is_initialized, most_of, view_of
from provisioner.state.ordered import Ordered
from provisioner.state.plans import Plans
from provisioner.state.pod_index import PodIndex
from provisioner.state.pool_usage import PoolUsage
from provisioner.state.snapshot import NodeView
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint

_MOST_REMEMBERED: Final = 256

TypesOf = Callable[[NodeClaim], Mapping[str, InstanceType]]
"""Instance types by name of a claim's NodePool, or of its NodeClass where it has no pool.

The same mapping while nothing changes; empty where the pool, the class or the types are unknown.
"""


class ViewKeeper:
    """See the module.

    Args:
        types_of: where the instance types are found that a claim may become.
        usage, leaving: told of every view.
        absent: told which CSI drivers nodes lack.

    Attributes:
        views: by key, as they were made last; of initialized nodes first.
        pod_event_at: by Node, when a pod that is no daemon was bound or ended last, as this process saw it.
    """

    def __init__(
        self,
        types_of: TypesOf,
        joining: Joining,
        pods: PodIndex,
        commands: Commands,
        plans: Plans,
        daemons: DaemonSets,
        around: SurroundingsKeeper,
        usage: PoolUsage,
        leaving: Leaving,
        absent: AbsentDrivers,
    ) -> None:
        self._types_of = types_of
        self._joining, self._pods, self._commands, self._plans = joining, pods, commands, plans
        self._daemons, self._around, self._usage, self._leaving = daemons, around, usage, leaving
        self._absent = absent
        self._dirty: set[NodeKey] = set()
        self.pod_event_at: dict[str, datetime] = {}
        self.views: Ordered[NodeKey, NodeView] = Ordered()
        self._crowded: set[NodeKey] = set()  # nodes with less room than they keep
        self._daemons_seen = 0  # the version that the views are of
        self._due: dict[NodeKey, tuple[Mapping[str, str], tuple[Taint, ...], int, Resources]] = {}
        # claim and types that a view was made with
        self._typed: dict[NodeKey, tuple[NodeClaim, Mapping[str, InstanceType]]] = {}
        self._expected: dict[object, tuple[Mapping[str, InstanceType], Expected | None]] = {}
        self._peaks: dict[tuple[object, ...], tuple[Mapping[str, InstanceType], Resources | None]] = {}

    def touch(self, *keys: NodeKey) -> None:
        """Something about these nodes changed; those that are not there cost nothing."""
        self._dirty.update(keys)

    def pool_changed(self, old: NodePool | None, new: NodePool | None) -> list[Effect]:
        """A NodePool was added, changed or removed."""
        pool = new or old
        if pool is not None:
            self._usage.pool_changed(old, new)
            # what claims are charged with depends on the limits
            if old is None or new is None or old.spec.limits != new.spec.limits:
                self._dirty.update(view.key for view in self.views.frozen() if view.pool == pool.metadata.name)
        return []

    def csi_node_changed(self, now: float, old: CSINode | None, new: CSINode | None) -> bool:
        """A CSINode was added, changed or removed; whether its Node takes other volumes now."""
        one = new or old
        changed = one is not None and self._around.csi_node_changed(old, new)
        if changed and one is not None:
            self._dirty.add(self._joining.key_of_name(one.metadata.name))
            self._plans.open_nodes.drivers_changed(
                now, one.metadata.name, version_number(one.metadata.resource_version)
            )
        return changed

    def csi_driver_changed(self, now: float, old: CSIDriver | None, new: CSIDriver | None) -> bool:
        """A CSIDriver was added, changed or removed; whether Nodes without it take other pods now."""
        changed = self._around.csi_driver_changed(old, new)
        if changed:
            self._dirty.update(view.key for view in self.views.frozen())
        self._plans.open_nodes.drivers_changed(now)
        return changed

    def note_pod(self, known: Pod | None, pod: Pod, now: Callable[[], datetime], *, alive: bool) -> None:
        """Remember when a bound pod that is no daemon was bound here or ended."""
        if is_daemon(pod) or is_mirror(pod):
            return
        bound = alive and pod.deleted is None and (known is None or not known.node_name)
        ended = known is not None and is_active(known) and (not alive or pod.deleted is not None)
        if bound or ended:
            self.pod_event_at[pod.node_name] = now()

    def forget_nodes(self) -> None:
        """Forget pods' events on Nodes that are gone."""
        nodes = self._joining.nodes
        if len(self.pod_event_at) > len(nodes):
            self.pod_event_at = {name: at for name, at in self.pod_event_at.items() if name in nodes}

    def refresh(self, now: float) -> None:
        """Make the views anew of which something changed; one that comes out equal stays the same object."""
        self._types_looked_at()
        due = self._absent.due(now)
        self._dirty.update(due)
        self._daemons.settle()
        if self._daemons.version != self._daemons_seen:
            self._daemons_seen = self._daemons.version
            self._dirty.update(view.key for view in self.views.frozen())
        for key in self._dirty:
            view, known = self._view(key, now), self.views.get(key)
            if view is not None:
                self._learn_limits(view)
            if view == known and view is not None:
                continue
            if view is None:
                self.views.drop(key)
                self._due.pop(key, None)
                self._typed.pop(key, None)
            else:
                self.views.put(key, (not view.initialized, key), view)
            self._usage.node_changed(key, view)
            self._leaving.node_changed(key, view)
            if view is not None and view.nominated and view.room.negative:
                self._crowded.add(key)
        self._dirty.clear()
        self._plans.open_nodes.look_again(due, now)

    def take_crowded(self) -> list[NodeView]:
        """Nodes that keep more room than they have, once."""
        views = [self.views.get(key) for key in sorted(self._crowded)]
        self._crowded.clear()
        return [one for one in views if one is not None and one.initialized and one.room.negative]

    def last_pod_event(self, node_name: str) -> datetime | None:
        """The last bind or end of a pod that is no daemon, as this process saw it."""
        return self.pod_event_at.get(node_name)

    def asked_of_limits(self, now: float, claim: NodeClaim) -> tuple[Resources, Resources] | None:
        """What the limits of its NodePool leave, and what they would be charged with for a claim that is not there yet.

        None where nothing that can be read limits the NodePool. Cost: what changed since the last snapshot.
        """
        pool = self._usage.pool(claim.pool)
        if pool is None or not pool.spec.limits or (pool.is_static and is_gated(claim)):
            return None
        self.refresh(now)
        try:
            left = self._usage.view(claim.pool).left
        except QuantityError:
            return None
        types = self._types_of(claim)
        expected = self._expectation(claim, types) if types else None
        capacity = expected.capacity if expected is not None else EMPTY
        charge = charge_of(claim, capacity, lambda one: self._peak(claim.pool, one, types))
        return None if left is None else (left, charge)

    def _view(self, key: NodeKey, now: float) -> NodeView | None:
        pair = self._joining.pair(key)
        node, claim = pair or (None, None)
        missing = self._around.drivers_missing(node.metadata.name) if node is not None else frozenset()
        absent = self._absent.note(key, missing if is_initialized(node, claim) else (), now)
        if pair is None:
            return None
        name = node.metadata.name if node is not None else ""
        pool = claim.pool if claim is not None else ""
        types = self._types_for(key, claim)
        command = self._commands.of(key.name) if key.of_claim else None
        provider_id = (
            claim.status.provider_id if claim is not None else node.spec.provider_id if node is not None else ""
        )
        return view_of(
            Inputs(
                key=key,
                node=node,
                claim=claim,
                ambiguous=self._joining.rivals(provider_id) is not None,
                pods=self._pods.on(name),
                used=self._pods.used(name),
                kept=self._plans.assignments.kept(key),
                assigned=self._plans.assigned_pods(key),
                nominated=self._plans.assignments.has(key),
                last_pod_event=self.pod_event_at.get(name),
                attach_limits=self._around.limits_of(name),
                drivers_absent=absent,
                expected=self._expectation(claim, types) if claim is not None and types else None,
                due=lambda labels, taints, pods: self._daemons_due(key, labels, taints, pods),
                most=lambda claim: self._peak(pool, claim, types),
                command=command.record.id if command is not None else "",
                unneeded=key.of_claim and self._plans.claims.is_unneeded(key.name),
            )
        )

    def _types_for(self, key: NodeKey, claim: NodeClaim | None) -> Mapping[str, InstanceType]:
        """The types of the claim where the view depends on them: until the claim says itself what it is."""
        if claim is None or (claim.status.capacity and is_true(claim.status.conditions, names.REGISTERED)):
            self._typed.pop(key, None)
            return {}
        types = self._types_of(claim)
        self._typed[key] = claim, types
        return types

    def _types_looked_at(self) -> None:
        """No event tells that the types of a pool or a class are others: the catalogue changed, or it is gone. O(claims without a Node)."""
        found: dict[object, Mapping[str, InstanceType]] = {}
        for key, (claim, types) in self._typed.items():
            origin = claim.pool or claim.spec.node_class_ref
            now = found.get(origin)
            if now is None:
                now = found[origin] = self._types_of(claim)
            if now is not types and (now or types):
                self._dirty.add(key)

    def _expectation(self, claim: NodeClaim, types: Mapping[str, InstanceType]) -> Expected | None:
        """`expected_of`; remembered where no plan says it, since claims of one static NodePool ask for the same."""
        if is_planned(claim):
            return expected_of(claim, types)
        named = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
        asked = claim.spec.requirements, named, tuple(sorted(claim.spec.resources.requests.items()))
        known = self._expected.get(asked)
        if known is None or known[0] is not types:
            if len(self._expected) >= _MOST_REMEMBERED:
                self._expected.clear()
            known = self._expected[asked] = (types, expected_of(claim, types))
        return known[1]

    def _daemons_due(
        self, key: NodeKey, labels: Mapping[str, str], taints: tuple[Taint, ...], pods: tuple[Pod, ...]
    ) -> Resources:
        """What DaemonSets will still take: what all of them want of the node, less what their pods on it have."""
        known, version = self._due.get(key), self._daemons.version
        if known is not None and known[2] == version and known[0] == labels and known[1] == taints:
            expected = known[3]
        else:
            expected = self._daemons.expected(labels, taints)
            self._due[key] = (labels, taints, version, expected)
        if not expected:
            return EMPTY
        present = EMPTY
        for pod in pods:
            if is_daemon(pod) and self._daemons.owns(pod):
                present += pod.shape.requests
        return (expected - present).maximum(EMPTY) if present else expected

    def _peak(self, pool_name: str, claim: NodeClaim, types: Mapping[str, InstanceType]) -> Resources | None:
        """`most_of`, remembered: claims of one batch have the same list."""
        pool = self._usage.pool(pool_name)
        if pool is None or not pool.spec.limits:
            return None
        limited = tuple(sorted(pool.spec.limits))
        named = next((tuple(one.values) for one in claim.spec.requirements if one.key == names.INSTANCE_TYPE_LABEL), ())
        known = self._peaks.get((limited, named))
        if known is None or known[0] is not types:
            if len(self._peaks) >= _MOST_REMEMBERED:
                self._peaks.clear()
            known = self._peaks[limited, named] = (types, most_of(claim, types, limited))
        return known[1]

    def _learn_limits(self, view: NodeView) -> None:
        """What one node takes, nodes of its type will take. Its type is what we wrote on its NodeClaim: a kubelet labels its own Node."""
        kind = view.claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "") if view.claim is not None else ""
        limits = self._around.limits_of(view.name)  # without those that are 0 because a driver is missing
        if kind and limits:
            self._around.learn(kind, view.name, limits)
