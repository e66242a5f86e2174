"""What the leader's history tells of decisions, and what new nodes would cost."""

from typing import cast

from provisioner.apis.command import CandidateRecord, CommandRecord
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import CloudProvider
from provisioner.disruption.proposal import Proposal
from provisioner.history.decisions import batch_planned, command_begun
from provisioner.history.entries import BoundCauses, CommandTurn, FleetBound
from provisioner.history.fleet_pricing import LEAST_REST_SECONDS, SHARE, FleetPricing, fleet_question
from provisioner.packing.process import PlannerProcess
from provisioner.provisioning.worlds import Worlds
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock
from tests.support.cluster import World, claim, node, pod, pool
from tests.support.disrupting import FakeCloud
from tests.support.problems import pool as scheduling_pool
from tests.support.problems import problem
from tests.support.question import solve


def solved(pods: tuple[Pod, ...]) -> Result:
    return solve(problem(pods, scheduling_pool()))


def test_nodes_of_a_batch_are_counted_by_kind() -> None:
    result = solved(tuple(pod(f"p-{number}", cpu="3") for number in range(4)))
    entry = batch_planned("id", 4, result, usd_saved=0.5, usd_at_least=0.1, outcome="improved", seconds=0.25)
    assert sum(one.nodes for one in entry.new) == len(result.claims) > 0
    assert sum(one.pods for one in entry.new) + sum(count for _, count in entry.unplaced) == 4
    assert entry.usd_greedy - entry.usd_per_hour == 0.5
    assert (entry.id, entry.milliseconds, entry.outcome) == ("id", 250, "improved")


def test_pods_without_a_place_are_counted_by_reason() -> None:
    result = solved(tuple(pod(f"p-{number}", cpu="3000") for number in range(3)))
    entry = batch_planned("id", 3, result, usd_saved=0, usd_at_least=None, outcome="greedy", seconds=0)
    assert entry.new == ()
    assert sum(count for _, count in entry.unplaced) == 3
    assert all(reason for reason, _ in entry.unplaced)


def test_a_command_tells_what_it_costs_before_and_after() -> None:
    result = solved((pod("p", cpu="3"),))
    record = CommandRecord(id="x", reason="Drifted", method="drift", candidates=(CandidateRecord("c", "u"),))
    entry = command_begun(record, Proposal("Drifted", "drift", ("c",), result.claims), 3.0)
    assert (entry.turn, entry.candidates, entry.usd_before, entry.pods) == (CommandTurn.BEGUN, ("c",), 3.0, 1)
    assert entry.usd_after == round(result.usd_per_hour, 6)


WORLDS = Worlds(cast(CloudProvider, FakeCloud()))


def fleet() -> World:
    world = World()
    world.cluster.pool_changed(None, pool())
    for number in range(3):
        name = f"n-{number}"
        world.cluster.claim_changed(None, claim(name, true=("Launched", "Registered", "Initialized"), provider_id=name))
        world.cluster.node_changed(None, node(name, provider_id=name))
        for other in range(4):
            world.cluster.pod_changed(None, pod(f"p-{number}-{other}", node=name))
    world.cluster.pod_changed(None, pod("waiting"))
    world.cluster.pod_changed(None, pod("daemon", node="n-0", kind="DaemonSet"))
    return world


def test_the_price_of_the_fleet_is_asked_about_as_if_there_were_no_node() -> None:
    question = fleet_question(fleet().cluster.snapshot(), WORLDS)
    assert question.world.bins == ()
    assert sum(question.counts) >= 12
    assert all(not one.node_name for one in question.pods)


def test_a_planning_process_tells_the_greedy_price_and_a_bound_within_its_share() -> None:
    told: list[FleetBound | BoundCauses] = []
    process = PlannerProcess(SystemClock())
    world = fleet()
    pricing = FleetPricing(world.cluster.snapshot, WORLDS, process, SystemClock(), told.append)
    try:
        rest = pricing.poll()
    finally:
        process.stop()
        process.tidy()
    found, _ = told
    assert isinstance(found, FleetBound)
    assert found.pods >= 12
    assert found.unplaced == 0
    assert 0 < found.usd_at_least <= found.usd_greedy
    assert rest >= max(LEAST_REST_SECONDS, found.cpu_seconds / SHARE)


def test_without_pods_nobody_is_asked() -> None:
    told: list[FleetBound | BoundCauses] = []
    process = PlannerProcess(SystemClock())
    pricing = FleetPricing(World().cluster.snapshot, WORLDS, process, SystemClock(), told.append)
    assert pricing.poll() == LEAST_REST_SECONDS
    assert process.pid is None
    assert told == []
