"""What nobody reads of a user's own user data, or somebody reads as something else than it looks like: a sentence each. Pure.

Source: https://docs.cloud-init.io/en/latest/explanation/format.html (cloud-init of AL2 and AL2023), nodeadm as `node_config` tells it,
    https://bottlerocket.dev/en/os/latest/#/api/settings/, and https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html (EC2Launch).
"""

import itertools
from collections.abc import Iterator
from typing import Final

from provisioner.apis import ec2
from provisioner.ec2.launch.userdata import al2, al2023, bottlerocket, mime, node_config, windows
from provisioner.ec2.launch.userdata.inputs import UserDataError
from provisioner.values.message import Said

_MOST: Final = 10
"""Sentences of one user data."""
_SCRIPTS: Final = frozenset(
    {"text/x-shellscript", *(f"text/x-shellscript-per-{when}" for when in ("boot", "instance", "once"))}
)
_CLOUD_INIT: Final = frozenset(
    {
        *_SCRIPTS,
        *("text/cloud-config", "text/cloud-config-archive", "text/cloud-boothook", "text/jinja2", "text/part-handler"),
        *("text/x-include-url", "text/x-include-once-url", "text/upstart-job"),
    }
)
_OPENINGS: Final = (
    "#!",
    "#cloud-config",
    "#cloud-boothook",
    "#include",
    "#part-handler",
    "#upstart-job",
    "## template: jinja",
)
"""Of a text whose type says nothing."""


def unread(family: str, user_data: str) -> tuple[str, ...]:
    """The first ten, in the order in which they stand; nothing of what cannot be read, which is an error, nor of Custom, which we know nothing about."""
    if not user_data.strip():
        return ()
    try:
        return tuple(itertools.islice(dict.fromkeys(_unread(family, user_data)), _MOST))
    except UserDataError:
        return ()


def _unread(family: str, user_data: str) -> Iterator[str]:
    if family == ec2.BOTTLEROCKET:
        if others := sorted(bottlerocket.document_of(user_data).keys() - {"settings"}):
            yield Said(
                f"Bottlerocket reads only settings, and ignores these: {', '.join(others[:5])}; find the "
                "settings at https://bottlerocket.dev"
            )
    elif family in ec2.WINDOWS_FAMILIES:
        yield from _of_windows(user_data)
    elif family in (ec2.AL2, ec2.AL2023):
        parts = al2023.parts_of(user_data) if family == ec2.AL2023 else al2.parts_of(user_data)
        handled = any(part.media_type == "text/part-handler" for part in parts)
        for part in parts:
            yield from _of_part(family, part, handled=handled)
        if mime.is_mime(user_data) and mime.rest(user_data).strip():
            yield Said("what follows the end of the MIME document is not read; only the last delimiter may end with --")


def _of_part(family: str, part: mime.MimePart, *, handled: bool) -> Iterator[str]:
    kind = part.media_type
    if kind == mime.NODE_CONFIG:
        yield from (
            node_config.read(part.text).unread
            if family == ec2.AL2023
            else (Said("AL2 images do not read NodeConfigs; use spec.kubelet, or an image of AL2023"),)
        )
    elif kind in _SCRIPTS and not part.text.lstrip().startswith(_OPENINGS):
        if al2023.is_mapping(part.text):
            yield Said(
                "the YAML is run as a shell script; use NodeConfigs with AL2023 only, and put cloud-config into a "
                "MIME part of type text/cloud-config"
            )
        elif family == ec2.AL2023:  # cloud-init of AL2 gives it to a shell
            yield Said(
                "the shell script is not run, because it does not begin with #!; add #!/bin/bash as its first line"
            )
    elif kind == "text/plain" and not part.text.lstrip().startswith(_OPENINGS):
        yield Said(
            "a MIME part of type text/plain is not read unless it begins with #! or #cloud-config; set its Content-Type"
        )
    elif kind not in _CLOUD_INIT and kind != "text/plain" and not kind.startswith("multipart/") and not handled:
        yield Said(f"cloud-init does not read MIME parts of type {kind}")


def _of_windows(user_data: str) -> Iterator[str]:
    found = windows.elements_of(user_data)
    if found.names:
        names = ", ".join(f"<{one}>" for one in found.names)
        yield Said(
            f"the script that joins the node is run with the same tags ({names}), after the user's; PowerShell needs "
            "no tags here, and <persist> runs both at every boot"
        )
    if found.outside:
        yield Said("text outside of <powershell> and <script> is not run; move it into one of them")
