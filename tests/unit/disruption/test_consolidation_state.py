"""Consolidation from the pass to the end of a node: when it looks, whom it leaves alone, and what it does not begin."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.buffers.controller import CapacityBuffers
from provisioner.disruption import controller as disruption
from provisioner.disruption import worlds
from provisioner.disruption.consolidation_state import MOST_SECONDS, PASS_SECONDS, STILL_SECONDS, TIMEOUT_SECONDS, Looks
from provisioner.disruption.controller import CONSOLIDATIONS, METHODS, PROTECTIONS_SECONDS, Method, settings_of
from provisioner.disruption.methods.moves import LAUNCHED_RECENTLY
from provisioner.disruption.price_history import LEARNING
from provisioner.disruption.proposal import Blocked, Proposal, Score
from provisioner.disruption.rebuilding_planner import Rebuilding
from provisioner.disruption.replacement import NO_CHEAPER_NODE
from provisioner.disruption.simulation.turns import WAITS_FOR_TIED, Turns
from provisioner.disruption.view import Acceptance, DisruptionSettings, DisruptionView, Improved, MethodAnswer
from provisioner.disruption.worlds import WORLD_SECONDS
from provisioner.options import Options
from provisioner.state.checking import CheckedCluster
from provisioner.state.pause import DISRUPTION, NOTHING, Pause, PauseValue
from provisioner.state.snapshot import Snapshot
from provisioner.support.clock import Clock
from provisioner.support.metrics import REGISTRY
from provisioner.support.precedence import LongWork, Precedence
from tests.support.clock import NOON
from tests.support.cluster import claim, node, pod, pool
from tests.support.disrupting import ALL_TRUE, LONG_AGO, DisruptedNodes, Make
from tests.support.problems import shape

SMALL, LARGE = "c-4x-amd64-linux", "c-32x-amd64-linux"
WEB: dict[str, Any] = {"ready": True, "phase": "Running", "scheduled": True, "labels": {"app": "web"}}


def busy(stage: DisruptedNodes, name: str, *pods: str, kind: str = SMALL, cpu: str = "1", **metadata: Any) -> None:
    """A node of a type, as a provider labels it, with pods on it."""
    labels = {
        names.NODEPOOL_LABEL: "general",
        names.INSTANCE_TYPE_LABEL: kind,
        names.ZONE_LABEL: "test-zone-a",
        names.CAPACITY_TYPE_LABEL: "on-demand",
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
    }
    made = claim(
        name, provider_id=f"kwok://{name}", true=ALL_TRUE, since=LONG_AGO, planned=kind, labels=labels, **metadata
    )
    stage.cloud.there.add(f"kwok://{name}")
    stage.server.put(made, node(name, labels=labels, kind=kind))
    for one in pods:
        stage.bind(pod(one, cpu=cpu, **WEB), name)


def look(stage: DisruptedNodes, seconds: float = STILL_SECONDS + 1) -> bool:
    """The nodes are noted, so much time passes, and a pass is made where one is due."""
    stage.disruption.run_once()
    stage.world.clock.advance(seconds)
    stage.disruption.run_once()
    made = stage.disruption.consolidate_once()
    stage.settle()
    return made


def two(stages: Make, **options: Any) -> DisruptedNodes:
    stage = stages("a", "b", **options)
    busy(stage, "a", "web-a")
    busy(stage, "b", "web-b")
    return stage


def left(stage: DisruptedNodes, *those: str) -> list[str]:
    return [name for name in those or ("a", "b") if not stage.goes(name)]


def said(stage: DisruptedNodes, reason: str) -> list[str]:
    told = zip(stage.server.recorder.events, stage.server.recorder.messages, strict=True)
    return [f"{event[0]}/{event[1]}: {message}" for event, message in told if event[3] == reason]


def test_flags_become_settings() -> None:
    flags = ["--consolidation=karpenter", "--feature-gates=SpotToSpotConsolidation=true"]
    assert settings_of(Options.parse(flags, {})) == DisruptionSettings(
        spot_to_spot=True, acceptance=Acceptance.KARPENTER
    )
    assert settings_of(Options()) == DisruptionSettings(spot_to_spot=False, acceptance=Acceptance.SAVING)


def test_every_method_is_asked_in_the_order_of_karpenter() -> None:
    assert [one.name for one in METHODS] == ["repair", "empty", "static_drift", "drift"]
    assert [one.name for one in CONSOLIDATIONS] == ["single"]


def decisions(decision: str, kind: str) -> float:
    labels = {"decision": decision, "reason": "underutilized", "consolidation_type": kind}
    return REGISTRY.get_sample_value("karpenter_voluntary_disruption_decisions_total", labels) or 0.0


def disrupted(policy: str) -> float:
    labels = {
        "reason": "underutilized",
        "nodepool": "general",
        "capacity_type": "on-demand",
        "consolidation_policy": policy,
        "termination_mode": "graceful",
    }
    return REGISTRY.get_sample_value("karpenter_nodeclaims_disrupted_total", labels) or 0.0


def test_a_node_whose_pods_fit_on_another_goes(stages: Make) -> None:
    stage, before = two(stages), decisions("delete", "single")
    of_policy = disrupted("when_empty_or_underutilized")
    assert look(stage)
    (stays,) = left(stage)
    goes = "b" if stays == "a" else "a"
    assert stage.world.cluster.is_planned(f"web-{goes}")
    assert [one.name for one in stage.world.view(stays).assigned] == [f"web-{goes}"]
    assert decisions("delete", "single") == before + 1
    assert disrupted("when_empty_or_underutilized") == of_policy + 1
    assert said(stage, "DisruptionTerminating") == [
        f"NodeClaim/{goes}: Disrupting Node: Underutilized",
        f"Node/{goes}: Disrupting Node: Underutilized",
    ]


def test_a_node_that_is_too_large_is_replaced_first(stages: Make) -> None:
    stage = stages("a")
    busy(stage, "a", "web", kind=LARGE)
    look(stage)
    (name,) = stage.replacements()
    assert left(stage, "a") == ["a"], "it goes before its replacement is there"
    stage.initialize(name)
    stage.settle()
    assert stage.goes("a")


KEPT: dict[str, dict[str, Any]] = {
    "a budget of none": {"budget": "0"},
    "a budget of none for this reason": {"budgets": [{"nodes": "0", "reasons": ["Underutilized"]}, {"nodes": "100%"}]},
    "consolidateAfter Never": {"after": "Never"},
    "consolidateAfter that is not over": {"after": "2h"},
    "the policy WhenEmpty": {"consolidationPolicy": "WhenEmpty"},
}


@pytest.mark.parametrize("options", KEPT.values(), ids=KEPT)
def test_what_a_pool_says_holds(stages: Make, options: dict[str, Any]) -> None:
    stage = two(stages, **options)
    assert look(stage)
    assert left(stage) == ["a", "b"]
    assert stage.server.done == [one for one in stage.server.done if one.startswith("PATCH nodeclaims")]


def test_a_node_is_left_alone_until_it_has_been_still_for_a_while(stages: Make) -> None:
    stage = two(stages)
    assert look(stage, STILL_SECONDS - 1)
    assert left(stage) == ["a", "b"]
    stage.bind(pod("late-a", cpu="100m", **WEB), "a")
    stage.bind(pod("late-b", cpu="100m", **WEB), "b")
    assert look(stage, STILL_SECONDS - 1)
    assert left(stage) == ["a", "b"], "a pod came a moment ago"
    assert look(stage)
    assert len(left(stage)) == 1


class Interrupted(LongWork):
    """Short work goes before every piece of it, each time for as long as a pass may take."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(threading.Event(), clock)
        self.times = 0

    def give_way(self) -> None:
        self.times += 1
        self._clock.sleep(TIMEOUT_SECONDS)
        self.waited += TIMEOUT_SECONDS


