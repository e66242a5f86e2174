"""The DaemonSets of the cluster, and what their pods take of a node. Not thread-safe: the owner serialises calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from provisioner.apis.core import DaemonSet
from provisioner.apis.pods import Pod, PodShape, is_daemon
from provisioner.state.admission import EVERYWHERE, AdmissionKeeper
from provisioner.state.daemons import daemon_shape, runs_on
from provisioner.state.effects import DaemonSetUnreadable, Effect
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint


class _Owner(NamedTuple):
    """What an owner reference must say, with the pod's namespace, to mean one DaemonSet."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _Sample:
    """The newest pod that a DaemonSet has made, for what its pods really request."""

    uid: str
    created: datetime
    requests: Resources | None  # None: of a template that is not the DaemonSet's any more


class DaemonSets:
    """DaemonSets, what admission makes of their pods, and a sample pod of each.

    A pod counts as a DaemonSet's where it names the DaemonSet by API group, kind, name and UID and is in its namespace: a
    reference alone can be written by anybody. It is a sample only once it is bound.

    Attributes:
        version: changes whenever any DaemonSet's pods are others.
        admission: what their templates, and others', become by.
    """

    def __init__(self) -> None:
        self.version = 0
        self._sets: dict[_Owner, DaemonSet] = {}
        self._shapes: dict[_Owner, PodShape] = {}
        self._samples: dict[_Owner, _Sample] = {}
        self.admission = AdmissionKeeper()
        self._frozen: tuple[PodShape, ...] | None = ()

    # ------------------------------------------------------------------ events

    def changed(self, old: DaemonSet | None, new: DaemonSet | None) -> list[Effect]:
        """A DaemonSet was added, changed or removed; what tells of it where its pods cannot be judged, and could be until now."""
        one = new or old
        if one is None:
            return []
        owner = _Owner(one.metadata.namespace, one.metadata.name, one.metadata.uid)
        if new is None:
            self._sets.pop(owner, None)
            self._samples.pop(owner, None)
            if self._shapes.pop(owner, None) is not None:
                self._bump()
            return []
        known = self._sets.get(owner)
        self._sets[owner] = new
        if known is None or known.spec.template != new.spec.template:
            sample = self._samples.get(owner)
            if known is not None and sample is not None:
                sample.requests = None  # of the old template: wait for a pod of the new one
            before = self._shapes.get(owner)
            self._reshape(owner)
            if self._shapes[owner].error and (before is None or not before.error):
                return [_unreadable(new, self._shapes[owner])]
        return []

    def pod_changed(self, pod: Pod) -> None:
        """A pod of a DaemonSet is there: what the newest one requests, all are expected to. Equal ones cost a comparison."""
        owner = _owner_of(pod)
        if owner is None or not pod.node_name or pod.shape.error:
            return
        known = self._samples.get(owner)
        if (
            known is not None
            and pod.created <= known.created
            and (known.requests is None or (pod.created, pod.uid) < (known.created, known.uid))
        ):
            return
        self._samples[owner] = _Sample(pod.uid, pod.created, pod.shape.requests)
        if known is None or known.requests != pod.shape.requests:
            self._reshape(owner)

    def pod_gone(self, pod: Pod) -> None:
        """A pod is gone; it stays the sample of a DaemonSet that exists, and nothing is kept of one that nobody has seen."""
        owner = _owner_of(pod)
        if owner is None or owner in self._sets:
            return
        sample = self._samples.get(owner)
        if sample is not None and sample.uid == pod.uid:
            del self._samples[owner]

    # ------------------------------------------------------------------ questions

    def settle(self) -> None:
        """Take in what admission goes by now; call before questions. Cost: the DaemonSets of namespaces where that changed, once for all events."""
        changed = self.admission.take_changed()
        for owner in self._sets if changed else ():
            if not changed.isdisjoint((EVERYWHERE, owner.namespace)):
                self._reshape(owner)

    def shapes(self) -> tuple[PodShape, ...]:
        """One shape a DaemonSet, by key; the same tuple while nothing changes."""
        if self._frozen is None:
            self._frozen = tuple(sorted(self._shapes.values(), key=lambda shape: shape.key))
        return self._frozen

    def unreadable(self) -> list[Effect]:
        """What tells of every DaemonSet whose pods cannot be judged; for who begins to carry out effects."""
        self.settle()
        return [_unreadable(self._sets[owner], shape) for owner, shape in sorted(self._shapes.items()) if shape.error]

    def owns(self, pod: Pod) -> bool:
        """Whether a pod belongs to a DaemonSet that exists."""
        owner = _owner_of(pod)
        return owner is not None and owner in self._sets

    def expected(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> Resources:
        """What all DaemonSets take together of a node with these labels and taints. O(DaemonSets)."""
        total = EMPTY
        for shape in self._shapes.values():
            if runs_on(shape, labels, taints):
                total += shape.requests
        return total

    # ------------------------------------------------------------------ helpers

    def _reshape(self, owner: _Owner) -> None:
        """Work out anew what a DaemonSet's pods will be."""
        daemon = self._sets.get(owner)
        if daemon is None:
            return
        admission, sample = self.admission.now(), self._samples.get(owner)
        shape = daemon_shape(daemon, admission)
        if sample is not None and sample.requests is not None and sample.requests != shape.requests:
            shape = daemon_shape(daemon, admission, sample.requests)
        if self._shapes.get(owner) != shape:
            self._shapes[owner] = shape
            self._bump()

    def _bump(self) -> None:
        self.version += 1
        self._frozen = None


def _unreadable(daemon_set: DaemonSet, shape: PodShape) -> DaemonSetUnreadable:
    return DaemonSetUnreadable(daemon_set, f"spec.template.{shape.error}")


def _owner_of(pod: Pod) -> _Owner | None:
    if pod.owner is None or not is_daemon(pod):
        return None
    return _Owner(pod.namespace, pod.owner.name, pod.owner.uid)
