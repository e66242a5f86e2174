"""Rows about reboots of broken nodes: Karpenter's specs, with the same counts in the same order, on kwok.

The group "repair" tolerates conditions for 6 s, a fifth of what kwok's policies tolerate; what is to hold for 10, 15 and 30 s there holds as long here. A
node of kwok is back as soon as it was called; here that takes the 6 s of its NodeClass, so that what ails it can be mended meanwhile, as a reboot does.

Differs: there a node that is well again after a reboot was decided is rebooted all the same; here that is called off, so a row mends it after the call.
"""

from typing import Any

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from tests.scenarios.health import ANNOTATED, GROUP, KEEP, first, nodes, says
from tests.scenarios.row import Row, row
from tests.scenarios.scene import Scene
from tests.scenarios.steps import (
    Step,
    becomes,
    check,
    counted,
    evicted,
    first_gone,
    holds,
    none_evicted,
    pod_stays,
    sample,
    wait,
)

FAULT = "KWOKRebootRequired"
AWAY: Any = {"delay": "6s"}


def faulty(*those: int) -> Step:
    """A reboot would help these Nodes, by their places in order of name."""
    return says(FAULT, "True", "Broken", *those)


def mended(*those: int) -> Step:
    """They are well again."""
    return says(FAULT, "False", "Repaired", *those)


def told(claim: NodeClaim | None) -> tuple[str, str]:
    """Status and reason of Rebooting, of a claim that may have gone."""
    found = None if claim is None else condition(claim.status.conditions, names.REBOOTING)
    return ("", "") if found is None else (found.status, found.reason)


def boot_id(scene: Scene, name: str) -> str:
    """What the Node says now; "" where it is gone."""
    found = scene.watching.nodes.get(name)
    return "" if found is None else found.status.node_info.boot_id


def committed(scene: Scene) -> None:
    """The claim of the first Node says that it is rebooted and why, and the Node is closed."""
    scene.await_true(
        lambda: (one := first(scene)) is not None and is_true(one.status.conditions, names.REBOOTING), "it is rebooted"
    )
    scene.await_true(
        lambda: (
            (one := first(scene)) is not None
            and is_true(one.status.conditions, names.DISRUPTION_REASON)
            and (node := scene.node_of(one)) is not None
            and names.REBOOTING_TAINT in node.spec.taints
        ),
        "the Node is closed, and the claim says that it is disrupted",
    )


def called(scene: Scene) -> None:
    """The cloud was called for the first Node, whose claim is not initialized any more."""

    def is_so() -> bool:
        one = first(scene)
        told_so = one is not None and told(one) == ("True", names.REBOOT_ISSUED)
        return told_so and one is not None and not is_true(one.status.conditions, names.INITIALIZED)

    scene.await_true(is_so, "the cloud was called")


def in_place(count: int = 1) -> Step:
    """The first Nodes came back: the same claims and Nodes, another boot, open and initialized; no other claim."""

    def is_back(scene: Scene, name: str) -> bool:
        claim = scene.watching.claims.get(name)
        node = None if claim is None else scene.node_of(claim)
        if claim is None or node is None or told(claim) != ("False", names.REBOOT_SUCCEEDED):
            return False
        before = scene.facts.nodes[node.metadata.name]
        return (
            claim.metadata.uid == scene.facts.claims[name].metadata.uid
            and node.metadata.uid == before.metadata.uid
            and node.status.node_info.boot_id != before.status.node_info.boot_id
            and names.REBOOTING_TAINT not in node.spec.taints
            and node.metadata.labels.get(names.INITIALIZED_LABEL) == "true"
            and is_true(claim.status.conditions, names.INITIALIZED)
        )

    def step(scene: Scene) -> None:
        those = sorted(scene.facts.claims)[:count]
        scene.await_true(lambda: all(is_back(scene, name) for name in those), f"{those} were rebooted in place")
        assert {one.name for one in scene.claims()} == set(scene.facts.claims), "there are other claims"

    return step


def no_more_claims(seconds: float) -> Step:
    """For so long there are no other claims than those before."""

    def step(scene: Scene) -> None:
        def wrong() -> str:
            found = sorted(one.name for one in scene.claims())
            return "" if found == sorted(scene.facts.claims) else f"claims: {found}"

        scene.throughout(seconds, wrong)

    return step


def stays_rebooted(seconds: float) -> Step:
    """For so long nothing more happens to the node."""
    return lambda scene: scene.throughout(
        seconds, lambda: "" if told(first(scene)) == ("False", names.REBOOT_SUCCEEDED) else f"{told(first(scene))}"
    )


