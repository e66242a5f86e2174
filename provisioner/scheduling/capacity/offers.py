"""What one NodePool can make: its instance types after daemons, and how pods narrow the choice."""

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.scheduling.capacity.catalogue import PricedOffering
from provisioner.scheduling.capacity.pool_limits import Stairs, stairs_of
from provisioner.scheduling.capacity.prepared_types import Daemon, PreparedTypes
from provisioner.scheduling.constraints.filters import FilterTerm, NodeFilter
from provisioner.scheduling.constraints.vectors import Need, Thresholds, Vector, most
from provisioner.scheduling.problem import SchedulingPool
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.taints import first_untolerated

_MOST_PINS: Final = 10_000


@dataclass(eq=False, slots=True)
class OfferState:
    """How far the pods on a claim have narrowed it; equal states of one pool are one object.

    Attributes:
        requirements: the template's and every pod's together.
        excluded: types that are struck for another reason (ports that their daemons take).
        rows: the types that can meet them with an offering that can be had; no resources looked at.
        points: the frontier of what these types have for pods.
        narrower: the state after one more term, None where they contradict; filled as asked.
        domains: by label, the values that its node can have; filled as asked.
        level: by label, whether types and prices are the same for each of these; filled as asked.
        ranked: its types in order of price; filled when asked.
        said: labels that no type or offering knows, and on which it has settled, with their values.
        choices: what follows from a set of ranks; filled as asked.
    """

    requirements: Requirements
    excluded: int
    rows: int
    points: tuple[Vector, ...]
    said: tuple[tuple[str, str], ...] = ()
    narrower: "dict[FilterTerm, OfferState | None]" = field(default_factory=dict)
    domains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    level: dict[str, bool] = field(default_factory=dict)
    ranked: "Ranked | None" = None
    choices: dict[object, Any] = field(default_factory=dict)


class Ranked:
    """The types of one state in order of price, so that the cheapest that fits is found by one look-up.

    Attributes:
        priced: the types, cheapest first.
        thresholds: over their rooms, in the same order.
        stairs: how far limits are.
        parts: what follows from a set of ranks alone; filled as asked.
    """

    __slots__ = ("parts", "priced", "stairs", "thresholds")

    def __init__(self, priced: Sequence[PricedOffering], rooms: Mapping[int, Vector]) -> None:
        self.priced: Final = priced
        self.thresholds: Final = Thresholds([rooms[one.row] for one in priced])
        self.stairs: Final[dict[tuple[str, ...], Stairs | None]] = {}
        self.parts: Final[dict[int, Any]] = {}


