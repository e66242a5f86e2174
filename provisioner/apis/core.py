"""The objects of Kubernetes itself that we read or write, less every field that we do not need.

Times of Leases and Events are text (`micro_time` makes it): the API server reads them only with exactly six digits
after the point, which JSON libraries leave out when they are zero.
"""

from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import field

from provisioner.apis import names
from provisioner.apis.meta import Condition, LabelSelector, Object, ObjectMeta, OwnerReference
from provisioner.values.taints import Taint, Toleration

Amounts: TypeAlias = dict[str, str | int | float]
"""Resource name -> quantity as it stands on the wire."""


def micro_time(when: datetime) -> str:
    """`when` (aware) as the API server wants it in Leases and Events: UTC with six digits of a second."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- parts of a pod's spec -------------------------------------------------------------------------------------


class NodeSelectorRequirement(Object, frozen=True, kw_only=True):
    """One expression over a node's labels or, in matchFields, over its name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Object, frozen=True, kw_only=True):
    """All expressions and fields must hold; an empty term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Object, frozen=True, kw_only=True):
    """Any of the terms must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Object, frozen=True, kw_only=True):
    """A node term that is wished for, with its weight (1 to 100)."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Object, frozen=True, kw_only=True):
    """Which nodes a pod must, and should, run on."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Object, frozen=True, kw_only=True):
    """Pods (by label, in some namespaces) whose topology domain is meant."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Object, frozen=True, kw_only=True):
    """A pod term that is wished for, with its weight (1 to 100)."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Object, frozen=True, kw_only=True):
    """Pods to be near to, or (as anti-affinity) far from."""

    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object, frozen=True, kw_only=True):
    """A pod's three affinities."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Object, frozen=True, kw_only=True):
    """How evenly pods of one selector spread over the domains of a label; "" for a policy means its default."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class ContainerPort(Object, frozen=True, kw_only=True):
    """A port; only one with a `host_port` matters for placement."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = field(default="", name="hostIP")


class ResourceRequirements(Object, frozen=True, kw_only=True):
    """Requests and limits of a container or of a whole pod."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


class SecurityContext(Object, frozen=True, kw_only=True):
    """Of a pod or a container; only what Windows alone knows."""

    windows_options: dict[str, str | bool | None] = field(default_factory=dict)


class PodOS(Object, frozen=True, kw_only=True):
    """The operating system that a pod says it is for."""

    name: str = ""


class ContainerRestartRule(Object, frozen=True, kw_only=True):
    """What happens when a container exits; conditions are not read."""

    action: str = ""


class VolumeMount(Object, frozen=True, kw_only=True):
    """How a container sees a volume."""

    bind_mount_options: tuple[str, ...] = ()


class Container(Object, frozen=True, kw_only=True):
    """What of a container decides where its pod fits; `restart_policy` Always makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    security_context: SecurityContext | None = None


class PersistentVolumeClaimSource(Object, frozen=True, kw_only=True):
    """A claim in the pod's namespace."""

    claim_name: str = ""


class VolumeResourceRequirements(Object, frozen=True, kw_only=True):
    """Room that a claim asks for."""

    requests: Amounts = field(default_factory=dict)


class PersistentVolumeClaimSpec(Object, frozen=True, kw_only=True):
    """What a claim asks for; an absent class (None) means the cluster's default, "" means none."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = ""
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()


class PersistentVolumeClaimTemplate(Object, frozen=True, kw_only=True):
    """The claim that an ephemeral volume makes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolumeSource(Object, frozen=True, kw_only=True):
    """A claim that lives as long as its pod, named `<pod>-<volume>`."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(Object, frozen=True, kw_only=True):
    """A volume; one without a claim has no say in placement."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodSchedulingGate(Object, frozen=True, kw_only=True):
    """What a pod waits for before it may be scheduled at all."""

    name: str = ""


class LocalObjectReference(Object, frozen=True, kw_only=True):
    """Something in the pod's namespace, such as a pull secret."""

    name: str = ""


class PodResourceClaim(Object, frozen=True, kw_only=True):
    """A device claim (dynamic resource allocation) of a pod."""

    name: str = ""


class PodSpec(Object, frozen=True, kw_only=True):
    """What of a pod's spec decides where it fits, and the pull secrets that tell what its images were built for."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    overhead: Amounts = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    termination_grace_period_seconds: int | None = None
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    os: PodOS | None = None
    security_context: SecurityContext | None = None


class PodTemplateSpec(Object, frozen=True, kw_only=True):
    """The pod that a controller makes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


