"""What the extender answers: steer planned pods, hold their room against strangers, veto needless preemption. Pure.

The rules, in order (design.md §3.7, §3b.4, spec/extender-webhook.md §1.8):

1. Pods of DaemonSets go to the node that they are pinned to: their room is planned for on every node.
2. A planned pod gets its planned node alone, when it is among the names; kube-scheduler then skips scoring.
3. A member of a group whose nodes are launched together passes that node alone, once all of them take pods, and none before (`extender.groups`).
4. Else, unless its own is still coming, a node where its family has a place: equal pods are interchangeable.
5. A node with held room refuses a pod while the planned pods would no longer fit with it, and with those that kube-scheduler may
   be binding there in this moment; pods of higher priority than the planned ones do not count those.
6. A planned pod whose own node is still coming leaves other nodes with held room alone, even where it would fit: it would
   break up those plans while its own stands empty. Unheld room anywhere is free to it. kube-scheduler's
   question about the one node that is nominated for it is answered by room alone.
7. A node that a disruption command takes away refuses every pod that does not tolerate its taint, before that taint is seen.
8. Where all of many nodes would do, a sample passes: the fullest, and others in turn.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, filterfalse, islice
from types import MappingProxyType
from typing import Final, NamedTuple

from extender.facts import FamilyMember
from extender.holds import Hold, Supposed, beside
from extender.plan import NodeStanding
from extender.protocol import MAX_SCORE, NodeNames, encode_score
from provisioner.apis import names as api_names
from provisioner.apis.reports import WAITING_FOR_ROOM
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import tolerates

BEING_DISRUPTED: Final = "is being disrupted"
NOWHERE: Final[frozenset[str]] = frozenset()
SAMPLE: Final = 100
"""Feasible nodes that are enough to choose among: the fewest that kube-scheduler itself looks for, however small a share it is told to score.

