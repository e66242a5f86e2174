"""Every text of an event, a condition, a log line or an error: what the `messages.py` modules say, read from their sources.

Of a log, level and fields are those of the calls that write it; of a function, placeholders are named as in its source.
"""

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import certs
import extender
import provisioner
import webhook
from provisioner.cli.reference.markdown import code, page, table
from provisioner.values.message import ConditionMessage, EventMessage

PACKAGES: Final = (provisioner, webhook, extender, certs)
PARSERS: Final = frozenset({"provisioner.cloudprovider.aws.interruption.messages"})
"""Modules of this name that parse messages of others instead of publishing texts."""
REASONS: Final = (
    "scheduling.reasons",
    "disruption.blockers",
    "disruption.candidates",
    "disruption.interruption",
)
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_OWN: Final = "provisioner.cli"  # prints to a terminal


@dataclass(frozen=True)
class Entry:
    """One text.

    Attributes:
        module: its package, without "provisioner.".
        name: of the constant or function.
        kind: "event", "condition", "log" or "part": of another text, of an error or of a field.
        about: type and reason of an event; type, status and reason of a condition; levels of a log.
        text: with its placeholders; several where the function chooses.
        fields: of a log.
    """

    module: str
    name: str
    kind: str
    about: str
    text: str
    fields: tuple[str, ...] = ()


def text() -> str:
    """docs/reference/messages.md."""
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries():
        found[entry.module].append(entry)
    parts = [f"## {name}\n\n{_table(found[name])}" for name in sorted(found)]
    return page(
        "Messages",
        "The texts of events, conditions, logs and errors, by the package that publishes or raises them, each by its name in the\n"
        "package's `messages.py`. Words in braces are placeholders. A part belongs to other texts, to an error or to a field.\n"
        "Reasons why a pod gets no node, and what blocks a drain, are values of `scheduling` and `disruption`; their texts are at\n"
        "the end.\n",
        *parts,
        f"## Reasons\n\n{table(('value', 'module', 'text'), _reasons())}",
    )


def _table(those: Sequence[Entry]) -> str:
    order = ("event", "condition", "log", "part")
    rows = sorted(those, key=lambda one: order.index(one.kind))
    return table(
        ("name", "kind", "type, status, reason or level", "text", "fields"),
        [(code(one.name), one.kind, one.about, one.text, ", ".join(map(code, one.fields))) for one in rows],
    )


def entries() -> Iterator[Entry]:
    """Every public constant and function of every `messages.py`, in the order of its source."""
    for module in modules():
        tree = ast.parse(inspect.getsource(module))
        used = _uses(module)
        name = module.__name__.removeprefix("provisioner.").removesuffix(".messages")
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if not node.target.id.startswith("_"):
                    yield _constant(name, node.target.id, getattr(module, node.target.id), used)
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield _function(name, node, module)


def _reasons() -> Iterator[tuple[str, str, str]]:
    """The values of pure packages that write themselves: class, module and what `str` makes of it."""
    for name in REASONS:
        home = importlib.import_module(f"provisioner.{name}")
        classes = (node for node in ast.parse(inspect.getsource(home)).body if isinstance(node, ast.ClassDef))
        for kind in classes:
            for method in () if kind.name.startswith("_") else kind.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__str__":
                    returned = (one.value for one in ast.walk(method) if isinstance(one, ast.Return) and one.value)
                    yield code(kind.name), name, " / ".join(_said(one, home) for one in returned).replace("self.", "")


def modules() -> Iterator[ModuleType]:
    """The modules that hold texts."""
    for package in PACKAGES:
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("messages.py")):
            name = ".".join((package.__name__, *path.relative_to(root).with_suffix("").parts))
            if name not in PARSERS and not name.startswith(_OWN):
                yield importlib.import_module(name)


def _constant(module: str, name: str, value: object, used: Mapping[str, "_Use"]) -> Entry:
    if isinstance(value, EventMessage):
        return Entry(module, name, "event", f"{value.type}, {code(value.reason)}", value.text)
    if isinstance(value, ConditionMessage):
        return Entry(module, name, "condition", _condition(value.type, value.status, value.reason), value.text)
    use = used.get(name)
    if use is None:
        return Entry(module, name, "part", "", str(value))
    return Entry(module, name, "log", " or ".join(sorted(use.levels)), str(value), tuple(sorted(use.fields)))


