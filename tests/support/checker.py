"""A second judge of placements: dicts, loops and the rules of kube-scheduler, nothing of provisioner.scheduling's engine.

It knows the values of a problem and of a result, and reads pods, labels and taints by itself.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from provisioner.apis import names
from provisioner.apis.core import NodeSelectorRequirement
from provisioner.apis.names import LABEL_ALIASES
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.problem import Bin, Pool, Problem
from provisioner.scheduling.reasons import PodGated, PodInvalid, UnsupportedConstraint
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.taints import Taint, Toleration

Labels = Mapping[str, str]
READY = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}


# --- one pod and one node, by kube-scheduler's rules ---


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    if taint.effect == "PreferNoSchedule":
        return True
    for one in tolerations:
        effect = one.effect in {"", taint.effect}
        if one.operator == "Exists":
            if effect and one.key in {"", taint.key}:
                return True
        elif effect and one.key == taint.key and one.value == taint.value:
            return True
    return False


def label(labels: Labels, key: str) -> str | None:
    stable = LABEL_ALIASES.get(key, key)
    if stable in labels:
        return labels[stable]
    for alias, meant in LABEL_ALIASES.items():
        if meant == stable and alias in labels:
            return labels[alias]
    return None


def expression_holds(expression: NodeSelectorRequirement, value: str | None) -> bool:
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                number, bound = int(value or ""), int(expression.values[0])
            except ValueError:
                return False
            return number > bound if expression.operator == "Gt" else number < bound
        case _:
            raise AssertionError(expression)


def filter_matches(shape: PodShape, labels: Labels, node_name: str) -> bool:
    for key, value in shape.node_selector.items():
        if label(labels, key) != value:
            return False
    node_affinity = None if shape.affinity is None else shape.affinity.node_affinity
    if node_affinity is None or node_affinity.required is None:
        return True
    for term in node_affinity.required.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        if all(expression_holds(one, label(labels, one.key)) for one in term.match_expressions) and all(
            expression_holds(one, node_name) for one in term.match_fields
        ):
            return True
    return False


def admits(shape: PodShape, labels: Labels, taints: Iterable[Taint], node_name: str = "") -> bool:
    return all(tolerated(shape.tolerations, taint) for taint in taints) and filter_matches(shape, labels, node_name)


def needs(shapes: Iterable[PodShape]) -> dict[str, int]:
    total: dict[str, int] = {}
    for shape in shapes:
        for name, amount in shape.requests.items():
            total[name] = total.get(name, 0) + amount
    return total


def fits(wanted: Mapping[str, int], room: Mapping[str, int]) -> bool:
    if any(amount < 0 for amount in room.values()):
        return False
    return all(amount <= 0 or amount <= room.get(name, 0) for name, amount in wanted.items())


# --- the machines that a claim may become ---


def holds(requirement: Requirement, value: str | None) -> bool:
    return not requirement.present if value is None else requirement.has(value)


def machines(
    problem: Problem, pool: Pool, instance_type: InstanceType, asked: Requirements, shapes: Iterable[PodShape]
) -> Iterator[dict[str, str]]:
    """Label sets of every machine of one type that `asked` allows; custom labels with a choice are tried in turn.

    Of a type's labels only those count that its provider vouches for.
    """
    vouched = names.WELL_KNOWN_LABELS | problem.well_known
    own = {key: one for key, one in instance_type.requirements.items() if key in vouched}
    mentioned = mentioned_values(shapes)
    for offering in instance_type.offerings:
        if not offering.available:
            continue
        labels = dict(READY)
        for source in (pool.requirements, own, offering.requirements):
            for key, requirement in source.items():
                if requirement.is_single is not None:
                    labels[key] = requirement.is_single
        choices = []
        open_keys = [
            (key, requirement)
            for source in (pool.requirements, own)
            for key, requirement in source.items()
            if key not in labels and (source is own or (key not in own and key not in vouched))
        ]
        for key, requirement in open_keys:
            narrowed = asked.requirement(key) if key in asked else requirement
            values: set[str] = set(narrowed.values) if not narrowed.complement else {narrowed.any_value()}
            values |= {value for value in mentioned.get(key, ()) if narrowed.has(value)}
            options: list[str | None] = [value for value in sorted(values) if value]
            if not narrowed.present:
                options.append(None)
            choices.append([(key, value) for value in options])
        for chosen in itertools.product(*choices):
            node = labels | {key: value for key, value in chosen if value is not None}
            if all(holds(one, node.get(key)) for key, one in asked.items()):
                yield node


def mentioned_values(shapes: Iterable[PodShape]) -> dict[str, set[str]]:
    """Values by label that pods speak of, and their neighbours where they are bounds."""
    found: dict[str, set[str]] = {}
    for shape in shapes:
        for key, value in shape.node_selector.items():
            found.setdefault(key, set()).add(value)
        node_affinity = None if shape.affinity is None else shape.affinity.node_affinity
        if node_affinity is None or node_affinity.required is None:
            continue
        for term in node_affinity.required.node_selector_terms:
            for one in term.match_expressions:
                for value in one.values:
                    found.setdefault(one.key, set()).add(value)
                    if one.operator in {"Gt", "Lt"}:
                        found[one.key] |= {str(int(value) + 1), str(int(value) - 1)}
    return found


def daemons_on(problem: Problem, pool: Pool, labels: Labels) -> list[PodShape]:
    return [one for one in problem.daemons if not one.error and admits(one, labels, pool.taints)]


def takes(problem: Problem, pool: Pool, instance_type: InstanceType, labels: Labels, shapes: list[PodShape]) -> bool:
    """Whether all of `shapes` may run together on this machine, beside its daemons."""
    if not all(admits(shape, labels, pool.taints, "\0new") for shape in shapes):
        return False
    return fits(needs([*shapes, *daemons_on(problem, pool, labels)]), instance_type.allocatable)


def possible_types(problem: Problem, pool: Pool, asked: Requirements, shapes: list[PodShape]) -> list[InstanceType]:
    """Types of which some machine that can be had takes all of `shapes`."""
    return [
        one
        for one in pool.instance_types
        if all(
            holds(requirement, None) or requirement.intersects(one.requirements[key])
            if key in one.requirements
            else True
            for key, requirement in asked.items()
        )
        and any(takes(problem, pool, one, labels, shapes) for labels in machines(problem, pool, one, asked, shapes))
    ]


def serves_min_values(pool: Pool, asked: Requirements, types: Iterable[InstanceType]) -> bool:
    listed = list(types)
    for key, requirement in pool.requirements.items():
        if requirement.min_values is not None:
            values = {
                value
                for one in listed
                if key in one.requirements and not one.requirements[key].complement
                for value in one.requirements[key].values
                if asked.requirement(key).has(value)
            }
            if len(values) < requirement.min_values:
                return False
    return True


def counted(capacity: Mapping[str, int]) -> dict[str, int]:
    return {**capacity, "nodes": 1}


def left_of(pool: Pool, claims: Iterable[PlannedClaim]) -> dict[str, int]:
    """What the pool's limits leave after these claims, by limited resource."""
    left = dict(pool.remaining or {})
    for claim in claims:
        for name in left:
            left[name] -= claim.charge.get(name, 0)
    return left


