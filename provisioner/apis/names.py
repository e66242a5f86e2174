"""Every label, annotation, taint, finalizer, condition type and reason that we read or write.

Names under ``karpenter.sh/`` and ``kubernetes.io/`` are those that existing manifests, dashboards and clusters
carry; ours live under ``dovetail.dev/``. Source: spec/karpenter-core.md section 2, design.md section 3b.
"""

from typing import Final

from provisioner.values import taints
from provisioner.values.taints import Taint

GROUP: Final = "karpenter.sh"
DOVETAIL: Final = "dovetail.dev"

# Labels of Kubernetes.
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ARCH_LABEL: Final = "kubernetes.io/arch"
OS_LABEL: Final = "kubernetes.io/os"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
WINDOWS_BUILD_LABEL: Final = "node.kubernetes.io/windows-build"
EXCLUDE_BALANCERS_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
EXCLUDE_BALANCERS_VALUE: Final = "karpenter"

# Labels of Karpenter.
NODEPOOL_LABEL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE_LABEL: Final = "karpenter.sh/capacity-type"
PROVISIONER_NAME: Final = "karpenter.sh/provisioner-name"
"""Label of the nodes of a NodePool that was made from a Provisioner, and the annotation of that NodePool which says so."""
INITIALIZED_LABEL: Final = "karpenter.sh/initialized"
REGISTERED_LABEL: Final = "karpenter.sh/registered"
READY_LABELS: Final = {REGISTERED_LABEL: "true", INITIALIZED_LABEL: "true"}
"""What every node of ours says of itself once it is ready; pods and DaemonSets may select nodes by it."""
DO_NOT_SYNC_TAINTS_LABEL: Final = "karpenter.sh/do-not-sync-taints"

CAPACITY_ON_DEMAND: Final = "on-demand"
CAPACITY_SPOT: Final = "spot"
CAPACITY_RESERVED: Final = "reserved"
CAPACITY_TYPES: Final = frozenset({CAPACITY_ON_DEMAND, CAPACITY_SPOT, CAPACITY_RESERVED})

WELL_KNOWN_LABELS: Final[frozenset[str]] = frozenset(
    {
        NODEPOOL_LABEL,
        ZONE_LABEL,
        REGION_LABEL,
        INSTANCE_TYPE_LABEL,
        ARCH_LABEL,
        OS_LABEL,
        CAPACITY_TYPE_LABEL,
        WINDOWS_BUILD_LABEL,
    }
)
"""Labels that a node to come may have without anybody saying so; a provider adds its own."""

EBS_ZONE_LABEL: Final = "topology.ebs.csi.aws.com/zone"
"""What EBS's CSI driver calls a zone: on Nodes, and in the node affinity of volumes."""
LABEL_ALIASES: Final[dict[str, str]] = {
    EBS_ZONE_LABEL: ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "beta.kubernetes.io/arch": ARCH_LABEL,
    "beta.kubernetes.io/os": OS_LABEL,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE_LABEL,
}

# Annotations of Karpenter and Kubernetes.
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DO_NOT_REPAIR: Final = "karpenter.sh/do-not-repair"
REBOOT_PRE_BOOT_ID: Final = "karpenter.sh/reboot-pre-boot-id"
REBOOT_GRACE_PERIOD: Final = "karpenter.sh/reboot-termination-grace-period"
DO_NOT_EVICT: Final = "karpenter.sh/do-not-evict"
"""The same on pods, before v1beta1."""
DO_NOT_CONSOLIDATE: Final = "karpenter.sh/do-not-consolidate"
"""Of nodes, before v1beta1."""
NODEPOOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP: Final = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED: Final = "karpenter.sh/nodeclaim-min-values-relaxed"
KUBELET_ANNOTATION: Final = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"
PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED: Final = "karpenter.sh/capacity-overlay-applied"
BUFFER_FAKE_POD: Final = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME: Final = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE: Final = "karpenter.sh/capacity-buffer-namespace"
CONSUMES: Final = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
"""On a pod, the ProvisioningRequest of its namespace whose room it takes; the first that is there counts."""
ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
DISRUPTION_COST: Final = "karpenter.sh/disruption-cost"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"

