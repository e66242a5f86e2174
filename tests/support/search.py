"""Is there any way to place all of these pods? Every assignment is tried, so only small problems can be asked."""

from collections.abc import Iterable, Iterator

from provisioner.apis import names
from provisioner.apis.pods import Pod
from tests.support import checker
from tests.support.kubescheduler import World, filter_matches, topology_keys
from tests.support.question import Problem

MOST_TRIES = 1500
"""Complete assignments that are looked at before the search gives up without an answer."""


class TooHardError(Exception):
    """The search was given up."""


def placeable(problem: Problem, pods: Iterable[Pod]) -> bool:
    """Whether kube-scheduler would bind all of `pods` somewhere, in some order, existing nodes and new ones being free to choose.

    Limits, minValues and reservations are not looked at. Domains where nodes could be made count as empty ones, as the
    solver has to count them.

    Raises:
        TooHardError: too many assignments.
    """
    listed = sorted(pods, key=lambda pod: (pod.shape.key, pod.uid))
    options = _options(problem, listed)
    could_be = checker.could_be_made(problem, [pod.shape for pod in listed])
    tries = 0

    def world_with(chosen: dict[str, checker.Option]) -> World:
        world = checker.world_of(problem, chosen.items())
        world.more_domains, world.strict = could_be, True
        return world

    def complete(chosen: dict[str, checker.Option], placed: list[tuple[Pod, str]]) -> bool:
        nonlocal tries
        tries += 1
        if tries > MOST_TRIES:
            raise TooHardError
        return not world_with(chosen).stuck(placed)

    def extend(chosen: dict[str, checker.Option], placed: list[tuple[Pod, str]]) -> bool:
        if len(placed) == len(listed):
            return complete(chosen, placed)
        pod = listed[len(placed)]
        for name, option in _spots(problem, chosen, options):
            more = chosen if option is None else {**chosen, name: option}
            world = world_with(more)
            for other, where in placed:
                world.node(where).placed.append(other)
            if not world.misfit(pod, world.node(name)) and extend(more, [*placed, (pod, name)]):
                return True
        return False

    return extend({}, [])


def cheapest(problem: Problem, pods: Iterable[Pod]) -> float | None:
    """The price of new nodes in the cheapest way to place all of `pods` that is found by trying; None where none is found.

    Limits, minValues and reservations are not looked at. What it finds is legal, though with many ways not always the cheapest.
    """
    listed = sorted(pods, key=lambda pod: (pod.shape.key, pod.uid))
    shapes = [pod.shape for pod in listed]
    could_be = checker.could_be_made(problem, shapes)
    options = sorted(
        (
            option
            for pool in problem.pools
            for one in pool.instance_types
            for option in checker.options_of_type(problem, pool, one, pool.requirements, shapes)
        ),
        key=lambda option: (option.offering.price, option.type.name),
    )
    best: float | None = None
    tries = 0

    def world_with(chosen: dict[str, checker.Option]) -> World:
        world = checker.world_of(problem, chosen.items())
        world.more_domains, world.strict = could_be, True
        return world

    def extend(chosen: dict[str, checker.Option], placed: list[tuple[Pod, str]], price: float) -> None:
        nonlocal best, tries
        tries += 1
        if tries > MOST_TRIES or (best is not None and price >= best):
            return
        if len(placed) == len(listed):
            if not world_with(chosen).stuck(placed):
                best = price
            return
        pod = listed[len(placed)]
        for name, option in _spots(problem, chosen, options):
            dearer = price if option is None else price + option.offering.price
            if tries > MOST_TRIES or (best is not None and dearer >= best):
                continue
            more = chosen if option is None else {**chosen, name: option}
            world = world_with(more)
            for other, where in placed:
                world.node(where).placed.append(other)
            if not world.misfit(pod, world.node(name)):
                extend(more, [*placed, (pod, name)], dearer)

    extend({}, [], 0.0)
    return best


def _spots(
    problem: Problem, chosen: dict[str, checker.Option], options: list[checker.Option]
) -> Iterator[tuple[str, checker.Option | None]]:
    """Nodes of now, opened ones, and each kind of new one."""
    yield from ((one.name, None) for one in problem.bins)
    yield from ((name, None) for name in chosen)
    yield from ((f"new-{len(chosen)}", option) for option in options)


