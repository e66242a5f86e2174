"""Laws of the cluster state: whatever happens in whatever order, what is kept is what a state made anew would come to."""

import dataclasses
import itertools
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord, Replacement, encode_command
from provisioner.apis.core import (
    Container,
    CSIDriver,
    CSINode,
    DaemonSet,
    LabelledNamespace,
    LimitRange,
    Node,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PodLabelling,
    PodSpec,
    ResourceRequirements,
)
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod, PodAmounts
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.checking import CheckedCluster, StateDriftError, differences
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from provisioner.state.knowledge import KindKnowledge
from provisioner.values.resources import Resources
from tests.support.autoscalers import autoscaler
from tests.support.clock import NOON, RunningClock
from tests.support.cluster import TYPES, World, claim, node, pod, pool
from tests.support.problems import shape

NAMES = ("a", "b", "c")
PROVIDER_IDS = ("", "kwok://a", "kwok://b")
PODS = ("p1", "p2", "p3", "p4")
STAGES = ((), (names.LAUNCHED,), (names.LAUNCHED, names.REGISTERED, names.INITIALIZED))
TAINTS: tuple[tuple[dict[str, str], ...], ...] = (
    (),
    ({"key": "karpenter.sh/unregistered", "effect": "NoExecute"},),
    ({"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"},),
    ({"key": "team", "effect": "NoSchedule"},),
)
TEXTS = (
    "",
    "0/2 nodes are available: 2 Insufficient cpu.",
    "0/3 nodes are available: 3 node(s) had untolerated taint(s).",
)

Step = Callable[[World], object]
some_pods = st.lists(st.sampled_from(PODS), max_size=3, unique=True)


def pods_of(world: World, uids: list[str]) -> tuple[Pod, ...]:
    """The pods as they are known, or as they were made; those that run as they will be elsewhere, as whoever plans them has them."""
    predictions = world.cluster.snapshot().predictions
    found = (world.cluster.pod(uid) or pod(uid) for uid in uids)
    return tuple(predictions.readmitted(one) if one.node_name else one for one in found)


def amounts(cpu: str) -> PodAmounts:
    """Of a pod of one container."""
    return PodAmounts(PodSpec(containers=(Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu})),)))


AMOUNTS = {cpu: amounts(cpu) for cpu in ("1", "3")}


def recommend(cpu: str, there: bool) -> Step:
    one = autoscaler("v", namespace="default", target=("ReplicaSet", "rs"), c={"cpu": cpu})
    return lambda world: world.cluster.autoscaler_changed(None if there else one, one if there else None)


def put_node(name: str, provider_id: str, taints: int, *, going: bool) -> Step:
    changes: dict[str, Any] = {"deletionTimestamp": NOON.isoformat()} if going else {}

    def step(world: World) -> object:
        one = node(name, taints=TAINTS[taints], labels={names.NODEPOOL_LABEL: "general"}, **changes)
        one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, provider_id=provider_id))
        return world.cluster.node_changed(world.cluster.node(name), one)

    return step


def drop_node(name: str) -> Step:
    def step(world: World) -> object:
        found = world.cluster.node(name)
        return world.cluster.node_changed(found, None) if found is not None else None

    return step


def put_claim(name: str, provider_id: str, stage: int, uids: list[str], *, going: bool) -> Step:
    changes: dict[str, Any] = {"deletionTimestamp": NOON.isoformat()} if going else {}
    if going and len(uids) == 2:
        changes["annotations"] = {names.INTERRUPTION_ANNOTATION: "{}"}

    def step(world: World) -> object:
        one = claim(name, pods=pods_of(world, uids), provider_id=provider_id, true=STAGES[stage], **changes)
        return world.cluster.claim_changed(world.cluster.claim(name), one)

    return step


def drop_claim(name: str) -> Step:
    def step(world: World) -> object:
        found = world.cluster.claim(name)
        return world.cluster.claim_changed(found, None) if found is not None else None

    return step


