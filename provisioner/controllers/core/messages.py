"""Texts that `controllers/core` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# claim_creator.py
SKIPPED_UNNEEDED_NODECLAIM: Final = "Skipped a NodeClaim because its pods were scheduled to other nodes"
FAILED_TO_CREATE_NODECLAIM: Final = "Failed to create a NodeClaim; planning its pods again"

# commands.py
FAILED_TO_START_DISRUPTION: Final = "Failed to start a disruption; continuing with the others"
REJECTED_DISRUPTION: Final = "Rejected a disruption before it started; the next pass decides again"
REQUEST_FAILED_DURING_DISRUPTION: Final = "A request to the API server failed during a disruption; retrying"
RESUMING_DISRUPTION: Final = "Resuming a disruption that was started earlier"
STARTED_DISRUPTION: Final = "Started a disruption"
FAILED_TO_CREATE_REPLACEMENT: Final = "Failed to create a replacement NodeClaim"
CANCELED_DISRUPTION: Final = "Canceled a disruption"
FAILED_TO_ROLL_BACK_DISRUPTION: Final = "Failed to roll back a disruption that no command carries out; retrying"
ROLLED_BACK_DISRUPTION: Final = "Rolled back a disruption that no command carries out"

# several modules
DISRUPTING_NODE: Final = "Disrupting node"

# disruption.py
DISRUPTION_PASS_FAILED: Final = "A disruption pass failed; retrying with the next pass"
DISRUPTION_METHOD_FAILED: Final = "A disruption method failed; continuing with the other methods"
CONSOLIDATION_PASS_TIMED_OUT: Final = (
    "A consolidation pass timed out; the remaining nodes are evaluated first in the next pass"
)
SUSPENDED_VOLUNTARY_DISRUPTION: Final = "Suspended voluntary disruption until the caches are current"
RESUMED_VOLUNTARY_DISRUPTION: Final = "Resumed voluntary disruption because the caches are current"
DISRUPTION_PAUSE_CHANGED: Final = "Disruption was paused or resumed"
FAILED_TO_UPDATE_NODECLAIM_STATUS: Final = "Failed to update the status of a NodeClaim; retrying"

# drain.py
EVICTION_REFUSED: Final = "Eviction refused"
EVICTION_FAILED: Final = "Eviction failed; retrying"
FAILED_TO_DELETE_POD: Final = "Failed to delete a pod; retrying"

# drift.py
SKIPPED_DRIFT_CHECK: Final = "Skipped the drift check of a NodeClaim"
NODECLAIM_NO_LONGER_DRIFTED: Final = "NodeClaim no longer differs from its NodePool and NodeClass"
NODECLAIM_HAS_DRIFTED: Final = "NodeClaim has drifted"

# forceful.py
FORCEFUL_PASS_FAILED: Final = "An expiration and node repair pass failed; retrying with the next pass"
NODECLAIM_COULD_NOT_BE_DELETED: Final = "A NodeClaim could not be deleted; retrying"

# garbage.py
FAILED_TO_TERMINATE_ORPHAN: Final = "Failed to terminate an instance without a NodeClaim; retrying"
DRAINING_ORPHAN: Final = "Draining an instance without a NodeClaim before terminating it"
TERMINATED_ORPHAN: Final = "Terminated an instance without a NodeClaim"
FAILED_TO_DELETE_NODE_OF_ORPHAN: Final = "Failed to delete the Node of an instance without a NodeClaim; retrying"
FAILED_TO_DELETE_NODECLAIM: Final = "Failed to delete a NodeClaim; retrying"
DELETED_NODECLAIM_WITHOUT_INSTANCE: Final = "Deleted a NodeClaim whose instance no longer exists"
COULD_NOT_FIND_OUT_ABOUT_INSTANCE: Final = "Could not determine whether an instance still exists; retrying"

# intake.py
PROVISIONING_FAILED: Final = "Provisioning failed; retrying with the same pods"

# interruption.py
INSTANCE_IS_BEING_INTERRUPTED: Final = "Instance is being interrupted"
INTERRUPTION_CANCELED: Final = "Interruption was canceled"
HANDLING_INTERRUPTIONS_FAILED: Final = "Handling interruptions failed; retrying"
FAILED_TO_HANDLE_INTERRUPTED_NODECLAIM: Final = "Failed to handle an interrupted NodeClaim; retrying"
TAINTED_INTERRUPTED_NODE: Final = "Tainted an interrupted Node"
TERMINATING_INTERRUPTED_NODECLAIM: Final = "Terminating an interrupted NodeClaim"

# lifecycle.py
DELETING_UNNEEDED_NODECLAIM: Final = "Deleting NodeClaim because its pods were scheduled to other nodes"
LAUNCHED_NODECLAIM: Final = "Launched NodeClaim"
DELETING_NODECLAIM: Final = "Deleting NodeClaim"
REQUEST_FAILED_DURING_TERMINATION: Final = (
    "A request to the API server failed during the termination of a NodeClaim; retrying"
)
REMOVING_NODECLAIM_WITHOUT_INSTANCE: Final = (
    "Removing a NodeClaim without terminating its instance, which belongs to another NodeClaim"
)

# nominations.py
ADOPTED_NOMINATIONS: Final = "Adopted nominations of a previous leader"
FAILED_TO_NOMINATE_POD: Final = "Failed to nominate a pod; continuing without a nomination"
FAILED_TO_WITHDRAW_NOMINATION: Final = "Failed to withdraw a nomination; retrying"

# overlay_status.py
NODEOVERLAY_NOT_APPLIED: Final = "The NodeOverlay is not applied"
FAILED_TO_WRITE_NODEOVERLAY_STATUS: Final = "Failed to write the status of a NodeOverlay; retrying"

# plans.py
FAILED_TO_WRITE_PLAN: Final = "Failed to write the plan of a NodeClaim"
FAILED_TO_REMOVE_OUTDATED_PLAN: Final = "Failed to remove an outdated plan from a Node; retrying"
REMOVED_OUTDATED_PLAN: Final = "Removed an outdated plan from a Node"

# provisioning.py
REACHED_SOLVE_DEADLINE: Final = (
    "Reached --solve-deadline before every pod was planned; planning the remaining pods in the next batch"
)
PLANNED_PENDING_PODS: Final = "Planned pending pods"
FAILED_TO_FIND_UNUSED_NAME: Final = "Failed to find an unused name for a NodeClaim; planning its pods again"
SKIPPED_OVERTAKEN_NODECLAIM: Final = "Skipped a NodeClaim because its pods were scheduled while it was planned"
PLANNED_NODE_REMOVED: Final = "A node was removed while pods were planned for it; planning them again"

# registration.py
REGISTERING_BATCH_FAILED: Final = "Registering a batch of NodeClaims failed; retrying"
REGISTRATION_FAILED: Final = "Registration failed; retrying"

# reports.py
REFUSED_REPORTS_OF_OTHER_CLIENT: Final = "Refused reports because the client certificate is for another name"
REFUSED_REPORTS: Final = "Refused reports"

# scheduler_liveness.py
SCHEDULER_IS_SILENT: Final = "A scheduler has processed no pod for a minute while pods wait for it; check that it runs"
NO_PODS_WAIT_FOR_SILENT_SCHEDULER: Final = "No pods wait for the silent scheduler anymore"

# static_capacity.py
FAILED_TO_SCALE_STATIC_NODEPOOL: Final = "Failed to bring a static NodePool to spec.replicas; retrying"
DELETING_STATIC_NODECLAIM: Final = "Deleting a NodeClaim of a static NodePool"
FAILED_TO_MAKE_STATIC_NODECLAIM: Final = "Failed to make a NodeClaim of a static NodePool; retrying"
CREATED_STATIC_NODECLAIMS: Final = "Created NodeClaims of a static NodePool"

# termination.py
REQUEST_FAILED_DURING_DRAINING: Final = "A request to the API server failed during the draining of a Node; retrying"

# terminator.py
NOT_WAITING_FOR_VOLUMES_DETACH: Final = "Not waiting for volumes to detach, because listing VolumeAttachments is forbidden; apply the current RBAC manifests"

# worlds.py
IGNORING_NODEPOOL_OF_UNKNOWN_TYPES: Final = "Ignoring a NodePool because its instance types are unknown"
