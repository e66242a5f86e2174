"""`dovetail lint`: everything that is wrong, or will surprise, about NodePools, NodeClaims, NodeOverlays and node classes in files; offline."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click
import msgspec

from provisioner.apis import advice, ec2, karpenter
from provisioner.apis.conversion.definitions import BETA
from provisioner.apis.crds import DEFINITIONS, Definition
from provisioner.apis.karpenter import NodePool
from provisioner.apis.names import NODEPOOL_LABEL, WELL_KNOWN_LABELS
from provisioner.apis.openapi import Violation, defaulted, definition_of, did_you_mean, name_of, violations
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.verdicts import among_overlays, missing_class, reference_of, well_known_of
from provisioner.cli import flags
from provisioner.cli.documents import InputError, InputFile, inputs, items_in
from provisioner.cli.own_keys import KeyFindings, key_findings
from provisioner.ec2 import labels
from provisioner.node_classes import NODE_CLASSES, verdict
from provisioner.scheduling.world import ignored_annotations
from provisioner.values.errors import ExitStatus
from provisioner.values.printable import counted, one_line
from provisioner.values.spelling import closest

ERROR: Final = "error"
WARNING: Final = "warning"

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_NODES: Final = 100_000
_IN_ITEM: Final = re.compile(r"items\[([0-9]{1,6})\]\.?(.*)", re.DOTALL)
"""The path of something in an object of a List."""

_KEY_IN_PATH: Final = re.compile(r"\[([^\]]*[^\]0-9][^\]]*)\]")
"""A key of a mapping, as in metadata.annotations[KEY]; the places of a file join it by a dot."""

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
_OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata"})
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
        may_be_other: whether it may be no object at all: a whole document of a file that nobody named, such as a dashboard or a list of patches.
    """

    file: str
    document: Any
    lines: Mapping[str, int]
    repeated: tuple[str, ...] = ()
    may_be_other: bool = False

    def line(self, path: str) -> int:
        """Of this field, or of the nearest one around it that is there."""
        path = _KEY_IN_PATH.sub(r".\1", path)
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class LintReport:
    """All that was found.

    Attributes:
        findings: by file and line.
        checked: objects of our kinds, and those that keys of ours are for.
        skipped: all other objects.
        documents: what stands in files of directories and is no object.
        unreadable: files that cannot be read, or not from some point on.
        charts: directories of Helm charts whose templates were left out.
    """

    findings: tuple[LintFinding, ...]
    checked: int
    skipped: int
    documents: int = 0
    unreadable: int = 0
    charts: tuple[str, ...] = ()

    def count(self, severity: str) -> int:
        """Findings of this severity."""
        return sum(one.severity == severity for one in self.findings)


# --- reading --------------------------------------------------------------------------------------------------------


def items_of(file: InputFile) -> Iterator[LintItem]:
    """Every object in a file; those of a List one by one.

    Raises:
        InputError: it cannot be read, or is larger or deeper than what is read.
    """
    for one in file.placed(MAX_FILE_BYTES, MAX_NODES):
        yield from _items(LintItem(file.name, one.value, one.lines, one.repeated, may_be_other=not file.named))


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
    skipped = others = documents = 0
    for item in items:
        document = item.document
        if item.may_be_other and not _is_meant_as_object(document):
            documents += 1
            continue
        if not isinstance(document, Mapping):
            findings.append(_finding(item, ERROR, "", Violation("", "is not a Kubernetes object")))
            continue
        definition = definition_of(str(document.get("apiVersion", "")), str(document.get("kind", "")))
        keys = key_findings(document)
        if definition is None:
            problem = _foreign(document)
            others += keys.looked and not problem
            skipped += not keys.looked and not problem
            findings += [_finding(item, ERROR, "", problem)] if problem else _of_keys(item, document, keys)
            continue
        findings += _of_keys(item, document, keys)
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
            errors += _annotations(value)
        findings += (_finding(one.item, ERROR, one.label, each) for each in errors)
        findings += (_finding(one.item, WARNING, one.label, each) for each in warnings)
    findings += _together(checked, decoded)
    findings.sort(key=lambda each: (each.file, each.line, each.severity, each.path, each.message))
    return LintReport(tuple(dict.fromkeys(findings)), len(checked) + others, skipped, documents)


