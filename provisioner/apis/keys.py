"""The one table of annotations, labels and taints that are Dovetail's own, and of those of Karpenter that it honours or writes. Pure.

The reference is written from it, and `dovetail lint` tells by it what is misspelled or stands where nobody reads it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from provisioner.apis import names, reports

Groups = Mapping[tuple[str, str], Mapping[str, str]]
"""By where keys stand and who writes them: each key with what it does."""

OWN: Final[Groups] = {
    ("Pod annotation, Namespace label", "you"): {
        names.STAMP_ARCH: "Architectures that the pod requires.",
        names.STAMP_OS: "Operating systems that the pod requires.",
        names.STAMP_CAPACITY_TYPE: "Capacity types that the pod requires.",
        names.STAMP_ON_DEMAND: (
            "Share of the pods of one owner (`30%`, in labels `30pct`) or number of them that require on-demand nodes; the others "
            "prefer spot."
        ),
        names.STAMP_NODEPOOL: "NodePools that the pod requires; the webhook adds tolerations for their taints.",
        names.STAMP_IMAGE_ARCH: (
            "`stamp` or `gate`: the pod requires an architecture that all of its images were built for; `gate` holds it until they "
            "are known."
        ),
        names.STAMP_SCHEDULER: "`enabled` assigns the pod to the Dovetail scheduler.",
        names.STAMP_SPREAD: "`zone` adds a topology spread constraint across zones (ScheduleAnyway) to pods that do not have one.",
        names.STAMP_PROTECT_JOBS: "`enabled` annotates pods of Jobs with karpenter.sh/do-not-disrupt.",
        names.STAMP_LEGACY_LABELS: "`rewrite` replaces deprecated node labels and annotations of the pod with the current ones.",
    },
    ("Pod label", "webhook, provisioner"): {
        names.ON_DEMAND_SHARE_LABEL: (
            "Which of the two the pod is: `on-demand` or `spot`. The webhook counts pods by it. Where a share is repaired, the "
            "provisioner labels pods that were admitted without the webhook, by the node that they run on."
        ),
    },
    ("Pod annotation", "webhook"): {
        names.ON_DEMAND_TICKET: "The admission review that decided; counts a pod once.",
        names.IMAGE_ARCHITECTURES: "Architectures of all images of the pod, found out after its admission; the provisioner plans the pod for these only.",
        names.STAMPED_ANNOTATION: "What the webhook changed on the pod, the level that requested it (pod, namespace or cluster), and why.",
    },
    ("Pod annotation", "you"): {
        names.GANG: (
            "Name of a group of pods of one namespace and one controller: nodes are planned for the number of pods that "
            "`dovetail.dev/gang-minimum` sets, or for none of them."
        ),
        names.GANG_LABEL: "Key of a label: the pods of a namespace with the same value for it are such a group, whatever their controllers are.",
        names.GANG_MINIMUM: (
            "Number of pods of the group that need nodes at the same time, from 1 to 10000. "
            "Required, except for `dovetail.dev/gang` on pods of a Job."
        ),
        names.ON_DEMAND_REPAIR: (
            "`evict` lets the provisioner evict pods of a ReplicaSet or StatefulSet, one at a time, while their share on demand is "
            "wrong by more than 2 pods and more than 5 %; requires dovetail.dev/on-demand as an annotation of the pods."
        ),
        names.RECREATE_UNSCHEDULED: (
            "`true` lets the provisioner delete the pod, so that its controller creates it again, if its scheduler has processed no "
            "pod for a minute. Kubernetes counts a deleted pod of a Job as failed (`backoffLimit`)."
        ),
    },
    ("PodGroup annotation", "you"): {
        names.GANG_CONSOLIDATION: (
            "`allow` lets consolidation disrupt the pods of a PodGroup with `disruptionMode: {all: {}}`, all at once; otherwise it never moves them."
        ),
    },
    ("Pod annotation", "provisioner"): {
        names.OWN_DELETION_COST: (
            "The value that the provisioner last wrote to `controller.kubernetes.io/pod-deletion-cost` (feature gate "
            "PodDeletionCostManagement). A different value there was written by another program or user, and the provisioner does not change it."
        ),
        names.ON_DEMAND_REPAIRED: "The last eviction that was to repair the share of the owner of this pod, and how many in a row did not help.",
    },
    ("Scheduling gate", "webhook"): {
        names.IMAGE_ARCH_GATE: "Holds a pod while its images are looked up, for ten seconds at most.",
    },
    ("Pod label", "webhook"): {
        names.IMAGE_ARCH_PENDING: (
            "The images of the pod are being looked up. The webhook watches these pods and removes the label; the provisioner waits "
            "for that for five seconds at most."
        ),
    },
    ("Pod annotation or label, Namespace label", "you"): {
        names.STAMP_SWITCH: "`disabled` leaves the pod unchanged.",
    },
    ("NodePool annotation", "you"): {
        names.HOSTNAME_DOMAINS: (
            "Minimum number of nodes for a hostname spread with DoNotSchedule and without minDomains, 3 by default; "
            "1 follows kube-scheduler, 0 plans a node for every maxSkew pods."
        ),
        names.PACKING: "How nodes are chosen for pending pods: `cost` or `greedy`; overrides --packing.",
        names.MAX_USD_PER_HOUR: (
            "USD per hour that all nodes of the NodePool may cost together. An instance type counts with the highest price that its "
            "node can have in the NodePool."
        ),
        names.MAX_PODS_PER_WORKLOAD: "The most pods of one ReplicaSet, StatefulSet or Job that Dovetail places on a node of the NodePool, from 1 to 9999.",
        names.NODE_PENALTY: "USD per hour that the cost planner adds to the price of each node, so that it prefers fewer, larger ones; default 0.01.",
        names.PAUSED: (
            "`true` pauses the disruption of nodes of the NodePool, including commands that have begun; a list of `drift`, "
            "`consolidation`, `expiration`, `repair` and `launch` pauses these. Interruptions and deletions by users continue."
        ),
    },
    ("NodeClaim, Node and ConfigMap annotation", "you"): {
        names.CONFIRM_DELETION: (
            "`true` confirms a deletion that waits, or, on the ConfigMap `dovetail-installation`, all that wait; the provisioner removes it there."
        ),
    },
    ("NodeClaim annotation", "provisioner"): {
        names.PLAN_COST: "Price of all new nodes of the plan that the NodeClaim is part of, in USD per hour.",
        names.PLAN_LOWER_BOUND: "Proved lower bound of that price, in USD per hour.",
        names.PLAN_GAP: "That price above the lower bound, as a fraction of the bound.",
        names.PLAN_ANNOTATION: "The pods that the NodeClaim was created for.",
        names.RESERVED: "Room on the node that is reserved for the pods of ProvisioningRequests.",
        names.PLANNED_OFFERING_ANNOTATION: "Instance type, zone and capacity type that the plan expects.",
        names.LAUNCH_SET: "The gangs and ProvisioningRequests that need the NodeClaim, and of each the decision and the number of its NodeClaims.",
        names.LAUNCH_ANNOTATION: "Batch, attempt and ordinal of the launch; the instances carry it as a tag.",
        names.INTERRUPTION_ANNOTATION: "An interruption that EC2 announced; removing it cancels the drain.",
        names.COMMAND_ANNOTATION: (
            "The disruption command of which it is the first candidate: reason, candidates, replacements, phase; removing it cancels "
            "the command."
        ),
        names.REBOOT_ANNOTATION: "The reboots of its node in the last 24 hours, and the one that is in progress or has failed; keep it.",
        names.COMMAND_MEMBER_ANNOTATION: "ID of the disruption command of which it is another candidate.",
        names.REPLACES_ANNOTATION: "ID of the disruption command that it was created for.",
        names.AWAITS_ANNOTATION: (
            "The NodeClaim whose place it takes, and what is full until that is gone; it is not launched before. Removing it launches the instance at "
            "once."
        ),
        names.ENDED_FOR: "Why it was deleted without a disruption command: `expired`, `scaled-down` or `unhealthy`; a pause holds its drain.",
        names.REMOVALS_ANNOTATION: "When nodes for owners of its pods were removed within the last hour; three times is a loop.",
    },
    ("NodeClaim and Node annotation", "provisioner"): {
        names.AWAITS_CONFIRMATION: "Its deletion waits for `dovetail.dev/confirm-deletion`, and which guard holds it: `installation` or `mass-deletion`.",
    },
    ("Deployment annotation", "you"): {
        names.SURGE: "`true` starts the new pod of a Deployment with one replica before the old one is evicted (component `surge`).",
    },
    ("Deployment annotation", "provisioner"): {
        names.SURGED_FOR: "UID of the pod for which the Deployment was restarted last, and when.",
    },
    ("Provisioner and AWSNodeTemplate annotation", "you"): {
        names.TRANSLATE: "`true` translates an object that is older than the component conversion.",
    },
    ("NodePool and EC2NodeClass annotation", "provisioner"): {
        names.TRANSLATED_FROM: "Kind, name and UID of the old object that it was made from.",
        names.TRANSLATED_HASH: "Hash of the spec as it was written; one that was edited since then is not changed.",
    },
    ("NodePool, NodeClaim and EC2NodeClass annotation at v1beta1", "webhook"): {
        names.KEPT_V1: "Fields of v1 that v1beta1 does not have.",
    },
    ("NodePool, NodeClaim and EC2NodeClass annotation at v1", "webhook"): {
        names.KEPT_V1BETA1: "Fields as they were written at v1beta1, where v1 says them otherwise.",
    },
    ("Node annotation", "extender"): {
        names.HOLD_RELEASED_ANNOTATION: "Time at which held room was released; the change makes kube-scheduler retry pending pods.",
    },
    ("Node annotation", "dovetail takeover"): {
        names.TAKEOVER_CORDONED: "The managed node group whose takeover cordoned the Node; `dovetail takeover back` makes it schedulable again.",
    },
    ("Secret annotation", "provisioner"): {
        names.ROTATED_ANNOTATION: (
            "Fingerprint (SHA-256) of the certificate that Dovetail put into this Secret and renews; a Secret with another "
            "certificate is only read."
        ),
    },
    ("Lease annotation", "provisioner"): {
        reports.REPORTS_URL_ANNOTATION: "Address at which the leader accepts reports of the extender.",
        names.WHY_PORT_ANNOTATION: "Port on the loopback of the leader's pod at which it answers `dovetail why`.",
    },
    ("EC2NodeClass annotation", "provisioner"): {
        names.ACCEPTED_USER_DATA: (
            "Hash of the AMI family and user data of an EC2NodeClass that was in use before Dovetail found that nodeadm refuses "
            "them: it stays Ready as long as they stay."
        ),
    },
    ("Lease annotation", "webhook"): {
        f"{names.SERVING_PREFIX}POD": "Fingerprint of the certificate that a replica serves.",
    },
}
KARPENTER: Final[Groups] = {
    ("Pod, Node or NodeClaim annotation", "you"): {
        names.DO_NOT_DISRUPT: "`true`, or a duration since the pod's start: no voluntary disruption.",
    },
    ("Node or NodeClaim annotation", "you"): {
        names.DO_NOT_REPAIR: "`true`: the node is not repaired, whatever its conditions say.",
    },
    ("Pod annotation", "you"): {
        names.DISRUPTION_COST: (
            "How expensive it is to evict the pod, from -2147483648 to 2147483647; 134217728 counts as much as another pod. Without "
            "it, `controller.kubernetes.io/pod-deletion-cost` counts."
        ),
    },
    ("Node and NodeClaim label", "provisioner"): {
        names.NODEPOOL_LABEL: "The NodePool.",
    },
    ("NodePool annotation, Node and NodeClaim label", "provisioner"): {
        names.PROVISIONER_NAME: "The Provisioner that the NodePool was made from (component `conversion`).",
    },
    ("NodePool and NodeClaim annotation", "webhook or you"): {
        names.KUBELET_ANNOTATION: "Kubelet settings of a NodePool at v1beta1, in JSON; nodes on EC2 get them.",
    },
    ("Node label", "provisioner"): {
        names.CAPACITY_TYPE_LABEL: "on-demand, spot or reserved.",
        names.REGISTERED_LABEL: "The Node has joined and has its labels and taints.",
        names.INITIALIZED_LABEL: "The Node is ready and its startup taints were removed.",
        names.EXCLUDE_BALANCERS_LABEL: "Load balancers exclude the Node while it drains.",
    },
    ("Node label", "you or the image"): {
        names.DO_NOT_SYNC_TAINTS_LABEL: "The provisioner does not change the taints of the Node.",
    },
    ("NodePool and NodeClaim annotation", "provisioner"): {
        names.NODEPOOL_HASH: "Hash of the template; a difference means drift.",
        names.NODEPOOL_HASH_VERSION: "Version of the hash.",
    },
    ("NodeClaim annotation", "provisioner"): {
        names.MIN_VALUES_RELAXED: "Whether minValues were relaxed (--min-values-policy=BestEffort).",
        names.PRICE_OVERLAY_APPLIED: "`true` if the node was launched at the price of a NodeOverlay.",
        names.CAPACITY_OVERLAY_APPLIED: "`true` if the instance type has resources of a NodeOverlay.",
        names.TERMINATION_TIMESTAMP: "Time at which terminationGracePeriod ends.",
        names.REBOOT_PRE_BOOT_ID: "The boot ID that its Node had before the instance was rebooted.",
        names.REBOOT_GRACE_PERIOD: "Of Karpenter: how long its pods may take to leave before a reboot; removed.",
    },
    ("Node taint", "provisioner"): {
        names.DISRUPTED_TAINT.key: "The Node is being disrupted; effect NoSchedule.",
        names.REBOOTING_TAINT.key: "The Node is being rebooted, or its reboot failed; effect NoSchedule.",
    },
    ("Node taint", "node's start-up"): {
        names.UNREGISTERED_TAINT.key: "The Node has joined but is not registered yet.",
    },
    ("Node label", "kubelet"): {
        names.HOSTNAME_LABEL: "The provisioner removes it when a Node starts to drain, so that topology spread across hostnames no longer counts the Node.",
    },
    ("Node and NodeClaim finalizer", "provisioner"): {
        names.TERMINATION_FINALIZER: "The object remains until the Node is drained and the instance has terminated.",
    },
}


class KeyPlace(NamedTuple):
    """Where a key may stand.

    Attributes:
        kind: of the object; "Pod" for templates of pods too.
        field: annotation or label.
    """

    kind: str
    field: str


_FIELDS: Final = ("annotation", "label")
_KIND: Final = re.compile(r"[A-Z]\w+")


def places_in(text: str) -> Iterator[KeyPlace]:
    """The places that the words of the table name: "Pod annotation or label, Namespace label"."""
    kinds: list[str] = []
    for part in text.split(", "):
        kinds += _KIND.findall(part)
        found = [field for field in _FIELDS if field in part]
        yield from (KeyPlace(kind, field) for kind in kinds for field in found)
        kinds = [] if found else kinds  # "NodePool, NodeClaim and EC2NodeClass annotation"


def places() -> dict[str, frozenset[KeyPlace]]:
    """Where each of Dovetail's own keys may stand, whoever writes it."""
    found: dict[str, set[KeyPlace]] = {}
    for (text, _), keys in OWN.items():
        for key in keys:
            found.setdefault(key, set()).update(places_in(text))
    return {key: frozenset(those) for key, those in found.items()}
