"""Pages of EC2 as they come over HTTP (XML), read into just the fields that we use.

botocore's parser walks its model for every element: 5 to 10 seconds of CPU and hundreds of MB for the instance types of one
region. These readers take a tenth of a second. `client.AwsClients.raw_pages` delivers the pages; nothing else of EC2 is big
enough to be worth it.

Source: the shapes of botocore's `ec2/2016-11-15` model. An element that is missing counts as in the SDKs: None, "" or 0.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, ParseError, fromstring

import msgspec


class WireError(ValueError):
    """A page that is no answer of EC2: cut off, or from something in between."""


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One kind of GPU in an instance.

    Attributes:
        count: of whole GPUs; 0 where the instance has a part of one.
        memory_mib: of one device.
        devices: that the instance shows, parts of a GPU included (LogicalGpuCount); `count` where EC2 does not say.
    """

    name: str
    manufacturer: str
    count: int
    memory_mib: int
    devices: int


class Accelerator(msgspec.Struct, frozen=True, gc=False):
    """One kind of inference accelerator in an instance."""

    name: str
    manufacturer: str
    count: int


class NeuronDevice(msgspec.Struct, frozen=True, gc=False):
    """One kind of Neuron device in an instance, and how many cores each has."""

    name: str
    count: int
    cores: int


class NetworkCard(msgspec.Struct, frozen=True, gc=False):
    """One network card.

    Attributes:
        interfaces: how many it takes.
        baseline_gbps: baseline bandwidth in Gbit/s; None where EC2 does not say.
        types: of interfaces that it takes: interface, efa, efa-only; () where EC2 does not say.
    """

    index: int
    interfaces: int
    baseline_gbps: float | None
    types: tuple[str, ...] = ()

    def takes(self, kind: str) -> bool:
        """Whether an interface of that type can be on it, as far as EC2 says."""
        return not self.types or kind in self.types


class TypeInfo(msgspec.Struct, frozen=True, gc=False):
    """What EC2 says of one instance type.

    Attributes:
        architectures: in EC2's words and order: i386, x86_64, arm64.
        usage_classes: on-demand, spot, capacity-block.
        hypervisor: nitro or xen; "" for bare metal.
        manufacturer: of the processor, as EC2 writes it: "Intel", "AMD", "AWS".
        clock_ghz: sustained; None where EC2 does not say.
        ebs_mbps: maximum bandwidth to EBS where it is optimised by default, else None.
        storage_gb: of all local disks, decimal; None without them.
        local_nvme: whether those disks are NVMe.
        ipv6_per_interface: addresses or prefixes; 0 where IPv6 is not supported.
        network_performance: in words, like "Up to 10 Gigabit" or "Moderate".
        efa_interfaces: at most; 0 where there are none.
        placement_strategies: of placement groups: cluster, partition, spread.
        ebs_attachments: most volumes of EBS; None where EC2 does not say.
        ebs_apart: whether network interfaces take none of these attachments.
    """

    name: str
    architectures: tuple[str, ...]
    usage_classes: tuple[str, ...]
    vcpus: int
    memory_mib: int
    bare_metal: bool
    hypervisor: str
    manufacturer: str
    clock_ghz: float | None
    processor_features: tuple[str, ...]
    ebs_mbps: int | None
    storage_gb: int | None
    local_nvme: bool
    encryption_in_transit: bool
    enclaves: bool
    gpus: tuple[Gpu, ...]
    accelerators: tuple[Accelerator, ...]
    neuron: tuple[NeuronDevice, ...]
    ena: bool
    ipv4_per_interface: int
    ipv6_per_interface: int
    default_card: int
    cards: tuple[NetworkCard, ...]
    network_performance: str
    efa_interfaces: int
    placement_strategies: tuple[str, ...]
    ebs_attachments: int | None = None
    ebs_apart: bool = False

    @property
    def nitro(self) -> bool:
        """Whether it is of the Nitro System: bare metal has no hypervisor, but Nitro cards, which need ENA."""
        return self.hypervisor == "nitro" or (self.bare_metal and self.ena)

    @property
    def default_interfaces(self) -> int:
        """Interfaces of the default network card."""
        for card in self.cards:
            if card.index == self.default_card:
                return card.interfaces
        return 0