Source: minFeasibleNodesToFind in kube-scheduler 1.36."""


class PlacementVerdict(NamedTuple):
    """The answer to `filter`.

    Attributes:
        steered: the one planned node that may pass; "" where the pod was not steered.
        refused: why nodes may not pass, by node; all the others pass.
    """

    steered: str
    refused: Mapping[str, str]


PASS = PlacementVerdict("", {})


def judge(
    pod: FamilyMember,
    standing: NodeStanding,
    holds: Mapping[str, Hold],
    names: NodeNames,
    nominated: str = "",
    disrupted: Collection[str] = NOWHERE,
    supposed: Sequence[Supposed] = (),
) -> PlacementVerdict:
    """Which of `names` suit `pod`; see the module.

    Args:
        pod: who asks.
        standing: where it may take a planned place.
        holds: nodes with held room.
        names: the feasible nodes; decoded only where a hold may be among them.
        nominated: the pod's `status.nominatedNodeName`.
        disrupted: nodes that a command takes away.
        supposed: pods that may be bound to one of several nodes in this moment.

    Cost: O(sites of the pod's family + held nodes + supposed), once O(nodes of all supposed) where held nodes are nearly full, and the decoding of the names
    where something is held or disrupted.
    """
    if is_exempt(pod):
        return PASS
    steered = planned_node(standing, names)
    if steered:
        return PlacementVerdict(steered, {})
    if standing.alone:
        waits_for = standing.home or "the nodes of its group"
        return PlacementVerdict("", dict.fromkeys(names.all(), f"{WAITING_FOR_ROOM} {waits_for}"))
    going = disrupted if disrupted and avoids_disrupted(pod) else NOWHERE
    if not holds and not going:
        return PASS
    waits = standing.coming if not (nominated and names.all() == [nominated]) else ""
    asked = sorted(names.as_set().intersection(holds).difference(going))
    requests = dict(pod.requests)
    crowd = Resources.total(one.requests for one in supposed)
    at_node: Mapping[str, Sequence[Resources]] | None = None
    refused = {}
    for name in asked:
        own = holds[name].reserved_for(pod.request)
        reason = refusal(requests, pod.priority, holds[name], waits, crowd, own)
        if reason and supposed and not waits:  # not all of them may go there
            at_node = beside(set(asked), supposed) if at_node is None else at_node
            reason = refusal(requests, pod.priority, holds[name], waits, Resources.total(at_node.get(name, ())), own)
        if reason:
            refused[name] = reason
    if going:
        refused |= dict.fromkeys(names.as_set().intersection(going), BEING_DISRUPTED)
    return PlacementVerdict("", refused) if refused else PASS


def sample(
    names: NodeNames, count: int, levels: Sequence[Collection[str]], start: int, refused: Collection[str] = NOWHERE
) -> list[str] | None:
    """`count` of the names that may pass; None where they are no more.

    The first half are the fullest nodes, which `score` puts first. The rest comes in turn, so that whoever else filters or scores nodes sees every
    node in the end.

    Args:
        names: the feasible nodes.
        count: how many shall pass.
        levels: nodes with pods of their own, by how full they are (`HeldRoom.levels`).
        start: where the turn begins.
        refused: those of `names` that may not pass.

    Cost: O(count + refused), beyond the set of the names; O(nodes) where the fullest are not among them.
    """
    listed, asked = names.all(), names.as_set()
    if len(asked) - len(refused) <= count:
        return None
    full = filter(asked.__contains__, chain.from_iterable(reversed(levels)))
    chosen = dict.fromkeys(islice(filterfalse(refused.__contains__, full), count // 2))
    for at in range(start, start + len(listed)):
        if len(chosen) >= count:
            break
        name = listed[at % len(listed)]
        if name not in refused:
            chosen[name] = None
    return list(chosen)


def is_exempt(pod: FamilyMember) -> bool:
    """Whether holds do not concern the pod."""
    return pod.daemon


def avoids_disrupted(pod: FamilyMember) -> bool:
    """Whether the taint of a disrupted node would keep the pod off it."""
    tolerations = pod.shape.tolerations if pod.shape is not None else ()
    return not is_exempt(pod) and not tolerates(tolerations, api_names.DISRUPTED_TAINT)


def planned_node(standing: NodeStanding, names: NodeNames) -> str:
    """The node among `names` where the pod has a place: its own, else the best of its equals'; "" for none."""
    if standing.home in names:
        return standing.home
    if standing.alone:
        return ""
    for node in standing.others:
        if node in names:
            return node
    return ""


def refusal(
    requests: Mapping[str, int],
    priority: int,
    hold: Hold,
    waits_for: str,
    others: Resources = EMPTY,
    own: Resources = EMPTY,
) -> str:
    """Why a pod may not go to a node with held room; "" where it may.

    Args:
        requests: what it takes.
        priority: of it.
        hold: what is held there.
        waits_for: claim or node that the pod has a place on and that is still coming, "" for none.
        others: what pods take that may be bound there in this moment.
        own: what of the hold is for it and its equals, since it names their ProvisioningRequest.
    """
    if waits_for:
        return f"{WAITING_FOR_ROOM} {waits_for}"
    if not hold.admits(requests, priority, freed=own, beside=others):
        return "held for planned pods"  # one text for all nodes: kube-scheduler counts equal reasons in its event
    return ""


def score(
    pod: FamilyMember,
    standing: NodeStanding,
    names: NodeNames,
    scores: Mapping[str, bytes] = MappingProxyType({}),
    company: Callable[[FamilyMember], Collection[str]] = lambda _: NOWHERE,
) -> list[bytes]:
    """The answer to `prioritize`, an encoded entry a node; a node that is not named scores 0.

    The planned node alone, where there is one. Other pods go where it is full already, so that what scale-downs leave
    empties whole nodes, and consolidation moves fewer pods; a node without pods of its own comes last, and so does one with another pod of the
    same owner, or what we say would outbid kube-scheduler's default spreading. Pods that wish for something themselves
    (a soft spread, a preferred affinity) are left to it: kube-scheduler adds up what we say and what they wish.

    Args:
        pod: who asks.
        standing: where it may take a planned place.
        names: the feasible nodes.
        scores: of nodes with pods of their own (`HeldRoom.scores`).
        company: says which nodes have pods of its owner; only asked where that counts.
    """
    if is_exempt(pod):
        return []
    steered = planned_node(standing, names)
    if steered:
        return [encode_score(steered, MAX_SCORE)]
    if has_wishes(pod):
        return []
    known = company(pod)
    listed = filterfalse(known.__contains__, names.all())
    return list(filter(None, map(scores.get, listed)))  # loops in C: there may be 5,000 names


def takes_any(pod: FamilyMember) -> bool:
    """Whether the pod itself has nothing to choose among feasible nodes by."""
    return pod.shape is not None and not pod.shape.resource_claims and not is_exempt(pod) and not has_wishes(pod)


def has_wishes(pod: FamilyMember) -> bool:
    """Whether the pod prefers some nodes to others by itself."""
    shape = pod.shape
    if shape is None:
        return False
    if any(one.when_unsatisfiable == "ScheduleAnyway" for one in shape.spread):
        return True
    affinity = shape.affinity
    groups = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    return any(group is not None and group.preferred for group in groups)


class Victims(NamedTuple):
    """Whom preemption would evict from one node.

    Attributes:
        pods: how many.
        room: what those of them take that a watch told of; only asked on nodes with held room.
    """

    pods: int
    room: Resources


def preemptible(
    pod: FamilyMember,
    standing: NodeStanding,
    holds: Mapping[str, Hold],
    candidates: Mapping[str, Victims],
    disrupted: Collection[str] = NOWHERE,
) -> list[str]:
    """The answer to `preempt`: nodes where pods may be evicted for `pod`, by name.

    Nodes that `filter` would refuse it afterwards are taken out, because kube-scheduler's dry run does not ask us: those where
    the planned pods that it does not outrank would no longer fit beside it, even without the victims. None at all is a
    veto, which may be given once (`extender.vetoes`).

    Args:
        pod: who would preempt.
        standing: where it may take a planned place.
        holds: nodes with held room; the victims' room is not counted in them.
        candidates: the victims by node.
        disrupted: nodes that a command takes away.
    """
    requests = dict(pod.requests)
    going = disrupted if disrupted and avoids_disrupted(pod) else NOWHERE
    return sorted(
        name
        for name, victims in candidates.items()
        if victims.pods
        and (name == standing.home or not standing.alone)
        and name not in going
        and (
            is_exempt(pod)
            or name == standing.home
            or name not in holds
            or holds[name].admits(requests, pod.priority, freed=victims.room + holds[name].reserved_for(pod.request))
        )
    )


def needs_nobodys_room(pod: FamilyMember, standing: NodeStanding) -> bool:
    """Whether the planned node of `pod` is coming, so that preemption would evict pods for nothing."""
    return bool(standing.coming) and not is_exempt(pod)
