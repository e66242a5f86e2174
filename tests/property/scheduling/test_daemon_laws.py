"""Laws of the solver where pods look at the pods of DaemonSets, or these at them: the naive checker judges, to whom a node to come has its daemons from the start."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, PodAffinityTerm
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.values.taints import Toleration
from tests.support import checker
from tests.support.problems import ARM, LARGE, MEDIUM, instance_type, node, pod, pool, problem, shape, spread
from tests.support.question import Problem, solve
from tests.support.telling import told

HOST, ZONE, ARCH = names.HOSTNAME_LABEL, names.ZONE_LABEL, names.ARCH_LABEL
EVERYWHERE = (Toleration(operator="Exists"),)
APPS = ("web", "job")
AGENTS = ("logs", "mesh")
TINY = instance_type("tiny", "1200m", "4Gi", zones=("a",))
"""For one pod beside the daemons."""
EXAMPLES = settings(max_examples=max(100, settings().max_examples))


def _of(name: str) -> LabelSelector:
    return LabelSelector(match_labels={"app": name})


def _terms(drawn: Iterable[tuple[str, str]]) -> tuple[PodAffinityTerm, ...]:
    return tuple(PodAffinityTerm(topology_key=key, label_selector=_of(name)) for key, name in drawn)


KEYS = st.sampled_from((HOST, HOST, ZONE))
ARCHES = st.sampled_from((None, None, "amd64", "arm64"))


@st.composite
def kinds(draw: st.DrawFn) -> PodShape:
    """Pods that want to be with daemons, or away from them, or are spread with them."""
    near = draw(st.lists(st.tuples(KEYS, st.sampled_from(AGENTS)), max_size=1))
    away = draw(st.lists(st.tuples(KEYS, st.sampled_from(AGENTS)), max_size=1))
    arch = draw(ARCHES)
    evenly = draw(st.sampled_from((0, 0, 1, 2)))
    over = draw(KEYS)
    affinity = Affinity(
        pod_affinity=PodAffinity(required=_terms(near)) if near else None,
        pod_anti_affinity=PodAffinity(required=_terms(away)) if away else None,
    )
    constraint = spread(over, LabelSelector(match_labels={"part": "x"}), evenly)
    return shape(
        draw(st.sampled_from(("500m", "1"))),
        labels={"app": draw(st.sampled_from(APPS)), "part": "x"},
        selector={ARCH: arch} if arch else {},
        affinity=affinity if near or away else None,
        topology_spread_constraints=(constraint,) if evenly else (),
    )


@st.composite
def daemon_sets(draw: st.DrawFn) -> PodShape:
    """Pods of a DaemonSet on all nodes or on those of one architecture, some of which keep others away or must be near them."""
    name = draw(st.sampled_from(AGENTS))
    away = draw(st.lists(st.tuples(KEYS, st.sampled_from(APPS)), max_size=1))
    others = sorted({*APPS, *(() if away else AGENTS)} - {name, *(one for _, one in away)})
    near = draw(st.lists(st.tuples(KEYS, st.sampled_from(others)), max_size=1))
    affinity = Affinity(
        pod_affinity=PodAffinity(required=_terms(near)) if near else None,
        pod_anti_affinity=PodAffinity(required=_terms(away)) if away else None,
    )
    arch = draw(ARCHES)
    counted = draw(st.booleans()) and arch is None
    return shape(
        "100m",
        "0",
        labels={"app": name, **({"part": "x"} if counted else {})},
        selector={ARCH: arch} if arch else {},
        affinity=affinity if near or away else None,
        tolerations=EVERYWHERE,
    )


def _bound(one: PodShape, where: str) -> Pod:
    return Pod(name=f"d-{where}", namespace="default", uid=f"d-{where}", shape=one, labels=one.labels, node_name=where)


@st.composite
def worlds(draw: st.DrawFn) -> Problem:
    """A few kinds of pods, one or two DaemonSets, and nodes on which these run or are still due."""
    daemons = draw(st.lists(daemon_sets(), min_size=1, max_size=2, unique_by=lambda one: one.labels["app"]))
    waiting = [
        pod(f"p-{number}-{copy}", one)
        for number, one in enumerate(draw(st.lists(kinds(), min_size=1, max_size=3)))
        for copy in range(draw(st.integers(1, 4)))
    ]
    bins = []
    for number in range(draw(st.integers(0, 2))):
        name, arch = f"n{number}", draw(st.sampled_from(("amd64", "arm64")))
        labels = {ZONE: draw(st.sampled_from(("a", "b"))), ARCH: arch}
        runs = [one for one in daemons if one.node_selector.get(ARCH, arch) == arch and draw(st.booleans())]
        bins.append(node(name, labels=labels, running=[_bound(one, name) for one in runs]))
    return problem(waiting, pool(types=(MEDIUM, LARGE, ARM)), daemons=daemons, bins=bins)


@EXAMPLES
@given(worlds())
def test_daemons_of_nodes_to_come_count_like_any_pod(asked: Problem) -> None:
    found = solve(asked)
    wrong = checker.violations(asked, found)
    assert not wrong, "\n".join([*wrong, told(asked, found)])


@st.composite
def worlds_of_two_zones(draw: st.DrawFn) -> Problem:
    """New nodes for a pod each in one zone alone, a few pods in another, and a DaemonSet that spreads count, too."""
    daemon = shape("100m", "0", labels={"part": "x"}, tolerations=EVERYWHERE)
    parts = st.sampled_from(({"part": "x"}, {"part": "y"}))
    waiting = []
    for number in range(draw(st.integers(2, 3))):
        constraint = spread(ZONE, LabelSelector(match_labels={"part": "x"}), draw(st.integers(1, 2)))
        spreads = (constraint,) if number == 0 or draw(st.booleans()) else ()
        one = shape(
            "1", labels=draw(parts), priority=draw(st.sampled_from((0, 0, 10))), topology_spread_constraints=spreads
        )
        waiting += [pod(f"p-{number}-{copy}", one) for copy in range(draw(st.integers(1, 2)))]
    bins = []
    for number, zone in enumerate(draw(st.lists(st.sampled_from(("a", "b", "b")), min_size=1, max_size=2))):
        name = f"n{number}"
        runs = [_bound(daemon, name)] * draw(st.integers(0, 2))
        bins.append(node(name, draw(st.sampled_from(("0", "1"))), labels={ZONE: zone}, running=runs))
    return problem(waiting, pool(types=(TINY,)), daemons=[daemon], bins=bins)


@EXAMPLES
@given(worlds_of_two_zones())
def test_daemons_of_a_node_to_come_break_no_spread_of_those_who_have_a_place(asked: Problem) -> None:
    found = solve(asked)
    wrong = checker.violations(asked, found)
    assert not wrong, "\n".join([*wrong, told(asked, found)])
