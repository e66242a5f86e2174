"""Why a class of pods got no place: the constraint that binds in each pool, found once nothing is placed any more."""

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Final

from provisioner.apis.names import HOSTNAME_LABEL, NODEPOOL_LABEL
from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.places import PoolAccount
from provisioner.scheduling.capacity.pool_limits import LimitLedger
from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.ports import Ports
from provisioner.scheduling.constraints.vectors import Need, Vector, most
from provisioner.scheduling.reasons import (
    BinsRefuse,
    Constraint,
    Contradictory,
    DaemonsFill,
    DaemonsKeptAway,
    Incompatible,
    LabelUndefined,
    LimitReached,
    LimitsReached,
    MinValuesUnmet,
    NodesOnly,
    NoInstanceTypes,
    NoMoreClaims,
    NoOffering,
    NoPools,
    NotApart,
    NotBesideDaemon,
    NoTerm,
    NothingLeft,
    NotTogether,
    NoTypeMatches,
    NoVolumeLeft,
    PoolRefuses,
    PoolsRefuse,
    PortsTaken,
    Reason,
    TooLarge,
    TooLargeTogether,
    Unexplained,
    Unspreadable,
    Untolerated,
    VolumeInUse,
    VolumesElsewhere,
    WouldUnsettle,
)
from provisioner.scheduling.topology.counters import DomainCounter
from provisioner.scheduling.topology.relations import AxisPlan, PodRun
from provisioner.values.message import Said
from provisioner.values.requirement import Requirements
from provisioner.values.resources import PODS
from provisioner.values.taints import first_untolerated, tolerates

_Found = tuple[int, Constraint]
"""How far a term got (more is further), and what stopped it."""


def explain(account: PoolAccount, node_filter: NodeFilter, need: Need, ports: Ports = ()) -> Constraint:
    """What keeps such a pod from a new node of one pool; of several terms, what stops the one that got furthest."""
    offer = account.offer
    taint = first_untolerated(node_filter.tolerations, offer.pool.taints, node_filter.effects)
    if taint is not None:
        return Untolerated(taint)
    if not offer.types.matching_rows:
        return _no_types(account)
    if not node_filter.terms:
        return NoTerm()
    found = [_explain_term(account, term, need, ports) for term in node_filter.terms]
    return max(found, key=lambda one: one[0])[1]  # max keeps the first of equals


def _strangeness(account: PoolAccount, node_filter: NodeFilter, constraint: Constraint) -> int:
    """In how many taints and labels (of the term that fits best) a pool is not what the pod asks for; 0 where something else binds."""
    if not isinstance(constraint, Untolerated | Incompatible):
        return 0
    offer = account.offer
    taints = sum(
        1
        for one in offer.pool.taints
        if one.effect in node_filter.effects and not tolerates(node_filter.tolerations, one)
    )
    labels = [offer.template.conflicts(term.requirements, offer.well_known) for term in node_filter.terms]
    return taints + min(labels, default=0)


def _explain_term(account: PoolAccount, term: FilterTerm, need: Need, ports: Ports) -> _Found:
    offer = account.offer
    state = offer.narrowed(offer.base, term)
    if state is not None and ports:
        state = offer.without(state, offer.types.clashing(ports))
        if state is None:
            return 4, PortsTaken(tuple(sorted({number for number, _, _ in ports})))
    if state is not None and state.rows:
        return _explain_size(account, state, need)
    for names in (term.names, term.requirements.get(HOSTNAME_LABEL)):
        if names is not None and names.present and not names.complement:
            return 0, NodesOnly(names)
    for key, requirement in term.requirements.items():
        if requirement.is_contradiction:
            return 0, Contradictory(key)
    conflict = offer.template.incompatibility(term.requirements, offer.well_known)
    if conflict is not None:
        return 1, Incompatible(conflict)
    merged = offer.template.merged(term.requirements)
    unmet, matching = _first_unmet(offer, merged)
    if used_up := offer.catalogue.used_up(merged, account.reservation_label):
        return 3, NoOffering(matching.bit_count(), used_up)
    if unmet is not None:
        return 2, _no_type(offer, unmet, merged, alone=not offer.types.matching(merged[unmet]))
    rows = matching & offer.catalogue.available(merged)
    if not rows:
        return 3, NoOffering(matching.bit_count())
    if not rows & ~offer.catalogue.overdrawn:
        return 4, NothingLeft(_overdrawn(offer, rows))
    # what is left: types that match, but are overflowed by their daemons alone
    return 4, DaemonsFill(rows.bit_count())


