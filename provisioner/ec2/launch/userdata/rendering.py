"""User data of any family, its size and its form in requests. Pure."""

import base64
from typing import Final

from provisioner.apis import ec2
from provisioner.ec2.launch.userdata import al2, al2023, bottlerocket, mime, node_config, windows
from provisioner.ec2.launch.userdata.inputs import NodeInput

SIZE_LIMIT: Final = 16384
"""Bytes that EC2 takes, before they are written as base64."""

SIZE_WARNING: Final = 14745
"""90 % of it, rounded down."""


def render(node: NodeInput) -> str:
    """What an instance of this sort reads at its first boot; equal inputs give equal text.

    Raises:
        UserDataError: the user's own cannot be read, or something of the cluster is not known.
    """
    match node.family:
        case ec2.AL2:
            return al2.render(node)
        case ec2.AL2023:
            return al2023.render(node)
        case ec2.BOTTLEROCKET:
            return bottlerocket.render(node)
        case ec2.WINDOWS_2019 | ec2.WINDOWS_2022 | ec2.WINDOWS_2025:
            return windows.render(node)
        case _:
            return node.user_data


def encoded(text: str) -> str:
    """As launch templates carry it: base64; "" for none."""
    return base64.b64encode(text.encode()).decode()


def size_of(text: str) -> int:
    """Bytes that count for `SIZE_LIMIT`."""
    return len(text.encode())


def check(family: str, user_data: str) -> None:
    """Read the user's own as `render` would.

    Raises:
        UserDataError: it cannot be read.
    """
    if family == ec2.AL2:
        al2.parts_of(user_data)
    elif family == ec2.AL2023:
        al2023.parts_of(user_data)
    elif family == ec2.BOTTLEROCKET:
        bottlerocket.settings_of(user_data)


def refused(family: str, user_data: str) -> str:
    """Why nodes of this family never join with the user's own, which can be read; "" when nothing keeps them from it.

    Raises:
        UserDataError: as of `check`.
    """
    if family != ec2.AL2023:
        return ""
    parts = al2023.parts_of(user_data)
    return next(
        (why for part in parts if part.media_type == mime.NODE_CONFIG and (why := node_config.read(part.text).problem)),
        "",
    )
