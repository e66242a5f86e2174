"""What a NodePool's schema cannot check: said as sentences with the field's path. Pure. Source: core spec 1.1."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from provisioner.apis import messages, names
from provisioner.apis.karpenter import LABEL_VALUE, QUALIFIED_NAME, NodePool, RequirementSpec
from provisioner.apis.pool_limits import PoolLimitError, most_of_one, spending_limit
from provisioner.values.duration import parse_duration
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


def reserved_taints(pool: NodePool) -> tuple[str, ...]:
    """Taints whose keys are the controllers' own. A pool that has them already goes on being used, so these are no `pool_problems`."""
    return tuple(
        messages.taint_key_reserved(f"spec.template.spec.{name}[{position}]", taint.key)
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
            limit = messages.name_is_limited(LONGEST_NAME)
            yield messages.name_too_long(path, len(name), key, limit)


def _labels(pool: NodePool, well_known: frozenset[str]) -> Iterator[str]:
    for key, value in sorted(pool.labels.items()):
        path = f"spec.template.metadata.labels[{key}]"
        yield from _key(key, path, well_known)
        if not _LABEL_VALUE.fullmatch(value):
            yield messages.not_a_label_value(path, value)


def _key(key: str, path: str, well_known: frozenset[str]) -> Iterator[str]:
    if not _QUALIFIED_NAME.fullmatch(key):
        yield messages.not_a_qualified_name(path, key)
    elif key == names.NODEPOOL_LABEL or names.restricted(key, well_known):
        yield messages.label_is_restricted(path, key)


def _taints(taints: Iterable[Taint], path: str) -> Iterator[str]:
    for position, taint in enumerate(taints):
        where = f"{path}[{position}]"
        if not taint.key or not _QUALIFIED_NAME.fullmatch(taint.key):
            yield messages.taint_key_invalid(where, taint.key)
        if taint.value and not _QUALIFIED_NAME.fullmatch(taint.value):
            yield messages.taint_value_invalid(where, taint.value)
        if taint.effect not in _EFFECTS:
            yield messages.taint_effect_invalid(where, taint.effect, ", ".join(_EFFECTS))


def _doubled(taints: Iterable[Taint]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for taint in taints:
        if (taint.key, taint.effect) in seen:
            yield messages.taint_listed_twice(taint.key, taint.effect)
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
                yield messages.value_not_a_label_value(path, value)
        if spec.operator == "In" and spec.min_values and len(set(spec.values)) < spec.min_values:
            yield messages.too_few_values(path, spec.min_values, len(set(spec.values)))
        if spec.key == names.CAPACITY_TYPE_LABEL and spec.operator == "In":
            known = set(spec.values) & names.CAPACITY_TYPES
            if not known:
                yield messages.no_capacity_type(path, ", ".join(sorted(spec.values)))
            elif spec.min_values and len(known) < spec.min_values:
                yield messages.too_few_capacity_types(path, spec.min_values, len(known))


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
        yield messages.invalid_limits(error)


def _budgets(pool: NodePool) -> Iterator[str]:
    for position, budget in enumerate(pool.spec.disruption.budgets):
        path = f"spec.disruption.budgets[{position}]"
        if bool(budget.schedule) != bool(budget.duration):
            yield messages.schedule_without_duration(path)
            continue
        if not budget.schedule:
            continue
        try:
            is_open(budget.schedule, parse_duration(budget.duration or ""), _ANY_INSTANT)
        except ScheduleError as error:
            yield f"{path}.schedule: {error}"
        except ValueError as error:
            yield f"{path}.duration: {error}"
