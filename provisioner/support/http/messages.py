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
