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
from provisioner.scheduling.vectors import Need, Vector, most
from provisioner.values.requirement import Requirements
from provisioner.values.resources import PODS
from provisioner.values.taints import first_untolerated

_Found = tuple[int, Constraint]
"""How far a term got (more is further), and what stopped it."""


def explain(offer: Offer, node_filter: NodeFilter, need: Need) -> Constraint:
    """What keeps such a pod from a new machine of one pool; of several terms, what stops the one that got furthest."""
    taint = first_untolerated(node_filter.tolerations, offer.pool.taints)
    if taint is not None:
        return Untolerated(taint)
    if not offer.matching_rows:
        return NoInstanceTypes(len(offer.catalogue.types))
    if not node_filter.terms:
        return NoTerm()
    found = [_explain_term(offer, term, need) for term in node_filter.terms]
    return max(found, key=lambda one: one[0])[1]  # max keeps the first of equals


def _explain_term(offer: Offer, term: Term, need: Need) -> _Found:
    state = offer.narrowed(offer.base, term)
    if state is not None and state.rows:
        return _explain_size(offer, state, need)
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
    # what is left: types that match, but are overflowed by their daemons alone
    return 4, _too_large(offer, offer.frontier(rows), need)


def _no_type(offer: Offer, key: str, merged: Requirements, *, alone: bool) -> Constraint:
    if merged[key].present and not offer.catalogue.knows(key) and not offer.defines(key):
        return LabelUndefined(key)
    return NoTypeMatches(merged[key], alone=alone)


def _count_matching(offer: Offer, merged: Requirements) -> int:
    rows = offer.catalogue.everything
    for one in merged.values():
        rows &= offer.matching(one)
    return rows.bit_count()


def _explain_size(offer: Offer, state: State, need: Need) -> _Found:
    if not any(most(point, need, 1) for point in state.points):
        return 4, _too_large(offer, state.points, need)
    fitting = offer.fitting(state.rows, offer.dimensions.filled(need))
    if not offer.enough_values(state, fitting):
        return 5, _min_values(offer, state, fitting)
    ledger = offer.ledger
    if ledger is None:
        return 7, Unexplained()
    allowed = fitting & ledger.allowed({})
    if allowed and not offer.enough_values(state, allowed):
        return 6, _min_values(offer, state, allowed)
    return 6, _limits(ledger, list(members(fitting)))


def _too_large(offer: Offer, points: Sequence[Vector], need: Need) -> Constraint:
    names = offer.dimensions.names
    for d, wanted in need:
        largest = max(point[d] for point in points)
        if wanted > largest:
            return TooLarge(names[d], wanted, largest)
    return TooLargeTogether(tuple(names[d] for d, _ in need if names[d] != PODS))


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
