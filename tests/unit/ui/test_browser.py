"""The page in a real browser: everything that it shows, for everybody, of small and large clusters, and nothing that users wrote is more than text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from provisioner.cli.ui.server import UiServer
from provisioner.history.segments import read_segment
from provisioner.support.clock import SystemClock
from provisioner.ui.document import alone
from provisioner.ui.events import EventBoard
from provisioner.ui.fleet import page_of
from provisioner.ui.page import (
    MOST_BYTES,
    Page,
    PageBound,
    PageCause,
    PageClass,
    PageCommand,
    PageDecision,
    PageHistory,
    PageInterruption,
    PageMoment,
    PageNode,
    PagePastInterruption,
    PagePastShortage,
    PagePool,
    PageShortage,
    PageSums,
    PageWaiting,
    PodsApart,
    encoded,
)
from provisioner.ui.recorded import recorded_page
from tests.support.browser import Tab, chromium
from tests.unit.ui.test_fleet import large
from tests.unit.ui.test_recorded import recorded

SIZES = (1, 50, 500, 5000)
STATES = ("ready", "draining", "disrupted", "launching", "not-ready", "unmanaged")
HOSTILE = ("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\u202egnp.exe", "x" * 10_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    yield Tab(context)
    context.close()


def full(word: str = "web", **changes: Any) -> Page:
    """A page with something in each part of it."""
    nodes = [
        PageNode(
            name=f"{word}-{state}", claim=f"claim-{state}", pool=word, type="m5.large", zone="a", capacity_type="spot", usd=0.1, created=1,
            state=state, text=word, by=(word,), interrupted=word if state == "draining" else "", cpu=2000, memory=2**33, slots=58,
            system=(70, 2**28), daemons=PodsApart(pods=2, cpu=100, memory=2**26), pods=((0, 2, "/a", "b"),), hidden=PodsApart(pods=3, cpu=300, memory=2**28),
            planned=((0, 1, "c"),),
        )
        for state in STATES
    ]  # fmt: skip
    page = Page(
        at=1_795_266_000,
        title=word,
        source="the leader",
        sums=PageSums(nodes=6, pods=30, planned=6, usd=0.6, unpriced=1, cpu=12000, memory=2**35, used_cpu=6000, used_memory=2**33),
        classes=(PageClass(namespace="default", kind="Deployment", name=word, prefix="b-", cpu=250, memory=2**28),),
        nodes=tuple(nodes),
        waiting=(PageWaiting(of=0, pods=3, names=(word,), since=1, state="Unschedulable", text=word),),
        hidden_waiting=2,
        pools=(
            PagePool(name=word, nodes=6, usd=0.6, weight=5, limits=(("cpu", "12", "100", 0.12),)),
            PagePool(name="closed", ready=False, text=word),
        ),
        commands=(PageCommand(reason="Drifted", phase="Committed", nodes=(word,), by=(word,)),),
        shortages=(PageShortage(zone="a", capacity_type="spot", count=2, of=9, types=(word, "b")),),
        interruptions=(PageInterruption(zone="a", type=word, reason="spot_interrupted", nodes=1),),
        no_history="No history: nothing records what happened before.",
        missing=(word,),
    )  # fmt: skip
    return msgspec.structs.replace(page, **changes)


def past(word: str = "web") -> PageHistory:
    begun = 1_795_262_400
    moments = tuple(PageMoment(at=begun + one * 60, usd=1.0 + one % 3, greedy=2.5, bound=0.9) for one in range(60))
    decisions = [
        PageDecision(
            at=begun + 60 + one, reason="Underutilized", text=f"{word} {one}", state="done", before=2.0, after=1.5, saved=0.5, blocked=(word,)
        )
        for one in range(30)
    ]  # fmt: skip
    causes = (
        PageCause(cause="PodDisruptionBudgets", nodes=4, usd=0.25, meaning="no eviction is allowed"),
        PageCause(cause=word, nodes=1, usd=0.0),
    )
    return PageHistory(
        since=begun,
        moments=moments,
        decisions=tuple(decisions),
        bound=PageBound(
            at=begun + 3000, usd=2.0, greedy=2.5, bound=0.9, pods=99, unplaced=1, kept_at=begun + 2400, kept=1.6, causes=causes, together=0.7, rest=0.4
        ),
        interruptions=(PagePastInterruption(zone="a", type=word, reason="spot_interrupted", count=7, last=begun + 90),),
        shortages=(
            PagePastShortage(zone="b", type=word, capacity_type="spot", times=3, seconds=600, last=begun + 120),
            PagePastShortage(zone="c", type="m5.large", times=1, seconds=0, last=begun, lasts=True),
        ),
        dropped=12,
    )  # fmt: skip


def file_of(page: Page, directory: Path) -> str:
    path = directory / "page.html"
    path.write_bytes(alone(encoded(page, MOST_BYTES)))
    return path.as_uri()


def test_everything_is_shown_and_accessible_in_light_and_dark_and_on_a_narrow_screen(tab: Tab, tmp_path: Path) -> None:
    tab.open(file_of(full(history=past()), tmp_path))
    page = tab.page
    for width, scheme in ((1300, "light"), (1300, "dark"), (360, "light")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert tab.violations() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "no part is beyond the edge"
    for text in ("Why", "spot_interrupted", "Drifted", "12 of 100", "2 other pods that you may not list"):
        assert page.get_by_text(text).count() > 0, text
    assert page.locator("canvas").count() == 1
    for text in (
        "The history begins 2026-11-21 12:00:00Z (60 min ago). 12 changes came too fast to be recorded.",
        "PodDisruptionBudgets alone", "no eviction is allowed", "all together", "do not add up", "over since 2026-11-21 12:02:00Z", "since 2026-11-21 12:00:00Z", "$0.500", "(done)",
    ):  # fmt: skip
        assert page.get_by_text(text).count() > 0, text
    expect(page.get_by_text("web 29 (done)")).to_be_visible()
    expect(page.get_by_text("web 4 (done)")).to_have_count(0)
    page.get_by_role("group", name="Pages of decisions").get_by_role("button", name="Next").click()
    expect(page.get_by_text("web 4 (done)")).to_be_visible()
    page.get_by_label("Show as a table").check()
    row = page.get_by_role("rowheader", name="web-ready")
    expect(row).to_be_visible()
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 100, "names are not broken into letters on a narrow screen"
    assert tab.violations() == []
    assert tab.complaints == []


def test_a_node_is_opened_and_closed_with_the_keyboard(tab: Tab, tmp_path: Path) -> None:
    tab.open(file_of(full(), tmp_path))
    page = tab.page
    card = page.get_by_role("button", name="web-disrupted")
    card.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("a, b-b")).to_be_visible()
    expect(dialog.get_by_text("Replaced by web")).to_be_visible()
    assert tab.violations() == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert tab.complaints == []


def test_without_history_that_is_said(tab: Tab, tmp_path: Path) -> None:
    tab.open(file_of(full(), tmp_path))
    assert tab.page.get_by_text("No history").is_visible()


def test_whoever_may_not_list_nodes_is_not_told_that_nothing_happened(tab: Tab, tmp_path: Path) -> None:
    seen = PageHistory(since=past().since, shortages=past().shortages)
    tab.open(file_of(full(sums=None, nodes=(), commands=(), interruptions=(), history=seen), tmp_path))
    assert tab.page.get_by_text("You may not list nodes.").count() == 5
    for text in ("Nothing was decided.", "No node is being disrupted.", "No node was interrupted."):
        assert tab.page.get_by_text(text).count() == 0, text
    assert tab.complaints == []


def test_a_time_that_no_calendar_has_is_left_out(tab: Tab, tmp_path: Path) -> None:
    odd = PageNode(name="odd", state="ready", created=2**62)
    tab.open(file_of(full(nodes=(odd,)), tmp_path))
    tab.page.get_by_role("button", name="odd").click()
    expect(tab.page.get_by_role("dialog").get_by_text("0 CPU, 0 GiB of memory")).to_be_visible()
    assert tab.complaints == []


@pytest.mark.parametrize("word", HOSTILE, ids=["tag", "end of a script", "right to left", "long"])
def test_whatever_users_wrote_is_text(tab: Tab, word: str, tmp_path: Path) -> None:
    tab.page.on("dialog", lambda dialog: tab.complaints.append(f"dialog {dialog.message}"))
    tab.open(file_of(full(word, history=past(word)), tmp_path))
    assert word in tab.page.locator("h1").inner_text()
    tab.page.get_by_role("button", name="draining").first.click()
    assert tab.page.locator("img").count() == 0
    assert tab.page.locator("script").count() == 4
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1300
    assert tab.complaints == []


@pytest.mark.parametrize("nodes", SIZES)
def test_a_cluster_of_any_size_is_shown_soon_and_takes_little_memory(tab: Tab, nodes: int, tmp_path: Path) -> None:
    tab.open(file_of(page_of(large(nodes), {}, title=f"{nodes} nodes"), tmp_path))
    page = tab.page
    assert page.locator("main").inner_text().count("general") >= 1
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length === 1")
    assert page.locator("*").count() < 12_000
    assert tab.heap_bytes() < 60e6
    if nodes > 200:
        page.get_by_role("button", name="Show its nodes").first.click()
    expect(page.locator(".nodes .node")).to_have_count(min(nodes, 60))
    assert tab.violations() == []
    assert tab.complaints == []


def test_a_record_opens_without_a_cluster(tab: Tab, tmp_path: Path) -> None:
    segments = [read_segment(one) for one in recorded().segments()]
    tab.open(file_of(recorded_page(segments, title="a record"), tmp_path))
    page = tab.page
    for name in ("planted-k", "planted-g", "coming"):
        expect(page.get_by_role("button", name=name)).to_be_visible()
    expect(page.get_by_text("group blue size set to 3")).to_be_visible()
    expect(page.get_by_text("A record does not tell why.")).to_be_visible()
    expect(page.get_by_text("only the provisioner that leads computes them")).to_be_visible()
    assert tab.violations() == []
    assert tab.complaints == []


def test_a_served_page_follows_what_happens_and_keeps_strangers_out(tab: Tab, browser: Browser) -> None:
    board = EventBoard()
    server = UiServer(0, board, lambda kind, name: f"{kind} {name} <b>stays</b>", SystemClock())
    server.start()
    try:
        board.put("page", encoded(full(), MOST_BYTES))
        tab.open(server.url)
        assert "#" not in tab.page.url, "the secret is no longer in the address"
        board.put("page", encoded(full(title="later", at=1_795_266_060), MOST_BYTES))
        expect(tab.page.get_by_role("heading", name="Dovetail: later")).to_be_visible()
        expect(tab.page.locator("canvas")).to_have_count(1)
        board.put("problem", b'{"text":"the leader is gone"}')
        expect(tab.page.get_by_text("the leader is gone")).to_be_visible()
        tab.page.get_by_role("button", name="web-ready").click()
        tab.page.get_by_role("button", name="Why does this node stay?").click()
        expect(tab.page.get_by_text("node web-ready <b>stays</b>")).to_be_visible()
        assert tab.complaints == []
        assert {one.partition("/#")[0].rpartition(":")[0] for one in tab.requests if not one.startswith("data:")} == {
            "http://127.0.0.1"
        }
        context = browser.new_context()
        other = Tab(context)
        other.page.goto(server.url)
        expect(other.page.get_by_text("Run dovetail ui again")).to_be_visible()
        context.close()
    finally:
        server.stop()
