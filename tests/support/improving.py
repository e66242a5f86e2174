"""A plan of the planning process's, made in this process and judged."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from provisioner.apis.pods import Pod
from provisioner.packing.optimizer import ITERATIONS, SCHEDULING, never, propose
from provisioner.scheduling.improvement.acceptance import taken
from provisioner.scheduling.judging import Fault
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer, and how good it is known to be.

    Attributes:
        result: legal as a whole, and never dearer than the one that was to be improved.
        usd_at_least: per hour: no plan for the same pods costs less. Proved in exact arithmetic.
        stage: that found it: "scheduling" where nothing cheaper was found.
        steps: rounds of ruin and recreate.
        refused: why a cheaper fleet was not taken.
    """

    result: Result
    usd_at_least: float
    stage: str = SCHEDULING
    steps: int = 0
    refused: tuple[Fault, ...] = ()

    @property
    def usd_per_hour(self) -> float:
        return self.result.usd_per_hour

    @property
    def gap(self) -> float:
        """How much dearer than the bound it is, as a fraction of the bound; infinite over a bound of 0."""
        usd, least = self.usd_per_hour, self.usd_at_least
        if usd <= least:
            return 0.0
        return usd / least - 1 if least > 0 else float("inf")


def improve(
    prepared: Prepared,
    pods: Iterable[Pod],
    result: Result,
    *,
    expired: Callable[[], bool] = never,
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> Plan:
    """Look for a cheaper fleet for the pods that scheduling placed: arguments as of `propose`."""
    proposal = propose(prepared, pods, result, expired=expired, iterations=iterations, seed=seed)
    least, steps = proposal.usd_at_least, proposal.steps
    if proposal.nodes is None:
        return Plan(result, least, steps=steps)
    found, faults = taken(prepared, result, proposal.kept, proposal.nodes)
    if found is result:
        return Plan(result, least, steps=steps, refused=faults)
    return Plan(found, least, proposal.stage, steps)
