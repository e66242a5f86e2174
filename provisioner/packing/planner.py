"""A cheaper fleet for a batch, where there is time to look for one: asks the planning process, judges what it proposes, and says what came of it."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.gangs import bound_by_volcano
from provisioner.packing.process import PackingRefusal, PlannerProcess, ProcessReply
from provisioner.packing.protocol import ROUNDS, SEED, PackingProtocolError, proposed
from provisioner.scheduling.improvement.acceptance import EPSILON_USD, is_near, taken
from provisioner.scheduling.improvement.mending import mended
from provisioner.scheduling.improvement.partitions import MOST_PODS, are_few
from provisioner.scheduling.judging import Fault
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Packing
from provisioner.scheduling.result import Result
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.message import Said

LEAST_SECONDS: Final = 0.3
"""Where no more of the batch's time remains, its nodes are launched as scheduling has them."""
SEARCH_SHARE: Final = 0.6
"""Of a batch's time, for the search; the rest is for the question, the answer and the judge."""
_log = logs.get_logger(__name__)


class PlanOutcome(enum.StrEnum):
    """What came of the wish for a cheaper fleet; those of `PackingRefusal` beside them."""

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    NEAR_BOUND = "near-bound"
    EXACT = "exact"
    GREEDY = "greedy"
    NO_TIME = "no-time"


_NOT_MENDED: Final = (PlanOutcome.GREEDY, PlanOutcome.NO_TIME, PlanOutcome.REFUSED)
"""After any other, single nodes are given up where that saves; after a search without an answer as long as there is time."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a search may take.

    Attributes:
        least: for any batch, one more for each 10,000 pods, and for each 20,000 instance types of all NodePools together.
        most: for the largest.
        grace: so much longer the answer is waited for.
    """

    least: float = 1.0
    most: float = 10.0
    grace: float = 0.5

    def seconds(self, pods: int, types: int = 0) -> float:
        """For a batch of so many pods on new nodes, which may be of so many instance types; each counts once for each NodePool."""
        return min(self.most, self.least + pods / 10_000 + types / 20_000)


@dataclass(frozen=True, slots=True)
class PackingOutcome:
    """What is to be launched.

    Attributes:
        result: legal as a whole, and never dearer than scheduling's own.
        usd_at_least: no plan for its pods costs less, in USD per hour; None where nothing is known.
    """

    result: Result
    usd_at_least: float | None
    outcome: PlanOutcome | PackingRefusal

    @property
    def annotations(self) -> Mapping[str, str]:
        """What its NodeClaims say of the plan that they are part of."""
        said = {names.PLAN_COST: f"{self.result.usd_per_hour:.4f}"}
        if self.usd_at_least is not None:
            said[names.PLAN_LOWER_BOUND] = f"{self.usd_at_least:.4f}"
        gap = self.result.gap(self.usd_at_least)
        if gap is not None and self.outcome is not PlanOutcome.EXACT:  # nothing is left to mend of what is cheapest
            said[names.PLAN_GAP] = f"{gap:.4f}"
        return said


PATIENCE: Final = Patience()


def as_scheduled(_prepared: Prepared, result: Result) -> PackingOutcome:
    """Scheduling's own answer is launched."""
    return PackingOutcome(result, result.usd_at_least, PlanOutcome.GREEDY)


