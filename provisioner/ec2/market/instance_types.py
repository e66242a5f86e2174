"""What one instance type is for one EC2NodeClass: capacity, overhead, labels, and whether it can be used at all. Pure.

Offerings are added by `offerings`; `catalogue` keeps the results.

Source: spec/karpenter-aws.md 4.2 to 4.7 (aws/karpenter-provider-aws 1.14.1 and its main branch).
Differs: a part of a GPU (g6f) counts as one that pods may have, as its nodes advertise it, while its labels are Karpenter's, with a count of 0;
    pods know prefix delegation; resources of amount 0 are left out; types that no table knows get their network
    bandwidth from EC2's own figures; bare metal of the Nitro system takes connection tracking (it has no hypervisor, but Nitro cards).
"""

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, names
from provisioner.apis.core import EBS_DRIVER
from provisioner.apis.ec2 import AMI, CapacityReservation, EC2NodeClass, NetworkInterface
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2 import labels
from provisioner.ec2.access.wire import TypeInfo
from provisioner.ec2.launch.block_devices import DEFAULT_DEVICES
from provisioner.ec2.market import kubelet_formulas, static_data
from provisioner.ec2.market.kubelet_formulas import FormulaError
from provisioner.ec2.nodeclass.subnets import addresses_of
from provisioner.values import jsontext
from provisioner.values.quantity import Quantity, QuantityError
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources

_MIB: Final = 2**20
_GIB: Final = 2**30
_GB: Final = 10**9
_ARM_FIRMWARE_MIB: Final = 64
_DEFAULT_PODS: Final = 110
_PODS_PER_PREFIX: Final = 16
_XEN_ATTACHMENTS: Final = 39
_SMALL_VCPUS: Final = 30
_SMALL_PODS, _LARGE_PODS = 110, 250
_NAME: Final = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.", re.ASCII)
ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
WINDOWS_BUILDS: Final = {
    ec2.WINDOWS_2019: "10.0.17763",
    ec2.WINDOWS_2022: "10.0.20348",
    ec2.WINDOWS_2025: "10.0.26100",
}
_DEFAULT_STORAGE: Final = 20 * _GIB
_ENI_MEMORY_FAMILIES: Final = frozenset({ec2.AL2, ec2.AL2023, ec2.CUSTOM})
_KUBE_RESERVED_CPU: Final = ((0, 1000, 0.06), (1000, 2000, 0.01), (2000, 4000, 0.005), (4000, 1 << 31, 0.0025))
_GPU_RESOURCES: Final = {"NVIDIA": labels.NVIDIA_GPU, "AMD": labels.AMD_GPU, "Habana": labels.GAUDI}
_EVICTION_SIGNALS: Final = {"memory.available": MEMORY, "nodefs.available": EPHEMERAL_STORAGE}
_RESERVABLE: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_VAGUE_NETWORK: Final = frozenset({"Very Low", "Low", "Low to Moderate", "Moderate", "High"})

