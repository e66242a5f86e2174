"""What is told of several simulations side by side."""

from dataclasses import replace

from provisioner.simulator.comparison import ComparedCase, compared_json, compared_text
from provisioner.simulator.report import SimulationReport
from tests.unit.simulator.test_report import RUN


def case(variant: str, policy: str, *usd: float, notes: tuple[str, ...] = ("A note.",), **more: float) -> ComparedCase:
    runs = tuple(
        replace(RUN, seed=number + 1, usd=one, evictions={"Drifted": 2 * number}) for number, one in enumerate(usd)
    )
    report = SimulationReport(86400.0, "kwok", "USD", more.get("interval", 0.0), runs, notes)
    return ComparedCase(variant, ("packing=greedy",) if variant else (), policy, report)


def rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_line_for_each_case_with_medians_and_how_far_seeds_lie_apart() -> None:
    told = rows(compared_text([case("now", "dovetail", 10.0, 30.0, 11.0), case("now", "karpenter", 40.0, 41.0, 45.0)]))
    assert told[0] == "24 hours, 3 seeds: median (lowest to highest), cost in USD"
    assert told[2] == "variant policy cost node-hours launches evicted: Drifted waited p50 p99 no node"
    assert told[3].startswith(
        "now dovetail 11.00 (10.00 to 30.00) 20.0 (20.0 to 20.0) 4 (4 to 4) 2 (0 to 4) 44.0 s (44.0 to 44.0)"
    )
    assert told[4].startswith("now karpenter 41.00 (40.00 to 45.00)")
    assert told[5:] == ["", "A note."], "once"


def test_one_seed_has_no_span_and_one_variant_no_column() -> None:
    told = rows(
        compared_text([case("", "dovetail", 10.0, interval=60.0), case("", "karpenter", 11.0, notes=("Another.",))])
    )
    assert told[0] == "24 hours, 1 seed, cost in USD"
    assert told[2] == "policy cost node-hours launches evicted: Drifted waited p50 p99 no node"
    assert told[3] == "dovetail 10.00 20.0 4 0 44.0 s 61.5 s 0"
    assert told[-2:] == ["A note.", "Another."]
    assert any("every 60 s at most (--pass-interval)" in line for line in told)


def test_json_has_the_report_of_each_case() -> None:
    first, second = compared_json([case("a", "dovetail", 10.0), case("b", "dovetail", 12.0, 14.0)])["cases"]
    assert (first["variant"], first["policy"], first["settings"]) == ("a", "dovetail", ["packing=greedy"])
    assert second["spread"]["usd"]["median"] == 13.0
    assert len(second["runs"]) == 2
