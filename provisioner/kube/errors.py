"""What the API server may answer, as one family of errors by meaning; never the HTTP library's own.

Each carries the numbers of the answer, and says through its class what the caller should do.
"""
# ruff: noqa: N818  (named as Kubernetes names its reasons)

import msgspec

from provisioner.values import jsontext
from provisioner.values.errors import ExitStatus, UserError
from provisioner.values.message import Said


class ApiError(Exception):
    """A request that did not succeed.

    Attributes:
        status: HTTP status; 0 when there was no answer.
        reason: Kubernetes' machine-readable reason, e.g. "AlreadyExists"; may be "".
        message: the server's sentence.
        retry_after: seconds that the server asked to wait; None when it did not.
        request: method and path, e.g. "PATCH /api/v1/nodes/a".
        causes: the fields that were refused, as "field: sentence" (of 422 answers).
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        request: str = "",
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(status, reason, message, retry_after, request, causes)
        self.status, self.reason, self.message = status, reason, message
        self.retry_after, self.request, self.causes = retry_after, request, causes

    def __str__(self) -> str:
        what = f"{self.request}: " if self.request else ""
        head = (
            f"{self.status} {self.reason}".strip() if self.status else ""
        )  # without an answer there is no reason of the server
        return f"{what}{head}: {self.message}" if head else f"{what}{self.message}"


class BadRequest(ApiError):
    """400: the request itself makes no sense to this server."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: the role lacks a rule, or admission refused."""


class NotFound(ApiError):
    """404: no such object, or no such kind (the CRD is not installed)."""


class Conflict(ApiError):
    """409: the object changed since it was read, or the precondition (uid, resourceVersion) does not hold."""


class AlreadyExists(Conflict):
    """409 AlreadyExists: an object of this name is there already."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema; `causes` names the fields."""


class TooManyRequests(ApiError):
    """429: the server is overloaded, or (eviction) a PodDisruptionBudget forbids it now."""

    @property
    def by_budget(self) -> bool:
        """Whether it is a PodDisruptionBudget."""
        return "disruption budget" in self.message


class ServerError(ApiError):
    """5xx: the server or something between failed; the request may or may not have been carried out."""


class ConnectionFailed(ApiError):
    """No answer: refused, reset, timed out, or TLS failed.

    Attributes:
        maybe_applied: whether the request may have reached the server.
    """

    def __init__(self, message: str, request: str = "", *, maybe_applied: bool = False) -> None:
        super().__init__(0, "ConnectionFailed", message, None, request)
        self.maybe_applied = maybe_applied

    def __reduce__(self) -> tuple[object, ...]:
        return (_connection_failed, (self.message, self.request, self.maybe_applied))


def _connection_failed(message: str, request: str, maybe_applied: bool) -> ConnectionFailed:
    return ConnectionFailed(message, request, maybe_applied=maybe_applied)


class ConfigError(UserError):
    """The connection cannot be set up: the kubeconfig is missing, wrong or has no usable credentials."""


class CredentialsError(ConfigError):
    """The kubeconfig is right, and what it names as the source of credentials gives none now."""

    exit_status = ExitStatus.UNDETERMINED


class DecodeError(ApiError):
    """The server's answer is no object of the expected kind; status is that of the answer."""


class StatusCause(msgspec.Struct, frozen=True, gc=False):
    """One refused field of a Status."""

    field: str = ""
    message: str = ""
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, gc=False):
    """What a Status says beyond its sentence."""

    causes: tuple[StatusCause, ...] | None = None
    retryAfterSeconds: float | None = None  # noqa: N815  (wire name)


class Status(msgspec.Struct, frozen=True, gc=False):
    """The body of a refusal (meta/v1 Status), as far as we read it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_decode_status = jsontext.decoder(Status)
_MAX_TEXT = 400


def error_from(status: int, body: bytes, *, retry_after: str | None = None, request: str = "") -> ApiError:
    """The typed error of one refused request.

    Args:
        status: HTTP status, or the code inside a watch's ERROR event.
        body: a Status in JSON, or whatever a proxy on the way said.
        retry_after: the header's text; only its form in seconds is understood.
        request: method and path, for the message.
    """
    try:
        answer = _decode_status(body)
    except msgspec.DecodeError:
        answer = Status()
    code = status or answer.code
    details = answer.details or StatusDetails()
    causes = tuple(
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in details.causes or ()
    )
    message = answer.message or body[:_MAX_TEXT].decode(errors="replace").strip() or "no message"
    if message == answer.reason == "Unauthorized":  # all that the API server says
        message = Said("the API server does not accept the credentials; they are wrong or have expired")
    kind = (
        AlreadyExists
        if answer.reason == "AlreadyExists"
        else _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    )
    if answer.reason in ("Expired", "Gone"):
        kind = Gone
    return kind(code, answer.reason, message, _seconds(retry_after, details.retryAfterSeconds), request, causes)


def _seconds(header: str | None, details: float | None) -> float | None:
    if header is not None and header.strip().isdigit():
        return float(header.strip())
    return details or None