def _condition(kind: str, status: str, reason: str) -> str:
    return f"{code(kind)} = {status}, {code(reason or kind)}"


# ------------------------------------------------------------------ functions


def _function(module: str, node: ast.FunctionDef, home: ModuleType) -> Entry:
    kind, about, texts = "part", "", []
    for one in ast.walk(node):
        if not isinstance(one, ast.Return) or one.value is None:
            continue
        made = one.value.func.id if isinstance(one.value, ast.Call) and isinstance(one.value.func, ast.Name) else ""
        if made == EventMessage.__name__ and isinstance(one.value, ast.Call):
            kind, (type_, reason, said) = "event", [_said(part, home) for part in one.value.args]
            about = f"{type_}, {_as_code(reason)}"
        elif made == ConditionMessage.__name__ and isinstance(one.value, ast.Call):
            kind = "condition"
            type_, status, reason, said = [*(_said(part, home) for part in one.value.args), "", ""][:4]
            about = _condition(type_, status, reason)
        else:
            said = _said(one.value, home)
        texts.append(said)
    return Entry(module, node.name, kind, about, " / ".join(texts))


def _as_code(text: str) -> str:
    return code(text) if text else ""


def _said(node: ast.expr, home: ModuleType) -> str:
    """What an expression says, with its placeholders in braces."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_said(part, home) for part in node.values)
        case ast.FormattedValue():
            known = _known(node.value, home)
            return known if known is not None else f"{{{ast.unparse(node.value)}}}"
        case ast.IfExp():
            return f"{_said(node.body, home)} / {_said(node.orelse, home)}"
        case _:
            known = _known(node, home)
            return known if known is not None else f"{{{ast.unparse(node)}}}"


def _known(node: ast.expr, home: ModuleType) -> str | None:
    """The value of a constant, or of an attribute of a module that is imported; None for anything else."""
    found: object = None
    if isinstance(node, ast.Name):
        found = getattr(home, node.id, None)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = getattr(getattr(home, node.value.id, None), node.attr, None)
    return str(found) if isinstance(found, str) or (isinstance(found, tuple) and hasattr(found, "_fields")) else None


# ------------------------------------------------------------------ where logs are written


class _Use:
    """Who writes a text as a log line."""

    def __init__(self) -> None:
        self.levels: set[str] = set()
        self.fields: set[str] = set()


def _uses(module: ModuleType) -> dict[str, _Use]:
    """By name, the log calls of the package that write a text, or hand it to what does."""
    found: defaultdict[str, _Use] = defaultdict(_Use)
    home = Path(inspect.getfile(module))
    for path in sorted(home.parent.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path == home:
            continue
        tree = ast.parse(source)
        if not _imports(tree, module.__name__):
            continue
        indirect = _indirect(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                level = _level(node)
                for name in _names(node, indirect) if level else ():
                    found[name].levels.add(level)
                    found[name].fields |= {one.arg for one in node.keywords if one.arg and one.arg not in _NOT_FIELDS}
    return found


def _imports(tree: ast.Module, name: str) -> bool:
    package = name.rpartition(".")[0]
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module == name or (node.module == package and any(one.name == "messages" for one in node.names)))
        for node in tree.body
    )


_NOT_FIELDS: Final = frozenset({"exc_info", "extra", "stack_info", "stacklevel"})


def _level(node: ast.Call) -> str:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return ""
    if function.attr == "_log":  # a method that limits how often
        return "warning"
    if function.attr not in _LEVELS or ast.unparse(function.value) != "_log":
        return ""
    if function.attr == "log":
        levels = (one.attr.lower() for one in ast.walk(node.args[0]) if isinstance(one, ast.Attribute))
        return " or ".join(one for one in levels if one in _LEVELS)
    return {"exception": "error, with the traceback"}.get(function.attr, function.attr)


def _indirect(tree: ast.Module) -> dict[str, set[str]]:
    """By variable or table, the texts that it is assigned."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                found[target.id] |= set(_texts(node.value))
    return found


def _texts(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "messages":
            yield one.attr


def _names(node: ast.Call, indirect: Mapping[str, set[str]]) -> Iterator[str]:
    for argument in node.args[:2]:
        yield from _texts(argument)
        for one in ast.walk(argument):
            if isinstance(one, ast.Name):
                yield one.id
                yield from indirect.get(one.id, ())
