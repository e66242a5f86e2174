"""What is told of a simulation."""

from dataclasses import replace

from provisioner.simulator.ledger import Figures, Sample
from provisioner.simulator.report import SeedSpread, SimulationReport, as_json, as_text

RUN = Figures(
    seed=1,
    usd=10.0,
    node_hours=20.0,
    most_nodes=3,
    launches=4,
    pods=5,
    unbound=0,
    wait_p50=44.0,
    wait_p99=61.5,
    evictions={"Drifted": 2},
    launched={"c-2x": 4},
    by_pool={"general": 10.0},
    passes=7,
    requests=9,
    searches=1,
    samples=tuple(Sample(900.0 * (number + 1), 1.0, 2.0, 0) for number in range(96)),
)


def report(**more: object) -> SimulationReport:
    runs = (RUN, replace(RUN, seed=2, usd=14.0, evictions={}))
    return replace(SimulationReport(86400.0, "kwok", "USD", 0.0, runs, ("A note.",)), **more)  # type: ignore[arg-type]


def test_the_spread_of_seeds() -> None:
    assert SeedSpread.of([10.0, 14.0]) == SeedSpread(12.0, 12.0, 10.0, 14.0, 2.8284)
    assert SeedSpread.of([1.0, 2.0, 9.0]).median == 2.0
    assert SeedSpread.of([3.0]) == SeedSpread(3.0, 3.0, 3.0, 3.0, 0.0)
    told = as_json(report())["spread"]
    assert told["usd"] == {"mean": 12.0, "median": 12.0, "lowest": 10.0, "highest": 14.0, "deviation": 2.8284}
    assert told["evictions"]["Drifted"] == {"mean": 1.0, "median": 1.0, "lowest": 0, "highest": 2, "deviation": 1.4142}


def test_json_has_every_run_with_its_curve() -> None:
    first, second = as_json(report())["runs"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["nodeHours"] == 20.0
    assert first["samples"][0] == {"at": 900.0, "usdPerHour": 1.0, "nodes": 2.0, "waiting": 0}


def test_the_table_has_a_row_for_each_figure_and_a_line_an_hour() -> None:
    lines = as_text(report()).splitlines()
    assert lines[0] == "24 hours, 2 seeds, catalogue kwok"
    rows = [" ".join(line.split()) for line in lines]
    assert "cost 12.00 USD 10.00 USD 14.00 USD" in rows
    assert "evictions, Drifted 1 0 2" in rows
    assert sum(line.endswith("  0.0") and line.split()[0].replace(".", "").isdigit() for line in lines) == 24
    assert lines[-1] == "A note."
    assert "--pass-interval" not in as_text(report())


def test_a_coarse_simulation_says_so() -> None:
    assert "every 60 s at most (--pass-interval)" in as_text(report(pass_interval=60.0))
    assert as_json(report(pass_interval=60.0))["passInterval"] == 60.0
