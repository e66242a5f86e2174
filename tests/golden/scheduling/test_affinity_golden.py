"""Required affinity and anti-affinity between pods, one sentence a row; kube-scheduler's rules."""

from typing import Any

import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, PodAffinityTerm
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from tests.support.golden import Row, check, row
from tests.support.problems import (
    EPOCH,
    apart,
    app,
    instance_type,
    meant,
    near,
    node,
    of_app,
    offering,
    pod,
    pods,
    pool,
    problem,
    shape,
    spread,
    term,
)


def priced(name: str, cpu: str, **usd: float) -> InstanceType:
    """A type with its price by zone."""
    return instance_type(name, cpu, f"{cpu}Gi", offerings=[offering(zone, price) for zone, price in usd.items()])


ZONE, HOST, KIND = names.ZONE_LABEL, names.HOSTNAME_LABEL, names.CAPACITY_TYPE_LABEL
ABC = ("a", "b", "c")
TINY = instance_type("tiny", "1", "2Gi", 0.6, zones=ABC)
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ABC)
MEDIUM = instance_type("medium", "4", "8Gi", 2.0, zones=ABC)
LARGE = instance_type("large", "8", "16Gi", 4.0, zones=ABC)
ONE, ALL = pool(types=(SMALL,)), pool(types=(SMALL, MEDIUM, LARGE))
UNEVEN = pool(types=(priced("small", "2", a=10.0, b=1.0, c=5.0), priced("large", "8", a=39.0, b=4.0, c=19.0)))
DB, WEB, X = app("db"), app("web"), app("x")


def running(name: str, label: str = "db", **more: Any) -> Pod:
    return pod(name, of_app(label, **more))


def friend(**more: Any) -> PodShape:
    """Of a pod that wants to be on a node with pods like it."""
    return of_app("x", affinity=near(HOST, X), **more)


def both(*, to: PodAffinityTerm, off: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required=(to,)), pod_anti_affinity=PodAffinity(required=(off,)))


