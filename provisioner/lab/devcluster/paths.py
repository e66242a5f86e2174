"""Where things are kept: one cache for what is built, one state directory for clusters."""

import re
from collections.abc import Mapping
from pathlib import Path

from provisioner.lab.devcluster.errors import StateError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def cache_root(env: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/dovetail`, by default `~/.cache/dovetail`."""
    return _base(env, "XDG_CACHE_HOME", ".cache") / "dovetail"


def state_root(env: Mapping[str, str]) -> Path:
    """Where clusters are kept: `$XDG_STATE_HOME/dovetail/dev`, by default below `~/.local/state`."""
    return _base(env, "XDG_STATE_HOME", ".local/state") / "dovetail" / "dev"


def checked_name(name: str) -> str:
    """The name, if it can be a directory, a host label and a word on a command line.

    Raises:
        StateError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise StateError(
            f"{name!r} is not a valid cluster name",
            "Use at most 40 small letters, digits and hyphens, with no hyphen at either end",
        )
    return name


def _base(env: Mapping[str, str], variable: str, default: str) -> Path:
    text = env.get(variable, "")
    if text.startswith("/"):  # the XDG rules: a relative path is to be ignored
        return Path(text)
    home = env.get("HOME", "")
    return (Path(home) if home else Path.home()) / default