Reserved = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Fields of a kubelet that reserve something, and what by resource."""
LearnedMemory = Callable[[str, str], int | None]
"""Bytes of memory that nodes of (instance type, AMI id) turned out to have; None where nothing was learned."""


@dataclass(frozen=True, slots=True)
class MarketSettings:
    """Settings of the program that shape every instance type.

    Attributes:
        vm_memory_overhead: share of an instance's memory that its nodes are guessed not to see.
        reserved_enis: network interfaces that are not for pods.
        prefix_delegation: whether the VPC CNI hands out /28 prefixes (ENABLE_PREFIX_DELEGATION of the aws-node DaemonSet).
    """

    region: str
    vm_memory_overhead: float = 0.075
    reserved_enis: int = 0
    prefix_delegation: bool = False


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """A placement group that a class resolved to; `partitions` is 0 unless its strategy is partition."""

    id: str
    strategy: str
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The fields of a class's kubelet that change what pods may use, as written: quantities, percentages and expressions (`kubelet_formulas`)."""

    max_pods: int | str | None = None
    pods_per_core: int = 0
    kube_reserved: tuple[tuple[str, str], ...] = ()
    system_reserved: tuple[tuple[str, str], ...] = ()
    eviction_hard: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Kubelet":
        """Read them from `spec.kubelet`; what is malformed is left out here, validation has said so on the class."""
        max_pods, per_core = fields.get("maxPods"), fields.get("podsPerCore")
        return cls(
            max_pods if isinstance(max_pods, str) or (isinstance(max_pods, int) and max_pods >= 0) else None,
            per_core if isinstance(per_core, int) and per_core > 0 else 0,
            _pairs(fields.get("kubeReserved")),
            _pairs(fields.get("systemReserved")),
            _pairs(fields.get("evictionHard")),
        )

    @property
    def has_formulas(self) -> bool:
        """Whether its values differ by instance type."""
        return isinstance(self.max_pods, str) or _has_formulas((*self.kube_reserved, *self.system_reserved))


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything of one EC2NodeClass that instance types depend on; equal shapes have equal types, so it is a cache key.

    Attributes:
        zones: (zone, zone id) of its subnets, in order of zone.
        amis: its images, newest first.
        storage: bytes of the volume that holds the node's ephemeral storage.
        volumes: of EBS that each instance has from its launch on.
        raid0: whether local disks take its place.
        interfaces: those that the user wants; None leaves them to us.
        public: whether instances are to have public IPv4 addresses.
        tracking: whether connection tracking is set.
        nested: whether nested virtualization is wanted.
        enclaves: whether Nitro Enclaves are wanted.
        prefixes: address prefixes that the first interface starts with.
        ipv6: whether its nodes and their pods have IPv6 addresses.
        group: the placement group, resolved.
        subnets: (zone, id) of each, sorted.
        addresses: of its subnet that an instance takes.
    """

    family: str
    zones: tuple[tuple[str, str], ...]
    amis: tuple[AMI, ...] = ()
    kubelet: Kubelet = Kubelet()
    storage: int = _DEFAULT_STORAGE
    raid0: bool = False
    interfaces: tuple[NetworkInterface, ...] | None = None
    public: bool = False
    tracking: bool = False
    nested: bool = False
    enclaves: bool = False
    prefixes: int = 0
    ipv6: bool = False
    reservations: tuple[CapacityReservation, ...] = ()
    group: PlacementGroup | None = None
    volumes: int = 1
    subnets: tuple[tuple[str, str], ...] = ()
    addresses: int = 1

    @classmethod
    def of(
        cls,
        node_class: EC2NodeClass,
        group: PlacementGroup | None = None,
        *,
        reserved: bool = True,
        ipv6: bool = False,
    ) -> "Shape":
        """The shape of a class as its status stands.

        Args:
            node_class: as the API server has it.
            group: what its placement group selector resolved to; it is not in the status.
            reserved: whether the feature gate ReservedCapacity is on.
            ipv6: whether its nodes have IPv6 addresses; the cluster tells, and its kubelet (`userdata.inputs.has_ipv6`).
        """
        spec, status = node_class.spec, node_class.status
        nested = False if not isinstance(spec.cpu_options, ec2.CPUOptions) else spec.cpu_options.nested_virtualization
        return cls(
            family=node_class.family,
            zones=tuple(sorted({subnet.zone: subnet.zone_id for subnet in reversed(status.subnets)}.items())),
            amis=status.amis,
            kubelet=Kubelet.of(node_class.kubelet),
            storage=_volume_bytes(node_class),
            raid0=spec.instance_store_policy == "RAID0",
            interfaces=node_class.network_interfaces if isinstance(spec.network_interfaces, tuple) else None,
            public=spec.associate_public_ip_address is True,
            tracking=isinstance(spec.connection_tracking, ec2.ConnectionTracking),
            nested=nested == "enabled",
            enclaves=node_class.enclaves,
            prefixes=spec.ip_prefix_count or 0,
            ipv6=ipv6,
            reservations=status.capacity_reservations if reserved else (),
            group=group,
            volumes=_volumes(node_class),
            subnets=tuple(sorted({(subnet.zone, subnet.id) for subnet in status.subnets})),
            addresses=addresses_of(node_class, ipv6=ipv6),
        )

    @property
    def windows(self) -> bool:
        """Whether its nodes run Windows."""
        return self.family in ec2.WINDOWS_FAMILIES

    @property
    def efa_only(self) -> int:
        """Interfaces of type efa-only that the user wants."""
        return len(_efas(self.interfaces or ()))

    def zone_id(self, zone: str) -> str:
        """The id of a zone that it has a subnet in; "" for others."""
        return next((zone_id for name, zone_id in self.zones if name == zone), "")

    def reservations_of(self, instance_type: str) -> tuple[CapacityReservation, ...]:
        """Its capacity reservations of that type."""
        return tuple(one for one in self.reservations if one.instance_type == instance_type)


def usable(info: TypeInfo) -> bool:
    """Whether the type is for us at all: a processor that Kubernetes runs on; macOS instances (x86_64_mac, arm64_mac) are not."""
    return any(one in ARCHITECTURES for one in info.architectures)


def type_of(info: TypeInfo, zones: Iterable[str], shape: Shape, settings: MarketSettings) -> InstanceType:
    """The instance type as `shape` makes it, still without offerings.

    Cost: about 0.15 ms.
    """
    return InstanceType(
        info.name,
        _requirements(info, tuple(sorted(set(zones) & dict(shape.zones).keys())), shape, settings),
        _capacity(info, shape, settings),
        _overhead(info, shape, settings),
        partial=frozenset(_GPU_RESOURCES.get(gpu.manufacturer, "") for gpu in info.gpus if gpu.devices > gpu.count),
        attach_limits=attach_limits(info, shape),
    )


def with_memory(body: InstanceType, memory: int) -> InstanceType:
    """The type with the memory, in bytes, that its nodes turned out to have."""
    return dataclasses.replace(body, capacity=Resources.of({**body.capacity, MEMORY: memory}))


def image_for(requirements: Requirements, images: Iterable[AMI]) -> AMI | None:
    """The image that a type of these requirements boots: the first, so the newest, that goes with it; None without one."""
    for image in images:
        if requirements.incompatibility(image.compatible(), labels.WELL_KNOWN | names.WELL_KNOWN_LABELS) is None:
            return image
    return None


def unfit(info: TypeInfo, shape: Shape) -> str:
    """Why instances of this type cannot be launched for the class, a clause; "" where they can."""
    if shape.family == ec2.AL2023 and info.name.startswith("a1."):
        return "AL2023 does not run on a1"
    if shape.nested and "nested-virtualization" not in info.processor_features:
        return "it does not support nested virtualization"
    if shape.enclaves and not info.enclaves:
        return "it does not support Nitro Enclaves"
    if shape.group is not None and shape.group.strategy not in info.placement_strategies:
        return f"it cannot be in a placement group of strategy {shape.group.strategy}"
    if shape.tracking and not info.nitro:
        return "connection tracking can only be configured on Nitro instances"
    return _unfit_addresses(info, shape) or _unfit_interfaces(info, shape)


def attach_limits(info: TypeInfo, shape: Shape) -> dict[str, int]:
    """How many volumes the CSI driver of EBS will say that nodes of the type take; nothing where EC2 says no maximum.

    EC2's maximum leaves out local disks and the primary network interface. The instance's own volumes count, and where attachments are shared
    with network interfaces, those that are there when the driver starts: one more than the primary one, which the VPC CNI keeps warm
    (WARM_ENI_TARGET=1), or than those that the class wants.
    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/volume_limits.html; aws-ebs-csi-driver, getVolumesLimit (39 at most where there is no Nitro
    System, never less than 1). Differs: Karpenter 1.15 has no such limit for EC2.
    """
    most = info.ebs_attachments
    if most is None:
        return {}
    if not info.nitro:
        most = min(most, _XEN_ATTACHMENTS)
    elif not info.ebs_apart:
        room = sum(card.interfaces for card in info.cards)
        most -= max(0, min(len(shape.interfaces or (None,)) + 1, room) - 1)
    return {EBS_DRIVER: max(1, most - shape.volumes)}


@dataclass(frozen=True, slots=True)
class EfaLaunch:
    """What differs for instances whose pods ask for EFA.

    Attributes:
        interfaces: of such an instance; () where it has none for EFA.
        max_pods: what its kubelet is told.
    """

    interfaces: tuple[NetworkInterface, ...] = ()
    max_pods: int = 0


def efa_launch(info: TypeInfo, shape: Shape, settings: MarketSettings) -> EfaLaunch:
    """How instances of the type are launched for pods that ask for EFA."""
    interfaces = efa_interfaces(info, shape)
    return EfaLaunch(interfaces, max_pods(info, dataclasses.replace(shape, interfaces=interfaces), settings))


def efa_interfaces(info: TypeInfo, shape: Shape) -> tuple[NetworkInterface, ...]:
    """The interfaces of instances whose pods ask for EFA; () where the type, or the class, has none.

    As AWS recommends: the primary one is ENA alone, and every card that takes it has one of type efa-only, which needs no address. Where a type has one
    EFA, or room for one interface on its first card, the primary one is both: of one interface alone the address may be public.
    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html; that the first card of p6-b300 takes no EFA:
    https://github.com/aws/aws-parallelcluster/issues/7143.
    Differs: Karpenter asks for type efa on the first cards by number, which p6-b300 refuses.
    """
    first = next((card for card in info.cards if card.index == 0), None)
    if not info.efa_interfaces or first is None:
        return ()
    both = first.takes("efa") and (info.efa_interfaces == 1 or first.interfaces == 1)
    places = [
        (card.index, 1 if card is first else 0)
        for card in info.cards
        if card.takes(ec2.EFA_ONLY) and not (card is first and (both or first.interfaces == 1))
    ]
    made = [
        NetworkInterface(interface_type="efa" if both else "interface"),
        *(
            NetworkInterface(network_card_index=card, device_index=device, interface_type=ec2.EFA_ONLY)
            for card, device in places[: info.efa_interfaces - both]
        ),
    ]
    return tuple(made) if _efas(made) and not (shape.public and len(made) > 1) else ()


def max_pods(info: TypeInfo, shape: Shape, settings: MarketSettings) -> int:
    """How many pods a node of the type may have; what its kubelet is told. As without maxPods where that is an expression without a value."""
    asked = shape.kubelet.max_pods
    if isinstance(asked, str):
        usual = _pods(None, info, shape, settings)
        try:
            asked = kubelet_formulas.pods(asked, _facts(info, usual))
        except FormulaError:
            return usual
    return _pods(asked, info, shape, settings)


def resolved_kubelet(info: TypeInfo, shape: Shape, settings: MarketSettings) -> Kubelet:
    """The class's fields with values in place of expressions.

    Raises:
        FormulaError: one has none for this type; instances of it cannot be launched.
    """
    kubelet = shape.kubelet
    if not kubelet.has_formulas:
        return kubelet
    if isinstance(kubelet.max_pods, str):
        kubelet_formulas.pods(kubelet.max_pods, _facts(info, _pods(None, info, shape, settings)))
    pods = max_pods(info, shape, settings)
    facts = _facts(info, pods)
    return dataclasses.replace(
        kubelet,
        max_pods=pods,
        kube_reserved=kubelet_formulas.reserved(kubelet.kube_reserved, facts),
        system_reserved=kubelet_formulas.reserved(kubelet.system_reserved, facts),
    )


def formula_problem(info: TypeInfo, shape: Shape, settings: MarketSettings) -> str:
    """Why the expressions of the class's kubelet have no values for this type, a clause; "" where they have."""
    try:
        resolved_kubelet(info, shape, settings)
    except FormulaError as error:
        return str(error)
    return ""


