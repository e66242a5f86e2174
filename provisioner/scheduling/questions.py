"""Which pods scheduling is asked about."""

from provisioner.apis import names
from provisioner.apis.pods import Pod


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
