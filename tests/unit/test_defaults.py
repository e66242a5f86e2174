"""A parameter has a default for those product calls that leave it out and for those that do not: what only tests pass is no parameter of the product."""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import certs
import extender
import provisioner
import webhook

PRODUCT: Final = tuple(Path(package.__path__[0]) for package in (certs, extender, provisioner, webhook))
LAB: Final = PRODUCT[2] / "lab"
_WAIT: Final = "clock: a wait in real time, beside threads or sockets"
SEAMS: Final[Mapping[str, str]] = {
    "CollectorTags.__init__(client)": "transport: EC2 in a region",
    "Credentials.__init__(token)": "transport: the command that gets ECR's tokens",
    "HistoryKeeper.__init__(most_waiting)": "bound: a queue that is full after a few changes",
    "Instances.__init__(idle)": _WAIT,
    "Instances.__init__(patience)": _WAIT,
    "InterruptionQueue.__init__(visibility_seconds)": _WAIT,
    "InterruptionQueue.__init__(wait_seconds)": _WAIT,
    "Interruptions.__init__(patience)": _WAIT,
    "KwokProvider.__init__(queue_of)": "thread factory",
    "Launcher.__init__(look)": _WAIT,
    "Launcher.__init__(patience)": _WAIT,
    "LeaderElector.__init__(stopping)": "clock: whoever waits on it moves the time",
    "MemoryGuard.__init__(release)": "the memory of this machine",
    "MemoryGuard.__init__(resident)": "likewise",
    "PatientPlanner.__init__(command)": "transport: another program at the other end",
    "Reflector.__init__(read_timeout)": _WAIT,
    "Registrar.__init__(patience)": _WAIT,
    "Transport.__init__(resolve)": "transport: the resolver of this machine",
    "configure(stream)": "transport: stderr",
    "watch_threads(pulses)": "thread: those of one test",
}
"""What tests alone pass, with the reason."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Default:
    """A parameter with a default.

    Attributes:
        called: the name by which calls know its function.
        method: whether that is a method's.
        position: among the arguments of a call; None for one that is passed by its name only.
    """

    name: str
    called: str
    method: bool
    parameter: str
    position: int | None


@dataclass
class Calls:
    """What calls pass, by the name of what they call; and what is handed on instead, as a value that anybody may call."""

    keywords: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    positions: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    functions: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)

    def passes(self, one: Default) -> bool:
        """Whether some call passes it, or may."""
        return (
            one.called in (self.methods if one.method else self.functions)
            or not self.keywords[one.called].isdisjoint((one.parameter, "**"))
            or (one.position is not None and self.positions[one.called] > one.position)
        )

    def read(self, tree: ast.Module) -> None:
        """The calls of a module."""
        passive = {id(one) for node in ast.walk(tree) for one in _not_handed_on(node)}
        imported = {
            one.asname or one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names
        }
        top = imported | {one.name for one in tree.body if isinstance(one, Function | ast.ClassDef)}
        for node in ast.walk(tree):
            match node:
                case ast.Name() if node.id in top and id(node) not in passive:
                    self.functions.add(node.id)
                case ast.Attribute() if id(node) not in passive:
                    self.methods.add(node.attr)
                    if isinstance(node.value, ast.Name) and node.value.id in imported:
                        self.functions.add(node.attr)
                case ast.Call():
                    self._call(_name(node.func), node.args, node.keywords)
                    if _name(node.func) == "partial":
                        self._call(_name(node.args[0]), node.args[1:], node.keywords)
                case ast.ClassDef():
                    for call in ast.walk(node):
                        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
                            for base in node.bases:
                                self._call(_name(base), call.args, call.keywords)
                case _:
                    pass

    def _call(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        self.keywords[name] |= {one.arg or "**" for one in keywords}
        starred = any(isinstance(one, ast.Starred) for one in arguments)
        self.positions[name] = max(self.positions[name], float("inf") if starred else len(arguments))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Subscript():
            return _name(node.value)
        case _:
            return ""


def _not_handed_on(node: ast.AST) -> Iterator[ast.AST]:
    """What a node calls, names as a type, raises or looks into."""
    match node:
        case ast.Call():
            yield node.func
            if _name(node.func) in ("partial", "isinstance", "issubclass", "cast"):
                yield from (part for one in node.args for part in ast.walk(one))
        case ast.AnnAssign():
            yield from ast.walk(node.annotation)
        case ast.arg(annotation=ast.expr() as annotation):
            yield from ast.walk(annotation)
        case ast.FunctionDef(returns=ast.expr() as returns):
            yield from ast.walk(returns)
        case ast.ClassDef():
            yield from (part for one in node.bases for part in ast.walk(one))
        case ast.ExceptHandler(type=ast.expr() as kinds):
            yield from ast.walk(kinds)
        case ast.MatchClass():
            yield node.cls
        case ast.Attribute() | ast.Subscript():
            yield node.value
        case _:
            pass


def _defaults(node: ast.AST, within: str = "") -> Iterator[Default]:
    """Those of functions and methods; functions inside of others bind values by theirs, and are left out."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.ClassDef):
            yield from _defaults(one, one.name)
        elif isinstance(one, Function) and one.name != "__call__":  # that is called by any name
            static = any(isinstance(by, ast.Name) and by.id == "staticmethod" for by in one.decorator_list)
            name = f"{within}.{one.name}" if within else one.name
            method = bool(within) and one.name not in ("__init__", "__new__")
            called = within if one.name in ("__init__", "__new__") else one.name
            positional = [*one.args.posonlyargs, *one.args.args]
            for index in range(len(positional) - len(one.args.defaults), len(positional)):
                yield Default(
                    f"{name}({positional[index].arg})",
                    called,
                    method,
                    positional[index].arg,
                    index - bool(within and not static),
                )
            for arg, default in zip(one.args.kwonlyargs, one.args.kw_defaults, strict=True):
                if default is not None:
                    yield Default(f"{name}({arg.arg})", called, method, arg.arg, None)
        elif not isinstance(one, ast.expr):
            yield from _defaults(one, within)


@functools.cache
def unused() -> tuple[int, frozenset[str]]:
    """How many defaults the product has, and those parameters that none of its calls passes; the lab's calls count, its parameters do not."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for package in PRODUCT
        for path in sorted(package.rglob("*.py"))
    }
    calls = Calls()
    for tree in trees.values():
        calls.read(tree)
    found = [one for path, tree in trees.items() if LAB not in path.parents for one in _defaults(tree)]
    return len(found), frozenset(one.name for one in found if not calls.passes(one))


def test_every_parameter_with_a_default_is_passed_by_the_product_or_is_a_seam() -> None:
    count, found = unused()
    assert count > 500, "defaults are found"
    assert sorted(found - SEAMS.keys()) == []


def test_every_seam_is_one() -> None:
    assert sorted(SEAMS.keys() - unused()[1]) == []