def own_write(name: str, kind: str) -> Step:
    """The answer to a write of ours, or to a deletion; the watch has not told it yet."""

    def step(world: World) -> object:
        found: NodeClaim | Node | None = world.cluster.claim(name) if "claim" in kind else world.cluster.node(name)
        if found is None:
            return None
        version = str(int(found.metadata.resource_version) + 1)
        newer = msgspec.structs.replace(
            found, metadata=msgspec.structs.replace(found.metadata, resource_version=version, labels={"new": version})
        )
        match kind, newer:
            case "claim written", NodeClaim():
                return world.cluster.claim_written(newer)
            case "claim deleted", NodeClaim():
                return world.cluster.claim_deleted(newer)
            case "node written", Node():
                return world.cluster.node_written(newer)
            case _, Node():
                return world.cluster.node_deleted(newer)
            case _:
                return None

    return step


def announce(name: str, uids: list[str]) -> Step:
    def step(world: World) -> object:
        pods = pods_of(world, uids)
        made = claim(name, pods=pods)
        return world.cluster.announce(
            msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid="")), pods
        )

    return step


def put_pod(uid: str, where: str, text: int, phase: str, kind: str, protected: str, cpu: str, *, deleted: bool) -> Step:
    def step(world: World) -> object:
        one = pod(
            uid,
            cpu=cpu,
            amounts=AMOUNTS[cpu],
            node=where,
            kind=kind,
            phase=phase,
            deleted=NOON if deleted else None,
            unschedulable=bool(text),
            scheduled_message=TEXTS[text],
            start_time=NOON,
            annotations={names.DO_NOT_DISRUPT: protected} if protected else {},
        )
        return world.cluster.pod_changed(world.cluster.pod(uid), one)

    return step


def drop_pod(uid: str) -> Step:
    def step(world: World) -> object:
        found = world.cluster.pod(uid)
        return world.cluster.pod_changed(found, None) if found is not None else None

    return step


def daemon_set(cpu: str, there: bool) -> Step:
    body = {
        "metadata": {"name": "rs", "namespace": "default", "uid": "rs"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}},
    }
    one = msgspec.convert(body, DaemonSet)
    return lambda world: world.cluster.daemonset_changed(None if there else one, one if there else None)


def limit_range(cpu: str, there: bool) -> Step:
    item = {"type": "Container", "defaultRequest": {"memory": cpu}, "min": {"cpu": "500m"}}
    body = {"metadata": {"name": "r", "namespace": "default"}, "spec": {"limits": [item]}}
    one = msgspec.convert(body, LimitRange)
    return lambda world: world.cluster.admission_changed(None if there else one, one if there else None)


def csi_node(name: str, count: int) -> Step:
    drivers = [{"name": "disk", "nodeID": name, "allocatable": {"count": count}}] if count else []
    one = msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode)
    return lambda world: world.cluster.csi_node_changed(None, one)


def csi_driver(required: bool) -> Step:
    body = {"metadata": {"name": "disk"}, "spec": {"preventPodSchedulingIfMissing": required}}
    one = msgspec.convert(body, CSIDriver)
    return lambda world: world.cluster.csi_driver_changed(None, one)


def budget(there: bool) -> Step:
    body = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"maxUnavailable": 0, "selector": {}}}
    one = msgspec.convert(body, PodDisruptionBudget)
    return lambda world: world.cluster.budget_changed(None if there else one, one if there else None)


def put_pool(cpu: str) -> Step:
    one = pool(limits={"cpu": cpu}) if cpu else pool()
    return lambda world: world.cluster.pool_changed(world.cluster._usage.pool("general"), one)


def drop_pool(world: World) -> object:
    found = world.cluster._usage.pool("general")
    return world.cluster.pool_changed(found, None) if found is not None else None


