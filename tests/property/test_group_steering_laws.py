"""Members of groups and the extender: one node each while their nodes come and just afterwards, and never none for longer than a bound."""

import os
import random
from collections import Counter, defaultdict
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import FamilyMember
from extender.groups import OPEN_SECONDS, PASS_SECONDS
from extender.refusals import Refusals
from provisioner.apis.launch_sets import LaunchSet
from provisioner.state.promises import PLAN_SECONDS
from tests.support.extender import World, entry, member, passing

WORLDS: Final = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 150
CORES: Final = 4
BOUND_SECONDS: Final = PLAN_SECONDS + OPEN_SECONDS


class Gangs:
    """kube-scheduler, which tries groups as a whole, beside single pods, nodes that come, fail and go, and NodeClaims that are given up.

    Args:
        order: what happens next.
    """

    def __init__(self, order: random.Random) -> None:
        self.order, self.world = order, World()
        self.world.table.caught_up = order.random() < 0.8
        self.groups = {f"ns/g{number}": order.randint(1, 4) for number in range(order.randint(1, 3))}
        self.pods: dict[str, FamilyMember] = {}
        self.claims: dict[str, tuple[str, str, LaunchSet]] = {}  # by name: node, UID of the pod, set
        self.bound: dict[str, str] = {}
        self.told: list[str] = []
        self.passed: defaultdict[str, set[str]] = defaultdict(set)  # nodes by UID, while it was steered
        self.refused_since: dict[str, float] = {}
        self.decisions = 0
        self.planned_at: dict[str, float] = {}  # by id of a set of which every claim is there as it was written
        self.ready_at: dict[str, float] = {}  # by node, while it takes pods
        self.first_ready_at: dict[str, float] = {}
        self.opened_at: dict[str, float] = {}  # by id: when all of its nodes took pods for the first time
        for group, size in self.groups.items():
            members = [
                member(f"{group}-{each}", owner=group, klass="big", cores=CORES, group=group) for each in range(size)
            ]
            self.pods |= {one.uid: one for one in members}
        self.pods |= {f"s{number}": member(f"s{number}", owner="s", cores=1) for number in range(3)}
        self.world.pods(*self.pods.values())
        self.world.node("old", 3 * CORES)
        self.nodes = ["old"]
        for group in self.groups:
            self.plan(group)

    def waiting(self, group: str) -> list[str]:
        """Members that are not bound."""
        return [uid for uid, pod in self.pods.items() if pod.group == group and uid not in self.bound]

    def plan(self, group: str) -> None:
        """A decision for what waits of a group; some of it on the node that is there."""
        waiting = self.waiting(group)
        for uid in waiting:
            self.refused_since.pop(uid, None)  # every plan has its time
        new = waiting[self.order.choice((0, 0, 0, 1)) :]
        self.decisions += 1
        its = LaunchSet(id=f"d{self.decisions}", group=group, nodes=len(new)) if new else None
        if its is not None:
            self.planned_at[its.id] = self.world.now
        for uid in new:
            name = f"c{self.decisions}-{len(self.claims)}"
            assert its is not None
            self.claims[name] = (f"n-{name}", uid, its)
            if self.order.random() < 0.95:
                self.tell(name)
            else:
                self.planned_at.pop(its.id, None)  # it is never written

    def tell(self, name: str, *, leaving: bool = False) -> None:
        node, uid, its = self.claims[name]
        self.world.claim(name, entry(uid, owner=its.group, klass="big"), node=node, leaving=leaving, sets=(its,))

    def happen(self) -> None:
        """One thing."""
        self.world.pass_time(self.order.choice((0.01, 0.1, 1.0, 5.0, 60.0)))
        event = self.order.random()
        if event < 0.3 and self.claims:
            node, _, _ = self.claims[self.order.choice(list(self.claims))]
            self.join(node, ready=self.order.random() < 0.8)
        elif event < 0.34 and self.claims:
            name = self.order.choice(list(self.claims))
            self.world.table.drop_claim(name)
            _, _, its = self.claims.pop(name)
            self.planned_at.pop(its.id, None)
            if self.order.random() < 0.5:
                self.plan(its.group)
        elif event < 0.36 and self.claims:
            name = self.order.choice(list(self.claims))
            self.tell(name, leaving=True)
            self.planned_at.pop(self.claims[name][2].id, None)
        elif event < 0.5 and self.told:
            uid = self.told.pop(0)
            self.world.bind(self.pods[uid], self.bound[uid])
        elif event < 0.6:
            self.single(self.order.choice([uid for uid in self.pods if uid.startswith("s")]))
        else:
            self.cycle(self.order.choice(list(self.groups)))

    def join(self, node: str, *, ready: bool) -> None:
        """A node comes, or is another one."""
        world = self.world
        world.node(node, CORES, ready=ready)
        self.nodes = sorted({*self.nodes, node})
        if ready:
            self.first_ready_at.setdefault(node, world.now)
            self.ready_at.setdefault(node, world.now)
        else:
            self.ready_at.pop(node, None)
        for each in self.planned_at:
            if all(other in self.ready_at for other in self.nodes_of(each)):
                self.opened_at.setdefault(each, world.now)

    def nodes_of(self, decision: str) -> list[str]:
        return [node for node, _, its in self.claims.values() if its.id == decision]

    def is_steered(self, uid: str) -> bool:
        """Whether a member passes at most its own node for certain: its set is as it was decided, and its time is not over."""
        now = self.world.now
        for its in [its for _, whose, its in self.claims.values() if whose == uid and its.id in self.planned_at]:
            ready = [self.first_ready_at[node] for node in self.nodes_of(its.id) if node in self.first_ready_at]
            until = min([self.planned_at[its.id] + PLAN_SECONDS, *(at + self.world.hold_seconds for at in ready)])
            if now < min(until, self.opened_at.get(its.id, until) + OPEN_SECONDS):
                return True
        return False

    def feasible(self, assumed: dict[str, str]) -> list[str]:
        """Nodes with room for a member that kube-scheduler's filters let pass; its watch may be ahead of ours, or behind."""
        used = Counter[str]()
        for uid, node in {**self.bound, **assumed}.items():
            used[node] += self.pods[uid].requests["cpu"]
        found = [name for name in self.nodes if used[name] + 1000 * CORES <= (12000 if name == "old" else 1000 * CORES)]
        return [name for name in found if self.order.random() < 0.95]

    def single(self, uid: str) -> None:
        if uid not in self.bound and (found := self.ask(uid, ["old"])):
            self.bound[uid] = found
            self.told.append(uid)

    def cycle(self, group: str) -> None:
        """All members that wait, one after the other; all are bound, or none."""
        assumed: dict[str, str] = {}
        waiting = self.order.sample(found := self.waiting(group), len(found))
        for uid in waiting:
            names = self.feasible(assumed)
            node = self.ask(uid, names) if names else ""
            if not node:
                return
            assumed[uid] = node
        self.bound |= assumed
        self.told += assumed

    def ask(self, uid: str, names: list[str]) -> str:
        """What passes, and is chosen, "" for none."""
        world, pod = self.world, self.pods[uid]
        world.table.recall(uid, world.now)
        standing = world.table.standing(pod, world.now)
        verdict = world.ask(pod, *names)
        left = passing(verdict, names)
        if verdict.steered:
            world.table.assume(uid, verdict.steered, world.now)
        assert standing.alone or not self.is_steered(uid)
        if standing.alone:
            assert left == [standing.home] * (standing.home in names)
            self.passed[uid].update(left)
        if not left and standing.alone:
            since = self.refused_since.setdefault(uid, world.now)
            assert world.now < since + BOUND_SECONDS
        elif not standing.alone:
            self.refused_since.pop(uid, None)
            self.passed.pop(uid, None)
        return self.order.choice(left) if left else ""