def _no_types(account: PoolAccount) -> Constraint:
    offer = account.offer
    offered = len(offer.catalogue.types)
    if offer.pool.types_problem:
        return NoInstanceTypes(offered, problem=offer.pool.types_problem)
    if used_up := offer.catalogue.used_up(offer.template, account.reservation_label):
        return NoInstanceTypes(offered, used_up=used_up)
    key, _ = _first_unmet(offer, offer.template)
    if key is None:
        return NoInstanceTypes(offered)
    requirement = offer.template[key]
    return NoInstanceTypes(offered, requirement, alone=not offer.types.matching(requirement))


def _first_unmet(offer: PreparedPool, merged: Requirements) -> tuple[str | None, int]:
    """The first key after which no type is left, or None and the types that are."""
    rows = offer.catalogue.everything
    for key in merged:
        left = rows & offer.types.matching(merged[key])
        if not left:
            return key, 0
        rows = left
    return None, rows


def _no_type(offer: PreparedPool, key: str, merged: Requirements, *, alone: bool) -> Constraint:
    if merged[key].present and not offer.catalogue.knows(key) and not offer.types.defines(key):
        return LabelUndefined(key)
    return NoTypeMatches(merged[key], alone=alone)


def _overdrawn(offer: PreparedPool, rows: int) -> tuple[str, ...]:
    """The resources of which one of the types or another has less than its overhead takes."""
    rests = [offer.catalogue.types[row].allocatable for row in members(rows)]
    return tuple(sorted({name for rest in rests for name, amount in rest.items() if amount < 0}))


def _explain_size(account: PoolAccount, state: OfferState, need: Need) -> _Found:
    offer = account.offer
    if not any(most(point, need, 1) for point in state.points):
        return 4, _too_large(offer, state.points, need)
    fitting = offer.types.fitting(state.rows, offer.dimensions.filled(need))
    if not offer.enough_values(state, fitting):
        return 5, _min_values(offer, state, fitting)
    if used_up := _held_by_others(account, state):
        return 6, NoOffering(fitting.bit_count(), used_up)
    ledger = account.ledger
    if ledger is None:
        return 7, Unexplained()
    allowed = fitting & ledger.allowed({})
    if allowed and not offer.enough_values(state, allowed):
        return 6, _min_values(offer, state, allowed)
    return 6, _limits(ledger, list(members(fitting)))


def _held_by_others(account: PoolAccount, state: OfferState) -> tuple[str, ...]:
    """The reservations that alone would do, where claims of this result hold all that was left of them."""
    reservations = account.reservations
    if reservations is None or reservations.bought(account.offer, state) is not None:
        return ()
    every = [one for one, _ in reservations.options(account.offer, state).every]
    return () if any(reservations.left[one] > 0 for one in every) else tuple(sorted(every))


def _too_large(offer: PreparedPool, points: Sequence[Vector], need: Need) -> Constraint:
    names = offer.dimensions.names
    for d, wanted in need:
        largest = max(point[d] for point in points)
        if wanted > largest:
            return TooLarge(names[d], wanted, largest)
    return TooLargeTogether(tuple(names[d] for d, _ in need if names[d] != PODS))


