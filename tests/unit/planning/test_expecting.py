"""What nodes are expected to cost, by estimate and for known pods."""

from dataclasses import replace

import pytest

from provisioner.cloudprovider.types import InstanceType, expected_price
from provisioner.planning.expecting import expected, usd_per_hour
from provisioner.planning.model import Model, models_of
from provisioner.planning.planner import improve
from provisioner.planning.prices import prices_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.result import Result
from tests.support import priced_fleets


def modelled(kind: str, types: tuple[InstanceType, ...]) -> tuple[Prepared, Result, Model]:
    prepared, pods = prepare(priced_fleets.world_of(types)), priced_fleets.workload(kind, 200)
    result = prepared.solve(pods)
    (model, *_) = models_of(prepared.setting(pods), result)
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


def test_no_slot_is_expected_to_cost_less_than_its_price() -> None:
    _, _, model = modelled("zonal", priced_fleets.ec2_types(capacity_type="spot"))
    found = expected(model, prices_of(model.market))
    assert [one.usd for one in found.slots] == [one.usd for one in model.slots]
    assert min(one.surplus for one in found.slots) >= 0
    assert max(one.surplus for one in found.slots) > 0


@pytest.mark.parametrize("kind", ["batch", "zonal"])
def test_plans_cost_less_in_what_is_paid_than_plans_at_the_lowest_price(kind: str) -> None:
    spot = priced_fleets.ec2_types(capacity_type="spot")
    lowest = tuple(replace(one, offerings=tuple(replace(way, alternatives=1) for way in one.offerings)) for one in spot)
    offering_of = {one.name: one.offerings[0] for one in spot}
    pods, paid = priced_fleets.workload(kind, 300), []
    for types in (spot, lowest):
        prepared = prepare(priced_fleets.world_of(types))
        plan = improve(prepared, pods, prepared.solve(pods), iterations=3)
        paid.append(
            sum(expected_price([offering_of[one] for one in claim.instance_types]) for claim in plan.result.claims)
        )
    assert paid[0] < paid[1]
