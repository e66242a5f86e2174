"""Which tests stay together in one process of a run, and which begin first.

Tests of a module share its fixtures (a control plane, a program), so a module stays whole, but for the long ones whose tests share nothing, or share a
fixture with some of their kind only. What took longest in the last run (`durations`) begins first, so that all processes end together. Nothing here decides
whether a test runs.
"""

import math
import zlib
from collections.abc import Mapping
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

APART: Final = frozenset({"test_chaos", "test_demo", "test_hpa", "test_on_demand_repair", "test_upgrade"})
"""Tests of these share nothing, or the control plane of the whole process only."""
BY_FIRST_PARAMETER: Final = frozenset({"test_nomination", "test_scenarios_at_once"})
"""These start one for each value of the parameter that stands first in a test's name."""
PIECES: Final[Mapping[str, int]] = {
    "test_aws_check": 2,
    "test_aws_day_two": 2,
    "test_aws_launch_faults": 3,
    "test_aws_launch_once": 4,
    "test_aws_launching": 3,
}
"""So many pieces are made of these: their tests wait for an emulated EC2 of the module, which starts in a second, and use next to no processor."""


def unit_of(nodeid: str) -> str:
    """What the test belongs to: tests with the same answer run in one process, one after the other."""
    path, _, test = nodeid.partition("::")
    module = path.rpartition("/")[2].removesuffix(".py")
    if module in APART:
        return nodeid
    if module in BY_FIRST_PARAMETER:
        return f"{path}::{test.partition('-')[0]}"
    if module in PIECES:
        return f"{path}::{zlib.crc32(test.encode()) % PIECES[module]}"
    return path


def rank_of(nodeid: str, seconds: Mapping[str, float]) -> float:
    """Tests with a smaller one begin first. `seconds`: how long each unit took; a unit that is not there is new, and might be the longest of all."""
    return -seconds.get(unit_of(nodeid), math.inf) if "/integration/" in nodeid.partition("::")[0] else 1


class Spreading(LoadScopeScheduling):  # type: ignore[misc]
    """As `--dist loadscope`, by `unit_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def scheduler(config: pytest.Config, log: Producer) -> Spreading | None:
    """For the hook of xdist; None where another way to spread is asked for."""
    return Spreading(config, log) if config.getvalue("dist") == "loadscope" else None
