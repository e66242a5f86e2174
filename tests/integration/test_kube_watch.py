"""Reflectors on a real API server that is restarted, compacted, cut off and frozen."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.apis.core import ConfigMap
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection, connect
from provisioner.kube.errors import ApiError, Gone
from provisioner.kube.watch import Reflector
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.etcd import etcd_compact
from tests.support.eventually import PATIENCE, eventually
from tests.support.kube_mirror import Mirror
from tests.support.kube_proxy import TcpProxy, proxy_to

pytestmark = pytest.mark.plane

MAPS = resources.CONFIGMAPS
NAMESPACE = "kube-watch"


@pytest.fixture(scope="module")
def own_plane() -> Iterator[DevCluster]:
    """A cluster whose API server these tests may kill; the other components are not needed."""
    with DevCluster(temporary=True, extender=False) as cluster:
        for name in ("kwok", "kube-scheduler", "kube-controller-manager"):
            cluster.stop(name)
        client_of(cluster).create(
            resources.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        yield cluster


@pytest.fixture
def kube(own_plane: DevCluster) -> Iterator[Client]:
    """A client that does not go through the proxy; the namespace is empty."""
    client = client_of(own_plane)
    for item in client.list(MAPS, NAMESPACE):
        client.delete(MAPS, item.metadata.name, NAMESPACE)
    yield client
    client.connection.close()  # type: ignore[attr-defined]


@pytest.fixture
def proxy(own_plane: DevCluster) -> Iterator[TcpProxy]:
    with proxy_to(own_plane.ports["kube-apiserver"]) as proxy:
        yield proxy


@pytest.fixture
def cut_off(own_plane: DevCluster, proxy: TcpProxy, tmp_path: Path) -> Iterator[ApiConnection]:
    """A connection through the proxy."""
    connection = connect(proxy.kubeconfig(own_plane.kubeconfig, tmp_path / "kubeconfig"))
    yield connection
    connection.close()


def client_of(cluster: DevCluster) -> Client:
    return Client(connect(str(cluster.kubeconfig), qps=0), SystemClock())


def reflect(connection: ApiConnection, read_timeout: float = 90.0) -> tuple[Reflector[ConfigMap], Mirror]:
    mirror = Mirror()
    reflector = Reflector(
        connection,
        MAPS,
        changed=mirror.changed,
        listed=mirror.listed,
        namespace=NAMESPACE,
        rng=random.Random(1),
        read_timeout=read_timeout,
    )
    reflector.start()
    assert reflector.synced.wait(20 * PATIENCE), reflector
    return reflector, mirror


def make(kube: Client, name: str) -> None:
    kube.create(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, NAMESPACE)


def change(kube: Client, name: str, value: str) -> None:
    kube.patch(MAPS, name, {"data": {"value": value}}, NAMESPACE)


def versions(kube: Client) -> dict[str, str]:
    return {item.metadata.name: item.metadata.resource_version for item in kube.list(MAPS, NAMESPACE)}


def agree(kube: Client, mirror: Mirror, reflector: Reflector[ConfigMap], seconds: float = 40.0) -> None:
    """The events told, the store and the server are the same world, and no event contradicted another."""
    deadline = time.monotonic() + seconds * PATIENCE
    while (want := versions(kube)) != mirror.versions() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mirror.versions() == want, reflector
    assert {item.metadata.name: item.metadata.resource_version for item in reflector.store.list()} == want
    assert mirror.faults == []


def test_an_event_arrives_within_milliseconds(own_plane: DevCluster, kube: Client) -> None:
    connection = connect(str(own_plane.kubeconfig))
    reflector, mirror = reflect(connection)
    late = []
    for number in range(50):
        make(kube, f"m{number}")
        answered = time.monotonic()
        assert mirror.until(lambda name=f"m{number}": name in mirror.objects, 5 * PATIENCE)  # type: ignore[misc]
        late.append(mirror.heard[-1][0] - answered)
        time.sleep(0.01)
    reflector.stop()
    connection.close()
    assert sorted(late)[25] < 0.05 * PATIENCE, f"half of the events came late after the server's answer: {sorted(late)}"


def test_a_cut_connection_loses_nothing_and_lists_nothing_again(
    kube: Client, proxy: TcpProxy, cut_off: ApiConnection
) -> None:
    for name in ("kept", "changed", "deleted"):
        make(kube, name)
    reflector, mirror = reflect(cut_off)
    for round_ in range(3):
        proxy.shut()
        change(kube, "changed", f"first {round_}")
        change(kube, "changed", f"second {round_}")
        make(kube, f"new-{round_}")
        if round_ == 1:
            kube.delete(MAPS, "deleted", NAMESPACE)
            make(kube, "short-lived")
            kube.delete(MAPS, "short-lived", NAMESPACE)
        time.sleep(0.2)
        proxy.reopen()
        agree(kube, mirror, reflector)
    reflector.stop()
    kinds = [(kind, name) for _, kind, name in mirror.heard]
    assert kinds.count(("MODIFIED", "changed")) == 6, "every single change is told, also those made while we were away"
    assert ("DELETED", "short-lived") in kinds
    assert reflector.relists == 1


def test_a_frozen_connection_is_given_up_after_the_read_timeout(
    kube: Client, proxy: TcpProxy, cut_off: ApiConnection
) -> None:
    reflector, mirror = reflect(cut_off, read_timeout=3.0)
    proxy.freeze()
    make(kube, "while-frozen")
    time.sleep(10)  # 3 s of silence, then 5 s for a handshake
    assert reflector.staleness() > 9
    eventually(lambda: reflector.error is not None, "a server that takes connections and says nothing is trouble")
    proxy.cut()
    proxy.thaw()
    agree(kube, mirror, reflector)
    eventually(lambda: reflector.staleness() <= 4, lambda: reflector)
    reflector.stop()
    assert reflector.relists == 1


def test_a_kind_in_which_nothing_happens_is_not_stale(own_plane: DevCluster, kube: Client) -> None:
    connection = connect(str(own_plane.kubeconfig))
    reflector, mirror = reflect(connection, read_timeout=2.0)
    time.sleep(7)
    eventually(lambda: reflector.staleness() <= 3.5, lambda: reflector)  # if it were stale: 7, and rising
    assert reflector.error is None
    make(kube, "at-last")
    agree(kube, mirror, reflector)
    reflector.stop()
    connection.close()


def test_while_the_server_is_away_it_is_asked_at_most_once_a_second(proxy: TcpProxy, cut_off: ApiConnection) -> None:
    reflectors = [reflect(cut_off)[0] for _ in range(2)]
    time.sleep(1.5)
    proxy.shut()
    begun, before = time.monotonic(), len(proxy.accepted)
    time.sleep(10)
    seconds, asked = time.monotonic() - begun, proxy.accepted[before:]
    proxy.reopen()
    for reflector in reflectors:
        reflector.stop()
    assert 2 <= len(asked) <= 2 * (seconds + 1), f"{len(asked)} connections of two watches in {seconds:.0f} s"


def test_a_compacted_history_is_listed_again_with_the_exact_difference(
    own_plane: DevCluster, kube: Client, proxy: TcpProxy, cut_off: ApiConnection
) -> None:
    for name in ("same", "changed", "deleted", "renewed"):
        make(kube, name)
    reflector, mirror = reflect(cut_off)
    proxy.shut()
    change(kube, "changed", "x")
    kube.delete(MAPS, "deleted", NAMESPACE)
    kube.delete(MAPS, "renewed", NAMESPACE)
    make(kube, "renewed")
    make(kube, "new")
    etcd_compact(own_plane)
    own_plane.restart("kube-apiserver")  # else its memory still has the history
    with pytest.raises(Gone):
        kube.raw(
            "GET", MAPS.path(NAMESPACE), query={"limit": "1", "resourceVersion": "1", "resourceVersionMatch": "Exact"}
        )
    told = len(mirror.heard)
    proxy.reopen()
    agree(kube, mirror, reflector)
    reflector.stop()
    assert reflector.relists == 2
    assert sorted((kind, name) for _, kind, name in mirror.heard[told:]) == [
        ("ADDED", "new"),
        ("ADDED", "renewed"),
        ("DELETED", "deleted"),
        ("DELETED", "renewed"),
        ("MODIFIED", "changed"),
    ]


WATCHER = """
import json, sys
from provisioner.kube import resources
from provisioner.kube.config import connect
from provisioner.kube.watch import Reflector
from tests.support.kube_mirror import Mirror

