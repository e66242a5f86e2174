"""Reviews of NodePools, NodeClaims, NodeOverlays and EC2NodeClasses: denied for what an update or creation makes wrong, warned of what will surprise.

The rules are those of `dovetail lint` (`provisioner.apis.verdicts`); schema and CEL were asked by the API server before. Whatever is not
known, not understood or too large is admitted, because the controllers check again.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.openapi import Violation
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.verdicts import (
    ObjectVerdict,
    among_overlays,
    among_pools,
    missing_class,
    reference_of,
    worsened,
)
from provisioner.node_classes import NODE_CLASSES, verdict
from provisioner.support import logs, metrics
from provisioner.support.clock import Clock
from provisioner.values import jsontext
from provisioner.values.message import Said
from webhook.review import DURATION_BUCKETS, AdmissionRequest, ReviewError, cut, decode_review, encode_reply

MAX_OBJECT_BYTES: Final = 256 * 1024
"""Larger objects are admitted unread; an object of ours has a few KiB."""
MAX_AT_ONCE: Final = 3
"""How many reviews are validated at a time, so that most threads stay free for pods; others are admitted at once."""
MAX_ERRORS: Final = 10
MAX_DENIAL_BYTES: Final = 4096

_log = logs.get_logger(__name__)

VALIDATIONS = metrics.counter(
    "dovetail_webhook_validations_total",
    "Validated objects, by outcome: admitted, warned, denied, unchanged, other-kind, busy, too-large, bad-object, bad-review, error."
    " Only denied objects, and a bad-review whose uid cannot be read, are not admitted.",
    ["outcome"],
)
SECONDS = metrics.histogram(
    "dovetail_webhook_validation_duration_seconds",
    "Time from the body of a validating review to its response.",
    [],
    buckets=DURATION_BUCKETS,
)

_DECODERS: Final[Mapping[tuple[str, str, str], msgspec.json.Decoder[Any]]] = {
    ("karpenter.sh", "v1", "nodepools"): msgspec.json.Decoder(NodePool),
    ("karpenter.sh", "v1", "nodeclaims"): msgspec.json.Decoder(NodeClaim),
    ("karpenter.sh", "v1alpha1", "nodeoverlays"): msgspec.json.Decoder(NodeOverlay),
    ("karpenter.k8s.aws", "v1", "ec2nodeclasses"): msgspec.json.Decoder(EC2NodeClass),
}


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """The objects that the validated one stands beside.

    Attributes:
        pools: all NodePools; empty where they are not known.
        classes: the names of all node classes by group and kind; a kind that is not known is left out.
        overlays: all NodeOverlays; empty where they are not known.
    """

    pools: Collection[NodePool] = ()
    classes: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)
    overlays: Collection[NodeOverlay] = ()


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a review is answered with.

    Attributes:
        outcome: a label of `dovetail_webhook_validations_total`.
        errors: why it is denied; empty: it is admitted.
        warnings: sentences for the client.
    """

    outcome: str
    errors: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()


def opinion(obj: Any, old: Any, beside: ValidationContext) -> Opinion:
    """What is to be said about an object that is created (`old` is None) or updated; pure.

    Errors that were there before an update are warnings while their fields stay as they are: what is bad already may be changed elsewhere.
    """
    if obj.metadata.deletion_timestamp is not None or (
        old is not None and old.spec == obj.spec and not _limited_anew(obj, old)
    ):
        return Opinion("unchanged")
    found, together = verdict(obj), _overlays(obj, beside)
    before = () if old is None else (*verdict(old).errors, *_overlays(old, beside).errors)
    new, known = worsened(before, old, (*found.errors, *together.errors), obj)
    if new:
        return Opinion("denied", tuple(new))
    warnings = [
        *(Said(f"still invalid: {one}") for one in known),
        *map(str, found.warnings),
        *map(str, together.warnings),
        *map(str, _beside(obj, beside)),
    ]
    return Opinion("warned" if warnings else "admitted", warnings=tuple(warnings))


