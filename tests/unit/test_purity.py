"""The contract of purity: a module of a room reaches nothing that only shells may, and a shell that reaches nothing of it must leave the list."""

import tomllib
from pathlib import Path

import pytest
from grimp import ImportGraph

from tests.support.purity import PureButShells

SHELLS = ("room.shell", "room.folder.shell")
IMPORTS = {
    "room.shell": ("threading",),
    "room.folder.shell": ("below",),
    "room.pure": ("room.folder.pure",),
    "below": ("threading",),
}


def checked(**more: str) -> dict[str, list[str]]:
    """What the contract says of a room with two shells and two pure modules, and of these imports more."""
    graph = ImportGraph()
    for one in ("room", "room.shell", "room.pure", "room.folder", "room.folder.shell", "room.folder.pure", "below"):
        graph.add_module(one)
    graph.add_module("threading", is_squashed=True)
    every = [(by, one) for by, those in IMPORTS.items() for one in those]
    every += [(f"room.{by}", one) for by, one in more.items()]
    for by, one in every:
        graph.add_import(importer=by, imported=one, line_number=1, line_contents=f"import {one}")
    options = {"rooms": ["room"], "shells": list(SHELLS), "forbidden": ["threading", "not.there"]}
    check = PureButShells("purity", {}, options).check(graph, verbose=False)
    assert check.kept == (not check.metadata["breaches"] and not check.metadata["idle"])
    found: dict[str, list[str]] = dict(check.metadata)
    return found


def test_shells_may_reach_what_others_may_not() -> None:
    assert checked() == {"breaches": [], "idle": []}


@pytest.mark.parametrize("what", ["threading", "below", "room.shell", "room.folder.shell"])
def test_a_pure_module_that_reaches_it_is_found(what: str) -> None:
    assert checked(pure=what) == {"breaches": ["room.pure"], "idle": []}


def test_a_pure_module_that_reaches_it_through_another_one_is_found() -> None:
    assert checked(**{"folder.pure": "room.shell"}) == {"breaches": ["room.folder.pure", "room.pure"], "idle": []}


@pytest.mark.parametrize("gone", SHELLS)
def test_a_shell_that_has_become_pure_must_leave_the_list(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(IMPORTS, gone)
    assert checked() == {"breaches": [], "idle": [gone]}


def test_every_room_between_why_and_state_is_under_the_contract() -> None:
    said = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    (layers,) = (one["layers"] for one in said["contracts"] if one["name"] == "every room of provisioner has its layer")
    (rooms,) = (one["rooms"] for one in said["contracts"] if one["type"] == "pure_but_shells")
    between = layers[layers.index("why") : layers.index("state") + 1]
    assert {f"provisioner.{room}" for some in between for room in some.split(" | ")} <= set(rooms)
