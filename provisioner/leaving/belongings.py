"""What of Dovetail is in a cluster at one instant, as far as it has to be taken away or let go."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.core import CustomResourceDefinition, Lease, PodSchedulingGate
from provisioner.apis.meta import Object, ObjectMeta, OwnerReference, controller_of


class Keep(enum.StrEnum):
    """For whom nodes are kept."""

    FOR_KARPENTER = "karpenter"
    """NodeClaims, finalizers and tags stay."""
    FOR_NOBODY = "nobody"
    """No collector finds the instances any more: they run until somebody ends them by hand."""


class _QueuedSpec(Object, frozen=True, kw_only=True):
    scheduler_name: str = names.DEFAULT_SCHEDULER_NAME
    node_name: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()


class _Phase(Object, frozen=True, kw_only=True):
    phase: str = ""


class QueuedPod(Object, frozen=True, kw_only=True):
    """A pod, as far as it matters who binds it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _QueuedSpec = _QueuedSpec()
    status: _Phase = _Phase()

    @property
    def controller(self) -> OwnerReference | None:
        """Who makes it anew when it is deleted; None for a bare pod."""
        return controller_of(self.metadata)


class _ClaimStatus(Object, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class HeldClaim(Object, frozen=True, kw_only=True):
    """A NodeClaim, as far as it holds an instance: one of which the rest cannot be read is let go all the same."""

    metadata: ObjectMeta = ObjectMeta()
    status: _ClaimStatus = _ClaimStatus()

    @property
    def name(self) -> str:
        return self.metadata.name


class _HeldSpec(Object, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[dict[str, Any], ...] = ()


class HeldNode(Object, frozen=True, kw_only=True):
    """A Node, likewise; its taints are as they are on the wire."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _HeldSpec = _HeldSpec()


class _JobSpec(Object, frozen=True, kw_only=True):
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None


class _UncountedPods(Object, frozen=True, kw_only=True):
    failed: tuple[str, ...] = ()


class _JobStatus(Object, frozen=True, kw_only=True):
    failed: int = 0
    uncounted_terminated_pods: _UncountedPods = _UncountedPods()


class QueuedJob(Object, frozen=True, kw_only=True):
    """batch/v1 Job: a pod of it that is deleted counts as one that failed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    @property
    def spare(self) -> int:
        """How many of its pods may be deleted before it has failed, those included that are being deleted."""
        if self.spec.backoff_limit_per_index is not None:
            return 0
        return self.spec.backoff_limit - self.status.failed - len(self.status.uncounted_terminated_pods.failed)


@dataclass(frozen=True, slots=True)
class Belongings:
    """Everything that a decision is made from.

    Attributes:
        namespace: of the programs.
        admission: metadata of webhook configurations and admission policies by which pods are stamped, by plural name.
        deployments: of provisioners, in any namespace: metadata and replicas.
        pods: that are not bound.
        bound: pods that our scheduler has bound.
        jobs: of those pods, by UID.
        classes: metadata of node classes, by plural name; likewise `pools` of NodePools.
        instances: IDs of instances that a collector would find by their tags.
        config_maps: names of those that the programs wrote.
        takeover: the phase of a takeover from Karpenter; "" for none.
    """

    namespace: str
    admission: tuple[tuple[str, ObjectMeta], ...] = ()
    deployments: tuple[tuple[ObjectMeta, int], ...] = ()
    lease: Lease | None = None
    pods: tuple[QueuedPod, ...] = ()
    bound: tuple[QueuedPod, ...] = ()
    jobs: Mapping[str, QueuedJob] = field(default_factory=dict)
    claims: tuple[HeldClaim, ...] = ()
    nodes: tuple[HeldNode, ...] = ()
    classes: tuple[tuple[str, ObjectMeta], ...] = ()
    pools: tuple[ObjectMeta, ...] = ()
    definitions: tuple[CustomResourceDefinition, ...] = ()
    instances: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    takeover: str = ""

    @property
    def provisioners(self) -> tuple[tuple[ObjectMeta, int], ...]:
        """Those of `deployments` that are in the namespace of the programs: any tenant may make one elsewhere."""
        return tuple(one for one in self.deployments if one[0].namespace == self.namespace)


class Verb(enum.StrEnum):
    """How a step is written."""

    DELETE = "delete"
    MERGE = "merge"
    JSON = "json"
    UNTAG = "untag"


def _singular(plural: str) -> str:
    if plural.endswith("ies"):
        return f"{plural[:-3]}y"
    return plural.removesuffix("es" if plural.endswith("sses") else "s")


@dataclass(frozen=True, slots=True)
class LeaveStep:
    """One write; where the object has changed since it was read, nothing is written and the next look decides anew.

    Attributes:
        kind: plural name of the kind, as kubectl takes it; "instances" for those of a cloud.
        what: what is done, as "deleted".
        body: of a patch.
    """

    verb: Verb
    kind: str
    name: str
    what: str
    namespace: str = ""
    uid: str = ""
    version: str = ""
    body: Any = msgspec.UNSET

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        plural, dot, rest = self.kind.partition(".")
        return f"{_singular(plural)}{dot}{rest}/{self.name} {self.what}{where}"


@dataclass(frozen=True, slots=True)
class LeavePlan:
    """What there is to do.

    Attributes:
        stages: each begins when nothing of those before it is left.
        problems: what the user has to do, in sentences; the command ends with status 1 then.
    """

    stages: tuple[tuple[LeaveStep, ...], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def next_stage(self) -> tuple[LeaveStep, ...]:
        """The steps that may be taken now; none where everything is done."""
        return next(filter(None, self.stages), ())
