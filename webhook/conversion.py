"""ConversionReviews of NodePools, NodeClaims and EC2NodeClasses between v1beta1 and v1: all objects of a review, or none.

A review that can be answered is answered with 200, whatever is wrong with its objects: the API server tells its client the message. It is
asked only for objects at v1beta1, which are not stored; so nothing that this program does, or fails to do, concerns v1.
"""

import threading
from typing import Any, Final

import msgspec

from provisioner.apis.conversion.beta import ConversionError, convert
from provisioner.support import logs, metrics
from provisioner.support.clock import Clock
from provisioner.values import jsontext
from provisioner.values.message import Said
from webhook.review import DURATION_BUCKETS, ReviewError, cut, uid_in

API_VERSION: Final = "apiextensions.k8s.io/v1"
MAX_MESSAGE_BYTES: Final = 4096
MAX_AT_ONCE: Final = 2
"""How many reviews are converted at a time, so that most threads stay free for pods; others wait `WAIT_SECONDS` for their turn."""
WAIT_SECONDS: Final = 1.0
MAX_WAITING: Final = 2
"""How many wait at a time; the next are told to try again at once. With those that are converted that is half of the threads."""
MAX_VALUES: Final = 400_000
"""Of a review's JSON: 3 MB of objects as people write them have fewer. Those of empty lists have more, and take 100 MB when they are decoded."""

_log = logs.get_logger(__name__)

CONVERSIONS = metrics.counter(
    "dovetail_webhook_conversions_total",
    "Conversion reviews, by outcome: converted, failed, busy, bad-review, error.",
    ["outcome"],
)
SECONDS = metrics.histogram(
    "dovetail_webhook_conversion_duration_seconds",
    "Time from the body of a conversion review to its response.",
    [],
    buckets=DURATION_BUCKETS,
)

TOO_MANY_VALUES_TO_CONVERT: Final = Said(
    "the objects have too many fields and list items to be converted together; list them in pages"
)


class _Request(msgspec.Struct, frozen=True):
    uid: str = ""
    desired: str = msgspec.field(default="", name="desiredAPIVersion")
    objects: list[Any] = []


class _Review(msgspec.Struct, frozen=True):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    request: _Request | None = None


_decode = jsontext.decoder(_Review)
_encode: Final = msgspec.json.Encoder().encode


class Conversion:
    """Answers one ConversionReview after another; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)

    def answer(self, body: bytes) -> bytes:
        """The reply to one ConversionReview body.

        Raises:
            ReviewError: there is nothing to answer, because the body holds no request with a uid.

        Cost: some 50 us an object; ten times that for one that annotations keep fields of v1 for.
        """
        started = self._clock.monotonic()
        if not self._place():
            CONVERSIONS.labels("busy").inc()
            return _failed(_uid(body), Said("too many conversions at a time; try again"))
        try:
            outcome, reply = self._reply(body)
        finally:
            self._places.release()
        CONVERSIONS.labels(outcome).inc()
        SECONDS.observe(self._clock.monotonic() - started)
        return reply

    def _place(self) -> bool:
        if self._places.acquire(blocking=False):
            return True
        if not self._waiting.acquire(blocking=False):
            return False
        try:
            return self._places.acquire(timeout=WAIT_SECONDS)
        finally:
            self._waiting.release()

    def _reply(self, body: bytes) -> tuple[str, bytes]:
        if jsontext.most_values(body) > MAX_VALUES:
            return "failed", _failed(_uid(body), TOO_MANY_VALUES_TO_CONVERT)
        try:
            review = _decode(body)
        except msgspec.DecodeError as error:
            return "bad-review", _failed(_uid(body), Said(f"not a ConversionReview: {error}"))
        asked = review.request
        if review.kind != "ConversionReview" or review.api_version != API_VERSION or asked is None or not asked.uid:
            raise ReviewError(f"expected a ConversionReview of {API_VERSION} with a request that has a uid")
        try:
            return "converted", _encoded(asked.uid, [convert(_whole(one), asked.desired) for one in asked.objects])
        except ConversionError as error:
            return "failed", _failed(asked.uid, str(error))
        except RecursionError:
            return "failed", _failed(
                asked.uid, Said("a field of an object is nested too deeply to be converted; remove it")
            )
        except Exception as error:  # noqa: BLE001 - a review is answered, and no answer says how the program is made
            _log.exception("Failed to convert objects", version=asked.desired, error=type(error).__name__)
            return "error", _failed(asked.uid, Said("the objects could not be converted; see the logs of the webhook"))


def _whole(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise ConversionError("request.objects has an item that is not an object")
    return one


def _uid(body: bytes) -> str:
    """The uid of a review that cannot be decoded.

    Raises:
        ReviewError: it has none that can be found.
    """
    uid = uid_in(body)
    if not uid:
        raise ReviewError("the ConversionReview has no request with a uid")
    return uid


def _failed(uid: str, message: str) -> bytes:
    result = {"status": "Failed", "message": cut(message, MAX_MESSAGE_BYTES)}
    return _of({"uid": uid, "convertedObjects": [], "result": result})


def _encoded(uid: str, objects: list[dict[str, Any]]) -> bytes:
    return _of({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}})


def _of(response: dict[str, Any]) -> bytes:
    return _encode({"apiVersion": API_VERSION, "kind": "ConversionReview", "response": response})
