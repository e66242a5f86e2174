"""The model of kube-scheduler: which nodes take a pod, and which of them it chooses."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.scheduling.constraints.demands import Count
from provisioner.simulator import kube_scheduler
from provisioner.simulator.api_server import ApiServer
from provisioner.simulator.kube_scheduler import KubeScheduler
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from tests.unit.simulator.days import template

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "own", "controller": True}


class Cluster:
    """Nodes and pods, and kube-scheduler."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.agenda = Agenda(self.clock)
        self.server = ApiServer(self.clock)
        self.scheduler = KubeScheduler(self.server, self.clock, self.agenda, random.Random(1))
        self.server.told = self.scheduler.heard

    def node(self, name: str, cpu: str = "4", memory: str = "16Gi", zone: str = "a", **spec: Any) -> None:
        labels = {names.HOSTNAME_LABEL: name, names.ZONE_LABEL: zone}
        room = {"cpu": cpu, "memory": memory, "pods": "110"}
        self.server.store(
            "nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": room}}
        )

    def pod(
        self, name: str, app: str = "web", *, owner: bool = False, status: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        made = template(app, **more)
        meta = {
            **made["metadata"],
            "name": name,
            "namespace": "default",
            **({"ownerReferences": [OWNER]} if owner else {}),
        }
        self.server.store(
            "pods", {"metadata": meta, "spec": made["spec"], "status": {"phase": "Pending", **(status or {})}}
        )

    def places(self) -> dict[str, str]:
        """Of every pod, once nothing happens any more; "" where it waits."""
        while self.agenda.turn(self.clock.seconds):
            pass
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in self.server.all("pods")}


def test_room_taints_selectors_and_cordons_keep_pods_off() -> None:
    cluster = Cluster()
    cluster.node("small", cpu="1")
    cluster.node("tainted", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    cluster.node("closed", unschedulable=True)
    cluster.pod("big", cpu="2")
    cluster.pod("tolerant", cpu="2", tolerations=[{"key": "team", "operator": "Exists"}])
    cluster.pod("picky", nodeSelector={names.ZONE_LABEL: "b"})
    assert cluster.places() == {"big": "", "tolerant": "tainted", "picky": ""}
    told = {
        one["metadata"]["name"]: one["status"].get("conditions", [{}])[0].get("reason")
        for one in cluster.server.all("pods")
    }
    assert (told["big"], told["picky"], told["tolerant"]) == ("Unschedulable", "Unschedulable", None)


def test_a_node_that_is_cordoned_no_more_takes_who_waits() -> None:
    cluster = Cluster()
    cluster.node("one", unschedulable=True)
    cluster.pod("web")
    assert cluster.places() == {"web": ""}
    cluster.node("one")
    assert cluster.places() == {"web": "one"}


def test_who_waits_is_bound_as_soon_as_there_is_room_the_more_important_first() -> None:
    cluster = Cluster()
    cluster.pod("first", cpu="3")
    cluster.pod("important", cpu="3", priority=10)
    assert set(cluster.places().values()) == {""}
    cluster.node("one")
    assert cluster.places() == {"first": "", "important": "one"}
    cluster.server.drop("pods", "important", "default")
    assert cluster.places() == {"first": "one"}


def test_a_nominated_pod_gets_its_node_and_keeps_its_room_there() -> None:
    cluster = Cluster()
    cluster.node("a")
    cluster.server.change("nodes", "a", {"spec": {"taints": [{"key": "wait", "effect": "NoSchedule"}]}})
    cluster.pod("stranger", cpu="3")
    cluster.pod("planned", cpu="3", status={"nominatedNodeName": "a"})
    assert set(cluster.places().values()) == {""}
    cluster.server.change("nodes", "a", {"spec": {"taints": None}})
    assert cluster.places() == {"planned": "a", "stranger": ""}
    cluster.node("empty", cpu="16")
    cluster.node("full", cpu="4")
    cluster.pod("filler", cpu="2", nodeSelector={names.HOSTNAME_LABEL: "full"})
    cluster.places()
    cluster.pod("chosen", status={"nominatedNodeName": "full"})
    assert cluster.places()["chosen"] == "full", "though another one has the better score"


@pytest.mark.parametrize(("owner", "small"), [(True, 1), (False, 0)])
def test_the_emptier_node_is_preferred_and_brothers_are_spread(owner: bool, small: int) -> None:
    cluster = Cluster()
    cluster.node("large", cpu="64", memory="256Gi")
    cluster.node("small", cpu="4")
    for number in range(4):
        cluster.pod(f"web-{number}", owner=owner, cpu="500m")
    assert list(cluster.places().values()).count("small") == small


def spread(key: str, skew: int = 1) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }


