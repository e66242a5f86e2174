"""A disruption with replacements, from its decision to its end: what is written when, what calls it off, and every crash."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandPhase, CommandRecord, command_on, encode_command
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.interruption import INSTANCE_TERMINATED, Interruption
from provisioner.apis.karpenter import NodeClaim
from provisioner.disruption.commands.book import (
    BACKOFF_MOST_SECONDS,
    BACKOFF_SECONDS,
    CLOSING_SECONDS,
    SPARED_SECONDS,
    CommandBook,
)
from provisioner.disruption.commands.queue import (
    AGAIN_SECONDS,
    BUDGET_SECONDS,
    GIVE_UP_AFTER,
    OUTDATED_SECONDS,
    TIMEOUT,
)
from provisioner.disruption.controller import ANSWER_SECONDS, METHODS, Method
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.disruption.worlds import WORLD_SECONDS
from provisioner.kube.errors import Conflict
from provisioner.scheduling.node_claims import NewClaim
from provisioner.scheduling.world import without
from provisioner.state.pause import DISRUPTION, Pause, PauseValue
from provisioner.state.snapshot import Snapshot
from tests.support.clock import NOON
from tests.support.cluster import claim, node, pod
from tests.support.disrupting import DisruptedNodes
from tests.support.eventually import eventually
from tests.support.worldserver import ServerDied

DRIFT = tuple(one for one in METHODS if one.name == "drift")
WEB = pod("web", cpu="3", ready=True, labels={"app": "web"})


@pytest.fixture
def stages() -> Iterator[Callable[..., DisruptedNodes]]:
    made: list[DisruptedNodes] = []

    def make(*, methods: tuple[Method, ...] = DRIFT, **options: Any) -> DisruptedNodes:
        made.append(DisruptedNodes("other", methods=methods, **{"after": "Never", **options}))
        made[-1].server.objects.clear()
        made[-1].world.cluster.node_changed(made[-1].world.cluster.node("other"), None)
        made[-1].world.cluster.claim_changed(made[-1].world.cluster.claim("other"), None)
        made[-1].cloud.there.add("kwok://a")
        return made[-1]

    yield make
    for stage in made:
        stage.stop()


Make = Callable[..., DisruptedNodes]


@pytest.fixture
def stage(stages: Make) -> DisruptedNodes:
    """One drifted node `a` with a pod."""
    one = stages()
    one.drifted("a", WEB)
    return one


def begin(stage: DisruptedNodes) -> str:
    """A pass; the name of the one replacement."""
    stage.disruption.run_once()
    stage.settle()
    (name,) = stage.replacements()
    return name


def said(stage: DisruptedNodes, reason: str) -> list[str]:
    told = zip(stage.server.recorder.events, stage.server.recorder.messages, strict=True)
    return [f"{event[0]}: {message}" for event, message in told if event[3] == reason]


def test_a_drifted_node_is_replaced_first_and_goes_then(stage: DisruptedNodes) -> None:
    name = begin(stage)
    assert [one.replace(name, "new") for one in stage.server.done] == [
        "PATCH nodeclaims/a",  # the record, before anything else
        "PATCH nodes/a",  # the taint
        "PATCH nodeclaims/a",  # DisruptionReason
        "POST nodeclaims/new",
    ]
    assert not stage.goes()
    assert stage.world.assigned(name) == [], "the pod still runs"
    assert stage.world.cluster.is_planned("web")
    assert said(stage, "DisruptionLaunching") == ["NodeClaim: Launching NodeClaim: Drifted"]
    stage.initialize(name)
    stage.settle()
    assert stage.goes()
    assert stage.server.done[-1] == "DELETE nodeclaims/a"
    assert said(stage, "DisruptionTerminating") == [
        "NodeClaim: Disrupting Node: Drifted",
        "Node: Disrupting Node: Drifted",
    ]


def chosen_together(stage: DisruptedNodes, monkeypatch: pytest.MonkeyPatch, late: Callable[[], bool]) -> None:
    """Two commands of one pass; the node of the second is not closed while `late`, and the replacement of the first is there."""
    for name in ("a", "b"):
        stage.cloud.there.add(f"kwok://{name}")
        stage.drifted(name, pod(f"web-{name}", cpu="3", ready=True, labels={"app": "web"}))
    mark = stage.commands._mark
    monkeypatch.setattr(
        stage.commands,
        "_mark",
        lambda record, those: None if late() and "b" in record.candidate_names else mark(record, those),
    )
    stage.disruption.run_once()
    stage.settle()
    first = command_on(stage.server.claim("a"))
    assert first is not None
    stage.initialize(*first.replacement_names)
    stage.settle()


def test_no_pod_goes_before_every_node_that_was_chosen_is_closed(stages: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor of the first would be bound to the second, and be evicted twice."""
    stage, late = stages(), True
    chosen_together(stage, monkeypatch, lambda: late)
    assert (stage.goes("a"), stage.taints("b")) == (False, [])
    late = False
    stage.world.clock.advance(AGAIN_SECONDS)
    stage.settle()
    stage.world.clock.advance(AGAIN_SECONDS)
    stage.settle()
    assert (stage.goes("a"), stage.taints("b")) == (True, [names.DISRUPTED_TAINT.key])


