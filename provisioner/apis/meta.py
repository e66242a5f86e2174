"""What every Kubernetes object has: metadata, owners, conditions, label selectors.

Every Struct here and in the sibling modules holds the fields that we read or write, and no other: unknown fields
are skipped at decoding, so an object written back whole would lose them. Write with patches or server-side apply.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Protocol

import msgspec

from provisioner.apis.schema import Schema


class Object(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of everything on the wire: immutable, camelCase, defaults are not written."""


class OwnerReference(Object, frozen=True, kw_only=True, weakref=True, gc=True):
    """Who an object belongs to; `controller` is set on at most one reference of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Named(Protocol):
    """What has a name, in a namespace as a rule."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...


def key_of(one: Named) -> str:
    """Namespace and name as `kubectl` takes them, "NAMESPACE/NAME"; the name alone for kinds without namespaces."""
    return f"{one.namespace}/{one.name}" if one.namespace else one.name


class ObjectMeta(Object, frozen=True, kw_only=True):
    """The metadata of one object; times are aware, in UTC."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """As of `key_of`."""
        return key_of(self)


class Condition(Object, frozen=True, kw_only=True):
    """One condition of a status; `status` is "True", "False" or "Unknown".

    All of type, status, reason, message and lastTransitionTime are always written: the API demands them.
    """

    type: Annotated[
        str,
        Schema(
            "Name of the condition, CamelCase, with an optional domain in front.",
            required=True,
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    status: Annotated[str, Schema("Whether the condition holds.", required=True, enum=("True", "False", "Unknown"))] = (
        msgspec.field()
    )
    reason: Annotated[
        str,
        Schema(
            "Why the condition has this status: one CamelCase word for programs.",
            required=True,
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ] = msgspec.field(default_factory=lambda: "")
    message: Annotated[
        str, Schema("The details of the last change, for people; may be empty.", required=True, max_length=32768)
    ] = msgspec.field(default_factory=lambda: "")
    last_transition_time: Annotated[datetime | None, Schema("When the status last changed.", required=True)] = None
    observed_generation: Annotated[
        int, Schema("The metadata.generation that this was concluded from.", minimum=0, format="int64")
    ] = 0


class LabelSelectorRequirement(Object, frozen=True, kw_only=True):
    """One expression of a selector: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` satisfy this expression; an unknown operator matches nothing."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return False


class LabelSelector(Object, frozen=True, kw_only=True):
    """Which labels are meant: every expression must hold; the empty selector means all."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Who controls an object."""
    return next((one for one in meta.owner_references if one.controller), None)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether `selector` matches `labels`; an absent selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        expression.matches(labels) for expression in selector.match_expressions
    )


def selector_text(selector: LabelSelector) -> str:
    """`selector` in the API's own syntax, for a list; "" for one that picks everything. An unknown operator narrows nothing."""
    terms = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for one in selector.match_expressions:
        match one.operator:
            case "In" | "NotIn":
                terms.append(f"{one.key} {one.operator.lower()} ({','.join(one.values)})")
            case "Exists":
                terms.append(one.key)
            case "DoesNotExist":
                terms.append(f"!{one.key}")
            case _:
                pass
    return ",".join(terms)


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of type `kind`, or None."""
    for one in conditions:
        if one.type == kind:
            return one
    return None


def version_number(resource_version: str) -> int:
    """A resource version as a number, by which versions of one kind may be compared (documented since Kubernetes 1.35); 0 for what is none.

    Of two kinds, too, where both are kept in one etcd, as Nodes and pods are unless somebody takes pains: etcd counts all writes together.
    """
    return int(resource_version) if resource_version.isdigit() else 0


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Whether the condition of type `kind` is there and True."""
    found = condition(conditions, kind)
    return found is not None and found.status == "True"