def _facts(info: TypeInfo, pods: int) -> dict[str, int | str]:
    """What an expression may name."""
    return {
        "vcpus": info.vcpus,
        "memory_mib": info.memory_mib,
        "default_enis": info.default_interfaces,
        "ips_per_eni": info.ipv4_per_interface,
        "max_pods": pods,
        "instance_type": info.name,
    }


def _pods(asked: int | None, info: TypeInfo, shape: Shape, settings: MarketSettings) -> int:
    kubelet = shape.kubelet
    if asked is not None:
        pods = asked
    elif shape.windows:
        pods = _DEFAULT_PODS
    elif settings.prefix_delegation and info.nitro:
        addresses = _addresses(info, shape, settings.reserved_enis) * _PODS_PER_PREFIX
        pods = min(_SMALL_PODS if info.vcpus < _SMALL_VCPUS else _LARGE_PODS, addresses + 2 if addresses else 0)
    else:
        pods = _eni_pods(info, shape, settings.reserved_enis)
    if kubelet.pods_per_core and shape.family != ec2.BOTTLEROCKET:
        pods = min(kubelet.pods_per_core * info.vcpus, pods)
    return pods


def guessed_memory(info: TypeInfo, settings: MarketSettings) -> int:
    """Bytes that a node of the type is guessed to report."""
    mib = info.memory_mib - (_ARM_FIRMWARE_MIB if info.architectures[:1] == ("arm64",) else 0)
    return (mib - math.ceil(mib * _MIB * settings.vm_memory_overhead / _MIB)) * _MIB


