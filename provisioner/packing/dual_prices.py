"""What a unit of each resource is worth, and so what every pod must cost at the least: a small linear program, proved afterwards.

For each group of pods that may go to the same slots there is a rate a resource. Rates are dual feasible when no slot can hold pods
that are worth more than it costs; then the pods' worth together is a lower bound on every plan, whatever it does.
A slot holds pods of several groups at once, so its room counts at the highest rate of the groups that it takes. Limits make nodes dearer
that count against them, by a toll a unit: pods on a node may be worth its price and its tolls, and tolls for the whole budgets are taken off.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import highspy
import numpy as np

from provisioner.packing.model import PackingMarket, Slot
from provisioner.scheduling.constraints.bitsets import members

_DIGITS: Final = 10**9
SlotsByGroups = dict[frozenset[int], list[Slot]]
"""Slots by the groups that they take."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Rates that are dual feasible, exactly.

    Attributes:
        rates: by group of the market, USD per hour for one unit of each dimension.
        usd_at_least: per hour, of any plan for all pods of the market: rounded down.
        tolls: by limit of the market, what a unit that counts against it is worth, in USD per hour: a node that counts less may cost so
            much more. 0 where a limit holds nothing back.
    """

    rates: tuple[tuple[Fraction, ...], ...]
    usd_at_least: float
    tolls: tuple[float, ...] = ()

    def worth(self, group: int, need: Sequence[int]) -> Fraction:
        """Of one pod of a group, in USD per hour."""
        return sum((r * n for r, n in zip(self.rates[group], need, strict=True) if n), Fraction(0))


def prices_of(market: PackingMarket) -> Prices:
    """The rates under which the pods of a market are worth most.

    Cost: one linear program with a variable for each resource of each group and of each set of groups that share slots, and a
    row for each slot that none exceeds; milliseconds for one group and 600 types.
    """
    names = range(len(market.names))
    if not market.groups:
        return Prices((), 0.0)
    sets = slots_by_groups(market)
    # rates in units of what is there at most, so that the numbers of the program are of one size
    unit = [max([1, *(slot.room[d] for slot in market.slots), *(room[d] for room in market.free)]) for d in names]
    solved, tolls = _solved(market, sets, unit)
    rates = [[Fraction(int(rate * _DIGITS), _DIGITS * unit[d]) for d, rate in enumerate(some)] for some in solved]
    for own, group in zip(rates, market.groups, strict=True):
        for d in names:
            if not group.demand[d]:
                own[d] = Fraction(0)
    return proved(market, sets, rates, [Fraction(one) for one in tolls])


def proved(
    market: PackingMarket, sets: SlotsByGroups, rates: Sequence[Sequence[Fraction]], tolls: Sequence[Fraction] = ()
) -> Prices:
    """Rates scaled down until they are dual feasible in exact arithmetic, and the bound that follows; `sets` as of `slots_by_groups`.

    What existing nodes and reservations can take is given for nothing, or for its price: it is taken off what the pods are worth.
    """
    worst = Fraction(1)
    for groups, slots in sets.items():
        highest = _highest(rates, groups)
        for slot in slots:
            if slot.supply < 0:
                worth, usd = _value(highest, slot.room), slot.usd + _value(tolls, slot.charge)
                if worth > usd * worst:
                    if usd <= 0:
                        return Prices(tuple([(Fraction(0),) * len(market.names)] * len(rates)), 0.0)
                    worst = worth / usd
    scaled = tuple([tuple([rate / worst for rate in some]) for some in rates])
    total = sum((_value(own, one.demand) for own, one in zip(scaled, market.groups, strict=True)), Fraction(0))
    for kind, room in enumerate(market.free):
        groups = frozenset(n for n, one in enumerate(market.groups) if one.free >> kind & 1)
        total -= _value(_highest(scaled, groups), room)
    gains = [Fraction(0)] * len(market.supplies)
    for groups, slots in sets.items():
        highest = _highest(scaled, groups)
        for slot in slots:
            if slot.supply >= 0:
                gains[slot.supply] = max(gains[slot.supply], _value(highest, slot.room) - slot.usd)
    total -= sum((gain * left for gain, left in zip(gains, market.supplies, strict=True)), Fraction(0))
    total -= _value(tolls, market.budgets)
    micros = max(0, total.numerator * 10**6 // total.denominator)
    return Prices(scaled, micros / 10**6, tuple(map(float, tolls)))


def _value(rates: Sequence[Fraction], room: Sequence[int]) -> Fraction:
    return sum((rate * amount for rate, amount in zip(rates, room, strict=True) if rate and amount > 0), Fraction(0))


def _highest(rates: Sequence[Sequence[Fraction]], groups: frozenset[int]) -> list[Fraction]:
    own = [rates[number] for number in sorted(groups)]
    return [max(some) for some in zip(*own, strict=True)] if own else [Fraction(0)] * len(rates[0])


def slots_by_groups(market: PackingMarket) -> SlotsByGroups:
    """Slots by the groups that they take; of equal ones one, and none that costs more and has less than another."""
    found: defaultdict[frozenset[int], dict[tuple[object, ...], Slot]] = defaultdict(dict)
    taking: list[list[int]] = [[] for _ in market.slots]
    for n, one in enumerate(market.groups):
        for number in members(one.allowed):
            taking[number].append(n)
    for some, slot in zip(taking, market.slots, strict=True):
        if groups := frozenset(some):
            key = (slot.room, slot.supply, slot.charge)
            known = found[groups].get(key)
            if known is None or (slot.usd is not known.usd and slot.usd < known.usd):
                found[groups][key] = slot
    return {groups: list(some.values()) for groups, some in found.items()}


def _solved(market: PackingMarket, sets: SlotsByGroups, unit: Sequence[int]) -> tuple[list[list[float]], list[float]]:
    """The rates of each group by the linear program, in units of `unit`, and the toll of each limit; nearly feasible."""
    width = len(market.names)
    kinds = [frozenset(n for n, g in enumerate(market.groups) if g.free >> k & 1) for k in range(len(market.free))]
    shared = list(dict.fromkeys([some for some in (*sets, *kinds) if len(some) > 1]))
    start = len(market.groups)
    column_of = {frozenset((n,)): n for n in range(start)} | {some: start + n for n, some in enumerate(shared)}
    blocks = start + len(shared)
    first_gain = blocks * width
    first_toll = first_gain + len(market.supplies)
    most = [max([1, *(slot.charge[n] for slot in market.slots)]) for n in range(len(market.budgets))]
    objective = np.zeros(first_toll + len(market.budgets))
    for number, group in enumerate(market.groups):
        for d in range(width):
            objective[number * width + d] += group.demand[d] / unit[d]
    for kind, room in zip(kinds, market.free, strict=True):
        if kind:
            for d in range(width):
                objective[column_of[kind] * width + d] -= room[d] / unit[d]
    for number, left in enumerate(market.supplies):
        objective[first_gain + number] -= left
    for number, budget in enumerate(market.budgets):
        objective[first_toll + number] -= budget / most[number]
    upper: list[float] = []
    starts: list[int] = []
    index: list[int] = []
    values: list[float] = []

    def row(top: float, entries: Sequence[tuple[int, float]]) -> None:
        upper.append(top)
        starts.append(len(index))
        for column, value in entries:
            index.append(column)
            values.append(value)

    for groups, slots in sets.items():
        own = column_of[groups] * width
        for slot in slots:
            entries = [(own + d, slot.room[d] / unit[d]) for d in range(width) if slot.room[d] > 0]
            if slot.supply >= 0:
                entries.append((first_gain + slot.supply, -1.0))
            if market.budgets:
                entries += [(first_toll + n, -amount / most[n]) for n, amount in enumerate(slot.charge) if amount]
            row(float(slot.usd), entries)
    for some in shared:
        for number in sorted(some):
            for d in range(width):
                if market.groups[number].demand[d]:
                    row(0.0, [(number * width + d, 1.0), (column_of[some] * width + d, -1.0)])
    scale = max(1.0, float(np.abs(objective).max()))
    solution = maximum(objective / scale, np.array(upper), starts, index, values, top=_MOST_RATE)
    rates = [[max(0.0, solution[n * width + d]) for d in range(width)] for n in range(start)]
    return rates, [max(0.0, solution[first_toll + n]) / most[n] for n in range(len(market.budgets))]


_MOST_RATE: Final = 1e6
"""USD per hour for as much of a resource as the largest instance has: keeps the program bounded where nothing limits a rate."""


def maximum(
    objective: np.ndarray, upper: np.ndarray, starts: list[int], index: list[int], values: list[float], *, top: float
) -> list[float]:
    """Where `objective` is greatest, with every row at most `upper` and every variable between 0 and `top`."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(objective), len(upper)
    lp.col_cost_ = objective
    lp.col_lower_ = np.zeros(len(objective))
    lp.col_upper_ = np.full(len(objective), top)
    lp.row_lower_ = np.full(len(upper), -highspy.kHighsInf)
    lp.row_upper_ = upper
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*starts, len(index)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(values)
    solver = quiet()
    solver.passModel(lp)
    solver.run()
    return [float(one) for one in solver.getSolution().col_value]


def quiet() -> highspy.Highs:
    """A solver of one thread that prints nothing."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver
