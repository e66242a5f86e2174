"""Ports of the node that exclude each other."""

import pytest

from provisioner.apis.core import ContainerPort
from provisioner.scheduling.constraints.ports import TakenPorts, ports_of

CASES: dict[str, tuple[ContainerPort, ContainerPort, bool]] = {
    "the same port": (ContainerPort(host_port=80), ContainerPort(host_port=80), True),
    "another port": (ContainerPort(host_port=80), ContainerPort(host_port=81), False),
    "another protocol": (ContainerPort(host_port=53), ContainerPort(host_port=53, protocol="UDP"), False),
    "two addresses": (ContainerPort(host_port=80, host_ip="10.0.0.1"), ContainerPort(host_port=80, host_ip="10.0.0.2"), False),
    "one address and all": (ContainerPort(host_port=80, host_ip="10.0.0.1"), ContainerPort(host_port=80), True),
    "all are written in two ways": (ContainerPort(host_port=80, host_ip="0.0.0.0"), ContainerPort(host_port=80, host_ip="10.0.0.2"), True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ports(case: tuple[ContainerPort, ContainerPort, bool]) -> None:
    left, right, want = case
    for one, other in ((left, right), (right, left)):
        taken = TakenPorts(dict.fromkeys(ports_of([one]), 1))
        assert bool(taken.clashing(ports_of([other]))) is want
        taken.take(ports_of([one]), 0b10)
        assert taken.clashing(ports_of([other])) == (0b11 if want else 0)
