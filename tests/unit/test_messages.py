"""Texts of events, conditions, logs and errors stand in the calls that publish them, or are marked with `Said`; so each is in the reference."""

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.lab.reference import messages as reference
from provisioner.support import logs

ROOT = Path(__file__).parents[2]
PUBLISHERS = frozenset(
    {"publish", "_publish", "_event", "_say", "_pending", "_with", "_set", "_hold", "_draining", "_refused", "_log"}
)
"""Events and conditions; what limits how often something is logged."""
CONDITION_SETS = frozenset({"CLAIM_CONDITIONS", "POOL_CONDITIONS", "OVERLAY_CONDITIONS", "kinds"})
VALUES = frozenset({"EventMessage", "ConditionMessage", "ClassFinding", "OverlayProblem", "Rehearsed"})
"""What is published later."""
NO_TEXT = frozenset({"dedupe", "ttl", "generation", "now", "kind", "created"})
WORD = re.compile(r"[a-z]{2,}")
PLACEHOLDER = re.compile(r"\{[^}]*\}|^f(?=['\"])")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module, parsed once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


def offenders(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each literal that is published, or raised, and that the reference does not know."""
    listed = {id(node) for entry in reference.entries_of(tree) for node in ast.walk(entry.node)}
    for node in (*_reaching(tree, {}), *_raised(tree)):
        if id(node) not in listed:
            yield node.lineno, ast.unparse(node)
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        for node in _reaching(function, _assigned(function)):
            if id(node) not in listed:
                yield node.lineno, ast.unparse(node)


def _reaching(scope: ast.AST, assigned: dict[str, list[ast.expr]]) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Call):
            for said in _published(node):
                named = assigned.get(said.id, []) if isinstance(said, ast.Name) else []
                for one in (said, *named):
                    yield from _literals(one)
            for field in node.keywords if _is_log(node) else ():
                yield from _literals(field.value)


def _published(node: ast.Call) -> list[ast.expr]:
    """The arguments of a call that publish something; none where it publishes nothing."""
    match node.func:
        case ast.Attribute() if _is_log(node):
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


def _raised(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            if _name(node.exc) in reference.OF_CALLERS:
                continue
            for said in (*node.exc.args, *(one.value for one in node.exc.keywords)):
                for one in _literals(said):
                    if len(WORD.findall(PLACEHOLDER.sub("", ast.unparse(one)))) > 1:
                        yield one


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_log(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "_log"
        and node.func.attr in reference.LEVELS
    )


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


def _literals(node: ast.AST) -> Iterator[ast.expr]:
    """Prose that an expression may say; not what is compared, looked up or joined with."""
    match node:
        case ast.Constant(value=str(text)) if any(map(str.isalpha, text)) and " " in text:
            yield node
        case ast.JoinedStr():
            if any(isinstance(one, ast.Constant) and " " in str(one.value) for one in node.values):
                yield node
        case ast.Compare() | ast.Subscript() | ast.Lambda() | ast.comprehension():
            return
        case ast.Call():
            for one in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from () if _is_format(node) else _literals(one)
        case ast.IfExp():
            yield from _literals(node.body)
            yield from _literals(node.orelse)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _literals(child)


def _is_format(node: ast.Call) -> bool:
    """Times, and keys of mappings."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in {"strftime", "get", "startswith", "endswith"}


def put_together(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each log call whose text has placeholders; values are fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (_is_log(node) or _name(node) == "_log"):
            for said in node.args[:2]:
                if any(isinstance(one, ast.JoinedStr | ast.BinOp) for one in ast.walk(said)):
                    yield node.lineno, ast.unparse(said)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (offenders, "texts that no call publishes as they are; mark them with Said"),
        (put_together, "values that belong into fields of logs"),
    ],
)
def test_what_is_published_is_in_the_reference_and_texts_of_logs_are_constant(
    wrong: Callable[[ast.Module], Iterator[tuple[int, str]]], why: str
) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in reference.sources()
        if not reference.prints(path)
        for line, text in wrong(parsed(path))
    }
    assert not found, f"{why}:\n" + "\n".join(sorted(found))


