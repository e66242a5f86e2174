"""What the API server admits and will surprise its author: pools that no pod can reach, budgets that never open, and the like. Pure.

Warnings only; what cannot work at all is said by `apis.openapi` and `apis.validation`. Nothing here knows prices or instance types, so what
depends on them is not told.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec
from msgspec import UnsetType

from provisioner.apis import names
from provisioner.apis.ec2 import CONSUMABLE_CAPACITY_ANNOTATION, EC2NodeClass
from provisioner.apis.karpenter import NEVER, Budget, LabelRequirement, NodeClaim, NodePool, requirements_of
from provisioner.apis.openapi import Violation, did_you_mean
from provisioner.apis.overlay import NodeOverlay
from provisioner.values.duration import parse_duration
from provisioner.values.message import Said
from provisioner.values.requirement import Operator, Requirement, RequirementError, Requirements, parse_int
from provisioner.values.resources import Resources
from provisioner.values.schedule import ScheduleError, is_open, next_change

_DOMAINS: Final[Mapping[str, tuple[str, ...]]] = {
    names.ARCH_LABEL: ("amd64", "arm64"),
    names.OS_LABEL: ("linux", "windows"),
    names.CAPACITY_TYPE_LABEL: tuple(sorted(names.CAPACITY_TYPES)),
}
"""Labels of which every value is known."""
_OTHER_WORDS: Final = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "aarch64": "arm64",
    "ON_DEMAND": "on-demand",
    "ondemand": "on-demand",
}
"""Values of well-known labels as others write them."""

_CPU_LABELS: Final = ("karpenter.k8s.aws/instance-cpu", names.KWOK_INSTANCE_CPU_LABEL)
_MEMORY_LABEL: Final = "karpenter.k8s.aws/instance-memory"  # MiB
_XLARGE_TYPE: Final = re.compile(r"(?P<family>[a-z][a-z0-9-]*)\.(?P<times>[0-9]{0,3})xlarge", re.ASCII)
_FEWER_CPUS: Final = ("hpc", "m2", "hs1")
"""Families with less than 4 CPUs an xlarge."""
_MIB: Final = 1024**2
_LEAST_MEBIBYTES: Final = 128
"""No kubelet runs in less; a limit below this lacks its unit."""


_LOOKED_AT: Final = datetime(2028, 1, 1, tzinfo=UTC)
_HORIZON: Final = timedelta(days=366)  # a leap year: every schedule comes in it
_WEEK: Final = timedelta(days=8)
_LOOKS: Final = 2000
_FREQUENT: Final = 20
"""What a look costs at a window that may open many times a day: it walks over up to 1,000 of its starts."""
_WEEKLY: Final = re.compile(r"@(?:hourly|daily|midnight|weekly)|\S+\s+\S+\s+[*?]\s+[*?]\s+\S+", re.ASCII)
_ONCE_A_DAY: Final = re.compile(r"@(?!hourly)[a-z]+|[0-9]{1,2}\s+[0-9]{1,2}\s.*", re.ASCII)

_OWNERS: Final = ("owner", "owner_id")
"""Fields of selector terms that only narrow what others select."""
_TEMPLATE: Final = "spec.template.spec"
_BUDGETS: Final = "spec.disruption.budgets"
_CONSOLIDATION: Final = (names.REASON_UNDERUTILIZED, names.REASON_EMPTY)
_SELECTS_BY_NOTHING: Final = {
    "amiSelectorTerms": Said(
        "every field of this term except the owner is empty, so it selects all images of the owner, or nothing if it names none; "
        "fill in tags, name, id, alias or ssmParameter"
    ),
    "subnetSelectorTerms": Said("every field of this term is empty, so it selects nothing; fill in tags or id"),
    "securityGroupSelectorTerms": Said(
        "every field of this term is empty, so it selects nothing; fill in tags, id or name"
    ),
    "capacityReservationSelectorTerms": Said(
        "every field of this term except the owner is empty, so it selects all capacity reservations; fill in "
        "tags, id or instanceMatchCriteria"
    ),
}
"""By the list that holds the term."""


def usual_word(written: Iterable[str], known: Container[str]) -> str:
    """The first known value that somebody else's word among these means; "" where none does."""
    return next((usual for one in written if (usual := _OTHER_WORDS.get(one, "")) in known), "")


