"""A dev cluster of its own with our programs in it, for the time of a `with` block."""

import contextlib
import math
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import MUTATINGWEBHOOKS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.components import COMPONENTS, Gates
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.harness import applying, aws, memory
from provisioner.lab.harness.figures import ListPrices
from provisioner.lab.harness.observing import RunObserver
from provisioner.lab.harness.programs import Programs, ProgramSpec
from provisioner.lab.harness.workload import Document, namespace
from provisioner.support.clock import SystemClock

PROVISIONER, WEBHOOK, EXTENDER = "provisioner", "webhook", "extender"
PLANNER = "planning process"
AWS = "aws"
ALL_PROGRAMS = (WEBHOOK, EXTENDER, PROVISIONER)
SCHEDULER_LEASE = "kube-system/kube-scheduler"  # the dev cluster's one scheduler serves our profile too
SYSTEM_NAMESPACE: Document = namespace(names.OWN_NAMESPACE)
READY_SECONDS = 60.0
PROBE_SECONDS = 2.0
MEGABYTE = 1_000_000

Report = Callable[[str], None]


class Interrupted(Exception):  # noqa: N818  (nothing is wrong: somebody wants it to end)
    """A signal asked this process to end; everything is taken down on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.number).name}"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise `Interrupted` once; a second one does not disturb the taking down.

    Only for the main thread.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def handle(number: int, _: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Setup:
    """What runs in a session.

    Attributes:
        name: of the dev cluster; the process id is added, so sessions run side by side.
        programs: which of ours are started, in this order.
        provisioner_flags: added to the provisioner's command line.
        logs: where all logs are copied when something goes wrong; the cluster's own are deleted with it.
        cloud: where instances come from, "kwok" or "aws".
        metrics: whether the dev cluster has metrics-server.
        webhook_flags: added to the webhook's command line.
        gates: "gangs" for PodGroups.
    """

    name: str
    programs: tuple[str, ...] = ALL_PROGRAMS
    provisioner_flags: tuple[str, ...] = ()
    logs: Path | None = None
    cloud: str = "kwok"
    metrics: bool = False
    webhook_flags: tuple[str, ...] = ()
    gates: Gates | None = None

    @property
    def steered(self) -> bool:
        """Whether kube-scheduler is told of the extender."""
        return EXTENDER in self.programs


class Session:
    """What a run has at hand; made by `session`."""

    def __init__(self, setup: Setup, cluster: DevCluster, report: Report) -> None:
        self.clock = SystemClock()
        self.setup, self.cluster = setup, cluster
        self.kubeconfig = str(cluster.kubeconfig)
        connection = connect(self.kubeconfig, user_agent="dovetail-demo", clock=self.clock)
        self.client = Client(connection, self.clock)
        self.programs = Programs(cluster, self.clock, report)
        self.metrics_url = f"http://127.0.0.1:{cluster.ports['provisioner-metrics']}/metrics"
        prices = ListPrices(self.metrics_url, self.clock) if setup.cloud == AWS else None
        self.observer = RunObserver(connection, self.clock, prices)
        self._authority = connection.authority
        self._ec2: aws.EmulatedEc2 | None = None

    def program(self, name: str) -> ProgramSpec:
        """How to start one of ours against this cluster, and how to see that it serves."""
        ports = {key: f"127.0.0.1:{port}" for key, port in self.cluster.ports.items()}
        common = (name, "--kubeconfig", self.kubeconfig)
        if name == WEBHOOK:
            flags = {
                "--bind": ports["webhook"],
                "--metrics-bind": ports["webhook-metrics"],
                "--register-url": f"https://{ports['webhook']}/mutate",
                "--cert-dir": str(self.cluster.dir / "webhook-certs"),
                "--scheduler-lease": SCHEDULER_LEASE,
            }
            arguments = (*common, *_line(flags), *self.setup.webhook_flags)
            return ProgramSpec(name, arguments, lambda: self._webhook_serves(ports["webhook-metrics"]))
        if name == EXTENDER:
            flags = {"--bind": ports["extender"], "--metrics-bind": ports["extender-metrics"]}
            return ProgramSpec(
                name, (*common, *_line(flags)), lambda: answers(f"http://{ports['extender-metrics']}/readyz")
            )
        flags = {
            **(aws.flags(self.cluster) if self.setup.cloud == AWS else {"--provider": "kwok"}),
            "--bind-address": "127.0.0.1",
            "--metrics-port": str(self.cluster.ports["provisioner-metrics"]),
            "--health-probe-port": str(self.cluster.ports["provisioner-health"]),
            "--report-port": str(self.cluster.ports["provisioner-reports"]),
            "--report-address": ports["provisioner-reports"],
        }
        arguments = (*common, *_line(flags), *self.setup.provisioner_flags)
        return ProgramSpec(
            name,
            arguments,
            lambda: answers(f"http://{ports['provisioner-health']}/readyz"),
            environment=self._ec2.environment() if self._ec2 is not None else {},
        )

    def start_programs(self, report: Report) -> None:
        """Start those of the setup's programs that do not run, at once, then wait until each serves; EC2 first, if there is one."""
        if self.setup.cloud == AWS and self._ec2 is None:
            self._ec2 = aws.EmulatedEc2.start(self.cluster, self._authority, self.cluster.log("ec2"))
            report(f"EC2 at {self._ec2.endpoint}")
        programs = [self.program(name) for name in self.setup.programs if not self.programs.is_running(name)]
        for program in programs:
            self.programs.start(program)
        for program in programs:
            seconds = self.programs.wait_ready(program, READY_SECONDS)
            report(f"{program.name} is ready (waited {seconds:.1f} s)")

    def stop_programs(self) -> None:
        """Stop everything that was started."""
        self.programs.stop_all()
        if self._ec2 is not None:
            self._ec2.stop()

    def apply_pools(self, documents: list[Document]) -> None:
        """Apply NodePools and what they refer to, and wait until the provisioner found them good."""
        applying.apply(self.client, documents)
        pools = [document["metadata"]["name"] for document in documents if document["kind"] == "NodePool"]
        applying.wait_pools_ready(self.client, pools)

    def memory_megabytes(self) -> dict[str, float]:
        """PSS of each program's process tree in MB (10**6 bytes); of the planning processes apart, together, where one is running."""
        found = {name: self.programs.pss_bytes(name) / MEGABYTE for name in self.setup.programs}
        planner = self.programs.planner_pss_bytes(PROVISIONER) / MEGABYTE
        return found if math.isnan(planner) else {**found, PLANNER: planner}

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time used so far: each of our programs, the control plane's programs together, and this process."""
        used = {name: self.programs.cpu_seconds(name) for name in self.setup.programs}
        plane = [entry.pid for entry in self.cluster.status() if entry.name in COMPONENTS and entry.pid]
        used["control plane"] = sum(memory.cpu_seconds(pid) for pid in plane)
        used["demo itself"] = memory.cpu_seconds(os.getpid(), children=False)
        return used

    def keep_logs(self, report: Report) -> None:
        """Copy the logs to where the setup says, if it does."""
        if self.setup.logs is not None:
            report(f"logs of the run: {self.programs.keep_logs(self.setup.logs)}")

    def _webhook_serves(self, address: str) -> bool:
        # Ready for the API server: it says so, and it is registered with a certificate authority.
        if not answers(f"http://{address}/readyz"):
            return False
        try:
            registered = self.client.list(MUTATINGWEBHOOKS)
        except ApiError:
            return False
        return any(hook.client_config.ca_bundle for found in registered for hook in found.webhooks)


