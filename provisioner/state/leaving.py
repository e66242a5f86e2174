"""The pods of nodes that are being removed, as far as they need another node. Not thread-safe: the owner serialises calls."""

from datetime import datetime
from typing import Final

from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.interruption import has_begun, interruption_of
from provisioner.apis.pods import Guard, Pod, is_daemon, is_reschedulable, is_waiting_for_eviction, read_do_not_disrupt
from provisioner.state.assignments import Assignments
from provisioner.state.keys import NodeKey
from provisioner.state.pod_protection import PodProtection
from provisioner.state.snapshot import NodeView
from provisioner.values.bounded import forget_oldest

_MOST_SURGING: Final = 10_000


class Leaving:
    """Pods by node; `pods` costs the nodes that changed, and those with a pod that is protected for a time.

    Args:
        protection: which pods nothing may evict.
        assignments: which pods have a place already.
    """

    def __init__(self, protection: PodProtection, assignments: Assignments) -> None:
        self._protection, self._assignments = protection, assignments
        self._surging: dict[str, None] = {}  # UIDs of pods whose successors are planned by themselves
        self._views: dict[NodeKey, NodeView] = {}
        self._pods: dict[NodeKey, tuple[Pod, ...]] = {}
        self._stale: set[NodeKey] = set()
        self._timed: set[NodeKey] = set()
        self._frozen: tuple[Pod, ...] | None = ()

    def node_changed(self, key: NodeKey, view: NodeView | None) -> None:
        """A node is seen so now; None where it is gone."""
        if view is not None and view.deleting and view.claim is not None and not view.awaits:
            known = self._views.get(key)
            if known is not None and known.initialized is not view.initialized:
                self._frozen = None  # its place among the others
            self._views[key] = view
            self._stale.add(key)
        elif self._views.pop(key, None) is not None:
            self._pods.pop(key, None)
            self._stale.discard(key)
            self._timed.discard(key)
            self._frozen = None

    def assignment_changed(self, key: NodeKey) -> None:
        """A pod that is bound to this node got a place elsewhere, or lost it."""
        if key in self._views:
            self._stale.add(key)

    def budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """A PodDisruptionBudget was added, changed or removed: other pods may be evicted now."""
        if self._protection.budget_changed(old, new):
            self._stale.update(self._views)

    def surges(self, uid: str) -> None:
        """A pod needs no place, since its successor comes before it goes."""
        self._surging[uid] = None
        forget_oldest(self._surging, _MOST_SURGING)

    def surges_no_more(self, uid: str) -> bool:
        """It is evicted after all, or gone; whether it was one."""
        known = uid in self._surging
        self._surging.pop(uid, None)
        return known

    def is_held(self, key: NodeKey, now: datetime) -> bool:
        """Whether such a node waits for pods of which none leaves, nor may be evicted now. Cost: its pods."""
        view = self._views.get(key)
        mine = (one for one in view.pods if is_waiting_for_eviction(one, now) and not is_daemon(one)) if view else ()
        free = [one.deleted is not None or self._protection.lets_go(one, now) for one in mine]
        return bool(free) and not any(free)

    def pods(self, now: datetime) -> tuple[Pod, ...]:
        """The pods that need a place, by node and name; the same tuple while nothing changes."""
        for key in self._stale | self._timed:
            found, timed = self._of(self._views[key], now)
            (self._timed.add if timed else self._timed.discard)(key)
            if self._pods.get(key) != found:
                self._pods[key] = found
                self._frozen = None
        self._stale.clear()
        if self._frozen is None:
            order = sorted(self._pods, key=lambda key: (not self._views[key].initialized, key))
            self._frozen = tuple(pod for key in order for pod in self._pods[key])
        return self._frozen

    def _of(self, view: NodeView, now: datetime) -> tuple[tuple[Pod, ...], bool]:
        # a pod that cannot be evicted would leave the node made for it empty; one that is interrupted ends all the same
        claim = view.claim
        mark = interruption_of(claim.metadata.annotations) if claim is not None else None
        ends = claim is not None and has_begun(claim.metadata.annotations, now)
        if view.command and not ends and claim is not None and claim.metadata.deletion_timestamp is None:
            return (), mark is not None  # the command gave them places, or gives up
        free = [
            pod for pod in view.pods if pod.deleted is None and not self._is_placed(pod.uid) and is_reschedulable(pod)
        ]
        found = tuple(pod for pod in free if ends or not self._protection.holds(pod, now))
        is_coming = mark is not None and not ends
        return found, is_coming or any(read_do_not_disrupt(pod).guard is Guard.FOR_A_TIME for pod in free)

    def _is_placed(self, uid: str) -> bool:
        return uid in self._surging or self._assignments.is_planned(uid)