# --- the whole result ---


def violations(problem: Problem, result: Result) -> list[str]:
    """Everything that is wrong with a result; empty for a good one."""
    return [
        *_not_once(problem, result),
        *_bins_wrong(problem, result),
        *(text for claim in result.claims for text in _claim_wrong(problem, claim)),
        *_limits_wrong(problem, result),
        *_overlooked(problem, result),
    ]


def _not_once(problem: Problem, result: Result) -> Iterator[str]:
    seen: dict[str, int] = {}
    for pod in itertools.chain(
        *(claim.pods for claim in result.claims), *result.existing.values(), (one.pod for one in result.unplaced)
    ):
        seen[pod.uid] = seen.get(pod.uid, 0) + 1
    for pod in problem.pods:
        if seen.pop(pod.uid, 0) != 1:
            yield f"{pod.name} is not in exactly one place"
    yield from (f"{uid} is not of this problem" for uid in seen)
    yield from (f"{one.pod.name} has no reason" for one in result.unplaced if not one.reasons or not str(one))
    yield from (f"{one.pod.name}: {one}" for one in result.unplaced if "please report" in str(one))


def _bins_wrong(problem: Problem, result: Result) -> Iterator[str]:
    by_name = {one.name: one for one in problem.bins}
    for name, pods in result.existing.items():
        one = by_name[name]
        for pod in pods:
            if not admits(pod.shape, one.labels, one.taints, one.node_name):
                yield f"{pod.name} is not admitted on {name}"
        if not fits(needs(pod.shape for pod in pods), one.room):
            yield f"{name} is too small for {[pod.name for pod in pods]}"


