"""Texts that `cloudprovider/aws/instances` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# drift.py


def type_not_known(claim: str) -> str:
    """What `NotJudgedError` says."""
    return f"{claim}: its type is not known"


def fact_not_known(claim: str, missing: str, verb: str) -> str:
    """What `NotJudgedError` says."""
    return f"{claim}: {missing} {verb} not known"


# instances.py
REFUSED_BEFORE: Final = "EC2 refused this request before; other refused requests are retried first"


def instance_not_reported(instance_id: str, patience: float) -> str:
    """What `InstanceUnseenError` says."""
    return (
        f"EC2 does not currently report instance {instance_id}; the instance counts as terminated once EC2 "
        f"has not reported it for {patience:.0f} s"
    )


TERMINATION_NOT_CONFIRMED: Final = "EC2 did not confirm that the instance is terminating"


def zonal_shift_delays_termination(instance: str, zone: str, zone_id: str) -> str:
    """What `InstanceError` says."""
    return f"instance {instance} is not terminated while a zonal shift moves traffic away from {zone} ({zone_id})"
