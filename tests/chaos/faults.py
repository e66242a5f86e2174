"""The table of faults. Each begins at once, ends by itself or by its `end`, and may meet others that are under way."""

import json
import random
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis.meta import is_true
from provisioner.apis.names import DRIFTED, NODEPOOL_LABEL
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PODS
from provisioner.lab.harness.session import ALL_PROGRAMS, AWS, EXTENDER, PROVISIONER, WEBHOOK
from tests.chaos.repairs import FAULTS, NodeFault, wire_now
from tests.chaos.stage import MOST_REPLICAS, POOL, STATIC, ChaosCluster
from tests.support.apiproxy import Rule
from tests.support.ec2 import Fault as CloudFault

ABUSE: Final = "abuse"
DEPTH: Final = 1000
BROKEN_SECONDS: Final = 60.0
WATCHED: Final = ("pods", "nodes", "nodeclaims", "nodepools", "daemonsets", "persistentvolumeclaims")


@dataclass(frozen=True)
class Event:
    """One fault that has begun: what is said of it, how long it lasts, and what ends it."""

    text: str
    seconds: float
    end: Callable[[], None] = lambda: None


Maker = Callable[[ChaosCluster, random.Random], Event]


def kill(stage: ChaosCluster, chance: random.Random) -> Event:
    """kill -9 of a program."""
    name = chance.choice((PROVISIONER, PROVISIONER, WEBHOOK, EXTENDER))
    stage.kill(name)
    return Event(f"kill -9 {name}", 0.0)


def pause(stage: ChaosCluster, chance: random.Random) -> Event:
    """SIGSTOP of a program, SIGCONT later: shorter and longer than its lease."""
    name = chance.choice(ALL_PROGRAMS)
    stage.pause(name)
    return Event(f"SIGSTOP {name}", chance.choice((2.0, 6.0, 18.0)), lambda: stage.resume(name))


def apiserver(stage: ChaosCluster, chance: random.Random) -> Event:
    """kill -9 of the API server."""
    stage.cluster.signal("kube-apiserver", signal.SIGKILL)

    return Event("kill -9 kube-apiserver", chance.uniform(0.5, 4.0), stage.heal)


def watch_cut(stage: ChaosCluster, chance: random.Random) -> Event:
    """One watch of one program: cut, and for a while no new one is answered."""
    name, kind = chance.choice(ALL_PROGRAMS), chance.choice(WATCHED)
    rule = Rule(chance.choice(("hang", "cut")), "GET", rf".*/{kind}\?.*", watches=True)
    proxy = stage.proxies[name]
    proxy.add(rule)
    return Event(f"watch of {kind} {rule.kind} for {name}", chance.uniform(3.0, 25.0), lambda: proxy.remove(rule))


def api_slow(stage: ChaosCluster, chance: random.Random) -> Event:
    """Every request of one program waits."""
    name, seconds = chance.choice(ALL_PROGRAMS), chance.choice((0.3, 1.0, 3.0))
    rule = Rule("slow", seconds=seconds)
    proxy = stage.proxies[name]
    proxy.add(rule)
    return Event(f"API {seconds:g} s slow for {name}", chance.uniform(4.0, 12.0), lambda: proxy.remove(rule))


def api_errors(stage: ChaosCluster, chance: random.Random) -> Event:
    """Requests of one program are refused with 429, 500 or 503."""
    name, status = chance.choice(ALL_PROGRAMS), chance.choice((429, 500, 503))
    rule = Rule(
        "status", chance.choice((".*", "POST|PATCH|DELETE")), status=status, retry_after=1 if status == 429 else 0
    )
    proxy = stage.proxies[name]
    proxy.add(rule)
    return Event(
        f"API answers {status} to {rule.method} of {name}", chance.uniform(2.0, 8.0), lambda: proxy.remove(rule)
    )


def lost_answers(stage: ChaosCluster, chance: random.Random) -> Event:
    """Writes of the provisioner take effect, and their answers are lost."""
    what = chance.choice((".*/nodeclaims.*", ".*/nodes.*", ".*/pods/.*/eviction.*", ".*"))
    rule = Rule("after-effect", "POST|PATCH|DELETE|PUT", what, times=chance.randint(1, 8))
    proxy = stage.proxies[PROVISIONER]
    proxy.add(rule)
    return Event(f"answers to writes of {what} are lost", 10.0, lambda: proxy.remove(rule))


