"""One pass of consolidation over all candidates, in CPU seconds of one process; `make bench` keeps results/disruption.json.

2,000 Deployments whose pods are spread over zones and kept a host apart, on nodes of at most 8 CPUs that the solver itself chose for them; and the
same fleet after two of five replicas of each have gone. Goals are meant for a machine whose calibration loop takes 0.069 s, and scale with it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provisioner.apis import names
from provisioner.disruption.methods import consolidation
from provisioner.disruption.view import MethodAnswer
from provisioner.disruption.waste import potential_usd_per_hour
from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.scheduling.prepared import prepare
from provisioner.support.garbage import collect_seldom
from tests.bench.bench_prepare import settled
from tests.bench.machine import peak_megabytes
from tests.support import loads
from tests.support.fleets import Fleet, pool
from tests.support.loads import bound

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
LARGEST = 8_000
"""Thousandths of a CPU."""
DEPLOYMENTS = 2_000
CASES = {
    f"{nodes:,} nodes, {words}": (replicas, left)
    for nodes, replicas in ((500, 3), (5_000, 25))
    for words, left in (("consolidated", 5), ("scaled down by 40 %", 3))
}
GOALS = {500: 2.0, 5_000: 30.0}
MEMORY = 1_000


def a_fleet(replicas: int, left: int) -> Fleet:
    """As the solver bought it; of five pods of a Deployment `left` are left."""
    types = tuple(one for one in loads.ec2() if one.capacity["cpu"] <= LARGEST)
    on_demand = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}
    fleet = Fleet([pool(requirements=(on_demand,))], types=types)
    pods = list(loads.deployments(DEPLOYMENTS, replicas, spread=(names.ZONE_LABEL,), apart=names.HOSTNAME_LABEL))
    by_name = {one.name: one for one in types}
    for number, claim in enumerate(prepare(fleet.prepared().world).solve(pods).claims):
        name = f"n{number:05d}"
        stays = [one for one in claim.pods if sum(map(int, one.name.split("-")[1:])) % 5 < left]
        fleet.node(
            name,
            [bound(one, f"node-{name}") for one in stays],
            kind=by_name[claim.planned_type],
            zone=claim.planned_zone,
            capacity_type=claim.planned_capacity_type,
        )
    return fleet


def measured(name: str) -> dict[str, float]:
    collect_seldom()
    before = settled()
    fleet = a_fleet(*CASES[name])
    view = fleet.view()
    figures: dict[str, float] = {"nodes": len(fleet.nodes), "pods": sum(len(one.pods) for one in fleet.nodes)}
    started = time.process_time()
    answer = consolidation.propose(view)
    figures["pass"] = time.process_time() - started
    figures |= _of(answer)
    figures["potential"] = potential_usd_per_hour(view)
    figures["kept"] = settled() - before
    figures["peak"] = peak_megabytes()
    figures["calibration"] = calibration()
    return figures


def _of(answer: MethodAnswer) -> dict[str, float]:
    return {
        "unreached": len(answer.unreached),
        "proposals": len(answer.proposals),
        "candidates": sum(len(one.candidates) for one in answer.proposals),
        "saving": sum(one.saving_usd_per_hour for one in answer.proposals),
    }


def child(name: str) -> None:
    print(json.dumps(measured(name)))


def told(name: str) -> list[Figure]:
    command = [sys.executable, "-c", f"from tests.bench import bench_disruption as b; b.child({name!r})"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    values = json.loads(done.stdout)
    speed = slowness(values["calibration"])
    goals = {
        "pass": GOALS[int(name.split(maxsplit=1)[0].replace(",", ""))] * speed,
        "unreached": 0,
        "kept": MEMORY,
        "peak": MEMORY,
    }
    units = {"pass": "s", "calibration": "s", "kept": "MB", "peak": "MB", "potential": "$/h", "saving": "$/h"}
    figures = []
    for kind, value in values.items():
        unit = units.get(kind, kind)
        figure = Figure(f"{name}: {kind}", value, unit, at_most(goals[kind]) if kind in goals else None)
        figures.append(figure)
        print(figure.line(), flush=True)
    return figures


def test_disruption() -> None:
    figures = [figure for name in CASES for figure in told(name)]
    write(RESULTS, "disruption", figures)
    missed = [figure.line() for figure in figures if figure.met is False]
    assert not missed, "\n".join(missed)
