"""Loopback ports of a cluster: chosen once, below the range that the kernel hands out, and remembered.

A port in the kernel's ephemeral range could be the local end of anybody's connection just when a component is
restarted, and a client that keeps dialling a closed port there can connect to itself.
"""

import errno
import random
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster.errors import PortError

LOOPBACK: Final = "127.0.0.1"
PLANE_PORTS: Final = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kwok",
    "metrics-server",
)
"""Ports of the control plane, by name."""

PROGRAM_PORTS: Final = (
    "extender",
    "extender-metrics",
    "webhook",
    "webhook-metrics",
    "provisioner-metrics",
    "provisioner-health",
    "provisioner-reports",
)
"""Ports kept free for our own programs."""

PORT_NAMES: Final = PLANE_PORTS + PROGRAM_PORTS

_LOWEST = 18000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def choose_ports(
    taken: Collection[int],
    is_free: Callable[[int], bool],
    first: int,
    limits: tuple[int, int],
) -> dict[str, int]:
    """A port for each of `PORT_NAMES`, in one run of numbers as far as they are free.

    Args:
        taken: ports that other clusters remember, running or not.
        is_free: whether nothing listens on a loopback port now.
        first: where to begin looking; wraps around within `limits`.
        limits: lowest port, and the one after the highest.

    Raises:
        PortError: fewer free ports than needed.
    """
    low, high = limits
    ports: list[int] = []
    for step in range(high - low):
        port = low + (first - low + step) % (high - low)
        if port not in taken and is_free(port):
            ports.append(port)
        if len(ports) == len(PORT_NAMES):
            return dict(zip(PORT_NAMES, ports, strict=True))
    raise PortError(
        f"fewer than {len(PORT_NAMES)} free loopback ports between {low} and {high}",
        "Stop programs that listen there, or delete clusters with `dovetail dev down --delete`",
    )


def allocate(taken: Collection[int]) -> dict[str, int]:
    """Free ports for a new cluster, starting at a random place so that two allocations rarely meet.

    Raises:
        PortError: not enough free ports.
    """
    limits = port_limits(_read_range())
    return choose_ports(taken, is_free, random.SystemRandom().randrange(*limits), limits)


def port_limits(kernel_range: str) -> tuple[int, int]:
    """Lowest port to use and the one after the highest, given the text of ip_local_port_range."""
    fields = kernel_range.split()
    lowest_ephemeral = int(fields[0]) if len(fields) == 2 and fields[0].isdigit() else 32768
    if lowest_ephemeral - _LOWEST >= 1000:
        return _LOWEST, lowest_ephemeral
    return _LOWEST, 65536  # a kernel set up to use nearly all ports: no way to stay out of its range


def is_free(port: int) -> bool:
    """Whether a listener could be opened on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go's listeners do
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True


def _read_range() -> str:
    try:
        return _RANGE_FILE.read_text()
    except OSError:
        return ""
