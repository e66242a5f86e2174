"""Terraform's files as values: blocks by kind and name, and data sources `aws_iam_policy_document` as the policies that they make."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hcl2

_REFERENCE = re.compile(r"\$\{([^}]+)\}")


@functools.cache
def load(directory: Path) -> dict[str, list[Any]]:
    """All blocks of a module's files by kind: `data`, `resource`, `variable`, `locals`, ..."""
    found: dict[str, list[Any]] = {}
    for path in sorted(directory.glob("*.tf")):
        for kind, blocks in plain(hcl2.loads(path.read_text(encoding="utf-8"))).items():
            found.setdefault(kind, []).extend(blocks)
    return found


def plain(parsed: Any) -> Any:
    """Without the quotes, comments and marks that the parser leaves."""
    match parsed:
        case dict():
            return {
                plain(key): plain(inner)
                for key, inner in parsed.items()
                if key not in {"__is_block__", "__comments__", "__inline_comments__"}
            }
        case list():
            return [plain(inner) for inner in parsed]
        case str() if len(parsed) > 1 and parsed.startswith('"') and parsed.endswith('"'):
            return json.loads(parsed)
        case _:
            return parsed


def named(blocks: list[Any]) -> Iterator[tuple[str, str, Any]]:
    """Type, name and body of blocks with two labels."""
    for block in blocks:
        for kind, inside in block.items():
            for name, body in inside.items():
                yield kind, name, body


def policy_documents(module: Mapping[str, list[Any]], references: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The policies of all `aws_iam_policy_document` by name; `references` are what `${...}` stands for."""
    return {
        name: _document(body, references)
        for kind, name, body in named(module["data"])
        if kind == "aws_iam_policy_document"
    }


def _document(body: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [_statement(one, references) for one in body["statement"]]}


def _statement(body: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    known = {"sid", "effect", "actions", "resources", "condition", "principals"}
    if body.keys() - known:
        raise NotImplementedError(f"{sorted(body.keys() - known)} of a statement")
    made: dict[str, Any] = {"Effect": body.get("effect", "Allow"), "Action": filled(body["actions"], references)}
    if "sid" in body:
        made["Sid"] = body["sid"]
    if "resources" in body:
        made["Resource"] = filled(body["resources"], references)
    for one in body.get("principals", ()):
        everyone = one["type"] == "*"
        made["Principal"] = "*" if everyone else {one["type"]: filled(one["identifiers"], references)}
    conditions: dict[str, dict[str, Any]] = {}
    for one in body.get("condition", ()):
        tests = conditions.setdefault(one["test"], {})
        key = filled(one["variable"], references)
        if key in tests:
            raise NotImplementedError(f"{one['test']} of {key} twice")
        tests[key] = filled(one["values"], references)
    if conditions:
        made["Condition"] = conditions
    return made


def filled(written: Any, references: Mapping[str, str]) -> Any:
    """With every `${...}` replaced."""
    if isinstance(written, list):
        return [filled(one, references) for one in written]
    return _REFERENCE.sub(lambda found: references[found[1]], written)
