"""Pools, their minValues, limits and reservations, and priorities; one sentence a row."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.problem import MinValuesPolicy
from provisioner.values.requirement import Requirements
from provisioner.values.taints import Taint, Toleration
from tests.support.golden import Row, check, row
from tests.support.problems import (
    FAT,
    LARGE,
    MEDIUM,
    SMALL,
    apart,
    app,
    instance_type,
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

ZONE, HOST, TYPE, KIND = names.ZONE_LABEL, names.HOSTNAME_LABEL, names.INSTANCE_TYPE_LABEL, names.CAPACITY_TYPE_LABEL
CPU_LABEL = "provider.example/cpu"
RESERVATION = "provider.example/reservation"
THREE = (SMALL, MEDIUM, LARGE)
BEST = MinValuesPolicy.BEST_EFFORT
ONE = pool(types=(SMALL,))


def reserved(zone: str, name: str, instances: int) -> Offering:
    labels = {ZONE: zone, KIND: names.CAPACITY_RESERVED, RESERVATION: name}
    return Offering(Requirements.from_labels(labels), 0.01, available=instances > 0, reservation_capacity=instances)


def with_reservation(name: str, instances: int, zone: str = "a") -> InstanceType:
    return instance_type(
        name, "2", "4Gi", 1.0, offerings=[offering(zone, 1.0), reserved(zone, f"cr-{name}", instances)]
    )


def reserved_only(*types: InstanceType) -> Any:
    return pool("default", (KIND, "In", [names.CAPACITY_RESERVED]), types=types)


ROWS: dict[str, Row] = {
    # --- minValues ---
    "minValues of zones keeps a claim flexible": row(
        problem(pods(2, shape("1"), "p"), pool(types=THREE, min_values={ZONE: 2})), "1 node"),
    "minValues of zones refuses a pod of one zone": row(
        problem([pod("p", shape(selector={ZONE: "a"})), pod("q")], pool(types=THREE, min_values={ZONE: 2})), "p left: minValues", "q on new small"),
    "minValues is kept when pods grow a claim": row(
        problem(pods(6, shape("1"), "p"), pool(types=THREE, min_values={TYPE: 2})), "nothing left", "2 nodes"),
    "minValues of two keys both hold": row(
        problem([pod("p", shape("1"))], pool(types=(SMALL, MEDIUM), min_values={TYPE: 2, CPU_LABEL: 2})), "1 node"),
    "minValues of the second key may be what fails": row(
        problem([pod("p", shape("3"))], pool(types=(SMALL, MEDIUM, FAT), min_values={TYPE: 2, CPU_LABEL: 2})), f"p left: {CPU_LABEL}"),
    "minValues that cannot be met falls through to the next pool": row(
        problem([pod("p", shape("5"))], pool("strict", types=THREE, min_values={TYPE: 2}, weight=9), pool("loose", types=THREE)), "p has pool=loose"),
    "best effort asks for what can be had": row(
        problem([pod("p", shape("5"))], pool(types=THREE, min_values={TYPE: 2}), min_values=BEST), "p on new large"),
    "best effort keeps minValues where they can be kept": row(
        problem([pod("p", shape("1"))], pool(types=THREE, min_values={TYPE: 2}), min_values=BEST), "p on new small"),
    # --- limits ---
    "limits of two resources are both kept": row(
        problem(pods(4, shape("2"), "p"), pool(types=(SMALL,), limits={"cpu": "8", "memory": "8Gi"})), "2 nodes", "2 of p left: limit"),
    "a limit lets a smaller type in": row(
        problem([pod("p", shape("1"))], pool(types=(MEDIUM, SMALL), limits={"cpu": "3"})), "p on new small"),
    "a limit counts nodes for pods that keep apart": row(
        problem(pods(3, of_app("db", "100m", affinity=apart(HOST, app("db"))), "p"), pool(types=(SMALL,), limits={"nodes": "2"})),
        "2 nodes", "1 of p left: "),
    "a limit of one pool and a spread over zones use the other pool": row(
        problem(pods(4, of_app("web", "2", topology_spread_constraints=(spread(ZONE, app("web")),)), "p"),
                pool("heavy", types=(SMALL,), limits={"nodes": "1"}, weight=9), pool("light", types=(SMALL,))),
        "4 nodes", "p by zone: 2 2"),
    # --- pools ---
    "a claim of one pool takes no pod that asks for another": row(
        problem([pod("p", shape("1", selector={names.NODEPOOL_LABEL: "x"})), pod("q", shape("500m", selector={names.NODEPOOL_LABEL: "y"}))], pool("x", types=THREE), pool("y", types=THREE)),
        "2 nodes"),
    "an excluded pool is not used though it is heavier": row(
        problem([pod("p", shape(terms=[term((names.NODEPOOL_LABEL, "NotIn", ["x"]))]))], pool("x", types=THREE, weight=9), pool("y", types=THREE)),
        "p has pool=y"),
    "a node on its way comes before a new one": row(
        problem([pod("p", shape("1"))], ONE, bins=[node("on-its-way", labels={names.NODEPOOL_LABEL: "default"})]), "p on on-its-way"),
    "a leaving node takes nothing": row(
        problem([pod("p", shape("1"))], ONE, bins=[node("n", leaving=True)]), "p on new small"),
    # --- reservations ---
    "a reservation is used before anything is bought": row(
        problem([pod("p", shape("1"))], pool(types=(with_reservation("res", 1),)), reservation_label=RESERVATION), "p has kind=reserved"),
    "a reservation is used for as many nodes as it has": row(
        problem(pods(3, shape("2"), "p"), pool(types=(with_reservation("res", 2),)), reservation_label=RESERVATION), "3 nodes", "p by kind: 2 1"),
    "a reservation is kept rather than grown into a node that takes more": row(
        problem(pods(3, shape("2"), "p"), pool(types=(with_reservation("res", 2), LARGE)), reservation_label=RESERVATION),
        "3 nodes", "p by kind: 2 1"),
    "pods that must share a node have a bought one where no reservation holds them": row(
        problem(pods(2, of_app("a", "1500m", affinity=near(HOST, app("a"))), "p"), pool(types=(with_reservation("res", 2), LARGE)),
                reservation_label=RESERVATION),
        "1 nodes", "nothing left"),
    "a pod that wants no reserved capacity buys": row(
        problem([pod("p", shape(selector={KIND: "on-demand"}))], pool(types=(with_reservation("res", 1),)), reservation_label=RESERVATION),
        "p has kind=on-demand"),
    "a pool whose only reservation is used up says so": row(
        problem([pod("p", shape("1"))], reserved_only(with_reservation("res", 0)), reservation_label=RESERVATION),
        "p left: the NodePool allows reserved capacity only, and capacity reservation cr-res is used up"),
    "a pod that asks for a reservation that is used up is told so": row(
        problem([pod("p", shape("1", selector={RESERVATION: "cr-res"}))], pool(types=(with_reservation("res", 0),)), reservation_label=RESERVATION),
        "p left: only reserved capacity is allowed, and capacity reservation cr-res is used up"),
    "a pod that asks for reserved capacity is told of all reservations that would do": row(
        problem([pod("p", shape("1", selector={KIND: "reserved"}))], pool(types=(with_reservation("a", 0), with_reservation("b", 0))), reservation_label=RESERVATION),
        "p left: capacity reservations cr-a, cr-b are used up"),
    "the last instance of a reservation that an earlier pod got is used up": row(
        problem(pods(2, shape("2"), "p"), reserved_only(with_reservation("res", 1)), reservation_label=RESERVATION),
        "1 of p left: only reserved capacity is allowed, and capacity reservation cr-res is used up"),
    "a reservation that has instances is not used up where the pod is too large": row(
        problem([pod("p", shape("9"))], reserved_only(with_reservation("res", 1)), reservation_label=RESERVATION), "p left: cpu 9 exceeds"),
    "a reservation of another zone is not the pod's": row(
        problem([pod("p", shape("1", selector={ZONE: "b", KIND: "reserved"}))], pool(types=(with_reservation("res", 0),)), reservation_label=RESERVATION),
        "p left: no instance type has"),
    "a reservation that is used up is none": row(
        problem([pod("p", shape("1"))], pool(types=(with_reservation("res", 0),)), reservation_label=RESERVATION), "p has kind=on-demand"),
    "no claim may become a type that the limit would not bear": row(
        problem(pods(2, of_app("a", "100m", affinity=apart(HOST, app("a"))), "p"), pool(types=(SMALL, LARGE), limits={"cpu": "9"})), "2 nodes"),
    # --- priority ---
    "a higher priority keeps its place though a lower one is larger": row(
        problem([pod("low", shape("4")), *pods(4, shape("1", priority=5), "high")], bins=[node("n")]), "low left: cpu", "high by host: 4"),
    "a lower priority fills what a higher one leaves": row(
        problem([pod("low", shape("1")), pod("high", shape("3", priority=5))], bins=[node("n")]), "low on n", "high on n"),
    "a higher priority has the zone that both want": row(
        problem([pod("low", of_app("db", "2", affinity=apart(ZONE, app("db")), selector={ZONE: "a"})),
                 pod("high", of_app("db", "1", priority=5, affinity=apart(ZONE, app("db")), selector={ZONE: "a"}))], pool(types=(SMALL,))),
        "high has zone=a", "low left: "),
    "a higher priority that waits for nothing comes first though it is younger": row(
        problem([pod("old", shape("4"), age=100), pod("new", shape("4", priority=1))], bins=[node("n")]), "new on n", "old left: cpu"),
    "a higher priority that waits for its friend keeps its place": row(
        problem([pod("friend", of_app("y", "100m", priority=9)), pod("high", shape("1500m", priority=9, affinity=near(ZONE, app("y")))), pod("low", shape("1"))],
                bins=[node("n", "2", labels={ZONE: "a"})]),
        "friend on n", "high on n", "low left: cpu"),
    "a pod that only an existing node admits has it before one that could have a new one": row(
        problem([pod("p", shape("500m")), pod("q", shape("1", tolerations=[Toleration(operator="Exists")]))],
                pool(types=(SMALL,), taints=[Taint(key="d", effect="NoSchedule")]), bins=[node("n", "1")]),
        "p on n", "q on new small"),
    "negative priorities come last": row(
        problem([pod("spare", shape("4", priority=-10)), pod("p", shape("1"))], bins=[node("n")]), "p on n", "spare left: cpu"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