@contextlib.contextmanager
def session(setup: Setup, report: Report, progress: StepProgress = SILENT) -> Iterator[Session]:
    """Bring up a fresh dev cluster with the CRDs and our programs; take all of it down at the end, whatever happened.

    Raises:
        DevClusterError, ExampleError, ProgramError, ApiError: what failed, with what to do.
    """
    cluster = DevCluster(
        f"{setup.name}-{os.getpid()}",
        temporary=True,
        extender=setup.steered,
        metrics=setup.metrics,
        gates=setup.gates,
        progress=progress,
    )
    began = SystemClock().monotonic()
    try:
        cluster.up()
        run = Session(setup, cluster, report)
        report(f"control plane at {cluster.host} after {run.clock.monotonic() - began:.1f} s")
        report(f"look in: {cluster.bin('kubectl')} --kubeconfig {run.kubeconfig} get nodeclaims")
        report(f"{applying.apply_crds(run.client)} CRDs applied")
        applying.apply(run.client, [SYSTEM_NAMESPACE])
        try:
            run.start_programs(report)
            run.observer.start()
            yield run
        except BaseException:
            run.keep_logs(report)
            raise
        finally:
            run.observer.stop()
            run.stop_programs()
    finally:
        cluster.down()


def answers(url: str) -> bool:
    """Whether a plain HTTP URL answers 2xx."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as response:
            return bool(200 <= response.status < 300)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _line(flags: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(part for flag in flags.items() for part in flag)
