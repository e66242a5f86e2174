"""Certificates for the two ends of one connection, each in a Secret of its own, from the first mint to every renewal.

The programs have them as files (a volume) and read nothing else, so neither end needs a right to Secrets; the one writer needs to get and
patch these two. A CA signs one leaf for each end and its key is forgotten, as in `certs.store`. A renewal goes in steps, each long
enough apart for every kubelet to bring it (`SETTLE_SECONDS`), and what is done next follows from the Secrets alone:

1. **Stage**: the new leaves lie beside the ones in use (`next.crt`, `next.key`), and both ends trust the new CA too (`ca.crt`).
2. **Move**: the new leaves take the place of the old ones, after `MutualPeers.staged_for` at the soonest.
3. **Prune**: both ends trust only who signed the leaves in use.

Where no connection can succeed anyway (nothing there, expired, damaged), all is minted at once. A Secret with content that this program did
not put there (cert-manager's, say) is never written.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography.exceptions import InvalidSignature

from certs.authority import Authority, CertificateError, Pair, parse_certificate
from certs.injection import certificates, merge
from certs.store import (
    ANOTHER_WRITER_WAS_FASTER,
    CA_KEY,
    CERT_KEY,
    LEAF_DAYS,
    PRIVATE_KEY,
    Material,
    SecretNames,
    fault,
    is_kept_by_cert_manager,
    renew_at,
)
from provisioner.apis import names as api_names
from provisioner.apis.core import Secret
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict, Forbidden
from provisioner.kube.resources import SECRETS
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.message import Said

NEXT_CERT: Final = "next.crt"
NEXT_KEY: Final = "next.key"
SETTLE_SECONDS: Final = 300.0
"""A kubelet looks at a Secret's volume once in one to two minutes."""
ROUND_SECONDS: Final = 30.0
REST_SECONDS: Final = 600.0
ABSENT_SECONDS: Final = 60.0
"""Whoever makes the Secrets waits for what is put in."""

_log = logs.get_logger(__name__)


@dataclass(frozen=True)
class Peer:
    """One end of the connection: the name of its Secret, and what its peer expects to find in its certificate."""

    secret: str
    names: SecretNames


@dataclass(frozen=True)
class MutualPeers:
    """Both ends.

    Attributes:
        authority: what the CA between them is called.
        staged_for: so long new leaves lie beside those in use at the least, where an end reads the CA only when it starts.
    """

    server: Peer
    client: Peer
    authority: str
    staged_for: timedelta = timedelta()


class Act(enum.Enum):
    """What is to be done about the two Secrets."""

    REST = enum.auto()
    MINT = enum.auto()
    STAGE = enum.auto()
    MOVE = enum.auto()
    PRUNE = enum.auto()


@dataclass(frozen=True)
class RotationDecision:
    """An act, with its reason as a sentence."""

    act: Act
    reason: str = ""


# --- decisions, pure ------------------------------------------------------------------------------------------------


def is_ours(secret: Secret) -> bool:
    """Whether this program may write a Secret: it holds nothing, or the leaf that this program put there.

    `kubectl apply` of other content keeps our annotation, so the annotation says which leaf it is about. A leaf that cannot be read
    serves nobody: with our annotation it is a damaged one of ours.
    """
    if is_kept_by_cert_manager(secret):
        return False
    if not secret.data:
        return True
    written = secret.metadata.annotations.get(api_names.ROTATED_ANNOTATION)
    leaf = secret.data.get(CERT_KEY, b"")
    return written is not None and (written == _fingerprint(leaf) or not certificates(leaf))


