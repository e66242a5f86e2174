"""The labels of karpenter.k8s.aws that nodes of EC2 carry, and resources that only EC2 has. Pure."""

from typing import Final

GROUP: Final = "karpenter.k8s.aws"
ZONE_ID: Final = "topology.k8s.aws/zone-id"

CATEGORY: Final = "karpenter.k8s.aws/instance-category"
GENERATION: Final = "karpenter.k8s.aws/instance-generation"
FAMILY: Final = "karpenter.k8s.aws/instance-family"
SIZE: Final = "karpenter.k8s.aws/instance-size"
FLEX: Final = "karpenter.k8s.aws/instance-capability-flex"
CPU: Final = "karpenter.k8s.aws/instance-cpu"
CPU_MANUFACTURER: Final = "karpenter.k8s.aws/instance-cpu-manufacturer"
CPU_CLOCK: Final = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz"
MEMORY: Final = "karpenter.k8s.aws/instance-memory"
EBS_BANDWIDTH: Final = "karpenter.k8s.aws/instance-ebs-bandwidth"
NETWORK_BANDWIDTH: Final = "karpenter.k8s.aws/instance-network-bandwidth"
LOCAL_NVME: Final = "karpenter.k8s.aws/instance-local-nvme"
HYPERVISOR: Final = "karpenter.k8s.aws/instance-hypervisor"
ENCRYPTION_IN_TRANSIT: Final = "karpenter.k8s.aws/instance-encryption-in-transit-supported"
NITRO_SANDBOX: Final = "karpenter.k8s.aws/nitro-sandbox"
TENANCY: Final = "karpenter.k8s.aws/instance-tenancy"
GPU_NAME: Final = "karpenter.k8s.aws/instance-gpu-name"
GPU_MANUFACTURER: Final = "karpenter.k8s.aws/instance-gpu-manufacturer"
GPU_COUNT: Final = "karpenter.k8s.aws/instance-gpu-count"
GPU_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"
ACCELERATOR_NAME: Final = "karpenter.k8s.aws/instance-accelerator-name"
ACCELERATOR_MANUFACTURER: Final = "karpenter.k8s.aws/instance-accelerator-manufacturer"
ACCELERATOR_COUNT: Final = "karpenter.k8s.aws/instance-accelerator-count"
RESERVATION_ID: Final = "karpenter.k8s.aws/capacity-reservation-id"
RESERVATION_TYPE: Final = "karpenter.k8s.aws/capacity-reservation-type"
RESERVATION_INTERRUPTIBLE: Final = "karpenter.k8s.aws/capacity-reservation-interruptible"
PLACEMENT_GROUP_ID: Final = "karpenter.k8s.aws/placement-group-id"
PLACEMENT_GROUP_PARTITION: Final = "karpenter.k8s.aws/placement-group-partition"

RESERVATION_LABELS: Final = (RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE)

WELL_KNOWN: Final = frozenset(
    {
        *(ZONE_ID, CATEGORY, GENERATION, FAMILY, SIZE, FLEX, CPU, CPU_MANUFACTURER, CPU_CLOCK, MEMORY, EBS_BANDWIDTH),
        *(NETWORK_BANDWIDTH, LOCAL_NVME, HYPERVISOR, ENCRYPTION_IN_TRANSIT, NITRO_SANDBOX, TENANCY),
        *(GPU_NAME, GPU_MANUFACTURER, GPU_COUNT, GPU_MEMORY),
        *(ACCELERATOR_NAME, ACCELERATOR_MANUFACTURER, ACCELERATOR_COUNT),
        *(*RESERVATION_LABELS, PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION),
    }
)
"""What a node of EC2 may have without anybody saying so, besides `names.WELL_KNOWN_LABELS`."""

DEFAULT_TENANCY: Final = "default"
DEDICATED_TENANCY: Final = "dedicated"

DEFAULT_RESERVATION: Final = "default"
CAPACITY_BLOCK: Final = "capacity-block"
"""Values of RESERVATION_TYPE."""

NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
GAUDI: Final = "habana.ai/gaudi"
NEURON: Final = "aws.amazon.com/neuron"
NEURON_CORE: Final = "aws.amazon.com/neuroncore"
EFA: Final = "vpc.amazonaws.com/efa"
POD_ENI: Final = "vpc.amazonaws.com/pod-eni"
PRIVATE_IPV4: Final = "vpc.amazonaws.com/PrivateIPv4Address"
