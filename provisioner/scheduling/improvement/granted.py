"""What scheduling's answer gave its pods, as demands: whoever looks for cheaper nodes gives up no wish that was granted."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from provisioner.apis.names import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.attempts.attempt import skews_of
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import PreparedPool
from provisioner.scheduling.constraints.classes import PodClass, ladders_of
from provisioner.scheduling.constraints.demands import Count, Demand
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Packing
from provisioner.scheduling.result import PlannedClaim, Result

_MOST_FALLBACKS: Final = 6
"""Wishes that are given up until scheduling's own answer keeps all that are left."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A question in which pods demand the wishes that they were granted.

    Attributes:
        of: by UID, the class of each pod that is on a new node.
    """

    setting: Setting
    offers: Mapping[str, PreparedPool]
    of: Mapping[str, PodClass]

    def split(self, claims: Sequence[PlannedClaim]) -> tuple[list[PlannedClaim], list[PlannedClaim]]:
        """The claims whose pods may be shared out anew, and those that stay."""
        again: list[PlannedClaim] = []
        kept: list[PlannedClaim] = []
        for claim in claims:
            stays = not self.is_open(claim) or any(self._stays(self.of[pod.uid], claim) for pod in claim.pods)
            (kept if stays else again).append(claim)
        return again, kept

    def is_open(self, claim: PlannedClaim) -> bool:
        """Whether a claim may be given up, and may take more pods."""
        return not (
            self.offers[claim.pool].pool.packing is Packing.GREEDY
            or claim.min_values_relaxed
            or claim.reservations
            or any(pod.shape.resource_claims for pod in claim.pods)
        )

    def _stays(self, one: PodClass, claim: PlannedClaim) -> bool:
        beside = any(count.on_hosts for count in one.ladder[0].relations.together)
        return beside or self.pins(one, claim) is None

    def pins(self, one: PodClass, claim: PlannedClaim) -> tuple[tuple[str, str], ...] | None:
        """The domains that a pod keeps, for it is counted in them; None where they cannot be said of a node."""
        keys = self._keys(one)
        if not keys:
            return ()
        sayable = {ZONE_LABEL, CAPACITY_TYPE_LABEL, *self.offers[claim.pool].types.open_labels}
        found = [(key, claim.requirements.requirement(key).single_value) for key in sorted(keys)]
        pinned = tuple([(key, value) for key, value in found if value is not None and key in sayable])
        return pinned if len(pinned) == len(found) else None

    def _keys(self, one: PodClass) -> set[str]:
        """The labels, but for the hostname, over whose values a pod is counted or has others counted."""
        scope = self.setting.scope
        if scope.empty:
            return set()
        return {count.key for count in scope.about(one.ladder)} - {HOSTNAME_LABEL}

    def counted(self, pod: Pod) -> set[str]:
        """Likewise, of one that is on a new node."""
        return self._keys(self.of[pod.uid])

    def about(self, setting: Setting) -> "Granted":
        """Another question about some of the pods that are on new nodes, with the same demands; what is counted here is counted there."""
        counted = self.setting.scope.index.numbers
        demanding, of = _demanding(setting, {uid: one.ladder for uid, one in self.of.items()}, counted)
        return replace(self, setting=demanding, of=of)


def granted(prepared: Prepared, setting: Setting, result: Result) -> Granted | None:
    """The question with granted wishes as demands; None where even scheduling's answer does not keep what it looks like it granted.

    What a claim says of nodes is kept whatever became of wishes about other pods, which those that came later may have undone.
    """
    offers = {offer.pool.name: offer for offer in setting.offers}
    said: dict[str, int] = {}
    class_of = {pod.uid: one for one in setting.classes for pod in one.pods}
    number_of = {pod.uid: class_of[pod.uid] for claim in result.claims for pod in claim.pods}
    if all(len(one.ladder) == 1 for one in number_of.values()):
        return Granted(setting, offers, number_of)
    for claim in result.claims:
        rung_of: dict[PodClass, int] = {}
        for pod in claim.pods:
            one = number_of[pod.uid]
            if one not in rung_of:
                met = (n for n, demand in enumerate(one.ladder) if _meets(claim, offers[claim.pool], one, demand))
                rung_of[one] = next(met, len(one.ladder) - 1)
            said[pod.uid] = rung_of[one]
    rungs = dict(said)
    steps: dict[tuple[PodClass, int, int], tuple[Demand]] = {}
    for _ in range(_MOST_FALLBACKS):
        ladders = {
            uid: steps.setdefault((one, said[uid], n), (Demand(one.ladder[said[uid]].filter, one.ladder[n].relations),))
            for uid, n in rungs.items()
            for one in (number_of[uid],)
        }
        demanding, of = _demanding(setting, ladders)
        faults = prepared.settle(design_of(result), demanding)[0].faults
        if not faults:
            return Granted(demanding, offers, of)
        alike = {number_of[fault.pod.uid] for fault in faults if fault.pod.uid in rungs}
        more = [uid for uid, n in rungs.items() if number_of[uid] in alike and n + 1 < len(number_of[uid].ladder)]
        if not more:
            break
        for uid in more:
            rungs[uid] += 1
    return None


def _meets(claim: PlannedClaim, offer: PreparedPool, one: PodClass, demand: Demand) -> bool:
    """Whether a claim says all that a step of a pod's ladder asks of a node."""
    node_filter = one.narrowed(demand.filter)
    said = claim.requirements
    return offer.tolerated(node_filter) and any(
        said.conflict(term.requirements) is None and said.merged(term.requirements) == said
        for term in node_filter.terms
    )


def _demanding(
    setting: Setting, ladders: Mapping[str, tuple[Demand, ...]], counted: Collection[Count] = ()
) -> tuple[Setting, dict[str, PodClass]]:
    """The question in which pods have these ladders, by UID, and the classes that they are then of; others keep their own.

    Pods are not counted, and so keep no zone, for wishes that none of them has any more. `counted`: is counted all the same.
    """
    classes: list[PodClass] = []
    needs = {}
    found: dict[str, PodClass] = {}
    for one in setting.classes:
        parts: dict[tuple[Demand, ...], list[Pod]] = {}
        for pod in one.pods:
            parts.setdefault(ladders.get(pod.uid, one.ladder), []).append(pod)
        for ladder, pods in parts.items():
            part = msgspec.structs.replace(one, pods=tuple(pods), ladder=ladder)
            classes.append(part)
            needs[part] = setting.needs[one]
            found.update(dict.fromkeys([pod.uid for pod in pods if pod.uid in ladders], part))
    wished = {count for one in setting.classes for count in one.counts if not count.owners}
    of_daemons = [(*one.near, *one.relations.apart) for one in setting.company]
    given_up = wished.difference(counted, *of_daemons, *[one.counts for one in classes])
    scope = setting.scope.without(given_up) if given_up else setting.scope
    skews = skews_of(ladders_of(classes))
    return replace(setting, classes=classes, needs=needs, scope=scope, skews=skews, pending={}), found