def _is_meant_as_object(document: object) -> bool:
    """Whether it has any field that every object has: one that lacks another of them is a mistake."""
    return isinstance(document, Mapping) and not _OF_OBJECTS.isdisjoint(document)


def _of_keys(item: LintItem, document: Mapping[str, Any], keys: KeyFindings) -> Iterator[LintFinding]:
    label = f"{document.get('kind')}/{name_of(document)}"
    yield from (_finding(item, ERROR, label, one) for one in keys.errors)
    yield from (_finding(item, WARNING, label, one) for one in keys.warnings)


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


def _annotations(value: msgspec.Struct) -> Iterator[Violation]:
    """Annotations of a NodePool that the provisioner ignores because it cannot read them."""
    for text in ignored_annotations(value).values() if isinstance(value, NodePool) else ():
        path, _, message = text.partition(": ")
        yield Violation(path, message)


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


def lint(paths: Iterable[pathlib.Path]) -> LintReport:
    """The report on all objects in these files and directories; `-` is standard input."""
    items: list[LintItem] = []
    unreadable: list[LintFinding] = []
    charts: dict[pathlib.Path, None] = {}
    for file in inputs(paths, charts):
        try:
            items += items_of(file)
        except InputError as error:
            unreadable.append(LintFinding(error.name, max(1, error.line), ERROR, "", "", error.problem))
    report = report_on(items)
    return dataclasses.replace(
        report,
        findings=(*unreadable, *report.findings),
        unreadable=len(unreadable),
        charts=tuple(map(str, charts)),
    )


@click.command(
    name="lint",
    help="""Check NodePools, NodeClaims, NodeOverlays and node classes in files and directories, without a cluster.

    All violations are reported at once: unknown fields, the schema, the CEL rules, and what the controllers reject later. Warnings report
    settings that are valid but probably not intended. Pods, workloads and Namespaces are checked for annotations and labels of Dovetail.
    Helm charts in directories are skipped, apart from their crds/: render them first, and check the output. So are documents in directories
    that are not Kubernetes objects, such as dashboards; a file that you name must contain objects.

    The exit status is 1 if there is an error, and 2 if a file cannot be read or there is nothing to check.
    """,
)
@flags.files(required=True)
@flags.output("text")
@flags.fail_on(ERROR, WARNING, default=ERROR, meaning="for errors only, or for warnings as well")
@click.pass_context
def command(context: click.Context, files: tuple[pathlib.Path, ...], output: str, fail_on: str) -> None:
    """See `dovetail lint --help`."""
    report = lint(files)
    errors, warnings = report.count(ERROR), report.count(WARNING)
    if output == flags.JSON:
        body = {
            "errors": errors,
            "warnings": warnings,
            "checked": report.checked,
            "skipped": report.skipped,
            "skippedDocuments": report.documents,
            "skippedCharts": report.charts,
            "findings": [dataclasses.asdict(one) for one in report.findings],
        }
        click.echo(json.dumps(body, indent=2))
    else:
        for one in report.findings:
            click.echo(str(one))
        for chart in report.charts:
            click.echo(one_line(f"skipped the chart {chart}: render it with helm template"))
        found = (
            f"{counted(report.checked, 'object')} checked: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
        )
        click.echo(f"{found}{_skipped(report)}")
    context.exit(_status(report, errors + warnings if fail_on == WARNING else errors))


def _skipped(report: LintReport) -> str:
    parts = []
    if report.skipped:
        kinds = "a kind" if report.skipped == 1 else "kinds"
        parts.append(f"{counted(report.skipped, 'object')} of {kinds} that lint does not check")
    if report.documents:
        what = "is not a Kubernetes object" if report.documents == 1 else "are not Kubernetes objects"
        parts.append(f"{counted(report.documents, 'document')} that {what}")
    return f"; skipped {' and '.join(parts)}" if parts else ""


def _status(report: LintReport, findings: int) -> ExitStatus:
    if report.unreadable:
        return ExitStatus.USAGE
    if findings:
        return ExitStatus.FOUND
    if not report.checked:
        click.echo("dovetail: nothing was checked; specify NodePools, node classes or workloads", err=True)
        return ExitStatus.USAGE
    return ExitStatus.DONE
