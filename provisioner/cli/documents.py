"""What commands read: files, directories and standard input to plain values, as kubectl reads them; bounded in size.

Every command that takes files asks `inputs`, so that the same mistake has the same answer everywhere.
"""

import codecs
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard, TypeVar

import msgspec
import yaml

from provisioner.apis.crds import Document
from provisioner.values import jsontext, yamltext
from provisioner.values.errors import UserError
from provisioner.values.message import Said
from provisioner.values.printable import one_line
from provisioner.values.yamltext import MAX_DEPTH, TEXT, Placed, YamlDocumentError, scalar

T = TypeVar("T")

MAX_BYTES: Final = 256 * 2**20
"""Of one file: `kubectl get pods -A -o yaml` of 40,000 pods."""
STANDARD_INPUT: Final = "<stdin>"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""As PowerShell writes files; the parser of YAML reads it."""
_PIECE: Final = 2**20


class InputError(UserError):
    """Input that cannot be read, or not from some point on.

    Attributes:
        name: of the file.
        problem: without name and place, with the remedy.
        line: from 1; 0 where the file as a whole is the matter.
    """

    def __init__(self, name: str, problem: str, line: int = 0) -> None:
        super().__init__(f"{one_line(name)}: {f'line {line}: ' if line else ''}{problem}")
        self.name, self.problem, self.line = name, problem, line


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of the input, read when it is asked for what it holds.

    Attributes:
        path: "-" is standard input.
        named: whether the user named it; a file that was found in a directory may be empty.
        problem: why it is not even looked at; "" where nothing is known against it.
    """

    path: Path
    named: bool = True
    problem: str = ""

    @property
    def name(self) -> str:
        """For messages."""
        return STANDARD_INPUT if str(self.path) == "-" else str(self.path)

    def documents(self) -> Iterator[object]:
        """Every document in order, as dicts, lists, texts and numbers; empty ones are left out.

        Timestamps stay text. Values that aliases repeat are the same object; nobody may change it.

        Raises:
            InputError: at the point from which nothing can be read; what came before is good.

        Cost: about 10 s a million lines of YAML, a hundredth of that for JSON.
        """
        return self._read(MAX_BYTES, lambda data: documents(data, is_yaml=self.path.suffix in {".yaml", ".yml"}))

    def placed(self, most_bytes: int, most_values: int) -> Iterator[Placed]:
        """As `documents`, with the places of all values, for at most so many bytes and values.

        Raises:
            InputError: likewise.
        """
        return self._read(most_bytes, lambda data: yamltext.placed(data, most_values))

    def objects(self) -> Iterator[object]:
        """As `documents`, with the objects of lists one by one."""
        return itertools.chain.from_iterable(map(flattened, self.documents()))

    def _read(self, most_bytes: int, parse: Callable[[bytes], Iterator[T]]) -> Iterator[T]:
        nothing, data = True, self._data(most_bytes)
        try:
            for one in parse(data):
                nothing = False
                yield one
        except YamlDocumentError as error:
            if not _is_text(data):
                raise InputError(self.name, "is not UTF-8 text; save it as UTF-8") from None
            raise InputError(self.name, error.problem, error.line) from None
        if nothing and self.named:
            raise InputError(self.name, "contains no objects; specify a file with Kubernetes objects")

    def _data(self, most: int) -> bytes:
        if self.problem:
            raise InputError(self.name, self.problem)
        try:
            data = self._bytes(most + 1)
        except (OSError, ValueError) as error:
            raise InputError(self.name, _unreadable(error)) from None
        if len(data) > most:
            text = f"exceeds the limit of {most >> 20} MiB; split it into several files"
            raise InputError(self.name, text)
        if b"\0" in data[:_PIECE] and not data.startswith(_UTF16):
            raise InputError(self.name, "is a binary file; specify Kubernetes objects in YAML or JSON")
        return data

    def _bytes(self, most: int) -> bytes:
        if str(self.path) != "-":
            with self.path.open("rb") as file:
                return file.read(most)
        if sys.stdin is None:
            raise InputError(self.name, "is closed; specify a file instead")
        return sys.stdin.buffer.read(most)


