"""What of a launch's addresses and tenancy the hardware of its type refuses, and where the VPC CNI then runs.

Sources: prefixes (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-prefix-eni.html); pods with IPv6 (https://docs.aws.amazon.com/eks/latest/userguide/cni-ipv6.html);
Nitro (https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-nitro-instances.html); what is refused in which words, each check tells.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.support.ec2.protocol import AwsError

_V6_PREFIXES: Final = ("Ipv6PrefixCount", "Ipv6Prefixes")
_V6: Final = ("Ipv6AddressCount", "Ipv6Addresses")
_SHARED_ONLY: Final = frozenset({"t1", "t2"})


def is_nitro(described: Mapping[str, Any]) -> bool:
    """Whether a type is of the Nitro System; bare metal names no hypervisor. Source: EC2 User Guide, instance-types, "Nitro-based instances"."""
    ena = (described.get("NetworkInfo") or {}).get("EnaSupport")
    return described.get("Hypervisor") == "nitro" or (bool(described.get("BareMetal")) and ena == "required")


def check_addresses(described: Mapping[str, Any], interfaces: Iterable[Mapping[str, Any]]) -> None:
    """See that the interfaces of a type can have the addresses and prefixes that a launch asks for.

    Raises:
        AwsError: they cannot.
    """
    name, network = described["InstanceType"], described.get("NetworkInfo") or {}
    for one in interfaces:
        prefixed, addressed = any(map(one.get, _V6_PREFIXES)), any(map(one.get, _V6))
        if prefixed and addressed:  # as quoted in https://github.com/aws/karpenter-provider-aws/pull/9201
            raise AwsError(
                "InvalidParameterValue",
                "You can specify one and only one of ipv6Address or ipv6AddressCount or ipv6Prefix or ipv6PrefixCount in interfaces to create.",
            )
        if prefixed and one.get(
            "PrimaryIpv6"
        ):  # https://github.com/aws/karpenter-provider-aws/pull/7391 tells it, without the words
            raise AwsError(
                "InvalidParameterCombination", "A primary IPv6 address cannot be assigned with IPv6 prefixes."
            )
        if (prefixed or addressed) and not network.get("Ipv6Supported"):
            # as quoted in https://github.com/aws/karpenter-provider-aws/issues/2975
            raise AwsError("UnsupportedOperation", f"IPv6 addresses are not supported on {name}")
        # EC2 User Guide, ec2-prefix-eni: Nitro-based instances only, and a prefix takes the place of an address; the codes are not told there
        v4, v6 = int(one.get("Ipv4PrefixCount") or 0), int(one.get("Ipv6PrefixCount") or 0)
        if (v4 or v6) and not is_nitro(described):
            raise AwsError("UnsupportedOperation", f"Prefixes are not supported on {name}")
        wanted = {
            "Ipv4AddressesPerInterface": v4 + 1,
            "Ipv6AddressesPerInterface": v6 + int(one.get("Ipv6AddressCount") or 0),
        }
        for limit, count in wanted.items():
            if count > network.get(limit, 0):
                raise AwsError("PrivateIpAddressLimitExceeded", f"Number of addresses exceeds the limit of {name}.")


def check_tenancy(described: Mapping[str, Any], placement: Mapping[str, Any]) -> None:
    """See that a type can have the tenancy that a launch asks for.

    Source: https://aws.amazon.com/ec2/pricing/dedicated-instances/ lists the types; the answer is quoted in https://github.com/rancher/os/issues/1964.

    Raises:
        AwsError: it cannot.
    """
    if placement.get("Tenancy") == "dedicated" and described["InstanceType"].partition(".")[0] in _SHARED_ONLY:
        raise AwsError(
            "Unsupported",
            "The requested configuration is currently not supported. Please check the documentation for supported configurations.",
        )


def gets_ready(described: Mapping[str, Any], family: str, *, ipv6: bool) -> bool:
    """Whether the VPC CNI runs on a node of an image family, without which it is never Ready.

    With IPv6 it hands out prefixes, which only Nitro-based instances take, and there is none for Windows. Source: EKS User Guide, cni-ipv6;
    https://github.com/aws/amazon-vpc-cni-k8s/issues/1935.
    """
    return not ipv6 or (is_nitro(described) and family != "windows")
