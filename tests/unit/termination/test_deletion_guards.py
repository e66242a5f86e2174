"""Deletions that look like an accident wait until somebody confirms them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import ConfigMap
from provisioner.apis.karpenter import NodeClaim
from provisioner.kube import resources
from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.events import QUEUE_SIZE
from provisioner.state.confirmation import WINDOW, DeletionGuard, guard_of, mass_deleted
from provisioner.state.snapshot import Snapshot
from provisioner.support.metrics import REGISTRY
from provisioner.termination.deletion_guards import DeletionGuards
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod, pool
from tests.support.kube import FakeAnswer, Sent, refusal
from tests.support.worldserver import WorldServer

HOUR = timedelta(hours=1)
DEFINITION = "nodeclaims.karpenter.sh"
OWNER = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "general", "uid": "uid-general"}


class Guarded:
    """Guards over a world; its NodePool is there, and Dovetail has been installed for an hour."""

    def __init__(self, *, share: float = 0.0, installed: bool = True, read: bool = True) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.server.intercept = self.apply
        self.server.store("nodepools", msgspec.to_builtins(pool()))
        self.read, self.share = read, share
        self.confirmed_all = False
        if installed:
            self.install()
        self.guards = self.another()

    def another(self, installed: Callable[[], ConfigMap | None] | None = None) -> DeletionGuards:
        """The next leader's."""
        return DeletionGuards(
            self.world.cluster,
            self.server.client,
            self.server.writer,
            self.server.recorder,
            self.world.clock,
            installed=installed or self.installed,
            read=lambda: self.read,
            namespace="dovetail-system",
            share=self.share,
        )

    def install(self) -> None:
        meta = {"name": names.INSTALLATION_CONFIGMAP, "namespace": "dovetail-system"}
        self.server.store("configmaps", {"metadata": meta})

    def apply(self, sent: Sent) -> FakeAnswer | None:
        if "apply-patch" not in sent.content_type:
            return None
        self.install()
        return FakeAnswer(data=msgspec.json.encode(self.server.all("configmaps")[0]))

    def installed(self) -> ConfigMap | None:
        found = self.server.get("configmaps", names.INSTALLATION_CONFIGMAP, "dovetail-system")
        return msgspec.convert(found, ConfigMap, strict=False) if found is not None and self.read else None

    def put(self, *those: str, deleted: bool = False, **meta: Any) -> None:
        meta = {"ownerReferences": [OWNER], **meta}
        for name in those:
            self.server.put(claim(name, provider_id=f"kwok://{name}", **meta))
            if deleted:
                self.server.remove("nodeclaims", name)

    def claim(self, name: str) -> NodeClaim:
        found = self.world.cluster.claim(name)
        assert found is not None
        return found

    def held(self) -> dict[str, bool]:
        return {one.name: bool(self.guards.why(one)) for one in self.world.cluster.claims()}

    def confirm(self, name: str = "") -> None:
        patch = {"metadata": {"annotations": {names.CONFIRM_DELETION: "true"}}}
        if name:
            self.server.change("nodeclaims", name, patch)
        else:
            self.server.change("configmaps", names.INSTALLATION_CONFIGMAP, patch, "dovetail-system")
            self.confirmed_all = True


def awaiting(guard: str) -> float | None:
    return REGISTRY.get_sample_value("dovetail_nodeclaims_awaiting_confirmation", {"guard": guard})


def test_what_was_deleted_before_the_installation_waits_and_what_is_deleted_later_does_not() -> None:
    one = Guarded(installed=False)
    one.put("old", deleted=True)
    one.put("alive")
    one.world.clock.advance(1)
    one.guards.begin()
    assert one.installed() is not None, "written where there is none"
    one.world.clock.advance(1)
    one.put("new", deleted=True)
    one.guards.poll()
    assert one.held() == {"old": True, "new": False, "alive": False}
    assert guard_of(one.claim("old")) == "installation"
    assert one.server.recorder.said("AwaitsConfirmation", "NodeClaim")[0].startswith(
        "Deletion waits: it was deleted before Dovetail was installed"
    )
    assert awaiting("installation") == 1
    assert one.another().why(one.claim("old")), "whoever leads"
    one.confirm("old")
    one.guards.poll()
    assert (one.held()["old"], guard_of(one.claim("old")), awaiting("installation")) == (False, None, None)