class Planner:
    """Improves one batch after another. One thread.

    Args:
        steers: whether an extender leads the planned pods of a scheduler to their nodes.
        wanted: whether NodePools are packed by cost as a rule; each batch shows whether one is.
    """

    def __init__(
        self,
        process: PlannerProcess,
        clock: Clock,
        patience: Patience = PATIENCE,
        *,
        steers: Callable[[str], bool],
        wanted: bool = True,
    ) -> None:
        self._process, self._clock, self._patience = process, clock, patience
        self._steers: Final = steers
        self._wanted = wanted
        self._types = 0

    def expect(self, pods: int) -> float:
        """A batch of so many pods is gathering: where it is worth it, the process starts meanwhile; how many seconds planning will need."""
        if pods <= MOST_PODS or not self._wanted:
            self._process.tidy()
            return 0.0
        return 0.0 if self._process.start() is not None else self._patience.seconds(pods, self._types)

    def stop(self) -> None:
        """End the process."""
        self._process.stop()

    def planned(self, prepared: Prepared, result: Result, seconds: float) -> PackingOutcome:
        """What to launch for a batch.

        Args:
            prepared: the world.
            result: scheduling's answer in it.
            seconds: of the batch's time that remain.
        """
        try:
            end = self._clock.monotonic() + seconds
            found, least, outcome = self._improved(prepared, result, seconds)
            unanswered = isinstance(outcome, PackingRefusal)
            if outcome not in _NOT_MENDED and not (unanswered and self._clock.monotonic() >= end):
                steered = not any(map(bound_by_volcano, found.placed)) and all(
                    map(self._steers, {pod.shape.scheduler_name for pod in found.placed})
                )
                better = mended(prepared, found, steered=steered, expired=lambda: self._clock.monotonic() >= end)
                if better is not found and outcome is not PlanOutcome.EXACT and not unanswered:
                    outcome = PlanOutcome.IMPROVED
                found = better
        except Exception:  # noqa: BLE001 - whatever is wrong with a search, pods get their nodes
            _log.exception("The search for cheaper nodes failed; launching the greedy plan; please report this bug")
            self._process.fail(Said("the provisioner could not reach it, or could not read its answer"))
            found, least, outcome = result, result.usd_at_least, PackingRefusal.FAILED
        if found.usd_per_hour > result.usd_per_hour + EPSILON_USD:
            raise AssertionError("a plan that is dearer than the greedy one")
        return PackingOutcome(found, least, outcome)

    def _improved(
        self, prepared: Prepared, result: Result, seconds: float
    ) -> tuple[Result, float | None, PlanOutcome | PackingRefusal]:
        least = result.usd_at_least
        packed = {pool.name for pool in prepared.world.pools if pool.packing is Packing.COST}
        self._wanted = bool(packed)
        self._types = sum(len(pool.instance_types) for pool in prepared.world.pools)
        pods = [len(claim.pods) for claim in result.claims if claim.pool in packed]
        if not pods and result.claims:
            return result, least, PlanOutcome.GREEDY
        if are_few(prepared, result):
            return result, least, PlanOutcome.EXACT
        if is_near(result):
            return result, least, PlanOutcome.NEAR_BOUND
        own = min(seconds, self._patience.seconds(sum(pods), self._types))
        if own <= LEAST_SECONDS:
            return result, least, PlanOutcome.NO_TIME
        now = self._clock.monotonic()
        reply = self._process.ask(
            prepared.world,
            result,
            search_until=now + own * SEARCH_SHARE,
            wait_until=now + own + self._patience.grace,
            rounds=ROUNDS,
            seed=SEED,
        )
        if isinstance(reply, PackingRefusal):
            return result, least, reply
        try:
            found, faults, least = settled(prepared, result, reply)
        except PackingProtocolError as error:
            self._process.fail(str(error))
            return result, least, PackingRefusal.FAILED
        if found is not result:
            return found, least, PlanOutcome.IMPROVED
        if faults:
            said = "; ".join(map(str, faults[:3]))
            _log.info("Launching the greedy plan because a cheaper one is not possible", reasons=said)
            return result, least, PlanOutcome.REFUSED
        return result, least, PlanOutcome.UNCHANGED


def settled(prepared: Prepared, result: Result, reply: ProcessReply) -> tuple[Result, tuple[Fault, ...], float | None]:
    """What a planning process's answer makes of scheduling's: see `acceptance.taken`; and the least that is known of any plan's price.

    Raises:
        PackingProtocolError: the answer makes no sense.
    """
    answered, found = reply.answered, result
    faults: tuple[Fault, ...] = ()
    if answered.nodes is not None:
        kept, nodes = proposed(answered, reply.pods, result, prepared.world.pools)
        found, faults = taken(prepared, result, kept, nodes)
    own, bound = result.usd_at_least, answered.usd_at_least
    if not 0 <= bound <= found.usd_per_hour + EPSILON_USD:
        return found, faults, own  # a bound that a fleet costs less than is none
    return found, faults, bound if own is None else max(own, bound)
