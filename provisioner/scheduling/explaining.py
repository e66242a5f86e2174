"""Why a class of pods got no place: the constraint that binds in each pool, found once nothing is placed any more."""

from collections.abc import Sequence

from provisioner.scheduling.bits import mask_of, members
from provisioner.scheduling.filters import NodeFilter, Term
from provisioner.scheduling.limits import Ledger
from provisioner.scheduling.offers import Offer, State
from provisioner.scheduling.reasons import (
    Constraint,
    Contradictory,
    Incompatible,
    LabelUndefined,
    LimitReached,
    LimitsReached,
    MinValuesUnmet,
    NodesOnly,
    NoInstanceTypes,
    NoOffering,
    NoTerm,
    NoTypeMatches,
    TooLarge,
    TooLargeTogether,
    Unexplained,
    Untolerated,
)
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import first_untolerated

_Found = tuple[int, Constraint]
"""How far a term got (more is further), and what stopped it."""


def explain(offer: Offer, node_filter: NodeFilter, requests: Resources) -> Constraint:
    """What keeps such a pod from a new machine of one pool; of several terms, what stops the one that got furthest."""
    taint = first_untolerated(node_filter.tolerations, offer.pool.taints)
    if taint is not None:
        return Untolerated(taint)
    if not offer.matching_rows:
        return NoInstanceTypes(len(offer.catalogue.types))
    if not node_filter.terms:
        return NoTerm()
    found = [_explain_term(offer, term, requests) for term in node_filter.terms]
    return max(found, key=lambda one: one[0])[1]  # max keeps the first of equals


def _explain_term(offer: Offer, term: Term, requests: Resources) -> _Found:
    if not term.new_machines and term.names is not None:
        return 0, NodesOnly(term.names)
    for key, requirement in term.requirements.items():
        if requirement.is_contradiction:
            return 0, Contradictory(key)
    conflict = offer.template.incompatibility(term.requirements, offer.well_known)
    if conflict is not None:
        return 1, Incompatible(conflict)
    merged = offer.template.merged(term.requirements)
    rows = offer.catalogue.everything
    for key in merged:
        left = rows & offer.matching(merged[key])
        if not left:
            return 2, _no_type(offer, key, merged, alone=not offer.matching(merged[key]))
        rows = left
    rows &= offer.catalogue.available(merged)
    if not rows:
        return 3, NoOffering(_count_matching(offer, merged))
    state = offer.narrowed(offer.base, term)
    if state is None or not state.rows:  # daemons alone overflow every matching type
        return 4, _too_large(offer, rows, offer.dimensions.vector(requests))
    return _explain_size(offer, state, requests)


def _no_type(offer: Offer, key: str, merged: Requirements, *, alone: bool) -> Constraint:
    if merged[key].present and not offer.catalogue.knows(key) and not offer.defines(key):
        return LabelUndefined(key)
    return NoTypeMatches(merged[key], alone=alone)


def _count_matching(offer: Offer, merged: Requirements) -> int:
    rows = offer.catalogue.everything
    for one in merged.values():
        rows &= offer.matching(one)
    return rows.bit_count()


def _explain_size(offer: Offer, state: State, requests: Resources) -> _Found:
    wanted = offer.dimensions.vector(requests)
    fitting = offer.fitting(state.rows, wanted)
    if not fitting:
        return 4, _too_large(offer, state.rows, wanted)
    if not offer.enough_values(state, fitting):
        return 5, _min_values(offer, state, fitting)
    ledger = offer.ledger
    if ledger is None:
        return 7, Unexplained()
    allowed = fitting & ledger.allowed({})
    if allowed and not offer.enough_values(state, allowed):
        return 6, _min_values(offer, state, allowed)
    return 6, _limits(ledger, list(members(fitting)))


def _too_large(offer: Offer, rows: int, wanted: Sequence[int]) -> Constraint:
    names = offer.dimensions.names
    short = []
    for d, amount in enumerate(wanted):
        if amount > 0:
            short.append((d, max(offer.room[row][d] for row in members(rows))))
    for d, largest in short:
        if wanted[d] > largest:
            return TooLarge(names[d], wanted[d], largest)
    return TooLargeTogether(tuple(names[d] for d, _ in short if names[d] != "pods"))


def _min_values(offer: Offer, state: State, rows: int) -> Constraint:
    for key, wanted in offer.min_values.items():
        found = offer.catalogue.distinct_values(state.requirements[key], rows)
        if found < wanted:
            return MinValuesUnmet(key, wanted, found)
    return Unexplained()


def _limits(ledger: Ledger, fitting: list[int]) -> Constraint:
    for name in sorted(ledger.remaining):
        smallest = ledger.smallest(name, fitting)
        if smallest > ledger.remaining[name]:
            return LimitReached(name, ledger.remaining[name], smallest)
    if ledger.allowed({}) & mask_of(fitting):
        return Unexplained()
    return LimitsReached(tuple(sorted(ledger.remaining)))
