"""Official downloads, from a mirror on loopback: good checksums, bad ones, none, and a mirror that is away."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.downloading import Download, digest_in_list, digest_in_release, locate
from provisioner.lab.devcluster.errors import BuildError, ChecksumError
from provisioner.lab.devcluster.progress import SILENT

MACHINES = ("amd64", "arm64")
PLANE = versions.PLANES[versions.DEFAULT]


class Mirror:
    """Paths and what they answer; anything else is 404."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.url = ""
        for machine in MACHINES:
            for name in ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl"):
                path = f"/{PLANE.kubernetes}/bin/linux/{machine}/{name}"
                self.files[path] = f"program {name}".encode()
                self.files[f"{path}.sha512"] = hashlib.sha512(self.files[path]).hexdigest().encode()
        self._add_etcd()
        self._add_kwok()

    def _add_etcd(self) -> None:
        sums = []
        for machine in MACHINES:
            stem = f"etcd-{PLANE.etcd}-linux-{machine}"
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
                for member in ("etcd", "etcdctl"):
                    content = f"program {member}".encode()
                    entry = tarfile.TarInfo(f"{stem}/{member}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
            self.files[f"/etcd-io/etcd/releases/download/{PLANE.etcd}/{stem}.tar.gz"] = buffer.getvalue()
            sums.append(f"{hashlib.sha256(buffer.getvalue()).hexdigest()}  {stem}.tar.gz\n")
        self.files[f"/etcd-io/etcd/releases/download/{PLANE.etcd}/SHA256SUMS"] = "".join(sums).encode()

    def _add_kwok(self) -> None:
        assets = []
        for asset in ("stage-fast.yaml", *(f"kwok-linux-{machine}" for machine in MACHINES)):
            content = f"asset {asset}".encode()
            self.files[f"/kubernetes-sigs/kwok/releases/download/{versions.KWOK}/{asset}"] = content
            assets.append({"name": asset, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}"})
        document = json.dumps({"assets": assets}).encode()
        self.files[f"/repos/kubernetes-sigs/kwok/releases/tags/{versions.KWOK}"] = document

    def change(self, ending: str, content: bytes | None) -> None:
        for path in [path for path in self.files if path.endswith(ending)]:
            if content is None:
                del self.files[path]
            else:
                self.files[path] = content


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    served = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_port}"
        yield served
        server.shutdown()
        thread.join()


def test_everything_is_fetched_checked_and_executable(mirror: Mirror, tmp_path: Path) -> None:
    Download(mirror.url).make(versions.ARTIFACTS, tmp_path, SILENT)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(versions.ARTIFACTS)
    assert (tmp_path / "kube-apiserver").read_text() == "program kube-apiserver"
    assert (tmp_path / "etcd").read_text() == "program etcd"
    assert (tmp_path / versions.STAGES).read_text() == "asset stage-fast.yaml"
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {name: 0o644 if name == versions.STAGES else 0o755 for name in versions.ARTIFACTS}


BAD = {
    "a program that was changed": ("/kubectl", b"something else", "kubectl", "has the sha512 .* announced was"),
    "an archive that was changed": (".tar.gz", b"something else", "etcd", "has the sha256 .* announced was"),
    "an asset that was changed": ("stage-fast.yaml", b"x", versions.STAGES, "has the sha256 .* announced was"),
    "an empty checksum file": ("kubectl.sha512", b"", "kubectl", "announces no sha512 for kubectl"),
    "a list without the file": ("SHA256SUMS", b"00  other.tar.gz\n", "etcd", "announces no sha256 for etcd"),
    "a release without digests": (
        f"tags/{versions.KWOK}",
        b'{"assets": [{"name": "kwok-linux-amd64"}]}',
        "kwok",
        "announces no sha256 for kwok",
    ),
    "a release document that is none": (f"tags/{versions.KWOK}", b"<html>", "kwok", "announces no sha256"),
}


@pytest.mark.parametrize(("ending", "content", "name", "says"), BAD.values(), ids=BAD)
def test_what_was_not_announced_is_not_kept(
    mirror: Mirror, tmp_path: Path, ending: str, content: bytes, name: str, says: str
) -> None:
    mirror.change(ending, content)
    with pytest.raises(ChecksumError, match=says):
        Download(mirror.url).make([name], tmp_path, SILENT)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_missing_is_named_with_what_to_do(mirror: Mirror, tmp_path: Path) -> None:
    mirror.change("/kubectl", None)
    with pytest.raises(BuildError, match=r"kubectl cannot be fetched .*404.*Check the network and --base-url"):
        Download(mirror.url).make(["kubectl"], tmp_path, SILENT)


def test_a_mirror_that_is_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"127.0.0.1:9/.* cannot be fetched .*refused"):
        Download("http://127.0.0.1:9").make(["kubectl"], tmp_path, SILENT)


def test_an_archive_without_the_program_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w:gz").close()
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    mirror.change(".tar.gz", buffer.getvalue())
    lines = (f"{digest}  etcd-{PLANE.etcd}-linux-{machine}.tar.gz" for machine in MACHINES)
    mirror.change("SHA256SUMS", "\n".join(lines).encode())
    with pytest.raises(BuildError, match=r"does not hold etcd-v3.7.0-linux-"):
        Download(mirror.url).make(["etcd"], tmp_path, SILENT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://mirror.example.com", "ftp://127.0.0.1", "mirror", "https://"])
def test_a_mirror_that_could_be_impersonated_is_refused(url: str) -> None:
    with pytest.raises(BuildError, match="is neither https nor on this machine"):
        Download(url)


def test_without_a_mirror_the_publishers_are_asked() -> None:
    assert {name: locate(name, "", "amd64", versions.PLANES["1.36"]).url for name in ("kubectl", "etcd", "kwok")} == {
        "kubectl": "https://dl.k8s.io/v1.36.2/bin/linux/amd64/kubectl",
        "etcd": "https://github.com/etcd-io/etcd/releases/download/v3.6.8/etcd-v3.6.8-linux-amd64.tar.gz",
        "kwok": "https://github.com/kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-linux-amd64",
    }


def test_digests_are_found_in_what_publishers_write() -> None:
    assert digest_in_list("aa  x\nbb *y\n", "y") == "bb"
    assert digest_in_list("aa  x\n", "y") == ""
    assert digest_in_release('{"assets": [{"name": "a", "digest": null}]}', "a") == ""