def test_a_hard_spread_holds() -> None:
    cluster = Cluster()
    cluster.node("a", zone="a", cpu="16")
    cluster.node("b", zone="b", cpu="1500m")
    for number in range(4):
        cluster.pod(f"web-{number}", topologySpreadConstraints=[spread(names.ZONE_LABEL)])
    assert sorted(cluster.places().values()) == ["", "a", "a", "b"]


def test_a_spread_does_not_count_a_pod_that_is_being_deleted() -> None:
    """The successor of an evicted pod has a place in its zone at once; so does kube-scheduler's `countPodsMatchSelector`."""
    cluster = Cluster()
    cluster.node("a", zone="a", cpu="16")
    cluster.node("full", zone="b", cpu="500m")
    for name in ("web-0", "web-1"):
        cluster.pod(name, topologySpreadConstraints=[spread(names.ZONE_LABEL)])
    assert cluster.places() == {"web-0": "a", "web-1": ""}
    cluster.server.remove("pods", "web-0", "default")
    cluster.pod("web-2", topologySpreadConstraints=[spread(names.ZONE_LABEL)])
    places = cluster.places()
    assert places["web-0"] == places["web-2"] == "a", "the old one is still there"
    cluster.pod("web-3", topologySpreadConstraints=[spread(names.ZONE_LABEL)])
    assert cluster.places()["web-3"] == "", "it is counted out once"


def test_brothers_that_are_being_deleted_are_not_spread_over() -> None:
    cluster = Cluster()
    cluster.node("large", cpu="64", memory="256Gi")
    cluster.pod("old", owner=True, cpu="500m")
    cluster.places()
    cluster.node("small", cpu="4")
    cluster.server.remove("pods", "old", "default")
    cluster.pod("new", owner=True, cpu="500m")
    assert cluster.places()["new"] == "large", "by its room"


def test_anti_affinity_counts_a_pod_until_it_is_gone() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names.HOSTNAME_LABEL}
    apart: dict[str, Any] = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    cluster = Cluster()
    cluster.node("a", cpu="16")
    cluster.pod("old", **apart)
    cluster.places()
    cluster.server.remove("pods", "old", "default")
    cluster.pod("new", **apart)
    assert cluster.places()["new"] == ""


@pytest.mark.parametrize("other_says", [True, False])
def test_anti_affinity_holds_from_both_sides(other_says: bool) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names.HOSTNAME_LABEL}
    apart: dict[str, Any] = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    cluster = Cluster()
    cluster.node("a", cpu="16")
    cluster.pod("one", **(apart if other_says else {}))
    cluster.places()
    cluster.pod("two", **({} if other_says else apart))
    assert cluster.places() == {"one": "a", "two": ""}
    cluster.node("b", cpu="2")
    assert cluster.places()["two"] == "b"


def test_affinity_waits_for_a_friend() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": names.ZONE_LABEL}
    near: dict[str, Any] = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    cluster = Cluster()
    cluster.node("a", zone="a")
    cluster.node("b", zone="b", cpu="8")
    cluster.pod("web", **near)
    assert cluster.places()["web"] == ""
    cluster.pod("db", app="db", nodeSelector={names.ZONE_LABEL: "a"})
    assert cluster.places() == {"db": "a", "web": "a"}


def test_preferred_node_affinity_outweighs_room() -> None:
    wish = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": ["b"]}]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    cluster = Cluster()
    cluster.node("a", zone="a", cpu="8")
    cluster.node("b", zone="b", cpu="4")
    cluster.pod("web", affinity=affinity)
    cluster.pod("other")
    assert cluster.places() == {"web": "b", "other": "a"}


def test_nothing_is_kept_of_nodes_that_are_gone() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.node(f"n{number}")
        cluster.pod(f"p{number}")
        assert cluster.places()[f"p{number}"] == f"n{number}"
        cluster.server.drop("nodes", f"n{number}")
        cluster.server.drop("pods", f"p{number}", "default")
    cluster.node("empty")
    cluster.server.drop("nodes", "empty")
    assert not cluster.scheduler._orphans


