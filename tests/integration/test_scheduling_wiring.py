"""What scheduling knows reaches the running product: volumes, namespaces, defaults, flags and reasons on a real control plane.

The judge itself is tested elsewhere; here each kind of object is seen once to change what is made, and each change of
one to be noticed.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.apis.meta import Condition, condition
from provisioner.apis.pods import Pod, is_daemon
from provisioner.disruption import pool_drift as drift
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict, NotFound
from provisioner.kube.resources import (
    CSINODES,
    DAEMONSETS,
    EVENTS,
    LIMITRANGES,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    PODS,
    PVCS,
    PVS,
    STATEFULSETS,
    STORAGECLASSES,
    Resource,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.options import Options, SpreadDefault
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from tests.support.cluster import TYPES
from tests.support.eventually import eventually
from tests.support.judge import FakeProvisioner
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = [pytest.mark.plane, pytest.mark.timeout(300)]

AT_ONCE = 6.0
"""Less than the ten seconds after which every waiting pod is looked at anyway."""
CPU_LABEL = "karpenter.kwok.sh/instance-cpu"
NEVER = {"consolidateAfter": "Never"}
NO_DRIVER = {"key": "disk.example.com/agent-not-ready", "effect": "NoSchedule"}
"""Not NoExecute, as drivers use it: kube-controller-manager deletes a pod by the Node that it last saw, which may have the taint still."""
QUICK: dict[str, Any] = {"batch_idle_duration": Options.parse(["--batch-idle-duration=300ms"], {}).batch_idle_duration}
OTHERWISE: Mapping[str, Any] = {
    "preference_policy": "Ignore",
    "min_values_policy": "BestEffort",
    "ignore_dra_requests": False,
    "scheduler_config": (SpreadDefault(1, names.ZONE_LABEL, "DoNotSchedule"),),
}


class Provisioners:
    """The provisioner that runs now; there is never more than one."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig
        self._running: InProcess | None = None
        self._options: Mapping[str, Any] | None = None

    def run(self, **options: Any) -> None:
        """Run with these flags; nothing happens where it does."""
        if options != self._options:
            self.stop()
            self._running = InProcess(self._kubeconfig, **QUICK, **options)
            self._running.start()
            self._options = options

    def await_seen(self, resource: Resource[Any], key: str) -> None:
        running = self._running
        assert running is not None
        eventually(lambda: running.has_seen(resource, key), f"the provisioner knows {resource} {key}", SECONDS, 0.05)

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = self._options = None


