"""Which certificate each replica serves: one annotation for each of them, on one Lease that the manifests make.

One object for all, because replicas' names are not known beforehand, and a right to write every Lease of the namespace is the
right to lead in everybody's place. Replicas write different keys, so their patches never meet.

A record is renewed while its replica lives, and judged by the change that was seen here, on our monotonic clock: what another
machine's clock says is for people only.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.core import Lease, micro_time
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from provisioner.kube.resources import LEASES
from provisioner.support.clock import Clock

RECORDS_LEASE: Final = "dovetail-certs-replicas"
PREFIX: Final = names.SERVING_PREFIX
FORGET_AFTER: Final = 10
"""Lifetimes of a record without a renewal after which it is taken off: its replica was killed."""

_MAX_KEY: Final = 63


@dataclass(frozen=True)
class Replica:
    """One replica as its record tells it."""

    name: str
    fingerprint: str
    live: bool


def record_key(identity: str) -> str:
    """The annotation of a replica; identities that are too long for a key are told apart by their digest."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity).strip("-_.") or "replica"
    if len(name) > _MAX_KEY:
        digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        name = f"{name[: _MAX_KEY - len(digest) - 1]}-{digest}"
    return PREFIX + name


class Roll:
    """The records of one Lease as they change under our eyes. Pure.

    Args:
        lifetime: seconds without a renewal after which a replica counts as gone.
    """

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._seen: dict[str, tuple[str, float]] = {}  # key -> its text, and when that was new to us

    def look(self, annotations: Mapping[str, str], now: float) -> list[Replica]:
        """Every replica with a record, by key. One that is seen for the first time counts as live from now on."""
        records = {key: text for key, text in annotations.items() if key.startswith(PREFIX)}
        before = self._seen
        self._seen = {
            key: before[key] if key in before and before[key][0] == text else (text, now)
            for key, text in records.items()
        }
        return [
            Replica(key.removeprefix(PREFIX), text.partition(" ")[0], now - since <= self._lifetime)
            for key, (text, since) in sorted(self._seen.items())
        ]

    def left_behind(self, now: float) -> list[str]:
        """Keys, as of the last look, that nobody has renewed for long."""
        return sorted(key for key, (_, since) in self._seen.items() if now - since > FORGET_AFTER * self._lifetime)


class Records:
    """Reads and writes the Lease.

    Args:
        client: to write with; RBAC: get, create and patch that Lease.
        clock: for the text of a renewal, and for what was seen when.
        identity: of this replica, unique among the live ones.
        lifetime: seconds that a record is good for.
    """

    def __init__(self, client: Client, clock: Clock, namespace: str, identity: str, lifetime: float) -> None:
        self._client, self._clock, self._namespace = client, clock, namespace
        self._key = record_key(identity)
        self._roll = Roll(lifetime)
        self.own = self._key.removeprefix(PREFIX)

    def publish(self, fingerprint: str) -> None:
        """Write, or renew, what this replica serves.

        Raises:
            ApiError: the server refused.
        """
        changes = {self._key: f"{fingerprint} {micro_time(self._clock.now())}"}
        try:
            self._patch(changes)
        except NotFound:
            self._create(changes)

    def withdraw(self) -> None:
        """Take the record off.

        Raises:
            ApiError: the server refused.
        """
        try:
            self._patch({self._key: None})
        except NotFound:
            pass

    def replicas(self) -> list[Replica]:
        """Every replica with a record; those that were left behind long ago are taken off.

        Raises:
            ApiError: the server refused.
        """
        lease = self._client.find(LEASES, RECORDS_LEASE, self._namespace)
        if lease is None:
            return []
        now = self._clock.monotonic()
        found = self._roll.look(lease.metadata.annotations, now)
        self._forget(self._roll.left_behind(now), lease.metadata.resource_version)
        return found

    def _forget(self, keys: Iterable[str], version: str) -> None:
        changes: dict[str, str | None] = dict.fromkeys(keys)
        if changes:
            try:
                self._patch(changes, version)
            except Conflict:
                pass  # somebody renewed something, and we look again soon

    def _patch(self, annotations: Mapping[str, str | None], version: str = "") -> None:
        metadata: dict[str, object] = {"annotations": annotations}
        if version:
            metadata["resourceVersion"] = version
        self._client.patch(LEASES, RECORDS_LEASE, {"metadata": metadata}, self._namespace)

    def _create(self, annotations: dict[str, str]) -> None:
        """Somebody deleted it, or nobody made it; by its name where there is no right to POST, which cannot be limited to one."""
        body = Lease(
            metadata=ObjectMeta(
                name=RECORDS_LEASE,
                namespace=self._namespace,
                labels={"app.kubernetes.io/name": "dovetail"},
                annotations=annotations,
            )
        )
        try:
            self._client.create(LEASES, body, self._namespace)
        except AlreadyExists:
            self._patch(annotations)
        except Forbidden:
            self._client.apply(LEASES, RECORDS_LEASE, body, self.own, self._namespace)