def test_the_config_map_confirms_once_all_that_wait() -> None:
    one = Guarded(installed=False)
    one.put("a", "b", deleted=True)
    one.guards.begin()
    one.confirm()
    one.guards.poll()
    assert one.held() == {"a": False, "b": False}
    found = one.installed()
    assert found is not None
    assert found.metadata.annotations == {}, "it does not confirm the next accident"
    assert [one.claim(name).metadata.annotations[names.CONFIRM_DELETION] for name in "ab"] == ["true"] * 2


def test_a_config_map_that_is_written_anew_holds_what_is_being_deleted() -> None:
    one = Guarded()
    one.world.clock.advance(3600)
    one.put("a", deleted=True)
    one.guards.begin()
    assert one.held() == {"a": False}
    one.server.drop("configmaps", names.INSTALLATION_CONFIGMAP, "dovetail-system")
    one.guards.poll()
    assert one.held() == {"a": True}


def test_where_the_config_map_cannot_be_read_what_was_being_deleted_at_the_start_waits() -> None:
    one = Guarded(read=False)
    one.put("old", deleted=True)
    one.guards.begin()
    one.put("new", deleted=True)
    one.guards.poll()
    assert one.held() == {"old": True, "new": False}


def test_what_waited_while_the_date_was_unknown_goes_once_it_began_later() -> None:
    one = Guarded(read=False)
    one.world.clock.advance(3600)
    one.put("a", deleted=True, true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED))
    one.server.put(node("a"))
    one.world.add(pod("web", node="a"))
    one.guards.begin()
    assert (one.held(), guard_of(one.claim("a"))) == ({"a": True}, "installation")
    one.read = True
    one.guards.poll()
    assert (one.held(), guard_of(one.claim("a")), awaiting("installation")) == ({"a": False}, None, None)
    assert names.AWAITS_CONFIRMATION not in one.claim("a").metadata.annotations
    assert [each.name for each in one.world.cluster.snapshot().leaving] == ["web"], "its pods need another place"


ORDERS = ("a", "b", "confirm a", "unread", "read", "refuse", "drop", "make", "confirm all", "leader", "poll")


@given(st.lists(st.sampled_from(ORDERS), max_size=12), st.booleans())
def test_in_any_order_of_events_those_wait_that_began_before_the_installation_or_may_have(
    events: list[str], installed: bool
) -> None:
    """After each look, what is written on NodeClaims, what the drain asks and this small model say the same."""
    one = Guarded(installed=installed)
    one.world.clock.advance(60)
    marked = {"mass": DeletionGuard.CASCADE, "stale": DeletionGuard.INSTALLATION}  # by an earlier version or flag
    one.put("a", "b", "alive")
    for name, guard in marked.items():
        one.put(name, deleted=True, annotations={names.AWAITS_CONFIRMATION: guard.value})
    refused, began, waits, confirmed = False, set[str](), set(marked), set[str]()

    def apply(sent: Sent) -> FakeAnswer | None:
        return refusal(403) if refused and "apply-patch" in sent.content_type else one.apply(sent)

    one.server.intercept = apply
    for event in ("leader", *events, "poll"):
        one.world.clock.advance(1)
        match event:
            case "a" | "b":
                one.server.remove("nodeclaims", event)
            case "confirm a":
                one.confirm("a")
                confirmed.add("a")
            case "confirm all" if one.server.all("configmaps"):
                one.confirm()
            case "unread" | "read":
                one.read = event == "read"
            case "refuse":
                refused = not refused
            case "make" if not one.server.all("configmaps"):
                one.install()
            case "drop" if one.server.all("configmaps"):
                one.server.drop("configmaps", names.INSTALLATION_CONFIGMAP, "dovetail-system")
                one.confirmed_all = False
            case "leader" | "poll":
                going = {c.name: c.metadata.deletion_timestamp for c in one.world.cluster.claims()}
                if event == "leader":
                    one.guards, began = one.another(), {name for name, at in going.items() if at}
                    one.guards.begin()
                else:
                    one.guards.poll()
                known = one.installed()
                since = known.metadata.creation_timestamp if known is not None else None
                older = {name for name, at in going.items() if at and (name in began if since is None else at <= since)}
                waits = {"mass", *older, *(waits if since is None else ())} - confirmed
                if known is not None and one.confirmed_all:
                    confirmed, waits, one.confirmed_all = confirmed | waits, set(), False
                assert {name for name, held in one.held().items() if held} == waits
                assert {c.name for c in one.world.cluster.claims() if guard_of(c) is not None} == waits
                assert "mass" not in waits or guard_of(one.claim("mass")) is DeletionGuard.CASCADE
            case _:
                pass


