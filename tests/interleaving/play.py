"""One interleaving: a small fleet is bought, changed, broken and judged, all from one seed."""

import json
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.command import CommandPhase
from provisioner.simulator.api_server import ApiServer, Wire
from tests.interleaving.edges import claim_state
from tests.interleaving.gangs import Market
from tests.interleaving.oracle import Oracle
from tests.interleaving.place import Place, Workload
from tests.interleaving.process import TAKE_SECONDS, Process
from tests.interleaving.threads import STAGE, Clock, Dead, Deadlock

MOST_SWITCHES: Final = 60_000
MOST_SECONDS: Final = 9000.0
QUIET_SECONDS: Final = 100.0
"""Longer than a node is spared after its command was called off, than a command waits and than a launch is given."""
PAUSE_SECONDS: Final = 2500.0
"""Longer than a launch is put off for pods that went elsewhere than planned, again and again."""
GANGS: Final = 0.2
"""Of the interleavings are about gangs."""
MOST_GANGS: Final = 4
MIXED_MILLIS, LARGE_MILLIS = 2500, 7000
"""A gang whose pods are as small as the first number has one that is as large as the second."""
LATE_SECONDS: Final = 12.0
"""After which a watch is late no more."""
LONG_SECONDS: Final = 400.0
"""Longer than what was launched for a gang may wait for the rest."""
RARE_WEIGHT: Final = 20
"""How much likelier a user deletes a NodeClaim that is seldom where it is than any other one."""


@dataclass(frozen=True)
class Played:
    """What came of one seed."""

    seed: int
    wrong: tuple[str, ...]
    seen: Counter[str]
    edges: Counter[tuple[str, str, str]]
    switches: int
    seconds: float


