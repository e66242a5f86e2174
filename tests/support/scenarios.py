"""Scenarios in which pods wait for nodes: what kube-scheduler says of each is known, and is asked by tests/integration.

`test_scheduler_judge` asks of the solver's plans, `test_scenarios_at_once` of what the real programs make of them.
"""

import os
from typing import Any

from provisioner.apis import names
from provisioner.lab.devcluster.versions import chosen_minor
from provisioner.values.taints import Taint
from tests.support.judge import Document, Scenario, node, pod, several, storage_class, volume, volume_claim
from tests.support.problems import instance_type, pool

ZONES = ("a", "b", "c")
HOSTNAME, ZONE, ARCH, CAPACITY, TYPE = (
    names.HOSTNAME_LABEL,
    names.ZONE_LABEL,
    names.ARCH_LABEL,
    names.CAPACITY_TYPE_LABEL,
    names.INSTANCE_TYPE_LABEL,
)
CPU_LABEL, GPU_LABEL, GPU = "provider.example/cpu", "provider.example/gpu", "example.com/gpu"

SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ZONES)
MEDIUM = instance_type("medium", "4", "8Gi", 2.0, zones=ZONES)
LARGE = instance_type("large", "8", "16Gi", 4.0, zones=ZONES)
ARM = instance_type("arm", "4", "8Gi", 1.5, arch="arm64", zones=ZONES)
WITH_GPU = instance_type("gpu", "8", "32Gi", 20.0, zones=ZONES, more={GPU: "2"}, labels={GPU_LABEL: "t4"})
PAGED = instance_type("paged", "4", "8Gi", 3.0, zones=ZONES, more={"hugepages-2Mi": "1Gi"})
CROWDED = instance_type("crowded", "8", "16Gi", 1.0, zones=ZONES, max_pods=3)
TYPES = (SMALL, MEDIUM, LARGE, ARM)
ANY = pool(types=TYPES)
ONLY_SMALL = pool(types=(SMALL,))
ONLY_MEDIUM = pool(types=(MEDIUM,))
DEDICATED = Taint(key="dedicated", effect="NoSchedule", value="batch")
EVICTING = Taint(key="evicting", effect="NoExecute")
RATHER_NOT = Taint(key="rather-not", effect="PreferNoSchedule")
DEDICATED_WIRE = {"key": "dedicated", "effect": "NoSchedule", "value": "batch"}
TOLERATES = [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]


# --- parts of pods ---


def need(*expressions: tuple[str, str, list[str]]) -> Document:
    """A node selector term."""
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in expressions]}


def field(operator: str, *values: str) -> Document:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def on_nodes(*terms: Document) -> Document:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def wishes_nodes(*terms: Document) -> Document:
    wished = [{"weight": 10 * (len(terms) - number), "preference": one} for number, one in enumerate(terms)]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wished}}


def app(name: str) -> Document:
    return {"matchLabels": {"app": name}}


AGENT: Document = {"matchLabels": {"daemon": "agent"}}
DAEMON_OR_WEB: Document = {"key": "gone", "operator": "DoesNotExist"}
"""Every pod of the namespace."""