def clock(stage: ChaosCluster, chance: random.Random) -> Event:
    """The wall clock of all programs jumps, and jumps back."""
    seconds = chance.choice((-3600.0, -90.0, 90.0, 3600.0))
    stage.shift_clock(seconds)
    return Event(f"clock {seconds:+g} s", chance.uniform(3.0, 15.0), lambda: stage.shift_clock(0.0))


def slow_clients(stage: ChaosCluster, chance: random.Random) -> Event:
    """Two hundred connections to a port of ours that say nothing, or a byte now and then."""
    name = chance.choice(("webhook", "provisioner-health", "provisioner-metrics", "provisioner-reports", "extender"))
    port = stage.cluster.ports[name]
    ends: list[socket.socket] = []
    for _ in range(200):
        with suppress(OSError):
            end = socket.create_connection(("127.0.0.1", port), timeout=1)
            end.settimeout(0.2)
            ends.append(end)
            with suppress(OSError):
                end.send(chance.choice((b"", b"G", b"\x16\x03\x01", b"POST /reports HTTP/1.1\r\n")))

    def close() -> None:
        for end in ends:
            end.close()

    return Event(f"{len(ends)} silent connections to {name}", chance.uniform(3.0, 12.0), close)


def nested_pod(stage: ChaosCluster, chance: random.Random) -> Event:
    """A pod whose managedFields are nested too deeply for most decoders."""
    name = f"nested-{chance.getrandbits(32):08x}"
    manager = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}
    deep = '{"f:x":' * DEPTH + "{}" + "}" * DEPTH  # as text: this program's own encoder has a limit, too
    return _pod(stage, name, metadata={"managedFields": [manager]}, fill=deep)


def endless_pod(stage: ChaosCluster, chance: random.Random) -> Event:
    """A bound-to-be pod with a grace period of centuries."""
    name = f"endless-{chance.getrandbits(32):08x}"
    return _pod(stage, name, spec={"terminationGracePeriodSeconds": 2**60})


def false_daemon(stage: ChaosCluster, chance: random.Random) -> Event:
    """A pod that says it belongs to a DaemonSet."""
    name = f"daemon-{chance.getrandbits(32):08x}"
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-agent", "uid": "none", "controller": True}
    return _pod(stage, name, metadata={"ownerReferences": [owner]})


def lying_kubelet(stage: ChaosCluster, chance: random.Random) -> Event:
    """A Node says that pods were planned for it."""
    try:
        nodes = stage.client.list(NODES)
        if nodes:
            node = chance.choice(sorted(nodes, key=lambda one: one.metadata.name))
            plan = '{"v":1,"pods":[{"owner":"x","class":"y","count":50,"uids":["1","2","3"]}]}'
            stage.client.patch(NODES, node.metadata.name, {"metadata": {"annotations": {"dovetail.dev/plan": plan}}})
    except (ApiError, OSError):
        return Event("a Node with a false plan (refused)", 0.0)
    return Event("a Node with a false plan", 0.0)


def drift(stage: ChaosCluster, chance: random.Random) -> Event:
    """Every node of the general and of the static NodePool is no longer what its template says."""
    change = {"chaos.example/revision": f"r{chance.getrandbits(32):08x}"}
    try:
        for pool in (POOL, STATIC):
            stage.client.patch(NODEPOOLS, pool, {"spec": {"template": {"metadata": {"labels": change}}}})
    except (ApiError, OSError):
        return Event("another template for two NodePools (refused)", 0.0)
    return Event("another template for two NodePools: their nodes have drifted", 0.0)


def resize(stage: ChaosCluster, chance: random.Random) -> Event:
    """The static NodePool gets another number of replicas."""
    replicas = chance.randint(1, MOST_REPLICAS)
    try:
        stage.client.patch(NODEPOOLS, STATIC, {"spec": {"replicas": replicas}})
    except (ApiError, OSError):
        return Event(f"{replicas} replicas of the static NodePool (refused)", 0.0)
    return Event(f"{replicas} replicas of the static NodePool", 0.0)


def broken_node(stage: ChaosCluster, chance: random.Random) -> Event:
    """A Node of the general NodePool is not Ready for longer than the repair timeout; one that has not drifted, for that would end it first."""
    try:
        nodes = nodes_to_break(stage)
        if not nodes:
            return Event("no Node to break", 0.0)
        name = chance.choice(nodes)
        stage.broken.add(name)
        _keep_ready(stage, name, ready=False)
    except (ApiError, OSError):
        return Event("a Node is not Ready (refused)", 0.0)

    def mend() -> None:
        with suppress(ApiError, OSError):  # as a rule it is gone by then
            _keep_ready(stage, name, ready=True)

    return Event(f"{name} is not Ready", BROKEN_SECONDS, mend)


