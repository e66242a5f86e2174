"""The page of a simulation: which figures and curves it has, and how a browser shows it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from provisioner.simulator.page import MOST_CURVES, SCRIPT, simulation_page
from provisioner.simulator.report import SimulationReport
from provisioner.ui.document import alone
from tests.support.browser import Tab, chromium
from tests.unit.simulator.test_report import RUN, report

HOSTILE = "</script><img src=x onerror=alert(1)>"


def shown(*cases: tuple[str, SimulationReport]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(simulation_page("day.yaml", cases))
    return found


def test_one_report_has_its_spread_and_a_curve_a_seed() -> None:
    found = shown(("", report(pass_interval=60.0)))
    (table,) = found["tables"]
    assert table["heads"] == ["Figure", "mean", "lowest", "highest"]
    assert ["cost", "12.00 USD", "10.00 USD", "14.00 USD"] in table["rows"]
    assert [one["name"] for one in found["runs"]] == ["seed 1", "seed 2"]
    assert (len(found["at"]), len(found["runs"][0]["usd"])) == (96, 96)
    assert found["notes"] == ["A note.", report(pass_interval=60.0).coarsened]


def test_several_reports_are_compared_by_their_medians() -> None:
    dear = replace(RUN, usd=30.0, evictions={"Empty": 4})
    found = shown(("plain", report()), ("dear", report(runs=(dear, dear, replace(dear, usd=90.0)))))
    (table,) = found["tables"]
    assert table["heads"] == ["Figure", "plain", "dear"]
    assert ["cost", "12.00 USD (10.00 to 14.00)", "30.00 USD (30.00 to 90.00)"] in table["rows"]
    assert ["evictions, Drifted", "1 (0 to 2)", "0 (0 to 0)"] in table["rows"]
    assert [one["name"] for one in found["runs"][:3]] == ["plain, seed 1", "plain, seed 2", "dear, seed 1"]


def test_of_many_runs_the_means_are_drawn() -> None:
    high = replace(RUN, samples=tuple(replace(one, usd_per_hour=4.0) for one in RUN.samples))
    found = shown(("", report(runs=(RUN, high) * MOST_CURVES)))
    assert [one["name"] for one in found["runs"]] == ["all seeds"]
    assert set(found["runs"][0]["usd"]) == {2.5}
    assert "A curve is the mean of all seeds." in found["notes"]
    many = shown(*((f"case {number}", report()) for number in range(MOST_CURVES + 1)))
    assert len(many["runs"]) == MOST_CURVES
    assert f"The charts show the first {MOST_CURVES} of {MOST_CURVES + 1} cases." in many["notes"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


def test_it_is_one_file_that_shows_tables_and_charts_in_light_dark_and_on_a_narrow_screen(
    browser: Browser, tmp_path: Path
) -> None:
    named = report(notes=(HOSTILE,))
    path = tmp_path / "page.html"
    path.write_bytes(alone(simulation_page(HOSTILE, [(HOSTILE, named), ("b", named)]), SCRIPT))
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    try:
        tab = Tab(context).open(path.as_uri())
        page = tab.page
        for width, scheme in ((1300, "light"), (1300, "dark"), (360, "light")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert tab.violations() == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "no part is beyond the edge"
        assert page.locator("canvas").count() == 3
        assert page.get_by_role("row", name="cost 12.00 USD (10.00 to 14.00) 12.00 USD (10.00 to 14.00)").count() == 1
        assert page.get_by_text(HOSTILE).count() >= 3, "title, head and note"
        assert page.locator("img").count() == 0
        assert tab.complaints == []
        assert tab.requests == [path.as_uri()]
    finally:
        context.close()
