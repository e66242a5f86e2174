"""A node that goes before its successor is launched: what is written when, what calls it off, and every crash."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.command import CommandPhase, awaited_by, command_on, is_gated
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import CapKind, InstanceType, Offering, StructuralCap
from provisioner.disruption.commands.queue import DRAIN_SECONDS
from provisioner.disruption.controller import METHODS
from provisioner.disruption.methods.terminate_first import BOUND
from provisioner.disruption.view import DisruptionSettings
from provisioner.lifecycle.launch_gate import LaunchGate, gate_of
from tests.support.cluster import node, pod
from tests.support.disrupting import DisruptedNodes
from tests.support.eventually import eventually
from tests.support.worldserver import ServerDied

CAP = StructuralCap(CapKind.PLACEMENT_GROUP, "pg-1 in a")
KIND = "c-4x-amd64-linux"
WEB = pod("web", cpu="3", ready=True, labels={"app": "web"})
DRIFT = tuple(one for one in METHODS if one.name == "drift")
ON = DisruptionSettings(first_for=frozenset({names.REASON_DRIFTED}))


def kinds(change: Callable[[Offering], Offering]) -> tuple[InstanceType, ...]:
    return tuple(
        replace(one, offerings=tuple(map(change, one.offerings)))
        for one in catalogue.generated().types
        if one.name == KIND
    )


FULL = kinds(lambda one: replace(one, full=CAP))


class Stage(DisruptedNodes):
    """One drifted node `a` with a pod, and no room for another node."""

    def __init__(self, settings: DisruptionSettings = ON, types: tuple[InstanceType, ...] = FULL, **spec: Any) -> None:
        super().__init__("other", methods=DRIFT, after="Never", settings=settings)
        self.server.objects.clear()
        self.world.cluster.node_changed(self.world.cluster.node("other"), None)
        self.world.cluster.claim_changed(self.world.cluster.claim("other"), None)
        self.cloud.kinds = types
        self.cloud.there.add("kwok://a")
        self.drifted("a", WEB)
        labels = {
            names.NODEPOOL_LABEL: "general",
            names.INSTANCE_TYPE_LABEL: KIND,
            names.ZONE_LABEL: types[0].offerings[0].zone,
            names.CAPACITY_TYPE_LABEL: types[0].offerings[0].capacity_type,
        }
        self.server.put(node("a", labels=labels))

    def begin(self) -> str:
        """A pass; the name of the successor, "" where there is none."""
        self.disruption.run_once()
        self.settle()
        return next(iter(self.replacements()), "")

    def phase(self) -> CommandPhase | None:
        record = command_on(self.server.claim("a"))
        return record.phase if record is not None else None

    def gate(self, name: str) -> LaunchGate:
        """What becomes of a launch, of what the server has."""
        claim, cluster = self.server.claim(name), self.world.cluster
        awaited = awaited_by(claim)
        other = cluster.claim(awaited.claim) if awaited is not None else None
        return gate_of(claim, other, cluster.command_waiting_for(name))

    def go_on(self, seconds: float = DRAIN_SECONDS) -> None:
        """Evictions are asked for, and time passes."""
        self.server.work_off()
        self.world.clock.advance(seconds)
        self.settle()

    def leaves(self) -> None:
        """The pod is gone."""
        self._pods.clear()
        cluster = self.world.cluster
        if (known := cluster.pod(WEB.uid)) is not None:
            cluster.pod_changed(known, None)
        self.server.objects["pods"].clear()


@pytest.fixture
def stages() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**given: Any) -> Stage:
        made.append(Stage(**given))
        return made[-1]

    yield make
    for stage in made:
        stage.stop()


Make = Callable[..., Stage]


def test_the_place_is_held_before_anything_ends(stages: Make) -> None:
    stage = stages()
    name = stage.begin()
    assert name
    done = [one.replace(name, "new") for one in stage.server.done]
    assert done[:4] == ["PATCH nodeclaims/a", "PATCH nodes/a", "PATCH nodeclaims/a", "POST nodeclaims/new"]
    assert "DELETE nodeclaims/a" not in done
    assert is_gated(stage.server.claim(name))
    assert (stage.phase(), stage.gate(name)) == (CommandPhase.DRAINING, LaunchGate.HELD)


def test_its_pods_leave_while_it_stays_and_then_it_goes(stages: Make) -> None:
    stage = stages()
    stage.server.ends_at_once = False
    name = stage.begin()
    stage.go_on()
    assert any(one.startswith("POST evictions/web") for one in stage.server.done)
    assert not stage.goes()
    stage.leaves()
    stage.go_on()
    assert stage.goes()
    assert stage.gate(name) in (LaunchGate.HELD, LaunchGate.FREED)
    assert [one for one in stage.server.done if one.startswith("POST nodeclaims")] == [f"POST nodeclaims/{name}"]


def test_at_the_bound_it_is_called_off_and_the_place_given_up(stages: Make) -> None:
    stage = stages()
    stage.server.refuse["web"] = 429
    name = stage.begin()
    stage.go_on(BOUND.total_seconds() - 2)
    assert (stage.phase(), stage.gate(name)) == (CommandPhase.DRAINING, LaunchGate.HELD)
    stage._methods = ()
    stage.world.clock.advance(3.0)
    stage.settle()
    eventually(stage.is_open, "it is called off", 5.0, 0.01)
    assert not stage.goes()
    assert stage.gate(name) is LaunchGate.RELEASED


def test_drain_timeout_is_the_bound_where_it_is_set(stages: Make) -> None:
    stage = stages(settings=replace(ON, drain_timeout=timedelta(minutes=3)))
    stage.begin()
    record = command_on(stage.server.claim("a"))
    assert record is not None
    assert record.first is not None
    assert record.first.bound_seconds == 180


REFUSED: dict[str, dict[str, Any]] = {
    "the gate is off": {"settings": DisruptionSettings()},
    "it is only short": {"types": kinds(lambda one: replace(one, available=False))},
    "another zone is short": {
        "types": kinds(
            lambda one: (
                replace(one, full=CAP) if one.zone == FULL[0].offerings[0].zone else replace(one, available=False)
            )
        )
    },
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_it_stays(stages: Make, given: dict[str, Any]) -> None:
    stage = stages(**given)
    assert stage.begin() == ""
    assert stage.server.done == []


def test_where_there_is_room_its_replacement_comes_first(stages: Make) -> None:
    stage = stages(types=kinds(lambda one: one))
    assert not is_gated(stage.server.claim(stage.begin()))


def test_it_does_not_begin_while_a_pod_cannot_be_evicted(stages: Make) -> None:
    stage = stages()
    stage.bind(pod("kept", cpu="100m", ready=True, annotations={names.DO_NOT_DISRUPT: "true"}), "a")
    assert stage.begin() == ""
    assert not stage.goes()


# --- a crash after every write ------------------------------------------------------------------------------------------


def crash_after(stage: Stage, writes: int) -> None:
    """Let the process die before its next write but `writes`, anywhere on the way to the deletion."""
    stage.server.dies_after = writes
    reconcile = stage.commands.reconcile

    def until_it_dies(holder: str) -> Any:
        try:
            return reconcile(holder)
        except ServerDied:
            return None

    stage.commands.queue._reconcile = until_it_dies
    stage.disruption.run_once()
    stage.settle()


@pytest.mark.parametrize("writes", range(7))
def test_whoever_leads_next_goes_on_or_calls_it_off(stages: Make, writes: int) -> None:
    """Before the record nothing is left; from it on the command comes to its end, and one successor is made and none launched too early."""
    stage = stages()
    crash_after(stage, writes)
    for name in stage.replacements():
        assert stage.gate(name) is not LaunchGate.FREED or stage.goes()
    stage.restart()
    stage.settle()
    if not stage.replacements():
        stage.begin()
    (name,) = stage.replacements()
    assert is_gated(stage.server.claim(name))
    assert stage.gate(name) is LaunchGate.HELD
    stage.leaves()
    stage.go_on()
    assert stage.goes()
    assert stage.replacements() == [name]
    assert len([one for one in stage.server.done if one == "DELETE nodeclaims/a"]) <= 1


@pytest.mark.parametrize("lost", ["the record", "the candidate"])
def test_a_place_is_never_held_for_ever(stages: Make, lost: str) -> None:
    stage = stages()
    name = stage.begin()
    wire = stage.server.objects["nodeclaims"]
    if lost == "the record":
        del wire["a"]["metadata"]["annotations"][names.COMMAND_ANNOTATION]
    else:
        del wire["a"]
    stage._methods = ()
    stage.restart()
    stage.settle()
    assert stage.gate(name) is (LaunchGate.RELEASED if lost == "the record" else LaunchGate.FREED)
