"""A class that one can read owns one state: none of the product has more than thirty methods."""

import ast
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import certs
import extender
import provisioner
import webhook

PRODUCT: Final = tuple(Path(package.__path__[0]) for package in (certs, extender, provisioner, webhook))
MOST_METHODS: Final = 30
EXCEPTIONS: Final[Mapping[str, str]] = {}
"""Classes that may have more, each with its reason; none has one so far."""


@functools.cache
def sizes() -> dict[str, int]:
    """Of each class of the product outside the lab, the most methods that a class of its name has: `def`s of its body."""
    found: dict[str, int] = {}
    for path in (path for package in PRODUCT for path in sorted(package.rglob("*.py"))):
        if path.is_relative_to(PRODUCT[2] / "lab"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
                found[node.name] = max(methods, found.get(node.name, 0))
    return found


def test_no_class_has_more_methods_than_one_can_read() -> None:
    found = sizes()
    assert len(found) > 100, "classes are found"
    assert {name: size for name, size in found.items() if size > MOST_METHODS and name not in EXCEPTIONS} == {}


def test_what_is_excepted_needs_it() -> None:
    assert {name: sizes().get(name, 0) for name in EXCEPTIONS if sizes().get(name, 0) <= MOST_METHODS} == {}
