"""Choosing ports: free, unclaimed, below the kernel's own range."""

import socket

import pytest

from provisioner.lab.devcluster.errors import PortError
from provisioner.lab.devcluster.ports import PORT_NAMES, choose_ports, is_free, port_limits

COUNT = len(PORT_NAMES)


def always(_port: int) -> bool:
    return True


def test_every_name_gets_a_port_of_its_own() -> None:
    chosen = choose_ports((), always, 100, (100, 200))
    assert tuple(chosen) == PORT_NAMES
    assert sorted(chosen.values()) == list(range(100, 100 + COUNT))


def test_ports_of_other_clusters_and_ports_in_use_are_left_out() -> None:
    chosen = choose_ports({100, 102}, lambda port: port != 101, 100, (100, 200))
    assert min(chosen.values()) == 103


def test_the_search_wraps_around() -> None:
    chosen = choose_ports((), always, 198, (100, 200))
    assert set(chosen.values()) == {198, 199, *range(100, 98 + COUNT)}


def test_too_few_free_ports_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(PortError, match=rf"fewer than {COUNT} free loopback ports between 100 and 112.*down --delete"):
        choose_ports((), always, 100, (100, 112))


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        pytest.param("32768\t60999\n", (18000, 32768), id="the usual range"),
        pytest.param("", (18000, 32768), id="no such file"),
        pytest.param("1024 65535", (18000, 65536), id="the kernel hands out nearly all"),
    ],
)
def test_ports_lie_below_those_that_the_kernel_hands_out(text: str, limits: tuple[int, int]) -> None:
    assert port_limits(text) == limits


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)