class PreparedPool:
    """One NodePool in one problem.

    Attributes:
        types: its instance types; `template`, `room`, `catalogue`, `dimensions` and `well_known` are as there.
        base: the state of a claim without pods.
        min_values: by label, how many values the types of a claim must offer.
    """

    def __init__(self, pool: SchedulingPool, types: PreparedTypes) -> None:
        self.pool = pool
        self.types: Final = types
        self.template: Final = types.template
        self.room: Final = types.room
        self.catalogue: Final = types.catalogue
        self.dimensions: Final = types.dimensions
        self.well_known: Final = types.well_known
        self._states: Final[dict[tuple[Requirements, int], OfferState]] = {}
        self._rankings: Final[dict[tuple[Requirements, int], Ranked]] = {}
        self._even: Final[dict[str, tuple[str, ...] | None]] = {}
        self.min_values = {key: one.min_values for key, one in pool.requirements.items() if one.min_values is not None}
        self.base: Final = self._state(self.template, 0)

    def with_pool(self, pool: SchedulingPool) -> "PreparedPool":
        """The same for a pool that differs in limits, weight or template only; what is remembered is shared."""
        if pool is self.pool:
            return self
        found = copy.copy(self)
        found.pool = pool
        return found

    def without_min_values(self) -> "PreparedPool":
        """The same without minValues; to judge claims of one type by."""
        if not self.min_values:
            return self
        found = copy.copy(self)
        found.min_values = {}
        return found

    @property
    def states(self) -> int:
        """How many states are remembered."""
        return len(self._states)

    @property
    def terms(self) -> int:
        """How many terms of pods are remembered, with what a new node becomes by them: none, for whoever asks for what no node has."""
        return len(self.base.narrower)

    def without(self, state: OfferState, rows: int) -> OfferState | None:
        """`state` with some types struck; None where none is left."""
        if not state.rows & rows:
            return state
        narrower = self._state(state.requirements, state.excluded | rows)
        return narrower if narrower.rows else None

    def domains(self, state: OfferState, key: str) -> tuple[str, ...]:
        """The values of a label between which a node of this state is still open; none where it has no such label."""
        found = state.domains.get(key)
        if found is None:
            found = state.domains[key] = self._domains(state, key)
        return found

    def _domains(self, state: OfferState, key: str) -> tuple[str, ...]:
        values = self.catalogue.values(key, state.rows, state.requirements)
        if values is None or not values:
            asked = state.requirements.get(key)
            if asked is None or not asked.present:
                return ()
            values = tuple(sorted(asked.values)) if not asked.complement else (asked.any_value(),)
        if len(values) == 1:
            return values
        return tuple(value for value in values if self.narrowed(state, pin(key, value)) is not None)

    def even(self, key: str) -> tuple[str, ...] | None:
        """The values that a label can have, where it makes no difference to types and prices which one; else None."""
        if key not in self._even:
            values = self.domains(self.base, key)
            rows = {state.rows for one in values if (state := self.narrowed(self.base, pin(key, one))) is not None}
            uneven = len(rows) > 1 or bool(self.base.rows & self.catalogue.uneven(key))
            self._even[key] = None if uneven else values
        return self._even[key]

    def level(self, state: OfferState, key: str) -> bool:
        """Whether a node of this state has the same types and prices whichever of its values a label has."""
        found = state.level.get(key)
        if found is None:
            narrower = [self.narrowed(state, pin(key, value)) for value in self.domains(state, key)]
            offered = {
                tuple([(one.row, one.offering.price) for one in self.ranked(some).priced])
                for some in narrower
                if some is not None
            }
            found = state.level[key] = len(offered) <= 1
        return found

    def ranked(self, state: OfferState) -> Ranked:
        """The types of a state in order of price."""
        if state.ranked is None:
            key = self.catalogue.asked(state.requirements), state.rows
            ranked = self._rankings.get(key)
            if ranked is None:
                priced = [one for one in self.catalogue.priced(state.requirements) if state.rows >> one.row & 1]
                ranked = self._rankings.setdefault(key, Ranked(priced, self.room))
            state.ranked = ranked
        return state.ranked

    def price(self, state: OfferState, used: Sequence[int]) -> float:
        """The least price of a node of this state on which `used` fits, in USD per hour; infinite where there is none."""
        ranked = self.ranked(state)
        holding = ranked.thresholds.exceeding(used)
        return ranked.priced[(holding & -holding).bit_length() - 1].offering.price if holding else float("inf")

    def stairs(self, state: OfferState, names: tuple[str, ...]) -> Stairs | None:
        """How a claim's charge grows with what its pods take; see `pool_limits.Slack`."""
        ranked = self.ranked(state)
        if names not in ranked.stairs:
            rows = [one.row for one in ranked.priced]
            ranked.stairs[names] = (
                None
                if self.min_values
                else stairs_of(
                    names,
                    [self.room[row] for row in rows],
                    [{name: self.catalogue.amount(row, name) for name in names} for row in rows],
                )
            )
        return ranked.stairs[names]

    def tolerated(self, node_filter: NodeFilter) -> bool:
        """Whether pods with this filter tolerate the pool's taints."""
        return first_untolerated(node_filter.tolerations, self.pool.taints, node_filter.effects) is None

    def admits(self, node_filter: NodeFilter) -> bool:
        """Whether a new node admits pods with this filter."""
        return self.tolerated(node_filter) and any(True for _ in self.starts(node_filter))

    def hosts(self, daemon: Daemon, state: OfferState) -> bool:
        """Whether a daemon runs on a claim of this state, whatever it becomes."""
        return self.tolerated(daemon.filter) and any(
            self.narrowed(state, term) is state for term in daemon.filter.terms if term.new_nodes
        )

    def takes(self, node_filter: NodeFilter, need: Need) -> bool:
        """Whether such a pod fits on a new node that admits it."""
        return self.tolerated(node_filter) and any(
            most(point, need, 1) for state in self.starts(node_filter) for point in state.points
        )

    def starts(self, node_filter: NodeFilter) -> Iterator[OfferState]:
        """What a new node may be with a pod of this filter, by its terms; taints aside."""
        for term in node_filter.terms:
            state = self.narrowed(self.base, term)
            if state is not None:
                yield state

    def narrowed(self, state: OfferState, term: FilterTerm) -> OfferState | None:
        """`state` once a pod with `term` is on the claim; None where no type is left."""
        if not term.requirements and term.names is None:
            return state
        try:
            return state.narrower[term]
        except KeyError:
            found = state.narrower[term] = self._narrow(state, term)
            return found

    def _narrow(self, state: OfferState, term: FilterTerm) -> OfferState | None:
        if not term.new_nodes or self.template.incompatibility(term.requirements, self.well_known) is not None:
            return None
        if state.requirements.conflict(term.requirements) is not None:
            return None
        merged = state.requirements.merged(term.requirements)
        narrower = state if merged == state.requirements else self._state(merged, state.excluded)
        return narrower if narrower.rows else None

    def planned(self, state: OfferState, rows: int, used: Sequence[int]) -> list[int]:
        """What a claim is charged for: the cheapest type of `rows` on which `used` fits, and with minValues those that
        serve them. At least one must fit.
        """
        every = self.catalogue.priced(state.requirements)
        priced = (one for one in every if rows >> one.row & 1 and self._fits(one.row, used))
        if not self.min_values:
            return [next(priced).row]
        return [one.row for one in self.serving(state, priced)]

    def _fits(self, row: int, used: Sequence[int]) -> bool:
        for have, want in zip(self.room[row], used, strict=True):  # noqa: SIM110 - all() is twice as slow here
            if want > have:
                return False
        return True

    def enough_values(self, state: OfferState, rows: int, lowered: Mapping[str, int] | None = None) -> bool:
        """Whether `rows` offer as many distinct allowed values as the pool's minValues want, or what these are lowered to."""
        return all(
            self.catalogue.distinct_values(state.requirements[key], rows) >= wanted
            for key, wanted in (self.min_values if lowered is None else lowered).items()
        )

    def serving(self, state: OfferState, priced: Iterable[PricedOffering]) -> list[PricedOffering]:
        """A short choice of `priced`, in its order, that serves the minValues: the cheapest one, and for each value that
        is still wanted the cheapest type that offers it.
        """
        values_seen: dict[str, set[str]] = {key: set() for key in self.min_values}
        chosen = []
        for number, one in enumerate(priced):
            serves = number == 0
            for key, seen in values_seen.items():
                if len(seen) < self.min_values[key]:
                    values = self.catalogue.values_of(one.row, state.requirements[key])
                    serves = serves or not values <= seen
                    seen.update(values)
            if serves:
                chosen.append(one)
            elif all(len(seen) >= self.min_values[key] for key, seen in values_seen.items()):
                break
        return chosen

    def _state(self, requirements: Requirements, excluded: int) -> OfferState:
        state = self._states.get((requirements, excluded))
        if state is None:
            types = self.types
            rows = types.rows(requirements) & types.usable & ~excluded
            state = OfferState(requirements, excluded, rows, types.frontier(rows), types.said(requirements))
            state = self._states.setdefault((requirements, excluded), state)  # another thread may have been quicker
        return state


@functools.lru_cache(maxsize=_MOST_PINS)
def pin(key: str, value: str) -> FilterTerm:
    """The term that one label has one value."""
    return FilterTerm(Requirements.of((Requirement.of(key, Operator.IN, (value,)),)))