# Ours: the plan and the extender.
PLAN_ANNOTATION: Final = "dovetail.dev/plan"
ROTATED_ANNOTATION: Final = "dovetail.dev/rotated"
HOLD_RELEASED_ANNOTATION: Final = "dovetail.dev/hold-released"
LAUNCH_ANNOTATION: Final = "dovetail.dev/launch"
LAUNCH_SET: Final = "dovetail.dev/launch-set"
HOSTNAME_DOMAINS: Final = "dovetail.dev/hostname-domains"
SERVING_PREFIX: Final = "serving.dovetail.dev/"
"""Of the annotations of the Lease of the webhook, one a replica."""
WHY_PORT_ANNOTATION: Final = "dovetail.dev/why-port"
PAUSED: Final = "dovetail.dev/paused"
SURGE: Final = "dovetail.dev/surge"
SURGED_FOR: Final = "dovetail.dev/surged-for"
PACKING: Final = "dovetail.dev/packing"
NODE_PENALTY: Final = "dovetail.dev/node-penalty-usd-per-hour"
MAX_USD_PER_HOUR: Final = "dovetail.dev/max-usd-per-hour"
MAX_PODS_PER_WORKLOAD: Final = "dovetail.dev/max-pods-per-workload"
RESERVED: Final = "dovetail.dev/reserved"
GANG: Final = "dovetail.dev/gang"
GANG_LABEL: Final = "dovetail.dev/gang-label"
GANG_MINIMUM: Final = "dovetail.dev/gang-minimum"
GANG_CONSOLIDATION: Final = "dovetail.dev/gang-consolidation"
ALLOW: Final = "allow"
"""Of a PodGroup whose pods are disrupted all at once: consolidation may do that, too."""
VOLCANO_GROUPS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations of a pod, one of which names its PodGroup of Volcano; the first that is there counts. Source: Volcano 1.15."""
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""The label of a pod that names its PodGroup of the coscheduling plugin."""
JUDGED_ANNOTATIONS: Final = (MAX_USD_PER_HOUR, MAX_PODS_PER_WORKLOAD)
"""Of NodePools: a NodePool on which one of them cannot be read is not Ready."""
PLAN_COST: Final = "dovetail.dev/plan-cost"
PLAN_LOWER_BOUND: Final = "dovetail.dev/plan-lower-bound"
PLAN_GAP: Final = "dovetail.dev/plan-gap"
PLANNED_OFFERING_ANNOTATION: Final = "dovetail.dev/planned-offering"
INTERRUPTION_ANNOTATION: Final = "dovetail.dev/interruption"
OWN_DELETION_COST: Final = "dovetail.dev/pod-deletion-cost"
REMOVALS_ANNOTATION: Final = "dovetail.dev/removals"
COMMAND_ANNOTATION: Final = "dovetail.dev/command"
REBOOT_ANNOTATION: Final = "dovetail.dev/reboot"
COMMAND_MEMBER_ANNOTATION: Final = "dovetail.dev/command-member"
REPLACES_ANNOTATION: Final = "dovetail.dev/replaces"
AWAITS_ANNOTATION: Final = "dovetail.dev/awaits"
ENDED_FOR: Final = "dovetail.dev/ended-for"
CONFIRM_DELETION: Final = "dovetail.dev/confirm-deletion"
AWAITS_CONFIRMATION: Final = "dovetail.dev/awaits-confirmation"
TAKEOVER_CORDONED: Final = "dovetail.dev/takeover-cordoned"
"""Of Nodes that `dovetail takeover start` cordoned: the managed node group."""
ACCEPTED_USER_DATA: Final = "dovetail.dev/accepted-user-data"

# Ours: old API versions.
KEPT_V1: Final = "dovetail.dev/v1"
KEPT_V1BETA1: Final = "dovetail.dev/v1beta1"
TRANSLATE: Final = "dovetail.dev/translate"
TRANSLATED_FROM: Final = "dovetail.dev/translated-from"
TRANSLATED_HASH: Final = "dovetail.dev/translated-hash"