def ill_node(stage: ChaosCluster, chance: random.Random) -> Event:
    """A condition of a Node asks for a reboot or for a replacement, for a while that may be shorter than either takes, or longer than two reboots."""
    fault = chance.choice(FAULTS[stage.cloud])
    return _ill(stage, chance, fault, 1, chance.choice((20.0, 45.0, 90.0)))


def ill_nodes(stage: ChaosCluster, chance: random.Random) -> Event:
    """So do conditions of a third of the Nodes, which the breaker must not take for broken ones."""
    try:
        count = len(nodes_to_break(stage)) // 3
    except (ApiError, OSError):
        count = 1
    return _ill(stage, chance, FAULTS[stage.cloud][0], count, 45.0)


def _ill(stage: ChaosCluster, chance: random.Random, fault: NodeFault, count: int, seconds: float) -> Event:
    text = f"{fault.kind} {fault.reason}"
    try:
        nodes = nodes_to_break(stage)
        some = chance.sample(nodes, min(count, len(nodes)))
        for name in some:
            stage.broken.add(name)
            set_condition(stage, name, fault)
    except (ApiError, OSError):
        return Event(f"{text} (refused)", 0.0)

    def mend() -> None:
        for name in some:
            with suppress(ApiError, OSError):  # it may be gone by then
                set_condition(stage, name, fault, well=True)

    return Event(f"{text} for {seconds:g} s on {', '.join(some) or 'no Node'}", seconds, mend)


def nodes_to_break(stage: ChaosCluster) -> list[str]:
    """Names of Nodes of the general NodePool; of those that have not drifted, for that would end them first."""
    drifted = {one.status.node_name for one in stage.client.list(NODECLAIMS) if is_true(one.status.conditions, DRIFTED)}
    return sorted(
        one.metadata.name
        for one in stage.client.list(NODES)
        if one.metadata.labels.get(NODEPOOL_LABEL) == POOL and one.metadata.name not in drifted
    )


def set_condition(stage: ChaosCluster, name: str, fault: NodeFault, *, well: bool = False) -> None:
    """What a node monitoring agent says of a Node from now on."""
    told = {"type": fault.kind, "status": fault.well if well else fault.status, "reason": fault.reason, "message": ""}
    now = wire_now()
    body = {"status": {"conditions": [{**told, "lastHeartbeatTime": now, "lastTransitionTime": now}]}}
    stage.client.patch(NODES, name, body, kind="strategic", subresource="status")


def _keep_ready(stage: ChaosCluster, name: str, *, ready: bool) -> None:
    label = {"kwok.dovetail.dev/not-ready": None if ready else "true"}
    stage.client.patch(NODES, name, {"metadata": {"labels": label}})


def _pod(
    stage: ChaosCluster,
    name: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    fill: str = "",
) -> Event:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": ABUSE, **(metadata or {})},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "50m"}}}],
            **(spec or {}),
        },
    }
    path = PODS.path(ABUSE)
    try:
        stage.client.raw("POST", path, json.dumps(body).replace('"DEEP"', fill).encode())
    except (ApiError, OSError) as error:
        return Event(f"pod {name} (refused: {str(error)[:60]})", 0.0)

    def remove() -> None:
        with suppress(ApiError, OSError):
            stage.client.raw("DELETE", PODS.path(ABUSE, name), {"gracePeriodSeconds": 0})

    return Event(f"pod {name}", 15.0, remove)


def cloud(stage: ChaosCluster, chance: random.Random) -> Event:
    """A script of faults of EC2, mixed within one call's retries."""
    if stage.ec2 is None:
        return kill(stage, chance)
    actions = (
        *("CreateFleet", "DescribeInstances", "TerminateInstances", "RebootInstances"),
        *("CreateTags", "CreateLaunchTemplate", "*"),
    )
    kinds = ("throttled", "500", "timeout-after-effect", "hang", "stale")
    faults = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.choice(kinds)
        action = "DescribeInstances" if kind == "stale" else chance.choice(actions)
        faults.append(CloudFault(action, kind, times=chance.randint(1, 4), seconds=2.0 if kind == "hang" else 0.0))
    if chance.random() < 0.3:
        faults.append(CloudFault("", "shortage", times=20, match={"capacity-type": "spot"}))
    stage.script("calls", faults)
    text = ", ".join(f"{fault.kind} {fault.action} x{fault.times}" for fault in faults)
    return Event(f"EC2: {text}", chance.uniform(5.0, 15.0), lambda: stage.script("calls"))