def pool_advice(pool: NodePool, well_known: frozenset[str]) -> list[Violation]:
    """What will surprise about one pool by itself.

    Args:
        pool: one without violations.
        well_known: labels of Kubernetes, Karpenter and the pool's provider.
    """
    try:
        required = requirements_of(pool.spec.template.spec.requirements)
    except RequirementError:
        return []  # said elsewhere
    offered = required.merged(Requirements.from_labels(pool.labels))
    return [
        *_unreachable(pool, required, offered),
        *_unknown_labels(pool, well_known),
        *_min_values(pool, offered),
        *_limits(pool, offered),
        *_budgets(pool),
    ]


def claim_advice(claim: NodeClaim) -> list[Violation]:
    """What will surprise about a NodeClaim."""
    return list(_contradictions("spec.requirements", claim.spec.requirements, Said("no instance can be launched")))


def fleet_advice(pools: Iterable[NodePool], well_known: frozenset[str], about: str = "") -> dict[str, list[Violation]]:
    """What will surprise about pools together, by the pool's name.

    Args:
        pools: all of them, each name once.
        well_known: labels of Kubernetes, Karpenter and the pools' providers.
        about: the name of the pool that alone is compared with the others, which takes O(pools) instead of O(pools^2); "" for all.
    """
    found: dict[str, list[Violation]] = {}
    known = [(pool, _offer(pool)) for pool in pools]
    for lower, low in known:
        for higher, high in known:
            if about and about not in (lower.name, higher.name):
                continue
            if low is not None and high is not None and _shadows(higher, high, lower, low, well_known):
                found.setdefault(lower.name, []).append(
                    Violation(
                        "spec.weight",
                        Said(
                            f"NodePool {higher.name} (weight {higher.spec.weight}) is tried first and accepts every "
                            "pod that this one accepts; give this one the higher weight, or the other one limits, "
                            "taints or requirements"
                        ),
                    )
                )
                break
    return found


def _alias_selects_every_image(alias: str, family: str) -> str:
    """An alias that ends in @latest, and its family."""
    return Said(
        f"{alias} selects every new image: nodes drift and are replaced as soon as AWS publishes one; in "
        f"production, pin a version ({family}@v...)"
    )


def class_advice(node_class: EC2NodeClass) -> list[Violation]:
    """What will surprise about an EC2NodeClass."""
    spec = node_class.spec
    lists: Mapping[str, Sequence[msgspec.Struct]] = {
        "amiSelectorTerms": spec.ami_selector_terms,
        "subnetSelectorTerms": spec.subnet_selector_terms,
        "securityGroupSelectorTerms": spec.security_group_selector_terms,
        "capacityReservationSelectorTerms": spec.capacity_reservation_selector_terms,
    }
    empty = [
        Violation(f"spec.{name}[{position}]", _SELECTS_BY_NOTHING[name])
        for name, terms in lists.items()
        for position, term in enumerate(terms)
        if not any(getattr(term, field) for field in term.__struct_fields__ if field not in _OWNERS)
    ]
    return [
        *_gpu_sharing(node_class),
        *empty,
        *(
            Violation(
                f"spec.amiSelectorTerms[{position}].alias",
                _alias_selects_every_image(term.alias, term.alias_family.lower()),
            )
            for position, term in enumerate(node_class.spec.ami_selector_terms)
            if term.alias.endswith("@latest")
            and not term.alias.startswith("windows")  # of which only the latest can be had
        ),
    ]


def _gpu_sharing(node_class: EC2NodeClass) -> Iterator[Violation]:
    """Dynamic resource allocation, by which GPUs would be shared, is not supported."""
    if node_class.gpu_sharing:
        text = Said(
            "GPUs are not shared, because dynamic resource allocation is not supported: without the AWS feature gate "
            "DRANVIDIAGPU, this EC2NodeClass is not ready, and with it, the annotation has no effect; remove it"
        )
        yield Violation(f"metadata.annotations[{CONSUMABLE_CAPACITY_ANNOTATION}]", text)


