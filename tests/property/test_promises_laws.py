"""What the state and the extender promise of the same objects."""

import itertools
import os
import random
from collections import Counter, deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import Timeline, claim_facts, member_of, node_facts
from extender.plan import PlanTable
from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import HOLD_SECONDS, Plan, decode_plan, encode_plan, fitting_text
from provisioner.apis.pods import Pod
from provisioner.nodeclaims.plan_writer import readable
from provisioner.state.cluster import Cluster
from provisioner.state.effects import ABSORBED, PLANNED, REPLANNED, ClaimUnneeded, Effect, PlanOutdated, PodSettled
from provisioner.state.keys import NodeKey
from provisioner.state.promises import VACANT_SECONDS, PodFamily
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import TYPES, claim, node, plan_text, pod
from tests.support.problems import shape

WORLDS: Final = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 100
_versions = itertools.count(1_000_000)
TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


@given(
    hold=st.sampled_from((0.0, 1.0, 60.0, HOLD_SECONDS, 121.0, 300.0, 86_400.0)),
    own=st.sampled_from((30.0, HOLD_SECONDS, 600.0)),
    early=st.booleans(),
)
def test_room_is_promised_equally_long_whatever_the_flags_of_either_program_say(
    hold: float, own: float, early: bool
) -> None:
    """The time stands in the plan; the flag of a provisioner that reads it counts for what it writes itself."""
    clock, waiting = FakeClock(), pod("waiting", owner="web")
    text = encode_plan(Plan.of(decode_plan(plan_text((waiting,))).pods, hold))
    planned = claim("a", provider_id="kwok://a", true=TRUE, annotations={names.PLAN_ANNOTATION: text})
    joined = node("a", labels={names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"})
    cluster = Cluster(lambda _: TYPES, clock, hold_ttl=timedelta(seconds=own))
    cluster.settle()
    cluster.pod_changed(None, waiting)
    cluster.claim_changed(None, planned)
    cluster.node_changed(None, joined)
    table, timeline = PlanTable(), Timeline(NOON, clock.monotonic())
    table.set_pod(member_of(waiting))
    table.set_claim(claim_facts(planned, timeline), clock.monotonic())
    table.set_node(node_facts(joined), clock.monotonic())
    clock.advance(hold - 0.5 if early and hold else hold + 0.5)
    cluster.expire()
    table.expire(clock.monotonic())
    assert bool(cluster.assigned(NodeKey("a"))) is bool(table.room.holds) is (early and bool(hold))


def test_no_room_is_kept_for_a_pod_that_its_owner_does_not_make_again() -> None:
    """Somebody has labeled a pod: its successor is of another class, and takes the room that is left."""
    clock, labeled, successor = FakeClock(), pod("labeled", owner="web", cpu="2"), pod("successor", owner="web")
    planned = claim("a", provider_id="kwok://a", true=TRUE, annotations={names.PLAN_ANNOTATION: plan_text((labeled,))})
    joined = node("a", labels={names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"})
    cluster, table, timeline = Cluster(lambda _: TYPES, clock), PlanTable(), Timeline(NOON, clock.monotonic())
    cluster.settle()
    cluster.pod_changed(None, labeled)
    cluster.claim_changed(None, planned)
    cluster.node_changed(None, joined)
    table.set_pod(member_of(labeled))
    table.set_claim(claim_facts(planned, timeline), clock.monotonic())
    table.set_node(node_facts(joined), clock.monotonic())
    held = table.room.holds[joined.metadata.name]
    cluster.pod_changed(labeled, None)
    table.drop_pod(labeled.uid)
    assert held.needed(0), "its successor is waited for"
    assert cluster.snapshot().nodes[0].planned
    cluster.pod_changed(None, successor)
    table.set_pod(member_of(successor))
    table.expire(clock.monotonic())
    assert not table.room.holds
    assert not cluster.snapshot().nodes[0].planned


# --- the same objects, in whatever order they are told -------------------------------------------------------------------

OWNERS = ("web", "web", "db", "")
READY_STEPS = 4


def seen_again(one: Any, **changes: Any) -> Any:
    """The object with these fields of its metadata (of a Pod: of itself), and a newer version."""
    version = str(next(_versions))
    if isinstance(one, Pod):
        return msgspec.structs.replace(one, resource_version=version, **changes)
    meta = msgspec.structs.replace(one.metadata, resource_version=version, **changes)
    return msgspec.structs.replace(one, metadata=meta)


class Twins:
    """An API server and both programs that watch it; what the state's effects ask for is written as the controllers do.

    Args:
        order: in which what the watches have is told.
    """

    def __init__(self, order: random.Random) -> None:
        self.clock, self.order = FakeClock(), order
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.stages: dict[str, int] = {}
        self.names = itertools.count(1)
        self.told: dict[tuple[str, str], deque[tuple[Any, Any]]] = {}
        self.begin("state")
        self.begin("extender")

    # --- who watches

    def restart(self, who: str) -> None:
        """Another process, when plans say what is kept: of places whose pods are gone, or were exchanged, or lost their Node, only the former one knew."""
        for one in [one for one in self.pods.values() if one.node_name and one.node_name not in self.nodes]:
            self.put("pods", one.uid, None)
        self.settle()
        self.wait(VACANT_SECONDS)
        for name in self.claims:
            self.write_plan(NodeKey(name))
        self.settle()
        self.begin(who)

    def begin(self, who: str) -> None:
        """It reads everything that there is."""
        for kind in ("pods", "nodes", "claims"):
            self.told[who, kind] = deque()
        if who == "extender":
            self.table, self.timeline = PlanTable(), Timeline(self.clock.now(), self.clock.monotonic())
            for kind in ("pods", "nodes", "claims"):
                for one in getattr(self, kind).values():
                    self._hear(kind, None, one)
            self.table.caught_up = True
            return
        self.cluster = Cluster(lambda _: TYPES, self.clock)
        for node_ in self.nodes.values():
            self.cluster.node_changed(None, node_)
        for claim_ in self.claims.values():
            self.cluster.claim_changed(None, claim_)
        for pod_ in self.pods.values():
            self.cluster.pod_changed(None, pod_)
        self.carry_out([*self.cluster.settle(), *self.cluster.unneeded()])

    def _hear(self, kind: str, old: Any, new: Any) -> None:
        now = self.clock.monotonic()
        match kind:
            case "pods":
                self.table.set_pod(member_of(new)) if new is not None else self.table.drop_pod(old.uid)
            case "nodes":
                name = old.metadata.name if new is None else ""
                self.table.set_node(node_facts(new), now) if new is not None else self.table.drop_node(name, now)
            case _:
                name = old.metadata.name if new is None else ""
                self.table.set_claim(
                    claim_facts(new, self.timeline), now
                ) if new is not None else self.table.drop_claim(name)

    def tell(self, who: str, kind: str) -> None:
        """The next event of one watch."""
        queue = self.told[who, kind]
        if not queue:
            return
        old, new = queue.popleft()
        if who == "extender":
            self._hear(kind, old, new)
            return
        changed = {
            "pods": self.cluster.pod_changed,
            "nodes": self.cluster.node_changed,
            "claims": self.cluster.claim_changed,
        }
        self.carry_out(changed[kind](old, new))  # type: ignore[operator]

    def settle(self) -> None:
        """Everything is told, and what is over is ended, until nothing follows from it."""
        for _ in range(20):
            while waiting := [key for key, queue in self.told.items() if queue]:
                self.tell(*self.order.choice(waiting))
            self.table.expire(self.clock.monotonic())
            self.carry_out(self.cluster.expire())
            if not any(self.told.values()):
                return
        raise AssertionError("the programs never come to rest")

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case PodSettled(key=key, outcome=outcome) if outcome not in (PLANNED, ABSORBED, REPLANNED):
                    self.write_plan(key)
                case PlanOutdated(key=key):
                    self.write_plan(key)
                case ClaimUnneeded(claim=name):
                    self.put("claims", name, None)
                    self.carry_out(self.cluster.claim_deleted(self.cluster.claim(name)))  # type: ignore[arg-type]
                case _:
                    pass

    def write_plan(self, key: NodeKey) -> None:
        one = self.claims.get(key.name)
        if not key.of_claim or one is None or one.metadata.deletion_timestamp is not None:
            return
        plan = self.cluster.plan_of(key)
        text = fitting_text(plan) if plan.pods else ""
        former = one.metadata.annotations.get(names.PLAN_ANNOTATION, "")
        if text == former:
            return
        annotations = {name: value for name, value in one.metadata.annotations.items() if name != names.PLAN_ANNOTATION}
        written = seen_again(one, annotations={**annotations, names.PLAN_ANNOTATION: text} if text else annotations)
        self.put("claims", key.name, written)
        self.carry_out(self.cluster.claim_written(written))
        for other in sorted(self.cluster.moved(key, readable(former))):
            self.write_plan(other)

    def put(self, kind: str, name: str, new: Any) -> None:
        objects: dict[str, Any] = getattr(self, kind)
        old = objects.get(name)
        if new is None and old is None:
            return
        if new is None:
            del objects[name]
        else:
            objects[name] = new
        for who in ("state", "extender"):
            self.told[who, kind].append((old, new))

    # --- what happens

    def arrive(self, owner: int, size: int, count: int, *, gates: int) -> None:
        """Pods are created, some with gates that fall one after another: the extender may know them as gated when they are planned."""
        for _ in range(1 + count):
            uid = f"p{next(self.names)}"
            one = pod(uid, owner=OWNERS[owner % 4], cpu="1" if size else "500m")
            for left in reversed(range(1 + gates)):
                self.put("pods", uid, seen_again(one, gated=left > 0))
        while gates and self.told["state", "pods"]:
            self.tell("state", "pods")

    def buy(self, count: int) -> None:
        """Up to `count` pods that wait, or whose node goes, get a NodeClaim."""
        found = self.wanting()[: 1 + count]
        if not found:
            return
        name = f"c{next(self.names)}"
        created = self.clock.now() + timedelta(
            seconds=self.order.choice((0.0, 0.0, 5.0))
        )  # by another clock, and later than it was planned
        made = claim(name, pods=found, creationTimestamp=created.isoformat())
        announced = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))
        if self.cluster.announce(announced, found):
            self.put("claims", name, made)
            self.stages[name] = 0
            self.carry_out(self.cluster.claim_written(made))
            if len(self.cluster.assigned(NodeKey(name))) > len(found):
                self.write_plan(NodeKey(name))

    def replan(self, which: int) -> None:
        """The pods of a claim that is not launched are planned anew, onto claims that are there."""
        held = self.cluster.hold_launches(60.0)
        planned = {name: [one.uid for one in self.cluster._plans.assignments.on(NodeKey(name))] for name in held}
        known = [name for name, uids in planned.items() if all(map(self.is_known, uids))]
        if known:
            name = known[which % len(known)]
            uids = planned[name]
            effects = self.cluster.replan({name: uids}) or []
            self.keep(which, len(uids))
            self.carry_out(effects)
        self.cluster.release_launches(held)

    def wanting(self) -> tuple[Pod, ...]:
        """Who needs a place; not who was bound or went without the state knowing: such plans are taken back at once."""
        snapshot = self.cluster.snapshot()
        return tuple(one for one in (*snapshot.pending, *snapshot.leaving) if self.is_known(one.uid))

    def is_known(self, uid: str) -> bool:
        """Whether the state knows a pod as it is."""
        known, now = self.cluster._pods.get(uid), self.pods.get(uid)
        return known is not None and now is not None and known.resource_version == now.resource_version

    def keep(self, which: int, count: int) -> None:
        """Pods are planned onto a node that is there, or comes."""
        views = [view for view in self.cluster.snapshot().nodes if view.claim is not None and not view.deleting]
        if not views:
            return
        view = views[which % len(views)]
        room, chosen = view.room, list[Pod]()
        for one in self.wanting()[: 1 + count]:
            if one.shape.requests.fits(room):
                chosen.append(one)
                room = room - one.shape.requests
        if chosen and not self.cluster.assign(view.key, chosen):
            self.write_plan(view.key)

    def open(self, which: int) -> None:
        """Some claims get a node that is initialized."""
        for _ in range(READY_STEPS):
            self.step(which)
            self.clock.advance(1.0)

    def step(self, which: int) -> None:
        """A claim comes one step nearer to a node that is initialized."""
        mine = [name for name, stage in self.stages.items() if stage < READY_STEPS and name in self.claims]
        if not mine:
            return
        name = mine[which % len(mine)]
        one, stage = self.claims[name], self.stages[name]
        if one.metadata.deletion_timestamp is not None:
            return
        self.stages[name] += 1
        since, pid = self.clock.now(), f"kwok://{name}"
        true = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)[: (1, 1, 2, 3)[stage]]
        made = claim(name, provider_id=pid, true=true, since=since)
        status = msgspec.structs.replace(made.status, node_name=name if stage > 1 else "")
        if stage != 1:
            told = seen_again(msgspec.structs.replace(one, status=status))
            self.put("claims", name, told)
            self.carry_out(self.cluster.claim_written(told))
        pool = {names.NODEPOOL_LABEL: "general"}
        match stage:
            case 1:
                self.put("nodes", name, node(name, labels=pool, ready=False, taints=(UNREGISTERED,)))
            case 2:  # ready, but something is still being set up
                self.put("nodes", name, self.noded(name, pool, since, (NOT_READY,)))
            case 3:
                self.put("nodes", name, self.noded(name, {**pool, names.INITIALIZED_LABEL: "true"}, since, ()))
            case _:
                pass

    def noded(self, name: str, labels: dict[str, str], since: datetime, taints: tuple[dict[str, str], ...]) -> Node:
        made = node(name, labels=labels, taints=taints)
        ready = tuple(msgspec.structs.replace(one, last_transition_time=since) for one in made.status.conditions)
        if name in self.nodes and self.nodes[name].status.conditions[0].status == "True":
            ready = self.nodes[name].status.conditions
        return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=ready))

    def catch_up(self) -> None:
        """Both know of plans before pods that they name are bound or gone, and of nodes."""
        for who, kind in itertools.product(("state", "extender"), ("claims", "nodes")):
            while self.told[who, kind]:
                self.tell(who, kind)

    def bind(self, which: int, where: int) -> None:
        """kube-scheduler binds a pod to a node that has room for it: where it is planned, or elsewhere. Plans and nodes are known before."""
        self.catch_up()
        waiting = [one for one in self.pods.values() if not one.node_name and one.deleted is None]
        open_ = [name for name, one in self.nodes.items() if not one.spec.taints and not self.goes(name)]
        if not waiting or not open_:
            return
        one, name = waiting[which % len(waiting)], open_[where % len(open_)]
        used = Resources.total(each.shape.requests for each in self.pods.values() if each.node_name == name)
        if one.shape.requests.fits(Resources.parse(self.nodes[name].status.allocatable) - used):
            self.put("pods", one.uid, seen_again(one, node_name=name, phase="Running"))

    def goes(self, name: str) -> bool:
        """Whether a Node, or its claim, is deleted."""
        return any(one.metadata.deletion_timestamp is not None for one in (self.nodes[name], self.claims[name]))

    def end(self, which: int, *, slowly: bool) -> None:
        """A pod is deleted; one that runs takes its time."""
        self.catch_up()
        if not self.pods:
            return
        one = list(self.pods.values())[which % len(self.pods)]
        if slowly and one.node_name and one.deleted is None:
            self.put("pods", one.uid, seen_again(one, deleted=self.clock.now()))
        else:
            self.put("pods", one.uid, None)

    def reshape(self, which: int) -> None:
        """A pod becomes one of another class, or of its own again: somebody adds a toleration, or its images were read."""
        there = [one for one in self.pods.values() if one.deleted is None]
        if there:
            one = there[which % len(there)]
            cpu = f"{one.shape.requests['cpu']}m"
            other = shape(
                cpu, tolerations=() if one.shape.tolerations else (Toleration(key="other", operator="Exists"),)
            )
            self.put("pods", one.uid, seen_again(one, shape=other))

    def drain(self, which: int) -> None:
        """Somebody deletes a NodeClaim."""
        there = [one for one in self.claims.values() if one.metadata.deletion_timestamp is None]
        self.settle()  # who is bound to a node is known when it begins to go
        if there:
            one = there[which % len(there)]
            self.put("claims", one.metadata.name, seen_again(one, deletion_timestamp=self.clock.now()))

    def remove(self, which: int) -> None:
        """One that is deleted is gone, with its Node and whatever runs there."""
        going = [one.metadata.name for one in self.claims.values() if one.metadata.deletion_timestamp is not None]
        if not going:
            return
        name = going[which % len(going)]
        self.settle()
        for one in [one for one in self.pods.values() if one.node_name == name]:
            self.put("pods", one.uid, None)
        self.put("nodes", name, None)
        self.put("claims", name, None)

    def lose(self, which: int) -> None:
        """Somebody deletes a Node; its claim stays."""
        self.settle()
        if self.nodes:
            self.put("nodes", list(self.nodes)[which % len(self.nodes)], None)

    def taint(self, which: int, *, on: bool) -> None:
        """A disruption closes a node, or takes that back."""
        self.settle()
        there = [one for one in self.nodes.values() if any(map(is_disruption, one.spec.taints)) is not on]
        if there:
            self.close(there[which % len(there)], on=on)

    def close(self, one: Node, *, on: bool) -> None:
        """The taint of disruption, on or off."""
        taints = tuple(each for each in one.spec.taints if not is_disruption(each))
        spec = msgspec.structs.replace(one.spec, taints=(*taints, names.DISRUPTED_TAINT) if on else taints)
        self.put("nodes", one.metadata.name, seen_again(msgspec.structs.replace(one, spec=spec)))

    def interrupt(self, which: int) -> None:
        """A cloud takes an instance back: its claim says so, and its node is closed."""
        self.settle()
        there = [one for one in self.claims.values() if names.INTERRUPTION_ANNOTATION not in one.metadata.annotations]
        if there:
            one = there[which % len(there)]
            annotations = {**one.metadata.annotations, names.INTERRUPTION_ANNOTATION: "spot"}
            self.put("claims", one.metadata.name, seen_again(one, annotations=annotations))
            if one.metadata.name in self.nodes:
                self.close(self.nodes[one.metadata.name], on=True)

    def wait(self, seconds: float) -> None:
        """Both know who is bound before they judge what is over."""
        for who in ("state", "extender"):
            while self.told[who, "pods"]:
                self.tell(who, "pods")
        self.clock.advance(seconds)
        self.table.expire(self.clock.monotonic())
        self.carry_out(self.cluster.expire())

    # --- what both promise

    def promised(self) -> tuple[dict[str, Counter[PodFamily]], dict[str, Counter[PodFamily]]]:
        """For how many pods of each family each Node keeps room: as the state says, and as the extender does."""
        plans = self.cluster._plans
        state = {
            name: Counter(one.family for one in plans.assignments.on(plans._joining.key_of_name(name)))
            for name in self.nodes
        }
        extender = {name: Counter[PodFamily]() for name in self.nodes}
        self.table.room.planned  # noqa: B018 - counts are made when somebody asks
        for site in self.table.places.sites.values():
            extender.get(site.node, Counter()).update({one: room.held for one, room in site.rooms.items() if room.held})
        return state, extender


