"""An image layout depends on what is in the files, and is what the specification of OCI asks for."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from provisioner.lab.image.layout import SBOM, ImageLayout, Origin

ORIGIN = Origin("0123abcd", 1_700_000_000)


def tree(there: Path, mode: int) -> Path:
    (there / "usr" / "bin").mkdir(parents=True)
    (there / "tmp").mkdir(mode=0o700)
    (there / "usr" / "bin" / "tool").write_text("tool", encoding="utf-8")
    (there / "usr" / "bin" / "tool").chmod(0o700 | mode)
    (there / "usr" / "note").write_text("note", encoding="utf-8")
    (there / "bin").symlink_to("usr/bin")
    os.utime(there / "usr" / "note", (mode, mode))
    return there


def written(there: Path, layer: Path) -> str:
    layout = ImageLayout(there, ORIGIN)
    layout.attach(layout.add_image("arm64", [("files", layer)]), b'{"bomFormat": "CycloneDX"}')
    return layout.finish("1.2.3")


def blob(there: Path, digest: str) -> bytes:
    content = (there / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def test_the_same_files_give_the_same_digest_whoever_wrote_them_and_when(tmp_path: Path) -> None:
    digests = {
        written(tmp_path / name, tree(tmp_path / f"{name}-files", mode))
        for name, mode in (("one", 0o55), ("two", 0o11))
    }
    assert len(digests) == 1


def test_an_index_leads_to_every_byte_of_the_files(tmp_path: Path) -> None:
    there = tmp_path / "image"
    digest = written(there, tree(tmp_path / "files", 0o55))
    (named,) = json.loads((there / "index.json").read_bytes())["manifests"]
    assert named["annotations"] == {"org.opencontainers.image.ref.name": "1.2.3"}
    assert (named["digest"], named["size"]) == (digest, len(blob(there, digest)))
    image, bom = json.loads(blob(there, digest))["manifests"]
    assert image["platform"] == {"architecture": "arm64", "os": "linux"}
    manifest: dict[str, Any] = json.loads(blob(there, image["digest"]))
    config = json.loads(blob(there, manifest["config"]["digest"]))
    assert (config["architecture"], config["created"]) == ("arm64", "2023-11-14T22:13:20Z")
    assert config["config"]["Labels"]["org.opencontainers.image.revision"] == "0123abcd"
    (layer,) = manifest["layers"]
    content = gzip.decompress(blob(there, layer["digest"]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {one.name: (oct(one.mode), one.uid, one.mtime, one.linkname) for one in archive}
    assert found == {
        "bin": ("0o777", 0, 0, "usr/bin"),
        "tmp": ("0o1777", 0, 0, ""),
        "usr": ("0o755", 0, 0, ""),
        "usr/bin": ("0o755", 0, 0, ""),
        "usr/bin/tool": ("0o755", 0, 0, ""),
        "usr/note": ("0o644", 0, 0, ""),
    }
    # the bill of materials refers to the image, and no machine takes it for one
    assert (bom["artifactType"], bom["platform"]["os"]) == (SBOM, "unknown")
    attached = json.loads(blob(there, bom["digest"]))
    assert attached["subject"] == {name: image[name] for name in ("mediaType", "digest", "size")}
    assert blob(there, attached["layers"][0]["digest"]) == b'{"bomFormat": "CycloneDX"}'
