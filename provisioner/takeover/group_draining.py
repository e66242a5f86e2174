"""Moves the pods of managed node groups to nodes of NodePools, through the Eviction API and group by group; and back to schedulable nodes.

Each write is safe to repeat: what is next is decided from what the cluster says. A process that is killed anywhere goes on where it was.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

import msgspec

from provisioner.apis import names
from provisioner.apis.conversion.ownership import ClusterAutoscalerLeases
from provisioner.apis.core import Node
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod, is_pending
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config_maps import change_config_map, ensure_namespace, server_time
from provisioner.kube.errors import Conflict, NotFound, ServerError, TooManyRequests
from provisioner.support.clock import Clock
from provisioner.takeover.gathering import leases_beside
from provisioner.takeover.group_moves import (
    HOLDS,
    STATUS_CONFIGMAP,
    GroupFacts,
    GroupMove,
    MoveKind,
    hindrance_of,
    next_move,
    reduction_command,
    why_kept,
)
from provisioner.takeover.node_groups import GROUP_LABEL, ManagedNodeGroup

LOOK_SECONDS: Final = 2.0
BLOCKED_SECONDS: Final = 5.0
"""Until the next look where nothing could be done: budgets and ends of pods take their time."""
_STARTED: Final = "groupsStarted"
_WAITING: Final = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"


class GroupCloud(Protocol):
    """Who knows managed node groups and may make them smaller: `eks_groups.EksGroups`."""

    def describe(self, name: str) -> ManagedNodeGroup:
        """A group as it is now."""
        ...

    def reduce(self, group: ManagedNodeGroup, size: int) -> None:
        """Set how many nodes a group shall have."""
        ...


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """How the work on a group ended.

    Attributes:
        move: the last one.
        command: what reduces the group, for people; "" where that is done, or not needed.
        is_late: nothing changed for too long.
    """

    group: str
    move: GroupMove
    command: str = ""
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """How far a group is.

    Attributes:
        cordoned: nodes that are.
        occupied: nodes with pods that have to find another one.
        pods: how many of those there are.
        kept: the ones that are not evicted, each with why.
    """

    group: str
    nodes: int
    cordoned: int
    occupied: int
    pods: int
    kept: tuple[str, ...]


@dataclass
class GroupDrain:
    """One command's run. Not thread-safe.

    Attributes:
        say: prints a line for people.
        namespace: of Dovetail.
        other_namespace: of a Cluster Autoscaler that runs elsewhere than usual; "" for none.
        cloud: None: reductions are printed.
        at_once: nodes that are emptied at the same time.
        patience: seconds without any change after which a run ends.
    """

    client: Client
    clock: Clock
    say: Callable[[str], object]
    namespace: str
    other_namespace: str = ""
    cloud: GroupCloud | None = None
    at_once: int = 1
    patience: float = 600.0
    _seen: ClusterAutoscalerLeases = field(init=False)
    _empty: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._seen = ClusterAutoscalerLeases(self.other_namespace)

    def run(self, group: ManagedNodeGroup) -> GroupOutcome:
        """Empty one group, and reduce it where a cloud is given.

        Raises:
            ApiError: the API server did not answer, or denied something; run it again.
            CloudError: AWS did.
        """
        started = self._started()
        told, seen, since = "", "", self.clock.monotonic()
        while True:
            move = self._next(group, started)
            if move.kind is MoveKind.REFUSE and move.text.startswith(HOLDS) and not self._seen.renewed:
                # it may be a Lease that nobody renews any more
                told = self._tell(move.text, told)
                self.clock.sleep(LOOK_SECONDS)
                continue
            if move.kind in (MoveKind.REFUSE, MoveKind.DONE):
                return GroupOutcome(group.name, move)
            told = self._tell(move.text, told)
            if move.kind is MoveKind.REDUCE:
                return self._reduce(group, move)
            done = self._carry_out(move, group)
            state = f"{move.text} {done}"
            if state != seen or done:
                seen, since = state, self.clock.monotonic()
            if self.clock.monotonic() - since >= self.patience:
                return GroupOutcome(group.name, move, is_late=True)
            self.clock.sleep(0.0 if move.kind is MoveKind.CORDON else LOOK_SECONDS if done else BLOCKED_SECONDS)

    def standings(self) -> tuple["GroupStanding", ...]:
        """Every managed node group whose nodes a takeover has cordoned, by name."""
        found: dict[str, list[Node]] = {}
        for node in self.client.list(resources.NODES):
            if (name := node.metadata.labels.get(GROUP_LABEL)) is not None:
                found.setdefault(name, []).append(node)
        taken = {
            name: nodes
            for name, nodes in found.items()
            if any(names.TAKEOVER_CORDONED in one.metadata.annotations for one in nodes)
        }
        return tuple(self._standing(name, nodes) for name, nodes in sorted(taken.items()))

    def _standing(self, name: str, nodes: list[Node]) -> "GroupStanding":
        now, pods = self.clock.now(), {one.metadata.name: self._pods_on(one) for one in nodes}
        facts = GroupFacts(group=ManagedNodeGroup(nodegroup_name=name), nodes=tuple(nodes), pods=pods, now=now)
        left = [pod for node in nodes for pod in facts.leaving(node)]
        return GroupStanding(
            name,
            len(nodes),
            sum(one.spec.unschedulable for one in nodes),
            sum(bool(facts.leaving(one)) for one in nodes),
            len(left),
            tuple(sorted(f"{one.key} {why}" for one in left if (why := why_kept(one, now)))),
        )

    def uncordon(self, *, dry_run: bool = False) -> int:
        """Make nodes schedulable again that a takeover cordoned; how many. In a dry run, they are only counted and told."""
        found = 0
        for node in self.client.list(resources.NODES):
            if names.TAKEOVER_CORDONED in node.metadata.annotations:
                body = {"spec": {"unschedulable": None}, "metadata": {"annotations": {names.TAKEOVER_CORDONED: None}}}
                if not dry_run:
                    with contextlib.suppress(NotFound):
                        self.client.patch(resources.NODES, node.metadata.name, body)
                done = "would be made schedulable (dry run)" if dry_run else "is schedulable again"
                self.say(f"node {node.metadata.name} {done}")
                found += 1
        return found

    # ------------------------------------------------------------------ gather

    def facts(self, group: ManagedNodeGroup, started: datetime) -> GroupFacts:
        """How a group stands now. Nodes that were empty in this run are not looked at again, see `_next`; nor, yet, those behind the ones that are emptied."""
        nodes = self.client.list(resources.NODES, label_selector=f"{GROUP_LABEL}={group.name}")
        nodes.sort(key=lambda one: one.metadata.name)
        pods: dict[str, tuple[Pod, ...]] = {}
        facts = GroupFacts(
            group=group,
            nodes=tuple(nodes),
            pods=pods,
            waiting=self._waiting(started),
            hindrance=self._hindrance(group),
            at_once=self.at_once,
            now=self.clock.now(),
        )
        moving = 0
        for one in nodes:
            name = one.metadata.name
            if name in self._empty:
                continue
            pods[name] = self._pods_on(one)
            if one.spec.unschedulable and not facts.leaving(one):
                self._empty.add(name)
            moving += facts.is_moving(one)
            if moving >= self.at_once:
                break
        return facts

    def _next(self, group: ManagedNodeGroup, started: datetime) -> GroupMove:
        move = next_move(self.facts(group, started))
        if move.kind in (MoveKind.REDUCE, MoveKind.DONE) and self._empty:
            self._empty.clear()  # what is final is decided by all nodes as they are now
            move = next_move(self.facts(group, started))
        return move

    def _pods_on(self, node: Node) -> tuple[Pod, ...]:
        return tuple(self.client.list(resources.PODS, field_selector=f"spec.nodeName={node.metadata.name}"))

    def _waiting(self, started: datetime) -> tuple[Pod, ...]:
        found = self.client.list(resources.PODS, field_selector=_WAITING)
        return tuple(
            sorted((one for one in found if is_pending(one) and one.created >= started), key=lambda one: one.key)
        )

    def _hindrance(self, group: ManagedNodeGroup) -> str:
        leads = leases_beside(self.client, self._seen, self.clock)
        status = self.client.find(resources.CONFIGMAPS, STATUS_CONFIGMAP, leads) if leads else None
        if why := hindrance_of(group, leads, "\n".join(status.data.values()) if status is not None else None):
            return why
        pool = self.client.find(resources.NODEPOOLS, group.pool_name)
        if pool is None:
            return f'NodePool "{group.pool_name}" does not exist; apply the output of `dovetail takeover plan --from cluster-autoscaler -o yaml`'
        if not is_true(pool.status.conditions, names.READY):
            return f'NodePool "{group.pool_name}" is not Ready; see `kubectl describe nodepool {group.pool_name}`'
        return ""

    # ------------------------------------------------------------------ act

    def _tell(self, text: str, told: str) -> str:
        if text != told:
            self.say(f"{text}.")
        return text

    def _started(self) -> datetime:
        """When this takeover began, by the API server's clock: pods that came later and find no node hold further evictions."""
        found = self.client.find(resources.CONFIGMAPS, names.TAKEOVER_CONFIGMAP, self.namespace)
        known = found.data.get(_STARTED, "") if found is not None else ""
        try:
            return msgspec.convert(known, datetime)
        except msgspec.ValidationError:
            ensure_namespace(self.client, self.namespace)
        now = server_time(self.client, self.namespace) or self.clock.now().replace(microsecond=0)
        told = {_STARTED: now.isoformat()}
        change_config_map(self.client, names.TAKEOVER_CONFIGMAP, self.namespace, lambda _: told)
        return now

    def _carry_out(self, move: GroupMove, group: ManagedNodeGroup) -> int:
        """How many writes were done."""
        for name in move.nodes:
            body = {"spec": {"unschedulable": True}, "metadata": {"annotations": {names.TAKEOVER_CORDONED: group.name}}}
            with contextlib.suppress(NotFound):  # its instance ended meanwhile
                self.client.patch(resources.NODES, name, body)
        return len(move.nodes) + sum(self._evict(pod) for pod in move.pods)

    def _evict(self, pod: Pod) -> bool:
        try:
            self.client.evict(pod.name, pod.namespace, pod.uid)
        except TooManyRequests:
            return False  # a budget, or a busy server: asked again at the next look
        except (NotFound, Conflict):
            return True
        except ServerError as error:
            if error.status == 500:
                self.say(f"pod {pod.key} cannot be evicted: {error.message}")
                return False
            raise
        return True

    def _reduce(self, group: ManagedNodeGroup, move: GroupMove) -> GroupOutcome:
        if self.cloud is None:
            return GroupOutcome(group.name, move, reduction_command(group, move.size))
        now = self.cloud.describe(group.name)
        if now.scaling_config.desired_size > now.scaling_config.min_size:
            self.cloud.reduce(now, now.scaling_config.min_size)
        return GroupOutcome(group.name, move)
