"""Kubernetes objects out of files: decoded, counted, and what is wrong with each said by file, object, field and remedy."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, kwok, names
from provisioner.apis.core import (
    AnyPodGroup,
    CSIDriver,
    CSINode,
    DaemonSet,
    LabelledNamespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.openapi import definition_of, unknown_fields
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.pods import Pod
from provisioner.apis.validation import pool_problems
from provisioner.cli.documents import InputError, inputs
from provisioner.cli.plan.workloads import KINDS, Workload, decode_workload, loose_pod
from provisioner.cloudprovider.kwok.catalogue import INSTANCE_LABELS
from provisioner.ec2 import labels
from provisioner.kube import resources
from provisioner.kube.resources import Resource
from provisioner.state.admission import Admitting
from provisioner.values.printable import one_line

DEFAULT_NAMESPACE: Final = "default"
MAX_OBJECTS: Final = 500_000
_MAX_PROBLEMS: Final = 1_000
_MAX_NOTES: Final = 20
_AT: Final = re.compile(r"^(?:ValidationError: )?(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_GOT: Final = re.compile(r"got `([a-z]+)`")
_TYPES: Final[Mapping[str, type]] = {
    "array": list,
    "bool": bool,
    "float": float,
    "int": int,
    "null": type(None),
    "object": dict,
    "str": str,
}
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class InputProblem:
    """Something in the input that is left out.

    Attributes:
        file: its path, or the cluster's name.
        object: kind, namespace and name as far as they are known; "" for the file as a whole.
        field: path inside the object; "" for all of it.
        text: what is wrong, and what to do.
    """

    file: str
    object: str
    field: str
    text: str

    @property
    def is_unread(self) -> bool:
        """Whether it is a file that cannot be read, and not an object that is left out."""
        return not self.object

    def __str__(self) -> str:
        """One line that a terminal shows as it is, whatever names there are."""
        return one_line(": ".join(part for part in (self.file, self.object, self.field, self.text) if part))


@dataclass
class PlanObjects:
    """What was read; in order.

    Attributes:
        loose: pods as somebody wrote them, not as an API server returned them.
        admitting: LimitRanges, RuntimeClasses and PriorityClasses.
        stamping_defaults: data of the webhook's ConfigMap.
        ignored: kinds that a plan does not depend on, and how many of each.
        notes: sentences about what is ignored in objects that count.
        default_namespace: of objects that name none.
    """

    pods: list[Pod] = field(default_factory=list)
    loose: list[Workload] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    pools: list[NodePool] = field(default_factory=list)
    claims: list[NodeClaim] = field(default_factory=list)
    overlays: list[NodeOverlay] = field(default_factory=list)
    classes: dict[str, EC2NodeClass] = field(default_factory=dict)
    daemon_sets: list[DaemonSet] = field(default_factory=list)
    admitting: list[Admitting] = field(default_factory=list)
    namespaces: list[LabelledNamespace] = field(default_factory=list)
    stamping_defaults: Mapping[str, str] = field(default_factory=dict)
    volumes: list[PersistentVolume] = field(default_factory=list)
    volume_claims: list[PersistentVolumeClaim] = field(default_factory=list)
    storage_classes: list[StorageClass] = field(default_factory=list)
    csi_nodes: list[CSINode] = field(default_factory=list)
    csi_drivers: list[CSIDriver] = field(default_factory=list)
    pod_groups: list[AnyPodGroup] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    problems: list[InputProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int = 0
    default_namespace: str = DEFAULT_NAMESPACE

    def read(self, *paths: Path) -> None:
        """Take every object of files and directories; what cannot be used becomes a problem, and the rest is read."""
        for file in inputs(paths):
            try:
                for document in file.objects():
                    self.take(file.name, document)
            except InputError as error:
                place = f"line {error.line}: " if error.line else ""
                self.complain(InputProblem(error.name, "", "", f"{place}{error.problem}"))

    def complain(self, problem: InputProblem) -> None:
        """Note a problem."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def add(self, file: str, kind: Resource[Any], decoded: Any) -> None:
        """Take one object of a kind that was decoded already."""
        TAKEN[kind](self, file, decoded)

    def take(self, file: str, document: object) -> None:
        """Take one object that was read already, as out of a file of that name; what cannot be used becomes a problem.

        Raises:
            InputError: there are too many.
        """
        if not isinstance(document, dict):
            text = "is not a Kubernetes object; every document needs apiVersion, kind and metadata"
            self.complain(InputProblem(file, "", "", text))
            return
        self.count += 1
        if self.count > MAX_OBJECTS:
            raise InputError(
                file, f"has more than {MAX_OBJECTS:,} objects with the files before it; leave out what is not needed"
            )
        named = _named(document)
        try:
            self._decode(file, named, document)
        except msgspec.MsgspecError as error:
            self.complain(_with_key(problem_of(file, named, error), document))
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            self.complain(
                InputProblem(
                    file,
                    named,
                    "",
                    f"cannot be read: {str(error)[:200]}; see `kubectl explain {_kind(document).lower()}`",
                )
            )

    def _decode(self, file: str, named: str, document: dict[str, Any]) -> None:
        kind, version = document.get("kind"), document.get("apiVersion")
        if not isinstance(kind, str) or not kind or not isinstance(version, str) or not version:
            missing = "kind" if not isinstance(kind, str) or not kind else "apiVersion"
            self.complain(InputProblem(file, named, missing, "is missing; every Kubernetes object has one"))
            return
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
            self.complain(InputProblem(file, named, "metadata.name", "is missing; give the object a name"))
            return
        if not metadata.get("namespace") and not _is_cluster_wide(version, kind):
            document = {**document, "metadata": {**metadata, "namespace": self.default_namespace}}
        group = version.rpartition("/")[0]
        if kind in KINDS.get(group, ()):
            self.workloads.append(decode_workload(file, named, kind, msgspec.json.encode(document)))
        elif (kind, version) == ("Pod", "v1") and not metadata.get("uid"):
            self.loose.append(loose_pod(file, named, document))
        elif (kind, version, metadata.get("namespace"), metadata.get("name")) == _STAMPING_DEFAULTS:
            self.stamping_defaults = resources.CONFIGMAPS.decode(msgspec.json.encode(document)).data
        elif (found := _KNOWN.get((version, kind))) is not None:
            self.add(file, found, found.decode(msgspec.json.encode(document)))
            if found in _WRITTEN:
                self._note_unknown(named, version, kind, document)
        elif group in {"karpenter.sh", ec2.GROUP, kwok.GROUP} and (kind, group) not in _OTHERS:
            known = ", ".join(sorted(f"{v} {k}" for v, k in _KNOWN if "karpenter" in v))
            text = f"{version} {kind} is not supported; use one of {known}, or rewrite an older version with `dovetail convert`"
            self.complain(InputProblem(file, named, "apiVersion", text))
        else:
            self.ignored[kind] += 1

    def _note_unknown(self, named: str, version: str, kind: str, document: dict[str, Any]) -> None:
        """Say which fields are ignored: a misspelt one would change the plan."""
        definition = definition_of(version, kind)
        for one in unknown_fields(definition, document) if definition is not None else ():
            if len(self.notes) < _MAX_NOTES:
                end = "" if one.message.endswith("?") else "."
                self.notes.append(f"The plan ignores {one.path} of {named}: {one.message}{end}")

    def take_pod(self, file: str, pod: Pod) -> None:
        """Take a pod, if it can be read."""
        if pod.shape.error:
            self.complain(problem_of(file, f"Pod {pod.key}", pod.shape.error))
        else:
            self.pods.append(pod)

    def take_pool(self, file: str, pool: NodePool) -> None:
        """Take a NodePool, if nothing is wrong with it."""
        problems = pool_problems(pool, names.WELL_KNOWN_LABELS | labels.WELL_KNOWN | INSTANCE_LABELS)
        for text in problems:
            path, _, rest = text.partition(": ")
            self.complain(InputProblem(file, f"NodePool {pool.name}", path if rest else "", rest or text))
        if not problems:
            self.pools.append(pool)


