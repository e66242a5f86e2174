"""The HTTP server of the leader that answers `dovetail why`: GET /why/pod/NAMESPACE/NAME and GET /why/node/NAME, on the loopback of its pod only.
Other rooms add paths of their own (`routes`): the live page.

A port-forward through the API server ends on the loopback of the pod, and nothing else of the network does. Who asks brings the token that the
API server knows them by, and is answered about what they may `get`, without the names of pods that they may not `list`.
"""

import functools
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from provisioner.kube.lease import LostLease
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.http.server import HttpServer, listen
from provisioner.support.http.values import HttpRequest, Limits, Response
from provisioner.support.metrics import counter
from provisioner.why.access import Access, AccessError, Right, User
from provisioner.why.answers import NodeAnswer, PodAnswer
from provisioner.why.instant import Instant, NoSuchObjectError, namespaces_at
from provisioner.why.limits import Quota
from provisioner.why.nodes import why_node
from provisioner.why.pods import why_pod
from provisioner.why.visibility import NotHiddenError, namespaces_in, namespaces_of, node_for, pod_for

LOOPBACK: Final = "127.0.0.1"
LIMITS: Final = Limits(
    connections=32,
    first_request_seconds=5.0,
    request_seconds=5.0,
    answer_seconds=20.0,
    taking_seconds=30.0,
    idle_seconds=10.0,
    waiting=8,
    body_bytes=0,
    held_bytes=1024,
)
THREADS: Final = 2
TURN_SECONDS: Final = 5.0
"""A question waits so long for the one before it; one is answered at a time."""
QUESTIONS: Final = (0.5, 10.0)
"""Of one user a second, and at once."""
USER_TIME, WHOLE_TIME = (0.05, 10.0), (0.2, 30.0)
"""Seconds of the leader's time a second, and at once: for one user, and for all together."""
MOST_NAMESPACES: Final = 32
"""Of the pods of a node; whoever sees not all namespaces is asked about so many, and sees no pods of the others."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME: Final = rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"
_POD: Final = re.compile(rf"/why/pod/({_LABEL})/({_NAME})")
_NODE: Final = re.compile(rf"/why/node/({_NAME})")
_PLACES: Final = "ask for /why/pod/NAMESPACE/NAME or /why/node/NAME"
_REQUESTS: Final = counter(
    "dovetail_why_requests_total", "Questions of `dovetail why` to this replica, by status of the answer.", ("status",)
)
_log = logs.get_logger(__name__)
_TOO_MANY: Final = "too many requests"
_ANSWER_FAILED: Final = "Failed to answer a request of dovetail why"


@dataclass(frozen=True, slots=True)
class WhyRequest:
    """What a path asks about; without a namespace it is a node."""

    name: str
    namespace: str = ""


def asked(target: str) -> WhyRequest | None:
    """What a target asks about; None where it is none of ours. Nothing is decoded, so no character has two ways to be written."""
    if (pod := _POD.fullmatch(target)) is not None:
        return WhyRequest(pod[2], pod[1])
    node = _NODE.fullmatch(target)
    return WhyRequest(node[1]) if node is not None else None


Route = Callable[[HttpRequest, User, Instant], Response]
"""Answers somebody about an instant; raises AccessError and LostLease."""


class WhyServer:
    """Answers with JSON: an answer (`answers`), or {"error": ..., "leader": ...}. One question at a time.

    Args:
        port: of the loopback; 0 takes a free one, see `port`.
        instant: the leader's present; None where this process does not lead.
        holder: the identity of whoever leads, as far as this process knows; "" for nobody.
        access: who asks, and what they may see.
        clock: of the time.
        routes: by path, what else is answered; who asks too often is refused there, too.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self,
        port: int,
        instant: Callable[[], Instant | None],
        holder: Callable[[], str],
        access: Access,
        clock: Clock,
        routes: Mapping[str, Route] | None = None,
    ) -> None:
        self._routes = routes or {}
        self._instant, self._holder, self._access = instant, holder, access
        self._turn = threading.Lock()
        self._questions = Quota(*QUESTIONS, clock)
        self._user_time, self._whole_time = Quota(*USER_TIME, clock), Quota(*WHOLE_TIME, clock)
        self._server = HttpServer("why", [listen(LOOPBACK, port)], self.handle, limits=LIMITS, threads=THREADS)

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0.0)

    def handle(self, request: HttpRequest) -> Response:
        response = self._handled(request)
        _REQUESTS.labels(str(int(response.status))).inc()
        return response

    def _handled(self, request: HttpRequest) -> Response:
        if request.method != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET", headers=[("allow", "GET")])
        about = asked(request.target)
        route = self._routes.get(request.path) if about is None else functools.partial(self._answered, about)
        if route is None:
            return _refusal(HTTPStatus.NOT_FOUND, _PLACES)
        try:
            instant = self._instant()
            if instant is None:
                return self._elsewhere()
            user = self._access.user(_authorization(request))
            if wait := self._questions.take(user.name):  # before any review: they are everybody's
                return _refusal(HTTPStatus.TOO_MANY_REQUESTS, _TOO_MANY, wait)
            response = route(request, user, instant)
        except LostLease:
            return self._elsewhere()
        except AccessError as error:
            return _refusal(error.status, error.text, error.retry_after)
        _log.info(
            "Answered a request of dovetail why",
            user=user.name,
            namespace=about.namespace if about is not None else "",
            name=about.name if about is not None else request.path,
            status=int(response.status),
        )
        return response

    def _elsewhere(self) -> Response:
        text = "this replica does not lead, and only the one that leads can answer"
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, 2.0, leader=self._holder())

    def _answered(self, about: WhyRequest, request: HttpRequest, user: User, instant: Instant) -> Response:  # noqa: ARG002 - a route's
        if wait := max(self._user_time.wait(user.name), self._whole_time.wait()):
            return _refusal(HTTPStatus.TOO_MANY_REQUESTS, _TOO_MANY, wait)
        kinds = self._rights(about, user)
        if not any(kinds):
            what = f"pod {about.namespace}/{about.name}" if about.namespace else f"node {about.name}"
            return _refusal(HTTPStatus.FORBIDDEN, f"{user.name} may not get {what}")
        if not self._turn.acquire(timeout=TURN_SECONDS):
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "other requests are being answered", 2.0)
        began = time.monotonic()
        try:
            answer = self._made(about, instant, kinds)
        except NoSuchObjectError as error:
            return _refusal(HTTPStatus.NOT_FOUND, str(error))
        except LostLease:
            raise
        except Exception:  # noqa: BLE001 - what it says may name what is not to be seen
            _log.exception(_ANSWER_FAILED, namespace=about.namespace, name=about.name)
            return _refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be computed; see the provisioner's log"
            )
        finally:
            self._turn.release()
            seconds = time.monotonic() - began
            self._user_time.charge(user.name, seconds)
            self._whole_time.charge("", seconds)
        try:
            seen = self._seen(answer, user, instant)
        except NotHiddenError:
            _log.exception(_ANSWER_FAILED, namespace=about.namespace, name=about.name)
            return _refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be computed; see the provisioner's log"
            )
        return Response(HTTPStatus.OK, msgspec.json.encode(seen), "application/json")

    def _rights(self, about: WhyRequest, user: User) -> tuple[bool, bool]:
        """Whether the pod or Node of the name may be read, and whether the NodeClaim of the name may be."""
        may = self._access.may
        if about.namespace:
            return may(user, Right("get", "pods", namespace=about.namespace, name=about.name)), False
        return (
            may(user, Right("get", "nodes", name=about.name)),
            may(user, Right("get", "nodeclaims", "karpenter.sh", name=about.name)),
        )

    def _made(self, about: WhyRequest, instant: Instant, kinds: tuple[bool, bool]) -> PodAnswer | NodeAnswer:
        if about.namespace:
            return why_pod(instant, about.namespace, about.name)
        nodes, claims = kinds
        return why_node(instant, about.name, nodes=nodes, claims=claims)

    def _seen(self, answer: PodAnswer | NodeAnswer, user: User, instant: Instant) -> PodAnswer | NodeAnswer:
        if isinstance(answer, PodAnswer):
            namespace = answer.pod.partition("/")[0]
            others = namespaces_at(instant.snapshot) - {namespace}
            return pod_for(answer, others.__contains__)
        may = self._access.may
        if may(user, Right("list", "pods")):
            return answer
        first = sorted({space for pod in answer.pods for space in namespaces_in(pod)})
        asked_about = [*first, *sorted(namespaces_of(answer) - set(first))][:MOST_NAMESPACES]
        visible = {one for one in asked_about if may(user, Right("list", "pods", namespace=one))}
        return node_for(answer, lambda space: space not in visible)


def _authorization(request: HttpRequest) -> str | None:
    found = [value for name, value in request.headers if name == b"authorization"]
    return found[0].decode("latin-1") if len(found) == 1 else None


def _refusal(
    status: HTTPStatus,
    text: str,
    retry_after: float | None = None,
    *,
    leader: str = "",
    headers: list[tuple[str, str]] | None = None,
) -> Response:
    body: dict[str, Any] = {"error": text}
    if leader:
        body["leader"] = leader
    more = list(headers or ())
    if status == HTTPStatus.UNAUTHORIZED:
        more.append(("www-authenticate", "Bearer"))
    if retry_after is not None:
        more.append(("retry-after", str(max(1, math.ceil(retry_after)))))
    return Response(status, msgspec.json.encode(body), "application/json", more)