def _claim_wrong(problem: Problem, claim: PlannedClaim) -> Iterator[str]:
    pool = next(one for one in problem.pools if one.name == claim.pool)
    by_name = {one.name: one for one in pool.instance_types}
    shapes = [pod.shape for pod in claim.pods]
    if not claim.pods:
        yield f"{claim!r} has no pods"
    if len(set(claim.instance_types)) != len(claim.instance_types):
        yield f"{claim!r} lists a type twice"
    named = claim.requirements["node.kubernetes.io/instance-type"].values
    if len(named) > 600 or not named <= set(claim.instance_types):
        yield f"{claim!r} names {len(named)} types"
    if not READY.keys().isdisjoint(claim.requirements):
        yield f"{claim!r} says labels that are only simulated"
    prices: dict[str, float] = {}
    for name in claim.instance_types:
        one = by_name[name]
        offered = [
            (labels, offering.price)
            for offering in one.offerings
            for labels in machines(problem, pool, _only(one, offering), claim.requirements, shapes)
            if name in named and _agrees(labels, claim)
        ]
        for labels, _ in offered:
            if not takes(problem, pool, one, labels, shapes):
                yield f"{claim!r} does not hold its pods on {name} with {labels}"
        if name in named and not offered:
            yield f"{claim!r} names {name}, which cannot be had"
        if offered:
            prices[name] = min(price for _, price in offered)
    in_order = [prices[name] for name in claim.instance_types if name in prices]
    if [round(price * 1e6) for price in in_order] != sorted(round(price * 1e6) for price in in_order):
        yield f"{claim!r} does not list the cheapest first"
    if in_order and (
        round(in_order[0] * 1e6) != round(claim.usd_per_hour * 1e6) or claim.instance_types[0] != claim.planned_type
    ):
        yield f"{claim!r} is not planned as the cheapest, {in_order[0]} $/h"
    if not serves_min_values(pool, claim.requirements, [by_name[name] for name in named]):
        yield f"{claim!r} breaks minValues"
    if not fits(needs(shapes), claim.requests):
        yield f"{claim!r} requests less than its pods"


def _only(one: InstanceType, offering: object) -> InstanceType:
    return InstanceType(
        one.name, one.requirements, one.capacity, one.overhead, tuple(o for o in one.offerings if o is offering)
    )


def _agrees(labels: Labels, claim: PlannedClaim) -> bool:
    """Whether the custom labels are those that the claim gives its node."""
    return all(labels.get(key, value) == value for key, value in claim.labels.items())


def _limits_wrong(problem: Problem, result: Result) -> Iterator[str]:
    for pool in problem.pools:
        own = [claim for claim in result.claims if claim.pool == pool.name]
        if pool.remaining is None or not own:
            continue
        by_name = {one.name: one for one in pool.instance_types}
        left = left_of(pool, own)
        for name, amount in left.items():
            if amount < 0:
                yield f"{pool.name} exceeds its limit on {name} by {-amount}"
        for claim in own:
            charged = {name: counted(claim.capacity).get(name, 0) for name in pool.remaining}
            if any(one.min_values for one in pool.requirements.values()):
                charged = {name: max(amount, claim.charge.get(name, 0)) for name, amount in charged.items()}
            if charged != dict(claim.charge):
                yield f"{claim!r} is charged with {dict(claim.charge)} instead of {charged}"
            others = left_of(pool, [one for one in own if one is not claim])
            for type_name in claim.instance_types:
                for name, amount in others.items():
                    if counted(by_name[type_name].capacity).get(name, 0) > amount:
                        yield f"{claim!r} could become {type_name}, over the limit on {name}"


def _overlooked(problem: Problem, result: Result) -> Iterator[str]:
    seen = set()
    for one in result.unplaced:
        judged = not isinstance(one.reasons[0], PodInvalid | PodGated | UnsupportedConstraint)
        if judged and one.pod.shape.key not in seen:
            seen.add(one.pod.shape.key)
            yield from (f"{one.pod.name} would fit {place}" for place in places_for(problem, result, one.pod))


def places_for(problem: Problem, result: Result, pod: Pod) -> Iterator[str]:
    """Everywhere that one more pod would fit into a finished result."""
    shape = pod.shape
    for one in problem.bins:
        placed = [other.shape for other in result.existing.get(one.name, ())]
        if admits(shape, one.labels, one.taints, one.node_name) and fits(needs([*placed, shape]), _room(one)):
            yield f"on {one.name}"
    pools = {pool.name: pool for pool in problem.pools}
    for claim in result.claims:
        pool = pools[claim.pool]
        shapes = [*(other.shape for other in claim.pods), shape]
        asked = _unsettled(problem, pool, claim)
        types = [one for one in possible_types(problem, pool, asked, shapes) if one.name in claim.instance_types]
        if types and serves_min_values(pool, asked, types):
            yield f"on {claim!r} as {types[0].name}"
    for pool in problem.pools:
        left = left_of(pool, [claim for claim in result.claims if claim.pool == pool.name])
        types = [
            one
            for one in possible_types(problem, pool, pool.requirements, [shape])
            if all(counted(one.capacity).get(name, 0) <= amount for name, amount in left.items())
        ]
        if types and serves_min_values(pool, pool.requirements, types):
            yield f"on a new {types[0].name} of {pool.name}"


def _room(one: Bin) -> dict[str, int]:
    return dict(one.room)


def _unsettled(problem: Problem, pool: Pool, claim: PlannedClaim) -> Requirements:
    """The claim's requirements; what it says of types and capacity types is looked up from its list instead."""
    del problem
    return Requirements.of(
        pool.requirements.get(key, one) if key == "karpenter.sh/capacity-type" else one
        for key, one in claim.requirements.items()
        if key != "node.kubernetes.io/instance-type"
    ).merged(pool.requirements)