BAD = {
    "prose in a call in a field": "_log.warning('Came late', why=shown('a thread is busy'))",
    "a text in a variable": "def f():\n    text = f'{a} of {b}'\n    self._recorder.publish(ref, *one, text)",
    "a text among two names": "def f():\n    reason, text = 'A', 'B c'\n    self._event(claim, text)",
    "a text in another call": "self._say(names, disrupting(f'Disrupting Node: {reason}'))",
    "a text by a keyword": "return ClassFinding(kind, names.FALSE, message='no subnet')",
    "an error by a keyword": "raise RequestRefusedError(name, problem=f'{name} does not exist')",
    "a choice in a call": "raise RequestRefusedError(shown('one thing' if a else OTHER))",
}
LISTED = {
    "a log": ("_log.info('Began', node=name, pods=', '.join(pods))", "Began"),
    "one of two": ("_log.log(level, 'One' if a else 'Two')", "One / Two"),
    "a constant": ("LATE: Final = 'It is late'\n_log.info(LATE)", "It is late"),
    "an event": (
        "self._recorder.publish(ref, 'Normal', 'Evicted', f'Evicted pod: {reason}', ttl=0)",
        "Evicted pod: {reason}",
    ),
    "an event as a value": (
        "said = EventMessage('Normal', 'Evicted', f'Evicted pods: {len(pods)}')",
        "Evicted pods: {pods}",
    ),
    "a condition": (
        "CLAIM_CONDITIONS.set(found, kind, status, reason, 'Node not found', generation=1, now=now)",
        "Node not found",
    ),
    "a condition as a value": ("return ConditionMessage(LAUNCHED, names.TRUE, '', 'It runs')", "It runs"),
    "a part": ("why = Said(f'{self.name} of {\", \".join(sorted(_all))}')", "{name} of {all}"),
    "a warning of an admission review": (
        "draft.warnings.append(f'{found} is not supported')",
        "{found} is not supported",
    ),
    "an error": ("raise RequestRefusedError(f'the pod {name!r} has no UID') from None", "the pod {name} has no UID"),
}
GOOD = {
    **{name: source for name, (source, _) in LISTED.items()},
    "a field that is put together": "_log.info('Set', version=f'1.{minor}')",
    "a field of one word": "_log.info('Set', url=url or 'none')",
    "a mark in a variable": "def f():\n    text = Said(f'{a} of {b}')\n    self._recorder.publish(ref, *one, text)",
    "a field with a choice of texts": "_log.warning('Came late', why='a thread is busy' if a else '')",
    "another's method": "path.set('Node not found')",
    "an error without prose": "raise RequestRefusedError(f'{method} {path}')",
    "an error for a programmer": "raise TypeError('use Requirement.of')",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
def test_a_text_without_a_mark_is_found(source: str) -> None:
    assert list(offenders(ast.parse(source)))


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_a_text_with_its_place_is_none(source: str) -> None:
    assert not list(offenders(ast.parse(source)))


@pytest.mark.parametrize(("source", "text"), LISTED.values(), ids=LISTED)
def test_the_reference_reads_a_text(source: str, text: str) -> None:
    assert [one.text for one in reference.entries_of(ast.parse(source))] == [text]


@pytest.mark.parametrize(
    "source", ["_log.warning(f'Failed {what}')", "_log.info('Failed ' + what)", "self._log(f'Failed {what}')"]
)
def test_a_log_that_is_put_together_is_found(source: str) -> None:
    assert list(put_together(ast.parse(source)))


def test_placeholders_levels_and_fields_are_in_the_reference() -> None:
    found = {
        (path.relative_to(ROOT).with_suffix("").as_posix(), one.text): one
        for path in reference.sources()
        for one in reference.entries(path)
    }
    drained = found["provisioner/termination/eviction_queue", "Failed to drain node, {why}"]
    assert (drained.kind, drained.about) == ("event", "Warning, `FailedDraining`")
    launched = found["provisioner/lifecycle/controller", "Node not registered with cluster"]
    assert (launched.kind, launched.about) == ("condition", "`Registered` = Unknown, `NodeNotFound`")
    lost = found["provisioner/kube/lease", "Lost the leader election Lease"]
    assert (lost.kind, lost.about, sorted(lost.fields)) == ("log", "error", ["holder", "identity", "lease"])


LOGGERS = """
    buffers certs cloudprovider disruption ec2 extender gunicorn history interruption kube lifecycle nodeclaims nodepools operator packing
    provisioning requests runtime shares static support termination webhook why
"""
"""Users filter by these names, so one that goes is named in CHANGELOG."""


def test_the_names_of_loggers_are_those_of_the_rooms_and_stay() -> None:
    made = re.compile(r"get_logger\((?:__name__|\"([\w.]+)\")\)")
    found = {
        logs.get_logger(name or reference.dotted(path)).logger.name
        for path in reference.sources()
        for name in made.findall(path.read_text(encoding="utf-8"))
    }
    assert found == {f"dovetail.{name}" for name in LOGGERS.split()}
