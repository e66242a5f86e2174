"""Checks whether Nodes have the capacity that their instances were said to have. Source: core spec 5, "Consistency"."""

import random
import threading

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.kube.errors import Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime.controller import Keys
from provisioner.runtime.object_reference import reference_of
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.values.message import ConditionMessage, Said
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import Resources

PERIOD_SECONDS = 600.0
LEAST_PERCENT = 90


def _shortfall(resource: str, expected: str, found: str, percent: int) -> str:
    """What `failed_consistency_check` and the condition ConsistentStateFound say."""
    return Said(f"expected {expected} of {resource}, but the Node has {found} ({percent}%)")


def shortfalls(claim: NodeClaim, node: Node) -> tuple[str, ...]:
    """What the Node has clearly less of than the instance was said to have, of the resources that were asked for; pure.

    Amounts that cannot be read are not judged.
    """
    try:
        asked = Resources.parse(claim.spec.resources.requests)
        expected, found = Resources.parse(claim.status.capacity), Resources.parse(node.status.capacity)
    except QuantityError:
        return ()
    texts = []
    for name, amount in asked.items():
        wanted, had = expected.amount(name), found.amount(name)
        if amount > 0 and had * 100 < wanted * LEAST_PERCENT:
            wire = Resources.of({name: wanted}).to_wire()[name], Resources.of({name: had}).to_wire()[name]
            texts.append(_shortfall(name, *wire, had * 100 // wanted))
    return tuple(texts)


class Consistency:
    """Compares every initialised claim with its Node, each once in ten minutes, and says so on the claim."""

    def __init__(
        self, cluster: Cluster, writer: ClaimWriter, recorder: Recorder, clock: Clock, *, chance: random.Random
    ) -> None:
        self._cluster, self._writer, self._recorder, self._clock = cluster, writer, recorder, clock
        self._chance = chance
        self._lock = threading.Lock()
        self._known: set[str] = set()

    def seen(self, claim: NodeClaim, *, at_start: bool = False) -> Keys:
        """A claim as it is now, and when it is looked at; those that are there at the start are spread over the period."""
        name = claim.metadata.name
        if not is_true(claim.status.conditions, names.INITIALIZED):
            return ()
        with self._lock:
            if name in self._known:
                return ()
            self._known.add(name)
        return ((name, self._chance.uniform(0.0, PERIOD_SECONDS) if at_start else PERIOD_SECONDS),)

    def reconcile(self, name: str) -> ReconcileResult:
        """Compare one claim with its Node."""
        claim = self._cluster.claim(name)
        if claim is None:
            with self._lock:
                self._known.discard(name)
            return DONE
        node = self._cluster.node_of(claim)
        initialized = is_true(claim.status.conditions, names.INITIALIZED)
        if node is None or not initialized or claim.metadata.deletion_timestamp is not None:
            return ReconcileResult(requeue_after=PERIOD_SECONDS)
        found = shortfalls(claim, node)
        for text in found:
            self._recorder.publish(reference_of(claim), "Warning", "FailedConsistencyCheck", text)
        said = (
            ConditionMessage(
                names.CONSISTENT_STATE_FOUND, names.FALSE, names.CONSISTENCY_CHECK_FAILED, "; ".join(found)
            )
            if found
            else ConditionMessage(names.CONSISTENT_STATE_FOUND, names.TRUE)
        )
        try:
            self._writer.status(claim, with_conditions(claim, said, now=self._clock.now()))
        except (NotFound, Conflict):
            return ReconcileResult(requeue_after=1.0)
        return ReconcileResult(requeue_after=PERIOD_SECONDS)
