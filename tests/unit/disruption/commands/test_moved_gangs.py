"""Gangs whose pods are disrupted all at once are told when that is about to happen."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.core import PodGroup
from provisioner.disruption.commands.queue import tell_moved_gangs
from provisioner.disruption.proposal import Proposal
from provisioner.state.knowledge import KindKnowledge
from tests.support.cluster import World, pod
from tests.support.worldserver import WorldServer

MOVED = "All pods of PodGroup default/train are being moved: 2 nodes will be disrupted at once (Drifted)"


@pytest.mark.parametrize(
    ("mode", "expected"), [("all", [("PodGroup", "train"), ("Pod", "a")]), ("single", list[tuple[str, str]]())]
)
def test_one_event_about_the_group_and_one_about_a_pod(mode: str, expected: list[tuple[str, str]]) -> None:
    world = World()
    server = WorldServer(world)
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {mode: {}}}
    group = msgspec.convert({"metadata": {"name": "train", "namespace": "default"}, "spec": spec}, PodGroup)
    world.cluster.pod_groups_known(KindKnowledge.READ)
    world.cluster.pod_group_changed(None, group)
    pods = tuple(pod(name, node=f"n-{name}", group="train") for name in "ab")
    world.add(*pods)
    proposal = Proposal("Drifted", "drift", ("x", "y"), placements={"node/z": (*pods, pod("alone"))})
    tell_moved_gangs(server.recorder, world.cluster, proposal, world.cluster.snapshot().together)
    assert [(kind, name) for kind, name, _, _ in server.recorder.events] == expected
    assert set(server.recorder.messages) == ({MOVED} if expected else set())
