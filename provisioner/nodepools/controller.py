"""NodePools: hash, validation, readiness and counters, in at most two writes a change. Source: core spec 1.1, 5."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.conditions import POOL_CONDITIONS
from provisioner.apis.hash import HASH_VERSION, claim_stamp, pool_stamp
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.apis.node_class_providers import why_not_served
from provisioner.apis.pool_limits import MICROS, PoolLimitError, spending_limit
from provisioner.apis.validation import pool_problems, reserved_taints
from provisioner.cloudprovider.types import CloudProvider, manages
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime import metrics
from provisioner.runtime.object_reference import reference_of
from provisioner.scheduling.capacity.hourly_price import lacks_price
from provisioner.scheduling.capacity.spending import reached, spent
from provisioner.scheduling.node_claims import template_requirements
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import NodeView
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.values.message import ConditionMessage, Said
from provisioner.values.requirement import RequirementError
from provisioner.values.resources import Resources

_log = logs.get_logger(__name__)
#: Zero is written for these, so that `kubectl get` shows 0 and not nothing.
_ALWAYS_TOLD = (names.CPU, names.MEMORY, names.PODS, names.EPHEMERAL_STORAGE, names.NODES)
_USD = "usd_per_hour"
"""As `resource_type` of metrics."""
_RING = 4
#: A NodePool with fields that this version does not know says so again after so long.
UNKNOWN_SECONDS = 3600.0
#: And one whose launches fail.
LAUNCHES_FAILED_SECONDS = 600.0
_SAID: Mapping[str, tuple[bool, ...]] = {names.TRUE: (True,), names.FALSE: (False, False), names.UNKNOWN: ()}
"""The launches that a verdict of an earlier leader stands for, at least."""


def unknown_fields_ignored(kind: str, paths: Sequence[str]) -> str:
    """Of a NodePool or EC2NodeClass that a newer version wrote."""
    return Said(
        f"This version of Dovetail does not know {', '.join(paths)}: new nodes of this {kind} are launched without them, and the hash of the {kind} "
        "does not detect drift. Upgrade Dovetail, or remove the fields"
    )


class PoolHealth:
    """The last four launches of each NodePool: unhealthy when half of them failed. Thread-safe. Source: core spec 5."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._rings: dict[str, tuple[bool, ...]] = {}
        self._why: dict[str, str] = {}
        self._of: dict[str, tuple[int, int]] = {}

    def note(self, pool: str, healthy: bool, why: str = "") -> None:
        """A launch of this pool ended well, or did not, and where it is known `why`."""
        with self._lock:
            if healthy:
                self._why.pop(pool, None)
            elif why:
                self._why[pool] = why
            before = self._rings.get(pool, ())
            after = self._rings[pool] = (*before, healthy)[-_RING:]
        if after != before:
            self._changed(pool)

    def forget(self, pool: str) -> None:
        """The pool is gone; another one of its name begins anew."""
        with self._lock:
            self._rings.pop(pool, None)
            self._why.pop(pool, None)
            self._of.pop(pool, None)

    def verdict(self, pool: str, generations: tuple[int, int], told: str = names.UNKNOWN) -> str:
        """The condition's status.

        Args:
            pool: its name.
            generations: of the pool and of its class; a new one of either begins anew.
            told: what an earlier leader said of these generations, when this one has seen no launch yet.
        """
        with self._lock:
            known = self._of.get(pool)
            self._of[pool] = generations
            if known is None:
                self._rings[pool] = (_SAID[told] + self._rings.get(pool, ()))[-_RING:]
            elif known != generations:
                self._rings[pool] = ()
                self._why.pop(pool, None)
            ring = self._rings[pool]
        if not ring:
            return names.UNKNOWN
        return names.FALSE if ring.count(False) * 2 >= _RING else names.TRUE if ring[-1] else names.UNKNOWN

    def why(self, pool: str) -> str:
        """Why the last launch failed of which that is known, since one ended well; "" where it is of none."""
        with self._lock:
            return self._why.get(pool, "")


