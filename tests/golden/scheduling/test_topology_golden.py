"""Topology spread, one sentence a row. Where kube-scheduler and Karpenter differ, kube-scheduler is right and the row says so."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.core import TopologySpreadConstraint
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement, OwnerReference
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.problem import SpreadDefaults
from provisioner.values.taints import Taint, Toleration
from tests.support.golden import Row, check, row
from tests.support.problems import (
    EPOCH,
    app,
    instance_type,
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

ZONE, HOST, KIND, ARCH, POOL = (
    names.ZONE_LABEL,
    names.HOSTNAME_LABEL,
    names.CAPACITY_TYPE_LABEL,
    names.ARCH_LABEL,
    names.NODEPOOL_LABEL,
)
ABC = ("a", "b", "c")
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ABC)
MEDIUM = instance_type("medium", "4", "8Gi", 2.0, zones=ABC)
LARGE = instance_type("large", "8", "16Gi", 4.0, zones=ABC)
ARM = instance_type("arm", "4", "8Gi", 1.5, arch="arm64", zones=ABC)
ONE, TWO, ALL = pool(types=(SMALL,)), pool(types=(MEDIUM,)), pool(types=(SMALL, MEDIUM, LARGE))
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
TOLERATES = Toleration(key="dedicated", operator="Exists")
WEB = app("web")
SOFT = "ScheduleAnyway"


def web(
    count: int, *constraints: TopologySpreadConstraint, cpu: str = "1", name: str = "web", **more: Any
) -> tuple[Pod, ...]:
    return pods(count, of_app("web", cpu, topology_spread_constraints=constraints, **more), name)


def plain(count: int, cpu: str = "1", name: str = "old", label: str = "web", **more: Any) -> tuple[Pod, ...]:
    """Pods that others count and that do not spread themselves."""
    return pods(count, of_app(label, cpu, **more), name)


def owned(of: Iterable[Pod], uid: str) -> tuple[Pod, ...]:
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=uid, uid=uid, controller=True)
    return tuple(replace(one, owner=owner) for one in of)


def revision(rev: str, *constraints: TopologySpreadConstraint) -> PodShape:
    return of_app("web", "500m", labels={"rev": rev}, topology_spread_constraints=constraints)


ROWS: dict[str, Row] = {
    # --- zones ---
    "six pods over three zones, two each": row(
        problem(web(6, spread(ZONE, WEB), cpu="2"), ONE), "6 nodes", "web by zone: 2 2 2"),
    "seven pods over three zones differ by one": row(
        problem(web(7, spread(ZONE, WEB), cpu="2"), ONE), "web by zone: 3 2 2"),
    "pods that share a zone share its nodes": row(
        problem(web(6, spread(ZONE, WEB)), ONE), "3 nodes", "web by zone: 2 2 2"),
    "a skew of two allows two more in one zone": row(
        problem(web(2, spread(ZONE, WEB, 2)), ONE, bins=[node("n", "2", labels={ZONE: "a"})]), "0 nodes", "web by zone: 2"),
    "what runs in a zone counts": row(
        problem(web(4, spread(ZONE, WEB), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=plain(2))]),
        "web by zone: 2 2"),
    "what runs and is being deleted does not count": row(
        problem(web(3, spread(ZONE, WEB), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=[replace(one, deleted=EPOCH) for one in plain(2)])]),
        "web by zone: 1 1 1"),
    "what runs in another namespace does not count": row(
        problem(web(3, spread(ZONE, WEB), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=plain(2, namespace="other"))]),
        "web by zone: 1 1 1"),
    "what runs with another label does not count": row(
        problem(web(3, spread(ZONE, WEB), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=plain(2, label="api"))]),
        "web by zone: 1 1 1"),
    "a pod that is to be placed again does not count where it was": row(
        problem(web(3, spread(ZONE, WEB), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=web(3, spread(ZONE, WEB), cpu="2"))]),
        "web by zone: 1 1 1"),
    "pods on a leaving node count though it takes none": row(
        problem(web(4, spread(ZONE, WEB), cpu="2"), ONE,
                bins=[node("n", "8", labels={ZONE: "a"}, running=plain(2), leaving=True)]),
        "4 nodes", "web by zone: 2 2"),
    "a zone of the types is a domain although no node is there yet": row(
        problem(web(2, spread(ZONE, WEB)), ONE, bins=[node("n", "8", labels={ZONE: "a"})]), "web by zone: 1 1"),
    "a zone that the pool excludes is none": row(
        problem(web(4, spread(ZONE, WEB), cpu="2"), pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,))), "web by zone: 2 2"),
    "a zone without an available offering is none": row(
        problem(web(4, spread(ZONE, WEB), cpu="2"),
                pool(types=(instance_type("small", "2", "4Gi", zones=ABC, unavailable=[("c", "spot"), ("c", "on-demand")]),))),
        "web by zone: 2 2"),
    "a bad zone of an unrelated pool changes nothing (Karpenter counts it)": row(
        problem(web(4, spread(ZONE, WEB), cpu="2"), pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,)),
                pool("other", (ZONE, "In", ["mars"]), types=(instance_type("odd", "2", "4Gi", zones=["mars"]),), taints=[DEDICATED])),
        "web by zone: 2 2"),
    "a zone that the pod's selector excludes is none": row(
        problem(web(4, spread(ZONE, WEB), cpu="2", terms=[term((ZONE, "In", ["a", "b"]))]), ONE), "web by zone: 2 2"),
    "a zone of now that the selector excludes is none": row(
        problem(web(2, spread(ZONE, WEB), terms=[term((ZONE, "In", ["b"]))]), ONE,
                bins=[node("n", labels={ZONE: "a"})]),
        "web by zone: 2"),
    "a pod of one zone spreads within it": row(
        problem(web(3, spread(ZONE, WEB), selector={ZONE: "b"}), ONE), "web by zone: 3"),
    "pods with a narrower selector still count for the others": row(
        problem([*web(2, spread(ZONE, WEB), cpu="2", selector={ZONE: "a"}, name="web-a"), *web(4, spread(ZONE, WEB), cpu="2", name="web-x")], ONE),
        "nothing left"),
    "the selector need not select the pod itself": row(
        problem(web(3, spread(ZONE, app("db")), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=plain(3, label="db"))]),
        "nothing left", "web by zone: 3"),
    "without a selector nothing is counted": row(
        problem(web(3, spread(ZONE, None)), ONE), "nothing left"),
    "the empty selector counts every pod of the namespace": row(
        problem(web(2, spread(ZONE, LabelSelector()), cpu="2"), ONE,
                bins=[node("n", "0", labels={ZONE: "a"}, running=plain(2, label="other")),
                      node("m", "0", labels={ZONE: "b"}, running=plain(2, label="other", name="older"))]),
        "web by zone: 2"),
    "expressions of the selector count": row(
        problem(web(3, spread(ZONE, LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In", values=("web", "api")),))), cpu="2"),
                ONE, bins=[node("n", "0", labels={ZONE: "a"}, running=plain(2, label="api"))]),
        "web by zone: 2 1"),
    "two constraints with one key both hold": row(
        problem([pod(f"p{n}", of_app("web", "2", labels={"tier": "x" if n else "y"},
                     topology_spread_constraints=(spread(ZONE, WEB), spread(ZONE, LabelSelector(match_labels={"tier": "x"})))))
                 for n in range(3)], ONE),
        "p by zone: 1 1 1"),
    "an existing node without the label takes no pod that spreads over it": row(
        problem(web(2, spread(ZONE, WEB)), ONE, bins=[node("n", "8")]), "2 nodes", "web by zone: 1 1"),
    "an unknown key leaves the pods": row(
        problem(web(1, spread("planet", WEB)), ONE), "1 of web left: no instance type of the NodePool has the label planet"),
    # --- minDomains ---
    "minDomains opens as many zones": row(
        problem(web(3, spread(ZONE, WEB, min_domains=3), cpu="100m"), ALL), "3 nodes", "web by zone: 1 1 1"),
    "below minDomains each zone holds maxSkew": row(
        problem(web(4, spread(ZONE, WEB, min_domains=4), cpu="100m"), ALL), "web by zone: 1 1 1", "1 of web left: zone"),
    "below minDomains a skew of two allows two each": row(
        problem(web(7, spread(ZONE, WEB, 2, min_domains=4), cpu="100m"), ALL), "web by zone: 2 2 2", "1 of web left: zone"),
    "minDomains of two constraints are kept apart (Karpenter mixes them)": row(
        problem([*web(2, spread(ZONE, WEB, min_domains=4), cpu="100m", name="strict", priority=9), *web(4, spread(ZONE, WEB), cpu="100m", name="loose")], ALL),
        "nothing left", "strict by zone: 1 1"),
    "minDomains counts hostnames too": row(
        problem(web(3, spread(HOST, WEB, min_domains=3), cpu="100m"), ALL), "3 nodes", "web by host: 1 1 1"),
    # --- policies ---
    "taints of nodes are ignored by default: a tainted zone of now counts": row(
        problem(web(3, spread(ZONE, WEB)), pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,)),
                bins=[node("n", labels={ZONE: "c"}, taints=[DEDICATED])]),
        "web by zone: 1 1", "1 of web left: zone"),
    "nodeTaintsPolicy Honor leaves tainted nodes out": row(
        problem(web(4, spread(ZONE, WEB, node_taints_policy="Honor")), pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,)),
                bins=[node("n", labels={ZONE: "c"}, taints=[DEDICATED])]),
        "web by zone: 2 2"),
    "nodeTaintsPolicy Honor counts nodes whose taint is tolerated": row(
        problem(web(3, spread(ZONE, WEB, node_taints_policy="Honor"), tolerations=[TOLERATES]),
                pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,)),
                bins=[node("n", labels={ZONE: "c"}, taints=[DEDICATED])]),
        "web by zone: 1 1 1"),
    "nodeAffinityPolicy Ignore counts nodes that the selector excludes": row(
        problem(web(2, spread("rack", WEB, node_affinity_policy="Ignore"), selector={"rack": "r1"}),
                bins=[node("n", labels={"rack": "r1"}), node("m", labels={"rack": "r2"})]),
        "web by rack: 1", "1 of web left: spread"),
    "pods that a spread counts on on-demand nodes only are on nodes of which that is certain": row(
        problem([*plain(3, "2", selector={ZONE: "a"}), *web(7, spread(ZONE, WEB), terms=[term((KIND, "In", ["on-demand"]))])], ONE),
        "nothing left", "old-00000 has kind=spot", "web by zone: 3 2 2"),
    "pods that a spread counts on on-demand nodes only share these where they fit": row(
        problem([*web(3, spread(ZONE, WEB), cpu="1500m", terms=[term((KIND, "In", ["on-demand"]))]), *plain(3, "500m")], ONE),
        "3 nodes", "nothing left", "old by kind: 3", "old by zone: 1 1 1"),
    "pods that a spread counts on spot nodes only come to on-demand ones where that is cheaper": row(
        problem([*plain(2, "2", selector={ZONE: "a"}), *web(4, spread(ZONE, WEB), terms=[term((KIND, "In", ["spot"]))])],
                pool(types=(instance_type("odd", "2", "4Gi", offerings=[offering("a", 1.0, "on-demand"), offering("a", 2.0, "spot"), offering("b", 2.0, "spot")]),))),
        "nothing left", "old-00000 has kind=on-demand", "web by zone: 2 2"),
    "nodeAffinityPolicy Honor does not": row(
        problem(web(2, spread("rack", WEB), selector={"rack": "r1"}),
                bins=[node("n", labels={"rack": "r1"}), node("m", labels={"rack": "r2"})]),
        "web by rack: 2"),
    "matchLabelKeys spreads every revision by itself": row(
        problem([*pods(3, revision("one", spread(ZONE, WEB, match_label_keys=("rev",))), "one"),
                 *pods(3, revision("two", spread(ZONE, WEB, match_label_keys=("rev",))), "two")], ALL),
        "one by zone: 1 1 1", "two by zone: 1 1 1"),
    "matchLabelKeys with a label that the pod lacks changes nothing": row(
        problem(web(3, spread(ZONE, WEB, match_label_keys=("rev",)), cpu="2"), ONE), "web by zone: 1 1 1"),
    "without matchLabelKeys the old revision weighs": row(
        problem(pods(2, revision("two", spread(ZONE, WEB)), "two"), ALL,
                bins=[node("n", "0", labels={ZONE: "a"}, running=pods(1, revision("one"), "one"))]),
        "two by zone: 1 1"),
    # --- hostnames ---
    "hostname spread opens nodes only as they are needed": row(
        problem(web(4, spread(HOST, WEB), cpu="1500m"), ONE), "4 nodes", "web by host: 1 1 1 1"),
    "existing nodes that all have one take a second each (Karpenter buys three)": row(
        problem(web(3, spread(HOST, WEB)), ALL,
                bins=[node(f"n{n}", running=plain(1, name=f"old{n}")) for n in range(3)]),
        "0 nodes", "web by host: 1 1 1"),
    "existing nodes without any come first": row(
        problem(web(2, spread(HOST, WEB)), ALL,
                bins=[node("n0", running=plain(1)), node("n1"), node("n2")]),
        "0 nodes", "web-00000 web-00001 apart"),
    "an empty existing node that takes no pod still counts": row(
        problem(web(2, spread(HOST, WEB)), pool(types=(MEDIUM,)), bins=[node("n", "0"), node("m", "8")]),
        "1 node", "web by host: 1 1"),
    "an existing node that the selector excludes does not count": row(
        problem(web(2, spread(HOST, WEB), selector={ZONE: "a"}), ALL,
                bins=[node("n", "0", labels={ZONE: "b"}), node("m", "8", labels={ZONE: "a"})]),
        "0 nodes", "web by host: 2"),
    "zone and hostname hold together": row(
        problem(web(6, spread(ZONE, WEB), spread(HOST, WEB), cpu="1500m"), ONE), "6 nodes", "web by zone: 2 2 2"),
    # --- other keys ---
    "capacity types are domains": row(
        problem(web(4, spread(KIND, WEB), cpu="2"), ONE), "web by kind: 2 2"),
    "capacity types that the pool excludes are none": row(
        problem(web(4, spread(KIND, WEB), cpu="2"), pool("default", (KIND, "In", ["spot"]), types=(SMALL,))), "web by kind: 4"),
    "architectures are domains": row(
        problem(web(4, spread(ARCH, WEB), cpu="4"), pool(types=(MEDIUM, ARM))), "web by arch: 2 2"),
    "pools are domains": row(
        problem(web(4, spread(POOL, WEB), cpu="2"), pool("x", types=(SMALL,)), pool("y", types=(SMALL,))), "web by pool: 2 2"),
    "values of a pool's own label are domains": row(
        problem(web(4, spread("team", WEB), cpu="2"), pool("default", ("team", "In", ["x", "y"]), types=(SMALL,))), "web by team: 2 2"),
    "one value of a label for each pool": row(
        problem(web(3, spread("team", WEB), cpu="2"),
                *(pool(f"p{n}", labels={"team": f"t{n}"}, types=(SMALL,)) for n in range(3))),
        "web by team: 1 1 1"),
    # --- soft ---
    "ScheduleAnyway is kept where it can be": row(
        problem(web(3, spread(ZONE, WEB, when_unsatisfiable=SOFT), cpu="2"), ONE), "web by zone: 1 1 1"),
    "ScheduleAnyway is given up where it cannot": row(
        problem(web(3, spread(ZONE, WEB, when_unsatisfiable=SOFT), cpu="2"), pool("default", (ZONE, "In", ["a"]), types=(SMALL,)),
                bins=[node("n", "0", labels={ZONE: "b"})]),
        "web by zone: 3"),
    "ScheduleAnyway over an unknown key is given up": row(
        problem(web(1, spread("planet", WEB, when_unsatisfiable=SOFT)), ONE), "1 node"),
    # --- limits ---
    "a limit that ends before the zones are even leaves the rest": row(
        problem(web(6, spread(ZONE, WEB), cpu="2"), pool(types=(SMALL,), limits={"nodes": "4"})), "4 nodes", "2 of web left: limit"),
    "pods too large for one zone's types stay even over what is left": row(
        problem(web(3, spread(ZONE, WEB), cpu="3"),
                pool(types=(instance_type("ab", "4", "8Gi", zones=["a", "b"]), instance_type("c", "2", "4Gi", zones=["c"])))),
        "web by zone: 2 1", "nothing left"),
    "a node for other pods is a domain of hostname spread too": row(
        problem([*web(2, spread(HOST, WEB), cpu="100m", priority=9), pod("other", of_app("x", "3"))], pool(types=(MEDIUM,)),
                bins=[node("n", "1", running=plain(1)), node("m", "1", running=plain(1, name="older"))]),
        "nothing left"),
    "two spreads over nodes by the same pods, the wider one with its own skew": row(
        problem(web(2, spread(HOST, WEB, min_domains=3), spread(HOST, WEB, 2)), pool(types=(SMALL,)), bins=[node("n")]), "nothing left", "1 node"),
    "a node for other pods keeps out of a zone that a settled spread would find empty": row(
        problem([*web(2, spread(ZONE, WEB, 2), cpu="2", selector={"team": "blue"}, priority=9), pod("other", shape("1"))], ONE,
                bins=[node("n", "4", labels={ZONE: "b", "team": "blue"}, running=plain(1))]),
        "web by zone: 2", "nothing left"),
    "a zone that no limit lets in is none that minDomains counts": row(
        problem(web(3, spread(ZONE, WEB, min_domains=3)), pool(types=(LARGE,), limits={"nodes": "2"})), "2 nodes", "web by zone: 1 1", "1 of web left: "),
    "nodes that are only rather not wanted are domains of a spread": row(
        problem(web(3, spread(KIND, WEB), cpu="100m"), pool("default", (KIND, "In", ["on-demand"]), types=(SMALL,), taints=[Taint(key="t", effect="PreferNoSchedule")]),
                bins=[node("n", labels={KIND: "spot"})]),
        "web by kind: 2 1"),
    "a spread that is only wished for keeps no node away": row(
        problem([*web(3, spread(ZONE, WEB, when_unsatisfiable=SOFT), selector={ZONE: "a"}, priority=9), *web(1, name="other", selector={ZONE: "b"})], ONE),
        "nothing left", "other-00000 has zone=b"),
    "pods spread over nodes go first where others would keep them out": row(
        problem([*web(1, spread(KIND, WEB, min_domains=3), spread(HOST, app("x")), cpu="2"), *plain(1, "100m", "other")],
                pool("default", (KIND, "In", ["on-demand"]), types=(LARGE,))),
        "nothing left"),
    "a node that would break a settled spread of higher priority is not made, and the reason says so": row(
        problem([*web(2, spread(ZONE, WEB), cpu="2", priority=9), pod("p", shape("100m", selector={ZONE: "a"}))],
                pool(types=(instance_type("tiny", "1", "2Gi", zones=["a"]), instance_type("c", "2", "4Gi", zones=["c"]))),
                bins=[node("n", "0", labels={ZONE: "b"}, running=plain(2))]),
        "web by zone: 2", "p left: would violate the topology spread of other pods across topology.kubernetes.io/zone"),
    # --- defaults of the cluster ---
    "the cluster's default spread is for pods that have none": row(
        problem(owned(pods(3, of_app("web", "2"), "web"), "rs"), ONE,
                spread_defaults=SpreadDefaults(constraints=(spread(ZONE, None),), controllers={"rs": WEB})),
        "web by zone: 1 1 1"),
    "the cluster's default spread counts what a Service selects": row(
        problem(pods(3, of_app("web", "2"), "web"), ONE,
                spread_defaults=SpreadDefaults(constraints=(spread(ZONE, None),), services={"default": ({"app": "web"},)})),
        "web by zone: 1 1 1"),
    "a pod without Service or controller has no default spread": row(
        problem(pods(3, of_app("web"), "web"), pool(types=(MEDIUM,)),
                spread_defaults=SpreadDefaults(constraints=(spread(ZONE, None),), services={"default": ({"app": "api"},)})),
        "1 node"),
    "a pod with a spread of its own has no default spread": row(
        problem(owned(web(2, spread(HOST, WEB), cpu="500m"), "rs"), pool("default", (ZONE, "In", ["a"]), types=(SMALL,)),
                bins=[node("n", "0", labels={ZONE: "b"}, running=())],
                spread_defaults=SpreadDefaults(constraints=(spread(ZONE, None),), controllers={"rs": WEB})),
        "nothing left"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
