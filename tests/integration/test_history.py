"""The leader's history on a real control plane: pods that were planned, their nodes from launch to initialization, and what it says of prices."""

import pytest

from provisioner.history.entries import BatchPlanned, ClaimSeen, FleetCost, PodsBound
from provisioner.kube.client import Client
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.ui.past import PROVISIONING, history_of
from provisioner.ui.sight import ALL
from tests.support.eventually import eventually
from tests.support.histories import entries_of
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane


def test_a_deployment_is_told_from_its_plan_to_its_pods(plane: DevCluster, client: Client) -> None:
    plot, program = Plot(client), InProcess(str(plane.kubeconfig))
    program.start()
    try:
        plot.pool()
        plot.deploy("told", 4)
        plot.await_running(4, "told")
        history = program.controllers.history

        def complete() -> bool:
            told = [one for _, one in entries_of(list(history.segments()))]
            bound = sum(len(one.waited_ms) for one in told if isinstance(one, PodsBound))
            ready = any(isinstance(one, ClaimSeen) and one.pool == plot.name and one.initialized for one in told)
            return ready and bound >= 4

        eventually(complete, "a node is told to be initialized, and its pods bound", SECONDS)
        told = [one for _, one in entries_of(list(history.segments()))]
        known = history.told()
    finally:
        plot.clear()
        program.stop()
    claims = [one for one in told if isinstance(one, ClaimSeen) and one.pool == plot.name and one.initialized]
    assert all(one.created <= one.launched <= one.registered <= one.initialized for one in claims)
    assert all(one.usd_per_hour > 0 and one.instance_type and one.zone for one in claims)
    planned = [one for one in told if isinstance(one, BatchPlanned) and any(new.pool == plot.name for new in one.new)]
    assert sum(new.pods for one in planned for new in one.new) >= 4
    assert all(one.usd_greedy >= one.usd_per_hour > 0 for one in planned)
    assert any(isinstance(one, FleetCost) for one in told)
    assert known is not None
    past = history_of(*known, ALL)
    assert past is not None
    assert past.since <= min(one.created for one in claims)
    assert past.moments
    assert any(one.after and one.saved is not None for one in past.decisions if one.reason == PROVISIONING)
