"""The Flask application: `/mutate`, `/validate`, `/convert`, `/healthz`, `/readyz`. It fails open: whatever goes wrong here, the object is admitted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from flask import Flask, Response, request

from provisioner.apis import stamping
from provisioner.apis.conversion.definitions import CONVERT_PATH
from provisioner.apis.shares import Seat, Share, ShareOwner
from provisioner.apis.stamping import Images, ImagesAsked, StampDecision, StampFacts
from provisioner.support import logs, metrics
from provisioner.support.clock import Clock
from provisioner.values import jsontext
from provisioner.values.message import Said
from webhook.conversion import Conversion
from webhook.review import (
    MAX_BODY_BYTES,
    AdmissionRequest,
    PatchTooLargeError,
    ReviewError,
    decode_pod,
    decode_review,
    encode_reply,
)
from webhook.validation import Validation

_log = logs.get_logger(__name__)

REVIEW_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

REVIEWS = metrics.counter(
    "dovetail_webhook_reviews_total",
    "Admission reviews, by outcome: stamped, unchanged, exempt, opted-out, namespace-unknown, other-kind,"
    " bad-pod, bad-review, error. The object is always admitted, except for a bad-review whose uid cannot be read either.",
    ["outcome"],
)
STAMPS = metrics.counter("dovetail_webhook_stamps_total", "Stamps applied to pods, by setting.", ["stamp"])
WARNINGS = metrics.counter("dovetail_webhook_warnings_total", "Warnings returned to the creators of pods.", [])
HELD_BACK = metrics.counter(
    "dovetail_webhook_scheduler_held_back_total",
    "Pods left with the default scheduler because the Dovetail scheduler is not renewing its Lease.",
    [],
)
SECONDS = metrics.histogram(
    "dovetail_webhook_review_duration_seconds",
    "Time from a decoded request to its response.",
    [],
    buckets=REVIEW_BUCKETS,
)


MAX_VALUES = 50_000
"""Of a pod's JSON. Eight threads would decode 3 MB of empty objects into 1.4 GB; a pod has some hundred values."""


class FactSource(Protocol):
    """Where a review gets its facts; answers from memory, within 100 ms at most."""

    def of(self, namespace: str) -> StampFacts | None:
        """The facts for a pod of a namespace, or None where the namespace is not known."""
        ...

    def seat(self, owner: ShareOwner, share: Share, review: str, *, keep: bool) -> Seat | None:
        """What the next pod of an owner is for (`webhook.shares`), or None where pods are not counted."""
        ...

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images | None:
        """What is known of images, or None where images are not looked up; with `keep`, what is not known is looked up."""
        ...


class AdmissionHandler:
    """Answers one AdmissionReview after another; thread-safe, no state of its own."""

    def __init__(self, facts: FactSource, clock: Clock) -> None:
        self._facts, self._clock = facts, clock

    def answer(self, body: bytes) -> bytes:
        """The reply to one AdmissionReview body; the object is always allowed.

        Raises:
            ReviewError: there is nothing to answer, because the body holds no request with a uid.
        """
        started = self._clock.monotonic()
        try:
            asked = decode_review(body)
        except ReviewError as error:
            REVIEWS.labels("bad-review").inc()
            if not error.uid:
                raise
            _log.warning("Failed to read an admission review; the object was admitted unchanged", error=str(error))
            return encode_reply(error.uid)
        if not asked.creates_pod:
            REVIEWS.labels("other-kind").inc()
            return encode_reply(asked.uid)
        outcome, decision = self._decide(asked)
        try:
            reply = _reply(asked, decision)
        except PatchTooLargeError:
            outcome, decision = _TOO_LARGE.outcome.value, _TOO_LARGE
            reply = _reply(asked, decision)
        REVIEWS.labels(outcome).inc()
        for stamp in decision.stamped:
            STAMPS.labels(stamp).inc()
        if decision.warnings:
            WARNINGS.inc(len(decision.warnings))
        if decision.scheduler_held_back:
            HELD_BACK.inc()
        SECONDS.observe(self._clock.monotonic() - started)
        return reply

    def _decide(self, asked: AdmissionRequest) -> tuple[str, StampDecision]:
        namespace = asked.namespace
        try:
            facts = self._facts.of(namespace)
            if facts is None:
                return "namespace-unknown", _NOTHING
            if jsontext.most_values(bytes(asked.object)) > MAX_VALUES:
                raise ReviewError(
                    f"the pod may have more than {MAX_VALUES} fields and list items, too many to be decoded"
                )
            pod = decode_pod(asked.object)
            counted = stamping.share_of(pod, facts)
            if counted is not None:
                owner, share = counted
                seat = self._facts.seat(owner, share, asked.uid, keep=not asked.dry_run)
                facts = replace(facts, seat=seat, review=asked.uid)
            images = stamping.images_of(pod, facts)
            if images is not None:
                facts = replace(facts, images=self._facts.images(images, keep=not asked.dry_run))
            decision = stamping.decide(pod, facts)
            return decision.outcome.value, decision
        except ReviewError as error:
            _log.warning("Failed to read a pod; it was admitted unchanged", namespace=namespace, error=str(error))
            return "bad-pod", _NOTHING
        except Exception:  # noqa: BLE001 - a webhook that fails admits
            _log.exception("Failed to process an admission review; the pod was admitted unchanged", namespace=namespace)
            return "error", _NOTHING


_NOTHING = StampDecision(stamping.StampOutcome.UNCHANGED)
_TOO_LARGE = StampDecision(
    stamping.StampOutcome.UNCHANGED,
    warnings=(
        Said(
            "dovetail: the changes to the pod are too large. The pod was not changed; shorten its affinity, or the "
            "settings dovetail.dev/..."
        ),
    ),
)


def _reply(asked: AdmissionRequest, decision: StampDecision) -> bytes:
    audit = {"stamped": ",".join(decision.stamped)} if decision.stamped else None
    size = memoryview(asked.object).nbytes
    return encode_reply(asked.uid, decision.operations, decision.warnings, audit, object_bytes=size)


def create_app(
    admission: AdmissionHandler, validation: Validation, conversion: Conversion, problem: Callable[[], str]
) -> Flask:
    """The WSGI application.

    Args:
        admission: answers the reviews of pods.
        validation: answers those of our own kinds.
        conversion: answers conversion reviews.
        problem: why no calls should be sent here now; "" means ready.
    """
    app = Flask("dovetail-webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES

    def answered(answer: Callable[[bytes], bytes]) -> Response:
        try:
            reply = answer(request.get_data(cache=False))
        except ReviewError as error:
            return Response(f"{error}\n", status=400, mimetype="text/plain")
        return Response(reply, mimetype="application/json")

    @app.post("/mutate")
    def mutate() -> Response:
        return answered(admission.answer)

    @app.post("/validate")
    def validate() -> Response:
        return answered(validation.answer)

    @app.post(CONVERT_PATH)
    def convert() -> Response:
        return answered(conversion.answer)

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        if why := problem():
            return Response(f"{why}\n", status=503, mimetype="text/plain")
        return Response("ok\n", mimetype="text/plain")

    return app