def _options(problem: Problem, pods: list[Pod]) -> list[checker.Option]:
    """Of nodes that no pod and no topology can tell apart only the roomiest, where one is."""
    shapes = [pod.shape for pod in pods]
    running = [pod for one in problem.bins for pod in one.pods]
    keys = topology_keys([*pods, *running], checker.world_of(problem)) - {names.HOSTNAME_LABEL}
    best: dict[object, list[checker.Option]] = {}
    for pool in problem.pools:
        for one in pool.instance_types:
            for option in checker.options_of_type(problem, pool, one, pool.requirements, shapes):
                node = checker.node_info(problem, option, "x")
                alike = (
                    pool.taints,
                    tuple(option.labels.get(key) for key in sorted(keys)),
                    tuple(filter_matches(shape, option.labels, checker.NEW) for shape in shapes),
                    tuple(sorted(node.attach.items())),
                    tuple(one.key for one in node.daemons),
                    tuple(sorted((k, v) for k, v in option.labels.items() if k in _VOLUME_KEYS)),
                )
                rivals = best.setdefault(alike, [])
                size = option.type.allocatable
                if any(all(rival.type.allocatable.get(k, 0) >= v for k, v in size.items()) for rival in rivals):
                    continue
                rivals.append(option)
    return [option for rivals in best.values() for option in rivals]


_VOLUME_KEYS = (names.ZONE_LABEL, names.REGION_LABEL)


def first_fit(problem: Problem) -> tuple[dict[str, checker.Option], dict[str, str]]:
    """A plain plan, made by asking for each pod and each node: new nodes by name, and the node of each placed pod.

    Higher priorities first; rounds until one brings nothing. Limits and minValues are kept only as far as `nodes` goes.
    """
    chosen: dict[str, checker.Option] = {}
    placed: list[tuple[Pod, str]] = []
    waiting = sorted(problem.pods, key=lambda pod: (-pod.shape.priority, pod.uid))
    options = sorted(
        (
            option
            for pool in problem.pools
            for one in pool.instance_types
            for option in checker.options_of_type(
                problem, pool, one, pool.requirements, [pod.shape for pod in problem.pods]
            )
        ),
        key=lambda option: (-option.pool.weight, option.offering.price, option.offering.zone),
    )
    could_be = checker.could_be_made(problem, [pod.shape for pod in problem.pods])
    progress = True
    while progress:
        progress = False
        for pod in list(waiting):
            for name, option in _spots(problem, chosen, options):
                if option is not None and _beyond(chosen, option):
                    continue
                more = chosen if option is None else {**chosen, name: option}
                world = checker.world_of(problem, more.items())
                world.more_domains, world.strict = could_be, True
                for other, where in placed:
                    world.node(where).placed.append(other)
                if not world.refusal(pod, world.node(name)):
                    chosen = more
                    placed.append((pod, name))
                    waiting.remove(pod)
                    progress = True
                    break
    return chosen, _settled(problem, chosen, placed)


def _settled(problem: Problem, chosen: dict[str, checker.Option], placed: list[tuple[Pod, str]]) -> dict[str, str]:
    """Where pods end up once all nodes are there: what a later node made impossible finds another place or none."""
    world = checker.world_of(problem, chosen.items())
    places = {pod.uid: name for pod, name in world.in_order(placed)}
    progress = True
    while progress:
        progress = False
        for pod in problem.pods:
            spot = next((one for one in world.nodes if pod.uid not in places and not world.refusal(pod, one)), None)
            if spot is not None:
                spot.placed.append(pod)
                places[pod.uid] = spot.name
                progress = True
    return places


def _beyond(chosen: dict[str, checker.Option], option: checker.Option) -> bool:
    """Whether one more such node exceeds a limit of its pool."""
    if option.pool.remaining is None:
        return False
    own = [one for one in chosen.values() if one.pool.name == option.pool.name]
    return any(
        sum(checker.counted(one.type.capacity).get(name, 0) for one in [*own, option]) > amount
        for name, amount in option.pool.remaining.items()
    )
