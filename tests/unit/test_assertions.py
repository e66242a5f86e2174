"""Every test asserts something: by itself, by what it raises or expects to be raised, or by a helper that does."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HELPERS = frozenset({"check", "eventually", "judge", "verify_server"})
"""Of tests/support and provisioner.lab.devcluster, imported by tests: they raise where something is not so."""


def without_assertion(source: str) -> Iterator[str]:
    """Names of the tests of a module that assert nothing."""
    tree = ast.parse(source)
    own = _functions(tree)
    functions = {**_of_other_rows(tree), **own}
    for name, node in own.items():
        if name.startswith("test_") and not _asserts(node, functions, frozenset({name})):
            yield name


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _of_other_rows(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of modules of tests/integration from which this one imports some: rows that run on two planes."""
    found: dict[str, ast.FunctionDef] = {}
    for one in tree.body:
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("tests.integration."):
            path = TESTS.parent.joinpath(*str(one.module).split(".")).with_suffix(".py")
            found |= _functions(ast.parse(path.read_text(encoding="utf-8")))
    return found


def _asserts(node: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], seen: frozenset[str]) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert | ast.Raise):
            return True
        if not isinstance(inner, ast.Call):
            continue
        called = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
        if called in HELPERS or ast.unparse(inner.func) in {"pytest.raises", "pytest.warns", "pytest.fail"}:
            return True
        if any(
            one.arg == "check" and isinstance(one.value, ast.Constant) and one.value.value for one in inner.keywords
        ):
            return True  # subprocess.run(check=True)
        if called in functions and called not in seen and _asserts(functions[called], functions, seen | {called}):
            return True
    return False


@pytest.mark.parametrize("room", ["unit", "property", "golden", "integration"])
def test_every_test_asserts(room: str) -> None:
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted((TESTS / room).rglob("test_*.py"))
        for name in without_assertion(path.read_text(encoding="utf-8"))
    }
    assert not found, "tests without an assertion:\n" + "\n".join(sorted(found))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def test_a(): run()", 1),
        ("def test_a(): assert run()", 0),
        ("def test_a():\n    with pytest.raises(ValueError): run()", 0),
        ("def test_a(): eventually(run, 'it runs')", 0),
        ("def helper(): assert run()\ndef test_a(): helper()", 0),
        ("def helper(): run()\ndef test_a(): helper()", 1),
        ("def test_a(): subprocess.run([], check=False)", 1),
    ],
)
def test_a_test_that_only_runs_is_found(source: str, count: int) -> None:
    assert len(list(without_assertion(source))) == count