class AlwaysBusy(Precedence):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.given: list[Interrupted] = []
        self._time = clock

    def long_work(self) -> LongWork:
        self.given.append(Interrupted(self._time))
        return self.given[-1]


def test_a_pass_that_gives_way_before_every_question_decides_as_one_that_never_does(stages: Make) -> None:
    busy_ones: list[AlwaysBusy] = []

    def always(clock: Clock) -> Precedence:
        busy_ones.append(AlwaysBusy(clock))
        return busy_ones[-1]

    answers = []
    for precedence in (Precedence, always):
        stage = stages("n0", precedence=precedence)
        for number in range(FLEET):
            busy(stage, f"n{number}", f"web-{number}", cpu="1" if number < FLEET / 2 else "3")
        assert look(stage)
        answer = stage.disruption.answers()[names.REASON_UNDERUTILIZED]
        moves = [
            (one.candidates, {name: [each.name for each in some] for name, some in one.placements.items()})
            for one in answer.proposals
        ]
        answers.append((moves, [(one.key, str(one)) for one in answer.blocked], answer.unreached, answer.quiet))
    assert answers[0] == answers[1]
    assert answers[0][0], "there is something to decide"
    (work,) = busy_ones[0].given
    assert work.times >= FLEET


def test_a_pass_rests_for_as_long_as_it_has_worked_and_not_for_as_long_as_it_has_waited(stages: Make) -> None:
    """Else it would have a quarter of the time where batches come one after another, instead of a third."""
    stage = two(stages, precedence=AlwaysBusy)
    began = stage.world.clock.monotonic()
    assert look(stage)
    assert stage.world.clock.monotonic() - began > TIMEOUT_SECONDS
    assert look(stage), "it found something, so the next one is due"