def test_a_new_leader_closes_what_was_chosen_together_before_a_pod_of_it_goes(
    stages: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, late, known = stages(), True, CommandBook.known
    chosen_together(stage, monkeypatch, lambda: True)
    monkeypatch.setattr(
        CommandBook, "known", lambda book, holder: None if late and holder == "b" else known(book, holder)
    )
    stage.restart()
    stage.settle()
    assert (stage.goes("a"), stage.taints("b")) == (False, [])
    late = False
    stage.commands.queue.add("b")
    stage.settle()
    stage.world.clock.advance(AGAIN_SECONDS)
    stage.settle()
    assert (stage.goes("a"), stage.taints("b")) == (True, [names.DISRUPTED_TAINT.key])


def test_no_pod_goes_before_everything_that_was_chosen_with_it_is_begun(stages: Make) -> None:
    stage = stages()
    stage.cloud.there.add("kwok://b")
    stage.drifted("a", WEB)
    stage.put("b")
    b = next(one.key for one in stage.world.cluster.snapshot().nodes if one.key.name == "b")
    moved = Proposal("Drifted", "drift", ("a",), placements={str(b): (WEB,)})
    with stage.commands.book.together():
        assert stage.commands.begin(moved, stage.world.cluster.snapshot())
        stage.settle()
        assert (stage.taints("a"), stage.goes("a")) == ([names.DISRUPTED_TAINT.key], False)
    stage.world.clock.advance(AGAIN_SECONDS)
    stage.settle()
    assert stage.goes("a")


def test_a_node_that_cannot_be_closed_holds_the_others_for_seconds_only(
    stages: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages()
    chosen_together(stage, monkeypatch, lambda: True)
    assert not stage.goes("a")
    stage.world.clock.advance(CLOSING_SECONDS)
    stage.settle()
    assert stage.goes("a")


def test_provisioning_does_not_buy_for_the_pods_of_a_command(stage: DisruptedNodes) -> None:
    begin(stage)
    snapshot = stage.world.cluster.snapshot()
    assert snapshot.leaving == ()
    assert snapshot.pending == ()
    late = pod("late", node="a")
    stage.world.add(late)
    assert stage.world.cluster.snapshot().leaving == (), "until its node goes a pod belongs to the command"


def test_a_pod_that_came_late_is_planned_when_its_node_goes(stage: DisruptedNodes) -> None:
    name = begin(stage)
    stage.world.add(pod("late", node="a"))
    stage.initialize(name)
    stage.settle()
    assert [one.name for one in stage.world.cluster.snapshot().leaving] == ["late"]


def test_a_replacement_is_kept_though_its_pods_are_gone(stage: DisruptedNodes) -> None:
    name = begin(stage)
    found = stage.world.cluster.pod("web")
    stage.world.cluster.pod_changed(found, None)
    stage.world.clock.advance(60)
    stage.world.cluster.expire()
    assert not stage.world.cluster.is_unneeded(name)


# --- what calls it off ------------------------------------------------------------------------------------------------


def protect(stage: DisruptedNodes) -> None:
    stage.server.bind("web", "a", metadata__annotations={names.DO_NOT_DISRUPT: "true"})


def budget(**spec: Any) -> Callable[[DisruptedNodes], None]:
    def put(stage: DisruptedNodes) -> None:
        one = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 0},
        }
        stage.server.store("poddisruptionbudgets", one)

    return put


def protect_node(stage: DisruptedNodes) -> None:
    stage.server.objects["nodes"]["a"]["metadata"]["annotations"] = {names.DO_NOT_DISRUPT: "true"}


INVALID: dict[str, tuple[Callable[[DisruptedNodes], None], str]] = {
    "a pod that may not be disrupted": (protect, "do-not-disrupt"),
    "a budget that never allows any": (budget(maxUnavailable=0), "PodDisruptionBudget=default/web"),
    "a Node that may not be disrupted": (protect_node, "do-not-disrupt"),
}


@pytest.mark.parametrize(("put", "why"), INVALID.values(), ids=INVALID)
def test_what_the_caches_do_not_know_calls_it_off(
    stage: DisruptedNodes, put: Callable[[DisruptedNodes], None], why: str
) -> None:
    name = begin(stage)
    put(stage)
    stage.initialize(name)
    stage.settle()
    assert stage.is_open()
    assert why in said(stage, "DisruptionBlocked")[0]
    assert stage.server.has("nodeclaims", name), "it is left to emptiness"
    assert stage.world.cluster.commands() == ()
    assert not stage.world.cluster.is_planned("web"), "the pod stays where it is, and the replacement keeps no room"


def test_a_budget_that_allows_none_at_the_moment_is_waited_for(stage: DisruptedNodes) -> None:
    name = begin(stage)
    budget(minAvailable=1)(stage)
    stage.initialize(name)
    stage.settle()
    assert not stage.goes()
    assert stage.taints() == [names.DISRUPTED_TAINT.key]
    stage.server.change("poddisruptionbudgets", "web", {"status": {"disruptionsAllowed": 1}}, "default")
    stage.world.clock.advance(2)
    eventually(stage.goes, "it goes on", 10.0, 0.01)


BEHIND = "the cache does not have the current version of Pod default/web yet"


def test_a_node_that_the_caches_do_not_show_as_it_is_is_not_closed_and_its_command_is_called_off(
    stage: DisruptedNodes,
) -> None:
    stage.server.postpone = BEHIND
    stage.disruption.run_once()
    eventually(lambda: bool(stage.server.patience), "it is asked", 10.0, 0.01)
    assert (stage.taints(), stage.replacements()) == ([], [])
    stage.world.clock.advance(OUTDATED_SECONDS)
    eventually(stage.is_open, "it is called off", 10.0, 0.01)
    stage.settle()
    assert "PATCH nodes/a" not in stage.server.done
    assert BEHIND in said(stage, "DisruptionBlocked")[0]


def test_caches_that_were_behind_before_and_are_for_a_moment_call_nothing_off_that_was_bought(
    stage: DisruptedNodes,
) -> None:
    def go_on(seconds: float, postpone: str) -> None:
        stage.server.postpone = postpone
        stage.world.clock.advance(seconds)
        stage.commands.queue.add("a")
        stage.settle()

    stage.server.postpone = BEHIND
    stage.disruption.run_once()
    stage.settle()
    go_on(1, "")
    assert stage.replacements(), "it is bought"
    stage.server.put(node("a", labels={names.NODEPOOL_LABEL: "general"}))  # opened by somebody else
    asked = len(stage.server.patience)
    go_on(OUTDATED_SECONDS, BEHIND)
    assert len(stage.server.patience) > asked
    assert said(stage, "DisruptionBlocked") == []
    go_on(1, "")
    assert stage.taints() == [names.DISRUPTED_TAINT.key], "it is closed again"