def used_by(nodes: Sequence[NodeView]) -> Resources:
    """What the nodes of a pool that count have together, zero-filled, with their number. Source: core spec 5 (nodes marked for deletion)."""
    total = Resources.of(dict.fromkeys(_ALWAYS_TOLD, 0))
    return total + Resources.total(one.capacity for one in nodes) + Resources.of({names.NODES: len(nodes)})


def _spending_condition(spent: float, most: float, unpriced: int, *, reached: bool) -> ConditionMessage:
    """What the nodes of a NodePool with a money limit cost, and whether it leaves room for another one; `unpriced` of them count as free."""
    status = names.TRUE if reached else names.FALSE
    rest = "no further node fits" if reached else "further nodes fit"
    free = f"; nodes without a known price, which count as free: {unpriced}" if unpriced else ""
    text = Said(f"nodes cost ${spent:.4f} of ${most:g} per hour; {rest}{free}")
    return ConditionMessage(names.SPENDING_LIMIT_REACHED, status, names.SPENDING_LIMIT_REACHED, text)


_REGISTRATION_UNHEALTHY: Final = Said("At least half of the most recent launches did not register")


def _registration_unhealthy(why: str) -> ConditionMessage:
    """With why one of them failed, in the words of the cloud provider; "" where it is not known."""
    text = Said(f"{_REGISTRATION_UNHEALTHY}: {why}") if why else _REGISTRATION_UNHEALTHY
    return ConditionMessage(names.NODE_REGISTRATION_HEALTHY, names.FALSE, names.REGISTRATION_FAILED, text)


