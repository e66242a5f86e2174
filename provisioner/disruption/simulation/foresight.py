"""What becomes of a fleet when proposals are carried out one after another, so that sequences can be compared by where they lead.

It is played as if everything went as planned and nothing else happened: a proposal is carried out in an instant, what it made is
as good as any other node of its kind from then on, and the budgets that leave anything now hold nobody back.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from msgspec.structs import replace as changed

from provisioner.apis.karpenter import NodeClaim, NodeClaimSpec, NodeClassReference
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.pods import Pod
from provisioner.disruption import costs
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView
from provisioner.scheduling.becoming import labels_of, taints_of, with_pods
from provisioner.scheduling.improvement.limits_after import limits_after
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.result import PlannedClaim
from provisioner.scheduling.world import bin_of
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView
from provisioner.values.resources import EMPTY, Resources

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")


class Play:
    """A fleet, what became of it by some proposals, and what that took.

    Attributes:
        view: what a method would be asked by now.
        curve: (cost of the evictions, USD per hour saved) at the start and after each proposal; see `costs.eviction_cost`.
    """

    def __init__(self, view: DisruptionView, prepared: Prepared) -> None:
        """`prepared`: the world of the view."""
        allowed, most = view.allowed, len(view.snapshot.nodes)
        self.view = replace(
            view,
            allowed=lambda pool, reason: most if allowed(pool, reason) > 0 else 0,
            ceiling=None,
            first=frozenset(),
        )
        self.prepared = prepared
        self.curve: Final[list[tuple[float, float]]] = [(0.0, 0.0)]
        self._made = 0

    def carry_out(self, proposals: Iterable[Proposal]) -> None:
        """All of these, each after those before it. Cost: O(nodes), and what they move."""
        going: set[str] = set()
        coming: dict[str, list[Pod]] = {}
        made: list[NodeView] = []
        claims: list[PlannedClaim] = []
        for one in proposals:
            going.update(one.candidates)
            for name, pods in one.placements.items():
                coming.setdefault(name, []).extend(pods)
            for claim in one.replacements:
                self._made += 1
                made.append(_launched(f"~{self._made:06d}", claim))  # no object can be called so, and it comes last
                claims.append(claim)
            evictions, saved = self.curve[-1]
            cost = sum(max(0.0, costs.eviction_cost(pod)) for pod in one.pods)
            self.curve.append((evictions + cost, saved + one.saving_usd_per_hour))
        bins = {one.name: one for one in self.prepared.world.bins}
        kept, left = [], list[NodeView]()
        for node in self.view.snapshot.nodes:
            if node.key.of_claim and node.key.name in going:
                left.append(node)
            else:
                kept.append(_joined(node, coming.get(str(node.key), ())))
        changes = {name: with_pods(bins[name], pods) for name, pods in coming.items()}
        changes |= {str(node.key): bin_of(node) for node in made}
        gone = frozenset(str(node.key) for node in left)
        pools = limits_after(self.prepared.world.pools, left, claims)
        self.prepared = self.prepared.updated(Changes(bins=changes, gone=gone, pools=pools))
        snapshot = replace(self.view.snapshot, nodes=(*kept, *made))
        self.view = replace(self.view, snapshot=snapshot, prepared=self.prepared)

    def go_on(self, ask: Callable[[DisruptionView, Prepared], Sequence[Proposal]], passes: int) -> None:
        """Carry out what is proposed, pass by pass, until that is nothing; no more than so many passes."""
        for _ in range(passes):
            proposals = ask(self.view, self.prepared)
            if not proposals:
                return
            self.carry_out(proposals)


def ahead(curves: Sequence[tuple[_T, Sequence[tuple[float, float]]]]) -> _T:
    """The one that saves most by as many evictions as all of them make; of equal ones the one that saves most in the end, then the first."""
    evictions = min(curve[-1][0] for _, curve in curves)
    return max(curves, key=lambda one: (saved_by(one[1], evictions), one[1][-1][1]))[0]


def saved_by(curve: Iterable[tuple[float, float]], evictions: float) -> float:
    """The most that is saved by evictions that cost so much or less."""
    return max(saved for cost, saved in curve if cost <= evictions)


def _launched(name: str, claim: PlannedClaim) -> NodeView:
    """The node that a planned claim becomes, with its pods; it has been there for long."""
    labels = dict(labels_of(claim))
    pods = tuple(changed(pod, node_name=name) for pod in claim.pods)
    reference = NodeClassReference(group="", kind="", name="")
    return NodeView(
        key=NodeKey(name),
        name=name,
        claim=NodeClaim(metadata=ObjectMeta(name=name, labels=labels), spec=NodeClaimSpec(node_class_ref=reference)),
        pool=claim.pool,
        provider_id="",
        labels=labels,
        taints=taints_of(claim),
        capacity=claim.capacity,
        allocatable=claim.allocatable,
        used=_requests(claim.pods),
        planned=EMPTY,
        room=claim.allocatable - claim.requests,
        pods=pods,
        initialized=True,
        ready=True,
        deleting=False,
        do_not_disrupt=False,
        nominated=False,
        last_pod_event=_LONG_AGO,
        charge=claim.charge,
    )


def _joined(node: NodeView, pods: Sequence[Pod]) -> NodeView:
    """The node with more pods; the same object where there are none."""
    if not pods:
        return node
    more = _requests(pods)
    listed = tuple(changed(pod, node_name=node.name) for pod in pods)
    return replace(node, pods=node.pods + listed, used=node.used + more, room=node.room - more)


def _requests(pods: Iterable[Pod]) -> Resources:
    return Resources.total(pod.shape.requests for pod in pods)
