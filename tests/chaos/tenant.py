"""A tenant who posts, all along, what has brought the programs down before; and what it costs the others."""

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import NAMESPACES, PODS
from provisioner.lab.harness.session import EXTENDER, PROVISIONER
from tests.chaos.stage import PROBES, ChaosCluster
from tests.chaos.verdict import Life, Lives

TENANT: Final = "tenant"
PERIOD_SECONDS: Final = 120.0
"""Without faults: so long without the tenant, and then so long with it."""
APART_SECONDS: Final = 5.0
"""Between two probes: each is a batch of its own, so that all of them wait for the same."""
LATER: Final = 1.2
"""Times the wait of a run without the tenant."""
TICKS_SECONDS: Final = 0.5
"""Waits are no more exact than the watches that see them."""
ENOUGH: Final = 15
LATE_SECONDS: Final = 30.0
"""After the last probe: one that has no node by then has waited until then."""
GROWTH: Final = 1.05
_PAUSE_SECONDS: Final = 1.0
_MERGE: Final = "application/merge-patch+json"
_BUSY: Final = (409, 429)
"""The pod is there still, or the API server has no time."""
_PROGRAMS: Final = (PROVISIONER, EXTENDER)
Document = dict[str, Any]


def _pod(name: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Document:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TENANT, **metadata},
        "spec": {"containers": [container], **spec},
    }


def sidecars() -> Document:
    """2,000 sidecars with a resource of its own each; it is gated, so it costs the tenant nothing."""
    each = [
        {
            "name": f"s{number}",
            "image": "x",
            "restartPolicy": "Always",
            "resources": {
                "requests": {f"example.com/r{number}": "1"},
                "limits": {f"example.com/r{number}": "1"},
            },
        }
        for number in range(2000)
    ]
    return _pod("sidecars", {}, {"initContainers": each, "schedulingGates": [{"name": "example.com/wait"}]})


def labels(number: int) -> Document:
    """10,000 labels; of seven times as many, which an object may have, the API server takes half a minute for each."""
    many = {f"l{number}-{one}": "x" for one in range(10_000)}
    return _pod(f"labels-{number}", {"labels": many}, {"schedulingGates": [{"name": "example.com/wait"}]})


def spreads(number: int) -> Document:
    """200 spreads that may be given up."""
    selector = {"matchLabels": {"app": "spreads"}}
    each = [
        {
            "maxSkew": 1,
            "topologyKey": f"example.com/k{one}",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        }
        for one in range(200)
    ]
    return _pod(f"spreads-{number}", {"labels": {"app": "spreads"}}, {"topologySpreadConstraints": each})


def ports(number: int, **spec: Any) -> Document:
    """2,000 ports of the node."""
    each = [{"containerPort": 10_000 + one, "hostPort": 10_000 + one, "protocol": "TCP"} for one in range(2000)]
    return _pod(f"ports-{number}", {}, {"containers": [{"name": "main", "image": "x", "ports": each}], **spec})


def ports_nowhere(number: int) -> Document:
    """The same, of no node: one that runs keeps its node from consolidation, since too much of it is not read, and kube-scheduler takes a second for each."""
    return ports(number, nodeSelector={"example.com/nowhere": ""})


class Tenant:
    """Posts all of it and changes something of it every second, in a thread of its own, until it is stopped."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._many: tuple[Callable[[int], Document], ...] = (
            *[labels] * 40,
            *[spreads] * 5,
            *[ports] * 5,
            *[ports_nowhere] * 15,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tenant", daemon=True)
        self.refused: list[str] = []
        self.posted = self.changed = 0

    def start(self) -> None:
        """Post everything, and begin."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
        self._client.raw("POST", NAMESPACES.path(), body)
        self._post(sidecars())
        for number, made in enumerate(self._many):
            self._post(made(number))
        self._thread.start()

    def stop(self) -> None:
        """Change nothing more, and take everything away."""
        self._stop.set()
        self._thread.join(60)
        with suppress(ApiError, OSError):
            self._client.raw("DELETE", PODS.path(TENANT), {"gracePeriodSeconds": 0})

    def _run(self) -> None:
        turn = 0
        while not self._stop.wait(_PAUSE_SECONDS):
            turn += 1
            number = turn % len(self._many)
            with suppress(ApiError, OSError):  # the API server is away
                self._label("sidecars", turn)
                made = self._many[number]
                if made is labels:
                    self._label(f"labels-{number}", turn)
                else:
                    name = made(number)["metadata"]["name"]
                    self._client.raw("DELETE", PODS.path(TENANT, name), {"gracePeriodSeconds": 0})
                    self._post(made(number))

    def _label(self, name: str, turn: int) -> None:
        body = {"metadata": {"labels": {"turn": str(turn)}}}
        self._client.raw("PATCH", PODS.path(TENANT, name), body, content_type=_MERGE)
        self.changed += 1

    def _post(self, document: Document) -> None:
        try:
            self._client.raw("POST", PODS.path(TENANT), document)
            self.posted += 1
        except ApiError as error:
            if error.status in _BUSY or error.status >= 500 or not error.status:
                return
            self.refused.append(f"{document['metadata']['name']}: {str(error)[:200]}")