def counted(nodes: Iterable[Any], count: Count) -> dict[str, int]:
    """The pods that a count means, by domain, counted one by one."""
    found: dict[str, int] = {}
    for node in nodes:
        if (domain := node.label(count.key)) is not None and kube_scheduler._is_eligible(node, count):
            meant = [one for one in node.pods.values() if one.facts is not None and count.include(one.facts.pod, {})]
            pods = sum(not (count.spread and one.leaving) for one in meant)
            found[domain] = found.get(domain, 0) + pods
    return found


def test_what_was_counted_for_pods_long_ago_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a week of Jobs that spread over zones, each its own pods, fills the memory."""
    monkeypatch.setattr(kube_scheduler, "_MOST_COUNTS", 3)
    cluster = Cluster()
    cluster.node("a", zone="a", cpu="64")
    cluster.node("b", zone="b", cpu="16")
    for number in range(12):
        app = f"job-{number % 6}"
        own = {**spread(names.ZONE_LABEL), "labelSelector": {"matchLabels": {"app": app}}}
        cluster.pod(f"p{number}", app, topologySpreadConstraints=[own])
        cluster.places()
        assert len(cluster.scheduler.counts._known) == min(number + 1, 3)
    places = cluster.places()
    assert all({places[f"p{number}"], places[f"p{number + 6}"]} == {"a", "b"} for number in range(6))


def test_nodes_remember_a_few_kinds_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_scheduler, "_MOST_KINDS", 2)
    cluster = Cluster()
    cluster.node("a", zone="a")
    for number in range(6):
        cluster.pod(f"p{number}", nodeSelector={names.ZONE_LABEL: "a", names.HOSTNAME_LABEL: "ab"[number % 2] * number})
        cluster.places()
        assert len(cluster.scheduler.nodes["a"].admitted) <= 2
    assert not any(cluster.places().values())
    cluster.pod("own", nodeSelector={names.HOSTNAME_LABEL: "a"})
    assert cluster.places()["own"] == "a"


TIES = {
    "topologySpreadConstraints": [spread(names.ZONE_LABEL)],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        }
    },
}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_known_of_nodes_is_what_looking_at_each_of_them_says(seed: int) -> None:
    cluster, chance = Cluster(), random.Random(seed)
    some_fit = some_count = 0
    scheduler = cluster.scheduler
    port = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
    for number in range(120):
        nodes, pods = list(scheduler.nodes), cluster.server.all("pods")
        match chance.randrange(8):
            case 0 | 1:
                cluster.node(f"n{chance.randrange(20)}", cpu=chance.choice(("2", "4")), zone=chance.choice("ab"))
            case 2 if nodes:
                cluster.node(chance.choice(nodes), unschedulable=chance.random() < 0.5)
            case 3 if len(nodes) > 2:
                cluster.server.drop("nodes", chance.choice(nodes))
            case 4 if pods:
                cluster.server.remove("pods", chance.choice(pods)["metadata"]["name"], "default")
            case 5 if pods:
                cluster.server.drop("pods", chance.choice(pods)["metadata"]["name"], "default")
            case 6 if nodes and pods:
                told = {"status": {"nominatedNodeName": chance.choice(nodes)}}
                cluster.server.change("pods", chance.choice(pods)["metadata"]["name"], told, "default")
            case _:
                own: dict[str, Any] = {"containers": [port]} if chance.random() < 0.2 else {"cpu": chance.choice("12")}
                selector = {names.ZONE_LABEL: "b"} if chance.random() < 0.3 else {}
                app = chance.choice(("web", "db"))
                ties: dict[str, Any] = chance.choice(({}, TIES))
                cluster.pod(f"p{number}", app, nodeSelector=selector, priority=chance.choice((0, 5)), **ties, **own)
        if chance.random() < 0.6:
            cluster.places()
        for pod in scheduler._pods.values():
            facts = pod.facts
            if facts is not None:
                one_by_one = [one for one in scheduler.nodes.values() if scheduler.takes(one, pod, facts, None)]
                assert scheduler._fitting_of(pod, facts) == one_by_one
                some_fit += bool(one_by_one)
        for count in tuple(scheduler.counts._known):
            assert dict(scheduler.counts.sums(count)) == counted(scheduler.nodes.values(), count)
            some_count += any(scheduler.counts.sums(count).values())
    assert min(some_fit, some_count) > 50