def decide(ends: MutualPeers, server: Secret, client: Secret, now: datetime, unchanged: float) -> RotationDecision:
    """What to do next.

    Args:
        ends: what both need.
        server: Secret of the one end, as it is now.
        client: that of the other.
        now: aware.
        unchanged: seconds for which both were seen as they are.
    """
    for end, secret in ((ends.server, server), (ends.client, client)):
        if not is_ours(secret):
            return RotationDecision(Act.REST, f"Secret {end.secret} has a certificate that Dovetail did not issue")
    sides = ((ends.server, server, client), (ends.client, client, server))
    for end, own, peer in sides:
        if problem := _problem(own, peer, CERT_KEY, PRIVATE_KEY, end.names, now):
            return RotationDecision(Act.MINT, f"Secret {end.secret}: {problem}")
    staged = [(end, own, peer) for end, own, peer in sides if NEXT_CERT in own.data or NEXT_KEY in own.data]
    for end, own, peer in staged:
        if problem := _problem(own, peer, NEXT_CERT, NEXT_KEY, end.names, now):
            return RotationDecision(Act.STAGE, f"Secret {end.secret}: {problem}")
    if staged:
        lain = min(now - parse_certificate(own.data[NEXT_CERT]).not_valid_before_utc for _, own, _ in staged)
        return RotationDecision(Act.MOVE if unchanged >= SETTLE_SECONDS and lain >= ends.staged_for else Act.REST)
    for _, own, peer in sides:
        due = renew_at(_material(own, peer, CERT_KEY, PRIVATE_KEY))
        if now >= due:
            return RotationDecision(Act.STAGE, f"it was due at {due.isoformat()}")
    wanted = certificates(_signers(server, client)).keys()
    surplus = any(certificates(one.data.get(CA_KEY, b"")).keys() != wanted for one in (server, client))
    return RotationDecision(Act.PRUNE if surplus and unchanged >= SETTLE_SECONDS else Act.REST)


def changes(
    act: Act, ends: MutualPeers, server: Secret, client: Secret, now: datetime
) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
    """What an act puts into the `data` of the two Secrets; None takes a key out.

    Raises:
        CertificateError: names that make no certificate.
    """
    match act:
        case Act.MINT | Act.STAGE:
            authority = Authority.create(ends.authority, now, LEAF_DAYS + 1)
            serves = authority.issue_server(ends.server.names.dns, ends.server.names.addresses, now, LEAF_DAYS)
            known_as = ends.client.names.dns
            asks = authority.issue_client(known_as[0], (), now, LEAF_DAYS, dns_names=known_as)
            if act is Act.MINT:
                return _minted(serves, authority.certificate_pem), _minted(asks, authority.certificate_pem)
            bundle = merge([_signers(server, client), authority.certificate_pem])
            return _staged(serves, bundle), _staged(asks, bundle)
        case Act.MOVE:
            return _moved(server), _moved(client)
        case Act.PRUNE:
            bundle = merge([_signers(server, client)])
            return {CA_KEY: bundle}, {CA_KEY: bundle}
        case Act.REST:
            return {}, {}


def _minted(pair: Pair, bundle: bytes) -> dict[str, bytes | None]:
    return {CERT_KEY: pair.cert_pem, PRIVATE_KEY: pair.key_pem, CA_KEY: bundle, NEXT_CERT: None, NEXT_KEY: None}


def _staged(pair: Pair, bundle: bytes) -> dict[str, bytes | None]:
    return {NEXT_CERT: pair.cert_pem, NEXT_KEY: pair.key_pem, CA_KEY: bundle}


def _moved(secret: Secret) -> dict[str, bytes | None]:
    if NEXT_CERT not in secret.data:
        return {}
    return {
        CERT_KEY: secret.data[NEXT_CERT],
        PRIVATE_KEY: secret.data[NEXT_KEY],
        NEXT_CERT: None,
        NEXT_KEY: None,
    }


def _material(own: Secret, peer: Secret, cert_key: str, private_key: str) -> Material:
    """A leaf of one end, with that certificate which its peer trusts and which signed it; empty where there is none."""
    leaf = own.data.get(cert_key, b"")
    return Material(leaf, own.data.get(private_key, b""), _signer(leaf, peer.data.get(CA_KEY, b"")))


def _problem(own: Secret, peer: Secret, cert_key: str, private_key: str, names: SecretNames, now: datetime) -> str:
    """Why the peer would refuse a leaf, as a sentence; "" where it would not."""
    if not own.data.get(cert_key) or not own.data.get(private_key):
        return f"it has no {cert_key} or no {private_key}"
    material = _material(own, peer, cert_key, private_key)
    return fault(material, names, now) if material.ca_pem else f"the other end does not trust its {cert_key}"


def _fingerprint(leaf_pem: bytes) -> str:
    return Material(leaf_pem, b"", b"").fingerprint