@dataclass(frozen=True)
class Measured:
    """What the others saw of a while without faults: waits of probes that needed a node, from when a pod was seen.

    Attributes:
        p99_seconds: until there was a NodeClaim for it: what provisioning takes.
        open_p99_seconds: until its node let pods in, and until it was bound: beside objects of 1 MB, the API server and kube-scheduler are slow, too.
    """

    pods: int
    p99_seconds: float
    open_p99_seconds: float
    bound_p99_seconds: float


def waits(pods: Iterable[Life], nodes: Iterable[Life], since: float, until: float) -> Measured:
    """How long the probes that came between two moments waited; one that found a node of another needed none."""
    opened = {one.name: one.open_at for one in nodes}
    came = [
        one
        for one in pods
        if one.namespace == PROBES and since <= one.seen_at < until and (one.planned_at or not one.bound_at)
    ]
    return Measured(
        len(came),
        _p99((one.planned_at or until) - one.seen_at for one in came),
        _p99((opened.get(one.node) or until) - one.seen_at for one in came),
        _p99((one.bound_at or until) - one.seen_at for one in came),
    )


def _p99(seconds: Iterable[float]) -> float:
    found = sorted(seconds)
    return found[math.ceil(0.99 * len(found)) - 1] if found else math.nan


def probe(name: str) -> Document:
    """A pod that shares its node with no other probe."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": PROBES}}}
    made = _pod(
        name,
        {"labels": {"app": PROBES}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        {
            "nodeSelector": {"karpenter.sh/nodepool": PROBES},
            "tolerations": [{"key": PROBES, "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        },
    )
    made["metadata"]["namespace"] = PROBES
    return made


def watched(stage: ChaosCluster, witness: Lives, now: Callable[[], float], seconds: float) -> Measured:
    """Post probes for so long, without faults, and tell how long they waited; they are gone afterwards."""
    since, clock, path = now(), stage.session.clock, PODS.path(PROBES)
    for number in range(math.ceil(seconds / APART_SECONDS)):
        stage.client.raw("POST", path, probe(f"probe-{since:.0f}-{number}"))
        clock.sleep(APART_SECONDS)

    def look() -> tuple[Measured, bool]:
        with witness.lock:
            pods = [one for one in witness.pods.values() if one.namespace == PROBES and one.seen_at >= since]
            return waits(pods, tuple(witness.nodes.values()), since, now()), all(one.bound_at for one in pods)

    last = now()
    measured, bound = look()
    while not bound and now() < last + LATE_SECONDS:
        clock.sleep(0.5)
        measured, bound = look()
    stage.client.raw("DELETE", path, {"gracePeriodSeconds": 0})
    return measured


def memory(stage: ChaosCluster) -> dict[str, float]:
    """PSS of the programs that keep pods, in bytes."""
    return {name: stage.programs.pss_bytes(name) for name in _PROGRAMS}


def judged(without: Measured, beside: Measured, early: Mapping[str, float], late: Mapping[str, float]) -> list[str]:
    """What the tenant has cost the others more than it may."""
    wrong = []
    if min(without.pods, beside.pods) < ENOUGH:
        wrong.append(f"too few pods needed a node while there were no faults: {without}, {beside}")
    elif not beside.p99_seconds <= LATER * without.p99_seconds + TICKS_SECONDS:
        wrong.append(
            f"beside the tenant, pods waited {beside.p99_seconds:.1f} s for a NodeClaim (p99 of {beside.pods}) instead of "
            f"{without.p99_seconds:.1f} s (of {without.pods})"
        )
    wrong += [
        f"{name} takes {late[name] / 1e6:.0f} MB at the end, {early[name] / 1e6:.0f} MB in minute two"
        for name in _PROGRAMS
        if not late[name] <= GROWTH * early[name]
    ]
    return wrong
