"""What the pods of a DaemonSet will be, and where its controller puts them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from provisioner.apis.core import DaemonSet, LimitRange
from provisioner.apis.pods import PodShape
from provisioner.apis.selections import MOST_EXPRESSIONS
from provisioner.apis.shapes import unreadable_shape
from provisioner.apis.templates import MOST_DEFAULTS
from provisioner.state.admission import admission_of
from provisioner.state.cluster import Cluster
from provisioner.state.daemon_sets import DaemonSets
from provisioner.state.daemons import daemon_shape, runs_on
from provisioner.values.requirement import Requirement
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration
from tests.support.clock import FakeClock
from tests.support.problems import shape, term
from tests.support.work import Lines

LABELS = {"kubernetes.io/os": "linux", "tier": "gold"}
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
SOFT = Taint(key="dedicated", value="batch", effect="PreferNoSchedule")
CASES: dict[str, tuple[PodShape, Sequence[Taint], bool]] = {
    "one that asks for nothing runs everywhere": (shape(), (), True),
    "a taint that it does not tolerate keeps it off": (shape(), (TAINT,), False),
    "a soft taint does not": (shape(), (SOFT,), True),
    "one that tolerates the taint runs": (shape(tolerations=(Toleration(operator="Exists"),)), (TAINT,), True),
    "a selector that matches": (shape(selector={"tier": "gold"}), (), True),
    "a selector with another value": (shape(selector={"tier": "tin"}), (), False),
    "a selector on a label that is not there": (shape(selector={"zone": "a"}), (), False),
    "one term of two matches": (shape(terms=[term(("tier", "In", ["tin"])), term(("tier", "Exists", []))]), (), True),
    "no term matches": (shape(terms=[term(("tier", "In", ["tin"]))]), (), False),
    "all expressions of a term must match": (
        shape(terms=[term(("tier", "Exists", []), ("kubernetes.io/os", "NotIn", ["linux"]))]),
        (),
        False,
    ),
    "NotIn matches a label that is absent": (shape(terms=[term(("zone", "NotIn", ["a"]))]), (), True),
    "an expression on a label that is absent": (shape(terms=[term(("zone", "In", ["a"]))]), (), False),
    "an empty term matches nothing": (shape(terms=[term()]), (), False),
    "a term that cannot be read matches nothing": (shape(terms=[term(("tier", "Exists", ["gold"]))]), (), False),
    "a shape that cannot be judged runs nowhere": (unreadable_shape("default", {}, "cpu: what?"), (), False),
}


@pytest.mark.parametrize(("daemon", "taints", "runs"), CASES.values(), ids=CASES.keys())
def test_a_daemon_runs_where_it_is_let(daemon: PodShape, taints: Sequence[Taint], runs: bool) -> None:
    assert runs_on(daemon, LABELS, taints) is runs


# --- what a DaemonSet's pods will be --------------------------------------------------------------------------------


def daemon(*containers: dict[str, Any], **spec: Any) -> DaemonSet:
    """A DaemonSet in namespace `agents` with these containers."""
    named = [{"name": f"c{number}", **container} for number, container in enumerate(containers)]
    body = {
        "metadata": {"name": "agent", "namespace": "agents", "uid": "uid-agent"},
        "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": named, **spec}}},
    }
    return msgspec.convert(body, DaemonSet)


def limit_range(name: str = "defaults", **item: Any) -> LimitRange:
    body = {"metadata": {"name": name, "namespace": "agents"}, "spec": {"limits": [{"type": "Container", **item}]}}
    return msgspec.convert(body, LimitRange)


REQUESTS: dict[str, tuple[DaemonSet, list[LimitRange], dict[str, int]]] = {
    "what the template requests": (
        daemon({"resources": {"requests": {"cpu": "100m"}}}),
        [],
        {"cpu": 100, "pods": 1},
    ),
    "limits where the template requests nothing": (
        daemon({"resources": {"limits": {"cpu": "200m"}}}),
        [limit_range(defaultRequest={"cpu": "50m"})],
        {"cpu": 200, "pods": 1},
    ),
    "a LimitRange's default requests, for each container that has none": (
        daemon({}, {"resources": {"requests": {"cpu": "10m"}}}),
        [limit_range(defaultRequest={"cpu": "50m", "memory": "1Ki"})],
        {"cpu": 60, "memory": 2048, "pods": 1},
    ),
    "default requests of init containers too": (
        daemon({"resources": {"requests": {"cpu": "10m"}}}, initContainers=[{"name": "init"}]),
        [limit_range(defaultRequest={"cpu": "300m"})],
        {"cpu": 300, "pods": 1},
    ),
    "the first of two LimitRanges by name": (
        daemon({}),
        [limit_range("b", defaultRequest={"cpu": "2"}), limit_range("a", defaultRequest={"cpu": "1"})],
        {"cpu": 1000, "pods": 1},
    ),
    "nothing of a LimitRange for whole pods": (
        daemon({}),
        [limit_range(type="Pod", defaultRequest={"cpu": "1"})],
        {"pods": 1},
    ),
}


@pytest.mark.parametrize(("one", "ranges", "wanted"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_daemon_is_expected_to_request(one: DaemonSet, ranges: list[LimitRange], wanted: dict[str, int]) -> None:
    assert dict(daemon_shape(one, admission_of(ranges)).requests) == wanted


def test_twice_as_many_limit_ranges_take_at_most_two_and_a_half_times_the_work() -> None:
    counts = []
    for size in (16, 32):
        sets = DaemonSets()
        sets.changed(None, daemon(*({} for _ in range(20))))
        amounts = [{f"example.com/r{number}-{each}": "1" for each in range(10)} for number in range(size)]
        ranges = [limit_range(f"r{number:02}", default=some) for number, some in enumerate(amounts)]
        with Lines() as lines:
            for one in ranges:
                sets.admission.changed(None, one)
                sets.settle()
        counts.append(lines.count)
        assert len(sets.shapes()[0].requests) == MOST_DEFAULTS + 1  # pods
    assert counts[1] <= 2.5 * counts[0]


def test_a_limit_range_that_changes_no_default_changes_no_daemon() -> None:
    sets = DaemonSets()
    sets.changed(None, daemon({}))
    first, second = (limit_range(name, defaultRequest={"cpu": "1"}) for name in "ab")
    for old, new, changes in ((None, first, 1), (None, second, 0), (first, None, 0), (second, None, 1)):
        before = sets.version
        sets.admission.changed(old, new)
        sets.settle()
        assert sets.version - before == changes
    assert dict(sets.shapes()[0].requests) == {"pods": 1}


def test_a_limit_range_that_changes_again_and_again_costs_what_one_change_costs() -> None:
    """Between two questions: a tenant may patch it many times a second, in a namespace of many DaemonSets."""
    counts = []
    for times in (20, 40):
        cluster = Cluster(lambda _: {}, FakeClock())
        for number in range(50):
            one = daemon({})
            named = msgspec.structs.replace(one.metadata, name=f"d{number}", uid=f"d{number}")
            cluster.daemonset_changed(None, msgspec.structs.replace(one, metadata=named))
        cluster.snapshot()
        known: LimitRange | None = None
        with Lines() as lines:
            for cpus in range(1, times + 1):
                new = limit_range(defaultRequest={"cpu": str(cpus)})
                cluster.admission_changed(known, new)
                known = new
            snapshot = cluster.snapshot()
        counts.append(lines.count)
        assert {one.requests["cpu"] for one in snapshot.daemons} == {1000 * times}
    assert counts[1] <= 1.25 * counts[0]


def test_what_a_real_pod_requests_wins() -> None:
    one = daemon(
        {"resources": {"requests": {"cpu": "100m"}}, "ports": [{"hostPort": 9100}]},
        initContainers=[
            {"name": "big", "resources": {"requests": {"cpu": "9"}}},
            {"name": "side", "restartPolicy": "Always", "ports": [{"hostPort": 9200}]},
        ],
        nodeSelector={"tier": "gold"},
        overhead={"cpu": "1"},
    )
    seen = Resources.parse({"cpu": "250m", "memory": "64Mi", "pods": "1"})
    shape = daemon_shape(one, seen=seen)
    assert shape.requests == seen
    assert shape.node_selector == {"tier": "gold"}
    assert [port.host_port for port in shape.host_ports] == [9100, 9200]


def test_a_daemon_tolerates_what_its_controller_lets_it_tolerate() -> None:
    troubles = [
        Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"),
        Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
    ]
    offline = Taint(key="node.kubernetes.io/network-unavailable", effect="NoSchedule")
    assert runs_on(daemon_shape(daemon({})), LABELS, troubles)
    assert not runs_on(daemon_shape(daemon({})), LABELS, [offline])
    assert runs_on(daemon_shape(daemon({}, hostNetwork=True)), LABELS, [offline])
    assert not runs_on(daemon_shape(daemon({})), LABELS, [TAINT])


# --- long selections -------------------------------------------------------------------------------------------------


def expressions(count: int) -> dict[str, Any]:
    """The part of a pod's spec that requires this many labels of its node to be absent."""
    listed = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(count)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": listed}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def test_a_daemon_of_as_many_expressions_as_pods_may_have_runs() -> None:
    shape = daemon_shape(daemon({}, **expressions(MOST_EXPRESSIONS)))
    assert not shape.error
    assert runs_on(shape, LABELS, ())


@pytest.mark.parametrize("seen", [None, Resources.parse({"cpu": "1"})])
def test_a_daemon_of_more_runs_nowhere_and_keeps_nothing_of_them(seen: Resources | None) -> None:
    shape = daemon_shape(daemon({}, **expressions(MOST_EXPRESSIONS + 1)), seen=seen)
    assert "nodeSelectorTerms: has 513 of the 513 expressions" in shape.error
    assert not runs_on(shape, LABELS, ())
    assert shape.affinity is None


def test_the_terms_of_a_daemon_are_read_once_however_many_nodes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    of = Requirement.of

    def counted(key: str, *given: Any) -> Requirement:
        read.append(key)
        return of(key, *given)

    shape = daemon_shape(daemon({}, **expressions(20)))
    monkeypatch.setattr(Requirement, "of", counted)
    for number in range(10):
        assert runs_on(shape, {**LABELS, "kubernetes.io/hostname": f"n{number}"}, ())
    assert len(read) == 20
