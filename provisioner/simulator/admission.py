"""What the simulated API server makes of pod templates, by the LimitRanges, PriorityClasses and RuntimeClasses that it has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis.core import DaemonSet, LimitRange, PodTemplateSpec, PriorityClass, RuntimeClass
from provisioner.apis.shapes import PodShape
from provisioner.apis.templates import Admitted, admitted
from provisioner.state.admission import AdmissionKeeper, Admitting
from provisioner.state.daemons import admitted_daemon, daemon_shape

Wire = dict[str, Any]
_PLURALS: Final = {
    ("v1", "LimitRange"): "limitranges",
    ("scheduling.k8s.io/v1", "PriorityClass"): "priorityclasses",
    ("node.k8s.io/v1", "RuntimeClass"): "runtimeclasses",
}
_TYPES: Final[dict[str, type[Admitting]]] = {
    "limitranges": LimitRange,
    "priorityclasses": PriorityClass,
    "runtimeclasses": RuntimeClass,
}
_MOST_TEMPLATES: Final = 4096
"""Whose pods are kept at a time; with more, all are read again."""
_OF_TEMPLATES: Final = ("labels", "annotations", "finalizers")
"""What pods have of their template's metadata. Source: kubernetes `pkg/controller/controller_utils.go`, `GetPodFromTemplate`."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(PodTemplateSpec).decode


@dataclass(frozen=True, slots=True)
class PodBody:
    """What the pods of a template have in common.

    Attributes:
        refusal: why the API server creates no such pod; "" where it does.
        unknown: classes that they name and nobody has.
    """

    refusal: str
    unknown: tuple[str, ...]
    _text: bytes

    @classmethod
    def of(cls, made: Admitted) -> "PodBody":
        """Of what becomes of a template."""
        metadata = msgspec.to_builtins(made.template.metadata)
        common = {key: metadata[key] for key in _OF_TEMPLATES if key in metadata}
        return cls(made.refusal, made.unknown, _encode({"metadata": common, "spec": made.template.spec}))

    def pod(self, name: str, namespace: str, metadata: Wire | None = None, **spec: Any) -> Wire:
        """A pod as the API server keeps it before it runs; its own copy. Cost: O(its size)."""
        made = msgspec.json.decode(self._text)
        return {
            "metadata": {**made["metadata"], **(metadata or {}), "name": name, "namespace": namespace},
            "spec": {**made["spec"], **spec},
            "status": {"phase": "Pending"},
        }


class PodAdmission:
    """Hears of objects, and knows what they make of templates."""

    def __init__(self) -> None:
        self._keeper = AdmissionKeeper()
        self._bodies: dict[tuple[bytes, str], PodBody] = {}

    def changed(self, plural: str, before: Wire | None, after: Wire | None) -> bool:
        """An object of any kind was added, changed or removed; whether templates may have become something else.

        Raises:
            msgspec.ValidationError: it is not as its kind should be.
        """
        kind = _TYPES.get(plural)
        if kind is None:
            return False
        old, new = (None if one is None else msgspec.convert(one, kind) for one in (before, after))
        self._keeper.changed(old, new)
        self._bodies.clear()
        return True

    def applied(self, wire: Mapping[str, Any]) -> bool:
        """As `changed`, of an object as it stands in a manifest."""
        plural = _PLURALS.get((str(wire.get("apiVersion")), str(wire.get("kind"))), "")
        return self.changed(plural, None, {**wire, "metadata": {"namespace": "default", **wire["metadata"]}})

    def body(self, template: Wire, namespace: str) -> PodBody:
        """The pods of a template. Cost: O(its size) while no object changes, else as of `admitted`.

        Raises:
            msgspec.ValidationError: it is no template.
        """
        text = _encode(template)
        found = self._bodies.get((text, namespace))
        if found is None:
            if len(self._bodies) >= _MOST_TEMPLATES:
                self._bodies.clear()
            found = PodBody.of(admitted(_decode(text), namespace, self._keeper.frozen()))
            self._bodies[text, namespace] = found
        return found

    def daemon_pods(self, daemon: DaemonSet) -> tuple[PodShape, PodBody]:
        """The pods of a DaemonSet, and the shape that says where they run. Cost: as of `admitted`."""
        now = self._keeper.frozen()
        return daemon_shape(daemon, now), PodBody.of(admitted_daemon(daemon, now))
