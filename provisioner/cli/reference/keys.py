"""Annotations, labels and taints that are Dovetail's own, and those of Karpenter that it honours or writes."""

from typing import Final, NamedTuple

from certs.replicas import PREFIX as SERVING_PREFIX
from provisioner.apis import names, reports
from provisioner.cli.reference.markdown import code, page, table


class Key(NamedTuple):
    """One key: where it stands, who writes it, and what it does."""

    name: str
    on: str
    writer: str
    meaning: str


OWN: Final = (
    Key(names.STAMP_ARCH, "Pod annotation, Namespace label", "you", "Architectures that the pod requires."),
    Key(names.STAMP_OS, "Pod annotation, Namespace label", "you", "Operating systems that the pod requires."),
    Key(names.STAMP_CAPACITY_TYPE, "Pod annotation, Namespace label", "you", "Capacity types that the pod requires."),
    Key(
        names.STAMP_ON_DEMAND,
        "Pod annotation, Namespace label",
        "you",
        "Share of the pods of one owner (`30%`, in labels `30pct`) or number of them that require on-demand nodes; the others prefer spot.",
    ),
    Key(
        names.ON_DEMAND_SHARE_LABEL,
        "Pod label",
        "webhook, provisioner",
        "Which of the two the pod is: `on-demand` or `spot`. The webhook counts pods by it. "
        "Where a share is repaired, the provisioner labels pods that were admitted without the webhook, by the node that they run on.",
    ),
    Key(names.ON_DEMAND_TICKET, "Pod annotation", "webhook", "The admission review that decided; counts a pod once."),
    Key(
        names.ON_DEMAND_REPAIR,
        "Pod annotation",
        "you",
        "`evict` lets the provisioner evict pods of a ReplicaSet or StatefulSet, one at a time, while their share on demand is wrong by more than 2 pods "
        "and more than 5 %; beside dovetail.dev/on-demand as an annotation of the pods.",
    ),
    Key(
        names.ON_DEMAND_REPAIRED,
        "Pod annotation",
        "provisioner",
        "The last eviction that was to repair the share of the owner of this pod, and how many in a row did not help.",
    ),
    Key(
        names.STAMP_NODEPOOL,
        "Pod annotation, Namespace label",
        "you",
        "NodePools that the pod requires; the webhook adds tolerations for their taints.",
    ),
    Key(
        names.STAMP_IMAGE_ARCH,
        "Pod annotation, Namespace label",
        "you",
        "`stamp` or `gate`: the pod requires an architecture that all of its images were built for; `gate` holds it until they are known.",
    ),
    Key(
        names.IMAGE_ARCH_GATE,
        "Scheduling gate",
        "webhook",
        "Holds a pod while its images are looked up, for ten seconds at most.",
    ),
    Key(
        names.IMAGE_ARCH_PENDING,
        "Pod label",
        "webhook",
        "The images of the pod are being looked up. The webhook watches these pods and removes the label; "
        "the provisioner waits for that for five seconds at most.",
    ),
    Key(
        names.IMAGE_ARCHITECTURES,
        "Pod annotation",
        "webhook",
        "Architectures of all images of the pod, found out after its admission; the provisioner plans the pod for these only.",
    ),
    Key(
        names.STAMP_SCHEDULER,
        "Pod annotation, Namespace label",
        "you",
        "`enabled` assigns the pod to the Dovetail scheduler.",
    ),
    Key(
        names.STAMP_SPREAD,
        "Pod annotation, Namespace label",
        "you",
        "`zone` adds a topology spread constraint over zones (ScheduleAnyway) to pods that have none over zones.",
    ),
    Key(
        names.STAMP_PROTECT_JOBS,
        "Pod annotation, Namespace label",
        "you",
        "`enabled` annotates pods of Jobs with karpenter.sh/do-not-disrupt.",
    ),
    Key(
        names.STAMP_LEGACY_LABELS,
        "Pod annotation, Namespace label",
        "you",
        "`rewrite` replaces deprecated node labels and annotations of the pod with the current ones.",
    ),
    Key(
        names.RECREATE_UNSCHEDULED,
        "Pod annotation",
        "you",
        "`true` lets the provisioner delete the pod, so that its controller creates it again, if its scheduler has processed no pod for a minute. "
        "Kubernetes counts a deleted pod of a Job as failed (`backoffLimit`).",
    ),
    Key(names.STAMP_SWITCH, "Pod annotation or label, Namespace label", "you", "`disabled` leaves the pod unchanged."),
    Key(
        names.HOSTNAME_DOMAINS,
        "NodePool annotation",
        "you",
        "Minimum number of nodes for a hostname spread with DoNotSchedule; overrides --hostname-spread-domains.",
    ),
    Key(
        names.PACKING,
        "NodePool annotation",
        "you",
        "How nodes are chosen for pending pods: `cost` or `greedy`; overrides --packing.",
    ),
    Key(
        names.MAX_USD_PER_HOUR,
        "NodePool annotation",
        "you",
        "USD per hour that all nodes of the NodePool may cost together. An instance type counts with the highest price that its node can have in the NodePool.",
    ),
    Key(
        names.MAX_PODS_PER_WORKLOAD,
        "NodePool annotation",
        "you",
        "The most pods of one ReplicaSet, StatefulSet or Job that Dovetail places on a node of the NodePool, from 1 to 9999.",
    ),
    Key(
        names.NODE_PENALTY,
        "NodePool annotation",
        "you",
        "USD per hour that the cost planner adds to the price of each node, so that it prefers fewer, larger ones; default 0.01.",
    ),
    Key(
        names.PLAN_COST,
        "NodeClaim annotation",
        "provisioner",
        "Price of all new nodes of the plan that the NodeClaim is part of, in USD per hour.",
    ),
    Key(
        names.PLAN_LOWER_BOUND,
        "NodeClaim annotation",
        "provisioner",
        "Proved lower bound of that price, in USD per hour.",
    ),
    Key(
        names.PLAN_GAP,
        "NodeClaim annotation",
        "provisioner",
        "That price above the lower bound, as a fraction of the bound.",
    ),
    Key(
        names.PAUSED,
        "NodePool annotation",
        "you",
        "`true` pauses the disruption of nodes of the NodePool, including commands that have begun. Interruptions and deletions by users continue.",
    ),
    Key(
        names.SURGE,
        "Deployment annotation",
        "you",
        "`true` starts the new pod of a Deployment with one replica before the old one is evicted (component `surge`).",
    ),
    Key(
        names.SURGED_FOR,
        "Deployment annotation",
        "provisioner",
        "UID of the pod for which the Deployment was restarted last, and when.",
    ),
    Key(
        names.STAMPED_ANNOTATION,
        "Pod annotation",
        "webhook",
        "What the webhook changed on the pod, the level that requested it (pod, namespace or cluster), and why.",
    ),
    Key(names.PLAN_ANNOTATION, "NodeClaim annotation", "provisioner", "The pods that the NodeClaim was created for."),
    Key(
        names.PLANNED_OFFERING_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "Instance type, zone and capacity type that the plan expects.",
    ),
    Key(
        names.LAUNCH_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "Batch, attempt and ordinal of the launch; the instances carry it as a tag.",
    ),
    Key(
        names.INTERRUPTION_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "An interruption that EC2 announced; removing it cancels the drain.",
    ),
    Key(
        names.COMMAND_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "The disruption command of which it is the first candidate: reason, candidates, replacements, phase; removing it cancels the command.",
    ),
    Key(
        names.COMMAND_MEMBER_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "ID of the disruption command of which it is another candidate.",
    ),
    Key(
        names.REPLACES_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "ID of the disruption command that it was created for.",
    ),
    Key(
        names.ENDED_FOR,
        "NodeClaim annotation",
        "provisioner",
        "Why it was deleted without a disruption command: `expired`, `scaled-down` or `unhealthy`; a pause holds its drain.",
    ),
    Key(
        names.TRANSLATE,
        "Provisioner and AWSNodeTemplate annotation",
        "you",
        "`true` translates an object that is older than the component conversion.",
    ),
    Key(
        names.TRANSLATED_FROM,
        "NodePool and EC2NodeClass annotation",
        "provisioner",
        "Kind, name and UID of the old object that it was made from.",
    ),
    Key(
        names.TRANSLATED_HASH,
        "NodePool and EC2NodeClass annotation",
        "provisioner",
        "Hash of the spec as it was written; one that was edited since is left alone.",
    ),
    Key(
        names.KEPT_V1,
        "NodePool, NodeClaim and EC2NodeClass annotation at v1beta1",
        "webhook",
        "Fields of v1 that v1beta1 does not have.",
    ),
    Key(
        names.KEPT_V1BETA1,
        "NodePool, NodeClaim and EC2NodeClass annotation at v1",
        "webhook",
        "Fields as they were written at v1beta1, where v1 says them otherwise.",
    ),
    Key(
        names.REMOVALS_ANNOTATION,
        "NodeClaim annotation",
        "provisioner",
        "When nodes for owners of its pods were removed within the last hour; three times is a loop.",
    ),
    Key(
        names.HOLD_RELEASED_ANNOTATION,
        "Node annotation",
        "extender",
        "Time at which held room was released; the change makes kube-scheduler retry pending pods.",
    ),
    Key(
        names.ROTATED_ANNOTATION,
        "Secret annotation",
        "provisioner",
        "Fingerprint (SHA-256) of the certificate that Dovetail put into this Secret and renews; a Secret with another certificate is only read.",
    ),
    Key(
        reports.REPORTS_URL_ANNOTATION,
        "Lease annotation",
        "provisioner",
        "Address at which the leader accepts reports of the extender.",
    ),
    Key(
        names.WHY_PORT_ANNOTATION,
        "Lease annotation",
        "provisioner",
        "Port on the loopback of the leader's pod at which it answers `dovetail why`.",
    ),
    Key(
        names.ACCEPTED_USER_DATA,
        "EC2NodeClass annotation",
        "provisioner",
        "Hash of the AMI family and user data of an EC2NodeClass that was in use before Dovetail found that nodeadm refuses them: it stays Ready as long as "
        "they stay.",
    ),
    Key(f"{SERVING_PREFIX}POD", "Lease annotation", "webhook", "Fingerprint of the certificate that a replica serves."),
)

