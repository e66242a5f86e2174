"""Workloads and the catalogue that packing is measured on."""

from pathlib import Path

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.kwok.catalogue import load
from provisioner.ec2.market.static_data import on_demand_prices
from provisioner.lab.harness import mixes
from provisioner.lab.harness.workload import of_kind, pods_of


@pytest.mark.parametrize("kind", mixes.MIXES)
def test_a_mix_has_the_pods_that_it_was_asked_for_and_is_the_same_every_time(kind: str) -> None:
    documents = mixes.mix(kind, 1_000)
    assert pods_of(documents) == 1_000
    assert documents == mixes.mix(kind, 1_000) != mixes.mix(kind, 999)
    deployments = of_kind(documents, "Deployment")
    sizes = {str(one["spec"]["template"]["spec"]["containers"][0]["resources"]) for one in deployments}
    assert len(sizes) >= 15
    spread = [one for one in deployments if "topologySpreadConstraints" in one["spec"]["template"]["spec"]]
    assert len(spread) == (len(deployments) // 2 if kind == "zonal" else 0)


def test_the_catalogue_has_ec2s_types_at_their_prices(tmp_path: Path) -> None:
    path = tmp_path / "types.json"
    assert mixes.write_catalogue(path) >= 400
    found = load(str(path))
    assert not found.left_out
    assert len(found.types) == mixes.write_catalogue(path)
    (large,) = (one for one in found.types if one.name == "m5.large")
    assert {one.price for one in large.offerings} == {on_demand_prices()["us-east-1"].prices["m5.large"]}
    assert {one.capacity_type for one in large.offerings} == {names.CAPACITY_ON_DEMAND}
    assert len(large.offerings) == 3
    assert large.allocatable["cpu"] == 1930, "what an AL2023 node of this type has for pods"