class Wiring(Plot):
    """A plot with volumes, whose cluster-wide objects bear its name and go with it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.driver = f"disk.{self.name}.example.com"
        self._made: list[tuple[Resource[Any], str, str]] = []

    def make(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str = "") -> None:
        """Create an object that goes with this plot."""
        given = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        self.client.create(resource, given, namespace or (self.name if resource.namespaced else ""))
        self._made.append((resource, body["metadata"]["name"], namespace))

    def storage_class(self, name: str, *zones: str) -> str:
        """A class that waits for the first consumer and can make volumes in `zones` only; its full name."""
        whole = f"{self.name}-{name}"
        terms = [{"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": list(zones)}]}] if zones else []
        self.make(
            STORAGECLASSES,
            {
                "metadata": {"name": whole},
                "provisioner": self.driver,
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": terms,
            },
        )
        return whole

    def volume(self, name: str, zone: str) -> str:
        """A volume that can be reached from one zone, made by hand; its full name."""
        whole = f"{self.name}-{name}"
        expressions = [{"key": names.ZONE_LABEL, "operator": "In", "values": [zone]}]
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": f"{self.name}-by-hand",
            "csi": {"driver": self.driver, "volumeHandle": whole},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
        }
        self.make(PVS, {"metadata": {"name": whole}, "spec": spec})
        return whole

    def claim_volume(self, name: str, volume: str) -> None:
        """A claim of a volume, bound when this returns."""
        spec = {**_claim_spec(f"{self.name}-by-hand"), "volumeName": volume}
        self.make(PVCS, {"metadata": {"name": name}, "spec": spec})
        eventually(lambda: self.client.get(PVCS, name, self.name).status.phase == "Bound", f"{name} is bound", SECONDS)

    def csi_node(self, node: str, count: int) -> None:
        """What the driver tells of a node when it comes up there: how many volumes it takes."""
        driver = {"name": self.driver, "nodeID": node, "allocatable": {"count": count}}
        self.make(CSINODES, {"metadata": {"name": node}, "spec": {"drivers": [driver]}})

    def driver_comes(self, *, count: int, nodes: int) -> None:
        """Wait for so many nodes; where the driver is not yet, it comes up, and takes its startup taint away."""
        joined = f"{nodes} nodes with their startup taints"
        eventually(
            lambda: [names.REGISTERED_LABEL in one.metadata.labels for one in self.nodes()] == [True] * nodes,
            joined,
            SECONDS,
        )
        there = {one.metadata.name for one in self.client.list(CSINODES)}
        for name in sorted({one.metadata.name for one in self.nodes()} - there):
            self.csi_node(name, count)
            eventually(partial(self._is_let_in, name), "its taint is gone", SECONDS, 0.1)

    def _is_let_in(self, name: str) -> bool:
        """Take the startup taint of the driver away; whether that is done."""
        node = self.client.get(NODES, name)
        left = [msgspec.to_builtins(one) for one in node.spec.taints if one.key != NO_DRIVER["key"]]
        if len(left) == len(node.spec.taints):
            return True
        version = {"metadata": {"resourceVersion": node.metadata.resource_version}}
        with contextlib.suppress(Conflict):
            self.client.patch(NODES, name, {**version, "spec": {"taints": left}})
        return False

    def confine(self, template: dict[str, Any]) -> None:
        """Let the pods of this template run on nodes of this plot only."""
        self._confine(template, "", {})

    def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        claim: str = "",
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A pod that may only run on nodes of this plot."""
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": {"app": name, **(labels or {})}},
            "spec": {
                "containers": [{"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": cpu}}}],
                "terminationGracePeriodSeconds": 0,
            },
        }
        self.confine(body)
        if claim:
            body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        given = spec.pop("affinity", {})
        body["spec"]["affinity"] |= given
        body["spec"] |= spec
        self.make(PODS, body, namespace)

    def node_of(self, pod: str, namespace: str = "") -> Node:
        """The node on which a pod of this plot runs, once it does."""
        where = namespace or self.name

        def running() -> list[Pod]:
            try:
                return [one for one in (self.client.get(PODS, pod, where),) if one.phase == "Running"]
            except NotFound:
                raise AssertionError(f"{pod} was deleted; events: {self.all_events()}") from None

        (found,) = eventually(running, lambda: f"{pod} runs; events: {self.all_events()}", SECONDS, 0.1)
        return next(one for one in self.nodes() if one.metadata.name == found.node_name)

    def zone_of(self, pod: str) -> str:
        return self.node_of(pod).metadata.labels[names.ZONE_LABEL]

    def all_events(self) -> list[str]:
        """What anybody said of this plot's pods, and of every NodeClaim and Node."""
        found = [*self.client.list(EVENTS, self.name), *self.client.list(EVENTS, "default")]
        return [f"{one.involved_object.name} {one.reason} {one.message}" for one in found]

    def told(self, pod: str) -> list[str]:
        """What the provisioner told a pod about why it waits."""
        found = self.events("FailedScheduling", "Pod", [pod])
        return [one.message for one in found if one.source.component == "karpenter"]

    def await_told(self, pod: str, *words: str) -> str:
        """The first sentence to a pod that has all of `words`."""
        return eventually(
            lambda: next((one for one in self.told(pod) if all(word in one for word in words)), ""),
            lambda: f"{pod} is told of {', '.join(words)}; it was told {self.told(pod)}",
            SECONDS,
            0.1,
        )

    def clear(self) -> None:
        for resource, name, namespace in reversed(self._made):
            with contextlib.suppress(NotFound):
                where = namespace or (self.name if resource.namespaced else "")
                self.client.delete(resource, name, where, grace_seconds=0 if resource is PODS else None)
        super().clear()