class SpotRow(msgspec.Struct, frozen=True, gc=False):
    """One price of the spot history: valid from `since` on."""

    instance_type: str
    zone: str
    usd_per_hour: float
    since: datetime


def instance_types(page: bytes) -> tuple[list[TypeInfo], str]:
    """The types of one page of DescribeInstanceTypes, and the token of the next page ("" after the last).

    Raises:
        WireError: the page is no such answer.

    Cost: about 0.1 ms a type.
    """
    root, ns = _root(page, "DescribeInstanceTypesResponse")
    return [_type(item, ns) for item in _items(root, ns, "instanceTypeSet")], _text(root, ns, "nextToken")


def offered(page: bytes) -> tuple[list[tuple[str, str]], str]:
    """(instance type, location) of one page of DescribeInstanceTypeOfferings, and the next token.

    Raises:
        WireError: the page is no such answer.
    """
    root, ns = _root(page, "DescribeInstanceTypeOfferingsResponse")
    rows = [
        (_text(item, ns, "instanceType"), _text(item, ns, "location"))
        for item in _items(root, ns, "instanceTypeOfferingSet")
    ]
    return rows, _text(root, ns, "nextToken")


def spot_prices(page: bytes) -> tuple[list[SpotRow], str]:
    """The rows of one page of DescribeSpotPriceHistory, and the next token; rows without a usable price are left out.

    Raises:
        WireError: the page is no such answer.
    """
    root, ns = _root(page, "DescribeSpotPriceHistoryResponse")
    rows = []
    for item in _items(root, ns, "spotPriceHistorySet"):
        price, since = _number(_text(item, ns, "spotPrice")), instant_of(_text(item, ns, "timestamp"))
        if price is not None and 0 < price < float("inf") and since is not None:
            rows.append(SpotRow(_text(item, ns, "instanceType"), _text(item, ns, "availabilityZone"), price, since))
    return rows, _text(root, ns, "nextToken")


