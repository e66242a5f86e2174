import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import AMI, AMIRequirement, CapacityReservation, EC2NodeClass, NetworkInterface
from provisioner.ec2 import labels
from provisioner.ec2.access import wire
from provisioner.ec2.launch import templates
from provisioner.ec2.market import instance_types
from provisioner.ec2.market.catalogue import EC2Catalogue, Region
from provisioner.ec2.market.instance_types import Kubelet, MarketSettings, PlacementGroup, Shape
from provisioner.ec2.market.offerings import OfferingMarket
from provisioner.values.requirement import Operator
from tests.support import ec2pages
from tests.support.ec2 import hardware, nodes
from tests.support.ec2.interfaces import check_interfaces
from tests.support.ec2.protocol import AwsError

GIB = 2**30
MIB = 2**20
ZONES = (("us-east-1a", "use1-az1"), ("us-east-1b", "use1-az2"))
SETTINGS = MarketSettings("us-east-1")
LINUX = Shape(family=ec2.AL2023, zones=ZONES)
INFOS = [
    info
    for page in ec2pages.type_pages(ec2pages.described_types().values())
    for info in wire.instance_types(page)[0]
    if instance_types.usable(info)
]


def info_of(name: str) -> wire.TypeInfo:
    ((info,), token) = wire.instance_types(ec2pages.type_pages([ec2pages.described_types()[name]])[0])
    assert token == ""
    return info


