"""A small world for the extender's plan table, in words: nodes, claims with plans, pods."""

import threading
from collections.abc import Sequence
from datetime import datetime

import msgspec

from extender.facts import ClaimFacts, ExtenderNode, FamilyMember
from extender.placement import PlacementVerdict, judge
from extender.plan import PlanTable
from extender.protocol import NodeNames
from provisioner.apis.launch_sets import LaunchSet
from provisioner.apis.plan import Plan, PlanEntry
from provisioner.values.resources import EMPTY, Resources

HOLD_SECONDS = 120.0


def cpus(cores: float, pods: int = 1) -> Resources:
    """Requests, or what a node offers."""
    return Resources.of({"cpu": round(cores * 1000), "pods": pods})


def entry(*uids: str, owner: str = "rs", klass: str = "small", count: int = 0) -> PlanEntry:
    """One entry of a plan; `count` where it is more than the pods that are named."""
    return PlanEntry(owner=owner, klass=klass, count=count or len(uids), uids=uids)


def member(
    uid: str,
    *,
    owner: str = "rs",
    klass: str = "small",
    cores: float = 1,
    priority: int = 0,
    node: str = "",
    over: bool = False,
    daemon: bool = False,
    group: str = "",
) -> FamilyMember:
    """A pod of the replica set `rs` that asks for one core, unless told otherwise."""
    return FamilyMember(
        uid=uid,
        name=f"ns/{uid}",
        owner=owner,
        klass=klass,
        requests=cpus(cores),
        priority=priority,
        node=node,
        over=over,
        daemon=daemon,
        group=group,
    )


class Watch:
    """A reflector that is whatever the test says."""

    def __init__(self) -> None:
        self.synced = threading.Event()
        self.synced.set()
        self.error: Exception | None = None
        self.silence = 0.0
        self.behind = 0.0

    def __repr__(self) -> str:
        return "the watch"

    def staleness(self) -> float:
        return self.silence

    def lag(self) -> float:
        return self.behind


def passing(verdict: PlacementVerdict, names: Sequence[str]) -> list[str]:
    """The names that may pass, in their order."""
    return [verdict.steered] if verdict.steered else [name for name in names if name not in verdict.refused]


class World:
    """A plan table with a clock in hand."""

    def __init__(self, hold_seconds: float = HOLD_SECONDS) -> None:
        self.table, self.hold_seconds = PlanTable(), hold_seconds
        self.now = 1000.0
        self._claims: dict[str, ClaimFacts] = {}

    def node(
        self,
        name: str,
        cores: float = 4,
        *,
        ready: bool = True,
        leaving: bool = False,
        claim_uid: str = "",
        provider_id: str = "",
    ) -> None:
        """A node is there; an unready one is one whose taints have not fallen. Where its claim names it, it is initialized once it is ready."""
        facts = ExtenderNode(
            name=name,
            allocatable=cpus(cores, pods=110),
            provider_id=provider_id,
            claim_uid=claim_uid,
            schedulable=ready,
            leaving=leaving,
        )
        self.table.set_node(facts, self.now)
        for claim in [
            one for one in self._claims.values() if ready and one.node == name and one.initialized_at is None
        ]:
            self._tell(msgspec.structs.replace(claim, initialized_at=self.now))

    def claim(
        self,
        name: str,
        *plan: PlanEntry,
        node: str = "",
        provider_id: str = "",
        uid: str = "",
        leaving: bool = False,
        disrupted: bool = False,
        requests: Resources = EMPTY,
        born_at: float | None = None,
        initialized_at: float | None = None,
        again_at: datetime | msgspec.UnsetType = msgspec.UNSET,
        sets: tuple[LaunchSet, ...] = (),
    ) -> None:
        """A NodeClaim is there; once its node was initialized it stays so. Pods may have been planned there again since."""
        before = self._claims.get(name)
        facts = ClaimFacts(
            name=name,
            uid=uid,
            planned_at=self.now if born_at is None else born_at,
            node=node,
            provider_id=provider_id,
            leaving=leaving,
            disrupted=disrupted,
            initialized_at=before.initialized_at if before is not None else initialized_at,
            requests=requests,
            plan=Plan.of(plan, self.hold_seconds, again_at),
            sets=sets,
        )
        self._tell(facts)

    def _tell(self, facts: ClaimFacts) -> None:
        self._claims[facts.name] = facts
        self.table.set_claim(facts, self.now)

    def planned_node(
        self,
        name: str,
        *plan: PlanEntry,
        cores: float = 4,
        ready: bool = True,
        requests: Resources = EMPTY,
        sets: tuple[LaunchSet, ...] = (),
    ) -> None:
        """A node and the claim that it was made for, `c-NAME`."""
        self.claim(f"c-{name}", *plan, node=name, requests=requests, sets=sets)
        self.node(name, cores, ready=ready)

    def pods(self, *members: FamilyMember) -> None:
        """Pods are there."""
        for one in members:
            self.table.set_pod(one)

    def bind(self, pod: FamilyMember, node: str) -> None:
        """A pod was bound."""
        self.table.set_pod(msgspec.structs.replace(pod, node=node))

    def pass_time(self, seconds: float) -> None:
        """The clock moves, and what is over ends."""
        self.now += seconds
        self.table.expire(self.now)

    def ask(self, pod: FamilyMember, *names: str, nominated: str = "") -> PlacementVerdict:
        """What `filter` decides."""
        raw = NodeNames(msgspec.json.encode(list(names)))
        table = self.table
        standing, going = table.standing(pod, self.now), table.nodes.disrupted(self.now)
        return judge(pod, standing, table.room.holds, raw, nominated, going, table.supposed)

    def passing(self, pod: FamilyMember, *names: str, nominated: str = "") -> list[str]:
        """The nodes that `filter` lets pass."""
        return passing(self.ask(pod, *names, nominated=nominated), names)
