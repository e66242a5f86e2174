"""Texts that `cloudprovider/aws/instances` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# drift.py


def type_not_known(claim: str) -> str:
    return f"{claim}: its type is not known"


def fact_not_known(claim: str, missing: str, verb: str) -> str:
    return f"{claim}: {missing} {verb} not known"


# endings.py
ALLOW_THE_KEY: Final = (
    "as a rule, EC2 may not use the KMS key that encrypts the volumes; allow it in the key policy (kms:CreateGrant, kms:Decrypt, "
    "kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt* for the controller role, and for AWSServiceRoleForEC2Spot "
    "with spot), or name another key in spec.blockDeviceMappings of the EC2NodeClass"
)
SNAPSHOT: Final = (
    "a snapshot of the image or of spec.blockDeviceMappings does not exist or is not shared with this account; "
    "check spec.amiSelectorTerms and spec.blockDeviceMappings of the EC2NodeClass"
)
SHUT_DOWN: Final = (
    "the operating system shut the instance down before its Node registered; "
    "check spec.userData of the EC2NodeClass, the image, and the console output of the instance"
)


def ended_at_launch(instance_id: str, why: str) -> str:
    """What `EndedAtLaunchError` says; on the NodeClaim, its NodePool and the next NodeClaims."""
    return f"EC2 terminated instance {instance_id} at launch: {why}"


# instances.py
REFUSED_BEFORE: Final = "EC2 refused this request before; other refused requests are retried first"


def instance_not_reported(instance_id: str, patience: float) -> str:
    return (
        f"EC2 does not currently report instance {instance_id}; the instance counts as terminated once EC2 "
        f"has not reported it for {patience:.0f} s"
    )


TERMINATION_NOT_CONFIRMED: Final = "EC2 did not confirm that the instance is terminating"


def zonal_shift_delays_termination(instance: str, zone: str, zone_id: str) -> str:
    return f"instance {instance} is not terminated while a zonal shift moves traffic away from {zone} ({zone_id})"
