"""Laws of Karpenter's rules in random worlds."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.prepared import prepare
from provisioner.simulator.karpenter.disruption import disrupt
from provisioner.simulator.karpenter.provisioning import provision
from provisioner.values.resources import Resources
from tests.support.economy import Economy
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, Fleet, several
from tests.support.fleets import pool as node_pool
from tests.support.problems import apart, app, node, of_app, pods, pool, problem, shuffled, spread
from tests.support.question import Problem

_APPS = ("a", "b", "c")


@st.composite
def shapes(draw: st.DrawFn) -> PodShape:
    name = draw(st.sampled_from(_APPS))
    cpu = draw(st.sampled_from(("100m", "500m", "1", "1500m", "3")))
    key = draw(st.sampled_from((names.ZONE_LABEL, names.HOSTNAME_LABEL)))
    match draw(st.sampled_from(("plain", "plain", "spread", "apart", "zone"))):
        case "spread":
            return of_app(name, cpu, topology_spread_constraints=(spread(key, app(name)),))
        case "apart":
            return of_app(name, cpu, affinity=apart(names.HOSTNAME_LABEL, app(name)))
        case "zone":
            return of_app(name, cpu, selector={names.ZONE_LABEL: "b"})
        case _:
            return of_app(name, cpu)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    asked = [
        pod
        for number, one in enumerate(draw(st.lists(shapes(), max_size=5)))
        for pod in pods(draw(st.integers(1, 6)), one, f"d{number}")
    ]
    limits = draw(st.sampled_from((None, {"cpu": "9"}, {"cpu": "20", "nodes": "2"}, {"nodes": "0"})))
    zones = draw(st.lists(st.sampled_from("ab"), max_size=3))
    return problem(
        asked,
        pool("light", limits=limits, weight=draw(st.integers(0, 2))),
        pool("heavy", limits=draw(st.sampled_from((None, {"cpu": "12"}))), weight=draw(st.integers(0, 2))),
        bins=[node(f"n{number}", labels={names.ZONE_LABEL: zone}) for number, zone in enumerate(zones)],
    )


@given(asked=problems(), seed=st.integers(0, 99))
def test_the_answer_depends_on_values_alone(asked: Problem, seed: int) -> None:
    other = shuffled(asked, random.Random(seed))
    one, two = provision(prepare(asked), asked.pods), provision(prepare(other), other.pods)
    assert (one.claims, one.existing) == (two.claims, two.existing)


@given(asked=problems())
def test_every_pod_is_in_one_place_or_has_none(asked: Problem) -> None:
    found = provision(prepare(asked), asked.pods)
    places = [one.uid for one in found.placed] + [one.pod.uid for one in found.unplaced]
    assert sorted(places) == sorted(one.uid for one in asked.pods)


@given(asked=problems())
def test_limits_hold_whatever_types_are_launched(asked: Problem) -> None:
    found = provision(prepare(asked), asked.pods)
    for one in asked.pools:
        left = one.remaining or Resources.of({})
        charged = Resources.total(claim.charge for claim in found.claims if claim.pool == one.name)
        most = {
            name: sum(
                max(
                    1 if name == names.NODES else kind.capacity.amount(name)
                    for kind in one.instance_types
                    if kind.name in claim.instance_types
                )
                for claim in found.claims
                if claim.pool == one.name
            )
            for name in left
        }
        assert all(most[name] == charged.amount(name) <= left[name] for name in most)


@given(asked=problems())
def test_a_lighter_pool_makes_nodes_only_where_the_heavier_cannot(asked: Problem) -> None:
    """Without limits the heaviest makes them all."""
    free = replace(asked, pools=tuple(replace(one, remaining=None) for one in asked.pools))
    first = max(free.pools, key=lambda one: (one.weight, one.name)).name
    assert {claim.pool for claim in provision(prepare(free), free.pods).claims} <= {first}


@given(asked=problems())
def test_no_node_is_overfull(asked: Problem) -> None:
    found, rooms = provision(prepare(asked), asked.pods), {one.name: one.room for one in asked.bins}
    assert all(claim.requests.fits(claim.allocatable) for claim in found.claims)
    for name, some in found.existing.items():
        assert Resources.total(one.shape.requests for one in some).fits(rooms[name])


@given(
    fill=st.lists(st.tuples(st.sampled_from((SMALL, MEDIUM, LARGE)), st.integers(0, 3)), min_size=1, max_size=6),
    budget=st.integers(0, 3),
)
def test_commands_keep_budgets_save_money_and_come_to_an_end(fill: list[tuple[InstanceType, int]], budget: int) -> None:
    fleet = Fleet([node_pool()])
    for number, (kind, count) in enumerate(fill):
        fleet.node(
            f"n{number}",
            several(min(count, 2), f"p{number}"),
            kind=kind,
            zone=ABC[number % 3],
        )
    economy = Economy(fleet)
    for _ in range(4 * len(fill)):
        view = replace(economy.view(), allowed=lambda *_: budget)
        before, waiting = economy.usd_per_hour, economy.pods
        command = disrupt(view, skipped=()).command
        if command is None:
            return
        assert len(command.candidates) <= budget
        economy.carry_out(command)
        assert economy.usd_per_hour < before
        assert economy.pods == waiting
    raise AssertionError("consolidation does not end")
