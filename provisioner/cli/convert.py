"""`dovetail convert`: manifests of old API versions as v1, offline. Everything that was decided is said, and nothing is written where something is wrong."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from provisioner.apis import names
from provisioner.apis.conversion import alpha
from provisioner.apis.conversion.beta import KEPT_BETA, KEPT_V1, ConversionError, to_v1
from provisioner.apis.conversion.definitions import BETA, NODE_TEMPLATE, PROVISIONER, V1
from provisioner.apis.openapi import Violation, child, defaulted, definition_of, name_of, violations
from provisioner.cli import flags
from provisioner.cli.documents import InputError, is_shallow, objects_in, plain_yaml
from provisioner.values.errors import ExitStatus
from provisioner.values.message import Said
from provisioner.values.printable import one_line
from provisioner.values.yamltext import TOO_DEEP

MAX_DOCUMENTS: Final = 10_000
_OF_THE_SERVER: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_GROUPS: Final = frozenset({"karpenter.sh", "karpenter.k8s.aws"})
_ONLY_OF_PROVISIONERS: Final = (
    f"only nodes of NodePools made from a Provisioner have this label; use {names.NODEPOOL_LABEL}"
)


@dataclass
class ConvertResult:
    """What became of all files.

    Attributes:
        objects: to be written, in order.
        notes: what was decided, a line each.
        errors: what cannot be converted, a line each.
    """

    objects: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def converted(given: Iterable[tuple[str, Mapping[str, Any]]], cluster: str = "") -> ConvertResult:
    """The objects of some files at v1; those of kinds that are not ours as they are.

    Args:
        given: name of the file and object.
        cluster: name of the cluster, for Provisioners that select nothing; "" where it is not known.
    """
    whole = list(given)
    templates = {name_of(one): one for _, one in whole if _is(one, NODE_TEMPLATE.api_version, NODE_TEMPLATE.kind)}
    result = ConvertResult()
    for file, one in whole:
        label = f"{file}: {one.get('kind')}/{name_of(one)}"
        objects, notes, errors = _converted(one, templates, cluster)
        result.objects += objects
        result.notes += [f"{label}: {note}" for note in notes]
        result.errors += [f"{label}: {error}" for error in errors]
    return result


_Found = tuple[list[dict[str, Any]], list[Violation], list[Violation]]


def _converted(one: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]], cluster: str) -> _Found:
    api_version, kind = str(one.get("apiVersion")), str(one.get("kind"))
    bare = _bare(one)
    if kind in BETA and api_version == BETA[kind].api_version:
        return _of_beta(kind, bare)
    if _is(one, PROVISIONER.api_version, PROVISIONER.kind):
        found = alpha.provisioner(bare, templates, cluster)
        return list(found.objects), list(found.decisions), list(found.errors)
    if _is(one, NODE_TEMPLATE.api_version, NODE_TEMPLATE.kind):
        found = alpha.template(bare, cluster)
        return list(found.objects), list(found.decisions), list(found.errors)
    if (definition := definition_of(api_version, kind)) is not None:
        wrong = violations(definition, defaulted(definition, bare))
        return [] if wrong else [bare], [], wrong
    if api_version.partition("/")[0] in _GROUPS:
        return [], [], [Violation("apiVersion", f'"{api_version}" of {kind} has no successor')]
    return [dict(one)], list(_former_names(one)), []


def _of_beta(kind: str, given: dict[str, Any]) -> _Found:
    whole = defaulted(BETA[kind], given)
    if wrong := violations(BETA[kind], whole):
        return [], [], wrong
    try:
        made = to_v1(whole)
    except ConversionError as error:
        return [], [], [Violation("", str(error))]
    if wrong := violations(V1[kind], made):
        return [], [], wrong
    metadata = dict(made["metadata"])
    annotations = {
        key: value for key, value in metadata.pop("annotations", {}).items() if key not in (KEPT_BETA, KEPT_V1)
    }
    made["metadata"] = {**metadata, **({"annotations": annotations} if annotations else {})}
    notes = [
        Violation("apiVersion", f"became {V1[kind].api_version}; defaults of {BETA[kind].api_version} are written out")
    ]
    if names.KUBELET_ANNOTATION in annotations:
        place = "spec.template.spec.kubelet" if kind == "NodePool" else "spec.kubelet"
        notes.append(
            Violation(
                place,
                f"became the annotation {names.KUBELET_ANNOTATION}; nodes get it from there. Move it to spec.kubelet of an EC2NodeClass",
            )
        )
    if kind == "EC2NodeClass" and "spec" in whole and not whole["spec"].get("amiSelectorTerms"):
        notes.append(
            Violation(
                "spec.amiFamily",
                f"became amiSelectorTerms with the alias {made['spec']['amiSelectorTerms'][0]['alias']}",
            )
        )
    return [made], notes, []


def _bare(one: Mapping[str, Any]) -> dict[str, Any]:
    """The object without what only a server writes."""
    kept = {key: value for key, value in one.items() if key != "status"}
    if isinstance(metadata := kept.get("metadata"), dict):
        metadata = {key: value for key, value in metadata.items() if key not in _OF_THE_SERVER}
        if isinstance(annotations := metadata.get("annotations"), dict):
            metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
        kept["metadata"] = metadata
    return kept


def _former_names(one: Any, path: str = "") -> Iterator[Violation]:
    """Where pods select nodes by a label that only nodes of a former Provisioner have, or ask by annotations that nothing heeds any more."""
    if isinstance(one, Mapping):
        if one.get("key") == names.PROVISIONER_NAME and "operator" in one:
            yield Violation(child(path, "key"), _ONLY_OF_PROVISIONERS)
        for key, value in one.items():
            where = child(path, str(key))
            if key == "nodeSelector" and isinstance(value, Mapping) and names.PROVISIONER_NAME in value:
                yield Violation(f"{where}[{names.PROVISIONER_NAME}]", _ONLY_OF_PROVISIONERS)
            elif key == "annotations" and isinstance(value, Mapping):
                for former in (names.DO_NOT_EVICT, names.DO_NOT_CONSOLIDATE):
                    if value.get(former) == "true":
                        text = Said(f"has no effect at v1; use {names.DO_NOT_DISRUPT}")
                        yield Violation(f"{where}[{former}]", text)
            elif key != "tolerations":  # whose keys are those of taints
                yield from _former_names(value, where)
    elif isinstance(one, list):
        for index, value in enumerate(one):
            yield from _former_names(value, f"{path}[{index}]")


def _is(one: Mapping[str, Any], api_version: str, kind: str) -> bool:
    return (one.get("apiVersion"), one.get("kind")) == (api_version, kind)


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of some files; those of lists one by one.

    Raises:
        InputError: a file cannot be read, or holds something else.
    """
    for count, (name, one) in enumerate(objects_in(paths), 1):
        if count > MAX_DOCUMENTS:
            raise InputError(name, f"exceeds the limit of {MAX_DOCUMENTS:,} objects; convert fewer files at a time")
        if not is_shallow(one):
            raise InputError(name, TOO_DEEP)
        yield name, one


@click.command(
    name="convert",
    help="""Rewrite manifests of old API versions as v1 (NodePool, NodeClaim, EC2NodeClass, Provisioner, AWSNodeTemplate), without a cluster.

    The result is written to standard output, and every decision to standard error. If anything cannot be converted, nothing is
    written, each problem is named with its field, and the exit status is 1. Objects of other kinds are copied unchanged.
    """,
)
@flags.files(required=True)
@flags.output("yaml")
@click.option(
    "--cluster-name",
    default="",
    metavar="NAME",
    help="Name of the cluster, for Provisioners without a selector of subnets or security groups.",
)
@click.pass_context
def command(context: click.Context, files: tuple[Path, ...], output: str, cluster_name: str) -> None:
    """See `dovetail convert --help`."""
    result = converted(read(files), cluster_name)
    for note in result.notes:
        click.echo(one_line(note), err=True)
    for error in result.errors:
        click.echo(f"error: {one_line(error)}", err=True)
    if result.errors:
        context.exit(ExitStatus.FOUND)
    if output == flags.JSON:
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": result.objects}, indent=2))
        return
    click.echo("---\n".join(plain_yaml(one) for one in result.objects), nl=False)
