"""Why EC2 ended an instance: which endings are those of a launch that failed, and what helps. Pure.

CreateFleet says yes before volumes are made and the host is found, so an instance may end on its way, and only its StateReason says why.
Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html, which lists the codes;
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html (Instance terminates immediately) for what they come of;
https://github.com/aws/karpenter-provider-aws/issues/1407, where a key that may not be used was Client.InternalError.
Differs: Karpenter does not read it: the NodeClaim is collected after minutes, and the next one is launched at once.
"""

from typing import Final

from provisioner.cloudprovider.errors import InstanceNotFoundError
from provisioner.ec2.access.errors import LAUNCH_FAILED, Failure, FailureKind, FailureScope, classify
from provisioner.values.message import Said

_ASKED_FOR: Final = frozenset(
    {
        "Client.UserInitiatedShutdown",
        "Client.UserInitiatedHibernate",
        "Client.InstanceTerminated",
        "Server.ScheduledStop",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
"""Codes of instances that somebody ended, or that EC2 took back: their launch did not fail."""
_ALLOW_THE_KEY: Final = Said(
    "as a rule, EC2 may not use the KMS key that encrypts the volumes; allow it in the key policy (kms:CreateGrant, kms:Decrypt, "
    "kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt* for the controller role, and for AWSServiceRoleForEC2Spot "
    "with spot), or name another key in spec.blockDeviceMappings of the EC2NodeClass"
)
_SNAPSHOT: Final = Said(
    "a snapshot of the image or of spec.blockDeviceMappings does not exist or is not shared with this account; "
    "check spec.amiSelectorTerms and spec.blockDeviceMappings of the EC2NodeClass"
)
_SHUT_DOWN: Final = Said(
    "the operating system shut the instance down before its Node registered; "
    "check spec.userData of the EC2NodeClass, the image, and the console output of the instance"
)

_RULES: Final = {
    "Client.InternalError": (FailureKind.DENIED, LAUNCH_FAILED, FailureScope.NOTHING, _ALLOW_THE_KEY),
    "Client.InvalidSnapshot.NotFound": (FailureKind.NOT_FOUND, LAUNCH_FAILED, FailureScope.NOTHING, _SNAPSHOT),
    "Client.InstanceInitiatedShutdown": (FailureKind.UNKNOWN, LAUNCH_FAILED, FailureScope.NOTHING, _SHUT_DOWN),
    "Server.InternalError": (FailureKind.SERVER, "InternalError", FailureScope.OFFERING, ""),
}


def ended_at_launch(instance_id: str, why: str) -> str:
    """What `EndedAtLaunchError` says; on the NodeClaim, its NodePool and the next NodeClaims."""
    return Said(f"EC2 terminated instance {instance_id} at launch: {why}")


def told_failure(said: str) -> Failure | None:
    """The failure that a text of `ended_at_launch` tells of; None where it is no such text."""
    code, _, message = said.partition(" at launch: ")[2].partition(": ")
    return launch_failure(code, message)


class EndedAtLaunchError(InstanceNotFoundError):
    """EC2 ended the instance, and if its Node has not registered, its launch failed."""

    def __init__(self, instance_id: str, failure: Failure) -> None:
        super().__init__(instance_id, ended_at_launch(instance_id, str(failure)))
        self.failure = failure


def holds_back(failure: Failure) -> bool:
    """Whether launches like this one pause until a Node registers: not where EC2 ran out of capacity, which it has elsewhere.

    A host that failed is left, too; but that it was the host is only EC2's word, and the next one may end in the same way.
    """
    return failure.kind is not FailureKind.SHORTAGE


def launch_failure(code: str, message: str) -> Failure | None:
    """What the StateReason of an instance that is ending, or has ended, says of its launch.

    Args:
        code: as EC2 tells it; "" where it tells none.
        message: likewise; it may begin with the code.

    Returns:
        None where somebody asked for the end or EC2 took the instance back. A code that is in no list counts as a launch that failed: it is
        not repeated at once.
    """
    if not code or code in _ASKED_FOR:
        return None
    said = message.removeprefix(f"{code}: ")
    rule = _RULES.get(code)
    if rule is None:
        return classify(code, said)
    kind, reason, scope, advice = rule
    return Failure(kind, reason, code, said, scope, advice)
