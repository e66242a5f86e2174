"""How we call AWS: one botocore session, one client a service, and one policy for all of them.

Every attempt of every call waits for a token of its service and class before it is signed, counts, and is timed. Retries are botocore's
("standard" mode, with its retry quota); that one of them may have had its effect is noted on the last answer (`errors.note_maybe_done`), because the
last answer alone, a throttle after a timeout, would not tell. Describing calls whose answers are big come as raw pages (`AwsClients.rows`), because botocore's
parser needs seconds for them.

Logs: botocore, boto3 and urllib3 never log below INFO (`quiet_libraries`), because at DEBUG they write requests out in full, user data and
signatures included.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import botocore.session
from botocore import xform_name
from botocore.config import Config

from provisioner.ec2.access.errors import THROTTLES, classify, classify_exception, is_denied, note_maybe_done
from provisioner.kube.limits import TokenBucket
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter, histogram

R = TypeVar("R")

MUTATING: Final = "mutating"
DESCRIBING: Final = "describing"
QUEUE: Final = "queue"

FILTER_VALUES: Final = 200
"""EC2 takes no more values in one filter."""

RAW: Final = "DovetailPage"
"""The member of an answer that holds its page unparsed, for `RAW_OPERATIONS`."""

RAW_OPERATIONS: Final = frozenset(
    {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory"}
)
"""EC2's actions whose answers our clients never parse; read them with `AwsClients.rows`."""

_READING: Final = ("Describe", "Get", "List", "Search", "Simulate", "Lookup")
_LIBRARIES: Final = ("botocore", "boto3", "urllib3", "s3transfer")
_STARTED: Final = "dovetail_started"
_ATTEMPTED: Final = "dovetail_attempted"
_MAYBE_DONE: Final = "dovetail_maybe_done"
_ONCE: Final = "once"  # no name of a region
_RETRY_BUCKETS: Final = tuple(float(retries) for retries in range(11))

_CALLS: Final = ("service", "action", "code")
REQUESTS = counter("aws_sdk_go_request_total", "Calls to AWS services; retries are not counted separately.", _CALLS)
REQUEST_SECONDS = histogram(
    "aws_sdk_go_request_duration_seconds", "Duration of calls to AWS services, including waits and retries.", _CALLS
)
RETRIES = histogram("aws_sdk_go_request_retry_count", "Retries per call to an AWS service.", _CALLS, _RETRY_BUCKETS)
ATTEMPTS = counter("aws_sdk_go_request_attempt_total", "Attempts to call AWS services, including retries.", _CALLS)
ATTEMPT_SECONDS = histogram(
    "aws_sdk_go_request_attempt_duration_seconds", "Duration of one attempt to call an AWS service.", _CALLS
)
THROTTLED = counter("dovetail_aws_throttles_total", "Attempts that AWS throttled.", ("service", "action"))
DENIED = counter(
    "dovetail_aws_denials_total", "Attempts that AWS refused for lack of permission.", ("service", "action")
)
WAITS = histogram(
    "dovetail_aws_token_wait_seconds",
    "Time that a call waited for the client-side rate limiter.",
    ("service", "class"),
)


@dataclass(frozen=True, slots=True)
class CallRate:
    """So many calls a second over a longer time, and so many at once. A rate of 0 is no limit."""

    per_second: float
    burst: int


@dataclass(frozen=True)
class CallPolicy:
    """How AWS is called.

    Attributes:
        region: of every client, unless one is asked for by another region (the Pricing API).
        rates: by class of calls; each service has buckets of its own.
        concurrency: how many calls run at once, so how many connections a client keeps.
        connect_timeout: seconds; a service that cannot be reached is known soon.
        read_timeout: seconds; more than the longest answer: a fleet of hundreds, a queue that is waited on.
        attempts: per call, the first one included.
    """

    region: str
    rates: Mapping[str, CallRate] = field(
        default_factory=lambda: {MUTATING: CallRate(5, 50), DESCRIBING: CallRate(20, 100), QUEUE: CallRate(50, 100)}
    )
    concurrency: int = 64
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    attempts: int = 4
    user_agent: str = "dovetail"

    def config(self) -> Config:
        """The same as botocore's client configuration."""
        return Config(
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            max_pool_connections=self.concurrency,
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            tcp_keepalive=True,
            user_agent_extra=self.user_agent,
        )


