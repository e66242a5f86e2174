"""A second judge of results: dicts, loops and the rules of kube-scheduler, nothing of provisioner.scheduling's engine.

It knows the values of a problem and of a result. What kube-scheduler would say is asked of `kubescheduler.World`; what a
claim may become, what limits and minValues allow, and what was overlooked is worked out here.

A result is good when every pod is in exactly one place; when there is an order in which kube-scheduler would bind every
pod where it was put, whichever of its allowed nodes a claim becomes; when each claim says of itself what is true; when
limits, minValues and reservations are kept; and when no unplaced pod fits alone into what came out, not even
at the cost of pods of lower priority.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import structs

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.problem import Bin, DevicePolicy, MinValuesPolicy, SchedulingPool
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import EMPTY
from tests.support.kubescheduler import (
    Labels,
    NodeInfo,
    World,
    admits,
    filter_matches,
    fits,
    near_terms,
    needs,
    selected,
    tolerated,
    topology_keys,
)
from tests.support.question import Problem

__all__ = ["left_of", "places_for", "tolerated", "violations", "world_of"]

READY = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
NEW = "\0new"
"""Node name of every node to come: no matchFields can name it."""


# --- the nodes that a claim may become ---


@dataclass(frozen=True)
class Option:
    """One node that could be had: a type, an offering and the labels that its node would get."""

    pool: SchedulingPool
    type: InstanceType
    offering: Offering
    labels: dict[str, str]


def holds(requirement: Requirement, value: str | None) -> bool:
    return not requirement.present if value is None else requirement.has(value)


def options_of_type(
    problem: Problem, pool: SchedulingPool, instance_type: InstanceType, asked: Requirements, shapes: Iterable[PodShape]
) -> Iterator[Option]:
    """Every node of one type that `asked` allows; custom labels with a choice are tried in turn.

    Of a type's labels only those count that its provider vouches for.
    """
    vouched = names.WELL_KNOWN_LABELS | problem.well_known
    own = {key: one for key, one in instance_type.requirements.items() if key in vouched}
    mentioned = mentioned_values(problem, shapes)
    for offering in instance_type.offerings:
        if not offering.available:
            continue
        labels = dict(READY)
        for source in (pool.requirements, own, offering.requirements):
            for key, requirement in source.items():
                if requirement.single_value is not None:
                    labels[key] = requirement.single_value
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
                yield Option(pool, instance_type, offering, node)


def mentioned_values(problem: Problem, shapes: Iterable[PodShape]) -> dict[str, set[str]]:
    """Values by label that pods and nodes speak of, and their neighbours where they are bounds."""
    found: dict[str, set[str]] = {}
    for one in problem.bins:
        for key, value in one.labels.items():
            found.setdefault(key, set()).add(value)
    for shape in shapes:
        for key, value in shape.node_selector.items():
            found.setdefault(key, set()).add(value)
        node_affinity = None if shape.affinity is None else shape.affinity.node_affinity
        if node_affinity is None or node_affinity.required is None:
            continue
        for term in node_affinity.required.node_selector_terms:
            for expression in term.match_expressions:
                for value in expression.values:
                    found.setdefault(expression.key, set()).add(value)
                    if expression.operator in {"Gt", "Lt"}:
                        found[expression.key] |= {str(int(value) + 1), str(int(value) - 1)}
    return found


def daemons_on(problem: Problem, pool: SchedulingPool, labels: Labels) -> tuple[PodShape, ...]:
    return tuple(one for one in problem.daemons if not one.error and admits(one, labels, pool.taints))


def pods_of(daemons: Iterable[PodShape], name: str) -> tuple[Pod, ...]:
    """The pods of DaemonSets on a node; their requests are taken off its room already."""
    return tuple(
        Pod(
            name=f"daemon-{number}-{name}",
            namespace=shape.namespace,
            uid=f"{name}/{number}",
            shape=structs.replace(shape, requests=EMPTY),
            labels=shape.labels,
            node_name=NEW,
        )
        for number, shape in enumerate(daemons)
    )


def first_and_late(daemons: Iterable[PodShape], name: str) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Their pods: those that wait for nobody, so that they are there first, and those that must be near others."""
    pods = pods_of(daemons, name)
    late = tuple(one for one in pods if near_terms(one.shape))
    return tuple(one for one in pods if one not in late), late