def _limited_anew(obj: Any, old: Any) -> bool:
    """Whether an update changes an annotation that is judged."""
    return isinstance(obj, NodePool) and any(
        old.metadata.annotations.get(key) != obj.metadata.annotations.get(key) for key in names.JUDGED_ANNOTATIONS
    )


def _overlays(obj: Any, beside: ValidationContext) -> ObjectVerdict:
    return among_overlays(obj, beside.overlays) if isinstance(obj, NodeOverlay) else ObjectVerdict()


def _beside(obj: Any, beside: ValidationContext) -> list[Violation]:
    found: list[Violation] = []
    reference = reference_of(obj)
    if reference is not None:
        there = beside.classes.get((reference[1].group, reference[1].kind))
        found += (
            missing_class(obj, there, Said("does not exist; no nodes are launched until it is created"))
            if there is not None
            else []
        )
    if isinstance(obj, NodePool):
        found += among_pools(obj, beside.pools, NODE_CLASSES)
    return found


class Validation:
    """Answers one AdmissionReview after another; thread-safe. `surroundings` says from memory what is known now."""

    def __init__(self, surroundings: Callable[[], ValidationContext], clock: Clock) -> None:
        self._surroundings, self._clock = surroundings, clock
        self._room = threading.BoundedSemaphore(MAX_AT_ONCE)

    def answer(self, body: bytes) -> bytes:
        """The reply to one AdmissionReview body.

        Raises:
            ReviewError: there is nothing to answer, because the body holds no request with a uid.
        """
        started = self._clock.monotonic()
        try:
            asked = decode_review(body)
        except ReviewError as error:  # as in `app.AdmissionHandler`, with another counter and text
            VALIDATIONS.labels("bad-review").inc()
            if not error.uid:
                raise
            _log.warning(
                "Failed to read an admission review; the object was admitted without validation", error=str(error)
            )
            return encode_reply(error.uid)
        answer = self._opinion(asked)
        VALIDATIONS.labels(answer.outcome).inc()
        SECONDS.observe(self._clock.monotonic() - started)
        return encode_reply(asked.uid, warnings=answer.warnings, denial=_denial(answer.errors))

    def _opinion(self, asked: AdmissionRequest) -> Opinion:
        resource = asked.resource
        decoder = _DECODERS.get((resource.group, resource.version, resource.resource))
        if decoder is None or asked.sub_resource or asked.operation not in ("CREATE", "UPDATE"):
            return Opinion("other-kind")
        if max(len(bytes(asked.object)), len(bytes(asked.old_object))) > MAX_OBJECT_BYTES:
            return Opinion("too-large")
        if not self._room.acquire(blocking=False):
            return Opinion("busy")
        try:
            obj = jsontext.decode_trimmed(decoder.decode, asked.object)[0]
            old = jsontext.decode_trimmed(decoder.decode, asked.old_object)[0] if asked.operation == "UPDATE" else None
        except (RecursionError, ValueError) as error:
            _log.warning(
                "Failed to read an object; it was admitted without validation",
                resource=resource.resource,
                error=str(error),
            )
            return Opinion("bad-object")
        else:
            return self._judged(obj, old, resource.resource)
        finally:
            self._room.release()

    def _judged(self, obj: Any, old: Any, resource: str) -> Opinion:
        try:
            return opinion(obj, old, self._surroundings())
        except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
            _log.exception("Failed to validate an object; it was admitted", resource=resource, name=obj.metadata.name)
            return Opinion("error")


def _denial(errors: Collection[Violation]) -> str:
    told = [str(one) for one in errors][:MAX_ERRORS]
    if len(errors) > MAX_ERRORS:
        told.append(Said(f"and {len(errors) - MAX_ERRORS} more errors"))
    return cut("; ".join(told), MAX_DENIAL_BYTES)