def test_nothing_goes_while_a_watch_is_behind_and_all_are_restless_afterwards(stages: Make) -> None:
    stage = two(stages)
    stage.disruption.run_once()
    stage.world.clock.advance(STILL_SECONDS + 1)
    stage.behind = "pods were last heard of 80 s ago"
    stage.disruption.run_once()
    assert not stage.disruption.consolidate_once()
    stage.behind = ""
    stage.disruption.run_once()
    stage.disruption.consolidate_once()
    stage.settle()
    assert left(stage) == ["a", "b"], "what happened meanwhile was not seen"


def test_a_paused_pool_is_left_alone_by_every_method(stages: Make) -> None:
    stage = stages("empty", "a", "b")
    busy(stage, "a", "web-a")
    busy(stage, "b", "web-b")
    stage.pause = Pause(pools={"general": PauseValue(DISRUPTION)})
    look(stage)
    look(stage)
    assert left(stage, "empty", "a", "b") == ["empty", "a", "b"]
    assert set(said(stage, "DisruptionBlocked")) == {
        'NodePool/general: Disruption is paused by the annotation "dovetail.dev/paused" of NodePool "general"'
    }
    stage.pause = NOTHING
    assert look(stage), "a pause that ends is seen at once"
    assert len(left(stage, "empty", "a", "b")) == 1


class Asked:
    """A method that counts its passes and answers what it is told to."""

    def __init__(self, answer: Callable[[DisruptionView], MethodAnswer] = lambda _: MethodAnswer()) -> None:
        self.views: list[DisruptionView] = []
        self._answer = answer

    def __call__(self, view: DisruptionView) -> MethodAnswer:
        self.views.append(view)
        return self._answer(view)

    @property
    def method(self) -> tuple[Method, ...]:
        return (Method("single", names.REASON_UNDERUTILIZED, self),)


def test_nothing_is_asked_again_while_nothing_changes(stages: Make) -> None:
    asked = Asked()
    stage = two(stages, consolidations=asked.method)
    assert look(stage)
    stage.settle()
    assert not look(stage, PASS_SECONDS / 2), "too early"
    look(stage)  # what was told about the nodes since has changed them
    count = len(asked.views)
    for _ in range(5):
        assert not look(stage, 2 * PASS_SECONDS)
    assert len(asked.views) == count
    stage.bind(pod("late", cpu="100m", **WEB), "a")
    assert look(stage, 1)
    assert len(asked.views) == count + 1
    assert look(stage, MOST_SECONDS), "prices and hours change without an event"


