"""A server that speaks AWS's HTTP and nothing else: each answer is what the test's function returns for (action, form)."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import botocore.session

Answer = tuple[int, bytes]
Respond = Callable[[str, Mapping[str, Any]], Answer]


def error(status: int, code: str, message: str = "") -> Answer:
    """EC2's XML for an error."""
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>r</RequestID></Response>"
    return status, body.encode()


class Server:
    """A running server.

    Attributes:
        calls: the form of every request, in order of arrival.
        headers: the headers of every request.
    """

    def __init__(self, respond: Respond) -> None:
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                sent = self.rfile.read(length).decode()
                target = self.headers.get("X-Amz-Target", "").rpartition(".")[2]  # services that speak JSON
                form = (
                    {**json.loads(sent), "Action": target}
                    if target
                    else {name: values[0] for name, values in parse_qs(sent).items()}
                )
                outer.calls.append(form)
                outer.headers.append(dict(self.headers.items()))
                status, body = respond(form.get("Action", ""), form)
                self.send_response(status)
                self.send_header("Content-Type", "text/xml;charset=UTF-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@contextmanager
def serving(respond: Respond) -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server(respond)
    try:
        yield server
    finally:
        server.stop()


def session(url: str, key: str = "AKIAIOSFODNN7EXAMPLE", secret: str = "wJalrXUtnFEMI") -> botocore.session.Session:
    """A session whose EC2 is at `url`, whatever this machine's own configuration says."""
    made = botocore.session.Session()
    made.set_config_variable("config_file", "/nonexistent")
    made.set_config_variable("credentials_file", "/nonexistent")
    made.set_credentials(key, secret, "FwoGZXIvYXdzEXAMPLETOKEN")
    create = made.create_client

    def to_server(service_name: str, **options: Any) -> Any:
        return create(service_name, **{"endpoint_url": url, **options})

    made.create_client = to_server
    return made
