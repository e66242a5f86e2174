"""AdmissionReview v1 in and out: typed decoding, and the reply. Nothing here does I/O."""

import base64
from collections.abc import Iterable, Sequence

import msgspec

from provisioner.apis.meta import Object
from provisioner.apis.podpatch import Operation
from provisioner.apis.stamping import Pod
from provisioner.values import jsontext
from provisioner.values.message import Said

API_VERSION = "admission.k8s.io/v1"

MAX_BODY_BYTES = 3 * 1024 * 1024
"""The API server's own limit for a request body; a review of a legal object never exceeds it."""

MAX_PATCH_BYTES = 1024 * 1024
"""Of a patch, beyond the size of the object."""

MAX_WARNING_BYTES = 250
"""Longer warnings are cut by the API server without notice (256 with its own prefix)."""

MAX_WARNINGS = 10
"""More are counted and not told; the API server drops all warnings of a response beyond 4,096 characters."""


DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Of validations and conversions, in seconds; the API server waits for two."""


class ReviewError(ValueError):
    """The body is no AdmissionReview v1 that could be decided on; the text says why.

    Attributes:
        uid: of the request, where it could be read: it can be answered, and is admitted.
    """

    def __init__(self, problem: str, uid: str = "") -> None:
        super().__init__(problem)
        self.uid = uid


class PatchTooLargeError(ValueError):
    """A patch is larger than its object allows; none is made."""


class GroupVersionResource(Object, frozen=True, kw_only=True):
    """What the request is about."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(Object, frozen=True, kw_only=True):
    """The request of a review; `object` stays raw, so that a damaged pod can still be answered by uid."""

    uid: str
    operation: str = ""
    namespace: str = ""
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    dry_run: bool = False
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def creates_pod(self) -> bool:
        """Whether this is the creation of a core/v1 pod, the only thing ever stamped."""
        resource = self.resource
        return (
            self.operation == "CREATE"
            and not self.sub_resource
            and (resource.group, resource.version, resource.resource) == ("", "v1", "pods")
        )


class _Review(Object, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


_decode_review = msgspec.json.Decoder(_Review).decode
_decode_pod = msgspec.json.Decoder(Pod).decode
_UID = ("request", "uid")
_encoder = msgspec.json.Encoder()


def uid_in(body: bytes) -> str:
    """The uid of a review, whatever else is in it; "" where none can be found."""
    return jsontext.strings_at(body, [_UID]).get(_UID, "")


def decode_review(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview body, without fields that are nested too deeply to be read.

    Raises:
        ReviewError: not JSON, another kind or version, or no request.
    """
    try:
        review, _ = jsontext.decode_trimmed(_decode_review, body)
    except (RecursionError, ValueError) as error:  # msgspec's own are ValueErrors
        raise ReviewError(f"not an AdmissionReview: {error}", uid_in(body)) from error
    if review.kind != "AdmissionReview" or review.api_version != API_VERSION:
        found = f"{review.api_version or 'no apiVersion'} {review.kind or 'no kind'}"
        raise ReviewError(f"expected an AdmissionReview of {API_VERSION}, got {found}")
    if review.request is None or not review.request.uid:
        raise ReviewError("the AdmissionReview has no request with a uid")
    return review.request


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """The pod of a request.

    Raises:
        ReviewError: a field that is read here has another type than a pod's.
    """
    try:
        return jsontext.decode_trimmed(_decode_pod, raw)[0]
    except (RecursionError, ValueError) as error:
        raise ReviewError(f"not a pod: {error}") from error


def encode_reply(
    uid: str,
    operations: Sequence[Operation] = (),
    warnings: Iterable[str] = (),
    audit: dict[str, str] | None = None,
    denial: str = "",
    object_bytes: int = 0,
) -> bytes:
    """The AdmissionReview that allows the request, with a patch where there is one, or that denies it.

    Args:
        uid: of the request; the API server refuses any other.
        operations: the JSON Patch; empty means that `patch` and `patchType` are left out.
        warnings: sentences for the client that wrote the object; long ones, and long lists, are cut visibly.
        audit: audit annotations, keys without a prefix.
        denial: why the request is denied; "" allows it.
        object_bytes: the size of the object that is patched.

    Raises:
        PatchTooLargeError: the patch has more than `MAX_PATCH_BYTES` beyond the object; no more than that of it is made.
    """
    response: dict[str, object] = {"uid": uid, "allowed": not denial}
    if denial:
        response["status"] = {"code": 422, "reason": "Invalid", "message": denial}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_encoded(operations, object_bytes + MAX_PATCH_BYTES)).decode("ascii")
    told = list(warnings)
    if len(told) > MAX_WARNINGS:
        told[MAX_WARNINGS - 1 :] = [Said(f"and {len(told) - MAX_WARNINGS + 1} more warnings")]
    if told:
        response["warnings"] = [cut(warning, MAX_WARNING_BYTES) for warning in told]
    if audit:
        response["auditAnnotations"] = audit
    return _encoder.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _encoded(operations: Iterable[Operation], most: int) -> bytes:
    """The JSON Patch, an operation after the other: the first that is too much is the last."""
    patch = bytearray(b"[")
    for operation in operations:
        patch += _encoder.encode(operation)
        patch += b","
        if len(patch) > most:
            raise PatchTooLargeError
    patch[-1:] = b"]"
    return bytes(patch)


def cut(text: str, most: int) -> str:
    """The text, ending in dots where it has more than `most` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= most else data[: most - 3].decode("utf-8", "ignore") + "..."