def due_on(problem: Problem, one: Bin) -> tuple[PodShape, ...]:
    """The DaemonSets of which no pod is on an existing node that they may use."""
    return tuple(
        shape
        for shape in problem.daemons
        if not shape.error
        and admits(shape, one.labels, one.taints, one.node_name)
        and not any(pod.namespace == shape.namespace and shape.labels.items() <= pod.labels.items() for pod in one.pods)
    )


def attach_limits(problem: Problem, kind: str, types: Iterable[InstanceType]) -> dict[str, int]:
    """By driver, the most volumes of a node of this kind whose CSINode says nothing; its own type is among `types`, if it is known."""
    prefix = "attachable-volumes-csi-"
    own = [one.capacity.items() for one in types if one.name == kind]
    told = {key.removeprefix(prefix): amount for some in own for key, amount in some if key.startswith(prefix)}
    told |= {driver: count for one in types if one.name == kind for driver, count in one.attach_limits.items()}
    return told | dict(problem.storage.attach_limits.get(kind, {}))


def node_info(problem: Problem, option: Option, name: str) -> NodeInfo:
    """What kube-scheduler would see, once it is ready, of a node that nothing runs on yet."""
    daemons = daemons_on(problem, option.pool, option.labels)
    taken = needs(daemons)
    room = {key: amount - taken.get(key, 0) for key, amount in option.type.allocatable.items()}
    room |= {key: -amount for key, amount in taken.items() if key not in room and amount > 0}
    first, late = first_and_late(daemons, name)
    return NodeInfo(
        name=name,
        labels={**option.labels, names.HOSTNAME_LABEL: name},
        room=room,
        taints=option.pool.taints,
        node_name=NEW,
        daemons=daemons,
        pods=first,
        late=late,
        attach=attach_limits(problem, option.type.name, [option.type]),
        overflowing=any(amount < 0 for amount in room.values()),
    )


# --- the world that a result makes ---


def labels_of(one: Bin) -> dict[str, str]:
    """The labels of a node; one that has no Node yet will have a hostname."""
    return dict(one.labels) if one.node_name else {names.HOSTNAME_LABEL: f"that of {one.name}", **one.labels}


def node_info_of_bin(problem: Problem, one: Bin) -> NodeInfo:
    asked = {pod.uid for pod in problem.pods}
    first, late = first_and_late(due_on(problem, one), one.name)
    types = [kind for pool in problem.pools if pool.name == one.pool for kind in pool.instance_types]
    return NodeInfo(
        name=one.name,
        labels=labels_of(one),
        room=dict(one.room),
        taints=one.taints,
        node_name=one.node_name,
        pods=(*(pod for pod in one.pods if pod.uid not in asked), *first),
        late=late,
        attach=attach_limits(problem, one.labels.get(names.INSTANCE_TYPE_LABEL, ""), types) | dict(one.attach_limits),
        features=one.features,
        leaving=one.leaving,
        closed=one.closed,
    )


def world_of(problem: Problem, options: Iterable[tuple[str, Option]] = ()) -> World:
    """The existing nodes and these new ones, with nothing of the problem placed yet."""
    return World(
        nodes=[
            *(node_info_of_bin(problem, one) for one in problem.bins),
            *(node_info(problem, option, name) for name, option in options),
        ],
        namespaces=problem.namespaces,
        claims=problem.storage.claims,
        volumes=problem.storage.volumes,
        classes=problem.storage.classes,
        spread={pod.uid: default_spread(problem, pod) for pod in problem.pods if not pod.shape.spread},
        ignore_devices=problem.devices is DevicePolicy.IGNORE,
    )