def test_what_is_bought_waits_until_the_caches_show_the_node_as_it_is(stage: DisruptedNodes) -> None:
    name = begin(stage)
    stage.server.postpone = BEHIND
    stage.initialize(name)
    stage.settle()
    assert not stage.goes()
    assert f"NodeClaim: {BEHIND}" in said(stage, "DisruptionBlocked")
    stage.server.postpone = ""
    stage.world.clock.advance(2)
    eventually(stage.goes, "it goes on", 10.0, 0.01)


def test_while_it_waits_its_replacement_keeps_its_room_and_is_not_empty(stages: Make) -> None:
    stage = stages(methods=METHODS, after="0s")
    stage.drifted("a", WEB)
    name = begin(stage)
    budget(minAvailable=1)(stage)
    stage.initialize(name)
    stage.settle()
    for _ in range(8):
        stage.world.clock.advance(30)
        stage.world.cluster.expire()
        stage.disruption.run_once()
        stage.settle()
    assert stage.server.has("nodeclaims", name)
    assert stage.world.cluster.is_planned("web")
    found = stage.world.cluster.pod("web")
    stage.world.cluster.pod_changed(found, None)  # now it holds no pod at all
    for _ in range(3):
        stage.world.clock.advance(31)
        stage.world.cluster.expire()
        stage.disruption.run_once()
        stage.settle()
    assert stage.server.has("nodeclaims", name)


PAUSES = {"its pool": Pause(pools={"general": PauseValue(DISRUPTION)}), "everything": Pause(PauseValue(DISRUPTION))}


@pytest.mark.parametrize("pause", PAUSES.values(), ids=PAUSES)
def test_a_command_of_a_paused_pool_waits_and_its_time_does_not_count(stage: DisruptedNodes, pause: Pause) -> None:
    name = begin(stage)
    stage.pause = pause
    stage.initialize(name)
    for _ in range(4):
        stage.world.clock.advance(TIMEOUT.total_seconds() / 2)
        stage.disruption.run_once()
        stage.settle()
    assert not stage.goes()
    assert stage.replacements() == [name], "its replacement is kept"
    assert f"NodeClaim: {pause.summary('general')}" in said(stage, "DisruptionBlocked")
    stage.pause = Pause()
    stage.disruption.run_once()
    stage.settle()
    assert stage.goes()


def unwritten(stage: DisruptedNodes) -> list[str]:
    """NodeClaims that nobody has created."""
    return [one.name for one in stage.world.cluster.claims() if not one.metadata.uid]


def test_replacements_that_are_not_created_yet_end_with_their_command(stage: DisruptedNodes) -> None:
    stage.server.refuse["a"] = 503
    stage.disruption.run_once()
    eventually(lambda: stage.commands.queue.failures("a") > 0, "its record is not written yet", 10.0, 0.01)
    (new,) = unwritten(stage)
    (command,) = stage.world.cluster.commands()
    holder = stage.world.cluster.claim("a")
    assert holder is not None
    marks = {names.COMMAND_ANNOTATION: encode_command(command.record)}
    metadata = msgspec.structs.replace(holder.metadata, annotations={**holder.metadata.annotations, **marks})
    stage.world.cluster.claim_changed(holder, msgspec.structs.replace(holder, metadata=metadata))
    assert stage.world.cluster.commands()[0].written
    stage.world.cluster.claim_changed(stage.world.cluster.claim("a"), holder)  # somebody took the record off
    assert stage.world.cluster.commands() == ()
    assert stage.world.cluster.claim(new) is None, "room on a node that nobody ordered"
    assert not stage.world.cluster.is_planned("web")


@pytest.mark.parametrize("resumes", [False, True])
def test_pods_of_a_node_that_a_user_deletes_during_a_pause_do_not_wait_for_a_replacement_that_is_not_created(
    stage: DisruptedNodes, resumes: bool
) -> None:
    close = stage.server.taints.close

    def paused(*_: Any, **__: Any) -> Any:
        stage.pause = Pause(PauseValue(DISRUPTION))
        stage.server.taints.close = close  # type: ignore[method-assign]
        raise Conflict(409, "Conflict", "the pause came first")

    stage.server.taints.close = paused  # type: ignore[method-assign]
    stage.disruption.run_once()
    eventually(lambda: stage.server.taints.close is not paused, "the pause comes", 10.0, 0.01)
    stage.disruption.run_once()
    stage.settle()
    assert len(unwritten(stage)) == 1
    stage.server.writer.delete(stage.server.claim("a"))
    if resumes:
        stage.pause = Pause()
    stage.disruption.run_once()
    stage.settle()
    assert stage.world.cluster.commands() == ()
    assert unwritten(stage) == []
    assert [one.name for one in stage.world.cluster.snapshot().leaving] == ["web"], "its pod is planned"
    assert not any("accepts pods again" in one for one in said(stage, "DisruptionBlocked")), "it is going"


def test_a_pause_does_not_hold_the_drain_of_a_node_that_a_user_deletes_before_its_replacement_is_there(
    stage: DisruptedNodes,
) -> None:
    name = begin(stage)
    stage.pause = stage.server.pause = Pause(PauseValue(DISRUPTION))
    stage.server.writer.delete(stage.server.claim("a"))
    stage.disruption.run_once()
    stage.settle()
    stage.server.evictions.add(stage.world.cluster.bound_to("a"))
    stage.server.work_off()
    assert stage.server.done[-1] == "POST evictions/web"
    assert stage.server.has("nodeclaims", name), "its replacement is kept"
    assert stage.world.cluster.is_planned("web")


def test_a_pause_holds_the_drain_of_a_node_that_the_command_deleted(stage: DisruptedNodes) -> None:
    name = begin(stage)
    stage.initialize(name)
    stage.settle()
    assert stage.goes()
    stage.pause = stage.server.pause = Pause(PauseValue(DISRUPTION))
    stage.disruption.run_once()
    stage.settle()
    stage.server.evictions.add(stage.world.cluster.bound_to("a"))
    stage.server.work_off()
    assert stage.server.done[-1] == "DELETE nodeclaims/a"