TAKEN: Final[Mapping[Resource[Any], Callable[[PlanObjects, str, Any], None]]] = {
    resources.PODS: PlanObjects.take_pod,
    resources.NODES: lambda found, _, one: found.nodes.append(one),
    resources.DAEMONSETS: lambda found, _, one: found.daemon_sets.append(one),
    resources.NAMESPACE_LABELS: lambda found, _, one: found.namespaces.append(one),
    resources.LIMITRANGES: lambda found, _, one: found.admitting.append(one),
    resources.RUNTIMECLASSES: lambda found, _, one: found.admitting.append(one),
    resources.PRIORITYCLASSES: lambda found, _, one: found.admitting.append(one),
    resources.PVCS: lambda found, _, one: found.volume_claims.append(one),
    resources.PVS: lambda found, _, one: found.volumes.append(one),
    resources.STORAGECLASSES: lambda found, _, one: found.storage_classes.append(one),
    resources.CSIDRIVERS: lambda found, _, one: found.csi_drivers.append(one),
    resources.CSINODES: lambda found, _, one: found.csi_nodes.append(one),
    **dict.fromkeys(resources.GROUP_KINDS.values(), lambda found, _, one: found.pod_groups.append(one)),
    resources.NODEPOOLS: PlanObjects.take_pool,
    resources.NODECLAIMS: lambda found, _, one: found.claims.append(one),
    resources.NODEOVERLAYS: lambda found, _, one: found.overlays.append(one),
    resources.EC2NODECLASSES: lambda found, _, one: found.classes.__setitem__(one.name, one),
}
"""Kinds that a plan depends on, and what is done with one object of each and the name of its file."""
_KNOWN: Final[Mapping[tuple[str, str], Resource[Any]]] = {(one.api_version, one.kind): one for one in TAKEN}
_WRITTEN: Final = frozenset({resources.NODEPOOLS, resources.EC2NODECLASSES, resources.NODEOVERLAYS})
"""Kinds of ours that people write."""
_STAMPING_DEFAULTS: Final = ("ConfigMap", "v1", names.OWN_NAMESPACE, names.DEFAULTS_CONFIGMAP)
_OTHERS: Final = {(kwok.KIND, kwok.GROUP)}