def test_a_node_that_was_deleted_before_waits_and_one_that_is_deleted_by_itself_goes() -> None:
    one = Guarded(installed=False)
    one.server.put(
        node("a", finalizers=[names.TERMINATION_FINALIZER]), node("b", finalizers=[names.TERMINATION_FINALIZER])
    )
    one.server.remove("nodes", "a")
    one.guards.begin()
    one.world.clock.advance(2)
    one.server.remove("nodes", "b")
    nodes = {name: one.world.cluster.node(name) for name in "ab"}
    assert [bool(one.guards.why(None, found)) for found in nodes.values()] == [True, False]
    one.server.change("nodes", "a", {"metadata": {"annotations": {names.CONFIRM_DELETION: "true"}}})
    assert one.guards.why(None, one.world.cluster.node("a")) == ""


def test_the_config_map_confirms_nodes_that_were_deleted_by_themselves_too() -> None:
    one = Guarded(installed=False)
    one.server.put(node("a", finalizers=[names.TERMINATION_FINALIZER]), node("theirs", finalizers=["theirs"]))
    for name in ("a", "theirs"):
        one.server.remove("nodes", name)
    one.guards.begin()
    assert one.guards.why(None, one.world.cluster.node("a"))
    one.confirm()
    one.guards.poll()
    nodes = {name: one.world.cluster.node(name) for name in ("a", "theirs")}
    assert one.guards.why(None, nodes["a"]) == ""
    annotated = {name: found.metadata.annotations if found else None for name, found in nodes.items()}
    assert annotated == {"a": {names.CONFIRM_DELETION: "true"}, "theirs": {}}


def test_a_config_map_that_is_deleted_before_the_watch_tells_of_it_is_made_again() -> None:
    one = Guarded(installed=False)
    one.guards = one.another(installed=lambda: None)
    one.guards.begin()
    one.server.drop("configmaps", names.INSTALLATION_CONFIGMAP, "dovetail-system")
    one.guards.poll()
    assert one.server.all("configmaps")


def test_one_whose_mark_is_refused_is_held_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    one = Guarded(read=False)
    one.world.clock.advance(3600)
    one.put("a", "c", "d", deleted=True)
    one.put("b", deleted=True, annotations={names.AWAITS_CONFIRMATION: "installation"})
    one.server.refuse = {"a": 403}
    one.server.refusal = "the policy says no"
    one.guards.begin()
    assert one.held() == dict.fromkeys("abcd", True)
    assert [name for name in "abcd" if guard_of(one.claim(name))] == ["b", "c", "d"]
    assert awaiting("installation") == 4
    assert len(one.server.recorder.said("AwaitsConfirmation", "NodeClaim")) == 4
    one.guards.poll()
    told = [vars(record)["fields"] for record in caplog.records if record.message.startswith("Could not write on")]
    assert [(fields["kind"], fields["name"]) for fields in told] == [("NodeClaim", "a")], "once, though tried twice"
    assert "the policy says no" in told[0]["error"]
    one.server.refuse = {"b": 403}
    one.read = True  # they began after the installation
    one.guards.poll()
    assert one.held() == {"a": False, "b": True, "c": False, "d": False}
    assert [name for name in "abcd" if guard_of(one.claim(name))] == ["b"]
    one.server.refuse = {}
    one.guards.poll()
    assert not any(one.held().values())


def test_a_cascade_whose_marks_are_refused_is_held_for_good() -> None:
    one = Guarded(share=0.3)
    one.world.clock.advance(3600)
    one.put(*"abcdef")
    one.guards.begin()
    one.server.refuse = dict.fromkeys("ab", 500)
    cascade(one, *"abc")
    one.guards.poll()
    one.confirm("c")
    one.server.change("nodeclaims", "c", {"metadata": {"finalizers": []}})
    one.world.clock.advance(3600)
    one.guards.poll()
    assert [name for name, held in one.held().items() if held] == ["a", "b"], "though they are few now"
    assert awaiting("mass-deletion") == 2
    one.server.refuse = {}
    one.guards.poll()
    assert [str(guard_of(one.claim(name))) for name in "ab"] == ["mass-deletion"] * 2


