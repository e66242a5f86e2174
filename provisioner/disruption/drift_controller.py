"""Keeps the condition Drifted of NodeClaims: whether an instance is what its NodePool and NodeClass ask for now.

Source: core spec 6.7. Nothing here disrupts anything.
"""

from collections.abc import Callable

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition, is_true
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import CloudProvider
from provisioner.disruption.pool_drift import pool_drift, type_drift
from provisioner.kube.errors import Conflict, NotFound
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime.changes import Change, NodeClaimChanged, NodeClassChanged, NodePoolChanged
from provisioner.runtime.conditioned import Conditioned
from provisioner.runtime.controller import Keys
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.values.message import ConditionMessage

RECHECK_SECONDS = 300.0
#: An event about a pool or a class concerns all its claims; this much later they are looked at, together.
DELAY_SECONDS = 1.0
#: After a change of a class, what is discovered for it needs a moment to be in its status; where the status says that it is there, nobody waits.
CLASS_DELAY_SECONDS = 5.0
_log = logs.get_logger(__name__)


class DriftController:
    """One key is a claim's name.

    Args:
        pool: the NodePool of that name.
    """

    def __init__(
        self,
        cluster: Cluster,
        provider: CloudProvider,
        writer: ClaimWriter,
        clock: Clock,
        *,
        pool: Callable[[str], NodePool | None],
    ) -> None:
        self._cluster, self._provider, self._writer, self._clock = cluster, provider, writer, clock
        self._pool = pool

    def heard(self, change: Change) -> Keys:
        """The claims that an event may have made drift, or back."""
        match change:
            case NodeClaimChanged(old=old, new=NodeClaim() as claim):
                if old is None or _judged_by(old) != _judged_by(claim):
                    return [(claim.name, DELAY_SECONDS)]
            case NodePoolChanged(old=before, new=NodePool() as pool):
                if before is None or _pool_facts(before) != _pool_facts(pool):
                    return [(claim.name, DELAY_SECONDS) for claim in self._cluster.claims() if claim.pool == pool.name]
            case NodeClassChanged(new=node_class) if node_class is not None:
                name = node_class.metadata.name
                seconds = DELAY_SECONDS if _is_looked_at(node_class) else CLASS_DELAY_SECONDS
                return [(one.name, seconds) for one in self._cluster.claims() if one.spec.node_class_ref.name == name]
            case _:
                pass
        return ()

    def reconcile(self, name: str) -> ReconcileResult:
        """Judge one claim, and say so on it."""
        claim = self._cluster.claim(name)
        if claim is None or claim.metadata.deletion_timestamp is not None or not claim.metadata.uid:
            return DONE
        if not is_true(claim.status.conditions, names.LAUNCHED):
            return DONE  # its launch brings us back
        try:
            self._tell(claim, self._judge(claim))
        except (NotFound, Conflict):
            return ReconcileResult(requeue_after=DELAY_SECONDS)
        except CloudError as error:  # what was judged before stays
            _log.debug("Skipped the drift check of a NodeClaim", nodeclaim=name, why=str(error))
        return ReconcileResult(requeue_after=RECHECK_SECONDS)

    def _judge(self, claim: NodeClaim) -> str:
        pool = self._pool(claim.pool)
        if pool is None:
            return ""
        if reason := pool_drift(claim, pool):
            return reason
        if reason := type_drift(claim, self._provider.instance_types(pool), self._clock.now()):
            return reason
        return self._provider.is_drifted(claim)

    def _tell(self, claim: NodeClaim, reason: str) -> None:
        claim = self._cluster.claim(claim.name) or claim  # the provider took a while
        known = condition(claim.status.conditions, names.DRIFTED)
        if (known.reason if known is not None else "") == reason:
            return
        if not reason:
            self._writer.status(claim, CLAIM_CONDITIONS.clear(claim.status.conditions, names.DRIFTED))
            _log.info("NodeClaim no longer differs from its NodePool and NodeClass", nodeclaim=claim.name)
            return
        self._writer.status(
            claim,
            with_conditions(claim, ConditionMessage(names.DRIFTED, names.TRUE, reason, reason), now=self._clock.now()),
        )
        _log.info("NodeClaim has drifted", nodeclaim=claim.name, reason=reason)


def _judged_by(claim: NodeClaim) -> tuple[object, ...]:
    annotations = claim.metadata.annotations
    return (
        is_true(claim.status.conditions, names.LAUNCHED),
        claim.metadata.labels,
        claim.status.image_id,
        *(value for key, value in sorted(annotations.items()) if key.endswith(("-hash", "-hash-version"))),
    )


def _is_looked_at(node_class: Conditioned) -> bool:
    """Whether every condition of the class, whatever its kind, is of its present generation; not where it has none."""
    return {one.observed_generation for one in node_class.status.conditions} == {node_class.metadata.generation}


def _pool_facts(pool: NodePool) -> tuple[object, ...]:
    return (
        pool.metadata.generation,
        pool.metadata.annotations.get(names.NODEPOOL_HASH),
        pool.metadata.annotations.get(names.NODEPOOL_HASH_VERSION),
    )