FLEET = 20


def test_a_consolidated_fleet_is_looked_at_once_in_five_minutes(stages: Make) -> None:
    """It runs twice in ten minutes, whatever a budget of none holds back; each second costs a comparison."""
    count = 0

    def counted(method: Method) -> Method:
        def ask(view: DisruptionView) -> MethodAnswer:
            nonlocal count
            count += 1
            return method.ask(view)

        return replace(method, ask=ask)

    stage = stages(
        "n0", budgets=[{"nodes": "0", "reasons": ["Underutilized"]}], consolidations=tuple(map(counted, CONSOLIDATIONS))
    )
    for number in range(FLEET):
        busy(stage, f"n{number}", f"web-{number}", cpu="1" if number < FLEET / 2 else "3")
    look(stage)
    look(stage)  # what was told about the nodes since has changed them
    settled, before = count, stage.world.clock.monotonic()
    while stage.world.clock.monotonic() - before < 2 * MOST_SECONDS:
        stage.world.clock.advance(10)
        stage.disruption.run_once()
        stage.disruption.consolidate_once()
    assert (settled, count - settled) == (2, 2)


def test_a_budget_that_opens_by_the_clock_is_seen_at_once(stages: Make) -> None:
    """Noon has passed two minutes when it does."""
    stage = two(stages, budgets=[{"nodes": "0", "schedule": "0 11 * * *", "duration": "1h2m"}, {"nodes": "100%"}])
    look(stage)
    look(stage)
    assert left(stage) == ["a", "b"]
    assert not look(stage, 2 * PASS_SECONDS), "nothing has changed, and the window is closed"
    assert look(stage, 80), "the budget's window is over"
    assert len(left(stage)) == 1


def test_what_was_decided_is_not_begun_where_a_pod_came_meanwhile_that_may_want_the_room(stages: Make) -> None:
    single = CONSOLIDATIONS[-1].ask
    stage: DisruptedNodes

    def while_a_pod_comes(view: DisruptionView) -> MethodAnswer:
        stage.world.add(pod("new", cpu="2"))
        return single(view)

    asked = Asked(while_a_pod_comes)
    stage = two(stages, consolidations=asked.method)
    look(stage)
    assert len(asked.views) == 1
    assert left(stage) == ["a", "b"]


def test_a_node_that_a_waiting_pod_fits_on_stays(stages: Make) -> None:
    stage = two(stages)
    stage.world.add(pod("new", cpu="2"), pod("newer", cpu="2"))
    look(stage)
    assert left(stage) == ["a", "b"]


def timeouts() -> float:
    name = "karpenter_voluntary_disruption_consolidation_timeouts_total"
    return REGISTRY.get_sample_value(name, {"consolidation_type": "single"}) or 0.0


def test_a_pass_that_runs_out_of_time_is_counted_and_the_next_begins_with_the_rest(stages: Make) -> None:
    single = CONSOLIDATIONS[-1].ask
    stage: DisruptedNodes

    def slow(view: DisruptionView) -> MethodAnswer:
        stage.world.clock.advance(TIMEOUT_SECONDS)
        return single(view)

    asked = Asked(slow)
    stage = two(stages, consolidations=asked.method)
    before = timeouts()
    look(stage)
    assert timeouts() == before + 1
    assert left(stage) == ["a", "b"], "nobody was judged"
    assert look(stage, TIMEOUT_SECONDS + 1), "an unfinished pass is no reason to rest"
    assert asked.views[1].first == {"a", "b"}


