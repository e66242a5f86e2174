"""Where pages come from, and what `dovetail ui` writes of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cli.main import dovetail
from provisioner.cli.ui.upstream import events_in
from provisioner.cli.why import leader
from provisioner.ui.events import EventBoard
from provisioner.ui.page import MOST_BYTES
from tests.support.cluster import pool
from tests.support.dumps import existing_node, plain, wire_pod

DATA = re.compile(rb'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def stream(*pages: bytes) -> bytes:
    board, text = EventBoard(), b""
    for one in pages:
        board.put("page", one)
        text += board.latest[1] + b": alive\n\n"
    board.put("problem", b"{}")
    return text + board.latest[1]


@given(st.lists(st.integers(0, 10**9), max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_pages_are_read_whole_however_they_are_cut(numbers: list[int], cuts: list[int]) -> None:
    pages = [json.dumps({"at": one, "title": "a: b"}).encode() for one in numbers]
    text, pieces = stream(*pages), []
    for at in range(len(text) + 1):
        cut = cuts[at % len(cuts)]
        pieces.append(text[:cut])
        text = text[cut:]
    assert list(events_in(iter(pieces))) == pages


def test_an_event_without_end_is_not_kept() -> None:
    with pytest.raises(leader.NotAnsweredError, match="too much"):
        list(events_in(iter([b"x" * MOST_BYTES] * 3)))


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    items = [plain(one) for one in (pool(), *existing_node("n"), wire_pod("web", on="n"), wire_pod("big", "400"))]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def exported(path: Path) -> dict[str, Any]:
    found = DATA.search(path.read_bytes())
    assert found is not None
    page: dict[str, Any] = json.loads(found[1])
    return page


def test_a_dump_is_exported_to_one_file(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = CliRunner().invoke(dovetail, ["ui", "--from", str(dump), "--export", str(file)])
    assert result.exit_code == 0, result.output
    page = exported(file)
    assert (page["source"], page["title"]) == ("a dump", str(dump))
    assert page["nodes"][0]["name"] == "n"
    assert "No node can take pod default/big" in page["waiting"][0]["text"]
    assert page["noHistory"]


def test_a_file_that_cannot_be_written_is_said(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "none" / "page.html"
    result = CliRunner().invoke(dovetail, ["ui", "--from", str(dump), "--export", str(file)])
    assert result.exit_code == 2
    assert "--export" in result.output


def test_what_contradicts_itself_is_refused(dump: Path) -> None:
    result = CliRunner().invoke(dovetail, ["ui", "--from", str(dump), "--through", "leader"])
    assert result.exit_code == 2
    assert "--from" in result.output