def prefix_delegation(environment: Mapping[str, str]) -> bool:
    """Whether these variables of the aws-node container turn prefix delegation on.

    Source: amazon-vpc-cni-k8s, ENABLE_PREFIX_DELEGATION; it reads what Go's strconv.ParseBool takes.
    """
    return environment.get("ENABLE_PREFIX_DELEGATION", "") in {"1", "t", "T", "true", "TRUE", "True"}


def aws_node_environment(daemon_set: bytes) -> dict[str, str]:
    """The variables of the container aws-node, from the JSON of its DaemonSet; only those with a plain value.

    Raises:
        msgspec.DecodeError: it is no DaemonSet.
    """
    found = jsontext.decode_trimmed(jsontext.decoder(_AwsNode), daemon_set)[0]
    return {
        variable.name: variable.value
        for container in found.spec.template.spec.containers
        if container.name == "aws-node"
        for variable in container.env
    }


def kube_reserved(info: TypeInfo, shape: Shape, settings: MarketSettings) -> dict[str, str]:
    """What the kubelet keeps for itself, as the node's user data has to say it; the user's own values win."""
    pods = (
        _eni_pods(info, shape, 0) if shape.family in _ENI_MEMORY_FAMILIES else max_pods(info, shape, settings)
    )  # the start scripts of those families compute it so, whatever maxPods is
    millis = sum(
        int((min(end, info.vcpus * 1000) - start) * share)
        for start, end, share in _KUBE_RESERVED_CPU
        if info.vcpus * 1000 > start
    )
    computed = {CPU: f"{millis}m", MEMORY: f"{11 * pods + 255}Mi", EPHEMERAL_STORAGE: "1Gi"}
    return {**computed, **dict(shape.kubelet.kube_reserved)}


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Container(msgspec.Struct):
    name: str
    env: list[_Variable] = msgspec.field(default_factory=list)


