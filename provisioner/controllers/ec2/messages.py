"""Texts that `controllers/ec2` publishes: events and conditions by subject, logs by the module that writes them.

docs/reference/messages.md is generated from here. What the conditions of an EC2NodeClass say is in
`cloudprovider/aws/nodeclass`.
"""

from typing import Final

from provisioner.apis import names
from provisioner.values.message import ConditionMessage, EventMessage

# ------------------------------------------------------------------ events and conditions


def nodeclass_problem(reason: str, condition: str, text: str) -> EventMessage:
    """A condition of an EC2NodeClass became False, or is for another reason."""
    return EventMessage("Warning", reason, f"{condition}: {text}")


def nodeclass_warning(text: str) -> EventMessage:
    """What is odd in an EC2NodeClass but does no harm."""
    return EventMessage("Warning", "NodeClassWarning", text)


def waiting_on_termination(claims: str) -> EventMessage:
    """An EC2NodeClass is being deleted."""
    return EventMessage("Normal", "WaitingOnNodeClaimTermination", f"Waiting on NodeClaim termination for {claims}")


def clean_up_failed(seconds: float, error: str) -> EventMessage:
    """Instance profiles or launch templates of an EC2NodeClass that is being deleted."""
    return EventMessage(
        "Warning", "CleanUpFailed", f"Failed to clean up AWS resources; retrying in {seconds:g} s: {error}"
    )


def nodeclass_drift(nodeclass: str) -> ConditionMessage:
    """On a NodeClaim of another version of its EC2NodeClass."""
    return ConditionMessage(
        names.DRIFTED, names.TRUE, "NodeClassDrift", f"created from another version of EC2NodeClass {nodeclass}"
    )


def translated(objects: str, decisions: str) -> ConditionMessage:
    """On a Provisioner or AWSNodeTemplate: what became of it, and every decision."""
    return ConditionMessage(
        "Translated", names.TRUE, "Translated", f"became {objects}, which stay if this object is deleted; {decisions}"
    )


def not_translated(reason: str, text: str) -> ConditionMessage:
    """On a Provisioner or AWSNodeTemplate: something has no equivalent, or hinders the translation."""
    return ConditionMessage("Translated", names.FALSE, reason, text)


def rejected(kind: str, name: str, error: str) -> ConditionMessage:
    """On a Provisioner or AWSNodeTemplate: the API server does not admit what it became, `error` says why."""
    return ConditionMessage("Translated", names.FALSE, "Rejected", f"{kind} {name} was rejected: {error}")


def exists_already(kind: str, name: str) -> ConditionMessage:
    """On a Provisioner or AWSNodeTemplate: an object of that name was made by somebody else, or from a former one."""
    return ConditionMessage(
        "Translated",
        names.FALSE,
        f"{kind}Exists",
        f"{kind} {name} was not made from this object; delete one of them, or rename this one",
    )


def edited_since(kind: str, name: str) -> ConditionMessage:
    """On a Provisioner or AWSNodeTemplate: what was made from it was edited, and is no longer kept up with it."""
    return ConditionMessage(
        "Translated",
        names.FALSE,
        f"{kind}Edited",
        f"{kind} {name} was edited and no longer follows this object; delete this object, or undo the edit",
    )


def waits_for_annotation(annotation: str) -> ConditionMessage:
    """On a Provisioner or AWSNodeTemplate that was there before the component."""
    return ConditionMessage(
        "Translated",
        names.FALSE,
        "WaitingForAnnotation",
        f'older than the conversion component; annotate it with {annotation}="true" to translate it',
    )


def translation_event(said: ConditionMessage) -> EventMessage:
    """The condition of a Provisioner or AWSNodeTemplate as an event."""
    return EventMessage("Normal" if said.status == names.TRUE else "Warning", said.reason, said.text)


def component_is_missing(namespace: str, marker: str) -> str:
    """Why nothing is translated."""
    return f"ConfigMap {namespace}/{marker} does not exist; apply the component conversion"


def zonal_shift_active(zone: str, zone_id: str) -> EventMessage:
    return EventMessage(
        "Warning",
        "ZonalShiftActive",
        f"{zone} ({zone_id}): no instances are launched in this zone until the zonal shift ends",
    )


def zonal_shift_cleared(zone: str, zone_id: str) -> EventMessage:
    return EventMessage(
        "Normal",
        "ZonalShiftCleared",
        f"{zone} ({zone_id}): the zonal shift has ended; instances are launched in this zone again",
    )


# ------------------------------------------------------------------ logs

# cloud.py
STARTING_AWS_CLOUD_PROVIDER: Final = "Starting the AWS cloud provider"
NO_REGION_IN_INSTANCE_METADATA: Final = "Instance metadata does not report a Region; set AWS_REGION"

# health.py
INSTANCE_HEALTH_NOT_MONITORED: Final = "Instance health is not monitored because the permission is missing"
FAILED_TO_CANCEL_INTERRUPTION: Final = "Failed to cancel an interruption; retrying"

# several modules
FAILED_TO_ANNOTATE_NODECLAIM: Final = "Failed to annotate a NodeClaim; retrying"

# interruption_queue.py
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

# translation.py
TRANSLATING_NOTHING: Final = "Translating no Provisioners"
FAILED_TO_TRANSLATE: Final = "Failed to translate an object; retrying"

# cloud.py
REGION_REQUIRED: Final = (
    "--aws-region (or AWS_REGION) is required because the Region could not be determined from the environment"
)
