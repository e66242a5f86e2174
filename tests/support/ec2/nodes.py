"""Instances become Nodes: what their user data and their hardware make of them, created as kwok Nodes.

A booted instance's Node has what its kubelet and the cloud controller write. kwok plays the kubelet from then on.

What the AWS cloud controller does when an instance ends: its Node stops being Ready, and is deleted once the controller sees, at a Node that
is not Ready, that the instance is gone; of a stopped instance it is tainted as shut down.
"""

import base64
import contextlib
import functools
import hashlib
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tests.support.ec2.hardware import gets_ready
from tests.support.ec2.instances import STOPPED, Instance
from tests.support.ec2.market import chance
from tests.support.ec2.reading import Kubelet, UserDataError, read

if TYPE_CHECKING:
    from provisioner.kube.client import Client
    from tests.support.ec2.world import Setup, World

_MIB: Final = 2**20
_GIB: Final = 2**30
_THREADS: Final = 4
_UNREADY_SECONDS: Final = 40.0
_AGAIN_SECONDS: Final = 1.0
_NOT_READY: Final = "kwok.dovetail.dev/not-ready"
_CLOUD_CONTROLLER_SECONDS: Final = 5.0
_ALLOWED_LABELS: Final = frozenset(
    {
        *("kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch"),
        *("beta.kubernetes.io/os", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
    }
)
_ALLOWED_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_G6_PAGE: Final = "https://aws.amazon.com/ec2/instance-types/g6/"
GPU_SHARES: Final = {  # of one L4 each, as one device: the share, and the vendor's page that says it
    "g6f.large": (0.125, _G6_PAGE),
    "g6f.xlarge": (0.125, _G6_PAGE),
    "g6f.2xlarge": (0.25, _G6_PAGE),
    "g6f.4xlarge": (0.5, _G6_PAGE),
    "gr6f.4xlarge": (0.5, _G6_PAGE),
}
"""Types with a part of a GPU. Their kubelets advertise one nvidia.com/gpu each (seen on EKS: https://github.com/aws/karpenter-provider-aws/pull/9322)."""
_CPU_SHARES: Final = ((1, 60.0), (1, 10.0), (2, 5.0), (10**6, 2.5))
_UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Nodes:
    """The cluster that instances join; without one they only run."""

    def __init__(self, setup: "Setup") -> None:
        self._setup = setup
        self._pool = ThreadPoolExecutor(_THREADS, "ec2-boot")
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._world: World | None = None
        self._role: Callable[[str], tuple[str, str] | None] = lambda _: None

    def watch(self, world: "World", role: Callable[[str], tuple[str, str] | None]) -> None:
        """Whose instances these are, and the role behind an instance profile."""
        self._world, self._role = world, role

    def boot(self, instance: Instance) -> None:
        """It has booted: join, or say why not."""
        self._pool.submit(self._guarded, self._join, instance)

    def reboot(self, instance: Instance, boot_id: str) -> None:
        """It has booted again."""
        if instance.joined:
            self._pool.submit(self._guarded, functools.partial(self._boot_again, boot_id), instance)

    def _boot_again(self, boot_id: str, instance: Instance) -> None:
        from provisioner.kube.errors import NotFound
        from provisioner.kube.resources import NODES

        body = {"status": {"nodeInfo": {"bootID": boot_id}}}
        with contextlib.suppress(NotFound):
            self._kube().patch(NODES, instance.node, body, subresource="status")

    def end(self, instance: Instance) -> None:
        """It is terminated or stopped."""
        if not instance.joined or self._world is None:
            return
        self._pool.submit(self._guarded, self._lose, instance)
        action = self._mark_stopped if instance.state == STOPPED else self._delete
        seconds = _UNREADY_SECONDS + _CLOUD_CONTROLLER_SECONDS
        self._world.timing.after(seconds, functools.partial(self._later, action, instance))

    def _later(self, action: Callable[[Instance], None], instance: Instance) -> None:
        self._pool.submit(self._guarded, action, instance)

    def _guarded(self, action: Callable[[Instance], None], instance: Instance) -> None:
        from provisioner.kube.errors import ConnectionFailed, ServerError

        try:
            action(instance)
        except (ServerError, ConnectionFailed):  # kubelets and the cloud controller try until the API server is back
            if self._world is not None:
                self._world.timing.after(_AGAIN_SECONDS, functools.partial(self._later, action, instance))
        except Exception:  # noqa: BLE001 - one instance that fails stops no other
            traceback.print_exc(file=sys.stderr)

    # ------------------------------------------------------------------ joining

    def _join(self, instance: Instance) -> None:
        world = self._world
        if world is None:
            return
        try:
            kubelet = self._kubelet(instance)
        except UserDataError as error:
            instance.not_joined = str(error)
            return
        described = world.market.types[instance.instance_type]
        document = node_of(instance, kubelet, described, self._setup, world)
        if not gets_ready(described, world.images.images[instance.image].family, ipv6=self._setup.ipv6):
            document["metadata"]["labels"][_NOT_READY] = "true"
        if instance.state in {"shutting-down", "terminated"} or not self._setup.kubeconfig:
            instance.not_joined = "there is no cluster" if not self._setup.kubeconfig else "it ended before"
            return
        self._create(instance, document)

    def _create(self, instance: Instance, document: dict[str, Any]) -> None:
        from provisioner.kube.errors import AlreadyExists, NotFound
        from provisioner.kube.resources import NODES

        client = self._kube()
        try:
            node = client.create(NODES, document, retry=True)
        except AlreadyExists:
            node = client.get(NODES, document["metadata"]["name"])
            # its address was another instance's, whose Node is still there; else it is ours, whose answer did not come
            if node.spec.provider_id != provider_id(instance):
                with contextlib.suppress(NotFound):
                    client.delete(NODES, node.metadata.name, uid=node.metadata.uid)
                node = client.create(NODES, document, retry=True)
        instance.node, instance.node_uid = node.metadata.name, node.metadata.uid
        instance.joined = True
        if instance.state == "terminated":
            self.end(instance)

    def _kubelet(self, instance: Instance) -> Kubelet:
        """What it starts with; raises UserDataError where it never joins."""
        assert self._world is not None
        setup = self._setup
        family = self._world.images.images[instance.image].family
        kubelet = read(family, instance.data.get("UserData", ""))
        if kubelet.cluster != setup.name:
            raise UserDataError(f"the token is for cluster {kubelet.cluster!r}: Unauthorized")
        if kubelet.endpoint.rstrip("/") != setup.endpoint.rstrip("/"):
            raise UserDataError(f"{kubelet.endpoint!r} does not answer")
        if _certificates(kubelet.ca_bundle) != _certificates(setup.ca_bundle) or not kubelet.ca_bundle:
            raise UserDataError("x509: certificate signed by unknown authority")
        wrong = sorted(label for label in kubelet.labels if not _may_set(label))
        if wrong:
            raise UserDataError(f"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: {wrong}")
        profile = instance.profile["Arn"].rpartition("/")[2] if instance.profile else ""
        found = self._role(profile) if profile else None
        if found is None or not found[1]:
            raise UserDataError("it has no role: Unauthorized")
        return kubelet

    # ------------------------------------------------------------------ leaving

    def _lose(self, instance: Instance) -> None:
        """Its kubelet is silent."""
        from provisioner.kube.errors import NotFound
        from provisioner.kube.resources import NODES

        with contextlib.suppress(NotFound):
            self._kube().patch(NODES, instance.node, {"metadata": {"labels": {_NOT_READY: "true"}}})

    def _delete(self, instance: Instance) -> None:
        from provisioner.kube.errors import Conflict, NotFound
        from provisioner.kube.resources import NODES

        with contextlib.suppress(NotFound, Conflict):  # gone, or the name is another instance's by now
            self._kube().delete(NODES, instance.node, uid=instance.node_uid)

    def _mark_stopped(self, instance: Instance) -> None:
        from provisioner.kube.errors import NotFound
        from provisioner.kube.resources import NODES

        taint = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
        with contextlib.suppress(NotFound):
            self._kube().patch(NODES, instance.node, {"spec": {"taints": [taint]}}, kind="strategic")

    def _kube(self) -> "Client":
        with self._lock:
            if self._client is None:
                from provisioner.kube.client import Client
                from provisioner.kube.config import connect
                from provisioner.support.clock import SystemClock

                connection = connect(
                    self._setup.kubeconfig, qps=1000, burst=1000, user_agent="ec2-emulator", pool_size=_THREADS
                )
                self._client = Client(connection, SystemClock())
            return self._client


def provider_id(instance: Instance) -> str:
    """As the cloud controller writes it."""
    return f"aws:///{instance.zone}/{instance.id}"


def node_of(
    instance: Instance, kubelet: Kubelet, described: Mapping[str, Any], setup: "Setup", world: "World"
) -> dict[str, Any]:
    """The Node of an instance, taints, labels, capacity and all."""
    image = world.images.images[instance.image]
    system = "windows" if image.family == "windows" else "linux"
    arch = {"x86_64": "amd64"}.get(instance.arch, instance.arch)
    capacity, allocatable = _resources(instance, kubelet, described, world)
    labels = {
        **kubelet.labels,
        "kubernetes.io/hostname": instance.dns,
        "kubernetes.io/arch": arch,
        "kubernetes.io/os": system,
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": system,
        "node.kubernetes.io/instance-type": instance.instance_type,
        "beta.kubernetes.io/instance-type": instance.instance_type,
        "topology.kubernetes.io/zone": instance.zone,
        "topology.kubernetes.io/region": setup.region,
        "failure-domain.beta.kubernetes.io/zone": instance.zone,
        "failure-domain.beta.kubernetes.io/region": setup.region,
        "topology.k8s.aws/zone-id": instance.zone_id,
        "kwok.x-k8s.io/node": "fake",
    }
    if system == "windows":
        labels["node.kubernetes.io/windows-build"] = _windows_build(image.name)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": instance.dns, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": provider_id(instance), "taints": kubelet.taints},
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                {"type": "InternalIP", "address": instance.address},
                {"type": "InternalDNS", "address": instance.dns},
                {"type": "Hostname", "address": instance.dns},
            ],
            "nodeInfo": {
                "architecture": arch,
                "operatingSystem": system,
                "osImage": image.name,
                "kubeletVersion": f"v{setup.version}.0-eks-ec2emu",
                "kubeProxyVersion": f"v{setup.version}.0-eks-ec2emu",
                "containerRuntimeVersion": "containerd://2.1.0",
                "kernelVersion": "6.12.0",
                "machineID": hashlib.blake2b(instance.id.encode(), digest_size=16).hexdigest(),
                "systemUUID": instance.id,
                "bootID": instance.id,
            },
        },
    }


