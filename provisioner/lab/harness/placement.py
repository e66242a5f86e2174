"""How much of the plan came true: planned pods counted per class and node (design §3b.3)."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.apis.plan import Plan


@dataclass(frozen=True, slots=True)
class Placement:
    """Pods that had a plan, by what became of them; the three parts sum to `planned`."""

    planned: int
    on_plan: int
    absorbed: int  # running, but on another node than the planned one
    unbound: int

    @property
    def percent(self) -> float:
        """Share of planned pods that run where they were planned; `nan` when nothing was planned."""
        return math.nan if self.planned == 0 else 100 * self.on_plan / self.planned


class LatestPlans:
    """The latest plan of every pod, fed with every plan that is seen on a claim, in order.

    A pod that is planned again, because its claim failed, counts for its latest plan only. A plan that shrinks
    (a pod was absorbed and taken off it) still counts for the pods that it had, so that taking pods off a plan
    cannot make the figure better.
    """

    def __init__(self) -> None:
        self._home: dict[str, tuple[str, str]] = {}  # pod uid -> (source, class)
        self._nameless: dict[tuple[str, str, str], int] = {}  # (source, class, owner) -> pods planned without uid

    def add(self, source: str, plan: Plan) -> None:
        """Record the plan as it is on `source`, a claim, now."""
        for entry in plan.pods:
            for uid in entry.uids:
                self._home[uid] = (source, entry.klass)
            nameless = max(0, entry.count - len(entry.uids))
            key = (source, entry.klass, entry.owner)
            if nameless > self._nameless.get(key, 0):
                self._nameless[key] = nameless

    def __contains__(self, uid: str) -> bool:
        return uid in self._home

    def judge(self, bound: Counter[tuple[str, str]], nodes: Mapping[str, str]) -> Placement:
        """Compare the plan with where the pods are.

        Args:
            bound: how many pods of the workload of each class there are on each node: (node, class).
            nodes: node name of each source; a source without a node brought none of its pods home.
        """
        wanted = Counter(self._home.values())
        for (source, klass, _), count in self._nameless.items():
            wanted[source, klass] += count
        planned = sum(wanted.values())
        on_plan = 0
        per_node: Counter[tuple[str, str]] = Counter()
        for (source, klass), count in wanted.items():
            per_node[nodes.get(source, ""), klass] += count
        for key, count in per_node.items():
            on_plan += min(count, bound[key]) if key[0] else 0
        classes = {klass for _, klass in wanted}
        elsewhere = sum(count for (_, klass), count in bound.items() if klass in classes) - on_plan
        absorbed = min(planned - on_plan, elsewhere)
        return Placement(planned, on_plan, absorbed, planned - on_plan - absorbed)
