"""Rows about broken nodes: Karpenter's specs of node repair, with the same counts in the same order.

The group "repair" starts the provisioner with `--repair-timeout=6s`: a hundredth of what kwok's policies tolerate for Ready (10 minutes), a fifth of what they
tolerate for KWOKUnhealthy (30 s). Where nothing may happen for a minute there, nothing happens for 20 s here, more than three tolerations. Grace periods
are as they are. All nodes are alike and in one zone: no row is to trip a zone or an instance type for the others.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from tests.scenarios.row import Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    NEVER,
    ON_DEMAND,
    Step,
    at_most_disrupted,
    becomes,
    change_pool,
    counted,
    deploy,
    disrupted_for,
    event,
    evicted,
    first_gone,
    holds,
    may_force,
    may_orphan,
    none_evicted,
    not_ready,
    on_nodes,
    pool,
    settled,
    together,
    wait,
)

GROUP = "repair"
ALIKE: Any = [ON_DEMAND, {"key": names.ZONE_LABEL, "operator": "In", "values": ["test-zone-a"]}]
QUIET = 20.0
LONG = timedelta(hours=31)


def nodes(count: int = 5, *, budget: str = "100%", pods: dict[str, Any] | None = None, **spec: Any) -> Step:
    """So many nodes, each with a pod."""
    disruption = {**NEVER, "budgets": [{"nodes": budget}]}
    return together(
        pool(disruption=disruption, requirements=ALIKE, **spec),
        deploy("web", count, **{"terminationGracePeriodSeconds": 5, **(pods or {})}),
        settled(count, count),
    )


def wire_time(at: datetime) -> str:
    """As Kubernetes writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def says(kind: str, status: str, reason: str, *those: int, since: timedelta = timedelta(0)) -> Step:
    """These Nodes, by their places in order of name, have the condition from now on, or say that they have had it for so long."""

    def step(scene: Scene) -> None:
        now = datetime.now(tz=UTC)
        told = {"type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": wire_time(now)}
        body = {"status": {"conditions": [{**told, "lastTransitionTime": wire_time(now - since)}]}}
        listed = sorted(scene.facts.nodes)
        for number in those:
            path = f"/api/v1/nodes/{listed[number]}/status"
            scene.client.raw("PATCH", path, body, {}, content_type="application/strategic-merge-patch+json")

    return step


def broken(*those: int) -> Step:
    """These Nodes are broken, though their pods run."""
    return says("KWOKUnhealthy", "True", "Broken", *those)


def well(*those: int) -> Step:
    """These Nodes are well again."""
    return says("KWOKUnhealthy", "False", "Repaired", *those)


def first(scene: Scene) -> NodeClaim | None:
    """The claim of the first Node, as it is."""
    return scene.watching.claims.get(min(scene.facts.claims))


def more_while_the_old_ones_stay(count: int) -> Step:
    """Until there are so many claims, of which none is being deleted."""

    def so(scene: Scene) -> bool:
        found = scene.claims()
        return len(found) == count and all(one.metadata.deletion_timestamp is None for one in found)

    return wait(f"{count} claims, of which none is being deleted", so)


def old_ones_left(*those: int) -> Step:
    """Until these are gone, by their places in order of name, and all others stay."""

    def so(scene: Scene) -> bool:
        listed = sorted(scene.facts.claims)
        left = {one.name for one in scene.claims()} & set(listed)
        return left == {name for number, name in enumerate(listed) if number not in those}

    return wait(f"old nodes {list(those)} are gone and the others are left", so)


def tainted_and_there_for(seconds: float) -> Step:
    """The first Node is closed, deleted, and still there after so long."""

    def is_closed(scene: Scene) -> bool:
        claim = first(scene)
        node = scene.node_of(claim) if claim is not None else None
        going = claim is not None and claim.metadata.deletion_timestamp is not None
        return going and node is not None and names.DISRUPTED_TAINT in node.spec.taints

    return together(
        wait("the node is tainted and its claim is being deleted", is_closed),
        lambda scene: scene.throughout(seconds, lambda: "" if first(scene) is not None else "it is gone"),
    )


ANNOTATED = "annotations"
KEEP = {names.DO_NOT_DISRUPT: "true"}

