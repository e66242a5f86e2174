"""The picture is XML whatever names there are, shows every pod, and is bounded."""

import re
from xml.etree.ElementTree import Element, fromstring

import pytest

from provisioner.apis.pods import Pod
from provisioner.cli.plan import picture as module
from provisioner.cli.plan.picture import picture
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.result import PlannedClaim
from tests.support.problems import instance_type, pods, pool, problem, shape

SVG = "{http://www.w3.org/2000/svg}"
TYPES = (instance_type("lean", "4", "8Gi", 0.5), instance_type("wide", "8", "64Gi", 4.0))


def claims(count: int = 10) -> tuple[PlannedClaim, ...]:
    asked = problem(pods(count, shape("1", "1Gi"), "web") + pods(2, shape("500m", "4Gi"), "db"), pool(types=TYPES))
    return prepare(asked).solve(asked.pods).claims


def by_prefix(pod: Pod) -> str:
    return re.split(r"[-0-9]", pod.name)[0]


def drawn(text: str) -> Element:
    return fromstring(text)


def test_every_workload_has_its_bars_and_one_colour() -> None:
    root = drawn(picture("a fleet", claims(), by_prefix))
    bars = [
        (bar.get("fill"), (bar.findtext(f"{SVG}title") or "").partition(":")[0].rpartition(" ")[2])
        for bar in root.iter(f"{SVG}rect")
        if bar.find(f"{SVG}title") is not None
    ]
    colours = {name: {fill for fill, other in bars if other == name} for name in ("web", "db")}
    assert all(len(found) == 1 for found in colours.values())
    assert colours["web"] != colours["db"]


def test_bars_are_to_scale_and_within_their_node() -> None:
    root = drawn(picture("a fleet", claims(), by_prefix))
    outlines = [
        (float(bar.get("x", 0)), float(bar.get("y", 0)), float(bar.get("width", 0)))
        for bar in root.iter(f"{SVG}rect")
        if bar.get("class") == "n"
    ]
    assert max(width for _, _, width in outlines) == pytest.approx(module._ROOM, abs=0.2)
    for bar in root.iter(f"{SVG}rect"):
        if bar.find(f"{SVG}title") is not None:
            x, y, width = (float(bar.get(name, 0)) for name in ("x", "y", "width"))
            assert any(left - 0.2 <= x and x + width <= left + whole + 0.2 for left, top, whole in outlines if top == y)


@pytest.mark.parametrize("name", ["</svg><script>", "a & b", '"quoted"', "\x00\x1b[31m\ud800", "x" * 500])
def test_text_is_escaped_and_bounded(name: str) -> None:
    text = picture(name, claims(), lambda _: name)
    root = drawn(text)
    assert not list(root.iter(f"{SVG}script"))
    assert all(len(one.text or "") <= 300 for one in root.iter())
    text.encode()


def test_equal_nodes_share_a_row_and_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    some = claims(100)
    rows = len(re.findall(r'class="n"', picture("", some, by_prefix))) // 2
    assert rows < len(some)
    monkeypatch.setattr(module, "MAX_ROWS", 1)
    assert "more nodes, which are not shown" in picture("", some, by_prefix)


def test_a_fleet_of_no_nodes_is_a_picture_too() -> None:
    assert drawn(picture("nothing", (), by_prefix)).tag.endswith("svg")