def default_spread(problem: Problem, pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
    """The cluster's default constraints, with the selector that kube-scheduler deduces for this pod."""
    defaults = problem.spread_defaults
    labels: dict[str, str] = {}
    for one in defaults.services.get(pod.namespace, ()):
        if selected(LabelSelector(match_labels=dict(one)), pod.labels):
            labels |= one
    expressions: list[LabelSelectorRequirement] = []
    controller = None if pod.owner is None else defaults.controllers.get(pod.owner.uid)
    if controller is not None:
        expressions += [
            LabelSelectorRequirement(key=key, operator="In", values=(value,))
            for key, value in controller.match_labels.items()
        ]
        expressions += controller.match_expressions
    if not labels and not expressions:
        return ()
    selector = LabelSelector(match_labels=labels, match_expressions=tuple(expressions))
    return tuple(
        TopologySpreadConstraint(
            max_skew=one.max_skew,
            topology_key=one.topology_key,
            when_unsatisfiable=one.when_unsatisfiable,
            label_selector=selector,
            min_domains=one.min_domains,
            node_affinity_policy=one.node_affinity_policy,
            node_taints_policy=one.node_taints_policy,
        )
        for one in defaults.constraints
    )


def claim_name(number: int, claim: PlannedClaim) -> str:
    return f"claim-{number}-of-{claim.pool}"


def pool_of(problem: Problem, claim: PlannedClaim) -> SchedulingPool:
    return next(one for one in problem.pools if one.name == claim.pool)


def options_of(problem: Problem, claim: PlannedClaim) -> list[Option]:
    """Every node that the claim may become, by what it says."""
    pool = pool_of(problem, claim)
    shapes = [pod.shape for pod in claim.pods]
    return [
        option
        for one in pool.instance_types
        if one.name in claim.instance_types
        for option in options_of_type(problem, pool, one, claim.requirements, shapes)
        if all(option.labels.get(key, value) == value for key, value in claim.labels.items())
    ]


def nominal(claim: PlannedClaim, options: Iterable[Option]) -> Option | None:
    """The planned one among them."""
    for one in options:
        planned = (claim.planned_type, claim.planned_zone, claim.planned_capacity_type)
        if planned == (one.type.name, one.offering.zone, one.offering.capacity_type):
            return one
    return None


def could_be_made(problem: Problem, shapes: Iterable[PodShape]) -> tuple[NodeInfo, ...]:
    """One node of every kind that any pool may make."""
    listed = list(shapes)
    return tuple(
        node_info(problem, option, "could-be")
        for pool in problem.pools
        for one in pool.instance_types
        for option in options_of_type(problem, pool, one, pool.requirements, listed)
    )


def placements_of(result: Result) -> list[tuple[Pod, str]]:
    placed = [(pod, name) for name, pods in result.existing.items() for pod in pods]
    placed += [(pod, claim_name(n, claim)) for n, claim in enumerate(result.claims) for pod in claim.pods]
    return placed


# --- minValues and limits ---


def short_of_min_values(
    wanted: Mapping[str, Requirement], asked: Requirements, types: Iterable[InstanceType]
) -> list[str]:
    """Keys of which `types` have too few values."""
    listed = list(types)
    short = []
    for key, requirement in wanted.items():
        if requirement.min_values is not None:
            values = {
                value
                for one in listed
                if key in one.requirements and not one.requirements[key].complement
                for value in one.requirements[key].values
                if asked.requirement(key).has(value)
            }
            if len(values) < requirement.min_values:
                short.append(key)
    return short


def counted(capacity: Mapping[str, int]) -> dict[str, int]:
    return {**capacity, "nodes": 1}


def left_of(pool: SchedulingPool, claims: Iterable[PlannedClaim]) -> dict[str, int]:
    """What the pool's limits leave after these claims, by limited resource."""
    left = dict(pool.remaining or {})
    for claim in claims:
        for name in left:
            left[name] -= claim.charge.get(name, 0)
    return left


# --- the whole result ---


def violations(problem: Problem, result: Result) -> list[str]:
    """Everything that is wrong with a result; empty for a good one."""
    structure = [*_not_once(problem, result)]
    claims = [text for claim in result.claims for text in _claim_wrong(problem, claim)]
    found = [*structure, *claims, *_bins_wrong(problem, result), *_limits_wrong(problem, result)]
    found += _reservations_wrong(problem, result)
    found += _order_wrong(problem, result)
    if not structure and not claims:
        found += _overlooked(problem, result)
        found += _priority_wrong(problem, result)
    return found


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
        if one.leaving:
            yield f"{name} is leaving and takes {[pod.name for pod in pods]}"
        if one.closed:
            yield f"{name} takes nothing now and takes {[pod.name for pod in pods]}"
        if not pods:
            yield f"{name} is listed without pods"
        for pod in pods:
            if not admits(pod.shape, labels_of(one), one.taints, one.node_name):
                yield f"{pod.name} is not admitted on {name}"
        if not fits(needs(pod.shape for pod in pods), dict(one.room)):
            yield f"{name} is too small for {[pod.name for pod in pods]}"


def _claim_wrong(problem: Problem, claim: PlannedClaim) -> Iterator[str]:  # noqa: C901 - one law after the other
    """What the claim says of itself, and whether every node that it may become holds its pods."""
    pool = pool_of(problem, claim)
    by_name = {one.name: one for one in pool.instance_types}
    shapes = [pod.shape for pod in claim.pods]
    if not claim.pods:
        yield f"{claim!r} has no pods"
    if claim.template is not pool.template:
        yield f"{claim!r} carries another template"
    if len(set(claim.instance_types)) != len(claim.instance_types):
        yield f"{claim!r} lists a type twice"
    named = claim.requirements["node.kubernetes.io/instance-type"].values
    if len(named) > 600 or not named <= set(claim.instance_types):
        yield f"{claim!r} names {len(named)} types"
    if not READY.keys().isdisjoint(claim.requirements):
        yield f"{claim!r} says labels that are only simulated"
    for key, requirement in pool.requirements.items():
        if key not in claim.requirements and key not in READY:
            yield f"{claim!r} drops the pool's requirement {requirement}"
    prices: dict[str, float] = {}
    least: dict[str, int] = {}
    options = options_of(problem, claim)
    for name in claim.instance_types:
        if name not in by_name:
            yield f"{claim!r} lists {name}, which the pool does not have"
            continue
        own = [one for one in options if one.type.name == name]
        for option in own:
            world = world_of(problem, [("claim", option)])
            for number, pod in enumerate(claim.pods):
                why = world.misfit(pod, world.node("claim"))
                if why and name in named:
                    yield (
                        f"{claim!r} does not hold its pods on {name} with {option.labels}: {pod.name}, number {number}: {why}"
                    )
                    break
                world.node("claim").placed.append(pod)
            for key, amount in needs(daemons_on(problem, pool, option.labels)).items():
                least[key] = min(least.get(key, amount), amount)
        if name in named and not own:
            yield f"{claim!r} names {name}, which cannot be had"
        if own:
            prices[name] = min(one.offering.price for one in own)
    in_order = [prices[name] for name in claim.instance_types if name in prices]
    if [round(price * 1e6) for price in in_order] != sorted(round(price * 1e6) for price in in_order):
        yield f"{claim!r} does not list the cheapest first"
    if in_order and (
        round(in_order[0] * 1e6) != round(claim.usd_per_hour * 1e6) or claim.instance_types[0] != claim.planned_type
    ):
        yield f"{claim!r} is not planned as the cheapest, {in_order[0]} $/h"
    planned = nominal(claim, options)
    if planned is None:
        yield f"{claim!r} is planned as what its own requirements do not allow"
    else:
        if round(planned.offering.price * 1e6) != round(claim.usd_per_hour * 1e6):
            yield f"{claim!r} costs {planned.offering.price}"
        if (planned.type.capacity, planned.type.allocatable) != (claim.capacity, claim.allocatable):
            yield f"{claim!r} has the size of another type"
    types = [by_name[name] for name in sorted(named & by_name.keys())]
    if problem.min_values is MinValuesPolicy.BEST_EFFORT:
        lowered = short_of_min_values(pool.requirements, claim.requirements, types)
        if bool(lowered) != claim.min_values_relaxed:
            yield f"{claim!r} tells wrongly whether minValues were relaxed"
        if short_of_min_values(claim.requirements, claim.requirements, types):
            yield f"{claim!r} breaks the minValues that it asks for itself"
    elif short_of_min_values(pool.requirements, claim.requirements, types) or claim.min_values_relaxed:
        yield f"{claim!r} breaks minValues"
    if not fits(needs(shapes), dict(claim.requests)):
        yield f"{claim!r} requests less than its pods"
    most = needs(shapes)
    for key, amount in claim.requests.items():
        if amount > most.get(key, 0) + sum(one.requests.get(key, 0) for one in problem.daemons):
            yield f"{claim!r} requests more {key} than its pods and all daemons"


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
        for name in pool.remaining:
            most = sum(
                max(counted(by_name[one].capacity).get(name, 0) for one in claim.instance_types) for claim in own
            )
            if most > pool.remaining[name]:
                yield f"{pool.name} could exceed its limit on {name}, were the largest types launched"
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


def _reservations_wrong(problem: Problem, result: Result) -> Iterator[str]:
    """Each node of a reservation is held by one claim at most; a claim that holds some asks for nothing else."""
    capacity: dict[str, int] = {}
    label = problem.reservation_label
    if label:
        for pool in problem.pools:
            for one in pool.instance_types:
                for offering in one.offerings:
                    name = offering.requirements.requirement(label).single_value
                    if offering.capacity_type == names.CAPACITY_RESERVED and name:
                        known = capacity.get(name, offering.reservation_capacity)
                        capacity[name] = min(known, offering.reservation_capacity)
        for name, amount in capacity.items():
            held = sum(1 for claim in result.claims if name in claim.reservations)
            if held > amount:
                yield f"{held} claims hold reservation {name}, which has {amount} nodes"
    for claim in result.claims:
        if list(claim.reservations) != sorted(set(claim.reservations)):
            yield f"{claim!r} lists its reservations in disorder"
        kinds = claim.requirements.requirement(names.CAPACITY_TYPE_LABEL)
        if claim.reservations and kinds.single_value != names.CAPACITY_RESERVED:
            yield f"{claim!r} holds reservations and may become something else"
        if not claim.reservations and kinds.has(names.CAPACITY_RESERVED) and not kinds.complement:
            yield f"{claim!r} asks for reserved capacity that it does not hold"


# --- is there an order in which kube-scheduler binds everything as planned? ---


def _order_wrong(problem: Problem, result: Result) -> Iterator[str]:
    options = {claim_name(n, claim): options_of(problem, claim) for n, claim in enumerate(result.claims)}
    chosen: dict[str, Option] = {}
    for number, claim in enumerate(result.claims):
        name = claim_name(number, claim)
        planned = nominal(claim, options[name])
        if planned is None:
            return
        chosen[name] = planned
    placements = placements_of(result)
    for pod, why in world_of(problem, chosen.items()).stuck(placements):
        yield f"{pod.name} cannot be bound as planned, in whatever order: {why}"
    everyone = [*problem.pods, *(pod for one in problem.bins for pod in one.pods)]
    keys = topology_keys(everyone, world_of(problem)) | _counting_labels(problem)
    keys.discard(names.HOSTNAME_LABEL)
    if not keys:
        return
    for name, otherwise in _otherwise(options, chosen, keys):
        for pod, why in world_of(problem, otherwise.items()).stuck(placements):
            kind = f"{otherwise[name].offering.zone}, {otherwise[name].offering.capacity_type}"
            yield f"{name} may as well come to {kind}, and then {pod.name} cannot be bound: {why}"


# --- what was overlooked ---


def _overlooked(problem: Problem, result: Result) -> Iterator[str]:
    seen = set()
    for one in result.unplaced:
        klass = (one.pod.shape.key, one.pod.owner, tuple(sorted(one.pod.labels.items())))
        if klass in seen or _excused(problem, one.pod):
            continue
        seen.add(klass)
        yield from (f"{one.pod.name} would fit {place}" for place in places_for(problem, result, one.pod))


def _excused(problem: Problem, pod: Pod) -> bool:
    """Left out for reasons that kube-scheduler does not have.

    A local volume's node to come (Karpenter drops the host name, kube-scheduler does not), and a claim of an ephemeral volume
    that is not made yet.
    """
    world = world_of(problem)
    for key, ephemeral in world.claim_keys(pod):
        claim = problem.storage.claims.get(key)
        if claim is None:
            if ephemeral:
                return True
            continue
        volume = problem.storage.volumes.get(claim.spec.volume_name)
        if volume is not None and (volume.spec.local is not None or volume.spec.host_path is not None):
            return True
        kind = problem.storage.classes.get(claim.spec.storage_class_name or "")
        if kind is not None and kind.provisioner == "kubernetes.io/no-provisioner":
            return True
    return False


def places_for(problem: Problem, result: Result, pod: Pod) -> Iterator[str]:
    """Everywhere that one more pod would fit into a finished result.

    Domains where nodes could be made count as empty ones for its spread, as in design 3b.9, so that what this names is
    legal whether they are counted or not.
    """
    options = {claim_name(n, claim): options_of(problem, claim) for n, claim in enumerate(result.claims)}
    chosen: dict[str, Option] = {}
    for number, claim in enumerate(result.claims):
        planned = nominal(claim, options[claim_name(number, claim)])
        if planned is None:
            return
        chosen[claim_name(number, claim)] = planned
    keys = topology_keys([*problem.pods, *(one for bin_ in problem.bins for one in bin_.pods)], world_of(problem))
    keys |= _counting_labels(problem)
    could_be = could_be_made(problem, [pod.shape])
    placements = placements_of(result)

    def finished(nodes_to_come: Mapping[str, Option]) -> World | None:
        """The world with everything bound; None where that is impossible."""
        world = world_of(problem, nodes_to_come.items())
        world.more_domains = could_be
        return None if world.stuck(placements) else world

    others = list(_otherwise(options, chosen, keys | _asked_labels(pod)))

    def takes(name: str, override: Mapping[str, Option]) -> bool:
        """Whether the node takes the pod, whichever of its allowed nodes any one of the other claims becomes."""
        for base in [chosen, *(one for changed, one in others if changed != name)]:
            world = finished({**base, **override})
            if world is None or world.refusal(pod, world.node(name), strict=True):
                return False
            if any(one.late for one in world.nodes) and world_of(problem, {**base, **override}.items()).stuck(
                [*placements, (pod, name)]
            ):
                return False
        return True

    if finished(chosen) is None:
        return
    for standing in problem.bins:
        if takes(standing.name, {}):
            yield f"on {standing.name}"
    for number, claim in enumerate(result.claims):
        pool = pool_of(problem, claim)
        name = claim_name(number, claim)
        listed = [one for one in pool.instance_types if one.name in claim.instance_types]
        shapes = [*(other.shape for other in claim.pods), pod.shape]
        grown = functools.partial(_takes_as, takes, name)
        found = _good(problem, pool, listed, _unsettled(pool, claim), shapes, grown)
        # Best effort lowers minValues only where a node is opened; what a claim asks for by then is kept.
        if found and not _short(claim.requirements, found):
            yield f"on {claim!r} as {min(option.type.name for option in found)}"
    opened = functools.partial(_takes_as, takes, "one-more")
    for pool in problem.pools:
        left = left_of(pool, [claim for claim in result.claims if claim.pool == pool.name])
        listed = [
            one
            for one in pool.instance_types
            if all(counted(one.capacity).get(name, 0) <= amount for name, amount in left.items())
        ]
        candidates = _good(problem, pool, listed, pool.requirements, [pod.shape], opened)
        found = [option for option in candidates if not _held(problem, result, option)]
        strict = problem.min_values is MinValuesPolicy.STRICT
        if any(not (strict and _short(pool.requirements, one)) for one in _alike(found, keys)):
            yield f"on a new {min(option.type.name for option in found)} of {pool.name}"


def _takes_as(takes: Callable[[str, Mapping[str, Option]], bool], name: str, option: Option) -> bool:
    return takes(name, {name: option})


def _good(
    problem: Problem,
    pool: SchedulingPool,
    types: Iterable[InstanceType],
    asked: Requirements,
    shapes: list[PodShape],
    takes: Callable[[Option], bool],
) -> list[Option]:
    """Nodes that take the pod of the last shape; one of each type unless minValues ask for all."""
    all_count = any(one.min_values for one in pool.requirements.values())
    good: list[Option] = []
    for one in types:
        for option in options_of_type(problem, pool, one, asked, shapes):
            if filter_matches(shapes[-1], option.labels, NEW) and takes(option):
                good.append(option)
                if not all_count:
                    break
    return good


def _asked_labels(pod: Pod) -> set[str]:
    """Labels that the pod's own node filter looks at."""
    affinity = None if pod.shape.affinity is None else pod.shape.affinity.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    return {*pod.shape.node_selector, *(one.key for term in terms for one in term.match_expressions)}


def _counting_labels(problem: Problem) -> set[str]:
    """Labels that decide over which nodes some pod of the problem spreads, and the zone where pods share a claim."""
    world = world_of(problem)
    found = {
        key
        for pod in problem.pods
        if any(one.node_affinity_policy != "Ignore" for one in world.hard_spread(pod))
        for key in _asked_labels(pod)
    }
    claims = [key for pod in problem.pods for key, _ in world.claim_keys(pod)]
    return found | {names.ZONE_LABEL} if len(set(claims)) < len(claims) else found


def _otherwise(
    options: Mapping[str, list[Option]], chosen: Mapping[str, Option], keys: Iterable[str]
) -> Iterator[tuple[str, dict[str, Option]]]:
    """(claim, the chosen nodes with that claim become another that these labels tell apart)."""
    listed = sorted(set(keys) - {names.HOSTNAME_LABEL})
    for name, own in options.items():
        seen = {tuple(chosen[name].labels.get(key) for key in listed)}
        for option in own:
            where = tuple(option.labels.get(key) for key in listed)
            if where not in seen:
                seen.add(where)
                yield name, {**chosen, name: option}


def _held(problem: Problem, result: Result, option: Option) -> bool:
    """Whether the node is of a reservation of which other claims hold all."""
    if option.offering.capacity_type != names.CAPACITY_RESERVED:
        return False
    name = (
        option.offering.requirements.requirement(problem.reservation_label).single_value
        if problem.reservation_label
        else None
    )
    if name is None:
        return True  # whose nodes are which cannot be told from outside
    return sum(1 for claim in result.claims if name in claim.reservations) >= option.offering.reservation_capacity


def _alike(found: Iterable[Option], keys: Iterable[str]) -> list[list[Option]]:
    """The nodes by domain: a claim says the domain of its node wherever that matters to anybody."""
    listed = sorted(set(keys) - {names.HOSTNAME_LABEL})
    by_domain: dict[tuple[str | None, ...], list[Option]] = {}
    for one in found:
        by_domain.setdefault(tuple(one.labels.get(key) for key in listed), []).append(one)
    return list(by_domain.values())


def _short(wanted: Requirements, found: Iterable[Option]) -> bool:
    """Whether nodes of these kinds have too few values for the minValues."""
    listed = list(found)
    return any(
        len({one.labels[key] for one in listed if key in one.labels}) < (requirement.min_values or 0)
        for key, requirement in wanted.items()
    )


def _unsettled(pool: SchedulingPool, claim: PlannedClaim) -> Requirements:
    """The claim's requirements; what it says of types and capacity types is looked up from its list instead."""
    return Requirements.of(
        pool.requirements.get(key, one) if key == "karpenter.sh/capacity-type" and not claim.reservations else one
        for key, one in claim.requirements.items()
        if key != "node.kubernetes.io/instance-type"
    ).merged(pool.requirements)


def _priority_wrong(problem: Problem, result: Result) -> Iterator[str]:
    """An unplaced pod must not fit once everything of lower priority is taken away."""
    seen = set()
    for one in result.unplaced:
        priority = one.pod.shape.priority
        if one.pod.shape.key in seen or _excused(problem, one.pod):
            continue
        seen.add(one.pod.shape.key)
        kept = Result(
            claims=tuple(
                structs.replace(claim, pods=pods)
                for claim in result.claims
                if (pods := tuple(pod for pod in claim.pods if pod.shape.priority >= priority))
            ),
            existing={
                name: tuple(pod for pod in pods if pod.shape.priority >= priority)
                for name, pods in result.existing.items()
            },
            unplaced=(),
        )
        if len(placements_of(kept)) == len(placements_of(result)):
            continue
        for place in places_for(problem, kept, one.pod):
            yield f"{one.pod.name} loses its place {place} to a lower priority"
