"""A provisioner on a real control plane, and a plot of that plane for one test: a namespace, pools and pods of its own.

Every pool of a plot is tainted and labelled with the plot's name, so pods of other tests cannot land there.
"""

import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from provisioner.apis import names
from provisioner.apis.core import Event, Node
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod, is_daemon
from provisioner.cloudprovider.kwok.provider import KwokProvider, NodeClient
from provisioner.clouds import Cloud
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection, connect
from provisioner.kube.errors import NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.resources import (
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    KWOKNODECLASSES,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    Resource,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.processes import Record
from provisioner.lab.harness import applying
from provisioner.lab.harness.workload import Document, deployment
from provisioner.operator.kwok import KwokCloud, kwok_catalogue
from provisioner.operator.term import Term
from provisioner.options import Options
from provisioner.runtime.caches import Caches
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually

SECONDS = 90.0
OWN_PORTS = ("--bind-address", "127.0.0.1", "--metrics-port", "0", "--health-probe-port", "0", "--report-port", "0")
TEAM = "dovetail.example/plot"
SYSTEM_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dovetail-system"}}


class InProcess:
    """The controllers in this process, so that a test can read what they wrote; they lead without a Lease. As a context they run.

    `cloud` is what stands around the provider of kwok; `watching` is what the watches go through instead of the connection, `joining` what the provider
    makes Nodes with instead of the client.
    """

    def __init__(
        self,
        kubeconfig: str,
        *,
        cloud: Callable[[KwokProvider], Cloud] = KwokCloud,
        watching: Callable[[ApiConnection], ApiConnection] = lambda connection: connection,
        joining: Callable[[Client], NodeClient] = lambda client: client,
        check_state: bool = True,
        **options: Any,
    ) -> None:
        clock = SystemClock()
        self._options = Options(kubeconfig=kubeconfig, check_state=check_state, **options)
        self._connection = connect(kubeconfig, user_agent="dovetail-test-provisioner", pool_size=24, clock=clock)
        self.client = Client(self._connection, clock)
        self._caches = Caches(watching(self._connection), self._options, clock)
        self._provider = KwokProvider(
            joining(self.client),
            self._caches.nodes.store,
            self._caches.classes.store,
            clock,
            kwok_catalogue(self._options),
            overlaid=self._caches.overlays.applied,
        )
        self._caches.use_types(self._provider.instance_types)
        self._recorder = Recorder(self.client, "karpenter", clock)
        self.controllers = Term(self._caches, self.client, cloud(self._provider), self._recorder, self._options, clock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        assert self._caches.start(threading.Event())
        self.controllers.start()

    def stop(self) -> None:
        self.controllers.stop()
        self._caches.stop()
        self._provider.stop()
        self._recorder.stop()
        self._connection.close()
        assert self._caches.drifts == [], "\n".join(self._caches.drifts)

    @property
    def caches(self) -> Caches:
        """What the controllers believe."""
        return self._caches

    def has_seen(self, resource: Resource[Any], key: str) -> bool:
        """Whether the object has come by its watch."""
        return any(one.resource is resource and one.store.get(key) is not None for one in self._caches.all)

    def writes(self) -> dict[str, int]:
        """Requests so far that changed something, less events: {"patch nodeclaims/status": 3}."""
        return {f"{verb} {kind}": count for (verb, kind), count in self.client.writes.items() if kind != "events"}


def start_child(cluster: DevCluster, name: str, *flags: str) -> Record:
    """`dovetail provisioner` as a child of the cluster, on free ports; ended with `cluster.stop(name)`."""
    command = [sys.executable, "-m", "provisioner.cli.main", "provisioner", "--kubeconfig", str(cluster.kubeconfig)]
    return cluster.start_program(name, [*command, *OWN_PORTS, *flags])


def runs(cluster: DevCluster, name: str) -> bool:
    """Whether a child of the cluster runs."""
    return any(component.name == name and component.state == "running" for component in cluster.status())


def revived(cluster: DevCluster, name: str) -> bool:
    """Start what has ended, as a kubelet does, of the cluster and of its provisioner of that name: who could not renew a Lease ends itself. Whether anything had."""
    again = bool(cluster.heal())
    if not runs(cluster, name):
        cluster.stop(name)
        start_child(cluster, name)
        return True
    return again


def prepare(client: Client) -> None:
    """The CRDs and our system namespace; fine when they are there."""
    applying.apply_crds(client)
    applying.apply(client, [SYSTEM_NAMESPACE])


class Plot:
    """A namespace, pools and pods of one test."""

    def __init__(self, client: Client, labels: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.name = f"plot-{uuid.uuid4().hex[:6]}"
        self._pools: list[str] = []
        metadata = {"name": self.name, "labels": dict(labels or {})}
        applying.apply(client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])

    # ------------------------------------------------------------------ making

    def pool(
        self,
        suffix: str = "",
        *,
        cpu: int | tuple[int, ...] = 4,
        delay: str = "",
        ready: bool = True,
        node_class: bool = True,
        template: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        requirements: Iterable[Mapping[str, Any]] = (),
        **spec: Any,
    ) -> str:
        """A pool of nodes with `cpu` cores that removes empty ones at once, and moves no pod, unless `spec` says otherwise; its name."""
        name = f"{self.name}{suffix}"
        self._pools.append(name)
        documents: list[Document] = []
        if node_class:
            own = {"nodeRegistrationDelay": delay} if delay else {}
            documents.append(
                {
                    "apiVersion": "karpenter.kwok.sh/v1alpha1",
                    "kind": "KWOKNodeClass",
                    "metadata": {"name": name},
                    "spec": own,
                }
            )
        sizes = [str(one) for one in (cpu if isinstance(cpu, tuple) else (cpu,))]
        always = [
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": sizes},
            {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]},
            {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
        ]
        body = {
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
            **spec,
            "template": {
                "metadata": {"labels": {TEAM: name, **(labels or {})}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name},
                    "taints": [{"key": TEAM, "value": name, "effect": "NoSchedule"}],
                    "expireAfter": "Never",
                    "requirements": [*always, *requirements],
                    **(template or {}),
                },
            },
        }
        documents.append(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": name, "annotations": dict(annotations or {})},
                "spec": body,
            }
        )
        applying.apply(self.client, documents)
        if ready:
            eventually(lambda: self.is_pool(name, names.READY), f"{name} is Ready", SECONDS)
        return name

    def deploy(self, name: str, replicas: int, *, cpu: str = "3", pool: str = "", **template: Any) -> None:
        """A Deployment whose pods may only run in `pool`; one of 3 CPU fills a node of 4."""
        document = deployment(name, self.name, replicas, {"cpu": cpu, "memory": "64Mi"})
        self._confine(document["spec"]["template"], pool, template)
        applying.apply(self.client, [document])

    def daemonset(self, name: str, **template: Any) -> None:
        """A DaemonSet with a small pod on every node of this plot."""
        document = deployment(name, self.name, 0, {"cpu": "50m", "memory": "16Mi"})
        document["kind"] = "DaemonSet"
        del document["spec"]["replicas"]
        self._confine(document["spec"]["template"], "", template)
        applying.apply(self.client, [document])

    def scale(self, name: str, replicas: int) -> None:
        self.client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, self.name)

    def protect(self, app: str, **allows: int) -> None:
        """A PodDisruptionBudget of `app`, named as the app; without `minAvailable` or `maxUnavailable` it lets no pod go."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app},
            "spec": {**(allows or {"maxUnavailable": 0}), "selector": {"matchLabels": {"app": app}}},
        }
        self.client.create(PDBS, body, self.name)

    def unprotect(self, app: str) -> None:
        self.client.delete(PDBS, app, self.name)

    def change_pool(self, pool: str, **spec: Any) -> None:
        """Merge into a pool's spec."""
        self.client.patch(NODEPOOLS, pool, {"spec": spec})

    # ------------------------------------------------------------------ looking

    @property
    def pool_names(self) -> list[str]:
        """The names of its pools."""
        return list(self._pools)

    def pods(self, app: str = "") -> list[Pod]:
        found = self.client.list(PODS, self.name, label_selector=f"app={app}" if app else "")
        return [one for one in found if one.deleted is None]

    def running(self, app: str = "") -> int:
        """Pods that run, daemons apart."""
        return sum(one.phase == "Running" and not is_daemon(one) for one in self.pods(app))

    def claims(self, pool: str = "") -> list[NodeClaim]:
        mine = [pool] if pool else self._pools
        selector = f"{names.NODEPOOL_LABEL} in ({','.join(mine)})"
        return self.client.list(NODECLAIMS, label_selector=selector) if mine else []

    def nodes(self, pool: str = "") -> list[Node]:
        mine = [pool] if pool else self._pools
        return self.client.list(NODES, label_selector=f"{TEAM} in ({','.join(mine)})") if mine else []

    def node_pool(self, pool: str) -> NodePool:
        return self.client.get(NODEPOOLS, pool)

    def is_pool(self, pool: str, kind: str) -> bool:
        return is_true(self.node_pool(pool).status.conditions, kind)

    def initialized(self, pool: str = "") -> list[NodeClaim]:
        return [one for one in self.claims(pool) if is_true(one.status.conditions, names.INITIALIZED)]

    def events(self, reason: str, kind: str, of: Iterable[str] | None = None) -> list[Event]:
        """Events of our namespace and of cluster-wide objects, about objects named in `of` (None: any)."""
        namespace = self.name if kind in {"Pod", "PodGroup"} else "default"
        found = self.client.list(EVENTS, namespace, field_selector=f"reason={reason},involvedObject.kind={kind}")
        wanted = None if of is None else set(of)
        return [one for one in found if wanted is None or one.involved_object.name in wanted]

    def await_running(self, count: int, app: str = "") -> None:
        eventually(lambda: self.running(app) == count, f"{count} pods of {app or 'all'} run", SECONDS, 0.2)

    def await_empty(self, pool: str = "") -> None:
        """Until neither claims nor Nodes are left."""
        eventually(
            lambda: not self.claims(pool) and not self.nodes(pool),
            f"no node is left of {pool or 'all'}",
            SECONDS,
            0.2,
        )

    # ------------------------------------------------------------------ the end

    def clear(self) -> None:
        """Remove everything of this plot and wait for its nodes to be gone; the provisioner must still run."""
        owners: tuple[Resource[Any], ...] = (PDBS, DEPLOYMENTS, DAEMONSETS)
        for resource in owners:
            for one in self.client.list(resource, self.name):
                self._delete(resource, one.metadata.name, self.name)
        for pool in self._pools:
            self._delete(NODEPOOLS, pool)
        for pod in self.client.list(PODS, self.name):
            self._delete(PODS, pod.name, self.name)
        for claim in self.claims():
            self._delete(NODECLAIMS, claim.name)
        self.await_empty()
        for pool in self._pools:
            self._delete(KWOKNODECLASSES, pool)
        self._delete(NAMESPACES, self.name)

    def _delete(self, resource: Any, name: str, namespace: str = "") -> None:
        try:
            self.client.delete(resource, name, namespace, grace_seconds=0 if resource is PODS else None)
        except NotFound:
            return

    def _confine(self, template: dict[str, Any], pool: str, more: Mapping[str, Any]) -> None:
        template["metadata"].setdefault("annotations", {}).update(more.get("annotations", {}))
        spec = template["spec"]
        if pool != "anywhere":
            spec["affinity"] = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": TEAM, "operator": "In", "values": [pool] if pool else self._pools}
                                ]
                            }
                        ]
                    }
                }
            }
        spec["tolerations"] = [{"key": TEAM, "operator": "Exists"}]
        spec.update({key: value for key, value in more.items() if key != "annotations"})


def conditions_of(thing: NodeClaim | NodePool) -> dict[str, str]:
    """Status by condition type."""
    return {one.type: one.status for one in thing.status.conditions}