def _type(item: Element, ns: str) -> TypeInfo:
    processor, network = _child(item, ns, "processorInfo"), _child(item, ns, "networkInfo")
    ebs, storage = _child(item, ns, "ebsInfo"), _child(item, ns, "instanceStorageInfo")
    optimised = _text(ebs, ns, "ebsOptimizedSupport") == "default"
    return TypeInfo(
        name=_text(item, ns, "instanceType"),
        architectures=_texts(processor, ns, "supportedArchitectures"),
        usage_classes=_texts(item, ns, "supportedUsageClasses"),
        vcpus=_integer(_child(item, ns, "vCpuInfo"), ns, "defaultVCpus"),
        memory_mib=_integer(_child(item, ns, "memoryInfo"), ns, "sizeInMiB"),
        bare_metal=_true(item, ns, "bareMetal"),
        hypervisor=_text(item, ns, "hypervisor"),
        manufacturer=_text(processor, ns, "manufacturer"),
        clock_ghz=_number(_text(processor, ns, "sustainedClockSpeedInGhz")),
        processor_features=_texts(processor, ns, "supportedFeatures"),
        ebs_mbps=_maybe(_child(ebs, ns, "ebsOptimizedInfo"), ns, "maximumBandwidthInMbps") if optimised else None,
        storage_gb=_maybe(storage, ns, "totalSizeInGB"),
        local_nvme=_text(storage, ns, "nvmeSupport") not in {"", "unsupported"},
        encryption_in_transit=_true(network, ns, "encryptionInTransitSupported"),
        enclaves=_text(item, ns, "nitroEnclavesSupport") == "supported",
        gpus=tuple(
            Gpu(
                _text(gpu, ns, "name"),
                _text(gpu, ns, "manufacturer"),
                _integer(gpu, ns, "count"),
                _integer(_child(gpu, ns, "memoryInfo"), ns, "sizeInMiB"),
                _integer(gpu, ns, "logicalGpuCount") or _integer(gpu, ns, "count"),
            )
            for gpu in _items(_child(item, ns, "gpuInfo"), ns, "gpus")
        ),
        accelerators=tuple(
            Accelerator(_text(one, ns, "name"), _text(one, ns, "manufacturer"), _integer(one, ns, "count"))
            for one in _items(_child(item, ns, "inferenceAcceleratorInfo"), ns, "accelerators")
        ),
        neuron=tuple(
            NeuronDevice(
                _text(one, ns, "name"),
                _integer(one, ns, "count"),
                _integer(_child(one, ns, "coreInfo"), ns, "count"),
            )
            for one in _items(_child(item, ns, "neuronInfo"), ns, "neuronDevices")
        ),
        ena=_text(network, ns, "enaSupport") in {"supported", "required"},
        ipv4_per_interface=_integer(network, ns, "ipv4AddressesPerInterface"),
        ipv6_per_interface=_integer(network, ns, "ipv6AddressesPerInterface")
        if _true(network, ns, "ipv6Supported")
        else 0,
        default_card=_integer(network, ns, "defaultNetworkCardIndex"),
        cards=tuple(
            NetworkCard(
                _integer(card, ns, "networkCardIndex"),
                _integer(card, ns, "maximumNetworkInterfaces"),
                _number(_text(card, ns, "baselineBandwidthInGbps")),
                _texts(card, ns, "interfaceTypeSet"),
            )
            for card in _items(network, ns, "networkCards")
        ),
        network_performance=_text(network, ns, "networkPerformance"),
        efa_interfaces=_integer(_child(network, ns, "efaInfo"), ns, "maximumEfaInterfaces"),
        placement_strategies=_texts(_child(item, ns, "placementGroupInfo"), ns, "supportedStrategies"),
        ebs_attachments=_maybe(ebs, ns, "maximumEbsAttachments"),
        ebs_apart=_text(ebs, ns, "attachmentLimitType") == "dedicated",
    )


def _root(page: bytes, name: str) -> tuple[Element, str]:
    """The document's element and the namespace prefix of all its tags."""
    try:
        root = fromstring(page)  # noqa: S314  (from AWS over TLS; expat expands no external entities)
    except ParseError as error:
        raise WireError(f"expected {name}, got invalid XML: {error}") from None
    namespace, brace, tag = root.tag.rpartition("}")
    if tag != name:
        raise WireError(f"expected {name}, got {tag}")
    return root, namespace + brace


def _child(element: Element | None, ns: str, name: str) -> Element | None:
    return None if element is None else element.find(ns + name)


def _items(element: Element | None, ns: str, name: str) -> Iterator[Element]:
    found = _child(element, ns, name)
    return iter(() if found is None else found)  # whatever they are called: item, and member in one list (accelerators)


def _text(element: Element | None, ns: str, name: str) -> str:
    return "" if element is None else element.findtext(ns + name, "")


def _texts(element: Element | None, ns: str, name: str) -> tuple[str, ...]:
    return tuple(item.text or "" for item in _items(element, ns, name))


def _true(element: Element | None, ns: str, name: str) -> bool:
    return _text(element, ns, name) == "true"


def _maybe(element: Element | None, ns: str, name: str) -> int | None:
    number = _number(_text(element, ns, name))
    return None if number is None else int(number)


def _integer(element: Element | None, ns: str, name: str) -> int:
    return _maybe(element, ns, name) or 0


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def instant_of(text: str) -> datetime | None:
    """An instant as AWS writes it, UTC where it names no zone; None where it cannot be read."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
