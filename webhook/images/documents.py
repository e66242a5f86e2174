"""What registries answer, and what pull secrets hold, decoded. Pure; whatever a document looks like, it is read or an `ImageDocumentError`."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from provisioner.apis.meta import Object
from provisioner.values import jsontext
from webhook.images.references import DOCKER_HUB, Reference, is_digest

MAX_BYTES: Final = 4 * 1024 * 1024
"""Of a manifest or a configuration; what is larger is refused. Source: distribution specification, which demands that 4 MiB are taken."""
MAX_ENTRIES: Final = 1024
_MAX_BRACES: Final = 16 * MAX_ENTRIES
"""In the entries of an index; what has more is not even decoded. An entry has three and, with its annotations, seldom more than ten."""
LONGEST_TOKEN: Final = 16 * 1024

INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIG_TYPES: Final = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_SAME: Final[Mapping[str, str]] = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "aarch64": "arm64",
    "armhf": "arm",
    "i386": "386",
}
"""Source: containerd's `platforms.Normalize`."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=:-]+", re.ASCII)
_SCHEME: Final = re.compile(r"[\s,]*([A-Za-z]+)(?:[ \t]+|$)", re.ASCII)
_PARAMETER: Final = re.compile(r'[\s,]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', re.ASCII)
_INDEX_TOO_LONG: Final = "the index has too many entries"


class ImageDocumentError(ValueError):
    """The document says nothing that could be used; the message says why."""


class Platform(NamedTuple):
    """What an image was built for, in Go's words; variants do not matter to a node label."""

    os: str
    architecture: str


_PLATFORMS: Final[Mapping[tuple[str, str], Platform]] = {
    (os, architecture): Platform(os, architecture)
    for os in ("linux", "windows")
    for architecture in (
        *("386", "amd64", "arm", "arm64", "loong64", "mips", "mips64"),
        *("mips64le", "mipsle", "ppc64", "ppc64le", "riscv64", "s390x"),
    )
}
"""The operating systems that kubelets run on, and Go's architectures: of what strangers write, no other word is kept."""


_NULL: Final = msgspec.Raw(b"null")


class _WirePlatform(Object, frozen=True, kw_only=True):
    os: str = ""
    architecture: str = ""


class _Annotations(Object, frozen=True, kw_only=True):
    reference_type: msgspec.Raw | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="vnd.docker.reference.type"
    )


class _Descriptor(Object, frozen=True, kw_only=True):
    media_type: str = ""
    digest: str = ""
    platform: _WirePlatform | None = None
    annotations: _Annotations | None = None
    artifact_type: str = ""


class _Manifest(Object, frozen=True, kw_only=True):
    """Strangers write it: what may have many parts stays text until they are counted."""

    media_type: str = ""
    manifests: msgspec.Raw = _NULL
    config: _Descriptor | None = None
    layers: msgspec.Raw = _NULL


class _Token(msgspec.Struct, frozen=True, gc=False):
    token: str | None = None
    access_token: str | None = None


class _Login(msgspec.Struct, frozen=True, gc=False):
    auth: str = ""
    username: str = ""
    password: str = ""


class _DockerConfig(msgspec.Struct, frozen=True, gc=False):
    auths: dict[str, _Login] = msgspec.field(default_factory=dict)


_manifest = jsontext.decoder(_Manifest)
_entries = jsontext.decoder(list[_Descriptor])
_platform = jsontext.decoder(_WirePlatform)
_token = jsontext.decoder(_Token)
_docker_config = jsontext.decoder(_DockerConfig)
_logins = jsontext.decoder(dict[str, _Login])


def platforms_in(body: bytes) -> frozenset[Platform] | str:
    """What an index says that its images were built for; of a manifest of one image the digest of its configuration, which says it.

    Entries of an index that are no images (attestations, platform `unknown`) are left out.

    Raises:
        ImageDocumentError: neither of the two, both, or one that does not say.
    """
    try:
        found = _manifest(body)
    except msgspec.DecodeError as error:
        raise ImageDocumentError(f"the manifest cannot be read: {error}") from error
    is_index, is_manifest = found.manifests != _NULL, found.config is not None or found.layers != _NULL
    if is_index and is_manifest:
        raise ImageDocumentError("the document is an index and a manifest at once")  # CVE-2021-41190
    if is_index and found.media_type in ("", *INDEX_TYPES):
        return _of_index(found.manifests)
    if found.config is None or found.media_type not in ("", *MANIFEST_TYPES):
        raise ImageDocumentError("the document is neither an index nor a manifest of an image")
    if found.config.media_type not in _CONFIG_TYPES:
        raise ImageDocumentError("the manifest does not describe a container image")
    if not is_digest(found.config.digest):
        raise ImageDocumentError("the manifest has no configuration")
    return found.config.digest


