"""A real Kubernetes control plane on this machine: etcd, API server, controllers, scheduler, and kwok as the kubelets.

`DevCluster` is used in two ways. By `dovetail dev`, the cluster goes on when the command has ended, and a keeper starts again what ends by itself. By
tests and the demo (`temporary=True`) it lives as long as the program: a reaper stops it when the program ends, be it by SIGKILL.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from certs.authority import Authority
from provisioner.lab.devcluster import (
    binaries,
    components,
    metrics,
    paths,
    pki,
    ports,
    probing,
    saved,
    teardown,
    versions,
)
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.components import COMPONENTS, Gates, Layout
from provisioner.lab.devcluster.errors import PortError, StartError, StateError
from provisioner.lab.devcluster.processes import (
    MARK,
    TERM_SECONDS,
    Record,
    memory_bytes,
    output_of,
    read_record,
    send,
    spawn,
    stop,
    write_record,
)
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.devcluster.reaper import lock_file
from provisioner.lab.devcluster.saved import Saved
from provisioner.support.clock import Clock, SystemClock

READY_SECONDS: Final = 60.0
"""How long one component may take to become ready; on a busy machine of 2 cores it takes up to 10."""

#: On a busy machine an API server that waits for its turn costs everybody their Leases; a real one has a machine of its own.
FIRST: Final = ("etcd", "kube-apiserver")
PRIORITY: Final = -10

_GANGS_SINCE: Final = "1.37"
_POLL_SECONDS = 0.05
_READY_PATHS = {
    "etcd": "/health",
    "kube-controller-manager": "/healthz",
    "kwok": "/healthz",
    versions.METRICS_SERVER: "/livez",  # it is ready only once there is a node to scrape
}
_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[2]


@dataclass(frozen=True)
class ComponentStatus:
    """One process of a cluster.

    Attributes:
        state: "running", "crashed" (it should run and does not) or "stopped".
        pid: 0 unless running.
        memory_bytes: proportional set size; 0 unless running.
    """

    name: str
    state: str
    pid: int
    ports: tuple[int, ...]
    memory_bytes: int


class DevCluster:
    """One dev cluster, known by its name. Not thread-safe; processes take turns by a lock."""

    def __init__(
        self,
        name: str = "",
        *,
        temporary: bool = False,
        extender: bool | None = None,
        audit: bool = False,
        metrics: bool | None = None,
        gates: Gates | None = None,
        ending_seed: int | None = None,
        env: Mapping[str, str] | None = None,
        source: binaries.BinarySource | None = None,
        progress: StepProgress = SILENT,
    ) -> None:
        """Describe a cluster; nothing is started or written.

        Args:
            name: its name, "default" if empty; a temporary one without a name gets a random one.
            temporary: it is stopped and deleted at `down`, or when this program ends in any way.
            extender: whether kube-scheduler asks the extender (at the port reserved for it; while nothing answers
                there, kube-scheduler goes on without). None: as the cluster of that name has it, yes for a new one.
            audit: whether the API server writes down who changed what, see `audit_log`.
            metrics: whether metrics-server runs, with the usage of pods that ClusterResourceUsages of kwok tell; it is
                built first where it is missing. None: as the cluster of that name has it, no for a new one.
            gates: "gangs" for PodGroups, which need Kubernetes 1.37. None: as the cluster of that name has it, "default"
                for a new one.
            ending_seed: pods take 0.2 to 3 s to end, by their names and this, and never longer than their grace
                period. None: they end at once.
            env: environment variables; this process's by default. `versions.VARIABLE` chooses the minor of Kubernetes.
            source: how to make missing programs; a Go build by default.
            progress: hears of long steps.

        Raises:
            StateError: a name that cannot be used.
            BinaryError: the environment chooses a minor that is not supported.
        """
        self.env = dict(os.environ if env is None else env)
        if not name:
            name = f"tmp-{os.getpid()}-{secrets.token_hex(3)}" if temporary else "default"
        self.name = paths.checked_name(name)
        self.temporary = temporary
        self._ending_seed = ending_seed
        self._progress = progress
        self._clock: Final[Clock] = SystemClock()
        directory = paths.state_root(self.env) / self.name
        known = None
        with contextlib.suppress(StateError):  # damaged: `down` must work all the same, and `up` will say it
            known = saved.load(directory)
        known = known or Saved({}, extender=True, owner=None)
        self._minor = versions.chosen_minor(self.env)
        self._source = source or GoBuild(self.env)
        self._layout = Layout(
            directory,
            known.ports,
            known.extender if extender is None else extender,
            audit,
            known.metrics if metrics is None else metrics,
            known.gates if gates is None else gates,
        )
        self._had_metrics = known.metrics
        self._owner = known.owner

    # What it is

    @property
    def dir(self) -> Path:
        """The cluster's directory: data, certificates, logs, pid files."""
        return self._layout.directory

    @property
    def ports(self) -> Mapping[str, int]:
        """Loopback ports by name (`ports.PORT_NAMES`), our own programs' included; empty before the first `up`."""
        return self._layout.ports

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self._layout.url("kube-apiserver", "https")

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""
        return self._layout.kubeconfig("admin")

    @property
    def ca(self) -> Authority:
        """The cluster's certificate authority; clients of the API server trust it.

        Raises:
            StateError: the cluster was never up, or its certificates are damaged.
        """
        return pki.load_authority(self._layout)

    def bin(self, name: str) -> Path:
        """The program (or link to it) of this cluster: kubectl, etcd, kwok, kube-..."""
        return self._layout.binaries / name

    @property
    def audit_log(self) -> Path:
        """The audit log, one JSON object (audit.k8s.io/v1 Event) a line; there is none without `audit`."""
        return self._layout.audit_log

    def log(self, name: str) -> Path:
        """Log file of a component, or of a program started with `start_program`."""
        return self._layout.log(name)

    def environment(self) -> dict[str, str]:
        """What a shell needs: KUBECONFIG, and PATH with this cluster's kubectl first."""
        path = self.env.get("PATH", os.defpath)
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{self._layout.binaries}:{path}"}

    def status(self) -> list[ComponentStatus]:
        """Every component in start order, then our own programs by name."""
        known = teardown.records(self.dir)
        known.pop(teardown.GUARD, None)
        components = self._layout.components
        names = [*components, *sorted(set(known) - set(components))]
        return [self._status(name, known.get(name)) for name in names]

    @property
    def is_up(self) -> bool:
        """Whether every component runs and the API server answers."""
        states = [entry.state for entry in self.status() if entry.name in self._layout.components]
        return set(states) == {"running"} and self._probe("kube-apiserver", "/readyz")

    @property
    def is_owned(self) -> bool:
        """Whether it is a temporary cluster of a program that still runs."""
        return self._owner is not None and self._owner.is_alive()

    # Up and down

    def up(self, *, fresh: bool = False, new_ports: bool = False) -> bool:
        """Start the cluster, with the data of its last run if there is any; wait until it is ready.

        Leftovers of a crashed run of it, and of temporary clusters whose programs are gone, are cleaned first.

        Args:
            fresh: delete the data of the last run; its ports are kept.
            new_ports: choose ports anew instead of those remembered.

        Returns:
            False when it was up already; then only the setting of the extender is brought about. Where metrics-server
            is to come or go, or the feature gates or the minor of Kubernetes change, all of it is started anew, with its data.

        Raises:
            DevClusterError: it cannot be started; what was started is stopped again.
        """
        if self._layout.gates == "gangs" and self._minor < _GANGS_SINCE:
            raise StateError(
                f"Kubernetes {self._minor} does not serve the PodGroups that the gates gangs are for",
                f"Set {versions.VARIABLE} to {_GANGS_SINCE}, or choose the default gates",
            )
        wanted = (*versions.ARTIFACTS, versions.METRICS_SERVER) if self._layout.metrics else versions.ARTIFACTS
        found = binaries.find(self._source, self.env, self._progress, wanted)
        with teardown.locked(lock_file(self.dir)):
            running = saved.load(self.dir) if self.is_up and not fresh and not new_ports else None
            if running is not None and self._is_as_wanted(running):
                if running.extender != self._layout.extender:
                    self.restart_scheduler(extender=self._layout.extender)
                return False
            teardown.stop_everything(self.dir, self._clock)
            self._sweep()
            if fresh:
                shutil.rmtree(self.dir, ignore_errors=True)
            elif not new_ports:
                saved.load(self.dir)  # raises if it is damaged
            self._owner = Record.of(os.getpid()) if self.temporary else None
            self._prepare(found, choose=new_ports or set(self.ports) != set(ports.PORT_NAMES))
            try:
                self._start_all()
            except BaseException:
                teardown.stop_everything(self.dir, self._clock)
                raise
        return True

    def down(self, *, delete: bool = False) -> None:
        """Stop everything that belongs to the cluster; a temporary one is deleted too. Not running is fine.

        Args:
            delete: remove data, certificates, logs and remembered ports as well.

        Raises:
            StateError: a process survived SIGKILL.
        """
        remove = delete or self.temporary
        with teardown.locked(lock_file(self.dir)):
            teardown.stop_everything(self.dir, self._clock, keep_data=not remove)
            if remove:
                shutil.rmtree(self.dir, ignore_errors=True)
        if remove:
            lock_file(self.dir).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    # One component

    def start(self, name: str) -> None:
        """Start one component and wait until it is ready; a running one is left alone.

        Raises:
            KeyError: no such component.
            DevClusterError: it does not become ready.
        """
        self._launch(name)
        self._await_ready(name)

    def stop(self, name: str, term_seconds: float = TERM_SECONDS) -> None:
        """Stop one component or program: SIGTERM, a wait, SIGKILL. A stopped one is fine.

        Raises:
            StateError: it survived SIGKILL.
        """
        record = read_record(self._layout.record(name))
        if record is not None and stop([record], self._clock, term_seconds):
            raise StateError(f"{name} (process {record.pid}) does not stop", f"Try `kill -9 {record.pid}`")
        self._layout.record(name).unlink(missing_ok=True)

    def restart(self, name: str) -> None:
        """Stop and start one component; returns when it is ready again.

        Raises:
            DevClusterError: it does not stop, or does not become ready.
        """
        self.stop(name)
        self.start(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one component or program and its group; its record stays, so SIGKILL leaves it "crashed".

        Raises:
            StateError: it does not run.
        """
        record = read_record(self._layout.record(name))
        if record is None or not send(record, number):
            raise StateError(f"{name} does not run", "Look with `dovetail dev status`")
        if number == signal.SIGKILL:
            stop([record], self._clock, term_seconds=0.0)  # gone when we return

    def heal(self) -> list[str]:
        """Start again what should run and does not, as a kubelet would; the names, in start order.

        Raises:
            DevClusterError: one does not become ready.
        """
        crashed = {entry.name for entry in self.status() if entry.state == "crashed"}
        again: list[str] = [name for name in self._layout.components if name in crashed]
        for name in again:
            self.start(name)
        return again

    def await_definitions(self, *names: str) -> None:
        """Wait until these CustomResourceDefinitions are served, or all of them. `kubectl wait` fails on one without any condition yet.

        Raises:
            StateError: they are not within a minute.
        """
        which = [f"crd/{name}" for name in names] or ["crd", "--all"]
        deadline = self._clock.monotonic() + READY_SECONDS
        while True:
            try:
                self.kubectl("wait", "--for=condition=Established", "--timeout=30s", *which)
            except StateError:
                if self._clock.monotonic() > deadline:
                    raise
                self._clock.sleep(_POLL_SECONDS)
            else:
                return

    def restart_scheduler(self, *, extender: bool) -> None:
        """Restart kube-scheduler with or without the extender in its configuration.

        Raises:
            DevClusterError: it does not become ready.
        """
        self.stop("kube-scheduler")
        self._layout = replace(self._layout, extender=extender)
        self._save()
        self._write_configuration()
        self.start("kube-scheduler")

    def start_program(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Record:
        """Start a program of our own as part of the cluster: own group, own log, gone with the cluster.

        Args:
            name: for `stop`, `signal`, `log` and `status`; not a component's.
            argv: its command line; the first an absolute path.
            env: variables on top of this process's environment and KUBECONFIG.

        Raises:
            StateError: one of that name runs already, or it cannot be executed.
        """
        if name in (*COMPONENTS, versions.METRICS_SERVER, teardown.GUARD):
            raise StateError(f"{name} is the cluster's own", "Choose another name")
        return self._spawn(name, argv, {"KUBECONFIG": str(self.kubeconfig), **(env or {})})

    # Conveniences

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, timeout_seconds: float = 120) -> str:
        """Run this cluster's kubectl as administrator; what it prints.

        Raises:
            StateError: it failed (with `check`); the text is what it wrote to standard error.
        """
        argv, env = [str(self.bin("kubectl")), *arguments], {**self.env, **self.environment()}
        result = output_of(argv, env, seconds=timeout_seconds, stdin=stdin)
        if check and result.returncode != 0:
            raise StateError(
                f"kubectl {' '.join(arguments)[:200]} failed: {result.stderr.strip()[:2000]}",
                "Run it by hand with the variables that `dovetail dev env` prints",
            )
        return result.stdout

    # How it is done

    def _prepare(self, found: binaries.Binaries, *, choose: bool) -> None:
        for part in ("logs", "pids"):
            (self.dir / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.dir.chmod(0o700)
        if choose:
            root = self.dir.parent
            with teardown.locked(root / ".ports.lock"):
                taken = saved.remembered_ports(root)
                self._layout = replace(self._layout, ports=ports.allocate(taken))
                self._save()
            (self._layout.pki / "complete").unlink(missing_ok=True)  # kubeconfigs name the port
        else:
            self._check_ports(ports.PLANE_PORTS)
            self._save()
        found.link(self._layout.binaries)
        authority = pki.ensure_pki(self._layout, self._clock.now())
        self._write_configuration()
        stages = [found.stages.read_text(), (_HERE / "stages.yaml").read_text()]
        if self._ending_seed is not None:
            stages.append((_HERE / "ending.yaml").read_text().replace("SEED", str(self._ending_seed)))
        if self._layout.metrics:
            pki.write_metrics_pki(self._layout, authority, self._clock.now())
            stages.append((_HERE / "usage.yaml").read_text())
        components.stages_file(self._layout).write_text("\n---\n".join(stages))
        for old in (self.dir / "logs").glob("*.log"):
            old.unlink()

    def _write_configuration(self) -> None:
        document = components.scheduler_document(self._layout)
        components.scheduler_file(self._layout).write_text(json.dumps(document, indent=2))
        self._layout.audit_policy.write_text(json.dumps(components.audit_document(), indent=2))

    def _start_all(self) -> None:
        owner = self._owner
        if owner is not None:
            self._start_guard("reaper", str(self.dir), str(owner.pid), str(owner.started), owner.boot)
        self._launch("etcd")
        self._await_ready("etcd")
        self._launch("kube-apiserver")
        self._await_ready("kube-apiserver")
        self._set_up_metrics()
        rest = [name for name in self._layout.components if name not in ("etcd", "kube-apiserver")]
        for name in rest:
            self._launch(name)
        for name in rest:
            self._await_ready(name)
        self._wait(  # without it the API server refuses every pod of the namespace
            lambda: self._get_ok("/api/v1/namespaces/default/serviceaccounts/default"),
            "kube-controller-manager",
            "the default service account",
        )
        if self._layout.metrics:
            self._wait(lambda: self._get_ok(metrics.API_PATH), versions.METRICS_SERVER, "the metrics API")
        if owner is None:
            self._start_guard("keeper", self.name)

    def _set_up_metrics(self) -> None:
        """Objects that metrics-server and kwok's usage need, or none of them; a ClusterResourceUsage that is there stays as it is."""
        layout = self._layout
        if not layout.metrics:
            if self._had_metrics:  # an API that nobody serves would hold up the end of every namespace
                self.kubectl("delete", "apiservice", metrics.API_SERVICE, "--ignore-not-found")
            return
        ca_pem, port = (layout.pki / "ca.crt").read_bytes(), layout.ports[versions.METRICS_SERVER]
        documents = [*metrics.api_documents(ca_pem, port), metrics.definition()]
        apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        self.kubectl(*apply, stdin="\n---\n".join(map(json.dumps, documents)))
        self.await_definitions(f"{metrics.PLURAL}.{metrics.GROUP}")
        if not self.kubectl("get", metrics.PLURAL, "-o", "name").strip():
            self.kubectl("create", "-f", "-", stdin=json.dumps(metrics.default_usage()))

    def _start_guard(self, module: str, *arguments: str) -> None:
        argv = [sys.executable, "-m", f"provisioner.lab.devcluster.{module}", *arguments]
        env = {**self.env, "PYTHONPATH": str(_REPOSITORY)}
        env.pop(MARK, None)  # it is not one of those that it stops
        record = spawn(argv, self._layout.log(teardown.GUARD), env)
        write_record(self._layout.record(teardown.GUARD), record)

    def _launch(self, name: str) -> None:
        argv = components.command(name, self._layout)
        record = read_record(self._layout.record(name))
        if record is not None and record.is_alive():
            return
        if name == "kube-scheduler":
            self._drop_lease()
        self._check_ports(components.ports_of(name))
        self._spawn(name, argv, components.ENVIRONMENT)

    def _spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Record:
        path = self._layout.record(name)
        running = read_record(path)
        if running is not None and running.is_alive():
            raise StateError(
                f"{name} of cluster {self.name} runs already (process {running.pid})",
                "Stop it first",
            )
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            record = spawn(argv, self.log(name), {**self.env, **env, MARK: str(self.dir)})
            if name in FIRST:
                with contextlib.suppress(OSError):  # only root may
                    os.setpriority(os.PRIO_PROCESS, record.pid, PRIORITY)
        except OSError as error:
            raise StateError(
                f"{argv[0]} cannot be started ({error})",
                "Check that the file exists, is executable and was built for this machine",
            ) from error
        write_record(path, record)
        return record

    def _drop_lease(self) -> None:
        """Forget the Lease of a scheduler that was killed: its successor would wait for it to run out."""
        self._api(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
            method="DELETE",
        )

    def _await_ready(self, name: str) -> None:
        path = _READY_PATHS.get(name, "/readyz")
        self._wait(lambda: self._probe(name, path), name, name)

    def _wait(self, condition: Callable[[], bool], component: str, what: str) -> None:
        deadline = self._clock.monotonic() + READY_SECONDS
        record = read_record(self._layout.record(component))
        while not condition():
            if record is None or not record.is_alive():
                raise StartError(
                    f"{component} ended while waiting for {what} ({self._last_line(component)})",
                    f"See {self.log(component)}; `dovetail dev up --fresh` starts with empty data",
                )
            if self._clock.monotonic() > deadline:
                raise StartError(
                    f"{what} was not ready after {READY_SECONDS:.0f} s",
                    f"See {self.log(component)}; is the machine overloaded?",
                )
            self._clock.sleep(_POLL_SECONDS)

    def _probe(self, component: str, path: str) -> bool:
        if component not in self.ports:
            return False
        secure = component not in ("etcd", "kwok")
        with contextlib.suppress(OSError):  # certificates not there yet
            context = self._identity().context() if secure else None
            return probing.request(self.ports[component], path, context=context).status == 200
        return False

    def _get_ok(self, path: str) -> bool:
        return self._api(path).status == 200

    def _api(self, path: str, *, method: str = "GET") -> probing.ProbeReply:
        return probing.request(
            self.ports["kube-apiserver"],
            path,
            method=method,
            context=self._identity().context(),
            timeout_seconds=10.0,
        )

    def _identity(self) -> probing.ProbeIdentity:
        directory = self._layout.pki
        return probing.ProbeIdentity(directory / "ca.crt", directory / "admin.crt", directory / "admin.key")

    def _check_ports(self, names: Sequence[str]) -> None:
        for name in names:
            port = self.ports[name]
            if not ports.is_free(port):
                raise PortError(
                    f"port {port}, which cluster {self.name} keeps for {name}, is taken by another program",
                    "Stop that program, or choose other ports with `dovetail dev up --new-ports`",
                )

    def _status(self, name: str, record: Record | None) -> ComponentStatus:
        numbers = tuple(self.ports[port] for port in components.ports_of(name) if port in self.ports)
        if record is None:
            return ComponentStatus(name, "stopped", 0, numbers, 0)
        if not record.is_alive():
            return ComponentStatus(name, "crashed", 0, numbers, 0)
        return ComponentStatus(name, "running", record.pid, numbers, memory_bytes(record.pid))

    def _last_line(self, component: str) -> str:
        try:
            lines = self.log(component).read_text(errors="replace").strip().splitlines()
        except OSError:
            return "it left no log"
        telling = [line for line in lines if "error" in line.lower() or line.startswith(("F", "E"))]
        return (telling or lines or ["its log is empty"])[-1][:300]

    def _save(self) -> None:
        layout = self._layout
        Saved(layout.ports, layout.extender, self._owner, layout.metrics, layout.gates, self._minor).write(self.dir)

    def _is_as_wanted(self, running: Saved) -> bool:
        """Whether what runs need not be started anew."""
        layout = self._layout
        return (running.metrics, running.gates, running.minor) == (layout.metrics, layout.gates, self._minor)

    def _sweep(self) -> None:
        """Remove temporary clusters that were left behind: their program is gone and so is the reaper."""
        for directory in saved.directories(self.dir.parent):
            if directory == self.dir or not saved.is_abandoned(directory):
                continue
            with teardown.locked(lock_file(directory)):
                if saved.is_abandoned(directory):  # its own reaper may have been at it
                    teardown.stop_everything(directory, self._clock, keep_data=False)
                    shutil.rmtree(directory, ignore_errors=True)
            lock_file(directory).unlink(missing_ok=True)


def list_clusters(env: Mapping[str, str]) -> list[str]:
    """Names of the clusters of this user, running or not."""
    return [directory.name for directory in saved.directories(paths.state_root(env))]