# --- nodes -----------------------------------------------------------------------------------------------------


class NodeSpec(Object, frozen=True, kw_only=True):
    """Identity at the provider, and what keeps pods off."""

    provider_id: str = field(default="", name="providerID")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeSystemInfo(Object, frozen=True, kw_only=True):
    """Versions that a node reports."""

    kubelet_version: str = ""
    boot_id: str = field(default="", name="bootID")


class NodeStatus(Object, frozen=True, kw_only=True):
    """Room and health of a node."""

    capacity: Amounts = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    """A node that has joined."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "Node")
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def registered(self) -> bool:
        """Whether its NodeClaim has let it in, as its label says; no proof, see `registration.was_registered`."""
        return self.metadata.labels.get(names.REGISTERED_LABEL) == "true"


# --- controllers of pods ---------------------------------------------------------------------------------------


class WorkloadSpec(Object, frozen=True, kw_only=True):
    """Deployment, ReplicaSet, StatefulSet and DaemonSet alike; a DaemonSet has no replicas, a StatefulSet alone has claims and a pod management policy."""

    replicas: int | None = None
    pod_management_policy: str = ""
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    volume_claim_templates: tuple[PersistentVolumeClaimTemplate, ...] = ()

    @property
    def wanted(self) -> int:
        """How many pods there are to be."""
        return 1 if self.replicas is None else self.replicas


class WorkloadStatus(Object, frozen=True, kw_only=True):
    """Counts that the controller of a Deployment reports."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class RollingUpdate(Object, frozen=True, kw_only=True):
    """How a Deployment replaces its pods; numbers, or percentages of the replicas."""

    max_surge: int | str | None = None


class DeploymentStrategy(Object, frozen=True, kw_only=True):
    """How a Deployment comes to new pods."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(WorkloadSpec, frozen=True, kw_only=True):
    """What a Deployment has besides."""

    strategy: DeploymentStrategy = DeploymentStrategy()
    paused: bool = False


class Deployment(Object, frozen=True, kw_only=True):
    """apps/v1 Deployment."""

    api_version: str = field(default_factory=lambda: "apps/v1")
    kind: str = field(default_factory=lambda: "Deployment")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSet(Object, frozen=True, kw_only=True):
    """apps/v1 ReplicaSet."""

    api_version: str = field(default_factory=lambda: "apps/v1")
    kind: str = field(default_factory=lambda: "ReplicaSet")
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSet(Object, frozen=True, kw_only=True):
    """apps/v1 StatefulSet."""

    api_version: str = field(default_factory=lambda: "apps/v1")
    kind: str = field(default_factory=lambda: "StatefulSet")
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSet(Object, frozen=True, kw_only=True):
    """apps/v1 DaemonSet."""

    api_version: str = field(default_factory=lambda: "apps/v1")
    kind: str = field(default_factory=lambda: "DaemonSet")
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class PodTemplate(Object, frozen=True, kw_only=True):
    """v1 PodTemplate: what a CapacityBuffer may refer to."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "PodTemplate")
    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplateSpec = PodTemplateSpec()


class PodDisruptionBudgetSpec(Object, frozen=True, kw_only=True):
    """How many pods may be gone; one of the two numbers, as an integer or a percentage."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Object, frozen=True, kw_only=True):
    """What the disruption controller last counted."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """policy/v1 PodDisruptionBudget."""

    api_version: str = field(default_factory=lambda: "policy/v1")
    kind: str = field(default_factory=lambda: "PodDisruptionBudget")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# --- kinds of which there may be very many --------------------------------------------------------------------


class BriefMeta(Object, frozen=True, kw_only=True):
    """The metadata of an object of which only identity counts: no managed fields, no annotations as users apply them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None


class SelectedPods(Object, frozen=True, kw_only=True):
    """Whose pods a workload makes, as far as default spread constraints ask; the template is not read."""

    selector: LabelSelector | None = None


class LabelledMeta(BriefMeta, frozen=True, kw_only=True):
    """Identity and labels."""

    labels: dict[str, str] = field(default_factory=dict)


class LabelledNamespace(Object, frozen=True, kw_only=True):
    """A Namespace, of which only the labels are read."""

    metadata: LabelledMeta = LabelledMeta()


class PodSelecting(Object, frozen=True, kw_only=True):
    """A ReplicaSet or StatefulSet without its template."""

    metadata: BriefMeta = BriefMeta()
    spec: SelectedPods = SelectedPods()