def class_of(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> EC2NodeClass:
    return msgspec.convert({"metadata": {"name": "default"}, "spec": spec, "status": status or {}}, EC2NodeClass)


@dataclass(frozen=True)
class PodsCase:
    type: str
    want: int
    shape: Shape = LINUX
    settings: MarketSettings = SETTINGS


PREFIXES = replace(SETTINGS, prefix_delegation=True)
PODS = {
    "by the ENI formula": PodsCase("m5.large", 3 * 9 + 2),
    "one ENI reserved": PodsCase("m5.large", 2 * 9 + 2, settings=replace(SETTINGS, reserved_enis=1)),
    "all ENIs reserved leaves none": PodsCase("m5.large", 0, settings=replace(SETTINGS, reserved_enis=3)),
    "as the user says": PodsCase("m5.large", 42, replace(LINUX, kubelet=Kubelet(max_pods=42))),
    "0 as the user says": PodsCase("m5.large", 0, replace(LINUX, kubelet=Kubelet(max_pods=0))),
    "pods per core is the tighter one": PodsCase("m5.large", 6, replace(LINUX, kubelet=Kubelet(pods_per_core=3))),
    "pods per core is the looser one": PodsCase("m5.large", 29, replace(LINUX, kubelet=Kubelet(pods_per_core=99))),
    "Bottlerocket knows no pods per core": PodsCase(
        "m5.large", 29, Shape(family=ec2.BOTTLEROCKET, zones=ZONES, kubelet=Kubelet(pods_per_core=3))
    ),
    "Windows has 110": PodsCase("m5.large", 110, Shape(family=ec2.WINDOWS_2022, zones=ZONES)),
    "prefixes below 30 vCPU are cut at 110": PodsCase("m5.large", 110, settings=PREFIXES),
    "prefixes from 30 vCPU on are cut at 250": PodsCase("m5.8xlarge", 250, settings=PREFIXES),
    "prefixes on a type with few addresses": PodsCase("t3.nano", 2 * 1 * 16 + 2, settings=PREFIXES),
    "prefixes, one ENI reserved": PodsCase("t3.nano", 1 * 1 * 16 + 2, settings=replace(PREFIXES, reserved_enis=1)),
    "prefixes, all ENIs reserved": PodsCase("t3.nano", 0, settings=replace(PREFIXES, reserved_enis=2)),
    "Xen instances have no prefixes": PodsCase("m4.large", 2 * 9 + 2, settings=PREFIXES),
    "bare metal of Nitro has prefixes": PodsCase("m5.metal", 250, settings=PREFIXES),
    "an EFA-only interface takes no addresses": PodsCase(
        "hpc7g.4xlarge",
        3 * 49 + 2,
        replace(
            LINUX,
            interfaces=(
                NetworkInterface(interface_type="interface"),
                NetworkInterface(device_index=1, interface_type="efa-only"),
            ),
        ),
    ),
}


@pytest.mark.parametrize("case", PODS.values(), ids=PODS)
def test_max_pods(case: PodsCase) -> None:
    assert instance_types.max_pods(info_of(case.type), case.shape, case.settings) == case.want


CPU_RESERVED = {1: 60, 2: 70, 4: 80, 8: 90, 16: 110, 32: 150, 48: 190, 64: 230, 96: 310, 128: 390, 192: 550}


@pytest.mark.parametrize(("vcpus", "millis"), CPU_RESERVED.items())
def test_cpu_that_the_kubelet_keeps(vcpus: int, millis: int) -> None:
    info = msgspec.structs.replace(info_of("m5.large"), vcpus=vcpus)
    assert instance_types.kube_reserved(info, LINUX, SETTINGS)["cpu"] == f"{millis}m"


@dataclass(frozen=True)
class RoomCase:
    """Allocatable amounts of m5.large in the wire's words; those not named are as by default."""

    shape: Shape = LINUX
    settings: MarketSettings = SETTINGS
    want: Mapping[str, str] = field(default_factory=dict)


def with_kubelet(**fields: Any) -> Shape:
    return replace(LINUX, kubelet=Kubelet.of(fields))


M5_CAPACITY = 8192 - math.ceil(8192 * 0.075)
DEFAULT_ROOM = {
    "cpu": "1930m",
    "memory": f"{M5_CAPACITY - (11 * 29 + 255) - 100}Mi",
    "ephemeral-storage": "17Gi",
    "pods": "29",
    labels.POD_ENI: "9",
}
ROOM = {
    "by default": RoomCase(),
    "user's maxPods does not change what AL2023 keeps": RoomCase(with_kubelet(maxPods=110), want={"pods": "110"}),
    "reserved ENIs do not change what AL2023 keeps": RoomCase(
        settings=replace(SETTINGS, reserved_enis=1), want={"pods": "20"}
    ),
    "Bottlerocket keeps memory by its pods": RoomCase(
        Shape(family=ec2.BOTTLEROCKET, zones=ZONES, kubelet=Kubelet(max_pods=110)),
        want={"pods": "110", "memory": f"{M5_CAPACITY - (11 * 110 + 255) - 100}Mi"},
    ),
    "kubeReserved by key": RoomCase(with_kubelet(kubeReserved={"cpu": "500m"}), want={"cpu": "1500m"}),
    "systemReserved comes on top": RoomCase(with_kubelet(systemReserved={"cpu": "100m"}), want={"cpu": "1830m"}),
    "reserved pids are no resource": RoomCase(with_kubelet(systemReserved={"pid": "1000"})),
    "evictionHard in bytes": RoomCase(
        with_kubelet(evictionHard={"memory.available": "500Mi"}),
        want={"memory": f"{M5_CAPACITY - (11 * 29 + 255) - 500}Mi"},
    ),
    "evictionHard of memory alone leaves that of the disk": RoomCase(
        with_kubelet(evictionHard={"memory.available": "100Mi"})
    ),
    "evictionHard in percent": RoomCase(
        with_kubelet(evictionHard={"nodefs.available": "50%"}), want={"ephemeral-storage": "9Gi"}
    ),
    "evictionHard of 100 % is none": RoomCase(
        with_kubelet(evictionHard={"nodefs.available": "100%"}), want={"ephemeral-storage": "19Gi"}
    ),
    "evictionSoft does not count": RoomCase(with_kubelet(evictionSoft={"memory.available": "2Gi"})),
    "malformed amounts are left to validation": RoomCase(
        with_kubelet(systemReserved={"cpu": "lots"}, evictionHard={"memory.available": "x%"}, maxPods="10 +")
    ),
    "no guess of the memory overhead": RoomCase(
        settings=replace(SETTINGS, vm_memory_overhead=0.0), want={"memory": f"{8192 - (11 * 29 + 255) - 100}Mi"}
    ),
}


FORMULAS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "pods": ({"maxPods": "min(110, default_enis * (ips_per_eni - 1))"}, {"pods": "27"}),
    "of pods the usual number is known": ({"maxPods": "max_pods - 9"}, {"pods": "20"}),
    "of what is reserved the number that was asked for": (
        {"maxPods": "20", "systemReserved": {"memory": "max_pods * 8"}},
        {"pods": "20", "memory": f"{8192 - 615 - 100 - (11 * 29 + 255) - 160}Mi"},
    ),
    "cpu, in millicores": ({"kubeReserved": {"cpu": "vcpus * 61"}}, {"cpu": "1870m"}),
    "a quantity beside an expression": ({"kubeReserved": {"cpu": "1", "memory": "memory_mib / 16"}}, {"cpu": "1"}),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_expressions_of_the_kubelet(name: str) -> None:
    kubelet, want = FORMULAS[name]
    shape = with_kubelet(**kubelet)
    room = instance_types.type_of(info_of("m5.large"), ["us-east-1a"], shape, SETTINGS).allocatable.to_wire()
    assert {key: room[key] for key in want} == want
    assert instance_types.formula_problem(info_of("m5.large"), shape, SETTINGS) == ""


NO_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "no number": ({"maxPods": "1 / (vcpus - 2)"}, "cannot be evaluated for m5.large: division by zero"),
    "too many pods": ({"maxPods": "vcpus * 2147483647"}, "which is not from 0 to 2147483647"),
    "fewer pods than none": ({"maxPods": "0 - vcpus"}, '"0 - vcpus" is -2 for m5.large'),
    "less than nothing": ({"systemReserved": {"cpu": "vcpus - 3"}}, "which is negative"),
    "nothing of the sort": ({"kubeReserved": {"cpu": "cpus"}}, "'cpus' is not known"),
}


