"""What a NodePool's schema cannot check: said as sentences with the field's path. Pure. Source: core spec 1.1."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from provisioner.apis import names
from provisioner.apis.karpenter import LABEL_VALUE, QUALIFIED_NAME, NodePool, RequirementSpec
from provisioner.apis.pool_limits import PoolLimitError, most_of_one, spending_limit
from provisioner.values.duration import parse_duration
from provisioner.values.message import Said
from provisioner.values.printable import listed
from provisioner.values.requirement import RequirementError
from provisioner.values.resources import Resources
from provisioner.values.schedule import ScheduleError, is_open
from provisioner.values.taints import Taint

_QUALIFIED_NAME = re.compile(QUALIFIED_NAME)
_LABEL_VALUE = re.compile(LABEL_VALUE)
_ANY_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
LONGEST_NAME = 63  # as a label's value
_RESERVED = (names.GROUP, names.DOVETAIL)
_EFFECTS = (names.NO_SCHEDULE, names.PREFER_NO_SCHEDULE, names.NO_EXECUTE)


def pool_problems(pool: NodePool, well_known: frozenset[str]) -> tuple[str, ...]:
    """Everything that is wrong with a pool, in the order of its fields; empty when it can be used.

    Args:
        pool: any pool that decoded.
        well_known: labels of Kubernetes, Karpenter and the provider; these may be required though their domain is restricted.
    """
    return (
        *_names(pool),
        *_labels(pool, well_known),
        *_taints(pool.taints, "spec.template.spec.taints"),
        *_taints(pool.startup_taints, "spec.template.spec.startupTaints"),
        *_doubled((*pool.taints, *pool.startup_taints)),
        *_requirements(pool.spec.template.spec.requirements, well_known),
        *_durations(pool),
        *_limits(pool),
        *_annotated_limits(pool),
        *_budgets(pool),
    )


def _taint_key_reserved(where: str, key: str) -> str:
    """The path and the key of a taint."""
    return Said(
        f"{where}.key: {key} is reserved: Dovetail sets and removes taints of this domain itself, so nodes would never be initialized, "
        "or would be closed to pods; use another domain"
    )


def reserved_taints(pool: NodePool) -> tuple[str, ...]:
    """Taints whose keys are the controllers' own. A pool that has them already goes on being used, so these are no `pool_problems`."""
    return tuple(
        _taint_key_reserved(f"spec.template.spec.{name}[{position}]", taint.key)
        for name, taints in (("taints", pool.taints), ("startupTaints", pool.startup_taints))
        for position, taint in enumerate(taints)
        if taint.key.partition("/")[0] in _RESERVED and "/" in taint.key
    )


def _annotated_limits(pool: NodePool) -> Iterator[str]:
    for read in (spending_limit, most_of_one):
        try:
            read(pool)
        except PoolLimitError as error:
            yield str(error)


def _names(pool: NodePool) -> Iterator[str]:
    reference = pool.node_class_ref
    for path, name, key in (
        ("metadata.name", pool.name, names.NODEPOOL_LABEL),
        (
            "spec.template.spec.nodeClassRef.name",
            reference.name,
            names.nodeclass_label(reference.group, reference.kind),
        ),
    ):
        if len(name) > LONGEST_NAME:
            limit = Said(f"which is limited to {LONGEST_NAME} characters; use a shorter name")
            yield Said(f"{path}: {len(name)} characters, but every node has it as the value of label {key}, {limit}")


def _labels(pool: NodePool, well_known: frozenset[str]) -> Iterator[str]:
    for key, value in sorted(pool.labels.items()):
        path = f"spec.template.metadata.labels[{key}]"
        yield from _key(key, path, well_known)
        if not _LABEL_VALUE.fullmatch(value):
            yield Said(f'{path}: "{value}" is not a label value; use letters, digits, "-", "_" and "."')