@settings(max_examples=WORLDS)
@given(st.integers(0, 2**32), st.integers(20, 200))
def test_a_member_never_passes_two_nodes_while_it_is_steered_and_never_none_for_long(seed: int, steps: int) -> None:
    gangs = Gangs(random.Random(seed))
    for _ in range(steps):
        gangs.happen()
        decisions = {its.id for _, _, its in gangs.claims.values()}
        if len(decisions) == gangs.decisions <= len(gangs.groups):  # none was planned again, so none has another place
            assert all(len(nodes) <= 1 for nodes in gangs.passed.values())
    left = [uid for group in gangs.groups for uid in gangs.waiting(group)]
    gangs.world.pass_time(BOUND_SECONDS)
    for uid in left:
        assert not gangs.world.table.standing(gangs.pods[uid], gangs.world.now).alone
    gangs.world.table.recall("nobody", gangs.world.now + PASS_SECONDS)
    assert not any(pod.group for _, pod in gangs.world.table.families.assumed.values())


@settings(max_examples=WORLDS)
@given(st.integers(0, 2**32))
def test_pods_without_a_group_are_answered_as_if_there_were_no_sets(seed: int) -> None:
    order = random.Random(seed)
    with_sets, without = World(), World()
    for world, sets in ((with_sets, (LaunchSet(id="d", group="ns/g", nodes=2),)), (without, ())):
        world.planned_node("n1", entry("a", owner="o"), ready=False, sets=sets)
        world.planned_node("n2", entry("b", "x", owner="o"), ready=False, sets=sets)
        world.pods(
            *(member(uid, owner="o", group="ns/g" if uid in "ab" else "") for uid in "abx"), member("y", owner="y")
        )
    for _ in range(20):
        node, ready, seconds = order.choice(("n1", "n2", "n3")), order.random() < 0.7, order.choice((0.1, 10, 60))
        names, uid = order.sample(("n1", "n2", "n3"), order.randint(1, 3)), order.choice("xy")
        answers = []
        for world in (with_sets, without):
            world.node(node, CORES, ready=ready)
            world.pass_time(seconds)
            pod = world.table.families.members[uid]
            answers.append(world.ask(pod, *names))
        assert answers[0] == answers[1]


def test_kinds_of_refused_members_do_not_grow_with_their_number() -> None:
    world, refusals = World(), Refusals()
    its = (LaunchSet(id="d", group="ns/g", nodes=2),)
    pods = [member(f"m{number}", owner="o", group="ns/g") for number in range(500)]
    world.pods(*pods)
    world.claim("c1", entry("m0", owner="o"), sets=its)
    for pod in pods:
        refusals.record(pod, world.table.standing(pod, world.now))
    assert len(refusals) == 1
