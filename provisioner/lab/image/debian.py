"""The interpreter, its libraries and what they need, unpacked from Debian's packages.

No script of a package is run, so the image of one architecture is built on another. base.json names each file with its hash; the archive keeps a file
for as long as its version is current, snapshot.debian.org for ever.
"""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.lab.image.fetching import fetched

NAMES: Final = (
    "base-files",
    "ca-certificates",
    "gcc-12-base",  # the licence of libgcc-s1 and libstdc++6
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libssl3",
    "libstdc++6",  # HiGHS
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
)

LOCK: Final = Path(__file__).with_name("base.json")
USER: Final = 65532
_MERGED: Final = ("bin", "lib", "lib64", "sbin")  # are links into usr
_FILES: Final = {
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/tmp:/sbin/nologin\n",
}


@dataclass(frozen=True)
class DebianPackage:
    """One row of base.json.

    Attributes:
        path: below the host of the archive, so that `debian/` and `debian-security/` are its first part.
    """

    name: str
    version: str
    path: str
    sha256: str

    def urls(self, snapshot: str) -> tuple[str, str]:
        """Where it is; the second keeps what was current at `snapshot`, a time like 20261129T000000Z."""
        archive, _, path = self.path.partition("/")
        return f"https://deb.debian.org/{self.path}", f"https://snapshot.debian.org/archive/{archive}/{snapshot}/{path}"


def packages(architecture: str) -> Iterator[tuple[DebianPackage, tuple[str, str]]]:
    """What base.json names for an architecture, with the addresses of each."""
    lock = json.loads(LOCK.read_text(encoding="utf-8"))
    for row in lock["packages"][architecture]:
        package = DebianPackage(**row)
        yield package, package.urls(lock["snapshot"])


def install(architecture: str, root: Path, is_kept: Callable[[str], bool]) -> None:
    """Unpack every package of base.json into `root`, and write what their scripts would have written."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package, urls in packages(architecture):
        members = dict(_members(fetched(urls, package.sha256).read_bytes()))
        _unpack(members["data"], root, is_kept)
        # one file a package, where scanners of images look for them
        record = root / "var/lib/dpkg/status.d" / package.name
        record.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(members["control"])) as archive:
            control = archive.extractfile("./control")
            record.write_bytes(control.read() if control else b"")
    for name, text in _FILES.items():
        (root / name).write_text(text, encoding="utf-8")
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(path.read_bytes() for path in authorities))
    shutil.rmtree(root / "usr/share/ca-certificates")
    (root / "usr/lib/ssl").mkdir(exist_ok=True)
    (root / "usr/lib/ssl/cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")  # where OpenSSL looks
    (root / "usr/bin/python3").symlink_to("python3.11")


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The tar archives of a package, which is an ar archive, by the first part of their names."""
    position = 8
    while position + 60 <= len(content):
        header = content[position : position + 60]
        size = int(header[48:58])
        yield header[:16].decode().partition(".")[0], content[position + 60 : position + 60 + size]
        position += 60 + size + size % 2


def _unpack(data: bytes, root: Path, is_kept: Callable[[str], bool]) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            path = member.name.removeprefix("./").rstrip("/")
            if path.partition("/")[0] in _MERGED:
                path = f"usr/{path}"
            licences = member.issym() and is_kept(f"{path}/copyright")  # of a package whose sibling has the file
            if path in ("", ".") or not (licences or is_kept(path)):
                continue
            there = root / path
            if member.isdir():
                if is_kept(f"{path}/x"):
                    there.mkdir(parents=True, exist_ok=True)
            elif member.issym():
                there.parent.mkdir(parents=True, exist_ok=True)
                there.symlink_to(member.linkname)
            elif source := archive.extractfile(member):
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(source.read())
                there.chmod(member.mode)
