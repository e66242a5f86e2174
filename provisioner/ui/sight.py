"""What a viewer may see, as a value: viewers with equal rights share one page. Pure."""

from dataclasses import dataclass

from msgspec.structs import replace

from provisioner.apis.pods import Pod
from provisioner.why.answers import PodAnswer
from provisioner.why.visibility import ELSEWHERE, NotHiddenError, pod_for


@dataclass(frozen=True, slots=True)
class Sight:
    """Whose page it is.

    Attributes:
        nodes: may list Nodes; whoever may not sees no node, and no sum of them.
        claims: may list NodeClaims.
        pools: may list NodePools.
        namespaces: whose pods may be listed; None for all.
    """

    nodes: bool = True
    claims: bool = True
    pools: bool = True
    namespaces: frozenset[str] | None = None

    def sees(self, namespace: str) -> bool:
        """Whether the pods of a namespace may be listed."""
        return self.namespaces is None or namespace in self.namespaces

    def sentence(self, pod: Pod, answer: PodAnswer, every: frozenset[str]) -> str:
        """Why a pod that may be seen waits, without what may not be.

        Args:
            pod: whose answer it is.
            answer: whole.
            every: the namespaces that there are.
        """
        try:
            seen = pod_for(answer, lambda one: one in every and one != pod.namespace and not self.sees(one))
        except NotHiddenError:
            return ELSEWHERE
        reasons = (one.message for one in seen.reasons if one.message not in seen.summary)
        return " ".join((seen.summary, *(f"{one[:1].upper()}{one[1:]}." for one in reasons)))


ALL = Sight()


def blind(answer: PodAnswer) -> PodAnswer:
    """An answer to keep: what a page does not show of it is left out."""
    return replace(answer, scheduler="", node_pools=(), missing=(), place=None, gang="")