def _of_index(raw: msgspec.Raw) -> frozenset[Platform]:
    text = bytes(raw)
    if text.count(b"{") > _MAX_BRACES:
        raise ImageDocumentError(_INDEX_TOO_LONG)
    try:
        entries = _entries(text)
    except msgspec.DecodeError as error:
        raise ImageDocumentError(f"the index cannot be read: {error}") from error
    if len(entries) > MAX_ENTRIES:
        raise ImageDocumentError(_INDEX_TOO_LONG)
    found: set[Platform] = set()
    for entry in entries:
        annotated = entry.annotations is not None and entry.annotations.reference_type is not msgspec.UNSET
        if annotated or entry.artifact_type:
            continue
        if entry.platform is None or not entry.platform.architecture or not entry.platform.os:
            raise ImageDocumentError("an entry of the index has no platform")
        if (platform := _named(entry.platform)) is not None:
            found.add(platform)
    if not found:
        raise ImageDocumentError("the index contains no platform that a node can have")
    return frozenset(found)


def platform_in(body: bytes) -> Platform:
    """What the configuration of one image says that it was built for.

    Raises:
        ImageDocumentError: it does not say.
    """
    try:
        found = _named(_platform(body))
    except msgspec.DecodeError as error:
        raise ImageDocumentError(f"the configuration cannot be read: {error}") from error
    if found is None:
        raise ImageDocumentError("the configuration contains no platform that a node can have")
    return found


def _named(wire: _WirePlatform) -> Platform | None:
    architecture = wire.architecture.lower()
    return _PLATFORMS.get((wire.os.lower(), _SAME.get(architecture, architecture)))


def token_in(body: bytes) -> str:
    """The token in the answer of a realm.

    Raises:
        ImageDocumentError: there is none that may stand in a header.
    """
    try:
        found = _token(body)
    except msgspec.DecodeError as error:
        raise ImageDocumentError(f"the response with the token cannot be read: {error}") from error
    text = found.token or found.access_token or ""
    if len(text) > LONGEST_TOKEN or not _TOKEN.fullmatch(text):
        raise ImageDocumentError("the response contains no usable token")
    return text


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a registry asks for with a 401.

    Attributes:
        scheme: `basic` or `bearer`, lower case.
        realm: the URL that makes tokens.
        service: what it is to be told.
    """

    scheme: str
    realm: str = ""
    service: str = ""


LONGEST_HEADER: Final = 4096


def challenges_in(header: str) -> list[Challenge]:
    """The challenges in a WWW-Authenticate header, as far as it can be read; linear in its length."""
    found: list[Challenge] = []
    at, header = 0, header[:LONGEST_HEADER]
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            value = parameter[3] if parameter[2] is None else re.sub(r"\\(.)", r"\1", parameter[2])
            parameters.setdefault(parameter[1].lower(), value)
        found.append(Challenge(scheme[1].lower(), parameters.get("realm", ""), parameters.get("service", "")))
    return found


class Login(NamedTuple):
    """A user and a password for one registry. Never log one."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"

    @property
    def header(self) -> str:
        """As the value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")


def login_in(data: Mapping[str, bytes], reference: Reference) -> Login | None:
    """The credentials that a pull secret holds for an image, those for the longest matching name; None where it holds none.

    Args:
        data: of the Secret: `.dockerconfigjson` or `.dockercfg`.
        reference: the image.

    Raises:
        ImageDocumentError: the Secret cannot be read.

    Source: kubelet's keyring (`pkg/credentialprovider`).
    Differs: an identity token (Azure's refresh token) is not used.
    """
    try:
        if (text := data.get(".dockerconfigjson")) is not None:
            logins: Mapping[str, _Login] = _docker_config(text).auths
        else:
            logins = _logins(data.get(".dockercfg", b"{}"))
    except msgspec.DecodeError as error:
        raise ImageDocumentError("the pull secret cannot be read") from error
    best: tuple[int, Login] | None = None
    for name, login in logins.items():
        length = _fit(name, reference)
        if length and (best is None or length > best[0]) and (found := _login(login)) is not None:
            best = (length, found)
    return None if best is None else best[1]


def _fit(name: str, reference: Reference) -> int:
    """How long a name in a pull secret is that means the registry of an image, 0 where it does not."""
    try:
        parts = urlsplit(name if "://" in name else f"https://{name}")
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return 0
    if (443 if port is None else port) != reference.host.port:
        return 0
    wanted = reference.host.name
    hub = wanted == DOCKER_HUB and host in (DOCKER_HUB, "index.docker.io", "registry-1.docker.io")
    theirs, ours = host.split("."), wanted.split(".")
    same = len(theirs) == len(ours) and all(map(_label_fits, theirs, ours))
    path = parts.path.strip("/")
    if path in ("v1", "v2"):
        path = ""
    if not (hub or same) or not f"{reference.repository}/".startswith(f"{path}/" if path else ""):
        return 0
    return len(host) + len(path)


def _label_fits(pattern: str, label: str) -> bool:
    """Whether one label of a host name is meant; a star stands for any text."""
    head, star, tail = pattern.partition("*")
    if not star:
        return pattern == label
    return len(label) >= len(head) + len(tail) and label.startswith(head) and label.endswith(tail)


def _login(login: _Login) -> Login | None:
    username, password = login.username, login.password
    if login.auth:
        try:
            username, _, password = base64.b64decode(login.auth, validate=True).decode().partition(":")
        except ValueError:
            return None
    return Login(username, password) if username and password else None