def memory_bytes(described: Mapping[str, Any], image: str, seed: int) -> int:
    """What the kernel leaves of a type's nominal memory: the same for every instance of one type and image; 1.5 to 6.5 % less."""
    nominal = int(described["MemoryInfo"]["SizeInMiB"]) * _MIB
    share = 0.015 + 0.05 * chance(seed, "memory", described["InstanceType"], image)
    if described["ProcessorInfo"].get("SupportedArchitectures", ("",))[0] == "arm64":
        nominal -= 64 * _MIB
    return int(nominal * (1 - share)) // 4096 * 4096


def _resources(
    instance: Instance, kubelet: Kubelet, described: Mapping[str, Any], world: "World"
) -> tuple[dict[str, str], dict[str, str]]:
    image = world.images.images[instance.image]
    vcpus = int(described["VCpuInfo"]["DefaultVCpus"])
    memory = memory_bytes(described, instance.image, world.setup.seed)
    pods = kubelet.max_pods if kubelet.max_pods is not None else 110
    if kubelet.pods_per_core:
        pods = min(pods, kubelet.pods_per_core * vcpus)
    storage = _storage(instance, kubelet, described, image.family, world)
    reserved = _kube_reserved(kubelet, vcpus, described)
    hard = {"memory.available": "100Mi", "nodefs.available": "10%", **(kubelet.eviction_hard or {})}
    extra = _devices(instance, described, image.variant)
    capacity = {
        "cpu": str(vcpus),
        "memory": f"{memory // 1024}Ki",
        "pods": str(pods),
        "ephemeral-storage": f"{storage // 1024}Ki",
    }
    free_cpu = vcpus * 1000 - sum(_millis(one.get("cpu", "0")) for one in (reserved, kubelet.system_reserved))
    free_memory = memory - _threshold(hard["memory.available"], memory)
    free_storage = storage - _threshold(hard["nodefs.available"], storage)
    for one in (reserved, kubelet.system_reserved):
        free_memory -= _bytes(one.get("memory", "0"))
        free_storage -= _bytes(one.get("ephemeral-storage", "0"))
    allocatable = {
        "cpu": f"{max(0, free_cpu)}m",
        "memory": f"{max(0, free_memory) // 1024}Ki",
        "pods": str(pods),
        "ephemeral-storage": str(max(0, free_storage)),
    }
    return {**capacity, **extra}, {**allocatable, **extra}