# Ours: stamping. Annotations on a pod, labels on a namespace.
STAMPED_ANNOTATION: Final = "dovetail.dev/stamped"
STAMP_ARCH: Final = "dovetail.dev/arch"
STAMP_OS: Final = "dovetail.dev/os"
STAMP_CAPACITY_TYPE: Final = "dovetail.dev/capacity-type"
STAMP_NODEPOOL: Final = "dovetail.dev/nodepool"
STAMP_ON_DEMAND: Final = "dovetail.dev/on-demand"
ON_DEMAND_SHARE_LABEL: Final = "dovetail.dev/on-demand-share"
ON_DEMAND_TICKET: Final = "dovetail.dev/on-demand-ticket"
ON_DEMAND_REPAIR: Final = "dovetail.dev/on-demand-repair"
ON_DEMAND_REPAIRED: Final = "dovetail.dev/on-demand-repaired"
STAMP_SCHEDULER: Final = "dovetail.dev/scheduler"
STAMP_IMAGE_ARCH: Final = "dovetail.dev/image-arch"
IMAGE_ARCH_GATE: Final = "dovetail.dev/image-arch"
"""The scheduling gate of a pod that waits for the architectures of its images."""
IMAGE_ARCH_PENDING: Final = "dovetail.dev/image-arch-pending"
"""A label, so that the pods whose images are still unknown can be watched."""
IMAGE_ARCHITECTURES: Final = "dovetail.dev/image-architectures"
"""An annotation: what became known of a pod's images after its admission."""
RECREATE_UNSCHEDULED: Final = "dovetail.dev/recreate-unscheduled"
STAMP_SWITCH: Final = "dovetail.dev/stamp"
STAMP_PROTECT_JOBS: Final = "dovetail.dev/protect-jobs"
STAMP_SPREAD: Final = "dovetail.dev/spread"
STAMP_LEGACY_LABELS: Final = "dovetail.dev/legacy-labels"
OWN_NAMESPACE: Final = "dovetail-system"
"""Where Dovetail is installed, unless a flag says otherwise."""
DEFAULTS_CONFIGMAP: Final = "dovetail-defaults"
SETTINGS_CONFIGMAP: Final = "dovetail-settings"
TAKEOVER_CONFIGMAP: Final = "dovetail-takeover"
"""Where a takeover stands; `dovetail takeover` and `dovetail uninstall` alone read and write it."""
TAKEOVER_PHASE: Final = "phase"
"""The key that a takeover from Karpenter has in it."""
TAKEOVER_BACK: Final = "back"
"""Its value once the cluster was given back."""
INSTALLATION_CONFIGMAP: Final = "dovetail-installation"
"""Older than whatever is deleted while Dovetail is installed."""
SCHEDULER_NAME: Final = "dovetail-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
KUBE_SCHEDULER_NAMES: Final = (DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME)
"""The schedulers that take every pod at once, so that theirs are planned before they are refused."""

# Labels that differ between equal pods of one controller.
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
TOPOLOGY_LABELS: Final[frozenset[str]] = frozenset({ZONE_LABEL, REGION_LABEL})
"""What the API server copies from the Node to a pod that is bound (PodTopologyLabelsAdmission, on since Kubernetes 1.35)."""
PER_POD_LABELS: Final[frozenset[str]] = TOPOLOGY_LABELS | {
    POD_NAME_LABEL,
    POD_INDEX_LABEL,
    COMPLETION_INDEX_LABEL,
    IMAGE_ARCH_PENDING,
}