def test_what_the_config_map_confirmed_goes_once_that_can_be_written_and_the_next_accident_does_not() -> None:
    one = Guarded(installed=False)
    one.put("a", "b", deleted=True)
    one.server.put(node("n", finalizers=[names.TERMINATION_FINALIZER]))
    one.server.remove("nodes", "n")
    one.guards.begin()
    one.confirm()
    one.server.refuse = {"a": 403, "n": 403}
    one.guards.poll()
    found = one.installed()
    assert found is not None
    assert found.metadata.annotations == {}
    assert (one.held(), bool(one.guards.why(None, one.world.cluster.node("n")))) == ({"a": True, "b": False}, True)
    one.server.refuse = {}
    one.guards.poll()
    assert (one.held(), one.guards.why(None, one.world.cluster.node("n"))) == ({"a": False, "b": False}, "")


def test_while_the_api_server_does_not_answer_for_one_the_others_are_written_in_the_next_round() -> None:
    one = Guarded(installed=False)
    one.put("a", "b", "c", deleted=True)
    silent = {"a"}
    asked: list[str] = []

    def intercept(sent: Sent) -> FakeAnswer | None:
        name = sent.path.rpartition("/")[2]
        if sent.method == "PATCH" and name in "abc":
            asked.append(name)
            if name in silent:
                raise ConnectionFailed("timed out")
        return one.apply(sent)

    one.server.intercept = intercept
    one.guards.begin()
    assert one.held() == dict.fromkeys("abc", True)
    assert set(asked) == {"a"}, "nothing more is sent"
    with pytest.raises(ConnectionFailed):
        one.guards.poll()
    assert [name for name in "abc" if guard_of(one.claim(name))] == ["b", "c"]
    silent.clear()
    one.guards.poll()
    assert guard_of(one.claim("a"))


def test_a_node_that_waits_by_itself_says_so_and_names_what_is_to_be_annotated() -> None:
    one = Guarded(installed=False)
    marked = {names.AWAITS_CONFIRMATION: "installation"}
    one.put("a")
    one.put("b", deleted=True)
    finalizers = [names.TERMINATION_FINALIZER]
    one.server.put(*(node(name, finalizers=finalizers, provider_id=f"kwok://{name}") for name in "ab"))
    for name in "ab":
        one.server.remove("nodes", name)
    one.guards.begin()
    one.guards.poll()
    nodes = {name: one.server.node(name) for name in "ab"}
    assert {name: found.metadata.annotations for name, found in nodes.items()} == {"a": marked, "b": {}}
    (said,) = one.server.recorder.said("AwaitsConfirmation", "Node")
    assert "annotate the Node or the ConfigMap" in said
    assert "annotate the Node or the ConfigMap" in one.guards.why(one.claim("a"), nodes["a"])
    assert "annotate the NodeClaim or the ConfigMap" in one.guards.why(one.claim("b"), nodes["b"])
    assert awaiting("installation") == 1, "NodeClaims alone"


def test_a_node_that_was_found_to_be_deleted_later_no_longer_says_that_it_waits() -> None:
    one = Guarded(read=False)
    one.world.clock.advance(3600)
    one.server.put(node("a", finalizers=[names.TERMINATION_FINALIZER]))
    one.server.remove("nodes", "a")
    one.guards.begin()
    assert guard_of(one.server.node("a")) is DeletionGuard.INSTALLATION
    one.read = True
    one.guards.poll()
    assert one.server.node("a").metadata.annotations == {}


def test_a_node_that_is_deleted_with_its_claim_waits_with_it() -> None:
    one = Guarded(installed=False)
    one.put("a", deleted=True, finalizers=[names.TERMINATION_FINALIZER, "foregroundDeletion"])
    one.put("b", deleted=True)
    one.server.put(*(node(name, finalizers=[names.TERMINATION_FINALIZER]) for name in "ab"))
    one.guards.begin()
    one.world.clock.advance(2)
    for name in "ab":
        one.server.remove("nodes", name)
    nodes = {name: one.world.cluster.node(name) for name in "ab"}
    assert {name: bool(one.guards.why(one.claim(name), found)) for name, found in nodes.items()} == {
        "a": True,
        "b": False,
    }