def test_nothing_begins_in_a_paused_pool(stage: DisruptedNodes) -> None:
    stage.pause = Pause(pools={"general": PauseValue(DISRUPTION)})
    for _ in range(3):
        stage.disruption.run_once()
        stage.settle()
        stage.world.clock.advance(WORLD_SECONDS + 1)
    assert (stage.is_open(), stage.replacements()) == (True, [])
    stage.pause = Pause()
    begin(stage)


def test_a_command_that_is_paused_before_it_is_written_is_forgotten(stage: DisruptedNodes) -> None:
    announce = stage.commands._creator.announce

    def paused(*args: Any) -> NewClaim | None:
        stage.pause = Pause(PauseValue(DISRUPTION))
        return announce(*args)

    stage.commands._creator.announce = paused  # type: ignore[assignment,method-assign]
    stage.disruption.run_once()
    stage.settle()
    assert stage.replacements() == []
    assert stage.is_open()
    assert stage.world.cluster.commands() == ()


def lose(stage: DisruptedNodes, name: str) -> None:
    stage.server.drop("nodeclaims", name)


def fail(stage: DisruptedNodes, name: str) -> None:
    stage.server.writer.delete(stage.server.claim(name))


def stall(stage: DisruptedNodes, name: str) -> None:
    stage.world.clock.advance(TIMEOUT.total_seconds())


def interrupt(stage: DisruptedNodes, name: str) -> None:
    mark = str(Interruption("spot_interrupted", replaced=True, ends=NOON + timedelta(seconds=120)))
    stage.server.writer.metadata(stage.server.claim("a"), annotations={names.INTERRUPTION_ANNOTATION: mark})


def launch(stage: DisruptedNodes, name: str) -> None:
    """Its instance is there, and no Node yet."""
    made = stage.server.objects["nodeclaims"][name]
    like = claim(name, provider_id=f"kwok://{name}", true=(names.LAUNCHED,))
    made["status"] = msgspec.to_builtins(like.status)
    stage.server.put(msgspec.convert(made, NodeClaim, strict=False))
    stage.commands.heard(stage.server.claim(name))
    stage.settle()


def test_pods_stay_where_drift_was_taken_back_before_they_left(stage: DisruptedNodes) -> None:
    name = begin(stage)
    told = CLAIM_CONDITIONS.clear(stage.server.claim("a").status.conditions, names.DRIFTED)
    stage.server.writer.status(stage.server.claim("a"), told)
    stage.initialize(name)
    stage.settle()
    assert not stage.goes()
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)
    assert "a no longer differs from its NodePool and NodeClass" in said(stage, "DisruptionBlocked")[0]


def test_pods_stay_while_their_new_node_is_not_ready(stage: DisruptedNodes) -> None:
    name = begin(stage)
    stage.initialize(name, ready=False)
    stage.settle()
    assert not stage.goes()
    assert f"node {name}, on which pod default/web is to run, is not ready" in said(stage, "DisruptionBlocked")[0]
    stage.server.put(node(name, labels={names.NODEPOOL_LABEL: "general"}))
    stage.world.clock.advance(BUDGET_SECONDS)
    stage.settle()
    assert stage.goes()


ENDS: dict[str, tuple[Callable[[DisruptedNodes, str], None], str]] = {
    "its replacement vanishes": (lose, "failed"),
    "its replacement is deleted": (fail, "failed"),
    "nothing happens for ten minutes": (stall, "no progress for 600 s"),
}


@pytest.mark.parametrize(("end", "why"), ENDS.values(), ids=ENDS)
def test_it_is_rolled_back_and_its_pool_backs_off_when(
    stage: DisruptedNodes, end: Callable[[DisruptedNodes, str], None], why: str
) -> None:
    name = begin(stage)
    launch(stage, name)
    end(stage, name)
    stage.disruption.run_once()
    stage.settle()
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)
    assert why in said(stage, "DisruptionBlocked")[0]
    assert "accepts pods again" in said(stage, "DisruptionBlocked")[0]
    assert tries_after(stage, BACKOFF_SECONDS - 1) == 1, "it is tried again at once"
    assert tries_after(stage, 2) == 2, "it is not tried again"
    (second,) = [one for one in stage.replacements() if one != name]
    launch(stage, second)
    end(stage, second)
    stage.disruption.run_once()
    stage.settle()
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)
    assert tries_after(stage, 2 * BACKOFF_SECONDS - 1) == 2, "it does not wait twice as long"
    assert tries_after(stage, 2) == 3, "it is not tried again"


def interrupt_replacement(stage: DisruptedNodes, name: str) -> None:
    launch(stage, name)
    mark = str(Interruption("spot_interrupted", replaced=True, ends=NOON + timedelta(seconds=120)))
    stage.server.writer.metadata(stage.server.claim(name), annotations={names.INTERRUPTION_ANNOTATION: mark})
    stage.commands.heard(stage.server.claim(name))


def interrupt_candidate(stage: DisruptedNodes, name: str) -> None:
    launch(stage, name)
    interrupt(stage, name)


OTHER_ENDS: dict[str, tuple[Callable[[DisruptedNodes, str], None], str]] = {
    "its replacement is given up for a shortage": (fail, "1"),
    "its replacement waits for capacity until its time is over": (stall, "1"),
    "its replacement is interrupted": (interrupt_replacement, "1"),
    "its node is interrupted": (interrupt_candidate, "2"),  # of which it takes one
}


@pytest.mark.parametrize(("end", "budget"), OTHER_ENDS.values(), ids=OTHER_ENDS)
def test_the_other_nodes_of_its_pool_are_not_held_up_when(
    stages: Make, end: Callable[[DisruptedNodes, str], None], budget: str
) -> None:
    stage = stages(budget=budget)
    stage.drifted("a", WEB)
    name = begin(stage)
    stage.cloud.there.add("kwok://b")
    stage.drifted("b", pod("other", cpu="3", ready=True))
    end(stage, name)
    for _ in range(2):  # one that calls the command off, and the next
        stage.disruption.run_once()
        stage.settle()
    assert [one.record.holder for one in stage.world.cluster.commands()] == ["b"]
    assert stage.commands.book.pools_backing_off() == frozenset()


