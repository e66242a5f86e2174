"""What EC2 says where it cannot give what a launch asks for: each parameter of the request has its own code.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, and where a row says so, public reports.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.support.ec2.protocol import AwsError

SHORTAGES: Final[Mapping[str, tuple[str, str]]] = {
    "InstanceType": (
        "InsufficientInstanceCapacity",
        (
            "We currently do not have sufficient {type} capacity in the Availability Zone you requested ({zone})."
            " Our system will be working on provisioning additional capacity."
        ),
    ),
    "SpotOptions": ("InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request."),
    "SubnetId": (
        "InsufficientFreeAddressesInSubnet",
        "There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances.",
    ),
    # this and the next one: https://github.com/cilium/cilium/pull/31016, which quotes AWS' support
    "PrefixAddresses": ("InvalidParameterValue", "There aren't sufficient free Ipv4 addresses or prefixes"),
    "Ipv4PrefixCount": (
        "InsufficientCidrBlocks",
        "The specified subnet does not have enough free cidr blocks to satisfy the request.",
    ),
    "AssociatePublicIpAddress": (
        "InsufficientAddressCapacity",
        "Not enough available addresses to satisfy your minimum request.",
    ),
    "NetworkInterfaces": (
        "NetworkInterfaceLimitExceeded",
        "You have reached the limit on the number of network interfaces that you can create.",
    ),
    "VolumeSize": ("VolumeLimitExceeded", "You have reached the limit on your Amazon EBS volume storage."),
    "Iops": ("MaxIOPSLimitExceeded", "You have reached the limit on your IOPS usage for the AWS Region."),
    "VolumeType": (
        "InsufficientVolumeCapacity",
        "There is not enough capacity to fulfill your EBS volume provision request.",
    ),
    "AvailabilityZone": (
        "VolumeTypeNotAvailableInZone",
        "The specified Availability Zone does not support Provisioned IOPS SSD volumes.",
    ),
    "CapacityReservationId": (
        "ReservationCapacityExceeded",
        "The requested reservation does not have sufficient compatible and available capacity for this request.",
    ),
    "MarketType": ("InvalidCapacityReservationState.PendingActivation", "Your Capacity Block is not active yet."),
    "GroupId": (
        "InsufficientInstanceCapacity",
        "You have reached the limit of instances in this spread placement group in the Availability Zone {zone}.",
    ),
    "TotalTargetCapacity": (
        "VcpuLimitExceeded",
        (
            "You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance bucket that the specified"
            " instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
        ),
    ),
    "DefaultTargetCapacityType": ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
    "MaxPrice": (
        "SpotMaxPriceTooLow",
        "Your Spot request price of {limit} is lower than the minimum required Spot request fulfillment price of {price}.",
    ),
}
"""Parameters of CreateFleet, RunInstances and launch templates, and code and message of each; PrefixAddresses: Ipv4PrefixCount, where the
subnet has fewer free addresses than the prefixes."""

_FACTS: Final = ("type", "zone", "subnet", "limit", "price")


def shortage(parameter: str, **facts: Any) -> AwsError:
    """What a launch is told of that parameter."""
    code, message = SHORTAGES[parameter]
    return AwsError(code, message.format(**{name: facts.get(name, "?") for name in _FACTS}))
