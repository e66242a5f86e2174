"""Entries without anybody's names: `Anonymizer`. Pure.

A text stays where it is one of a closed list, or looks like a public instance type, zone or number; every other one, wherever it stands, becomes a
keyed hash of itself. The same name becomes the same hash everywhere, so selectors still match labels; without the key nobody can try names.
"""

import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from provisioner.apis import names
from provisioner.apis.karpenter import NodePoolSpec
from provisioner.apis.shapes import PodShape
from provisioner.history.entries import AnyHistoryEntry, HistoryEntry

_HEX: Final = 12
_MOST_KNOWN: Final = 1 << 16
_PUBLIC: Final = re.compile(
    r"(?:[a-z][a-z0-9-]{0,15}\.(?:nano|micro|small|medium|large|[0-9]{0,3}xlarge|metal(?:-[0-9]{1,3}xl)?)"  # instance types of EC2
    r"|[a-z]-[0-9]{1,3}x-(?:amd64|arm64)-(?:linux|windows)|test-zone-[a-z]"  # kwok's
    r"|(?:af|ap|ca|cn|eu|il|me|mx|sa|us)(?:-gov|-iso[a-z]?)?-(?:central|(?:north|south)?(?:east|west)?|north|south)-[0-9][a-z]?"  # Regions and zones
    r"|karpenter\.k8s\.aws/instance-[a-z-]{1,40}"
    r"|hugepages-[0-9]+[KMG]i"
    r"|[0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|Ki|Mi|Gi|Ti|s|h|%|[0-9hms]*s)?)",
    re.ASCII,
)
_TEXT: Final = """
    amd64 arm64 linux windows on-demand spot reserved true false True False Never nvidia.com/gpu amd.com/gpu aws.amazon.com/neuron
    vpc.amazonaws.com/efa vpc.amazonaws.com/pod-eni cpu memory pods ephemeral-storage nodes default-scheduler dovetail-scheduler karpenter.sh
    karpenter.k8s.aws karpenter.kwok.sh EC2NodeClass KWOKNodeClass
    In NotIn Exists DoesNotExist Gt Lt Gte Lte Equal NoSchedule NoExecute PreferNoSchedule DoNotSchedule ScheduleAnyway Honor Ignore TCP UDP SCTP
    PreemptLowerPriority system-cluster-critical system-node-critical
    ReplicaSet StatefulSet DaemonSet Job Deployment ReplicationController Node NodeClaim NodePool NodeOverlay EC2NodeClass ConfigMap Pod
    empty drift static_drift repair single multi rebuild
    improved unchanged refused near-bound exact greedy no-time not-installed starting failed late too-large
    Empty Drifted Underutilized Unhealthy Expired WhenEmpty WhenEmptyOrUnderutilized Balanced
    DisruptionBlocked DisruptionLaunching DisruptionTerminating DisruptionWaitingReadiness DisruptionLoop Unconsolidatable ConsolidationCandidate
    ConsolidationApproved ConsolidationRejected FailedScheduling FailedDraining Evicted NodeRepairBlocked SpotInterrupted SpotRebalanceRecommendation
    InstanceTerminating InstanceStopping InstanceUnhealthy TerminatingOnInterruption InsufficientCapacityError LaunchFailed LaunchesPaused
    Launched Registered Initialized Ready NotReady AwaitingVolumeDetachment
    spot_interrupted rebalance_recommended instance_terminated instance_stopped scheduled_change
    ScaleDown ScaleDownEmpty ScaleDownFailed ScaledUpGroup FailedToScaleUpGroup TriggeredScaleUp NotTriggerScaleUp NodeReady NodeNotReady
    RegisteredNode RemovingNode Starting
    eks.amazonaws.com/nodegroup eks.amazonaws.com/capacityType ON_DEMAND SPOT alpha.eksctl.io/nodegroup-name
    kubernetes.io/hostname topology.ebs.csi.aws.com/zone beta.kubernetes.io/arch beta.kubernetes.io/os beta.kubernetes.io/instance-type
    failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region app app.kubernetes.io/name pod-template-hash controller-revision-hash
"""
_WORDS: Final = frozenset(_TEXT.split())
"""Values, keys and reasons that everybody has."""


def _fields(info: inspect.Type, seen: set[type]) -> Iterator[str]:
    """The names of all fields that objects of a type are written with."""
    if isinstance(info, inspect.StructType):
        if info.cls not in seen:
            seen.add(info.cls)
            for one in info.fields:
                yield one.encode_name
                yield from _fields(one.type, seen)
    elif isinstance(info, inspect.UnionType):
        for kind in info.types:
            yield from _fields(kind, seen)
    else:
        for part in ("item_type", "key_type", "value_type"):
            if isinstance(inner := getattr(info, part, None), inspect.Type):
                yield from _fields(inner, seen)
        for kind in getattr(info, "item_types", ()):
            yield from _fields(kind, seen)


@functools.cache
def _known() -> frozenset[str]:
    written = (name for kind in (PodShape, NodePoolSpec) for name in _fields(inspect.type_info(kind), set()))
    return _WORDS.union(
        names.WELL_KNOWN_LABELS,
        names.LABEL_ALIASES,
        written,
    )


class Anonymizer:
    """Replaces names, always in the same way. One thread.

    Args:
        key: secret; whoever has it can find out whether a name that they guess is in there.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key, digest_size=32).digest()
        self._hash = functools.lru_cache(_MOST_KNOWN)(self._hashed)

    def __call__(self, entries: Sequence[HistoryEntry]) -> Sequence[HistoryEntry]:
        """The same entries with other names."""
        replaced = [self._replaced(msgspec.to_builtins(one)) for one in entries]
        found: list[HistoryEntry] = msgspec.convert(replaced, list[AnyHistoryEntry])
        return found

    def name(self, text: str) -> str:
        """What a text becomes."""
        return text if not text or text in _known() or _PUBLIC.fullmatch(text) else self._hash(text)

    def _hashed(self, text: str) -> str:
        return "x" + hashlib.blake2b(text.encode(), key=self._key, digest_size=_HEX // 2).hexdigest()

    def _replaced(self, value: Any) -> Any:
        match value:
            case str():
                return self.name(value)
            case dict():
                return {self.name(key): self._replaced(one) for key, one in value.items()}
            case list() | tuple():
                return [self._replaced(one) for one in value]
            case _:
                return value