def overlay_advice(overlay: NodeOverlay) -> list[Violation]:
    """What will surprise about a NodeOverlay."""
    spec = overlay.spec
    if found := list(_contradictions("spec.requirements", spec.requirements, Said("selects no instance type"))):
        return found
    if spec.price is None and spec.price_adjustment is None and not spec.capacity:
        return [Violation("spec", Said("has no effect; set price, priceAdjustment or capacity"))]
    return []


# --- requirements ---------------------------------------------------------------------------------------------------


def _contradictions(path: str, specs: Iterable[LabelRequirement], consequence: str) -> Iterator[Violation]:
    try:
        together = Requirements.of(one.requirement() for one in specs)
    except RequirementError:
        return  # said elsewhere
    for key, requirement in together.items():
        if requirement.is_contradiction:
            yield Violation(path, Said(f"{consequence}: the requirements for {key} contradict each other"))


def _domain(key: str) -> Requirement | None:
    return Requirement.of(key, Operator.IN, _DOMAINS[key]) if key in _DOMAINS else None


def _unreachable(pool: NodePool, required: Requirements, offered: Requirements) -> Iterator[Violation]:
    path = f"{_TEMPLATE}.requirements"
    for key, requirement in offered.items():
        domain = _domain(key)
        if requirement.is_contradiction:
            both = Said("requirements and labels") if key in pool.labels and key in required else "requirements"
            yield Violation(path, Said(f"no pod can use this NodePool: its {both} for {key} contradict each other"))
        elif domain is not None and not requirement.intersects(domain):
            if key == names.CAPACITY_TYPE_LABEL and requirement.values and not requirement.complement:
                continue  # `apis.validation` refuses it
            written = sorted(requirement.values)
            meant = usual_word(written, _DOMAINS[key])
            hint = f"; did you mean {meant}?" if meant else did_you_mean(written[0] if written else "", _DOMAINS[key])
            yield Violation(
                path,
                Said(f"no pod can use this NodePool: {requirement}, but nodes have {' or '.join(_DOMAINS[key])}{hint}"),
            )


def _unknown_labels(pool: NodePool, well_known: frozenset[str]) -> Iterator[Violation]:
    """Keys of a provider's domain that no instance type has: nothing can be launched for them."""
    domains = {names.label_domain(key) for key in well_known} - {"", names.GROUP}
    for position, spec in enumerate(pool.spec.template.spec.requirements):
        key = names.normalized_label(spec.key)
        if key in well_known or names.label_domain(key) not in domains or key in pool.labels:
            continue
        if spec.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
            continue
        yield Violation(
            f"{_TEMPLATE}.requirements[{position}].key",
            Said(f"no known instance type has the label {key}{did_you_mean(key, well_known)}"),
        )


def _min_values(pool: NodePool, offered: Requirements) -> Iterator[Violation]:
    for position, spec in enumerate(pool.spec.template.spec.requirements):
        if not spec.min_values:
            continue
        requirement = offered[spec.key]
        domain = _domain(spec.key)
        left = requirement if domain is None else requirement.intersection(domain)
        if not left.complement and 0 < len(left.values) < spec.min_values:
            yield Violation(
                f"{_TEMPLATE}.requirements[{position}].minValues",
                Said(
                    f"requires {spec.min_values} values of {spec.key}, but the requirements allow only "
                    f"{len(left.values)} ({', '.join(sorted(left.values))}); no instance can be launched unless "
                    "--min-values-policy=BestEffort is set"
                ),
            )


# --- limits ---------------------------------------------------------------------------------------------------------


def _limits(pool: NodePool, offered: Requirements) -> Iterator[Violation]:
    try:
        limits = Resources.parse(pool.spec.limits)
    except ValueError:
        return  # said elsewhere
    cpus, mebibytes = _least_cpus(offered), _least(offered.get(_MEMORY_LABEL), _LEAST_MEBIBYTES)
    for resource, least, text in (
        (names.NODES, 1, "1 node"),
        (names.CPU, cpus * 1000, f"{cpus} CPU"),
        (names.MEMORY, mebibytes * _MIB, f"{mebibytes}Mi"),
    ):
        if resource in pool.spec.limits and limits.amount(resource) < least:
            yield Violation(
                f"spec.limits.{resource}",
                Said(
                    f"no pod can use this NodePool: the limit of {pool.spec.limits[resource]} is smaller than its "
                    f"smallest node ({text}); raise the limit"
                ),
            )