ROWS: dict[str, Row] = {
    # --- the price of zones ---
    "pods that stay together open the cheapest zone": row(
        problem(pods(4, of_app("db", "2", affinity=near(ZONE, DB)), "p"), UNEVEN), "p by zone: 4", "p-00000 has zone=b"),
    "pods that stay together go where all have room, whatever new nodes cost": row(
        problem(pods(2, of_app("db", "2", affinity=near(ZONE, DB)), "p"), UNEVEN, bins=[node("n", labels={ZONE: "a"})]), "p-00000 on n", "p-00001 on n"),
    "pods that stay together leave a free place alone that would cost more in the end": row(
        problem(pods(4, of_app("db", "2", affinity=near(ZONE, DB)), "p"), UNEVEN, bins=[node("n", "2", labels={ZONE: "a"})]),
        "p by zone: 4", "p-00000 has zone=b"),
    "pods that stay together take a free place that saves more than it costs": row(
        problem(pods(2, of_app("db", "2", affinity=near(ZONE, DB)), "p"), pool(types=(priced("small", "2", a=1.1, b=1.0),)), bins=[node("n", "2", labels={ZONE: "a"})]),
        "p by zone: 2", "p-00000 on n"),
    "what a pool of more weight costs decides, as it is asked first": row(
        problem(pods(2, of_app("db", "2", affinity=near(ZONE, DB)), "p"), pool("light", types=(priced("small", "2", a=5.0, b=1.0),)),
                pool("heavy", types=(priced("big", "2", a=10.0, b=12.0),), weight=10)), "p by zone: 2", "p-00000 has zone=a"),
    "pods that keep apart open the cheapest zones": row(
        problem(pods(2, of_app("db", affinity=apart(ZONE, DB)), "p"), UNEVEN), "p-00000 has zone=b", "p-00001 has zone=c"),
    "what cannot be spread evenly comes to the cheapest zones": row(
        problem(pods(5, of_app("db", "2", topology_spread_constraints=(spread(ZONE, DB),)), "p"), UNEVEN),
        "p by zone: 2 2 1", "p-00000 has zone=b", "p-00001 has zone=b", "p-00002 has zone=c", "p-00003 has zone=c", "p-00004 has zone=a"),
    "a single pod of a spread comes to the cheapest zone": row(
        problem([pod("p", of_app("db", topology_spread_constraints=(spread(ZONE, DB),)))], UNEVEN), "p has zone=b"),
    "of the emptiest zones the cheapest one is next": row(
        problem([pod("p", of_app("db", "2", topology_spread_constraints=(spread(ZONE, DB),)))], UNEVEN, bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old")])]),
        "p has zone=c"),
    "a spread by two labels opens the cheapest zone": row(
        problem([pod("p", of_app("db", topology_spread_constraints=(spread(ZONE, DB), spread(ZONE, app("db", rev="1"), 2)), labels={"rev": "1"}))], UNEVEN),
        "p has zone=b"),
    # --- affinity ---
    "a follower goes to the zone where its friend runs": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB)))], ONE, bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old")])]),
        "1 node", "p has zone=b"),
    "a follower goes to the node where its friend runs": row(
        problem([pod("p", shape(affinity=near(HOST, DB)))], ONE, bins=[node("m"), node("n", running=[running("old")])]), "p on n"),
    "a full node of the friend leaves the follower": row(
        problem([pod("p", shape(affinity=near(HOST, DB)))], ONE, bins=[node("n", "0", running=[running("old")])]), "p left: affinity"),
    "a friend being deleted is still a friend": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB)))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[replace(running("old"), deleted=EPOCH)])]),
        "p has zone=b"),
    "friends on a leaving node still draw": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB)))], ONE,
                bins=[node("n", "8", labels={ZONE: "b"}, running=[running("old")], leaving=True)]),
        "p has zone=b", "1 node"),
    "an unknown key leaves the first of its kind": row(
        problem([pod("p", of_app("db", affinity=near("planet", DB)))], ONE, bins=[node("n")]),
        "p left: 1 didn't match pod affinity rules (planet); NodePool \"default\": no instance type of the NodePool has the label planet"),
    "nobody to follow leaves the pod": row(problem([pod("p", shape(affinity=near(ZONE, DB)))], ALL), "p left: affinity"),
    "friends in another namespace do not count": row(
        problem([pod("p", shape(affinity=near(ZONE, DB)))], ALL, bins=[node("n", labels={ZONE: "b"}, running=[running("old", namespace="x")])]),
        "p left: affinity"),
    "friends in a namespace that is named count": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB, namespaces=("x",))))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old", namespace="x")])]),
        "p has zone=b"),
    "naming another namespace excludes the own": row(
        problem([pod("p", shape(affinity=near(ZONE, DB, namespaces=("x",))))], ALL,
                bins=[node("n", labels={ZONE: "b"}, running=[running("old")])]),
        "p left: affinity"),
    "namespaces are found by their labels": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB, namespace_selector=LabelSelector(match_labels={"team": "x"}))))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old", namespace="x")]),
                      node("m", "0", labels={ZONE: "c"}, running=[running("older", namespace="y")])],
                namespaces={"x": {"team": "x"}, "y": {"team": "y"}}),
        "p has zone=b"),
    "an empty namespaceSelector means every namespace": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB, namespace_selector=LabelSelector())))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old", namespace="x")])]),
        "p has zone=b"),
    "names and selector of namespaces add up": row(
        problem([pod("p", shape("2", affinity=near(ZONE, DB, namespaces=("z",), namespace_selector=LabelSelector(match_labels={"team": "x"}))))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old", namespace="z")])]),
        "p has zone=b"),
    "the first of its kind may choose": row(
        problem(pods(3, of_app("db", affinity=near(ZONE, DB)), "p"), ONE), "2 nodes", "p by zone: 3"),
    "the first of its kind may not choose where others run": row(
        problem(pods(2, of_app("db", "2", affinity=near(ZONE, DB)), "p"), ONE,
                bins=[node("n", "0", labels={ZONE: "c"}, running=[running("old")])]),
        "p-00000 has zone=c", "p-00001 has zone=c"),
    "all of one kind on one node": row(
        problem(pods(5, of_app("db", affinity=near(HOST, DB)), "p"), ALL), "1 node", "p-00000 on new large"),
    "more of one kind than one node holds leaves the rest": row(
        problem(pods(9, of_app("db", affinity=near(HOST, DB)), "p"), ALL), "1 node", "1 of p left: "),
    "one kind drawn to a zone that only some of it can be in": row(
        problem([*pods(2, of_app("db", "2", affinity=near(ZONE, DB)), "any"), pod("only", of_app("db", "2", selector={ZONE: "c"}, affinity=near(ZONE, DB)))], ONE),
        "nothing left", "any by zone: 2", "only has zone=c"),
    "a follower waits for its leader of the same batch": row(
        problem([pod("follower", shape("2", affinity=near(ZONE, DB))), pod("leader", of_app("db", "1", selector={ZONE: "c"}))], ONE),
        "follower has zone=c"),
    "a chain of followers": row(
        problem([pod("c", of_app("c", "2", affinity=near(ZONE, app("b")))), pod("b", of_app("b", "1", affinity=near(ZONE, app("a")))),
                 pod("a", of_app("a", "500m", selector={ZONE: "b"}))], ONE),
        "a has zone=b", "b has zone=b", "c has zone=b"),
    "two that follow each other and nobody leads leave both": row(
        problem([pod("x", of_app("x", affinity=near(ZONE, app("y")))), pod("y", of_app("y", affinity=near(ZONE, app("x"))))], ALL),
        "x left: affinity", "y left: affinity"),
    "all terms must hold on one node": row(
        problem([pod("p", shape("2", affinity=Affinity(pod_affinity=PodAffinity(required=(meant(ZONE, DB), meant(ZONE, WEB))))))], ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=[running("d")]), node("m", "0", labels={ZONE: "b"}, running=[running("w", "web")])]),
        "p left: affinity"),
    "one friend that all terms mean (kube-scheduler counts only such)": row(
        problem([pod("p", shape("2", affinity=Affinity(pod_affinity=PodAffinity(required=(meant(ZONE, DB), meant(ZONE, app("db", tier="x")))))))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[running("d", labels={"tier": "x"})])]),
        "p has zone=b"),
    "affinity over capacity types": row(
        problem([pod("p", shape("2", affinity=near(KIND, DB)))], ONE,
                bins=[node("n", "0", labels={KIND: "on-demand"}, running=[running("old")])]),
        "p has kind=on-demand"),
    "a node without the label is no place for a follower": row(
        problem([pod("p", shape(affinity=near(ZONE, DB)))], bins=[node("n", running=[running("old")])]), "p left: affinity"),
    "matchLabelKeys of affinity keeps revisions together": row(
        problem([pod("p", of_app("web", "2", labels={"rev": "2"}, affinity=near(ZONE, WEB, match_label_keys=("rev",))))], ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=[running("w1", "web", labels={"rev": "1"})]),
                      node("m", "0", labels={ZONE: "c"}, running=[running("w2", "web", labels={"rev": "2"})])]),
        "p has zone=c"),
    "affinity and a zone of the selector that do not meet": row(
        problem([pod("p", shape(selector={ZONE: "a"}, affinity=near(ZONE, DB)))], ALL,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[running("old")])]),
        "p left: affinity"),
    # --- anti-affinity ---
    "a node each": row(
        problem(pods(3, of_app("db", "100m", affinity=apart(HOST, DB)), "p"), ALL), "3 nodes", "p-00000 p-00001 p-00002 apart"),
    "a zone each": row(
        problem(pods(3, of_app("db", "100m", affinity=apart(ZONE, DB)), "p"), ALL), "p by zone: 1 1 1"),
    "one more than there are zones": row(
        problem(pods(4, of_app("db", "100m", affinity=apart(ZONE, DB)), "p"), ALL), "p by zone: 1 1 1", "1 of p left: affinity"),
    "existing nodes without the others are used first": row(
        problem(pods(2, of_app("db", affinity=apart(HOST, DB)), "p"), ONE, bins=[node("n", running=[running("old")]), node("m")]),
        "1 node", "p by host: 1 1"),
    "what runs keeps the newcomer off": row(
        problem([pod("p", shape("1", affinity=apart(ZONE, DB)))], ONE, bins=[node("n", "8", labels={ZONE: "a"}, running=[running("old")])]),
        "1 node"),
    "what runs and minds keeps others off though they do not mind": row(
        problem([pod("p", of_app("web"))], ONE, bins=[node("n", "8", running=[pod("old", shape(affinity=apart(HOST, WEB)))])]),
        "p on new small"),
    "what minds a whole zone keeps others off all of it": row(
        problem(pods(2, of_app("web", "2"), "p"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=[pod("old", shape(affinity=apart(ZONE, WEB)))]), node("m", "8", labels={ZONE: "a"})]),
        "2 nodes"),
    "what is being deleted still keeps others off": row(
        problem([pod("p", of_app("web"))], ONE,
                bins=[node("n", "8", running=[replace(pod("old", shape(affinity=apart(HOST, WEB))), deleted=EPOCH)])]),
        "p on new small"),
    "what is to be placed again does not": row(
        problem([pod("p", of_app("web"))], bins=[node("n", "8", running=[pod("p", of_app("web", affinity=apart(HOST, WEB)))])]), "p on n"),
    "of a batch one minds and the other does not, and they part": row(
        problem([pod("minds", shape("1", affinity=apart(HOST, WEB))), pod("p", of_app("web", "500m"))], ALL), "minds p apart"),
    "in whichever order they come": row(
        problem([pod("minds", shape("500m", affinity=apart(HOST, WEB))), pod("p", of_app("web", "1"))], ALL), "minds p apart"),
    "over zones too, though the zone of neither is settled": row(
        problem([pod("minds", shape("1", affinity=apart(ZONE, WEB))), pod("p", of_app("web", "500m"))], ALL), "2 nodes", "minds p apart"),
    "those who mind strangers only share": row(
        problem(pods(2, shape("1", affinity=apart(HOST, WEB)), "p"), ALL), "1 node"),
    "another namespace is not minded": row(
        problem([pod("p", shape(affinity=apart(HOST, DB)))], bins=[node("n", running=[running("old", namespace="x")])]), "p on n"),
    "another namespace is minded where it is named": row(
        problem([pod("p", shape(affinity=apart(HOST, DB, namespaces=("x",))))], bins=[node("n", running=[running("old", namespace="x")])]), "p left: affinity"),
    "every namespace is minded with an empty selector": row(
        problem([pod("p", shape(affinity=apart(HOST, DB, namespace_selector=LabelSelector())))],
                bins=[node("n", running=[running("old", namespace="x")])]),
        "p left: affinity"),
    "what runs minds a namespace by its labels": row(
        problem([pod("p", of_app("web"))],
                bins=[node("n", running=[pod("old", shape(namespace="x", affinity=apart(HOST, WEB, namespace_selector=LabelSelector(match_labels={"n": "d"}))))])],
                namespaces={"default": {"n": "d"}}),
        "p left: affinity"),
    "a tenant parts from every other tenant": row(
        problem([pod(f"{tenant}{n}", of_app("job", "500m", labels={"tenant": tenant}, affinity=apart(HOST, app("job"), mismatch_label_keys=("tenant",))))
                 for tenant in ("red", "blue") for n in range(2)], ALL),
        "2 nodes", "red0 red1 together", "blue0 blue1 together"),
    "NotIn selects pods without the label too": row(
        problem([pod("p", of_app("web", affinity=apart(HOST, LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="NotIn", values=("web",)),)))))],
                bins=[node("n", running=[pod("old", shape())])]),
        "p left: affinity"),
    "without a selector nobody is minded": row(
        problem(pods(2, of_app("db", affinity=apart(HOST, None)), "p"), ALL), "1 node"),
    "a node without the label is no obstacle": row(
        problem([pod("p", shape(affinity=apart(ZONE, DB)))], bins=[node("n", running=[running("old")])]), "p on n"),
    "anti-affinity over capacity types": row(
        problem(pods(2, of_app("db", affinity=apart(KIND, DB)), "p"), ALL), "p by kind: 1 1"),
    "the first of its kind with two terms over different keys": row(
        problem([pod("p", of_app("db", affinity=Affinity(pod_affinity=PodAffinity(required=(
            meant(HOST, LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="NotIn", values=("z",)),))),
            meant(ZONE, DB, namespace_selector=LabelSelector()))))))], bins=[node("n", labels={ZONE: "b"})]),
        "p on n"),
    "drawn to their own kind over two keys and spread over one of them": row(
        problem(pods(2, of_app("db", "100m", affinity=Affinity(pod_affinity=PodAffinity(required=(meant(ZONE, DB), meant(KIND, DB)))),
                               topology_spread_constraints=(spread(ZONE, DB),)), "p"), ONE),
        "1 of p left: "),
    "the first of its kind has a new node where those of now are shunned": row(
        problem([pod("p", of_app("db", affinity=both(to=meant(HOST, DB), off=meant(ZONE, WEB))))], ONE, bins=[node("n", labels={ZONE: "b"}, running=[running("old", "web")])]),
        "p on new small"),
    # --- together ---
    "near one kind and apart from one's own": row(
        problem([pod("cache", of_app("cache", selector={ZONE: "b"})),
                 *pods(2, of_app("web", "500m", affinity=both(to=meant(ZONE, app("cache")), off=meant(HOST, WEB))), "p")], ONE),
        "p by zone: 2", "p-00000 p-00001 apart"),
    "apart by node and even by zone": row(
        problem(pods(6, of_app("db", "100m", affinity=apart(HOST, DB), topology_spread_constraints=(spread(ZONE, DB),)), "p"), ALL),
        "6 nodes", "p by zone: 2 2 2"),
    "drawn to one zone and even over nodes": row(
        problem(pods(4, of_app("db", "1", affinity=near(ZONE, DB), topology_spread_constraints=(spread(HOST, DB),)), "p"), ONE),
        "p by zone: 4", "nothing left"),
    "a higher priority's zone is not taken by a lower one that minds": row(
        problem([pod("high", of_app("web", "500m", priority=9, selector={ZONE: "a"})), pod("low", shape("2", affinity=apart(ZONE, WEB), terms=None, selector={ZONE: "a"}))], ALL),
        "high has zone=a", "low left: affinity"),
    "one that minds goes to whichever zone is left": row(
        problem([pod("x", of_app("web", selector={ZONE: "a"})), pod("y", of_app("web", terms=[term((ZONE, "In", ["b"]))])), pod("p", shape("1", affinity=apart(ZONE, WEB)))], ALL),
        "p has zone=c"),
    # --- puzzles that no fixed order of classes and places solves: a search finds these ---
    "friends of one node go to the pool whose nodes hold them all": row(
        problem(pods(2, friend(selector={ZONE: "a"}), "p"), pool("big", types=(SMALL,)), pool("first", types=(TINY,))),
        "1 node", "nothing left"),
    "friends of one node leave the existing node that only holds some of them": row(
        problem([*pods(2, friend(cpu="2"), "p"), pod("q", friend())], pool(types=(SMALL, LARGE)), bins=[node("n", "4")]),
        "1 node", "nothing left"),
    "a pod that may only be in one zone has its friend come there, with room for both": row(
        problem([pod("p", of_app("x", "1500m")), pod("q", of_app("y", affinity=near(HOST, X), selector={ZONE: "a"}))],
                pool(types=(SMALL, LARGE)), bins=[node("n", "2", labels={ZONE: "b"})]),
        "p q together", "p has zone=a"),
    "friends are shared out over those who need one each": row(
        problem([*pods(2, of_app("x"), "p"), *pods(2, of_app("y", affinity=near(HOST, X)), "q")], pool(types=(SMALL,))),
        "2 nodes", "nothing left"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
