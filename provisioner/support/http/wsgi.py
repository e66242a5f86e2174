"""WSGI applications (PEP 3333) as handlers: the request is in memory already, and so is the answer."""

import io
import sys
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any, Final

from provisioner.support.http.values import Handler, HttpRequest, Response

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""What Flask makes."""

_OURS: Final = frozenset({"content-length", "content-type", "date"})


def handler(application: Application) -> Handler:
    """Answers requests by asking the application; safe in several threads if that is."""

    def handle(request: HttpRequest) -> Response:
        given: list[Any] = ["", []]
        written: list[bytes] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:  # noqa: ARG001 - WSGI has it
            given[:] = status, headers
            return written.append

        answer = application(environ(request), start_response)
        try:
            written.extend(answer)
        finally:
            close = getattr(answer, "close", None)
            if close is not None:
                close()
        status, headers = given
        content_type = next((value for name, value in headers if name.lower() == "content-type"), "")
        others = [(name, value) for name, value in headers if name.lower() not in _OURS]
        return Response(int(status.split(" ", 1)[0]), b"".join(written), content_type, others)

    return handle


def environ(request: HttpRequest) -> dict[str, Any]:
    """The request in WSGI's words.

    A header with an underscore in its name is left out: it would be taken for the one with a dash.
    """
    target = request.target
    if not target.startswith("/"):  # http://host/path, as to a proxy; * of OPTIONS is left as it is
        parts = urllib.parse.urlsplit(target)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")) if parts.scheme else target
    path, _, query = target.partition("?")
    made: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": urllib.parse.unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": request.server[0] or "localhost",
        "SERVER_PORT": request.server[1] or "0",
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "REMOTE_ADDR": request.client[0],
        "REMOTE_PORT": request.client[1],
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name == "content-type":
            made["CONTENT_TYPE"] = value
        elif name != "content-length" and "_" not in name:
            key = f"HTTP_{name.upper().replace('-', '_')}"
            made[key] = f"{made[key]},{value}" if key in made else value
    return made
