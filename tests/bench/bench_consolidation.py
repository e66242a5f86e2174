"""What consolidation saves, beside Karpenter's rule and the proved bound; `make bench` keeps results/consolidation-*.json.

EC2's types at us-east-1's on-demand prices, three DaemonSets a node, three seeds, commands carried out in an instant.

- Fleets that the cost planner bought for pods that came in five batches, consolidated under the default rule; no more than half of the pods
  may be evicted. The bound is that of the linear program over all pods at once (see `bench_planning`).
- Fleets whose Deployments were scaled down to about 60 %, beside Karpenter's rule (`simulator.karpenter`) run to its end: what either has
  saved by the time when it has evicted as many pods as the other one did in all, and the CPU time of ours.
"""

import time
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.disruption.methods import consolidation, rebuilding
from provisioner.disruption.rebuilding_planner import PATIENT
from provisioner.disruption.simulation.foresight import saved_by
from provisioner.disruption.view import Acceptance, DisruptionSettings
from provisioner.disruption.waste import potential_usd_per_hour
from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.results import Figure, at_least, at_most, write
from provisioner.packing.planner import PATIENCE, SEARCH_SHARE
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import PreferencePolicy
from provisioner.scheduling.result import Result
from provisioner.scheduling.world import Policies
from tests.bench.bench_planning import SEEDS, WITHOUT_END, improved
from tests.support import priced_fleets
from tests.support.economy import Economy, added, karpenters, launch, scaled_down
from tests.support.fleets import Fleet, pool
from tests.support.improving import improve

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]  # minutes, and several times that on a slow machine

RESULTS = Path(__file__).parents[2] / "results"
OVER = 5.0
"""Percent of the bound."""
SECONDS = 10.0
"""CPU of a pass over 2,000 nodes on a machine whose calibration loop takes `REFERENCE`."""
_PASSES = 40


def consolidated(economy: Economy, passes: list[float], most: int | None = None) -> Iterator[Economy]:
    """The fleet after each command, pass by pass, until nothing pays; the CPU seconds of each pass are added to `passes`."""
    for _ in range(_PASSES):
        found = 0
        for method in (consolidation, rebuilding):
            view = economy.view()
            began = time.process_time()
            proposals = method.propose(view).proposals
            if method is consolidation:
                passes.append(time.process_time() - began)
            pods = {node.key.name: len(node.pods) for node in economy.fleet.nodes}
            for one in proposals:
                if most is not None and economy.evictions + sum(pods[name] for name in one.candidates) > most:
                    return
                economy.carry_out(one)
                yield economy
            found += len(proposals)
        if not found:
            return
    pytest.fail("consolidation does not end")


def searched(prepared: Prepared, result: Result) -> Result:
    """What the planner finds in the time that the product gives it."""
    pods = result.placed
    end = time.process_time() + PATIENT.seconds(len(pods)) * SEARCH_SHARE
    return improve(prepared, pods, result, expired=lambda: time.process_time() > end, iterations=WITHOUT_END).result


def in_batches(kind: str, count: int, seed: int) -> tuple[Economy, float]:
    """The fleet that the planner bought for five batches, each beside the nodes of those before, and the bound of all pods at once.

    The search takes as long as the product lets it.
    """
    types = priced_fleets.ec2_types()
    pods = priced_fleets.workload(kind, count, seed)
    empty = prepare(priced_fleets.world_of(types))
    bound = improve(empty, pods, empty.solve(pods), expired=lambda: True, iterations=0).usd_at_least
    fleet = Fleet(
        [pool(name="default")], types=types, daemons=priced_fleets.DAEMONS, policies=Policies(hostname_domains=1)
    )
    economy = Economy(fleet, improved=searched)
    for number in range(5):
        prepared, batch = economy.view().prepared, pods[number::5]
        assert prepared is not None
        _, plan, _ = improved(prepared.world, batch, PATIENCE.seconds(len(batch)) * SEARCH_SHARE, seed)
        fleet.nodes = [added(node, plan.result.existing.get(str(node.key), ())) for node in fleet.nodes]
        for claim in plan.result.claims:
            launch(fleet, f"b{number}n{len(fleet.nodes):04d}", claim)
    return economy, bound