def is_disruption(taint: Taint) -> bool:
    return taint.key == names.DISRUPTED_TAINT.key


UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
small = st.integers(0, 3)


def step(
    name: str, *args: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> st.SearchStrategy[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """A call of a method of `Twins`."""
    return st.tuples(st.just(name), st.tuples(*args), st.fixed_dictionaries(named))


#: What happens, and how often; `one_of` would take each but once.
STEPS = st.sampled_from(
    [
        *[step("arrive", small, st.sampled_from((0, 0, 0, 1)), small, gates=st.sampled_from((0, 0, 2)))] * 4,
        *[step("buy", small)] * 4,
        *[step("keep", small, small)] * 2,
        *[step("replan", small)] * 2,
        *[step("step", small)] * 3,
        *[step("open", small)] * 5,
        *[step("bind", small, small)] * 8,
        *[step("end", st.integers(0, 9), slowly=st.booleans())] * 2,
        step("reshape", small),
        step("drain", small),
        step("remove", small),
        step("lose", small),
        step("taint", small, on=st.booleans()),
        step("interrupt", small),
        *[step("wait", st.sampled_from((1.0, 20.0, 31.0, 60.0, 121.0, 901.0)))] * 2,
        *[step("tell", st.sampled_from(("state", "extender")), st.sampled_from(("pods", "nodes", "claims")))] * 4,
        step("restart", st.sampled_from(("state", "extender"))),
    ]
).flatmap(lambda one: one)


@settings(max_examples=WORLDS)
@given(st.lists(STEPS, min_size=30, max_size=60), st.randoms(use_true_random=False))
def test_the_same_events_promise_the_same_room_to_the_same_pods(history: list[Any], order: random.Random) -> None:
    """Each watch tells of its kind in order, the kinds as it comes, bindings before time is over; kube-scheduler goes by what the extender knows, and nothing is lost at a restart."""
    world = Twins(order)
    for name, args, named in history:
        world.clock.advance(0.001)
        getattr(world, name)(*args, **named)
        if name in ("wait", "restart") or order.random() < 0.5:
            world.settle()
            state, extender = world.promised()
            assert extender == state


@settings(max_examples=WORLDS)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.integers(0, 600), st.sets(st.sampled_from("pqr"), min_size=1)),
        min_size=2,
        max_size=3,
    ),
    st.randoms(use_true_random=False),
)
def test_of_plans_that_name_the_same_pods_both_programs_go_by_the_later_one(
    plans: list[Any], order: random.Random
) -> None:
    """A leader that is lost while it moves pods to other NodeClaims leaves their former plans behind."""
    world = Twins(order)
    pods = {name: pod(name, owner="web") for name in "pqr"}
    for number, (created, planned, named) in enumerate(plans):
        name, at = f"c{number}", msgspec.UNSET if planned is None else NOON + timedelta(seconds=planned - 300)
        entries = decode_plan(plan_text(tuple(pods[one] for one in sorted(named)))).pods
        text = encode_plan(Plan.of(entries, HOLD_SECONDS, at))
        world.claims[name] = claim(
            name,
            provider_id=f"kwok://{name}",
            true=TRUE,
            annotations={names.PLAN_ANNOTATION: text},
            creationTimestamp=(NOON + timedelta(seconds=created - 3)).isoformat(),
        )
        world.nodes[name] = node(name, labels={names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"})
    world.pods = pods
    world.begin("extender")
    world.begin("state")
    world.settle()
    state, extender = world.promised()
    assert extender == state
    assert sum(map(Counter.total, state.values())) == len(set().union(*(named for _, _, named in plans)))