class _PodSpec(msgspec.Struct):
    containers: list[_Container]


class _PodTemplate(msgspec.Struct):
    spec: _PodSpec


class _DaemonSetSpec(msgspec.Struct):
    template: _PodTemplate


class _AwsNode(msgspec.Struct):
    spec: _DaemonSetSpec


def _capacity(info: TypeInfo, shape: Shape, settings: MarketSettings) -> Resources:
    amounts = {
        CPU: info.vcpus * 1000,
        MEMORY: guessed_memory(info, settings),
        EPHEMERAL_STORAGE: _storage(info, shape),
        PODS: max_pods(info, shape, settings),
        labels.EFA: shape.efa_only if shape.interfaces is not None else len(_efas(efa_interfaces(info, shape))),
        labels.NEURON: sum(device.count for device in info.neuron),
        labels.NEURON_CORE: info.neuron[0].count * info.neuron[0].cores if info.neuron else 0,
    }
    for gpu in info.gpus:
        resource = _GPU_RESOURCES.get(gpu.manufacturer)
        if resource is not None:
            amounts[resource] = amounts.get(resource, 0) + gpu.devices
    limits = static_data.eni_limits().get(info.name)
    if limits is not None and limits.trunking:
        amounts[labels.POD_ENI] = limits.branches
    if limits is not None and shape.windows:
        amounts[labels.PRIVATE_IPV4] = limits.ipv4_per_interface - 1
    kept = {CPU, MEMORY, EPHEMERAL_STORAGE, PODS}
    return Resources.of({name: amount for name, amount in amounts.items() if amount > 0 or name in kept})


