"""Pods whose NodeClaims are not being launched yet are planned again with the next batch, where more get a place or all cost less together.

A NodeClaim waits for its launch while it is being created, and after its provider refused it: for want of capacity, throttled, or since something
is wrong with its class. Nothing of it exists then. Whether it may be launched is decided under the state's lock (`state.claim_plans`): a claim that is
held here is not launched meanwhile, and one that is being launched, or whose launch has an unknown outcome, is never held. The answer is
carried out as one: the state gives up the claims and their pods' places, if these are still the pods that were planned again; then the new claims
are announced, and the old ones are deleted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType, by_price, launch_price
from provisioner.packing.planner import PackingOutcome
from provisioner.provisioning.worlds import Worlds
from provisioner.scheduling.improvement.acceptance import EPSILON_USD
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import SchedulingPool
from provisioner.scheduling.result import Result
from provisioner.scheduling.world import successors, taken_back
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.state.snapshot import Snapshot
from provisioner.support import logs
from provisioner.values.requirement import RequirementError, Requirements

MOST_CLAIMS: Final = 200
"""NodeClaims that one batch takes back."""
LEAST_SAVING: Final = 0.01
"""Share of the price of all nodes to come below which they are left as they are."""
_log = logs.get_logger(__name__)


class Replanning:
    """Looks at one batch after another. One thread.

    Args:
        effects: carries out what the state wants done.
        hold_seconds: for so long at most a NodeClaim is not launched because its pods are planned again.
    """

    def __init__(
        self,
        cluster: Cluster,
        worlds: Worlds,
        improve: Callable[[Prepared, Result], PackingOutcome],
        effects: Callable[[Iterable[Effect]], None],
        hold_seconds: float,
    ) -> None:
        self._cluster, self._worlds, self._improve, self._effects = cluster, worlds, improve, effects
        self._hold_seconds = hold_seconds

    def planned(
        self,
        snapshot: Snapshot,
        pods: Sequence[Pod],
        prepared: Prepared,
        planned: PackingOutcome,
        expired: Callable[[], Callable[[], bool]],
        last: Sequence[str] = (),
    ) -> PackingOutcome:
        """What to launch for a batch; claims that it takes the place of are given up already.

        Args:
            snapshot: the instant that the batch is about.
            pods: of the batch.
            prepared: its world.
            planned: what is launched where no claim is taken back.
            expired: begins a question's time.
            last: as of `BatchQuestion`.
        """
        held = self._cluster.hold_launches(self._hold_seconds)
        if not held:
            return planned
        try:
            prices = self._prices(snapshot, held, prepared.world.pools)
            self._cluster.release_launches(name for name in held if name not in prices)
            if not prices:
                return planned
            found = self._together(snapshot, pods, prepared, planned, prices, expired, last)
            moved = {
                view.claim.name: [pod.uid for pod in view.assigned]
                for view in snapshot.nodes
                if view.claim is not None and view.claim.name in prices
            }
            effects = self._cluster.replan(moved) if found is not None else None
            if found is None or effects is None:
                return planned
            saved = planned.result.usd_per_hour + sum(prices.values()) - found.result.usd_per_hour
            _log.info(
                "Planned the pods of NodeClaims that were not launched yet again, at a lower price",
                nodeclaims=len(prices),
                pods=sum(map(len, moved.values())),
                usd_per_hour_saved=round(saved, 4),
            )
            self._effects(effects)
            return found
        finally:
            self._cluster.release_launches(held)

    def _together(
        self,
        snapshot: Snapshot,
        pods: Sequence[Pod],
        prepared: Prepared,
        planned: PackingOutcome,
        prices: dict[str, float],
        expired: Callable[[], Callable[[], bool]],
        last: Sequence[str],
    ) -> PackingOutcome | None:
        """The plan without these claims and for their pods too; None where it leaves others, or leaves no fewer and does not cost clearly less."""
        rest, waiting = taken_back(snapshot, prices.keys())
        without = prepare(self._worlds.of(rest).world, prepared)
        solved = without.solve(
            (*waiting, *pods),
            avoided=snapshot.avoided,
            first=successors(snapshot),
            last=last,
            expired=expired(),
            explain=False,
        )
        left = {one.pod.uid for one in planned.result.unplaced}
        if any(one.pod.uid not in left for one in solved.unplaced):
            return None
        found = self._improve(without, solved)
        most = (planned.result.usd_per_hour + sum(prices.values())) * (1 - LEAST_SAVING) - EPSILON_USD
        better = len(found.result.unplaced) < len(left) or found.result.usd_per_hour < most
        return found if better else None

    def _prices(self, snapshot: Snapshot, held: Iterable[str], pools: Iterable[SchedulingPool]) -> dict[str, float]:
        """The claims that may be taken back, each with the least that its node costs as things are.

        One of which nothing can be had now is left to wait (`launch_fallback`): what others cost that nobody tried lately says little.
        """
        views = {view.claim.name: view for view in snapshot.nodes if view.claim is not None}
        known = {pool.name: pool for pool in pools}
        found: dict[str, float] = {}
        prices = _Prices()
        for name in held:
            view = views.get(name)
            if view is None or view.claim is None or len(found) >= MOST_CLAIMS:
                continue
            pool = known.get(view.pool)
            price = prices.of(view.claim, pool) if pool is not None else None
            if price is not None and not any(pod.shape.key in snapshot.stopped for pod in view.assigned):
                found[name] = price
        return found


class _Prices:
    """What nodes of claims cost; claims that ask for the same are looked at once."""

    def __init__(self) -> None:
        self._known: Final[dict[tuple[str, str, Requirements], float | None]] = {}

    def of(self, claim: NodeClaim, pool: SchedulingPool) -> float | None:
        """USD per hour of the node that a claim would become now: as planned, else the cheapest that can be had; None where nothing can."""
        planned = claim.metadata.annotations.get(names.PLANNED_OFFERING_ANNOTATION, "").split("/")[0]
        try:
            wanted = requirements_of(claim.spec.requirements)
        except RequirementError:
            return None
        key = pool.name, planned, wanted
        if key not in self._known:
            self._known[key] = _price([one for one in pool.instance_types if one.name == planned], wanted, pool)
        return self._known[key]


def _price(planned: Sequence[InstanceType], wanted: Requirements, pool: SchedulingPool) -> float | None:
    """One of several types may come of a launch also where the planned one is short."""
    several = any(
        one.alternatives > 1 and wanted.conflict(one.requirements) is None for kind in planned for one in kind.offerings
    )
    ways = () if several else by_price(planned, wanted)
    return ways[0][1].price if ways else launch_price(pool.instance_types, wanted)
