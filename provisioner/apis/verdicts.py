"""What is wrong, or will surprise, about an object that the API server admits: one source for `dovetail lint` and the validating webhook. Pure.

The schema and its CEL rules are not asked here (`apis.openapi` does that offline, the API server by itself).
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis import advice, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodeClassReference, NodePool
from provisioner.apis.openapi import Violation, did_you_mean
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.overlay_conflicts import OverlayConflict, conflicts_of
from provisioner.apis.validation import pool_problems, reserved_taints
from provisioner.values.message import Said

NodeClasses = Mapping[tuple[str, str], frozenset[str]]
"""Node classes by group and kind, with the labels that their nodes may have without anybody saying so."""

MAX_POOLS: Final = 256
"""With more NodePools, nothing is said about pools among each other."""

_POOL_REFERENCE: Final = "spec.template.spec.nodeClassRef"
_CLAIM_REFERENCE: Final = "spec.nodeClassRef"
_INDEX: Final = re.compile(r"\[[0-9]+\]", re.ASCII)
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
"""Of a path: a field, or a position or key in brackets."""


@dataclass(frozen=True, slots=True)
class ObjectVerdict:
    """All that is to be said about one object.

    Attributes:
        errors: for which the controllers would not use it.
        warnings: what is valid and probably not intended.
    """

    errors: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()


def verdict(obj: Any, classes: NodeClasses) -> ObjectVerdict:
    """What is to be said about one object by itself; nothing about kinds that are not known here.

    Args:
        obj: a NodePool, NodeClaim, EC2NodeClass or NodeOverlay without violations of its schema.
        classes: all node classes that there are providers for.
    """
    match obj:
        case NodePool():
            return _of_pool(obj, classes)
        case NodeClaim():
            found = _reference(obj.spec.node_class_ref, classes, _CLAIM_REFERENCE)
            return ObjectVerdict(found.errors, (*found.warnings, *advice.claim_advice(obj)))
        case EC2NodeClass():
            return ObjectVerdict(warnings=tuple(advice.class_advice(obj)))
        case NodeOverlay():
            errors = tuple(_unreadable(obj))
            return ObjectVerdict(errors, () if errors else tuple(advice.overlay_advice(obj)))
        case _:
            return ObjectVerdict()


def well_known_of(pool: NodePool, classes: NodeClasses) -> frozenset[str]:
    """The labels that nodes of a pool may have without anybody saying so, by its node class."""
    reference = pool.node_class_ref
    return classes.get((reference.group, reference.kind), names.WELL_KNOWN_LABELS)


def reference_of(obj: Any) -> tuple[str, NodeClassReference] | None:
    """The reference to a node class, with its path; None for kinds that have none."""
    match obj:
        case NodePool():
            return _POOL_REFERENCE, obj.node_class_ref
        case NodeClaim():
            return _CLAIM_REFERENCE, obj.spec.node_class_ref
        case _:
            return None


def missing_class(obj: Any, there: Collection[str], what: str) -> list[Violation]:
    """Whether the node class of a pool or claim is not among those of its kind.

    Args:
        obj: any object; those without a reference miss nothing.
        there: names of the node classes of that kind.
        what: ends the sentence, such as "does not exist".
    """
    found = reference_of(obj)
    if found is None or found[1].name in there:
        return []
    path, reference = found
    text = f'{reference.kind} "{reference.name}" {what}{did_you_mean(reference.name, there)}'
    return [Violation(f"{path}.name", text)]


def among_pools(pool: NodePool, others: Iterable[NodePool], classes: NodeClasses) -> list[Violation]:
    """What will surprise about a pool beside the others, in either direction.

    Args:
        pool: the one that is written.
        others: all pools; one of the same name is passed over.
        classes: all node classes that there are providers for.

    Cost: O(pools), some 50 us each; nothing is looked at where there are more than `MAX_POOLS`.
    """
    fleet = [one for one in others if one.name != pool.name]
    if len(fleet) >= MAX_POOLS:
        return []
    fleet.append(pool)
    known = frozenset[str]().union(*(well_known_of(one, classes) for one in fleet))
    found = advice.fleet_advice(fleet, known, about=pool.name)
    beneath = sorted(found.keys() - {pool.name})
    if beneath:
        text = Said(
            f"tried before {_listed(beneath)}, and accepts every pod that "
            f"{'it' if len(beneath) == 1 else 'each of them'} accepts; lower this weight, or give this NodePool "
            "limits, taints or requirements"
        )
        return [*found.get(pool.name, ()), Violation("spec.weight", text)]
    return found.get(pool.name, [])


def overlays_conflict(other: str) -> str:
    """`other` is the name of the NodeOverlay that it contradicts."""
    return Said(
        f'NodeOverlay "{other}" of the same weight changes the same instance types; give one of them another weight'
    )


def among_overlays(overlay: NodeOverlay, others: Iterable[NodeOverlay]) -> ObjectVerdict:
    """What is wrong, or will surprise, about a NodeOverlay beside the others; cost as of `conflicts_of`.

    Args:
        overlay: the one that is written.
        others: all NodeOverlays; one of the same name is passed over.
    """
    found = conflicts_of(overlay, others)
    if (other := found.get(OverlayConflict.CERTAIN)) is not None:
        return ObjectVerdict(errors=(Violation("spec.weight", overlays_conflict(other)),))
    if (other := found.get(OverlayConflict.POSSIBLE)) is not None:
        return ObjectVerdict(
            warnings=(
                Violation(
                    "spec.weight",
                    Said(
                        f'NodeOverlay "{other}" of the same weight changes every instance type that both select, and '
                        "then one of them is not applied; give one of them another weight"
                    ),
                ),
            )
        )
    return ObjectVerdict()


def worsened(
    before: Iterable[Violation], old: Any, after: Iterable[Violation], new: Any
) -> tuple[list[Violation], list[Violation]]:
    """The errors that an update of `old` to `new` brings, and those that were there before it.

    Two are the same when their messages are, their paths up to positions in lists, because an entry may move, and the text or number that stands there.
    """
    known, brought = list[Violation](), list[Violation]()
    if before := tuple(before):
        old, new = msgspec.to_builtins(old), msgspec.to_builtins(new)
    left = Counter(_key(one, old) for one in before)
    for one in after:
        key = _key(one, new) if before else None
        (known if left[key] > 0 else brought).append(one)
        left[key] -= 1
    return brought, known


def _key(one: Violation, document: Any) -> tuple[str, str, object] | None:
    found = document
    for name, entry in _STEP.findall(one.path):
        if isinstance(found, list):
            found = found[int(entry)] if entry.isdecimal() and int(entry) < len(found) else None
        else:
            found = found.get(name or entry) if isinstance(found, dict) else None
    return _INDEX.sub("[]", one.path), one.message, None if isinstance(found, dict | list) else found


def _listed(found: list[str]) -> str:
    shown = [f"NodePool {name}" for name in found[:1]] if len(found) == 1 else [f"NodePools {', '.join(found[:2])}"]
    return f"{shown[0]} and {len(found) - 2} more" if len(found) > 2 else shown[0]


def _of_pool(pool: NodePool, classes: NodeClasses) -> ObjectVerdict:
    reference = _reference(pool.node_class_ref, classes, _POOL_REFERENCE)
    if reference.warnings:
        return reference  # another program's; its labels are not known here
    known = well_known_of(pool, classes)
    errors = list(reference.errors)
    for problem in (*pool_problems(pool, known), *reserved_taints(pool)):
        path, _, message = problem.partition(": ")
        errors.append(Violation(path, message))
    return ObjectVerdict(tuple(errors), () if errors else tuple(advice.pool_advice(pool, known)))


def _reference(reference: NodeClassReference, classes: NodeClasses, path: str) -> ObjectVerdict:
    """What is wrong with a reference to a node class, whatever classes there are."""
    if (reference.group, reference.kind) in classes:
        return ObjectVerdict()
    group = next((group for group, kind in classes if kind == reference.kind), "")
    if group:
        text = Said(f'"{reference.group}" has no {reference.kind}; did you mean {group}?')
        return ObjectVerdict(errors=(Violation(f"{path}.group", text),))
    kinds = [kind for _, kind in classes]
    text = Said(f'"{reference.kind}" of {reference.group} is not a node class of Dovetail')
    if reference.group in {names.GROUP, *(group for group, _ in classes)}:
        return ObjectVerdict(errors=(Violation(f"{path}.kind", text + did_you_mean(reference.kind, kinds)),))
    return ObjectVerdict(warnings=(Violation(f"{path}.kind", Said(f"{text}; Dovetail launches no nodes for it")),))


def _unreadable(overlay: NodeOverlay) -> Iterator[Violation]:
    for position, requirement in enumerate(overlay.spec.requirements):
        try:
            requirement.requirement()
        except ValueError as error:
            yield Violation(f"spec.requirements[{position}]", str(error))
