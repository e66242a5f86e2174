"""`dovetail lint`: everything that is wrong, or will surprise, about NodePools, NodeClaims, NodeOverlays and node classes in files; offline."""

import contextlib
import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click
import msgspec

from provisioner.apis import advice, ec2, karpenter
from provisioner.apis.conversion.definitions import BETA
from provisioner.apis.crds import DEFINITIONS, Definition
from provisioner.apis.karpenter import NodePool
from provisioner.apis.names import NODEPOOL_LABEL, WELL_KNOWN_LABELS
from provisioner.apis.openapi import Violation, defaulted, definition_of, did_you_mean, violations
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.verdicts import among_overlays, missing_class, reference_of, well_known_of
from provisioner.cli.documents import items_in
from provisioner.ec2 import labels
from provisioner.node_classes import NODE_CLASSES, verdict
from provisioner.values.printable import counted, one_line
from provisioner.values.spelling import closest
from provisioner.values.yamltext import YamlDocumentError, placed

ERROR: Final = "error"
WARNING: Final = "warning"

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_NODES: Final = 100_000
_IN_ITEM: Final = re.compile(r"items\[([0-9]{1,6})\]\.?(.*)", re.DOTALL)
"""The path of something in an object of a List."""
_SUFFIXES: Final = (".yaml", ".yml", ".json")

_REPLACED: Final = {
    "Provisioner": f"a NodePool ({karpenter.API_VERSION})",
    "AWSNodeTemplate": f"an EC2NodeClass ({ec2.API_VERSION})",
    "Machine": f"a NodeClaim ({karpenter.API_VERSION})",
}
_REQUIREMENT_KEY: Final = re.compile(r"spec\.(?P<template>template\.spec\.)?requirements\[(?P<index>[0-9]+)\]\.key")
_MOVED: Final = {"spec.template.spec.kubelet": "set spec.kubelet of the EC2NodeClass instead"}
_WELL_KNOWN: Final = WELL_KNOWN_LABELS.union(*NODE_CLASSES.values())
_NEVER_REQUIRED: Final = frozenset({NODEPOOL_LABEL})
_ALIKE: Final = 0.85
"""Labels of one domain are much alike whatever they mean."""
_CONVERT: Final = "; `dovetail convert` rewrites it"
_OLD_GROUPS: Final = frozenset({"karpenter.sh", labels.GROUP})


@dataclasses.dataclass(frozen=True, slots=True)
class LintFinding:
    """One line of the answer.

    Attributes:
        line: of the field, or the nearest that there is; from 1.
        object: kind and name, such as NodePool/general; "" where the file itself is the matter.
        path: of the field, "" for the whole object.
        message: what is wrong, and what to do.
    """

    file: str
    line: int
    severity: str
    object: str
    path: str
    message: str

    def __str__(self) -> str:
        subject = ": ".join(part for part in (self.object, self.path) if part)
        return one_line(f"{self.file}:{self.line}: {self.severity}: {subject}{': ' if subject else ''}{self.message}")


