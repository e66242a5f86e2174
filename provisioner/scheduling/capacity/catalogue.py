"""An index over the instance types of one provider answer: which types match a requirement, and at what price.

A set of types is one integer, bit i for the i-th type in order of name. Each question is answered once: an answer
depends on nothing but the types, so it may be kept as long as they are.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from provisioner.apis.names import (
    CAPACITY_ON_DEMAND,
    CAPACITY_RESERVED,
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODES,
    ZONE_LABEL,
)
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.constraints.bitsets import mask_of
from provisioner.values.requirement import Operator, Requirement, Requirements

_Question = TypeVar("_Question", bound=Hashable)
_Answer = TypeVar("_Answer")

Reservation = str
"""Names one reservation: what its label says, or type and zone."""

_ON_DEMAND: Final = Requirements.of([Requirement.of(CAPACITY_TYPE_LABEL, Operator.IN, [CAPACITY_ON_DEMAND])])

_MAX_ANSWERS: Final = 20_000
"""Answers kept by one catalogue before it starts afresh; a cluster asks a few hundred different questions."""


@dataclass(frozen=True, slots=True)
class PricedOffering:
    """The cheapest launchable offering of one type under some requirements."""

    row: int
    offering: Offering


class Catalogue:
    """Immutable in meaning: `instance_types` in order of name, plus answers already given.

    Attributes:
        types: in order of name.
        everything: all of them.
        overdrawn: those whose overhead takes more of something than they have; nothing fits there, whatever it asks for.
    """

    def __init__(self, instance_types: Sequence[InstanceType]) -> None:
        self.types: Final = tuple(sorted(instance_types, key=lambda one: one.name))
        self.everything: Final = (1 << len(self.types)) - 1
        self.overdrawn: Final = mask_of(row for row, one in enumerate(self.types) if one.allocatable.negative)
        self._by_key: dict[str, dict[Requirement, int]] = {}
        self._offered: dict[Requirements, dict[int, Offering]] = {}
        for row, instance_type in enumerate(self.types):
            bit = 1 << row
            for key, requirement in instance_type.requirements.items():
                states = self._by_key.setdefault(key, {})
                states[requirement] = states.get(requirement, 0) | bit
            for offering in instance_type.offerings:
                if offering.launchable:
                    rows = self._offered.setdefault(offering.requirements, {})
                    known = rows.get(row)
                    if known is None or offering.sort_key < known.sort_key:
                        rows[row] = offering
        self._offered_masks: Final = {one: mask_of(rows) for one, rows in self._offered.items()}
        self._offering_keys: Final = frozenset(key for one in self._offered for key in one)
        self._only_offerings: Final = self._offering_keys - self._by_key.keys()
        self._matching: dict[tuple[Requirement, bool], int] = {}
        self._available: dict[Requirements, int] = {}
        self._priced: dict[Requirements, tuple[PricedOffering, ...]] = {}
        self._uneven: dict[str, int] = {}
        self._steps: dict[str, tuple[list[int], list[int]]] = {}
        self._holders: dict[Requirement, tuple[int, ...]] = {}

    def row_of(self, name: str) -> int | None:
        """The number of a type; None where there is none of that name."""
        row = bisect_left(self.types, name, key=lambda one: one.name)
        return row if row < len(self.types) and self.types[row].name == name else None

    def amount(self, row: int, name: str) -> int:
        """What one node of a type counts against a limit on `name`."""
        return 1 if name == NODES else self.types[row].capacity.amount(name)

    def within(self, name: str, amount: int) -> int:
        """Types that count at most `amount` against a limit on `name`."""
        steps = self._steps.get(name)
        if steps is None:
            steps = self._steps[name] = self._step(name)
        amounts, masks = steps
        position = bisect_right(amounts, amount)
        return masks[position - 1] if position else 0

    @property
    def reserved(self) -> bool:
        """Whether any type can be had from a reservation."""
        return any(one.requirement(CAPACITY_TYPE_LABEL).single_value == CAPACITY_RESERVED for one in self._offered)

    def reservations(self, requirements: Requirements, label: str) -> list[tuple[Reservation, int, Requirements]]:
        """(reservation, nodes left of it, what a claim must ask for to draw from it), cheapest first."""
        found: dict[Reservation, tuple[tuple[int, str, str], int, Requirements]] = {}
        for one in self._compatible(requirements):
            if one.requirement(CAPACITY_TYPE_LABEL).single_value != CAPACITY_RESERVED:
                continue
            for row, offering in self._offered[one].items():
                number = one.requirement(label).single_value if label else None
                asked = [Requirement.of(CAPACITY_TYPE_LABEL, Operator.IN, (CAPACITY_RESERVED,))]
                if number:
                    asked.append(Requirement.of(label, Operator.IN, (number,)))
                else:
                    number = f"{self.types[row].name}/{offering.zone}"
                    asked.append(Requirement.of(INSTANCE_TYPE_LABEL, Operator.IN, (self.types[row].name,)))
                    if offering.zone:
                        asked.append(Requirement.of(ZONE_LABEL, Operator.IN, (offering.zone,)))
                known = found.get(number)
                left = offering.reservation_capacity if known is None else min(known[1], offering.reservation_capacity)
                key = offering.sort_key if known is None else min(known[0], offering.sort_key)
                found[number] = (key, left, Requirements.of(asked))
        return [
            (number, left, asked) for number, (_, left, asked) in sorted(found.items(), key=lambda e: (e[1][0], e[0]))
        ]

    def used_up(self, requirements: Requirements, label: str) -> tuple[Reservation, ...]:
        """The reservations that these requirements admit, if they admit nothing else and no node is left of any; else none."""
        named = requirements.requirement(label) if label else None
        if requirements.requirement(CAPACITY_TYPE_LABEL).single_value != CAPACITY_RESERVED and (
            named is None or not named.present or named.complement
        ):
            return ()
        found = set[Reservation]()
        for one in self.types:
            if requirements.conflict(one.requirements) is not None:
                continue
            for offering in one.offerings:
                if offering.capacity_type == CAPACITY_RESERVED and requirements.conflict(offering.requirements) is None:
                    if offering.reservation_capacity > 0:
                        return ()
                    number = offering.requirements.requirement(label).single_value if label else None
                    found.add(number or f"{one.name}/{offering.zone}")
        return tuple(sorted(found))

    def largest(self, name: str) -> int:
        """The most that one node of any type counts against a limit on `name`."""
        self.within(name, 0)
        return max(self._steps[name][0], default=0)

    def uneven(self, key: str) -> int:
        """The types that can be had for some values of a label only, or for another price."""
        found = self._uneven.get(key)
        if found is None:
            by_row: dict[int, dict[str, set[tuple[str | None, float]]]] = {}
            values = set()
            for one, rows in self._offered.items():
                value = one[key].single_value if key in one else None
                if value is not None:
                    values.add(value)
                    kind = one.requirement(CAPACITY_TYPE_LABEL).single_value
                    for row, offering in rows.items():
                        by_row.setdefault(row, {}).setdefault(value, set()).add((kind, offering.price))
            found = self._uneven[key] = mask_of(
                row
                for row, some in by_row.items()
                if len(some) < len(values) or any(one != other for one, other in itertools.pairwise(some.values()))
            )
        return found

    def _step(self, name: str) -> tuple[list[int], list[int]]:
        """Distinct amounts, ascending, and for each the types with at most that much."""
        by_amount: dict[int, int] = {}
        for row in range(len(self.types)):
            amount = self.amount(row, name)
            by_amount[amount] = by_amount.get(amount, 0) | 1 << row
        amounts = sorted(by_amount)
        masks, mask = [], 0
        for amount in amounts:
            mask |= by_amount[amount]
            masks.append(mask)
        return amounts, masks

    def matching(self, requirement: Requirement, *, defined: bool) -> int:
        """Types that can be in a state which `requirement` allows.

        Args:
            requirement: what is asked of one label.
            defined: whether something else (the NodePool's template) gives the node this label; if not, a type that
                has it neither itself nor by an offering matches only where absence does.
        """
        question = (requirement, defined)
        answer = self._matching.get(question)
        if answer is None:
            answer = kept(self._matching, question, self._match(requirement, defined=defined))
        return answer

    def _match(self, requirement: Requirement, *, defined: bool) -> int:
        states = self._by_key.get(requirement.key, {})
        match = 0
        known = 0
        for state, rows in states.items():
            known |= rows
            if state.intersects(requirement):
                match |= rows
        if defined or not requirement.present or requirement.key in self._offering_keys:
            match |= self.everything & ~known
        return match

    def knows(self, key: str) -> bool:
        """Whether any type, or any available offering, has the label `key`."""
        return key in self._by_key or key in self._offering_keys

    def asked(self, requirements: Requirements) -> Requirements:
        """That part of `requirements` which offerings know; with another part, they are the same."""
        keys = self._offering_keys
        if all(key in keys for key in requirements):
            return requirements
        return Requirements.of([one for key, one in requirements.items() if key in keys])

    def available(self, requirements: Requirements) -> int:
        """Types of which at least one available offering goes with `requirements`."""
        requirements = self.asked(requirements)
        answer = self._available.get(requirements)
        if answer is None:
            found = 0
            for offering in self._compatible(requirements):
                found |= self._offered_masks[offering]
            answer = kept(self._available, requirements, found)
        return answer

    def priced(self, requirements: Requirements) -> tuple[PricedOffering, ...]:
        """Every available type with its cheapest offering under `requirements`.

        Ordered by micro-USD per hour, type name, zone, capacity type: ties never depend on input order.
        """
        requirements = self.asked(requirements)
        answer = self._priced.get(requirements)
        if answer is None:
            best: dict[int, Offering] = {}
            for one in self._compatible(requirements):
                for row, offering in self._offered[one].items():
                    known = best.get(row)
                    if known is None or offering.sort_key < known.sort_key:
                        best[row] = offering
            order = sorted(best, key=lambda row: (best[row].sort_key[0], row))
            answer = tuple(PricedOffering(row, best[row]) for row in order)
            answer = kept(self._priced, requirements, answer)
        return answer

    def on_demand(self, requirements: Requirements) -> tuple[PricedOffering, ...]:
        """Likewise, of the on-demand offerings alone."""
        requirements = self.asked(requirements)
        if not requirements.requirement(CAPACITY_TYPE_LABEL).has(CAPACITY_ON_DEMAND):
            return ()
        return self.priced(requirements.merged(_ON_DEMAND))

    def capacity_types(self, requirements: Requirements, rows: int) -> tuple[str, ...]:
        """The capacity types of available offerings of `rows` under `requirements`, sorted."""
        return tuple(
            sorted(
                {
                    offering.capacity_type
                    for one in self._compatible(requirements)
                    if self._offered_masks[one] & rows
                    for offering in (next(iter(self._offered[one].values())),)
                }
            )
        )

    def distinct_values(self, allowed: Requirement, rows: int) -> int:
        """How many values that `allowed` admits the types of `rows` offer together; for minValues."""
        holders = self._holders.get(allowed)
        if holders is None:
            by_value: dict[str, int] = {}
            for state, some in self._by_key.get(allowed.key, {}).items():
                if not state.complement:
                    for value in state.values:
                        if allowed.has(value):
                            by_value[value] = by_value.get(value, 0) | some
            holders = kept(self._holders, allowed, tuple(by_value.values()))
        return sum([1 for some in holders if some & rows])

    def values_of(self, row: int, allowed: Requirement) -> frozenset[str]:
        """The values that `allowed` admits and one type offers; for minValues."""
        state = self.types[row].requirements.get(allowed.key)
        if state is None or state.complement:
            return frozenset()
        return frozenset(value for value in state.values if allowed.has(value))

    def values(self, key: str, rows: int, requirements: Requirements) -> tuple[str, ...] | None:
        """The values of one label that nodes of `rows` can have under `requirements`, sorted; None where unknown.

        Known is what offerings or types say; a label that some say with a complement (any value but) is unknown.
        """
        asked = requirements.get(key)
        found: set[str] = set()
        if key in self._offering_keys:
            for one in self._compatible(requirements):
                if key in one and self._offered_masks[one] & rows:
                    if one[key].complement:
                        return None
                    found |= one[key].values
        elif key in self._by_key:
            for state, holders in self._by_key[key].items():
                if holders & rows:
                    if state.complement:
                        return None
                    found |= state.values
        else:
            return None
        return tuple(sorted(value for value in found if asked is None or asked.has(value)))

    def _compatible(self, requirements: Requirements) -> Iterator[Requirements]:
        for one in self._offered:
            if requirements.conflict(one) is None and not any(
                key in self._only_offerings and key not in one and requirements[key].present for key in requirements
            ):
                yield one


def kept(answers: dict[_Question, _Answer], question: _Question, answer: _Answer) -> _Answer:
    """The answer, remembered with `answers`, which start afresh when there are too many."""
    if len(answers) >= _MAX_ANSWERS:
        answers.clear()
    answers[question] = answer
    return answer
