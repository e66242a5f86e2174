"""Texts that `controllers/ec2` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# cloud.py
STARTING_AWS_CLOUD_PROVIDER: Final = "Starting the AWS cloud provider"
NO_REGION_IN_INSTANCE_METADATA: Final = "Instance metadata does not report a Region; set AWS_REGION"

# health.py
INSTANCE_HEALTH_NOT_MONITORED: Final = "Instance health is not monitored because the permission is missing"
FAILED_TO_CANCEL_INTERRUPTION: Final = "Failed to cancel an interruption; retrying"

# several modules
FAILED_TO_ANNOTATE_NODECLAIM: Final = "Failed to annotate a NodeClaim; retrying"

# interruption_queue.py
FAILED_TO_READ_INTERRUPTION_QUEUE: Final = "Failed to read the interruption queue; retrying"
FAILED_TO_HANDLE_QUEUE_MESSAGE: Final = "Failed to handle a queue message; it will be delivered again"
IGNORED_MALFORMED_MESSAGE: Final = "Ignored a malformed message of the interruption queue"
IGNORED_QUEUE_MESSAGE: Final = "Ignored a queue message"

# label_sync.py
FAILED_TO_RELABEL_NODE: Final = "Failed to relabel a Node; retrying"
INSTANCE_LEFT_CAPACITY_RESERVATION: Final = "Instance left its capacity reservation"

# nodeclass.py
UPDATED_EC2NODECLASS_STATUS: Final = "Updated the status of an EC2NodeClass"
CLEANED_UP_EC2NODECLASS: Final = "Cleaned up EC2NodeClass"
DELETED_UNUSED_INSTANCE_PROFILE: Final = "Deleted an unused instance profile"

# tagging.py
FAILED_TO_TAG_INSTANCE: Final = "Failed to tag an instance; retrying"

# zonal_shift.py
ZONAL_SHIFTS_CHANGED: Final = "Zonal shifts changed"