def _key(key: str, path: str, well_known: frozenset[str]) -> Iterator[str]:
    if not _QUALIFIED_NAME.fullmatch(key):
        yield Said(f'{path}: "{key}" is not a qualified name such as example.com/team')
    elif key == names.NODEPOOL_LABEL or names.restricted(key, well_known):
        yield Said(f"{path}: {key} is restricted; use your own domain, or a well-known label")


def _not_capacity_types(values: Iterable[str]) -> str:
    named = sorted({f'"{value}"' for value in values})
    return f"{named[0]} is not a capacity type" if len(named) == 1 else f"{listed(named, 5)} are not capacity types"


def _taints(taints: Iterable[Taint], path: str) -> Iterator[str]:
    for position, taint in enumerate(taints):
        where = f"{path}[{position}]"
        if not taint.key or not _QUALIFIED_NAME.fullmatch(taint.key):
            yield Said(f'{where}.key: "{taint.key}" is not a qualified name such as example.com/team')
        if taint.value and not _QUALIFIED_NAME.fullmatch(taint.value):
            yield Said(f'{where}.value: "{taint.value}" is not a taint value')
        if taint.effect not in _EFFECTS:
            yield Said(f'{where}.effect: "{taint.effect}" is not supported; use one of {", ".join(_EFFECTS)}')


def _doubled(taints: Iterable[Taint]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for taint in taints:
        if (taint.key, taint.effect) in seen:
            yield Said(
                f"spec.template.spec: taint {taint.key}:{taint.effect} is listed twice in taints and startupTaints"
            )
        seen.add((taint.key, taint.effect))


def _requirements(specs: Iterable[RequirementSpec], well_known: frozenset[str]) -> Iterator[str]:
    for position, spec in enumerate(specs):
        path = f"spec.template.spec.requirements[{position}]"
        yield from _key(spec.key, f"{path}.key", well_known)
        try:
            spec.requirement()
        except RequirementError as error:
            yield f"{path}: {error}"
        for value in spec.values:
            if not _LABEL_VALUE.fullmatch(value):
                yield Said(f'{path}.values: "{value}" is not a label value')
        if spec.operator == "In" and spec.min_values and len(set(spec.values)) < spec.min_values:
            yield Said(
                f"{path}.minValues: {spec.min_values} required, but only {len(set(spec.values))} values are listed"
            )
        if spec.key == names.CAPACITY_TYPE_LABEL and spec.operator == "In":
            known = set(spec.values) & names.CAPACITY_TYPES
            if not known:
                yield Said(f"{path}.values: {_not_capacity_types(spec.values)}; use on-demand, spot or reserved")
            elif spec.min_values and len(known) < spec.min_values:
                yield Said(
                    f"{path}.minValues: {spec.min_values} required, but only {len(known)} known capacity types are "
                    "listed"
                )


def _durations(pool: NodePool) -> Iterator[str]:
    spec = pool.spec.template.spec
    for path, text in (
        ("spec.template.spec.expireAfter", spec.expire_after),
        ("spec.template.spec.terminationGracePeriod", spec.termination_grace_period),
        ("spec.disruption.consolidateAfter", pool.spec.disruption.consolidate_after),
    ):
        if not isinstance(text, str) or text == "Never":
            continue
        try:
            parse_duration(text)
        except ValueError as error:
            yield f"{path}: {error}"


def _limits(pool: NodePool) -> Iterator[str]:
    try:
        Resources.parse(pool.spec.limits)
    except ValueError as error:
        yield Said(f"spec.limits: {error}")


def _budgets(pool: NodePool) -> Iterator[str]:
    for position, budget in enumerate(pool.spec.disruption.budgets):
        path = f"spec.disruption.budgets[{position}]"
        if bool(budget.schedule) != bool(budget.duration):
            yield Said(f"{path}: schedule and duration must be set together")
            continue
        if not budget.schedule:
            continue
        try:
            is_open(budget.schedule, parse_duration(budget.duration or ""), _ANY_INSTANT)
        except ScheduleError as error:
            yield f"{path}.schedule: {error}"
        except ValueError as error:
            yield f"{path}.duration: {error}"
