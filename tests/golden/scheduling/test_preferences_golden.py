"""Preferences: kept where they can be, given up one after another where they cannot; one sentence a row."""

import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    WeightedPodAffinityTerm,
)
from provisioner.scheduling.problem import PreferencePolicy
from provisioner.values.taints import Taint, Toleration
from tests.support.golden import Row, check, row
from tests.support.problems import (
    app,
    instance_type,
    meant,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    shape,
    spread,
    term,
)

ZONE, HOST, TYPE, ARCH, KIND = (
    names.ZONE_LABEL,
    names.HOSTNAME_LABEL,
    names.INSTANCE_TYPE_LABEL,
    names.ARCH_LABEL,
    names.CAPACITY_TYPE_LABEL,
)
ABC = ("a", "b", "c")
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ABC)
MEDIUM = instance_type("medium", "4", "8Gi", 2.0, zones=ABC)
ONE, ALL = pool(types=(SMALL,)), pool(types=(SMALL, MEDIUM))
RATHER_NOT = Taint(key="rather-not", effect="PreferNoSchedule")
IGNORE = PreferencePolicy.IGNORE
WEB = app("web")


def nodes(*wished: tuple[int, NodeSelectorTerm], required: tuple[NodeSelectorTerm, ...] = ()) -> Affinity:
    return Affinity(
        node_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=required) if required else None,
            preferred=tuple(PreferredSchedulingTerm(weight=weight, preference=one) for weight, one in wished),
        )
    )


def wished(*terms: tuple[int, PodAffinityTerm]) -> PodAffinity:
    return PodAffinity(
        preferred=tuple(WeightedPodAffinityTerm(weight=weight, pod_affinity_term=one) for weight, one in terms)
    )


def zone(*values: str) -> NodeSelectorTerm:
    return term((ZONE, "In", list(values)))


ROWS: dict[str, Row] = {
    "a preferred zone is taken": row(problem([pod("p", shape(affinity=nodes((1, zone("c")))))], ONE), "p has zone=c"),
    "a preferred zone that cannot be had is given up": row(
        problem([pod("p", shape(affinity=nodes((1, zone("mars")))))], ONE), "p on new small"),
    "the heaviest preference is tried first": row(
        problem([pod("p", shape(affinity=nodes((1, zone("a")), (50, zone("c")), (2, zone("b")))))], ONE), "p has zone=c"),
    "the next preference counts when the heaviest cannot be had": row(
        problem([pod("p", shape(affinity=nodes((1, zone("b")), (50, zone("mars")))))], ONE), "p has zone=b"),
    "a preference never overrules what is required": row(
        problem([pod("p", shape(affinity=nodes((9, zone("c")), required=(zone("a", "b"),))))], ONE), "1 node", "nothing left"),
    "a preference narrows what is required": row(
        problem([pod("p", shape(affinity=nodes((9, zone("b")), required=(zone("a", "b"),))))], ONE), "p has zone=b"),
    "a preferred type is bought though it is dearer (Karpenter does so)": row(
        problem([pod("p", shape(affinity=nodes((1, term((TYPE, "In", ["medium"]))))))], ALL), "p on new medium"),
    "an ignored preference buys the cheapest": row(
        problem([pod("p", shape(affinity=nodes((1, term((TYPE, "In", ["medium"]))))))], ALL, preferences=IGNORE), "p on new small"),
    "an ignored preference for nodes takes any existing node": row(
        problem([pod("p", shape(affinity=nodes((1, zone("c")))))], ONE, bins=[node("n", labels={ZONE: "a"})], preferences=IGNORE), "p on n"),
    "preferred affinity is kept where it can be": row(
        problem([pod("p", shape("2", affinity=Affinity(pod_affinity=wished((1, meant(ZONE, WEB))))))], ONE,
                bins=[node("n", "0", labels={ZONE: "b"}, running=[pod("old", of_app("web"))])]),
        "p has zone=b"),
    "preferred affinity to nobody is given up": row(
        problem([pod("p", shape(affinity=Affinity(pod_affinity=wished((1, meant(ZONE, WEB))))))], ONE), "p on new small"),
    "preferred anti-affinity opens a node each": row(
        problem(pods(2, of_app("web", "500m", affinity=Affinity(pod_anti_affinity=wished((1, meant(HOST, WEB))))), "p"), ONE), "p-00000 p-00001 apart"),
    "preferred anti-affinity is given up where nodes end": row(
        problem(pods(2, of_app("web", "500m", affinity=Affinity(pod_anti_affinity=wished((1, meant(HOST, WEB))))), "p"), bins=[node("n")]),
        "p-00000 p-00001 together"),
    "ignored preferred anti-affinity shares": row(
        problem(pods(2, of_app("web", "500m", affinity=Affinity(pod_anti_affinity=wished((1, meant(HOST, WEB))))), "p"), ONE, preferences=IGNORE),
        "1 node"),
    "preferred anti-affinity of others keeps nobody off": row(
        problem([pod("p", of_app("web"))], ONE,
                bins=[node("n", running=[pod("old", shape(affinity=Affinity(pod_anti_affinity=wished((1, meant(HOST, WEB))))))])]),
        "p on n"),
    "a soft spread is kept where it can be": row(
        problem(pods(3, of_app("web", "2", topology_spread_constraints=(spread(ZONE, WEB, when_unsatisfiable="ScheduleAnyway"),)), "p"), ONE),
        "p by zone: 1 1 1"),
    "an ignored soft spread is no spread": row(
        problem(pods(3, of_app("web", "500m", topology_spread_constraints=(spread(ZONE, WEB, when_unsatisfiable="ScheduleAnyway"),)), "p"), ONE,
                preferences=IGNORE),
        "1 node"),
    "an ignored hard spread is still hard": row(
        problem(pods(3, of_app("web", "500m", topology_spread_constraints=(spread(ZONE, WEB),)), "p"), ONE, preferences=IGNORE), "p by zone: 1 1 1"),
    "all kinds of preferences are given up together": row(
        problem([pod("p", of_app("web", affinity=Affinity(
            node_affinity=nodes((5, zone("mars")), (4, zone("venus"))).node_affinity,
            pod_affinity=wished((3, meant(ZONE, app("nobody")))),
            pod_anti_affinity=wished((2, meant(HOST, WEB)))),
            topology_spread_constraints=(spread("planet", WEB, when_unsatisfiable="ScheduleAnyway"),)))], ONE),
        "p on new small"),
    "PreferNoSchedule of a pool is avoided while another pool will do": row(
        problem([pod("p")], pool("shy", types=(SMALL,), taints=[RATHER_NOT], weight=9), pool("open", types=(SMALL,))), "p has pool=open"),
    "PreferNoSchedule of the only pool keeps nobody off": row(problem([pod("p")], pool(types=(SMALL,), taints=[RATHER_NOT])), "p on new small"),
    "PreferNoSchedule is tolerated by toleration": row(
        problem([pod("p", shape(tolerations=[Toleration(key="rather-not", operator="Exists")]))],
                pool("shy", types=(SMALL,), taints=[RATHER_NOT], weight=9), pool("open", types=(SMALL,))),
        "p has pool=shy"),
    "PreferNoSchedule of an existing node is avoided while another will do": row(
        problem([pod("p")], bins=[node("m", taints=[RATHER_NOT]), node("n")]), "p on n"),
    "required terms come before preferences: a second term is taken and its preference kept": row(
        problem([pod("p", shape(affinity=nodes((1, term((TYPE, "In", ["medium"]))), required=(zone("mars"), zone("b")))))], ALL),
        "p has zone=b", "p on new medium"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
