"""What EC2 looks at in the network interfaces of a launch: each card takes so many of certain types, and the primary one is on the first.

Sources: cards and types, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_NetworkCardInfo.html; the primary interface and EFA-only ones,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html; that EFA-only ones have no addresses,
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplateInstanceNetworkInterfaceSpecificationRequest.html; words of a device that a card
does not have, https://github.com/eksctl-io/eksctl/issues/7520; that the first card of p6-b300 takes no EFA,
https://github.com/aws/aws-parallelcluster/issues/7143. The other words are ours.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.ec2.protocol import AwsError

_ADDRESSES = ("AssociatePublicIpAddress", "Ipv4PrefixCount", "Ipv6PrefixCount", "Ipv6AddressCount", "PrimaryIpv6")


def check_interfaces(described: Mapping[str, Any], interfaces: Sequence[Mapping[str, Any]]) -> None:
    """See that an instance type can have these interfaces.

    Raises:
        AwsError: it cannot.
    """
    name, network = described["InstanceType"], described.get("NetworkInfo") or {}
    cards = {card["NetworkCardIndex"]: card for card in network.get("NetworkCards") or ()}
    placed = [(one.get("NetworkCardIndex", 0), one.get("DeviceIndex", 0), _type(one)) for one in interfaces]
    if interfaces and (0, 0) not in {place[:2] for place in placed}:
        raise _invalid("A primary network interface (network card index 0, device index 0) is required.")
    for (card, device), count in Counter(place[:2] for place in placed).items():
        if count > 1:
            raise _invalid(f"More than one network interface has network card index {card} and device index {device}.")
    for card, device, kind in placed:
        _check_place(name, cards.get(card), card, device, kind)
    efas = Counter(card for card, _, kind in placed if kind != "interface")
    most = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    if efas.total() > most:
        raise AwsError(
            "AttachmentLimitExceeded", f"{efas.total()} EFA interfaces exceed the limit of {most} for {name}."
        )
    if any(count > 1 for count in efas.values()):
        raise _invalid("A network card can have one EFA interface only.")
    if any(_type(one) == "efa-only" and any(one.get(word) for word in _ADDRESSES) for one in interfaces):
        raise _invalid("EFA-only network interfaces do not support IP addresses.")
    if len(interfaces) > 1 and any(one.get("AssociatePublicIpAddress") for one in interfaces):
        raise _invalid(
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces."
        )


def _check_place(name: str, found: Mapping[str, Any] | None, card: int, device: int, kind: str) -> None:
    if found is None:
        raise AwsError("InvalidParameterValue", f"The network card index {card} is not valid for {name}.")
    most = found["MaximumNetworkInterfaces"]
    if device >= most:
        raise AwsError(
            "InvalidParameterValue",
            f"The specified number '{device}' for the device index exceeds the maximum number of network interfaces supported by the network"
            f" card at network card index {card}. The maximum devices for this network card is {most}."
            f" Specify a number from 0 to {most - 1}, and try again.",
        )
    if kind not in found["InterfaceTypes"]:
        raise _invalid(
            f"EFA interfaces are not supported on network card {card} of {name}: {kind} is none of {found['InterfaceTypes']}."
        )
    if kind == "efa-only" and (card, device) == (0, 0):
        raise _invalid("An EFA-only network interface cannot be the primary network interface.")


def _type(interface: Mapping[str, Any]) -> str:
    return str(interface.get("InterfaceType") or "interface")


def _invalid(message: str) -> AwsError:
    return AwsError("InvalidParameterCombination", message)