def _min_values(offer: PreparedPool, state: OfferState, rows: int) -> Constraint:
    for key, wanted in offer.min_values.items():
        found = offer.catalogue.distinct_values(state.requirements[key], rows)
        if found < wanted:
            return MinValuesUnmet(key, wanted, found)
    return Unexplained()


def _limits(ledger: LimitLedger, fitting: list[int]) -> Constraint:
    for name in sorted(ledger.remaining):
        smallest = ledger.smallest(name, fitting)
        if smallest > ledger.remaining[name]:
            return LimitReached(name, ledger.remaining[name], smallest)
    if ledger.allowed({}) & mask_of(fitting):
        return Unexplained()
    return LimitsReached(tuple(sorted(ledger.remaining)))


_FEW_POOLS: Final = 8
"""So many pools have a reason each."""


def _kind(account: PoolAccount) -> object:
    """Equal for pools that refuse a pod for equal reasons, unless it asks for one of them by name."""
    offer = account.offer
    if account.exact or account.ledger is not None or offer.min_values:
        return id(account)
    requirements = tuple([one for key, one in offer.template.items() if key != NODEPOOL_LABEL])
    return id(offer.catalogue), offer.pool.taints, requirements


def _affinity_not_met(keys: str) -> str:
    """After a number of existing nodes, in kube-scheduler's words; `keys` are the topology keys."""
    return Said(f"didn't match pod affinity rules ({keys})")


def _not_apart_from_pods(keys: str) -> str:
    """Likewise: the pod's own anti-affinity."""
    return Said(f"didn't match pod anti-affinity rules ({keys})")


def _kept_apart_by_pods(keys: str) -> str:
    """Likewise: the anti-affinity of other pods."""
    return Said(f"didn't satisfy existing pods' anti-affinity rules ({keys})")


def _topology_spread_not_met(keys: str) -> str:
    return Said(f"didn't match pod topology spread constraints ({keys})")


