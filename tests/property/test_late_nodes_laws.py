"""Laws of nodes that lack what their planned pods need: in whatever order kubelets, drivers and kube-scheduler act, and are seen to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import CSIDriver, CSINode, Node
from provisioner.apis.pods import Pod
from provisioner.state.effects import Effect, PodMissed
from provisioner.state.keys import NodeKey
from provisioner.state.misses import MARGIN_SECONDS, PATIENCE_SECONDS, UNANSWERED, is_relative
from tests.support.cluster import World, claim, node, pod, refused
from tests.support.problems import DRIVER, shape, storage_class, uses, volume_claim

A = NodeKey("a")
GPU = "nvidia.com/gpu"
SHAPES = {"gpu": shape(more={GPU: "1"}), "disk": shape(volumes=uses("data")), "plain": shape("2")}
NEEDS = {"gpu": GPU, "disk": DRIVER, "plain": ""}
TEXTS = (
    "0/3 nodes are available: 3 Insufficient cpu.",
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.",
    "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 Insufficient cpu.",
    "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 2 Insufficient cpu.",
    "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 Insufficient cpu.",
)


@dataclass
class Play:
    """A node with three planned pods, and what was seen of it.

    Attributes:
        there: what the node has of what pods need.
        since: when each thing came last; minus infinity where it never was missing.
        told: which pod was missed, why and when.
    """

    world: World = field(default_factory=World)
    there: set[str] = field(default_factory=set)
    since: dict[str, float] = field(default_factory=dict)
    told: list[tuple[str, str, float]] = field(default_factory=list)
    late: dict[str, Pod] = field(default_factory=dict)

    def begin(self, there: set[str]) -> None:
        world, self.there = self.world, there
        self.since = dict.fromkeys(there, float("-inf"))
        world.cluster.csi_driver_changed(
            None, msgspec.convert({"metadata": {"name": DRIVER}, "spec": {}}, CSIDriver, strict=False)
        )
        world.cluster.surrounding_changed(lambda around: around.claim_changed(None, volume_claim("data")))
        world.cluster.surrounding_changed(lambda around: around.class_changed(None, storage_class()))
        for name in ("x", "y"):
            world.cluster.node_changed(None, node(name))
        pods = tuple(pod(uid, owner=f"owner-{uid}", shape=of) for uid, of in SHAPES.items())
        world.add(*pods)
        world.cluster.claim_changed(None, claim("a", pods=pods, provider_id="kwok://a", true=(names.LAUNCHED,)))
        world.cluster.node_changed(
            None, self._node(taints=({"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"},))
        )
        self._say_drivers()
        world.cluster.node_changed(world.cluster.node("a"), self._node())

    def _node(self, **given: tuple[dict[str, str], ...]) -> Node:
        made = node("a", **given)  # type: ignore[arg-type]
        amounts = {**made.status.allocatable, **({GPU: "1"} if GPU in self.there else {})}
        return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, allocatable=amounts))

    def _say_drivers(self) -> None:
        drivers = [{"name": DRIVER, "nodeID": "a"}] if DRIVER in self.there else []
        self.world.cluster.csi_node_changed(
            None, msgspec.convert({"metadata": {"name": "a"}, "spec": {"drivers": drivers}}, CSINode)
        )

    def turns(self, thing: str) -> None:
        """A resource or a driver comes, or goes."""
        self.there ^= {thing}
        self.since[thing] = self.world.clock.monotonic()
        if thing == GPU:
            self.hear(self.world.cluster.node_changed(self.world.cluster.node("a"), self._node()))
        else:
            self._say_drivers()

    def says(self, uid: str, text: str, *, seen: bool) -> None:
        """kube-scheduler refuses a pod; where it is not `seen` now, the next thing that is seen of the pod is this."""
        known = self.world.cluster.pod(uid)
        assert known is not None
        if not seen:
            self.late.setdefault(uid, refused(known, text))
            return
        self.hear(self.world.cluster.pod_changed(known, self.late.pop(uid, None) or refused(known, text)))

    def passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.hear(self.world.cluster.expire())

    def lives(self) -> None:
        """The scheduler judges a pod of somebody else."""
        other = self.world.cluster.pod("other")
        if other is None:
            self.world.add(pod("other", owner="", cpu="999"))
            other = self.world.cluster.pod("other")
        assert other is not None
        text = TEXTS[0] if other.scheduled_message != TEXTS[0] else TEXTS[1]
        self.hear(self.world.cluster.pod_changed(other, refused(other, text)))

    def hear(self, effects: Sequence[Effect]) -> None:
        now = self.world.clock.monotonic()
        for one in effects:
            if isinstance(one, PodMissed):
                self.told.append((one.pod.uid, one.cause, now))
                need = NEEDS[one.pod.uid]
                assert not need or need in self.there, "it was refused for what the node lacks"
                if need and self.since[need] > float("-inf"):
                    least = PATIENCE_SECONDS if one.cause == UNANSWERED else MARGIN_SECONDS
                    assert now - self.since[need] >= least
                    known = self.world.cluster.node("a")
                    if need == GPU and one.cause != UNANSWERED and known is not None:
                        versions = (one.pod.resource_version, known.metadata.resource_version)
                        assert int(versions[0]) > int(versions[1]), "it was said before the resource came"


Step = Callable[[Play], object]
turns = st.sampled_from((GPU, DRIVER))


def histories_with(texts: Sequence[str]) -> st.SearchStrategy["History"]:
    """What may happen, where kube-scheduler says these things of pods."""
    common: st.SearchStrategy[Step] = st.one_of(
        st.builds(
            lambda uid, text, seen: lambda play: play.says(uid, text, seen=seen),
            st.sampled_from(sorted(SHAPES)),
            st.sampled_from(texts),
            st.booleans(),
        ),
        st.sampled_from((0.1, 0.5, 1.0, 2.0, 5.0, 9.0, 16.0)).map(lambda seconds: lambda play: play.passes(seconds)),
        st.just(Play.lives),
    )
    return st.lists(st.one_of(common.map(lambda step: ("", step)), turns.map(lambda one: (one, None))), max_size=30)


History = list[tuple[str, Step | None]]
histories = histories_with(TEXTS)


def played(history: History, there: set[str], *, without: bool = False) -> Play:
    play = Play()
    play.begin(there)
    for thing, step in history:
        if step is not None:
            step(play)
        elif not without:
            play.turns(thing)
    return play


@given(histories, st.sets(turns))
def test_no_pod_is_missed_for_what_its_node_lacks_or_lacked_until_a_moment_ago(
    history: History, there: set[str]
) -> None:
    played(history, there)  # `hear` asserts it


@given(histories_with([text for text in TEXTS if not is_relative(text)]), st.sets(turns))
def test_a_pod_that_needs_nothing_of_it_is_judged_as_if_nothing_were_late(history: History, there: set[str]) -> None:
    """But where it is refused for where others are: they may still come; and until nobody has answered for long, which is measured from when its batch
    last got anything.
    """
    late, never = played(history, there), played(history, {GPU, DRIVER}, without=True)
    told = [[one for one in play.told if one[0] == "plain"] for play in (late, never)]
    if UNANSWERED in {cause for some in told for _, cause, _ in some}:
        return
    assert told[0] == told[1]


@pytest.mark.parametrize("things", [{GPU}, {DRIVER}, {GPU, DRIVER}], ids=["a resource", "a driver", "both"])
def test_a_pod_that_is_refused_for_where_others_are_waits_for_those_that_wait_for_the_node(things: set[str]) -> None:
    refusal = next(text for text in TEXTS if is_relative(text))
    play = Play()
    play.begin({GPU, DRIVER} - things)
    play.says("plain", refusal, seen=True)
    assert play.told == []
    for thing in sorted(things):
        play.turns(thing)
    play.passes(0.0)
    assert [one[:2] for one in play.told] == [("plain", "resources")]


@given(histories, st.sets(turns), st.sampled_from(("gpu", "disk")))
def test_who_is_refused_once_all_is_there_is_missed_in_the_end(history: History, there: set[str], uid: str) -> None:
    play = played(history, there)
    if NEEDS[uid] not in play.there:
        play.turns(NEEDS[uid])
    play.late.pop(uid, None)
    play.passes(2.0)
    known = play.world.cluster.pod(uid)
    assert known is not None
    if play.world.cluster.is_planned(uid):
        play.says(uid, next(text for text in (TEXTS[3], TEXTS[2]) if text != known.scheduled_message), seen=True)
        play.lives()
        for _ in range(40):
            play.passes(1.0)
        assert not play.world.cluster.is_planned(uid)
        assert uid in {one for one, _, _ in play.told}
