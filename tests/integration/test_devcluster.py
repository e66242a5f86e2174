"""The dev cluster on this machine: up, down, crashed, doubled, taken, and what its parts can do."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.resources import PODS
from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.components import COMPONENTS
from provisioner.lab.devcluster.errors import BuildError, DevClusterError, PortError, StateError
from provisioner.lab.devcluster.processes import marked
from provisioner.lab.devcluster.progress import SILENT
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.etcd import etcd_compact
from tests.support.eventually import PATIENCE, eventually
from tests.support.kubeconfigs import service_account_kubeconfig, user_kubeconfig

pytestmark = pytest.mark.plane

CLOCK = SystemClock()
ENDING_SEED = 7


@pytest.fixture(scope="module")
def kept() -> Iterator[DevCluster]:
    """A cluster of this module."""
    progress = progress_for(sys.__stderr__)
    with DevCluster(temporary=True, extender=True, ending_seed=ENDING_SEED, progress=progress) as one:
        yield one


@pytest.fixture
def own(kept: DevCluster) -> DevCluster:
    """The cluster of this module, whose components may be stopped as long as all run again at the end of a test."""
    eventually(lambda: is_up_once_healed(kept), "everything runs")
    return kept


def cluster(env: Mapping[str, str], name: str, *, temporary: bool = False) -> DevCluster:
    return DevCluster(name, env=env, temporary=temporary, progress=progress_for(sys.__stderr__))


def is_up_once_healed(one: DevCluster) -> bool:
    """Whether it is up; a component that ended itself since the last look is started again."""
    one.heal()
    return one.is_up


def await_ready(one: DevCluster, what: str) -> None:
    """Wait for a Node or pod; a scheduler that ends itself meanwhile is started again."""

    def is_ready() -> bool:
        one.heal()
        return "condition met" in one.kubectl("wait", "--for=condition=Ready", what, "--timeout=3s", check=False)

    eventually(is_ready, f"{what} is Ready", 30)


def states(one: DevCluster) -> dict[str, str]:
    return {entry.name: entry.state for entry in one.status()}


def names(one: DevCluster, kind: str) -> list[str]:
    return one.kubectl("get", kind, "-o", "name").split()


def make_config_map(one: DevCluster, name: str) -> None:
    one.kubectl("create", "configmap", name)


def test_it_is_ready_in_ten_seconds_once_built(env: dict[str, str]) -> None:
    one = cluster(env, "a")
    one.up()
    one.down()
    began = CLOCK.monotonic()
    assert one.up()
    seconds = CLOCK.monotonic() - began
    print(f"\nready after {seconds:.1f} s")
    assert set(states(one).values()) == {"running"}
    assert seconds < 10 or os.getloadavg()[0] > 4  # a machine busy with other jobs proves nothing


def test_data_and_ports_outlive_down_and_fresh_begins_anew(env: dict[str, str]) -> None:
    one = cluster(env, "a")
    assert one.up()
    make_config_map(one, "kept")
    before = dict(one.ports)
    assert not one.up()
    one.down()
    assert set(states(one).values()) == {"stopped"}
    again = cluster(env, "a")  # as another program would find it
    again.up()
    assert "configmap/kept" in names(again, "configmaps")
    assert dict(again.ports) == before
    again.up(fresh=True)
    assert "configmap/kept" not in names(again, "configmaps")
    again.down(delete=True)
    assert not again.dir.exists()


def test_two_clusters_run_side_by_side(env: dict[str, str]) -> None:
    one, two = cluster(env, "one"), cluster(env, "two")
    one.up()
    two.up()
    assert not set(one.ports.values()) & set(two.ports.values())
    make_config_map(one, "only-here")
    assert "configmap/only-here" in names(one, "configmaps")
    assert "configmap/only-here" not in names(two, "configmaps")
    one.down()
    assert two.is_up


def test_nothing_listens_beyond_loopback(plane: DevCluster) -> None:
    pids = [entry.pid for entry in plane.status()]
    inodes = {inode for pid in pids for inode in socket_inodes(pid)}
    listening = [line for line in listeners() if line[1] in inodes]
    assert len(listening) >= len(COMPONENTS)
    assert {address for address, _ in listening} == {"127.0.0.1"}


def socket_inodes(pid: int) -> list[str]:
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(path.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            links.append(target[8:-1])
    return links


def listeners() -> list[tuple[str, str]]:
    """Address and inode of every listening TCP socket; one on all of IPv6 shows as ::."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            packed = bytes.fromhex(fields[1].partition(":")[0])[::-1]
            found.append((socket.inet_ntoa(packed), fields[9]))
    for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            found.append(("::", fields[9]))
    return found