def sold_out(stage: DisruptedNodes, name: str) -> tuple[str, str, str]:
    """The provider has none of what a replacement was planned as, says so from now on, and the claim is given up; type, zone and capacity type."""
    made = stage.server.claim(name)
    kind, zone, capacity_type = made.metadata.annotations[names.PLANNED_OFFERING_ANNOTATION].split("/")
    types = stage.cloud.instance_types(None) if stage.cloud.kinds is None else stage.cloud.kinds
    stage.cloud.kinds = tuple(
        replace(
            one,
            offerings=tuple(
                replace(each, available=each.available and (each.zone, each.capacity_type) != (zone, capacity_type))
                if one.name == kind
                else each
                for each in one.offerings
            ),
        )
        for one in types
    )
    stage.server.writer.delete(made)
    return kind, zone, capacity_type


def test_a_drifted_node_whose_replacement_is_sold_out_gets_another_one(stage: DisruptedNodes) -> None:
    tried: list[tuple[str, ...]] = []
    for _ in range(2):
        name = begin(stage)
        tried.append(sold_out(stage, name))
        stage.disruption.run_once()
        stage.settle()
        lose(stage, name)
        assert (stage.goes(), stage.taints()) == (False, [])
        stage.world.clock.advance(SPARED_SECONDS + WORLD_SECONDS)
    name = begin(stage)
    tried.append(tuple(stage.server.claim(name).metadata.annotations[names.PLANNED_OFFERING_ANNOTATION].split("/")))
    assert len(set(tried)) == 3, "each on an offering that was not refused"
    stage.initialize(name)
    stage.settle()
    assert stage.goes()


def test_the_pods_of_a_replacement_that_cannot_be_launched_are_asked_about_elsewhere(stage: DisruptedNodes) -> None:
    """So a shortage ends with the replacement, and the next pass tries other offerings."""
    name = begin(stage)
    _, pods = without(stage.world.cluster.snapshot(), [name])
    assert [one.name for one in pods] == ["web"]


def test_a_pool_that_fails_for_weeks_still_backs_off(stage: DisruptedNodes) -> None:
    before = CommandRecord(id="before", reason="Drifted", method="drift", candidates=(CandidateRecord("gone", "uid"),))
    for _ in range(2_000):
        stage.commands.book.failed(before, ("general",))
    stage.world.clock.advance(BACKOFF_MOST_SECONDS)
    name = begin(stage)
    launch(stage, name)
    lose(stage, name)
    stage.disruption.run_once()
    stage.settle()
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)
    assert stage.commands.book.pools_backing_off() == {"general"}


@pytest.mark.parametrize(
    ("reason", "backs_off"), [(INSTANCE_TERMINATED, True), ("spot_interrupted", False)], ids=["ended", "taken back"]
)
def test_a_pool_backs_off_when_its_replacements_end_before_their_nodes_come(
    stage: DisruptedNodes, reason: str, backs_off: bool
) -> None:
    """Its queue tells of an end as of an interruption; without the pause a node that ends at launch is bought again and again."""
    name = begin(stage)
    launch(stage, name)
    mark = str(Interruption(reason))
    stage.server.writer.metadata(stage.server.claim(name), annotations={names.INTERRUPTION_ANNOTATION: mark})
    stage.disruption.run_once()
    stage.settle()
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)
    assert stage.commands.book.pools_backing_off() == ({"general"} if backs_off else set())


def tries_after(stage: DisruptedNodes, seconds: float) -> int:
    """How many replacements were created until so much later."""
    stage.world.clock.advance(seconds)
    stage.disruption.run_once()
    stage.settle()
    return sum(one.startswith("POST") for one in stage.server.done)


def test_an_interruption_takes_over(stage: DisruptedNodes) -> None:
    name = begin(stage)
    interrupt(stage, name)
    stage.disruption.run_once()
    stage.settle()
    assert stage.world.cluster.commands() == ()
    assert stage.taints() == [names.DISRUPTED_TAINT.key], "the interruption keeps it closed"
    assert stage.world.cluster.is_planned("web"), "and its pod keeps the place that was bought for it"


def test_a_replacement_that_is_interrupted_replaces_nothing(stage: DisruptedNodes) -> None:
    name = begin(stage)
    mark = str(Interruption("spot_interrupted", replaced=True, ends=NOON + timedelta(seconds=120)))
    stage.server.writer.metadata(stage.server.claim(name), annotations={names.INTERRUPTION_ANNOTATION: mark})
    stage.initialize(name)
    stage.settle()
    assert not stage.goes()
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)
    assert f"replacement NodeClaim {name} failed" in said(stage, "DisruptionBlocked")[0]


def test_a_replacement_that_the_api_server_refuses_calls_it_off(stage: DisruptedNodes) -> None:
    stage.server.refuse_creates = 422
    stage.disruption.run_once()
    stage.settle()
    assert stage.replacements() == []
    eventually(stage.is_open, "the node is open again", 5.0, 0.01)


# --- commands over several candidates ----------------------------------------------------------------------------------


def together(view: DisruptionView) -> MethodAnswer:
    """Every node that no command has, at once."""
    free = tuple(sorted(node.key.name for node in view.snapshot.nodes if not node.deleting))
    return MethodAnswer((Proposal("Underutilized", "multi", free),)) if free else MethodAnswer()


TOGETHER = (Method("multi", "Underutilized", together),)


def several(stages: Make, **options: Any) -> DisruptedNodes:
    stage = stages(methods=TOGETHER, **options)
    for name in ("a", "b", "c"):
        stage.put(name)
        stage.cloud.there.add(f"kwok://{name}")
    return stage


def test_the_record_comes_after_the_marks_and_goes_last(stages: Make) -> None:
    stage = several(stages)
    stage.disruption.run_once()
    stage.settle()
    claims = [one for one in stage.server.done if "nodeclaims" in one]
    assert claims[:3] == ["PATCH nodeclaims/b", "PATCH nodeclaims/c", "PATCH nodeclaims/a"]
    assert [one for one in claims if one.startswith("DELETE")] == [f"DELETE nodeclaims/{one}" for one in "bca"]