def _claim_spec(storage_class: str) -> dict[str, Any]:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }


def avoiding(team: str, kind: str = "podAntiAffinity") -> dict[str, Any]:
    """An affinity or anti-affinity, node by node, with every pod in namespaces of a team."""
    term = {
        "topologyKey": names.HOSTNAME_LABEL,
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"wiring.example/team": team}},
    }
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def preferring(zone: str) -> dict[str, Any]:
    """A pod's affinity that would like a zone; the plot's own terms stay as they are."""
    return {
        "preference": {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": [zone]}]},
        "weight": 100,
    }


@pytest.fixture(scope="module")
def program(plane: DevCluster, client: Client) -> Iterator[Provisioners]:
    one, disks = Provisioners(str(plane.kubeconfig)), FakeProvisioner(client)
    yield one
    one.stop()
    disks.stop()


class Plots:
    """Makes plots, and clears all that it made together, since each drain takes seconds."""

    def __init__(self, client: Client, program: Provisioners) -> None:
        self._client, self._program = client, program
        self._made: list[Wiring] = []

    def make(self, **options: Any) -> Wiring:
        """A plot under a provisioner with these flags."""
        self._program.run(**options)
        self._made.append(Wiring(self._client))
        return self._made[-1]

    def clear(self) -> None:
        """Nothing is left of any plot when this returns."""
        self._program.run()
        with ThreadPoolExecutor(max(1, len(self._made))) as pool:
            for cleared in [pool.submit(one.clear) for one in self._made]:
                cleared.result()
        self._made = []


@pytest.fixture(scope="module")
def plots(client: Client, program: Provisioners) -> Iterator[Plots]:
    one = Plots(client, program)
    yield one
    one.clear()


@pytest.fixture
def plot(plots: Plots) -> Wiring:
    """A plot under a provisioner with the flags that are default."""
    return plots.make()


@pytest.fixture
def otherwise(plots: Plots) -> Wiring:
    """A plot under a provisioner whose scheduling flags are all set to the other choice."""
    return plots.make(**OTHERWISE)


# --- volumes --------------------------------------------------------------------------------------------------------


def test_a_stateful_set_gets_nodes_where_its_volumes_can_be_made(plot: Wiring) -> None:
    plot.pool(disruption=NEVER)
    kind = plot.storage_class("zonal", "test-zone-c")
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {
            "containers": [{"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": "3"}}}]
        },
    }
    plot.confine(template)
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec = {
        "replicas": 2,
        "serviceName": "db",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": _claim_spec(kind)}],
    }
    plot.make(STATEFULSETS, {"metadata": {"name": "db"}, "spec": spec})
    plot.await_running(2)
    assert [plot.zone_of(one) for one in ("db-0", "db-1")] == ["test-zone-c"] * 2
    assert {one.status.phase for one in plot.client.list(PVCS, plot.name)} == {"Bound"}
    assert len(plot.claims()) == 2


def test_a_pod_waits_for_its_claim_and_goes_where_the_volume_is(plot: Wiring) -> None:
    plot.pool(disruption=NEVER)
    volume = plot.volume("b", "test-zone-b")
    plot.pod("db", claim="data")
    plot.await_told("db", "data")
    assert plot.claims() == []
    plot.claim_volume("data", volume)
    eventually(plot.claims, "a node is made as soon as the claim is bound", AT_ONCE)
    assert plot.zone_of("db") == "test-zone-b"


