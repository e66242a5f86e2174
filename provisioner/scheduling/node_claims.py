"""The NodeClaim that is created for a planned one, or for one node of a static NodePool. Source: core spec 1.2, 3.7."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.hash import HASH_VERSION, nodepool_hash
from provisioner.apis.karpenter import API_VERSION, NodeClaim, NodePool, requirements_of
from provisioner.apis.plan import HOLD_SECONDS, Plan, PlanEntry, fitting_text
from provisioner.apis.pods import Pod
from provisioner.scheduling.result import PlannedClaim
from provisioner.state.promises import PodFamily
from provisioner.values.requirement import Requirements
from provisioner.values.resources import EMPTY, Resources

_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}
_FROM_TEMPLATE: Final = ("taints", "startupTaints", "terminationGracePeriod", "expireAfter")


class NewClaim(msgspec.Struct, frozen=True):
    """A NodeClaim that does not exist yet.

    Attributes:
        body: what is sent; it says exactly what it was made from, absent and empty told apart.
        claim: the same as it will be read back, without a UID; for the state to know it before the API server does.
        pods: what it is planned for; none for a static NodePool's.
        min_values_relaxed: as of `PlannedClaim.min_values_relaxed`.
    """

    body: dict[str, Any]
    claim: NodeClaim
    pods: tuple[Pod, ...] = ()
    min_values_relaxed: bool = False

    @property
    def name(self) -> str:
        return self.claim.metadata.name

    @property
    def pool(self) -> str:
        """The NodePool's name."""
        return self.claim.pool

    @property
    def plan(self) -> str:
        """The text of its plan; "" without one."""
        return self.claim.metadata.annotations.get(names.PLAN_ANNOTATION, "")


def planned_claim(
    planned: PlannedClaim,
    name: str,
    annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    hold_seconds: float = HOLD_SECONDS,
) -> NewClaim:
    """The NodeClaim for `planned`, from the template of its NodePool (`planned.template`).

    The finalizer and the plan are written with it, so that neither costs a write of its own.

    Args:
        planned: of a result of which the pools' templates are NodePools, as `world_of` makes them.
        name: of the claim.
        annotations: further ones, for instance those of the command that it serves; they win over the template's.
        hold_seconds: for how long its plan keeps room once its node is ready.

    Raises:
        TypeError: its template is no NodePool.
    """
    pool = planned.template
    if not isinstance(pool, NodePool):
        raise TypeError("a planned claim carries its NodePool")
    own = {
        names.MIN_VALUES_RELAXED: "true" if planned.min_values_relaxed else "false",
        names.PLANNED_OFFERING_ANNOTATION: f"{planned.planned_type}/{planned.planned_zone}/{planned.planned_capacity_type}",
    }
    # one that is for nobody by name has no plan
    if planned.pods and (text := fitting_text(plan_of(planned.pods, hold_seconds))):
        own[names.PLAN_ANNOTATION] = text
    body = _body(pool, name, planned.labels, {**own, **annotations}, planned.requirements, planned.requests)
    return NewClaim(body, _read_back(body), planned.pods, planned.min_values_relaxed)


def static_claim(pool: NodePool, name: str) -> NewClaim:
    """The NodeClaim for one node of a static NodePool: what the template says, and nothing of pods.

    Raises:
        RequirementError: the template's requirements cannot be read.
    """
    requirements = template_requirements(pool)
    body = _body(pool, name, {}, {names.MIN_VALUES_RELAXED: "false"}, requirements, EMPTY)
    return NewClaim(body, _read_back(body))


def template_labels(pool: NodePool) -> dict[str, str]:
    """What every node of a NodePool is labelled with: the template's labels, the pool and its node class."""
    return {**pool.labels, **_origin(pool)}


def template_requirements(pool: NodePool) -> Requirements:
    """What every node of a NodePool meets: the template's requirements and its labels.

    Raises:
        RequirementError: a requirement cannot be read.
    """
    requirements = requirements_of(pool.spec.template.spec.requirements)
    return requirements.merged(Requirements.from_labels(template_labels(pool)))


def plan_of(pods: tuple[Pod, ...], hold_seconds: float = HOLD_SECONDS) -> Plan:
    """The plan for these pods: equal pods of one owner are one entry; `hold_seconds` as in `Plan`."""
    groups: dict[PodFamily, list[str]] = {}
    for pod in pods:
        groups.setdefault(PodFamily.of(pod), []).append(pod.uid)
    entries = tuple(
        PlanEntry(owner=owner, klass=klass, count=len(uids), uids=tuple(sorted(uids)))
        for (owner, klass), uids in sorted(groups.items())
    )
    return Plan.of(entries, hold_seconds)


def _body(
    pool: NodePool,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    requirements: Requirements,
    requests: Resources,
) -> dict[str, Any]:
    template = pool.spec.template
    # what the template leaves out is left out: absent and empty differ in the hash and in kubectl
    given: dict[str, Any] = msgspec.to_builtins(template.spec)
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "generateName": f"{pool.metadata.name}-",
            "labels": {**pool.labels, **labels, **_origin(pool)},
            "annotations": {
                **pool.annotations,
                **_kept(pool),
                names.NODEPOOL_HASH: nodepool_hash(template),
                names.NODEPOOL_HASH_VERSION: HASH_VERSION,
                **annotations,
            },
            "finalizers": [names.TERMINATION_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "NodePool",
                    "name": pool.metadata.name,
                    "uid": pool.metadata.uid,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            **{key: given[key] for key in _FROM_TEMPLATE if key in given},
            "nodeClassRef": given["nodeClassRef"],
            # a NodeClaim may not require this label, it has it
            "requirements": [one for one in requirements.to_wire() if one["key"] != names.PROVISIONER_NAME],
            "resources": {"requests": requests.to_wire()},
        },
    }


def _kept(pool: NodePool) -> dict[str, str]:
    """What the provider reads of a pool that was written at v1beta1."""
    kubelet = pool.metadata.annotations.get(names.KUBELET_ANNOTATION)
    return {} if kubelet is None else {names.KUBELET_ANNOTATION: kubelet}


def _origin(pool: NodePool) -> dict[str, str]:
    """The labels that nobody may choose."""
    reference = pool.node_class_ref
    origin = {
        names.NODEPOOL_LABEL: pool.metadata.name,
        names.nodeclass_label(reference.group, reference.kind): reference.name,
    }
    if former := pool.metadata.annotations.get(names.PROVISIONER_NAME, ""):
        origin[names.PROVISIONER_NAME] = former
    return origin


def _read_back(body: Mapping[str, Any]) -> NodeClaim:
    return msgspec.convert(body, NodeClaim, strict=False)