KARPENTER: Final = (
    Key(
        names.DO_NOT_DISRUPT,
        "Pod, Node or NodeClaim annotation",
        "you",
        "`true`, or a duration since the pod's start: no voluntary disruption.",
    ),
    Key(names.NODEPOOL_LABEL, "Node and NodeClaim label", "provisioner", "The NodePool."),
    Key(
        names.PROVISIONER_NAME,
        "NodePool annotation, Node and NodeClaim label",
        "provisioner",
        "The Provisioner that the NodePool was made from (component `conversion`).",
    ),
    Key(
        names.KUBELET_ANNOTATION,
        "NodePool and NodeClaim annotation",
        "webhook or you",
        "Kubelet settings of a NodePool at v1beta1, in JSON; nodes on EC2 get them.",
    ),
    Key(names.CAPACITY_TYPE_LABEL, "Node label", "provisioner", "on-demand, spot or reserved."),
    Key(names.REGISTERED_LABEL, "Node label", "provisioner", "The Node has joined and has its labels and taints."),
    Key(names.INITIALIZED_LABEL, "Node label", "provisioner", "The Node is ready and its startup taints were removed."),
    Key(
        names.DO_NOT_SYNC_TAINTS_LABEL,
        "Node label",
        "you or the image",
        "The provisioner does not change the taints of the Node.",
    ),
    Key(
        names.NODEPOOL_HASH,
        "NodePool and NodeClaim annotation",
        "provisioner",
        "Hash of the template; a difference means drift.",
    ),
    Key(names.NODEPOOL_HASH_VERSION, "NodePool and NodeClaim annotation", "provisioner", "Version of the hash."),
    Key(
        names.MIN_VALUES_RELAXED,
        "NodeClaim annotation",
        "provisioner",
        "Whether minValues were relaxed (--min-values-policy=BestEffort).",
    ),
    Key(
        names.PRICE_OVERLAY_APPLIED,
        "NodeClaim annotation",
        "provisioner",
        "`true` if the node was launched at the price of a NodeOverlay.",
    ),
    Key(
        names.CAPACITY_OVERLAY_APPLIED,
        "NodeClaim annotation",
        "provisioner",
        "`true` if the instance type has resources of a NodeOverlay.",
    ),
    Key(
        names.TERMINATION_TIMESTAMP, "NodeClaim annotation", "provisioner", "Time at which terminationGracePeriod ends."
    ),
    Key(names.DISRUPTED_TAINT.key, "Node taint", "provisioner", "The Node is being disrupted; effect NoSchedule."),
    Key(
        names.UNREGISTERED_TAINT.key, "Node taint", "node's start-up", "The Node has joined but is not registered yet."
    ),
    Key(names.EXCLUDE_BALANCERS_LABEL, "Node label", "provisioner", "Load balancers exclude the Node while it drains."),
    Key(
        names.HOSTNAME_LABEL,
        "Node label",
        "kubelet",
        "The provisioner removes it when a Node starts to drain, so that topology spread over hostnames no longer counts the Node.",
    ),
    Key(
        names.TERMINATION_FINALIZER,
        "Node and NodeClaim finalizer",
        "provisioner",
        "The object remains until the Node is drained and the instance has terminated.",
    ),
)


def text() -> str:
    """docs/reference/annotations-and-labels.md."""
    columns = ("key", "on", "written by", "meaning")
    return page(
        "Annotations, labels and taints",
        "## Dovetail's own\n",
        table(columns, [(code(one.name), *one[1:]) for one in OWN]),
        "## Karpenter's\n",
        table(columns, [(code(one.name), *one[1:]) for one in KARPENTER]),
    )