def test_why_a_node_stays_is_said_once_of_each_object_and_the_potential_is_told(stages: Make) -> None:
    stage = two(stages, consolidationPolicy="WhenEmpty")
    look(stage)
    text = 'NodePool "general" has consolidation policy WhenEmpty, but node is not empty'
    assert said(stage, "Unconsolidatable") == [
        f"{kind}/{name}: {text}" for name in ("a", "b") for kind in ("NodeClaim", "Node")
    ]
    potential = REGISTRY.get_sample_value("dovetail_consolidation_potential_usd_per_hour")
    assert potential is not None
    assert potential > 0


def test_a_node_whose_pods_need_one_as_dear_says_that_none_is_cheaper(stages: Make) -> None:
    """A pod of node a would go to node b, its other one to a new node of the only type that there is."""
    stage = stages("a", "b")
    (only,) = (one for one in stage.cloud.instance_types(None) if one.name == SMALL)
    on_demand = tuple(one for one in only.offerings if one.capacity_type == names.CAPACITY_ON_DEMAND)
    stage.cloud.kinds = (replace(only, offerings=on_demand),)
    busy(stage, "a", "web-1", "web-2", cpu="1500m")
    busy(stage, "b", "web-3", cpu="2100m")
    look(stage)
    assert [one for one in said(stage, "Unconsolidatable") if "/a: " in one] == [
        f"{kind}/a: {NO_CHEAPER_NODE}" for kind in ("NodeClaim", "Node")
    ]


def test_a_method_that_fails_leaves_the_other_alone(stages: Make, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: DisruptionView) -> MethodAnswer:
        raise RuntimeError("no")

    broken = replace(CONSOLIDATIONS[0], ask=fails)
    stage = two(stages, consolidations=(broken, CONSOLIDATIONS[0]))
    look(stage)
    assert len(left(stage)) == 1
    assert [record.levelname for record in caplog.records if "method failed" in record.message] == ["ERROR"]