def sell(factor: int) -> Step:
    """Another catalogue, or none, as for a NodePool that is gone; the state is not told."""

    def bigger(one: InstanceType) -> InstanceType:
        capacity = Resources.of({name: factor * amount for name, amount in one.capacity.items()})
        return dataclasses.replace(one, capacity=capacity)

    def step(world: World) -> object:
        world.types = {name: bigger(one) for name, one in TYPES.items() if name.startswith("c-4x")} if factor else {}
        return None

    return step


def assign(key: NodeKey, uids: list[str]) -> Step:
    return lambda world: world.cluster.assign(key, pods_of(world, uids))


def record(candidates: list[str], replacement: str, number: int) -> CommandRecord:
    return CommandRecord(
        id=f"command-{number}",
        reason="Drifted",
        method="drift",
        candidates=tuple(CandidateRecord(name, f"uid-{name}") for name in sorted(candidates)),
        replacements=(Replacement(replacement),) if replacement else (),
    )


def begin_command(candidates: list[str], replacement: str, number: int) -> Step:
    return lambda world: world.cluster.command_begun(record(candidates, replacement, number))


def drop_command(candidates: list[str], number: int) -> Step:
    return lambda world: world.cluster.command_dropped(record(candidates, "", number))


def write_command(candidates: list[str], replacement: str, number: int, *, going: bool) -> Step:
    """The record comes by the watch: on a node that may be there already, with others in it that may not."""
    one = record(candidates, replacement, number)
    changes: dict[str, Any] = {"deletionTimestamp": NOON.isoformat()} if going else {}

    def step(world: World) -> object:
        known = world.cluster.claim(one.holder)
        provider_id = known.status.provider_id if known is not None else f"kwok://{one.holder}"
        annotations = {names.COMMAND_ANNOTATION: encode_command(one)}
        put = claim(one.holder, provider_id=provider_id, true=STAGES[2], annotations=annotations, **changes)
        return world.cluster.claim_changed(known, put)

    return step


def come(uid: str, scheduler: str, *, gated: bool, awaiting: bool) -> Step:
    """An unbound pod that nobody has refused yet."""
    labels = {names.IMAGE_ARCH_PENDING: "true"} if awaiting else {}

    def step(world: World) -> object:
        one = pod(uid, shape=shape(cpu="1", scheduler_name=scheduler), gated=gated, labels=labels)
        return world.cluster.pod_changed(world.cluster.pod(uid), one)

    return step


def report(uids: list[str]) -> Step:
    return lambda world: world.cluster.reported(uids)


def wait(seconds: float) -> Step:
    def step(world: World) -> object:
        world.clock.advance(seconds)
        return world.cluster.expire()

    return step


