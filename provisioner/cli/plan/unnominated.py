"""What a plan comes to where nobody leads its pods to their nodes: nominations are off, and there is no extender. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.becoming import opened, with_pods
from provisioner.scheduling.improvement.balancing import coming
from provisioner.scheduling.improvement.limits_after import limits_after
from provisioner.scheduling.improvement.mending import mended
from provisioner.scheduling.nomination.unaided import Running, unaided
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.result import Result


@dataclass(frozen=True, slots=True)
class Unnominated:
    """What runs once all pods are bound, before anything is consolidated.

    Attributes:
        nodes: new ones, with those for pods that were left.
        usd_per_hour: of these.
        left: pods that find no place on the planned nodes, in the worst of the orders that are tried.
        without_node: of those left, pods that no other node can take either.
        assumed: pods that are taken to be where they are planned, as it is not modelled where they go.
    """

    nodes: int
    usd_per_hour: float
    left: int = 0
    without_node: int = 0
    assumed: int = 0


def unnominated(
    prepared: Prepared, result: Result, *, improve: bool = True, expired: Callable[[], bool] = bool
) -> Unnominated | None:
    """Bind the planned pods as kube-scheduler would, and plan nodes for those that are left; once, as if these went to their nodes.

    Args:
        prepared: the world that `result` is about.
        result: legal as a whole.
        improve: mend the plan for those that are left.
        expired: says that time is up.

    Returns:
        None where it is not known: there are too many pods and nodes, or time was up.

    Cost: bounded as that of `unaided`, and of a question about those that are left.
    """
    existing = {one.name: one for one in prepared.world.bins}
    fuller = {name: with_pods(existing[name], pods) for name, pods in result.existing.items()}
    running = Running((one.labels, one.pods) for one in (existing | fuller).values() if not one.leaving)
    nodes = coming(result.claims)
    found = unaided(nodes, running)
    if found is None:
        return None
    count, usd = len(nodes), result.usd_per_hour
    pods = {pod.uid: pod for claim in result.claims for pod in claim.pods}
    left = [pod for uid, pod in pods.items() if uid not in found.bound]
    if not left:
        return Unnominated(count, usd, assumed=found.assumed)
    mine: dict[str, list[Pod]] = {node.labels[names.HOSTNAME_LABEL]: [] for node in nodes}
    for uid, host in found.bound.items():
        mine[host].append(pods[uid])
    new = {
        host: with_pods(opened(claim, host), some)
        for claim, (host, some) in zip(result.claims, mine.items(), strict=True)
    }
    rest = prepared.updated(Changes(bins=fuller | new, pools=limits_after(prepared.world.pools, planned=result.claims)))
    more = rest.solve(left, explain=False, expired=expired)
    if more.is_late:
        return None
    if improve:
        more = mended(rest, more, expired=expired)
    return Unnominated(count + len(more.claims), usd + more.usd_per_hour, len(left), len(more.unplaced), found.assumed)
