"""A cluster that Dovetail leaves: an API server in memory with the controllers of Kubernetes that matter then, and a cloud with tagged instances."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import ec2, names
from provisioner.apis.reports import LEASE_NAME
from provisioner.kube.client import Client
from provisioner.leaving.belongings import Keep
from provisioner.leaving.departure import Departure
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire, asked
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Sent

SPACE: Final = "dovetail-system"
OURS: Final = {"app.kubernetes.io/name": "dovetail"}
STAMPED: Final = f"schedulerName={names.SCHEDULER_NAME} (namespace)"
UID_MARK: Final = "karpenter.kwok.sh/nodeclaim-uid"
CLASS_LABEL: Final = "karpenter.k8s.aws/ec2nodeclass"


class Killed(Exception):  # noqa: N818  (what a test sees of kill -9)
    """The command ended before this write."""


@dataclass(frozen=True)
class _Tags:
    """As `CloudTags`."""

    cluster: "LeavingCluster"

    def found(self, provider_ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(self.cluster.tagged)) if any(provider_ids) else ()

    def remove(self, instances: Iterable[str]) -> None:
        self.cluster.count("UNTAG instances")
        self.cluster.tagged -= set(instances)


class LeavingCluster(ApiServer):
    """The cluster.

    Attributes:
        tagged: IDs of the instances that collectors find.
        writes: of the command, as "METHOD kind/name".
        dies_after: how many of them there may be.
        ended: Nodes that went although nobody had begun to delete them before.
        said: what the command printed.
    """

    def __init__(self) -> None:
        clock = FakeClock()
        super().__init__(clock)
        self.clock = clock
        self.api = FakeApi(respond=self._respond, clock=clock)
        self.client = Client(self.api, clock)
        self.tagged: set[str] = set()
        self.writes: list[str] = []
        self.said: list[str] = []
        self.dies_after: int | None = None
        self.ended: set[str] = set()
        self.told = self._heard
        self._numbers = 0

    # ------------------------------------------------------------------ what is there

    def install(self, *, replicas: int = 2, holder: str = "", owner: str = "", namespace: str = SPACE) -> None:
        """The programs, with their Lease, their webhook configurations and what they have written."""
        labels = {owner: "fleet"} if owner else {}
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            self.store(kind, {"metadata": {"name": "dovetail-webhook", "labels": OURS | labels}, "webhooks": []})
        mine = {"labels": {**OURS, "app.kubernetes.io/component": "provisioner", **labels}, "namespace": namespace}
        self.store(
            "deployments", {"metadata": {"name": "dovetail-provisioner", **mine}, "spec": {"replicas": replicas}}
        )
        lease = {"holderIdentity": holder, "renewTime": "1", "leaseDurationSeconds": 15}
        self.store("leases", {"metadata": {"name": LEASE_NAME, "namespace": namespace}, "spec": lease})
        for name in (names.INSTALLATION_CONFIGMAP, names.SETTINGS_CONFIGMAP, "dovetail-aws-templates"):
            self.store("configmaps", {"metadata": {"name": name, "namespace": namespace}})
        self.store("nodepools", {"metadata": {"name": "general"}, "spec": {}})
        self.store(
            "ec2nodeclasses", {"metadata": {"name": "default", "finalizers": [ec2.TERMINATION_FINALIZER]}, "spec": {}}
        )

    def node(self, name: str, *, cloud: str = "aws", going: bool = False, joined: bool = True, **meta: Any) -> None:
        """An instance with its NodeClaim, and its Node if that has joined; the Node is being deleted if it is `going`."""
        instance = f"i-{len(self.tagged):017x}"
        provider_id = f"aws:///eu-west-1a/{instance}" if cloud == "aws" else f"kwok://{name}"
        if cloud == "aws":
            self.tagged.add(instance)
        marks = {names.PLAN_ANNOTATION: "{}", "mine": "kept"}
        claim = {
            "metadata": {"name": name, "finalizers": [names.TERMINATION_FINALIZER], "annotations": marks, **meta},
            "spec": {},
            "status": {"providerID": provider_id, "nodeName": name},
        }
        uid = self.store("nodeclaims", claim)["metadata"]["uid"]
        if not joined:
            return
        owner = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": name,
            "uid": uid,
            "blockOwnerDeletion": True,
        }
        labels = {names.NODEPOOL_LABEL: "general", CLASS_LABEL: "default"}
        its = {
            "name": name,
            "finalizers": [names.TERMINATION_FINALIZER],
            "ownerReferences": [owner],
            "labels": labels,
            "annotations": {names.HOLD_RELEASED_ANNOTATION: "now"} | ({UID_MARK: uid} if cloud == "kwok" else {}),
        }
        taint = {"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}
        self.store("nodes", {"metadata": its, "spec": {"providerID": provider_id, "taints": [taint] if going else []}})
        if going:
            self.remove("nodes", name)

    def pod(
        self,
        name: str,
        *,
        owner: str = "ReplicaSet",
        stamped: bool = True,
        gated: bool = False,
        scheduler: str = names.SCHEDULER_NAME,
    ) -> None:
        """A pod that waits, of a controller that makes it anew; "" for none."""
        meta: Wire = {"name": name, "namespace": "shop", "annotations": {}, "labels": {}}
        if owner:
            meta["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": f"{owner}-web", "controller": True}
            ]
        if stamped:
            meta["annotations"][names.STAMPED_ANNOTATION] = STAMPED
        spec: Wire = {"schedulerName": scheduler, "nodeName": ""}
        if gated:
            spec["schedulingGates"] = [{"name": "other"}, {"name": names.IMAGE_ARCH_GATE}]
            meta["labels"][names.IMAGE_ARCH_PENDING] = "true"
        self.store("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def kubectl_delete_k(self) -> None:
        """Everything that the manifests have goes, with definitions and namespace; what has a finalizer stays, and is being deleted."""
        for kind in (
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "nodepools",
            "nodeclaims",
            "ec2nodeclasses",
        ):
            for name in list(self.objects[kind]):
                self.remove(kind, name)
        for kind in ("deployments", "leases", "configmaps"):
            for key in list(self.objects[kind]):
                self.remove(kind, key.partition("/")[2], SPACE)

    # ------------------------------------------------------------------ the command

    def departure(self, *, dry_run: bool = False) -> Departure:
        return Departure(self.client, self.clock, SPACE, self.said.append, tags=_Tags(self), dry_run=dry_run)

    def uninstall(self, keep: Keep | None, *, dry_run: bool = False) -> tuple[str, ...]:
        """As the command does it; what is left to the user."""
        departure = self.departure(dry_run=dry_run)
        problems = departure.stop_stamping()
        return problems if keep is None else problems + departure.keep_nodes(keep)

    # ------------------------------------------------------------------ what is around it

    def count(self, write: str) -> None:
        if self.dies_after is not None and len(self.writes) >= self.dies_after:
            raise Killed(write)
        self.writes.append(write)

    def _respond(self, sent: Sent) -> FakeAnswer:
        about = asked(sent.path)
        if sent.method != "GET" and about is not None:
            self.count(f"{sent.method} {about.plural}/{about.name}")
        return self.answer(sent, self)

    def _heard(self, change: ServerChange) -> None:
        """Garbage collection, ReplicaSets and Jobs."""
        if change.after is not None:
            return
        assert change.before is not None
        meta = change.before["metadata"]
        if change.plural == "nodes" and "deletionTimestamp" not in meta:
            self.ended.add(change.name)
        if change.plural == "nodeclaims":
            for node in self.all("nodes"):
                if any(one["uid"] == meta["uid"] for one in node["metadata"].get("ownerReferences") or ()):
                    self.ended.add(node["metadata"]["name"])
                    self.remove("nodes", node["metadata"]["name"])

    def remove(self, plural: str, name: str, namespace: str = "", by: object = None) -> None:
        """A pod that is not bound goes at once, and its controller makes another one, which is stamped as long as there is a webhook."""
        if plural != "pods":
            super().remove(plural, name, namespace, by)
            return
        pod = self.get(plural, name, namespace)
        assert pod is not None
        self.drop(plural, name, namespace)
        if owners := pod["metadata"].get("ownerReferences"):
            self._numbers += 1
            stamps = bool(self.objects["mutatingwebhookconfigurations"])
            self.pod(
                f"{name}-{self._numbers}",
                owner=owners[0]["kind"],
                stamped=stamps,
                scheduler=names.SCHEDULER_NAME if stamps else names.DEFAULT_SCHEDULER_NAME,
            )

    # ------------------------------------------------------------------ what it comes to

    def outcome(self) -> dict[str, Any]:
        """Everything that is there, without versions and numbers that differ from run to run."""
        found: dict[str, Any] = {"tagged": sorted(self.tagged)}
        for kind, every in self.objects.items():
            if kind == "pods":
                found[kind] = sorted(
                    f"{one['metadata'].get('ownerReferences', '')} {one['spec']}" for one in every.values()
                )
            elif every:
                found[kind] = {
                    name: {
                        key: value for key, value in one["metadata"].items() if key not in ("resourceVersion", "uid")
                    }
                    | {"spec": one.get("spec")}
                    for name, one in sorted(every.items())
                }
        return found