@pytest.mark.parametrize("count", [1_000, 5_000])
def test_fleets_bought_in_batches_come_near_the_bound(count: int) -> None:
    figures = []
    for kind in ("micro", "batch", "memory", "zonal"):
        gaps = []
        for seed in SEEDS:
            economy, bound = in_batches(kind, count, seed)
            before = 100 * (economy.usd_per_hour / bound - 1)
            for _ in consolidated(economy, [], most=count // 2):
                pass
            gaps.append(100 * (economy.usd_per_hour / bound - 1))
            share = 100 * economy.evictions / count
            print(f"{kind} {count:,} seed {seed}: +{before:.2f} %, then +{gaps[-1]:.2f} % by {share:.0f} % of the pods")
        figures.append(
            Figure(
                f"{kind} {count:,} in five batches, consolidated, over the bound (duals)", max(gaps), "%", at_most(OVER)
            )
        )
    kept(f"consolidation-batches-{count}", figures)


@pytest.mark.parametrize("nodes", [450, 2_000])
def test_more_is_saved_than_by_karpenters_rule_with_as_many_evictions(nodes: int) -> None:
    """Under the default rule, and where every saving pays, as in Karpenter."""
    figures = []
    for kind in ("micro", "batch"):
        ahead: dict[Acceptance, list[float]] = {one: [] for one in Acceptance}
        seconds = []
        for seed in SEEDS:
            start = scaled_down(kind, nodes, seed)
            price, pods = start.usd_per_hour, start.pods
            bound = price - potential_usd_per_hour(start.view())
            theirs = [(0, 0.0), *((one.evictions, one.saved) for one in karpenters(fork(start, Acceptance.KARPENTER)))]
            for acceptance in Acceptance:
                own, passes = fork(start, acceptance), list[float]()
                ours = [(0, 0.0), *((one.evictions, one.saved) for one in consolidated(own, passes))]
                evictions = min(ours[-1][0], theirs[-1][0])
                one, other = (100 * saved_by(curve, evictions) / price for curve in (ours, theirs))
                ahead[acceptance].append(one - other)
                seconds.append((max(passes), sum(passes)))
                print(
                    f"{kind}, {len(start.fleet.nodes)} nodes, seed {seed}, {acceptance}: {one:.2f} % saved, Karpenter's rule "
                    f"{other:.2f} %, by {100 * evictions / pods:.0f} % of the pods; in the end {100 * own.saved / price:.2f} % by "
                    f"{100 * own.evictions / pods:.0f} % (+{100 * (own.usd_per_hour / bound - 1):.1f} % over the bound), Karpenter's rule "
                    f"{100 * theirs[-1][1] / price:.2f} % by {100 * theirs[-1][0] / pods:.0f} %; {len(passes)} passes in {sum(passes):.1f} s"
                )
        for acceptance, some in ahead.items():
            name = f"{kind}, {nodes:,} nodes, --consolidation={acceptance}, more saved than by Karpenter's rule"
            figures.append(Figure(name, min(some), "points", at_least(0.0)))
        slowest, whole = max(one for one, _ in seconds), max(one for _, one in seconds)
        figures += [
            Figure(
                f"{kind}, {nodes:,} nodes, CPU of a pass, most",
                slowest,
                "s",
                at_most(SECONDS * slowness(calibration())),
            ),
            Figure(f"{kind}, {nodes:,} nodes, CPU of all passes, most", whole, "s"),
        ]
    kept(f"consolidation-{nodes}", figures)


def test_what_keeping_wishes_costs() -> None:
    """Printed, without a goal: how much less is saved because no wish is given up for money (decision 70)."""
    figures = []
    for kind in ("micro", "batch"):
        for seed in SEEDS:
            start = scaled_down(kind, 150, seed, wishing=True)
            price, saved = start.usd_per_hour, {}
            for preferences in PreferencePolicy:
                own = fork(start, Acceptance.SAVING)
                own.fleet.policies = replace(own.fleet.policies, preferences=preferences)
                for _ in consolidated(own, []):
                    pass
                saved[preferences] = 100 * own.saved / price
            kept_wishes, without = saved[PreferencePolicy.RESPECT], saved[PreferencePolicy.IGNORE]
            print(f"{kind}, seed {seed}: {kept_wishes:.2f} % saved, {without:.2f} % if wishes did not count")
            figures.append(
                Figure(f"{kind}, 150 nodes, seed {seed}, saved less for wishes", without - kept_wishes, "points")
            )
    kept("consolidation-wishes", figures)


def fork(economy: Economy, acceptance: Acceptance) -> Economy:
    fleet = copy(economy.fleet)
    return Economy(replace(fleet, nodes=list(fleet.nodes), settings=DisruptionSettings(acceptance=acceptance)))


def kept(name: str, figures: list[Figure]) -> None:
    write(RESULTS, name, figures)
    print(*(figure.line() for figure in figures), sep="\n")
    missed = [figure.line() for figure in figures if figure.met is False]
    assert not missed, "\n".join(missed)
