"""Loopback ports for programs that a test starts: below the kernel's own range, and each given out once."""

import errno
import random
import socket
from typing import Final

from provisioner.lab.devcluster.ports import is_free

_LIMITS: Final = (10_000, 18_000)
"""Below what dev clusters choose from. A port of the kernel's own range may be the local end of anybody's connection
by the time that the program listens: that happened beside tests which open hundreds of them."""

_CLAIMS: Final[list[socket.socket]] = []


def free_port() -> int:
    """A port that nobody listens on and that no other test of this machine is given until our process ends."""
    for port in random.SystemRandom().sample(range(*_LIMITS), 200):
        if is_free(port) and _claimed(port):
            return port
    raise AssertionError(f"200 ports between {_LIMITS[0]} and {_LIMITS[1]} were tried, and each is taken")


def _claimed(port: int) -> bool:
    """Whether the port's name among the kernel's abstract sockets is ours now; it is freed with the process."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0dovetail-test-port-{port}")
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    _CLAIMS.append(claim)
    return True