def _kube_reserved(kubelet: Kubelet, vcpus: int, described: Mapping[str, Any]) -> dict[str, str]:
    """The user's, on top of what the images compute from cores and interfaces."""
    left, millis = vcpus, 0.0
    for cores, each in _CPU_SHARES:
        millis += min(left, cores) * each
        left -= min(left, cores)
    network = described["NetworkInfo"]
    card = next(
        one for one in network["NetworkCards"] if one["NetworkCardIndex"] == network.get("DefaultNetworkCardIndex", 0)
    )
    pods = card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2
    return {
        "cpu": f"{int(millis)}m",
        "memory": f"{11 * pods + 255}Mi",
        "ephemeral-storage": "1Gi",
        **(kubelet.kube_reserved or {}),
    }


def _storage(instance: Instance, kubelet: Kubelet, described: Mapping[str, Any], family: str, world: "World") -> int:
    local = (described.get("InstanceStorageInfo") or {}).get("TotalSizeInGB")
    if kubelet.raid0 and local:
        return int(local) * 10**9
    device = {"bottlerocket": "/dev/xvdb", "windows": "/dev/sda1"}.get(family, "/dev/xvda")
    sizes = {
        one["DeviceName"]: world.volumes.get(one["Ebs"]["VolumeId"], {}).get("Size", 20) for one in instance.volumes
    }
    size = sizes.get(device) or next(iter(sizes.values()), 20)
    return int(size) * _GIB