# Labels and annotations of the kwok provider and of kwok.
KWOK_NODE: Final = "kwok.x-k8s.io/node"
KWOK_NODE_FAKE: Final = "fake"
KWOK_PARTITION_LABEL: Final = "kwok-partition"
KWOK_INSTANCE_SIZE_LABEL: Final = "karpenter.kwok.sh/instance-size"
KWOK_INSTANCE_FAMILY_LABEL: Final = "karpenter.kwok.sh/instance-family"
KWOK_INSTANCE_CPU_LABEL: Final = "karpenter.kwok.sh/instance-cpu"
KWOK_INSTANCE_MEMORY_LABEL: Final = "karpenter.kwok.sh/instance-memory"
INSTANCE_PRICE_ANNOTATION: Final = "eks-node-viewer/instance-price"

# Finalizers.
TERMINATION_FINALIZER: Final = "karpenter.sh/termination"

# Taints.
NO_SCHEDULE: Final = taints.NO_SCHEDULE
PREFER_NO_SCHEDULE: Final = taints.PREFER_NO_SCHEDULE
NO_EXECUTE: Final = taints.NO_EXECUTE
DISRUPTED_TAINT: Final = Taint(key="karpenter.sh/disrupted", effect=NO_SCHEDULE)
REBOOTING_TAINT: Final = Taint(key="karpenter.sh/rebooting", effect=NO_SCHEDULE)
CORDONED_TAINT_KEY: Final = "node.kubernetes.io/unschedulable"
"""Of the taint that Kubernetes puts on a Node while somebody has it cordoned."""
UNREGISTERED_TAINT: Final = Taint(key="karpenter.sh/unregistered", effect=NO_EXECUTE)
UNREGISTERED_NO_SCHEDULE_TAINT: Final = Taint(key="karpenter.sh/unregistered", effect=NO_SCHEDULE)
"""For nodes that are Ready as soon as they join: pods are bound the moment it falls, and a kube-controller-manager that
has not seen it fall would delete them for NoExecute."""
EPHEMERAL_TAINTS: Final[tuple[Taint, ...]] = (
    Taint(key="node.kubernetes.io/not-ready", effect=NO_SCHEDULE),
    Taint(key="node.kubernetes.io/not-ready", effect=NO_EXECUTE),
    Taint(key="node.kubernetes.io/unreachable", effect=NO_SCHEDULE),
    Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect=NO_SCHEDULE, value="true"),
    UNREGISTERED_TAINT,
    UNREGISTERED_NO_SCHEDULE_TAINT,
)
"""Taints that fall by themselves while a node comes up; they block Initialized and are no reason not to plan."""
READINESS_TAINT_PREFIX: Final = "readiness.k8s.io/"

# Resources.
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
NODES: Final = "nodes"  # pseudo resource of a pool's limits and status
HUGEPAGES_PREFIX: Final = "hugepages-"

# Condition types.
READY: Final = "Ready"
LAUNCHED: Final = "Launched"
REGISTERED: Final = "Registered"
INITIALIZED: Final = "Initialized"
CONSOLIDATABLE: Final = "Consolidatable"
DRIFTED: Final = "Drifted"
DRAINED: Final = "Drained"
VOLUMES_DETACHED: Final = "VolumesDetached"
INSTANCE_TERMINATING: Final = "InstanceTerminating"
CONSISTENT_STATE_FOUND: Final = "ConsistentStateFound"
DISRUPTION_REASON: Final = "DisruptionReason"
REBOOTING: Final = "Rebooting"
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"
NODECLASS_READY: Final = "NodeClassReady"
NODE_REGISTRATION_HEALTHY: Final = "NodeRegistrationHealthy"
SPENDING_LIMIT_REACHED: Final = "SpendingLimitReached"
READY_FOR_PROVISIONING: Final = "ReadyForProvisioning"
PROVISIONING: Final = "Provisioning"
POD_SCHEDULED: Final = "PodScheduled"

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