@pytest.mark.parametrize("at_once", [True, False], ids=["planned together", "planned one after another"])
def test_nodes_take_as_many_volumes_as_their_csi_nodes_say(plot: Wiring, program: Provisioners, at_once: bool) -> None:
    """The nodes keep a startup taint until their CSINode is there, for until then kube-scheduler puts any number of volumes on them."""
    one_type = [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-8x-amd64-linux"]}]
    plot.pool(cpu=8, disruption=NEVER, template={"startupTaints": [NO_DRIVER]}, requirements=one_type)
    for one in ("first", "second", "third"):
        plot.claim_volume(one, plot.volume(one, "test-zone-a"))
    plot.pod("first", claim="first")
    plot.driver_comes(count=1, nodes=1)
    full = plot.node_of("first").metadata.name
    program.await_seen(CSINODES, full)
    plot.pod("second", claim="second")
    if not at_once:
        eventually(lambda: len(plot.claims()) == 2, "a node is made for the second", SECONDS, 0.05)
    plot.pod("third", claim="third")
    # the first is full, and the others take one volume too, as nodes of their kind do
    plot.driver_comes(count=1, nodes=3)
    assert len({plot.node_of(one).metadata.name for one in ("first", "second", "third")}) == 3
    plot.pod("without")
    plot.node_of("without")
    assert len(plot.claims()) == 3


# --- topology -------------------------------------------------------------------------------------------------------


def test_pods_are_spread_over_zones(plot: Wiring) -> None:
    plot.pool(cpu=8, disruption=NEVER)
    spread = {
        "maxSkew": 1,
        "topologyKey": names.ZONE_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "minDomains": 4,
    }
    plot.deploy("web", 4, cpu="1", topologySpreadConstraints=[spread])
    plot.await_running(4)
    zones = sorted(plot.zone_of(one.name) for one in plot.pods())
    assert zones == ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"]
    assert len(plot.claims()) == 4


def test_the_labels_of_namespaces_decide_whose_pods_are_meant(plot: Wiring) -> None:
    plot.pool(cpu=16, disruption=NEVER)
    other = f"{plot.name}-other"
    plot.make(NAMESPACES, {"metadata": {"name": other, "labels": {"wiring.example/team": "red"}}})
    plot.pod("guest", namespace=other)
    shared = plot.node_of("guest", other).metadata.name
    plot.pod("shy", affinity=avoiding("red"))
    apart = plot.node_of("shy").metadata.name
    assert apart != shared
    plot.pod("follower", affinity=avoiding("green", "podAffinity"))
    plot.await_told("follower", "affinity")
    plot.client.patch(NAMESPACES, other, {"metadata": {"labels": {"wiring.example/team": "green"}}})
    # kube-scheduler itself hears nothing of Namespaces, so that it is bound may take minutes
    eventually(
        lambda: any(shared in one.message for one in plot.events("Nominated", "Pod", ["follower"])),
        "it gets a place at once",
        AT_ONCE,
        0.1,
    )
    assert len(plot.claims()) == 2


# --- defaults -------------------------------------------------------------------------------------------------------


def test_daemons_take_what_a_limit_range_gives_them(plot: Wiring) -> None:
    sizes = [
        {"key": CPU_LABEL, "operator": "In", "values": ["4", "8"]},
        {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]},
        {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
    ]
    plot.pool(disruption=NEVER, template={"requirements": sizes})
    item = {"type": "Container", "defaultRequest": {"cpu": "1"}}
    plot.make(LIMITRANGES, {"metadata": {"name": "defaults"}, "spec": {"limits": [item]}})
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "main", "image": "none.invalid/none"}]},
    }
    plot.confine(template)
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    plot.make(DAEMONSETS, {"metadata": {"name": "agent"}, "spec": spec})
    plot.pod("web", cpu="3")  # with an agent of one CPU it does not fit on four
    assert plot.node_of("web").metadata.labels[CPU_LABEL] == "8"
    agent = eventually(lambda: plot.pods("agent"), "the agent is there", SECONDS)[0]
    assert is_daemon(agent)
    assert agent.shape.requests["cpu"] == 1000
    assert len(plot.claims()) == 1


