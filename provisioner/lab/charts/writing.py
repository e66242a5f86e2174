"""The files of both charts."""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from provisioner.apis.conversion.definitions import CONVERT_PATH
from provisioner.apis.conversion.definitions import documents as old_versions
from provisioner.apis.crds import OFFERED, Definition
from provisioner.apis.crds import documents as definitions
from provisioner.cli.documents import plain_yaml
from provisioner.lab.charts import karpenter, naming
from provisioner.lab.charts.objects import HEADER, template
from provisioner.lab.charts.rows import SETTINGS, SWITCH, TEXT, WORDS, Row, table
from provisioner.lab.charts.sheet import Sheet
from provisioner.lab.charts.tree import Document, Source, Tree, read

CHARTS: Final = pathlib.Path("charts")
MAIN: Final = CHARTS / "dovetail"
DEFINITIONS: Final = CHARTS / "dovetail-crd"

_GENERATED: Final = "{{- /* Generated from provisioner/apis by `make manifests`; do not edit. */ -}}\n"
_DEFINITION_ROWS: Final = (
    Row("additionalLabels", {}, WORDS, "Labels of every definition."),
    Row("additionalAnnotations", {}, WORDS, "Annotations of every definition."),
    Row(
        "provisioningRequests.enabled",
        False,
        SWITCH,
        "ProvisioningRequest of Cluster Autoscaler, in clusters that lack its definition; one that is not of this release stays as it is.",
    ),
    Row("conversion.enabled", False, SWITCH, "Old API versions beside v1: set it in the chart dovetail, too."),
    Row(
        "conversion.namespace",
        "",
        TEXT,
        "Namespace of the chart dovetail, whose webhook converts; if empty, that of this release.",
    ),
)


def files(manifests: pathlib.Path, made: Mapping[pathlib.Path, str]) -> dict[pathlib.Path, str]:
    """What the generated files hold, by path below `manifests`.

    Args:
        manifests: the tree.
        made: files of it that are about to be written.

    Raises:
        ComponentError: a component does something that the charts have no place for.
    """
    tree = Tree(manifests, made)
    sources = read(tree)
    rows = table(sources)
    verdicts = karpenter.verdicts()
    found = {MAIN / "templates" / path: text for path, text in _templates(sources).items()}
    found[MAIN / "templates" / "karpenter-values.yaml"] = karpenter.refusals(verdicts)
    found[MAIN / "values.yaml"] = _values(rows)
    found[MAIN / "values.schema.json"] = _schema(rows, karpenter.accepted(verdicts))
    found[naming.COMPONENT / "kustomization.yaml"] = naming.component(sources)
    found |= {DEFINITIONS / "templates" / name: text for name, text in _definitions().items()}
    found[DEFINITIONS / "values.yaml"] = _values(_DEFINITION_ROWS)
    found[DEFINITIONS / "values.schema.json"] = _schema(_DEFINITION_ROWS, ())
    return found


