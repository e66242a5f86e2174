"""EC2's instance types without an account: the shipped tables of types and prices, for questions about what a fleet would cost.

Differs: an account is asked where a type is offered, how many network interfaces it has, and what spot costs. Here every type with a
price is offered in every zone, capacity reservations have nothing left, the interfaces are those that the published number of pods
follows from, and spot costs as much as on-demand.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2 import labels
from provisioner.ec2.access.wire import Accelerator, Gpu, NetworkCard, NeuronDevice, TypeInfo
from provisioner.ec2.launch.userdata.inputs import has_ipv6
from provisioner.ec2.market import static_data
from provisioner.ec2.market.catalogue import EC2Catalogue, Region
from provisioner.ec2.market.instance_types import MarketSettings, Shape
from provisioner.ec2.market.offerings import OfferingMarket
from provisioner.ec2.market.prices import PriceList

_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "habana": "Habana"}
_PODS_BESIDE_ADDRESSES = 2


@functools.cache
def published_infos() -> tuple[TypeInfo, ...]:
    """What is published of every type, as EC2 would describe it; in order of name."""
    return tuple(sorted(map(_info, static_data.published_types()), key=lambda one: one.name))


class OfflineCatalogue:
    """The instance types of one region for any EC2NodeClass; equal classes share them."""

    def __init__(self, region: str, prices: PriceList, zones: Iterable[str]) -> None:
        """Of types that `prices` know, in these zones; a class whose status names subnets has the zones of those."""
        self._zones, self._prices = tuple(sorted(zones)), prices
        self._catalogue = EC2Catalogue(MarketSettings(region))
        listed = prices.on_demand or prices.estimates
        self._infos = tuple(one for one in published_infos() if one.name in listed)
        self._loaded: tuple[str, ...] = ()

    def types(self, node_class: EC2NodeClass | None) -> tuple[InstanceType, ...]:
        """What instances of the class can be, in order of name; None is a class of AL2023 with defaults.

        Cost: 0.3 s for the first class of a shape.
        """
        shape = (
            Shape(family=ec2.AL2023, zones=())
            if node_class is None
            else Shape.of(node_class, ipv6=has_ipv6(node_class.kubelet, None))
        )
        zones = tuple(name for name, _ in shape.zones) or self._zones
        if not shape.zones:
            shape = replace(shape, zones=tuple((zone, "") for zone in zones))
        known = tuple(sorted({*self._loaded, *zones}))
        if known != self._loaded:
            self._loaded = known
            self._catalogue.load(Region.of(self._infos, ((one.name, zone) for one in self._infos for zone in known)))
        return self._catalogue.types(shape, OfferingMarket(price=self._prices.price), self._prices.version)


def _info(row: Mapping[str, str]) -> TypeInfo:
    name = row["instance_type"]
    limits = static_data.eni_limits().get(name)
    addresses = limits.ipv4_per_interface if limits is not None else 1
    pods = int(row["pods"])
    interfaces = (pods - _PODS_BESIDE_ADDRESSES) // (addresses - 1) if addresses > 1 else 0
    storage = _number(row[labels.LOCAL_NVME])
    gpus, gpu_name, maker = _number(row[labels.GPU_COUNT]), row[labels.GPU_NAME], row[labels.GPU_MANUFACTURER]
    neuron, cores = _number(row[labels.NEURON]), _number(row[labels.NEURON_CORE])
    accelerators = _number(row[labels.ACCELERATOR_COUNT])
    found = row[labels.ACCELERATOR_NAME]
    efas = _number(row[labels.EFA])
    return TypeInfo(
        name=name,
        architectures=("arm64",) if row[names.ARCH_LABEL] == "arm64" else ("x86_64",),
        usage_classes=(names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT),
        vcpus=int(row[labels.CPU]),
        memory_mib=int(row[labels.MEMORY]),
        bare_metal="metal" in name,
        hypervisor=row[labels.HYPERVISOR],
        manufacturer=row[labels.CPU_MANUFACTURER],
        clock_ghz=int(row[labels.CPU_CLOCK]) / 1000 if row[labels.CPU_CLOCK] else None,
        processor_features=(),
        ebs_mbps=_number(row[labels.EBS_BANDWIDTH]) or None,
        storage_gb=storage or None,
        local_nvme=bool(storage),
        encryption_in_transit=row[labels.ENCRYPTION_IN_TRANSIT] == "true",
        enclaves=False,
        gpus=(Gpu(gpu_name, _MAKERS.get(maker, maker), gpus, _number(row[labels.GPU_MEMORY]), gpus or 1),)
        if gpu_name  # one with 0 of them has a part of one
        else (),
        accelerators=(Accelerator(found, row[labels.ACCELERATOR_MANUFACTURER], accelerators),)
        if accelerators and not neuron
        else (),
        neuron=(NeuronDevice(found, neuron, cores // neuron),) if neuron else (),
        ena=True,
        ipv4_per_interface=addresses,
        ipv6_per_interface=addresses,
        default_card=0,
        cards=(NetworkCard(0, interfaces, None), *(NetworkCard(place, 2, None) for place in range(1, efas))),
        network_performance="",
        efa_interfaces=efas,
        placement_strategies=("cluster", "partition", "spread"),
    )


def _number(text: str) -> int:
    return int(text) if text else 0