def _overhead(info: TypeInfo, shape: Shape, settings: MarketSettings) -> Resources:
    with contextlib.suppress(FormulaError):
        shape = dataclasses.replace(shape, kubelet=resolved_kubelet(info, shape, settings))
    kept = _quantities(kube_reserved(info, shape, settings).items()) + _quantities(shape.kubelet.system_reserved)
    storage = _storage(info, shape)
    whole = {MEMORY: guessed_memory(info, settings), EPHEMERAL_STORAGE: storage}
    threshold = {MEMORY: 100 * _MIB, EPHEMERAL_STORAGE: math.ceil(storage * 10 / 100)}
    for signal, text in shape.kubelet.eviction_hard:
        resource = _EVICTION_SIGNALS.get(signal)
        amount = None if resource is None else _threshold(text, whole[resource])
        if resource is not None and amount is not None:
            threshold[resource] = amount
    return kept + Resources.of(threshold)


def _threshold(text: str, whole: int) -> int | None:
    """Bytes of an eviction threshold, None where it cannot be read; 100 % switches it off."""
    if text.endswith("%"):
        try:
            percent = float(text[:-1])
        except ValueError:
            return None
        return 0 if percent == 100 else math.ceil(whole / 100 * percent)
    return _quantity(text)


def _storage(info: TypeInfo, shape: Shape) -> int:
    if shape.raid0 and info.storage_gb:
        return info.storage_gb * _GB
    return shape.storage


def _volume_bytes(node_class: EC2NodeClass) -> int:
    """The size of the volume that holds ephemeral storage."""
    mappings, family = node_class.block_device_mappings, node_class.family
    devices = DEFAULT_DEVICES[family]
    sizes = [
        _quantity(mapping.ebs.volume_size)
        if isinstance(mapping.ebs, ec2.BlockDevice) and isinstance(mapping.ebs.volume_size, str)
        else None
        for mapping in mappings
    ]
    if not mappings:
        return devices[-1][1] * _GIB if devices else _DEFAULT_STORAGE
    roots = [size for mapping, size in zip(mappings, sizes, strict=True) if mapping.root_volume]
    if roots and roots[0]:
        return roots[0]
    if family == ec2.CUSTOM:
        return sizes[-1] or _DEFAULT_STORAGE
    device, gib = devices[-1]
    named = [size for mapping, size in zip(mappings, sizes, strict=True) if mapping.device_name == device]
    return named[0] if named and named[0] else gib * _GIB


def _volumes(node_class: EC2NodeClass) -> int:
    """How many volumes instances start with: those of the class, and of the family's images."""
    wanted = {str(one.device_name) for one in node_class.block_device_mappings}
    return max(1, len(wanted.union(device for device, _ in DEFAULT_DEVICES[node_class.family])))


def _efas(interfaces: Iterable[NetworkInterface]) -> list[NetworkInterface]:
    return [one for one in interfaces if one.interface_type in ec2.EFA_TYPES]


def _addresses(info: TypeInfo, shape: Shape, reserved: int) -> int:
    """IPv4 addresses for pods that the default network card can have."""
    efa = sum(one.interface_type == ec2.EFA_ONLY and one.network_card_index == 0 for one in shape.interfaces or ())
    interfaces = info.default_interfaces - reserved - efa
    return max(0, interfaces) * max(0, info.ipv4_per_interface - 1)


def _eni_pods(info: TypeInfo, shape: Shape, reserved: int) -> int:
    addresses = _addresses(info, shape, reserved)
    return addresses + 2 if addresses else 0


def _unfit_addresses(info: TypeInfo, shape: Shape) -> str:
    """Source: EKS User Guide, cni-ipv6; EC2 User Guide, ec2-prefix-eni. With IPv6, pods get their addresses out of prefixes."""
    if shape.ipv6 and shape.windows:
        return "Windows nodes do not support IPv6"
    if shape.ipv6 and not info.nitro:
        return "pods have IPv6 addresses on Nitro instances only"
    if shape.ipv6 and not info.ipv6_per_interface:
        return "it does not support IPv6"
    if shape.prefixes and not info.nitro:
        return "address prefixes can only be assigned on Nitro instances"
    if shape.ipv6 and shape.prefixes > info.ipv6_per_interface:
        return f"its interfaces support {info.ipv6_per_interface} IPv6 addresses, which is not enough for {shape.prefixes} prefixes"
    if not shape.ipv6 and shape.prefixes and shape.prefixes + 1 > info.ipv4_per_interface:
        return f"its interfaces support {info.ipv4_per_interface} addresses, which is not enough for {shape.prefixes} prefixes and one address"
    return ""


