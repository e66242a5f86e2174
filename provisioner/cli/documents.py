"""Files to plain values: YAML and JSON as kubectl reads and writes them, bounded in size."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from provisioner.apis.crds import Document
from provisioner.values import jsontext, yamltext
from provisioner.values.yamltext import MAX_DEPTH, TEXT, YamlDocumentError, scalar

MAX_BYTES: Final = 256 * 2**20
"""Of one file: `kubectl get pods -A -o yaml` of 40,000 pods."""


def content(path: Path) -> bytes:
    """What a file holds, or the standard input for "-": one byte more than may be read, at most.

    Raises:
        OSError: it cannot be read.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def documents(path: Path, data: bytes) -> Iterator[object]:
    """Every document of one file in order, as dicts, lists, texts and numbers; empty ones are left out.

    Timestamps stay text. Values that aliases repeat are the same object; nobody may change it.

    Raises:
        YamlDocumentError: at the point from which nothing can be read; what came before is good.

    Cost: about 10 s a million lines of YAML, a hundredth of that for JSON.
    """
    if len(data) > MAX_BYTES:
        raise YamlDocumentError(
            f"is {len(data) >> 20} MiB, over the limit of {MAX_BYTES >> 20} MiB; split it into several files"
        )
    if data[:64].lstrip()[:1] == b"{" and path.suffix not in {".yaml", ".yml"}:
        try:
            yield jsontext.decode_trimmed(jsontext.decoder(object), data)[0]
        except msgspec.DecodeError as error:
            raise YamlDocumentError(f"is no JSON: {error}; write it with `kubectl get -o json`") from None
        return
    yield from yamltext.documents(data)


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