@pytest.mark.parametrize("name", NO_VALUES)
def test_a_type_for_which_an_expression_has_no_value_is_not_launched(name: str) -> None:
    kubelet, want = NO_VALUES[name]
    shape, info = with_kubelet(**kubelet), info_of("m5.large")
    assert want in instance_types.formula_problem(info, shape, SETTINGS)
    catalogue = EC2Catalogue(SETTINGS)
    catalogue.load(Region.of([info], [(info.name, "us-east-1a")]))
    (made,) = catalogue.types(shape, OfferingMarket(price=lambda *_: 1.0), 0)
    assert not any(one.available for one in made.offerings)
    usual = catalogue.types(replace(shape, kubelet=Kubelet()), OfferingMarket(price=lambda *_: 1.0), 0)
    assert any(one.available for one in usual[0].offerings)


@pytest.mark.parametrize("case", ROOM.values(), ids=ROOM)
def test_what_pods_may_use(case: RoomCase) -> None:
    made = instance_types.type_of(info_of("m5.large"), ["us-east-1a"], case.shape, case.settings)
    assert made.allocatable.to_wire() == DEFAULT_ROOM | dict(case.want)


def test_memory_in_percent_goes_by_the_guess_even_where_the_truth_is_known() -> None:
    shape = with_kubelet(evictionHard={"memory.available": "10%"})
    guessed = instance_types.type_of(info_of("m5.large"), ["us-east-1a"], shape, SETTINGS)
    made = instance_types.with_memory(guessed, 8000 * MIB)
    assert made.capacity["memory"] == 8000 * MIB
    kept = (11 * 29 + 255) * MIB + math.ceil(M5_CAPACITY * MIB / 100 * 10)
    assert made.allocatable["memory"] == 8000 * MIB - kept


def test_arm_firmware_takes_64_mib() -> None:
    assert instance_types.guessed_memory(info_of("a1.medium"), SETTINGS) == (1984 - math.ceil(1984 * 0.075)) * MIB


@dataclass(frozen=True)
class DiskCase:
    spec: Mapping[str, Any]
    want: int
    type: str = "m5.large"


def mapping(device: str | None = None, size: str | None = None, *, root: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"rootVolume": root} if root else {}
    if device is not None:
        row["deviceName"] = device
    if size is not None:
        row["ebs"] = {"volumeSize": size}
    return row


