"""Writes deletion costs to pods (feature gate PodDeletionCostManagement), and takes back those that nobody looks after any more.

What is written is decided in `deletion_ranks`. It is applied with a field manager of its own and without force: the API server refuses to change the
value of another manager, also of one that our cache does not know yet. What is ours stands on the pods, so the next leader goes on where this one ended.

Where the gate is off, what an earlier process wrote is withdrawn. At the start of a term, so is what Karpenter left; `managedFields` tell which
values are its own. All writes go to `pods/status`, which takes annotations as well: no other right is needed.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from provisioner.apis import deletion_cost, names
from provisioner.apis.pods import Pod
from provisioner.disruption.deletion_ranks import CostWrite, NodeOrder, deletion_ranks, withdrawals
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound
from provisioner.runtime import metrics
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock

CONTROLLER: Final = "pod.deletioncost"
MANAGER: Final = "dovetail-pod-deletion-cost"
"""As `kubectl get --show-managed-fields` shows it."""
MOST_WRITES: Final = 200
"""Of one pass; with `PASS_SECONDS` at most 20 a second."""
PASS_SECONDS: Final = 10.0
FRESH_SECONDS: Final = 300.0
"""For so long nothing is looked at again where nothing has changed; prices may have."""
MOST_REFUSED_SECONDS: Final = 3600.0
"""Between two attempts at a pod whose cost somebody else owns, though it looks like ours; at first `FRESH_SECONDS`, then twice as long each time."""
REST_SECONDS: Final = 3600.0
"""Where the gate is off and nothing is left."""
_log = logs.get_logger(__name__)
_decode = msgspec.json.Decoder(deletion_cost.ManagedPod).decode


class DeletionCosts:
    """Of the term. One thread calls `poll`.

    Args:
        order: in which nodes go.
        enabled: the feature gate.
        stale: which watch is behind, in words; nothing is written before it has caught up.
        beside: that another Karpenter leads, which may write costs itself, in words.
        most: writes of one pass.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        clock: Clock,
        order: Callable[[Snapshot], NodeOrder],
        *,
        enabled: bool,
        stale: Callable[[], str],
        beside: Callable[[], str],
        most: int,
    ) -> None:
        self._cluster, self._client, self._clock, self._order = cluster, client, clock, order
        self._enabled, self._stale, self._beside, self._most = enabled, stale, beside, most
        self._stop = threading.Event()
        self._after = ""
        self._settled: tuple[float, tuple[object, ...]] | None = None
        self._inherited = True
        self._refused: dict[str, tuple[float, float]] = {}  # by UID: until when nothing is written, and for how long

    def close(self) -> None:
        """Have a pass that is under way end soon."""
        self._stop.set()

    def poll(self) -> float:
        """One pass; seconds until the next.

        Raises:
            ApiError: a write failed for a reason that concerns the others as well.
        """
        if self._stale() or self._beside():
            return PASS_SECONDS
        began, snapshot = self._clock.monotonic(), self._cluster.snapshot()
        if self._inherited:
            self._inherited = self._clear_inherited(snapshot)
        if not self._enabled:
            return self._withdraw(snapshot)
        looks = (snapshot.nodes, snapshot.pools, snapshot.pod_budgets, snapshot.commands)
        if self._settled is not None and began < self._settled[0] and _same(looks, self._settled[1]):
            return PASS_SECONDS
        self._refused = {uid: one for uid, one in self._refused.items() if self._cluster.pod(uid) is not None}
        refused = {uid for uid, (until, _) in self._refused.items() if began < until}
        found = deletion_ranks(self._order(snapshot), snapshot.nodes, self._most, self._after, refused)
        metrics.pending_deletion_costs(found.pending)
        self._write(found.writes)
        self._after = found.after
        metrics.DELETION_COSTS.labels("skipped_unchanged").inc(found.settled)
        self._settled = (began + FRESH_SECONDS, looks) if not found.writes else None
        took = self._clock.monotonic() - began
        return max(PASS_SECONDS, min(60.0, 10 * took))

    def _withdraw(self, snapshot: Snapshot) -> float:
        writes = withdrawals(snapshot.nodes, self._most)
        if not writes:
            return PASS_SECONDS if self._inherited else REST_SECONDS
        done = self._write(writes)["updated"]
        _log.info(
            "Removed pod deletion costs because the feature gate PodDeletionCostManagement is disabled", pods=done
        )
        return PASS_SECONDS

    def _write(self, writes: tuple[CostWrite, ...]) -> Counter[str]:
        """Carry these out; what became of them, as the metric words it."""
        done = Counter[str]()
        for one in writes:
            if self._stop.is_set():
                break
            result = self._apply(one.pod, one.value)
            done[result] += 1
            metrics.DELETION_COSTS.labels(result).inc()
        return done

    def _apply(self, pod: Pod, value: int | None) -> str:
        try:
            if value is not None:
                self._give(pod, str(value))
                self._refused.pop(pod.uid, None)
            else:  # not by an apply, which would leave a mark that somebody else wrote, to be taken back for ever
                gone = deletion_cost.withdrawn(pod.annotations)
                self._remove(pod.name, pod.namespace, pod.uid, pod.resource_version, gone)
        except NotFound:
            return "skipped_notfound"
        except (Conflict, Invalid):  # another pod of the name, or somebody else's value
            if value is not None:
                _, before = self._refused.get(pod.uid, (0.0, 0.0))
                seconds = min(MOST_REFUSED_SECONDS, max(FRESH_SECONDS, 2 * before))
                self._refused[pod.uid] = self._clock.monotonic() + seconds, seconds
            return "skipped_conflict"
        except ApiError:
            metrics.DELETION_COSTS.labels("error").inc()
            raise
        return "updated"

    def _give(self, pod: Pod, cost: str) -> None:
        said = {names.POD_DELETION_COST: cost, names.OWN_DELETION_COST: cost}
        metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": said}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        self._client.apply(resources.PODS, pod.name, body, MANAGER, pod.namespace, subresource="status", force=False)

    def _remove(self, name: str, namespace: str, uid: str, version: str, gone: dict[str, None]) -> None:
        """Take annotations from the pod as it was when that was decided, whoever owns them."""
        body = {"metadata": {"uid": uid, "resourceVersion": version, "annotations": gone}}
        self._client.patch(resources.PODS, name, body, namespace, subresource="status")

    def _clear_inherited(self, snapshot: Snapshot) -> bool:
        """Remove what Karpenter wrote, as far as one pass may; whether there may be more."""
        suspects = {pod.uid: pod for one in snapshot.nodes for pod in one.pods if deletion_cost.may_be_karpenters(pod)}
        cleared = 0
        for namespace in sorted({pod.namespace for pod in suspects.values()}):
            for item in self._client.items(resources.PODS, namespace):
                one = _decode(item)
                if one.metadata.uid not in suspects or not deletion_cost.karpenter_wrote(one):
                    continue
                if cleared == self._most or self._stop.is_set():
                    return True
                cleared += self._clear(one)
        if cleared:
            _log.info("Removed pod deletion costs that Karpenter wrote", pods=cleared)
        return False

    def _clear(self, one: deletion_cost.ManagedPod) -> bool:
        meta = one.metadata
        gone = {names.POD_DELETION_COST: None}
        try:
            self._remove(meta.name, meta.namespace, meta.uid, meta.resource_version, gone)
        except (NotFound, Conflict):
            return False
        return True


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))