def near(key: str, selector: Document, **more: Any) -> Document:
    term = {"topologyKey": key, "labelSelector": selector, **more}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def apart(key: str, selector: Document, **more: Any) -> Document:
    term = {"topologyKey": key, "labelSelector": selector, **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def wishes_apart(key: str, selector: Document) -> Document:
    term = {"weight": 100, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def wishes_near(key: str, selector: Document) -> Document:
    term = {"weight": 100, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def even(key: str, selector: Document, skew: int = 1, **more: Any) -> Document:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        **more,
    }


def web(count: int, *spread: Document, cpu: str = "1", **more: Any) -> tuple[Document, ...]:
    return several(count, "web", cpu, app="web", topologySpreadConstraints=list(spread), **more)


def port(number: int, protocol: str = "TCP", address: str = "") -> list[Document]:
    return [{"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}]


def init(cpu: str, **more: Any) -> Document:
    return {"name": f"i{cpu}", "image": "none.invalid/none", "resources": {"requests": {"cpu": cpu}}, **more}


def made(kind: str, version: str, name: str, **fields: Any) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


HIGH = made("PriorityClass", "scheduling.k8s.io/v1", "@-high", value=1000, preemptionPolicy="Never")
SANDBOX = made("RuntimeClass", "node.k8s.io/v1", "@-sandbox", handler="sandbox", overhead={"podFixed": {"cpu": "500m"}})

SCENARIOS: dict[str, Scenario] = {
    # --- 1 requirements ---
    "a node selector finds the architecture": Scenario(
        (pod("p", nodeSelector={ARCH: "arm64"}),), (ANY,), claims=1, free=True
    ),
    "a required zone is where the node is made": Scenario(
        several(3, "p", affinity=on_nodes(need((ZONE, "In", ["b"])))), (ANY,), claims=1, free=True
    ),
    "Gt and Lt compare numbers": Scenario(
        (pod("p", affinity=on_nodes(need((CPU_LABEL, "Gt", ["2"]), (CPU_LABEL, "Lt", ["8"])))),), (ANY,), free=True
    ),
    "a later term is good enough": Scenario(
        (pod("p", affinity=on_nodes(need((ZONE, "In", ["mars"])), need((TYPE, "In", ["medium"])))),), (ANY,), free=True
    ),
    "a label of the pool is on its nodes": Scenario(
        (pod("p", nodeSelector={"team": "x"}),), (pool(types=TYPES, labels={"team": "x"}),), free=True
    ),
    "pods choose among the values of a pool's label": Scenario(
        (pod("x", nodeSelector={"team": "x"}), pod("y", nodeSelector={"team": "y"})),
        (pool("default", ("team", "In", ["x", "y"]), types=TYPES),),
        claims=2,
        free=True,
    ),
    "matchFields names a node of now": Scenario(
        (pod("p", affinity=on_nodes(field("In", "@-n2"))),), nodes=(node("@-n1"), node("@-n2")), free=True
    ),
    "matchFields may exclude the only node of now": Scenario(
        (pod("p", affinity=on_nodes(field("NotIn", "@-n1"))),), (ANY,), nodes=(node("@-n1"),), claims=1, free=True
    ),
    "a node of now without the label satisfies NotIn": Scenario(
        (pod("p", affinity=on_nodes(need((ZONE, "NotIn", ["a"])))),), (ANY,), nodes=(node("@-n1"),), claims=0, free=True
    ),
    "a node of now without the label does not satisfy Exists": Scenario(
        (pod("p", affinity=on_nodes(need((ZONE, "Exists", [])))),), (ANY,), nodes=(node("@-n1"),), claims=1, free=True
    ),
    "DoesNotExist avoids the nodes that have the label": Scenario(
        (pod("p", "8", affinity=on_nodes(need((GPU_LABEL, "DoesNotExist", [])))),),
        (pool(types=(WITH_GPU, LARGE)),),
        claims=1,
        free=True,
    ),
    "selector and affinity hold together": Scenario(
        (pod("p", nodeSelector={ZONE: "a"}, affinity=on_nodes(need((ZONE, "In", ["b"])))),),
        (ANY,),
        nodes=(node("@-n1", zone="a"),),
        left=frozenset({"p"}),
    ),
    "a zone where nothing is made leaves the pod": Scenario(
        (pod("p", nodeSelector={ZONE: "mars"}), pod("q")), (ANY,), left=frozenset({"p"}), claims=1
    ),
    "minValues does not change what fits": Scenario(
        several(5, "p"), (pool(types=(SMALL, MEDIUM, LARGE), min_values={TYPE: 2}),), free=True
    ),
    # --- 2 resources ---
    "a dozen pods fill new nodes": Scenario(several(12, "p"), (ONLY_MEDIUM,), claims=3, free=True),
    "the largest init container sets the floor": Scenario(
        several(2, "p", "500m", initContainers=[init("1500m"), init("1")]), (ONLY_SMALL,), claims=2, free=True
    ),
    "a sidecar counts as long as the pod runs": Scenario(
        several(2, "p", "1", initContainers=[init("500m", restartPolicy="Always")]), (ONLY_SMALL,), claims=2, free=True
    ),
    "an init container runs beside the sidecars before it": Scenario(
        (
            pod("p", "200m", initContainers=[init("1", restartPolicy="Always"), init("900m")]),
            pod("q", "200m"),
        ),
        (ONLY_SMALL,),
        claims=2,
        free=True,
    ),
    "the request of the whole pod counts instead of its containers'": Scenario(
        several(2, "p", "100m", resources={"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}),
        (ONLY_SMALL,),
        claims=2,
        free=True,
    ),
    "the overhead of a runtime class is on top": Scenario(
        several(4, "p", "500m", runtimeClassName="@-sandbox"), (ONLY_SMALL,), objects=(SANDBOX,), claims=2, free=True
    ),
    "an extended resource needs a node that has it": Scenario(
        (*several(3, "p", more={GPU: "1"}), pod("q")), (pool(types=(SMALL, WITH_GPU)),)
    ),
    "huge pages are a resource of their own": Scenario(
        several(3, "p", "100m", more={"hugepages-2Mi": "512Mi"}), (pool(types=(SMALL, PAGED)),), claims=2, free=True
    ),
    "the number of pods is a resource": Scenario(several(5, "p", "10m"), (pool(types=(CROWDED,)),), claims=2, free=True),
    "a pod that asks for nothing still counts": Scenario(
        several(4, "p", ""), (pool(types=(CROWDED,)),), nodes=(node("@-n1", pods=1),), claims=1, free=True
    ),
    "daemons take their share of new nodes": Scenario(
        several(4, "p"), (ONLY_SMALL,), daemons={"agent": "500m"}, claims=4
    ),
    "daemons on existing nodes are not counted twice": Scenario(
        several(3, "p"), (ONLY_SMALL,), nodes=(node("@-n1", "4"),), daemons={"agent": "1"}, claims=0, free=True
    ),
    "pods that want to be with a daemon get nodes": Scenario(
        several(4, "p", affinity=near(HOSTNAME, AGENT)), (ONLY_SMALL,), daemons={"agent": "100m"}, claims=4
    ),
    "pods that want to be with a daemon of an existing node": Scenario(
        several(2, "p", affinity=near(HOSTNAME, AGENT)),
        (ONLY_SMALL,),
        nodes=(node("@-n1", "4"),),
        daemons={"agent": "100m"},
        claims=0,
        free=True,
    ),
    "pods that want to be in the zone of a daemon get nodes": Scenario(
        several(3, "p", affinity=near(ZONE, AGENT)), (ONLY_SMALL,), daemons={"agent": "100m"}, claims=3
    ),
    "pods that keep away from a daemon are left": Scenario(
        (*several(2, "far", affinity=apart(HOSTNAME, AGENT)), pod("p")),
        (ONLY_SMALL,),
        daemons={"agent": "100m"},
        left=frozenset({"far-0", "far-1"}),
        claims=1,
        steered=True,  # kube-scheduler may bind far-0 to the node that p has, in the moment before the daemon's pod is there
    ),
    "pods that are spread together with a daemon": Scenario(
        several(6, "web", app="web", topologySpreadConstraints=[even(HOSTNAME, {"matchExpressions": [DAEMON_OR_WEB]})]),
        (ONLY_MEDIUM,),
        daemons={"agent": "100m"},
    ),
    "a pod too large for every node is left": Scenario(
        (pod("huge", "64"), pod("p")), (ANY,), left=frozenset({"huge"}), claims=1
    ),
    "a port of the host is there once": Scenario(several(3, "p", "100m", ports=port(8080)), (ANY,), claims=3),
    "a port of another protocol is another port": Scenario(
        (pod("t", "100m", ports=port(53)), pod("u", "100m", ports=port(53, "UDP"))), (ANY,), claims=1, free=True
    ),
    "different addresses of the host do not conflict, the wildcard conflicts with all": Scenario(
        (
            pod("one", "100m", ports=port(80, address="127.0.0.1")),
            pod("two", "100m", ports=port(80, address="127.0.0.2")),
            pod("all", "100m", ports=port(80)),
        ),
        (ANY,),
        claims=2,
    ),
    "a port taken on an existing node sends the pod elsewhere": Scenario(
        (pod("old", "100m", ports=port(443), on="@-n1"), pod("p", "100m", ports=port(443))),
        (ANY,),
        nodes=(node("@-n1"),),
        claims=1,
        free=True,
    ),
    # --- 3 taints ---
    "a tolerated taint of the pool's template": Scenario(
        (pod("p", tolerations=TOLERATES),), (pool(types=TYPES, taints=[DEDICATED]),), claims=1, free=True
    ),
    "NoExecute on new nodes keeps a pod off": Scenario(
        (pod("p", tolerations=TOLERATES),), (pool(types=TYPES, taints=[DEDICATED, EVICTING]),), left=frozenset({"p"})
    ),
    "a toleration without key opens everything": Scenario(
        (pod("p", tolerations=[{"operator": "Exists"}]),), (pool(types=TYPES, taints=[DEDICATED, EVICTING]),), free=True
    ),
    "PreferNoSchedule keeps nobody off": Scenario((pod("p"),), (pool(types=TYPES, taints=[RATHER_NOT]),), free=True),
    "a tainted existing node is passed over": Scenario(
        (pod("p"),), (ANY,), nodes=(node("@-n1", taints=[DEDICATED_WIRE]),), claims=1, free=True
    ),
    "pods go to the pool that they tolerate": Scenario(
        (pod("p", "2"), pod("q", "2", tolerations=TOLERATES)),
        (pool("tainted", types=(SMALL,), taints=[DEDICATED], weight=9), pool(types=(SMALL,))),
        claims=2,
    ),
    # --- 4 spread ---
    "zones get equal shares": Scenario(web(6, even(ZONE, app("web")), cpu="1500m"), (ONLY_SMALL,), claims=6, free=True),
    "zones that are behind are filled first": Scenario(
        (*several(2, "old", app="web", on="@-n1"), *web(4, even(ZONE, app("web")))),
        (ONLY_MEDIUM,),
        nodes=(node("@-n1", "2", zone="a"), node("@-n2", "1", zone="b")),
        free=True,
    ),
    "two more in one zone are allowed by a skew of two": Scenario(
        web(5, even(ZONE, app("web"), 2)), (pool("default", (ZONE, "In", ["a", "b"]), types=(MEDIUM,)),), free=True
    ),
    "minDomains is met by as many zones": Scenario(
        web(3, even(ZONE, app("web"), minDomains=3), cpu="100m"), (ONLY_MEDIUM,), claims=3, free=True
    ),
    "fewer zones than minDomains hold maxSkew pods each": Scenario(
        web(4, even(ZONE, app("web"), minDomains=5), cpu="100m"),
        (ONLY_MEDIUM,),
        left=frozenset({"web-3"}),
        claims=3,
    ),
    "hostnames get equal shares": Scenario(web(4, even(HOSTNAME, app("web")), cpu="1500m"), (ONLY_SMALL,), claims=4),
    "nodes of now that all have one take a second each (Karpenter buys three)": Scenario(
        (
            *(pod(f"old-{n}", "1", app="web", on=f"@-n{n}") for n in range(3)),
            *web(3, even(HOSTNAME, app("web"))),
        ),
        (ANY,),
        nodes=tuple(node(f"@-n{n}") for n in range(3)),
        claims=0,
        free=True,
    ),
    "a second round on new nodes (Karpenter buys one for each)": Scenario(
        web(6, even(HOSTNAME, app("web")), cpu="1"), (ONLY_MEDIUM,)
    ),
    "every revision is spread by itself": Scenario(
        tuple(
            pod(
                f"{rev}-{n}",
                "500m",
                app="web",
                labels={"rev": rev},
                topologySpreadConstraints=[even(ZONE, app("web"), matchLabelKeys=["rev"])],
            )
            for rev in ("one", "two")
            for n in range(3)
        ),
        (ONLY_MEDIUM,),
        claims=3,
    ),
    "a tainted zone counts, unless the policy honours taints": Scenario(
        web(3, even(ZONE, app("web"))),
        (pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,)),),
        nodes=(node("@-n1", zone="c", taints=[DEDICATED_WIRE]),),
        left=frozenset({"web-2"}),
    ),
    "a tainted zone does not count where the policy honours taints": Scenario(
        web(4, even(ZONE, app("web"), nodeTaintsPolicy="Honor")),
        (pool("default", (ZONE, "In", ["a", "b"]), types=(SMALL,)),),
        nodes=(node("@-n1", zone="c", taints=[DEDICATED_WIRE]),),
        free=True,
    ),
    "a zone that the pod's selector excludes does not count": Scenario(
        web(4, even(ZONE, app("web")), affinity=on_nodes(need((ZONE, "In", ["a", "b"])))),
        (ONLY_SMALL,),
        nodes=(node("@-n1", zone="c"),),
        free=True,
    ),
    "a rack that the selector excludes counts where the policy ignores it": Scenario(
        web(2, even("rack-@", app("web"), nodeAffinityPolicy="Ignore"), nodeSelector={"rack-@": "r1"}),
        nodes=(node("@-n1", labels={"rack-@": "r1"}), node("@-n2", labels={"rack-@": "r2"})),
        left=frozenset({"web-1"}),
    ),
    "capacity types get equal shares": Scenario(
        web(4, even(CAPACITY, app("web")), cpu="2"), (ONLY_SMALL,), claims=4, free=True
    ),
    "values of a pool's own label get equal shares": Scenario(
        web(4, even("team", app("web")), cpu="2"),
        (pool("default", ("team", "In", ["x", "y"]), types=(SMALL,)),),
        claims=4,
        free=True,
    ),
    "ScheduleAnyway never keeps a pod pending": Scenario(
        web(3, {**even(ZONE, app("web")), "whenUnsatisfiable": "ScheduleAnyway"}),
        (pool("default", (ZONE, "In", ["a"]), types=(SMALL,)),),
        nodes=(node("@-n1", "1", zone="b"),),
        free=True,
    ),
    "zone and hostname together": Scenario(
        web(6, even(ZONE, app("web")), even(HOSTNAME, app("web")), cpu="1500m"), (ONLY_SMALL,), claims=6
    ),
    "a pod that its own selector does not select follows the others' counts": Scenario(
        (
            *several(2, "old", "500m", app="web", on="@-n1"),
            *several(3, "p", app="api", topologySpreadConstraints=[even(ZONE, app("web"))]),
        ),
        (ONLY_MEDIUM,),
        nodes=(node("@-n1", "8", zone="a"), node("@-n2", "1", zone="b")),
    ),
    "a node without the label takes no pod that spreads over it": Scenario(
        web(2, even(ZONE, app("web"))), (ONLY_SMALL,), nodes=(node("@-n1", "8"),), claims=2, free=True
    ),
    # --- 4 affinity between pods ---
    "a follower goes to the zone of a pod that runs": Scenario(
        (pod("old", app="db", on="@-n1"), *several(2, "p", affinity=near(ZONE, app("db")))),
        (ONLY_SMALL,),
        nodes=(node("@-n1", "1", zone="b"),),
        claims=1,
        free=True,
    ),
    "the first of its own kind chooses the zone for all": Scenario(
        several(5, "p", app="db", affinity=near(ZONE, app("db"))), (ONLY_SMALL,), claims=3
    ),
    "all of one kind on one node": Scenario(
        several(4, "p", app="db", affinity=near(HOSTNAME, app("db"))), (pool(types=TYPES),), claims=1, free=True
    ),
    "a follower waits for its leader, both in one batch": Scenario(
        (pod("follower", "2", affinity=near(ZONE, app("db"))), pod("leader", "2", app="db", nodeSelector={ZONE: "c"})),
        (ONLY_SMALL,),
        claims=2,
    ),
    "an affinity that nobody satisfies leaves the pod": Scenario(
        (pod("p", affinity=near(ZONE, app("nobody"))),), (ANY,), nodes=(node("@-n1", zone="a"),), left=frozenset({"p"})
    ),
    "the friend in another namespace is found by name": Scenario(
        (
            pod("old", app="db", namespace="x", on="@-n1"),
            pod("p", "2", affinity=near(ZONE, app("db"), namespaces=["@-x"])),
        ),
        (ONLY_SMALL,),
        nodes=(node("@-n1", "1", zone="c"),),
        namespaces={"x": {}},
        claims=1,
        free=True,
    ),
    "the friend in another namespace is not found without": Scenario(
        (pod("old", app="db", namespace="x", on="@-n1"), pod("p", affinity=near(ZONE, app("db")))),
        (ONLY_SMALL,),
        nodes=(node("@-n1", zone="c"),),
        namespaces={"x": {}},
        left=frozenset({"p"}),
    ),
    "the friend's namespace is found by its labels": Scenario(
        (
            pod("old", app="db", namespace="x", on="@-n1"),
            pod("p", "2", affinity=near(ZONE, app("db"), namespaceSelector={"matchLabels": {"row": "@"}})),
        ),
        (ONLY_SMALL,),
        nodes=(node("@-n1", "1", zone="c"),),
        namespaces={"x": {"row": "@"}},
        claims=1,
        free=True,
    ),
    "pods of one kind keep apart, a node each": Scenario(
        several(3, "p", "100m", app="db", affinity=apart(HOSTNAME, app("db"))), (ANY,), claims=3
    ),
    "pods of one kind keep apart, a zone each, and the fourth is left": Scenario(
        several(4, "p", "100m", app="db", affinity=apart(ZONE, app("db"))), (ANY,), left=frozenset({"p-3"}), claims=3
    ),
    "a pod that runs keeps others off its zone though they do not mind it": Scenario(
        (pod("old", affinity=apart(ZONE, app("web")), on="@-n1"), *several(2, "p", app="web")),
        (ANY,),
        nodes=(node("@-n1", "8", zone="a"),),
        free=True,
    ),
    "a pod of the batch keeps others off its node though they do not mind it": Scenario(
        (pod("alone", "100m", affinity=apart(HOSTNAME, app("web"))), pod("p", "100m", app="web")), (ANY,), claims=2
    ),
    "anti-affinity may look into all namespaces": Scenario(
        (
            pod("old", labels={"own": "@"}, namespace="x", on="@-n1"),
            pod("p", affinity=apart(HOSTNAME, {"matchLabels": {"own": "@"}}, namespaceSelector={})),
        ),
        (ANY,),
        nodes=(node("@-n1"),),
        namespaces={"x": {}},
        claims=1,
        free=True,
    ),
    "a tenant keeps off every other tenant": Scenario(
        tuple(
            pod(
                f"{tenant}-{n}",
                "500m",
                app="job",
                labels={"tenant": tenant},
                affinity=apart(HOSTNAME, app("job"), mismatchLabelKeys=["tenant"]),
            )
            for tenant in ("red", "blue")
            for n in range(2)
        ),
        (ANY,),
        claims=2,
    ),
    "near one kind and apart from one's own": Scenario(
        (
            pod("cache", app="cache", nodeSelector={ZONE: "b"}),
            *several(
                2, "p", app="web", affinity={**near(ZONE, app("cache")), **apart(HOSTNAME, app("web"))}
            ),
        ),
        (ONLY_SMALL,),
        claims=2,
    ),
    # --- 5 volumes ---
    "a bound volume decides the zone": Scenario(
        (pod("p", claims=["c"]),),
        (ANY,),
        objects=(storage_class("@-s"), volume("@-v", "@-s", "b"), volume_claim("c", "@-s", "@-v")),
        claims=1,
        free=True,
    ),
    "a volume to come is made where its class can": Scenario(
        (pod("p", claims=["c"]),),
        (ANY,),
        objects=(storage_class("@-s", "c"), volume_claim("c", "@-s")),
        claims=1,
        free=True,
    ),
    "volumes in two zones leave the pod": Scenario(
        (pod("p", claims=["c", "d"]),),
        (ANY,),
        objects=(
            storage_class("@-s"),
            volume("@-v", "@-s", "a"),
            volume("@-w", "@-s", "b"),
            volume_claim("c", "@-s", "@-v"),
            volume_claim("d", "@-s", "@-w"),
        ),
        left=frozenset({"p"}),
    ),
    "any term of a volume's affinity will do": Scenario(
        (pod("p", claims=["c"], nodeSelector={ZONE: "c"}),),
        (ANY,),
        objects=(
            storage_class("@-s"),
            volume("@-v", "@-s", terms=[need((ZONE, "In", ["a"])), need((ZONE, "In", ["c"]))]),
            volume_claim("c", "@-s", "@-v"),
        ),
        claims=1,
        free=True,
    ),
    "the zone label of a volume without affinity counts": Scenario(
        (pod("p", claims=["c"]),),
        (ANY,),
        nodes=(node("@-n1", zone="a"),),
        objects=(storage_class("@-s"), volume("@-v", "@-s", labels={ZONE: "b"}), volume_claim("c", "@-s", "@-v")),
        claims=1,
        free=True,
    ),
    "zonal volumes and spread are solved together": Scenario(
        (
            pod("web-a", app="web", claims=["ca"], topologySpreadConstraints=[even(ZONE, app("web"))]),
            pod("web-b", app="web", claims=["cb"], topologySpreadConstraints=[even(ZONE, app("web"))]),
            pod("web-any", app="web", topologySpreadConstraints=[even(ZONE, app("web"))]),
        ),
        (ONLY_SMALL,),
        objects=(
            storage_class("@-s"),
            volume("@-va", "@-s", "a"),
            volume("@-vb", "@-s", "b"),
            volume_claim("ca", "@-s", "@-va"),
            volume_claim("cb", "@-s", "@-vb"),
        ),
        claims=3,
        steered=True,  # web-any in zone a, web-b in b: web-a has nowhere to go until c has a pod, and there is none for it
    ),
    "a zonal volume draws its pod's friends along": Scenario(
        (
            pod("leader", "2", app="db", claims=["c"], affinity=near(ZONE, app("db"))),
            *several(2, "p", "2", app="db", affinity=near(ZONE, app("db"))),
        ),
        (ONLY_SMALL,),
        objects=(storage_class("@-s"), volume("@-v", "@-s", "c"), volume_claim("c", "@-s", "@-v")),
        claims=3,
    ),
    "members with volumes to come keep a zone each": Scenario(
        tuple(
            pod(f"db-{n}", app="db", claims=[f"data-{n}"], affinity=apart(ZONE, app("db"))) for n in range(3)
        ),
        (ONLY_SMALL,),
        objects=(storage_class("@-s", *ZONES), *(volume_claim(f"data-{n}", "@-s") for n in range(3))),
        claims=3,
    ),
    "an ephemeral volume is made with its pod": Scenario(
        (pod("p", ephemeral="@-s"),), (ANY,), objects=(storage_class("@-s", "b"),), claims=1, free=True
    ),
    "an existing node takes as many volumes as its CSINode says": Scenario(
        tuple(pod(f"p-{n}", "100m", claims=[f"c-{n}"]) for n in range(3)),
        (ONLY_SMALL,),
        nodes=(node("@-n1", zone="a", attach=2),),
        objects=(storage_class("@-s"), *(volume_claim(f"c-{n}", "@-s") for n in range(3))),
        claims=1,
        free=True,
    ),
    "volumes of pods that run are counted": Scenario(
        (pod("old", "100m", claims=["c-0"], on="@-n1"), pod("p", "100m", claims=["c-1"])),
        (ONLY_SMALL,),
        nodes=(node("@-n1", zone="a", attach=1),),
        objects=(
            storage_class("@-s"),
            *(volume(f"@-v{n}", "@-s", "a") for n in range(2)),
            *(volume_claim(f"c-{n}", "@-s", f"@-v{n}") for n in range(2)),
        ),
        claims=1,
        free=True,
    ),
    "new nodes take as many volumes as their type does": Scenario(
        tuple(pod(f"p-{n}", "100m", claims=[f"c-{n}"]) for n in range(4)),
        (ONLY_SMALL,),
        objects=(storage_class("@-s"), *(volume_claim(f"c-{n}", "@-s") for n in range(4))),
        attach={"small": 2},
        claims=2,
        free=True,
    ),
    "a volume that two pods share is attached once": Scenario(
        (pod("p", "100m", claims=["c"]), pod("q", "100m", claims=["c"])),
        (ONLY_SMALL,),
        objects=(
            storage_class("@-s"),
            volume("@-v", "@-s", "a", modes=["ReadWriteMany"]),
            volume_claim("c", "@-s", "@-v", modes=["ReadWriteMany"]),
        ),
        attach={"small": 1},
        claims=1,
        free=True,
    ),
    "a volume for one pod alone leaves the second": Scenario(
        (pod("p", "100m", claims=["c"]), pod("q", "200m", claims=["c"])),
        (ONLY_SMALL,),
        objects=(
            storage_class("@-s"),
            volume("@-v", "@-s", "a", modes=["ReadWriteOncePod"]),
            volume_claim("c", "@-s", "@-v", modes=["ReadWriteOncePod"]),
        ),
        left=frozenset({"p"}),
        claims=1,
    ),
    "a claim that does not exist leaves the pod": Scenario(
        (pod("p", claims=["nothing"]), pod("q")), (ANY,), left=frozenset({"p"}), claims=1
    ),
    "a claim that waits for immediate binding leaves the pod": Scenario(
        (pod("p", claims=["c"]), pod("q")),
        (ANY,),
        objects=(storage_class("@-s", immediate=True), volume_claim("c", "@-s")),
        left=frozenset({"p"}),
        claims=1,
    ),
    "a claim of a class that does not exist leaves the pod": Scenario(
        (pod("p", claims=["c"]), pod("q")),
        (ANY,),
        objects=(volume_claim("c", "@-none"),),
        left=frozenset({"p"}),
        claims=1,
    ),
    "a claim to be bound to a local volume goes to that volume's node": Scenario(
        (pod("p", claims=["c"]),),
        (ANY,),
        nodes=(node("@-n1"), node("@-n2")),
        objects=(
            storage_class("@-s", provisioner="kubernetes.io/no-provisioner"),
            volume("@-v", "@-s", terms=[need((HOSTNAME, "In", ["@-n2"]))]),
            volume_claim("c", "@-s"),
        ),
        claims=0,
        free=True,
    ),
    # --- 6 bins ---
    "existing nodes are used up before new ones": Scenario(
        several(6, "p"), (ONLY_MEDIUM,), nodes=(node("@-n1", "2"), node("@-n2", "2")), claims=1
    ),
    "what runs on an existing node is not given away again": Scenario(
        (pod("old", "3", on="@-n1"), *several(2, "p")), (ONLY_SMALL,), nodes=(node("@-n1"),), claims=1
    ),
    "the heavier pool comes first, the lighter takes what its limit leaves": Scenario(
        several(3, "p", "2"),
        (pool("heavy", types=(SMALL,), weight=9, limits={"cpu": "4"}), pool("light", types=(SMALL,))),
        claims=3,
        free=True,
    ),
    "a limit leaves what is beyond it": Scenario(
        several(3, "p", "2"), (pool(types=(SMALL,), limits={"nodes": "2"}),), left=frozenset({"p-2"}), claims=2
    ),
    "a higher priority has the place": Scenario(
        (pod("low", "3"), pod("high", "2", priorityClassName="@-high")),
        nodes=(node("@-n1"),),
        objects=(HIGH,),
        left=frozenset({"low"}),
    ),
    # --- 7 preferences ---
    "a preferred zone is taken where it can be had": Scenario(
        (pod("p", affinity=wishes_nodes(need((ZONE, "In", ["c"])))),), (ANY,), claims=1, free=True
    ),
    "preferences that cannot be met are given up": Scenario(
        (
            pod(
                "p",
                app="web",
                affinity={
                    **wishes_nodes(need((ZONE, "In", ["mars"])), need((TYPE, "In", ["none"]))),
                    **wishes_near(ZONE, app("nobody")),
                    **wishes_apart(HOSTNAME, app("web")),
                },
            ),
        ),
        (ANY,),
        free=True,
    ),
    "pods that would rather be apart share the existing node when there is no other": Scenario(
        several(2, "p", app="web", affinity=wishes_apart(HOSTNAME, app("web"))), nodes=(node("@-n1"),), free=True
    ),
}  # fmt: skip

# --- 8 features of kubelets, which kube-scheduler looks at since 1.36 ---

RESTARTS_ALL = "RestartAllContainersOnContainerExits"
RESTARTING: Document = {
    **pod("any")["spec"]["containers"][0],
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}],
}
"""A container for which the kubelet must have that feature."""
FEATURES: dict[str, Scenario] = {
    "a pod that needs a feature goes where a kubelet declares it": Scenario(
        several(2, "p", containers=[RESTARTING]),
        nodes=(node("@-n1", "8", declares=()), node("@-n2", "2", declares=(RESTARTS_ALL,))),
        claims=0,
        free=True,
    ),
    "a pod that needs a feature is left where no kubelet declares it": Scenario(
        (pod("p", containers=[RESTARTING]), pod("q")),
        nodes=(node("@-n1", declares=("NoPodNeedsThis",)),),
        left=frozenset({"p"}),
        claims=0,
    ),
}
if chosen_minor(os.environ) != "1.35":
    SCENARIOS |= FEATURES
