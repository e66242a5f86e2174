"""AWS's own description of its services (botocore's models) judges what a program asks and what it reads of the answers.

`watching` puts itself into botocore: every request that is made while it holds is looked at before it is sent, and every answer is handed out as mappings
that know their shape. botocore itself refuses parameters that it does not know; what it lets pass (a word that is none of an enumeration's) and what it
cannot know (a member that is read and that no answer has) is a fault here. Pages that our clients do not parse are judged the same way, element by element.

`calls_of` and `members_of` read the source instead, so that a call or a member that no test reaches is judged all the same.
"""

import ast
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Self
from xml.etree.ElementTree import Element, fromstring

import botocore.session
import pytest
from botocore import xform_name
from botocore.client import BaseClient

import provisioner
from provisioner.ec2.access import wire
from provisioner.ec2.access.client import RAW

_OF_EVERY_ANSWER: Final = frozenset({"Error", "ResponseMetadata", RAW})  # waiters of botocore ask for the first
_OPEN: Final = frozenset({"InstanceType"})
"""Enumerations that grow by the week: a name that botocore has not heard of yet is no fault."""


@dataclass
class Watch:
    """What was seen.

    Attributes:
        faults: sentences about requests and reads, each once, in order.
        strange: about answers.
        operations: (service, operation) of every call.
        reads: (file, line, member) of every read of an answer.
        there: (shape, member) of those reads that found something, but for those of pages: what one type of instance has, another has not.
    """

    faults: dict[str, None] = field(default_factory=dict)
    strange: dict[str, None] = field(default_factory=dict)
    operations: set[tuple[str, str]] = field(default_factory=set)
    reads: set[tuple[str, int, str]] = field(default_factory=set)
    there: set[tuple[str, str]] = field(default_factory=set)

    def asked(self, service: str, operation: Any, request: Any) -> None:
        """A request, in boto3's words."""
        self.operations.add((service, operation.name))
        if operation.input_shape is not None:
            for fault in (
                *misfits(request, operation.input_shape, operation.name),
                *unknown_filters(request, operation),
            ):
                self.faults[fault] = None

    def told(self, operation: Any, answer: Any) -> Any:
        """An answer; what is handed out for it."""
        shape = operation.output_shape
        if shape is None:
            return answer
        said = {name: value for name, value in answer.items() if name not in _OF_EVERY_ANSWER}
        for fault in misfits(said, shape, f"the answer of {operation.name}"):
            self.strange[fault] = None
        return Answered(answer, shape, self, outermost=True)

    def read(self, shape: Any, member: object, known: Container[object], depth: int, *, found: bool) -> None:
        """A member of an answer was read, `depth` frames above, and was there or not."""
        frame = sys._getframe(depth + 1)
        if found:
            self.there.add((shape.name, str(member)))
        self.reads.add((frame.f_code.co_filename, frame.f_lineno, str(member)))
        if member not in known:
            at = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            self.faults[f"{at} reads {member} of {shape.name}, which has no such member"] = None


def misfits(value: Any, shape: Any, path: str) -> Iterator[str]:
    """What a model says against a value, beside what botocore refuses itself."""
    match shape.type_name:
        case "structure":
            for name, inner in value.items():
                if name not in shape.members:
                    yield f"{path} has no member {name}"
                else:
                    yield from misfits(inner, shape.members[name], f"{path}.{name}")
        case "list":
            for inner in value:
                yield from misfits(inner, shape.member, f"{path}[]")
        case "map":
            for inner in value.values():
                yield from misfits(inner, shape.value, f"{path}{{}}")
        case "string" if shape.enum and shape.name not in _OPEN and value not in shape.enum:
            yield f"{path} is {value!r}, which is none of {shape.name}"
        case "string" | "integer" | "long":
            size = len(value) if shape.type_name == "string" else value
            most = shape.metadata.get("max", size)
            if size > most:
                yield f"{path} is larger than {shape.name} may be: {most}"
        case _:
            pass


def unknown_filters(request: Any, operation: Any) -> Iterator[str]:
    """Names that EC2 filters by nowhere in the description of an operation; tags filter whatever has tags.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
    """
    told = operation.input_shape.members["Filters"].documentation if "Filters" in request else ""
    for name in (one.get("Name", "tag-key") for one in request.get("Filters", ())):
        if not name.startswith(("tag:", "tag-key")) and f"<code>{name}</code>" not in told:
            yield f"{operation.name} has no filter {name}"


class Answered(dict[str, Any]):
    """A structure of an answer, which tells when it is asked for what its shape does not have."""

    def __init__(self, found: Any, shape: Any, watch: Watch, *, outermost: bool = False) -> None:
        members = shape.members
        super().__init__(
            (name, answered(value, members[name], watch) if name in members else value) for name, value in found.items()
        )
        self._shape, self._watch = shape, watch
        self._known = {*members, *(_OF_EVERY_ANSWER if outermost else ())}

    def __getitem__(self, member: str) -> Any:
        self._read(member)
        return super().__getitem__(member)

    def get(self, member: str, default: Any = None) -> Any:
        """The same, or `default`."""
        self._read(member)
        return super().get(member, default)

    def __contains__(self, member: object) -> bool:
        self._read(member)
        return super().__contains__(member)

    def _read(self, member: object) -> None:
        self._watch.read(self._shape, member, self._known, 2, found=super().__contains__(member))


def answered(value: Any, shape: Any, watch: Watch) -> Any:
    """A part of an answer, its structures watched."""
    if shape.type_name == "structure" and isinstance(value, dict):
        return Answered(value, shape, watch)
    if shape.type_name == "list" and isinstance(value, list):
        return [answered(inner, shape.member, watch) for inner in value]
    return value


