"""Writes of a claim's status: nobody loses another's condition, and what is decided from something old is decided anew."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, is_true
from provisioner.kube.errors import Conflict, NotFound
from tests.support.clock import NOON
from tests.support.cluster import World, claim
from tests.support.kube import Sent
from tests.support.worldserver import WorldServer

READY = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


def with_condition(one: NodeClaim, kind: str, status: str = names.TRUE, reason: str = "") -> tuple[Condition, ...]:
    return CLAIM_CONDITIONS.set(
        one.status.conditions, kind, status, reason, "", generation=1, now=NOON + timedelta(seconds=9)
    )


class Stage:
    """A claim, on a server that tells the caches nothing unless the test wants it."""

    def __init__(self, *true: str) -> None:
        self.server = WorldServer(World())
        self.server.put(claim("c", true=true or READY))
        self.seen = self.server.claim("c")
        self.server.tell = False

    def another_writes(self, kind: str, status: str = names.TRUE, reason: str = "") -> None:
        """A write of somebody else that our caches do not know."""
        now = self.server.claim("c")
        conditions = with_condition(now, kind, status, reason)
        wire = self.server.objects["nodeclaims"]["c"]
        wire = {**wire, "status": {**wire["status"], "conditions": msgspec.to_builtins(conditions)}}
        self.server.store("nodeclaims", wire)

    def has(self, *kinds: str) -> bool:
        return all(is_true(self.server.claim("c").status.conditions, kind) for kind in kinds)


def test_two_writers_lose_nothing_of_each_other() -> None:
    stage = Stage()
    stage.another_writes(names.DRIFTED)
    stage.server.writer.status(stage.seen, with_condition(stage.seen, names.DISRUPTION_REASON))
    assert stage.has(names.DRIFTED, names.DISRUPTION_REASON)


def test_nor_does_one_that_takes_a_condition_off() -> None:
    stage = Stage(*READY, names.DRIFTED)
    stage.another_writes(names.CONSOLIDATABLE)
    stage.server.writer.status(stage.seen, CLAIM_CONDITIONS.clear(stage.seen.status.conditions, names.DRIFTED))
    assert stage.has(names.CONSOLIDATABLE)
    assert not stage.has(names.DRIFTED)


def test_a_write_from_what_was_seen_earlier_keeps_what_the_caches_know_since() -> None:
    stage = Stage()
    stage.server.tell = True
    stage.another_writes(names.DRIFTED)
    before = len(stage.server.api.sent)
    stage.server.writer.status(stage.seen, with_condition(stage.seen, names.DISRUPTION_REASON))
    assert stage.has(names.DRIFTED, names.DISRUPTION_REASON)
    assert len(stage.server.api.sent) == before + 1


def test_the_root_follows_from_what_is_there_now() -> None:
    stage = Stage(names.DRIFTED)
    stage.another_writes(names.LAUNCHED)
    stage.another_writes(names.REGISTERED)
    stage.server.writer.status(stage.seen, with_condition(stage.seen, names.INITIALIZED))
    assert stage.has(names.READY)


def test_the_same_condition_changed_by_another_is_decided_anew() -> None:
    stage = Stage()
    stage.another_writes(names.DRIFTED, reason="NodePoolDrifted")
    with pytest.raises(Conflict, match="condition Drifted was changed by another writer"):
        stage.server.writer.status(stage.seen, with_condition(stage.seen, names.DRIFTED, reason="RequirementsDrifted"))
    assert stage.has(names.DRIFTED)


def test_what_another_has_written_already_costs_no_second_write() -> None:
    stage = Stage()
    wanted = with_condition(stage.seen, names.DRIFTED)
    stage.another_writes(names.DRIFTED)
    done = len(stage.server.done)
    stage.server.writer.status(stage.seen, wanted)
    assert stage.server.done[done:] == []


def test_a_status_that_is_so_already_costs_nothing() -> None:
    stage = Stage()
    stage.server.writer.status(stage.seen, stage.seen.status.conditions)
    assert stage.server.api.sent == []


def test_other_fields_go_with_the_conditions_or_alone() -> None:
    stage = Stage()
    stage.another_writes(names.DRIFTED)
    stage.server.writer.status(stage.seen, stage.seen.status.conditions, nodeName="n")
    assert stage.server.claim("c").status.node_name == "n"
    stage.server.writer.status(stage.seen, with_condition(stage.seen, names.CONSOLIDATABLE), nodeName="m")
    assert stage.server.claim("c").status.node_name == "m"
    assert stage.has(names.DRIFTED, names.CONSOLIDATABLE)


def always_outdated(stage: Stage) -> None:
    """Somebody writes between every two requests of ours."""

    def write(sent: Sent) -> None:
        if sent.method == "PATCH":
            stage.server.change("nodeclaims", "c", {"metadata": {"labels": {"written": stage.server.next_version()}}})

    stage.server.intercept = write


def deleted(stage: Stage) -> None:
    stage.another_writes(names.DRIFTED)
    del stage.server.objects["nodeclaims"]["c"]


def made_anew(stage: Stage) -> None:
    wire = stage.server.objects["nodeclaims"]["c"]
    stage.server.store("nodeclaims", {**wire, "metadata": {**wire["metadata"], "uid": "another"}})


LOST: dict[str, tuple[Callable[[Stage], None], type[Exception]]] = {
    "somebody is always faster": (always_outdated, Conflict),
    "the claim is gone": (deleted, NotFound),
    "another claim has its name": (made_anew, Conflict),
}


@pytest.mark.parametrize(("put", "error"), LOST.values(), ids=LOST)
def test_what_cannot_be_written_is_an_error(put: Callable[[Stage], None], error: type[Exception]) -> None:
    stage = Stage()
    put(stage)
    with pytest.raises(error):
        stage.server.writer.status(stage.seen, with_condition(stage.seen, names.DISRUPTION_REASON))
    assert len(stage.server.api.sent) < 10


@pytest.mark.parametrize("told", [True, False], ids=["and the caches know", "and the caches do not know yet"])
def test_a_claim_that_a_user_deleted_a_moment_before_does_not_say_that_we_ended_it(told: bool) -> None:
    """A pause held the drain of a node that a user had deleted."""
    stage = Stage()
    stage.server.tell = told
    stage.server.remove("nodeclaims", "c")
    assert stage.server.writer.end(stage.seen, "expired") is False
    assert names.ENDED_FOR not in stage.server.claim("c").metadata.annotations
    known = stage.server.world.cluster.claim("c")
    assert known is not None
    assert known.metadata.deletion_timestamp is not None


def test_a_claim_that_others_write_ends_all_the_same_and_says_why() -> None:
    stage = Stage()
    stage.another_writes(names.DRIFTED)
    assert stage.server.writer.end(stage.seen, "expired") is True
    found = stage.server.claim("c")
    assert found.metadata.deletion_timestamp is not None
    assert found.metadata.annotations[names.ENDED_FOR] == "expired"


def test_nobody_ends_another_claim_of_the_name_or_one_that_is_gone() -> None:
    for put in (made_anew, deleted):
        stage = Stage()
        put(stage)
        assert stage.server.writer.end(stage.seen, "expired") is False
        assert not any(one.startswith(("DELETE", "PATCH")) for one in stage.server.done)