def test_nodes_that_cannot_be_replaced_keep_no_other_pool_back(stages: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 drifted nodes of one NodePool, whose pods have no other place, beside an empty node and one too many in another."""
    monkeypatch.setattr(CheckedCluster, "check", lambda _: None)  # O(cluster) an event
    stage = stages("void", "a", "b")
    busy(stage, "a", "web-a")
    busy(stage, "b", "web-b")
    stage.world.cluster.pool_changed(None, pool("stuck", disruption={"budgets": [{"nodes": "100%"}]}))
    wants = shape(cpu="3", selector={"gpu": "yes"})
    for number in range(200):
        name, labels = f"s{number:03d}", {names.NODEPOOL_LABEL: "stuck", "gpu": "yes"}
        true = (*ALL_TRUE, names.DRIFTED)
        made = claim(name, provider_id=f"kwok://{name}", true=true, since=LONG_AGO, labels=labels)
        stage.cloud.there.add(f"kwok://{name}")
        stage.server.put(made, node(name, labels=labels))
        stage.bind(pod(f"job-{number}", **WEB, shape=wants), name)
    stage.disruption.run_once()
    stage.world.clock.advance(STILL_SECONDS + 1)
    stage.disruption.run_once()
    stage.settle()
    assert stage.goes("void"), "emptiness had its turn in the pass"
    assert stage.disruption.consolidate_once()
    stage.settle()
    assert len(left(stage)) == 1, "and so had consolidation"
    assert not any(stage.goes(f"s{number:03d}") for number in range(200))


# --- what is said of moves (core spec 6.12, 6.13, 8.2) ---


def moves(decision: str) -> float:
    labels = {"decision": decision, "nodepool": "general", "policy": "balanced"}
    assert REGISTRY.get_sample_value("karpenter_consolidation_score_count", labels) == REGISTRY.get_sample_value(
        "karpenter_consolidation_moves_total", labels
    )
    return REGISTRY.get_sample_value("karpenter_consolidation_moves_total", labels) or 0.0


def test_a_move_is_announced_and_a_balanced_pool_says_why_it_agrees(stages: Make) -> None:
    stage, before = two(stages, consolidationPolicy="Balanced"), moves("approved")
    look(stage)
    (stays,) = left(stage)
    goes = "b" if stays == "a" else "a"
    (announced, same) = said(stage, "ConsolidationCandidate")
    assert announced.startswith(f"NodeClaim/{goes}: Consolidation candidate: delete {goes} (savings: $0.")
    assert same.startswith(f"Node/{goes}: ")
    approved = said(stage, "ConsolidationApproved")
    assert [one.split(":")[0] for one in approved] == [f"NodeClaim/{goes}", f"Node/{goes}"]
    assert ">= threshold 0.50 (k: 2, savings 50.0%, disruption 50.0%)" in approved[0]
    assert moves("approved") == before + 1


def test_nodes_that_are_to_follow_are_told_too(stages: Make) -> None:
    stage = stages("a", "b")
    busy(stage, "a", "web", kind=LARGE)
    ask = CONSOLIDATIONS[0].ask

    def first_of_two(view: DisruptionView) -> MethodAnswer:
        answer = ask(view)
        return replace(answer, proposals=tuple(replace(one, then=("b",)) for one in answer.proposals))

    stage.disruption._consolidations = (replace(CONSOLIDATIONS[0], ask=first_of_two),)
    look(stage)
    told = said(stage, "ConsolidationCandidate")
    assert [one.split(":")[0] for one in told] == ["NodeClaim/a", "Node/a", "NodeClaim/b", "Node/b"]
    assert all(
        ": Consolidation candidate: replace a with " in one and ", then delete b (savings: $" in one for one in told
    )


def test_a_balanced_pool_that_refuses_is_counted(stages: Make) -> None:
    score = Score("general", 0.3, 0.03, 0.1)
    single = replace(CONSOLIDATIONS[0], ask=lambda _: MethodAnswer(rejected=(score, score)))
    stage, before = two(stages, consolidations=(single,)), moves("rejected")
    look(stage)
    assert moves("rejected") == before + 2


def test_a_move_that_no_longer_holds_is_rejected_as_churn(stages: Make) -> None:
    stage = two(stages)
    ask = CONSOLIDATIONS[0].ask

    def slow(view: DisruptionView) -> MethodAnswer:
        answer = ask(view)
        for name in "ab":
            stage.bind(pod(f"late-{name}", cpu="100m", **WEB), name)
        return answer

    stage.disruption._consolidations = (replace(CONSOLIDATIONS[0], ask=slow),)
    look(stage)
    assert left(stage) == ["a", "b"]
    (one, _) = said(stage, "ConsolidationRejected")
    assert ", reason: churn (savings: $0." in one


def test_a_move_that_waits_for_its_turn_says_so_and_is_not_rejected(
    stages: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold(
        proposals: Sequence[Proposal], _now: Snapshot, _keys: frozenset[str]
    ) -> tuple[Sequence[Proposal], Sequence[Blocked]]:
        return (), [Blocked(name, "general", WAITS_FOR_TIED) for one in proposals for name in one.candidates]

    monkeypatch.setattr(worlds, "in_turn", hold)
    stage = two(stages)
    look(stage)
    assert left(stage) == ["a", "b"]
    assert said(stage, "ConsolidationRejected") == []
    assert {one.partition(": ")[2] for one in said(stage, "DisruptionBlocked")} == {WAITS_FOR_TIED}
    monkeypatch.undo()
    look(stage)
    assert len(left(stage)) == 1, "it was asked again"


@pytest.mark.parametrize("news", [True, False])
def test_a_node_just_bought_is_replaced_once_something_cheaper_becomes_available(stages: Make, news: bool) -> None:
    """It is as large as its pods' node needs be while nothing smaller is to be had."""
    stage = stages("other")
    everything = stage.cloud.instance_types(None)
    large = tuple(one for one in everything if one.name == LARGE)
    stage.cloud.kinds = large
    stage.disruption.run_once()
    stage.world.clock.advance(LEARNING.total_seconds() + WORLD_SECONDS)
    if not news:
        stage.cloud.kinds = everything
        stage.disruption.run_once()
        stage.world.clock.advance(WORLD_SECONDS + 1)
    busy(stage, "a", "web", kind=LARGE, annotations={}, creationTimestamp=stage.world.clock.now().isoformat())
    assert look(stage)
    assert not stage.replacements()
    stage.cloud.kinds = everything
    assert look(stage) or not news
    assert len(stage.replacements()) == news
    if not news:
        told = [one.partition(": ") for one in said(stage, "Unconsolidatable")]
        of_it = {message for who, _, message in told if who.endswith("/a")}  # "other" may be on its way still
        assert of_it == {LAUNCHED_RECENTLY}


def test_a_move_without_a_budget_left_is_rejected_for_it(stages: Make) -> None:
    stage = two(stages, budget="1")
    ask = CONSOLIDATIONS[0].ask

    def slow(view: DisruptionView) -> MethodAnswer:
        answer = ask(view)
        stage.ledger.seize("ab".replace(answer.proposals[0].candidates[0], ""))
        return answer

    stage.disruption._consolidations = (replace(CONSOLIDATIONS[0], ask=slow),)
    look(stage)
    assert left(stage) == ["a", "b"]
    assert ", reason: budget (savings: $0." in said(stage, "ConsolidationRejected")[0]


def test_pods_are_told_once_what_their_protection_means_and_when_it_is_over(stages: Make) -> None:
    stage = stages("a")
    stage.bind(pod("brief", annotations={names.DO_NOT_DISRUPT: "2m"}, start_time=NOON - timedelta(seconds=105)), "a")
    stage.bind(pod("wrong", annotations={names.DO_NOT_DISRUPT: "maybe"}), "a")
    for _ in range(6):
        stage.disruption.run_once()
        stage.world.clock.advance(PROTECTIONS_SECONDS / 2)
    assert [one.split(":")[0] for one in said(stage, "DoNotDisruptUntil")] == ["Pod/brief"]
    assert [one.split(":")[0] for one in said(stage, "DoNotDisruptGracePeriodElapsed")] == ["Pod/brief"]
    assert [one.split(":")[0] for one in said(stage, "InvalidDoNotDisruptAnnotation")] == ["Pod/wrong"]


class Buffers:
    """Keeps room for virtual pods."""

    def __init__(self, *pods: Pod) -> None:
        self._pods = pods

    def pods(self) -> tuple[Pod, ...]:
        return self._pods

    def keeps(self, _: str) -> bool:
        return False


@pytest.mark.parametrize(("cpu", "goes"), [("100m", 1), ("2500m", 0)])
def test_room_that_a_buffer_needs_is_not_consolidated_away(stages: Make, cpu: str, goes: int) -> None:
    stage = two(stages)
    virtual = (pod(f"virtual-{number}", cpu=cpu, priority=-(2**31), owner="", **WEB) for number in range(2))
    stage.disruption._buffers = cast(CapacityBuffers, Buffers(*virtual))
    look(stage)
    assert len(left(stage)) == 2 - goes
    assert not stage.world.cluster.is_planned("virtual-0")


@pytest.mark.parametrize("tied", ["a", "ab"])
def test_whoever_waits_for_its_turn_does_not_keep_the_limit_over_all_pools_from_others(
    stages: Make, monkeypatch: pytest.MonkeyPatch, tied: str
) -> None:
    """Else nothing drifts in any pool while one drain is held."""
    monkeypatch.setattr(Turns, "why_not", lambda _, one: WAITS_FOR_TIED if one.candidates[0] in tied else "")
    stage = stages("room", most=1)
    stage.world.cluster.pool_changed(
        None, pool("other", disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})
    )
    for name, of in (("a", "general"), ("b", "general"), ("c", "other")):
        stage.drifted(name, pod(f"p-{name}", **WEB), labels={names.NODEPOOL_LABEL: of})
    stage.world.clock.advance(60.0)
    stage.disruption.run_once()
    (going,) = (one.record.candidate_names for one in stage.world.cluster.snapshot().commands)
    assert not {*going} & {*tied}


