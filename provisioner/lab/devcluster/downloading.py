"""The official release downloads, for who asks for them: each checked against its publisher's checksum.

Kubernetes publishes a .sha512 beside each file, etcd a SHA256SUMS per release, and for kwok the digest is in the
release document of GitHub's API. A mirror (`base_url`) serves the same paths under one prefix.
"""

import hashlib
import json
import platform
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.errors import BuildError, ChecksumError
from provisioner.lab.devcluster.progress import StepProgress, reported

KUBERNETES_SITE: Final = "https://dl.k8s.io"
GITHUB: Final = "https://github.com"
GITHUB_API: Final = "https://api.github.com"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_CHUNK_BYTES: Final = 1 << 20
_TIMEOUT_SECONDS: Final = 60


@dataclass(frozen=True)
class Location:
    """Where one artifact comes from.

    Attributes:
        url: the file, or the archive that holds it.
        checksum_url: the document that its digest is in.
        algorithm: name for hashlib.
        digest: finds the hex digest in that document; "" when it is not in it.
        member: path in the archive; "" when the file is no archive.
    """

    url: str
    checksum_url: str
    algorithm: str
    digest: Callable[[str], str]
    member: str = ""


def locate(name: str, base_url: str, machine: str, plane: versions.Plane) -> Location:
    """Where an artifact is; pure.

    Args:
        name: one of `versions.ARTIFACTS`.
        base_url: of a mirror; "" for the publishers themselves.
        machine: as Go calls it, amd64 or arm64.
        plane: whose programs.
    """
    base = base_url.rstrip("/")
    github = base or GITHUB
    if name == "etcd":
        stem = f"etcd-{plane.etcd}-linux-{machine}"
        release = f"{github}/etcd-io/etcd/releases/download/{plane.etcd}"
        return Location(
            f"{release}/{stem}.tar.gz",
            f"{release}/SHA256SUMS",
            "sha256",
            lambda text: digest_in_list(text, f"{stem}.tar.gz"),
            f"{stem}/etcd",
        )
    if name in ("kwok", versions.STAGES):
        asset = f"kwok-linux-{machine}" if name == "kwok" else "stage-fast.yaml"
        project = "kubernetes-sigs/kwok"
        return Location(
            f"{github}/{project}/releases/download/{versions.KWOK}/{asset}",
            f"{base or GITHUB_API}/repos/{project}/releases/tags/{versions.KWOK}",
            "sha256",
            lambda text: digest_in_release(text, asset),
        )
    url = f"{base or KUBERNETES_SITE}/{plane.kubernetes}/bin/linux/{machine}/{name}"
    return Location(url, f"{url}.sha512", "sha512", lambda text: (text.split() or [""])[0])


def digest_in_list(text: str, file: str) -> str:
    """The digest of a file in the output of sha256sum; "" when it is not listed."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[1].removeprefix("*") == file:
            return fields[0]
    return ""


def digest_in_release(text: str, asset: str) -> str:
    """The sha256 of an asset in a release document of GitHub's API; "" when it has none."""
    try:
        for entry in json.loads(text)["assets"]:
            if entry["name"] == asset:
                return str(entry.get("digest") or "").removeprefix("sha256:")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return ""


@dataclass(frozen=True)
class Download:
    """Makes artifacts by downloading them; a `binaries.BinarySource`.

    Attributes:
        base_url: of a mirror; "" for the publishers themselves. Must be https, unless it is on this machine.
        plane: whose programs.
    """

    base_url: str = ""
    plane: versions.Plane = versions.PLANES[versions.DEFAULT]

    def __post_init__(self) -> None:
        """Refuse a mirror that could be impersonated: the checksums come from it too.

        Raises:
            BuildError: not https, and not on this machine.
        """
        if not self.base_url:
            return
        parts = urllib.parse.urlsplit(self.base_url)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
            raise BuildError(
                f"the base URL {self.base_url!r} is neither https nor on this machine",
                "Give one like https://mirror.example.com/dovetail",
            )

    def key(self) -> str:
        """Versions and machine: what is published under a version never changes."""
        return f"{self.plane.key}-release-{platform.machine()}"

    def make(self, names: Iterable[str], directory: Path, progress: StepProgress) -> None:
        """Download these artifacts; see `binaries.BinarySource`.

        Raises:
            BuildError: this machine's architecture or a program is not published, or a file cannot be fetched.
            ChecksumError: what came is not what was announced, or nothing was announced.
        """
        machine = _MACHINES.get(platform.machine())
        if machine is None:
            raise BuildError(
                f"there are no releases for {platform.machine()}",
                "Leave out --download, so that the programs are built here",
            )
        wanted = set(names)
        if versions.METRICS_SERVER in wanted:
            raise BuildError(
                "metrics-server is published as an image only, not as a program",
                "Leave out --download, so that it is built here",
            )
        ordered = [name for name in versions.ARTIFACTS if name in wanted]
        for index, name in enumerate(ordered, 1):
            progress.begin(index, len(ordered), f"downloading {name}")
            with reported(progress):
                _fetch_artifact(locate(name, self.base_url, machine, self.plane), directory, name, progress)


def _fetch_artifact(location: Location, directory: Path, name: str, progress: StepProgress) -> None:
    announced = location.digest(_read_text(location.checksum_url)).lower()
    if not announced:
        raise ChecksumError(
            f"{location.checksum_url} announces no {location.algorithm} for {name}",
            "Leave out --download, so that it is built here, or use another --base-url",
        )
    partial = directory / f".{name}.download"
    try:
        found = _fetch(location.url, partial, location.algorithm, progress)
        if found != announced:
            raise ChecksumError(
                f"{location.url} has the {location.algorithm} {found[:16]}..., announced was {announced[:16]}...",
                "Nothing of it was kept. Try again; if it happens again, do not trust that source",
            )
        if location.member:
            _extract(partial, location.member, directory / f".{name}.partial")
            (directory / f".{name}.partial").replace(partial)
        partial.chmod(0o644 if name == versions.STAGES else 0o755)
        partial.replace(directory / name)
    finally:
        partial.unlink(missing_ok=True)
        (directory / f".{name}.partial").unlink(missing_ok=True)


def _read_text(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            return bytes(answer.read(8 << 20)).decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise _unreachable(url, error) from error


def _fetch(url: str, path: Path, algorithm: str, progress: StepProgress) -> str:
    digest = hashlib.new(algorithm)
    done = 0
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer, path.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
                done += len(chunk)
                progress.detail(f"{done / 1e6:.0f} of {size / 1e6:.0f} MB" if size else f"{done / 1e6:.0f} MB")
    except (OSError, HTTPException) as error:
        raise _unreachable(url, error) from error
    return digest.hexdigest()


def _extract(archive: Path, member: str, target: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            source = tar.extractfile(member)
            if source is None:
                raise KeyError(member)
            with source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
    except (KeyError, tarfile.TarError, OSError) as error:
        raise BuildError(
            f"the archive {archive.name} does not hold {member} ({error})",
            "Use another --base-url, or leave out --download",
        ) from error


def _unreachable(url: str, error: Exception) -> BuildError:
    reason: object = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        reason = f"HTTP {error.code} {error.reason}"
    return BuildError(
        f"{url} cannot be fetched ({reason})",
        "Check the network and --base-url, leave out --download to build from source, or point DOVETAIL_DEV_BIN at"
        " a directory of programs",
    )