def _is_cluster_wide(version: str, kind: str) -> bool:
    found = _KNOWN.get((version, kind))
    return found is not None and not found.namespaced


def _kind(document: Mapping[str, Any]) -> str:
    return str(document.get("kind") or "object")[:63]


def _named(document: Mapping[str, Any]) -> str:
    """The object for people, whatever it is."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or "(without a name)"
    namespace = metadata.get("namespace")
    return f"{_kind(document)} {f'{namespace}/' if namespace else ''}{name}"[:200]


def _with_key(problem: InputProblem, document: object) -> InputProblem:
    """The problem with the key in its path, instead of `[...]`, of the first value of a mapping that is of the type that was got."""
    parent, got = problem.field.removesuffix("[...]"), _GOT.search(problem.text)
    if parent == problem.field or got is None:
        return problem
    value = document
    for name, number in _STEP.findall(parent):
        if name and isinstance(value, dict):
            value = value.get(name)
        elif number and isinstance(value, list) and int(number) < len(value):
            value = value[int(number)]
        else:
            return problem
    if not isinstance(value, dict):
        return problem
    key = next((key for key, one in value.items() if type(one) is _TYPES.get(got[1])), None)
    return problem if key is None else replace(problem, field=f"{parent}[{str(key)[:100]}]")


def problem_of(file: str, named: str, error: object) -> InputProblem:
    """The problem that a decoder's error is, with the field's path and a remedy."""
    found = _AT.match(str(error))
    what, path = (found["what"], found["path"] or "") if found is not None else (str(error), "")
    path = path.removeprefix("$").removeprefix(".")
    kind = named.partition(" ")[0].lower()
    if "got `int`" in what or "got `bool`" in what or "got `float`" in what:
        remedy = "write the value in quotes" if "Expected `str" in what else "write a value of that type"
    else:
        where = re.sub(r"\[[^]]*\]", "", path)
        remedy = f"see `kubectl explain {kind}{f'.{where}' if where else ''}`"
    return InputProblem(file, named, path, f"{what[:300]}; {remedy}")
