"""Numbers by domain: sharing pods out, the emptiest place, and what a broken spread looks like afterwards."""

import pytest

from provisioner.apis.names import HOSTNAME_LABEL, ZONE_LABEL
from provisioner.scheduling.constraints.demands import Count
from provisioner.scheduling.topology.counters import (
    ALL,
    Axis,
    DomainCounter,
    Eligible,
    HostCounter,
    above,
    uneven,
    water_fill,
)

ON_HOSTS = Count(key=HOSTNAME_LABEL, peers=(), owners=False, spread=True, eligibility=None)
IN_ZONES = Count(key=ZONE_LABEL, peers=(), owners=False, spread=True, eligibility=None)

EVERYWHERE = Eligible(None, ALL)

SHARES: dict[str, tuple[list[int], list[int], int, int | None, list[tuple[int, int]]]] = {
    "one pod goes to the emptiest": ([2, 0, 1], [0, 1, 2], 1, None, [(1, 1)]),
    "the emptiest are made equal first": ([2, 0, 1], [0, 1, 2], 3, None, [(1, 2), (2, 1)]),
    "what is left goes to the first of equals": ([1, 1, 1], [0, 1, 2], 4, None, [(0, 2), (1, 1), (2, 1)]),
    "none goes above the ceiling": ([0, 0], [0, 1], 10, 3, [(0, 3), (1, 3)]),
    "a domain above the ceiling takes none": ([5, 0], [0, 1], 4, 2, [(1, 2)]),
    "only the domains given take part": ([0, 0, 0], [2], 2, None, [(2, 2)]),
    "without domains nothing is shared": ([0], [], 2, None, []),
}


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_shares(case: tuple[list[int], list[int], int, int | None, list[tuple[int, int]]]) -> None:
    counts, domains, pods, ceiling, want = case
    assert water_fill(counts, domains, pods, ceiling) == want


def test_places_by_number_of_pods() -> None:
    counter = HostCounter(ON_HOSTS, EVERYWHERE)
    counter.add(0, 1, 2)
    counter.add(1, 2, 1)
    assert [counter.with_at_least(level) for level in range(4)] == [ALL, 0b11, 0b01, 0]
    assert counter.anywhere
    assert (counter.emptiest(0b11), counter.emptiest(0b111), counter.emptiest(0)) == (1, 0, 0)


def test_a_place_that_does_not_count_is_not_counted() -> None:
    counter = HostCounter(ON_HOSTS, Eligible(None, 0b10))
    counter.add(0, 1, 2)
    assert not counter.anywhere


def test_hosts_that_became_too_full_are_seen() -> None:
    counter = HostCounter(ON_HOSTS, EVERYWHERE)
    counter.add(0, 1, 2)
    counter.add(1, 2, 1)
    counter.held[1, 1] = 0b01
    assert not above(counter, 0b11, 2)
    assert above(counter, 0b111, 3)  # one more node, and it is empty
    counter.held[1, 1] = 0b10
    assert not above(counter, 0b111, 3)
    counter.held[1, 4] = 0b01
    assert above(counter, 0b11, 2)  # fewer nodes than minDomains: none may hold two
    counter.raised[0] = 1
    assert not above(counter, 0b11, 2)  # by a pod that had no other place
    counter.add(0, 1, 1)
    assert above(counter, 0b11, 2)  # it was not that pod alone


def test_a_place_settles_in_one_domain() -> None:
    axis = Axis(ZONE_LABEL, ["b", "a", "c"])
    assert axis.values == ["a", "b", "c"]
    axis.enter(0b1, [0, 1])
    assert (axis.could, axis.fixed) == ([1, 1, 0], 0)
    axis.settle(0b1, 1)
    assert (axis.could, axis.fixed, axis.domain_of(0b1)) == ([0, 1, 0], 1, 1)
    axis.enter(0b10, [])
    assert (axis.absent, axis.domain_of(0b10)) == (0b10, -1)


def test_domains_that_became_uneven_are_seen() -> None:
    axis = Axis(ZONE_LABEL, ["a", "b"])
    counter = DomainCounter(IN_ZONES, axis, EVERYWHERE)
    axis.enter(0b1, [0])
    counter.add(0, 2)
    counter.held[1, 1] = {0: counter.counts[0]}
    assert counter.scarce(0b1) == [1]
    assert counter.scarce(0b1, brought=1) == []
    assert not uneven(counter, 0b1)  # the only domain there is
    axis.enter(0b10, [1])
    assert counter.existing(0b11) == [0, 1]
    assert uneven(counter, 0b11)
    counter.add(1, 1)
    counter.add(0, 5)
    assert not uneven(counter, 0b11)  # those that came later are not spread
    counter.held[1, 1] = {0: counter.counts[0]}
    assert uneven(counter, 0b11)