def inputs(paths: Iterable[Path], charts: dict[Path, None] | None = None) -> Iterator[InputFile]:
    """The files themselves, and for directories what lies in them and below and looks like a manifest, by name.

    Where `charts` is given, Helm charts in directories are added to it, and of their files only those of `crds/` are given: the others are templates
    and what belongs to them.
    """
    taken = False
    for path in paths:
        if str(path) == "-":
            yield InputFile(path, problem="was specified twice; specify - once" if taken else "")
            taken = True
            continue
        try:
            found = _manifests_in(path) if path.is_dir() else None
        except OSError as error:
            yield InputFile(path, problem=_unreadable(error))
            continue
        if found is None:
            yield InputFile(path)
        elif not found:
            yield InputFile(path, problem=f"is a directory without files that end in {', '.join(_SUFFIXES)}")
        else:
            plain = found if charts is None else _without_charts(path, found, charts)
            yield from (InputFile(one, named=False) for one in plain)


def _manifests_in(directory: Path) -> list[Path]:
    next(directory.iterdir(), None)  # which says what `rglob` passes over: that it may not be read
    return [one for one in sorted(directory.rglob("*")) if one.suffix in _SUFFIXES and one.is_file()]


def _without_charts(directory: Path, files: Iterable[Path], charts: dict[Path, None]) -> Iterator[Path]:
    """A chart in a chart is part of it. The directory itself may be the templates of one."""
    if directory.name == "templates" and _is_chart(directory.parent):
        charts[directory.parent] = None
        return
    known: dict[Path, bool] = {}
    for file in files:
        around = [one for one in reversed(file.parents) if one == directory or directory in one.parents]
        for one in around:
            if one not in known:
                known[one] = _is_chart(one)
        chart = next((one for one in around if known[one]), None)
        if chart is None or "crds" in file.relative_to(chart).parts[:-1]:
            yield file
        if chart is not None:
            charts[chart] = None


def _is_chart(directory: Path) -> bool:
    return (directory / "Chart.yaml").is_file() and (directory / "templates").is_dir()


def _unreadable(error: Exception) -> str:
    return Said(f"cannot be read: {getattr(error, 'strerror', None) or error}; check the path and its permissions")


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-16" if data.startswith(_UTF16) else "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def objects_in(paths: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of these files, with the name of its file; objects of lists one by one.

    Raises:
        InputError: a file cannot be read, or holds something that is no object.
    """
    for file in inputs(paths):
        for one in file.objects():
            if not is_object(one):
                raise InputError(file.name, NO_OBJECT)
            yield file.name, one


NO_OBJECT: Final = Said("contains a document that is not a Kubernetes object; apiVersion and kind are required")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it says what it is, as every object of Kubernetes does."""
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) and value[key] for key in ("apiVersion", "kind")
    )


def documents(data: bytes, *, is_yaml: bool) -> Iterator[object]:
    """Every document of a text; JSON that is not said to be YAML is read as JSON.

    Raises:
        YamlDocumentError: at the point from which nothing can be read.
    """
    if data[:64].lstrip()[:1] == b"{" and not is_yaml:
        try:
            yield jsontext.decode_trimmed(jsontext.decoder(object), data)[0]
        except msgspec.DecodeError as error:
            raise YamlDocumentError(f"is not valid JSON: {error}; write it with `kubectl get -o json`") from None
        return
    yield from yamltext.documents(data)


def flattened(document: object) -> Iterator[object]:
    """A document, or the objects of a list one by one, also where a list is in a list."""
    waiting: list[Iterator[object]] = [iter((document,))]
    while waiting:
        one = next(waiting[-1], _END)
        items = items_in(one)
        if one is _END:
            waiting.pop()
        elif items is None:
            yield one
        else:
            waiting.append(iter(items))


_END: Final = object()


def items_in(document: object) -> list[Any] | None:
    """The objects of a list, each with its kind, which the API server leaves out in typed lists; None for what is no list."""
    if not isinstance(document, dict) or "items" not in document or not str(document.get("kind")).endswith("List"):
        return None
    items = document["items"] or []  # Go writes null for none
    if not isinstance(items, list):
        return None
    kind = str(document["kind"]).removesuffix("List")
    known = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
    return [{**known, **one} if isinstance(one, dict) else one for one in items]


def is_shallow(value: object) -> bool:
    """Whether nothing in a value is nested deeper than `MAX_DEPTH` levels: JSON may be, up to `jsontext.MAX_DEPTH` and a few hundred more."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


_OTHER: Final = "!other"


class _Dumper(yaml.SafeDumper):
    """Without anchors, and with lists indented under their key, as manifests usually are."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - yaml's signature
        super().increase_indent(flow=flow, indentless=False)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Also in quotes: what kubectl would take for a number or a boolean, but PyYAML for text."""
        found: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_bare = kind is yaml.ScalarNode and implicit[0] and found == TEXT
        return _OTHER if is_bare and not isinstance(scalar(value), str) else found


def plain_yaml(document: Document) -> str:
    """The YAML of one document as manifests usually are, without a header."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
