"""What the `image` of a container refers to, as container runtimes read it. Pure."""

import re
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 512
"""Of a reference, in characters; a legal one has a name of at most 255, a tag of 128 and a digest of 135."""
DOCKER_HUB: Final = "docker.io"

_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.ASCII)
_COMPONENT: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_HUB_NAMES: Final = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})
_LONGEST_NAME: Final = 255


class UnusableReferenceError(ValueError):
    """The text is no reference that could be looked up; the message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a registry answers, over HTTPS.

    Attributes:
        name: DNS name or IPv4 address, lower case.
        port: 443 unless the reference says otherwise.
    """

    name: str
    port: int = 443

    def __str__(self) -> str:
        return self.name if self.port == 443 else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reference:
    """One image.

    Attributes:
        host: the registry; `docker.io` where the text names none.
        repository: below the registry, `library/nginx`.
        tag: "" where there is a digest.
        digest: "" where there is none.
    """

    host: Host
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    @property
    def wanted(self) -> str:
        """What the registry is asked for."""
        return self.digest or self.tag


def is_digest(text: str) -> bool:
    """Whether the text is a digest of a kind that can be checked."""
    return _DIGEST.fullmatch(text) is not None


def parse_host(text: str) -> Host:
    """A host with or without a port.

    Raises:
        UnusableReferenceError: anything else, IPv6 addresses too.
    """
    name, colon, port = text.partition(":")
    name = name.lower()
    if not _HOST.fullmatch(name) or len(name) > 253:
        raise UnusableReferenceError(f"{text[:80]!r} is not a host name")
    if not colon:
        return Host(name)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise UnusableReferenceError(f"{text[:80]!r} has no valid port")
    return Host(name, int(port))


def parse(text: str) -> Reference:
    """The reference in the `image` of a container. Linear in the length of the text.

    Raises:
        UnusableReferenceError: it is none.

    Source: distribution's grammar of references, and the defaults of container runtimes (docker.io, library/, latest).
    """
    if len(text) > LONGEST:
        raise UnusableReferenceError("the reference is too long")
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise UnusableReferenceError("the digest is not one of sha256 or sha512")
    first, slash, path = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, rest = parse_host(first), path
    else:
        host = Host(DOCKER_HUB)
    name, colon, tag = rest.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise UnusableReferenceError("the tag is not valid")
    if host.name in _HUB_NAMES and host.port == 443:
        host = Host(DOCKER_HUB)
        name = name if "/" in name else f"library/{name}"
    if len(name) > _LONGEST_NAME or not all(_COMPONENT.fullmatch(part) for part in name.split("/")):
        raise UnusableReferenceError("the name of the repository is not valid")
    return Reference(host, name, "" if digest else tag or "latest", digest)
