"""Every text of an event, a condition, a log line or an error, read from the calls that publish it.

A text that passes through a variable or another text before it is published is marked with `Said`, and a part here. Of what stands
in braces, the page shows what it is about: `{', '.join(sorted(names))}` is `{names}`.
"""

import ast
import functools
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import certs
import extender
import provisioner
import webhook
from provisioner.lab.reference.markdown import code, page, table

PACKAGES: Final = (provisioner, webhook, extender, certs)
TO_TERMINALS: Final = ("provisioner/cli", "provisioner/lab", "provisioner/ec2/preflight", "provisioner/takeover")
REASONS: Final = ("scheduling.reasons", "termination.blockers", "disruption.candidates", "interruption.response")
OF_CALLERS: Final = frozenset({"TypeError", "AttributeError", "AssertionError", "RuntimeError", "LookupError"})
"""Errors that tell a programmer of a wrong call; no user reads them."""
LEVELS: Final = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "critical": "critical",
    "exception": "error, with the traceback",
    "log": "info or warning",
}
_NOT_FIELDS: Final = frozenset({"exc_info", "extra", "stack_info", "stacklevel"})
_ORDER: Final = ("event", "condition", "log", "error", "part")
_ROOT: Final = Path(provisioner.__path__[0]).parent
_Said: TypeAlias = tuple[str, str, ast.expr, tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """One text.

    Attributes:
        kind: "event", "condition", "log", "error" or "part": of another text or of a field.
        about: type and reason of an event; type, status and reason of a condition; level of a log; class of an error.
        text: with its placeholders; several where the expression chooses.
        fields: of a log.
        node: the expression that says it.
    """

    kind: str
    about: str
    text: str
    fields: tuple[str, ...]
    node: ast.expr


def text() -> str:
    """docs/reference/messages.md."""
    found: defaultdict[str, list[tuple[str, Entry]]] = defaultdict(list)
    for path in sources():
        package, _, module = dotted(path).removeprefix("provisioner.").rpartition(".")
        found[package or module].extend((module, entry) for entry in entries(path))
    parts = [f"## {name}\n\n{_table(found[name])}" for name in sorted(found) if found[name]]
    return page(
        "Messages",
        "The texts of events, conditions, logs and errors, by the package that publishes or raises them. Words in braces are\n"
        "placeholders. A log names its logger by the first word of the package: `ec2` for all that begin with `ec2`.\n"
        "A part belongs to other texts or to a field. Reasons why a pod gets no node, and what blocks a drain, are\n"
        "values of `scheduling`, `disruption`, `interruption` and `termination`; their texts are at the end.\n",
        *parts,
        f"## Reasons\n\n{table(('value', 'module', 'text'), _reasons())}",
    )


def _table(those: Sequence[tuple[str, Entry]]) -> str:
    rows = {
        (code(module), one.kind, one.about, one.text, ", ".join(map(code, one.fields))): None
        for module, one in sorted(those, key=lambda row: _ORDER.index(row[1].kind))
    }
    return table(("module", "kind", "type, status, reason, level or error", "text", "fields"), rows)


def sources() -> list[Path]:
    """Every module of the product."""
    return sorted(path for package in PACKAGES for path in Path(package.__path__[0]).rglob("*.py"))


def prints(path: Path) -> bool:
    """Whether a module writes to a terminal, so that of its texts only what it marks is published."""
    return str(path.relative_to(_ROOT)).startswith(TO_TERMINALS)


def dotted(path: Path) -> str:
    """The name of a module."""
    return ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")


def entries(path: Path) -> Iterator[Entry]:
    """The texts of a module, in the order of its source, each as often as it is said."""
    found = entries_of(ast.parse(path.read_text(encoding="utf-8")))
    return (one for one in found if one.kind == "part") if prints(path) else found


def entries_of(tree: ast.Module) -> Iterator[Entry]:
    """The same, of a module that is parsed already."""
    known = _Known(tree)
    for node in ast.walk(tree):
        for kind, about, said, fields in _published(node, known) if isinstance(node, ast.Call) else ():
            yield Entry(kind, about, known.said(said), fields, said)


def _published(call: ast.Call, known: "_Known") -> Iterator[_Said]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    fields = tuple(one.arg for one in call.keywords if one.arg and one.arg not in _NOT_FIELDS)
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="_log")), args=[*_, said]) if name in LEVELS:
            yield "log", LEVELS[name], said, fields
            yield from (("part", "", one.value, ()) for one in call.keywords if known.is_prose(one.value))
        case ast.Call(args=[said, *_]) if name == "_log":  # a method that limits how often
            yield "log", LEVELS["warning"], said, fields
        case ast.Call(func=ast.Name(id="Said"), args=[said]):
            yield "part", "", said, ()
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="warnings")), args=[said]) if name == "append":
            yield "part", "", said, ()
        case ast.Call(args=[kind, status, *rest]) if name in {"ConditionMessage", "ClassFinding"}:
            yield from _condition(kind, status, rest, known)
        case ast.Call(args=[_, kind, status, *rest]) if name == "set":
            yield from _condition(kind, status, rest, known)
        case _ if name.endswith(("Error", "Exception")) and name not in OF_CALLERS:
            yield from (("error", code(name), one, ()) for one in call.args if known.is_prose(one))
        case _:
            for at, one in enumerate(call.args[:-2]):
                if known.said(one) in {"Normal", "Warning", "Normal / Warning"}:
                    yield "event", f"{known.said(one)}, {code(known.said(call.args[at + 1]))}", call.args[at + 2], ()


