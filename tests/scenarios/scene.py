"""One row's part of the cluster: a namespace, NodePools and pods of its own, looked at through watches that all rows share."""

import contextlib
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import Event, Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import Pod
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import NODECLAIMS, NODES, PODS, Resource
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.workload import Document
from tests.scenarios.watching import Guard, Log, Watching
from tests.support.ec2 import Ec2
from tests.support.eventually import eventually
from tests.support.provisioner import TEAM, Plot
from tests.support.registry import RealRegistry

SECONDS = 180.0
"""For what must come: generous, because dozens of rows share two cores."""
PAUSE = 0.4
MANAGER = "dovetail-scenario"
_BY_KIND: dict[str, Resource[Any]] = {
    one.kind: one
    for one in (
        resources.CAPACITYBUFFERS,
        resources.CONFIGMAPS,
        resources.DAEMONSETS,
        resources.DEPLOYMENTS,
        resources.EC2NODECLASSES,
        resources.KWOKNODECLASSES,
        resources.NODECLAIMS,
        resources.NODEOVERLAYS,
        resources.NODEPOOLS,
        resources.NODES,
        resources.PDBS,
        resources.PODS,
        resources.PODTEMPLATES,
        resources.PRIORITYCLASSES,
        resources.PVCS,
        resources.PVS,
        resources.SERVICES,
        resources.STATEFULSETS,
        resources.STORAGECLASSES,
        resources.VOLUMEATTACHMENTS,
    )
}


@dataclass(frozen=True)
class Runtime:
    """The programs as they run, and the machine that it runs on.

    Attributes:
        metrics: reads the page of its metrics.
        slowness: by how much bounds in seconds are stretched, see `tests.support.pace`; measured when it is called.
        cluster: the control plane.
        registry: the one that the webhook asks; None where the group has no webhook.
        ec2: the emulator; None where nodes are kwok's.
    """

    metrics: Callable[[], str]
    slowness: Callable[[], float]
    cluster: DevCluster
    registry: RealRegistry | None = None
    ec2: Ec2 | None = None


@dataclass
class Facts:
    """What steps of a row remember for later ones.

    Attributes:
        claims: NodeClaims at the last `settled`, by name.
        nodes: Nodes then, by name.
        pods: pods then, by uid.
        guards: of PodDisruptionBudgets that are watched.
        paused: when the API server had acknowledged the last pause.
        planned: how many pods were planned for each NodeClaim, by app.
        reservation: ID of a capacity reservation that the row has made.
    """

    claims: dict[str, NodeClaim] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    planned: dict[str, Counter[str]] = field(default_factory=dict)
    allows_orphans: bool = False
    allows_force: bool = False
    paused: datetime | None = None
    reservation: str = ""