class Explainer:
    """Reasons of one attempt; questions that are alike are answered once."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt: Final = attempt
        self._table: Final = attempt.table
        self._known: Final[dict[object, tuple[Reason, ...]]] = {}
        self._groups: Final[dict[bool, list[list[PoolAccount]]]] = {}
        self._names: Final[dict[int, tuple[str, ...]]] = {}
        bins = self._table.setting.bins
        if bins.dimensions.drivers:
            for number in members(bins.everything):  # what is attached is known of places that were looked at
                self._table.place_at(number)
        self._left: Final = bins.thresholds.changed(
            {number: place.head for number, place in self._table.known() if place.head is not None}
        )

    def reasons(self, one: PodClass) -> tuple[Reason, ...]:
        """Every constraint that keeps one more pod of a class out: of existing nodes, then of each pool."""
        for claim in one.volumes.exclusive:
            if claim in self._attempt.plans.volumes.in_use:
                return (VolumeInUse(claim),)
        if wanting := self._attempt.plans.volumes.missing(one):
            return (NoVolumeLeft(wanting),)
        run = self._attempt.plans.run_for(one, one.ladder[-1], 0)
        question: object = (run.question, run.ports, id(run.plan), run.volumes, one.owner)
        found = self._known.get(question)
        if found is None:
            found = self._known[question] = self._reasons(one, run)
        return found

    def _reasons(self, one: PodClass, run: PodRun) -> tuple[Reason, ...]:
        reasons: list[Reason] = []
        plain = run.plan.plain and not run.ports and run.crowd is None
        topology = () if plain else tuple(self._ruled_out(run))
        need = self._table.first_need(run)
        refusal: BinsRefuse | None = self._table.setting.bins.refusal(run.filter, need, self._left, topology)
        if refusal is not None:
            reasons.append(refusal)
        if not self._table.accounts:
            reasons.append(NoPools())
        of_pools: list[tuple[int, PoolRefuses | PoolsRefuse]] = []
        for accounts in self._alike(run.filter):
            account = accounts[0]
            constraint = explain(account, run.filter, need, run.ports)
            if len(accounts) > 1 and not isinstance(constraint, Unexplained):
                found: list[PoolRefuses | PoolsRefuse] = [PoolsRefuse(self._names[id(accounts)], constraint)]
            else:
                found = [*self._of_pools(one, run, accounts, need)]
            of_pools += [(_strangeness(account, run.filter, refusal.constraint), refusal) for refusal in found]
        # those that the pod was least meant for come last: an event is cut off
        return (*reasons, *(refusal for _, refusal in sorted(of_pools, key=operator.itemgetter(0))))

    def _alike(self, node_filter: NodeFilter) -> list[list[PoolAccount]]:
        """The pools in their order; those that follow each other and differ in nothing but their names are one."""
        own = any(NODEPOOL_LABEL in term.requirements for term in node_filter.terms)
        found = self._groups.get(own)
        if found is None:
            accounts = self._table.accounts
            groups = [[one] for one in accounts]
            if not own and len(accounts) > _FEW_POOLS:
                groups = [list(some) for _, some in itertools.groupby(accounts, _kind)]
                groups = [
                    part for some in groups for part in ([some] if len(some) > _FEW_POOLS else [[one] for one in some])
                ]
            for some in groups:
                if len(some) > 1:
                    self._names[id(some)] = tuple([account.offer.pool.name for account in some])
            found = self._groups[own] = groups
        return found

    def _of_pools(self, one: PodClass, run: PodRun, accounts: Sequence[PoolAccount], need: Need) -> list[PoolRefuses]:
        reasons: list[PoolRefuses] = []
        for account in accounts:
            constraint = explain(account, run.filter, need, run.ports)
            own = one.ladder[-1].filter
            if (
                own != run.filter
                and not isinstance(constraint, Unexplained)
                and isinstance(explain(account, own, need, run.ports), Unexplained)
            ):
                constraint = VolumesElsewhere(constraint)
            if isinstance(constraint, Unexplained):
                most_new = self._table.setting.terms.max_new
                full = most_new is not None and len(self._table.places) - self._table.now >= most_new
                constraint = NoMoreClaims(most_new or 0) if full else self._relation(account, run)
            reasons.append(PoolRefuses(account.offer.pool.name, constraint))
        return reasons

    def _relation(self, account: PoolAccount, run: PodRun) -> Constraint:
        """Which tie to other pods rules out every domain that the pool can serve."""
        plan, filler = run.plan, self._attempt.filler
        daemon_set = filler.keeps_away(run, account)
        if daemon_set:
            return NotBesideDaemon(daemon_set)
        for host in plan.together:
            if host.anywhere or not plan.bootstraps:
                return NotTogether(host.count.key, ())
        for ap in plan.axes:
            axis = ap.axis
            served = {
                value for state in account.offer.starts(run.filter) for value in account.offer.domains(state, axis.key)
            }
            if ap.strict and not served:
                return LabelUndefined(axis.key)
            domains = sorted(axis.index[value] for value in served if value in axis.index)
            found = self._on_axis(run, ap, domains, bootstraps=plan.bootstraps and not plan.anywhere)
            if found is not None:
                return found
            for domain in domains:  # a node's domain is settled with the pod, and then fewer types may be left
                pinned = run.filter.narrowed((pin(axis.key, axis.values[domain]),))
                constraint = explain(account, pinned, self._table.first_need(run), run.ports)
                if not isinstance(constraint, Unexplained):
                    return constraint
        for host, skew, _, _ in plan.spreads:
            return Unspreadable(host.count.key, skew, ())
        key = filler.unsettled(account, run)
        if key is not None:
            return WouldUnsettle(key)
        return DaemonsKeptAway() if filler.keeps_daemons_away(run, account) else Unexplained()

    def _on_axis(self, run: PodRun, ap: AxisPlan, served: list[int], *, bootstraps: bool) -> Constraint | None:
        axis = ap.axis

        def named(domains: Sequence[int]) -> tuple[str, ...]:
            return tuple(axis.values[domain] for domain in domains)

        def holders(counter: DomainCounter) -> list[int]:
            return [domain for domain, pods in enumerate(counter.counts) if pods]

        for counter in ap.together:
            if not bootstraps and not any(counter.counts[domain] for domain in served):
                return NotTogether(axis.key, named(holders(counter)))
        for counter in ap.apart:
            if served and all(counter.counts[domain] for domain in served):
                return NotApart(axis.key)
        for counter in ap.blocked:
            if served and all(counter.counts[domain] for domain in served):
                return NotApart(axis.key, theirs=True)
        for counter, skew, own, least in ap.spreads:
            top = self._attempt.candidates.least(run, counter, least) + skew - (1 if own else 0)
            legal = [domain for domain, pods in enumerate(counter.counts) if pods <= top]
            if not set(legal) & set(served):
                return Unspreadable(axis.key, skew, named(legal))
        for _, skew, _, _ in ap.spreads:
            return Unspreadable(axis.key, skew, ())
        if ap.together:
            return NotTogether(axis.key, named(holders(ap.together[0])))
        if ap.apart:
            return NotApart(axis.key)
        if any(any(counter.counts) for counter in ap.blocked):
            return NotApart(axis.key, theirs=True)
        return None

    def _ruled_out(self, run: PodRun) -> list[tuple[str, int]]:
        """Existing nodes that admit the pod and are ruled out by its ties to other pods or by ports, in words."""
        table, plan = self._table, run.plan
        admitting = table.setting.bins.admitting(run.filter)
        found = []

        def add(words: str, ruled_out: int) -> None:
            count = (admitting & ruled_out).bit_count()
            if count:
                found.append((words, count))

        add(Said("didn't have free ports for the requested pod ports"), table.ports.clashing(run.ports))
        add(
            Said("already had the maximum number of pods of this owner"),
            run.crowd.full if run.crowd else 0,
        )
        away: list[tuple[str, int]] = [(one.count.key, ~one.with_at_least(1)) for one in plan.together]
        apart = [(one.count.key, one.with_at_least(1)) for one in plan.apart]
        blocked = [(one.count.key, one.with_at_least(1)) for one in plan.blocked]
        spread = []
        for host, skew, own, _ in plan.spreads:
            floor = host.emptiest(host.eligible & table.usable)
            spread.append((host.count.key, host.with_at_least(floor + skew + (0 if own else 1))))
        begins = plan.bootstraps and not plan.anywhere  # the first of its kind may go to any domain
        for ap in plan.axes:
            could, key = ap.axis.could, ap.axis.key
            apart += [(key, _domains(could, [pods > 0 for pods in one.counts])) for one in ap.apart]
            blocked += [(key, _domains(could, [pods > 0 for pods in one.counts])) for one in ap.blocked]
            away += [(key, ~_domains(could, [begins or pods > 0 for pods in one.counts])) for one in ap.together]
            for counter, skew, own, least in ap.spreads:
                top = self._attempt.candidates.least(run, counter, least) + skew - (1 if own else 0)
                spread.append((key, ~_domains(could, [pods <= top for pods in counter.counts])))
        for words, some in (
            (_affinity_not_met, away),
            (_not_apart_from_pods, apart),
            (_kept_apart_by_pods, blocked),
            (_topology_spread_not_met, spread),
        ):
            keys = ", ".join(sorted({key for key, _ in some}))
            add(words(keys), functools.reduce(operator.or_, [places for _, places in some], 0))
        return found


def _domains(could: Sequence[int], chosen: Sequence[bool]) -> int:
    places = 0
    for mask, wanted in zip(could, chosen, strict=True):
        if wanted:
            places |= mask
    return places
