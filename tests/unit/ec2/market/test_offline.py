"""The types of a region without an account are those that are published, at the prices that are shipped."""

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, SubnetStatus
from provisioner.cloudprovider.types import cheapest_offering
from provisioner.ec2 import labels
from provisioner.ec2.market import static_data
from provisioner.ec2.market.offline import OfflineCatalogue
from provisioner.ec2.market.prices import static_prices
from tests.support.ec2 import nodes

ZONES = ("us-east-1a", "us-east-1b")
# of metal with Nitro cards the table of limits says more than the reference
KNOWN = {labels.POD_ENI, labels.NETWORK_BANDWIDTH}


def test_types_are_as_published() -> None:
    types = {one.name: one for one in OfflineCatalogue("us-east-1", static_prices("us-east-1"), ZONES).types(None)}
    wrong = []
    for row in static_data.published_types():
        mine = types.get(row["instance_type"])
        if mine is None:
            continue
        amounts = mine.allocatable.to_wire()
        for column, value in row.items():
            if column in KNOWN or column == "instance_type":
                continue
            required = mine.requirements
            shown = (required[column].single_value or "") if column in required else amounts.get(column, "")
            if shown != value:
                wrong.append((mine.name, column, value, shown))
    assert sorted(wrong) == [(name, labels.NVIDIA_GPU, "", "1") for name in sorted(nodes.GPU_SHARES)]
    assert len(types) > 1_300


def test_prices_are_the_regions_and_spot_costs_the_same() -> None:
    for region, usd in (("us-east-1", 0.096), ("us-gov-west-1", 0.121)):
        catalogue = OfflineCatalogue(region, static_prices(region), [f"{region}a"])
        (found,) = [one for one in catalogue.types(None) if one.name == "m5.large"]
        assert {(one.capacity_type, one.price) for one in found.offerings} == {
            (names.CAPACITY_ON_DEMAND, usd),
            (names.CAPACITY_SPOT, usd),
        }


def test_a_class_has_the_zones_of_its_subnets_and_its_own_kubelet() -> None:
    catalogue = OfflineCatalogue("us-east-1", static_prices("us-east-1"), ZONES)
    node_class = EC2NodeClass(
        spec=EC2NodeClassSpec(ami_family="AL2023", kubelet={"maxPods": 20}),
        status=EC2NodeClassStatus(subnets=(SubnetStatus(id="s", zone="us-east-1f", zone_id="use1-az5"),)),
    )
    own = {one.name: one for one in catalogue.types(node_class)}
    plain = {one.name: one for one in catalogue.types(None)}
    assert own["m5.xlarge"].capacity["pods"] == 20
    assert plain["m5.xlarge"].capacity["pods"] == 58
    for types, zones in ((own, {"us-east-1f"}), (plain, set(ZONES))):
        assert {one.zone for one in types["m5.xlarge"].offerings if one.available} == zones
        assert cheapest_offering(types["m5.xlarge"]) is not None