DISKS = {
    "AL2023 has 20Gi": DiskCase({"amiFamily": "AL2023"}, 20 * GIB),
    "Bottlerocket's data volume has 20Gi": DiskCase({"amiFamily": "Bottlerocket"}, 20 * GIB),
    "Windows has 50Gi": DiskCase({"amiFamily": "Windows2022"}, 50 * GIB),
    "Custom without devices": DiskCase({"amiFamily": "Custom"}, 20 * GIB),
    "the family's device by name": DiskCase(
        {"amiFamily": "AL2023", "blockDeviceMappings": [mapping("/dev/sdb", "5Gi"), mapping("/dev/xvda", "100Gi")]},
        100 * GIB,
    ),
    "Bottlerocket's data device, not its system's": DiskCase(
        {
            "amiFamily": "Bottlerocket",
            "blockDeviceMappings": [mapping("/dev/xvda", "5Gi"), mapping("/dev/xvdb", "80Gi")],
        },
        80 * GIB,
    ),
    "other devices only": DiskCase(
        {"amiFamily": "AL2023", "blockDeviceMappings": [mapping("/dev/sdb", "5Gi")]}, 20 * GIB
    ),
    "the root volume wins": DiskCase(
        {
            "amiFamily": "AL2023",
            "blockDeviceMappings": [mapping("/dev/xvda", "5Gi"), mapping("/dev/sdb", "70G", root=True)],
        },
        70 * 10**9,
    ),
    "Custom takes the last": DiskCase(
        {"amiFamily": "Custom", "blockDeviceMappings": [mapping("/dev/a", "5Gi"), mapping("/dev/b", "6Gi")]}, 6 * GIB
    ),
    "a snapshot without a size": DiskCase(
        {"amiFamily": "AL2023", "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"snapshotID": "snap-1"}}]},
        20 * GIB,
    ),
    "a mapping without anything": DiskCase({"amiFamily": "AL2023", "blockDeviceMappings": [{}]}, 20 * GIB),
    "RAID0 of local disks": DiskCase(
        {"amiFamily": "AL2023", "instanceStorePolicy": "RAID0"}, 75 * 10**9, type="m5d.large"
    ),
    "RAID0 without local disks": DiskCase({"amiFamily": "AL2023", "instanceStorePolicy": "RAID0"}, 20 * GIB),
}


@pytest.mark.parametrize("case", DISKS.values(), ids=DISKS)
def test_ephemeral_storage(case: DiskCase) -> None:
    shape = Shape.of(class_of(case.spec))
    made = instance_types.type_of(info_of(case.type), ["us-east-1a"], shape, SETTINGS)
    assert made.capacity["ephemeral-storage"] == case.want


DEVICES = {
    "NVIDIA": ("p5.48xlarge", {labels.NVIDIA_GPU: 8, labels.EFA: 32}),
    "Neuron": ("inf2.24xlarge", {labels.NEURON: 6, labels.NEURON_CORE: 12}),
    "a share of a GPU is one that pods may have": ("g6f.large", {labels.NVIDIA_GPU: 1}),
}


@pytest.mark.parametrize(("name", "want"), DEVICES.values(), ids=DEVICES)
def test_devices(name: str, want: Mapping[str, int]) -> None:
    made = instance_types.type_of(info_of(name), ["us-east-1a"], LINUX, SETTINGS)
    assert {resource: made.capacity.amount(resource) for resource in want} == want


def test_as_many_gpus_are_promised_as_nodes_advertise() -> None:
    found = {
        name: instance_types.type_of(info_of(name), ["us-east-1a"], LINUX, SETTINGS).capacity.amount(labels.NVIDIA_GPU)
        for name, one in ec2pages.described_types().items()
        if one.get("GpuInfo") or name in nodes.GPU_SHARES
    }
    assert found == {name: nodes.nvidia_gpus(ec2pages.described_types()[name]) for name in found}
    assert found.keys() > nodes.GPU_SHARES.keys()


def test_types_with_parts_of_gpus_say_so() -> None:
    made = (instance_types.type_of(info, ["us-east-1a"], LINUX, SETTINGS) for info in INFOS)
    found = {one.name: one.partial for one in made if one.partial}
    assert found == dict.fromkeys(nodes.GPU_SHARES, frozenset({labels.NVIDIA_GPU}))


def test_gaudi_is_a_gpu_of_habana() -> None:
    info = msgspec.structs.replace(info_of("m5.large"), gpus=(wire.Gpu("Gaudi HL-205", "Habana", 8, 32768, 8),))
    made = instance_types.type_of(info, ["us-east-1a"], LINUX, SETTINGS)
    assert made.capacity[labels.GAUDI] == 8
    assert made.requirements[labels.GPU_NAME].single_value == "gaudi-hl-205"
    assert made.requirements[labels.GPU_MANUFACTURER].single_value == "habana"


def test_chosen_interfaces_decide_how_many_efas_there_are() -> None:
    shape = replace(LINUX, interfaces=(NetworkInterface(interface_type="interface"),))
    assert (
        instance_types.type_of(info_of("p5.48xlarge"), ["us-east-1a"], shape, SETTINGS).capacity.amount(labels.EFA) == 0
    )


def test_windows_has_addresses_and_a_build() -> None:
    made = instance_types.type_of(info_of("m5.large"), ["us-east-1a"], Shape(ec2.WINDOWS_2022, ZONES), SETTINGS)
    assert made.capacity[labels.PRIVATE_IPV4] == 9
    assert made.requirements[names.OS_LABEL].single_value == "windows"
    assert made.requirements[names.WINDOWS_BUILD_LABEL].single_value == "10.0.20348"


def test_windows_does_not_run_on_arm() -> None:
    made = instance_types.type_of(info_of("m7g.large"), ["us-east-1a"], Shape(ec2.WINDOWS_2022, ZONES), SETTINGS)
    assert made.requirements[names.OS_LABEL].operator is Operator.DOES_NOT_EXIST


def test_zones_are_those_of_offer_and_subnets() -> None:
    made = instance_types.type_of(info_of("m5.large"), ["us-east-1b", "us-east-1f"], LINUX, SETTINGS)
    assert made.requirements[names.ZONE_LABEL].single_value == "us-east-1b"
    assert made.requirements[labels.ZONE_ID].single_value == "use1-az2"
    nowhere = instance_types.type_of(info_of("m5.large"), ["us-east-1f"], LINUX, SETTINGS)
    assert nowhere.requirements[names.ZONE_LABEL].operator is Operator.DOES_NOT_EXIST


def test_reservations_are_labels_and_a_capacity_type() -> None:
    own = CapacityReservation(id="cr-1", availability_zone="us-east-1a", instance_type="m5.large")
    other = CapacityReservation(id="cr-2", availability_zone="us-east-1a", instance_type="c5.large")
    made = instance_types.type_of(
        info_of("m5.large"), ["us-east-1a"], replace(LINUX, reservations=(own, other)), SETTINGS
    )
    assert made.requirements[names.CAPACITY_TYPE_LABEL].values == {"on-demand", "spot", "reserved"}
    assert made.requirements[labels.RESERVATION_ID].single_value == "cr-1"
    assert made.requirements[labels.RESERVATION_TYPE].single_value == "default"
    assert made.requirements[labels.RESERVATION_INTERRUPTIBLE].single_value == "false"


def test_placement_groups_are_labels() -> None:
    shape = replace(LINUX, group=PlacementGroup("pg-1", "partition", 3))
    made = instance_types.type_of(info_of("m5.large"), ["us-east-1a"], shape, SETTINGS)
    assert made.requirements[labels.PLACEMENT_GROUP_ID].single_value == "pg-1"
    assert made.requirements[labels.PLACEMENT_GROUP_PARTITION].values == {"1", "2", "3"}
    plain = instance_types.type_of(info_of("m5.large"), ["us-east-1a"], LINUX, SETTINGS)
    assert labels.PLACEMENT_GROUP_ID not in plain.requirements


NAMES = {
    "m5.large": ("m", "5", "m5", "large", "false"),
    "m7i-flex.large": ("m", "7", "m7i-flex", "large", "true"),
    "u-6tb1.112xlarge": ("u", "1", "u-6tb1", "112xlarge", "false"),
    "inf2.24xlarge": ("inf", "2", "inf2", "24xlarge", "false"),
}


@pytest.mark.parametrize(("name", "want"), NAMES.items(), ids=NAMES)
def test_what_a_name_tells(name: str, want: tuple[str, ...]) -> None:
    info = msgspec.structs.replace(info_of("m5.large"), name=name)
    made = instance_types.type_of(info, ["us-east-1a"], LINUX, SETTINGS).requirements
    keys = (labels.CATEGORY, labels.GENERATION, labels.FAMILY, labels.SIZE, labels.FLEX)
    assert tuple(made[key].single_value for key in keys) == want


def test_a_type_that_no_table_knows_has_the_bandwidth_that_ec2_states() -> None:
    info = msgspec.structs.replace(info_of("m5.large"), name="m99.large")
    made = instance_types.type_of(info, ["us-east-1a"], LINUX, SETTINGS).requirements
    assert made[labels.NETWORK_BANDWIDTH].single_value == "750"
    vague = msgspec.structs.replace(info, network_performance="Moderate")
    made = instance_types.type_of(vague, ["us-east-1a"], LINUX, SETTINGS).requirements
    assert made[labels.NETWORK_BANDWIDTH].operator is Operator.DOES_NOT_EXIST


@dataclass(frozen=True)
class FitCase:
    type: str
    shape: Shape
    want: str
    changes: Mapping[str, Any] = field(default_factory=dict)


IPV6 = replace(LINUX, ipv6=True)


EFA_INTERFACES: dict[str, list[tuple[int, int, str]]] = {
    "m5.large": [],
    "c5n.18xlarge": [(0, 0, "efa")],
    "i7ie.48xlarge": [(0, 0, "efa")],
    "hpc6id.32xlarge": [(0, 0, "efa"), (1, 0, "efa-only")],
    "c6in.32xlarge": [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")],
    "p5.48xlarge": [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 32))],
    "p6-b200.48xlarge": [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 8))],
    "p6-b300.48xlarge": [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))],
}
"""Card, device and type of each interface of an instance whose pods ask for EFA."""


