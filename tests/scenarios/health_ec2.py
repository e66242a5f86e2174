"""Rows about broken instances of EC2: the specs of Karpenter's AWS provider, with the same counts in the same order.

The groups "instances" and "legacy-instances" start the provisioner with `--repair-timeout=6s`: of the 10 minutes of a GPU error a hundredth, of the other 30
minutes a three-hundredth. The conditions are those that EKS' node monitoring agent and the kubelet set, and as old as they are said to be there.
"""

from datetime import timedelta
from typing import Any, Final

from provisioner.apis import names
from tests.scenarios.health import says
from tests.scenarios.instances import GPU, ON_DEMAND, ec2_pool, mine
from tests.scenarios.reboots import called, committed, in_place
from tests.scenarios.row import INSTANCES, LEGACY_INSTANCES, Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    NEVER,
    Step,
    becomes,
    counted,
    deploy,
    disrupted_for,
    event,
    evicted,
    first_gone,
    may_force,
    may_orphan,
    not_ready,
    on_nodes,
    settled,
    together,
)

REBOOTS: Final = "RebootInstances"
KEEP: Any = {"annotations": {names.DO_NOT_DISRUPT: "true"}}
GPU_ERROR = "NvidiaXID79Error"


def one(*, pods: dict[str, Any] | None = None, **spec: Any) -> Step:
    """An instance with a pod."""
    return together(
        ec2_pool(ON_DEMAND, **{"disruption": NEVER, **spec}),
        deploy("web", 1, cpu="500m", **(pods or {})),
        settled(1, 1),
    )


def same_instance(scene: Scene) -> None:
    """It runs, since when it was launched; it was rebooted by one call."""
    (found,) = mine(scene)
    (claim,) = scene.claims()
    assert found["state"] == "running", found
    assert claim.status.provider_id == scene.facts.claims[claim.name].status.provider_id
    assert scene.ec2.calls()[REBOOTS] == 1


def replaced(name: str, fault: Step) -> Row:
    """A node with this fault is replaced, its pod evicted."""
    return row(
        f"repair on EC2: {name}",
        one(),
        fault,
        first_gone(),
        becomes(1, 1, new=True),
        evicted("web", count=1),
        counted(disrupted_for("unhealthy")),
        group=INSTANCES,
    )


def legacy(name: str, fault: Step) -> Row:
    """A node with this fault goes at once, whatever protects it."""
    return row(
        f"legacy repair on EC2: {name}",
        one(disruption={**NEVER, "budgets": [{"nodes": "0"}]}, template={"terminationGracePeriod": "1h"}, pods=KEEP),
        on_nodes({"metadata": KEEP}, 1),
        may_force,
        may_orphan,
        fault,
        event("DisruptionTerminating", "Disrupting Node: Unhealthy"),
        first_gone(),
        becomes(1, 1, new=True),
        group=LEGACY_INSTANCES,
    )


AGENT = ("AcceleratedHardwareReady", "StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady")

ROWS: tuple[Row, ...] = (
    row(
        "reboot on EC2: an instance whose GPU a reboot helps is rebooted in place, by one call",
        one(),
        says(GPU, "False", "NvidiaXID46Error", 0, since=timedelta(minutes=11)),
        committed,
        called,
        says(GPU, "True", "NvidiaGPUIsReady", 0),
        in_place(),
        becomes(1, 1, new=False),
        same_instance,
        group=INSTANCES,
    ),
    replaced("a GPU error that no reboot helps", says(GPU, "False", GPU_ERROR, 0, since=timedelta(minutes=11))),
    replaced("storage that is not ready", says("StorageReady", "False", "", 0, since=timedelta(minutes=31))),
    *(legacy(f"{kind} is False", says(kind, "False", "NotReady", 0, since=timedelta(minutes=31))) for kind in AGENT),
    legacy("Ready is False", not_ready(since=timedelta(minutes=31))),
    legacy("Ready is Unknown", not_ready(status="Unknown", since=timedelta(minutes=31))),
)
