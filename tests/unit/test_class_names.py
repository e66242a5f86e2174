"""Who reads the name of a class knows which one is meant, without a look at the imports."""

import ast
import functools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import certs
import extender
import provisioner
import webhook

PRODUCT: Final = tuple(Path(package.__path__[0]) for package in (certs, extender, provisioner, webhook))
ALLOWED: Final[Mapping[str, str]] = {}
"""Names that may mean several classes, each with its reason; none has one so far."""


@functools.cache
def meanings() -> dict[str, list[str]]:
    """The modules of the product that define a class of a name, which another module can import: names with an underscore stay within theirs."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in (path for package in PRODUCT for path in sorted(package.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{path.relative_to(PRODUCT[0].parent)}:{node.lineno}")
    return found


def test_the_name_of_a_class_means_one_class() -> None:
    found = meanings()
    assert len(found) > 100, "classes are found"
    assert {name: places for name, places in found.items() if len(places) > 1 and name not in ALLOWED} == {}


def test_what_is_allowed_is_needed() -> None:
    found = meanings()
    assert [name for name in ALLOWED if len(found[name]) < 2] == []
