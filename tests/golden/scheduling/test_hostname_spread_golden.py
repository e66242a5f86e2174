"""Hard hostname spread over nodes that are still to come, one sentence a row; design 3b.9."""

from collections import Counter
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.problem import Bin, SchedulingPool
from provisioner.scheduling.result import Result
from tests.support import checker
from tests.support.problems import app, instance_type, node, of_app, pod, pods, pool, problem, shape, spread, term
from tests.support.question import solve

HOST, ZONE = names.HOSTNAME_LABEL, names.ZONE_LABEL
WEB = app("web")
SIZES = tuple(
    instance_type(f"m{cpu}", str(cpu), f"{4 * cpu}Gi", 0.05 * cpu, zones=("a", "b", "c"))
    for cpu in (2, 4, 8, 16, 32, 64)
)
SMALL_IS_CHEAP = (
    instance_type("m2", "2", "8Gi", 0.01, zones=("a",)),
    instance_type("m64", "64", "256Gi", 9.0, zones=("a",)),
)
ANY = pool(types=SIZES)


def web(count: int, *more: object, cpu: str = "1", skew: int = 1, **stated: object) -> tuple[Pod, ...]:
    constraints = (spread(HOST, WEB, skew, **stated), *more)
    return pods(count, of_app("web", cpu, topology_spread_constraints=constraints), "web")


def running(count: int, on: str) -> list[Pod]:
    return [changed(pod(f"old-{on}-{number}", of_app("web")), node_name=on) for number in range(count)]


def counted(result: Result) -> list[int]:
    """Pods of the app by node, most first; those without any left out."""
    on = Counter(place for one, place in checker.placements_of(result) if one.labels.get("app") == "web")
    return sorted(on.values(), reverse=True)


def on_bins(*rooms: str, old: int = 0) -> list[Bin]:
    return [node(f"n{number}", room, running=running(old, f"n{number}")) for number, room in enumerate(rooms)]


ROWS: dict[str, tuple[tuple[Pod, ...], list[SchedulingPool], list[Bin], int, list[int]]] = {
    "many pods go evenly to three nodes": (web(19), [ANY], [], 3, [7, 6, 6]),
    "two pods go to two": (web(2), [ANY], [], 3, [1, 1]),
    "two pods go to two, though maxSkew allows one": (web(2, skew=2), [ANY], [], 3, [1, 1]),
    "one pod goes to one": (web(1), [ANY], [], 3, [1]),
    "a spread that counts no pod at all asks for no nodes": (
        pods(2, of_app("web", topology_spread_constraints=(spread(HOST, app("nobody")),)), "web"),
        [ANY],
        [],
        3,
        [2],
    ),
    "what does not fit on three goes evenly to more": (web(250), [ANY], [], 3, [63, 63, 62, 62]),
    "kube-scheduler's letter is one node": (web(19), [ANY], [], 1, [19]),
    "Karpenter's is a node for every maxSkew pods": (web(5), [ANY], [], 0, [1, 1, 1, 1, 1]),
    "Karpenter's with a larger maxSkew": (web(6, skew=2), [ANY], [], 0, [2, 2, 2]),
    "minDomains of the pod is what counts where it is given": (web(20, min_domains=5), [ANY], [], 3, [4, 4, 4, 4, 4]),
    "minDomains of 1 is the letter": (web(9, min_domains=1), [ANY], [], 3, [9]),
    "a pool asks for more": (web(20), [replace(ANY, hostname_domains=4)], [], 3, [5, 5, 5, 5]),
    "a pool asks for less": (web(20), [replace(ANY, hostname_domains=1)], [], 3, [20]),
    "a pool asks for a node each": (web(3), [replace(ANY, hostname_domains=0)], [], 3, [1, 1, 1]),
    "the strictest pool that admits the pods decides": (
        web(20),
        [replace(ANY, hostname_domains=4), replace(pool("other", types=SIZES), hostname_domains=5)],
        [],
        3,
        [4, 4, 4, 4, 4],
    ),
    "a pool that does not admit them has no say": (
        web(20),
        [ANY, replace(pool("other", (ZONE, "In", ["mars"]), types=SIZES), hostname_domains=9)],
        [],
        3,
        [7, 7, 6],
    ),
    "nodes that are there are domains": (web(6), [ANY], on_bins("8", "8", "8"), 3, [2, 2, 2]),
    "nodes that are there and new ones are filled evenly": (web(9), [ANY], on_bins("8"), 3, [3, 3, 3]),
    "a full node holds the others at maxSkew": (web(4), [ANY], on_bins("0"), 3, [1, 1, 1, 1]),
    "with zones, as many nodes in each": (
        web(90, spread(ZONE, WEB)),
        [ANY],
        [],
        3,
        [30, 30, 30],
    ),
    "where small nodes are cheaper, a node each": (web(6, cpu="2"), [pool(types=SMALL_IS_CHEAP)], [], 3, [1] * 6),
}


@pytest.mark.parametrize(("asked", "pools", "bins", "domains", "want"), ROWS.values(), ids=ROWS)
def test_hostname_spread(
    asked: tuple[Pod, ...], pools: list[SchedulingPool], bins: list[Bin], domains: int, want: list[int]
) -> None:
    question = problem(asked, *pools, bins=bins, hostname_domains=domains)
    result = solve(question)
    assert counted(result) == want
    assert not result.unplaced
    assert checker.violations(question, result) == []


@pytest.mark.parametrize(("old", "shared"), [(1, False), (2, False), (0, True)])
def test_pods_that_run_count_too(old: int, shared: bool) -> None:
    """With one that runs there are two pods, which want two nodes; the one that is there is not enough."""
    question = problem(web(1), ANY, bins=on_bins("8", old=old), hostname_domains=3)
    result = solve(question)
    assert counted(result) == [1]
    assert bool(result.existing) is shared
    assert checker.violations(question, result) == []


@pytest.mark.parametrize(("plain", "spread_ones"), [(10, 20), (5, 50), (30, 30), (20, 200), (100, 3), (60, 7)])
def test_beside_plain_pods_it_is_never_dearer_than_a_node_each(plain: int, spread_ones: int) -> None:
    asked = (*pods(plain, shape("1"), "plain"), *web(spread_ones, cpu="2"))
    own, each = (solve(problem(asked, ANY, hostname_domains=domains)) for domains in (3, 0))
    assert own.usd_per_hour <= each.usd_per_hour
    assert not own.unplaced
    assert checker.violations(problem(asked, ANY, hostname_domains=3), own) == []


def test_pods_that_only_some_pools_admit_follow_those() -> None:
    of = of_app(
        "web", topology_spread_constraints=(spread(HOST, WEB),), terms=[term((names.NODEPOOL_LABEL, "In", ["other"]))]
    )
    strict, lax = replace(ANY, hostname_domains=9), replace(pool("other", types=SIZES), hostname_domains=1)
    assert counted(solve(problem(pods(12, of), strict, lax, hostname_domains=3))) == [12]