def test_a_pod_goes_where_it_would_like_to_run(plot: Wiring) -> None:
    plot.pool(disruption=NEVER)
    assert liked_zone(plot) == "test-zone-d"


def test_wishes_do_not_count_where_they_are_ignored(otherwise: Wiring) -> None:
    otherwise.pool(disruption=NEVER)
    assert liked_zone(otherwise) == "test-zone-a"


def liked_zone(plot: Wiring) -> str:
    """Where a pod runs that would like test-zone-d, while every zone costs the same."""
    body: dict[str, Any] = {"metadata": {}, "spec": {}}
    plot.confine(body)
    node_affinity = body["spec"]["affinity"]["nodeAffinity"]
    node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [preferring("test-zone-d")]
    plot.pod("wishful", affinity={"nodeAffinity": node_affinity})
    return plot.zone_of("wishful")


def test_pods_without_spread_get_that_of_the_scheduler_configuration(otherwise: Wiring) -> None:
    otherwise.pool(cpu=8, disruption=NEVER)
    otherwise.deploy("web", 3, cpu="1")
    # kube-scheduler of this plane has no such defaults and may put them elsewhere, so it is the nodes that tell
    claims = eventually(lambda: found if len(found := otherwise.claims()) == 3 else [], "three nodes", SECONDS)
    zones = [requirements_of(one.spec.requirements).requirement(names.ZONE_LABEL).single_value for one in claims]
    assert None not in zones
    assert len(set(zones)) == 3


MANY = [{"key": names.INSTANCE_TYPE_LABEL, "operator": "Exists", "minValues": 50}]


def test_too_few_instance_types_for_min_values_are_too_few(plot: Wiring) -> None:
    plot.pool(disruption=NEVER, requirements=MANY)
    plot.pod("web")
    plot.await_told("web", "minValues", "50 are required")
    assert plot.claims() == []


def test_min_values_that_cannot_be_kept_are_relaxed_by_best_effort(otherwise: Wiring) -> None:
    otherwise.pool(disruption=NEVER, requirements=MANY)
    otherwise.pod("web")
    otherwise.node_of("web")
    (claim,) = otherwise.claims()
    assert claim.metadata.annotations[names.MIN_VALUES_RELAXED] == "true"
    (types,) = (one for one in claim.spec.requirements if one.key == names.INSTANCE_TYPE_LABEL)
    assert types.min_values == len(types.values) < 50


# --- devices and reasons --------------------------------------------------------------------------------------------

DEVICE: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def test_a_pod_with_resource_claims_is_refused_and_told_so(plot: Wiring) -> None:
    plot.pool(disruption=NEVER)
    plot.pod("trainer", **DEVICE)
    plot.await_told("trainer", "spec.resourceClaims[gpu]")
    assert plot.claims() == []


def test_resource_claims_are_no_constraint_where_the_flag_says_so(otherwise: Wiring) -> None:
    otherwise.pool(disruption=NEVER)
    otherwise.pod("trainer", **DEVICE)
    eventually(otherwise.claims, "a node is made", SECONDS)


def test_a_pod_is_told_what_binds_in_each_pool(plots: Plots) -> None:
    plots.clear()  # pools of other plots would be told too, and of too many some are only counted
    plot = plots.make()
    small, arm = plot.pool("-small", disruption=NEVER), plot.pool("-arm", disruption=NEVER, template=arm_only())
    full = plot.pool("-full", cpu=64, disruption=NEVER, limits={"cpu": "10"})
    plot.pod("large", cpu="40", nodeSelector={names.ARCH_LABEL: "amd64"})
    told = plot.await_told("large", small, arm, full)
    assert told.startswith("Failed to schedule pod, ")
    by_pool = {name: next(part for part in told.split("; ") if f'"{name}"' in part) for name in (small, arm, full)}
    assert "cpu 40 exceeds" in by_pool[small]
    assert names.ARCH_LABEL in by_pool[arm]
    assert "limit on cpu: 10 left" in by_pool[full]
    assert len(plot.told("large")) == 1
    (event,) = (one for one in plot.events("FailedScheduling", "Pod", ["large"]) if one.source.component == "karpenter")
    assert (event.type, event.count) == ("Warning", 1)