def _least_cpus(offered: Requirements) -> int:
    """The fewest CPUs that a node of these requirements may have, as far as they tell; never too many."""
    told = [_least(offered.get(label), 1) for label in _CPU_LABELS]
    types = offered.get(names.INSTANCE_TYPE_LABEL)
    if types is not None and types.present and not types.complement and types.values:
        told.append(min(map(_cpus_of, types.values)))
    return max(told)


def _cpus_of(instance_type: str) -> int:
    """Of an EC2 type whose name tells; 1 where it does not."""
    match = _XLARGE_TYPE.fullmatch(instance_type)
    return 4 * int(match["times"] or 1) if match is not None and not match["family"].startswith(_FEWER_CPUS) else 1


def _least(requirement: Requirement | None, otherwise: int) -> int:
    if requirement is None or not requirement.present:
        return otherwise
    if requirement.complement:
        return max(otherwise, requirement.gte or otherwise)
    numbers = [number for value in requirement.values if (number := parse_int(value)) is not None]
    return max(otherwise, min(numbers)) if len(numbers) == len(requirement.values) and numbers else otherwise


# --- budgets --------------------------------------------------------------------------------------------------------


def _budgets(pool: NodePool) -> Iterator[Violation]:
    disruption = pool.spec.disruption
    for position, budget in enumerate(disruption.budgets):
        if budget.schedule and not _lasts(budget):
            yield Violation(
                f"{_BUDGETS}[{position}].duration", Said("this budget is never active because its duration is zero")
            )
        elif not isinstance(budget.reasons, UnsetType) and not budget.reasons:
            text = Said(
                "this budget has no effect because its list of reasons is empty; omit reasons to apply it to every "
                "reason"
            )
            yield Violation(f"{_BUDGETS}[{position}].reasons", text)
    yield from _without_budget(pool, zeros := _Zeros())
    closed = {reason for reason in names.BUDGET_REASONS if zeros.always(disruption.budgets, reason)}
    if not closed:
        return
    wanted = _CONSOLIDATION[disruption.consolidation_policy == "WhenEmpty" :]
    stopped = [reason for reason in wanted if reason in closed]
    if stopped and disruption.consolidate_after != NEVER:
        yield Violation(
            _BUDGETS,
            Said(
                f"consolidation is enabled (consolidateAfter {disruption.consolidate_after}), but the budgets allow 0 "
                f"nodes at all times for {' and '.join(stopped)}; raise or schedule the budget, or set "
                "consolidateAfter to Never"
            ),
        )
    if names.REASON_DRIFTED in closed:
        text = Said(
            "the budgets allow 0 nodes at all times for Drifted: nodes are never replaced after the NodePool or its "
            "node class changes"
        )
        yield Violation(_BUDGETS, text)
    if names.REASON_UNHEALTHY in closed:
        text = Said(
            "the budgets allow 0 nodes at all times for Unhealthy: node repair (feature gate NodeRepair) never replaces a "
            "broken node"
        )
        yield Violation(_BUDGETS, text)


def _without_budget(pool: NodePool, zeros: "_Zeros") -> Iterator[Violation]:
    """Instants at which no budget applies to a reason, so that all nodes may go at once."""
    disruption = pool.spec.disruption
    consolidates = () if disruption.consolidate_after == NEVER else _CONSOLIDATION
    reasons = (*consolidates[disruption.consolidation_policy == "WhenEmpty" :], names.REASON_DRIFTED)
    found: dict[str, list[str]] = {}
    for reason in reasons:
        if when := zeros.gap(disruption.budgets, reason):
            found.setdefault(when, []).append(reason)
    for when, some in found.items():
        yield Violation(
            _BUDGETS,
            Said(
                f"no budget applies to {' and '.join(some)} {when}: all nodes of the NodePool may be disrupted at "
                "once then; add a budget without schedule and reasons"
            ),
        )