def boots_until_it_goes(count: int) -> Step:
    """Until the first Node is deleted; it had so many boots more until then."""

    def step(scene: Scene) -> None:
        name = min(scene.facts.nodes)
        seen = {scene.facts.nodes[name].status.node_info.boot_id}

        def goes() -> bool:
            node = scene.watching.nodes.get(name)
            if node is not None:
                seen.add(node.status.node_info.boot_id)
            return node is None or node.metadata.deletion_timestamp is not None

        scene.await_true(goes, f"{name} is deleted; boots so far: {len(seen) - 1}")
        assert len(seen) - 1 == count, f"{len(seen) - 1} reboots, not {count}"

    return step


def one_after_the_other(scene: Scene) -> None:
    """Of the first two never both are away; each is mended once it is, until both were rebooted."""
    listed = sorted(scene.facts.claims)[:2]
    mend = dict(zip(listed, (mended(0), mended(1)), strict=True))
    away: set[str] = set()

    def both_done() -> bool:
        states = {name: told(scene.watching.claims.get(name)) for name in listed}
        under_way = [name for name, (status, _) in states.items() if status == "True"]
        assert len(under_way) <= 1, f"more nodes are away than the budget allows: {states}"
        for name in under_way:
            if states[name][1] == names.REBOOT_ISSUED and name not in away:
                away.add(name)
                mend[name](scene)
        return all(state == ("False", names.REBOOT_SUCCEEDED) for state in states.values())

    scene.await_true(both_done, f"{listed} were rebooted, one after the other")


def keeps_its_node(app: str, seconds: float) -> Step:
    """For so long the app's pods are where `settled` saw them."""

    def step(scene: Scene) -> None:
        before = {(one.uid, one.node_name) for one in scene.facts.pods.values()}
        scene.throughout(
            seconds,
            lambda: "" if {(one.uid, one.node_name) for one in scene.pods(app)} == before else "they were replaced",
        )

    return step


ROWS: tuple[Row, ...] = (
    row(
        "reboot: a node that a reboot helps is drained, rebooted in place, and left alone afterwards",
        nodes(1, **AWAY),
        faulty(0),
        committed,
        called,
        mended(0),
        no_more_claims(10),
        in_place(),
        becomes(1, 1, new=False),
        evicted("web", count=1),
        stays_rebooted(30),
        no_more_claims(0),
        counted(
            sample("karpenter_nodes_reboots_total", result="succeeded"),
            sample(
                "karpenter_voluntary_disruption_decisions_by_nodepool_total",
                decision="reboot",
                reason="unhealthy",
                nodepool="{pool}",
            ),
        ),
        group=GROUP,
        quick=True,
    ),
    row(
        "reboot: a node that two reboots do not help is replaced",
        nodes(1, **AWAY),
        faulty(0),
        boots_until_it_goes(2),
        first_gone(),
        becomes(1, 1, new=True),
        group=GROUP,
        quick=True,
    ),
    row(
        "reboot: a pod that cannot be evicted stays on its node through the reboot",
        nodes(1, pods={ANNOTATED: KEEP, "terminationGracePeriodSeconds": 30}, **AWAY),
        faulty(0),
        committed,
        called,
        mended(0),
        in_place(),
        keeps_its_node("web", 15),
        pod_stays("web"),
        none_evicted,
        group=GROUP,
    ),
    row(
        "reboot: of two nodes of ten never more are away at once than the budget of 1 allows",
        nodes(10, budget="1", **AWAY),
        faulty(0, 1),
        one_after_the_other,
        in_place(2),
        becomes(10, 10, new=False),
        group=GROUP,
    ),
    # --- more than Karpenter's ---------------------------------------------------------------------------------------
    row(
        "reboot: a node that is well again before the call is not rebooted",
        nodes(1, pods={ANNOTATED: KEEP}, **AWAY),
        faulty(0),
        committed,
        mended(0),
        wait(
            "the node is open again, and no reboot is told of",
            lambda scene: (
                told(first(scene)) == ("", "")
                and not any(names.REBOOTING_TAINT in one.spec.taints for one in scene.nodes())
            ),
        ),
        check(
            lambda scene: all(
                boot_id(scene, name) == one.status.node_info.boot_id for name, one in scene.facts.nodes.items()
            ),
            "it had no other boot",
        ),
        holds(10),
        none_evicted,
        group=GROUP,
    ),
)