def test_the_pods_of_a_node_that_waits_need_no_other_place_and_it_counts_against_limits() -> None:
    one = Guarded(installed=False)
    one.put("a", deleted=True, true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED))
    one.server.put(node("a"))

    one.world.add(pod("web", node="a"))
    assert [each.name for each in one.world.cluster.snapshot().leaving] == ["web"]
    assert not one.world.cluster.snapshot().nodes[0].counts
    one.guards.begin()
    assert one.world.cluster.snapshot().leaving == ()
    one.confirm("a")
    assert [each.name for each in one.world.cluster.snapshot().leaving] == ["web"]


def test_the_pods_of_a_node_that_waits_by_itself_need_no_other_place() -> None:
    one = Guarded(installed=False)
    one.put("a", true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED))
    one.server.put(node("a", finalizers=[names.TERMINATION_FINALIZER]))
    one.world.add(pod("web", node="a"))
    one.server.remove("nodes", "a")
    assert [each.name for each in one.world.cluster.snapshot().leaving] == ["web"]
    one.guards.begin()
    assert (one.world.cluster.snapshot().leaving, one.world.cluster.snapshot().nodes[0].counts) == ((), True)
    one.server.change("nodes", "a", {"metadata": {"annotations": {names.CONFIRM_DELETION: "true"}}})
    assert [each.name for each in one.world.cluster.snapshot().leaving] == ["web"]


def cascade(one: Guarded, *those: str) -> None:
    one.server.remove("nodepools", "general")
    for name in those:
        one.server.remove("nodeclaims", name)


def test_more_than_the_share_of_a_cascade_waits_all_of_it() -> None:
    one = Guarded(share=0.3)
    one.world.clock.advance(3600)
    one.put(*"abcdefghij")
    one.guards.begin()
    cascade(one, *"abc")
    one.guards.poll()
    assert [name for name, held in one.held().items() if held] == ["a", "b", "c"], "more may follow"
    one.world.clock.advance(59)
    cascade(one, "d")
    one.guards.poll()
    one.world.clock.advance(3600)
    one.guards.poll()
    assert [name for name, held in one.held().items() if held] == ["a", "b", "c", "d"]
    assert awaiting("mass-deletion") == 4
    one.confirm("a")
    one.server.change("nodeclaims", "a", {"metadata": {"finalizers": []}})
    one.guards = one.another()
    one.guards.begin()
    assert [name for name, held in one.held().items() if held] == ["b", "c", "d"], "though they are few now"


def test_fewer_of_a_cascade_go_after_a_minute_and_others_at_once() -> None:
    one = Guarded(share=0.3)
    one.world.clock.advance(3600)
    one.put(*"abcdefgh")
    one.put("ours", annotations={names.ENDED_FOR: "expired"})
    one.put("hand", ownerReferences=[])
    one.guards.begin()
    cascade(one, *"abc", "ours", "hand")
    one.guards.poll()
    assert [name for name, held in one.held().items() if held] == ["a", "b", "c"]
    one.world.clock.advance(60)
    one.guards.poll()
    assert not any(one.held().values())


def test_deletions_by_hand_are_no_cascade_unless_the_definition_goes() -> None:
    one = Guarded(share=0.3)
    one.world.clock.advance(3600)
    one.put(*"abcd")
    definition = {"metadata": {"name": "nodeclaims.karpenter.sh", "finalizers": ["cleanup"]}, "spec": {}}
    one.server.store("customresourcedefinitions", definition)
    one.guards.begin()
    for name in "abcd":
        one.server.remove("nodeclaims", name)
    one.guards.poll()
    assert not any(one.held().values())
    one.server.remove("customresourcedefinitions", "nodeclaims.karpenter.sh")
    one.world.clock.advance(6)
    one.guards.poll()
    assert all(one.held().values())
    assert resources.CRDS.plural in one.server.objects


