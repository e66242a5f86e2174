"""Texts that `support/http` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# server.py
CONNECTION_FAILED: Final = "Connection failed"
FAILED_TO_ACCEPT_CONNECTION: Final = "Failed to accept a connection"
CLOSED_CONNECTION: Final = "Closed a connection"
TLS_HANDSHAKE_FAILED: Final = "TLS handshake failed"
REFUSED_REQUEST: Final = "Refused a request"
REQUEST_FAILED: Final = "Request failed"
FAILED_TO_SEND_RESPONSE: Final = "Failed to send a response"
REQUEST_NOT_ANSWERED_IN_TIME: Final = "A request was not answered in time"
WAITED_FOR_THREAD: Final = "the request was waiting for a thread"
HANDLER_NOT_FINISHED: Final = "the handler has not finished"

# connection.py


BODY_BROKE_OFF: Final = "the peer ended the connection in the middle of a body"
LENGTH_REQUIRED: Final = "bodies with Transfer-Encoding are not supported; send Content-Length"


def body_too_long(most: int) -> str:
    return f"the body is longer than {most} bytes"


# server.py


def cannot_listen(where: str, port: int, strerror: object) -> str:
    return f"cannot listen on {where}:{port}: {strerror}"


def server_has_ended(server: str) -> str:
    return f"the server {server} has ended"


def server_closed_connection(server: str) -> str:
    return f"the server {server} closed the connection without a response"