class Clients(Protocol):
    """Where clients of AWS come from: `AwsClients`."""

    def client(self, service: str, region: str = "") -> Any:
        """The client of a service."""
        ...


class AwsClients:
    """The clients of all services, each made once, all of one session. Thread-safe.

    Args:
        clock: times calls and waits for tokens.
        session: whose credentials and endpoints; a new one by default, which reads the environment as every SDK does.
        permit: asked right before every attempt of every call that may change something is sent; what it raises comes out of the call.
    """

    def __init__(
        self,
        policy: CallPolicy,
        clock: Clock,
        session: botocore.session.Session | None = None,
        *,
        permit: Callable[[], None] | None = None,
    ) -> None:
        quiet_libraries()
        self.policy = policy
        self._permit = permit
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._session = botocore.session.Session() if session is None else session
        self._session.set_config_variable("region", policy.region)
        self._session.set_config_variable("sts_regional_endpoints", "regional")
        self._session.set_default_client_config(policy.config())

    def client(self, service: str, region: str = "") -> Any:
        """The client of a service; the same object for every caller. `region` is the policy's by default."""
        key = service, region or self.policy.region
        with self._lock:  # making clients is not thread-safe in botocore, using them is
            known = self._clients.get(key)
            if known is None:
                known = self._clients[key] = self._session.create_client(service, region_name=key[1])
                self._register(service, known)
            return known

    def once(self, service: str) -> Any:
        """Another client of a service, for calls that nothing may repeat: each is sent once at most, whatever becomes of it."""
        with self._lock:
            known = self._clients.get((service, _ONCE))
            if known is None:
                known = self._session.create_client(
                    service, region_name=self.policy.region, config=Config(retries={"total_max_attempts": 1})
                )
                self._clients[service, _ONCE] = known
                self._register(service, known)
            return known

    def rows(
        self, service: str, operation: str, read: Callable[[bytes], tuple[list[R], str]], **parameters: Any
    ) -> Iterator[R]:
        """The rows of a describing call, read from the bytes that came over HTTP.

        Args:
            service: botocore's name: "ec2".
            operation: one of `RAW_OPERATIONS`.
            read: makes rows of a page, and the token of the next page: a function of `wire`.
            **parameters: of the call.

        Raises:
            botocore.exceptions.ClientError: as from the client's own method.
            WireError: a page is no such answer.
            ValueError: the operation is parsed by botocore, or its pages go round in a circle.
        """
        if operation not in RAW_OPERATIONS:
            raise ValueError(f"{operation} has no raw pages")
        call = getattr(self.client(service), xform_name(operation))
        seen: set[str] = set()
        token = ""
        while True:
            answer = call(**parameters, **({"NextToken": token} if token else {}))
            rows, token = read(answer[RAW])
            del answer  # a page is half a megabyte
            yield from rows
            if not token:
                return
            if token in seen:
                raise ValueError(f"{operation} returned the same page token twice")
            seen.add(token)

    def close(self) -> None:
        """Close the connections of every client."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _register(self, service: str, client: Any) -> None:
        events, model = client.meta.events, client.meta.service_model
        name, called = model.service_id.hyphenize(), str(model.service_id)  # called: as the SDK for Go says it

        def before_attempt(request: Any, operation_name: str, **_: Any) -> None:
            kind = api_class(service, operation_name)
            WAITS.labels(service, kind).observe(self._bucket(service, kind).take())
            request.context[_ATTEMPTED] = self._clock.monotonic()

        def before_send(event_name: str, **_: Any) -> None:
            if self._permit is not None and changes(event_name.rpartition(".")[2]):
                self._permit()

        def after_attempt(
            context: dict[str, Any],
            parsed_response: Mapping[str, Any] | None,
            event_name: str,
            exception: BaseException | None = None,
            **_: Any,
        ) -> None:
            action = event_name.rpartition(".")[2]
            status = _status(parsed_response)
            ATTEMPTS.labels(called, action, status).inc()
            ATTEMPT_SECONDS.labels(called, action, status).observe(self._since(context, _ATTEMPTED))
            code = _error_code(parsed_response)
            if code in THROTTLES:
                THROTTLED.labels(service, action).inc()
            elif is_denied(code):
                DENIED.labels(service, action).inc()
            context[_MAYBE_DONE] = context.get(_MAYBE_DONE, 0) + _may_be_done(parsed_response, exception)

        def before_call(context: dict[str, Any], **_: Any) -> None:
            context[_STARTED] = self._clock.monotonic()

        def after_call(context: dict[str, Any], parsed: dict[str, Any], event_name: str, **_: Any) -> None:
            action = event_name.rpartition(".")[2]
            if context.get(_MAYBE_DONE):
                note_maybe_done(parsed)
            status = _status(parsed)
            self._count_call(called, action, status, context)
            RETRIES.labels(called, action, status).observe(parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0))

        def after_error(context: dict[str, Any], exception: BaseException, event_name: str, **_: Any) -> None:
            if context.get(_MAYBE_DONE):
                note_maybe_done(exception)
            self._count_call(called, event_name.rpartition(".")[2], _status(None), context)

        events.register_first(
            f"request-created.{name}", before_attempt
        )  # first: so the wait is not part of the signature's life
        events.register_first(f"before-send.{name}", before_send)
        events.register(f"response-received.{name}", after_attempt)
        events.register_first(f"before-call.{name}", before_call)
        events.register(f"after-call.{name}", after_call)
        events.register(f"after-call-error.{name}", after_error)
        if service == "ec2":
            for operation in RAW_OPERATIONS:
                events.register(f"before-parse.{name}.{operation}", _take_page)

    def _bucket(self, service: str, kind: str) -> TokenBucket:
        with self._lock:
            bucket = self._buckets.get((service, kind))
            if bucket is None:
                rate = self.policy.rates.get(kind, CallRate(0, 1))
                bucket = self._buckets[service, kind] = TokenBucket(rate.per_second, rate.burst, self._clock)
            return bucket

    def _count_call(self, service: str, action: str, status: str, context: Mapping[str, Any]) -> None:
        REQUESTS.labels(service, action, status).inc()
        REQUEST_SECONDS.labels(service, action, status).observe(self._since(context, _STARTED))

    def _since(self, context: Mapping[str, Any], mark: str) -> float:
        now = self._clock.monotonic()
        started = context.get(mark, now)
        return float(now - started)


def pages(call: Callable[..., Mapping[str, Any]], **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """The answers of a call until one has no NextToken, or the same one again.

    Raises:
        botocore.exceptions.ClientError: as the call.
    """
    token = ""
    while True:
        answer = call(**parameters, **({"NextToken": token} if token else {}))
        yield answer
        following = answer.get("NextToken", "")
        if not following or following == token:
            return
        token = following


def api_class(service: str, operation: str) -> str:
    """Which rate a call falls under: MUTATING, DESCRIBING or QUEUE."""
    if service == "sqs":
        return QUEUE
    return DESCRIBING if operation.startswith(_READING) else MUTATING


def changes(operation: str) -> bool:
    """Whether an operation may change something; receiving a message does, for it hides the message from others."""
    return not operation.startswith(_READING)


def quiet_libraries() -> None:
    """See to it that the SDK and its HTTP library log nothing below INFO, whatever our own level is."""
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        if logger.level < logging.INFO:  # NOTSET too: it would take the root's
            logger.setLevel(logging.INFO)


def _take_page(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Keep botocore's parser from a page: hand it on as it is, and leave an empty document in its place."""
    if response_dict["status_code"] < 300:
        customized_response_dict[RAW] = response_dict["body"]
        response_dict["body"] = b"<Taken/>"


def _may_be_done(parsed: Mapping[str, Any] | None, exception: BaseException | None) -> bool:
    """Whether one attempt failed in a way that leaves open whether it had its effect."""
    if exception is not None:
        return classify_exception(exception).maybe_done
    said = (parsed or {}).get("Error", {})
    return (
        bool(said)
        and classify(str(said.get("Code", "")), str(said.get("Message", "")), int(_status(parsed))).maybe_done
    )


def _error_code(parsed: Mapping[str, Any] | None) -> str:
    """The code of an error; "" of an answer that is none, or where no answer came."""
    return str((parsed or {}).get("Error", {}).get("Code", ""))


def _status(parsed: Mapping[str, Any] | None) -> str:
    """The HTTP status as a label; "0" where no answer came."""
    return str((parsed or {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
