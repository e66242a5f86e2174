"""The image, unpacked from its layout by other code than wrote it, and programs in it as a container would run them."""

import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MACHINES = {"amd64": 62, "arm64": 183}  # e_machine of ELF
SCRIPT = """\
#!/bin/sh
# Read-only files, processes and devices of the host, its /tmp, and a user without rights.
set -e
root={root}
chroot=$(command -v chroot)
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind /tmp "$root/tmp"
{before}
exec env -i {environment} "$chroot" --userspec={user} "$root" {command} "$@"
"""


@dataclass(frozen=True)
class ImageRoot:
    """The files of the image of one architecture, and its configuration."""

    path: Path
    architecture: str
    config: Mapping[str, Any]
    layer_bytes: tuple[int, ...]

    def program(self, there: Path, command: str, before: str = "") -> Path:
        """A program that runs `command` in the image with the arguments that it is given itself.

        Args:
            before: lines of shell that are run first, as root.
        """
        user = self.config["config"]["User"]
        environment = " ".join(f"'{one}'" for one in self.config["config"]["Env"])
        inner = there.with_suffix(".inner")
        inner.write_text(
            SCRIPT.format(root=self.path, before=before, environment=environment, user=user, command=command),
            encoding="utf-8",
        )
        there.write_text(
            f'#!/bin/sh\nexec unshare --mount --propagation private /bin/sh {inner} "$@"\n', encoding="utf-8"
        )
        there.chmod(0o755)
        return there

    def run(
        self, *command: str, emulator: str = "", check: bool = True, **keywords: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command in the image, and wait for it."""
        program = self.program(self.path.with_name(f"{self.path.name}.run"), emulator)
        return subprocess.run([program, *command], capture_output=True, text=True, check=check, **keywords)

    def elves(self) -> Iterator[tuple[Path, int]]:
        """Programs and libraries, with the machine that each is for."""
        for path in sorted(self.path.rglob("*")):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    head = file.read(20)
                if head[:4] == b"\x7fELF":
                    yield path, int.from_bytes(head[18:20], "little")

    def distributions(self) -> dict[str, str]:
        """Versions of Python's distributions, by normalized name."""
        found = (path.name.removesuffix(".dist-info").split("-") for path in self.path.rglob("*.dist-info"))
        return {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found}


def blob(layout: Path, digest: str) -> Path:
    """The file with this digest."""
    return layout / "blobs" / digest.replace(":", "/")


def unpack(layout: Path, there: Path) -> dict[str, ImageRoot]:
    """Every image of a layout, by its architecture."""
    (named,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    found = {}
    for one in json.loads(blob(layout, named["digest"]).read_bytes())["manifests"]:
        architecture = one["platform"]["architecture"]
        if architecture == "unknown":
            continue
        manifest = json.loads(blob(layout, one["digest"]).read_bytes())
        root = there / architecture
        for layer in manifest["layers"]:
            with tarfile.open(blob(layout, layer["digest"])) as archive:
                archive.extractall(root, filter="tar")
        (root / "tmp").chmod(0o1777)
        config = json.loads(blob(layout, manifest["config"]["digest"]).read_bytes())
        found[architecture] = ImageRoot(
            root, architecture, config, tuple(layer["size"] for layer in manifest["layers"])
        )
    return found


def needed(path: Path) -> Sequence[str]:
    """The libraries that a program or a library asks for by name."""
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return [line.partition("[")[2].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]


def excess(root: Path) -> list[str]:
    """What no image of ours may have: files that run as another user, and files that everybody may change."""
    found = []
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID) or (
            mode & stat.S_IWOTH and not stat.S_ISLNK(mode) and path != root / "tmp"
        ):
            found.append(os.path.relpath(path, root))
    return found