def test_a_move_that_waits_for_its_turn_does_not_keep_the_limit_over_all_pools_from_others(
    stages: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tied: set[str] = set()

    def hold(_: Turns, one: Proposal) -> str:
        tied.update(() if tied else one.candidates)
        return WAITS_FOR_TIED if tied & {*one.candidates} else ""

    monkeypatch.setattr(Turns, "why_not", hold)
    stage = two(stages, most=1)
    look(stage)
    assert left(stage) == [*tied]


# --- many nodes at once ---


class Lender:
    """Lends somebody who looks for cheaper fleets in every pass, and notes what is told of them."""

    def __init__(self) -> None:
        self.ends: list[dict[str, Any]] = []
        self.seconds, self.stopped, self.lends = 0.0, False, True

    def searcher(self, _looks: Looks, _at: datetime) -> Improved | None:
        return (lambda _, result: result) if self.lends else None

    def ended(self, _looks: Looks, _at: datetime, recheck: datetime | None, **more: Any) -> None:
        self.ends.append({"recheck": recheck, **more})

    def rest(self) -> float:
        return self.seconds

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def lender(stages: Make) -> tuple[DisruptedNodes, Lender]:
    stage, lender = two(stages), Lender()
    stage.disruption._rebuilding = cast(Rebuilding, lender)
    return stage, lender


def rebuilds(monkeypatch: pytest.MonkeyPatch, ask: Callable[[DisruptionView], MethodAnswer]) -> None:
    monkeypatch.setattr(disruption, "REBUILDING", replace(disruption.REBUILDING, ask=ask))


def test_many_nodes_are_asked_about_once_what_was_found_before_has_begun(
    lender: tuple[DisruptedNodes, Lender], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, lent = lender
    seen: list[tuple[bool, int]] = []

    def ask(view: DisruptionView) -> MethodAnswer:
        seen.append((view.improved is not None, len(view.snapshot.commands)))
        return MethodAnswer()

    rebuilds(monkeypatch, ask)
    monkeypatch.setattr(stage.commands.book, "called_off", {"rebuild": 3}.__getitem__)
    look(stage)
    assert seen == [(True, 1)]
    (end,) = lent.ends
    assert (end["settled"], end["begun"], end["called_off"]) == (False, False, 3)


def test_nobody_is_asked_about_many_nodes_where_nobody_is_lent(
    lender: tuple[DisruptedNodes, Lender], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, lent = lender
    lent.lends = False
    rebuilds(monkeypatch, lambda _: pytest.fail("asked"))
    look(stage)
    assert lent.ends == []


def test_a_question_about_many_nodes_that_fails_is_told_too(
    lender: tuple[DisruptedNodes, Lender], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, lent = lender
    stage.disruption._consolidations = ()

    def fails(_: DisruptionView) -> MethodAnswer:
        raise ValueError("no")

    rebuilds(monkeypatch, fails)
    look(stage)
    assert [one["settled"] for one in lent.ends] == [False]


def test_once_it_has_rested_a_pass_is_due_though_nothing_has_changed(
    lender: tuple[DisruptedNodes, Lender], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, lent = lender
    stage.disruption._consolidations = ()
    asked: list[DisruptionView] = []

    def ask(view: DisruptionView) -> MethodAnswer:
        asked.append(view)
        return MethodAnswer()

    rebuilds(monkeypatch, ask)
    lent.seconds = 60.0
    look(stage)
    look(stage)  # what the first pass found to say has been written by now
    asked.clear()
    look(stage, 61)
    assert len(asked) == 1
    stage.world.clock.advance(50)
    stage.disruption.run_once()
    assert not stage.disruption.consolidate_once()
    stage.world.clock.advance(15)
    stage.disruption.run_once()
    assert stage.disruption.consolidate_once()
    assert len(asked) == 2


def test_whoever_is_lent_is_stopped_with_disruption(lender: tuple[DisruptedNodes, Lender]) -> None:
    stage, lent = lender
    stage.disruption.close()
    assert lent.stopped
