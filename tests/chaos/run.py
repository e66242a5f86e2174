"""One run: set the scene, break things for a while, judge."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from provisioner.apis.core import Node
from provisioner.disruption.proposal import DISRUPTING_NODE
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import NAMESPACES, NODES
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.harness.session import PROVISIONER
from tests.chaos.churn import Churn
from tests.chaos.faults import ABUSE, Director, nodes_to_break, set_condition
from tests.chaos.gangs import Gangs
from tests.chaos.repairs import FAULTS
from tests.chaos.stage import EXPIRING, PROBES, STATIC, ChaosCluster, stage
from tests.chaos.tenant import Tenant, judged, memory, watched
from tests.chaos.verdict import Witness, ended_by_request, judge, running, wait_until

START_SECONDS = 240.0
SETTLE_SECONDS = 30.0
EVERY_METHOD_SECONDS = 600.0
"""In a run of so long every method of disruption takes nodes."""
STARTED_A_REBOOT = "Started a reboot"
STATIC_DRIFT = "drift of the static NodePool"
REPAIRED_SECONDS = 180.0
"""Within which a broken node is away or as good as new, once nothing else breaks."""
REBOOTED = "rebooted"
METHODS = (REBOOTED, "empty", "drifted", STATIC_DRIFT, "underutilized", "expired", "unhealthy")


@dataclass(frozen=True)
class ChaosResult:
    """What came of a run.

    Attributes:
        faults: every fault that began, in order.
        wrong: every broken promise; empty when all is well.
    """

    seed: int
    cloud: str
    seconds: float
    faults: tuple[str, ...]
    changes: int
    restarts: dict[str, int]
    disrupted: dict[str, int]
    wrong: tuple[str, ...]
    logs: dict[str, str]

    def __str__(self) -> str:
        verdict = "ok" if not self.wrong else f"{len(self.wrong)} broken promises"
        return (
            f"chaos {verdict}: {self.cloud}, seed {self.seed}, {self.seconds:g} s, {len(self.faults)} faults, "
            f"{self.changes} changes of replicas, restarts {self.restarts}, disrupted {self.disrupted}"
        )


def run(
    cloud: str,
    seed: int,
    seconds: float,
    *,
    pause: tuple[float, float] = (5.0, 20.0),
    share: float = 1.0,
    tenant: float = 0.0,
    say: Callable[[str], None] = lambda _: None,
    progress: StepProgress = SILENT,
) -> ChaosResult:
    """Run it.

    Args:
        cloud: kwok or aws.
        seed: of all chances.
        seconds: how long faults go on.
        pause: least and most seconds between two faults.
        share: of the churn's 300 pods.
        tenant: seconds without faults before and after a tenant begins to post what has brought the programs down before; 0 for none.
        say: told what begins.
    """
    chance = random.Random(seed)
    with stage(cloud, random.Random(seed + 1), progress, every_method=True, ending_seed=seed) as place:
        witness = Witness(place)
        witness.start()
        for name in (ABUSE, PROBES):
            place.client.raw(
                "POST", NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        attack = _Attack(place, witness, tenant, say) if tenant else None
        churn = Churn(place.client, random.Random(seed + 2), share, pools={"small": EXPIRING})
        churn.start()
        settled(place, churn)
        gangs = Gangs(place.client, random.Random(seed + 3), place.session.clock)
        gangs.start()
        if attack is not None:
            attack.settle()
        director = Director(place, chance, pause, say)
        director.run(seconds)
        say("faults are over")
        place.heal()
        wrong = attack.end(seconds) if attack is not None else []
        wrong += forgotten(place, chance, say)
        place.calm()
        churn.stop()
        churn.settle()
        gangs.stop()
        wrong += gangs.judge(partial(wait_until, place))
        say(str(gangs))
        wrong += judge(place, churn, witness, _interrupted(place))
        witness.stop()
        disrupted = disruptions(place)
        if seconds >= EVERY_METHOD_SECONDS:
            wrong += untried(disrupted)
        return ChaosResult(
            seed,
            cloud,
            seconds,
            tuple(director.begun),
            churn.changes,
            dict(place.restarts),
            dict(disrupted),
            tuple(wrong),
            {name: place.logs(name)[-200_000:] for name in place.proxies} if wrong else {},
        )


class _Attack:
    """A tenant who begins while nothing else happens: pods that come by chance keep a batch open, and nodes that expire make large ones.

    Attributes:
        early: memory of the programs once the churn runs beside the tenant; `settle` looks at it.
    """

    def __init__(self, place: ChaosCluster, witness: Witness, seconds: float, say: Callable[[str], None]) -> None:
        self._place, self._say = place, say
        self._without = watched(place, witness, time.time, seconds)
        self._tenant = Tenant(place.client)
        self._tenant.start()
        place.session.clock.sleep(SETTLE_SECONDS)  # an API server has much to do with 65 objects of 1 MB at once
        self._beside = watched(place, witness, time.time, seconds)
        say(f"the tenant posted {self._tenant.posted} pods; without it {self._without}, beside it {self._beside}")
        self.early: dict[str, float] = {}

    def settle(self) -> None:
        """Call when the churn runs."""
        self.early = self._memory()

    def end(self, faults: float) -> list[str]:
        """After so many seconds of faults, the tenant goes; what it has cost the others."""
        late = self._memory()
        self._tenant.stop()
        self._say(
            f"{self.early}, after {faults:g} s of faults {late}; the tenant changed pods {self._tenant.changed} times"
        )
        return [
            *(f"the tenant's pod was refused: {one}" for one in self._tenant.refused[:3]),
            *judged(self._without, self._beside, self.early, late),
        ]

    def _memory(self) -> dict[str, float]:
        self._place.session.clock.sleep(SETTLE_SECONDS)
        return memory(self._place)


def forgotten(place: ChaosCluster, chance: random.Random, say: Callable[[str], None]) -> list[str]:
    """One broken node after the other, once the faults are over: of each kind one, which must be replaced, or rebooted."""
    wrong: list[str] = []
    for fault in FAULTS[place.cloud]:
        nodes = nodes_to_break(place)
        if not nodes:
            continue
        name = chance.choice(nodes)
        place.broken.add(name)
        before = place.client.get(NODES, name)
        set_condition(place, name, fault)

        def done(name: str = name, before: Node = before) -> bool:
            try:
                now = place.client.get(NODES, name)
            except NotFound:
                return True
            again = now.status.node_info.boot_id != before.status.node_info.boot_id
            return now.metadata.uid != before.metadata.uid or again

        seconds = wait_until(place, done, REPAIRED_SECONDS)
        say(f"{name} with {fault.kind} {fault.reason}: {'forgotten' if seconds is None else f'{seconds:.0f} s'}")
        if seconds is None:
            wrong.append(f"{name} with {fault.kind} {fault.reason} was forgotten for {REPAIRED_SECONDS:g} s")
        with suppress(NotFound):
            set_condition(place, name, fault, well=True)
    return wrong


def settled(place: ChaosCluster, churn: Churn) -> None:
    """Most of the first pods run: breaking what never worked proves nothing."""
    if wait_until(place, lambda: running(place).total() >= 0.8 * sum(churn.wanted.values()), START_SECONDS) is None:
        there, wanted = running(place), dict(churn.wanted)
        by_app = ", ".join(f"{there[app]} of {count} of {app}" for app, count in wanted.items())
        raise AssertionError(
            f"before any fault only {there.total()} of {sum(wanted.values())} pods are running after {START_SECONDS:.0f} s: {by_app}"
        )


def _interrupted(place: ChaosCluster) -> frozenset[str]:
    """Nodes whose instances EC2 takes back, though we may be faster, and those that were broken."""
    found = set(place.broken)
    for one in place.ec2.instances() if place.ec2 is not None else ():
        if one["interrupted"] or (one["terminated_by"] and not ended_by_request(one)):
            found.add(str(one["node"]))
    return frozenset(found)


def untried(disrupted: Mapping[str, int]) -> list[str]:
    """The methods that have taken no node."""
    return [
        f"no node was taken for {reason}: the run proves nothing about it"
        for reason in METHODS
        if not disrupted.get(reason)
    ]


def disruptions(place: ChaosCluster) -> Counter[str]:
    """How many nodes each method has taken, from the provisioner's log."""
    found: Counter[str] = Counter()
    for line in place.logs(PROVISIONER).splitlines():
        with suppress(ValueError):
            said = json.loads(line)
            found[REBOOTED] += said.get("message") == STARTED_A_REBOOT
            if said.get("message") == DISRUPTING_NODE:
                static = said.get("nodeclaim", "").startswith(f"{STATIC}-")
                reason = said.get("reason", "")
                found[STATIC_DRIFT if static and reason == "drifted" else reason] += 1
    return found