ROWS: tuple[Row, ...] = (
    row(
        "repair: one broken node of five is replaced",
        nodes(),
        broken(0),
        event("DisruptionTerminating", "Disrupting Node: Unhealthy"),
        first_gone(),
        becomes(5, 5),
        old_ones_left(0),
        evicted("web"),
        counted(disrupted_for("unhealthy")),
        group=GROUP,
        quick=True,
    ),
    row(
        "repair: the replacement is there before the broken node goes",
        nodes(delay="6s"),
        broken(0),
        more_while_the_old_ones_stay(6),
        none_evicted,
        first_gone(),
        becomes(5, 5),
        group=GROUP,
    ),
    row(
        "repair: two broken nodes of five are too many, and it is said of nodes and NodePool",
        nodes(),
        broken(0, 1),
        event("NodeRepairBlocked", 'More than 20% of the nodes of NodePool "{pool}" are unhealthy', kind="Node"),
        event("NodeRepairBlocked", "More than 20%", kind="NodePool"),
        holds(QUIET),
        none_evicted,
        group=GROUP,
    ),
    row(
        "repair: when one of two broken nodes is well again, the other one is replaced",
        nodes(),
        broken(0, 1),
        event("NodeRepairBlocked"),
        well(1),
        first_gone(),
        becomes(5, 5),
        old_ones_left(0),
        group=GROUP,
    ),
    row(
        "repair: pods with do-not-disrupt stay until the terminationGracePeriod is over",
        nodes(pods={ANNOTATED: KEEP, "terminationGracePeriodSeconds": 5}, template={"terminationGracePeriod": "25s"}),
        may_force,
        broken(0),
        tainted_and_there_for(12),
        first_gone(),
        becomes(5, 5),
        group=GROUP,
    ),
    row(
        "repair: a node with do-not-repair stays, and is told why",
        nodes(),
        on_nodes({"metadata": {ANNOTATED: {names.DO_NOT_REPAIR: "true"}}}, 1),
        broken(0),
        event("DisruptionBlocked", names.DO_NOT_REPAIR, kind="Node"),
        holds(QUIET),
        group=GROUP,
    ),
    row(
        "repair: a budget of 0 stops it, and one of 100 % does not",
        nodes(1, budget="0"),
        broken(0),
        event("DisruptionBlocked", "No allowed disruptions for disruption reason Unhealthy", kind="Node"),
        holds(QUIET),
        change_pool(disruption={"budgets": [{"nodes": "100%"}]}),
        first_gone(),
        becomes(1, 1, new=True),
        group=GROUP,
    ),
    row(
        "repair: do-not-disrupt of a node does not keep it",
        nodes(1),
        on_nodes({"metadata": {ANNOTATED: KEEP}}, 1),
        broken(0),
        first_gone(),
        becomes(1, 1, new=True),
        group=GROUP,
    ),
    row(
        "repair: a node that is not ready is replaced",
        nodes(1, pods={ANNOTATED: KEEP}),
        may_force,
        may_orphan,
        not_ready(since=LONG),
        first_gone(),
        becomes(1, 1, new=True),
        group=GROUP,
    ),
    row(
        "repair: a node of which nothing is known is replaced",
        nodes(1, pods={ANNOTATED: KEEP}),
        may_force,
        may_orphan,
        not_ready(status="Unknown", since=LONG),
        first_gone(),
        becomes(1, 1, new=True),
        group=GROUP,
        quick=True,
    ),
    # --- more than Karpenter's ---------------------------------------------------------------------------------------
    row(
        "repair: all that the budget allows are replaced at once",
        nodes(10, delay="6s"),
        broken(0, 1),
        more_while_the_old_ones_stay(12),
        becomes(10, 10),
        old_ones_left(0, 1),
        at_most_disrupted(2, least=2),
        group=GROUP,
    ),
    row(
        "repair: of two broken nodes one waits for the budget, and is told so",
        nodes(10, budget="1", delay="6s"),
        broken(0, 1),
        event("DisruptionBlocked", "may be disrupted now, and other nodes come first", kind="Node"),
        becomes(10, 10),
        old_ones_left(0, 1),
        at_most_disrupted(1),
        group=GROUP,
    ),
    row(
        "repair: a node that is well again while its replacement comes up stays",
        nodes(delay="10s"),
        broken(0),
        more_while_the_old_ones_stay(6),
        well(0),
        event("DisruptionBlocked", "is healthy again"),
        wait(
            "all nodes are open",
            lambda scene: not any(names.DISRUPTED_TAINT in one.spec.taints for one in scene.nodes()),
        ),
        lambda scene: scene.throughout(
            QUIET, lambda: "" if set(scene.facts.claims) <= {one.name for one in scene.claims()} else "it was replaced"
        ),
        none_evicted,
        group=GROUP,
    ),
)
