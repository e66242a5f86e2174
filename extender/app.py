"""The routes: HTTP around the verbs.

A message that cannot be read gets an HTTP error only where the protocol has no other way to say so (`preempt`): kube-scheduler
goes on without us then.
"""

from collections.abc import Callable
from http import HTTPStatus

from flask import Flask, Response, request
from werkzeug.exceptions import RequestEntityTooLarge

from extender.answering import Answerer
from extender.protocol import MAX_BODY_BYTES, ExtenderProtocolError
from provisioner.support.http import values

_JSON = "application/json"


def create_app(answerer: Answerer, problem: Callable[[], str], prefix: str = "") -> Flask:
    """The WSGI application.

    Args:
        answerer: answers the verbs.
        problem: what /readyz asks: why this process is not ready, "" when it is.
        prefix: path in front of the verbs, as in the scheduler's `urlPrefix`; "" for none.

    Raises:
        ValueError: the prefix does not begin with a slash, or ends in one.
    """
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise ValueError(f"prefix {prefix!r} must be empty, or begin with / and not end with /")
    app = Flask("dovetail-extender", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES

    def route(verb: str, answer: Callable[[bytes], bytes]) -> None:
        def view() -> Response:
            headers: dict[str, str] = {}
            try:
                try:
                    reply = answer(request.get_data(cache=False))
                except RequestEntityTooLarge:
                    headers["Connection"] = "close"  # the rest of the body is not read
                    reply = answerer.refuse(verb, f"the body is longer than {MAX_BODY_BYTES} bytes")
            except ExtenderProtocolError as error:
                text = f"{error}\n"
                return Response(text, HTTPStatus.BAD_REQUEST, headers, content_type="text/plain; charset=utf-8")
            return Response(reply, headers=headers, content_type=_JSON)

        app.add_url_rule(f"{prefix}/{verb}", verb, view, methods=["POST"])

    route("filter", answerer.filter)
    route("prioritize", answerer.prioritize)
    route("preempt", answerer.preempt)

    def healthz() -> Response:
        return _text(answerer.hung())

    def readyz() -> Response:
        return _text(problem())

    app.add_url_rule("/healthz", "healthz", healthz)
    app.add_url_rule("/readyz", "readyz", readyz)
    return app


def prompt(answerer: Answerer, prefix: str = "") -> values.Prompt:
    """The verbs that kube-scheduler asks for each pod, for the server's own thread; whatever else comes is the application's.

    Args:
        answerer: answers the verbs.
        prefix: as in `create_app`.
    """
    verbs = {f"{prefix}/{verb}": verb for verb in ("filter", "prioritize")}

    def answer(asked: values.HttpRequest) -> values.Response | None:
        verb = verbs.get(asked.target) if asked.method == "POST" else None
        reply = answerer.promptly(verb, asked.body) if verb is not None else None
        return values.Response(HTTPStatus.OK, reply, _JSON) if reply is not None else None

    return answer


def _text(problem: str) -> Response:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
    return Response(f"{problem or 'ok'}\n", status=status, content_type="text/plain; charset=utf-8")
