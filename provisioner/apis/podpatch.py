"""A pod as a JSON Patch sees it: what stamping reads of it, and the operations of the patch. Pure.

Only the fields that a decision needs are decoded, everything else in the object is skipped unparsed. The structs mirror the wire: absent and
null are both None, because JSON Patch must tell "no such parent" from "an empty parent".
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from provisioner.apis.core import ContainerPort
from provisioner.values.jsontext import pointer
from provisioner.values.taints import Toleration


class Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the wire structs: camelCase, immutable, not tracked by the collector."""


class OwnerReference(Wire, frozen=True):
    """An owner of the pod; whoever creates a pod may name any."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Wire, frozen=True):
    """The part of metadata that stamping reads; name and uid are empty at this point anyway."""

    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Expression(Wire, frozen=True):
    """One node selector requirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(Wire, frozen=True):
    """A node selector term: its parts are ANDed; without any part it matches no node."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None

    @property
    def empty(self) -> bool:
        """Whether the term matches no node at all."""
        return not self.match_expressions and not self.match_fields

    @property
    def pinned(self) -> bool:
        """Whether the term names the nodes that it is for."""
        return any((one.key, one.operator) == ("metadata.name", "In") for one in self.match_fields or ())


class NodeSelector(Wire, frozen=True):
    """Terms, ORed."""

    node_selector_terms: list[Term] | None = None


class PodAffinityTerm(Wire, frozen=True):
    """One term of pod affinity or anti-affinity; only where it looks."""

    topology_key: str = ""


class WeightedPodAffinityTerm(Wire, frozen=True):
    """A weighted preference between pods."""

    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Affinity, or anti-affinity, between pods."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class SpreadConstraint(Wire, frozen=True):
    """One topology spread constraint; the API server admits each pair of these two once."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class PreferredTerm(Wire, frozen=True):
    """A weighted preference."""

    preference: Term = Term()


class NodeAffinity(Wire, frozen=True):
    """Required and preferred node affinity."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodOs(Wire, frozen=True):
    """The operating system that a pod says it is for."""

    name: str = ""


class SecurityContext(Wire, frozen=True):
    """Of a pod or a container; only whether it has options that Windows alone knows."""

    windows_options: dict[str, msgspec.Raw] | None = None


class Container(Wire, frozen=True):
    """The part of a container that stamping reads."""

    image: str = ""
    security_context: SecurityContext | None = None
    ports: list[ContainerPort] | None = None


class Named(Wire, frozen=True):
    """A scheduling gate, or the name of a pull secret."""

    name: str = ""


class Spec(Wire, frozen=True):
    """The part of a pod's spec that stamping reads."""

    os: PodOs | None = None
    security_context: SecurityContext | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    image_pull_secrets: list[Named] | None = None
    scheduling_gates: list[Named] | None = None


class Pod(Wire, frozen=True):
    """A pod at admission."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One JSON Patch operation (RFC 6902); `value` is left out for `remove`."""

    op: str
    path: str
    value: Any = msgspec.UNSET


def add(*parts: str | int, value: Any) -> Operation:
    """Sets a member or appends to an array; the parent must exist."""
    return Operation("add", pointer(*parts), value)


def replace(*parts: str | int, value: Any) -> Operation:
    """Replaces an existing member or element."""
    return Operation("replace", pointer(*parts), value)


def test(*parts: str | int, value: Any) -> Operation:
    """Makes the whole patch fail unless the member has this value."""
    return Operation("test", pointer(*parts), value)


def remove(*parts: str | int) -> Operation:
    """Removes an existing member."""
    return Operation("remove", pointer(*parts))


def patched(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """A document, changed in place. Cost: O(operations + what they insert into lists)."""
    for operation in operations:
        *parts, last = (part.replace("~1", "/").replace("~0", "~") for part in operation.path.split("/")[1:])
        parent: Any = document
        for part in parts:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        where: Any = (len(parent) if last == "-" else int(last)) if isinstance(parent, list) else last
        match operation.op:
            case "remove":
                del parent[where]
            case "add" if isinstance(parent, list):
                parent.insert(where, operation.value)
            case _:
                parent[where] = operation.value
    return document
