"""What nodes are expected to cost, by estimate and for known pods."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import ContainerPort
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType, Offering, expected_price
from provisioner.packing.dual_prices import prices_of
from provisioner.packing.interruption_cost import expected, usd_per_hour
from provisioner.packing.model import Model, models_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.values.requirement import Operator, Requirement, Requirements
from tests.support import priced_fleets
from tests.support.improving import improve
from tests.support.problems import pods, shape


def modelled(kind: str, types: tuple[InstanceType, ...]) -> tuple[Prepared, Result, Model]:
    return model_of(priced_fleets.world_of(types), priced_fleets.workload(kind, 200))


def model_of(world: World, some: tuple[Pod, ...]) -> tuple[Prepared, Result, Model]:
    prepared = prepare(world)
    result = prepared.solve(some)
    (model, *_) = models_of(prepared.setting(some), result)
    return prepared, result, model


def test_a_model_of_on_demand_nodes_stays_as_it_is() -> None:
    _, _, model = modelled("micro", priced_fleets.ec2_types())
    assert expected(model, prices_of(model.market)) is model
    assert usd_per_hour(model, model.nodes) == pytest.approx(sum(map(model.weight, model.nodes)))


@pytest.mark.parametrize("kind", ["micro", "memory"])
def test_spot_is_expected_to_cost_what_the_claims_say(kind: str) -> None:
    _, result, model = modelled(kind, priced_fleets.ec2_types(capacity_type="spot"))
    for tried in (model, expected(model, prices_of(model.market))):
        penalties = sum(model.slots[node.slot].penalty for node in model.nodes)
        assert usd_per_hour(tried, model.nodes) == pytest.approx(result.usd_per_hour + penalties)


@pytest.mark.parametrize("kind", ["micro", "memory", "zonal"])
def test_where_a_launch_may_be_on_demand_spot_is_expected_to_cost_no_more_than_that(kind: str) -> None:
    spot = priced_fleets.ec2_types(capacity_type="spot")
    both = tuple(with_on_demand(one, 1.1) for one in spot)
    pure, (_, result, model) = modelled(kind, spot)[1], modelled(kind, both)
    assert result.usd_per_hour < 0.97 * pure.usd_per_hour
    for claim in result.claims:
        least = min(on_demand_price(one) for one in both if one.name in claim.instance_types)
        assert claim.usd_per_hour <= least
    for tried in (model, expected(model, prices_of(model.market))):
        penalties = sum(model.slots[node.slot].penalty for node in model.nodes)
        assert usd_per_hour(tried, model.nodes) == pytest.approx(result.usd_per_hour + penalties)


def with_on_demand(one: InstanceType, factor: float) -> InstanceType:
    """The same, to be had on demand for so many times its price at spot."""
    kinds = Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.IN, [names.CAPACITY_SPOT, names.CAPACITY_ON_DEMAND])
    pin = Requirements.from_labels({names.CAPACITY_TYPE_LABEL: names.CAPACITY_ON_DEMAND})
    more = tuple(
        Offering(Requirements.of({**way.requirements, **pin}.values()), factor * way.price) for way in one.offerings
    )
    requirements = Requirements.of({**one.requirements, names.CAPACITY_TYPE_LABEL: kinds}.values())
    return replace(one, requirements=requirements, offerings=(*one.offerings, *more))


def on_demand_price(one: InstanceType) -> float:
    return min(way.price for way in one.offerings if way.capacity_type == names.CAPACITY_ON_DEMAND)


def test_no_slot_is_expected_to_cost_less_than_its_price() -> None:
    _, _, model = modelled("zonal", priced_fleets.ec2_types(capacity_type="spot"))
    found = expected(model, prices_of(model.market))
    assert [one.usd for one in found.slots] == [one.usd for one in model.slots]
    assert min(one.surplus for one in found.slots) >= 0
    assert max(one.surplus for one in found.slots) > 0


def test_where_all_nodes_stay_as_they_are_nothing_is_expected_of_others() -> None:
    world = priced_fleets.world_of(priced_fleets.ec2_types(most_cpus=8, capacity_type="spot"))
    some = tuple(pods(9, changed(shape("500m", "512Mi"), host_ports=(ContainerPort(host_port=80),))))
    prepared, result, model = model_of(world, some)
    assert not model.nodes
    assert expected(model, prices_of(model.market)) is model
    assert improve(prepared, some, result).result is result


def with_min_values(wanted: int, arches: tuple[str, ...]) -> World:
    world = priced_fleets.world_of(priced_fleets.ec2_types(arches=arches, capacity_type="spot"))
    types = Requirement.of(names.INSTANCE_TYPE_LABEL, Operator.EXISTS, (), min_values=wanted)
    (pool,) = world.pools
    return replace(world, pools=(replace(pool, requirements=pool.requirements.merged(Requirements.of([types]))),))


@pytest.mark.parametrize(("kind", "arches"), [("batch", ("amd64",)), ("arches", ("amd64", "arm64"))])
def test_what_a_launch_with_min_values_may_take_are_single_types(kind: str, arches: tuple[str, ...]) -> None:
    world, some = with_min_values(15, arches), priced_fleets.workload(kind, 200)
    prepared, result, model = model_of(world, some)
    penalties = sum(model.slots[node.slot].penalty for node in model.nodes)
    for tried in (model, expected(model, prices_of(model.market))):
        assert usd_per_hour(tried, model.nodes) == pytest.approx(result.usd_per_hour + penalties)
    lone = {number for number, slot in enumerate(model.slots) if slot.lone}
    assert lone
    assert not any(one.allowed >> number & 1 for one in model.items for number in lone), "none of them is planned"
    plan = improve(prepared, some, result, iterations=3)
    assert plan.stage != "scheduling"
    assert plan.usd_per_hour < 0.95 * result.usd_per_hour


@pytest.mark.parametrize("kind", ["batch", "zonal"])
def test_plans_cost_less_in_what_is_paid_than_plans_at_the_lowest_price(kind: str) -> None:
    spot = priced_fleets.ec2_types(capacity_type="spot")
    lowest = tuple(replace(one, offerings=tuple(replace(way, alternatives=1) for way in one.offerings)) for one in spot)
    offering_of = {one.name: one.offerings[0] for one in spot}
    some, paid = priced_fleets.workload(kind, 300), []
    for types in (spot, lowest):
        prepared = prepare(priced_fleets.world_of(types))
        plan = improve(prepared, some, prepared.solve(some), iterations=3)
        paid.append(
            sum(expected_price([offering_of[one] for one in claim.instance_types]) for claim in plan.result.claims)
        )
    assert paid[0] < paid[1]