class _Heard(logging.Handler):
    """Errors that the program itself calls defects: every trace in its log."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(logging.ERROR)
        self._oracle = oracle

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None and not issubclass(record.exc_info[0], _EXPECTED):
            trace = logging.Formatter().formatException(record.exc_info)
            self._oracle.broken(f"logged: {record.getMessage()}\n{trace}")


def _expected() -> tuple[type[BaseException], ...]:
    from provisioner.kube.errors import ApiError
    from provisioner.kube.lease import LostLease

    return ApiError, LostLease, Dead


_EXPECTED: Final = _expected()


def _is_rare(claim: Wire) -> bool:
    """Whether its Node has joined and is not ready, or it holds the record of a command of several nodes that may still be called off."""
    if claim_state(claim) == "registered":
        return True
    record = json.loads(claim["metadata"].get("annotations", {}).get(names.COMMAND_ANNOTATION, "{}"))
    return len(record.get("candidates", ())) > 1 and record.get("phase") != CommandPhase.DELETING


class Play:
    """One interleaving.

    Args:
        seed: of everything.
        say: is told what happens, for whoever looks for a reason.
        thin: whether it is about nodes that can go together only.
        gangs: whether it is about gangs; some are without being asked.
    """

    def __init__(
        self, seed: int, say: Callable[[str], None] = lambda _: None, *, thin: bool = False, gangs: bool = False
    ) -> None:
        self.chance = random.Random(seed)
        self._seed, self._say = seed, say
        chance = self.chance
        STAGE.reset(
            random.Random(seed + 1),
            requests=chance.choice((0.1, 0.5, 0.9)),
            locks=chance.choice((0.0, 0.0, 0.003, 0.03)),
        )
        self.server = ApiServer(Clock())
        self.place = Place(self.server, random.Random(seed + 2))
        self.budget = chance.choice((1, 1, 3, 10))
        budgets: list[dict[str, Any]] = [{"nodes": str(self.budget)}]
        judged = [(frozenset[str](), self.budget)]
        if chance.random() < 0.3:
            reason = chance.choice((names.REASON_DRIFTED, names.REASON_UNDERUTILIZED, names.REASON_EMPTY))
            budgets = [{"nodes": "1", "reasons": [reason]}, {"nodes": "3"}]
            judged = [(frozenset({reason}), 1), (frozenset(), 3)]
        self.oracle = Oracle(self.server, self.place, judged)
        self.oracle.say = say
        self._gangs = gangs or random.Random(seed + 3).random() < GANGS
        self.market = Market(self.server) if self._gangs else None
        self.place.failed = self._disturb
        self._thin = chance.random() < 0.2 or thin
        if self._thin:
            self.place.sizes = ["4"]
        if self._thin or chance.random() < 0.5:
            self.place.capacity = [names.CAPACITY_ON_DEMAND]  # of spot none is replaced by spot
        self.place.pool(consolidateAfter=chance.choice(("0s", "5s", "20s")), budgets=budgets)
        self.trouble = 0.0
        self.processes: list[Process] = []
        self._revision = 1
        self._numbers = 0
        self._begin_at: float | None = None
        self._renewing = True

    # ------------------------------------------------------------------ processes

    def _start(self) -> Process:
        self._numbers += 1
        one = Process(f"p{self._numbers}", self.server, STAGE.chance.random, self.market)
        one.link.trouble = self.trouble
        self.processes.append(one)
        self.oracle.processes.append(one)
        return one

    @property
    def leader(self) -> Process | None:
        return next((one for one in self.processes if one.fence is not None and not one.dead), None)

    def _reap(self) -> None:
        """Processes that were killed, and those whose term is over, end; another one follows."""
        for one in list(self.processes):
            over = one.fence is not None and one.fence.left() < -self._patience
            if one.dead or over:
                self._say(f"{STAGE.seconds:8.2f} {one} ends")
                one.dead = True
                STAGE.kill(one)
                for stream in one.streams:
                    stream.close()
                self.processes.remove(one)
                self._disturb()
                self.oracle.seen["processes ended"] += 1
        if not any(one.fence is not None for one in self.processes) and self._begin_at is None:
            self._begin_at = STAGE.seconds + self.chance.choice((0.0, 2.0, TAKE_SECONDS))
        if self._begin_at is not None and STAGE.seconds >= self._begin_at:
            self._begin_at = None
            one = next(iter(self.processes), None) or self._start()
            one.lead()
            self._renewing = True
            self._say(f"{STAGE.seconds:8.2f} {one} leads")

    # ------------------------------------------------------------------ time and turns

    def step(self) -> bool:
        """One turn of somebody; False where nothing is left to be done before time goes on."""
        self._reap()
        if (due := self.place.due()) is not None:
            due()
            return True
        ready = STAGE.ready()
        turn = self.chance.random()
        if not ready or turn < 0.1:
            hands = self.place.hands()
            if hands:
                self.chance.choice(hands)()
                return True
        if ready:
            STAGE.resume(self.chance.choice(ready))
            return True
        return False

    def run(self, seconds: float) -> None:
        """Everybody goes on for so long; time may move while somebody could go on."""
        end = STAGE.seconds + seconds
        while STAGE.seconds < end:
            if STAGE.switches > MOST_SWITCHES:
                self.oracle.broken("it never comes to rest")
                return
            if not self.step() or self.chance.random() < 0.01:
                self._advance(end)

    def _advance(self, end: float) -> None:
        waits = [one for one in (STAGE.wakes_at(), self.place.bound_by(), self._begin_at) if one is not None]
        soonest = min(waits, default=end)
        target = max(
            soonest, STAGE.seconds + self.chance.choice((0.0, 2.0, 5.0) if self.place.calm else (0.0, 0.0, 0.3, 1.0))
        )
        STAGE.seconds = min(max(target, STAGE.seconds + 0.001), end)
        if self._gangs:
            self.oracle.gangs.look()
        leader = self.leader
        if leader is not None and self._renewing and leader.fence is not None and leader.fence.valid:
            leader.renew()

    # ------------------------------------------------------------------ what happens to it

    def _disturb(self, seconds: float = 0.0) -> None:
        """A fault begins that is over after so long: from then on no part of a gang may be there for long."""
        law = self.oracle.gangs
        law.disturbed_at = max(law.disturbed_at, STAGE.seconds + seconds)

    def _storm(self) -> None:
        self.trouble = self.chance.choice((0.0, 0.02, 0.1))
        for one in self.processes:
            one.link.trouble = self.trouble
        for _ in range(self.chance.randint(3, 7)):
            happening = self.chance.choice((*_HAPPENINGS, *_OF_GANGS) if self._gangs else _HAPPENINGS)
            self._say(f"{STAGE.seconds:8.2f} {happening.__name__}")
            if happening in _DISTURBING or self.trouble:
                self.oracle.undisturbed = False
            self.oracle.seen[happening.__name__] += 1
            self._disturb(LATE_SECONDS)
            happening(self)
            self.run(self.chance.choice((0.2, 1.0, 3.0, 8.0)))
            if self.oracle.wrong:
                return

    def drift(self) -> None:
        """The template changes: every node is of an old one."""
        self._revision += 1
        self.place.pool(revision=f"r{self._revision}")

    def scale(self) -> None:
        """A workload wants more pods, or fewer."""
        workload = self.chance.choice(self._singles)
        workload.replicas = self.chance.randint(1, 4)

    def shrink(self) -> None:
        """Every workload wants one pod: nodes are empty, or nearly so."""
        for workload in self._singles:
            workload.replicas = 1

    def vanish(self) -> None:
        """The workload with the largest pods goes: what is left is spread thinly."""
        sizes = {one.cpu: one for one in self._singles}
        sizes[min(sizes) if self._thin else max(sizes)].replicas = 0

    def protect(self) -> None:
        """Somebody writes do-not-disrupt on a pod."""
        pods = [one for one in self.server.all("pods") if one["spec"].get("nodeName")]
        if pods:
            self.place.protect(self.chance.choice(pods))

    def blind(self) -> None:
        """Nodes drift while pods are protected that the caches do not know of yet."""
        leader = self.leader
        for stream in leader.streams if leader is not None else ():
            if stream.plural == "pods":
                stream.late_until = STAGE.seconds + LATE_SECONDS
        for pod in self.server.all("pods"):
            if pod["spec"].get("nodeName") and self.chance.random() < 0.7:
                self.place.protect(pod)
        self.drift()

    def guard(self) -> None:
        """A workload gets a PodDisruptionBudget, which may allow nothing."""
        self.place.guard(self.chance.choice(sorted(self.place.workloads)), self.chance.choice((0, 1, 1)))

    def kill(self) -> None:
        """kill -9, at once or at one of the next writes."""
        leader = self.leader
        if leader is None:
            return
        if self.chance.random() < 0.2:
            leader.die()
        else:
            leader.link.kill_at = self.chance.choice((0, 1, 2, 3, 5, 8, 13))
            leader.link.kill_before = self.chance.random() < 0.5

    def lose_lease(self) -> None:
        """The leader's renewals are lost while its threads work on; another one is ready to follow."""
        self._renewing = False
        if len(self.processes) < 2:
            self._start()

    def lag(self) -> None:
        """A watch is late, or several."""
        leader = self.leader
        if leader is not None and leader.streams:
            plurals = self.chance.sample(
                ("pods", "nodes", "nodeclaims", "poddisruptionbudgets"), self.chance.randint(1, 3)
            )
            for stream in leader.streams:
                if stream.plural in plurals:
                    stream.late_until = STAGE.seconds + self.chance.choice((1.0, 4.0, LATE_SECONDS))

    def cut(self) -> None:
        """Watches are cut."""
        leader = self.leader
        for stream in leader.streams if leader is not None else ():
            if self.chance.random() < 0.5:
                stream.cut = True
                stream.arrived.set()

    def delete_claim(self) -> None:
        """A user deletes a NodeClaim, at once or just before the next write of it: rather one that is seldom where it is."""
        claims = self.server.all("nodeclaims")
        if not claims:
            return
        (chosen,) = self.chance.choices(claims, [RARE_WEIGHT if _is_rare(one) else 1 for one in claims])
        name = chosen["metadata"]["name"]

        def delete() -> None:
            self._disturb()
            self.oracle.users.add(name)
            self.server.remove("nodeclaims", name)

        if self.chance.random() < 0.5:
            self.server.meanwhile[name] = delete
        else:
            delete()

    def race(self) -> None:
        """Everything has drifted, and is half empty besides: two threads want the same budget."""
        self.shrink()
        self.drift()

    def fail(self) -> None:
        """Nodes that come from now on may never be ready."""
        self.place.lazy = True

    def mend(self) -> None:
        """They are ready again."""
        self.place.lazy = False

    # ------------------------------------------------------------------ what happens to gangs

    @property
    def _singles(self) -> list[Workload]:
        """Workloads whose pods may come and go one by one."""
        return sorted((one for one in self.place.workloads.values() if not one.gang), key=lambda one: one.name)

    def enlist(self) -> None:
        """A gang comes, of pods that fill a node each, or share nodes with others; or of one that only the largest nodes hold, and smaller ones."""
        size, gangs = self.chance.randint(2, 5), len(self.place.workloads) - len(self._singles)
        if gangs < MOST_GANGS:
            cpu = self.chance.choice((900, 2500, 3500, 3500))
            first = LARGE_MILLIS if cpu == MIXED_MILLIS else 0
            self.place.deploy(Workload(f"gang{gangs}", size, cpu, gang=size, first=first))

    def sell_out(self) -> None:
        """A gang comes, and there are instances for a part of it, or for none."""
        assert self.market is not None
        self.market.most = len(self.server.objects["nodes"]) + self.chance.randint(0, 2)
        self.enlist()

    def starve(self) -> None:
        """So it stays, for longer than a part of a gang may wait; the leader may be lost meanwhile."""
        self.sell_out()
        if self.chance.random() < 0.5:
            self.kill()
        self.run(self.chance.choice((1.0, 8.0)))
        self.wait()

    def supply(self) -> None:
        """There is as much as anybody asks for."""
        assert self.market is not None
        self.market.most = None

    def wait(self) -> None:
        """Nothing happens for longer than a part of a gang may wait."""
        if self.trouble:
            self.trouble = 0.0
            for one in self.processes:
                one.link.trouble = 0.0
        self.run(LONG_SECONDS)

    def dismiss(self) -> None:
        """A gang has no pods any more, and later new ones."""
        gangs = [one for one in self.place.workloads.values() if one.gang]
        if gangs:
            one = self.chance.choice(sorted(gangs, key=lambda each: each.name))
            one.replicas = 0 if one.replicas else one.gang

    # ------------------------------------------------------------------ the whole

    def play(self) -> Played:
        """From the first pod to the verdict."""
        handler = _Heard(self.oracle)
        logger = logging.getLogger("dovetail")
        logger.addHandler(handler)
        logger.propagate = False
        made, uuid.uuid4 = uuid.uuid4, lambda: uuid.UUID(int=STAGE.chance.getrandbits(128), version=4)
        try:
            self._play()
        except Deadlock:
            self.processes.clear()  # nobody can end them
            raise
        finally:
            uuid.uuid4 = made
            for one in list(self.processes):
                one.dead = True
                STAGE.kill(one)
            logger.removeHandler(handler)
        return Played(
            self._seed, tuple(self.oracle.wrong), self.oracle.seen, self.oracle.edges, STAGE.switches, STAGE.seconds
        )

    @property
    def _patience(self) -> float:
        """How long the threads of a process go on after its term."""
        return 1.0

    def _play(self) -> None:
        if self._thin:
            self._deploy_thinly()
        for number in () if self._thin else range(self.chance.randint(2, 4)):
            self.place.deploy(
                Workload(
                    f"w{number}",
                    replicas=self.chance.randint(1, 5),
                    cpu=self.chance.choice((500, 900, 1500, 3500)),
                    apart=self.chance.random() < 0.3,
                )
            )
            self.run(self.chance.choice((0.0, 4.0)))
        for _ in range(40):
            self.run(3.0)
            if all(map(self.place.running, self.server.all("pods"))) and not self.place.hands():
                break
        if self._gangs:
            self.enlist()
            self.run(self.chance.choice((0.2, 3.0, 30.0)))
        if self._thin or self.chance.random() < 0.5:
            self._wait_an_hour()
        if self._thin:
            self.place.sizes = ["2", "4", "8"]
            self.drift() if self.chance.random() < 0.2 else self.place.pool()
            self.vanish()
            if self.chance.random() < 0.6:
                self.kill()
            self.run(self.chance.choice((5.0, 10.0, 30.0)))
        if self.chance.random() < 0.5:
            self.run(10.0)
        self._storm()
        if not self.oracle.wrong:
            self._rest()

    def _deploy_thinly(self) -> None:
        """Nodes that can go together only: what two of them would leave behind fits on no third."""
        replicas = self.chance.choice((3, 4))
        for name, cpu in (("small", 1600), ("large", 2200)):
            self.place.deploy(Workload(name, replicas, cpu))

    def _all_run(self) -> bool:
        return all(map(self.place.running, self.server.all("pods")))

    def _wait_an_hour(self) -> None:
        """From then on nodes may be replaced by cheaper ones: they are not just bought any more."""
        leader = self.leader
        if leader is not None and leader.fence is not None and leader.fence.valid:
            leader.fence.extend(STAGE.seconds + 3700.0)
            STAGE.seconds += 3650.0
            self._disturb()

    def _rest(self) -> None:
        """Nothing fails any more and nothing forbids anything: everything comes to its end, and a second look finds nothing new."""
        self._disturb()
        self.place.calm, self.trouble = True, 0.0
        if self.market is not None:
            self.market.most = None
        self.server.meanwhile.clear()
        for one in self.processes:
            one.link.trouble, one.link.kill_at = 0.0, None
        for budget in self.server.all("poddisruptionbudgets"):
            self.place.guard(budget["metadata"]["name"], 1)
        for pod in self.server.all("pods"):
            self.place.protect(pod, on=False)
        quiet_since, version = STAGE.seconds, self.server.version
        begun = STAGE.seconds
        while STAGE.seconds - quiet_since < (QUIET_SECONDS if self._all_run() else PAUSE_SECONDS):
            self.run(5.0)
            if self.server.version != version:
                quiet_since, version = STAGE.seconds, self.server.version
            if STAGE.seconds - begun > MOST_SECONDS:
                self.oracle.broken("it never comes to rest")
            if self.oracle.wrong:
                return
        self.oracle.judge_end()


_HAPPENINGS: Final = (
    Play.drift,
    Play.drift,
    Play.scale,
    Play.scale,
    Play.shrink,
    Play.vanish,
    Play.vanish,
    Play.blind,
    Play.race,
    Play.protect,
    Play.guard,
    Play.kill,
    Play.kill,
    Play.lose_lease,
    Play.lag,
    Play.lag,
    Play.cut,
    Play.delete_claim,
    Play.delete_claim,
    Play.fail,
    Play.fail,
    Play.mend,
)
_OF_GANGS: Final = (
    *(Play.enlist, Play.enlist, Play.enlist, Play.sell_out, Play.sell_out, Play.supply, Play.dismiss),
    *(Play.starve, Play.starve, Play.starve, Play.starve, Play.starve, Play.starve, Play.wait, Play.kill, Play.kill),
)
_DISTURBING: Final = (Play.lag, Play.blind, Play.cut, Play.kill, Play.lose_lease, Play.delete_claim, Play.scale)