def left_over(manifests: pathlib.Path, wanted: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Files of the charts that were generated once, and are no more."""
    there = [path for path in (manifests / CHARTS).rglob("*") if path.is_file() and _is_made(path)]
    return sorted({path.relative_to(manifests) for path in there} - set(wanted))


def _is_made(path: pathlib.Path) -> bool:
    return "by `make manifests`" in path.read_text(encoding="utf-8").partition("\n")[0]


def _templates(sources: Sequence[Source]) -> dict[pathlib.Path, str]:
    found: dict[pathlib.Path, str] = {}
    for one in sources:
        text = template(one)
        if one.key == ("ServiceAccount", "dovetail-provisioner"):
            text = f"{{{{- if .Values.serviceAccount.create }}}}\n{text}{{{{- end }}}}\n"
        found.setdefault(one.path, HEADER % one.path)
        found[one.path] += text
    return found


# --- definitions


def _definitions() -> dict[str, str]:
    plain = definitions()
    hook = {"service": {"name": "dovetail-webhook", "namespace": "CONVERTED", "path": CONVERT_PATH, "port": 443}}
    old = old_versions(hook)
    found = {OFFERED.filename: _GENERATED + _offered(OFFERED)}
    for name in sorted(plain.keys() | old.keys()):
        text = _definition(plain[name]) if name in plain else ""
        if name in old:
            otherwise = f"{{{{- else }}}}\n{text}" if text else ""
            text = f"{{{{- if .Values.conversion.enabled }}}}\n{_definition(old[name])}{otherwise}{{{{- end }}}}\n"
        found[name] = _GENERATED + text
    return found


def _offered(definition: Definition) -> str:
    """Of somebody else's kind: where it is wanted, and nobody else has written it. Without a cluster (`helm template`) nobody has."""
    name = f"{definition.plural}.{definition.group}"
    there = f'lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "{name}"'
    owner = 'dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there'
    return (
        f"{{{{- $there := {there} }}}}\n"
        f"{{{{- if and .Values.provisioningRequests.enabled (or (not $there) (eq ({owner}) .Release.Name)) }}}}\n"
        f"{_definition(definition.document())}{{{{- end }}}}\n"
    )


def _definition(document: Document) -> str:
    sheet = Sheet()
    metadata = document["metadata"]
    metadata["labels"] = {sheet.block('{{- include "dovetail-crd.labels" . | nindent «0» }}'): None}
    more = "{{- with .Values.additionalAnnotations }}\n{{- toYaml . | nindent «0» }}\n{{- end }}"
    metadata["annotations"][sheet.block(more)] = None
    return "---\n" + sheet.text(document).replace(
        "CONVERTED", "{{ .Values.conversion.namespace | default .Release.Namespace | quote }}"
    )


# --- values.yaml and its schema


def _values(rows: Iterable[Row]) -> str:
    lines = [
        "# Generated by `make manifests` from provisioner/lab/charts/rows.py; do not edit. Set your own values with -f or --set."
    ]
    open_: list[str] = []
    for row in rows:
        *parents, key = row.path.split(".")
        common = 0
        while common < min(len(open_), len(parents)) and open_[common] == parents[common]:
            common += 1
        for depth in range(common, len(parents)):
            lines += ([""] if depth == 0 else []) + [f"{'  ' * depth}{parents[depth]}:"]
        if not parents:
            lines.append("")
        open_ = parents
        indent = "  " * len(parents)
        lines += [f"{indent}# {row.doc}"] if row.doc else []
        lines += [f"{indent}{line}" for line in plain_yaml({key: row.default}).rstrip().splitlines()]
        if row.path == "settings":
            lines += _commented_settings()
    return "\n".join(lines) + "\n"


def _commented_settings() -> Iterable[str]:
    for one in SETTINGS:
        yield f"  # {one.doc}"
        shown = one.default
        if one.gates:
            given = dict(pair.split("=") for pair in one.default.split(","))
            shown = "{" + ", ".join(f"{key}: {given[name]}" for key, name in one.gates.items()) + "}"
        elif one.kind == "LIST":
            shown = "{" + one.default.replace("=", ": ").replace(",", ", ") + "}"
        elif one.kind == "YAML":
            shown = "{}"
        yield f"  # {one.key}: {shown or json.dumps('')}"


def _schema(rows: Iterable[Row], accepted: Iterable[str]) -> str:
    root: Document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {"global": {"type": "object"}},  # Helm's own
    }
    for row in rows:
        _place(root, row.path, {**row.schema, **({"description": row.doc} if row.doc else {})})
    for path in accepted:
        _place(root, path, {})
    return json.dumps(root, indent=2) + "\n"


def _place(root: Document, path: str, schema: Mapping[str, Any]) -> None:
    """Put the schema of a value into that of its parents; what is there already stays."""
    *parents, key = path.split(".")
    found = root
    for name in parents:
        found = found["properties"].setdefault(
            name, {"type": "object", "additionalProperties": False, "properties": {}}
        )
        if "properties" not in found:
            return  # a parent that takes anything
    found["properties"].setdefault(key, dict(schema))
