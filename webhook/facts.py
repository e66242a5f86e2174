"""What stamping and validation need to know of the cluster, from watches; never a network call in the path of a request."""

import random
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from provisioner.apis import names
from provisioner.apis.core import ConfigMap, Lease, Namespace
from provisioner.apis.karpenter import NodePool
from provisioner.apis.leases import SeenLease
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.shares import Seat, Share, ShareOwner
from provisioner.apis.stamping import Images, ImagesAsked, StampFacts
from provisioner.kube.config import Api
from provisioner.kube.lag import BEHIND_SECONDS, Prober
from provisioner.kube.resources import (
    CONFIGMAPS,
    EC2NODECLASSES,
    KWOKNODECLASSES,
    LEASES,
    NAMESPACES,
    NODEOVERLAYS,
    NODEPOOLS,
    Resource,
    itself,
)
from provisioner.kube.watch import Reflector, trouble
from provisioner.support.clock import Clock
from provisioner.values.taints import Taint
from webhook.shares import SharedPod, ShareLedger, decode_shared
from webhook.validation import ValidationContext

NAMESPACE_WAIT_SECONDS = 0.1
MAX_WAITING = 4
"""How many reviews may wait for a namespace at a time; half of the threads stay free for all others."""
PODS_PAGE = 25
"""Pods a request, where they are not streamed: tenants make pods of 1.5 MB, and label them as they like."""
_SHARED_PODS: Resource[SharedPod] = Resource("", "v1", "pods", "Pod", True, decode_shared, identity=itself)


class ImageSource(Protocol):
    """Who knows what images were built for (`webhook.images`)."""

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images: ...


