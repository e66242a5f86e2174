"""Of a launch set the scarcest are launched first: what follows from NodeClaims, launches and answers, in any order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.gangs import REQUEST_PREFIX, group_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.state import launch_sets
from provisioner.state.claim_plans import Launch
from provisioner.state.effects import LaunchSetTurned
from provisioner.state.keys import NodeKey
from provisioner.state.launch_sets import HEAD_START, LaunchSets, scarcity_of
from tests.support import cluster
from tests.support.clock import NOON
from tests.support.cluster import World

GPU = {"cpu": "1", "nvidia.com/gpu": "1"}


def member(
    name: str, sets: Mapping[str, int], types: int = 1, requests: Mapping[str, str] | None = None, **more: Any
) -> NodeClaim:
    """A NodeClaim of sets (by id how many they have) that so many instance types could be."""
    text = encode_sets([LaunchSet(id=one, group=f"default/gang/{one}", nodes=nodes) for one, nodes in sets.items()])
    made = cluster.claim(name, annotations={names.LAUNCH_SET: text}, **more)
    spec = msgspec.to_builtins(made.spec, str_keys=True)
    spec["requirements"] = [
        {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [f"t{number}" for number in range(types)]},
        {"key": names.ZONE_LABEL, "operator": "In", "values": ["a"]},
        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]},
    ]
    spec["resources"] = {"requests": dict(requests or {"cpu": "1"})}
    return msgspec.structs.replace(made, spec=msgspec.convert(spec, type(made.spec), strict=False))


SCARCER = {
    "accelerators before what only one offering gives": (member("a", {}, 60, GPU), member("b", {}, 1)),
    "one offering before two": (member("a", {}, 1), member("b", {}, 2)),
    "any zone is many": (member("a", {}, 60), cluster.claim("b")),
}


@pytest.mark.parametrize(("scarce", "other"), SCARCER.values(), ids=SCARCER)
def test_what_is_scarcer(scarce: NodeClaim, other: NodeClaim) -> None:
    assert scarcity_of(scarce) < scarcity_of(other)


def test_nearly_as_many_offerings_are_as_scarce() -> None:
    assert scarcity_of(member("a", {}, 40)) == scarcity_of(member("b", {}, 60))


def world() -> World:
    """Two that are scarce, and two that are not."""
    made = World()
    for name in ("scarce-1", "scarce-2"):
        made.cluster.claim_changed(None, member(name, {"x": 4}, 1))
    for name in ("other-1", "other-2"):
        made.cluster.claim_changed(None, member(name, {"x": 4}, 60))
    return made


def begins(made: World) -> dict[str, bool]:
    return {
        name: made.cluster.launch_begins(name) is Launch.BEGIN
        for name in ("other-1", "scarce-1", "scarce-2", "other-2")
    }


SCARCE_ONLY = {"other-1": False, "scarce-1": True, "scarce-2": True, "other-2": False}


def launched(made: World, name: str) -> None:
    old = made.cluster.claim(name)
    assert old is not None
    made.cluster.claim_changed(old, member(name, {"x": 4}, 1, provider_id=f"kwok://{name}", true=(names.LAUNCHED,)))


def test_the_others_follow_once_all_of_the_scarcest_are_launched() -> None:
    made = world()
    assert begins(made) == SCARCE_ONLY
    launched(made, "scarce-1")
    assert made.cluster.launch_begins("other-1") is Launch.HELD
    launched(made, "scarce-2")
    assert made.cluster.launch_begins("other-1") is made.cluster.launch_begins("other-2") is Launch.BEGIN


def test_who_waits_is_told_at_once() -> None:
    made = world()
    begins(made)
    launched(made, "scarce-1")
    old = made.cluster.claim("scarce-2")
    effects = made.cluster.claim_changed(old, member("scarce-2", {"x": 4}, 1, provider_id="kwok://scarce-2"))
    told = {one.claim for one in effects if isinstance(one, LaunchSetTurned)}
    assert {"other-1", "other-2"} <= told


def test_without_an_answer_they_follow_after_two_seconds() -> None:
    made = world()
    begins(made)
    made.clock.advance(HEAD_START - 0.1)
    assert made.cluster.launch_begins("other-1") is Launch.HELD
    made.clock.advance(0.2)
    assert made.cluster.launch_begins("other-1") is Launch.BEGIN


def test_where_the_scarcest_are_refused_nothing_is_bought_and_the_next_answer_is_waited_for() -> None:
    made = world()
    begins(made)
    made.cluster.launch_refused("scarce-1")
    made.clock.advance(10 * HEAD_START)
    assert made.cluster.launch_begins("other-1") is Launch.HELD
    assert made.cluster.launch_begins("scarce-1") is Launch.BEGIN
    assert made.cluster.launch_begins("other-1") is Launch.HELD
    made.clock.advance(HEAD_START + 0.1)
    assert made.cluster.launch_begins("other-1") is Launch.BEGIN


@pytest.mark.parametrize("group", ["default/gang/train/rs/2", f"default/gang/{REQUEST_PREFIX}uid/2"])
@pytest.mark.parametrize("gang", ["", "train", "other"])
def test_a_node_that_other_pods_need_waits_for_none_that_is_scarcer(group: str, gang: str) -> None:
    """They would wait for as long as that cannot be had, which may be for ever where only a ProvisioningRequest needs both."""
    made, sets = World(), encode_sets([LaunchSet(id="x", group=group, nodes=2)])
    one = cluster.pod("p", annotations={names.GANG: gang, names.GANG_MINIMUM: "2"} if gang else {})
    made.add(one)
    for name, types in (("scarce", 1), ("other", 60)):
        found = member(name, {}, types)
        meta = msgspec.structs.replace(found.metadata, annotations={names.LAUNCH_SET: sets})
        made.cluster.claim_changed(None, msgspec.structs.replace(found, metadata=meta))
    assert not made.cluster.assign(NodeKey("other"), (one,))
    assert made.cluster.launch_begins("scarce") is Launch.BEGIN
    made.cluster.launch_refused("scarce")
    made.clock.advance(10 * HEAD_START)
    own = group_of(one) == group
    assert own is (gang == "train" and REQUEST_PREFIX not in group)
    assert made.cluster.launch_begins("other") is (Launch.HELD if own else Launch.BEGIN)


def test_what_may_have_begun_under_another_leader_goes_on() -> None:
    made = World()
    made.cluster.claim_changed(None, member("scarce", {"x": 2}, 1))
    old = member("other", {"x": 2}, 60)
    marked = {**old.metadata.annotations, names.LAUNCH_ANNOTATION: "batch/1/0"}
    made.cluster.claim_changed(
        None, msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, annotations=marked))
    )
    assert made.cluster.launch_begins("other") is Launch.BEGIN


def test_once_the_scarcest_go_all_are_planned_again() -> None:
    made = world()
    begins(made)
    for name in ("scarce-1", "scarce-2"):
        made.cluster.launch_refused(name)
        old = made.cluster.claim(name)
        assert old is not None
        made.cluster.claim_changed(old, None)
    assert made.cluster.launch_begins("other-1") is Launch.UNNEEDED


def unwritten(one: NodeClaim) -> NodeClaim:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid=""))


def chain() -> dict[str, NodeClaim]:
    """Sets of two each, of which each has a NodeClaim in common with the next."""
    sets = {"a": ("x",), "b": ("x", "y"), "c": ("y", "z"), "d": ("z",)}
    return {name: member(name, dict.fromkeys(mine, 2)) for name, mine in sets.items()}


def chained(made: World) -> dict[str, NodeClaim]:
    """All are announced, and all but the last are written."""
    found = chain()
    assert made.cluster.announce_all([(unwritten(one), ()) for one in found.values()]) is True
    for name in "abc":
        made.cluster.claim_changed(None, found[name])
    return found


def test_sets_that_share_nodes_wait_until_all_of_them_are_written() -> None:
    """Where the last cannot be written, those before it go one after another: what was launched of them would be paid for in vain."""
    made = World()
    found = chained(made)
    assert {made.cluster.launch_begins(name) for name in "abc"} == {Launch.HELD}
    effects = made.cluster.claim_changed(None, found["d"])
    assert {one.claim for one in effects if isinstance(one, LaunchSetTurned)} == {*"abcd"}
    assert {made.cluster.launch_begins(name) for name in "abcd"} == {Launch.BEGIN}


def test_of_sets_that_share_nodes_none_is_launched_where_one_never_comes_to_be() -> None:
    made = World()
    found = chained(made)
    made.cluster.claim_failed("d")
    for name, before in (("c", "b"), ("b", "a")):
        assert made.cluster.launch_begins(name) is Launch.UNNEEDED
        assert made.cluster.launch_begins(before) is Launch.HELD
        made.cluster.claim_changed(found[name], None)
    assert made.cluster.launch_begins("a") is Launch.UNNEEDED
    assert not made.cluster._joining.sets._shared


def test_a_set_of_which_a_launch_has_begun_waits_for_no_other() -> None:
    made, found = World(), chain()
    begun = {**found["a"].metadata.annotations, names.LAUNCH_ANNOTATION: "batch/1/0"}
    found["a"] = msgspec.structs.replace(
        found["a"], metadata=msgspec.structs.replace(found["a"].metadata, annotations=begun)
    )
    for name in "abc":  # a new leader finds no more
        made.cluster.claim_changed(None, found[name])
    assert made.cluster.launch_begins("a") is Launch.BEGIN
    assert made.cluster.launch_begins("c") is Launch.UNNEEDED
    assert made.cluster.launch_begins("b") is Launch.HELD, "the next may go"


class Looks(dict[str, Any]):
    """What is known by name, and how often something of it was looked at."""

    count = 0

    def __getitem__(self, name: str) -> Any:
        self.count += 1
        return super().__getitem__(name)


def test_that_many_sets_share_many_nodes_costs_no_more_than_these() -> None:
    """Forty gangs, each of which has pods on each of twenty nodes; the owner serialises all calls, so everybody would wait."""
    made, gangs = World(), {f"g{number}": 20 for number in range(40)}
    found = {f"n{number}": member(f"n{number}", gangs) for number in range(20)}
    assert made.cluster.announce_all([(unwritten(one), ()) for one in found.values()]) is True
    sets = made.cluster._joining.sets
    looks = sets._claims = Looks(sets._claims)
    for one in found.values():
        made.cluster.claim_changed(None, one)
    assert looks.count <= 20, "once, when the last is written"
    assert not sets.is_coming("n0")
    assert looks.count <= 2 * 20


@dataclass(frozen=True)
class Known:
    """One NodeClaim, as the model has it."""

    scarcity: int
    sets: tuple[str, ...]
    launched: bool = False
    going: bool = False
    begun: bool = False
    refused: bool = False


@dataclass
class Model:
    """The rule, from all NodeClaims anew."""

    claims: dict[str, Known] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)

    def waits(self, name: str, now: float) -> bool:
        mine, waits = self.claims.get(name), False
        for key in mine.sets if mine is not None and not mine.begun else ():
            there = [one for one in self.claims.values() if key in one.sets and not one.going]
            first = min((one.scarcity for one in there), default=0)
            open_ = [one for one in there if one.scarcity == first and not one.launched]
            if open_ and mine is not None and mine.scarcity != first:
                since = self.asked.setdefault(key, now)
                waits = waits or any(one.refused for one in open_) or now - since < HEAD_START
        return waits

    def forget_sets(self) -> None:
        live = {key for one in self.claims.values() for key in one.sets}
        self.asked = {key: at for key, at in self.asked.items() if key in live}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "launched", "going", "drop", "begins", "refused", "waits", "later"]),
        st.sampled_from("abcd"),
        st.sampled_from([1, 2, 8]),
        st.sampled_from([("x",), ("y",), ("x", "y")]),
    ),
    max_size=30,
)


def play(events: list[tuple[str, str, int, tuple[str, ...]]]) -> None:
    real, model, now = LaunchSets(), Model(), 0.0
    made: dict[str, NodeClaim] = {}
    for event, name, types, sets in events:
        known = model.claims.get(name)
        match event:
            case "put" if known is None:
                made[name] = member(name, dict.fromkeys(sets, 4), types)
                real.put(made[name])
                model.claims[name] = Known(types, sets)
            case "launched" if known is not None:
                status = msgspec.structs.replace(made[name].status, provider_id=f"kwok://{name}")
                made[name] = msgspec.structs.replace(made[name], status=status)
                real.put(made[name])
                model.claims[name] = replace(known, launched=True, begun=True, refused=False)
            case "going" if known is not None:
                meta = msgspec.structs.replace(made[name].metadata, deletion_timestamp=NOON + timedelta(seconds=now))
                made[name] = msgspec.structs.replace(made[name], metadata=meta)
                real.put(made[name])
                model.claims[name] = replace(known, going=True)
            case "drop" if known is not None:
                real.drop(name)
                del model.claims[name]
                model.forget_sets()
            case "begins" if known is not None:
                real.begins(name, now)
                if known.refused:
                    model.asked |= dict.fromkeys(known.sets, now)
                model.claims[name] = replace(known, begun=True, refused=False)
            case "refused" if known is not None:
                real.refused(name)
                model.claims[name] = replace(known, refused=not known.launched)
            case "later":
                now += HEAD_START / 2
            case _:
                pass
        for one in "abcd" if event == "waits" else ():
            assert bool(real.awaits_scarcer(one, now)) == model.waits(one, now), one


@given(EVENTS)
def test_the_rule_holds_after_whatever_happens(events: list[tuple[str, str, int, tuple[str, ...]]]) -> None:
    play(events)


def test_nothing_is_kept_of_sets_that_are_gone() -> None:
    made = LaunchSets()
    for name in "ab":
        made.put(member(name, {"x": 2}, 1 if name == "a" else 9))
        made.awaits_scarcer(name, 0.0)
    for name in "ab":
        made.drop(name)
    assert not made._tallies
    assert not made._asked


PLAYS = (
    test_the_others_follow_once_all_of_the_scarcest_are_launched,
    test_without_an_answer_they_follow_after_two_seconds,
    test_where_the_scarcest_are_refused_nothing_is_bought_and_the_next_answer_is_waited_for,
    test_what_may_have_begun_under_another_leader_goes_on,
)
_scarcest = LaunchSets._scarcest
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "all at once": (LaunchSets, "awaits_scarcer", lambda *_: False),
    "the most common first": (launch_sets, "scarcity_of", lambda claim: (True, -scarcity_of(claim)[1])),
    "a refusal is as good as an instance": (LaunchSets, "refused", lambda *_: None),
    "they wait for ever": (launch_sets, "HEAD_START", float("inf")),
    "one of the scarcest is enough": (
        LaunchSets,
        "_scarcest",
        lambda self, key: (
            (found := _scarcest(self, key))[0],
            found[1]._replace(left=found[1].left if found[1].left == found[1].there else 0),
        ),
    ),
}


def fails() -> bool:
    for one in PLAYS:
        try:
            one()
        except Exception:  # noqa: BLE001 - whatever a defect leads to
            return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_of_the_order_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, value = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, value)
    assert fails()
