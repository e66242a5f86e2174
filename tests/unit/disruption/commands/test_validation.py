"""What stands against a command at the last moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.pods import Pod, PodShape
from provisioner.disruption.commands import validation
from provisioner.disruption.commands.progress import CommandVerdict
from provisioner.disruption.commands.validation import Sighted, standing, verdict, with_room
from provisioner.disruption.proposal import Proposal
from provisioner.state.keys import NodeKey
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint
from tests.support.cluster import World, node, pod
from tests.support.fleets import Fleet, planned, pool, running, several
from tests.support.problems import apart, app, of_app, shape, spread

EMPTY, DRIFTED, UNDERUTILIZED = names.REASON_EMPTY, names.REASON_DRIFTED, names.REASON_UNDERUTILIZED
WEB = pod("web", node="a", ready=True, labels={"app": "web"})
KEPT = pod("kept", node="a", annotations={names.DO_NOT_DISRUPT: "true"})
AGENT = pod("agent", node="a", kind="DaemonSet", ready=True, labels={"app": "web"})


def budget(
    name: str = "web", *, allowed: int = 0, namespace: str = "default", generation: int = 0, **spec: Any
) -> PodDisruptionBudget:
    body = {
        "metadata": {"name": name, "namespace": namespace, "generation": generation},
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
    drifted: bool = True


CASES = {
    "nothing": Case(""),
    "an unreadable pod": Case("an object that cannot be read may be a running pod: pod x", unknown="pod x"),
    "a protected node": Case(
        'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation', protected=True
    ),
    "a node that pods are planned onto": Case("pods are planned for the node", awaited=True),
    "a node whose drift was taken back": Case(
        "NodeClaim a no longer differs from its NodePool and NodeClass", drifted=False, forceful=True
    ),
    "a node that never drifted": Case("", reason=UNDERUTILIZED, drifted=False),
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
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)", budgets=(budget(maxUnavailable=0),)
    ),
    "a budget that was changed to allow none, and is not counted anew yet": Case(
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)",
        budgets=(budget(allowed=1, generation=2, maxUnavailable=0),),
    ),
    "a budget that was changed": Case(
        "Pdb prevents pod evictions (PodDisruptionBudget=default/web)",
        budgets=(budget(allowed=1, generation=2, minAvailable=1),),
        waits=True,
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


TAINTS = ({"key": "node.kubernetes.io/unschedulable", "effect": names.NO_SCHEDULE},)
NOT_READY = "node b, on which pod default/web is to run, is not ready"
TOO = ({"key": "node.kubernetes.io/not-ready", "effect": names.NO_SCHEDULE},)
BAD: dict[str, tuple[dict[str, Any], bool, CommandVerdict]] = {
    "is cordoned": ({"taints": TAINTS}, True, CommandVerdict("pod default/web fits on no other node")),
    "is not ready, and tainted for it": ({"ready": False, "taints": TOO}, True, CommandVerdict(NOT_READY, waits=True)),
    "is not ready": ({"ready": False}, False, CommandVerdict(NOT_READY)),
    "is not ready, and was bought for it": ({"ready": False}, True, CommandVerdict(NOT_READY, waits=True)),
}


@pytest.mark.parametrize("forceful", [False, True])
@pytest.mark.parametrize("reason", [UNDERUTILIZED, DRIFTED])
@pytest.mark.parametrize(("bad", "replaced", "want"), BAD.values(), ids=BAD)
def test_a_place_on_a_node_that_takes_no_pods_now_is_none(
    bad: dict[str, Any], replaced: bool, want: CommandVerdict, reason: str, forceful: bool
) -> None:
    world = World()
    world.existing_node("a")
    world.existing_node("b")
    world.add(WEB)
    assert world.cluster.assign(NodeKey("b"), [WEB]) == []
    world.cluster.node_changed(world.cluster.node("b"), node("b", labels={names.NODEPOOL_LABEL: "general"}, **bad))
    sighted = [Sighted("a", (WEB,), forceful=forceful)]
    found = verdict(reason, sighted, pod_budgets(), world.cluster.snapshot(), replaced=replaced)
    assert found == want


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_verdict(case: Case) -> None:
    world = World()
    world.existing_node("a")
    world.existing_node("b")
    world.add(*case.pods)
    if case.planned:
        assert world.cluster.assign(NodeKey("b"), case.pods) == []
    sighted = Sighted(
        "a",
        case.pods,
        unknown=case.unknown,
        protected=names.DO_NOT_DISRUPT if case.protected else "",
        forceful=case.forceful,
        awaited=case.awaited,
        stands=case.drifted,
    )
    found = verdict(
        case.reason, [sighted], pod_budgets(*case.budgets), world.cluster.snapshot(), replaced=case.replaced
    )
    assert found == CommandVerdict(case.want, waits=case.waits)


def test_what_never_ends_counts_before_what_does() -> None:
    first, second = Sighted("a", (WEB,)), Sighted("b", (KEPT,))
    found = verdict(
        DRIFTED, [first, second], pod_budgets(budget(minAvailable=1)), World().cluster.snapshot(), replaced=True
    )
    assert "Pod=default/kept" in found.objection


# --- what was decided, a while later ------------------------------------------------------------------------------------


def a_move() -> tuple[Fleet, Proposal]:
    """Two half empty nodes, of which `a` goes and `b` takes its pod."""
    fleet = Fleet()
    fleet.node("a", several(1, "a"))
    fleet.node("b", several(1, "b"))
    return fleet, Proposal("Underutilized", "single", ("a",), placements={"b": fleet.nodes[0].pods})


def changed_node(fleet: Fleet, at: int, **fields: Any) -> None:
    fleet.nodes[at] = replace(fleet.nodes[at], **fields)


def told_of(fleet: Fleet) -> None:
    """A status is written."""
    claim = fleet.nodes[0].claim
    assert claim is not None
    metadata = structs.replace(claim.metadata, resource_version="99")
    changed_node(fleet, 0, claim=structs.replace(claim, metadata=metadata))


def protected_now(fleet: Fleet) -> None:
    claim = fleet.nodes[0].claim
    assert claim is not None
    metadata = structs.replace(claim.metadata, annotations={"a": "b"})
    changed_node(fleet, 0, claim=structs.replace(claim, metadata=metadata))


LATER: dict[str, tuple[Callable[[Fleet], object], bool]] = {
    "nothing happened": (lambda _: None, True),
    "the status of the claim was written": (told_of, True),
    "another node came": (lambda fleet: fleet.node("c"), True),
    "a pod came to the node that goes": (lambda fleet: changed_node(fleet, 0, pods=several(2, "a")), False),
    "a pod came to the node that takes its pod": (lambda fleet: changed_node(fleet, 1, pods=several(2, "b")), False),
    "the node that goes is nominated": (lambda fleet: changed_node(fleet, 0, nominated=True), False),
    "the node that takes its pod goes": (lambda fleet: changed_node(fleet, 1, deleting=True), False),
    "the node that takes its pod is gone": (lambda fleet: fleet.nodes.pop(1), False),
    "the claim was annotated": (protected_now, False),
    "the NodePool is another": (lambda fleet: fleet.pools.__setitem__(0, pool(weight=3)), False),
    "a pod waits that fits on one of them": (lambda fleet: fleet.pending.append(running("new", node_name="")), False),
    "a pod waits that fits on none of them": (
        lambda fleet: fleet.pending.append(running("new", shape(cpu="64"), node_name="")),
        True,
    ),
}


@pytest.mark.parametrize("case", LATER.values(), ids=LATER)
def test_a_proposal_stands_while_nothing_about_its_nodes_changes(case: tuple[Callable[[Fleet], object], bool]) -> None:
    change, stands = case
    fleet, proposal = a_move()
    then = fleet.snapshot()
    change(fleet)
    assert standing([proposal], then, fleet.snapshot()) == ((proposal,) if stands else ())


def other_room(cpu: int) -> Callable[[Fleet], object]:
    """Of the node that takes the pod, which asks for 1,000 milli-CPUs."""
    room = Resources.of({"cpu": cpu, "memory": 2**40, "pods": 10})
    return lambda fleet: changed_node(fleet, 1, room=room)


def never(_: Sequence[Proposal]) -> bool:
    raise AssertionError("nobody came or went")


def crowded(planned: int, *, initialized: bool = True) -> Callable[[Fleet], object]:
    """Another node lacks 500 milli-CPUs, and keeps so many for planned pods."""
    room, kept = Resources.of({"cpu": -500, "pods": 10}), Resources.of({"cpu": planned})

    def change(fleet: Fleet) -> None:
        fleet.node("c")
        changed_node(fleet, 2, room=room, planned=kept, initialized=initialized)

    return change


ROOM: dict[str, tuple[Callable[[Fleet], object], bool]] = {
    "nothing happened": (lambda _: None, True),
    "another node came": (lambda fleet: fleet.node("c"), True),
    "a pod came that leaves room enough": (other_room(1000), True),
    "a pod came for whose brother there had been room": (other_room(999), False),
    "the node that takes its pod goes": (lambda fleet: changed_node(fleet, 1, deleting=True), False),
    "the node that takes its pod is gone": (lambda fleet: fleet.nodes.pop(1), False),
    "another pod's place was taken, and it needs the room": (crowded(2500), False),
    "another pod's place was taken, and there is room for both": (crowded(1000), True),
    "a node has less than its pods ask for, and keeps nothing": (crowded(0), True),
    "a node that is coming offers less than is planned on it": (crowded(1000, initialized=False), True),
}


@pytest.mark.parametrize("case", ROOM.values(), ids=ROOM)
def test_a_drifted_node_goes_where_its_pods_still_have_room(case: tuple[Callable[[Fleet], object], bool]) -> None:
    change, stands = case
    fleet, proposal = a_move()
    then = fleet.snapshot()
    change(fleet)
    assert with_room([proposal], then, fleet.snapshot(), never) == ((proposal,) if stands else ())
    bought = replace(proposal, placements={})
    assert with_room([bought], then, fleet.snapshot(), never) == (bought,)


PLAIN, APART = of_app("web"), of_app("web", affinity=apart(names.HOSTNAME_LABEL, app("web")))
UNREADABLE = of_app("web", topology_spread_constraints=(spread("", app("web")),))
TIES: dict[str, tuple[PodShape, PodShape, bool]] = {
    "nobody looks at anybody": (PLAIN, PLAIN, True),
    "the pod that moves keeps apart from the other": (APART, PLAIN, False),
    "the other keeps apart from the pod that moves": (PLAIN, APART, False),
    "the other is none of those that it keeps apart from": (APART, of_app("db"), True),
    "what it asks for cannot be read": (UNREADABLE, of_app("db"), False),
    "what the other asks for cannot be read": (PLAIN, UNREADABLE, True),
}


@pytest.mark.parametrize("bought", [False, True], ids=["to a node that is there", "to a node that is bought"])
@pytest.mark.parametrize("change", ["came", "went", "was planned"])
@pytest.mark.parametrize("case", TIES.values(), ids=TIES)
def test_a_pod_does_not_move_on_what_was_thought_before_its_peers_did(
    case: tuple[PodShape, PodShape, bool], change: str, bought: bool
) -> None:
    moves, other, stands = case
    fleet = Fleet()
    fleet.node("a", several(1, "a", moves))
    fleet.node("b", several(1, "b"))
    fleet.node("c", several(1, "c", other) if change == "went" else ())
    moving = fleet.nodes[0].pods
    places: dict[str, Any] = {"replacements": (planned(moving),)} if bought else {"placements": {"b": moving}}
    proposal = Proposal("Drifted", "drift", ("a",), **places)
    then = fleet.snapshot()
    came = several(1, "c", other)
    changed_node(
        fleet, 2, **{"assigned": came} if change == "was planned" else {"pods": came if change == "came" else ()}
    )
    asked: list[Sequence[Proposal]] = []
    for legal in (False, True):

        def ask(some: Sequence[Proposal], legal: bool = legal) -> bool:
            asked.append(some)
            return legal

        kept = with_room([proposal], then, fleet.snapshot(), ask)
        assert kept == ((proposal,) if stands or legal else ())
    assert asked == ([] if stands else [(proposal,)] * 2)


EVEN = of_app("web", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("web")),))
DOMAINS: dict[str, tuple[Callable[[Fleet], object], PodShape, bool]] = {
    "a node came": (lambda fleet: fleet.node("d"), EVEN, False),
    "a node went": (lambda fleet: fleet.nodes.pop(2), EVEN, False),
    "a node was tainted": (lambda fleet: changed_node(fleet, 2, taints=(Taint("a", "NoSchedule"),)), EVEN, False),
    "a node has other labels": (lambda fleet: changed_node(fleet, 2, labels={}), EVEN, False),
    "a node has other room": (lambda fleet: changed_node(fleet, 2, room=Resources.of({"cpu": 500})), EVEN, True),
    "a node came, and the pod is kept apart from others": (lambda fleet: fleet.node("d"), APART, True),
    "a node came, and what the pod asks for cannot be read": (lambda fleet: fleet.node("d"), UNREADABLE, False),
}


@pytest.mark.parametrize("bought", [False, True], ids=["to a node that is there", "to a node that is bought"])
@pytest.mark.parametrize("case", DOMAINS.values(), ids=DOMAINS)
def test_a_spread_is_not_kept_among_the_nodes_of_before(
    case: tuple[Callable[[Fleet], object], PodShape, bool], bought: bool
) -> None:
    """An empty node that came is the one with the fewest pods."""
    change, moves, stands = case
    fleet = Fleet()
    fleet.node("a", several(1, "a", moves))
    for name in "bc":
        fleet.node(name)
    moving = fleet.nodes[0].pods
    places: dict[str, Any] = {"replacements": (planned(moving),)} if bought else {"placements": {"b": moving}}
    proposal = Proposal("Underutilized", "single", ("a",), **places)
    then = fleet.snapshot()
    change(fleet)
    assert with_room([proposal], then, fleet.snapshot(), lambda _: False) == ((proposal,) if stands else ())
    assert with_room([proposal], then, fleet.snapshot(), lambda _: True) == (proposal,)


def test_what_is_kept_is_asked_about_together() -> None:
    """Each of two moves may be legal alone, and both together not."""
    fleet = Fleet()
    fleet.node("a", several(1, "a", APART))
    fleet.node("b", several(1, "b", APART))
    fleet.node("c")
    moves = [
        Proposal("Drifted", "drift", (name,), placements={"c": fleet.nodes[at].pods}) for at, name in enumerate("ab")
    ]
    then = fleet.snapshot()
    changed_node(fleet, 2, pods=several(1, "c", APART))
    assert with_room(moves, then, fleet.snapshot(), lambda some: len(some) < 2) == (moves[0],)


def test_moves_that_are_legal_together_are_asked_about_once_and_else_no_more_than_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One tenant's pod can be tied to everybody: a hundred moves took six seconds."""
    monkeypatch.setattr(validation, "MOST_JUDGED", 3)
    fleet = Fleet()
    names = [f"n{number}" for number in range(6)]
    for name in names:
        fleet.node(name, several(1, name, APART))
        fleet.node(f"to-{name}")
    fleet.node("z")
    moves = [
        Proposal("Drifted", "drift", (name,), placements={f"to-{name}": fleet.nodes[2 * at].pods})
        for at, name in enumerate(names)
    ]
    then = fleet.snapshot()
    changed_node(fleet, len(fleet.nodes) - 1, pods=several(1, "z", APART))
    asked: list[int] = []

    def ask(some: Sequence[Proposal], at_most: int) -> bool:
        asked.append(len(some))
        return len(some) <= at_most

    assert with_room(moves, then, fleet.snapshot(), lambda some: ask(some, 6)) == tuple(moves)
    assert asked == [6]
    asked.clear()
    assert with_room(moves, then, fleet.snapshot(), lambda some: ask(some, 2)) == tuple(moves[:2])
    assert asked == [6, 1, 2, 3]


def test_two_drifted_nodes_do_not_go_where_there_is_room_for_the_pods_of_one() -> None:
    fleet, proposal = a_move()
    then = fleet.snapshot()
    other_room(1000)(fleet)
    assert with_room([proposal, proposal], then, fleet.snapshot(), never) == (proposal,)
