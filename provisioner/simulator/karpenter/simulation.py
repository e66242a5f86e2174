"""What Karpenter finds out about nodes before it disrupts them: where their pods would go. Pure. Source: 6.8."""

import math
from collections.abc import Sequence
from typing import Final

from provisioner.apis.eviction import forbids_for_ever
from provisioner.apis.pods import Pod, do_not_disrupt
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.methods.emptiness import consolidatable_at
from provisioner.disruption.view import DisruptionView
from provisioner.scheduling.improvement.limits_after import without_charges
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from provisioner.simulator.karpenter.provisioning import provision


class KarpenterSimulation:
    """Asked what becomes of nodes' pods at one instant. Nothing that is asked changes it."""

    def __init__(self, view: DisruptionView, prepared: Prepared) -> None:
        self._prepared: Final = prepared
        self._at: Final = view.snapshot.at
        self._budgets: Final = view.snapshot.pod_budgets
        self._waiting: Final = view.snapshot.waiting
        self._left: Final = view.snapshot.leaving
        pools = {one.pool.metadata.name: one.pool for one in view.snapshot.pools}
        going, raw, young = set[str](), set[str](), set[str]()
        for node in view.snapshot.nodes:
            name, pool = str(node.key), pools.get(node.pool)
            if node.deleting or (node.key.of_claim and node.key.name in view.under_way):
                going.add(name)
            elif node.claim is not None and not node.initialized:
                raw.add(name)
            elif node.claim is not None and pool is not None:
                due = consolidatable_at(node, pool)
                if due is not None and due > self._at:
                    young.add(name)
        self._going: Final = frozenset(going)
        self._raw: Final = frozenset(raw)
        self._young: Final = frozenset(young)

    def ask(
        self, some: Sequence[Candidate], *, consolidating: bool, max_new: float = math.inf, below: float = math.inf
    ) -> Result | None:
        """Where the pods of these nodes go if the nodes leave together, beside those that wait and those of nodes that leave already.

        None where one of them, or of those that leave already, has no place, or where theirs is a node that is not initialized. Whether pods that
        wait have places does not matter; the nodes that they need are among the new ones all the same.

        Args:
            some: the nodes.
            consolidating: pods do not go to nodes within their own consolidateAfter.
            max_new: as of `provision`; None where it stopped there.
            below: likewise.
        """
        own = [pod for one in some for pod in one.pods if self._moves(pod)]
        mine = {pod.uid for pod in own}
        must = mine.union(pod.uid for pod in self._left)
        leaving = self._going.union(str(one.node.key) for one in some)
        result = provision(
            without_charges(self._prepared, [one.node for one in some]),
            [*self._waiting, *self._left, *own],
            leaving=leaving,
            shut=dict.fromkeys(mine, self._young) if consolidating and self._young else {},
            max_new=max_new,
            below=below,
        )
        if result.is_late or any(one.pod.uid in must for one in result.unplaced):
            return None
        if any(pod.uid in mine for name in self._raw for pod in result.existing.get(name, ())):
            return None
        return result

    def _moves(self, pod: Pod) -> bool:
        """Whether the pod would be evicted: nothing protects it for good or for now."""
        if do_not_disrupt(pod, self._at):
            return False
        budgets = self._budgets.of(pod)
        return len(budgets) <= 1 and not any(map(forbids_for_ever, budgets))