class Page:
    """An element of a page that is read as it came, likewise: as much of `xml.etree`'s Element as our readers use."""

    def __init__(self, element: Element, shape: Any, watch: Watch) -> None:
        self._element, self._shape, self._watch = element, shape, watch
        self.tag, self.text = element.tag, element.text

    @classmethod
    def of(cls, content: bytes, watch: Watch) -> Self:
        """The document."""
        root = fromstring(content)
        operation = root.tag.rpartition("}")[2].removesuffix("Response")
        return cls(root, model("ec2").operation_model(operation).output_shape, watch)

    def __iter__(self) -> Iterator["Page | Element"]:
        """What is in it, whatever the entries of a list are called, as with botocore; of those that have the same elements the first is watched."""
        seen: set[frozenset[str]] = set()
        for one in self._element:
            has = frozenset(part.tag for part in one.iter())
            yield one if has in seen else Page(one, self._shape.member, self._watch)
            seen.add(has)

    def find(self, path: str) -> "Page | None":
        """As of an Element."""
        shape, found = self._member(path), self._element.find(path)
        return None if found is None or shape is None else Page(found, shape, self._watch)

    def findtext(self, path: str, default: str = "") -> str:
        """Likewise."""
        self._member(path)
        return self._element.findtext(path, default)

    def _member(self, path: str) -> Any:
        wire_name, shape = path.rpartition("}")[2], self._shape
        members: dict[str, Any] = {}
        if shape.type_name == "structure":
            members = {one.serialization.get("name", name): one for name, one in shape.members.items()}
        self._watch.read(shape, wire_name, members, 3, found=False)
        return members.get(wire_name)


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch every call of every client of this process."""
    watch, send = Watch(), BaseClient._make_api_call

    def watched(client: Any, operation_name: str, request: Any) -> Any:
        described = client.meta.service_model
        operation = described.operation_model(operation_name)
        watch.asked(described.service_name, operation, request)
        found = send(client, operation_name, request)
        return watch.told(operation, found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", watched)
        patch.setattr(wire, "fromstring", lambda content: Page.of(content, watch))
        yield watch


@cache
def model(service: str) -> Any:
    """botocore's model of a service."""
    return botocore.session.get_session().get_service_model(service)


# ------------------------------------------------------------------ the source


def product() -> list[Path]:
    """The modules that speak to AWS."""
    root = Path(provisioner.__file__).parent
    return sorted((root / "ec2").rglob("*.py"))


def services_of(files: Iterable[Path]) -> frozenset[str]:
    """The services that modules ask for clients of."""
    named = frozenset(botocore.session.get_session().get_available_services())
    return frozenset(
        node.value
        for path in files
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in named
    )


def calls_of(files: Iterable[Path], services: Iterable[str]) -> dict[tuple[str, str], str]:
    """Every operation that modules name, as a method ("describe_subnets") or by its name, with a place where they do."""
    by_name = {
        name: (service, operation)
        for service in sorted(services)
        for operation in model(service).operation_names
        for name in (operation, xform_name(operation))
    }
    found: dict[tuple[str, str], str] = {}
    for path in files:
        for node in ast.walk(_tree(path)):
            match node:
                case ast.Attribute(attr=named) | ast.Constant(value=str(named)) if named in by_name:
                    found.setdefault(by_name[named], f"{path.name}:{node.lineno}")
                case _:
                    pass
    return found


def members_of(files: Iterable[Path]) -> dict[str, str]:
    """Every member in AWS's spelling (CamelCase) that modules read by `x["Member"]`, `x.get("Member")` or `"Member" in x`, with a place where they do."""
    found: dict[str, str] = {}
    for path in files:
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.expr):
                continue
            match node:
                case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                    pass
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
                    pass
                case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()]):
                    pass
                case _:
                    continue
            if _camel(name):
                found.setdefault(name, f"{path.name}:{node.lineno}")
    return found


def methods_of(files: Iterable[Path]) -> dict[tuple[str, str], str]:
    """(service, method) of what is called of a client that is asked for by its service's name there and then, with a place where it is."""
    found: dict[tuple[str, str], str] = {}
    for path in files:
        for node in ast.walk(_tree(path)):
            match node:
                case ast.Attribute(
                    attr=method,
                    value=ast.Call(func=ast.Attribute(attr="client"), args=[ast.Constant(value=str(service)), *_]),
                ):
                    found.setdefault((service, method), f"{path.name}:{node.lineno}")
                case _:
                    pass
    return found


def keywords_of(files: Iterable[Path], services: Iterable[str]) -> dict[tuple[str, str, str], str]:
    """(service, operation, keyword) of every call of an operation's method, with a place where it is made."""
    by_method = {
        xform_name(operation): (service, operation)
        for service in services
        for operation in model(service).operation_names
    }
    return {
        (*by_method[node.func.attr], one.arg): f"{path.name}:{node.lineno}"
        for path in files
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in by_method
        for one in node.keywords
        if one.arg is not None
    }


def names_in(shape: Any) -> set[str]:
    """The members of a shape and of all that is in it, and the keys of its maps as far as they are told."""
    found: set[str] = set()
    seen: set[str] = set()
    left = [] if shape is None else [shape]
    while left:
        shape = left.pop()
        if shape.name in seen and shape.type_name == "structure":
            continue
        seen.add(shape.name)
        match shape.type_name:
            case "structure":
                found |= set(shape.members)
                left += shape.members.values()
            case "list":
                left.append(shape.member)
            case "map":
                found |= set(getattr(shape.key, "enum", ()))
                left.append(shape.value)
            case _:
                pass
    return found


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _camel(name: str) -> bool:
    return name[:1].isupper() and name.isalnum()
