"""Resolves CapacityBuffers, lends their virtual pods to provisioning and consolidation, and writes their status. Source: core spec 1.4, 3.12.

What a buffer is shaped like (a PodTemplate or a workload) is read at the API server when the buffer changes, and every ten seconds.
Nothing is written but the status: virtual pods are in no plan, get no event, and are gone with their buffer.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.buffer import ACTIVE_CAPACITY, CapacityBuffer
from provisioner.apis.conditions import set_alone
from provisioner.apis.core import PodTemplateSpec
from provisioner.apis.pods import Pod
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admission, owned
from provisioner.buffers.virtual_pods import (
    NOTHING_KEPT,
    BufferRoom,
    BufferTemplate,
    ResolutionError,
    is_ours,
    virtual_pods,
)
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.store import Store
from provisioner.runtime.base import Base
from provisioner.runtime.changes import CapacityBufferChanged
from provisioner.runtime.controller import Controller
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.values.message import ConditionMessage, Said

#: A template, a workload's replicas and the room that pods have taken are looked at again after so long.
RECHECK_SECONDS: Final = 10.0
#: A new leader calls no node empty before it has placed the virtual pods once, or so long has passed.
UNKNOWN_SECONDS: Final = 60.0
_log = logs.get_logger(__name__)
_SCALABLE_REF_UNKNOWN: Final = (
    "the buffer needs spec.podTemplateRef, or spec.scalableRef to a Deployment, StatefulSet or ReplicaSet (apiGroup "
    "apps)"
)


def _buffer_resolved(unknown: Sequence[str]) -> ConditionMessage:
    """`unknown` are classes that the template names and that do not exist, or may not be read."""
    if not unknown:
        return ConditionMessage(names.READY_FOR_PROVISIONING, names.TRUE, "Resolved")
    text = Said(
        f"{' and '.join(unknown)} cannot be read, so its additions to pods are not included; create it, or let Dovetail "
        "list that kind"
    )
    return ConditionMessage(names.READY_FOR_PROVISIONING, names.TRUE, "Resolved", text)


class CapacityBuffers:
    """One key is a buffer's "namespace/name". Thread-safe.

    Args:
        store: of CapacityBuffers; None while the feature gate CapacityBuffer is off, then there are none.
        admission: what the API server makes of templates now.
        facts: what the webhook goes by in a namespace, without the cluster's defaults, which are read here.
        plan_again: asks provisioning for a run; the word says why.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        store: Store[CapacityBuffer] | None,
        *,
        admission: Callable[[], Admission],
        facts: Callable[[str], StampFacts],
        plan_again: Callable[[str], None],
    ) -> None:
        self._admission, self._facts = admission, facts
        self._defaults: Mapping[str, str] = {}
        self._defaults_read = float("-inf")
        self._client, self._clock, self._store, self._plan_again = client, clock, store, plan_again
        self._lock = threading.Lock()
        self._resolved: dict[str, tuple[Pod, ...]] = {}
        self._virtual: tuple[Pod, ...] = ()
        self._kept: BufferRoom | None = None
        self._began = clock.monotonic()
        self.queue = KeyedQueue("capacitybuffer", self.reconcile, clock)

    def pods(self) -> tuple[Pod, ...]:
        """Every virtual pod, by buffer; the same object while nothing changed."""
        with self._lock:
            return self._virtual

    def placed(self, found: BufferRoom) -> None:
        """What the last run of provisioning has found for them."""
        with self._lock:
            before, self._kept = self._kept, found
            changed = [key for key in self._resolved if before is None or before.has_room(key) != found.has_room(key)]
        for key in changed:
            self.queue.add(key)

    def bought(self, node: str) -> None:
        """A node, by its key, is being bought for some of them; until the next run has found it, nobody else knows what it is for."""
        with self._lock:
            known = self._kept or NOTHING_KEPT
            self._kept = replace(known, nodes=known.nodes | {node})

    def keeps(self, node: str) -> bool:
        """Whether a node, by its key, keeps room for a buffer; yes while nobody knows."""
        if self._store is None:
            return False
        with self._lock:
            if self._kept is not None:
                return node in self._kept.nodes
            return self._clock.monotonic() - self._began < UNKNOWN_SECONDS

    # ------------------------------------------------------------------ one buffer

    def reconcile(self, key: str) -> ReconcileResult:
        """Resolve one buffer and say what became of it."""
        buffer = self._store.get(key) if self._store is not None else None
        if buffer is None or not is_ours(buffer):
            if self._take(key, ()):
                self._plan_again(f"buffer/{key}")
            return DONE
        template, problem = BufferTemplate(PodTemplateSpec()), None
        pods: tuple[Pod, ...] = ()
        unknown: tuple[str, ...] = ()
        try:
            template = self._template(buffer)
            facts = self.stamping(buffer.metadata.namespace)
            pods, unknown = virtual_pods(buffer, template, self._admission(), facts)
        except ResolutionError as error:
            problem = error
            _log.warning(
                "The CapacityBuffer cannot be resolved; no room is kept for it",
                capacitybuffer=key,
                reason=error.reason,
                message=str(error),
            )
        except ApiError as error:
            _log.warning(
                "Failed to read what a CapacityBuffer refers to; retrying", capacitybuffer=key, error=str(error)
            )
            return ReconcileResult(failed=True)  # what is known of it holds
        self._take(key, pods)
        self._plan_again(f"buffer/{key}")  # once, though nothing changed: pods may have taken the room
        try:
            self._write(buffer, template, problem, len(pods), unknown)
        except NotFound:
            return DONE
        except ApiError as error:
            _log.warning(
                "Failed to write the status of a CapacityBuffer; retrying", capacitybuffer=key, error=str(error)
            )
            return ReconcileResult(failed=True)
        return ReconcileResult(requeue_after=RECHECK_SECONDS)

    def _take(self, key: str, pods: tuple[Pod, ...]) -> bool:
        """Lend these from now on; whether they are others than before."""
        with self._lock:
            if pods == self._resolved.get(key, ()):
                return False
            if pods:
                self._resolved[key] = pods
            else:
                self._resolved.pop(key, None)
            self._virtual = tuple(pod for _, some in sorted(self._resolved.items()) for pod in some)
            return True

    def _template(self, buffer: CapacityBuffer) -> BufferTemplate:
        spec, namespace = buffer.spec, buffer.metadata.namespace
        if spec.pod_template_ref is not None:
            found = self._client.find(resources.PODTEMPLATES, spec.pod_template_ref.name, namespace)
            if found is None:
                text = Said(
                    f'PodTemplate "{spec.pod_template_ref.name}" does not exist in the namespace of the buffer; '
                    "create it, or correct spec.podTemplateRef"
                )
                raise ResolutionError("PodTemplateNotFound", text)
            return BufferTemplate(found.template, found.metadata.name, found.metadata.generation)
        reference = spec.scalable_ref
        if reference is None or reference.api_group not in ("", "apps"):
            raise ResolutionError("ScalableRefNotFound", _SCALABLE_REF_UNKNOWN)
        resource = resources.WORKLOADS.get(reference.kind)
        if resource is None:
            raise ResolutionError("ScalableRefNotFound", _SCALABLE_REF_UNKNOWN)
        workload = self._client.find(resource, reference.name, namespace)
        if workload is None:
            text = Said(
                f'{reference.kind} "{reference.name}" does not exist in the namespace of the buffer; create it, or '
                "correct spec.scalableRef"
            )
            raise ResolutionError("ScalableRefNotFound", text)
        replicas = workload.spec.wanted
        made, generation = workload.spec, workload.metadata.generation
        template = owned(made.template, reference.kind)
        return BufferTemplate(template, "", generation, replicas, made.volume_claim_templates)

    def stamping(self, namespace: str) -> StampFacts:
        """What the webhook goes by in a namespace. Its defaults count as none where they are missing, or may not be read."""
        facts, now = self._facts(namespace), self._clock.monotonic()
        with self._lock:
            known = self._defaults if now - self._defaults_read < RECHECK_SECONDS else None
        if known is None:
            try:
                known = self._client.get(resources.CONFIGMAPS, names.DEFAULTS_CONFIGMAP, facts.own_namespace).data
            except (NotFound, Forbidden):
                known = {}
            with self._lock:
                self._defaults, self._defaults_read = known, now
        return replace(facts, defaults=known)

    # ------------------------------------------------------------------ status

    def _write(
        self,
        buffer: CapacityBuffer,
        template: BufferTemplate,
        problem: ResolutionError | None,
        units: int,
        unknown: tuple[str, ...],
    ) -> None:
        meta, key = buffer.metadata, buffer.metadata.key
        resolved = _buffer_resolved(unknown)
        if problem is not None:
            resolved = ConditionMessage(names.READY_FOR_PROVISIONING, names.FALSE, problem.reason, str(problem))
        conditions = buffer.status.conditions
        for message in (resolved, self._room(key, problem, units)):
            conditions = set_alone(conditions, *message, generation=meta.generation, now=self._clock.now())
        status: dict[str, Any] = {
            "replicas": units,
            "provisioningStrategy": ACTIVE_CAPACITY,
            "podTemplateRef": {"name": template.name} if template.name else None,
            "podTemplateGeneration": template.generation if template.name else None,
        }
        known = buffer.status
        reference = known.pod_template_ref
        before = {
            "replicas": known.replicas,
            "provisioningStrategy": known.provisioning_strategy,
            "podTemplateRef": {"name": reference.name} if reference is not None else None,
            "podTemplateGeneration": known.pod_template_generation,
        }
        if conditions == known.conditions and status == before:
            return
        body = {"metadata": {"uid": meta.uid}, "status": {**status, "conditions": msgspec.to_builtins(conditions)}}
        self._client.patch(resources.CAPACITYBUFFERS, meta.name, body, meta.namespace, subresource="status")

    def _room(self, key: str, problem: ResolutionError | None, units: int) -> ConditionMessage:
        with self._lock:
            found = self._kept or NOTHING_KEPT
        if problem is not None:
            return ConditionMessage(
                names.PROVISIONING,
                names.FALSE,
                "NotReadyForProvisioning",
                "the buffer is not resolved; see the condition ReadyForProvisioning",
            )
        if not units:
            return ConditionMessage(
                names.PROVISIONING,
                names.FALSE,
                "BufferEmpty",
                "the buffer asks for no units; set spec.replicas, spec.percentage or spec.limits",
            )
        if found.units.get(key) == units and found.has_room(key):
            return ConditionMessage(names.PROVISIONING, names.TRUE, "FitsExistingCapacity")
        return ConditionMessage(
            names.PROVISIONING,
            names.FALSE,
            "RequiresNewCapacity",
            f"{found.ready.get(key, 0)} of {units} units fit on nodes that are ready; the others need new nodes",
        )


def controllers(base: Base, buffers: CapacityBuffers) -> list[Controller]:
    """Who resolves CapacityBuffers; nobody while their feature gate is off."""
    objects = base.caches.buffer_objects
    if objects is None:
        return []
    store = objects.store
    return [
        Controller(
            runner=buffers.queue,
            watches={CapacityBufferChanged: lambda change: (change.latest.metadata.key,)},
            initial=lambda: [one.metadata.key for one in store.list()],
        )
    ]