class Scene(Plot):
    """See the module.

    Args:
        client: of the cluster.
        watching: its objects.
        log: its audit log.
        runtime: what all rows of a group share besides.
        labels: of the row's namespace.
    """

    def __init__(
        self, client: Client, watching: Watching, log: Log, runtime: Runtime, labels: Mapping[str, str] | None = None
    ) -> None:
        self.watching, self.log, self.runtime = watching, log, runtime
        self._others: list[tuple[Resource[Any], str, str]] = []
        self._applied: list[str] = []
        self.facts = Facts()
        super().__init__(client, labels)

    # ------------------------------------------------------------------ making

    def text(self, words: str) -> str:
        """The words with `{pool}`, `{ns}` and `{registry}` in them made whole; the first two are this row's name."""
        at = "" if self.runtime.registry is None else self.runtime.registry.at
        return words.replace("{pool}", self.name).replace("{ns}", self.name).replace("{registry}", at)

    @property
    def registry(self) -> RealRegistry:
        """The registry that the webhook asks."""
        assert self.runtime.registry is not None, "the group of this row has no registry"
        return self.runtime.registry

    @property
    def ec2(self) -> Ec2:
        """The emulator that the instances of this row's nodes are of."""
        assert self.runtime.ec2 is not None, "the nodes of this row's group are kwok's"
        return self.runtime.ec2

    def owns_pool(self, name: str) -> None:
        """Count a NodePool that was put as this row's."""
        self._pools.append(name)

    def put(self, document: Document) -> None:
        """Server-side apply of any kind; what has a namespace gets this row's, and `{ns}` in texts is this row's name."""
        document = self._filled(document)
        resource = _BY_KIND[document["kind"]]
        metadata = document["metadata"]
        namespace = metadata.setdefault("namespace", self.name) if resource.namespaced else ""
        path = resource.path(namespace, metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true"}
        self.client.raw("PATCH", path, document, query, content_type="application/apply-patch+yaml")
        self._others.append((resource, metadata["name"], namespace))

    def _confine(self, template: dict[str, Any], pool: str, more: Mapping[str, Any]) -> None:
        more = self._filled(more)
        super()._confine(template, pool, {key: value for key, value in more.items() if key != "affinity"})
        template["spec"]["affinity"].update(more.get("affinity", {}))

    def kubectl(self, *arguments: str, document: Document | None = None) -> "subprocess.CompletedProcess[str]":
        """kubectl in this row's namespace, with a document as its standard input; it may fail."""
        command = [str(self.runtime.cluster.bin("kubectl")), "-n", self.name, *map(self.text, arguments)]
        text = "" if document is None else json.dumps(self._filled(document))
        env = {**self.runtime.cluster.env, **self.runtime.cluster.environment()}
        return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=120, check=False)

    def apply(self, document: Document) -> "subprocess.CompletedProcess[str]":
        """`kubectl apply`, as users do it; what is applied is deleted at the end. It may be refused."""
        metadata = self._filled(document["metadata"])
        group = str(document["apiVersion"]).rpartition("/")[0]
        self.owns(f"{document['kind']}{'.' + group if group else ''}", metadata["name"])
        return self.kubectl("apply", "-f", "-", document=document)

    def owns(self, kind: str, name: str) -> None:
        """Delete an object at the end that this row has made, or had made."""
        name = self.text(name)
        if kind.lower().startswith("nodepool"):
            self._pools.append(name)
        self._applied.append(f"{kind.lower()}/{name}")

    def wire(self, path: str) -> dict[str, Any]:
        """An object, or a list, as the API server has it; empty where it is not there."""
        with contextlib.suppress(NotFound):
            found: dict[str, Any] = json.loads(self.client.raw("GET", self.text(path)))
            return found
        return {}

    def change(self, kind: str, name: str, body: Document, subresource: str = "") -> None:
        """A JSON merge patch of one object."""
        resource = _BY_KIND[kind]
        namespace = self.name if resource.namespaced else ""
        path = resource.path(namespace, self.text(name), subresource)
        self.client.raw("PATCH", path, self._filled(body), {}, content_type="application/merge-patch+json")

    def remove(self, kind: str, name: str, grace: int | None = None) -> None:
        """Delete one object."""
        resource = _BY_KIND[kind]
        self.client.delete(resource, self.text(name), self.name if resource.namespaced else "", grace_seconds=grace)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self.text(key): self._filled(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    # ------------------------------------------------------------------ looking

    def pods(self, app: str = "") -> list[Pod]:
        return [one for one in self.every_pod(app) if one.deleted is None]

    def every_pod(self, app: str = "") -> list[Pod]:
        """Those that are ending too."""
        found = self.watching.pods(self.name)
        return [one for one in found if not app or one.labels.get("app") == app]

    def claims(self, pool: str = "") -> list[NodeClaim]:
        mine = {pool} if pool else {*self._pools}
        return [one for one in self.watching.claims.list() if one.pool in mine or (not pool and self._is_mine(one))]

    def nodes(self, pool: str = "") -> list[Node]:
        mine = {pool} if pool else {*self._pools, self.name}
        return [one for one in self.watching.nodes.list() if one.metadata.labels.get(TEAM) in mine]

    def events(self, reason: str, kind: str, of: Iterable[str] | None = None) -> list[Event]:
        if of is None:
            found = self.watching.all_events()
        else:
            found = [event for name in of for event in self.watching.events(name)]
        return [one for one in found if one.reason == reason and one.involved_object.kind == kind]

    def node_of(self, claim: NodeClaim) -> Node | None:
        """The Node of a claim."""
        return self.watching.nodes.get(claim.status.node_name)

    def await_true(self, look: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
        """Until `look` finds something."""
        eventually(look, lambda: self.text(what), seconds, PAUSE)

    def throughout(self, seconds: float, look: Callable[[], str]) -> None:
        """For so long `look` must have nothing to complain of."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wrong = look()
            assert not wrong, wrong
            time.sleep(PAUSE)

    def _is_mine(self, claim: NodeClaim) -> bool:
        return claim.metadata.labels.get(TEAM) == self.name

    # ------------------------------------------------------------------ the end

    def verify(self) -> None:
        """What holds for every row, whatever it is about."""
        for one in self.facts.guards:
            assert one.fewest >= one.least, (
                f"{one.fewest} pods of {one.app} were ready at one time, {one.least} must be"
            )
        evicted = self.log.evictions(self.name)
        twice = sorted({name for name in evicted if evicted.count(name) > 1})
        assert not twice, f"evicted twice: {twice}"
        orphans = self.log.orphans(self.name)
        assert not orphans or self.facts.allows_orphans, f"pods were alive when their node went: {orphans}"
        forced = self.log.forced(self.name)
        assert not forced or self.facts.allows_force, f"pods were deleted without an eviction: {forced}"
        known = {one.status.node_name for one in self.claims()}
        for node in self.nodes():
            marked = names.DISRUPTED_TAINT in node.spec.taints and node.metadata.deletion_timestamp is None
            assert not (marked and node.metadata.name not in known), f"{node.metadata.name} is tainted for nothing"

    def clear(self) -> None:
        if self._applied:
            self.kubectl("delete", "--ignore-not-found", "--wait=false", *reversed(self._applied))
        for resource, name, namespace in reversed(self._others):
            if resource not in (resources.PVS, resources.PVCS, resources.STORAGECLASSES):
                with contextlib.suppress(NotFound):
                    self.client.delete(resource, name, namespace, grace_seconds=0 if resource is PODS else None)
        for pool in self._pools:
            with contextlib.suppress(NotFound):
                self.client.delete(resources.NODEPOOLS, pool)
        for claim in self.claims():
            with contextlib.suppress(NotFound):
                self.client.delete(NODECLAIMS, claim.name)
        for pod in self.every_pod():
            self._loosen(PODS, pod.name, self.name)
        for node in self.nodes():
            if not node.spec.provider_id.startswith("kwok://") or set(node.metadata.finalizers) - {
                names.TERMINATION_FINALIZER
            }:
                self._loosen(NODES, node.metadata.name, "")
        super().clear()
        for resource, name, namespace in reversed(self._others):
            self._loosen(resource, name, namespace)

    def _loosen(self, resource: Resource[Any], name: str, namespace: str) -> None:
        """Delete an object whatever holds it."""
        path = resource.path(namespace, name)
        with contextlib.suppress(NotFound):
            body = {"metadata": {"finalizers": None}}
            self.client.raw("PATCH", path, body, {}, content_type="application/merge-patch+json")
            self.client.delete(resource, name, namespace, grace_seconds=0 if resource is PODS else None)

    def story(self) -> str:
        """What is there, for whoever has to find out why a row failed."""
        return "\n".join(self._story())

    def _story(self) -> Iterator[str]:
        about = {self.name, *self._pools}
        for claim in self.claims():
            about |= {claim.name, claim.status.node_name}
            said = [f"{one.type}={one.status}/{one.reason}" for one in claim.status.conditions]
            ending = " DELETING" if claim.metadata.deletion_timestamp is not None else ""
            kind = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
            yield f"  claim {claim.name}{ending} {kind} {' '.join(said)}"
        for node in self.nodes():
            about.add(node.metadata.name)
            taints = [taint.key for taint in node.spec.taints]
            ready = is_true(node.status.conditions, names.READY)
            ending = " DELETING" if node.metadata.deletion_timestamp is not None else ""
            yield f"  node {node.metadata.name}{ending} ready={ready} {taints} {node.metadata.finalizers}"
        for pod in sorted(self.every_pod(), key=lambda one: one.name):
            about.add(pod.name)
            yield (
                f"  pod {pod.name} {pod.phase} ready={pod.ready} on {pod.node_name or '-'}"
                f"{' ENDING' if pod.deleted else ''} {pod.scheduled_message[:200]}"
            )
        about |= {*self.facts.claims, *self.facts.nodes}
        for event in self.watching.all_events():
            if event.involved_object.name in about and event.reason not in ("Scheduled", "NodeReady", "Starting"):
                one = event.involved_object
                yield f"  event {event.last_timestamp or event.event_time} {one.kind}/{one.name} {event.reason} x{event.count}: {event.message[:300]}"


def settled_problem(scene: Scene, claims: Iterable[NodeClaim]) -> str:
    """What still goes on among these claims; "" where nothing does."""
    for one in claims:
        if not is_true(one.status.conditions, names.INITIALIZED):
            return f"{one.name} is not initialized"
        if one.metadata.deletion_timestamp is not None:
            return f"{one.name} is being deleted"
        if condition(one.status.conditions, names.DISRUPTION_REASON) is not None:
            return f"{one.name} is being disrupted"
        node = scene.node_of(one)
        if node is None or names.DISRUPTED_TAINT in node.spec.taints:
            return f"the node of {one.name} is missing or tainted"
    return ""