def places(interfaces: Iterable[NetworkInterface]) -> list[tuple[int, int, str]]:
    return [(one.network_card_index, one.device_index, one.interface_type) for one in interfaces]


@pytest.mark.parametrize("name", EFA_INTERFACES)
def test_interfaces_for_efa(name: str) -> None:
    assert places(instance_types.efa_interfaces(info_of(name), LINUX)) == EFA_INTERFACES[name]


def test_ec2_takes_the_interfaces_for_efa_of_every_type_and_there_are_as_many_as_it_can_have() -> None:
    """As many as EfaInfo tells, which is the resource of its nodes; the emulator looks at every card."""
    for name, described in ec2pages.described_types().items():
        info = info_of(name)
        made = instance_types.efa_interfaces(info, LINUX)
        efas = sum(one.interface_type != "interface" for one in made)
        assert efas == info.efa_interfaces, name
        body = instance_types.type_of(info, ["us-east-1a"], LINUX, SETTINGS)
        assert body.capacity.amount(labels.EFA) == efas, name
        check_interfaces(
            described,
            [
                {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind}
                for card, device, kind in places(made)
            ],
        )


def test_a_class_with_public_addresses_has_efa_where_one_interface_does() -> None:
    shape = replace(LINUX, public=True)
    found = {
        name: instance_types.type_of(info_of(name), ["us-east-1a"], shape, SETTINGS).capacity.amount(labels.EFA)
        for name in EFA_INTERFACES
    }
    assert {name for name, efas in found.items() if efas} == {"c5n.18xlarge", "i7ie.48xlarge"}
    assert not any(instance_types.unfit(info_of(name), shape) for name in found), "for pods that ask for none"