def test_what_was_deleted_a_moment_ago_waits_until_what_is_above_it_was_looked_at() -> None:
    """The watch tells of NodeClaims first: neither of their definition nor, in time, of a NodePool that is gone."""
    one = Guarded(share=0.3)
    one.world.clock.advance(3600)
    one.put(*"abcd")
    one.put("hand", deleted=True)
    one.server.store("customresourcedefinitions", {"metadata": {"name": DEFINITION, "finalizers": ["x"]}, "spec": {}})
    one.guards.begin()
    assert one.held()["hand"] is False, "looked at"
    one.world.clock.advance(1)
    one.server.remove("customresourcedefinitions", DEFINITION)
    for name in "abcd":
        one.server.remove("nodeclaims", name)
    assert [name for name, held in one.held().items() if held] == list("abcd"), "before the next poll"
    one.guards.poll()
    assert [name for name, held in one.held().items() if held] == list("abcd"), "what was read before them says nothing"
    one.world.clock.advance(5)
    one.guards.poll()
    assert all(one.held().values())


@given(st.lists(st.integers(0, 200), max_size=12), st.sampled_from((0.1, 0.3, 0.5)), st.integers(12, 20))
def test_who_is_held_is_in_a_minute_with_too_many(seconds: list[int], share: float, nodes: int) -> None:
    deleted = {str(number): NOON + timedelta(seconds=at) for number, at in enumerate(seconds)}
    held = mass_deleted(deleted, share=share, nodes=nodes)
    for name, at in deleted.items():
        windows = [
            sum(timedelta(0) <= other - begin <= WINDOW for other in deleted.values())
            for begin in deleted.values()
            if timedelta(0) <= at - begin <= WINDOW
        ]
        assert (name in held) == any(count > share * nodes for count in windows)
    assert mass_deleted(deleted, share=0.0, nodes=nodes) == frozenset()


class _Counted(str):
    """A name that counts how often it is looked up."""

    hashed = 0
    __slots__ = ()

    def __hash__(self) -> int:
        _Counted.hashed += 1
        return super().__hash__()


def test_deletions_at_the_same_time_are_looked_at_once_each() -> None:
    deleted: dict[str, datetime] = {_Counted(number): NOON for number in range(500)}
    _Counted.hashed = 0
    assert len(mass_deleted(deleted, share=0.3, nodes=500)) == 500
    assert _Counted.hashed < 5 * 500


class _NoSnapshot:
    def __call__(self) -> Snapshot:
        raise AssertionError("a snapshot was taken")


def test_a_poll_needs_no_snapshot_of_the_cluster() -> None:
    """It is asked twice a second, and each snapshot copies a pointer for each node."""
    one = Guarded(installed=False)
    one.put("a", deleted=True)
    one.server.put(node("b", finalizers=[names.TERMINATION_FINALIZER]))
    one.server.remove("nodes", "b")
    one.world.cluster.snapshot = _NoSnapshot()  # type: ignore[method-assign]
    one.guards.begin()
    one.guards.poll()
    assert one.held() == {"a": True}
    assert one.guards.why(None, one.world.cluster.node("b"))


def test_events_of_thousands_that_wait_leave_room_for_others() -> None:
    one = Guarded()
    one.put("a")
    old = NOON - HOUR
    meta = msgspec.structs.replace(one.claim("a").metadata, deletion_timestamp=old)
    marks = {names.AWAITS_CONFIRMATION: "installation"}
    those = [
        msgspec.structs.replace(
            one.claim("a"), metadata=msgspec.structs.replace(meta, name=f"c{n}", uid=f"u{n}", annotations=marks)
        )
        for n in range(500)
    ]
    one.world.cluster.claims = lambda: those  # type: ignore[method-assign]
    said = one.server.recorder.said
    one.guards.poll()
    assert 0 < len(said("AwaitsConfirmation", "NodeClaim")) <= QUEUE_SIZE / 10
    for _ in range(100):
        one.world.clock.advance(one.guards.poll())
    assert len(said("AwaitsConfirmation", "NodeClaim")) == 500, "each once"
    one.world.clock.advance(3600)
    one.guards.poll()
    assert len(said("AwaitsConfirmation", "NodeClaim")) > 500, "events are forgotten after an hour"


@pytest.mark.parametrize("value", ["true", " True"])
def test_true_is_meant(value: str) -> None:
    one = Guarded(installed=False)
    one.put("a", deleted=True, annotations={names.CONFIRM_DELETION: value})
    one.guards.begin()
    assert one.held() == {"a": False}
