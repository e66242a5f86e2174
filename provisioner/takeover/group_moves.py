"""What is next for a managed node group whose pods move to nodes of a NodePool. Pure; `group_draining` carries it out.

Nodes are cordoned, all of a group at once, so that no pod moves twice; then pods are evicted, of few nodes at a time, and further only while every pod that
came since has found a node. No node is deleted and no instance ended: in the end the group may be made smaller.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.apis.core import Node
from provisioner.apis.pods import Pod, do_not_disrupt, is_active, is_daemon, is_mirror, is_terminal
from provisioner.takeover.node_groups import EKS_LABELS, ManagedNodeGroup
from provisioner.values.printable import counted, listed

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
HOLDS: Final = "Cluster Autoscaler holds its Lease"
"""How a hindrance begins that ends when nobody renews the Lease any more."""
STATUS_CONFIGMAP: Final = "cluster-autoscaler-status"
_NAMED: Final = 5


class MoveKind(enum.StrEnum):
    """What is done next."""

    REFUSE = "refuse"
    CORDON = "cordon"
    EVICT = "evict"
    WAIT = "wait"
    REDUCE = "reduce"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class GroupMove:
    """The next move.

    Attributes:
        text: for people.
        nodes: names of those to cordon.
        pods: those to evict.
        size: what the group is reduced to.
    """

    kind: MoveKind
    text: str = ""
    nodes: tuple[str, ...] = ()
    pods: tuple[Pod, ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What a move is chosen by.

    Attributes:
        nodes: of the group.
        pods: by name of their node; of nodes that are emptied later they need not be known.
        waiting: pods without a node that came since the takeover began.
        hindrance: why the group must not be touched, a sentence; "" for nothing.
        at_once: how many nodes are emptied at the same time, at least one.
        now: UTC.
    """

    group: ManagedNodeGroup
    nodes: tuple[Node, ...]
    pods: Mapping[str, tuple[Pod, ...]]
    waiting: tuple[Pod, ...] = ()
    hindrance: str = ""
    at_once: int = 1
    now: datetime

    def leaving(self, node: Node) -> tuple[Pod, ...]:
        """The pods of a node that have to find another one, those that end already included."""
        there = self.pods.get(node.metadata.name, ())
        return tuple(one for one in there if not is_daemon(one) and not is_mirror(one) and not is_terminal(one))

    def is_moving(self, node: Node) -> bool:
        """Whether a pod of it leaves by itself, or by an eviction."""
        return any(not is_active(pod) or not why_kept(pod, self.now) for pod in self.leaving(node))


def why_kept(pod: Pod, now: datetime) -> str:
    """Why a pod is not evicted, for people; "" where it is."""
    if do_not_disrupt(pod, now):
        return "is annotated karpenter.sh/do-not-disrupt"
    if pod.annotations.get(SAFE_TO_EVICT) == "false":
        return f'is annotated {SAFE_TO_EVICT}: "false"'
    if is_pinned(pod):
        return "requires a node of a managed node group"
    return "has no controller that would create it again" if pod.owner is None else ""


def is_pinned(pod: Pod) -> bool:
    """Whether only nodes of managed node groups have the labels that a pod requires."""
    if any(key.startswith(EKS_LABELS) for key in pod.shape.node_selector):
        return True
    affinity = pod.shape.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return False
    terms = affinity.node_affinity.required.node_selector_terms
    return bool(terms) and all(any(one.key.startswith(EKS_LABELS) for one in term.match_expressions) for term in terms)


