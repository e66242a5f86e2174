"""HOST:PORT, as it is given on a command line and written into a URL."""

import ipaddress
from typing import Any

import click

Address = tuple[str, int]
"""Host and port; the host "" is every address of the machine."""


class AddressParameter(click.ParamType[Address]):
    """HOST:PORT for click; IPv6 in brackets, ":PORT" for every address of both families."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, tuple):
            return value
        try:
            return parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse(text: str) -> Address:
    """Host and port of "HOST:PORT".

    An IPv6 address may lack its brackets: the last colon is the port's, because there has to be a port.

    Raises:
        ValueError: says what is wrong with it.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8443, [::1]:8443 or :8443")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port)


def host_and_port(host: str, port: int) -> str:
    """HOST:PORT as it stands in a URL: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host, as a name or an address, is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_everywhere(host: str) -> bool:
    """Whether a host means every address of the machine: "", 0.0.0.0 or ::."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
