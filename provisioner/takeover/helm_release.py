"""Helm's releases as they stand in Secrets: which CustomResourceDefinitions each would delete when it is uninstalled. Pure.

Nothing else of a release is kept: its values may hold secrets.
Source: helm.sh/helm/v4 pkg/storage/driver/util.go (base64 of gzip of JSON), pkg/action/uninstall.go (`helm.sh/resource-policy` in the release's own manifest).
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from provisioner.apis.conversion.ownership import KEEP
from provisioner.apis.core import Secret
from provisioner.values import yamltext
from provisioner.values.yamltext import YamlDocumentError

SECRET_TYPE: Final = "helm.sh/release.v1"
MAX_BYTES: Final = 64 * 2**20
_GZIP: Final = 31
"""Window bits of gzip, for zlib."""
_APART: Final = re.compile(r"^---.*$", re.MULTILINE)
_DEFINITION: Final = "CustomResourceDefinition"


class _Info(msgspec.Struct, frozen=True):
    status: str = ""


class _Release(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    version: int = 0
    manifest: str = ""
    info: _Info = _Info()


@dataclass(frozen=True, slots=True)
class HelmRelease:
    """One revision of a release.

    Attributes:
        kept, unkept: names of the CustomResourceDefinitions in its manifest, with and without the policy `keep`, sorted.
    """

    name: str
    namespace: str
    version: int
    status: str
    kept: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """For people."""
        return f'Helm release "{self.name}" in namespace "{self.namespace}"'


class ReleaseError(Exception):
    """A Secret of a release that cannot be read."""


_decode: Final = msgspec.json.Decoder(_Release).decode


def release_of(secret: Secret) -> HelmRelease:
    """What a Secret holds.

    Raises:
        ReleaseError: it is not a release, or larger than what is read.
    """
    try:
        packed = base64.b64decode(secret.data["release"], validate=True)
        if packed[:2] == b"\x1f\x8b":
            unpacking = zlib.decompressobj(_GZIP)
            packed = unpacking.decompress(packed, MAX_BYTES)
            if unpacking.unconsumed_tail:
                raise ReleaseError(f"holds more than {MAX_BYTES >> 20} MiB")
        found = _decode(packed)
        kept, unkept = definitions_in(found.manifest)
    except KeyError:
        raise ReleaseError("has no key release") from None
    except (binascii.Error, zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise ReleaseError(f"is not a Helm release: {type(error).__name__}") from None
    except YamlDocumentError as error:
        raise ReleaseError(f"has a manifest that is not valid YAML: {error}") from None
    namespace = found.namespace or secret.metadata.namespace
    return HelmRelease(found.name, namespace, found.version, found.info.status, kept, unkept)


def definitions_in(manifest: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the CustomResourceDefinitions in a manifest with the policy `keep`, and of those without it.

    Raises:
        YamlDocumentError: a part of it is not YAML.
    """
    kept, unkept = set[str](), set[str]()
    for part in _APART.split(manifest):
        for document in yamltext.documents(part.encode()) if _DEFINITION in part else ():
            if not isinstance(document, dict) or document.get("kind") != _DEFINITION:
                continue
            metadata = document.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            annotations = metadata.get("annotations") or {}
            is_kept = isinstance(annotations, dict) and annotations.get(KEEP) == "keep"
            (kept if is_kept else unkept).add(str(metadata.get("name", "")))
    return tuple(sorted(kept)), tuple(sorted(unkept))


def latest(releases: Iterable[HelmRelease]) -> tuple[HelmRelease, ...]:
    """The newest revision of each release, which is what `helm uninstall` goes by; those that are uninstalled left out. Sorted."""
    newest: dict[tuple[str, str], HelmRelease] = {}
    for one in sorted(releases, key=lambda each: (each.namespace, each.name, each.version)):
        newest[one.namespace, one.name] = one
    return tuple(one for one in newest.values() if one.status != "uninstalled")
