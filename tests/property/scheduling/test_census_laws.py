"""Where pods run while some of them move: found by what moved, it is what counting everybody anew finds."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.demands import Count, facts_of
from provisioner.scheduling.topology.census import Census, Layers, Spots, Tally, tally_of
from tests.support.problems import EPOCH, apart, app, of_app, pod, spread

APPS = ("web", "db")
SHAPES = tuple(
    of_app(
        name,
        topology_spread_constraints=(spread(names.ZONE_LABEL, app(name)),),
        affinity=apart(names.HOSTNAME_LABEL, app(other)),
    )
    for name, other in zip(APPS, reversed(APPS), strict=True)
)
COUNTS = tuple(dict.fromkeys(count for shape in SHAPES for count in facts_of(shape).required.relations.counts))


def some_pods(chance: random.Random) -> tuple[Pod, ...]:
    found = [pod(f"p{chance.random()}", chance.choice(SHAPES)) for _ in range(chance.choice((0, 1, 1, 2, 4)))]
    return tuple(changed(one, deleted=EPOCH) if chance.random() < 0.2 else one for one in found)


def spots_of(census: Census, counts: Sequence[Count] = COUNTS) -> list[tuple[dict[int, int], list[int]]]:
    return [_said(census.spots(count, {})) for count in counts]


def _said(spots: Spots) -> tuple[dict[int, int], list[int]]:
    return dict(spots.counts), list(spots.at_least)


@given(st.integers(0, 1 << 32), st.integers(1, 8))
def test_who_runs_where_while_some_move_is_what_a_new_count_finds(seed: int, nodes: int) -> None:
    chance = random.Random(seed)
    tallies = [tally_of(some_pods(chance)) for _ in range(nodes)]
    census = Census.of(tallies, exact=False)
    for _ in range(4):
        spots_of(census, chance.sample(COUNTS, chance.randint(0, len(COUNTS))))  # of some it is known where they were
        asked = replaced(tallies, chance)
        assert spots_of(census.changed(moved(tallies, asked), passing=True)) == spots_of(Census.of(asked, exact=False))
        then = replaced(tallies, chance)
        census, tallies = census.changed(moved(tallies, then)), then
        if chance.random() < 0.5:
            assert spots_of(census) == spots_of(Census.of(tallies, exact=False))


def replaced(tallies: Sequence[Tally], chance: random.Random) -> list[Tally]:
    return [tally_of(some_pods(chance)) if chance.random() < 0.4 else one for one in tallies]


def moved(before: Sequence[Tally], after: Sequence[Tally]) -> list[tuple[int, Tally, Tally]]:
    return [(slot, old, new) for slot, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new]


class _Key:
    """Counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        _Key.looked_up += 1
        return object.__hash__(self)


@pytest.mark.parametrize("changes", [0, 100, 256])
def test_a_question_copies_nothing_of_what_stays(changes: int) -> None:
    keys = [_Key() for _ in range(2_000)]
    layers: Layers[_Key, int] = Layers(dict.fromkeys(keys, 1))
    layers = layers.changed(dict.fromkeys(keys[:changes], 2))
    new, before = dict.fromkeys(keys[-2:], 3), _Key.looked_up
    asked = layers.changed(new, passing=True)
    assert [asked.get(one) for one in (keys[0], keys[-1])] == [2 if changes else 1, 3]
    assert _Key.looked_up - before < 10
