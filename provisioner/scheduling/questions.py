"""Which pods scheduling is asked about, and as what."""

from collections.abc import Mapping

import msgspec

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.apis.shapes import away_from
from provisioner.scheduling.result import Result


def avoiding(pods: tuple[Pod, ...], avoided: Mapping[str, frozenset[str]]) -> tuple[Pod, ...]:
    """The pods to ask for: those that kube-scheduler did not bind somewhere as planned keep off these nodes."""
    if not avoided:
        return pods
    return tuple(
        msgspec.structs.replace(pod, shape=away_from(pod.shape, nodes)) if (nodes := avoided.get(pod.uid)) else pod
        for pod in pods
    )


def with_own_pods(result: Result, pods: tuple[Pod, ...]) -> Result:
    """The answer with the pods as they are, not as they were asked for."""
    own = {pod.uid: pod for pod in pods}

    def real(found: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(own.get(pod.uid, pod) for pod in found)

    if all(own[pod.uid] is pod for claim in result.claims for pod in claim.pods) and all(
        own[pod.uid] is pod
        for found in (*result.existing.values(), [one.pod for one in result.unplaced])
        for pod in found
    ):
        return result
    return Result(
        claims=tuple(msgspec.structs.replace(claim, pods=real(claim.pods)) for claim in result.claims),
        existing={name: real(found) for name, found in result.existing.items()},
        unplaced=tuple(msgspec.structs.replace(one, pod=own.get(one.pod.uid, one.pod)) for one in result.unplaced),
    )


def opted_out(pod: Pod) -> bool:
    """Whether the pod demands a node that is not ours, by a NodePool label that does not exist. Source: core spec 3.3."""
    affinity = pod.shape.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return False
    terms = affinity.node_affinity.required.node_selector_terms
    return bool(terms) and all(
        any(one.key == names.NODEPOOL_LABEL and one.operator == "DoesNotExist" for one in term.match_expressions)
        for term in terms
    )