def arm_only() -> dict[str, Any]:
    return {
        "requirements": [
            {"key": CPU_LABEL, "operator": "In", "values": ["64"]},
            {"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]},
            {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
        ]
    }


def test_growth_limits_hold_back_and_lose_nothing_also_after_a_restart(plots: Plots, program: Provisioners) -> None:
    one = plots.make()
    pool = one.pool(disruption=NEVER)

    def launched() -> list[NodeClaim]:
        """All there are, once it is known what each of them costs."""
        found = one.client.list(NODECLAIMS)
        return found if all(claim.status.provider_id for claim in found) else []

    claims = eventually(launched, "earlier claims are launched", SECONDS) if one.client.list(NODECLAIMS) else []
    node = min(offering.price for offering in TYPES["c-4x-amd64-linux"].offerings)
    most = round(sum(usd_per_hour(claim, TYPES) for claim in claims) + 2.5 * node, 4)
    for _ in range(2):  # the second time after a restart
        program.run(max_usd_per_hour=most)
        one.deploy("web", 4)
        event = eventually(lambda: one.events("GrowthLimited", "NodePool", [pool]), "the pool is told", SECONDS, 0.2)[0]
        assert f"all nodes together may cost ${most:g} per hour" in event.message
        one.await_running(2)
        assert len(one.claims()) == 2
        eventually(
            lambda: any("--max-usd-per-hour" in told.message for told in one.events("FailedScheduling", "Pod")),
            lambda: one.events("FailedScheduling", "Pod"),
            SECONDS,
        )
        program.stop()
    program.run()
    one.await_running(4)


def sold(path: Path, *, without: str) -> str:
    """A file of kwok's types for linux but one; its name."""
    types = [one for one in TYPES.values() if one.requirements[names.OS_LABEL].has("linux") and one.name != without]
    entries = [
        {
            "name": one.name,
            "architecture": one.requirements[names.ARCH_LABEL].single_value,
            "operatingSystems": ["linux"],
            "resources": one.capacity.to_wire(),
            "offerings": [
                {"Price": each.price, "Available": True, "Requirements": each.requirements.to_wire()}
                for each in one.offerings
            ],
        }
        for one in types
    ]
    path.write_text(json.dumps(entries))
    return str(path)


def test_a_node_whose_type_is_sold_no_more_has_drifted_and_is_replaced(
    plots: Plots, program: Provisioners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = plots.make()
    one.pool(cpu=48, disruption={**NEVER, "budgets": [{"nodes": "100%"}]})
    one.deploy("web", 1)
    (old,) = eventually(one.initialized, "the node is initialized", SECONDS)
    kind = old.metadata.labels[names.INSTANCE_TYPE_LABEL]
    monkeypatch.setattr(drift, "TYPE_GRACE", timedelta(0))  # no node here is an hour old
    program.run(instance_types_file_path=sold(tmp_path / "types.json", without=kind))
    drifted = eventually(
        lambda: next((each for each in map(drift_of, one.claims()) if each), None), "the node has drifted", SECONDS, 0.1
    )
    assert drifted is not None
    assert drifted.reason == "InstanceTypeNotFound"

    def replaced() -> bool:
        found = one.claims()
        return len(found) == len(one.initialized()) == 1 and found[0].name != old.name

    eventually(replaced, "a node of another type takes its place", 2 * SECONDS, 0.2)
    one.await_running(1)
    (new,) = one.claims()
    assert new.metadata.labels[names.INSTANCE_TYPE_LABEL] != kind


def drift_of(claim: NodeClaim) -> Condition | None:
    return condition(claim.status.conditions, names.DRIFTED)
