"""Where it happens: one dev cluster, the three programs, each behind a proxy of its own, and somebody who restarts them."""

import base64
import contextlib
import copy
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from provisioner.kube.resources import NODEPOOLS
from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.components import COMPONENTS
from provisioner.lab.devcluster.errors import DevClusterError
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.harness import applying, aws
from provisioner.lab.harness.programs import ProgramSpec
from provisioner.lab.harness.session import (
    ALL_PROGRAMS,
    AWS,
    EXTENDER,
    PROVISIONER,
    SYSTEM_NAMESPACE,
    WEBHOOK,
    Session,
    Setup,
)
from provisioner.lab.harness.workload import load, manifests
from tests.chaos.repairs import BUDGET
from tests.scenarios.row import FIRST_GATES
from tests.support.apiproxy import ApiProxy
from tests.support.awscluster import node_class
from tests.support.ec2 import ClusterOfNodes, Ec2
from tests.support.ec2 import Fault as CloudFault

RESTART_SECONDS = (0.2, 2.0)
READY_SECONDS = 90.0
OFFSET_VARIABLE = "DOVETAIL_CLOCK_OFFSET_FILE"
POOL = "general"
PROBES = "probes"
"""For pods that measure how long a node takes; nobody else runs there."""
EXPIRING = "expiring"
EXPIRE_AFTER = "120s"
STATIC = "static"
REPLICAS = 2
MOST_REPLICAS = 4
FLAGS = (FIRST_GATES, "--repair-timeout=15s", "--aws-feature-gates=RebootForRepair=true")
"""Every method of disruption takes nodes, and broken ones are rebooted or replaced before their fault is over."""


