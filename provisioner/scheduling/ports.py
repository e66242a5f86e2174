"""Ports of the node that pods take, and which of them exclude each other."""

from collections.abc import Iterable

from provisioner.apis.core import ContainerPort

Port = tuple[int, str, str]
"""(number, protocol, address); the address "" is every address of the node."""
Ports = tuple[Port, ...]
_ANY = frozenset(("", "0.0.0.0"))  # noqa: S104 - what a hostIP says; nothing is bound


def ports_of(host_ports: Iterable[ContainerPort]) -> Ports:
    """The ports of a shape in one form, sorted."""
    return tuple(
        sorted(
            {(one.host_port, one.protocol or "TCP", "" if one.host_ip in _ANY else one.host_ip) for one in host_ports}
        )
    )


def clash(left: Port, right: Port) -> bool:
    """Whether both cannot be taken on one node: same number and protocol, and the addresses overlap."""
    return left[:2] == right[:2] and (left[2] == right[2] or not left[2] or not right[2])


def any_clash(left: Ports, right: Ports) -> bool:
    """Whether any two of them exclude each other."""
    return any(clash(one, other) for one in left for other in right)
