"""Where consolidation ends after a Deployment was scaled down, beside Karpenter's rule."""

import re
from copy import copy
from dataclasses import replace

import pytest

from provisioner.disruption.methods import consolidation, rebuilding
from provisioner.disruption.view import Acceptance, DisruptionSettings
from tests.support.economy import Economy, karpenters, shrunk
from tests.support.fleets import told

_PASSES = 20
ROWS = {
    "a CPU and 2 GiB, 35 of 100": ("1", "2Gi", 35),
    "a CPU and 2 GiB, 20 of 100": ("1", "2Gi", 20),
    "two CPUs, 35 of 100": ("2", "4Gi", 35),
    "much memory, 40 of 100": ("500m", "3Gi", 40),
    "small, 95 of 100": ("100m", "400Mi", 95),
}


def fork(economy: Economy, acceptance: Acceptance) -> Economy:
    fleet = replace(
        copy(economy.fleet), nodes=list(economy.fleet.nodes), settings=DisruptionSettings(acceptance=acceptance)
    )
    return Economy(fleet, improved=economy.improved)


def at_rest(start: Economy, acceptance: Acceptance) -> Economy:
    """Ours, once nothing is proposed any more."""
    own = fork(start, acceptance)
    for _ in range(_PASSES):
        before = own.saved
        for method in (consolidation, rebuilding):
            for one in method.propose(own.view()).proposals:
                own.carry_out(one)
        if own.saved == before:
            return own
    pytest.fail("consolidation does not end")


def karpenter_at_rest(start: Economy) -> Economy:
    own = fork(start, Acceptance.KARPENTER)
    for _ in karpenters(own):
        pass
    return own


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("cpu", "memory", "left"), ROWS.values(), ids=ROWS)
def test_it_ends_no_dearer_than_karpenters_rule(cpu: str, memory: str, left: int, seed: int) -> None:
    start = shrunk(cpu, memory, left, seed)
    theirs = karpenter_at_rest(start).usd_per_hour + 1e-9
    assert at_rest(start, Acceptance.KARPENTER).usd_per_hour <= theirs
    assert at_rest(start, Acceptance.SAVING).usd_per_hour <= theirs


def test_it_is_dearer_by_no_more_than_what_evictions_are_not_worth_and_says_so() -> None:
    start = shrunk("100m", "400Mi", 95, 1, priority=10**9)
    own = at_rest(start, Acceptance.SAVING)
    dearer = own.usd_per_hour - karpenter_at_rest(start).usd_per_hour
    refused = [
        re.search(r"Saving [$]([0-9.]+) per hour does not justify", one)
        for one in told(consolidation.propose(own.view())).values()
    ]
    assert 0 < dearer <= sum(float(one[1]) for one in refused if one) + 1e-9
