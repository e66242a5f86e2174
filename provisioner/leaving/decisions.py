"""What to take away next; everything is decided from what the cluster has, nothing is remembered from one run to the next."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from provisioner.apis import deletion_cost, ec2, names, podpatch
from provisioner.apis.conversion.ownership import reconciler_of
from provisioner.apis.core import CustomResourceDefinition
from provisioner.apis.launches import may_have_begun
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.stamping import SCHEDULER_STAMP, recorded
from provisioner.leaving.belongings import (
    Belongings,
    HeldClaim,
    HeldNode,
    Keep,
    LeavePlan,
    LeaveStep,
    QueuedPod,
    Verb,
)
from provisioner.values.message import Said
from provisioner.values.printable import listed

_OURS: Final = "dovetail.dev/"
_MOST_NAMED: Final = 10
_UNTAGGED_AT_ONCE: Final = 100
_KWOK_CLAIM: Final = "karpenter.kwok.sh/nodeclaim-uid"
_CLASS_LABELS: Final = ("karpenter.k8s.aws/ec2nodeclass", "karpenter.kwok.sh/kwoknodeclass")
"""By which whoever ends nodes takes one without a NodeClaim for its own."""
_TAINTS: Final = frozenset({names.DISRUPTED_TAINT.key, names.UNREGISTERED_TAINT.key})
_FINALIZERS: Final = frozenset({names.TERMINATION_FINALIZER, ec2.TERMINATION_FINALIZER})
_WRITTEN: Final = (names.ACCEPTED_USER_DATA, names.TRANSLATED_FROM, names.TRANSLATED_HASH)
"""What the provisioner writes on NodePools and node classes; the other annotations there are their owners'."""


# ------------------------------------------------------------------ stamping


def stamping(found: Belongings) -> LeavePlan:
    """Stop stamping pods, and let those go on that wait for us: gates are removed, and pods that only our scheduler would bind are made anew."""
    admission = tuple(
        LeaveStep(Verb.DELETE, kind, meta.name, "deleted", uid=meta.uid) for kind, meta in found.admission
    )
    waiting = [pod for pod in found.pods if _waits(pod)]
    anew, left = _made_anew([pod for pod in waiting if _is_ours(pod)], found)
    gone = {step.uid for step in anew}
    gates = tuple(_without_gate(pod) for pod in waiting if pod.metadata.uid not in gone and _gate(pod) is not None)
    return LeavePlan((admission, (*gates, *anew)), (*left, *_bound_by_name(found)))


def _bound_by_name(found: Belongings) -> Iterable[str]:
    """Pods that run, and would wait if they were created again."""
    named = sorted(pod.metadata.key for pod in found.bound if _is_alive(pod) and not _was_stamped(pod))
    if named:
        yield Said(
            f"running pods name {names.SCHEDULER_NAME} in their own manifests, and no scheduler will bind them when they are created again: "
            f"{_listed(named)}; remove spec.schedulerName there"
        )


def created_again(found: Belongings) -> tuple[str, ...]:
    """What of that which stamps pods comes again when it was deleted, in sentences: ask before."""
    return tuple(
        Said(f"{meta_kind} {meta.name} is managed by {owner.name}, which creates it again; remove it there")
        for meta_kind, meta in found.admission
        if (owner := reconciler_of(meta.labels, meta.annotations)) is not None
    )


def _waits(pod: QueuedPod) -> bool:
    return not pod.spec.node_name and _is_alive(pod)