def nvidia_gpus(described: Mapping[str, Any]) -> int:
    """How many GPUs NVIDIA's device plugin finds on an instance of a type."""
    if described["InstanceType"] in GPU_SHARES:
        return 1
    gpus = (described.get("GpuInfo") or {}).get("Gpus", ())
    return sum(int(one.get("Count", 0)) for one in gpus if one.get("Manufacturer") == "NVIDIA")


def _devices(instance: Instance, described: Mapping[str, Any], variant: str) -> dict[str, str]:
    """What device plugins of the image's variant advertise."""
    found: dict[str, str] = {}
    if variant == "nvidia":
        count = nvidia_gpus(described)
        if count:
            found["nvidia.com/gpu"] = str(count)
    if variant == "neuron":
        devices = (described.get("NeuronInfo") or {}).get("NeuronDevices", ())
        if devices:
            found["aws.amazon.com/neuron"] = str(sum(int(one["Count"]) for one in devices))
            found["aws.amazon.com/neuroncore"] = str(
                sum(int(one["Count"]) * int(one["CoreInfo"]["Count"]) for one in devices)
            )
    efas = sum(1 for one in instance.interfaces if one["InterfaceType"] in {"efa", "efa-only"})
    if efas:
        found["vpc.amazonaws.com/efa"] = str(efas)
    return found


def _may_set(label: str) -> bool:
    """Whether a kubelet starts with this label of its own Node."""
    domain = label.partition("/")[0] if "/" in label else ""
    inside = any(domain == one or domain.endswith(f".{one}") for one in ("kubernetes.io", "k8s.io"))
    return (
        not inside
        or label in _ALLOWED_LABELS
        or any(domain == one or domain.endswith(f".{one}") for one in _ALLOWED_DOMAINS)
    )


def _certificates(bundle: str) -> str:
    try:
        return base64.b64decode(bundle, validate=True).decode().strip()
    except ValueError:
        return ""


def _millis(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def _bytes(text: str) -> int:
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(float(text))


def _threshold(text: str, total: int) -> int:
    if text.endswith("%"):
        share = float(text[:-1])
        return 0 if share >= 100 else int(total * share / 100)
    return _bytes(text)


def _windows_build(name: str) -> str:
    builds = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}
    return next((build for year, build in builds.items() if f"-{year}-" in name), "")
