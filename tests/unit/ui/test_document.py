"""The document loads nothing from outside, runs nothing but its own scripts, and whatever a page says in it stays text."""

import base64
import hashlib
import html.parser
import json
import re

import msgspec
import pytest

from provisioner.ui.document import SERVED_POLICY, alone, served
from provisioner.ui.page import Page, PageNode

OUTSIDE = re.compile(rb"""(?:src|href)\s*=\s*["']?(?:https?:)?//|@import|url\(\s*["']?(?:https?:)?//""")


class Parts(html.parser.HTMLParser):
    """Scripts and styles of a document."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"], "nothing inline"
        if tag in ("script", "style", "meta"):
            self._open = (tag, dict(attrs))
            self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._open is not None and self.found[-1][0] != "meta":
            tag, attrs, text = self.found[-1]
            self.found[-1] = (tag, attrs, text + data)

    def handle_endtag(self, tag: str) -> None:
        self._open = None


def page(name: str) -> bytes:
    return msgspec.json.encode(Page(at=1, nodes=(PageNode(state="ready", name=name),)))


def test_what_is_served_is_in_its_policy_and_nothing_is_outside() -> None:
    files = served()
    assert set(files) == {
        "/",
        "/page.css",
        "/page.js",
        "/vendor/uplot.css",
        "/vendor/uplot.js",
        "/vendor/htm-preact.js",
    }
    for kind, body in files.values():
        assert kind.endswith("utf-8")
        assert OUTSIDE.search(body) is None
    for tag, attrs, text in Parts(files["/"][1].decode()).found:
        assert not text.strip(), "no inline script or style"
        assert tag != "script" or str(attrs["src"]) in files
    assert "unsafe" not in SERVED_POLICY
    assert "default-src 'none'" in SERVED_POLICY


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("script", ["page.js", "simulation.js"])
def test_an_exported_file_is_whole_and_runs_its_own_scripts_only(script: str) -> None:
    document = alone(page("n"), script).decode()
    parts = Parts(document).found
    policy = next(str(attrs["content"]) for tag, attrs, _ in parts if attrs.get("http-equiv"))
    run = [(tag, text) for tag, attrs, text in parts if tag in ("script", "style") and not attrs.get("type")]
    assert len(run) == 5
    for tag, text in run:
        directive = next(one for one in policy.split("; ") if one.startswith(f"{tag}-src"))
        assert hashed(text) in directive
    assert "unsafe" not in policy
    assert OUTSIDE.search(document.encode()) is None


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "</ScRiPt >",
    "\u2028\u2029\u202e",
    "&lt;",
    "]]>",
    "\\u003c",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_what_users_wrote_ends_no_script(word: str) -> None:
    parts = Parts(alone(page(word)).decode()).found
    data = [text for tag, attrs, text in parts if attrs.get("id") == "data"]
    assert len(data) == 1
    assert json.loads(data[0])["nodes"][0]["name"] == word
    assert len([tag for tag, _, _ in parts if tag == "script"]) == 4


@pytest.mark.parametrize("script", ["page.js", "simulation.js"])
def test_no_script_makes_html_of_text(script: str) -> None:
    text = Parts(alone(page("n"), script).decode()).found[-1][2]
    assert "htmPreact;" in text
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "dangerously",
    ):
        assert word not in text