def _unfit_interfaces(info: TypeInfo, shape: Shape) -> str:
    if not shape.interfaces:
        return ""
    if shape.public and len(shape.interfaces) > 1:
        return "EC2 assigns public addresses only to instances with one network interface"
    if not info.ena:
        return "network interfaces can only be configured on instances with ENA"
    cards = {card.index: card for card in info.cards}
    for one in shape.interfaces:
        if one.network_card_index >= len(info.cards):
            return f"it has no network card {one.network_card_index}"
        card = cards.get(one.network_card_index)
        if card is None or one.device_index >= card.interfaces:
            return f"its network card {one.network_card_index} does not support device index {one.device_index}"
        if not card.takes(one.interface_type):
            return f"its network card {one.network_card_index} does not support interfaces of type {one.interface_type}"
    if shape.efa_only > info.efa_interfaces:
        return f"it supports {info.efa_interfaces} EFA interfaces, not {shape.efa_only}"
    return ""


def _requirements(info: TypeInfo, zones: tuple[str, ...], shape: Shape, settings: MarketSettings) -> Requirements:
    arch = next((ARCHITECTURES[one] for one in info.architectures if one in ARCHITECTURES), "")
    systems = ("linux",) if not shape.windows else ("windows",) if arch == "amd64" else ()
    reservations = shape.reservations_of(info.name)
    kinds = {*info.usage_classes} & {names.CAPACITY_ON_DEMAND, names.CAPACITY_SPOT}
    zone_ids = {shape.zone_id(zone) for zone in zones} - {""}
    core = [
        _in(names.INSTANCE_TYPE_LABEL, info.name),
        _in(names.ARCH_LABEL, arch),
        _in(names.OS_LABEL, *systems),
        _in(names.ZONE_LABEL, *zones),
        _in(names.REGION_LABEL, settings.region),
        _in(names.WINDOWS_BUILD_LABEL, WINDOWS_BUILDS.get(shape.family, "")),
        _in(names.CAPACITY_TYPE_LABEL, *sorted(kinds | ({names.CAPACITY_RESERVED} if reservations else set()))),
        _in(labels.ZONE_ID, *sorted(zone_ids)),
        _in(labels.TENANCY, labels.DEFAULT_TENANCY, *(() if _only_shared(info) else (labels.DEDICATED_TENANCY,))),
        _in(labels.RESERVATION_ID, *sorted({one.id for one in reservations})),
        _in(labels.RESERVATION_TYPE, *sorted({one.reservation_type for one in reservations})),
        _in(labels.RESERVATION_INTERRUPTIBLE, *sorted({_truth(one.interruptible) for one in reservations})),
    ]
    if shape.group is not None:
        core.append(_in(labels.PLACEMENT_GROUP_ID, shape.group.id))
        if shape.group.partitions:
            core.append(_in(labels.PLACEMENT_GROUP_PARTITION, *map(str, range(1, shape.group.partitions + 1))))
    return Requirements.of((*core, *(_in(key, *values) for key, values in _own_labels(info).items())))


