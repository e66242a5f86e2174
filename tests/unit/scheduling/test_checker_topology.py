"""The checker sees what is wrong with placements that look at other pods, at volumes, ports, priorities and reservations."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from provisioner.apis import names
from provisioner.apis.core import ContainerPort
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.problem import MinValuesPolicy
from provisioner.scheduling.reasons import NoPools
from provisioner.scheduling.result import Result, Unplaced
from provisioner.values.requirement import Requirements
from tests.support import checker
from tests.support.problems import (
    DRIVER,
    apart,
    app,
    instance_type,
    near,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    shape,
    spread,
    storage,
    uses,
    volume,
    volume_claim,
)
from tests.support.question import Problem, solve

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=("a", "b", "c"))
ONE = pool(types=(SMALL,))
WEB = app("web")


@dataclass(frozen=True)
class Damage:
    """A problem, a wrong answer to it, and words that the checker must find for it."""

    problem: Problem
    result: Result
    want: str


def on_bins(**places: tuple[Pod, ...]) -> Result:
    return Result(claims=(), existing=places, unplaced=())


def bound(asked: Problem, want: str, **places: tuple[Pod, ...]) -> Damage:
    """Pods put on existing nodes, against the rules."""
    return Damage(asked, on_bins(**places), want)


def changed(asked: Problem, want: str, change: Callable[[Result], Result]) -> Damage:
    """A good answer made worse."""
    return Damage(asked, change(solve(asked)), want)


def unpinned(result: Result) -> Result:
    """The claims' zones are not said any more."""

    def freed(requirements: Requirements) -> Requirements:
        return Requirements.of(one for key, one in requirements.items() if key != ZONE)

    return replace(
        result, claims=tuple(structs.replace(claim, requirements=freed(claim.requirements)) for claim in result.claims)
    )


def all_left(result: Result) -> Result:
    placed = [pod for pod, _ in checker.placements_of(result)]
    return Result(claims=(), existing={}, unplaced=tuple(Unplaced(one, (NoPools(),)) for one in placed))


def on_port(name: str) -> Pod:
    made = shape("100m")
    fields = {key: getattr(made, key) for key in made.__struct_fields__}
    return pod(name, PodShape(**{**fields, "key": "port", "host_ports": (ContainerPort(host_port=80),)}))


SPREAD = pods(2, of_app("web", "100m", topology_spread_constraints=(spread(ZONE, WEB),)), "w")
APART = pods(2, of_app("web", "100m", affinity=apart(ZONE, WEB)), "w")
NEAR = pods(2, of_app("web", "100m", affinity=near(ZONE, WEB)), "w")
MUTUAL = (
    pod("x", of_app("x", "100m", affinity=near(ZONE, app("y")))),
    pod("y", of_app("y", "100m", affinity=near(ZONE, app("x")))),
)
A, B = node("na", labels={ZONE: "a"}), node("nb", labels={ZONE: "b"})
FULL = [node(f"full-{zone}", "0", labels={ZONE: zone}) for zone in "abc"]
MINDS = node("na", labels={ZONE: "a"}, running=[pod("old", of_app("db", affinity=apart(ZONE, WEB)))])
USING = pods(1, shape("100m", volumes=uses("c")), "v")
TWO = (pod("p0", shape("100m", volumes=uses("c0"))), pod("p1", shape("100m", volumes=uses("c1"))))
HIGH_AND_LOW = (pod("high", shape("4", priority=5)), pod("low", shape("4")))

DAMAGE: dict[str, Damage] = {
    "both in one of two zones": bound(problem(SPREAD, bins=[A, B]), "spread over", na=SPREAD),
    "both in one zone that they keep apart over": bound(problem(APART, bins=[A]), "anti-affinity", na=APART),
    "in the zone of one that minds them": bound(
        problem(SPREAD[:1], bins=[MINDS]), "old keeps it off by anti-affinity", na=SPREAD[:1]
    ),
    "apart though they want to be together": bound(problem(NEAR, bins=[A, B]), "affinity over", na=NEAR[:1], nb=NEAR[1:]),
    "two that only have each other to follow": bound(problem(MUTUAL, bins=[A]), "affinity over", na=MUTUAL),
    "one port for two pods": bound(
        problem([on_port("p"), on_port("q")], bins=[A]), "host port 80", na=(on_port("p"), on_port("q"))
    ),
    "a volume in another zone": bound(
        problem(USING, bins=[A], storage=storage(volume("v", "b"), volume_claim("c", volume="v"))),
        "volume v cannot be reached",
        na=USING,
    ),
    "a claim that does not exist": bound(problem(USING, bins=[A], storage=storage()), "does not exist", na=USING),
    "more volumes than the node takes": bound(
        problem(
            TWO,
            bins=[node("na", attach={DRIVER: 1})],
            storage=storage(*(volume_claim(f"c{number}") for number in range(2))),
        ),
        f"too many volumes of {DRIVER}",
        na=TWO,
    ),
    "a node that is leaving": bound(
        problem(pods(1, prefix="p"), bins=[node("na", leaving=True)]), "is leaving", na=pods(1, prefix="p")
    ),
    "a claim that does not say the zone that its pods need": changed(
        problem(SPREAD, ONE, bins=FULL), "may as well come to", unpinned
    ),
    "a claim that does not say which zone it keeps others out of": changed(
        problem(APART, ONE), "may as well come to", unpinned
    ),
    "pods left though zones are free": changed(problem(SPREAD, ONE), "would fit on a new small", all_left),
    "a lower priority in the place of a higher": Damage(
        problem(HIGH_AND_LOW, bins=[A]),
        Result(claims=(), existing={"na": HIGH_AND_LOW[1:]}, unplaced=(Unplaced(HIGH_AND_LOW[0], (NoPools(),)),)),
        "high loses its place on na to a lower priority",
    ),
    "minValues said to be relaxed though they are kept": changed(
        replace(problem(pods(1, prefix="p"), pool(types=(SMALL,), min_values={ZONE: 1})), min_values=MinValuesPolicy.BEST_EFFORT),
        "tells wrongly whether minValues were relaxed",
        lambda result: replace(result, claims=(structs.replace(result.claims[0], min_values_relaxed=True),)),
    ),
    "a reservation that is said to be held without asking for it": changed(
        problem(pods(1, prefix="p"), ONE),
        "holds reservations and may become something else",
        lambda result: replace(result, claims=(structs.replace(result.claims[0], reservations=("r",)),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_seen(case: Damage) -> None:
    assert any(case.want in text for text in checker.violations(case.problem, case.result))


GOOD = {
    "spread": problem(SPREAD, ONE, bins=[A]),
    "apart": problem(APART, ONE),
    "near": problem(NEAR, ONE),
    "in the zone of one that minds them": problem(SPREAD[:1], ONE, bins=[MINDS]),
    "volumes": problem(USING, ONE, storage=storage(volume("v", "b"), volume_claim("c", volume="v"))),
    "attach limits": problem(
        TWO, ONE, storage=storage(volume_claim("c0"), volume_claim("c1"), attach={"small": {DRIVER: 1}})
    ),
    "two that only have each other to follow": problem(MUTUAL, ONE),
    "priorities": problem(HIGH_AND_LOW, bins=[A]),
}


@pytest.mark.parametrize("asked", GOOD.values(), ids=GOOD)
def test_a_good_answer_passes(asked: Problem) -> None:
    assert checker.violations(asked, solve(asked)) == []