def _lasts(budget: Budget) -> bool:
    try:
        return parse_duration(budget.duration or "") > timedelta(0)
    except ValueError:
        return True  # said elsewhere


_Windows: TypeAlias = frozenset[tuple[str, timedelta]]


def _at_times_such_as(instant: str) -> str:
    """`instant` is in UTC."""
    return Said(f"at some times, such as {instant} UTC")


class _Zeros:
    """When the budgets of one pool allow no node, or do not apply; it looks at windows at most `_LOOKS` times in all, some 100 us each."""

    def __init__(self) -> None:
        self._left = _LOOKS
        self._known: dict[_Windows, datetime | None] = {}

    def gap(self, budgets: Iterable[Budget], reason: str) -> str:
        """An instant at which no budget applies to a reason, in words; "" for none, or where that takes too long to tell."""
        applying = [one for one in budgets if isinstance(one.reasons, UnsetType) or reason in one.reasons]
        if not applying:
            return Said("at any time")
        try:
            windows = _windows_of(applying)
            instant = None if windows is None else self._gap(windows)
        except (ScheduleError, ValueError):
            return ""  # said elsewhere
        if instant is None or windows is None:
            return ""
        return _at_times_such_as(f"{instant:%A, %H:%M}" if _are_weekly(windows) else f"{instant:%B %d, %H:%M}")

    def always(self, budgets: Iterable[Budget], reason: str) -> bool:
        """Whether some budget that allows no node is active whenever one looks; False where that takes too long to tell."""
        zero = [
            one
            for one in budgets
            if one.nodes.rstrip("%").strip("0") == "" and (isinstance(one.reasons, UnsetType) or reason in one.reasons)
        ]
        try:
            windows = _windows_of(zero)
            return windows is None or self._gap(windows) is None
        except (ScheduleError, ValueError):
            return False  # said elsewhere

    def _gap(self, windows: _Windows) -> datetime | None:
        """The first instant that none of the windows covers; None where they cover all.

        Raises:
            ScheduleError: one cannot be read.
            ValueError: that takes too long to tell.
        """
        if windows not in self._known:
            self._known[windows] = self._first_gap(windows)
        return self._known[windows]

    def _first_gap(self, windows: _Windows) -> datetime | None:
        now = _LOOKED_AT
        price = sum(1 if _ONCE_A_DAY.fullmatch(schedule) else _FREQUENT for schedule, _ in windows)
        while now <= _LOOKED_AT + (_WEEK if _are_weekly(windows) else _HORIZON):
            self._left -= price
            if self._left < 0:
                raise ValueError
            changes = [next_change(*window, now) for window in windows if is_open(*window, now)]
            if not changes:
                return now
            now = max(change for change in changes if change is not None)
        return None


def _windows_of(budgets: Iterable[Budget]) -> _Windows | None:
    """When any of these is active; None for always."""
    listed = list(budgets)
    if any(not one.schedule for one in listed):
        return None
    return frozenset((one.schedule or "", parse_duration(one.duration or "")) for one in listed)


def _are_weekly(windows: _Windows) -> bool:
    return all(_WEEKLY.fullmatch(schedule) for schedule, _ in windows)


# --- pools among each other -----------------------------------------------------------------------------------------


def _offer(pool: NodePool) -> Requirements | None:
    try:
        return requirements_of(pool.spec.template.spec.requirements).merged(Requirements.from_labels(pool.labels))
    except RequirementError:
        return None


def _shadows(
    higher: NodePool, high: Requirements, lower: NodePool, low: Requirements, well_known: frozenset[str]
) -> bool:
    """Whether every pod that `lower` suits is suited by `higher`, which is tried first and has no limit."""
    if higher.spec.weight <= lower.spec.weight or higher.is_static or lower.is_static or higher.spec.limits:
        return False
    if higher.node_class_ref != lower.node_class_ref:
        return False  # it may have other zones
    keeps_off = {(one.key, one.value, one.effect) for one in higher.taints if one.effect != names.PREFER_NO_SCHEDULE}
    if not keeps_off <= {(one.key, one.value, one.effect) for one in lower.taints}:
        return False
    if any(key not in high for key in low if key not in well_known):
        return False  # a label of its own, which pods may select
    return low.implies(high)
