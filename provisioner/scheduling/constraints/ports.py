"""Ports of the node that pods take, and which of them exclude each other."""

from collections.abc import Iterable, Mapping
from typing import Final

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


class TakenPorts:
    """The places, or instance types, on which ports are taken, as sets.

    Two exclude each other if number and protocol are the same and the addresses overlap.
    """

    __slots__ = ("_anywhere", "_places")

    def __init__(self, places: Mapping[Port, int]) -> None:
        self._places: Final = dict(places)
        self._anywhere: Final[dict[tuple[int, str], int]] = {}
        """By number and protocol, at any address."""
        for (number, protocol, _), some in places.items():
            self._anywhere[number, protocol] = self._anywhere.get((number, protocol), 0) | some

    def take(self, ports: Ports, places: int) -> None:
        """These ports on some more places."""
        for port in ports:
            self._places[port] = self._places.get(port, 0) | places
            self._anywhere[port[:2]] = self._anywhere.get(port[:2], 0) | places

    def clashing(self, ports: Ports) -> int:
        """The places on which one of these cannot be taken any more. Cost: O(ports)."""
        found = 0
        for number, protocol, address in ports:
            if not address:
                found |= self._anywhere.get((number, protocol), 0)
            else:
                found |= self._places.get((number, protocol, address), 0) | self._places.get((number, protocol, ""), 0)
        return found