def hindrance_of(group: ManagedNodeGroup, leads: str, status: str | None) -> str:
    """Why Cluster Autoscaler may still act on a group, a sentence with the remedy; "" where it cannot.

    Args:
        group: it.
        leads: the namespace in which Cluster Autoscaler holds its Lease; "" for none.
        status: of its ConfigMap; None where that is not there.
    """
    if not leads:
        return ""
    head = f'{HOLDS} in namespace "{leads}"'
    stop = f"Stop it: kubectl -n {leads} scale deployment cluster-autoscaler --replicas=0"
    if status is None:
        return f"{head}, and its ConfigMap {STATUS_CONFIGMAP} does not say which node groups it scales. {stop}"
    if not group.scaling_groups:
        return f'{head}, and the Auto Scaling groups of node group "{group.name}" are not known. {stop}'
    scaled = [one for one in group.scaling_groups if one in status]
    if scaled:
        exclude = (
            f"exclude the group: remove the tag k8s.io/cluster-autoscaler/enabled from Auto Scaling group {scaled[0]}"
        )
        return f"{head} and scales {scaled[0]}. {stop}, or {exclude}"
    return ""


def next_move(facts: GroupFacts) -> GroupMove:
    """The one move that is due."""
    group = facts.group
    if facts.hindrance:
        return GroupMove(MoveKind.REFUSE, facts.hindrance)
    open_nodes = tuple(one.metadata.name for one in facts.nodes if not one.spec.unschedulable)
    if open_nodes:
        text = f'cordoning {counted(len(open_nodes), "node")} of node group "{group.name}"'
        return GroupMove(MoveKind.CORDON, text, nodes=open_nodes)
    moving = [node for node in facts.nodes if facts.is_moving(node)]
    if moving:
        return _eviction(facts, moving[: max(1, facts.at_once)])
    kept = [(pod, why_kept(pod, facts.now)) for node in facts.nodes for pod in facts.leaving(node)]
    if kept:
        named = listed((f"{pod.key} {why}" for pod, why in kept), _NAMED, "; ")
        return GroupMove(
            MoveKind.REFUSE,
            f'{counted(len(kept), "pod")} of node group "{group.name}" {"is" if len(kept) == 1 else "are"} not evicted: {named}',
        )
    if facts.waiting:
        return _waiting(facts)
    scaling = group.scaling_config
    if scaling.desired_size > scaling.min_size:
        text = f'no pods remain on node group "{group.name}"; reducing it from {scaling.desired_size} to its minimum of {counted(scaling.min_size, "node")}'
        return GroupMove(MoveKind.REDUCE, text, size=scaling.min_size)
    return GroupMove(MoveKind.DONE, f'no pods remain on node group "{group.name}"')


def _eviction(facts: GroupFacts, window: Sequence[Node]) -> GroupMove:
    if facts.waiting:
        return _waiting(facts)
    pods = tuple(
        pod for node in window for pod in facts.leaving(node) if is_active(pod) and not why_kept(pod, facts.now)
    )
    names = listed((one.metadata.name for one in window), _NAMED)
    if not pods:
        return GroupMove(MoveKind.WAIT, f"waiting until the pods of {names} have ended")
    return GroupMove(MoveKind.EVICT, f"evicting {counted(len(pods), 'pod')} of {names}", pods=pods)


def _waiting(facts: GroupFacts) -> GroupMove:
    named = listed((one.key for one in facts.waiting), _NAMED)
    return GroupMove(MoveKind.WAIT, f"waiting until {counted(len(facts.waiting), 'pod')} found a node: {named}")


def reduction_command(group: ManagedNodeGroup, size: int) -> str:
    """What reduces a group, for a shell."""
    scaling = group.scaling_config
    sizes = f"minSize={scaling.min_size},maxSize={scaling.max_size},desiredSize={max(size, scaling.min_size)}"
    return f"aws eks update-nodegroup-config --cluster-name {group.cluster_name} --nodegroup-name {group.name} --scaling-config {sizes}"


def in_order(groups: Iterable[ManagedNodeGroup], chosen: Sequence[str]) -> tuple[ManagedNodeGroup, ...]:
    """The groups as they are named, or all of them by name where none is.

    Raises:
        KeyError: there is no such group.
    """
    by_name = {one.name: one for one in groups}
    return tuple(by_name[name] for name in (chosen or sorted(by_name)))
