"""What stands against a command at the last moment."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.pods import Pod
from provisioner.disruption.candidates import PodBudgets
from provisioner.disruption.progress import Verdict
from provisioner.disruption.validation import Sighted, verdict
from provisioner.state.keys import NodeKey
from tests.support.cluster import World, pod

EMPTY, DRIFTED, UNDERUTILIZED = names.REASON_EMPTY, names.REASON_DRIFTED, names.REASON_UNDERUTILIZED
WEB = pod("web", node="a", ready=True, labels={"app": "web"})
KEPT = pod("kept", node="a", annotations={names.DO_NOT_DISRUPT: "true"})
AGENT = pod("agent", node="a", kind="DaemonSet", ready=True, labels={"app": "web"})


def budget(name: str = "web", *, allowed: int = 0, namespace: str = "default", **spec: Any) -> PodDisruptionBudget:
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, PodDisruptionBudget, strict=False)


def pod_budgets(*some: PodDisruptionBudget) -> PodBudgets:
    namespaces = {one.metadata.namespace for one in some}
    return PodBudgets({name: tuple(one for one in some if one.metadata.namespace == name) for name in namespaces})


@dataclass(frozen=True)
class Case:
    want: str
    reason: str = DRIFTED
    pods: tuple[Pod, ...] = (WEB,)
    budgets: tuple[PodDisruptionBudget, ...] = ()
    planned: bool = True
    replaced: bool = True
    waits: bool = False
    unknown: str = ""
    protected: bool = False
    forceful: bool = False
    awaited: bool = False


CASES = {
    "nothing": Case(""),
    "an unreadable pod": Case("an object that cannot be read may be a running pod: pod x", unknown="pod x"),
    "a protected node": Case(
        'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation', protected=True
    ),
    "a node that pods are planned onto": Case("pods are planned for the node", awaited=True),
    "a pod on a node that was empty": Case("pod default/web runs on the node", reason=EMPTY),
    "a daemon on a node that was empty": Case("", reason=EMPTY, pods=(AGENT,)),
    "a pod without another place": Case("pod default/web fits on no other node", reason=UNDERUTILIZED, planned=False),
    "a pod with one": Case("", reason=UNDERUTILIZED),
    "a pod that came late to a drifted node": Case("", planned=False),
    "a protected pod": Case('Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/kept)', pods=(KEPT,)),
    "a protected pod that does not hold a drifted node for ever": Case("", pods=(KEPT,), forceful=True),
    "a protected pod holds consolidation all the same": Case(
        'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/kept)',
        reason=UNDERUTILIZED,
        pods=(KEPT,),
        forceful=True,
    ),
    "a budget that allows one": Case("", budgets=(budget(allowed=1, minAvailable=1),)),
    "a budget of another namespace": Case("", budgets=(budget(namespace="other", maxUnavailable=0),)),
    "a budget that never allows any": Case(
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)", budgets=(budget(allowed=1, maxUnavailable=0),)
    ),
    "a budget that allows none now": Case(
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)", budgets=(budget(minAvailable=1),), waits=True
    ),
    "the same where nothing was bought": Case(
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)",
        budgets=(budget(minAvailable=1),),
        replaced=False,
    ),
    "a budget over a daemon": Case(
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)",
        reason=EMPTY,
        pods=(AGENT,),
        budgets=(budget(minAvailable=1),),
        replaced=False,
    ),
    "two budgets": Case(
        "Eviction does not support multiple PDBs (Pod=default/web)", budgets=(budget(allowed=1), budget("b", allowed=1))
    ),
    "a budget that lets a pod go that is not ready": Case(
        "",
        pods=(msgspec.structs.replace(WEB, ready=False),),
        budgets=(budget(minAvailable="100%", unhealthyPodEvictionPolicy="AlwaysAllow"),),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_verdict(case: Case) -> None:
    world = World()
    world.machine("a")
    world.machine("b")
    world.add(*case.pods)
    if case.planned:
        assert world.cluster.assign(NodeKey("b"), case.pods) == []
    sighted = Sighted(
        "a",
        case.pods,
        unknown=case.unknown,
        protected=case.protected,
        forceful=case.forceful,
        awaited=case.awaited,
    )
    found = verdict(
        case.reason, [sighted], pod_budgets(*case.budgets), world.cluster.snapshot(), replaced=case.replaced
    )
    assert found == Verdict(case.want, waits=case.waits)


def test_what_never_ends_counts_before_what_does() -> None:
    first, second = Sighted("a", (WEB,)), Sighted("b", (KEPT,))
    found = verdict(
        DRIFTED, [first, second], pod_budgets(budget(minAvailable=1)), World().cluster.snapshot(), replaced=True
    )
    assert "Pod=default/kept" in found.objection
