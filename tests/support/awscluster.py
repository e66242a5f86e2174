"""A dev cluster whose instances come from the emulated EC2: the emulator, a provisioner as a child process, and what tests ask of both."""

import base64
import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import urllib3

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import NotFound, ServerError
from provisioner.kube.resources import EC2NODECLASSES, EVENTS, NODECLAIMS, NODEPOOLS, NODES, PODS
from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.processes import Record
from provisioner.lab.harness import applying
from provisioner.lab.harness.session import answers
from provisioner.lab.harness.workload import Document, deployment, manifests
from provisioner.support.clock import SystemClock
from provisioner.support.workers import pool as pool_of_threads
from provisioner.support.workers import run_parallel
from tests.support.ec2 import ClusterOfNodes, Ec2
from tests.support.eventually import eventually
from tests.support.kubeconfigs import user_kubeconfig
from tests.support.provisioner import prepare

CLUSTER = "blue"
PROVISIONER = "provisioner"
READY_SECONDS = 60.0
SECONDS = 60.0
NAMESPACE = "shop"
_LOG_TAIL = 6000
_NUDGE = "tests.dovetail.dev/nudge"
T = TypeVar("T")


class AwsCluster:
    """One dev cluster, one EC2, and a provisioner that can be started, stopped and killed.

    Args:
        cluster: up; nothing else launches instances for it.
        ec2: options of `Ec2.start`.
    """

    def __init__(self, cluster: DevCluster, **ec2: Any) -> None:
        self.cluster = cluster
        self._connection = connect(str(cluster.kubeconfig), user_agent="dovetail-test")
        self.client = Client(self._connection, SystemClock())
        self.nodes = ClusterOfNodes(
            CLUSTER, cluster.host, base64.b64encode(self._connection.authority).decode(), str(cluster.kubeconfig)
        )
        self.ec2 = Ec2.start(
            self.nodes, log=cluster.log("ec2"), **{"version": versions.chosen_minor(os.environ), **ec2}
        )
        prepare(self.client)
        applying.apply(self.client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])

    def account(self) -> str:
        """A kubeconfig that may do what the manifests allow the provisioner's service account, and nothing else."""
        for role in ("base/provisioner-rbac.yaml", "components/aws/rbac.yaml"):
            self.cluster.kubectl("apply", "-f", str(manifests() / role))
        path = user_kubeconfig(
            self.cluster,
            "system:serviceaccount:dovetail-system:dovetail-provisioner",
            ["system:serviceaccounts", "system:serviceaccounts:dovetail-system"],
        )
        return str(path)

    def start(self, *flags: str, kubeconfig: str = "", environment: Mapping[str, str] | None = None) -> Record:
        """Start the provisioner and wait until it is ready; it is an administrator unless `kubeconfig` says otherwise."""
        command = [sys.executable, "-m", "provisioner.cli.main", *self.arguments(kubeconfig), *flags]
        record = self.cluster.start_program(PROVISIONER, command, {**self.ec2.environment(), **(environment or {})})
        self.await_ready(self.log)
        return record

    def arguments(self, kubeconfig: str = "") -> tuple[str, ...]:
        """Of the provisioner; an administrator's unless `kubeconfig` says otherwise."""
        ports = self.cluster.ports
        return (
            *("provisioner", "--kubeconfig", kubeconfig or str(self.cluster.kubeconfig)),
            *("--provider", "aws", "--cluster-name", CLUSTER, "--cluster-endpoint", self.cluster.host),
            *("--interruption-queue", self.ec2.vpc.queue, "--bind-address", "127.0.0.1", "--report-port", "0"),
            *("--metrics-port", str(ports["provisioner-metrics"])),
            *("--health-probe-port", str(ports["provisioner-health"])),
        )

    def await_ready(self, log: Callable[[], str]) -> None:
        """Until a provisioner with these arguments is ready."""
        url = f"http://127.0.0.1:{self.cluster.ports['provisioner-health']}/readyz"
        eventually(lambda: answers(url), lambda: f"the provisioner is not ready; {log()[-2000:]}", READY_SECONDS)

    def looks(self) -> int:
        """How often the provisioner has looked for nodes to disrupt since its start."""
        url = f"http://127.0.0.1:{self.cluster.ports['provisioner-metrics']}/metrics"
        text = urllib3.request("GET", url, timeout=20.0).data.decode()
        name = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
        return int(sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)))

    def stop_provisioner(self) -> None:
        """As a rolling update does."""
        self.cluster.stop(PROVISIONER)

    def log(self) -> str:
        """What the provisioner wrote so far."""
        path = self.cluster.log(PROVISIONER)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def close(self) -> None:
        """End everything but the cluster."""
        with contextlib.suppress(Exception):
            self.stop_provisioner()
        self.ec2.stop()
        self._connection.close()

    # ------------------------------------------------------------------ making

    def node_class(self, name: str = "default", **spec: Any) -> None:
        """An EC2NodeClass that finds what the emulator has from the beginning."""
        applying.apply(self.client, [node_class(name, **spec)])

    def pool(self, name: str = "general", *, node_class: str = "default", ready: bool = True, **more: Any) -> None:
        """A NodePool of small instances that removes empty ones at once; `more` goes into its spec, `requirements` into its template's."""
        applying.apply(self.client, [pool(name, node_class, **more)])
        if ready:
            self.eventually(
                lambda: is_true(self.client.get(NODEPOOLS, name).status.conditions, names.READY),
                f"NodePool {name} is Ready",
            )

    def deploy(self, name: str, replicas: int, requests: Mapping[str, str] | None = None, **template: Any) -> None:
        """A Deployment in the tests' namespace; `template` goes into the pods' spec."""
        document = deployment(name, NAMESPACE, replicas, dict(requests or {"cpu": "1", "memory": "1Gi"}))
        document["spec"]["template"]["spec"].update(template)
        applying.apply(self.client, [document])

    def claim(self, pool_name: str, **spec: Any) -> Document:
        """The body of a NodeClaim as the pool's would be, for an instance of at least one core and 1 GiB; without a name."""
        found = self.client.get(NODEPOOLS, pool_name)
        wire: dict[str, Any] = msgspec.to_builtins(found.spec.template.spec)
        labels = {names.NODEPOOL_LABEL: pool_name}
        return {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {
                "generateName": f"{pool_name}-",
                "labels": labels,
                "finalizers": [names.TERMINATION_FINALIZER],
            },
            "spec": {**wire, "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "2"}}, **spec},
        }

    def create_claims(self, body: Document, count: int) -> None:
        """So many equal NodeClaims, eight at a time."""
        with pool_of_threads(8, "claims") as threads:
            for outcome in run_parallel(threads, lambda _: self.client.create(NODECLAIMS, body), range(count)):
                outcome.unwrap()

    def nudge(self, node_class: EC2NodeClass) -> None:
        """Have a class looked at again, as a user does who has mended something; nothing where it is gone."""
        note = {"metadata": {"annotations": {_NUDGE: node_class.metadata.resource_version}}}
        with contextlib.suppress(NotFound):
            self.client.patch(EC2NODECLASSES, node_class.name, note)

    # ------------------------------------------------------------------ looking

    def claims(self) -> list[NodeClaim]:
        """Every NodeClaim."""
        return self.client.list(NODECLAIMS)

    def instance_nodes(self) -> list[Node]:
        """Every Node of an instance of EC2."""
        return [node for node in self.client.list(NODES) if node.spec.provider_id.startswith("aws:///")]

    def running(self) -> int:
        """Pods of the tests' namespace that run; -1 where a busy API server did not tell in time."""
        try:
            return sum(one.phase == "Running" and one.deleted is None for one in self.client.list(PODS, NAMESPACE))
        except ServerError:
            return -1

    def initialized(self) -> list[NodeClaim]:
        """Claims whose Node is ready for use."""
        return [one for one in self.claims() if is_true(one.status.conditions, names.INITIALIZED)]

    def calls(self) -> Counter[str]:
        """Calls of EC2 since they were last reset."""
        return self.ec2.calls()

    def await_running(self, count: int, seconds: float = SECONDS) -> None:
        """Until so many pods run."""
        self.eventually(lambda: self.running() == count, f"{count} pods run", seconds)

    def await_empty(self, seconds: float = SECONDS) -> None:
        """Until no claim, no Node and no living instance is left."""
        self.eventually(
            lambda: not self.claims() and not self.instance_nodes() and not self.ec2.alive(), "nothing is left", seconds
        )

    def eventually(self, look: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        """As `eventually`; a failure shows what is there, and the end of the provisioner's log."""
        try:
            return eventually(look, what, seconds, 0.25)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._state()}\n{self.log()[-_LOG_TAIL:]}") from None

    def _state(self) -> str:
        lines = [
            f"{kind} {one.metadata.name}: {cond.type} {cond.status} {cond.reason} {cond.message}"
            for kind, found in (
                ("class", self.client.list(EC2NODECLASSES)),
                ("pool", self.client.list(NODEPOOLS)),
                ("claim", self.claims()[:5]),
            )
            for one in found
            for cond in one.status.conditions
            if cond.status != "True"
        ]
        events = {
            f"event {one.reason}: {one.message}" for one in self.client.list(EVENTS, "default") if one.type == "Warning"
        }
        lines += sorted(events)[:10]
        living = [f"instance {one}"[:300] for one in self.ec2.instances()[:5]]
        return "\n".join([*lines, *living, f"calls {dict(self.calls())}"])


def node_class(name: str, **spec: Any) -> Document:
    """A document."""
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": f"KarpenterNodeRole-{CLUSTER}",
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            **spec,
        },
    }


def pool(name: str, node_class_name: str, requirements: tuple[Mapping[str, Any], ...] = (), **more: Any) -> Document:
    """A document."""
    always = [
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
        {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
        {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]},
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
            **more,
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class_name},
                    "expireAfter": "Never",
                    "requirements": [*always, *requirements],
                }
            },
        },
    }


@contextlib.contextmanager
def aws_cluster(cluster: DevCluster, **ec2: Any) -> Iterator[AwsCluster]:
    """An `AwsCluster` for a `with` block."""
    made = AwsCluster(cluster, **ec2)
    try:
        yield made
    finally:
        made.close()