def test_one_candidate_that_a_user_deletes_ends_it_for_all(stages: Make) -> None:
    stage = several(stages)
    stage.server.refuse["pods"] = 500  # it cannot be validated yet
    stage.disruption.run_once()
    stage.settle()
    assert not stage.is_open("a")
    assert not stage.is_open("c")
    stage.server.writer.delete(stage.server.claim("b"))
    stage.disruption._methods = ()
    stage.disruption.run_once()
    stage.world.clock.advance(10)
    eventually(lambda: stage.is_open("a") and stage.is_open("c"), "the others are open again", 5.0, 0.01)


def test_a_budget_counts_every_candidate(stages: Make) -> None:
    stage = several(stages, budget="2")
    stage.disruption.run_once()
    stage.settle()
    assert stage.server.done == []


def test_a_candidate_that_may_not_be_deleted_does_not_hold_the_others_for_ever(stages: Make) -> None:
    stage = stages()
    stage.drifted("a", WEB)
    name = begin(stage)
    stage.put("b")
    record = command_on(stage.server.claim("a"))
    assert record is not None
    both = (*record.candidates, CandidateRecord("b", stage.server.claim("b").metadata.uid))
    sealed = encode_command(msgspec.structs.replace(record, candidates=both, phase=CommandPhase.DELETING))
    stage.server.refuse["b"] = 403
    stage.server.writer.metadata(stage.server.claim("a"), annotations={names.COMMAND_ANNOTATION: sealed})
    stage.initialize(name)
    stage.disruption._methods = ()
    for _ in range(2 * GIVE_UP_AFTER):
        stage.commands.queue.add("a")
        stage.settle()
        stage.world.clock.advance(11)
    eventually(stage.is_open, "it is called off", 5.0, 0.01)
    assert not stage.goes("b")


# --- a crash after every write ------------------------------------------------------------------------------------------


def crash_after(stage: DisruptedNodes, writes: int) -> bool:
    """Let the process die before its next write but `writes`; whether it got so far."""
    stage.server.dies_after = writes
    died = False

    def reconcile(holder: str) -> None:
        nonlocal died
        try:
            stage.commands.reconcile(holder)
        except ServerDied:
            died = True

    stage.commands.queue._reconcile = reconcile
    stage.disruption.run_once()
    stage.settle()
    return died


@pytest.mark.parametrize("writes", range(5))
def test_a_drift_is_resumed_or_rolled_back_after_every_write(stage: DisruptedNodes, writes: int) -> None:
    died = crash_after(stage, writes)
    assert died is (writes < 4)
    stage.restart()
    stage.settle()
    if writes == 0:
        assert stage.is_open()
        assert begin(stage)
    (name,) = stage.replacements()
    assert stage.world.cluster.snapshot().leaving == ()
    assert stage.world.cluster.is_planned("web"), "the replacement keeps no room for the pod"
    stage.initialize(name)
    stage.settle()
    assert stage.goes()
    assert stage.replacements() == [name]
    assert stage.server.done.count("DELETE nodeclaims/a") == 1


@pytest.mark.parametrize("writes", range(14))
def test_a_command_over_several_is_whole_or_nothing_after_every_write(stages: Make, writes: int) -> None:
    stage = several(stages)
    crash_after(stage, writes)
    before = [name for name in "abc" if stage.goes(name)]
    stage._methods = ()
    stage.restart()
    stage.disruption.run_once()
    stage.settle()
    gone = [name for name in "abc" if stage.goes(name)]
    if writes < 3:
        assert (before, gone) == ([], [])
        assert all(stage.is_open(name) for name in "abc")
    else:
        assert gone == ["a", "b", "c"]


def test_a_record_without_bodies_is_rolled_back_where_a_replacement_was_never_created(stage: DisruptedNodes) -> None:
    crash_after(stage, 1)
    record = command_on(stage.server.claim("a"))
    assert record is not None
    bare = [{"name": one.name} for one in record.replacements]
    wire = stage.server.objects["nodeclaims"]["a"]
    whole = msgspec.json.decode(wire["metadata"]["annotations"][names.COMMAND_ANNOTATION])
    wire["metadata"]["annotations"][names.COMMAND_ANNOTATION] = msgspec.json.encode(
        whole | {"replacements": bare}
    ).decode()
    stage._methods = ()
    stage.restart()
    stage.settle()
    assert stage.replacements() == []
    eventually(stage.is_open, "it is rolled back", 5.0, 0.01)


