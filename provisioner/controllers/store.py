"""Writes to NodeClaims, counted and told to the state at once."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.state.cluster import Cluster, Effect


class ClaimWriter:
    """The only writer of NodeClaims after their creation; every answer goes into the state before anything else.

    Args:
        effects: carries out what the state wants done (see `provisioner.state.cluster.Effect`).
    """

    def __init__(self, client: Client, cluster: Cluster, effects: Callable[[Iterable[Effect]], None]) -> None:
        self._client, self._cluster, self._effects = client, cluster, effects

    def status(self, claim: NodeClaim, conditions: tuple[Condition, ...], **fields: object) -> NodeClaim:
        """Patch conditions and other status fields (wire names); a status that is like that already costs nothing."""
        status: dict[str, Any] = {key: msgspec.to_builtins(value) for key, value in fields.items()}
        if conditions != claim.status.conditions:
            status["conditions"] = [msgspec.to_builtins(condition) for condition in conditions]
        if not status:
            return claim
        body = {"metadata": {"uid": claim.metadata.uid}, "status": status}
        return self._told(
            self._client.patch(resources.NODECLAIMS, claim.metadata.name, body, subresource="status", kind="merge")
        )

    def metadata(self, claim: NodeClaim, **fields: object) -> NodeClaim:
        """Patch metadata fields (wire names); maps are merged, None removes a key."""
        body = {"metadata": {"uid": claim.metadata.uid, **fields}}
        return self._told(self._client.patch(resources.NODECLAIMS, claim.metadata.name, body, kind="merge"))

    def drop_finalizer(self, claim: NodeClaim) -> None:
        """Let the claim go; it may be gone already."""
        left = [finalizer for finalizer in claim.metadata.finalizers if finalizer != names.TERMINATION_FINALIZER]
        guard = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
        try:
            self._client.patch(resources.NODECLAIMS, claim.metadata.name, {"metadata": {**guard, "finalizers": left}})
        except NotFound:
            return

    def delete(self, claim: NodeClaim) -> None:
        """Begin the claim's end; it may be gone already."""
        if claim.metadata.deletion_timestamp is not None:
            return
        try:
            self._client.delete(resources.NODECLAIMS, claim.metadata.name, uid=claim.metadata.uid)
        except NotFound:
            return

    def _told(self, claim: NodeClaim) -> NodeClaim:
        self._effects(self._cluster.claim_written(claim))
        return claim


def age_seconds(since: datetime | None, now: datetime) -> float:
    """Seconds from `since` to `now`; 0 where unknown."""
    return (now - since).total_seconds() if since is not None else 0.0
