"""Laws of the order in which pods are bound: what is told without looking for one is what looking finds."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from provisioner.apis.core import Affinity, PodAffinity, PodAffinityTerm
from provisioner.apis.meta import LabelSelector
from provisioner.apis.names import HOSTNAME_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod, PodShape, pod_of
from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.attempts.binding_order import none_waits
from provisioner.scheduling.prepared import prepare
from tests.support import mixes
from tests.support.problems import instance_type, pod, pool, problem, shape, spread
from tests.support.question import Problem
from tests.support.rich import Stock
from tests.support.work import Lines

EXAMPLES = settings(max_examples=max(150, settings().max_examples))
RICH = Stock(20261101)
APPS = "vwxyz"


def attempted(asked: Problem, *, scattering: bool = False) -> Attempt:
    """The first attempt at a question."""
    setting = prepare(asked).setting(asked.pods)
    attempt = Attempt(setting, (), setting.classes)
    attempt.run(by_priority=False, scattering=scattering, hurried=())
    return attempt


def assert_that_nobody_is_left(attempt: Attempt) -> None:
    """In the best order, if it is told that nobody is in any; what is broken at the end is broken in each."""
    if none_waits(attempt.table, attempt.plans.plan_for) and not attempt.breaches.broken():
        assert not attempt.breaches.stuck({count for one in attempt.classes for count in one.counts}, 0)


def _of(app: str) -> LabelSelector:
    return LabelSelector(match_labels={"app": app})


def _kind(chance: random.Random, apps: str) -> PodShape:
    """Pods that are spread by one another in zones and over hosts, some in one zone alone, some that want to be with others."""
    app, key = chance.choice(apps), chance.choice((ZONE_LABEL, ZONE_LABEL, HOSTNAME_LABEL))
    term = PodAffinityTerm(topology_key=key, label_selector=_of(chance.choice((app, *apps))))
    keys = chance.choice(((), (ZONE_LABEL,), (HOSTNAME_LABEL,), (ZONE_LABEL, HOSTNAME_LABEL)))
    domains = chance.choice((None, None, None, None, 2, 4))
    return shape(
        chance.choice(("250m", "500m", "1", "2")),
        labels={"app": app},
        selector={ZONE_LABEL: chance.choice("abc")} if chance.random() < 0.2 else {},
        affinity=Affinity(pod_affinity=PodAffinity(required=(term,))) if chance.random() < 0.15 else None,
        topology_spread_constraints=[
            spread(key, _of(chance.choice(apps)), chance.choice((1, 1, 2)), min_domains=domains) for key in keys
        ],
    )


def tied(chance: random.Random) -> Problem:
    apps = APPS[: chance.randint(1, len(APPS))]
    kinds = [_kind(chance, apps) for _ in range(chance.randint(2, 12))]
    asked = [pod(f"p-{number}", chance.choice(kinds)) for number in range(chance.choice((8, 15, 30, 60)))]
    types = tuple([instance_type(f"of-{cpu}", str(cpu), f"{4 * cpu}Gi", 0.05 * cpu, zones="abc") for cpu in (2, 4, 8)])
    return replace(problem(asked, pool(types=types)), hostname_domains=chance.choice((0, 1, 3)))


@pytest.mark.parametrize("seed", range(200))
def test_nobody_is_left_where_spreads_let_everybody_go(seed: int) -> None:
    chance = random.Random(seed)
    assert_that_nobody_is_left(attempted(tied(chance), scattering=chance.random() < 0.5))


@EXAMPLES
@given(RICH.problems())
def test_nobody_is_left_where_there_is_more_than_spreads(asked: Problem) -> None:
    assert_that_nobody_is_left(attempted(asked))


@pytest.mark.parametrize("count", [50, 100])
def test_no_order_is_looked_for_in_the_mixes_of_the_benchmark(count: int) -> None:
    of: tuple[Pod, ...] = tuple([pod_of(metadata, spec) for metadata, spec in mixes.diverse(count)])
    attempt = attempted(Problem(pods=of, pools=(mixes.fake_pool(),)))
    assert none_waits(attempt.table, attempt.plans.plan_for)
    assert len(attempt.breaches.waiting_for_each_other(attempt.classes)) > 1


def test_pods_that_take_no_room_of_a_spread_cost_nothing_for_each_that_asks_for_more() -> None:
    """Those that ask come last as the others heed what they raise; the many that ask nothing are in a zone of which nobody asks anything."""

    def lines(free: int) -> int:
        of = [shape("1m", "1Mi", labels={"app": "free"}, selector={ZONE_LABEL: "c"})] * free
        heeding = spread(ZONE_LABEL, LabelSelector(), 2 * free)
        of += [
            shape("10m", labels={"app": "heeds"}, selector={ZONE_LABEL: "a"}, topology_spread_constraints=(heeding,))
        ]
        for app in map(str, range(40)):
            own = spread(ZONE_LABEL, _of(app), 5)
            of += [shape("10m", labels={"app": app}, selector={ZONE_LABEL: "a"}, topology_spread_constraints=(own,))]
        types = (instance_type("large", "64", "256Gi", zones="abc", max_pods=10_000),)
        attempt = attempted(problem([pod(f"p-{number}", one) for number, one in enumerate(of)], pool(types=types)))
        counts = {count for one in attempt.classes for count in one.counts}
        with Lines() as counted:
            assert not attempt.breaches.stuck(counts, 0)
        return counted.count

    assert lines(800) <= 1.1 * lines(400)
