"""Texts of events, conditions, logs and errors live in `messages.py` modules: none is written where it is published or raised, and each is in the reference."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.cli.reference import messages as reference

ROOT = Path(__file__).parents[2]
SOURCES = ("provisioner", "webhook", "extender", "certs")
EXEMPT = ("provisioner/cli", "provisioner/devcluster", "provisioner/cloudprovider/aws/preflight")
"""They print to a terminal."""

LOGS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
"""Of `_log`."""
PUBLISHERS = frozenset(
    {"publish", "_publish", "_event", "_say", "_pending", "_with", "_set", "_hold", "_draining", "_refused", "_log"}
)
"""Events and conditions; what limits how often something is logged."""
CONDITION_SETS = frozenset({"CLAIM_CONDITIONS", "POOL_CONDITIONS", "OVERLAY_CONDITIONS", "kinds"})
VALUES = frozenset({"EventMessage", "ConditionMessage", "Finding", "Problem", "Rehearsed"})
"""What is published later."""
STRICT = frozenset({"publish", "EventMessage", "ConditionMessage"})
"""No word either, such as a type or a reason; elsewhere words are keys, and only prose is a text."""
NO_TEXT = frozenset({"dedupe", "ttl", "generation", "now", "kind", "created"})
OF_CALLERS = frozenset({"TypeError", "AttributeError", "AssertionError", "RuntimeError", "LookupError"})
"""Errors that tell a programmer of a wrong call; no user reads them."""
WRONG_CALLS = frozenset(
    {
        "provisioner/apis/conditions.py",
        "provisioner/cloudprovider/aws/access/client.py",
        "provisioner/cloudprovider/aws/launch/fleet.py",
        "provisioner/cloudprovider/aws/launch/launch_marks.py",
        "provisioner/cloudprovider/aws/market/discovered_capacity.py",
        "provisioner/cloudprovider/aws/market/unavailable_offerings.py",
        "provisioner/controllers/changes.py",
        "provisioner/kube/lease.py",
        "provisioner/kube/limits.py",
        "provisioner/kube/resources.py",
        "provisioner/planning/search.py",
        "provisioner/scheduling/finishing.py",
        "provisioner/scheduling/places.py",
        "provisioner/support/backoff.py",
        "provisioner/support/metrics.py",
        "provisioner/support/workers.py",
        "provisioner/values/schedule.py",
    }
)
"""Modules whose ValueErrors are of that kind, too."""
WORD = re.compile(r"[a-z]{2,}")
PLACEHOLDER = re.compile(r"\{[^}]*\}|^f(?=['\"])")
WITHOUT_TEXTS = {
    "certs/authority.py": "imports nothing of ours",
    "provisioner/apis/cel.py": "judges rules of our own definitions; tests evaluate all of them",
}
"""Modules that write the texts of their errors themselves, and why."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module, parsed once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def sources() -> list[Path]:
    """Every module that may publish; `messages.py` modules are where texts belong."""
    every = (path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    return sorted(
        path for path in every if path.name != "messages.py" and not str(path.relative_to(ROOT)).startswith(EXEMPT)
    )


def offenders(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each literal that is published."""
    yield from _offenders(tree, {})
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        yield from _offenders(function, _assigned(function))


def _offenders(scope: ast.AST, assigned: dict[str, list[ast.expr]]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Call):
            strict = _is_log(node) or _name(node) in STRICT
            for said in _published(node):
                named = assigned.get(said.id, []) if isinstance(said, ast.Name) else []
                for one in (said, *named):
                    yield from _literals(one, words=strict)
            for field in node.keywords if _is_log(node) else ():
                yield from _literals(field.value)


def _published(node: ast.Call) -> list[ast.expr]:
    """The arguments of a call that publish something; none where it publishes nothing."""
    match node.func:
        case ast.Attribute(value=ast.Name(id="_log"), attr=name) if name in LOGS:
            return node.args[:2]
        case ast.Attribute(value=ast.Name(id=name), attr="set") if name in CONDITION_SETS:
            pass
        case ast.Attribute(attr=name) if name in PUBLISHERS:
            pass
        case ast.Attribute(value=ast.Attribute(attr="warnings"), attr="append"):  # of an admission review
            pass
        case ast.Name(id=name) if name in VALUES or name == "publish":
            pass
        case _:
            return []
    return [*node.args, *(one.value for one in node.keywords if one.arg not in NO_TEXT)]


def raised(tree: ast.Module, path: str = "") -> Iterator[tuple[int, str]]:
    """Line and text of each prose literal in an error that a user may read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind = _name(node.exc)
            if kind in OF_CALLERS or (kind == "ValueError" and path in WRONG_CALLS):
                continue
            for said in (*node.exc.args, *(one.value for one in node.exc.keywords)):
                for line, text in _literals(said):
                    if len(WORD.findall(PLACEHOLDER.sub("", text))) > 1:
                        yield line, text


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_log(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "_log" and node.func.attr in LOGS


def _assigned(function: Function) -> dict[str, list[ast.expr]]:
    """What local names are bound to, so that a text does not pass in a variable."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for one, value in zip(names, values, strict=False):
                    if isinstance(one, ast.Name):
                        found.setdefault(one.id, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
            case _:
                pass
    return found


def _literals(node: ast.AST, *, words: bool = False) -> Iterator[tuple[int, str]]:
    """Prose, or with `words` every string with a letter, that an expression may say; not those that are compared, looked up or joined with."""
    match node:
        case ast.Constant(value=str(text)) if any(map(str.isalpha, text)) and (words or " " in text):
            yield node.lineno, text
        case ast.JoinedStr():
            if words or any(isinstance(one, ast.Constant) and " " in str(one.value) for one in node.values):
                yield node.lineno, ast.unparse(node)
        case ast.Compare() | ast.Subscript() | ast.Lambda() | ast.comprehension():
            return
        case ast.Call():
            for one in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from () if _is_format(node) else _literals(one)
        case ast.IfExp():
            yield from _literals(node.body, words=words)
            yield from _literals(node.orelse, words=words)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _literals(child, words=words)


def _is_format(node: ast.Call) -> bool:
    """Times, and keys of mappings."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in {"strftime", "get", "startswith", "endswith"}


@pytest.mark.parametrize("source", SOURCES)
def test_no_text_is_written_where_it_is_published(source: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sources()
        if path.relative_to(ROOT).parts[0] == source
        for line, text in offenders(parsed(path))
    }
    assert not found, "texts that belong into messages.py:\n" + "\n".join(sorted(found))


@pytest.mark.parametrize("source", SOURCES)
def test_no_text_is_written_where_an_error_is_raised(source: str) -> None:
    found = {
        f"{name}:{line}: {text}"
        for path in sources()
        if (name := str(path.relative_to(ROOT))).startswith(f"{source}/") and name not in WITHOUT_TEXTS
        for line, text in raised(parsed(path), name)
    }
    assert not found, "texts that belong into messages.py:\n" + "\n".join(sorted(found))


@pytest.mark.parametrize("name", sorted({*WRONG_CALLS, *WITHOUT_TEXTS}))
def test_no_exception_is_granted_for_nothing(name: str) -> None:
    assert list(raised(parsed(ROOT / name))), f"{name} needs no exception any more"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("raise RefusedError('the pod has no UID')", 1),
        ("raise RefusedError(name, problem=f'{name} does not exist')", 1),
        ("raise RefusedError('one thing' if a else messages.OTHER)", 1),
        ("raise RefusedError(messages.does_not_exist(name))", 0),
        ("raise RefusedError(f'{method} {path}')", 0),
        ("raise TypeError('use Requirement.of')", 0),
    ],
)
def test_a_text_of_an_error_is_found(source: str, count: int) -> None:
    assert len(list(raised(ast.parse(source)))) == count


BAD = {
    "a log": "_log.info('Began')",
    "a log with a placeholder": "_log.warning(f'Failed {what}')",
    "one of two levels": "_log.log(level, 'One' if a else messages.TWO)",
    "prose in a field": "_log.warning(messages.LATE, why='a thread is busy')",
    "an event": "self._recorder.publish(ref, 'Normal', 'Evicted', text)",
    "an event in a wrapper": "self._say(names, f'Disrupting Node: {reason}')",
    "a condition": "CLAIM_CONDITIONS.set(conditions, kind, status, reason, 'Node not found', generation=1, now=now)",
    "a text in a variable": "def f():\n    text = f'{a} of {b}'\n    self._recorder.publish(ref, *one, text)",
    "a text among two names": "def f():\n    reason, text = 'A', 'B c'\n    self._event(claim, text)",
    "a warning of an admission review": "draft.warnings.append(f'{found} is not supported; use zone')",
    "a value that is published later": "return Finding(kind, names.FALSE, message='no subnet')",
}
GOOD = {
    "a text by its name": "_log.info(messages.BEGAN, node=name, pods=', '.join(pods))",
    "a field that is put together": "_log.info(messages.SET, version=f'1.{minor}')",
    "a field of one word": "_log.info(messages.SET, url=url or 'none')",
    "an event": "self._recorder.publish(ref, *messages.evicted(reason), dedupe=('uid', uid), ttl=0)",
    "a condition": "CLAIM_CONDITIONS.set(conditions, *messages.READY, generation=1, now=now)",
    "another's method": "path.set('Node not found')",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
def test_a_literal_is_found(source: str) -> None:
    assert list(offenders(ast.parse(source)))


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_a_name_is_none(source: str) -> None:
    assert not list(offenders(ast.parse(source)))


# ------------------------------------------------------------------ the reference


def public_names(path: Path) -> Iterator[str]:
    """Constants and functions of a module, read apart from the generator."""
    for node in parsed(path).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
                yield name


def holders() -> list[Path]:
    """Every `messages.py` that holds texts."""
    every = (path for source in SOURCES for path in (ROOT / source).rglob("messages.py"))
    parsers = {Path(*name.split(".")).with_suffix(".py") for name in reference.PARSERS}
    return sorted(
        path
        for path in every
        if path.relative_to(ROOT) not in parsers and not str(path.relative_to(ROOT)).startswith(EXEMPT)
    )


@pytest.mark.parametrize("path", holders(), ids=lambda one: str(one.relative_to(ROOT)))
def test_the_reference_has_every_text(path: Path) -> None:
    package = ".".join(path.relative_to(ROOT).parent.parts).removeprefix("provisioner.")
    page = (ROOT / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {package}\n")[2].partition("\n## ")[0]
    there = list(public_names(path))
    assert there
    assert [name for name in there if f"| `{name}` |" not in section] == []


@pytest.mark.parametrize("path", holders(), ids=lambda one: str(one.relative_to(ROOT)))
def test_every_text_is_used(path: Path) -> None:
    own, module = path.read_text(encoding="utf-8"), ".".join(path.relative_to(ROOT).with_suffix("").parts)
    users = _taken().get(module, set())
    for name in public_names(path):
        assert name in users or own.count(name) > 1, f"{name} is published nowhere"


@functools.cache
def _taken() -> dict[str, set[str]]:
    """By module of texts, the names that other modules take from it."""
    found: dict[str, set[str]] = {}
    for path in (path for source in SOURCES for path in (ROOT / source).rglob("*.py")):
        if "messages" not in path.read_text(encoding="utf-8"):
            continue
        aliases: dict[str, str] = {}
        for node in parsed(path).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for one in node.names:
                    found.setdefault(node.module, set()).add(one.name)
                    if one.name == "messages":
                        aliases[one.asname or one.name] = f"{node.module}.messages"
        for inner in ast.walk(parsed(path)) if aliases else ():
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in aliases:
                found.setdefault(aliases[inner.value.id], set()).add(inner.attr)
    return found


def test_placeholders_levels_and_fields_are_in_the_reference() -> None:
    found = {(one.module, one.name): one for one in reference.entries()}
    drained = found["controllers.core", "failed_draining"]
    assert (drained.kind, drained.about) == ("event", "Warning, `FailedDraining`")
    assert drained.text == "Failed to drain node, {why}"
    launched = found["controllers.core", "NODE_NOT_REGISTERED"]
    assert (launched.kind, launched.about) == ("condition", "`Registered` = Unknown, `NodeNotFound`")
    lost = found["kube", "LOST_LEADER_ELECTION_LEASE"]
    assert (lost.kind, lost.about, lost.fields) == ("log", "error", ("holder", "identity", "lease"))
