"""Documents: links lead somewhere, the reference is what the code says, and named files exist."""

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.apis import keys
from provisioner.lab.reference.command import MANIFESTS, stale

ROOT = Path(__file__).parents[2]
SOURCES = ("provisioner", "webhook", "extender", "certs")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OWN_KEY = re.compile(r'"((?:[a-z]+\.)?dovetail\.dev/[a-z][a-z-]*)"')


def documents() -> list[Path]:
    """Every Markdown file that is part of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "manifests").rglob("*.md")]
    return sorted(found)


def targets(document: Path) -> Iterator[str]:
    """Where the links of a document lead, inside the repository and inside the document."""
    for target in LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("document", documents(), ids=lambda one: str(one.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for target in targets(document):
        name, _, anchor = target.partition("#")
        there = (document.parent / name).resolve() if name else document
        assert there.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(there), f"{target} has no such heading"


def entries(nav: list[Any]) -> Iterator[str]:
    """The pages of a navigation of mkdocs, sections and all."""
    for entry in nav:
        for under in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [under] if isinstance(under, str) else entries(under)


def test_every_page_is_in_the_navigation_of_the_site_once_or_left_out_with_a_reason() -> None:
    told = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = {str(one.relative_to(ROOT / "docs")) for one in documents() if one.is_relative_to(ROOT / "docs")}
    shown = list(entries(told["nav"]))
    left_out = re.findall(r"^# \S.*\n/(.+)$", told["not_in_nav"], re.MULTILINE)
    assert len(told["not_in_nav"].splitlines()) == 2 * len(left_out), "a reason, then a pattern"
    hidden = {pattern: set(fnmatch.filter(pages, pattern)) for pattern in left_out}
    assert all(hidden.values()), f"a pattern without pages: {hidden}"
    known = [*shown, *set().union(*hidden.values())]
    assert sorted(pages.difference(known)) == [], "neither in nav nor in not_in_nav of mkdocs.yml"
    assert sorted(known) == sorted(pages), "each page once"
    index = [one for one in targets(ROOT / "docs" / "README.md") if one in pages]
    assert ["README.md", *index] == shown, "docs/README.md lists the pages in the order of nav"


@pytest.mark.parametrize("document", sorted((ROOT / "docs").rglob("*.md")), ids=lambda one: one.name)
def test_a_page_has_the_same_lists_and_anchors_on_github_and_on_the_site(document: Path) -> None:
    """Python-Markdown wants lists after an empty line, what is in them indented by four, and makes one dash of many."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    assert [line for indent, line in re.findall(r"\n\n( +)(\S.*)", text) if len(indent) % 4] == []
    assert re.findall(r"^(?!- |\d+\. | {2,3}\S).+\n(?:- |\d+\. ).*", text, re.MULTILINE) == []
    assert re.findall(r"^ {1,3}(?:[-*] |\d+\. ).*", text, re.MULTILINE) == []
    assert [one for one in anchors(document) if "--" in one] == []


def test_the_reference_is_what_the_code_says() -> None:
    # in a process of its own: other tests declare metrics, too
    command = [sys.executable, "-m", "provisioner.cli.main", "reference", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_a_page_that_differs_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "rbac.md").write_text("# Rights\n")
    assert str(tmp_path / "rbac.md") in stale(tmp_path, MANIFESTS)


def test_every_key_of_ours_is_in_the_reference() -> None:
    told = {name for group in keys.OWN.values() for name in group}
    found = {
        key
        for package in SOURCES
        for path in (ROOT / package).rglob("*.py")
        for key in OWN_KEY.findall(path.read_text(encoding="utf-8"))
    }
    assert found <= told, f"not in provisioner/apis/keys.py: {sorted(found - told)}"


def test_events_that_users_are_told_of_are_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
    pages = [ROOT / "CHANGELOG.md", ROOT / "README.md", *(ROOT / "docs" / "guides").rglob("*.md")]
    lists = (
        one
        for path in pages
        for one in re.findall(r"\b[Ee]vents? ((?:[A-Z]\w+(?:, | and )?)+)", path.read_text("utf-8"))
    )
    events = {event for one in lists for event in re.findall(r"[A-Z]\w*[a-z][A-Z]\w+", one)}
    assert len(events) >= 5
    missing = sorted(event for event in events if f"`{event}`" not in reference)
    assert not missing, f"not in docs/reference/messages.md: {missing}"


def plainly(default: str) -> str | float:
    """A default as a number, in seconds where it is a duration."""
    found = re.fullmatch(r"(-?[\d.]+)(ms|s|m|h)?", default.strip("`"))
    factors = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}
    return default.strip("`") if found is None else float(found[1]) * factors[found[2]]


