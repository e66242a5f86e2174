"""What nobody reads of a user's own user data, or somebody reads as something else than it looks like: a sentence each. Pure.

Source: https://docs.cloud-init.io/en/latest/explanation/format.html (cloud-init of AL2 and AL2023), nodeadm as `node_config` tells it,
    https://bottlerocket.dev/en/os/latest/#/api/settings/, and https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html (EC2Launch).
"""

import itertools
from collections.abc import Iterator
from typing import Final

from provisioner.apis import ec2
from provisioner.cloudprovider.aws.launch import messages
from provisioner.cloudprovider.aws.launch.userdata import al2, al2023, bottlerocket, mime, node_config, windows
from provisioner.cloudprovider.aws.launch.userdata.inputs import UserDataError

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
            yield messages.outside_settings(", ".join(others[:5]))
    elif family in ec2.WINDOWS_FAMILIES:
        yield from _of_windows(user_data)
    elif family in (ec2.AL2, ec2.AL2023):
        parts = al2023.parts_of(user_data) if family == ec2.AL2023 else al2.parts_of(user_data)
        handled = any(part.media_type == "text/part-handler" for part in parts)
        for part in parts:
            yield from _of_part(family, part, handled=handled)
        if mime.is_mime(user_data) and mime.rest(user_data).strip():
            yield messages.BEHIND_THE_LAST_PART


def _of_part(family: str, part: mime.Part, *, handled: bool) -> Iterator[str]:
    kind = part.media_type
    if kind == mime.NODE_CONFIG:
        yield from node_config.read(part.text).unread if family == ec2.AL2023 else (messages.NODE_CONFIG_ON_AL2,)
    elif kind in _SCRIPTS and not part.text.lstrip().startswith(_OPENINGS):
        if al2023.is_mapping(part.text):
            yield messages.YAML_AS_SCRIPT
        elif family == ec2.AL2023:  # cloud-init of AL2 gives it to a shell
            yield messages.SCRIPT_WITHOUT_INTERPRETER
    elif kind == "text/plain" and not part.text.lstrip().startswith(_OPENINGS):
        yield messages.PLAIN_TEXT
    elif kind not in _CLOUD_INIT and kind != "text/plain" and not kind.startswith("multipart/") and not handled:
        yield messages.part_of_unknown_type(kind)


def _of_windows(user_data: str) -> Iterator[str]:
    found = windows.elements_of(user_data)
    if found.names:
        yield messages.tags_are_merged(", ".join(f"<{one}>" for one in found.names))
    if found.outside:
        yield messages.OUTSIDE_OF_TAGS
