"""Pods of plans that leave no room over: all of them run where they were planned, whatever comes first."""

import os
import random
from collections import Counter
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import FamilyMember
from tests.support.extender import World, entry, member, passing

WORLDS: Final = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 100
ZONES: Final = 3
KINDS: Final = ("plain", "zone", "host")


class Cluster:
    """kube-scheduler, that binds pods with hard spreads to nodes which open one by one, and the extender, which hears of bindings late.

    Args:
        order: what happens next.
    """

    def __init__(self, order: random.Random) -> None:
        self.order, self.world = order, World()
        self.nodes = [f"n{number}" for number in range(order.randint(3, 9))]
        self.zone = {name: number % ZONES for number, name in enumerate(self.nodes)}
        self.planned: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self.pods: dict[str, FamilyMember] = {}
        self.bound: dict[str, str] = {}
        self.open: list[str] = []
        for number in range(order.randint(1, 4)):
            self.plan(f"{order.choice(KINDS)}{number}")
        self.size = {name: sum(families.values()) for name, families in self.planned.items() if families}
        self.shut = order.sample(list(self.size), len(self.size))
        self.told: list[str] = []
        self.write()

    def plan(self, family: str) -> None:
        """A Deployment, as plain, by zone or by host as its name says."""
        if family.startswith("host"):
            chosen = list(self.nodes)
        elif family.startswith("zone"):
            zones = [[name for name in self.nodes if self.zone[name] == zone] for zone in range(ZONES)]
            chosen = [self.order.choice(names) for names in zones * self.order.randint(1, 4)]
        else:
            chosen = self.order.choices(self.nodes, k=self.order.randint(2, 10))
        self.planned = {name: self.planned[name] + Counter({family: chosen.count(name)}) for name in self.nodes}

    def write(self) -> None:
        """Pods and NodeClaims are there; no Node is."""
        for name, families in self.planned.items():
            entries = []
            for family, count in families.items():
                uids = [f"{family}-{len(self.pods) + number}" for number in range(count)]
                self.pods |= {uid: member(uid, owner=family, klass=family) for uid in uids}
                entries.append(entry(*uids, owner=family, klass=family))
            self.world.claim(f"c-{name}", *entries, node=name)
        self.waiting = self.order.sample(list(self.pods), len(self.pods))
        self.world.pods(*(self.pods[uid] for uid in self.waiting))

    def feasible(self, family: str) -> list[str]:
        """Nodes that kube-scheduler's own filters let pass."""
        used = Counter(self.bound.values())
        free = [name for name in self.open if used[name] < self.size[name]]
        if family.startswith("plain"):
            return sorted(free)
        domain = {name: self.zone[name] if family.startswith("zone") else name for name in self.open}
        there = Counter(domain[node] for uid, node in self.bound.items() if self.pods[uid].owner == family)
        least = min((there[each] for each in domain.values()), default=0)
        return sorted(name for name in free if there[domain[name]] == least)

    def happen(self, late: float) -> bool:
        """One thing; whether it changed anything."""
        if self.shut and (self.order.random() < 0.15 or not (self.waiting or self.told)):
            name = self.shut.pop()
            self.open.append(name)
            self.world.node(name, self.size[name], ready=False)
            self.world.node(name, self.size[name])
            return True
        if self.told and (self.order.random() > late or not self.waiting):
            uid = self.told.pop(0)
            self.world.bind(self.pods[uid], self.bound[uid])
            return True
        return bool(self.waiting) and self.ask(self.waiting.pop(0))

    def ask(self, uid: str) -> bool:
        """A scheduling cycle."""
        world, pod = self.world, self.pods[uid]
        found = self.feasible(pod.owner)
        if found:
            world.table.recall(uid, world.now)
            verdict = world.ask(pod, *found)
            if verdict.steered:
                world.table.assume(uid, verdict.steered, world.now)
            found = passing(verdict, found)
        if not found:
            self.waiting.append(uid)
            return False
        self.bound[uid] = self.order.choice(found)
        self.told.append(uid)
        return True

    def overdrawn(self) -> list[str]:
        """Nodes where more room is held than there is."""
        ledger = self.world.table.ledger
        return [
            name
            for name, hold in self.world.table.room.holds.items()
            if not hold.needed(-(2**31)).fits(ledger.room(name))
        ]

    def placed(self) -> dict[str, Counter[str]]:
        """How many pods of each family run on each node."""
        found: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        for uid, node in self.bound.items():
            found[node][self.pods[uid].owner] += 1
        return found


@settings(max_examples=WORLDS)
@given(st.integers(0, 2**32), st.sampled_from((0.01, 0.1, 0.5)), st.sampled_from((0.1, 0.7, 0.95)))
def test_pods_of_plans_without_spare_room_all_run_where_they_are_planned(seed: int, pace: float, late: float) -> None:
    """kube-scheduler asks about the next pods long before it tells of a binding: pods whose zone or host is not yet theirs take each other's places."""
    cluster = Cluster(random.Random(seed))
    idle = 0
    while cluster.waiting or cluster.told or cluster.shut:
        cluster.world.now += pace
        idle = 0 if cluster.happen(late) else idle + 1
        assert not cluster.overdrawn()
        assert idle < 100 * len(cluster.pods), f"{cluster.waiting} never find a place"
    assert cluster.placed() == cluster.planned
