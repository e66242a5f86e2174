"""A workload whose nodes go again and again is told, counted, and left alone."""

from provisioner.apis import names
from provisioner.disruption.loops import WINDOW
from provisioner.support.metrics import REGISTRY
from tests.support.cluster import plan_text, pod
from tests.support.disrupting import DisruptedNodes, Make


def counted() -> float:
    return REGISTRY.get_sample_value("dovetail_disruption_loops_total", {"nodepool": "general"}) or 0.0


def said(stage: DisruptedNodes) -> list[str]:
    told = zip(stage.server.recorder.events, stage.server.recorder.messages, strict=True)
    return [f"{event[0]} {event[1]}: {message}" for event, message in told if event[3] == "DisruptionLoop"]


def launch(stage: DisruptedNodes, name: str) -> None:
    """A node that was launched for a pod that is gone again."""
    created = stage.world.clock.now().isoformat()
    stage.cloud.there.add(f"kwok://{name}")
    stage.put(
        name,
        annotations={names.PLAN_ANNOTATION: plan_text((pod("gone", owner="web"),))},
        creationTimestamp=created,
    )
    stage.commands.heard(stage.server.claim(name))


def test_the_fourth_node_of_a_loop_stays_until_the_hour_is_over(stages: Make) -> None:
    stage, before = stages("other"), counted()
    stage.bind(pod("w", owner="web"), "other")
    stage.run()
    for name in "abc":
        assert said(stage) == []
        launch(stage, name)
        stage.run()
        assert stage.goes(name)
        stage.world.clock.advance(60.0)
    text = "Nodes for pods of the owner with UID web were launched and removed 3 times within an hour"
    assert [one.split(";")[0] for one in said(stage)] == [f"NodeClaim c: {text}"]
    assert counted() == before + 1
    launch(stage, "d")
    stage.run()
    assert not stage.goes("d")
    assert {one.split(":")[0] for one in said(stage)} == {"NodeClaim c", "NodeClaim d", "Node d"}
    stage.world.clock.advance(WINDOW.total_seconds())
    stage.run()
    assert stage.goes("d")


def test_pods_of_the_workload_are_told(stages: Make) -> None:
    stage = stages("other")
    for name in "abc":
        launch(stage, name)
        claim = stage.server.claim(name)
        stage.commands.loops.decided((name,))
        stage.commands.loops.removed(claim, [pod(f"w{number}", owner="web") for number in range(12)])
        stage.world.clock.advance(60.0)
    told = [one for one in said(stage) if one.startswith("Pod ")]
    assert len(told) == 10
    assert told[0].startswith("Pod w0: Nodes for pods of ReplicaSet default/web were launched and removed 3 times")