# Condition reasons.
AWAITING_RECONCILIATION: Final = "AwaitingReconciliation"
RECONCILING_DEPENDENTS: Final = "ReconcilingDependents"
UNHEALTHY_DEPENDENTS: Final = "UnhealthyDependents"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULING_GATED: Final = "SchedulingGated"
NODEPOOL_VALIDATION_FAILED: Final = "NodePoolValidationFailed"
RESERVED_TAINTS: Final = "ReservedTaints"
NODECLASS_NOT_FOUND: Final = "NodeClassNotFound"
NODECLASS_TERMINATING: Final = "NodeClassTerminating"
NODECLASS_READINESS_UNKNOWN: Final = "NodeClassReadinessUnknown"
REGISTRATION_FAILED: Final = "RegistrationFailed"
LAUNCH_FAILED: Final = "LaunchFailed"
LAUNCH_PAUSED: Final = "LaunchPaused"
AWAITS_TERMINATION: Final = "AwaitsTermination"
INSUFFICIENT_CAPACITY: Final = "InsufficientCapacity"
NODE_NOT_FOUND: Final = "NodeNotFound"
NODE_NOT_READY: Final = "NodeNotReady"
MULTIPLE_NODES_FOUND: Final = "MultipleNodesFound"
REGISTRATION_HOOK_PENDING: Final = "RegistrationHookPending"
STARTUP_TAINTS_EXIST: Final = "StartupTaintsExist"
EPHEMERAL_TAINTS_EXIST: Final = "KnownEphemeralTaintsExist"
RESOURCE_NOT_REGISTERED: Final = "ResourceNotRegistered"
CSI_DRIVER_NOT_REGISTERED: Final = "CSIDriverNotRegistered"
DRAINING: Final = "Draining"
AWAITING_VOLUME_DETACHMENT: Final = "AwaitingVolumeDetachment"
TERMINATION_GRACE_PERIOD_ELAPSED: Final = "TerminationGracePeriodElapsed"
CONSISTENCY_CHECK_FAILED: Final = "ConsistencyCheckFailed"
REBOOT_REQUESTED: Final = "RebootRequested"
REBOOT_ISSUED: Final = "RebootIssued"
REBOOT_SUCCEEDED: Final = "RebootSucceeded"
REBOOT_FAILED: Final = "RebootFailed"
RUNTIME_VALIDATION: Final = "RuntimeValidation"
CONFLICT: Final = "Conflict"

# Reasons for which a node is disrupted; the values of a budget's `reasons`.
REASON_UNDERUTILIZED: Final = "Underutilized"
REASON_EMPTY: Final = "Empty"
REASON_DRIFTED: Final = "Drifted"
REASON_UNHEALTHY: Final = "Unhealthy"
BUDGET_REASONS: Final = (REASON_UNDERUTILIZED, REASON_EMPTY, REASON_DRIFTED, REASON_UNHEALTHY)
REASON_SCHEDULED_CHANGE: Final = "ScheduledChange"  # ours: only budgets without reasons speak about it

# Priority classes whose pods leave last.
CRITICAL_PRIORITY_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})


def normalized_label(key: str) -> str:
    """The stable key of a label; legacy aliases are replaced, every other key is returned as it is."""
    return LABEL_ALIASES.get(key, key)


def label_domain(key: str) -> str:
    """What stands before the slash of a label key; "" when there is none."""
    domain, slash, _ = key.partition("/")
    return domain if slash else ""


def restricted(key: str, well_known: frozenset[str] = WELL_KNOWN_LABELS) -> bool:
    """Whether users may not require or set this label on nodes.

    Restricted are the domain karpenter.sh and what lies below it, less the well-known labels, and
    kubernetes.io/hostname. A provider passes `well_known` with its own labels added.
    """
    if key in well_known:
        return False
    domain = label_domain(key)
    return key == HOSTNAME_LABEL or domain == GROUP or domain.endswith("." + GROUP)


def nodeclass_label(group: str, kind: str) -> str:
    """The label that tells a node's NodeClass: `<group>/<lowercase kind>`; its value is the class's name."""
    return f"{group}/{kind.lower()}"


def is_ephemeral(taint: Taint) -> bool:
    """Whether a taint falls by itself while a node comes up; its value does not matter."""
    return taint.key.startswith(READINESS_TAINT_PREFIX) or (taint.key, taint.effect) in _EPHEMERAL


_EPHEMERAL = frozenset((taint.key, taint.effect) for taint in EPHEMERAL_TAINTS)
