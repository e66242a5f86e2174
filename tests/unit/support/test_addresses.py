"""HOST:PORT, read and written."""

import click
import pytest

from provisioner.support.addresses import AddressParameter, host_and_port, is_everywhere, is_loopback, parse

READ = {
    "127.0.0.1:8443": ("127.0.0.1", 8443),
    "[::1]:8443": ("::1", 8443),
    "fd00::7:8443": ("fd00::7", 8443),
    ":8443": ("", 8443),
    "localhost:0": ("localhost", 0),
}


@pytest.mark.parametrize(("text", "address"), READ.items())
def test_what_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse(text) == address
    assert AddressParameter().convert(text, None, None) == address


@pytest.mark.parametrize("text", ["", "8443", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:-1"])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse(text)
    with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
        AddressParameter().convert(text, None, None)


def test_how_it_is_written() -> None:
    assert host_and_port("127.0.0.1", 1) == "127.0.0.1:1"
    assert host_and_port("::1", 1) == "[::1]:1"


def test_loopback_is_this_machine_only() -> None:
    assert all(map(is_loopback, ("localhost", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "example.org", "", "::")))


def test_everywhere_is_every_address() -> None:
    assert all(map(is_everywhere, ("", "0.0.0.0", "::")))
    assert not any(map(is_everywhere, ("localhost", "127.0.0.1", "10.0.0.1")))
