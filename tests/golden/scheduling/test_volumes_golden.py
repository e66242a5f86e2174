"""Volumes, one sentence a row; kube-scheduler's rules of binding, reach and attach limits."""

from dataclasses import replace
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import (
    ANY_NUMBER,
    AWSElasticBlockStoreSource,
    CSIVolumeSource,
    ObjectReference,
    PathSource,
    PersistentVolume,
    PersistentVolumeClaim,
)
from provisioner.apis.pods import Pod
from provisioner.scheduling.problem import Storage
from tests.support.golden import Row, check, row
from tests.support.problems import (
    DRIVER,
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
    scratch,
    shape,
    spread,
    storage,
    storage_class,
    term,
    uses,
    volume,
    volume_claim,
)

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
ABC = ("a", "b", "c")
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ABC)
MEDIUM = instance_type("medium", "4", "8Gi", 2.0, zones=ABC)
ROOMY = instance_type("roomy", "16", "64Gi", 9.0, zones=ABC, more={f"attachable-volumes-csi-{DRIVER}": "2"})
ONE, ALL = pool(types=(SMALL,)), pool(types=(SMALL, MEDIUM))
TELLING = replace(instance_type("telling", "16", "64Gi", 9.0, zones=ABC), attach_limits={DRIVER: 2})
OF_SMALL = {names.INSTANCE_TYPE_LABEL: "small"}
EBS, OTHER = "ebs.csi.aws.com", "other.example.com"
BOUND_B = (volume("v", "b"), volume_claim("c", volume="v"))
LOCAL = "kubernetes.io/no-provisioner"


def using(*claims: str, cpu: str = "1", name: str = "p", **more: Any) -> Pod:
    return pod(name, shape(cpu, volumes=uses(*claims), **more))


def each(count: int, cpu: str = "100m") -> tuple[Pod, ...]:
    """Pods with a claim each: p0 uses c0 and so on."""
    return tuple(using(f"c{n}", cpu=cpu, name=f"p{n}") for n in range(count))


def to_come(count: int, kind: str = "disk") -> tuple[PersistentVolumeClaim, ...]:
    return tuple(volume_claim(f"c{n}", kind) for n in range(count))


def bound(count: int, **more: Any) -> tuple[PersistentVolume | PersistentVolumeClaim, ...]:
    return tuple(one for n in range(count) for one in (volume(f"v{n}", **more), volume_claim(f"c{n}", volume=f"v{n}")))


def at(name: str, hostname: str, **more: Any) -> PersistentVolume:
    """A local volume."""
    where = [term((HOST, "In", [hostname]))]
    return volume(name, terms=where, storage_class_name="local", local=PathSource(path="/x"), driver="", **more)


def local(*objects: PersistentVolume | PersistentVolumeClaim) -> Storage:
    return storage(storage_class("local", provisioner=LOCAL), *objects)


