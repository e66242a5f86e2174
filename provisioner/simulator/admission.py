"""What the simulated API server and the webhook make of pod templates, by the LimitRanges, PriorityClasses, RuntimeClasses and NodePools that there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis.core import DaemonSet, LimitRange, PodTemplateSpec, PriorityClass, RuntimeClass
from provisioner.apis.karpenter import NodePool
from provisioner.apis.shapes import PodShape
from provisioner.apis.stamping import StampFacts, share_of
from provisioner.apis.templates import Admitted, admitted_pods, owned
from provisioner.state.admission import AdmissionKeeper, Admitting
from provisioner.state.daemons import admitted_daemon, daemon_shape
from provisioner.values.taints import Taint

Wire = dict[str, Any]
_NODEPOOLS: Final = "nodepools"
_PLURALS: Final = {
    ("v1", "LimitRange"): "limitranges",
    ("scheduling.k8s.io/v1", "PriorityClass"): "priorityclasses",
    ("node.k8s.io/v1", "RuntimeClass"): "runtimeclasses",
    ("karpenter.sh/v1", "NodePool"): _NODEPOOLS,
}
_TYPES: Final[dict[str, type[Admitting]]] = {
    "limitranges": LimitRange,
    "priorityclasses": PriorityClass,
    "runtimeclasses": RuntimeClass,
}
_MOST_TEMPLATES: Final = 4096
"""Whose pods are kept at a time, each side of a share by itself; with more, all are read again."""
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
    """Hears of objects, and knows what they make of templates. Of the webhook, the settings are those of pods: there are no Namespaces and no defaults."""

    def __init__(self) -> None:
        self._keeper = AdmissionKeeper()
        self._taints: dict[str, tuple[Taint, ...]] = {}  # by NodePool
        self._bodies: dict[tuple[bytes, str, str, int | None], PodBody] = {}
        self._shared: dict[tuple[bytes, str, str], bool] = {}

    def changed(self, plural: str, before: Wire | None, after: Wire | None) -> bool:
        """An object of any kind was added, changed or removed; whether templates may have become something else.

        Raises:
            msgspec.ValidationError: it is not as its kind should be.
        """
        kind = _TYPES.get(plural)
        if plural == _NODEPOOLS:
            if not self._pool_changed(before, after):
                return False
        elif kind is None:
            return False
        else:
            old, new = (None if one is None else msgspec.convert(one, kind) for one in (before, after))
            self._keeper.changed(old, new)
        self._bodies.clear()
        return True

    def _pool_changed(self, before: Wire | None, after: Wire | None) -> bool:
        """Whether it has other taints now."""
        if before is not None and after is not None and before.get("spec") == after.get("spec"):
            return False  # its status, which changes often
        if after is None:
            return before is not None and self._taints.pop(before["metadata"]["name"], None) is not None
        found = msgspec.convert(after, NodePool)
        known, self._taints[found.name] = self._taints.get(found.name, ()), found.taints
        return known != found.taints

    def applied(self, wire: Mapping[str, Any]) -> bool:
        """As `changed`, of an object as it stands in a manifest."""
        plural = _PLURALS.get((str(wire.get("apiVersion")), str(wire.get("kind"))), "")
        return self.changed(plural, None, {**wire, "metadata": {"namespace": "default", **wire["metadata"]}})

    def body(self, template: Wire, namespace: str, kind: str = "", slot: int = 0) -> PodBody:
        """A pod of a template.

        Args:
            template: of it.
            namespace: likewise.
            kind: of the workload that makes it; "" where nobody does.
            slot: its number among the pods of the workload, from 0, by which it belongs to a side where the workload has a share on demand.

        Cost: O(the template's size) while no object changes, else as of `admitted_pods`.

        Raises:
            msgspec.ValidationError: it is no template.
        """
        text = _encode(template)
        shared = self._shared.get((text, namespace, kind))
        found = None if shared is None else self._bodies.get((text, namespace, kind, slot if shared else None))
        if found is None:
            if len(self._bodies) >= _MOST_TEMPLATES:
                self._bodies.clear()
                self._shared.clear()
            read, facts = _decode(text), StampFacts(namespace, {}, taints_of=self._taints.get)
            read = owned(read, kind) if kind else read
            shared = self._shared[text, namespace, kind] = share_of(read, facts) is not None
            made = admitted_pods(read, self._keeper.frozen(), facts, 1, slot)[0][1]
            found = self._bodies[text, namespace, kind, slot if shared else None] = PodBody.of(made)
        return found

    def daemon_pods(self, daemon: DaemonSet) -> tuple[PodShape, PodBody]:
        """The pods of a DaemonSet, and the shape that says where they run. Cost: as of `admitted`."""
        now = self._keeper.frozen()
        return daemon_shape(daemon, now), PodBody.of(admitted_daemon(daemon, now))