def _is_alive(pod: QueuedPod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def _is_ours(pod: QueuedPod) -> bool:
    """Whether only our scheduler binds the pod, by its own will or because it was stamped."""
    return pod.spec.scheduler_name == names.SCHEDULER_NAME or _was_stamped(pod)


def _was_stamped(pod: QueuedPod) -> bool:
    entry = recorded(pod.metadata.annotations).get(SCHEDULER_STAMP, "")
    return bool(entry) and entry.partition("=")[2].split(" ")[0] == pod.spec.scheduler_name


def _made_anew(pods: Iterable[QueuedPod], found: Belongings) -> tuple[tuple[LeaveStep, ...], list[str]]:
    """Those that are deleted, so that their controllers make them without our scheduler's name; and what is said of the others."""
    steps: list[LeaveStep] = []
    bare: list[str] = []
    named: list[str] = []
    spent: list[str] = []
    going = (pod.controller for pod in found.pods if pod.metadata.deletion_timestamp is not None)
    taken = Counter(owner.uid for owner in going if owner is not None)  # which a Job has not counted yet
    for pod in sorted(pods, key=lambda one: one.metadata.key):
        controller = pod.controller
        if not _was_stamped(pod):
            named.append(pod.metadata.key)
        elif controller is None:
            bare.append(pod.metadata.key)
        elif controller.kind == "Job" and taken[controller.uid] >= _spare(controller.uid, found):
            spent.append(pod.metadata.key)
        else:
            taken[controller.uid] += 1
            what = f"deleted, {controller.kind} {controller.name} creates it again"
            steps.append(_pod_step(Verb.DELETE, pod, what))
    scheduler = names.SCHEDULER_NAME
    told: list[str] = []
    if bare:
        told.append(
            Said(
                f"pods without a controller wait for {scheduler} and are not created again: {_listed(bare)}; delete and create them"
            )
        )
    if named:
        told.append(
            Said(
                f"pods wait for {scheduler} because their own manifests name it: {_listed(named)}; remove spec.schedulerName there"
            )
        )
    if spent:
        told.append(
            Said(
                f"pods of Jobs wait for {scheduler}, and deleting them would use up the backoffLimit: {_listed(spent)}; create the Jobs again"
            )
        )
    return tuple(steps), told


def _spare(job: str, found: Belongings) -> int:
    known = found.jobs.get(job)
    return 0 if known is None else known.spare


def _gate(pod: QueuedPod) -> int | None:
    gates = pod.spec.scheduling_gates
    return next((at for at, one in enumerate(gates) if one.name == names.IMAGE_ARCH_GATE), None)


def _without_gate(pod: QueuedPod) -> LeaveStep:
    at = _gate(pod)
    operations = [
        podpatch.test("spec", "schedulingGates", at or 0, "name", value=names.IMAGE_ARCH_GATE),
        podpatch.remove("spec", "schedulingGates", at or 0),
    ]
    if names.IMAGE_ARCH_PENDING in pod.metadata.labels:
        operations.append(podpatch.remove("metadata", "labels", names.IMAGE_ARCH_PENDING))
    return _pod_step(Verb.JSON, pod, "scheduling gate removed", msgspec.to_builtins(operations))


def _pod_step(verb: Verb, pod: QueuedPod, what: str, body: Any = msgspec.UNSET) -> LeaveStep:
    meta = pod.metadata
    return LeaveStep(verb, "pods", meta.name, what, meta.namespace, meta.uid, meta.resource_version, body)


# ------------------------------------------------------------------ the provisioner


def why_not_stopped(found: Belongings) -> str:
    """Why the provisioner is not stopped here; "" where it may be."""
    if found.deployments and not found.provisioners:
        meta, _ = found.deployments[0]
        return Said(
            f"Deployment {meta.key} is not in namespace {found.namespace}. Run this command with -n {meta.namespace}"
        )
    for meta, replicas in found.provisioners:
        owner = reconciler_of(meta.labels, meta.annotations)
        if replicas and owner is not None:
            return Said(
                f"Deployment {meta.key} is managed by {owner.name} ({owner.key}), which would start it again. Set its replicas to 0 there, "
                "or suspend the reconciliation and scale it, then run this command again"
            )
    return ""


def stopping(found: Belongings) -> LeavePlan:
    """Scale the provisioner to 0."""
    return LeavePlan(
        (
            tuple(
                LeaveStep(
                    Verb.MERGE,
                    "deployments",
                    meta.name,
                    "scaled to 0",
                    meta.namespace,
                    meta.uid,
                    body={"spec": {"replicas": 0}},
                )
                for meta, replicas in found.provisioners
                if replicas
            ),
        )
    )


# ------------------------------------------------------------------ nodes that are kept


def why_not_kept(found: Belongings, keep: Keep) -> str:
    """Why nodes cannot be kept as they are; "" where they can."""
    under_way = [one.name for one in found.claims if _is_being_launched(one)]
    if under_way:
        return Said(
            f"NodeClaims are being launched: {_listed(under_way)}. Start the provisioner with launches paused (the key paused of ConfigMap "
            f"{names.SETTINGS_CONFIGMAP} contains launch), wait until they are launched, then run this command again"
        )
    going = [one.name for one in found.claims if one.metadata.deletion_timestamp is not None]
    going += [
        one.metadata.name
        for one in found.nodes
        if one.metadata.deletion_timestamp is not None and _is_node_of_ours(one)
    ]
    if going and keep is Keep.FOR_KARPENTER:
        return Said(
            f"NodeClaims or Nodes are being deleted: {_listed(sorted(set(going)))}. Karpenter would terminate their instances, and a "
            "deletion cannot be undone. Wait until they are gone, or keep their nodes with --for nobody"
        )
    return ""


def withdrawing(pods: Iterable[ObjectMeta]) -> LeavePlan:
    """Take back the deletion costs of these pods, by which ReplicaSets would go on to choose."""
    return LeavePlan((_given(map(_without_cost, pods)),))


def _without_cost(meta: ObjectMeta) -> LeaveStep | None:
    gone = deletion_cost.withdrawn(meta.annotations)
    guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    body = {"metadata": {**guard, "annotations": gone}}
    return (
        LeaveStep(Verb.MERGE, "pods", meta.name, "deletion cost removed", meta.namespace, body=body) if gone else None
    )


def keeping(found: Belongings, keep: Keep) -> LeavePlan:
    """Let nodes go on without us. Instances are let go before finalizers, and Nodes before the NodeClaims that own them: whatever is interrupted,
    nobody ends an instance, and no Node goes with its NodeClaim.
    """
    if keep is Keep.FOR_KARPENTER:
        return LeavePlan(
            (
                _given(_stripped("nodes", one.metadata) for one in found.nodes),
                _given(_stripped("nodeclaims", one.metadata) for one in found.claims),
                *_last(found),
            )
        )
    some = range(0, len(found.instances), _UNTAGGED_AT_ONCE)
    tags = tuple(_untagged(found.instances[at : at + _UNTAGGED_AT_ONCE]) for at in some)
    nodes = _given(_let_go(one) for one in found.nodes)
    released = _given(_released(one) for one in found.claims)
    deleted = _given(_deleted(one) for one in found.claims)
    classes = (
        _patched(kind, meta, _without_finalizers(meta), "finalizer removed")
        for kind, meta in found.classes
        if not _FINALIZERS.isdisjoint(meta.finalizers)
    )
    return LeavePlan((tags, nodes, released, deleted, _given(classes), *_last(found)), tuple(_cannot_be_kept(found)))


def _last(found: Belongings) -> tuple[tuple[LeaveStep, ...], ...]:
    return _given(_settled(found)), _conversion(found), _config_maps(found)


def _untagged(instances: Sequence[str]) -> LeaveStep:
    return LeaveStep(Verb.UNTAG, "instances", listed(instances, 3), "tags removed", body=tuple(instances))


def _is_being_launched(claim: HeldClaim) -> bool:
    begun = may_have_begun(claim.metadata.annotations)
    return begun and not claim.status.provider_id and claim.metadata.deletion_timestamp is None


def _is_node_of_ours(node: HeldNode) -> bool:
    return names.TERMINATION_FINALIZER in node.metadata.finalizers


def _cannot_be_kept(found: Belongings) -> Iterable[str]:
    going = [
        one.metadata.name
        for one in found.nodes
        if one.metadata.deletion_timestamp is not None and _is_node_of_ours(one)
    ]
    if going:
        yield Said(
            f"Nodes are being deleted, which cannot be undone: {_listed(going)}. Their instances and pods continue to run; drain each with "
            "kubectl drain, remove its finalizers, and terminate its instance"
        )


def _let_go(node: HeldNode) -> LeaveStep | None:
    """The Node without whatever ties it to a NodeClaim or lets a collector find it. One that is being deleted keeps its finalizer, else it went."""
    meta, patch, done = node.metadata, dict[str, Any](), list[str]()
    if any(one.kind == "NodeClaim" for one in meta.owner_references):
        left = [msgspec.to_builtins(one) for one in meta.owner_references if one.kind != "NodeClaim"]
        patch["ownerReferences"] = left or None
        done.append("owner")
    if _is_node_of_ours(node) and meta.deletion_timestamp is None:
        patch |= _without_finalizers(meta)
        done.append("finalizer")
    labels = {key: None for key in meta.labels if key.startswith(_OURS) or key in _CLASS_LABELS}
    annotations = {key: None for key in meta.annotations if _is_removed(key) or key == _KWOK_CLAIM}
    patch |= ({"labels": labels} if labels else {}) | ({"annotations": annotations} if annotations else {})
    done += ["labels"] * bool(labels) + ["annotations"] * bool(annotations)
    body: dict[str, Any] = {}
    taints = [one for one in node.spec.taints if not _is_taint_of_ours(str(one.get("key", "")))]
    if len(taints) < len(node.spec.taints) and meta.deletion_timestamp is None:
        body["spec"] = {"taints": taints or None}
        done.append("taints")
    return _patched("nodes", meta, patch, f"{', '.join(done)} removed", body) if done else None


def _is_removed(annotation: str) -> bool:
    """All of ours but that by which a takeover from Cluster Autoscaler finds the nodes that it cordoned."""
    return annotation.startswith(_OURS) and annotation != names.TAKEOVER_CORDONED


def _is_taint_of_ours(key: str) -> bool:
    return key in _TAINTS or key.startswith(_OURS)


def _released(claim: HeldClaim) -> LeaveStep | None:
    meta = claim.metadata
    if _FINALIZERS.isdisjoint(meta.finalizers):
        return None
    return _patched("nodeclaims", meta, _without_finalizers(meta), "finalizer removed")


def _deleted(claim: HeldClaim) -> LeaveStep | None:
    """Taken once no finalizer of ours is left: a stage begins when those before it have nothing to do."""
    meta = claim.metadata
    if meta.deletion_timestamp is not None:
        return None
    return LeaveStep(Verb.DELETE, "nodeclaims", meta.name, "deleted", uid=meta.uid, version=meta.resource_version)


def _stripped(kind: str, meta: ObjectMeta) -> LeaveStep | None:
    labels = {key: None for key in meta.labels if key.startswith(_OURS)}
    annotations = {key: None for key in meta.annotations if _is_removed(key)}
    patch: dict[str, Any] = {"labels": labels} if labels else {}
    patch |= {"annotations": annotations} if annotations else {}
    return _patched(kind, meta, patch, "dovetail.dev/ keys removed") if patch else None


def _settled(found: Belongings) -> Iterable[LeaveStep | None]:
    """NodePools and node classes without what the provisioner wrote on them."""
    for kind, meta in (*(("nodepools", one) for one in found.pools), *found.classes):
        if annotations := {key: None for key in _WRITTEN if key in meta.annotations}:
            yield _patched(kind, meta, {"annotations": annotations}, "annotations removed")


def _conversion(found: Belongings) -> tuple[LeaveStep, ...]:
    """Definitions that our webhook converts could not be read without it."""
    patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    return tuple(
        _patched("customresourcedefinitions", one.metadata, {}, "conversion by the webhook removed", patch)
        for one in found.definitions
        if _is_converted_by_us(one, found.namespace)
    )


def _is_converted_by_us(definition: CustomResourceDefinition, namespace: str) -> bool:
    webhook = definition.spec.conversion.webhook if definition.spec.conversion is not None else None
    service = webhook.client_config.service if webhook is not None and webhook.client_config is not None else None
    return service is not None and service.namespace == namespace


def _config_maps(found: Belongings) -> tuple[LeaveStep, ...]:
    """A takeover is over, and remembers what the user had paused before it; what the programs wrote goes."""
    over, where = {"data": {names.TAKEOVER_PHASE: names.TAKEOVER_BACK}}, found.namespace
    is_open = found.takeover not in ("", names.TAKEOVER_BACK)
    return (
        *((LeaveStep(Verb.MERGE, "configmaps", names.TAKEOVER_CONFIGMAP, "closed", where, body=over),) * is_open),
        *(LeaveStep(Verb.DELETE, "configmaps", one, "deleted", where) for one in found.config_maps),
    )


# ------------------------------------------------------------------ helpers


def _without_finalizers(meta: ObjectMeta) -> dict[str, Any]:
    return {"finalizers": [one for one in meta.finalizers if one not in _FINALIZERS] or None}


def _patched(
    kind: str, meta: ObjectMeta, patch: Mapping[str, Any], what: str, body: Mapping[str, Any] | None = None
) -> LeaveStep:
    guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return LeaveStep(Verb.MERGE, kind, meta.name, what, body={**(body or {}), "metadata": {**patch, **guard}})


def _given(steps: Iterable[LeaveStep | None]) -> tuple[LeaveStep, ...]:
    return tuple(one for one in steps if one is not None)


def _listed(found: Iterable[str]) -> str:
    return listed(found, _MOST_NAMED)
