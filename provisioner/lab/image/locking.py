"""Writes base.json: what Debian 12 has today, by apt, which checks the archive's signatures."""

import json
import subprocess
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any, Final

from provisioner.lab.image.debian import LOCK, NAMES
from provisioner.lab.image.wheels import MACHINES
from provisioner.support.clock import SystemClock

_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES: Final = f"""\
deb [signed-by={_KEYRING}] http://deb.debian.org/debian bookworm main
deb [signed-by={_KEYRING}] http://deb.debian.org/debian bookworm-updates main
deb [signed-by={_KEYRING}] http://deb.debian.org/debian-security bookworm-security main
"""


def lock() -> None:
    """Ask the archive for the newest versions, for each architecture, and write base.json."""
    now = SystemClock().now()
    packages = {architecture: _current(architecture) for architecture in MACHINES}
    document = {"snapshot": now.strftime("%Y%m%dT%H%M%SZ"), "packages": packages}
    LOCK.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _current(architecture: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        there = Path(temporary)
        (there / "sources").write_text(_SOURCES, encoding="utf-8")
        for name in ("state/lists/partial", "cache/archives/partial"):
            (there / name).mkdir(parents=True)
        (there / "state" / "status").touch()
        settings = {
            "Dir::State": there / "state",
            "Dir::State::status": there / "state" / "status",
            "Dir::Cache": there / "cache",
            "Dir::Etc::sourcelist": there / "sources",
            "Dir::Etc::sourceparts": "-",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",
        }
        apt = ["apt-get", "-qq", *(f"--option={name}={value}" for name, value in settings.items())]
        subprocess.run([*apt, "update"], check=True)
        found = subprocess.run(
            [*apt, "download", "--print-uris", *NAMES], check=True, capture_output=True, text=True
        ).stdout
    return sorted((_row(*line.split()) for line in found.splitlines()), key=lambda row: row["name"])


def _row(uri: str, file: str, _size: str, digest: str) -> dict[str, str]:
    name, version, _ = file.split("_")
    path = urllib.parse.urlsplit(uri.strip("'")).path.removeprefix("/")
    return {
        "name": name,
        "version": urllib.parse.unquote(version),
        "path": path,
        "sha256": digest.removeprefix("SHA256:"),
    }
