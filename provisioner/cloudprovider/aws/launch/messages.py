"""Texts that `cloudprovider/aws/launch` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# launch_templates.py
LAUNCH_TEMPLATE_QUOTA_NEARLY_USED_UP: Final = (
    "The launch template quota of this Region is nearly used up; raise the quota or delete unused launch templates"
)
CREATED_LAUNCH_TEMPLATE: Final = "Created a launch template"
DELETED_LAUNCH_TEMPLATES_FOR_QUOTA: Final = "Deleted launch templates because the quota of this Region is used up"
FAILED_TO_DELETE_LAUNCH_TEMPLATE: Final = "Failed to delete a launch template; retrying"
DELETED_LAUNCH_TEMPLATE: Final = "Deleted a launch template"

# launcher.py
TWO_NODECLAIMS_FOR_ONE_INSTANCE: Final = (
    "Two NodeClaims refer to one instance; the NodeClaim that is not being deleted keeps it"
)
FAILED_TO_LAUNCH_NODECLAIMS: Final = "Failed to launch NodeClaims; retrying"
FAILED_TO_RESOLVE_LAUNCH_REQUEST: Final = "Failed to resolve the launch request of a NodeClaim"
LAUNCHING_ON_DEMAND_ALTHOUGH_SPOT_IS_ALLOWED: Final = (
    "Launching on-demand capacity although spot is allowed; allow at least five instance types to make spot available"
)
FAILED_TO_PREPARE_EC2NODECLASS: Final = "Failed to prepare an EC2NodeClass for launches"
LAUNCH_FAILED: Final = "Launch failed"
CREATEFLEET_LEFT_OUT_INSTANCES: Final = (
    "CreateFleet did not report what it launched; looking for instances by batch tag"
)
LAUNCHED_FLEET: Final = "Launched a fleet"
FAILED_TO_RESUME_LAUNCH: Final = "Failed to resume a launch; retrying"
LAUNCH_CANNOT_BE_REPLAYED: Final = "A launch cannot be replayed; looking for instances by batch tag"
RESUMED_LAUNCH_BY_REPLAY: Final = "Resumed a launch by replaying CreateFleet"
RESUMED_LAUNCH_FROM_BATCH_TAG: Final = "Resumed a launch from its batch tag"

# mark_writer.py
FAILED_TO_REMOVE_LAUNCH_MARK: Final = "Failed to remove a launch mark; it is resolved after the next restart"
FAILED_TO_WRITE_LAUNCH_MARK: Final = "Failed to write the launch mark of a NodeClaim"