class LabelledPods(Object, frozen=True, kw_only=True):
    """Whose pods a Service or ReplicationController means; an absent selector means none."""

    selector: dict[str, str] | None = None


class PodLabelling(Object, frozen=True, kw_only=True):
    """A Service or ReplicationController, of which only the selector is read."""

    metadata: BriefMeta = BriefMeta()
    spec: LabelledPods = LabelledPods()


class LimitRangeItem(Object, frozen=True, kw_only=True):
    """Limits of one type of thing; only `type: Container` gives defaults."""

    type: str = ""
    default: Amounts = field(default_factory=dict)
    default_request: Amounts = field(default_factory=dict)
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)


class LimitRangeSpec(Object, frozen=True, kw_only=True):
    """The items of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Object, frozen=True, kw_only=True):
    """v1 LimitRange: the requests and limits that admission gives to containers without them."""

    metadata: BriefMeta = BriefMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class PriorityClass(Object, frozen=True, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass: how important a pod of it is."""

    metadata: BriefMeta = BriefMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class GangPolicy(Object, frozen=True, kw_only=True):
    """Pods of a PodGroup that are scheduled together or not at all."""

    min_count: int = 1


class PodGroupPolicy(Object, frozen=True, kw_only=True):
    """How kube-scheduler takes the pods of a PodGroup."""

    gang: GangPolicy | None = None


class PodGroupDisruption(Object, frozen=True, kw_only=True):
    """How the pods of a PodGroup are disrupted: all at once where `all` is there, else each by itself."""

    all: Object | None = None


class TopologyConstraint(Object, frozen=True, kw_only=True):
    """All pods of a PodGroup run on nodes that have one value for this label."""

    key: str = ""


class PodGroupConstraints(Object, frozen=True, kw_only=True):
    """Where the pods of a PodGroup may run together; at most one constraint."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Object, frozen=True, kw_only=True):
    """What is read of a PodGroup; admission resolves the priority."""

    scheduling_policy: PodGroupPolicy = PodGroupPolicy()
    scheduling_constraints: PodGroupConstraints = PodGroupConstraints()
    disruption_mode: PodGroupDisruption = PodGroupDisruption()
    priority: int | None = None


class PodGroupNotes(Object, frozen=True, kw_only=True):
    """The annotations of a PodGroup that are read; others are not kept."""

    consolidation: str = field(name=names.GANG_CONSOLIDATION, default="")


class PodGroupMeta(BriefMeta, frozen=True, kw_only=True):
    """The metadata of a PodGroup."""

    annotations: PodGroupNotes = PodGroupNotes()


class PodGroup(Object, frozen=True, kw_only=True):
    """scheduling.k8s.io/v1beta1 PodGroup: pods that kube-scheduler takes together."""

    metadata: PodGroupMeta = PodGroupMeta()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def minimum(self) -> int:
        """How many pods must be there before any is tried; 1 where the policy is not gang."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 1

    @property
    def topology_key(self) -> str:
        """The node label of which all its pods' nodes must have one value; "" for any nodes."""
        topology = self.spec.scheduling_constraints.topology
        return topology[0].key if topology else ""

    @property
    def moves_together(self) -> bool:
        """Whether its pods are disrupted all at once or not at all."""
        return self.spec.disruption_mode.all is not None

    @property
    def consolidated(self) -> bool:
        """Whether consolidation, too, may disrupt all its pods at once."""
        return self.moves_together and self.metadata.annotations.consolidation == names.ALLOW


class MemberSpec(Object, frozen=True, kw_only=True):
    """What is read of a PodGroup of Volcano or of the coscheduling plugin."""

    min_member: int = 1


class MemberGroup(Object, frozen=True, kw_only=True):
    """What PodGroups of Volcano and of the coscheduling plugin have in common."""

    metadata: BriefMeta = BriefMeta()
    spec: MemberSpec = MemberSpec()

    @property
    def minimum(self) -> int:
        """How many pods must be there before any is bound."""
        return max(self.spec.min_member, 1)


class CoschedulingGroup(MemberGroup, frozen=True, kw_only=True):
    """scheduling.x-k8s.io/v1alpha1 PodGroup: pods that kube-scheduler with the coscheduling plugin binds together."""


class VolcanoGroupStatus(Object, frozen=True, kw_only=True):
    """Pending, Inqueue, Running, Unknown or Completed; "" before Volcano has seen it."""

    phase: str = ""