def _condition(kind: ast.expr, status: ast.expr, rest: Sequence[ast.expr], known: "_Known") -> Iterator[_Said]:
    none = ast.Constant("")
    reason, said = [*rest, none, none][:2]
    if "{" not in known.said(kind) or known.is_prose(said):
        reasoned = code(known.said(reason) or known.said(kind))
        yield "condition", f"{code(known.said(kind))} = {known.said(status)}, {reasoned}", said, ()


class _Known:
    """What names stand for in a module."""

    def __init__(self, tree: ast.Module) -> None:
        self._constants = {
            node.target.id: node.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
        }
        self._imported = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def said(self, node: ast.expr) -> str:
        """What an expression says, with its placeholders in braces."""
        match node:
            case ast.Constant(value=str(said)):
                return said
            case ast.JoinedStr(values=parts):
                return "".join(map(self.said, parts))
            case ast.IfExp(body=one, orelse=other):
                return f"{self.said(one)} / {self.said(other)}"
            case ast.Call(func=ast.Name(id="Said"), args=[said]):
                return self.said(said)
            case ast.FormattedValue(value=value):
                node = value
            case _:
                pass
        known = self._value(node)
        return f"{{{_about(node)}}}" if known is None else known

    def _value(self, node: ast.expr) -> str | None:
        """Of a constant of this module or of another one; None for anything else."""
        match node:
            case ast.Name(id=name) if name in self._constants:
                return self.constant(name)
            case ast.Name(id=name) if name in self._imported:
                module, name = self._imported[name]
                return _of(module).constant(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self._imported:
                return _of(".".join(self._imported[name])).constant(attr)
            case _:
                return None

    def constant(self, name: str) -> str | None:
        """What it says; None where it is no text."""
        found = self._constants.get(name)
        said = self.said(found) if isinstance(found, ast.Constant | ast.JoinedStr | ast.Call) else "{"
        return None if said.startswith("{") else said

    def is_prose(self, node: ast.expr) -> bool:
        """Whether it says more than placeholders."""
        if isinstance(node, ast.Call):
            return False
        return any(" " in part and re.search("[a-z]{2}", part) for part in re.split(r"\{[^}]*\}", self.said(node)))


@functools.cache
def _of(module: str) -> _Known:
    path = _ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return _Known(ast.parse(path.read_text(encoding="utf-8") if path.exists() else ""))


def _about(node: ast.expr) -> str:
    """What a placeholder is about."""
    match node:
        case ast.Call(func=ast.Attribute(attr="join"), args=[one]):
            return _about(one)
        case ast.Call(func=ast.Attribute(value=value, attr="get")):
            return _about(value)
        case ast.Call(args=[ast.Constant(), one, *_]) | ast.Call(args=[one, *_]):
            return _about(one)
        case ast.GeneratorExp(generators=[one, *_]) | ast.ListComp(generators=[one, *_]):
            return _about(one.iter)
        case _:
            pass
    return re.sub(r"\b_(?=\w)", "", ast.unparse(node).replace("self.", ""))


def _reasons() -> Iterator[tuple[str, str, str]]:
    """The values of pure modules that write themselves: class, module and what `str` makes of it."""
    for name in REASONS:
        home = importlib.import_module(f"provisioner.{name}")
        tree = ast.parse(inspect.getsource(home))
        known = _Known(tree)
        for kind in (node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")):
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__str__":
                    returned = (one.value for one in ast.walk(method) if isinstance(one, ast.Return) and one.value)
                    yield code(kind.name), name, " / ".join(map(known.said, returned))
