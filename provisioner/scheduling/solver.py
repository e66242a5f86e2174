"""The judge of what may run where: a problem in, a result out, nothing else read or changed.

Equal pods are one class; classes get places by priority, then size. A class takes machines of now first, then open
claims, then new ones; a claim stays every type on which its pods still fit, and is settled on the cheapest at the end.
What is tried once and fails is not tried again: room only shrinks, claims only narrow. So the cost is that of classes
times machines touched, not of pods.

Source: core spec 3.4-3.11, planner spec 2. Differs from Karpenter: priorities count; equal pods are placed together, on
the claim opened first rather than the one with fewest pods; limits are charged by the planned type, not the largest;
hostname spread sees the true emptiest machine.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from provisioner.apis.names import WELL_KNOWN_LABELS
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.attempt import Attempt, Setting
from provisioner.scheduling.bins import Bins, Tally
from provisioner.scheduling.catalogue import Catalogue
from provisioner.scheduling.classes import PodClass, classify, sort_key
from provisioner.scheduling.demands import Count, facts_of
from provisioner.scheduling.explaining import Explainer
from provisioner.scheduling.filters import FilterError, NodeFilter
from provisioner.scheduling.finishing import finish
from provisioner.scheduling.offers import Daemon, Offer
from provisioner.scheduling.problem import Pool, Problem
from provisioner.scheduling.reasons import Reason
from provisioner.scheduling.result import Result, Unplaced
from provisioner.scheduling.searching import Badness, Choices, Choosing, search
from provisioner.scheduling.vectors import Dimensions, Need
from provisioner.values.resources import Resources

_SPARE_CATALOGUES: Final = 4
"""Kept beside those of the problem at hand, for callers that ask about other pools in turn."""
_MOST_ATTEMPTS: Final = 6
_TURNS: Final = (False, True, False, True)
"""Those who found no place for what others did are tried before them so often, and wait for nobody; in some turns with
pods scattered."""
_FEW: Final = 12
"""So many classes may all matter to one that has no place."""
_MOST_SEARCHED: Final = 100
_MOST_WORK: Final = 400
"""Attempts of a search, and classes that are placed by them all together."""
_MOST_STATES: Final = 20_000
_catalogues: Final[dict[int, tuple[tuple[InstanceType, ...], Catalogue]]] = {}
"""By identity of the tuple, which is held so that the identity stays its own; the last used is last. What is kept is
derived from the tuple alone, so it changes no answer, only the time it takes."""
_offers: Final[dict[tuple[object, ...], tuple[object, Offer]]] = {}
"""The same for pools, by everything that an offer is made from."""


def solve(problem: Problem) -> Result:
    """Give every pod a place, or the reasons why it has none.

    The result depends on the problem's values only: not on the order of pods, pools, daemons and types. The order of
    bins is an order of preference.

    Cost: O(pods) to group, then O(classes x (bins + claims touched)), and O(claims) once at the end.
    """
    return _Solution(problem).result()


class _Solution:
    """One problem while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem: Final = problem
        well_known = WELL_KNOWN_LABELS | problem.well_known
        if problem.reservation_label:
            well_known |= {problem.reservation_label}
        named = _named_by_others(problem)
        self.classes, self.left_out = classify(problem, named)
        daemons = _daemons(problem)
        drivers = {driver for one in self.classes if one.volumes.attachments for driver, _ in one.volumes.attachments}
        wanted = {one.facts.requests for one in self.classes}.union(one.requests for one in daemons)
        dimensions = Dimensions.of(wanted, drivers)
        self.needs: Final = _needs(self.classes, dimensions)
        self.hurried: Final[set[PodClass]] = set()
        keep = len(problem.pools) + _SPARE_CATALOGUES
        limits = problem.storage.attach_limits if drivers else {}
        self.offers: Final = [
            _offer(pool, _catalogue(pool.instance_types, keep), daemons, dimensions, well_known, limits, keep)
            for pool in _in_order(problem.pools)
        ]
        self.bins: Final = Bins(problem.bins, dimensions)
        if problem.bins:
            self._captives_first()
        tallies = self._tallies(exact=bool(named))
        self.setting: Final = Setting(problem, self.classes, self.needs, self.offers, self.bins, tallies, daemons)

    def _captives_first(self) -> None:
        """Of one priority, those first that no pool takes: they have nothing but machines of now."""
        known: dict[tuple[NodeFilter, Need], bool] = {}
        for one in self.classes:
            question = one.filter, self.needs[one]
            if question not in known:
                known[question] = any(offer.takes(*question) for offer in self.offers)
        if not all(known.values()):
            self.classes.sort(key=lambda one: (one.facts.order[0], known[one.filter, self.needs[one]]))

    def _tallies(self, *, exact: bool) -> list[Tally]:
        if not any(one.pods for one in self.problem.bins):
            return [_NOBODY] * len(self.problem.bins)
        return self.bins.tallies(frozenset([pod.uid for pod in self.problem.pods]), exact=exact)

    def result(self) -> Result:
        """Place, settle, explain."""
        attempt = self._best()
        return Result(
            claims=finish(attempt.claims()),
            existing=self._existing(attempt),
            unplaced=self._unplaced(attempt),
        )

    def _attempt(self, cautious: Collection[Count], *, by_priority: bool, scattering: bool) -> Attempt:
        attempt = Attempt(self.setting, cautious)
        attempt.run(by_priority=by_priority, scattering=scattering, hurried=self.hurried)
        return attempt

    def _best(self) -> Attempt:
        """Attempts, each more careful than the one before, until one is legal as a whole.

        Hostname spread is settled last, so that it finds all machines. Where somebody is left without a place, that
        could cost a pod its place that comes before others; then each priority is finished before the next.
        """
        attempt = self._legal(by_priority=False)
        by_priority = bool(attempt.delayed) and len({one.shape.priority for one in self.classes}) > 1
        if attempt.waiting and by_priority:
            attempt = self._legal(by_priority=True)
        for scattering in _TURNS:
            urgent = attempt.tied()
            if not urgent:
                break
            waited = urgent & attempt.delayed
            self.hurried.update(waited)
            if not self._to_front(urgent) and not waited and not scattering:
                continue
            other = self._legal(by_priority=by_priority, scattering=scattering)
            attempt = min(attempt, other, key=_badness)  # of equals the first
        return self._searched(attempt, by_priority=by_priority)

    def _searched(self, attempt: Attempt, *, by_priority: bool) -> Attempt:
        """A better attempt, where somebody is left and there are few enough classes for some lots."""
        urgent = attempt.tied()
        most = min(_MOST_SEARCHED, _MOST_WORK // max(1, len(self.classes)))
        if not urgent or not most:
            return attempt
        concerned = attempt.related(urgent) if len(self.classes) > _FEW else set(self.classes)
        known = attempt.cautious

        def attempt_by(choices: Choices) -> Attempt:
            cautious = () if choices.of(1 + bool(known)) else known
            other = Choosing(self.setting, cautious, choices, concerned)
            other.run(by_priority=by_priority, scattering=False, hurried=self.hurried)
            return other

        return search(attempt_by, attempt, _badness, most)

    def _to_front(self, urgent: set[PodClass]) -> bool:
        """Try these first of their priority from now on; whether that is another order."""
        before = list(self.classes)
        self.classes.sort(key=lambda one: (one.facts.order[0], one not in urgent))
        return before != self.classes

    def _legal(self, *, by_priority: bool, scattering: bool = False) -> Attempt:
        cautious: set[Count] = set()
        for _ in range(_MOST_ATTEMPTS):
            attempt = self._attempt(cautious, by_priority=by_priority, scattering=scattering)
            broken = attempt.broken()
            if not broken or broken <= cautious:
                return attempt
            cautious = cautious | broken
        everything = {count for one in self.classes for count in one.counts}
        return self._attempt(everything, by_priority=by_priority, scattering=scattering)

    def _existing(self, attempt: Attempt) -> dict[str, tuple[Pod, ...]]:
        return {
            one.name: tuple([pod for pods, start, end in place.placed for pod in pods.pods[start:end]])
            for one, place in zip(self.problem.bins, attempt.placing.places, strict=False)
            if place.placed
        }

    def _unplaced(self, attempt: Attempt) -> tuple[Unplaced, ...]:
        found: list[tuple[PodShape, tuple[Pod, ...], tuple[Reason, ...]]] = [
            (one.shape, one.pods, (one.reason,)) for one in self.left_out
        ]
        if attempt.waiting:
            explainer = Explainer(attempt)
            for one, start in attempt.waiting.items():
                found.append((one.shape, tuple(one.pods[start:]), explainer.reasons(one)))
        found.sort(key=lambda entry: sort_key(entry[0]))
        return tuple([Unplaced(pod, reasons) for _, pods, reasons in found for pod in pods])


def _badness(attempt: Attempt) -> Badness:
    return bool(attempt.broken()), attempt.left_by_priority()


_NOBODY: Final = Tally(frozenset(), (), (), ())


def _named_by_others(problem: Problem) -> frozenset[str]:
    """Labels that differ between brothers of a class and that pods on machines of now look at by anti-affinity."""
    found: frozenset[str] = frozenset()
    for one in problem.bins:
        for pod in one.pods:
            affinity = pod.shape.affinity
            if affinity is not None and affinity.pod_anti_affinity is not None:
                try:
                    found |= facts_of(pod.shape).ties.per_pod_labels
                except FilterError:
                    continue
    return found


def _needs(classes: Iterable[PodClass], dimensions: Dimensions) -> dict[PodClass, Need]:
    """What one pod of each class takes; equal ones are one object."""
    known: dict[Resources, Need] = {}
    needs = {}
    for one in classes:
        requests = one.facts.requests
        need = known.get(requests)
        if need is None:
            need = known[requests] = dimensions.need(requests)
        needs[one] = need
    return needs


def _in_order(pools: tuple[Pool, ...]) -> list[Pool]:
    """By weight, then name, both descending. Source: core spec 3.4."""
    return sorted(sorted(pools, key=lambda pool: pool.name, reverse=True), key=lambda pool: -pool.weight)


def _daemons(problem: Problem) -> list[Daemon]:
    """Every daemon that can be judged, in an order that does not depend on the input's.

    One that cannot be read runs nowhere as far as anybody can tell, so it takes nothing.
    """
    readable = []
    for shape in sorted(problem.daemons, key=lambda shape: shape.key):
        if shape.error:
            continue
        try:
            facts = facts_of(shape)
        except FilterError:
            continue
        readable.append(Daemon(facts.filter, facts.requests, facts.ports))
    return readable


def _offer(
    pool: Pool,
    catalogue: Catalogue,
    daemons: list[Daemon],
    dimensions: Dimensions,
    well_known: frozenset[str],
    limits: Mapping[str, Mapping[str, int]],
    keep: int,
) -> Offer:
    """What a pool can make; the offers used last are kept."""
    key = (
        pool.name,
        id(catalogue),
        pool.requirements,
        pool.taints,
        None if pool.remaining is None else tuple(pool.remaining.items()),
        tuple(daemons),
        dimensions.names,
        well_known,
        tuple(sorted((name, tuple(sorted(some.items()))) for name, some in limits.items())),
    )
    entry = _offers.pop(key, None)
    if entry is None or entry[1].states > _MOST_STATES or entry[1].pool.template is not pool.template:
        entry = (catalogue, Offer(pool, catalogue, daemons, dimensions, well_known, limits))
    for oldest in list(_offers)[: max(0, len(_offers) - 2 * keep)]:
        _offers.pop(oldest, None)  # another thread may have taken it
    _offers[key] = entry
    return entry[1]


def _catalogue(instance_types: tuple[InstanceType, ...], keep: int) -> Catalogue:
    """The index of these types; of the others, the `keep` used last are kept."""
    entry = _catalogues.pop(id(instance_types), None) or (instance_types, Catalogue(instance_types))
    for oldest in list(_catalogues)[: max(0, len(_catalogues) - keep)]:
        _catalogues.pop(oldest, None)  # another thread may have taken it
    _catalogues[id(instance_types)] = entry
    return entry[1]