def shortage(stage: ChaosCluster, chance: random.Random) -> Event:
    """A zone, or what was launched last of instance types, has one or no instance more of each offering, for minutes."""
    if stage.ec2 is None:
        return kill(stage, chance)
    alive = sorted(stage.ec2.alive(), key=str)
    kinds = sorted({str(one["type"]) for one in alive})
    zones = sorted({str(one["zone"]) for one in alive})
    match = {"zone": chance.choice(zones)} if zones and chance.random() < 0.5 else {"instance-type": kinds}
    left, seconds = chance.choice((0, 1)), chance.uniform(60.0, 180.0)
    stage.script("shortage", [CloudFault("", "shortage", match=match, available=left)])
    text = ", ".join(str(one) for one in match.values())
    return Event(
        f"EC2 has {left} more of each of {text} for {seconds:.0f} s", seconds, lambda: stage.script("shortage")
    )


def interruption(stage: ChaosCluster, chance: random.Random) -> Event:
    """EC2 takes a spot instance back."""
    if stage.ec2 is None:
        return kill(stage, chance)
    running = [one for one in stage.ec2.alive() if one["capacity_type"] == "spot"]
    if not running:
        return Event("no spot instance to interrupt", 0.0)
    one = chance.choice(sorted(running, key=str))
    identity = str(one["id"])
    stage.ec2.interrupt(identity)
    return Event(f"spot interruption of {identity}", 0.0)


TABLE: Final[tuple[tuple[int, Maker], ...]] = (
    (4, kill),
    (3, pause),
    (2, apiserver),
    (3, watch_cut),
    (2, api_slow),
    (2, api_errors),
    (3, lost_answers),
    (1, clock),
    (1, slow_clients),
    (1, nested_pod),
    (1, endless_pod),
    (1, false_daemon),
    (1, lying_kubelet),
    (3, drift),
    (1, resize),
    (3, broken_node),
    (4, ill_node),
    (1, ill_nodes),
)
CLOUD_TABLE: Final[tuple[tuple[int, Maker], ...]] = (*TABLE, (5, cloud), (2, interruption), (2, shortage))
"""(how often in a round, fault); without a cloud, and with EC2."""
_HARSH: Final = (kill, pause, apiserver, clock)


def mild(cloud: str) -> tuple[tuple[int, Maker], ...]:
    """Faults that no program ends of, so that what each keeps can be compared over a long time."""
    return tuple(one for one in tables(cloud) if one[1] not in _HARSH)


def tables(cloud: str) -> tuple[tuple[int, Maker], ...]:
    """Every fault of a cloud."""
    return CLOUD_TABLE if cloud == AWS else TABLE


class Director:
    """Begins one fault every few seconds, and ends each when its time is over; in the calling thread.

    Args:
        pause: least and most seconds between two beginnings.
        say: told of every beginning.
        table: of the faults; () for all of the cloud.
    """

    def __init__(
        self,
        stage: ChaosCluster,
        chance: random.Random,
        pause: tuple[float, float],
        say: Callable[[str], None],
        table: tuple[tuple[int, Maker], ...] = (),
    ) -> None:
        self._stage, self._chance, self._pause, self._say = stage, chance, pause, say
        self._table = table or tables(stage.cloud)
        self.begun: list[str] = []

    def run(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Go on for so long, then end whatever is under way; `check` is called all the time and may raise."""
        clock = self._stage.session.clock
        until = clock.monotonic() + seconds
        makers = self._makers()
        under_way: list[tuple[float, Event]] = []
        try:
            for wait in self._waits():
                begin = clock.monotonic() + wait
                while clock.monotonic() < begin:
                    check()
                    clock.sleep(0.1)
                    now = clock.monotonic()
                    for over in [one for one in under_way if one[0] <= now]:
                        under_way.remove(over)
                        over[1].end()
                if clock.monotonic() >= until:
                    return
                event = next(makers)(self._stage, self._chance)
                self.begun.append(event.text)
                self._say(event.text)
                under_way.append((clock.monotonic() + event.seconds, event))
        finally:
            for _, event in under_way:
                event.end()

    def _makers(self) -> Iterator[Maker]:
        """Round after round, each in an order of its own, so that a long run leaves out none."""
        while True:
            makers = [maker for times, maker in self._table for _ in range(times)]
            self._chance.shuffle(makers)
            yield from makers

    def _waits(self) -> Iterator[float]:
        while True:
            yield self._chance.uniform(*self._pause)