def _is_under_way(secret: Secret) -> bool:
    return NEXT_CERT in secret.data or len(certificates(secret.data.get(CA_KEY, b""))) > 1


def _signer(leaf_pem: bytes, bundle: bytes) -> bytes:
    for pem in certificates(bundle).values():
        try:
            parse_certificate(leaf_pem).verify_directly_issued_by(parse_certificate(pem))
        except (CertificateError, ValueError, TypeError, InvalidSignature):
            continue
        return pem
    return b""


def _signers(server: Secret, client: Secret) -> bytes:
    """Who signed the leaves in use."""
    mine = _material(server, client, CERT_KEY, PRIVATE_KEY).ca_pem
    return mine + _material(client, server, CERT_KEY, PRIVATE_KEY).ca_pem


# --- the shell ------------------------------------------------------------------------------------------------------


class MutualRotation:
    """Carries out what `decide` says; one at a time in the cluster, so its owner is a leader.

    Args:
        client: of the leader; RBAC: get and patch the two Secrets.
        clock: for certificates, and for how long nothing changed.
    """

    def __init__(self, client: Client, clock: Clock, namespace: str, ends: MutualPeers) -> None:
        self._client, self._clock, self._namespace, self._ends = client, clock, namespace, ends
        self._secrets: Final = f"{ends.server.secret}, {ends.client.secret}"
        self._seen: tuple[tuple[str, ...], float] = ((), 0.0)
        self._said = ""

    def poll(self) -> float:
        """One round; seconds until the next.

        Raises:
            ApiError: the server refused.
            CertificateError: the names make no certificate.
        """
        try:
            server = self._client.find(SECRETS, self._ends.server.secret, self._namespace)
            client = self._client.find(SECRETS, self._ends.client.secret, self._namespace)
        except Forbidden as error:
            self._say(str(error))
            return REST_SECONDS
        if server is None or client is None:
            self._say(self._half(server, client))
            return ABSENT_SECONDS
        versions = (server.metadata.resource_version, client.metadata.resource_version)
        if versions != self._seen[0]:
            self._seen = (versions, self._clock.monotonic())
        now = self._clock.now()
        decision = decide(self._ends, server, client, now, self._clock.monotonic() - self._seen[1])
        self._say(decision.reason if decision.act is Act.REST else "")
        if decision.act is not Act.REST:
            self._carry_out(decision, server, client, now)
        rests = decision.act is Act.REST and not any(_is_under_way(one) for one in (server, client))
        return REST_SECONDS if rests else ROUND_SECONDS

    def _half(self, server: Secret | None, client: Secret | None) -> str:
        """What is wrong where one Secret is there without the other, "" where neither is: they are optional."""
        if server is None and client is None:
            return ""
        secrets = self._ends.server.secret, self._ends.client.secret
        lacking, there = secrets if server is None else secrets[::-1]
        return Said(
            f"Secret {self._namespace}/{lacking} does not exist, so Secret {there} gets no certificate; create it "
            "empty, or apply the manifests again"
        )

    def _carry_out(self, decision: RotationDecision, server: Secret, client: Secret, now: datetime) -> None:
        ours, theirs = changes(decision.act, self._ends, server, client, now)
        try:
            self._write(server, ours)
            self._write(client, theirs)
        except Conflict as error:
            _log.info(ANOTHER_WRITER_WAS_FASTER, step=decision.act.name.lower(), error=str(error))
            return
        _log.info(
            "Rotated the certificates of both ends of a connection",
            secrets=self._secrets,
            step=decision.act.name.lower(),
            reason=decision.reason,
        )

    def _write(self, old: Secret, data: Mapping[str, bytes | None]) -> None:
        if not data:
            return
        leaf = data.get(CERT_KEY) or old.data.get(CERT_KEY, b"")
        metadata = {
            "resourceVersion": old.metadata.resource_version,
            "annotations": {api_names.ROTATED_ANNOTATION: _fingerprint(leaf)},
        }
        self._client.patch(SECRETS, old.metadata.name, {"metadata": metadata, "data": data}, self._namespace)

    def _say(self, reason: str) -> None:
        if reason and reason != self._said:
            _log.info(
                "Not rotating the certificates of both ends of a connection", secrets=self._secrets, reason=reason
            )
        self._said = reason
