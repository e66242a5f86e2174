"""Texts that `controllers` publishes, by the module that does; docs/reference/messages.md is generated from them.

Where nothing else is said, a function tells why the program is not ready, or ends.
"""

from typing import Final

from provisioner.values.message import EventMessage


def unreadable_object(kind: str, problem: str) -> EventMessage:
    """On the object itself, where its name can be read."""
    return EventMessage(
        "Warning", "UnreadableObject", f"This {kind} cannot be read and is ignored until it is corrected: {problem}"
    )


# leadership.py
WRITE_STILL_IN_FLIGHT: Final = (
    "A write is still in flight or got no answer; letting the Lease expire instead of releasing it"
)
LEADER_ELECTION_FAILED: Final = "Leader election failed"
FAILED_TO_START_CONTROLLERS: Final = "Failed to start the controllers"

# main.py
WHY_NEEDS_REPORT_CERTIFICATES: Final = (
    "--why-port requires --report-cert-dir; without certificates, anyone who can open port-forwards to this pod "
    "could send reports"
)
REPORTS_DISABLED: Final = "Reports of the extender are disabled until the certificates exist"

# other_autoscalers.py
KARPENTER_NOT_LOOKED_FOR: Final = "it is not known yet whether Karpenter runs in this cluster"
KARPENTER_RUNS_BESIDE: Final = "Karpenter runs in this cluster; launching nothing and starting no disruption"
NO_KARPENTER_BESIDE: Final = "No other Karpenter leads in this cluster"
CLUSTER_AUTOSCALER_RUNS: Final = "Cluster Autoscaler runs in this cluster; make sure that its node groups and the NodePools are meant for different pods"
MAY_NOT_READ_LEASES: Final = "Cannot find out whether another autoscaler runs; apply the ClusterRole of this version, which allows getting its Lease"

# caches.py
CLUSTER_STATE_DIFFERS: Final = "The cluster state differs from the watched objects; please report this bug"
WAITING_FOR_CACHES: Final = "Waiting for caches to sync"

# program.py
STOPPED_WITH_WORK_LEFT: Final = "Stopped before all work had finished; the next leader continues it"
POD_NOT_BOUND_AS_PLANNED: Final = "Pod was not bound to its planned node"
PAUSED_LAUNCHING_NODES: Final = "Paused launching nodes for pods that kube-scheduler repeatedly did not bind as planned"
DAEMONSET_IGNORED: Final = "DaemonSet cannot be read and is ignored until it is corrected"

# caches.py


def objects_unreadable(count: int, named: str) -> str:
    return f"{count} objects cannot be read completely: {named}"


# freshness.py


def cache_not_synced(resource: object) -> str:
    return f"the cache of {resource} is not synced"


def watch_is_silent(resource: object, age: float, why: str) -> str:
    return f"the watch of {resource} received nothing for {age:.0f} s{why}"


def watch_lags(resource: object, lag: float) -> str:
    return f"the watch of {resource} is at least {lag:.0f} s behind the API server"


# leadership.py


def election_failed(error: object) -> str:
    return f"leader election failed: {error}"


LEASE_LOST: Final = "the leader election Lease was lost, and two replicas must never act at the same time"
CONTROLLERS_NOT_STARTED: Final = "failed to start the controllers"
ELECTION_ENDED: Final = "leader election has ended"


def controllers_not_started(error: object) -> str:
    return f"failed to start the controllers: {error}"


LEASE_NOT_RENEWED: Final = (
    "the leader election Lease was not renewed in time, and two replicas must never act at the same time"
)
