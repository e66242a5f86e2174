"""Instances that have not ended yet: what is said of them, and when they are looked at again."""

from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import (
    CloudError,
)
from provisioner.support.workers import ReconcileResult
from provisioner.values.message import ConditionMessage, EventMessage, Said

INSTANCE_TERMINATING: Final = ConditionMessage(names.INSTANCE_TERMINATING, names.TRUE)


def grace_period_expiring(deadline: datetime) -> EventMessage:
    """The node has a termination grace period and is being deleted."""
    return EventMessage(
        "Warning", "TerminationGracePeriodExpiring", f"All pods will be deleted by {deadline:%Y-%m-%dT%H:%M:%SZ}"
    )


def not_ended(claim: NodeClaim, error: CloudError) -> EventMessage:
    """That the cloud did not terminate the instance of a claim."""
    instance = claim.status.provider_id or Said(f"the instance of NodeClaim {claim.metadata.name}")
    return EventMessage("Warning", "FailedTermination", f"Failed to terminate {instance}; retrying: {error}")


def retry_of(error: CloudError) -> ReconcileResult:
    """When an end that failed is tried again: when the error says so, else with back-off."""
    return (
        ReconcileResult(failed=True) if error.retry_after is None else ReconcileResult(requeue_after=error.retry_after)
    )
