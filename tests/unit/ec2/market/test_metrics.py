from prometheus_client.parser import text_string_to_metric_families

from provisioner.apis import names
from provisioner.apis.ec2 import CapacityReservation
from provisioner.ec2.access import wire
from provisioner.ec2.market import metrics
from provisioner.ec2.market.catalogue import Region
from provisioner.ec2.market.prices import PriceList
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from tests.support import ec2pages
from tests.support.clock import NOON

Series = dict[tuple[str, ...], float]


def region() -> Region:
    infos = wire.instance_types(ec2pages.type_pages([ec2pages.described_types()["m5.large"]])[0])[0]
    return Region.of(infos, [("m5.large", "a"), ("m5.large", "b")])


LISTED = PriceList(on_demand={"m5.large": 0.096}, spot={("m5.large", "a"): 0.03}, spot_known=True)


def written(*reservations: CapacityReservation, prices: PriceList = LISTED) -> dict[str, Series]:
    shortages = Shortages()
    shortages.failed(OfferingKey(names.CAPACITY_SPOT, "m5.large", "a"), NOON)
    text = "".join(metrics.lines(region(), prices, shortages, NOON, reservations, lambda _: 2))
    return {
        family.name: {tuple(one.labels[key] for key in sorted(one.labels)): one.value for one in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_every_metric_has_karpenters_name_and_labels() -> None:
    prefix = "karpenter_cloudprovider_instance_type"
    assert written() == {
        f"{prefix}_cpu_cores": {("m5.large",): 2.0},
        f"{prefix}_memory_bytes": {("m5.large",): 8.0 * 2**30},
        "dovetail_instance_type_price_unlisted": {},
        f"{prefix}_offering_price_estimate": {
            ("on-demand", "m5.large", "a"): 0.096,
            ("on-demand", "m5.large", "b"): 0.096,
            ("spot", "m5.large", "a"): 0.03,
        },
        f"{prefix}_offering_available": {
            ("on-demand", "m5.large", "a"): 1.0,
            ("on-demand", "m5.large", "b"): 1.0,
            ("spot", "m5.large", "a"): 0.0,
            ("spot", "m5.large", "b"): 0.0,
        },
    }


def test_types_whose_price_no_list_has_are_marked() -> None:
    name = "dovetail_instance_type_price_unlisted"
    assert not written()[name]
    assert written(prices=PriceList(estimates={"m5.large": 0.1}, estimated_from="x"))[name] == {
        ("m5.large", "estimated"): 1
    }
    assert written(prices=PriceList())[name] == {("m5.large", "unknown"): 1}


def test_reservations_cost_next_to_nothing() -> None:
    found = written(CapacityReservation(id="cr-1", instance_type="m5.large", availability_zone="a"))
    key = ("reserved", "m5.large", "a")
    assert found["karpenter_cloudprovider_instance_type_offering_price_estimate"][key] == 0.096 / 10_000_000
    assert found["karpenter_cloudprovider_instance_type_offering_available"][key] == 1.0
