"""A plan of which no node is worth giving up: what consolidation would do with its nodes later, done before they are bought.

Each claim is given up in turn, and each two with few or equal pods: these go to the room of the others, and to other new nodes for the rest,
if that costs less. Existing nodes were asked before, by scheduling. A pod keeps what it was granted (`granted`), and comes to no new node of a
NodePool of less weight.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from provisioner.apis.names import CAPACITY_TYPE_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.attempts.solution import Solution
from provisioner.scheduling.becoming import filled
from provisioner.scheduling.improvement.acceptance import EPSILON_USD, is_cheaper, settled, weighed
from provisioner.scheduling.improvement.balancing import balanced
from provisioner.scheduling.improvement.granted import Granted, granted
from provisioner.scheduling.improvement.limits_after import limits_after
from provisioner.scheduling.improvement.partitions import cheapest, say_little, split_little
from provisioner.scheduling.judging import DesignedNode, designed
from provisioner.scheduling.nomination.nomination_rules import is_hard
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Changes
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.requirement import Requirements

_MOST_PLACED: Final = 8_000
"""Pods that are placed or judged, each time anew."""
_MOST_PAIRS: Final = 500
"""Of claims that are looked at: all of thirty-two. Of more, pairs that are worth giving up are rare: those of 60 took 0.4 s for nothing."""


_WORTH: Final = 0.01
"""Of the price: what more nodes have to save where kube-scheduler finds the places of pods with a hard spread by itself. It fills small nodes with others'
pods now and then, and then other nodes are bought: 2.7 and 4 % were paid more for a plan on seven nodes, and 0, 0 and 0.7 % for one on five at one price."""


_Kind = tuple[str, Requirements, tuple[str, str, str], float, frozenset[tuple[int, int]]]


def mended(prepared: Prepared, result: Result, *, steered: bool = False, expired: Callable[[], bool] = bool) -> Result:
    """The cheapest answer that giving up one claim after another leads to; for few pods, after `cheapest`. Of the same price, one that is `balanced`.

    Args:
        prepared: the world that `result` is about.
        result: legal as a whole.
        steered: its pods are led to their nodes, so kube-scheduler spoils no plan, none has to be balanced, and more nodes may save ever so little.
        expired: says that time is up.

    Returns:
        `result` itself where nothing was found; never one that is dearer or leaves others.

    Cost: for each claim what placing its pods costs, and a judgement of all where that saves; bounded by `_MOST_PLACED`.
    """
    spread = {id(pod.shape): pod.shape.spread for pod in result.placed}.values()
    worth = _WORTH if not steered and any(is_hard(one) for some in spread for one in some) else 0.0
    found, grants = _mended(prepared, result, worth, expired)
    while not steered and (other := balanced(prepared, found, grants=grants, expired=expired)) is not found:
        found, grants = _mended(prepared, other, worth, expired)
        if found.usd_per_hour > other.usd_per_hour - EPSILON_USD:
            return other
    return found


def _mended(
    prepared: Prepared, result: Result, worth: float, expired: Callable[[], bool]
) -> tuple[Result, Granted | None]:
    """The answer, and what it granted, where that is known. `worth`: share of the price that more nodes have to save."""
    placed = result.placed
    if not result.claims or len(placed) > _MOST_PLACED or not say_little(placed):
        return result, None
    grants = granted(prepared, prepared.setting(placed), result)
    if grants is None:
        return result, None
    mending = _Mending(prepared, grants, cheapest(prepared, result, grants=grants), worth, expired)
    while mending.step():
        continue
    return mending.result, grants if mending.result is result else None


class _Mending:
    def __init__(
        self, prepared: Prepared, grants: Granted, result: Result, worth: float, expired: Callable[[], bool]
    ) -> None:
        self.result = result
        self._worth: Final = worth
        self._prepared: Final = prepared
        self._grants: Final = grants
        self._expired: Final = expired
        self._left = _MOST_PLACED
        self._weights: Final = {pool.name: pool.weight for pool in prepared.world.pools}

    def step(self) -> bool:
        """Give up one more claim; False where none is worth it."""
        claims = self.result.claims
        world = self._prepared.updated(
            Changes(bins={_name(one): replace(filled(one, _name(one)), closed=False) for one in claims})
        )
        some_open = list(filter(self._grants.is_open, claims))
        roomy = set(map(_name, some_open))
        kinds: dict[_Kind, int] = {}
        kind_of = {_name(one): kinds.setdefault(self._kind(one), len(kinds)) for one in some_open}
        in_vain: set[tuple[int, ...]] = set()
        for some in _choices(some_open):
            pods = [pod for one in some for pod in one.pods]
            self._left -= len(pods)
            if self._left < 0 or self._expired():
                return False
            alike = tuple(sorted([kind_of[_name(one)] for one in some]))
            if alike in in_vain:
                continue
            in_vain.add(alike)
            others = [other for other in claims if all(other is not one for one in some)]
            found = self._without(world, some, others, pods, roomy.difference(map(_name, some)))
            if found is not None and self._taken(others, found):
                return True
        return False

    def _kind(self, claim: PlannedClaim) -> _Kind:
        """What is the same of claims of which one is worth no more than another."""
        pods = Counter([id(self._grants.of[pod.uid]) for pod in claim.pods])
        planned = claim.planned_type, claim.planned_zone, claim.planned_capacity_type
        return claim.pool, claim.requirements, planned, claim.usd_per_hour, frozenset(pods.items())

    def _without(
        self,
        world: Prepared,
        some: Sequence[PlannedClaim],
        others: Sequence[PlannedClaim],
        pods: Sequence[Pod],
        roomy: Collection[str],
    ) -> Result | None:
        """Where the pods of some claims go instead; None where that saves nothing. `roomy`: names of those that may take some."""
        gone = frozenset(map(_name, some))
        rest = world.updated(Changes(gone=gone, pools=limits_after(world.world.pools, planned=others)))
        grants = self._grants.about(rest.setting(pods, only=roomy))
        found = Solution(grants.setting, ()).result(explain=False)
        if found.unplaced:
            return None
        found = cheapest(rest, found, grants=grants)
        weight = {pod.uid: self._weights[one.pool] for one in some for pod in one.pods}
        lighter = any(self._weights[new.pool] < weight[pod.uid] for new in found.claims for pod in new.pods)
        saves = weighed(rest, found.claims) < weighed(rest, some) - EPSILON_USD
        return found if saves and not lighter else None

    def _taken(self, claims: Sequence[PlannedClaim], found: Result) -> bool:
        """Whether all of them may be so together, and cost less; then that is the answer from now on. `claims`: those that stay."""
        same = [other for other in claims if _name(other) not in found.existing]
        fuller = [other for other in claims if _name(other) in found.existing]
        nodes = [
            *(self._node(other, (*other.pods, *found.existing[_name(other)])) for other in fuller),
            *(self._node(new, new.pods) for new in found.claims),
        ]
        self._left -= len(self.result.placed)
        result, _ = settled(self._prepared, self._grants.setting, self.result, same, nodes)
        if result is None or not is_cheaper(self._prepared, result, self.result):
            return False
        more = len(result.claims) > len(self.result.claims)
        if more and result.usd_per_hour > self.result.usd_per_hour * (1 - self._worth):
            return False
        self.result = result
        return True

    def _node(self, claim: PlannedClaim, pods: tuple[Pod, ...]) -> DesignedNode:
        """The node of a claim with these pods: it says what the claim said, and what matters to them."""
        (node,) = designed((claim,))
        keys = {key for pod in pods for key in self._grants.counted(pod)}
        zone, kind = (
            own if key in keys or claim.requirements.requirement(key).single_value is not None else ""
            for key, own in ((ZONE_LABEL, node.zone), (CAPACITY_TYPE_LABEL, node.capacity_type))
        )
        return replace(node, zone=zone, capacity_type=kind, pods=pods)


def _choices(claims: Sequence[PlannedClaim]) -> Iterator[tuple[PlannedClaim, ...]]:
    """Each claim, those first that cost most for each pod; then each two with pods that have few ways to share nodes."""
    ranked = sorted(claims, key=lambda one: -one.usd_per_hour / len(one.pods))
    yield from ((one,) for one in ranked)
    for one, other in itertools.islice(itertools.combinations(ranked, 2), _MOST_PAIRS):
        if split_little((*one.pods, *other.pods)):
            yield one, other


def _name(claim: PlannedClaim) -> str:
    """Of the node that a claim will be; no other is called so."""
    return f"planned for {claim.pods[0].uid}"