OWNER = """
import signal, sys, time
from provisioner.lab.devcluster.cluster import DevCluster
cluster = DevCluster(temporary=True)
cluster.up()
cluster.start_program("idler", [sys.executable, "-I", "-c", "import time; time.sleep(600)"])
print(cluster.dir, flush=True)
{then}
"""


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("time.sleep(600)", id="killed"),
        pytest.param("", id="ended without down"),
        pytest.param("raise SystemExit(3)", id="failed"),
    ],
)
def test_a_temporary_cluster_ends_with_its_program(env: dict[str, str], then: str) -> None:
    with owner(env, then) as (process, directory):
        if "sleep" in then:
            every_process_is_marked(directory, len(COMPONENTS) + 1)
            process.kill()
        process.wait()
        eventually(lambda: not marked(directory) and not directory.exists(), "the cluster is gone", 30)


class owner:  # noqa: N801 - reads as a statement
    """A program with a temporary cluster; yields it and the cluster's directory."""

    def __init__(self, env: Mapping[str, str], then: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER.format(then=then)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> tuple[subprocess.Popen[str], Path]:
        assert self.process.stdout is not None
        return self.process, Path(self.process.stdout.readline().strip())

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


def every_process_is_marked(directory: Path, count: int) -> None:
    """A process that execve(2) has not finished with shows an empty environment, Popen returns before that."""
    eventually(lambda: len(marked(directory)) == count, lambda: f"{count} processes, not {marked(directory)}")


def signal_guard(directory: Path, number: signal.Signals) -> None:
    """To the reaper of a temporary cluster, or to the keeper of another."""
    os.kill(json.loads((directory / "pids" / "guard.json").read_text())["pid"], number)


def test_a_crash_of_program_and_reaper_leaves_nothing_that_the_next_up_does_not_clean(env: dict[str, str]) -> None:
    with owner(env, "time.sleep(600)") as (process, directory):
        signal_guard(directory, signal.SIGKILL)
        (directory / "pids" / "etcd.json").unlink()  # as if killed before it was written
        process.kill()
        process.wait()
        every_process_is_marked(directory, len(COMPONENTS) + 1)
        other = cluster(env, "other", temporary=True)
        with other:
            assert marked(directory) == []
            assert not directory.exists()


def test_leftovers_of_a_crashed_run_of_the_same_cluster_are_cleaned(env: dict[str, str]) -> None:
    one = cluster(env, "a")
    one.up()
    make_config_map(one, "kept")
    signal_guard(one.dir, signal.SIGKILL)
    for component in ("kube-apiserver", "kwok"):
        one.signal(component, signal.SIGKILL)
    assert states(one)["kwok"] == "crashed"
    (one.dir / "pids" / "kube-scheduler.json").write_text('{"pid": 1, "started": 1, "boot": "x"}')  # stale
    (one.dir / "pids" / "etcd.json").write_text("damaged")
    assert one.up()
    assert set(states(one).values()) == {"running"}
    assert "configmap/kept" in names(one, "configmaps")
    every_process_is_marked(one.dir, len(COMPONENTS))


def test_a_taken_port_is_named_and_other_ports_can_be_asked_for(env: dict[str, str]) -> None:
    one = cluster(env, "a")
    one.up()
    one.down()
    port = one.ports["kube-apiserver"]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(PortError, match=rf"port {port}, .* for kube-apiserver, is taken .* --new-ports"):
            one.up()
        assert marked(one.dir) == []
        one.up(new_ports=True)
    assert one.ports["kube-apiserver"] != port
    assert "namespace/default" in names(one, "namespaces")


def test_a_component_that_cannot_start_is_an_error_with_its_log_and_nothing_stays(
    env: dict[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    fake = own / "kube-apiserver"
    version = versions.chosen(env).kubernetes
    fake.write_text(f"#!/bin/sh\n[ $# = 1 ] && echo {version} && exit\necho 'E1121 error: no luck' >&2; exit 1\n")
    fake.chmod(0o755)
    one = cluster({**env, "DOVETAIL_DEV_BIN": str(own)}, "a")
    with pytest.raises(DevClusterError, match=r"kube-apiserver ended .*no luck.*kube-apiserver\.log"):
        one.up()
    assert marked(one.dir) == []


def test_no_network_is_a_sentence(tmp_path: Path) -> None:
    env = {**os.environ, "GOPROXY": "http://127.0.0.1:9", "GOMODCACHE": str(tmp_path), "GOSUMDB": "off"}
    with pytest.raises(BuildError, match="the Go module proxy cannot be reached"):
        GoBuild(env).make(["kwok"], tmp_path, SILENT)


def test_a_shell_needs_only_what_dev_env_prints(env: dict[str, str], tmp_path: Path) -> None:
    def dovetail(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "provisioner.cli.main", "dev", *arguments, "--name", "shell"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    up = dovetail("up", "--no-extender")
    assert up.returncode == 0, up.stderr
    assert "cluster shell is up after" in up.stdout
    assert dovetail("status").returncode == 0
    exports = dovetail("env").stdout
    shell = subprocess.run(
        ["/bin/sh", "-c", f"{exports}kubectl version; kubectl get namespaces -o name"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},  # kubectl keeps a cache in its home
        capture_output=True,
        text=True,
        check=True,
    )
    release = versions.chosen(env).kubernetes
    assert f"Client Version: {release}" in shell.stdout
    assert f"Server Version: {release}" in shell.stdout
    assert "namespace/default" in shell.stdout
    assert "kube-scheduler.log" in dovetail("logs").stdout
    assert dovetail("logs", "kube-scheduler", "-n", "3").stdout.count("\n") == 3
    kept = cluster(env, "shell")
    signal_guard(kept.dir, signal.SIGSTOP)  # on a busy machine the keeper is faster than a look
    kept.signal("kube-scheduler", signal.SIGKILL)
    assert dovetail("status").returncode == 1
    signal_guard(kept.dir, signal.SIGCONT)
    eventually(lambda: dovetail("status").returncode == 0, "the keeper starts kube-scheduler again", 60)
    assert "started again: kube-scheduler" in dovetail("logs", "guard").stdout
    assert dovetail("down", "--delete").returncode == 0
    assert dovetail("status").returncode == 1


def test_a_component_can_be_restarted_or_killed_and_healed(own: DevCluster) -> None:
    for component in ("kwok", "kube-controller-manager", "kube-scheduler", "kube-apiserver"):
        before = {entry.name: entry.pid for entry in own.status()}
        own.restart(component)
        own.signal(component, signal.SIGKILL)
        assert states(own)[component] == "crashed"
        assert component in own.heal()  # kube-scheduler ends itself where the API server was away for long
        after = {entry.name: entry.pid for entry in own.status()}
        changed = {name for name in after if after[name] != before[name]}
        assert component in changed
        assert changed <= {component, "kube-scheduler"}
        eventually(lambda: is_up_once_healed(own), f"all is well after the end of {component}")


def test_the_scheduler_runs_with_and_without_the_extender(own: DevCluster) -> None:
    own.restart_scheduler(extender=True)

    def extenders() -> list[dict[str, Any]]:
        document = json.loads((own.dir / "kube-scheduler.json").read_text())
        return list(document.get("extenders", []))

    assert [entry["urlPrefix"] for entry in extenders()] == [f"http://127.0.0.1:{own.ports['extender']}"]
    own.restart_scheduler(extender=False)
    assert extenders() == []
    add_node(own, "n2")
    run_pod(own, "p2", scheduler="dovetail-scheduler")
    own.restart_scheduler(extender=True)
    run_pod(own, "p3", scheduler="default-scheduler")  # nothing answers there: ignored, not failed


def test_etcd_compaction_makes_an_old_watch_gone(own: DevCluster) -> None:
    version = json.loads(own.kubectl("get", "--raw", "/api/v1/configmaps?limit=1"))["metadata"]["resourceVersion"]
    make_config_map(own, "newer")
    assert etcd_compact(own) > int(version)
    own.restart("kube-apiserver")  # its cache would still answer
    own.heal()
    path = f"/api/v1/configmaps?watch=1&resourceVersion={version}&timeoutSeconds=5"
    assert '"code":410' in own.kubectl("get", "--raw", path)


def test_a_namespace_with_a_volume_claim_can_be_deleted(plane: DevCluster) -> None:
    """The API server protects claims; who takes the finalizer off again is a controller."""
    plane.kubectl("create", "namespace", "disks")
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "disks"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    plane.kubectl("delete", "namespace", "disks", f"--timeout={30 * PATIENCE}s")
    assert "disks" not in plane.kubectl("get", "namespaces", "-o", "name")


def test_users_and_service_accounts_may_do_what_rbac_says(plane: DevCluster) -> None:
    plane.kubectl("create", "namespace", "rbac")
    try:
        plane.kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods", "-n", "rbac")
        plane.kubectl("create", "serviceaccount", "robot", "-n", "rbac")
        plane.kubectl("create", "rolebinding", "sa", "--role=reader", "--serviceaccount=rbac:robot", "-n", "rbac")
        plane.kubectl("create", "rolebinding", "group", "--role=reader", "--group=readers", "-n", "rbac")
        for kubeconfig in (
            service_account_kubeconfig(plane, "rbac", "robot"),
            user_kubeconfig(plane, "jane", ["readers"]),
        ):
            plane.kubectl("--kubeconfig", str(kubeconfig), "get", "pods", "-n", "rbac")
            with pytest.raises(StateError, match="forbidden"):
                plane.kubectl("--kubeconfig", str(kubeconfig), "get", "pods", "-n", "default")
        with pytest.raises(StateError, match="not found"):
            service_account_kubeconfig(plane, "rbac", "nobody")
    finally:
        plane.kubectl("delete", "namespace", "rbac", "--wait=false")


def test_a_program_of_ours_is_part_of_the_cluster(own: DevCluster) -> None:
    argv = [sys.executable, "-I", "-c", "import os,time; print(os.environ['KUBECONFIG'], flush=True); time.sleep(600)"]
    own.start_program("webhook", argv)
    eventually(lambda: str(own.kubeconfig) in own.log("webhook").read_text(), "it logs its KUBECONFIG")
    assert states(own)["webhook"] == "running"
    with pytest.raises(StateError, match=r"webhook of cluster .* runs already"):
        own.start_program("webhook", argv)
    own.signal("webhook", signal.SIGKILL)
    assert states(own)["webhook"] == "crashed"
    own.start_program("webhook", argv)
    own.stop("webhook")
    assert "webhook" not in states(own)


def add_node(one: DevCluster, name: str) -> None:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": resources, "allocatable": resources},
    }
    one.kubectl("create", "-f", "-", stdin=json.dumps(node))
    await_ready(one, f"node/{name}")


def run_pod(
    one: DevCluster, name: str, *, scheduler: str, annotations: dict[str, str] | None = None, grace: int = 30
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c", "image": "x"}],
            "terminationGracePeriodSeconds": grace,
        },
    }
    one.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    await_ready(one, f"pod/{name}")


def test_the_stages_of_our_own_delay_deletion_and_make_pods_and_nodes_unwell(own: DevCluster) -> None:
    def condition(kind: str, name: str) -> Callable[[], str]:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return lambda: own.kubectl("get", kind, name, "-o", path)

    add_node(own, "unwell-node")
    run_pod(own, "unwell-pod", scheduler="default-scheduler", annotations={"kwok.dovetail.dev/delete-delay": "3s"})
    pod, node = condition("pod", "unwell-pod"), condition("node", "unwell-node")
    own.kubectl("label", "pod", "unwell-pod", "kwok.dovetail.dev/unhealthy=true")
    eventually(lambda: pod() == "False", "the pod is unhealthy")
    own.kubectl("label", "pod", "unwell-pod", "kwok.dovetail.dev/unhealthy-")
    eventually(lambda: pod() == "True", "the pod is healthy again")
    own.kubectl("label", "node", "unwell-node", "kwok.dovetail.dev/not-ready=true")
    eventually(lambda: node() == "False", "the node is not ready")
    CLOCK.sleep(1.0)
    assert node() == "False"  # and stays so: kwok's own stage would make it ready again
    own.kubectl("label", "node", "unwell-node", "kwok.dovetail.dev/not-ready-")
    eventually(lambda: node() == "True", "the node is ready again")
    began = CLOCK.monotonic()
    own.kubectl("delete", "pod", "unwell-pod", "--wait=true")
    assert 2.5 < CLOCK.monotonic() - began < 20 * PATIENCE


def ending_seconds(name: str) -> float:
    """How long a pod of that name takes to end where its grace period allows it; as ending.yaml draws it."""
    drawn = ENDING_SEED
    for letter in name:
        drawn = (drawn + ord(letter)) * 1103 % 2801
    return (drawn + 200) / 1000


def test_pods_take_a_time_of_their_own_to_end_and_never_longer_than_their_grace_period(own: DevCluster) -> None:
    add_node(own, "ending-node")
    patient = [f"ending-{number}" for number in (2, 5, 7)]
    assert [ending_seconds(name) for name in patient] == [2.755, 0.462, 2.668]
    assert ending_seconds("ending-25") > 2.5
    for name, grace in {**dict.fromkeys(patient, 30), "ending-25": 1}.items():
        run_pod(own, name, scheduler="default-scheduler", grace=grace)
    gone: dict[str, float] = {}
    with contextlib.closing(
        connect(str(own.kubeconfig))
    ) as connection:  # a kubectl takes a second of a crowded machine
        client = Client(connection, CLOCK)
        began = CLOCK.monotonic()
        own.kubectl("delete", "pod", *patient, "ending-25", "--wait=false")

        def all_gone() -> bool:
            left = {one.name for one in client.list(PODS, "default")}
            for name in {*patient, "ending-25"} - gone.keys() - left:
                gone[name] = CLOCK.monotonic() - began
            return len(gone) == 4

        eventually(all_gone, "all have ended", 30)
    assert all(gone[name] >= ending_seconds(name) for name in patient), gone
    assert max(gone["ending-25"], gone["ending-5"]) < min(gone["ending-2"], gone["ending-7"])