class VolcanoGroup(MemberGroup, frozen=True, kw_only=True):
    """scheduling.volcano.sh/v1beta1 PodGroup: pods that Volcano binds together."""

    status: VolcanoGroupStatus = VolcanoGroupStatus()

    @property
    def queued(self) -> bool:
        """Whether Volcano has not admitted it from its queue: it tries none of its pods, whatever room there is.

        Source: Volcano, JobInfo.IsPending and the actions enqueue and allocate; the plugins overcommit, proportion and capacity. Without the action
        enqueue it admits every PodGroup.
        """
        return self.status.phase in ("", "Pending")


AnyPodGroup: TypeAlias = PodGroup | VolcanoGroup | CoschedulingGroup


class JobSpec(Object, frozen=True, kw_only=True):
    """How many pods a Job runs."""

    parallelism: int | None = None
    completions: int | None = None

    @property
    def at_once(self) -> int:
        """How many pods it runs at the same time, as long as none has finished."""
        wanted = 1 if self.parallelism is None else self.parallelism
        return wanted if self.completions is None else min(wanted, self.completions)


class Job(Object, frozen=True, kw_only=True):
    """batch/v1 Job."""

    metadata: BriefMeta = BriefMeta()
    spec: JobSpec = JobSpec()


class Overhead(Object, frozen=True, kw_only=True):
    """What a pod takes besides its containers."""

    pod_fixed: Amounts = field(default_factory=dict)


class RuntimeScheduling(Object, frozen=True, kw_only=True):
    """Which nodes know a RuntimeClass."""

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True, kw_only=True):
    """node.k8s.io/v1 RuntimeClass: what runs the containers of a pod."""

    metadata: BriefMeta = BriefMeta()
    overhead: Overhead | None = None
    scheduling: RuntimeScheduling | None = None


# --- volumes ---------------------------------------------------------------------------------------------------


class ObjectReference(Object, frozen=True, kw_only=True):
    """Another object, as Events and volumes name it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class VolumeClaimMeta(BriefMeta, frozen=True, kw_only=True):
    """The metadata of a volume claim; an ephemeral one is owned by its pod. See `apis.volumes` for the annotations kept."""

    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


class PersistentVolumeClaimStatus(Object, frozen=True, kw_only=True):
    """Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """v1 PersistentVolumeClaim, as scheduling reads it."""

    metadata: VolumeClaimMeta = VolumeClaimMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIVolumeSource(Object, frozen=True, kw_only=True):
    """A volume that a CSI driver serves."""

    driver: str = ""
    volume_handle: str = ""


class PathSource(Object, frozen=True, kw_only=True):
    """A volume that is a path of one node (local, hostPath)."""

    path: str = ""


class AWSElasticBlockStoreSource(Object, frozen=True, kw_only=True):
    """The in-tree EBS volume, served by its CSI driver since 1.23."""

    volume_id: str = field(default="", name="volumeID")


class VolumeNodeAffinity(Object, frozen=True, kw_only=True):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Object, frozen=True, kw_only=True):
    """Where a volume is, and what it is good for."""

    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = ""
    capacity: Amounts = field(default_factory=dict)
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    local: PathSource | None = None
    host_path: PathSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreSource | None = None


class PersistentVolumeStatus(Object, frozen=True, kw_only=True):
    """Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(Object, frozen=True, kw_only=True):
    """v1 PersistentVolume, as scheduling reads it; labels may tell its zone, and claims may select by them."""

    metadata: LabelledMeta = LabelledMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(Object, frozen=True, kw_only=True):
    """A label and the values that a volume may have for it."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Object, frozen=True, kw_only=True):
    """All of the requirements must hold."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClassMeta(BriefMeta, frozen=True, kw_only=True):
    """The metadata of a StorageClass."""

    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: datetime | None = None


class StorageClass(Object, frozen=True, kw_only=True):
    """storage.k8s.io/v1 StorageClass."""

    metadata: StorageClassMeta = StorageClassMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


EBS_DRIVER: Final = "ebs.csi.aws.com"
"""The CSI driver of Amazon EBS."""
ANY_NUMBER: Final = 1 << 40
"""As many volumes as anybody has: the limit of a driver that has none."""


class VolumeNodeResources(Object, frozen=True, kw_only=True):
    """How many volumes of a driver a node takes; None means any number."""

    count: int | None = None


class CSINodeDriver(Object, frozen=True, kw_only=True):
    """One driver on one node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None

    @property
    def most_volumes(self) -> int:
        """How many volumes it attaches to the node."""
        count = self.allocatable.count if self.allocatable is not None else None
        return ANY_NUMBER if count is None else count


