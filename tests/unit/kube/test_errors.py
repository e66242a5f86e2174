import json
import pickle

import pytest

from provisioner.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    error_from,
)


def status(code: int, reason: str = "", message: str = "no", **details: object) -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or None}
    ).encode()


CASES = {
    "400 is a bad request": (400, "BadRequest", BadRequest),
    "401 is unauthorized": (401, "Unauthorized", Unauthorized),
    "403 is forbidden": (403, "Forbidden", Forbidden),
    "404 is not found": (404, "NotFound", NotFound),
    "409 is a conflict": (409, "Conflict", Conflict),
    "409 with the reason AlreadyExists is that": (409, "AlreadyExists", AlreadyExists),
    "410 is gone": (410, "Expired", Gone),
    "422 is invalid": (422, "Invalid", Invalid),
    "429 is too many requests": (429, "TooManyRequests", TooManyRequests),
    "500 is a server error": (500, "InternalError", ServerError),
    "503 is a server error": (503, "ServiceUnavailable", ServerError),
    "418 is just an error": (418, "Teapot", ApiError),
}


@pytest.mark.parametrize(("code", "reason", "kind"), CASES.values(), ids=CASES)
def test_the_kind_of_an_error_is_its_meaning(code: int, reason: str, kind: type[ApiError]) -> None:
    error = error_from(code, status(code, reason), request="GET /x")
    assert type(error) is kind
    assert (error.status, error.reason, str(error)) == (code, reason, f"GET /x: {code} {reason}: no")


@pytest.mark.parametrize("body", [b"", b"\xff", b"[" * 5000, b'{"message": 5}', b'{"details": ' + b"[" * 5000])
def test_a_refusal_whose_body_cannot_be_read_is_known_by_its_status(body: bytes) -> None:
    assert isinstance(error_from(409, body), Conflict)


def test_a_refused_field_is_named() -> None:
    body = status(422, "Invalid", causes=[{"field": "spec.weight", "message": "too big"}, {"message": "and more"}])
    assert error_from(422, body).causes == ("spec.weight: too big", "and more")


RETRIES = {
    "the header in seconds": ("3", None, 3.0),
    "the header wins over the body": ("3", 7, 3.0),
    "the body where there is no header": (None, 7, 7.0),
    "a date in the header is not understood": ("Wed, 21 Oct 2015 07:28:00 GMT", None, None),
    "neither": (None, None, None),
    "zero in the body is nothing": (None, 0, None),
}


@pytest.mark.parametrize(("header", "details", "want"), RETRIES.values(), ids=RETRIES)
def test_how_long_the_server_asks_to_wait(header: str | None, details: int | None, want: float | None) -> None:
    body = status(429, retryAfterSeconds=details) if details is not None else status(429)
    assert error_from(429, body, retry_after=header).retry_after == want


def test_an_answer_of_a_proxy_is_shown_as_it_is() -> None:
    error = error_from(502, b"<html>bad gateway</html>")
    assert type(error) is ServerError
    assert error.message == "<html>bad gateway</html>"


def test_an_error_event_takes_its_code_from_the_body() -> None:
    assert type(error_from(0, status(410, "Expired"))) is Gone


@pytest.mark.parametrize(
    "error", [error_from(409, status(409, "Conflict")), ConnectionFailed("refused", "GET /x", maybe_applied=True)]
)
def test_an_error_survives_pickling(error: ApiError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), vars(copy), str(copy)) == (type(error), vars(error), str(error))


def test_401_says_what_may_be_wrong_with_the_credentials() -> None:
    error = error_from(401, status(401, "Unauthorized", "Unauthorized"), request="GET /api/v1/pods")
    assert str(error) == (
        "GET /api/v1/pods: 401 Unauthorized: the API server does not accept the credentials; they are wrong or have expired"
    )