FORGED: dict[str, dict[str, Any]] = {
    "nothing that can be read": {"metadata": {"name": ["what"]}},
    "another name": {"metadata": {"name": "another"}},
    "another command": {"metadata": {"annotations": {names.REPLACES_ANNOTATION: "another"}}},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_replacement_that_somebody_wrote_into_the_record_is_not_created(
    stage: DisruptedNodes, forged: dict[str, Any]
) -> None:
    crash_after(stage, 1)
    wire = stage.server.objects["nodeclaims"]["a"]
    whole = msgspec.json.decode(wire["metadata"]["annotations"][names.COMMAND_ANNOTATION])
    body = whole["replacements"][0]["body"]
    body["metadata"] |= forged["metadata"]
    wire["metadata"]["annotations"][names.COMMAND_ANNOTATION] = msgspec.json.encode(whole).decode()
    stage._methods = ()
    stage.restart()
    stage.settle()
    eventually(stage.is_open, "it is rolled back", 5.0, 0.01)
    assert not [one for one in stage.server.done if one.startswith("POST")]


def test_a_name_that_is_taken_by_another_command_is_no_success(stage: DisruptedNodes) -> None:
    crash_after(stage, 3)
    record = command_on(stage.server.claim("a"))
    assert record is not None
    name = record.replacement_names[0]
    made = dict(record.replacements[0].body or {})
    made["metadata"] = {**made["metadata"], "uid": "other", "annotations": {names.REPLACES_ANNOTATION: "another"}}
    stage._methods = ()
    stage.stop()
    stage.server.dies_after = None
    stage.server.store("nodeclaims", made)
    stage.restart()
    stage.settle()
    eventually(stage.is_open, "it is rolled back", 5.0, 0.01)
    assert stage.server.has("nodeclaims", name), "what is another's is left alone"


def test_marks_of_no_command_are_taken_back(stages: Make) -> None:
    stage = stages(methods=())
    stage.put("a", annotations={names.COMMAND_MEMBER_ANNOTATION: "gone"})
    stage.put("b", annotations={names.COMMAND_ANNOTATION: "what is this"})
    stage.disruption.run_once()
    stage.settle()
    assert stage.is_open("a")
    assert stage.is_open("b")


def test_what_is_taken_back_at_this_moment_begins_nothing(stages: Make) -> None:
    stage = stages(methods=())
    stage.put("a", annotations={names.COMMAND_MEMBER_ANNOTATION: "gone"})
    empty = Proposal(names.REASON_EMPTY, "empty", ("a",))
    assert not stage.commands.begin(empty, stage.world.cluster.snapshot())
    assert stage.world.cluster.commands() == ()
    stage.disruption.run_once()
    stage.settle()
    assert stage.commands.begin(empty, stage.world.cluster.snapshot())


def test_a_command_that_no_watch_has_told_yet_is_not_taken_back(stage: DisruptedNodes) -> None:
    begin(stage)
    stage.world.clock.advance(61)  # an echo of our own write is not expected any more
    known = stage.server.claim("a")
    others = {key: text for key, text in known.metadata.annotations.items() if key != names.COMMAND_ANNOTATION}
    older = msgspec.structs.replace(known, metadata=msgspec.structs.replace(known.metadata, annotations=others))
    stage.world.cluster.claim_changed(known, older)
    assert stage.world.cluster.commands() == ()
    stage.commands.heal("a")
    assert stage.taints() == [names.DISRUPTED_TAINT.key]
    assert command_on(stage.server.claim("a")) is not None
    assert len(stage.world.cluster.commands()) == 1


# --- a command that is being begun ----------------------------------------------------------------------------------------


def during_announce(stage: DisruptedNodes, do: Callable[[], object]) -> None:
    """Let something happen between the moment at which a command enters the state and that at which it has its replacements."""
    real = stage.commands._creator.announce

    def announce(pool: str, make: Callable[[str], NewClaim]) -> NewClaim | None:
        do()
        return real(pool, make)

    stage.commands._creator.announce = announce  # type: ignore[method-assign]


def test_an_event_meanwhile_does_not_carry_it_out_without_its_replacements(stage: DisruptedNodes) -> None:
    def hear() -> None:
        stage.commands.heard(stage.server.claim("a"))
        stage.commands.review(stage.world.cluster.snapshot())
        stage.settle()

    during_announce(stage, hear)
    begin(stage)
    record = command_on(stage.server.claim("a"))
    assert record is not None
    assert len(record.replacements) == 1
    assert not stage.goes()


def test_one_that_could_not_be_begun_leaves_nothing_behind_and_holds_up_no_other(stage: DisruptedNodes) -> None:
    stage.drifted("b", pod("api", cpu="3", ready=True))
    tries = iter(range(9))

    def fail() -> None:
        if next(tries) == 0:
            raise RuntimeError("a defect")

    during_announce(stage, fail)
    stage.disruption.run_once()
    stage.settle()
    stage.commands.review(stage.world.cluster.snapshot())
    stage.settle()
    begun = [name for name in "ab" if command_on(stage.server.claim(name)) is not None]
    assert len(begun) == 1
    assert [one.record.holder for one in stage.world.cluster.commands()] == begun
    assert len(stage.replacements()) == 1
    assert not any(stage.goes(name) for name in "ab")


@pytest.mark.parametrize("status", [403, 422])
def test_one_whose_record_is_refused_is_called_off(stage: DisruptedNodes, status: int) -> None:
    stage.server.refuse["a"] = status
    stage.disruption.run_once()
    stage.settle()
    assert stage.world.cluster.commands() == ()
    assert [node.key.name for node in stage.world.cluster.snapshot().nodes] == ["a"], "its replacement is announced"
    assert not stage.world.cluster.is_planned("web")
    assert stage.commands.book.pools_backing_off() == {"general"}


def test_plans_say_what_it_places_after_its_record_is_written(stages: Make) -> None:
    def onto_b(view: DisruptionView) -> MethodAnswer:
        placed = {"b": tuple(pod for node in view.snapshot.nodes if node.key.name == "a" for pod in node.pods)}
        return MethodAnswer((Proposal("Drifted", "drift", ("a",), (), placed),))

    stage = stages(methods=(Method("drift", "Drifted", onto_b),))
    stage.drifted("a", WEB)
    stage.put("b")
    stage.server.refuse["a"] = 500
    stage.disruption.run_once()
    stage.settle()
    eventually(lambda: not stage.commands._plans._busy, "no plan is being written", 5.0, 0.01)
    assert stage.world.cluster.is_planned("web")
    assert names.PLAN_ANNOTATION not in stage.server.claim("b").metadata.annotations
    stage.server.refuse.clear()
    stage.disruption._methods = ()
    stage.world.clock.advance(1)
    eventually(
        lambda: names.PLAN_ANNOTATION in stage.server.claim("b").metadata.annotations, "the plan is written", 5.0, 0.01
    )


# --- caches that are behind ---------------------------------------------------------------------------------------------


def behind(stage: DisruptedNodes, kind: str, name: str, **metadata: Any) -> None:
    """Somebody changes an object, and no watch tells it."""
    wire = stage.server.objects[kind][name]
    stage.server.tell = False
    stage.server.store(kind, {**wire, "metadata": {**wire["metadata"], **metadata}})
    stage.server.tell = True


def test_one_that_another_leader_took_back_is_not_gone_on_with(stage: DisruptedNodes) -> None:
    name = begin(stage)
    behind(stage, "nodeclaims", "a", annotations={})
    stage.initialize(name)
    stage.settle()
    assert not stage.goes()
    assert stage.world.cluster.commands() == ()
    stage.disruption._methods = ()
    stage.disruption.run_once()
    stage.settle()
    assert stage.is_open()


def test_a_node_claim_that_may_not_be_disrupted_any_more_stays(stage: DisruptedNodes) -> None:
    name = begin(stage)
    annotations = stage.server.objects["nodeclaims"]["a"]["metadata"]["annotations"]
    behind(stage, "nodeclaims", "a", annotations={**annotations, names.DO_NOT_DISRUPT: "true"})
    stage.initialize(name)
    stage.settle()
    assert not stage.goes()
    assert stage.is_open()


def test_a_replacement_that_is_being_deleted_replaces_nothing(stage: DisruptedNodes) -> None:
    name = begin(stage)
    stage.server.refuse["pods"] = 500  # it comes up, and cannot be validated yet
    stage.initialize(name)
    stage.settle()
    behind(stage, "nodeclaims", name, deletionTimestamp=NOON.isoformat())
    stage.server.refuse.clear()
    stage.world.clock.advance(10)
    eventually(stage.is_open, "it is called off", 5.0, 0.01)
    assert not stage.goes()
    assert (stage.commands.book.called_off("drift"), stage.commands.book.called_off("rebuild")) == (1, 0)


def test_a_replacement_that_is_gone_replaces_nothing(stage: DisruptedNodes) -> None:
    name = begin(stage)
    stage.server.refuse["pods"] = 500
    stage.initialize(name)
    stage.settle()
    del stage.server.objects["nodeclaims"][name]
    stage.server.refuse.clear()
    stage.world.clock.advance(10)
    stage.settle()
    assert not stage.goes()
    stage.world.cluster.claim_changed(stage.world.cluster.claim(name), None)
    stage.world.clock.advance(10)
    eventually(stage.is_open, "it is called off", 5.0, 0.01)


def test_a_node_that_somebody_opened_is_closed_before_its_pods_are_listed(stage: DisruptedNodes) -> None:
    name = begin(stage)
    wire = stage.server.objects["nodes"]["a"]
    stage.server.tell = False
    stage.server.store("nodes", {**wire, "spec": {**wire["spec"], "taints": []}})
    stage.server.tell = True
    stage.server.api.sent.clear()
    stage.initialize(name)
    stage.settle()
    assert stage.goes()
    sent = [f"{one.method} {one.path}" for one in stage.server.api.sent]
    last_list = max(number for number, one in enumerate(sent) if one == "GET /api/v1/pods")
    assert sent.index("PATCH /api/v1/nodes/a") < last_list


# --- how often methods are asked ---------------------------------------------------------------------------------------


NOTHING = MethodAnswer()


def listening(answer: MethodAnswer = NOTHING) -> tuple[list[DisruptionView], Method]:
    """A method that gives one answer, and the views that it was asked about."""
    seen: list[DisruptionView] = []

    def ask(view: DisruptionView) -> MethodAnswer:
        seen.append(view)
        return answer

    return seen, Method("static_drift", "Drifted", ask)


def test_what_proposed_nothing_is_not_asked_again_while_nothing_changes(stages: Make) -> None:
    seen, method = listening()
    stage = stages(methods=(method,))
    stage.drifted("a", WEB)
    for _ in range(5):
        stage.disruption.run_once()
        stage.world.clock.advance(1)
    stage.settle()
    asked = len(seen)
    assert asked <= 2, "once, and once more when the conditions are written"
    stage.disruption.run_once()
    assert len(seen) == asked
    stage.bind(pod("late"), "a")
    stage.disruption.run_once()
    assert len(seen) == asked + 1, "a pod came"
    stage.world.clock.advance(WORLD_SECONDS)
    stage.disruption.run_once()
    assert len(seen) == asked + 2, "prices and offerings change without an event"


ALWAYS = {
    "a node that it did not come to": MethodAnswer(unreached=frozenset({"a"})),
    "a time that has come": MethodAnswer(recheck_at=NOON),
    "a proposal that could not be begun": MethodAnswer((Proposal("Drifted", "drift", ("gone",)),)),
}


@pytest.mark.parametrize("answer", ALWAYS.values(), ids=ALWAYS)
def test_it_is_asked_again_because_of(stages: Make, answer: MethodAnswer) -> None:
    seen, method = listening(answer)
    stage = stages(methods=(method,))
    stage.drifted("a", WEB)
    for _ in range(4):
        stage.disruption.run_once()
    assert len(seen) == 4
    assert seen[-1].first == answer.unreached


def test_an_answer_takes_no_longer_than_it_may_and_other_methods_have_their_turn(stages: Make) -> None:
    ended: list[tuple[str, bool]] = []
    stage: DisruptedNodes

    def endless(view: DisruptionView) -> MethodAnswer:
        while not view.expired() and len(ended) < 100:
            ended.append(("drift", False))
            stage.world.clock.advance(1)
        ended.append(("drift", view.expired()))
        return NOTHING

    def next_one(view: DisruptionView) -> MethodAnswer:
        ended.append(("next", view.expired()))
        return NOTHING

    stage = stages(methods=(Method("drift", "Drifted", endless), Method("static_drift", "Drifted", next_one)))
    stage.disruption.run_once()
    assert ended == [*[("drift", False)] * int(ANSWER_SECONDS), ("drift", True), ("next", False)]


def test_a_method_that_nothing_concerns_is_not_asked_and_no_world_is_made(
    stages: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, asked = stages(), list[Snapshot]()
    stage.put("a")
    monkeypatch.setattr(stage.disruption.worlds, "at", asked.append)
    stage.disruption.run_once()
    assert asked == []
    stage.disruption.view(stage.world.cluster.snapshot(), first=frozenset(), expired=lambda: True)
    assert len(asked) == 1, "it would be seen"


def test_candidates_go_and_replacements_stay(stages: Make) -> None:
    seen, method = listening()
    stage = stages(methods=(*DRIFT, method))
    stage.drifted("a", WEB)
    name = begin(stage)
    assert seen[0].under_way == {"a"}, "begun in the same pass"
    assert seen[0].spared == {}
    stage.disruption.run_once()
    assert seen[-1].under_way == {"a"}
    assert seen[-1].spared.keys() == {name}
