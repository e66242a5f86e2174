"""Rows about the default topology spread of kube-scheduler, which `--scheduler-config` tells: Karpenter's specs, with the same counts in the same order.

The group "spread" has a profile of kube-scheduler that spreads pods over hosts and zones with maxSkew 1, hard, where they say nothing themselves; the rows'
pods choose it, and the provisioner is told of it. Where a Service says what belongs together, or nothing does, pods have no owner.
"""

from typing import Any

from provisioner.apis import names
from tests.scenarios.grounds import SPREADING
from tests.scenarios.row import Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    NEVER,
    Step,
    apart,
    becomes,
    check,
    deploy,
    over,
    pods_run,
    pool,
    put,
    settled,
    sizes,
    spread,
    together,
)
from tests.support.provisioner import TEAM

GROUP = "spread"
COUNT = 4
SIZES: Any = {"cpu": (2, 4, 8), "disruption": NEVER}
OWN: Any = {"schedulerName": SPREADING}


def bare_pods(scene: Scene) -> None:
    """So many pods of an app that nobody owns."""
    for number in range(COUNT):
        container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": "1"}}}
        scene.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"web-{number}", "labels": {"app": "web"}},
                "spec": {
                    "schedulerName": SPREADING,
                    "containers": [container],
                    "nodeSelector": {TEAM: scene.name},
                    "tolerations": [{"key": TEAM, "operator": "Exists"}],
                    "terminationGracePeriodSeconds": 1,
                },
            }
        )


SERVICE = put(
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
)


def spread_out(app: str) -> Step:
    """Each pod has a node of its own, and a zone."""
    return together(apart(app), spread(app, names.ZONE_LABEL, 1, domains=COUNT))


def on_one_node(app: str) -> Step:
    """All pods of the app share a node."""
    return check(lambda scene: len({one.node_name for one in scene.pods(app)}) == 1, f"{app} has one node")


ROWS: tuple[Row, ...] = (
    row(
        "default spread: four pods of a Deployment get four nodes in four zones, each of the size of one pod",
        pool(**SIZES),
        deploy("web", COUNT, cpu="1", **OWN),
        settled(COUNT, COUNT),
        spread_out("web"),
        sizes(2, 2, 2, 2),
        group=GROUP,
        quick=True,
    ),
    row(
        "default spread: four pods that a Service selects get four nodes in four zones, each of the size of one pod",
        pool(**SIZES),
        SERVICE,
        bare_pods,
        settled(COUNT, COUNT),
        spread_out("web"),
        sizes(2, 2, 2, 2),
        group=GROUP,
        quick=True,
    ),
    row(
        "default spread: four pods that nobody owns and nothing selects share one node",
        pool(cpu=8, disruption=NEVER),
        bare_pods,
        settled(1, COUNT),
        on_one_node("web"),
        group=GROUP,
        quick=True,
    ),
    row(
        "default spread: pods of one batch with a spread of their own share a node, and the others are spread",
        pool("-spread", cpu=4, disruption=NEVER),
        pool("-own", cpu=4, disruption=NEVER),
        deploy("web", COUNT, cpu="200m", pool="-spread", **OWN),
        deploy(
            "own",
            COUNT,
            cpu="200m",
            pool="-own",
            topologySpreadConstraints=[
                {**one, "whenUnsatisfiable": "ScheduleAnyway"} for one in over(names.HOSTNAME_LABEL, "own", skew=COUNT)
            ],
            **OWN,
        ),
        pods_run(2 * COUNT),
        becomes(COUNT + 1, 2 * COUNT),
        spread_out("web"),
        on_one_node("own"),
        group=GROUP,
        quick=True,
    ),
)
