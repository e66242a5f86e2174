"""Measured figures and their goals: how they are judged, printed and kept in `results/NAME.json`."""

import dataclasses
import enum
import json
import math
from collections.abc import Iterable
from pathlib import Path


class Bound(enum.StrEnum):
    """Which side of its goal a figure has to be on."""

    AT_MOST = "<="
    AT_LEAST = ">="


@dataclasses.dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach; in the unit of the figure.

    Attributes:
        waits: the part of a time that is waited for, and takes as long on every machine.
    """

    bound: Bound
    value: float
    waits: float = 0.0

    def met_by(self, value: float) -> bool:
        """Whether `value` reaches the goal; a value that is no number never does."""
        if math.isnan(value):
            return False
        return value <= self.value if self.bound is Bound.AT_MOST else value >= self.value

    def where_slow(self, slowness: float) -> "Goal":
        """The goal of a time on a machine that is `slowness` times as slow as the one that goals are written for."""
        return dataclasses.replace(self, value=self.waits + (self.value - self.waits) * slowness)

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; `nan` stands for "could not be measured" and misses every goal.

    Attributes:
        karpenter: what Karpenter needs for the same, as it was measured; "" where it was not.
    """

    name: str
    value: float
    unit: str
    goal: Goal | None = None
    karpenter: str = ""

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        return None if self.goal is None else self.goal.met_by(self.value)

    def where_slow(self, slowness: float) -> "Figure":
        """This figure with its goal as it is on such a machine, if it is a time; see `Goal.where_slow`."""
        if self.goal is None or self.unit != "s":
            return self
        return dataclasses.replace(self, goal=self.goal.where_slow(slowness))

    def to_json(self) -> dict[str, object]:
        """The entry of the results file; an unmeasured value is null."""
        return {
            "name": self.name,
            "value": None if math.isnan(self.value) else round(self.value, 4),
            "unit": self.unit,
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
            **({"karpenter": self.karpenter} if self.karpenter else {}),
        }

    def line(self) -> str:
        """One line for people, with the goal and whether it was met."""
        value = "not measured" if math.isnan(self.value) else f"{round(self.value, 2):.10g} {self.unit}".rstrip()
        text = f"{self.name}: {value}"
        beside = [f"Karpenter: {self.karpenter}"] if self.karpenter else []
        if self.goal is not None:
            beside.insert(0, f"goal {self.goal}: {'met' if self.met else 'MISSED'}")
        return f"{text} ({'; '.join(beside)})" if beside else text


def at_most(value: float, waits: float = 0.0) -> Goal:
    """A goal that is an upper limit."""
    return Goal(Bound.AT_MOST, value, waits)


def at_least(value: float) -> Goal:
    """A goal that is a lower limit."""
    return Goal(Bound.AT_LEAST, value)


def write(directory: Path, name: str, figures: Iterable[Figure]) -> Path:
    """Write `directory/NAME.json`, whole or not at all; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps([figure.to_json() for figure in figures], indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile, 0 < percent <= 100; `nan` of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
