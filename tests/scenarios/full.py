"""Rows about nodes that go before their successors are launched, because capacity is full: Karpenter's specs, with the same counts in the same order.

Static NodePools at their limit are kwok's, full reservations the emulated EC2's. Conditions are tolerated for 6 s: of kwok's 30 s a fifth, of the 10 minutes
of a GPU error a hundredth. What is to hold for 10 s there holds as long here: the pod of the node takes 12 s to end, instead of a finalizer that holds its Node.

Differs: there a node is deleted before it is drained; here one that drifted is drained first, so that it may stay where its pods do. There nothing is written of the successor before the node is deleted; here its NodeClaim is there first, which nothing launches, so that nobody
else takes the place.
"""

from collections.abc import Mapping
from typing import Any

from provisioner.apis import names
from provisioner.apis.meta import is_true
from tests.scenarios.health import GROUP, broken
from tests.scenarios.instances import RESERVED, ec2_pool, gpu_says, in_the_reservation, reservation
from tests.scenarios.row import INSTANCES, Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    GENERATION,
    NEVER,
    Step,
    becomes,
    change_pool,
    claims_say,
    counted,
    deploy,
    event,
    evicted,
    holds,
    labelled,
    none_evicted,
    pool,
    relabel,
    sample,
    settled,
    together,
)

SLOW: dict[str, Any] = {"terminationGracePeriodSeconds": 20, "annotations": {"kwok.dovetail.dev/delete-delay": "12s"}}
ANY: Mapping[str, Any] = {"budgets": [{"nodes": "100%"}]}
BELOW_LIMIT: Mapping[str, Any] = {"replicas": 1, "limits": {"nodes": "2"}}
BROKEN_GPU = gpu_says("False", "NvidiaXID79Error", 0)
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
AT_LIMIT: Mapping[str, Any] = {"replicas": 1, "limits": {"nodes": "1"}, "disruption": ANY}


def at_limit(scene: Scene) -> None:
    """A static NodePool with the one node that it may have, and a pod that takes its time to end."""
    together(pool(**AT_LIMIT), settled(1, 0), deploy("web", 1, cpu="1", **SLOW), settled(1, 1))(scene)


def one_after_the_other(seconds: float = 10) -> Step:
    """The old node is drained, for so long at least, and nothing is launched for its successor before it is gone; then there is a new one."""

    def step(scene: Scene) -> None:
        (old,) = scene.facts.claims
        (node,) = scene.facts.nodes

        def launched() -> list[str]:
            return [one.name for one in scene.claims() if one.name != old and one.status.provider_id]

        def wrong() -> str:
            before_it_is_gone = launched() and scene.watching.claims.get(old) is not None
            return f"{launched()} were launched before {old} was gone" if before_it_is_gone else ""

        def going() -> bool:
            assert not wrong(), wrong()
            there = scene.watching.nodes.get(node)
            return there is not None and names.DISRUPTED_TAINT in there.spec.taints

        scene.await_true(going, f"{node} is closed")
        scene.throughout(
            seconds, lambda: wrong() or ("" if scene.watching.claims.get(old) is not None else "it is gone")
        )

        def gone() -> bool:
            assert not wrong(), wrong()
            assert len(scene.claims()) <= 2, "more than the node and its successor"
            return scene.watching.claims.get(old) is None

        scene.await_true(gone, f"{old} is gone")
        scene.await_true(
            lambda: [is_true(one.status.conditions, names.READY) for one in scene.claims()] == [True],
            "there is one new node",
        )

    return step


def reserved_only(**spec: Any) -> Step:
    """A reservation of one instance, the one node that may use it and nothing else, and a pod there that takes its time to end."""

    def is_there(scene: Scene) -> None:
        labelled(RESERVATION, scene.facts.reservation)(scene)
        assert len(in_the_reservation(scene)) == 1, in_the_reservation(scene)

    first = settled(1, 0) if "replicas" in spec else together()
    made = together(reservation(), ec2_pool(RESERVED, reserved=True, disruption=NEVER if not spec else ANY, **spec))
    return together(made, first, deploy("web", 1, cpu="500m", **SLOW), settled(1, 1), is_there)


def never_over_the_reservation(scene: Scene) -> None:
    """EC2 was never asked for more than the reservation has: that would be told of the successor."""
    told = scene.events("InsufficientCapacityError", "NodeClaim", [one.name for one in scene.claims()])
    assert not told, told
    assert len(in_the_reservation(scene)) == 1, in_the_reservation(scene)


def renewed_in_the_reservation(name: str, act: Step, reason: str, **spec: Any) -> Row:
    """The one node of a full reservation goes, and its successor takes its place there."""
    return row(
        f"terminate first: {name}",
        reserved_only(**spec),
        act,
        one_after_the_other(),
        becomes(1, 1, new=True),
        never_over_the_reservation,
        evicted("web", count=1),
        decided(reason, "no-reserved-capacity"),
        group=INSTANCES,
    )


def decided(reason: str, why: str) -> Step:
    """The decision was counted as one that terminates first."""
    name = "karpenter_voluntary_disruption_terminate_first_decisions_total"
    return counted(sample(name, nodepool="{pool}", reason=reason, terminate_first_reason=why))


ROWS: tuple[Row, ...] = (
    row(
        "terminate first: a broken node of a static NodePool at its limit goes before its successor is launched",
        at_limit,
        broken(0),
        one_after_the_other(),
        becomes(1, 1, new=True),
        evicted("web", count=1),
        decided("unhealthy", "static-at-limit"),
        group=GROUP,
        quick=True,
    ),
    row(
        "terminate first: a drifted node of a static NodePool at its limit goes before its successor is launched",
        at_limit,
        change_pool(template={"metadata": {"annotations": {GENERATION: "two"}}}),
        one_after_the_other(),
        becomes(1, 1, new=True),
        evicted("web", count=1),
        decided("drifted", "static-at-limit"),
        group=GROUP,
        quick=True,
    ),
    row(
        "terminate first: without the feature gate a drifted node of a static NodePool at its limit stays, and is told why",
        at_limit,
        relabel(),
        claims_say(names.DRIFTED, "True"),
        event("DisruptionBlocked", 'NodePool "{pool}" has reached its limit for nodes'),
        holds(10),
        none_evicted,
    ),
    # --- reservations of EC2 ------------------------------------------------------------------------------------------
    renewed_in_the_reservation("a broken node of a full reservation", BROKEN_GPU, "unhealthy"),
    renewed_in_the_reservation("a drifted node of a full reservation", relabel(), "drifted"),
    renewed_in_the_reservation(
        "a broken node of a static NodePool, below its limit, in a full reservation",
        BROKEN_GPU,
        "unhealthy",
        **BELOW_LIMIT,
    ),
    renewed_in_the_reservation(
        "a drifted node of a static NodePool, below its limit, in a full reservation",
        relabel(),
        "drifted",
        **BELOW_LIMIT,
    ),
)
