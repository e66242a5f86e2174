"""What placement depends on besides pods and nodes: volumes, labels of namespaces, and the selectors of Services and controllers.

Filled by watch events, read as a frozen `Surroundings`. Not thread-safe: the owner serialises calls.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from provisioner.apis import names
from provisioner.apis.attachments import attachments_of
from provisioner.apis.core import (
    CSIDriver,
    CSINode,
    LabelledNamespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodLabelling,
    PodSelecting,
    StorageClass,
)
from provisioner.apis.meta import LabelSelector, key_of
from provisioner.apis.pods import Pod
from provisioner.state.snapshot import Surroundings
from provisioner.values.bounded import put_newest

V = TypeVar("V")
TEACHERS = 32
"""So many Nodes of a type tell how many volumes its nodes take."""
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})
_NO_DRIVERS: frozenset[str] = frozenset()
_CHANGED = attrgetter("changed")


class _Table(Generic[V]):
    """A dict of which frozen copies are handed out: one for each state that somebody looked at."""

    __slots__ = ("_copy", "changed", "values")

    def __init__(self) -> None:
        self.values: dict[str, V] = {}  # read only
        self._copy: Mapping[str, V] = MappingProxyType({})
        self.changed = False  # whether it is not as it was handed out last

    def put(self, key: str, value: V | None) -> None:
        """Set, or remove where `value` is None."""
        if value is None:
            if self.values.pop(key, None) is None:
                return
        else:
            self.values[key] = value
        self.changed = True

    def get(self, key: str) -> V | None:
        return self.values.get(key)

    def frozen(self) -> Mapping[str, V]:
        """The content of now; the same object until something changes. Cost: O(size) after a change."""
        if self.changed:
            self._copy, self.changed = MappingProxyType(dict(self.values)), False
        return self._copy


class _Volumes(NamedTuple):
    """The live tables of a keeper, never copied."""

    claims: Mapping[str, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]


class SurroundingsKeeper:
    """The changing side of `Surroundings`; every event is O(1), `frozen` copies what changed since it was last asked.

    Args:
        now: the wall clock; without it nobody learns since when a claim has named its node.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        self._now = now
        self._selected: _Table[datetime] = _Table()
        self._claims: _Table[PersistentVolumeClaim] = _Table()
        self._volumes: _Table[PersistentVolume] = _Table()
        self._classes: _Table[StorageClass] = _Table()
        self._namespaces: _Table[Mapping[str, str]] = _Table()
        self._services: _Table[tuple[Mapping[str, str], ...]] = _Table()
        self._controllers: _Table[LabelSelector] = _Table()
        self._attach_limits: _Table[Mapping[str, int]] = _Table()
        self._service_selectors: dict[str, dict[str, Mapping[str, str]]] = {}  # namespace -> name -> selector
        self._csi_nodes: dict[str, Mapping[str, int]] = {}
        self._lost: dict[str, Mapping[str, int]] = {}  # of those, what drivers took that are not listed any more
        self._live = _Volumes(self._claims.values, self._volumes.values, self._classes.values)
        self._drivers: set[str] = set()  # those of which there is a CSIDriver
        self._required: frozenset[str] = _NO_DRIVERS
        self._said: dict[str, dict[str, Mapping[str, int]]] = {}  # instance type -> Node -> its limits
        self._frozen: Surroundings | None = None

    def told(self, take: Callable[["SurroundingsKeeper"], None]) -> None:
        """Let `take` enter an event about volumes, namespaces or selectors; under the lock of the state."""
        take(self)

    def frozen(self) -> Surroundings:
        """Everything as it is now; the same object while nothing changes."""
        tables = (
            self._claims,
            self._volumes,
            self._classes,
            self._namespaces,
            self._services,
            self._controllers,
            self._attach_limits,
            self._selected,
        )
        if (
            self._frozen is not None
            and not any(map(_CHANGED, tables))
            and self._frozen.required_drivers == self._required
        ):
            return self._frozen
        self._frozen = Surroundings(
            claims=self._claims.frozen(),
            volumes=self._volumes.frozen(),
            classes=self._classes.frozen(),
            namespaces=self._namespaces.frozen(),
            services=self._services.frozen(),
            controllers=self._controllers.frozen(),
            attach_limits=self._attach_limits.frozen(),
            selected=self._selected.frozen(),
            required_drivers=self._required,
        )
        return self._frozen

    def limits_of(self, node_name: str) -> Mapping[str, int]:
        """How many volumes of each CSI driver a Node takes, as far as its drivers have said; `ANY_NUMBER` where one has no limit.

        One that is not listed any more, as its pod restarts, takes what it took.
        """
        listed, lost = self._csi_nodes.get(node_name, _NO_LIMITS), self._lost.get(node_name)
        return {**lost, **listed} if lost else listed

    def drivers_missing(self, node_name: str) -> frozenset[str]:
        """CSI drivers that a Node's CSINode does not list, and without which no pod with a volume of theirs may run there."""
        return self._required.difference(self._csi_nodes.get(node_name, ())) if self._required else _NO_DRIVERS

    def drivers_awaited(self, node_name: str, pod: Pod) -> frozenset[str]:
        """CSI drivers that a pod's volumes need, and that a Node's CSINode does not list yet. One without a CSIDriver may be none, and never come.

        kube-scheduler refuses the pod until then where the driver must be there, and where a volume asks for labels of the driver's topology, which the
        kubelet adds when the driver registers. Cost: O(volumes of the pod).
        """
        if not pod.shape.volumes or not self._drivers:
            return _NO_DRIVERS
        needed = {driver for driver, _ in attachments_of((pod,), self._live)}
        return frozenset(needed & self._drivers).difference(self._csi_nodes.get(node_name, ()))

    def volume_of(self, claim: str) -> str:
        """Name of the PersistentVolume of a PersistentVolumeClaim, by "namespace/name"; "" where unknown."""
        known = self._claims.get(claim)
        return known.spec.volume_name if known is not None else ""

    def claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """A PersistentVolumeClaim was added, changed or removed."""
        if one := new or old:
            key = key_of(one.metadata)
            before, after = _selection(self._claims.get(key)), _selection(new)
            if before != after and self._now is not None:
                self._selected.put(key, self._now() if after is not None else None)
            self._claims.put(key, new)

    def volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """A PersistentVolume was added, changed or removed."""
        if one := new or old:
            self._volumes.put(one.metadata.name, new)

    def class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """A StorageClass was added, changed or removed."""
        if one := new or old:
            self._classes.put(one.metadata.name, new)

    def namespace_changed(self, old: LabelledNamespace | None, new: LabelledNamespace | None) -> None:
        """A Namespace was added, changed or removed."""
        if one := new or old:
            self._namespaces.put(one.metadata.name, new.metadata.labels if new is not None else None)

    def service_changed(self, old: PodLabelling | None, new: PodLabelling | None) -> None:
        """A Service was added, changed or removed."""
        one = new or old
        if one is None:
            return
        namespace = one.metadata.namespace
        mine = self._service_selectors.setdefault(namespace, {})
        if new is not None and new.spec.selector is not None:
            mine[one.metadata.name] = new.spec.selector
        else:
            mine.pop(one.metadata.name, None)
        if not mine:
            del self._service_selectors[namespace]
        self._services.put(namespace, tuple(mine[name] for name in sorted(mine)) or None)

    def controller_changed(self, old: PodSelecting | None, new: PodSelecting | None) -> None:
        """A ReplicaSet or StatefulSet was added, changed or removed."""
        if one := new or old:
            self._controllers.put(one.metadata.uid, new.spec.selector if new is not None else None)

    def replication_controller_changed(self, old: PodLabelling | None, new: PodLabelling | None) -> None:
        """A ReplicationController was added, changed or removed; its selector is a plain map of labels."""
        if one := new or old:
            given = new.spec.selector if new is not None else None
            self._controllers.put(one.metadata.uid, LabelSelector(match_labels=given) if given else None)

    def csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> bool:
        """A CSINode was added, changed or removed; whether its drivers or their limits are others now."""
        one = new or old
        if one is None:
            return False
        name = one.metadata.name
        limits = {driver.name: driver.most_volumes for driver in (new.spec.drivers if new is not None else ())}
        before = self._csi_nodes.get(name, _NO_LIMITS)
        if limits == before and new is not None:
            return False
        known = {**self._lost.get(name, _NO_LIMITS), **before} if new is not None else _NO_LIMITS
        lost = {driver: count for driver, count in known.items() if driver in self._drivers and driver not in limits}
        for table, value in ((self._csi_nodes, limits), (self._lost, lost)):
            if value:
                table[name] = MappingProxyType(value)
            else:
                table.pop(name, None)
        return limits != before

    def csi_driver_changed(self, old: CSIDriver | None, new: CSIDriver | None) -> bool:
        """A CSIDriver was added, changed or removed; whether Nodes without it are others now.

        Source: CSIDriver `spec.preventPodSchedulingIfMissing` (Kubernetes 1.37; older API servers do not keep it).
        """
        one = new or old
        if one is None:
            return False
        name = frozenset([one.metadata.name])
        says = new is not None and bool(new.spec.prevent_pod_scheduling_if_missing)
        before, self._required = self._required, self._required | name if says else self._required - name
        (self._drivers.discard if new is None else self._drivers.add)(one.metadata.name)
        return self._required != before

    def learn(self, instance_type: str, node_name: str, limits: Mapping[str, int]) -> None:
        """A Node of this type has these limits: nodes to come will have them too.

        Of Nodes that differ the median counts, of an even number the greater of the two in the middle: a kubelet says what it wants of its own
        Node, and one alone must not turn volumes away from its type. What was learnt is kept when the last Node of a type goes. Of a type
        the last `TEACHERS` Nodes count.
        """
        said = self._said.setdefault(instance_type, {})
        if said.get(node_name) == limits:
            return
        put_newest(said, node_name, limits, TEACHERS)
        drivers = sorted({driver for one in said.values() for driver in one})
        counts = {driver: sorted(one[driver] for one in said.values() if driver in one) for driver in drivers}
        median = {driver: found[len(found) // 2] for driver, found in counts.items()}
        if median != self._attach_limits.get(instance_type):
            self._attach_limits.put(instance_type, MappingProxyType(median))


def _selection(claim: PersistentVolumeClaim | None) -> tuple[str, str] | None:
    """UID and node of a claim for which a volume is to be made for a node; None for any other."""
    annotations = claim.metadata.annotations if claim is not None else {}
    node = annotations.get(names.SELECTED_NODE, "")
    return (
        (claim.metadata.uid, node) if claim is not None and node and names.BIND_COMPLETED not in annotations else None
    )