class CSINodeSpec(Object, frozen=True, kw_only=True):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSINode, named like its node."""

    metadata: BriefMeta = BriefMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Object, frozen=True, kw_only=True):
    """What a driver asks of kube-scheduler."""

    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Object, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSIDriver."""

    metadata: BriefMeta = BriefMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeAttachmentSource(Object, frozen=True, kw_only=True):
    """The volume that is attached."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Object, frozen=True, kw_only=True):
    """Which volume on which node."""

    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(Object, frozen=True, kw_only=True):
    """Whether the attachment is done."""

    attached: bool = False


class VolumeAttachment(Object, frozen=True, kw_only=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    api_version: str = field(default_factory=lambda: "storage.k8s.io/v1")
    kind: str = field(default_factory=lambda: "VolumeAttachment")
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


# --- everything else -------------------------------------------------------------------------------------------


class NamespaceStatus(Object, frozen=True, kw_only=True):
    """Active or Terminating."""

    phase: str = ""


class Namespace(Object, frozen=True, kw_only=True):
    """v1 Namespace."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "Namespace")
    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class ConfigMap(Object, frozen=True, kw_only=True):
    """v1 ConfigMap, without its binary values."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "ConfigMap")
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = field(default_factory=dict)


class Secret(Object, frozen=True, kw_only=True):
    """v1 Secret; values are decoded from base64. Never log one: repr hides the values."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "Secret")
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class ServiceSpec(Object, frozen=True, kw_only=True):
    """Which pods a Service stands for; an absent selector (None) stands for none."""

    selector: dict[str, str] | None = None
    cluster_ip: str = field(default="", name="clusterIP")


class Service(Object, frozen=True, kw_only=True):
    """v1 Service."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "Service")
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class LeaseSpec(Object, frozen=True, kw_only=True):
    """Who holds a lease; times are text of `micro_time`, to be compared for change, not with our clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """coordination.k8s.io/v1 Lease."""

    api_version: str = field(default_factory=lambda: "coordination.k8s.io/v1")
    kind: str = field(default_factory=lambda: "Lease")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class EventSource(Object, frozen=True, kw_only=True):
    """Which component said it."""

    component: str = ""
    host: str = ""


class Event(Object, frozen=True, kw_only=True):
    """v1 Event: one thing that happened to one object, `count` times."""

    api_version: str = field(default_factory=lambda: "v1")
    kind: str = field(default_factory=lambda: "Event")
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""
    last_timestamp: datetime | None = None
    event_time: str | None = None
    count: int = 0


class ServiceReference(Object, frozen=True, kw_only=True):
    """The Service that a webhook is reached by."""

    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int = 443


class WebhookClientConfig(Object, frozen=True, kw_only=True):
    """How the API server reaches a webhook, and whose certificate it trusts (PEM, decoded from base64)."""

    url: str = ""
    service: ServiceReference | None = None
    ca_bundle: bytes | None = None


class MutatingWebhook(Object, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()


class MutatingWebhookConfiguration(Object, frozen=True, kw_only=True):
    """admissionregistration.k8s.io/v1 MutatingWebhookConfiguration; we patch only its CA bundles."""

    api_version: str = field(default_factory=lambda: "admissionregistration.k8s.io/v1")
    kind: str = field(default_factory=lambda: "MutatingWebhookConfiguration")
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[MutatingWebhook, ...] = ()


class ValidatingWebhookConfiguration(Object, frozen=True, kw_only=True):
    """admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration; we patch only its CA bundles."""

    api_version: str = field(default_factory=lambda: "admissionregistration.k8s.io/v1")
    kind: str = field(default_factory=lambda: "ValidatingWebhookConfiguration")
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[MutatingWebhook, ...] = ()


class WebhookConversion(Object, frozen=True, kw_only=True):
    """How objects of other versions are converted."""

    client_config: WebhookClientConfig | None = None


class CRDConversion(Object, frozen=True, kw_only=True):
    """None or Webhook."""

    strategy: str = "None"
    webhook: WebhookConversion | None = None


class CRDSpec(Object, frozen=True, kw_only=True):
    """How a custom resource is converted; nothing else of it is read."""

    conversion: CRDConversion | None = None


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """apiextensions.k8s.io/v1 CustomResourceDefinition, of which most is left out; never write one back whole."""

    api_version: str = field(default_factory=lambda: "apiextensions.k8s.io/v1")
    kind: str = field(default_factory=lambda: "CustomResourceDefinition")
    metadata: ObjectMeta = ObjectMeta()
    spec: CRDSpec = CRDSpec()