def _own_labels(info: TypeInfo) -> dict[str, tuple[str, ...]]:
    """The labels that describe the hardware; one without values is never on its nodes. "" is a value (of the hypervisor)."""
    found = _NAME.match(info.name)
    family, dot, size = info.name.partition(".")
    values: dict[str, str | None] = {
        labels.CATEGORY: found[1] if found else None,
        labels.GENERATION: found[3] if found else None,
        labels.FAMILY: family if dot else None,
        labels.SIZE: size if dot else None,
        labels.FLEX: _truth("-flex" in family),
        labels.CPU: str(info.vcpus),
        labels.CPU_MANUFACTURER: _kebab(info.manufacturer) or None,
        labels.CPU_CLOCK: str(math.floor((info.clock_ghz or 0) * 1000 + 0.5)),
        labels.MEMORY: str(info.memory_mib),
        labels.EBS_BANDWIDTH: None if info.ebs_mbps is None else str(info.ebs_mbps),
        labels.NETWORK_BANDWIDTH: _network_mbps(info),
        labels.LOCAL_NVME: str(info.storage_gb) if info.storage_gb is not None and info.local_nvme else None,
        labels.HYPERVISOR: info.hypervisor,
        labels.ENCRYPTION_IN_TRANSIT: _truth(info.encryption_in_transit),
        labels.NITRO_SANDBOX: _truth(info.enclaves),
        **dict.fromkeys((labels.GPU_NAME, labels.GPU_MANUFACTURER, labels.GPU_COUNT, labels.GPU_MEMORY)),
        **dict.fromkeys((labels.ACCELERATOR_NAME, labels.ACCELERATOR_MANUFACTURER, labels.ACCELERATOR_COUNT)),
    }
    if len(info.gpus) == 1:
        (gpu,) = info.gpus
        values[labels.GPU_NAME] = _kebab(gpu.name)
        values[labels.GPU_MANUFACTURER] = _kebab(gpu.manufacturer)
        values[labels.GPU_COUNT] = str(gpu.count)
        values[labels.GPU_MEMORY] = str(gpu.memory_mib)
    accelerator: tuple[str, str, int] | None = None
    if len(info.neuron) == 1:
        accelerator = info.neuron[0].name, "aws", info.neuron[0].count
    elif len(info.accelerators) == 1 and not info.neuron:
        accelerator = info.accelerators[0].name, info.accelerators[0].manufacturer, info.accelerators[0].count
    if accelerator is not None:
        values[labels.ACCELERATOR_NAME] = _kebab(accelerator[0])
        values[labels.ACCELERATOR_MANUFACTURER] = _kebab(accelerator[1])
        values[labels.ACCELERATOR_COUNT] = str(accelerator[2])
    return {key: () if value is None else (value,) for key, value in values.items()}


def unknown_to_tables(infos: Iterable[TypeInfo]) -> tuple[str, ...]:
    """Types of which no shipped table says what EC2 does not: network interfaces for pods and on Windows, or the bandwidth; in order."""
    limits = static_data.eni_limits()
    return tuple(
        sorted(
            one.name
            for one in infos
            if one.name not in limits or (_network_mbps(one) is None and one.network_performance not in _VAGUE_NETWORK)
        )
    )


def _network_mbps(info: TypeInfo) -> str | None:
    """Baseline bandwidth: the documented figure, else the sum over the cards; None where it is words only ("Moderate")."""
    documented = static_data.network_mbps().get(info.name)
    if documented is not None:
        return str(documented)
    baselines = [card.baseline_gbps for card in info.cards if card.baseline_gbps is not None]
    if not baselines or info.network_performance in _VAGUE_NETWORK:
        return None
    return str(round(sum(baselines) * 1000))


@functools.lru_cache(maxsize=65536)  # the same few thousand requirements in every type: one object each
def _in(key: str, *values: str) -> Requirement:
    """`key` In `values`, or DoesNotExist without any; "" counts as a value only for the hypervisor."""
    listed = tuple(value for value in values if value or key == labels.HYPERVISOR)
    return Requirement.of(key, Operator.IN, listed) if listed else Requirement.of(key, Operator.DOES_NOT_EXIST)


def _only_shared(info: TypeInfo) -> bool:
    """Whether instances cannot be dedicated. Source: https://aws.amazon.com/ec2/pricing/dedicated-instances/; DescribeInstanceTypes does not tell."""
    return info.name.startswith(("t1.", "t2."))


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


@functools.lru_cache(maxsize=256)  # asked for each type
def _has_formulas(amounts: tuple[tuple[str, str], ...]) -> bool:
    return any(kubelet_formulas.is_formula(text) for _, text in amounts)


def _pairs(fields: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(fields, Mapping):
        return ()
    return tuple(sorted((str(key), str(value)) for key, value in fields.items()))


def _quantities(pairs: Iterable[tuple[str, str]]) -> Resources:
    good = {name: text for name, text in pairs if name in _RESERVABLE and _quantity(text) is not None}
    return Resources.parse(good)


def _quantity(text: str) -> int | None:
    try:
        return Quantity.parse(text).units()
    except QuantityError:
        return None