def test_defaults_of_flags_are_the_same_on_all_pages() -> None:
    reference = (ROOT / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    provisioner = reference.partition("## dovetail provisioner")[2].partition("\n## ")[0]
    defaults = dict(re.findall(r"^\| `(--[\w-]+)` \| [^|]* \| `([^`]*)` \|", provisioner, re.MULTILINE))
    timeouts = dict(part.split("=") for part in defaults["--timeouts"].split(","))
    defaults |= {f"--timeouts={name}": default for name, default in timeouts.items()}
    seen = 0
    for page in (ROOT / "README.md", *(ROOT / "docs" / "guides").rglob("*.md")):
        for flags, told in re.findall(r"^\| (`--[^|]*) \| ([^|]*) \|", page.read_text(encoding="utf-8"), re.MULTILINE):
            names, values = re.findall(r"`(--[\w=-]+?)(?:=\.\.\.)?`", flags), told.split(", ")
            for name, value in zip(names, values, strict=True):
                assert plainly(value) == plainly(defaults[name]), f"{page.name} says {value} of {name}"
                seen += 1
    assert seen > 15


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_files_named_in_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for path in re.findall(r"`((?:tests|provisioner|webhook|extender|certs|manifests|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{name} names {path}, which does not exist"


def rooms() -> dict[Path, str]:
    """What the folders of the product say of themselves."""
    found = (path for package in SOURCES for path in sorted((ROOT / package).rglob("__init__.py")))
    return {path.parent: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in found}


def test_modules_named_in_rooms_exist() -> None:
    found = [(room, path) for room, text in rooms().items() for path in re.findall(r"`((?:[\w]+/)*\w+\.py)`", text)]
    assert len(found) > 10
    for room, path in found:
        assert any((base / path).is_file() for base in (room, ROOT / "provisioner", ROOT)), (
            f"{room}/__init__.py names {path}, which does not exist"
        )


def test_every_room_is_on_the_map_and_says_what_it_answers() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:provisioner|webhook|certs)[\w., ]*) \|", text, re.MULTILINE)
    mapped = [one if one.startswith(SOURCES) else f"provisioner.{one}" for row in rows for one in row.split(", ")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [re.split(r" [|:] ", layer) for layer in contracts["contracts"][0]["layers"]]
    heights = {room: height for height, layer in enumerate(layers) for room in layer}
    assert sorted(mapped) == sorted(heights)
    assert [heights[room] for room in mapped] == sorted(heights.values()), "from high to low, as in the contract"
    said, modules = rooms(), ("provisioner.node_classes", "provisioner.clouds")
    assert [one for one in mapped if one not in modules and not said[ROOT / one.replace(".", "/")]] == []


def test_the_map_is_read_in_five_minutes() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    told = re.sub(r"(?s)<!-- Controllers: .*?<!-- End -->", "", text)  # a list to look things up in
    assert len([word for word in told.split() if re.search(r"\w", word)]) <= 1200


def test_the_way_of_a_pod_has_at_most_twelve_stops() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    way = text.partition("## The way of a pod")[2].partition("\n## ")[0]
    stops = re.findall(r"^\| (\d+) \| `([\w/.]+)` \|", way, re.MULTILINE)
    assert [int(number) for number, _ in stops] == list(range(1, len(stops) + 1))
    assert 1 < len(stops) <= 12
    assert all((ROOT / path).is_file() for _, path in stops)


EMULATOR = ROOT / "tests" / "support" / "ec2"
NOTHING_OF_AWS: dict[str, str] = {
    **dict.fromkeys(("__init__", "__main__", "admin", "server", "services", "timing"), "how it is run and asked"),
    "market": "data: what AWS sells and at what price",
    "motos": "IAM, as moto does it",
    **dict.fromkeys(("nodes", "reading"), "kubelets and the boot of images, whose documents are elsewhere"),
}
"""Modules of the emulator that claim no behaviour of AWS, and what they are instead."""


def test_every_module_of_the_emulator_names_the_page_where_aws_tells_what_it_does() -> None:
    """Else the emulator shares what we assume, and proves nothing: decision 43."""
    said = {one.stem: ast.get_docstring(ast.parse(one.read_text())) or "" for one in EMULATOR.glob("*.py")}
    page = re.compile(r"https://docs\.aws\.amazon\.com/\S+\.html\b")
    assert {name for name, text in said.items() if not page.search(text)} == NOTHING_OF_AWS.keys()


def test_each_line_of_what_is_defended_against_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| a ")]
    named = {row: re.findall(r"`(tests/[^`]+)`", row) for row in rows}
    assert len(rows) == 5
    assert all(named.values())
    assert [path for paths in named.values() for path in paths if not (ROOT / path).is_file()] == []