ROWS: dict[str, Row] = {
    # --- where a volume is ---
    "a bound volume decides the zone": row(problem([using("c")], ALL, storage=storage(*BOUND_B)), "p has zone=b"),
    "a bound volume decides among existing nodes": row(
        problem([using("c")], bins=[node("m", labels={ZONE: "a"}), node("n", labels={ZONE: "b"})], storage=storage(*BOUND_B)), "p on n"),
    "an existing node without a zone does not reach a zonal volume": row(
        problem([using("c")], ALL, bins=[node("n")], storage=storage(*BOUND_B)), "p on new small", "p has zone=b"),
    "a zone where nothing is made leaves the pod": row(
        problem([using("c")], ALL, storage=storage(volume("v", "mars"), volume_claim("c", volume="v"))), "p left: zone"),
    "any term of the volume's affinity will do": row(
        problem([using("c", selector={ZONE: "c"})], ALL,
                storage=storage(volume("v", terms=[term((ZONE, "In", ["a"])), term((ZONE, "In", ["c"]))]), volume_claim("c", volume="v"))),
        "p has zone=c"),
    "all expressions of one term hold": row(
        problem([using("c")], ALL,
                storage=storage(volume("v", terms=[term((ZONE, "In", ["a", "b"]), (ZONE, "NotIn", ["a"]))]), volume_claim("c", volume="v"))),
        "p has zone=b"),
    "a volume without affinity is reached from everywhere": row(
        problem([using("c")], bins=[node("n")], storage=storage(volume("v"), volume_claim("c", volume="v"))), "p on n"),
    "the zone label of a volume counts like its affinity": row(
        problem([using("c")], ALL, bins=[node("n", labels={ZONE: "a"})],
                storage=storage(volume("v", labels={ZONE: "b"}), volume_claim("c", volume="v"))),
        "p on new small", "p has zone=b"),
    "a zone label may name several zones": row(
        problem([using("c")], bins=[node("m", labels={ZONE: "a"}), node("n", labels={ZONE: "c"})],
                storage=storage(volume("v", labels={ZONE: "b__c"}), volume_claim("c", volume="v"))),
        "p on n"),
    "the legacy zone label of a volume counts": row(
        problem([using("c")], ALL,
                storage=storage(volume("v", labels={"failure-domain.beta.kubernetes.io/zone": "c"}), volume_claim("c", volume="v"))),
        "p has zone=c"),
    "two volumes of one zone agree": row(
        problem([using("c", "d")], ALL, storage=storage(*BOUND_B, volume("w", "b", "c"), volume_claim("d", volume="w"))), "p has zone=b"),
    "two volumes of different zones leave the pod": row(
        problem([using("c", "d")], ALL, storage=storage(*BOUND_B, volume("w", "a"), volume_claim("d", volume="w"))), "p left: "),
    "alternatives of two volumes are matched with each other": row(
        problem([using("c", "d")], ALL,
                storage=storage(volume("v", terms=[term((ZONE, "In", ["a"])), term((ZONE, "In", ["b"]))]), volume_claim("c", volume="v"),
                                volume("w", terms=[term((ZONE, "In", ["b"])), term((ZONE, "In", ["c"]))]), volume_claim("d", volume="w"))),
        "p has zone=b"),
    "pods with volumes in different zones do not share a node": row(
        problem([using("c", cpu="100m"), using("d", cpu="100m", name="q")], ALL,
                storage=storage(*BOUND_B, volume("w", "a"), volume_claim("d", volume="w"))),
        "2 nodes", "p has zone=b", "q has zone=a"),
    "the pod's own zone and the volume's contradict": row(
        problem([using("c", selector={ZONE: "a"})], ALL, storage=storage(*BOUND_B)), "p left: "),
    # --- volumes to come ---
    "a volume to come is made anywhere when its class does not say": row(
        problem([using("c")], ONE, storage=storage(volume_claim("c"))), "p on new small"),
    "a volume to come is made where its class can": row(
        problem([using("c")], ONE, storage=storage(storage_class("gold", "c"), volume_claim("c", "gold"))), "p has zone=c"),
    "a volume to come and a volume bound must meet": row(
        problem([using("c", "d")], ONE, storage=storage(*BOUND_B, storage_class("gold", "a", "b"), volume_claim("d", "gold"))), "p has zone=b"),
    "a class whose zones nobody makes leaves the pod": row(
        problem([using("c")], ONE, storage=storage(storage_class("gold", "mars"), volume_claim("c", "gold"))), "p left: zone"),
    "an existing node outside the class's zones is passed over": row(
        problem([using("c")], ONE, bins=[node("n", labels={ZONE: "a"})], storage=storage(storage_class("gold", "b"), volume_claim("c", "gold"))),
        "p has zone=b"),
    "an ephemeral volume goes by its claim": row(
        problem([pod("p", shape(volumes=scratch("gold")))], ONE,
                storage=storage(storage_class("gold", "c"), volume_claim("p-scratch", "gold", owner="p"))),
        "p has zone=c"),
    "a claim to be bound to a local volume goes to its node": row(
        problem([using("c")], ONE, bins=[node("m"), node("n")],
                storage=storage(storage_class("local", provisioner=LOCAL), volume_claim("c", "local"),
                                volume("v", terms=[term((HOST, "In", ["n"]))], storage_class_name="local", local=PathSource(path="/x"), driver=""))),
        "p on n"),
    "a local volume in use is no volume for another claim": row(
        problem([using("c")], ONE, bins=[node("n")],
                storage=storage(storage_class("local", provisioner=LOCAL), volume_claim("c", "local"),
                                volume("v", terms=[term((HOST, "In", ["n"]))], storage_class_name="local", local=PathSource(path="/x"), driver="",
                                       claim_ref=ObjectReference(namespace="default", name="other", uid="u")))),
        "p left: "),
    "a bound local volume goes to its node": row(
        problem([using("c")], ONE, bins=[node("m"), node("n")],
                storage=storage(volume("v", terms=[term((HOST, "In", ["n"]))], local=PathSource(path="/x"), driver=""), volume_claim("c", volume="v"))),
        "p on n"),
    # --- claims that cannot be used ---
    "a claim that does not exist leaves only that pod": row(
        problem([using("nothing"), pod("q")], ONE, storage=storage()), "p left: nothing", "q on new small"),
    "a claim of another namespace is not this pod's": row(
        problem([using("c")], ONE, storage=storage(volume("v", "b"), volume_claim("c", volume="v", namespace="x"))), "p left: c"),
    "a lost claim leaves the pod": row(
        problem([using("c")], ONE, storage=storage(volume_claim("c", volume="v", phase="Lost"))), "p left: c"),
    "a claim being deleted leaves the pod": row(
        problem([using("c")], ONE, storage=storage(volume("v", "b"), volume_claim("c", volume="v", deleted=True))), "p left: delet"),
    "a claim whose volume is gone leaves the pod": row(
        problem([using("c")], ONE, storage=storage(volume_claim("c", volume="v"))), "p left: v"),
    "a claim whose binding is not complete leaves the pod": row(
        problem([using("c")], ONE, storage=storage(volume("v", "b"), volume_claim("c", volume="v", completed=False, phase="Pending"))), "p left: c"),
    "a claim that waits for immediate binding leaves the pod": row(
        problem([using("c")], ONE, storage=storage(storage_class("now", mode="Immediate"), volume_claim("c", "now"))), "p left: c"),
    "a claim of a class that does not exist leaves the pod": row(
        problem([using("c")], ONE, storage=storage(volume_claim("c", "none"))), "p left: none"),
    "a claim without class leaves the pod": row(
        problem([using("c")], ONE, storage=storage(volume_claim("c", ""))), "p left: c"),
    "a volume for one pod alone is refused to a second": row(
        problem([using("c", name="p"), using("c", cpu="2", name="q")], ALL,
                storage=storage(volume("v", "b"), volume_claim("c", volume="v", modes=["ReadWriteOncePod"]))),
        "q has zone=b", "p left: c"),
    "a volume for one pod alone that runs is refused": row(
        problem([using("c")], ALL, bins=[node("n", labels={ZONE: "b"}, running=[using("c", name="old")])],
                storage=storage(volume("v", "b"), volume_claim("c", volume="v", modes=["ReadWriteOncePod"]))),
        "p left: c"),
    # --- claims that are not bound yet ---
    "two pods of one claim to come are in one zone": row(
        problem([using("c", cpu="2"), using("c", cpu="1500m", name="q")], ONE, storage=storage(volume_claim("c"))), "2 nodes", "p q in one zone"),
    "equal pods of one claim to come are in one zone": row(
        problem(pods(5, shape("2", volumes=uses("c")), "p"), ONE, storage=storage(volume_claim("c", modes=["ReadWriteMany"]))), "5 nodes", "p by zone: 5"),
    "pods of one claim to come go where all have room": row(
        problem(pods(2, shape("2", volumes=uses("c")), "p"), bins=[node("m", "2", labels={ZONE: "a"}), node("n", "4", labels={ZONE: "b"})], storage=storage(volume_claim("c"))),
        "p-00000 on n", "p-00001 on n"),
    "pods of one claim to come go where nodes can be had for all": row(
        problem(pods(2, shape("2", volumes=uses("c")), "p"), pool("default", (ZONE, "In", ["b"]), types=(SMALL,)), bins=[node("m", "2", labels={ZONE: "a"})],
                storage=storage(volume_claim("c"))), "p by zone: 2", "p-00000 has zone=b"),
    "pods of one claim to come open the cheapest zone": row(
        problem(pods(2, shape("2", volumes=uses("c")), "p"), pool(types=(instance_type("odd", "2", "4Gi", offerings=[offering("a", 10.0), offering("b", 1.0)]),)),
                storage=storage(volume_claim("c"))), "p by zone: 2", "p-00000 has zone=b"),
    "pods of one claim to come that want different zones do not both run": row(
        problem([using("c", selector={ZONE: "a"}), using("c", name="q", selector={ZONE: "b"})], ONE, storage=storage(volume_claim("c"))),
        "p has zone=a", "q left: zone"),
    "a claim that a pod on its way uses goes to its zone": row(
        problem([using("c")], ONE, bins=[node("n", "0", labels={ZONE: "c"}, running=[using("c", name="old")])], storage=storage(volume_claim("c"))),
        "p has zone=c"),
    "pods of one claim to come run where nothing has a zone": row(
        problem(pods(2, shape("2", volumes=uses("c")), "p"), bins=[node("n", "4")], storage=storage(volume_claim("c"))), "p-00000 on n", "p-00001 on n"),
    "pods of one claim to come run on a node without a zone where others have one": row(
        problem(pods(2, shape("1", volumes=uses("c")), "p"), bins=[node("m", "500m", labels={ZONE: "a"}), node("n", "2")],
                storage=storage(volume_claim("c"))), "p-00000 on n", "p-00001 on n"),
    "one free local volume serves one claim": row(
        problem(each(2), bins=[node("n")], storage=local(*to_come(2, "local"), at("v", "n"))), "p0 on n", "p1 left: no free volume is left for PersistentVolumeClaim default/c1"),
    "two local volumes on two nodes serve a claim each": row(
        problem(each(2), bins=[node("m"), node("n")], storage=local(*to_come(2, "local"), at("v", "m"), at("w", "n"))), "p0 p1 apart", "nothing left"),
    "pods of one claim share its local volume": row(
        problem(pods(2, shape("100m", volumes=uses("c")), "p"), bins=[node("m", "100m"), node("n")],
                storage=local(volume_claim("c", "local"), at("v", "n"), at("w", "n"))), "p-00000 on n", "p-00001 on n"),
    "a pod takes two volumes of one node": row(
        problem([using("c0", "c1")], bins=[node("m"), node("n")], storage=local(*to_come(2, "local"), at("u", "m"), at("v", "n"), at("w", "n"))), "p on n"),
    "a volume that is too small does not do": row(
        problem([using("c")], bins=[node("m"), node("n")], storage=local(volume_claim("c", "local", size="10Gi"), at("v", "m", size="5Gi"), at("w", "n", size="10Gi"))),
        "p on n"),
    "the smallest volume that does is taken": row(
        problem([using("c0", name="p0", priority=1), using("c1", name="p1")], bins=[node("n")],
                storage=local(volume_claim("c0", "local", size="1Gi"), volume_claim("c1", "local", size="50Gi"), at("v", "n", size="100Gi"), at("w", "n", size="5Gi"))),
        "nothing left"),
    "a volume with other access modes does not do": row(
        problem([using("c")], bins=[node("m"), node("n")],
                storage=local(volume_claim("c", "local", modes=["ReadWriteOncePod"]), at("v", "m"), at("w", "n", access_modes=("ReadWriteOnce", "ReadWriteOncePod")))),
        "p on n"),
    "a volume that the claim does not select does not do": row(
        problem([using("c")], bins=[node("m"), node("n")],
                storage=local(volume_claim("c", "local", selector=app("fast")), at("v", "m"), at("w", "n", labels={"app": "fast"}))),
        "p on n"),
    "a block device is no file system": row(
        problem([using("c")], bins=[node("m"), node("n")], storage=local(volume_claim("c", "local"), at("v", "m", volume_mode="Block"), at("w", "n"))), "p on n"),
    "a volume that is kept for the claim is taken before others": row(
        problem([using("c")], bins=[node("m"), node("n")],
                storage=local(volume_claim("c", "local"), at("v", "m"), at("w", "n", claim_ref=ObjectReference(namespace="default", name="c")))), "p on n"),
    "no volume that would do leaves the pod": row(
        problem([using("c")], bins=[node("n")], storage=local(volume_claim("c", "local", size="10Gi"), at("v", "n", size="5Gi"))), "p left: no available PersistentVolume"),
    # --- attach limits ---
    "a node that can attach no more takes pods without volumes": row(
        problem([*each(2, "1"), pod("w", shape("1"))], bins=[node("n", "10", attach={DRIVER: 1})], storage=storage(*to_come(2))),
        "p0 on n", "p1 left: volume", "w on n"),
    "a node that can attach no more takes a pod whose volume it has attached": row(
        problem([using("c0", name="p0", priority=2), using("c1", name="p1", priority=1), using("c0", name="p2")],
                bins=[node("n", "10", attach={DRIVER: 1})], storage=storage(volume("v0"), volume_claim("c0", volume="v0"), *to_come(2)[1:])),
        "p0 on n", "p1 left: volume", "p2 on n"),
    "a node to come that can attach no more takes pods without volumes": row(
        problem([*each(2, "100m"), pod("w", shape("100m"))], pool(types=(MEDIUM,), limits={"nodes": "1"}), storage=storage(*to_come(2), attach={"medium": {DRIVER: 1}})),
        "1 node", "p0 w together", "p1 left: "),
    "an existing node takes as many volumes as its CSINode says": row(
        problem(each(3), ONE, bins=[node("n", attach={DRIVER: 2})], storage=storage(*to_come(3))), "1 node", "p by host: 2 1", "p1 on n", "p2 on new small"),
    "an existing node of which no CSINode tells takes what its kind does": row(
        problem(each(3), ONE, bins=[node("n", labels=OF_SMALL)], storage=storage(*to_come(3), attach={"small": {DRIVER: 2}})), "1 node", "p by host: 2 1"),
    "of a driver that its CSINode does not name a node takes what its kind does": row(
        problem(each(3), ONE, bins=[node("n", labels=OF_SMALL, attach={OTHER: 9})], storage=storage(*to_come(3), attach={"small": {DRIVER: 2}})),
        "1 node", "p by host: 2 1"),
    "what its own CSINode says is more than what others of its kind say": row(
        problem(each(3), ONE, bins=[node("n", labels=OF_SMALL, attach={DRIVER: 3})], storage=storage(*to_come(3), attach={"small": {DRIVER: 2}})), "0 nodes"),
    "a driver that its CSINode names without a limit takes any number": row(
        problem(each(3), ONE, bins=[node("n", labels=OF_SMALL, attach={DRIVER: ANY_NUMBER})],
                storage=storage(*to_come(3), attach={"small": {DRIVER: 2}})), "0 nodes"),
    "an existing node of a pool takes what the capacity of its type tells": row(
        problem(each(3), pool(types=(ROOMY,)), bins=[replace(node("n", labels={names.INSTANCE_TYPE_LABEL: "roomy"}), pool="default")], storage=storage(*to_come(3))),
        "1 node", "p by host: 2 1"),
    "new nodes have the limit that their type tells": row(problem(each(4), pool(types=(TELLING,)), storage=storage(*to_come(4))), "2 nodes"),
    "what CSINodes say of a kind is more than what its type tells": row(
        problem(each(4), pool(types=(TELLING,)), storage=storage(*to_come(4), attach={"telling": {DRIVER: 4}})), "1 node"),
    "an existing node of a pool takes what its type tells": row(
        problem(each(3), pool(types=(TELLING,)), bins=[replace(node("n", labels={names.INSTANCE_TYPE_LABEL: "telling"}), pool="default")], storage=storage(*to_come(3))),
        "1 node", "p by host: 2 1"),
    "volumes of pods that run count": row(
        problem([using("c1")], ONE, bins=[node("n", attach={DRIVER: 1}, running=[using("c0", name="old")])], storage=storage(*bound(2))), "p on new small"),
    "a node that has more volumes than it may takes no more": row(
        problem(
            [using("c2")], ONE, bins=[node("n", attach={DRIVER: 1}, running=[using("c0", "c1", name="old")])], storage=storage(*to_come(3))
        ),
        "p on new small"),
    "a volume that runs there already is not counted again": row(
        problem([using("c0")], ONE, bins=[node("n", attach={DRIVER: 1}, running=[using("c0", name="old")])], storage=storage(*bound(1))), "p on n"),
    "a shared volume counts once": row(
        problem([using("c", cpu="100m"), using("c", cpu="100m", name="q")], ONE, bins=[node("n", attach={DRIVER: 1})],
                storage=storage(volume("v", access_modes=("ReadWriteMany",)), volume_claim("c", volume="v", modes=["ReadWriteMany"]))),
        "p on n", "q on n"),
    "two claims of one volume handle count once": row(
        problem([using("c0", cpu="100m"), using("c1", cpu="100m", name="q")], ONE, bins=[node("n", attach={DRIVER: 1})],
                storage=storage(volume("v0", csi=CSIVolumeSource(driver=DRIVER, volume_handle="h")), volume_claim("c0", volume="v0"),
                                volume("v1", csi=CSIVolumeSource(driver=DRIVER, volume_handle="h")), volume_claim("c1", volume="v1"))),
        "p on n", "q on n"),
    "drivers are counted apart": row(
        problem(each(2), bins=[node("n", attach={DRIVER: 1, OTHER: 1})],
                storage=storage(volume_claim("c0"), storage_class("other", provisioner=OTHER), volume_claim("c1", "other"))),
        "p0 on n", "p1 on n"),
    "a driver without a count has no limit": row(
        problem(each(3), bins=[node("n", attach={OTHER: 1})], storage=storage(*to_come(3))), "nothing left"),
    "a volume of the old in-tree kind counts for its driver": row(
        problem([using("c1", cpu="100m")], ONE, bins=[node("n", attach={EBS: 1}, running=[using("c0", name="old")])],
                storage=storage(volume("v0", driver="", aws_elastic_block_store=AWSElasticBlockStoreSource(volume_id="vol-0")), volume_claim("c0", volume="v0"),
                                volume("v1", driver="", aws_elastic_block_store=AWSElasticBlockStoreSource(volume_id="vol-1")), volume_claim("c1", volume="v1"))),
        "p on new small"),
    "a class of the old in-tree kind counts for its driver": row(
        problem(each(2), ONE, bins=[node("n", attach={EBS: 1})],
                storage=storage(storage_class("gp2", provisioner="kubernetes.io/aws-ebs"), *to_come(2, "gp2"))),
        "p0 on n", "p1 on new small"),
    "a limit of nothing takes no volume": row(
        problem(each(1), ONE, bins=[node("n", attach={DRIVER: 0})], storage=storage(*to_come(1))), "p0 on new small"),
    "new nodes have the limit learnt from their kind (Karpenter has none)": row(
        problem(each(4), ONE, storage=storage(*to_come(4), attach={"small": {DRIVER: 2}})), "2 nodes"),
    "new nodes have the limit that their capacity tells": row(
        problem(each(4), pool(types=(ROOMY,)), storage=storage(*to_come(4))), "2 nodes"),
    "a type that takes too few volumes is not chosen": row(
        problem([using("c0", "c1", "c2")], ALL, storage=storage(*to_come(3), attach={"small": {DRIVER: 2}})), "p on new medium"),
    "more volumes than any node takes leave the pod": row(
        problem([using("c0", "c1", "c2")], ONE, storage=storage(*to_come(3), attach={"small": {DRIVER: 2}})), "p left: volume"),
    "a pod without volumes joins a node that takes no more": row(
        problem([*each(2), pod("q", shape("100m"))], ONE, storage=storage(*to_come(2), attach={"small": {DRIVER: 2}})), "1 node"),
    # --- together with spread and affinity ---
    "zonal volumes and spread are solved together (Karpenter pins the zone before)": row(
        problem([pod("w-b", of_app("web", "2", volumes=uses("c"), topology_spread_constraints=(spread(ZONE, app("web")),))),
                 *pods(2, of_app("web", "2", topology_spread_constraints=(spread(ZONE, app("web")),)), "w")], ONE, storage=storage(*BOUND_B)),
        "w by zone: 1 1 1", "w-b has zone=b"),
    "those whose volumes leave them one zone go before others of their size, though all select nodes": row(
        problem([pod(name, of_app("web", volumes=uses(*claims), selector={"own": "y"}, topology_spread_constraints=(spread(ZONE, app("web")),)))
                 for name, claims in (("web-a", ["ca"]), ("web-b", ["cb"]), ("web-any", []))], pool(types=(SMALL,), labels={"own": "y"}),
                storage=storage(volume("va", "a"), volume_claim("ca", volume="va"), volume("vb", "b"), volume_claim("cb", volume="vb"))),
        "3 nodes", "web by zone: 1 1 1"),
    "a zone full for the spread leaves the pod whose volume is there": row(
        problem([pod("w", of_app("web", "2", volumes=uses("c"), topology_spread_constraints=(spread(ZONE, app("web")),)))], ONE,
                bins=[node("m", "0", labels={ZONE: "a"}), node("n", "0", labels={ZONE: "b"}, running=[pod("old", of_app("web"))])], storage=storage(*BOUND_B)),
        "w left: zone"),
    "a volume's zone draws those that follow its pod": row(
        problem([pod("leader", of_app("db", "500m", volumes=uses("c"))), *pods(2, shape("2", affinity=near(ZONE, app("db"))), "p")], ONE, storage=storage(*BOUND_B)),
        "p by zone: 2", "p-00000 has zone=b"),
    "a kind drawn together goes where its one volume is": row(
        problem([*pods(2, of_app("db", "2", affinity=near(ZONE, app("db"))), "p"), pod("q", of_app("db", "500m", volumes=uses("c"), affinity=near(ZONE, app("db"))))],
                ONE, storage=storage(*BOUND_B)),
        "p by zone: 2", "p-00000 has zone=b", "q has zone=b"),
    "members with volumes to come keep a zone each": row(
        problem([pod(f"db-{n}", of_app("db", "100m", volumes=uses(f"c{n}"), affinity=apart(ZONE, app("db")))) for n in range(3)], ALL,
                storage=storage(storage_class("gold", *ABC), *to_come(3, "gold"))),
        "db by zone: 1 1 1"),
    "members with volumes bound where they were keep their zones": row(
        problem([pod(f"db-{n}", of_app("db", "100m", volumes=uses(f"c{n}"), affinity=apart(ZONE, app("db")))) for n in range(3)], ALL,
                storage=storage(*(one for n, zone in enumerate("cab") for one in (volume(f"v{n}", zone), volume_claim(f"c{n}", volume=f"v{n}"))))),
        "db-0 has zone=c", "db-1 has zone=a", "db-2 has zone=b"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_row(case: Row) -> None:
    check(case)
