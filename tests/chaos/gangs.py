"""Gangs of annotations that come and go under the faults, and who counts, each second, the instances that are paid for a part of one."""

import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.gangs import group_of, minimum_of, told
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.pods import Pod, is_daemon
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import DEPLOYMENTS, NODECLAIMS, PODS
from provisioner.lab.harness import applying
from provisioner.lab.harness.workload import Document, deployment
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS
from provisioner.state.groups import REST_SECONDS
from provisioner.support.clock import Clock

NAMESPACE: Final = "gangs"
GRACE_SECONDS: Final = 30.0
PART_SECONDS: Final = HOLD_SECONDS + GRACE_SECONDS
"""So long after the last fault a part of a gang may still be there."""
RUN_SECONDS: Final = REST_SECONDS[1] + 90.0
"""So long after that every gang runs: it may have been given up several times."""
TURN_SECONDS: Final = (5.0, 20.0)
SAMPLE_SECONDS: Final = 1.0


class GangKind(NamedTuple):
    """A gang, again and again: its pods go, and others come, all at once."""

    name: str
    members: int
    minimum: int
    cpu: str
    memory: str


KINDS: Final = (
    GangKind("pair", 2, 2, "2", "2Gi"),
    GangKind("four", 4, 4, "3", "3Gi"),
    GangKind("eight", 8, 8, "500m", "512Mi"),  # on nodes of others, too
    GangKind("five", 5, 3, "1500m", "1Gi"),  # it can do without two of them
)


def documents(kinds: Iterable[GangKind]) -> list[Document]:
    """Deployments without pods."""
    made: list[Document] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    for kind in kinds:
        document = deployment(kind.name, NAMESPACE, 0, {"cpu": kind.cpu, "memory": kind.memory})
        notes = {names.GANG: kind.name, names.GANG_MINIMUM: str(kind.minimum)}
        document["spec"]["template"]["metadata"]["annotations"] = notes
        made.append(document)
    return made


def parts(
    claims: Iterable[NodeClaim], members: Iterable[Pod], on: Callable[[str], Collection[Pod]]
) -> dict[str, tuple[str, ...]]:
    """By NodeClaim with an instance, the gangs that it was launched for, where all of these are complete and below their minimum and it has no other pod.

    Args:
        members: the pods of all gangs.
        on: the pods of a Node; asked for few of them.
    """
    gangs: dict[str, list[Pod]] = {}
    for pod in members:
        if pod.deleted is None and (key := group_of(pod)):
            gangs.setdefault(key, []).append(pod)
    found = {}
    for claim in claims:
        if claim.metadata.deletion_timestamp is not None or not claim.status.provider_id:
            continue
        keys = tuple(dict.fromkeys(one.group for one in sets_of(claim.metadata.annotations)))
        if not keys or not any(key in gangs for key in keys) or not all(_is_below(key, gangs) for key in keys):
            continue
        node = claim.status.node_name
        others = [one for one in (on(node) if node else ()) if not is_daemon(one) and group_of(one) not in keys]
        if not others:
            found[claim.metadata.name] = keys
    return found


def _is_below(key: str, gangs: Mapping[str, list[Pod]]) -> bool:
    """Whether fewer of a gang run than it needs although they are there; of one without pods, that nobody needs its nodes."""
    mine, least = gangs.get(key, []), minimum_of(key) or 0
    return not mine or sum(bool(one.node_name) for one in mine) < least <= len(mine)


class Gangs:
    """In two threads of its own, until it is stopped: one that has gangs come and go, and one that looks each second.

    Attributes:
        wanted: pods of each gang.
        longest: seconds for which an instance was there for a part of a gang, at most.
        came: how many times a gang came.
    """

    def __init__(self, client: Client, chance: random.Random, clock: Clock) -> None:
        self._client, self._chance, self._clock = client, chance, clock
        self.wanted = dict.fromkeys([kind.name for kind in KINDS], 0)
        self.longest, self.came, self.samples = 0.0, 0, 0
        self._since: dict[str, float] = {}
        self._stop, self._end = threading.Event(), threading.Event()
        self._turns = threading.Thread(target=self._turn, name="gangs", daemon=True)
        self._looks = threading.Thread(target=self._look, name="half gangs", daemon=True)

    def start(self) -> None:
        """Apply everything and begin."""
        applying.apply(self._client, documents(KINDS))
        self._turns.start()
        self._looks.start()

    def stop(self) -> None:
        """No gang comes or goes any more; all are wanted."""
        self._stop.set()
        self._turns.join(60)
        for kind in KINDS:
            self._scale(kind, kind.members)

    def judge(self, wait: Callable[[Callable[[], bool], float], float | None]) -> list[str]:
        """What is wrong with gangs once the faults are over; `wait` waits so long at most until something is true, and tells how long, or None."""
        wrong = []
        if wait(lambda: not self._parts(), PART_SECONDS) is None:
            now = self._clock.monotonic()
            wrong = [
                f"NodeClaim {name} is for a part of {', '.join(map(told, keys))}, and has no other pod, for {now - self._since.get(name, now):.0f} s"
                for name, keys in self._parts().items()
            ]
        if wait(lambda: self._running() == self.wanted, RUN_SECONDS) is None:
            wrong.append(f"of gangs, {self._running()} pods run instead of {self.wanted}")
        self._end.set()
        self._looks.join(60)
        if not self.came or not self.samples:
            wrong.append(f"{self.came} gangs came, and were looked at {self.samples} times")
        return wrong

    def __str__(self) -> str:
        return f"{self.came} gangs came; the longest part of one was there for {self.longest:.0f} s, in {self.samples} samples"

    def _turn(self) -> None:
        while not self._stop.wait(self._chance.uniform(*TURN_SECONDS)):
            kind = self._chance.choice(KINDS)
            with suppress(ApiError, OSError):  # the API server is away
                self._scale(kind, 0 if self.wanted[kind.name] else kind.members)

    def _scale(self, kind: GangKind, replicas: int) -> None:
        self._client.patch(DEPLOYMENTS, kind.name, {"spec": {"replicas": replicas}}, NAMESPACE)
        self.came += bool(replicas and not self.wanted[kind.name])
        self.wanted[kind.name] = replicas

    def _look(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            with suppress(ApiError, OSError):
                found, now = self._parts(), self._clock.monotonic()
                self._since = {name: self._since.get(name, now) for name in found}
                self.longest = max([self.longest, *(now - since for since in self._since.values())])
                self.samples += 1

    def _parts(self) -> dict[str, tuple[str, ...]]:
        return parts(self._client.list(NODECLAIMS), self._client.list(PODS, NAMESPACE), self._on)

    def _on(self, node: str) -> list[Pod]:
        return self._client.list(PODS, field_selector=f"spec.nodeName={node}")

    def _running(self) -> dict[str, int]:
        pods = self._client.list(PODS, NAMESPACE)
        return {
            name: sum(pod.labels.get("app") == name and pod.phase == "Running" and pod.deleted is None for pod in pods)
            for name in self.wanted
        }
