"""A request in WSGI's words, and the way back."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from flask import Flask, request

from provisioner.support.http.values import HttpRequest
from provisioner.support.http.wsgi import environ, handler


def test_what_an_application_is_told() -> None:
    made = environ(
        HttpRequest(
            "POST",
            "/a%20b%C3%A4/c?d=%20e",
            [
                (b"host", b"x"),
                (b"content-type", b"application/json"),
                (b"content-length", b"999"),
                (b"x-two", b"1"),
                (b"x-two", b"2"),
                (b"x_two", b"3"),
            ],
            b"body",
            "1.1",
            "https",
            ("10.0.0.1", "1"),
            ("10.0.0.2", "2"),
        )
    )
    assert made["wsgi.input"].read() == b"body"
    wanted = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/a b\u00c3\u00a4/c",  # latin-1, as PEP 3333 wants it
        "QUERY_STRING": "d=%20e",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "4",
        "HTTP_HOST": "x",
        "HTTP_X_TWO": "1,2",
        "REMOTE_ADDR": "10.0.0.1",
        "SERVER_NAME": "10.0.0.2",
        "SERVER_PORT": "2",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "https",
    }
    assert {name: made[name] for name in wanted} == wanted
    assert "HTTP_CONTENT_LENGTH" not in made


TARGETS = {
    "a path": ("/a?b", "/a", "b"),
    "a whole URL": ("http://elsewhere/a?b", "/a", "b"),
    "a URL without a path": ("http://elsewhere", "/", ""),
    "two slashes, which are no host": ("//a/b", "//a/b", ""),
    "a star": ("*", "*", ""),
}


@pytest.mark.parametrize(("target", "path", "query"), TARGETS.values(), ids=TARGETS.keys())
def test_where_a_request_goes(target: str, path: str, query: str) -> None:
    made = environ(HttpRequest("GET", target))
    assert (made["PATH_INFO"], made["QUERY_STRING"]) == (path, query)


def test_a_flask_application_is_asked() -> None:
    app = Flask("test", static_folder=None)

    @app.post("/echo")
    def echo() -> tuple[bytes, int, dict[str, str]]:
        return request.get_data() + request.args["more"].encode(), 201, {"X-Own": "1", "Connection": "close"}

    answer = handler(app)(HttpRequest("POST", "/echo?more=!", body=b"abc"))
    assert (answer.status, answer.body, answer.content_type) == (201, b"abc!", "text/html; charset=utf-8")
    assert answer.headers == [("X-Own", "1"), ("Connection", "close")]
    assert handler(app)(HttpRequest("GET", "/nowhere")).status == 404


def test_an_answer_in_parts_is_joined_and_closed() -> None:
    closed = []

    class Parts:
        def __iter__(self) -> Iterator[bytes]:
            return iter((b"b", b"c"))

        def close(self) -> None:
            closed.append(True)

    def application(_: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 Very well", [])(b"a")
        return Parts()

    answer = handler(application)(HttpRequest("GET", "/"))
    assert (answer.status, answer.body, closed) == (200, b"abc", [True])
