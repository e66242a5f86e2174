from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.ec2.access import wire
from tests.support import ec2pages

M5 = ec2pages.described_types()["m5.large"]


def test_pages_follow_each_other() -> None:
    pages = ec2pages.type_pages([M5] * 5, size=2)
    read = [wire.instance_types(page) for page in pages]
    assert [len(infos) for infos, _ in read] == [2, 2, 1]
    assert [token for _, token in read] == ["2", "4", ""]


def test_everything_that_is_read_of_a_type() -> None:
    ((info,), _) = wire.instance_types(ec2pages.type_pages([ec2pages.described_types()["g6f.large"]])[0])
    assert info.gpus == (wire.Gpu("L4", "NVIDIA", 0, 2861, 1),)
    assert info.cards == (wire.NetworkCard(0, 2, 1.5, ("interface",)),)
    assert (info.vcpus, info.memory_mib, info.architectures) == (2, 8192, ("x86_64",))
    assert (info.storage_gb, info.local_nvme, info.ebs_mbps) == (100, True, 5000)
    assert (info.hypervisor, info.manufacturer, info.clock_ghz) == ("nitro", "AMD", 3.4)
    assert info.default_interfaces == 2


def test_what_is_missing_is_empty() -> None:
    ((info,), _) = wire.instance_types(ec2pages.type_pages([{"InstanceType": "x1.bare"}])[0])
    assert (info.name, info.vcpus, info.architectures, info.cards, info.gpus) == ("x1.bare", 0, (), (), ())
    assert (info.clock_ghz, info.ebs_mbps, info.storage_gb, info.hypervisor) == (None, None, None, "")
    assert info.default_interfaces == 0
    assert (info.ebs_attachments, info.ebs_apart) == (None, False)


@pytest.mark.parametrize(("told", "want"), [({"Count": 2}, 2), ({"Count": 0, "LogicalGpuCount": 1}, 1), ({}, 0)])
def test_gpus_are_as_many_as_pods_may_have(told: dict[str, int], want: int) -> None:
    gpu = {"Gpus": [{"Name": "L4", "Manufacturer": "NVIDIA", **told}]}
    ((info,), _) = wire.instance_types(ec2pages.type_pages([{**M5, "GpuInfo": gpu}])[0])
    assert [one.devices for one in info.gpus] == [want]


def test_an_ebs_bandwidth_counts_where_it_comes_by_default() -> None:
    ebs: dict[str, Any] = {"EbsOptimizedInfo": {"MaximumBandwidthInMbps": 500}, "EbsOptimizedSupport": "supported"}
    ((info,), _) = wire.instance_types(ec2pages.type_pages([{**M5, "EbsInfo": ebs}])[0])
    assert info.ebs_mbps is None


@pytest.mark.parametrize(
    ("name", "want"), [("m5.large", (27, False)), ("m7i.large", (32, True)), ("t2.micro", (40, False))]
)
def test_volumes_that_a_type_takes(name: str, want: tuple[int, bool]) -> None:
    ((info,), _) = wire.instance_types(ec2pages.type_pages([ec2pages.described_types()[name]])[0])
    assert (info.ebs_attachments, info.ebs_apart) == want


def test_offers() -> None:
    rows = [{"InstanceType": "m5.large", "Location": "us-east-1a", "LocationType": "availability-zone"}]
    assert wire.offered(ec2pages.offering_pages(rows)[0]) == ([("m5.large", "us-east-1a")], "")


def spot(price: str, timestamp: str = "2026-11-21T10:00:00.000Z") -> bytes:
    row = {"InstanceType": "m5.large", "AvailabilityZone": "us-east-1a", "SpotPrice": price, "Timestamp": timestamp}
    return ec2pages.page("DescribeSpotPriceHistory", {"SpotPriceHistory": [row], "NextToken": ""})


def test_spot_prices() -> None:
    row = wire.SpotRow("m5.large", "us-east-1a", 0.035, datetime(2026, 11, 21, 10, tzinfo=UTC))
    assert wire.spot_prices(spot("0.0350")) == ([row], "")


@pytest.mark.parametrize("price", ["", "0", "-1", "nan", "inf", "free"])
def test_rows_without_a_usable_price_are_left_out(price: str) -> None:
    assert wire.spot_prices(spot(price)) == ([], "")


def test_rows_without_a_time_are_left_out() -> None:
    assert wire.spot_prices(spot("0.1", "yesterday")) == ([], "")


NO_PAGES = {
    "cut off": ec2pages.type_pages([M5])[0][:-40],
    "not XML": b'{"message": "gateway timeout"}',
    "another document": b"<html><body>captive portal</body></html>",
    "nothing": b"",
    "another action": ec2pages.offering_pages([{"InstanceType": "m5.large", "Location": "a"}])[0],
}


@pytest.mark.parametrize("page", NO_PAGES.values(), ids=NO_PAGES)
def test_what_is_no_page_is_an_error(page: bytes) -> None:
    with pytest.raises(wire.WireError, match="expected DescribeInstanceTypesResponse"):
        wire.instance_types(page)
