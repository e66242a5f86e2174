"""Writes to NodeClaims and Nodes, told to the state at once."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS, ConditionChangedError
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.state.cluster import Cluster
from provisioner.state.effects import Effect
from provisioner.support import logs
from provisioner.values.message import ConditionMessage, Said

_log = logs.get_logger(__name__)

#: Writes of one status; others write the same claim a few times a minute at most.
_TRIES = 4


class ClaimWriter:
    """The only writer of NodeClaims after their creation; every answer goes into the state before anything else.

    Args:
        effects: carries out what the state wants done (see `provisioner.state.effects`).
    """

    def __init__(self, client: Client, cluster: Cluster, effects: Callable[[Iterable[Effect]], None]) -> None:
        self._client, self._cluster, self._effects = client, cluster, effects

    def status(self, claim: NodeClaim, conditions: tuple[Condition, ...], **fields: object) -> NodeClaim:
        """Patch conditions and other status fields (wire names); a status that is like that already costs nothing.

        Only what differs between `claim.status.conditions` and `conditions` is changed: it is put into the newest known
        list, and the write is guarded by that list's version and made again from a fresh one where it was outdated. So
        two writers never lose each other's condition.

        Raises:
            Conflict: another writer changed the same condition, or the claim is another one now; decide anew.
            NotFound: the claim is gone.
        """
        status: dict[str, Any] = {key: msgspec.to_builtins(value) for key, value in fields.items()}
        if conditions == claim.status.conditions:
            if not status:
                return claim
            body = {"metadata": {"uid": claim.metadata.uid}, "status": status}
            return self._told(self._patch_status(claim, body))
        current = self._cluster.claim(claim.metadata.name)
        if current is None or current.metadata.uid != claim.metadata.uid or not current.metadata.resource_version:
            current = claim
        for attempt in range(_TRIES):
            rebased = _rebased(claim, conditions, current)
            if rebased == current.status.conditions and not status:
                return current
            body = {
                "metadata": {"uid": claim.metadata.uid, "resourceVersion": current.metadata.resource_version},
                "status": {**status, "conditions": [msgspec.to_builtins(one) for one in rebased]},
            }
            try:
                return self._told(self._patch_status(claim, body))
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
                current = self._told(self._client.get(resources.NODECLAIMS, claim.metadata.name))
                if current.metadata.uid != claim.metadata.uid:
                    raise
        raise AssertionError("the loop returns or raises")

    def _patch_status(self, claim: NodeClaim, body: object) -> NodeClaim:
        return self._client.patch(resources.NODECLAIMS, claim.metadata.name, body, subresource="status", kind="merge")

    def metadata(self, claim: NodeClaim, **fields: object) -> NodeClaim:
        """Patch metadata fields (wire names); maps are merged, None removes a key."""
        body = {"metadata": {"uid": claim.metadata.uid, **fields}}
        return self._told(self._client.patch(resources.NODECLAIMS, claim.metadata.name, body, kind="merge"))

    def patch(self, claim: NodeClaim, operations: list[dict[str, Any]]) -> NodeClaim:
        """Apply a JSON patch; its tests say what it was decided from.

        Raises:
            Invalid, Conflict: a test failed; read again and decide anew.
        """
        return self._told(self._client.patch(resources.NODECLAIMS, claim.metadata.name, operations, kind="json"))

    def read(self, claim: NodeClaim) -> NodeClaim:
        """The claim as the API server has it."""
        return self._told(self._client.get(resources.NODECLAIMS, claim.metadata.name))

    def drop_finalizer(self, claim: NodeClaim) -> None:
        """Let the claim go; it may be gone already."""
        left = [finalizer for finalizer in claim.metadata.finalizers if finalizer != names.TERMINATION_FINALIZER]
        guard = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
        try:
            self._client.patch(resources.NODECLAIMS, claim.metadata.name, {"metadata": {**guard, "finalizers": left}})
        except NotFound:
            return

    def delete(self, claim: NodeClaim, *, version: str = "") -> None:
        """Begin the claim's end; it may be gone already.

        Raises:
            Conflict: it is not at `version`, where one is given, or another claim has the name.
        """
        if claim.metadata.deletion_timestamp is not None:
            return
        try:
            self._client.delete(
                resources.NODECLAIMS, claim.metadata.name, uid=claim.metadata.uid, resource_version=version
            )
        except NotFound:
            return
        self._effects(self._cluster.claim_deleted(claim))

    def delete_unneeded(self, claim: NodeClaim) -> None:
        """Delete a claim that nobody needs, see `ClaimPlans.is_unneeded`.

        Raises:
            Conflict: it has changed since that was decided.
        """
        _log.info(
            "Deleting NodeClaim because its pods were scheduled to other nodes, or a NodeClaim of its launch set is missing",
            nodeclaim=claim.metadata.name,
        )
        self.delete(claim, version=claim.metadata.resource_version)

    def end(self, claim: NodeClaim, why: str) -> bool:
        """Begin the claim's end, and write on it why: so a pause tells its drain from that of a claim which a user deletes.

        Returns:
            Whether we began it: False where it is gone, or somebody else had deleted it.

        Raises:
            Conflict: others write it all the time.
        """
        uid = claim.metadata.uid
        for left in reversed(range(_TRIES)):
            if claim.metadata.deletion_timestamp is not None or claim.metadata.uid != uid:
                return False
            try:  # a deletion of what is being deleted succeeds: the version tells them apart
                version = claim.metadata.resource_version
                self._client.delete(resources.NODECLAIMS, claim.metadata.name, uid=uid, resource_version=version)
                break
            except NotFound:
                return False
            except Conflict:
                if not left:
                    raise
            try:
                claim = self.read(claim)
            except NotFound:
                return False
        self._effects(self._cluster.claim_deleted(claim))
        with contextlib.suppress(ApiError):  # it ends all the same, and no pause holds its drain
            self.metadata(claim, annotations={names.ENDED_FOR: why})
        return True

    def take(self, effects: Iterable[Effect]) -> None:
        """What the state wants done about something that was told to it without a write."""
        self._effects(effects)

    def node_written(self, node: Node) -> Node:
        """The answer to a write to a Node that somebody else made: told to the state before the watch tells it."""
        self._effects(self._cluster.node_written(node))
        return node

    def label_node(self, node: Node, labels: Mapping[str, str | None]) -> None:
        """Set labels of a Node; None removes one."""
        body = {"metadata": {"uid": node.metadata.uid, "labels": labels}}
        self.node_written(self._client.patch(resources.NODES, node.metadata.name, body))

    def delete_node(self, node: Node) -> None:
        """Begin a Node's end; it may be gone already."""
        if node.metadata.deletion_timestamp is not None:
            return
        try:
            self._client.delete(resources.NODES, node.metadata.name, uid=node.metadata.uid)
        except NotFound:
            return
        self._effects(self._cluster.node_deleted(node))

    def _told(self, claim: NodeClaim) -> NodeClaim:
        self._effects(self._cluster.claim_written(claim))
        return claim


def _rebased(claim: NodeClaim, wanted: tuple[Condition, ...], current: NodeClaim) -> tuple[Condition, ...]:
    try:
        return CLAIM_CONDITIONS.rebased(
            claim.status.conditions, wanted, current.status.conditions, generation=current.metadata.generation
        )
    except ConditionChangedError as error:
        raise Conflict(409, "Conflict", Said(f"NodeClaim {claim.name}: {error}")) from error


def with_conditions(claim: NodeClaim, *said: ConditionMessage, now: datetime) -> tuple[Condition, ...]:
    """The conditions of a claim once these are said of it now; the same tuple where that changes nothing."""
    conditions = claim.status.conditions
    for one in said:
        conditions = CLAIM_CONDITIONS.set(conditions, *one, generation=claim.metadata.generation, now=now)
    return conditions


def age_seconds(since: datetime | None, now: datetime) -> float:
    """Seconds from `since` to `now`; 0 where unknown."""
    return (now - since).total_seconds() if since is not None else 0.0