class PoolController:
    """The reconciler of NodePools; one key is a pool's name.

    Args:
        class_generation: of the NodeClass of that name; None where there is none.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        provider: CloudProvider,
        writer: ClaimWriter,
        clock: Clock,
        *,
        pool: Callable[[str], NodePool | None],
        class_generation: Callable[[str], int | None],
        health: PoolHealth,
        ready: Callable[[], None],
        recorder: Recorder,
    ) -> None:
        self._cluster, self._client, self._provider, self._writer = cluster, client, provider, writer
        self._clock, self._pool, self._health, self._ready = clock, pool, health, ready
        self._class_generation, self._recorder = class_generation, recorder
        self._not_served: dict[str, str] = {}  # NodePool -> its UID, once its log line was written

    def reconcile(self, name: str) -> ReconcileResult:
        """Make one pool's annotations and status true."""
        pool = self._pool(name)
        if pool is None:
            metrics.pool(name, {}, {})
            self._not_served.pop(name, None)
            self._health.forget(name)
            return DONE
        if not manages(self._provider, pool.node_class_ref):
            self._tell_not_served(pool)
            return DONE
        try:
            pool = self._hash(pool)
            self._status(pool)
        except NotFound:
            return DONE
        except Conflict:
            return ReconcileResult(requeue_after=0.2)
        return DONE

    def _tell_not_served(self, pool: NodePool) -> None:
        """Once for each pool: nothing is written on it, as another provider may serve it."""
        if self._not_served.get(pool.name) == pool.metadata.uid:
            return
        self._not_served[pool.name] = pool.metadata.uid
        _log.warning(
            "Ignoring a NodePool that this provider does not serve",
            nodepool=pool.name,
            error=why_not_served(pool.node_class_ref, self._provider.name),
        )

    def _hash(self, pool: NodePool) -> NodePool:
        wanted = pool_stamp(pool.spec.template)
        annotations = pool.metadata.annotations
        if pool.unknown_fields:
            self._recorder.publish(
                reference_of(pool),
                "Warning",
                "UnknownFields",
                unknown_fields_ignored("NodePool", pool.unknown_fields),
                ttl=UNKNOWN_SECONDS,
            )
            if names.NODEPOOL_HASH in annotations:
                return pool  # a hash of fields that we do not know stays
        if all(annotations.get(key) == value for key, value in wanted.items()):
            return pool
        if annotations.get(names.NODEPOOL_HASH_VERSION) != HASH_VERSION:
            self._migrate(pool, wanted)
        body = {"metadata": {"uid": pool.metadata.uid, "annotations": wanted}}
        return self._client.patch(resources.NODEPOOLS, pool.name, body)

    def _migrate(self, pool: NodePool, wanted: dict[str, str]) -> None:
        """Claims hashed by another version take the new hash over, unless they have drifted already."""
        for claim in self._cluster.claims():
            drifted = condition(claim.status.conditions, names.DRIFTED) is not None
            annotations = claim_stamp(claim.metadata.annotations, wanted, drifted=drifted)
            if claim.pool != pool.name or not annotations:
                continue
            try:
                self._writer.metadata(claim, annotations=annotations)
            except NotFound:
                continue  # one that is gone keeps back neither the others nor the pool

    def _status(self, pool: NodePool) -> None:
        snapshot = self._cluster.snapshot()
        mine = [node for node in snapshot.nodes if node.pool == pool.name and node.counts]
        used = used_by(mine)
        most, costs, verdict = self._spending(pool, mine)
        conditions = self._conditions(pool, self._clock.now(), verdict)
        told = used.to_wire()
        metrics.pool(pool.name, _floats(_read(pool.spec.limits)) | most, _floats(used) | costs)
        status: dict[str, Any] = {}
        if told != {key: str(value) for key, value in pool.status.resources.items()}:
            gone = {key: None for key in pool.status.resources if key not in told}
            status["resources"] = {**told, **gone}
        if pool.status.nodes != len(mine) or not pool.status.resources:
            status["nodes"] = len(mine)
        if (observed := self._observed(pool)) != pool.status.node_class_observed_generation:
            status["nodeClassObservedGeneration"] = observed
        if conditions != pool.status.conditions:
            status["conditions"] = [msgspec.to_builtins(one) for one in conditions]
        if status:
            self._client.patch(
                resources.NODEPOOLS,
                pool.name,
                {"metadata": {"uid": pool.metadata.uid}, "status": status},
                subresource="status",
            )
        if "conditions" in status:
            _tell(pool, conditions)
            self._ready()

    def _spending(
        self, pool: NodePool, nodes: Sequence[NodeView]
    ) -> tuple[dict[str, float], dict[str, float], ConditionMessage | None]:
        """The money limit and what the nodes cost, for metrics, and the condition; nothing without a limit that can be read."""
        try:
            most = spending_limit(pool)
            requirements = template_requirements(pool)
        except (PoolLimitError, RequirementError):
            return {}, {}, None
        if most is None:
            return {}, {}, None
        try:
            types = self._provider.instance_types(pool)
        except Exception:  # noqa: BLE001 - whoever plans says why; a status needs no types
            types = ()
        if not types:
            return (
                {_USD: most / MICROS},
                {},
                ConditionMessage(
                    names.SPENDING_LIMIT_REACHED,
                    names.UNKNOWN,
                    names.SPENDING_LIMIT_REACHED,
                    "the prices of the instance types are not known",
                ),
            )
        by_name = {one.name: one for one in types}
        costs = spent(nodes, by_name)
        full = reached(most - costs, types, requirements)
        unpriced = sum(one.claim is not None and lacks_price(one.claim, by_name) for one in nodes)
        verdict = _spending_condition(costs / MICROS, most / MICROS, unpriced, reached=full)
        return {_USD: most / MICROS}, {_USD: costs / MICROS}, verdict

    def _conditions(
        self, pool: NodePool, now: datetime, spending: ConditionMessage | None = None
    ) -> tuple[Condition, ...]:
        generation = pool.metadata.generation
        conditions = POOL_CONDITIONS.initialise(
            pool.status.conditions, generation=generation, created=pool.metadata.creation_timestamp or now
        )
        problems = pool_problems(pool, self._provider.well_known_labels)
        reserved = "; ".join(reserved_taints(pool))
        valid = ConditionMessage(names.VALIDATION_SUCCEEDED, names.TRUE)
        if reserved:
            valid = ConditionMessage(names.VALIDATION_SUCCEEDED, names.TRUE, names.RESERVED_TAINTS, reserved)
            self._recorder.publish(
                reference_of(pool),
                "Warning",
                "ReservedTaints",
                f"NodePool has taints that Dovetail uses itself: {reserved}",
                ttl=600.0,
            )
        verdicts = [
            ConditionMessage(
                names.VALIDATION_SUCCEEDED, names.FALSE, names.NODEPOOL_VALIDATION_FAILED, "; ".join(problems)
            )
            if problems
            else valid,
            ConditionMessage(names.NODECLASS_READY, *self._provider.node_class_ready(pool.node_class_ref)),
            self._healthy(pool),
            *([spending] if spending is not None else []),
        ]
        if spending is None:
            conditions = POOL_CONDITIONS.clear(conditions, names.SPENDING_LIMIT_REACHED)
        for verdict in verdicts:
            conditions = POOL_CONDITIONS.set(conditions, *verdict, generation=generation, now=now)
        return conditions

    def _observed(self, pool: NodePool) -> int:
        """The generation of the pool's class; while there is none, the one that was seen last."""
        found = self._class_generation(pool.node_class_ref.name)
        return pool.status.node_class_observed_generation if found is None else found

    def _healthy(self, pool: NodePool) -> ConditionMessage:
        generations = (pool.metadata.generation, self._observed(pool))
        known = condition(pool.status.conditions, names.NODE_REGISTRATION_HEALTHY)
        if known is not None and (known.observed_generation, pool.status.node_class_observed_generation) != generations:
            known = None
        verdict = self._health.verdict(pool.name, generations, known.status if known is not None else names.UNKNOWN)
        if verdict == names.UNKNOWN:
            if known is not None:
                return ConditionMessage(known.type, known.status, known.reason, known.message)
            return ConditionMessage(
                names.NODE_REGISTRATION_HEALTHY,
                names.UNKNOWN,
                names.AWAITING_RECONCILIATION,
                "object is awaiting reconciliation",
            )
        if verdict == names.FALSE:
            why = self._health.why(pool.name)
            if why:
                self._recorder.publish(
                    reference_of(pool),
                    "Warning",
                    names.LAUNCH_FAILED,
                    f"nodes of this NodePool fail to start: {why}",
                    ttl=LAUNCHES_FAILED_SECONDS,
                )
            elif known is not None and known.status == names.FALSE:
                # an earlier leader knew why
                return ConditionMessage(known.type, known.status, known.reason, known.message)
            return _registration_unhealthy(why)
        return ConditionMessage(names.NODE_REGISTRATION_HEALTHY, verdict)


