"""Whether the candidates of a command may go, from what the API server has now. Source: core spec 6.2, 6.13, 7.2.

Differs: Karpenter validates consolidation and emptiness, from its caches; here every command is, and from fresh lists.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.eviction import forbids_for_ever
from provisioner.apis.gangs import group_of
from provisioner.apis.pods import Pod, do_not_disrupt, is_active, is_evictable, is_reschedulable
from provisioner.disruption.candidates import blocked_by_annotation, budget_prevents_evictions, pod_is_annotated
from provisioner.disruption.commands.progress import CommandVerdict
from provisioner.disruption.gangs import PDBS_ALLOW_FEWER, moves_together, needs_others, never_back, not_consolidated
from provisioner.disruption.proposal import Proposal
from provisioner.scheduling.topology.ties import any_spread, any_ties, kinds
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import first_untolerated

ALLOWED = CommandVerdict()


@dataclass(frozen=True, slots=True)
class Sighted:
    """One candidate as the API server has it.

    Attributes:
        name: of the NodeClaim.
        pods: on its Node.
        unknown: what may be a live pod and cannot be told, in words; "" for nothing.
        protected: the annotation by which the Node or the NodeClaim is not to be disrupted; "" without.
        forceful: its drain has an end, so that no pod holds it for ever.
        awaited: pods are planned for the node.
        stands: the node is still drifted, or broken; of no matter where the command has another reason.
    """

    name: str
    pods: tuple[Pod, ...] = ()
    unknown: str = ""
    protected: str = ""
    forceful: bool = False
    awaited: bool = False
    stands: bool = True


def verdict(
    reason: str,
    sighted: Iterable[Sighted],
    budgets: PodBudgets,
    snapshot: Snapshot,
    *,
    replaced: bool,
    first: bool = False,
) -> CommandVerdict:
    """What stands against a command.

    Args:
        reason: of the command. Empty: no pod may need another place. Underutilized: every pod that does must have one.
            Drifted, Unhealthy: every pod that has one must find it open; those that came later than the command are planned like those of any node that goes.
        sighted: its candidates.
        budgets: every PodDisruptionBudget of the pods' namespaces.
        snapshot: the instant; says which pods have a place.
        replaced: replacements were made; then it pays to wait for a budget that allows nothing at the moment.
        first: the candidate goes before its replacement is launched, so no place of its pods is open yet.
    """
    places = {pod.uid: node for node in snapshot.nodes for pod in node.assigned} if reason != names.REASON_EMPTY else {}
    eventual = reason in (names.REASON_DRIFTED, names.REASON_UNHEALTHY)
    sighted = tuple(sighted)
    stands = any(one.stands for one in sighted)  # of nodes that go together one is enough
    waiting = _not_at_once(reason, sighted, budgets, snapshot)
    if waiting.objection and not (waiting.waits and replaced):
        return CommandVerdict(waiting.objection)
    for one in sighted:
        if one.unknown:
            return CommandVerdict(Said(f"an object that cannot be read may be a running pod: {one.unknown}"))
        if one.protected:
            return CommandVerdict(blocked_by_annotation(one.protected))
        if one.awaited and reason != names.REASON_UNHEALTHY:
            return CommandVerdict(Said("pods are planned for the node"))
        if eventual and not stands:
            return CommandVerdict(_passed(reason, one.name))
        moving = [pod for pod in one.pods if is_reschedulable(pod)] if not first else []
        if reason == names.REASON_EMPTY and moving:
            return CommandVerdict(Said(f"pod {moving[0].key} runs on the node"))
        for pod in moving:
            if eventual and pod.uid not in places:
                continue  # it came later than the command, and is planned like a pod of any node that goes
            if pod.deleted is None and (lacking := _lacks_place(pod, places.get(pod.uid))) is not None:
                if not (replaced and lacking.waits):
                    return CommandVerdict(lacking.objection)
                waiting = lacking
        if eventual and one.forceful:
            continue
        for pod in one.pods:
            if is_active(pod) and do_not_disrupt(pod, snapshot.at):
                return CommandVerdict(pod_is_annotated(names.DO_NOT_DISRUPT, pod.key))
            if is_evictable(pod, snapshot.at) and (blocked := _blocked_by(pod, budgets)):
                if not (replaced and blocked.waits):
                    return CommandVerdict(blocked.objection)
                waiting = blocked
        if why := never_back(one.pods, snapshot.groups):
            return CommandVerdict(why)
    return waiting


def _not_at_once(reason: str, sighted: Sequence[Sighted], budgets: PodBudgets, snapshot: Snapshot) -> CommandVerdict:
    """What stands against the eviction of all pods at once, where PodGroups ask for that; nothing where a drain that must come to pass has an end."""
    eventual = reason in (names.REASON_DRIFTED, names.REASON_UNHEALTHY)
    pods = [pod for one in sighted if not (eventual and one.forceful) for pod in one.pods]
    if not eventual and (group := moves_together(pods, snapshot.together, snapshot.consolidated)):
        return CommandVerdict(not_consolidated(group))
    if reason != names.REASON_UNHEALTHY and (stays := _stays(pods, {one.name for one in sighted}, snapshot)):
        return CommandVerdict(stays)
    evicted = [pod for pod in pods if is_evictable(pod, snapshot.at)]
    if not (group := moves_together(evicted, snapshot.together)) or budgets.waves(evicted) <= 1:
        return ALLOWED
    return CommandVerdict(needs_others(group, len(sighted), PDBS_ALLOW_FEWER), waits=True)


def _stays(pods: Iterable[Pod], going: Collection[str], snapshot: Snapshot) -> str:
    """That others of the PodGroups of these pods, which ask to be disrupted all at once, would stay; "" where none does.

    Cost: O(pods) where any such PodGroup is concerned.
    """
    mine = {group_of(pod) for pod in pods if is_reschedulable(pod)} & snapshot.together
    for node in snapshot.nodes if mine else ():
        if node.deleting or (node.key.of_claim and node.key.name in going):
            continue
        for pod in node.pods:
            if is_reschedulable(pod) and (key := group_of(pod)) in mine:
                return needs_others(
                    key, len(going) + 1, Said(f'its pod {pod.key} runs on Node "{node.name}", which stays')
                )
    return ""


def _passed(reason: str, claim: str) -> str:
    """That the reason of a command holds no longer."""
    if reason == names.REASON_UNHEALTHY:
        return Said(f"the Node of NodeClaim {claim} is healthy again")
    return Said(f"NodeClaim {claim} no longer differs from its NodePool and NodeClass")


def standing(proposals: Iterable[Proposal], then: Snapshot, now: Snapshot) -> tuple[Proposal, ...]:
    """Those proposals of which nothing has changed while they were decided: asked of those that took long, and before `with_room`, which asks for less.

    Each of its nodes, those that go and those that take pods, must be the same, with the same NodePool, and no pod that came
    meanwhile may want the room of one of them.

    Args:
        proposals: decided on `then`.
        then: an instant.
        now: a later one.

    Cost: O(nodes), and the new pods for each node of a proposal.
    """
    if (
        now.nodes is then.nodes
        and now.pools is then.pools
        and now.waiting is then.waiting
        and now.leaving is then.leaving
    ):
        return tuple(proposals)
    before = {str(node.key): node for node in then.nodes}
    after = {str(node.key): node for node in now.nodes}
    pools = {one.pool.metadata.name: one.pool for one in then.pools}
    kept = {one.pool.metadata.name for one in now.pools if pools.get(one.pool.metadata.name) is one.pool}
    waited = {pod.uid for pod in (*then.waiting, *then.leaving)}
    new = [pod.shape.requests for pod in (*now.waiting, *now.leaving) if pod.uid not in waited]

    def stands(one: Proposal) -> bool:
        mine = [(before.get(name), after.get(name)) for name in (*map(_key, one.candidates), *one.placements)]
        return all(
            node is not None
            and known is not None
            and _same(known, node)
            and (not node.pool or node.pool in kept)
            and not any(_fits(requests, node.room) for requests in new)
            for known, node in mine
        )

    return tuple(one for one in proposals if stands(one))


MOST_JUDGED: Final = 30
"""Proposals that are asked about one after another, where not all of them are legal together; the others are decided anew in the next pass."""


def with_room(
    proposals: Iterable[Proposal],
    then: Snapshot,
    now: Snapshot,
    legal: Callable[[Sequence[Proposal]], bool],
    *,
    by_default: bool = False,
) -> tuple[Proposal, ...]:
    """Those proposals whose pods still have room on the nodes that are to take them; between an eviction and the next pod, a node looks empty.

    Where pods were bound to room that is kept for others, these will want room elsewhere: as much as that is left beside every move. Where pods came,
    went or were planned meanwhile (by another method, too) that a pod looks at, or that look at it, its place may not be legal any more: `legal` is asked.
    So it is of pods with a hard spread where nodes came, went or have other labels or taints: an empty node is the domain with the fewest pods.

    Args:
        proposals: decided on `then`.
        then: an instant.
        now: a later one.
        legal: whether the pods of these proposals may be where they have them, as things are now, all of them together.
        by_default: as of `kinds`.

    Cost: O(nodes), O(pods that are placed + pods that came or went) and at most `MOST_PAIRS` comparisons for each proposal; one question where all are
    legal together, else at most `MOST_JUDGED` more.
    """
    displaced = sum((node.planned for node in now.nodes if _is_taken(node)), EMPTY)
    if now.nodes is then.nodes and not displaced:
        return tuple(proposals)
    rooms = {str(node.key): node.room for node in now.nodes if not node.deleting}
    proposals = list(proposals)
    *placed, moved = kinds(*(one.pods for one in proposals), _moved(then, now), by_default=by_default)
    others = _domains(then) != _domains(now)
    tied = [any_ties(mine, moved, now.around.namespaces) or (others and any_spread(mine)) for mine in placed]
    kept = _fitting(proposals, rooms, displaced, lambda _kept, _one: True)
    questions = [one for one, is_tied in zip(proposals, tied, strict=True) if is_tied and one in kept]
    if not questions or legal(kept):
        return kept
    if len(kept) == 1:
        return ()
    judged = questions[:MOST_JUDGED]
    late = questions[MOST_JUDGED:]
    return _fitting(
        [one for one in kept if one not in late],
        rooms,
        displaced,
        lambda before, one: one not in judged or legal((*before, one)),
    )


def _fitting(
    proposals: Iterable[Proposal],
    rooms: Mapping[str, Resources],
    displaced: Resources,
    may_go: Callable[[Sequence[Proposal], Proposal], bool],
) -> tuple[Proposal, ...]:
    """Those for which there is room beside the ones before them, and of which `may_go` says so, too."""
    left, kept = dict(rooms), list[Proposal]()
    for one in proposals:
        wanted = {name: sum((pod.shape.requests for pod in pods), EMPTY) for name, pods in one.placements.items()}
        fits = all(name in left and (amounts + displaced).fits(left[name]) for name, amounts in wanted.items())
        if fits and may_go(kept, one):
            kept.append(one)
            left.update((name, left[name] - amounts) for name, amounts in wanted.items())
    return tuple(kept)


def _domains(snapshot: Snapshot) -> dict[NodeKey, tuple[object, ...]]:
    """What a spread may read of nodes, their pods apart."""
    return {node.key: (node.labels, node.taints) for node in snapshot.nodes}


def _moved(then: Snapshot, now: Snapshot) -> Iterator[Pod]:
    """The pods that were bound or planned somewhere, or went, between two instants."""
    before, after = ({node.key: node for node in one.nodes} for one in (then, now))
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is not new:
            was, is_now = (_pods_of(node) for node in (old, new))
            for uid in was.keys() ^ is_now.keys():
                yield was.get(uid) or is_now[uid]


def _pods_of(node: NodeView | None) -> dict[str, Pod]:
    return {pod.uid: pod for pod in (*node.pods, *node.assigned)} if node is not None else {}


def _is_taken(node: NodeView) -> bool:
    """Whether a node keeps room that is not there: its planned pods lose their places within a second."""
    return node.initialized and any(amount < 0 < node.planned.amount(name) for name, amount in node.room.items())


def _key(claim: str) -> str:
    return str(NodeKey(claim))


def _same(then: NodeView, now: NodeView) -> bool:
    """Whether a node is what it was; what is told in its claim's status does not count beside what the view says."""
    if then is now:
        return True
    if then.claim is None or now.claim is None:
        return False
    told = then.claim, now.claim
    (old, spec), (new, other) = (
        ((one.metadata.uid, one.metadata.labels, one.metadata.annotations), one.spec) for one in told
    )
    plain = [replace(one, claim=None, last_pod_event=None) for one in (then, now)]
    return old == new and spec == other and plain[0] == plain[1]


def _fits(requests: Resources, room: Resources) -> bool:
    return all(amount <= room.amount(name) for name, amount in requests.items())


def _lacks_place(pod: Pod, place: NodeView | None) -> CommandVerdict | None:
    """Why the node that was chosen for a pod would not take it now; None where it would."""
    if place is not None and not place.ready:  # its taints say the same, and go with it
        return CommandVerdict(Said(f"node {place.name}, on which pod {pod.key} is to run, is not ready"), waits=True)
    if place is None or first_untolerated(pod.shape.tolerations, place.taints) is not None:
        return CommandVerdict(Said(f"pod {pod.key} fits on no other node"))
    return None


def _blocked_by(pod: Pod, budgets: PodBudgets) -> CommandVerdict | None:
    """What the PodDisruptionBudgets of a pod say against its eviction now; None for nothing."""
    held = budgets.holding(pod, soon=True)
    if len(held) > 1:
        return CommandVerdict(Said(f"Eviction does not support multiple PDBs (Pod={pod.key})"))
    if not held:
        return None
    return CommandVerdict(budget_prevents_evictions(held[0].metadata.key), waits=not forbids_for_ever(held[0]))
