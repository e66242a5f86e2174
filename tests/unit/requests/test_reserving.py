"""What is reserved is written on NodeClaims, renewed, and taken back."""

from provisioner.apis import names
from provisioner.apis.reservations import decode_reservations
from provisioner.requests.reserving import FIRST_SECONDS, LASTS, ReservationWriter
from provisioner.support.workers import DONE
from provisioner.values.resources import Resources
from tests.support.cluster import World, claim
from tests.support.worldserver import WorldServer

ROOM = {("a/r", 0): Resources.of({"cpu": 3000, "pods": 1})}


class ReservationStage:
    """One NodeClaim, c."""

    def __init__(self, **annotations: str) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.server.put(claim("c", provider_id="kwok://c", annotations=annotations))
        self.writer = self.made()

    def made(self) -> ReservationWriter:
        cluster = self.world.cluster
        return ReservationWriter(cluster.claims, cluster.claim, self.server.writer, self.world.clock)

    def text(self) -> str:
        return self.server.claim("c").metadata.annotations.get(names.RESERVED, "")


def test_it_is_written_once_and_taken_back() -> None:
    stage = ReservationStage()
    stage.writer.reserve({"c": ROOM, "node/x": ROOM})
    assert len(stage.writer.queue) == 1
    for _ in range(2):
        stage.writer.reconcile("c")
    found = decode_reservations(stage.text())
    assert [(one.request, one.requests, one.priority) for one in found.rooms] == [("a/r", {"cpu": "3", "pods": "1"}, 0)]
    assert found.until == stage.world.clock.now() + LASTS
    assert len(stage.server.done) == 1
    stage.writer.reserve({})
    assert stage.writer.reconcile("c") is DONE
    assert stage.text() == ""
    assert stage.writer.reconcile("c") is DONE
    assert len(stage.server.done) == 2


def test_it_is_renewed_before_it_ends() -> None:
    stage = ReservationStage()
    stage.writer.reserve({"c": ROOM})
    stage.writer.reconcile("c")
    first = stage.text()
    stage.world.clock.advance(LASTS.total_seconds() / 2)
    stage.writer.reconcile("c")
    assert stage.text() == first
    stage.world.clock.advance(LASTS.total_seconds() / 4)
    stage.writer.reconcile("c")
    assert decode_reservations(stage.text()).until == stage.world.clock.now() + LASTS


def test_a_new_leader_takes_back_what_nobody_needs_and_nothing_before_it_knows() -> None:
    stage = ReservationStage()
    stage.writer.reserve({"c": ROOM})
    stage.writer.reconcile("c")
    text = stage.text()
    heir = stage.made()
    assert heir.initial() == ["c"]
    heir.reconcile("c")
    assert stage.text() == text
    heir.reserve({"c": ROOM})
    heir.reconcile("c")
    assert stage.text() == text, "it is the same"
    lost = stage.made()
    stage.world.clock.advance(FIRST_SECONDS)
    lost.reconcile("c")
    assert stage.text() == ""


def test_what_somebody_else_has_written_meanwhile_is_read_again() -> None:
    stage = ReservationStage()
    stage.writer.reserve({"c": ROOM})
    stage.server.tell = False
    stage.server.put(claim("c", provider_id="kwok://c", annotations={"other": "x"}))
    assert stage.writer.reconcile("c").requeue_after is not None
    assert stage.text() == ""


def test_a_claim_that_is_not_there_is_written_when_it_is() -> None:
    stage = ReservationStage()
    stage.writer.reserve({"new": ROOM})
    assert stage.writer.reconcile("new").requeue_after is not None
    stage.writer.reserve({})
    assert stage.writer.reconcile("new") is DONE