some_claims = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)
keys = st.builds(NodeKey, st.sampled_from(NAMES), st.booleans())
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(put_node, st.sampled_from(NAMES), st.sampled_from(PROVIDER_IDS), st.integers(0, 3), going=st.booleans()),
    st.builds(drop_node, st.sampled_from(NAMES)),
    st.builds(
        put_claim,
        st.sampled_from(NAMES),
        st.sampled_from(PROVIDER_IDS),
        st.integers(0, 2),
        some_pods,
        going=st.sampled_from((False, False, True)),
    ),
    st.builds(drop_claim, st.sampled_from(NAMES)),
    st.builds(
        own_write,
        st.sampled_from(NAMES),
        st.sampled_from(("claim written", "claim deleted", "node written", "node deleted")),
    ),
    st.builds(announce, st.sampled_from(("d", "a")), some_pods),
    st.sampled_from(("d", "a")).map(lambda name: lambda world: world.cluster.claim_failed(name)),
    st.builds(
        put_pod,
        st.sampled_from(PODS),
        st.sampled_from(("", "", *NAMES)),
        st.integers(0, 2),
        st.sampled_from(("Pending", "Running", "Running", "Succeeded")),
        st.sampled_from(("ReplicaSet", "ReplicaSet", "DaemonSet", "StatefulSet")),
        st.sampled_from(("", "", "true", "1h")),
        st.sampled_from(("1", "1", "3")),
        deleted=st.sampled_from((False, False, True)),
    ),
    st.builds(drop_pod, st.sampled_from(PODS)),
    st.builds(assign, keys, some_pods),
    st.builds(begin_command, some_claims, st.sampled_from(("", "c", "d")), st.integers(0, 1)),
    st.builds(drop_command, some_claims, st.integers(0, 1)),
    st.builds(
        write_command,
        some_claims,
        st.sampled_from(("", "c", "d")),
        st.integers(0, 1),
        going=st.sampled_from((False, False, True)),
    ),
    st.builds(wait, st.sampled_from((0.0, 2.0, 31.0, 121.0, 901.0, 3700.0))),
    st.builds(daemon_set, st.sampled_from(("100m", "2")), st.booleans()),
    st.builds(recommend, st.sampled_from(("2", "3")), st.booleans()),
    st.sampled_from(KindKnowledge).map(lambda known: lambda world: world.cluster.predictions_known(known)),
    st.builds(limit_range, st.sampled_from(("1Gi", "2Gi")), st.booleans()),
    st.builds(csi_node, st.sampled_from(NAMES), st.integers(0, 2)),
    st.builds(budget, st.booleans()),
    st.builds(put_pool, st.sampled_from(("", "8", "64"))),
    st.just(drop_pool),
    st.builds(sell, st.integers(0, 2)),
    st.just(lambda world: world.cluster.snapshot()),
)
moments: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        come,
        st.sampled_from(PODS),
        st.sampled_from((names.DEFAULT_SCHEDULER_NAME, names.DEFAULT_SCHEDULER_NAME, "volcano")),
        gated=st.sampled_from((False, False, True)),
        awaiting=st.booleans(),
    ),
    st.builds(report, some_pods),
    st.builds(wait, st.sampled_from((0.0, 0.2, 4.6))),
)


