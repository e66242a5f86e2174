"""Which pods surely need a new node: what is proved of each by itself, without a question."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.attempts.attempt import Attempt
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.prepared import Prepared, prepare, without_place
from provisioner.scheduling.problem import Bin, Changes
from provisioner.values.taints import Taint
from tests.support.problems import apart, app, instance_type, near, node, of_app, pod, pool, problem, spread

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
ABC = ("a", "b", "c")
IN_ZONES = {"topology_spread_constraints": (spread(ZONE, app("web")),)}


def running(name: str, on: str, **more: Any) -> Pod:
    return changed(pod(name, of_app("web", **more)), node_name=on, phase="Running", scheduled=True)


def there(name: str, zone: str, pods: tuple[Pod, ...] = (), **more: Any) -> Bin:
    return node(name, labels={ZONE: zone}, running=pods, **more)


def world(*bins: Bin, zones: tuple[str, ...] = ABC) -> Prepared:
    return prepare(problem((), pool(types=(instance_type("small", "2", "4Gi", 1.0, zones=zones),)), bins=bins))


def lacking(prepared: Prepared, *pods: Pod, leaving: tuple[str, ...] = ("home",)) -> list[str]:
    return [one.name for one in without_place(prepared, pods, leaving)]


@pytest.mark.parametrize(
    ("other", "lacks"),
    [
        ({}, False),
        ({"cpu": "500m"}, True),
        ({"memory": "512Mi"}, True),
        ({"max_pods": 0}, True),
        ({"taints": (Taint("a", "NoSchedule", "b"),)}, True),
        ({"taints": (Taint("a", "PreferNoSchedule", "b"),)}, False),
        ({"leaving": True}, True),
        ({"closed": True}, True),
    ],
    ids=str,
)
def test_a_pod_without_room_that_it_may_use_needs_a_new_node(other: Mapping[str, Any], lacks: bool) -> None:
    one = running("w", "home")
    prepared = world(there("home", "a", (one,)), there("other", "a", **other))
    assert lacking(prepared, one) == ["w"] * lacks
    assert lacking(prepared, one, leaving=("home", "other")) == ["w"]


def test_room_that_comes_or_goes_counts_at_once() -> None:
    one = running("w", "home")
    prepared = world(there("home", "a", (one,)), there("other", "a", cpu="500m"))
    assert lacking(prepared, one) == ["w"]
    roomy = prepared.updated(Changes(bins={"other": there("other", "a")}))
    assert (lacking(prepared, one), lacking(roomy, one)) == (["w"], [])
    assert lacking(roomy.updated(Changes(bins={"other": there("other", "a", closed=True)})), one) == ["w"]


def test_a_pod_that_keeps_off_others_needs_a_new_node_where_these_have_all_room() -> None:
    one = running("w", "home", affinity=apart(HOST, app("web")))
    beside = there("other", "a", (running("b", "other"),))
    prepared = world(there("home", "a", (one,)), beside)
    assert lacking(prepared, one) == ["w"]
    assert lacking(prepared.updated(Changes(bins={"other": there("other", "a")})), one) == []
    assert lacking(prepared.updated(Changes(bins={"new": there("new", "a")})), one) == []


def spread_out(at_home: int = 1, in_b: int = 0, **more: Any) -> tuple[Prepared, Pod]:
    """Pods spread over zones, of which one moves from zone a; only a node in zone b has room."""
    mine = tuple(running(f"a{n}", "home", **(more or IN_ZONES)) for n in range(at_home))
    theirs = tuple(running(f"b{n}", "other", **IN_ZONES) for n in range(in_b))
    return world(there("home", "a", mine), there("other", "b", theirs), there("third", "c", cpu="0")), mine[0]


def test_a_pod_that_only_a_full_zone_has_room_for_needs_a_new_node() -> None:
    assert lacking(*spread_out(in_b=0)) == []
    assert lacking(*spread_out(in_b=1)) == ["a0"]


def test_pods_that_come_or_go_in_a_zone_count_at_once() -> None:
    prepared, one = spread_out(in_b=1)
    assert lacking(prepared, one) == ["a0"]
    empty = prepared.updated(Changes(bins={"other": there("other", "b")}))
    assert (lacking(prepared, one), lacking(empty, one)) == (["a0"], [])
    fuller = empty.updated(Changes(bins={"third": there("third", "c", (running("c0", "third", **IN_ZONES),), cpu="0")}))
    assert lacking(fuller, one) == []


def test_where_a_pod_leaves_another_may_come() -> None:
    one, two = running("a0", "home", **IN_ZONES), running("b0", "near", **IN_ZONES)
    full = there("home", "a", (one,), cpu="0"), there("near", "b", (two,), cpu="0"), there("far", "c", cpu="0")
    prepared = world(*full, there("other", "b"))
    assert lacking(prepared, one) == ["a0"]
    assert lacking(prepared, two, leaving=("near",)) == []
    assert lacking(prepared, one) == ["a0"]


def one_each(zones: tuple[str, ...], *others: Bin) -> tuple[Prepared, Pod]:
    """A pod in zone b and, beside the one that moves, one in zone a: zone b takes it unless zone c counts."""
    one = running("a0", "home", **IN_ZONES)
    bins = there("home", "a", (one,)), there("second", "a", (running("a1", "second", **IN_ZONES),), cpu="0")
    return world(*bins, there("other", "b", (running("b0", "other", **IN_ZONES),)), *others, zones=zones), one


def test_a_zone_that_all_nodes_leave_does_not_count_from_then_on() -> None:
    prepared, one = one_each(("a", "b"), there("third", "c", cpu="0"))
    left = prepared.updated(Changes(bins={"third": there("third", "c", cpu="0", leaving=True)}))
    assert [lacking(each, one) for each in (prepared, left, prepared)] == [["a0"], [], ["a0"]]
    gone = prepared.updated(Changes(gone=frozenset(("third",))))
    assert [lacking(each, one) for each in (gone, prepared)] == [[], ["a0"]]


def test_a_zone_counts_while_new_nodes_may_come_to_it() -> None:
    prepared, one = one_each(ABC)
    fewer = prepare(replace(prepared.world, pools=one_each(("a", "b"))[0].world.pools), prepared)
    assert [lacking(each, one) for each in (prepared, fewer, prepared)] == [["a0"], [], ["a0"]]


@pytest.mark.parametrize(
    "more",
    [
        {"topology_spread_constraints": (spread(ZONE, app("web")),), "affinity": near(ZONE, app("web"))},
        {"topology_spread_constraints": (spread(ZONE, app("web"), min_domains=3),)},
        {"topology_spread_constraints": (spread(ZONE, app("web"), node_taints_policy="Honor"),)},
    ],
    ids=["near others", "minDomains", "taints"],
)
def test_of_what_has_more_to_mind_nothing_is_proved(more: Mapping[str, Any]) -> None:
    assert lacking(*spread_out(in_b=1, **more)) == []


def test_pods_that_were_promised_to_a_node_leave_it_with_each_other() -> None:
    """Once the job has gone from zone a to zone c, zone b takes the other pod."""
    jobs = {"topology_spread_constraints": (spread(ZONE, app("job")),)}
    one = running("w", "old", cpu="3", **jobs)
    job, second, *others = (
        changed(pod(f"j{number}", of_app("job")), node_name=name, phase="Running", scheduled=True)
        for number, name in enumerate(("old", "second", "other", "other"))
    )
    bins = there("home", "a", (one, job)), there("second", "a", (second,), cpu="0"), there("old", "a", cpu="0")
    prepared = world(*bins, there("other", "b", (*others,), cpu="3"), there("third", "c", cpu="1"))
    assert one in prepared.solve((one, job), leaving=("home", "old")).existing.get("other", ())
    assert lacking(prepared, one, job, leaving=("home", "old")) == []


@pytest.mark.parametrize("more", [0, 40])
def test_of_pods_that_are_spread_over_many_domains_nothing_is_proved(more: int) -> None:
    """A tenant may name a label that is another on each node; what is remembered of a spread grows with its domains."""
    mine = {"topology_spread_constraints": (spread("rack", app("web")),)}
    one, other = running("a0", "home", **mine), running("b0", "other", **mine)
    racks = ["home", "other", *(f"r{number}" for number in range(more + 1))]
    there_is = {"home": (one,), "other": (other,)}
    bins = [node(name, labels={"rack": name}, running=there_is.get(name, ()), cpu="0") for name in racks]
    bins[1] = replace(bins[1], room=node("other").room)
    prepared = world(*bins)
    assert lacking(prepared, one) == ["a0"] * (not more)
    assert prepared.solve((one,), leaving=("home",)).existing == {}


def test_what_is_remembered_of_sizes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.scheduling.prepared._MOST_PROOFS", 4)
    pods = tuple(running(f"w{number}", "home", cpu=f"{number + 1}m") for number in range(20))
    prepared = world(there("home", "a", pods), there("other", "a", cpu="10m"))
    expected = [f"w{number}" for number in range(10, 20)]
    for _ in range(2):
        assert [name for one in pods for name in lacking(prepared, one)] == expected
    assert len(prepared._roomy) <= 4


def test_of_pods_that_count_each_other_nothing_is_proved() -> None:
    """Where the second goes to zone c, the first may go to zone b."""
    prepared, one = spread_out(at_home=2, in_b=1)
    assert lacking(prepared, *prepared.world.bins[0].pods) == lacking(prepared, one) == []


def test_what_keeps_off_pods_in_a_zone_may_go_so_nothing_is_proved() -> None:
    shy = {**IN_ZONES, "affinity": apart(ZONE, app("job"))}
    one, job = running("a0", "home", **shy), changed(pod("j", of_app("job")), node_name="other", phase="Running")
    prepared = world(there("home", "a", (one,)), there("other", "b", (job,)), there("third", "c", cpu="0"))
    free = prepared.updated(Changes(bins={"other": there("other", "b")}))
    assert [lacking(each, one) for each in (prepared, free)] == [[], []]


def alike(daemons: tuple[PodShape, ...] = (), **of_db: Any) -> tuple[Prepared, Pod, Pod]:
    """Two Deployments, with as many pods each in every zone, of which one pod each moves; only a node in zone b has room."""
    web, db = (
        {"topology_spread_constraints": (spread(ZONE, app(name)),), **more}
        for name, more in (("web", {}), ("db", of_db))
    )
    at_home, in_b = (
        [
            changed(pod(f"{name}-{where}", of_app(name, **more)), node_name=where, phase="Running", scheduled=True)
            for name, more in (("web", web), ("db", db))
        ]
        for where in ("home", "other")
    )
    shy = of_app("job", affinity=apart(ZONE, LabelSelector(match_labels={"kept-off": "yes"})))
    job = changed(pod("job", shy), node_name="third", phase="Running", scheduled=True)
    bins = there("home", "a", tuple(at_home)), there("other", "b", tuple(in_b)), there("third", "c", (job,), cpu="0")
    return prepare(replace(world(*bins).world, daemons=daemons)), at_home[0], at_home[1]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods whose domains the solver was asked for."""
    asked: list[str] = []
    found = Attempt.legal_domains

    def told(self: Attempt, one: PodClass) -> Any:
        asked.append(one.pods[0].name)
        return found(self, one)

    monkeypatch.setattr(Attempt, "legal_domains", told)
    return asked


@pytest.mark.parametrize("daemons", [(), (of_app("agent", cpu="1m"),)], ids=["", "daemons"])
def test_what_is_known_of_one_spread_is_known_of_others_with_as_many_pods(
    settings: list[str], daemons: tuple[PodShape, ...]
) -> None:
    prepared, web, db = alike(daemons)
    assert [lacking(prepared, one) for one in (web, db)] == [["web-home"], ["db-home"]]
    assert settings == ["web-home"]


@pytest.mark.parametrize(
    "of_db",
    [
        {"labels": {"app": "db", "kept-off": "yes"}},
        {"affinity": apart(ZONE, app("job"))},
        {"affinity": near(ZONE, app("db"))},
        {"daemons": (of_app("db", cpu="1m"),)},
    ],
    ids=["kept off by others", "apart in zones", "near", "counted with daemons"],
)
def test_who_minds_more_than_a_spread_is_not_taken_for_alike(of_db: Mapping[str, Any]) -> None:
    prepared, web, db = alike(**of_db)
    assert lacking(prepared, web) == ["web-home"]
    afresh = prepare(prepared.world)
    assert lacking(prepared, db) == lacking(afresh, db) == []