@dataclasses.dataclass(frozen=True, slots=True)
class LintItem:
    """One object as it stands in a file.

    Attributes:
        lines: the line of every field, by its path; "" is the object's own.
        repeated: paths of keys that stand twice in their mapping.
    """

    file: str
    document: Any
    lines: Mapping[str, int]
    repeated: tuple[str, ...] = ()

    def line(self, path: str) -> int:
        """Of this field, or of the nearest one around it that is there."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class LintReport:
    """All that was found.

    Attributes:
        findings: by file and line.
        checked: objects of our kinds.
        skipped: objects of other kinds.
    """

    findings: tuple[LintFinding, ...]
    checked: int
    skipped: int

    def count(self, severity: str) -> int:
        """Findings of this severity."""
        return sum(one.severity == severity for one in self.findings)


# --- reading --------------------------------------------------------------------------------------------------------


def items_of(file: str, text: bytes) -> Iterator[LintItem]:
    """Every object in a file; those of a List one by one.

    Raises:
        YamlDocumentError: it is no YAML, or larger or deeper than what is read.
    """
    if len(text) > MAX_FILE_BYTES:
        raise YamlDocumentError(f"has more than {MAX_FILE_BYTES} bytes; split the file")
    for one in placed(text, MAX_NODES):
        yield from _items(LintItem(file, one.value, one.lines, one.repeated))


def _items(item: LintItem) -> Iterator[LintItem]:
    items = items_in(item.document)
    if items is None:
        yield item
        return
    lines: dict[int, dict[str, int]] = {}
    repeated: dict[int, list[str]] = {}
    for path, line in item.lines.items():
        if (found := _IN_ITEM.fullmatch(path)) is not None:
            lines.setdefault(int(found[1]), {})[found[2]] = line
    for path in item.repeated:
        if (found := _IN_ITEM.fullmatch(path)) is not None and found[2]:
            repeated.setdefault(int(found[1]), []).append(found[2])
    for position, one in enumerate(items):
        yield LintItem(item.file, one, lines.get(position, {}), tuple(repeated.get(position, ())))


# --- checking -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    item: LintItem
    definition: Definition
    document: Mapping[str, Any]
    name: str

    @property
    def label(self) -> str:
        return f"{self.definition.kind}/{self.name}"


def report_on(items: Iterable[LintItem]) -> LintReport:
    """What is to be said about these objects, each by itself and all together."""
    findings: list[LintFinding] = []
    checked: list[_Checked] = []
    skipped = 0
    for item in items:
        document = item.document
        if not isinstance(document, Mapping):
            findings.append(_finding(item, ERROR, "", Violation("", "is not a Kubernetes object")))
            continue
        definition = definition_of(str(document.get("apiVersion", "")), str(document.get("kind", "")))
        if definition is None:
            problem = _foreign(document)
            skipped += not problem
            findings += [_finding(item, ERROR, "", problem)] if problem else []
            continue
        metadata = document.get("metadata")
        name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, Mapping) else ""
        checked.append(_Checked(item, definition, defaulted(definition, document), str(name or "")))
    decoded: list[tuple[_Checked, msgspec.Struct]] = []
    for one in checked:
        errors = [_hinted(each, one.document) for each in violations(one.definition, one.document)]
        errors += [Violation(path, "is set more than once") for path in one.item.repeated]
        warnings: list[Violation] = []
        value = _decoded(one, errors)
        if value is not None:
            decoded += [] if errors else [(one, value)]
            said = verdict(value)
            errors += _others(said.errors, errors)
            warnings += _others(said.warnings, errors)
        findings += (_finding(one.item, ERROR, one.label, each) for each in errors)
        findings += (_finding(one.item, WARNING, one.label, each) for each in warnings)
    findings += _together(checked, decoded)
    findings.sort(key=lambda each: (each.file, each.line, each.severity, each.path, each.message))
    return LintReport(tuple(dict.fromkeys(findings)), len(checked), skipped)


def _finding(item: LintItem, severity: str, label: str, violation: Violation) -> LintFinding:
    return LintFinding(item.file, item.line(violation.path), severity, label, violation.path, violation.message)


def _foreign(document: Mapping[str, Any]) -> Violation | None:
    """What is wrong with an object that is meant for us and is none of our kinds; None for all others."""
    version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
    if not version or not kind:
        return Violation("apiVersion" if not version else "kind", "is required")
    group = version.partition("/")[0]
    ours = {one.group for one in DEFINITIONS if one.group != "autoscaling.x-k8s.io"}
    same = next((one for one in DEFINITIONS if one.kind == kind and group in ours), None)
    if same is not None:
        is_old = kind in BETA and version == BETA[kind].api_version
        return Violation(
            "apiVersion", f'"{version}" is not served for {kind}; use {same.api_version}{_CONVERT * is_old}'
        )
    if group in _OLD_GROUPS and kind in _REPLACED:
        text = (
            f'"{kind}" ({version}) is no longer served; use {_REPLACED[kind]} instead{_CONVERT * (kind != "Machine")}'
        )
        return Violation("kind", text)
    if group in ours:
        return Violation(
            "kind", f'"{kind}" is not a kind of {version}{did_you_mean(kind, (one.kind for one in DEFINITIONS))}'
        )
    close = did_you_mean(group, ours) if "karpenter" in group else ""
    return Violation("apiVersion", f'"{group}" is not an API group of Dovetail{close}') if close else None


def _hinted(violation: Violation, document: Mapping[str, Any]) -> Violation:
    """With what one kind of a definition cannot say: where a field went, or which label the key of a requirement seems to mean."""
    if place := _MOVED.get(violation.path):
        return Violation(violation.path, f"{violation.message}; {place}")
    found = _REQUIREMENT_KEY.fullmatch(violation.path)
    if found is None:
        return violation
    spec = document["spec"]["template"]["spec"] if found["template"] else document["spec"]
    key = str(spec["requirements"][int(found["index"])].get("key", ""))
    close = "" if key in _WELL_KNOWN else closest(key, sorted(_labels_of(spec) - _NEVER_REQUIRED), alike=_ALIKE)
    return Violation(violation.path, f"{violation.message}; did you mean {close}?") if close else violation


def _labels_of(spec: Mapping[str, Any]) -> frozenset[str]:
    """The labels that nodes with this spec may have, by its node class; those of every provider where it names none that is ours."""
    reference = spec.get("nodeClassRef")
    named = (reference.get("group"), reference.get("kind")) if isinstance(reference, Mapping) else None
    return next((known for node_class, known in NODE_CLASSES.items() if node_class == named), _WELL_KNOWN)


def _decoded(one: _Checked, errors: list[Violation]) -> msgspec.Struct | None:
    try:
        return msgspec.convert(one.document, one.definition.type)
    except msgspec.ValidationError as error:
        errors += [] if errors else [Violation("", str(error))]
        return None


def _others(found: Iterable[Violation], errors: list[Violation]) -> list[Violation]:
    """Those about fields of which nothing is said by these errors, other than of all fields together."""
    said = [one.path for one in errors if one.path not in ("", "spec")]
    return [one for one in found if not any(one.path.startswith(path) or path.startswith(one.path) for path in said)]


def _together(checked: list[_Checked], decoded: list[tuple[_Checked, msgspec.Struct]]) -> Iterator[LintFinding]:
    """What objects say about each other."""
    first: dict[tuple[str, str], _Checked] = {}
    for one in checked:
        metadata = one.document["metadata"] if isinstance(one.document.get("metadata"), Mapping) else {}
        key = (one.definition.kind, f"{metadata.get('namespace', '')}/{one.name}")
        before = first.setdefault(key, one)
        if before is not one and metadata.get("name"):
            where = f"{before.item.file}:{before.item.line('')}"
            yield _finding(
                one.item,
                WARNING,
                one.label,
                Violation(
                    "metadata.name", f"is defined twice, first at {where}; the one that is applied last takes effect"
                ),
            )
    classes: dict[str, set[str]] = {}
    for one in checked:
        classes.setdefault(one.definition.kind, set()).add(one.name)
    for one, value in decoded:
        reference = reference_of(value)
        if reference is not None and (there := classes.get(reference[1].kind)):  # others may be in the cluster
            missing = missing_class(value, there, "is not in these files")
            yield from (_finding(one.item, WARNING, one.label, each) for each in missing)
    overlays = [(one, value) for one, value in decoded if isinstance(value, NodeOverlay)]
    for one, value in overlays:
        said = among_overlays(value, (other for _, other in overlays))
        for severity, told in ((ERROR, said.errors), (WARNING, said.warnings)):
            yield from (_finding(one.item, severity, one.label, each) for each in told)
    by_name = {value.name: (one, value) for one, value in decoded if isinstance(value, NodePool)}
    known = frozenset[str]().union(*(well_known_of(pool, NODE_CLASSES) for _, pool in by_name.values()))
    for name, found in advice.fleet_advice([pool for _, pool in by_name.values()], known).items():
        item, label = by_name[name][0].item, by_name[name][0].label
        yield from (_finding(item, WARNING, label, each) for each in found)


# --- the command ----------------------------------------------------------------------------------------------------


def files_in(paths: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
    """The files themselves, and what lies in directories and looks like a manifest, by name."""
    for path in paths:
        if path.is_dir():
            yield from (one for one in sorted(path.rglob("*")) if one.suffix in _SUFFIXES and one.is_file())
        else:
            yield path


def lint(paths: Iterable[pathlib.Path]) -> LintReport:
    """The report on all objects in these files and directories; `-` is standard input."""
    items: list[LintItem] = []
    unreadable: list[LintFinding] = []
    for path in files_in(paths):
        standard = str(path) == "-"
        name = "<stdin>" if standard else str(path)
        try:
            with contextlib.nullcontext(sys.stdin.buffer) if standard else path.open("rb") as stream:
                text = stream.read(MAX_FILE_BYTES + 1)
            items += items_of(name, text)
        except YamlDocumentError as error:
            unreadable.append(LintFinding(name, max(1, error.line), ERROR, "", "", error.problem))
        except OSError as error:
            unreadable.append(LintFinding(name, 1, ERROR, "", "", f"cannot be read: {error.strerror}"))
    report = report_on(items)
    return dataclasses.replace(report, findings=(*unreadable, *report.findings))


@click.command(
    name="lint",
    help="""Check NodePools, NodeClaims, NodeOverlays and node classes in files and directories, without a cluster.

    All violations are reported at once: unknown fields, the schema, the CEL rules, and what the controllers reject later. Warnings report
    settings that are valid but probably not intended. The exit status is 1 if there is an error.
    """,
)
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=pathlib.Path, exists=True, allow_dash=True),
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@click.pass_context
def command(context: click.Context, files: tuple[pathlib.Path, ...], output: str) -> None:
    """See `dovetail lint --help`."""
    report = lint(files)
    errors, warnings = report.count(ERROR), report.count(WARNING)
    if output == "json":
        body = {
            "errors": errors,
            "warnings": warnings,
            "checked": report.checked,
            "skipped": report.skipped,
            "findings": [dataclasses.asdict(one) for one in report.findings],
        }
        click.echo(json.dumps(body, indent=2))
    else:
        for one in report.findings:
            click.echo(str(one))
        rest = f"; {counted(report.skipped, 'object')} of other kinds not checked" if report.skipped else ""
        click.echo(
            f"{counted(report.checked, 'object')} checked: {counted(errors, 'error')}, {counted(warnings, 'warning')}{rest}"
        )
    context.exit(1 if errors else 0)