class Hurried(World):
    """A world whose time passes while it is looked at, and in which kube-scheduler is given a while; compared by who asks for it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = RunningClock(0.07)
        self.cluster = Cluster(lambda _: self.types, self.clock, grace=timedelta(milliseconds=300))  # type: ignore[assignment]
        self.cluster.settle()


def started(kind: type[World] = World) -> World:
    """A world in which something goes on: two nodes, one of which goes with a pod on it, a claim in flight, pods that wait."""
    world = kind()  # compares itself after every event
    world.cluster.pool_changed(None, pool(limits={"cpu": "64"}))
    world.existing_node("a")
    world.existing_node("b")
    world.add(pod("p1", node="b"), pod("p2"), pod("p3"))
    put_node("b", "kwok://b", 2, going=False)(world)
    put_claim("c", "", 0, ["p2"], going=False)(world)
    return world


histories = st.lists(steps, min_size=5, max_size=40)


@given(histories)
def test_what_is_kept_by_increments_is_what_follows_from_the_facts(history: list[Step]) -> None:
    world = started()
    for step in history:
        step(world)  # raises StateDriftError where they differ
    assert not list(differences(world.cluster))


@given(st.lists(st.one_of(steps, *[moments] * 6), min_size=5, max_size=40))
def test_time_that_passes_while_states_are_compared_is_no_difference(history: list[Step]) -> None:
    world = started(Hurried)
    for step in history:
        step(world)
        assert not list(differences(world.cluster))


@given(histories)
def test_a_pod_waits_or_has_a_place_and_every_place_is_on_a_node_that_stays(history: list[Step]) -> None:
    world = started()
    for step in history:
        step(world)
        snapshot = world.cluster.snapshot()
        assigned = {one.uid for view in snapshot.nodes for one in view.assigned}
        assert not assigned & {one.uid for one in snapshot.pending}
        assert not assigned & {one.uid for one in snapshot.leaving}
        for view in snapshot.nodes:
            gone = view.claim is not None and view.claim.metadata.deletion_timestamp is not None
            assert view.deleting or not view.command
            assert Resources.total(one.shape.requests for one in view.assigned).fits(view.planned)
            assert not (view.nominated and (gone or (view.ambiguous and view.claim is not None)))


@given(histories)
def test_an_old_snapshot_never_changes(history: list[Step]) -> None:
    world = started()
    taken = []
    for step in history:
        step(world)
        snapshot = world.cluster.snapshot()
        taken.append((snapshot, repr(snapshot)))
    for snapshot, text in taken:
        assert repr(snapshot) == text


def test_a_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world, told = World(), list[str]()
    world.existing_node("a")
    view = world.view("a")
    world.cluster._views.views._entries.clear()
    world.cluster._views.views._frozen = ()
    with pytest.raises(StateDriftError, match=r"snapshot\.nodes: kept \(\), made anew"):
        world.cluster.expire()
    silent = CheckedCluster(lambda _: {}, world.clock, drifted=told.append)
    silent.settle()
    silent.claim_changed(None, claim("a"))
    silent._joining._instances.claims.put("b", "x")
    silent.expire()
    assert view.initialized
    assert told == []
    silent._pods._waiting["ghost"] = pod("ghost")
    silent.expire()
    assert told


# --- what is gone is forgotten -----------------------------------------------------------------------------------

LIVES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1_700
"""Of up to two pods, three claims and two Nodes each."""


def a_life(number: int, draw: random.Random) -> Iterator[Step]:
    """Two claims, their Nodes and two pods of names of their own: what happens to them in some order, and then all of them are gone."""
    names = [f"n{number}", f"m{number}"]
    uids = [f"p{number}", f"q{number}"]

    def some() -> list[str]:
        return draw.sample(uids, draw.randint(0, 2))

    def one() -> str:
        return draw.choice(names)

    makers: tuple[Callable[[], Step], ...] = (
        lambda: put_node(
            name := one(), draw.choice(("", f"kwok://{name}")), draw.randrange(4), going=draw.random() < 0.2
        ),
        lambda: drop_node(one()),
        lambda: put_claim(
            name := one(), draw.choice(("", f"kwok://{name}")), draw.randrange(3), some(), going=draw.random() < 0.2
        ),
        lambda: drop_claim(one()),
        lambda: own_write(one(), draw.choice(("claim written", "claim deleted", "node written", "node deleted"))),
        lambda: announce(f"o{number}", some()),
        lambda: put_pod(
            draw.choice(uids),
            draw.choice(("", *names)),
            draw.randrange(3),
            draw.choice(("Pending", "Running", "Running", "Succeeded")),
            draw.choice(("ReplicaSet", "DaemonSet", "StatefulSet")),
            draw.choice(("", "true", "1h")),
            "1",
            deleted=draw.random() < 0.3,
        ),
        lambda: drop_pod(draw.choice(uids)),
        lambda: assign(NodeKey(one(), draw.random() < 0.7), some()),
        lambda: begin_command([one()], draw.choice(("", f"o{number}")), number),
        lambda: drop_command([one()], number),
        lambda: write_command([one()], draw.choice(("", f"o{number}")), number, going=draw.random() < 0.3),
        lambda: csi_node(one(), draw.randrange(3)),
        lambda: csi_driver(draw.random() < 0.5),
        lambda: surroundings_of(f"s{number}", True),
        lambda: wait(draw.choice((0.0, 2.0, 31.0))),
    )
    for maker in draw.choices(makers, k=16):
        yield maker()
    ends = [drop_pod(uid) for uid in uids]
    for name in (*names, f"o{number}"):
        ends += [drop_node(name), drop_claim(name), csi_node_gone(name)]
    yield from draw.sample([*ends, surroundings_of(f"s{number}", False)], len(ends) + 1)


def csi_node_gone(name: str) -> Step:
    one = msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": []}}, CSINode)
    return lambda world: world.cluster.csi_node_changed(one, None)


def surroundings_of(namespace: str, there: bool) -> Step:
    """A namespace with what may be in it that pods and daemons are judged by."""
    meta = {"name": "x", "namespace": namespace, "uid": f"x-{namespace}"}
    spec = {"selector": {"app": "web"}}
    owner = msgspec.convert({"metadata": meta, "spec": {"template": {"spec": {"containers": []}}}}, DaemonSet)
    item = {"type": "Container", "min": {"cpu": "1m"}}
    limits = msgspec.convert({"metadata": meta, "spec": {"limits": [item]}}, LimitRange)
    sizer = autoscaler("x", namespace=namespace)
    guard = msgspec.convert({"metadata": meta, "spec": {"maxUnavailable": 0, "selector": {}}}, PodDisruptionBudget)
    space = msgspec.convert({"metadata": {"name": namespace}}, LabelledNamespace)
    volume = msgspec.convert({"metadata": meta, "spec": {}}, PersistentVolumeClaim)
    service = msgspec.convert({"metadata": meta, "spec": spec}, PodLabelling)

    def pair(one: Any) -> tuple[Any, Any]:
        return (None, one) if there else (one, None)

    def step(world: World) -> object:
        world.cluster.daemonset_changed(*pair(owner))
        world.cluster.admission_changed(*pair(limits))
        world.cluster.autoscaler_changed(*pair(sizer))
        world.cluster.budget_changed(*pair(guard))
        world.cluster.surrounding_changed(lambda keeper: keeper.namespace_changed(*pair(space)))
        world.cluster.surrounding_changed(lambda keeper: keeper.service_changed(*pair(service)))
        world.cluster.surrounding_changed(lambda keeper: keeper.claim_changed(*pair(volume)))
        return None

    return step


def sizes(root: object) -> Counter[str]:
    """How much every container has in it that an object of the rooms of state/ keeps, by the path of attributes that leads there."""
    found: Counter[str] = Counter()
    seen: set[int] = set()

    def look(one: object, path: str) -> None:
        if id(one) in seen:
            return
        if isinstance(one, dict | set | frozenset | list | tuple | deque | MappingProxyType):
            seen.add(id(one))
            found[path] += len(one)
            for each in one.values() if isinstance(one, dict | MappingProxyType) else one:
                look(each, f"{path}[]")
        elif type(one).__module__.startswith("provisioner.state."):
            seen.add(id(one))
            slots = {name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())}
            for name in sorted({*getattr(one, "__dict__", ()), *slots}):
                look(getattr(one, name, None), f"{path}.{name}")

    look(root, type(root).__name__)
    return found


def test_what_is_gone_is_forgotten() -> None:
    """Twelve thousand objects leave no trace: a process that runs for months has no more in memory than one that just began."""
    world = World()
    world.cluster = Cluster(lambda _: world.types, world.clock)  # type: ignore[assignment]  # without the comparison: O(cluster) an event
    world.cluster.settle()
    world.cluster.pool_changed(None, pool(limits={"cpu": "64"}))

    def live(numbers: range) -> Counter[str]:
        for first in range(numbers.start, numbers.stop, 20):
            lives = [list(a_life(number, random.Random(number))) for number in range(first, first + 20)]
            for together in itertools.zip_longest(*lives):
                for step in filter(None, together):
                    step(world)
        for _ in range(3):
            world.clock.advance(7200)
            world.cluster.expire()
        world.cluster.snapshot()
        return sizes(world.cluster)

    start = live(range(100))
    assert len(start) > 40, "the rooms of state/ keep more than this has found"
    end = live(range(100, LIVES))
    assert {path: (start[path], size) for path, size in end.items() if size > start[path]} == {}
