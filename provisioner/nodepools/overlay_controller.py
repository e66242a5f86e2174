"""Keeps the conditions of each NodeOverlay, which say whether it is applied. Source: core spec 1.3."""

from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.conditions import OVERLAY_CONDITIONS
from provisioner.apis.karpenter import NodePool
from provisioner.apis.overlay import NodeOverlay
from provisioner.cloudprovider.overlays import Overlays
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.store import Store
from provisioner.runtime.changes import Change, NodeOverlayChanged, NodePoolChanged
from provisioner.runtime.controller import Keys
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.values.message import ConditionMessage

#: Instance types come and go, and with them conflicts.
RECHECK_SECONDS: Final = 300.0
#: An event about a NodePool or an overlay concerns all overlays; this much later they are looked at, together.
DELAY_SECONDS: Final = 1.0
_log = logs.get_logger(__name__)


class OverlayStatus:
    """One key is a NodeOverlay's name.

    Args:
        store: of NodeOverlays; None while the feature gate NodeOverlay is off, then nothing is said.
    """

    def __init__(self, client: Client, overlays: Overlays, clock: Clock, store: Store[NodeOverlay] | None) -> None:
        self._client, self._overlays, self._clock, self._store = client, overlays, clock, store

    def heard(self, change: Change) -> Keys:
        """All overlays after an event that may have changed which of them are in force."""
        match change:
            case NodeOverlayChanged(old=NodeOverlay() as old, new=NodeOverlay() as new) if old.spec == new.spec:
                return (new.metadata.name,)  # our own write, or somebody else's over it
            case NodeOverlayChanged():
                return self.all()
            case NodePoolChanged(old=NodePool() as before, new=NodePool() as after) if before.spec == after.spec:
                return ()
            case NodePoolChanged():
                return self.all(DELAY_SECONDS)
            case _:
                return ()

    def all(self, seconds: float = 0.0) -> Keys:
        """Every overlay, in so many seconds."""
        return [(one.metadata.name, seconds) for one in self._store.list()] if self._store is not None else ()

    def reconcile(self, name: str) -> ReconcileResult:
        """Make the conditions of one overlay true."""
        overlay = self._store.get(name) if self._store is not None else None
        if overlay is None:
            return DONE
        now, meta = self._clock.now(), overlay.metadata
        conditions = OVERLAY_CONDITIONS.initialise(
            overlay.status.conditions, generation=meta.generation, created=meta.creation_timestamp or now
        )
        problem = self._overlays.problem(name)
        conditions = OVERLAY_CONDITIONS.set(
            conditions,
            *(
                ConditionMessage(names.VALIDATION_SUCCEEDED, names.TRUE)
                if problem is None
                else ConditionMessage(names.VALIDATION_SUCCEEDED, names.FALSE, problem.reason, problem.message)
            ),
            generation=meta.generation,
            now=now,
        )
        if conditions != overlay.status.conditions:
            if problem is not None:
                _log.warning(
                    "The NodeOverlay is not applied", nodeoverlay=name, reason=problem.reason, message=problem.message
                )
            body = {"metadata": {"uid": meta.uid}, "status": {"conditions": msgspec.to_builtins(conditions)}}
            try:
                self._client.patch(resources.NODEOVERLAYS, name, body, subresource="status")
            except NotFound:
                return DONE
            except ApiError as error:
                _log.warning(
                    "Failed to write the status of a NodeOverlay; retrying", nodeoverlay=name, error=str(error)
                )
                return ReconcileResult(failed=True)
        return ReconcileResult(requeue_after=RECHECK_SECONDS)
