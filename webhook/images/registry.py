"""The registry protocol, as far as it tells what an image was built for: `Registry.look`.

Source: OCI distribution specification 1.1; distribution's token authentication; Docker's image manifest version 2 schema 2.
Differs: manifests of schema 1 are not read.
"""

import hashlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from webhook.images import documents
from webhook.images.documents import Challenge, ImageDocumentError, Login, Platform
from webhook.images.references import Host, Reference, UnusableReferenceError, parse_host
from webhook.images.transport import RegistryReply, TooLargeError, Transport, TransportError
from webhook.images.trust import Trust, endpoint

LOOKUP_SECONDS: Final = 15.0
"""For one image with all its requests."""
MAX_REDIRECTS: Final = 3
MAX_RETRY_AFTER: Final = 3600.0
_TOKEN_BYTES: Final = 64 * 1024
_LONGEST_URL: Final = 8 * 1024
_LONGEST_SERVICE: Final = 256
_ACCEPT: Final = ", ".join((*documents.INDEX_TYPES, *documents.MANIFEST_TYPES))
_REDIRECTS: Final = (301, 302, 303, 307, 308)


class LookupFailedError(Exception):
    """Nothing was learned of an image; the message says why.

    Attributes:
        ours: nobody but the image, its name or its rights is at fault: others of the registry may be looked up.
        retry_after: seconds that the registry asks for, 0 for none.
    """

    def __init__(self, problem: str, *, ours: bool, retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.ours, self.retry_after = ours, retry_after


@dataclass(frozen=True, slots=True)
class FoundImage:
    """What a registry says of an image.

    Attributes:
        platforms: that there is an image for.
        digest: of the document that the reference leads to.
    """

    platforms: frozenset[Platform]
    digest: str


@dataclass
class _Session:
    """The requests of one lookup.

    Attributes:
        authorization: what the registry itself is sent; nobody else is.
    """

    reference: Reference
    login: Callable[[], Login | None]
    deadline: float
    authorization: str = ""


class Registry:
    """Asks registries what images were built for; thread-safe, keeps nothing.

    Args:
        trust: who may be asked, and who may hear credentials.
        monotonic: seconds that never go back.
    """

    def __init__(self, transport: Transport, trust: Trust, monotonic: Callable[[], float]) -> None:
        self._transport, self._trust, self._monotonic = transport, trust, monotonic

    def look(
        self, reference: Reference, login: Callable[[], Login | None], known: FoundImage | None = None
    ) -> FoundImage:
        """What an image was built for.

        Args:
            reference: the image.
            login: asked for the credentials once the registry wants some; None asks for an anonymous token.
            known: what a tag led to before; it is returned where that is so still, for one HEAD, which Docker Hub does not count as a pull.

        Raises:
            LookupFailedError: it is not allowed, not there, not readable, or nobody answers in time.
        """
        if not self._trust.asks(reference.host):
            raise LookupFailedError(f"registry {reference.host} is not in --image-registries", ours=True)
        session = _Session(reference, login, self._monotonic() + LOOKUP_SECONDS)
        try:
            return self._look(session, known)
        except (ImageDocumentError, UnusableReferenceError, TooLargeError) as error:
            raise LookupFailedError(str(error), ours=True) from error
        except TransportError as error:
            raise LookupFailedError(str(error), ours=False) from error

    def _look(self, session: _Session, known: FoundImage | None) -> FoundImage:
        reference = session.reference
        name = quote(reference.repository)
        target, headers = f"/v2/{name}/manifests/{reference.wanted}", {"Accept": _ACCEPT}
        if known is not None:
            reply = self._reply(session, "HEAD", target, headers)
            if reply.status == 200 and reply.headers.get("docker-content-digest") == known.digest:
                return known
            if _is_of_registry(reply.status):
                raise _refusal(reply, reference.host)
        body = self._fetch(session, target, headers, reference.digest)
        digest = reference.digest or f"sha256:{hashlib.sha256(body).hexdigest()}"
        found = documents.platforms_in(body)
        if isinstance(found, str):
            body = self._fetch(session, f"/v2/{name}/blobs/{found}", {"Accept": "*/*"}, found)
            found = frozenset({documents.platform_in(body)})
        return FoundImage(found, digest)

    def _fetch(self, session: _Session, target: str, headers: Mapping[str, str], digest: str) -> bytes:
        """A document of the registry, wherever it is stored; its digest is checked where one is known."""
        reply = self._reply(session, "GET", target, headers)
        if reply.status != 200:
            raise _refusal(reply, session.reference.host)
        _check(reply.body, digest)
        return reply.body

    def _reply(self, session: _Session, method: str, target: str, headers: Mapping[str, str]) -> RegistryReply:
        """What the registry answers once it knows us, or the host that it redirects to."""
        registry = session.reference.host
        own = endpoint(registry)
        reply = self._ask(session, method, own, target, headers)
        if reply.status == 401 and not session.authorization:
            session.authorization = self._authorization(session, reply)
            reply = self._ask(session, method, own, target, headers)
        url = f"https://{own}{target}"
        for _ in range(MAX_REDIRECTS):
            if reply.status not in _REDIRECTS:
                break
            url = urljoin(url, reply.headers.get("location", ""))
            host, path = _split(url)
            if not self._trust.follows(registry, host):
                raise LookupFailedError(
                    f"registry {registry} redirects to {host}, which --image-registries does not allow", ours=True
                )
            reply = self._ask(session, method, host, path, headers)
        return reply

    def _ask(
        self, session: _Session, method: str, host: Host, target: str, headers: Mapping[str, str]
    ) -> RegistryReply:
        """One request; credentials and tokens go to the registry that they are for and to nobody else."""
        if session.authorization and host == endpoint(session.reference.host):
            headers = {**headers, "Authorization": session.authorization}
        return self._transport.ask(method, host, target, headers, documents.MAX_BYTES, session.deadline)

    # ------------------------------------------------------------------ authentication

    def _authorization(self, session: _Session, reply: RegistryReply) -> str:
        found = {one.scheme: one for one in documents.challenges_in(reply.headers.get("www-authenticate", ""))}
        if (bearer := found.get("bearer")) is not None:
            return f"Bearer {self._token(session, bearer)}"
        login = session.login()
        if "basic" not in found or login is None:
            raise LookupFailedError(f"registry {session.reference.host} denies access: no credentials", ours=True)
        return login.header

    def _token(self, session: _Session, challenge: Challenge) -> str:
        registry = session.reference.host
        host, path = _split(challenge.realm)
        if not self._trust.makes_tokens(registry, host):
            raise LookupFailedError(
                f"registry {registry} requests tokens from {host}, which --image-registries does not allow", ours=True
            )
        query = {"scope": f"repository:{session.reference.repository}:pull"}
        if challenge.service:
            query["service"] = challenge.service[:_LONGEST_SERVICE]
        joined = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        login = session.login()
        headers = {"Authorization": login.header} if login is not None else {}
        target = f"{path}{'&' if '?' in path else '?'}{joined}"
        reply = self._transport.ask("GET", host, target, headers, _TOKEN_BYTES, session.deadline)
        if reply.status != 200:
            raise _refusal(reply, registry)
        return documents.token_in(reply.body)


def _split(url: str) -> tuple[Host, str]:
    """Host and target of a URL.

    Raises:
        LookupFailedError: it is not one of HTTPS, or has parts that no registry needs.
    """
    try:
        parts = urlsplit(url)
        host = parse_host(parts.netloc)
    except (ValueError, UnusableReferenceError) as error:
        raise LookupFailedError("the registry names a URL that cannot be read", ours=True) from error
    if parts.scheme != "https":
        raise LookupFailedError(f"the registry names a URL of {host} that is not HTTPS", ours=True)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if len(target) > _LONGEST_URL or not target.isascii() or not target.isprintable() or " " in target:
        raise LookupFailedError(f"the registry names a URL of {host} that cannot be used", ours=True)
    return host, target


def _check(body: bytes, digest: str) -> None:
    if not digest:
        return
    kind, _, wanted = digest.partition(":")
    if hashlib.new(kind, body).hexdigest() != wanted:
        raise LookupFailedError("the registry sent a document that does not match the digest", ours=True)


def _is_of_registry(status: int) -> bool:
    """Whether a status says that the registry itself is busy or broken; any other may be due to the one image, which a tenant chose."""
    return status in (408, 429) or status >= 500


def _refusal(reply: RegistryReply, registry: Host) -> LookupFailedError:
    if reply.status in (401, 403):
        return LookupFailedError(f"registry {registry} denies access ({reply.status})", ours=True)
    if reply.status == 404:
        return LookupFailedError(f"registry {registry} does not have the image", ours=True)
    if not _is_of_registry(reply.status):
        return LookupFailedError(f"registry {registry} answers {reply.status}", ours=True)
    text = reply.headers.get("retry-after", "")
    wait = min(MAX_RETRY_AFTER, float(text)) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0
    return LookupFailedError(f"registry {registry} answers {reply.status}", ours=False, retry_after=wait)


def client_context(ca: str | None) -> ssl.SSLContext:
    """TLS 1.2 or newer, with the system's authorities, or also those in a PEM file.

    Raises:
        OSError: the file cannot be read.
        ssl.SSLError: it holds no certificate.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context.load_verify_locations(cafile=ca)
    return context