def _tell(pool: NodePool, conditions: tuple[Condition, ...]) -> None:
    """Log why no node may come from the pool, each time that this is another reason, and that this is over."""
    before = POOL_CONDITIONS.leaf(pool.status.conditions, pool.metadata.generation)
    now = POOL_CONDITIONS.leaf(conditions, pool.metadata.generation)
    if now is not None and now.reason == names.NODECLASS_READINESS_UNKNOWN:
        return  # a moment after it was made
    if now is not None and now != before:
        _log.warning("A NodePool is not Ready", nodepool=pool.name, reason=now.reason, error=now.message)
    elif before is not None and is_true(conditions, names.READY):
        _log.info("A NodePool is Ready", nodepool=pool.name)


def why_launches_failed(pool: NodePool | None, class_generation: int | None) -> str:
    """Why one of the last launches of a NodePool failed, in the words of the cloud provider.

    "" where most came up, it or its class, which is of this generation now, changed since, or nobody knows.
    """
    found = condition(pool.status.conditions, names.NODE_REGISTRATION_HEALTHY) if pool is not None else None
    if pool is None or found is None:
        return ""
    judged = (found.observed_generation, pool.status.node_class_observed_generation)
    if judged != (pool.metadata.generation, class_generation):
        return ""
    return found.message.partition(f"{_REGISTRATION_UNHEALTHY}: ")[2]


def _read(limits: Mapping[str, Any]) -> Resources:
    try:
        return Resources.parse(limits)
    except ValueError:
        return Resources.of({})  # the validation names it


def _floats(amounts: Resources) -> dict[str, float]:
    return {key: amount / 1000 if key == names.CPU else float(amount) for key, amount in amounts.items()}