class NamespaceFacts:
    """The facts for one pod at a time, from caches that follow the API server. Thread-safe.

    Args:
        clock: for the age of the scheduler's Lease.
        own_namespace: where Dovetail runs and its ConfigMap `dovetail-defaults` lies.
        scheduler_lease: namespace and name of our scheduler's leader election Lease.
        scheduler_name: what is stamped as `schedulerName`.
        count_pods: whether pods with a share on demand are watched; without that, shares are not applied.
    """

    def __init__(
        self,
        connection: Api,
        clock: Clock,
        own_namespace: str,
        scheduler_lease: tuple[str, str],
        scheduler_name: str = names.SCHEDULER_NAME,
        *,
        count_pods: bool = False,
    ) -> None:
        self._own_namespace, self._scheduler_name = own_namespace, scheduler_name
        self._lease_key = "/".join(scheduler_lease)
        self._defaults_key = f"{own_namespace}/{names.DEFAULTS_CONFIGMAP}"
        self._heartbeat = Heartbeat(clock)
        self._arrivals = _Arrivals()
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)
        self._clock = clock
        chance = random.Random()
        self._namespaces: Reflector[Namespace] = Reflector(
            connection, NAMESPACES, changed=self._arrivals.changed, clock=clock, rng=chance
        )
        self._defaults: Reflector[ConfigMap] = Reflector(
            connection, CONFIGMAPS, namespace=own_namespace,
            field_selector=f"metadata.name={names.DEFAULTS_CONFIGMAP}", clock=clock, rng=chance,
        )  # fmt: skip
        self._leases: Reflector[Lease] = Reflector(
            connection, LEASES, changed=self._heartbeat.changed, listed=self._heartbeat.listed, namespace=scheduler_lease[0],
            field_selector=f"metadata.name={scheduler_lease[1]}", clock=clock, rng=chance,
        )  # fmt: skip

        self._prober = Prober((self._leases,), clock)  # whether a pod is given to our scheduler depends on it
        self._images: ImageSource | None = None
        self._shares = ShareLedger(clock)
        self._shared: Reflector[SharedPod] | None = None
        if count_pods:  # only those that were stamped and run or may run
            self._shared = Reflector(
                connection, _SHARED_PODS, changed=self._shares.changed, label_selector=names.ON_DEMAND_SHARE_LABEL,
                field_selector="status.phase!=Succeeded,status.phase!=Failed", clock=clock, rng=chance, page=PODS_PAGE,
            )  # fmt: skip
        self._pools: Reflector[NodePool] = Reflector(connection, NODEPOOLS, clock=clock, rng=chance)
        self._overlays: Reflector[NodeOverlay] = Reflector(connection, NODEOVERLAYS, clock=clock, rng=chance)
        self._classes: tuple[Reflector[Any], ...] = (
            Reflector(connection, EC2NODECLASSES, clock=clock, rng=chance),
            Reflector(connection, KWOKNODECLASSES, clock=clock, rng=chance),
        )

    def _reflectors(self) -> tuple[tuple[str, Reflector[Any]], ...]:
        return (
            ("namespaces", self._namespaces),
            (f"ConfigMap {self._defaults_key}", self._defaults),
            (f"Lease {self._lease_key}", self._leases),
            ("NodePools", self._pools),
            *((("pods with a share on demand", self._shared),) if self._shared is not None else ()),
        )

    def start(self) -> None:
        """Start the watches; after a fork, never before."""
        self._prober.poller.start()
        for _, reflector in self._reflectors():
            reflector.start()
        for reflector in (self._overlays, *self._classes):
            reflector.start()

    def stop(self) -> None:
        self._prober.poller.stop(0.0)
        for _, reflector in self._reflectors():
            reflector.stop()
        for reflector in (self._overlays, *self._classes):
            reflector.stop()

    def problem(self) -> str:
        """The caches that have not been filled yet, with what keeps them from it; "" when all are."""
        # a cluster without NodePools, or a role that may not read them or pods, takes away one stamp and nothing else
        optional = (self._pools, self._shared)
        reasons = [
            f"the cache of {name} is not synced yet"
            + (f" ({trouble(reflector.error, name)})" if reflector.error is not None else "")
            for name, reflector in self._reflectors()
            if not reflector.synced.is_set() and not (reflector in optional and reflector.error is not None)
        ]
        if self._heartbeat.in_doubt():  # a pod would be left with the default scheduler; it takes two seconds
            reasons.append(f"Lease {self._lease_key}: waiting to see whether it is renewed")
        return "; ".join(reasons)

    def of(self, namespace: str) -> StampFacts | None:
        """The facts for a pod of this namespace; None when the namespace is not known after at most 100 ms.

        A namespace made a moment ago may not have reached the cache when its first pod does. Only a few reviews wait at
        a time; the next are told None at once.
        """
        labels = self._labels(namespace)
        if labels is None:
            labels = self._wait_for(namespace)
        if labels is None:
            return None
        defaults = self._defaults.store.get(self._defaults_key)
        return StampFacts(
            namespace=namespace,
            namespace_labels=labels,
            defaults=defaults.data if defaults is not None else {},
            own_namespace=self._own_namespace,
            scheduler_name=self._scheduler_name,
            scheduler_alive=self._heartbeat.alive() and self._leases.lag() <= BEHIND_SECONDS,
            taints_of=self._taints_of if self._pools.synced.is_set() else None,
        )

    def seat(self, owner: ShareOwner, share: Share, review: str, *, keep: bool) -> Seat | None:
        """What the next pod of an owner is for; None while pods are not counted."""
        if self._shared is None or not self._shared.synced.is_set():
            return None
        return self._shares.seat(owner, share, review, keep=keep)

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images | None:
        """What is known of images; None while they are not looked up."""
        return None if self._images is None else self._images.images(asked, keep=keep)

    def look_up_images(self, images: "ImageSource") -> None:
        """Ask this from now on."""
        self._images = images

    def surroundings(self) -> ValidationContext:
        """What is known now of the objects that a validated one stands beside; where a cache is not filled, nothing."""
        return ValidationContext(
            pools=tuple(self._pools.store.list()) if self._pools.synced.is_set() else (),
            classes={
                (one.resource.group, one.resource.kind): frozenset(each.metadata.name for each in one.store.list())
                for one in self._classes
                if one.synced.is_set()
            },
            overlays=tuple(self._overlays.store.list()) if self._overlays.synced.is_set() else (),
        )

    def _taints_of(self, pool: str) -> tuple[Taint, ...] | None:
        found = self._pools.store.get(pool)
        return None if found is None else found.taints

    def _labels(self, namespace: str) -> Mapping[str, str] | None:
        found = self._namespaces.store.get(namespace)
        return None if found is None else found.metadata.labels

    def _wait_for(self, namespace: str) -> Mapping[str, str] | None:
        if not self._waiting.acquire(blocking=False):
            return None
        try:
            deadline = self._clock.monotonic() + NAMESPACE_WAIT_SECONDS
            with self._arrivals.condition:
                while (labels := self._labels(namespace)) is None:
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or not self._arrivals.condition.wait(left):
                        return self._labels(namespace)
                return labels
        finally:
            self._waiting.release()


class _Arrivals:
    """Wakes the reviews that wait for a namespace."""

    def __init__(self) -> None:
        self.condition = threading.Condition()

    def changed(self, old: Namespace | None, new: Namespace | None) -> None:  # noqa: ARG002 - the seam has it
        if old is None:
            with self.condition:
                self.condition.notify_all()


class Heartbeat:
    """Whether the scheduler renews its Lease, as a watch sees it: one that was there when we started counts from its first renewal on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = SeenLease()

    def alive(self) -> bool:
        """Whether the Lease is held and its renewal was seen within its duration."""
        return self._seen.is_renewed(self._clock.monotonic())

    def in_doubt(self) -> bool:
        """Whether the Lease was held when we started, and its next renewal may still be to come."""
        return self._seen.is_doubtful(self._clock.monotonic())

    def changed(self, old: Lease | None, new: Lease | None) -> None:  # noqa: ARG002 - the seam has it
        """Take in one change of the Lease."""
        self._seen = self._seen.after(new, self._clock.monotonic())

    def listed(self) -> None:
        """What the first list holds has come as events; from now on a new Lease is one that was just made."""
        if self._seen.renewal is None:
            self._seen = self._seen.after(None, self._clock.monotonic())