def test_pods_have_no_addresses_of_an_interface_for_efa_on_the_first_card() -> None:
    def pods(name: str) -> tuple[int, int]:
        info = info_of(name)
        launched = instance_types.efa_launch(info, LINUX, SETTINGS).max_pods
        return instance_types.max_pods(info, LINUX, SETTINGS), launched

    assert pods("p5.48xlarge") == (100, 51)
    usual, launched = pods("p6-b300.48xlarge")
    assert usual == launched


def cards(*interfaces: tuple[int, int, str]) -> Shape:
    return replace(
        LINUX,
        interfaces=tuple(
            NetworkInterface(network_card_index=c, device_index=d, interface_type=t) for c, d, t in interfaces
        ),
    )


FITS = {
    "anything by default": FitCase("m4.large", LINUX, ""),
    "AL2023 on a1": FitCase("a1.large", LINUX, "AL2023 does not run on a1"),
    "AL2 on a1": FitCase("a1.large", Shape(ec2.AL2, ZONES), ""),
    "tracking on Xen": FitCase(
        "m4.large", replace(LINUX, tracking=True), "connection tracking can only be configured on Nitro instances"
    ),
    "tracking on Nitro": FitCase("m5.large", replace(LINUX, tracking=True), ""),
    "tracking on bare metal": FitCase("m5.metal", replace(LINUX, tracking=True), ""),
    "nested virtualization that is not there": FitCase(
        "m5.large", replace(LINUX, nested=True), "it does not support nested virtualization"
    ),
    "enclaves that are not there": FitCase(
        "t3.large", replace(LINUX, enclaves=True), "it does not support Nitro Enclaves"
    ),
    "enclaves": FitCase("m5.xlarge", replace(LINUX, enclaves=True), ""),
    "nested virtualization": FitCase("m8i.large", replace(LINUX, nested=True), ""),
    "a strategy that goes": FitCase("m5.large", replace(LINUX, group=PlacementGroup("pg", "cluster")), ""),
    "a strategy that does not": FitCase(
        "t3.large",
        replace(LINUX, group=PlacementGroup("pg", "cluster")),
        "it cannot be in a placement group of strategy cluster",
    ),
    "prefixes that go": FitCase("t3.nano", replace(LINUX, prefixes=1), ""),
    "prefixes too many": FitCase(
        "t3.nano",
        replace(LINUX, prefixes=2),
        "its interfaces support 2 addresses, which is not enough for 2 prefixes and one address",
    ),
    "prefixes on Xen": FitCase(
        "m4.large", replace(LINUX, prefixes=1), "address prefixes can only be assigned on Nitro instances"
    ),
    "a card that takes the interface": FitCase("p6-b300.48xlarge", cards((0, 0, "interface"), (1, 0, "efa-only")), ""),
    "a card that does not": FitCase(
        "p6-b300.48xlarge",
        cards((0, 0, "interface"), (0, 1, "efa-only")),
        "its network card 0 does not support interfaces of type efa-only",
    ),
    "a public address with several interfaces": FitCase(
        "p5.48xlarge",
        replace(cards((0, 0, "interface"), (1, 0, "efa-only")), public=True),
        "EC2 assigns public addresses only to instances with one network interface",
    ),
    "a public address with one": FitCase("p5.48xlarge", replace(cards((0, 0, "interface")), public=True), ""),
    "IPv6 on Nitro": FitCase("m5.large", IPV6, ""),
    "IPv6 on bare metal": FitCase("m5.metal", IPV6, ""),
    "IPv6 addresses on Xen": FitCase("t2.large", IPV6, "pods have IPv6 addresses on Nitro instances only"),
    "IPv6 on a type without": FitCase("m5.large", IPV6, "it does not support IPv6", {"ipv6_per_interface": 0}),
    "IPv6 on Windows": FitCase("m5.large", replace(IPV6, family=ec2.WINDOWS_2022), "Windows nodes do not support IPv6"),
    "IPv6 prefixes that go": FitCase("t3.nano", replace(IPV6, prefixes=2), ""),
    "IPv6 prefixes too many": FitCase(
        "t3.nano",
        replace(IPV6, prefixes=3),
        "its interfaces support 2 IPv6 addresses, which is not enough for 3 prefixes",
    ),
    "no interfaces chosen": FitCase("m4.large", replace(LINUX, interfaces=()), ""),
    "a card too many": FitCase("m5.large", cards((0, 0, "interface"), (1, 1, "interface")), "it has no network card 1"),
    "a device too many": FitCase(
        "m5.large", cards((0, 3, "interface")), "its network card 0 does not support device index 3"
    ),
    "an EFA too many": FitCase(
        "i7ie.48xlarge",
        cards((0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")),
        "it supports 1 EFA interfaces, not 2",
    ),
    "cards that are there": FitCase("p5.48xlarge", cards((0, 0, "interface"), (31, 1, "efa-only")), ""),
    "no ENA": FitCase(
        "t1.micro", cards((0, 0, "interface")), "network interfaces can only be configured on instances with ENA"
    ),
}


@pytest.mark.parametrize("case", FITS.values(), ids=FITS)
def test_unfit(case: FitCase) -> None:
    info = msgspec.structs.replace(info_of(case.type), **case.changes)
    assert instance_types.unfit(info, case.shape) == case.want


FAMILIES = {"AL2023": "al2023", "Bottlerocket": "bottlerocket", "Windows2022": "windows"}


@pytest.mark.parametrize("prefixes", [0, 1])
@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_fits_is_launched_and_gets_ready_and_nothing_else_is_left_out(
    family: str, ipv6: bool, prefixes: int
) -> None:
    node_class = class_of({"amiFamily": family, **({"ipPrefixCount": prefixes} if prefixes else {})})
    shape = Shape.of(node_class, ipv6=ipv6)
    instance = templates.InstanceSpec("ami", "", "profile", ("sg",), "on-demand", ipv6=ipv6)
    data = templates.template(node_class, instance, {}, "us-east-1").data
    wrong = []
    for info in INFOS:
        described = ec2pages.described_types()[info.name]
        try:
            hardware.check_addresses(described, data["NetworkInterfaces"])
        except AwsError:
            works = False
        else:
            works = hardware.gets_ready(described, FAMILIES[family], ipv6=ipv6)
        if works == bool(instance_types.unfit(info, shape)) and not info.name.startswith("a1."):
            wrong.append(info.name)
    assert wrong == []


def image(identifier: str, *requirements: tuple[str, str, tuple[str, ...]]) -> AMI:
    return AMI(
        id=identifier, requirements=tuple(AMIRequirement(key=k, operator=o, values=v) for k, o, v in requirements)
    )


ARM = (names.ARCH_LABEL, "In", ("arm64",))
AMD = (names.ARCH_LABEL, "In", ("amd64",))
NO_GPU = (labels.GPU_COUNT, "DoesNotExist", ())
GPU = (labels.GPU_COUNT, "Exists", ())
IMAGES = (image("gpu", AMD, GPU), image("newer", AMD, NO_GPU), image("older", AMD, NO_GPU), image("arm", ARM, NO_GPU))


@pytest.mark.parametrize(
    ("name", "want"), {"m5.large": "newer", "p5.48xlarge": "gpu", "m7g.large": "arm", "g5g.xlarge": None}.items()
)
def test_image_for(name: str, want: str | None) -> None:
    made = instance_types.type_of(info_of(name), ["us-east-1a"], LINUX, SETTINGS)
    found = instance_types.image_for(made.requirements, IMAGES)
    assert (found.id if found else None) == want


PREFIX_SETTINGS = {"true": True, "1": True, "TRUE": True, "false": False, "": False, "yes": False}


@pytest.mark.parametrize(("text", "want"), PREFIX_SETTINGS.items())
def test_prefix_delegation_as_aws_node_reads_it(text: str, want: bool) -> None:
    assert instance_types.prefix_delegation({"ENABLE_PREFIX_DELEGATION": text}) is want
    assert instance_types.prefix_delegation({}) is False


def test_the_environment_of_aws_node() -> None:
    env = [{"name": "ENABLE_PREFIX_DELEGATION", "value": "true"}, {"name": "NODE", "valueFrom": {"fieldRef": {}}}]
    containers = [
        {"name": "other", "env": [{"name": "X", "value": "y"}]},
        {"name": "aws-node", "image": "i", "env": env},
    ]
    body = msgspec.json.encode({"kind": "DaemonSet", "spec": {"template": {"spec": {"containers": containers}}}})
    assert instance_types.aws_node_environment(body) == {"ENABLE_PREFIX_DELEGATION": "true", "NODE": ""}
    with pytest.raises(msgspec.DecodeError):
        instance_types.aws_node_environment(b'{"kind": "Status"}')


def test_the_shape_of_a_class() -> None:
    spec = {
        "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
        "kubelet": {
            "maxPods": 50,
            "podsPerCore": 4,
            "kubeReserved": {"cpu": "1"},
            "evictionHard": {"memory.available": "5%"},
        },
        "connectionTracking": {"udpTimeout": 30},
        "ipPrefixCount": 2,
        "cpuOptions": {"nestedVirtualization": "enabled"},
        "enclaveOptions": {"enabled": True},
        "networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}],
    }
    status = {
        "subnets": [
            {"id": "subnet-2", "zone": "b", "zoneID": "id-b"},
            {"id": "subnet-1", "zone": "a", "zoneID": "id-a"},
            {"id": "subnet-3", "zone": "b", "zoneID": "id-b"},
        ],
        "capacityReservations": [
            {
                "id": "cr-1",
                "availabilityZone": "a",
                "instanceMatchCriteria": "open",
                "instanceType": "m5.large",
                "ownerID": "1",
            }
        ],
    }
    group = PlacementGroup("pg-1", "spread")
    shape = Shape.of(class_of(spec, status), group)
    assert shape.family == ec2.BOTTLEROCKET
    assert shape.zones == (("a", "id-a"), ("b", "id-b"))
    assert shape.kubelet == Kubelet(50, 4, (("cpu", "1"),), (), (("memory.available", "5%"),))
    assert (shape.tracking, shape.nested, shape.enclaves, shape.prefixes, shape.group) == (True, True, True, 2, group)
    assert shape.interfaces is not None
    assert [one.id for one in shape.reservations] == ["cr-1"]
    assert Shape.of(class_of(spec, status), reserved=False).reservations == ()
    assert hash(shape) == hash(Shape.of(class_of(spec, status), group))


def test_types_offer_the_tenancies_that_they_are_launched_with() -> None:
    refused: dict[str, set[str]] = {labels.DEFAULT_TENANCY: set(), labels.DEDICATED_TENANCY: set()}
    for info in INFOS:
        offered = instance_types.type_of(info, ["us-east-1a"], LINUX, SETTINGS).requirements[labels.TENANCY]
        for tenancy, names_of in refused.items():
            try:
                hardware.check_tenancy(ec2pages.described_types()[info.name], {"Tenancy": tenancy})
            except AwsError:
                names_of.add(info.name)
            assert offered.has(tenancy) is (info.name not in names_of), info.name
    assert not refused[labels.DEFAULT_TENANCY]
    assert "t2.micro" in refused[labels.DEDICATED_TENANCY]


def test_the_shape_of_an_empty_class() -> None:
    assert Shape.of(class_of({})) == Shape(family=ec2.CUSTOM, zones=())


def test_macs_are_not_for_us() -> None:
    assert [instance_types.usable(info_of(name)) for name in ("mac1.metal", "mac2.metal", "m5.large", "m7g.large")] == [
        False,
        False,
        True,
        True,
    ]