class ChaosCluster:
    """What faults act on.

    Attributes:
        proxies: by program.
        ec2: the emulator; None on kwok.
        restarts: how often each program was started again.
        paused: programs that are stopped by SIGSTOP now.
        broken: names of the Nodes that a fault has broken: nobody is gentle to their pods.
        cloud: kwok or aws.
        every_method: the provisioner has `FLAGS`, and one NodePool is static.
    """

    def __init__(
        self,
        cluster: DevCluster,
        session: Session,
        ec2: Ec2 | None,
        chance: random.Random,
        *,
        every_method: bool,
        started_as: Callable[[ProgramSpec], ProgramSpec] = lambda spec: spec,
    ) -> None:
        self._started_as = started_as
        self.cluster, self.session, self.ec2, self.every_method = cluster, session, ec2, every_method
        self.client = session.client
        self.cloud = session.setup.cloud
        self.programs = session.programs
        self.proxies = {name: ApiProxy(cluster) for name in ALL_PROGRAMS}
        self.restarts: Counter[str] = Counter()
        self.paused: set[str] = set()
        self.broken: set[str] = set()
        self._chance = chance
        self._scripts: dict[str, tuple[CloudFault, ...]] = {}
        self._healing = threading.Lock()
        self._stop = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._supervised: tuple[str, ...] = ()
        self._offset = cluster.dir / "clock-offset"
        self._offset.write_text("0")

    def program(self, name: str) -> ProgramSpec:
        """One of ours, led through its proxy, with a clock that can be shifted."""
        found = self.session.program(name)
        arguments = list(found.arguments)
        arguments[arguments.index("--kubeconfig") + 1] = self.proxies[name].kubeconfig()
        environment = {**(self.ec2.environment() if self.ec2 is not None else {}), OFFSET_VARIABLE: str(self._offset)}
        return self._started_as(replace(found, arguments=tuple(arguments), environment=environment))

    def start(self, names: tuple[str, ...] = (WEBHOOK, EXTENDER, PROVISIONER)) -> None:
        """Start some programs of ours, and the supervisor of these."""
        self._supervised = names
        programs = [self.program(name) for name in names]
        for one in programs:
            self.programs.start(one)
        for one in programs:
            self.programs.wait_ready(one, READY_SECONDS)
        if names:
            self._supervisor.start()

    def apply_pools(self) -> None:
        """Apply NodePools for the churn's pods, and wait until they are Ready."""
        self.session.apply_pools(_pools(self.session.setup.cloud, static=self.every_method))

    def heal(self) -> None:
        """Start again what of the control plane has ended; the API server too."""
        with self._healing:
            self.restarts.update(self.cluster.heal())

    def calm(self) -> None:
        """Nodes are not disrupted voluntarily any more; what has begun goes on."""
        nothing = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
        for pool in self.client.list(NODEPOOLS):
            self.client.patch(NODEPOOLS, pool.metadata.name, nothing)

    def stop(self) -> None:
        """End everything of ours."""
        self._stop.set()
        if self._supervised:
            self._supervisor.join(10)
        for name in list(self.paused):
            self.resume(name)
        self.programs.stop_all()
        for proxy in self.proxies.values():
            proxy.close()

    def kill(self, name: str) -> None:
        """SIGKILL; the supervisor brings it back."""
        if self.programs.is_running(name):
            self.programs.kill(name)

    def pause(self, name: str) -> None:
        """SIGSTOP until `resume`."""
        if self.programs.is_running(name):
            self.paused.add(name)
            self.programs.pause(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.paused.discard(name)
        if self.programs.is_running(name):
            self.programs.resume(name)

    def shift_clock(self, seconds: float) -> None:
        """From now on our programs' wall clocks are wrong by as much."""
        self._offset.write_text(f"{seconds:g}")

    def script(self, name: str, faults: Iterable[CloudFault] = ()) -> None:
        """What goes wrong in EC2 besides the faults of other names; without faults nothing of this name any more."""
        if self.ec2 is not None:
            self._scripts[name] = tuple(faults)
            self.ec2.script([one for script in self._scripts.values() for one in script])

    def logs(self, name: str) -> str:
        """Everything that a program has logged."""
        path = self.cluster.log(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def _supervise(self) -> None:
        """As a kubelet: what has ended is started again, a little later."""
        while not self._stop.wait(0.3):
            if self._has_ended():
                with contextlib.suppress(DevClusterError, OSError):
                    self.heal()
            for name in self._supervised:
                if self.programs.is_running(name):
                    continue
                if self._stop.wait(self._chance.uniform(*RESTART_SECONDS)):
                    return
                self.restarts[name] += 1
                with contextlib.suppress(OSError):
                    self.programs.start(self.program(name))

    def _has_ended(self) -> bool:
        """Whether a program of the control plane lost its Lease, say, and ended; not while a fault keeps the API server away."""
        states = {one.name: one.state for one in self.cluster.status()}
        return states["kube-apiserver"] == "running" and "crashed" in (states[name] for name in COMPONENTS)


@contextlib.contextmanager
def stage(
    cloud: str,
    chance: random.Random,
    progress: StepProgress = SILENT,
    programs: tuple[str, ...] = ALL_PROGRAMS,
    *,
    every_method: bool = False,
    ending_seed: int | None = None,
    started_as: Callable[[ProgramSpec], ProgramSpec] = lambda spec: spec,
) -> Iterator[ChaosCluster]:
    """A stage of its own for one block; `cloud` is kwok or aws. Without programs there are no NodePools yet. `started_as` says how a program is started."""
    cluster = DevCluster(temporary=True, extender=True, audit=True, ending_seed=ending_seed, progress=progress)
    found: ChaosCluster | None = None
    ec2: Ec2 | None = None
    try:
        cluster.up()
        session = Session(Setup("chaos", cloud=cloud, provisioner_flags=FLAGS if every_method else ()), cluster, print)
        applying.apply_crds(session.client)
        applying.apply(session.client, [SYSTEM_NAMESPACE])
        if cloud == AWS:
            nodes = ClusterOfNodes(
                aws.CLUSTER_NAME,
                cluster.host,
                base64.b64encode(cluster.ca.certificate_pem).decode(),
                str(cluster.kubeconfig),
            )
            ec2 = Ec2.start(nodes, log=cluster.log("ec2"), version=versions.chosen_minor(os.environ))
        found = ChaosCluster(cluster, session, ec2, chance, every_method=every_method, started_as=started_as)
        if programs:
            found.start(programs)
            found.apply_pools()
        yield found
    finally:
        if found is not None:
            found.stop()
        if ec2 is not None:
            ec2.stop()
        cluster.down()


def _pools(cloud: str, *, static: bool) -> list[dict[str, Any]]:
    """NodePools whose nodes every method of disruption may take: empty, underutilized and drifted ones, in one of them expired ones, and one may be static.

    A node that expires soon saves too little by its removal to be worth the evictions, so it is not consolidated.
    """
    found = _kwok_pools() if cloud != AWS else _aws_pools()
    general = next(one for one in found if one["kind"] == "NodePool" and one["metadata"]["name"] == POOL)
    expiring = copy.deepcopy(general)
    expiring["metadata"]["name"] = EXPIRING
    expiring["spec"].pop("weight", None)
    expiring["spec"]["template"]["spec"]["expireAfter"] = EXPIRE_AFTER
    found.append(expiring)
    probes = copy.deepcopy(general)
    probes["metadata"]["name"] = PROBES
    probes["spec"]["template"]["spec"]["taints"] = [{"key": PROBES, "effect": "NoSchedule"}]
    found.append(probes)
    if static:
        fixed = copy.deepcopy(general)
        fixed["metadata"]["name"] = STATIC
        for name in ("weight", "limits"):
            fixed["spec"].pop(name, None)
        fixed["spec"] |= {"replicas": REPLICAS, "limits": {"nodes": str(MOST_REPLICAS)}}
        found.append(fixed)
    for document in found:
        if document["kind"] == "NodePool":
            document["spec"]["disruption"] = {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "5s",
                "budgets": [{"nodes": f"{BUDGET:.0%}"}],
            }
    return found


def _kwok_pools() -> list[dict[str, Any]]:
    return load(manifests() / "examples" / "nodepools.yaml")


def _aws_pools() -> list[dict[str, Any]]:
    requirements = [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["17"]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}},
    }
    tags = [{"tags": {"karpenter.sh/discovery": aws.CLUSTER_NAME}}]
    role = f"KarpenterNodeRole-{aws.CLUSTER_NAME}"
    return [node_class("default", role=role, subnetSelectorTerms=tags, securityGroupSelectorTerms=tags), pool]
