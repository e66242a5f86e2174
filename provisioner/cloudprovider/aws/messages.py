"""Texts that `cloudprovider/aws` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

from provisioner.values.message import EventMessage

# interruption/notices.py: events about NodeClaims and Nodes
SPOT_INTERRUPTED: Final = EventMessage("Warning", "SpotInterrupted", "EC2 is about to reclaim this Spot Instance")
REBALANCE_RECOMMENDED: Final = EventMessage(
    "Normal", "SpotRebalanceRecommendation", "EC2 reports an elevated risk that it will reclaim this Spot Instance"
)
INSTANCE_STOPPING: Final = EventMessage("Warning", "InstanceStopping", "The instance is stopping")
INSTANCE_TERMINATING: Final = EventMessage("Warning", "InstanceTerminating", "The instance is terminating")
MAINTENANCE: Final = EventMessage(
    "Warning", "InstanceUnhealthy", "AWS has scheduled maintenance that interrupts this instance"
)
RESERVATION_INTERRUPTED: Final = EventMessage(
    "Warning",
    "CapacityReservationInstanceInterrupted",
    "The owner of the capacity reservation is about to reclaim this instance",
)
UNHEALTHY: Final = EventMessage("Warning", "InstanceUnhealthy", "EC2 reports this instance as impaired")

# interruption/queue.py: log
FAILED_TO_DELETE_QUEUE_MESSAGE: Final = "Failed to delete a queue message; it will be delivered again"

# provider.py, launch/launcher.py
INSTANCE_TYPES_NOT_READ: Final = "the list of EC2 instance types has not been read yet"