mirror = Mirror()
reflector = Reflector(
    connect(sys.argv[1]), resources.CONFIGMAPS, changed=mirror.changed, listed=mirror.listed, namespace=sys.argv[2]
)
reflector.start()
for _ in sys.stdin:
    pss = next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:"))
    mirror.heard.clear()  # the test's own notes must not look like a leak
    print(json.dumps({
        "pss_kib": pss, "versions": mirror.versions(), "faults": mirror.faults, "requests": reflector.requests,
        "synced": reflector.synced.is_set(), "state": repr(reflector),
    }), flush=True)
"""


class Watcher:
    """A reflector in a process of its own, so that its memory is its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WATCHER, str(kubeconfig), NAMESPACE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def ask(self) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer: dict[str, object] = json.loads(self._process.stdout.readline())
        return answer

    def agree(self, kube: Client, seconds: float = 40.0) -> dict[str, object]:
        """Wait until it has what the server has; what it said then."""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            said, want = self.ask(), versions(kube)
            if said["versions"] == want:
                return said
            assert time.monotonic() < deadline, said["state"]
            time.sleep(0.1)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.timeout(900)
def test_twenty_killed_servers_lose_nothing_and_leak_nothing(own_plane: DevCluster, kube: Client) -> None:
    for number in range(300):
        make(kube, f"m{number:03}")
    watcher = Watcher(own_plane.kubeconfig)
    stopping = threading.Event()
    written: list[str] = []

    def write() -> None:
        """Change things all the time, as far as the server answers."""
        number = 0
        while not stopping.wait(0.02):
            number += 1
            name = f"m{number % 300:03}"
            try:
                change(kube, name, str(number))
                written.append(name)
            except ApiError:
                continue

    writer = threading.Thread(target=write, daemon=True)
    memory: list[int] = []
    try:
        watcher.agree(kube)
        writer.start()
        for _ in range(20):
            own_plane.signal("kube-apiserver", signal.SIGKILL)
            own_plane.start("kube-apiserver")
            time.sleep(0.5)
            said = watcher.ask()
            assert said["faults"] == []
            memory.append(int(str(said["pss_kib"])))
        stopping.set()
        writer.join(60 * PATIENCE)
        said = watcher.agree(kube)
        memory.append(int(str(said["pss_kib"])))
    finally:
        stopping.set()
        watcher.close()
    assert said["faults"] == []
    assert len(written) > 20
    assert memory[-1] <= memory[1] * 1.05, f"PSS in KiB after each restart: {memory}"
