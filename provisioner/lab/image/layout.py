"""An OCI image layout: blobs by their digest, and the JSON documents that name them. The same input gives the same bytes."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from provisioner.lab.image.configuration import LABELS, PROCESS

_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
SBOM: Final = "application/vnd.cyclonedx+json"

Descriptor = dict[str, Any]


@dataclass(frozen=True)
class Origin:
    """What an image was built from.

    Attributes:
        revision: the commit; "" where it is not known.
        seconds: since 1970, when that commit was made: the time that the image gives as its own.
    """

    revision: str
    seconds: int

    def labels(self) -> dict[str, str]:
        """What the image says of itself, with what is different for each commit."""
        revision = {"org.opencontainers.image.revision": self.revision} if self.revision else {}
        return {**LABELS, **revision, "org.opencontainers.image.created": self.created()}

    def created(self) -> str:
        """The time as RFC 3339 has it."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ImageLayout:
    """One directory with an image of several architectures in it."""

    def __init__(self, there: Path, origin: Origin) -> None:
        self._there, self._origin = there, origin
        self._manifests: list[Descriptor] = []
        (there / "blobs" / "sha256").mkdir(parents=True)

    def add_image(self, architecture: str, layers: Sequence[tuple[str, Path]]) -> Descriptor:
        """Add the image of one architecture.

        Args:
            architecture: as Go calls it.
            layers: what each holds, and the directory with its files; the lowest first.

        Returns:
            The descriptor of its manifest.
        """
        descriptors, differences, history = [], [], []
        for title, directory in layers:
            content = archived(directory)
            differences.append(_digest(content))
            descriptors.append(self._add(_LAYER, gzip.compress(content, 9, mtime=0)))
            history.append({"created": self._origin.created(), "created_by": f"provisioner.lab.image: {title}"})
        labels = self._origin.labels()
        config = {
            "created": self._origin.created(),
            "architecture": architecture,
            "os": "linux",
            "config": {**PROCESS, "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": differences},
            "history": history,
        }
        manifest = _manifest(self._add_json(_CONFIG, config), descriptors, annotations=labels)
        descriptor = self._add_json(_MANIFEST, manifest)
        self._manifests.append({**descriptor, "platform": {"architecture": architecture, "os": "linux"}})
        return descriptor

    def attach(self, subject: Descriptor, bom: bytes) -> None:
        """Attach a bill of materials to an image of this layout, where registries and scanners look for what refers to it."""
        empty = self._add(_EMPTY, b"{}")
        manifest = {**_manifest(empty, [self._add(SBOM, bom)]), "artifactType": SBOM, "subject": subject}
        descriptor = {**self._add_json(_MANIFEST, manifest), "artifactType": SBOM}
        # no machine is of this platform, so that none runs it
        self._manifests.append({**descriptor, "platform": {"architecture": "unknown", "os": "unknown"}})

    def finish(self, tag: str) -> str:
        """Write the index; its digest, which is the image's, is returned."""
        index = {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": self._manifests,
            "annotations": self._origin.labels(),
        }
        descriptor = self._add_json(_INDEX, index)
        named = {**descriptor, "annotations": {"org.opencontainers.image.ref.name": tag}}
        (self._there / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        (self._there / "index.json").write_bytes(_json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}))
        return str(descriptor["digest"])

    def _add_json(self, media_type: str, document: Mapping[str, Any]) -> Descriptor:
        return self._add(media_type, _json(document))

    def _add(self, media_type: str, content: bytes) -> Descriptor:
        digest = _digest(content)
        (self._there / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}


def archived(directory: Path) -> bytes:
    """A tar archive of a directory that depends on names, contents and links in it alone: owner root, no time, one of two modes."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            info = tarfile.TarInfo(path.relative_to(directory).as_posix())
            if path.is_symlink():
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
                archive.addfile(info)
            elif path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o1777 if info.name == "tmp" else 0o755
                archive.addfile(info)
            else:
                content = path.read_bytes()
                info.size, info.mode = len(content), 0o755 if path.stat().st_mode & 0o111 else 0o644
                archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _manifest(
    config: Descriptor, layers: Sequence[Descriptor], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    named = {"annotations": dict(annotations)} if annotations else {}
    return {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [*layers], **named}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
